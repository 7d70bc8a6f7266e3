"""Read judgments, runs and timings from files of any supported format and from objects in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Judgments, Run, RunFrames, ScoresByQuery, to_targets
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


TARGETS_FILES = ("targets.json", "targets.tsv")
"""Names of the target map in a dataset folder."""


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

    The target map of a folder (`targets.json` or `targets.tsv`) is read with them.
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
    targets_file = find_targets_file(source.path)
    return judgments if targets_file is None else judgments.with_targets(read_targets(targets_file))


def find_targets_file(path: str | Path) -> Path | None:
    """Return the target map of a dataset folder, or of a folder to which judgments belong; None if there is none.

    Judgments belong to a folder if they are its `judgments.parquet` or in its `qrels/`.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent if path.name == "judgments.parquet" else None
    if folder is None and path.parent.name == "qrels":
        folder = path.parent.parent
    files = [] if folder is None else [folder / name for name in TARGETS_FILES if (folder / name).exists()]
    if len(files) > 1:
        raise BadInput(f"two target maps: {' and '.join(TARGETS_FILES)}", file=str(folder), hint="remove one of them")
    return files[0] if files else None


def has_targets(qrels: Any, targets: Any = None) -> bool:
    """Return whether there is a target map: the given one, or one that belongs to the judgments."""
    if targets is not None or not isinstance(qrels, str | Path):
        return targets is not None or getattr(qrels, "targets", None) is not None
    return str(qrels) != "-" and find_targets_file(qrels) is not None


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
    """Read a whole run from a path or from memory; with `with_ranks` also its rank column if that is numeric.

    A run that ragauge made has its timings and manifest.
    """
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
    table = pl.concat(frames).rechunk()
    made_by_run = read_run_metadata(source) if isinstance(source, str | Path) else None
    return Run(table, run.name) if made_by_run is None else replace(made_by_run, table=table, name=run.name)


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
    if isinstance(source, Run):
        return source
    path = Path(source) / "manifest.json" if isinstance(source, str | Path) and str(source) != "-" else None
    if path is not None and path.parent.name == "run.parquet" and not path.exists():
        source = path.parent.parent
        path = source / "manifest.json"
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
    import polars as pl

    return Run(pl.DataFrame(), timings=read_timings(source), manifest=manifest)


def read_differing_trials(source: Any) -> list[Run]:
    """Return the trials of a run in memory or in a run folder if their rankings differ, else an empty list."""
    if isinstance(source, str | Path):
        folder = Path(source)
        if str(source) == "-" or not (folder / "repeats.parquet").exists():
            return []
        metadata = read_run_metadata(folder)
        if metadata is None:
            return []
        columns = {"query": "text", "doc": "text", "score": "number"}
        source = replace(
            metadata,
            table=read_parquet(folder / "run.parquet", columns=columns),
            repeats=read_parquet(folder / "repeats.parquet", columns={**columns, "repeat": "number"}),
        )
    return source.differing() if isinstance(source, Run) else []


def read_targets(source: Any) -> dict[str, list[str]]:
    """Read a target map from a path or a mapping."""
    return json_files.read_targets(InputFile(str(source))) if isinstance(source, str | Path) else to_targets(source)
