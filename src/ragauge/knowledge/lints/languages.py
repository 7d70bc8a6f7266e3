"""Check of document languages."""

from __future__ import annotations

from collections.abc import Iterator

from ragauge.audits.wording import counted, listed
from ragauge.findings import Finding, Grid
from ragauge.knowledge.lints.evidence import CUT, EXAMPLES, Evidence, shown
from ragauge.knowledge.lints.identification import UNKNOWN

LANGUAGES = 8
"""Maximum number of languages shown."""


def language(evidence: Evidence) -> Iterator[Finding]:
    """Find documents in another language than most, or than the allowed ones.

    A problem if they are at least `share` of all, or if there are any and allowed languages are given.
    """
    reading, allowed = evidence.reading, evidence.thresholds.languages
    counts = evidence.by_language
    told = [one for one in counts if one != UNKNOWN]
    if not told:
        yield Finding(reading.name, "language", False, 0, "no document is long enough to tell its language")
        return
    wanted = set(allowed) or {told[0]}
    found = [place for place, one in enumerate(evidence.languages) if one not in wanted and one != UNKNOWN]
    unknown = f"; {counts[UNKNOWN]:,} are too short or too mixed to tell" if counts.get(UNKNOWN) else ""
    if not found:
        known = listed([f"{counts[one]:,} {one}" for one in told])
        yield Finding(
            reading.name,
            "language",
            False,
            0,
            f"all in one language: {known}{unknown}" if len(told) == 1 else f"only allowed languages: {known}{unknown}",
        )
        return
    others = [one for one in told if one not in wanted]
    yield Finding(
        reading.name,
        "language",
        bool(allowed) or evidence.many(len(found)),
        len(found),
        f"{len(found):,} of {counted(len(reading), 'document')} are not in {' or '.join(sorted(wanted))} but in "
        f"{listed([f'{one} ({counts[one]:,})' for one in others])}{unknown}",
        tuple(
            shown(f"{reading.called(i)}, {evidence.languages[i]}: `{shown(reading.texts[i], CUT)}`")
            for i in found[:EXAMPLES]
        ),
        "an embedder of one language reads the others letter by letter, and BM25 matches none of their words",
        Grid(["language", "documents"], [[one, float(counts[one])] for one in list(counts)[:LANGUAGES]]),
        "take an embedder of many languages, or leave these documents out; --language says what may be here",
    )
