"""A run as a folder: `manifest.json`, `run.parquet` (query, doc, rank, score), `timings.parquet` (a row a query)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ragauge.errors import BadInput
from ragauge.formats.writing import whole_file
from ragauge.records import Run
from ragauge.runs.execute import Answer
from ragauge.stages import STAGES


def as_run(name: str, answers: Sequence[Answer], manifest: Mapping[str, Any]) -> Run:
    """A run from answers: the ranking of the first time each query was asked, the timings of every time."""
    first = [one for one in answers if one.repeat == 0]
    sizes = [len(one.docs) for one in first]
    table = pl.DataFrame(
        {
            "query": pl.Series([one.query for one in first for _ in one.docs], dtype=pl.String),
            "doc": pl.Series([doc for one in first for doc in one.docs], dtype=pl.String),
            "rank": pl.Series([rank for n in sizes for rank in range(1, n + 1)], dtype=pl.Int64),
            "score": pl.Series([score for one in first for score in one.scores], dtype=pl.Float64),
        }
    )
    columns = {name: name for name in STAGES} | {name: name for one in answers for name in one.stages}
    timings = pl.DataFrame(
        {
            "query": pl.Series([one.query for one in answers], dtype=pl.String),
            "repeat": pl.Series([one.repeat for one in answers], dtype=pl.Int32),
            "session": pl.Series([one.session for one in answers], dtype=pl.Int32),
            "status": pl.Series([one.status for one in answers], dtype=pl.String),
            "error": pl.Series([one.error or None for one in answers], dtype=pl.String),
            "attempts": pl.Series([one.attempts for one in answers], dtype=pl.Int32),
            "began_ns": pl.Series([one.began for one in answers], dtype=pl.Int64),
            **{
                f"{stage}_ns": pl.Series([one.stages.get(stage) for one in answers], dtype=pl.Int64)
                for stage in columns
            },
            "total_ns": pl.Series([one.total for one in answers], dtype=pl.Int64),
        }
    )
    return Run(table, name, timings, manifest)


def changed_rankings(answers: Sequence[Answer]) -> int:
    """How many queries got another ranking when they were asked again."""
    first = {one.query: one.docs for one in answers if one.repeat == 0}
    return len({one.query for one in answers if one.status == "ok" and first.get(one.query) != one.docs})


def write(run: Run, folder: Path) -> None:
    """Write a run; the manifest comes last, so that a folder with one is complete."""
    for name, table in (("run", run.table), ("timings", run.timings)):
        if table is not None:
            with whole_file(str(folder / f"{name}.parquet")) as out:
                table.write_parquet(out)
    write_json(run.manifest, folder / "manifest.json")


def write_json(data: Mapping[str, Any], path: Path) -> None:
    """A JSON file, whole."""
    with whole_file(str(path)) as out:
        out.write(json.dumps(dict(data), indent=2, ensure_ascii=False, default=str).encode() + b"\n")


def is_complete(folder: Path) -> bool:
    """Whether a folder holds a finished run."""
    return (folder / "manifest.json").exists() and (folder / "run.parquet").exists()


def read(folder: Path) -> Run:
    """A run that was written here."""
    if not is_complete(folder):
        raise BadInput("holds no finished run", file=str(folder), hint="the command that began it finishes it")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    timings = folder / "timings.parquet"
    return Run(
        pl.read_parquet(folder / "run.parquet"),
        str(manifest.get("system", {}).get("name", folder.name)),
        pl.read_parquet(timings) if timings.exists() else None,
        manifest,
    )
