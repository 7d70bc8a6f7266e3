"""Read and write pgVectorDB's result table: one row per method and K."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.comparison.results import Entry, Overview
from ragauge.core.errors import BadInput
from ragauge.core.summaries import Mean
from ragauge.files.source import Source
from ragauge.reports.layouts.cells import Wanted, as_csv, count, figures_of, left_out, milliseconds, read_sheet

MEASURES: Mapping[str, str] = {
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
LATENCY = "Latency (ms)"
COLUMNS = ("Method", "K", *MEASURES, LATENCY)
KS = (1, 3, 5, 10)


def measures(ks: Sequence[int]) -> tuple[str, ...]:
    """Return the measures of the table at some cutoffs.

    >>> measures([5])[:3]
    ('precision@5', 'recall@5', 'f1(of=means)@5')
    """
    return tuple(f"{name}@{k}" for k in ks for name in MEASURES.values())


def read(path: str) -> Overview:
    """Read the means of each method at each K.

    The number of queries is not in the file.
    """
    source = Source(path)
    rows = read_sheet(path, ("Method", "K"), MEASURES, "pgVectorDB")
    means: dict[str, dict[str, Mean]] = {}
    costs: dict[str, dict[str, float]] = {}
    seen: set[tuple[str, int]] = set()
    for at in range(len(rows)):
        line, name = rows.line(at), rows.id("Method", at, "method")
        k = count(rows.columns["K"][at], "K", source.label, line)
        if not k:
            raise BadInput(f"K of `{name}` is {'missing' if k is None else 0}", file=source.label, line=line)
        if (name, k) in seen:
            raise BadInput(f"method `{name}` has two rows with K {k}", file=source.label, line=line)
        seen.add((name, k))
        told = figures_of(rows, at, (*MEASURES, LATENCY))
        means.setdefault(name, {}).update(
            {f"{mine}@{k}": Mean(told[column], 0) for column, mine in MEASURES.items() if column in told}
        )
        mine = costs.setdefault(name, {})
        if LATENCY in told:
            mine[latency_at(k)] = told[LATENCY]
    ks = sorted({k for _, k in seen})
    known = [one for one in measures(ks) if any(one in mine for mine in means.values())]
    entries = {name: Entry(name, means[name], costs=costs[name]) for name in means}
    return Overview(source.stem, entries, known, "pgvectordb", notes=left_out(rows, COLUMNS))


def write(overview: Overview) -> str:
    """Format an overview as the table, at every K that it contains.

    A latency is written only for the K that was requested, because other K were not measured.
    """
    Wanted("pgvectordb", "pgvectordb", measures(_ks(overview)) or measures(KS)).check(overview)
    rows: list[dict[str, Any]] = []
    for name, entry in overview.entries.items():
        asked = (entry.manifest.get("plan") or {}).get("k")
        for k in _ks(overview):
            told = {
                column: entry.means[f"{mine}@{k}"].value
                for column, mine in MEASURES.items()
                if f"{mine}@{k}" in entry.means
            }
            latency = milliseconds(entry.speed, "total") if asked == k else entry.costs.get(latency_at(k))
            if told or latency is not None:
                rows.append({"Method": name, "K": k, **told, LATENCY: latency})
    return as_csv(COLUMNS, rows)


def latency_at(k: int) -> str:
    """Return the cost name of the mean latency of a query with k documents."""
    return f"latency_at_{k}_ms"


def _ks(overview: Overview) -> list[int]:
    """Return every K at which a system has one of the measures."""
    found = set()
    for entry in overview.entries.values():
        for name in entry.means:
            parts = re.fullmatch(r"(.+)@(\d+)", name)
            if parts and parts[1] in MEASURES.values():
                found.add(int(parts[2]))
    return sorted(found)
