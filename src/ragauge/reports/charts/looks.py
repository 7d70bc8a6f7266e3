"""How charts look: one colour, shape and dash for a system in all of them, on white and on near-black."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#c0569b",
    "#a87c00",
    "#7f5fd9",
    "#cf2f4f",
    "#148f9c",
    "#94603c",
    "#6d8f1a",
    "#3492d6",
)
"""After Okabe and Ito, darkened until each stands out by 3 to 1 from white and from near-black."""
NEUTRAL = "#7f858f"
"""The baseline, and whatever is no system."""
WON, TIED, LOST = "#0072b2", "#6e737b", "#b84700"
"""Dark enough for white figures on them."""
STAGES = {"embed": "#a87c00", "retrieve": "#0072b2", "walk": "#009e73", "rerank": "#c0569b", "other": "#7f858f"}
INK = "#757a82"
"""Words and lines where no page says better: readable on white and on near-black."""
SHAPES = ("circle", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
DASHES = ((1, 0), (6, 2), (2, 2), (8, 2, 2, 2))
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
FEW = 6
"""Up to so many systems stand beside their lines; more stand in a legend."""

CONFIG: Mapping[str, Any] = {
    "aria": False,  # a drawing is one picture with one text, not hundreds of nameless marks
    "background": "transparent",
    "font": FONT,
    "padding": {"left": 2, "right": 6, "top": 6, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": NEUTRAL,
        "gridOpacity": 0.22,
        "labelColor": INK,
        "labelFlush": False,  # pushed inwards, the labels at both ends would stand beside their ticks
        "labelFontSize": 11,
        "labelLimit": 110,
        "labelPadding": 5,
        "titleColor": INK,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 6,
    },
    "legend": {
        "labelColor": INK,
        "labelFontSize": 11,
        "labelLimit": 130,
        "orient": "bottom",
        "symbolDash": [1, 0],
        "symbolOpacity": 1,
        "title": None,
    },
    "title": {"anchor": "start", "color": INK, "fontSize": 12, "fontWeight": 600},
    "style": {
        "words": {"color": INK, "fontSize": 11},
        "guide": {"color": INK},
        "halo": {
            "color": "transparent",
            "fontSize": 11,
            "stroke": "transparent",
            "strokeJoin": "round",
            "strokeWidth": 4,
        },
    },
}
"""Vega-Lite's settings. Greys are only what is left where a page has no style of its own for Vega's classes."""

ON_PAPER = {"text": "#3b3f46", "background": "#ffffff", "font": "Liberation Sans, Arial, Helvetica, sans-serif"}
"""What files have instead."""

STYLE = """
.role-axis-label text, .role-axis-title text, .role-legend-label text, .role-legend-title text,
.role-title-text text, [class*="words_"] text { fill: var(--chart-text, #757a82); }
.role-axis-grid line { stroke: var(--chart-grid, #7f858f); }
[class*="guide_"] line, .mark-line[class*="guide_"] path { stroke: var(--chart-guide, #757a82); }
.mark-symbol[class*="guide_"] path { fill: var(--chart-guide, #757a82); }
[class*="halo_"] text { fill: var(--paper, transparent); stroke: var(--paper, transparent); }
"""
"""The style sheet of a page that sets these variables for light and dark; `--paper` is what charts stand on."""


@dataclass(frozen=True)
class Cast:
    """The systems of an overview, and how each of them looks wherever it comes."""

    names: Sequence[str]
    baseline: str | None = None
    margin: int = 0
    """Pixels on the left where no legend stands."""

    @property
    def few(self) -> bool:
        """Whether there is room for names beside lines."""
        return len(self.names) <= FEW

    @property
    def colours(self) -> list[str]:
        """Neutral for the baseline, and a colour for each other system; after eleven they come again."""
        return [NEUTRAL if i is None else PALETTE[i % len(PALETTE)] for i in self._places()]

    @property
    def shapes(self) -> list[str]:
        """Squares for the baseline, and a shape for each other system."""
        return ["square" if i is None else SHAPES[i % len(SHAPES)] for i in self._places()]

    @property
    def dashes(self) -> dict[str, int]:
        """The place in `DASHES` of each system's line: what the field `dash` holds."""
        places = zip(self.names, self._places(), strict=True)
        return {name: 2 if i is None else i % len(DASHES) for name, i in places}

    def _places(self) -> list[int | None]:
        others = [name for name in self.names if name != self.baseline]
        return [None if name == self.baseline else others.index(name) for name in self.names]

    def called(self, name: str) -> str:
        """The name as it stands beside a mark."""
        return f"{name} (baseline)" if name == self.baseline != "baseline" else name

    def colour(self, alt: Any, key: Sequence[str] = ()) -> Any:
        """The encoding, with a legend of these names; names are a scale's domain, which is data.

        All layers of a panel need the same legend: one that has none takes it from the others.
        """
        return alt.Color("system:N", scale=self._scale(alt, self.colours), legend=self._legend(alt, key))

    def shape(self, alt: Any, key: Sequence[str] = ()) -> Any:
        """Likewise."""
        return alt.Shape("system:N", scale=self._scale(alt, self.shapes), legend=self._legend(alt, key))

    @staticmethod
    def dash(alt: Any) -> Any:
        """Likewise. A field of its own keeps it out of the legend, where it would spoil the outline of the shapes."""
        scale = alt.Scale(domain=list(range(len(DASHES))), range=[list(one) for one in DASHES])
        return alt.StrokeDash("dash:N", scale=scale, legend=None)

    def rows(self, alt: Any, names: Sequence[str]) -> Any:
        """A row for each of these systems, in this order."""
        return alt.Y("system:N", title=None, sort=None, scale=alt.Scale(domain=list(names)), axis=alt.Axis(grid=False))

    def _scale(self, alt: Any, values: Sequence[Any]) -> Any:
        return alt.Scale(domain=list(self.names), range=list(values))

    def _legend(self, alt: Any, key: Sequence[str]) -> Any:
        across = columns(key, 320 - self.margin)
        return alt.Legend(title=None, orient="bottom", columns=across, values=list(key)) if key else None


def columns(names: Sequence[str], width: int = 320) -> int:
    """How many names of a legend stand in a row of a narrow phone.

    >>> columns(["bm25", "dense"]), columns(["a-rather-long-name-of-a-system"] * 3)
    (2, 2)
    """
    longest = max(map(len, names), default=1)
    return max(1, min(len(names), int(width // (min(longest, 20) * 6.5 + 28))))
