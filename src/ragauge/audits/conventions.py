"""Scores of the same run under every preset: which tool would report which number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ragauge.audits.evidence import Evidence
from ragauge.audits.wording import change, counted
from ragauge.errors import RagaugeError
from ragauge.findings import Finding, Grid
from ragauge.measures.conventions import PRESETS, Convention
from ragauge.measures.names import Measure, make

WHAT = "conventions"
REFUSED = "refused"


def restated(measure: Measure, rules: Convention, other: Convention) -> Measure:
    """Translate a measure from one convention to another.

    Options set by the first convention become those of the other. Options chosen for this measure are kept.

    >>> from ragauge.measures.names import parse
    >>> str(restated(parse("ndcg@10"), PRESETS["default"], PRESETS["rig"]))
    'ndcg(gain=exp)@10'
    """
    cutoff = measure.cutoff
    if measure.spec.name == "mrr" and cutoff == rules.mrr_depth:
        cutoff = None
    usual = dict(make(measure.spec, measure.cutoff, {}, rules).options)
    chosen = {name: value for name, value in measure.options if value != usual[name]}
    return make(measure.spec, cutoff, chosen, other)


@dataclass(frozen=True)
class Row:
    """Means of a run under one preset, by measure, or the reasons for missing ones."""

    values: tuple[float | None, ...]
    reasons: tuple[str, ...]

    def agrees(self, other: Row) -> bool:
        """Return whether two presets give the same scores to four decimals.

        The reasons for missing scores must be equal too.
        """
        pairs = zip(self.values, other.values, strict=True)
        return self.reasons == other.reasons and all(_shown(a) == _shown(b) for a, b in pairs)


def _shown(value: float | None) -> str:
    return REFUSED if value is None else f"{value:.4f}"


def under_preset(evidence: Evidence, run: str, preset: Convention, measures: Sequence[Measure]) -> Row:
    """Score a run under a preset.

    A measure that the preset rejects gets its reason instead.
    """
    values: list[float | None] = []
    reasons: list[str] = []
    for measure in measures:
        try:
            wanted = restated(measure, evidence.rules, preset)
            mean = next(iter(evidence.scores(run, rules=preset, measures=[wanted]).means.values()))
            values.append(None if math.isnan(mean) else mean)
            reasons.append("no query is scored" if math.isnan(mean) else "")
        except RagaugeError as error:
            values.append(None)
            reasons.append(error.message)
    return Row(tuple(values), tuple(reasons))


def conventions(evidence: Evidence) -> Iterator[Finding]:
    """Score every run under every preset; presets with equal scores share a row.

    With several runs, only the first measure is scored. If the judgments have several relevant grades, a row uses
    the second of them as the minimum relevant grade. Never a problem.
    """
    measures = list(evidence.measures if len(evidence.runs) == 1 else evidence.measures[:1])
    higher = _higher_rel(evidence, measures)
    presets = {**PRESETS, **higher}
    found = {
        run: {name: under_preset(evidence, run, rules, measures) for name, rules in presets.items()}
        for run in evidence.runs
    }
    for name in higher:
        if all(rows[name].agrees(rows["default"]) for rows in found.values()):
            del presets[name]
            found = {run: {one: row for one, row in rows.items() if one != name} for run, rows in found.items()}
    groups = _groups(list(found.values()))
    heads = [group[0] for group in groups]
    if len(found) == 1:
        rows = next(iter(found.values()))
        table = [[", ".join(group), *_cells(rows[group[0]])] for group in groups]
        grid = Grid(["convention", *map(str, measures)], table)
        subject = next(iter(found))
    else:
        table = [[run, *(_cells(rows[head])[0] for head in heads)] for run, rows in found.items()]
        grid = Grid([f"{measures[0]} of", *heads], table)
        subject = "all runs"
    alike = [" = ".join(group) for group in groups if len(group) > 1]
    same = f": {', '.join(alike)}" if alike and len(found) > 1 else ""
    first = [row.values[0] for rows in found.values() for row in rows.values()]
    yield Finding(
        subject,
        WHAT,
        False,
        len(groups),
        f"{len(presets)} conventions give {counted(len(groups), 'set')} of figures{same}{_refusals(found)}",
        (),
        _effect(str(measures[0]), [value for value in first if value is not None]) if len(found) == 1 else "",
        grid,
    )


def _higher_rel(evidence: Evidence, measures: Sequence[Measure]) -> dict[str, Convention]:
    """Return the default convention with a higher minimum relevant grade, by name.

    Empty if that changes no measure.
    """
    grades = sorted({grade for docs in evidence.judgments.nested.values() for grade in docs.values() if grade >= 1})
    if evidence.rules.rel != 1 or len(grades) < 2 or not any("rel" in dict(one.options) for one in measures):
        return {}
    higher = PRESETS["default"].but(rel=grades[1])
    return {f"default, rel={grades[1]:g}": higher}


def _groups(runs: Sequence[Mapping[str, Row]]) -> list[list[str]]:
    """Group the presets that agree on every run, in their given order."""
    groups: list[list[str]] = []
    for name in runs[0]:
        for group in groups:
            if all(rows[name].agrees(rows[group[0]]) for rows in runs):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _cells(row: Row) -> list[str | float | None]:
    return [REFUSED if value is None else value for value in row.values]


def _refusals(found: Mapping[str, Mapping[str, Row]]) -> str:
    """Describe which presets reject the run, with each reason given once."""
    why: dict[str, list[str]] = {}
    for rows in found.values():
        for name, row in rows.items():
            for reason in dict.fromkeys(filter(None, row.reasons)):
                who = why.setdefault(reason, [])
                if name not in who:
                    who.append(name)
    if not why:
        return ""
    return "; refused: " + "; ".join(f"{', '.join(names)} ({reason})" for reason, names in why.items())


def _effect(measure: str, values: Sequence[float]) -> str:
    return change(measure, min(values), max(values)) if values else ""
