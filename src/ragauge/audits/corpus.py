"""Checks of the corpus: duplicate and near-duplicate documents, and judgments of missing documents or queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ragauge.audits import twins
from ragauge.audits.effects import (
    VISIBLE,
    Mended,
    effect,
    largest_move,
    regraded,
    renamed,
    without_documents,
    without_queries,
)
from ragauge.audits.evidence import Evidence
from ragauge.audits.repairs import REPAIRS, Repair, repairs
from ragauge.audits.wording import counted, some
from ragauge.errors import MissingEvidence
from ragauge.findings import Finding, Grid
from ragauge.records import Document

MANY = 0.05
"""Minimum share of the corpus at which exact duplicates are a problem even if their judgments agree."""
VERY_MANY = 0.2
"""Minimum share of the corpus at which near-duplicates are a problem.

Higher than the share for exact duplicates, because near-duplicates still differ.
"""
CLOSE = 0.95
"""Minimum Jaccard similarity at which near-duplicates differ in a word or two only."""

PAIRS = 3
"""Maximum number of duplicate groups shown as examples."""
MOST = 200_000
"""Maximum number of documents compared for near-duplicates; this many take some minutes."""


def duplicates(evidence: Evidence) -> Iterator[Finding]:
    """Find documents with the same title and text, and empty documents.

    Case, compatibility forms and white space are ignored. Duplicates are a problem if a query has a relevant
    document with a less relevant duplicate, since the order of equal texts then changes the score. They are also a
    problem if they make up `MIN_DUPLICATE_SHARE` of the corpus. Empty documents are a problem if they are relevant,
    since no text search finds them, and leaving them out changes a mean by 0.001 or more, or no run is given.
    """
    documents = _documents(evidence)
    groups, empty = twins.same(documents)
    yield from _empty(evidence, empty, len(documents))
    if not groups:
        yield Finding(
            "corpus", "duplicates", False, 0, f"no two of {counted(len(documents), 'document')} have the same text"
        )
        return
    split = list(twins.splits(evidence.judgments, groups, evidence.rules.rel))
    size = sum(map(len, groups))
    message = (
        f"{size:,} of {counted(len(documents), 'document')} have the text of another (case and white space aside), "
        f"in {counted(len(groups), 'group')}; {_judged(evidence, [doc for group in groups for doc in group])}"
    )
    if split:
        message += f"; {counted(_queries(split), 'query')} with a relevant document whose twin is not as relevant"
    words, grid = effect(evidence, _one_by_one(evidence, groups, split, "twins"))
    yield Finding(
        "corpus",
        "duplicates",
        bool(split) or size >= MANY * len(documents),
        size,
        message,
        some([" = ".join(group[:3]) + (" = …" if len(group) > 3 else "") for group in groups], PAIRS),
        words,
        grid,
    )
    yield from _contradictions(evidence, [one for one in split if one.contradicts])


def _empty(evidence: Evidence, empty: Sequence[str], total: int) -> Iterator[Finding]:
    if not empty:
        return
    relevant = _relevant(evidence, empty)
    left = without_documents(evidence.judgments, set(empty)) if relevant else None
    ways: Mended = {} if left is None else {"they are left out": lambda run: evidence.scores(run, judgments=left)}
    words, grid = effect(evidence, ways)
    yield Finding(
        "corpus",
        "empty documents",
        bool(relevant) and all(not largest_move(evidence, count) < VISIBLE for count in ways.values()),
        len(empty),
        f"{len(empty):,} of {counted(total, 'document')} have no text; {_judged(evidence, empty)}",
        some(empty),
        words,
        grid,
    )


def _one_by_one(evidence: Evidence, groups: Sequence[twins.Group], split: Sequence[twins.Split], name: str) -> Mended:
    best, fewer = twins.shared(evidence.judgments, split), twins.collapsed(evidence.judgments, groups)
    return {
        f"{name} share judgments": lambda run: evidence.scores(run, judgments=best),
        f"{name} are one": lambda run: evidence.scores(
            twins.collapsed_run(evidence.runs[run], groups), judgments=fewer
        ),
    }


def _contradictions(evidence: Evidence, clashes: Sequence[twins.Split]) -> Iterator[Finding]:
    if not clashes:
        return
    best = twins.shared(evidence.judgments, clashes, judged_only=True)
    words, grid = effect(evidence, {"the better grade counts": lambda run: evidence.scores(run, judgments=best)})
    yield Finding(
        evidence.judgments.source,
        "contradictions",
        True,
        len(clashes),
        f"the same text is judged differently for the same query {counted(len(clashes), 'time')}, "
        f"in {counted(_queries(clashes), 'query')}",
        some(
            [
                f"query {one.query}: " + ", ".join(f"{doc} is {grade:g}" for doc, grade in list(one.grades.items())[:3])
                for one in clashes
            ]
        ),
        words,
        grid,
    )


def near_duplicates(evidence: Evidence) -> Iterator[Finding]:
    """Find documents that share 0.8 or more of their 3-word shingles with another.

    Exact duplicates are not reported again. A problem if near-duplicates make up `MIN_NEAR_DUPLICATE_SHARE` of the
    corpus. Also a problem if, for `MIN_DUPLICATE_SHARE` of the queries, a relevant document has a near-duplicate of
    at least `MIN_CLOSE_JACCARD` that is less relevant.
    """
    documents = _documents(evidence)
    if len(documents) > MOST:
        raise MissingEvidence(f"near-duplicates are looked for among {MOST:,} documents at most")
    exact, empty = twins.same(documents)
    left_out = {doc for group in exact for doc in group[1:]} | set(empty)
    found = twins.alike([document for document in documents if document.id not in left_out])
    rule = f"Jaccard {twins.NEAR:g} or more of three-word stretches"
    if not found:
        message = f"no two of {counted(len(documents), 'document')} are nearly the same ({rule})"
        yield Finding("corpus", "near duplicates", False, 0, message)
        return
    groups = [one.group for one in found]
    split = list(twins.splits(evidence.judgments, groups, evidence.rules.rel))
    close = list(
        twins.splits(evidence.judgments, [one.group for one in found if one.part >= CLOSE], evidence.rules.rel)
    )
    size = sum(map(len, groups))
    message = (
        f"{size:,} of {counted(len(documents), 'document')} are nearly another ({rule}), "
        f"in {counted(len(groups), 'group')}; "
        f"{_judged(evidence, [doc for group in groups for doc in group])}"
    )
    if split:
        message += (
            f"; {counted(_queries(split), 'query')} with a relevant document whose near-twin is not as relevant, "
            f"{_queries(close):,} of them at {CLOSE:g} or more"
        )
    words, grid = effect(evidence, _one_by_one(evidence, groups, split, "near-twins"))
    yield Finding(
        "corpus",
        "near duplicates",
        size >= VERY_MANY * len(documents) or _queries(close) >= MANY * len(evidence.judgments),
        size,
        message,
        some([" ~ ".join(one.group[:3]) + (" ~ …" if len(one.group) > 3 else "") for one in found], PAIRS),
        words,
        grid,
    )


def orphans(evidence: Evidence) -> Iterator[Finding]:
    """Find judgments of documents or queries that are missing from the dataset.

    Orphan documents are a problem if a relevant one is among them: it cannot be retrieved, but still counts in the
    denominator. Orphan queries are always a problem.
    """
    if evidence.documents is None and evidence.queries is None:
        raise MissingEvidence("orphan judgments need the documents or the queries", hint="give the corpus")
    if evidence.documents is not None:
        yield from _orphan_documents(evidence, evidence.documents)
    if evidence.queries is not None:
        yield from _orphan_queries(evidence, evidence.queries)


def _orphan_documents(evidence: Evidence, documents: Sequence[Document]) -> Iterator[Finding]:
    known = {document.id for document in documents}
    grades = evidence.judgments.nested
    lost = [(query, doc) for query, docs in grades.items() for doc in docs if doc not in known]
    if not lost:
        message = f"all {counted(len(evidence.judgments.pool.grades), 'judgment')} are of documents in the corpus"
        yield Finding(evidence.judgments.source, "orphan documents", False, 0, message)
        return
    relevant = sum(grades[query][doc] >= evidence.rules.rel for query, doc in lost)
    found = repairs((doc for _, doc in lost), known)
    left = without_documents(evidence.judgments, {doc for _, doc in lost})
    ways: Mended = {} if left is None else {"orphans are left out": lambda run: evidence.scores(run, judgments=left)}
    if found:
        mended = renamed(evidence.judgments, found[0].matches)
        ways = {**ways, "ids are repaired": lambda run: evidence.scores(run, judgments=mended)}
    words, grid = effect(evidence, ways)
    yield Finding(
        evidence.judgments.source,
        "orphan documents",
        relevant > 0,
        len(lost),
        f"{counted(len(lost), 'judgment')}, {relevant:,} of them relevant, of documents that are not in the corpus, "
        f"in {counted(len({query for query, _ in lost}), 'query')}; {_said(found, len({doc for _, doc in lost}))}",
        _examples([doc for _, doc in lost], found),
        words,
        grid or _as_grid(found),
    )


def _orphan_queries(evidence: Evidence, queries: Mapping[str, str]) -> Iterator[Finding]:
    lost = [query for query in evidence.judgments.nested if query not in queries]
    if not lost:
        message = f"the text of every judged query is known ({len(evidence.judgments):,})"
        yield Finding(evidence.judgments.source, "orphan queries", False, 0, message)
        return
    found = repairs(lost, queries)
    left = without_queries(evidence.judgments, set(lost))
    ways: Mended = {} if left is None else {"orphans are left out": lambda run: evidence.scores(run, judgments=left)}
    if found:
        names = {old: new for old, new in found[0].matches.items() if new not in evidence.judgments.nested}
        grades = {names.get(query, query): docs for query, docs in evidence.judgments.nested.items()}
        mended = regraded(evidence.judgments, grades)
        ways = {**ways, "ids are repaired": lambda run: evidence.scores(run, judgments=mended)}
    words, grid = effect(evidence, ways)
    yield Finding(
        evidence.judgments.source,
        "orphan queries",
        True,
        len(lost),
        f"{len(lost):,} of {len(evidence.judgments):,} judged queries are not among the queries; "
        f"{_said(found, len(lost))}",
        _examples(lost, found),
        words,
        grid or _as_grid(found),
    )


def _said(found: Sequence[Repair], total: int) -> str:
    if not found:
        return f"no other writing ({', '.join(REPAIRS)}) makes any match"
    first, *others = found
    more = "".join(f", {len(one.matches):,} without regard to {one.name}" for one in others)
    return f"{len(first.matches):,} of {counted(total, 'id')} would match without regard to {first.name}{more}"


def _examples(lost: Sequence[str], found: Sequence[Repair]) -> Sequence[str]:
    names = found[0].matches if found else {}
    return some([f"{name} -> {names[name]}" if name in names else name for name in dict.fromkeys(lost)])


def _as_grid(found: Sequence[Repair]) -> Grid | None:
    return Grid(["repair", "matches"], [[one.name, len(one.matches)] for one in found]) if found else None


def _documents(evidence: Evidence) -> Sequence[Document]:
    if evidence.documents is None:
        raise MissingEvidence("duplicates are looked for in the documents", hint="give the corpus")
    return evidence.documents


def _relevant(evidence: Evidence, documents: Sequence[str]) -> int:
    wanted = set(documents)
    graded = evidence.judgments.nested.values()
    return len({doc for docs in graded for doc in docs.keys() & wanted if docs[doc] >= evidence.rules.rel})


def _judged(evidence: Evidence, documents: Sequence[str]) -> str:
    wanted = set(documents)
    judged = {doc for docs in evidence.judgments.nested.values() for doc in docs.keys() & wanted}
    return f"{len(judged):,} judged, {_relevant(evidence, documents):,} relevant"


def _queries(split: Sequence[twins.Split]) -> int:
    return len({one.query for one in split})
