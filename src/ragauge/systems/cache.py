"""Where ragauge keeps what can be made again: vectors of documents, the embedded server's data."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """RAGAUGE_CACHE, else the user's cache folder."""
    own = os.environ.get("RAGAUGE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragauge"
