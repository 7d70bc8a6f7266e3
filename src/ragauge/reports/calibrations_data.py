"""Calibrations as data for JSON, described by `calibration.schema.json`, and as long CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ragauge.calibrations import Calibration, Figure
from ragauge.reports.overviews_data import plain
from ragauge.reports.tables import csv_text, number, without_nan

SCHEMA = "ragauge-calibration/1"
"""Schema version; it changes if a field is removed or changes its meaning."""
LEFT_OUT = {"pairs"}


def as_data(several: Sequence[Calibration], *, per_sample: bool = False) -> dict[str, Any]:
    """Convert calibrations to JSON data; NaN becomes None.

    `per_sample` includes the samples.
    """
    return {"schema": SCHEMA, "calibrations": [_one(one, per_sample=per_sample) for one in several]}


def _one(one: Calibration, *, per_sample: bool) -> dict[str, Any]:
    found = {
        field.name: _told(getattr(one, field.name)) for field in fields(one) if per_sample or field.name not in LEFT_OUT
    }
    # The main results are at the top level too, not only in the list of raters.
    top = {"figures": _told(one.figures), "confusion": _told(one.confusion), "scored": one.scored}
    return dict(without_nan(plain({**found, **top})))


def _told(thing: Any) -> Any:
    """Convert records to mappings recursively."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: _told(getattr(thing, field.name)) for field in fields(thing)}
    if hasattr(thing, "_asdict"):
        told = {name: _told(value) for name, value in thing._asdict().items()}
        if isinstance(thing, Figure) and not thing.why:
            del told["why"]
        return told
    if isinstance(thing, Mapping):
        return {str(name): _told(value) for name, value in thing.items()}
    return [_told(one) for one in thing] if isinstance(thing, list | tuple) else thing


def as_csv(several: Sequence[Calibration]) -> str:
    """Render calibrations as long CSV: one row for each dataset, rater and statistic."""
    rows = (
        [one.dataset, one.judge, one.measure, rater.name, name, *map(number, figure[:3]), str(figure.n), figure.why]
        for one in several
        for rater in one.raters
        for name, figure in rater.figures.items()
    )
    return csv_text(["set", "judge", "measure", "rater", "figure", "value", "low", "high", "n", "why"], rows)
