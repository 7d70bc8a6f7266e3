"""The verb `bench`: vectors, their exact neighbours, every store in its own process, and what is made of it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragauge.benches.collections import collection
from ragauge.benches.frontier import cost, placed
from ragauge.benches.measuring import Measuring, Relevance
from ragauge.benches.plan import Job, Plan, jobs
from ragauge.benches.sweep import Progress, Sweeping, alone
from ragauge.benches.truth import truth as exactly
from ragauge.errors import BadInput, MissingEvidence
from ragauge.records import Dataset, Ints
from ragauge.runs.manifest import circumstances, now
from ragauge.sweeps import Point, Sweep, VectorSet, representative
from ragauge.systems.cache import cache_folder
from ragauge.verbs import evaluate

STORES = ("exact", "faiss:kind=hnsw", "faiss:kind=ivf", "usearch")
"""What is measured where no store is named."""
DEPTH = 100
"""How many true neighbours are known of every query, as in the usual collections."""
ABOUT_DATA = ("metric", "embedder", "limit", "queries")


def bench(  # noqa: PLR0913 - each says something else about what is measured
    data: str | Path | Dataset | VectorSet = "clustered",
    stores: str | Sequence[str] = STORES,
    *,
    folder: str | Path | None = None,
    keep: bool = False,
    judgments: bool | Sequence[str] = False,
    price: float | None = None,
    truth: str = "auto",
    executor: Executor | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Sweep:
    """Measure vector stores on the same vectors: recall, speed, load, size, over a sweep of their options.

    `data` is a file or folder of vectors, a dataset (embedded by `embedder`), or `clustered`; `metric`, `embedder`,
    `limit`, `queries` and `seed` say more about it. `stores` are written `faiss:kind=hnsw,ef_search=10+40`. All other
    settings are those of `ragauge.benches.plan.Plan`: `k`, `threads`, `repeats`, `clients`, `rates`, `filters` …

    Each result is kept in `folder`, and the same call goes on where it was stopped; the stores themselves only with
    `keep`. `judgments` scores the same searches by what people found relevant, by nDCG and hit rate or by the measures
    that it names; `price` is that of one such thread for an hour. `truth` is what finds the exact neighbours: `numpy`,
    `faiss`, `torch` (on a graphics card), or whichever suits; with an `executor` they are found there. The stores are
    measured here whatever it is: the clocks of several machines cannot be compared.
    """
    about = {name: settings.pop(name) for name in ABOUT_DATA if name in settings}
    plan = Plan.of(settings)
    if price is not None and not price > 0:
        raise BadInput(f"a price of {price:g} an hour tells nothing")
    wanted = jobs([stores] if isinstance(stores, str) else list(stores), plan)
    if not wanted:
        raise BadInput("no store is asked for", hint="--store hnswlib")
    vectors = collection(data, seed=plan.seed, **about)
    if truth != "auto":
        vectors = replace(vectors, neighbours=None)  # whoever says how they are found does not want those of others
    if plan.k > len(vectors.base):
        raise BadInput(f"k is {plan.k}, and {vectors.name} has {len(vectors.base)} vectors")
    measures = [f"ndcg@{plan.k}", f"hit_rate@{plan.k}"] if judgments is True else list(judgments or ())
    if measures and vectors.judgments is None:
        hint = "take a dataset with an embedder: bench pydocs --judgments"
        raise MissingEvidence(f"{vectors.name} has no judgments of people", hint=hint)
    with ExitStack() as after:
        if folder is None:
            folder = after.enter_context(tempfile.TemporaryDirectory(prefix="ragauge-bench-"))
        tell = progress or _silent
        depth = min(max(DEPTH, plan.k), len(vectors.base))
        true = exactly(
            vectors,
            depth,
            by=truth,
            cache=cache_folder(),
            executor=executor,
            progress=lambda done, total: tell("exact neighbours", done, total),
        )
        after.enter_context(alone(Path(folder)))
        work = Sweeping(vectors, plan, Path(folder), tell)
        for number, job in enumerate(wanted):
            tell("stores", number, len(wanted))
            work.built(job)
        measuring = Measuring(vectors, true, plan, _relevance(vectors, measures) if measures else None)
        found = list(measuring.points(wanted, work))
        points = [one for _, one in found]
        chosen = _chosen(points, measuring.recall) if plan.more else []
        for number, place in enumerate(chosen):
            tell("load, filters, changes", number, len(chosen))
            points[place] = _more(points[place], found[place][0], work, measuring)
        if price is not None:
            points = [replace(one, cost_per_million=cost(one.qps, price)) for one in points]
        if not keep:
            work.clear(wanted)
    return placed(
        Sweep(
            data=vectors.name,
            vectors=len(vectors.base),
            dimension=int(vectors.base.shape[1]),
            queries=len(vectors.queries),
            metric=vectors.metric,
            k=plan.k,
            points=points,
            recall=measuring.recall,
            failures=work.failures,
            truth=true.by,
            threads=plan.threads,
            repeats=plan.repeats,
            circumstances={"made": now(), **circumstances(), "vectors_hash": vectors.hash, "seed": plan.seed},
            notes=[*vectors.notes, *true.notes],
        )
    )


def _silent(what: str, done: int, total: int) -> None:
    """Nobody looks on."""


def _chosen(points: Sequence[Point], recall: str) -> list[int]:
    """The places of the points that stand for their stores."""
    series: dict[str, list[Point]] = {}
    for one in points:
        # The harness itself is put under load only to be seen misbehaving as it was told to.
        if not one.is_floor or one.configuration.search:
            series.setdefault(one.configuration.series, []).append(one)
    chosen = [representative(some, recall) for some in series.values()]
    return [place for place, one in enumerate(points) if any(one is other for other in chosen)]


def _more(point: Point, job: Job, work: Sweeping, measuring: Measuring) -> Point:
    """The same point with all that is asked for besides searching alone, and what its store cannot do of it."""
    plan, search = work.plan, point.configuration.search
    notes = list(point.notes)
    able = set(work.about(job).get("abilities", ()))
    if plan.clients or plan.rates or plan.shares:
        if work.kept(job):
            point = replace(point, loads=measuring.loads(work.more(job, search, "load")))
        else:
            notes.append("cannot be opened again: not put under load")
    if plan.filters and "filter" in able:
        point = replace(point, filters=measuring.filters(work.more(job, search, "filters")))
    elif plan.filters:
        notes.append("cannot filter")
    if plan.changes or plan.mixed:
        if able & {"insert", "update", "delete"}:
            piece = work.more(job, search, "changes")
            point = replace(point, changes=measuring.changes(piece), mixed=measuring.mixed(piece))
        notes += [f"cannot {one}" for one in ("insert", "update", "delete") if one not in able]
    return replace(point, notes=notes)


def _relevance(data: VectorSet, measures: Sequence[str]) -> Relevance:
    """What found rows are worth to the people who judged the documents that they stand for."""
    grades = {} if data.judgments is None else data.judgments.nested
    judged = {query: grades[query] for query in data.query_ids if query in grades}

    def scored(positions: Ints) -> dict[str, float]:
        run = {
            query: {data.ids[place]: float(-rank) for rank, place in enumerate(row) if place >= 0}
            for query, row in zip(data.query_ids, positions.tolist(), strict=True)
        }
        return dict(evaluate(judged, run, list(measures)).means)

    return scored
