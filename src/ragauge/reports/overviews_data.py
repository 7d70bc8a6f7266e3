"""Export an overview as JSON data, as defined in `report.schema.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ragauge.outcomes import Mean, Speed
from ragauge.overviews import Curve, Entry, Overview, Variation
from ragauge.reports.audits import as_data as audit_data
from ragauge.reports.comparisons import as_data as comparisons_data
from ragauge.reports.comparisons import row_data
from ragauge.reports.overviews import UNKNOWN, asked, known_n, manifest_of
from ragauge.reports.overviews_csv import asked as asked_of
from ragauge.reports.tables import without_nan
from ragauge.reports.verdicts import verdict

SCHEMA = "ragauge-report/2"
"""Schema name and version. A new version means that fields were removed or redefined."""


def as_data(overview: Overview, *, per_query: bool = False, moved: int = 3) -> dict[str, Any]:
    """Return an overview as JSON data without rankings; NaN becomes None.

    `per_query` adds every query of each system. `moved` is the number of queries listed with each comparison, for
    those that rose most and for those that fell most.
    """
    about = manifest_of(overview)
    hashes = {**(about.get("dataset") or {}), "judgments_hash": overview.judgments_hash or None}
    data = {
        "schema": SCHEMA,
        "title": overview.title,
        "made": overview.made or None,
        "verdict": verdict(overview),
        "dataset": {
            "name": overview.dataset or None,
            "documents": overview.documents_known,
            "queries": asked(overview),
            **{name: hashes.get(name) for name in ("documents_hash", "queries_hash", "judgments_hash")},
        },
        "convention": overview.convention or None,
        "confidence": overview.confidence,
        "measures": [{"name": m, "lower_is_better": m in overview.lower_is_better} for m in overview.measures],
        "baseline": overview.baseline,
        "systems": {name: _system(overview, entry, per_query=per_query) for name, entry in overview.entries.items()},
        "comparisons": None if overview.compared is None else comparisons_data(overview.compared, moved),
        "rival": None if overview.rival is None else row_data(overview.rival, moved, overview.queries),
        "curves": [_curve(one) for one in overview.curves],
        "strata": {
            tag: [
                {"value": one.value, "n": one.n, "means": {name: _mean(mean) for name, mean in one.means.items()}}
                for one in several
            ]
            for tag, several in overview.strata.items()
        },
        "audit": None if overview.audit is None else audit_data(overview.audit),
        "failures": dict(overview.failures),
        "notes": list(overview.notes),
    }
    return dict(without_nan(plain(data)))


def _mean(mean: Mean) -> dict[str, Any]:
    return {"mean": mean.value, "n": known_n(mean), "low": mean.low, "high": mean.high}


def _system(overview: Overview, entry: Entry, *, per_query: bool) -> dict[str, Any]:
    system = entry.manifest.get("system") or {}
    found: dict[str, Any] = {
        "description": system.get("description"),
        "measures": {
            m: _mean(entry.means.get(m, UNKNOWN)) | {"unscored": _unscored(entry, m)} for m in overview.measures
        },
        "made": None if entry.answered is None else entry.answered.made,
        "reused": entry.answered is not None and entry.answered.reused,
        "trials": len(entry.scores),
        "speed": None if entry.speed is None else _speed(entry.speed),
        "costs": dict(entry.costs),
        "failed": dict(entry.failed),
        "manifest": dict(entry.manifest) or None,
    }
    if entry.variation:
        found["variation"] = {m: _variation(entry, m, one) for m, one in entry.variation.items()}
    if per_query:
        found["queries"] = [
            {
                "query": one.query,
                "trial": one.trial,
                "values": {m: one.values.get(m, math.nan) for m in overview.measures},
                "total_ms": one.total_ms,
                "status": one.status or None,
            }
            for one in asked_of(entry)
        ]
    return found


def _variation(entry: Entry, measure: str, one: Variation) -> dict[str, Any]:
    return {
        "trials": one.trials,
        "n": one.n,
        "left_out": one.left_out,
        "unstable": one.unstable,
        "means": [scores.means[measure] for scores in entry.scores],
        "mean_squares": one.squares._asdict(),
        **{name: getattr(one, name)._asdict() for name in ("estimates", "variances", "shares", "of_mean")},
        "error": one.error,
        "by_queries": one.by_queries,
        "by_trials": one.by_trials,
        "trials_enough": one.enough(),
    }


def _speed(speed: Speed) -> dict[str, Any]:
    return {
        "stages": {stage: asdict(one) for stage, one in speed.stages.items()},
        "throughput": speed.throughput,
        "asked": speed.asked,
        "failed": speed.failed,
        "timed_out": speed.timed_out,
    }


def _unscored(entry: Entry, measure: str) -> dict[str, str]:
    """Return the queries without a value in any trial, with the reason."""
    lacking = [one.unscored.get(measure, {}) for one in entry.scores if measure in one.values]
    return {query: why for query, why in lacking[0].items() if all(query in one for one in lacking)} if lacking else {}


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "measure": curve.measure,
        "k": list(curve.ks),
        "values": {name: list(values) for name, values in curve.values.items()},
        "enough": {
            name: {"k": one.k, "tolerance": one.tolerance, "confidence": one.confidence}
            for name, one in curve.enough.items()
        },
    }


def plain(value: Any) -> Any:
    """Convert a value to JSON types. A manifest from a file can contain any type.

    >>> import numpy as np
    >>> plain({1: (np.float64(0.5), {"a"}), "when": None})
    {'1': [0.5, ['a']], 'when': None}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, str | int | float | None):
        return float(value) if isinstance(value, float) else value  # NumPy floats have another repr.
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [plain(one) for one in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)
