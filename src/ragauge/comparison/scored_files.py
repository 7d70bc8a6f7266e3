"""Score runs on disk side by side, with their texts, tags and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ragauge.core.errors import BadInput
from ragauge.core.records import Scores
from ragauge.core.run_dates import RunDate
from ragauge.evaluation import compute_judged_ranks, judgments_for_measures, parse_measures
from ragauge.files.judged_folders import (
    is_judged_folder,
    judged_folders_in,
    read_judged_samples,
    read_judged_scores,
    sample_tags,
)
from ragauge.files.neighbour_arrays import check_row_counts, default_measures
from ragauge.files.scores import ScoresBySystem, is_scores_file, read_scores
from ragauge.measures.answers import canonical_answer_name
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score_judged_ranks
from ragauge.runs.folder import read_manifest
from ragauge.runs.inputs import Inputs, check_runs_share_dataset, find_trials, resolve_inputs, split_name

DEFAULT_MEASURES = ("ndcg@10", "map", "mrr")


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
    notes: Sequence[str] = ()
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Run files by system; empty if the inputs were score tables."""
    rules: Convention | None = None
    """Convention of the scores; None if the inputs were score tables."""
    usual_baseline: str | None = None
    """Baseline recorded in the run folder, if any."""
    answers: Mapping[str, RunDate] = field(default_factory=dict)
    """Date of the results by system, if known."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{system: error}` of the systems without a run."""


def score_runs(
    files: Sequence[str],
    baseline: str | None = None,
    measures: Sequence[str] | None = None,
    rules: Convention | None = None,
    *,
    split: str | None = None,
) -> ScoredRuns:
    """Score judgments and runs or run folders, or read score tables.

    The baseline is a name or a file. A file that is not among the others is added to them.
    """
    files = [one for file in files for one in expand_judged_folder(file)]
    if all(is_judged_folder(path) or is_scores_file(path) for path in (split_name(file)[1] for file in files)):
        _check_no_scoring_options(rules, split)
        return _read_score_tables(files, baseline, measures)
    given, baseline = _resolve_inputs_with_baseline(files, baseline)
    check_runs_share_dataset(given)
    rules = rules or find_convention("default")
    check_row_counts(given.qrels, [path for runs in given.runs.values() for path in runs])
    usual = default_measures(given.qrels, [path for runs in given.runs.values() for path in runs])
    wanted = parse_measures(measures or given.measures or usual or DEFAULT_MEASURES, rules)
    judgments = judgments_for_measures(wanted, given.qrels, split=split)
    scores: dict[str, Scores | list[Scores]] = {}
    for name, runs in given.runs.items():
        trials = [trial for run in runs for trial in find_trials(run)]
        found = [
            score_judged_ranks(compute_judged_ranks(judgments, run, wanted, rules, name=name), wanted, rules)
            for run in trials
        ]
        scores[name] = found[0] if len(found) == 1 else found
    names = [str(one) if isinstance(one, Measure) else one.__name__ for one in wanted]
    return ScoredRuns(
        scores, baseline, names, given.texts, given.tags, given.dataset, (), given.runs, rules,
        given.baseline, _find_result_dates(given.runs), given.failures,
    )  # fmt: skip


def _find_result_dates(runs: Mapping[str, Sequence[str]]) -> dict[str, RunDate]:
    """Return the date of each system's results, from the manifests of its run folders."""
    found = {name: RunDate.find(*(read_manifest(one) for one in several)) for name, several in runs.items()}
    return {name: date for name, date in found.items() if date is not None}


def _check_no_scoring_options(rules: Convention | None, split: str | None) -> None:
    """Raise BadInput for a convention or a split if the scores are already computed."""
    given = {"convention": None if rules is None or rules == find_convention("default") else rules.name, "split": split}
    for name, value in given.items():
        if value is not None:
            raise BadInput(
                f"a {name} does not apply to scores that are computed already; expected judgments and runs, got {name} "
                f"`{value}`",
                hint=f"remove the {name}, or give the judgments and the runs",
            )


def expand_judged_folder(file: str) -> list[str]:
    """Return the judged folders in a folder, or the file itself."""
    place = Path(file)
    if (
        split_name(file)[0] is not None
        or not place.is_dir()
        or is_judged_folder(file)
        or (place / "judgments.parquet").exists()
    ):
        return [file]
    return judged_folders_in(file) or [file]


def _read_score_tables(files: Sequence[str], baseline: str | None, measures: Sequence[str] | None) -> ScoredRuns:
    if baseline is not None and is_judged_folder(baseline) and _is_extra_baseline(baseline, files):
        files = [*files, baseline]
    known: dict[str, Scores | dict[str, Scores]] = {}
    tags: dict[str, dict[str, str]] = {}
    texts: dict[str, str] = {}
    for file in files:
        name, path = split_name(file)
        scores, more = _read_judged_folder(path, texts) if is_judged_folder(path) else read_scores(path)
        if name is not None and len(scores) == 1:
            scores = {name: next(iter(scores.values()))}
        if baseline is not None and (baseline == file or _is_same_judged_folder(baseline, path)) and len(scores) == 1:
            baseline = next(iter(scores))
        twice = next((one for one in scores if one in known), None)
        if twice is not None:
            raise BadInput(f"`{twice}` is in two files", file=path, hint="NAME=FILE gives a system another name")
        known.update(scores)
        tags.update(more)
    return ScoredRuns(known, baseline, measures, {name: text for name, text in texts.items() if text}, tags)


def _read_judged_folder(path: str, texts: dict[str, str]) -> tuple[ScoresBySystem, dict[str, dict[str, str]]]:
    """Read the scores and tags of a judged folder, and add its questions to `texts`."""
    samples = read_judged_samples(path)
    texts.update({one.id: one.question for one in samples})
    return {Path(path).resolve().name: read_judged_scores(path, canonical_answer_name)}, sample_tags(samples)


def _is_same_judged_folder(one: str, other: str) -> bool:
    return is_judged_folder(one) and Path(one).resolve() == Path(other).resolve()


def _is_extra_baseline(baseline: str, files: Sequence[str]) -> bool:
    return not any(_is_same_judged_folder(baseline, split_name(file)[1]) for file in files)


def _resolve_inputs_with_baseline(files: Sequence[str], baseline: str | None) -> tuple[Inputs, str | None]:
    given = resolve_inputs(files)
    if baseline is None or baseline in given.runs:
        return given, baseline
    place = Path(baseline).resolve()
    if split_name(baseline)[0] is None and place.exists() and _find_run_name(given, place) is None:
        given = resolve_inputs([*files, baseline])
    return given, _find_run_name(given, place) or baseline


def _find_run_name(given: Inputs, place: Path) -> str | None:
    return next((name for name, runs in given.runs.items() if place in [Path(run).resolve() for run in runs]), None)
