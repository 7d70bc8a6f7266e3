"""Report the same systems on several datasets: tables, Markdown, page and CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rich.table import Table
from rich.text import Text

from ragauge.comparison.charts import draw_dots
from ragauge.comparison.report import STARS_LEGEND, describe_test
from ragauge.comparison.results import Overview, OverviewsByDataset, compute_mean_ranks, compute_ranks, list_systems
from ragauge.core.summaries import Mean
from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import format_bar_value, join_sentence
from ragauge.output.csv import render_csv_rows
from ragauge.output.markdown import details_block, escape_markdown, render_markdown_table
from ragauge.output.numbers import format_exact, format_score, pluralise
from ragauge.output.report import Chart
from ragauge.output.terminal import best_mean, borderless_table, terminal_cell
from ragauge.output.text_report import TextReport, TextSection, TextTable, fit_columns
from ragauge.reports.systems_tables import (
    UNKNOWN_MEAN,
    count_queries,
    find_best_mean,
    find_first_manifest,
    find_query_count,
)

CHART_HEIGHT_PX = 240


def draw_dataset_chart(overviews: Mapping[str, Overview], measure: str, systems: Sequence[str]) -> dict[str, Chart]:
    """Draw a dot with interval for each system and dataset; empty without values."""
    groups = {name: _finite_means(one, measure) for name, one in overviews.items()}
    known = {name: means for name, means in groups.items() if means}
    if not known:
        return {}
    firsts = list(overviews.values())
    cast = SystemStyles(systems, next((one.baseline for one in firsts if one.baseline in systems), None))
    sure = any(math.isfinite(mean.low) for means in known.values() for mean in means.values())
    lower = any(measure in one.lower_is_better for one in firsts)
    caption = join_sentence(
        f"a mark is a system's mean {measure} on a dataset" + " (lower is better)" * lower,
        f"lines are intervals of {firsts[0].confidence:.0%}" if sure else "",
        "datasets differ in how hard they are: compare systems within each",
    )
    said = "; ".join(
        f"{name}: {', '.join(f'{system} {format_bar_value(mean.value)}' for system, mean in means.items())}"
        for name, means in known.items()
    )
    one = draw_dots("", known, measure, cast, CHART_HEIGHT_PX, key=cast.names, wide=True)
    return {"datasets": Chart(f"{measure} on each dataset", caption, f"Mean {measure}. {said}.", [one])}


def _finite_means(overview: Overview, measure: str) -> dict[str, Mean]:
    means = {name: entry.means[measure] for name, entry in overview.entries.items() if measure in entry.means}
    return {name: mean for name, mean in means.items() if math.isfinite(mean.value)}


MAX_TERMINAL_MEASURES = 2
"""Number of measures with their own table on a terminal."""
MEAN_RANK_TITLE = "mean rank"


@dataclass(frozen=True)
class ExperimentSetTable:
    """Table of one measure for every system and dataset, as text."""

    measure: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Rows of system name, means with stars, and mean rank."""
    strong: frozenset[tuple[int, int]]
    """`(row, column)` positions of the best values."""


def list_measures(overviews: OverviewsByDataset) -> list[str]:
    """Return all measures, starting with one that every dataset has, if any.

    The rest follows the order of the dataset with the most measures.
    """
    fullest = sorted(overviews.values(), key=lambda one: -len(one.measures))
    every = list(dict.fromkeys(measure for one in fullest for measure in one.measures))
    shared = [measure for measure in every if all(measure in one.measures for one in fullest)]
    return list(dict.fromkeys([*shared[:1], *every]))


def shorten_dataset_names(names: Sequence[str]) -> list[str]:
    """Return dataset names without options, if they stay unique.

    >>> (shorten_dataset_names(["synthetic:graph(documents=500)", "pydocs"]), shorten_dataset_names(["a(seed=0)",
    ...  "a(seed=1)"]))
    (['synthetic:graph', 'pydocs'], ['a(seed=0)', 'a(seed=1)'])
    """
    cut = [name.partition("(")[0] for name in names]
    return cut if len(set(cut)) == len(cut) and all(cut) else list(names)


def build_measure_table(overviews: OverviewsByDataset, measure: str) -> ExperimentSetTable:
    """Build a table of systems by datasets with significance stars and mean ranks.

    The best value of each column is marked.
    """
    names = list_systems(overviews)
    columns: list[list[str]] = []
    strong: set[tuple[int, int]] = set()
    for place, one in enumerate(overviews.values(), 1):
        best = find_best_mean(one, measure)
        strong |= {(row, place) for row, name in enumerate(names) if _system_mean(one, name, measure) == best}
        columns.append(_dataset_column(one, names, measure))
    ranked = compute_mean_ranks(overviews, measure)
    if ranked:
        best = min(ranked.values())
        strong |= {(row, len(columns) + 1) for row, name in enumerate(names) if ranked[name] == best}
        columns.append([f"{ranked[name]:.2f}" for name in names])
    header = [measure, *shorten_dataset_names(list(overviews)), *([MEAN_RANK_TITLE] if ranked else [])]
    rows = [[name, *(column[row] for column in columns)] for row, name in enumerate(names)]
    return ExperimentSetTable(measure, header, rows, frozenset(strong))


def _system_mean(overview: Overview, system: str, measure: str) -> float:
    entry = overview.entries.get(system)
    return math.nan if entry is None else entry.means.get(measure, UNKNOWN_MEAN).value


def _dataset_column(overview: Overview, names: Sequence[str], measure: str) -> list[str]:
    """Return the means of a dataset with their stars."""
    gaps = [overview.difference(name, measure) for name in names]
    means = [format_score(_system_mean(overview, name, measure), measure) for name in names]
    stars = ["" if gap is None else gap.stars.replace("ns", "") for gap in gaps]
    return [f"{mean} {star}".rstrip() for mean, star in zip(means, stars, strict=True)]


def render_dataset_tables(overviews: OverviewsByDataset, width: int) -> tuple[list[Table], list[str]]:
    """Render the tables of the first measures, and list the columns that do not fit."""
    found: list[Table] = []
    left: dict[str, None] = {}
    for measure in list_measures(overviews)[:MAX_TERMINAL_MEASURES]:
        one = build_measure_table(overviews, measure)
        goes = range(len(overviews), 1, -1)
        kept = fit_columns(one.header, one.rows, width, list(goes))
        table = borderless_table([one.header[i] for i in kept])
        for column in table.columns[1:]:
            column.justify = "left"  # Left-aligned, so that stars after a number do not move it.
        wide = [max(len(cells[i].partition(" ")[0]) for cells in one.rows) for i in range(len(one.header))]
        for row, cells in enumerate(one.rows):
            table.add_row(
                terminal_cell(cells[0]), *(_align_number(cells[i], wide[i], (row, i) in one.strong) for i in kept[1:])
            )
        left.update(dict.fromkeys(title for i, title in enumerate(one.header) if i not in kept))
        found.append(table)
    return found, list(left)


def _align_number(text: str, wide: int, best: bool) -> Text:
    figure, blank, stars = text.partition(" ")
    return Text(f"{figure:>{wide}}{blank}{stars}", style="bold" if best else "")


def summarise_experiments(overviews: OverviewsByDataset) -> str:
    """Summarise which system has the best mean rank by the first measure."""
    first = list_measures(overviews)[0]
    ranked = compute_mean_ranks(overviews, first)
    several = pluralise(len(overviews), "dataset")
    if not ranked:
        return f"{pluralise(len(list_systems(overviews)), 'system')} on {several}."
    best = best_mean(list(ranked.values()), lower=True)
    names = [name for name, rank in ranked.items() if rank == best]
    wins = [_best_system(one, first) for one in overviews.values()]
    told = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} the best mean rank by {first}, {best:.2f}"
    alone = f"; it is first on {wins.count(names[0])} of {several}" if len(names) == 1 else f" over {several}"
    return f"{told}{alone}.{_describe_significance(overviews, first)}"


def _describe_significance(overviews: OverviewsByDataset, measure: str) -> str:
    """Describe how many differences from the baseline are significant."""
    known = [one for one in overviews.values() if one.compared is not None and one.baseline is not None]
    gaps = [(one.compared, gap) for one in known for name in one.systems if (gap := one.difference(name, measure))]
    sure = sum(compared is not None and compared.sure(gap) for compared, gap in gaps)
    many = f"{sure or 'None'} of {pluralise(len(gaps), 'difference')} from {known[0].baseline}" if gaps else ""
    return f" {many} {'is' if sure < 2 else 'are'} more than chance gives." if gaps else ""


def _best_system(overview: Overview, measure: str) -> str:
    return next(iter(overview.ranked(measure)), "")


def describe_stars_and_ranks(overviews: OverviewsByDataset) -> list[str]:
    """Describe the stars and ranks, if there are any."""
    first = list_measures(overviews)[0]
    known = next((one for one in overviews.values() if one.compared is not None and one.baseline is not None), None)
    told = []
    if known is not None and known.compared is not None:
        told.append(f"stars: against {known.baseline} on each dataset, {describe_test(known.compared)}; {STARS_LEGEND}")
    if compute_mean_ranks(overviews, first):
        told.append(
            f"{MEAN_RANK_TITLE}: over the datasets on which every system has a value; 1 is the best, and nothing is "
            f"tested"
        )
    return told


def render_experiments_markdown(
    title: str, overviews: OverviewsByDataset, failures: Mapping[str, str], places: Mapping[str, str]
) -> str:
    """Render the report as Markdown.

    `places` are the folders of the datasets, relative to it.
    """
    lines = [f"# {escape_markdown(title)}", "", escape_markdown(summarise_experiments(overviews)), ""]
    for place, measure in enumerate(list_measures(overviews)):
        one = build_measure_table(overviews, measure)
        table = render_markdown_table(one.header, one.rows, strong=one.strong)
        lines += [*(table if place < MAX_TERMINAL_MEASURES else details_block(measure, table)), ""]
    lines += [f"- {escape_markdown(line)}" for line in describe_stars_and_ranks(overviews)]
    lines += ["", "## Datasets", ""]
    lines += [f"- [{escape_markdown(name)}]({places[name]}/report.md)" for name in overviews]
    lines += [f"- {escape_markdown(name)} could not be run: {escape_markdown(why)}" for name, why in failures.items()]
    return "\n".join([*lines, ""])


def build_experiments_report(
    title: str, overviews: OverviewsByDataset, failures: Mapping[str, str], places: Mapping[str, str]
) -> TextReport:
    """Build the report for a page. A bullet marks the best value of a column."""
    first, *others = list_measures(overviews)
    said = [*describe_stars_and_ranks(overviews), "• is the best of a column"]
    text = " ".join(f"{line[:1].upper()}{line[1:]}." for line in said)
    named = dict(zip(shorten_dataset_names(list(overviews)), overviews.values(), strict=True))

    def chart() -> Mapping[str, Chart]:
        return draw_dataset_chart(named, first, list_systems(overviews))

    parts = [TextSection("first", first, first, text, [_marked_measure_table(overviews, first)], chart)]
    parts += [
        TextSection("second", one, one, "", [_marked_measure_table(overviews, one)])
        for one in others[: MAX_TERMINAL_MEASURES - 1]
    ]
    rest = [_marked_measure_table(overviews, one) for one in others[MAX_TERMINAL_MEASURES - 1 :]]
    if rest:
        parts.append(TextSection("others", "Other measures", "Others", "", rest, long=True))
    parts.append(TextSection("datasets", "Datasets", "Datasets", "", [_datasets_table(overviews, failures, places)]))
    told = [pluralise(len(overviews), "dataset"), pluralise(len(list_systems(overviews)), "system")]
    return TextReport(
        "study", title, told, summarise_experiments(overviews), parts, circumstances=_shared_provenance(overviews)
    )


def _datasets_table(overviews: OverviewsByDataset, failures: Mapping[str, str], places: Mapping[str, str]) -> TextTable:
    """Build a table of the datasets with links to their reports.

    It includes datasets that failed.
    """
    rows = [[name, ", ".join(_dataset_sizes(one))] for name, one in overviews.items()]
    rows += [[name, f"could not be run: {why}"] for name, why in failures.items()]
    links = [*(f"{quote(places[name])}/report.html" for name in overviews), *("" for _ in failures)]
    return TextTable("Datasets", ["dataset", "what it has"], rows, numbers=False, links=links)


def _dataset_sizes(overview: Overview) -> list[str]:
    documents = overview.documents_known
    size = [] if documents is None else [pluralise(documents, "document")]
    return [*size, pluralise(count_queries(overview), *overview.asked)]


def _marked_measure_table(overviews: OverviewsByDataset, measure: str) -> TextTable:
    one = build_measure_table(overviews, measure)
    cells = [
        [f"•{text}" if (row, i) in one.strong else text for i, text in enumerate(texts)]
        for row, texts in enumerate(one.rows)
    ]
    return TextTable(measure, ["system", *one.header[1:]], cells)


def _shared_provenance(overviews: OverviewsByDataset) -> dict[str, Any]:
    """Return the provenance that the runs on all datasets share."""
    manifests = [find_first_manifest(one) for one in overviews.values()]
    first = manifests[0]
    shared = {
        key: first[key]
        for key in ("plan", "python", "versions", "machine")
        if first.get(key) and all(one.get(key) == first[key] for one in manifests)
    }
    conventions = list(dict.fromkeys(one.convention for one in overviews.values() if one.convention))
    made = max((one.made for one in overviews.values()), default="")
    return {"made": made, "convention": ", ".join(conventions), "systems": _describe_systems(overviews), **shared}


def _describe_systems(overviews: OverviewsByDataset) -> list[str]:
    """Return system names, with descriptions that differ from the names."""
    found = dict.fromkeys(list_systems(overviews), "")
    for one in overviews.values():
        for name, entry in one.entries.items():
            found[name] = found[name] or str((entry.manifest.get("system") or {}).get("description") or "")
    return [name if what in ("", name) else f"{name}: {what}" for name, what in found.items()]


def experiments_to_csv(overviews: OverviewsByDataset) -> str:
    """Format all means as CSV with one row per dataset, system and measure.

    Cells are empty if there is no value or no baseline.
    """
    header = ["dataset", "system", "measure", "value", "low", "high", "n", "difference", "p_corrected", "rank"]
    rows = []
    for dataset, one in overviews.items():
        for measure in one.measures:
            means = {name: entry.means.get(measure, UNKNOWN_MEAN) for name, entry in one.entries.items()}
            known = {name: mean.value for name, mean in means.items() if not math.isnan(mean.value)}
            places = compute_ranks(list(known.values()), lower=measure in one.lower_is_better)
            ranked = dict(zip(known, places, strict=True))
            for name, mean in means.items():
                gap = one.difference(name, measure)
                tested = ["", ""] if gap is None else [format_exact(gap.difference), format_exact(gap.p_corrected)]
                figures = [
                    format_exact(mean.value),
                    format_exact(mean.low),
                    format_exact(mean.high),
                    format_exact(find_query_count(mean)),
                ]
                rows.append([dataset, name, measure, *figures, *tested, format_exact(ranked.get(name))])
    return render_csv_rows(header, rows)
