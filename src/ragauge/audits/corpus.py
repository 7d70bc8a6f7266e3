"""Checks of the corpus: duplicate and near-duplicate documents, and judgments of missing documents or queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ragauge.audits.audit_input import (
    VISIBLE_CHANGE,
    AuditInput,
    FixScorers,
    describe_effect,
    largest_change,
    rename_documents,
    replace_grades,
    without_documents,
    without_queries,
)
from ragauge.core.documents import Document
from ragauge.core.errors import MissingEvidence
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Judgments, Run
from ragauge.datasets import corpus_checks
from ragauge.datasets.corpus_checks import ID_NORMALISERS, Repair, find_id_repairs
from ragauge.output.numbers import first_few, pluralise

DocumentGroup = Sequence[str]
"""Ids of duplicate documents, in corpus order."""


class DuplicateIds(NamedTuple):
    """Ids of a group of near-duplicate documents, with their similarity."""

    group: DocumentGroup
    similarity: float
    """Lowest share of shingles that a document of the group shares with the first one."""


class InconsistentGroup(NamedTuple):
    """Query with inconsistent judgments of a duplicate group.

    One document is relevant, another is less relevant or unjudged.
    """

    query: str
    group: DocumentGroup
    grades: dict[str, float]
    """Grades of the documents of the group that are judged for the query."""

    @property
    def contradicts(self) -> bool:
        """Return whether two documents of the group have different grades."""
        return len(set(self.grades.values())) > 1


def find_duplicate_documents(documents: Sequence[Document]) -> tuple[list[DocumentGroup], list[str]]:
    """Return groups of documents with equal texts, and ids of empty documents.

    Title and text are compared after normalisation.
    """
    groups, empty = corpus_checks.find_exact_duplicates([document.whole for document in documents])
    return [[documents[position].id for position in group] for group in groups], [
        documents[position].id for position in empty
    ]


def find_near_duplicate_documents(documents: Sequence[Document]) -> list[DuplicateIds]:
    """Return groups of near-duplicate documents.

    Each shares at least `NEAR` of its shingles with the first one of the group.
    """
    near_duplicates = corpus_checks.find_near_duplicates([document.whole for document in documents])
    return [
        DuplicateIds([documents[position].id for position in ids.positions], ids.similarity) for ids in near_duplicates
    ]


def find_inconsistent_groups(
    judgments: Judgments, groups: Sequence[DocumentGroup], rel: float
) -> Iterator[InconsistentGroup]:
    """Find queries with inconsistent judgments of a group.

    One document is relevant; others are graded differently or unjudged.
    """
    group_by_doc = {doc: group for group in groups for doc in group}
    for query, docs in judgments.nested.items():
        judged_groups = {
            id(group_by_doc[doc]): group_by_doc[doc]
            for doc, grade in docs.items()
            if doc in group_by_doc and grade >= rel
        }
        for group in judged_groups.values():
            grades = {doc: docs[doc] for doc in group if doc in docs}
            if len(grades) < len(group) or len(set(grades.values())) > 1:
                yield InconsistentGroup(query, group, grades)


def share_best_grade(
    judgments: Judgments, groups: Sequence[InconsistentGroup], *, judged_only: bool = False
) -> Judgments:
    """Give all documents of each group its best grade, or only the judged ones."""
    grades = {query: dict(docs) for query, docs in judgments.nested.items()}
    for group in groups:
        best = max(group.grades.values())
        for doc in group.grades if judged_only else group.group:
            grades[group.query][doc] = best
    return replace_grades(judgments, grades)


def collapse_judgments(judgments: Judgments, groups: Sequence[DocumentGroup]) -> Judgments:
    """Replace each group by its first document, with the best grade of the group."""
    return rename_documents(judgments, {doc: group[0] for group in groups for doc in group})


def collapse_run(run: Run, groups: Sequence[DocumentGroup]) -> Run:
    """Replace each group in a run by its first document, at its best position."""
    import polars as pl

    first = {doc: group[0] for group in groups for doc in group}
    table = run.table.with_columns(pl.col("doc").replace(first))
    best = table.filter(pl.col("score") == pl.col("score").max().over("query", "doc"))
    return replace(run, table=best.unique(["query", "doc"], keep="first", maintain_order=True))


MIN_DUPLICATE_SHARE = 0.05
"""Minimum share of the corpus at which exact duplicates are a problem even if their judgments agree."""
MIN_NEAR_DUPLICATE_SHARE = 0.2
"""Minimum share of the corpus at which near-duplicates are a problem.

Higher than the share for exact duplicates, because near-duplicates still differ.
"""
MIN_CLOSE_JACCARD = 0.95
"""Minimum Jaccard similarity at which near-duplicates differ in a word or two only."""

EMPTY_EFFECT = "their vectors are zero or noise: some stores reject them, others return them for any query"
DUPLICATES_EFFECT = "duplicates take adjacent ranks and displace other documents"
NEAR_DUPLICATES_EFFECT = (
    "near-duplicates displace other documents; if they contradict each other, an answer may be wrong"
)
"""Effects on retrieval, shown if no score shows the effect."""

MAX_GROUPS_SHOWN = 3
"""Maximum number of duplicate groups shown as examples."""
MAX_DOCUMENTS_COMPARED = 200_000
"""Maximum number of documents compared for near-duplicates; this many take some minutes."""


def check_duplicates(audit_input: AuditInput) -> Iterator[Finding]:
    """Find documents with the same title and text, and empty documents.

    Case, compatibility forms and white space are ignored. Duplicates are a problem if a query has a relevant
    document with a less relevant duplicate, since the order of equal texts then changes the score. They are also a
    problem if they make up `MIN_DUPLICATE_SHARE` of the corpus. Empty documents are a problem if they are relevant,
    since no text search finds them, and leaving them out changes a mean by 0.001 or more, or no run is given.
    """
    documents = _require_documents(audit_input)
    groups, empty = find_duplicate_documents(documents)
    yield from _empty_document_findings(audit_input, empty, len(documents))
    if not groups:
        yield Finding(
            "corpus",
            "duplicates",
            problem=False,
            count=0,
            message=f"no two of {pluralise(len(documents), 'document')} have the same text",
        )
        return
    split = list(find_inconsistent_groups(audit_input.judgments, groups, audit_input.convention.rel))
    size = sum(map(len, groups))
    message = (
        f"{size:,} of {pluralise(len(documents), 'document')} repeat the text of another (ignoring case and white "
        f"space), in {pluralise(len(groups), 'group')}"
        f"{_judged_counts_text(audit_input, [doc for group in groups for doc in group])}"
    )
    if split:
        message += (
            f"; {pluralise(_count_queries(split), 'query')} with a relevant document whose duplicate has a lower grade"
        )
    effect, grid = describe_effect(audit_input, _duplicate_fixes(audit_input, groups, split, "duplicates"))
    yield Finding(
        "corpus",
        "duplicates",
        bool(split) or size >= MIN_DUPLICATE_SHARE * len(documents),
        size,
        message,
        first_few([" = ".join(group[:3]) + (" = …" if len(group) > 3 else "") for group in groups], MAX_GROUPS_SHOWN),
        effect or DUPLICATES_EFFECT,
        grid,
    )
    yield from _contradiction_findings(audit_input, [group for group in split if group.contradicts])


def _empty_document_findings(audit_input: AuditInput, empty: Sequence[str], total: int) -> Iterator[Finding]:
    if not empty:
        return
    relevant = _count_relevant(audit_input, empty)
    remaining = without_documents(audit_input.judgments, set(empty)) if relevant else None
    fixes: FixScorers = (
        {} if remaining is None else {"they are excluded": lambda run: audit_input.scores(run, judgments=remaining)}
    )
    effect, grid = describe_effect(audit_input, fixes)
    yield Finding(
        "corpus",
        "empty documents",
        not audit_input.has_judgments
        or (
            bool(relevant) and all(not largest_change(audit_input, count) < VISIBLE_CHANGE for count in fixes.values())
        ),
        len(empty),
        f"{len(empty):,} of {pluralise(total, 'document')} {'has' if len(empty) == 1 else 'have'} no text"
        f"{_judged_counts_text(audit_input, empty)}",
        first_few(empty),
        effect or EMPTY_EFFECT,
        grid,
    )


def _duplicate_fixes(
    audit_input: AuditInput, groups: Sequence[DocumentGroup], split: Sequence[InconsistentGroup], name: str
) -> FixScorers:
    best, fewer = share_best_grade(audit_input.judgments, split), collapse_judgments(audit_input.judgments, groups)
    return {
        f"{name} share judgments": lambda run: audit_input.scores(run, judgments=best),
        f"{name} are merged": lambda run: audit_input.scores(
            run, judgments=fewer, change=partial(collapse_run, groups=groups)
        ),
    }


def _contradiction_findings(audit_input: AuditInput, clashes: Sequence[InconsistentGroup]) -> Iterator[Finding]:
    if not clashes:
        return
    best = share_best_grade(audit_input.judgments, clashes, judged_only=True)
    effect, grid = describe_effect(
        audit_input, {"the higher grade is used": lambda run: audit_input.scores(run, judgments=best)}
    )
    yield Finding(
        audit_input.judgments.source,
        "contradictions",
        problem=True,
        count=len(clashes),
        message=f"identical texts are judged differently for one query {pluralise(len(clashes), 'time')}, "
        f"in {pluralise(_count_queries(clashes), 'query')}",
        examples=first_few(
            [
                f"query {clash.query}: "
                + ", ".join(f"{doc} is {grade:g}" for doc, grade in list(clash.grades.items())[:3])
                for clash in clashes
            ]
        ),
        effect=effect,
        table=grid,
    )


def check_near_duplicates(audit_input: AuditInput) -> Iterator[Finding]:
    """Find documents that share 0.8 or more of their 3-word shingles with another.

    Exact duplicates are not reported again. A problem if near-duplicates make up `MIN_NEAR_DUPLICATE_SHARE` of the
    corpus. Also a problem if, for `MIN_DUPLICATE_SHARE` of the queries, a relevant document has a near-duplicate of
    at least `MIN_CLOSE_JACCARD` that is less relevant.
    """
    documents = _require_documents(audit_input)
    if len(documents) > MAX_DOCUMENTS_COMPARED:
        raise MissingEvidence(f"near-duplicates are searched among at most {MAX_DOCUMENTS_COMPARED:,} documents")
    exact, empty = find_duplicate_documents(documents)
    left_out = {doc for group in exact for doc in group[1:]} | set(empty)
    duplicates = find_near_duplicate_documents([document for document in documents if document.id not in left_out])
    rule = f"Jaccard {corpus_checks.NEAR_DUPLICATE_JACCARD:g} or more of 3-word shingles"
    if not duplicates:
        message = f"no near-duplicates among {pluralise(len(documents), 'document')} ({rule})"
        yield Finding("corpus", "near duplicates", problem=False, count=0, message=message)
        return
    groups = [duplicate.group for duplicate in duplicates]
    split = list(find_inconsistent_groups(audit_input.judgments, groups, audit_input.convention.rel))
    close = list(
        find_inconsistent_groups(
            audit_input.judgments,
            [ids.group for ids in duplicates if ids.similarity >= MIN_CLOSE_JACCARD],
            audit_input.convention.rel,
        )
    )
    size = sum(map(len, groups))
    message = (
        f"{size:,} of {pluralise(len(documents), 'document')} are near-duplicates ({rule}), in "
        f"{pluralise(len(groups), 'group')}"
        f"{_judged_counts_text(audit_input, [doc for group in groups for doc in group])}"
    )
    if split:
        message += (
            f"; {pluralise(_count_queries(split), 'query')} with a relevant document whose near-duplicate has "
            f"a lower grade, {_count_queries(close):,} of them at {MIN_CLOSE_JACCARD:g} or more"
        )
    effect, grid = describe_effect(audit_input, _duplicate_fixes(audit_input, groups, split, "near-duplicates"))
    yield Finding(
        "corpus",
        "near duplicates",
        size >= MIN_NEAR_DUPLICATE_SHARE * len(documents)
        or (bool(close) and _count_queries(close) >= MIN_DUPLICATE_SHARE * len(audit_input.judgments)),
        size,
        message,
        first_few(
            [
                " ~ ".join(duplicate.group[:3]) + (" ~ …" if len(duplicate.group) > 3 else "")
                for duplicate in duplicates
            ],
            MAX_GROUPS_SHOWN,
        ),
        effect or NEAR_DUPLICATES_EFFECT,
        grid,
    )


def check_orphans(audit_input: AuditInput) -> Iterator[Finding]:
    """Find judgments of documents or queries that are missing from the dataset.

    Orphan documents are a problem if a relevant one is among them: it cannot be retrieved, but still counts in the
    denominator. Orphan queries are always a problem.
    """
    if audit_input.documents is None and audit_input.queries is None:
        raise MissingEvidence("this check needs the documents or the queries", hint="give the corpus")
    if audit_input.documents is not None:
        yield from _orphan_document_findings(audit_input, audit_input.documents)
    if audit_input.queries is not None:
        yield from _orphan_query_findings(audit_input, audit_input.queries)


def _orphan_document_findings(audit_input: AuditInput, documents: Sequence[Document]) -> Iterator[Finding]:
    corpus_ids = {document.id for document in documents}
    grades = audit_input.judgments.nested
    lost = [(query, doc) for query, docs in grades.items() for doc in docs if doc not in corpus_ids]
    if not lost:
        message = (
            f"all {pluralise(len(audit_input.judgments.pool.grades), 'judgment')} refer to documents in the corpus"
        )
        yield Finding(audit_input.judgments.source, "orphan documents", problem=False, count=0, message=message)
        return
    relevant = sum(grades[query][doc] >= audit_input.convention.rel for query, doc in lost)
    findings = find_id_repairs((doc for _, doc in lost), corpus_ids)
    remaining = without_documents(audit_input.judgments, {doc for _, doc in lost})
    fixes: FixScorers = (
        {} if remaining is None else {"orphans are removed": lambda run: audit_input.scores(run, judgments=remaining)}
    )
    if findings:
        corrected = rename_documents(audit_input.judgments, findings[0].matches)
        fixes = {**fixes, "ids are corrected": lambda run: audit_input.scores(run, judgments=corrected)}
    effect, grid = describe_effect(audit_input, fixes)
    yield Finding(
        audit_input.judgments.source,
        "orphan documents",
        relevant > 0,
        len(lost),
        f"{pluralise(len(lost), 'judgment')}, {relevant:,} of them relevant, refer to documents that are not in the "
        f"corpus, in {pluralise(len({query for query, _ in lost}), 'query')}; "
        f"{_repair_text(findings, len({doc for _, doc in lost}))}",
        _orphan_examples([doc for _, doc in lost], findings),
        effect,
        grid or _repair_grid(findings),
    )


def _orphan_query_findings(audit_input: AuditInput, queries: Mapping[str, str]) -> Iterator[Finding]:
    lost = [query for query in audit_input.judgments.nested if query not in queries]
    if not lost:
        message = f"the text of every judged query is known ({len(audit_input.judgments):,})"
        yield Finding(audit_input.judgments.source, "orphan queries", problem=False, count=0, message=message)
        return
    findings = find_id_repairs(lost, queries)
    remaining = without_queries(audit_input.judgments, set(lost))
    fixes: FixScorers = (
        {} if remaining is None else {"orphans are removed": lambda run: audit_input.scores(run, judgments=remaining)}
    )
    if findings:
        names = {old: new for old, new in findings[0].matches.items() if new not in audit_input.judgments.nested}
        grades = {names.get(query, query): docs for query, docs in audit_input.judgments.nested.items()}
        corrected = replace_grades(audit_input.judgments, grades)
        fixes = {**fixes, "ids are corrected": lambda run: audit_input.scores(run, judgments=corrected)}
    effect, grid = describe_effect(audit_input, fixes)
    yield Finding(
        audit_input.judgments.source,
        "orphan queries",
        problem=True,
        count=len(lost),
        message=f"{len(lost):,} of {len(audit_input.judgments):,} judged queries are not among the queries; "
        f"{_repair_text(findings, len(lost))}",
        examples=_orphan_examples(lost, findings),
        effect=effect,
        table=grid or _repair_grid(findings),
    )


def _repair_text(repairs: Sequence[Repair], total: int) -> str:
    if not repairs:
        return f"no normalisation ({', '.join(ID_NORMALISERS)}) makes any id match"
    first, *others = repairs
    more = "".join(f", {len(repair.matches):,} without regard to {repair.name}" for repair in others)
    return f"{len(first.matches):,} of {pluralise(total, 'id')} would match if {first.name} were ignored{more}"


def _orphan_examples(lost: Sequence[str], repairs: Sequence[Repair]) -> Sequence[str]:
    names = repairs[0].matches if repairs else {}
    return first_few([f"{name} -> {names[name]}" if name in names else name for name in dict.fromkeys(lost)])


def _repair_grid(repairs: Sequence[Repair]) -> FindingTable | None:
    return (
        FindingTable(["repair", "matches"], [[repair.name, len(repair.matches)] for repair in repairs])
        if repairs
        else None
    )


def _require_documents(audit_input: AuditInput) -> Sequence[Document]:
    if audit_input.documents is None:
        raise MissingEvidence("the search for duplicates needs the documents", hint="give the corpus")
    return audit_input.documents


def _count_relevant(audit_input: AuditInput, documents: Sequence[str]) -> int:
    ids = set(documents)
    graded = audit_input.judgments.nested.values()
    return len({doc for docs in graded for doc in docs.keys() & ids if docs[doc] >= audit_input.convention.rel})


def _judged_counts_text(audit_input: AuditInput, documents: Sequence[str]) -> str:
    """Describe how many documents are judged and relevant, as the end of a sentence; empty without judgments."""
    if not audit_input.has_judgments:
        return ""
    ids = set(documents)
    judged = {doc for docs in audit_input.judgments.nested.values() for doc in docs.keys() & ids}
    return f"; {len(judged):,} judged, {_count_relevant(audit_input, documents):,} relevant"


def _count_queries(split: Sequence[InconsistentGroup]) -> int:
    return len({group.query for group in split})
