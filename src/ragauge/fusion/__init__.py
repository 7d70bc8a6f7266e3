"""Fuse several runs into one, and tune the parameters of a fusion method under cross-validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput
from ragauge.core.records import Judgments, Run, ScoresByQuery
from ragauge.evaluation import evaluate, parse_measures
from ragauge.files import readers
from ragauge.files.in_memory import is_single_run, to_run_table
from ragauge.files.source import InputFile
from ragauge.fusion.methods import find_method
from ragauge.fusion.query_fusion import fuse_runs
from ragauge.fusion.trained_methods import TrainedFusion
from ragauge.fusion.tuning import ParameterGrid, TunedFusion, cross_validate
from ragauge.measures.conventions import Convention, find_convention


def fuse(
    runs: Any,
    method: str = "rrf",
    norm: str | None = None,
    weights: Sequence[float] | None = None,
    *,
    trained: TrainedFusion | None = None,
    depth: int | None = None,
    **params: Any,
) -> Run:
    """Fuse several runs into one.

    Runs are paths, dictionaries, frames or records, in a list or by name in a mapping. `METHODS` and
    `NORMALISATIONS` list the methods and normalisations. Parameters of the method are keyword arguments.

    >>> fuse([{"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 0.9}}], k=1).nested
    {'q': {'b': 0.8333333333333333, 'a': 0.5}}
    """
    found = read_runs(runs)
    if weights is not None:
        params["weights"] = weights
    fused = fuse_runs(list(found.values()), method, norm, trained=trained, depth=depth, **params)
    return build_fused_run(fused, method, found)


def tune(  # noqa: PLR0913 - each is one choice of the experiment
    qrels: Any,
    runs: Any,
    method: str = "wsum",
    norm: str | None = None,
    measure: str = "ndcg@10",
    convention: str | Convention = "default",
    *,
    folds: int = 5,
    seed: int = 0,
    grid: ParameterGrid | None = None,
    depth: int | None = None,
) -> TunedFusion:
    """Choose a method's parameters, or train it, under cross-validation.

    `TunedFusion.run` is fused with parameters chosen on other queries, so its score is an estimate for new queries.
    `TunedFusion.params` are the parameters to use for new queries.
    """
    judgments = readers.read_judgments(qrels)
    found = read_runs(runs)
    rules = find_convention(convention)
    wanted = _parse_single_measure(measure, rules)

    def score(fused: ScoresByQuery) -> Mapping[str, float]:
        # Only the judgments of these queries, so that a query that was not fused does not score 0.
        asked = Judgments({query: judgments.nested[query] for query in fused}, source=judgments.source)
        values: Mapping[str, float] = evaluate(asked, fused, wanted, rules).per_query[wanted]
        return values

    return cross_validate(
        list(found.values()),
        judgments.nested,
        method,
        norm,
        score=score,
        folds=folds,
        seed=seed,
        grid=grid,
        depth=depth,
        rel=rules.rel,
    )


def _parse_single_measure(measure: str, rules: Convention) -> str:
    found = list(map(str, parse_measures(measure, rules)))
    if len(found) != 1:
        raise BadInput(f"`{measure}` is {len(found)} measures, and tuning goes by one", hint="ndcg@10")
    return found[0]


def build_fused_run(fused: ScoresByQuery, method: str, names: Mapping[str, Any]) -> Run:
    """Build the record of a fused run, named like `rrf(bm25+dense)`."""
    return Run(to_run_table(fused), f"{find_method(method).name}({'+'.join(names)})")


def read_runs(runs: Any) -> dict[str, ScoresByQuery]:
    """Read runs by name: the key of the mapping, the file or the record.

    A run without a name gets its number. A repeated name gets its number as a suffix.
    """
    if isinstance(runs, Mapping):
        if is_single_run(runs):
            raise BadInput("this is one run, and fusing needs a list of them", hint="fuse([bm25, dense])")
        given = [(str(name), run) for name, run in runs.items()]
    elif isinstance(runs, str | Path | Run):
        raise BadInput("this is one run, and fusing needs a list of them", hint="fuse([bm25, dense])")
    else:
        given = [(_run_name(run, at), run) for at, run in enumerate(runs, 1)]
    found: dict[str, ScoresByQuery] = {}
    for at, (name, run) in enumerate(given, 1):
        found[name if name not in found else f"{name}.{at}"] = _nested_scores(run, name)
    return found


def _run_name(run: Any, at: int) -> str:
    if isinstance(run, str | Path):
        return InputFile(str(run)).stem
    name = getattr(run, "name", None)
    return name if isinstance(name, str) and name not in ("", "run") else str(at)


def _nested_scores(run: Any, name: str) -> ScoresByQuery:
    """Return a run as `{query: {document: score}}`.

    Raises `BadInput` for duplicate documents.
    """
    found = readers.open_run_lazily(run, name=name)
    if isinstance(found, Mapping):
        return found
    whole = readers.read_run(found)
    nested = whole.nested
    if sum(map(len, nested.values())) < whole.table.height:
        again = whole.table.filter(whole.table.select("query", "doc").is_duplicated())
        raise BadInput(
            f"document `{again['doc'][0]}` stands twice in the ranking of query `{again['query'][0]}`",
            file=name,
            hint="`ragauge validate` lists such rows",
        )
    return nested
