"""The road from frames: blocks of whole queries, matched to the judgments by a 64-bit hash, then by the real ids.

Nobody sorts, joins or copies what nobody judged: a table of bits says which rows may be judged, and only those are
looked up. A hash decides nothing by itself: every match and every duplicate is confirmed on the ids.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ragauge.errors import BadInput
from ragauge.measures.conventions import Convention
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.ranks import OWN, Standing, leading, standing
from ragauge.measures.tallies import First, Tally, put_together
from ragauge.records import Floats, Ints, Judgments, Retrieved, Run

if TYPE_CHECKING:
    import polars as pl

SHIFTS = (0, 32, 16)
"""Which bits of a hash each table looks at."""
PAIRS = 1 << 21
"""How many pairs of tied ids are compared at a time."""
GIVEN = 1 << 18
"""How many rows, at least, are given to somebody else at a time."""
SOME = 1 << 16
"""In how many rows, at least, documents are looked for that a query got twice."""


@dataclass(frozen=True)
class Block:
    """Some whole queries of a run, and where each starts."""

    names: list[str]
    starts: Ints
    docs: pl.Series
    scores: Floats
    hashes: Ints
    judged: Ints
    """The index of each query in the judgments; -1 where nobody judged it."""
    ranks: Floats | None


class Index:
    """The judged pairs by hash, and three tables of bits that keep almost all other rows from being looked up."""

    def __init__(self, judgments: Judgments) -> None:
        self.docs = judgments.frame["doc"]
        self.pool = judgments.pool
        self.numbers = {name: i for i, name in enumerate(self.pool.queries)}
        every = np.arange(len(self.pool.queries))
        for self.seed in range(8):
            hashes = self.salted(self.docs.hash(self.seed), every, np.diff(self.pool.starts))
            self.rows = np.argsort(hashes)
            self.hashes = hashes[self.rows]
            if not (self.hashes[1:] == self.hashes[:-1]).any():
                break
        bits = max(16, (len(hashes) * 4).bit_length())
        self.mask = np.int64((1 << min(bits, 28)) - 1)
        self.tables = np.zeros((3, int(self.mask) + 1), np.bool_)
        for table, shift in zip(self.tables, SHIFTS, strict=True):
            table[hashes >> shift & self.mask] = True

    def prepared(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame with each document's hash, and whether each row starts another query; done where it was read."""
        import polars as pl

        return _with_starts(frame).with_columns(pl.col("doc").hash(self.seed).alias("hash"))

    @staticmethod
    def salted(hashes: pl.Series, queries: Ints, sizes: Ints) -> Ints:
        """A hash of each document and its query, whose part is its number times a large odd one."""
        salts = (queries + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return (hashes.to_numpy() ^ np.repeat(salts, sizes)).view(np.int64)

    def look_up(self, block: Block) -> tuple[Ints, Ints]:
        """The rows of a block that are judged, and their rows in the pool."""
        if not len(self.hashes):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        maybe = np.flatnonzero(self.tables[0].take(block.hashes & self.mask))
        for table, shift in zip(self.tables[1:], SHIFTS[1:], strict=True):
            maybe = maybe[table.take(block.hashes[maybe] >> shift & self.mask)]
        at = np.minimum(np.searchsorted(self.hashes, block.hashes[maybe]), len(self.hashes) - 1)
        same = self.hashes[at] == block.hashes[maybe]
        rows, pool_rows = maybe[same], self.rows[at[same]]
        segment = np.searchsorted(block.starts, rows, side="right") - 1
        sure = self.pool.owner[pool_rows] == block.judged[segment]
        sure &= (block.docs[rows] == self.docs[pool_rows]).to_numpy()
        return rows[sure], pool_rows[sure]


@dataclass(frozen=True, eq=False)
class Counting:
    """Judgments and rules, ready to count whatever has whole queries of a run; it can be sent to other processes."""

    judgments: Judgments
    rules: Convention
    top: int = 0
    """So many first documents of each query are wanted as well."""

    @cached_property
    def index(self) -> Index:
        """The judged pairs; each process makes its own, since another machine may hash otherwise."""
        return Index(self.judgments)

    def __getstate__(self) -> dict[str, Any]:
        pairs = io.BytesIO()  # as they are they would be seven times as large
        self.judgments.frame.write_ipc(pairs, compression="zstd")
        return {"pairs": pairs.getvalue(), "source": self.judgments.source, "rules": self.rules, "top": self.top}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import polars as pl

        judgments = Judgments(pl.read_ipc(io.BytesIO(state["pairs"])), source=state["source"])
        self.__dict__.update(judgments=judgments, rules=state["rules"], top=state["top"])

    def __call__(self, part: Retrieved, watch: Callable[[int], None] = lambda _: None) -> Tally:
        """What a part of a run comes to; `watch` hears how many rows are counted."""
        return _count(self, part.name, part.frames(self.index.prepared), watch)

    def whole(self, run: Retrieved, tallies: Iterable[Tally]) -> JudgedRanks:
        """The judged ranks of a run, from what its parts come to; where they share a query it is counted as a whole."""
        found = self._together(tallies, run.name)
        if found is None:
            gathered = _count(self, run.name, _gathered(run, self.index), lambda _: None)
            found = cast(JudgedRanks, self._together([gathered], run.name))
        return found

    def _together(self, tallies: Iterable[Tally], name: str) -> JudgedRanks | None:
        return put_together(self.judgments, self.rules, tallies, name=name, top=bool(self.top))


def judged_ranks(
    judgments: Judgments,
    run: Retrieved,
    rules: Convention,
    *,
    top: int = 0,
    watch: Callable[[int], None] = lambda _: None,
) -> JudgedRanks:
    """The ranks of the judged documents in `run`; `top` asks for that many first documents of each query as well.

    `watch` hears how many rows are counted.
    """
    counting = Counting(judgments, rules, top)
    return counting.whole(run, [counting(run, watch)])


def parts_of(run: Retrieved) -> Iterator[Retrieved]:
    """A run in parts that have whole queries, for whoever gives them to somebody else.

    A run that knows where its rows are gives descriptions of them away; any other one gives the rows.
    """
    own = getattr(run, "parts", None)
    if own is not None:
        yield from own()
        return
    for frame, starts in _whole_queries(run.frames(_with_starts)):
        begin = 0
        while begin < frame.height:
            end = int(starts[min(int(np.searchsorted(starts, begin + GIVEN)), len(starts) - 1)])
            yield Run(frame.slice(begin, end - begin).drop("starts"), run.name)
            begin = end


def _gathered(run: Retrieved, index: Index) -> Iterator[pl.DataFrame]:
    """The whole run with the rows of each query together: the slow way, for files that mix their queries."""
    import polars as pl

    whole = _concatenated(list(run.frames()))
    order = whole.select(pl.col("query").unique(maintain_order=True)).with_row_index("at")
    together = whole.join(order, on="query", how="left", maintain_order="left").sort("at", maintain_order=True)
    yield index.prepared(together.drop("at"))


def _with_starts(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    changes = (pl.col("query") != pl.col("query").shift()).fill_null(value=True)
    return frame.rechunk().with_columns(changes.alias("starts"))


def _whole_queries(frames: Iterator[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, Ints]]:
    """The same rows, cut between queries, with where each query starts; the last one waits for the next frame.

    Only a query that lies across two frames is put together; all others stay where they are, uncopied.
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
            yield _one_query(waiting)
        if len(starts) > 1:
            yield frame.slice(int(starts[0]), int(starts[-1] - starts[0])), starts - starts[0]
        waiting = [frame.slice(int(starts[-1]))]
    if waiting:
        yield _one_query(waiting)


def _one_query(parts: list[pl.DataFrame]) -> tuple[pl.DataFrame, Ints]:

    whole = _concatenated(parts).rechunk()
    return whole, np.array([0, whole.height])


def _concatenated(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Frames as one; some may lack a rank, and then there is none."""
    import polars as pl

    shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    return pl.concat([part.select(shared) for part in parts])


def _count(counting: Counting, name: str, frames: Iterator[pl.DataFrame], watch: Callable[[int], None]) -> Tally:
    index, rules = counting.index, counting.rules
    found = Tally()
    seen: set[str] = set()
    for frame, starts in _whole_queries(frames):
        block = _block(frame, starts, index, rules)
        if not seen.isdisjoint(block.names) or len(set(block.names)) < len(block.names):
            return Tally(scattered=True)
        seen.update(block.names)
        found.rows += frame.height
        watch(found.rows)
        if rules.duplicates == "error":
            _refuse_duplicates(block, name)
        known = np.flatnonzero(block.judged >= 0)
        found.judged.append(block.judged[known])
        found.lengths.append(np.diff(block.starts)[known])
        if len(known) < len(block.names):
            found.others += [block.names[i] for i in np.flatnonzero(block.judged < 0).tolist()]
        rows, pool_rows = index.look_up(block)
        if rules.own == "dropped":
            rows, pool_rows = _with_own(frame, block, rows, pool_rows)
        segment = np.searchsorted(block.starts, rows, side="right") - 1
        stands = standing(block.scores, block.starts, segment, block.scores[rows])
        place = np.zeros(len(rows), np.int64)
        if len(stands.tied):
            place[stands.tied] = _places(block, rows[stands.tied], segment[stands.tied], stands, rules)
        found.matches.add(block.judged[segment], pool_rows, place, stands)
        if counting.top:
            found.firsts += [_firsts(counting, block, i) for i in known.tolist()]
    return found


def _firsts(counting: Counting, block: Block, i: int) -> First:
    mine = slice(int(block.starts[i]), int(block.starts[i + 1]))
    return leading(
        block.docs.slice(mine.start, mine.stop - mine.start).to_list(),
        block.scores[mine],
        None if block.ranks is None else block.ranks[mine],
        counting.top,
        counting.rules,
        query=block.names[i],
        judged=counting.judgments.nested[block.names[i]],
    )


def _block(frame: pl.DataFrame, starts: Ints, index: Index, rules: Convention) -> Block:
    names = frame["query"][starts[:-1]].to_list()
    judged = np.array([index.numbers.get(name, -1) for name in names], np.int64)
    scores = frame["score"].to_numpy()
    if rules.width == "float32":
        with np.errstate(over="ignore"):
            scores = scores.astype(np.float32).astype(np.float64)
    hashes = index.salted(frame["hash"], judged, np.diff(starts))
    ranks = frame["rank"].to_numpy() if rules.ties == "ranked" and "rank" in frame.columns else None
    return Block(names, starts, frame["doc"], scores, hashes, judged, ranks)


def _refuse_duplicates(block: Block, name: str) -> None:
    """Stop at a document that a query got twice, as trec_eval does."""
    seen: set[tuple[int, str]] = set()
    for row in _alike(block).tolist():
        segment = int(np.searchsorted(block.starts, row, side="right")) - 1
        pair = (segment, block.docs[row])
        if pair in seen and block.judged[segment] >= 0:
            raise BadInput(
                f"document `{pair[1]}` stands twice in the ranking of query `{block.names[segment]}`",
                file=name,
                hint="`--set duplicates=first` lets its best place count; `ragauge validate` lists them all",
            )
        seen.add(pair)


def _alike(block: Block) -> Ints:
    """The rows of judged queries that may be the same document of the same query: their hashes are equal.

    Some queries at a time, each row writes its number at the place that its hash names, in a table that fits the cache.
    A row that finds another number there shares its place: few do, and only those are looked at.
    """
    table = np.empty(1 << 20, np.int32)
    found = [np.zeros(0, np.int64)]
    scored = np.repeat(block.judged >= 0, np.diff(block.starts)) if (block.judged < 0).any() else None
    begin, total = 0, int(block.starts[-1])
    while begin < total:
        end = int(block.starts[min(int(np.searchsorted(block.starts, begin + SOME)), len(block.starts) - 1)])
        rows = np.arange(begin, end) if scored is None else begin + np.flatnonzero(scored[begin:end])
        hashes = block.hashes[begin:end] if scored is None else block.hashes[rows]
        places, own = hashes & (len(table) - 1), np.arange(len(hashes), dtype=np.int32)
        table[places] = own
        there = table[places]
        lost = np.flatnonzero(there != own)
        # Of two that are alike either one has lost its place to the other, or both have to a third.
        ordered = np.sort(hashes[lost])
        twice = [hashes[lost][hashes[lost] == hashes[there[lost]]], ordered[1:][ordered[1:] == ordered[:-1]]]
        if len(twice[0]) or len(twice[1]):
            found.append(rows[np.isin(hashes, np.concatenate(twice))])
        begin = end
    return np.concatenate(found)


def _with_own(frame: pl.DataFrame, block: Block, rows: Ints, pool_rows: Ints) -> tuple[Ints, Ints]:
    """The matches without those that are the query itself, and these as rows to take out."""
    own = (frame["query"] == frame["doc"]).arg_true().to_numpy().astype(np.int64)
    own = own[block.judged[np.searchsorted(block.starts, own, side="right") - 1] >= 0]
    other = ~np.isin(rows, own)
    return np.concatenate([rows[other], own]), np.concatenate([pool_rows[other], np.full(len(own), OWN)])


def _places(block: Block, rows: Ints, segment: Ints, stands: Standing, rules: Convention) -> Ints:
    """How many documents of equal score stand before each tied match, by the tie rule."""
    order = np.arange(len(block.scores))
    for i in np.unique(segment[~stands.in_order[segment]]).tolist():
        begin, end = block.starts[i], block.starts[i + 1]
        order[begin:end] = begin + np.argsort(-block.scores[begin:end], kind="stable")
    # Best first, equal scores stand together: those of a match at begin : begin + size.
    begins = block.starts[segment] + stands.above[stands.tied]
    sizes = (stands.through - stands.above)[stands.tied]
    groups, which = np.unique(begins, return_inverse=True)
    group_sizes = np.zeros(len(groups), np.int64)
    group_sizes[which] = sizes
    if sizes.sum() > 8 * group_sizes.sum():
        return _places_by_sorting(block, rows, order[_spans(groups, group_sizes)], group_sizes, rules)
    return _places_by_pairs(block, rows, order, begins, sizes, rules)


def _spans(begins: Ints, sizes: Ints) -> Ints:
    """The places begin, begin + 1, … of each span, one span after the other."""
    ends = np.cumsum(sizes)
    spans: Ints = np.arange(int(sizes.sum())) + np.repeat(begins - (ends - sizes), sizes)
    return spans


def _places_by_pairs(block: Block, rows: Ints, order: Ints, begins: Ints, sizes: Ints, rules: Convention) -> Ints:
    """Compare each match with each document of its group, many pairs at a time."""
    place = np.zeros(len(rows), np.int64)
    ends = np.cumsum(sizes)
    done = 0
    while done < len(rows):
        part = slice(done, max(done + 1, int(np.searchsorted(ends, (ends[done - 1] if done else 0) + PAIRS))))
        match = np.repeat(np.arange(done, done + len(rows[part])), sizes[part])
        other, mine = order[_spans(begins[part], sizes[part])], rows[match]
        # What is equal even so (a document twice, a rank column of zeros) stands in the order given.
        if rules.ties != "ranked":
            one, two = block.docs[other], block.docs[mine]
            before = (one > two).to_numpy() | ((one == two).to_numpy() & (other < mine))
        elif block.ranks is not None:
            a, b = block.ranks[other], block.ranks[mine]
            before = (a < b) | ((a == b) & (other < mine))
        else:
            before = other < mine
        place += np.bincount(match, before, len(rows)).astype(np.int64)
        done = part.stop
    return place


def _places_by_sorting(block: Block, rows: Ints, members: Ints, sizes: Ints, rules: Convention) -> Ints:
    """Sort each group once, where so many matches are tied that comparing them one by one would cost more."""
    import polars as pl

    by_id = rules.ties != "ranked"
    key = block.docs[members] if by_id else members if block.ranks is None else block.ranks[members]
    groups = pl.DataFrame({"group": np.repeat(np.arange(len(sizes)), sizes), "key": key, "row": members})
    in_order = groups.sort(["group", "key"], descending=[False, by_id], maintain_order=True)["row"].to_numpy()
    place = np.zeros(len(block.scores), np.int64)
    place[in_order] = _spans(np.zeros(len(sizes), np.int64), sizes)
    places: Ints = place[rows]
    return places
