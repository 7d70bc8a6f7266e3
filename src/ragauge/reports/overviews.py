"""Build an overview of systems and write it as a page, charts and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from ragauge.audits.audit import audit
from ragauge.comparison.alignment import check_comparable, find_shared_queries, read_system_scores
from ragauge.comparison.charts import draw_charts
from ragauge.comparison.compare import compare
from ragauge.comparison.results import Overview, rank_systems
from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.findings import Audit, Note, merge_notes
from ragauge.core.hashes import hash_judgments
from ragauge.core.protocols import Result
from ragauge.core.records import Judgments, Run, Scores
from ragauge.datasets.queries import describe_skipped_queries
from ragauge.evaluation.directions import given_directions, resolve_directions
from ragauge.measures.conventions import find_convention
from ragauge.output.chart_files import write_charts
from ragauge.output.formats import OutputFormat, format_for_path
from ragauge.reports import registry
from ragauge.reports.report_inputs import (
    ReportInputs,
    inputs_from_experiment,
    inputs_from_files,
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
from ragauge.stats.comparisons import Comparison, Comparisons

OutputFiles = str | Path | Sequence[str | Path]
"""Path of an output file, or several."""
OverviewInput = Experiment | str | Path | Sequence[Any]
"""An experiment, paths of run folders, judgments and runs, or score tables, or judgments and runs in memory."""
MEMORY_HINT = 'use `report([qrels, {"bm25": run}], "report.html")`'
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
    one of `OUTPUT_FORMATS`.
    `charts` is a folder for every chart as SVG and PNG. `given` and `options` are those of `overview`; the overview is
    returned. Every other result, or several of one type, have their own formats and are returned.
    """
    if isinstance(out, Mapping):
        raise BadInput("out must be a file or several, got a mapping", hint=MEMORY_HINT)
    files = [str(path) for path in ([out] if isinstance(out, str | Path) else out)]
    results = given if isinstance(given, Sequence) else [given]
    if results and all(map(registry.is_result, results)):
        command = registry.find_result_modules(type(results[0])).command
        _check_no_settings(options, f"a result of {command}")
        registry.write_results(results, files, format, charts)
        return given
    return _report_systems(given, files, format, charts, progress, options)


def _report_systems(
    overview_input: OverviewInput,
    files: Sequence[str],
    format_name: str | None,
    charts: str | Path | None,
    progress: ProgressCallback,
    options: OverviewOptions,
) -> Overview:
    """Build an overview, and write it."""
    formats = {file: format_for_path(file, format_name, OUTPUT_FORMATS) for file in files}
    _check_output_files(overview_input, files)
    result = overview(overview_input, progress=progress, **options)
    for file, name in formats.items():
        progress(Progress("writing", subject=file))
        registry.write_results([result], [file], name)
    if charts is not None:
        write_charts(draw_charts(result), Path(charts), progress)
    return result


def _check_no_settings(settings: Mapping[str, Any], subject: str) -> None:
    """Raise BadInput if a setting was given that has no effect."""
    unused = [name for name, value in settings.items() if value not in (None, False, (), [], "")]
    if unused:
        names, verb = ", ".join(unused), "does" if len(unused) == 1 else "do"
        message = f"{names} {verb} not apply to {subject}; expected runs and judgments"
        raise BadInput(message, hint=f"remove {names}")


def _check_output_files(overview_input: OverviewInput, files: Sequence[str]) -> None:
    """Raise BadInput if an output file is also an input, or is given more than once."""
    inputs = (
        [overview_input]
        if isinstance(overview_input, str | Path)
        else overview_input
        if isinstance(overview_input, Sequence)
        else []
    )
    used_paths = {
        Path(split_path_name(str(path))[1]).resolve()
        for path in inputs
        if isinstance(path, str | Path) and str(path) != "-"
    }
    for file in files:
        output_path = Path(file).resolve()
        if output_path in used_paths:
            raise BadInput(
                "this file is an input, or is written more than once", file=file, hint="choose another output path"
            )
        used_paths.add(output_path)


def overview(
    given: OverviewInput, *, progress: ProgressCallback = no_progress, **options: Unpack[OverviewOptions]
) -> Overview:
    """Build an overview of systems: scores, differences, latency and findings.

    `given` is an Experiment, or files in any form that `compare` accepts: run folders, judgments and runs, or score
    tables. `[qrels, {name: run}]` are judgments and runs in memory. The default baseline is that of the experiment.
    `by` are tags of the queries. `dataset` locates the texts, if not at the dataset of the runs. `joined` are further
    results, or JSON files of them. Other options are those of `compare`, such as test, correction and confidence.
    """
    settings = OverviewSettings.create(options)
    method = settings.comparison_settings
    joined: list[Result] = []
    for item in settings.joined:
        joined += registry.read_results(item) if isinstance(item, str | Path) else [item]
    progress(Progress("scoring"))
    inputs = _collect_inputs(given, settings)
    progress(Progress("comparing"))
    count_missing = (settings.count_missing or inputs.count_missing) and not settings.common_queries
    values = [scores.values for trials in inputs.trials.values() for scores in trials]
    stated_directions = given_directions(method.lower_is_better, method.higher_is_better, values)
    inputs = replace(
        inputs,
        trials={
            name: [resolve_directions(scores, stated_directions) for scores in scores]
            for name, scores in inputs.trials.items()
        },
    )
    inputs, trials = _restrict_to_shared_queries(
        inputs, common_queries=settings.common_queries, count_missing=count_missing
    )
    first = next(iter(trials.values()))[0]
    lower = frozenset(m for scores in trials.values() for m in scores[0].lower_is_better)
    systems = summarise_systems(trials, inputs.measures, inputs.runs, method.confidence)
    comparison_options = {**settings.comparison, "count_missing": count_missing}
    best = rank_systems(systems, inputs.measures[0], lower)[:2]
    comparisons, rival = _compare_systems(inputs, trials, best, comparison_options)
    judgments = inputs.judgments
    tags = add_tags(inputs.tags, next(iter(inputs.trials.values()))[0])
    tag_names = [settings.by] if isinstance(settings.by, str) else settings.by
    strata = build_strata(trials, inputs.measures[0], tags, tag_names, method.confidence)
    if comparisons is not None and len(best) == 2:
        opponent = inputs.baseline if inputs.baseline not in (None, best[0]) else best[1]
        pair = {name: _scores_by_system(trials)[name] for name in (str(opponent), best[0])}
        comparisons = replace(
            comparisons, strata=_compare_in_strata(pair, inputs.measures[0], tags, strata, comparison_options)
        )
    is_defined = any(mean.n for entry in systems.values() for mean in entry.means.values())
    return Overview(
        settings.title or inputs.dataset or inputs.title or "runs",
        systems,
        inputs.measures,
        convention=first.convention,
        lower_is_better=lower,
        confidence=method.confidence,
        baseline=inputs.baseline,
        compared=comparisons,
        rival=rival,
        curves=build_curves(inputs.trials, inputs.convention, first.queries, inputs.runs),
        strata=strata,
        dataset=inputs.dataset,
        documents_known=_corpus_size(inputs),
        queries=dict(inputs.texts.queries or {}),
        tags=tags,
        judgments=judgments,
        judgments_hash="" if judgments is None else hash_judgments(judgments),
        documents=_displayed_documents(inputs.texts.documents or (), inputs.runs, judgments),
        audit=_audit_runs(inputs, progress) if settings.audited and is_defined else None,
        failures=inputs.failures,
        notes=_overview_notes(inputs, comparisons, common_queries=settings.common_queries),
        made=utc_now(),
        joined=joined,
    )


def _collect_inputs(overview_input: OverviewInput, settings: OverviewSettings) -> ReportInputs:
    """Collect the scores of systems."""
    requested_convention = None if settings.convention is None else find_convention(settings.convention)
    names, baseline = settings.measure_names, settings.baseline
    if isinstance(overview_input, Experiment):
        return inputs_from_experiment(overview_input, baseline, names, requested_convention)
    if not isinstance(overview_input, str | Path | Iterable):
        raise BadInput(
            f"{type(overview_input).__name__} is not a result that has a report",
            hint='pass a result, the folder of a run, or judgments and runs: `report([qrels, {"bm25": run}])`',
        )
    if isinstance(overview_input, Mapping):
        raise BadInput(
            "no judgments given; a report of runs by name needs them",
            hint=MEMORY_HINT,
        )
    items = [overview_input] if isinstance(overview_input, str | Path) else overview_input
    files = [str(item) if isinstance(item, Path) else item for item in items]
    convention = requested_convention or find_convention("default")
    return inputs_from_files(files, baseline, names, convention, settings.dataset, settings.split, settings.targets)


def _audit_runs(inputs: ReportInputs, progress: ProgressCallback) -> Audit | None:
    """Audit the runs; None if runs, judgments or the convention are unknown."""
    if inputs.judgments is None or not inputs.runs or inputs.convention is None:
        return None
    progress(Progress("auditing"))
    return audit(
        inputs.judgments,
        dict(inputs.runs),
        documents=inputs.texts.documents,
        queries=inputs.texts.queries,
        measures=find_auditable_measures(inputs.measures, inputs.convention),
        convention=inputs.convention,
        repeats=inputs.repeats,
    )


def _restrict_to_shared_queries(
    inputs: ReportInputs, *, common_queries: bool, count_missing: bool
) -> tuple[ReportInputs, dict[str, list[Scores]]]:
    """Restrict scores to the compared queries.

    Raises Incomparable if the scores cannot be compared.
    """
    trials = inputs.trials
    if len(trials) < 2:
        return inputs, trials
    systems = [system for seeds in read_system_scores(_scores_by_system(trials)).values() for system in seeds.values()]
    check_comparable(systems)
    queries, notes = find_shared_queries(systems, common_queries=common_queries, count_missing=count_missing)
    if count_missing:
        notes += [
            f"{system.name} does not have {n_missing} of {len(queries)} queries: they count 0"
            for system in systems
            if (n_missing := len(set(queries) - set(system.queries)))
        ]
    if all(list(score.queries) == queries for scores in trials.values() for score in scores):
        return inputs, trials
    restricted = {name: [restrict_to(scores, queries) for scores in scores] for name, scores in trials.items()}
    return replace(inputs, notes=[*inputs.notes, *notes]), restricted


def _scores_by_system(trials: Mapping[str, Sequence[Scores]]) -> dict[str, Scores | Sequence[Scores]]:
    return {name: scores if len(scores) > 1 else scores[0] for name, scores in trials.items()}


def _compare_systems(
    inputs: ReportInputs, trials: Mapping[str, Sequence[Scores]], best: Sequence[str], options: Mapping[str, Any]
) -> tuple[Comparisons | None, Comparison | None]:
    """Compare each system with the baseline, or every pair.

    Also compares the best system with the second best.
    """
    if len(trials) < 2:
        return None, None
    scores = _scores_by_system(trials)
    comparisons = compare(scores, inputs.baseline, measures=inputs.measures, **options)
    comparisons = replace(comparisons, texts=dict(inputs.texts.queries or {}), dataset=inputs.dataset)
    if len(best) < 2:
        return comparisons, None
    pair = {name: scores[name] for name in reversed(best)}
    return comparisons, compare(pair, best[1], measures=inputs.measures[:1], **options).rows[0]


def _compare_in_strata(
    pair: Mapping[str, Scores | Sequence[Scores]],
    measure: str,
    tags: TagsByQuery,
    tag_names: Iterable[str],
    options: Mapping[str, Any],
) -> list[Comparison]:
    """Compare the two systems of the summary in every stratum.

    Strata with a single query are left out.
    """
    first = next(iter(pair))
    return [
        row
        for tag in tag_names
        for row in compare(pair, first, measures=[measure], by=tag, tags=tags, **options).strata
        if row.n > 1
    ]


def _overview_notes(inputs: ReportInputs, compared: Comparisons | None, *, common_queries: bool) -> list[str]:
    notes: list[str] = [note for run in inputs.runs.values() for note in run.notes]
    n_skipped = max((int(run.manifest.get("judged_not_asked") or 0) for run in inputs.runs.values()), default=0)
    if n_skipped:
        notes.append(describe_skipped_queries(n_skipped))
    if not common_queries:  # With common_queries, missing queries are left out for all systems instead of scored 0.
        notes += [note for scores in inputs.trials.values() for score in scores for note in score.notes]
    run_hashes = {run.manifest.get("judgments_hash") for run in inputs.runs.values()} - {None}
    if inputs.judgments is not None and not run_hashes <= {hash_judgments(inputs.judgments)}:
        notes.append("the judgments differ from those that the runs were made with")
    merged = merge_notes([*inputs.notes, *notes, *(() if compared is None else compared.notes)])
    # Those on queries that are left out or count 0 first, since a terminal shows only the first notes.
    return sorted(merged, key=lambda note: not (isinstance(note, Note) and note.code))


def _corpus_size(inputs: ReportInputs) -> int | None:
    """Return the number of documents in the corpus, or None if unknown."""
    if inputs.texts.documents is not None:
        return len(inputs.texts.documents) or None
    counts = [(run.manifest.get("dataset") or {}).get("documents") for run in inputs.runs.values()]
    return next((int(count) for count in counts if count), None)


def _displayed_documents(
    documents: Sequence[Document], runs: Mapping[str, Run], judgments: Judgments | None
) -> dict[str, Document]:
    """Return the documents that were returned or judged."""
    if not documents:
        return {}
    document_ids = set() if judgments is None else set(judgments.frame["doc"].to_list())
    for run in runs.values():
        document_ids.update(run.table["doc"].unique().to_list())
    return {document.id: document for document in documents if document.id in document_ids}
