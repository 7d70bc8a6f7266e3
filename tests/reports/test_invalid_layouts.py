"""Errors for invalid files of other tools and for unsupported results: message, location and hint."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reports.test_layouts import NEW, OLD, RESULT, SWARM, make_overview, write_file

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.errors import BadInput
from ragauge.core.summaries import Mean
from ragauge.reports.layouts import LAYOUTS

TOKENS = "model,num_queries,mrr,avg_total_ms\ncanine,10,0.5,3\nbyt5,10,0.25,4\n"
DATABASES = (
    "experiment,database,dataset,num_runs,recall@10,latency_p50_ms\na,faiss,sift,5,0.5,1\nb,milvus,sift,5,0.25,2\n"
)
METHODS = "Method,K,Precision@K,Recall@K,Latency (ms)\nsemantic,5,0.5,0.25,3\nsemantic,10,0.25,0.5,4\n"
METRIC = {"metric": "mrr", "n": 2, "mean": 0.5, "per_query": [["q1", 1.0], ["q2", 0.0]]}
CHANGES = [
    {"query_id": "q1", "current": 1.0, "baseline": 0.5, "delta": 0.5},
    {"query_id": "q2", "current": 0.0, "baseline": 0.0, "delta": 0.0},
]
ROW = {
    "metric": "mrr",
    "current_mean": 0.5,
    "baseline_mean": 0.25,
    "delta": 0.25,
    "winners": 1,
    "losers": 0,
    "unchanged": 1,
    "query_changes": CHANGES,
}
INTERVAL = {"lower": 0.1, "upper": 0.9, "level": 0.95, "iterations": 1000}


def read_error(tmp_path, layout, text):
    with pytest.raises(BadInput) as error:
        LAYOUTS[layout].read(write_file(tmp_path, layout, text))
    assert error.value.file
    assert error.value.file.startswith(str(tmp_path))
    assert "\n" not in error.value.message
    return str(error.value).replace(str(tmp_path) + "/", "")


@pytest.mark.parametrize(
    ("layout", "text", "message"),
    [
        (
            "swarm",
            SWARM.replace("1.0,0.5,0.01", "1.0,half,0.01"),
            "file.csv:2: DR@20 must be a finite number, got `half`",
        ),
        ("swarm", SWARM + "1,1.0,0.5,0.01,GraphFlow,1,2,42,simple\n", "file.csv:5: Hit@1 of query `1` of GraphFlow"),
        (
            "swarm",
            SWARM.replace("Swarm,1,2", "Swarm,1,3"),
            "file.csv:4: gt_count of query `1` is 3, but 2 in an earlier row",
        ),
        (
            "swarm",
            SWARM.replace("Swarm,1,2", "Swarm,1,2.5"),
            "file.csv:4: gt_count must be an integer of at least 0, got `2.5`",
        ),
        ("swarm", SWARM.replace("0.03,Swarm", "0.03,"), "file.csv:4: the method is missing"),
        ("swarm", SWARM.replace("42,simple", ",simple"), "file.csv:2: the seed is missing"),
        (
            "swarm",
            SWARM.replace("1,1.0,1.0,0.03", "1,inf,1.0,0.03"),
            "file.csv:4: MRR must be a finite number, got `inf`",
        ),
        ("swarm", SWARM.replace("method", "tool"), "not a table of the swarm notebook: the column method is missing"),
        ("swarm", SWARM[:-20], "file.csv:4: expected 9 cells as in the header, got 5"),
        ("swarm", SWARM.splitlines()[0], "file.csv: no rows"),
        ("swarm", "", "the columns method, query_id, seed are missing"),
        ("tokenization", TOKENS.replace("0.25", "high"), "file.csv:3: mrr must be a finite number, got `high`"),
        ("tokenization", TOKENS.replace("0.25", "1e999"), "file.csv:3: mrr must be a finite number, got `1e999`"),
        ("tokenization", TOKENS.replace("byt5", "canine"), "file.csv:3: model `canine` has two rows"),
        (
            "tokenization",
            TOKENS.replace("byt5,10", "byt5,-1"),
            "file.csv:3: num_queries must be an integer of at least 0, got `-1`",
        ),
        ("tokenization", TOKENS.replace("num_queries", "n"), "the column num_queries is missing"),
        ("tokenization", "model,num_queries\na,3\n", "no column has a measure of the tokenization study"),
        ("tokenization", TOKENS[:-4], "file.csv:3: expected 4 cells as in the header, got 3"),
        ("tokenization", TOKENS.replace("canine,", '"canine,'), "the table cannot be read"),
        ("ragdbeval-csv", DATABASES.replace("b,milvus", "a,milvus"), "file.csv:3: experiment `a` has two rows"),
        (
            "ragdbeval-csv",
            DATABASES.replace("0.25,2", "0.25,-inf"),
            "file.csv:3: latency_p50_ms must be a finite number, got `-inf`",
        ),
        (
            "ragdbeval-csv",
            DATABASES.replace("sift,5,0.25", "sift,some,0.25"),
            "file.csv:3: num_runs must be a finite number, got `some`",
        ),
        ("ragdbeval-csv", DATABASES.replace("database", "db"), "the column database is missing"),
        (
            "ragdbeval-csv",
            DATABASES.replace("0.5,1", ",1").replace("0.25,2", ",2"),
            "no result has a quality measure",
        ),
        (
            "pgvectordb",
            METHODS.replace("semantic,10", "semantic,5"),
            "file.csv:3: method `semantic` has two rows with K 5",
        ),
        ("pgvectordb", METHODS.replace("semantic,10", "semantic,"), "file.csv:3: K of `semantic` is missing"),
        ("pgvectordb", METHODS.replace("semantic,10", "semantic,0"), "file.csv:3: K of `semantic` is 0"),
        (
            "pgvectordb",
            METHODS.replace("semantic,10", "semantic,1.5"),
            "file.csv:3: K must be an integer of at least 0, got `1.5`",
        ),
        (
            "pgvectordb",
            METHODS.replace("0.25,0.5,4", "0.25,true,4"),
            "file.csv:3: Recall@K must be a finite number, got `true`",
        ),
        ("pgvectordb", METHODS.replace("Method", "method"), "not a table of pgVectorDB: the column Method is missing"),
    ],
)
def test_read_layout_invalid_csv_raises_error_with_location(tmp_path, layout, text, message):
    assert message in read_error(tmp_path, layout, text)


def make_results(**change):
    return {"metadata": {"num_results": 1}, "results": [{**RESULT, **change}]}


@pytest.mark.parametrize(
    ("layout", "content", "message"),
    [
        ("ragdbeval", [RESULT], "not results of RAGdbEval"),
        ("ragdbeval", {"results": [1]}, "not results of RAGdbEval"),
        ("ragdbeval", {"metadata": 3, "results": [RESULT]}, "metadata must be an object"),
        (
            "ragdbeval",
            {"metadata": {"num_results": 4}, "results": [RESULT]},
            "num_results is 4, but the file has 1 results",
        ),
        ("ragdbeval", {"results": [RESULT, RESULT]}, "result 2 repeats the name"),
        ("ragdbeval", {"results": []}, "no results"),
        ("ragdbeval", make_results(success=False), "no result succeeded"),
        ("ragdbeval", make_results(experiment_name=None), "experiment_name of result 1 is missing"),
        ("ragdbeval", make_results(mean_metrics=None), "result 1 has no mean_metrics"),
        (
            "ragdbeval",
            make_results(mean_metrics={"quality_mrr": "x"}),
            "quality_mrr of result 1 must be a finite number, got `x`",
        ),
        (
            "ragdbeval",
            make_results(mean_metrics={"quality_mrr": True}),
            "quality_mrr of result 1 must be a finite number, got `True`",
        ),
        (
            "ragdbeval",
            make_results(mean_metrics={"quality_mrr": float("inf")}),
            "quality_mrr of result 1 must be a finite number, got `inf`",
        ),
        ("ragdbeval", make_results(mean_metrics={"quality_mrr": float("nan")}), "no result has a quality measure"),
        ("rig", {"metrics": []}, "not a report of rig"),
        ("rig", {"metrics": [{**METRIC, "n": 3}]}, "n of mrr is 3, but per_query has 2 queries"),
        ("rig", {"metrics": [{**METRIC, "mean": "x"}]}, "the mean of mrr must be a finite number, got `x`"),
        ("rig", {"metrics": [METRIC, METRIC]}, "mrr appears more than once"),
        (
            "rig",
            {"metrics": [{**METRIC, "per_query": [["q1", 1], ["q1", 0]]}]},
            "mrr of query `q1` appears more than once",
        ),
        ("rig", {"metrics": [{**METRIC, "per_query": [["q1", float("inf")]]}]}, "must be a finite number"),
        ("rig", {"metrics": [{**METRIC, "ci": [0, 1]}]}, "ci of mrr must be an object"),
        ("rig", {"metrics": [{**METRIC, "ci": {**INTERVAL, "lower": 2}}]}, "ci of mrr is not an interval"),
        ("rig", {"metrics": [{**METRIC, "ci": {**INTERVAL, "level": 95}}]}, "ci of mrr is not an interval"),
        ("rig", {"metrics": [{**METRIC, "ci": {"lower": 0, "level": 0.95}}]}, "ci of mrr is not an interval"),
        ("rig", {"metrics": [METRIC], "freshness": 3}, "freshness must be an object"),
        ("rig", {"metrics": [METRIC], "dataset_id": 3}, "dataset_id must be text"),
        ("rig-diff", {"rows": []}, "not a diff of rig's reports"),
        ("rig-diff", {"rows": [3]}, "not a diff of rig's reports"),
        ("rig-diff", {"rows": [ROW, ROW]}, "mrr appears more than once"),
        ("rig-diff", {"rows": [{**ROW, "current_mean": None}]}, "no row has a current_mean"),
        ("rig-diff", {"rows": [{**ROW, "query_changes": {}}]}, "query_changes of mrr must be a list of objects"),
        (
            "rig-diff",
            {"rows": [{**ROW, "query_changes": [CHANGES[0]] * 2}]},
            "mrr of query `q1` appears more than once",
        ),
        (
            "rig-diff",
            {"rows": [{**ROW, "query_changes": [{"query_id": "q1", "current": 1}]}]},
            "baseline of query `q1` by mrr is missing",
        ),
    ],
)
def test_read_layout_invalid_json_raises_error_with_field_name(tmp_path, layout, content, message):
    assert message in read_error(tmp_path, layout, json.dumps(content))


@pytest.mark.parametrize("layout", ["ragdbeval", "rig", "rig-diff"])
def test_read_layout_truncated_json_raises_error(tmp_path, layout):
    runs = {"old": OLD} if layout == "rig" else {"old": OLD, "new": NEW}
    text = LAYOUTS[layout].write(make_overview(LAYOUTS[layout], runs))
    assert "the JSON cannot be read" in read_error(tmp_path, layout, text[: len(text) // 2])


@pytest.mark.parametrize("layout", LAYOUTS)
@given(st.data())
@pytest.mark.slow
def test_read_layout_random_text_edit_parses_or_raises_bad_input(tmp_path_factory, layout, data):
    runs = {"old": OLD} if layout == "rig" else {"old": OLD, "new": NEW}
    text = LAYOUTS[layout].write(make_overview(LAYOUTS[layout], runs))
    start = data.draw(st.integers(0, len(text) - 1))
    size = data.draw(st.integers(0, 20))
    inserted = data.draw(st.text(max_size=5))
    path = tmp_path_factory.mktemp("damaged") / f"file{LAYOUTS[layout].ending}"
    path.write_text(text[:start] + inserted + text[start + size :], newline="")
    assert read_or_error_file(layout, path) in ("read", str(path))


def read_or_error_file(layout, path):
    """Return `read`, or the file that the error names."""
    try:
        result = LAYOUTS[layout].read(str(path))
    except BadInput as error:
        return error.file
    assert result.entries
    assert result.measures
    for entry in result.entries.values():
        assert all(not math.isinf(number) for mean in entry.means.values() for number in mean)
    with contextlib.suppress(BadInput):  # a diff that lacks one of its systems cannot be written
        LAYOUTS[layout].write(result)
    return "read"


KEY_PATHS = st.lists(st.integers(0, 50), min_size=1, max_size=6)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


def replace_at(content, key_path, value):
    """Return a copy of a JSON value in which the value at one place is replaced."""
    keys = (
        list(content) if isinstance(content, dict) else list(range(len(content))) if isinstance(content, list) else []
    )
    if not key_path or not keys:
        return value
    key = keys[key_path[0] % len(keys)]
    changed = dict(content) if isinstance(content, dict) else list(content)
    changed[key] = replace_at(content[key], key_path[1:], value)
    return changed


@pytest.mark.parametrize("layout", ["ragdbeval", "rig", "rig-diff"])
@given(KEY_PATHS, JSON_VALUES)
@pytest.mark.slow
def test_read_layout_random_json_value_parses_or_raises_bad_input(tmp_path_factory, layout, key_path, value):
    content = {
        "ragdbeval": {"metadata": {"num_results": 1, "random_seed": 1}, "results": [RESULT]},
        "rig": {"dataset_id": "d", "metrics": [{**METRIC, "ci": INTERVAL}], "freshness": {"k": 2}},
        "rig-diff": {"rows": [{**ROW, "current_ci": INTERVAL}]},
    }[layout]
    path = tmp_path_factory.mktemp("changed") / "file.json"
    path.write_text(json.dumps(replace_at(content, key_path, value)))
    assert read_or_error_file(layout, path) in ("read", str(path))


# Rejected writes


def write_error(layout, overview):
    with pytest.raises(BadInput) as error:
        LAYOUTS[layout].write(overview)
    assert error.value.hint
    return str(error.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_write_layout_other_convention_raises_error(layout):
    overview = make_overview(LAYOUTS[layout], {"old": OLD, "new": NEW})
    other_convention = Overview(**{**vars(overview), "convention": "trec10"})
    message = write_error(layout, other_convention)
    assert (
        f"the scores follow the convention trec10, but {LAYOUTS[layout].name.removesuffix('-csv')} requires" in message
    )
    assert f"hint: add `--convention {LAYOUTS[layout].convention}`" in message


@pytest.mark.parametrize("layout", ["swarm", "tokenization", "ragdbeval", "ragdbeval-csv", "pgvectordb"])
def test_write_layout_without_known_measures_raises_error(layout):
    overview = Overview("t", {"a": SystemSummary("a", {"bpref": Mean(0.5, 3)})}, ["bpref"], LAYOUTS[layout].convention)
    assert "no system has a measure" in write_error(layout, overview)


@pytest.mark.parametrize("layout", ["swarm", "rig", "rig-diff"])
def test_write_layout_per_query_with_means_only_raises_error(layout):
    means = {"mrr@20": Mean(0.5, 3)} if layout == "swarm" else {"mrr": Mean(0.5, 3)}
    overview = Overview("t", {"a": SystemSummary("a", means)}, list(means), LAYOUTS[layout].convention)
    assert "only means of a are known" in write_error(layout, overview)


def test_write_rig_layouts_wrong_system_count_raises_error():
    overview = make_overview(LAYOUTS["rig"], {"old": OLD, "new": NEW})
    assert "rig's report has one system, got 2: old, new" in write_error("rig", overview)
    one_system = make_overview(LAYOUTS["rig"], {"old": OLD})
    assert "a diff of rig's reports has two systems, got 1: old" in write_error("rig-diff", one_system)


def test_write_rig_ambiguous_ndcg_name_raises_error():
    overview = make_overview(LAYOUTS["rig"], {"old": OLD})
    entry = overview.entries["old"]
    linear = Overview(**{**vars(overview), "measures": ["mrr", "ndcg@10"]})
    assert "rig uses the name ndcg@10 for ndcg(gain=exp)@10" in write_error("rig", linear)
    assert entry.scores


def test_write_rig_diff_different_judges_raises_error(tmp_path):
    overview = make_overview(LAYOUTS["rig"], {"old": OLD, "new": NEW})
    scores = overview.entries["new"].scores[0]
    judged = type(scores)(**{**vars(scores), "judge": "gpt"})
    entries = {**overview.entries, "new": SystemSummary("new", overview.entries["new"].means, [judged])}
    assert "old and new were scored by different judges" in write_error(
        "rig-diff", Overview(**{**vars(overview), "entries": entries})
    )
