"""Results folder of `judge`: scores, verdicts and report, written and read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.samples import (
    ANSWER,
    REFERENCE,
    TASK_KINDS,
    Claim,
    GeneratedQuestion,
    Sample,
    Support,
    Unscored,
    Usefulness,
    Verdicts,
    has_same_texts,
)
from ragauge.files import judged_folders
from ragauge.files.json_files import read_json_lines
from ragauge.files.judged_folders import MANIFEST_FILE, SAMPLES_FILE, SCORES_FILE, VERDICTS_FILE, is_judged_folder
from ragauge.files.samples import read_samples, write_samples
from ragauge.files.source import InputFile
from ragauge.files.workspace import atomic_write
from ragauge.judging.page import draw_judged, render_judged_page
from ragauge.judging.report_formats import claims_csv, judged_to_dict, render_judged_markdown, scores_csv, summary_csv
from ragauge.judging.results import CostStep, InjectionAttempt, JudgedSamples
from ragauge.measures.answers import canonical_answer_name
from ragauge.output.formats import OutputFormat, format_for_path, write_charts, write_format
from ragauge.output.page import load_vega_script

VERDICT_KEYS = ("sample", "asked", "claims", "support", "useful", "questions", "refusal", "unscored", "left_out")


def write_verdicts(verdicts: Iterable[Verdicts], path: str) -> None:
    """Write verdicts to a file atomically."""
    with atomic_write(path) as out:
        for one in verdicts:
            text = json.dumps(verdicts_to_dict(one), ensure_ascii=False, allow_nan=False)
            # Models reply with lone surrogates, which cannot be encoded.
            out.write(text.encode("utf-8", "replace") + b"\n")


def read_verdicts(path: str) -> dict[str, Verdicts]:
    """Read verdicts by sample; raises BadInput with the line for anything unexpected."""
    source = InputFile(str(path))
    found: dict[str, Verdicts] = {}
    for line, item in read_json_lines(source):
        try:
            one = verdicts_from_dict(item)
        except BadInput as error:
            raise BadInput(error.message, file=source.label, line=line, hint=error.hint) from None
        if one.sample in found:
            raise BadInput(f"the sample `{one.sample}` comes twice", file=source.label, line=line)
        found[one.sample] = one
    if not found:
        raise BadInput("no verdicts are here", file=source.label)
    return found


def verdicts_to_dict(verdicts: Verdicts) -> dict[str, Any]:
    """Convert verdicts to JSON data; undefined numbers become null.

    >>> verdicts_to_dict(Verdicts("s1", ["useful"], useful={"k1": Usefulness(True)}))["useful"]
    {'k1': {'useful': True, 'words': '', 'probability': None}}
    """
    return {
        "sample": verdicts.sample,
        "asked": list(verdicts.asked),
        "claims": {text: [_claim_to_dict(one) for one in claims] for text, claims in verdicts.claims.items()},
        "support": {
            claim: {
                "by": list(one.by),
                "together": list(one.together),
                "against": list(one.against),
                "words": one.words,
                "probability": _finite_or_none(one.probability),
            }
            for claim, one in verdicts.support.items()
        },
        "useful": {
            chunk: {"useful": one.useful, "words": one.words, "probability": _finite_or_none(one.probability)}
            for chunk, one in verdicts.useful.items()
        },
        "questions": [{"text": one.text, "similarity": _finite_or_none(one.similarity)} for one in verdicts.questions],
        "refusal": verdicts.refusal,
        "unscored": {what: {"why": one.why, "reply": one.reply} for what, one in verdicts.unscored.items()},
        "left_out": {text: list(listed) for text, listed in verdicts.left_out.items()},
    }


def _claim_to_dict(claim: Claim) -> dict[str, Any]:
    cites = None if claim.cites is None else list(claim.cites)
    return {"id": claim.id, "text": claim.text, "sentence": claim.sentence, "cites": cites}


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def verdicts_from_dict(item: Mapping[str, Any]) -> Verdicts:
    """Build verdicts from JSON data; raises BadInput if anything is unexpected."""
    _check_keys(item, VERDICT_KEYS, "the verdicts")
    sample = _get_text(item, "sample", "the verdicts")
    if not sample:
        raise BadInput("the sample has no id")
    asked = [_check_choice(one, TASK_KINDS, "asked") for one in _get_list(item, "asked", "the verdicts")]
    claims: dict[str, list[Claim]] = {}
    ids: set[str] = set()
    for text, listed in _get_object(item, "claims", "the verdicts").items():
        _check_choice(text, (ANSWER, REFERENCE), "the claims of")
        claims[text] = [_parse_claim(one) for one in _get_list({text: listed}, text, "the claims")]
        for one in claims[text]:
            if one.id in ids or not one.id.startswith(text[0]):
                raise BadInput(
                    f"the claim `{one.id}` of the {text} "
                    + ("comes twice" if one.id in ids else f"should begin with {text[0]}")
                )
            ids.add(one.id)
    refusal = item.get("refusal")
    if not (refusal is None or isinstance(refusal, bool)):
        raise BadInput(f"`refusal` is {_quote_value(refusal)}, which is neither true nor false")
    return Verdicts(
        sample,
        asked,
        claims,
        {claim: _parse_support(claim, one) for claim, one in _object_items(item, "support")},
        {chunk: _parse_usefulness(chunk, one) for chunk, one in _object_items(item, "useful")},
        [_parse_question(one) for one in _get_list(item, "questions", "the verdicts")],
        refusal,
        {what: _parse_unscored(what, one) for what, one in _object_items(item, "unscored")},
        _parse_left_out_sentences(_get_object(item, "left_out", "the verdicts")),
    )


def _parse_left_out_sentences(item: Mapping[str, Any]) -> dict[str, list[str]]:
    where = "the sentences left out"
    _check_keys(item, (ANSWER, REFERENCE), where)
    return {text: [_get_text({text: one}, text, where) for one in _get_list(item, text, where)] for text in item}


def _parse_claim(item: Any) -> Claim:
    where = "a claim"
    _check_keys(item, ("id", "text", "sentence", "cites"), where)
    sentence, cites = item.get("sentence"), item.get("cites")
    if not _is_positive_int(sentence):
        raise BadInput(f"the sentence of {where} is {_quote_value(sentence)}, not a number from 1")
    if cites is not None and not (isinstance(cites, list) and all(_is_positive_int(one) for one in cites)):
        raise BadInput(f"what {where} cites is {_quote_value(cites)}, not a list of numbers")
    return Claim(
        _get_text(item, "id", where), _get_text(item, "text", where), sentence, None if cites is None else tuple(cites)
    )


def _parse_support(claim: str, item: Mapping[str, Any]) -> Support:
    where = f"the support of {claim}"
    _check_keys(item, ("by", "together", "against", "words", "probability"), where)
    by, together, against = (
        tuple(_get_text({"source": one}, "source", where) for one in _get_list(item, name, where))
        for name in ("by", "together", "against")
    )
    return Support(by, against, _get_text(item, "words", where), _get_probability(item, where), together)


def _parse_usefulness(chunk: str, item: Mapping[str, Any]) -> Usefulness:
    where = f"the usefulness of {chunk}"
    _check_keys(item, ("useful", "words", "probability"), where)
    useful = item.get("useful")
    if not isinstance(useful, bool):
        raise BadInput(f"{where} is {_quote_value(useful)}, which is neither true nor false")
    return Usefulness(useful, _get_text(item, "words", where), _get_probability(item, where))


def _parse_question(item: Any) -> GeneratedQuestion:
    where = "a question"
    _check_keys(item, ("text", "similarity"), where)
    near = _parse_number(item.get("similarity"), where)
    return GeneratedQuestion(_get_text(item, "text", where), math.nan if near is None else near)


def _parse_unscored(what: str, item: Mapping[str, Any]) -> Unscored:
    where = f"the reason for `{what}`"
    _check_keys(item, ("why", "reply"), where)
    return Unscored(_get_text(item, "why", where), _get_text(item, "reply", where))


def _check_keys(item: Any, known: tuple[str, ...], where: str) -> None:
    """Raise BadInput if an item is not an object or has unknown keys."""
    if not isinstance(item, Mapping):
        raise BadInput(f"{where}: expected an object, found {_quote_value(item)}")
    strange = next((key for key in item if key not in known), None)
    if strange is not None:
        raise BadInput(f"{where}: `{strange}` is unknown", hint=f"there are {', '.join(known)}")


def _object_items(item: Mapping[str, Any], name: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return _get_object(item, name, "the verdicts").items()


def _get_object(item: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = item.get(name, {})
    if not isinstance(value, Mapping):
        raise BadInput(f"{where}: `{name}` is {_quote_value(value)}, not an object")
    return value


def _get_list(item: Mapping[str, Any], name: str, where: str) -> list[Any]:
    value = item.get(name, [])
    if not isinstance(value, list):
        raise BadInput(f"{where}: `{name}` is {_quote_value(value)}, not a list")
    return value


def _get_text(item: Mapping[str, Any], name: str, where: str) -> str:
    value = item.get(name, "" if name in ("words", "reply") else None)
    if not isinstance(value, str):
        raise BadInput(f"{where}: `{name}` is {_quote_value(value)}, not a text")
    return value


def _get_probability(item: Mapping[str, Any], where: str) -> float | None:
    value = _parse_number(item.get("probability"), where)
    if value is not None and not 0 <= value <= 1:
        raise BadInput(f"{where}: the probability is {_quote_value(value)}, not between 0 and 1")
    return value


def _parse_number(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"{where}: {_quote_value(value)} is not a number")
    return float(value)


def _is_positive_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_choice(value: Any, known: tuple[str, ...], what: str) -> str:
    if value not in known:
        raise BadInput(f"{what} {_quote_value(value)} is unknown", hint=f"there are {', '.join(known)}")
    return str(value)


def _quote_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"`{text[:60]}…`" if len(text) > 60 else f"`{text}`"


RESULT_FILES = (MANIFEST_FILE, SAMPLES_FILE, VERDICTS_FILE, SCORES_FILE)
"""Files that a folder is read from; reports must not overwrite them."""


def _judged_json(judged: JudgedSamples, *, per_sample: bool = True) -> str:
    data = judged_to_dict(judged, per_sample=per_sample)
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _manifest_json(judged: JudgedSamples) -> str:
    return _judged_json(judged, per_sample=False)


JUDGED_FORMATS: Mapping[str, OutputFormat[JudgedSamples]] = {
    "html": OutputFormat(
        ".html", "one self-contained page", lambda found: render_judged_page(found, load_vega_script())
    ),
    "json": OutputFormat(".json", "everything but the verdicts, by a published schema", _judged_json),
    "csv": OutputFormat(".csv", "a row for each measure, with its interval", summary_csv),
    "scores": OutputFormat(".csv", "a row for each sample and measure", scores_csv),
    "claims": OutputFormat(".csv", "a row for each claim, with its verdict", claims_csv),
    "markdown": OutputFormat(".md", "tables for a wiki or a pull request", render_judged_markdown),
}
"""Formats by name; of several with the same file ending, the first is the default for that ending."""


def write_judged_files(
    judged: JudgedSamples, files: Sequence[str], form: str | None = None, charts: str | Path | None = None
) -> None:
    """Write report files and charts.

    The format of a file is given by its ending or by `form`; charts go to a folder.
    """
    kinds = {file: format_for_path(file, form, JUDGED_FORMATS) for file in files}
    for file, kind in kinds.items():
        write_format(judged, JUDGED_FORMATS[kind], file)
    if charts is not None:
        write_charts(draw_judged(judged), Path(charts))


def write_judged_folder(judged: JudgedSamples, folder: str | Path) -> tuple[list[str], list[str]]:
    """Write all results and return the file names.

    Also returns notes on files that were not written. The manifest is removed first and written last, so that an
    incomplete folder is not mistaken for a complete one.
    """
    place = Path(folder)
    (place / MANIFEST_FILE).unlink(missing_ok=True)
    write_samples(judged.samples, str(place / SAMPLES_FILE))
    write_verdicts(judged.verdicts.values(), str(place / VERDICTS_FILE))
    write_format(judged, JUDGED_FORMATS["scores"], place / SCORES_FILE)
    files, notes = [SAMPLES_FILE, VERDICTS_FILE, SCORES_FILE], []
    for kind, name in {"markdown": "report.md", "html": "report.html"}.items():
        try:
            write_format(judged, JUDGED_FORMATS[kind], place / name)
            files.append(name)
        except MissingExtra as missing:
            notes.append(f"no {name}: {missing.message} ({missing.hint})")
    write_format(judged, OutputFormat(".json", "", _manifest_json), place / MANIFEST_FILE)
    return [MANIFEST_FILE, *files], notes


def check_same_samples(folder: str | Path, samples: Sequence[Sample]) -> None:
    """Raise BadInput if a folder holds results of other or of more samples.

    Other answers to the same questions are accepted.
    """
    place = Path(folder)
    if not is_judged_folder(place) or not (place / SAMPLES_FILE).is_file():
        return
    try:
        kept = {one.id: one.fingerprint for one in read_samples(str(place / SAMPLES_FILE))}
    except BadInput:  # The files are unreadable; judging again replaces them.
        return
    mine = {one.id: one.fingerprint for one in samples}
    changed = [name for name in mine if name in kept and not has_same_texts(mine[name], kept[name])]
    if not changed and mine.keys() < kept.keys():
        raise BadInput(
            f"the folder holds {len(kept)} judged samples, and {len(mine)} of them are to be judged",
            file=str(folder),
            hint="name another folder with -o (folder=), or judge all samples",
        )
    if changed or not kept.keys() <= mine.keys():
        first = changed[0] if changed else next(name for name in kept if name not in mine)
        why = f"`{first}` is another question there" if changed else f"`{first}` is not among these"
        raise BadInput(
            f"the folder holds what was judged of other samples: {why}",
            file=str(folder),
            hint="-o (folder=) names another folder; remove this one if nobody needs it",
        )


def read_judged_folder(folder: str | Path) -> JudgedSamples:
    """Read a results folder with its stored scores.

    Raises BadInput if its files do not match.
    """
    place = Path(folder)
    about = judged_folders.read_judged_manifest(place)
    scores = judged_folders.read_judged_scores(place, canonical_answer_name)
    samples = read_samples(str(place / SAMPLES_FILE))
    verdicts = read_verdicts(str(place / VERDICTS_FILE))
    if [one.id for one in samples] != scores.queries or set(verdicts) - set(scores.queries):
        raise BadInput(
            f"the samples are not those of {SCORES_FILE}", file=str(place / SAMPLES_FILE), hint=judged_folders.HINT
        )
    try:
        return JudgedSamples(
            name=str(about["name"]),
            judge=str(about["judge"]),
            identity=about["identity"],
            samples=samples,
            verdicts=verdicts,
            scores=scores,
            intervals={
                name: (float(one["interval"][0]), float(one["interval"][1]))
                for name, one in about["measures"].items()
                if one.get("interval")
            },
            confidence=float(about["confidence"]),
            ledger=[_parse_cost_step(one) for one in about["ledger"]],
            robustness=[
                InjectionAttempt(*(one[name] for name in InjectionAttempt._fields))
                for one in (about["robustness"] or {}).get("cases", ())
            ],
            stopped=about["stopped"] or "",
            notes=[str(note) for note in about["notes"]],
            circumstances=about["circumstances"],
            folder=place,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadInput(
            f"this manifest cannot be read: {type(error).__name__}: {error}",
            file=str(place / MANIFEST_FILE),
            hint=judged_folders.HINT,
        ) from error


def _parse_cost_step(data: Mapping[str, Any]) -> CostStep:
    """Build a row of the cost table; a missing latency is NaN."""
    found: dict[str, Any] = {name: data[name] for name in CostStep._fields}
    times = {name: math.nan for name in ("p50", "p95") if found[name] is None}
    return CostStep(**{**found, **times})
