"""Registry of the audit checks with their requirements and remedies.

To add a check, write its function and add a row to `AUDIT_CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import wraps

from ragauge.audits import (
    chance_level,
    comparability,
    corpus,
    corpus_texts,
    judgment_coverage,
    leakage,
    score_explanation,
    stability,
    suspicious_scores,
    ties,
)
from ragauge.audits.audit_input import AuditInput
from ragauge.core.findings import LEAK_FINDINGS, Audit, Finding
from ragauge.evaluation.checks import Check, Requirement, run_checks

REMEDIES: Mapping[str, str] = {
    "expected": "get the run file and the judgments behind the number, and score them with ragauge",
    "repeated documents": "remove duplicates when the run is created; until then use `evaluate -C duplicates=first`",
    "ties": (
        "return scores with enough digits, or state the tie rule; `evaluate -C ties=ranked` uses the order of the file"
    ),
    "score width": (
        "state the float width of the score: `evaluate -C width=float32` computes scores as trec_eval 9 does"
    ),
    "missing queries": "run the missing queries, and report their number",
    "truncated judgments": (
        "judge more documents, or do not report recall with these judgments; precision at small cutoffs "
        "is affected least"
    ),
    "ceiling": "also report recall(of=capped) or a deeper cutoff",
    "depth": "create a deeper run, or report the measure at the depth of the run",
    "unjudged": "judge these documents, or also report their share and the score with `-C unjudged=condensed`",
    "pool bias": "judge the top of both runs before comparing them, or compare with `-C unjudged=condensed`",
    "judged only": "search the whole corpus, or report it as reranking and compare it only with other reranking runs",
    "chance": "check for ids that do not match, scores in ascending order, or a reranker that has no effect",
    "perfect scores": (
        "check whether the system has seen the judgments, and whether queries were generated from their answers"
    ),
    "ordered by grade": "check whether the grades were used to create the run; if so, discard it",
    "constant score": "inspect scores per query (`evaluate -q`): a constant score measures nothing",
    "same run": "find out which file is the copy, and leave it out",
    "other data": "run all systems on the same documents and queries",
    "comparability": (
        "give all graph retrievers the same embedder and graph, or report it as a comparison of whole systems"
    ),
    "trials": (
        "fix seeds and the order of equal scores, or use at least three trials (`run --repeats 3`), which "
        "reports average over"
    ),
    "few queries": "judge at least 25 queries, better 50, before you conclude that one system is better",
    "query count": "judge more queries, or report no significant difference",
    "orphan documents": "correct the ids, or remove these judgments and state so when you report the score",
    "orphan queries": "correct the ids, or remove these queries and state so when you report the score",
    "duplicates": "keep one document per text, or give all duplicates the same judgments",
    "contradictions": "judge these pairs again; until then use the higher grade",
    "empty documents": "add their texts, or remove them from the corpus and the judgments",
    "near duplicates": "keep one document per group, or give all of them the same judgments",
    "replacement characters": "decode the source again with its actual encoding, or export it again",
    "control characters": "remove all control characters except tab, line feed, form feed and carriage return",
    "mojibake": "decode the source again with its actual encoding, or repair the texts with ftfy.fix_encoding",
    "token limit": "split texts into chunks within the limit, or use an embedder with a higher limit",
    "languages": "use a multilingual embedder, or remove these documents",
    "own documents": "remove each query's own document from its ranking before scoring",
    "shared ids": "score with `-C own=kept`, or give queries and documents different ids",
    "verbatim answers": "also report the score without these queries, or rephrase the queries",
    "leaking field": "hide the field from the systems, or collect judgments that do not depend on it",
    "leaking score": "check how the score is computed: it must not use the judgments or how they were created",
}
"""Remedies by the name of the finding."""
REMEDIES_IF_LEAKING: Mapping[str, str] = {
    "chance": (
        "fix the leak first: if judgments follow a leaking field instead of the text, text search can be no "
        "better than chance"
    ),
}
"""Remedies that apply instead if judgments leak into the data."""


def with_remedy(finding: Finding, *, leaking: bool = False) -> Finding:
    """Return a problem with its remedy.

    Other findings lose their remedy, except one that explains an expected score.
    """
    if finding.problem and leaking and finding.check in REMEDIES_IF_LEAKING:
        return replace(finding, remedy=REMEDIES_IF_LEAKING[finding.check])
    if finding.problem:
        return finding if finding.remedy else replace(finding, remedy=REMEDIES[finding.check])
    return finding if finding.check == "expected" else replace(finding, remedy="")


A_RUN = Requirement[AuditInput]("a run", lambda audit_input: bool(audit_input.runs), "no run given")
JUDGMENTS = Requirement[AuditInput]("judgments", lambda audit_input: audit_input.has_judgments, "no judgments given")
DOCUMENTS = Requirement[AuditInput](
    "documents",
    lambda audit_input: audit_input.documents is not None,
    "no documents given; add --corpus (documents=) or --dataset",
)
QUERIES = Requirement[AuditInput](
    "queries",
    lambda audit_input: audit_input.queries is not None,
    "no query texts given; add --queries (queries=) or --dataset",
)
REPEATS = Requirement[AuditInput](
    "repeats",
    lambda audit_input: any(audit_input.repeats.values()),
    "no system has several trials; give NAME=FILE again (repeats=), or run with --repeats (repeats=)",
)
AN_EMBEDDER = Requirement[AuditInput](
    "an embedder",
    lambda audit_input: audit_input.embedder is not None,
    "no embedder given; add --embedder minilm (embedder=)",
)
A_NUMBER = Requirement[AuditInput](
    "a number",
    lambda audit_input: bool(audit_input.claims),
    "no expected score given; add --expect ndcg@10=0.7439 (expect=)",
)


def _check_first_trials(
    check: Callable[[AuditInput], Iterator[Finding]],
) -> Callable[[AuditInput], Iterator[Finding]]:
    """Restrict a check that analyses single rankings to the first trial of each run, and say so in its findings."""

    @wraps(check)
    def check_first_trials(audit_input: AuditInput) -> Iterator[Finding]:
        for finding in check(audit_input.first_trials()):
            n_trials = len(audit_input.trials(finding.subject)) if finding.subject in audit_input.runs else 1
            label = f" (first of {n_trials} trials)" if n_trials > 1 else ""
            yield replace(finding, message=f"{finding.message}{label}")

    return check_first_trials


AUDIT_CHECKS: Mapping[str, Check[AuditInput]] = {
    check.name: check
    for check in (
        Check(
            "expect",
            "convention that explains a published score",
            _check_first_trials(score_explanation.check_published_scores),
            (A_RUN, A_NUMBER),
        ),
        Check("conventions", "scores of a run under every preset", comparability.check_conventions, (A_RUN,)),
        Check(
            "repeated-documents",
            "duplicate documents in a ranking",
            _check_first_trials(suspicious_scores.check_repeated_documents),
            (A_RUN,),
        ),
        Check("ties", "best, worst and expected score over tie orders", _check_first_trials(ties.check_ties), (A_RUN,)),
        Check(
            "missing-queries",
            "queries that are missing or failed",
            _check_first_trials(suspicious_scores.check_missing_queries),
            (A_RUN,),
        ),
        Check(
            "truncated-judgments",
            "truncated judgments, maximum scores below 1",
            judgment_coverage.check_truncated_judgments,
            (JUDGMENTS,),
        ),
        Check("depth", "runs shallower than a measure's cutoff", judgment_coverage.check_depth, (A_RUN,)),
        Check(
            "unjudged",
            "unjudged documents and their possible effect",
            _check_first_trials(judgment_coverage.check_unjudged),
            (A_RUN,),
        ),
        Check("chance", "scores compared with chance and with the oracle", chance_level.check_chance_level, (A_RUN,)),
        Check("perfect-scores", "scores that are suspiciously high", suspicious_scores.check_perfect_scores, (A_RUN,)),
        Check("identical-runs", "identical runs, identical measures", suspicious_scores.check_identical_runs, (A_RUN,)),
        Check("comparability", "runs with different inputs", comparability.check_comparability, (A_RUN,)),
        Check("trials", "rankings that differ between trials", stability.check_trials, (A_RUN, REPEATS)),
        Check("query-count", "too few queries, overall or for a difference", stability.check_query_count, (JUDGMENTS,)),
        Check("orphans", "judgments of unknown documents or queries", corpus.check_orphans, (JUDGMENTS,)),
        Check("duplicates", "documents with the same text", corpus.check_duplicates, (DOCUMENTS,)),
        Check("near-duplicates", "near-duplicate documents", corpus.check_near_duplicates, (DOCUMENTS,)),
        Check("characters", "replacement and control characters", corpus_texts.check_characters, (DOCUMENTS,)),
        Check("mojibake", "texts decoded with the wrong encoding", corpus_texts.check_mojibake, (DOCUMENTS,)),
        Check(
            "token-limit",
            "texts longer than the embedder's token limit",
            corpus_texts.check_token_limit,
            (DOCUMENTS, AN_EMBEDDER),
        ),
        Check("languages", "documents in another language", corpus_texts.check_languages, (DOCUMENTS,)),
        Check(
            "own-documents",
            "queries that are documents of the corpus",
            leakage.check_own_documents,
            (JUDGMENTS, DOCUMENTS, QUERIES),
        ),
        Check(
            "verbatim",
            "queries contained in their relevant documents",
            leakage.check_verbatim_queries,
            (JUDGMENTS, DOCUMENTS, QUERIES),
        ),
        Check(
            "predictors",
            "fields that predict relevance better than text",
            leakage.check_predictors,
            (JUDGMENTS, DOCUMENTS, QUERIES),
        ),
    )
}


def run_audit_checks(
    audit_input: AuditInput, checks: Iterable[Check[AuditInput]], absent: Mapping[str, str] | None = None
) -> Audit:
    """Run checks and return their findings, leaks first, then in registry order.

    Leaks come first because they invalidate the other findings.
    """
    audit = run_checks(checks, audit_input, absent)
    leaking = any(finding.check in LEAK_FINDINGS for finding in audit.findings)
    findings = [with_remedy(finding, leaking=leaking) for finding in audit.findings]
    return Audit(sorted(findings, key=lambda finding: finding.check not in LEAK_FINDINGS), audit.skipped)
