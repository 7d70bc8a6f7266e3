"""Benchmark of vector stores: parsed stores, one process per store, saved and reused results, and failing stores."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import polars
import pytest

import ragauge
from ragauge.core.errors import BadInput, MissingEvidence, RagaugeError, UnknownName
from ragauge.files.workspace import hold_folder
from ragauge.runs.folder import utc_now
from ragauge.store_benchmarks import jobs
from ragauge.store_benchmarks.filter_results import list_filters, operating_points
from ragauge.store_benchmarks.metadata_filters import with_metadata
from ragauge.store_benchmarks.plan import (
    BenchmarkSettings,
    estimate_min_seconds,
    filter_key,
    parse_store,
    plan_builds,
)
from ragauge.store_benchmarks.results import Configuration, VectorSet
from ragauge.store_benchmarks.results_folder import SavedVectors, read_raw_result, write_raw_result, write_vectors
from ragauge.store_benchmarks.search_loops import SearchRounds, time_search_rounds
from ragauge.store_benchmarks.vector_sets import load_vector_set
from ragauge.stores.reference import ExactStore
from waiting import wait_until, wait_while_running

QUICK = {"repeats": 1, "sweep": False}


def make_vector_set(n: int = 600, d: int = 8, m: int = 20, metric: str = "l2") -> VectorSet:
    random = np.random.default_rng(5)
    base = random.normal(size=(n, d)).astype(np.float32)
    return VectorSet("random", base, random.normal(size=(m, d)).astype(np.float32), metric)


@pytest.fixture
def own_stores(tmp_path, monkeypatch):
    """Write the module `own_stores` with user-defined stores into the working directory, and return that folder."""
    (tmp_path / "own_stores.py").write_text(
        textwrap.dedent(
            '''
            import os, signal, socket, sys, time
            import numpy as np

            class ClientStore:
                """Store that is connected to a port, or has an address that it does not use yet."""
                abilities = frozenset({"save"})
                def __init__(self, metric="l2", path=None, url="", port=0):
                    self.inside, self.path = MinimalStore(metric), path
                    self.connection = socket.create_connection(("127.0.0.1", port)) if port else None
                    self.add, self.search = self.inside.add, self.inside.search
                def add(self, ids, vectors): ...
                def search(self, vectors, k): ...
                def save(self):
                    os.makedirs(self.path, exist_ok=True)
                    open(os.path.join(self.path, "state"), "w").write("saved")
                def close(self):
                    if self.connection:
                        self.connection.close()

            class MinimalStore:
                """Store with the required methods only."""
                def __init__(self, metric="l2"):
                    self.ids, self.rows = [], []
                def add(self, ids, vectors):
                    self.ids += list(ids)
                    self.rows.append(np.array(vectors))
                def search(self, vectors, k):
                    base = np.concatenate(self.rows)
                    distances = np.linalg.norm(base[None] - vectors[:, None], axis=2)
                    order = np.argsort(distances, axis=1)[:, :k]
                    return np.array(self.ids, dtype=object)[order], np.take_along_axis(distances, order, 1)

            class PrintingStore(MinimalStore):
                def search(self, vectors, k):
                    print('{"stage": "invented", "done": 1, "total": 0}')
                    os.write(1, b"not json at all\\n")
                    return super().search(vectors, k)

            class FailingStore(MinimalStore):
                def search(self, vectors, k):
                    raise OSError("disk failure")

            class CrashingStore(MinimalStore):
                def add(self, ids, vectors):
                    sys.stderr.write("about to crash\\n")
                    sys.stderr.flush()
                    os.kill(os.getpid(), signal.SIGSEGV)

            class HangingStore(MinimalStore):
                def search(self, vectors, k):
                    time.sleep(3600)

            class CountingStore(MinimalStore):
                """Writes a letter to a file each time that it is built."""
                def add(self, ids, vectors):
                    with open(os.environ["BUILT"], "a") as out:
                        out.write("x")
                    super().add(ids, vectors)

            class SlowStore(MinimalStore):
                def add(self, ids, vectors):
                    time.sleep(3600 if os.path.exists("slow") else 0)
                    super().add(ids, vectors)
            '''
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_stores", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize(
    ("text", "store", "options", "name"),
    [
        ("faiss", "faiss", {}, ""),
        ("faiss:kind=hnsw,m=32", "faiss", {"kind": "hnsw", "m": 32}, ""),
        ("faiss(kind=hnsw, m=32)", "faiss", {"kind": "hnsw", "m": 32}, ""),
        ("usearch:ef_search=10+40,exact=true", "usearch", {"ef_search": [10, 40], "exact": True}, ""),
        ("big=faiss:m=64", "faiss", {"m": 64}, "big"),
        ("mine:Store", "mine:Store", {}, ""),
        ("a.b:Store:m=3", "a.b:Store", {"m": 3}, ""),
        ("fast=a.b:Store(m=3)", "a.b:Store", {"m": 3}, "fast"),
        ("qdrant:url=http://localhost:6333", "qdrant", {"url": "http://localhost:6333"}, ""),
    ],
)
def test_parse_store_returns_store_options_and_name(text, store, options, name):
    assert parse_store(text) == Configuration(store, options, {}, name)


def test_configuration_str_and_series_have_options():
    configuration = Configuration("faiss", {"kind": "hnsw", "m": 16}, {"ef_search": 40})
    assert str(configuration) == "faiss:kind=hnsw,m=16,ef_search=40"
    assert configuration.series == "faiss hnsw"
    assert Configuration("usearch", {"exact": True, "view": False}).series == "usearch exact"


def test_configuration_str_and_repr_omit_url_and_api_key():
    configuration = Configuration(
        "qdrant", {"url": "http://me:secret@there", "api_key": "secret", "m": 16}, {"ef_search": 40}
    )
    assert configuration.series == "qdrant server"
    assert str(configuration) == "qdrant:at=server,m=16,ef_search=40"
    assert "secret" not in repr(configuration.shown)


def test_plan_builds_groups_searches_and_alternates_stores():
    builds = plan_builds(
        ["faiss:kind=hnsw,m=8+16,ef_construction=40,ef_search=10+20+30", "usearch:m=8+16"],
        BenchmarkSettings(sweep=False),
    )
    assert [str(build.configuration) for build in builds] == [
        "faiss:kind=hnsw,m=8,ef_construction=40",
        "usearch:m=8",
        "faiss:kind=hnsw,m=16,ef_construction=40",
        "usearch:m=16",
    ]
    assert [dict(search) for search in builds[0].searches] == [{"ef_search": 10}, {"ef_search": 20}, {"ef_search": 30}]
    assert [dict(search) for search in builds[1].searches] == [{}]


def test_plan_builds_given_options_replace_defaults():
    (build,) = plan_builds(["faiss:kind=ivf,nlist=7"], BenchmarkSettings())
    assert build.configuration.build == {"kind": "ivf", "nlist": 7}
    assert len(build.searches) > 3
    builds = plan_builds(["faiss:kind=ivf+flat"], BenchmarkSettings())
    kinds = {build.configuration.build["kind"] for build in builds}
    assert kinds == {"ivf", "flat"}
    quick = plan_builds(["faiss:kind=hnsw"], BenchmarkSettings(quick=True))
    assert len(quick) < len(plan_builds(["faiss:kind=hnsw"], BenchmarkSettings()))
    assert 1 < len(quick[0].searches) < len(build.searches)


@pytest.mark.parametrize("k", [10, 100, 200, 700])
def test_plan_builds_filters_at_any_k_have_distinct_widths(k):
    settings = BenchmarkSettings(k=k, filters=(0.1,))
    for store in ("hnswlib", "pgvector", "lancedb", "milvus-lite"):
        widths = [search.get("ef_search", k) for build in plan_builds([store], settings) for search in build.searches]
        assert min(widths) >= k, store


def test_bench_invalid_arguments_raise_error_before_measuring(tmp_path):
    for arguments, error, word in (
        ({"stores": "fais"}, UnknownName, "did you mean `faiss`"),
        ({"stores": []}, BadInput, "no store"),
        ({"stores": ["exact", "exact"]}, BadInput, "store `exact` appears more than once"),
        ({"stores": "exact", "clients": [0]}, BadInput, "clients must be between 1 and 10,000, got 0"),
        ({"stores": "exact", "rates": [-1.0]}, BadInput, "rate"),
        ({"stores": "exact", "filters": [2.0]}, BadInput, "filters must be above 0 and at most 1, got 2"),
        ({"stores": "exact", "k": 0}, BadInput, "k must be between 1 and 10,000,000, got 0"),
        ({"stores": "exact", "k": 601}, BadInput, "k is 601"),
        ({"stores": "exact", "k": 2.5}, BadInput, "k must be a whole number"),
        ({"stores": "exact", "clients": 2}, BadInput, "clients must be a list, got 2"),
        ({"stores": "exact", "threads": 10_000}, BadInput, "the CPU cores of this process, got 10,000"),
        ({"stores": ["exact", "usearch:ef_serch=3"]}, UnknownName, "did you mean `ef_search`"),
        ({"stores": "ragauge.store_benchmarks.results:StoreBenchmark"}, BadInput, "has no add"),
        ({"stores": ["a=exact", "a=faiss:kind=flat"]}, BadInput, "store name `a` appears more than once"),
        ({"stores": "exact", "price_per_hour": 0}, BadInput, "price"),
        ({"stores": "exact", "repeat": 3}, UnknownName, "did you mean `repeats`"),
        ({"stores": "exact", "score_judgments": True}, MissingEvidence, "no relevance judgments"),
    ):
        with pytest.raises(error, match=word):
            ragauge.bench(make_vector_set(), **{"folder": tmp_path / "out", **arguments})
    assert not (tmp_path / "out").exists()


@pytest.mark.engine
def test_bench_exact_store_has_full_recall_and_all_measurements(tmp_path):
    data = make_vector_set()
    result = ragauge.bench(data, "exact", folder=tmp_path / "out", price_per_hour=0.36, repeats=2)
    (point,) = result.points
    assert point.quality["recall(of=eps,eps=1e-06)@10"] == point.quality["recall(of=k)@10"] == 1.0
    assert point.quality["recall@10"] == pytest.approx(0.1)
    assert point.quality["precision@10"] == 1.0
    assert point.latency.n % 20 == 0
    assert point.qps == pytest.approx(1000 / point.latency.mean)
    assert point.cost_per_million == pytest.approx(0.36 * 1e6 / (3600 * point.qps))
    assert point.build.vectors == 600
    assert point.build.build_seconds > 0
    assert point.build.disk_bytes >= data.base.nbytes
    assert point.build.cold_first_ms > 0
    assert point.build.about["store"] == "exact"
    assert result.frontier == [0]
    assert result.provenance["vectors_hash"] == data.hash
    assert not list((tmp_path / "out").glob("builds/*/store"))
    assert not list((tmp_path / "out").glob("builds/*/*.log"))


def test_plan_builds_stores_differing_in_search_options_share_a_build():
    settings = BenchmarkSettings(sweep=False)
    first, second, other = (
        "hnswlib:m=16,ef_search=10+40", "hnswlib:m=16,ef_search=80", "hnswlib:m=32,ef_search=10"
    )  # fmt: skip
    builds = plan_builds([first, second, other], settings)
    assert [(build.configuration.build, list(build.searches)) for build in builds] == [
        ({"m": 16}, [{"ef_search": 10}, {"ef_search": 40}, {"ef_search": 80}]),
        ({"m": 32}, [{"ef_search": 10}]),
    ]
    named = plan_builds([f"a={first}", f"b={second}"], settings)
    assert [build.configuration.name for build in named] == ["a", "b"]
    with pytest.raises(BadInput, match="store `hnswlib:m=16,ef_search=40` appears more than once"):
        plan_builds([first, "hnswlib:m=16,ef_search=40"], settings)
    one, two = (f"pgvector(dsn=postgresql://host/{name}?a=b, ef_search=10)" for name in ("one", "two"))
    assert [build.configuration.build["dsn"][-7:] for build in plan_builds([one], settings)] == ["one?a=b"]
    with pytest.raises(BadInput, match="appears more than once"):  # the addresses are never shown
        plan_builds([one, two], settings)


@pytest.mark.engine
def test_bench_computes_key_once_per_build(monkeypatch):
    keys = []
    build_key = jobs.build_key
    monkeypatch.setattr(jobs, "build_key", lambda *arguments: keys.append(build_key(*arguments)) or keys[-1])
    stores = ["exact", "null", "a=hnswlib:m=4,ef_search=10", "b=hnswlib:m=4,ef_search=20"]
    ragauge.bench(make_vector_set(), stores, **QUICK, filters=[0.5])
    assert len(keys) == len(set(keys)) == 3


@pytest.mark.engine
def test_bench_stores_differing_in_search_options_are_all_measured():
    stores = ["hnswlib:m=4,ef_search=10", "hnswlib:m=4,ef_search=200"]
    points = ragauge.bench(make_vector_set(), stores, **QUICK).points
    assert [point.configuration.search for point in points] == [{"ef_search": 10}, {"ef_search": 200}]
    named = ragauge.bench(make_vector_set(), {"a": stores[0], "b": stores[1]}, **QUICK)
    assert named.stores == ["a", "b"]
    assert not named.failures


def test_bench_own_store_needs_only_add_and_search(own_stores):
    result = ragauge.bench(make_vector_set(), "mine=own_stores:MinimalStore", clients=[1], **QUICK)
    (point,) = result.points
    assert result.stores == ["mine"]
    assert point.quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert point.build.disk_bytes is None
    assert any("not put under load" in note for note in point.notes)


@pytest.mark.engine
@pytest.mark.parametrize("has_option", [True, False])
def test_bench_memory_and_disk_behind_a_server_are_unknown(own_stores, has_option):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        option = f"url=http://127.0.0.1:{port}" if has_option else f"port={port}"
        (point,) = ragauge.bench(make_vector_set(), f"own_stores:ClientStore:{option}", **QUICK).points
    assert (point.build.memory_bytes, point.build.disk_bytes) == (None, None)
    assert point.build.build_seconds > 0
    (local,) = ragauge.bench(make_vector_set(), "own_stores:ClientStore", **QUICK).points
    assert local.build.memory_bytes is not None
    assert local.build.disk_bytes is not None


def test_bench_ignores_output_printed_by_store(own_stores):
    reports = []
    result = ragauge.bench(make_vector_set(), "own_stores:PrintingStore", progress=reports.append, **QUICK)
    assert result.points[0].quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert not any("invented" in step.subject + step.action for step in reports)


@pytest.mark.engine
def test_bench_broken_stores_are_failures_and_others_finish(own_stores):
    faulty = ["own_stores:FailingStore", "own_stores:CrashingStore", "own_stores:HangingStore"]
    result = ragauge.bench(make_vector_set(), [*faulty, "exact"], timeout=15.0, **QUICK)
    assert result.stores == ["exact"]
    raised, crashed, hanging = (failure.message for failure in result.failures)
    assert "disk failure" in raised
    assert "SIGSEGV" in crashed
    assert "gave up after 15 seconds" in hanging
    assert [failure.exit_code for failure in result.failures] == [3, 3, 3]


WRONG_STORES = """
import numpy as np

class Pairs:
    abilities = frozenset()
    def __init__(self):
        self.ids = []
    def add(self, ids, vectors):
        self.ids += ids
    def search(self, vectors, k):
        return [(name, 0.5) for name in self.ids[:k]]

class Flat(Pairs):
    def search(self, vectors, k):
        return np.array(self.ids[:k], dtype=object), np.zeros(k)

class Numbers(Pairs):
    def search(self, vectors, k):
        return np.arange(k)[None], np.zeros((1, k))

class Short(Pairs):
    def search(self, vectors, k):
        return [self.ids[:k]], [[0.5]]

class Long(Pairs):
    def search(self, vectors, k):
        return [self.ids[: k + 5]], [[0.5] * (k + 5)]

class Raises(Pairs):
    def search(self, vectors, k):
        return self.missing

class UnknownAbility(Pairs):
    abilities = frozenset({"deletes"})
    def search(self, vectors, k):
        return [self.ids[:k]], [[0.5] * k]
"""


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("Pairs", "`search` returned a wrong result; expected a pair (ids, distances), got a list of 5 items"),
        (
            "Flat",
            "returned ids of the wrong shape; expected 1 row with up to 5 ids each, got an array of shape (5,)",
        ),
        (
            "Numbers",
            "`search` returned ids of the wrong type; expected the texts that `add` was given, or None, got int",
        ),
        ("Short", "expected one distance per id, got 5 ids and 1 distances"),
        ("Long", "`search` returned too many ids; expected up to 5 ids per query, got 10"),
        ("Raises", "AttributeError: 'Raises' object has no attribute 'missing' (in `search`, wrong_stores.py:"),
        ("UnknownAbility", "unknown capability `deletes` of a store"),
    ],
)
@pytest.mark.engine
def test_bench_own_store_breaking_protocol_has_failure_message(tmp_path, monkeypatch, store, message):
    (tmp_path / "wrong_stores.py").write_text(WRONG_STORES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "wrong_stores", raising=False)
    (failure,) = ragauge.bench(make_vector_set(50), f"wrong_stores:{store}", k=5, **QUICK).failures
    assert message in failure.message


def read_documented_stores():
    """Return the Python blocks of the section on own stores in docs/bench.md."""
    text = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    section = text.partition("## Your own store")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.S)


@pytest.mark.engine
def test_documented_own_stores_run_with_filters_deletes_and_tuning(tmp_path, monkeypatch):
    short, full = read_documented_stores()
    assert len([line for line in short.splitlines() if line.strip()]) == 15
    (tmp_path / "my_store.py").write_text(f"{short}\n\n{full}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_store", raising=False)
    result = ragauge.bench(
        make_vector_set(), ["my_store:Store", "my_store:Full:share=0.5+1.0"], filters=[0.5, 0.1], changes=20, repeats=1
    )
    assert not result.failures
    plain, half, full_point = result.points
    assert plain.quality[result.recall] == full_point.quality[result.recall] == 1.0
    assert 0.2 < half.quality[result.recall] < 0.8
    assert list(plain.notes) == ["cannot filter", "cannot insert", "cannot update", "cannot delete"]
    assert list(full_point.notes) == []
    assert [measured.recall for measured in full_point.filters] == [1.0, 1.0]
    assert {measured.operation: measured.visible for measured in full_point.changes} == {
        "insert": 1,
        "update": 1,
        "delete": 1,
    }


@pytest.mark.engine
def test_bench_missing_library_is_failure_with_install_hint(tmp_path, monkeypatch):
    (tmp_path / "usearch.py").write_text("raise ImportError('hidden for a test')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    result = ragauge.bench(make_vector_set(), ["usearch:m=8+16", "exact"], repeats=1, sweep=False)
    assert result.stores == ["exact"]
    (failure,) = result.failures
    assert "[usearch]'" in (failure.hint or "")


@pytest.mark.engine
def test_bench_reuse_measures_only_new_configurations(own_stores, monkeypatch):
    counter = own_stores / "built.txt"
    monkeypatch.setenv("BUILT", str(counter))
    data = make_vector_set()
    first = ragauge.bench(data, "own_stores:CountingStore", folder="out", reuse=True, **QUICK)
    again = ragauge.bench(data, "own_stores:CountingStore", folder="out", reuse=True, **QUICK)
    built = counter.read_text()
    assert first.points[0].latency == again.points[0].latency
    assert built == "xx"  # one `add` in the rehearsal, one in the build
    smaller_k = ragauge.bench(data, "own_stores:CountingStore", folder="out", reuse=True, k=5, **QUICK)
    assert smaller_k.points[0].quality["recall(of=eps,eps=1e-06)@5"] == 1.0
    assert counter.read_text() == "xxxx"
    assert first.points[0].quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    other = VectorSet("other", data.base + 1, data.queries, data.metric)
    ragauge.bench(other, "own_stores:CountingStore", folder="out", reuse=True, **QUICK)
    assert counter.read_text() == "xxxxxx"


STORE_WITH_HELPER = """
import numpy as np
import helper

class Store:
    def __init__(self, metric="l2"):
        self.ids, self.rows = [], []
    def add(self, ids, vectors):
        self.ids += list(ids)
        self.rows.append(np.array(vectors))
    def search(self, vectors, k):
        distances = np.linalg.norm(np.concatenate(self.rows)[None] - vectors[:, None], axis=2)
        order = np.argsort(helper.SIGN * distances, axis=1)[:, :k]
        return np.array(self.ids, dtype=object)[order], np.take_along_axis(distances, order, 1)
"""


@pytest.fixture
def write_helper(tmp_path, monkeypatch):
    """Write a store whose class imports a helper module, and return a function that rewrites the helper."""
    (tmp_path / "helped.py").write_text(STORE_WITH_HELPER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module in ("helped", "helper"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    write_text = (tmp_path / "helper.py").write_text
    write_text("SIGN = 1")
    return write_text


@pytest.mark.engine
def test_bench_own_store_with_changed_helper_is_measured_again(write_helper):
    first = ragauge.bench(make_vector_set(), ["helped:Store", "exact"], folder="out", **QUICK)
    assert [point.quality[first.recall] for point in first.points] == [1.0, 1.0]
    assert [point.reused for point in first.points] == [False, False]
    write_helper("SIGN = -1")
    again = ragauge.bench(make_vector_set(), ["helped:Store", "exact"], folder="out", **QUICK)
    own, exact = again.points
    assert own.quality[again.recall] == 0
    assert (own.reused, exact.reused) == (False, True)
    assert exact.made == first.points[1].made
    reused = ragauge.bench(make_vector_set(), ["helped:Store"], folder="out", reuse=True, **QUICK)
    assert (reused.points[0].reused, reused.points[0].latency) == (True, own.latency)


@pytest.mark.engine
def test_bench_fresh_measures_built_in_stores_again(tmp_path):
    first = ragauge.bench(make_vector_set(), "exact", folder=tmp_path, filters=[0.5], **QUICK)
    reused = ragauge.bench(make_vector_set(), "exact", folder=tmp_path, filters=[0.5], **QUICK)
    fresh = ragauge.bench(make_vector_set(), "exact", folder=tmp_path, filters=[0.5], fresh=True, **QUICK)
    assert [result.points[0].reused for result in (first, reused, fresh)] == [False, True, False]
    assert [result.points[0].filters[0].reused for result in (first, reused, fresh)] == [False, True, False]
    assert fresh.points[0].latency != first.points[0].latency
    with pytest.raises(BadInput, match="mutually exclusive"):
        ragauge.bench(make_vector_set(), "exact", folder=tmp_path, fresh=True, reuse=True, **QUICK)


def rewrite_clocks(folder, **changes):
    """Give every saved search result the readings of an idle machine, and return the number of results.

    Arrays given as `_k` replace those of result k, counted from 0 in the order of the file paths.
    """
    paths = sorted(folder.glob("builds/*/*.npz"))
    paths = [path for path in paths if "floor_ns" in (read_raw_result(path) or ({}, {}))[1]]
    for k, path in enumerate(paths):
        details, arrays = read_raw_result(path)
        idle = {
            "nanoseconds": np.full((2, 100), 10_000),
            "floor_ns": np.full((2, 2), 7_000.0),
            "readings": np.tile([0.2, 0.2, 0, 0, 0, 20.0], (2, 1)),
        }
        write_raw_result(path, details, {**arrays, **idle, **changes.get(f"_{k}", {})})
    return len(paths)


THREE_NPROBES = "faiss:kind=ivf,nlist=10,nprobe=1+2+3"


@pytest.mark.engine
def test_bench_remeasure_doubtful_measures_only_doubtful_rows_again(tmp_path):
    ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2)
    assert rewrite_clocks(tmp_path, _1={"readings": np.tile([0.2, 0.1, 50, 0, 0, 20.0], (2, 1))}) == 3
    reused = ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2)
    doubtful = [point.configuration for point in reused.points if point.clock.doubts]
    assert len(doubtful) == 1
    again = ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2, remeasure="doubtful")
    assert [point.configuration for point in again.points if not point.reused] == doubtful
    assert [point.configuration for point in again.points if point.latency.min != point.latency.max] == doubtful
    with pytest.raises(BadInput, match="remeasure must be `doubtful`, got `all`"):
        ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, remeasure="all")
    with pytest.raises(BadInput, match="fresh and remeasure are mutually exclusive"):
        ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, fresh=True, remeasure="doubtful")


@pytest.mark.engine
def test_bench_remeasure_doubtful_measures_cold_start_of_new_build(tmp_path):
    ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2)
    rewrite_clocks(tmp_path, _1={"readings": np.tile([0.2, 0.1, 50, 0, 0, 20.0], (2, 1))})
    raw_results = {path: read_raw_result(path) for path in tmp_path.glob("builds/*/*.npz")}
    [(path, (details, arrays))] = [(path, raw) for path, raw in raw_results.items() if "open_ms" in raw[0]]
    write_raw_result(path, {**details, "open_ms": 1e9}, arrays)
    reused = ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2)
    assert [point.build.cold_open_ms for point in reused.points] == [1e9] * 3
    again = ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2, remeasure="doubtful")
    (new,) = [point for point in again.points if not point.reused]
    assert 0 < new.build.cold_open_ms < 1e9


@pytest.mark.engine
def test_bench_one_fast_reading_makes_no_other_row_doubtful(tmp_path):
    ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2)
    rewrite_clocks(tmp_path, _0={"floor_ns": np.full((2, 2), 3_000.0)})
    result = ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2)
    assert [list(point.clock.doubts) for point in result.points] == [[], [], []]
    rewrite_clocks(tmp_path, _0={"floor_ns": np.full((2, 2), 14_000.0)})
    slow = ragauge.bench(make_vector_set(), THREE_NPROBES, folder=tmp_path, repeats=2)
    doubts = [point.clock.doubts[0] for point in slow.points if point.clock.doubts]
    assert doubts == ["the harness itself took 2.0 times as long as usual"]


@pytest.mark.parametrize(("index", "is_noted"), [("none", False), ("hnsw", True)])
@pytest.mark.engine
def test_bench_unused_index_is_noted_only_if_store_has_index(own_stores, index, is_noted):
    code = f"""
from own_stores import MinimalStore

class Store(MinimalStore):
    def describe(self):
        return {{"index": "{index}", "index_used": False}}
"""
    (own_stores / f"with_{index}.py").write_text(code)
    (point,) = ragauge.bench(make_vector_set(), f"with_{index}:Store", **QUICK).points
    assert any("did not use its index" in note for note in point.notes) is is_noted


@pytest.mark.parametrize("index", ["none", "hnsw"])
@pytest.mark.engine
def test_bench_notes_filters_without_index_use(own_stores, index):
    code = f"""
import numpy as np
from own_stores import MinimalStore

class Store(MinimalStore):
    abilities = frozenset({{"filter"}})
    def __init__(self, metric="l2"):
        super().__init__(metric)
        self.metadata = []
    def add(self, ids, vectors, metadata=None):
        super().add(ids, vectors)
        self.metadata += metadata or [{{}} for _ in ids]
    def search(self, vectors, k, where=None):
        ids, distances = super().search(vectors, len(self.ids))
        metadata_by_id = dict(zip(self.ids, self.metadata))
        matches = [i for i, name in enumerate(ids[0]) if (where or {{}}).items() <= metadata_by_id[name].items()][:k]
        return ids[:, matches], distances[:, matches]
    def index_used(self, vector, k, where=None):
        return where is None or sum(where.items() <= row.items() for row in self.metadata) > len(self.ids) / 4
    def describe(self):
        return {{"index": "{index}"}}
"""
    (own_stores / f"planned_{index}.py").write_text(code)
    (point,) = ragauge.bench(make_vector_set(100), f"planned_{index}:Store", filters=[0.5, 0.1], **QUICK).points
    assert [filter_result.recall for filter_result in point.filters] == [1.0, 1.0]
    expected = "with the filter 10% the engine did not use its index and compared every matching vector"
    assert [note for note in point.notes if "index" in note] == ([expected] if index == "hnsw" else [])


@pytest.mark.engine
def test_bench_interrupted_run_resumes_own_store(own_stores, monkeypatch):
    counter = own_stores / "built.txt"
    monkeypatch.setenv("BUILT", str(counter))
    stores = ["own_stores:CountingStore", "exact"]

    def interrupt(step):
        if step.subject.startswith("exact"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ragauge.bench(make_vector_set(), stores, folder="out", progress=interrupt, **QUICK)
    assert counter.read_text() == "xx"  # one `add` in the rehearsal, one in the build
    resumed = ragauge.bench(make_vector_set(), stores, folder="out", **QUICK)
    assert counter.read_text() == "xx"
    assert [point.reused for point in resumed.points] == [True, False]
    ragauge.bench(make_vector_set(), stores, folder="out", **QUICK)
    assert counter.read_text() == "xxxx"


@pytest.mark.engine
def test_bench_changed_own_store_is_measured_again(own_stores):
    data = make_vector_set()
    text = (own_stores / "own_stores.py").read_text()
    first = ragauge.bench(data, "own_stores:MinimalStore", folder="out", **QUICK)
    assert first.points[0].quality[first.recall] == 1.0
    (own_stores / "own_stores.py").write_text(
        text.replace("np.argsort(distances, axis=1)", "np.argsort(-distances, axis=1)")
    )
    again = ragauge.bench(data, "own_stores:MinimalStore", folder="out", **QUICK)
    assert again.points[0].quality[again.recall] < 0.2


@pytest.mark.engine
def test_bench_limits_vectors_and_overrides_metric():
    result = ragauge.bench(make_vector_set(), "exact", metric="cosine", max_vectors=100, max_queries=5, **QUICK)
    assert (result.metric, result.vectors, result.queries) == ("cosine", 100, 5)
    assert result.points[0].quality[result.recall] == 1.0


@pytest.mark.engine
def test_bench_several_k_uses_one_search_at_largest_k(own_stores):
    data = make_vector_set()
    result = ragauge.bench(data, ["exact"], repeats=1, k=[1, 5, 20], folder=own_stores / "kept")
    assert (result.k, list(result.cutoffs), result.recall) == (20, [1, 5, 20], "recall(of=eps,eps=1e-06)@20")
    (point,) = result.points
    neighbours = result.true_neighbours
    for k in (1, 5, 20):
        assert point.quality[f"recall@{k}"] == pytest.approx(k / neighbours)
        assert point.quality[f"precision@{k}"] == point.quality[f"mrr@{k}"] == 1
    paths = sorted((own_stores / "kept").rglob("builds/*/*.npz"))
    ragauge.bench(data, ["exact"], repeats=1, k=20, folder=own_stores / "kept")
    assert sorted((own_stores / "kept").rglob("builds/*/*.npz")) == paths  # the search at k = 20 is reused


def make_metadata(n):
    return [
        {"lang": "de" if i % 3 else "en", "year": 2000 + i % 20, "price": i / 2, "new": i % 2 == 0} for i in range(n)
    ]


@pytest.mark.engine
def test_bench_where_filters_match_brute_force_counts(tmp_path):
    data = make_vector_set()
    metadata = make_metadata(len(data.base))
    filters = {
        "lang=de and year>=2015": lambda row: row["lang"] == "de" and row["year"] >= 2015,
        "year in 2001|2002 and new=true": lambda row: row["year"] in (2001, 2002) and row["new"],
        "price<50 and price>20.5": lambda row: 20.5 < row["price"] < 50,
    }
    result = ragauge.bench(
        data, ["exact", "faiss:kind=flat"], repeats=1, metadata=metadata, where=list(filters), folder=tmp_path
    )
    for point in result.points:
        assert [filter_result.name for filter_result in point.filters] == list(filters)
        for filter_result, matching in zip(point.filters, filters.values(), strict=True):
            assert filter_result.matching == sum(map(matching, metadata)) > 0
            assert (filter_result.returned, filter_result.recall, filter_result.wrong) == (1.0, 1.0, 0)
    paths = set(tmp_path.rglob("builds/*/*.npz"))
    ragauge.bench(data, ["exact"], repeats=1, metadata=metadata, where=[{"new": True}], folder=tmp_path)
    assert len(set(tmp_path.rglob("builds/*/*.npz")) - paths) == 1  # another filter adds one result
    metadata[0]["new"] = not metadata[0]["new"]
    paths = set(tmp_path.rglob("builds/*/*.npz"))
    ragauge.bench(data, ["exact"], repeats=1, metadata=metadata, where=[{"new": True}], folder=tmp_path)
    assert len(set(tmp_path.rglob("builds/*/*.npz")) - paths) == 1  # so do other metadata


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_with_metadata_file_matches_rows_by_id_or_order(tmp_path, ending):
    data = make_vector_set()
    metadata = make_metadata(len(data.base))
    shuffled = sorted(({"id": str(i), **row} for i, row in enumerate(metadata)), key=lambda row: row["price"] % 7)
    for name, rows in (("ids", shuffled), ("order", metadata)):
        path = tmp_path / f"{name}.{ending}"
        frame = polars.DataFrame(rows)
        {"jsonl": frame.write_ndjson, "csv": frame.write_csv, "parquet": frame.write_parquet}[ending](path)
        assert with_metadata(data, path).metadata == metadata


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("lang=xx", "matches no vector"),
        ("colour=red", "unknown field `colour` of the metadata"),
        ("lang", "cannot be read at `lang`; expected FIELD=VALUE"),
        ("new=perhaps", "the field `new` must be true or false, got `perhaps`"),
        ("price<cheap", "a condition on `price` needs a number, got `cheap`"),
        ({"price": {"$near": 3}}, "unknown operator of 'price'"),
    ],
)
def test_bench_invalid_where_filter_raises_error(where, message):
    data = make_vector_set()
    with pytest.raises(RagaugeError, match=re.escape(message)):
        ragauge.bench(data, ["exact"], metadata=make_metadata(len(data.base)), where=where)


def test_bench_invalid_metadata_raises_error():
    data = make_vector_set()
    with pytest.raises(MissingEvidence, match="has no metadata to filter by"):
        ragauge.bench(data, ["exact"], where="lang=de")
    with pytest.raises(BadInput, match=r"no id of the metadata .* expected ids such as 0, 1, 2, got x"):
        ragauge.bench(data, ["exact"], where="lang=de", metadata=[{"id": "x", "lang": "de"}])
    with pytest.raises(BadInput, match="expected 600 rows, got 1"):
        ragauge.bench(data, ["exact"], where="lang=de", metadata=[{"lang": "de"}])
    with pytest.raises(BadInput, match="values of several types"):
        ragauge.bench(data, ["exact"], where="lang=de", metadata=[{"lang": 3 if i else "de"} for i in range(600)])


def test_plan_builds_default_ef_search_is_at_least_k():
    (build, *_) = plan_builds(["hnswlib"], BenchmarkSettings(k=50))
    assert [search["ef_search"] for search in build.searches] == [50, 80, 160, 320]


@pytest.mark.engine
def test_bench_load_test_rebuilds_removed_store(tmp_path):
    data = make_vector_set()
    ragauge.bench(data, "exact", folder=tmp_path, repeats=1)
    result = ragauge.bench(data, "exact", folder=tmp_path, repeats=1, clients=[1], shares=[0.5], seconds=0.5)
    closed_loop, open_loop = result.points[0].loads
    assert closed_loop.rate is None
    assert open_loop.rate == pytest.approx(0.5 * closed_loop.qps, rel=0.01)
    assert not result.failures


@pytest.mark.crash
def test_bench_killed_process_resumes(own_stores):
    """Kill the benchmark when the first store is measured and the second is being built.

    Its worker ends too, and the same command resumes without measuring the first store again.
    """
    psutil = pytest.importorskip("psutil")
    script = own_stores / "go.py"
    script.write_text(
        "import numpy as np, ragauge\n"
        "base = np.random.default_rng(1).normal(size=(300, 4)).astype('float32')\n"
        "data = ragauge.VectorSet('x', base, base[:5] + 0.5, 'l2')\n"
        "result = ragauge.bench(data, ['exact', 'own_stores:SlowStore'], folder='out', repeats=1)\n"
        "print(result.stores)\n"
    )
    (own_stores / "slow").touch()
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
    try:
        wait_while_running(process, lambda: len(list(Path("out").glob("builds/*"))) == 2, "the second store is built")
        (worker,) = psutil.Process(process.pid).children()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, "the worker has ended")
    modified = {path: path.stat().st_mtime_ns for path in Path("out").glob("builds/*/*.npz")}
    assert modified
    (own_stores / "slow").unlink()
    resumed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert resumed.stdout.strip() == "['exact', 'own_stores:SlowStore']"
    assert {path: path.stat().st_mtime_ns for path in modified} == modified


def test_bench_folder_in_use_raises_error(tmp_path):
    with hold_folder(tmp_path), pytest.raises(BadInput, match="another process is working in this folder"):
        ragauge.bench(make_vector_set(), "exact", folder=tmp_path, **QUICK)


@pytest.mark.engine
def test_bench_api_key_is_in_no_file_and_no_message(tmp_path):
    pytest.importorskip("qdrant_client")
    store = "qdrant:url=http://me:SEKRET@127.0.0.1:9,api_key=SEKRET"
    result = ragauge.bench(make_vector_set(), ["exact", store], folder=tmp_path, **QUICK)
    ragauge.report(result, [tmp_path / "page.html", tmp_path / "all.json", tmp_path / "points.csv"])
    assert result.failures
    assert "SEKRET" not in repr(result.failures)
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"SEKRET" not in path.read_bytes(), path


def test_raw_results_and_saved_vectors_round_trip(tmp_path):
    write_raw_result(tmp_path / "a.npz", {"kind": 1}, {"ns": np.arange(4)})
    details, arrays = read_raw_result(tmp_path / "a.npz")
    assert details.pop("made") <= utc_now()
    assert details == {"kind": 1}
    assert arrays["ns"].tolist() == [0, 1, 2, 3]
    (tmp_path / "half.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:50])
    assert read_raw_result(tmp_path / "half.npz") is None
    assert read_raw_result(tmp_path / "none.npz") is None
    data = make_vector_set(50, 3, 4)
    write_vectors(data, tmp_path / "v")
    saved = SavedVectors(str(tmp_path / "v"))
    assert saved.rows("base", 7, 5).tolist() == data.base[7:12].tolist()
    assert saved.rows("queries").tolist() == data.queries.tolist()
    assert saved.ids(48, 9) == ["48", "49"]
    assert saved.others(500, 0).shape == (50, 3)
    assert json.loads((tmp_path / "v" / "vectors.json").read_text())["shapes"]["base"] == [50, 3]


def test_read_raw_result_with_flipped_byte_does_not_raise(tmp_path):
    write_raw_result(tmp_path / "a.npz", {"notes": ["x"]}, {"ns": np.arange(400)})
    content = (tmp_path / "a.npz").read_bytes()
    for i in range(0, len(content), 3):
        (tmp_path / "b.npz").write_bytes(content[:i] + bytes([content[i] ^ 255]) + content[i + 1 :])
        raw = read_raw_result(tmp_path / "b.npz")
        assert raw is None or isinstance(raw[0], dict)


@pytest.mark.parametrize(("name", "metric"), [("ann_bigann10k", "l2"), ("ann_glove50_10k", "cosine")])
@pytest.mark.engine
def test_bench_recall_matches_published_neighbours(shared, tmp_path, name, metric):
    """The recall of an HNSW index equals the one computed here from its raw results and the published neighbours.

    The published file is parsed here with NumPy.
    """
    pytest.importorskip("faiss")
    folder = shared(name)
    (path,) = [path for path in folder.glob("groundtruth*") if metric in path.name or "bigann" in name]
    values = np.frombuffer(gzip.decompress(path.read_bytes()), "<i4")
    published = values.reshape(-1, 101)[:, 1:11]
    stores = ["exact", "faiss:kind=hnsw,m=8,ef_construction=40,ef_search=10"]
    result = ragauge.bench(folder, stores, metric=metric, folder=tmp_path, repeats=1, sweep=False)
    assert result.truth == "given"
    exact_point, graph_point = result.points
    assert exact_point.quality["recall(of=k)@10"] == exact_point.quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert exact_point.quality["recall@10"] == pytest.approx(0.1)
    raw_results = [read_raw_result(path) for path in tmp_path.glob("builds/*/*.npz")]
    positions = [
        arrays["positions"] for details, arrays in raw_results if details.get("about", {}).get("kind") == "hnsw"
    ]
    pairs = zip(positions[0].tolist(), published.tolist(), strict=True)
    recalls = [len(set(actual) & set(expected)) / 10 for actual, expected in pairs]
    assert graph_point.quality["recall(of=k)@10"] == pytest.approx(np.mean(recalls))
    assert 0.5 < graph_point.quality["recall(of=k)@10"] < 1


@pytest.mark.engine
def test_bench_fixed_rate_latency_shows_stalls():
    """Every 200th search takes 200 ms.

    In a closed loop one query in 200 is slow. At 200 queries per second, 40 of every 200 queries (a fifth) are due
    during the stall.
    """
    stalling_store = "null:stall_ms=200,every=200"
    result = ragauge.bench(
        make_vector_set(), stalling_store, clients=[1], rates=[200.0], seconds=3.0, repeats=1, sweep=False
    )
    closed_loop, open_loop = result.points[0].loads
    assert open_loop.latency.p90 > 50
    assert open_loop.latency.p90 > 2 * open_loop.service.p90
    assert open_loop.latency.p90 > 2 * closed_loop.latency.p90


@pytest.mark.engine
def test_bench_judgments_scores_relevance_of_results():
    random = np.random.default_rng(3)
    base = random.normal(size=(300, 8)).astype(np.float32)
    ids = [f"doc {i}" for i in range(300)]
    queries = base[:30] + 0.01
    judgments = {f"q{i}": {f"doc {i}": 1} for i in range(30)}
    data = VectorSet(
        "judged", base, queries, "l2", ids=ids, query_ids=list(judgments), judgments=ragauge.Judgments(judgments)
    )
    result = ragauge.bench(data, ["exact", "null"], score_judgments=True, **QUICK)
    exact_point, null_point = result.points
    assert exact_point.relevance == {"ndcg@10": 1.0, "hit_rate@10": 1.0}
    # The null store always returns the first ten documents, which are relevant to ten of the thirty queries.
    assert null_point.relevance["hit_rate@10"] == pytest.approx(1 / 3)


def test_plan_builds_pgvector_forces_index_only_if_requested():
    """Searches that force the index are measured only on request, as a separate series."""
    searches = [search for build in plan_builds(["pgvector"], BenchmarkSettings()) for search in build.searches]
    assert searches
    assert not any("force" in search for search in searches)
    builds = plan_builds(["pgvector:index=hnsw,half=false,ef_search=40,force=false+true"], BenchmarkSettings())
    assert [point.series for build in builds for point in build.points] == ["pgvector hnsw", "pgvector hnsw forced"]
    assert Configuration("pgvector", {"index": "hnsw"}, {"force": True}, "mine").series == "mine forced"


@pytest.mark.engine
def test_bench_filters_measure_every_search_setting(tmp_path):
    """With nprobe=4, recall is above 0.95 without a filter, but below it with one that matches 1% of the vectors."""
    data = load_vector_set("clustered:n=2000,d=16,queries=50")
    stores = ["exact", "faiss:kind=ivf,nlist=20,nprobe=1+4+20"]
    result = ragauge.bench(data, stores, repeats=2, filters=[0.01], folder=tmp_path)
    faiss_points = [point for point in result.points if point.configuration.store == "faiss"]
    assert len(faiss_points) == 3
    for point in result.points:
        (filter_result,) = point.filters
        assert 2 <= filter_result.repeats <= 6  # more than the 2 requested if their means differ
        assert filter_result.latency.n % (filter_result.repeats * len(data.queries)) == 0
        assert filter_result.qps == pytest.approx(1000 / filter_result.latency.mean)
        assert not math.isnan(filter_result.qps_spread)
    recalls = [point.filters[0].recall for point in faiss_points]
    assert recalls[0] < recalls[1] < 0.95 < faiss_points[1].quality[result.recall]
    assert recalls[2] == 1.0
    best_points = {point.configuration.series: point for point in operating_points(result, list_filters(result)[0])}
    assert best_points["faiss ivf"].configuration.search == {"nprobe": 20}
    modified = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("builds/*/*.npz")}
    again = ragauge.bench(data, stores, repeats=2, filters=[0.01], folder=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("builds/*/*.npz")} == modified
    assert all(filter_result.reused for point in again.points for filter_result in point.filters)
    assert not any(filter_result.reused for point in result.points for filter_result in point.filters)


@pytest.mark.engine
def test_bench_filters_reused_folder_measures_only_missing_results(tmp_path):
    """An interrupted benchmark leaves results with some filters, which are not measured again."""
    data, settings = make_vector_set(), {"repeats": 1, "filters": [0.5, 0.1], "folder": tmp_path}
    ragauge.bench(data, ["exact"], **settings)
    name = filter_key({}, {"selectivity": 0.1}, BenchmarkSettings(repeats=1, filters=(0.5, 0.1)))
    (missing_path,) = tmp_path.rglob(f"{name}.npz")
    missing_path.unlink()
    reports = []
    result = ragauge.bench(data, ["exact"], progress=reports.append, **settings)
    assert [step.done for step in reports if (step.subject, step.action) == ("exact", "filters")] == [2]
    assert [filter_result.reused for filter_result in result.points[0].filters] == [True, False]


@pytest.mark.engine
def test_bench_filters_stop_at_time_limit(tmp_path):
    """The first search setting is always measured.

    For the others, an empty result is saved if the time limit was reached, and a note reports it.
    """
    data = make_vector_set()
    stores = ["faiss:kind=ivf,nlist=10,nprobe=1+2+10"]
    options = {"repeats": 2, "filters": [0.5], "folder": tmp_path}
    settings = BenchmarkSettings(filters=(0.5,), timeout=600.0)
    assert (settings.filter_seconds, BenchmarkSettings(filters=(0.5,) * 20, timeout=600.0).filter_seconds) == (
        30.0,
        15.0,
    )
    store = ExactStore(metric="l2")
    store.add([str(i) for i in range(len(data.base))], data.base)
    index = {str(i): i for i in range(len(data.base))}
    raw_results = time_search_rounds(
        store,
        data.queries,
        5,
        [{}, {}, {}],
        index=index,
        rounds=SearchRounds(floor=store, warm_up=data.queries[:2], repeats=2, budget_s=1e-9),
    )
    assert [len(raw.get("nanoseconds", ())) for raw in raw_results] == [1, 0, 0]
    result = ragauge.bench(data, stores, **options)
    (build_folder,) = {path for path in tmp_path.rglob("builds/*") if (path / "build.json").exists()}
    search = result.points[0].configuration.search
    write_raw_result(
        build_folder / f"{filter_key(search, {'selectivity': 0.5}, BenchmarkSettings(repeats=2, filters=(0.5,)))}.npz",
        {},
        {},
    )
    again = ragauge.bench(data, stores, **options)
    assert [len(point.filters) for point in again.points] == [0, 1, 1]
    assert again.points[0].notes == [
        "not measured with 1 of 1 filters: the limit of 30 s per filter was reached (raise it with --timeout)"
    ]


def test_plan_builds_with_filters_has_larger_nprobe():
    def list_probes(settings, store="faiss:kind=ivf"):
        return [search["nprobe"] for build in plan_builds([store], settings) for search in build.searches]

    assert list_probes(BenchmarkSettings()) == [1, 2, 4, 8, 16, 32]
    assert (
        list_probes(BenchmarkSettings(filters=(0.01,)))
        == list_probes(BenchmarkSettings(where=("a=b",)))
        == [1, 2, 4, 8, 16, 32, 64, 128]
    )
    assert list_probes(BenchmarkSettings(filters=(0.01,)), "faiss:kind=ivf,nprobe=4+8") == [4, 8]


def test_estimate_min_seconds_includes_filters():
    """Each of 2 filters adds 8 settings with 3 trials of 0.25 s, and all filters together one process start of 1 s.

    usearch cannot filter and adds nothing.
    """
    stores = ["faiss:kind=ivf", "usearch"]
    builds = plan_builds(stores, BenchmarkSettings(filters=(0.5, 0.01)))
    difference = estimate_min_seconds(builds, BenchmarkSettings(filters=(0.5, 0.01))) - estimate_min_seconds(
        builds, BenchmarkSettings()
    )
    assert difference == pytest.approx(1.0 + 2 * 8 * 3 * 0.25)


@pytest.mark.engine
def test_bench_remeasure_doubtful_measures_doubtful_filter_results(tmp_path):
    data, options = make_vector_set(), {"repeats": 2, "filters": [0.5, 0.1], "folder": tmp_path}
    ragauge.bench(data, ["exact"], **options)
    settings = BenchmarkSettings(repeats=2, filters=(0.5, 0.1))
    steady_path, doubtful_path = (
        next(tmp_path.rglob(f"{filter_key({}, {'selectivity': selectivity}, settings)}.npz"))
        for selectivity in settings.filters
    )
    for path, slower in ((steady_path, 1), (doubtful_path, 3)):
        details, arrays = read_raw_result(path)
        one_round = np.full_like(arrays["nanoseconds"][0], 50_000)
        idle = np.tile([1.0, 1.0, 0, 0, 0, 100], (2, 1))
        times = np.array([one_round, slower * one_round])
        floors = np.full_like(arrays["floor_ns"], 9_000)
        write_raw_result(path, details, {**arrays, "nanoseconds": times, "readings": idle, "floor_ns": floors})
    result = ragauge.bench(data, ["exact"], remeasure="doubtful", **options)
    assert [filter_result.reused for filter_result in result.points[0].filters] == [True, False]
