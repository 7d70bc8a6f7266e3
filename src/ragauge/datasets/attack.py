"""MITRE ATT&CK as a dataset: its objects are the documents, and what the graph relates is asked for and right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.datasets.strata import by_answers
from ragauge.errors import BadInput
from ragauge.formats.files import Source
from ragauge.formats.stix import Bundle, Node, Relation, read_bundle
from ragauge.records import Dataset, Document, Judgments

NAMES = {
    "attack-pattern": ("technique", "techniques"),
    "intrusion-set": ("group", "groups"),
    "malware": ("malware", "malware"),
    "tool": ("tool", "tools"),
    "course-of-action": ("mitigation", "mitigations"),
    "x-mitre-data-component": ("data component", "data components"),
    "x-mitre-data-source": ("data source", "data sources"),
    "x-mitre-detection-strategy": ("detection strategy", "detection strategies"),
    "x-mitre-tactic": ("tactic", "tactics"),
    "campaign": ("campaign", "campaigns"),
}
"""What people call the types that can be documents, one of them and several."""
ASKING = "campaign"
"""Campaigns ask; they are documents only when wanted."""


class Wording(NamedTuple):
    """How a relation is asked for from either end, and what it is called in ids and tags."""

    forward: str
    inverse: str
    called: str
    """The relation as seen from its target."""


RELATIONS = {
    "uses": Wording(
        "Which {targets} does the {source} {name} use?", "Which {sources} use the {target} {name}?", "used-by"
    ),
    "mitigates": Wording(
        "Which {targets} does the {source} {name} mitigate?",
        "Which {sources} mitigate the {target} {name}?",
        "mitigated-by",
    ),
    "detects": Wording(
        "Which {targets} does the {source} {name} detect?", "Which {sources} detect the {target} {name}?", "detected-by"
    ),
    "subtechnique-of": Wording(
        "Of which technique is {name} a sub-technique?", "What are the sub-techniques of {name}?", "divided-into"
    ),
    "attributed-to": Wording(
        "To which group is the campaign {name} attributed?",
        "Which campaigns are attributed to the group {name}?",
        "credited-with",
    ),
    "serves": Wording(
        "Which tactics does the technique {name} serve?", "Which techniques serve the tactic {name}?", "served-by"
    ),
    "reads": Wording(
        "Which data components does the detection strategy {name} read?",
        "Which detection strategies read the data component {name}?",
        "read-by",
    ),
    "part-of": Wording(
        "Of which data source is the data component {name} a part?",
        "Which data components are parts of the data source {name}?",
        "made-of",
    ),
}
"""The relations that questions are made of; `serves`, `reads` and `part-of` stand in the objects themselves."""


class Question(NamedTuple):
    """A node that is asked, along one kind of relation, for nodes of one type."""

    asked: str
    kind: str
    inverse: bool
    wanted: str


def load(name: str) -> Dataset:
    """`stix:FILE`, or `stix:FILE(retired=true, campaigns=true, least=1, most=50)`; options are those of `load_stix`."""
    whole = name.removeprefix("stix:")
    path, _, inside = whole.rpartition("(")
    if not path or not inside.endswith(")") or Path(whole).exists():
        return replace(load_stix(whole), origin=f"stix:{Path(whole).resolve()}")
    options: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in inside.removesuffix(")").split(","))):
        key, _, value = (one.strip() for one in part.partition("="))
        if key in ("retired", "campaigns") and value in ("true", "false"):
            options[key] = value == "true"
        elif key in ("least", "most") and value.isdigit():
            options[key] = int(value)
        else:
            hint = "retired=true, campaigns=true, least=1, most=50"
            raise BadInput(f"`{part}` is no option of a STIX bundle", hint=hint)
    return replace(load_stix(path, **options), origin=f"stix:{Path(path).resolve()}({inside}")


def load_stix(
    path: str | Path,
    *,
    retired: bool = False,
    campaigns: bool = False,
    least: int = 1,
    most: int | None = None,
) -> Dataset:
    """A STIX bundle of ATT&CK as a dataset: nine types of objects, and questions from the relations between them.

    Left out are revoked and deprecated objects (`retired=True` keeps them), campaigns as documents (`campaigns=True`
    keeps them; they ask in any case), and questions with fewer than `least` or more than `most` right answers. What was
    left out is counted in `about`. The text of a detection strategy is that of its analytics.
    """
    source = Source(str(path))
    bundle = read_bundle(source)
    active = {name: node for name, node in bundle.nodes.items() if node.type in NAMES and (retired or not node.retired)}
    documents = [_document(node, bundle) for node in active.values() if campaigns or node.type != ASKING]
    if not documents:
        raise BadInput("no object is a document", file=source.label, hint=f"types of documents: {', '.join(NAMES)}")
    findable = {one.id for one in documents}
    found, dropped = _questions([*bundle.relations, *_implied(bundle)], bundle, active, findable)
    kept = {one: truth for one, truth in found.items() if least <= len(truth) and (most is None or len(truth) <= most)}
    if not kept:
        raise BadInput("no question can be made from its relations", file=source.label)
    dropped["questions with too few or too many answers"] = len(found) - len(kept)
    labels, names = _labels(active.values()), _full_names(bundle)
    ids = {one: _id(one, bundle.nodes[one.asked], labels) for one in kept}
    grades = {ids[one]: dict.fromkeys(sorted(truth), 1.0) for one, truth in kept.items()}
    return Dataset(
        name=source.stem,
        documents=documents,
        queries=_worded({one: ids[one] for one in kept}, bundle.nodes, names),
        judgments=Judgments(grades, source=source.label),
        tags={ids[one]: _tags(one, bundle.nodes[one.asked], grades[ids[one]]) for one in kept},
        about=_about(source, bundle, documents, dropped, retired=retired),
    )


def _document(node: Node, bundle: Bundle) -> Document:
    parts = [bundle.nodes[name].description for name in node.analytics if name in bundle.nodes]
    text = node.description or "\n\n".join(part for part in parts if part)
    about: dict[str, Any] = {"type": node.type, "external_id": node.external_id, "url": node.url, "name": node.name}
    more = {"platforms": list(node.platforms), "tactics": list(node.phases), "modified": node.modified}
    about |= {key: value for key, value in more.items() if value}
    return Document(node.id, text, node.name, about | ({"retired": node.retired} if node.retired else {}))


def _implied(bundle: Bundle) -> Iterable[Relation]:
    """The relations that are no objects: tactics, what strategies read, and what data components are a part of."""
    tactics = {node.shortname: node.id for node in bundle.nodes.values() if node.type == "x-mitre-tactic"}
    for node in bundle.nodes.values():
        if node.type == "attack-pattern" and tactics:
            for phase in node.phases:
                yield Relation(node.id, "serves", tactics.get(phase, phase))
        for name in node.analytics:
            for component in bundle.nodes[name].components if name in bundle.nodes else ():
                yield Relation(node.id, "reads", component)
        if node.data_source:
            yield Relation(node.id, "part-of", node.data_source)


def _questions(
    relations: Iterable[Relation], bundle: Bundle, active: Mapping[str, Node], findable: set[str]
) -> tuple[dict[Question, set[str]], Counter[str]]:
    """Each question with its right answers, in the order of the bundle, and what no question was made of."""
    found: dict[Question, set[str]] = defaultdict(set)
    dropped: Counter[str] = Counter()
    for one in dict.fromkeys(relations):
        if one.kind not in RELATIONS or one.retired:
            dropped["relations that are retired" if one.retired else f"relations `{one.kind}`"] += 1
        elif one.source not in bundle.nodes or one.target not in bundle.nodes:
            dropped["relations to objects that are not there"] += 1
        elif one.source not in active or one.target not in active:
            dropped["relations of objects that are left out"] += 1
        else:
            source, target = active[one.source], active[one.target]
            if target.id in findable:
                found[Question(source.id, one.kind, False, target.type)].add(target.id)
            if source.id in findable:
                found[Question(target.id, one.kind, True, source.type)].add(source.id)
    order = {name: place for place, name in enumerate(bundle.nodes)}
    kinds = list(RELATIONS)
    return dict(
        sorted(found.items(), key=lambda item: (kinds.index(item[0].kind), item[0].inverse, order[item[0].asked]))
    ), dropped


def _labels(nodes: Iterable[Node]) -> dict[str, str]:
    """What nodes are called in the ids of queries: by ATT&CK's number where no other of them has it."""
    every = list(nodes)
    times = Counter(node.external_id for node in every)
    return {
        node.id: node.external_id if node.external_id and times[node.external_id] == 1 else node.id for node in every
    }


def _full_names(bundle: Bundle) -> dict[str, str]:
    """Names; a sub-technique's with that of its technique before it, as ATT&CK writes it."""
    parents = {one.source: one.target for one in bundle.relations if one.kind == "subtechnique-of"}
    full = {}
    for node in bundle.nodes.values():
        parent = bundle.nodes.get(parents.get(node.id, ""))
        full[node.id] = f"{parent.name}: {node.name}" if parent is not None else node.name
    return full


def _relation(one: Question, node: Node) -> tuple[str, str, str]:
    """Who is asked, along what, for what."""
    called = RELATIONS[one.kind].called if one.inverse else one.kind
    return NAMES[node.type][0], called, NAMES[one.wanted][0]


def _id(one: Question, node: Node, labels: Mapping[str, str]) -> str:
    return f"{'-'.join(_relation(one, node)).replace(' ', '-')}:{labels[node.id]}"


def _worded(ids: Mapping[Question, str], nodes: Mapping[str, Node], names: Mapping[str, str]) -> dict[str, str]:
    """The texts of questions; those that would be asked twice of different nodes name the node's number too."""
    # Asked for its technique, a sub-technique must not name it.
    bare = {one: nodes[one.asked].name if one.kind == "subtechnique-of" else names[one.asked] for one in ids}
    texts = {one: _text(one, nodes[one.asked], name) for one, name in bare.items()}
    times = Counter(texts.values())
    for one, text in texts.items():
        node = nodes[one.asked]
        if times[text] > 1:
            texts[one] = _text(one, node, f"{bare[one]} ({node.external_id or node.id})")
    return {name: texts[one] for one, name in ids.items()}


def _text(one: Question, node: Node, name: str) -> str:
    own, wanted = NAMES[node.type][0], NAMES[one.wanted][1]
    wording = RELATIONS[one.kind]
    if one.inverse:
        return wording.inverse.format(sources=wanted, target=own, name=name)
    return wording.forward.format(source=own, targets=wanted, name=name)


def _tags(one: Question, node: Node, grades: Mapping[str, float]) -> dict[str, str]:
    asked, called, wanted = _relation(one, node)
    return {"relation": f"{asked} {called} {wanted}", "asked": asked, "wanted": wanted, **by_answers(grades)}


def _about(
    source: Source, bundle: Bundle, documents: Sequence[Document], dropped: Mapping[str, int], *, retired: bool
) -> str:
    gone = Counter(node.retired for node in bundle.nodes.values() if node.type in NAMES and node.retired)
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
