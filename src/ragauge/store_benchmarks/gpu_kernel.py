"""Triton kernel that finds the rows that reach the threshold of a query, without storing the products.

A product of 10,000 queries and 10,000,000 rows has 10^11 values, and storing them costs more than computing them. The
kernel compares each value in registers and stores only the few rows that pass.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ragauge.store_benchmarks.neighbours_gpu import DIMENSIONS_PER_BLOCK


@triton.autotune(  # type: ignore[untyped-decorator, unused-ignore]
    configs=[
        triton.Config({"BLOCK_Q": 128, "BLOCK_R": rows, "STAGES": stages, "BLOCKS": blocks}, num_warps=warps)
        for rows, warps, stages, blocks in ((128, 8, 3, 32), (128, 4, 3, 32), (128, 4, 4, 64), (64, 4, 4, 64))
    ],
    key=["width"],
    reset_to_zero=["counts"],
)
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def find_passing_rows_kernel(  # type: ignore[no-untyped-def] # noqa: PLR0913
    queries,
    rows,
    halves,
    sizes,
    edges,
    thresholds,
    counts,
    candidate_rows,
    n_queries,
    n_rows,
    capacity,
    width: tl.constexpr,
    part: tl.constexpr,
    BLOCK_Q: tl.constexpr,  # noqa: N803 - a constant of the kernel
    BLOCK_R: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
    BLOCKS: tl.constexpr,  # noqa: N803
):
    """Count the rows with `query . row + edge * size - half >= thresholds` per query.

    The first `capacity` of these rows are stored in `candidate_rows`.
    """
    across = tl.cdiv(n_queries, BLOCK_Q)
    # Queries change fastest, so that programs running at the same time read the same rows.
    query = (tl.program_id(0) % across) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    first = (tl.program_id(0) // across) * BLOCKS * BLOCK_R
    is_query = query < n_queries
    column = tl.arange(0, part)
    edge = tl.load(edges + query, mask=is_query, other=0.0)
    bound = tl.load(thresholds + query, mask=is_query, other=float("inf"))
    # Prefetch the next block of dimensions if a vector has several, else the next rows.
    for block in tl.range(0, BLOCKS, num_stages=STAGES if width == part else 1):
        row = first + block * BLOCK_R + tl.arange(0, BLOCK_R)
        is_row = row < n_rows
        product = tl.zeros((BLOCK_Q, BLOCK_R), tl.float32)
        for start in tl.range(0, width, part, num_stages=STAGES if width > part else 1):
            query_block = tl.load(
                queries + query[:, None] * width + start + column[None, :], mask=is_query[:, None], other=0.0
            )
            at = rows + row[:, None].to(tl.int64) * width + start + column[None, :]
            product = tl.dot(query_block, tl.trans(tl.load(at, mask=is_row[:, None], other=0.0)), product)
        size = tl.load(sizes + row, mask=is_row, other=0.0)
        half = tl.load(halves + row, mask=is_row, other=float("inf"))
        hit = product + edge[:, None] * size[None, :] - half[None, :] >= bound[:, None]
        if tl.max(tl.max(hit.to(tl.int32), 1), 0) > 0:
            # Infinite values also pass in padding rows and queries. This is rare, so the masks are applied only here.
            hit = hit & is_query[:, None] & is_row[None, :]
            owner = tl.broadcast_to(query[:, None], (BLOCK_Q, BLOCK_R))
            number = tl.atomic_add(counts + owner, 1, mask=hit, sem="relaxed")
            named = tl.broadcast_to(row[None, :], (BLOCK_Q, BLOCK_R))
            tl.store(candidate_rows + owner.to(tl.int64) * capacity + number, named, mask=hit & (number < capacity))


def launch_kernel(
    queries: Any, rows: Any, halves: Any, sizes: Any, edges: Any, thresholds: Any, counts: Any, candidate_rows: Any
) -> None:
    """Fill `counts` and `candidate_rows` on the GPU.

    All arguments are contiguous tensors on the GPU; `queries` and `rows` are float16.
    """
    n_queries, width = queries.shape

    def grid(chosen: dict[str, int]) -> tuple[int]:
        blocks = triton.cdiv(len(rows), chosen["BLOCK_R"] * chosen["BLOCKS"])
        return (triton.cdiv(n_queries, chosen["BLOCK_Q"]) * blocks,)

    find_passing_rows_kernel[grid](
        queries, rows, halves, sizes, edges, thresholds, counts, candidate_rows,
        n_queries, len(rows), candidate_rows.shape[1],
        width=width, part=min(width, DIMENSIONS_PER_BLOCK),
    )  # fmt: skip
