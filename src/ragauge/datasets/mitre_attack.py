"""Dataset from a MITRE ATT&CK STIX bundle: objects are documents, relations give queries and judgments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets.folders import find_bundle
from ragauge.datasets.mitre_attack_questions import (
    RELATION_WORDINGS,
    TWO_HOP_PATHS,
    TYPE_NAMES,
    OneHopQuestion,
    TwoHopQuestion,
)
from ragauge.datasets.queries import tags_from_judgments
from ragauge.files.source import InputFile
from ragauge.files.stix import StixBundle, StixNode, StixRelation, read_stix_bundle


def build_two_hop_questions(
    relations: Iterable[StixRelation], active: Mapping[str, StixNode], findable: set[str]
) -> dict[TwoHopQuestion, set[str]]:
    """Build two-hop questions with their relevant documents.

    The start node is never relevant. Questions are interleaved by path, so that any prefix of the result covers all
    paths.
    """
    ends: dict[tuple[str, str], list[str]] = {}
    for one in relations:
        ends.setdefault((one.source, one.kind), []).append(one.target)
        ends.setdefault((one.target, f"<{one.kind}"), []).append(one.source)
    rows: list[list[tuple[TwoHopQuestion, set[str]]]] = []
    for path, own in ((one, own) for one in TWO_HOP_PATHS for own in one.asked):
        row = []
        for node in (node for node in active.values() if node.type == own):
            via = (name for name in ends.get((node.id, path.first), ()) if active[name].type == path.via)
            reached = (name for one in via for name in ends.get((one, path.second), ()))
            right = {name for name in reached if active[name].type == path.wanted and name in findable} - {node.id}
            if right:
                row.append((TwoHopQuestion(node.id, path), right))
        rows.append(row)
    return dict(item for turn in zip_longest(*rows) for item in turn if item is not None)


def add_links(documents: Sequence[Document], relations: Iterable[StixRelation]) -> list[Document]:
    """Return the documents with their outgoing relations as metadata `links`."""
    links: dict[str, dict[str, list[str]]] = {one.id: {} for one in documents}
    for one in relations:
        if one.source in links and one.target in links:
            links[one.source].setdefault(one.kind, []).append(one.target)
    return [one._replace(metadata={**one.metadata, "links": links[one.id]}) for one in documents]


def technique_targets(documents: Sequence[Document], relations: Iterable[StixRelation]) -> dict[str, list[str]]:
    """Map each document to its target.

    The target of a sub-technique is its technique, that of any other document is itself.
    """
    known = {one.id for one in documents}
    parents = {one.source: one.target for one in relations if one.kind == "subtechnique-of" and one.target in known}
    return {name: [parents.get(name, name)] for name in (one.id for one in documents)}


CAMPAIGN_TYPE = "campaign"
"""Type of objects that are query subjects, but documents only on request."""


def load_stix_by_name(name: str) -> Dataset:
    """Load a STIX dataset by its name, `stix:FILE` or `stix:FILE(option=value, …)`.

    Options are retired=true, campaigns=true, least=1, most=50 and hops=2. The options are those of `load_stix`. FILE
    can be a folder with a single bundle, given as a path or as a name in RAGAUGE_DATA.
    """
    whole = name.removeprefix("stix:")
    path, _, inside = whole.rpartition("(")
    if not path or not inside.endswith(")") or Path(whole).exists():
        found = find_bundle(whole)
        return replace(load_stix(found), origin=f"stix:{Path(found).resolve()}")
    options: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in inside.removesuffix(")").split(","))):
        key, _, value = (one.strip() for one in part.partition("="))
        if key in ("retired", "campaigns") and value in ("true", "false"):
            options[key] = value == "true"
        elif key in ("least", "most", "hops") and value.isdigit():
            options[key] = int(value)
        else:
            hint = "retired=true, campaigns=true, least=1, most=50, hops=2"
            raise BadInput(f"`{part}` is no option of a STIX bundle", hint=hint)
    found = find_bundle(path)
    return replace(load_stix(found, **options), origin=f"stix:{Path(found).resolve()}({inside}")


def load_stix(
    path: str | Path,
    *,
    retired: bool = False,
    campaigns: bool = False,
    least: int = 1,
    most: int | None = None,
    hops: int = 1,
) -> Dataset:
    """Load a STIX bundle of ATT&CK, with queries generated from its relations.

    Left out are revoked and deprecated objects (unless `retired=True`), campaigns as documents (unless
    `campaigns=True`; they are always used for queries), and queries with fewer than `least` or more than `most`
    relevant documents. `about` reports how many were left out. The text of a detection strategy is that of its
    analytics.

    With `hops=2` queries follow two relations, documents carry their relations as `links`, and the target of a
    sub-technique is its technique. With `hops=1` there are no links, because they would reveal the relevant
    documents.
    """
    if hops not in (1, 2):
        raise BadInput(f"questions go over 1 or 2 relations, not {hops}", hint="hops=2")
    source = InputFile(str(path))
    bundle = read_stix_bundle(source)
    active = {
        name: node for name, node in bundle.nodes.items() if node.type in TYPE_NAMES and (retired or not node.retired)
    }
    documents = [_build_document(node, bundle) for node in active.values() if campaigns or node.type != CAMPAIGN_TYPE]
    if not documents:
        raise BadInput(
            "no object is a document", file=source.label, hint=f"types of documents: {', '.join(TYPE_NAMES)}"
        )
    findable = {one.id for one in documents}
    relations, dropped = _select_relations([*bundle.relations, *_implied_relations(bundle)], bundle, active)
    found: dict[Any, set[str]]
    found = (
        _build_questions(relations, active, findable)
        if hops == 1
        else build_two_hop_questions(relations, active, findable)
    )
    kept = {one: truth for one, truth in found.items() if least <= len(truth) and (most is None or len(truth) <= most)}
    if not kept:
        raise BadInput("no question can be made from its relations", file=source.label)
    dropped["questions with too few or too many answers"] = len(found) - len(kept)
    labels, names = _node_labels(active.values()), _full_names(bundle)
    ids = {one: _query_id(one, bundle.nodes[one.asked], labels) for one in kept}
    grades = {ids[one]: dict.fromkeys(sorted(truth), 1.0) for one, truth in kept.items()}
    return Dataset(
        name=source.stem,
        documents=documents if hops == 1 else add_links(documents, relations),
        queries=_question_texts(ids, bundle.nodes, names),
        judgments=Judgments(
            grades, targets=None if hops == 1 else technique_targets(documents, relations), source=source.label
        ),
        tags={ids[one]: _query_tags(one, bundle.nodes[one.asked], grades[ids[one]]) for one in kept},
        about=_dataset_description(source, bundle, documents, dropped, retired=retired),
    )


def _build_document(node: StixNode, bundle: StixBundle) -> Document:
    parts = [bundle.nodes[name].description for name in node.analytics if name in bundle.nodes]
    text = node.description or "\n\n".join(part for part in parts if part)
    about: dict[str, Any] = {"type": node.type, "external_id": node.external_id, "url": node.url, "name": node.name}
    more = {"platforms": list(node.platforms), "tactics": list(node.phases), "modified": node.modified}
    about |= {key: value for key, value in more.items() if value}
    return Document(node.id, text, node.name, about | ({"retired": node.retired} if node.retired else {}))


def _implied_relations(bundle: StixBundle) -> Iterable[StixRelation]:
    """Yield relations stored as object fields.

    These are tactics, the data components that strategies read, and data sources.
    """
    tactics = {node.shortname: node.id for node in bundle.nodes.values() if node.type == "x-mitre-tactic"}
    for node in bundle.nodes.values():
        if node.type == "attack-pattern" and tactics:
            for phase in node.phases:
                yield StixRelation(node.id, "serves", tactics.get(phase, phase))
        for name in node.analytics:
            for component in bundle.nodes[name].components if name in bundle.nodes else ():
                yield StixRelation(node.id, "reads", component)
        if node.data_source:
            yield StixRelation(node.id, "part-of", node.data_source)


def _select_relations(
    relations: Iterable[StixRelation], bundle: StixBundle, active: Mapping[str, StixNode]
) -> tuple[list[StixRelation], Counter[str]]:
    """Select the relations for queries, and count the others by reason."""
    kept: list[StixRelation] = []
    dropped: Counter[str] = Counter()
    for one in dict.fromkeys(relations):
        if one.kind not in RELATION_WORDINGS or one.retired:
            dropped["relations that are retired" if one.retired else f"relations `{one.kind}`"] += 1
        elif one.source not in bundle.nodes or one.target not in bundle.nodes:
            dropped["relations to objects that are not there"] += 1
        elif one.source not in active or one.target not in active:
            dropped["relations of objects that are left out"] += 1
        else:
            kept.append(one)
    return kept, dropped


def _build_questions(
    relations: Iterable[StixRelation], active: Mapping[str, StixNode], findable: set[str]
) -> dict[OneHopQuestion, set[str]]:
    """Build one-hop questions with their relevant documents.

    They are sorted by relation, then in bundle order.
    """
    found: dict[OneHopQuestion, set[str]] = defaultdict(set)
    for one in relations:
        source, target = active[one.source], active[one.target]
        if target.id in findable:
            found[OneHopQuestion(source.id, one.kind, False, target.type)].add(target.id)
        if source.id in findable:
            found[OneHopQuestion(target.id, one.kind, True, source.type)].add(source.id)
    order = {name: place for place, name in enumerate(active)}
    kinds = list(RELATION_WORDINGS)
    return dict(
        sorted(found.items(), key=lambda item: (kinds.index(item[0].kind), item[0].inverse, order[item[0].asked]))
    )


def _node_labels(nodes: Iterable[StixNode]) -> dict[str, str]:
    """Map node ids to labels for query ids.

    The label is the ATT&CK id if it is unique, otherwise the node id.
    """
    every = list(nodes)
    times = Counter(node.external_id for node in every)
    return {
        node.id: node.external_id if node.external_id and times[node.external_id] == 1 else node.id for node in every
    }


def _full_names(bundle: StixBundle) -> dict[str, str]:
    """Map node ids to names.

    Sub-techniques are prefixed with their technique, as in ATT&CK.
    """
    parents = {one.source: one.target for one in bundle.relations if one.kind == "subtechnique-of"}
    full = {}
    for node in bundle.nodes.values():
        parent = bundle.nodes.get(parents.get(node.id, ""))
        full[node.id] = f"{parent.name}: {node.name}" if parent is not None else node.name
    return full


def _query_id(one: OneHopQuestion | TwoHopQuestion, node: StixNode, labels: Mapping[str, str]) -> str:
    return f"{'-'.join(one.words(node.type)).replace(' ', '-')}:{labels[node.id]}"


def _question_texts(
    ids: Mapping[OneHopQuestion | TwoHopQuestion, str], nodes: Mapping[str, StixNode], names: Mapping[str, str]
) -> dict[str, str]:
    """Generate query texts.

    The node's ATT&CK id is added if two nodes would give the same text.
    """
    bare = {one: nodes[one.asked].name if one.bare else names[one.asked] for one in ids}
    texts = {one: one.text(nodes[one.asked].type, name) for one, name in bare.items()}
    times = Counter(texts.values())
    for one, text in texts.items():
        node = nodes[one.asked]
        if times[text] > 1:
            texts[one] = one.text(node.type, f"{bare[one]} ({node.external_id or node.id})")
    return {name: texts[one] for one, name in ids.items()}


def _query_tags(one: OneHopQuestion | TwoHopQuestion, node: StixNode, grades: Mapping[str, float]) -> dict[str, str]:
    words = one.words(node.type)
    along = "relation" if isinstance(one, OneHopQuestion) else "path"
    return {along: " ".join(words), "asked": words[0], "wanted": words[-1], **tags_from_judgments(grades)}


def _dataset_description(
    source: InputFile, bundle: StixBundle, documents: Sequence[Document], dropped: Mapping[str, int], *, retired: bool
) -> str:
    gone = Counter(node.retired for node in bundle.nodes.values() if node.type in TYPE_NAMES and node.retired)
    counted = dict(gone) if not retired else {}
    counted |= dict(dropped)
    bare = sum(not one.text for one in documents)
    told = ", ".join(f"{n:,} {what}" for what, n in counted.items() if n)
    sentences = [
        f"MITRE ATT&CK from {source.label}",
        f"left out: {told}" if told else "",
        f"documents with a name and no text: {bare:,}" if bare else "",
        f"objects with a newer version beside them: {bundle.older:,}" if bundle.older else "",
    ]
    return "; ".join(part for part in sentences if part)
