"""Results folder of judging: write it, read it again, and export reports.

The folder contains `samples.jsonl` (the samples), `verdicts.jsonl` (the verdicts of the judge), `scores.csv` (one
row for each sample and measure, with the reason for a missing score), `report.md`, `report.html`, and `judge.json`:
the judge, every mean with its confidence interval and n, and the cost. `replies.sqlite` is the reply cache.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput, MissingExtra
from ragauge.formats import judged as folders
from ragauge.formats.judged import KEPT, SAMPLES, SCORES, VERDICTS, is_judged
from ragauge.formats.samples import read_samples, write_samples
from ragauge.formats.verdicts import read_verdicts, write_verdicts
from ragauge.forms import Kind, kind_of, write_charts, written
from ragauge.measures.answers import canonical
from ragauge.reports.charts.judged import drawn
from ragauge.reports.judged_csv import claims_csv, scores_csv, summary_csv
from ragauge.reports.judged_data import as_data
from ragauge.reports.judged_markdown import markdown
from ragauge.reports.page.judged import page
from ragauge.vega import vega
from ragauge.verdicts import Canary, Judged, Sample, Step, same_texts

EVIDENCE = (KEPT, SAMPLES, VERDICTS, SCORES)
"""Files that a folder is read from; reports must not overwrite them."""
__all__ = ["EVIDENCE", "KINDS", "is_judged", "read_judged", "refuse_others", "write", "write_folder"]


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
