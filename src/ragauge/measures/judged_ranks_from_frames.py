"""Compute judged ranks from frames, in blocks of whole queries.

Rows are matched to judgments by a 64-bit hash, and every match and duplicate is confirmed on the ids. Bit tables
filter out nearly all unjudged rows first, so that these are never sorted, joined or copied.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BadInput
from ragauge.core.records import Floats, Ints, Judgments, Run, RunFrames
from ragauge.files.parquet_runs import ParquetRun
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import (
    SELF_RETRIEVED,
    FirstOfQuery,
    JudgedRanks,
    PartialRanks,
    RankWithTies,
    first_documents,
    merge_parts,
    rank_scores,
)

if TYPE_CHECKING:
    import polars as pl


HASH_BIT_SHIFTS = (0, 32, 16)
"""Number of bits to shift a hash for each bit table."""
TIED_PAIRS_PER_BLOCK = 1 << 21
"""Maximum number of pairs of tied ids compared at a time."""
MIN_ROWS_PER_PART = 1 << 18
"""Minimum number of rows per part that is sent to another process."""
MIN_ROWS_PER_DUPLICATE_CHECK = 1 << 16
"""Minimum number of rows checked at a time for duplicate documents."""


@dataclass(frozen=True)
class QueryBlock:
    """Whole queries of a run, and the row at which each starts."""

    names: list[str]
    starts: Ints
    docs: pl.Series
    scores: Floats
    hashes: Ints
    judged: Ints
    """Index of each query in the judgments; -1 if it is unjudged."""
    ranks: Floats | None


class JudgmentIndex:
    """Judged pairs by hash, and three bit tables that filter out nearly all unjudged rows."""

    def __init__(self, judgments: Judgments) -> None:
        self.docs = judgments.frame["doc"]
        self.pool = judgments.pool
        self.numbers = {name: i for i, name in enumerate(self.pool.queries)}
        query_indices = np.arange(len(self.pool.queries))
        for self.seed in range(8):
            hashes = self.salted(self.docs.hash(self.seed), query_indices, np.diff(self.pool.starts))
            self.rows = np.argsort(hashes)
            self.hashes = hashes[self.rows]
            if not (self.hashes[1:] == self.hashes[:-1]).any():
                break
        bits = max(16, (len(hashes) * 4).bit_length())
        self.mask = np.int64((1 << min(bits, 28)) - 1)
        self.tables = np.zeros((3, int(self.mask) + 1), np.bool_)
        for table, shift in zip(self.tables, HASH_BIT_SHIFTS, strict=True):
            table[hashes >> shift & self.mask] = True

    def prepared(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the hash of each document, and whether each row starts a query.

        This runs where the frame is read.
        """
        import polars as pl

        return _add_query_starts(frame).with_columns(pl.col("doc").hash(self.seed).alias("hash"))

    @staticmethod
    def salted(hashes: pl.Series, queries: Ints, sizes: Ints) -> Ints:
        """Combine the hashes of documents with their queries.

        The query contributes its number times a large odd number.
        """
        salts = (queries + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return (hashes.to_numpy() ^ np.repeat(salts, sizes)).view(np.int64)

    def look_up(self, block: QueryBlock) -> tuple[Ints, Ints]:
        """Find the judged rows of a block.

        Returns their rows in the block and in the pool.
        """
        if not len(self.hashes):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        candidates = np.flatnonzero(self.tables[0].take(block.hashes & self.mask))
        for table, shift in zip(self.tables[1:], HASH_BIT_SHIFTS[1:], strict=True):
            candidates = candidates[table.take(block.hashes[candidates] >> shift & self.mask)]
        hash_positions = np.minimum(np.searchsorted(self.hashes, block.hashes[candidates]), len(self.hashes) - 1)
        is_equal_hash = self.hashes[hash_positions] == block.hashes[candidates]
        rows, pool_rows = candidates[is_equal_hash], self.rows[hash_positions[is_equal_hash]]
        segment = np.searchsorted(block.starts, rows, side="right") - 1
        is_match = self.pool.owner[pool_rows] == block.judged[segment]
        is_match &= (block.docs[rows] == self.docs[pool_rows]).to_numpy()
        return rows[is_match], pool_rows[is_match]


@dataclass(frozen=True, eq=False)
class FrameRanker:
    """Judgments and convention, to compute partial ranks of whole queries; can be pickled to other processes."""

    judgments: Judgments
    convention: Convention
    top: int = 0
    """Number of first documents to return per query in addition."""

    @cached_property
    def index(self) -> JudgmentIndex:
        """Judged pairs by hash.

        Built in each process, because hashes may differ between machines.
        """
        return JudgmentIndex(self.judgments)

    def __getstate__(self) -> dict[str, Any]:
        pairs = io.BytesIO()  # compressed, because pickled judgments are seven times as large
        self.judgments.frame.write_ipc(pairs, compression="zstd")
        return {
            "pairs": pairs.getvalue(),
            "source": self.judgments.source,
            "convention": self.convention,
            "top": self.top,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        import polars as pl

        judgments = Judgments(pl.read_ipc(io.BytesIO(state["pairs"])), source=state["source"])
        self.__dict__.update(judgments=judgments, convention=state["convention"], top=state["top"])

    def __call__(self, part: RunFrames, progress: ProgressCallback = no_progress) -> PartialRanks:
        """Compute the partial ranks of a part of a run.

        `progress` receives the number of rows processed.
        """
        return _rank_frames(self, part.name, part.frames(self.index.prepared), progress)

    def merge_partial_ranks(self, run: RunFrames, partial_ranks: Iterable[PartialRanks]) -> JudgedRanks:
        """Merge the partial ranks of a run.

        If parts share a query, the run is computed again as a whole.
        """
        judged_ranks = self._merge_partial_ranks(partial_ranks, run.name)
        if judged_ranks is None:
            regrouped = _rank_frames(self, run.name, _regroup_by_query(run, self.index), no_progress)
            judged_ranks = cast(JudgedRanks, self._merge_partial_ranks([regrouped], run.name))
        return judged_ranks

    def _merge_partial_ranks(self, partial_ranks: Iterable[PartialRanks], name: str) -> JudgedRanks | None:
        return merge_parts(self.judgments, self.convention, partial_ranks, name=name, top=bool(self.top))


def compute_ranks_from_frames(
    judgments: Judgments,
    run: RunFrames,
    convention: Convention,
    *,
    top: int = 0,
    progress: ProgressCallback = no_progress,
) -> JudgedRanks:
    """Compute the ranks of the judged documents in a run.

    `top` is the number of first documents to return per query in addition. `progress` receives the number of rows
    processed.
    """
    ranker = FrameRanker(judgments, convention, top)
    return ranker.merge_partial_ranks(run, [ranker(run, progress)])


def split_run(run: RunFrames) -> Iterator[RunFrames]:
    """Split a run into parts of whole queries, for distribution to other processes.

    A run that knows where its rows are stored yields references to them; any other run yields its rows.
    """
    if isinstance(run, ParquetRun):
        yield from run.parts()
        return
    for frame, starts in _split_whole_queries(run.frames(_add_query_starts)):
        begin = 0
        while begin < frame.height:
            end = int(starts[min(int(np.searchsorted(starts, begin + MIN_ROWS_PER_PART)), len(starts) - 1)])
            yield Run(frame.slice(begin, end - begin).drop("starts"), run.name)
            begin = end


def _regroup_by_query(run: RunFrames, index: JudgmentIndex) -> Iterator[pl.DataFrame]:
    """Yield the whole run with the rows of each query together.

    This is slow; it is for files that mix their queries.
    """
    import polars as pl

    run_frame = _concatenate_frames(list(run.frames()))
    order = run_frame.select(pl.col("query").unique(maintain_order=True)).with_row_index("at")
    grouped = run_frame.join(order, on="query", how="left", maintain_order="left").sort("at", maintain_order=True)
    yield index.prepared(grouped.drop("at"))


def _add_query_starts(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    changes = (pl.col("query") != pl.col("query").shift()).fill_null(value=True)
    return frame.rechunk().with_columns(changes.alias("starts"))


def _split_whole_queries(frames: Iterator[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, Ints]]:
    """Cut frames between queries; yields frames with the start of each query.

    The last query of a frame waits for the next frame. Only a query that spans several frames is copied.
    """
    waiting: list[pl.DataFrame] = []
    for frame in frames:
        if frame.height == 0:
            continue
        starts = np.flatnonzero(frame["starts"].to_numpy())
        if waiting and waiting[0]["query"][0] == frame["query"][0]:
            end = int(starts[1]) if len(starts) > 1 else frame.height
            waiting.append(frame.slice(0, end))
            starts = starts[1:]
            if not len(starts):
                continue
        if waiting:
            yield _merge_query(waiting)
        if len(starts) > 1:
            yield frame.slice(int(starts[0]), int(starts[-1] - starts[0])), starts - starts[0]
        waiting = [frame.slice(int(starts[-1]))]
    if waiting:
        yield _merge_query(waiting)


def _merge_query(parts: list[pl.DataFrame]) -> tuple[pl.DataFrame, Ints]:

    query_frame = _concatenate_frames(parts).rechunk()
    return query_frame, np.array([0, query_frame.height])


def _concatenate_frames(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames; the rank column is dropped if one of them lacks it."""
    import polars as pl

    shared = [name for name in frames[0].columns if all(name in frame.columns for frame in frames)]
    return pl.concat([frame.select(shared) for frame in frames])


def _rank_frames(
    ranker: FrameRanker, name: str, frames: Iterator[pl.DataFrame], progress: ProgressCallback
) -> PartialRanks:
    index, convention = ranker.index, ranker.convention
    partial_ranks = PartialRanks()
    seen_queries: set[str] = set()
    for frame, starts in _split_whole_queries(frames):
        block = _build_block(frame, starts, index, convention)
        if not seen_queries.isdisjoint(block.names) or len(set(block.names)) < len(block.names):
            return PartialRanks(scattered=True)
        seen_queries.update(block.names)
        partial_ranks.rows += frame.height
        progress(Progress("scoring", partial_ranks.rows, subject=name))
        repeats = _count_repeats(block, name, convention)
        if convention.unit == "document" and repeats.any():
            frame, starts = _keep_first_hits(frame, block)  # noqa: PLW2901 - the same queries
            block = _build_block(frame, starts, index, convention)
        judged_segments = np.flatnonzero(block.judged >= 0)
        partial_ranks.judged.append(block.judged[judged_segments])
        partial_ranks.lengths.append(np.diff(block.starts)[judged_segments])
        partial_ranks.repeats.append(repeats[judged_segments])
        if len(judged_segments) < len(block.names):
            partial_ranks.unjudged_queries += [block.names[i] for i in np.flatnonzero(block.judged < 0).tolist()]
        rows, pool_rows = index.look_up(block)
        if convention.own == "dropped":
            rows, pool_rows = _separate_self_retrieved(frame, block, rows, pool_rows)
        segment = np.searchsorted(block.starts, rows, side="right") - 1
        ranks = rank_scores(block.scores, block.starts, segment, block.scores[rows])
        tie_position = np.zeros(len(rows), np.int64)
        if len(ranks.tied):
            tie_position[ranks.tied] = _tie_positions(block, rows[ranks.tied], segment[ranks.tied], ranks, convention)
        partial_ranks.matches.add(block.judged[segment], pool_rows, tie_position, ranks)
        if ranker.top:
            partial_ranks.top_documents += [_first_documents(ranker, block, i) for i in judged_segments.tolist()]
    return partial_ranks


def _first_documents(ranker: FrameRanker, block: QueryBlock, i: int) -> FirstOfQuery:
    query_rows = slice(int(block.starts[i]), int(block.starts[i + 1]))
    return first_documents(
        block.docs.slice(query_rows.start, query_rows.stop - query_rows.start).to_list(),
        block.scores[query_rows],
        None if block.ranks is None else block.ranks[query_rows],
        ranker.top,
        ranker.convention,
        query=block.names[i],
        judged=ranker.judgments.nested[block.names[i]],
    )


def _build_block(frame: pl.DataFrame, starts: Ints, index: JudgmentIndex, convention: Convention) -> QueryBlock:
    names = frame["query"][starts[:-1]].to_list()
    judged = np.array([index.numbers.get(name, -1) for name in names], np.int64)
    scores = frame["score"].to_numpy()
    if convention.width == "float32":
        with np.errstate(over="ignore"):
            scores = scores.astype(np.float32).astype(np.float64)
    hashes = index.salted(frame["hash"], judged, np.diff(starts))
    ranks = frame["rank"].to_numpy() if convention.ties == "ranked" and "rank" in frame.columns else None
    return QueryBlock(names, starts, frame["doc"], scores, hashes, judged, ranks)


def _count_repeats(block: QueryBlock, name: str, convention: Convention) -> Ints:
    """Count the rows of each judged query that repeat a document.

    Raises `BadInput` if the convention refuses them, as trec_eval does.
    """
    repeats = np.zeros(len(block.names), np.int64)
    seen_pairs: set[tuple[int, str]] = set()
    for row in _possible_duplicates(block).tolist():
        segment = int(np.searchsorted(block.starts, row, side="right")) - 1
        pair = (segment, block.docs[row])
        if pair in seen_pairs and block.judged[segment] >= 0:
            if convention.duplicates == "error":
                raise BadInput(
                    f"document `{pair[1]}` appears more than once in the ranking of query `{block.names[segment]}`",
                    file=name,
                    hint="use `-C duplicates=first` to count its best rank; list all with `ragauge validate`",
                )
            repeats[segment] += 1
        seen_pairs.add(pair)
    return repeats


def _keep_first_hits(frame: pl.DataFrame, block: QueryBlock) -> tuple[pl.DataFrame, Ints]:
    """Keep the best hit of each document; returns the remaining rows in their order, and the start of each query."""
    order = ["score", *(["rank"] if block.ranks is not None else [])]
    kept = (
        frame.with_columns(score=block.scores)
        .with_row_index("row")
        .sort(order, descending=[True, False][: len(order)], maintain_order=True)
        .unique(["query", "doc"], keep="first", maintain_order=True)
        .sort("row")
        .drop("row")
    )
    kept = _add_query_starts(kept)
    return kept, np.append(np.flatnonzero(kept["starts"].to_numpy()), kept.height)


def _possible_duplicates(block: QueryBlock) -> Ints:
    """Find rows of judged queries that may be duplicates (equal hashes).

    Each row of some queries writes its number into a table that fits the CPU cache, at an index given by its hash.
    Only the few rows that find another number there are compared.
    """
    table = np.empty(1 << 20, np.int32)
    row_blocks = [np.zeros(0, np.int64)]
    scored = np.repeat(block.judged >= 0, np.diff(block.starts)) if (block.judged < 0).any() else None
    begin, total = 0, int(block.starts[-1])
    while begin < total:
        end = int(
            block.starts[
                min(int(np.searchsorted(block.starts, begin + MIN_ROWS_PER_DUPLICATE_CHECK)), len(block.starts) - 1)
            ]
        )
        rows = np.arange(begin, end) if scored is None else begin + np.flatnonzero(scored[begin:end])
        hashes = block.hashes[begin:end] if scored is None else block.hashes[rows]
        slots, row_numbers = hashes & (len(table) - 1), np.arange(len(hashes), dtype=np.int32)
        table[slots] = row_numbers
        winners = table[slots]
        overwritten = np.flatnonzero(winners != row_numbers)
        # Of two rows with equal hashes, either one was overwritten by the other, or both by a third.
        sorted_hashes = np.sort(hashes[overwritten])
        duplicate_hashes = [
            hashes[overwritten][hashes[overwritten] == hashes[winners[overwritten]]],
            sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]],
        ]
        if len(duplicate_hashes[0]) or len(duplicate_hashes[1]):
            row_blocks.append(rows[np.isin(hashes, np.concatenate(duplicate_hashes))])
        begin = end
    return np.concatenate(row_blocks)


def _separate_self_retrieved(frame: pl.DataFrame, block: QueryBlock, rows: Ints, pool_rows: Ints) -> tuple[Ints, Ints]:
    """Remove matches that are the query itself, and append them as rows to exclude."""
    self_rows = (frame["query"] == frame["doc"]).arg_true().to_numpy().astype(np.int64)
    self_rows = self_rows[block.judged[np.searchsorted(block.starts, self_rows, side="right") - 1] >= 0]
    is_other = ~np.isin(rows, self_rows)
    return np.concatenate([rows[is_other], self_rows]), np.concatenate(
        [pool_rows[is_other], np.full(len(self_rows), SELF_RETRIEVED)]
    )


def _tie_positions(block: QueryBlock, rows: Ints, segment: Ints, ranks: RankWithTies, convention: Convention) -> Ints:
    """Count the equal scores that precede each tied match, by the tie rule."""
    order = np.arange(len(block.scores))
    for i in np.unique(segment[~ranks.in_order[segment]]).tolist():
        begin, end = block.starts[i], block.starts[i + 1]
        order[begin:end] = begin + np.argsort(-block.scores[begin:end], kind="stable")
    # Sorted best first, equal scores are adjacent: those of a match are at begin : begin + size.
    begins = block.starts[segment] + ranks.n_above[ranks.tied]
    sizes = (ranks.n_at_or_above - ranks.n_above)[ranks.tied]
    groups, group_index = np.unique(begins, return_inverse=True)
    group_sizes = np.zeros(len(groups), np.int64)
    group_sizes[group_index] = sizes
    if sizes.sum() > 8 * group_sizes.sum():
        return _tie_positions_by_sorting(
            block, rows, order[_expand_spans(groups, group_sizes)], group_sizes, convention
        )
    return _tie_positions_by_pairs(block, rows, order, begins, sizes, convention)


def _expand_spans(begins: Ints, sizes: Ints) -> Ints:
    """List the positions begin, begin + 1, … of each span, one span after the other."""
    ends = np.cumsum(sizes)
    spans: Ints = np.arange(int(sizes.sum())) + np.repeat(begins - (ends - sizes), sizes)
    return spans


def _tie_positions_by_pairs(
    block: QueryBlock, rows: Ints, order: Ints, begins: Ints, sizes: Ints, convention: Convention
) -> Ints:
    """Compare each match with each document of its group, many pairs at a time."""
    position = np.zeros(len(rows), np.int64)
    ends = np.cumsum(sizes)
    done = 0
    while done < len(rows):
        matches_slice = slice(
            done, max(done + 1, int(np.searchsorted(ends, (ends[done - 1] if done else 0) + TIED_PAIRS_PER_BLOCK)))
        )
        match = np.repeat(np.arange(done, done + len(rows[matches_slice])), sizes[matches_slice])
        group_rows, match_rows = order[_expand_spans(begins[matches_slice], sizes[matches_slice])], rows[match]
        # Remaining ties (a duplicate document, a rank column of zeros) are ordered as in the input.
        if convention.ties != "ranked":
            group_docs, match_docs = block.docs[group_rows], block.docs[match_rows]
            precedes = (group_docs > match_docs).to_numpy() | (
                (group_docs == match_docs).to_numpy() & (group_rows < match_rows)
            )
        elif block.ranks is not None:
            group_ranks, match_ranks = block.ranks[group_rows], block.ranks[match_rows]
            precedes = (group_ranks < match_ranks) | ((group_ranks == match_ranks) & (group_rows < match_rows))
        else:
            precedes = group_rows < match_rows
        position += np.bincount(match, precedes, len(rows)).astype(np.int64)
        done = matches_slice.stop
    return position


def _tie_positions_by_sorting(
    block: QueryBlock, rows: Ints, members: Ints, sizes: Ints, convention: Convention
) -> Ints:
    """Sort each group once; faster if many matches are tied."""
    import polars as pl

    by_id = convention.ties != "ranked"
    key = block.docs[members] if by_id else members if block.ranks is None else block.ranks[members]
    groups = pl.DataFrame({"group": np.repeat(np.arange(len(sizes)), sizes), "key": key, "row": members})
    in_order = groups.sort(["group", "key"], descending=[False, by_id], maintain_order=True)["row"].to_numpy()
    position_by_row = np.zeros(len(block.scores), np.int64)
    position_by_row[in_order] = _expand_spans(np.zeros(len(sizes), np.int64), sizes)
    positions: Ints = position_by_row[rows]
    return positions
