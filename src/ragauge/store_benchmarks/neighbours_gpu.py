"""Exact neighbours on a GPU: float16 selects candidates, double precision decides.

A sample of the rows gives an upper bound of the distance of the k-th neighbour. All rows that could be that near are
candidates, by a float16 product and the maximum error of that product. Candidates are compared in double precision. If
k of them are nearer than any excluded row can be, they are the exact neighbours, regardless of the quality of the
sample. The other queries are searched again with the improved bound. Queries that float16 cannot decide are compared
with every row in double precision on the GPU. Sums have the same order as on the CPU, so both find the same neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.errors import BackendFailed, MissingExtra, error_summary
from ragauge.store_benchmarks.neighbours_faiss import (
    DOUBLE_ERROR_BOUND,
    Float32Array,
    Float64Array,
    NeighbourArrays,
    NeighbourCandidates,
    exact_from_candidates,
)
from ragauge.stores.nearest_neighbours import FLOAT32_EPSILON, merge_nearest

QUERIES_PER_BATCH = 16_384
BOUND_SAMPLE_ROWS, CENTRE_SAMPLE_ROWS = 40_960, 4096
"""Number of rows sampled for the first bound, and for the centre of all rows."""
MIN_ROWS_FOR_SECOND_BOUND = 2_000_000
"""Number of rows from which a second bound is computed on every SECOND_BOUND_STRIDE-th row before the full search."""
SECOND_BOUND_STRIDE = 16
DIMENSIONS_PER_BLOCK = 128
"""Dimensions that the GPU multiplies per step; rows are padded with zeros to a multiple of it."""
MAX_CANDIDATES_PER_QUERY = 2048
MIN_ROWS_PER_BATCH = 65_536
"""Minimum number of rows per batch; if they do not fit into GPU memory, the search fails."""
ROW_MEMORY_SHARE = 0.75
"""Share of the free GPU memory used for rows; the rest is for intermediate results."""
MAX_FLOAT16_ROUNDS = 4
"""Maximum number of float16 searches of a query before it is compared with every row in double precision."""
PAIRS_PER_BATCH = 1 << 25
"""Pairs compared in double precision per batch: 256 MB for each array of their distances."""
MAX_RELATIVE_LENGTH = {True: 1e4, False: 1e15}
"""Length limit of rows and queries in float16 (True) or float32 (False), as a multiple of the usual length."""
FLOAT16_RELATIVE_ERROR = 2.0**-11
"""Maximum relative error of rounding to float16."""
FLOAT16_ABSOLUTE_ERROR = 2.0**-24
"""Maximum absolute error of rounding to float16, which applies to numbers near zero."""


def search_with_torch(
    base: Float32Array,
    queries: Float32Array,
    k: int,
    metric: str,
    *,
    device: str | None = None,
    half: bool | None = None,
) -> NeighbourArrays:
    """Return the `k` nearest rows of each query and their distances.

    Uses a GPU with float16 products if one is available. Rows that do not fit into GPU memory are searched in batches,
    which are halved as often as necessary. Raises BackendFailed for any error of torch, the driver or the GPU.
    """
    torch = _import_torch()
    device_name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    half = device_name != "cpu" if half is None else half
    double_queries, k = np.asarray(queries, np.float64), min(k, len(base))
    try:
        return reduce(
            partial(merge_nearest, k=k), _search_in_batches(torch, base, double_queries, k, metric, device_name, half)
        )
    except Exception as error:  # drivers and compilers raise many types
        message = error_summary(error).rstrip(".")
        raise BackendFailed(f"torch: {message}", hint="use by=numpy") from None


def _search_in_batches(
    torch: Any, base: Float32Array, queries: Float64Array, k: int, metric: str, device: str, half: bool
) -> Iterator[NeighbourArrays]:
    """Yield the nearest rows of each batch of rows."""
    start, step = 0, _rows_per_batch(torch, device, base)
    while start < len(base):
        rows = base[start : start + step]
        batch = _search_batch(torch, rows, queries, k, metric, device, half, smallest=len(rows) <= MIN_ROWS_PER_BATCH)
        if batch is None:
            step = len(rows) // 2
            torch.cuda.empty_cache()
            continue
        yield batch[0] + start, batch[1]
        start += step


def _rows_per_batch(torch: Any, device: str, base: Float32Array) -> int:
    """Return how many rows fit into memory together with their intermediate results."""
    if not device.startswith("cuda"):
        return len(base)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = int(torch.cuda.mem_get_info(device)[0]) + int(unused)
    # A row in float32, its padded copy in float16, and two numbers per row.
    bytes_per_row = 4 * int(base.shape[1]) + 2 * (int(base.shape[1]) + DIMENSIONS_PER_BLOCK) + 8
    return max(MIN_ROWS_PER_BATCH, int(ROW_MEMORY_SHARE * free) // bytes_per_row)


def _search_batch(
    torch: Any,
    base: Float32Array,
    queries: Float64Array,
    k: int,
    metric: str,
    device: str,
    half: bool,
    *,
    smallest: bool,
) -> NeighbourArrays | None:
    """Search one batch of rows.

    Returns None if GPU memory is exhausted and a smaller batch is possible.
    """
    try:
        gpu_base = torch.as_tensor(np.require(base, np.float32, ["C", "W"]), device=device)
        gpu_search, k = GpuSearch(gpu_base, metric, half=half), min(k, len(base))
        parts = []
        for start in range(0, len(queries), QUERIES_PER_BATCH):
            part = queries[start : start + QUERIES_PER_BATCH]
            parts.append(exact_from_candidates(base, part, k, metric, gpu_search.candidates(part, k)))
    except torch.OutOfMemoryError:
        if smallest:
            raise
        return None
    positions, distances = zip(*parts, strict=True)
    return np.concatenate(positions), np.concatenate(distances)


def gpu_unavailable_reason() -> str:
    """Return why no GPU is available; empty if there is one."""
    try:
        return "" if _import_torch().cuda.is_available() else "no GPU"
    except MissingExtra:
        return "torch is not installed"


def has_gpu() -> bool:
    """Return whether torch is installed and a GPU is available."""
    return not gpu_unavailable_reason()


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("exact neighbours by torch", "transformers") from None
    return torch


class GpuQueries(NamedTuple):
    """Queries prepared for comparison: centred and scaled (l2), or normalised."""

    originals: Any
    prepared: Any
    prepared_lengths: Any
    """Lengths of `prepared`."""
    shift: Any
    """Product of the centre of the rows with each query."""
    original_lengths: Any
    """Lengths of the original queries."""

    def some(self, which: Any) -> GpuQueries:
        """Return the queries selected by a mask or by indices."""
        return GpuQueries(*(tensor[which] for tensor in self))


class GpuSearch:
    """Rows in GPU memory, in single precision and prepared for comparison.

    The closeness of a row and a query is larger for nearer rows. It is their product after centring, minus half the
    squared length of the row for l2.
    """

    def __init__(self, base: Any, metric: str, *, half: bool = True) -> None:
        self.torch = _import_torch()
        self.base, self.metric, self.half = base, metric, half
        count, dimension = base.shape
        sample = self._normalise_for_cosine(base[:: max(1, count // CENTRE_SAMPLE_ROWS)].double())
        self.centre = sample.mean(dim=0)
        max_length = float((sample - self.centre).norm(dim=1).max())
        # Lengths of about 1 at most keep every product within float16; a power of two changes no digits.
        self.scale = 2.0 ** -math.frexp(max_length)[1] if 0 < max_length < math.inf else 1.0
        part = min(DIMENSIONS_PER_BLOCK, max(16, 1 << (dimension - 1).bit_length()))
        width = -(-dimension // part) * part if half else dimension
        self.rows = self.torch.zeros(
            (count, width), dtype=self.torch.float16 if half else self.torch.float32, device=base.device
        )
        self.sizes, self.halves = (self.torch.zeros(count, device=base.device) for _ in range(2))
        for start in range(0, count, step := max(4096, (1 << 27) // dimension)):
            block = slice(start, start + step)
            moved = (self._normalise_for_cosine(base[block].double()) - self.centre) * self.scale
            size = moved.norm(dim=1)
            wild = ~(size < MAX_RELATIVE_LENGTH[half])
            self.rows[block, :dimension] = moved.masked_fill_(wild[:, None], 0)
            self.sizes[block] = size.masked_fill(wild, 0) * (1 + 4 * FLOAT32_EPSILON)
            if metric == "l2":
                self.halves[block] = size * size / 2 * (1 - 16 * FLOAT32_EPSILON)
            # The closeness of a row that is too long is unknown, so it is always a candidate.
            self.halves[block].masked_fill_(wild, -math.inf)
        self.stride = max(1, count // BOUND_SAMPLE_ROWS)
        self.rounding = (
            2.25 * FLOAT16_RELATIVE_ERROR if half else (dimension + 16) * FLOAT32_EPSILON
        ) + 16 * FLOAT32_EPSILON
        self.least = math.sqrt(dimension) * FLOAT16_ABSOLUTE_ERROR if half else 1e-30

    def candidates(self, queries: Float64Array, k: int) -> NeighbourCandidates:
        """Return the `k` nearest rows of each query, and rows too close to call."""
        torch = self.torch
        gpu_queries = self._prepare_queries(torch.as_tensor(queries, device=self.base.device))
        remaining = torch.arange(len(queries), device=self.base.device)
        excluded_bounds = torch.full((len(queries),), -math.inf, dtype=torch.float64, device=self.base.device)
        owners, candidates = [remaining[:0]], [remaining[:0]]
        bound = self._estimate_bound(gpu_queries, k)
        for _ in range(MAX_FLOAT16_ROUNDS):
            remaining_queries = gpu_queries.some(remaining)
            threshold = self._closeness_threshold(remaining_queries, bound)
            candidate_rows, distances, is_complete = self._find_candidates(remaining_queries, threshold)
            if distances.shape[1] < k:
                break
            kth = distances.kthvalue(k, dim=1).values
            beyond = self._min_excluded_distance(remaining_queries, threshold)
            is_sure = is_complete & (kth < beyond)
            margin = DOUBLE_ERROR_BOUND * (
                kth.abs() + (remaining_queries.original_lengths if self.metric == "l2" else kth.abs() + 1)
            )
            rows, columns = (is_sure[:, None] & (distances <= (kth + margin)[:, None])).nonzero(as_tuple=True)
            owners.append(remaining[rows])
            candidates.append(candidate_rows[rows, columns])
            excluded_bounds[remaining[is_sure]] = beyond[is_sure]
            # k rows are known within `kth`, so it is the next bound; the sample bound replaces it if fewer were found.
            remaining, remaining_queries, kth = remaining[~is_sure], remaining_queries.some(~is_sure), kth[~is_sure]
            if not len(remaining):
                break
            bound = torch.where(kth < math.inf, kth, self._sample_bound(remaining_queries, self.stride, k))
        if len(remaining):
            owners.append(remaining.repeat_interleave(k))
            candidates.append(self._compare_with_all(gpu_queries.originals[remaining], k).ravel())
            excluded_bounds[remaining] = math.inf
        return NeighbourCandidates(
            torch.cat(owners).cpu().numpy(), torch.cat(candidates).cpu().numpy(), excluded_bounds.cpu().numpy()
        )

    def _normalise_for_cosine(self, rows: Any) -> Any:
        return _normalise_rows(self.torch, rows) if self.metric == "cosine" else rows

    def _prepare_queries(self, vectors: Any) -> GpuQueries:
        norms = vectors.norm(dim=1)
        prepared = (vectors - self.centre) * self.scale if self.metric == "l2" else _normalise_rows(self.torch, vectors)
        return GpuQueries(vectors, prepared, prepared.norm(dim=1), prepared @ self.centre, norms)

    def _estimate_bound(self, queries: GpuQueries, k: int) -> Any:
        """Estimate an upper bound of the distance of the k-th neighbour.

        The estimate may be too small, which the caller detects.
        """
        stride = self.stride
        bound = self._sample_bound(queries, stride, _sample_rank(k, 1 / stride))
        if len(self.rows) < MIN_ROWS_FOR_SECOND_BOUND:
            return bound
        rank = _sample_rank(k, 1 / SECOND_BOUND_STRIDE)
        first = self._sample_bound(queries, stride, _sample_rank(rank, SECOND_BOUND_STRIDE / stride))
        _, distances, is_complete = self._find_candidates(
            queries, self._closeness_threshold(queries, first), SECOND_BOUND_STRIDE
        )
        if distances.shape[1] < rank:
            return bound
        better = distances.kthvalue(rank, dim=1).values
        return self.torch.where(is_complete & (better < math.inf), better.minimum(bound), bound)

    def _sample_bound(self, queries: GpuQueries, stride: int, rank: int) -> Any:
        """Return the largest distance of the apparent `rank` nearest sampled rows."""
        rows, halves = self.rows[::stride], self.halves[::stride]
        rank = min(rank, len(rows))
        bounds = []
        for start in range(0, len(queries.prepared), step := max(1, (1 << 29) // len(rows))):
            part = slice(start, start + step)
            products = (queries.prepared[part].to(rows.dtype) @ rows[:, : queries.prepared.shape[1]].T).float()
            best = (products - halves).nan_to_num_(nan=-math.inf).topk(rank, dim=1).indices
            distances = self._candidate_distances(queries.originals[part], best * stride)
            bounds.append(distances.amax(dim=1))
        return self.torch.cat(bounds).nan_to_num_(nan=math.inf)

    def _find_candidates(self, queries: GpuQueries, threshold: Any, stride: int = 1) -> tuple[Any, Any, Any]:
        """Find rows that may reach the threshold.

        Returns their indices, their distances, and whether the list of each query is complete. Shorter lists are padded
        with infinite distances.
        """
        torch = self.torch
        rows, halves, sizes = (tensor[::stride].contiguous() for tensor in (self.rows, self.halves, self.sizes))
        n_queries = len(queries.prepared)
        padded_queries = torch.zeros((n_queries, rows.shape[1]), dtype=rows.dtype, device=rows.device)
        padded_queries[:, : queries.prepared.shape[1]] = queries.prepared
        edges = (self.rounding * queries.prepared_lengths + self.least).float()
        counts = torch.zeros(n_queries, dtype=torch.int32, device=rows.device)
        candidate_rows = torch.zeros(
            (n_queries, min(MAX_CANDIDATES_PER_QUERY, len(rows))), dtype=torch.int32, device=rows.device
        )
        kernel = _load_kernel() if rows.is_cuda and self.half else None
        (kernel or _find_passing_rows)(padded_queries, rows, halves, sizes, edges, threshold, counts, candidate_rows)
        max_count = min(int(counts.max()), candidate_rows.shape[1])
        candidate_rows = candidate_rows[:, :max_count].long() * stride
        is_candidate = torch.arange(max_count, device=rows.device) < counts[:, None]
        distances = self._candidate_distances(queries.originals, candidate_rows).masked_fill_(~is_candidate, math.inf)
        is_sane = (queries.prepared_lengths < MAX_RELATIVE_LENGTH[self.half]) & torch.isfinite(threshold)
        return candidate_rows, distances, (counts <= candidate_rows.shape[1]) & is_sane

    def _closeness_threshold(self, queries: GpuQueries, bound: Any) -> Any:
        """Return the closeness of a row at distance `bound`, minus the rounding error."""
        if self.metric == "l2":
            squares = (bound * self.scale).square()
            close = (queries.prepared_lengths.square() - squares) / 2
            slack = DOUBLE_ERROR_BOUND * (queries.prepared_lengths.square() + squares)
        else:
            product = 1 - bound if self.metric == "cosine" else -bound / queries.original_lengths
            close = (product - queries.shift) * self.scale
            slack = DOUBLE_ERROR_BOUND * (1 + product.abs() + queries.shift.abs()) * self.scale
        close = close - slack - self.least * queries.prepared_lengths
        return self.torch.nextafter(close.float(), close.new_tensor(-math.inf, dtype=self.torch.float32))

    def _min_excluded_distance(self, queries: GpuQueries, threshold: Any) -> Any:
        """Return the minimum distance of a row whose closeness is below the threshold."""
        close = threshold.double()
        if self.metric == "l2":
            squares = (
                queries.prepared_lengths.square() - 2 * close - DOUBLE_ERROR_BOUND * queries.prepared_lengths.square()
            )
            return squares.clamp(min=0).sqrt() / self.scale * (1 - DOUBLE_ERROR_BOUND)
        product = close / self.scale + queries.shift
        product = product + DOUBLE_ERROR_BOUND * (1 + product.abs() + queries.shift.abs())
        return 1 - product if self.metric == "cosine" else -product * queries.original_lengths

    def _compare_with_all(self, vectors: Any, k: int) -> Any:
        """Return the `k` nearest rows of each query by comparing it with all rows.

        The distances are identical, bit for bit, to those of the CPU.
        """
        torch, nearest = self.torch, []
        queries_at_once = min(len(vectors), 1024)
        rows_at_once = max(k, PAIRS_PER_BATCH // queries_at_once)
        for first in range(0, len(vectors), queries_at_once):
            queries = vectors[first : first + queries_at_once]
            candidate_rows = torch.empty((len(queries), 0), dtype=torch.int64, device=vectors.device)
            distances = torch.empty((len(queries), 0), dtype=torch.float64, device=vectors.device)
            for start in range(0, len(self.base), rows_at_once):
                rows = self.base[start : start + rows_at_once].double()
                batch_rows = torch.arange(start, start + len(rows), device=vectors.device).expand(len(queries), -1)
                distances = torch.cat([distances, _distances_in_order(torch, queries, rows, self.metric)], dim=1)
                candidate_rows = torch.cat([candidate_rows, batch_rows], dim=1)
                # The sort is stable, so ties keep the order of the rows.
                distances, order = distances.sort(dim=1, stable=True)
                distances, candidate_rows = distances[:, :k], candidate_rows.gather(1, order[:, :k])
            nearest.append(candidate_rows)
        return torch.cat(nearest)

    def _candidate_distances(self, vectors: Any, candidate_rows: Any) -> Any:
        """Compute the distances of candidates in double precision.

        They agree with those of NumPy except for rounding.
        """
        torch = self.torch
        distances = torch.empty(candidate_rows.shape, dtype=torch.float64, device=candidate_rows.device)
        batch_size = max(1, (1 << 27) // max(1, candidate_rows.shape[1] * self.base.shape[1]))
        for start in range(0, len(vectors), batch_size):
            rows = self.base[candidate_rows[start : start + batch_size]].double()
            query_batch = vectors[start : start + batch_size, None, :]
            if self.metric == "l2":
                distances[start : start + batch_size] = rows.sub_(query_batch).square_().sum(dim=2).sqrt_()
                continue
            products = -(rows * query_batch).sum(dim=2)
            if self.metric == "cosine":
                sizes = rows.norm(dim=2) * query_batch.norm(dim=2)
                products = 1 + products / torch.where(sizes > 0, sizes, 1.0)
            distances[start : start + batch_size] = products
        return distances


def _distances_in_order(torch: Any, queries: Any, rows: Any, metric: str) -> Any:
    """Compute the distances of all pairs with the operations of `pair_distances`.

    The operations have the same order, so the results are identical, bit for bit.
    """
    query_columns, row_columns = queries.T.contiguous(), rows.T.contiguous()
    sums = torch.zeros((len(queries), len(rows)), dtype=torch.float64, device=rows.device)
    for query_column, row_column in zip(query_columns, row_columns, strict=True):
        if metric == "l2":
            difference = query_column[:, None] - row_column
            sums += difference.mul_(difference)
        else:
            sums += query_column[:, None] * row_column
    if metric == "l2":
        return sums.sqrt_()
    if metric == "ip":
        return sums.neg_()
    lengths = _lengths_in_order(torch, query_columns)[:, None] * _lengths_in_order(torch, row_columns)
    cosines = torch.where(lengths > 0, sums.neg_() / lengths, 0.0)
    return cosines.add_(1).clamp_(0, 2)


def _lengths_in_order(torch: Any, columns: Any) -> Any:
    """Compute the lengths of vectors, summed over the dimensions in order."""
    sums = torch.zeros(columns.shape[1], dtype=torch.float64, device=columns.device)
    for column in columns:
        sums += column * column
    return sums.sqrt_()


def _sample_rank(k: int, share: float) -> int:
    """Return the rank in a sample that is almost never nearer than rank k of all rows.

    It is the expected rank plus five standard deviations plus five.
    """
    expected = k * min(share, 1.0)
    return min(k, math.ceil(expected + 5 * math.sqrt(expected) + 5))


def _normalise_rows(torch: Any, rows: Any) -> Any:
    sizes = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(sizes > 0, sizes, 1.0)


def _load_kernel() -> Any:
    try:
        from ragauge.store_benchmarks import gpu_kernel
    except ImportError:  # a torch without Triton
        return None
    return gpu_kernel.launch_kernel


def _find_passing_rows(
    queries: Any, rows: Any, halves: Any, sizes: Any, edges: Any, thresholds: Any, counts: Any, candidate_rows: Any
) -> None:
    """Do the work of the Triton kernel with matrix products."""
    import torch

    for start in range(0, len(rows), step := max(1, (1 << 27) // max(1, len(queries)))):
        block = slice(start, start + step)
        # Convert before the product: a float16 product would be rounded once more.
        products = queries.float() @ rows[block].float().T
        hits = products.addr_(edges, sizes[block]).sub_(halves[block]) >= thresholds[:, None]
        owner, column = hits.nonzero(as_tuple=True)
        hit_counts = hits.sum(dim=1)
        before = counts.long() - (hit_counts.cumsum(0) - hit_counts)
        number = torch.arange(len(owner), device=rows.device) + before[owner]
        fits = number < candidate_rows.shape[1]
        candidate_rows[owner[fits], number[fits]] = (column[fits] + start).int()
        counts += hit_counts.int()
