"""Tasks of worker processes, and their result files, which are written atomically."""

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
"""Name of the file with the costs of a build, in the folder of the build."""


@dataclass(frozen=True)
class Order:
    """Task of a worker: one stage of one build.

    Stages are `build`, `cold`, `load`, `filters`, `changes` and `remove`.
    """

    stage: str
    store: str
    build: Mapping[str, Any]
    searches: Sequence[Mapping[str, Any]]
    """Search options to measure; the stages `cold`, `load` and `changes` use only the first."""
    results: Sequence[str]
    """Result files, one per entry of `searches`; for `filters` one per filter and entry, empty if it is saved already.
    """
    metric: str
    folder: str
    """Folder of the build."""
    vectors: str
    """Folder of the vectors."""
    plan: Plan

    @property
    def opening(self) -> Opening:
        """Specification of the store in the folder of the build."""
        place = str(Path(self.folder) / "store")
        return Opening(self.store, {**self.build, **self.searches[0]}, self.metric, place, self.plan.threads)

    def text(self) -> str:
        """Serialise the task to JSON."""
        return json.dumps(asdict(self), default=_plain)

    @classmethod
    def of(cls, text: str) -> Order:
        """Parse a task from JSON."""
        told = json.loads(text)
        return cls(**told | {"plan": Plan.of(told["plan"])})


def told_of(folder: Path) -> dict[str, Any]:
    """Read the costs of a build from its folder; empty if the build did not finish."""
    try:
        told: dict[str, Any] = parse_json((folder / BUILD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told


def standing(folder: Path) -> bool:
    """Return whether the store of a build is finished, saved and still on disk."""
    return bool(told_of(folder).get("kept")) and (folder / "store").exists()


def write_json(data: Any, path: Path) -> None:
    """Write data to a JSON file atomically."""
    with whole_file(str(path)) as out:
        out.write(replace_surrogates(json.dumps(data, ensure_ascii=False, indent=1, default=_plain)).encode())


def write_piece(path: Path, told: Mapping[str, Any], arrays: Arrays) -> None:
    """Write one result: raw arrays, details about them, and the current time."""
    words = np.frombuffer(json.dumps({**told, "made": now()}, default=_plain).encode(), dtype=np.uint8)
    with whole_file(str(path)) as out:
        np.savez_compressed(out, allow_pickle=False, told=words, **arrays)


def read_piece(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """Read a result as details and arrays; None if it is missing or incomplete."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        return parse_json(arrays.pop("told").tobytes()), arrays
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def made_at(path: Path) -> str:
    """Return when a result was made, as ISO 8601 in UTC.

    If the result does not say, it is the modification time of the file.
    """
    told = told_of(path.parent) if path.name == BUILD else (read_piece(path) or ({}, {}))[0]
    made = told.get("made")
    return made if isinstance(made, str) else from_timestamp(path.stat().st_mtime)


def write_vectors(data: VectorSet, folder: Path) -> None:
    """Write the vectors as plain 32-bit floats.

    A process can then read only the rows it needs, without mapping them into its memory.
    """
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
    """Reader of the vectors saved by `write_vectors`, which loads only requested rows."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        told = parse_json((self._folder / "vectors.json").read_text(encoding="utf-8"))
        self._shapes: dict[str, list[int]] = told["shapes"]
        self._ids: list[str] | None = told["ids"]

    def __len__(self) -> int:
        return self._shapes["base"][0]

    def rows(self, name: str, start: int = 0, count: int = -1) -> Matrix:
        """Return a copy of `count` rows of `base` or `queries` from `start`; -1 means all."""
        n, d = self._shapes[name]
        count = n - start if count < 0 else min(count, n - start)
        flat = np.fromfile(self._folder / f"{name}.f32", dtype="<f4", count=count * d, offset=4 * d * start)
        return flat.reshape(count, d).astype(np.float32, copy=False)

    def ids(self, start: int = 0, count: int = -1) -> list[str]:
        """Return the ids of some rows of the base."""
        count = len(self) - start if count < 0 else min(count, len(self) - start)
        return [str(i) for i in range(start, start + count)] if self._ids is None else self._ids[start : start + count]

    def index(self) -> dict[str, int]:
        """Map each id to its row."""
        return {name: place for place, name in enumerate(self.ids())}

    def metadata(self, which: str) -> list[dict[str, Any]]:
        """Return the metadata of every row by their hash; empty mappings if it is empty."""
        if not which:
            return [{} for _ in range(len(self))]
        found: list[dict[str, Any]] = json.loads((self._folder / f"metadata-{which}.json").read_text(encoding="utf-8"))
        return found

    def others(self, n: int, seed: int) -> Matrix:
        """Return warm-up queries: random rows of the base with a little noise."""
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
