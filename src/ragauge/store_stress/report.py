"""Report of a stress test: read-backs, performance, failures and charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.text import one_line
from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import (
    ChartRows,
    format_bar_value,
    import_altair,
    join_sentence,
    join_with_and,
    log_range,
    log_ticks,
    make_panel,
    round_digits,
)
from ragauge.output.numbers import count_noun, format_exact, format_milliseconds, format_qps, format_score
from ragauge.output.report import Chart, Report, Section
from ragauge.output.tables import TextTable
from ragauge.output.terminal import render_csv_rows
from ragauge.store_stress.results import IngestionResult, OperationTiming, ReadBack, StoreFailure, StressTest

CHART_HEIGHT_PX = 220
MIN_CHART_POINTS = 3
"""Minimum number of points for a line chart."""


def build_charts(told: StressTest) -> dict[str, Chart]:
    """Build the charts that have enough data."""
    ways = [way for way in told.ways if len([one for one in way.pace if one.milliseconds > 0]) >= MIN_CHART_POINTS]
    if not ways:
        return {}
    alt = import_altair()
    cast = SystemStyles([way.name for way in ways])
    rows: ChartRows = [
        {
            "system": way.name,
            "dash": cast.dashes[way.name],
            "documents": one.documents,
            "ms": round_digits(one.milliseconds, 4),
        }
        for way in ways
        for one in way.pace
        if one.milliseconds > 0
    ]
    times = [row["ms"] for row in rows]
    low, high = log_range(min(times) / 1.3, max(times) * 1.3)
    x = alt.X("documents:Q", title="documents in the store", axis=alt.Axis(format=",d", tickCount=5))
    y = alt.Y(
        "ms:Q",
        title="ms a document (log scale)",
        scale=alt.Scale(type="log", domain=[round_digits(low), round_digits(high)]),
        axis=alt.Axis(values=log_ticks(low, high), format="~g"),
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
        f"{way.name} {format_bar_value(way.pace[0].milliseconds)} at first, "
        f"{format_bar_value(way.pace[-1].milliseconds)} at last"
        for way in ways
    ]
    caption = join_sentence(
        "each point is the median of a stretch of puts, divided by the documents in a put",
        "a line that rises is a store that gets slower as it fills",
    )
    return {
        "pace": Chart(
            "How long putting takes as it fills",
            caption,
            f"Milliseconds a document: {join_with_and(said)}.",
            [make_panel("put", layers, CHART_HEIGHT_PX)],
        )
    }


NO_VALUE = "-"
KILL_PREFIX = "kill"
GOOD_NEIGHBOUR_RECALL = 0.95
"""Neighbour recall below which the summary mentions it."""


def build_report(told: StressTest) -> Report:
    """Build the report of a stress test."""
    shot = f"stress-{''.join(c if c.isalnum() else '-' for c in told.store)}"
    timed = any(way.put is not None for way in told.ways)
    figures = (
        Section("figures", "How it did", "Figures", _performance_note(told), [_performance_table(told)])
        if timed
        else None
    )
    broken = [way.broken for way in told.ways if way.broken is not None]
    parts = [
        *(
            Section(f"broken-{i}", f"How it broke {one.way}", "Broken", "", [_failure_table(one)])
            for i, one in enumerate(broken)
        ),
        *(
            Section(f"unreproduced-{i}", f"Not reproduced {one.way}", "Not reproduced", "", [_failure_table(one)])
            for i, one in enumerate(_unreproduced_failures(told))
        ),
        Section("kept", "What came back", "Came back", _read_back_note(told), _read_back_tables(told)),
        *([figures] if figures is not None else []),
        Section("pace", "How long putting takes as it fills", "Pace", charts=build_charts(told)),
        Section("harms", "What did not come back whole", "Harms", "", _corrupt_document_tables(told), long=True),
        Section("kinds", "What was put in", "Kinds", "", _document_kind_tables(told), long=True),
    ]
    return Report(
        shot,
        f"Stress test of {told.store}",
        [
            f"{count_noun(told.documents, 'document')} of {told.source}",
            count_noun(told.queries, "query", "queries"),
            f"vectors by {told.embedder}",
            *([_engine_name(told.about)] if _engine_name(told.about) else []),
        ],
        summarise_stress_test(told),
        parts,
        notes=list(told.notes),
        circumstances={**told.circumstances, "store": told.about},
    )


def summarise_stress_test(told: StressTest) -> str:
    """Summarise a stress test in a few sentences."""
    good = [way for way in told.ways if way.broken is None]
    sentences = []
    if good:
        ways = " and ".join(way.name for way in good)
        # A kill before any commit proves nothing.
        kills = min(sum(one.expected > 0 for one in way.readings(f"{KILL_PREFIX} ")) for way in good)
        killed = f", and after kill -9 ({count_noun(kills, 'time')} each way)" if kills else ""
        kept = _describe_kept_fields(good[0])
        sentences.append(f"{told.store} gave back {kept}, filled {ways}: at once, reopened{killed}.")
        least = min((way.agreement for way in good if not math.isnan(way.agreement)), default=1.0)
        if least < GOOD_NEIGHBOUR_RECALL:
            sentences.append(f"Its neighbour recall is {least:.1%}.")
    sentences += [
        f"A failure {one.way} while {one.stage} was not reproduced in {count_noun(len(one.tried), 'attempt')}."
        for one in _unreproduced_failures(told)
    ]
    for broken in (way.broken for way in told.ways if way.broken is not None):
        first = one_line(broken.error.strip().partition("\n")[0])
        sentences.append(
            f"{told.store} broke {broken.way} while {broken.stage}, after {count_noun(broken.after, 'document')}: "
            f"{first}"
            + ("" if first.endswith((".", "!", "?")) else ".")
            + (" Not reproduced, but documents were lost or altered." if broken.reproduced is False else "")
        )
    return " ".join(sentences)


def _unreproduced_failures(told: StressTest) -> list[StoreFailure]:
    return [one for way in told.ways for one in way.not_reproduced]


def _describe_kept_fields(way: IngestionResult) -> str:
    keeps = way.read_back[0].keeps if way.read_back else ()
    what = "all documents byte for byte" if len(keeps) == len(("text", "title", "metadata")) else ""
    return what or (f"the {' and '.join(keeps)} of all documents" if keeps else "the ids of all documents (no texts)")


def describe_outcome(told: StressTest) -> str:
    """State in a few words whether a store broke, and in which stages."""
    return _describe_failures([way.broken for way in told.ways if way.broken is not None], _unreproduced_failures(told))


def _describe_failures(broken: Sequence[StoreFailure], unreproduced: Sequence[StoreFailure]) -> str:
    stages = dict.fromkeys(one.stage for one in broken or unreproduced)
    return f"{'broke' if broken else 'not reproduced'}: {', '.join(stages)}" if stages else "held"


def _has_read_back(told: StressTest) -> bool:
    return any(way.read_back for way in told.ways)


def _engine_name(about: Mapping[str, object]) -> str:
    return " ".join(str(about[name]) for name in ("keeper", "version") if about.get(name))


def _failure_table(broken: StoreFailure) -> TextTable:
    """Build a table with a failure, the progress and the shortest failing prefix."""
    lines = broken.error.splitlines() or [""]
    tried = ", ".join(f"{n:,} {'broke' if broke else 'held'}" for n, broke in broken.tried)
    prefix = NO_VALUE if broken.prefix is None else f"{broken.prefix:,}"
    rows = [
        ["while", broken.stage],
        ["what was found" if broken.silent else "its error, verbatim", lines[0]],
        *(["", line] for line in lines[1:]),
        ["documents put in", f"{broken.after:,}"],
        ["the document at hand", broken.document or NO_VALUE],
        ["shortest prefix" if broken.is_shortest or broken.prefix is None else "shortest prefix known", prefix],
        ["prefixes tried", tried or NO_VALUE],
        ["reproduced", NO_VALUE if broken.reproduced is None else "yes" if broken.reproduced else "no"],
        ["every time", NO_VALUE if broken.steady is None else "yes" if broken.steady else "no"],
        *([["doubt", broken.doubt]] if broken.doubt else []),
        *([["reproducer", broken.reproducer]] if broken.reproducer else []),
        *([["to see it again", broken.command]] if broken.command else []),
    ]
    return TextTable("", ["", ""], rows, numbers=False)


def _read_back_note(told: StressTest) -> str:
    if not _has_read_back(told):
        return "It broke before anything could be read back."
    compared = next((one.keeps for way in told.ways for one in way.read_back), ())
    what = ", ".join(("id", *compared)) if compared else "id alone: it keeps no texts"
    return f"Every document was asked for by its id, and compared byte for byte: {what}."


def _read_back_tables(told: StressTest) -> list[TextTable]:
    header = ["", "promised", "whole", "harmed", "beyond"]
    return [
        TextTable(
            way.name,
            header,
            [
                [one.when, f"{one.expected:,}", f"{one.whole:,}", _corruption_counts(one), f"{one.beyond:,}"]
                for one in way.read_back
            ],
            goes=(4,),
        )
        for way in told.ways
        if way.read_back
    ]


def _corruption_counts(reading: ReadBack) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in reading.harmed.items() if n) or NO_VALUE


def _performance_note(told: StressTest) -> str:
    judged = max((way.judged for way in told.ways), default=0)
    means = f" {_judged_queries_note(judged, told)}" if judged else ""
    return f"Times are of single calls, one after the other, in a process of its own.{means}"


def _judged_queries_note(judged: int, told: StressTest) -> str:
    others = told.queries - judged
    if not others:
        return f"Measures are means over {count_noun(judged, 'query', 'queries')}."
    return (
        f"Measures are means over {judged:,} of {told.queries:,} queries: "
        f"the other {others:,} {'has' if others == 1 else 'have'} no relevant document "
        f"among the {count_noun(told.documents, 'document')} put in."
    )


def _performance_table(told: StressTest) -> TextTable:
    """Build a table with one row per value and one column per ingestion mode."""
    names = list(dict.fromkeys(name for way in told.ways for name in way.measures))
    kinds: dict[str, Callable[[IngestionResult], str]] = {
        "documents put in": lambda way: f"{way.documents:,}",
        "documents a second": lambda way: format_qps(way.rate),
        "a put, ms (p50)": lambda way: _latency_cell(way.put, "p50"),
        "a put, ms (p99)": lambda way: _latency_cell(way.put, "p99"),
        "a put, ms (longest)": lambda way: _latency_cell(way.put, "longest"),
        "a commit, ms (mean)": lambda way: _latency_cell(way.commit, "mean"),
        "a query, ms (p50)": lambda way: _latency_cell(way.search, "p50"),
        "a query, ms (p95)": lambda way: _latency_cell(way.search, "p95"),
        "a query, ms (p99)": lambda way: _latency_cell(way.search, "p99"),
        "opened again, s": lambda way: NO_VALUE if math.isnan(way.opening) else f"{way.opening:.2f}",
        "on disk, MB": lambda way: format_megabytes(way.bytes_on_disk),
        **{name: _measure_formatter(name) for name in names},
        "neighbour recall": lambda way: format_score(way.agreement),
        "rankings moved on reopening": lambda way: NO_VALUE if way.moved is None else f"{way.moved:,}",
        "rankings out of order": lambda way: f"{sum(way.disorder.values()):,}" if way.queries else NO_VALUE,
    }
    rows = [[name, *(kind(way) for way in told.ways)] for name, kind in kinds.items()]
    return TextTable("", ["", *(way.name for way in told.ways)], [row for row in rows if set(row[1:]) != {NO_VALUE}])


def _measure_formatter(name: str) -> Callable[[IngestionResult], str]:
    return lambda way: format_score(way.measures.get(name, math.nan), name)


def _latency_cell(timing: OperationTiming | None, which: str) -> str:
    return NO_VALUE if timing is None else format_milliseconds(float(getattr(timing, which)))


def format_megabytes(size: int | None) -> str:
    """Format a size in megabytes with three significant digits; a dash for None.

    >>> format_megabytes(12_345_678), format_megabytes(None)
    ('12.3', '-')
    """
    return NO_VALUE if size is None else format_milliseconds(size / 1e6)


def _corrupt_document_tables(told: StressTest) -> list[TextTable]:
    rows = [
        [one.id, way.name, reading.when, one.what, one.where]
        for way in told.ways
        for reading in way.read_back
        for one in reading.harms
    ]
    return [TextTable("", ["document", "way", "when", "what", "where"], rows, numbers=False)] if rows else []


def _document_kind_tables(told: StressTest) -> list[TextTable]:
    rows = [[name, f"{count:,}"] for name, count in sorted(told.kinds.items(), key=lambda pair: -pair[1])]
    return [TextTable("", ["kind", "documents"], rows)] if rows else []


def build_comparison_report(several: Sequence[StressTest]) -> Report:
    """Build a report that compares stores, one row per store."""
    first = several[0]
    about = [
        f"{count_noun(first.documents, 'document')} of {first.source}",
        count_noun(first.queries, "query", "queries"),
    ]
    held = [one.store for one in several if one.broken is None]
    broke = [one.store for one in several if one.broken is not None]
    sentences = [f"{', '.join(held)} held." if held else "", f"{', '.join(broke)} broke." if broke else ""]
    part = Section("stores", "Stores under stress", "Stores", COMPARISON_LEGEND, [comparison_table(several)])
    return Report("stress", "Stores under stress", about, " ".join(filter(None, sentences)), [part])


COMPARISON_LEGEND = (
    "Documents a second one by one and in batches, then figures of the first way: milliseconds of a put and a query; "
    "documents that came back whole at once, reopened, and after the last kill -9 (least of both ways)."
)


def comparison_table(several: Sequence[StressTest]) -> TextTable:
    """Build the table that compares stores."""
    k = several[0].k
    header = ["store", "1 by 1/s", "batch/s", "put p99", "query p50", "p95", f"recall@{k}", f"ndcg@{k}"]
    header += ["neighbours", "at once", "reopened", "kill -9", "disk MB", "verdict"]
    return TextTable("", header, [_comparison_row(one, k) for one in several], goes=(12, 5, 8, 3, 6, 9, 4, 2, 1))


def _comparison_row(told: StressTest, k: int) -> list[str]:
    ways = {way.name: way for way in told.ways}
    one, many = ways.get("one by one"), ways.get("in batches")
    main = next((way for way in told.ways if way.search is not None), told.ways[0])
    return [
        told.store,
        NO_VALUE if one is None else format_qps(one.rate),
        NO_VALUE if many is None else format_qps(many.rate),
        NO_VALUE if one is None else _latency_cell(one.put, "p99"),
        _latency_cell(main.search, "p50"),
        _latency_cell(main.search, "p95"),
        format_score(main.measures.get(f"recall@{k}", math.nan)),
        format_score(main.measures.get(f"ndcg@{k}", math.nan)),
        format_score(main.agreement),
        _worst_read_back(told, "at once"),
        _worst_read_back(told, "reopened"),
        _worst_read_back(told, KILL_PREFIX, last=True),
        format_megabytes(main.bytes_on_disk),
        describe_outcome(told),
    ]


def _worst_read_back(told: StressTest, beginning: str, *, last: bool = False) -> str:
    """Format the number of intact documents in the worst ingestion mode.

    The text is `all` if no document is corrupt.
    """
    found = [way.readings(beginning) for way in told.ways]
    known = [min((some[-1:] if last else some), key=lambda one: one.whole - one.expected) for some in found if some]
    if not known:
        return NO_VALUE
    worst = min(known, key=lambda one: one.whole - one.expected)
    return "all" if all(one.sound for one in known) else f"{worst.whole:,}"


def render_csv(told: StressTest) -> str:
    """Render a CSV with one row per ingestion mode and value.

    The columns are `store,way,figure,value`.
    """
    rows = []
    for way in told.ways:
        facts: dict[str, float | None] = {"documents": float(way.documents), "documents_per_second": way.rate}
        for name, timing in (("put", way.put), ("commit", way.commit), ("search", way.search)):
            for field, value in (timing._asdict() if timing is not None else EMPTY_MAPPING).items():
                facts[f"{name}_{field}" + ("" if field in ("n", "seconds") else "_ms")] = float(value)
        facts |= {"opening_seconds": way.opening, "bytes_on_disk": way.bytes_on_disk, **way.measures}
        facts |= {"judged_queries": float(way.judged), "neighbours": way.agreement, "moved": way.moved}
        facts |= {f"whole, {one.when}": float(one.whole) for one in way.read_back}
        facts |= {f"promised, {one.when}": float(one.expected) for one in way.read_back}
        rows += [[told.store, way.name, name, format_exact(value)] for name, value in facts.items()]
        broken = [] if way.broken is None else [way.broken]
        rows.append([told.store, way.name, "verdict", _describe_failures(broken, way.not_reproduced)])
        if way.broken is not None:
            rows.append([told.store, way.name, "error", way.broken.error])
            rows.append([told.store, way.name, "shortest_prefix", format_exact(way.broken.prefix)])
    return render_csv_rows(["store", "way", "figure", "value"], rows)
