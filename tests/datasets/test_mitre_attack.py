"""ATT&CK bundles: documents and queries made from their objects, and errors for invalid bundles."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
from typer.testing import CliRunner

import ragauge
from ragauge.cli.app import build_app
from ragauge.core.errors import BadInput
from ragauge.datasets import judgments_by_name
from ragauge.datasets.mitre_attack import load_stix
from ragauge.files.source import InputFile
from ragauge.files.stix import read_stix_bundle

ENTERPRISE = "attack/enterprise-attack-18.1.stix21.json.gz"


def make_object(kind: str, number: str, name: str, text: str | None = "A description.", **more) -> dict:
    description = {} if text is None else {"description": text}
    reference = {"source_name": "mitre-attack", "external_id": number, "url": f"https://attack.mitre.org/{number}"}
    other = {"source_name": "a blog", "url": "https://example.org", "external_id": "not this"}
    fields = {"type": kind, "id": f"{kind}--{number}", "spec_version": "2.1", "name": name}
    return {**fields, **description, "external_references": [other, reference], **more}


def make_relation(source: str, kind: str, target: str, **more) -> dict:
    name = f"relationship--{source}-{kind}-{target}"
    return {
        "type": "relationship",
        "id": name,
        "relationship_type": kind,
        "source_ref": source,
        "target_ref": target,
        **more,
    }


GROUP, OTHER_GROUP = "intrusion-set--G1", "intrusion-set--G2"
TECHNIQUE, SUBTECHNIQUE, REVOKED = "attack-pattern--T1", "attack-pattern--T1.001", "attack-pattern--T9"
STRATEGY, COMPONENT = "x-mitre-detection-strategy--DET1", "x-mitre-data-component--DC1"
OBJECTS = [
    {"type": "identity", "id": "identity--1", "name": "The MITRE Corporation"},
    make_object("intrusion-set", "G1", "Grey Fox", revoked=False, x_mitre_deprecated=False),
    make_object("intrusion-set", "G2", "Red Hare"),
    make_object("attack-pattern", "T1", "Injection", kill_chain_phases=[{"phase_name": "stealth"}]),
    make_object("attack-pattern", "T1.001", "Window Memory", kill_chain_phases=[{"phase_name": "stealth"}]),
    make_object("attack-pattern", "T9", "Old Way", revoked=True),
    make_object("course-of-action", "T1", "Old Mitigation", x_mitre_deprecated=True),
    make_object("course-of-action", "M1", "Isolation"),
    make_object("campaign", "C1", "Night Run"),
    make_object("x-mitre-tactic", "TA1", "Stealth", x_mitre_shortname="stealth"),
    make_object(
        "x-mitre-data-component", "DC1", "Process Creation", x_mitre_data_source_ref="x-mitre-data-source--absent"
    ),
    make_object(
        "x-mitre-detection-strategy",
        "DET1",
        "Watch",
        None,
        x_mitre_analytic_refs=["x-mitre-analytic--AN1", "x-mitre-analytic--AN2", "x-mitre-analytic--absent"],
    ),
    make_object(
        "x-mitre-analytic",
        "AN1",
        "Analytic 1",
        "Look at windows.",
        x_mitre_log_source_references=[{"x_mitre_data_component_ref": COMPONENT}],
    ),
    make_object("x-mitre-analytic", "AN2", "Analytic 2", "Look at memory."),
    make_object("x-mitre-detection-strategy", "DET2", "Nothing but a name", None),
    make_relation(GROUP, "uses", SUBTECHNIQUE),
    make_relation(GROUP, "uses", TECHNIQUE),
    make_relation(OTHER_GROUP, "uses", SUBTECHNIQUE),
    make_relation(GROUP, "uses", REVOKED),
    make_relation(GROUP, "uses", "attack-pattern--absent"),
    make_relation(OTHER_GROUP, "uses", TECHNIQUE, x_mitre_deprecated=True),
    make_relation(REVOKED, "revoked-by", TECHNIQUE),
    make_relation(SUBTECHNIQUE, "subtechnique-of", TECHNIQUE),
    make_relation("course-of-action--M1", "mitigates", SUBTECHNIQUE),
    make_relation("course-of-action--T1", "mitigates", TECHNIQUE),
    make_relation(STRATEGY, "detects", SUBTECHNIQUE),
    make_relation("campaign--C1", "attributed-to", GROUP),
    make_relation("campaign--C1", "uses", TECHNIQUE),
]


def write_bundle(path, objects=OBJECTS, **fields):
    path.write_text(json.dumps({"type": "bundle", "id": "bundle--1", **fields, "objects": objects}, indent=1))
    return path


@pytest.fixture
def bundle(tmp_path):
    return write_bundle(tmp_path / "small.json")


def test_load_stix_active_objects_become_documents(bundle):
    data = load_stix(bundle)
    assert [one.id for one in data.documents] == [
        GROUP,
        OTHER_GROUP,
        TECHNIQUE,
        SUBTECHNIQUE,
        "course-of-action--M1",
        "x-mitre-tactic--TA1",
        COMPONENT,
        STRATEGY,
        "x-mitre-detection-strategy--DET2",
    ]
    first = data.documents[0]
    assert (first.title, first.text) == ("Grey Fox", "A description.")
    assert first.metadata == {
        "type": "intrusion-set",
        "external_id": "G1",
        "url": "https://attack.mitre.org/G1",
        "name": "Grey Fox",
    }


def test_load_stix_detection_strategy_text_joins_its_analytics(bundle):
    data = load_stix(bundle)
    assert data.texts[STRATEGY] == "Look at windows.\n\nLook at memory."
    assert data.texts["x-mitre-detection-strategy--DET2"] == ""
    assert "documents with a name and no text: 1" in data.about


def test_load_stix_relations_become_questions_in_both_directions(bundle):
    data = load_stix(bundle)
    answers_by_query = {data.queries[name]: sorted(docs) for name, docs in data.judgments.nested.items()}
    assert answers_by_query == {
        "Which techniques does the group Grey Fox use?": [TECHNIQUE, SUBTECHNIQUE],
        "Which techniques does the group Red Hare use?": [SUBTECHNIQUE],
        "Which techniques does the campaign Night Run use?": [TECHNIQUE],
        "Which groups use the technique Injection?": [GROUP],
        "Which groups use the technique Injection: Window Memory?": [GROUP, OTHER_GROUP],
        "Which techniques does the mitigation Isolation mitigate?": [SUBTECHNIQUE],
        "Which mitigations mitigate the technique Injection: Window Memory?": ["course-of-action--M1"],
        "Which techniques does the detection strategy Watch detect?": [SUBTECHNIQUE],
        "Which detection strategies detect the technique Injection: Window Memory?": [STRATEGY],
        "Of which technique is Window Memory a sub-technique?": [TECHNIQUE],
        "What are the sub-techniques of Injection?": [SUBTECHNIQUE],
        "To which group is the campaign Night Run attributed?": [GROUP],
        "Which tactics does the technique Injection serve?": ["x-mitre-tactic--TA1"],
        "Which tactics does the technique Injection: Window Memory serve?": ["x-mitre-tactic--TA1"],
        "Which techniques serve the tactic Stealth?": [TECHNIQUE, SUBTECHNIQUE],
        "Which data components does the detection strategy Watch read?": [COMPONENT],
        "Which detection strategies read the data component Process Creation?": [STRATEGY],
    }
    assert data.tags["technique-used-by-group:T1.001"] == {
        "relation": "technique used-by group",
        "asked": "technique",
        "wanted": "group",
        "answers": "few",
        "complexity": "simple",
    }


def test_load_stix_about_counts_omitted_objects(bundle):
    about = load_stix(bundle).about
    for part in (
        "1 revoked",
        "1 deprecated",
        "1 relations that are retired",
        "1 relations `revoked-by`",
        "2 relations to objects that are not there",
        "2 relations of objects that are left out",
    ):
        assert part in about


def test_load_stix_keeps_retired_objects_and_campaigns_on_request(bundle):
    data = load_stix(bundle, retired=True, campaigns=True)
    documents = {document.id: document for document in data.documents}
    assert documents[REVOKED].metadata["retired"] == "revoked"
    assert documents["course-of-action--T1"].metadata["retired"] == "deprecated"
    texts = set(data.queries.values())
    assert "Which campaigns are attributed to the group Grey Fox?" in texts
    assert "Which campaigns use the technique Injection?" in texts
    # The technique and the retired mitigation share the number T1, but their query ids must differ.
    assert f"technique-used-by-group:{TECHNIQUE}" in data.queries
    assert len(data.queries) == len(set(data.queries)) == len(texts)


def test_load_stix_least_and_most_limit_number_of_answers(bundle):
    assert {len(docs) for docs in load_stix(bundle, least=2).judgments.nested.values()} == {2}
    assert {len(docs) for docs in load_stix(bundle, most=1).judgments.nested.values()} == {1}
    with pytest.raises(BadInput, match="no question can be made"):
        load_stix(bundle, least=99)


def test_load_stix_duplicate_names_are_distinguished_by_number(tmp_path):
    objects = [
        make_object("tool", "S1", "Net"),
        make_object("tool", "S2", "Net"),
        make_object("attack-pattern", "T1", "Injection"),
    ]
    relations = [make_relation(f"tool--S{n}", "uses", TECHNIQUE) for n in (1, 2)]
    data = load_stix(write_bundle(tmp_path / "twins.json", [*objects, *relations]))
    assert data.queries["tool-uses-technique:S1"] == "Which techniques does the tool Net (S1) use?"
    assert data.queries["tool-uses-technique:S2"] == "Which techniques does the tool Net (S2) use?"


def test_read_stix_bundle_keeps_newest_version_of_object(tmp_path):
    versions = [
        make_object("tool", "S1", "Newest", modified="2024-01-01T00:00:00.500Z"),
        make_object("tool", "S1", "Oldest", modified="2020-01-01T00:00:00.000Z"),
        make_object("tool", "S1", "Older", modified="2024-01-01T00:00:00Z"),
    ]
    found = read_stix_bundle(InputFile(str(write_bundle(tmp_path / "versions.json", versions))))
    assert [one.name for one in found.nodes.values()] == ["Newest"]
    assert found.older == 2


def test_load_reads_plain_and_compressed_stix_bundle_by_name(bundle, tmp_path):
    compressed = tmp_path / "small(1).json.gz"
    compressed.write_bytes(gzip.compress(bundle.read_bytes()))
    plain = ragauge.load(f"stix:{bundle}")
    assert len(ragauge.load(f"stix:{compressed}").documents) == len(plain.documents) == 9
    assert len(ragauge.load(f"stix:{bundle}(retired=true, campaigns=true, most=5)").documents) == 12
    assert judgments_by_name(f"stix:{bundle}").nested == plain.judgments.nested
    with pytest.raises(BadInput, match="`retired=maybe` is not an option"):
        ragauge.load(f"stix:{bundle}(retired=maybe)")


def test_cli_run_accepts_stix_bundle(bundle, tmp_path):
    done = CliRunner().invoke(
        build_app(),
        ["run", f"stix:{bundle}", "-s", "bm25", "-m", "recall@10", "-o", str(tmp_path / "out"), "--json"],
    )
    assert done.exit_code == 0, done.output
    assert '"recall@10"' in done.output


def break_objects(*changes: tuple[int, dict]) -> list:
    objects = [dict(stix_object) for stix_object in OBJECTS]
    for index, change in changes:
        objects[index].update(change)
        for key in [key for key, value in change.items() if value is None]:
            del objects[index][key]
    return objects


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (break_objects((1, {"name": None})), "object 1 (`intrusion-set--G1`): `name` is missing; expected a text"),
        (break_objects((1, {"name": ""})), "object 1 (`intrusion-set--G1`): `name` is empty"),
        (break_objects((2, {"id": None})), "object 2: `id` is missing"),
        (break_objects((2, {"type": 7})), "object 2 (`intrusion-set--G2`): `type` is a number"),
        (break_objects((2, {"description": ["x"]})), "`description` is a list; expected a text"),
        (break_objects((2, {"revoked": "yes"})), "`revoked` is a text; expected true or false"),
        (break_objects((2, {"external_references": {"a": 1}})), "`external_references` is an object; expected a list"),
        (break_objects((15, {"source_ref": None})), "`source_ref` is missing"),
        (break_objects((15, {"target_ref": 3})), "`target_ref` is a number"),
        (["text"], "object 0: expected an object, found a text"),
    ],
)
def test_load_stix_invalid_object_error_names_file_line_and_object(tmp_path, objects, message):
    path = write_bundle(tmp_path / "broken.json", objects)
    with pytest.raises(BadInput) as error:
        load_stix(path)
    assert message in str(error.value)
    index = int(str(error.value).partition("object ")[2].split()[0].rstrip(":"))
    lines = path.read_text().splitlines()
    assert str(error.value).startswith(f"{path}:{error.value.line}: ")
    starts = [number for number, line in enumerate(lines, 1) if line.startswith(("  {", '  "'))]
    assert error.value.line == starts[index]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ('{"type": "bundle",\n "objects": [}', "the JSON cannot be read (Expecting value: line 2", 2),
        ('{"type": "bundle",\n "objects": [{"type"', "the JSON cannot be read", 2),
        ('{"type": "report", "objects": []}', "expected a STIX bundle, found an object of type 'report'", None),
        ("[1, 2]", "expected a STIX bundle, found a list", None),
        ('{"type": "bundle", "objects": {}}', "expected a list of objects, found an object", None),
        ('{"type": "bundle", "objects": []}', "no object can be a document", None),
        ("", "the JSON cannot be read", 1),
    ],
)
def test_load_stix_invalid_bundle_raises_error(tmp_path, text, message, line):
    path = tmp_path / "no.json"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        load_stix(path)
    assert message in str(error.value)
    assert error.value.line == line
    assert "hint:" in str(error.value)


def test_load_stix_missing_truncated_or_non_utf8_file_raises_error(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        load_stix(tmp_path / "absent.json")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(json.dumps(OBJECTS).encode())[:-40])
    with pytest.raises(BadInput, match="cannot be read to its end"):
        load_stix(tmp_path / "cut.json.gz")
    (tmp_path / "latin.json").write_bytes('{"type":\n "b\u00fcndle"}'.encode("latin-1"))
    with pytest.raises(BadInput, match=r"latin.json:2: the text is not UTF-8"):
        load_stix(tmp_path / "latin.json")


def test_load_stix_enterprise_bundle_has_expected_counts(shared):
    data = load_stix(shared(ENTERPRISE))
    assert Counter(document.metadata["type"] for document in data.documents) == {
        "attack-pattern": 691,
        "intrusion-set": 172,
        "malware": 693,
        "tool": 91,
        "course-of-action": 44,
        "x-mitre-data-component": 106,
        "x-mitre-tactic": 14,
        "x-mitre-detection-strategy": 691,
    }
    assert all(document.text and document.title for document in data.documents)
    assert "140 revoked, 287 deprecated, 140 relations `revoked-by`" in data.about
    ids = {document.id for document in data.documents}
    assert all(set(docs) <= ids for docs in data.judgments.nested.values())
    assert len(data.queries) == len(set(data.queries.values())) == 7109
    relation_counts = Counter(tags["relation"] for tags in data.tags.values())
    assert relation_counts["technique subtechnique-of technique"] == 475  # the number of active sub-techniques
    assert relation_counts["detection strategy detects technique"] == 691
    techniques = data.judgments.nested["group-uses-technique:G0016"]
    assert data.queries["group-uses-technique:G0016"] == "Which techniques does the group APT29 use?"
    assert len(techniques) > 50


def test_load_stix_origin_is_absolute_path(tmp_path, monkeypatch):
    write_bundle(tmp_path / "b.json")
    monkeypatch.chdir(tmp_path)
    data = ragauge.load("stix:b.json(retired=true)")
    assert data.origin == f"stix:{tmp_path / 'b.json'}(retired=true)"
    monkeypatch.chdir("/")
    assert [one.id for one in ragauge.load(data.origin).documents] == [one.id for one in data.documents]
