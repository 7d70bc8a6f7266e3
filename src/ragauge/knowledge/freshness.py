"""Freshness: what of a ranking is replaced by something newer, and what contradicts itself. Pure counting.

A document is stale if the versions say what supersedes it, or if one that is not superseded stands for its key with a
strictly later time; of equal times neither is stale. What the versions say outright decides before times: a document
stands for the keys of all that it supersedes, through however many others, and its time is the latest of its own and of
theirs. So one that came back in the place of a later version, which was withdrawn, is as new as that one was.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from ragauge.ages import Conflict, QueryFreshness, StaleHit, Version

NOTHING_RETURNED = "it returned nothing"
NOT_THERE = "the run does not have the query"
SUPERSEDED, OLDER = "superseded", "older"
BEFORE, AFTER = 30, 70
"""How many characters an excerpt has before and after the place where texts part."""


class Newer(NamedTuple):
    """What replaces a document."""

    doc: str
    why: str


class Ages:
    """Versions, looked up by document and by key; made in one pass."""

    def __init__(self, versions: Sequence[Version], as_of: float | None = None) -> None:
        """With `as_of` nothing that began to hold later replaces anything."""
        self.versions = {one.doc: one for one in versions}
        self.known = {*self.versions, *(one.superseded_by for one in versions if one.superseded_by is not None)}
        """Every document that the versions speak of: what replaces another needs no row of its own."""
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
        """Whether a document holds already; one whose time is not known does."""
        return self._holds(self.versions.get(doc))

    def _said(self, doc: str) -> str | None:
        """What the versions say supersedes a document, if that holds already."""
        found = self.versions.get(doc)
        by = None if found is None else found.superseded_by
        return by if by is not None and self._holds(self.versions.get(by)) else None

    def _end(self, doc: str) -> str:
        """The end of the chain of what supersedes a document outright; itself where nothing does."""
        path = [doc]
        while path[-1] not in self._ends and (after := self._said(path[-1])) is not None:
            path.append(after)
        end = self._ends.get(path[-1], path[-1])
        self._ends.update(dict.fromkeys(path, end))
        return end

    def _latest(self, doc: str) -> str | None:
        """What stands for the key of a document with a strictly later time; only a time of its own can be too early."""
        mine = self.versions.get(doc)
        if mine is None or mine.key is None or mine.effective is None:
            return None
        found = self._newest.get(mine.key)
        return found if found is not None and self._times[found] > self._times.get(doc, mine.effective) else None

    def newer(self, doc: str) -> Newer | None:
        """The document that replaces this one, through however many others, and is not stale; None for a current one.

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
        while (after := self._latest(here)) is not None:  # each is later than the one before: there is no circle
            why, here = why or OLDER, after
        return Newer(here, why) if why else None

    def groups(self, docs: Sequence[str]) -> dict[str, list[str]]:
        """The keys that several of some documents share, each with its documents in their order."""
        found: dict[str, list[str]] = {}
        for doc in docs:
            version = self.versions.get(doc)
            if version is not None and version.key is not None:
                found.setdefault(version.key, []).append(doc)
        return {key: mine for key, mine in found.items() if len(mine) > 1}


def look(
    query: str, docs: Sequence[str], ages: Ages, text_of: Callable[[str], str | None] = lambda _: None
) -> QueryFreshness:
    """What is stale and what conflicts among the first documents of a query; `text_of` gives None for an unknown one.

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
    r"""A text as it is compared: composed characters, single blanks; case, marks and figures count.

    >>> words(" VAT:\n 19 %") == words("VAT: 19 %"), words("vat: 19 %") == words("VAT: 19 %")
    (True, False)
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def parting(texts: Sequence[str]) -> tuple[str, ...]:
    """From each text what stands around the first place where they are not all the same.

    >>> parting(["The rate is 19 percent", "The rate is 21 percent"])
    ('The rate is 19 percent', 'The rate is 21 percent')
    """
    least, most = min(texts), max(texts)  # all others lie between these two, and share what they share
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
    """Every query that returned something, and why the others have nothing to say."""
    queries = [look(query, docs, ages, text_of) for query, docs in rankings.items() if docs]
    silent = {query: NOTHING_RETURNED for query, docs in rankings.items() if not docs}
    return queries, silent | {query: NOT_THERE for query in asked if query not in rankings}
