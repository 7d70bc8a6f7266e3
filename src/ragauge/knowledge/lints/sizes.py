"""Checks of text length in characters and tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ragauge.audits.wording import counted
from ragauge.errors import MissingEvidence
from ragauge.findings import Finding, Grid
from ragauge.knowledge.lints.evidence import CUT, EXAMPLES, Evidence, part, shown
from ragauge.records import Ints


def tiny(evidence: Evidence) -> Iterator[Finding]:
    """Find texts with fewer than `tiny` characters.

    A problem if they are at least `share` of all.
    """
    reading, least = evidence.reading, evidence.thresholds.tiny
    found = np.flatnonzero((evidence.lengths > 0) & (evidence.lengths < least)).tolist()
    if not found:
        yield Finding(reading.name, "tiny", False, 0, f"no text has fewer than {least:,} characters")
        return
    yield Finding(
        reading.name,
        "tiny",
        evidence.many(len(found)),
        len(found),
        f"{len(found):,} of {counted(len(reading), 'document')} have fewer than {least:,} characters",
        tuple(shown(f"{reading.called(i)}: `{shown(reading.texts[i], CUT)}`") for i in found[:EXAMPLES]),
        "they match short queries by accident, and answer none",
        remedy="join them with what stands around them, or leave them out",
    )


def giant(evidence: Evidence) -> Iterator[Finding]:
    """Find texts with more than `giant` characters.

    A problem if they are at least `share` of all.
    """
    reading, most = evidence.reading, evidence.thresholds.giant
    found = np.flatnonzero(evidence.lengths > most)
    found = found[np.argsort(-evidence.lengths[found], kind="stable")]
    if not len(found):
        yield Finding(reading.name, "giant", False, 0, f"no text has more than {most:,} characters")
        return
    yield Finding(
        reading.name,
        "giant",
        evidence.many(len(found)),
        len(found),
        f"{len(found):,} of {counted(len(reading), 'document')} have more than {most:,} characters",
        tuple(
            shown(f"{reading.called(i)}: {counted(int(evidence.lengths[i]), 'character')}")
            for i in found[:EXAMPLES].tolist()
        ),
        "one vector for so much text is the mean of many things, and most embedders read only its beginning",
        remedy="cut them into chunks before they are embedded",
    )


def tokens(evidence: Evidence) -> Iterator[Finding]:
    """Find texts longer than the embedder's limit.

    A problem if they or the lost tokens reach `share`.
    """
    reading, who = evidence.reading, evidence.tokens
    if who is None:
        raise MissingEvidence("nobody counts tokens")
    counts, limit = evidence.token_counts, who.limit
    total = int(counts.sum())
    if limit is None:
        said = f"{who.name} reads texts of any length ({counted(total, 'token')} in all)"
        yield Finding(reading.name, "tokens", False, 0, said)
        return
    found = np.flatnonzero(counts > limit)
    if not len(found):
        longest = int(counts.max(initial=0))
        said = f"no text is cut off: {who.name} reads {limit:,} tokens, and the longest has {longest:,}"
        yield Finding(reading.name, "tokens", False, 0, said)
        return
    found = found[np.argsort(-counts[found], kind="stable")]
    over = counts[found] - limit
    lost = int(over.sum())
    yield Finding(
        reading.name,
        "tokens",
        evidence.many(len(found)) or lost >= evidence.thresholds.share * total,
        len(found),
        f"{len(found):,} of {counted(len(reading), 'document')} ({part(len(found), len(reading))}) are longer than "
        f"the {limit:,} tokens that {who.name} reads",
        tuple(shown(f"{reading.called(i)}: {int(counts[i]):,} tokens") for i in found[:EXAMPLES].tolist()),
        f"{lost:,} of {counted(total, 'token')} ({part(lost, total)}) are never seen: what they say cannot be found",
        _parts(counts, limit),
        f"cut texts into chunks of {limit:,} tokens or fewer, or take an embedder that reads more",
    )


def _parts(counts: Ints, limit: int) -> Grid:
    """Count documents by the share of their tokens that is cut off."""
    gone = np.maximum(counts - limit, 0) / np.maximum(counts, 1)
    steps = [("none", gone == 0), ("up to a quarter", (gone > 0) & (gone <= 0.25))]
    steps += [("a quarter to a half", (gone > 0.25) & (gone <= 0.5)), ("more than a half", gone > 0.5)]
    return Grid(
        ["lost", "documents", "share"],
        [[name, float(w.sum()), part(int(w.sum()), len(counts))] for name, w in steps],
    )
