"""Evaluation of runs: read judgments and runs, compute judged ranks, and score them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.compute.executors import map_ordered
from ragauge.core.errors import BadInput, failed_queries
from ragauge.core.records import Judgments, Run, RunFrames, ScoresByQuery
from ragauge.files import neighbour_arrays, readers
from ragauge.files.in_memory import is_single_run, to_run_table
from ragauge.files.source import InputFile
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.judged_ranks import JudgedRanks, PartialRanks, defined_depth
from ragauge.measures.names import Measure, parse_measure_names
from ragauge.measures.scoring import MeasureFunction, score_judged_ranks

DEFAULT_MEASURES = ("ndcg@10", "recall@100", "map", "mrr", "precision@10")
RUN_CUTOFF = 10
"""Cutoff of the default measures of `run`, unless k is smaller."""
Measures = str | MeasureFunction | Iterable[str | MeasureFunction]
RowProgressCallback = Callable[[str, int], None]
"""Progress callback with the name of a run and the number of its rows processed."""


def evaluate(
    qrels: Any,
    run: Any,
    measures: Measures = DEFAULT_MEASURES,
    convention: str | Convention = "default",
    *,
    targets: Any = None,
    qrels_format: str | None = None,
    run_format: str | None = None,
    executor: Executor | None = None,
) -> Any:
    """Score a run, or several by name, with judgments.

    `qrels` and `run` may be paths (`-` is standard input), nested dictionaries, frames, lists of tuples, arrays or
    records. A mapping from names to runs returns a dictionary of scores. Arrays of neighbour ids with one row per
    query (also `.ivecs`, `.ibin` and `.npy` files) are scored by recall(of=k) unless measures are given. `targets`
    is a target map for `dr@k`. File formats are detected unless given. An `executor` (from `concurrent.futures`, or
    Dask's) scores runs in parts of whole queries, with equal results.

    >>> evaluate({"q1": {"a": 1}}, {"q1": {"b": 0.9, "a": 0.4}}, ["mrr", "recall@1"]).means
    {'mrr': 0.5, 'recall@1': 0.0}
    """
    rules = find_convention(convention)
    several = isinstance(run, Mapping) and not is_single_run(run)
    runs: Mapping[Any, Any] = run if several else {None: run}
    neighbour_arrays.check_row_counts(qrels, runs.values())
    if measures is DEFAULT_MEASURES:
        measures = default_measures(qrels, runs.values())
    wanted = parse_measures(measures, rules)
    judgments = judgments_for_measures(wanted, qrels, form=qrels_format, targets=targets)
    counted = compute_judged_ranks_by_name(judgments, runs, wanted, rules, form=run_format, executor=executor)
    scores = {name: score_judged_ranks(judged, wanted, rules) for name, judged in counted.items()}
    return scores if several else scores[None]


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
    return neighbour_arrays.default_measures(qrels, list(runs)) or DEFAULT_MEASURES


def judgments_for_measures(
    measures: Sequence[Measure | MeasureFunction],
    qrels: Any,
    *,
    form: str | None = None,
    targets: Any = None,
    split: str | None = None,
) -> Judgments:
    """Read judgments with the subtopics and the target map that the measures need.

    Raises `BadInput` if a target map is given and no measure uses it.
    """
    asks = any(isinstance(m, Measure) and m.spec.needs_subtopics for m in measures)
    if (
        asks
        and form is None
        and isinstance(qrels, str | Path)
        and readers.detect_format(InputFile(str(qrels))) == "trec"
    ):
        form = "subtopics"
    if targets is not None and not any(_uses_targets(one) for one in measures):
        raise BadInput(
            f"a target map has no effect on these measures; expected dr@k or diversity_count@k, got "
            f"{', '.join(str(one) if isinstance(one, Measure) else one.__name__ for one in measures)}",
            hint="add a measure that uses it, such as dr@20, or remove the target map",
        )
    judgments = readers.read_judgments(qrels, format=form, split=split)
    if not len(judgments):
        raise BadInput("the judgments have no query", file=judgments.source)
    return judgments if targets is None else judgments.with_targets(readers.read_targets(targets))


def parse_measures(measures: Measures, rules: Convention, *, trec: bool = False) -> list[Measure | MeasureFunction]:
    """Parse measure names and keep functions, in input order, without duplicates."""
    given: list[str | MeasureFunction] = (
        [measures] if isinstance(measures, str) or callable(measures) else list(measures)
    )
    if trec:
        return list(parse_measure_names([name for name in given if isinstance(name, str)], rules, trec=True))
    out: list[Measure | MeasureFunction] = []
    for one in given:
        out.extend(parse_measure_names([one], rules) if isinstance(one, str) else [one])
    return list(dict.fromkeys(out))


def compute_judged_ranks(
    judgments: Judgments,
    run: Any,
    measures: Sequence[Measure | MeasureFunction],
    rules: Convention,
    *,
    name: str | None = None,
    form: str | None = None,
) -> JudgedRanks:
    """Compute the judged ranks of one run."""
    return compute_judged_ranks_by_name(judgments, {name: run}, measures, rules, form=form)[name]


def compute_judged_ranks_by_name(
    judgments: Judgments,
    runs: Mapping[Any, Any],
    measures: Sequence[Measure | MeasureFunction],
    rules: Convention,
    *,
    form: str | None = None,
    executor: Executor | None = None,
    watch: RowProgressCallback | None = None,
) -> dict[Any, JudgedRanks]:
    """Compute the judged ranks of runs by name; the key None keeps a run's own name.

    An `executor` receives parts of whole queries, one run after the other. `watch` receives the number of rows
    processed of each run.
    """
    top, heard = _first_documents_needed(measures), watch or _ignore_progress
    if executor is not None:
        found = {name: _open_run(name, run, form, rules) for name, run in runs.items()}
        ranks = _rank_on_executor(judgments, found, rules, top, executor, heard)
        return {name: _add_run_metadata(ranks[name], run, found[name], name) for name, run in runs.items()}
    counted: dict[Any, JudgedRanks] = {}
    for name, run in runs.items():  # one at a time, because some runs are loaded into memory when opened
        one = _open_run(name, run, form, rules)
        counted[name] = _add_run_metadata(_rank_in_process(judgments, one, rules, top, name, heard), run, one, name)
    return counted


def _first_documents_needed(measures: Sequence[Measure | MeasureFunction]) -> int:
    """Return the number of first documents per query that the measures need."""
    deep = [int(m.cutoff or 0) for m in measures if isinstance(m, Measure) and _needs_documents(m)]
    # If duplicates are dropped before the cutoff, documents from far below can move above it.
    return 0 if not deep else max(deep) if not any(map(_deduplicates_before_cutoff, measures)) else 1 << 31


def _open_run(name: Any, run: Any, form: str | None, rules: Convention) -> RunFrames | ScoresByQuery:
    return readers.open_run_lazily(run, format=form, name=name or "run", with_ranks=rules.ties == "ranked")


def _rank_in_process(
    judgments: Judgments,
    found: RunFrames | ScoresByQuery,
    rules: Convention,
    top: int,
    name: Any,
    watch: RowProgressCallback,
) -> JudgedRanks:
    if isinstance(found, Mapping):
        from ragauge.measures import judged_ranks_from_dicts

        return judged_ranks_from_dicts.compute_ranks_from_dicts(judgments, found, rules, top=top, name=name or "run")
    from ragauge.measures import judged_ranks_from_frames

    return judged_ranks_from_frames.compute_ranks_from_frames(
        judgments, found, rules, top=top, watch=partial(watch, name or found.name)
    )


def _rank_on_executor(
    judgments: Judgments,
    found: Mapping[Any, RunFrames | ScoresByQuery],
    rules: Convention,
    top: int,
    executor: Executor,
    watch: RowProgressCallback,
) -> dict[Any, JudgedRanks]:
    """Compute judged ranks on an executor, in parts that are merged."""
    from ragauge.measures.judged_ranks_from_frames import FrameRanker, split_run

    counting = FrameRanker(judgments, rules, top)
    tables = {name: _to_retrieved(one, name) for name, one in found.items()}
    tallies: dict[Any, list[PartialRanks]] = {name: [] for name in tables}
    counted_rows = dict.fromkeys(tables, 0)
    owners: list[Any] = []

    def parts() -> Iterator[RunFrames]:
        for name, table in tables.items():
            for part in split_run(table):
                owners.append(name)
                yield part

    heavy = not all(hasattr(table, "parts") for table in tables.values())
    for place, tally in enumerate(map_ordered(executor, counting, parts(), heavy=heavy)):
        name = owners[place]
        tallies[name].append(tally)
        counted_rows[name] += tally.rows
        watch(name or tables[name].name, counted_rows[name])
    counted = {name: counting.whole(table, tallies[name]) for name, table in tables.items()}
    for name, one in found.items():
        if isinstance(one, Mapping):  # a query without documents has no rows, but the run contains it
            answered = np.array([query in one for query in judgments.pool.queries], np.bool_)
            counted[name] = replace(counted[name], answered=answered, extra_queries=len(one) - int(answered.sum()))
    return counted


def _to_retrieved(found: RunFrames | ScoresByQuery, name: Any) -> RunFrames:
    return Run(to_run_table(found), name or "run") if isinstance(found, Mapping) else found


def _add_run_metadata(judged: JudgedRanks, run: Any, found: RunFrames | ScoresByQuery, name: Any) -> JudgedRanks:
    """Add what the run records besides its rows.

    Empty rankings and failures count in the mean.
    """
    if isinstance(found, Mapping):
        return judged
    made = readers.read_run_metadata(run)
    timings = readers.read_timings(run) if made is None else made.timings
    answered = judged.answered
    failures: Mapping[str, str] = {}
    if timings is not None:
        asked, failed = set(timings["query"].to_list()), failed_queries(timings)
        answered = answered | np.array([query in asked for query in judged.pool.queries], np.bool_)
        failures = {query: failed[query] for query in judged.pool.queries if query in failed} if failed else {}
    return replace(
        judged,
        name=name or judged.name,
        tag=getattr(found, "tag", ""),
        answered=answered,
        failures=failures,
        depth=None if made is None else defined_depth(made),
    )


def _ignore_progress(_: str, __: int) -> None:
    """Ignore the progress of a run."""


def _needs_documents(measure: Measure) -> bool:
    return measure.spec.needs_top or dict(measure.options).get("of") == "eps"


def _uses_targets(measure: Measure | MeasureFunction) -> bool:
    return not isinstance(measure, Measure) or "targets" in measure.spec.options


def _deduplicates_before_cutoff(measure: Measure | MeasureFunction) -> bool:
    return isinstance(measure, Measure) and dict(measure.options).get("dedupe") == "before"
