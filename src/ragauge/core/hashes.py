"""Hashes of user-defined systems, to detect changes of their code."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any

HASHED_TYPES = (str, int, float, bool, type(None))


def hash_source(thing: Any) -> str:
    """Hash the source file of a function or class, and simple attributes.

    Changes in other files that it uses, or in a server, are not detected.
    """
    whole = hashlib.blake2b(digest_size=12)
    made = inspect.unwrap(thing) if callable(thing) else thing
    home = made if inspect.isroutine(made) or inspect.isclass(made) else type(made)
    code = getattr(home, "__code__", None)
    try:
        whole.update(Path(inspect.getfile(home)).read_bytes())
    except (TypeError, OSError):  # defined interactively, or built in
        whole.update(b"" if code is None else code.co_code + repr(code.co_consts).encode("utf-8", "replace"))
    held = getattr(made, "__dict__", {}) if not inspect.isclass(made) else {}
    for name, value in sorted(held.items()):
        if isinstance(value, HASHED_TYPES):
            whole.update(f"{name}={value!r};".encode("utf-8", "replace"))
    return whole.hexdigest()
