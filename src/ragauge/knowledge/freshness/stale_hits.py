"""Stale hits and version conflicts in rankings.

A document is stale if the versions name a successor, or if a document that is not superseded has its key and a strictly
later time. With equal times neither is stale. Stated successors take precedence over times. A document inherits the
keys of all documents that it supersedes, directly or indirectly, and the latest of their times and its own. A version
that is restored after a later one was withdrawn is therefore as new as the withdrawn one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from ragauge.knowledge.freshness.results import Conflict, QueryFreshness, StaleHit, Version

NOTHING_RETURNED = "it returned nothing"
NOT_THERE = "the run does not have the query"
SUPERSEDED, OLDER = "superseded", "older"
BEFORE, AFTER = 30, 70
"""Number of characters of an excerpt before and after the first difference."""


class Newer(NamedTuple):
    """Document that replaces another, and the reason."""

    doc: str
    why: str


class Ages:
    """Versions, indexed by document and by key."""

    def __init__(self, versions: Sequence[Version], as_of: float | None = None) -> None:
        """Index the versions.

        With `as_of`, versions that take effect later replace nothing.
        """
        self.versions = {one.doc: one for one in versions}
        self.known = {*self.versions, *(one.superseded_by for one in versions if one.superseded_by is not None)}
        """Ids of all documents in the versions. A successor needs no row of its own."""
        self._as_of = as_of
        self._ends: dict[str, str] = {}
        self._newer: dict[str, Newer | None] = {}
        self._times: dict[str, float] = {}
        stands: dict[str, set[str]] = {}
        for one in versions:
            if not self._holds(one):
                continue
            end = self._end(one.doc)
            if one.effective is not None:
                self._times[end] = max(self._times.get(end, one.effective), one.effective)
            if one.key is not None:
                stands.setdefault(one.key, set()).add(end)
        self._newest: dict[str, str] = {}
        for key, ends in stands.items():
            timed = [doc for doc in ends if doc in self._times]
            if timed:
                self._newest[key] = min(timed, key=lambda doc: (-self._times[doc], doc))

    def _holds(self, one: Version | None) -> bool:
        if self._as_of is None or one is None or one.effective is None:
            return True
        return one.effective <= self._as_of

    def holds(self, doc: str) -> bool:
        """Return whether a document is in effect; one without a time is."""
        return self._holds(self.versions.get(doc))

    def _said(self, doc: str) -> str | None:
        """Return the successor that the versions name, if it is in effect."""
        found = self.versions.get(doc)
        by = None if found is None else found.superseded_by
        return by if by is not None and self._holds(self.versions.get(by)) else None

    def _end(self, doc: str) -> str:
        """Return the end of the chain of stated successors.

        The document itself if it has none.
        """
        path = [doc]
        while path[-1] not in self._ends and (after := self._said(path[-1])) is not None:
            path.append(after)
        end = self._ends.get(path[-1], path[-1])
        self._ends.update(dict.fromkeys(path, end))
        return end

    def _latest(self, doc: str) -> str | None:
        """Return the document of the same key with a strictly later time.

        None if there is none or if this document has no time.
        """
        mine = self.versions.get(doc)
        if mine is None or mine.key is None or mine.effective is None:
            return None
        found = self._newest.get(mine.key)
        return found if found is not None and self._times[found] > self._times.get(doc, mine.effective) else None

    def newer(self, doc: str) -> Newer | None:
        """Return the current document that replaces this one, directly or not.

        None if it is current.

        >>> ages = Ages([Version("a", superseded_by="b"), Version("b", "vat", 1), Version("c", "vat", 2)])
        >>> ages.newer("a"), ages.newer("b"), ages.newer("c")
        (Newer(doc='c', why='superseded'), Newer(doc='c', why='older'), None)
        >>> back = Ages([Version("v1", "vat", 1), Version("v2", "vat", 2), Version("v3", "vat", 3, "v1")])
        >>> back.newer("v1"), back.newer("v2"), back.newer("v3")
        (None, Newer(doc='v1', why='older'), Newer(doc='v1', why='superseded'))
        """
        if doc not in self._newer:
            self._newer[doc] = self._walked(doc)
        return self._newer[doc]

    def _walked(self, doc: str) -> Newer | None:
        here = self._end(doc)
        why = "" if here == doc else SUPERSEDED
        while (after := self._latest(here)) is not None:  # times strictly increase, so there is no cycle
            why, here = why or OLDER, after
        return Newer(here, why) if why else None

    def groups(self, docs: Sequence[str]) -> dict[str, list[str]]:
        """Group documents by key, in their order; only keys shared by two or more."""
        found: dict[str, list[str]] = {}
        for doc in docs:
            version = self.versions.get(doc)
            if version is not None and version.key is not None:
                found.setdefault(version.key, []).append(doc)
        return {key: mine for key, mine in found.items() if len(mine) > 1}


def look(
    query: str, docs: Sequence[str], ages: Ages, text_of: Callable[[str], str | None] = lambda _: None
) -> QueryFreshness:
    """Find the stale hits and version conflicts among the top documents of a query.

    `text_of` returns None for an unknown text.

    >>> ages = Ages([Version("a", "vat", 1), Version("b", "vat", 2)])
    >>> found = look("q", ["a", "b", "x"], ages, {"a": "It is 19%.", "b": "It is 21%."}.get)
    >>> found.stale, found.versioned
    ([StaleHit(doc='a', rank=1, newer='b', newer_rank=2, why='older')], 2)
    >>> found.conflicts
    [Conflict(key='vat', docs=('a', 'b'), excerpts=('It is 19%.', 'It is 21%.'))]
    """
    ranks = {doc: rank for rank, doc in enumerate(docs, start=1)}
    stale = [
        StaleHit(doc, rank, newer.doc, ranks.get(newer.doc), newer.why)
        for doc, rank in ranks.items()
        if (newer := ages.newer(doc)) is not None
    ]
    conflicts: list[Conflict] = []
    copies: list[Conflict] = []
    for key, group in ages.groups(docs).items():
        texts = [text_of(doc) for doc in group]
        plain = [None if text is None else words(text) for text in texts]
        same = None not in plain and len(set(plain)) == 1
        excerpts = () if same or None in plain else parting([text or "" for text in plain])
        (copies if same else conflicts).append(Conflict(key, tuple(group), excerpts))
    versioned = sum(doc in ages.known for doc in docs)
    return QueryFreshness(query, len(docs), versioned, stale, conflicts, copies)


def words(text: str) -> str:
    r"""Normalise a text for comparison: NFC and single spaces.

    Case and punctuation count.

    >>> words(" VAT:\n 19 %") == words("VAT: 19 %"), words("vat: 19 %") == words("VAT: 19 %")
    (True, False)
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def parting(texts: Sequence[str]) -> tuple[str, ...]:
    """Return an excerpt of each text around the first position where they differ.

    >>> parting(["The rate is 19 percent", "The rate is 21 percent"])
    ('The rate is 19 percent', 'The rate is 21 percent')
    """
    least, most = min(texts), max(texts)  # the common prefix of the smallest and the largest text is common to all
    place = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(least, most, strict=False)))
    start = max(0, place - BEFORE)
    blank = least.find(" ", start, place)
    start = blank + 1 if start and blank >= 0 else start
    return tuple(
        ("…" if start else "") + text[start : place + AFTER] + ("…" if len(text) > place + AFTER else "")
        for text in texts
    )


def looked_over(
    rankings: Mapping[str, Sequence[str]],
    asked: Sequence[str],
    ages: Ages,
    text_of: Callable[[str], str | None] = lambda _: None,
) -> tuple[list[QueryFreshness], dict[str, str]]:
    """Measure the freshness of every query with results.

    Return also the reasons for the others.
    """
    queries = [look(query, docs, ages, text_of) for query, docs in rankings.items() if docs]
    silent = {query: NOTHING_RETURNED for query, docs in rankings.items() if not docs}
    return queries, silent | {query: NOT_THERE for query in asked if query not in rankings}
