"""Link documents by metadata, by similarity, or by shared field values."""

from __future__ import annotations

import difflib
import inspect
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ragauge.core import graphs
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.protocols import Vectors
from ragauge.core.records import Ints
from ragauge.core.settings import check_int
from ragauge.core.specs import Spec
from ragauge.stores.nearest_neighbours import find_nearest

UNKNOWN_IDS = "unknown ids"
"""Reason of a skipped link to an id that no document has."""
MAX_IDS_COMPARED = 10_000
"""Maximum number of ids that are searched for one similar to an unknown id."""


class MetadataLinks:
    """Linker by ids in the metadata: a list, or lists by relation, `{"uses": ["a", "b"]}`.

    `kinds` are the relations to use, joined by `+`; None for all. Unknown ids are skipped. Every link has the weight
    `weight`. `rewired` permutes the ends of all links at random, with a fixed seed. Documents keep their number of
    links, except for the few that would link a document to itself or duplicate a link. A gain that remains after
    rewiring comes from the number of links, not from where they lead.
    """

    def __init__(
        self,
        *,
        field: str = "links",
        kinds: str | Sequence[str] | None = None,
        weight: float = 1.0,
        rewired: bool = False,
    ) -> None:
        kind_list: list[Any] = list(kinds) if isinstance(kinds, list | tuple) else [kinds]
        if kinds is not None and not (kind_list and all(isinstance(kind, str) for kind in kind_list)):
            raise BadInput(
                f"kinds of links must be names of relations, got {kinds!r}", hint="use `links(kinds=uses+mitigates)`"
            )
        self._field = field
        self._kinds = None if kinds is None else frozenset(kind_list)
        self._weight = check_weight("links", weight)
        self._rewired = rewired
        self.name = describe_linker(
            "links", type(self), {"field": field, "kinds": kinds, "weight": weight, "rewired": rewired}
        )

    def link(self, documents: Sequence[Document], vectors: Vectors) -> graphs.LinkArrays:  # noqa: ARG002 - not by nearness
        """Return a link for each known id."""
        rows = {document.id: row for row, document in enumerate(documents)}
        seen_relations: set[str] = set()
        sources, targets, n_unknown = [], [], 0
        for row, document in enumerate(documents):
            for relation, names in self._iterate_relations(document):
                seen_relations.add(relation)
                if self._kinds is None or relation in self._kinds:
                    known_rows = [rows[name] for name in names if name in rows]
                    n_unknown += len(names) - len(known_rows)
                    targets += known_rows
                    sources += [row] * len(known_rows)
        if self.name != "links" and not self._has_links(documents):  # Missing links are no error by default.
            none = f"no document has `{self._field}` in its metadata, so that `{self.name}` links nothing"
            raise BadInput(none, hint=_describe_link_field(documents) or None)
        if missing := sorted((self._kinds or frozenset()) - seen_relations):
            raise BadInput(
                f"no document has links of the kind `{missing[0]}`",
                hint=f"choose one of {', '.join(sorted(filter(None, seen_relations)))}"
                if any(seen_relations)
                else "theirs have no kinds",
            )
        if self._rewired:
            targets = np.random.default_rng(0).permutation(np.array(targets, np.int64)).tolist()
        return _build_links(sources, targets, np.full(len(sources), self._weight), {UNKNOWN_IDS: n_unknown})

    def doubts(self, documents: Sequence[Document]) -> list[str]:
        """Describe problems of the links, one sentence each.

        Either no document has links, or links lead to no document.
        """
        ids = {document.id: None for document in documents}
        if not self._has_links(documents):
            link_field = _describe_link_field(documents)
            return [f"{self.name}: no document has `{self._field}` in its metadata{link_field and f' ({link_field})'}."]
        linked_ids = [
            name
            for document in documents
            for relation, names in self._iterate_relations(document)
            if self._kinds is None or relation in self._kinds
            for name in names
        ]
        unknown = [name for name in linked_ids if name not in ids]
        if not unknown:
            return []
        name, meant = _suggest_id(unknown, ids)
        suggestion = f": did you mean {meant}?" if meant else ""
        return [f"{self.name}: {len(unknown):,} of {len(linked_ids):,} links name no document ({name}{suggestion})."]

    def _has_links(self, documents: Sequence[Document]) -> bool:
        return any(document.metadata.get(self._field) is not None for document in documents)

    def _iterate_relations(self, document: Document) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield relations with their ids; a plain list has an empty relation."""
        links = document.metadata.get(self._field)
        if links is None:
            return
        for relation, names in (links if isinstance(links, Mapping) else {"": links}).items():
            is_id_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
            if not is_id_list or not isinstance(relation, str):
                raise BadInput(
                    f"the document `{document.id}` has `{self._field}`, but no list of ids and no lists by kind",
                    hint='links look like ["a", "b"] or {"uses": ["a"], "part of": ["b"]}',
                )
            yield relation, names


class NeighbourLinks:
    """Linker of every document with the `neighbours` most similar ones; the weight is the cosine.

    Ties are broken by position. Only cosines above `least` link, so that a document with a zero vector has no links.
    With `mutual` both documents must be among the nearest of the other, which prevents hubs. The cosine is multiplied
    by `weight`.
    """

    def __init__(self, *, neighbours: int = 8, mutual: bool = False, least: float = 0.0, weight: float = 1.0) -> None:
        self._neighbours = check_int("knn: neighbours", neighbours)
        if not 0 <= least <= 1:
            raise BadInput(f"least of knn must be a cosine from 0 to 1, got {least}")
        self._mutual, self._least = mutual, least
        self._weight = check_weight("knn", weight)
        options: dict[str, Any] = {"neighbours": neighbours, "mutual": mutual, "least": least, "weight": weight}
        self.name = describe_linker("knn", type(self), options, always=("neighbours",))

    def link(self, documents: Sequence[Document], vectors: Vectors) -> graphs.LinkArrays:
        """Return a link from each document to its nearest ones."""
        nonzero_rows = np.flatnonzero(np.any(vectors, axis=1))
        # Each document is its own nearest. With many duplicates it may be missing; then the last neighbour is dropped.
        neighbours, distances = find_nearest(
            vectors, vectors[nonzero_rows], self._neighbours + 1, "cosine", allowed=nonzero_rows
        )
        is_self = neighbours == nonzero_rows[:, None]
        if neighbours.shape[1]:
            is_self[~is_self.any(axis=1), -1] = True
        cosines = 1.0 - distances
        is_link = ~is_self & (cosines > self._least)
        sources, targets, weights = (
            np.broadcast_to(nonzero_rows[:, None], neighbours.shape)[is_link],
            neighbours[is_link],
            cosines[is_link],
        )
        if self._mutual:
            n = len(documents)
            is_mutual = np.isin(sources * n + targets, targets * n + sources)
            sources, targets, weights = sources[is_mutual], targets[is_mutual], weights[is_mutual]
        return graphs.LinkArrays(sources, targets, weights * self._weight)


class SharedFieldLinks:
    """Linker of documents that share a value of a metadata field; each value of a list counts.

    A value in more than `most` documents links none of them, because it is not specific. Every link has the weight
    `weight`.
    """

    def __init__(self, *, field: str, most: int = 50, weight: float = 1.0) -> None:
        if not isinstance(field, str):
            raise BadInput(f"field of field must be the name of a field, got {field!r}")
        self._field = field
        self._most = check_int("field: most", most, 2)
        self._weight = check_weight("field", weight)
        self.name = describe_linker("field", type(self), {"field": field, "most": most, "weight": weight})

    def link(self, documents: Sequence[Document], vectors: Vectors) -> graphs.LinkArrays:  # noqa: ARG002 - not by nearness
        """Return a link for every two documents with a common value."""
        rows_by_value: dict[Any, list[int]] = {}
        for row, document in enumerate(documents):
            for value in dict.fromkeys(self._iterate_values(document)):
                rows_by_value.setdefault(value, []).append(row)
        if documents and not rows_by_value:
            raise BadInput(f"no document has a value of `{self._field}` in its metadata")
        groups = [rows for rows in rows_by_value.values() if len(rows) > 1]
        linked_groups = [rows for rows in groups if len(rows) <= self._most]
        sources, targets, _ = group_pairs(linked_groups)
        common = {f"values that more than {self._most} documents have": len(groups) - len(linked_groups)}
        return _build_links(sources, targets, np.full(len(sources), self._weight), common)

    def _iterate_values(self, document: Document) -> Iterator[tuple[bool, Any]]:
        """Yield the values of a document.

        A flag marks booleans, which equal 0 and 1 in Python.
        """
        field_value = document.metadata.get(self._field)
        for value in field_value if isinstance(field_value, list | tuple | set | frozenset) else [field_value]:
            if value is None or value == "" or value != value:  # noqa: PLR0124 - NaN is no value
                continue
            if not isinstance(value, str | int | float):
                raise BadInput(
                    f"the document `{document.id}` has a `{self._field}` of the kind {type(value).__name__}",
                    hint="values that documents can share are texts, numbers, true and false, and lists of these",
                )
            yield isinstance(value, bool), value


def group_pairs(groups: Sequence[Sequence[int]]) -> tuple[Ints, Ints, Ints]:
    """Return all pairs within each group, and the group of each pair.

    >>> [part.tolist() for part in group_pairs([[4, 7, 9], [2, 3]])]
    [[4, 4, 7, 2], [7, 9, 9, 3], [0, 0, 0, 1]]
    """
    first_rows, second_rows, group_numbers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, group in enumerate(groups):
        rows = np.asarray(group, np.int64)
        low, high = np.triu_indices(len(rows), 1)
        first_rows.append(rows[low])
        second_rows.append(rows[high])
        group_numbers.append(np.full(len(low), number))
    return np.concatenate(first_rows), np.concatenate(second_rows), np.concatenate(group_numbers)


def find_link_field(ids: Mapping[str, Any], metadata: Iterable[Mapping[str, Any]]) -> str | None:
    """Find the metadata field that names most documents; None if there is none.

    The ids are in a list, or in lists by relation.

    >>> find_link_field({"a": 0, "b": 1}, [{"cites": ["b", "c"], "tags": ["x"]}, {"cites": {"part of": ["a"]},
    ...     "likes": ["a"]}])
    'cites'
    """
    link_counts: Counter[str] = Counter()
    for fields in metadata:
        for field, links in fields.items():
            for names in links.values() if isinstance(links, Mapping) else [links]:
                if isinstance(names, list | tuple):
                    link_counts[field] += sum(isinstance(name, str) and name in ids for name in names)
    best = link_counts.most_common(1)
    return best[0][0] if best and best[0][1] else None


def _describe_link_field(documents: Sequence[Document]) -> str:
    """Describe the metadata field that contains links; empty if none does."""
    field = find_link_field(
        {document.id: None for document in documents}, (document.metadata for document in documents)
    )
    return (
        ""
        if field is None
        else f"there is `{field}`, which names documents: {describe_linker('links', MetadataLinks, {'field': field})}"
    )


def _suggest_id(unknown: Sequence[str], ids: Mapping[str, Any]) -> tuple[str, str]:
    """Return an unknown id, and the known id that was meant; empty if unclear.

    An id that differs only in case is preferred; otherwise the first unknown id is used.

    >>> (_suggest_id(["gone", "W0-LEAD"], {"w0-lead": 0}), _suggest_id(["w0-laed"], {"w0-lead": 0}),
    ...  _suggest_id(["gone"], {"a": 0}))
    (('W0-LEAD', 'w0-lead'), ('w0-laed', 'w0-lead'), ('gone', ''))
    """
    folded = {known_id.strip().casefold(): known_id for known_id in ids}
    for name in unknown:
        if name.strip().casefold() in folded:
            return name, folded[name.strip().casefold()]
    similar_ids = difflib.get_close_matches(unknown[0], list(ids)[:MAX_IDS_COMPARED], n=1, cutoff=0.8)
    return unknown[0], similar_ids[0] if similar_ids else ""


def describe_linker(kind: str, linker_type: type, options: Mapping[str, Any], *, always: Sequence[str] = ()) -> str:
    """Return the spec of a linker, with the options that differ from the defaults.

    >>> describe_linker("knn", NeighbourLinks, {"neighbours": 8, "mutual": True, "least": 0.0}, always=["neighbours"])
    'knn(neighbours=8, mutual=true)'
    """
    defaults = {name: parameter.default for name, parameter in inspect.signature(linker_type).parameters.items()}
    return str(
        Spec(kind, {name: value for name, value in options.items() if name in always or value != defaults[name]})
    )


def check_weight(kind: str, weight: float) -> float:
    """Return the weight of links; raise BadInput if it is not a finite number above 0."""
    if not (weight > 0 and math.isfinite(weight)):
        raise BadInput(f"weight of {kind} must be above 0, got {weight}")
    return weight


def _build_links(sources: Any, targets: Any, weights: Any, skipped: Mapping[str, int]) -> graphs.LinkArrays:
    """Build links with the counts of those that were skipped."""
    skip_counts = {reason: count for reason, count in skipped.items() if count}
    return graphs.LinkArrays(np.asarray(sources, np.int64), np.asarray(targets, np.int64), weights, skip_counts)
