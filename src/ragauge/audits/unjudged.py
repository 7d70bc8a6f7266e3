"""Check of unjudged documents: their share in the top ranks, and the range of scores that they leave open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ragauge.audits.evidence import Evidence
from ragauge.audits.orders import is_ordered, means
from ragauge.audits.wording import change, percent
from ragauge.findings import Finding, Grid
from ragauge.measures.conventions import Convention
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.scoring import score
from ragauge.records import Judgments

TOP = 10
"""Number of top documents checked for measures without a cutoff."""
SHALLOW = 20
"""Maximum depth at which unjudged documents count as a flaw of a run: pools are shallow."""
MUCH = 0.2
APART = 0.1
QUERIES, LONG = 10, 20
"""Minimum numbers of queries and of documents per query that cannot all be judged by chance."""
POOLED = 0.2
"""Minimum share of non-relevant judgments in a judged pool."""


def unjudged(evidence: Evidence) -> Iterator[Finding]:
    """Check the share of unjudged documents at the top, and its effect on scores.

    For each measure: the score, the score of judged documents only, and the score if all unjudged documents in its
    top had the median positive grade. The top is the cutoff, or 10 without one. A problem if 20% or more of the top
    are unjudged at a cutoff of at most 20, or if the shares of two runs differ by 10 percentage points: the pool
    then favours one of them. If fewer than 20% of the judgments are non-relevant, they are a list of relevant
    documents rather than a judged pool, and unjudged documents are not a problem. A run that returns judged
    documents only, 20 or more per query for at least 10 queries, is a problem too: it was filtered by the judgments,
    or its candidates come from them.
    """
    shares = {run: share(_ranked(evidence, run), TOP) for run in evidence.runs}
    grades = evidence.judgments.pool.grades
    negatives = float(((grades >= 0) & (grades < max(evidence.rules.rel, 1e-9))).sum()) / max(1, len(grades))
    for run in evidence.runs:
        yield _one(evidence, run, negatives)
        yield from _filtered(evidence, run)
    low, high = (min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)) if shares else ("", "")
    if negatives >= POOLED and len(shares) > 1 and shares[high] - shares[low] >= APART:
        yield Finding(
            high,
            "pool bias",
            True,
            len(shares),
            f"{percent(shares[high])} of its first {TOP} documents are unjudged, but {percent(shares[low])} of "
            f"{low}'s: the pool does not know both alike, and unjudged counts as not relevant",
            grid=Grid(["run", f"unjudged in {TOP}"], [[run, percent(one)] for run, one in shares.items()]),
        )


def _filtered(evidence: Evidence, run: str) -> Iterator[Finding]:
    judged = _ranked(evidence, run)
    returned, queries = int(judged.retrieved.sum()), int((judged.retrieved > 0).sum())
    known = int((judged.grade >= 0).sum())
    if known < returned or queries < QUERIES or returned < LONG * queries:
        return
    if evidence.documents is not None and int(np.diff(judged.pool.starts).min()) >= len(evidence.documents):
        return  # Every document is judged for every query.
    yield Finding(
        run,
        "judged only",
        True,
        returned,
        f"all {returned:,} documents that it returns are judged, {returned / queries:.0f} a query: it was filtered by "
        "the judgments or reranks what they name, and does not compare with a search of the whole collection",
    )


def _rules(evidence: Evidence) -> Convention:
    """Return the convention with decided ties.

    An undecided rank is neither judged nor unjudged.
    """
    return evidence.rules.but(ties="trec") if evidence.rules.ties == "expected" else evidence.rules


def _ranked(evidence: Evidence, run: str) -> JudgedRanks:
    return evidence.judged(run, rules=_rules(evidence))


def share(judged: JudgedRanks, k: int) -> float:
    """Return the share of unjudged documents in the first k of all queries."""
    known = int(((judged.rank <= k) & (judged.grade >= 0)).sum())
    places = int(np.minimum(judged.retrieved, k).sum())
    return 1 - known / places if places else 0.0


def filled(judged: JudgedRanks, k: int, grade: float) -> JudgedRanks:
    """Treat every unjudged document in the first k as judged with the given grade."""
    n, pool = judged.n, judged.pool
    known = (judged.rank <= k) & (judged.grade >= 0)
    width = k + 1
    occupied = np.zeros(n * width, np.bool_)
    occupied[judged.query[known] * width + judged.rank[known]] = True
    place = np.arange(n * width)
    free = place[~occupied & (place % width > 0) & (place % width <= judged.retrieved[place // width])]
    query, rank = free // width, free % width
    # A document that was pooled but not judged keeps its row; the new row belongs to another document.
    old = judged.grade >= 0
    owner = np.concatenate([pool.owner, query])
    order = np.argsort(owner, kind="stable")
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    grades = np.concatenate([pool.grades, np.full(len(query), grade)])[order].tolist()
    ends = np.cumsum(np.bincount(owner, minlength=n)).tolist()
    nested = {
        name: dict(zip(map(str, range(begin, end)), grades[begin:end], strict=True))
        for name, begin, end in zip(pool.queries, [0, *ends[:-1]], ends, strict=True)
    }
    columns = (
        np.concatenate([judged.query[old], query]),
        np.concatenate([judged.rank[old], rank]),
        np.concatenate([at[judged.row[old]], at[len(pool.grades) :]]),
    )
    ranked = np.lexsort((columns[1], columns[0]))
    return replace(
        judged,
        judgments=Judgments(nested, source=judged.judgments.source),
        query=columns[0][ranked],
        rank=columns[1][ranked],
        row=columns[2][ranked],
        tie_first=None,
        tie_last=None,
        _relevant={},
    )


def _one(evidence: Evidence, run: str, negatives: float) -> Finding:
    rules = _rules(evidence)
    judged = _ranked(evidence, run)
    measures = [one for one in evidence.measures if is_ordered(one)]
    grades = evidence.judgments.pool.grades
    good = grades[grades > 0]
    median = float(np.quantile(good, 0.5, method="lower")) if len(good) else 1.0
    rows: list[list[str | float | None]] = []
    worst, effect = 0.0, ""
    for measure in measures:
        k = int(measure.cutoff) if measure.cutoff and measure.spec.cutoff in ("rank", "rank?") else TOP
        part = share(judged, k)
        least = float(dict(measure.options).get("rel", 0))
        now = means(score(judged, [measure], rules))[0]
        alone = means(evidence.scores(run, rules=rules.but(unjudged="condensed"), measures=[measure]))[0]
        good_all = means(score(filled(judged, k, max(median, least)), [measure], rules))[0]
        rows.append([str(measure), str(k), percent(part), now, alone, good_all])
        if k <= SHALLOW:
            worst = max(worst, part)
        effect = effect or f"{change(str(measure), now, good_all)} if the unjudged in its first {k} were relevant"
    message = f"{percent(share(judged, TOP))} of the first {TOP} documents are unjudged and count as not relevant"
    if negatives < POOLED:
        only = f"{percent(negatives)} of the judgments say `not relevant`: they list answers"
        message += f"; {only}, and nobody knows how many of these are relevant too"
    return Finding(
        run,
        "unjudged",
        negatives >= POOLED and worst >= MUCH,
        round(share(judged, TOP) * float(np.minimum(judged.retrieved, TOP).sum())),
        message,
        effect=f"{effect} (grade {median:g})" if effect else "",
        grid=Grid(["measure", "top", "unjudged", "as it is", "judged only", "if relevant"], rows),
    )
