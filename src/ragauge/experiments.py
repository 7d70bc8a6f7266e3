"""The verb `run`: systems answer the queries of a dataset, and what comes of it is measured and kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragauge.comparing import compare
from ragauge.comparisons import Comparison
from ragauge.datasets.loading import load
from ragauge.errors import BadInput, RagaugeError, UnknownName
from ragauge.formats.settings import as_record
from ragauge.formats.writing import write_judgments, write_queries
from ragauge.measures.conventions import Convention
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import OwnMeasure, score
from ragauge.measures.speed import speed
from ragauge.outcomes import Experiment
from ragauge.records import Dataset, Judgments, Run
from ragauge.runs import archive
from ragauge.runs.execute import Plan
from ragauge.runs.manifest import fingerprint
from ragauge.systems.building import Workshop
from ragauge.systems.cache import cache_folder
from ragauge.verbs import Measures, count, judgments_for, read_measures
from ragauge.work import Unwatched, Watch, Work

RESERVED = (
    *("report.html", "report.md", "summary.csv", "scores.csv", "charts"),
    *("judgments.parquet", "queries.parquet", archive.EXPERIMENT),
)
"""What stands beside the runs in a folder."""


def run(  # noqa: PLR0913 - each has a use of its own, and a default
    dataset: str | Path | Dataset,
    systems: Any,
    *,
    measures: Measures | None = None,
    baseline: str | None = None,
    convention: str | Convention = "default",
    out: str | Path | None = None,
    fresh: bool = False,
    split: str | None = None,
    limit: int | None = None,
    watch: Watch | None = None,
    **how: Any,
) -> Experiment:
    """Let systems answer the queries of a dataset; time, score and compare them.

    `systems` is a mapping from names to descriptions (`"bm25"`, `"dense(embedder=minilm)"`), functions `(query, k)`,
    sync or async, or retrievers; a list of descriptions names itself. `how` is k, repeats, warmup, workers, timeout and
    retries; `split` is which judgments of a BEIR folder, `limit` asks the first so many queries only. With `out`, every
    answer is on disk at once, and the same call goes on where the last one stopped. A system that cannot be built is
    left out, and `failures` says why; when none can, the first reason is raised.
    """
    whole = load(dataset, split=split)
    data, notes = _asked(whole, limit)
    not_asked = len(whole.judgments) - len(data.judgments)
    rules = find_convention(convention)
    plan, wanted = _measured(how, measures, rules)
    named = _named(systems)
    if baseline is not None and baseline not in named:
        raise UnknownName("system", baseline, named, hint="the baseline is one of the systems")
    judgments = judgments_for(wanted, data.judgments)
    folder = None if out is None else Path(out)
    look = watch or Unwatched()
    workshop = Workshop(data.documents, named, cache=cache_folder(), progress=look.building)
    for system in named.values():
        workshop.check(system)
    known = fingerprint(data)
    runs: dict[str, Run] = {}
    failures: dict[str, RagaugeError] = {}
    try:
        for name, system in named.items():
            place = folder and folder / slug(name)
            work = Work(name, system, data, plan, known, workshop, place, look, not_asked)
            try:
                runs[name] = work.done(fresh=fresh)
            except RagaugeError as error:
                error.message = f"{name}: {error.message}"
                failures[name] = error
            own = work.own
    finally:
        workshop.close()
    if not runs:
        raise next(iter(failures.values()))
    if own:
        notes.append(f"{len(own)} queries are themselves documents: each is left out of its own ranking")
    scores = {name: score(count(judgments, one, wanted, rules, name=name), wanted, rules) for name, one in runs.items()}
    speeds = {name: speed(one.timings) for name, one in runs.items() if one.timings is not None}
    compared = next(iter(scores.values())).measures[0]
    gaps: dict[str, Comparison] = {}
    if baseline in scores and len(scores) > 1:
        found = compare(scores, baseline, measures=compared, count_missing=True)
        gaps = {row.system: row for row in found}
    notes += [note for one in runs.values() for note in one.manifest.get("notes", ())]
    if folder is not None:
        write_judgments(data.judgments, str(folder / "judgments.parquet"))
        write_queries(data.queries, data.tags, str(folder / "queries.parquet"))
        about = {
            "systems": list(named),
            "baseline": baseline,
            "convention": rules.name,
            "measures": next(iter(scores.values())).measures,
            "failures": {name: error.message for name, error in failures.items()},
        }
        archive.write_json(about, folder / archive.EXPERIMENT)
    return Experiment(data, runs, scores, speeds, gaps, baseline, folder, notes, failures)


def _asked(data: Dataset, limit: int | None) -> tuple[Dataset, list[str]]:
    """The dataset with judgments of the queries that are asked and no others: one that is not asked is no zero."""
    if limit is not None and limit < 1:
        raise BadInput(f"the limit is {limit}, not at least 1")
    queries = dict(list(data.queries.items())[:limit])
    grades = data.judgments.nested
    left = [query for query in grades if query not in queries]
    if not queries:
        raise BadInput(f"the dataset {data.name} has no query")
    if not left:
        return data, []
    mine = data.judgments
    kept = Judgments(
        {query: grades[query] for query in grades if query in queries},
        subtopics=mine.subtopics and {query: rows for query, rows in mine.subtopics.items() if query in queries},
        targets=mine.targets,
        source=mine.source,
    )
    note = f"{len(left)} judged queries are not asked and not counted"
    return replace(data, queries=queries, judgments=kept), [note]


def _measured(
    how: dict[str, Any], measures: Measures | None, rules: Convention
) -> tuple[Plan, list[Measure | OwnMeasure]]:
    """The plan and the measures; k is as deep as the deepest cutoff, and no cutoff is deeper than a given k."""
    k = as_record(Plan, how).k
    wanted = read_measures(measures or (f"ndcg@{k}", f"recall@{k}", f"mrr@{k}", f"hit_rate@{k}"), rules)
    deepest = max([int(one.cutoff or 0) for one in wanted if isinstance(one, Measure)], default=0)
    if how.get("k") is not None and deepest > k:
        name = next(str(one) for one in wanted if isinstance(one, Measure) and int(one.cutoff or 0) == deepest)
        raise BadInput(f"{name} cannot be told from {k} documents a query", hint=f"-k {deepest}")
    return as_record(Plan, {**how, "k": max(k, deepest)}), wanted


def _named(systems: Any) -> dict[str, Any]:
    if isinstance(systems, str):
        systems = [systems]
    if isinstance(systems, Mapping):
        named = {str(name): system for name, system in systems.items()}
    elif isinstance(systems, Iterable):
        named = {}
        for one in systems:
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            if name in named:
                raise BadInput(f"two systems are called `{name}`", hint="give a mapping from names to systems")
            named[name] = one
    else:
        raise BadInput(f"systems cannot be read from {type(systems).__name__}", hint='{"bm25": "bm25", "mine": search}')
    if not named:
        raise BadInput("there is no system to run", hint="--system bm25")
    slugs: dict[str, str] = {}
    for name in named:
        other = slugs.setdefault(slug(name), name)
        if other != name:
            raise BadInput(f"`{name}` and `{other}` would share a folder", hint="name them apart")
        if slug(name) in RESERVED:
            raise BadInput(f"a system cannot be called `{name}`: that file stands beside the runs")
    return named


def slug(name: str) -> str:
    """A name as a folder: nothing that leads elsewhere, and not too long.

    >>> slug("../dense(store=faiss)")
    'dense_store=faiss'
    """
    plain = re.sub(r"[^\w.+=-]+", "_", name).strip("._") or "system"
    if len(plain) <= 100:
        return plain
    return f"{plain[:80]}-{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
