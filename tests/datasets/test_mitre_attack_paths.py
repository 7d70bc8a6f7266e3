"""Two-hop queries on ATT&CK: answers compose two relations, relations are links, and folders resolve to bundles."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import networkx as nx
import pytest
from tests.datasets.test_mitre_attack import (
    ENTERPRISE,
    GROUP,
    OTHER_GROUP,
    STRATEGY,
    SUBTECHNIQUE,
    TECHNIQUE,
    make_object,
    make_relation,
    write_bundle,
)

import ragauge
from ragauge.core.errors import BadInput, UnknownName
from ragauge.datasets import list_datasets
from ragauge.datasets.mitre_attack import load_stix
from ragauge.datasets.mitre_attack_questions import RELATION_WORDINGS, TWO_HOP_PATHS, TYPE_NAMES
from ragauge.runs.folder import dataset_fingerprint

OTHER_SUBTECHNIQUE, MITIGATION, TOOL = "attack-pattern--T1.002", "course-of-action--M1", "tool--S1"
MALWARE, TACTIC, CAMPAIGN = "malware--S2", "x-mitre-tactic--TA1", "campaign--C1"
COMPONENT = "x-mitre-data-component--DC1"
STEALTH = [{"phase_name": "stealth"}]
OBJECTS = [
    make_object("intrusion-set", "G1", "Grey Fox"),
    make_object("intrusion-set", "G2", "Red Hare"),
    make_object("attack-pattern", "T1", "Injection", kill_chain_phases=STEALTH),
    make_object("attack-pattern", "T1.001", "Window Memory", kill_chain_phases=STEALTH),
    make_object("attack-pattern", "T1.002", "Hooks"),
    make_object("attack-pattern", "T9", "Old Way", revoked=True),
    make_object("course-of-action", "M1", "Isolation"),
    make_object("tool", "S1", "Net"),
    make_object("malware", "S2", "Worm"),
    make_object("campaign", "C1", "Night Run"),
    make_object("x-mitre-tactic", "TA1", "Stealth", x_mitre_shortname="stealth"),
    make_object("x-mitre-data-component", "DC1", "Process Creation"),
    make_object("x-mitre-detection-strategy", "DET1", "Watch", None, x_mitre_analytic_refs=["x-mitre-analytic--AN1"]),
    make_object(
        "x-mitre-analytic",
        "AN1",
        "Analytic 1",
        "Look at windows.",
        x_mitre_log_source_references=[{"x_mitre_data_component_ref": COMPONENT}],
    ),
    make_relation(SUBTECHNIQUE, "subtechnique-of", TECHNIQUE),
    make_relation(OTHER_SUBTECHNIQUE, "subtechnique-of", TECHNIQUE),
    make_relation(GROUP, "uses", SUBTECHNIQUE),
    make_relation(GROUP, "uses", TOOL),
    make_relation(OTHER_GROUP, "uses", TOOL),
    make_relation(OTHER_GROUP, "uses", MALWARE),
    make_relation(GROUP, "uses", "attack-pattern--T9"),
    make_relation(MITIGATION, "mitigates", SUBTECHNIQUE),
    make_relation(STRATEGY, "detects", SUBTECHNIQUE),
    make_relation(CAMPAIGN, "attributed-to", OTHER_GROUP),
    make_relation(CAMPAIGN, "uses", SUBTECHNIQUE),
]


@pytest.fixture
def bundle(tmp_path):
    return write_bundle(tmp_path / "small.json", OBJECTS)


def test_load_stix_two_hops_returns_answers_without_start_node(bundle):
    data = load_stix(bundle, hops=2)
    answers_by_query = {data.queries[name]: sorted(docs) for name, docs in data.judgments.nested.items()}
    assert answers_by_query == {
        "Which mitigations help against techniques that the group Grey Fox uses?": [MITIGATION],
        "Which mitigations help against techniques that the campaign Night Run uses?": [MITIGATION],
        "Which tactics do the techniques serve that the group Grey Fox uses?": [TACTIC],
        "Which tactics do the techniques serve that the campaign Night Run uses?": [TACTIC],
        "Which detection strategies find techniques that the group Grey Fox uses?": [STRATEGY],
        "Which detection strategies find techniques that the campaign Night Run uses?": [STRATEGY],
        "Which malware do the groups use that use the tool Net?": [MALWARE],
        "Which tools do the groups use that use the malware Worm?": [TOOL],
        "Which malware does the group use that the campaign Night Run is attributed to?": [MALWARE],
        "Which groups use techniques that the mitigation Isolation helps against?": [GROUP],
        "To which tactics belong the techniques that the mitigation Isolation helps against?": [TACTIC],
        "Which tools do the groups use that use the technique Injection: Window Memory?": [TOOL],
        "In which data components can the technique Injection: Window Memory be seen?": [COMPONENT],
        "Which sub-techniques belong to the same technique as Window Memory?": [OTHER_SUBTECHNIQUE],
        "Which sub-techniques belong to the same technique as Hooks?": [SUBTECHNIQUE],
        "Which mitigations help against sub-techniques of Injection?": [MITIGATION],
        "Which techniques can be seen in the data component Process Creation?": [SUBTECHNIQUE],
        "Which mitigations help against techniques of the tactic Stealth?": [MITIGATION],
    }
    assert data.tags["tool-used-by-group-uses-malware:S1"] == {
        "path": "tool used-by group uses malware",
        "asked": "tool",
        "wanted": "malware",
        "answers": "one",
        "complexity": "simple",
    }


def test_load_stix_two_hops_documents_link_to_related_nodes(bundle):
    links = {one.id: one.metadata["links"] for one in load_stix(bundle, hops=2).documents}
    assert links == {
        GROUP: {"uses": [SUBTECHNIQUE, TOOL]},
        OTHER_GROUP: {"uses": [TOOL, MALWARE]},
        TECHNIQUE: {"serves": [TACTIC]},
        SUBTECHNIQUE: {"subtechnique-of": [TECHNIQUE], "serves": [TACTIC]},
        OTHER_SUBTECHNIQUE: {"subtechnique-of": [TECHNIQUE]},
        MITIGATION: {"mitigates": [SUBTECHNIQUE]},
        TOOL: {},
        MALWARE: {},
        TACTIC: {},
        COMPONENT: {},
        STRATEGY: {"detects": [SUBTECHNIQUE], "reads": [COMPONENT]},
    }
    assert all("links" not in one.metadata for one in load_stix(bundle).documents)
    with_campaigns = load_stix(bundle, hops=2, campaigns=True)
    assert {one.id: one.metadata["links"] for one in with_campaigns.documents}[CAMPAIGN] == {
        "attributed-to": [OTHER_GROUP],
        "uses": [SUBTECHNIQUE],
    }


def test_load_stix_two_hops_subtechnique_target_is_its_technique(bundle):
    data = load_stix(bundle, hops=2)
    targets = data.judgments.targets
    assert (targets[SUBTECHNIQUE], targets[OTHER_SUBTECHNIQUE], targets[TECHNIQUE], targets[GROUP]) == (
        [TECHNIQUE],
        [TECHNIQUE],
        [TECHNIQUE],
        [GROUP],
    )
    assert set(targets) == {one.id for one in data.documents}
    assert load_stix(bundle).judgments.targets is None


def test_load_stix_hops_option_is_read_from_name_and_validated(bundle):
    assert ragauge.load(f"stix:{bundle}(hops=2)").queries == load_stix(bundle, hops=2).queries
    assert ragauge.load(f"stix:{bundle}(hops=1)").queries == load_stix(bundle).queries
    with pytest.raises(BadInput, match="hops must be 1 or 2, got 3"):
        ragauge.load(f"stix:{bundle}(hops=3)")
    with pytest.raises(BadInput, match="no question can be made"):
        load_stix(bundle, hops=2, least=2)


def test_load_stix_folder_resolves_to_its_only_bundle(bundle, tmp_path, monkeypatch):
    folder = tmp_path / "data" / "attack"
    folder.mkdir(parents=True)
    (folder / "LICENSE.txt").write_text("terms")
    monkeypatch.setenv("RAGAUGE_DATA", str(tmp_path / "data"))
    with pytest.raises(BadInput, match="the folder has no JSON file"):
        ragauge.load("stix:attack")
    (folder / "one.json.gz").write_bytes(gzip.compress(bundle.read_bytes()))
    data = ragauge.load("stix:attack(hops=2)")
    assert data.origin == f"stix:{folder / 'one.json.gz'}(hops=2)"
    assert ragauge.load(f"stix:{folder}").queries == load_stix(bundle).queries
    assert ragauge.load(data.origin).queries == data.queries
    (folder / "two.json").write_text("{}")
    with pytest.raises(BadInput, match="the folder has 2 JSON files"):
        ragauge.load("stix:attack")
    with pytest.raises(BadInput, match="no such file"):
        ragauge.load("stix:absent")


def test_list_datasets_lists_stix_bundles_by_name(bundle, tmp_path, monkeypatch):
    for name in ("attack", "two", "other", "torn", "empty"):
        (tmp_path / "data" / name).mkdir(parents=True)
    compressed = gzip.compress(bundle.read_bytes())
    (tmp_path / "data" / "attack" / "one.json.gz").write_bytes(compressed)
    (tmp_path / "data" / "torn" / "one.json.gz").write_bytes(b"\x1f\x8b" + compressed[40:])
    (tmp_path / "data" / "other" / "about.json").write_text('{"type": "report", "objects": []}')
    for name in ("a", "b"):
        (tmp_path / "data" / "two" / f"{name}.json").write_bytes(bundle.read_bytes())
    monkeypatch.setenv("RAGAUGE_DATA", str(tmp_path / "data"))
    locations = {dataset.name: dataset.about for dataset in list_datasets() if dataset.kind == "file"}
    assert list(locations) == ["stix:FILE", "stix:attack"]
    assert locations["stix:attack"] == str(tmp_path / "data" / "attack" / "one.json.gz")
    assert len(ragauge.load("stix:attack").documents) == len(load_stix(bundle).documents)
    with pytest.raises(UnknownName, match="unknown dataset `attac`") as caught:
        ragauge.load("attac")
    assert "did you mean `stix:attack`" in str(caught.value.hint)


def test_two_hop_paths_use_known_relations_and_types():
    for path in TWO_HOP_PATHS:
        assert {path.first.removeprefix("<"), path.second.removeprefix("<")} <= set(RELATION_WORDINGS)
        assert {*path.start_types, path.via, path.target_type} <= set(TYPE_NAMES)
        assert "{name}" in path.wording
        assert "campaign" not in (path.via, path.target_type)


def read_relations(path):
    """Return the active objects of a bundle and the graph of their relations, without `load_stix`."""
    objects = {
        stix_object["id"]: stix_object for stix_object in json.loads(gzip.decompress(path.read_bytes()))["objects"]
    }
    active = {
        name: stix_object
        for name, stix_object in objects.items()
        if not stix_object.get("revoked") and not stix_object.get("x_mitre_deprecated")
    }
    graph = nx.MultiDiGraph()
    tactics = {
        stix_object["x_mitre_shortname"]: name
        for name, stix_object in active.items()
        if stix_object["type"] == "x-mitre-tactic"
    }
    for name, stix_object in active.items():
        if stix_object["type"] == "relationship":
            graph.add_edge(stix_object["source_ref"], stix_object["target_ref"], stix_object["relationship_type"])
        for phase in stix_object.get("kill_chain_phases", ()):
            graph.add_edge(name, tactics[phase["phase_name"]], "serves")
        for analytic in stix_object.get("x_mitre_analytic_refs", ()):
            for log in active[analytic].get("x_mitre_log_source_references", ()):
                graph.add_edge(name, log["x_mitre_data_component_ref"], "reads")
    return active, graph


def follow_relation(graph, names, relation):
    if relation.startswith("<"):
        return {a for name in names for a, _, kind in graph.in_edges(name, keys=True) if kind == relation[1:]}
    return {b for name in names for _, b, kind in graph.out_edges(name, keys=True) if kind == relation}


@pytest.mark.slow
def test_load_stix_enterprise_two_hop_answers_match_networkx(shared):
    path = shared(ENTERPRISE)
    data = load_stix(path, hops=2)
    active, graph = read_relations(path)
    paths_by_words = {}
    for one in TWO_HOP_PATHS:
        for start_type in one.start_types:
            relation_names = [
                RELATION_WORDINGS[relation[1:]].inverse_name if relation.startswith("<") else relation
                for relation in (one.first, one.second)
            ]
            words = [
                TYPE_NAMES[start_type][0],
                relation_names[0],
                TYPE_NAMES[one.via][0],
                relation_names[1],
                TYPE_NAMES[one.target_type][0],
            ]
            paths_by_words[" ".join(words)] = start_type, one
    numbers = {
        (one["type"], reference["external_id"]): name
        for name, one in active.items()
        for reference in one.get("external_references", ())[:1]
        if "external_id" in reference
    }
    for query, grades in list(data.judgments.nested.items())[::7]:
        start_type, one = paths_by_words[data.tags[query]["path"]]
        start = numbers[start_type, query.rpartition(":")[2]]
        via = {
            name
            for name in follow_relation(graph, {start}, one.first)
            if name in active and active[name]["type"] == one.via
        }
        targets = follow_relation(graph, via, one.second) - {start}
        assert set(grades) == {name for name in targets if name in active and active[name]["type"] == one.target_type}
    assert len(data.queries) == len(set(data.queries.values())) == 6237
    path_counts = Counter(tags["path"] for tags in data.tags.values())
    assert set(path_counts) == set(paths_by_words)
    assert {tags["path"] for tags in list(data.tags.values())[: len(paths_by_words)]} == set(paths_by_words)
    assert sum(len(to) for one in data.documents for to in one.metadata["links"].values()) == 22215
    assert len({target for (target,) in data.judgments.targets.values()}) == 2502 - 475


def test_load_stix_one_hop_fingerprint_is_unchanged(shared):
    fingerprint = dataset_fingerprint(load_stix(shared(ENTERPRISE)))
    assert fingerprint["documents_hash"] == "05f6b9bf51f659756242aea34ad04cb4"
    assert fingerprint["queries_hash"] == "9a786d7c998d9fd47339ff2752ef1d6f"
