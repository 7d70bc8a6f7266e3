"""Scores as tables, JSON and CSV, and in the three-column format of trec_eval."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from ragauge.core.records import Scores
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import JudgedRanks
from ragauge.measures.names import MEASURE_GROUPS, Measure
from ragauge.measures.registry import geometric_mean
from ragauge.measures.scoring import MeasureFunction
from ragauge.output.numbers import format_exact, format_score
from ragauge.output.terminal import best_mean, borderless_table, format_direction, render_csv_rows, terminal_cell

_RELSTRING_PATTERN = re.compile(r"relstring(?:[._](\d+))?")


def select_measure_names(asked: Sequence[str]) -> list[str]:
    """Select the measure names, without the trec_eval lines that are not measures."""
    return [name for name in asked if name not in ("runid", "num_q") and not _RELSTRING_PATTERN.fullmatch(name)]


def render_trec_eval(
    scores: Scores,
    measures: Sequence[Measure | MeasureFunction],
    asked: Sequence[str],
    rules: Convention,
    *,
    per_query: bool,
) -> str:
    """Format scores as trec_eval lines of measure, query id or `all`, and value.

    Per-query lines come first, sorted by query id, then the means.
    """
    wanted = [m for m in measures if isinstance(m, Measure)]
    group = any(name.lower() in MEASURE_GROUPS for name in asked)
    judged: JudgedRanks = scores.judged
    names = {m: _trec_eval_name(m, asked) for m in wanted}
    # trec_eval has one name for some pairs of measures (recall and recall(of=capped)); these keep their canonical
    # names.
    names = {
        m: n if list(names.values()).count(n) == 1 and _is_trec_eval_measure(m, rules) else str(m)
        for m, n in names.items()
    }
    out: list[str] = []
    if per_query:
        string, length = _parse_relstring(asked)
        for i in sorted(range(len(scores.queries)), key=lambda i: scores.queries[i]):
            query = scores.queries[i]
            if all(query in scores.unscored[str(m)] for m in wanted) and wanted:
                continue
            string_due = bool(string)
            for measure in wanted:
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
    if group or "runid" in asked:
        out.append(_trec_eval_line("runid", "all", judged.tag or scores.run))
    if group or "num_q" in asked:
        left_out = int((~judged.answered).sum()) if rules.missing == "skip" else 0
        out.append(_trec_eval_line("num_q", "all", str(len(scores.queries) - left_out)))
    out.extend(_trec_eval_line(names[m], "all", _format_trec_eval_value(m, scores.means[str(m)])) for m in wanted)
    return "".join(out)


def _is_trec_eval_measure(measure: Measure, rules: Convention) -> bool:
    """Return whether trec_eval can compute the measure with these options.

    The minimum relevant grade must be that of the convention; other options may differ only if trec_eval has them
    too.
    """
    own = {"rel": rules.rel, "points": rules.points, "weights": None, "levels": None, "beta": None, "p": None}
    for option, value in measure.options:
        if value != measure.spec.options[option] and own.get(option, "") not in (None, value) and ":" not in str(value):
            return False
    return True


def _trec_eval_line(name: str, query: str, value: str) -> str:
    return f"{name:<22}\t{query}\t{value}\n"


def _trec_eval_name(measure: Measure, asked: Sequence[str]) -> str:
    """Return trec_eval's name; parameters other than cutoffs are appended as typed."""
    spec = measure.spec
    if spec.name in ("utility", "11pt_avg", "set_f") or (spec.name in ("ndcg", "rbp") and measure.cutoff is None):
        for name in asked:
            base, dot, parameters = name.partition(".")
            if dot and base == spec.trec:
                return f"{spec.trec}_{parameters}"
    return measure.trec_name


def _format_trec_eval_value(measure: Measure, value: float) -> str:
    return f"{value:.0f}" if measure.spec.name.startswith("num_") else f"{value:6.4f}"


def _parse_relstring(asked: Sequence[str]) -> tuple[str, int]:
    """Return the name and length of the requested relstring line.

    Returns `("", 0)` if none was requested.
    """
    for name in asked:
        found = _RELSTRING_PATTERN.fullmatch(name)
        if found:
            return (f"relstring_{found[1]}", int(found[1])) if found[1] else ("relstring", 10)
    return ("relstring", 10) if any(name.lower() == "all_trec" for name in asked) else ("", 0)


def _is_after_relstring(measure: Measure) -> bool:
    """Return whether trec_eval prints the measure after relstring, which follows P."""
    before = (
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
    return not (measure.spec.name in before or (measure.spec.name == "map" and measure.cutoff is None))


def _relevance_string(judged: JudgedRanks, query: int, length: int) -> str:
    """Format the grades of the first documents, one character per document.

    `-` is unjudged, `.` is pooled but unjudged, `>` is a grade above 9.
    """
    text = ["-"] * int(min(length, judged.retrieved[query]))
    for at in np.flatnonzero((judged.query == query) & (judged.rank <= len(text))).tolist():
        grade = judged.grade[at]
        text[int(judged.rank[at]) - 1] = "." if grade < 0 else ">" if grade > 9 else f"{grade:.0f}"
    return "".join(text)


def score_table(scores: Mapping[str, Scores], width: int) -> Table:
    """Build a table of mean scores, with the best of each measure in bold.

    Runs are rows if they fit the width, else measures are.
    """
    runs = list(scores)
    measures = list(dict.fromkeys(m for s in scores.values() for m in s.measures))
    best = {m: best_mean([s.means[m] for s in scores.values()], lower=_is_lower_better(scores, m)) for m in measures}
    cells = {(r, m): _score_cell(scores[r], m, best[m], many=len(runs) > 1) for r in runs for m in measures}
    counts = [[scores[r].n[m] for m in measures] for r in runs]
    if len(runs) > 1 and max(map(len, runs)) + sum(max(len(m), 6) + 2 for m in measures) + 10 <= width:
        table = borderless_table(["run", *measures, "n"])
        for r, n in zip(runs, counts, strict=True):
            table.add_row(terminal_cell(r), *(cells[r, m] for m in measures), _query_counts_text(n))
        return table
    table = borderless_table(["measure", *runs, "n"])
    for i, m in enumerate(measures):
        table.add_row(terminal_cell(m), *(cells[r, m] for r in runs), _query_counts_text([n[i] for n in counts]))
    return table


def _is_lower_better(scores: Mapping[str, Scores], measure: str) -> bool:
    return any(measure in one.lower_is_better for one in scores.values())


def _query_counts_text(counts: list[int]) -> Text:
    return Text(str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}-{max(counts)}", style="dim")


def _score_cell(scores: Scores, measure: str, best: float, *, many: bool) -> Text:
    value = scores.means[measure]
    leads = many and value == best and not measure.startswith("num_")
    return Text(format_score(value, measure), style="bold" if leads else "")


def query_table(scores: Mapping[str, Scores], width: int) -> Table:
    """Build a table with one row per run and query.

    If that does not fit the width, it has one row per score.
    """
    first = next(iter(scores.values()))
    several = len(scores) > 1
    longest = max([len(q) for q in first.queries]) + (max(map(len, scores)) + 2 if several else 0)
    if longest + sum(max(len(m), 6) + 2 for m in first.measures) > width:
        table = borderless_table(["query", *(["run"] if several else []), "measure", "value"])
        for name, one in scores.items():
            for m in one.measures:
                for query, value in zip(one.queries, one.values[m].tolist(), strict=True):
                    table.add_row(
                        terminal_cell(query),
                        *([terminal_cell(name)] if several else []),
                        terminal_cell(m),
                        format_score(value, m),
                    )
        return table
    table = borderless_table(["query", *(["run"] if several else []), *first.measures])
    for name, one in scores.items():
        for i, query in enumerate(one.queries):
            lead = [terminal_cell(query), *([terminal_cell(name)] if several else [])]
            table.add_row(*lead, *(format_score(float(one.values[m][i]), m) for m in one.measures))
    return table


def render_scores_json(scores: Mapping[str, Scores], *, per_query: bool) -> str:
    """Render scores as JSON; a missing mean is null.

    The shape is `{"convention": …, "runs": {run: {measure: {"mean": …, "n": …, "unscored": …}}}}`.
    """
    runs: dict[str, Any] = {}
    for name, one in scores.items():
        runs[name] = {}
        for m in one.measures:
            entry: dict[str, Any] = {
                "mean": None if math.isnan(one.means[m]) else one.means[m],
                "n": one.n[m],
                "unscored": len(one.unscored[m]),
            }
            if one.unscored[m]:
                entry["reasons"] = dict(one.unscored[m])
            if per_query:
                entry["per_query"] = one.per_query[m]
            runs[name][m] = entry
    convention = next(iter(scores.values())).convention
    return json.dumps({"convention": convention, "runs": runs}, ensure_ascii=False, indent=2)


def render_scores_csv(scores: Mapping[str, Scores], *, per_query: bool) -> str:
    """Render scores as CSV in long form.

    The columns are `run,measure,mean,n,unscored`, or with `per_query` `run,query,measure,value,lower_is_better`. The
    value of an unscored query is empty.
    """
    if per_query:
        long = (
            [name, query, m, format_exact(value), format_direction(one, m)]
            for name, one in scores.items()
            for m in one.measures
            for query, value in zip(one.queries, one.values[m].tolist(), strict=True)
        )
        return render_csv_rows(["run", "query", "measure", "value", "lower_is_better"], long)
    means = (
        [name, m, format_exact(one.means[m]), str(one.n[m]), str(len(one.unscored[m]))]
        for name, one in scores.items()
        for m in one.measures
    )
    return render_csv_rows(["run", "measure", "mean", "n", "unscored"], means)
