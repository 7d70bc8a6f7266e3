"""ScaNN: Google's partitioning with anisotropic quantization and exact reordering."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import check_choice, check_int
from ragauge.core.stages import stage
from ragauge.stores.bookkeeping import Matrix, StoreBookkeeping, normalise_rows, require_folder, unsupported_error

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


SEARCHER_KINDS = ("tree", "brute")
MIN_TRAINING_VECTORS = 16
"""Minimum number of vectors to train codes: a code has 16 values."""


class ScannStore:
    """ScaNN searcher of the given `kind`.

    `tree` searches `leaves_to_search` of `num_leaves` partitions over codes of `dimensions_per_block` dimensions
    each, and reorders the best `reorder` exactly; `brute` is exact. `anisotropic` is the threshold above which
    errors parallel to a vector weigh more (default 0.2 for inner product and cosine; 0 turns it off). By default
    `num_leaves` is the square root of the number of vectors. Fewer than 16 vectors are searched by brute force.
    """

    def __init__(  # noqa: PLR0913 - the parameters of ScaNN, by their own names
        self,
        *,
        kind: str = "tree",
        metric: str = "cosine",
        path: str | None = None,
        num_leaves: int | None = None,
        leaves_to_search: int = 10,
        dimensions_per_block: int = 2,
        anisotropic: float | None = None,
        reorder: int = 100,
        threads: int = 1,
    ) -> None:
        try:
            from scann.scann_ops.py import scann_ops_pybind
        except ImportError as error:
            raise MissingExtra("the ScaNN store", "scann") from error
        self._library: Any = scann_ops_pybind
        self._intake = StoreBookkeeping(metric)
        self.kind = check_choice("ScaNN searcher", kind, SEARCHER_KINDS)
        self._leaves = None if num_leaves is None else check_int("num_leaves", num_leaves)
        self._leaves_to_search = check_int("leaves_to_search", leaves_to_search)
        self._block = check_int("dimensions_per_block", dimensions_per_block)
        self._anisotropic = (0.0 if metric == "l2" else 0.2) if anisotropic is None else float(anisotropic)
        self._reorder = check_int("reorder", reorder)
        self._threads = check_int("threads", threads, 0)
        self._index: Any = None
        self._lock = threading.Lock()
        self._waiting: list[Matrix] = []
        self._slots: list[int] | None = None
        """Position of each ScaNN slot; None while slots and positions are the same."""
        self._numbers: dict[int, int] = {}
        """Slot of each position, if `_slots` is set."""
        self._path = path
        if path is not None and self._intake.read(path, **self._build_time_options()):
            self._load_searcher(require_folder("scann", path) / str(self._intake.built["index"]))

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all but filter and concurrent."""
        return frozenset(("insert", "update", "delete", "save", "share"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        options: dict[str, Any] = {}
        if self.kind == "tree":
            options = {
                **self._build_time_options(),
                "num_leaves": self._leaves or self._intake.built.get("leaves"),
                "leaves_to_search": self._leaves_to_search,
                "reorder": self._reorder,
            }
        return {
            "store": "scann",
            "version": version("scann"),
            "metric": self._intake.metric,
            "kind": self.kind,
            **options,
            "threads": self._threads,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids.

        Until an index exists they are only collected; `build` or the first search indexes them.
        """
        matrix = self._intake.documents(ids, vectors, metadata)
        if len(matrix):
            mine = normalise_rows(matrix) if self._intake.metric == "cosine" else matrix
            if self._index is None:
                self._waiting.append(mine.copy() if mine is matrix else mine)
            else:
                self._index.upsert([None] * len(mine), mine, len(mine))
                if self._slots is not None:
                    places = range(self._intake.places, self._intake.places + len(mine))
                    self._numbers |= zip(places, range(len(self._slots), len(self._slots) + len(mine)), strict=True)
                    self._slots.extend(places)
        self._intake.remember(ids, matrix, metadata)

    def build(self) -> None:
        """Index the added vectors.

        Otherwise the first search does, and its latency includes the time.
        """
        with self._lock:
            if self._waiting:
                self._index = self._build_searcher(np.concatenate(self._waiting))
                self._waiting = []

    def tune(self, *, leaves_to_search: int | None = None, reorder: int | None = None) -> None:
        """Set search options."""
        if self.kind == "brute" and (leaves_to_search is not None or reorder is not None):
            raise BadInput("scann brute has nothing to set")
        if leaves_to_search is not None:
            self._leaves_to_search = check_int("leaves_to_search", leaves_to_search)
        if reorder is not None:
            self._reorder = check_int("reorder", reorder)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        Raises BadInput if `where` is given: filters are not supported.
        """
        queries = self._intake.queries(vectors, k)
        if where:
            raise unsupported_error("scann", "filter", "its Python library searches all that there is")
        if self._waiting:
            self.build()
        if not len(self) or not len(queries):
            return self._intake.empty(len(queries), k)
        if len(queries) == 1:
            with stage("retrieve"):
                asked = normalise_rows(queries) if self._intake.metric == "cosine" else queries
                # ScaNN returns only reordered vectors.
                found, values = self._index.search(asked[0], k, max(self._reorder, k), self._leaves_to_search)
            positions = found if self._slots is None else np.array([self._slots[slot] for slot in found], dtype=int)
            return self._intake.answer(positions.astype(np.int64)[None], self._convert_distances(values)[None], k)
        ids, distances = self._intake.empty(len(queries), k)
        for row, query in enumerate(queries):
            line = self.search(query[None], k)
            ids[row], distances[row] = line[0][0], line[1][0]
        return ids, distances

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        self.build()
        if len(ids):
            places = positions.tolist()
            slots = places if self._slots is None else [self._numbers[place] for place in places]
            self._index.upsert(slots, normalise_rows(matrix) if self._intake.metric == "cosine" else matrix, len(ids))

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        self.build()
        if self._slots is None:
            self._slots = list(range(self._intake.places))
            self._numbers = dict(enumerate(self._slots))
        for place in positions.tolist():
            slot = self._numbers.pop(place)
            self._index.delete([slot])
            # ScaNN moves its last vector to the free slot.
            last = self._slots.pop()
            if last != place:
                self._slots[slot], self._numbers[last] = last, slot
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder("scann", self._path)
        self.build()
        if self._index is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder, prefix="index-"))
        self._index.serialize(str(made), True)
        before = self._intake.built.get("index")
        self._intake.built |= {"index": made.name, "slots": self._slots}
        self._intake.write(folder, **{**self._intake.built, **self._build_time_options()})
        if before is not None:
            shutil.rmtree(folder / before, ignore_errors=True)

    def close(self) -> None:
        """Release the index and forget the ids."""
        self._index = self._slots = None
        self._numbers = {}
        self._waiting = []
        self._intake = StoreBookkeeping(self._intake.metric)

    def _build_time_options(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "num_leaves": self._leaves,
            "dimensions_per_block": self._block,
            "anisotropic": self._anisotropic,
        }

    def _load_searcher(self, folder: Path) -> None:
        """Load a searcher from a folder.

        ScaNN's own function would also unpickle a file in the folder, which is unsafe.
        """
        try:
            assets = (folder / "scann_assets.pbtxt").read_text(encoding="utf-8")
            with silence_stderr():
                self._index = self._library.scann_pybind.ScannNumpy(str(folder), assets)
        except (OSError, RuntimeError) as error:
            raise BadInput(f"{folder} was not kept whole: {error}") from error
        self._slots = self._intake.built["slots"]
        self._numbers = {place: slot for slot, place in enumerate(self._slots or ())}
        if self._index.size() != len(self):
            raise BadInput(f"{folder} was not kept whole: the index and its ids differ in number")

    def _build_searcher(self, matrix: Matrix) -> Any:
        near = "squared_l2" if self._intake.metric == "l2" else "dot_product"
        builder = self._library.builder(matrix, 10, near).set_n_training_threads(self._threads)
        if self.kind == "brute" or len(matrix) < MIN_TRAINING_VECTORS:
            builder = builder.score_brute_force()
        else:
            leaves = self._leaves or round(len(matrix) ** 0.5)
            if leaves > len(matrix):
                raise BadInput(f"num_leaves is {leaves}, more than the {len(matrix)} vectors to learn from")
            self._intake.built["leaves"] = leaves
            builder = (
                builder.tree(leaves, min(leaves, self._leaves_to_search), training_sample_size=len(matrix))
                .score_ah(self._block, anisotropic_quantization_threshold=self._anisotropic or float("nan"))
                .reorder(self._reorder)
            )
        with silence_stderr():
            searcher = builder.build().searcher
        if self._threads:
            searcher.set_num_threads(self._threads)
        return searcher

    def _convert_distances(self, values: Matrix) -> Matrix:
        if self._intake.metric == "l2":
            return np.asarray(np.sqrt(np.maximum(values, 0)))
        return -values if self._intake.metric == "ip" else np.asarray(np.maximum(1 - values, 0))


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Silence standard error inside the block.

    ScaNN logs its progress there and has no option to turn it off.
    """
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
