"""Render LaTeX tables of systems by measures, with significance marks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ragauge.comparison.report import beaten, decided_by, marks
from ragauge.comparison.results import Overview
from ragauge.core.run_dates import describe_answers
from ragauge.core.summaries import Mean
from ragauge.core.text import one_line
from ragauge.output.latex import escaped
from ragauge.output.numbers import count_noun, shown
from ragauge.stats.comparisons import Comparisons

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
"""Names of measures in papers. Other measures keep their ragauge name."""
USUAL = ("", "default", "as given")
"""Conventions that are not worth mentioning in a caption."""
MOST = 3
"""Maximum number of superscript characters that fit between two columns."""
Cells = Mapping[tuple[str, str], str]
"""Text by (system, measure)."""


@dataclass(frozen=True)
class _Sheet:
    """Content of a LaTeX table."""

    systems: Sequence[str]
    measures: Sequence[str]
    means: Mapping[tuple[str, str], Mean]
    lower: frozenset[str]
    caption: Sequence[str]
    """Sentences in LaTeX."""
    label: str
    marks: Cells = field(default_factory=dict)
    """Superscripts by system and measure."""
    letters: Mapping[str, str] = field(default_factory=dict)
    """Letter before each system name that superscripts refer to."""
    p95: Mapping[str, float] = field(default_factory=dict)
    """p95 latency in ms by system, if known."""


def paper_name(measure: str) -> str:
    """Return a measure's name as papers write it, with options and cutoff.

    >>> [paper_name(one) for one in ("ndcg@10", "recall(of=capped)@5", "hit_rate@1", "my_own@3")]
    ['nDCG@10', 'Recall(of=capped)@5', 'Hit rate@1', 'my_own@3']
    """
    name = re.match(r"[^(@]*", measure)[0]  # type: ignore[index]
    return NAMES.get(name, name) + measure[len(name) :]


def overview_table(overview: Overview) -> str:
    """Render the systems of an overview by all its measures."""
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
    """Render the systems of a comparison by all its measures."""
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
    """Return lines as LaTeX comments, which are not printed."""
    return "".join(f"% {line}\n" for line in lines)


def _means_over(counts: Sequence[int], dataset: str, convention: str) -> str:
    known = sorted({n for n in counts if n})
    over = f" over {known[0]:,} to" if len(known) > 1 else " over" if known else ""
    over += f" {count_noun(known[-1], 'query', 'queries')}" if known else ""
    by = f", convention {escaped(convention)}" if convention not in USUAL else ""
    return f"Means{over}{f' of {escaped(dataset)}' if dataset else ''}{by}"


def _leading(systems: int) -> list[str]:
    if systems < 2:
        return []
    return ["Best in bold, second best underlined" if systems > 2 else "Best in bold"]


def _letters(found: Comparisons | None) -> Mapping[str, str]:
    return marks(found.systems) if found is not None and found.baseline is None else {}


def _raised(found: Comparisons) -> dict[tuple[str, str], str]:
    """Return superscripts by system and measure.

    They are letters of significantly worse systems, or stars if there is a baseline.
    """
    if found.baseline is None:
        names = marks(found.systems)
        joint = "" if all(len(name) == 1 and name.isalpha() for name in names.values()) else ","
        return {
            (system, measure): joint.join(names[one] for one in losers)
            for (measure, system), losers in beaten(found).items()
        }
    return {(row.system, row.measure): row.stars for row in found if row.p_corrected < 0.05}


def _told(found: Comparisons) -> list[str]:
    """Return caption sentences that explain the superscripts."""
    tested = f"two-sided {escaped(decided_by(found))}"
    if found.baseline is None:
        return [f"A raised letter: better than that system ({tested}, $p < {found.method.alpha:g}$)"]
    levels = ", ".join(f"$^{{{mark}}}p < {level}$" for mark, level in (("***", 0.001), ("**", 0.01), ("*", 0.05)))
    return [f"Stars: differs from {escaped(found.baseline)} ({tested}; {levels})"]


def _set(sheet: _Sheet) -> str:
    timed = ["p95 (ms)"] if sheet.p95 else []
    header = ["System", *(escaped(paper_name(m)) for m in sheet.measures), *timed]
    least = min(sheet.p95.values(), default=0.0)
    decimals = 2 if least < 1 else 1 if least < 100 else 0  # one precision for all, to align them
    rows = []
    columns = {m: _styled(sheet, m) for m in sheet.measures}
    for name in sheet.systems:
        # At the start of a row, LaTeX would read a bracket or a star as an option of the previous one.
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
    """Return the column specification, with space for long superscripts."""
    most = max(len(sheet.marks.get((name, measure), "")) for name in sheet.systems)
    return "r" if most <= MOST else rf"r@{{\hspace{{{0.4 * most + 0.6:.1f}em}}}}"


def _styled(sheet: _Sheet, measure: str) -> dict[str, str]:
    """Format the values of a measure with emphasis and superscripts.

    The best is bold, the second best underlined.
    """
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
