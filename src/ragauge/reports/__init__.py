"""Build an overview of systems and write it as a page, charts and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from ragauge.audits import audit
from ragauge.comparison import compare
from ragauge.comparison.alignment import named_sides, refuse_other_circumstances, shared_queries
from ragauge.comparison.charts import drawn
from ragauge.comparison.latex import overview_table
from ragauge.comparison.results import Entry, Overview, ranked
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.records import Judgments, Run, Scores
from ragauge.core.summaries import Speed
from ragauge.evaluation.directions import assign_directions, given_directions, resolve_directions
from ragauge.files.serialization import as_record
from ragauge.judging import results_folder
from ragauge.judging.results import Judged
from ragauge.measures.conventions import Convention
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.latency import latency
from ragauge.output.formats import Kind, kind_of, write_charts, written
from ragauge.output.page import vega
from ragauge.reports import benchmark_files, layouts, registry
from ragauge.reports.data_export import as_data, queries_csv, queries_wide_csv, summary_csv, wide_csv
from ragauge.reports.markdown import markdown
from ragauge.reports.page import page
from ragauge.reports.registry import Told
from ragauge.reports.report_inputs import Gathered, for_layout, from_experiment, from_files, from_layouts
from ragauge.reports.survey import Tags, audited_by, curves, entries, restricted, strata, tagged
from ragauge.runs.folder import judgments_hash, now
from ragauge.runs.inputs import named
from ragauge.runs.results import Experiment
from ragauge.stats.comparisons import Comparison, Comparisons, Method
from ragauge.store_benchmarks.results import Sweep

Watch = Callable[[str], None]
"""Progress callback with a description of the current step."""
Files = str | Path | Sequence[str | Path]
"""Path of an output file, or several."""


def _json(overview: Overview) -> str:
    data = as_data(overview, per_query=True)
    if overview.beside:
        data["beside"] = [registry.as_data(one) for one in overview.beside]
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


KINDS: Mapping[str, Kind[Overview]] = {
    "html": Kind(".html", "one self-contained page", lambda found: page(found, vega())),
    "json": Kind(".json", "everything but the rankings, by a published schema", _json),
    "csv": Kind(".csv", "a row for each system and figure, with its interval", summary_csv),
    "wide": Kind(".csv", "a row for each system, a column for each figure", wide_csv),
    "queries": Kind(".csv", "a row for each system, query and measure", queries_csv),
    "queries-wide": Kind(".csv", "a row for each system and query, a column for each measure", queries_wide_csv),
    "markdown": Kind(".md", "tables for a wiki or a pull request", markdown),
    "latex": Kind(".tex", "a table for a paper: booktabs, best in bold, significance marked", overview_table),
    **{name: Kind(one.ending, one.about, one.write) for name, one in layouts.LAYOUTS.items()},
}
"""Output formats by name. If several share a file ending, the ending selects the first."""


@overload
def report(
    given: Sweep,
    out: Files = ...,
    *,
    form: str | None = ...,
    charts: str | Path | None = ...,
    watch: Watch | None = ...,
) -> Sweep: ...


@overload
def report(
    given: Judged,
    out: Files = ...,
    *,
    form: str | None = ...,
    charts: str | Path | None = ...,
    watch: Watch | None = ...,
) -> Judged: ...


@overload
def report(
    given: Told | Sequence[Told],
    out: Files = ...,
    *,
    form: str | None = ...,
    charts: str | Path | None = ...,
    watch: Watch | None = ...,
) -> Told | Sequence[Told]: ...


@overload
def report(
    given: Any,
    out: Files = ...,
    *,
    form: str | None = ...,
    charts: str | Path | None = ...,
    watch: Watch | None = ...,
    **options: Any,
) -> Overview: ...


def report(
    given: Any,
    out: Files = (),
    *,
    form: str | None = None,
    charts: str | Path | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Overview | Sweep | Judged | Told | Sequence[Told]:
    """Build a report on systems, and write it as a page, tables or charts.

    `out` is a file or several. The format is given by the file ending (.html, .json, .csv, .md, .tex) or by `form`,
    one of `OUTPUT_FORMATS`. These include layouts of other tools, which select their own measures and convention.
    `charts` is a folder for every chart as SVG and PNG. `given` and `options` are those of `overview`. A
    `StoreBenchmark`, `JudgedSamples` and every `Result` (lint, novelty, gain, …, graph), one or several, have their
    own formats.
    """
    files = [str(one) for one in ([out] if isinstance(out, str | Path) else out)]
    if isinstance(given, Sweep):
        convention = options.pop("convention", None)
        _refuse_settings(options, "a benchmark")
        benchmark_files.write(given, files, form, charts, convention=convention)
        return given
    if isinstance(given, Judged):
        _refuse_settings(options, "judged answers")
        results_folder.write(given, files, form, charts)
        return given
    if isinstance(given, Told) or (
        isinstance(given, Sequence) and given and all(isinstance(one, Told) for one in given)
    ):
        _refuse_settings(options, "a result of lint, novelty, gain, …")
        registry.write(given, files, form, charts)
        return given
    kinds = {file: kind_of(file, form, KINDS) for file in files}
    _refuse_to_overwrite(given, files)
    notes: list[str] = []
    own = options
    for kind in {form, *kinds.values()} & set(layouts.LAYOUTS):
        usual, notes = for_layout(given, layouts.find(str(kind)), options.get("convention"))
        options = {**usual, **options}
    found = overview(given, watch=watch, **options)
    found = replace(found, notes=[*found.notes, *notes])
    look = watch or _unwatched
    for file, kind in kinds.items():
        look(f"writing {file}")
        written(found, KINDS[kind], file)
    if charts is not None:  # A layout selects its own measures, but charts show those of the runs.
        seen = found if options == own else overview(given, watch=watch, **{**own, "audited": False})
        write_charts(drawn(seen), Path(charts), look)
    return found


def _refuse_settings(settings: Mapping[str, Any], what: str) -> None:
    """Raise BadInput if a setting was given that has no effect."""
    wrong = [name for name, value in settings.items() if value not in (None, False, (), [], "")]
    if wrong:
        names, verb = ", ".join(wrong), "does" if len(wrong) == 1 else "do"
        message = f"{names} {verb} not apply to {what}; expected runs and judgments"
        raise BadInput(message, hint=f"remove {names}")


def _refuse_to_overwrite(given: Any, files: Sequence[str]) -> None:
    """Raise BadInput if an output file is also an input, or is given more than once."""
    read = [given] if isinstance(given, str | Path) else given if isinstance(given, Sequence) else []
    taken = {Path(named(str(one))[1]).resolve() for one in read if isinstance(one, str | Path) and str(one) != "-"}
    for file in files:
        place = Path(file).resolve()
        if place in taken:
            raise BadInput("this file is read, or written already", file=file, hint="give the output another name")
        taken.add(place)


def _unwatched(what: str) -> None:
    del what


def overview(  # noqa: PLR0913 - each is an option of the command
    given: Any,
    *,
    baseline: str | None = None,
    measures: str | Iterable[str] | None = None,
    convention: str | Convention | None = None,
    by: str | Sequence[str] = (),
    dataset: str | Path | None = None,
    title: str | None = None,
    beside: Sequence[Told | str | Path] = (),
    audited: bool = True,
    overlap: bool = False,
    count_missing: bool = False,
    split: str | None = None,
    watch: Watch | None = None,
    **how: Any,
) -> Overview:
    """Build an overview of systems: scores, differences, latency and findings.

    `given` is an Experiment, or files in any form that `compare` accepts: run folders, judgments and runs, or score
    tables. The default baseline is that of the experiment. `by` are tags of the queries. `dataset` locates the
    texts, if not at the dataset of the runs. `beside` are further results, from lint to graph, or JSON files of
    them. `how` is test, correction, confidence and the other settings of `compare`.
    """
    method = as_record(Method, how)
    if overlap and count_missing:
        raise BadInput("overlap and count_missing are mutually exclusive", hint="remove --overlap or --count-missing")
    others: list[Told] = []
    for one in beside:
        others += registry.read(one) if isinstance(one, str | Path) else [one]
    look = watch or _unwatched
    look("scoring")
    rules = None if convention is None else find_convention(convention)
    names = [measures] if isinstance(measures, str) else None if measures is None else list(measures)
    if isinstance(given, Experiment):
        found = from_experiment(given, baseline, names, rules)
    else:
        files = [str(one) for one in ([given] if isinstance(given, str | Path) else given)]
        told = from_layouts(files, baseline, names)
        if told is not None:
            settings: dict[str, Any] = {"convention": convention, "dataset": dataset, "split": split}
            if isinstance(told, Overview):  # Means only: nothing to compare, split or intersect.
                unusual = {name: value for name, value in how.items() if value != getattr(Method(), name)}
                settings |= {"by": by, "overlap": overlap, "count_missing": count_missing, **unusual}
            _refuse_settings(settings, "results in the layout of another system")
        if isinstance(told, Overview):
            means = [entry.means for entry in told.entries.values()]
            given = given_directions(method.lower_is_better, method.higher_is_better, means)
            lower, _ = assign_directions(told.measures, told.lower_is_better, frozenset(told.measures), given)
            return replace(told, title=title or told.title, made=now(), beside=others, lower_is_better=lower)
        found = told or from_files(files, baseline, names, rules or find_convention("default"), dataset, split)
    look("comparing")
    count_missing = (count_missing or found.count_missing) and not overlap
    values = [one.values for scores in found.trials.values() for one in scores]
    given = given_directions(method.lower_is_better, method.higher_is_better, values)
    found = replace(
        found,
        trials={name: [resolve_directions(one, given) for one in scores] for name, scores in found.trials.items()},
    )
    found, trials = _on_the_same(found, overlap=overlap, count_missing=count_missing)
    first = next(iter(trials.values()))[0]
    lower = frozenset(m for scores in trials.values() for m in scores[0].lower_is_better)
    systems = _timed(entries(trials, found.measures, found.runs, method.confidence), found.known)
    how = {**how, "count_missing": count_missing}
    best = ranked(systems, found.measures[0], lower)[:2]
    compared, rival = _compared(found, trials, best, how)
    judgments = found.judgments
    tags = tagged(found.tags, next(iter(found.trials.values()))[0])
    kinds = strata(trials, found.measures[0], tags, [by] if isinstance(by, str) else by, method.confidence)
    if compared is not None and len(best) == 2:
        other = found.baseline if found.baseline not in (None, best[0]) else best[1]
        pair = {name: _sides(trials)[name] for name in (str(other), best[0])}
        compared = replace(compared, strata=_within(pair, found.measures[0], tags, kinds, how))
    looked = None
    defined = any(mean.n for entry in systems.values() for mean in entry.means.values())
    if audited and defined and judgments is not None and found.runs and found.rules is not None:
        look("auditing")
        looked = audit(
            judgments,
            dict(found.runs),
            documents=found.texts.documents,
            queries=found.texts.queries,
            measures=audited_by(found.measures, found.rules),
            convention=found.rules,
            repeats=found.again,
        )
    return Overview(
        title or found.dataset or found.title or "runs",
        systems,
        found.measures,
        convention=first.convention,
        lower_is_better=lower,
        confidence=method.confidence,
        baseline=found.baseline,
        compared=compared,
        rival=rival,
        curves=curves(found.trials, found.rules, first.queries, found.runs),
        strata=kinds,
        dataset=found.dataset,
        documents_known=_size(found),
        queries=dict(found.texts.queries or {}),
        tags=tags,
        judgments=judgments,
        judgments_hash="" if judgments is None else judgments_hash(judgments),
        documents=_shown(found.texts.documents or (), found.runs, judgments),
        audit=looked,
        failures=found.failures,
        notes=_notes(found, compared, overlap=overlap),
        made=now(),
        beside=others,
    )


def _on_the_same(found: Gathered, *, overlap: bool, count_missing: bool) -> tuple[Gathered, dict[str, list[Scores]]]:
    """Restrict scores to the compared queries.

    Raises Incomparable if the scores cannot be compared.
    """
    trials = found.trials
    if len(trials) < 2:
        return found, trials
    sides = [side for seeds in named_sides(_sides(trials)).values() for side in seeds.values()]
    refuse_other_circumstances(sides)
    queries, notes = shared_queries(sides, overlap=overlap, count_missing=count_missing)
    if count_missing:
        notes += [
            f"{side.name} does not have {lacks} of {len(queries)} queries: they count 0"
            for side in sides
            if (lacks := len(set(queries) - set(side.queries)))
        ]
    if all(list(one.queries) == queries for scores in trials.values() for one in scores):
        return found, trials
    same = {name: [restricted(one, queries) for one in scores] for name, scores in trials.items()}
    return replace(found, notes=[*found.notes, *notes]), same


def _sides(trials: Mapping[str, Sequence[Scores]]) -> dict[str, Scores | Sequence[Scores]]:
    return {name: scores if len(scores) > 1 else scores[0] for name, scores in trials.items()}


def _compared(
    found: Gathered, trials: Mapping[str, Sequence[Scores]], best: Sequence[str], how: Mapping[str, Any]
) -> tuple[Comparisons | None, Comparison | None]:
    """Compare each system with the baseline, or every pair.

    Also compares the best system with the second best.
    """
    if len(trials) < 2:
        return None, None
    sides = _sides(trials)
    rows = compare(sides, found.baseline, measures=found.measures, **how)
    rows = replace(rows, texts=dict(found.texts.queries or {}), dataset=found.dataset)
    if len(best) < 2:
        return rows, None
    pair = {name: sides[name] for name in reversed(best)}
    return rows, compare(pair, best[1], measures=found.measures[:1], **how).rows[0]


def _within(
    pair: Mapping[str, Scores | Sequence[Scores]],
    measure: str,
    tags: Tags,
    kinds: Iterable[str],
    how: Mapping[str, Any],
) -> list[Comparison]:
    """Compare the two systems of the summary in every stratum.

    Strata with a single query are left out.
    """
    first = next(iter(pair))
    return [
        row
        for tag in kinds
        for row in compare(pair, first, measures=[measure], by=tag, tags=tags, **how).strata
        if row.n > 1
    ]


def _notes(found: Gathered, compared: Comparisons | None, *, overlap: bool) -> list[str]:
    told = [note for run in found.runs.values() for note in run.manifest.get("notes", ())]
    not_asked = max((int(run.manifest.get("judged_not_asked") or 0) for run in found.runs.values()), default=0)
    if not_asked:
        told.append(f"{not_asked} judged queries are not asked and not counted")
    if not overlap:  # With overlap, missing queries are left out for all systems instead of scored 0.
        told += [note for scores in found.trials.values() for one in scores for note in one.notes]
    made_with = {run.manifest.get("judgments_hash") for run in found.runs.values()} - {None}
    if found.judgments is not None and made_with - {judgments_hash(found.judgments)}:
        told.append("these are not the judgments that the runs were made with")
    return list(dict.fromkeys([*found.notes, *told, *(() if compared is None else compared.notes)]))


def _timed(found: Mapping[str, Entry], known: Overview | None) -> dict[str, Entry]:
    """Add the timings and costs that another tool's result file contains."""
    if known is None:
        return dict(found)
    timed = {}
    for name, one in found.items():
        told = known.entries[name]
        spent = {stage: latency(values) for stage, values in told.times.items()}
        speed = told.speed or (Speed(spent, math.nan, spent["total"].n, 0, 0) if "total" in spent else None)
        timed[name] = replace(one, speed=speed, times=told.times, costs=told.costs, told=told.told)
    return timed


def _size(found: Gathered) -> int | None:
    """Return the number of documents in the corpus, or None if unknown."""
    if found.texts.documents is not None:
        return len(found.texts.documents) or None
    told = [(run.manifest.get("dataset") or {}).get("documents") for run in found.runs.values()]
    return next((int(one) for one in told if one), None)


def _shown(documents: Sequence[Document], runs: Mapping[str, Run], judgments: Judgments | None) -> dict[str, Document]:
    """Return the documents that were returned or judged."""
    if not documents:
        return {}
    wanted = set() if judgments is None else set(judgments.frame["doc"].to_list())
    for run in runs.values():
        wanted.update(run.table["doc"].unique().to_list())
    return {one.id: one for one in documents if one.id in wanted}
