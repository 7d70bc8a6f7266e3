"""Collect the scores, runs, texts and tags that an overview is built from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragauge.comparison.results import Overview
from ragauge.comparison.scored_files import SCORED_KINDS, score_inputs
from ragauge.core.errors import BadInput, Incomparable, RagaugeError, UnknownName
from ragauge.core.records import Judgments, Run, Scores
from ragauge.core.settings import unique_by
from ragauge.evaluation import judgments_for_measures, parse_measures, score_trials
from ragauge.files.source import InputFile
from ragauge.measures.conventions import PRESETS, Convention, find_convention
from ragauge.reports import layouts
from ragauge.reports.system_summaries import TagsByQuery
from ragauge.runs.input_kinds import InputKind, is_kind, resolve_input, split_path_name
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
    rules: Convention | None
    dataset: str
    count_missing: bool = False
    failures: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    known: Overview | None = None
    """Further data that another tool's result file contains."""
    again: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    """Repeated runs of a system that are stored in separate files."""
    title: str = ""
    """Fallback title if the dataset is unknown."""

    @property
    def judgments(self) -> Judgments | None:
        """Judgments that the scores are based on; None if unknown."""
        judged = next(iter(self.trials.values()))[0].judged
        return None if judged is None else judged.judgments


def inputs_from_experiment(
    given: Experiment, baseline: str | None, measures: Sequence[str] | None, rules: Convention | None
) -> ReportInputs:
    """Build report inputs from an experiment.

    Runs are scored again if other measures or another convention are requested.
    """
    data = given.dataset
    if baseline is not None and baseline not in given.scores:
        raise UnknownName("system", baseline, given.scores, hint=f"choose one of {', '.join(given.scores)}")
    scores = {name: list(given.every_time(name)) for name in given.scores}
    known = rules or PRESETS.get(next(iter(given.scores.values())).convention)
    notes = list(given.notes)
    if measures is not None or rules is not None:
        if known is None:
            notes.append("the measures are those of the run, whose convention is not a preset")
        else:
            wanted = parse_measures(measures or given.measures, known)
            judgments = judgments_for_measures(wanted, data.judgments)
            scores = {
                name: score_trials(judgments, run.differing() or [run], wanted, known, name=name)
                for name, run in given.runs.items()
            }
    first = next(iter(scores.values()))[0]
    return ReportInputs(
        scores,
        first.measures,
        given.runs,
        DocumentTexts(data.documents or None, data.queries),
        data.tags,
        baseline or (given.baseline if given.baseline in scores else None),
        known,
        data.name,
        True,  # Every query was run, so a missing ranking is an empty one.
        {name: error.message for name, error in given.failures.items() if name not in given.runs},
        notes,
    )


def inputs_from_files(
    files: Sequence[str],
    baseline: str | None,
    measures: Sequence[str] | None,
    rules: Convention,
    dataset: str | Path | None,
    split: str | None,
) -> ReportInputs:
    """Build report inputs from judgments and runs, run folders or score tables.

    Texts are added if they can be found.
    """
    named = {"baseline": baseline, "dataset": dataset}
    inputs = Inputs.resolve(*files, named=named, split=split, tables=SCORED_KINDS)
    scored_runs = score_inputs(inputs, measures, rules)
    trials = {
        name: [scores] if isinstance(scores, Scores) else list(_list_scores(scores))
        for name, scores in scored_runs.scores.items()
    }
    usual = scored_runs.inputs.baseline if scored_runs.inputs.baseline in trials else None
    runs = scored_runs.inputs.open_runs()
    texts = scored_runs.inputs.texts(runs) if runs else DocumentTexts(None, scored_runs.texts or None)
    shared = [
        m for m in next(iter(trials.values()))[0].measures if all(m in trial[0].values for trial in trials.values())
    ]
    if not shared:
        raise BadInput("the systems have no measure in common", hint="score them with the same measures")
    for measure in scored_runs.measures or ():
        if measure not in shared:
            raise UnknownName("measure", measure, shared, hint=f"choose one of {', '.join(shared)}")
    if scored_runs.baseline is not None and scored_runs.baseline not in trials:
        raise UnknownName("system", scored_runs.baseline, trials, hint=f"choose one of {', '.join(trials)}")
    return ReportInputs(
        trials,
        list(scored_runs.measures or shared),
        {name: several[0] for name, several in runs.items()},
        texts,
        scored_runs.tags,
        scored_runs.baseline or usual,
        scored_runs.rules,
        scored_runs.dataset,
        failures=inputs.failures,
        notes=list(dict.fromkeys(texts.absent.values())),
        again={name: several[1:] for name, several in runs.items() if len(several) > 1},
        title=InputFile(split_path_name(files[0])[1]).stem,
    )


def _list_scores(scores: Sequence[Scores] | Mapping[str, Scores]) -> Iterable[Scores]:
    return scores.values() if isinstance(scores, Mapping) else scores


def find_layout_settings(
    given: Any, layout: layouts.Layout, rules: str | Convention | None
) -> tuple[dict[str, Any], list[str]]:
    """Return the measures and convention for scores in a layout, with notes on them.

    Scores read from a layout's own files need no settings. If the data have a target map and the layout supports it,
    the map is used, unless `rules` selects another convention.
    """
    files = [] if isinstance(given, Experiment) else [given] if isinstance(given, str | Path) else list(given)
    if files and _find_layouts(list(map(str, files))):
        return {}, []
    if rules is not None and (preset := find_convention(rules).name.partition(",")[0]) in layout.variants:
        return {"measures": layout.variants[preset]}, []
    known = _has_target_map(given) if rules is None else find_convention(rules).targets == "map"
    if not (layout.mapped and known):
        return {"measures": layout.measures(), "convention": layout.convention}, []
    own = f"--convention {layout.convention} uses each document as its own target"
    said = f"dr and diversity_count use the target map of the dataset; {own}"
    return {"measures": layout.mapped, "convention": PRESETS[layout.convention].but(targets="map")}, [said]


def _has_target_map(given: Any) -> bool:
    """Return whether the judgments have a target map."""
    if isinstance(given, Experiment):
        return given.dataset.judgments.targets is not None
    try:
        inputs = Inputs.resolve(*([given] if isinstance(given, str | Path) else given))
        if isinstance(inputs.qrels, str) and not Path(inputs.qrels).is_dir():
            return False
        return inputs.judgments().targets is not None
    except RagaugeError:
        return False  # Errors in the files are reported when they are scored.


def _find_layouts(files: Sequence[str]) -> dict[str, str]:
    """Return the layouts of files by path; empty unless each is in the layout of another tool."""
    paths = [split_path_name(file)[1] for file in files]
    if not all(path != "-" and Path(path).is_file() and is_kind(path, InputKind.LAYOUT) for path in paths):
        return {}
    inputs = [resolve_input(path, expected=[InputKind.LAYOUT]) for path in paths]
    return {layout.value: layout.facts["layout"] for layout in inputs}


def inputs_from_layouts(
    files: Sequence[str], baseline: str | None, measures: Sequence[str] | None
) -> Overview | ReportInputs | None:
    """Read results of other tools. Return None if a file is not in a known layout.

    Without per-query scores, the overview of the means is returned instead of report inputs.
    """
    found = _find_layouts(files)
    if not found:
        return None
    paths = list(found)
    read = [layouts.find_layout(layout).read(path) for path, layout in found.items()]
    names = [name for overview in read for name in overview.entries]
    unique_by(names, str, "system", hint="rename it in one of the files")
    whole = read[0]
    for path, overview in zip(paths[1:], read[1:], strict=True):
        if overview.convention != whole.convention:
            raise Incomparable(f"{path} follows the convention {overview.convention}, {paths[0]} {whole.convention}")
        shared = [measure for measure in whole.measures if measure in overview.measures]
        tags = {**whole.tags, **overview.tags}
        whole = replace(whole, entries={**whole.entries, **overview.entries}, measures=shared, tags=tags)
    if not whole.measures:
        raise BadInput("the systems have no measure in common", file=paths[-1])
    if baseline is not None and baseline not in whole.entries:
        raise UnknownName("system", baseline, whole.entries, hint=f"choose one of {', '.join(whole.entries)}")
    for name in measures or ():
        if name not in whole.measures:
            raise UnknownName("measure", name, whole.measures, hint=f"choose one of {', '.join(whole.measures)}")
    whole = replace(whole, baseline=baseline or whole.baseline, measures=list(measures or whole.measures))
    if not all(entry.scores for entry in whole.entries.values()):
        return whole
    return ReportInputs(
        {name: list(entry.scores) for name, entry in whole.entries.items()},
        list(whole.measures),
        {},
        DocumentTexts(None, whole.queries or None),
        whole.tags,
        whole.baseline,
        None,
        whole.dataset,
        notes=whole.notes,
        known=whole,
    )
