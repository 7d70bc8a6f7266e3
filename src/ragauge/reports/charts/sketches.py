"""Building blocks of charts: panels, labels, and the numbers and axis ranges in them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.errors import MissingExtra
from ragauge.reports.charts.looks import CONFIG

Rows = list[dict[str, Any]]
NATIVE = {"constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString"}
NATIVE |= {"valueOf", "__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"}
"""Properties that every JavaScript object has."""
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Panel:
    """One plot without a frame, as wide as its container."""

    title: str
    spec: Mapping[str, Any]
    """Vega-Lite specification; its width is `container`."""
    wide: bool = True
    """Whether it needs a row of its own; otherwise about 280 pixels are enough."""


@dataclass(frozen=True)
class Sketch:
    """Panels of one chart with their texts."""

    panels: Sequence[Panel]
    alt: str
    """Text alternative that describes the panels in words and numbers."""
    caption: str
    """How to read the panels; it mentions only what they show."""
    width: int = 760
    """Total width in pixels as a file."""


def altair() -> Any:
    """Import altair, which builds Vega-Lite specifications."""
    try:
        import altair as library
    except ImportError:
        raise MissingExtra("drawing charts", "report") from None
    return library


def panel(title: str, layers: Sequence[Any], height: int, *, wide: bool = True) -> Panel:
    """Build a panel of layered charts with the common style.

    Each layer has a name, which Vega uses as a class, so that a page can set its colours.
    """
    alt = altair()
    named = [layer.properties(name=f"{_kind(layer)}_{i}") for i, layer in enumerate(layers)]
    # The layers were validated when they were made; validating the whole takes three times as long as writing it.
    spec = alt.layer(*named).properties(width="container", height=height).to_dict(validate=False)
    return Panel(title, {**_harmless(spec), "config": CONFIG}, wide)


def _harmless(value: Any) -> Any:
    """Replace texts on which Vega fails.

    Names that every JavaScript object has get a zero-width space. Characters that are invalid in XML, on which
    vl-convert aborts the process, are replaced.
    """
    if isinstance(value, dict):
        return {key: _harmless(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_harmless(one) for one in value]
    if isinstance(value, str):
        return f"{value}\u200b" if value in NATIVE else clean(value)
    return value


def clean(text: str) -> str:
    r"""Replace characters that are invalid in XML.

    >>> clean("a\x01b")
    'a�b'
    """
    return NOT_XML.sub("\ufffd", text)


def _kind(layer: Any) -> str:
    style = layer.mark.style if hasattr(layer.mark, "style") else None
    return style if isinstance(style, str) else "figures"


def interval_tips(alt: Any, title: str = "mean", *, sign: str = "") -> list[Any]:
    """Build the tooltips of a point with an interval: its value and both ends."""
    told = {"value": title, "low": "from", "high": "to"}
    return [alt.Tooltip(f"{name}:Q", title=word, format=f"{sign}.4f") for name, word in told.items()]


def figure(value: float, digits: int = 5) -> float | None:
    """Round a number to significant digits.

    Return None if it is not finite, since JSON lacks NaN.

    >>> figure(0.123456789), figure(1234567.0), figure(math.nan), figure(0.0)
    (0.12346, 1234600.0, None, 0.0)
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def shown(value: float) -> str:
    """Format a number next to a bar.

    >>> [shown(v) for v in (0.61234, 3.14159, 43.21, 1234.5, math.nan)]
    ['0.612', '3.14', '43.2', '1,234', 'none']
    """
    if not math.isfinite(value):
        return "none"
    if abs(value) < 1:
        return f"{value:.3f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def listed(parts: Sequence[str]) -> str:
    """Join words with commas and "and".

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def sentence(*parts: str) -> str:
    """Join the non-empty parts of a caption to one sentence.

    >>> sentence("bars are means", "", "stars are tests")
    'Bars are means; stars are tests.'
    """
    whole = "; ".join(part for part in parts if part)
    return f"{whole[:1].upper()}{whole[1:]}."


def span(values: Sequence[float], pad: float = 0.08) -> tuple[float, float]:
    """Return minimum and maximum of the finite values, with padding at both ends.

    >>> span([2.0, 3.0, math.nan], pad=0.5), span([2.0])
    ((1.5, 3.5), (1.8, 2.2))
    """
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known), max(known)
    more = pad * (high - low) or 0.1 * abs(high) or 1.0
    return round(low - more, 12), round(high + more, 12)


def powers(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: 1, 2, 5, 10, ….

    Wide ranges have 1, 10, 100.

    >>> powers(0.8, 30), powers(0.5, 2000)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [1.0, 10.0, 100.0, 1000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 300 else (1,)
    return [tick for place in decades for step in steps if low <= (tick := float(f"{step}e{place}")) <= high]


def steps(low: float, high: float) -> tuple[float, float]:
    """Round a range outwards to the next of 1, 2, 5, 10, ….

    >>> steps(0.367, 95), steps(2.0, 300)
    ((0.2, 100.0), (1.0, 500.0))
    """
    below = [tick for tick in powers(low / 11, low) if tick < low]
    above = [tick for tick in powers(high, high * 11) if tick > high]
    return max(below), min(above)


def ticked(low: float, high: float) -> tuple[float, float]:
    """Return the range of a logarithmic axis, widened if it has fewer than two ticks.

    >>> ticked(0.8, 30), ticked(3, 4)
    ((0.8, 30), (2.0, 5.0))
    """
    return (low, high) if len(powers(low, high)) > 1 else steps(low, high)


def apart(values: Sequence[float], gap: float) -> list[float]:
    """Move label positions apart to at least `gap`.

    They stay in order and close to their values.

    >>> apart([1.0, 5.0, 1.0], 0.5), apart([1.0, 5.0], 0.5)
    ([0.75, 5.0, 1.25], [1.0, 5.0])
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    groups: list[tuple[float, int]] = []
    for i, place in enumerate(order):
        mean, size = values[place] - i * gap, 1
        while groups and groups[-1][0] > mean:
            other, many = groups.pop()
            mean, size = (mean * size + other * many) / (size + many), size + many
        groups.append((mean, size))
    flat = [mean for mean, size in groups for _ in range(size)]
    places = [0.0] * len(values)
    for i, place in enumerate(order):
        places[place] = flat[i] + i * gap
    return places
