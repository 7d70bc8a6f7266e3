"""The run tested by a gate and its baseline: resolved from any input, scored, with timings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragauge.comparison.alignment import check_comparable, read_system_scores
from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.record_types import record_type_of
from ragauge.core.records import Judgments, Run, Scores
from ragauge.evaluation.evaluate import average_trials, compute_judged_ranks, judgments_for_measures
from ragauge.files import readers
from ragauge.files.judged_folders import read_judged_scores, read_sample_tags, sample_tags
from ragauge.files.scores import read_scores
from ragauge.gates.run_indicators import RunIndicators
from ragauge.gates.settings import GateSettings
from ragauge.measures.answers import canonical_answer_name
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import JudgedRanks
from ragauge.measures.names import Measure, parse_measure
from ragauge.measures.scoring import score_judged_ranks
from ragauge.runs.experiment_folders import check_same_dataset
from ragauge.runs.folder import DATASET_HASHES, JUDGMENTS_FILE, find_run_folders
from ragauge.runs.input_kinds import InputKind, is_kind
from ragauge.runs.inputs import Inputs, open_run
from ragauge.runs.results import Experiment

JUDGED_SCHEMA = "ragauge-judged"
"""Schema of JudgedSamples, whose class would load all of judging."""
TIMING_COLUMNS = ("query", "repeat", "session", "status", "began_ns", "total_ns")


def already_scored(source: Any, qrels: Any, timings: Any) -> RunIndicators | None:
    """Return an input that is already scored; None if it is still to be scored.

    Accepts Scores, JudgedSamples or their folder, and a table of scores.
    """
    if isinstance(source, Scores):
        return RunIndicators(source.run, source, _check_timings(timings))
    record_type = record_type_of(type(source))
    if record_type is not None and record_type.schema == JUDGED_SCHEMA:
        return RunIndicators(source.name, source.scores, tags=sample_tags(source.samples), covers_all_queries=True)
    if qrels is not None or not isinstance(source, str | Path):
        return None
    if is_kind(source, InputKind.JUDGED):
        judged = read_judged_scores(source, canonical_answer_name)
        return RunIndicators(
            Path(source).resolve().name, judged, tags=read_sample_tags(source), covers_all_queries=True
        )
    if not is_kind(source, InputKind.SCORES):
        return None
    scores_by_run, tags = read_scores(str(source))
    scores = next(iter(scores_by_run.values()))
    if len(scores_by_run) > 1 or not isinstance(scores, Scores):
        raise BadInput(
            f"expected one run, got {', '.join(scores_by_run)}", file=str(source), hint="split the file by run"
        )
    return RunIndicators(scores.run, scores, _check_timings(timings), tags=tags)


def select_from_experiment(experiment: Experiment, system: str | None, baseline: Any) -> tuple[RunIndicators, Any]:
    """Return a system of an experiment, and its baseline.

    The baseline is another system, or the given input. Raises BadInput if the system is ambiguous or the baseline
    could not be built.
    """
    names = list(experiment.scores)
    before = baseline if baseline is not None else experiment.baseline
    candidates = [name for name in names if name != before]
    if system is None and len(candidates) != 1:
        raise BadInput(f"expected the name of one system, of {', '.join(names)}", hint='system="…"')
    chosen = system or candidates[0]
    if chosen not in names:
        raise UnknownName("system", chosen, names)

    def subject(name: str) -> RunIndicators:
        run = experiment.runs[name]
        return RunIndicators(name, experiment.scores[name], run.timings, run.manifest, tags=experiment.dataset.tags)

    if isinstance(before, str) and before in names:
        return subject(chosen), None if before == chosen else subject(before)
    if isinstance(before, str) and before in experiment.failures:
        raise BadInput(f"the baseline `{before}` could not be built", hint=experiment.failures[before].message)
    return subject(chosen), before


def score_run(
    source: Any, qrels: Any, timings: Any, measure_names: Sequence[str], settings: GateSettings
) -> RunIndicators:
    """Score a run by judgments; a folder written by `run` brings its own."""
    if qrels is None and not isinstance(source, str | Path):
        raise BadInput("no judgments given to score the run", hint="use gate(run, rules, qrels=…), or give Scores")
    inputs = Inputs.resolve(source) if qrels is None else Inputs.resolve(qrels, source)
    name, source = inputs.single_run
    if isinstance(source, str | Path) and Path(source).is_dir():
        source = open_run(source)
    # Canonical names spell out every difference from the default, regardless of the convention.
    measures = [parse_measure(name) for name in measure_names]
    judgments = judgments_for_measures(measures, inputs.qrels, targets=settings.targets)
    known_run = source if isinstance(source, Run) else None
    trials = readers.read_differing_trials(source)
    scored_trials = [
        _score_possible_measures(
            compute_judged_ranks(judgments, run, measures, settings.scoring_convention, name=name),
            measures,
            settings.scoring_convention,
        )
        for run in trials or [source]
    ]
    refused = scored_trials[0][1]
    scores = average_trials([scores for scores, _ in scored_trials])
    times = _check_timings(timings) if timings is not None or known_run is None else known_run.timings
    return RunIndicators(
        name, scores, times, EMPTY_MAPPING if known_run is None else known_run.manifest, refused, inputs.tags
    )


def find_judgments_folder(source: Any) -> Path | None:
    """Return the folder with the judgments of a run folder or an experiment folder; None for other inputs."""
    if not isinstance(source, str | Path) or not Path(source).is_dir():
        return None
    folders = [Path(source), Path(source).resolve().parent]
    return next((folder for folder in folders if (folder / JUDGMENTS_FILE).exists()), None)


def _score_possible_measures(
    judged: JudgedRanks, measures: Sequence[Measure], convention: Convention
) -> tuple[Scores, dict[str, str]]:
    """Score all computable measures; return the others with the reason for each."""
    if convention.missing == "error" and not judged.answered.all():
        # A gate does not stop here: the rule on missing queries fails, and the other rules are evaluated.
        convention = replace(convention, missing="zero")
    refused: dict[str, str] = {}
    for measure in measures:
        try:
            score_judged_ranks(judged, [measure], convention)
        except MissingEvidence as error:
            refused[str(measure)] = error.message
    return score_judged_ranks(
        judged, [measure for measure in measures if str(measure) not in refused], convention
    ), refused


def _check_timings(timings: Any) -> Any:
    """Return timings; raises BadInput if columns of a run's timings are missing."""
    if timings is None:
        return None
    import polars as pl

    columns = timings.columns if isinstance(timings, pl.DataFrame) else []
    lacks = [name for name in TIMING_COLUMNS if name not in columns]
    if lacks:
        raise BadInput(f"the timings lack {', '.join(lacks)}", hint="use `timings` of a run that `ragauge.run` made")
    return timings


CREATE_BASELINE_HINT = (
    "create a baseline once, with the version to compare with: `ragauge run DATASET -s NAME=SYSTEM --save-baseline "
    "baselines/docs`; then add `--baseline baselines/docs/NAME`"
)


def baseline_folder(run: Any, baseline: Any) -> Any:
    """Return the baseline, resolving a name to a folder next to the run's.

    The folder of an experiment or of a saved baseline is resolved to its only run, or to the run of the same name.
    """
    if not isinstance(baseline, str | Path) or str(baseline) == "-":
        return baseline
    if is_kind(baseline, InputKind.EXPERIMENT):
        runs = find_run_folders(Path(baseline))
        same = [path for path in runs if isinstance(run, str | Path) and path.name == Path(run).name]
        if len(same or runs) == 1:
            return str((same or runs)[0])
    if Path(baseline).exists():
        return baseline
    sibling_path = Path(run).parent / baseline if isinstance(run, str | Path) else Path(baseline)
    if sibling_path.is_dir() and is_kind(sibling_path, InputKind.RUN, InputKind.JUDGED):
        return str(sibling_path)
    raise BadInput(
        "the baseline does not exist; expected an earlier run, a folder or a file",
        file=str(baseline),
        hint=CREATE_BASELINE_HINT,
    )


def find_judgments(subject: RunIndicators) -> Judgments | None:
    """Return the judgments that a run was scored by, or None if unknown."""
    judged = subject.scores.judged
    return judged.judgments if isinstance(judged, JudgedRanks) else None


def check_baseline_comparable(
    run: RunIndicators, baseline: RunIndicators, *, allow_changed_corpus: bool = False
) -> None:
    """Raise Incomparable if the baseline differs in more than the system.

    Compares data, judgments, convention and judge.
    """
    label = baseline.name if baseline.name != run.name else f"the baseline {baseline.name}"
    run_data, baseline_data = (run_indicators.manifest.get("dataset") or {} for run_indicators in (run, baseline))
    if not allow_changed_corpus:
        check_same_dataset(
            (run.name, run_data),
            (label, baseline_data),
            hint="run both on the same data, or add `--allow-changed-corpus`",
        )
    scores_by_system = read_system_scores({run.name: run.scores, label: baseline.scores})
    check_comparable(
        [scores for seeds in scores_by_system.values() for scores in seeds.values()], judgments=not allow_changed_corpus
    )


def compare_corpora(
    run: RunIndicators, baseline: RunIndicators, texts: Sequence[Mapping[str, str]]
) -> tuple[frozenset[str], list[str]]:
    """Return the common queries of two runs, and notes on how to compare them.

    Queries with different texts are left out, if the texts are known. There are no notes if nothing has changed.
    """
    run_texts, baseline_texts = texts
    shared = run.expected_queries & baseline.expected_queries
    common = frozenset(query for query in shared if run_texts.get(query) == baseline_texts.get(query))
    datasets = [subject.manifest.get("dataset") or {} for subject in (baseline, run)]
    sizes = [dataset.get("documents") for dataset in datasets]
    documents = "" if None in sizes else f" ({sizes[0]:,} documents, now {sizes[1]:,})"
    counts = {
        "only in the run": len(run.expected_queries - baseline.expected_queries),
        "only in the baseline": len(baseline.expected_queries - run.expected_queries),
        "with another text": len(shared - common),
    }
    excluded = ", ".join(f"{n} {label}" for label, n in counts.items() if n)
    judged = [
        judgments.nested if (judgments := find_judgments(subject)) is not None else {} for subject in (run, baseline)
    ]
    changed = sum(dict(judged[0].get(query, {})) != dict(judged[1].get(query, {})) for query in common)
    same_data = all(datasets[0].get(key) == datasets[1].get(key) for key in DATASET_HASHES)
    if same_data and not excluded and not changed:
        return common, []
    notes = [
        f"changed corpus{documents}: rules about a change are computed on the {len(common)} queries of both runs"
        + (f"; left out: {excluded}" if excluded else ""),
        "this shows how the results of these queries changed, but not whether the system "
        "or the documents changed them; new queries are not covered",
    ]
    if changed:
        notes.append(f"judgments of {changed} of the {len(common)} queries differ; each run is scored with its own")
    return common, notes


def timing_difference_notes(run: RunIndicators, baseline: RunIndicators) -> list[str]:
    """Return notes on differences in hardware or workers that affect the timings."""
    notes = []
    for noun, keys in (("machine", ("machine",)), ("number of workers", ("plan", "workers"))):
        values = []
        for run_indicators in (run, baseline):
            value: Any = run_indicators.manifest
            for key in keys:
                value = value.get(key, {}) if isinstance(value, Mapping) else {}
            values.append(value)
        if all(value != {} for value in values) and values[0] != values[1]:
            notes.append(f"{baseline.name} was timed with another {noun}; times may differ for this reason alone")
    return notes
