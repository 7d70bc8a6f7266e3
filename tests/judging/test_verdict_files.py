"""Verdict files: verdicts survive a round trip, and an invalid value raises an error with its line."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.errors import BadInput
from ragauge.core.samples import Claim, GeneratedQuestion, Support, Unscored, Usefulness, Verdicts
from ragauge.files.serialization import from_json_data, to_json_data
from ragauge.judging.all_steps import describe_kinds
from ragauge.judging.results_folder import read_verdicts, write_verdicts

EXAMPLE_VERDICTS = Verdicts(
    "s1",
    ["answer", "cross"],
    {"answer": [Claim("a1", "in 1887", 1, (1, 2))], "reference": []},
    {"a1": Support(("k1", "reference"), ("k2",), "it says so", 0.75, ("k3", "k4"))},
    {"k1": Usefulness(True, "has the year", 0.9), "k2": Usefulness(False)},
    [GeneratedQuestion("When?", 0.5)],
    refusal=False,
    unscored={"useful k3": Unscored("the reply was cut off", '{"verdicts": [')},
    left_out={"answer": ["Thank you!"]},
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
share = st.none() | st.floats(0, 1)
sources = st.lists(st.sampled_from(["k1", "k2", "k*", "answer", "reference"]), unique=True).map(tuple)
cites = st.none() | st.lists(st.integers(1, 99), max_size=3).map(tuple)


def claim_lists(prefix):
    fields = st.tuples(text, st.integers(1, 9), cites)
    return st.lists(fields, max_size=3).map(
        lambda rows: [Claim(f"{prefix}{number}", *values) for number, values in enumerate(rows, 1)]
    )


verdicts = st.builds(
    Verdicts,
    name,
    st.lists(st.sampled_from(list(describe_kinds())), unique=True),
    st.fixed_dictionaries({}, optional={"answer": claim_lists("a"), "reference": claim_lists("r")}),
    st.dictionaries(name, st.builds(Support, sources, sources, text, share, sources), max_size=3),
    st.dictionaries(name, st.builds(Usefulness, st.booleans(), text, share), max_size=3),
    st.lists(st.builds(GeneratedQuestion, text, st.floats(-1, 1)), max_size=3),
    st.none() | st.booleans(),
    st.dictionaries(name, st.builds(Unscored, text, text), max_size=2),
    st.dictionaries(st.sampled_from(["answer", "reference"]), st.lists(text, max_size=2), max_size=2),
)


@given(verdicts)
def test_verdicts_json_round_trip(original):
    assert (
        from_json_data(Verdicts, json.loads(json.dumps(to_json_data(original), allow_nan=False)), source="x")
        == original
    )


def test_write_verdicts_round_trip_of_several_samples(tmp_path):
    path = str(tmp_path / "verdicts.jsonl.gz")
    other = Verdicts("s2", [], questions=[])
    write_verdicts([EXAMPLE_VERDICTS, other], path)
    assert read_verdicts(path) == {"s1": EXAMPLE_VERDICTS, "s2": other}


def test_read_verdicts_accepts_older_file_without_together(tmp_path):
    path, line = tmp_path / "verdicts.jsonl", to_json_data(EXAMPLE_VERDICTS)
    assert line["support"]["a1"].pop("together") == ["k3", "k4"]
    assert line.pop("left_out") == {"answer": ["Thank you!"]}
    path.write_text(json.dumps(line) + "\n")
    assert read_verdicts(str(path))["s1"].support["a1"] == EXAMPLE_VERDICTS.support["a1"]._replace(together=())


def test_read_verdicts_duplicate_key_raises_with_line(tmp_path):
    path, line = tmp_path / "verdicts.jsonl", json.dumps(to_json_data(EXAMPLE_VERDICTS))
    for old, new, name in (
        ('"refusal": false', '"refusal": true, "refusal": false', "refusal"),
        ('"by": ["k1"', '"by": [], "by": ["k1"', "by"),
        ('"k2": {', '"k1": {"useful": false}, "k2": {', "k1"),
    ):
        path.write_text(json.dumps(to_json_data(Verdicts("s0"))) + "\n" + line.replace(old, new) + "\n")
        with pytest.raises(BadInput, match=rf":2: the JSON cannot be read \(duplicate key `{name}`"):
            read_verdicts(str(path))


def test_write_verdicts_nan_is_null(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    write_verdicts([Verdicts("s", questions=[GeneratedQuestion("?", math.nan)])], str(path))
    assert "NaN" not in path.read_text()
    assert math.isnan(read_verdicts(str(path))["s"].questions[0].similarity)


def test_write_verdicts_replaces_lone_surrogate(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    write_verdicts([Verdicts("s", unscored={"questions": Unscored("unreadable", "\ud83d")})], str(path))
    assert read_verdicts(str(path))["s"].unscored["questions"].reply == "?"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample": ""}, "the sample has no id"),
        ({"sample": 7}, "sample: expected a text, got 7"),
        ({"verdict": 1}, 'unknown key "verdict"'),
        ({"asked": ["everything"]}, "asked: unknown `everything`"),
        ({"asked": "answer"}, "asked: expected a list"),
        ({"claims": {"question": []}}, "claims: unknown `question`"),
        ({"claims": {"answer": [{"id": "a1", "text": "x", "sentence": 0}]}}, "of the claim `a1` must be at least 1"),
        ({"claims": {"answer": [{"id": "r1", "text": "x", "sentence": 1}]}}, "must begin with a"),
        ({"claims": {"answer": [{"id": "a1", "text": "x", "sentence": 1, "cites": "1"}]}}, "cites: expected a list"),
        (
            {"claims": {"answer": [{"id": "a1", "text": "x", "sentence": 1}] * 2}},
            "the claim `a1` of the answer appears more than once",
        ),
        ({"support": {"a1": True}}, "support.a1: expected an object"),
        ({"support": {"a1": {"by": "k1"}}}, "support.a1.by: expected a list"),
        ({"support": {"a1": {"by": [1]}}}, "support.a1.by[0]: expected a text"),
        ({"support": {"a1": {"by": [], "probability": 1.5}}}, "must be between 0 and 1"),
        ({"support": {"a1": {"by": [], "verdict": 1}}}, 'unknown key "verdict"'),
        ({"useful": {"k1": {"useful": 1}}}, "useful.k1.useful: expected true or false"),
        ({"useful": {"k1": {"words": "yes"}}}, 'useful.k1: missing key "useful"'),
        ({"questions": [{"text": "?", "similarity": "near"}]}, "questions[0].similarity: expected a number"),
        ({"refusal": "no"}, "refusal: expected true or false"),
        ({"unscored": {"questions": {"reply": "x"}}}, 'unscored.questions: missing key "reason"'),
        ({"unscored": []}, "unscored: expected an object"),
        ({"left_out": {"question": []}}, "left_out: unknown `question`"),
        ({"left_out": {"answer": [1]}}, "left_out.answer[0]: expected a text"),
    ],
)
def test_read_verdicts_invalid_value_raises_with_line(change, message, tmp_path):
    path = tmp_path / "verdicts.jsonl"
    path.write_text(
        json.dumps(to_json_data(Verdicts("s0"))) + "\n" + json.dumps(to_json_data(EXAMPLE_VERDICTS) | change) + "\n"
    )
    with pytest.raises(BadInput) as caught:
        read_verdicts(str(path))
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)


def test_read_verdicts_duplicate_sample_or_empty_file_raises(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    line = json.dumps(to_json_data(EXAMPLE_VERDICTS)) + "\n"
    path.write_text(line * 2)
    with pytest.raises(BadInput, match=r":2: the sample `s1` appears more than once"):
        read_verdicts(str(path))
    path.write_text("\n")
    with pytest.raises(BadInput, match="no verdicts found"):
        read_verdicts(str(path))
    path.write_text(line[:-20])
    with pytest.raises(BadInput, match=r":1: the JSON cannot be read"):
        read_verdicts(str(path))
