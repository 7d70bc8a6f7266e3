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
from ragauge.files.parquet_runs import ParquetRun, find_unread_folder, is_multi_file_run, open_parquet_run
from ragauge.files.source import InputFile

if TYPE_CHECKING:
    import polars as pl


FORMATS = ("trec", "subtopics", "beir", "rig", "csv", "tsv", "jsonl", "json", "parquet")
"""Names that `--from` and `--format` accept; `subtopics` are TREC judgments with the subtopic in the second column."""


def check_format(name: str | None) -> str | None:
    """Return the name of a format; raise UnknownName unless it is one of FORMATS."""
    if name is not None and name not in FORMATS:
        raise UnknownName("format", name, FORMATS)
    return name


def detect_format(source: InputFile) -> str:
    """Detect the format of a file by its ending and its first line."""
    if source.path != "-" and Path(source.path).is_dir():
        return "beir"
    if source.ending == ".npz":
        hint = f"save one array: `numpy.save('ids.npy', numpy.load('{source.path}')['NAME'])`"
        raise BadInput(
            "a .npz archive holds several arrays; expected a .npy file with one", file=source.label, hint=hint
        )
    if source.ending in (".parquet", ".json"):
        return source.ending[1:]
    head = source.head()
    first = head[0] if head else ""
    if source.ending in (".jsonl", ".ndjson") or first.lstrip().startswith("{"):
        if json_files.is_rig_line(first):
            return "rig"
        return "jsonl" if source.ending or json_files.is_json_row(first) else "json"
    for mark, name in ((",", "csv"), ("\t", "tsv")):
        if table_files.is_header(first.replace('"', "").split(mark)):
            return name
    if source.ending == ".tsv" and len(first.split("\t")) == 3:
        return "beir"
    return "trec"


def read_judgments(value: Any, *, format: str | None = None, split: str | None = None) -> Judgments:
    """Read judgments from a path (`-` is standard input) or from an object in memory.

    In a folder that `ragauge run` wrote, the target map of the dataset is read with them.
    """
    if format is None and split is None and is_neighbour_array(value):
        return read_true_neighbours(value)
    if not isinstance(value, str | Path):
        _check_settings_apply("judgments in memory or of a folder that `ragauge run` wrote", format=format, split=split)
        return in_memory.check_grades(in_memory.judgments_from_memory(value))
    source = _find_judgment_file(value, split)
    kind = check_format(format) or detect_format(source)
    if kind in ("rig", "json"):
        read = json_files.read_rig if kind == "rig" else json_files.read_json_judgments
        return in_memory.check_grades(read(source))
    judgments = in_memory.check_grades(in_memory.judgments_from_table(_parse_judgment_rows(source, kind), source.label))
    targets_path = Path(source.path).with_name("targets.json")
    has_targets = Path(source.path).name == "judgments.parquet" and targets_path.exists()
    return judgments.with_targets(read_targets(targets_path)) if has_targets else judgments


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
    judgments_file = folder / "judgments.parquet"  # a folder that `ragauge run` wrote
    if judgments_file.exists():
        _check_settings_apply("a folder that `ragauge run` wrote", split=split)
    return InputFile(str(judgments_file if judgments_file.exists() else beir.find_qrels_file(folder, split)))


def _check_settings_apply(input_noun: str, **settings: str | None) -> None:
    """Raise BadInput for settings that have no effect on how `input_noun` is read."""
    needs = {"format": "a file", "split": "a BEIR folder"}
    for name, value in settings.items():
        if value is not None:
            raise BadInput(
                f"a {name} does not apply to {input_noun}; expected {needs[name]}, got {name} `{value}`",
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
    value: Any, *, format: str | None = None, name: str = "run", with_ranks: bool = False
) -> RunFrames | ScoresByQuery:
    """Open a run from a path, to be read in blocks when it is scored, or from memory."""
    if isinstance(value, trec.TrecRun | table_files.TableRun | ParquetRun):
        return value
    if format is None and is_neighbour_array(value):
        return read_found_neighbours(value, name if isinstance(value, np.ndarray) else InputFile(str(value)).stem)
    if not isinstance(value, str | Path):
        _check_settings_apply("a run in memory", format=format)
        return in_memory.run_from_memory(value, name)
    source = InputFile(str(value))
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
    problem = (
        "a run with three or four columns needs a header" if kind == "beir" else f"a run cannot be in {kind} format"
    )
    hint = "MS MARCO's runs have the header `query_id<tab>doc_id<tab>rank`" if kind == "beir" else None
    raise BadInput(problem, file=source.label, hint=hint)


def _find_run_path(folder: Path) -> str:
    """Find the path of the ranking in a run folder, or the folder of a multi-file run.

    `ragauge run` writes the manifest last, so a run without it is unfinished.
    """
    if (folder / "manifest.json").exists() and (folder / "run.parquet").exists():
        return str(folder / "run.parquet")
    if is_multi_file_run(folder):
        return str(folder)
    run_names = sorted(path.parent.name for path in folder.glob("*/run.parquet"))
    unfinished = (folder / "journal.jsonl").exists()
    unread = None if unfinished or run_names else find_unread_folder(folder)
    raise BadInput(
        "the run in this folder is not finished" if unfinished else "no run is in this folder",
        file=str(folder),
        hint="run the same command again to resume"
        if unfinished
        else f"there are runs in {', '.join(str(folder / name) for name in run_names)}"
        if run_names
        else f"there are Parquet files in {unread}; to read them as one run, pass that folder"
        if unread
        else "a run folder has manifest.json and run.parquet; or it has the Parquet files of one run",
    )


def read_run(source: Any, *, format: str | None = None, name: str = "run", with_ranks: bool = False) -> Run:
    """Read a whole run from a path or from memory; with `with_ranks` also its rank column if that is numeric."""
    if with_ranks:
        with contextlib.suppress(BadInput):  # The rank column is not numeric. Any other error is raised again below.
            return _read_whole_run(source, format, name, with_ranks=True)
    return _read_whole_run(source, format, name, with_ranks=False)


def _read_whole_run(source: Any, format: str | None, name: str, *, with_ranks: bool) -> Run:
    import polars as pl

    run = open_run_lazily(source, format=format, name=name, with_ranks=with_ranks)
    if isinstance(run, Run):
        return run
    if isinstance(run, Mapping):
        return Run(in_memory.to_run_table(run), name)
    frames = list(run.frames())
    if not frames:
        raise BadInput("no rows", file=str(source))
    return Run(pl.concat(frames).rechunk(), run.name)


def executed_queries(source: Any) -> set[str] | None:
    """Return the queries that a run executed, with or without hits; None if unknown."""
    timings = read_timings(source)
    return None if timings is None else set(timings["query"].to_list())


def read_timings(source: Any) -> pl.DataFrame | None:
    """Read one row per query and trial of a run (`query`, `status`, `error`).

    `status` and `error` are present only if recorded. Return None if the run has no timings.
    """
    if isinstance(source, Run):
        return source.timings
    timings = Path(source) / "timings.parquet" if isinstance(source, str | Path) else None
    if timings is None or not timings.exists():
        return None
    table = read_parquet(timings, columns={"query": "text"})
    text_columns = dict.fromkeys(set(table.columns) & {"status", "error"}, "text")
    check_column_types(table, text_columns, str(timings), complete=False)
    return table


def read_run_metadata(source: Any) -> Run | None:
    """Read manifest and timings of a run made by `ragauge run`, without its rankings.

    Return None for any other run.
    """
    import polars as pl

    if isinstance(source, Run):
        return source
    path = Path(source) / "manifest.json" if isinstance(source, str | Path) and str(source) != "-" else None
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
    return Run(pl.DataFrame(), timings=read_timings(source), manifest=manifest)


def read_targets(source: Any) -> dict[str, list[str]]:
    """Read a target map from a path or a mapping."""
    return (
        json_files.read_targets(InputFile(str(source)))
        if isinstance(source, str | Path)
        else json_files.to_targets(source)
    )
