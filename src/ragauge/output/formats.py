"""Output formats of results: chosen by name or file ending, written atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ragauge.core.errors import BadInput, UnknownName
from ragauge.files.workspace import atomic_write

ResultT = TypeVar("ResultT")


class OutputFormat(NamedTuple, Generic[ResultT]):
    """A format in which a result can be written."""

    ending: str
    about: str
    write: Callable[[ResultT], str]


def format_for_path(path: str | Path, form: str | None, kinds: Mapping[str, OutputFormat[ResultT]]) -> str:
    """Choose the format of a file: the named one, or the first with its ending.

    Raise BadInput if the file has the ending of another format.
    """
    ending = Path(path).suffix.lower()
    ending = ".html" if ending == ".htm" else ending
    if form is not None:
        if form not in kinds:
            raise UnknownName("output format", form, kinds)
        expected_ending = kinds[form].ending
        if ending != expected_ending and any(kind.ending == ending for kind in kinds.values()):
            suggested_path = Path(path).with_suffix(expected_ending)
            raise BadInput(
                f"the ending {ending} is not that of the format {form}",
                file=str(path),
                hint=f"use `-o {suggested_path}`, or remove --format",
            )
        return form
    for name, kind in kinds.items():
        if kind.ending == ending:
            return name
    raise unknown_ending(path, (kind.ending for kind in kinds.values()))


def unknown_ending(path: str | Path, endings: Iterable[str], *, folder: bool = False) -> BadInput:
    """Return the error for an output path without an ending that can be written; a `folder` may be meant."""
    known_endings = list(dict.fromkeys(endings))
    suffix = Path(path).suffix
    hint = (
        f"use `-o {Path(path).with_suffix(known_endings[0])}`"
        if Path(path).name
        else f"use `-o report{known_endings[0]}`"
    )
    return BadInput(
        f"expected a file that ends in {', '.join(known_endings)}, got {f'`{suffix}`' if suffix else 'no ending'}",
        file=str(path),
        hint=f"{hint}, or `-o {path}/` for a folder" if folder else hint,
    )


def write_format(noun: ResultT, kind: OutputFormat[ResultT], path: str | Path) -> None:
    """Write a result in one format, atomically."""
    text = kind.write(noun)
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))
