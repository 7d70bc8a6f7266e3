"""Draw a measure of every system on each dataset of an experiment set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ragauge.outcomes import Mean
from ragauge.overviews import Overview
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import Cast
from ragauge.reports.charts.panels import dots
from ragauge.reports.charts.sketches import sentence, shown

HEIGHT = 240


def studied(overviews: Mapping[str, Overview], measure: str, systems: Sequence[str]) -> dict[str, Drawing]:
    """Draw a dot with interval for each system and dataset; empty without values."""
    groups = {name: _means(one, measure) for name, one in overviews.items()}
    known = {name: means for name, means in groups.items() if means}
    if not known:
        return {}
    firsts = list(overviews.values())
    cast = Cast(systems, next((one.baseline for one in firsts if one.baseline in systems), None))
    sure = any(math.isfinite(mean.low) for means in known.values() for mean in means.values())
    lower = any(measure in one.lower_is_better for one in firsts)
    caption = sentence(
        f"a mark is a system's mean {measure} on a dataset" + " (lower is better)" * lower,
        f"lines are intervals of {firsts[0].confidence:.0%}" if sure else "",
        "datasets differ in how hard they are: compare systems within each",
    )
    said = "; ".join(
        f"{name}: {', '.join(f'{system} {shown(mean.value)}' for system, mean in means.items())}"
        for name, means in known.items()
    )
    one = dots("", known, measure, cast, HEIGHT, key=cast.names, wide=True)
    return {"datasets": Drawing(f"{measure} on each dataset", caption, f"Mean {measure}. {said}.", [one])}


def _means(overview: Overview, measure: str) -> dict[str, Mean]:
    means = {name: entry.means[measure] for name, entry in overview.entries.items() if measure in entry.means}
    return {name: mean for name, mean in means.items() if math.isfinite(mean.value)}
