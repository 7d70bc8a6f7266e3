"""Read and write the tables of the tokenization study: models and tokenizers.

The layout does not define `avg_tokens_per_…` and `compression_ratio`. Here the averages are the total number of
tokens divided by the total number of words, characters or bytes. The ratio is bytes per token.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.errors import BadInput
from ragauge.core.summaries import Mean, Speed
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy, TokenizerStats, TokenizerStudy
from ragauge.files.source import InputFile
from ragauge.reports.layouts.cells import (
    LayoutMeasures,
    build_speed,
    find_latency_ms,
    parse_count,
    parse_row_numbers,
    read_layout_table,
    to_csv,
    unknown_column_notes,
)

MEASURE_BY_COLUMN: Mapping[str, str] = {
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
STAGE_BY_COLUMN: Mapping[str, str] = {
    "avg_embedding_ms": "embed",
    "avg_retrieval_ms": "retrieve",
    "avg_total_ms": "total",
}
MODEL_COLUMNS = (
    "model",
    "num_queries",
    "mrr",
    *STAGE_BY_COLUMN,
    *(name for name in MEASURE_BY_COLUMN if name != "mrr"),
)
LAYOUT_MEASURES = LayoutMeasures("tokenization", "tokenization", tuple(MEASURE_BY_COLUMN.values()))


def read_model_table(path: str) -> Overview:
    """Read means and mean latencies of each model."""
    source = InputFile(path)
    rows = read_layout_table(path, ("model", "num_queries"), MEASURE_BY_COLUMN, "the tokenization study")
    entries: dict[str, SystemSummary] = {}
    for at in range(len(rows)):
        line, name = rows.line(at), rows.id("model", at, "model")
        if name in entries:
            raise BadInput(f"model `{name}` has two rows", file=source.label, line=line)
        n = parse_count(rows.columns["num_queries"][at], "num_queries", source.label, line) or 0
        means = {
            MEASURE_BY_COLUMN[column]: Mean(value, n)
            for column, value in parse_row_numbers(rows, at, MEASURE_BY_COLUMN).items()
        }
        times = parse_row_numbers(rows, at, STAGE_BY_COLUMN)
        speed = build_speed({STAGE_BY_COLUMN[column]: {"mean": value} for column, value in times.items()}, n)
        entries[name] = SystemSummary(name, means, speed=speed)
    measures = [
        measure for measure in LAYOUT_MEASURES.measures if any(measure in entry.means for entry in entries.values())
    ]
    notes = [
        "num_queries includes failed queries; the file does not state whether the means do",
        *unknown_column_notes(rows, MODEL_COLUMNS),
    ]
    return Overview(source.stem, entries, measures, LAYOUT_MEASURES.convention, notes=notes)


def render_model_table(overview: Overview) -> str:
    """Format an overview as the table of models. Unknown values are empty."""
    LAYOUT_MEASURES.check(overview)
    rows: list[dict[str, Any]] = []
    for name, entry in overview.entries.items():
        means = {
            column: entry.means[measure] for column, measure in MEASURE_BY_COLUMN.items() if measure in entry.means
        }
        rows.append(
            {
                "model": name,
                "num_queries": max((mean.n for mean in means.values()), default=0) or None,
                **{column: find_latency_ms(entry.speed, stage) for column, stage in STAGE_BY_COLUMN.items()},
                **{column: mean.value for column, mean in means.items()},
            }
        )
    return to_csv(MODEL_COLUMNS, rows)


TIMED_QUERIES_COLUMN = "timed_queries"
"""Extra column of ragauge, written if not all queries were timed."""


def render_embedder_table(study: EmbedderStudy) -> str:
    """Format an embedder study as the table. Values that were not measured are empty.

    If some queries were not timed, the extra column `timed_queries` has the number of timed ones.
    """
    overview = study_overview(study)
    try:
        text = render_model_table(overview)
    except BadInput as error:  # The measures of a finished study cannot be changed.
        hint = "run `ragauge embedders` again with --format tokenization, and without -m and -C"
        raise BadInput(error.message, hint=hint) from None
    timed = {name: entry.speed.asked for name, entry in overview.entries.items() if entry.speed is not None}
    return (
        _add_timed_queries(text, list(overview.entries), timed)
        if any(n < study.queries for n in timed.values())
        else text
    )


def _add_timed_queries(text: str, names: list[str], timed: Mapping[str, int]) -> str:
    """Add the number of timed queries to the table. Rows are in the order of `names`."""
    header, *rows = csv.reader(io.StringIO(text))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*header, TIMED_QUERIES_COLUMN])
    for name, row in zip(names, rows, strict=True):
        writer.writerow([*row, timed.get(name, "")])
    return out.getvalue()


def check_layout_measures(measures: Sequence[str], convention: str) -> None:
    """Raise BadInput if the table cannot contain the measures."""
    planned = SystemSummary("planned", {name: Mean(math.nan, 0) for name in measures})
    LAYOUT_MEASURES.check(Overview("planned", {"planned": planned}, measures, convention))


def study_overview(study: EmbedderStudy) -> Overview:
    """Return the overview of an embedder study that the layout is written from.

    Latencies are those of the first store. Queries without a vector count in `num_queries` and score 0. The
    tokenization study's own table excluded them from the means.
    """
    entries = {
        embedder.name: SystemSummary(embedder.name, dict(embedder.means), speed=_first_store_speed(embedder))
        for embedder in study.embedders
    }
    measures = [name for name in LAYOUT_MEASURES.measures if any(name in entry.means for entry in entries.values())]
    return Overview(
        study.dataset, entries, measures, study.convention, dataset=study.dataset, failures=dict(study.failures)
    )


def _first_store_speed(embedder: EmbedderResult) -> Speed | None:
    """Return the latencies in the first store that was timed, or None."""
    store = next((store for store in embedder.stores if store.stages), None)
    if store is None:
        return None
    n = max(stage.n for stage in store.stages.values())
    return Speed(dict(store.stages), float("nan"), n, 0, 0)


class TokenizerRow(NamedTuple):
    """Row of the table of tokenizers. None marks an empty cell."""

    tokenizer: str
    vocab_size: int | None = None
    unique_tokens_used: int | None = None
    vocab_utilization: float | None = None
    avg_tokens_per_doc: float | None = None
    median_tokens_per_doc: float | None = None
    avg_tokens_per_word: float | None = None
    avg_tokens_per_char: float | None = None
    avg_tokens_per_byte: float | None = None
    compression_ratio: float | None = None


TOKENIZER_COLUMNS = TokenizerRow._fields
COUNT_COLUMNS = TOKENIZER_COLUMNS[1:3]
RATIO_COLUMNS = TOKENIZER_COLUMNS[3:]


class TokenizerTable(NamedTuple):
    """Rows of a table of tokenizers, with notes on unknown columns."""

    rows: list[TokenizerRow]
    notes: list[str]


def to_tokenizer_row(stats: TokenizerStats) -> TokenizerRow:
    """Convert tokenizer statistics to a row of the table."""
    return TokenizerRow(
        stats.tokenizer,
        stats.vocabulary,
        stats.used,
        stats.used_share,
        stats.per_document.get("mean"),
        stats.per_document.get("p50"),
        stats.per_word,
        stats.per_character,
        stats.per_byte,
        stats.compression,
    )


def render_tokenizer_table(study: TokenizerStudy) -> str:
    """Format a tokenizer study as the table, with exactly its columns.

    Unknown values are empty.
    """
    return to_csv(TOKENIZER_COLUMNS, [to_tokenizer_row(stats)._asdict() for stats in study.tokenizers])


def read_tokenizer_table(path: str) -> TokenizerTable:
    source = InputFile(path)
    rows = read_layout_table(path, ("tokenizer",), TOKENIZER_COLUMNS[1:], "the tokenization study's tokenizers")
    rows_by_name: dict[str, TokenizerRow] = {}
    notes = unknown_column_notes(rows, TOKENIZER_COLUMNS)
    for at in range(len(rows)):
        line, name = rows.line(at), rows.id("tokenizer", at, "tokenizer")
        if name in rows_by_name:
            raise BadInput(f"tokenizer `{name}` has two rows", file=source.label, line=line)
        counts = {
            column: parse_count(rows.columns[column][at], column, source.label, line)
            for column in COUNT_COLUMNS
            if column in rows.columns
        }
        ratios = parse_row_numbers(rows, at, RATIO_COLUMNS)
        for ratio_column, value in ratios.items():
            if value < 0:
                raise BadInput(f"{ratio_column} must be at least 0, got {value:g}", file=source.label, line=line)
        rows_by_name[name] = TokenizerRow(name, counts.get(COUNT_COLUMNS[0]), counts.get(COUNT_COLUMNS[1]), **ratios)
    return TokenizerTable(list(rows_by_name.values()), notes)
