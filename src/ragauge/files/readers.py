"""Read judgments, runs and timings from files of any supported format and from objects in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Judgments, Run, RunFrames, ScoresByQuery
from ragauge.core.structured_text import parse_json
from ragauge.files import beir, in_memory, json_files, table_files, trec
from ragauge.files.json_files import check_manifest
from ragauge.files.neighbour_arrays import is_neighbour_array, read_found_neighbours, read_true_neighbours
from ragauge.files.parquet import check_column_types, read_parquet
from ragauge.files.parquet_runs import ParquetRun, is_multi_file_run, open_parquet_run
from ragauge.files.source import InputFile

if TYPE_CHECKING:
    import polars as pl


FORMATS = ("trec", "subtopics", "beir", "rig", "csv", "tsv", "jsonl", "json", "parquet")
"""Names that `--from` and `--format` accept; `subtopics` are TREC judgments with the subtopic in the second column."""


def check_format(name: str | None) -> str | None:
    """Return the name of a format; raise UnknownName unless it is one of FORMATS."""
    if name is not None and name not in FORMATS:
        raise UnknownName("format", name, FORMATS, hint=f"choose one of {', '.join(FORMATS)}")
    return name


def detect_format(source: InputFile) -> str:
    """Detect the format of a file by its ending and its first line."""
    if source.path != "-" and Path(source.path).is_dir():
        return "beir"
    if source.ending in (".parquet", ".json"):
        return source.ending[1:]
    head = source.head()
    first = head[0] if head else ""
    if source.ending in (".jsonl", ".ndjson") or first.lstrip().startswith("{"):
        if json_files.is_rig_line(first):
            return "rig"
        return "jsonl" if source.ending or json_files.is_json_row(first) else "json"
    for mark, name in ((",", "csv"), ("\t", "tsv")):
        if table_files.is_header(first.split(mark)):
            return name
    if source.ending == ".tsv" and len(first.split("\t")) == 3:
        return "beir"
    return "trec"


def read_judgments(thing: Any, *, format: str | None = None, split: str | None = None) -> Judgments:
    """Read judgments from a path (`-` is standard input) or from an object in memory.

    In a folder that `ragauge run` wrote, the target map of the dataset is read with them.
    """
    if format is None and split is None and is_neighbour_array(thing):
        return read_true_neighbours(thing)
    if not isinstance(thing, str | Path):
        _check_settings_apply("judgments in memory or of a folder that `ragauge run` wrote", format=format, split=split)
        return in_memory.check_grades(in_memory.judgments_from_memory(thing))
    source = _find_judgment_file(thing, split)
    kind = check_format(format) or detect_format(source)
    if kind in ("rig", "json"):
        read = json_files.read_rig if kind == "rig" else json_files.read_json_judgments
        return in_memory.check_grades(read(source))
    found = in_memory.check_grades(in_memory.judgments_from_table(_parse_judgment_rows(source, kind), source.label))
    beside = Path(source.path).with_name("targets.json")
    kept = Path(source.path).name == "judgments.parquet" and beside.exists()
    return found.with_targets(read_targets(beside)) if kept else found


def read_judgment_rows(path: str | Path, *, format: str | None = None, split: str | None = None) -> pl.DataFrame:
    """Read the rows of a judgments file unchanged, with contradictions and duplicates."""
    source = _find_judgment_file(path, split)
    kind = check_format(format) or detect_format(source)
    if kind in ("rig", "json"):
        return read_judgments(path, format=kind).frame
    return _parse_judgment_rows(source, kind)


def _find_judgment_file(path: str | Path, split: str | None) -> InputFile:
    folder = Path(path)
    if str(path) == "-" or not folder.is_dir():
        _check_settings_apply("a file of judgments", split=split)
        return InputFile(str(path))
    kept = folder / "judgments.parquet"  # a folder that `ragauge run` wrote
    if kept.exists():
        _check_settings_apply("a folder that `ragauge run` wrote", split=split)
    return InputFile(str(kept if kept.exists() else beir.find_qrels_file(folder, split)))


def _check_settings_apply(what: str, **settings: str | None) -> None:
    """Raise BadInput for settings that have no effect on how `what` is read."""
    needs = {"format": "a file", "split": "a BEIR folder"}
    for name, value in settings.items():
        if value is not None:
            raise BadInput(
                f"a {name} does not apply to {what}; expected {needs[name]}, got {name} `{value}`",
                hint=f"remove the {name}",
            )


def _parse_judgment_rows(source: InputFile, kind: str) -> pl.DataFrame:
    if kind in ("trec", "subtopics"):
        table = trec.read_qrels(source)
        if kind == "trec":
            return table.select("query", "doc", "grade")
        return table.rename({"iteration": "subtopic"})
    head = (source.head() or [""])[0] if kind != "parquet" else ""
    if kind == "beir":
        table = beir.read_qrels_tsv(source)
        return table_files.check_no_nulls(
            table, source.label, "grade", 2 if table_files.is_header(head.split("\t")) else 1
        )
    table = table_files.select_judgment_columns(table_files.read_table(source, kind), source.label)
    return table_files.check_no_nulls(table, source.label, "grade", {"csv": 2, "tsv": 2, "jsonl": 1}.get(kind))


def open_run_lazily(
    thing: Any, *, format: str | None = None, name: str = "run", with_ranks: bool = False
) -> RunFrames | ScoresByQuery:
    """Open a run from a path, to be read in blocks when it is scored, or from memory."""
    if isinstance(thing, trec.TrecRun | table_files.TableRun | ParquetRun):
        return thing
    if format is None and is_neighbour_array(thing):
        return read_found_neighbours(thing, name if isinstance(thing, np.ndarray) else InputFile(str(thing)).stem)
    if not isinstance(thing, str | Path):
        _check_settings_apply("a run in memory", format=format)
        return in_memory.run_from_memory(thing, name)
    source = InputFile(str(thing))
    if source.path != "-" and Path(source.path).is_dir():
        _check_settings_apply("a folder", format=format)
        return open_parquet_run(_find_run_path(Path(source.path)))
    kind = check_format(format) or detect_format(source)
    if kind == "trec":
        return trec.TrecRun(source, with_ranks=with_ranks)
    if kind == "json":
        return json_files.read_json_run(source)
    if kind == "parquet":
        return open_parquet_run(source.path)
    if kind in ("csv", "tsv", "jsonl"):
        return table_files.TableRun(source, kind)
    raise BadInput(f"a run cannot be in the format {kind}", file=source.label)


def _find_run_path(folder: Path) -> str:
    """Find the path of the ranking in a run folder, or the folder of a multi-file run.

    `ragauge run` writes the manifest last, so a run without it is unfinished.
    """
    if (folder / "manifest.json").exists() and (folder / "run.parquet").exists():
        return str(folder / "run.parquet")
    if is_multi_file_run(folder):
        return str(folder)
    inside = sorted(one.parent.name for one in folder.glob("*/run.parquet"))
    unfinished = (folder / "journal.jsonl").exists()
    raise BadInput(
        "the run in this folder is not finished" if unfinished else "no run is in this folder",
        file=str(folder),
        hint="run the same command again to resume"
        if unfinished
        else f"there are runs in {', '.join(str(folder / name) for name in inside)}"
        if inside
        else "a run folder has manifest.json and run.parquet; or it has the Parquet files of one run",
    )


def read_run(thing: Any, *, format: str | None = None, name: str = "run", with_ranks: bool = False) -> Run:
    """Read a whole run from a path or from memory; with `with_ranks` also its rank column if that is numeric."""
    if with_ranks:
        with contextlib.suppress(BadInput):  # The rank column is not numeric. Any other error is raised again below.
            return _read_whole_run(thing, format, name, with_ranks=True)
    return _read_whole_run(thing, format, name, with_ranks=False)


def _read_whole_run(thing: Any, format: str | None, name: str, *, with_ranks: bool) -> Run:
    import polars as pl

    found = open_run_lazily(thing, format=format, name=name, with_ranks=with_ranks)
    if isinstance(found, Run):
        return found
    if isinstance(found, Mapping):
        return Run(in_memory.to_run_table(found), name)
    frames = list(found.frames())
    if not frames:
        raise BadInput("no rows", file=str(thing))
    return Run(pl.concat(frames).rechunk(), found.name)


def executed_queries(thing: Any) -> set[str] | None:
    """Return the queries that a run executed, with or without hits; None if unknown."""
    timings = read_timings(thing)
    return None if timings is None else set(timings["query"].to_list())


def read_timings(thing: Any) -> pl.DataFrame | None:
    """Read one row per query and trial of a run (`query`, `status`, `error`).

    `status` and `error` are present only if recorded. Return None if the run has no timings.
    """
    if isinstance(thing, Run):
        return thing.timings
    timings = Path(thing) / "timings.parquet" if isinstance(thing, str | Path) else None
    if timings is None or not timings.exists():
        return None
    found = read_parquet(timings, columns={"query": "text"})
    held = dict.fromkeys(set(found.columns) & {"status", "error"}, "text")
    check_column_types(found, held, str(timings), complete=False)
    return found


def read_run_metadata(thing: Any) -> Run | None:
    """Read manifest and timings of a run made by `ragauge run`, without its rankings.

    Return None for any other run.
    """
    import polars as pl

    if isinstance(thing, Run):
        return thing
    path = Path(thing) / "manifest.json" if isinstance(thing, str | Path) and str(thing) != "-" else None
    if path is None or not path.exists():
        return None
    try:
        manifest = parse_json(path.read_text(encoding="utf-8"), file=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the manifest cannot be read: {error}", file=str(path)) from None
    if not isinstance(manifest, dict):
        raise BadInput("the manifest is corrupt: expected a JSON object", file=str(path))
    try:
        check_manifest(manifest)
    except ValueError as error:
        raise BadInput(str(error), file=str(path)) from None
    return Run(pl.DataFrame(), timings=read_timings(thing), manifest=manifest)


def read_targets(thing: Any) -> dict[str, list[str]]:
    """Read a target map from a path or a mapping."""
    return (
        json_files.read_targets(InputFile(str(thing)))
        if isinstance(thing, str | Path)
        else json_files.to_targets(thing)
    )
