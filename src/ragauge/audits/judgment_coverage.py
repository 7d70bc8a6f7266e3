"""Checks of judgment coverage and depth: truncated judgments, ceilings of recall, and shallow runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ragauge.audits.audit_input import AuditInput, none_if_nan
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Ints, Judgments
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import JudgedRanks, defined_depth
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score_judged_ranks
from ragauge.measures.tie_orders import has_exact_bounds, ideal_ranks, list_means
from ragauge.output.numbers import first_few, format_change, format_number, pluralise

MIN_RECALL_CEILING = 0.9
"""Ceiling of recall below which a recall score is misleading."""
FIXED_COUNT_SHARE = 0.9
MIN_CAPPED_SHARE = 0.1
CAP_SIGNIFICANCE_LEVEL = 0.001
"""Significance level of a peak at the maximum number of relevant documents, which indicates a cap.

Without a cap, high counts become rarer towards the maximum.
"""
MIN_QUERIES_FOR_CAP = 10
MIN_TRUNCATED_SHARE = 0.5
MIN_CAP = 10
"""Minimum number of relevant documents for a cap; smaller numbers are naturally common."""
MIN_SMALL_CAP = 4
"""Minimum number of relevant documents for a cap if `MIN_SMALL_CAP_SHARE` of the queries have exactly the maximum."""
MIN_SMALL_CAP_SHARE = 0.4


def check_truncated_judgments(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for truncated judgments and for recall ceilings below 1.

    A recall with a ceiling below 0.9 is a problem. So is a cap on the number of relevant documents, tested with at
    least 10 queries. A maximum of 10 or more counts as a cap if more than 10% of the queries have exactly that
    number; a maximum of 4 or more if at least 40% do. In both cases the peak must be significant at the 0.001 level.
    """
    findings = list(_recall_ceiling_findings(audit_input))
    yield from _relevant_count_findings(audit_input, capped=any(finding.problem for finding in findings))
    yield from findings


def _relevant_counts(judgments: Judgments, rel: float) -> Ints:
    pool = judgments.pool
    return np.bincount(pool.owner[pool.grades >= rel], minlength=len(pool.queries))


def _min_relevant_grade(audit_input: AuditInput) -> float:
    """Return the minimum relevant grade, but never 0.

    Documents of grade 0 say nothing about a cap.
    """
    return max(audit_input.convention.rel, 1e-9)


def _relevant_count_findings(audit_input: AuditInput, *, capped: bool) -> Iterator[Finding]:
    relevant = _relevant_counts(audit_input.judgments, _min_relevant_grade(audit_input))
    relevant = relevant[relevant > 0]
    subject = audit_input.judgments.source
    if not len(relevant):
        remedy = "check the meaning of the grades: `evaluate --rel` sets the minimum relevant grade"
        message = "no query has a relevant document"
        yield Finding(
            subject,
            "truncated judgments",
            problem=True,
            count=len(audit_input.judgments),
            message=message,
            remedy=remedy,
        )
        return
    values, frequencies = np.unique(relevant, return_counts=True)
    mode, share = int(values[frequencies.argmax()]), float(frequencies.max() / len(relevant))
    cap, n_at_cap = int(values[-1]), int(frequencies[-1])
    spread = f"{values[0]} to {cap}, median {np.median(relevant):g}"
    if len(relevant) >= MIN_QUERIES_FOR_CAP and mode >= MIN_CAP and share >= FIXED_COUNT_SHARE:
        yield Finding(
            subject,
            "truncated judgments",
            capped,
            int(frequencies.max()),
            f"{format_number(share, 'share')} of the queries have exactly {mode} relevant documents: the judgments "
            f"seem to be a list truncated at {mode}, such as nearest neighbours, not all relevant documents",
        )
    elif (
        len(relevant) >= MIN_QUERIES_FOR_CAP
        and _is_capped(cap, n_at_cap / len(relevant))
        and _has_peak_at_maximum(relevant)
    ):
        yield Finding(
            subject,
            "truncated judgments",
            problem=True,
            count=n_at_cap,
            message=f"{n_at_cap} of {pluralise(len(relevant), 'query')} have exactly {cap} relevant documents and none "
            f"has more: the judgments seem to be capped there, so precision is too low and recall too high",
        )
    else:
        yield Finding(
            subject,
            "truncated judgments",
            problem=False,
            count=len(relevant),
            message=f"relevant documents per query: {spread}",
        )


def _is_capped(cap: int, share: float) -> bool:
    return (cap >= MIN_CAP and share > MIN_CAPPED_SHARE) or (
        cap >= MIN_SMALL_CAP and MIN_SMALL_CAP_SHARE <= share < FIXED_COUNT_SHARE
    )


def _has_peak_at_maximum(relevant: Ints) -> bool:
    """Return whether the maximum count is unusually frequent.

    Compared with equal frequencies of all counts in the upper half.
    """
    from scipy.special import bdtrc

    max_count = int(relevant.max())
    upper = int((relevant > max_count // 2).sum())
    return bool(
        bdtrc(int((relevant == max_count).sum()) - 1, upper, 1 / (max_count - max_count // 2)) < CAP_SIGNIFICANCE_LEVEL
    )


def _recall_ceiling_findings(audit_input: AuditInput) -> Iterator[Finding]:
    """Yield the ceiling of each recall measure that cannot reach 1."""
    perfect = ideal_ranks(audit_input.judgments)
    for measure in audit_input.measures:
        options = dict(measure.options)
        if measure.spec.name != "recall" or measure.cutoff is None or options.get("of") == "eps":
            continue
        ceiling = list_means(
            score_judged_ranks(perfect, [measure], audit_input.convention.but(ties="trec", missing="zero"))
        )[0]
        relevant = _relevant_counts(audit_input.judgments, float(options["rel"]))
        more = np.flatnonzero(relevant > measure.cutoff)
        if not len(more) or ceiling > 1 - 1e-9 or np.isnan(ceiling):
            continue
        names = audit_input.judgments.pool.queries
        reached: list[list[str | float | None]] = [
            [run, none_if_nan(value), none_if_nan(value / ceiling)]
            for run in audit_input.runs
            for value in list_means(audit_input.scores(run, measures=[measure]))
        ]
        yield Finding(
            audit_input.judgments.source,
            "ceiling",
            ceiling < MIN_RECALL_CEILING,
            len(more),
            f"{len(more)} of {pluralise(len(relevant), 'query')} with more than {measure.cutoff:g} relevant documents: "
            f"{measure} cannot exceed {ceiling:.4f}, where recall(of=capped)@{measure.cutoff:g} can reach 1",
            first_few([names[i] for i in more.tolist()]),
            table=FindingTable(["run", str(measure), "share of the ceiling"], reached, ["name", "score", "share"]),
            remedy=f"report recall(of=capped)@{measure.cutoff:g} or a deeper cutoff as well",
        )


def check_depth(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for runs that end before the cutoff of a measure.

    A problem if no query reaches the cutoff and at least half of them end at the same depth. This indicates
    truncation rather than a lack of documents; the measure is then computed at the smaller depth.
    """
    corpus_size = None if audit_input.documents is None else len(audit_input.documents)
    for run in audit_input.runs:
        k = defined_depth(audit_input.runs[run])
        beyond = [measure for measure in audit_input.undefined if k is not None and _rank_cutoff(measure) > k]
        if beyond:
            names = ", ".join(map(str, beyond))
            message = f"{names} {'is' if len(beyond) == 1 else 'are'} undefined: the run was made with k={k:g}"
            remedy = f"run again with -k {max(map(_rank_cutoff, beyond))}, or use a cutoff of at most {k:g}"
            yield Finding(run, "depth", problem=True, count=len(beyond), message=message, remedy=remedy)
            continue
        judged = audit_input.judged(run)
        got = judged.retrieved[judged.answered]
        if not len(got):
            message = "the run has no judged query"
            remedy = "check that its query ids are written as in the judgments"
            yield Finding(run, "depth", problem=True, count=len(audit_input.judgments), message=message, remedy=remedy)
            continue
        deepest = int(got.max())
        if not deepest:
            message = "the run returned no document for any query"
            yield Finding(
                run,
                "depth",
                problem=True,
                count=len(got),
                message=message,
                remedy="find out why the system fails; its timings contain the errors",
            )
            continue
        short = [
            measure
            for measure in audit_input.measures
            if _rank_cutoff(measure) > deepest and (corpus_size is None or deepest < corpus_size)
        ]
        if short and audit_input.convention.depth is None and (got == deepest).mean() >= MIN_TRUNCATED_SHARE:
            yield _shallow_run_finding(audit_input, run, deepest, short)
            continue
        last = max(
            (_rank_cutoff(measure) for measure in audit_input.measures if _rank_cutoff(measure) <= deepest), default=0
        )
        n_short = int((got < last).sum())
        short_text = f"; {pluralise(n_short, 'query')} of {len(got)} got fewer than {last}" if n_short else ""
        yield Finding(
            run,
            "depth",
            problem=False,
            count=n_short,
            message=f"{int(got.min())} to {deepest} documents per query, median {np.median(got):g}{short_text}",
        )


def _rank_cutoff(measure: Measure) -> int:
    return int(measure.cutoff or 0) if measure.spec.cutoff in ("rank", "rank?") else 0


def _shallow_run_finding(audit_input: AuditInput, run: str, deepest: int, short: list[Measure]) -> Finding:
    cut = [Measure(measure.spec, deepest, measure.options) for measure in short]
    short_means, cut_means = (
        [list_means(audit_input.scores(run, measures=[measure]))[0] for measure in variant_measures]
        for variant_measures in (short, cut)
    )
    rows = zip(map(str, short), short_means, map(str, cut), cut_means, strict=True)
    return Finding(
        run,
        "depth",
        problem=True,
        count=len(short),
        message=f"no query has more than {pluralise(deepest, 'document')}, so {', '.join(map(str, short))} cannot be "
        f"computed from this run: the scores are those at depth {deepest}",
        table=FindingTable(["requested", "score", "at run depth", "score"], [list(row) for row in rows]),
        remedy=f"create a run of depth {max(map(_rank_cutoff, short))}, or report {', '.join(map(str, cut))}",
    )


DEFAULT_TOP = 10
"""Number of top documents checked for measures without a cutoff."""
HIGH_UNJUDGED_SHARE = 0.2
MIN_UNJUDGED_DIFFERENCE = 0.1
MIN_FILTERED_QUERIES, MIN_FILTERED_DEPTH = 10, 20
"""Minimum numbers of queries and of documents per query that cannot all be judged by chance."""
MIN_NONRELEVANT_SHARE = 0.2
"""Minimum share of judgments with grade 0 in a judged pool."""


def check_unjudged(audit_input: AuditInput) -> Iterator[Finding]:
    """Check the share of unjudged documents at the top, and its effect on scores.

    For each measure: the score, the score of judged documents only, and the score if all unjudged documents in its
    top had the median positive grade. The top is the cutoff, or 10 without one. A problem if 20% or more of the top
    of a measure are unjudged, or if the shares of two runs differ by 10 percentage points: the pool then favours one
    of them. If fewer than 20% of the judgments have grade 0, they are a list of relevant documents rather than a
    judged pool, as in pydocs and the synthetic datasets, and unjudged documents are not a problem; nor are they if
    the convention removes them. A run that returns judged
    documents only, 20 or more per query for at least 10 queries, is a problem too: it was filtered by the judgments,
    or its candidates come from them.
    """
    grades = audit_input.judgments.pool.grades
    negatives = float((grades == 0).sum()) / max(1, len(grades))
    is_pool = negatives >= MIN_NONRELEVANT_SHARE and audit_input.convention.unjudged == "nonrelevant"
    for run in audit_input.runs:
        yield _unjudged_finding(audit_input, run, negatives, is_pool=is_pool)
        yield from _judged_only_findings(audit_input, run)
    if is_pool and len(audit_input.runs) > 1:
        yield from _pool_bias_findings(audit_input)


def _pool_bias_findings(audit_input: AuditInput) -> Iterator[Finding]:
    """Yield the largest difference between the shares of two runs, at the top of any measure."""
    judged = {run: _settled_judged_ranks(audit_input, run) for run in audit_input.runs}
    shares_by_top = {
        top: {run: unjudged_share(ranks, top) for run, ranks in judged.items()} for top in _tops(audit_input)
    }
    gaps = {top: max(shares.values()) - min(shares.values()) for top, shares in shares_by_top.items()}
    top = max(gaps, key=gaps.__getitem__)
    shares = shares_by_top[top]
    low, high = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    if gaps[top] >= MIN_UNJUDGED_DIFFERENCE:
        yield Finding(
            high,
            "pool bias",
            problem=True,
            count=len(shares),
            message=f"{format_number(shares[high], 'share')} of its top {top} documents are unjudged, but "
            f"{format_number(shares[low], 'share')} of "
            f"{low}'s: the judgments cover the two runs unequally, and unjudged documents count as not relevant",
            table=FindingTable(
                ["run", f"unjudged in {top}"],
                list(shares.items()),
                ["name", "share"],
            ),
        )


def _top_of(measure: Measure) -> int:
    return _rank_cutoff(measure) or DEFAULT_TOP


def _tops(audit_input: AuditInput) -> list[int]:
    """Return the number of top documents of each measure, smallest first."""
    return sorted({DEFAULT_TOP, *map(_top_of, audit_input.measures)})


def _judged_only_findings(audit_input: AuditInput, run: str) -> Iterator[Finding]:
    judged = _settled_judged_ranks(audit_input, run)
    returned, queries = int(judged.retrieved.sum()), int((judged.retrieved > 0).sum())
    n_judged = judged.judged_hits.shape[1]
    if n_judged < returned or queries < MIN_FILTERED_QUERIES or returned < MIN_FILTERED_DEPTH * queries:
        return
    if audit_input.documents is not None and int(np.diff(judged.pool.starts).min()) >= len(audit_input.documents):
        return  # Every document is judged for every query.
    yield Finding(
        run,
        "judged only",
        problem=True,
        count=returned,
        message=f"all {returned:,} documents that it returns are judged, {returned / queries:.0f} per query: it was "
        "filtered by the judgments or reranks judged documents, and is not comparable with a search of the whole "
        "corpus",
    )


def _convention_with_settled_ties(audit_input: AuditInput) -> Convention:
    """Return the convention with decided ties.

    An undecided rank is neither judged nor unjudged.
    """
    return (
        audit_input.convention.but(ties="trec") if audit_input.convention.ties == "expected" else audit_input.convention
    )


def _settled_judged_ranks(audit_input: AuditInput, run: str) -> JudgedRanks:
    """Return the judged ranks of a run with its unjudged documents, also if the convention removes them."""
    return audit_input.judged(run, convention=_convention_with_settled_ties(audit_input).but(unjudged="nonrelevant"))


def unjudged_share(judged: JudgedRanks, k: int) -> float:
    """Return the share of unjudged documents in the first k of all queries."""
    n_judged = int((judged.judged_hits[1] <= k).sum())
    n_returned = int(np.minimum(judged.retrieved, k).sum())
    return 1 - n_judged / n_returned if n_returned else 0.0


def fill_unjudged(judged: JudgedRanks, k: int, grade: float) -> JudgedRanks:
    """Treat every unjudged document in the first k as judged with the given grade."""
    n, pool = judged.n, judged.pool
    hit_query, hit_rank = judged.judged_hits[:, judged.judged_hits[1] <= k]
    width = k + 1
    occupied = np.zeros(n * width, np.bool_)
    occupied[hit_query * width + hit_rank] = True
    positions = np.arange(n * width)
    free = positions[~occupied & (positions % width > 0) & (positions % width <= judged.retrieved[positions // width])]
    query, rank = free // width, free % width
    # A document that was pooled but not judged keeps its row; the new row belongs to another document.
    old = judged.grade >= 0
    owner = np.concatenate([pool.owner, query])
    order = np.argsort(owner, kind="stable")
    new_rows = np.empty(len(order), np.int64)
    new_rows[order] = np.arange(len(order))
    grades = np.concatenate([pool.grades, np.full(len(query), grade)])[order].tolist()
    ends = np.cumsum(np.bincount(owner, minlength=n)).tolist()
    nested = {
        name: dict(zip(map(str, range(begin, end)), grades[begin:end], strict=True))
        for name, begin, end in zip(pool.queries, [0, *ends[:-1]], ends, strict=True)
    }
    columns = (
        np.concatenate([judged.query[old], query]),
        np.concatenate([judged.rank[old], rank]),
        np.concatenate([new_rows[judged.row[old]], new_rows[len(pool.grades) :]]),
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


def _unjudged_finding(audit_input: AuditInput, run: str, negatives: float, *, is_pool: bool) -> Finding:
    settled = _convention_with_settled_ties(audit_input)
    judged = _settled_judged_ranks(audit_input, run)
    measures = [measure for measure in audit_input.measures if has_exact_bounds(measure)]
    grades = audit_input.judgments.pool.grades
    good = grades[grades > 0]
    median = float(np.quantile(good, 0.5, method="lower")) if len(good) else 1.0
    rows: list[list[str | float | None]] = []
    shares = {top: unjudged_share(judged, top) for top in _tops(audit_input)}
    worst = max(shares, key=shares.__getitem__)
    effect = ""
    for measure in measures:
        k = _top_of(measure)
        part = unjudged_share(judged, k)
        min_relevant = float(dict(measure.options).get("rel", 0))
        now = list_means(audit_input.scores(run, convention=settled, measures=[measure]))[0]
        condensed_mean = list_means(
            audit_input.scores(run, convention=settled.but(unjudged="condensed"), measures=[measure])
        )[0]
        good_all = list_means(
            score_judged_ranks(fill_unjudged(judged, k, max(median, min_relevant)), [measure], settled)
        )[0]
        rows.append([str(measure), str(k), format_number(part, "share"), now, condensed_mean, good_all])
        change = format_change(str(measure), now, good_all)
        if change and not effect:
            effect = f"{change} if the unjudged documents in its top {k} were relevant"
    other = (
        f" ({format_number(shares[worst], 'share')} of the top {worst})" if shares[worst] > shares[DEFAULT_TOP] else ""
    )
    fate = "count as not relevant" if settled.unjudged == "nonrelevant" else "are removed"
    share = format_number(shares[DEFAULT_TOP], "share")
    message = f"{share} of the top {DEFAULT_TOP} documents are unjudged{other} and {fate}"
    if negatives < MIN_NONRELEVANT_SHARE:
        only = f"{format_number(negatives, 'share')} of the judgments have grade 0: they list relevant documents only"
        message += f"; {only}, and the number of relevant documents among these is unknown"
    return Finding(
        run,
        "unjudged",
        is_pool and shares[worst] >= HIGH_UNJUDGED_SHARE,
        round(shares[DEFAULT_TOP] * float(np.minimum(judged.retrieved, DEFAULT_TOP).sum())),
        message,
        effect=f"{effect} (grade {median:g})" if effect else "",
        table=FindingTable(["measure", "top", "unjudged", "score", "judged only", "if relevant"], rows),
        data={"unjudged": shares[DEFAULT_TOP], "top": DEFAULT_TOP},
    )
