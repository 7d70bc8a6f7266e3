"""Score runs on disk side by side, with their texts, tags and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput
from ragauge.core.records import Run, Scores
from ragauge.core.run_dates import RunDate
from ragauge.core.settings import unique_by
from ragauge.evaluation.evaluate import judgments_for_measures, parse_measures, score_trials, with_target_map
from ragauge.files.judged_folders import is_judged_folder, read_judged_samples, read_judged_scores, sample_tags
from ragauge.files.neighbour_arrays import check_row_counts, neighbour_array_measures
from ragauge.files.scores import ScoresBySystem, read_scores
from ragauge.measures.answers import canonical_answer_name
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.names import Measure
from ragauge.runs.folder import read_manifest
from ragauge.runs.input_kinds import InputKind, ResolvedInput
from ragauge.runs.inputs import Inputs, is_same_path

COMPARISON_MEASURES = ("ndcg@10", "map", "mrr")
SCORED_KINDS = frozenset({InputKind.JUDGED, InputKind.SCORES})
"""Kinds of inputs that have scores, so that nothing is computed."""


@dataclass(frozen=True, eq=False)
class ScoredRuns:
    """Scores by system, with one entry per seed if there are several."""

    scores: Mapping[str, Scores | Sequence[Scores] | Mapping[str, Scores]]
    baseline: str | None
    measures: Sequence[str] | None
    """Canonical names of the requested measures; None if the files decide."""
    texts: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dataset: str = ""
    inputs: Inputs = field(default_factory=Inputs)
    """Judgments and runs that were scored; without runs if the inputs were score tables."""
    convention: Convention | None = None
    """Convention of the scores; None if the inputs were score tables."""
    run_dates: Mapping[str, RunDate] = field(default_factory=dict)
    """Date of the results by system, if known."""


def score_inputs(
    inputs: Inputs, measures: Sequence[str] | None = None, convention: Convention | None = None
) -> ScoredRuns:
    """Score judgments and runs, or read tables of scores and judged folders."""
    if inputs.tables:
        _check_no_scoring_options(convention, inputs.split, inputs.targets)
        return _read_score_tables(inputs, measures)
    inputs.check_same_dataset()
    convention = with_target_map(convention or find_convention("default"), inputs.qrels, inputs.targets)
    sources = [source for run_sources in inputs.run_sources.values() for source in run_sources]
    check_row_counts(inputs.qrels, sources)
    array_measures = neighbour_array_measures(inputs.qrels, sources)
    parsed_measures = parse_measures(measures or inputs.measures or array_measures or COMPARISON_MEASURES, convention)
    judgments = judgments_for_measures(parsed_measures, inputs.qrels, split=inputs.split, targets=inputs.targets)
    scores: dict[str, Scores | list[Scores]] = {}
    for name in inputs.run_sources:
        trials = score_trials(judgments, inputs.trials(name), parsed_measures, convention, name=name)
        scores[name] = trials[0] if len(trials) == 1 else trials
    return ScoredRuns(
        scores,
        inputs.requested_baseline,
        [str(measure) if isinstance(measure, Measure) else measure.__name__ for measure in parsed_measures],
        inputs.query_texts,
        inputs.tags,
        inputs.dataset_name,
        inputs=inputs,
        convention=convention,
        run_dates=_find_run_dates(inputs.run_sources),
    )


def score_runs(
    files: Sequence[Any],
    baseline: str | None = None,
    measures: Sequence[str] | None = None,
    convention: Convention | None = None,
    *,
    split: str | None = None,
    targets: Any = None,
) -> ScoredRuns:
    """Score files, or judgments and runs by name; see `score_inputs`.

    The baseline is a name, or a file that is added to them.
    """
    named = {"baseline": baseline}
    inputs = Inputs.resolve(*files, named=named, split=split, targets=targets, tables=SCORED_KINDS)
    return score_inputs(inputs, measures, convention)


def _find_run_dates(runs: Mapping[str, Sequence[Any]]) -> dict[str, RunDate]:
    """Return the date of each system's results, from the manifests of its runs."""
    dates = {name: RunDate.find(*map(_find_manifest, sources)) for name, sources in runs.items()}
    return {name: date for name, date in dates.items() if date is not None}


def _find_manifest(run: Any) -> Mapping[str, Any]:
    return read_manifest(run) if isinstance(run, str | Path) else run.manifest if isinstance(run, Run) else {}


def _check_no_scoring_options(convention: Convention | None, split: str | None, targets: Any) -> None:
    """Raise BadInput for a convention, a split or a target map if the scores are already computed."""
    options = {
        "convention": None if convention is None or convention == find_convention("default") else convention.name,
        "split": split,
        "target map": targets,
    }
    for name, value in options.items():
        if value is not None:
            raise BadInput(
                f"a {name} does not apply to scores that are computed already; expected judgments and runs, got {name} "
                f"`{value}`",
                hint=f"remove the {name}, or give the judgments and the runs",
            )


def _read_score_tables(inputs: Inputs, measures: Sequence[str] | None) -> ScoredRuns:
    baseline = inputs.requested_baseline
    systems: list[tuple[str, Scores | dict[str, Scores]]] = []
    tags: dict[str, dict[str, str]] = {}
    texts: dict[str, str] = {}
    for table in inputs.tables:
        scores, more_tags = (
            _read_judged_folder(table.value, texts) if table.kind is InputKind.JUDGED else read_scores(table.value)
        )
        if table.name and len(scores) == 1:
            scores = {table.name: next(iter(scores.values()))}
        if baseline is not None and len(scores) == 1 and _names_table(baseline, table):
            baseline = next(iter(scores))
        systems += scores.items()
        tags.update(more_tags)
    scores_by_system = dict(unique_by(systems, itemgetter(0), "system", hint="NAME=FILE gives a system another name"))
    return ScoredRuns(scores_by_system, baseline, measures, {name: text for name, text in texts.items() if text}, tags)


def _names_table(baseline: str, table: ResolvedInput) -> bool:
    """Return whether a baseline is given by the path of a table, with or without its name."""
    if baseline in (table.value, f"{table.name}={table.value}"):
        return True
    return table.kind is InputKind.JUDGED and is_judged_folder(baseline) and is_same_path(baseline, table.value)


def _read_judged_folder(path: str, texts: dict[str, str]) -> tuple[ScoresBySystem, dict[str, dict[str, str]]]:
    """Read the scores and tags of a judged folder, and add its questions to `texts`."""
    samples = read_judged_samples(path)
    texts.update({sample.id: sample.question for sample in samples})
    return {Path(path).resolve().name: read_judged_scores(path, canonical_answer_name)}, sample_tags(samples)
