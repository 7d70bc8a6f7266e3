"""File layouts of other tools: written values equal values computed by hand, and files round-trip."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragauge
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Judgments, Run
from ragauge.core.summaries import Mean
from ragauge.measures.conventions import PRESETS
from ragauge.measures.latency import stage_latencies_ms, summarise_timings
from ragauge.measures.names import parse_measure
from ragauge.reports.layouts import (
    LAYOUTS,
    find_layout,
    pgvectordb,
    ragdbeval,
    rig,
    swarm,
    tokenization,
)
from ragauge.runs.input_kinds import detect_layout
from strategies import judgments, runs

QRELS = {"q1": {"a": 1, "b": 1, "z": 0}, "q2": {"c": 2}, "q3": {"d": 1}}
OLD = {"q1": ["x", "a", "b"], "q2": ["c"], "q3": ["y"]}
NEW = {"q1": ["a", "b", "x"], "q2": ["y", "c"], "q3": ["d"]}


def make_overview(layout, runs, qrels=QRELS, ks=(), **more):
    """Build an overview of runs by name; a run is a ranking per query, or a list of them, one per trial."""
    entries = {}
    for name, run in runs.items():
        trials = [
            ragauge.evaluate(qrels, trial, list(layout.measures(ks)), layout.convention)
            for trial in (run if isinstance(run, list) else [run])
        ]
        means = {m: Mean(float(np.mean([t.means[m] for t in trials])), trials[0].n[m]) for m in trials[0].values}
        entries[name] = SystemSummary(name, means, trials)
    measures = list(next(iter(entries.values())).means)
    return Overview("t", entries, measures, layout.convention, judgments=Judgments(qrels), **more)


def make_timings(rows):
    """Build a timings table from rows of (query, repeat, status, total ms, retrieval ms)."""
    names = ("query", "repeat", "status", "total_ns", "retrieve_ns", "session", "began_ns")
    table = [(q, r, s, int(t * 1e6), int(p * 1e6), 1, seconds * 10**9) for seconds, (q, r, s, t, p) in enumerate(rows)]
    return pl.DataFrame(table, schema=names, orient="row")


def add_timings(entry, frame, **manifest):
    run = Run(pl.DataFrame({"query": [], "doc": [], "score": []}), entry.name, frame, manifest)
    return SystemSummary(
        entry.name, entry.means, entry.scores, run, summarise_timings(frame), stage_latencies_ms(frame), {}
    )


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


def write_file(tmp_path, layout, text):
    path = tmp_path / f"file{LAYOUTS[layout].ending}"
    path.write_text(text)
    return str(path)


# Measure names


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        ({**swarm.MEASURE_BY_COLUMN, "Diversity_Count@20": swarm.MEASURE_BY_COLUMN["Diversity_Count"]}, "swarm"),
        (tokenization.MEASURE_BY_COLUMN, "tokenization"),
        (ragdbeval.CODE_MEASURES, "ragdbeval"),
        (
            {f"{name}@7": f"{canonical}@7" for name, canonical in rig.MEASURE_BY_RIG_NAME.items()} | {"mrr": "mrr"},
            "rig",
        ),
        (
            {
                name.replace("@K", "") + "@7": f"{canonical}@7"
                for name, canonical in pgvectordb.MEASURE_BY_COLUMN.items()
            },
            "pgvectordb",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_layout_measure_names_parse_to_canonical_names(names, layout):
    rules = PRESETS[LAYOUTS[layout].convention]
    for name, canonical in names.items():
        if name != "Diversity_Count":  # this name has no cutoff
            assert str(parse_measure(name, rules)) == canonical


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_measures_round_trip_through_parse_measure(name):
    layout = LAYOUTS[name]
    for measure in layout.measures():
        assert str(parse_measure(measure)) == str(parse_measure(measure, PRESETS[layout.convention])) == measure
    assert len(set(layout.measures())) == len(layout.measures()) > 5
    assert layout.about
    assert layout.ending in (".csv", ".json")


def test_layout_measures_ks_set_cutoffs_if_supported():
    assert LAYOUTS["pgvectordb"].measures([2, 9])[::7] == ("precision@2", "precision@9")
    assert LAYOUTS["rig"].measures([3]) == (
        *("recall@3", "precision@3", "hit_rate@3", "mrr", "map@3", "ndcg(gain=exp)@3"),
    )
    assert LAYOUTS["swarm"].measures([2]) == LAYOUTS["swarm"].measures()


def test_find_layout_unknown_name_raises_error_with_suggestion():
    assert find_layout(" Rig-Diff ").name == "rig-diff"
    with pytest.raises(UnknownName, match="did you mean `ragdbeval`"):
        find_layout("ragdeval")


# The swarm notebook


def test_write_swarm_has_row_per_method_seed_and_query(tmp_path):
    overview = make_overview(LAYOUTS["swarm"], {"old": [OLD, NEW], "new": NEW}, tags={"q1": {"complexity": "simple"}})
    timings = make_timings(
        [
            *(("q1", 0, "ok", 12.0, 10.0), ("q2", 0, "error", 0.1, 0.0), ("q3", 0, "timeout", 99.0, 0.0)),
            *(("q1", 1, "ok", 14.0, 10.0), ("q2", 1, "ok", 15.0, 10.0)),
        ]
    )
    overview = Overview(
        **{**vars(overview), "entries": {**overview.entries, "old": add_timings(overview.entries["old"], timings)}}
    )
    text = LAYOUTS["swarm"].write(overview)
    rows = read_csv(text)
    assert tuple(rows[0]) == (
        *("Hit@1", "Hit@5", "Hit@10", "Hit@20", "MRR", "Recall@1", "Recall@5", "Recall@10", "Recall@20", "DR@20"),
        *("Diversity_Count", "latency", "method", "query_id", "gt_count", "seed", "query_complexity"),
    )
    assert [(row["method"], row["seed"], row["query_id"]) for row in rows] == [
        (method, seed, query)
        for method, seed in (("old", "0"), ("old", "1"), ("new", "0"))
        for query in ("q1", "q2", "q3")
    ]
    first = rows[0]  # q1 of old returns x, a, b; a and b are relevant
    assert [float(first[name]) for name in ("Hit@1", "Hit@5", "MRR", "Recall@1", "Recall@5")] == [0, 1, 0.5, 0, 1]
    assert [float(first[name]) for name in ("DR@20", "Diversity_Count")] == [1, 2]
    assert [row["latency"] for row in rows[:6]] == ["0.012", "", "0.099", "0.014", "0.015", ""]
    assert [row["gt_count"] for row in rows[:3]] == ["2", "1", "1"]
    assert [row["query_complexity"] for row in rows[:3]] == ["simple", "", ""]
    restored = LAYOUTS["swarm"].read(write_file(tmp_path, "swarm", text))
    assert restored.systems == ["old", "new"]
    assert restored.entries["old"].means["mrr@20"].value == pytest.approx((0.5 + 1 + 0 + 1 + 0.5 + 1) / 6)
    assert restored.entries["old"].means["mrr@20"].n == 3
    assert sorted(restored.entries["old"].times["total"]) == pytest.approx([12.0, 14.0, 15.0, 99.0])
    assert restored.tags["q1"] == {"complexity": "simple", "gt_count": "2"}
    assert LAYOUTS["swarm"].write(restored) == text


SWARM = """Hit@1,MRR,DR@20,latency,method,query_id,gt_count,seed,query_complexity
1,1.0,0.5,0.01,GraphFlow,1,2,42,simple
0,,0.25,0.02,GraphFlow,2,7,42,complex
1,1.0,1.0,0.03,Swarm,1,2,43,simple
"""


def test_read_swarm_notebook_table_returns_canonical_measures(tmp_path):
    result = LAYOUTS["swarm"].read(write_file(tmp_path, "swarm", SWARM))
    assert result.convention == "swarm"
    assert list(result.measures) == ["hit_rate@1", "mrr@20", "dr(targets=identity)@20"]
    entry = result.entries["GraphFlow"]
    assert entry.means["mrr@20"] == pytest.approx((1.0, 1, math.nan, math.nan), nan_ok=True)
    assert entry.scores[0].unscored["mrr@20"] == {"2": "no value in the file"}
    assert entry.scores[0].per_query["MRR"] == {"1": 1.0}
    assert entry.stated_manifest["seeds"] == ["42"]
    rows = read_csv(LAYOUTS["swarm"].write(result))
    assert [row["seed"] for row in rows] == ["42", "42", "43"]
    assert rows[1]["MRR"] == rows[1]["Hit@5"] == ""
    assert [float(row["latency"]) for row in rows] == [0.01, 0.02, 0.03]


# The tokenization study


def test_write_tokenization_matches_example_and_stage_means(tmp_path):
    qrels = {"q1": {"doc0": 1, "doc1": 1}, "q2": {"r": 1}, "q3": {"s": 1}}
    run = {"q1": ["doc0", "doc5", "doc99", "doc1", "doc42"], "q2": ["a", "b", "r"], "q3": ["a"]}
    overview = make_overview(LAYOUTS["tokenization"], {"canine": run}, qrels)
    timings = make_timings([("q1", 0, "ok", 4.0, 3.0), ("q2", 0, "ok", 8.0, 6.0)])
    overview = Overview(**{**vars(overview), "entries": {"canine": add_timings(overview.entries["canine"], timings)}})
    text = LAYOUTS["tokenization"].write(overview)
    assert text.splitlines()[0] == (
        "model,num_queries,mrr,avg_embedding_ms,avg_retrieval_ms,avg_total_ms,recall@1,recall@5,recall@10,recall@15,"
        "precision@1,precision@5,precision@10,precision@15"
    )
    (row,) = read_csv(text)
    assert (row["model"], row["num_queries"], row["avg_embedding_ms"]) == ("canine", "3", "")
    assert float(row["mrr"]) == pytest.approx(0.444444, abs=1e-6)
    assert (float(row["avg_retrieval_ms"]), float(row["avg_total_ms"])) == (4.5, 6.0)
    assert float(row["recall@5"]) == pytest.approx((1 + 1 + 0) / 3)
    assert float(row["precision@5"]) == pytest.approx((0.4 + 0.2 + 0) / 3)
    restored = LAYOUTS["tokenization"].read(write_file(tmp_path, "tokenization", text))
    assert restored.entries["canine"].means["mrr@15"].n == 3
    assert restored.entries["canine"].speed.stages["retrieve"].mean == 4.5
    assert LAYOUTS["tokenization"].write(restored) == text


# pgVectorDB


def test_write_pgvectordb_matches_golden_values(tmp_path):
    lists = {"q1": [1, 3, 7, 2, 5], "q2": [4, 6, 1, 8, 2], "q3": [2, 1, 9, 3, 4]}
    relevant = {"q1": [1, 2, 3], "q2": [4, 6], "q3": [2, 9, 10]}
    run = {query: list(map(str, docs)) for query, docs in lists.items()}
    qrels = {query: dict.fromkeys(map(str, docs), 1) for query, docs in relevant.items()}
    overview = make_overview(LAYOUTS["pgvectordb"], {"semantic": run}, qrels, ks=(1, 2, 3, 5, 10))
    timings = make_timings([("q1", 0, "ok", 4.0, 3.0), ("q2", 0, "ok", 8.0, 6.0)])
    overview = Overview(
        **{**vars(overview), "entries": {"semantic": add_timings(overview.entries["semantic"], timings, plan={"k": 5})}}
    )
    text = LAYOUTS["pgvectordb"].write(overview)
    assert text.splitlines()[0] == "Method,K,Precision@K,Recall@K,F1@K,MAP@K,MRR,NDCG@K,Hit Rate,Latency (ms)"
    rows = read_csv(text)
    assert [row["K"] for row in rows] == ["1", "2", "3", "5", "10"]
    names = ("Precision@K", "Recall@K", "F1@K", "MAP@K", "MRR", "NDCG@K", "Hit Rate")
    golden = [0.4667, 0.8889, 0.6120, 0.8241, 1, 0.8905, 1]
    assert [float(rows[3][name]) for name in names] == pytest.approx(golden, abs=5e-5)
    assert [float(row["Precision@K"]) for row in rows] == pytest.approx([1, 0.833, 0.667, 0.467, 0.233], abs=5e-4)
    assert [float(row["Recall@K"]) for row in rows] == pytest.approx([0.389, 0.667, 0.778, 0.889, 0.889], abs=5e-4)
    assert [row["Latency (ms)"] for row in rows] == ["", "", "", "6.0", ""]  # k was 5
    restored = LAYOUTS["pgvectordb"].read(write_file(tmp_path, "pgvectordb", text))
    assert restored.entries["semantic"].means["f1(of=means)@5"].value == pytest.approx(0.6120, abs=5e-5)
    assert restored.entries["semantic"].costs == {"latency_at_5_ms": 6.0}
    assert LAYOUTS["pgvectordb"].write(restored) == text


# RAGdbEval

RESULT = {
    "experiment_name": "faiss_sift1m",
    "timestamp": "2024-01-15T10:29:00",
    "database": "faiss",
    "dataset": "sift1m",
    "index_config": "HNSW32",
    "num_runs": 5,
    "mean_metrics": {
        "quality_recall@10": 0.9847,
        "perf_latency_p50_ms": 0.42,
        "perf_latency_mean_ms": 0.5,
        "perf_qps_single_thread": 1999.0,
        "resource_index_build_time_sec": 12.5,
        "resource_ram_bytes_peak": 3145728,
        "ops_update_latency_ms": 1.5,
    },
    "hardware_info": {"cpu": "x", "cores": 8},
    "success": True,
    "error_message": None,
}
RESULTS = {
    "metadata": {"generated_at": "2024-01-15T10:30:00", "num_results": 1, "random_seed": 42, "strict_mode": True},
    "results": [RESULT],
}


def test_read_ragdbeval_keeps_metadata_costs_and_failures(tmp_path):
    failed = {"experiment_name": "milvus_sift1m", "success": False, "error_message": "no server"}
    content = {"metadata": {**RESULTS["metadata"], "num_results": 2}, "results": [RESULT, failed]}
    result = LAYOUTS["ragdbeval"].read(write_file(tmp_path, "ragdbeval", json.dumps(content)))
    assert (result.dataset, result.made, result.failures) == (
        "sift1m",
        "2024-01-15T10:30:00",
        {"milvus_sift1m": "no server"},
    )
    entry = result.entries["faiss_sift1m"]
    assert entry.means == {
        "recall(of=capped)@10": (0.9847, 0, pytest.approx(math.nan, nan_ok=True), pytest.approx(math.nan, nan_ok=True))
    }
    assert (entry.speed.stages["total"].p50, entry.speed.throughput) == (0.42, 1999.0)
    assert math.isnan(entry.speed.stages["total"].p99)
    assert entry.costs == {
        "qps_single_thread": 1999.0,
        "build_seconds": 12.5,
        "ram_bytes_peak": 3145728.0,
        "update_latency_ms": 1.5,
    }
    assert entry.manifest["machine"] == {"cpu": "x", "cores": 8}
    rewritten = json.loads(LAYOUTS["ragdbeval"].write(result))
    assert rewritten["metadata"] == {**content["metadata"], "convention": "ragdbeval-capped"}
    assert list(rewritten["results"][0]) == list(RESULT)
    metrics = {key: value for key, value in rewritten["results"][0]["mean_metrics"].items() if value is not None}
    assert metrics == {**RESULT["mean_metrics"], "resource_ram_mb_peak": 3.0}
    assert {key: value for key, value in rewritten["results"][0].items() if key != "mean_metrics"} == {
        key: value for key, value in RESULT.items() if key != "mean_metrics"
    }
    assert {key: value for key, value in rewritten["results"][1].items() if value is not None} == {
        **failed,
        "dataset": "sift1m",
    }


def test_read_ragdbeval_several_indexes_are_separate_systems(tmp_path):
    other = {**RESULT, "index_config": "IVF", "mean_metrics": {"quality_recall@10": 0.5}}
    content = {"metadata": {}, "results": [RESULT, other]}
    result = LAYOUTS["ragdbeval"].read(write_file(tmp_path, "ragdbeval", json.dumps(content)))
    assert result.systems == ["faiss_sift1m (HNSW32)", "faiss_sift1m (IVF)"]
    rewritten = json.loads(LAYOUTS["ragdbeval"].write(result))["results"]
    assert [(item["experiment_name"], item["index_config"]) for item in rewritten] == [
        ("faiss_sift1m", "HNSW32"),
        ("faiss_sift1m", "IVF"),
    ]


def test_read_ragdbeval_zero_and_unknown_values_add_notes(tmp_path):
    content = {"results": [{**RESULT, "mean_metrics": {"quality_recall@10": 0.5, "perf_qps_max": 0, "perf_odd": 1}}]}
    result = LAYOUTS["ragdbeval"].read(write_file(tmp_path, "ragdbeval", json.dumps(content)))
    assert result.notes == [
        "not part of this layout and left out: odd",
        "RAGdbEval writes 0 for what it did not measure: a 0 here may mean that",
    ]


def test_write_ragdbeval_timed_run_matches_values_by_hand(tmp_path):
    overview = make_overview(LAYOUTS["ragdbeval"], {"faiss": OLD}, dataset="tiny", made="2026-01-01T00:00:00+00:00")
    timings = make_timings([("q1", 0, "ok", 4.0, 3.0), ("q2", 0, "ok", 6.0, 6.0), ("q3", 0, "ok", 11.0, 6.0)])
    manifest = {"plan": {"k": 10, "repeats": 1}, "machine": {"cores": 2}, "finished": "2026-01-01T00:00:00+00:00"}
    entry = add_timings(overview.entries["faiss"], timings, **manifest)
    entry = SystemSummary(
        **{**vars(entry), "costs": {"build_seconds": 1.5, "cold_ms": 9.0, "index_size_bytes": 1048576.0}}
    )
    overview = Overview(**{**vars(overview), "entries": {"faiss": entry}, "failures": {"milvus": "no server"}})
    content = json.loads(LAYOUTS["ragdbeval"].write(overview))
    assert content["metadata"] == {
        "generated_at": "2026-01-01T00:00:00+00:00",
        "num_results": 2,
        "random_seed": None,
        "strict_mode": None,
        "convention": "ragdbeval-capped",
    }
    values = content["results"][0]["mean_metrics"]
    assert values["quality_recall@1"] == pytest.approx((0 + 1 + 0) / 3)
    # The denominator is the number of retrieved documents.
    assert values["quality_precision@10"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert values["quality_mrr"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert values["perf_latency_mean_ms"] == 7.0
    assert values["perf_latency_p95_ms"] == pytest.approx(np.percentile([4, 6, 11], 95))
    assert values["perf_latency_std_ms"] == pytest.approx(statistics.stdev([4, 6, 11]))
    assert values["perf_qps_single_thread"] == pytest.approx(1000 / 7)
    assert values["perf_qps_max"] is values["ops_update_latency_ms"] is values["resource_disk_mb"] is None
    assert (values["perf_coldstart_latency_ms"], values["resource_index_build_time_sec"]) == (9.0, 1.5)
    assert (values["resource_index_size_bytes"], values["resource_index_size_mb"]) == (1048576, 1.0)
    assert content["results"][0]["hardware_info"] == {"cores": 2}
    assert (content["results"][1]["success"], content["results"][1]["error_message"]) == (False, "no server")
    restored = LAYOUTS["ragdbeval"].read(write_file(tmp_path, "ragdbeval", json.dumps(content)))
    assert json.loads(LAYOUTS["ragdbeval"].write(restored)) == content
    text = LAYOUTS["ragdbeval-csv"].write(overview)
    (row,) = read_csv(text)
    assert (row["experiment"], row["database"], row["dataset"], row["num_runs"]) == ("faiss", "faiss", "tiny", "1")
    assert float(row["latency_p50_ms"]) == 6.0
    assert row["qps_at_recall_95"] == row["ram_bytes_peak"] == ""
    assert list(row)[:4] == ["experiment", "database", "dataset", "num_runs"]
    csv_back = LAYOUTS["ragdbeval-csv"].read(write_file(tmp_path, "ragdbeval-csv", text))
    assert LAYOUTS["ragdbeval-csv"].write(csv_back) == text


def test_write_ragdbeval_csv_columns_match_json_keys(tmp_path):
    overview = make_overview(LAYOUTS["ragdbeval"], {"faiss": OLD})
    keys = json.loads(LAYOUTS["ragdbeval"].write(overview))["results"][0]["mean_metrics"]
    *columns, last = list(read_csv(LAYOUTS["ragdbeval-csv"].write(overview))[0])[4:]
    plain = [key.partition("_")[2] for key in keys if not key.startswith("ops_")]
    assert columns == plain
    assert last == "convention"
    assert len(columns) == 16 + 15 + 11


def test_write_ragdbeval_partial_failure_is_success_with_warning(tmp_path):
    overview = make_overview(LAYOUTS["ragdbeval"], {"faiss": OLD})

    def write_with_failures(failed):
        entry = SystemSummary(**{**vars(overview.entries["faiss"]), "failed": dict.fromkeys(failed, "timed out")})
        return LAYOUTS["ragdbeval"].write(Overview(**{**vars(overview), "entries": {"faiss": entry}}))

    content = write_with_failures(["q1"])
    (item,) = json.loads(content)["results"]
    assert (item["success"], item["error_message"], item["warnings"]) == (True, None, ["1 query failed"])
    restored = LAYOUTS["ragdbeval"].read(write_file(tmp_path, "ragdbeval", content))
    assert "faiss: 1 query failed" in restored.notes
    assert LAYOUTS["ragdbeval"].write(restored) == content.replace('"generated_at": ""', '"generated_at": null')
    (item,) = json.loads(write_with_failures(["q1", "q2", "q3"]))["results"]
    assert (item["success"], item["error_message"]) == (False, "3 queries failed")


def test_ragdbeval_layout_document_convention_round_trips(tmp_path):
    """Check golden vector G3: two of five relevant documents are returned, d1 and d2; k is 1 and 10.

    Recall@1 is divided by 5 in the document of RAGdbEval (`ragdbeval`) and by k in its code (`ragdbeval-capped`).
    """
    qrels = {"q": {f"d{i}": 1 for i in range(1, 6)}}
    run = {"q": {"d1": 3.0, "d2": 2.0, "x": 1.0}}
    for convention, recall, precision in (("ragdbeval", 0.4, 0.2), ("ragdbeval-capped", 0.4, 2 / 3)):
        measures = LAYOUTS["ragdbeval"].variants[convention]
        result = ragauge.evaluate(qrels, run, list(measures), convention)
        overview = Overview(
            "x", {"a": SystemSummary("a", {m: Mean(v, 1) for m, v in result.means.items()})}, measures, convention
        )
        for name in ("ragdbeval", "ragdbeval-csv"):
            text = LAYOUTS[name].write(overview)
            restored = LAYOUTS[name].read(write_file(tmp_path, name, text))
            assert restored.convention == convention
            assert LAYOUTS[name].write(restored) == text
        (row,) = read_csv(LAYOUTS["ragdbeval-csv"].write(overview))
        assert (float(row["recall@10"]), float(row["precision@10"])) == pytest.approx((recall, precision))
        assert float(row["recall@1"]) == pytest.approx(0.2 if convention == "ragdbeval" else 1.0)
        assert row["convention"] == convention


def test_read_ragdbeval_unknown_convention_raises_error(tmp_path):
    content = {**RESULTS, "metadata": {**RESULTS["metadata"], "convention": "nonsense"}}
    with pytest.raises(
        BadInput, match="unknown convention; expected one of ragdbeval-capped, ragdbeval, got `nonsense`"
    ):
        LAYOUTS["ragdbeval"].read(write_file(tmp_path, "ragdbeval", json.dumps(content)))


# Rig


def add_intervals(overview):
    entries = {
        name: SystemSummary(
            **{
                **vars(entry),
                "means": {m: Mean(v.value, v.n, v.value - 0.1, v.value + 0.1) for m, v in entry.means.items()},
            }
        )
        for name, entry in overview.entries.items()
    }
    return Overview(**{**vars(overview), "entries": entries, "confidence": 0.9, "rounds": 2000})


def test_write_rig_matches_statistics_by_hand(tmp_path):
    overview = add_intervals(make_overview(LAYOUTS["rig"], {"memvid": OLD}, dataset="tiny"))
    text = LAYOUTS["rig"].write(overview)
    content = json.loads(text)
    assert list(content) == ["dataset_id", "store_kind", "metrics"]
    assert [item["metric"] for item in content["metrics"]] == [
        *("recall@10", "precision@10", "hit_rate@10", "mrr", "map@10", "ndcg@10"),
    ]
    mrr = content["metrics"][3]
    values = [0.5, 1.0, 0.0]
    assert mrr["per_query"] == [["q1", 0.5], ["q2", 1.0], ["q3", 0.0]]
    assert list(mrr) == ["metric", "n", "mean", "stddev", "min", "max", "p50", "p95", "per_query", "ci"]
    assert (mrr["n"], mrr["mean"], mrr["min"], mrr["max"], mrr["p50"]) == (3, 0.5, 0.0, 1.0, 0.5)
    assert mrr["stddev"] == pytest.approx(statistics.stdev(values))
    assert mrr["p95"] == pytest.approx(statistics.quantiles(values, n=100, method="inclusive")[94])
    assert mrr["ci"] == {"lower": 0.4, "upper": 0.6, "level": 0.9, "iterations": 2000}
    assert content["metrics"][5]["per_query"][0][1] == pytest.approx((1 / math.log2(3) + 0.5) / (1 + 1 / math.log2(3)))
    restored = LAYOUTS["rig"].read(write_file(tmp_path, "rig", text))
    assert (restored.systems, restored.dataset, restored.confidence, restored.rounds) == (["memvid"], "tiny", 0.9, 2000)
    assert list(restored.measures) == list(LAYOUTS["rig"].measures())
    assert restored.entries["memvid"].means["mrr"] == pytest.approx((0.5, 3, 0.4, 0.6))
    assert LAYOUTS["rig"].write(restored) == text


def test_read_rig_keeps_judge_fingerprint_and_freshness(tmp_path):
    content = {
        "judge_fingerprint": "gpt",
        "metrics": [{"metric": "faithfulness", "n": 2, "mean": 0.5, "per_query": [["q1", 1.0], ["q2", 0.0]]}],
        "freshness": {"k": 2, "query_count": 2, "stale_rate": 0.25, "per_query": []},
    }
    result = LAYOUTS["rig"].read(write_file(tmp_path, "rig", json.dumps(content)))
    assert result.systems == ["file"]
    rewritten = json.loads(LAYOUTS["rig"].write(result))
    assert (rewritten["judge_fingerprint"], rewritten["freshness"]) == ("gpt", content["freshness"])
    assert "store_kind" not in rewritten
    assert rewritten["metrics"][0]["metric"] == "faithfulness"
    assert "ci" not in rewritten["metrics"][0]


def test_write_rig_one_or_zero_queries_has_null_statistics(tmp_path):
    content = {"metrics": [{"metric": "mrr", "per_query": [["q1", 1.0]]}, {"metric": "map@5", "per_query": []}]}
    result = LAYOUTS["rig"].read(write_file(tmp_path, "rig", json.dumps(content)))
    one_query, no_queries = json.loads(LAYOUTS["rig"].write(result))["metrics"]
    assert (one_query["n"], one_query["mean"], one_query["stddev"], one_query["p95"]) == (1, 1.0, None, 1.0)
    assert (no_queries["n"], no_queries["mean"], no_queries["stddev"], no_queries["min"], no_queries["p50"]) == (
        0,
        None,
        None,
        None,
        None,
    )


def test_write_rig_diff_counts_winners_and_losers(tmp_path):
    overview = add_intervals(make_overview(LAYOUTS["rig-diff"], {"old": OLD, "new": NEW}))
    text = LAYOUTS["rig-diff"].write(overview)
    rows = {row["metric"]: row for row in json.loads(text)["rows"]}
    mrr = rows["mrr"]
    assert list(mrr) == [
        *("metric", "current_mean", "baseline_mean", "delta", "winners", "losers", "unchanged", "query_changes"),
        *("current_ci", "baseline_ci"),
    ]
    assert (mrr["baseline_mean"], mrr["current_mean"]) == (pytest.approx(0.5), pytest.approx(2.5 / 3))
    assert mrr["delta"] == pytest.approx(1 / 3)
    assert (mrr["winners"], mrr["losers"], mrr["unchanged"]) == (2, 1, 0)
    assert mrr["query_changes"] == [
        {"query_id": "q3", "current": 1.0, "baseline": 0.0, "delta": 1.0},
        {"query_id": "q1", "current": 1.0, "baseline": 0.5, "delta": 0.5},
        {"query_id": "q2", "current": 0.5, "baseline": 1.0, "delta": -0.5},
    ]
    assert (rows["hit_rate@10"]["winners"], rows["hit_rate@10"]["unchanged"]) == (1, 2)
    other_baseline = Overview(**{**vars(overview), "baseline": "new"})
    assert json.loads(LAYOUTS["rig-diff"].write(other_baseline))["rows"][3]["delta"] == pytest.approx(-1 / 3)
    restored = LAYOUTS["rig-diff"].read(write_file(tmp_path, "rig-diff", text))
    assert (restored.systems, restored.baseline) == (["baseline", "current"], "baseline")
    assert restored.entries["current"].means["mrr"].n == 3
    assert restored.entries["current"].scores[0].per_query["ndcg@10"]["q3"] == 1.0
    assert LAYOUTS["rig-diff"].write(restored) == text


def test_read_rig_diff_mean_over_unlisted_queries_has_n_zero(tmp_path):
    change = {"query_id": "q1", "current": 1.0, "baseline": 0.0, "delta": 1.0}
    row = {"metric": "mrr", "current_mean": 0.4, "baseline_mean": None, "delta": None, "query_changes": [change]}
    result = LAYOUTS["rig-diff"].read(write_file(tmp_path, "rig-diff", json.dumps({"rows": [row]})))
    assert result.entries["current"].means["mrr"].n == 0
    assert (result.systems, result.baseline) == (["current"], None)


# Layout detection


def test_detect_layout_returns_name_for_written_layouts(tmp_path):
    for name, layout in LAYOUTS.items():
        runs = {"old": OLD} if name == "rig" else {"old": OLD, "new": NEW}
        text = layout.write(make_overview(layout, runs))
        path = tmp_path / f"{name}{layout.ending}"
        path.write_text(text)
        assert detect_layout(str(path)) == name
        assert layout.read(str(path)).convention == layout.convention


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "query_id,doc_id,score\nq1,d1,0.5\n"),
        ("a.csv", "method,query_id,mrr\nx,q1,0.5\n"),
        ("a.csv", ""),
        ("a.json", '{"q1": {"metrics": 1, "per_query": 2, "metric": 3}}'),
        ("a.json", '{"note": "\\"metrics\\": [{\\"metric\\": 1, \\"per_query\\": 2}]"}'),
        ("a.json", "[1, 2"),
        ("a.json", "}]}]"),
        ("a.txt", SWARM),
    ],
)
def test_detect_layout_other_files_returns_none(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert detect_layout(str(tmp_path / name)) is None


def test_detect_layout_folder_returns_none_and_missing_file_raises(tmp_path):
    assert detect_layout(str(tmp_path)) is None
    with pytest.raises(BadInput, match="no such file"):
        detect_layout(str(tmp_path / "none.json"))


def test_detect_layout_large_truncated_file_returns_name(tmp_path):
    pairs = ",".join(f'["q{i}", 1.0]' for i in range(200_000))
    path = write_file(tmp_path, "rig", '{"metrics": [{"metric": "mrr", "per_query": [' + pairs)
    assert detect_layout(path) == "rig"  # although the JSON is truncated


# Round trips of random overviews

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=50)
@given(judgments(), runs(tied=False), runs(tied=False), st.lists(NAMES, min_size=2, max_size=2, unique=True))
@pytest.mark.slow
def test_layouts_random_overviews_round_trip(tmp_path_factory, name, qrels, first, second, names):
    layout = LAYOUTS[name]
    first_run = {query: first.get(query, {}) for query in qrels}
    systems = dict(zip(names, (first_run, {query: second.get(query, {}) for query in qrels}), strict=True))
    if name == "rig":
        systems = {names[0]: first_run}
    overview = make_overview(layout, systems, qrels)
    path = tmp_path_factory.mktemp("round") / f"file{layout.ending}"
    text = layout.write(overview)
    path.write_text(text, newline="")
    restored = layout.read(str(path))
    assert detect_layout(str(path)) == name
    assert name == "rig-diff" or restored.systems == list(systems)
    for expected, actual in zip(overview.entries.values(), restored.entries.values(), strict=True):
        for measure, mean in actual.means.items():
            assert mean.value == pytest.approx(expected.means[measure].value, abs=1e-12)
            assert mean.n in (0, expected.means[measure].n)
        assert {m for m, mean in expected.means.items() if not math.isnan(mean.value)} == set(actual.means)
    assert layout.write(restored) == text


# Round trips of real runs


def test_layouts_real_trec_runs_round_trip(shared, tmp_path):
    folder = shared("trec_dl_runs")
    qrels = ragauge.read_judgments(folder / "qrels" / "qrels.dl19-passage.txt")
    runs = {name: folder / "runs" / f"dl19.{name}.txt.gz" for name in ("BM25", "OPEN_AI_ADA2")}
    for name, layout in LAYOUTS.items():
        entries = {}
        for system, path in list(runs.items())[: 1 if name == "rig" else 2]:
            scores = ragauge.evaluate(qrels, path, list(layout.measures()), layout.convention)
            entries[system] = SystemSummary(
                system, {m: Mean(v, scores.n[m]) for m, v in scores.means.items()}, [scores]
            )
        overview = Overview("dl19", entries, list(layout.measures()), layout.convention, judgments=qrels)
        text = layout.write(overview)
        restored = layout.read(write_file(tmp_path, name, text))
        assert layout.write(restored) == text
        for expected, actual in zip(overview.entries.values(), restored.entries.values(), strict=True):
            for measure, mean in expected.means.items():
                assert actual.means[measure].value == pytest.approx(mean.value, abs=1e-12), (name, measure)
