"""`ragauge datasets`: list the datasets that can be loaded by name, or describe one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated

import typer
from rich.text import Text

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.core.errors import UnknownName
from ragauge.datasets import list_datasets, load
from ragauge.output.terminal import borderless_table


def datasets(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Look into this one: a name or a folder.")] = None,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder.")] = None,
    query: Annotated[str | None, typer.Option(metavar="ID", help="Query to show, with its judged documents.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """List the datasets, or show one.

    [dim]ragauge datasets pydocs --query count-items[/dim]
    """
    if name is None:
        refuse_options(context, ["split", "query"], "without a dataset", hint="ragauge datasets NAME")
        rows = list(list_datasets())
        if as_json:
            console.write_data(json.dumps([row._asdict() for row in rows], indent=2))
            return
        table = borderless_table(["name", "kind", "about"], numbers=False)
        for row in rows:
            table.add_row(Text(row.name), Text(row.kind), Text(row.about))
        console.print_tables(table)
        console.print_notes(
            ["BEIR folders and STIX bundles in the folder RAGAUGE_DATA are listed too; any path can be loaded"]
        )
        return
    data = load(name, split=split)
    if query is not None:
        refuse_options(context, ["as_json"], "with --query")
        if query not in data.queries:
            raise UnknownName(f"query of {data.name}", query, data.queries)
        console.print_tables(Text(data.queries[query], style="bold"), Text(data.answers.get(query, "")), "")
        table = borderless_table(["grade", "document", "text"], numbers=False)
        judged = data.judgments.nested.get(query, {})
        for doc, grade in sorted(judged.items(), key=lambda pair: -pair[1]):
            first = " ".join(data.texts.get(doc, "(not in the corpus)").split())
            table.add_row(f"{grade:g}", Text(doc), Text(first[:120]))
        console.print_tables(table)
        return
    strata = {
        tag: dict(Counter(tags[tag] for tags in data.tags.values() if tag in tags).most_common())
        for tag in dict.fromkeys(tag for tags in data.tags.values() for tag in tags)
    }
    facts: dict[str, object] = {
        "name": data.name,
        "about": data.about,
        "documents": len(data.documents),
        "queries": len(data.queries),
        "judgments": sum(len(docs) for docs in data.judgments.nested.values()),
        "reference answers": len(data.answers),
        "strata": strata,
    }
    if as_json:
        console.write_data(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    table = borderless_table(["", ""], numbers=False)
    for key, value in facts.items():
        if key != "strata":
            table.add_row(Text(key, style="dim"), Text(f"{value:,}" if isinstance(value, int) else str(value)))
    for tag, counts in strata.items():
        table.add_row(Text(f"by {tag}", style="dim"), Text(", ".join(f"{value} {n}" for value, n in counts.items())))
    console.print_tables(table)
