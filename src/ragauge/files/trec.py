r"""TREC run files and judgments: `query Q0 document rank score tag` and `query iteration document grade`.

Most files are plain: single spaces between fields and nothing else. These bytes are passed to polars unchanged.
Anything else that trec_eval reads (tabs, several spaces, comments, blank lines, CRLF, fields after the tag) is first
normalised to that form, if the bytes of a block require it. If neither works, the invalid line is named.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.records import FrameTransform, identity_transform
from ragauge.files.source import InputFile, map_in_order
from ragauge.files.table_files import integer_grades, write_delimited_text

if TYPE_CHECKING:
    import polars as pl


RUN_FIELDS = ("query", "iteration", "doc", "rank", "score", "tag")
QRELS_FIELDS = ("query", "iteration", "doc", "grade")
_SCAN_BYTES = 1 << 18
_BLANKS_TO_SPACES = bytes.maketrans(b"\t\r\v\f", b"    ")


@dataclass(frozen=True, eq=False)
class TrecRun:
    """A TREC run file, read in blocks on each use."""

    source: InputFile
    with_ranks: bool = False
    _last: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Stem of the file name."""
        return self.source.stem

    @property
    def tag(self) -> str:
        """Tag of the last line that was read, as trec_eval prints it."""
        return self._last[-1] if self._last else ""

    def frames(self, prepare: FrameTransform = identity_transform) -> Iterator[pl.DataFrame]:
        """Yield the columns query, doc and score (and rank if requested) of each block."""
        columns = [0, 2, 3, 4] if self.with_ranks else [0, 2, 4]

        def read(number: int, block: bytes) -> tuple[pl.DataFrame, str]:
            frame, tag = _parse_run_block(self.source, number, block, columns)
            return prepare(frame), tag

        rows = 0
        for frame, tag in map_in_order(read, self.source.blocks()):
            if tag:
                self._last[:] = [tag]
            rows += frame.height
            yield frame
        if not rows:
            raise BadInput("no rows", file=self.source.label, hint="a TREC run has `query Q0 document rank score tag`")


def _parse_run_block(source: InputFile, number: int, block: bytes, columns: list[int]) -> tuple[pl.DataFrame, str]:
    import polars as pl

    schema = {name: pl.Float64 if name in ("score", "rank") else pl.String for name in RUN_FIELDS}
    frame = _parse_block(source, number, block, schema, columns)
    last_fields = block[block.rfind(b"\n", 0, -1) + 1 :].split()
    return frame, last_fields[5].decode("utf-8", "replace") if len(last_fields) > 5 else ""


def read_qrels(source: InputFile) -> pl.DataFrame:
    """Read the columns query, iteration, doc and grade of a TREC judgments file.

    In judgments of subtopics, the iteration is the subtopic.
    """
    import polars as pl

    schema = {name: pl.Float64 if name == "grade" else pl.String for name in QRELS_FIELDS}

    def read(number: int, block: bytes) -> pl.DataFrame:
        return _parse_block(source, number, block, schema, [0, 1, 2, 3])

    frames = list(map_in_order(read, source.blocks()))
    if not sum(frame.height for frame in frames):
        raise BadInput("no rows", file=source.label, hint="TREC judgments have `query 0 document grade`")
    return pl.concat(frames)


def _parse_block(
    source: InputFile, number: int, block: bytes, schema: Mapping[str, type[pl.DataType]], columns: list[int]
) -> pl.DataFrame:
    """Parse the wanted columns of a block; raise BadInput at the invalid line."""
    import polars as pl

    names = list(schema)
    numbers = [names[i] for i in columns if schema[names[i]] == pl.Float64]
    text = block if _is_plain_block(block, len(schema)) else _normalise_block(source, number, block, names)
    if not text:
        return pl.DataFrame(schema={names[i]: schema[names[i]] for i in columns})
    frame = None
    with contextlib.suppress(pl.exceptions.PolarsError):
        frame = pl.read_csv(text, has_header=False, separator=" ", columns=columns, quote_char=None, schema=schema)
    if frame is None or any(frame[n].null_count() or frame[n].is_nan().any() for n in numbers):
        _check_lines(source, number, block, names, numbers)
        raise BadInput("polars could not read the text that ragauge could", file=source.label)
    return frame


def _is_plain_block(block: bytes, fields: int) -> bool:
    """Return whether fields are separated by single spaces.

    On average, lines must have `fields` fields. A block with one line too long and one too short passes. polars
    cannot read it, and then the line is found.
    """
    data = np.frombuffer(block, np.uint8)
    lines = blanks = 0
    blank, pairs = np.empty(_SCAN_BYTES + 1, np.bool_), np.empty(_SCAN_BYTES, np.bool_)
    for begin in range(0, len(data), _SCAN_BYTES):
        piece = data[begin : begin + _SCAN_BYTES + 1]  # one byte more, so that no pair is split
        n = min(_SCAN_BYTES, len(piece))
        np.less_equal(piece, 32, out=blank[: len(piece)])
        if np.logical_and(blank[1 : len(piece)], blank[: len(piece) - 1], out=pairs[: len(piece) - 1]).any():
            return False
        ends = int(np.count_nonzero(np.equal(piece[:n], 10, out=pairs[:n])))
        if np.count_nonzero(np.less(piece[:n], 32, out=pairs[:n])) != ends:
            return False
        lines += ends
        blanks += int(np.count_nonzero(blank[:n]))
    starts_well = block[:1] not in (b"#", b" ", b"\n") and not (b"#" in block and b"\n#" in block)
    return blanks == lines * fields and starts_well


def _normalise_block(source: InputFile, number: int, block: bytes, names: list[str]) -> bytes:
    """Return the rows with single spaces, without comments and blank lines."""
    if re.search(rb"\r(?!\n)[^\n]", block):
        hint = "a carriage return alone ends no line; `tr '\\r' '\\n'` makes lines of them"
        raise BadInput("lines end with CR alone", file=source.label, hint=hint)
    text = block.translate(_BLANKS_TO_SPACES)
    if not _is_plain_block(text, len(names)):
        text = re.sub(rb"(?m)^ +| +$", b"", re.sub(rb" {2,}", b" ", text))
        text = re.sub(rb"\n{2,}", b"\n", re.sub(rb"(?m)^#.*$", b"", text)).lstrip(b"\n")
    if text and not _is_plain_block(
        text, len(names)
    ):  # fields after the tag are legal and cut off; missing ones are not
        _check_lines(source, number, block, names, [])
        text = b"".join(b" ".join(row.split(b" ", len(names))[: len(names)]) + b"\n" for row in text.splitlines())
    return text


def _check_lines(source: InputFile, number: int, block: bytes, names: list[str], numbers: list[str]) -> None:
    """Raise BadInput for the first line with missing fields or an invalid number."""
    for line_number, raw in enumerate(block.split(b"\n"), source.line_of(number)):
        parts = raw.split()
        if not parts or parts[0].startswith(b"#"):
            continue
        if len(parts) < len(names) or (len(parts) > len(names) and names[-1] == "grade"):
            expected = f"expected {len(names)} fields ({' '.join(names)}), found {len(parts)}"
            raise BadInput(expected, file=source.label, line=line_number, hint=_suggest_format(parts, names))
        try:
            texts = [part.decode("utf-8") for part in parts[: len(names)]]
        except UnicodeDecodeError:
            raise BadInput("the line is not UTF-8", file=source.label, line=line_number) from None
        for name in numbers:
            value = texts[names.index(name)]
            try:
                is_invalid = "_" in value or math.isnan(float(value))
            except ValueError:
                is_invalid = True
            if is_invalid:
                raise BadInput(
                    f"the {name} must be a number, got `{value}`",
                    file=source.label,
                    line=line_number,
                    hint=_suggest_number(value, name),
                )


def _suggest_number(value: str, name: str) -> str:
    """Suggest why a field of a TREC file is not a number."""
    if value.lower() in (name, "rel", "relevance", "grade", "score"):
        return "remove the header line"
    if re.fullmatch(r"[-+]?\d+,\d+", value):
        return f"write {value.replace(',', '.')}"
    fields = (
        "judgments have `query iteration document grade`"
        if name == "grade"
        else "a run has `query Q0 document rank score tag`"
    )
    return f"check the order of the columns: {fields}"


def _suggest_format(parts: list[bytes], names: list[str]) -> str | None:
    """Suggest what the file may be instead."""
    judgments = names[-1] == "grade"
    if judgments and len(parts) == 6:
        return "this looks like a run: judgments come first, then runs"
    if not judgments and len(parts) == 4:
        return "these look like judgments: they come first, then runs"
    if not judgments and len(parts) == 3:
        return "a run of MS MARCO needs the header `query_id<tab>doc_id<tab>rank`"
    if judgments and len(parts) == 3:
        return "judgments with three columns are separated by tabs and end in .tsv"
    if len(parts) == 1 and b"," in parts[0]:
        return "this looks like a CSV; it needs a header with a query and a document column"
    return None


def write_run(frames: Iterator[pl.DataFrame], out: IO[bytes], tag: str) -> None:
    """Write a run; ranks count from 1 per query in the order given."""
    import polars as pl

    rank = pl.int_range(1, pl.len() + 1).over("query").alias("rank")
    constants = pl.lit("Q0").alias("iteration"), pl.lit(tag.replace(" ", "_")).alias("tag")
    for frame in frames:
        rows = frame.select("query", constants[0], "doc", rank, "score", constants[1])
        write_delimited_text(rows, out, separator=" ", header=False)


def write_qrels(frame: pl.DataFrame, out: IO[bytes]) -> None:
    """Write judgments; whole grades without a decimal point."""
    import polars as pl

    rows = integer_grades(frame).select("query", pl.lit("0").alias("iteration"), "doc", "grade")
    write_delimited_text(rows, out, separator=" ", header=False)
