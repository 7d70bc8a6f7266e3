"""Results as JSON data: round trips, declared forms, schemas, and errors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.record_types import json_form
from ragauge.core.records import Dataset, Judgments
from ragauge.files.json_schemas import json_schema
from ragauge.files.serialization import detect_schema, from_json_data, read_record, to_json_data
from ragauge.knowledge.gain.results import BatchStep, Gain, GainTerm, QueryChange
from ragauge.knowledge.lint.results import Lint
from ragauge.store_stress.results import IngestionResult, OperationTiming, ReadBack, Stage, StoreFailure, StressTest

DOCUMENTS = [Document("a", "red fox"), Document("b", "brown dog", "Dogs", {"n": 1})]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def round_trip_json(value):
    return json.loads(json.dumps(to_json_data(value), allow_nan=False))


def test_to_json_data_nested_results_round_trip():
    timing = OperationTiming(2, 0.5, 250.0, 240.0, 260.0, 260.0, 260.0)
    stage, tried = Stage("reading back", "killed"), [(1, False), (3, True)]
    broken = StoreFailure("one by one", stage, "boom\n  at 3", True, 2, "d3", 3, tried, True, "x")
    ingestion = IngestionResult(
        "one by one", 3, put=timing, read_back=[ReadBack("at once", 3, 2, [], {"lost": 1})], broken=broken
    )
    result = StressTest("faulty", 3, 1, [ingestion], description={"version": "1", "options": {"a": [1, 2]}})
    restored = from_json_data(StressTest, round_trip_json(result), source="x.json")
    assert to_json_data(restored) == to_json_data(result)
    assert restored.modes[0].put == timing
    assert restored.broken is not None
    assert restored.broken.stage == stage
    assert restored.broken.tried == tried


def test_to_json_data_nan_is_null_and_round_trips():
    change = QueryChange("q1", "what?", math.nan, {"mrr": math.inf}, ("d1",))
    data = round_trip_json(change)
    assert data["gain"] is None
    assert data["changes"] == {"mrr": None}
    restored = from_json_data(QueryChange, data, source="x.json")
    assert math.isnan(restored.gain)
    assert restored.entered == ("d1",)


def test_to_json_data_numpy_values_are_plain_numbers():
    assert to_json_data({"a": np.float32(0.5), "b": np.arange(2), "c": np.bool_(True)}) == {
        "a": 0.5,
        "b": [0, 1],
        "c": True,
    }


def test_from_json_data_ignores_unknown_and_defaults_missing_fields():
    assert from_json_data(BatchStep, {"id": "d", "marginal": 1, "total": 2, "new": 3}, source="x") == BatchStep(
        "d", 1.0, 2.0
    )
    assert from_json_data(GainTerm, {"name": "mrr", "weight": 1.0, "value": 0.5}, source="x").n == 0


@pytest.mark.parametrize("data", [{"id": "d"}, [], "text", {"id": 3, "marginal": 1, "total": 2}, None])
def test_from_json_data_wrong_type_raises_with_source(data):
    with pytest.raises(BadInput, match=r"^x\.json: "):
        from_json_data(BatchStep, data, source="x.json")


def test_to_json_data_finding_grid_round_trip():
    lint = Lint(
        "c",
        1,
        [Finding("c", "empty", True, 1, "one", ["d1"], table=FindingTable(["a", "b"], [["x", 1.5], ["y", None]]))],
    )
    restored = from_json_data(Lint, round_trip_json(lint), source="x.json")
    assert restored.findings[0].table is not None
    assert restored.findings[0].table.rows == [["x", 1.5], ["y", None]]


@given(st.floats(-1, 1), st.lists(st.tuples(st.text(), FLOATS, FLOATS)), st.text())
def test_to_json_data_random_gain_round_trip(total, batch, note):
    gain = Gain(
        total,
        math.nan,
        math.nan,
        0.95,
        [],
        10,
        0,
        0,
        0,
        3,
        [],
        batch=[BatchStep(*step) for step in batch],
        notes=[note],
    )
    restored = from_json_data(Gain, round_trip_json(gain), source="x.json")
    assert restored.total == total
    assert list(restored.batch) == list(gain.batch)
    assert math.isnan(restored.low)
    assert restored.notes == [note]


@pytest.mark.parametrize(
    "documents",
    [
        DOCUMENTS,
        [("a", "red fox"), DOCUMENTS[1]],
        [{"id": "a", "text": "red fox"}, {"_id": "b", "text": "brown dog", "title": "Dogs", "metadata": {"n": 1}}],
        (document for document in DOCUMENTS),
    ],
)
def test_dataset_accepts_pairs_and_mappings(documents):
    result = Dataset("d", documents, {"q": "fox"}, {"q": {"a": 1}})
    assert list(result.documents) == DOCUMENTS
    assert isinstance(result.judgments, Judgments)
    assert result.judgments.nested == {"q": {"a": 1}}
    assert Dataset("d", {"a": "red fox"}, {}, {}).documents == DOCUMENTS[:1]


@pytest.mark.parametrize("documents", [["abc"], [("a",)], "abc", [{"id": "a"}], 5, [("a", 3)], [{"text": "x"}]])
def test_dataset_rejects_invalid_documents(documents):
    with pytest.raises(BadInput, match=r"not a document|documents must be a list or a mapping"):
        Dataset("d", documents, {}, {})


@pytest.mark.parametrize("judgments", [{"q": ["a"]}, [("q", "a", 1)], None])
def test_dataset_rejects_invalid_judgments(judgments):
    with pytest.raises(BadInput, match="must be a mapping of mappings"):
        Dataset("d", [], {}, judgments)


class Span(NamedTuple):
    start: float
    end: float = math.nan


@json_form(
    derived=("length",),
    renamed={"label": "name", "length": "size"},
    omitted=("cache",),
    optional=("note",),
    flattened={"span": ("from", "to")},
)
@dataclass(frozen=True)
class DerivedSpan:
    """Part of a line."""

    label: str
    """Name of the part."""
    span: Span
    note: str = ""
    side: Literal["left", "right"] = "left"
    when: datetime | None = None
    counts: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    cache: Any = None

    @property
    def length(self) -> float:
        """Difference of both ends."""
        return self.span.end - self.span.start


RANGE = DerivedSpan("a", Span(1.0, 3.0), when=datetime(2026, 11, 18, 12, tzinfo=UTC), counts={2: (3, 0.5)}, cache=[1])


def test_json_form_declared_form_round_trip():
    data = round_trip_json(RANGE)
    assert data == {
        "name": "a",
        "from": 1.0,
        "to": 3.0,
        "side": "left",
        "when": "2026-11-18T12:00:00+00:00",
        "counts": {"2": [3, 0.5]},
        "size": 2.0,
    }
    assert from_json_data(DerivedSpan, data, source="x") == replace(RANGE, cache=None)
    assert round_trip_json(replace(RANGE, note="n"))["note"] == "n"


def test_json_schema_declared_form_has_keys_and_descriptions():
    result = json_schema(DerivedSpan)
    assert list(result["properties"]) == ["name", "from", "to", "note", "side", "when", "counts", "size"]
    assert result["required"] == ["name", "from", "to", "side", "when", "counts", "size"]
    assert result["properties"]["name"] == {"description": "Name of the part.", "type": "string"}
    assert result["properties"]["side"] == {"enum": ["left", "right"]}
    assert result["properties"]["size"]["description"] == "Difference of both ends."
    Draft202012Validator(result).validate(round_trip_json(RANGE))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name: expected a text, got 3"),
        ({"side": "top"}, 'side: expected one of "left", "right", got "top"'),
        ({"to": "far"}, 'from.end: expected a number, got "far"'),
        ({"when": "noon"}, 'when: expected a date and time, got "noon"'),
        ({"counts": {"2": [3]}}, "counts.2: expected a list of 2 items, got [3]"),
        ({"counts": {"2": [3, True]}}, "counts.2[1]: expected a number, got true"),
        ({"counts": {"x": [3, 1]}}, 'counts: expected an integer as key, got "x"'),
    ],
)
def test_from_json_data_error_names_path_of_wrong_value(change, message):
    with pytest.raises(BadInput) as refused:
        from_json_data(DerivedSpan, round_trip_json(RANGE) | change, source="x.json")
    assert refused.value.message == f"x.json: {message}"


def test_from_json_data_strict_rejects_unknown_keys():
    data = round_trip_json(RANGE)
    assert from_json_data(DerivedSpan, data, source="x", strict=True).label == "a"
    with pytest.raises(BadInput, match='unknown key "colour"'):
        from_json_data(DerivedSpan, data | {"colour": "red"}, source="x", strict=True)


def test_from_json_data_missing_key_raises_error():
    with pytest.raises(BadInput, match=r'x: missing key "name"'):
        from_json_data(DerivedSpan, {"from": 1, "to": 2}, source="x")


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ('{"schema": "ragauge-lint/1", "corpus": "c"}', "ragauge-lint"),
        ('[\n {\n  "schema": "ragauge-lint/1"', "ragauge-lint"),
        ('{"schema": "other-lint/1"}', None),
        ('{"corpus": "c", "schema": "ragauge-lint/1"}', None),
        ("", None),
    ],
)
def test_detect_schema_reads_only_first_key(tmp_path, text, schema):
    path = tmp_path / "x.json"
    path.write_text(text)
    assert detect_schema(path) == schema
    assert detect_schema(tmp_path) is None


@pytest.mark.parametrize("text", ['{"schema": "ragauge-lint/9"}', '{"schema": 3}', "[1]", '{"schema": "ragauge-x/1"}'])
def test_read_record_unknown_schema_or_version_raises_error(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="schema"):
        read_record(path)
