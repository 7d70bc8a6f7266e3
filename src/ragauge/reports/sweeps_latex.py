"""A sweep as a LaTeX table for a paper: stores against queries per second at each recall; booktabs, best in bold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.reports.latex import escaped
from ragauge.reports.sweeps_rows import Figure, reached
from ragauge.reports.sweeps_words import MEGABYTE, chosen, meant, megabytes, most, recalled, seconds
from ragauge.reports.tables import counted
from ragauge.sweeps import Sweep


def latex(sweep: Sweep) -> str:
    """The stores: the most recall, queries per second at each recall, time to build and memory of the chosen one."""
    part = reached(sweep)
    levels = len([title for title in part.header if title.startswith("QPS")])
    header = ["Store", "Recall", *part.header[1 : levels + 1], "Build (s)", "Memory (MB)"]
    table = [[Figure(row[0].text), *_figures(sweep, row[0].text, row[1 : levels + 1])] for row in part.rows]
    least = [min((row[i].value for row in table if math.isfinite(row[i].value)), default=math.nan) for i in (-2, -1)]
    rows = []
    for row in table:
        cells = [
            *row[:-2],
            *(one._replace(best=len(table) > 1 and one.value == low) for one, low in zip(row[-2:], least, strict=True)),
        ]
        rows.append([escaped(cells[0].text), *map(_set, cells[1:])])
    wide = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(one.ljust(w) for one, w in zip(cells, wide, strict=True)).rstrip() + r" \\"

    caption = (
        f"{escaped(sweep.data)}: {counted(sweep.vectors, 'vector')} of {sweep.dimension} dimensions, "
        f"{counted(sweep.queries, 'query', 'queries')}, {escaped(sweep.metric)}, $k = {sweep.k}$, "
        f"{counted(sweep.threads, 'thread')}. Recall: the most that any setting has ({escaped(meant(sweep.recall))}). "
        "Queries per second of one client, interpolated along each store's frontier. Best in bold."
    )
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            r"  \label{tab:stores}",
            rf"  \begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
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


def _figures(sweep: Sweep, series: str, speeds: Sequence[Figure]) -> list[Figure]:
    point = chosen(sweep, series)
    size = math.nan if point is None or point.build.memory_bytes is None else point.build.memory_bytes / MEGABYTE
    built = math.nan if point is None else point.build.seconds
    return [
        Figure(recalled(most(sweep, series))),
        *(one if math.isfinite(one.value) else Figure("--") for one in speeds),
        Figure(seconds(built), built),
        Figure(megabytes(size), size),
    ]


def _set(one: Figure) -> str:
    text = "--" if one.text == "-" else one.text.replace(",", "{,}")
    return rf"\textbf{{{text}}}" if one.best else text
