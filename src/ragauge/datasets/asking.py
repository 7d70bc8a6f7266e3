"""Select the queries of a dataset and describe them by tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ragauge.errors import BadInput
from ragauge.records import Dataset, Judgments


def asked(data: Dataset, limit: int | None) -> tuple[Dataset, list[str]]:
    """Restrict a dataset and its judgments to the first `limit` queries.

    Judgments of other queries are dropped, so that a query that was not run does not score zero. Returns notes too.
    """
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
    """Find queries that are also documents of the corpus, with the same id and text.

    Retrieving such a document is not a success, unless it is judged relevant. The id alone is not enough: many
    datasets number both queries and documents from 1.
    """
    grades = data.judgments.nested
    return frozenset(
        one.id
        for one in data.documents
        if (text := queries.get(one.id)) is not None
        and text.strip() in (one.text.strip(), one.whole.strip())
        and grades.get(one.id, {}).get(one.id, 0) <= 0
    )
