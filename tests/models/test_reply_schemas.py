"""Schema validation of replies: the supported part of JSON Schema, compared with the jsonschema library."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.models.chats.reply_parsing import enum_words, schema_violation

VERDICTS = {
    "type": "object",
    "properties": {
        "verdicts": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "enum": ["a1", "a2"]},
                    "by": {"type": "array", "items": {"type": "string", "enum": ["k1", "k2"]}},
                    "sure": {"type": "boolean"},
                    "words": {"type": "string"},
                },
                "required": ["id", "by"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["verdicts"],
    "additionalProperties": False,
}


def make_verdicts(**changes):
    return {"verdicts": [{"id": "a1", "by": ["k1"], **changes}]}


@pytest.mark.parametrize(
    ("value", "violation"),
    [
        (make_verdicts(), None),
        (make_verdicts(sure=True, words="said"), None),
        ([], "the reply is a list, not of type object"),
        (None, "the reply is null, not of type object"),
        ({}, "the reply has no `verdicts`"),
        ({"verdicts": []}, "the reply.verdicts has 0 items, not at least 1"),
        ({"verdicts": [make_verdicts()["verdicts"][0]] * 3}, "the reply.verdicts has 3 items, not at most 2"),
        (make_verdicts(id="a9"), "the reply.verdicts[0].id is 'a9', not one of 'a1', 'a2'"),
        (make_verdicts(by=["k1", "k7"]), "the reply.verdicts[0].by[1] is 'k7', not one of 'k1', 'k2'"),
        (make_verdicts(by="k1"), "the reply.verdicts[0].by is 'k1', not of type array"),
        (make_verdicts(sure="true"), "the reply.verdicts[0].sure is 'true', not of type boolean"),
        (make_verdicts(sure=1), "the reply.verdicts[0].sure is 1, not of type boolean"),
        (make_verdicts(words=None), "the reply.verdicts[0].words is null, not of type string"),
        (make_verdicts(score=1.0), "the reply.verdicts[0] has an unexpected `score`"),
        ({**make_verdicts(), "more": 1}, "the reply has an unexpected `more`"),
    ],
)
def test_schema_violation_describes_first_violation(value, violation):
    assert schema_violation(value, VERDICTS) == violation


@pytest.mark.parametrize(
    ("value", "schema", "is_valid"),
    [
        (True, {"type": "integer"}, False),
        (True, {"enum": [1]}, False),
        (1, {"enum": [True]}, False),
        (1.0, {"type": "integer"}, True),
        (1.5, {"type": "integer"}, False),
        (1, {"type": "number"}, True),
        (None, {"type": ["string", "null"]}, True),
        ("x", {"const": "x"}, True),
        ("y", {"const": "x"}, False),
        ({"a": 1}, {"type": "object", "additionalProperties": {"type": "integer"}}, True),
        ({"a": "1"}, {"type": "object", "additionalProperties": {"type": "integer"}}, False),
    ],
)
def test_schema_violation_edge_cases_match_jsonschema(value, schema, is_valid):
    assert (schema_violation(value, schema) is None) is is_valid
    assert jsonschema.Draft202012Validator(schema).is_valid(value) is is_valid


def test_schema_violation_unsupported_keyword_raises():
    with pytest.raises(ValueError, match="minLength"):
        schema_violation("", {"type": "string", "minLength": 1})


def test_schema_violation_truncates_long_value():
    assert len(schema_violation("x" * 1000, {"enum": ["a"]}) or "") < 120


leaf_values = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(-3, 3), st.sampled_from(["a1", "k1", "x"])
)
values = st.recursive(
    leaf_values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["verdicts", "id", "by", "sure", "z"]), inner, max_size=3),
    ),
    max_leaves=8,
)
simple_schemas = st.one_of(
    st.builds(lambda kind: {"type": kind}, st.sampled_from(["string", "boolean", "integer", "number", "null"])),
    st.builds(lambda words: {"enum": words}, st.lists(leaf_values, min_size=1, max_size=3)),
)
schemas = st.recursive(
    simple_schemas,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 2), "maxItems": st.integers(0, 2)},
        ),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(["id", "by", "z"]), inner)},
            optional={
                "required": st.lists(st.sampled_from(["id", "by"]), unique=True),
                "additionalProperties": st.one_of(st.booleans(), inner),
            },
        ),
    ),
    max_leaves=5,
)


@given(values, st.one_of(schemas, st.just(VERDICTS)))
def test_schema_violation_random_values_match_jsonschema(value, schema):
    assert (schema_violation(value, schema) is None) == jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": ["yes", "no"]}, ["yes", "no"]),
        ({"type": "string", "enum": ["yes"]}, ["yes"]),
        ({"enum": [1, 2]}, []),
        ({"type": "object"}, []),
        (None, []),
    ],
)
def test_enum_words_returns_words_of_text_enum(schema, words):
    assert enum_words(schema) == words
