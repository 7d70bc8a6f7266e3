"""Results folder of `judge`: scores, verdicts and report, written and read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.samples import Sample, Verdicts, has_same_texts
from ragauge.files import judged_folders
from ragauge.files.json_files import read_json_lines
from ragauge.files.judged_folders import (
    MANIFEST_FILE,
    SAMPLES_FILE,
    SCORES_FILE,
    VERDICTS_FILE,
    is_judged_folder,
)
from ragauge.files.samples import read_samples, write_samples
from ragauge.files.serialization import from_json_data, from_record_data, to_json, to_json_data, write_record
from ragauge.files.source import InputFile
from ragauge.files.workspace import atomic_write
from ragauge.judging.all_steps import STEPS, describe_kinds
from ragauge.judging.report import build_report
from ragauge.judging.report_tables import build_scores_table
from ragauge.judging.results import JudgedSamples
from ragauge.judging.step import check_known
from ragauge.measures.answers import canonical_answer_name
from ragauge.output.csv import render_csv
from ragauge.output.markdown import render_markdown
from ragauge.output.page import render_page
from ragauge.output.page_assets import load_vega_script

RESULT_FILES = (MANIFEST_FILE, SAMPLES_FILE, VERDICTS_FILE, SCORES_FILE)
"""Files that a folder is read from; reports must not overwrite them."""
EVIDENCE_KEYS = ("samples", "verdicts", "scores")
"""Keys of the result that a folder stores in files of their own."""


def write_verdicts(verdicts: Iterable[Verdicts], path: str) -> None:
    """Write verdicts to a file atomically."""
    with atomic_write(path) as out:
        for of_sample in verdicts:
            out.write(to_json(of_sample, indent=None).encode("utf-8", "replace"))  # models reply with lone surrogates


def read_verdicts(path: str) -> dict[str, Verdicts]:
    """Read verdicts by sample; raises BadInput with the line for anything unexpected."""
    source = InputFile(str(path))
    verdicts_by_sample: dict[str, Verdicts] = {}
    for line, item in read_json_lines(source):
        try:
            verdicts = from_json_data(Verdicts, item, source=source.label, strict=True)
            check_verdicts(verdicts)
        except BadInput as error:
            raise BadInput(error.message, file=source.label, line=line, hint=error.hint) from None
        if verdicts.sample in verdicts_by_sample:
            raise BadInput(f"the sample `{verdicts.sample}` appears more than once", file=source.label, line=line)
        verdicts_by_sample[verdicts.sample] = verdicts
    if not verdicts_by_sample:
        raise BadInput("no verdicts found", file=source.label)
    return verdicts_by_sample


def check_verdicts(verdicts: Verdicts) -> None:
    """Raise BadInput for values that the types of verdicts allow and a judge cannot return."""
    if not verdicts.sample:
        raise BadInput("the sample has no id")
    check_known("asked", verdicts.asked, describe_kinds())
    check_known("ratings", verdicts.ratings, STEPS)
    for step in STEPS.values():
        step.check_verdicts(verdicts)


def write_judged_folder(judged: JudgedSamples, folder: str | Path) -> tuple[list[str], list[str]]:
    """Write all results and return the file names.

    Also returns notes on files that were not written. The manifest is removed first and written last, so that an
    incomplete folder is not mistaken for a complete one.
    """
    path = Path(folder)
    (path / MANIFEST_FILE).unlink(missing_ok=True)
    write_samples(judged.samples, str(path / SAMPLES_FILE))
    write_verdicts(judged.verdicts.values(), str(path / VERDICTS_FILE))
    _write_text(path / SCORES_FILE, render_csv(build_scores_table(judged)))
    report = build_report(judged)
    _write_text(path / "report.md", render_markdown([report]))
    files, notes = [SAMPLES_FILE, VERDICTS_FILE, SCORES_FILE, "report.md"], []
    try:
        _write_text(path / "report.html", render_page([report], load_vega_script))
        files.append("report.html")
    except MissingExtra as missing:
        notes.append(f"no report.html: {missing.message} ({missing.hint})")
    manifest = {key: value for key, value in to_json_data(judged).items() if key not in EVIDENCE_KEYS}
    write_record(manifest, path / MANIFEST_FILE)
    return [MANIFEST_FILE, *files], notes


def _write_text(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))


def check_same_samples(folder: str | Path, samples: Sequence[Sample]) -> None:
    """Raise BadInput if a folder holds results of other or of more samples.

    Other answers to the same questions are accepted.
    """
    path = Path(folder)
    if not is_judged_folder(path) or not (path / SAMPLES_FILE).is_file():
        return
    try:
        stored = {sample.id: sample.fingerprint for sample in read_samples(str(path / SAMPLES_FILE))}
    except BadInput:  # The files are unreadable; judging again replaces them.
        return
    fingerprints = {sample.id: sample.fingerprint for sample in samples}
    changed = [name for name in fingerprints if name in stored and not has_same_texts(fingerprints[name], stored[name])]
    if not changed and fingerprints.keys() < stored.keys():
        raise BadInput(
            f"the folder holds {len(stored)} judged samples, but only {len(fingerprints)} of them were requested",
            file=str(folder),
            hint="name another folder with -o (folder=), or judge all samples",
        )
    if changed or not stored.keys() <= fingerprints.keys():
        first = changed[0] if changed else next(name for name in stored if name not in fingerprints)
        why = f"`{first}` has another question or reference" if changed else f"`{first}` is missing"
        raise BadInput(
            f"the folder holds results of other samples: {why}",
            file=str(folder),
            hint="name another folder with -o (folder=), or remove this one",
        )


def read_judged_folder(folder: str | Path) -> JudgedSamples:
    """Read a results folder with its stored scores.

    Raises BadInput if its files do not match.
    """
    path = Path(folder)
    manifest = judged_folders.read_judged_manifest(path)
    scores = judged_folders.read_judged_scores(path, canonical_answer_name)
    samples = read_samples(str(path / SAMPLES_FILE))
    verdicts = read_verdicts(str(path / VERDICTS_FILE))
    if [sample.id for sample in samples] != scores.queries or set(verdicts) - set(scores.queries):
        raise BadInput(
            f"the samples are not those of {SCORES_FILE}", file=str(path / SAMPLES_FILE), hint=judged_folders.HINT
        )
    # The three keys are in files of their own, which have been read.
    no_scores = {"run": "", "convention": "", "queries": [], "values": {}, "means": {}, "unscored": {}}
    data = {**manifest, "samples": [], "verdicts": {}, "scores": no_scores}
    judged = from_record_data(JudgedSamples, data, source=str(path / MANIFEST_FILE))
    return replace(judged, samples=samples, verdicts=verdicts, scores=scores, folder=path)
