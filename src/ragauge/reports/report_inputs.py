"""Collect the scores, runs, texts and tags that an overview is built from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge.comparison.scored_files import SCORED_KINDS, score_inputs
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Judgments, Run, Scores
from ragauge.evaluation.evaluate import judgments_for_measures, parse_measures, score_trials, with_target_map
from ragauge.files.source import InputFile
from ragauge.measures.conventions import PRESETS, Convention
from ragauge.reports.system_summaries import TagsByQuery
from ragauge.runs.input_kinds import split_path_name
from ragauge.runs.inputs import Inputs
from ragauge.runs.results import Experiment
from ragauge.runs.texts import DocumentTexts


@dataclass(frozen=True, eq=False)
class ReportInputs:
    """Scores by system, with the runs, texts and tags they belong to."""

    trials: dict[str, list[Scores]]
    measures: list[str]
    runs: Mapping[str, Run]
    texts: DocumentTexts
    tags: TagsByQuery
    baseline: str | None
    convention: Convention | None
    dataset: str
    count_missing: bool = False
    failures: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    repeats: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    """Repeated runs of a system that are stored in separate files."""
    title: str = ""
    """Fallback title if the dataset is unknown."""

    @property
    def judgments(self) -> Judgments | None:
        """Judgments that the scores are based on; None if unknown."""
        judged = next(iter(self.trials.values()))[0].judged
        return None if judged is None else judged.judgments


def inputs_from_experiment(
    experiment: Experiment,
    baseline: str | None,
    measures: Sequence[str] | None,
    requested_convention: Convention | None,
) -> ReportInputs:
    """Build report inputs from an experiment.

    Runs are scored again if other measures or another convention are requested.
    """
    data = experiment.dataset
    if baseline is not None and baseline not in experiment.scores:
        raise UnknownName("system", baseline, experiment.scores)
    scores = {name: list(experiment.scores_by_trial(name)) for name in experiment.scores}
    convention = requested_convention or PRESETS.get(next(iter(experiment.scores.values())).convention)
    notes = list(experiment.notes)
    if measures is not None or requested_convention is not None:
        if convention is None:
            notes.append("the measures are those of the run, whose convention is not a preset")
        else:
            convention = with_target_map(convention, data.judgments)
            requested_measures = parse_measures(measures or experiment.measures, convention)
            judgments = judgments_for_measures(requested_measures, data.judgments)
            scores = {
                name: score_trials(judgments, run.differing() or [run], requested_measures, convention, name=name)
                for name, run in experiment.runs.items()
            }
    first = next(iter(scores.values()))[0]
    return ReportInputs(
        scores,
        first.measures,
        experiment.runs,
        DocumentTexts(data.documents or None, data.queries),
        data.tags,
        baseline or (experiment.baseline if experiment.baseline in scores else None),
        convention,
        data.name,
        True,  # Every query was run, so a missing ranking is an empty one.
        {name: error.message for name, error in experiment.failures.items() if name not in experiment.runs},
        notes,
    )


def inputs_from_files(
    files: Sequence[Any],
    baseline: str | None,
    measures: Sequence[str] | None,
    convention: Convention,
    dataset: str | Path | None,
    split: str | None,
    targets: Any = None,
) -> ReportInputs:
    """Build report inputs from judgments and runs, run folders or score tables.

    Texts are added if they can be found.
    """
    named = {"baseline": baseline, "dataset": dataset}
    inputs = Inputs.resolve(*files, named=named, split=split, targets=targets, tables=SCORED_KINDS)
    scored_runs = score_inputs(inputs, measures, convention)
    trials = {
        name: [scores] if isinstance(scores, Scores) else list(_list_scores(scores))
        for name, scores in scored_runs.scores.items()
    }
    default_baseline = scored_runs.inputs.baseline if scored_runs.inputs.baseline in trials else None
    runs = scored_runs.inputs.open_runs()
    texts = scored_runs.inputs.texts(runs) if runs else DocumentTexts(None, scored_runs.texts or None)
    shared = [
        m for m in next(iter(trials.values()))[0].measures if all(m in trial[0].values for trial in trials.values())
    ]
    if not shared:
        raise BadInput("the systems have no measure in common", hint="score them with the same measures")
    for measure in scored_runs.measures or ():
        if measure not in shared:
            raise UnknownName("measure", measure, shared)
    if scored_runs.baseline is not None and scored_runs.baseline not in trials:
        raise UnknownName("system", scored_runs.baseline, trials)
    return ReportInputs(
        trials,
        list(scored_runs.measures or shared),
        {name: system_runs[0] for name, system_runs in runs.items()},
        texts,
        scored_runs.tags,
        scored_runs.baseline or default_baseline,
        scored_runs.convention,
        scored_runs.dataset,
        failures=inputs.failures,
        notes=list(dict.fromkeys(texts.absent.values())),
        repeats={name: system_runs[1:] for name, system_runs in runs.items() if len(system_runs) > 1},
        title=InputFile(split_path_name(files[0])[1]).stem if isinstance(files[0], str) else "",
    )


def _list_scores(scores: Sequence[Scores] | Mapping[str, Scores]) -> Iterable[Scores]:
    return scores.values() if isinstance(scores, Mapping) else scores
