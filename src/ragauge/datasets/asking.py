"""Which queries of a dataset are asked, and which of them are themselves among its documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ragauge.errors import BadInput
from ragauge.records import Dataset, Judgments


def asked(data: Dataset, limit: int | None) -> tuple[Dataset, list[str]]:
    """The dataset with judgments of the queries that are asked and no others: one that is not asked is no zero."""
    if limit is not None and limit < 1:
        raise BadInput(f"the limit is {limit}, not at least 1")
    queries = dict(list(data.queries.items())[:limit])
    grades = data.judgments.nested
    left = [query for query in grades if query not in queries]
    if not queries:
        raise BadInput(f"the dataset {data.name} has no query")
    if not left:
        return replace(data, queries=queries) if len(queries) < len(data.queries) else data, []
    mine = data.judgments
    kept = Judgments(
        {query: grades[query] for query in grades if query in queries},
        subtopics=mine.subtopics and {query: rows for query, rows in mine.subtopics.items() if query in queries},
        targets=mine.targets,
        source=mine.source,
    )
    note = f"{len(left)} judged queries are not asked and not counted"
    return replace(data, queries=queries, judgments=kept), [note]


def themselves(data: Dataset, queries: Mapping[str, str]) -> frozenset[str]:
    """Queries that are documents of the collection under the same id; finding oneself is no success.

    Not by the id alone: many collections number their queries and their documents from 1.
    """
    grades = data.judgments.nested
    return frozenset(
        one.id
        for one in data.documents
        if (text := queries.get(one.id)) is not None
        and text.strip() in (one.text.strip(), one.whole.strip())
        and grades.get(one.id, {}).get(one.id, 0) <= 0
    )
