"""Score runs on disk side by side, with their texts, tags and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ragauge.core.errors import BadInput
from ragauge.core.records import Scores
from ragauge.core.run_dates import AnswerDate
from ragauge.evaluation import count, judgments_for, read_measures
from ragauge.files.judged_folders import is_judged, judged_in, read_judged_samples, read_judged_scores, tags_of
from ragauge.files.neighbour_arrays import check_rows
from ragauge.files.neighbour_arrays import default_measures as neighbour_measures
from ragauge.files.scores import Known, holds_scores, read_scores
from ragauge.measures.answers import canonical
from ragauge.measures.conventions import Convention
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score
from ragauge.runs.folder import read_manifest
from ragauge.runs.inputs import Given, gather, named, refuse_other_data, trials_in

MEASURES = ("ndcg@10", "map", "mrr")


@dataclass(frozen=True, eq=False)
class Scored:
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
    answers: Mapping[str, AnswerDate] = field(default_factory=dict)
    """Date of the results by system, if known."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{system: error}` of the systems without a run."""


def score_files(
    files: Sequence[str],
    baseline: str | None = None,
    measures: Sequence[str] | None = None,
    rules: Convention | None = None,
    *,
    split: str | None = None,
) -> Scored:
    """Score judgments and runs or run folders, or read score tables.

    The baseline is a name or a file. A file that is not among the others is added to them.
    """
    files = [one for file in files for one in judged_parts(file)]
    if all(is_judged(path) or holds_scores(path) for path in (named(file)[1] for file in files)):
        _refuse_rules(rules, split)
        return _tables(files, baseline, measures)
    given, baseline = _with_baseline(files, baseline)
    refuse_other_data(given)
    rules = rules or find_convention("default")
    check_rows(given.qrels, [path for runs in given.runs.values() for path in runs])
    usual = neighbour_measures(given.qrels, [path for runs in given.runs.values() for path in runs])
    wanted = read_measures(measures or given.measures or usual or MEASURES, rules)
    judgments = judgments_for(wanted, given.qrels, split=split)
    scores: dict[str, Scores | list[Scores]] = {}
    for name, runs in given.runs.items():
        trials = [trial for run in runs for trial in trials_in(run)]
        found = [score(count(judgments, run, wanted, rules, name=name), wanted, rules) for run in trials]
        scores[name] = found[0] if len(found) == 1 else found
    names = [str(one) if isinstance(one, Measure) else one.__name__ for one in wanted]
    return Scored(
        scores, baseline, names, given.texts, given.tags, given.dataset, (), given.runs, rules,
        given.baseline, _answer_dates(given.runs), given.failures,
    )  # fmt: skip


def _answer_dates(runs: Mapping[str, Sequence[str]]) -> dict[str, AnswerDate]:
    """Return the date of each system's results, from the manifests of its run folders."""
    found = {name: AnswerDate.find(*(read_manifest(one) for one in several)) for name, several in runs.items()}
    return {name: date for name, date in found.items() if date is not None}


def _refuse_rules(rules: Convention | None, split: str | None) -> None:
    """Raise BadInput for a convention or a split if the scores are already computed."""
    given = {"convention": None if rules is None or rules == find_convention("default") else rules.name, "split": split}
    for name, value in given.items():
        if value is not None:
            raise BadInput(
                f"a {name} does not apply to scores that are computed already; expected judgments and runs, got {name} "
                f"`{value}`",
                hint=f"remove the {name}, or give the judgments and the runs",
            )


def judged_parts(file: str) -> list[str]:
    """Return the judged folders in a folder, or the file itself."""
    place = Path(file)
    if named(file)[0] is not None or not place.is_dir() or is_judged(file) or (place / "judgments.parquet").exists():
        return [file]
    return judged_in(file) or [file]


def _tables(files: Sequence[str], baseline: str | None, measures: Sequence[str] | None) -> Scored:
    if baseline is not None and is_judged(baseline) and _elsewhere(baseline, files):
        files = [*files, baseline]
    known: dict[str, Scores | dict[str, Scores]] = {}
    tags: dict[str, dict[str, str]] = {}
    texts: dict[str, str] = {}
    for file in files:
        name, path = named(file)
        scores, more = _of_judged(path, texts) if is_judged(path) else read_scores(path)
        if name is not None and len(scores) == 1:
            scores = {name: next(iter(scores.values()))}
        if baseline is not None and (baseline == file or _same(baseline, path)) and len(scores) == 1:
            baseline = next(iter(scores))
        twice = next((one for one in scores if one in known), None)
        if twice is not None:
            raise BadInput(f"`{twice}` is in two files", file=path, hint="NAME=FILE gives a system another name")
        known.update(scores)
        tags.update(more)
    return Scored(known, baseline, measures, {name: text for name, text in texts.items() if text}, tags)


def _of_judged(path: str, texts: dict[str, str]) -> tuple[Known, dict[str, dict[str, str]]]:
    """Read the scores and tags of a judged folder, and add its questions to `texts`."""
    samples = read_judged_samples(path)
    texts.update({one.id: one.question for one in samples})
    return {Path(path).resolve().name: read_judged_scores(path, canonical)}, tags_of(samples)


def _same(one: str, other: str) -> bool:
    return is_judged(one) and Path(one).resolve() == Path(other).resolve()


def _elsewhere(baseline: str, files: Sequence[str]) -> bool:
    return not any(_same(baseline, named(file)[1]) for file in files)


def _with_baseline(files: Sequence[str], baseline: str | None) -> tuple[Given, str | None]:
    given = gather(files)
    if baseline is None or baseline in given.runs:
        return given, baseline
    place = Path(baseline).resolve()
    if named(baseline)[0] is None and place.exists() and _name_of(given, place) is None:
        given = gather([*files, baseline])
    return given, _name_of(given, place) or baseline


def _name_of(given: Given, place: Path) -> str | None:
    return next((name for name, runs in given.runs.items() if place in [Path(run).resolve() for run in runs]), None)
