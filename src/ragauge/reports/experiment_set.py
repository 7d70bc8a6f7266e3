"""Report the same systems on several datasets: tables, Markdown, page and CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rich.table import Table
from rich.text import Text

from ragauge.comparison.charts import dots
from ragauge.comparison.report import STARS, decided_by
from ragauge.comparison.results import Overview, Overviews, mean_ranks, ranks, systems
from ragauge.core.summaries import Mean
from ragauge.output.chart_style import Cast
from ragauge.output.charts import format_bar_label, sentence
from ragauge.output.markdown import folded, grid, safe
from ragauge.output.numbers import count_noun, number, shown
from ragauge.output.report import Account, Drawing, Part
from ragauge.output.tables import Rows
from ragauge.output.terminal import best_of, cell, csv_text, fitting, plain_table
from ragauge.reports.systems_tables import UNKNOWN, asked, known_n, leading, manifest_of

HEIGHT = 240


def studied(overviews: Mapping[str, Overview], measure: str, systems: Sequence[str]) -> dict[str, Drawing]:
    """Draw a dot with interval for each system and dataset; empty without values."""
    groups = {name: _means(one, measure) for name, one in overviews.items()}
    known = {name: means for name, means in groups.items() if means}
    if not known:
        return {}
    firsts = list(overviews.values())
    cast = Cast(systems, next((one.baseline for one in firsts if one.baseline in systems), None))
    sure = any(math.isfinite(mean.low) for means in known.values() for mean in means.values())
    lower = any(measure in one.lower_is_better for one in firsts)
    caption = sentence(
        f"a mark is a system's mean {measure} on a dataset" + " (lower is better)" * lower,
        f"lines are intervals of {firsts[0].confidence:.0%}" if sure else "",
        "datasets differ in how hard they are: compare systems within each",
    )
    said = "; ".join(
        f"{name}: {', '.join(f'{system} {format_bar_label(mean.value)}' for system, mean in means.items())}"
        for name, means in known.items()
    )
    one = dots("", known, measure, cast, HEIGHT, key=cast.names, wide=True)
    return {"datasets": Drawing(f"{measure} on each dataset", caption, f"Mean {measure}. {said}.", [one])}


def _means(overview: Overview, measure: str) -> dict[str, Mean]:
    means = {name: entry.means[measure] for name, entry in overview.entries.items() if measure in entry.means}
    return {name: mean for name, mean in means.items() if math.isfinite(mean.value)}


MOST = 2
"""Number of measures with their own table on a terminal."""
RANK = "mean rank"


@dataclass(frozen=True)
class Joint:
    """Table of one measure for every system and dataset, as text."""

    measure: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Rows of system name, means with stars, and mean rank."""
    strong: frozenset[tuple[int, int]]
    """`(row, column)` positions of the best values."""


def measures(overviews: Overviews) -> list[str]:
    """Return all measures, starting with one that every dataset has, if any.

    The rest follows the order of the dataset with the most measures.
    """
    fullest = sorted(overviews.values(), key=lambda one: -len(one.measures))
    every = list(dict.fromkeys(measure for one in fullest for measure in one.measures))
    shared = [measure for measure in every if all(measure in one.measures for one in fullest)]
    return list(dict.fromkeys([*shared[:1], *every]))


def short(names: Sequence[str]) -> list[str]:
    """Return dataset names without options, if they stay unique.

    >>> short(["synthetic:graph(documents=500)", "pydocs"]), short(["a(seed=0)", "a(seed=1)"])
    (['synthetic:graph', 'pydocs'], ['a(seed=0)', 'a(seed=1)'])
    """
    cut = [name.partition("(")[0] for name in names]
    return cut if len(set(cut)) == len(cut) and all(cut) else list(names)


def joint(overviews: Overviews, measure: str) -> Joint:
    """Build a table of systems by datasets with significance stars and mean ranks.

    The best value of each column is marked.
    """
    names = systems(overviews)
    columns: list[list[str]] = []
    strong: set[tuple[int, int]] = set()
    for place, one in enumerate(overviews.values(), 1):
        best = leading(one, measure)
        strong |= {(row, place) for row, name in enumerate(names) if _mean(one, name, measure) == best}
        columns.append(_column(one, names, measure))
    ranked = mean_ranks(overviews, measure)
    if ranked:
        best = min(ranked.values())
        strong |= {(row, len(columns) + 1) for row, name in enumerate(names) if ranked[name] == best}
        columns.append([f"{ranked[name]:.2f}" for name in names])
    header = [measure, *short(list(overviews)), *([RANK] if ranked else [])]
    rows = [[name, *(column[row] for column in columns)] for row, name in enumerate(names)]
    return Joint(measure, header, rows, frozenset(strong))


def _mean(overview: Overview, system: str, measure: str) -> float:
    entry = overview.entries.get(system)
    return math.nan if entry is None else entry.means.get(measure, UNKNOWN).value


def _column(overview: Overview, names: Sequence[str], measure: str) -> list[str]:
    """Return the means of a dataset with their stars."""
    gaps = [overview.difference(name, measure) for name in names]
    means = [shown(_mean(overview, name, measure), measure) for name in names]
    stars = ["" if gap is None else gap.stars.replace("ns", "") for gap in gaps]
    return [f"{mean} {star}".rstrip() for mean, star in zip(means, stars, strict=True)]


def tables(overviews: Overviews, width: int) -> tuple[list[Table], list[str]]:
    """Render the tables of the first measures, and list the columns that do not fit."""
    found: list[Table] = []
    left: dict[str, None] = {}
    for measure in measures(overviews)[:MOST]:
        one = joint(overviews, measure)
        goes = range(len(overviews), 1, -1)
        kept = fitting(one.header, one.rows, width, list(goes))
        table = plain_table([one.header[i] for i in kept])
        for column in table.columns[1:]:
            column.justify = "left"  # Left-aligned, so that stars after a number do not move it.
        wide = [max(len(cells[i].partition(" ")[0]) for cells in one.rows) for i in range(len(one.header))]
        for row, cells in enumerate(one.rows):
            table.add_row(cell(cells[0]), *(_aligned(cells[i], wide[i], (row, i) in one.strong) for i in kept[1:]))
        left.update(dict.fromkeys(title for i, title in enumerate(one.header) if i not in kept))
        found.append(table)
    return found, list(left)


def _aligned(text: str, wide: int, best: bool) -> Text:
    figure, blank, stars = text.partition(" ")
    return Text(f"{figure:>{wide}}{blank}{stars}", style="bold" if best else "")


def headline(overviews: Overviews) -> str:
    """Summarise which system has the best mean rank by the first measure."""
    first = measures(overviews)[0]
    ranked = mean_ranks(overviews, first)
    several = count_noun(len(overviews), "dataset")
    if not ranked:
        return f"{count_noun(len(systems(overviews)), 'system')} on {several}."
    best = best_of(list(ranked.values()), lower=True)
    names = [name for name, rank in ranked.items() if rank == best]
    wins = [_winner(one, first) for one in overviews.values()]
    told = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} the best mean rank by {first}, {best:.2f}"
    alone = f"; it is first on {wins.count(names[0])} of {several}" if len(names) == 1 else f" over {several}"
    return f"{told}{alone}.{_sure(overviews, first)}"


def _sure(overviews: Overviews, measure: str) -> str:
    """Describe how many differences from the baseline are significant."""
    known = [one for one in overviews.values() if one.compared is not None and one.baseline is not None]
    gaps = [(one.compared, gap) for one in known for name in one.systems if (gap := one.difference(name, measure))]
    sure = sum(compared is not None and compared.sure(gap) for compared, gap in gaps)
    many = f"{sure or 'None'} of {count_noun(len(gaps), 'difference')} from {known[0].baseline}" if gaps else ""
    return f" {many} {'is' if sure < 2 else 'are'} more than chance gives." if gaps else ""


def _winner(overview: Overview, measure: str) -> str:
    return next(iter(overview.ranked(measure)), "")


def about(overviews: Overviews) -> list[str]:
    """Describe the stars and ranks, if there are any."""
    first = measures(overviews)[0]
    known = next((one for one in overviews.values() if one.compared is not None and one.baseline is not None), None)
    told = []
    if known is not None and known.compared is not None:
        told.append(f"stars: against {known.baseline} on each dataset, {decided_by(known.compared)}; {STARS}")
    if mean_ranks(overviews, first):
        told.append(
            f"{RANK}: over the datasets on which every system has a value; 1 is the best, and nothing is tested"
        )
    return told


def markdown(title: str, overviews: Overviews, failures: Mapping[str, str], places: Mapping[str, str]) -> str:
    """Render the report as Markdown.

    `places` are the folders of the datasets, relative to it.
    """
    lines = [f"# {safe(title)}", "", safe(headline(overviews)), ""]
    for place, measure in enumerate(measures(overviews)):
        one = joint(overviews, measure)
        table = grid(one.header, one.rows, strong=one.strong)
        lines += [*(table if place < MOST else folded(measure, table)), ""]
    lines += [f"- {safe(line)}" for line in about(overviews)]
    lines += ["", "## Datasets", ""]
    lines += [f"- [{safe(name)}]({places[name]}/report.md)" for name in overviews]
    lines += [f"- {safe(name)} could not be run: {safe(why)}" for name, why in failures.items()]
    return "\n".join([*lines, ""])


def account(title: str, overviews: Overviews, failures: Mapping[str, str], places: Mapping[str, str]) -> Account:
    """Build the report for a page. A bullet marks the best value of a column."""
    first, *others = measures(overviews)
    said = [*about(overviews), "• is the best of a column"]
    text = " ".join(f"{line[:1].upper()}{line[1:]}." for line in said)
    named = dict(zip(short(list(overviews)), overviews.values(), strict=True))
    chart = studied(named, first, systems(overviews))
    parts = [Part("first", first, first, text, [_marked(overviews, first)], chart)]
    parts += [Part("second", one, one, "", [_marked(overviews, one)]) for one in others[: MOST - 1]]
    rest = [_marked(overviews, one) for one in others[MOST - 1 :]]
    if rest:
        parts.append(Part("others", "Other measures", "Others", "", rest, long=True))
    parts.append(Part("datasets", "Datasets", "Datasets", "", [_where(overviews, failures, places)]))
    told = [count_noun(len(overviews), "dataset"), count_noun(len(systems(overviews)), "system")]
    return Account("study", title, told, headline(overviews), parts, circumstances=_circumstances(overviews))


def _where(overviews: Overviews, failures: Mapping[str, str], places: Mapping[str, str]) -> Rows:
    """Build a table of the datasets with links to their reports.

    It includes datasets that failed.
    """
    rows = [[name, ", ".join(_sizes(one))] for name, one in overviews.items()]
    rows += [[name, f"could not be run: {why}"] for name, why in failures.items()]
    links = [*(f"{quote(places[name])}/report.html" for name in overviews), *("" for _ in failures)]
    return Rows("Datasets", ["dataset", "what it has"], rows, numbers=False, links=links)


def _sizes(overview: Overview) -> list[str]:
    documents = overview.documents_known
    size = [] if documents is None else [count_noun(documents, "document")]
    return [*size, count_noun(asked(overview), *overview.asked)]


def _marked(overviews: Overviews, measure: str) -> Rows:
    one = joint(overviews, measure)
    cells = [
        [f"•{text}" if (row, i) in one.strong else text for i, text in enumerate(texts)]
        for row, texts in enumerate(one.rows)
    ]
    return Rows(measure, ["system", *one.header[1:]], cells)


def _circumstances(overviews: Overviews) -> dict[str, Any]:
    """Return the provenance that the runs on all datasets share."""
    manifests = [manifest_of(one) for one in overviews.values()]
    first = manifests[0]
    shared = {
        key: first[key]
        for key in ("plan", "python", "versions", "machine")
        if first.get(key) and all(one.get(key) == first[key] for one in manifests)
    }
    conventions = list(dict.fromkeys(one.convention for one in overviews.values() if one.convention))
    made = max((one.made for one in overviews.values()), default="")
    return {"made": made, "convention": ", ".join(conventions), "systems": _described(overviews), **shared}


def _described(overviews: Overviews) -> list[str]:
    """Return system names, with descriptions that differ from the names."""
    found = dict.fromkeys(systems(overviews), "")
    for one in overviews.values():
        for name, entry in one.entries.items():
            found[name] = found[name] or str((entry.manifest.get("system") or {}).get("description") or "")
    return [name if what in ("", name) else f"{name}: {what}" for name, what in found.items()]


def csv(overviews: Overviews) -> str:
    """Format all means as CSV with one row per dataset, system and measure.

    Cells are empty if there is no value or no baseline.
    """
    header = ["dataset", "system", "measure", "value", "low", "high", "n", "difference", "p_corrected", "rank"]
    rows = []
    for dataset, one in overviews.items():
        for measure in one.measures:
            means = {name: entry.means.get(measure, UNKNOWN) for name, entry in one.entries.items()}
            known = {name: mean.value for name, mean in means.items() if not math.isnan(mean.value)}
            places = ranks(list(known.values()), lower=measure in one.lower_is_better)
            ranked = dict(zip(known, places, strict=True))
            for name, mean in means.items():
                gap = one.difference(name, measure)
                tested = ["", ""] if gap is None else [number(gap.difference), number(gap.p_corrected)]
                figures = [number(mean.value), number(mean.low), number(mean.high), number(known_n(mean))]
                rows.append([dataset, name, measure, *figures, *tested, number(ranked.get(name))])
    return csv_text(header, rows)
