"""Read run folders into the summaries that a history is built from."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ragauge.core.errors import BadInput, MissingEvidence, RagaugeError, error_summary
from ragauge.core.hashes import hash_bytes, judgment_hashes
from ragauge.core.records import Floats, Scores
from ragauge.core.structured_text import parse_json
from ragauge.evaluation import default_run_measures
from ragauge.evaluation.indicators import find_aggregate, find_measure
from ragauge.experiments.history.rescoring import rescore_run
from ragauge.files.readers import read_judgments
from ragauge.measures.registry import mean
from ragauge.runs.folder import EXPERIMENT_FILE, read_timings

if TYPE_CHECKING:
    import polars as pl


EXPERIMENT_INPUT_FILES = ("scores.csv", "judgments.parquet", EXPERIMENT_FILE)
RUN_INPUT_FILES = ("manifest.json", "run.parquet", "repeats.parquet", "timings.parquet")
"""Files read from the folder of an experiment (above) and from the folder of each run."""
MAX_FOLDER_DEPTH = 8
"""Maximum number of folder levels searched below a given folder."""
MAX_FOLDERS = 100_000
"""Maximum number of folders searched. Stops at a link to a very large tree."""

FileTimes = dict[str, int]
"""Modification time in nanoseconds of each file that is read, by its path within the folder."""


def find_experiment_folders(folders: Sequence[str | Path]) -> tuple[dict[str, FileTimes], dict[str, str]]:
    """Find experiment folders at and below the given folders.

    Returns the file times by folder, and the reason by folder that was skipped.
    """
    folder_times: dict[str, FileTimes] = {}
    skipped: dict[str, str] = {}
    visited: set[tuple[int, int]] = set()
    for path in folders:
        folder = Path(path)
        if not folder.is_dir():
            problem = "is a file, not a folder" if folder.exists() else "no such folder"
            raise BadInput(problem, file=str(folder), hint="give a folder with results of `ragauge run`, such as runs")
        if _scan_folder(folder, 0, visited, folder_times, skipped) is not None:
            raise BadInput("is a single run", file=str(folder), hint=f"give the folder above it: {folder.parent}")
    return folder_times, skipped


def _scan_folder(
    folder: Path, depth: int, visited: set[tuple[int, int]], folder_times: dict[str, FileTimes], skipped: dict[str, str]
) -> FileTimes | None:
    """Search a folder and its subfolders.

    Return its file times if the folder itself is a run, else None.
    """
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
        files = {entry.name: entry for entry in inside if entry.is_file()}
        subfolders = [entry for entry in inside if entry.is_dir() and not entry.name.startswith(".")]
        if "manifest.json" in files and "run.parquet" in files:
            return _file_times(files, RUN_INPUT_FILES)
        if any(name in files for name in ("manifest.json", "run.parquet", "journal.jsonl")):
            skipped[str(folder)] = "contains an unfinished or incomplete run"
            return None
        stat = os.stat(folder)
        file_times = _file_times(files, EXPERIMENT_INPUT_FILES)
    except OSError as error:
        skipped[str(folder)] = f"cannot be read ({error.strerror})"
        return None
    if (stat.st_dev, stat.st_ino) in visited:  # A duplicate argument, or a link to a parent folder.
        return None
    visited.add((stat.st_dev, stat.st_ino))
    if len(visited) > MAX_FOLDERS:
        raise BadInput(
            f"contains more than {MAX_FOLDERS:,} folders", file=str(folder), hint="give the folders of results"
        )
    if depth >= MAX_FOLDER_DEPTH and subfolders:
        skipped[str(folder)] = f"its subfolders are more than {MAX_FOLDER_DEPTH} levels deep"
        return None
    runs = 0
    for subfolder in subfolders:
        if not subfolder.name.isascii() and subfolder.name.encode("utf-8", "replace").decode() != subfolder.name:
            skipped[str(folder / subfolder.name)] = "its name is not UTF-8"
            continue
        run_times = _scan_folder(folder / subfolder.name, depth + 1, visited, folder_times, skipped)
        if run_times is not None:
            runs += 1
            file_times |= {f"{subfolder.name}/{name}": changed for name, changed in run_times.items()}
    if runs and "judgments.parquet" in files:
        folder_times[str(folder)] = file_times
    elif runs:
        skipped[str(folder)] = "contains runs but no judgments.parquet, which `ragauge run` writes at its end"
    elif "judgments.parquet" in files and "queries.parquet" in files:
        skipped[str(folder)] = "contains no finished run"
    return None


def _file_times(files: Mapping[str, os.DirEntry[str]], names: Sequence[str]) -> FileTimes:
    return {name: files[name].stat().st_mtime_ns for name in names if name in files}


class MeanWithSpread(NamedTuple):
    """Mean of a measure with a standard deviation or a stored interval.

    Timings have an interval (`low`, `high`) instead of a deviation. Unavailable values are NaN.
    """

    value: float
    n: int
    deviation: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class RunSummary:
    """Summary of one run in an experiment folder."""

    name: str
    folder_name: str
    """Name of the run's folder within the experiment folder."""
    finish_date: str
    data: Mapping[str, Any]
    plan: Mapping[str, Any]
    machine: Mapping[str, Any]
    costs: Mapping[str, float | None]
    """Values of `cold_ms` and `build_seconds`; None if not recorded."""
    has_current_scores: bool
    """Whether scores.csv has current scores of this run."""
    means: dict[str, MeanWithSpread] = field(default_factory=dict)
    """Means by measure, for the measures that the run was scored by."""
    uncomputed: dict[str, str] = field(default_factory=dict)
    """`{measure: reason}` for measures that cannot be recomputed, e.g. user-defined ones or those that lack data."""

    @property
    def finished(self) -> datetime:
        """Time at which the run finished, in UTC."""
        return parse_utc_time(self.finish_date)


@dataclass(frozen=True)
class ExperimentSummary:
    judgments: str
    """Hash of the content of the judgments."""
    convention: str
    """Name of the convention; empty if unknown."""
    systems: list[RunSummary]
    problems: dict[str, str]
    """`{folder of a run: why it could not be read}`."""


def parse_utc_time(text: str) -> datetime:
    """Parse a time recorded in a manifest and convert it to UTC.

    >>> parse_utc_time("2026-11-15T19:00:00+01:00").isoformat()
    '2026-11-15T18:00:00+00:00'
    """
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def read_experiment_summary(folder: Path, changed: FileTimes) -> ExperimentSummary:
    """Read the summary of an experiment folder.

    `changed` has the modification times of its files. A run that cannot be read is listed in `problems`. Raises
    BadInput if the folder itself cannot be read.
    """
    about = _read_json_object(folder / EXPERIMENT_FILE) if (folder / EXPERIMENT_FILE).exists() else {}
    grades = _judgment_hashes(folder / "judgments.parquet")[0]
    values, convention = read_scores_table(folder) if "scores.csv" in changed else (None, "")
    convention = str(about.get("convention") or convention)
    tallied = {} if values is None else _means_by_system(values, folder / "scores.csv")
    names = about.get("measures")
    measures = [str(name) for name in names] if isinstance(names, list) else []
    measures = measures or list(dict.fromkeys(measure for means in tallied.values() for measure in means))
    systems, problems = [], {}
    for run_name in dict.fromkeys(name.rpartition("/")[0] for name in changed if "/" in name):
        try:
            # Scores older than the run or the judgments may belong to earlier files.
            is_older = changed.get("scores.csv", 0) < max(
                changed[f"{run_name}/run.parquet"], changed["judgments.parquet"]
            )
            run = _read_run_summary(folder / run_name, {} if is_older else tallied)
            _check_judgments(folder, run_name)
            missing = [measure for measure in measures if measure not in run.means] or (
                [] if run.means else default_measures_for(run)
            )
            _score_missing_measures(folder, run, missing, convention, grades)
            systems.append(run)
        except RagaugeError as error:
            problems[run_name] = error.message
    return ExperimentSummary(grades, convention, systems, problems)


def _score_missing_measures(
    folder: Path, run: RunSummary, measures: Sequence[str], convention: str, grades: str
) -> None:
    """Score a run by measures that its folder names but has no scores of.

    Measures that cannot be computed are added to `uncomputed` with the reason.
    """
    run.uncomputed.update({name: f"unknown measure `{name}`" for name in measures if find_measure(name) is None})
    known_measures = [name for name in measures if name not in run.uncomputed]
    try:
        scores = rescore_run(folder, run.folder_name, known_measures, convention, grades) if known_measures else None
    except MissingEvidence as error:
        if len(known_measures) == 1:
            run.uncomputed[known_measures[0]] = error.message
            return
        for name in known_measures:
            _score_missing_measures(folder, run, [name], convention, grades)
    else:
        run.means.update({} if scores is None else {name: mean_from_scores(scores, name) for name in scores.measures})


def default_measures_for(run: RunSummary) -> list[str]:
    """Return the measures that `run` uses by default."""
    return list(default_run_measures(run.plan.get("k") or 10))


def _read_run_summary(folder: Path, tallied: Mapping[str, Mapping[str, MeanWithSpread]]) -> RunSummary:
    manifest = _read_json_object(folder / "manifest.json")
    parts = {name: manifest.get(name) or {} for name in ("system", "dataset", "plan", "machine")}
    when = manifest.get("finished")
    if not all(isinstance(part, dict) for part in parts.values()):
        raise BadInput("is corrupt or incomplete", file=str(folder / "manifest.json"))
    try:
        parse_utc_time(when)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise BadInput("has no valid time at which the run finished", file=str(folder / "manifest.json")) from None
    name = str(parts["system"].get("name") or folder.name)
    values = {cost: manifest.get(cost) for cost in ("cold_ms", "build_seconds")}
    costs = {cost: float(value) if isinstance(value, int | float) else None for cost, value in values.items()}
    tallies = dict(tallied.get(name, {}))
    return RunSummary(
        name, folder.name, str(when), parts["dataset"], parts["plan"], parts["machine"], costs, name in tallied, tallies
    )


def _check_judgments(folder: Path, run_name: str) -> None:
    """Raise BadInput if a run was made with other judgments than those of its folder."""
    expected = _read_json_object(folder / run_name / "manifest.json").get("judgments_hash")
    if expected is None:
        return
    known_hashes = _judgment_hashes(folder / "judgments.parquet")
    if expected not in known_hashes:
        raise BadInput(f"the run was made with other judgments; expected hash {expected}, got {known_hashes[0]}")


def _read_json_object(path: Path) -> dict[str, Any]:
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"is corrupt or incomplete ({error})", file=str(path)) from None
    if not isinstance(data, dict):
        raise BadInput("is corrupt or incomplete (expected an object)", file=str(path))
    return data


def read_scores_table(folder: Path) -> tuple[pl.DataFrame, str]:
    """Read scores.csv as a table of run, measure, query and value.

    Also returns the convention. Values are means over trials. The convention is "" if the file does not name one.
    """
    import polars as pl

    path = folder / "scores.csv"
    try:
        table = pl.read_csv(path.read_bytes(), infer_schema=False)  # A path could be interpreted as a glob pattern.
        texts = [name for name in ("run", "query") if name in table.columns]
        table = table.with_columns(pl.col(texts).str.replace(r"^'('*(?:[=@\t\r]|[+-].*[(|!=]))", "$1"))
        conventions = table["convention"].drop_nulls().unique().to_list() if "convention" in table.columns else []
        keys = ["run", "measure", "query"]
        if table.select(pl.any_horizontal(pl.col(keys).null_count() > 0)).item():
            raise ValueError("a value without run, measure or query")
        if "trial" in table.columns:
            if table.select(*keys, "trial").is_duplicated().any():
                raise ValueError("duplicate values")
            table = table.with_columns(_value_column()).group_by(keys, maintain_order=True).agg(pl.col("value").mean())
            return table, ", ".join(conventions)
        return table.select(*keys, _value_column()), ", ".join(conventions)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise BadInput(
            f"is corrupt or incomplete ({error_summary(error, max_chars=120)})",
            file=str(path),
            hint="`ragauge run` writes it",
        ) from None


def _value_column() -> pl.Expr:
    import polars as pl

    return pl.col("value").cast(pl.Float64).fill_nan(None)


def _means_by_system(table: pl.DataFrame, path: Path) -> dict[str, dict[str, MeanWithSpread]]:
    """Compute means by system and measure.

    Measures without per-query aggregation are omitted.
    """
    import polars as pl

    value = pl.col("value")
    means: dict[str, dict[str, MeanWithSpread]] = {}
    for run, measure, rows, queries, endless, n, middle, deviation in (
        table.group_by(["run", "measure"], maintain_order=True)
        .agg(
            pl.len(),
            pl.col("query").n_unique(),
            value.is_infinite().any().alias("endless"),
            value.count().alias("n"),
            value.mean().alias("mean"),
            value.std().alias("deviation"),
        )
        .iter_rows()
    ):
        if rows != queries or endless:
            problem = "has duplicate queries" if rows != queries else "is infinite"
            raise BadInput(f"is corrupt or incomplete ({measure} of {run} {problem})", file=str(path))
        aggregate = _find_aggregate(measure)
        run_means = means.setdefault(run, {})
        if aggregate is mean:
            run_means[measure] = (
                MeanWithSpread(math.nan, 0) if not n else MeanWithSpread(middle, n, math.nan if n < 2 else deviation)
            )
        elif aggregate is not None:
            values = table.filter((pl.col("run") == run) & (pl.col("measure") == measure))["value"].drop_nulls()
            run_means[measure] = _mean_with_spread(values.to_numpy(), aggregate)
    return means


_find_aggregate = lru_cache(maxsize=1000)(find_aggregate)


def _mean_with_spread(values: Floats, aggregate: Any) -> MeanWithSpread:
    n = len(values)
    if not n:
        return MeanWithSpread(math.nan, 0)
    return MeanWithSpread(
        float(aggregate(values)), n, float(values.std(ddof=1)) if aggregate is mean and n > 1 else math.nan
    )


def mean_from_scores(scores: Scores, measure: str) -> MeanWithSpread:
    """Compute the mean of a measure from scores.

    It has a standard deviation only if it is an arithmetic mean.
    """
    values = scores.values[measure]
    values = values[values == values]  # noqa: PLR0124 - without those that are not a number
    if _find_aggregate(measure) is mean:
        return _mean_with_spread(values, mean)
    return MeanWithSpread(scores.means[measure], len(values))


def read_run_timings(run: Path) -> pl.DataFrame | None:
    """Read the timings of a run, or return None if it has none."""
    path = run / "timings.parquet"
    return read_timings(path) if path.exists() else None


ScoreTables = dict[str, "pl.DataFrame"]
"""Cached scores.csv tables by folder."""


def load_query_values(
    folder: Path, run: RunSummary, measure: str, convention: str, experiment: ExperimentSummary, tables: ScoreTables
) -> dict[str, float]:
    """Return the value of each scored query, from scores.csv or computed from the run."""
    if run.has_current_scores and measure in run.means and convention == experiment.convention:
        import polars as pl

        if str(folder) not in tables:
            tables[str(folder)] = read_scores_table(folder)[0]
        values = (
            tables[str(folder)].filter((pl.col("run") == run.name) & (pl.col("measure") == measure)).drop_nulls("value")
        )
        if values.height:
            return dict(zip(values["query"].to_list(), values["value"].to_list(), strict=True))
    return rescore_run(folder, run.folder_name, [measure], convention, experiment.judgments).per_query[measure]


def _judgment_hashes(path: Path) -> tuple[str, str]:
    """Return the hashes of a judgments file, see `judgment_hashes`; cached for identical files."""
    try:
        key = hash_bytes(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=str(path)) from None
    if key not in _JUDGMENT_HASH_CACHE:
        _JUDGMENT_HASH_CACHE[key] = judgment_hashes(read_judgments(path))
    return _JUDGMENT_HASH_CACHE[key]


_JUDGMENT_HASH_CACHE: dict[str, tuple[str, str]] = {}
