"""Checks of corpus entries: readability, encoding, ids, empty texts, orphans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ragauge.audits.wording import counted
from ragauge.findings import Finding
from ragauge.formats.tolerant import PAPERS, Flaw
from ragauge.knowledge.lints.evidence import EXAMPLES, Evidence, shown
from ragauge.texts import normalised

WORST = 40
"""Maximum number of characters of a flaw's description."""


def readable(evidence: Evidence) -> Iterator[Finding]:
    """Find unreadable entries, unknown text fields, wrong separators and unread files.

    Always a problem.
    """
    reading = evidence.reading
    lost = _of(evidence, "unreadable")
    if lost:
        yield Finding(
            reading.name,
            "unreadable",
            True,
            len(lost),
            f"{counted(len(lost), 'entry')} cannot be read",
            _told(lost),
            "they are in no index, and nothing finds them",
            remedy="write these lines again: a JSON object with an id and a text on each, or a quoted cell for "
            "each name in the header",
        )
    nameless = _of(evidence, "fields")
    if nameless:
        yield Finding(
            reading.name,
            "no text field",
            True,
            len(nameless),
            f"{counted(len(nameless), 'document')} without a field that is known as text",
            _told(nameless),
            "they count as empty here",
            remedy="say what the field is called: --text NAME",
        )
    apart = _of(evidence, "separator")
    if apart:
        yield Finding(
            reading.name,
            "separator",
            True,
            len(apart),
            f"{counted(len(apart), 'table')} with another separator than its name says",
            _told(apart),
            "readers of CSV find a single column, and in it no text",
            remedy="write the table again with commas, or as JSONL",
        )
    unread = _of(evidence, "unread")
    if unread:
        endings = Counter(flaw.said or "without an ending" for flaw in unread)
        counts = ", ".join(f"{n:,} {ending}" for ending, n in endings.most_common())
        yield Finding(
            reading.name,
            "unread files",
            True,
            len(unread),
            f"{counted(len(unread), 'file')} of the folder {'was' if len(unread) == 1 else 'were'} not read ({counts})",
            [shown(flaw.where, 120) for flaw in unread],
            "nothing here was checked in them",
            remedy=f"convert them to text ({', '.join(PAPERS)}) or to corpus.jsonl, or move them out of the folder",
        )
    if not lost and not nameless and not apart:
        said = f"all {counted(len(reading), 'document')} can be read"
        yield Finding(reading.name, "readable", False, 0, said)


def encoding(evidence: Evidence) -> Iterator[Finding]:
    """Find bytes that are not UTF-8, and files in UTF-16; always a problem."""
    torn, other = _of(evidence, "bytes"), _of(evidence, "encoding")
    if torn:
        yield Finding(
            evidence.reading.name,
            "bytes",
            True,
            len(torn),
            f"bytes that are no UTF-8 in {counted(len(torn), 'entry')}",
            _told(torn),
            "readers stop there, or put replacement characters into words",
            remedy="find out which encoding it was (cp1252, latin-1 …) and convert: iconv -f CP1252 -t UTF-8",
        )
    if other:
        yield Finding(
            evidence.reading.name,
            "encoding",
            True,
            len(other),
            f"{counted(len(other), 'file')} in UTF-16",
            _told(other),
            "most readers expect UTF-8, and find no line here",
            remedy="convert: iconv -f UTF-16 -t UTF-8",
        )
    if not torn and not other:
        yield Finding(evidence.reading.name, "encoding", False, 0, "everything is UTF-8")


def ids(evidence: Evidence) -> Iterator[Finding]:
    """Find missing ids, duplicate ids and ids with white space; always a problem."""
    reading = evidence.reading
    missing = [place for place, name in enumerate(reading.ids) if name is None]
    if missing:
        yield Finding(
            reading.name,
            "missing ids",
            True,
            len(missing),
            f"{counted(len(missing), 'document')} without an id",
            evidence.some(missing),
            "no judgment, run or citation can name them",
            remedy="give each an id that does not depend on its place in the file",
        )
    homes: dict[str, list[int]] = {}
    for place, name in enumerate(reading.ids):
        if name is not None:
            homes.setdefault(name, []).append(place)
    twice = {name: places for name, places in homes.items() if len(places) > 1}
    if twice:
        yield _twice(evidence, twice)
    blank = [places[0] for name, places in homes.items() if any(map(str.isspace, name))]
    if blank:
        yield Finding(
            reading.name,
            "blanks in ids",
            True,
            len(blank),
            f"white space in {counted(len(blank), 'id')}",
            evidence.some(blank),
            "TREC's files of runs and judgments are split at blanks, and lose them",
            remedy="replace white space in ids, in corpus and judgments alike",
        )
    if not missing and not twice and not blank:
        yield Finding(
            reading.name, "ids", False, 0, f"each of {counted(len(reading), 'document')} has an id of its own"
        )


def _twice(evidence: Evidence, twice: dict[str, list[int]]) -> Finding:
    reading = evidence.reading
    differ = {name: places for name, places in twice.items() if len({normalised(reading.texts[i]) for i in places}) > 1}
    alike = len(twice) - len(differ)
    said = " and ".join(
        filter(None, [f"{len(differ):,} with different texts" * bool(differ), f"{alike:,} with one text" * bool(alike)])
    )
    first = [*differ, *(name for name in twice if name not in differ)][:EXAMPLES]
    return Finding(
        reading.name,
        "duplicate ids",
        True,
        len(twice),
        f"{counted(len(twice), 'id')} of more than one document: {said}",
        tuple(shown(f"{name} ({', '.join(reading.places[i] for i in twice[name][:3])})") for name in first),
        "a store keeps the last of them, or refuses the batch; a hit cannot be told from its namesake",
        remedy="give different texts different ids, and keep one of each text",
    )


def empty(evidence: Evidence) -> Iterator[Finding]:
    """Find documents without text or with only white space; always a problem."""
    none = evidence.copies[1]
    total = len(evidence.reading)
    if not none:
        yield Finding(evidence.reading.name, "empty", False, 0, f"each of {counted(total, 'document')} has a text")
        return
    yield Finding(
        evidence.reading.name,
        "empty",
        True,
        len(none),
        f"{len(none):,} of {counted(total, 'document')} have no text",
        evidence.some(none),
        "their vectors are zero or noise: some stores refuse them, in others they come up for any query",
        remedy="find their texts, or leave them out",
    )


def _of(evidence: Evidence, kind: str) -> list[Flaw]:
    return [one for one in evidence.reading.flaws if one.kind == kind]


def _told(flaws: Sequence[Flaw]) -> tuple[str, ...]:
    return tuple(shown(f"{one.where}: {one.said}", 120) for one in flaws[:EXAMPLES])
