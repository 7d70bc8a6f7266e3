"""LaTeX tables of a benchmark: one row per store with QPS at each recall level; booktabs, best in bold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.reports.latex import escaped
from ragauge.reports.sweeps_provenance import describe_mixture
from ragauge.reports.sweeps_rows import filters, reached
from ragauge.reports.sweeps_speeds import describe_filters
from ragauge.reports.sweeps_tables import Figure
from ragauge.reports.sweeps_words import DOUBT, MEGABYTE, chosen, meant, megabytes, most, ranked, recalled, seconds
from ragauge.reports.tables import counted, milliseconds
from ragauge.sweeps import LEVEL, Sweep

LATENCY = {"p50": "p50 (ms)", "p90": "p90", "p95": "p95", "p99": "p99"}
"""Latency percentiles of the representative configuration, and their column titles."""
UNRELIABLE = f"{DOUBT}: the time is not reliable."
"""Caption sentence that explains the mark of unreliable times."""


def latex(sweep: Sweep) -> str:
    """Render one row per store: recall, QPS at each recall level, latency and costs."""
    part = reached(sweep)
    levels = len([title for title in part.header if title.startswith("QPS")])
    header = ["Store", "Recall", *part.header[1 : levels + 1], "MRR", *LATENCY.values(), "Build (s)", "Memory (MB)"]
    table = [[Figure(row[0].text), *_figures(sweep, row[0].text, row[1 : levels + 1])] for row in part.rows]
    least = [min((row[i].value for row in table if math.isfinite(row[i].value)), default=math.nan) for i in (-2, -1)]
    rows = []
    for row in table:
        cells = [
            *row[:-2],
            *(one._replace(best=len(table) > 1 and one.value == low) for one, low in zip(row[-2:], least, strict=True)),
        ]
        rows.append([escaped(cells[0].text), *map(_set, cells[1:])])
    dated = part.header[-1] == "reused"
    if dated:
        header.append("Reused")
        rows = [[*row, escaped(own[-1].text)] for row, own in zip(rows, part.rows, strict=True)]
    caption = (
        f"{escaped(sweep.data)}: {counted(sweep.vectors, 'vector')} of {sweep.dimension} dimensions, "
        f"{counted(sweep.queries, 'query', 'queries')}, {escaped(sweep.metric)}, $k = {sweep.k}$, "
        f"{counted(sweep.threads, 'thread')}. Recall: the most that any setting has ({escaped(meant(sweep.recall))}). "
        "Queries per second of one client, interpolated along each store's frontier. MRR (all exact neighbours count "
        "as relevant), latency, build time and memory: the fastest configuration with recall "
        f"{LEVEL:g}, else the one with the most recall. Best in bold."
    )
    if any(one.text.endswith(DOUBT) for row in table for one in row[1:]):
        caption += f" {UNRELIABLE}"
    if dated:
        caption += " Reused: when a result was made (UTC); no: measured by the last command."
    if describe_mixture(sweep):
        caption += " Reused results are compared with new ones."
    return "\n".join([r"% \usepackage{booktabs}", *_table(caption, "tab:stores", header, rows), *_filters(sweep), ""])


def _filters(sweep: Sweep) -> list[str]:
    """Render the operating points with each filter as a separate table, if any."""
    part = filters(sweep)
    if not part.rows:
        return []
    titles = ["filter", "store", "recall", "QPS", "p50 ms", "p95 ms", "p99 ms", "repeats"]
    titles += ["reused"] * ("reused" in part.header)
    places = [part.header.index(title) for title in titles]
    rows = [[escaped(row[i].text) if i < 2 or i == places[-1] else _set(row[i]) for i in places] for row in part.rows]
    header = [
        title.replace(" ms", " (ms)") if title[1:2].isdigit() else title[:1].upper() + title[1:] for title in titles
    ]
    said = " ".join(describe_filters(sweep, ranked(sweep)))
    caption = (
        f"{escaped(said)} Search with a filter, each store at its fastest setting with recall {LEVEL:g} under the "
        "filter, else with the most recall; all queries of a row share the filter. The fastest with that recall in "
        f"bold. {UNRELIABLE}"
    )
    return _table(caption, "tab:filters", header, rows)


def _table(caption: str, label: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    wide = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(one.ljust(w) for one, w in zip(cells, wide, strict=True)).rstrip() + r" \\"

    return [
        r"\begin{table}[t]",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \label{{{label}}}",
        rf"  \begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"    \toprule",
        line(header),
        r"    \midrule",
        *map(line, rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def _figures(sweep: Sweep, series: str, speeds: Sequence[Figure]) -> list[Figure]:
    point = chosen(sweep, series)
    mrr = math.nan if point is None else point.quality.get(f"mrr@{sweep.k}", math.nan)
    times = [math.nan if point is None else getattr(point.latency, kind) for kind in LATENCY]
    size = math.nan if point is None or point.build.memory_bytes is None else point.build.memory_bytes / MEGABYTE
    built = math.nan if point is None else point.build.seconds
    doubt = DOUBT if point is not None and point.clock.doubts else ""
    return [
        Figure(recalled(most(sweep, series))),
        *(one if math.isfinite(one.value) else Figure("--") for one in speeds),
        Figure(recalled(mrr), mrr),
        *(Figure(milliseconds(value) + doubt, value) for value in times),
        Figure(seconds(built), built),
        Figure(megabytes(size), size),
    ]


def _set(one: Figure) -> str:
    text = "--" if one.text == "-" else one.text.replace(",", "{,}")
    return rf"\textbf{{{text}}}" if one.best else text
