"""Read and write run folders: manifest, ranking and timings.

`run.parquet` has the columns query, doc, rank and score. `timings.parquet` has one row per query and trial. With
several trials, `repeats.parquet` (query, repeat, doc, rank, score) has the rankings after the first.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.hashes import digest, hash_documents
from ragauge.core.records import Dataset, Run
from ragauge.core.stages import STAGES
from ragauge.core.structured_text import InvalidText, parse_json
from ragauge.files.json_files import check_manifest
from ragauge.files.parquet import check_column_types, read_parquet, write_parquet
from ragauge.files.parquet_runs import is_multi_file_run
from ragauge.files.serialization import write_record
from ragauge.files.workspace import atomic_write
from ragauge.runs.results import QueryResult

if TYPE_CHECKING:
    import polars as pl


EXPERIMENT_FILE = "experiment.json"
"""File next to the runs of an experiment: its measures, its baseline, and the systems that could not be run."""
MANIFEST_FILE, RANKING_FILE, JOURNAL_FILE = "manifest.json", "run.parquet", "journal.jsonl"
TIMINGS_FILE, TRIALS_FILE = "timings.parquet", "repeats.parquet"
JUDGMENTS_FILE = "judgments.parquet"
"""File next to the runs of an experiment: its judgments."""
RERUN_HINT = "run the command that wrote it again with --fresh"


SINGLE = np.finfo(np.float32)
"""Range of single-precision numbers."""
RUN_COLUMNS = {"query": "text", "doc": "text", "score": "number"}
"""Required columns of a ranking, and their types."""
TIMING_COLUMNS = {
    "query": "text", "repeat": "number", "session": "number", "status": "text", "attempts": "number",
    "began_ns": "number", "total_ns": "number",
}  # fmt: skip
"""Required columns of timings, and their types."""


def build_run(name: str, results: Sequence[QueryResult], manifest: Mapping[str, Any]) -> Run:
    """Build a run from query results: rankings of all trials, and timings.

    The rows are the hits in the order of return, in which a document may be repeated. Scores are made strictly
    decreasing, also in single precision, so that every tool reads this order.
    """
    import polars as pl

    repeats = sorted((result for result in results if result.repeat), key=lambda result: result.repeat)
    columns = dict.fromkeys([*STAGES, *(name for result in results for name in result.stages)])
    timings = pl.DataFrame(
        {
            "query": pl.Series([_encodable_text(result.query) for result in results], dtype=pl.String),
            "repeat": pl.Series([result.repeat for result in results], dtype=pl.Int32),
            "session": pl.Series([result.session for result in results], dtype=pl.Int32),
            "status": pl.Series([result.status for result in results], dtype=pl.String),
            "error": pl.Series([_encodable_text(result.error) or None for result in results], dtype=pl.String),
            "attempts": pl.Series([result.attempts for result in results], dtype=pl.Int32),
            "complete": pl.Series([bool(result.complete) for result in results], dtype=pl.Boolean),
            "began_ns": pl.Series([result.began for result in results], dtype=pl.Int64),
            **{
                _stage_column(stage): pl.Series([result.stages.get(stage) for result in results], dtype=pl.Int64)
                for stage in columns
            },
            "total_ns": pl.Series([result.total for result in results], dtype=pl.Int64),
        }
    )
    first = _rankings_frame([result for result in results if not result.repeat]).drop("repeat")
    return Run(first, name, timings, manifest, _rankings_frame(repeats) if repeats else None)


def _rankings_frame(results: Sequence[QueryResult]) -> pl.DataFrame:
    import polars as pl

    schema = {"query": pl.String, "repeat": pl.Int32, "doc": pl.String, "rank": pl.Int64, "score": pl.Float64}
    return pl.DataFrame([row for result in results for row in _ranking_rows(result)], schema=schema, orient="row")


def _ranking_rows(result: QueryResult) -> Iterator[tuple[str, int, str, int, float]]:
    scores = _strictly_decreasing(result.scores)
    for rank, (doc, score) in enumerate(zip(result.docs, scores, strict=True), 1):
        yield _encodable_text(result.query), result.repeat, _encodable_text(doc), rank, score


def _strictly_decreasing(scores: Sequence[float]) -> list[float]:
    """Return scores that decrease strictly in single precision.

    A score that does not is replaced by the next lower single-precision number. Near the lowest number, which has
    none, the scores above are raised.

    >>> _strictly_decreasing([0.5, 0.25, 0.125]), _strictly_decreasing([0.5, 0.5, 1.0])
    ([0.5, 0.25, 0.125], [0.5, 0.4999999701976776, 0.4999999403953552])
    """
    doubles = np.array(scores, np.float64)
    with np.errstate(over="ignore"):
        single = doubles.astype(np.float32)
    finite = np.clip(np.where(np.isnan(single), np.inf, single), SINGLE.min, SINGLE.max).astype(np.float32)
    # The bits of positive numbers are in numerical order, so that neighbouring numbers differ by 1.
    positions = np.copysign(np.abs(finite).view(np.int32), finite).astype(np.int64)
    step = np.arange(len(positions))
    decreasing = np.minimum.accumulate(positions + step) - step
    decreasing = np.maximum(decreasing, step[::-1] - int(SINGLE.max.view(np.int32)))
    stepped = np.copysign(np.abs(decreasing).astype(np.int32).view(np.float32), decreasing)
    kept = np.isfinite(single) & (decreasing == positions)
    distinct_scores: list[float] = np.where(kept, doubles, stepped).tolist()
    return distinct_scores


def _stage_column(stage: str) -> str:
    """Return the timings column of a stage.

    A stage called `total` does not replace the total.
    """
    return f"{_encodable_text(stage)} stage_ns" if stage in ("began", "total") else f"{_encodable_text(stage)}_ns"


def _encodable_text(text: str) -> str:
    """Replace unpaired surrogates, which cannot be encoded as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def find_successful_results(run: Run) -> list[QueryResult]:
    """Return the successful query results of a run, if their ranking was saved."""
    import polars as pl

    ranked: dict[tuple[str, int], list[tuple[str, float]]] = {}
    rankings = [run.table.select("query", pl.lit(0).alias("repeat"), "doc", "score")]
    timings = pl.DataFrame() if run.timings is None else run.timings.filter(pl.col("status") == "ok")
    if run.repeats is not None:
        rankings.append(run.repeats.select("query", "repeat", "doc", "score"))
    elif run.timings is not None:
        timings = timings.filter(pl.col("repeat") == 0)
    for query, repeat, doc, score in (row for frame in rankings for row in frame.iter_rows()):
        ranked.setdefault((query, repeat), []).append((doc, score))
    stages = [name for name in timings.columns if name.endswith("_ns") and name not in ("began_ns", "total_ns")]
    return [
        QueryResult(
            row["query"],
            row["repeat"],
            [doc for doc, _ in ranked.get((row["query"], row["repeat"]), ())],
            [score for _, score in ranked.get((row["query"], row["repeat"]), ())],
            attempts=row["attempts"],
            began=row["began_ns"],
            total=row["total_ns"],
            stages={name.removesuffix("_ns"): row[name] for name in stages if row[name] is not None},
            session=row["session"],
            complete=bool(row.get("complete")),
        )
        for row in timings.iter_rows(named=True)
    ]


def count_changed_rankings(results: Sequence[QueryResult]) -> int:
    """Count the queries whose ranking differs between trials; failures are ignored."""
    good = [result for result in results if result.status == "ok"]
    first = {result.query: result.docs for result in good if result.repeat == 0}
    return len({result.query for result in good if first.get(result.query, result.docs) != result.docs})


def write_run_folder(run: Run, folder: Path) -> None:
    """Write a run to a folder.

    The manifest is written last, so that a folder with one is complete.
    """
    for name, table in ((RANKING_FILE, run.table), (TRIALS_FILE, run.repeats), (TIMINGS_FILE, run.timings)):
        if table is not None:
            with atomic_write(folder / name) as out:
                write_parquet(table, out)
    write_record(run.manifest, folder / MANIFEST_FILE)


def remove_run_files(folder: Path) -> None:
    """Remove the files of a finished run, the manifest first."""
    for name in (MANIFEST_FILE, RANKING_FILE, TRIALS_FILE, TIMINGS_FILE):
        (folder / name).unlink(missing_ok=True)


def is_complete(folder: Path) -> bool:
    """Return whether a folder contains a finished run."""
    return (folder / MANIFEST_FILE).exists() and (folder / RANKING_FILE).exists()


def has_run(folder: Path) -> bool:
    """Return whether a folder has a finished run; raise BadInput if files are missing."""
    if (folder / JOURNAL_FILE).exists():
        return is_complete(folder)
    present = [name for name in (RANKING_FILE, TIMINGS_FILE) if (folder / name).exists()]
    if present == [RANKING_FILE] and is_multi_file_run(folder):
        return False
    if RANKING_FILE in present and (folder / MANIFEST_FILE).exists():
        return True
    if present or (manifest_value(folder, "plan") is not None and manifest_value(folder, "system") is not None):
        missing = MANIFEST_FILE if RANKING_FILE in present else RANKING_FILE
        raise BadInput(f"{missing} of the finished run is missing", file=str(folder), hint=RERUN_HINT)
    return False


def find_run_folders(folder: Path) -> list[Path]:
    """Return the folders of the finished runs in a folder, by name."""
    return [entry for entry in sorted(folder.iterdir()) if entry.is_dir() and has_run(entry)] if folder.is_dir() else []


def manifest_value(folder: str | Path, name: str, *, file_name: str = MANIFEST_FILE) -> Any:
    """Return an entry of the manifest in a folder; None if it is missing."""
    return read_manifest(folder, file_name=file_name).get(name)


def read_manifest(folder: str | Path, *, file_name: str = MANIFEST_FILE) -> dict[str, Any]:
    """Return the manifest in a folder; empty if there is none."""
    path = Path(folder) / file_name
    try:
        manifest = parse_json(path.read_bytes(), file=str(path), hint=RERUN_HINT)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=str(path)) from None
    except InvalidText as error:
        raise BadInput(f"is corrupt or incomplete ({error.reason})", file=str(path), hint=RERUN_HINT) from None
    if not isinstance(manifest, dict):
        raise BadInput("is corrupt or incomplete (expected a JSON object)", file=str(path), hint=RERUN_HINT)
    return manifest


def read_run_folder(folder: Path) -> Run:
    if not is_complete(folder):
        raise BadInput("contains no finished run", file=str(folder), hint="run the same command again to resume")
    timings, repeats = folder / TIMINGS_FILE, folder / TRIALS_FILE
    try:
        path = folder / MANIFEST_FILE
        manifest = parse_json(path.read_text(encoding="utf-8"), file=str(path))
        check_manifest(manifest)
        name = str(manifest.get("system", {}).get("name", folder.name))
        return Run(
            read_parquet(folder / RANKING_FILE, columns=RUN_COLUMNS),
            name,
            read_timings(timings) if timings.exists() else None,
            manifest,
            read_parquet(repeats, columns={**RUN_COLUMNS, "repeat": "number"}) if repeats.exists() else None,
        )
    except (ValueError, AttributeError, OSError) as error:
        raise BadInput(
            f"the run folder is corrupt or incomplete ({error})", file=str(folder), hint="run it again with --fresh"
        ) from None


def read_timings(path: Path) -> pl.DataFrame:
    """Read the timings of a run: one row per query and trial."""
    timings = read_parquet(path, columns=TIMING_COLUMNS)
    stages = [name for name in timings.columns if name.endswith("_ns")]
    check_column_types(timings, {"error": "text", **dict.fromkeys(stages, "number")}, str(path), complete=False)
    return timings


DATASET_HASHES = {"documents_hash": "documents", "queries_hash": "queries"}
"""Entries of a dataset's fingerprint that must be equal for two runs to be compared, and the counts next to them."""


def utc_now() -> str:
    """Return the current UTC time as an ISO 8601 string, which sorts by time."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def format_timestamp(seconds: float) -> str:
    """Format a Unix time, such as that of a file, in the format of `utc_now`.

    >>> format_timestamp(0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def provenance() -> dict[str, Any]:
    """Return the machine and the versions of Python and of installed libraries."""
    return {
        "python": platform.python_version(),
        "versions": dict(_library_versions()),
        "machine": {
            "processor": _cpu_name(),
            "cores": os.cpu_count(),
            "memory_bytes": _memory_bytes(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
    }


@cache
def _library_versions() -> dict[str, str]:
    """Return the versions of ragauge and of the installed libraries that its package metadata name.

    Those of the extra `dev` have no effect on results. Cached, because it takes about 0.2 seconds.
    """
    required: list[str] = []
    with suppress(PackageNotFoundError):
        required = [text for text in requires("ragauge") or () if not re.search("extra == .dev.", text)]
    versions = {}
    for name in dict.fromkeys(["ragauge", *(re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in required)]):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _cpu_name() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def dataset_fingerprint(dataset: Dataset) -> dict[str, Any]:
    """Return name, counts and hashes of a dataset, to compare the data of two runs."""
    return {
        "name": dataset.name,
        "documents": len(dataset.documents),
        "queries": len(dataset.queries),
        "documents_hash": hash_documents(dataset.documents),
        "queries_hash": digest(part for pair in dataset.queries.items() for part in pair),
    }


def dataset_origin(dataset: Dataset) -> str:
    """Return the origin of a dataset: its own, an absolute folder, or its name.

    It is not part of the fingerprint, because a folder that is moved contains the same data.

    >>> from ragauge.core.records import Judgments
    >>> dataset_origin(Dataset("pydocs", [], {}, Judgments({}), about="Python's own documentation"))
    'pydocs'
    """
    if dataset.origin:
        return dataset.origin
    try:
        folder = bool(dataset.about) and Path(dataset.about).is_dir()
    except (OSError, ValueError):  # A description that is too long for a folder name.
        folder = False
    return str(Path(dataset.about).resolve()) if folder else dataset.name
