"""Checks of option values."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ragauge.core.errors import BadInput, UnknownName


def check_choice(kind: str, name: str, known: Collection[str]) -> str:
    """Return the name if it is known; raise UnknownName otherwise."""
    if name not in known:
        raise UnknownName(kind, str(name), known, hint=f"there are {', '.join(known)}")
    return name


def check_int(name: str, value: int, least: int = 1, most: int | None = None) -> int:
    """Return an integer within its bounds; raise BadInput otherwise.

    Libraries crash on other values, or silently use a different one.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BadInput(f"{name} must be a whole number, not {value!r}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} is {value}; it must be {bounds}")
    return int(value)
