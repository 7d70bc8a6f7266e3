"""Checks of corpus entries: readability, encoding, ids, empty texts, orphans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ragauge.core.findings import Finding
from ragauge.core.text import normalise
from ragauge.datasets.corpus_checks import find_id_repairs
from ragauge.files.documents import TEXT_ENDINGS, CorpusFlaw
from ragauge.knowledge.lint.evidence import MAX_EXAMPLES, Evidence, JudgmentRows, format_excerpt
from ragauge.output.numbers import pluralise


def check_readable(evidence: Evidence) -> Iterator[Finding]:
    """Find unreadable entries, unknown text fields, wrong separators and unread files.

    Always a problem.
    """
    reading = evidence.reading
    lost = _flaws_of_kind(evidence, "unreadable")
    if lost:
        yield Finding(
            reading.name,
            "unreadable",
            True,
            len(lost),
            f"{pluralise(len(lost), 'entry')} cannot be read",
            _flaw_texts(lost),
            "they are in no index, and nothing finds them",
            remedy="write these lines again: a JSON object with an id and a text on each, or a quoted cell for "
            "each name in the header",
        )
    nameless = _flaws_of_kind(evidence, "fields")
    if nameless:
        yield Finding(
            reading.name,
            "no text field",
            True,
            len(nameless),
            f"{pluralise(len(nameless), 'document')} without a field that is known as text",
            _flaw_texts(nameless),
            "they count as empty here",
            remedy="name the field with texts: --text-field NAME",
        )
    apart = _flaws_of_kind(evidence, "separator")
    if apart:
        yield Finding(
            reading.name,
            "separator",
            True,
            len(apart),
            f"{pluralise(len(apart), 'table')} with another separator than its name says",
            _flaw_texts(apart),
            "readers of CSV find a single column, and in it no text",
            remedy="write the table again with commas, or as JSONL",
        )
    unread = _flaws_of_kind(evidence, "unread")
    if unread:
        endings = Counter(flaw.said or "without an ending" for flaw in unread)
        counts = ", ".join(f"{n:,} {ending}" for ending, n in endings.most_common())
        yield Finding(
            reading.name,
            "unread files",
            True,
            len(unread),
            f"{pluralise(len(unread), 'file')} of the folder {'was' if len(unread) == 1 else 'were'} not read "
            f"({counts})",
            [format_excerpt(flaw.where, 120) for flaw in unread],
            "nothing here was checked in them",
            remedy=f"convert them to text ({', '.join(TEXT_ENDINGS)}) or to corpus.jsonl, "
            "or move them out of the folder",
        )
    if not lost and not nameless and not apart:
        said = f"all {pluralise(len(reading), 'document')} can be read"
        yield Finding(reading.name, "readable", False, 0, said)


def check_encoding(evidence: Evidence) -> Iterator[Finding]:
    """Find bytes that are not UTF-8, and files in UTF-16; always a problem."""
    torn, other = _flaws_of_kind(evidence, "bytes"), _flaws_of_kind(evidence, "encoding")
    if torn:
        yield Finding(
            evidence.reading.name,
            "bytes",
            True,
            len(torn),
            f"bytes that are no UTF-8 in {pluralise(len(torn), 'entry')}",
            _flaw_texts(torn),
            "readers stop there, or put replacement characters into words",
            remedy="find out which encoding it was (cp1252, latin-1 …) and convert: iconv -f CP1252 -t UTF-8",
        )
    if other:
        yield Finding(
            evidence.reading.name,
            "encoding",
            True,
            len(other),
            f"{pluralise(len(other), 'file')} in UTF-16",
            _flaw_texts(other),
            "most readers expect UTF-8, and find no line here",
            remedy="convert: iconv -f UTF-16 -t UTF-8",
        )
    if not torn and not other:
        yield Finding(evidence.reading.name, "encoding", False, 0, "everything is UTF-8")


def check_ids(evidence: Evidence) -> Iterator[Finding]:
    """Find missing ids, duplicate ids and ids with white space; always a problem."""
    reading = evidence.reading
    missing = [place for place, name in enumerate(reading.ids) if name is None]
    if missing:
        yield Finding(
            reading.name,
            "missing ids",
            True,
            len(missing),
            f"{pluralise(len(missing), 'document')} without an id",
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
        yield _duplicate_ids_finding(evidence, twice)
    blank = [places[0] for name, places in homes.items() if any(map(str.isspace, name))]
    if blank:
        yield Finding(
            reading.name,
            "blanks in ids",
            True,
            len(blank),
            f"white space in {pluralise(len(blank), 'id')}",
            evidence.some(blank),
            "TREC's files of runs and judgments are split at blanks, and lose them",
            remedy="replace white space in ids, in corpus and judgments alike",
        )
    if not missing and not twice and not blank:
        yield Finding(
            reading.name, "ids", False, 0, f"each of {pluralise(len(reading), 'document')} has an id of its own"
        )


def _duplicate_ids_finding(evidence: Evidence, twice: dict[str, list[int]]) -> Finding:
    reading = evidence.reading
    differ = {name: places for name, places in twice.items() if len({normalise(reading.texts[i]) for i in places}) > 1}
    alike = len(twice) - len(differ)
    said = " and ".join(
        filter(None, [f"{len(differ):,} with different texts" * bool(differ), f"{alike:,} with one text" * bool(alike)])
    )
    first = [*differ, *(name for name in twice if name not in differ)][:MAX_EXAMPLES]
    return Finding(
        reading.name,
        "duplicate ids",
        True,
        len(twice),
        f"{pluralise(len(twice), 'id')} of more than one document: {said}",
        tuple(format_excerpt(f"{name} ({', '.join(reading.places[i] for i in twice[name][:3])})") for name in first),
        "a store keeps the last of them, or refuses the batch; a hit cannot be told from its namesake",
        remedy="give different texts different ids, and keep one of each text",
    )


def check_empty(evidence: Evidence) -> Iterator[Finding]:
    """Find documents without text or with only white space; always a problem."""
    none = evidence.copies[1]
    total = len(evidence.reading)
    if not none:
        yield Finding(evidence.reading.name, "empty", False, 0, f"each of {pluralise(total, 'document')} has a text")
        return
    yield Finding(
        evidence.reading.name,
        "empty",
        True,
        len(none),
        f"{len(none):,} of {pluralise(total, 'document')} have no text",
        evidence.some(none),
        "their vectors are zero or noise: some stores refuse them, in others they come up for any query",
        remedy="find their texts, or leave them out",
    )


def _flaws_of_kind(evidence: Evidence, kind: str) -> list[CorpusFlaw]:
    return [one for one in evidence.reading.flaws if one.kind == kind]


def _flaw_texts(flaws: Sequence[CorpusFlaw]) -> tuple[str, ...]:
    return tuple(format_excerpt(f"{one.where}: {one.said}", 120) for one in flaws[:MAX_EXAMPLES])


def check_orphans(evidence: Evidence) -> Iterator[Finding]:
    """Find judgments of documents that are not in the corpus.

    A problem if one is relevant.
    """
    known = {name for name in evidence.reading.ids if name is not None}
    for judged in evidence.judged:
        yield _orphans_finding(judged, known)


def _orphans_finding(judged: JudgmentRows, known: set[str]) -> Finding:
    lost = [(query, doc, grade) for query, doc, grade in judged.rows if doc not in known]
    if not lost:
        said = f"all {pluralise(len(judged.rows), 'judgment')} are of documents in the corpus"
        return Finding(judged.source, "orphans", False, 0, said)
    relevant = sum(grade >= 1 for _, _, grade in lost)
    names = list(dict.fromkeys(doc for _, doc, _ in lost))
    found = find_id_repairs(names, known)
    said = f"no id of the corpus is nearly one of these {len(names):,}"
    matches: dict[str, str] = {}
    if found:
        matches = found[0].matches
        said = f"{len(matches):,} of these {pluralise(len(names), 'id')} differ only in {found[0].name}"
    first = [*matches, *(name for name in names if name not in matches)][:MAX_EXAMPLES]
    return Finding(
        judged.source,
        "orphans",
        relevant > 0,
        len(lost),
        f"{pluralise(len(lost), 'judgment')}, {relevant:,} of them relevant, of documents that are not in the "
        f"corpus, in "
        f"{pluralise(len({query for query, _, _ in lost}), 'query')}; {said}",
        tuple(format_excerpt(f"{name} (perhaps {matches[name]})" if name in matches else name) for name in first),
        "nothing can return them, and they stay in the denominator of recall",
        remedy="mend the ids, or take these judgments out, and say so when you cite a score",
    )
