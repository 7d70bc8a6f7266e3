"""What a store's own process is told to do, and what it leaves behind: plain files, each of them whole or not there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ragauge.benches.metadata import metadata_hash
from ragauge.benches.opening import Opening
from ragauge.benches.plan import Plan
from ragauge.formats.unicode_text import replace_surrogates
from ragauge.formats.writing import whole_file
from ragauge.runs.manifest import from_timestamp, now
from ragauge.structured_text import parse_json
from ragauge.sweeps import Matrix, VectorSet

Arrays = Mapping[str, NDArray[Any]]
BUILD = "build.json"
"""The file of a build's costs, in the folder of the build."""


@dataclass(frozen=True)
class Order:
    """One stage of one build: `build`, `cold`, `load`, `filters` or `changes`."""

    stage: str
    store: str
    build: Mapping[str, Any]
    searches: Sequence[Mapping[str, Any]]
    """The settings to search with; the stages `cold`, `load` and `changes` use the first alone."""
    results: Sequence[str]
    """The files that results go to, one per setting; of `filters` one per filter and setting, empty if it is saved."""
    metric: str
    folder: str
    """The folder of the build."""
    vectors: str
    """The folder of the vectors."""
    plan: Plan

    @property
    def opening(self) -> Opening:
        """The store, in its place."""
        place = str(Path(self.folder) / "store")
        return Opening(self.store, {**self.build, **self.searches[0]}, self.metric, place, self.plan.threads)

    def text(self) -> str:
        """As it is sent."""
        return json.dumps(asdict(self), default=_plain)

    @classmethod
    def of(cls, text: str) -> Order:
        """As it was sent."""
        told = json.loads(text)
        return cls(**told | {"plan": Plan.of(told["plan"])})


def told_of(folder: Path) -> dict[str, Any]:
    """What building took, as a build's folder has it; nothing where it was never finished."""
    try:
        told: dict[str, Any] = parse_json((folder / BUILD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told


def standing(folder: Path) -> bool:
    """Whether a build's store can be opened now: it was finished and kept, and nobody has cleared it away."""
    return bool(told_of(folder).get("kept")) and (folder / "store").exists()


def write_json(data: Any, path: Path) -> None:
    """A whole file of JSON."""
    with whole_file(str(path)) as out:
        out.write(replace_surrogates(json.dumps(data, ensure_ascii=False, indent=1, default=_plain)).encode())


def write_piece(path: Path, told: Mapping[str, Any], arrays: Arrays) -> None:
    """Write one result: raw arrays, what is said of them, and when it was made."""
    words = np.frombuffer(json.dumps({**told, "made": now()}, default=_plain).encode(), dtype=np.uint8)
    with whole_file(str(path)) as out:
        np.savez_compressed(out, allow_pickle=False, told=words, **arrays)


def read_piece(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """A result that is there; None where there is none, or half of one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        return parse_json(arrays.pop("told").tobytes()), arrays
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def made_at(path: Path) -> str:
    """Return when a result was made, as ISO 8601 in UTC; the time of the file if it does not say."""
    told = told_of(path.parent) if path.name == BUILD else (read_piece(path) or ({}, {}))[0]
    made = told.get("made")
    return made if isinstance(made, str) else from_timestamp(path.stat().st_mtime)


def write_vectors(data: VectorSet, folder: Path) -> None:
    """The vectors as plain 32-bit floats, so that a process reads only what it needs, and maps none into its memory."""
    shapes = {}
    for name, matrix in (("base", data.base), ("queries", data.queries)):
        path = folder / f"{name}.f32"
        shapes[name] = list(matrix.shape)
        if not path.exists() or path.stat().st_size != matrix.size * 4:
            with whole_file(str(path)) as out:
                for start in range(0, len(matrix), 65_536):
                    out.write(np.ascontiguousarray(matrix[start : start + 65_536], dtype="<f4").tobytes())
    write_json({"shapes": shapes, "ids": list(data.ids) or None}, folder / "vectors.json")
    if data.metadata:
        write_json(list(data.metadata), folder / f"metadata-{metadata_hash(data.metadata)}.json")


class Vectors:
    """The same, read again: in parts, as they are needed."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        told = parse_json((self._folder / "vectors.json").read_text(encoding="utf-8"))
        self._shapes: dict[str, list[int]] = told["shapes"]
        self._ids: list[str] | None = told["ids"]

    def __len__(self) -> int:
        return self._shapes["base"][0]

    def rows(self, name: str, start: int = 0, count: int = -1) -> Matrix:
        """Some of the rows, copied."""
        n, d = self._shapes[name]
        count = n - start if count < 0 else min(count, n - start)
        flat = np.fromfile(self._folder / f"{name}.f32", dtype="<f4", count=count * d, offset=4 * d * start)
        return flat.reshape(count, d).astype(np.float32, copy=False)

    def ids(self, start: int = 0, count: int = -1) -> list[str]:
        """The names of some of the rows of the base."""
        count = len(self) - start if count < 0 else min(count, len(self) - start)
        return [str(i) for i in range(start, start + count)] if self._ids is None else self._ids[start : start + count]

    def index(self) -> dict[str, int]:
        """The row that each name stands for."""
        return {name: place for place, name in enumerate(self.ids())}

    def metadata(self, which: str) -> list[dict[str, Any]]:
        """Return the metadata of every row by their hash; empty mappings without one."""
        if not which:
            return [{} for _ in range(len(self))]
        found: list[dict[str, Any]] = json.loads((self._folder / f"metadata-{which}.json").read_text(encoding="utf-8"))
        return found

    def others(self, n: int, seed: int) -> Matrix:
        """Queries that are not the queries: rows of the base, moved a little, for warming up."""
        random = np.random.default_rng([seed, 1])
        places = np.sort(random.choice(len(self), size=min(n, len(self)), replace=False))
        found = np.concatenate([self.rows("base", int(place), 1) for place in places])
        spread = float(found.std()) or 1.0
        moved = found + random.normal(scale=0.05 * spread, size=found.shape)
        return np.asarray(moved, dtype=np.float32)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return dict(value) if isinstance(value, Mapping) else str(value)
