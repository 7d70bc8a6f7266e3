"""A LaTeX table for a paper: systems against measures, best in bold, what is more than chance marked; booktabs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ragauge.comparisons import Comparisons
from ragauge.overviews import Mean, Overview
from ragauge.reports.comparisons import beaten, decided_by, marks
from ragauge.reports.tables import one_line, shown

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
    label: str
    raised: Cells = field(default_factory=dict)
    letters: Mapping[str, str] = field(default_factory=dict)
    """What stands before each name, where others refer to it."""


def escaped(text: str) -> str:
    r"""A text as text: one line, and nothing in it that LaTeX would act on.

    >>> escaped("50% of a_b & {c}\nüber")
    '50\\% of a\\_b \\& \\{c\\} über'
    """
    plain = "".join(SPECIAL.get(mark, mark) for mark in one_line(text))
    return plain.replace("--", "-{}-").replace("''", "'{}'")  # two of them would be joined into another sign


def overview_table(overview: Overview) -> str:
    """The systems of an overview by all its measures."""
    means = {(name, m): mean for name, entry in overview.entries.items() for m, mean in entry.means.items()}
    over = f" of {overview.dataset}" if overview.dataset else ""
    said = [_means_over([means[place].n for place in means if place[1] in overview.measures], over)]
    if overview.convention:
        said[0] += f", convention {overview.convention}"
    found = overview.compared
    sheet = _Sheet(
        overview.systems,
        list(overview.measures),
        means,
        overview.lower_is_better,
        [*said, *_leading(len(overview.systems)), *([] if found is None else _told(found))],
        overview.title,
        {} if found is None else _raised(found),
        _letters(found),
    )
    return _set(sheet)


def comparisons_table(found: Comparisons) -> str:
    """The systems of a comparison by all its measures, over the queries that it is made on."""
    means: dict[tuple[str, str], Mean] = {}
    for row in found:
        for name, value in zip((row.baseline, row.system), row.means, strict=True):
            means[name, row.measure] = Mean(value, row.n)
    over = f" of {found.dataset}" if found.dataset else ""
    said = _means_over([mean.n for mean in means.values()], over)
    if found.convention:
        said += f", convention {found.convention}"
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
    return _set(sheet)


def _means_over(counts: Sequence[int], over: str) -> str:
    known = [n for n in counts if n]
    if not known:
        return f"Means{over}"
    span = f"{known[0]:,}" if len(set(known)) == 1 else f"{min(known):,} to {max(known):,}"
    return f"Means over {span} quer{'y' if span == '1' else 'ies'}{over}"


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
            (system, measure): rf"\textsuperscript{{{joint.join(names[one] for one in losers)}}}"
            for (measure, system), losers in beaten(found).items()
        }
    return {(row.system, row.measure): f"$^{{{row.corrected_stars}}}$" for row in found if row.p_corrected < 0.05}


def _told(found: Comparisons) -> list[str]:
    """What the marks say."""
    tested = f"{decided_by(found)}, two-sided"
    if found.baseline is None:
        return [f"A raised letter: better than that system ({tested}, p < {found.method.alpha:g})"]
    return [f"Stars: differs from {found.baseline} ({tested}; *** p < 0.001, ** p < 0.01, * p < 0.05)"]


def _set(sheet: _Sheet) -> str:
    header = ["System", *map(escaped, sheet.measures)]
    rows = []
    columns = {m: _styled(sheet, m) for m in sheet.measures}
    for name in sheet.systems:
        # After the end of a row, a bracket or a star would be taken for an option.
        lead = f"{sheet.letters[name]} " if name in sheet.letters else "{}" if one_line(name)[:1] in "[*" else ""
        rows.append([lead + escaped(name), *(columns[m][name] for m in sheet.measures)])
    widest = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(text.ljust(wide) for text, wide in zip(cells, widest, strict=True)).rstrip() + r" \\"

    label = re.sub(r"[^a-z0-9]+", "-", sheet.label.lower()).strip("-") or "systems"
    # All values have as many decimals, so that a column that begins at its left has them under each other, and the
    # raised marks disturb nothing.
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{escaped('. '.join(sheet.caption))}.}}",
            rf"  \label{{tab:{label}}}",
            rf"  \begin{{tabular}}{{l{'l' * len(sheet.measures)}}}",
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
        cells[name] = text + sheet.raised.get((name, measure), "")
    return cells
