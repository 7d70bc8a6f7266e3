"""Scores computed elsewhere: long or wide tables with one row per query, and reports of rig."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.records import ByMeasure, Scores
from ragauge.files.json_files import read_json
from ragauge.files.source import Source
from ragauge.files.table_files import DOC, QUERY, SYSTEM, TABLES, TRIAL, find, header
from ragauge.files.table_rows import Rows, as_id, read_rows

RUN = (*SYSTEM, "run", "name")
MEASURE = ("measure", "metric")
VALUE = ("value", "score")
TAGS = ("query_complexity", "complexity", "stratum")
JUDGE = ("judge", "judge_fingerprint")
CONVENTION = ("convention",)
FINGERPRINT = ("fingerprint",)
DIRECTION = ("lower_is_better",)
DIRECTIONS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
BESIDE = (*QUERY, *RUN, *TRIAL, *TAGS, *JUDGE, *CONVENTION, *FINGERPRINT, *DIRECTION, "gt_count")
"""Columns that are never measures."""

Known = dict[str, Scores | dict[str, Scores]]
"""`{system: scores}`, or `{system: {seed: scores}}` for several seeds."""


def holds_scores(path: str) -> bool:
    """Return whether a file has scores.

    It is a table with a query and no document, or a report of rig.
    """
    source = Source(path)
    if os.path.isdir(path):
        return False
    if source.ending == ".json":
        with source.open() as file:
            return b'"per_query"' in file.read(1 << 20)
    names = header(source, TABLES[source.ending]) if source.ending in TABLES else []
    return find(names, QUERY) is not None and find(names, DOC) is None


def read_scores(path: str) -> tuple[Known, dict[str, dict[str, str]]]:
    """Read scores by system and seed, and the tags of the queries.

    A long table has the columns query, measure and value; a wide one a query and one column per measure. Both may
    have a system (method, model, run), a seed, a judge and a convention. Without a system the file name is used. The
    column `lower_is_better` of a long table states the direction of the row's measure; a wide table has none.
    """
    source = Source(path)
    if source.ending not in (*TABLES, ".json"):
        raise BadInput(
            "this is no table of scores",
            file=source.label,
            hint="a .csv, .tsv, .jsonl or .parquet file with a row for each query, or a report of rig (.json)",
        )
    if source.ending == ".json":
        return {source.stem: _rig(source)}, {}
    rows = read_rows(source, TABLES[source.ending])
    if not len(rows):
        raise BadInput("no rows", file=source.label)
    query = find(rows.names, QUERY)
    if query is None:
        raise BadInput(f"a query column is missing; found {', '.join(rows.names)}", file=source.label, hint="query_id")
    return _by_system(rows, query, source.stem), _tags(rows, query)


def _by_system(rows: Rows, query: str, name: str) -> Known:
    system, seed = find(rows.names, RUN), find(rows.names, TRIAL)
    measure, value = find(rows.names, MEASURE), find(rows.names, VALUE)
    columns = [] if measure and value else _measures(rows)
    judge, convention, prints = (_texts(rows, names) for names in (JUDGE, CONVENTION, FINGERPRINT))
    seen: dict[tuple[str, str], dict[str, str]] = {}
    known: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    told: dict[tuple[str, str], tuple[str, str]] = {}
    directions = _directions(rows, measure)
    for at in range(len(rows)):
        line = rows.line(at)
        asked = rows.id(query, at, "query")
        place = (rows.id(system, at, "system") if system else name, rows.id(seed, at, seed.lower()) if seed else "")
        cells = {column: rows.columns[column][at] for column in columns}
        if measure and value:
            cells = {rows.id(measure, at, "measure"): rows.columns[value][at]}
        if prints[at]:
            seen.setdefault(place, {}).setdefault(asked, prints[at])
        mine = known.setdefault(place, {})
        for column, cell in cells.items():
            values = mine.setdefault(column, {})
            if asked in values:
                raise BadInput(f"{column} of query `{asked}` of {place[0]} comes twice", file=rows.label, line=line)
            values[asked] = _number(cell, column, rows.label, line)
        if any(cell is not None for cell in cells.values()):
            said = (judge[at], convention[at])
            for what, first, here in zip(("judge", "convention"), told.setdefault(place, said), said, strict=True):
                if first != here:
                    raise BadInput(
                        f"the {what} of {place[0]} is {_quoted(first)} above and {_quoted(here)} here",
                        file=rows.label,
                        line=line,
                        hint=f"keep the rows of one {what}, or give each a system of its own",
                    )
    found: dict[str, dict[str, Scores]] = {}
    for (one, label), by_measure in known.items():
        scores = _scores(one, by_measure, *told.get((one, label), ("", "")), directions)
        found.setdefault(one, {})[label] = replace(scores, fingerprints=seen.get((one, label), {}))
    return {one: next(iter(seeds.values())) if len(seeds) == 1 else seeds for one, seeds in found.items()}


def _measures(rows: Rows) -> list[str]:
    """Find the columns of a wide table that have only numbers."""
    found = []
    for name, cells in rows.columns.items():
        held = [cell for cell in cells if cell is not None]
        if held and not find([name], BESIDE) and all(_float(cell) is not None for cell in held):
            found.append(name)
    if not found:
        raise BadInput("no column holds numbers", file=rows.label, hint="a column for each measure, or measure, value")
    return found


def _directions(rows: Rows, measure: str | None) -> dict[str, bool]:
    """Read `{measure: whether lower is better}`; raise BadInput for contradictions.

    Measures without a stated direction are left out.
    """
    column = find(rows.names, DIRECTION)
    if column is None:
        return {}
    if measure is None:
        raise BadInput(
            f"column `{column}` without a column `measure`; expected one row per query and measure",
            file=rows.label,
            hint="use `--lower-is-better MEASURE`, or write the columns query, measure, value, lower_is_better",
        )
    found: dict[str, bool] = {}
    for at, cell in enumerate(rows.columns[column]):
        if cell is None:
            continue
        stated = DIRECTIONS.get(str(cell).strip().lower())
        name = rows.id(measure, at, "measure")
        if stated is None:
            raise BadInput(
                f"{column} of {name}: expected true or false, got `{str(cell)[:40]}`",
                file=rows.label,
                line=rows.line(at),
            )
        if found.setdefault(name, stated) != stated:
            raise BadInput(
                f"{column} of {name} is {str(stated).lower()} here and {str(not stated).lower()} above",
                file=rows.label,
                line=rows.line(at),
                hint="give each measure one direction",
            )
    return found


def _texts(rows: Rows, names: tuple[str, ...]) -> list[str]:
    """Join the texts of several columns per row; empty if the table has none of them."""
    columns = [rows.columns[column] for column in (find(rows.names, [name]) for name in names) if column]
    return [" ".join(str(cells[at]) for cells in columns if cells[at] is not None) for at in range(len(rows))]


def _tags(rows: Rows, query: str) -> dict[str, dict[str, str]]:
    tags: dict[str, dict[str, str]] = {}
    for tag in TAGS:
        column = find(rows.names, [tag])
        for at, cell in enumerate(rows.columns[column] if column else ()):
            if cell is not None:
                tags.setdefault(rows.id(query, at, "query"), {})[tag.removeprefix("query_")] = str(cell)
    return tags


def _float(cell: Any) -> float | None:
    """Convert a cell to a number; None if it is not numeric."""
    try:
        return None if isinstance(cell, bool) else float(cell)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def _number(cell: Any, what: str, label: str, line: int | None = None) -> float:
    """Convert a cell to a number, NaN if empty; raise BadInput for infinite values."""
    number = math.nan if cell is None else _float(cell)
    if number is None or math.isinf(number):
        kind = "a number" if number is None else "a finite number"
        raise BadInput(f"{what} is `{str(cell)[:40]}`, not {kind}", file=label, line=line, hint="empty where unknown")
    return number


def _quoted(text: str) -> str:
    return f"`{text}`" if text else "blank"


def _scores(
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
        values=ByMeasure(values, str),
        means=ByMeasure(means, str),
        unscored=ByMeasure(unscored, str),
        lower_is_better=frozenset(m for m in values if directions.get(m)),
        direction_unstated=frozenset(m for m in values if m not in directions),
        judge=judge,
    )


def _rig(source: Source) -> Scores:
    """Read a MultiReport of rig: the score of each query by metric, and the judge."""
    report = read_json(source, ids=True)
    metrics = report.get("metrics") if isinstance(report, dict) else None
    if not isinstance(metrics, list) or not metrics or not all(map(_is_metric, metrics)):
        raise BadInput(
            "this is no report of rig",
            file=source.label,
            hint='{"metrics": [{"metric": …, "per_query": [[query, value]]}]}',
        )
    columns: dict[str, dict[str, float]] = {}
    for one in metrics:
        metric = as_id(one["metric"], "the name of a metric", source.label)
        if metric in columns:
            raise BadInput(f"{metric} comes twice", file=source.label)
        values = columns.setdefault(metric, {})
        for query, value in one["per_query"]:
            asked = as_id(query, f"a query of {metric}", source.label)
            if asked in values:
                raise BadInput(f"{metric} of query `{asked}` comes twice", file=source.label)
            values[asked] = _number(value, f"{metric} of query `{asked}`", source.label)
    judge, convention = (" ".join(str(report[key]) for key in keys if report.get(key)) for keys in (JUDGE, CONVENTION))
    stated = {str(one["metric"]).strip(): one.get("lower_is_better") for one in metrics}
    directions = {metric: value for metric, value in stated.items() if isinstance(value, bool)}
    return _scores(source.stem, columns, judge, convention, directions)


def _is_metric(one: Any) -> bool:
    pairs = one.get("per_query") if isinstance(one, dict) and "metric" in one else None
    return isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
