"""Work made ready for other processes: packed once here, and unpacked once in each of them."""

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
"""So much work a process keeps unpacked."""
LARGE = 1 << 20
"""Bytes of work that are not sent with every part where there is another way."""


@dataclass(frozen=True)
class Parcel:
    """Work for other processes: bytes, and a name by which a process that has unpacked them knows them again."""

    name: str
    content: bytes
    file: str = ""
    """Where the bytes are instead, for processes of this machine, which need not be sent them with every part."""

    def __call__(self, part: Any) -> Any:
        """What the work makes of a part."""
        work = _UNPACKED.get(self.name)
        if work is None:
            work = pickle.loads(self.content or Path(self.file).read_bytes())  # noqa: S301 - made by this very program
            for old in list(_UNPACKED)[: len(_UNPACKED) + 1 - KEPT]:
                _UNPACKED.pop(old, None)
            _UNPACKED[self.name] = work
        return work(part)


_UNPACKED: dict[str, Callable[[Any], Any]] = {}
"""What this process has unpacked last."""


def packed(work: Callable[..., Any]) -> Parcel:
    """Work as bytes; refused where another process could not have it."""
    try:
        return Parcel(uuid.uuid4().hex, pickle.dumps(work, protocol=5))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            f"this work cannot be sent to another process ({words_of(error)})",
            hint="functions and objects of your own have to be at the top of a module; a ThreadPoolExecutor takes any",
        ) from None


def in_a_file(parcel: Parcel, owner: object) -> Parcel:
    """The same with its bytes in a file that nobody else can read, and that goes away with its owner."""
    if len(parcel.content) < LARGE:
        return parcel
    number, path = create_temporary_file("task")
    with open(number, "wb") as file:
        file.write(parcel.content)
    weakref.finalize(owner, path.unlink, missing_ok=True)
    return Parcel(parcel.name, b"", str(path))


def itself(thing: T) -> T:
    """The same thing, in whichever process this is called: a function that any of them can be sent."""
    return thing
