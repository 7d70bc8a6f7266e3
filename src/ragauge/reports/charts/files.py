"""Charts as SVG and PNG files, rendered without a browser."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from ragauge.errors import MissingExtra
from ragauge.reports.charts.looks import CONFIG, ON_PAPER, columns
from ragauge.reports.charts.sketches import Panel, clean

GAP = 24
NARROW = 230
"""Minimum width in pixels of a panel that shares its row."""
APART = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
"""Each panel has its own legend or none. With shared scales, panels with and without a legend would conflict."""


def sheet(title: str, alt: str, panels: Sequence[Panel], width: int = 760) -> dict[str, Any]:
    """Combine all panels of a chart into one specification of fixed width.

    It has a title and a white background.
    """
    if len(panels) == 1:
        alone = {**panels[0].spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
        alone["layer"] = [_spread(layer, width) for layer in alone["layer"]]
        return {**alone, "description": clean(alt), "config": _paper(), "title": _headed(title, panels[0].title)}
    room = _columns(len(panels), max(1, min(3, width // NARROW)))
    rows: list[list[Panel]] = []
    for one in panels:
        if one.wide or not rows or rows[-1][0].wide or len(rows[-1]) == room:
            rows.append([one])
        else:
            rows[-1].append(one)
    most = max(map(len, rows))
    drawn = []
    for row in rows:
        views = [_view(one, _inner(one, width, 1 if one.wide else most)) for one in row]
        drawn.append({"hconcat": views, "spacing": GAP, "resolve": APART} if len(views) > 1 else views[0])
    schema = panels[0].spec["$schema"]
    whole = {"vconcat": drawn, "spacing": GAP, "title": _headed(title), "resolve": APART}
    return {"$schema": schema, "description": clean(alt), "config": _paper(), **whole}


def _spread(layer: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Give the legend of a layer the full width; on a page it has to fit a phone."""
    encoding = dict(layer.get("encoding", {}))
    for channel in ("color", "shape"):
        legend = (encoding.get(channel) or {}).get("legend")
        if legend and legend.get("values"):
            across = columns(legend["values"], width - 80)
            encoding[channel] = {**encoding[channel], "legend": {**legend, "columns": across}}
    return {**layer, **({"encoding": encoding} if encoding else {})}


def _columns(many: int, most: int) -> int:
    """Return the number of panels per row that fills rows evenly.

    Four panels are 2 + 2, not 3 + 1.
    """
    return math.ceil(many / math.ceil(many / most))


def _headed(title: str, below: str = "") -> dict[str, Any]:
    under = {"subtitle": clean(below), "subtitlePadding": 5} if below else {}
    return {"text": clean(title), "fontSize": 14, "offset": 14, **under}


def _inner(one: Panel, width: int, columns: int) -> int:
    """Return the plot width in pixels without names and labels at its sides."""
    return int((width - GAP * (columns - 1)) / columns - _beside(one.spec))


def _beside(spec: Mapping[str, Any]) -> float:
    names = [len(name) for layer in spec["layer"] for name in _domain(layer.get("encoding", {}).get("y", {}))]
    left = min(110.0, 6.0 * max(names)) if names else 36.0
    right = max((_outside(layer) for layer in spec["layer"]), default=0.0)
    return left + right + 8


def _domain(encoding: Mapping[str, Any]) -> list[str]:
    found = (encoding.get("scale") or {}).get("domain", [])
    return [one for one in found if isinstance(one, str)]


def _outside(layer: Mapping[str, Any]) -> float:
    """Return the width in pixels of names at the ends of lines.

    They are to the right of the plot.
    """
    encoding = layer.get("encoding", {})
    if layer["mark"].get("type") != "text" or encoding.get("text", {}).get("field") != "system":
        return 0.0
    return min(110.0, 6.0 * max(len(row["system"]) for row in layer["data"]["values"])) + 9


def _view(one: Panel, width: int) -> dict[str, Any]:
    """Build the view of a panel in a sheet.

    Layer names are left out, since they would be duplicates.
    """
    spec = {key: value for key, value in one.spec.items() if key not in ("$schema", "config", "width")}
    spec["layer"] = [{key: value for key, value in layer.items() if key != "name"} for layer in spec["layer"]]
    return {**spec, "width": width, **({"title": {"text": clean(one.title)}} if one.title else {})}


def _paper() -> dict[str, Any]:
    """Return the Vega-Lite settings for files: dark text on white."""
    text = ON_PAPER["text"]
    config = {**CONFIG, "background": ON_PAPER["background"], "font": ON_PAPER["font"], "padding": 12}
    for part in ("axis", "legend"):
        config[part] = {**CONFIG[part], "labelColor": text}
    config["axis"] = {**config["axis"], "titleColor": text}
    config["title"] = {**CONFIG["title"], "color": text, "subtitleColor": text}
    config["style"] = {
        "words": {**CONFIG["style"]["words"], "color": text},
        "guide": {"color": text},
        "halo": {**CONFIG["style"]["halo"], "color": ON_PAPER["background"], "stroke": ON_PAPER["background"]},
    }
    return config


def _vega() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("writing charts as files", "report") from None
    return vl_convert


def as_svg(spec: Mapping[str, Any]) -> str:
    """Render a specification of fixed width as SVG.

    Its description is included for screen readers.
    """
    svg = _vega().vegalite_to_svg(dict(spec), allowed_base_urls=[])
    described = escape(str(spec.get("description", "")))
    return re.sub(r"<svg ([^>]*)>", lambda m: f'<svg {m[1]} role="img"><desc>{described}</desc>', svg, count=1)


def as_png(spec: Mapping[str, Any], scale: float = 2) -> bytes:
    """Render a specification of fixed width as PNG, with `scale` pixels per unit."""
    return bytes(_vega().vegalite_to_png(dict(spec), scale=scale, allowed_base_urls=[]))
