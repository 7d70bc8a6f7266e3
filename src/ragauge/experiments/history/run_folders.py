"""Read run folders into the summaries that a history is built from."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ragauge.core.errors import BadInput, MissingEvidence, RagaugeError
from ragauge.core.records import Floats, Scores
from ragauge.core.structured_text import parse_json
from ragauge.evaluation import default_run_measures
from ragauge.evaluation.indicators import aggregate_of, measure_of
from ragauge.experiments.history.rescoring import score_again
from ragauge.files.parquet import read_parquet
from ragauge.files.readers import read_judgments
from ragauge.measures.registry import mean
from ragauge.runs.folder import EXPERIMENT, judgments_hash, read_timings

if TYPE_CHECKING:
    import polars as pl


BESIDE = ("scores.csv", "judgments.parquet", EXPERIMENT, "report.md")
OF_RUN = ("manifest.json", "run.parquet", "repeats.parquet", "timings.parquet")
"""Files read from the folder of an experiment (above) and from the folder of each run."""
DEPTH = 8
"""Maximum number of folder levels searched below a given folder."""
MOST = 100_000
"""Maximum number of folders searched. Stops at a link to a very large tree."""

Stamp = list[tuple[str, int, int]]
"""Path within the folder, size in bytes and modification time in nanoseconds of each file that is read."""


def find(folders: Sequence[str | Path]) -> tuple[dict[str, Stamp], dict[str, str]]:
    """Find experiment folders at and below the given folders.

    Returns the stamp by folder, and the reason by folder that was skipped.
    """
    found: dict[str, Stamp] = {}
    skipped: dict[str, str] = {}
    seen: set[tuple[int, int]] = set()
    for one in folders:
        folder = Path(one)
        if not folder.is_dir():
            what = "is a file, not a folder" if folder.exists() else "no such folder"
            raise BadInput(what, file=str(folder), hint="a folder that holds what `ragauge run` wrote, such as runs")
        if _look(folder, 0, seen, found, skipped) is not None:
            raise BadInput("is a single run", file=str(folder), hint=f"give the folder above it: {folder.parent}")
    return found, skipped


def _look(
    folder: Path, depth: int, seen: set[tuple[int, int]], found: dict[str, Stamp], skipped: dict[str, str]
) -> Stamp | None:
    """Search a folder and its subfolders.

    Return the stamp if the folder itself is a run, else None.
    """
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
        files = {one.name: one for one in inside if one.is_file()}
        below = [one for one in inside if one.is_dir() and not one.name.startswith(".")]
        if "manifest.json" in files and "run.parquet" in files:
            return _stamp(files, OF_RUN)
        if any(name in files for name in ("manifest.json", "run.parquet", "journal.jsonl")):
            skipped[str(folder)] = "holds a run that is not finished, or not whole"
            return None
        here = os.stat(folder)
        mine = _stamp(files, BESIDE)
    except OSError as error:
        skipped[str(folder)] = f"cannot be looked into ({error.strerror})"
        return None
    if (here.st_dev, here.st_ino) in seen:  # A duplicate argument, or a link to a parent folder.
        return None
    seen.add((here.st_dev, here.st_ino))
    if len(seen) > MOST:
        raise BadInput(f"more than {MOST:,} folders are below", file=str(folder), hint="give the folders of results")
    if depth >= DEPTH and below:
        skipped[str(folder)] = f"what is below it is more than {DEPTH} folders down"
        return None
    runs = 0
    for one in below:
        if not one.name.isascii() and one.name.encode("utf-8", "replace").decode() != one.name:
            skipped[str(folder / one.name)] = "its name is not UTF-8"
            continue
        stamp = _look(folder / one.name, depth + 1, seen, found, skipped)
        if stamp is not None:
            runs += 1
            mine += [(f"{one.name}/{name}", size, changed) for name, size, changed in stamp]
    if runs and "judgments.parquet" in files:
        found[str(folder)] = mine
    elif runs:
        skipped[str(folder)] = "holds runs, but no judgments.parquet: `ragauge run` writes it when it comes to its end"
    elif "judgments.parquet" in files and "queries.parquet" in files:
        skipped[str(folder)] = "holds no finished run"
    return None


def _stamp(files: Mapping[str, os.DirEntry[str]], names: Sequence[str]) -> Stamp:
    known = [(name, files[name].stat()) for name in names if name in files]
    return [(name, one.st_size, one.st_mtime_ns) for name, one in known]


class Tally(NamedTuple):
    """Mean of a measure with a standard deviation or a stored interval.

    Timings have an interval (`low`, `high`) instead of a deviation. Unavailable values are NaN.
    """

    value: float
    n: int
    deviation: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Told:
    """Summary of one run in an experiment folder."""

    name: str
    place: str
    """Name of the run's folder within the experiment folder."""
    when: str
    data: Mapping[str, Any]
    plan: Mapping[str, Any]
    machine: Mapping[str, Any]
    costs: Mapping[str, float | None]
    """Values of `cold_ms` and `build_seconds`; None if not recorded."""
    scored: bool
    """Whether scores.csv has current scores of this run."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    """Means by measure, for the measures that the run was scored by."""
    more: dict[str, Tally] = field(default_factory=dict)
    """Cached values computed on request; the key combines the convention or confidence with the name."""
    uncounted: dict[str, str] = field(default_factory=dict)
    """`{measure: reason}` for measures that cannot be recomputed, e.g. user-defined ones or those that lack data."""

    @property
    def finished(self) -> datetime:
        """Time at which the run finished, in UTC."""
        return moment(self.when)


@dataclass(frozen=True)
class Kept:
    """Summary of an experiment folder."""

    stamp: Stamp
    judgments: str
    """Hash of the content of the judgments."""
    convention: str
    """Name of the convention; empty if unknown."""
    systems: list[Told]
    problems: dict[str, str]
    """`{folder of a run: why it could not be read}`."""


def moment(text: str) -> datetime:
    """Parse a time recorded in a manifest and convert it to UTC.

    >>> moment("2026-11-15T19:00:00+01:00").isoformat()
    '2026-11-15T18:00:00+00:00'
    """
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def read(folder: Path, stamp: Stamp) -> Kept:
    """Read the summary of an experiment folder.

    A run that cannot be read is listed in `problems`. Raises BadInput if the folder itself cannot be read.
    """
    about = _json(folder / EXPERIMENT) if (folder / EXPERIMENT).exists() else {}
    grades = _judgments_hash(folder / "judgments.parquet")
    changed = {name: when for name, _, when in stamp}
    values, convention = scores_table(folder) if "scores.csv" in changed else (None, "")
    convention = str(about.get("convention") or convention or _said(folder / "report.md"))
    tallied = {} if values is None else _tallied(values, folder / "scores.csv")
    usual = [str(one) for one in said] if isinstance(said := about.get("measures"), list) else []
    usual = usual or list(dict.fromkeys(measure for one in tallied.values() for measure in one))
    systems, problems = [], {}
    for place in dict.fromkeys(name.rpartition("/")[0] for name in changed if "/" in name):
        try:
            # Scores older than the run or the judgments may belong to earlier files.
            older = changed.get("scores.csv", 0) < max(changed[f"{place}/run.parquet"], changed["judgments.parquet"])
            told = _told(folder / place, {} if older else tallied)
            _check_judgments(folder, place)
            lacks = [one for one in usual if one not in told.tallies] or ([] if told.tallies else usual_of(told))
            _count(folder, told, lacks, convention, grades)
            systems.append(told)
        except RagaugeError as error:
            problems[place] = error.message
    return Kept(stamp, grades, convention, systems, problems)


def _count(folder: Path, told: Told, measures: Sequence[str], convention: str, grades: str) -> None:
    """Score a run by measures that its folder names but has no scores of.

    Measures that cannot be computed are added to `uncounted` with the reason.
    """
    told.uncounted.update({one: f"no measure is named `{one}`" for one in measures if measure_of(one) is None})
    known = [one for one in measures if one not in told.uncounted]
    try:
        scores = score_again(folder, told.place, known, convention, grades) if known else None
    except MissingEvidence as error:
        if len(known) == 1:
            told.uncounted[known[0]] = error.message
            return
        for one in known:
            _count(folder, told, [one], convention, grades)
    else:
        told.tallies.update({} if scores is None else {one: tally_of(scores, one) for one in scores.measures})


def usual_of(told: Told) -> list[str]:
    """Return the measures that `run` uses by default."""
    return list(default_run_measures(told.plan.get("k") or 10))


def _told(run: Path, tallied: Mapping[str, Mapping[str, Tally]]) -> Told:
    manifest = _json(run / "manifest.json")
    parts = {name: manifest.get(name) or {} for name in ("system", "dataset", "plan", "machine")}
    when = manifest.get("finished")
    if not all(isinstance(part, dict) for part in parts.values()):
        raise BadInput("is damaged", file=str(run / "manifest.json"))
    try:
        moment(when)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise BadInput("does not say when the run was finished", file=str(run / "manifest.json")) from None
    name = str(parts["system"].get("name") or run.name)
    costs = {one: manifest.get(one) for one in ("cold_ms", "build_seconds")}
    costs = {one: float(cost) if isinstance(cost, int | float) else None for one, cost in costs.items()}
    mine = dict(tallied.get(name, {}))
    return Told(
        name, run.name, str(when), parts["dataset"], parts["plan"], parts["machine"], costs, name in tallied, mine
    )


def _check_judgments(folder: Path, place: str) -> None:
    """Raise BadInput if a run was made with other judgments than those of its folder."""
    expected = _json(folder / place / "manifest.json").get("judgments_hash")
    if expected is None:
        return
    found = _recorded_hash(folder / "judgments.parquet")
    if expected != found:
        raise BadInput(f"the run was made with other judgments; expected hash {expected}, got {found}")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"is damaged ({error})", file=str(path)) from None
    if not isinstance(found, dict):
        raise BadInput("is damaged (it holds no object)", file=str(path))
    return found


def _said(report: Path) -> str:
    """Return the convention named in report.md, or "".

    Older folders record it only there.
    """
    try:
        with report.open(encoding="utf-8", errors="replace") as file:
            found = re.search(r"^Convention (.+?); k = ", file.read(10_000), re.M)
    except OSError:
        return ""
    return found[1] if found else ""


def scores_table(folder: Path) -> tuple[pl.DataFrame, str]:
    """Read scores.csv as a table of run, measure, query and value.

    Also returns the convention. Values are means over trials. The convention is "" if the file does not name one.
    """
    import polars as pl

    path = folder / "scores.csv"
    try:
        table = pl.read_csv(path.read_bytes(), infer_schema=False)  # A path could be interpreted as a glob pattern.
        texts = [name for name in ("run", "query") if name in table.columns]
        table = table.with_columns(pl.col(texts).str.replace(r"^'('*(?:[=@\t\r]|[+-].*[(|!=]))", "$1"))
        said = table["convention"].drop_nulls().unique().to_list() if "convention" in table.columns else []
        keys = ["run", "measure", "query"]
        if table.select(pl.any_horizontal(pl.col(keys).null_count() > 0)).item():
            raise ValueError("a value belongs to nothing")
        if "trial" in table.columns:
            if table.select(*keys, "trial").is_duplicated().any():
                raise ValueError("a value comes twice")
            table = table.with_columns(_number()).group_by(keys, maintain_order=True).agg(pl.col("value").mean())
            return table, ", ".join(said)
        return table.select(*keys, _number()), ", ".join(said)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise BadInput(f"is damaged ({_first_line(error)})", file=str(path), hint="`ragauge run` writes it") from None


def _number() -> pl.Expr:
    import polars as pl

    return pl.col("value").cast(pl.Float64).fill_nan(None)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _tallied(table: pl.DataFrame, path: Path) -> dict[str, dict[str, Tally]]:
    """Compute means by system and measure.

    Measures without per-query aggregation are omitted.
    """
    import polars as pl

    value = pl.col("value")
    found: dict[str, dict[str, Tally]] = {}
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
            why = "comes twice for a query" if rows != queries else "is infinite"
            raise BadInput(f"is damaged ({measure} of {run} {why})", file=str(path))
        how = _aggregate(measure)
        mine = found.setdefault(run, {})
        if how is mean:
            mine[measure] = Tally(math.nan, 0) if not n else Tally(middle, n, math.nan if n < 2 else deviation)
        elif how is not None:
            values = table.filter((pl.col("run") == run) & (pl.col("measure") == measure))["value"].drop_nulls()
            mine[measure] = _tally(values.to_numpy(), how)
    return found


_aggregate = lru_cache(maxsize=1000)(aggregate_of)


def _tally(values: Floats, how: Any) -> Tally:
    n = len(values)
    if not n:
        return Tally(math.nan, 0)
    return Tally(float(how(values)), n, float(values.std(ddof=1)) if how is mean and n > 1 else math.nan)


def tally_of(scores: Scores, measure: str) -> Tally:
    """Compute the mean of a measure from scores.

    It has a standard deviation only if it is an arithmetic mean.
    """
    values = scores.values[measure]
    values = values[values == values]  # noqa: PLR0124 - without those that are not a number
    if _aggregate(measure) is mean:
        return _tally(values, mean)
    return Tally(scores.means[measure], len(values))


def timings_of(run: Path) -> pl.DataFrame | None:
    """Read the timings of a run, or return None if it has none."""
    path = run / "timings.parquet"
    return read_timings(path) if path.exists() else None


Tables = dict[str, "pl.DataFrame"]
"""Cached scores.csv tables by folder."""


def values_of(folder: Path, told: Told, measure: str, convention: str, kept: Kept, tables: Tables) -> dict[str, float]:
    """Return the value of each scored query, from scores.csv or computed from the run."""
    if told.scored and measure in told.tallies and convention == kept.convention:
        import polars as pl

        if str(folder) not in tables:
            tables[str(folder)] = scores_table(folder)[0]
        mine = (
            tables[str(folder)]
            .filter((pl.col("run") == told.name) & (pl.col("measure") == measure))
            .drop_nulls("value")
        )
        if mine.height:
            return dict(zip(mine["query"].to_list(), mine["value"].to_list(), strict=True))
    return score_again(folder, told.place, [measure], convention, kept.judgments).per_query[measure]


def _judgments_hash(path: Path) -> str:
    """Return a hash of judgments that is independent of row order and encoding."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=str(path)) from None
    return _content_hash(data, str(path))


def _recorded_hash(path: Path) -> str:
    """Return the hash of judgments as manifests record it; cached for identical files."""
    key = hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
    if key not in _RECORDED:
        _RECORDED[key] = judgments_hash(read_judgments(path))
    return _RECORDED[key]


_RECORDED: dict[bytes, str] = {}


@lru_cache(maxsize=16)
def _content_hash(data: bytes, label: str) -> str:
    import polars as pl

    table = read_parquet(data, label, columns={"query_id": "text", "doc_id": "text", "relevance": "number"})
    numbers = [pl.col(name).cast(pl.Float64) for name, kind in table.schema.items() if kind.is_numeric()]
    table = table.select(sorted(table.columns)).with_columns(numbers)
    return hashlib.blake2b(table.sort(table.columns).write_csv().encode(), digest_size=16).hexdigest()
