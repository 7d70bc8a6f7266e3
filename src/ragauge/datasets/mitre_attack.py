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
    neighbours: dict[tuple[str, str], list[str]] = {}
    for relation in relations:
        neighbours.setdefault((relation.source, relation.kind), []).append(relation.target)
        neighbours.setdefault((relation.target, f"<{relation.kind}"), []).append(relation.source)
    rows: list[list[tuple[TwoHopQuestion, set[str]]]] = []
    for path, start_type in (
        (two_hop_path, start_type) for two_hop_path in TWO_HOP_PATHS for start_type in two_hop_path.start_types
    ):
        row = []
        for node in (node for node in active.values() if node.type == start_type):
            bridges = (name for name in neighbours.get((node.id, path.first), ()) if active[name].type == path.via)
            reached = (name for bridge in bridges for name in neighbours.get((bridge, path.second), ()))
            relevant = {name for name in reached if active[name].type == path.target_type and name in findable} - {
                node.id
            }
            if relevant:
                row.append((TwoHopQuestion(node.id, path), relevant))
        rows.append(row)
    return dict(item for questions in zip_longest(*rows) for item in questions if item is not None)


def add_links(documents: Sequence[Document], relations: Iterable[StixRelation]) -> list[Document]:
    """Return the documents with their outgoing relations as metadata `links`."""
    links: dict[str, dict[str, list[str]]] = {document.id: {} for document in documents}
    for relation in relations:
        if relation.source in links and relation.target in links:
            links[relation.source].setdefault(relation.kind, []).append(relation.target)
    return [document._replace(metadata={**document.metadata, "links": links[document.id]}) for document in documents]


def technique_targets(documents: Sequence[Document], relations: Iterable[StixRelation]) -> dict[str, list[str]]:
    """Map each document to its target.

    The target of a sub-technique is its technique, that of any other document is itself.
    """
    document_ids = {document.id for document in documents}
    parents = {
        relation.source: relation.target
        for relation in relations
        if relation.kind == "subtechnique-of" and relation.target in document_ids
    }
    return {name: [parents.get(name, name)] for name in (document.id for document in documents)}


CAMPAIGN_TYPE = "campaign"
"""Type of objects that are query subjects, but documents only on request."""


def load_stix_by_name(name: str) -> Dataset:
    """Load a STIX dataset by its name, `stix:FILE` or `stix:FILE(option=value, …)`.

    Options are retired=true, campaigns=true, least=1, most=50 and hops=2. The options are those of `load_stix`. FILE
    can be a folder with a single bundle, given as a path or as a name in RAGAUGE_DATA.
    """
    text = name.removeprefix("stix:")
    path, _, option_text = text.rpartition("(")
    if not path or not option_text.endswith(")") or Path(text).exists():
        bundle_path = find_bundle(text)
        return replace(load_stix(bundle_path), origin=f"stix:{Path(bundle_path).resolve()}")
    options: dict[str, Any] = {}
    for option in filter(None, (item.strip() for item in option_text.removesuffix(")").split(","))):
        key, _, value = (part.strip() for part in option.partition("="))
        if key in ("retired", "campaigns") and value in ("true", "false"):
            options[key] = value == "true"
        elif key in ("least", "most", "hops") and value.isdigit():
            options[key] = int(value)
        else:
            hint = "retired=true, campaigns=true, least=1, most=50, hops=2"
            raise BadInput(f"`{option}` is not an option of a STIX bundle", hint=hint)
    bundle_path = find_bundle(path)
    return replace(load_stix(bundle_path, **options), origin=f"stix:{Path(bundle_path).resolve()}({option_text}")


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
        raise BadInput(f"hops must be 1 or 2, got {hops}", hint="use hops=2")
    source = InputFile(str(path))
    bundle = read_stix_bundle(source)
    active = {
        name: node for name, node in bundle.nodes.items() if node.type in TYPE_NAMES and (retired or not node.retired)
    }
    documents = [_build_document(node, bundle) for node in active.values() if campaigns or node.type != CAMPAIGN_TYPE]
    if not documents:
        raise BadInput(
            "no object can be a document", file=source.label, hint=f"types of documents: {', '.join(TYPE_NAMES)}"
        )
    findable = {document.id for document in documents}
    relations, dropped = _select_relations([*bundle.relations, *_implied_relations(bundle)], bundle, active)
    relevant_by_question: dict[Any, set[str]]
    relevant_by_question = (
        _build_questions(relations, active, findable)
        if hops == 1
        else build_two_hop_questions(relations, active, findable)
    )
    selected = {
        question: relevant
        for question, relevant in relevant_by_question.items()
        if least <= len(relevant) and (most is None or len(relevant) <= most)
    }
    if not selected:
        raise BadInput("no question can be made from its relations", file=source.label)
    dropped["questions with too few or too many answers"] = len(relevant_by_question) - len(selected)
    labels, names = _node_labels(active.values()), _full_names(bundle)
    ids = {question: _query_id(question, bundle.nodes[question.start], labels) for question in selected}
    grades = {ids[question]: dict.fromkeys(sorted(relevant), 1.0) for question, relevant in selected.items()}
    return Dataset(
        name=source.stem,
        documents=documents if hops == 1 else add_links(documents, relations),
        queries=_question_texts(ids, bundle.nodes, names),
        judgments=Judgments(
            grades, targets=None if hops == 1 else technique_targets(documents, relations), source=source.label
        ),
        tags={
            ids[question]: _query_tags(question, bundle.nodes[question.start], grades[ids[question]])
            for question in selected
        },
        about=_dataset_description(source, bundle, documents, dropped, retired=retired),
    )


def _build_document(node: StixNode, bundle: StixBundle) -> Document:
    descriptions = [bundle.nodes[name].description for name in node.analytics if name in bundle.nodes]
    text = node.description or "\n\n".join(description for description in descriptions if description)
    about: dict[str, Any] = {"type": node.type, "external_id": node.external_id, "url": node.url, "name": node.name}
    optional_fields = {"platforms": list(node.platforms), "tactics": list(node.phases), "modified": node.modified}
    about |= {key: value for key, value in optional_fields.items() if value}
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
    selected: list[StixRelation] = []
    dropped: Counter[str] = Counter()
    for relation in dict.fromkeys(relations):
        if relation.kind not in RELATION_WORDINGS or relation.retired:
            dropped["relations that are retired" if relation.retired else f"relations `{relation.kind}`"] += 1
        elif relation.source not in bundle.nodes or relation.target not in bundle.nodes:
            dropped["relations to objects that are not there"] += 1
        elif relation.source not in active or relation.target not in active:
            dropped["relations of objects that are left out"] += 1
        else:
            selected.append(relation)
    return selected, dropped


def _build_questions(
    relations: Iterable[StixRelation], active: Mapping[str, StixNode], findable: set[str]
) -> dict[OneHopQuestion, set[str]]:
    """Build one-hop questions with their relevant documents.

    They are sorted by relation, then in bundle order.
    """
    relevant_by_question: dict[OneHopQuestion, set[str]] = defaultdict(set)
    for relation in relations:
        source, target = active[relation.source], active[relation.target]
        if target.id in findable:
            relevant_by_question[OneHopQuestion(source.id, relation.kind, False, target.type)].add(target.id)
        if source.id in findable:
            relevant_by_question[OneHopQuestion(target.id, relation.kind, True, source.type)].add(source.id)
    order = {name: position for position, name in enumerate(active)}
    kinds = list(RELATION_WORDINGS)
    return dict(
        sorted(
            relevant_by_question.items(),
            key=lambda item: (kinds.index(item[0].kind), item[0].inverse, order[item[0].start]),
        )
    )


def _node_labels(nodes: Iterable[StixNode]) -> dict[str, str]:
    """Map node ids to labels for query ids.

    The label is the ATT&CK id if it is unique, otherwise the node id.
    """
    all_nodes = list(nodes)
    times = Counter(node.external_id for node in all_nodes)
    return {
        node.id: node.external_id if node.external_id and times[node.external_id] == 1 else node.id
        for node in all_nodes
    }


def _full_names(bundle: StixBundle) -> dict[str, str]:
    """Map node ids to names.

    Sub-techniques are prefixed with their technique, as in ATT&CK.
    """
    parents = {relation.source: relation.target for relation in bundle.relations if relation.kind == "subtechnique-of"}
    full = {}
    for node in bundle.nodes.values():
        parent = bundle.nodes.get(parents.get(node.id, ""))
        full[node.id] = f"{parent.name}: {node.name}" if parent is not None else node.name
    return full


def _query_id(question: OneHopQuestion | TwoHopQuestion, node: StixNode, labels: Mapping[str, str]) -> str:
    return f"{'-'.join(question.words(node.type)).replace(' ', '-')}:{labels[node.id]}"


def _question_texts(
    ids: Mapping[OneHopQuestion | TwoHopQuestion, str], nodes: Mapping[str, StixNode], names: Mapping[str, str]
) -> dict[str, str]:
    """Generate query texts.

    The node's ATT&CK id is added if two nodes would give the same text.
    """
    bare = {question: nodes[question.start].name if question.bare else names[question.start] for question in ids}
    texts = {question: question.text(nodes[question.start].type, name) for question, name in bare.items()}
    times = Counter(texts.values())
    for question, text in texts.items():
        node = nodes[question.start]
        if times[text] > 1:
            texts[question] = question.text(node.type, f"{bare[question]} ({node.external_id or node.id})")
    return {name: texts[question] for question, name in ids.items()}


def _query_tags(
    question: OneHopQuestion | TwoHopQuestion, node: StixNode, grades: Mapping[str, float]
) -> dict[str, str]:
    words = question.words(node.type)
    path_tag = "relation" if isinstance(question, OneHopQuestion) else "path"
    return {path_tag: " ".join(words), "asked": words[0], "wanted": words[-1], **tags_from_judgments(grades)}


def _dataset_description(
    source: InputFile, bundle: StixBundle, documents: Sequence[Document], dropped: Mapping[str, int], *, retired: bool
) -> str:
    retired_counts = Counter(node.retired for node in bundle.nodes.values() if node.type in TYPE_NAMES and node.retired)
    counted = dict(retired_counts) if not retired else {}
    counted |= dict(dropped)
    bare = sum(not document.text for document in documents)
    left_out = ", ".join(f"{n:,} {reason}" for reason, n in counted.items() if n)
    sentences = [
        f"MITRE ATT&CK from {source.label}",
        f"left out: {left_out}" if left_out else "",
        f"documents with a name and no text: {bare:,}" if bare else "",
        f"objects that a newer version in the bundle replaces: {bundle.older:,}" if bundle.older else "",
    ]
    return "; ".join(sentence for sentence in sentences if sentence)
