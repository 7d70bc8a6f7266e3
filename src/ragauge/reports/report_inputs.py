"""Collect the scores, runs, texts and tags that an overview is built from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragauge.comparison.results import Overview
from ragauge.comparison.scored_files import ScoredRuns, score_runs
from ragauge.core.errors import BadInput, Incomparable, RagaugeError, UnknownName
from ragauge.core.records import Judgments, Run, Scores
from ragauge.evaluation import compute_judged_ranks, judgments_for_measures, parse_measures
from ragauge.files.readers import read_judgments
from ragauge.files.source import InputFile
from ragauge.measures.conventions import PRESETS, Convention, find_convention
from ragauge.measures.scoring import score_judged_ranks
from ragauge.reports import layouts
from ragauge.reports.survey import TagsByQuery
from ragauge.runs.inputs import DocumentTexts, find_run_texts, load_texts, open_run, resolve_inputs, split_name
from ragauge.runs.results import Experiment


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
        raise UnknownName("system", baseline, given.scores, hint=f"the baseline is one of {', '.join(given.scores)}")
    scores = {name: list(given.every_time(name)) for name in given.scores}
    known = rules or PRESETS.get(next(iter(given.scores.values())).convention)
    notes = list(given.notes)
    if measures is not None or rules is not None:
        if known is None:
            notes.append("the measures are those of the run, whose convention is nobody else's")
        else:
            wanted = parse_measures(measures or given.measures, known)
            judgments = judgments_for_measures(wanted, data.judgments)
            scores = {
                name: [
                    score_judged_ranks(compute_judged_ranks(judgments, one, wanted, known, name=name), wanted, known)
                    for one in run.differing() or [run]
                ]
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
    found: ScoredRuns = score_runs(files, baseline, measures, rules, split=split)
    trials = {
        name: [scores] if isinstance(scores, Scores) else list(_list_scores(scores))
        for name, scores in found.scores.items()
    }
    usual = found.usual_baseline if found.usual_baseline in trials else None
    runs = {name: open_run(paths[0]) for name, paths in found.files.items()}
    texts = DocumentTexts(None, found.texts or None)
    if dataset is not None:
        texts = load_texts(None, dataset, found.texts or None, split)
    elif runs:
        beside = load_texts(files[0], None, None, split)
        texts = DocumentTexts(beside.documents, found.texts or beside.queries)
        if texts.documents is None:
            texts = find_run_texts([run.manifest for run in runs.values()], texts, found.dataset)
    shared = [m for m in next(iter(trials.values()))[0].measures if all(m in one[0].values for one in trials.values())]
    if not shared:
        raise BadInput("the systems have no measure in common", hint="score them by the same measures")
    for measure in found.measures or ():
        if measure not in shared:
            raise UnknownName("measure", measure, shared, hint=f"the files have {', '.join(shared)}")
    if found.baseline is not None and found.baseline not in trials:
        raise UnknownName("system", found.baseline, trials, hint=f"the baseline is one of {', '.join(trials)}")
    return ReportInputs(
        trials,
        list(found.measures or shared),
        runs,
        texts,
        found.tags,
        found.baseline or usual,
        found.rules,
        found.dataset,
        failures=found.failures,
        notes=[*found.notes, *dict.fromkeys(texts.absent.values())],
        again={name: [open_run(path) for path in paths[1:]] for name, paths in found.files.items() if len(paths) > 1},
        title=InputFile(split_name(files[0])[1]).stem,
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
    paths = [split_name(str(one))[1] for one in files]
    if paths and all(path != "-" and Path(path).is_file() and layouts.recognise_layout(path) for path in paths):
        return {}, []
    if rules is not None and (preset := find_convention(rules).name.partition(",")[0]) in layout.variants:
        return {"measures": layout.variants[preset]}, []
    known = _has_target_map(given) if rules is None else find_convention(rules).targets == "map"
    if not (layout.mapped and known):
        return {"measures": layout.measures(), "convention": layout.convention}, []
    own = f"--convention {layout.convention} takes each document for its own target"
    said = f"dr and diversity_count go by the target map of the data; {own}"
    return {"measures": layout.mapped, "convention": PRESETS[layout.convention].but(targets="map")}, [said]


def _has_target_map(given: Any) -> bool:
    """Return whether the judgments have a target map."""
    if isinstance(given, Experiment):
        return given.dataset.judgments.targets is not None
    try:
        found = resolve_inputs([str(one) for one in ([given] if isinstance(given, str | Path) else given)]).qrels
        if isinstance(found, str):
            found = read_judgments(found) if Path(found).is_dir() else None
    except RagaugeError:
        return False  # Errors in the files are reported when they are scored.
    return found is not None and found.targets is not None


def inputs_from_layouts(
    files: Sequence[str], baseline: str | None, measures: Sequence[str] | None
) -> Overview | ReportInputs | None:
    """Read results of other tools. Return None if a file is not in a known layout.

    Without per-query scores, the overview of the means is returned instead of report inputs.
    """
    paths = [split_name(file)[1] for file in files]
    kinds = [layouts.recognise_layout(path) for path in paths if path != "-" and Path(path).is_file()]
    if len(kinds) < len(paths) or not all(kinds):
        return None
    read = [layouts.find_layout(str(kind)).read(path) for kind, path in zip(kinds, paths, strict=True)]
    whole = read[0]
    for path, one in zip(paths[1:], read[1:], strict=True):
        twice = next((name for name in one.entries if name in whole.entries), None)
        if twice is not None:
            raise BadInput(f"`{twice}` is in two files", file=path, hint="give one of them another name in its file")
        if one.convention != whole.convention:
            raise Incomparable(f"{path} follows the convention {one.convention}, {paths[0]} {whole.convention}")
        shared = [measure for measure in whole.measures if measure in one.measures]
        tags = {**whole.tags, **one.tags}
        whole = replace(whole, entries={**whole.entries, **one.entries}, measures=shared, tags=tags)
    if not whole.measures:
        raise BadInput("the systems have no measure in common", file=paths[-1])
    if baseline is not None and baseline not in whole.entries:
        raise UnknownName("system", baseline, whole.entries, hint=f"there are {', '.join(whole.entries)}")
    for name in measures or ():
        if name not in whole.measures:
            raise UnknownName("measure", name, whole.measures, hint=f"there are {', '.join(whole.measures)}")
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
