"""Read and write the tokenization study's table of tokenizers.

The layout does not define `avg_tokens_per_…` and `compression_ratio`. Here the averages are the total number of
tokens divided by the total number of words, characters or bytes. The ratio is bytes per token.
"""

from __future__ import annotations

from typing import NamedTuple

from ragauge.errors import BadInput
from ragauge.formats.files import Source
from ragauge.formats.layouts.cells import as_csv, count, figures_of, left_out, read_sheet
from ragauge.lineups import Tokenizers, Tokens


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


COLUMNS = Row._fields
COUNTS = COLUMNS[1:3]
FIGURES = COLUMNS[3:]
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


def write(found: Tokenizers) -> str:
    """Format a tokenizer study as the table, with exactly its columns.

    Unknown values are empty.
    """
    return as_csv(COLUMNS, [row_of(one)._asdict() for one in found.rows])


def read(path: str) -> Sheet:
    """Read a table of tokenizers.

    Notes name inconsistent values, e.g. another compression ratio.
    """
    source = Source(path)
    rows = read_sheet(path, ("tokenizer",), COLUMNS[1:], "the tokenization study's tokenizers")
    found: dict[str, Row] = {}
    notes = left_out(rows, COLUMNS)
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
