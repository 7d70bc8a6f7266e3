"""Comparison of embedders on the same dataset, retriever and context length."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragauge.core import plugins, protocols
from ragauge.core.composition import check, parts_of
from ragauge.core.errors import BackendFailed, BadInput, RagaugeError, UnknownName
from ragauge.core.records import Dataset, Scores
from ragauge.core.specs import named_description, parse, without_secrets
from ragauge.datasets import load
from ragauge.datasets.perturbations import find as find_perturbation
from ragauge.embedder_study.guarded_embedding import said_by
from ragauge.embedder_study.measure_embedder import measured
from ragauge.embedder_study.plan import BASELINES, MEASURES, STUDY, Ground, Measured, Plan, View, view
from ragauge.embedder_study.results import Entrant, Lineup
from ragauge.embedder_study.results_folder import Keeping
from ragauge.embedder_study.scoring import Field, gaps, pairs
from ragauge.evaluation import Measures, read_measures
from ragauge.files.serialization import as_record
from ragauge.files.workspace import cache_folder, hold_folder, refuse_unwritable, slug
from ragauge.measures.conventions import Convention
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import OwnMeasure
from ragauge.models.embedders import named as with_name
from ragauge.models.embedders import open_embedder
from ragauge.runs.folder import circumstances, fingerprint, now

Watch = Callable[[str, int, int], None]
LEXICAL = ("bm25",)
"""Systems without vectors that can be compared with embedders."""
WHOLE = "embedders"
"""Name of the progress stage that counts embedders."""


def embedders(  # noqa: PLR0913 - each has a use of its own, and a default
    dataset: str | Path | Dataset | None = None,
    embedders: Any = None,
    *,
    baseline: str | None = None,
    baselines: bool = True,
    measures: Measures | None = None,
    convention: str | Convention = "default",
    split: str | None = None,
    limit: int | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    reuse: bool = False,
    watch: Watch | None = None,
    **how: Any,
) -> Lineup:
    """Compare embedders by quality, latency, size and robustness.

    `dataset` defaults to `pydocs`. `embedders` maps names to descriptions (`"minilm"`, `"lm(tokenizer=bytes)"`) or to
    objects with an `embed` method. It can also be a list of descriptions, each with an optional `NAME=` prefix. Without
    it, `ragauge.embedder_study.plan.STUDY_EMBEDDERS` are compared. BM25 and chance are added unless `baselines` is
    false. `how` has the fields of `ragauge.embedder_study.plan.StudySettings`: `context`, `part`, `stores`,
    `dimensions`, `sizes`, `perturbations`, `rate`, `seeds`, `timed`, `memory`, `seed` and others.

    Document vectors are cached. With the folder `out`, each embedder is saved there as soon as it is measured, and the
    same call resumes an interrupted study. The folder also has the rankings as runs and the whole result as
    `lineup.json`. Finished built-in embedders are reused; models in local folders are identified by a hash of their
    files. Plug-ins and services (`openai`) are measured again unless `reuse` is set. Objects are always measured again.
    An embedder that fails is left out, and `failures` has the reason. If all fail, the first error is raised.
    """
    if fresh and reuse:
        raise BadInput("fresh and reuse are mutually exclusive", hint="leave out one of them")
    plan = as_record(Plan, how)
    rules = find_convention(convention)
    wanted = read_measures(MEASURES if measures is None else measures, rules)
    named = _named(STUDY if embedders is None else embedders)
    every = {**named, **({name: name for name in BASELINES if name not in _kinds(named)} if baselines else {})}
    baseline = _called(baseline, every)
    _refuse(every, plan, baseline)
    if out is not None:
        refuse_unwritable(str(out), folder=True)
    heard = watch or (lambda *_: None)
    began = time.perf_counter()
    heard("reading the dataset", 0, 1)
    data = load("pydocs" if dataset is None else dataset, split=split)
    seen = view(data, part=plan.part, context=plan.characters, limit=limit)
    ground = Ground(seen, _field(seen, plan, wanted, rules), plan, cache_folder(), heard)
    with contextlib.nullcontext() if out is None else hold_folder(out):
        keeping = None if out is None else Keeping(Path(out), ground, slug, fresh=fresh, reuse=reuse)
        found, failures, notes = _each(every, named, ground, keeping)
        heard("comparing", 0, 1)
        base, why = _baseline(baseline, list(found))
        lineup = replace(
            _compared(found, ground, base),
            failures=failures,
            seconds={**_seconds(found.values()), "in all": time.perf_counter() - began},
            notes=[*seen.notes, *_about_sizes(ground), *_about_dimensions(plan, found.values()), *why, *notes],
        )
        if keeping is not None:
            keeping.finish(lineup)
        return lineup


def _field(seen: View, plan: Plan, measures: Sequence[Measure | OwnMeasure], rules: Convention) -> Field:
    """Build the ranking task; its depth is at least the largest cutoff."""
    depth = max([plan.k, *(int(one.cutoff or 0) for one in measures if isinstance(one, Measure))])
    ids = [one.id for one in seen.documents]
    return Field(ids, list(seen.queries), seen.asked.judgments, measures, rules, depth, seen.own)


def _compared(found: Mapping[str, Measured], ground: Ground, base: str) -> Lineup:
    """Build the study: differences from the baseline, and comparisons of pairs."""
    seen, field, plan = ground.view, ground.field, ground.plan
    scores = {name: _scored(field, one) for name, one in found.items()}
    entrants = _held_against(found, scores, base, plan)
    first = field.names[0]
    return Lineup(
        dataset=seen.asked.name,
        documents=len(seen.documents),
        queries=len(seen.queries),
        entrants=entrants,
        measures=field.names,
        baseline=base,
        convention=field.convention.name,
        part=plan.part,
        context=plan.characters,
        cut=seen.cut,
        confidence=plan.confidence,
        seed=plan.seed,
        pairs=pairs(
            {one.name: one.description for one in entrants},
            {name: one.values[first] for name, one in scores.items()},
            first,
            models={one.name: one.model for one in entrants},
            lower=first in next(iter(scores.values())).lower_is_better,
            confidence=plan.confidence,
            seed=plan.seed,
        ),
        references=next((one.references for one in found.values() if one.references), {}),
        circumstances={"made": now(), **circumstances(), "dataset": fingerprint(seen.asked), "plan": plan.shown},
    )


def _named(embedders: Any) -> dict[str, Any]:
    if isinstance(embedders, Mapping):
        named = {str(name): one for name, one in embedders.items()}
    elif isinstance(embedders, str) or hasattr(embedders, "embed"):
        named = _named_in([embedders])
    elif isinstance(embedders, Iterable):
        named = _named_in(embedders)
    else:
        raise BadInput(
            f"embedders cannot be read from {type(embedders).__name__}", hint='{"mine": model, "minilm": "minilm"}'
        )
    if not named:
        raise BadInput("there is no embedder to compare", hint=f"there are {', '.join(plugins.names('embedders'))}")
    folders: dict[str, str] = {}
    for name in named:
        other = folders.setdefault(slug(name), name)
        if other != name:
            raise BadInput(f"`{name}` and `{other}` would share a folder", hint="name them apart")
    return named


def _named_in(several: Iterable[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for one in several:
        if isinstance(one, str):
            name, described = named_description(one)
            name = name or _shown(one)
            apart = f"other={_shown(described)}"
        else:
            name, described = str(getattr(one, "name", type(one).__name__)), one
            apart = f'{{"{name}": …, "other": …}} gives them names'
        if name in named:
            raise BadInput(f"two embedders are called `{name}`", hint=apart)
        named[name] = described
    return named


def _shown(description: str) -> str:
    """Return the description without secrets, for messages and folder names."""
    return str(without_secrets(parse(description, "embedder")))


def _called(baseline: str | None, named: Mapping[str, Any]) -> str | None:
    """Return the baseline's name.

    A description is normalised like the names of unnamed embedders.
    """
    if baseline is None or baseline in named or "(" not in baseline:
        return baseline
    return _shown(baseline)


def _kinds(named: Mapping[str, Any]) -> set[str]:
    """Return the names of the embedders and the plug-in names in their descriptions."""
    return {*named, *(parse(one, "embedder").name for one in named.values() if isinstance(one, str))}


def _refuse(named: Mapping[str, Any], plan: Plan, baseline: str | None) -> None:
    """Raise before any work is done if an argument is invalid."""
    for one in named.values():
        if not isinstance(one, str):
            _refuse_object(one)
            continue
        name = parse(one).name
        known = [*plugins.names("embedders"), *LEXICAL]
        if name not in known:
            raise UnknownName("embedder", name, known, hint=f"there are {', '.join(known)}")
        check("retrievers" if name in LEXICAL else "embedders", one)
    for store in plan.stores:
        check("stores", store)
    plugins.check_installed(part for store in plan.stores for part in parts_of("stores", store))
    if baseline is not None and baseline not in named:
        raise UnknownName("embedder", baseline, named, hint="the baseline is one of those that are compared")
    for name in plan.perturbations or ():
        find_perturbation(name)


def _refuse_object(one: Any) -> None:
    if isinstance(one, type):
        raise BadInput(f"the class {one.__name__} is no embedder", hint=f"one of it is: {one.__name__}(…)")
    if callable(getattr(one, "embed", None)):
        return
    own = "`embed(texts)` gives a row of numbers for each text"
    hint = f"{own}; here `encode` may do that: embed = model.encode" if hasattr(one, "encode") else own
    raise BadInput(f"{type(one).__name__} is no embedder: it has no `embed`", hint=hint)


def _each(
    every: Mapping[str, Any], asked: Mapping[str, Any], ground: Ground, keeping: Keeping | None
) -> tuple[dict[str, Measured], dict[str, str], list[str]]:
    """Measure all systems, baselines first because they are fast.

    Return results, failures and notes.
    """
    order = sorted(every, key=lambda name: name in asked)
    kept = {name: keeping.find(name, every[name]) for name in order} if keeping is not None else {}
    found: dict[str, Measured] = {name: one for name, one in kept.items() if one is not None}
    notes = []
    if keeping is not None:
        notes += [f"{name}: reused; made {keeping.dates[name]} (measure it again with --fresh)" for name in found]
        notes += keeping.passed_over([one for name, one in every.items() if name not in found])
    failed = _closed({name: every[name] for name in order if name not in found}, ground)
    for number, name in enumerate(order):
        ground.heard(WHOLE, number, len(order))
        if name in found or name in failed:
            continue
        try:
            one = every[name]
            found[name] = measured(name, one if isinstance(one, str) else with_name(one, name), ground)
        except Exception as error:  # one failure must not stop the other embedders
            failed[name] = error
            continue
        if keeping is not None:
            keeping.keep(found[name], every[name])
    ground.heard(WHOLE, len(order), len(order))
    if not any(name in found for name in asked):
        first = next(failed[name] for name in asked)
        raise first if isinstance(first, RagaugeError) else BackendFailed(said_by(first)) from first
    failures = {name: _why(failed[name]) for name in every if name in failed}
    return {name: found[name] for name in every if name in found}, failures, notes


def _closed(several: Mapping[str, Any], ground: Ground) -> dict[str, Exception]:
    """Open each embedder once and return the errors of those that fail.

    A mistake in a description is raised. Each embedder is closed again, because all of them together might not fit into
    memory.
    """
    closed: dict[str, Exception] = {}
    for name, described in several.items():
        if not isinstance(described, str) or parse(described).name in LEXICAL:
            continue
        ground.heard(f"{name}: trying to open", 0, 1)
        try:
            protocols.close(open_embedder(described))
        except (BadInput, UnknownName):
            raise
        except Exception as error:  # not installed or not reachable: the other embedders can still be measured
            closed[name] = error
    return closed


def _why(error: Exception) -> str:
    hint = getattr(error, "hint", None)
    return f"{said_by(error)} ({hint})" if hint else said_by(error)


def _scored(field: Field, one: Measured) -> Scores:
    ids = {query: [doc for doc, _ in found] for query, found in one.ranking.items()}
    return field.scored(ids, name=one.entrant.name)


def _baseline(asked: str | None, names: Sequence[str]) -> tuple[str, list[str]]:
    if asked in names:
        return str(asked), []
    other = "bm25" if "bm25" in names else names[0]
    return other, [f"{asked} could not be measured: they are held against {other}"] if asked else []


def _held_against(found: Mapping[str, Measured], scores: Mapping[str, Scores], base: str, plan: Plan) -> list[Entrant]:
    others = {name: one for name, one in scores.items() if name != base}
    differences = gaps(others, scores[base], confidence=plan.confidence, seed=plan.seed) if others else {}
    return [replace(one.entrant, gaps=differences.get(name, {})) for name, one in found.items()]


def _seconds(several: Iterable[Measured]) -> dict[str, float]:
    """Return the measuring time in seconds by step, summed over all embedders."""
    seconds: dict[str, float] = {}
    for one in several:
        for what, took in one.seconds.items():
            seconds[what] = seconds.get(what, 0.0) + took
    return seconds


def _about_sizes(ground: Ground) -> list[str]:
    relevant, whole = len(ground.field.relevant), len(ground.view.documents)
    left = [one for one in ground.plan.sizes or () if not relevant <= one < whole]
    if not left:
        return []
    told = ", ".join(f"{one:,}" for one in left)
    return [f"no part of {told} documents: {relevant:,} are relevant and always in, and there are {whole:,} in all"]


def _about_dimensions(plan: Plan, several: Iterable[Measured]) -> list[str]:
    have = {one.entrant.name: one.entrant.dimension for one in several if one.entrant.kind == "embedder"}
    notes = []
    for wanted in plan.dimensions or ():
        short = [f"{name} ({own:,})" for name, own in have.items() if own and own < wanted]
        if short:
            notes.append(f"no {wanted:,} dimensions of {', '.join(short)}: vectors are only made smaller")
    return notes
