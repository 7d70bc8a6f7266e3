"""FAISS: flat, scalar-quantized, IVF, IVFPQ and HNSW indexes."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import check_choice, check_int
from ragauge.core.stages import stage
from ragauge.files.workspace import replace_file
from ragauge.stores.bookkeeping import Mask, Matrix, StoreBookkeeping, normalise_rows, require_folder, unsupported_error

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


MIN_VECTORS_PER_CELL = 39
"""Training vectors per cell below which FAISS warns of poor cells."""
INDEX_FILE = "index.faiss"
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
SCALAR_QUANTIZERS = {4: "QT_4bit", 6: "QT_6bit", 8: "QT_8bit", 16: "QT_fp16"}


class FaissStore:
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

    def __init__(  # noqa: PLR0913 - the parameters of FAISS's indexes, by their own names
        self,
        *,
        kind: str = "flat",
        metric: str = "cosine",
        path: str | None = None,
        m: int = 16,
        ef_construction: int = 64,
        ef_search: int = 40,
        nlist: int | None = None,
        nprobe: int = 8,
        pq_m: int | None = None,
        pq_bits: int = 8,
        bits: int = 8,
        refine: bool = False,
        rerank: int | None = None,
        threads: int = 1,
    ) -> None:
        try:
            import faiss
        except ImportError as error:
            raise MissingExtra("the Faiss store", "faiss") from error
        self._faiss: Any = faiss
        self._intake = StoreBookkeeping(metric)
        self.kind = check_choice("FAISS index", kind, BUILD_OPTIONS)
        self._options: dict[str, Any] = {
            "m": check_int("m", m, 2),
            "ef_construction": check_int("ef_construction", ef_construction),
            "ef_search": check_int("ef_search", ef_search),
            "nlist": None if nlist is None else check_int("nlist", nlist),
            "nprobe": check_int("nprobe", nprobe),
            "pq_m": None if pq_m is None else check_int("pq_m", pq_m),
            "pq_bits": check_int("pq_bits", pq_bits, 1, 12),
            "bits": check_int("bits", bits),
            "refine": bool(refine),
            "rerank": check_int("rerank", 4 if rerank is None else rerank),
        }
        if bits not in SCALAR_QUANTIZERS:
            raise BadInput(f"bits is {bits}; FAISS has 4, 6, 8 and 16")
        if refine and self.kind not in ("sq", "ivfpq"):
            raise BadInput(f"{self.kind} keeps full precision already", hint="refine is for sq and ivfpq")
        if rerank is not None:
            self._check_search_option("rerank")
        self._threads = check_int("threads", threads, 0)
        self._index: Any = None
        self._core: Any = None
        """The inner index, without the id map or refinement around it."""
        self._lock = threading.Lock()
        self._waiting: list[Matrix] = []
        self._filter: tuple[Mask, Any] | None = None
        self._path = path
        if path is not None and self._intake.read(path, kind=self.kind, **self._select_options(BUILD_OPTIONS)):
            kept: Any = faiss.read_index(str(require_folder("faiss", path) / INDEX_FILE))
            self._use_index(kept)
            if kept.ntotal != (self._intake.places if self._has_implicit_ids else len(self)):
                raise BadInput(f"{path} was not kept whole: the index and its ids differ in number")

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store.

        A graph or a refined index cannot update or delete vectors.
        """
        changes = () if self._has_implicit_ids else ("update", "delete")
        return frozenset(("insert", "filter", "save", "share", *changes))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        options = self._select_options(BUILD_OPTIONS) | self._select_options(SEARCH_OPTIONS)
        if self.kind.startswith("ivf") and self._core is not None:
            options["nlist"] = int(self._core.nlist)
            options["nprobe"] = min(options["nprobe"], options["nlist"])
        if self.kind == "ivfpq" and self._core is not None:
            options["pq_m"] = int(self._core.pq.M)
        if not self._options["refine"]:
            options.pop("rerank", None)
        return {
            "store": "faiss",
            "version": self._faiss.__version__,
            "kind": self.kind,
            "metric": self._intake.metric,
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
            parts = self._options["pq_m"] if self.kind == "ivfpq" else None
            if parts is not None and matrix.shape[1] % parts:
                raise BadInput(f"pq_m is {parts}, which does not divide the {matrix.shape[1]} dimensions")
            mine = normalise_rows(matrix) if self._intake.metric == "cosine" else matrix
            if self._index is None:
                self._waiting.append(mine.copy() if mine is matrix else mine)
            else:
                self._insert_vectors(mine, self._intake.places)
        self._intake.remember(ids, matrix, metadata)

    def build(self) -> None:
        """Index the added vectors.

        Otherwise the first search does, and its latency includes the time.
        """
        with self._lock:
            if not self._waiting:
                return
            self._set_thread_count()
            if self._index is None:
                self._use_index(self._build_index(self._waiting))
            place = self._intake.places - sum(len(part) for part in self._waiting)
            while self._waiting:
                part = self._waiting.pop(0)
                self._insert_vectors(part, place)
                place += len(part)

    def tune(self, *, ef_search: int | None = None, nprobe: int | None = None, rerank: int | None = None) -> None:
        """Set search options."""
        given = {"ef_search": ef_search, "nprobe": nprobe, "rerank": rerank}
        for name, value in given.items():
            if value is not None:
                self._check_search_option(name)
                self._options[name] = check_int(name, value)
        self._apply_search_options()

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter.
        """
        queries = self._intake.queries(vectors, k)
        if self._waiting:
            self.build()
        if not len(self) or not len(queries):
            return self._intake.empty(len(queries), k)
        if len(queries) > 1:
            self._set_thread_count()
        with stage("retrieve"):
            asked = normalise_rows(queries) if self._intake.metric == "cosine" else queries
            values, positions = self._index.search(
                asked, min(k, len(self)), params=self._filter_parameters(where) if where else None
            )
        if self._intake.metric == "l2":
            values = np.sqrt(np.maximum(values, 0))
        elif self._intake.metric == "ip":
            values = -values
        else:
            values = np.maximum(1 - values, 0)
        return self._intake.answer(positions, values, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        if self._has_implicit_ids:
            raise unsupported_error(f"faiss {self.kind}", "update", self._immutable_reason)
        positions, matrix = self._intake.replacements(ids, vectors)
        self.build()
        if len(ids):
            self._index.remove_ids(positions)
            self._index.add_with_ids(normalise_rows(matrix) if self._intake.metric == "cosine" else matrix, positions)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        if self._has_implicit_ids:
            raise unsupported_error(f"faiss {self.kind}", "delete", self._immutable_reason)
        positions = self._intake.positions(ids)
        self.build()
        if len(ids):
            self._index.remove_ids(positions)
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder("faiss", self._path)
        self.build()
        if self._index is not None:
            with replace_file(folder / INDEX_FILE) as file:
                self._faiss.write_index(self._index, str(file))
            self._intake.write(folder, kind=self.kind, **self._select_options(BUILD_OPTIONS))

    def close(self) -> None:
        """Release the index and forget the ids."""
        self._index = self._core = self._filter = None
        self._waiting = []
        self._intake = StoreBookkeeping(self._intake.metric)

    @property
    def _has_implicit_ids(self) -> bool:
        """Whether the index knows vectors by number only, and so cannot remove one."""
        return self.kind == "hnsw" or bool(self._options["refine"])

    @property
    def _immutable_reason(self) -> str:
        return "its graph cannot lose a vector" if self.kind == "hnsw" else "what is refined cannot lose a vector"

    def _select_options(self, kinds: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        return {name: self._options[name] for name in kinds[self.kind]}

    def _check_search_option(self, name: str) -> None:
        """Raise BadInput for a search option that has no effect."""
        if name not in SEARCH_OPTIONS[self.kind]:
            raise BadInput(f"faiss {self.kind} has no {name}")
        if name == "rerank" and not self._options["refine"]:
            raise BadInput("only what is kept in full precision too can be ranked again", hint="give refine=true")

    def _set_thread_count(self) -> None:
        # FAISS sets the number of threads per calling thread.
        if self._threads:
            self._faiss.omp_set_num_threads(self._threads)

    def _insert_vectors(self, matrix: Matrix, place: int) -> None:
        if self._has_implicit_ids:
            self._index.add(matrix)
        else:
            self._index.add_with_ids(matrix, np.arange(place, place + len(matrix)))

    def _use_index(self, index: Any) -> None:
        """Use a new or loaded index as the index of this store."""
        self._index, inner = index, index
        if self._options["refine"]:
            inner = index.base_index
        elif self.kind in ("flat", "sq"):
            inner = index.index
        self._core = self._faiss.downcast_index(inner)
        self._apply_search_options()

    def _apply_search_options(self) -> None:
        self._filter = None
        if self._core is None:
            return
        if self.kind == "hnsw":
            self._core.hnsw.efSearch = self._options["ef_search"]
        if self.kind.startswith("ivf"):
            self._core.nprobe = self._options["nprobe"]
        if self._options["refine"]:
            self._index.k_factor = float(self._options["rerank"])

    def _filter_parameters(self, where: Mapping[str, Any]) -> Any:
        """Return the FAISS search parameters of a filter; cached for the next search."""
        mask = self._intake.allowed(where)
        if self._filter is None or self._filter[0] is not mask:
            chosen = {"sel": self._faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))}
            if self.kind == "hnsw":
                made = self._faiss.SearchParametersHNSW(efSearch=self._options["ef_search"], **chosen)
            elif self.kind.startswith("ivf"):
                made = self._faiss.SearchParametersIVF(nprobe=self._options["nprobe"], **chosen)
            else:
                made = self._faiss.SearchParameters(**chosen)
            if self._options["refine"]:
                factor = float(self._options["rerank"])
                made = self._faiss.IndexRefineSearchParameters(k_factor=factor, base_index_params=made)
            self._filter = mask, made
        return self._filter[1]

    def _build_index(self, parts: Sequence[Matrix]) -> Any:
        size, dimension = sum(len(part) for part in parts), parts[0].shape[1]
        near = self._faiss.METRIC_L2 if self._intake.metric == "l2" else self._faiss.METRIC_INNER_PRODUCT
        index: Any
        if self.kind == "flat":
            return self._faiss.IndexIDMap(self._faiss.IndexFlat(dimension, near))
        if self.kind == "hnsw":
            index = self._faiss.IndexHNSWFlat(dimension, self._options["m"], near)
            index.hnsw.efConstruction = self._options["ef_construction"]
            return index
        if self.kind == "sq":
            quantizer = getattr(self._faiss.ScalarQuantizer, SCALAR_QUANTIZERS[self._options["bits"]])
            index = self._faiss.IndexScalarQuantizer(dimension, quantizer, near)
        else:
            index = self._build_ivf_index(size, dimension, near)
        index.train(parts[0] if len(parts) == 1 else np.concatenate(parts))
        if self._options["refine"]:
            return self._faiss.IndexRefineFlat(index)
        return self._faiss.IndexIDMap(index) if self.kind == "sq" else index

    def _build_ivf_index(self, size: int, dimension: int, near: int) -> Any:
        cells = self._options["nlist"] or max(1, min(round(size**0.5), size // MIN_VECTORS_PER_CELL))
        if cells > size:
            raise BadInput(f"nlist is {cells}, more than the {size} vectors to learn from", hint="take a smaller nlist")
        coarse = self._faiss.IndexFlat(dimension, near)
        if self.kind == "ivf":
            index = self._faiss.IndexIVFFlat(coarse, dimension, cells, near)
        else:
            codes = self._options["pq_bits"]
            if size < 2**codes:
                raise BadInput(
                    f"pq_bits={codes} needs at least {2**codes} vectors to learn from, not {size}",
                    hint=f"take pq_bits={int(math.log2(max(2, size)))} or fewer, or another kind",
                )
            index = self._faiss.IndexIVFPQ(coarse, dimension, cells, self._count_subquantizers(dimension), codes, near)
            index.pq.cp.min_points_per_centroid = 1
        index.cp.min_points_per_centroid = 1  # otherwise FAISS prints a warning for a choice that was made on purpose
        return index

    def _count_subquantizers(self, dimension: int) -> int:
        """Return the number of sub-quantizers: `pq_m`, or about one per eight dimensions."""
        asked = self._options["pq_m"]
        if asked is not None:
            return int(asked)
        return min((n for n in range(1, dimension + 1) if dimension % n == 0), key=lambda n: abs(n - dimension / 8))
