"""Tags that divide queries into strata: number of relevant documents, complexity, word overlap."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ragauge.records import Document, Nested

WORD = re.compile(r"[a-z0-9_]+")
COMMON = """
a an and any are as at be by can cannot do does for from get has have how i if in is it its me my not of on one or so
than that the their them then there this to up use used using want was we what when where which who why will with
without you your
"""
_COMMON = frozenset(COMMON.split())
COMPLEXITY = ("simple", "medium", "complex")


def strata(
    queries: Mapping[str, str],
    grades: Nested,
    documents: Mapping[str, Document],
    given: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, str]]:
    """Build the tags of each query.

    These are the given ones, `answers`, `complexity` and `overlap`.
    """
    return {
        query: {
            **given.get(query, {}),
            **by_answers(grades.get(query, {})),
            "overlap": overlap(text, grades.get(query, {}), documents),
        }
        for query, text in queries.items()
    }


def number_of_answers(grades: Mapping[str, float]) -> str:
    """Classify the number of documents with a grade above 0.

    The classes are none, one, few (up to 3) and many.

    >>> number_of_answers({"a": 2, "b": 0}), number_of_answers({"a": 2, "b": 1, "c": 1})
    ('one', 'few')
    """
    relevant = sum(grade > 0 for grade in grades.values())
    return "none" if not relevant else "one" if relevant == 1 else "few" if relevant <= 3 else "many"


def by_answers(grades: Mapping[str, float], rel: float | None = None) -> dict[str, str]:
    """Derive the tags `answers` and `complexity` from judgments.

    A document is relevant if its grade is above 0 and, if `rel` is given, at least `rel`.
    """
    relevant = {doc: grade for doc, grade in grades.items() if rel is None or grade >= rel}
    return {"answers": number_of_answers(relevant), "complexity": complexity(relevant)}


def complexity(grades: Mapping[str, float]) -> str:
    """Classify a query by its number of relevant documents.

    The classes are simple (up to 3), medium (up to 6) and complex.

    >>> complexity({"a": 2, "b": 0}), complexity(dict.fromkeys("abcd", 1)), complexity(dict.fromkeys("abcdefg", 1))
    ('simple', 'medium', 'complex')
    """
    relevant = sum(grade > 0 for grade in grades.values())
    return COMPLEXITY[(relevant > 3) + (relevant > 6)]


def overlap(text: str, grades: Mapping[str, float], documents: Mapping[str, Document]) -> str:
    """Classify the share of query words found in a best-graded document.

    The classes are none, some (up to 0.5) and most.

    >>> overlap("sort a list", {"d": 1}, {"d": Document("d", "Sort the list in place.")})
    'most'
    """
    asked = words(text)
    best = max(grades.values(), default=0)
    found = [words(documents[doc].text) for doc, grade in grades.items() if grade == best and doc in documents]
    if not asked or not found:
        return "none"
    share = max(len(asked & mine) / len(asked) for mine in found)
    return "none" if share == 0 else "some" if share <= 0.5 else "most"


def words(text: str) -> set[str]:
    """Return the words of a text without stop words, with a final s removed.

    >>> sorted(words("How do I sort the lists?"))
    ['list', 'sort']
    """
    return {word.removesuffix("s") for word in WORD.findall(text.lower()) if word not in _COMMON} - {""}
