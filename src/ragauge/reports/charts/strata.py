"""Draw the mean of each system in each stratum of the queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragauge.overviews import Overview, Stratum
from ragauge.reports.charts.looks import Cast
from ragauge.reports.charts.sketches import (
    Panel,
    Rows,
    Sketch,
    altair,
    figure,
    interval_tips,
    panel,
    sentence,
    shown,
    span,
)
from ragauge.reports.tags import explained

MOST = 20
"""Maximum number of strata drawn per tag."""
FEW = 6
"""Maximum number of strata in a half-width panel."""


class Frame(NamedTuple):
    """Axis range and left margin in pixels that all panels share."""

    ends: tuple[float, float]
    margin: int


def strata(overview: Overview) -> Sketch | None:
    """Draw one panel per tag, with a row per stratum and a dot per system."""
    known = {
        tag: [one for one in several if any(math.isfinite(mean.value) for mean in one.means.values())]
        for tag, several in overview.strata.items()
    }
    known = {tag: several[:MOST] for tag, several in known.items() if several}
    if not known:
        return None
    means = [mean for several in known.values() for one in several for mean in one.means.values()]
    # One axis and one margin for all tags, so that they can be compared.
    frame = Frame(
        span([end for mean in means for end in (mean.value, mean.low, mean.high)], pad=0.03),
        min(130, 6 * max(len(_called(one)) for several in known.values() for one in several)),
    )
    cast = Cast(overview.systems, overview.baseline, frame.margin)
    panels: list[Panel] = []
    said = []
    for tag, several in known.items():
        whole = len(overview.strata[tag])
        title = explained(tag) if len(several) == whole else f"{explained(tag)} ({len(several)} of {whole} values)"
        panels.append(_panel(title, several, overview, cast, frame, key=[] if panels else cast.names))
        said.append(f"{tag}: " + "; ".join(_best(overview, one) for one in several))
    sure = f", with its {overview.confidence:.0%} interval" if any(math.isfinite(one.low) for one in means) else ""
    caption = sentence(
        f"a row is a kind of {overview.asked[0]} and a mark a system's mean {overview.first} there{sure}"
    )
    return Sketch(panels, f"Mean {overview.first} by kind of {overview.asked[0]}. {'. '.join(said)}.", caption)


def _called(one: Stratum) -> str:
    return f"{one.value} (n={one.n})"


def _best(overview: Overview, one: Stratum) -> str:
    known = {name: mean.value for name, mean in one.means.items() if math.isfinite(mean.value)}
    best = (min if overview.first in overview.lower_is_better else max)(known, key=known.__getitem__)
    return f"{one.value} (n={one.n}) best {best} {shown(known[best])}"


def _panel(
    title: str, drawn: Sequence[Stratum], overview: Overview, cast: Cast, frame: Frame, *, key: Sequence[str]
) -> Panel:
    alt = altair()
    rows: Rows = [
        {
            "stratum": _called(one),
            "system": name,
            "place": cast.names.index(name),
            "value": figure(mean.value),
            "low": figure(mean.low),
            "high": figure(mean.high),
            "n": mean.n or None,
        }
        for one in drawn
        for name, mean in one.means.items()
        if math.isfinite(mean.value) and name in overview.entries
    ]
    lower = overview.first in overview.lower_is_better
    words = overview.first + " (lower is better)" * lower
    ends = alt.Scale(domain=[figure(end) for end in frame.ends], zero=False, nice=False)
    x = alt.X("value:Q", title=words, scale=ends, axis=alt.Axis(tickCount=6))
    scale = alt.Scale(domain=[_called(one) for one in drawn], paddingInner=0.25, paddingOuter=0.12)
    y = alt.Y(
        "stratum:N",
        title=None,
        scale=scale,
        sort=None,
        axis=alt.Axis(grid=False, labelLimit=130, minExtent=frame.margin),
    )
    # Ordinal numbers, because Vega-Lite would write sorted names into an expression.
    offset = alt.YOffset("place:O", sort="ascending", scale=alt.Scale(domain=list(range(len(cast.names)))))
    tips = [
        alt.Tooltip("stratum:N", title="queries"),
        alt.Tooltip("system:N", title="system"),
        *interval_tips(alt),
        alt.Tooltip("n:Q", title="n"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    bars = chart.mark_rule(strokeWidth=1.5, opacity=0.75)
    dots = chart.mark_point(filled=True, size=55, opacity=1)
    colour, shape = cast.colour(alt, key), cast.shape(alt, key)
    layers = [
        bars.encode(x=alt.X("low:Q", title=words), x2="high:Q", y=y, yOffset=offset, color=colour),
        dots.encode(x=x, y=y, yOffset=offset, color=colour, shape=shape, tooltip=tips),
    ]
    return panel(title, layers, len(drawn) * (9 * len(cast.names) + 14) + 8, wide=len(drawn) > FEW)
