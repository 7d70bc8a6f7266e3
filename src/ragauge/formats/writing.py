"""Write judgments, runs and queries in every format that can be read."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from ragauge.errors import BadInput, MissingExtra, words_of
from ragauge.formats import FORMATS, beir, documents, trec
from ragauge.formats.columns import whole_grades, write_text
from ragauge.formats.files import Source
from ragauge.formats.parquet import write_parquet
from ragauge.keys import has_secrets, redact_bytes
from ragauge.records import Judgments, Run
from ragauge.temporary_files import replace_file

if TYPE_CHECKING:
    import polars as pl

ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}


TEXT_ENDINGS = {*ENDINGS, ".html", ".md", ".tex", ".txt", ".svg", ".run", ".trec", ".qrels", ".toml", ""} - {".parquet"}
"""Endings of files in which secrets are redacted while they are written."""


def format_of(path: str) -> str:
    """Return the format for a path by its ending; TREC for other endings."""
    if path.endswith(os.sep):
        return "beir"
    return ENDINGS.get(Source(path).ending, "trec")


def refuse_unwritable(path: str, *, folder: bool = False) -> None:
    """Raise BadInput if a path cannot be written later; nothing is written now."""
    target = Path(path)
    if path == "-":
        return
    if target.exists() and target.is_dir() is not folder:
        raise BadInput("is a file, not a folder" if folder else "is a folder, not a file to write", file=path)
    above = target.absolute().parents
    there = next(one for one in ((target, *above) if folder else above) if one.exists())
    if not there.is_dir():
        raise BadInput(f"cannot be written: {there.name} is a file, not a folder", file=path)
    if not os.access(there, os.W_OK):
        raise BadInput("cannot be written: that is not allowed here", file=path)


@contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file that appears only when it is complete.

    `-` is standard output; .gz and .zst are compressed. Of concurrent writers, the last one to finish wins. A device
    or pipe is written directly.
    """
    if path == "-":
        yield sys.stdout.buffer
        return
    target = Path(path)
    if not target.name or target.is_dir():
        raise BadInput("is a folder, not a file to write", file=path)
    try:
        # A device or a pipe cannot be replaced by a file.
        direct = target.exists() and not target.is_file()
        with nullcontext(target) if direct else replace_file(target) as part, _compressed(part, path) as out:
            if has_secrets() and Source(path).ending in TEXT_ENDINGS:
                redacting = RedactingWriter(out)
                yield cast(IO[bytes], redacting)
                redacting.finish()
            else:
                yield out
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=path) from None
    except Exception as error:
        if "IO error: " not in str(error):
            raise
        # polars wraps the message of the file system if a Parquet file does not fit on the disk.
        reason = words_of(error).rpartition("IO error: ")[2]
        raise BadInput(f"cannot be written ({reason})", file=path) from None


class RedactingWriter:
    """A binary file object that redacts registered secrets in whole lines before it writes them."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._line = b""

    def write(self, data: bytes) -> int:
        """Write the complete lines and buffer the rest."""
        lines = self._line + bytes(data)
        end = lines.rfind(b"\n") + 1
        self._out.write(redact_bytes(lines[:end]))
        self._line = lines[end:]
        return len(data)

    def finish(self) -> None:
        """Write the buffered last line."""
        self._out.write(redact_bytes(self._line))
        self._line = b""

    def flush(self) -> None:
        """Flush the complete lines."""
        self._out.flush()


def _compressed(part: Path, path: str) -> IO[bytes]:
    if path.endswith(".gz"):
        return io.BufferedWriter(gzip.open(part, "wb", compresslevel=6))
    if path.endswith(".zst"):
        try:
            import zstandard
        except ImportError:
            raise MissingExtra("writing .zst", "zstd") from None
        opened: IO[bytes] = zstandard.open(part, "wb")
        return opened
    return part.open("wb")


def write_judgments(judgments: Judgments, path: str, format: str | None = None) -> None:
    """Write judgments; the default format is that of the file ending."""
    kind = format or format_of(path)
    if kind == "beir" and (path.endswith(os.sep) or Path(path).is_dir()):
        path = str(Path(path) / "qrels" / "test.tsv")
    with whole_file(path) as out:
        if kind == "trec":
            trec.write_qrels(judgments.frame, out)
        elif kind == "subtopics":
            write_text(_subtopic_frame(judgments), out, separator=" ", header=False)
        elif kind == "beir":
            beir.write_tsv(judgments.frame, out)
        elif kind == "rig":
            documents.write_rig(judgments, out)
        elif kind == "json":
            documents.write_json(judgments.nested, out)
        else:
            frame = judgments.frame if judgments.subtopics is None else _subtopic_frame(judgments)
            _write_table(frame.rename({"query": "query_id", "doc": "doc_id", "grade": "relevance"}), out, kind)


def _subtopic_frame(judgments: Judgments) -> pl.DataFrame:
    import polars as pl

    if judgments.subtopics is None:
        raise BadInput("these judgments have no subtopics", file=judgments.source)
    rows = [(q, *key.split("\t", 1), grade) for q, docs in judgments.subtopics.items() for key, grade in docs.items()]
    return whole_grades(pl.DataFrame(rows, schema=["query", "subtopic", "doc", "grade"], orient="row"))


def write_queries(queries: Mapping[str, str], tags: Mapping[str, Mapping[str, str]], path: str) -> None:
    """Write queries as Parquet: `query`, `text`, and `tags` as JSON."""
    import polars as pl

    rows = [
        (query, text.encode("utf-8", "replace").decode(), json.dumps(dict(tags.get(query, {}))))
        for query, text in queries.items()
    ]
    with whole_file(path) as out:
        write_parquet(pl.DataFrame(rows, schema=dict.fromkeys(("query", "text", "tags"), pl.String), orient="row"), out)


def write_run(run: Run, path: str, format: str | None = None) -> None:
    """Write a run; the default format is that of the file ending."""
    kind = format or format_of(path)
    if kind in ("beir", "rig", "subtopics"):
        raise BadInput(f"a run cannot be written as {kind}", hint=f"one of {', '.join(FORMATS)}")
    with whole_file(path) as out:
        if kind == "trec":
            trec.write_run(run.frames(), out, run.name)
        elif kind == "json":
            documents.write_json(run.nested, out)
        else:
            _write_table(run.table.rename({"query": "query_id", "doc": "doc_id"}), out, kind)


def _write_table(table: pl.DataFrame, out: IO[bytes], kind: str) -> None:
    if kind == "parquet":
        write_parquet(table, out)
    elif kind == "jsonl":
        out.write(table.write_ndjson().encode())
    else:
        write_text(table, out, separator="\t" if kind == "tsv" else ",", header=True, quoting=True)
