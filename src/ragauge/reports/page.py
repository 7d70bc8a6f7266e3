"""Render an overview as a self-contained HTML page that needs no network access."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragauge.comparison.charts import CHART_DEFINITIONS, draw_charts
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.documents import Document
from ragauge.core.records import Floats
from ragauge.output import text_page
from ragauge.output.page import compress_payloads, page_explorer
from ragauge.output.page_assets import render_template
from ragauge.output.report import Chart, Explorer, with_unique_kinds
from ragauge.output.text_page import TextPageSection
from ragauge.reports import page_sections
from ragauge.reports.registry import build_reports
from ragauge.reports.summary import build_cards, summarise_overview
from ragauge.reports.systems_tables import TRIALS_TITLE

MAX_RANKING_ROWS = 600_000
"""Maximum number of returned documents in a page. The queries that differ least are left out first."""
MAX_TEXT_CHARS = 8_000_000
"""Maximum number of characters of document texts in a page. The queries that differ least are left out first."""
SNIPPET_CHARS = 300
DEFAULT_RANKING_DEPTH = 10


def find_browsable_systems(overview: Overview) -> list[str]:
    """Return the systems with the same queries as the first scored one."""
    known = [entry for entry in overview.entries.values() if entry.scores]
    return [entry.name for entry in known if entry.scores[0].queries == known[0].scores[0].queries]


def build_values_payload(overview: Overview) -> dict[str, Any]:
    """Return ids, texts, values, tags and errors of the queries."""
    systems = find_browsable_systems(overview)
    entries = [overview.entries[name] for name in systems]
    ids = entries[0].scores[0].queries
    place = {query: i for i, query in enumerate(ids)}
    return {
        "ids": ids,
        "texts": [overview.queries.get(query, "") for query in ids],
        "values": [[_rounded_values(entry, measure, len(ids)) for entry in entries] for measure in overview.measures],
        "tags": _tag_columns(overview, ids),
        "failed": {
            str(i): {str(place[query]): why for query, why in entry.failed.items() if query in place}
            for i, entry in enumerate(entries)
            if entry.failed
        },
    }


def _rounded_values(entry: SystemSummary, measure: str, n: int) -> list[float | None]:
    if measure not in entry.scores[0].values:
        return [None] * n
    return [None if math.isnan(value) else round(value, 6) for value in entry.values(measure).tolist()]


def _tag_columns(overview: Overview, ids: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for tag, parts in overview.strata.items():
        names = [part.value for part in parts]
        place = {name: i for i, name in enumerate(names)}
        told = [overview.tags.get(query, {}).get(tag, "") for query in ids]
        found.append({"tag": tag, "names": names, "of": [place.get(name, -1) for name in told]})
    return found


def build_rankings_payload(overview: Overview) -> dict[str, Any] | None:
    """Return the rankings of the queries that differ most, with grades and texts.

    Returns None if runs or judgments are unknown.
    """
    systems = find_browsable_systems(overview)
    runs = {name: overview.entries[name].run for name in systems}
    judgments = overview.judgments
    if judgments is None or None in runs.values() or not any(run and run.table.height for run in runs.values()):
        return None
    ids = overview.entries[systems[0]].scores[0].queries
    depth = find_ranking_depth(overview)
    kept = _most_changed_queries(overview, systems, max(1, MAX_RANKING_ROWS // (depth * len(systems))))
    places: list[int | None] = [None] * len(ids)
    for place, query in enumerate(kept):
        places[query] = place
    wanted = [ids[i] for i in kept]
    numbers: dict[str, int] = {}
    first = overview.entries[systems[0]].scores[0]
    ties = "trec" if first.judged is None else first.judged.ties
    lists = [_ranking_arrays(run.table, wanted, depth, numbers, ties) for run in runs.values() if run is not None]
    rel = first.rel
    grades = [judgments.nested.get(query, {}) for query in wanted]
    judged = {
        "starts": np.concatenate([[0], np.cumsum([len(docs) for docs in grades])]).tolist(),
        "docs": [numbers.setdefault(doc, len(numbers)) for docs in grades for doc in docs],
        "grades": [int(grade) if float(grade).is_integer() else grade for docs in grades for grade in docs.values()],
    }
    return {
        "depth": depth,
        "rel": 1 if rel is None else rel,
        "places": places,
        "docs": list(numbers),
        "texts": _document_snippets(
            list(numbers), _first_query_positions([*lists, judged], len(numbers)), overview.documents
        ),
        "lists": lists,
        "judged": judged,
    }


def find_ranking_depth(overview: Overview) -> int:
    """Return the number of documents per ranking in the page.

    It is the cutoff of the first measure, limited to 5 to 20.
    """
    cutoff = re.search(r"@(\d+)$", overview.first)
    return DEFAULT_RANKING_DEPTH if cutoff is None else min(max(int(cutoff[1]), 5), 20)


def _most_changed_queries(overview: Overview, systems: Sequence[str], most: int) -> list[int]:
    """Return positions of the `most` queries that differ most between systems."""
    table: Floats = np.array([overview.entries[name].values(overview.first) for name in systems])
    filled = np.where(np.isnan(table), 0.0, table)
    spread = filled.max(axis=0) - filled.min(axis=0)
    return [int(i) for i in np.argsort(-spread, kind="stable")[:most]]


def _ranking_arrays(
    table: Any, wanted: Sequence[str], depth: int, numbers: dict[str, int], ties: str
) -> dict[str, list[Any]]:
    """Return the top documents of the wanted queries as flat arrays.

    They are in the order that was scored: by score, and ties by the rule `ties`.
    """
    import polars as pl

    asked = pl.DataFrame({"query": pl.Series(wanted, dtype=pl.String), "place": np.arange(len(wanted))})
    down = {"place": False, "score": True, **({"doc": True} if ties != "ranked" else {})}
    if ties == "ranked" and "rank" in table.columns:
        down["rank"] = False
    found = (
        asked.join(table, on="query", how="inner", maintain_order="right")
        .sort(list(down), descending=list(down.values()), nulls_last=True, maintain_order=True)
        .group_by("place", maintain_order=True)
        .head(depth)
    )
    sizes = np.bincount(found["place"].to_numpy(), minlength=len(wanted))
    return {
        "starts": np.concatenate([[0], np.cumsum(sizes)]).tolist(),
        "docs": [numbers.setdefault(doc, len(numbers)) for doc in found["doc"].to_list()],
        "scores": [_round_score(score) for score in found["score"].to_list()],
    }


def _round_score(score: float | None) -> float | None:
    """Round a score to five significant digits; None if it is not finite."""
    if score is None or not math.isfinite(score):
        return None
    return float(f"{score:.5g}")


def _first_query_positions(lists: Sequence[Mapping[str, Any]], n: int) -> Floats:
    """Return for each document the first query that contains it, by position."""
    first = np.full(n, np.inf)
    for one in lists:
        owners = np.repeat(np.arange(len(one["starts"]) - 1), np.diff(one["starts"]))
        np.minimum.at(first, np.array(one["docs"], np.int64), owners)
    return first


def _document_snippets(ids: Sequence[str], order: Floats, documents: Mapping[str, Document]) -> list[list[str] | None]:
    """Return title and snippet of each document, up to the text limit.

    `order` decides which documents come first; None marks those left out.
    """
    found: list[list[str] | None] = [None] * len(ids)
    left = MAX_TEXT_CHARS
    for i in np.argsort(order, kind="stable").tolist():
        known = documents.get(ids[i])
        if left <= 0:
            break
        if known is None:
            continue
        text = " ".join(known.text[: 2 * SNIPPET_CHARS].split())
        text = text if len(text) <= SNIPPET_CHARS else text[: SNIPPET_CHARS - 1] + "…"
        left -= len(text) + len(known.title)
        found[i] = [known.title, text]
    return found


def render_overview_page(overview: Overview, vega: str | None = None) -> str:
    """Render the page of an overview.

    `vega` is the result of `load_vega_script`, if already loaded.
    """
    others = with_unique_kinds(build_reports(overview.beside))
    charts = draw_charts(overview)
    joined = [section for one in others for section in text_page.page_sections(one, headed=True)]
    middle = [*_chart_sections(overview, charts), *joined]
    for section in joined:
        charts.update(section.charts)
    systems = find_browsable_systems(overview)
    explorer = page_explorer(_build_explorer(overview, systems)) if systems else None
    first = TextPageSection("systems", "Systems", "Systems")
    many = overview.asked[1].capitalize()
    ends = [
        *([TextPageSection("queries", many, many)] if systems else []),
        # Judged answers are not rankings: there is nothing to audit, and no query could fail.
        *(
            []
            if overview.judge
            else [TextPageSection("findings", "Audit", "Audit"), TextPageSection("failures", "Failures", "Failures")]
        ),
        TextPageSection("again", "Do it again", "Do it again"),
    ]
    return render_template(
        "report.html",
        {
            "title": overview.title,
            "kind": "report",
            "made": overview.made,
            "navigation": [first, *middle, *ends],
            "about": page_sections.describe_overview(overview),
            "verdict": summarise_overview(overview).replace("p < ", "p\u00a0<\u00a0").replace("p = ", "p\u00a0=\u00a0"),
            "answers": build_cards(overview),
            "systems": page_sections.build_systems_table(overview),
            "others": page_sections.build_other_measures_tables(overview),
            "beside": charts.get("quality_latency"),
            "chart_sections": middle,
            "explorer": explorer,
            "asked": overview.asked,
            "ranked": not overview.judge,
            "places": {
                one.id: "queries?show=zero" if one.id == "queries" else one.id for one in (*middle, *ends, first)
            },
            "unaudited": _unaudited_text(overview),
            "findings": page_sections.build_findings(overview),
            "failures": page_sections.build_failures(overview),
            "again": page_sections.build_provenance_tables(overview),
            "notes": overview.notes,
            "manifests": page_sections.format_manifests(overview),
        },
        charts,
        {} if explorer is None else {explorer.name: explorer.settings},
        {} if explorer is None else compress_payloads(explorer),
        vega=vega,
        scripts=[] if explorer is None else ["explorer.js"],
    )


def _build_explorer(overview: Overview, systems: Sequence[str]) -> Explorer:
    rankings = build_rankings_payload(overview)
    payloads = {"values": build_values_payload(overview), **({} if rankings is None else {"rankings": rankings})}
    settings = _browser_settings(overview, systems)
    return Explorer("rankings", settings, lambda: payloads, _browser_text(overview, rankings))


def _chart_sections(overview: Overview, charts: Mapping[str, Chart]) -> list[TextPageSection]:
    """Return the sections with charts, in reading order."""

    def charts_of(section: str) -> dict[str, Chart]:
        return {name: chart for name, chart in charts.items() if CHART_DEFINITIONS[name].section == section}

    sheets = [
        one
        for one in (page_sections.build_costs_table(overview), page_sections.build_stages_table(overview))
        if one is not None
    ]
    parts = [one for one in (page_sections.build_strata_table(overview),) if one is not None]
    base = overview.baseline
    one = overview.asked[0]
    against = f"Each {one}'s {overview.first} minus that of {base}." if base else ""
    found = [
        TextPageSection("panels", "Six panels", "Panels", charts_of("panels")),
        TextPageSection("measures", "Measure by measure", "Measures", charts_of("measures")),
        TextPageSection("over-k", "How many documents are enough", "Over k", charts_of("over-k")),
        TextPageSection(
            "differences",
            f"{one.capitalize()} by {one}",
            "Differences",
            charts_of("differences"),
            (),
            against,
            "pairs",
        ),
        TextPageSection("trials", TRIALS_TITLE, "Chance", grids=page_sections.build_trials_tables(overview)),
        TextPageSection("strata", f"By kind of {one}", f"Kinds of {one}", charts_of("strata"), parts),
        TextPageSection("latency", "How fast", "Latency", charts_of("latency"), sheets),
    ]
    return [one for one in found if one.charts or one.grids]


def _unaudited_text(overview: Overview) -> str:
    if not any(entry.run is not None for entry in overview.entries.values()):
        return "Not audited: that needs judgments and runs."
    return (
        "Not audited. `ragauge report` without --no-audit, or `ragauge audit`, looks for what makes numbers suspicious."
    )


def _browser_settings(overview: Overview, systems: Sequence[str]) -> dict[str, Any]:
    """Return the initial settings of the query browser.

    They select the best system and the system it is compared with.
    """
    ranked = [name for name in overview.ranked() if name in systems] or list(systems)
    base = overview.baseline if overview.baseline in systems else ranked[-1]
    best = next((name for name in ranked if name != base), base)
    return {
        "systems": list(systems),
        "measures": list(overview.measures),
        "lower_is_better": [m in overview.lower_is_better for m in overview.measures],
        "system": systems.index(best),
        "baseline": systems.index(base),
        "noun": overview.asked[0],
        "plural": overview.asked[1],
        "unavailable": "The rankings of this query are not in the page, since it moved less than others.",
    }


def _browser_text(overview: Overview, rankings: Mapping[str, Any] | None) -> str:
    several = len(find_browsable_systems(overview)) > 1
    told = f"Those that {'moved most' if several else 'score least'} come first. "
    if overview.judge:
        return told + "The page of each folder has their claims, and what the judge said of them."
    if rankings is None:
        return told + "The rankings behind the values are not known here."
    left = sum(place is None for place in rankings["places"])
    shown = "both rankings" if several else "its ranking"
    told += f"A query opens to show {shown}, {rankings['depth']} deep, with grades, scores and texts."
    if left:
        told += f" {left:,} queries that moved least go without rankings, to keep the page small."
    if not overview.documents:
        told += " The texts of the documents are not known here."
    return told
