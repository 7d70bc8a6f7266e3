"""Selection of queries, and tags that divide them into strata."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset, Judgments, ScoresByQuery
from ragauge.core.text import one_line
from ragauge.output.numbers import pluralise


def restrict_queries(data: Dataset, max_queries: int | None) -> tuple[Dataset, list[str]]:
    """Restrict a dataset and its judgments to the first `max_queries` queries.

    Judgments of other queries are dropped, so that a query that was not run does not score zero. Returns notes too.
    """
    if max_queries is not None and max_queries < 1:
        raise BadInput(f"max_queries must be at least 1, got {max_queries}")
    queries = dict(list(data.queries.items())[:max_queries])
    grades = data.judgments.nested
    other_queries = [query for query in grades if query not in queries]
    if not queries:
        raise BadInput(f"the dataset {data.name} has no query")
    if not other_queries:
        return replace(data, queries=queries) if len(queries) < len(data.queries) else data, []
    judgments = data.judgments
    restricted = Judgments(
        {query: grades[query] for query in grades if query in queries},
        subtopics=judgments.subtopics
        and {query: rows for query, rows in judgments.subtopics.items() if query in queries},
        targets=judgments.targets,
        source=judgments.source,
    )
    return replace(data, queries=queries, judgments=restricted), [describe_skipped_queries(len(other_queries))]


def describe_skipped_queries(count: int) -> str:
    """Describe judged queries that are not run.

    >>> describe_skipped_queries(1)
    '1 judged query is not run and not scored'
    """
    return f"{pluralise(count, 'judged query is', 'judged queries are')} not run and not scored"


def describe_missing_documents(data: Dataset, rel: float) -> list[str]:
    """Describe relevant documents that the corpus lacks, as a note; empty without a corpus.

    No system can return them, and they count in the denominator of recall.
    """
    if not data.documents:
        return []
    relevant = {doc for docs in data.judgments.nested.values() for doc, grade in docs.items() if grade >= rel}
    missing = relevant.difference(document.id for document in data.documents)
    if not missing:
        return []
    example = next(doc for docs in data.judgments.nested.values() for doc in docs if doc in missing)
    documents, verb = pluralise(len(relevant), "relevant document"), "is" if len(missing) == 1 else "are"
    return [
        f"{len(missing):,} of {documents} {verb} not in the corpus and cannot be found, e.g. `{one_line(example, 80)}`"
    ]


def describe_self_documents(queries: Collection[str]) -> list[str]:
    """Describe queries that are also documents of the corpus, as a note; empty if there are none."""
    if not queries:
        return []
    counted = pluralise(len(queries), "query is also a document", "queries are also documents")
    return [f"{counted} of the corpus; each is left out of its own ranking"]


def self_documents(data: Dataset, queries: Mapping[str, str]) -> frozenset[str]:
    """Find queries that are also documents of the corpus, with the same id and text.

    Retrieving such a document is not a success, unless it is judged relevant. The id alone is not enough: many
    datasets number both queries and documents from 1.
    """
    grades = data.judgments.nested
    return frozenset(
        document.id
        for document in data.documents
        if (text := queries.get(document.id)) is not None
        and text.strip() in (document.text.strip(), document.whole.strip())
        and grades.get(document.id, {}).get(document.id, 0) <= 0
    )


WORD_PATTERN = re.compile(r"[a-z0-9_]+")
STOP_WORDS_TEXT = """
a an and any are as at be by can cannot do does for from get has have how i if in is it its me my not of on one or so
than that the their them then there this to up use used using want was we what when where which who why will with
without you your
"""
_STOP_WORDS = frozenset(STOP_WORDS_TEXT.split())
COMPLEXITY_LEVELS = ("simple", "medium", "complex")


def build_query_tags(
    queries: Mapping[str, str],
    grades: ScoresByQuery,
    documents: Mapping[str, Document],
    own_tags: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, str]]:
    """Build the tags of each query.

    These are the given ones, `answers`, `complexity` and `overlap`.
    """
    return {
        query: {
            **own_tags.get(query, {}),
            **tags_from_judgments(grades.get(query, {})),
            "overlap": classify_overlap(text, grades.get(query, {}), documents),
        }
        for query, text in queries.items()
    }


def classify_relevant_count(grades: Mapping[str, float]) -> str:
    """Classify the number of documents with a grade above 0.

    The classes are none, one, few (up to 3) and many.

    >>> classify_relevant_count({"a": 2, "b": 0}), classify_relevant_count({"a": 2, "b": 1, "c": 1})
    ('one', 'few')
    """
    relevant = sum(grade > 0 for grade in grades.values())
    return "none" if not relevant else "one" if relevant == 1 else "few" if relevant <= 3 else "many"


def tags_from_judgments(grades: Mapping[str, float], rel: float | None = None) -> dict[str, str]:
    """Derive the tags `answers` and `complexity` from judgments.

    A document is relevant if its grade is above 0 and, if `rel` is given, at least `rel`.
    """
    relevant = {doc: grade for doc, grade in grades.items() if rel is None or grade >= rel}
    return {"answers": classify_relevant_count(relevant), "complexity": classify_complexity(relevant)}


def classify_complexity(grades: Mapping[str, float]) -> str:
    """Classify a query by its number of relevant documents.

    The classes are simple (up to 3), medium (up to 6) and complex.

    >>> (classify_complexity({"a": 2, "b": 0}), classify_complexity(dict.fromkeys("abcd", 1)),
    ...  classify_complexity(dict.fromkeys("abcdefg", 1)))
    ('simple', 'medium', 'complex')
    """
    relevant = sum(grade > 0 for grade in grades.values())
    return COMPLEXITY_LEVELS[(relevant > 3) + (relevant > 6)]


def classify_overlap(text: str, grades: Mapping[str, float], documents: Mapping[str, Document]) -> str:
    """Classify the share of query words found in a best-graded document.

    The classes are none, some (up to 0.5) and most.

    >>> classify_overlap("sort a list", {"d": 1}, {"d": Document("d", "Sort the list in place.")})
    'most'
    """
    query_words = content_words(text)
    best = max(grades.values(), default=0)
    document_words = [
        content_words(documents[doc].text) for doc, grade in grades.items() if grade == best and doc in documents
    ]
    if not query_words or not document_words:
        return "none"
    share = max(len(query_words & words_of_document) / len(query_words) for words_of_document in document_words)
    return "none" if share == 0 else "some" if share <= 0.5 else "most"


def content_words(text: str) -> set[str]:
    """Return the words of a text without stop words, with a final s removed.

    >>> sorted(content_words("How do I sort the lists?"))
    ['list', 'sort']
    """
    return {word.removesuffix("s") for word in WORD_PATTERN.findall(text.lower()) if word not in _STOP_WORDS} - {""}


TAG_MEANINGS = {
    "answers": "how many documents are relevant",
    "complexity": "by number of relevant documents",
    "overlap": "words shared with the best answer",
}


def explain_tag(tag: str) -> str:
    """Return a tag with its meaning, or the tag alone if it is user-defined.

    >>> explain_tag("answers"), explain_tag("topic")
    ('answers: how many documents are relevant', 'topic')
    """
    return f"{tag}: {TAG_MEANINGS[tag]}" if tag in TAG_MEANINGS else tag
