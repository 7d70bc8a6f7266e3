"""Pieces of a page of Markdown: texts that stay texts, and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragauge.reports.tables import one_line


def safe(text: str) -> str:
    """A text as text: no line breaks, no control characters, nothing that Markdown or HTML would act on."""
    return re.sub(r"([\\`*\[\]|#!$~])", r"\\\1", one_line(text).replace("&", "&amp;").replace("<", "&lt;"))


def grid(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> list[str]:
    """A table, line by line; all columns but the first are numbers, unless they are not."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(safe(cell) for cell in cells) + " |"

    return [line(header), "|---|" + ("---:|" if numbers else "---|") * (len(header) - 1), *map(line, rows)]
