"""Report of a stress test: read-backs, performance, failures and charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ragauge.core.documents import NOTHING
from ragauge.core.text import one_line
from ragauge.output.chart_style import Cast
from ragauge.output.charts import ChartRows, altair, figure, format_bar_label, listed, panel, powers, sentence, ticked
from ragauge.output.numbers import count_noun, milliseconds, number, rate, shown
from ragauge.output.report import Account, Drawing, Part
from ragauge.output.tables import Rows
from ragauge.output.terminal import csv_text
from ragauge.store_stress.results import Broken, Ordeal, ReadBack, Timing, Way

HEIGHT = 220
FEWEST = 3
"""Minimum number of points for a line chart."""


def drawn(told: Ordeal) -> dict[str, Drawing]:
    """Build the charts that have enough data."""
    ways = [way for way in told.ways if len([one for one in way.pace if one.milliseconds > 0]) >= FEWEST]
    if not ways:
        return {}
    alt = altair()
    cast = Cast([way.name for way in ways])
    rows: ChartRows = [
        {
            "system": way.name,
            "dash": cast.dashes[way.name],
            "documents": one.documents,
            "ms": figure(one.milliseconds, 4),
        }
        for way in ways
        for one in way.pace
        if one.milliseconds > 0
    ]
    times = [row["ms"] for row in rows]
    low, high = ticked(min(times) / 1.3, max(times) * 1.3)
    x = alt.X("documents:Q", title="documents in the store", axis=alt.Axis(format=",d", tickCount=5))
    y = alt.Y(
        "ms:Q",
        title="ms a document (log scale)",
        scale=alt.Scale(type="log", domain=[figure(low), figure(high)]),
        axis=alt.Axis(values=powers(low, high), format="~g"),
    )
    tips = [
        alt.Tooltip("system:N", title="way"),
        alt.Tooltip("documents:Q", title="documents", format=","),
        alt.Tooltip("ms:Q", title="ms a document", format=".4~g"),
    ]
    names = [way.name for way in ways]
    chart = alt.Chart(alt.Data(values=rows))
    colour = cast.colour(alt, names)
    layers = [
        chart.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=colour, strokeDash=cast.dash(alt)),
        chart.mark_point(filled=True, size=25, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
    ]
    said = [
        f"{way.name} {format_bar_label(way.pace[0].milliseconds)} at first, {format_bar_label(way.pace[-1].milliseconds)} at last"
        for way in ways
    ]
    caption = sentence(
        "each point is the median of a stretch of puts, divided by the documents in a put",
        "a line that rises is a store that gets slower as it fills",
    )
    return {
        "pace": Drawing(
            "How long putting takes as it fills",
            caption,
            f"Milliseconds a document: {listed(said)}.",
            [panel("put", layers, HEIGHT)],
        )
    }


NONE = "-"
KILL = "kill"
GOOD = 0.95
"""Neighbour recall below which the summary mentions it."""


def account(told: Ordeal) -> Account:
    """Build the report of a stress test."""
    shot = f"stress-{''.join(c if c.isalnum() else '-' for c in told.store)}"
    timed = any(way.put is not None for way in told.ways)
    figures = Part("figures", "How it did", "Figures", _about_figures(told), [_figures(told)]) if timed else None
    broken = [way.broken for way in told.ways if way.broken is not None]
    parts = [
        *(Part(f"broken-{i}", f"How it broke {one.way}", "Broken", "", [_broken(one)]) for i, one in enumerate(broken)),
        *(
            Part(f"unreproduced-{i}", f"Not reproduced {one.way}", "Not reproduced", "", [_broken(one)])
            for i, one in enumerate(_unreproduced(told))
        ),
        Part("kept", "What came back", "Came back", _about_readings(told), _readings(told)),
        *([figures] if figures is not None else []),
        Part("pace", "How long putting takes as it fills", "Pace", charts=drawn(told)),
        Part("harms", "What did not come back whole", "Harms", "", _harms(told), long=True),
        Part("kinds", "What was put in", "Kinds", "", _kinds(told), long=True),
    ]
    return Account(
        shot,
        f"Stress test of {told.store}",
        [
            f"{count_noun(told.documents, 'document')} of {told.source}",
            count_noun(told.queries, "query", "queries"),
            f"vectors by {told.embedder}",
            *([_engine(told.about)] if _engine(told.about) else []),
        ],
        headline(told),
        parts,
        notes=list(told.notes),
        circumstances={**told.circumstances, "store": told.about},
    )


def headline(told: Ordeal) -> str:
    """Summarise a stress test in a few sentences."""
    good = [way for way in told.ways if way.broken is None]
    sentences = []
    if good:
        ways = " and ".join(way.name for way in good)
        # A kill before any commit proves nothing.
        kills = min(sum(one.expected > 0 for one in way.readings(f"{KILL} ")) for way in good)
        killed = f", and after kill -9 ({count_noun(kills, 'time')} each way)" if kills else ""
        kept = _kept(good[0])
        sentences.append(f"{told.store} gave back {kept}, filled {ways}: at once, reopened{killed}.")
        least = min((way.agreement for way in good if not math.isnan(way.agreement)), default=1.0)
        if least < GOOD:
            sentences.append(f"Its neighbour recall is {least:.1%}.")
    sentences += [
        f"A failure {one.way} while {one.stage} was not reproduced in {count_noun(len(one.tried), 'attempt')}."
        for one in _unreproduced(told)
    ]
    for broken in (way.broken for way in told.ways if way.broken is not None):
        first = one_line(broken.error.strip().partition("\n")[0])
        sentences.append(
            f"{told.store} broke {broken.way} while {broken.stage}, after {count_noun(broken.after, 'document')}: {first}"
            + ("" if first.endswith((".", "!", "?")) else ".")
            + (" Not reproduced, but documents were lost or altered." if broken.reproduced is False else "")
        )
    return " ".join(sentences)


def _unreproduced(told: Ordeal) -> list[Broken]:
    return [one for way in told.ways for one in way.not_reproduced]


def _kept(way: Way) -> str:
    keeps = way.read_back[0].keeps if way.read_back else ()
    what = "all documents byte for byte" if len(keeps) == len(("text", "title", "metadata")) else ""
    return what or (f"the {' and '.join(keeps)} of all documents" if keeps else "the ids of all documents (no texts)")


def verdict(told: Ordeal) -> str:
    """State in a few words whether a store broke, and in which stages."""
    return _verdict([way.broken for way in told.ways if way.broken is not None], _unreproduced(told))


def _verdict(broken: Sequence[Broken], unreproduced: Sequence[Broken]) -> str:
    stages = dict.fromkeys(one.stage for one in broken or unreproduced)
    return f"{'broke' if broken else 'not reproduced'}: {', '.join(stages)}" if stages else "held"


def _any(told: Ordeal) -> bool:
    return any(way.read_back for way in told.ways)


def _engine(about: Mapping[str, object]) -> str:
    return " ".join(str(about[name]) for name in ("keeper", "version") if about.get(name))


def _broken(broken: Broken) -> Rows:
    """Build a table with a failure, the progress and the shortest failing prefix."""
    lines = broken.error.splitlines() or [""]
    tried = ", ".join(f"{n:,} {'broke' if broke else 'held'}" for n, broke in broken.tried)
    prefix = NONE if broken.prefix is None else f"{broken.prefix:,}"
    rows = [
        ["while", broken.stage],
        ["what was found" if broken.silent else "its error, verbatim", lines[0]],
        *(["", line] for line in lines[1:]),
        ["documents put in", f"{broken.after:,}"],
        ["the document at hand", broken.document or NONE],
        ["shortest prefix" if broken.is_shortest or broken.prefix is None else "shortest prefix known", prefix],
        ["prefixes tried", tried or NONE],
        ["reproduced", NONE if broken.reproduced is None else "yes" if broken.reproduced else "no"],
        ["every time", NONE if broken.steady is None else "yes" if broken.steady else "no"],
        *([["doubt", broken.doubt]] if broken.doubt else []),
        *([["reproducer", broken.reproducer]] if broken.reproducer else []),
        *([["to see it again", broken.command]] if broken.command else []),
    ]
    return Rows("", ["", ""], rows, numbers=False)


def _about_readings(told: Ordeal) -> str:
    if not _any(told):
        return "It broke before anything could be read back."
    compared = next((one.keeps for way in told.ways for one in way.read_back), ())
    what = ", ".join(("id", *compared)) if compared else "id alone: it keeps no texts"
    return f"Every document was asked for by its id, and compared byte for byte: {what}."


def _readings(told: Ordeal) -> list[Rows]:
    header = ["", "promised", "whole", "harmed", "beyond"]
    return [
        Rows(
            way.name,
            header,
            [
                [one.when, f"{one.expected:,}", f"{one.whole:,}", _harmed(one), f"{one.beyond:,}"]
                for one in way.read_back
            ],
            goes=(4,),
        )
        for way in told.ways
        if way.read_back
    ]


def _harmed(reading: ReadBack) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in reading.harmed.items() if n) or NONE


def _about_figures(told: Ordeal) -> str:
    judged = max((way.judged for way in told.ways), default=0)
    means = f" {_about_judged(judged, told)}" if judged else ""
    return f"Times are of single calls, one after the other, in a process of its own.{means}"


def _about_judged(judged: int, told: Ordeal) -> str:
    others = told.queries - judged
    if not others:
        return f"Measures are means over {count_noun(judged, 'query', 'queries')}."
    return (
        f"Measures are means over {judged:,} of {told.queries:,} queries: "
        f"the other {others:,} {'has' if others == 1 else 'have'} no relevant document "
        f"among the {count_noun(told.documents, 'document')} put in."
    )


def _figures(told: Ordeal) -> Rows:
    """Build a table with one row per value and one column per ingestion mode."""
    names = list(dict.fromkeys(name for way in told.ways for name in way.measures))
    kinds: dict[str, Callable[[Way], str]] = {
        "documents put in": lambda way: f"{way.documents:,}",
        "documents a second": lambda way: rate(way.rate),
        "a put, ms (p50)": lambda way: _ms(way.put, "p50"),
        "a put, ms (p99)": lambda way: _ms(way.put, "p99"),
        "a put, ms (longest)": lambda way: _ms(way.put, "longest"),
        "a commit, ms (mean)": lambda way: _ms(way.commit, "mean"),
        "a query, ms (p50)": lambda way: _ms(way.search, "p50"),
        "a query, ms (p95)": lambda way: _ms(way.search, "p95"),
        "a query, ms (p99)": lambda way: _ms(way.search, "p99"),
        "opened again, s": lambda way: NONE if math.isnan(way.opening) else f"{way.opening:.2f}",
        "on disk, MB": lambda way: megabytes(way.bytes_on_disk),
        **{name: _measure(name) for name in names},
        "neighbour recall": lambda way: shown(way.agreement),
        "rankings moved on reopening": lambda way: NONE if way.moved is None else f"{way.moved:,}",
        "rankings out of order": lambda way: f"{sum(way.disorder.values()):,}" if way.queries else NONE,
    }
    rows = [[name, *(kind(way) for way in told.ways)] for name, kind in kinds.items()]
    return Rows("", ["", *(way.name for way in told.ways)], [row for row in rows if set(row[1:]) != {NONE}])


def _measure(name: str) -> Callable[[Way], str]:
    return lambda way: shown(way.measures.get(name, math.nan), name)


def _ms(timing: Timing | None, which: str) -> str:
    return NONE if timing is None else milliseconds(float(getattr(timing, which)))


def megabytes(size: int | None) -> str:
    """Format a size in megabytes with three significant digits; a dash for None.

    >>> megabytes(12_345_678), megabytes(None)
    ('12.3', '-')
    """
    return NONE if size is None else milliseconds(size / 1e6)


def _harms(told: Ordeal) -> list[Rows]:
    rows = [
        [one.id, way.name, reading.when, one.what, one.where]
        for way in told.ways
        for reading in way.read_back
        for one in reading.harms
    ]
    return [Rows("", ["document", "way", "when", "what", "where"], rows, numbers=False)] if rows else []


def _kinds(told: Ordeal) -> list[Rows]:
    rows = [[name, f"{count:,}"] for name, count in sorted(told.kinds.items(), key=lambda pair: -pair[1])]
    return [Rows("", ["kind", "documents"], rows)] if rows else []


def compared(several: Sequence[Ordeal]) -> Account:
    """Build a report that compares stores, one row per store."""
    first = several[0]
    about = [
        f"{count_noun(first.documents, 'document')} of {first.source}",
        count_noun(first.queries, "query", "queries"),
    ]
    held = [one.store for one in several if one.broken is None]
    broke = [one.store for one in several if one.broken is not None]
    sentences = [f"{', '.join(held)} held." if held else "", f"{', '.join(broke)} broke." if broke else ""]
    part = Part("stores", "Stores under stress", "Stores", LEGEND, [table(several)])
    return Account("stress", "Stores under stress", about, " ".join(filter(None, sentences)), [part])


LEGEND = (
    "Documents a second one by one and in batches, then figures of the first way: milliseconds of a put and a query; "
    "documents that came back whole at once, reopened, and after the last kill -9 (least of both ways)."
)


def table(several: Sequence[Ordeal]) -> Rows:
    """Build the table that compares stores."""
    k = several[0].k
    header = ["store", "1 by 1/s", "batch/s", "put p99", "query p50", "p95", f"recall@{k}", f"ndcg@{k}"]
    header += ["neighbours", "at once", "reopened", "kill -9", "disk MB", "verdict"]
    return Rows("", header, [_row(one, k) for one in several], goes=(12, 5, 8, 3, 6, 9, 4, 2, 1))


def _row(told: Ordeal, k: int) -> list[str]:
    ways = {way.name: way for way in told.ways}
    one, many = ways.get("one by one"), ways.get("in batches")
    main = next((way for way in told.ways if way.search is not None), told.ways[0])
    return [
        told.store,
        NONE if one is None else rate(one.rate),
        NONE if many is None else rate(many.rate),
        NONE if one is None else _ms(one.put, "p99"),
        _ms(main.search, "p50"),
        _ms(main.search, "p95"),
        shown(main.measures.get(f"recall@{k}", math.nan)),
        shown(main.measures.get(f"ndcg@{k}", math.nan)),
        shown(main.agreement),
        _least(told, "at once"),
        _least(told, "reopened"),
        _least(told, KILL, last=True),
        megabytes(main.bytes_on_disk),
        verdict(told),
    ]


def _least(told: Ordeal, beginning: str, *, last: bool = False) -> str:
    """Format the number of intact documents in the worst ingestion mode.

    The text is `all` if no document is corrupt.
    """
    found = [way.readings(beginning) for way in told.ways]
    known = [min((some[-1:] if last else some), key=lambda one: one.whole - one.expected) for some in found if some]
    if not known:
        return NONE
    worst = min(known, key=lambda one: one.whole - one.expected)
    return "all" if all(one.sound for one in known) else f"{worst.whole:,}"


def csv(told: Ordeal) -> str:
    """Render a CSV with one row per ingestion mode and value.

    The columns are `store,way,figure,value`.
    """
    rows = []
    for way in told.ways:
        facts: dict[str, float | None] = {"documents": float(way.documents), "documents_per_second": way.rate}
        for name, timing in (("put", way.put), ("commit", way.commit), ("search", way.search)):
            for field, value in (timing._asdict() if timing is not None else NOTHING).items():
                facts[f"{name}_{field}" + ("" if field in ("n", "seconds") else "_ms")] = float(value)
        facts |= {"opening_seconds": way.opening, "bytes_on_disk": way.bytes_on_disk, **way.measures}
        facts |= {"judged_queries": float(way.judged), "neighbours": way.agreement, "moved": way.moved}
        facts |= {f"whole, {one.when}": float(one.whole) for one in way.read_back}
        facts |= {f"promised, {one.when}": float(one.expected) for one in way.read_back}
        rows += [[told.store, way.name, name, number(value)] for name, value in facts.items()]
        broken = [] if way.broken is None else [way.broken]
        rows.append([told.store, way.name, "verdict", _verdict(broken, way.not_reproduced)])
        if way.broken is not None:
            rows.append([told.store, way.name, "error", way.broken.error])
            rows.append([told.store, way.name, "shortest_prefix", number(way.broken.prefix)])
    return csv_text(["store", "way", "figure", "value"], rows)
