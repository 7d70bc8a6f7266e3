"""Record types: JSON output of the commands is valid under the generated schema and round-trips."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from ragauge.core.record_types import RESULT_MODULES, find_record_type
from ragauge.files.json_schemas import json_schema
from ragauge.files.serialization import detect_schema, read_records, to_json_data, write_record
from ragauge.reports.registry import find_formats

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from command import run_python
from html_forms import check_fragment

GOLDENS = Path(__file__).parents[1] / "goldens"
COMMANDS = {
    "ragauge-audit": "audit inputs/qrels.txt inputs/bm25.run --expect mrr=0.5 --json",
    "ragauge-calibration": "calibrate inputs/labelled.jsonl -o c --json",
    "ragauge-comparison": "compare inputs/qrels.txt inputs/bm25.run inputs/dense.run --count-missing --json",
    "ragauge-experiments": "run inputs/experiments.toml -o runs --json",
    "ragauge-gain": "gain --before inputs/kb --add inputs/new.jsonl -k 3 -w recall@3=0.5 -w novelty=0.5 --json",
    "ragauge-gate": "gate inputs/qrels.txt inputs/dense.run -b inputs/bm25.run -r 'mrr not worse' -r 'map > 1' --json",
    "ragauge-judged": "judge folders/judged -C default,no_claims=one --json",
    "ragauge-novelty": "novelty inputs/new.jsonl --known inputs/known.jsonl --chat lexical --json",
    "ragauge-report": "report folders/run --format json",
    "ragauge-scores": "evaluate inputs/qrels.txt inputs/bm25.run inputs/dense.run --per-query --json",
    "ragauge-stress": "stress --store memory --corpus inputs/known.jsonl --json",
    "ragauge-benchmark": "report folders/bench --format json",
    "ragauge-tokenizers": "tokenizers inputs/known.jsonl -t bytes -t words --json",
}
"""A command that writes each record type; a new type needs a row."""


@pytest.fixture(scope="module")
def input_folder(tmp_path_factory):
    copy = tmp_path_factory.mktemp("records")
    for name in ("inputs", "folders"):
        shutil.copytree(GOLDENS / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run_command(command, input_folder):
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
    process = run_python(["-m", "ragauge", *shlex.split(command)], input_folder, environment)
    assert process.stdout, process.stderr
    return process.stdout


def test_record_types_all_have_a_command():
    assert set(COMMANDS) == set(RESULT_MODULES)


@pytest.mark.parametrize("schema", COMMANDS)
@pytest.mark.slow
def test_record_of_command_is_valid_and_round_trips(schema, input_folder, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(run_command(COMMANDS[schema], input_folder), encoding="utf-8")
    record_type = find_record_type(schema)
    assert detect_schema(path) == schema
    validator = Draft202012Validator(json_schema(record_type.result_type))
    content = json.loads(path.read_text(encoding="utf-8"))
    items = content if isinstance(content, list) else [content]
    records = read_records(path)
    assert [type(record) for record in records] == [record_type.result_type] * len(items)
    for data, record in zip(items, records, strict=True):
        validator.validate(data)
        supplied = {key: data.pop(key) for key in record_type.supplied if key in data}
        assert to_json_data(record) == data
        write_record(record, path, supplied)
        assert to_json_data(read_records(path)[0]) == data
        check_fragment(record._repr_html_())
        check_frame(record)


def check_frame(record):
    """Check that both frames of a result have the cells of its first CSV table, with numbers as numbers."""
    frame = record.to_polars()
    header, *lines = csv.reader(io.StringIO(find_formats(type(record))["csv"].write([record])))
    assert frame.columns == header
    assert frame.height == len(lines)
    assert record.to_pandas().columns.tolist() == header
    for name, texts in zip(header, zip(*lines, strict=True), strict=False):
        for value, text in zip(frame[name].to_list(), texts, strict=True):
            if isinstance(value, bool):
                assert text == str(value).lower()
            elif isinstance(value, int | float):
                assert math.isclose(value, float(text)), name
            else:
                assert (value or "") == text


@pytest.mark.parametrize("schema", RESULT_MODULES)
def test_json_schema_is_valid_and_describes_every_field(schema):
    result = json_schema(find_record_type(schema).result_type)
    Draft202012Validator.check_schema(result)
    objects = [result, *result.get("$defs", {}).values()]
    assert all(entry["description"] for entry in objects)
    assert result["properties"]["schema"]["const"] == f"{schema}/1"
