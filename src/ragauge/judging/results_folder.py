"""Verdicts of a judge as JSONL, one line per sample; strictly validated when read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.samples import (
    ANSWER,
    ASKS,
    REFERENCE,
    Claim,
    Question,
    Sample,
    Support,
    Unscored,
    Usefulness,
    Verdicts,
    same_texts,
)
from ragauge.files import judged_folders as folders
from ragauge.files.json_files import json_lines
from ragauge.files.judged_folders import KEPT, SAMPLES, SCORES, VERDICTS, is_judged
from ragauge.files.samples import read_samples, write_samples
from ragauge.files.source import Source
from ragauge.files.workspace import whole_file
from ragauge.judging.page import drawn, page
from ragauge.judging.report_formats import as_data, claims_csv, markdown, scores_csv, summary_csv
from ragauge.judging.results import Canary, Judged, Step
from ragauge.measures.answers import canonical
from ragauge.output.formats import Kind, kind_of, write_charts, written
from ragauge.output.page import vega

KEYS = ("sample", "asked", "claims", "support", "useful", "questions", "refusal", "unscored", "left_out")


def write_verdicts(verdicts: Iterable[Verdicts], path: str) -> None:
    """Write verdicts to a file atomically."""
    with whole_file(path) as out:
        for one in verdicts:
            text = json.dumps(as_line(one), ensure_ascii=False, allow_nan=False)
            # Models reply with lone surrogates, which cannot be encoded.
            out.write(text.encode("utf-8", "replace") + b"\n")


def read_verdicts(path: str) -> dict[str, Verdicts]:
    """Read verdicts by sample; raises BadInput with the line for anything unexpected."""
    source = Source(str(path))
    found: dict[str, Verdicts] = {}
    for line, item in json_lines(source):
        try:
            one = from_line(item)
        except BadInput as error:
            raise BadInput(error.message, file=source.label, line=line, hint=error.hint) from None
        if one.sample in found:
            raise BadInput(f"the sample `{one.sample}` comes twice", file=source.label, line=line)
        found[one.sample] = one
    if not found:
        raise BadInput("no verdicts are here", file=source.label)
    return found


def as_line(verdicts: Verdicts) -> dict[str, Any]:
    """Convert verdicts to JSON data; undefined numbers become null.

    >>> as_line(Verdicts("s1", ["useful"], useful={"k1": Usefulness(True)}))["useful"]
    {'k1': {'useful': True, 'words': '', 'probability': None}}
    """
    return {
        "sample": verdicts.sample,
        "asked": list(verdicts.asked),
        "claims": {text: [_claim(one) for one in claims] for text, claims in verdicts.claims.items()},
        "support": {
            claim: {
                "by": list(one.by),
                "together": list(one.together),
                "against": list(one.against),
                "words": one.words,
                "probability": _figure(one.probability),
            }
            for claim, one in verdicts.support.items()
        },
        "useful": {
            chunk: {"useful": one.useful, "words": one.words, "probability": _figure(one.probability)}
            for chunk, one in verdicts.useful.items()
        },
        "questions": [{"text": one.text, "similarity": _figure(one.similarity)} for one in verdicts.questions],
        "refusal": verdicts.refusal,
        "unscored": {what: {"why": one.why, "reply": one.reply} for what, one in verdicts.unscored.items()},
        "left_out": {text: list(listed) for text, listed in verdicts.left_out.items()},
    }


def _claim(claim: Claim) -> dict[str, Any]:
    cites = None if claim.cites is None else list(claim.cites)
    return {"id": claim.id, "text": claim.text, "sentence": claim.sentence, "cites": cites}


def _figure(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def from_line(item: Mapping[str, Any]) -> Verdicts:
    """Build verdicts from JSON data; raises BadInput if anything is unexpected."""
    _only(item, KEYS, "the verdicts")
    sample = _text(item, "sample", "the verdicts")
    if not sample:
        raise BadInput("the sample has no id")
    asked = [_one_of(one, ASKS, "asked") for one in _list(item, "asked", "the verdicts")]
    claims: dict[str, list[Claim]] = {}
    ids: set[str] = set()
    for text, listed in _mapping(item, "claims", "the verdicts").items():
        _one_of(text, (ANSWER, REFERENCE), "the claims of")
        claims[text] = [_read_claim(one) for one in _list({text: listed}, text, "the claims")]
        for one in claims[text]:
            if one.id in ids or not one.id.startswith(text[0]):
                raise BadInput(
                    f"the claim `{one.id}` of the {text} "
                    + ("comes twice" if one.id in ids else f"should begin with {text[0]}")
                )
            ids.add(one.id)
    refusal = item.get("refusal")
    if not (refusal is None or isinstance(refusal, bool)):
        raise BadInput(f"`refusal` is {_shown(refusal)}, which is neither true nor false")
    return Verdicts(
        sample,
        asked,
        claims,
        {claim: _read_support(claim, one) for claim, one in _objects(item, "support")},
        {chunk: _read_useful(chunk, one) for chunk, one in _objects(item, "useful")},
        [_read_question(one) for one in _list(item, "questions", "the verdicts")],
        refusal,
        {what: _read_unscored(what, one) for what, one in _objects(item, "unscored")},
        _read_left_out(_mapping(item, "left_out", "the verdicts")),
    )


def _read_left_out(item: Mapping[str, Any]) -> dict[str, list[str]]:
    where = "the sentences left out"
    _only(item, (ANSWER, REFERENCE), where)
    return {text: [_text({text: one}, text, where) for one in _list(item, text, where)] for text in item}


def _read_claim(item: Any) -> Claim:
    where = "a claim"
    _only(item, ("id", "text", "sentence", "cites"), where)
    sentence, cites = item.get("sentence"), item.get("cites")
    if not _whole(sentence):
        raise BadInput(f"the sentence of {where} is {_shown(sentence)}, not a number from 1")
    if cites is not None and not (isinstance(cites, list) and all(_whole(one) for one in cites)):
        raise BadInput(f"what {where} cites is {_shown(cites)}, not a list of numbers")
    return Claim(
        _text(item, "id", where), _text(item, "text", where), sentence, None if cites is None else tuple(cites)
    )


def _read_support(claim: str, item: Mapping[str, Any]) -> Support:
    where = f"the support of {claim}"
    _only(item, ("by", "together", "against", "words", "probability"), where)
    by, together, against = (
        tuple(_text({"source": one}, "source", where) for one in _list(item, name, where))
        for name in ("by", "together", "against")
    )
    return Support(by, against, _text(item, "words", where), _probability(item, where), together)


def _read_useful(chunk: str, item: Mapping[str, Any]) -> Usefulness:
    where = f"the usefulness of {chunk}"
    _only(item, ("useful", "words", "probability"), where)
    useful = item.get("useful")
    if not isinstance(useful, bool):
        raise BadInput(f"{where} is {_shown(useful)}, which is neither true nor false")
    return Usefulness(useful, _text(item, "words", where), _probability(item, where))


def _read_question(item: Any) -> Question:
    where = "a question"
    _only(item, ("text", "similarity"), where)
    near = _number(item.get("similarity"), where)
    return Question(_text(item, "text", where), math.nan if near is None else near)


def _read_unscored(what: str, item: Mapping[str, Any]) -> Unscored:
    where = f"the reason for `{what}`"
    _only(item, ("why", "reply"), where)
    return Unscored(_text(item, "why", where), _text(item, "reply", where))


def _only(item: Any, known: tuple[str, ...], where: str) -> None:
    """Raise BadInput if an item is not an object or has unknown keys."""
    if not isinstance(item, Mapping):
        raise BadInput(f"{where}: expected an object, found {_shown(item)}")
    strange = next((key for key in item if key not in known), None)
    if strange is not None:
        raise BadInput(f"{where}: `{strange}` is unknown", hint=f"there are {', '.join(known)}")


def _objects(item: Mapping[str, Any], name: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return _mapping(item, name, "the verdicts").items()


def _mapping(item: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = item.get(name, {})
    if not isinstance(value, Mapping):
        raise BadInput(f"{where}: `{name}` is {_shown(value)}, not an object")
    return value


def _list(item: Mapping[str, Any], name: str, where: str) -> list[Any]:
    value = item.get(name, [])
    if not isinstance(value, list):
        raise BadInput(f"{where}: `{name}` is {_shown(value)}, not a list")
    return value


def _text(item: Mapping[str, Any], name: str, where: str) -> str:
    value = item.get(name, "" if name in ("words", "reply") else None)
    if not isinstance(value, str):
        raise BadInput(f"{where}: `{name}` is {_shown(value)}, not a text")
    return value


def _probability(item: Mapping[str, Any], where: str) -> float | None:
    value = _number(item.get("probability"), where)
    if value is not None and not 0 <= value <= 1:
        raise BadInput(f"{where}: the probability is {_shown(value)}, not between 0 and 1")
    return value


def _number(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"{where}: {_shown(value)} is not a number")
    return float(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _one_of(value: Any, known: tuple[str, ...], what: str) -> str:
    if value not in known:
        raise BadInput(f"{what} {_shown(value)} is unknown", hint=f"there are {', '.join(known)}")
    return str(value)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"`{text[:60]}…`" if len(text) > 60 else f"`{text}`"


EVIDENCE = (KEPT, SAMPLES, VERDICTS, SCORES)
"""Files that a folder is read from; reports must not overwrite them."""


def _json(judged: Judged, *, per_sample: bool = True) -> str:
    data = as_data(judged, per_sample=per_sample)
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _manifest(judged: Judged) -> str:
    return _json(judged, per_sample=False)


KINDS: Mapping[str, Kind[Judged]] = {
    "html": Kind(".html", "one self-contained page", lambda found: page(found, vega())),
    "json": Kind(".json", "everything but the verdicts, by a published schema", _json),
    "csv": Kind(".csv", "a row for each measure, with its interval", summary_csv),
    "scores": Kind(".csv", "a row for each sample and measure", scores_csv),
    "claims": Kind(".csv", "a row for each claim, with its verdict", claims_csv),
    "markdown": Kind(".md", "tables for a wiki or a pull request", markdown),
}
"""Formats by name; of several with the same file ending, the first is the default for that ending."""


def write(judged: Judged, files: Sequence[str], form: str | None = None, charts: str | Path | None = None) -> None:
    """Write report files and charts.

    The format of a file is given by its ending or by `form`; charts go to a folder.
    """
    kinds = {file: kind_of(file, form, KINDS) for file in files}
    for file, kind in kinds.items():
        written(judged, KINDS[kind], file)
    if charts is not None:
        write_charts(drawn(judged), Path(charts))


def write_folder(judged: Judged, folder: str | Path) -> tuple[list[str], list[str]]:
    """Write all results and return the file names.

    Also returns notes on files that were not written. The manifest is removed first and written last, so that an
    incomplete folder is not mistaken for a complete one.
    """
    place = Path(folder)
    (place / KEPT).unlink(missing_ok=True)
    write_samples(judged.samples, str(place / SAMPLES))
    write_verdicts(judged.verdicts.values(), str(place / VERDICTS))
    written(judged, KINDS["scores"], place / SCORES)
    files, notes = [SAMPLES, VERDICTS, SCORES], []
    for kind, name in {"markdown": "report.md", "html": "report.html"}.items():
        try:
            written(judged, KINDS[kind], place / name)
            files.append(name)
        except MissingExtra as missing:
            notes.append(f"no {name}: {missing.message} ({missing.hint})")
    written(judged, Kind(".json", "", _manifest), place / KEPT)
    return [KEPT, *files], notes


def refuse_others(folder: str | Path, samples: Sequence[Sample]) -> None:
    """Raise BadInput if a folder holds results of other or of more samples.

    Other answers to the same questions are accepted.
    """
    place = Path(folder)
    if not is_judged(place) or not (place / SAMPLES).is_file():
        return
    try:
        kept = {one.id: one.fingerprint for one in read_samples(str(place / SAMPLES))}
    except BadInput:  # The files are unreadable; judging again replaces them.
        return
    mine = {one.id: one.fingerprint for one in samples}
    changed = [name for name in mine if name in kept and not same_texts(mine[name], kept[name])]
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


def read_judged(folder: str | Path) -> Judged:
    """Read a results folder with its stored scores.

    Raises BadInput if its files do not match.
    """
    place = Path(folder)
    about = folders.read_manifest(place)
    scores = folders.read_judged_scores(place, canonical)
    samples = read_samples(str(place / SAMPLES))
    verdicts = read_verdicts(str(place / VERDICTS))
    if [one.id for one in samples] != scores.queries or set(verdicts) - set(scores.queries):
        raise BadInput(f"the samples are not those of {SCORES}", file=str(place / SAMPLES), hint=folders.HINT)
    try:
        return Judged(
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
            ledger=[_step(one) for one in about["ledger"]],
            robustness=[
                Canary(*(one[name] for name in Canary._fields)) for one in (about["robustness"] or {}).get("cases", ())
            ],
            stopped=about["stopped"] or "",
            notes=[str(note) for note in about["notes"]],
            circumstances=about["circumstances"],
            folder=place,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadInput(
            f"this manifest cannot be read: {type(error).__name__}: {error}", file=str(place / KEPT), hint=folders.HINT
        ) from error


def _step(data: Mapping[str, Any]) -> Step:
    """Build a row of the cost table; a missing latency is NaN."""
    found: dict[str, Any] = {name: data[name] for name in Step._fields}
    times = {name: math.nan for name in ("p50", "p95") if found[name] is None}
    return Step(**{**found, **times})
