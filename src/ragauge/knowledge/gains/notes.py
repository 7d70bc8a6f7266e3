"""Notes on the limits of a gain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ragauge.knowledge.gains.weights import CONTEXT_RECALL, NOVELTY
from ragauge.records import Nested
from ragauge.worths import Gain, Term

FEW = 10
"""Number of changed queries below which a note warns that they are few."""


def sum_of(terms: Sequence[Term]) -> str:
    """Name the terms that make up the total if others are undefined.

    Empty if all are defined.

    >>> sum_of([Term("recall@10", 0.5, 0.1), Term("novelty", 0.5, math.nan, why="nothing was added")])
    'the gain is 0.5 recall@10 alone: novelty cannot be told (nothing was added), and is not counted as 0'
    """
    told = [one for one in terms if not math.isnan(one.value)]
    lacking = [one for one in terms if math.isnan(one.value)]
    if not lacking or not told:
        return ""
    what = " + ".join(f"{one.weight:.3g} {one.name}" for one in told)
    without = "; ".join(f"{one.name} cannot be told ({one.why})" for one in lacking)
    return f"the gain is {what}{' alone' if len(told) == 1 else ''}: {without}, and is not counted as 0"


def judged_among(added: Sequence[str], judged: Nested) -> int:
    """Count the added documents that have a judgment."""
    some = {doc for docs in judged.values() for doc in docs}
    return sum(one in some for one in added)


def too_short(queries: int, documents: int, needed: int) -> str:
    """Describe what cannot be computed because the run after is too short.

    >>> too_short(3, 2, 12)  # doctest: +ELLIPSIS
    'the run afterwards ends too soon for 3 queries: ... causal of 2 documents, alone and ... cannot be told ...'
    """
    causal = f"causal of {documents:,} document{'' if documents == 1 else 's'}, " if documents else ""
    return (
        f"the run afterwards ends too soon for {queries:,} quer{'y' if queries == 1 else 'ies'}: what would take the "
        f"place of an added document is not in it, so that {causal}alone and the best batch cannot be told "
        f"(retrieve {needed:,} documents a query: as many as are looked at, and as were added)"
    )


def lost_in_building(lost: Mapping[str, str], added: int) -> str:
    """Describe the documents without which the rebuilt system failed.

    >>> lost_in_building({"d7": "no memory"}, 3)
    'causal of 1 of 3 documents cannot be told: built without it a query failed, the first (without d7) with: no memory'
    """
    doc, why = next(iter(lost.items()))
    without = "it" if len(lost) == 1 else "them"
    return (
        f"causal of {len(lost):,} of {added:,} documents cannot be told: built without {without} a query failed, "
        f"the first (without {doc}) with: {why}"
    )


def batch_failed(why: str) -> str:
    """Describe why the gain of the best batch could not be measured."""
    return f"what the batch really gains cannot be told: {why}"


def notes(gain: Gain, judged: int, failed: Mapping[str, str], *, built: bool) -> Iterator[str]:
    """Yield the notes on a gain; `built` says whether the system was built here."""
    if text := sum_of(gain.terms):
        yield text
    ranked = [one.name for one in gain.terms if one.name not in (CONTEXT_RECALL, NOVELTY) and not math.isnan(one.value)]
    if gain.added and not judged and ranked:
        yield (
            f"none of the added documents is judged: to {ranked[0]} they can only be in the way, "
            "however good they are (judge them, or give --weight context_recall=1)"
        )
    elif gain.added and judged < gain.added and ranked:
        yield f"{judged:,} of {gain.added:,} added documents are judged: of the others {ranked[0]} sees only the harm"
    if gain.known and not gain.added and not gain.changed and not gain.removed:
        yield "nothing was added, changed or removed"
    if gain.removed or gain.changed:
        yield (
            f"before and after differ by more than what was added: {gain.removed:,} documents are gone and "
            f"{gain.changed:,} have another text; what that does is in the gain, and in no document's part: "
            "alone and the best batch begin with what is there afterwards, less all that was added"
        )
    if failed:
        query, why = next(iter(failed.items()))
        yield f"{len(failed):,} queries failed on a side and are left out, the first ({query}) with: {why}"
    moved = len(gain.moved)
    if 0 < moved < FEW and gain.queries >= FEW:
        yield f"only {moved} of {gain.queries:,} queries moved: a few others could turn the result round"
    zero = not math.isnan(gain.asked_low) and gain.asked_low <= 0 <= gain.asked_high
    if moved and (zero or gain.p > 1 - gain.confidence):
        new = next((one for one in gain.terms if one.name == NOVELTY and not math.isnan(one.value)), None)
        more = "; the rest is novelty, which no query has a part in" if new is not None and new.weight else ""
        yield f"what queries gained ({gain.asked:+.4f}) cannot be told from chance (p = {gain.p:.3f}){more}"
    alone = any(not math.isnan(one.alone) for one in gain.documents)
    if alone and not gain.exact:
        told = " and in a batch is" if gain.batch else " is"
        real = "" if math.isnan(gain.batch_measured) else ": what the batch really gains is told beside it"
        yield (
            f"what documents do alone{told} found by leaving the others out of one deep ranking, which for "
            f"this system is near but not exact{real}"
        )
    if gain.attribution == "dropped" and not gain.exact and any(not math.isnan(one.causal) for one in gain.documents):
        better = " (--attribution rebuilt is)" if built else ""
        yield f"documents are left out of a deep ranking, not of the system: causal is near, but not exact{better}"
