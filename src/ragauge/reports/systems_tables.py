"""Build and render the tables of an overview of systems."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ragauge.comparison.report import STARS_LEGEND, describe_test
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.run_dates import describe_run_dates
from ragauge.core.stages import STAGES
from ragauge.core.summaries import Mean
from ragauge.core.text import one_line
from ragauge.output.numbers import format_interval, format_number, format_score, pluralise
from ragauge.output.terminal import best_mean, borderless_table, terminal_cell
from ragauge.output.text_report import TextTable, fit_columns, render_table, shorten_names
from ragauge.stats.comparisons import Comparison
from ragauge.stats.repeated_trials import Variation
from ragauge.store_benchmarks.report_text import DOUBT_MARK

SAME_RANKINGS, SAME_VALUES = "same rankings", "same values"
MAX_TRIAL_VARIANCE_SHARE = 0.1
"""Maximum share of trials in the variance of a mean for the number of trials to be sufficient."""
TRIALS_TITLE = "What chance does"


def has_varying_trials(overview: Overview) -> bool:
    """Return whether any system has trials that differ."""
    return any(one.unstable for entry in overview.entries.values() for one in entry.variation.values())


def build_trials_rows(overview: Overview, measure: str) -> TextTable:
    """Build rows of variance components for every system with several trials.

    They also contain the range of the trials' means and the number of trials that is sufficient.
    """
    header = [f"{measure} over trials", "trials", "least", "most", "unstable"]
    header += [f"of {overview.asked[1]}", "of trials", "rest", "error", "by chance", "enough"]
    rows = []
    for name, entry in overview.entries.items():
        found, often = entry.variation.get(measure), _count_trials(entry)
        if found is not None and found.unstable:
            rows.append([name, str(found.trials), *_variation_cells(entry, measure, found)])
        elif often > 1:
            mean = format_score(entry.means[measure].value, measure) if measure in entry.means else "-"
            alike = SAME_RANKINGS if len(entry.scores) == 1 else SAME_VALUES
            rows.append([name, str(often), mean, mean, alike, *[""] * (len(header) - 5)])
    return TextTable("", header, rows, goes=(3, 2, 7, 6, 5))


def _variation_cells(entry: SystemSummary, measure: str, found: Variation) -> list[str]:
    means = [one.means[measure] for one in entry.scores if measure in one.means]
    known = [one for one in means if not math.isnan(one)] or [math.nan]
    enough = found.enough(MAX_TRIAL_VARIANCE_SHARE)
    return [
        *(format_score(end, measure) for end in (min(known), max(known))),
        _format_percent(found.unstable / found.n),
        *map(_format_percent, found.shares),
        f"{found.error:.4f}",
        _format_percent(found.by_trials),
        "-" if enough is None else f"{enough:,}",
    ]


def _count_trials(entry: SystemSummary) -> int:
    """Return the number of trials per query.

    A run with identical rankings is scored only once.
    """
    planned = (entry.manifest.get("plan") or {}).get("repeats")
    return max(len(entry.scores), planned if isinstance(planned, int) else 0)


def _format_percent(share: float) -> str:
    """Format a share in percent.

    >>> _format_percent(0.123), _format_percent(0.004), _format_percent(0.0), _format_percent(math.nan)
    ('12%', '<1%', '0%', '-')
    """
    if math.isnan(share):
        return "-"
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def describe_trials(overview: Overview) -> list[str]:
    """Describe the values of the table and their limits; empty if no trials differ."""
    return (
        [*describe_trials_columns(overview), *describe_missing_trial_values(overview)]
        if has_varying_trials(overview)
        else []
    )


def describe_trials_columns(overview: Overview) -> list[str]:
    """Describe the columns of the table."""
    one, many = overview.asked
    below = any(found.below for entry in overview.entries.values() for found in entry.variation.values())
    return [
        "over trials: least and most: the lowest and the highest mean of a trial; "
        f"unstable: {many} whose value is not the same in every trial",
        f"of {many}, of trials, rest: where values vary: from {one} to {one}, from trial to trial for all {many} "
        f"alike, or for each {one} by itself" + " (an estimate below 0 counts 0)" * below,
        "error: the standard error of the mean; by chance: how much of its square goes away with endless trials; "
        f"enough: the trials after which that is {MAX_TRIAL_VARIANCE_SHARE:.0%} or less; `ragauge reliability` says "
        f"pass@k",
    ]


def describe_missing_trial_values(overview: Overview) -> list[str]:
    """Describe how many queries lack a value in some trial, if any."""
    every = [found.left_out for entry in overview.entries.values() for found in entry.variation.values()]
    left = max(every, default=0)
    return [f"up to {left:,} {overview.asked[1]} have no value in some trial, and are left out there"] if left else []


HeaderAndRows = tuple[list[str], list[list[str]]]
"""Header and rows. The first column contains names."""
UNKNOWN_MEAN = Mean(math.nan, 0)
LATENCY_STATISTICS = ("p50", "p90", "p95", "p99", "mean")
COST_TITLES = {"cold_ms": "cold ms", "build_seconds": "build s"}
CACHED_BUILD_TEXT = "cached"
"""Shown instead of a build time if vectors of documents came from the cache."""
DROPPABLE_SPEED_COLUMNS = ("mean", "p90", "cold ms", "p99", "build s", "rerank", "embed", "retrieve")
"""Columns of the speed table that a narrow terminal drops, in this order."""


def render_systems_tables(overview: Overview, width: int) -> tuple[list[Table], list[str]]:
    """Render tables of quality, trials and speed for a terminal.

    Also returns the titles of the columns that do not fit.
    """
    quality, left = render_quality_table(overview, width)
    found = [quality]
    if has_varying_trials(overview):
        trials, more = render_table(build_trials_rows(overview, overview.first), width)
        found.append(trials)
        left += more
    header, rows = build_speed_rows(overview)
    if rows:
        goes = [header.index(title) for title in DROPPABLE_SPEED_COLUMNS if title in header]
        speed, more = _render_speed_table(header, rows, width, goes)
        found.append(speed)
        left += more
    return found, left


def describe_systems_tables(overview: Overview) -> list[str]:
    """Describe how the numbers in the tables were computed."""
    size = [] if overview.documents_known is None else [pluralise(overview.documents_known, "document")]
    size += [pluralise(count_queries(overview), *overview.asked)] if count_queries(overview) else []
    size += [f"convention {overview.convention}"] if overview.convention else []
    lines = [f"{overview.dataset}: {', '.join(size)}" if overview.dataset else ", ".join(size)] if size else []
    lines += [f"judged by {overview.judge}"] if overview.judge else []
    lines += describe_run_dates(overview.answers)
    lines += [f"{line}; {STARS_LEGEND}" for line in describe_p_values(overview)]
    if overview.compared is not None or has_intervals(overview):
        lines.append(f"in brackets: a {100 * overview.confidence:g}% interval")
    return [*lines, *describe_trials(overview), *describe_timings(overview)]


def describe_p_values(overview: Overview) -> list[str]:
    """Describe how p-values were computed; empty without comparisons."""
    if overview.compared is None:
        return []
    against = f"{overview.first} against {overview.baseline}, " if overview.baseline is not None else ""
    return [f"p: {against}{describe_test(overview.compared)}"]


def describe_timings(overview: Overview) -> list[str]:
    """Describe how timings were measured; empty without timings."""
    if all(entry.speed is None for entry in overview.entries.values()):
        return []
    stages = _stages_with_median(overview, every_stage=True)
    medians = ", stages by their median" * bool(stages) + " (rerank: also fusing)" * ("rerank" in stages)
    harness = find_first_manifest(overview).get("harness_microseconds")
    told = (
        f"; the harness itself takes {harness:.0f} microseconds per query" if isinstance(harness, int | float) else ""
    )
    return [f"times in milliseconds{medians}{told}", *describe_unreliable_timings(overview)]


def describe_unreliable_timings(overview: Overview) -> list[str]:
    """Explain the mark of unreliable timings in one line for all systems."""
    found = [f"{name}: {'; '.join(entry.doubts)}" for name, entry in overview.entries.items() if entry.doubts]
    return [f"{DOUBT_MARK} marks unreliable times ({' · '.join(found)}); run again on an idle machine"] if found else []


def find_first_manifest(overview: Overview) -> Mapping[str, Any]:
    """Return the manifest of the first system that has one, else an empty mapping."""
    return next((entry.manifest for entry in overview.entries.values() if entry.manifest), {})


def count_queries(overview: Overview) -> int:
    """Return the number of queries."""
    scored = {query for entry in overview.entries.values() for one in entry.scores for query in one.queries}
    if scored:
        return len(scored)
    counts = [mean.n for entry in overview.entries.values() for mean in entry.means.values()]
    return max(counts, default=len(overview.queries))


def build_quality_rows(overview: Overview, *, interval: bool = False) -> HeaderAndRows:
    """Build rows of means and of differences from the baseline.

    The difference is that of the first measure. It has a p-value and the numbers of better and worse
    queries. `interval` adds its confidence interval.
    """
    counts = {
        overview.entries[name].means.get(m, UNKNOWN_MEAN).n for name in overview.systems for m in overview.measures
    }
    header = ["system", *overview.measures, *(["n"] if len(counts) > 1 else [])]
    gaps = {name: overview.difference(name) for name in overview.systems}
    if any(gaps.values()):
        header += [f"vs {overview.baseline}", "     p", "better/worse"]
    rows = []
    for name, entry in overview.entries.items():
        row = [name, *(format_score(entry.means.get(m, UNKNOWN_MEAN).value, m) for m in overview.measures)]
        if len(counts) > 1:
            row.append(format_query_count([entry.means.get(m, UNKNOWN_MEAN) for m in overview.measures]))
        gap = gaps[name]
        if gap is not None:
            beside = f" {format_interval(*gap.ci, 'signed')}" if interval and not math.isnan(gap.ci[0]) else ""
            row += [
                format_number(gap.difference, "signed") + beside,
                format_p_with_stars(gap),
                f"{gap.wins}/{gap.losses}",
            ]
        rows.append(row + [""] * (len(header) - len(row)))
    return header, rows


def build_mean_rows(overview: Overview) -> HeaderAndRows:
    """Build rows of means with confidence intervals, if known, and numbers of queries."""
    rows = []
    for name, entry in overview.entries.items():
        means = [entry.means.get(m, UNKNOWN_MEAN) for m in overview.measures]
        texts = [_format_mean(mean, m) for mean, m in zip(means, overview.measures, strict=True)]
        rows.append([name, *texts, format_query_count(means)])
    return ["system", *overview.measures, "n"], rows


def _format_mean(mean: Mean, measure: str) -> str:
    text = format_score(mean.value, measure)
    return text if math.isnan(mean.low) else f"{text} [{mean.low:.4f}, {mean.high:.4f}]"


def describe_resampled_units(overview: Overview) -> str:
    """Describe what the intervals of means are resampled over."""
    many = overview.asked[1]
    return f"{many}, and over trials where they differ" if has_varying_trials(overview) else many


def has_intervals(overview: Overview) -> bool:
    """Return whether any mean has a confidence interval."""
    means = [entry.means.get(m, UNKNOWN_MEAN) for entry in overview.entries.values() for m in overview.measures]
    return any(not math.isnan(mean.low) for mean in means)


def find_query_count(mean: Mean) -> int | None:
    """Return the number of queries of a mean.

    Returns None if a result file states only the mean.
    """
    return None if mean.n == 0 and not math.isnan(mean.value) else mean.n


def format_query_count(means: Sequence[Mean]) -> str:
    """Format the number of queries of some means, or its range.

    >>> (format_query_count([Mean(0.5, 5), Mean(0.7, 5)]), format_query_count([Mean(0.5, 3), Mean(0.7, 5)]),
    ...  format_query_count([Mean(0.5, 0)]))
    ('5', '3-5', '-')
    """
    counts = [n for n in map(find_query_count, means) if n is not None]
    if not counts:
        return "-"
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}-{max(counts)}"


def format_p_with_stars(gap: Comparison) -> str:
    """Format the corrected p-value with stars.

    Left-aligned in a column, the numbers are aligned.
    """
    found = gap.stars.replace("ns", "")
    return f"{format_number(gap.p_corrected, 'p'):>6} {found}".rstrip()


def find_best_mean(overview: Overview, measure: str) -> float:
    """Return the best mean of a measure; NaN for a single system or for a count."""
    if len(overview.entries) < 2 or measure.startswith("num_"):
        return math.nan
    values = [entry.means.get(measure, UNKNOWN_MEAN).value for entry in overview.entries.values()]
    return best_mean(values, lower=measure in overview.lower_is_better)


def render_quality_table(overview: Overview, width: int) -> tuple[Table, list[str]]:
    """Render means and differences from the baseline for a terminal.

    Also returns the titles of the columns that do not fit.
    """
    header, rows = build_quality_rows(overview)
    measures = len(overview.measures)
    compared = header[-1] == "better/worse" and len(header) > measures + 1
    goes = [len(header) - 1] if compared else []
    kept = fit_columns(header, rows, width, [*goes, *range(measures, 1, -1)])
    best = [find_best_mean(overview, m) for m in overview.measures]
    table = borderless_table([header[i] for i in kept])
    if compared:
        table.columns[kept.index(len(header) - 2)].justify = "left"
    names = shorten_names(header, rows, kept, width)
    for short, row, (name, entry) in zip(names, rows, overview.entries.items(), strict=True):
        gap = overview.difference(name)
        sure = gap is not None and overview.compared is not None and overview.compared.sure(gap)
        cells = [terminal_cell(short)]
        for i in kept[1:]:
            if i <= measures:
                bold = entry.means.get(overview.measures[i - 1], UNKNOWN_MEAN).value == best[i - 1]
            else:
                bold = compared and i == len(header) - 2 and sure
            cells.append(Text(row[i], style="bold" if bold else ""))
        table.add_row(*cells)
    return table, _dropped_titles(header, kept)


def _dropped_titles(header: Sequence[str], kept: Sequence[int]) -> list[str]:
    return [title.strip() for i, title in enumerate(header) if i not in kept]


def build_speed_rows(overview: Overview, *, every_stage: bool = False) -> HeaderAndRows:
    """Build rows of stage medians, total percentiles, throughput and costs."""
    timed = {name: entry for name, entry in overview.entries.items() if entry.speed is not None}
    stages = _stages_with_median(overview, every_stage=every_stage)
    totals = [entry.speed.stages["total"] for entry in timed.values() if entry.speed and "total" in entry.speed.stages]
    titles = {"p50": "p50 ms"}
    figures = [f for f in LATENCY_STATISTICS if any(not math.isnan(getattr(one, f)) for one in totals)] or ["p50"]
    if "p50" not in figures:
        titles[figures[0]] = f"{figures[0]} ms"
    others = list(dict.fromkeys(cost for entry in timed.values() for cost in entry.costs))
    costs = [cost for cost in COST_TITLES if cost in others]
    if every_stage:
        costs += [cost for cost in others if cost not in costs]
    failed = any(count_failures(entry) for entry in timed.values())
    unknown = any(count_unknown_ids(entry) for entry in timed.values())
    rated = any(entry.speed is not None and not math.isnan(entry.speed.throughput) for entry in timed.values())
    # Files of other tools state QPS as 1000 / mean ms. A run has queries per second of wall-clock time.
    measured = any(entry.run is not None and entry.run.timings is not None for entry in timed.values())
    rates = ["throughput" if measured else "QPS"] if rated else []
    header = ["system", *stages, *(titles.get(figure, figure) for figure in figures), *rates]
    header += [
        *(COST_TITLES.get(cost, cost) for cost in costs),
        *(["failed"] if failed else []),
        *(["unknown ids"] if unknown else []),
    ]
    rows = []
    for name, entry in timed.items():
        if entry.speed is None:
            continue
        known, total = entry.speed.stages, entry.speed.stages.get("total")
        times = [format_number(known[s].p50, "ms") if s in known else "" for s in stages]
        times += [format_number(None if total is None else getattr(total, figure), "ms") for figure in figures]
        times += [format_number(entry.speed.throughput, "qps")] if rated else []
        row = [name, *(f"{one}{DOUBT_MARK}" if entry.doubts and one[:1].isdigit() else one for one in times)]
        row += [_format_cost(entry, cost) for cost in costs]
        row += [
            *([str(count_failures(entry))] if failed else []),
            *([f"{count_unknown_ids(entry):,}"] if unknown else []),
        ]
        rows.append(row)
    return header, rows


def _stages_with_median(overview: Overview, *, every_stage: bool = False) -> list[str]:
    """Return the stages with a known median, in order of execution."""
    known = [entry.speed.stages for entry in overview.entries.values() if entry.speed is not None]
    marked = dict.fromkeys(stage for one in known for stage in one if not math.isnan(one[stage].p50))
    others = [stage for stage in marked if stage not in (*STAGES, "total")] if every_stage else []
    return [*(stage for stage in STAGES if stage in marked), *others]


def count_failures(entry: SystemSummary) -> int:
    """Return the number of query executions that failed or timed out."""
    return len(entry.failed) if entry.speed is None else entry.speed.failed + entry.speed.timed_out


def count_unknown_ids(entry: SystemSummary) -> int:
    """Return the number of returned ids that are not in the corpus.

    Returns 0 if it was not recorded.
    """
    counts = entry.manifest.get("unknown_ids")
    return int(counts.get("unknown") or 0) if isinstance(counts, Mapping) else 0


def is_cached_build(entry: SystemSummary, cost: str) -> bool:
    """Return whether a cost is the time of a build whose vectors came from the cache."""
    return cost == "build_seconds" and entry.is_build_cached


def _format_cost(entry: SystemSummary, cost: str) -> str:
    value = entry.costs.get(cost, math.nan)
    if is_cached_build(entry, cost):
        return CACHED_BUILD_TEXT
    if math.isnan(value):
        return "-"
    if cost.endswith("_ms"):
        return format_number(value, "ms")
    return f"{value:,.0f}" if cost.endswith("_bytes") else f"{value:.2f}"


def build_strata_rows(overview: Overview, tag: str) -> HeaderAndRows:
    """Build rows of the mean of the first measure by stratum and system."""
    rows = [
        [
            one.value,
            str(one.n),
            *(format_score(one.means.get(name, UNKNOWN_MEAN).value, overview.first) for name in overview.systems),
        ]
        for one in overview.strata[tag]
    ]
    return [f"{overview.first} by {tag}", "n", *overview.systems], rows


def render_strata_table(overview: Overview, tag: str, width: int) -> Table:
    """Render the means by stratum, the best of each in bold.

    On a narrow terminal, the table is transposed, or has one row per mean.
    """
    header, rows = build_strata_rows(overview, tag)
    lower = overview.first in overview.lower_is_better
    styles = []
    for one in overview.strata[tag]:
        values = [one.means.get(name, UNKNOWN_MEAN).value for name in overview.systems]
        best = best_mean(values, lower=lower) if len(values) > 1 else math.nan
        styles.append(["bold" if value == best else "" for value in values])
    marked = [
        [terminal_cell(text, style) for text, style in zip(row[2:], mine, strict=True)]
        for row, mine in zip(rows, styles, strict=True)
    ]
    if _fits_width(header, rows, width):
        table = borderless_table(header)
        for row, cells in zip(rows, marked, strict=True):
            table.add_row(terminal_cell(row[0]), terminal_cell(row[1], "dim"), *cells)
        return table
    turned = [header[0], *(f"{row[0]} ({row[1]})" for row in rows)]
    if _fits_width(turned, [[name, *(row[i] for row in rows)] for i, name in enumerate(header[2:], 2)], width):
        table = borderless_table(turned)
        for i, name in enumerate(overview.systems):
            table.add_row(terminal_cell(name), *(cells[i] for cells in marked))
        return table
    table = borderless_table([header[0], "system", "mean", "n"])
    for row, cells in zip(rows, marked, strict=True):
        for i, name in enumerate(overview.systems):
            table.add_row(
                terminal_cell("" if i else row[0]),
                terminal_cell(name),
                cells[i],
                terminal_cell("" if i else row[1], "dim"),
            )
    return table


def _fits_width(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    return sum(max(len(line[i]) for line in (header, *rows)) + 2 for i in range(len(header))) - 2 <= width


def _render_speed_table(
    header: list[str], rows: list[list[str]], width: int, goes: Sequence[int]
) -> tuple[Table, list[str]]:
    kept = fit_columns(header, rows, width, goes)
    table = borderless_table([header[i] for i in kept])
    for short, row in zip(shorten_names(header, rows, kept, width), rows, strict=True):
        table.add_row(terminal_cell(short), *(Text(one_line(row[i])) for i in kept[1:]))
    return table, _dropped_titles(header, kept)
