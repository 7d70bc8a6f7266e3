"""Parsing of JSON and TOML: limits, locations in messages, and one type of error for any invalid text."""

from __future__ import annotations

import pytest

from command import command_in
from ragauge.core.errors import BadInput
from ragauge.core.structured_text import MAX_DEPTH, MAX_DIGITS, InvalidText, parse_json, parse_toml
from ragauge.files.readers import read_judgments, read_run

DEEP = "[" * 50_000 + "]" * 50_000


def test_parse_json_within_limits_returns_value():
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_json("7" * MAX_DIGITS) == int("7" * MAX_DIGITS)
    assert parse_json('\ufeff{"a": 1}') == parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert parse_json('{"a": 1}'.encode("utf-16")) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DEEP, "more than 100 nested lists and objects"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "more than 100 nested lists and objects"),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, "more than 100 nested lists and objects"),
        ("[" + "7" * 5_000 + "]", "an integer has 5,000 digits; expected at most 300"),
        ("7" * (MAX_DIGITS + 1), "an integer has 301 digits; expected at most 300"),
        (b'"\xff"', "invalid start byte"),
        ('{"a": 1', "Expecting ',' delimiter"),
        ("", "Expecting value"),
    ],
)
def test_parse_json_beyond_limits_raises_with_line(text, reason):
    with pytest.raises(InvalidText, match=reason) as caught:
        parse_json(text, file="a.jsonl", line=7)
    assert caught.value.message.startswith("a.jsonl:7: the JSON cannot be read (")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"a = {DEEP}", "more than 100 nested lists and objects"),
        ("a." * 500 + "b = 1", "more than 100 nested lists and objects"),
        ("a = " + "7" * 5_000, "4300 digits"),
        ("a = " + "7" * 30, "an integer has 30 digits; expected one of 64 bits"),
        ("a =", "Invalid value"),
    ],
)
def test_parse_toml_beyond_limits_raises(text, reason):
    with pytest.raises(InvalidText, match=reason) as caught:
        parse_toml(text, file="a.toml")
    assert caught.value.message.startswith("a.toml: the TOML cannot be read (")


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize(
    "text", [DEEP, '{"q": {"d": ' + "7" * 5_000 + "}}", '{"query_id": "q", "doc_id": ' + DEEP + "}"]
)
@pytest.mark.parametrize("read", [read_judgments, read_run])
def test_readers_hostile_json_raises(name, text, read, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput):
        list(getattr(read(str(tmp_path / name)), "frames", list)())


def test_cli_gate_hostile_toml_prints_error(tmp_path):
    (tmp_path / "gate.toml").write_text(f"rules = {DEEP}")
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\n")
    (tmp_path / "a.run").write_text("q1 Q0 a 1 1 a\n")
    done = command_in(tmp_path)("gate", "qrels.txt", "a.run", "--rules", "gate.toml", code=2)
    assert done.stderr.startswith("error: gate.toml: the TOML cannot be read (more than 100 nested lists and objects)")


def test_parse_json_many_keys_with_repeated_last_key_raises():
    keys = ", ".join(f'"k{number}": 1' for number in range(300_000))  # a search in quadratic time would not end
    with pytest.raises(InvalidText, match="duplicate key `k299999`"):
        parse_json(f'{{{keys}, "k299999": 2}}')
