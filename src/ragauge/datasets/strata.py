"""Tags that split queries into strata: how many answers there are, and how much of the wording they share."""

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
    """The given tags of each query, and beside them `answers`, `complexity` and `overlap`."""
    return {
        query: {
            **given.get(query, {}),
            **by_answers(grades.get(query, {})),
            "overlap": overlap(text, grades.get(query, {}), documents),
        }
        for query, text in queries.items()
    }


def number_of_answers(grades: Mapping[str, float]) -> str:
    """How many documents are relevant at all.

    >>> number_of_answers({"a": 2, "b": 0}), number_of_answers({"a": 2, "b": 1, "c": 1})
    ('one', 'few')
    """
    relevant = sum(grade > 0 for grade in grades.values())
    return "none" if not relevant else "one" if relevant == 1 else "few" if relevant <= 3 else "many"


def by_answers(grades: Mapping[str, float], rel: float | None = None) -> dict[str, str]:
    """The tags that follow from the judgments alone: `answers` (one, few, many) and `complexity`.

    Relevant is a grade of at least `rel`; any above 0 where that is not given.
    """
    relevant = {doc: grade for doc, grade in grades.items() if rel is None or grade >= rel}
    return {"answers": number_of_answers(relevant), "complexity": complexity(relevant)}


def complexity(grades: Mapping[str, float]) -> str:
    """How much there is to find: simple up to three relevant documents, medium up to six, complex beyond.

    >>> complexity({"a": 2, "b": 0}), complexity(dict.fromkeys("abcd", 1)), complexity(dict.fromkeys("abcdefg", 1))
    ('simple', 'medium', 'complex')
    """
    relevant = sum(grade > 0 for grade in grades.values())
    return COMPLEXITY[(relevant > 3) + (relevant > 6)]


def overlap(text: str, grades: Mapping[str, float], documents: Mapping[str, Document]) -> str:
    """How many of the question's own words the best answers have: none, some (up to a half), most.

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
    """The words of a text that carry meaning, without a plural's s.

    >>> sorted(words("How do I sort the lists?"))
    ['list', 'sort']
    """
    return {word.removesuffix("s") for word in WORD.findall(text.lower()) if word not in _COMMON} - {""}
