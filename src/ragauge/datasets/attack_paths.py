"""ATT&CK as a graph: questions over two relations, links between documents, and techniques with their parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from ragauge.datasets.attack_words import PATHS, Walk
from ragauge.formats.stix import Node, Relation
from ragauge.records import Document


def walks(relations: Iterable[Relation], active: Mapping[str, Node], findable: set[str]) -> dict[Walk, set[str]]:
    """Each question over two relations with its right answers, which the asked node is never one of.

    All paths take turns, so that any beginning has questions of each.
    """
    ends: dict[tuple[str, str], list[str]] = {}
    for one in relations:
        ends.setdefault((one.source, one.kind), []).append(one.target)
        ends.setdefault((one.target, f"<{one.kind}"), []).append(one.source)
    rows: list[list[tuple[Walk, set[str]]]] = []
    for path, own in ((one, own) for one in PATHS for own in one.asked):
        row = []
        for node in (node for node in active.values() if node.type == own):
            via = (name for name in ends.get((node.id, path.first), ()) if active[name].type == path.via)
            reached = (name for one in via for name in ends.get((one, path.second), ()))
            right = {name for name in reached if active[name].type == path.wanted and name in findable} - {node.id}
            if right:
                row.append((Walk(node.id, path), right))
        rows.append(row)
    return dict(item for turn in zip_longest(*rows) for item in turn if item is not None)


def linked(documents: Sequence[Document], relations: Iterable[Relation]) -> list[Document]:
    """The documents with their relations to others as `links`; one that is no relation's source has none."""
    links: dict[str, dict[str, list[str]]] = {one.id: {} for one in documents}
    for one in relations:
        if one.source in links and one.target in links:
            links[one.source].setdefault(one.kind, []).append(one.target)
    return [one._replace(metadata={**one.metadata, "links": links[one.id]}) for one in documents]


def families(documents: Sequence[Document], relations: Iterable[Relation]) -> dict[str, list[str]]:
    """A target map: a sub-technique stands for its technique, anything else for itself."""
    known = {one.id for one in documents}
    parents = {one.source: one.target for one in relations if one.kind == "subtechnique-of" and one.target in known}
    return {name: [parents.get(name, name)] for name in (one.id for one in documents)}
