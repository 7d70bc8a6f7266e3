"""More nouns: what a gate asks of a run, and whether it is so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ragauge.answer_dates import AnswerDate
from ragauge.errors import CheckFailed

TESTED = ("not worse", "better", "non-inferior")
"""The kinds of rules that a test decides."""
UNSCORED = "unscored"
"""`unscored(faithfulness)`: how many queries have no value of a measure."""


@dataclass(frozen=True)
class Figure:
    """Something that a run has a number for."""

    name: str
    """The canonical name."""
    source: str = "measure"
    """Where it comes from: `measure`, `latency` (a time for each query), `count` (of queries), `whole` (of the run),
    `age` (how much is stale)."""
    lower_is_better: bool = False
    direction_known: bool = True
    """Whether the direction is stated or follows from the name; a rule about a change needs it."""
    paired: bool = True
    """Whether it sums up a value for each query, so that two runs can be tested query by query."""
    splits: bool = True
    """Whether a part of the queries has it too."""

    @property
    def measure(self) -> str:
        """The measure that it is about: itself, or of `unscored(faithfulness)` what stands in brackets.

        >>> Figure("unscored(recall@5)", "count").measure, Figure("recall@5").measure
        ('recall@5', 'recall@5')
        >>> Figure("throughput", "whole").measure
        ''
        """
        if self.source == "measure":
            return self.name
        return self.name[len(UNSCORED) + 1 : -1] if self.name.startswith(f"{UNSCORED}(") else ""


@dataclass(frozen=True)
class Rule:
    """One thing that is asked of a run; prints as it is written."""

    figure: Figure
    kind: str
    """`limit`, `drop`, `rise`, `not worse`, `better`, `non-inferior`."""
    sign: str = ""
    """`>=`, `>`, `<=`, `<`, where a number follows."""
    limit: float = 0.0
    percent: bool = False
    """Whether the number is a percentage: of the baseline's figure, or, of a count, of all queries."""
    tag: str = ""
    """Which tag the queries are split by; empty where all are looked at."""
    value: str | None = None
    """The value of the tag; None where every value is asked for."""

    @property
    def needs_baseline(self) -> bool:
        """Whether it says something about two runs."""
        return self.kind != "limit"

    def __str__(self) -> str:
        number = f"{self.limit:.12g}" + "%" * self.percent
        words = {
            "limit": f"{self.sign} {number}",
            "drop": f"drop {self.sign} {number}",
            "rise": f"rise {self.sign} {number}",
            "non-inferior": f"non-inferior by {number}",
        }
        where = "" if not self.tag else f" by {self.tag}" if self.value is None else f" in {self.tag}={self.value}"
        return f"{self.figure.name} {words.get(self.kind, self.kind)}{where}"


@dataclass(frozen=True)
class Check:
    """A rule, held against a run."""

    rule: Rule
    passed: bool
    reason: str = ""
    """Why it did not pass."""
    value: float = math.nan
    limit: float = math.nan
    """What the value was held against; NaN where a test decides, or nothing could be told."""
    n: int = 0
    """How many queries the value is over."""
    baseline: float = math.nan
    difference: float = math.nan
    """The run's figure minus the baseline's."""
    ci: tuple[float, float] = (math.nan, math.nan)
    """An interval of the difference: the one that belongs to a one-sided test, 90% for a level of 0.05."""
    p: float = math.nan
    """Of the test, one-sided, corrected where that was asked for; NaN where there is none."""
    detectable: float = math.nan
    """How much worse a run must truly be for `not worse` to fail four times out of five."""


@dataclass(frozen=True, eq=False)
class Gate:
    """All that was asked of a run, and what came of it. It is true only if every check passed."""

    run: str
    checks: Sequence[Check]
    baseline: str | None = None
    convention: str = ""
    alpha: float = 0.05
    correction: str = "none"
    notes: Sequence[str] = ()
    answers: Mapping[str, AnswerDate] = field(default_factory=dict)
    """When the answers of `run` and `baseline` were made, as far as that is known."""

    @property
    def passed(self) -> bool:
        """Whether every check passed; a gate that checked nothing has not passed."""
        return bool(self.checks) and not self.failed

    @property
    def failed(self) -> list[Check]:
        """The checks that did not pass."""
        return [check for check in self.checks if not check.passed]

    def raise_if_failed(self) -> None:
        """Raise CheckFailed with a line for each check that did not pass."""
        __tracebackhide__ = True  # pytest then points at the line that asked
        if not self.passed:
            lines = [f"{check.rule}: {check.reason}" for check in self.failed]
            raise CheckFailed(f"{self.run}: {len(lines)} of {len(self.checks)} checks failed\n  " + "\n  ".join(lines))

    def __bool__(self) -> bool:
        return self.passed

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def __repr__(self) -> str:
        lines = [
            f"{'pass' if check.passed else 'FAIL'} {check.rule}" + (f": {check.reason}" if check.reason else "")
            for check in self.checks
        ]
        return "\n".join(lines)
