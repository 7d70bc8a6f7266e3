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


def scored(layout, runs, qrels=QRELS, ks=(), **more):
    """Build an overview of runs by name; a run is a ranking per query, or a list of them, one per trial."""
    entries = {}
    for name, run in runs.items():
        trials = [
            ragauge.evaluate(qrels, one, list(layout.measures(ks)), layout.convention)
            for one in (run if isinstance(run, list) else [run])
        ]
        means = {m: Mean(float(np.mean([t.means[m] for t in trials])), trials[0].n[m]) for m in trials[0].values}
        entries[name] = SystemSummary(name, means, trials)
    measures = list(next(iter(entries.values())).means)
    return Overview("t", entries, measures, layout.convention, judgments=Judgments(qrels), **more)


def timings(rows):
    """Build a timings table from rows of (query, repeat, status, total ms, retrieval ms)."""
    names = ("query", "repeat", "status", "total_ns", "retrieve_ns", "session", "began_ns")
    table = [(q, r, s, int(t * 1e6), int(p * 1e6), 1, at * 10**9) for at, (q, r, s, t, p) in enumerate(rows)]
    return pl.DataFrame(table, schema=names, orient="row")


def timed(entry, frame, **manifest):
    run = Run(pl.DataFrame({"query": [], "doc": [], "score": []}), entry.name, frame, manifest)
    return SystemSummary(
        entry.name, entry.means, entry.scores, run, summarise_timings(frame), stage_latencies_ms(frame), {}
    )


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def written(tmp_path, layout, text):
    path = tmp_path / f"file{LAYOUTS[layout].ending}"
    path.write_text(text)
    return str(path)


# Measure names


@pytest.mark.parametrize(
    ("told", "layout"),
    [
        ({**swarm.MEASURE_BY_COLUMN, "Diversity_Count@20": swarm.MEASURE_BY_COLUMN["Diversity_Count"]}, "swarm"),
        (tokenization.MEASURE_BY_COLUMN, "tokenization"),
        (ragdbeval.CODE_MEASURES, "ragdbeval"),
        ({f"{name}@7": f"{mine}@7" for name, mine in rig.MEASURE_BY_RIG_NAME.items()} | {"mrr": "mrr"}, "rig"),
        (
            {name.replace("@K", "") + "@7": f"{mine}@7" for name, mine in pgvectordb.MEASURE_BY_COLUMN.items()},
            "pgvectordb",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_layout_measure_names_parse_to_canonical_names(told, layout):
    rules = PRESETS[LAYOUTS[layout].convention]
    for name, mine in told.items():
        if name != "Diversity_Count":  # this name has no cutoff
            assert str(parse_measure(name, rules)) == mine


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_measures_round_trip_through_parse_measure(name):
    layout = LAYOUTS[name]
    for one in layout.measures():
        assert str(parse_measure(one)) == str(parse_measure(one, PRESETS[layout.convention])) == one
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
    shown = scored(LAYOUTS["swarm"], {"old": [OLD, NEW], "new": NEW}, tags={"q1": {"complexity": "simple"}})
    clock = timings(
        [
            *(("q1", 0, "ok", 12.0, 10.0), ("q2", 0, "error", 0.1, 0.0), ("q3", 0, "timeout", 99.0, 0.0)),
            *(("q1", 1, "ok", 14.0, 10.0), ("q2", 1, "ok", 15.0, 10.0)),
        ]
    )
    shown = Overview(**{**vars(shown), "entries": {**shown.entries, "old": timed(shown.entries["old"], clock)}})
    text = LAYOUTS["swarm"].write(shown)
    rows = table(text)
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
    back = LAYOUTS["swarm"].read(written(tmp_path, "swarm", text))
    assert back.systems == ["old", "new"]
    assert back.entries["old"].means["mrr@20"].value == pytest.approx((0.5 + 1 + 0 + 1 + 0.5 + 1) / 6)
    assert back.entries["old"].means["mrr@20"].n == 3
    assert sorted(back.entries["old"].times["total"]) == pytest.approx([12.0, 14.0, 15.0, 99.0])
    assert back.tags["q1"] == {"complexity": "simple", "gt_count": "2"}
    assert LAYOUTS["swarm"].write(back) == text


SWARM = """Hit@1,MRR,DR@20,latency,method,query_id,gt_count,seed,query_complexity
1,1.0,0.5,0.01,GraphFlow,1,2,42,simple
0,,0.25,0.02,GraphFlow,2,7,42,complex
1,1.0,1.0,0.03,Swarm,1,2,43,simple
"""


def test_read_swarm_notebook_table_returns_canonical_measures(tmp_path):
    found = LAYOUTS["swarm"].read(written(tmp_path, "swarm", SWARM))
    assert found.convention == "swarm"
    assert list(found.measures) == ["hit_rate@1", "mrr@20", "dr(targets=identity)@20"]
    entry = found.entries["GraphFlow"]
    assert entry.means["mrr@20"] == pytest.approx((1.0, 1, math.nan, math.nan), nan_ok=True)
    assert entry.scores[0].unscored["mrr@20"] == {"2": "no value in the file"}
    assert entry.scores[0].per_query["MRR"] == {"1": 1.0}
    assert entry.stated_manifest["seeds"] == ["42"]
    again = table(LAYOUTS["swarm"].write(found))
    assert [row["seed"] for row in again] == ["42", "42", "43"]
    assert again[1]["MRR"] == again[1]["Hit@5"] == ""
    assert [float(row["latency"]) for row in again] == [0.01, 0.02, 0.03]


# The tokenization study


def test_write_tokenization_matches_example_and_stage_means(tmp_path):
    qrels = {"q1": {"doc0": 1, "doc1": 1}, "q2": {"r": 1}, "q3": {"s": 1}}
    run = {"q1": ["doc0", "doc5", "doc99", "doc1", "doc42"], "q2": ["a", "b", "r"], "q3": ["a"]}
    shown = scored(LAYOUTS["tokenization"], {"canine": run}, qrels)
    clock = timings([("q1", 0, "ok", 4.0, 3.0), ("q2", 0, "ok", 8.0, 6.0)])
    shown = Overview(**{**vars(shown), "entries": {"canine": timed(shown.entries["canine"], clock)}})
    text = LAYOUTS["tokenization"].write(shown)
    assert text.splitlines()[0] == (
        "model,num_queries,mrr,avg_embedding_ms,avg_retrieval_ms,avg_total_ms,recall@1,recall@5,recall@10,recall@15,"
        "precision@1,precision@5,precision@10,precision@15"
    )
    (row,) = table(text)
    assert (row["model"], row["num_queries"], row["avg_embedding_ms"]) == ("canine", "3", "")
    assert float(row["mrr"]) == pytest.approx(0.444444, abs=1e-6)
    assert (float(row["avg_retrieval_ms"]), float(row["avg_total_ms"])) == (4.5, 6.0)
    assert float(row["recall@5"]) == pytest.approx((1 + 1 + 0) / 3)
    assert float(row["precision@5"]) == pytest.approx((0.4 + 0.2 + 0) / 3)
    back = LAYOUTS["tokenization"].read(written(tmp_path, "tokenization", text))
    assert back.entries["canine"].means["mrr@15"].n == 3
    assert back.entries["canine"].speed.stages["retrieve"].mean == 4.5
    assert LAYOUTS["tokenization"].write(back) == text


# pgVectorDB


def test_write_pgvectordb_matches_golden_values(tmp_path):
    lists = {"q1": [1, 3, 7, 2, 5], "q2": [4, 6, 1, 8, 2], "q3": [2, 1, 9, 3, 4]}
    truth = {"q1": [1, 2, 3], "q2": [4, 6], "q3": [2, 9, 10]}
    run = {query: list(map(str, docs)) for query, docs in lists.items()}
    qrels = {query: dict.fromkeys(map(str, docs), 1) for query, docs in truth.items()}
    shown = scored(LAYOUTS["pgvectordb"], {"semantic": run}, qrels, ks=(1, 2, 3, 5, 10))
    clock = timings([("q1", 0, "ok", 4.0, 3.0), ("q2", 0, "ok", 8.0, 6.0)])
    shown = Overview(**{**vars(shown), "entries": {"semantic": timed(shown.entries["semantic"], clock, plan={"k": 5})}})
    text = LAYOUTS["pgvectordb"].write(shown)
    assert text.splitlines()[0] == "Method,K,Precision@K,Recall@K,F1@K,MAP@K,MRR,NDCG@K,Hit Rate,Latency (ms)"
    rows = table(text)
    assert [row["K"] for row in rows] == ["1", "2", "3", "5", "10"]
    names = ("Precision@K", "Recall@K", "F1@K", "MAP@K", "MRR", "NDCG@K", "Hit Rate")
    golden = [0.4667, 0.8889, 0.6120, 0.8241, 1, 0.8905, 1]
    assert [float(rows[3][name]) for name in names] == pytest.approx(golden, abs=5e-5)
    assert [float(row["Precision@K"]) for row in rows] == pytest.approx([1, 0.833, 0.667, 0.467, 0.233], abs=5e-4)
    assert [float(row["Recall@K"]) for row in rows] == pytest.approx([0.389, 0.667, 0.778, 0.889, 0.889], abs=5e-4)
    assert [row["Latency (ms)"] for row in rows] == ["", "", "", "6.0", ""]  # k was 5
    back = LAYOUTS["pgvectordb"].read(written(tmp_path, "pgvectordb", text))
    assert back.entries["semantic"].means["f1(of=means)@5"].value == pytest.approx(0.6120, abs=5e-5)
    assert back.entries["semantic"].costs == {"latency_at_5_ms": 6.0}
    assert LAYOUTS["pgvectordb"].write(back) == text


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
    held = {"metadata": {**RESULTS["metadata"], "num_results": 2}, "results": [RESULT, failed]}
    found = LAYOUTS["ragdbeval"].read(written(tmp_path, "ragdbeval", json.dumps(held)))
    assert (found.dataset, found.made, found.failures) == (
        "sift1m",
        "2024-01-15T10:30:00",
        {"milvus_sift1m": "no server"},
    )
    entry = found.entries["faiss_sift1m"]
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
    again = json.loads(LAYOUTS["ragdbeval"].write(found))
    assert again["metadata"] == {**held["metadata"], "convention": "ragdbeval-capped"}
    assert list(again["results"][0]) == list(RESULT)
    known = {key: value for key, value in again["results"][0]["mean_metrics"].items() if value is not None}
    assert known == {**RESULT["mean_metrics"], "resource_ram_mb_peak": 3.0}
    assert {key: value for key, value in again["results"][0].items() if key != "mean_metrics"} == {
        key: value for key, value in RESULT.items() if key != "mean_metrics"
    }
    assert {key: value for key, value in again["results"][1].items() if value is not None} == {
        **failed,
        "dataset": "sift1m",
    }


def test_read_ragdbeval_several_indexes_are_separate_systems(tmp_path):
    other = {**RESULT, "index_config": "IVF", "mean_metrics": {"quality_recall@10": 0.5}}
    held = {"metadata": {}, "results": [RESULT, other]}
    found = LAYOUTS["ragdbeval"].read(written(tmp_path, "ragdbeval", json.dumps(held)))
    assert found.systems == ["faiss_sift1m (HNSW32)", "faiss_sift1m (IVF)"]
    again = json.loads(LAYOUTS["ragdbeval"].write(found))["results"]
    assert [(one["experiment_name"], one["index_config"]) for one in again] == [
        ("faiss_sift1m", "HNSW32"),
        ("faiss_sift1m", "IVF"),
    ]


def test_read_ragdbeval_zero_and_unknown_values_add_notes(tmp_path):
    held = {"results": [{**RESULT, "mean_metrics": {"quality_recall@10": 0.5, "perf_qps_max": 0, "perf_odd": 1}}]}
    found = LAYOUTS["ragdbeval"].read(written(tmp_path, "ragdbeval", json.dumps(held)))
    assert found.notes == [
        "not part of this layout and left out: odd",
        "RAGdbEval writes 0 for what it did not measure: a 0 here may mean that",
    ]


def test_write_ragdbeval_timed_run_matches_values_by_hand(tmp_path):
    shown = scored(LAYOUTS["ragdbeval"], {"faiss": OLD}, dataset="tiny", made="2026-01-01T00:00:00+00:00")
    clock = timings([("q1", 0, "ok", 4.0, 3.0), ("q2", 0, "ok", 6.0, 6.0), ("q3", 0, "ok", 11.0, 6.0)])
    about = {"plan": {"k": 10, "repeats": 1}, "machine": {"cores": 2}, "finished": "2026-01-01T00:00:00+00:00"}
    entry = timed(shown.entries["faiss"], clock, **about)
    entry = SystemSummary(
        **{**vars(entry), "costs": {"build_seconds": 1.5, "cold_ms": 9.0, "index_size_bytes": 1048576.0}}
    )
    shown = Overview(**{**vars(shown), "entries": {"faiss": entry}, "failures": {"milvus": "no server"}})
    held = json.loads(LAYOUTS["ragdbeval"].write(shown))
    assert held["metadata"] == {
        "generated_at": "2026-01-01T00:00:00+00:00",
        "num_results": 2,
        "random_seed": None,
        "strict_mode": None,
        "convention": "ragdbeval-capped",
    }
    figures = held["results"][0]["mean_metrics"]
    assert figures["quality_recall@1"] == pytest.approx((0 + 1 + 0) / 3)
    # The denominator is the number of retrieved documents.
    assert figures["quality_precision@10"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert figures["quality_mrr"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert figures["perf_latency_mean_ms"] == 7.0
    assert figures["perf_latency_p95_ms"] == pytest.approx(np.percentile([4, 6, 11], 95))
    assert figures["perf_latency_std_ms"] == pytest.approx(statistics.stdev([4, 6, 11]))
    assert figures["perf_qps_single_thread"] == pytest.approx(1000 / 7)
    assert figures["perf_qps_max"] is figures["ops_update_latency_ms"] is figures["resource_disk_mb"] is None
    assert (figures["perf_coldstart_latency_ms"], figures["resource_index_build_time_sec"]) == (9.0, 1.5)
    assert (figures["resource_index_size_bytes"], figures["resource_index_size_mb"]) == (1048576, 1.0)
    assert held["results"][0]["hardware_info"] == {"cores": 2}
    assert (held["results"][1]["success"], held["results"][1]["error_message"]) == (False, "no server")
    back = LAYOUTS["ragdbeval"].read(written(tmp_path, "ragdbeval", json.dumps(held)))
    assert json.loads(LAYOUTS["ragdbeval"].write(back)) == held
    text = LAYOUTS["ragdbeval-csv"].write(shown)
    (row,) = table(text)
    assert (row["experiment"], row["database"], row["dataset"], row["num_runs"]) == ("faiss", "faiss", "tiny", "1")
    assert float(row["latency_p50_ms"]) == 6.0
    assert row["qps_at_recall_95"] == row["ram_bytes_peak"] == ""
    assert list(row)[:4] == ["experiment", "database", "dataset", "num_runs"]
    csv_back = LAYOUTS["ragdbeval-csv"].read(written(tmp_path, "ragdbeval-csv", text))
    assert LAYOUTS["ragdbeval-csv"].write(csv_back) == text


def test_write_ragdbeval_csv_columns_match_json_keys(tmp_path):
    shown = scored(LAYOUTS["ragdbeval"], {"faiss": OLD})
    keys = json.loads(LAYOUTS["ragdbeval"].write(shown))["results"][0]["mean_metrics"]
    *columns, last = list(table(LAYOUTS["ragdbeval-csv"].write(shown))[0])[4:]
    plain = [key.partition("_")[2] for key in keys if not key.startswith("ops_")]
    assert columns == plain
    assert last == "convention"
    assert len(columns) == 16 + 15 + 11


def test_write_ragdbeval_partial_failure_is_success_with_warning(tmp_path):
    shown = scored(LAYOUTS["ragdbeval"], {"faiss": OLD})

    def result(failed):
        entry = SystemSummary(**{**vars(shown.entries["faiss"]), "failed": dict.fromkeys(failed, "timed out")})
        return LAYOUTS["ragdbeval"].write(Overview(**{**vars(shown), "entries": {"faiss": entry}}))

    held = result(["q1"])
    (one,) = json.loads(held)["results"]
    assert (one["success"], one["error_message"], one["warnings"]) == (True, None, ["1 query failed"])
    back = LAYOUTS["ragdbeval"].read(written(tmp_path, "ragdbeval", held))
    assert "faiss: 1 query failed" in back.notes
    assert LAYOUTS["ragdbeval"].write(back) == held.replace('"generated_at": ""', '"generated_at": null')
    (one,) = json.loads(result(["q1", "q2", "q3"]))["results"]
    assert (one["success"], one["error_message"]) == (False, "3 queries failed")


def test_ragdbeval_layout_document_convention_round_trips(tmp_path):
    """Check golden vector G3: two of five relevant documents are returned, d1 and d2; k is 1 and 10.

    Recall@1 is divided by 5 in the document of RAGdbEval (`ragdbeval`) and by k in its code (`ragdbeval-capped`).
    """
    qrels = {"q": {f"d{i}": 1 for i in range(1, 6)}}
    run = {"q": {"d1": 3.0, "d2": 2.0, "x": 1.0}}
    for convention, recall, precision in (("ragdbeval", 0.4, 0.2), ("ragdbeval-capped", 0.4, 2 / 3)):
        wanted = LAYOUTS["ragdbeval"].variants[convention]
        found = ragauge.evaluate(qrels, run, list(wanted), convention)
        shown = Overview(
            "x", {"a": SystemSummary("a", {m: Mean(v, 1) for m, v in found.means.items()})}, wanted, convention
        )
        for name in ("ragdbeval", "ragdbeval-csv"):
            text = LAYOUTS[name].write(shown)
            back = LAYOUTS[name].read(written(tmp_path, name, text))
            assert back.convention == convention
            assert LAYOUTS[name].write(back) == text
        (row,) = table(LAYOUTS["ragdbeval-csv"].write(shown))
        assert (float(row["recall@10"]), float(row["precision@10"])) == pytest.approx((recall, precision))
        assert float(row["recall@1"]) == pytest.approx(0.2 if convention == "ragdbeval" else 1.0)
        assert row["convention"] == convention


def test_read_ragdbeval_unknown_convention_raises_error(tmp_path):
    held = {**RESULTS, "metadata": {**RESULTS["metadata"], "convention": "nonsense"}}
    with pytest.raises(
        BadInput, match="unknown convention; expected one of ragdbeval-capped, ragdbeval, got `nonsense`"
    ):
        LAYOUTS["ragdbeval"].read(written(tmp_path, "ragdbeval", json.dumps(held)))


# Rig


def with_intervals(shown):
    entries = {
        name: SystemSummary(
            **{
                **vars(one),
                "means": {m: Mean(v.value, v.n, v.value - 0.1, v.value + 0.1) for m, v in one.means.items()},
            }
        )
        for name, one in shown.entries.items()
    }
    return Overview(**{**vars(shown), "entries": entries, "confidence": 0.9, "rounds": 2000})


def test_write_rig_matches_statistics_by_hand(tmp_path):
    shown = with_intervals(scored(LAYOUTS["rig"], {"memvid": OLD}, dataset="tiny"))
    text = LAYOUTS["rig"].write(shown)
    held = json.loads(text)
    assert list(held) == ["dataset_id", "store_kind", "metrics"]
    assert [one["metric"] for one in held["metrics"]] == [
        *("recall@10", "precision@10", "hit_rate@10", "mrr", "map@10", "ndcg@10"),
    ]
    mrr = held["metrics"][3]
    values = [0.5, 1.0, 0.0]
    assert mrr["per_query"] == [["q1", 0.5], ["q2", 1.0], ["q3", 0.0]]
    assert list(mrr) == ["metric", "n", "mean", "stddev", "min", "max", "p50", "p95", "per_query", "ci"]
    assert (mrr["n"], mrr["mean"], mrr["min"], mrr["max"], mrr["p50"]) == (3, 0.5, 0.0, 1.0, 0.5)
    assert mrr["stddev"] == pytest.approx(statistics.stdev(values))
    assert mrr["p95"] == pytest.approx(statistics.quantiles(values, n=100, method="inclusive")[94])
    assert mrr["ci"] == {"lower": 0.4, "upper": 0.6, "level": 0.9, "iterations": 2000}
    assert held["metrics"][5]["per_query"][0][1] == pytest.approx((1 / math.log2(3) + 0.5) / (1 + 1 / math.log2(3)))
    back = LAYOUTS["rig"].read(written(tmp_path, "rig", text))
    assert (back.systems, back.dataset, back.confidence, back.rounds) == (["memvid"], "tiny", 0.9, 2000)
    assert list(back.measures) == list(LAYOUTS["rig"].measures())
    assert back.entries["memvid"].means["mrr"] == pytest.approx((0.5, 3, 0.4, 0.6))
    assert LAYOUTS["rig"].write(back) == text


def test_read_rig_keeps_judge_fingerprint_and_freshness(tmp_path):
    held = {
        "judge_fingerprint": "gpt",
        "metrics": [{"metric": "faithfulness", "n": 2, "mean": 0.5, "per_query": [["q1", 1.0], ["q2", 0.0]]}],
        "freshness": {"k": 2, "query_count": 2, "stale_rate": 0.25, "per_query": []},
    }
    found = LAYOUTS["rig"].read(written(tmp_path, "rig", json.dumps(held)))
    assert found.systems == ["file"]
    again = json.loads(LAYOUTS["rig"].write(found))
    assert (again["judge_fingerprint"], again["freshness"]) == ("gpt", held["freshness"])
    assert "store_kind" not in again
    assert again["metrics"][0]["metric"] == "faithfulness"
    assert "ci" not in again["metrics"][0]


def test_write_rig_one_or_zero_queries_has_null_statistics(tmp_path):
    held = {"metrics": [{"metric": "mrr", "per_query": [["q1", 1.0]]}, {"metric": "map@5", "per_query": []}]}
    found = LAYOUTS["rig"].read(written(tmp_path, "rig", json.dumps(held)))
    one, none = json.loads(LAYOUTS["rig"].write(found))["metrics"]
    assert (one["n"], one["mean"], one["stddev"], one["p95"]) == (1, 1.0, None, 1.0)
    assert (none["n"], none["mean"], none["stddev"], none["min"], none["p50"]) == (0, None, None, None, None)


def test_write_rig_diff_counts_winners_and_losers(tmp_path):
    shown = with_intervals(scored(LAYOUTS["rig-diff"], {"old": OLD, "new": NEW}))
    text = LAYOUTS["rig-diff"].write(shown)
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
    turned = Overview(**{**vars(shown), "baseline": "new"})
    assert json.loads(LAYOUTS["rig-diff"].write(turned))["rows"][3]["delta"] == pytest.approx(-1 / 3)
    back = LAYOUTS["rig-diff"].read(written(tmp_path, "rig-diff", text))
    assert (back.systems, back.baseline) == (["baseline", "current"], "baseline")
    assert back.entries["current"].means["mrr"].n == 3
    assert back.entries["current"].scores[0].per_query["ndcg@10"]["q3"] == 1.0
    assert LAYOUTS["rig-diff"].write(back) == text


def test_read_rig_diff_mean_over_unlisted_queries_has_n_zero(tmp_path):
    change = {"query_id": "q1", "current": 1.0, "baseline": 0.0, "delta": 1.0}
    row = {"metric": "mrr", "current_mean": 0.4, "baseline_mean": None, "delta": None, "query_changes": [change]}
    found = LAYOUTS["rig-diff"].read(written(tmp_path, "rig-diff", json.dumps({"rows": [row]})))
    assert found.entries["current"].means["mrr"].n == 0
    assert (found.systems, found.baseline) == (["current"], None)


# Layout detection


def test_detect_layout_returns_name_for_written_layouts(tmp_path):
    for name, layout in LAYOUTS.items():
        runs = {"old": OLD} if name == "rig" else {"old": OLD, "new": NEW}
        text = layout.write(scored(layout, runs))
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
    path = written(tmp_path, "rig", '{"metrics": [{"metric": "mrr", "per_query": [' + pairs)
    assert detect_layout(path) == "rig"  # although the JSON is truncated


# Round trips of random overviews

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=50)
@given(judgments(), runs(tied=False), runs(tied=False), st.lists(NAMES, min_size=2, max_size=2, unique=True))
@pytest.mark.slow
def test_layouts_random_overviews_round_trip(tmp_path_factory, name, qrels, first, second, names):
    layout = LAYOUTS[name]
    shared = {query: first.get(query, {}) for query in qrels}
    systems = dict(zip(names, (shared, {query: second.get(query, {}) for query in qrels}), strict=True))
    if name == "rig":
        systems = {names[0]: shared}
    shown = scored(layout, systems, qrels)
    path = tmp_path_factory.mktemp("round") / f"file{layout.ending}"
    text = layout.write(shown)
    path.write_text(text, newline="")
    back = layout.read(str(path))
    assert detect_layout(str(path)) == name
    assert name == "rig-diff" or back.systems == list(systems)
    for mine, theirs in zip(shown.entries.values(), back.entries.values(), strict=True):
        for measure, mean in theirs.means.items():
            assert mean.value == pytest.approx(mine.means[measure].value, abs=1e-12)
            assert mean.n in (0, mine.means[measure].n)
        assert {m for m, mean in mine.means.items() if not math.isnan(mean.value)} == set(theirs.means)
    assert layout.write(back) == text


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
        shown = Overview("dl19", entries, list(layout.measures()), layout.convention, judgments=qrels)
        text = layout.write(shown)
        back = layout.read(written(tmp_path, name, text))
        assert layout.write(back) == text
        for mine, theirs in zip(shown.entries.values(), back.entries.values(), strict=True):
            for measure, mean in mine.means.items():
                assert theirs.means[measure].value == pytest.approx(mean.value, abs=1e-12), (name, measure)
