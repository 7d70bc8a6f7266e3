"""Read and write pgVectorDB's result table: one row per method and K."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.errors import BadInput
from ragauge.core.summaries import Mean
from ragauge.files.source import InputFile
from ragauge.reports.layouts.cells import (
    LayoutMeasures,
    find_latency_ms,
    parse_count,
    parse_row_numbers,
    read_layout_table,
    to_csv,
    unknown_column_notes,
)

MEASURE_BY_COLUMN: Mapping[str, str] = {
    "Precision@K": "precision",
    "Recall@K": "recall",
    "F1@K": "f1(of=means)",
    "MAP@K": "map",
    "MRR": "mrr",
    "NDCG@K": "ndcg(gain=binary)",
    "Hit Rate": "hit_rate",
}
"""Measure behind each column, all at K, including MRR and hit rate. F1 is computed from mean precision and mean recall.
"""
LATENCY_COLUMN = "Latency (ms)"
COLUMNS = ("Method", "K", *MEASURE_BY_COLUMN, LATENCY_COLUMN)
DEFAULT_KS = (1, 3, 5, 10)


def measures_at(ks: Sequence[int]) -> tuple[str, ...]:
    """Return the measures of the table at some cutoffs.

    >>> measures_at([5])[:3]
    ('precision@5', 'recall@5', 'f1(of=means)@5')
    """
    return tuple(f"{name}@{k}" for k in ks for name in MEASURE_BY_COLUMN.values())


def read_pgvectordb(path: str) -> Overview:
    """Read the means of each method at each K.

    The number of queries is not in the file.
    """
    source = InputFile(path)
    rows = read_layout_table(path, ("Method", "K"), MEASURE_BY_COLUMN, "pgVectorDB")
    means: dict[str, dict[str, Mean]] = {}
    costs: dict[str, dict[str, float]] = {}
    method_cutoffs: set[tuple[str, int]] = set()
    for at in range(len(rows)):
        line, name = rows.line(at), rows.id("Method", at, "method")
        k = parse_count(rows.columns["K"][at], "K", source.label, line)
        if not k:
            raise BadInput(f"K of `{name}` is {'missing' if k is None else 0}", file=source.label, line=line)
        if (name, k) in method_cutoffs:
            raise BadInput(f"method `{name}` has two rows with K {k}", file=source.label, line=line)
        method_cutoffs.add((name, k))
        row_numbers = parse_row_numbers(rows, at, (*MEASURE_BY_COLUMN, LATENCY_COLUMN))
        means.setdefault(name, {}).update(
            {
                f"{entry}@{k}": Mean(row_numbers[column], 0)
                for column, entry in MEASURE_BY_COLUMN.items()
                if column in row_numbers
            }
        )
        entry = costs.setdefault(name, {})
        if LATENCY_COLUMN in row_numbers:
            entry[latency_cost_name(k)] = row_numbers[LATENCY_COLUMN]
    ks = sorted({k for _, k in method_cutoffs})
    measures = [measure for measure in measures_at(ks) if any(measure in entry for entry in means.values())]
    systems = {name: SystemSummary(name, means[name], costs=costs[name]) for name in means}
    return Overview(source.stem, systems, measures, "pgvectordb", notes=unknown_column_notes(rows, COLUMNS))


def render_pgvectordb(overview: Overview) -> str:
    """Format an overview as the table, at every K that it contains.

    A latency is written only for the K that was requested, because other K were not measured.
    """
    LayoutMeasures("pgvectordb", "pgvectordb", measures_at(_find_cutoffs(overview)) or measures_at(DEFAULT_KS)).check(
        overview
    )
    rows: list[dict[str, Any]] = []
    for name, entry in overview.entries.items():
        requested_k = (entry.manifest.get("plan") or {}).get("k")
        for k in _find_cutoffs(overview):
            values = {
                column: entry.means[f"{measure}@{k}"].value
                for column, measure in MEASURE_BY_COLUMN.items()
                if f"{measure}@{k}" in entry.means
            }
            latency = (
                find_latency_ms(entry.speed, "total") if requested_k == k else entry.costs.get(latency_cost_name(k))
            )
            if values or latency is not None:
                rows.append({"Method": name, "K": k, **values, LATENCY_COLUMN: latency})
    return to_csv(COLUMNS, rows)


def latency_cost_name(k: int) -> str:
    """Return the cost name of the mean latency of a query with k documents."""
    return f"latency_at_{k}_ms"


def _find_cutoffs(overview: Overview) -> list[int]:
    """Return every K at which a system has one of the measures."""
    cutoffs = set()
    for entry in overview.entries.values():
        for name in entry.means:
            parts = re.fullmatch(r"(.+)@(\d+)", name)
            if parts and parts[1] in MEASURE_BY_COLUMN.values():
                cutoffs.add(int(parts[2]))
    return sorted(cutoffs)
