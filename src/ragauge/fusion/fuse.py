"""Fuse several runs into one, and tune the parameters of a fusion method under cross-validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from ragauge.core.errors import BadInput
from ragauge.core.records import Judgments, Run, ScoresByQuery
from ragauge.evaluation.evaluate import evaluate, parse_measures, with_target_map
from ragauge.files import readers
from ragauge.files.in_memory import is_single_run, to_run_table
from ragauge.files.source import InputFile
from ragauge.fusion.methods import ParameterValue, find_method
from ragauge.fusion.query_fusion import fuse_runs
from ragauge.fusion.trained_methods import TrainedFusion
from ragauge.fusion.tuning import TunedFusion, TuningOptions, cross_validate
from ragauge.measures.conventions import Convention, find_convention


def fuse(
    runs: Any,
    method: str = "rrf",
    norm: str | None = None,
    weights: Sequence[float] | None = None,
    *,
    trained: TrainedFusion | None = None,
    depth: int | None = None,
    **params: ParameterValue,
) -> Run:
    """Fuse several runs into one.

    Runs are paths, dictionaries, frames or records, in a list or by name in a mapping. `METHODS` and
    `NORMALISATIONS` list the methods and normalisations. Parameters of the method are keyword arguments.

    >>> fuse([{"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 0.9}}], k=1).nested
    {'q': {'b': 0.8333333333333333, 'a': 0.5}}
    """
    scores_by_run = read_runs(runs)
    if weights is not None:
        params["weights"] = weights
    fused = fuse_runs(list(scores_by_run.values()), method, norm, trained=trained, depth=depth, **params)
    return build_fused_run(fused, method, scores_by_run)


def tune(
    qrels: Any,
    runs: Any,
    method: str = "wsum",
    norm: str | None = None,
    measure: str = "ndcg@10",
    convention: str | Convention = "default",
    targets: Any = None,
    **options: Unpack[TuningOptions],
) -> TunedFusion:
    """Choose a method's parameters, or train it, under cross-validation.

    `TunedFusion.run` is fused with parameters chosen on other queries, so its score is an estimate for new queries.
    `TunedFusion.params` are the parameters to use for new queries. `TuningOptions` are the number of folds, the seed,
    the grid, and the depth of the fused run. `targets` is a target map for `dr@k`, if the judgments have none.
    """
    judgments = readers.read_judgments(qrels)
    if targets is not None:
        judgments = judgments.with_targets(readers.read_targets(targets))
    scores_by_run = read_runs(runs)
    if not any(query in run for run in scores_by_run.values() for query in judgments.nested):
        queries = next((query for run in scores_by_run.values() for query in run), "none")
        raise BadInput(
            f"the runs and the judgments share no query: the judgments have `{next(iter(judgments.nested), 'none')}`, "
            f"the runs `{queries}`",
            file=judgments.source,
            hint="pass the judgments of the queries of these runs",
        )
    rules = with_target_map(find_convention(convention), judgments)
    measure_name = _parse_single_measure(measure, rules)

    def score(fused: ScoresByQuery) -> Mapping[str, float]:
        # Only the judgments of these queries, so that a query that was not fused does not score 0.
        grades = {query: judgments.nested[query] for query in fused}
        fused_judgments = Judgments(grades, targets=judgments.targets, source=judgments.source)
        values: Mapping[str, float] = evaluate(fused_judgments, fused, measure_name, rules).per_query[measure_name]
        return values

    return cross_validate(
        list(scores_by_run.values()),
        judgments.nested,
        method,
        norm,
        score=score,
        rel=rules.rel,
        **options,
    )


def _parse_single_measure(measure: str, convention: Convention) -> str:
    names = list(map(str, parse_measures(measure, convention)))
    if len(names) != 1:
        raise BadInput(f"tuning needs one measure, got {len(names)}: `{measure}`", hint="use ndcg@10")
    return names[0]


def build_fused_run(fused: ScoresByQuery, method: str, names: Mapping[str, Any]) -> Run:
    """Build the record of a fused run, named like `rrf(bm25+dense)`."""
    return Run(to_run_table(fused), f"{find_method(method).name}({'+'.join(names)})")


def read_runs(runs: Any) -> dict[str, ScoresByQuery]:
    """Read runs by name: the key of the mapping, the file or the record.

    A run without a name gets its number. A repeated name gets its number as a suffix.
    """
    if isinstance(runs, Mapping):
        if is_single_run(runs):
            raise BadInput("fusing needs a list of runs, got one run", hint="use fuse([bm25, dense])")
        named_runs = [(str(name), run) for name, run in runs.items()]
    elif isinstance(runs, str | Path | Run):
        raise BadInput("fusing needs a list of runs, got one run", hint="use fuse([bm25, dense])")
    else:
        named_runs = [(_run_name(run, i), run) for i, run in enumerate(runs, 1)]
    scores_by_run: dict[str, ScoresByQuery] = {}
    for i, (name, run) in enumerate(named_runs, 1):
        scores_by_run[name if name not in scores_by_run else f"{name}.{i}"] = _nested_scores(run, name)
    return scores_by_run


def _run_name(run: Any, at: int) -> str:
    if isinstance(run, str | Path):
        return InputFile(str(run)).stem
    name = getattr(run, "name", None)
    return name if isinstance(name, str) and name not in ("", "run") else str(at)


def _nested_scores(run: Any, name: str) -> ScoresByQuery:
    """Return a run as `{query: {document: score}}`.

    Raises `BadInput` for duplicate documents.
    """
    opened_run = readers.open_run_lazily(run, name=name)
    if isinstance(opened_run, Mapping):
        return opened_run
    whole_run = readers.read_run(opened_run)
    nested = whole_run.nested
    made_by = readers.read_run_metadata(run)
    refuses_repeats = made_by is None or not made_by.rows_are_hits  # The first hit is fused.
    if refuses_repeats and sum(map(len, nested.values())) < whole_run.table.height:
        duplicates = whole_run.table.filter(whole_run.table.select("query", "doc").is_duplicated())
        query, document = duplicates["query"][0], duplicates["doc"][0]
        raise BadInput(
            f"document `{document}` appears more than once in the ranking of query `{query}`",
            file=name,
            hint="`ragauge validate` lists such rows",
        )
    return nested
