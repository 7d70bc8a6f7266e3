"""`ragauge k-range RUN…`: compute measures over a range of k, and the smallest k that is enough."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.options import (
    QRELS_HELP,
    RUNS_HELP,
    ConventionName,
    OutputFiles,
    PrintJson,
    Split,
    TargetMap,
    csv_option,
)
from ragauge.cli.output import check_table_outputs, write_table, write_table_files
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.findings import Note, merge_notes
from ragauge.core.records import ScoresByQuery
from ragauge.datasets import load
from ragauge.evaluation.evaluate import (
    average_trials,
    judgments_for_measures,
    parse_measures,
    score_trials,
    with_target_map,
)
from ragauge.evaluation.indicators import measure_range
from ragauge.measures.conventions import Convention, find_convention
from ragauge.output.numbers import format_number, pluralise
from ragauge.output.report import Report, Section
from ragauge.output.sparklines import downsample, sparkline
from ragauge.output.tables import Cell, Column, Table
from ragauge.runs.inputs import Inputs, open_run
from ragauge.stats.smallest_k import SmallestK, estimate_tokens, smallest_k

K_RANGE_MEASURES = ("hit_rate", "mrr", "ndcg", "recall", "precision")
MAX_SPARKLINE_POINTS = 40


@dataclass(frozen=True)
class _KRangeSettings:
    ks: Sequence[int]
    measure: str
    tolerance: float
    confidence: float
    convention: Convention
    at_least: float | None
    token_price: float | None
    lengths: Mapping[str, float] | None
    """Number of tokens of each document by id; None if tokens are not counted."""

    @property
    def measures(self) -> list[str]:
        """The measure by which k is chosen, then the others."""
        return list(dict.fromkeys((self.measure, *K_RANGE_MEASURES)))


@dataclass(frozen=True)
class _KRangeResult:
    """Result for one run, with one row per k within its depth."""

    rows: Sequence[Mapping[str, Any]]
    advice: SmallestK
    depth: int
    notes: Sequence[str] = ()
    """Notes on queries that are not scored or count 0, and on repeated documents."""

    def to_data(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        advice = self.advice
        settings = {
            "k": advice.k,
            "measure": advice.measure,
            "tolerance": advice.tolerance,
            "confidence": advice.confidence,
            "n": advice.n,
        }
        acceptable = {} if advice.acceptable is None else {"at_least": advice.acceptable._asdict()}
        return {**settings, **acceptable, "rows": self.rows}


def k_range(  # noqa: PLR0913 - each is an option of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS RUN...",
            help=f"{QRELS_HELP}. {RUNS_HELP}. Runs must be as deep as the largest k.",
        ),
    ],
    system: Annotated[
        list[str] | None, typer.Option("-s", "--system", metavar="NAME", help="Only this system. Can be repeated.")
    ] = None,
    ks: Annotated[str, typer.Option("-k", metavar="N,…", help="Values of k to score.")] = "1,3,5,10,20",
    measure: Annotated[
        str, typer.Option("-m", "--measure", metavar="NAME", help="Measure by which k is chosen, without @k.")
    ] = "hit_rate",
    tolerance: Annotated[float, typer.Option(metavar="SCORE", help="Maximum loss against the best k.")] = 0.02,
    at_least: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Acceptable score: also find the smallest k that reaches it."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(metavar="LEVEL", help="Confidence level of bounds and intervals.")
    ] = 0.95,
    dataset: Annotated[
        str | None,
        typer.Option(
            "-d", "--dataset", metavar="DATASET", help="Dataset with the texts, by name or folder; adds token counts."
        ),
    ] = None,
    token_price: Annotated[
        float | None,
        typer.Option(metavar="PRICE", show_default="no costs", help="US dollars per million tokens of texts."),
    ] = None,
    convention: ConventionName = "default",
    split: Split = None,
    targets: TargetMap = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("system and k")] = False,
    out: OutputFiles = None,
) -> None:
    """Score runs over a range of k and recommend the smallest sufficient k.

    [dim]ragauge k-range qrels.txt bm25.run -m recall[/dim]

    [dim]ragauge k-range runs/pydocs -k 1,3,5,10 --dataset pydocs[/dim]
    """
    check_table_outputs(out or [], as_json=as_json, as_csv=as_csv, has_report=True)
    if not 0 < confidence < 1:
        raise BadInput(f"--confidence must be above 0 and below 1, got {confidence:g}", hint="use `--confidence 0.95`")
    if not tolerance >= 0:
        raise BadInput(f"--tolerance must be at least 0, got {tolerance:g}", hint="use `--tolerance 0.02`")
    if token_price is not None and not 0 < token_price < math.inf:
        raise BadInput(f"--token-price must be above 0, got {token_price:g}", hint="use `--token-price 3`")
    if token_price is not None and dataset is None:
        raise BadInput("--token-price requires the texts of the documents", hint="add `--dataset NAME`")
    values = _parse_ks(ks)
    inputs = Inputs.resolve(*files, split=split, targets=targets)
    runs = _select_runs(inputs, system or [])
    lengths = None
    if dataset is not None:
        lengths = {document: estimate_tokens(text) for document, text in load(dataset).texts.items()}
    rules = with_target_map(find_convention(convention), inputs.qrels, targets)
    settings = _KRangeSettings(values, measure, tolerance, confidence, rules, at_least, token_price, lengths)
    results = {name: _compute_k_range(inputs, name, path, settings) for name, path in runs.items()}
    if lengths is not None and not any("tokens" in result.rows[0] for result in results.values()):
        raise BadInput(
            f"no document of the runs is in `{dataset}`", hint="give the dataset of the runs: `--dataset NAME`"
        )
    (first, *others) = results.values()
    several = {"systems": {name: result.to_data() for name, result in results.items()}}
    data = several if others else first.to_data()
    shown_table = _systems_table(results, settings) if others else _k_table(first, settings)
    query_notes = merge_notes(note for result in results.values() for note in result.notes)
    notes = [*_describe_shallow_runs(results, values), *query_notes, *_describe_method(results, settings)]
    summary = f"Smallest k that loses at most {tolerance:g} of {measure} against the best k."
    sections = [Section("k", "Values of k", [shown_table])]
    report = Report("k-range", "Values of k", summary, sections, list(results), notes=notes)
    write_table_files(_data_table(results), out or [], data=data, report=report)
    if as_json or as_csv:
        write_table(_data_table(results), as_json=as_json, as_csv=as_csv, data=data)
        return
    write_table(shown_table, as_json=False, as_csv=False)
    if not others and len(first.rows) > 1:
        console.print_tables("", _measure_sparkline(measure, first.rows))
    console.print_notes(notes)


def _describe_method(results: Mapping[str, _KRangeResult], settings: _KRangeSettings) -> list[str]:
    """Describe the chosen k, how it was chosen, and how to see more."""
    level = f"with {settings.confidence:.0%} confidence"
    if len(results) == 1:
        (result,) = results.values()
        loss = f"loss: {settings.measure} below the best k; loss at most: its upper bound {level}"
        return [*result.advice.sentences(), *result.advice.notes, loss]
    open_ended = [name for name, result in results.items() if result.advice.k is None]
    rising = [name for name in open_ended if len(results[name].advice.table) > 1]
    single = [name for name in open_ended if name not in rising]
    undecided = [name for name, result in results.items() if result.advice.undecided]
    first_undecided = ", ".join(undecided[:3]) + ", …" * (len(undecided) > 3)
    return [
        f"enough: the smallest k that loses at most {settings.tolerance:g} of {settings.measure} against the best k, "
        f"{level}",
        *(
            [
                f"undecided: the queries cannot show whether a smaller k is enough ({first_undecided}); "
                "`--system` shows how many would decide"
            ]
            if undecided
            else []
        ),
        *([f"none: {settings.measure} still rises at the largest k ({', '.join(rising)})"] if rising else []),
        *([f"none: only one k could be tried ({', '.join(single)})"] if single else []),
        f"--system {shlex.quote(next(iter(results)))} shows more measures of one system",
    ]


def _describe_shallow_runs(results: Mapping[str, _KRangeResult], ks: Sequence[int]) -> list[str]:
    """Name the runs that are less deep than the largest k."""
    names_by_depth: dict[int, list[str]] = {}
    for name, result in results.items():
        names_by_depth.setdefault(result.depth, []).append(name)
    notes = []
    for depth, names in names_by_depth.items():
        deeper = ", ".join(str(k) for k in ks if k > depth)
        if deeper:
            runs = ", ".join(names) if len(names_by_depth) > 1 else "the run" if len(results) == 1 else "all runs"
            verb = "returns" if len(names) == 1 else "return"
            notes.append(f"{runs} {verb} at most {pluralise(depth, 'document')} per query: no results for k={deeper}")
    return notes


def _select_runs(inputs: Inputs, systems: Sequence[str]) -> dict[str, str]:
    """Return the selected runs by name; raise UnknownName for unknown ones."""
    runs = inputs.single_runs
    for name in systems:
        if name not in runs:
            raise UnknownName("system", name, runs)
    return {name: path for name, path in runs.items() if not systems or name in systems}


def _compute_k_range(inputs: Inputs, name: str, path: str, settings: _KRangeSettings) -> _KRangeResult:
    run = open_run(path)
    rankings = run.nested
    trials = run.differing() or [run]
    returned = (max(map(len, trial.nested.values()), default=0) for trial in trials)
    depth = max(*returned, (run.manifest.get("plan") or {}).get("k", 0))
    ks = [k for k in settings.ks if k <= depth]
    if not ks:
        raise BadInput(
            f"the run returns at most {pluralise(depth, 'document')} per query, but the smallest k is {settings.ks[0]}",
            file=path,
            hint=f"use `-k {depth}`",
        )
    convention = settings.convention
    measures = parse_measures([f"{measure}@{k}" for measure in settings.measures for k in ks], convention)
    judgments = judgments_for_measures(measures, inputs.qrels, split=inputs.split, targets=inputs.targets)
    scored_trials = score_trials(judgments, trials, measures, convention, name=name)
    scores = average_trials(scored_trials)
    tokens = None if settings.lengths is None else _mean_context_tokens(rankings, settings.lengths, ks)
    values = {k: scores.values[f"{settings.measure}@{k}"] for k in ks}
    advice = smallest_k(
        values,
        settings.measure,
        settings.tolerance,
        settings.confidence,
        tokens,
        measure_range(settings.measure, values.values()),
        settings.at_least,
        settings.token_price,
    )
    rows = []
    for row in advice.table:
        k = int(row["k"])
        means = {measure: scores.means[f"{measure}@{k}"] for measure in settings.measures}
        rows.append({**means, **row, "k": k, "decision": advice.decide(row)})
    return _KRangeResult(rows, advice, depth, [note for note in scores.notes if isinstance(note, Note) and note.code])


def _k_table(result: _KRangeResult, settings: _KRangeSettings) -> Table:
    """Build the table with one row per k of one run; the smallest sufficient k is bold."""
    measures = settings.measures
    names = [*measures, "loss", "loss_at_most", "decision", *(n for n in ("tokens", "cost") if n in result.rows[0])]
    titles = {"loss_at_most": "loss at most", "decision": "known", "cost": "$/1,000 queries"}
    styles = {"tokens": "count", "decision": "text", "cost": "score"}
    # A narrow terminal drops measures, the last ones first, but not the one by which k is chosen.
    drop_orders = {measure: len(measures) - i for i, measure in enumerate(measures) if i}
    columns = [Column("k", "number")]
    columns += [
        Column(
            titles.get(name, name),
            styles.get(name, "score"),
            drop_order=drop_orders.get(name, 0),
        )
        for name in names
    ]
    rows = [
        [
            Cell(1000 * row[name] if name == "cost" else row[name], best=row["k"] == result.advice.k)
            for name in ("k", *names)
        ]
        for row in result.rows
    ]
    return Table("k", columns, rows)


def _systems_table(results: Mapping[str, _KRangeResult], settings: _KRangeSettings) -> Table:
    """Build the table with one row per run and the measure at each k; the smallest sufficient k is bold."""
    ks = sorted({row["k"] for result in results.values() for row in result.rows})
    has_tokens = any("tokens" in result.rows[0] for result in results.values())
    columns = [
        Column(f"{settings.measure} at k", "name"),
        *(Column(str(k), "score", drop_order=i if i < len(ks) else 0) for i, k in enumerate(ks, 1)),
        Column("enough", "number"),
        Column("loss at most", "score"),
        *([] if settings.at_least is None else [Column(f"at least {settings.at_least:g}", "number")]),
        *([Column("tokens", "count")] if has_tokens else []),
    ]
    rows = []
    for name, result in results.items():
        by_k, chosen = {row["k"]: row for row in result.rows}, result.advice.k
        values = [Cell(by_k[k][settings.measure] if k in by_k else None, best=k == chosen) for k in ks]
        row = by_k.get(chosen, {})
        enough = Cell(chosen, text="" if chosen else "undecided" if result.advice.undecided else "none")
        acceptable = result.advice.acceptable
        reached = [] if acceptable is None else [Cell(acceptable.k, text="" if acceptable.k else "none")]
        tokens = [row.get("tokens")] if has_tokens else []
        rows.append([name, *values, enough, row.get("loss_at_most"), *reached, *tokens])
    return Table("systems", columns, rows)


def _data_table(results: Mapping[str, _KRangeResult]) -> Table:
    """Build the table for CSV: one row per system and k."""
    keys = dict.fromkeys(name for result in results.values() for row in result.rows for name in row)
    names = [name for name in keys if name not in ("k", "value")]
    columns = [Column(name) for name in ("system", "k", *names, "enough")]
    rows = [
        [system, row["k"], *(row.get(name) for name in names), row["k"] == result.advice.k]
        for system, result in results.items()
        for row in result.rows
    ]
    return Table("k-range", columns, rows)


def _measure_sparkline(measure: str, rows: Sequence[Mapping[str, float]]) -> str:
    """Format the chosen measure over k as a sparkline."""
    values = [row[measure] for row in rows]
    first, last = (format_number(value, "score") for value in (values[0], values[-1]))
    return f"{measure} over k: {first} {sparkline(downsample(values, MAX_SPARKLINE_POINTS))} {last}"


def _parse_ks(text: str) -> list[int]:
    try:
        ks = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise BadInput(f"-k must be integers separated by commas, got `{text}`", hint="use `-k 1,3,5,10`") from None
    if ks[0] < 1:
        raise BadInput(f"-k must be at least 1, got {ks[0]}", hint="use `-k 1,3,5,10`")
    return ks


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
