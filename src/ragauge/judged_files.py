"""Something judged as files: a folder that keeps everything, forms to show it in, and reading it again.

In the folder are `samples.jsonl` (what was judged), `verdicts.jsonl` (what the judge said), `scores.csv` (a row for
each sample and measure, with the reason where there is none), `report.md`, `report.html`, and last `judge.json`: who
judged, every mean with its interval and n, what it took. `replies.sqlite`, what was paid for, is the judging's own.
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
"""What a folder is read from, and nothing else may be written over."""
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
"""By name; of several with the same ending, that ending means the first."""


def write(judged: Judged, files: Sequence[str], form: str | None = None, charts: str | Path | None = None) -> None:
    """Write files, each in the form that its ending or `form` says, and every chart into a folder."""
    kinds = {file: kind_of(file, form, KINDS) for file in files}
    for file, kind in kinds.items():
        written(judged, KINDS[kind], file)
    if charts is not None:
        write_charts(drawn(judged), Path(charts))


def write_folder(judged: Judged, folder: str | Path) -> tuple[list[str], list[str]]:
    """Everything that `judge` leaves; the names of the files, and notes on those that could not be made.

    The manifest goes first and comes last: while it is not there, nobody takes the folder for a whole one.
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
    """Refuse to judge into a folder of other questions, or of more; other answers to the same are accepted."""
    place = Path(folder)
    if not is_judged(place) or not (place / SAMPLES).is_file():
        return
    try:
        kept = {one.id: one.fingerprint for one in read_samples(str(place / SAMPLES))}
    except BadInput:  # nobody can read what is there, and judging again writes it anew
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
    """What a folder holds. Scores are those that were counted then; files that do not fit together are refused."""
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
    """A row of the ledger; of its times, null is no number."""
    found: dict[str, Any] = {name: data[name] for name in Step._fields}
    times = {name: math.nan for name in ("p50", "p95") if found[name] is None}
    return Step(**{**found, **times})
