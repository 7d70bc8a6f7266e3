"""Build an overview of systems and write it as a page, charts and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast, overload

from ragauge.audits import audit
from ragauge.comparison import compare
from ragauge.comparison.alignment import check_comparable, find_shared_queries, read_system_scores
from ragauge.comparison.charts import draw_charts
from ragauge.comparison.results import Overview, SystemSummary, rank_systems
from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.findings import Audit
from ragauge.core.hashes import hash_judgments, judgment_hashes
from ragauge.core.protocols import Result
from ragauge.core.records import Judgments, Run, Scores
from ragauge.core.summaries import Latency, Speed
from ragauge.datasets.queries import describe_skipped_queries
from ragauge.evaluation.directions import assign_directions, given_directions, resolve_directions
from ragauge.measures.conventions import find_convention
from ragauge.output.chart_files import write_charts
from ragauge.output.formats import OutputFormat, format_for_path
from ragauge.reports import layouts, registry
from ragauge.reports.report_inputs import (
    ReportInputs,
    find_layout_settings,
    inputs_from_experiment,
    inputs_from_files,
    inputs_from_layouts,
)
from ragauge.reports.settings import OverviewOptions, OverviewSettings
from ragauge.reports.system_summaries import (
    TagsByQuery,
    add_tags,
    build_curves,
    build_strata,
    find_auditable_measures,
    restrict_to,
    summarise_systems,
)
from ragauge.runs.folder import utc_now
from ragauge.runs.input_kinds import split_path_name
from ragauge.runs.results import Experiment
from ragauge.stats.comparisons import Comparison, Comparisons, ComparisonSettings
from ragauge.store_benchmarks.results import StoreBenchmark

OutputFiles = str | Path | Sequence[str | Path]
"""Path of an output file, or several."""
OverviewInput = Experiment | str | Path | Sequence[str | Path]
"""An experiment, or paths of run folders, judgments and runs, or score tables."""
ResultT = TypeVar("ResultT", bound=Result | Sequence[Result])

OUTPUT_FORMATS: Mapping[str, OutputFormat[registry.Results]] = registry.find_formats(Overview)
"""Output formats of an overview by name. If several share a file ending, the ending selects the first."""


@overload
def report(
    given: OverviewInput,
    out: OutputFiles = ...,
    *,
    format: str | None = ...,
    charts: str | Path | None = ...,
    progress: ProgressCallback = ...,
    **options: Unpack[OverviewOptions],
) -> Overview: ...


@overload
def report(
    given: ResultT,
    out: OutputFiles = ...,
    *,
    format: str | None = ...,
    charts: str | Path | None = ...,
    progress: ProgressCallback = ...,
    **options: Unpack[OverviewOptions],
) -> ResultT: ...


def report(
    given: Any,
    out: OutputFiles = (),
    *,
    format: str | None = None,
    charts: str | Path | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[OverviewOptions],
) -> Any:
    """Build a report on systems, and write it as a page, tables or charts.

    `out` is a file or several. The format is given by the file ending (.html, .json, .csv, .md, .tex) or by `format`,
    one of `OUTPUT_FORMATS`. These include layouts of other tools, which select their own measures and convention.
    `charts` is a folder for every chart as SVG and PNG. `given` and `options` are those of `overview`; the overview is
    returned. Every other result, or several of one type, have their own formats and are returned.
    """
    files = [str(path) for path in ([out] if isinstance(out, str | Path) else out)]
    results = given if isinstance(given, Sequence) else [given]
    if results and all(map(registry.is_result, results)):
        convention = options.pop("convention", None) if isinstance(given, StoreBenchmark) else None
        command = registry.find_result_modules(type(results[0])).command
        _check_no_settings(options, f"a result of {command}")
        registry.write_results(
            results, files, format, charts, convention=None if convention is None else str(convention)
        )
        return given
    return _report_systems(given, files, format, charts, progress, options)


def _report_systems(
    given: OverviewInput,
    files: Sequence[str],
    format_name: str | None,
    charts: str | Path | None,
    progress: ProgressCallback,
    options: OverviewOptions,
) -> Overview:
    """Build an overview with the measures of the requested layouts, and write it."""
    formats = {file: format_for_path(file, format_name, OUTPUT_FORMATS) for file in files}
    _check_output_files(given, files)
    notes: list[str] = []
    merged = options
    for name in {format_name, *formats.values()} & set(layouts.LAYOUTS):
        usual, notes = find_layout_settings(given, layouts.find_layout(str(name)), options.get("convention"))
        merged = cast(OverviewOptions, {**usual, **options})
    found = overview(given, progress=progress, **merged)
    found = replace(found, notes=[*found.notes, *notes])
    for file, name in formats.items():
        progress(Progress("writing", subject=file))
        registry.write_results([found], [file], name)
    if charts is not None:  # A layout selects its own measures, but charts show those of the runs.
        shown = found
        if merged != options:
            shown = overview(given, progress=progress, **cast(OverviewOptions, {**options, "audited": False}))
        write_charts(draw_charts(shown), Path(charts), progress)
    return found


def _check_no_settings(settings: Mapping[str, Any], what: str) -> None:
    """Raise BadInput if a setting was given that has no effect."""
    wrong = [name for name, value in settings.items() if value not in (None, False, (), [], "")]
    if wrong:
        names, verb = ", ".join(wrong), "does" if len(wrong) == 1 else "do"
        message = f"{names} {verb} not apply to {what}; expected runs and judgments"
        raise BadInput(message, hint=f"remove {names}")


def _check_output_files(given: OverviewInput, files: Sequence[str]) -> None:
    """Raise BadInput if an output file is also an input, or is given more than once."""
    read = [given] if isinstance(given, str | Path) else given if isinstance(given, Sequence) else []
    taken = {
        Path(split_path_name(str(one))[1]).resolve() for one in read if isinstance(one, str | Path) and str(one) != "-"
    }
    for file in files:
        place = Path(file).resolve()
        if place in taken:
            raise BadInput(
                "this file is an input, or is written more than once", file=file, hint="choose another output path"
            )
        taken.add(place)


def overview(
    given: OverviewInput, *, progress: ProgressCallback = no_progress, **options: Unpack[OverviewOptions]
) -> Overview:
    """Build an overview of systems: scores, differences, latency and findings.

    `given` is an Experiment, or files in any form that `compare` accepts: run folders, judgments and runs, or score
    tables. The default baseline is that of the experiment. `by` are tags of the queries. `dataset` locates the
    texts, if not at the dataset of the runs. `joined` are further results, from lint to graph, or JSON files of
    them. Other options are those of `compare`, such as test, correction and confidence.
    """
    settings = OverviewSettings.create(options)
    method = settings.comparison_settings
    joined: list[Result] = []
    for item in settings.joined:
        joined += registry.read_results(item) if isinstance(item, str | Path) else [item]
    progress(Progress("scoring"))
    found = _collect_inputs(given, settings)
    if isinstance(found, Overview):
        means = [entry.means for entry in found.entries.values()]
        stated = given_directions(method.lower_is_better, method.higher_is_better, means)
        lower, _ = assign_directions(found.measures, found.lower_is_better, frozenset(found.measures), stated)
        title = settings.title or found.title
        return replace(found, title=title, made=utc_now(), joined=joined, lower_is_better=lower)
    progress(Progress("comparing"))
    count_missing = (settings.count_missing or found.count_missing) and not settings.common_queries
    values = [scores.values for trials in found.trials.values() for scores in trials]
    stated = given_directions(method.lower_is_better, method.higher_is_better, values)
    found = replace(
        found,
        trials={name: [resolve_directions(one, stated) for one in scores] for name, scores in found.trials.items()},
    )
    found, trials = _restrict_to_shared_queries(
        found, common_queries=settings.common_queries, count_missing=count_missing
    )
    first = next(iter(trials.values()))[0]
    lower = frozenset(m for scores in trials.values() for m in scores[0].lower_is_better)
    systems = _add_known_timings(summarise_systems(trials, found.measures, found.runs, method.confidence), found.known)
    how = {**settings.comparison, "count_missing": count_missing}
    best = rank_systems(systems, found.measures[0], lower)[:2]
    compared, rival = _compare_systems(found, trials, best, how)
    judgments = found.judgments
    tags = add_tags(found.tags, next(iter(found.trials.values()))[0])
    by = [settings.by] if isinstance(settings.by, str) else settings.by
    strata = build_strata(trials, found.measures[0], tags, by, method.confidence)
    if compared is not None and len(best) == 2:
        other = found.baseline if found.baseline not in (None, best[0]) else best[1]
        pair = {name: _scores_by_system(trials)[name] for name in (str(other), best[0])}
        compared = replace(compared, strata=_compare_in_strata(pair, found.measures[0], tags, strata, how))
    is_defined = any(mean.n for entry in systems.values() for mean in entry.means.values())
    return Overview(
        settings.title or found.dataset or found.title or "runs",
        systems,
        found.measures,
        convention=first.convention,
        lower_is_better=lower,
        confidence=method.confidence,
        baseline=found.baseline,
        compared=compared,
        rival=rival,
        curves=build_curves(found.trials, found.rules, first.queries, found.runs),
        strata=strata,
        dataset=found.dataset,
        documents_known=_corpus_size(found),
        queries=dict(found.texts.queries or {}),
        tags=tags,
        judgments=judgments,
        judgments_hash="" if judgments is None else hash_judgments(judgments),
        documents=_displayed_documents(found.texts.documents or (), found.runs, judgments),
        audit=_audit_runs(found, progress) if settings.audited and is_defined else None,
        failures=found.failures,
        notes=_overview_notes(found, compared, common_queries=settings.common_queries),
        made=utc_now(),
        joined=joined,
    )


def _collect_inputs(given: OverviewInput, settings: OverviewSettings) -> ReportInputs | Overview:
    """Collect the scores of systems; an overview of the means if results of another tool have nothing else."""
    rules = None if settings.convention is None else find_convention(settings.convention)
    names, baseline = settings.measure_names, settings.baseline
    if isinstance(given, Experiment):
        return inputs_from_experiment(given, baseline, names, rules)
    files = [str(path) for path in ([given] if isinstance(given, str | Path) else given)]
    found = inputs_from_layouts(files, baseline, names)
    if found is None:
        convention = rules or find_convention("default")
        return inputs_from_files(files, baseline, names, convention, settings.dataset, settings.split)
    unused: dict[str, Any] = {name: getattr(settings, name) for name in ("convention", "dataset", "split")}
    if isinstance(found, Overview):  # Means only: nothing to compare, split or intersect.
        defaults = ComparisonSettings()
        unused |= {name: getattr(settings, name) for name in ("by", "common_queries", "count_missing")}
        unused |= {name: value for name, value in settings.comparison.items() if value != getattr(defaults, name)}
    _check_no_settings(unused, "results in the layout of another system")
    return found


def _audit_runs(found: ReportInputs, progress: ProgressCallback) -> Audit | None:
    """Audit the runs; None if runs, judgments or the convention are unknown."""
    if found.judgments is None or not found.runs or found.rules is None:
        return None
    progress(Progress("auditing"))
    return audit(
        found.judgments,
        dict(found.runs),
        documents=found.texts.documents,
        queries=found.texts.queries,
        measures=find_auditable_measures(found.measures, found.rules),
        convention=found.rules,
        repeats=found.again,
    )


def _restrict_to_shared_queries(
    found: ReportInputs, *, common_queries: bool, count_missing: bool
) -> tuple[ReportInputs, dict[str, list[Scores]]]:
    """Restrict scores to the compared queries.

    Raises Incomparable if the scores cannot be compared.
    """
    trials = found.trials
    if len(trials) < 2:
        return found, trials
    sides = [side for seeds in read_system_scores(_scores_by_system(trials)).values() for side in seeds.values()]
    check_comparable(sides)
    queries, notes = find_shared_queries(sides, common_queries=common_queries, count_missing=count_missing)
    if count_missing:
        notes += [
            f"{side.name} does not have {lacks} of {len(queries)} queries: they count 0"
            for side in sides
            if (lacks := len(set(queries) - set(side.queries)))
        ]
    if all(list(one.queries) == queries for scores in trials.values() for one in scores):
        return found, trials
    same = {name: [restrict_to(one, queries) for one in scores] for name, scores in trials.items()}
    return replace(found, notes=[*found.notes, *notes]), same


def _scores_by_system(trials: Mapping[str, Sequence[Scores]]) -> dict[str, Scores | Sequence[Scores]]:
    return {name: scores if len(scores) > 1 else scores[0] for name, scores in trials.items()}


def _compare_systems(
    found: ReportInputs, trials: Mapping[str, Sequence[Scores]], best: Sequence[str], how: Mapping[str, Any]
) -> tuple[Comparisons | None, Comparison | None]:
    """Compare each system with the baseline, or every pair.

    Also compares the best system with the second best.
    """
    if len(trials) < 2:
        return None, None
    sides = _scores_by_system(trials)
    rows = compare(sides, found.baseline, measures=found.measures, **how)
    rows = replace(rows, texts=dict(found.texts.queries or {}), dataset=found.dataset)
    if len(best) < 2:
        return rows, None
    pair = {name: sides[name] for name in reversed(best)}
    return rows, compare(pair, best[1], measures=found.measures[:1], **how).rows[0]


def _compare_in_strata(
    pair: Mapping[str, Scores | Sequence[Scores]],
    measure: str,
    tags: TagsByQuery,
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


def _overview_notes(found: ReportInputs, compared: Comparisons | None, *, common_queries: bool) -> list[str]:
    told = [note for run in found.runs.values() for note in run.manifest.get("notes", ())]
    not_asked = max((int(run.manifest.get("judged_not_asked") or 0) for run in found.runs.values()), default=0)
    if not_asked:
        told.append(describe_skipped_queries(not_asked))
    if not common_queries:  # With common_queries, missing queries are left out for all systems instead of scored 0.
        told += [note for scores in found.trials.values() for one in scores for note in one.notes]
    made_with = {run.manifest.get("judgments_hash") for run in found.runs.values()} - {None}
    if found.judgments is not None and not made_with <= {*judgment_hashes(found.judgments)}:
        told.append("the judgments differ from those that the runs were made with")
    return list(dict.fromkeys([*found.notes, *told, *(() if compared is None else compared.notes)]))


def _add_known_timings(found: Mapping[str, SystemSummary], known: Overview | None) -> dict[str, SystemSummary]:
    """Add the timings and costs that another tool's result file contains."""
    if known is None:
        return dict(found)
    timed = {}
    for name, one in found.items():
        told = known.entries[name]
        spent = {stage: Latency.of(values) for stage, values in told.times.items()}
        speed = told.speed or (Speed(spent, math.nan, spent["total"].n, 0, 0) if "total" in spent else None)
        timed[name] = replace(one, speed=speed, times=told.times, costs=told.costs, told=told.told)
    return timed


def _corpus_size(found: ReportInputs) -> int | None:
    """Return the number of documents in the corpus, or None if unknown."""
    if found.texts.documents is not None:
        return len(found.texts.documents) or None
    told = [(run.manifest.get("dataset") or {}).get("documents") for run in found.runs.values()]
    return next((int(one) for one in told if one), None)


def _displayed_documents(
    documents: Sequence[Document], runs: Mapping[str, Run], judgments: Judgments | None
) -> dict[str, Document]:
    """Return the documents that were returned or judged."""
    if not documents:
        return {}
    wanted = set() if judgments is None else set(judgments.frame["doc"].to_list())
    for run in runs.values():
        wanted.update(run.table["doc"].unique().to_list())
    return {one.id: one for one in documents if one.id in wanted}
