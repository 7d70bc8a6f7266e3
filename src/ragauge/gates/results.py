"""Result types of a gate: rules, their checks, and the overall result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragauge.core.errors import CheckFailed, RagaugeError
from ragauge.core.findings import append_notes
from ragauge.core.record_types import TabularResult, json_form, record
from ragauge.core.run_dates import RunDate
from ragauge.evaluation.indicators import Indicator

TESTED_CONDITIONS = ("not worse", "better", "non-inferior")
"""Kinds of rules that are decided by a statistical test."""


@dataclass(frozen=True)
class Rule:
    """One condition on a run; `str` gives the text of the rule."""

    indicator: Indicator
    kind: str
    """`limit`, `drop`, `rise`, `not worse`, `better`, `non-inferior`."""
    sign: str = ""
    """`>=`, `>`, `<=` or `<`; empty if no number follows."""
    limit: float = 0.0
    percent: bool = False
    """Whether the limit is a percentage: of the baseline's value, or for a count of all queries."""
    tag: str = ""
    """Tag by which the queries are split; empty for all queries."""
    value: str | None = None
    """Value of the tag; None for every value."""

    @property
    def needs_baseline(self) -> bool:
        """Whether the rule compares two runs."""
        return self.kind != "limit"

    def __str__(self) -> str:
        number = f"{self.limit:.12g}" + "%" * self.percent
        conditions = {
            "limit": f"{self.sign} {number}",
            "drop": f"drop {self.sign} {number}",
            "rise": f"rise {self.sign} {number}",
            "non-inferior": f"non-inferior by {number}",
        }
        where = "" if not self.tag else f" by {self.tag}" if self.value is None else f" in {self.tag}={self.value}"
        return f"{self.indicator.name} {conditions.get(self.kind, self.kind)}{where}"


@json_form(derived=["rule_text"])
@dataclass(frozen=True)
class RuleCheck:
    """Result of checking a rule on a run."""

    rule: Rule
    passed: bool
    reason: str = ""
    """Reason for the failure."""
    value: float = math.nan
    limit: float = math.nan
    """Limit that the value was compared with; NaN if a test decides or the value is undefined."""
    n: int = 0
    """Number of queries behind the value."""
    baseline: float = math.nan
    difference: float = math.nan
    """Value of the run minus that of the baseline."""
    ci: tuple[float, float] = (math.nan, math.nan)
    """Confidence interval of the difference that matches the one-sided test: 90% for alpha 0.05."""
    p: float = math.nan
    """One-sided p-value, corrected if requested; NaN without a test."""
    detectable: float = math.nan
    """True loss at which `not worse` fails with 80% power."""

    @property
    def rule_text(self) -> str:
        """Text of the rule, such as `ndcg@10 >= 0.4`."""
        return str(self.rule)

    @property
    def is_tested(self) -> bool:
        """Whether a statistical test decided."""
        return not math.isnan(self.p)


class GateError(NamedTuple):
    """Error because of which no rule could be evaluated."""

    kind: str
    """Name of its class, such as `Incomparable`."""
    message: str
    hint: str = ""

    @classmethod
    def describe(cls, error: RagaugeError) -> GateError:
        """Describe an exception."""
        return cls(type(error).__name__, error.message, error.hint or "")


@record("ragauge-gate", 1, derived=("passed",))
@dataclass(frozen=True, eq=False)
class Gate(TabularResult, report="ragauge.gates.report"):
    """Result of a gate: the checks of all rules.

    It is true only if every check passed.
    """

    run: str
    checks: Sequence[RuleCheck]
    baseline: str | None = None
    convention: str = ""
    alpha: float = 0.05
    correction: str = "none"
    notes: Sequence[str] = ()
    run_dates: Mapping[str, RunDate] = field(default_factory=dict)
    """Dates of the results of `run` and `baseline`, as far as known."""
    error: GateError | None = None
    """Error because of which there are no checks."""

    @property
    def passed(self) -> bool:
        """Whether every check passed; False without checks."""
        return bool(self.checks) and not self.failed

    @property
    def failed(self) -> list[RuleCheck]:
        """Checks that did not pass."""
        return [check for check in self.checks if not check.passed]

    def raise_if_failed(self) -> None:
        """Raise CheckFailed with one line per failed check."""
        __tracebackhide__ = True  # pytest then reports the caller's line.
        if not self.passed:
            lines = [f"{check.rule}: {check.reason}" for check in self.failed]
            raise CheckFailed(f"{self.run}: {len(lines)} of {len(self.checks)} checks failed\n  " + "\n  ".join(lines))

    def __bool__(self) -> bool:
        return self.passed

    def __iter__(self) -> Iterator[RuleCheck]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def __repr__(self) -> str:
        lines = [
            f"{'pass' if check.passed else 'FAIL'} {check.rule}" + (f": {check.reason}" if check.reason else "")
            for check in self.checks
        ]
        return append_notes("\n".join(lines), self.notes)
