"""Render an overview as a self-contained HTML page that needs no network access."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

from ragauge.errors import MissingExtra
from ragauge.overviews import Overview
from ragauge.reports.accounts import apart
from ragauge.reports.charts import Drawing, drawn
from ragauge.reports.charts.looks import STYLE
from ragauge.reports.overviews_trials import TITLE
from ragauge.reports.page import payload, sections
from ragauge.reports.told import accounts_of
from ragauge.reports.verdicts import answers, verdict

TEMPLATES = files("ragauge.reports.page") / "templates"


class Section(NamedTuple):
    """Section of a page with charts and tables."""

    id: str
    title: str
    short: str
    charts: Mapping[str, Drawing] = MappingProxyType({})
    grids: Sequence[sections.Sheet] = ()
    text: str = ""
    layout: str = ""


def page(overview: Overview, vega: str | None = None) -> str:
    """Render the page of an overview.

    `vega` is the result of `vega_script`, if already loaded.
    """
    from ragauge.reports.page import account as beside  # Imported here because it imports this module.

    others = apart(accounts_of(overview.beside))
    charts = drawn(overview)
    middle = [*_middle(overview, charts), *(part for one in others for part in beside.sections(one, headed=True))]
    charts.update(beside.charts(others))
    systems = payload.browsable(overview)
    packed: dict[str, str] = {}
    data: dict[str, Any] = {}
    told = ""
    if systems:
        rankings = payload.rankings(overview)
        packed["values"] = payload.packed(payload.values(overview))
        if rankings is not None:
            packed["rankings"] = payload.packed(rankings)
        data["about"] = _browser(overview, systems)
        told = _told(overview, rankings)
    first = Section("systems", "Systems", "Systems")
    many = overview.asked[1].capitalize()
    ends = [
        *([Section("queries", many, many)] if systems else []),
        # Judged answers are not rankings: there is nothing to audit, and no query could fail.
        *(
            []
            if overview.judge
            else [Section("findings", "Audit", "Audit"), Section("failures", "Failures", "Failures")]
        ),
        Section("again", "Do it again", "Do it again"),
    ]
    return document(
        "report.html",
        {
            "title": overview.title,
            "kind": "report",
            "made": overview.made,
            "sections": [first, *middle, *ends],
            "about": sections.about(overview),
            "verdict": verdict(overview).replace("p < ", "p\u00a0<\u00a0").replace("p = ", "p\u00a0=\u00a0"),
            "answers": answers(overview),
            "systems": sections.systems(overview),
            "others": sections.others(overview),
            "beside": charts.get("quality_latency"),
            "chart_sections": middle,
            "browsable": told,
            "asked": overview.asked,
            "ranked": not overview.judge,
            "places": {
                one.id: "queries?show=zero" if one.id == "queries" else one.id for one in (*middle, *ends, first)
            },
            "unaudited": _unaudited(overview),
            "findings": sections.findings(overview),
            "failures": sections.failures(overview),
            "again": sections.again(overview),
            "notes": overview.notes,
            "manifests": sections.manifests(overview),
        },
        charts,
        data,
        packed,
        vega=vega,
    )


def _middle(overview: Overview, charts: Mapping[str, Drawing]) -> list[Section]:
    """Return the sections with charts, in reading order."""

    def of(*names: str) -> dict[str, Drawing]:
        return {name: charts[name] for name in names if name in charts}

    sheets = [one for one in (sections.costs(overview), sections.speeds(overview)) if one is not None]
    parts = [one for one in (sections.kinds(overview),) if one is not None]
    base = overview.baseline
    one = overview.asked[0]
    against = f"Each {one}'s {overview.first} minus that of {base}." if base else ""
    found = [
        Section("panels", "Six panels", "Panels", of("panels")),
        Section("measures", "Measure by measure", "Measures", of("measures")),
        Section("over-k", "How many documents are enough", "Over k", of("curves")),
        Section(
            "differences",
            f"{one.capitalize()} by {one}",
            "Differences",
            of("waterfall", "boxes", "wins"),
            (),
            against,
            "pairs",
        ),
        Section("trials", TITLE, "Chance", grids=sections.trials(overview)),
        Section("strata", f"By kind of {one}", f"Kinds of {one}", of("strata"), parts),
        Section("latency", "How fast", "Latency", of("latency", "stages"), sheets),
    ]
    return [one for one in found if one.charts or one.grids]


def _unaudited(overview: Overview) -> str:
    if not any(entry.run is not None for entry in overview.entries.values()):
        return "Not audited: that needs judgments and runs."
    return (
        "Not audited. `ragauge report` without --no-audit, or `ragauge audit`, looks for what makes numbers suspicious."
    )


def _browser(overview: Overview, systems: Sequence[str]) -> dict[str, Any]:
    """Return the initial settings of the query browser.

    They select the best system and the system it is compared with.
    """
    ranked = [name for name in overview.ranked() if name in systems] or list(systems)
    base = overview.baseline if overview.baseline in systems else ranked[-1]
    best = next((name for name in ranked if name != base), base)
    return {
        "systems": list(systems),
        "measures": list(overview.measures),
        "lower": [m in overview.lower_is_better for m in overview.measures],
        "system": systems.index(best),
        "base": systems.index(base),
        "asked": overview.asked[1],
        "unkept": "The rankings of this query are not in the page, since it moved less than others.",
    }


def _told(overview: Overview, rankings: Mapping[str, Any] | None) -> str:
    several = len(payload.browsable(overview)) > 1
    told = f"Those that {'moved most' if several else 'score least'} come first. "
    if overview.judge:
        return told + "The page of each folder has their claims, and what the judge said of them."
    if rankings is None:
        return told + "The rankings behind the values are not known here."
    left = sum(place is None for place in rankings["places"])
    shown = "both rankings" if several else "its ranking"
    told += f"A query opens to show {shown}, {rankings['depth']} deep, with grades, scores and texts."
    if left:
        told += f" {left:,} queries that moved least go without rankings, to keep the page small."
    if not overview.documents:
        told += " The texts of the documents are not known here."
    return told


def document(
    template: str,
    parts: Mapping[str, Any],
    drawings: Mapping[str, Drawing],
    data: Mapping[str, Any] | None = None,
    packed: Mapping[str, str] | None = None,
    *,
    vega: str | None = None,
    own: str = "",
) -> str:
    """Render a page from a template with its parts, charts, data and scripts.

    `own` names a style sheet and a script for this kind of page only. The template escapes its parts. The content
    security policy allows scripts only by hash, so that injected scripts do not run.
    """
    from markupsafe import Markup

    scripts = [vega or bundle(), _file("page.js"), *([_file(f"{own}.js")] if own else [])]
    style = _file("page.css") + STYLE + (_file(f"{own}.css") if own else "")
    specs = {f"{name}-{i}": one.spec for name, chart in drawings.items() for i, one in enumerate(chart.panels)}
    blocks = {**(data or {}), "charts": specs}
    text: str = (
        _environment()
        .get_template(template)
        .render(
            **parts,
            version=version("ragauge"),
            style=Markup(style),  # noqa: S704 - written here, not data
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - likewise
            script_hashes=Markup(" ".join(map(_hash, scripts))),  # noqa: S704 - letters and digits
            data={name: Markup(payload.as_json(one)) for name, one in blocks.items()},  # noqa: S704 - escaped for scripts
            packed=packed or {},
        )
    )
    return text


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def bundle() -> str:
    """Return the JavaScript of Vega, Vega-Lite and vega-embed.

    It is taken from vl-convert.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("a page with charts", "report") from None
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("a page", "report") from None
    environment = Environment(
        loader=PackageLoader("ragauge.reports.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _mark_code
    return environment


def _mark_code(text: str) -> Any:
    """Escape a text for HTML, and format text between backticks as code.

    >>> str(_mark_code("run `a --b` & <i>"))
    'run <code>a --b</code> &amp; &lt;i&gt;'
    """
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before
