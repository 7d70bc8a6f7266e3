"""Charts as files: panels combined into one picture of fixed width, as SVG and PNG."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import MissingExtra
from ragauge.files.workspace import atomic_write
from ragauge.output.chart_style import PRINT_STYLE, VEGA_CONFIG, legend_columns
from ragauge.output.charts import ChartPanel, replace_invalid_xml
from ragauge.output.report import Chart

PANEL_GAP_PX = 24
MIN_PANEL_WIDTH_PX = 230
"""Minimum width in pixels of a panel that shares its row."""
INDEPENDENT_SCALES = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
"""Each panel has its own legend or none. With shared scales, panels with and without a legend would conflict."""


def combine_panels(title: str, alt: str, panels: Sequence[ChartPanel], width: int = 760) -> dict[str, Any]:
    """Combine all panels of a chart into one specification of fixed width.

    It has a title and a white background.
    """
    if len(panels) == 1:
        single = {**panels[0].spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
        single["layer"] = [_widen_legend(layer, width) for layer in single["layer"]]
        return {
            **single,
            "description": replace_invalid_xml(alt),
            "config": _print_config(),
            "title": _title_spec(title, panels[0].title),
        }
    max_per_row = _panels_per_row(len(panels), max(1, min(3, width // MIN_PANEL_WIDTH_PX)))
    rows: list[list[ChartPanel]] = []
    for panel in panels:
        if panel.wide or not rows or rows[-1][0].wide or len(rows[-1]) == max_per_row:
            rows.append([panel])
        else:
            rows[-1].append(panel)
    max_columns = max(map(len, rows))
    row_specs = []
    for row in rows:
        views = [_panel_view(panel, _plot_width(panel, width, 1 if panel.wide else max_columns)) for panel in row]
        row_specs.append(
            {"hconcat": views, "spacing": PANEL_GAP_PX, "resolve": INDEPENDENT_SCALES} if len(views) > 1 else views[0]
        )
    schema = panels[0].spec["$schema"]
    combined = {
        "vconcat": row_specs,
        "spacing": PANEL_GAP_PX,
        "title": _title_spec(title),
        "resolve": INDEPENDENT_SCALES,
    }
    return {"$schema": schema, "description": replace_invalid_xml(alt), "config": _print_config(), **combined}


def _widen_legend(layer: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Give the legend of a layer the full width; on a page it has to fit a phone."""
    encoding = dict(layer.get("encoding", {}))
    for channel in ("color", "shape"):
        legend = (encoding.get(channel) or {}).get("legend")
        if legend and legend.get("values"):
            across = legend_columns(legend["values"], width - 80)
            encoding[channel] = {**encoding[channel], "legend": {**legend, "columns": across}}
    return {**layer, **({"encoding": encoding} if encoding else {})}


def _panels_per_row(n_panels: int, max_columns: int) -> int:
    """Return the number of panels per row that fills rows evenly.

    Four panels are 2 + 2, not 3 + 1.
    """
    return math.ceil(n_panels / math.ceil(n_panels / max_columns))


def _title_spec(title: str, below: str = "") -> dict[str, Any]:
    subtitle = {"subtitle": replace_invalid_xml(below), "subtitlePadding": 5} if below else {}
    return {"text": replace_invalid_xml(title), "fontSize": 14, "offset": 14, **subtitle}


def _plot_width(panel: ChartPanel, width: int, columns: int) -> int:
    """Return the plot width in pixels without names and labels at its sides."""
    return int((width - PANEL_GAP_PX * (columns - 1)) / columns - _margin_width(panel.spec))


def _margin_width(spec: Mapping[str, Any]) -> float:
    names = [len(name) for layer in spec["layer"] for name in _domain_names(layer.get("encoding", {}).get("y", {}))]
    left = min(110.0, 6.0 * max(names)) if names else 36.0
    right = max((_end_label_width(layer) for layer in spec["layer"]), default=0.0)
    return left + right + 8


def _domain_names(encoding: Mapping[str, Any]) -> list[str]:
    domain = (encoding.get("scale") or {}).get("domain", [])
    return [name for name in domain if isinstance(name, str)]


def _end_label_width(layer: Mapping[str, Any]) -> float:
    """Return the width in pixels of names at the ends of lines.

    They are to the right of the plot.
    """
    encoding = layer.get("encoding", {})
    if layer["mark"].get("type") != "text" or encoding.get("text", {}).get("field") != "system":
        return 0.0
    return min(110.0, 6.0 * max(len(row["system"]) for row in layer["data"]["values"])) + 9


def _panel_view(panel: ChartPanel, width: int) -> dict[str, Any]:
    """Build the view of a panel in a sheet.

    Layer names are left out, since they would be duplicates.
    """
    spec = {key: value for key, value in panel.spec.items() if key not in ("$schema", "config", "width")}
    spec["layer"] = [{key: value for key, value in layer.items() if key != "name"} for layer in spec["layer"]]
    return {**spec, "width": width, **({"title": {"text": replace_invalid_xml(panel.title)}} if panel.title else {})}


def _print_config() -> dict[str, Any]:
    """Return the Vega-Lite settings for files: dark text on white."""
    text = PRINT_STYLE["text"]
    config = {**VEGA_CONFIG, "background": PRINT_STYLE["background"], "font": PRINT_STYLE["font"], "padding": 12}
    for part in ("axis", "legend"):
        config[part] = {**VEGA_CONFIG[part], "labelColor": text}
    config["axis"] = {**config["axis"], "titleColor": text}
    config["title"] = {**VEGA_CONFIG["title"], "color": text, "subtitleColor": text}
    config["style"] = {
        "words": {**VEGA_CONFIG["style"]["words"], "color": text},
        "guide": {"color": text},
        "halo": {
            **VEGA_CONFIG["style"]["halo"],
            "color": PRINT_STYLE["background"],
            "stroke": PRINT_STYLE["background"],
        },
    }
    return config


def _import_vl_convert() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("writing charts as files", "report") from None
    return vl_convert


def render_svg(spec: Mapping[str, Any]) -> str:
    """Render a specification of fixed width as SVG.

    Its description is included for screen readers.
    """
    svg = _import_vl_convert().vegalite_to_svg(dict(spec), allowed_base_urls=[])
    described = escape(str(spec.get("description", "")))
    return re.sub(r"<svg ([^>]*)>", lambda m: f'<svg {m[1]} role="img"><desc>{described}</desc>', svg, count=1)


def render_png(spec: Mapping[str, Any], scale: float = 2) -> bytes:
    """Render a specification of fixed width as PNG, with `scale` pixels per unit."""
    return bytes(_import_vl_convert().vegalite_to_png(dict(spec), scale=scale, allowed_base_urls=[]))


def chart_specification(chart: Chart, width: int | None = None) -> dict[str, Any]:
    """Combine all panels of a chart into one specification of a fixed width in pixels."""
    return combine_panels(chart.title, chart.alt, chart.panels, width or chart.width)


def write_charts(charts: Mapping[str, Chart], folder: Path, progress: ProgressCallback = no_progress) -> None:
    """Write every chart as SVG and as PNG."""
    for name, chart in charts.items():
        progress(Progress("drawing charts", subject=name))
        spec = chart_specification(chart)
        for ending, data in ((".svg", render_svg(spec).encode("utf-8", "replace")), (".png", render_png(spec))):
            with atomic_write(folder / f"{name}{ending}") as file:
                file.write(data)
