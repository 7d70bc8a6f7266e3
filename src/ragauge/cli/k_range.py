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
from ragauge.core.records import ScoresByQuery
from ragauge.datasets import load
from ragauge.evaluation import compute_judged_ranks, judgments_for_measures, parse_measures
from ragauge.evaluation.indicators import average_trials
from ragauge.files.serialization import replace_nan
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.scoring import score_judged_ranks
from ragauge.output.numbers import format_score
from ragauge.output.terminal import borderless_table, downsample, fit_columns, shorten_names, sparkline, terminal_cell
from ragauge.runs.inputs import Inputs, open_run, resolve_inputs
from ragauge.stats.smallest_k import SmallestK, estimate_tokens, smallest_k

K_RANGE_MEASURES = ("hit_rate", "mrr", "ndcg", "recall", "precision")


@dataclass(frozen=True)
class _KRangeSettings:
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
        return list(dict.fromkeys((self.measure, *K_RANGE_MEASURES)))


@dataclass(frozen=True)
class _KRangeResult:
    """Result for one run, with one row per k within its depth."""

    rows: Sequence[Mapping[str, Any]]
    advice: SmallestK
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
    dataset: Annotated[
        str | None,
        typer.Option("-d", "--dataset", help="Dataset with the texts, by name or folder; adds token counts."),
    ] = None,
    convention: Annotated[str, typer.Option("-C", "--convention", help="As in evaluate.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Score runs over a range of k and recommend the smallest sufficient k.

    [dim]ragauge k-range runs/pydocs[/dim]

    [dim]ragauge k-range runs/pydocs/bm25 -k 1,3,5,10 --dataset pydocs[/dim]

    [dim]ragauge k-range qrels.txt bm25.run -m recall[/dim]
    """
    if not 0 < confidence < 1:
        raise BadInput(f"the confidence is {confidence:g}, not between 0 and 1")
    if not tolerance >= 0:
        raise BadInput(f"the tolerance is {tolerance:g}, not at least 0")
    wanted = _parse_ks(ks)
    given = resolve_inputs(files)
    runs = _select_runs(given, system or [])
    lengths = None
    if dataset is not None:
        lengths = {name: estimate_tokens(text) for name, text in load(dataset).texts.items()}
    asked = _KRangeSettings(wanted, measure, tolerance, confidence, find_convention(convention), lengths)
    found = {name: _compute_k_range(given, name, path, asked) for name, path in runs.items()}
    if lengths is not None and not any("tokens" in one.rows[0] for one in found.values()):
        raise BadInput(f"no document of the runs is in `{dataset}`", hint="--dataset is what the runs were made on")
    (first, *others) = found.values()
    if as_json:
        several = {"systems": {name: one.data() for name, one in found.items()}}
        data = replace_nan(several if others else first.data())
        console.write_data(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
        return
    left = _print_runs(found, asked) if others else _print_one_run(first, asked)
    if left:
        console.print_notes([f"not shown, for want of room: {', '.join(left)}; --json has them"])
    console.print_notes(_describe_shallow_runs(found, wanted))
    sure = f"with {confidence:.0%} confidence"
    if others:
        console.print_notes(
            [
                f"enough: the smallest k that loses at most {tolerance:g} of {measure} against the best k, {sure}",
                *_describe_unsettled_runs(found, measure),
                f"--system {shlex.quote(next(iter(found)))} shows more measures of that one",
            ]
        )
    else:
        console.print_notes([str(first.advice), f"loss: of {measure} against the best k; loss at most: {sure}"])


def _describe_unsettled_runs(found: Mapping[str, _KRangeResult], measure: str) -> list[str]:
    """Name the runs for which none of the tried k is enough."""
    names = [name for name, one in found.items() if one.advice.k is None]
    return [f"none: {measure} still rises at the largest k ({', '.join(names)})"] if names else []


def _describe_shallow_runs(found: Mapping[str, _KRangeResult], ks: Sequence[int]) -> list[str]:
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


def _select_runs(given: Inputs, systems: Sequence[str]) -> dict[str, str]:
    """Return the selected runs by name; raise UnknownName for unknown ones."""
    runs = given.singles
    for name in systems:
        if name not in runs:
            raise UnknownName("system", name, runs, hint=f"there are {', '.join(runs)}")
    return {name: path for name, path in runs.items() if not systems or name in systems}


def _compute_k_range(given: Inputs, name: str, path: str, asked: _KRangeSettings) -> _KRangeResult:
    run = open_run(path)
    rankings = run.nested
    trials = run.differing() or [run]
    returned = (max(map(len, one.nested.values()), default=0) for one in trials)
    deepest = max(*returned, (run.manifest.get("plan") or {}).get("k", 0))
    ks = [k for k in asked.ks if k <= deepest]
    if not ks:
        raise BadInput(f"the run is {deepest} deep, and says nothing about k={asked.ks[0]}", file=path)
    measures = parse_measures([f"{one}@{k}" for one in asked.names for k in ks], asked.rules)
    judgments = judgments_for_measures(measures, given.qrels)
    found = [
        score_judged_ranks(
            compute_judged_ranks(judgments, one, measures, asked.rules, name=name), measures, asked.rules
        )
        for one in trials
    ]
    scores = average_trials(found) if len(found) > 1 else found[0]
    tokens = None if asked.lengths is None else _mean_context_tokens(rankings, asked.lengths, ks)
    values = {k: scores.values[f"{asked.measure}@{k}"] for k in ks}
    advice = smallest_k(values, asked.measure, asked.tolerance, asked.confidence, tokens)
    rows = []
    for row in advice.table:
        k = int(row["k"])
        rows.append({**{one: scores.means[f"{one}@{k}"] for one in asked.names}, **row, "k": k})
    return _KRangeResult(rows, advice, deepest)


def _print_one_run(found: _KRangeResult, asked: _KRangeSettings) -> list[str]:
    """Print one row per k of one run, and return the columns that do not fit."""
    counted = "tokens" in found.rows[0]
    header = ["k", *asked.names, "loss", "loss at most", *(["tokens"] if counted else [])]
    lines = []
    for one in found.rows:
        cells = [str(one["k"]), *(format_score(one[name]) for name in (*asked.names, "loss", "loss_at_most"))]
        lines.append([*cells, *([f"{one['tokens']:.0f}"] if counted else [])])
    kept = fit_columns(header, lines, console.stdout_console().width, range(len(asked.names), 1, -1))
    table = borderless_table([header[i] for i in kept])
    for one, line in zip(found.rows, lines, strict=True):
        table.add_row(*(terminal_cell(line[i], "bold" if one["k"] == found.advice.k else "") for i in kept))
    console.print_tables(table)
    if len(found.rows) > 1:
        console.print_tables("", terminal_cell(_measure_sparkline(asked.measure, found.rows)))
    return [title for i, title in enumerate(header) if i not in kept]


def _print_runs(found: Mapping[str, _KRangeResult], asked: _KRangeSettings) -> list[str]:
    """Print one row per run with the measure at each k, and return hidden columns.

    The smallest k that is enough is bold.
    """
    ks = sorted({row["k"] for one in found.values() for row in one.rows})
    counted = any("tokens" in one.rows[0] for one in found.values())
    header = [f"{asked.measure} at k", *map(str, ks), "enough", "loss at most", *(["tokens"] if counted else [])]
    lines = []
    for name, one in found.items():
        known = {row["k"]: row for row in one.rows}
        values = [format_score(known[k][asked.measure]) if k in known else "-" for k in ks]
        chosen = {} if one.advice.k is None else known[one.advice.k]
        tokens = [f"{chosen['tokens']:.0f}" if "tokens" in chosen else "-"] if counted else []
        lines.append(
            [name, *values, str(one.advice.k or "none"), format_score(chosen.get("loss_at_most", math.nan)), *tokens]
        )
    width = console.stdout_console().width
    kept = fit_columns(header, lines, width, range(1, len(ks)))
    table = borderless_table([header[i] for i in kept])
    for name, line, one in zip(shorten_names(header, lines, kept, width), lines, found.values(), strict=True):
        bold = None if one.advice.k is None else 1 + ks.index(one.advice.k)
        table.add_row(terminal_cell(name), *(terminal_cell(line[i], "bold" if i == bold else "") for i in kept[1:]))
    console.print_tables(table)
    return [f"k={title}" for i, title in enumerate(header) if i not in kept]


def _measure_sparkline(measure: str, rows: Sequence[Mapping[str, float]]) -> str:
    """Format the chosen measure over k as a sparkline."""
    values = [row[measure] for row in rows]
    drawn = sparkline(downsample(values, 40), marks=console.sparkline_marks())
    return f"{measure} over k: {format_score(values[0])} {drawn} {format_score(values[-1])}"


def _parse_ks(text: str) -> list[int]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise BadInput(f"`-k {text}` is no list of numbers", hint="-k 1,3,5,10") from None
    if found[0] < 1:
        raise BadInput(f"k is {found[0]}, not at least 1")
    return found


def _mean_context_tokens(
    rankings: ScoresByQuery, lengths: Mapping[str, float], ks: Sequence[int]
) -> dict[int, float] | None:
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
