"""Scores computed elsewhere: long or wide tables with one row per query, and reports of rig."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.ids import to_id
from ragauge.core.records import MeasureDict, Scores
from ragauge.files.json_files import read_json
from ragauge.files.source import InputFile
from ragauge.files.table_files import (
    DOC_COLUMNS,
    QUERY_COLUMNS,
    SYSTEM_COLUMNS,
    TABLE_FORMATS,
    TRIAL_COLUMNS,
    find_column,
    read_header,
)
from ragauge.files.table_rows import TableRows, read_rows

SYSTEM_NAME_COLUMNS = (*SYSTEM_COLUMNS, "run", "name")
MEASURE_COLUMNS = ("measure", "metric")
VALUE_COLUMNS = ("value", "score")
TAG_COLUMNS = ("query_complexity", "complexity", "stratum")
JUDGE_COLUMNS = ("judge", "judge_fingerprint")
CONVENTION_COLUMNS = ("convention",)
FINGERPRINT_COLUMNS = ("fingerprint",)
DIRECTION_COLUMNS = ("lower_is_better",)
DIRECTION_VALUES = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
NON_MEASURE_COLUMNS = (
    *QUERY_COLUMNS,
    *SYSTEM_NAME_COLUMNS,
    *TRIAL_COLUMNS,
    *TAG_COLUMNS,
    *JUDGE_COLUMNS,
    *CONVENTION_COLUMNS,
    *FINGERPRINT_COLUMNS,
    *DIRECTION_COLUMNS,
    "gt_count",
)
"""Columns that are never measures."""

ScoresBySystem = dict[str, Scores | dict[str, Scores]]
"""`{system: scores}`, or `{system: {seed: scores}}` for several seeds."""


def is_scores_file(path: str) -> bool:
    """Return whether a file has scores.

    It is a table with a query and no document, or a report of rig.
    """
    source = InputFile(path)
    if os.path.isdir(path):
        return False
    if source.ending == ".json":
        with source.open() as file:
            return b'"per_query"' in file.read(1 << 20)
    names = read_header(source, TABLE_FORMATS[source.ending]) if source.ending in TABLE_FORMATS else []
    return find_column(names, QUERY_COLUMNS) is not None and find_column(names, DOC_COLUMNS) is None


def read_scores(path: str) -> tuple[ScoresBySystem, dict[str, dict[str, str]]]:
    """Read scores by system and seed, and the tags of the queries.

    A long table has the columns query, measure and value; a wide one a query and one column per measure. Both may
    have a system (method, model, run), a seed, a judge and a convention. Without a system the file name is used. The
    column `lower_is_better` of a long table states the direction of the row's measure; a wide table has none.
    """
    source = InputFile(path)
    if source.ending not in (*TABLE_FORMATS, ".json"):
        raise BadInput(
            "not a table of scores",
            file=source.label,
            hint="use a .csv, .tsv, .jsonl or .parquet file with a row for each query, or a report of rig (.json)",
        )
    if source.ending == ".json":
        return {source.stem: _read_rig_report(source)}, {}
    rows = read_rows(source, TABLE_FORMATS[source.ending])
    if not len(rows):
        raise BadInput("no rows", file=source.label)
    query = find_column(rows.names, QUERY_COLUMNS)
    if query is None:
        raise BadInput(f"a query column is missing; found {', '.join(rows.names)}", file=source.label, hint="query_id")
    return _scores_by_system(rows, query, source.stem), _read_query_tags(rows, query)


def _scores_by_system(rows: TableRows, query: str, name: str) -> ScoresBySystem:
    system, seed = find_column(rows.names, SYSTEM_NAME_COLUMNS), find_column(rows.names, TRIAL_COLUMNS)
    measure, value = find_column(rows.names, MEASURE_COLUMNS), find_column(rows.names, VALUE_COLUMNS)
    columns = [] if measure and value else _measure_columns(rows)
    judge, convention, fingerprint_cells = (
        _join_text_columns(rows, names) for names in (JUDGE_COLUMNS, CONVENTION_COLUMNS, FINGERPRINT_COLUMNS)
    )
    fingerprints_by_trial: dict[tuple[str, str], dict[str, str]] = {}
    values_by_trial: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    origins: dict[tuple[str, str], tuple[str, str]] = {}
    directions = _read_directions(rows, measure)
    for i in range(len(rows)):
        line = rows.line(i)
        query_id = rows.id(query, i, "query")
        trial = (rows.id(system, i, "system") if system else name, rows.id(seed, i, seed.lower()) if seed else "")
        cells = {column: rows.columns[column][i] for column in columns}
        if measure and value:
            cells = {rows.id(measure, i, "measure"): rows.columns[value][i]}
        if fingerprint_cells[i]:
            fingerprints_by_trial.setdefault(trial, {}).setdefault(query_id, fingerprint_cells[i])
        trial_values = values_by_trial.setdefault(trial, {})
        for column, cell in cells.items():
            values = trial_values.setdefault(column, {})
            if query_id in values:
                raise BadInput(
                    f"{column} of query `{query_id}` of {trial[0]} appears more than once", file=rows.label, line=line
                )
            values[query_id] = _parse_score_cell(cell, column, rows.label, line)
        if any(cell is not None for cell in cells.values()):
            origin = (judge[i], convention[i])
            for noun, first, current in zip(
                ("judge", "convention"), origins.setdefault(trial, origin), origin, strict=True
            ):
                if first != current:
                    raise BadInput(
                        f"the {noun} of {trial[0]} is {_quote_text(first)} above and {_quote_text(current)} here",
                        file=rows.label,
                        line=line,
                        hint=f"keep the rows of one {noun}, or name a system per {noun}",
                    )
    result: dict[str, dict[str, Scores]] = {}
    for (system_name, label), by_measure in values_by_trial.items():
        scores = _build_table_scores(system_name, by_measure, *origins.get((system_name, label), ("", "")), directions)
        result.setdefault(system_name, {})[label] = replace(
            scores, fingerprints=fingerprints_by_trial.get((system_name, label), {})
        )
    return {system: next(iter(seeds.values())) if len(seeds) == 1 else seeds for system, seeds in result.items()}


def _measure_columns(rows: TableRows) -> list[str]:
    """Find the columns of a wide table that have only numbers."""
    columns = []
    for name, cells in rows.columns.items():
        values = [cell for cell in cells if cell is not None]
        if (
            values
            and not find_column([name], NON_MEASURE_COLUMNS)
            and all(_to_float(cell) is not None for cell in values)
        ):
            columns.append(name)
    if not columns:
        raise BadInput(
            "no column contains numbers", file=rows.label, hint="a column for each measure, or measure, value"
        )
    return columns


def _read_directions(rows: TableRows, measure: str | None) -> dict[str, bool]:
    """Read `{measure: whether lower is better}`; raise BadInput for contradictions.

    Measures without a stated direction are left out.
    """
    column = find_column(rows.names, DIRECTION_COLUMNS)
    if column is None:
        return {}
    if measure is None:
        raise BadInput(
            f"column `{column}` without a column `measure`; expected one row per query and measure",
            file=rows.label,
            hint="use `--lower-is-better MEASURE`, or write the columns query, measure, value, lower_is_better",
        )
    directions: dict[str, bool] = {}
    for i, cell in enumerate(rows.columns[column]):
        if cell is None:
            continue
        stated = DIRECTION_VALUES.get(str(cell).strip().lower())
        name = rows.id(measure, i, "measure")
        if stated is None:
            raise BadInput(
                f"{column} of {name}: expected true or false, got `{str(cell)[:40]}`",
                file=rows.label,
                line=rows.line(i),
            )
        if directions.setdefault(name, stated) != stated:
            raise BadInput(
                f"{column} of {name} is {str(stated).lower()} here and {str(not stated).lower()} above",
                file=rows.label,
                line=rows.line(i),
                hint="state one direction per measure",
            )
    return directions


def _join_text_columns(rows: TableRows, names: tuple[str, ...]) -> list[str]:
    """Join the texts of several columns per row; empty if the table has none of them."""
    columns = [rows.columns[column] for column in (find_column(rows.names, [name]) for name in names) if column]
    return [" ".join(str(cells[i]) for cells in columns if cells[i] is not None) for i in range(len(rows))]


def _read_query_tags(rows: TableRows, query: str) -> dict[str, dict[str, str]]:
    tags: dict[str, dict[str, str]] = {}
    for tag in TAG_COLUMNS:
        column = find_column(rows.names, [tag])
        for i, cell in enumerate(rows.columns[column] if column else ()):
            if cell is not None:
                tags.setdefault(rows.id(query, i, "query"), {})[tag.removeprefix("query_")] = str(cell)
    return tags


def _to_float(cell: Any) -> float | None:
    """Convert a cell to a number; None if it is not numeric."""
    try:
        return None if isinstance(cell, bool) else float(cell)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def _parse_score_cell(cell: Any, noun: str, label: str, line: int | None = None) -> float:
    """Convert a cell to a number, NaN if empty; raise BadInput for infinite values."""
    number = math.nan if cell is None else _to_float(cell)
    if number is None or math.isinf(number):
        kind = "a number" if number is None else "a finite number"
        raise BadInput(
            f"{noun} must be {kind}, got `{str(cell)[:40]}`", file=label, line=line, hint="leave unknown values empty"
        )
    return number


def _quote_text(text: str) -> str:
    return f"`{text}`" if text else "blank"


def _build_table_scores(
    name: str,
    columns: Mapping[str, Mapping[str, float]],
    judge: str,
    convention: str,
    directions: Mapping[str, bool],
) -> Scores:
    queries = list(dict.fromkeys(query for column in columns.values() for query in column))
    values = {m: np.array([column.get(query, math.nan) for query in queries]) for m, column in columns.items()}
    means = {m: float(np.nanmean(column)) if not np.isnan(column).all() else math.nan for m, column in values.items()}
    unscored = {
        m: {query: "no value in the file" for query, v in zip(queries, column.tolist(), strict=True) if math.isnan(v)}
        for m, column in values.items()
    }
    return Scores(
        run=name,
        convention=convention or "as given",
        queries=queries,
        values=MeasureDict(values, str),
        means=MeasureDict(means, str),
        unscored=MeasureDict(unscored, str),
        lower_is_better=frozenset(m for m in values if directions.get(m)),
        direction_unstated=frozenset(m for m in values if m not in directions),
        judge=judge,
    )


def _read_rig_report(source: InputFile) -> Scores:
    """Read a MultiReport of rig: the score of each query by metric, and the judge."""
    report = read_json(source, ids=True)
    metrics = report.get("metrics") if isinstance(report, dict) else None
    if not isinstance(metrics, list) or not metrics or not all(map(_is_rig_metric, metrics)):
        raise BadInput(
            "not a report of rig",
            file=source.label,
            hint='{"metrics": [{"metric": …, "per_query": [[query, value]]}]}',
        )
    columns: dict[str, dict[str, float]] = {}
    for entry in metrics:
        metric = to_id(entry["metric"], "the name of a metric", source.label)
        if metric in columns:
            raise BadInput(f"{metric} appears more than once", file=source.label)
        values = columns.setdefault(metric, {})
        for query, value in entry["per_query"]:
            query_id = to_id(query, f"a query of {metric}", source.label)
            if query_id in values:
                raise BadInput(f"{metric} of query `{query_id}` appears more than once", file=source.label)
            values[query_id] = _parse_score_cell(value, f"{metric} of query `{query_id}`", source.label)
    judge, convention = (
        " ".join(str(report[key]) for key in keys if report.get(key)) for keys in (JUDGE_COLUMNS, CONVENTION_COLUMNS)
    )
    stated = {str(entry["metric"]).strip(): entry.get("lower_is_better") for entry in metrics}
    directions = {metric: value for metric, value in stated.items() if isinstance(value, bool)}
    return _build_table_scores(source.stem, columns, judge, convention, directions)


def _is_rig_metric(entry: Any) -> bool:
    pairs = entry.get("per_query") if isinstance(entry, dict) and "metric" in entry else None
    return isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
