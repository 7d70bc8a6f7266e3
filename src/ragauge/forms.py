"""The forms that something is written in: told by a file's ending or by name, whole files, charts twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ragauge.errors import BadInput, UnknownName
from ragauge.formats.writing import whole_file
from ragauge.reports.charts import Drawing, as_png, as_svg

Noun = TypeVar("Noun")


class Kind(NamedTuple, Generic[Noun]):
    """A form that a noun can be written in."""

    ending: str
    about: str
    write: Callable[[Noun], str]


def kind_of(path: str | Path, form: str | None, kinds: Mapping[str, Kind[Noun]]) -> str:
    """The name of the kind that a file is to have: the one that is named, or the first with that ending.

    A file that ends like another kind is refused: nobody could open it.
    """
    ending = Path(path).suffix.lower()
    ending = ".html" if ending == ".htm" else ending
    if form is not None:
        if form not in kinds:
            raise UnknownName("form", form, kinds, hint=f"there are {', '.join(kinds)}")
        wanted = kinds[form].ending
        if ending != wanted and any(kind.ending == ending for kind in kinds.values()):
            other = Path(path).with_suffix(wanted)
            raise BadInput(f"the form `{form}` is no {ending}", file=str(path), hint=f"{other}, or without --as")
        return form
    for name, kind in kinds.items():
        if kind.ending == ending:
            return name
    endings = ", ".join(dict.fromkeys(kind.ending for kind in kinds.values()))
    raise BadInput(f"what is to be written is not clear from `{ending}`", file=str(path), hint=f"{endings}, or --as")


def written(noun: Noun, kind: Kind[Noun], path: str | Path) -> None:
    """Write one form, whole or not at all."""
    text = kind.write(noun)
    with whole_file(str(path)) as file:
        file.write(text.encode("utf-8", "replace"))


def write_charts(drawings: Mapping[str, Drawing], folder: Path, watch: Callable[[str], None] | None = None) -> None:
    """Every chart as SVG and as PNG."""
    for name, drawing in drawings.items():
        if watch is not None:
            watch(f"drawing {name}")
        spec = drawing.sheet()
        for ending, data in ((".svg", as_svg(spec).encode("utf-8", "replace")), (".png", as_png(spec))):
            with whole_file(str(folder / f"{name}{ending}")) as file:
                file.write(data)
