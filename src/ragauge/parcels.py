"""Tasks pickled once for worker processes, and unpickled once in each of them."""

from __future__ import annotations

import pickle
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ragauge.errors import BadInput, words_of
from ragauge.temporary_files import create_temporary_file

T = TypeVar("T")

KEPT = 2
"""Maximum number of unpickled tasks cached per process."""
LARGE = 1 << 20
"""Minimum size in bytes of a task that is passed through a file instead of being sent with every part."""


@dataclass(frozen=True)
class Parcel:
    """A pickled callable for worker processes, and a name under which a process caches it once unpickled."""

    name: str
    content: bytes
    file: str = ""
    """File with the bytes instead, for processes of this machine; empty if they are in `content`."""

    def __call__(self, part: Any) -> Any:
        """Run the task on one part."""
        work = _UNPACKED.get(self.name)
        if work is None:
            work = pickle.loads(self.content or Path(self.file).read_bytes())  # noqa: S301 - made by this very program
            for old in list(_UNPACKED)[: len(_UNPACKED) + 1 - KEPT]:
                _UNPACKED.pop(old, None)
            _UNPACKED[self.name] = work
        return work(part)


_UNPACKED: dict[str, Callable[[Any], Any]] = {}
"""Tasks that this process unpickled last."""


def packed(work: Callable[..., Any]) -> Parcel:
    """Pickle a callable; raise BadInput if it cannot be pickled."""
    try:
        return Parcel(uuid.uuid4().hex, pickle.dumps(work, protocol=5))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            f"this work cannot be sent to another process ({words_of(error)})",
            hint="functions and objects of your own have to be at the top of a module; a ThreadPoolExecutor takes any",
        ) from None


def in_a_file(parcel: Parcel, owner: object) -> Parcel:
    """Move a large pickled task to a private file, deleted together with its owner."""
    if len(parcel.content) < LARGE:
        return parcel
    number, path = create_temporary_file("task")
    with open(number, "wb") as file:
        file.write(parcel.content)
    weakref.finalize(owner, path.unlink, missing_ok=True)
    return Parcel(parcel.name, b"", str(path))


def itself(thing: T) -> T:
    """Return the argument; a function that can be sent to any process."""
    return thing
