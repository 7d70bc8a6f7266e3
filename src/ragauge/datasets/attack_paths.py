"""Graph part of the ATT&CK dataset: two-hop questions, links between documents, technique targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from ragauge.datasets.attack_words import PATHS, Walk
from ragauge.formats.stix import Node, Relation
from ragauge.records import Document


def walks(relations: Iterable[Relation], active: Mapping[str, Node], findable: set[str]) -> dict[Walk, set[str]]:
    """Build two-hop questions with their relevant documents.

    The start node is never relevant. Questions are interleaved by path, so that any prefix of the result covers all
    paths.
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
    """Return the documents with their outgoing relations as metadata `links`."""
    links: dict[str, dict[str, list[str]]] = {one.id: {} for one in documents}
    for one in relations:
        if one.source in links and one.target in links:
            links[one.source].setdefault(one.kind, []).append(one.target)
    return [one._replace(metadata={**one.metadata, "links": links[one.id]}) for one in documents]


def families(documents: Sequence[Document], relations: Iterable[Relation]) -> dict[str, list[str]]:
    """Map each document to its target.

    The target of a sub-technique is its technique, that of any other document is itself.
    """
    known = {one.id for one in documents}
    parents = {one.source: one.target for one in relations if one.kind == "subtechnique-of" and one.target in known}
    return {name: [parents.get(name, name)] for name in (one.id for one in documents)}
