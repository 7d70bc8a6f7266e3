"""Checks of corpus entries: readability, encoding, ids, empty texts, orphans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ragauge.core.findings import Finding
from ragauge.core.text import normalise, one_line
from ragauge.datasets.corpus_checks import find_id_repairs
from ragauge.files.document_rows import CorpusFlaw
from ragauge.files.documents import TEXT_ENDINGS
from ragauge.knowledge.lint.evidence import MAX_EXAMPLES, Evidence, JudgmentRows
from ragauge.output.numbers import pluralise


def check_readable(evidence: Evidence) -> Iterator[Finding]:
    """Find unreadable entries, unknown text fields, wrong separators and unread files.

    Always a problem.
    """
    reading = evidence.corpus
    lost = _flaws_of_kind(evidence, "unreadable")
    if lost:
        yield Finding(
            reading.name,
            "unreadable",
            True,
            len(lost),
            f"{pluralise(len(lost), 'entry')} cannot be read",
            _flaw_texts(lost),
            "these entries are not indexed, so no query can return them",
            remedy="write one JSON object with an id and a text per line, or one quoted cell per column of the header",
        )
    nameless = _flaws_of_kind(evidence, "fields")
    if nameless:
        yield Finding(
            reading.name,
            "no text field",
            True,
            len(nameless),
            f"{pluralise(len(nameless), 'document')} without a recognised text field",
            _flaw_texts(nameless),
            "they are treated as empty",
            remedy="name the text field with --text-field NAME",
        )
    separator_flaws = _flaws_of_kind(evidence, "separator")
    if separator_flaws:
        yield Finding(
            reading.name,
            "separator",
            True,
            len(separator_flaws),
            f"{pluralise(len(separator_flaws), 'table')} whose separator does not match the file ending",
            _flaw_texts(separator_flaws),
            "CSV readers see a single column and no text field",
            remedy="save the table with commas, or as JSONL",
        )
    unread = _flaws_of_kind(evidence, "unread")
    if unread:
        endings = Counter(flaw.detail or "without an ending" for flaw in unread)
        counts = ", ".join(f"{n:,} {ending}" for ending, n in endings.most_common())
        yield Finding(
            reading.name,
            "unread files",
            True,
            len(unread),
            f"{pluralise(len(unread), 'file')} of the folder {'was' if len(unread) == 1 else 'were'} not read "
            f"({counts})",
            [one_line(flaw.location, 120) for flaw in unread],
            "their contents were not checked",
            remedy=f"convert them to text ({', '.join(TEXT_ENDINGS)}) or to corpus.jsonl, "
            "or move them out of the folder",
        )
    if not lost and not nameless and not separator_flaws:
        message = f"no unreadable entry ({pluralise(len(reading), 'document')})"
        yield Finding(reading.name, "readable", False, 0, message)


def check_encoding(evidence: Evidence) -> Iterator[Finding]:
    """Find bytes that are not UTF-8, and files in UTF-16; always a problem."""
    byte_flaws, utf16_flaws = _flaws_of_kind(evidence, "bytes"), _flaws_of_kind(evidence, "encoding")
    if byte_flaws:
        yield Finding(
            evidence.corpus.name,
            "bytes",
            True,
            len(byte_flaws),
            f"invalid UTF-8 in {pluralise(len(byte_flaws), 'entry')}",
            _flaw_texts(byte_flaws),
            "readers fail there, or insert replacement characters into words",
            remedy="convert the file from its actual encoding, e.g. `iconv -f CP1252 -t UTF-8`",
        )
    if utf16_flaws:
        yield Finding(
            evidence.corpus.name,
            "encoding",
            True,
            len(utf16_flaws),
            f"{pluralise(len(utf16_flaws), 'file')} in UTF-16",
            _flaw_texts(utf16_flaws),
            "most readers expect UTF-8 and find no valid line",
            remedy="convert the file: `iconv -f UTF-16 -t UTF-8`",
        )
    if not byte_flaws and not utf16_flaws:
        yield Finding(evidence.corpus.name, "encoding", False, 0, "all files are UTF-8")


def check_ids(evidence: Evidence) -> Iterator[Finding]:
    """Find missing ids, duplicate ids and ids with white space; always a problem."""
    reading = evidence.corpus
    missing = [index for index, name in enumerate(reading.ids) if name is None]
    if missing:
        yield Finding(
            reading.name,
            "missing ids",
            True,
            len(missing),
            f"{pluralise(len(missing), 'document')} without an id",
            evidence.some(missing),
            "judgments, runs and citations cannot refer to them",
            remedy="assign an id that does not depend on the position in the file",
        )
    indices_by_id: dict[str, list[int]] = {}
    for index, name in enumerate(reading.ids):
        if name is not None:
            indices_by_id.setdefault(name, []).append(index)
    duplicates = {name: indices for name, indices in indices_by_id.items() if len(indices) > 1}
    if duplicates:
        yield _duplicate_ids_finding(evidence, duplicates)
    blank = [indices[0] for name, indices in indices_by_id.items() if any(map(str.isspace, name))]
    if blank:
        yield Finding(
            reading.name,
            "blanks in ids",
            True,
            len(blank),
            f"white space in {pluralise(len(blank), 'id')}",
            evidence.some(blank),
            "TREC runs and judgments are separated by white space, so these ids are read incorrectly",
            remedy="replace white space in the ids of the corpus and of the judgments",
        )
    if not missing and not duplicates and not blank:
        yield Finding(reading.name, "ids", False, 0, "every document has a unique id")


def _duplicate_ids_finding(evidence: Evidence, duplicates: dict[str, list[int]]) -> Finding:
    reading = evidence.corpus
    differ = {
        name: indices for name, indices in duplicates.items() if len({normalise(reading.texts[i]) for i in indices}) > 1
    }
    n_equal = len(duplicates) - len(differ)
    counts = " and ".join(
        filter(
            None, [f"{len(differ):,} with different texts" * bool(differ), f"{n_equal:,} with one text" * bool(n_equal)]
        )
    )
    first = [*differ, *(name for name in duplicates if name not in differ)][:MAX_EXAMPLES]
    return Finding(
        reading.name,
        "duplicate ids",
        True,
        len(duplicates),
        f"{pluralise(len(duplicates), 'id')} used by more than one document: {counts}",
        tuple(one_line(f"{name} ({', '.join(reading.locations[i] for i in duplicates[name][:3])})") for name in first),
        "a store keeps only the last one or rejects the batch, and hits are ambiguous",
        remedy="give different texts different ids, and remove repeated texts",
    )


def check_empty(evidence: Evidence) -> Iterator[Finding]:
    """Find documents without text or with only white space; always a problem."""
    none = evidence.exact_duplicates[1]
    total = len(evidence.corpus)
    if not none:
        yield Finding(evidence.corpus.name, "empty", False, 0, "every document has a text")
        return
    yield Finding(
        evidence.corpus.name,
        "empty",
        True,
        len(none),
        f"{len(none):,} of {pluralise(total, 'document')} {'has' if len(none) == 1 else 'have'} no text",
        evidence.some(none),
        "their vectors are zero or noise: some stores reject them, others return them for any query",
        remedy="add their texts, or remove the documents",
    )


def _flaws_of_kind(evidence: Evidence, kind: str) -> list[CorpusFlaw]:
    return [flaw for flaw in evidence.corpus.flaws if flaw.kind == kind]


def _flaw_texts(flaws: Sequence[CorpusFlaw]) -> tuple[str, ...]:
    return tuple(one_line(f"{flaw.location}: {flaw.detail}", 120) for flaw in flaws[:MAX_EXAMPLES])


def check_orphans(evidence: Evidence) -> Iterator[Finding]:
    """Find judgments of documents that are not in the corpus.

    A problem if one is relevant.
    """
    corpus_ids = {name for name in evidence.corpus.ids if name is not None}
    for judged in evidence.judgments:
        yield _orphans_finding(judged, corpus_ids)


def _orphans_finding(judged: JudgmentRows, corpus_ids: set[str]) -> Finding:
    lost = [(query, doc, grade) for query, doc, grade in judged.rows if doc not in corpus_ids]
    if not lost:
        explanation = f"no judgment of a missing document ({pluralise(len(judged.rows), 'judgment')})"
        return Finding(judged.source, "orphans", False, 0, explanation)
    relevant = sum(grade >= 1 for _, _, grade in lost)
    names = list(dict.fromkeys(doc for _, doc, _ in lost))
    id_repairs = find_id_repairs(names, corpus_ids)
    explanation = f"no id of the corpus is similar to one of these {len(names):,}"
    matches: dict[str, str] = {}
    if id_repairs:
        matches = id_repairs[0].matches
        explanation = f"{len(matches):,} of these {pluralise(len(names), 'id')} differ only in {id_repairs[0].name}"
    first = [*matches, *(name for name in names if name not in matches)][:MAX_EXAMPLES]
    return Finding(
        judged.source,
        "orphans",
        relevant > 0,
        len(lost),
        f"{pluralise(len(lost), 'judgment')}, {relevant:,} of them relevant, refer to documents that are not in the "
        f"corpus, in "
        f"{pluralise(len({query for query, _, _ in lost}), 'query')}; {explanation}",
        tuple(one_line(f"{name} (perhaps {matches[name]})" if name in matches else name) for name in first),
        "no system can return these documents, and they count in the denominator of recall",
        remedy="correct the ids, or remove these judgments and state so when you report a score",
    )
