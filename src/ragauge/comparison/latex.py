"""Render LaTeX tables of systems by measures, with significance marks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ragauge.comparison.report import assign_letters, describe_test, find_significant_wins
from ragauge.core.run_dates import describe_run_dates
from ragauge.core.summaries import Mean
from ragauge.core.text import one_line
from ragauge.output.latex import escape_latex
from ragauge.output.numbers import format_score, pluralise
from ragauge.stats.comparisons import Comparisons

PAPER_MEASURE_NAMES = {
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
"""Names of measures in papers. Other measures keep their ragauge name."""
UNREPORTED_CONVENTIONS = ("", "default", "as given")
"""Conventions that are not worth mentioning in a caption."""
MAX_NARROW_MARK_CHARS = 3
"""Maximum number of superscript characters that fit between two columns."""
TextsByCell = Mapping[tuple[str, str], str]
"""Text by (system, measure)."""


@dataclass(frozen=True)
class _LatexTable:
    """Content of a LaTeX table."""

    systems: Sequence[str]
    measures: Sequence[str]
    means: Mapping[tuple[str, str], Mean]
    lower: frozenset[str]
    caption: Sequence[str]
    """Sentences in LaTeX."""
    label: str
    marks: TextsByCell = field(default_factory=dict)
    """Superscripts by system and measure."""
    letters: Mapping[str, str] = field(default_factory=dict)
    """Letter before each system name that superscripts refer to."""
    p95: Mapping[str, float] = field(default_factory=dict)
    """p95 latency in ms by system, if known."""


def to_paper_name(measure: str) -> str:
    """Return a measure's name as papers write it, with options and cutoff.

    >>> [to_paper_name(one) for one in ("ndcg@10", "recall(of=capped)@5", "hit_rate@1", "my_own@3")]
    ['nDCG@10', 'Recall(of=capped)@5', 'Hit rate@1', 'my_own@3']
    """
    name = re.match(r"[^(@]*", measure)[0]  # type: ignore[index]
    return PAPER_MEASURE_NAMES.get(name, name) + measure[len(name) :]


def render_comparisons_latex(found: Comparisons) -> str:
    """Render the systems of a comparison by all its measures."""
    means: dict[tuple[str, str], Mean] = {}
    for row in found:
        for name, value in zip((row.baseline, row.system), row.means, strict=True):
            means[name, row.measure] = Mean(value, row.n)
    said = _means_caption([mean.n for mean in means.values()], found.dataset, found.convention)
    sheet = _LatexTable(
        list(found.systems),
        found.measures,
        means,
        frozenset(row.measure for row in found if row.lower_is_better),
        [said, *_best_caption(len(found.systems)), *_marks_caption(found)],
        found.dataset or "systems",
        _significance_marks(found),
        _system_letters(found),
    )
    return _latex_comments(describe_run_dates(found.answers)) + _render_latex_table(sheet)


def _latex_comments(lines: Sequence[str]) -> str:
    """Return lines as LaTeX comments, which are not printed."""
    return "".join(f"% {line}\n" for line in lines)


def _means_caption(counts: Sequence[int], dataset: str, convention: str) -> str:
    known = sorted({n for n in counts if n})
    over = f" over {known[0]:,} to" if len(known) > 1 else " over" if known else ""
    over += f" {pluralise(known[-1], 'query', 'queries')}" if known else ""
    by = f", convention {escape_latex(convention)}" if convention not in UNREPORTED_CONVENTIONS else ""
    return f"Means{over}{f' of {escape_latex(dataset)}' if dataset else ''}{by}"


def _best_caption(systems: int) -> list[str]:
    if systems < 2:
        return []
    return ["Best in bold, second best underlined" if systems > 2 else "Best in bold"]


def _system_letters(found: Comparisons | None) -> Mapping[str, str]:
    return assign_letters(found.systems) if found is not None and found.baseline is None else {}


def _significance_marks(found: Comparisons) -> dict[tuple[str, str], str]:
    """Return superscripts by system and measure.

    They are letters of significantly worse systems, or stars if there is a baseline.
    """
    if found.baseline is None:
        names = assign_letters(found.systems)
        joint = "" if all(len(name) == 1 and name.isalpha() for name in names.values()) else ","
        return {
            (system, measure): joint.join(names[one] for one in losers)
            for (measure, system), losers in find_significant_wins(found).items()
        }
    return {(row.system, row.measure): row.stars for row in found if row.p_corrected < 0.05}


def _marks_caption(found: Comparisons) -> list[str]:
    """Return caption sentences that explain the superscripts."""
    tested = f"two-sided {escape_latex(describe_test(found))}"
    if found.baseline is None:
        return [f"A raised letter: better than that system ({tested}, $p < {found.method.alpha:g}$)"]
    levels = ", ".join(f"$^{{{mark}}}p < {level}$" for mark, level in (("***", 0.001), ("**", 0.01), ("*", 0.05)))
    return [f"Stars: differs from {escape_latex(found.baseline)} ({tested}; {levels})"]


def _render_latex_table(sheet: _LatexTable) -> str:
    timed = ["p95 (ms)"] if sheet.p95 else []
    header = ["System", *(escape_latex(to_paper_name(m)) for m in sheet.measures), *timed]
    least = min(sheet.p95.values(), default=0.0)
    decimals = 2 if least < 1 else 1 if least < 100 else 0  # one precision for all, to align them
    rows = []
    columns = {m: _format_measure_column(sheet, m) for m in sheet.measures}
    for name in sheet.systems:
        # At the start of a row, LaTeX would read a bracket or a star as an option of the previous one.
        lead = f"{sheet.letters[name]} " if name in sheet.letters else "{}" if one_line(name)[:1] in "[*" else ""
        times = [f"{sheet.p95[name]:.{decimals}f}" if name in sheet.p95 else "--"] if timed else []
        rows.append([lead + escape_latex(name), *(columns[m][name] for m in sheet.measures), *times])
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
            rf"  \begin{{tabular}}{{l{''.join(_latex_column(sheet, m) for m in sheet.measures)}{'r' * len(timed)}}}",
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


def _latex_column(sheet: _LatexTable, measure: str) -> str:
    """Return the column specification, with space for long superscripts."""
    most = max(len(sheet.marks.get((name, measure), "")) for name in sheet.systems)
    return "r" if most <= MAX_NARROW_MARK_CHARS else rf"r@{{\hspace{{{0.4 * most + 0.6:.1f}em}}}}"


def _format_measure_column(sheet: _LatexTable, measure: str) -> dict[str, str]:
    """Format the values of a measure with emphasis and superscripts.

    The best is bold, the second best underlined.
    """
    values = {name: sheet.means.get((name, measure), Mean(math.nan, 0)).value for name in sheet.systems}
    order = sorted({value for value in values.values() if not math.isnan(value)}, reverse=measure not in sheet.lower)
    ranked = len(sheet.systems) > 1 and not measure.startswith("num_")
    cells = {}
    for name, value in values.items():
        text = "--" if math.isnan(value) else format_score(value, measure)
        if ranked and order and value == order[0]:
            text = rf"\textbf{{{text}}}"
        elif ranked and len(sheet.systems) > 2 and len(order) > 1 and value == order[1]:
            text = rf"\underline{{{text}}}"
        mark = sheet.marks.get((name, measure), "")
        raised = f"$^{{{mark}}}$" if mark[:1] == "*" else rf"\textsuperscript{{{mark}}}"
        cells[name] = text + (rf"\rlap{{{raised}}}" if mark else "")
    return cells
