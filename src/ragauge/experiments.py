"""The verb `run`: systems answer the queries of a dataset, and what comes of it is measured and kept."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ragauge.comparing import compare
from ragauge.comparisons import Comparison
from ragauge.datasets.asking import asked
from ragauge.datasets.folders import name_of
from ragauge.datasets.loading import load
from ragauge.errors import BadInput, MissingEvidence, RagaugeError, UnknownName
from ragauge.formats.settings import as_record
from ragauge.formats.writing import write_judgments, write_queries
from ragauge.measures.conventions import Convention
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import OwnMeasure, score
from ragauge.measures.speed import speed
from ragauge.outcomes import Experiment, Study
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
    *("judgments.parquet", "queries.parquet", "targets.json", archive.EXPERIMENT),
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
    data, notes = asked(whole, limit)
    not_asked = len(whole.judgments) - len(data.judgments)
    rules = find_convention(convention)
    plan, wanted = _measured(how, measures, rules)
    named = _named(systems)
    if baseline is not None and baseline not in named:
        raise UnknownName("system", baseline, named, hint="the baseline is one of the systems")
    judgments = judgments_for(wanted, data.judgments)
    wanted, lacking = _told(wanted, judgments, rules)
    notes += lacking
    folder = None if out is None else Path(out)
    there = folder is not None and folder.exists()
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
                if not error.message.startswith(f"`{name}`"):
                    error.message = f"{name}: {error.message}"
                failures[name] = error
            own = work.own
    finally:
        workshop.close()
    if not runs:
        if folder is not None and not there:
            with contextlib.suppress(OSError):  # something was kept in it
                folder.rmdir()
        raise next(iter(failures.values()))
    if own:
        notes.append(f"{len(own)} queries are themselves documents: each is left out of its own ranking")
    every = {
        name: [
            score(count(judgments, one, wanted, rules, name=name), wanted, rules) for one in run.differing() or [run]
        ]
        for name, run in runs.items()
    }
    scores = {name: trials[0] for name, trials in every.items()}
    several = {name: trials for name, trials in every.items() if len(trials) > 1}
    speeds = {name: speed(one.timings) for name, one in runs.items() if one.timings is not None}
    compared = next(iter(scores.values())).measures[0]
    gaps: dict[str, Comparison] = {}
    if baseline in scores and len(scores) > 1:
        found = compare({**scores, **several}, baseline, measures=compared, count_missing=True)
        gaps = {row.system: row for row in found}
    notes += [note for one in runs.values() for note in one.manifest.get("notes", ())]
    if folder is not None:
        write_judgments(data.judgments, str(folder / "judgments.parquet"))
        _write_targets(data.judgments, folder / "targets.json")
        write_queries(data.queries, data.tags, str(folder / "queries.parquet"))
        about = {
            "systems": list(named),
            "baseline": baseline,
            "convention": rules.name,
            "measures": next(iter(scores.values())).measures,
            "failures": {name: error.message for name, error in failures.items()},
        }
        archive.write_json(about, folder / archive.EXPERIMENT)
    return Experiment(data, runs, scores, speeds, gaps, baseline, folder, notes, failures, several)


def run_each(datasets: Any, systems: Any, *, out: str | Path | None = None, **how: Any) -> Study:
    """The same systems over several datasets, each an experiment of its own.

    `datasets` are names, folders or datasets, or a mapping from names to these; `how` are the other arguments of `run`.
    With `out`, each has a folder of its own below it. A dataset that cannot be run is left out, and `failures` says
    why; when none can, the first reason is raised.
    """
    experiments: dict[str, Experiment] = {}
    failures: dict[str, RagaugeError] = {}
    for name, dataset in named_datasets(datasets).items():
        try:
            experiments[name] = run(dataset, systems, out=None if out is None else Path(out) / slug(name), **how)
        except RagaugeError as error:
            error.message = f"{name}: {error.message}"
            failures[name] = error
    if not experiments:
        raise next(iter(failures.values()))
    return Study(experiments, failures, None if out is None else Path(out))


def named_datasets(datasets: Any) -> dict[str, Any]:
    """Datasets by what they are called; no two of them would share a folder."""
    if isinstance(datasets, Mapping):
        named = {str(name): one for name, one in datasets.items()}
    else:
        named = {}
        for one in [datasets] if isinstance(datasets, str | Path | Dataset) else datasets:
            name = one.name if isinstance(one, Dataset) else name_of(Path(one))
            if name in named:
                raise BadInput(f"two datasets are called `{name}`", hint="name each once")
            named[name] = one
    if not named:
        raise BadInput("there is no dataset to run on", hint='dataset = ["pydocs", "synthetic:needles"]')
    _refuse_shared(named, "dataset")
    return named


def _told(
    measures: list[Measure | OwnMeasure], judgments: Judgments, rules: Convention
) -> tuple[list[Measure | OwnMeasure], list[str]]:
    """The measures that these judgments can tell, seen before anything runs; and why they cannot tell the others."""
    nothing: dict[str, dict[str, float]] = {query: {} for query in judgments.nested}
    lenient = rules.but(missing="zero")
    kept: list[Measure | OwnMeasure] = []
    refused: dict[str, MissingEvidence] = {}
    for one in measures:
        try:
            if isinstance(one, Measure):
                score(count(judgments, nothing, [one], lenient), [one], lenient)
            kept.append(one)
        except MissingEvidence as error:
            refused[str(one)] = error
    if not kept:
        raise next(iter(refused.values()))
    return kept, [f"{name} is left out: {error.message}" for name, error in refused.items()]


def _write_targets(judgments: Judgments, path: Path) -> None:
    """The target map beside the judgments, where there is one."""
    if judgments.targets is None:
        path.unlink(missing_ok=True)
    else:
        archive.write_json({doc: list(targets) for doc, targets in judgments.targets.items()}, path)


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
    _refuse_shared(named, "system")
    return named


def _refuse_shared(names: Iterable[str], what: str) -> None:
    """Refuse names that would share a folder, or take the place of a file."""
    slugs: dict[str, str] = {}
    for name in names:
        other = slugs.setdefault(slug(name), name)
        if other != name:
            raise BadInput(f"`{name}` and `{other}` would share a folder", hint="name them apart")
        if slug(name) in RESERVED:
            raise BadInput(f"a {what} cannot be called `{name}`: that file stands beside the runs")


def slug(name: str) -> str:
    """A name as a folder: nothing that leads elsewhere, and not too long.

    >>> slug("../dense(store=faiss)")
    'dense_store=faiss'
    """
    plain = re.sub(r"[^\w.+=-]+", "_", name).strip("._") or "system"
    if len(plain) <= 100:
        return plain
    return f"{plain[:80]}-{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
