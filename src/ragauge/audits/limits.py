"""Checks of judgment coverage and depth: truncated judgments, ceilings of recall, and shallow runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ragauge.audits.evidence import Evidence
from ragauge.audits.orders import ideal, means
from ragauge.audits.wording import counted, percent, some
from ragauge.findings import Finding, Grid
from ragauge.measures.judged import defined_depth
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score
from ragauge.records import Ints, Judgments

LOW = 0.9
"""Ceiling of recall below which a recall score is misleading."""
NEARLY_ALL = 0.9
PILE = 0.1
SURE = 0.001
"""Significance level of a peak at the maximum number of relevant documents, which indicates a cap.

Without a cap, high counts become rarer towards the maximum.
"""
ENOUGH_QUERIES = 10
CUT = 0.5
MANY = 10
"""Minimum number of relevant documents for a cap; smaller numbers are naturally common."""
SOME = 4
"""Minimum number of relevant documents for a cap if `MIN_SMALL_CAP_SHARE` of the queries have exactly the maximum."""
MOST = 0.4


def truth(evidence: Evidence) -> Iterator[Finding]:
    """Check for truncated judgments and for recall ceilings below 1.

    A recall with a ceiling below 0.9 is a problem. So is a cap on the number of relevant documents, tested with at
    least 10 queries. A maximum of 10 or more counts as a cap if more than 10% of the queries have exactly that
    number; a maximum of 4 or more if at least 40% do. In both cases the peak must be significant at the 0.001 level.
    """
    found = list(_ceilings(evidence))
    yield from _counts(evidence, capped=any(one.problem for one in found))
    yield from found


def _relevant(judgments: Judgments, rel: float) -> Ints:
    pool = judgments.pool
    return np.bincount(pool.owner[pool.grades >= rel], minlength=len(pool.queries))


def _least(evidence: Evidence) -> float:
    """Return the minimum relevant grade, but never 0.

    Documents of grade 0 say nothing about a cap.
    """
    return max(evidence.rules.rel, 1e-9)


def _counts(evidence: Evidence, *, capped: bool) -> Iterator[Finding]:
    relevant = _relevant(evidence.judgments, _least(evidence))
    relevant = relevant[relevant > 0]
    subject = evidence.judgments.source
    if not len(relevant):
        remedy = "see what the grades mean: `evaluate --rel` sets the least one that counts as relevant"
        message = "no query has a relevant document"
        yield Finding(subject, "ground truth", True, len(evidence.judgments), message, remedy=remedy)
        return
    values, often = np.unique(relevant, return_counts=True)
    usual, share = int(values[often.argmax()]), float(often.max() / len(relevant))
    most, at_most = int(values[-1]), int(often[-1])
    spread = f"{values[0]} to {most}, median {np.median(relevant):g}"
    if len(relevant) >= ENOUGH_QUERIES and usual >= MANY and share >= NEARLY_ALL:
        yield Finding(
            subject,
            "ground truth",
            capped,
            int(often.max()),
            f"{percent(share)} of the queries have exactly {usual} relevant documents: the truth is a list cut at "
            f"{usual}, such as nearest neighbours, and not all that is relevant",
        )
    elif len(relevant) >= ENOUGH_QUERIES and _is_capped(most, at_most / len(relevant)) and _is_heap(relevant):
        yield Finding(
            subject,
            "ground truth",
            True,
            at_most,
            f"{at_most} of {counted(len(relevant), 'query')} have exactly {most} relevant documents and none has more: "
            "the truth seems to be capped there, so that precision is too low and recall too high",
        )
    else:
        yield Finding(subject, "ground truth", False, len(relevant), f"relevant documents a query: {spread}")


def _is_capped(most: int, share: float) -> bool:
    return (most >= MANY and share > PILE) or (most >= SOME and MOST <= share < NEARLY_ALL)


def _is_heap(relevant: Ints) -> bool:
    """Return whether the maximum count is unusually frequent.

    Compared with equal frequencies of all counts in the upper half.
    """
    from scipy.special import bdtrc

    most = int(relevant.max())
    upper = int((relevant > most // 2).sum())
    return bool(bdtrc(int((relevant == most).sum()) - 1, upper, 1 / (most - most // 2)) < SURE)


def _ceilings(evidence: Evidence) -> Iterator[Finding]:
    """Yield the ceiling of each recall measure that cannot reach 1."""
    perfect = ideal(evidence.judgments)
    for measure in evidence.measures:
        options = dict(measure.options)
        if measure.spec.name != "recall" or measure.cutoff is None or options.get("of") == "eps":
            continue
        ceiling = means(score(perfect, [measure], evidence.rules.but(ties="trec", missing="zero")))[0]
        relevant = _relevant(evidence.judgments, float(options["rel"]))
        more = np.flatnonzero(relevant > measure.cutoff)
        if not len(more) or ceiling > 1 - 1e-9 or np.isnan(ceiling):
            continue
        names = evidence.judgments.pool.queries
        reached: list[list[str | float | None]] = [
            [run, value, percent(value / ceiling)]
            for run in evidence.runs
            for value in means(evidence.scores(run, measures=[measure]))
        ]
        yield Finding(
            evidence.judgments.source,
            "ceiling",
            ceiling < LOW,
            len(more),
            f"{len(more)} of {counted(len(relevant), 'query')} with more than {measure.cutoff:g} relevant documents: "
            f"{measure} cannot pass {ceiling:.4f}, where recall(of=capped)@{measure.cutoff:g} can reach 1",
            some([names[i] for i in more.tolist()]),
            grid=Grid(["run", str(measure), "of the ceiling"], reached),
            remedy=f"report recall(of=capped)@{measure.cutoff:g} or a deeper cutoff beside it",
        )


def depth(evidence: Evidence) -> Iterator[Finding]:
    """Check for runs that end before the cutoff of a measure.

    A problem if no query reaches the cutoff and at least half of them end at the same depth. This indicates
    truncation rather than a lack of documents; the measure is then computed at the smaller depth.
    """
    known = None if evidence.documents is None else len(evidence.documents)
    for run in evidence.runs:
        k = defined_depth(evidence.runs[run])
        beyond = [one for one in evidence.undefined if k is not None and _reaches(one) > k]
        if beyond:
            names = ", ".join(map(str, beyond))
            message = f"{names} {'is' if len(beyond) == 1 else 'are'} undefined: the run was made with k={k:g}"
            remedy = f"run again with -k {max(map(_reaches, beyond))}, or use a cutoff of at most {k:g}"
            yield Finding(run, "depth", True, len(beyond), message, remedy=remedy)
            continue
        judged = evidence.judged(run)
        got = judged.retrieved[judged.answered]
        if not len(got):
            message = "the run answers no judged query"
            remedy = "see whether the ids of its queries are written as in the judgments"
            yield Finding(run, "depth", True, len(evidence.judgments), message, remedy=remedy)
            continue
        deepest = int(got.max())
        if not deepest:
            message = "the run returned no document for any query"
            yield Finding(run, "depth", True, len(got), message, remedy="see why the system fails: its timings say")
            continue
        short = [one for one in evidence.measures if _reaches(one) > deepest and (known is None or deepest < known)]
        if short and evidence.rules.depth is None and (got == deepest).mean() >= CUT:
            yield _shallow(evidence, run, deepest, short)
            continue
        last = max((_reaches(one) for one in evidence.measures if _reaches(one) <= deepest), default=0)
        few = int((got < last).sum())
        some_short = f"; {counted(few, 'query')} of {len(got)} got fewer than {last}" if few else ""
        yield Finding(
            run,
            "depth",
            False,
            few,
            f"{int(got.min())} to {deepest} documents a query, median {np.median(got):g}{some_short}",
        )


def _reaches(measure: Measure) -> int:
    return int(measure.cutoff or 0) if measure.spec.cutoff in ("rank", "rank?") else 0


def _shallow(evidence: Evidence, run: str, deepest: int, short: list[Measure]) -> Finding:
    cut = [Measure(one.spec, deepest, one.options) for one in short]
    now, then = ([means(evidence.scores(run, measures=[one]))[0] for one in each] for each in (short, cut))
    rows = zip(map(str, short), now, map(str, cut), then, strict=True)
    return Finding(
        run,
        "depth",
        True,
        len(short),
        f"no query has more than {counted(deepest, 'document')}, so {', '.join(map(str, short))} cannot be told from "
        f"this run: what comes out is counted at {deepest}",
        grid=Grid(["asked for", "score", "at its depth", "score"], [list(row) for row in rows]),
        remedy=f"make the run again, {max(map(_reaches, short))} deep, or report {', '.join(map(str, cut))}",
    )
