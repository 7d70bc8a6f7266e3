"""`ragauge k-range RUN…`: compute measures over a range of k, and the smallest k that is enough."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Nested
from ragauge.datasets import load
from ragauge.evaluation import count, judgments_for, read_measures
from ragauge.evaluation.indicators import averaged
from ragauge.files.serialization import without_nan
from ragauge.measures.conventions import Convention
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.scoring import score
from ragauge.output.numbers import shown
from ragauge.output.terminal import cell, fitting, plain_table, shortened, sparkline, thinned
from ragauge.runs.inputs import Given, gather, open_run
from ragauge.stats.smallest_k import Advice, enough, quarter_of_bytes

MEASURES = ("hit_rate", "mrr", "ndcg", "recall", "precision")


@dataclass(frozen=True)
class _Asked:
    """Settings of the analysis."""

    ks: Sequence[int]
    measure: str
    tolerance: float
    confidence: float
    rules: Convention
    lengths: Mapping[str, float] | None
    """Number of tokens of each document by id; None if tokens are not counted."""

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys((self.measure, *MEASURES)))


@dataclass(frozen=True)
class _Range:
    """Result for one run, with one row per k within its depth."""

    rows: Sequence[Mapping[str, Any]]
    advice: Advice
    deepest: int

    def data(self) -> dict[str, Any]:
        one = self.advice
        told = {
            "k": one.k,
            "measure": one.measure,
            "tolerance": one.tolerance,
            "confidence": one.confidence,
            "n": one.n,
        }
        return {**told, "rows": self.rows}


def k_range(  # noqa: PLR0913 - each is an option of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS RUN...",
            help="As in evaluate, or folders that `run` wrote, without QRELS; runs must be as deep as the largest k.",
        ),
    ],
    system: Annotated[list[str] | None, typer.Option("-s", "--system", help="Only this one; again for more.")] = None,
    ks: Annotated[str, typer.Option("-k", help="The values of k.")] = "1,3,5,10,20",
    measure: Annotated[str, typer.Option("-m", "--measure", help="What k is chosen by, without @k.")] = "hit_rate",
    tolerance: Annotated[float, typer.Option(help="How much worse than the best k is good enough.")] = 0.02,
    confidence: Annotated[float, typer.Option(help="How sure of it.")] = 0.95,
    dataset: Annotated[str | None, typer.Option(help="Where the texts are, to count tokens.")] = None,
    convention: Annotated[str, typer.Option("-C", "--convention", help="As in evaluate.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Measures over a range of k, and the smallest k that is enough.

    [dim]ragauge k-range runs/pydocs[/dim]

    [dim]ragauge k-range runs/pydocs/bm25 -k 1,3,5,10 --dataset pydocs[/dim]

    [dim]ragauge k-range qrels.txt bm25.run -m recall[/dim]
    """
    if not 0 < confidence < 1:
        raise BadInput(f"the confidence is {confidence:g}, not between 0 and 1")
    if not tolerance >= 0:
        raise BadInput(f"the tolerance is {tolerance:g}, not at least 0")
    wanted = _whole_numbers(ks)
    given = gather(files)
    runs = _chosen(given, system or [])
    lengths = None
    if dataset is not None:
        lengths = {name: quarter_of_bytes(text) for name, text in load(dataset).texts.items()}
    asked = _Asked(wanted, measure, tolerance, confidence, find_convention(convention), lengths)
    found = {name: _range(given, name, path, asked) for name, path in runs.items()}
    if lengths is not None and not any("tokens" in one.rows[0] for one in found.values()):
        raise BadInput(f"no document of the runs is in `{dataset}`", hint="--dataset is what the runs were made on")
    (first, *others) = found.values()
    if as_json:
        several = {"systems": {name: one.data() for name, one in found.items()}}
        data = without_nan(several if others else first.data())
        console.write_data(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
        return
    left = _show_systems(found, asked) if others else _show(first, asked)
    if left:
        console.talk([f"not shown, for want of room: {', '.join(left)}; --json has them"])
    console.talk(_shallow(found, wanted))
    sure = f"with {confidence:.0%} confidence"
    if others:
        console.talk(
            [
                f"enough: the smallest k that loses at most {tolerance:g} of {measure} against the best k, {sure}",
                *_open_ended(found, measure),
                f"--system {shlex.quote(next(iter(found)))} shows more measures of that one",
            ]
        )
    else:
        console.talk([str(first.advice), f"loss: of {measure} against the best k; loss at most: {sure}"])


def _open_ended(found: Mapping[str, _Range], measure: str) -> list[str]:
    """Name the runs for which none of the tried k is enough."""
    names = [name for name, one in found.items() if one.advice.k is None]
    return [f"none: {measure} still rises at the largest k ({', '.join(names)})"] if names else []


def _shallow(found: Mapping[str, _Range], ks: Sequence[int]) -> list[str]:
    """Name the runs that are less deep than the largest k."""
    depths: dict[int, list[str]] = {}
    for name, one in found.items():
        depths.setdefault(one.deepest, []).append(name)
    lines = []
    for deepest, names in depths.items():
        beyond = ", ".join(str(k) for k in ks if k > deepest)
        who = ("the run" if len(found) == 1 else "all runs") if len(depths) == 1 else ", ".join(names)
        told = f"is {deepest} deep, and says" if len(names) == 1 else f"are {deepest} deep, and say"
        lines += [f"{who} {told} nothing about k={beyond}"] if beyond else []
    return lines


def _chosen(given: Given, systems: Sequence[str]) -> dict[str, str]:
    """Return the selected runs by name; raise UnknownName for unknown ones."""
    runs = given.singles
    for name in systems:
        if name not in runs:
            raise UnknownName("system", name, runs, hint=f"there are {', '.join(runs)}")
    return {name: path for name, path in runs.items() if not systems or name in systems}


def _range(given: Given, name: str, path: str, asked: _Asked) -> _Range:
    run = open_run(path)
    rankings = run.nested
    trials = run.differing() or [run]
    returned = (max(map(len, one.nested.values()), default=0) for one in trials)
    deepest = max(*returned, (run.manifest.get("plan") or {}).get("k", 0))
    ks = [k for k in asked.ks if k <= deepest]
    if not ks:
        raise BadInput(f"the run is {deepest} deep, and says nothing about k={asked.ks[0]}", file=path)
    measures = read_measures([f"{one}@{k}" for one in asked.names for k in ks], asked.rules)
    judgments = judgments_for(measures, given.qrels)
    found = [score(count(judgments, one, measures, asked.rules, name=name), measures, asked.rules) for one in trials]
    scores = averaged(found) if len(found) > 1 else found[0]
    tokens = None if asked.lengths is None else _tokens(rankings, asked.lengths, ks)
    values = {k: scores.values[f"{asked.measure}@{k}"] for k in ks}
    advice = enough(values, asked.measure, asked.tolerance, asked.confidence, tokens)
    rows = []
    for row in advice.table:
        k = int(row["k"])
        rows.append({**{one: scores.means[f"{one}@{k}"] for one in asked.names}, **row, "k": k})
    return _Range(rows, advice, deepest)


def _show(found: _Range, asked: _Asked) -> list[str]:
    """Print one row per k of one run, and return the columns that do not fit."""
    counted = "tokens" in found.rows[0]
    header = ["k", *asked.names, "loss", "loss at most", *(["tokens"] if counted else [])]
    lines = []
    for one in found.rows:
        cells = [str(one["k"]), *(shown(one[name]) for name in (*asked.names, "loss", "loss_at_most"))]
        lines.append([*cells, *([f"{one['tokens']:.0f}"] if counted else [])])
    kept = fitting(header, lines, console.data().width, range(len(asked.names), 1, -1))
    table = plain_table([header[i] for i in kept])
    for one, line in zip(found.rows, lines, strict=True):
        table.add_row(*(cell(line[i], "bold" if one["k"] == found.advice.k else "") for i in kept))
    console.show(table)
    if len(found.rows) > 1:
        console.show("", cell(_line(asked.measure, found.rows)))
    return [title for i, title in enumerate(header) if i not in kept]


def _show_systems(found: Mapping[str, _Range], asked: _Asked) -> list[str]:
    """Print one row per run with the measure at each k, and return hidden columns.

    The smallest k that is enough is bold.
    """
    ks = sorted({row["k"] for one in found.values() for row in one.rows})
    counted = any("tokens" in one.rows[0] for one in found.values())
    header = [f"{asked.measure} at k", *map(str, ks), "enough", "loss at most", *(["tokens"] if counted else [])]
    lines = []
    for name, one in found.items():
        known = {row["k"]: row for row in one.rows}
        values = [shown(known[k][asked.measure]) if k in known else "-" for k in ks]
        chosen = {} if one.advice.k is None else known[one.advice.k]
        tokens = [f"{chosen['tokens']:.0f}" if "tokens" in chosen else "-"] if counted else []
        lines.append([name, *values, str(one.advice.k or "none"), shown(chosen.get("loss_at_most", math.nan)), *tokens])
    width = console.data().width
    kept = fitting(header, lines, width, range(1, len(ks)))
    table = plain_table([header[i] for i in kept])
    for name, line, one in zip(shortened(header, lines, kept, width), lines, found.values(), strict=True):
        bold = None if one.advice.k is None else 1 + ks.index(one.advice.k)
        table.add_row(cell(name), *(cell(line[i], "bold" if i == bold else "") for i in kept[1:]))
    console.show(table)
    return [f"k={title}" for i, title in enumerate(header) if i not in kept]


def _line(measure: str, rows: Sequence[Mapping[str, float]]) -> str:
    """Format the chosen measure over k as a sparkline."""
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


def _tokens(rankings: Nested, lengths: Mapping[str, float], ks: Sequence[int]) -> dict[int, float] | None:
    """Compute the mean number of tokens of the first k documents per query.

    A token counts as four bytes. None if no document is known.
    """
    if not any(doc in lengths for docs in rankings.values() for doc in docs):
        return None
    totals = dict.fromkeys(ks, 0.0)
    for docs in rankings.values():
        ranked = sorted(docs, key=lambda doc: -docs[doc])
        for k in ks:
            totals[k] += sum(lengths.get(doc, 0.0) for doc in ranked[:k])
    return {k: total / max(1, len(rankings)) for k, total in totals.items()}
