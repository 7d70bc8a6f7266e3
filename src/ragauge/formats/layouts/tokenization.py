"""Read and write the tokenization study's tables of models and tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.errors import BadInput
from ragauge.formats.files import Source
from ragauge.formats.layouts.cells import (
    Wanted,
    as_csv,
    count,
    figures_of,
    left_out,
    milliseconds,
    read_sheet,
    speed_of,
)
from ragauge.outcomes import Mean
from ragauge.overviews import Entry, Overview

MEASURES: Mapping[str, str] = {
    "mrr": "mrr@15",
    "recall@1": "recall@1",
    "recall@5": "recall@5",
    "recall@10": "recall@10",
    "recall@15": "recall@15",
    "precision@1": "precision@1",
    "precision@5": "precision@5",
    "precision@10": "precision@10",
    "precision@15": "precision@15",
}
"""Measure behind each column. The study uses 15 documents per query."""
STAGES: Mapping[str, str] = {"avg_embedding_ms": "embed", "avg_retrieval_ms": "retrieve", "avg_total_ms": "total"}
COLUMNS = ("model", "num_queries", "mrr", *STAGES, *(name for name in MEASURES if name != "mrr"))
WANTED = Wanted("tokenization", "tokenization", tuple(MEASURES.values()))


def read(path: str) -> Overview:
    """Read means and mean latencies of each model."""
    source = Source(path)
    rows = read_sheet(path, ("model", "num_queries"), MEASURES, "the tokenization study")
    entries: dict[str, Entry] = {}
    for at in range(len(rows)):
        line, name = rows.line(at), rows.id("model", at, "model")
        if name in entries:
            raise BadInput(f"model `{name}` has two rows", file=source.label, line=line)
        n = count(rows.columns["num_queries"][at], "num_queries", source.label, line) or 0
        means = {MEASURES[told]: Mean(value, n) for told, value in figures_of(rows, at, MEASURES).items()}
        times = figures_of(rows, at, STAGES)
        speed = speed_of({STAGES[told]: {"mean": value} for told, value in times.items()}, n)
        entries[name] = Entry(name, means, speed=speed)
    measures = [one for one in WANTED.measures if any(one in entry.means for entry in entries.values())]
    notes = [
        "num_queries counts the queries that failed, and the means may leave them out: the file does not say",
        *left_out(rows, COLUMNS),
    ]
    return Overview(source.stem, entries, measures, WANTED.convention, notes=notes)


def write(overview: Overview) -> str:
    """Format an overview as the table of models. Unknown values are empty."""
    WANTED.check(overview)
    rows: list[dict[str, Any]] = []
    for name, entry in overview.entries.items():
        means = {told: entry.means[mine] for told, mine in MEASURES.items() if mine in entry.means}
        rows.append(
            {
                "model": name,
                "num_queries": max((mean.n for mean in means.values()), default=0) or None,
                **{told: milliseconds(entry.speed, stage) for told, stage in STAGES.items()},
                **{told: mean.value for told, mean in means.items()},
            }
        )
    return as_csv(COLUMNS, rows)
