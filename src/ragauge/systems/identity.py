"""Whether a system of the user's own is still the same: a hash of the code it comes from."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any

PLAIN = (str, int, float, bool, type(None))


def code_hash(thing: Any) -> str:
    """A hash of the file that a function or a class stands in, and of the plain values that an object holds.

    What other files it calls, and what a server behind it does, cannot be seen from here.
    """
    whole = hashlib.blake2b(digest_size=12)
    made = inspect.unwrap(thing) if callable(thing) else thing
    home = made if inspect.isroutine(made) or inspect.isclass(made) else type(made)
    code = getattr(home, "__code__", None)
    try:
        whole.update(Path(inspect.getfile(home)).read_bytes())
    except (TypeError, OSError):  # typed in by hand, or built in
        whole.update(b"" if code is None else code.co_code + repr(code.co_consts).encode("utf-8", "replace"))
    held = getattr(made, "__dict__", {}) if not inspect.isclass(made) else {}
    for name, value in sorted(held.items()):
        if isinstance(value, PLAIN):
            whole.update(f"{name}={value!r};".encode("utf-8", "replace"))
    return whole.hexdigest()
