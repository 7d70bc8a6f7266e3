"""Style of charts: one colour, shape and dash per system in all charts, readable on light and dark backgrounds."""

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
"""Okabe-Ito colours, darkened to a contrast of 3:1 with white and with near-black."""
NEUTRAL_COLOUR = "#7f858f"
"""Colour of the baseline, and of anything that is not a system."""
WIN_COLOUR, TIE_COLOUR, LOSS_COLOUR = "#0072b2", "#6e737b", "#b84700"
"""Background colours that are dark enough for white text."""
STAGE_COLOURS = {"embed": "#a87c00", "retrieve": "#0072b2", "walk": "#009e73", "rerank": "#c0569b", "other": "#7f858f"}
TEXT_COLOUR = "#757a82"
"""Default colour of text and lines, readable on white and on near-black."""
SHAPES = ("circle", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
DASHES = ((1, 0), (6, 2), (2, 2), (8, 2, 2, 2))
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
MAX_DIRECT_LABELS = 6
"""Maximum number of systems that are labelled at their lines; more are listed in a legend."""

VEGA_CONFIG: Mapping[str, Any] = {
    "aria": False,  # a chart is one image with one description, not hundreds of unnamed marks
    "background": "transparent",
    "font": FONT,
    "padding": {"left": 2, "right": 6, "top": 6, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": NEUTRAL_COLOUR,
        "gridOpacity": 0.22,
        "labelColor": TEXT_COLOUR,
        "labelFlush": False,  # flush labels at both ends would not be aligned with their ticks
        "labelFontSize": 11,
        "labelLimit": 110,
        "labelPadding": 5,
        "titleColor": TEXT_COLOUR,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 6,
    },
    "legend": {
        "labelColor": TEXT_COLOUR,
        "labelFontSize": 11,
        "labelLimit": 130,
        "orient": "bottom",
        "symbolDash": [1, 0],
        "symbolOpacity": 1,
        "title": None,
    },
    "title": {"anchor": "start", "color": TEXT_COLOUR, "fontSize": 12, "fontWeight": 600},
    "style": {
        "words": {"color": TEXT_COLOUR, "fontSize": 11},
        "guide": {"color": TEXT_COLOUR},
        "halo": {
            "color": "transparent",
            "fontSize": 11,
            "stroke": "transparent",
            "strokeJoin": "round",
            "strokeWidth": 4,
        },
    },
}
"""Vega-Lite settings. The greys are fallbacks if a page does not style the classes of Vega."""

PRINT_STYLE = {"text": "#3b3f46", "background": "#ffffff", "font": "Liberation Sans, Arial, Helvetica, sans-serif"}
"""Colours and font of chart files."""

PAGE_STYLESHEET = """
.role-axis-label text, .role-axis-title text, .role-legend-label text, .role-legend-title text,
.role-title-text text, [class*="words_"] text { fill: var(--chart-text, #757a82); }
.role-axis-grid line { stroke: var(--chart-grid, #7f858f); }
[class*="guide_"] line, .mark-line[class*="guide_"] path { stroke: var(--chart-guide, #757a82); }
.mark-symbol[class*="guide_"] path { fill: var(--chart-guide, #757a82); }
[class*="halo_"] text { fill: var(--paper, transparent); stroke: var(--paper, transparent); }
"""
"""Style sheet for a page that sets these variables for light and dark mode; `--paper` is the background of charts."""


@dataclass(frozen=True)
class SystemStyles:
    """Systems of a comparison, and the colour, shape and dash of each in all charts."""

    names: Sequence[str]
    baseline: str | None = None
    margin: int = 0
    """Width in pixels on the left that legends leave free."""

    @property
    def has_direct_labels(self) -> bool:
        """Whether systems can be labelled at their lines."""
        return len(self.names) <= MAX_DIRECT_LABELS

    @property
    def colours(self) -> list[str]:
        """Colour of each system, neutral for the baseline.

        Colours repeat after eleven systems.
        """
        return [NEUTRAL_COLOUR if i is None else PALETTE[i % len(PALETTE)] for i in self._palette_indices()]

    @property
    def shapes(self) -> list[str]:
        """Shape of each system: a square for the baseline."""
        return ["square" if i is None else SHAPES[i % len(SHAPES)] for i in self._palette_indices()]

    @property
    def dashes(self) -> dict[str, int]:
        """Index in `DASHES` of each system's line, for the field `dash`."""
        places = zip(self.names, self._palette_indices(), strict=True)
        return {name: 2 if i is None else i % len(DASHES) for name, i in places}

    def _palette_indices(self) -> list[int | None]:
        other_names = [name for name in self.names if name != self.baseline]
        return [None if name == self.baseline else other_names.index(name) for name in self.names]

    def called(self, name: str) -> str:
        """Return the label of a system, which marks the baseline."""
        return f"{name} (baseline)" if name == self.baseline != "baseline" else name

    def colour(self, alt: Any, key: Sequence[str] = ()) -> Any:
        """Build the colour encoding, with a legend of the names in `key`.

        All layers of a panel need the same legend: a layer without one takes it from the others.
        """
        return alt.Color("system:N", scale=self._system_scale(alt, self.colours), legend=self._system_legend(alt, key))

    def shape(self, alt: Any, key: Sequence[str] = ()) -> Any:
        """Build the shape encoding, with a legend of the names in `key`."""
        return alt.Shape("system:N", scale=self._system_scale(alt, self.shapes), legend=self._system_legend(alt, key))

    @staticmethod
    def dash(alt: Any) -> Any:
        """Build the dash encoding.

        It uses its own field to stay out of the legend, where it would change the outline of the shapes.
        """
        scale = alt.Scale(domain=list(range(len(DASHES))), range=[list(dash) for dash in DASHES])
        return alt.StrokeDash("dash:N", scale=scale, legend=None)

    def rows(self, alt: Any, names: Sequence[str]) -> Any:
        """Build the y encoding with one row per system, in this order."""
        return alt.Y("system:N", title=None, sort=None, scale=alt.Scale(domain=list(names)), axis=alt.Axis(grid=False))

    def _system_scale(self, alt: Any, values: Sequence[Any]) -> Any:
        return alt.Scale(domain=list(self.names), range=list(values))

    def _system_legend(self, alt: Any, key: Sequence[str]) -> Any:
        across = legend_columns(key, 320 - self.margin)
        return alt.Legend(title=None, orient="bottom", columns=across, values=list(key)) if key else None


def legend_columns(names: Sequence[str], width: int = 320) -> int:
    """Return how many names of a legend fit into one row of the given width in pixels.

    The default is the width of a narrow phone.

    >>> legend_columns(["bm25", "dense"]), legend_columns(["a-rather-long-name-of-a-system"] * 3)
    (2, 2)
    """
    longest = max(map(len, names), default=1)
    return max(1, min(len(names), int(width // (min(longest, 20) * 6.5 + 28))))
