"""Checks of corpus entries: readability, encoding, ids, empty texts, orphans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ragauge.core.findings import Finding
from ragauge.core.text import normalise, one_line
from ragauge.datasets.corpus_checks import find_id_repairs
from ragauge.files.document_rows import CorpusFlaw
from ragauge.files.documents import TEXT_ENDINGS
from ragauge.knowledge.lint.lint_input import MAX_EXAMPLES, JudgmentRows, LintInput
from ragauge.output.numbers import pluralise


def check_readable(lint_input: LintInput) -> Iterator[Finding]:
    """Find unreadable entries, unknown text fields, wrong separators and unread files.

    Always a problem.
    """
    reading = lint_input.corpus
    lost = _flaws_of_kind(lint_input, "unreadable")
    if lost:
        yield Finding(
            reading.name,
            "unreadable",
            problem=True,
            count=len(lost),
            message=f"{pluralise(len(lost), 'entry')} cannot be read",
            examples=_flaw_texts(lost),
            effect="these entries are not indexed, so no query can return them",
            remedy="write one JSON object with an id and a text per line, or one quoted cell per column of the header",
        )
    nameless = _flaws_of_kind(lint_input, "fields")
    if nameless:
        yield Finding(
            reading.name,
            "no text field",
            problem=True,
            count=len(nameless),
            message=f"{pluralise(len(nameless), 'document')} without a recognised text field",
            examples=_flaw_texts(nameless),
            effect="they are treated as empty",
            remedy="name the text field with --text-field NAME",
        )
    separator_flaws = _flaws_of_kind(lint_input, "separator")
    if separator_flaws:
        yield Finding(
            reading.name,
            "separator",
            problem=True,
            count=len(separator_flaws),
            message=f"{pluralise(len(separator_flaws), 'table')} whose separator does not match the file ending",
            examples=_flaw_texts(separator_flaws),
            effect="CSV readers see a single column and no text field",
            remedy="save the table with commas, or as JSONL",
        )
    unread = _flaws_of_kind(lint_input, "unread")
    if unread:
        endings = Counter(flaw.detail or "without an ending" for flaw in unread)
        counts = ", ".join(f"{n:,} {ending}" for ending, n in endings.most_common())
        yield Finding(
            reading.name,
            "unread files",
            problem=True,
            count=len(unread),
            message=f"{pluralise(len(unread), 'file')} of the folder {'was' if len(unread) == 1 else 'were'} not read "
            f"({counts})",
            examples=[one_line(flaw.location, 120) for flaw in unread],
            effect="their contents were not checked",
            remedy=f"convert them to text ({', '.join(TEXT_ENDINGS)}) or to corpus.jsonl, "
            "or move them out of the folder",
        )
    if not lost and not nameless and not separator_flaws:
        message = f"no unreadable entry ({pluralise(len(reading), 'document')})"
        yield Finding(reading.name, "readable", problem=False, count=0, message=message)


def check_encoding(lint_input: LintInput) -> Iterator[Finding]:
    """Find bytes that are not UTF-8, and files in UTF-16; always a problem."""
    byte_flaws, utf16_flaws = _flaws_of_kind(lint_input, "bytes"), _flaws_of_kind(lint_input, "encoding")
    if byte_flaws:
        yield Finding(
            lint_input.corpus.name,
            "bytes",
            problem=True,
            count=len(byte_flaws),
            message=f"invalid UTF-8 in {pluralise(len(byte_flaws), 'entry')}",
            examples=_flaw_texts(byte_flaws),
            effect="readers fail there, or insert replacement characters into words",
            remedy="convert the file from its actual encoding, e.g. `iconv -f CP1252 -t UTF-8`",
        )
    if utf16_flaws:
        yield Finding(
            lint_input.corpus.name,
            "encoding",
            problem=True,
            count=len(utf16_flaws),
            message=f"{pluralise(len(utf16_flaws), 'file')} in UTF-16",
            examples=_flaw_texts(utf16_flaws),
            effect="most readers expect UTF-8 and find no valid line",
            remedy="convert the file: `iconv -f UTF-16 -t UTF-8`",
        )
    if not byte_flaws and not utf16_flaws:
        yield Finding(lint_input.corpus.name, "encoding", problem=False, count=0, message="all files are UTF-8")


def check_ids(lint_input: LintInput) -> Iterator[Finding]:
    """Find missing ids, duplicate ids and ids with white space; always a problem."""
    reading = lint_input.corpus
    missing = [index for index, name in enumerate(reading.ids) if name is None]
    if missing:
        yield Finding(
            reading.name,
            "missing ids",
            problem=True,
            count=len(missing),
            message=f"{pluralise(len(missing), 'document')} without an id",
            examples=lint_input.name_examples(missing),
            effect="judgments, runs and citations cannot refer to them",
            remedy="assign an id that does not depend on the position in the file",
        )
    indices_by_id: dict[str, list[int]] = {}
    for index, name in enumerate(reading.ids):
        if name is not None:
            indices_by_id.setdefault(name, []).append(index)
    duplicates = {name: indices for name, indices in indices_by_id.items() if len(indices) > 1}
    if duplicates:
        yield _duplicate_ids_finding(lint_input, duplicates)
    blank = [indices[0] for name, indices in indices_by_id.items() if any(map(str.isspace, name))]
    if blank:
        yield Finding(
            reading.name,
            "blanks in ids",
            problem=True,
            count=len(blank),
            message=f"white space in {pluralise(len(blank), 'id')}",
            examples=lint_input.name_examples(blank),
            effect="TREC runs and judgments are separated by white space, so these ids are read incorrectly",
            remedy="replace white space in the ids of the corpus and of the judgments",
        )
    if not missing and not duplicates and not blank:
        yield Finding(reading.name, "ids", problem=False, count=0, message="every document has a unique id")


def _duplicate_ids_finding(lint_input: LintInput, duplicates: dict[str, list[int]]) -> Finding:
    reading = lint_input.corpus
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
        problem=True,
        count=len(duplicates),
        message=f"{pluralise(len(duplicates), 'id')} used by more than one document: {counts}",
        examples=tuple(
            one_line(f"{name} ({', '.join(reading.locations[i] for i in duplicates[name][:3])})") for name in first
        ),
        effect="a store keeps only the last one or rejects the batch, and hits are ambiguous",
        remedy="give different texts different ids, and remove repeated texts",
    )


def check_empty(lint_input: LintInput) -> Iterator[Finding]:
    """Find documents without text or with only white space; always a problem."""
    none = lint_input.exact_duplicates[1]
    total = len(lint_input.corpus)
    if not none:
        yield Finding(lint_input.corpus.name, "empty", problem=False, count=0, message="every document has a text")
        return
    yield Finding(
        lint_input.corpus.name,
        "empty",
        problem=True,
        count=len(none),
        message=f"{len(none):,} of {pluralise(total, 'document')} {'has' if len(none) == 1 else 'have'} no text",
        examples=lint_input.name_examples(none),
        effect="their vectors are zero or noise: some stores reject them, others return them for any query",
        remedy="add their texts, or remove the documents",
    )


def _flaws_of_kind(lint_input: LintInput, kind: str) -> list[CorpusFlaw]:
    return [flaw for flaw in lint_input.corpus.flaws if flaw.kind == kind]


def _flaw_texts(flaws: Sequence[CorpusFlaw]) -> tuple[str, ...]:
    return tuple(one_line(f"{flaw.location}: {flaw.detail}", 120) for flaw in flaws[:MAX_EXAMPLES])


def check_orphans(lint_input: LintInput) -> Iterator[Finding]:
    """Find judgments of documents that are not in the corpus.

    A problem if one is relevant.
    """
    corpus_ids = {name for name in lint_input.corpus.ids if name is not None}
    for judged in lint_input.judgments:
        yield _orphans_finding(judged, corpus_ids)


def _orphans_finding(judged: JudgmentRows, corpus_ids: set[str]) -> Finding:
    lost = [(query, doc, grade) for query, doc, grade in judged.rows if doc not in corpus_ids]
    if not lost:
        explanation = f"no judgment of a missing document ({pluralise(len(judged.rows), 'judgment')})"
        return Finding(judged.source, "orphans", problem=False, count=0, message=explanation)
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
