"""Random judgments and runs."""

from __future__ import annotations

from hypothesis import strategies as st


def names(prefix: str, max_number: int):
    return st.integers(0, max_number).map(lambda i: f"{prefix}{i}")


def judgments(low: int = 0, high: int = 3, docs: int = 12):
    """Judgments of up to four queries, each with at least one grade of 0 or more."""
    grades = st.dictionaries(names("d", docs), st.integers(low, high), min_size=1, max_size=docs)
    return st.dictionaries(names("q", 3), grades.filter(lambda g: max(g.values()) >= 0), min_size=1, max_size=4)


def runs(docs: int = 12, *, tied: bool | None = None):
    """Runs of up to four queries; scores tie often if `tied`, never if it is False, and both kinds occur if None."""
    tied_scores = st.integers(0, 3).map(float)
    distinct_scores = st.integers(-(10**6), 10**6).map(lambda i: i / 1024)
    score = tied_scores if tied else distinct_scores if tied is not None else st.one_of(tied_scores, distinct_scores)
    lists = st.dictionaries(names("d", docs), score, min_size=1, max_size=docs)
    if tied is False:
        lists = lists.filter(lambda d: len(set(d.values())) == len(d))
    return st.dictionaries(names("q", 3), lists, min_size=1, max_size=4)
