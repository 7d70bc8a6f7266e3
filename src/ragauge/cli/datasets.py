"""`ragauge datasets`: list the datasets that can be loaded by name, or describe one."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import PrintCsv, PrintJson, Split
from ragauge.cli.output import print_report, write_table
from ragauge.core.errors import UnknownName
from ragauge.core.records import Dataset
from ragauge.datasets import list_datasets, load
from ragauge.output.report import Report, Section
from ragauge.output.tables import Cell, Column, Row, Table

MAX_TEXT_CHARS = 120


def datasets(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Dataset to describe: a name or a folder.")] = None,
    split: Split = None,
    query: Annotated[str | None, typer.Option(metavar="ID", help="Query to show, with its judged documents.")] = None,
    as_json: PrintJson = False,
    as_csv: PrintCsv = False,
) -> None:
    """List the datasets, or show one.

    [dim]ragauge datasets pydocs --query count-items[/dim]
    """
    console.check_exclusive({"--json": as_json, "--csv": as_csv})
    if name is None:
        refuse_options(context, ["split", "query"], "without a dataset", hint="name one: `ragauge datasets pydocs`")
        columns = [Column("name", "name"), Column("kind", "name"), Column("about")]
        write_table(Table("datasets", columns, list(list_datasets())), as_json=as_json, as_csv=as_csv)
        if not (as_json or as_csv):
            console.print_notes(
                ["BEIR folders and STIX bundles in the folder RAGAUGE_DATA are listed too; any path can be loaded"]
            )
        return
    dataset = load(name, split=split)
    if query is None:
        _print_facts(dataset, as_json=as_json, as_csv=as_csv)
        return
    if query not in dataset.queries:
        raise UnknownName("query", query, dataset.queries, of=dataset.name, hint="")
    judged = _judged_documents_table(dataset, query)
    if as_json or as_csv:
        write_table(judged, as_json=as_json, as_csv=as_csv)
        return
    print_report(
        Report(
            "query",
            dataset.queries[query],
            dataset.answers.get(query, ""),
            [Section("judged", "", [judged])],
        )
    )


def _judged_documents_table(dataset: Dataset, query: str) -> Table:
    grades = dataset.judgments.nested.get(query, {})
    rows: list[Row] = []
    for document, grade in sorted(grades.items(), key=lambda pair: -pair[1]):
        text = " ".join(dataset.texts.get(document, "(not in the corpus)").split())
        rows.append([grade, document, Cell(text, text=text[:MAX_TEXT_CHARS])])
    return Table("judged", [Column("grade", "number"), Column("document", "name"), Column("text")], rows)


def _print_facts(dataset: Dataset, *, as_json: bool, as_csv: bool) -> None:
    """Print the numbers of documents, queries and judgments, and the strata."""
    tags = dict.fromkeys(tag for tags in dataset.tags.values() for tag in tags)
    strata = {
        tag: dict(Counter(tags[tag] for tags in dataset.tags.values() if tag in tags).most_common()) for tag in tags
    }
    facts: dict[str, str | int] = {
        "name": dataset.name,
        "about": dataset.about,
        "documents": len(dataset.documents),
        "queries": len(dataset.queries),
        "judgments": sum(len(docs) for docs in dataset.judgments.nested.values()),
        "reference answers": len(dataset.answers),
    }
    rows: list[Row] = [
        [name, Cell(value, text=f"{value:,}" if isinstance(value, int) else "")] for name, value in facts.items()
    ]
    rows += [[f"by {tag}", ", ".join(f"{value} {n}" for value, n in counts.items())] for tag, counts in strata.items()]
    columns = [Column("", "name", key="name"), Column("", key="value")]
    write_table(Table("dataset", columns, rows), as_json=as_json, as_csv=as_csv, data={**facts, "strata": strata})
