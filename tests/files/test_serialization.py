"""Nouns as plain data and back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Dataset, Judgments
from ragauge.files.serialization import from_json_data, to_json_data
from ragauge.knowledge.gain.results import BatchStep, Gain, GainTerm, QueryChange
from ragauge.knowledge.lint.results import Lint
from ragauge.store_stress.results import IngestionResult, OperationTiming, ReadBack, StoreFailure, StressTest

DOCUMENTS = [Document("a", "red fox"), Document("b", "brown dog", "Dogs", {"n": 1})]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def through_json(thing):
    return json.loads(json.dumps(to_json_data(thing), allow_nan=False))


def test_a_noun_within_a_noun_comes_back_as_it_went():
    timing = OperationTiming(2, 0.5, 250.0, 240.0, 260.0, 260.0, 260.0)
    broken = StoreFailure("one by one", "putting", "boom\n  at 3", True, 2, "d3", 3, [(1, False), (3, True)], True, "x")
    way = IngestionResult(
        "one by one", 3, put=timing, read_back=[ReadBack("at once", 3, 2, [], {"lost": 1})], broken=broken
    )
    ordeal = StressTest("faulty", 3, 1, [way], about={"version": "1", "options": {"a": [1, 2]}})
    again = from_json_data(StressTest, through_json(ordeal), file="x.json")
    assert to_json_data(again) == to_json_data(ordeal)
    assert again.ways[0].put == timing
    assert again.broken is not None
    assert again.broken.tried == [(1, False), (3, True)]


def test_no_number_is_null_and_comes_back_as_no_number():
    change = QueryChange("q1", "what?", math.nan, {"mrr": math.inf}, ("d1",))
    data = through_json(change)
    assert data["gain"] is None
    assert data["changes"] == {"mrr": None}
    again = from_json_data(QueryChange, data, file="x.json")
    assert math.isnan(again.gain)
    assert again.entered == ("d1",)


def test_numbers_of_numpy_are_plain_numbers():
    assert to_json_data({"a": np.float32(0.5), "b": np.arange(2), "c": np.bool_(True)}) == {
        "a": 0.5,
        "b": [0, 1],
        "c": True,
    }


def test_what_is_not_known_is_let_be_and_what_lacks_has_its_default():
    assert from_json_data(BatchStep, {"id": "d", "marginal": 1, "total": 2, "new": 3}, file="x") == BatchStep(
        "d", 1.0, 2.0
    )
    assert from_json_data(GainTerm, {"name": "mrr", "weight": 1.0, "value": 0.5}, file="x").n == 0


@pytest.mark.parametrize("data", [{"id": "d"}, [], "text", {"id": 3, "marginal": 1, "total": 2}, None])
def test_data_of_something_else_is_refused_with_the_file(data):
    with pytest.raises(BadInput, match=r"^x\.json: this BatchStep cannot be read"):
        from_json_data(BatchStep, data, file="x.json")


def test_a_finding_keeps_its_table():
    lint = Lint(
        "c",
        1,
        [Finding("c", "empty", True, 1, "one", ["d1"], grid=FindingTable(["a", "b"], [["x", 1.5], ["y", None]]))],
    )
    again = from_json_data(Lint, through_json(lint), file="x.json")
    assert again.findings[0].grid is not None
    assert again.findings[0].grid.rows == [["x", 1.5], ["y", None]]


@given(st.floats(-1, 1), st.lists(st.tuples(st.text(), FLOATS, FLOATS)), st.text())
def test_any_gain_comes_back(total, batch, note):
    gain = Gain(
        total, math.nan, math.nan, 0.95, [], 10, 0, 0, 0, 3, [], batch=[BatchStep(*one) for one in batch], notes=[note]
    )
    again = from_json_data(Gain, through_json(gain), file="x.json")
    assert again.total == total
    assert list(again.batch) == list(gain.batch)
    assert math.isnan(again.low)
    assert again.notes == [note]


@pytest.mark.parametrize(
    "documents",
    [
        DOCUMENTS,
        [("a", "red fox"), DOCUMENTS[1]],
        [{"id": "a", "text": "red fox"}, {"_id": "b", "text": "brown dog", "title": "Dogs", "metadata": {"n": 1}}],
        (one for one in DOCUMENTS),
    ],
)
def test_dataset_takes_pairs_and_mappings(documents):
    found = Dataset("d", documents, {"q": "fox"}, {"q": {"a": 1}})
    assert list(found.documents) == DOCUMENTS
    assert isinstance(found.judgments, Judgments)
    assert found.judgments.nested == {"q": {"a": 1}}
    assert Dataset("d", {"a": "red fox"}, {}, {}).documents == DOCUMENTS[:1]


@pytest.mark.parametrize("documents", [["abc"], [("a",)], "abc", [{"id": "a"}], 5, [("a", 3)], [{"text": "x"}]])
def test_dataset_refuses_what_is_not_a_document(documents):
    with pytest.raises(BadInput, match=r"not a document|documents must be a list or a mapping"):
        Dataset("d", documents, {}, {})


@pytest.mark.parametrize("judgments", [{"q": ["a"]}, [("q", "a", 1)], None])
def test_dataset_refuses_what_are_not_judgments(judgments):
    with pytest.raises(BadInput, match="must be a mapping of mappings"):
        Dataset("d", [], {}, judgments)
