"""Working folders and files: locks, atomic writes, temporary files, and the folder of recomputable data."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder RAGAUGE_CACHE, or else the cache folder of the user."""
    own = os.environ.get("RAGAUGE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragauge"
