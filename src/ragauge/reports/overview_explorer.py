"""List of queries on the page of an overview: scores of every system, and rankings with grades and texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.documents import Document
from ragauge.core.records import Floats
from ragauge.evaluation.indicators import find_measure
from ragauge.output.report import Explorer

MAX_RANKING_ROWS = 600_000
"""Maximum number of returned documents in a page. The queries that differ least are left out first."""
MAX_TEXT_CHARS = 8_000_000
"""Maximum number of characters of document texts in a page. The queries that differ least are left out first."""
SNIPPET_CHARS = 300
DEFAULT_RANKING_DEPTH = 10


def build_explorer(overview: Overview) -> Explorer | None:
    """Build the list of queries; None if no system has scores of single queries."""
    systems = find_browsable_systems(overview)
    if not systems:
        return None

    def build_payloads() -> dict[str, Any]:
        rankings = build_rankings_payload(overview)
        return {"values": build_values_payload(overview), **({} if rankings is None else {"rankings": rankings})}

    return Explorer(
        "rankings", _explorer_settings(overview, systems), build_payloads, _describe_explorer(overview, systems)
    )


def find_browsable_systems(overview: Overview) -> list[str]:
    """Return the systems with the same queries as the first scored one."""
    scored_entries = [entry for entry in overview.entries.values() if entry.scores]
    return [entry.name for entry in scored_entries if entry.scores[0].queries == scored_entries[0].scores[0].queries]


def build_values_payload(overview: Overview) -> dict[str, Any]:
    """Return ids, texts, values, tags and errors of the queries."""
    systems = find_browsable_systems(overview)
    entries = [overview.entries[name] for name in systems]
    ids = entries[0].scores[0].queries
    position_by_query = {query: i for i, query in enumerate(ids)}
    return {
        "ids": ids,
        "texts": [overview.queries.get(query, "") for query in ids],
        "values": [[_rounded_values(entry, measure, len(ids)) for entry in entries] for measure in overview.measures],
        "tags": _tag_columns(overview, ids),
        "failed": {
            str(i): {
                str(position_by_query[query]): reason
                for query, reason in entry.failed.items()
                if query in position_by_query
            }
            for i, entry in enumerate(entries)
            if entry.failed
        },
    }


def _rounded_values(entry: SystemSummary, measure: str, n: int) -> list[float | None]:
    if measure not in entry.scores[0].values:
        return [None] * n
    return [None if math.isnan(value) else round(value, 6) for value in entry.values(measure).tolist()]


def _tag_columns(overview: Overview, ids: Sequence[str]) -> list[dict[str, Any]]:
    columns = []
    for tag, parts in overview.strata.items():
        names = [part.value for part in parts]
        position_by_name = {name: i for i, name in enumerate(names)}
        values = [overview.tags.get(query, {}).get(tag, "") for query in ids]
        columns.append({"tag": tag, "names": names, "of": [position_by_name.get(name, -1) for name in values]})
    return columns


def build_rankings_payload(overview: Overview) -> dict[str, Any] | None:
    """Return the rankings of the queries that differ most, with grades and texts.

    Returns None if runs or judgments are unknown.
    """
    systems = find_browsable_systems(overview)
    judgments = overview.judgments
    if judgments is None or not _has_rankings(overview, systems):
        return None
    runs = {name: overview.entries[name].run for name in systems}
    ids = overview.entries[systems[0]].scores[0].queries
    depth = find_ranking_depth(overview)
    query_positions = _most_changed_queries(overview, systems, _count_ranked_queries(overview, systems))
    places: list[int | None] = [None] * len(ids)
    for row, query in enumerate(query_positions):
        places[query] = row
    queries = [ids[i] for i in query_positions]
    numbers: dict[str, int] = {}
    first = overview.entries[systems[0]].scores[0]
    ties = "trec" if first.judged is None else first.judged.ties
    lists = [_ranking_arrays(run.table, queries, depth, numbers, ties) for run in runs.values() if run is not None]
    rel = first.rel
    grades = [judgments.nested.get(query, {}) for query in queries]
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


def _has_rankings(overview: Overview, systems: Sequence[str]) -> bool:
    runs = [overview.entries[name].run for name in systems]
    return overview.judgments is not None and None not in runs and any(run and run.table.height for run in runs)


def _count_ranked_queries(overview: Overview, systems: Sequence[str]) -> int:
    """Return the maximum number of queries whose rankings are in the page."""
    return max(1, MAX_RANKING_ROWS // (find_ranking_depth(overview) * len(systems)))


def find_ranking_depth(overview: Overview) -> int:
    """Return the number of documents per ranking in the page.

    It is the cutoff of the first measure, limited to 5 to 20.
    """
    measure = find_measure(overview.first)
    if measure is None or measure.cutoff is None or measure.spec.cutoff == "level":
        return DEFAULT_RANKING_DEPTH
    return min(max(int(measure.cutoff), 5), 20)


def _most_changed_queries(overview: Overview, systems: Sequence[str], max_queries: int) -> list[int]:
    """Return positions of the `max_queries` queries that differ most between systems."""
    table: Floats = np.array([overview.entries[name].values(overview.first) for name in systems])
    filled = np.where(np.isnan(table), 0.0, table)
    spread = filled.max(axis=0) - filled.min(axis=0)
    return [int(i) for i in np.argsort(-spread, kind="stable")[:max_queries]]


def _ranking_arrays(
    table: Any, queries: Sequence[str], depth: int, numbers: dict[str, int], ties: str
) -> dict[str, list[Any]]:
    """Return the top documents of the wanted queries as flat arrays.

    They are in the order that was scored: by score, and ties by the rule `ties`.
    """
    import polars as pl

    frame = pl.DataFrame({"query": pl.Series(queries, dtype=pl.String), "place": np.arange(len(queries))})
    descending = {"place": False, "score": True, **({"doc": True} if ties != "ranked" else {})}
    if ties == "ranked" and "rank" in table.columns:
        descending["rank"] = False
    rankings = (
        frame.join(table, on="query", how="inner", maintain_order="right")
        .sort(list(descending), descending=list(descending.values()), nulls_last=True, maintain_order=True)
        .group_by("place", maintain_order=True)
        .head(depth)
    )
    sizes = np.bincount(rankings["place"].to_numpy(), minlength=len(queries))
    return {
        "starts": np.concatenate([[0], np.cumsum(sizes)]).tolist(),
        "docs": [numbers.setdefault(doc, len(numbers)) for doc in rankings["doc"].to_list()],
        "scores": [_round_score(score) for score in rankings["score"].to_list()],
    }


def _round_score(score: float | None) -> float | None:
    """Round a score to five significant digits; None if it is not finite."""
    if score is None or not math.isfinite(score):
        return None
    return float(f"{score:.5g}")


def _first_query_positions(lists: Sequence[Mapping[str, Any]], n: int) -> Floats:
    """Return for each document the first query that contains it, by position."""
    first = np.full(n, np.inf)
    for ids in lists:
        owners = np.repeat(np.arange(len(ids["starts"]) - 1), np.diff(ids["starts"]))
        np.minimum.at(first, np.array(ids["docs"], np.int64), owners)
    return first


def _document_snippets(ids: Sequence[str], order: Floats, documents: Mapping[str, Document]) -> list[list[str] | None]:
    """Return title and snippet of each document, up to the text limit.

    `order` decides which documents come first; None marks those left out.
    """
    snippets: list[list[str] | None] = [None] * len(ids)
    remaining_chars = MAX_TEXT_CHARS
    for i in np.argsort(order, kind="stable").tolist():
        document = documents.get(ids[i])
        if remaining_chars <= 0:
            break
        if document is None:
            continue
        text = " ".join(document.text[: 2 * SNIPPET_CHARS].split())
        text = text if len(text) <= SNIPPET_CHARS else text[: SNIPPET_CHARS - 1] + "…"
        remaining_chars -= len(text) + len(document.title)
        snippets[i] = [document.title, text]
    return snippets


def _explorer_settings(overview: Overview, systems: Sequence[str]) -> dict[str, Any]:
    """Return the initial settings of the list of queries.

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
        "noun": overview.nouns[0],
        "plural": overview.nouns[1],
        "unavailable": "The rankings of this query are not in the page, because its scores differ less than others.",
    }


def _describe_explorer(overview: Overview, systems: Sequence[str]) -> str:
    order = "the largest differences" if len(systems) > 1 else "the lowest scores"
    parts = [f"{overview.nouns[1].capitalize()} with {order} come first."]
    if overview.judge:
        return " ".join([*parts, "The page of each folder of `ragauge judge` has their claims and verdicts."])
    if not _has_rankings(overview, systems):
        return " ".join([*parts, "Rankings are not available."])
    depth = find_ranking_depth(overview)
    parts.append(f"Open a query to see its rankings to depth {depth}, with grades, scores and texts.")
    left_out = len(overview.entries[systems[0]].scores[0].queries) - _count_ranked_queries(overview, systems)
    if left_out > 0:
        parts.append(f"{left_out:,} queries with the smallest differences have no rankings, to limit the page size.")
    if not overview.documents:
        parts.append("Texts of documents are not available.")
    return " ".join(parts)
