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
from ragauge.audits.evidence import Evidence
from ragauge.core.errors import MissingEvidence, MissingExtra, UnknownName
from ragauge.core.findings import LEAKS, Audit, Finding

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
LEAKING: Mapping[str, str] = {
    "chance": "mend the leak first: judgments that follow a leaking field do not follow the text, and a search by text "
    "can then be no better than chance",
}
"""Remedies that apply instead if judgments leak into the data."""


def with_remedy(one: Finding, *, leaking: bool = False) -> Finding:
    """Return a problem with its remedy.

    Other findings lose their remedy, except one that explains an expected score.
    """
    if one.problem and leaking and one.what in LEAKING:
        return replace(one, remedy=LEAKING[one.what])
    if one.problem:
        return one if one.remedy else replace(one, remedy=REMEDIES[one.what])
    return one if one.what == "expected" else replace(one, remedy="")


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
        Check("expect", "the way of counting that explains a number", score_explanation.expect, ("a run", "a number")),
        Check("conventions", "a run under every preset, side by side", comparability.conventions, ("a run",)),
        Check("repetitions", "documents that stand twice in a ranking", suspicious_scores.repetitions, ("a run",)),
        Check("ties", "best, worst, expected score over tie orders", ties.ties, ("a run",)),
        Check(
            "survivorship",
            "queries that are missing or failed",
            suspicious_scores.survivorship,
            ("a run",),
        ),
        Check("truth", "truth that was cut off, ceilings below 1", judgment_coverage.truth),
        Check("depth", "runs that end before a measure's cutoff", judgment_coverage.depth, ("a run",)),
        Check("unjudged", "unjudged documents, what they leave open", judgment_coverage.unjudged, ("a run",)),
        Check("chance", "scores no better than chance; the oracle", chance_level.chance, ("a run",)),
        Check("perfection", "scores that are too good", suspicious_scores.perfection, ("a run",)),
        Check("sameness", "runs or measures of which two are one", suspicious_scores.sameness, ("a run",)),
        Check("footing", "runs that had not the same to work with", comparability.footing, ("a run",)),
        Check("repeats", "rankings that change from time to time", stability.repeats, ("a run", "repeats")),
        Check("enough", "too few queries, also for a difference", stability.enough),
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
