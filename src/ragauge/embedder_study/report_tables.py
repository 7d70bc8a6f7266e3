"""Tables of an embedder study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ragauge.core.summaries import Mean
from ragauge.embedder_study.results import Entrant, Gap, Lineup, Shelf, Shrunk
from ragauge.output.numbers import milliseconds, p_value, rate
from ragauge.output.tables import Rows
from ragauge.stats.comparisons import stars
from ragauge.store_benchmarks.report_text import DOUBT

NONE = "-"
BEST = "•"
"""Mark before the best value of a column."""
ALIKE = "float32"
"""Precision at which numbers of dimensions are compared."""
METHODS = {"pca": "The strongest directions among the documents (PCA)", "first": "The first numbers of a vector"}
RANK = "rank"
"""Label of the pair of the best and the second-best embedder."""


def ordered(found: Lineup) -> list[Entrant]:
    """Sort the embedders by the first measure, best first; those without a value last."""
    return sorted(found.entrants, key=lambda one: (math.isnan(value := first(found, one).value), -value))


def with_vectors(found: Lineup) -> list[Entrant]:
    """Return the embedders with vectors, best first: neither BM25 nor chance."""
    return [one for one in ordered(found) if one.kind == "embedder"]


def first(found: Lineup, one: Entrant) -> Mean:
    """Return an embedder's mean of the first measure."""
    return one.means.get(found.measures[0], Mean(math.nan, 0)) if found.measures else Mean(math.nan, 0)


def quality(found: Lineup) -> Rows:
    """Build the table of means, with the difference from the baseline.

    The difference is that of the first measure.
    """
    main, *others = found.measures
    header = ["embedder", main, f"{found.confidence:.0%}", f"vs {found.baseline}", *others, "n"]
    best = {name: _best(one.means.get(name) for one in found.entrants) for name in found.measures}
    rows = [
        [
            one.name,
            _marked(one.means.get(main), best[main]),
            interval(first(found, one)),
            versus(one.gaps.get(main)) if one.name != found.baseline else "baseline",
            *(_marked(one.means.get(name), best[name]) for name in others),
            f"{n:,}" if (n := first(found, one).n) else NONE,
        ]
        for one in ordered(found)
    ]
    return Rows("", header, rows, goes=(len(header) - 1, *range(len(header) - 2, 3, -1)))


def _best(means: Iterable[Mean | None]) -> float:
    known = [one.value for one in means if one is not None and not math.isnan(one.value)]
    return max(known, default=math.nan) if len(known) > 1 else math.nan


def _marked(mean: Mean | None, best: float) -> str:
    if mean is None or math.isnan(mean.value):
        return NONE
    return f"{BEST if mean.value == best else ''}{mean.value:.4f}"


def every_measure(found: Lineup) -> Rows:
    """Build a table of means and tests, one row per embedder and measure."""
    sure = f"{found.confidence:.0%}"
    header = ["embedder", "measure", "mean", sure, "n", f"vs {found.baseline}", f"{sure} of it", "p", "corrected"]
    rows = []
    for one in ordered(found):
        for name, mean in one.means.items():
            gap = one.gaps.get(name)
            told = [NONE] * 4 if gap is None else [versus(gap), _ends(gap), p_value(gap.p), p_value(gap.p_corrected)]
            rows.append([one.name, name, plain(mean.value), interval(mean), f"{mean.n:,}", *told])
    return Rows("", header, rows)


def costs(found: Lineup) -> Rows:
    """Build the table of latency in the first store, throughput, size and memory."""
    kinds: dict[str, Callable[[Entrant], str]] = {
        "ms p50": lambda one: _ms(_shelf(one), "total", "p50"),
        "p95": lambda one: _ms(_shelf(one), "total", "p95"),
        "p99": lambda one: _ms(_shelf(one), "total", "p99"),
        "embed": lambda one: _ms(_shelf(one), "embed", "p50"),
        "retrieve": lambda one: _ms(_shelf(one), "retrieve", "p50"),
        "docs/s": lambda one: rate(one.documents_per_second),
        "dim": lambda one: whole(one.dimension),
        "bytes": lambda one: whole(one.bytes_per_vector),
        "params": lambda one: many(one.parameters),
        "MB": lambda one: megabytes(one.memory_bytes),
        "load s": lambda one: seconds(one.load_seconds),
        "learn s": lambda one: seconds(one.train_seconds),
    }
    return _without_empty("", {name: kinds[name] for name in kinds}, ordered(found), (11, 3, 5, 4, 8, 12, 10))


def _without_empty(
    title: str, kinds: dict[str, Callable[[Entrant], str]], several: Sequence[Entrant], goes: Sequence[int] = ()
) -> Rows:
    """Build a table of the columns that have values; `goes` counts the empty ones too."""
    cells = {name: [kind(one) for one in several] for name, kind in kinds.items()}
    kept = [name for name, column in cells.items() if set(column) - {NONE}]
    rows = [[one.name, *(cells[name][i] for name in kept)] for i, one in enumerate(several)] if kept else []
    places = {list(kinds).index(name) + 1: place for place, name in enumerate(kept, 1)}
    return Rows(title, ["embedder", *kept], rows, goes=tuple(places[one] for one in goes if one in places))


def stores(found: Lineup) -> Rows:
    """Build a table with one row per embedder and store."""
    main = found.measures[0]
    header = ["embedder", "store", main, f"{found.confidence:.0%}", "neighbours", "index", "embed p50"]
    header += ["retrieve p50", "p95", "p99", "total p50", "p95", "p99", "built in s", "note"]
    rows = []
    for one in ordered(found):
        for shelf in one.shelves:
            mean = shelf.means.get(main, Mean(math.nan, 0))
            times = [_ms(shelf, "embed", "p50")]
            times += [_ms(shelf, stage, kind) for stage in ("retrieve", "total") for kind in ("p50", "p95", "p99")]
            used = NONE if shelf.index_used is None else "used" if shelf.index_used else "not used"
            near = percent(shelf.neighbours)
            told = [plain(mean.value), interval(mean), near, used, *times, seconds(shelf.build_seconds), shelf.note]
            rows.append([one.name, shelf.store, *told])
    return Rows("", header, rows)


def by_store(found: Lineup) -> Rows:
    """Build a table with one row per store, over all embedders with vectors."""
    main = found.measures[0]
    header = ["store", "embedders", f"{main} lost", "neighbours", "ms p50", "p95", "index"]
    rows = []
    for store in store_names(found):
        shelves = [
            (one, shelf) for one in with_vectors(found) if (shelf := one.shelf(store)) is not None and shelf.stages
        ]
        if not shelves:
            continue
        pairs = [(first(found, one).value, shelf.means.get(main)) for one, shelf in shelves]
        lost = [exact - mean.value for exact, mean in pairs if mean is not None]
        known = [shelf.neighbours for _, shelf in shelves if not math.isnan(shelf.neighbours)]
        used = {shelf.index_used for _, shelf in shelves}
        rows.append(
            [
                store,
                f"{len(shelves):,}",
                plain(max(lost, default=math.nan)),
                percent(min(known, default=math.nan)),
                _range([shelf.stages["retrieve"].p50 for _, shelf in shelves if "retrieve" in shelf.stages]),
                _range([shelf.stages["retrieve"].p95 for _, shelf in shelves if "retrieve" in shelf.stages]),
                NONE if used == {None} else "used" if used <= {True, None} else "not always used",
            ]
        )
    return Rows("", header, rows, goes=(5, 1))


def store_names(found: Lineup) -> list[str]:
    """Return the stores that hold vectors; BM25 has its own."""
    return list(dict.fromkeys(shelf.store for one in with_vectors(found) for shelf in one.shelves))


def dimensions(found: Lineup, how: str) -> Rows | None:
    """Build the table of the first measure at the dimensions that all embedders have.

    None if no reduction was measured.
    """
    main = found.measures[0]
    several = [one for one in with_vectors(found) if one.shrunk]
    cells = {(one.name, small.dimension): small for one in several for small in one.shrunk if _alike(small, how)}
    every = sorted({size for _, size in cells})
    common = [size for size in every if all((one.name, size) in cells for one in several)]
    sizes = common if len(common) > 1 else every
    if not sizes:
        return None
    header = ["embedder", "as it is", *(f"{size:,} d" for size in sizes)]
    best = {size: _best(cells[key].means.get(main) for key in cells if key[1] == size) for size in sizes}
    rows = []
    for one in several:
        own = f"{plain(first(found, one).value)} ({whole(one.dimension)})"
        small = [cells.get((one.name, size)) for size in sizes]
        marks = [NONE if it is None else _marked(it.means.get(main), best[it.dimension]) for it in small]
        rows.append([one.name, own, *marks])
    return Rows(METHODS.get(how, how), header, rows, goes=(2, 4, 6, 8))


def _alike(small: Shrunk, how: str) -> bool:
    return small.how == how and small.kind == ALIKE


class Offer(NamedTuple):
    """Quality of an embedder at a cost."""

    name: str
    price: float
    mean: Mean
    how: str = ""
    """Compression, such as `as it is` or `pca 64 float32`."""


def by_bytes(found: Lineup) -> list[Offer]:
    """Return all vectors of all embedders with their size in bytes as cost."""
    main = found.measures[0]
    offers = []
    for one in with_vectors(found):
        if one.bytes_per_vector and main in one.means:
            offers.append(Offer(one.name, float(one.bytes_per_vector), one.means[main], "as it is"))
        for small in one.shrunk:
            if main in small.means and not (small.bytes == one.bytes_per_vector and small.kind == ALIKE):
                how = f"{small.how} {small.dimension} {small.kind}"
                offers.append(Offer(one.name, float(small.bytes), small.means[main], how))
    return [one for one in offers if not math.isnan(one.mean.value)]


def by_milliseconds(found: Lineup) -> list[Offer]:
    """Return all embedders with their p95 total latency in ms as cost.

    The latency is that in the first store.
    """
    main = found.measures[0]
    timed = [(one, one.shelves[0].stages.get("total")) for one in found.entrants if one.shelves and main in one.means]
    offers = [Offer(one.name, total.p95, one.means[main]) for one, total in timed if total is not None]
    return [one for one in offers if one.price > 0 and not math.isnan(one.mean.value)]


def unbeaten(offers: Sequence[Offer]) -> list[Offer]:
    """Return the points that no other beats in cost and quality, cheapest first.

    >>> cheap, dear, bad = (Offer(name, price, Mean(value, 9)) for name, price, value in (("a", 1, .3), ("b", 2, .4),
    ...     ("c", 3, .2)))
    >>> [one.name for one in unbeaten([bad, dear, cheap])]
    ['a', 'b']
    """
    found: list[Offer] = []
    for one in sorted(offers, key=lambda one: (one.price, -one.mean.value)):
        if not found or one.mean.value > found[-1].mean.value:
            found.append(one)
    return found


def offers(found: Lineup, several: Sequence[Offer], price: str) -> Rows:
    """Build the table of costs and quality."""
    header = [price, "embedder", "how", found.measures[0], f"{found.confidence:.0%}"]
    cost = milliseconds if price == "ms" else _count
    rows = [[cost(one.price), one.name, one.how or NONE, plain(one.mean.value), interval(one.mean)] for one in several]
    return Rows("", header, rows)


def sizes(found: Lineup) -> Rows | None:
    """Build the table of the first measure by corpus size.

    None if it was not measured.
    """
    main = found.measures[0]
    several = [one for one in ordered(found) if one.grown]
    counts = sorted({part.documents for one in several for part in one.grown})
    if not counts:
        return None
    cells = {(one.name, part.documents): part.means.get(main) for one in several for part in one.grown}
    best = {count: _best(cells.get((one.name, count)) for one in several) for count in counts}
    rows = [[one.name, *(_marked(cells.get((one.name, n)), best[n]) for n in counts)] for one in several]
    return Rows("", ["documents", *(f"{count:,}" for count in counts)], rows)


def pairs(found: Lineup) -> Rows:
    """Build the table of compared pairs and the option in which they differ."""
    header = ["one", "the other", "differ in", "difference", f"{found.confidence:.0%}", "p", "n"]
    rows = [
        [
            one.one,
            one.other,
            "(best and next)" if one.differs == RANK else one.differs,
            versus(one.gap),
            _ends(one.gap),
            p_value(one.gap.p_corrected),
            f"{one.gap.n:,}",
        ]
        for one in found.pairs
    ]
    return Rows("", header, rows, goes=(6, 5, 4))


def _shelf(one: Entrant) -> Shelf | None:
    return one.shelves[0] if one.shelves else None


def _ms(shelf: Shelf | None, stage: str, kind: str) -> str:
    latency = None if shelf is None else shelf.stages.get(stage)
    doubt = DOUBT if shelf is not None and shelf.unreliable_times else ""
    return NONE if latency is None else f"{milliseconds(getattr(latency, kind))}{doubt}"


def _range(values: Sequence[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return NONE
    low, high = milliseconds(min(known)), milliseconds(max(known))
    return low if low == high else f"{low} to {high}"


def _ends(gap: Gap) -> str:
    return NONE if math.isnan(gap.low) else f"{gap.low:+.3f} to {gap.high:+.3f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def interval(mean: Mean) -> str:
    """Format a confidence interval.

    >>> interval(Mean(0.5, 9, 0.4, 0.6)), interval(Mean(0.5, 1))
    ('0.400 to 0.600', '-')
    """
    return NONE if math.isnan(mean.low) else f"{mean.low:.3f} to {mean.high:.3f}"


def versus(gap: Gap | None) -> str:
    """Format a difference with its significance stars.

    >>> versus(Gap(0.05, 0.03, 0.07, 0.0001, 0.0004, 9)), versus(Gap(0.0, -1, 1, 1.0, 1.0, 9)), versus(None)
    ('+0.0500 ***', '+0.0000 ns', '-')
    """
    if gap is None or math.isnan(gap.difference):
        return NONE
    told = "" if math.isnan(gap.p_corrected) else f" {stars(gap.p_corrected)}"
    return f"{signed(gap.difference)}{told}"


def signed(value: float, digits: int = 4) -> str:
    """Format a difference; one that rounds to 0 has no minus sign.

    >>> signed(0.05), signed(-0.00001), signed(math.nan)
    ('+0.0500', '+0.0000', '-')
    """
    return NONE if math.isnan(value) else f"{round(value, digits) + 0.0:+.{digits}f}"


def plain(value: float) -> str:
    """Format a value with four decimals; a dash for NaN."""
    return NONE if math.isnan(value) else f"{round(value, 4) + 0.0:.4f}"


def percent(value: float) -> str:
    """Format a share as percent; a dash for NaN.

    >>> percent(0.981), percent(math.nan), percent(0.00004), percent(1.0), percent(0.99999)
    ('98.1%', '-', '<0.1%', '100%', '>99.9%')
    """
    if math.isnan(value):
        return NONE
    if value in (0.0, 1.0):
        return f"{value:.0%}"
    return "<0.1%" if value < 0.0005 else ">99.9%" if value > 0.9995 else f"{value:.1%}"


def whole(value: int | None) -> str:
    """Format a count; a dash for None."""
    return NONE if value is None else f"{value:,}"


def many(value: int | None) -> str:
    """Format a large number with a unit prefix.

    >>> many(22_713_216), many(512_000), many(980), many(2_340_000_000), many(None)
    ('22.7M', '512k', '980', '2.3G', '-')
    """
    if value is None:
        return NONE
    for size, name in ((10**9, "G"), (10**6, "M")):
        if value >= size:
            return f"{value / size:.1f}{name}"
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:,}"


def megabytes(value: int | None) -> str:
    """Format bytes as whole megabytes; a dash for None."""
    return NONE if value is None else f"{value / 1e6:,.0f}"


def seconds(value: float) -> str:
    """Format seconds with three significant digits; a dash for NaN."""
    return NONE if math.isnan(value) else milliseconds(value)
