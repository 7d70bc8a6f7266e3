"""Explanation of published scores: which convention, tie rule or filter reproduces a number."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from ragauge.audits.conventions import restated
from ragauge.audits.departures import Case, Counting
from ragauge.audits.evidence import Evidence
from ragauge.audits.wording import change, counted
from ragauge.errors import BadInput
from ragauge.findings import Finding, Grid
from ragauge.measures.conventions import PRESETS, Convention
from ragauge.measures.names import Measure, parse

NEAR = 0.02
"""Half-width of the interval around a score in which the density of variant scores is estimated."""
PRESET = "convention "
DIGITS = ("a whole number", "one digit", "two digits", "three digits")
"""Names of precisions below the four digits that tools print."""
LUCK = 0.25
"""Minimum expected number of chance matches at which a match explains nothing."""


@dataclass(frozen=True)
class Claim:
    """A published score with the number of digits that it was given with."""

    measure: Measure
    value: float
    digits: int
    text: str

    @classmethod
    def read(cls, measure: str, text: str, rules: Convention) -> Claim:
        """Parse a measure and a published score.

        A value above 1 of a measure that is at most 1 is read as a percentage. Raises BadInput if it is not a
        number.

        >>> found = Claim.read("nDCG@10", "74.39", PRESETS["default"])
        >>> str(found.measure), found.value, found.digits
        ('ndcg@10', 0.7439, 4)
        """
        wanted = parse(measure, rules)
        figure = text.strip()
        try:
            value = float(figure.rstrip("%"))
        except ValueError:
            raise BadInput(f"`{text}` is not a number", hint="--expect ndcg@10=0.7439") from None
        if not math.isfinite(value):
            raise BadInput(f"`{text}` is not a number", hint="--expect ndcg@10=0.7439")
        exponent = Decimal(figure.rstrip("%").strip()).as_tuple().exponent
        digits = max(0, -int(exponent))
        unbounded = wanted.spec.name in ("dcg", "ideal_dcg", "yaap", "utility") or wanted.spec.name.startswith("num_")
        if figure.endswith("%") or (value > 1 and not unbounded):
            value, digits = round(value / 100, digits + 2), digits + 2
        return cls(wanted, value, digits, f"{wanted} = {figure}")

    def met(self, value: float) -> bool:
        """Return whether a value equals the published score after rounding to its digits."""
        return abs(value - self.value) <= 0.5 * 10.0**-self.digits + 1e-9


@dataclass(frozen=True)
class Tried:
    """Score of one variant.

    `steps` is the number of changes from the audit's own scoring.
    """

    steps: int
    label: str
    value: float
    n: int
    how: str = ""
    """Options of `evaluate` that score this way; empty if the data must be changed instead."""


def ways(counting: Counting) -> Iterator[list[Tried]]:
    """Yield the results of variants by number of changes.

    First without change, then each preset and single change, then each pair of changes.
    """

    def tried(steps: int, label: str, case: Case, *how: str) -> Iterator[Tried]:
        found = counting.count(case)
        if found is not None:
            yield Tried(steps, label, *found, _options(counting, how))

    yield list(tried(0, f"as counted here ({counting.evidence.rules.name})", counting.base))
    singles = counting.departures()
    found: list[Tried] = []
    for one in singles:
        case = one.step(counting.base)
        if case is not None:
            found.extend(tried(1, one.label, case, one.how))
    for preset in PRESETS.values():
        case = Case(preset, restated(counting.measure, counting.evidence.rules, preset))
        found.extend(tried(1, PRESET + preset.name, case, f"-C {preset.name}"))
    yield found
    pairs: list[Tried] = []
    for one, two in itertools.combinations(singles, 2):
        case = one.step(counting.base)
        both = two.step(case) if case is not None and one.kind != two.kind else None
        if both is not None:
            pairs.extend(tried(2, f"{one.label}; {two.label}", both, one.how, two.how))
    yield pairs


def _options(counting: Counting, how: Sequence[str]) -> str:
    """Return the options with which `evaluate` reproduces a variant of the audit."""
    if not all(how):
        return ""
    preset, *options = counting.evidence.rules.name.split(", ")
    usual = [f"-C {preset}"] if preset != "default" else []
    usual += [f"--set {one}" for one in options]
    if any(one.startswith("-C") for one in how):
        usual = []
    if not any(one.startswith("-m") for one in how):
        usual = [f"-m {shlex.quote(str(counting.measure))}", *usual]
    return " ".join([*usual, *how])


def expect(evidence: Evidence) -> Iterator[Finding]:
    """Find the simplest variants that reproduce each published score, to its digits.

    The audit's own scoring is tried first, then every preset and every single change. Pairs of changes are tried
    only if nothing simpler matches in any run. A problem if nothing matches, or if variants are so dense there that
    `MAX_CHANCE_MATCHES` or more would match by chance. A match by a pair of changes is marked as possibly
    accidental.
    """
    for measure, text in evidence.claims:
        claim = Claim.read(measure, text, evidence.rules)
        searches = {run: ways(Counting(evidence, run, claim.measure)) for run in evidence.runs}
        tried: dict[str, list[Tried]] = {run: [] for run in evidence.runs}
        hits: dict[str, list[Tried]] = {}
        for _ in range(3):
            for run, levels in searches.items():
                level = next(levels)
                hits[run] = [one for one in level if claim.met(one.value)]
                tried[run] += level
            if any(hits.values()):
                break
        yield _finding(claim, tried, {run: found for run, found in hits.items() if found})


def _finding(claim: Claim, tried: dict[str, list[Tried]], hits: dict[str, list[Tried]]) -> Finding:
    several = len(tried) > 1
    values = np.unique(np.round([one.value for every in tried.values() for one in every], 9))
    unit = 10.0**-claim.digits
    around = max(NEAR, 2 * unit)
    luck = (int((np.abs(values - claim.value) <= around).sum()) - 1) / (2 * around) * unit
    ways_tried = f"{counted(sum(map(len, tried.values())), 'way')} of counting tried"
    subject = next(iter(hits or tried)) if len(hits or tried) == 1 else "all runs"
    if hits:
        rows = [(run, one) for run, found in hits.items() for one in _merged(found)]
        run, best = rows[0]
        here = next((one.value for one in tried[run] if one.steps == 0), math.nan)
        doubt = luck >= LUCK and best.steps > 0
        message = f"{claim.text}{f' of {run}' if several else ''} is "
        message += f"{'' if best.steps == 0 else 'explained by '}{best.label}{_precision(claim)}"
        if best.steps > 1:
            number = f"{sum(map(len, tried.values())):,}"
            chances = f", since some {luck:.1g} of them would meet it so" if doubt else ""
            message += f" (two departures out of {number} ways tried: may be chance{chances})"
        else:
            chances = f", of which some {luck:.1g} would meet it by chance: this may be one" if doubt else ""
            message += f" ({ways_tried}{chances})"
        grid = _grid(rows[:12], several) if best.steps else None
        moved = change(str(claim.measure), here, best.value)
        return Finding(subject, "expected", doubt, len(rows), message, (), moved, grid, _remedy(best, doubt=doubt))
    flat = [(run, one) for run, every in tried.items() for one in every]
    closest: list[tuple[str, Tried]] = []
    for run, one in sorted(flat, key=lambda pair: (abs(pair[1].value - claim.value), pair[1].steps)):
        if all(abs(one.value - other.value) > 1e-12 for _, other in closest):
            closest.append((run, one))
    message = f"{claim.text} is not explained by any of {ways_tried.replace(' tried', '')}; it may be of other data"
    return Finding(subject, "expected", True, len(flat), message, (), "", _grid(closest[:3], several, "nearest"))


def _precision(claim: Claim) -> str:
    """Describe the precision of a match if it has fewer digits than tools print."""
    if claim.digits >= len(DIGITS) or claim.measure.spec.name.startswith("num_"):
        return ""
    return f", to {DIGITS[claim.digits]}"


def _remedy(best: Tried, *, doubt: bool) -> str:
    """Describe how to reproduce the score and how to cite it."""
    if best.steps == 0:
        return ""
    again = (
        f"`ragauge evaluate … {best.how}` reproduces it"
        if best.how
        else f"no option does this: change the files ({best.label}), and `ragauge evaluate` reproduces it"
    )
    if doubt or best.steps > 1:
        return f"{again}; ask how it was counted before you cite it"
    return f"{again}; say so when you cite it"


def _merged(found: Sequence[Tried]) -> list[Tried]:
    """Merge presets with equal scores into one entry."""
    presets: dict[float, list[Tried]] = {}
    for one in found:
        if one.label.startswith(PRESET):
            presets.setdefault(round(one.value, 9), []).append(one)
    together = [
        alike[0]
        if len(alike) == 1
        else replace(alike[0], label=f"conventions {', '.join(one.label.removeprefix(PRESET) for one in alike)}")
        for alike in presets.values()
    ]
    return [*(one for one in found if not one.label.startswith(PRESET)), *together]


def _grid(rows: Sequence[tuple[str, Tried]], several: bool, what: str = "explained by") -> Grid:
    lines: list[list[str | float | None]] = [
        [*([run] if several else []), one.label, one.value, one.n] for run, one in rows
    ]
    return Grid([*(["run"] if several else []), what, "value", "n"], lines)
