"""Evaluation of runs: read judgments and runs, compute judged ranks, and score them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np

from ragauge.compute.executors import map_ordered
from ragauge.compute.progress import Progress, ProgressCallback, no_progress, scoped
from ragauge.core.errors import BadInput, failed_queries
from ragauge.core.findings import Note
from ragauge.core.records import Judgments, Run, RunFrames, Scores, ScoresByQuery
from ragauge.core.scores_by_run import ScoresByRun
from ragauge.core.settings import check_keywords
from ragauge.files import neighbour_arrays, readers
from ragauge.files.in_memory import is_single_run, to_run_table
from ragauge.files.parquet_runs import ParquetRun
from ragauge.files.source import InputFile
from ragauge.files.trec import TrecRun
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.judged_ranks import (
    JudgedRanks,
    PartialRanks,
    defined_depth,
    find_unjudged_queries,
    rules_for_rows,
)
from ragauge.measures.names import Measure, parse_measure_names
from ragauge.measures.scoring import MeasureFunction, score_judged_ranks
from ragauge.output.numbers import join_names

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

DEFAULT_MEASURES = ("ndcg@10", "recall@100", "map", "mrr", "precision@10")
RUN_CUTOFF = 10
"""Cutoff of the default measures of `run`, unless k is smaller."""
MAX_NAMED_MEASURES = 3
"""Maximum number of measures that a note names."""
GRADE_LIKE_SCORES = frozenset(range(5))
"""Scores that most judgments have as grades."""
DIFFERING_TRIALS = "differing trials"
"""Code of the note on a run whose scores are means over trials."""
Measures = str | MeasureFunction | Iterable[str | MeasureFunction]
RunByName = Mapping[str, "str | Path | Run | Mapping[str, Mapping[str, float]] | pl.DataFrame | pd.DataFrame"]
"""Several runs by name: paths, runs, frames, or `{query: {document: score}}`."""


class EvaluationOptions(TypedDict, total=False):
    """Options of `evaluate` and `evaluate_runs`."""

    targets: Any
    """Target map for `dr@k`."""
    qrels_format: str | None
    """Format of the judgments; None to detect it."""
    run_format: str | None
    """Format of the runs; None to detect it."""
    executor: Executor | None
    """Executor that scores runs in parts of whole queries, with equal results."""


@overload
def evaluate(
    qrels: Any,
    run: RunByName,
    measures: Measures = DEFAULT_MEASURES,
    convention: str | Convention = "default",
    **options: Unpack[EvaluationOptions],
) -> ScoresByRun: ...
@overload
def evaluate(
    qrels: Any,
    run: Any,
    measures: Measures = DEFAULT_MEASURES,
    convention: str | Convention = "default",
    **options: Unpack[EvaluationOptions],
) -> Scores: ...
def evaluate(
    qrels: Any,
    run: Any = None,
    measures: Measures = DEFAULT_MEASURES,
    convention: str | Convention = "default",
    **options: Unpack[EvaluationOptions],
) -> Scores | ScoresByRun:
    """Score a run with judgments.

    `qrels` and `run` may be paths (`-` is standard input), nested dictionaries, frames, lists of tuples, arrays or
    records. A mapping from names to runs is scored as by `evaluate_runs`. Arrays of neighbour ids with one row per
    query (also `.ivecs`, `.ibin` and `.npy` files) are scored by recall(of=k) unless measures are given. `targets`
    is a target map for `dr@k`. File formats (`qrels_format`, `run_format`) are detected unless given. An `executor`
    (from `concurrent.futures`, or Dask's) scores runs in parts of whole queries, with equal results.

    >>> evaluate({"q1": {"a": 1}}, {"q1": {"b": 0.9, "a": 0.4}}, ["mrr", "recall@1"]).means
    {'mrr': 0.5, 'recall@1': 0.0}
    """
    if run is None:
        hint = "use `evaluate(qrels, run)`; answers are scored by `ragauge.judge(samples)`"
        raise BadInput("no run given; expected judgments and a run", hint=hint)
    if isinstance(run, Mapping) and not is_single_run(run):
        return evaluate_runs(qrels, run, measures, convention, **options)
    return _score_runs(qrels, {None: run}, measures, convention, **options)[None]


def evaluate_runs(
    qrels: Any,
    runs: Mapping[str, Any],
    measures: Measures = DEFAULT_MEASURES,
    convention: str | Convention = "default",
    **options: Unpack[EvaluationOptions],
) -> ScoresByRun:
    """Score several runs by name with the same judgments, measures and convention.

    Judgments, runs and options are those of `evaluate`.

    >>> runs = {"good": {"q1": {"a": 0.9, "b": 0.4}}, "bad": {"q1": {"b": 0.9, "a": 0.4}}}
    >>> found = evaluate_runs({"q1": {"a": 1}}, runs, ["mrr"])
    >>> found["bad"].means, found.means
    ({'mrr': 0.5}, {'good': {'mrr': 1.0}, 'bad': {'mrr': 0.5}})
    """
    return ScoresByRun(_score_runs(qrels, check_runs_by_name(runs), measures, convention, **options))


def check_runs_by_name(runs: Any) -> Mapping[str, Any]:
    """Return the runs; raise BadInput unless they are a mapping from names."""
    if not isinstance(runs, Mapping):
        raise BadInput(
            f"runs must be a mapping from names to runs, got {type(runs).__name__}",
            hint='use {"bm25": "bm25.run", "dense": "dense.run"}, or `evaluate` for one run',
        )
    return runs


def _score_runs(
    qrels: Any,
    runs: Mapping[Any, Any],
    measures: Measures,
    convention: str | Convention,
    **options: Unpack[EvaluationOptions],
) -> dict[Any, Scores]:
    """Score runs by name; the name None keeps a run's own name."""
    check_keywords("evaluate", options, EvaluationOptions)
    convention = with_target_map(find_convention(convention), qrels, options.get("targets"))
    neighbour_arrays.check_row_counts(qrels, runs.values())
    if measures is DEFAULT_MEASURES:
        measures = default_measures(qrels, runs.values())
    parsed_measures = parse_measures(measures, convention)
    judgments = judgments_for_measures(
        parsed_measures, qrels, qrels_format=options.get("qrels_format"), targets=options.get("targets")
    )
    scores = score_runs_by_name(
        judgments,
        runs,
        parsed_measures,
        convention,
        run_format=options.get("run_format"),
        executor=options.get("executor"),
    )
    swap_notes = {name: _describe_swap(judgments, run) for name, run in runs.items()}
    return {name: replace(found, notes=[*swap_notes[name], *found.notes]) for name, found in scores.items()}


def _describe_swap(judgments: Judgments, run: Any) -> list[Note]:
    """Note that grades look like scores and scores like grades; a run can have such scores, so it is no error."""
    grades = judgments.pool.grades
    is_fraction = np.floor(grades) != grades
    if 2 * np.count_nonzero(is_fraction) <= len(is_fraction) or not isinstance(run, Mapping):
        return []
    values = {score for docs in run.values() if isinstance(docs, Mapping) for score in docs.values()}
    if not values or not values <= GRADE_LIKE_SCORES:
        return []
    text = (
        f"{np.count_nonzero(is_fraction)} of {len(is_fraction)} grades are fractions, and all scores are whole numbers "
        f"up to {max(values):g}; judgments come first, then the run"
    )
    return [Note(text)]


def score_runs_by_name(
    judgments: Judgments,
    runs: Mapping[Any, Any],
    measures: Sequence[Measure | MeasureFunction],
    convention: Convention,
    *,
    run_format: str | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback = no_progress,
) -> dict[Any, Scores]:
    """Score runs by name; a run whose trials have different rankings gets the mean over its trials.

    Arguments are those of `compute_judged_ranks_by_name`.
    """
    trials = {name: readers.read_differing_trials(run) for name, run in runs.items()}
    single_runs = {name: run for name, run in runs.items() if not trials[name]}
    judged_ranks = compute_judged_ranks_by_name(
        judgments, single_runs, measures, convention, run_format=run_format, executor=executor, progress=progress
    )
    return {
        name: score_judged_ranks(judged_ranks[name], measures, convention)
        if name in judged_ranks
        else average_trials(score_trials(judgments, trials[name], measures, convention, name=name))
        for name in runs
    }


def score_trials(
    judgments: Judgments,
    trials: Iterable[Any],
    measures: Sequence[Measure | MeasureFunction],
    convention: Convention,
    *,
    name: str | None = None,
) -> list[Scores]:
    """Score each trial of a system; a trial is a run in any form that `evaluate` accepts."""
    return [
        score_judged_ranks(
            compute_judged_ranks(judgments, trial, measures, convention, name=name), measures, convention
        )
        for trial in trials
    ]


def average_trials(trials: Sequence[Scores]) -> Scores:
    """Average the scores of all trials into those of one run; the scores of a single trial are returned unchanged.

    The mean of a measure is the mean of its means per trial. A query without a value in any one trial has none. A
    query counts as returned only if it is in all trials.
    """
    first = trials[0]
    if len(trials) == 1:
        return first
    by_measure = {name: [trial.means[name] for trial in trials] for name in first.measures}
    values = {name: np.mean([trial.values[name] for trial in trials], axis=0) for name in first.measures}
    means = {name: float(np.mean(trial_means)) for name, trial_means in by_measure.items()}
    reasons = {
        name: {query: reason for trial in reversed(trials) for query, reason in trial.unscored[name].items()}
        for name in values
    }
    judged = first.judged
    if judged is not None:
        judged = replace(
            judged,
            answered=np.all([trial.judged.answered for trial in trials], axis=0),
            retrieved=np.max([trial.judged.retrieved for trial in trials], axis=0),
        )
    return replace(
        first,
        values=first._by_measure(values),
        means=first._by_measure(means),
        unscored=first._by_measure(reasons),
        notes=[
            *dict.fromkeys(note for trial in trials for note in trial.notes),
            _describe_trials(first.run, by_measure),
        ],
        failures={query: error for trial in reversed(trials) for query, error in trial.failures.items()},
        judged=judged,
        trial_means=by_measure,
    )


def _describe_trials(run: str, means: Mapping[str, Sequence[float]]) -> Note:
    """Describe the number of trials and the range of their means."""
    number = len(next(iter(means.values()), ()))
    ranges = [f"{name} {min(values):.4f} to {max(values):.4f}" for name, values in means.items()]
    text = f"mean over {number} trials, whose rankings differ ({join_names(ranges, MAX_NAMED_MEASURES)})"
    return Note(text, run, code=DIFFERING_TRIALS)


def default_run_measures(k: int) -> tuple[str, ...]:
    """Return the default measures of `run`.

    A k above RUN_CUTOFF does not change their cutoffs.

    >>> default_run_measures(100)
    ('ndcg@10', 'recall@10', 'mrr@10', 'hit_rate@10')
    """
    cutoff = min(k, RUN_CUTOFF)
    return tuple(f"{name}@{cutoff}" for name in ("ndcg", "recall", "mrr", "hit_rate"))


def default_measures(qrels: Any, runs: Iterable[Any]) -> tuple[str, ...]:
    """Return the measures to compute if none are given.

    Arrays of neighbour ids have their own.
    """
    return neighbour_arrays.neighbour_array_measures(qrels, list(runs)) or DEFAULT_MEASURES


def with_target_map(convention: Convention, qrels: Any, targets: Any = None) -> Convention:
    """Return the convention with `targets=map` if there is a target map, unless its user set `targets`.

    The presets swarm and graphflow take each document as its own target, because their code has no target map.
    """
    if convention.targets_stated or convention.targets == "map" or not readers.has_targets(qrels, targets):
        return convention
    return convention.but(targets="map")


def judgments_for_measures(
    measures: Sequence[Measure | MeasureFunction],
    qrels: Any,
    *,
    qrels_format: str | None = None,
    targets: Any = None,
    split: str | None = None,
) -> Judgments:
    """Read judgments with the subtopics and the target map that the measures need.

    Raises `BadInput` if a target map is given and no measure uses it.
    """
    needs_subtopics = any(isinstance(m, Measure) and m.spec.needs_subtopics for m in measures)
    if (
        needs_subtopics
        and qrels_format is None
        and isinstance(qrels, str | Path)
        and readers.detect_format(InputFile(str(qrels))) == "trec"
    ):
        qrels_format = "subtopics"
    if targets is not None and not any(_uses_targets(measure) for measure in measures):
        raise BadInput(
            f"a target map has no effect on these measures; expected dr@k or diversity_count@k, got "
            f"{', '.join(str(measure) if isinstance(measure, Measure) else measure.__name__ for measure in measures)}",
            hint="add a measure that uses it, such as dr@20, or remove the target map",
        )
    judgments = readers.read_judgments(qrels, format=qrels_format, split=split)
    if not len(judgments):
        raise BadInput("the judgments contain no query", file=judgments.source)
    return judgments if targets is None else judgments.with_targets(readers.read_targets(targets))


def parse_measures(
    measures: Measures, convention: Convention, *, trec: bool = False
) -> list[Measure | MeasureFunction]:
    """Parse measure names and keep functions, in input order, without duplicates."""
    requested: list[str | MeasureFunction] = (
        [measures] if isinstance(measures, str) or callable(measures) else list(measures)
    )
    if trec:
        return list(parse_measure_names([name for name in requested if isinstance(name, str)], convention, trec=True))
    out: list[Measure | MeasureFunction] = []
    for measure in requested:
        out.extend(parse_measure_names([measure], convention) if isinstance(measure, str) else [measure])
    return list(dict.fromkeys(out))


def compute_judged_ranks(
    judgments: Judgments,
    run: Any,
    measures: Sequence[Measure | MeasureFunction],
    convention: Convention,
    *,
    name: str | None = None,
    run_format: str | None = None,
) -> JudgedRanks:
    return compute_judged_ranks_by_name(judgments, {name: run}, measures, convention, run_format=run_format)[name]


def compute_judged_ranks_by_name(
    judgments: Judgments,
    runs: Mapping[Any, Any],
    measures: Sequence[Measure | MeasureFunction],
    convention: Convention,
    *,
    run_format: str | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback = no_progress,
) -> dict[Any, JudgedRanks]:
    """Compute the judged ranks of runs by name; the key None keeps a run's own name.

    An `executor` receives parts of whole queries, one run after the other. `progress` receives the number of rows
    processed of each run.
    """
    top = _first_documents_needed(measures)
    rules = {name: rules_for_rows(convention, readers.read_run_metadata(run)) for name, run in runs.items()}
    if executor is not None:
        opened_runs = {name: _open_run(name, run, run_format, convention) for name, run in runs.items()}
        ranks: dict[Any, JudgedRanks] = {}
        for rule in dict.fromkeys(rules.values()):
            same_rule = {name: opened_run for name, opened_run in opened_runs.items() if rules[name] == rule}
            ranks |= _rank_on_executor(judgments, same_rule, rule, top, executor, progress)
        return {name: _add_run_metadata(ranks[name], run, opened_runs[name], name) for name, run in runs.items()}
    judged_ranks: dict[Any, JudgedRanks] = {}
    for name, run in runs.items():  # one at a time, because some runs are loaded into memory when opened
        opened_run = _open_run(name, run, run_format, convention)
        judged_ranks[name] = _add_run_metadata(
            _rank_in_process(judgments, opened_run, rules[name], top, name, progress), run, opened_run, name
        )
    return judged_ranks


def _first_documents_needed(measures: Sequence[Measure | MeasureFunction]) -> int:
    """Return the number of first documents per query that the measures need."""
    cutoffs = [int(m.cutoff or 0) for m in measures if isinstance(m, Measure) and _needs_documents(m)]
    # If duplicates are dropped before the cutoff, documents from far below can move above it.
    return 0 if not cutoffs else max(cutoffs) if not any(map(_deduplicates_before_cutoff, measures)) else 1 << 31


def _open_run(name: Any, run: Any, run_format: str | None, convention: Convention) -> RunFrames | ScoresByQuery:
    return readers.open_run_lazily(run, format=run_format, name=name or "run", with_ranks=convention.ties == "ranked")


def _rank_in_process(
    judgments: Judgments,
    opened_run: RunFrames | ScoresByQuery,
    convention: Convention,
    top: int,
    name: Any,
    progress: ProgressCallback,
) -> JudgedRanks:
    if isinstance(opened_run, Mapping):
        from ragauge.measures import judged_ranks_from_dicts

        return judged_ranks_from_dicts.compute_ranks_from_dicts(
            judgments, opened_run, convention, top=top, name=name or "run"
        )
    from ragauge.measures import judged_ranks_from_frames

    return judged_ranks_from_frames.compute_ranks_from_frames(
        judgments, opened_run, convention, top=top, progress=scoped(progress, subject=name or opened_run.name)
    )


def _rank_on_executor(
    judgments: Judgments,
    opened_runs: Mapping[Any, RunFrames | ScoresByQuery],
    convention: Convention,
    top: int,
    executor: Executor,
    progress: ProgressCallback,
) -> dict[Any, JudgedRanks]:
    """Compute judged ranks on an executor, in parts that are merged."""
    from ragauge.measures.judged_ranks_from_frames import FrameRanker, split_run

    ranker = FrameRanker(judgments, convention, top)
    tables = {name: _to_retrieved(opened_run, name) for name, opened_run in opened_runs.items()}
    partial_ranks: dict[Any, list[PartialRanks]] = {name: [] for name in tables}
    counted_rows = dict.fromkeys(tables, 0)
    owners: list[Any] = []

    def parts() -> Iterator[RunFrames]:
        for name, table in tables.items():
            for part in split_run(table):
                owners.append(name)
                yield part

    heavy = not all(isinstance(table, ParquetRun) for table in tables.values())
    for i, part_ranks in enumerate(map_ordered(executor, ranker, parts(), heavy=heavy)):
        name = owners[i]
        partial_ranks[name].append(part_ranks)
        counted_rows[name] += part_ranks.rows
        progress(Progress("scoring", counted_rows[name], subject=name or tables[name].name))
    judged_ranks = {name: ranker.merge_partial_ranks(table, partial_ranks[name]) for name, table in tables.items()}
    for name, opened_run in opened_runs.items():
        if isinstance(opened_run, Mapping):  # a query without documents has no rows, but the run contains it
            answered = np.array([query in opened_run for query in judgments.pool.queries], np.bool_)
            judged_ranks[name] = replace(
                judged_ranks[name],
                answered=answered,
                unjudged_queries=find_unjudged_queries(opened_run, judgments),
            )
    return judged_ranks


def _to_retrieved(opened_run: RunFrames | ScoresByQuery, name: Any) -> RunFrames:
    return Run(to_run_table(opened_run), name or "run") if isinstance(opened_run, Mapping) else opened_run


def _add_run_metadata(judged: JudgedRanks, run: Any, opened_run: RunFrames | ScoresByQuery, name: Any) -> JudgedRanks:
    """Add what the run records besides its rows.

    Empty rankings and failures count in the mean.
    """
    if isinstance(opened_run, Mapping):
        return judged
    metadata = readers.read_run_metadata(run)
    timings = readers.read_timings(run) if metadata is None else metadata.timings
    answered = judged.answered
    failures: Mapping[str, str] = {}
    unjudged_queries = judged.unjudged_queries
    if timings is not None:
        recorded_queries, failed = dict.fromkeys(timings["query"].to_list()), failed_queries(timings)
        unjudged_queries = find_unjudged_queries(recorded_queries, judged.judgments)
        answered = answered | np.array([query in recorded_queries for query in judged.pool.queries], np.bool_)
        failures = {query: failed[query] for query in judged.pool.queries if query in failed} if failed else {}
    return replace(
        judged,
        name=name or judged.name,
        tag=opened_run.tag if isinstance(opened_run, TrecRun) else "",
        answered=answered,
        failures=failures,
        unjudged_queries=unjudged_queries,
        depth=None if metadata is None else defined_depth(metadata),
    )


def _needs_documents(measure: Measure) -> bool:
    return measure.spec.needs_top or dict(measure.options).get("of") == "eps"


def _uses_targets(measure: Measure | MeasureFunction) -> bool:
    return not isinstance(measure, Measure) or "targets" in measure.spec.options


def _deduplicates_before_cutoff(measure: Measure | MeasureFunction) -> bool:
    return isinstance(measure, Measure) and dict(measure.options).get("dedupe") == "before"
