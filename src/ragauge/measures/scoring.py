"""Scores from judged ranks: measures are computed, then the convention handles special queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ragauge.core.errors import BadInput, describe_failures
from ragauge.core.findings import Note
from ragauge.core.records import Floats, Ints, MeasureDict, Scores
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import JudgedQuery, JudgedRanks
from ragauge.measures.names import Measure, make_measure, parse_measure
from ragauge.measures.registry import MEASURE_REGISTRY, mean
from ragauge.output.numbers import join_names, pluralise

MeasureFunction = Callable[[JudgedQuery], float]
"""User-defined measure: a function from one judged query to a number (NaN for no value)."""

MISSING_QUERY = "the run does not have the query"
NO_RELEVANT = "no document is relevant"
NO_VALUE = "the measure returned no number"
MAX_NAMED_QUERIES = 3
"""Maximum number of queries that a message names."""
UNJUDGED_QUERIES, MISSING_QUERIES = "unjudged queries", "missing queries"
"""Codes of the notes on queries of a run without judgments, and on judged queries that it lacks."""
REPEATED_DOCUMENTS, NO_RELEVANT_DOCUMENTS = "repeated documents", "no relevant documents"
"""Codes of the notes on hits that repeat a document of the ranking, and on queries without a relevant document."""
WHOLE_RANKING_MEASURES = frozenset({"map", "gm_map", "11pt_avg", "bpref", "infap", "recall", "ndcg"})
"""Measures that, without a cutoff, change if a run is truncated."""
UNJUDGED_MEASURES = frozenset({"judged", "unjudged", "rbp_resid"})
"""Measures that depend on the unjudged documents of a ranking."""
TREC_DEPTH = 1000
"""Depth of a TREC run, at which measures of whole rankings are published."""


def score_judged_ranks(
    judged: JudgedRanks, measures: Sequence[Measure | MeasureFunction], convention: Convention
) -> Scores:
    """Score each query by each measure.

    Returns values, means, and reasons for unscored queries.
    """
    _check_missing_queries(judged, convention)
    values: dict[str, Floats] = {}
    means: dict[str, float] = {}
    unscored: dict[str, Mapping[str, str]] = {}
    for measure in measures:
        name = _measure_name(measure)
        if name in values:
            raise BadInput(f"two measures are named `{name}`", hint="give each function its own __name__")
        column, without, average = _score_measure(judged, measure, convention)
        values[name], means[name], unscored[name] = column, average, without
    canonical = partial(_canonical_name, convention)
    return Scores(
        run=judged.name,
        convention=convention.name,
        queries=judged.pool.queries,
        values=MeasureDict(values, canonical),
        means=MeasureDict(means, canonical),
        unscored=MeasureDict(unscored, canonical),
        notes=[
            *_query_notes(judged, measures, convention),
            *_grade_notes(judged, measures, convention),
            *_depth_notes(judged, measures, convention),
            *_condensed_notes(measures, convention),
        ],
        rel=convention.rel,
        lower_is_better=frozenset(_measure_name(m) for m in measures if _is_lower_better(m)),
        direction_unstated=frozenset(_measure_name(m) for m in measures if _is_lower_better(m) is None),
        failures=judged.failures,
        judged=judged,
    )


def _measure_name(measure: Measure | MeasureFunction) -> str:
    return str(measure) if isinstance(measure, Measure) else getattr(measure, "__name__", "own_measure")


def _is_lower_better(measure: Measure | MeasureFunction) -> bool | None:
    """Return the direction of a measure.

    None if a function has no attribute `lower_is_better`.
    """
    if isinstance(measure, Measure):
        return measure.spec.lower_is_better
    stated = getattr(measure, "lower_is_better", None)
    return None if stated is None else bool(stated)


def _canonical_name(convention: Convention, name: str) -> str:
    """Return the canonical name of a measure; other names are returned unchanged."""
    try:
        return str(parse_measure(name, convention))
    except (BadInput, LookupError):
        return name


def _score_measure(
    judged: JudgedRanks, measure: Measure | MeasureFunction, convention: Convention
) -> tuple[Floats, dict[str, str], float]:
    """Compute the values of a measure, the reasons for missing values, and the mean."""
    if convention.beyond_depth == "undefined" and judged.depth is not None and is_beyond_depth(measure, judged.depth):
        reason = f"{measure} is undefined: the run was made with k={judged.depth:g}"
        return np.full(judged.n, math.nan), dict.fromkeys(judged.pool.queries, reason), math.nan
    column, no_relevant, keeps, aggregate = _measure_values(judged, measure, convention)
    is_missing = ~judged.answered
    out: dict[int, str] = {}
    counts_one = convention.none in ("one", "recall-one")
    if counts_one:
        column = np.where(no_relevant, 1.0, column)
    elif convention.none == "skip":
        out.update(dict.fromkeys(np.flatnonzero(no_relevant).tolist(), NO_RELEVANT))
    if convention.missing == "skip":
        out.update(dict.fromkeys(np.flatnonzero(is_missing).tolist(), MISSING_QUERY))
    elif not keeps:
        column = np.where(is_missing & ~(no_relevant & counts_one), 0.0, column)
    for row in np.flatnonzero(np.isnan(column)).tolist():
        out.setdefault(row, NO_VALUE)
    scored = np.ones(judged.n, np.bool_)
    scored[list(out)] = False
    column = np.where(scored, column, math.nan)
    if not scored.any():
        average = math.nan
    elif isinstance(measure, Measure) and dict(measure.options).get("of") == "means":
        average = _f1_of_means(judged, measure, convention)
    else:
        average = aggregate(column[scored])
    queries = judged.pool.queries
    return column, {queries[row]: reason for row, reason in sorted(out.items())}, average


def is_beyond_depth(measure: Measure | MeasureFunction, depth: float) -> bool:
    """Return whether a measure needs documents below a depth."""
    if not isinstance(measure, Measure) or measure.spec.cutoff == "level":
        return False
    judgments_only = measure.spec.keeps_missing and not measure.spec.lower_is_better
    return not judgments_only and (measure.cutoff or 0) > depth


def _grade_notes(
    judged: JudgedRanks, measures: Sequence[Measure | MeasureFunction], convention: Convention
) -> list[str]:
    """Return a note on measures that count every relevant grade equally.

    There is none if the user set `rel`.
    """
    grades = np.unique(judged.pool.grades[judged.pool.grades >= convention.rel])
    if convention.rel_stated or convention.rel != 1 or len(grades) < 2:
        return []
    binary = [
        str(measure) for measure in measures if isinstance(measure, Measure) and dict(measure.options).get("rel") == 1
    ]
    if not binary:
        return []
    verb = "counts" if len(binary) == 1 else "count"
    return [
        f"grades go up to {grades[-1]:g}, and {', '.join(binary)} {verb} grade 1 as relevant; "
        f"`--rel {grades[1]:g}` counts from grade {grades[1]:g}"
    ]


def _depth_notes(
    judged: JudgedRanks, measures: Sequence[Measure | MeasureFunction], convention: Convention
) -> list[str]:
    """Return notes on measures that the depth of the run limits."""
    if judged.depth == math.inf:
        return []
    undefined = convention.beyond_depth == "undefined" and judged.depth is not None
    depth = int(judged.depth if undefined and judged.depth else judged.retrieved.max(initial=0))
    if not depth or (convention.depth is not None and convention.depth <= depth):
        return []
    named_measures = [measure for measure in measures if isinstance(measure, Measure)]
    beyond = [measure for measure in named_measures if is_beyond_depth(measure, depth)]
    notes: list[str] = []
    if undefined and beyond:
        needed = max(int(measure.cutoff or 0) for measure in beyond)
        verb = "is" if len(beyond) == 1 else "are"
        notes.append(
            f"{_list_names(beyond)} {verb} undefined for runs made with k={depth}; run again with `-k {needed}`"
        )
    limited = [
        *([] if undefined else beyond),
        *(measure for measure in named_measures if _is_limited_by_depth(judged, measure, depth)),
    ]
    if limited:
        documents = "1 document" if depth == 1 else f"{depth:,} documents"
        verb = "is" if len(limited) == 1 else "are"
        text = f"at most {documents} per query, so {_list_names(limited)} {verb} computed at depth {depth}"
        notes.append(Note(text, judged.name))
    return notes


def _condensed_notes(measures: Sequence[Measure | MeasureFunction], convention: Convention) -> list[str]:
    """Return a note on measures of unjudged documents if the convention removes these."""
    names = [measure for measure in measures if isinstance(measure, Measure) and measure.spec.name in UNJUDGED_MEASURES]
    if convention.unjudged != "condensed" or not names:
        return []
    effect = "does not show" if len(names) == 1 else "do not show"
    return [f"unjudged=condensed removes unjudged documents first, so {_list_names(names)} {effect} their number"]


def _list_names(measures: Sequence[Measure]) -> str:
    return ", ".join(map(str, measures))


def _is_limited_by_depth(judged: JudgedRanks, measure: Measure, depth: int) -> bool:
    """Return whether the run's depth limits a measure of whole rankings.

    True only if most rankings end at that depth.
    """
    if measure.spec.name not in WHOLE_RANKING_MEASURES or measure.cutoff is not None or depth >= TREC_DEPTH:
        return False
    is_full = judged.retrieved == depth
    if is_full.sum() * 2 <= judged.answered.sum():
        return False
    rel = dict(measure.options).get("rel", 1)
    has_missing = MEASURE_REGISTRY["num_rel"].function(judged, rel=rel) > MEASURE_REGISTRY["num_rel_ret"].function(
        judged, None, rel=rel
    )
    return bool((has_missing & is_full).any())


def _measure_values(
    judged: JudgedRanks, measure: Measure | MeasureFunction, convention: Convention
) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.bool_]], bool, Callable[[Floats], float]]:
    """Compute raw values and how to treat them.

    Returns the values, a mask of queries without relevant documents to which the option `none` applies, whether
    missing queries keep their values, and the aggregate function.
    """
    has_no_relevant = np.zeros(judged.n, np.bool_)
    if not isinstance(measure, Measure):
        column = np.fromiter((measure(query) for query in judged.iterate_queries()), np.float64, judged.n)
        return column, has_no_relevant, False, mean
    spec = measure.spec
    if judged.averaged and not spec.averages_ties:
        raise BadInput(
            f"{spec.name} is not defined as a mean over the orders of ties",
            hint="use another convention, or ties=trec",
        )
    options = dict(measure.options)
    column = spec(judged, measure.cutoff, options)
    zeros = {"one": ("precision", "set_precision"), "recall-one": set(MEASURE_REGISTRY) - {"recall", "set_recall"}}
    keeps_zero = convention.none == "zero" or spec.name in zeros.get(convention.none, ())
    if spec.needs_relevant and not keeps_zero:
        has_no_relevant = np.bincount(judged.pool.owner[_is_relevant(judged, measure)], minlength=judged.n) == 0
    return column, has_no_relevant, spec.keeps_missing, spec.aggregate


def _f1_of_means(judged: JudgedRanks, measure: Measure, convention: Convention) -> float:
    options = dict(measure.options)
    parts = [("precision", options["precision_of"]), ("recall", options["recall_of"])]
    means = [
        _score_measure(
            judged,
            make_measure(
                MEASURE_REGISTRY[name], measure.cutoff, {"of": denominator, "rel": options["rel"]}, convention
            ),
            convention,
        )[2]
        for name, denominator in parts
    ]
    return 2 * means[0] * means[1] / sum(means) if sum(means) else 0.0


def _check_missing_queries(judged: JudgedRanks, convention: Convention) -> None:
    if convention.missing == "error" and not judged.answered.all():
        absent = [f"`{judged.pool.queries[i]}`" for i in np.flatnonzero(~judged.answered).tolist()]
        names = _name_queries(absent)
        raise BadInput(
            f"{judged.name} has no ranking for {len(absent)} of {judged.n} judged queries ({names})",
            hint="use `-C missing=zero` to count them as 0, or `-C missing=skip` to leave them out",
        )


def _describe_missing_queries(judged: JudgedRanks, convention: Convention) -> str:
    absent = [judged.pool.queries[i] for i in np.flatnonzero(~judged.answered).tolist()]
    names = _name_queries(absent)
    if len(absent) == judged.n and judged.unjudged_queries:
        return f"has none of the {judged.n:,} judged queries ({names}): check the query ids and the order of columns"
    fate = "count 0" if convention.missing == "zero" else "are left out"
    return f"lacks {len(absent):,} of {judged.n:,} judged queries ({names}), which {fate}"


def _describe_repeats(queries: Sequence[str], repeats: Ints, rule: str) -> str:
    """Return the number of repeated documents, the queries, and how they count."""
    names = _name_queries([queries[i] for i in np.flatnonzero(repeats).tolist()])
    hits = pluralise(int(repeats.sum()), "hit repeats", "hits repeat")
    effects = {
        "unit": "ranks count distinct documents (unit=document)",
        "first": "k counts hits, and a document scores once, at its first rank (`-C unit=document` counts documents)",
        "count": "every occurrence counts (duplicates=count)",
    }
    n_queries = pluralise(int(np.count_nonzero(repeats)), "query")
    return f"{hits} a document of the same ranking in {n_queries} ({names}): {effects[rule]}"


def _describe_queries_without_relevant(
    judged: JudgedRanks, measures: Sequence[Measure | MeasureFunction], convention: Convention
) -> list[str]:
    """Return a note on the queries without a relevant document, unless no query has one."""
    pool = judged.pool
    rows_by_grade: dict[object, tuple[int, ...]] = {}
    measures_by_queries: dict[tuple[int, ...], list[Measure]] = {}
    for measure in measures:
        if isinstance(measure, Measure) and measure.spec.needs_relevant:
            rel = dict(measure.options).get("rel")
            if rel not in rows_by_grade:
                has_relevant = np.bincount(pool.owner[_is_relevant(judged, measure)], minlength=judged.n) > 0
                rows_by_grade[rel] = tuple(np.flatnonzero(~has_relevant).tolist())
            measures_by_queries.setdefault(rows_by_grade[rel], []).append(measure)
    fate = {
        "zero": "count 0",
        "skip": "are left out",
        "one": "count 1 (precision 0)",
        "recall-one": "count 1 in recall and 0 in other measures",
    }[convention.none]
    notes: list[str] = []
    for rows, same_measures in measures_by_queries.items():
        if 0 < len(rows) < judged.n:
            where = "" if len(measures_by_queries) == 1 else f"{_list_names(same_measures)}: "
            names = _name_queries([pool.queries[row] for row in rows])
            text = f"{where}no document is relevant for {len(rows):,} of {judged.n:,} judged queries ({names})"
            notes.append(Note(f"{text}, which {fate}", code=NO_RELEVANT_DOCUMENTS))
    return notes


def _is_relevant(judged: JudgedRanks, measure: Measure) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which judged documents are relevant; gain measures have no minimum grade: any above 0 has gain."""
    options = dict(measure.options)
    return judged.pool.grades >= options["rel"] if "rel" in options else judged.pool.grades > 0


def _name_queries(queries: Sequence[str]) -> str:
    return join_names(queries, MAX_NAMED_QUERIES)


def _query_notes(
    judged: JudgedRanks, measures: Sequence[Measure | MeasureFunction], convention: Convention
) -> list[str]:
    notes: list[str] = []
    if judged.failures:
        notes.append(Note(describe_failures(judged.failures, judged.n), judged.name))
    if not judged.answered.all():
        notes.append(Note(_describe_missing_queries(judged, convention), judged.name, code=MISSING_QUERIES))
    if judged.retrieved.any() and not len(judged.row) and len(judged.pool.grades):
        notes.append(Note("no returned document is judged; check that judgments and run use the same ids", judged.name))
    if judged.unjudged_queries:
        unjudged = pluralise(len(judged.unjudged_queries), "unjudged query is", "unjudged queries are")
        text = f"{unjudged} not scored ({_name_queries(judged.unjudged_queries)})"
        notes.append(Note(text, judged.name, code=UNJUDGED_QUERIES))
    notes += _describe_queries_without_relevant(judged, measures, convention)
    if judged.repeats is not None:
        text = _describe_repeats(judged.pool.queries, judged.repeats, judged.repeat_rule)
        notes.append(Note(text, judged.name, code=REPEATED_DOCUMENTS))
    grades = judged.pool.grades
    if len(grades) and grades.max() < convention.rel:
        highest = f"the highest grade is {grades.max():g}"
        notes.append(f"no document is relevant: no judgment has grade {convention.rel:g} or more ({highest})")
    if len(grades) and (grades != np.floor(grades)).any():
        notes.append(f"grades are fractions: gain={convention.gain}, and relevant from {convention.rel:g} on")
    return notes
