"""Assets of HTML pages: templates, styles, scripts and embedded data."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.hashes import hash_text
from ragauge.files.workspace import atomic_write, cache_folder
from ragauge.output.chart_style import PAGE_STYLESHEET
from ragauge.output.html_tables import mark_code, render_html_table
from ragauge.output.report import Chart

PAGE_TEMPLATES = files("ragauge.output") / "templates"


def to_script_json(data: Any) -> str:
    """Return JSON for a script element, without characters that HTML would interpret."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def compress_json(value: Any) -> str:
    """Return JSON compressed with gzip and encoded in Base64."""
    raw = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = gzip.compress(raw.encode("utf-8", "replace"), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode("ascii")


def render_template(
    parts: Mapping[str, Any],
    charts: Mapping[str, Chart],
    data: Mapping[str, Any] | None = None,
    packed: Mapping[str, str] | None = None,
    *,
    vega: str = "",
    scripts: Sequence[str] = (),
) -> str:
    """Render the page template with its parts, charts, data and scripts.

    `vega` is the script that draws charts, and `scripts` are files that only some pages need. The template escapes its
    parts.
    The content security policy allows scripts only by hash, so that injected scripts do not run.
    """
    from markupsafe import Markup

    code = [*([vega] if vega else []), *map(_read_template, ("page.js", *scripts))]
    style = _read_template("page.css") + PAGE_STYLESHEET
    specs = {f"{name}-{i}": panel.spec for name, chart in charts.items() for i, panel in enumerate(chart.panels)}
    blocks = {**(data or {}), "charts": specs}
    text: str = (
        _jinja_environment()
        .get_template("page.html")
        .render(
            **parts,
            version=version("ragauge"),
            style=Markup(style),  # noqa: S704 - written here, not data
            scripts=[Markup(script) for script in code],  # noqa: S704 - written here, not data
            script_hashes=Markup(" ".join(map(_csp_hash, code))),  # noqa: S704 - letters and digits
            data={name: Markup(to_script_json(block)) for name, block in blocks.items()},  # noqa: S704 - escaped
            packed=packed or {},
        )
    )
    return text


def _csp_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _read_template(name: str) -> str:
    return (PAGE_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def vega_script() -> str:
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
def _jinja_environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("a page", "report") from None
    environment = Environment(
        loader=PackageLoader("ragauge.output"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    from markupsafe import Markup

    environment.filters["code"] = lambda text: Markup(mark_code(str(text)))  # noqa: S704 - escaped
    environment.globals["render_table"] = lambda table, label: Markup(render_html_table(table, label))  # noqa: S704 - escaped
    return environment


@cache
def load_vega_script() -> str:
    """Load the Vega script from the cache, or bundle and cache it.

    A cached script is used if it is complete and of the installed version.
    """
    try:
        path = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    except PackageNotFoundError:
        return vega_script()
    cached = _read_cached_script(path)
    if cached is not None:
        return cached
    script = vega_script()
    with suppress(OSError, BadInput), atomic_write(path) as file:  # the cache is optional
        file.write(f"{_script_hash(script)}\n{script}".encode())
    return script


def _read_cached_script(path: Path) -> str | None:
    try:
        stored_hash, _, script = path.read_bytes().decode().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return script if stored_hash == _script_hash(script) else None


def _script_hash(script: str) -> str:
    return hash_text(script)
