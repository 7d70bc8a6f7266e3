"""Output formats of results: chosen by name or file ending, written atomically, with charts as SVG and PNG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ragauge.core.errors import BadInput, UnknownName
from ragauge.files.workspace import atomic_write
from ragauge.output.report import Chart, render_png, render_svg

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
            raise UnknownName("form", form, kinds, hint=f"there are {', '.join(kinds)}")
        wanted = kinds[form].ending
        if ending != wanted and any(kind.ending == ending for kind in kinds.values()):
            other = Path(path).with_suffix(wanted)
            raise BadInput(f"the form `{form}` is no {ending}", file=str(path), hint=f"{other}, or without --format")
        return form
    for name, kind in kinds.items():
        if kind.ending == ending:
            return name
    endings = ", ".join(dict.fromkeys(kind.ending for kind in kinds.values()))
    raise BadInput(
        f"what is to be written is not clear from `{ending}`", file=str(path), hint=f"{endings}, or --format"
    )


def write_format(noun: ResultT, kind: OutputFormat[ResultT], path: str | Path) -> None:
    """Write a result in one format, atomically."""
    text = kind.write(noun)
    with atomic_write(str(path)) as file:
        file.write(text.encode("utf-8", "replace"))


def write_charts(drawings: Mapping[str, Chart], folder: Path, watch: Callable[[str], None] | None = None) -> None:
    """Write every chart as SVG and as PNG."""
    for name, drawing in drawings.items():
        if watch is not None:
            watch(f"drawing {name}")
        spec = drawing.sheet()
        for ending, data in ((".svg", render_svg(spec).encode("utf-8", "replace")), (".png", render_png(spec))):
            with atomic_write(str(folder / f"{name}{ending}")) as file:
                file.write(data)
