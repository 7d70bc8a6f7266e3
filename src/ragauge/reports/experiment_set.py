"""Report of the same systems on several datasets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from ragauge.comparison.charts import draw_dots
from ragauge.comparison.report import describe_test
from ragauge.comparison.results import (
    DatasetOverviews,
    Overview,
    compute_mean_ranks,
    compute_ranks,
    list_systems,
)
from ragauge.core.findings import Note, merge_notes
from ragauge.core.summaries import Mean
from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import format_bar_value, join_sentence
from ragauge.output.numbers import pluralise
from ragauge.output.report import (
    ALL_FORMATS,
    FILES_ONLY,
    PAGE_ONLY,
    Chart,
    Charts,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.tables import Cell, Column, Row, Table
from ragauge.output.terminal import best_mean
from ragauge.reports.overview_tables import (
    STARS_NOTE,
    UNKNOWN_MEAN,
    count_queries,
    find_query_count,
    measure_column,
    significance_mark,
)

CHART_HEIGHT_PX = 240
MAX_OPEN_MEASURES = 2
"""Number of measures whose tables are open at first, and shown on a terminal."""
MEAN_RANK_TITLE = "mean rank"


def build_report(study: DatasetOverviews) -> Report:
    """Build the report of the same systems on several datasets."""
    overviews = study.datasets
    first_measure, *other_measures = list_measures(overviews)
    tables = [build_measure_table(overviews, measure) for measure in (first_measure, *other_measures)]
    open_tables, closed_tables = tables[:MAX_OPEN_MEASURES], tables[MAX_OPEN_MEASURES:]
    sections = [
        Section("first", first_measure, [open_tables[0]], first_measure, ALL_FORMATS - PAGE_ONLY),
        Section(
            "first",
            first_measure,
            [_measure_charts(overviews, first_measure), open_tables[0]],
            first_measure,
            PAGE_ONLY,
        ),
        *(Section("second", table.title, [table], table.title) for table in open_tables[1:]),
        Section("others", "Other measures", closed_tables, "Others", FILES_ONLY),
        Section("datasets", "Datasets", [_build_datasets_table(study, "report.html")], "Datasets", PAGE_ONLY),
        Section("datasets", "Datasets", [_build_datasets_table(study, "report.md")], formats=frozenset({"markdown"})),
    ]
    return Report(
        "study",
        study.title,
        summarise_experiments(overviews),
        [section for section in sections if section.blocks],
        [pluralise(len(overviews), "dataset"), pluralise(len(list_systems(overviews)), "system")],
        notes=[
            *describe_measure_table(overviews),
            *merge_notes(Note(note, name) for name, overview in overviews.items() for note in overview.notes),
        ],
        provenance=_shared_provenance(overviews),
    )


def _measure_charts(overviews: Mapping[str, Overview], measure: str) -> Charts:
    named = dict(zip(shorten_dataset_names(list(overviews)), overviews.values(), strict=True))
    return Charts(lambda: draw_dataset_chart(named, measure, list_systems(overviews)))


def draw_dataset_chart(overviews: Mapping[str, Overview], measure: str, systems: list[str]) -> dict[str, Chart]:
    """Draw a dot with interval for each system and dataset; empty without values."""
    groups = {name: _finite_means(overview, measure) for name, overview in overviews.items()}
    means_by_dataset = {name: means for name, means in groups.items() if means}
    if not means_by_dataset:
        return {}
    first = next(iter(overviews.values()))
    baselines = [overview.baseline for overview in overviews.values() if overview.baseline in systems]
    styles = SystemStyles(systems, next(iter(baselines), None))
    has_intervals = any(math.isfinite(mean.low) for means in means_by_dataset.values() for mean in means.values())
    lower = any(measure in overview.lower_is_better for overview in overviews.values())
    caption = join_sentence(
        f"a mark is a system's mean {measure} on a dataset" + " (lower is better)" * lower,
        f"lines are intervals of {first.confidence:.0%}" if has_intervals else "",
        "datasets differ in difficulty: compare systems within each",
    )
    values = "; ".join(
        f"{name}: {', '.join(f'{system} {format_bar_value(mean.value)}' for system, mean in means.items())}"
        for name, means in means_by_dataset.items()
    )
    panel = draw_dots("", means_by_dataset, measure, styles, CHART_HEIGHT_PX, key=styles.names, wide=True)
    return {"datasets": Chart(f"{measure} on each dataset", caption, f"Mean {measure}. {values}.", [panel])}


def _finite_means(overview: Overview, measure: str) -> dict[str, Mean]:
    means = {name: entry.means[measure] for name, entry in overview.entries.items() if measure in entry.means}
    return {name: mean for name, mean in means.items() if math.isfinite(mean.value)}


def list_measures(overviews: Mapping[str, Overview]) -> list[str]:
    """Return all measures, starting with one that every dataset has, if any.

    The rest follows the order of the dataset with the most measures.
    """
    fullest = sorted(overviews.values(), key=lambda overview: -len(overview.measures))
    measures = list(dict.fromkeys(measure for overview in fullest for measure in overview.measures))
    shared = [measure for measure in measures if all(measure in overview.measures for overview in fullest)]
    return list(dict.fromkeys([*shared[:1], *measures]))


def shorten_dataset_names(names: list[str]) -> list[str]:
    """Return dataset names without options, if they stay unique.

    >>> (shorten_dataset_names(["synthetic:graph(documents=500)", "pydocs"]), shorten_dataset_names(["a(seed=0)",
    ...  "a(seed=1)"]))
    (['synthetic:graph', 'pydocs'], ['a(seed=0)', 'a(seed=1)'])
    """
    cut = [name.partition("(")[0] for name in names]
    return cut if len(set(cut)) == len(cut) and all(cut) else names


def build_measure_table(overviews: Mapping[str, Overview], measure: str) -> Table:
    """Build a table of systems by datasets with significance stars and mean ranks; the best values are marked."""
    names = shorten_dataset_names(list(overviews))
    last = len(names)
    columns = [Column(measure, "name")]
    columns += [
        measure_column(overview, measure, title=name, drop_order=last - i)
        for i, (name, overview) in enumerate(zip(names, overviews.values(), strict=True))
    ]
    columns[1] = columns[1]._replace(drop_order=0)
    ranks = compute_mean_ranks(overviews, measure)
    columns += [Column(MEAN_RANK_TITLE, "ratio", -1)] if ranks else []
    rows: list[Row] = []
    for system in list_systems(overviews):
        cells = [_dataset_cell(overview, system, measure) for overview in overviews.values()]
        rows.append([system, *cells, *([ranks[system]] if ranks else [])])
    is_collapsed = measure not in list_measures(overviews)[:MAX_OPEN_MEASURES]
    return Table(f"datasets-{measure}", columns, rows, measure, collapsed=is_collapsed).mark_best()


def _dataset_cell(overview: Overview, system: str, measure: str) -> Cell:
    entry, row = overview.entries.get(system), overview.difference(system, measure)
    mean = UNKNOWN_MEAN if entry is None else entry.means.get(measure, UNKNOWN_MEAN)
    return Cell(mean.value, stars="" if row is None else significance_mark(row))


def summarise_experiments(overviews: Mapping[str, Overview]) -> str:
    """Summarise which system has the best mean rank by the first measure."""
    first = list_measures(overviews)[0]
    ranks = compute_mean_ranks(overviews, first)
    datasets = pluralise(len(overviews), "dataset")
    if not ranks:
        return f"{pluralise(len(list_systems(overviews)), 'system')} on {datasets}."
    best = best_mean(list(ranks.values()), lower=True)
    leaders = [name for name, rank in ranks.items() if rank == best]
    winners = [next(iter(overview.ranked(first)), "") for overview in overviews.values()]
    verb = "has" if len(leaders) == 1 else "have"
    wins = f"; it is first on {winners.count(leaders[0])} of {datasets}" if len(leaders) == 1 else f" over {datasets}"
    rank = f"{', '.join(leaders)} {verb} the best mean rank by {first}, {best:.2f}{wins}."
    return f"{rank}{_describe_significance(overviews, first)}"


def _describe_significance(overviews: Mapping[str, Overview], measure: str) -> str:
    """Describe how many differences from the baseline are significant."""
    n_tested = n_significant = 0
    baseline = ""
    for overview in overviews.values():
        if overview.compared is None or overview.baseline is None:
            continue
        baseline = baseline or overview.baseline
        rows = [row for name in overview.systems if (row := overview.difference(name, measure))]
        n_tested += len(rows)
        n_significant += sum(map(overview.compared.is_significant, rows))
    if not n_tested:
        return ""
    verb = "is" if n_significant < 2 else "are"
    return f" {n_significant or 'None'} of {pluralise(n_tested, 'difference')} from {baseline} {verb} significant."


def describe_measure_table(overviews: Mapping[str, Overview]) -> list[str]:
    """Describe the stars and ranks, if there are any."""
    notes = []
    for overview in overviews.values():
        if overview.compared is not None and overview.baseline is not None:
            test = describe_test(overview.compared)
            notes.append(f"stars: difference from {overview.baseline} on each dataset, {test}; {STARS_NOTE}")
            break
    if compute_mean_ranks(overviews, list_measures(overviews)[0]):
        notes.append(
            f"{MEAN_RANK_TITLE}: over the datasets on which every system has a value, 1 is the best; not tested"
        )
    return notes


def _build_datasets_table(study: DatasetOverviews, file: str) -> Table:
    """Build a table of the datasets with links to their reports; it includes datasets that failed."""
    rows: list[Row] = []
    for name, overview in study.datasets.items():
        documents = overview.documents_known
        size = [] if documents is None else [pluralise(documents, "document")]
        size.append(pluralise(count_queries(overview), *overview.nouns))
        folder = study.folders.get(name)
        link = f"{quote(folder, safe='/=')}/{file}" if folder else ""
        rows.append([Cell(name, link=link), ", ".join(size)])
    rows += [[name, f"failed: {why}"] for name, why in study.failures.items()]
    return Table("datasets", [Column("dataset"), Column("content")], rows)


def _shared_provenance(overviews: Mapping[str, Overview]) -> dict[str, Any]:
    """Return the provenance that the runs on all datasets share."""
    first_manifest, *other_manifests = (overview.first_manifest for overview in overviews.values())
    shared = {
        key: first_manifest[key]
        for key in ("plan", "python", "versions", "machine")
        if first_manifest.get(key) and all(manifest.get(key) == first_manifest[key] for manifest in other_manifests)
    }
    conventions = dict.fromkeys(overview.convention for overview in overviews.values() if overview.convention)
    latest_date = max((overview.made for overview in overviews.values()), default="")
    return {
        "made": latest_date,
        "convention": ", ".join(conventions),
        "systems": _describe_systems(overviews),
        **shared,
    }


def _describe_systems(overviews: Mapping[str, Overview]) -> list[str]:
    """Return system names, with descriptions that differ from the names."""
    systems = dict.fromkeys(list_systems(overviews), "")
    for overview in overviews.values():
        for name, entry in overview.entries.items():
            systems[name] = systems[name] or str((entry.manifest.get("system") or {}).get("description") or "")
    return [name if text in ("", name) else f"{name}: {text}" for name, text in systems.items()]


def build_means_table(study: DatasetOverviews) -> Table:
    """Build the table of all means, with one row per dataset, system and measure."""
    names = ("dataset", "system", "measure", "value", "low", "high", "n", "difference", "p_corrected", "rank")
    return Table("means", [Column(name) for name in names], list(_iterate_means(study.datasets)))


def _iterate_means(overviews: Mapping[str, Overview]) -> Iterator[Row]:
    for dataset, overview in overviews.items():
        for measure in overview.measures:
            means = {name: entry.means.get(measure, UNKNOWN_MEAN) for name, entry in overview.entries.items()}
            known_values = {name: mean.value for name, mean in means.items() if not math.isnan(mean.value)}
            ranks = compute_ranks(list(known_values.values()), lower=measure in overview.lower_is_better)
            rank_by_system = dict(zip(known_values, ranks, strict=True))
            for name, mean in means.items():
                row = overview.difference(name, measure)
                difference_values = [None, None] if row is None else [row.difference, row.p_corrected]
                values = [mean.value, mean.low, mean.high, find_query_count(mean)]
                yield [dataset, name, measure, *values, *difference_values, rank_by_system.get(name)]


REPORTER = ResultReporter(
    build_report, {"csv": TableBuilder("one row per dataset, system and measure", build_means_table)}
)
