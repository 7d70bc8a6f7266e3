"""What links documents: links that they carry, nearness, and values that they share."""

from __future__ import annotations

import difflib
import inspect
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ragauge import graphs
from ragauge.errors import BadInput
from ragauge.records import Document, Ints
from ragauge.seams import Vectors
from ragauge.systems.specs import Spec
from ragauge.systems.stores.intake import whole
from ragauge.systems.stores.nearest import nearest

UNKNOWN = "unknown ids"
"""Why a link is skipped that leads to no document."""
COMPARED = 10_000
"""Up to so many ids are looked through for one that is much like an unknown one."""


class Links:
    """Links that documents carry in their metadata: a list of ids, or lists by relation, `{"uses": ["a", "b"]}`.

    `kinds` are the relations that count, all where nothing is said; several are joined by `+`. Ids that no document
    has are skipped. Every link weighs `weight`. With `rewired` the ends of all links change places at random, the same
    way each time: every document has as many links as before, but for the few that would join it to itself or twice to
    another, and they lead anywhere. What a walk still gains then is owed to how many links there are, not to where
    they lead.
    """

    def __init__(
        self,
        *,
        field: str = "links",
        kinds: str | Sequence[str] | None = None,
        weight: float = 1.0,
        rewired: bool = False,
    ) -> None:
        some: list[Any] = list(kinds) if isinstance(kinds, list | tuple) else [kinds]
        if kinds is not None and not (some and all(isinstance(one, str) for one in some)):
            raise BadInput(f"links: kinds is {kinds!r}, not names of relations", hint="links(kinds=uses+mitigates)")
        self._field = field
        self._kinds = None if kinds is None else frozenset(some)
        self._weight = heaviness("links", weight)
        self._rewired = rewired
        self.name = described("links", type(self), field=field, kinds=kinds, weight=weight, rewired=rewired)

    def link(self, documents: Sequence[Document], vectors: Vectors) -> graphs.Links:  # noqa: ARG002 - not by nearness
        """A link for each id that is known."""
        rows = {document.id: row for row, document in enumerate(documents)}
        seen: set[str] = set()
        ones, others, unknown = [], [], 0
        for row, document in enumerate(documents):
            for relation, names in self._relations(document):
                seen.add(relation)
                if self._kinds is None or relation in self._kinds:
                    known = [rows[name] for name in names if name in rows]
                    unknown += len(names) - len(known)
                    others += known
                    ones += [row] * len(known)
        if self.name != "links" and not self._carried(documents):  # without links, a corpus is not told wrong
            none = f"no document has `{self._field}` in its metadata, so that `{self.name}` links nothing"
            raise BadInput(none, hint=_instead(documents) or None)
        if missing := sorted((self._kinds or frozenset()) - seen):
            raise BadInput(
                f"no document has links of the kind `{missing[0]}`",
                hint=f"there are {', '.join(sorted(filter(None, seen)))}" if any(seen) else "theirs have no kinds",
            )
        if self._rewired:
            others = np.random.default_rng(0).permutation(np.array(others, np.int64)).tolist()
        return _links(ones, others, np.full(len(ones), self._weight), {UNKNOWN: unknown})

    def doubts(self, documents: Sequence[Document]) -> list[str]:
        """What may be wrong: that no document has any, or that links lead to no document; a sentence each."""
        ids = {document.id: None for document in documents}
        if not self._carried(documents):
            there = _instead(documents)
            return [f"{self.name}: no document has `{self._field}` in its metadata{there and f' ({there})'}."]
        named = [
            name
            for document in documents
            for relation, names in self._relations(document)
            if self._kinds is None or relation in self._kinds
            for name in names
        ]
        unknown = [name for name in named if name not in ids]
        if not unknown:
            return []
        name, meant = _meant(unknown, ids)
        asked = f": did you mean {meant}?" if meant else ""
        return [f"{self.name}: {len(unknown):,} of {len(named):,} links name no document ({name}{asked})."]

    def _carried(self, documents: Sequence[Document]) -> bool:
        return any(document.metadata.get(self._field) is not None for document in documents)

    def _relations(self, document: Document) -> Iterator[tuple[str, Sequence[str]]]:
        """Relations with their ids; one without a name where there is only a list."""
        held = document.metadata.get(self._field)
        if held is None:
            return
        for relation, names in (held if isinstance(held, Mapping) else {"": held}).items():
            listed = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
            if not listed or not isinstance(relation, str):
                raise BadInput(
                    f"the document `{document.id}` has `{self._field}`, but no list of ids and no lists by kind",
                    hint='links look like ["a", "b"] or {"uses": ["a"], "part of": ["b"]}',
                )
            yield relation, names


class Nearest:
    """Every document with the `neighbours` most like it, of equal ones those that come first; a link weighs the cosine.

    Only cosines above `least` link, so that a document without a direction stays alone. With `mutual` each of two must
    be among the nearest of the other, which keeps those that are near to everything from becoming hubs. The cosine is
    multiplied by `weight`.
    """

    def __init__(self, *, neighbours: int = 8, mutual: bool = False, least: float = 0.0, weight: float = 1.0) -> None:
        self._neighbours = whole("knn: neighbours", neighbours)
        if not 0 <= least <= 1:
            raise BadInput(f"knn: least is {least}, not a cosine from 0 to 1")
        self._mutual, self._least = mutual, least
        self._weight = heaviness("knn", weight)
        told: dict[str, Any] = {"neighbours": neighbours, "mutual": mutual, "least": least, "weight": weight}
        self.name = described("knn", type(self), always=("neighbours",), **told)

    def link(self, documents: Sequence[Document], vectors: Vectors) -> graphs.Links:
        """A link from each document to its nearest."""
        some = np.flatnonzero(np.any(vectors, axis=1))
        # Each is its own nearest; among many twins maybe not among the first, and then the last is one too many.
        found, distances = nearest(vectors, vectors[some], self._neighbours + 1, "cosine", allowed=some)
        own = found == some[:, None]
        if found.shape[1]:
            own[~own.any(axis=1), -1] = True
        cosines = 1.0 - distances
        kept = ~own & (cosines > self._least)
        ones, others, weights = np.broadcast_to(some[:, None], found.shape)[kept], found[kept], cosines[kept]
        if self._mutual:
            n = len(documents)
            both = np.isin(ones * n + others, others * n + ones)
            ones, others, weights = ones[both], others[both], weights[both]
        return graphs.Links(ones, others, weights * self._weight)


class Field:
    """Documents that share a value of a field of their metadata; each value of a list counts.

    A value that more than `most` documents have links none of them: that many would be linked to each other, and say
    little by it. Every link weighs `weight`.
    """

    def __init__(self, *, field: str, most: int = 50, weight: float = 1.0) -> None:
        if not isinstance(field, str):
            raise BadInput(f"field: field is {field!r}, not the name of a field")
        self._field = field
        self._most = whole("field: most", most, 2)
        self._weight = heaviness("field", weight)
        self.name = described("field", type(self), field=field, most=most, weight=weight)

    def link(self, documents: Sequence[Document], vectors: Vectors) -> graphs.Links:  # noqa: ARG002 - not by nearness
        """A link for every two documents with a value in common."""
        sharing: dict[Any, list[int]] = {}
        for row, document in enumerate(documents):
            for value in dict.fromkeys(self._values(document)):
                sharing.setdefault(value, []).append(row)
        if documents and not sharing:
            raise BadInput(f"no document has a value of `{self._field}` in its metadata")
        groups = [rows for rows in sharing.values() if len(rows) > 1]
        few = [rows for rows in groups if len(rows) <= self._most]
        ones, others, _ = pairs(few)
        common = {f"values that more than {self._most} documents have": len(groups) - len(few)}
        return _links(ones, others, np.full(len(ones), self._weight), common)

    def _values(self, document: Document) -> Iterator[tuple[bool, Any]]:
        """The values of a document; true is none of the numbers, though Python takes it for 1."""
        held = document.metadata.get(self._field)
        for value in held if isinstance(held, list | tuple | set | frozenset) else [held]:
            if value is None or value == "" or value != value:  # noqa: PLR0124 - NaN is no value
                continue
            if not isinstance(value, str | int | float):
                raise BadInput(
                    f"the document `{document.id}` has a `{self._field}` of the kind {type(value).__name__}",
                    hint="values that documents can share are texts, numbers, true and false, and lists of these",
                )
            yield isinstance(value, bool), value


def pairs(groups: Sequence[Sequence[int]]) -> tuple[Ints, Ints, Ints]:
    """Every two of each group, and which group it is.

    >>> [part.tolist() for part in pairs([[4, 7, 9], [2, 3]])]
    [[4, 4, 7, 2], [7, 9, 9, 3], [0, 0, 0, 1]]
    """
    ones, others, whose = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, group in enumerate(groups):
        rows = np.asarray(group, np.int64)
        low, high = np.triu_indices(len(rows), 1)
        ones.append(rows[low])
        others.append(rows[high])
        whose.append(np.full(len(low), number))
    return np.concatenate(ones), np.concatenate(others), np.concatenate(whose)


def naming(ids: Mapping[str, Any], several: Iterable[Mapping[str, Any]]) -> str | None:
    """The field that names most documents, in a list or in lists by relation; None where no field names any.

    >>> naming({"a": 0, "b": 1}, [{"cites": ["b", "c"], "tags": ["x"]}, {"cites": {"part of": ["a"]}, "likes": ["a"]}])
    'cites'
    """
    found: Counter[str] = Counter()
    for fields in several:
        for field, held in fields.items():
            for names in held.values() if isinstance(held, Mapping) else [held]:
                if isinstance(names, list | tuple):
                    found[field] += sum(isinstance(name, str) and name in ids for name in names)
    best = found.most_common(1)
    return best[0][0] if best and best[0][1] else None


def _instead(documents: Sequence[Document]) -> str:
    """Which field of the metadata has links, if one has."""
    other = naming({one.id: None for one in documents}, (one.metadata for one in documents))
    return (
        "" if other is None else f"there is `{other}`, which names documents: {described('links', Links, field=other)}"
    )


def _meant(unknown: Sequence[str], ids: Mapping[str, Any]) -> tuple[str, str]:
    """The first id that is another but for its case, else the first of all; and the one that was meant, if any.

    >>> _meant(["gone", "W0-LEAD"], {"w0-lead": 0}), _meant(["w0-laed"], {"w0-lead": 0}), _meant(["gone"], {"a": 0})
    (('W0-LEAD', 'w0-lead'), ('w0-laed', 'w0-lead'), ('gone', ''))
    """
    folded = {one.strip().casefold(): one for one in ids}
    for name in unknown:
        if name.strip().casefold() in folded:
            return name, folded[name.strip().casefold()]
    near = difflib.get_close_matches(unknown[0], list(ids)[:COMPARED], n=1, cutoff=0.8)
    return unknown[0], near[0] if near else ""


def described(kind: str, made: type, *, always: Sequence[str] = (), **options: Any) -> str:
    """A description that tells a linker apart: the options that are not what they are by default.

    >>> described("knn", Nearest, always=["neighbours"], neighbours=8, mutual=True, least=0.0)
    'knn(neighbours=8, mutual=true)'
    """
    usual = {name: one.default for name, one in inspect.signature(made).parameters.items()}
    return str(Spec(kind, {name: one for name, one in options.items() if name in always or one != usual[name]}))


def heaviness(kind: str, weight: float) -> float:
    """What links weigh: a number above 0, for a link that weighs nothing is none."""
    if not (weight > 0 and math.isfinite(weight)):
        raise BadInput(f"{kind}: weight is {weight}, not a number above 0")
    return weight


def _links(ones: Any, others: Any, weights: Any, skipped: Mapping[str, int]) -> graphs.Links:
    """Links, and what was skipped if anything was."""
    some = {why: count for why, count in skipped.items() if count}
    return graphs.Links(np.asarray(ones, np.int64), np.asarray(others, np.int64), weights, some)
