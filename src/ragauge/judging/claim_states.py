"""States of claims according to the contexts, and the samples and claims that a report lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ragauge.core.records import Scores
from ragauge.core.samples import ANSWER, Sample, Support, Verdicts, is_chunk


class ClaimState(NamedTuple):
    """A claim with its state and the verdict of the judge."""

    id: str
    text: str
    sentence: int
    state: str
    """State of the claim according to the contexts: `supported`, `contradicted`, `absent` (neither), `unscored` or `not
    asked`.
    """
    support: Support | None
    reason: str = ""
    """Reason for a missing verdict."""


def find_claim_states(sample: Sample, verdicts: Verdicts | None, text: str) -> list[ClaimState]:
    """Return the claims of a text (`answer` or `reference`) with their states.

    If no context was retrieved, every claim without a verdict is absent.
    """
    if verdicts is None:
        return []
    is_judged = text in verdicts.asked
    states = []
    for claim in verdicts.claims.get(text, ()):
        support = verdicts.support.get(claim.id)
        unscored = verdicts.unscored.get(f"support {claim.id}")
        state = decide_claim_state(support) if is_judged else "not asked"
        if sample.contexts == () and is_judged and support is None and unscored is None:
            state = "absent"
        reason = "" if support is not None or unscored is None else unscored.reason
        states.append(ClaimState(claim.id, claim.text, claim.sentence, state, support, reason))
    return states


def decide_claim_state(support: Support | None) -> str:
    """Return the state of a claim according to the contexts.

    >>> (decide_claim_state(Support(("k1",), ("k2",))), decide_claim_state(Support((), ("k2",))),
    ...  decide_claim_state(Support(("reference",))), decide_claim_state(None))
    ('supported', 'contradicted', 'absent', 'unscored')
    """
    if support is None:
        return "unscored"
    if support.together or any(map(is_chunk, support.by)):
        return "supported"
    return "contradicted" if any(map(is_chunk, support.against)) else "absent"


def find_unsupported_claims(sample: Sample, verdicts: Verdicts | None) -> list[ClaimState]:
    """Return the unsupported claims of the answer, contradicted ones first."""
    claims = [
        claim for claim in find_claim_states(sample, verdicts, ANSWER) if claim.state in ("contradicted", "absent")
    ]
    return sorted(claims, key=lambda claim: claim.state != "contradicted")


def find_worst_samples(scores: Scores, measure: str) -> list[tuple[str, float]]:
    """Return the ids of the samples with their scores, worst first, without perfect scores."""
    lower = measure in scores.lower_is_better
    best = 0.0 if lower else 1.0
    imperfect = [(query, value) for query, value in scores.per_query[measure].items() if value != best]
    return sorted(imperfect, key=lambda item: -item[1] if lower else item[1])


def list_left_out_sentences(verdicts: Iterable[Verdicts]) -> list[tuple[str, str, str]]:
    """List the sentences without a claim as (sample, text, sentence). The text is `answer` or `reference`."""
    return [
        (of_sample.sample, text, sentence)
        for of_sample in verdicts
        for text, sentences in of_sample.left_out.items()
        for sentence in sentences
    ]
