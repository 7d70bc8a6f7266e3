"""A LaTeX table for a paper: systems against measures, best in bold, what is more than chance marked; booktabs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ragauge.answer_dates import describe_answers
from ragauge.comparisons import Comparisons
from ragauge.outcomes import Mean
from ragauge.overviews import Overview
from ragauge.reports.comparisons import beaten, decided_by, marks
from ragauge.reports.tables import counted, one_line, shown

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "`": r"{\char96}",
    "\ufffd": "?",
    **{mark: f"\\{mark}" for mark in "_&%#${}"},
}
"""What LaTeX would act on, or would set as something else."""
NAMES = {
    "ndcg": "nDCG",
    "dcg": "DCG",
    "alpha_ndcg": "alpha-nDCG",
    "map": "MAP",
    "gm_map": "GMAP",
    "mrr": "MRR",
    "precision": "P",
    "recall": "Recall",
    "f1": "F1",
    "hit_rate": "Hit rate",
    "r_precision": "R-Prec",
    "rbp": "RBP",
    "err": "ERR",
    "err_ia": "ERR-IA",
    "infap": "infAP",
    "judged": "Judged",
    "unjudged": "Unjudged",
    "subtopic_recall": "S-Recall",
}
"""How papers write measures; others stand there under the name that they have here."""
USUAL = ("", "default", "as given")
"""Conventions that say nothing to a reader."""
MOST = 3
"""Raised marks that find room between two columns."""
Cells = Mapping[tuple[str, str], str]
"""By system and measure."""


@dataclass(frozen=True)
class _Sheet:
    """What is to be set."""

    systems: Sequence[str]
    measures: Sequence[str]
    means: Mapping[tuple[str, str], Mean]
    lower: frozenset[str]
    caption: Sequence[str]
    """Sentences, as LaTeX has them."""
    label: str
    marks: Cells = field(default_factory=dict)
    """What is raised beside a value."""
    letters: Mapping[str, str] = field(default_factory=dict)
    """What stands before each name, where others refer to it."""
    p95: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds, where some are known."""


def escaped(text: str) -> str:
    r"""A text as text: one line, and nothing in it that LaTeX would act on.

    >>> escaped("50% of a_b & {c}\nüber")
    '50\\% of a\\_b \\& \\{c\\} über'
    """
    plain = "".join(SPECIAL.get(mark, mark) for mark in one_line(text))
    return plain.replace("--", "-{}-").replace("''", "'{}'")  # two of them would be joined into another sign


def paper_name(measure: str) -> str:
    """A measure as papers write it, its options and its cutoff as they are.

    >>> [paper_name(one) for one in ("ndcg@10", "recall(of=capped)@5", "hit_rate@1", "my_own@3")]
    ['nDCG@10', 'Recall(of=capped)@5', 'Hit rate@1', 'my_own@3']
    """
    name = re.match(r"[^(@]*", measure)[0]  # type: ignore[index]
    return NAMES.get(name, name) + measure[len(name) :]


def overview_table(overview: Overview) -> str:
    """The systems of an overview by all its measures."""
    means = {(name, m): mean for name, entry in overview.entries.items() for m, mean in entry.means.items()}
    counts = [means[place].n for place in means if place[1] in overview.measures]
    found = overview.compared
    totals = {
        name: entry.speed.stages["total"].p95
        for name, entry in overview.entries.items()
        if entry.speed is not None and "total" in entry.speed.stages
    }
    p95 = {name: value for name, value in totals.items() if not math.isnan(value)}
    said = [_means_over(counts, overview.dataset, overview.convention), *_leading(len(overview.systems))]
    said += [] if found is None else _told(found)
    sheet = _Sheet(
        overview.systems,
        list(overview.measures),
        means,
        overview.lower_is_better,
        [*said, *(["p95: 95th percentile of the time for a query"] if p95 else [])],
        overview.title,
        {} if found is None else _raised(found),
        _letters(found),
        p95,
    )
    return _comment(describe_answers(overview.answers)) + _set(sheet)


def comparisons_table(found: Comparisons) -> str:
    """The systems of a comparison by all its measures, over the queries that it is made on."""
    means: dict[tuple[str, str], Mean] = {}
    for row in found:
        for name, value in zip((row.baseline, row.system), row.means, strict=True):
            means[name, row.measure] = Mean(value, row.n)
    said = _means_over([mean.n for mean in means.values()], found.dataset, found.convention)
    sheet = _Sheet(
        list(found.systems),
        found.measures,
        means,
        frozenset(row.measure for row in found if row.lower_is_better),
        [said, *_leading(len(found.systems)), *_told(found)],
        found.dataset or "systems",
        _raised(found),
        _letters(found),
    )
    return _comment(describe_answers(found.answers)) + _set(sheet)


def _comment(lines: Sequence[str]) -> str:
    """Return lines as LaTeX comments: a table in a paper does not print them."""
    return "".join(f"% {line}\n" for line in lines)


def _means_over(counts: Sequence[int], dataset: str, convention: str) -> str:
    known = sorted({n for n in counts if n})
    over = f" over {known[0]:,} to" if len(known) > 1 else " over" if known else ""
    over += f" {counted(known[-1], 'query', 'queries')}" if known else ""
    by = f", convention {escaped(convention)}" if convention not in USUAL else ""
    return f"Means{over}{f' of {escaped(dataset)}' if dataset else ''}{by}"


def _leading(systems: int) -> list[str]:
    if systems < 2:
        return []
    return ["Best in bold, second best underlined" if systems > 2 else "Best in bold"]


def _letters(found: Comparisons | None) -> Mapping[str, str]:
    return marks(found.systems) if found is not None and found.baseline is None else {}


def _raised(found: Comparisons) -> dict[tuple[str, str], str]:
    """The letters of the systems that one surely beats; against a baseline the stars of its p-value."""
    if found.baseline is None:
        names = marks(found.systems)
        joint = "" if all(len(name) == 1 and name.isalpha() for name in names.values()) else ","
        return {
            (system, measure): joint.join(names[one] for one in losers)
            for (measure, system), losers in beaten(found).items()
        }
    return {(row.system, row.measure): row.stars for row in found if row.p_corrected < 0.05}


def _told(found: Comparisons) -> list[str]:
    """What the marks say."""
    tested = f"two-sided {escaped(decided_by(found))}"
    if found.baseline is None:
        return [f"A raised letter: better than that system ({tested}, $p < {found.method.alpha:g}$)"]
    levels = ", ".join(f"$^{{{mark}}}p < {level}$" for mark, level in (("***", 0.001), ("**", 0.01), ("*", 0.05)))
    return [f"Stars: differs from {escaped(found.baseline)} ({tested}; {levels})"]


def _set(sheet: _Sheet) -> str:
    timed = ["p95 (ms)"] if sheet.p95 else []
    header = ["System", *(escaped(paper_name(m)) for m in sheet.measures), *timed]
    least = min(sheet.p95.values(), default=0.0)
    decimals = 2 if least < 1 else 1 if least < 100 else 0  # as many for all, so that they are aligned
    rows = []
    columns = {m: _styled(sheet, m) for m in sheet.measures}
    for name in sheet.systems:
        # After the end of a row, a bracket or a star would be taken for an option.
        lead = f"{sheet.letters[name]} " if name in sheet.letters else "{}" if one_line(name)[:1] in "[*" else ""
        times = [f"{sheet.p95[name]:.{decimals}f}" if name in sheet.p95 else "--"] if timed else []
        rows.append([lead + escaped(name), *(columns[m][name] for m in sheet.measures), *times])
    widest = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(text.ljust(wide) for text, wide in zip(cells, widest, strict=True)).rstrip() + r" \\"

    label = re.sub(r"[^a-z0-9]+", "-", sheet.label.lower()).strip("-") or "systems"
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{'. '.join(sheet.caption)}.}}",
            rf"  \label{{tab:{label}}}",
            rf"  \begin{{tabular}}{{l{''.join(_column(sheet, m) for m in sheet.measures)}{'r' * len(timed)}}}",
            r"    \toprule",
            line(header),
            r"    \midrule",
            *map(line, rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _column(sheet: _Sheet, measure: str) -> str:
    """Numbers end at the right; what is raised beside them stands between the columns, and may need more room there."""
    most = max(len(sheet.marks.get((name, measure), "")) for name in sheet.systems)
    return "r" if most <= MOST else rf"r@{{\hspace{{{0.4 * most + 0.6:.1f}em}}}}"


def _styled(sheet: _Sheet, measure: str) -> dict[str, str]:
    """The values of one measure: the best in bold, the second best underlined, with what is raised after them."""
    values = {name: sheet.means.get((name, measure), Mean(math.nan, 0)).value for name in sheet.systems}
    order = sorted({value for value in values.values() if not math.isnan(value)}, reverse=measure not in sheet.lower)
    ranked = len(sheet.systems) > 1 and not measure.startswith("num_")
    cells = {}
    for name, value in values.items():
        text = "--" if math.isnan(value) else shown(value, measure)
        if ranked and order and value == order[0]:
            text = rf"\textbf{{{text}}}"
        elif ranked and len(sheet.systems) > 2 and len(order) > 1 and value == order[1]:
            text = rf"\underline{{{text}}}"
        mark = sheet.marks.get((name, measure), "")
        raised = f"$^{{{mark}}}$" if mark[:1] == "*" else rf"\textsuperscript{{{mark}}}"
        cells[name] = text + (rf"\rlap{{{raised}}}" if mark else "")
    return cells
