"""Exact neighbours where faiss, or torch on a graphics card, does the bulk of the work.

Both name more candidates than were asked for, by products that are rounded, down to 16 bits on a card. The candidates
are compared in double precision. A query's neighbours are exact if the last of them is nearer than anything that was
left out could be; the queries of which that cannot be said are searched again by `nearest`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.errors import BackendFailed, MissingExtra
from ragauge.systems.stores.nearest import EPSILON, MODERATE, lengths, nearest, pair_distances

Single = NDArray[np.float32]
Double = NDArray[np.float64]
Ints = NDArray[np.int64]
Found = tuple[Ints, Double]

QUERIES_AT_ONCE = 1024
SAMPLE = 4096
HAIR = 1e-12
"""More than what rounding in double precision does to a distance, as a share of what it is made of."""
HALF = 2.0**-11
"""By how much a number changes when it is rounded to 16 bits."""


class Candidates(NamedTuple):
    """Pairs that may be among the nearest, by query, and for each query how near the rest may be at least."""

    rows: Ints
    positions: Ints
    rest: Double
    """In the metric's own distance."""


def by_faiss(base: Single, queries: Single, k: int, metric: str) -> Found:
    """The `k` nearest rows of each query and their distances."""
    try:
        import faiss
    except ImportError:
        raise MissingExtra("exact neighbours by faiss", "faiss") from None
    asked, k = np.asarray(queries, np.float64), min(k, len(base))
    more = min(len(base), k + max(32, k // 4))
    moved, ours, shift = _moved(base, asked, metric)
    index = faiss.IndexFlat(base.shape[1], faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)
    index.add(moved)
    values, positions = index.search(ours, more)
    longest, own = float(lengths(moved).max()), lengths(ours)
    rounding = (base.shape[1] + 16) * EPSILON
    worst = values[:, -1].astype(np.float64)
    if metric == "l2":
        rest = np.sqrt(np.maximum(worst - rounding * (own + longest) ** 2, 0))
    else:
        extra = 1.0 if metric == "cosine" else 0.0
        rest = shift - worst - rounding * own * (longest + extra) - HAIR * (np.abs(shift) + np.abs(worst))
    # Single precision holds no squares of such lengths; of what is not a number faiss says nothing at all.
    known = np.isfinite(worst) & (positions.min(axis=1) >= 0) & (1 / MODERATE < longest < MODERATE)
    rest = np.where(known & (own < MODERATE), np.inf if more == len(base) else rest, -np.inf)
    rows = np.repeat(np.arange(len(asked)), more)
    return _decided(base, asked, k, metric, Candidates(rows, np.maximum(positions.ravel(), 0).astype(np.int64), rest))


def by_torch(
    base: Single, queries: Single, k: int, metric: str, *, device: str | None = None, half: bool | None = None
) -> Found:
    """The `k` nearest rows of each query and their distances; on a card, if there is one, in 16 bits."""
    torch = _torch()
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    small = place != "cpu" if half is None else half
    asked, k = np.asarray(queries, np.float64), min(k, len(base))
    try:
        there = torch.as_tensor(np.ascontiguousarray(base), device=place)
        parts = []
        for start in range(0, len(asked), QUERIES_AT_ONCE):
            part = asked[start : start + QUERIES_AT_ONCE]
            parts.append(_decided(base, part, k, metric, _on_card(torch, there, part, k, metric, half=small)))
    except torch.OutOfMemoryError as error:
        raise BackendFailed(f"torch: {str(error).splitlines()[0]}", hint="take by=numpy") from None
    positions, distances = zip(*parts, strict=True)
    return np.concatenate(positions), np.concatenate(distances)


def has_card() -> bool:
    """Whether torch is installed and sees a graphics card."""
    try:
        return bool(_torch().cuda.is_available())
    except MissingExtra:
        return False


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("exact neighbours by torch", "transformers") from None
    return torch


def _moved(base: Single, queries: Double, metric: str) -> tuple[Single, Single, Double]:
    """Rows and queries around the centre of the rows, where rounding is small; and what that adds to a distance."""
    stride = max(1, len(base) // SAMPLE)
    if metric == "cosine":
        rows = np.asarray(base / _positive(lengths(base)).astype(np.float32)[:, None], np.float32)
        ours = queries / _positive(lengths(queries))[:, None]
    else:
        rows, ours = base, queries
    centre = rows[::stride].mean(axis=0, dtype=np.float64).astype(np.float32)
    shift = (1.0 if metric == "cosine" else 0.0) - ours @ centre.astype(np.float64)
    if metric == "l2":
        ours = ours - centre
    return np.ascontiguousarray(rows - centre), ours.astype(np.float32), shift


def _positive(sizes: Double) -> Double:
    return np.where(sizes > 0, sizes, 1)


def _on_card(torch: Any, there: Any, queries: Double, k: int, metric: str, *, half: bool) -> Candidates:
    """Candidates of some queries: by rounded products, then by double precision with a hair's breadth of margin."""
    count, dimension = there.shape
    asked = torch.as_tensor(queries, device=there.device)
    sample = there[:: max(1, count // SAMPLE)].double()
    if metric == "cosine":
        sample, ours = _unit(torch, sample), _unit(torch, asked)
    else:
        ours = asked if metric == "l2" else _unit(torch, asked)
    centre = sample.mean(dim=0)
    shift = ours @ centre
    if metric == "l2":
        ours = ours - centre
    own = ours.norm(dim=1)
    most = float(max((sample - centre).norm(dim=1).max(), own.max() if metric == "l2" else 0))
    # At most about 1, so that 16 bits hold every product; a power of two changes no digit.
    scale = 2.0 ** -math.frexp(most)[1] if most else 1.0
    if metric == "l2":
        ours, own = ours * scale, own * scale
    kind = torch.float16 if half else torch.float32
    rounding = 6 * HALF if half else (dimension + 16) * EPSILON
    least = math.sqrt(dimension) * 2.0**-22 if half else 1e-30
    left = ours.to(kind)
    more = min(count, 4 * k + 64)
    low = torch.full((len(queries), 0), torch.inf, device=there.device)
    places = torch.zeros((len(queries), 0), dtype=torch.int64, device=there.device)
    for start in range(0, count, step := _step(torch, there, len(queries))):
        part = there[start : start + step]
        part = _unit(torch, part.double()) if metric == "cosine" else part.double()
        part = (part - centre) * scale
        sizes = part.norm(dim=1).float()
        products = (left @ part.to(kind).T).float()
        if metric == "l2":
            products.mul_(-2).add_(sizes * sizes * (1 - 8 * EPSILON))
            products.sub_((2 * rounding * own.float())[:, None] * sizes)
        else:
            products.neg_().sub_((rounding * own.float())[:, None] * sizes)
        # What is too long for 16 bits may be anything: it is a candidate.
        products.nan_to_num_(nan=-torch.inf, posinf=-torch.inf).sub_(2 * least)
        products.masked_fill_(~(sizes < (1e4 if half else 1e18)), -torch.inf)
        values, columns = products.topk(min(more, products.shape[1]), dim=1, largest=False)
        low, places = torch.cat([low, values], dim=1), torch.cat([places, columns + start], dim=1)
        low, which = low.topk(min(more, low.shape[1]), dim=1, largest=False)
        places = places.gather(1, which)
        del products
    rest = low[:, -1].double()
    if metric == "l2":
        rest = (rest + own * own * (1 - HAIR)).clamp(min=0).sqrt() / scale * (1 - HAIR)
    else:
        rest = rest / scale - shift - HAIR * (rest.abs() / scale + shift.abs())
        rest = rest * asked.norm(dim=1) if metric == "ip" else 1 + rest - HAIR
    if more == count:
        rest = torch.full_like(rest, torch.inf)
    far = _far(torch, there, asked, places, metric)
    bound = far.kthvalue(k, dim=1).values
    margin = HAIR * (bound.abs() + _reach(asked, far, metric))
    rows, columns = (far <= (bound + margin)[:, None]).nonzero(as_tuple=True)
    return Candidates(rows.cpu().numpy(), places[rows, columns].cpu().numpy(), rest.cpu().numpy())


def _step(torch: Any, there: Any, queries: int) -> int:
    """How many rows at a time leave most of the memory free."""
    free = torch.cuda.mem_get_info(there.device)[0] if there.is_cuda else 1 << 30
    return int(min(len(there), max(4096, free // 8 // (4 * queries + 16 * there.shape[1]))))


def _unit(torch: Any, rows: Any) -> Any:
    sizes = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(sizes > 0, sizes, 1.0)


def _far(torch: Any, there: Any, asked: Any, places: Any, metric: str) -> Any:
    """The distances of candidates in double precision, to some digits those that NumPy gives."""
    parts = []
    few = max(1, (1 << 26) // (places.shape[1] * there.shape[1]))
    for start in range(0, len(asked), few):
        rows = there[places[start : start + few]].double()
        ours = asked[start : start + few, None, :]
        if metric == "l2":
            parts.append((rows - ours).square().sum(dim=2).sqrt())
            continue
        products = -(rows * ours).sum(dim=2)
        if metric == "cosine":
            sizes = rows.norm(dim=2) * ours.norm(dim=2)
            products = 1 + products / torch.where(sizes > 0, sizes, 1.0)
        parts.append(products)
    return torch.cat(parts)


def _reach(asked: Any, far: Any, metric: str) -> Any:
    """What the rounding of a sum in double precision is measured by."""
    return asked.norm(dim=1) if metric == "l2" else far.abs().amax(dim=1) + 1


def _decided(base: Single, queries: Double, k: int, metric: str, found: Candidates) -> Found:
    """The nearest of the candidates, where nothing else can be as near; otherwise of all rows."""
    order = np.lexsort((found.positions, found.rows))
    rows, positions = found.rows[order], found.positions[order]
    distances = pair_distances(base, queries, rows, positions, metric)
    order = np.lexsort((distances, rows))
    starts = np.searchsorted(rows, np.arange(len(queries)))
    best = order[starts[:, None] + np.arange(k)]
    near, far = positions[best], distances[best]
    # Equally near is not enough: of two such rows the first counts, and it may have been left out.
    unsure = np.flatnonzero(~(far[:, -1] < found.rest))
    if len(unsure):
        near[unsure], far[unsure] = nearest(base, queries[unsure], k, metric)
    return near, far
