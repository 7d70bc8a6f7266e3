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

from ragauge.knowledge.freshness.results import DocumentVersion, QueryFreshness, StaleHit, VersionConflict

NO_RESULTS_REASON = "no results"
MISSING_QUERY_REASON = "the run does not have the query"
SUPERSEDED, OLDER = "superseded", "older"
EXCERPT_CHARS_BEFORE, EXCERPT_CHARS_AFTER = 30, 70
"""Number of characters of an excerpt before and after the first difference."""


class NewerDocument(NamedTuple):
    """Document that replaces another, and the reason."""

    doc: str
    reason: str


class VersionIndex:
    """Versions, indexed by document and by key."""

    def __init__(self, versions: Sequence[DocumentVersion], as_of: float | None = None) -> None:
        """Index the versions.

        With `as_of`, versions that take effect later replace nothing.
        """
        self.versions = {version.doc: version for version in versions}
        self.known = {
            *self.versions,
            *(version.superseded_by for version in versions if version.superseded_by is not None),
        }
        """Ids of all documents in the versions. A successor needs no row of its own."""
        self._as_of = as_of
        self._ends: dict[str, str] = {}
        self._newer: dict[str, NewerDocument | None] = {}
        self._times: dict[str, float] = {}
        ends_by_key: dict[str, set[str]] = {}
        for version in versions:
            if not self._is_effective(version):
                continue
            end = self._last_successor(version.doc)
            if version.effective is not None:
                self._times[end] = max(self._times.get(end, version.effective), version.effective)
            if version.key is not None:
                ends_by_key.setdefault(version.key, set()).add(end)
        self._newest: dict[str, str] = {}
        for key, ends in ends_by_key.items():
            timed = [doc for doc in ends if doc in self._times]
            if timed:
                self._newest[key] = min(timed, key=lambda doc: (-self._times[doc], doc))

    def _is_effective(self, version: DocumentVersion | None) -> bool:
        if self._as_of is None or version is None or version.effective is None:
            return True
        return version.effective <= self._as_of

    def holds(self, doc: str) -> bool:
        """Return whether a document is in effect; one without a time is."""
        return self._is_effective(self.versions.get(doc))

    def _stated_successor(self, doc: str) -> str | None:
        """Return the successor that the versions name, if it is in effect."""
        version = self.versions.get(doc)
        successor = None if version is None else version.superseded_by
        return successor if successor is not None and self._is_effective(self.versions.get(successor)) else None

    def _last_successor(self, doc: str) -> str:
        """Return the end of the chain of stated successors.

        The document itself if it has none.
        """
        path = [doc]
        while path[-1] not in self._ends and (after := self._stated_successor(path[-1])) is not None:
            path.append(after)
        end = self._ends.get(path[-1], path[-1])
        self._ends.update(dict.fromkeys(path, end))
        return end

    def _later_version(self, doc: str) -> str | None:
        """Return the document of the same key with a strictly later time.

        None if there is none or if this document has no time.
        """
        version = self.versions.get(doc)
        if version is None or version.key is None or version.effective is None:
            return None
        newest = self._newest.get(version.key)
        return newest if newest is not None and self._times[newest] > self._times.get(doc, version.effective) else None

    def newer(self, doc: str) -> NewerDocument | None:
        """Return the current document that replaces this one, directly or not.

        None if it is current.

        >>> ages = VersionIndex([DocumentVersion("a", superseded_by="b"), DocumentVersion("b", "vat", 1),
        ...     DocumentVersion("c", "vat", 2)])
        >>> ages.newer("a"), ages.newer("b"), ages.newer("c")
        (NewerDocument(doc='c', reason='superseded'), NewerDocument(doc='c', reason='older'), None)
        >>> back = VersionIndex([DocumentVersion("v1", "vat", 1), DocumentVersion("v2", "vat", 2),
        ...     DocumentVersion("v3", "vat", 3, "v1")])
        >>> back.newer("v1"), back.newer("v2"), back.newer("v3")
        (None, NewerDocument(doc='v1', reason='older'), NewerDocument(doc='v1', reason='superseded'))
        """
        if doc not in self._newer:
            self._newer[doc] = self._find_newer(doc)
        return self._newer[doc]

    def _find_newer(self, doc: str) -> NewerDocument | None:
        newest = self._last_successor(doc)
        reason = "" if newest == doc else SUPERSEDED
        while (later := self._later_version(newest)) is not None:  # times strictly increase, so there is no cycle
            reason, newest = reason or OLDER, later
        return NewerDocument(newest, reason) if reason else None

    def groups(self, docs: Sequence[str]) -> dict[str, list[str]]:
        """Group documents by key, in their order; only keys shared by two or more."""
        groups: dict[str, list[str]] = {}
        for doc in docs:
            version = self.versions.get(doc)
            if version is not None and version.key is not None:
                groups.setdefault(version.key, []).append(doc)
        return {key: members for key, members in groups.items() if len(members) > 1}


def measure_query_freshness(
    query: str, docs: Sequence[str], ages: VersionIndex, text_of: Callable[[str], str | None] = lambda _: None
) -> QueryFreshness:
    """Find the stale hits and version conflicts among the top documents of a query.

    `text_of` returns None for an unknown text.

    >>> ages = VersionIndex([DocumentVersion("a", "vat", 1), DocumentVersion("b", "vat", 2)])
    >>> found = measure_query_freshness("q", ["a", "b", "x"], ages, {"a": "It is 19%.", "b": "It is 21%."}.get)
    >>> found.stale, found.versioned
    ([StaleHit(doc='a', rank=1, newer='b', newer_rank=2, why='older')], 2)
    >>> found.conflicts
    [VersionConflict(key='vat', docs=('a', 'b'), excerpts=('It is 19%.', 'It is 21%.'))]
    """
    ranks = {doc: rank for rank, doc in enumerate(docs, start=1)}
    stale = [
        StaleHit(doc, rank, newer.doc, ranks.get(newer.doc), newer.reason)
        for doc, rank in ranks.items()
        if (newer := ages.newer(doc)) is not None
    ]
    conflicts: list[VersionConflict] = []
    copies: list[VersionConflict] = []
    for key, group in ages.groups(docs).items():
        texts = [text_of(doc) for doc in group]
        plain = [None if text is None else normalise_text(text) for text in texts]
        same = None not in plain and len(set(plain)) == 1
        excerpts = () if same or None in plain else differing_excerpts([text or "" for text in plain])
        (copies if same else conflicts).append(VersionConflict(key, tuple(group), excerpts))
    versioned = sum(doc in ages.known for doc in docs)
    return QueryFreshness(query, len(docs), versioned, stale, conflicts, copies)


def normalise_text(text: str) -> str:
    r"""Normalise a text for comparison: NFC and single spaces.

    Case and punctuation count.

    >>> normalise_text(" VAT:\n 19 %") == normalise_text("VAT: 19 %")
    True
    >>> normalise_text("vat: 19 %") == normalise_text("VAT: 19 %")
    False
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def differing_excerpts(texts: Sequence[str]) -> tuple[str, ...]:
    """Return an excerpt of each text around the first position where they differ.

    >>> differing_excerpts(["The rate is 19 percent", "The rate is 21 percent"])
    ('The rate is 19 percent', 'The rate is 21 percent')
    """
    first, last = min(texts), max(texts)  # the common prefix of the smallest and the largest text is common to all
    position = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    start = max(0, position - EXCERPT_CHARS_BEFORE)
    blank = first.find(" ", start, position)
    start = blank + 1 if start and blank >= 0 else start
    return tuple(
        ("…" if start else "")
        + text[start : position + EXCERPT_CHARS_AFTER]
        + ("…" if len(text) > position + EXCERPT_CHARS_AFTER else "")
        for text in texts
    )


def count_stale(
    rankings: Mapping[str, Sequence[str]],
    expected: Sequence[str],
    ages: VersionIndex,
    text_of: Callable[[str], str | None] = lambda _: None,
) -> tuple[list[QueryFreshness], dict[str, str]]:
    """Measure the freshness of every query with results.

    Return also the reasons for the others.
    """
    queries = [measure_query_freshness(query, docs, ages, text_of) for query, docs in rankings.items() if docs]
    unscored = {query: NO_RESULTS_REASON for query, docs in rankings.items() if not docs}
    return queries, unscored | {query: MISSING_QUERY_REASON for query in expected if query not in rankings}
