"""Registry of the audit checks with their requirements and remedies, and the loop that runs them.

To add a check, write its function and add a row to `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ragauge.audits import (
    chance_level,
    comparability,
    corpus,
    judgment_coverage,
    leakage,
    score_explanation,
    stability,
    suspicious_scores,
    ties,
)
from ragauge.audits.evidence import AuditInput
from ragauge.core.errors import MissingEvidence, MissingExtra, UnknownName
from ragauge.core.findings import LEAK_FINDINGS, Audit, Finding

REMEDIES: Mapping[str, str] = {
    "expected": "ask for the run file and the judgments behind the number, and count them here",
    "repetitions": "drop repetitions where the run is made; until then `evaluate --set duplicates=first` scores it",
    "ties": "return scores with enough digits, or state the tie rule; "
    "`evaluate --set ties=ranked` scores the order given",
    "score width": "say which width the number is of: `evaluate --set width=float32` counts as trec_eval 9 does",
    "survivorship": "run the missing queries, or count them 0 (`--set missing=zero`) and say how many there are",
    "ground truth": "judge more deeply, or cite no recall of these judgments; precision at small cutoffs suffers least",
    "ceiling": "report recall(of=capped) or a deeper cutoff beside it",
    "depth": "make the run again and deeper, or report the measure at the depth that it has",
    "unjudged": "judge these documents, or report unjudged@10 beside the score and `--set unjudged=condensed` too",
    "pool bias": "judge the top of both runs before comparing them, or compare with `--set unjudged=condensed`",
    "judged only": "search the whole collection, or call it reranking and compare it only with runs of its kind",
    "chance": "look for ids that do not match, scores in the wrong order, or a reranker that does nothing",
    "perfection": "look for judgments that the system has seen, and for questions made from their answers",
    "ordered by grade": "find out whether the grades went into the run; if so, throw it away",
    "all alike": "look at single queries (`evaluate -q`): a constant is no measurement",
    "same run": "find out which of the files is the copy, and leave it out",
    "other data": "run all of them on the same documents and queries",
    "footing": "give all walkers the same embedder and graph, or call it a comparison of whole systems",
    "repeats": "fix seeds and the order of equal scores, or ask three times or more (`run --repeats 3`), which reports "
    "average over",
    "few queries": "judge 25 queries or more, 50 if you can, before you call one system better",
    "enough queries": "judge more queries, or call the runs equal",
    "orphan documents": "mend the ids, or take these judgments out, and say so when you cite the score",
    "orphan queries": "mend the ids, or take these queries out, and say so when you cite the score",
    "duplicates": "keep one document of each text, or give all copies the same judgments",
    "contradictions": "judge these pairs again; until then the better grade is the safer one",
    "empty documents": "find their texts, or take them out of corpus and judgments",
    "near duplicates": "keep one document of each group, or give all of them the same judgments",
    "own documents": "drop each query's own document from its ranking before scoring",
    "shared ids": "score with `--set own=kept`, or give queries and documents different ids",
    "verbatim answers": "report the score without these queries beside the whole, or write them anew in other words",
    "leaking field": "take the field out of what systems can see, or collect judgments that do not depend on it",
    "leaking score": "find out what the score is made of: it must not come from the judgments or from their making",
}
"""Remedies by the name of the finding."""
REMEDIES_IF_LEAKING: Mapping[str, str] = {
    "chance": "mend the leak first: judgments that follow a leaking field do not follow the text, and a search by text "
    "can then be no better than chance",
}
"""Remedies that apply instead if judgments leak into the data."""


def with_remedy(one: Finding, *, leaking: bool = False) -> Finding:
    """Return a problem with its remedy.

    Other findings lose their remedy, except one that explains an expected score.
    """
    if one.problem and leaking and one.what in REMEDIES_IF_LEAKING:
        return replace(one, remedy=REMEDIES_IF_LEAKING[one.what])
    if one.problem:
        return one if one.remedy else replace(one, remedy=REMEDIES[one.what])
    return one if one.what == "expected" else replace(one, remedy="")


REQUIREMENTS: Mapping[str, tuple[Callable[[AuditInput], bool], str]] = {
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
class AuditCheck:
    """An audit check: name, description, function and required inputs."""

    name: str
    description: str
    run: Callable[[AuditInput], Iterator[Finding]]
    """Function that yields the findings; its docstring says when a finding is a problem."""
    needs: tuple[str, ...] = ()


AUDIT_CHECKS: Mapping[str, AuditCheck] = {
    check.name: check
    for check in (
        AuditCheck(
            "expect",
            "the way of counting that explains a number",
            score_explanation.check_published_scores,
            ("a run", "a number"),
        ),
        AuditCheck(
            "conventions", "a run under every preset, side by side", comparability.check_conventions, ("a run",)
        ),
        AuditCheck(
            "repetitions",
            "documents that stand twice in a ranking",
            suspicious_scores.check_repeated_documents,
            ("a run",),
        ),
        AuditCheck("ties", "best, worst, expected score over tie orders", ties.check_ties, ("a run",)),
        AuditCheck(
            "survivorship",
            "queries that are missing or failed",
            suspicious_scores.check_missing_queries,
            ("a run",),
        ),
        AuditCheck("truth", "truth that was cut off, ceilings below 1", judgment_coverage.check_truncated_judgments),
        AuditCheck("depth", "runs that end before a measure's cutoff", judgment_coverage.check_depth, ("a run",)),
        AuditCheck(
            "unjudged", "unjudged documents, what they leave open", judgment_coverage.check_unjudged, ("a run",)
        ),
        AuditCheck("chance", "scores no better than chance; the oracle", chance_level.check_chance_level, ("a run",)),
        AuditCheck("perfection", "scores that are too good", suspicious_scores.check_perfect_scores, ("a run",)),
        AuditCheck(
            "sameness", "runs or measures of which two are one", suspicious_scores.check_identical_runs, ("a run",)
        ),
        AuditCheck("footing", "runs that had not the same to work with", comparability.check_comparability, ("a run",)),
        AuditCheck("repeats", "rankings that change from time to time", stability.check_repeats, ("a run", "repeats")),
        AuditCheck("enough", "too few queries, also for a difference", stability.check_query_count),
        AuditCheck("orphans", "judgments of what is not there", corpus.check_orphans),
        AuditCheck("duplicates", "documents with the same text", corpus.check_duplicates, ("documents",)),
        AuditCheck(
            "near-duplicates", "documents with nearly the same text", corpus.check_near_duplicates, ("documents",)
        ),
        AuditCheck(
            "own-documents", "queries that are documents", leakage.check_own_documents, ("documents", "queries")
        ),
        AuditCheck(
            "verbatim", "queries that stand in their answers", leakage.check_verbatim_queries, ("documents", "queries")
        ),
        AuditCheck(
            "predictors",
            "fields that tell answers better than text",
            leakage.check_predictors,
            ("documents", "queries"),
        ),
    )
}


def select_checks(names: Iterable[str] | None) -> list[AuditCheck]:
    """Return the checks with the given names, in registry order.

    All of them if no name is given. Raises UnknownName for a name that is not registered.
    """
    wanted = {name.strip().lower().replace("_", "-") for name in names or AUDIT_CHECKS}
    for name in wanted:
        if name not in AUDIT_CHECKS:
            raise UnknownName("check", name, AUDIT_CHECKS, hint=f"there are {', '.join(AUDIT_CHECKS)}")
    return [check for name, check in AUDIT_CHECKS.items() if name in wanted]


def run_checks(evidence: AuditInput, checks: Iterable[AuditCheck], absent: Mapping[str, str] | None = None) -> Audit:
    """Run checks and return their findings, leaks first, then in registry order.

    A check without its required inputs is skipped, and the reason is recorded. `absent` maps inputs to more specific
    reasons. Leaks come first because they invalidate the other findings.
    """
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    for check in checks:
        lacking = [one for one in check.needs if not REQUIREMENTS[one][0](evidence)]
        if lacking:
            skipped[check.name] = "; ".join(
                dict.fromkeys((absent or {}).get(one) or REQUIREMENTS[one][1] for one in lacking)
            )
            continue
        try:
            findings.extend(check.run(evidence))
        except (MissingEvidence, MissingExtra) as error:
            skipped[check.name] = error.message + (f": {error.hint}" if error.hint else "")
    leaking = any(one.what in LEAK_FINDINGS for one in findings)
    told = [with_remedy(one, leaking=leaking) for one in findings]
    return Audit(sorted(told, key=lambda one: one.what not in LEAK_FINDINGS), skipped)
