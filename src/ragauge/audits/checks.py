"""Registry of the audit checks with their requirements and remedies, and the loop that runs them.

To add a check, write its function and add a row to `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ragauge.audits import (
    chance,
    conventions,
    corpus,
    explain,
    footing,
    honesty,
    leakage,
    limits,
    steadiness,
    ties,
    unjudged,
)
from ragauge.audits.evidence import Evidence
from ragauge.audits.remedies import with_remedy
from ragauge.errors import MissingEvidence, MissingExtra, UnknownName
from ragauge.findings import LEAKS, Audit, Finding

NEEDS: Mapping[str, tuple[Callable[[Evidence], bool], str]] = {
    "a run": (lambda found: bool(found.runs), "no run is given"),
    "documents": (
        lambda found: found.documents is not None,
        "the documents are not known: --corpus (documents=), or --dataset",
    ),
    "queries": (
        lambda found: found.queries is not None,
        "the queries' texts are not known: --queries (queries=), or --dataset",
    ),
    "repeats": (
        lambda found: any(found.repeats.values()),
        "no system was asked twice: give NAME=FILE again (repeats=), or run with --repeats (repeats=)",
    ),
    "a number": (lambda found: bool(found.claims), "no number is to be explained: --expect ndcg@10=0.7439 (expect=)"),
}
"""Inputs that a check can require: a predicate, and the message shown if the input is missing."""


@dataclass(frozen=True)
class Check:
    """An audit check: name, description, function and required inputs."""

    name: str
    about: str
    look: Callable[[Evidence], Iterator[Finding]]
    """Function that yields the findings; its docstring says when a finding is a problem."""
    needs: tuple[str, ...] = ()


CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        Check("expect", "the way of counting that explains a number", explain.expect, ("a run", "a number")),
        Check("conventions", "a run under every preset, side by side", conventions.conventions, ("a run",)),
        Check("repetitions", "documents that stand twice in a ranking", honesty.repetitions, ("a run",)),
        Check("ties", "best, worst, expected score over tie orders", ties.ties, ("a run",)),
        Check(
            "survivorship",
            "queries that are missing or failed",
            honesty.survivorship,
            ("a run",),
        ),
        Check("truth", "truth that was cut off, ceilings below 1", limits.truth),
        Check("depth", "runs that end before a measure's cutoff", limits.depth, ("a run",)),
        Check("unjudged", "unjudged documents, what they leave open", unjudged.unjudged, ("a run",)),
        Check("chance", "scores no better than chance; the oracle", chance.chance, ("a run",)),
        Check("perfection", "scores that are too good", honesty.perfection, ("a run",)),
        Check("sameness", "runs or measures of which two are one", honesty.sameness, ("a run",)),
        Check("footing", "runs that had not the same to work with", footing.footing, ("a run",)),
        Check("repeats", "rankings that change from time to time", steadiness.repeats, ("a run", "repeats")),
        Check("enough", "too few queries, also for a difference", steadiness.enough),
        Check("orphans", "judgments of what is not there", corpus.orphans),
        Check("duplicates", "documents with the same text", corpus.duplicates, ("documents",)),
        Check("near-duplicates", "documents with nearly the same text", corpus.near_duplicates, ("documents",)),
        Check("own-documents", "queries that are documents", leakage.own_documents, ("documents", "queries")),
        Check("verbatim", "queries that stand in their answers", leakage.verbatim, ("documents", "queries")),
        Check("predictors", "fields that tell answers better than text", leakage.predictors, ("documents", "queries")),
    )
}


def find(names: Iterable[str] | None) -> list[Check]:
    """Return the checks with the given names, in registry order.

    All of them if no name is given. Raises UnknownName for a name that is not registered.
    """
    wanted = {name.strip().lower().replace("_", "-") for name in names or CHECKS}
    for name in wanted:
        if name not in CHECKS:
            raise UnknownName("check", name, CHECKS, hint=f"there are {', '.join(CHECKS)}")
    return [check for name, check in CHECKS.items() if name in wanted]


def look(evidence: Evidence, checks: Iterable[Check], absent: Mapping[str, str] | None = None) -> Audit:
    """Run checks and return their findings, leaks first, then in registry order.

    A check without its required inputs is skipped, and the reason is recorded. `absent` maps inputs to more specific
    reasons. Leaks come first because they invalidate the other findings.
    """
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    for check in checks:
        lacking = [one for one in check.needs if not NEEDS[one][0](evidence)]
        if lacking:
            skipped[check.name] = "; ".join(dict.fromkeys((absent or {}).get(one) or NEEDS[one][1] for one in lacking))
            continue
        try:
            findings.extend(check.look(evidence))
        except (MissingEvidence, MissingExtra) as error:
            skipped[check.name] = error.message + (f": {error.hint}" if error.hint else "")
    leaking = any(one.what in LEAKS for one in findings)
    told = [with_remedy(one, leaking=leaking) for one in findings]
    return Audit(sorted(told, key=lambda one: one.what not in LEAKS), skipped)
