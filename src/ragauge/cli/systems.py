"""`ragauge systems`: list the components that can be used by name, and their options."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.options import PrintCsv, PrintJson
from ragauge.cli.output import print_report, write_table
from ragauge.core import plugins
from ragauge.core.errors import UnknownName
from ragauge.core.plugin_parameters import NO_DEFAULT, read_parameters
from ragauge.output.report import Code, Paragraph, Report, Section
from ragauge.output.tables import Cell, Column, Row, Table

SUPPLIED_PARAMETERS = ("path", "dimension")
"""Parameters of a document store that the commands supply."""


def systems(
    name: Annotated[str | None, typer.Argument(help="Plug-in to explain.")] = None,
    as_json: PrintJson = False,
    as_csv: PrintCsv = False,
) -> None:
    """List the plug-ins: retrievers, embedders, stores and more; or explain one.

    [dim]ragauge systems hybrid[/dim]
    """
    console.check_exclusive({"--json": as_json, "--csv": as_csv})
    selected = [
        (family, plugin)
        for family in plugins.BUILTIN_PLUGINS
        for plugin in plugins.plugin_names(family)
        if name in (None, plugin)
    ]
    if not selected:
        known_plugins = [plugin for family in plugins.BUILTIN_PLUGINS for plugin in plugins.plugin_names(family)]
        raise UnknownName("system", str(name), known_plugins, hint="list all with `ragauge systems`")
    if name is not None and not (as_json or as_csv):
        for family, plugin in selected:
            _print_plugin(family, plugin)
        return
    columns = [Column("kind", "name", key="family"), Column("name", "name"), Column("options")]
    rows: list[Row] = [
        [Cell(family, text=plugins.family_noun(family)), plugin, _format_system_options(family, plugin)]
        for family, plugin in selected
    ]
    write_table(Table("systems", columns, rows), as_json=as_json, as_csv=as_csv)
    if not (as_json or as_csv):
        console.print_notes(
            [
                "written as dense(embedder=minilm, store=faiss(kind=hnsw)); several values are joined by +",
                "chats are written as openai:MODEL@URL, local:FILE.gguf, replay:FILE",
            ]
        )


def _print_plugin(family: str, name: str) -> None:
    options = Paragraph(f"options: {_format_system_options(family, name) or 'none'}")
    about = inspect.getdoc(plugins.load_plugin(family, name)) or ""
    title = f"{name} ({plugins.family_noun(family)})"
    sections = [Section("about", "", [_wrap_paragraph(text)]) for text in about.split("\n\n")]
    print_report(Report(family, title, "", [*sections, Section("options", "", [options])]))


def _wrap_paragraph(text: str) -> Paragraph | Code:
    """Return prose as a paragraph, which is wrapped to the terminal, and lists and examples as they are."""
    lines = text.splitlines()
    is_prose = not any(line.startswith((" ", "- ", ">>>", "...")) for line in lines)
    return Paragraph(" ".join(lines)) if is_prose else Code(text)


def _format_system_options(family: str, name: str) -> str:
    parameters = read_parameters(plugins.load_plugin(family, name))
    supplied = SUPPLIED_PARAMETERS if family == "document_stores" else ()
    options = [
        option + ("" if default in (NO_DEFAULT, None, "") else f"={_format_default(default)}")
        for option, default in parameters.options_with_defaults
        if option not in supplied
    ]
    return ", ".join([*options, *(["…"] if parameters.accepts_any else [])])


def _format_default(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
