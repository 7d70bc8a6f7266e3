"""Scores in the three-column format of trec_eval."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ragauge.core.records import Scores
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import JudgedRanks
from ragauge.measures.names import MEASURE_GROUPS, Measure
from ragauge.measures.registry import geometric_mean
from ragauge.measures.scoring import MeasureFunction

_RELSTRING_PATTERN = re.compile(r"relstring(?:[._](\d+))?")


def select_measure_names(requested: Sequence[str]) -> list[str]:
    """Select the measure names, without the trec_eval lines that are not measures."""
    return [name for name in requested if name not in ("runid", "num_q") and not _RELSTRING_PATTERN.fullmatch(name)]


def render_trec_eval(
    scores: Scores,
    measures: Sequence[Measure | MeasureFunction],
    requested: Sequence[str],
    convention: Convention,
    *,
    per_query: bool,
) -> str:
    """Format scores as trec_eval lines of measure, query id or `all`, and value.

    Per-query lines come first, sorted by query id, then the means.
    """
    named_measures = [m for m in measures if isinstance(m, Measure)]
    group = any(name.lower() in MEASURE_GROUPS for name in requested)
    judged: JudgedRanks = scores.judged
    names = {m: _trec_eval_name(m, requested) for m in named_measures}
    # trec_eval has one name for some pairs of measures (recall and recall(of=capped)); these keep their canonical
    # names.
    names = {
        m: n if list(names.values()).count(n) == 1 and _is_trec_eval_measure(m, convention) else str(m)
        for m, n in names.items()
    }
    out: list[str] = []
    if per_query:
        string, length = _parse_relstring(requested)
        for i in sorted(range(len(scores.queries)), key=lambda i: scores.queries[i]):
            query = scores.queries[i]
            if all(query in scores.unscored[str(m)] for m in named_measures) and named_measures:
                continue
            string_due = bool(string)
            for measure in named_measures:
                if string_due and _is_after_relstring(measure):
                    out.append(_trec_eval_line(string, query, f"'{_relevance_string(judged, i, length)}'"))
                    string_due = False
                if measure.spec.aggregate is not geometric_mean:
                    out.append(
                        _trec_eval_line(
                            names[measure],
                            query,
                            _format_trec_eval_value(measure, float(scores.values[str(measure)][i])),
                        )
                    )
            if string_due:
                out.append(_trec_eval_line(string, query, f"'{_relevance_string(judged, i, length)}'"))
    if group or "runid" in requested:
        out.append(_trec_eval_line("runid", "all", judged.tag or scores.run))
    if group or "num_q" in requested:
        left_out = int((~judged.answered).sum()) if convention.missing == "skip" else 0
        out.append(_trec_eval_line("num_q", "all", str(len(scores.queries) - left_out)))
    out.extend(
        _trec_eval_line(names[m], "all", _format_trec_eval_value(m, scores.means[str(m)])) for m in named_measures
    )
    return "".join(out)


def _is_trec_eval_measure(measure: Measure, convention: Convention) -> bool:
    """Return whether trec_eval can compute the measure with these options.

    The minimum relevant grade must be that of the convention; other options may differ only if trec_eval has them
    too.
    """
    adjustable = {
        "rel": convention.rel,
        "points": convention.points,
        "weights": None,
        "levels": None,
        "beta": None,
        "p": None,
    }
    for option, value in measure.options:
        if (
            value != measure.spec.options[option]
            and adjustable.get(option, "") not in (None, value)
            and ":" not in str(value)
        ):
            return False
    return True


def _trec_eval_line(name: str, query: str, value: str) -> str:
    return f"{name:<22}\t{query}\t{value}\n"


def _trec_eval_name(measure: Measure, requested: Sequence[str]) -> str:
    """Return trec_eval's name; parameters other than cutoffs are appended as typed."""
    spec = measure.spec
    if spec.name in ("utility", "11pt_avg", "set_f") or (spec.name in ("ndcg", "rbp") and measure.cutoff is None):
        for name in requested:
            base, dot, parameters = name.partition(".")
            if dot and base == spec.trec:
                return f"{spec.trec}_{parameters}"
    return measure.trec_name


def _format_trec_eval_value(measure: Measure, value: float) -> str:
    return f"{value:.0f}" if measure.is_count else f"{value:6.4f}"


def _parse_relstring(requested: Sequence[str]) -> tuple[str, int]:
    """Return the name and length of the requested relstring line.

    Returns `("", 0)` if none was requested.
    """
    for name in requested:
        match = _RELSTRING_PATTERN.fullmatch(name)
        if match:
            return (f"relstring_{match[1]}", int(match[1])) if match[1] else ("relstring", 10)
    return ("relstring", 10) if any(name.lower() == "all_trec" for name in requested) else ("", 0)


def _is_after_relstring(measure: Measure) -> bool:
    """Return whether trec_eval prints the measure after relstring, which follows P."""
    preceding = (
        "num_ret",
        "num_rel",
        "num_rel_ret",
        "gm_map",
        "r_precision",
        "bpref",
        "mrr",
        "iprec_at_recall",
        "precision",
    )
    return not (measure.spec.name in preceding or (measure.spec.name == "map" and measure.cutoff is None))


def _relevance_string(judged: JudgedRanks, query: int, length: int) -> str:
    """Format the grades of the first documents, one character per document.

    `-` is unjudged, `.` is pooled but unjudged, `>` is a grade above 9.
    """
    text = ["-"] * int(min(length, judged.retrieved[query]))
    for i in np.flatnonzero((judged.query == query) & (judged.rank <= len(text))).tolist():
        grade = judged.grade[i]
        text[int(judged.rank[i]) - 1] = "." if grade < 0 else ">" if grade > 9 else f"{grade:.0f}"
    return "".join(text)
