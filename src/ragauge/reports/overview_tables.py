"""Tables of an overview: quality, differences, trials, groups of queries, cutoffs, failures and descriptions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ragauge.comparison.report import (
    assign_letters,
    describe_best,
    describe_marks,
    describe_means,
    describe_test,
    find_detectable,
    find_significant_wins,
    to_paper_name,
)
from ragauge.comparison.results import MeasureCurve, Overview, SystemSummary
from ragauge.core.summaries import Mean
from ragauge.evaluation.indicators import find_measure
from ragauge.output.numbers import format_interval, format_number
from ragauge.output.tables import DOUBT_MARK, Cell, Column, Row, Table
from ragauge.stats.comparisons import Comparison
from ragauge.stats.repeated_trials import Variation

UNKNOWN_MEAN = Mean(math.nan, 0)
MAX_MEASURES = 4
"""Number of measures in the table of systems with intervals. The others have a separate table."""
MAX_FAILURES_LISTED = 200
MAX_OPEN_ROWS = 10
"""Maximum number of failed queries in a table that is open at first."""
SAME_RANKINGS, SAME_VALUES = "same rankings", "same values"
MAX_TRIAL_VARIANCE_SHARE = 0.1
"""Maximum share of trials in the variance of a mean for the number of trials to be sufficient."""
STARS_NOTE = "*** p < 0.001, ** p < 0.01, * p < 0.05"


def find_measure_style(measure: str) -> str:
    """Return the number style of a measure: `count` or `score`."""
    parsed = find_measure(measure)
    return "count" if parsed is not None and parsed.is_count else "score"


def measure_column(overview: Overview, measure: str, *, title: str = "", drop_order: int = 0) -> Column:
    """Build the column of a measure. Counts have no direction."""
    style = find_measure_style(measure)
    better: Literal[-1, 0, 1] = 0 if style == "count" else -1 if measure in overview.lower_is_better else 1
    return Column(title or measure, style, better, drop_order, key=measure)


def describe_level(overview: Overview) -> str:
    """Return the name of the intervals: `95% CI`."""
    return f"{100 * overview.confidence:g}% CI"


def find_query_count(mean: Mean) -> int | None:
    """Return the number of queries of a mean; None if a result file states only the mean."""
    return None if mean.n == 0 and not math.isnan(mean.value) else mean.n


def count_queries(overview: Overview) -> int:
    scored = {query for entry in overview.entries.values() for scores in entry.scores for query in scores.queries}
    if scored:
        return len(scored)
    counts = [mean.n for entry in overview.entries.values() for mean in entry.means.values()]
    return max(counts, default=len(overview.queries))


def list_means(overview: Overview, measure: str) -> list[Mean]:
    """Return the mean of every system; unknown means are NaN."""
    return [entry.means.get(measure, UNKNOWN_MEAN) for entry in overview.entries.values()]


def has_intervals(overview: Overview) -> bool:
    """Return whether any mean has a confidence interval."""
    return any(not math.isnan(mean.low) for measure in overview.measures for mean in list_means(overview, measure))


def has_varying_trials(overview: Overview) -> bool:
    """Return whether any system has trials that differ."""
    return any(variation.unstable for entry in overview.entries.values() for variation in entry.variation.values())


def build_quality_table(overview: Overview, *, intervals: bool = False) -> Table:
    """Build the table of means, with the difference from the baseline by the first measure.

    With `intervals`, means have their interval and the stars of their difference from the baseline, and only the first
    `MAX_MEASURES` measures are included.
    """
    measures = overview.measures[: MAX_MEASURES if intervals else None]
    has_differences = any(overview.difference(name) for name in overview.systems)
    counts = [_counts_cell([entry.means.get(m, UNKNOWN_MEAN) for m in measures]) for entry in _entries(overview)]
    shows_counts = len({mean.n for measure in overview.measures for mean in list_means(overview, measure)}) > 1
    last = len(measures)
    columns = [
        Column("system", "name"),
        *(
            measure_column(overview, measure, drop_order=0 if i == 0 else last - i + 1)
            for i, measure in enumerate(measures)
        ),
    ]
    columns += [Column("n", "count", drop_order=1)] if shows_counts else []
    if has_differences:
        columns += [Column(f"vs {overview.baseline}", "signed"), Column("p", "p")]
    columns += [Column("better/worse", "count", drop_order=1)] if has_differences and not intervals else []
    columns += [Column(f"{statistic} ms", "ms")] if (statistic := _known_statistic(overview)) and intervals else []
    rows: list[Row] = []
    for (name, entry), n in zip(overview.entries.items(), counts, strict=True):
        cells = [_mean_cell(overview, entry, measure, intervals=intervals) for measure in measures]
        system = Cell(name, detail="baseline" if intervals and name == overview.baseline else "")
        row: list[Cell] = [system, *cells, *([n] if shows_counts else [])]
        row += _difference_cells(overview, overview.difference(name), intervals=intervals) if has_differences else ()
        if intervals:
            row = [*(row[:-1] if has_differences else row), *([_latency_cell(entry, statistic)] if statistic else [])]
        rows.append(row)
    return Table("systems", columns, rows, note=_describe_quality(overview, intervals=intervals)).mark_best()


def build_other_measures_table(overview: Overview) -> Table:
    """Build the table of the measures that the table of systems with intervals leaves out; empty if there are none."""
    measures = overview.measures[MAX_MEASURES:]
    columns = [Column("system", "name"), *(measure_column(overview, measure) for measure in measures)]
    rows: list[Row] = [
        [name, *(_mean_cell(overview, entry, measure, intervals=True) for measure in measures)]
        for name, entry in overview.entries.items()
    ]
    return Table("measures", columns, rows if measures else [], "Other measures", collapsed=True).mark_best()


def _entries(overview: Overview) -> list[SystemSummary]:
    return list(overview.entries.values())


def _known_statistic(overview: Overview) -> str:
    """Return the known statistic of the total latency: p95, else the mean, else ""."""
    totals = [entry.speed.stages.get("total") for entry in overview.entries.values() if entry.speed is not None]
    statistics = (name for name in ("p95", "mean") if any(t and not math.isnan(getattr(t, name)) for t in totals))
    return next(statistics, "")


def _latency_cell(entry: SystemSummary, statistic: str) -> Cell:
    total = None if entry.speed is None else entry.speed.stages.get("total")
    value = math.nan if total is None else float(getattr(total, statistic))
    return Cell(value, mark=DOUBT_MARK if entry.doubts and not math.isnan(value) else "")


def _mean_cell(overview: Overview, entry: SystemSummary, measure: str, *, intervals: bool) -> Cell:
    mean = entry.means.get(measure, UNKNOWN_MEAN)
    difference = overview.difference(entry.name, measure) if intervals else None
    detail = format_interval(mean.low, mean.high, "statistic") if intervals and not math.isnan(mean.low) else ""
    if difference is None:
        return Cell(mean.value, detail=detail)
    tooltip = f"{difference.difference:+.4f} vs {difference.baseline}, p {format_number(difference.p_corrected, 'p')}"
    return Cell(mean.value, detail=detail, stars=significance_mark(difference), tooltip=tooltip)


def significance_mark(row: Comparison) -> str:
    """Return the stars of a significant difference, else an empty string."""
    return row.stars.strip("ns")


def _counts_cell(means: Sequence[Mean]) -> Cell:
    counts = [n for n in map(find_query_count, means) if n is not None]
    if not counts:
        return Cell(None)
    fewest, most = min(counts), max(counts)
    return Cell(fewest, text="" if fewest == most else f"{fewest}-{most}")


def _difference_cells(overview: Overview, row: Comparison | None, *, intervals: bool = True) -> list[Cell]:
    """Return the cells of a difference, its p-value, and the numbers of better and worse queries."""
    if row is None:
        return [Cell(""), Cell(""), Cell("")]
    is_significant = overview.compared is not None and overview.compared.is_significant(row)
    interval = "" if not intervals or math.isnan(row.ci[0]) else format_interval(*row.ci, "signed")
    return [
        Cell(row.difference, detail=interval),
        Cell(row.p_corrected, stars=significance_mark(row), significant=is_significant or None),
        Cell(row.wins, text=f"{row.wins}/{row.losses}"),
    ]


def _describe_quality(overview: Overview, *, intervals: bool) -> str:
    sentences = []
    if intervals and has_intervals(overview):
        over = f"{overview.nouns[1]} and trials" if has_varying_trials(overview) else overview.nouns[1]
        sentences.append(f"{describe_level(overview)} in brackets (BCa bootstrap over {over}).")
    sentences += describe_differences(overview)
    if intervals and len(overview.measures) > MAX_MEASURES:
        sentences.append(f"Other measures: {', '.join(overview.measures[MAX_MEASURES:])}.")
    return " ".join(sentences)


def describe_differences(overview: Overview) -> list[str]:
    """Describe the differences from the baseline and their p-values; empty without comparisons."""
    if overview.compared is None:
        return []
    test = describe_test(overview.compared)
    if overview.baseline is None:
        return [f"p: {test}; {STARS_NOTE}."]
    return [
        f"vs {overview.baseline}: difference in {overview.first} with its {describe_level(overview)}; "
        f"p: {test}; {STARS_NOTE}."
    ]


def build_differences_table(overview: Overview, rows: Sequence[Comparison], *, by_stratum: bool = False) -> Table:
    """Build a table with one row per comparison, or per comparison and group of queries."""
    pairs = {(row.system, row.baseline) for row in rows}
    columns = [Column("group" if by_stratum else "measure", "name")]
    columns += [] if by_stratum and len(pairs) == 1 else [Column("system", "name"), Column("compared with", "name")]
    columns += [
        Column("n", "count"),
        Column("mean of the other", "score"),
        Column("mean", "score"),
        Column("difference", "signed"),
        Column("p", "p"),
        Column("better/worse/equal", "count"),
        Column("detectable", "score"),
    ]
    if len(pairs) == 1:
        ((system, baseline),) = pairs
        titles = {"mean of the other": baseline, "mean": system}
        columns = [column._replace(title=titles.get(column.title, column.title)) for column in columns]
    groups = [(tag, stratum.value) for tag, strata in overview.strata.items() for stratum in strata]
    group_titles = {f"{tag}={value}": f"{tag}: {value}" for tag, value in groups}
    table_rows: list[Row] = []
    for row in rows:
        difference, p, _ = _difference_cells(overview, row)
        lead = Cell(group_titles.get(row.stratum, row.stratum) if by_stratum else row.measure)
        names = [] if by_stratum and len(pairs) == 1 else [Cell(row.system), Cell(row.baseline)]
        wins = Cell(row.wins, text=f"{row.wins}/{row.losses}/{row.ties}")
        table_rows.append(
            [lead, *names, row.n, row.means[0], row.means[1], difference, p, wins, Cell(find_detectable(row))]
        )
    return Table("differences", columns, table_rows)


def build_strata_table(overview: Overview, tag: str) -> Table:
    """Build the means of the first measure by group of queries: one row per system, one column per group."""
    strata = overview.strata[tag]
    groups = [
        measure_column(overview, overview.first, title=f"{stratum.value} ({stratum.n})", drop_order=len(strata) - i)
        for i, stratum in enumerate(strata)
    ]
    rows: list[Row] = [
        [name, *(Cell(stratum.means.get(name, UNKNOWN_MEAN).value) for stratum in strata)] for name in overview.systems
    ]
    return Table(f"strata-{tag}", [Column("system", "name"), *groups], rows, f"{overview.first} by {tag}").mark_best()


def build_trials_table(overview: Overview, measure: str, *, collapsed: bool = False) -> Table:
    """Build the table of variance components for every system with several trials."""
    style = find_measure_style(measure)
    columns = [
        Column(f"{measure} over trials", "name"),
        Column("trials", "count"),
        Column("min", style, drop_order=2),
        Column("max", style, drop_order=1),
        Column("unstable", "share"),
        Column(f"of {overview.nouns[1]}", "share", drop_order=5),
        Column("of trials", "share", drop_order=4),
        Column("rest", "share", drop_order=3),
        Column("error", "score"),
        Column("by trials", "share"),
        Column("enough", "count"),
    ]
    rows: list[Row] = []
    for name, entry in overview.entries.items():
        variation, n_trials = entry.variation.get(measure), _count_trials(entry)
        if variation is not None and variation.unstable:
            rows.append([name, variation.trials, *_variation_cells(entry, measure, variation)])
        elif n_trials > 1:
            mean = entry.means.get(measure, UNKNOWN_MEAN).value
            equal = Cell(0.0, text=SAME_RANKINGS if len(entry.scores) == 1 else SAME_VALUES)
            rows.append([name, n_trials, mean, mean, equal, *[Cell("")] * (len(columns) - 5)])
    return Table(f"trials-{measure}", columns, rows, measure, collapsed=collapsed)


def _variation_cells(entry: SystemSummary, measure: str, variation: Variation) -> list[Cell]:
    means = [scores.means[measure] for scores in entry.scores if measure in scores.means]
    known_means = [mean for mean in means if not math.isnan(mean)] or [math.nan]
    values = [
        min(known_means),
        max(known_means),
        variation.unstable / variation.n,
        *variation.shares,
        variation.error,
        variation.by_trials,
    ]
    return [*map(Cell, values), Cell(variation.enough(MAX_TRIAL_VARIANCE_SHARE))]


def _count_trials(entry: SystemSummary) -> int:
    """Return the number of trials per query. A run with identical rankings is scored only once."""
    planned = (entry.manifest.get("plan") or {}).get("repeats")
    return max(len(entry.scores), planned if isinstance(planned, int) else 0)


def describe_trials(overview: Overview) -> list[str]:
    """Describe the table of trials and its limits; empty if no trials differ."""
    if not has_varying_trials(overview):
        return []
    singular, nouns = overview.nouns
    negative = any(variation.below for entry in overview.entries.values() for variation in entry.variation.values())
    return [
        f"min, max: lowest and highest mean of a trial; unstable: share of {nouns} whose value differs between trials",
        f"of {nouns}, of trials, rest: shares of the variance between {nouns}, between trials, and of each {singular} "
        "between trials" + " (negative estimates are set to 0)" * negative,
        "error: standard error of the mean; by trials: share of its square that more trials would remove; "
        f"enough: number of trials after which that share is at most {MAX_TRIAL_VARIANCE_SHARE:.0%}",
        *describe_missing_trial_values(overview),
    ]


def describe_missing_trial_values(overview: Overview) -> list[str]:
    """Describe how many queries lack a value in some trial, if any."""
    n_left_out = max(
        (variation.left_out for entry in _entries(overview) for variation in entry.variation.values()), default=0
    )
    return (
        [f"up to {n_left_out:,} {overview.nouns[1]} without a value in some trial are left out"] if n_left_out else []
    )


def build_curve_table(curve: MeasureCurve) -> Table:
    """Build the table of a measure over k, with one row per k and one column per system."""
    columns = [Column(f"{curve.measure} at k", "count"), *(Column(name, "score", 1) for name in curve.values)]
    rows: list[Row] = [[k, *(values[i] for values in curve.values.values())] for i, k in enumerate(curve.ks)]
    return Table(f"curve-{curve.measure}", columns, rows, f"{curve.measure} over k", collapsed=True)


def build_recommendations_table(curves: Sequence[MeasureCurve]) -> Table:
    """Build the table of the smallest sufficient k by system and measure."""
    columns = [
        Column("system", "name"),
        Column("measure", "name"),
        Column("sufficient k", "count"),
        Column("value", "score"),
        Column("tolerated loss", "number"),
    ]
    rows: list[Row] = []
    for curve in curves:
        for name, smallest_k in curve.enough.items():
            value = next((row["value"] for row in smallest_k.table if row["k"] == smallest_k.k), math.nan)
            rows.append(
                [
                    name,
                    curve.measure,
                    Cell(smallest_k.k, text="" if smallest_k.k else "undecided" if smallest_k.undecided else "none"),
                    value,
                    smallest_k.tolerance,
                ]
            )
    return Table("sufficient-k", columns, rows, "Smallest sufficient k", collapsed=True)


def build_failures_table(overview: Overview) -> Table:
    """Build the table of failed queries, at most `MAX_FAILURES_LISTED`."""
    columns = [Column("system", "name"), Column("query", "name"), Column("text"), Column("error")]
    rows: list[Row] = [
        [name, query, overview.queries.get(query, ""), why]
        for name, entry in overview.entries.items()
        for query, why in entry.failed.items()
    ]
    listed = rows[:MAX_FAILURES_LISTED]
    return Table("failures", columns, listed, "Failed queries", collapsed=len(listed) > MAX_OPEN_ROWS)


def build_descriptions_table(overview: Overview) -> Table:
    """Build the table of systems with their descriptions and the dates of their results; empty if all are unknown."""
    columns = [Column("system", "name"), Column("description"), Column("results created"), Column("documents hash")]
    rows: list[Row] = []
    for name, entry in overview.entries.items():
        date = entry.run_date
        rows.append(
            [
                name,
                str((entry.manifest.get("system") or {}).get("description") or ""),
                "" if date is None else date.made + ", reused" * date.reused,
                str((entry.manifest.get("dataset") or {}).get("documents_hash") or "")[:12],
            ]
        )
    is_known = any(any(row[1:]) for row in rows)
    return Table("descriptions", columns, rows if is_known else [], "Systems")


def build_paper_table(overview: Overview) -> Table:
    """Build the table for a paper: names of measures as in papers, best and second best, significance marks, p95."""
    comparisons = overview.compared
    letters = assign_letters(comparisons.systems) if comparisons is not None and comparisons.baseline is None else {}
    stars = (
        {}
        if comparisons is None or comparisons.baseline is None
        else {(r.system, r.measure): significance_mark(r) for r in comparisons}
    )
    beaten = {} if comparisons is None or comparisons.baseline is not None else find_significant_wins(comparisons)
    p95 = {
        name: entry.speed.stages["total"].p95
        for name, entry in overview.entries.items()
        if entry.speed is not None and "total" in entry.speed.stages
    }
    has_p95 = any(not math.isnan(value) for value in p95.values())
    columns = [Column("System", "name")]
    for measure in overview.measures:
        columns.append(measure_column(overview, measure, title=to_paper_name(measure)))
    columns += [Column("p95 (ms)", "ms")] if has_p95 else []
    rows: list[Row] = [
        [
            f"{letters[name]} {name}" if name in letters else name,
            *(
                Cell(
                    entry.means.get(measure, UNKNOWN_MEAN).value,
                    stars=stars.get((name, measure), ""),
                    letters=[letters[loser] for loser in beaten.get((measure, name), ())],
                )
                for measure in overview.measures
            ),
            *([p95.get(name)] if has_p95 else []),
        ]
        for name, entry in overview.entries.items()
    ]
    table = Table("paper", columns, rows, ". ".join(_describe_paper_table(overview)))
    return table.mark_best()


def _describe_paper_table(overview: Overview) -> list[str]:
    counts = sorted({mean.n for measure in overview.measures for mean in list_means(overview, measure) if mean.n})
    parts = [describe_means(counts, overview.dataset, overview.convention), *describe_best(len(overview.systems))]
    return [*parts, *([] if overview.compared is None else [describe_marks(overview.compared)])]
