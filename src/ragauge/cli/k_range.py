"""`ragauge k-range QRELS RUN`: the measures at every k from one run, and the smallest k that is enough."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.datasets.loading import judgments_of, load
from ragauge.errors import BadInput
from ragauge.formats import read_run
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.scoring import score
from ragauge.records import Nested
from ragauge.reports.sparklines import sparkline, thinned
from ragauge.reports.tables import cell, plain_table, shown
from ragauge.stats.enough import enough, quarter_of_bytes
from ragauge.verbs import count, judgments_for, read_measures

MEASURES = ("hit_rate", "mrr", "ndcg", "recall", "precision")


def k_range(  # noqa: PLR0913 - each is an option of the command
    qrels: Annotated[str, typer.Argument(help="Judgments, as in evaluate; also a folder that `run` wrote.")],
    run: Annotated[str, typer.Argument(help="A run, as in evaluate; it must be as deep as the largest k.")],
    ks: Annotated[str, typer.Option("-k", help="The values of k.")] = "1,3,5,10,20",
    measure: Annotated[str, typer.Option("-m", "--measure", help="What k is chosen by, without @k.")] = "hit_rate",
    tolerance: Annotated[float, typer.Option(help="How much worse than the best k is good enough.")] = 0.02,
    confidence: Annotated[float, typer.Option(help="How sure of it.")] = 0.95,
    dataset: Annotated[str | None, typer.Option(help="Where the texts are, to count tokens.")] = None,
    convention: Annotated[str, typer.Option("-C", "--convention", help="As in evaluate.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Measures over a range of k, and the smallest k that is enough.

    [dim]ragauge k-range runs/pydocs runs/pydocs/bm25 -k 1,3,5,10 --dataset pydocs[/dim]
    """
    rankings = read_run(run).nested
    deepest = max(map(len, rankings.values()), default=0)
    asked = _whole_numbers(ks)
    wanted = [k for k in asked if k <= deepest]
    if not wanted:
        raise BadInput(f"the run is {deepest} deep, and says nothing about k={asked[0]}", file=run)
    if not 0 < confidence < 1:
        raise BadInput(f"the confidence is {confidence:g}, not between 0 and 1")
    if not tolerance >= 0:
        raise BadInput(f"the tolerance is {tolerance:g}, not at least 0")
    rules = find_convention(convention)
    names = list(dict.fromkeys((measure, *MEASURES)))
    measures = read_measures([f"{name}@{k}" for name in names for k in wanted], rules)
    scores = score(count(judgments_for(measures, judgments_of(qrels)), run, measures, rules), measures, rules)
    tokens = None if dataset is None else _tokens(rankings, dataset, wanted)
    advice = enough({k: scores.values[f"{measure}@{k}"] for k in wanted}, measure, tolerance, confidence, tokens)
    rows = []
    for row in advice.table:
        k = int(row["k"])
        rows.append({**{name: scores.means[f"{name}@{k}"] for name in names}, **row, "k": k})
    if as_json:
        found = {"k": advice.k, "measure": measure, "tolerance": tolerance, "confidence": confidence, "rows": rows}
        typer.echo(json.dumps(found, indent=2))
        return
    table = plain_table(["k", *names, "loss", "at most", *(["tokens"] if tokens else [])])
    for one in rows:
        cells = [str(one["k"]), *(shown(one[name]) for name in (*names, "loss", "loss_at_most"))]
        style = "bold" if one["k"] == advice.k else ""
        table.add_row(*(cell(text, style) for text in [*cells, *([f"{one['tokens']:.0f}"] if tokens else [])]))
    console.show(table)
    if len(rows) > 1:
        console.show("", cell(_line(measure, rows)))
    beyond = [str(k) for k in asked if k > deepest]
    if beyond:
        console.talk([f"the run is {deepest} deep, and says nothing about k={', '.join(beyond)}"])
    console.talk([str(advice), f"loss: of {measure} against the best k; at most: with {confidence:.0%} confidence"])


def _line(measure: str, rows: Sequence[Mapping[str, float]]) -> str:
    """How the measure that k is chosen by goes over k."""
    values = [row[measure] for row in rows]
    drawn = sparkline(thinned(values, 40), marks=console.marks())
    return f"{measure} over k: {shown(values[0])} {drawn} {shown(values[-1])}"


def _whole_numbers(text: str) -> list[int]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise BadInput(f"`-k {text}` is no list of numbers", hint="-k 1,3,5,10") from None
    if found[0] < 1:
        raise BadInput(f"k is {found[0]}, not at least 1")
    return found


def _tokens(rankings: Nested, dataset: str, ks: list[int]) -> dict[int, float]:
    """The mean tokens of the first k texts of a query, a quarter of their bytes."""
    lengths = {name: quarter_of_bytes(text) for name, text in load(dataset).texts.items()}
    if not any(doc in lengths for docs in rankings.values() for doc in docs):
        raise BadInput(f"no document of the run is in `{dataset}`", hint="--dataset is what the run was made on")
    totals = dict.fromkeys(ks, 0.0)
    for docs in rankings.values():
        ranked = sorted(docs, key=lambda doc: -docs[doc])
        for k in ks:
            totals[k] += sum(lengths.get(doc, 0.0) for doc in ranked[:k])
    return {k: total / max(1, len(rankings)) for k, total in totals.items()}
