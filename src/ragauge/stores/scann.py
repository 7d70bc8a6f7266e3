"""ScaNN: Google's partitioning with anisotropic quantization and exact reordering."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import AtLeast, check_int
from ragauge.stores.bookkeeping import Matrix, Positions, empty_positions, normalise_rows, require_folder
from ragauge.stores.search_results import PRODUCT_DISTANCES, RawNeighbours
from ragauge.stores.store_settings import CELL_PROBES, StoreSettings, search_option
from ragauge.stores.vector_store import LibraryStore

MIN_TRAINING_VECTORS = 16
"""Minimum number of vectors to train codes: a code has 16 values."""


@dataclass(frozen=True)
class ScannSettings(StoreSettings):
    kind: Literal["tree", "brute"] = "tree"
    num_leaves: Annotated[int, AtLeast(1)] | None = None
    leaves_to_search: Annotated[int, AtLeast(1)] = search_option(10)
    dimensions_per_block: Annotated[int, AtLeast(1)] = 2
    anisotropic: float | None = None
    reorder: Annotated[int, AtLeast(1)] = search_option(100)

    @property
    def search_values(self) -> dict[str, Any]:
        return super().search_values if self.kind == "tree" else {}

    def tuned(self, options: Mapping[str, Any]) -> ScannSettings:
        if self.kind == "brute" and options:
            raise BadInput("scann brute has no search options")
        return super().tuned(options)


class ScannStore(LibraryStore):
    """ScaNN searcher of the given `kind`.

    `tree` searches `leaves_to_search` of `num_leaves` partitions over codes of `dimensions_per_block` dimensions
    each, and reorders the best `reorder` exactly; `brute` is exact. `anisotropic` is the threshold above which
    errors parallel to a vector weigh more (default 0.2 for inner product and cosine; 0 turns it off). By default
    `num_leaves` is the square root of the number of vectors. Fewer than 16 vectors are searched by brute force.
    """

    name = "scann"
    capabilities = frozenset(("insert", "update", "delete", "save", "share"))
    unsupported: Mapping[str, str] = {"filter": "its Python library cannot search a subset"}
    conversions = PRODUCT_DISTANCES
    extra = "scann"
    library_modules = ("scann",)
    option_grids = ({"kind": "tree", "leaves_to_search": CELL_PROBES, "reorder": [30, 100]},)
    _settings: ScannSettings

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: ScannSettings = ScannSettings(),
        threads: int = 1,
    ) -> None:
        (self._library,) = import_libraries("scann", "scann.scann_ops.py.scann_ops_pybind")
        self._threads = check_int("threads", threads, 0)
        self._slots: list[int] | None = None
        """Position of each ScaNN slot; None while slots and positions are the same."""
        self._numbers: dict[int, int] = {}
        """Slot of each position, if `_slots` is set."""
        self._outdated: str | None = None
        """Folder of the index that the next saved one replaces."""
        if settings.anisotropic is None:
            settings = replace(settings, anisotropic=0.0 if metric == "l2" else 0.2)
        super().__init__(metric, path, settings)
        self._apply_search_options()
        if self._saved:
            self._load_searcher(require_folder("scann", path) / str(self._bookkeeping.built["index"]))

    def _describe_engine(self) -> dict[str, Any]:
        options: dict[str, Any] = {"kind": self._settings.kind}
        if self._settings.kind == "tree":
            leaves = self._settings.num_leaves or self._bookkeeping.built.get("leaves")
            options = {**super()._describe_engine(), "num_leaves": leaves}
        return {"version": version("scann"), **options, "threads": self._threads}

    def _apply_search_options(self) -> None:
        self._leaves_to_search, self._reorder = self._settings.leaves_to_search, self._settings.reorder

    def build(self) -> None:
        """Build the searcher over the collected vectors."""
        with self._lock:
            if self._waiting:
                self._index = self._create_index(self._waiting)
                self._waiting = []
                self._ready = True

    def _prepare(self, matrix: Matrix) -> Matrix:
        return normalise_rows(matrix) if self._bookkeeping.metric == "cosine" else matrix

    def _insert(self, positions: range, matrix: Matrix) -> None:
        self._index.upsert([None] * len(matrix), matrix, len(matrix))
        if self._slots is not None:
            self._numbers |= zip(positions, range(len(self._slots), len(self._slots) + len(matrix)), strict=True)
            self._slots.extend(positions)

    def _search(self, queries: Matrix, k: int, selection: None) -> RawNeighbours:  # noqa: ARG002 - no filters
        prepared = self._prepare(queries)
        if len(prepared) == 1:
            nearest, values = self._search_one(prepared[0], k)
            return nearest[None], values[None]
        positions, all_values = empty_positions(len(prepared), k)
        for row, query in enumerate(prepared):
            nearest, values = self._search_one(query, k)
            positions[row, : len(nearest)], all_values[row, : len(nearest)] = nearest, values
        return positions, all_values

    def _search_one(self, query: Matrix, k: int) -> RawNeighbours:
        # ScaNN returns only reordered vectors.
        slots, values = self._index.search(query, k, max(self._reorder, k), self._leaves_to_search)
        positions = slots if self._slots is None else np.array([self._slots[slot] for slot in slots], dtype=int)
        return positions.astype(np.int64), values

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        position_list = positions.tolist()
        slots = position_list if self._slots is None else [self._numbers[position] for position in position_list]
        self._index.upsert(slots, self._prepare(matrix), len(position_list))

    def _remove(self, positions: Positions) -> None:
        if self._slots is None:
            self._slots = list(range(self._bookkeeping.position_count))
            self._numbers = dict(enumerate(self._slots))
        for position in positions.tolist():
            slot = self._numbers.pop(position)
            self._index.delete([slot])
            # ScaNN moves its last vector to the free slot.
            last = self._slots.pop()
            if last != position:
                self._slots[slot], self._numbers[last] = last, slot

    def _flush(self, folder: Path) -> dict[str, Any]:
        self.build()
        folder.mkdir(parents=True, exist_ok=True)
        index_folder = Path(tempfile.mkdtemp(dir=folder, prefix="index-"))
        self._write_index(str(index_folder))
        self._outdated = self._bookkeeping.built.get("index")
        self._bookkeeping.built |= {"index": index_folder.name, "slots": self._slots}
        return {**self._bookkeeping.built, **self._build_options}

    def save(self) -> None:
        """Save the store in `path`, and then remove the folder of the index that was saved before."""
        super().save()
        if self._outdated is not None:
            shutil.rmtree(require_folder(self.name, self._path) / self._outdated, ignore_errors=True)
            self._outdated = None

    def _write_index(self, file: str) -> None:
        self._index.serialize(file, True)

    def _close(self) -> None:
        self._slots = None
        self._numbers = {}
        super()._close()

    def _load_searcher(self, folder: Path) -> None:
        """Load a searcher from a folder.

        ScaNN's own function would also unpickle a file in the folder, which is unsafe.
        """
        try:
            assets = (folder / "scann_assets.pbtxt").read_text(encoding="utf-8")
            with silence_stderr():
                self._index = self._library.scann_pybind.ScannNumpy(str(folder), assets)
        except (OSError, RuntimeError) as error:
            raise BadInput(f"{folder} is corrupt or incomplete: {error}") from error
        self._slots = self._bookkeeping.built["slots"]
        self._numbers = {position: slot for slot, position in enumerate(self._slots or ())}
        if self._index.size() != len(self):
            raise BadInput(f"{folder} is corrupt or incomplete: the index and its ids differ in number")

    def _create_index(self, parts: Sequence[Matrix]) -> Any:
        matrix = np.concatenate(parts)
        scann_metric = "squared_l2" if self._bookkeeping.metric == "l2" else "dot_product"
        builder = self._library.builder(matrix, 10, scann_metric).set_n_training_threads(self._threads)
        if self._settings.kind == "brute" or len(matrix) < MIN_TRAINING_VECTORS:
            builder = builder.score_brute_force()
        else:
            leaves = self._settings.num_leaves or round(len(matrix) ** 0.5)
            if leaves > len(matrix):
                raise BadInput(f"num_leaves is {leaves}, more than the {len(matrix)} training vectors")
            self._bookkeeping.built["leaves"] = leaves
            builder = (
                builder.tree(leaves, min(leaves, self._leaves_to_search), training_sample_size=len(matrix))
                .score_ah(
                    self._settings.dimensions_per_block,
                    anisotropic_quantization_threshold=self._settings.anisotropic or float("nan"),
                )
                .reorder(self._reorder)
            )
        with silence_stderr():
            searcher = builder.build().searcher
        if self._threads:
            searcher.set_num_threads(self._threads)
        return searcher


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Silence standard error inside the block.

    ScaNN logs its progress there and has no option to turn it off.
    """
    descriptor = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(descriptor, 2)
        os.close(descriptor)
        os.close(nowhere)
