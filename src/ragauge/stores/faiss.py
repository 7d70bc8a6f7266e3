"""FAISS: flat, scalar-quantized, IVF, IVFPQ and HNSW indexes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import AtLeast, AtMost, OneOf, check_int
from ragauge.stores.bookkeeping import Mask, Matrix, Positions, normalise_rows
from ragauge.stores.search_results import PRODUCT_DISTANCES, RawNeighbours
from ragauge.stores.store_settings import CELL_PROBES, GRAPH_SEARCH_WIDTHS, StoreSettings, search_option, search_width
from ragauge.stores.vector_store import LibraryStore

MIN_VECTORS_PER_CELL = 39
"""Training vectors per cell below which FAISS warns of poor cells."""
BUILD_OPTIONS = {
    "flat": (),
    "sq": ("bits", "refine"),
    "hnsw": ("m", "ef_construction"),
    "ivf": ("nlist",),
    "ivfpq": ("nlist", "pq_m", "pq_bits", "refine"),
}
"""Build options by kind of index."""
SEARCH_OPTIONS = {
    "flat": (),
    "sq": ("rerank",),
    "hnsw": ("ef_search",),
    "ivf": ("nprobe",),
    "ivfpq": ("nprobe", "rerank"),
}
DEFAULT_RERANK = 4
SCALAR_QUANTIZERS = {4: "QT_4bit", 6: "QT_6bit", 8: "QT_8bit", 16: "QT_fp16"}


@dataclass(frozen=True)
class FaissSettings(StoreSettings):
    """Options of FAISS; which of them are used depends on the kind of index."""

    kind: Annotated[str, OneOf(BUILD_OPTIONS)] = "flat"
    m: Annotated[int, AtLeast(2)] = 16
    ef_construction: Annotated[int, AtLeast(1)] = 64
    ef_search: Annotated[int, AtLeast(1)] = search_width(40)
    nlist: Annotated[int, AtLeast(1)] | None = None
    nprobe: Annotated[int, AtLeast(1)] = search_width(8)
    pq_m: Annotated[int, AtLeast(1)] | None = None
    pq_bits: Annotated[int, AtLeast(1), AtMost(12)] = 8
    bits: Literal[4, 6, 8, 16] = 8
    refine: bool = False
    rerank: Annotated[int, AtLeast(1)] | None = search_option(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.refine and self.kind not in ("sq", "ivfpq"):
            raise BadInput(f"{self.kind} already uses full precision", hint="use refine only with sq or ivfpq")
        if self.rerank is not None:
            self._check_search_option("rerank")

    @property
    def build_options(self) -> dict[str, Any]:
        return self.select("kind", *BUILD_OPTIONS[self.kind])

    @property
    def search_values(self) -> dict[str, Any]:
        """Search options of this kind of index, with their values."""
        values = self.select(*SEARCH_OPTIONS[self.kind])
        values.pop("rerank", None)
        return values | ({"rerank": self.rerank_factor} if self.refine else {})

    @property
    def rerank_factor(self) -> int:
        """Number of candidates to rank again, as a multiple of `k`."""
        return DEFAULT_RERANK if self.rerank is None else self.rerank

    @property
    def has_implicit_ids(self) -> bool:
        """Whether the index knows vectors by number only, and so cannot remove one."""
        return self.kind == "hnsw" or self.refine

    def tuned(self, options: Mapping[str, Any]) -> FaissSettings:
        """Return a copy with other values of search options, which must have an effect."""
        settings = super().tuned(options)
        for name in options:
            self._check_search_option(name)
        return settings

    def _check_search_option(self, name: str) -> None:
        """Raise BadInput for a search option that has no effect."""
        if name not in SEARCH_OPTIONS[self.kind]:
            raise BadInput(f"faiss {self.kind} has no {name}")
        if name == "rerank" and not self.refine:
            raise BadInput("rerank needs the vectors in full precision", hint="use refine=true")


class FaissStore(LibraryStore):
    """FAISS index of the given `kind`.

    `flat` is exact. `sq` compares all vectors with `bits` bits per dimension (4, 6, 8; 16 is half precision). `hnsw`
    is a graph (`m` links per node, `ef_construction`, `ef_search`). `ivf` searches `nprobe` of `nlist` cells;
    `ivfpq` does so over codes of `pq_m` parts with `pq_bits` bits each. Cells and codes are trained on the vectors
    added before the first search. By default `nlist` is the square root of the number of vectors, or less if cells
    would have too few vectors to train on. `refine` also keeps the vectors of `sq` and `ivfpq` in full precision and
    reorders the best `rerank` times `k` exactly. Cosine is the inner product of normalised vectors. Vectors added
    later are clipped to the value range that `sq` was trained on.

    Filters are applied during the search, so a graph or a few cells may return fewer than `k` vectors. A graph built
    by several threads differs slightly between builds, because FAISS has no fixed insertion order.
    """

    name = "faiss"
    capabilities = frozenset(("insert", "update", "delete", "filter", "save", "share"))
    conversions = PRODUCT_DISTANCES
    extra = "faiss"
    library_modules = ("faiss",)
    option_grids = (
        {"kind": "flat"},
        {"kind": "hnsw", "m": [16, 32], "ef_construction": 100, "ef_search": GRAPH_SEARCH_WIDTHS},
        {"kind": "ivf", "nprobe": CELL_PROBES},
        {"kind": "ivfpq", "refine": True, "nprobe": CELL_PROBES, "rerank": [1, 10]},
        {"kind": "sq", "refine": True, "rerank": [1, 4]},
    )
    index_file = "index.faiss"

    _settings: FaissSettings

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: FaissSettings = FaissSettings(),
        threads: int = 1,
    ) -> None:
        (self._faiss,) = import_libraries("faiss", "faiss")
        self._threads = check_int("threads", threads, 0)
        self._core: Any = None
        """The inner index, without the id map or refinement around it."""
        self._filter: tuple[Mask, Any] | None = None
        if settings.has_implicit_ids:
            part = "its graph" if settings.kind == "hnsw" else "its refined index"
            self.unsupported = dict.fromkeys(("update", "delete"), f"{part} cannot remove a vector")
        super().__init__(metric, path, settings)
        if self._saved:
            index: Any = self._faiss.read_index(self._saved_file())
            self._use_index(index)
            if index.ntotal != (self._bookkeeping.position_count if self._settings.has_implicit_ids else len(self)):
                raise BadInput(f"{path} is corrupt or incomplete: the index and its ids differ in number")

    def _describe_engine(self) -> dict[str, Any]:
        options = super()._describe_engine()
        if self._settings.kind.startswith("ivf") and self._core is not None:
            options["nlist"] = int(self._core.nlist)
            options["nprobe"] = min(options["nprobe"], options["nlist"])
        if self._settings.kind == "ivfpq" and self._core is not None:
            options["pq_m"] = int(self._core.pq.M)
        return {"version": self._faiss.__version__, **options, "threads": self._threads}

    def _prepare(self, matrix: Matrix) -> Matrix:
        parts = self._settings.pq_m if self._settings.kind == "ivfpq" else None
        if parts is not None and matrix.shape[1] % parts:
            raise BadInput(f"pq_m is {parts}, which does not divide the {matrix.shape[1]} dimensions")
        return normalise_rows(matrix) if self._bookkeeping.metric == "cosine" else matrix

    def _create_index(self, parts: Sequence[Matrix]) -> Any:
        self._set_thread_count()
        index = self._build_index(parts)
        self._use_index(index)
        return index

    def _insert(self, positions: range, matrix: Matrix) -> None:
        if self._settings.has_implicit_ids:
            self._index.add(matrix)
        else:
            self._index.add_with_ids(matrix, np.arange(positions.start, positions.stop))

    def _search(self, queries: Matrix, k: int, selection: Mask | None) -> RawNeighbours:
        if len(queries) > 1:
            self._set_thread_count()
        prepared = normalise_rows(queries) if self._bookkeeping.metric == "cosine" else queries
        values, positions = self._index.search(
            prepared, k, params=None if selection is None else self._filter_parameters(selection)
        )
        return positions, values

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        self._index.remove_ids(positions)
        self._index.add_with_ids(self._prepare(matrix), positions)

    def _remove(self, positions: Positions) -> None:
        self._index.remove_ids(positions)

    def _write_index(self, file: str) -> None:
        self._faiss.write_index(self._index, file)

    def _close(self) -> None:
        self._core = self._filter = None
        super()._close()

    def _set_thread_count(self) -> None:
        # FAISS sets the number of threads per calling thread.
        if self._threads:
            self._faiss.omp_set_num_threads(self._threads)

    def _use_index(self, index: Any) -> None:
        """Use a new or loaded index as the index of this store."""
        self._index, inner = index, index
        if self._settings.refine:
            inner = index.base_index
        elif self._settings.kind in ("flat", "sq"):
            inner = index.index
        self._core = self._faiss.downcast_index(inner)
        self._apply_search_options()

    def _apply_search_options(self) -> None:
        self._filter = None
        if self._core is None:
            return
        if self._settings.kind == "hnsw":
            self._core.hnsw.efSearch = self._settings.ef_search
        if self._settings.kind.startswith("ivf"):
            self._core.nprobe = self._settings.nprobe
        if self._settings.refine:
            self._index.k_factor = float(self._settings.rerank_factor)

    def _filter_parameters(self, mask: Mask) -> Any:
        """Return the FAISS search parameters of a filter; cached for the next search."""
        if self._filter is None or self._filter[0] is not mask:
            selector = {"sel": self._faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))}
            if self._settings.kind == "hnsw":
                parameters = self._faiss.SearchParametersHNSW(efSearch=self._settings.ef_search, **selector)
            elif self._settings.kind.startswith("ivf"):
                parameters = self._faiss.SearchParametersIVF(nprobe=self._settings.nprobe, **selector)
            else:
                parameters = self._faiss.SearchParameters(**selector)
            if self._settings.refine:
                factor = float(self._settings.rerank_factor)
                parameters = self._faiss.IndexRefineSearchParameters(k_factor=factor, base_index_params=parameters)
            self._filter = mask, parameters
        return self._filter[1]

    def _build_index(self, parts: Sequence[Matrix]) -> Any:
        size, dimension = sum(len(part) for part in parts), parts[0].shape[1]
        faiss_metric = self._faiss.METRIC_L2 if self._bookkeeping.metric == "l2" else self._faiss.METRIC_INNER_PRODUCT
        index: Any
        if self._settings.kind == "flat":
            return self._faiss.IndexIDMap(self._faiss.IndexFlat(dimension, faiss_metric))
        if self._settings.kind == "hnsw":
            index = self._faiss.IndexHNSWFlat(dimension, self._settings.m, faiss_metric)
            index.hnsw.efConstruction = self._settings.ef_construction
            return index
        if self._settings.kind == "sq":
            quantizer = getattr(self._faiss.ScalarQuantizer, SCALAR_QUANTIZERS[self._settings.bits])
            index = self._faiss.IndexScalarQuantizer(dimension, quantizer, faiss_metric)
        else:
            index = self._build_ivf_index(size, dimension, faiss_metric)
        index.train(parts[0] if len(parts) == 1 else np.concatenate(parts))
        if self._settings.refine:
            return self._faiss.IndexRefineFlat(index)
        return self._faiss.IndexIDMap(index) if self._settings.kind == "sq" else index

    def _build_ivf_index(self, size: int, dimension: int, faiss_metric: int) -> Any:
        cells = self._settings.nlist or max(1, min(round(size**0.5), size // MIN_VECTORS_PER_CELL))
        if cells > size:
            raise BadInput(f"nlist is {cells}, more than the {size} training vectors", hint="use a smaller nlist")
        coarse = self._faiss.IndexFlat(dimension, faiss_metric)
        if self._settings.kind == "ivf":
            index = self._faiss.IndexIVFFlat(coarse, dimension, cells, faiss_metric)
        else:
            codes = self._settings.pq_bits
            if size < 2**codes:
                raise BadInput(
                    f"pq_bits={codes} needs at least {2**codes} training vectors, got {size}",
                    hint=f"use pq_bits={int(math.log2(max(2, size)))} or fewer, or another kind",
                )
            index = self._faiss.IndexIVFPQ(
                coarse, dimension, cells, self._count_subquantizers(dimension), codes, faiss_metric
            )
            index.pq.cp.min_points_per_centroid = 1
        index.cp.min_points_per_centroid = 1  # otherwise FAISS prints a warning for a choice that was made on purpose
        return index

    def _count_subquantizers(self, dimension: int) -> int:
        """Return the number of sub-quantizers: `pq_m`, or about one per eight dimensions."""
        requested = self._settings.pq_m
        if requested is not None:
            return int(requested)
        return min((n for n in range(1, dimension + 1) if dimension % n == 0), key=lambda n: abs(n - dimension / 8))
