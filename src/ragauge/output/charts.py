"""Building blocks of charts: panels, labels, and the numbers and axis ranges in them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ragauge.core.errors import MissingExtra
from ragauge.output.chart_style import VEGA_CONFIG

ChartRows = list[dict[str, Any]]
JS_OBJECT_PROPERTIES = {
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
}
JS_OBJECT_PROPERTIES |= {
    "valueOf",
    "__proto__",
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
}
"""Properties that every JavaScript object has."""
INVALID_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class ChartPanel:
    """One plot without a frame, as wide as its container."""

    title: str
    spec: Mapping[str, Any]
    """Vega-Lite specification; its width is `container`."""
    wide: bool = True
    """Whether it needs a row of its own; otherwise about 280 pixels are enough."""


@dataclass(frozen=True)
class ChartDraft:
    """Panels of one chart with their texts."""

    panels: Sequence[ChartPanel]
    alt: str
    """Text alternative that describes the panels in words and numbers."""
    caption: str
    """How to read the panels; it mentions only what they show."""
    width: int = 760
    """Total width in pixels as a file."""


def import_altair() -> Any:
    """Import altair, which builds Vega-Lite specifications."""
    try:
        import altair as library
    except ImportError:
        raise MissingExtra("drawing charts", "report") from None
    return library


def make_panel(title: str, layers: Sequence[Any], height: int, *, wide: bool = True) -> ChartPanel:
    """Build a panel of layered charts with the common style.

    Each layer has a name, which Vega uses as a class, so that a page can set its colours.
    """
    alt = import_altair()
    named_layers = [layer.properties(name=f"{_layer_style(layer)}_{i}") for i, layer in enumerate(layers)]
    # The layers were validated when they were made; validating the whole takes three times as long as writing it.
    spec = alt.layer(*named_layers).properties(width="container", height=height).to_dict(validate=False)
    return ChartPanel(title, {**_sanitise_spec(spec), "config": VEGA_CONFIG}, wide)


def _sanitise_spec(value: Any) -> Any:
    """Replace texts on which Vega fails.

    Names that every JavaScript object has get a zero-width space. Characters that are invalid in XML, on which
    vl-convert aborts the process, are replaced.
    """
    if isinstance(value, dict):
        return {key: _sanitise_spec(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sanitise_spec(item) for item in value]
    if isinstance(value, str):
        return f"{value}\u200b" if value in JS_OBJECT_PROPERTIES else replace_invalid_xml(value)
    return value


def replace_invalid_xml(text: str) -> str:
    r"""Replace characters that are invalid in XML.

    >>> replace_invalid_xml("a\x01b")
    'a�b'
    """
    return INVALID_XML.sub("\ufffd", text)


def _layer_style(layer: Any) -> str:
    style = layer.mark.style if hasattr(layer.mark, "style") else None
    return style if isinstance(style, str) else "figures"


def interval_tooltips(alt: Any, title: str = "mean", *, sign: str = "") -> list[Any]:
    """Build the tooltips of a point with an interval: its value and both ends."""
    titles = {"value": title, "low": "from", "high": "to"}
    return [alt.Tooltip(f"{name}:Q", title=word, format=f"{sign}.4f") for name, word in titles.items()]


def round_digits(value: float, digits: int = 5) -> float | None:
    """Round a number to significant digits.

    Return None if it is not finite, since JSON lacks NaN.

    >>> round_digits(0.123456789), round_digits(1234567.0), round_digits(math.nan), round_digits(0.0)
    (0.12346, 1234600.0, None, 0.0)
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def format_bar_value(value: float) -> str:
    """Format a number next to a bar.

    >>> [format_bar_value(v) for v in (0.61234, 3.14159, 43.21, 1234.5, math.nan)]
    ['0.612', '3.14', '43.2', '1,234', 'none']
    """
    if not math.isfinite(value):
        return "none"
    if abs(value) < 1:
        return f"{value:.3f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def join_with_and(parts: Sequence[str]) -> str:
    """Join words with commas and "and".

    >>> join_with_and(["a"]), join_with_and(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def join_sentence(*parts: str) -> str:
    """Join the non-empty parts of a caption to one sentence.

    >>> join_sentence("bars are means", "", "stars are tests")
    'Bars are means; stars are tests.'
    """
    sentence = "; ".join(part for part in parts if part)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def padded_range(values: Sequence[float], pad: float = 0.08) -> tuple[float, float]:
    """Return minimum and maximum of the finite values, with padding at both ends.

    >>> padded_range([2.0, 3.0, math.nan], pad=0.5), padded_range([2.0])
    ((1.5, 3.5), (1.8, 2.2))
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite), max(finite)
    padding = pad * (high - low) or 0.1 * abs(high) or 1.0
    return round(low - padding, 12), round(high + padding, 12)


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: 1, 2, 5, 10, ….

    Wide ranges have 1, 10, 100.

    >>> log_ticks(0.8, 30), log_ticks(0.5, 2000)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [1.0, 10.0, 100.0, 1000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 300 else (1,)
    return [tick for decade in decades for step in steps if low <= (tick := float(f"{step}e{decade}")) <= high]


def round_outwards(low: float, high: float) -> tuple[float, float]:
    """Round a range outwards to the next of 1, 2, 5, 10, ….

    >>> round_outwards(0.367, 95), round_outwards(2.0, 300)
    ((0.2, 100.0), (1.0, 500.0))
    """
    ticks_below = [tick for tick in log_ticks(low / 11, low) if tick < low]
    ticks_above = [tick for tick in log_ticks(high, high * 11) if tick > high]
    return max(ticks_below), min(ticks_above)


def log_range(low: float, high: float) -> tuple[float, float]:
    """Return the range of a logarithmic axis, widened if it has fewer than two ticks.

    >>> log_range(0.8, 30), log_range(3, 4)
    ((0.8, 30), (2.0, 5.0))
    """
    return (low, high) if len(log_ticks(low, high)) > 1 else round_outwards(low, high)


def spread_labels(values: Sequence[float], gap: float) -> list[float]:
    """Move label positions apart to at least `gap`.

    They stay in order and close to their values.

    >>> spread_labels([1.0, 5.0, 1.0], 0.5), spread_labels([1.0, 5.0], 0.5)
    ([0.75, 5.0, 1.25], [1.0, 5.0])
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    groups: list[tuple[float, int]] = []
    for i, index in enumerate(order):
        mean, size = values[index] - i * gap, 1
        while groups and groups[-1][0] > mean:
            last_mean, last_size = groups.pop()
            mean, size = (mean * size + last_mean * last_size) / (size + last_size), size + last_size
        groups.append((mean, size))
    flat = [mean for mean, size in groups for _ in range(size)]
    positions = [0.0] * len(values)
    for i, index in enumerate(order):
        positions[index] = flat[i] + i * gap
    return positions


LETTER_WIDTH_PX = 6.0
"""Approximate width of a letter in pixels."""
MAX_LABEL_WIDTH_PX = 150
"""Maximum width of a label in pixels; longer names are cut."""
LABEL_HEIGHT_PX = 13.0
LABEL_DISTANCE_PX = 9
"""Distance from the centre of a mark to its label in pixels."""


class PlotBox(NamedTuple):
    """A rectangle in a plot, in pixels; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: PlotBox) -> bool:
        """Return whether two boxes overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


class LabelledMark(NamedTuple):
    """A point with its name and its vertical interval."""

    name: str
    x: float
    y: float
    top: float
    bottom: float

    @property
    def boxes(self) -> list[tuple[PlotBox, float]]:
        """Boxes that other labels should avoid, and the cost of an overlap.

        The box of the point is wider than the point, since a label next to it would seem to be its own.
        """
        point = PlotBox(self.x - 13, self.y - 7, self.x + 13, self.y + 7)
        return [(point, 6.0), (PlotBox(self.x - 2, self.top, self.x + 2, self.bottom), 3.0)]


class LabelPosition(NamedTuple):
    """Position of a label relative to its mark."""

    align: str
    dx: float
    dy: float

    def box(self, mark: LabelledMark) -> PlotBox:
        """Return the box that the label covers."""
        label_width = min(float(MAX_LABEL_WIDTH_PX), LETTER_WIDTH_PX * len(mark.name))
        left = mark.x + self.dx - {"left": 0.0, "center": label_width / 2, "right": label_width}[self.align]
        return PlotBox(
            left, mark.y + self.dy - LABEL_HEIGHT_PX / 2, left + label_width, mark.y + self.dy + LABEL_HEIGHT_PX / 2
        )


def place_labels(
    marks: Sequence[LabelledMark], lines: Sequence[PlotBox], width: float, height: float
) -> list[LabelPosition]:
    """Choose a position for each label with the fewest overlaps, then the nearest.

    Positions are those of the narrowest plot; in a wider one marks are further apart.
    """
    chosen: list[LabelPosition | None] = [None] * len(marks)
    for _ in range(3):  # repeat, because later labels may overlap earlier ones
        for i, mark in enumerate(marks):
            occupied = [(line, 2.0) for line in lines]
            for other_mark, position in (pair for j, pair in enumerate(zip(marks, chosen, strict=True)) if j != i):
                occupied += [*other_mark.boxes, *([(position.box(other_mark), 10.0)] if position is not None else [])]
            costs = {
                position: distance_cost + _overlap_cost(position.box(mark), occupied, width, height)
                for position, distance_cost in _candidate_positions(mark).items()
            }
            chosen[i] = min(costs, key=costs.__getitem__)
    return [position for position in chosen if position is not None]


def _candidate_positions(mark: LabelledMark) -> dict[LabelPosition, float]:
    """Return the candidate positions of a label and the cost of their distance.

    They are left and right of the mark at several heights, and at the ends of its interval.
    """
    positions = {
        LabelPosition(align, dx, dy): cost
        for dy, cost in ((-9, 0.0), (9, 0.1), (0, 0.2), (-17, 0.6), (17, 0.7))
        for align, dx in (("left", LABEL_DISTANCE_PX), ("right", -LABEL_DISTANCE_PX))
    }
    for dy, cost in ((mark.top - mark.y - LABEL_DISTANCE_PX, 0.9), (mark.bottom - mark.y + LABEL_DISTANCE_PX, 1.0)):
        positions |= {
            LabelPosition("center", 0, dy): cost,
            LabelPosition("left", -5, dy): cost + 0.2,
            LabelPosition("right", 5, dy): cost + 0.3,
        }
    return positions


def _overlap_cost(box: PlotBox, occupied: Sequence[tuple[PlotBox, float]], width: float, height: float) -> float:
    # The axis labels are on the left; on the right and above, the plot can grow.
    outside_cost = 20.0 * (box.left < 0) + 8.0 * (box.right > width or box.top < 0 or box.bottom > height)
    return outside_cost + sum(cost for occupied_box, cost in occupied if box.meets(occupied_box))


def label_layer(alt: Any, rows: ChartRows, limit: int = MAX_LABEL_WIDTH_PX) -> list[Any]:
    """Build text layers for labels: a halo in the background colour, then the text.

    Each row has its position in the fields of a `LabelPosition`.
    """
    chart = alt.Chart(alt.Data(values=rows))
    label_position = {field: alt.ExprRef(f"datum.{field}") for field in LabelPosition._fields}
    return [chart.mark_text(style=style, limit=limit, **label_position) for style in ("halo", "words")]
