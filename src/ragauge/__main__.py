"""`python -m ragauge` is `ragauge`."""

from __future__ import annotations

from ragauge.cli import main

main()
