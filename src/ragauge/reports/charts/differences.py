"""Draw differences between systems by query and by stratum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.comparisons import Comparison
from ragauge.overviews import Overview
from ragauge.records import Floats
from ragauge.reports.charts.looks import LOST, TIED, WON, Cast
from ragauge.reports.charts.sketches import Rows, Sketch, altair, figure, listed, panel, sentence

MOST = 400
"""Maximum number of points per line."""


def compared(overview: Overview) -> list[Comparison]:
    """Return the comparisons with the baseline by the first measure.

    Without a baseline, returns the comparison of the best system with the second best.
    """
    rows = [] if overview.compared is None else [row for row in overview.compared if row.measure == overview.first]
    rows = [row for row in rows if row.n and {row.system, row.baseline} <= set(overview.entries)]
    if overview.baseline is not None:
        return [row for row in rows if row.baseline == overview.baseline and row.system != overview.baseline]
    return rows[:1] if overview.rival is None else [overview.rival]


def best_first(row: Comparison) -> Floats | None:
    """Return the differences of all queries, best first; None if some are unknown."""
    if len(row.moved) != row.wins + row.losses:
        return None
    values = np.array([one.difference for one in row.moved] + [0.0] * row.ties, dtype=np.float64)
    return np.sort(values) if row.lower_is_better else np.sort(values)[::-1]


def _known(overview: Overview) -> list[tuple[Comparison, Floats]]:
    return [(row, values) for row in compared(overview) if (values := best_first(row)) is not None and len(values)]


def _against(overview: Overview, rows: Sequence[Comparison]) -> str:
    lower = " (less than 0 is better)" if rows[0].lower_is_better else ""
    return f"difference in {overview.first} to {rows[0].baseline}{lower}"


def waterfall(overview: Overview) -> Sketch | None:
    """Draw the sorted differences, one line per system."""
    known = _known(overview)
    if not known:
        return None
    alt = altair()
    cast = Cast(overview.systems, overview.baseline)
    rows: Rows = []
    turns: Rows = []
    for row, values in known:
        n = len(values)
        places = np.unique(np.linspace(0, n - 1, min(n, MOST)).round().astype(int))
        shares = [figure(100 * (place + 0.5) / n, 4) for place in places.tolist()]
        drawn = [figure(value, 4) for value in values[places].tolist()]
        rows.append({"system": row.system, "dash": cast.dashes[row.system], "share": shares, "difference": drawn})
        at = [("won", row.wins, 100 * row.wins / n), ("lost", row.losses, 100 - 100 * row.losses / n)]
        turns += [
            {"system": row.system, "share": figure(share, 4), "difference": 0, "what": what, "count": count, "n": n}
            for what, count, share in at
        ]
    title = f"{overview.asked[1]}, best for the system first, %"
    x = alt.X("share:Q", title=title, scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5, grid=False))
    y = alt.Y("difference:Q", title=_against(overview, [row for row, _ in known]), axis=alt.Axis(tickCount=5))
    key = [row.system for row, _ in known]
    colour, dash, shape = cast.colour(alt, key), cast.dash(alt), cast.shape(alt, key)
    lines = alt.Chart(alt.Data(values=rows)).transform_flatten(["share", "difference"])
    dots = alt.Chart(alt.Data(values=turns))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("what:N", title=overview.asked[1]),
        alt.Tooltip("count:Q", title="how many"),
        alt.Tooltip("n:Q", title="of"),
    ]
    layers = [
        alt.Chart(alt.Data(values=[{"difference": 0}])).mark_rule(style="guide").encode(y=y),
        lines.mark_line(strokeWidth=2, interpolate="step").encode(x=x, y=y, color=colour, strokeDash=dash),
        dots.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    if len(known) == 1:
        area = lines.mark_area(interpolate="step", opacity=0.2)
        layers.insert(0, area.encode(x=x, y=y, color=colour))
    first = known[0][0]
    caption = sentence(
        f"all {overview.asked[1]} in order, best for the system first: where a line lies "
        f"{'below' if first.lower_is_better else 'above'} 0 the system beats {first.baseline}, and marks show where "
        "winning ends and losing begins"
    )
    return Sketch([panel("", layers, 260)], _won(overview, [row for row, _ in known]), caption)


def boxes(overview: Overview) -> Sketch | None:
    """Draw quartiles, 5th and 95th percentile, and mean difference with its interval."""
    known = _known(overview)
    if not known:
        return None
    alt = altair()
    cast = Cast(overview.systems, overview.baseline)
    rows: Rows = []
    for row, values in known:
        cuts = [figure(float(cut), 4) for cut in np.percentile(values, [5, 25, 50, 75, 95])]
        entry = dict(zip(("p5", "q1", "median", "q3", "p95"), cuts, strict=True))
        ends = {"low": figure(row.ci[0]), "high": figure(row.ci[1])}
        rows.append({"system": row.system, **entry, "mean": figure(row.difference), **ends, "n": row.n})
    title = _against(overview, [row for row, _ in known])
    y = cast.rows(alt, [row["system"] for row in rows])
    chart = alt.Chart(alt.Data(values=rows))
    fields = {
        "mean": "mean",
        "low": "from",
        "high": "to",
        "median": "median",
        "q1": "1st quartile",
        "q3": "3rd quartile",
    }
    tips = [alt.Tooltip("system:N", title="system")]
    tips += [alt.Tooltip(f"{field}:Q", title=name, format="+.4f") for field, name in fields.items()]
    colour = cast.colour(alt)

    def at(field: str) -> Any:
        return alt.X(f"{field}:Q", title=title, axis=alt.Axis(tickCount=6))

    layers = [
        alt.Chart(alt.Data(values=[{"mean": 0}])).mark_rule(style="guide").encode(x=at("mean")),
        chart.mark_rule(strokeWidth=1.5).encode(x=at("p5"), x2="p95:Q", y=y, color=colour),
        chart.mark_bar(height=14, opacity=0.45).encode(x=at("q1"), x2="q3:Q", y=y, color=colour, tooltip=tips),
        chart.mark_tick(thickness=2, size=14).encode(x=at("median"), y=y, color=colour),
        chart.mark_rule(style="guide", strokeWidth=3).encode(x=at("low"), x2="high:Q", y=y),
        chart.mark_point(style="guide", filled=True, shape="diamond", size=70, opacity=1).encode(
            x=at("mean"), y=y, tooltip=tips
        ),
    ]
    said = listed(
        [f"{row['system']} {row['mean']:+.4f} from {_signed(row['low'])} to {_signed(row['high'])}" for row in rows]
    )
    words = f"Mean {title}: {said}."
    sure = f" with its {overview.confidence:.0%} interval" if any(row["low"] is not None for row in rows) else ""
    caption = sentence(
        f"boxes hold the middle half of the {overview.asked[1]} and thin lines all but 5% at each end",
        f"the diamond is the mean{sure}",
    )
    return Sketch([panel("", layers, 34 * len(rows) + 6)], words, caption)


def _signed(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.4f}"


def wins(overview: Overview) -> Sketch | None:
    """Draw the share of queries that each system wins, ties and loses."""
    found = compared(overview)
    if not found:
        return None
    alt = altair()
    cast = Cast(overview.systems, overview.baseline)
    kinds = {"won": WON, "tied": TIED, "lost": LOST}
    rows: Rows = []
    for row in found:
        begin = 0
        for kind, count in zip(kinds, (row.wins, row.ties, row.losses), strict=True):
            share = 100 * count / row.n
            rows.append(
                {
                    "system": row.system,
                    "what": kind,
                    "count": count,
                    "share": figure(share, 4),
                    "begin": figure(100 * begin / row.n),
                    "end": figure(100 * (begin + count) / row.n),
                    "middle": figure(100 * (begin + count / 2) / row.n),
                    "label": str(count) if share >= 6 else "",
                }
            )
            begin += count
    y = cast.rows(alt, [row.system for row in found])
    x = alt.X("begin:Q", title=f"{overview.asked[1]}, %", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5))
    scale = alt.Scale(domain=list(kinds), range=list(kinds.values()))
    colour = alt.Color("what:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", columns=3))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("what:N", title=overview.asked[1]),
        alt.Tooltip("count:Q", title="how many"),
        alt.Tooltip("share:Q", title="%", format=".1f"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    # White in every colour scheme, because the text is on a coloured bar.
    layers = [
        chart.mark_bar(height=20).encode(x=x, x2="end:Q", y=y, color=colour, tooltip=tips),
        chart.mark_text(color="#ffffff", fontSize=11, fontWeight=600).encode(
            x=alt.X("middle:Q", title=f"{overview.asked[1]}, %"), y=y, text="label:N"
        ),
    ]
    caption = sentence(
        f"how many {overview.asked[1]} each system ranks better than, like, or worse than {found[0].baseline} by "
        f"{overview.first}"
    )
    return Sketch([panel("", layers, 28 * len(found) + 4)], _won(overview, found), caption)


def _won(overview: Overview, rows: Sequence[Comparison]) -> str:
    said = [f"{row.system} wins {row.wins}, ties {row.ties} and loses {row.losses} of {row.n}" for row in rows]
    return f"{overview.asked[1].capitalize()} by {overview.first} against {rows[0].baseline}: {'; '.join(said)}."
