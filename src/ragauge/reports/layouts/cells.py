"""Parse and format the cells of other tools' result files."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.csv_cells import neutralise_cell
from ragauge.core.errors import BadInput
from ragauge.core.summaries import Latency, Speed
from ragauge.files.source import InputFile
from ragauge.files.table_rows import TableRows, read_rows


def parse_finite_number(value: Any, name: str, label: str, line: int | None = None) -> float | None:
    """Parse a finite number; None for a missing value or NaN.

    Raises BadInput for anything else.

    >>> (parse_finite_number("0.5", "mrr", "t.csv"), parse_finite_number(None, "mrr", "t.csv"),
    ...  parse_finite_number("nan", "mrr", "t.csv"))
    (0.5, None, None)
    """
    if value is None:
        return None
    try:
        number = math.inf if isinstance(value, bool | list | dict) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if math.isinf(number):
        raise BadInput(
            f"{name} must be a finite number, got `{str(value)[:40]}`",
            file=label,
            line=line,
            hint="leave unknown values empty",
        )
    return None if math.isnan(number) else number


def parse_count(value: Any, name: str, label: str, line: int | None = None) -> int | None:
    """Parse an integer of at least 0; None for an empty value.

    Raises BadInput for anything else.

    >>> parse_count("3", "n", "t.csv"), parse_count("", "n", "t.csv")
    (3, None)
    """
    finite_number = parse_finite_number(None if value == "" else value, name, label, line)
    if finite_number is None:
        return None
    if finite_number < 0 or finite_number != int(finite_number):
        raise BadInput(f"{name} must be an integer of at least 0, got `{str(value)[:40]}`", file=label, line=line)
    return int(finite_number)


def read_layout_table(path: str, needed: Sequence[str], figures: Iterable[str], tool_name: str) -> TableRows:
    """Read the rows of a CSV or TSV file and check its columns.

    Raises BadInput if a column of `needed` is missing, if no column of `figures` exists, or if there are no rows.
    """
    source = InputFile(path)
    rows = read_rows(source, "tsv" if source.ending == ".tsv" else "csv")
    missing = [name for name in needed if name not in rows.names]
    if missing:
        raise BadInput(
            f"not a table of {tool_name}: {_columns_phrase('column', missing)} missing",
            file=source.label,
            hint=f"found {', '.join(rows.names) or 'nothing'}",
        )
    figure_columns = list(figures)
    if not any(name in rows.names for name in figure_columns):
        raise BadInput(
            f"no column has a measure of {tool_name}",
            file=source.label,
            hint=f"add a column such as {figure_columns[0]}",
        )
    if not len(rows):
        raise BadInput("no rows", file=source.label)
    return rows


def _columns_phrase(noun: str, names: Sequence[str]) -> str:
    return f"the {noun}{'s' if len(names) > 1 else ''} {', '.join(names)} {'are' if len(names) > 1 else 'is'}"


def unknown_column_notes(rows: TableRows, known_columns: Iterable[str]) -> list[str]:
    """Return a note on columns that the layout does not define, if there are any."""
    unknown_columns = [name for name in rows.names if name not in set(known_columns)]
    return (
        [f"{_columns_phrase('column', unknown_columns)} not part of this layout and left out"]
        if unknown_columns
        else []
    )


def parse_row_numbers(rows: TableRows, at: int, columns: Iterable[str]) -> dict[str, float]:
    """Parse the numbers in some cells of a row, by column. Empty cells are omitted."""
    numbers = {}
    for name in columns:
        value = parse_finite_number(
            rows.columns[name][at] if name in rows.columns else None, name, rows.label, rows.line(at)
        )
        if value is not None:
            numbers[name] = value
    return numbers


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Format rows as CSV with exactly these columns.

    None and NaN are empty; numbers are not rounded.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(name)) for name in columns] for row in rows)
    return out.getvalue()


def _csv_cell(value: Any) -> str:
    plain = to_plain_value(value)
    return "" if plain is None else neutralise_cell(plain) if isinstance(plain, str) else str(plain)


def to_json(value: Any) -> str:
    """Format a value as strict JSON. NaN and infinities become null."""
    return json.dumps(to_plain_value(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_plain_value(value: Any) -> Any:
    """Convert NumPy types, tuples and non-finite numbers to plain JSON values.

    >>> to_plain_value({"a": (1, math.nan)})
    {'a': [1, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_value(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    try:
        plain = float(value)
    except (TypeError, ValueError):
        return str(value)
    return plain if math.isfinite(plain) else None


def build_speed(
    stages: Mapping[str, Mapping[str, float]], n_queries: int = 0, throughput: float = math.nan
) -> Speed | None:
    """Build a Speed from the values that a file states; None if it states none.

    Unknown statistics are NaN.
    """
    kinds = ("mean", "p50", "p90", "p95", "p99", "std", "min", "max")
    latencies = {
        stage: Latency(n_queries, *(statistics.get(kind, math.nan) for kind in kinds))
        for stage, statistics in stages.items()
        if statistics
    }
    return Speed(latencies, throughput, n_queries, 0, 0) if latencies or not math.isnan(throughput) else None


def find_latency_ms(speed: Speed | None, stage: str, kind: str = "mean") -> float | None:
    """Return a latency statistic of a stage in ms, or None if it is unknown."""
    latency = None if speed is None else speed.stages.get(stage)
    return None if latency is None or math.isnan(getattr(latency, kind)) else float(getattr(latency, kind))


def find_dataset_name(overview: Overview, entry: SystemSummary) -> str | None:
    """Return the name of the dataset, or None if it is unknown."""
    dataset = entry.manifest.get("dataset")
    return (dataset.get("name") if isinstance(dataset, Mapping) else None) or overview.dataset or None


@dataclass(frozen=True)
class LayoutMeasures:
    """Measures of a layout and the convention under which its names are defined."""

    layout: str
    convention: str
    measures: tuple[str, ...]
    accepted: tuple[str, ...] = ()
    """Other conventions whose values can be written in this layout."""

    def check(self, overview: Overview) -> None:
        """Raise BadInput if an overview does not fit the layout.

        It follows another convention, or lacks all measures of the layout.
        """
        convention = overview.convention
        if convention not in ("", "as given") and convention.partition(",")[0] not in (self.convention, *self.accepted):
            raise BadInput(
                f"the scores follow the convention {convention}, but {self.layout} requires {self.convention}",
                hint=f"add `--convention {self.convention}`",
            )
        if not any(name in entry.means for entry in overview.entries.values() for name in self.measures):
            raise BadInput(
                f"no system has a measure of the layout of {self.layout}",
                hint=f"score them with {', '.join(self.measures[:3])}"
                + (f" and {len(self.measures) - 3} more" if len(self.measures) > 3 else ""),
            )
