"""Checks of inputs: their definition, selection by name, and the loop that runs them.

`audit` and `validate` have one table of checks each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import MissingEvidence, MissingExtra, UnknownName
from ragauge.core.findings import Finding

EvidenceT = TypeVar("EvidenceT")


@dataclass(frozen=True)
class Requirement(Generic[EvidenceT]):
    """Part of the evidence that a check can require."""

    name: str
    is_met: Callable[[EvidenceT], bool]
    reason: str
    """Why a check is skipped that requires it, with the option that adds it."""


@dataclass(frozen=True)
class Check(Generic[EvidenceT]):
    """A check with what it finds."""

    name: str
    about: str
    run: Callable[[EvidenceT], Iterator[Finding]]
    """Function that yields the findings; its docstring says when a finding is a problem."""
    needs: tuple[Requirement[EvidenceT], ...] = ()


class CheckResults(NamedTuple):
    """Findings, `{check: reason}` of skipped checks, and seconds by check."""

    findings: list[Finding]
    skipped: dict[str, str]
    seconds: dict[str, float]


def select_checks(table: Mapping[str, Check[EvidenceT]], names: str | Iterable[str] | None) -> list[Check[EvidenceT]]:
    """Return the named checks in the order of the table, or all if no name is given.

    Raise UnknownName for a name that is not in the table.
    """
    requested = [names] if isinstance(names, str) else names
    check_names = {name.strip().lower().replace("_", "-") for name in requested or table}
    for name in check_names:
        if name not in table:
            raise UnknownName("check", name, table)
    return [check for name, check in table.items() if name in check_names]


def run_checks(
    checks: Iterable[Check[EvidenceT]],
    evidence: EvidenceT,
    absent: Mapping[str, str] | None = None,
    progress: ProgressCallback = no_progress,
) -> CheckResults:
    """Run checks in order; a check without its required evidence is skipped with the reason.

    `absent` maps names of requirements to more specific reasons.
    """
    results = CheckResults([], {}, {})
    reasons = absent or {}
    for check in checks:
        unmet = [need for need in check.needs if not need.is_met(evidence)]
        if unmet:
            texts = [reasons.get(need.name) or need.reason for need in unmet]
            results.skipped[check.name] = "; ".join(dict.fromkeys(texts))
            continue
        progress(Progress(check.name))
        began = time.perf_counter()
        try:
            results.findings.extend(check.run(evidence))
        except (MissingEvidence, MissingExtra) as error:
            results.skipped[check.name] = error.message + (f": {error.hint}" if error.hint else "")
            continue
        results.seconds[check.name] = time.perf_counter() - began
    return results
