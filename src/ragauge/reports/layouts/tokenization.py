"""Read and write the tokenization study's table of tokenizers.

The layout does not define `avg_tokens_per_…` and `compression_ratio`. Here the averages are the total number of
tokens divided by the total number of words, characters or bytes. The ratio is bytes per token.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.comparison.results import Entry, Overview
from ragauge.core.errors import BadInput
from ragauge.core.summaries import Mean, Speed
from ragauge.embedder_study.results import Entrant, Lineup, Tokenizers, Tokens
from ragauge.files.source import Source
from ragauge.reports.layouts.cells import (
    Wanted,
    as_csv,
    count,
    figures_of,
    left_out,
    milliseconds,
    read_sheet,
    speed_of,
)

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


TIMED = "timed_queries"
"""Extra column of ragauge, written if not all queries were timed."""


def write_study(lineup: Lineup) -> str:
    """Format an embedder study as the table. Values that were not measured are empty.

    If some queries were not timed, the extra column `timed_queries` has the number of timed ones.
    """
    found = overview(lineup)
    try:
        text = write(found)
    except BadInput as error:  # The measures of a finished study cannot be changed.
        again = "the same `ragauge embedders` with --as tokenization, and without -m and -C, measures what it wants"
        raise BadInput(error.message, hint=again) from None
    timed = {name: one.speed.asked for name, one in found.entries.items() if one.speed is not None}
    return _timed(text, list(found.entries), timed) if any(n < lineup.queries for n in timed.values()) else text


def _timed(text: str, names: list[str], timed: Mapping[str, int]) -> str:
    """Add the number of timed queries to the table. Rows are in the order of `names`."""
    header, *rows = csv.reader(io.StringIO(text))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*header, TIMED])
    for name, row in zip(names, rows, strict=True):
        writer.writerow([*row, timed.get(name, "")])
    return out.getvalue()


def check(measures: Sequence[str], convention: str) -> None:
    """Raise BadInput if the table cannot contain the measures."""
    planned = Entry("planned", {name: Mean(math.nan, 0) for name in measures})
    WANTED.check(Overview("planned", {"planned": planned}, measures, convention))


def overview(lineup: Lineup) -> Overview:
    """Return the overview of an embedder study that the layout is written from.

    Latencies are those of the first store. Queries without a vector count in `num_queries` and score 0. The
    tokenization study's own table excluded them from the means.
    """
    entries = {one.name: Entry(one.name, dict(one.means), speed=_speed(one)) for one in lineup.entrants}
    measures = [name for name in WANTED.measures if any(name in one.means for one in entries.values())]
    return Overview(
        lineup.dataset, entries, measures, lineup.convention, dataset=lineup.dataset, failures=dict(lineup.failures)
    )


def _speed(one: Entrant) -> Speed | None:
    """Return the latencies in the first store that was timed, or None."""
    shelf = next((shelf for shelf in one.shelves if shelf.stages), None)
    if shelf is None:
        return None
    n = max(stage.n for stage in shelf.stages.values())
    return Speed(dict(shelf.stages), float("nan"), n, 0, 0)


class Row(NamedTuple):
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


TOKENIZER_COLUMNS = Row._fields
COUNTS = TOKENIZER_COLUMNS[1:3]
FIGURES = TOKENIZER_COLUMNS[3:]
NEAR = 0.01
"""Relative tolerance for rounded values."""


class Sheet(NamedTuple):
    """Rows of a table of tokenizers, with notes on inconsistencies."""

    rows: list[Row]
    notes: list[str]


def row_of(one: Tokens) -> Row:
    """Convert tokenizer statistics to a row of the table."""
    return Row(
        one.tokenizer,
        one.vocabulary,
        one.used,
        one.used_share,
        one.per_document.get("mean"),
        one.per_document.get("p50"),
        one.per_word,
        one.per_character,
        one.per_byte,
        one.compression,
    )


def write_tokenizers(found: Tokenizers) -> str:
    """Format a tokenizer study as the table, with exactly its columns.

    Unknown values are empty.
    """
    return as_csv(TOKENIZER_COLUMNS, [row_of(one)._asdict() for one in found.rows])


def read_tokenizers(path: str) -> Sheet:
    """Read a table of tokenizers.

    Notes name inconsistent values, e.g. another compression ratio.
    """
    source = Source(path)
    rows = read_sheet(path, ("tokenizer",), TOKENIZER_COLUMNS[1:], "the tokenization study's tokenizers")
    found: dict[str, Row] = {}
    notes = left_out(rows, TOKENIZER_COLUMNS)
    for at in range(len(rows)):
        line, name = rows.line(at), rows.id("tokenizer", at, "tokenizer")
        if name in found:
            raise BadInput(f"tokenizer `{name}` has two rows", file=source.label, line=line)
        counts = {
            told: count(rows.columns[told][at], told, source.label, line) for told in COUNTS if told in rows.columns
        }
        figures = figures_of(rows, at, FIGURES)
        for told, value in figures.items():
            if value < 0:
                raise BadInput(f"{told} is {value:g}, below 0", file=source.label, line=line)
        found[name] = Row(name, counts.get(COUNTS[0]), counts.get(COUNTS[1]), **figures)
        notes += _doubts(found[name])
    return Sheet(list(found.values()), notes)


def _doubts(row: Row) -> list[str]:
    """Describe inconsistencies between the values of a row.

    >>> _doubts(Row("bpe", 100, 50, 0.5, avg_tokens_per_char=0.25, avg_tokens_per_byte=0.2, compression_ratio=4.0))
    ['bpe: compression_ratio is characters for a token, not bytes']
    """
    told = []
    if row.vocab_size and row.unique_tokens_used is not None and row.vocab_utilization is not None:
        share = row.unique_tokens_used / row.vocab_size
        if not _near(share, row.vocab_utilization):
            percent = " (it is in per cent)" if _near(100 * share, row.vocab_utilization) else ""
            told.append(
                f"{row.tokenizer}: vocab_utilization is {row.vocab_utilization:g}, and {row.unique_tokens_used:,} of "
                f"{row.vocab_size:,} are {share:.4g}{percent}"
            )
    ratio, of_bytes, of_characters = row.compression_ratio, row.avg_tokens_per_byte, row.avg_tokens_per_char
    if ratio is not None and of_bytes and not _near(ratio * of_bytes, 1):
        if of_characters and _near(ratio * of_characters, 1):
            told.append(f"{row.tokenizer}: compression_ratio is characters for a token, not bytes")
        else:
            told.append(f"{row.tokenizer}: compression_ratio is {ratio:g}, and a token has {1 / of_bytes:.4g} bytes")
    return told


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR * max(abs(one), abs(other))
