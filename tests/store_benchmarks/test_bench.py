"""Benchmark of vector stores: parsed stores, one process per store, saved and reused results, and failing stores."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import polars
import pytest

import ragauge
from ragauge.core import plugins
from ragauge.core.errors import BadInput, MissingEvidence, RagaugeError, UnknownName
from ragauge.files.workspace import hold_folder
from ragauge.reports.layouts import ragdbeval
from ragauge.runs.folder import utc_now
from ragauge.store_benchmarks.filter_results import list_filters, operating_points
from ragauge.store_benchmarks.metadata_filters import with_metadata
from ragauge.store_benchmarks.plan import (
    OPTION_GRIDS,
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
from ragauge.stores.store_types import load_store_type
from waiting import wait_until, wait_while_running

QUICK = {"repeats": 1, "sweep": False}


def clustered(n: int = 600, d: int = 8, m: int = 20, metric: str = "l2") -> VectorSet:
    random = np.random.default_rng(5)
    base = random.normal(size=(n, d)).astype(np.float32)
    return VectorSet("made here", base, random.normal(size=(m, d)).astype(np.float32), metric)


@pytest.fixture
def own_stores(tmp_path, monkeypatch):
    """Write the module `own_stores` with user-defined stores into the working directory, and return that folder."""
    (tmp_path / "own_stores.py").write_text(
        textwrap.dedent(
            '''
            import os, signal, sys, time
            import numpy as np

            class Plain:
                """Only what the seam asks for."""
                def __init__(self, metric="l2"):
                    self.ids, self.rows = [], []
                def add(self, ids, vectors):
                    self.ids += list(ids)
                    self.rows.append(np.array(vectors))
                def search(self, vectors, k):
                    base = np.concatenate(self.rows)
                    far = np.linalg.norm(base[None] - vectors[:, None], axis=2)
                    order = np.argsort(far, axis=1)[:, :k]
                    return np.array(self.ids, dtype=object)[order], np.take_along_axis(far, order, 1)

            class Loud(Plain):
                def search(self, vectors, k):
                    print('{"stage": "lies", "done": 1, "total": 0}')
                    os.write(1, b"not json at all\\n")
                    return super().search(vectors, k)

            class Raises(Plain):
                def search(self, vectors, k):
                    raise OSError("the disk of this store is on fire")

            class Crashes(Plain):
                def add(self, ids, vectors):
                    sys.stderr.write("about to fall over\\n")
                    sys.stderr.flush()
                    os.kill(os.getpid(), signal.SIGSEGV)

            class Hangs(Plain):
                def search(self, vectors, k):
                    time.sleep(3600)

            class Counts(Plain):
                """Writes down each time that it is built."""
                def add(self, ids, vectors):
                    with open(os.environ["BUILT"], "a") as out:
                        out.write("x")
                    super().add(ids, vectors)

            class Slow(Plain):
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
    one = Configuration("faiss", {"kind": "hnsw", "m": 16}, {"ef_search": 40})
    assert str(one) == "faiss:kind=hnsw,m=16,ef_search=40"
    assert one.series == "faiss hnsw"
    assert Configuration("usearch", {"exact": True, "view": False}).series == "usearch exact"


def test_configuration_str_and_repr_omit_url_and_api_key():
    one = Configuration("qdrant", {"url": "http://me:secret@there", "api_key": "secret", "m": 16}, {"ef_search": 40})
    assert one.series == "qdrant server"
    assert str(one) == "qdrant:at=server,m=16,ef_search=40"
    assert "secret" not in repr(one.shown)


@pytest.mark.parametrize("store", plugins.BUILTIN_PLUGINS["stores"])
def test_option_grids_have_only_known_store_options(store):
    store_type = load_store_type(store)
    known = set(store_type.options)
    assert {"metric", "path"} <= known
    assert OPTION_GRIDS[store]
    for grid in OPTION_GRIDS[store]:
        assert grid.keys() <= known
    assert store_type.search_options <= known


def test_plan_builds_groups_searches_and_alternates_stores():
    made = plan_builds(
        ["faiss:kind=hnsw,m=8+16,ef_construction=40,ef_search=10+20+30", "usearch:m=8+16"],
        BenchmarkSettings(sweep=False),
    )
    assert [str(job.configuration) for job in made] == [
        "faiss:kind=hnsw,m=8,ef_construction=40",
        "usearch:m=8",
        "faiss:kind=hnsw,m=16,ef_construction=40",
        "usearch:m=16",
    ]
    assert [dict(one) for one in made[0].searches] == [{"ef_search": 10}, {"ef_search": 20}, {"ef_search": 30}]
    assert [dict(one) for one in made[1].searches] == [{}]


def test_plan_builds_given_options_replace_defaults():
    (only,) = plan_builds(["faiss:kind=ivf,nlist=7"], BenchmarkSettings())
    assert only.configuration.build == {"kind": "ivf", "nlist": 7}
    assert len(only.searches) > 3
    both = {job.configuration.build["kind"] for job in plan_builds(["faiss:kind=ivf+flat"], BenchmarkSettings())}
    assert both == {"ivf", "flat"}
    quick = plan_builds(["faiss:kind=hnsw"], BenchmarkSettings(quick=True))
    assert len(quick) < len(plan_builds(["faiss:kind=hnsw"], BenchmarkSettings()))
    assert 1 < len(quick[0].searches) < len(only.searches)


def test_bench_invalid_arguments_raise_error_before_measuring(tmp_path):
    for wrong, error, word in (
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
            ragauge.bench(clustered(), **{"folder": tmp_path / "out", **wrong})
    assert not (tmp_path / "out").exists()


@pytest.mark.engine
def test_bench_exact_store_has_full_recall_and_all_measurements(tmp_path):
    data = clustered()
    found = ragauge.bench(data, "exact", folder=tmp_path / "out", price_per_hour=0.36, repeats=2)
    (point,) = found.points
    assert point.quality["recall(of=eps,eps=1e-06)@10"] == point.quality["recall(of=k)@10"] == 1.0
    assert point.quality["recall@10"] == pytest.approx(0.1)
    assert point.quality["precision@10"] == 1.0
    assert point.latency.n % 20 == 0
    assert point.qps == pytest.approx(1000 / point.latency.mean)
    assert point.cost_per_million == pytest.approx(0.36 * 1e6 / (3600 * point.qps))
    assert point.build.vectors == 600
    assert point.build.seconds > 0
    assert point.build.disk_bytes >= data.base.nbytes
    assert point.build.cold_first_ms > 0
    assert point.build.about["store"] == "exact"
    assert found.frontier == [0]
    assert found.provenance["vectors_hash"] == data.hash
    assert not list((tmp_path / "out").glob("builds/*/store"))
    assert not list((tmp_path / "out").glob("builds/*/*.log"))


def test_bench_own_store_needs_only_add_and_search(own_stores):
    found = ragauge.bench(clustered(), "mine=own_stores:Plain", clients=[1], **QUICK)
    (point,) = found.points
    assert found.stores == ["mine"]
    assert point.quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert point.build.disk_bytes is None
    assert any("not put under load" in note for note in point.notes)


def test_bench_ignores_output_printed_by_store(own_stores):
    seen = []
    found = ragauge.bench(clustered(), "own_stores:Loud", progress=seen.append, **QUICK)
    assert found.points[0].quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert not any("lies" in step.subject + step.action for step in seen)


@pytest.mark.engine
def test_bench_broken_stores_are_failures_and_others_finish(own_stores):
    broken = ["own_stores:Raises", "own_stores:Crashes", "own_stores:Hangs"]
    found = ragauge.bench(clustered(), [*broken, "exact"], timeout=15.0, **QUICK)
    assert found.stores == ["exact"]
    raised, crashed, hung = (failure.message for failure in found.failures)
    assert "the disk of this store is on fire" in raised
    assert "SIGSEGV" in crashed
    assert "gave up after 15 seconds" in hung
    assert [failure.exit_code for failure in found.failures] == [3, 3, 3]


WRONG = """
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

class Able(Pairs):
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
        ("Able", "unknown capability `deletes` of a store"),
    ],
)
@pytest.mark.engine
def test_bench_own_store_breaking_protocol_has_failure_message(tmp_path, monkeypatch, store, message):
    (tmp_path / "wrong_stores.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "wrong_stores", raising=False)
    (failure,) = ragauge.bench(clustered(50), f"wrong_stores:{store}", k=5, **QUICK).failures
    assert message in failure.message


def documented_stores():
    """Return the Python blocks of the section on own stores in docs/bench.md."""
    text = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    section = text.partition("## Your own store")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.S)


@pytest.mark.engine
def test_documented_own_stores_run_with_filters_deletes_and_tuning(tmp_path, monkeypatch):
    short, full = documented_stores()
    assert len([line for line in short.splitlines() if line.strip()]) == 15
    (tmp_path / "my_store.py").write_text(f"{short}\n\n{full}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_store", raising=False)
    found = ragauge.bench(
        clustered(), ["my_store:Store", "my_store:Full:share=0.5+1.0"], filters=[0.5, 0.1], changes=20, repeats=1
    )
    assert not found.failures
    plain, half, full_point = found.points
    assert plain.quality[found.recall] == full_point.quality[found.recall] == 1.0
    assert 0.2 < half.quality[found.recall] < 0.8
    assert list(plain.notes) == ["cannot filter", "cannot insert", "cannot update", "cannot delete"]
    assert list(full_point.notes) == []
    assert [one.recall for one in full_point.filters] == [1.0, 1.0]
    assert {one.operation: one.visible for one in full_point.changes} == {"insert": 1, "update": 1, "delete": 1}


@pytest.mark.engine
def test_bench_missing_library_is_failure_with_install_hint(tmp_path, monkeypatch):
    (tmp_path / "usearch.py").write_text("raise ImportError('hidden for a test')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    found = ragauge.bench(clustered(), ["usearch:m=8+16", "exact"], repeats=1, sweep=False)
    assert found.stores == ["exact"]
    (failure,) = found.failures
    assert "[usearch]'" in (failure.hint or "")


@pytest.mark.engine
def test_bench_reuse_measures_only_new_configurations(own_stores, monkeypatch):
    counter = own_stores / "built.txt"
    monkeypatch.setenv("BUILT", str(counter))
    data = clustered()
    first = ragauge.bench(data, "own_stores:Counts", folder="out", reuse=True, **QUICK)
    again = ragauge.bench(data, "own_stores:Counts", folder="out", reuse=True, **QUICK)
    built = counter.read_text()
    assert first.points[0].latency == again.points[0].latency
    assert built == "xx"  # one `add` in the rehearsal, one in the build
    fewer = ragauge.bench(data, "own_stores:Counts", folder="out", reuse=True, k=5, **QUICK)
    assert fewer.points[0].quality["recall(of=eps,eps=1e-06)@5"] == 1.0
    assert counter.read_text() == "xxxx"
    assert first.points[0].quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    other = VectorSet("other", data.base + 1, data.queries, data.metric)
    ragauge.bench(other, "own_stores:Counts", folder="out", reuse=True, **QUICK)
    assert counter.read_text() == "xxxxxx"


HELPED = """
import numpy as np
import helper

class Store:
    def __init__(self, metric="l2"):
        self.ids, self.rows = [], []
    def add(self, ids, vectors):
        self.ids += list(ids)
        self.rows.append(np.array(vectors))
    def search(self, vectors, k):
        far = np.linalg.norm(np.concatenate(self.rows)[None] - vectors[:, None], axis=2)
        order = np.argsort(helper.SIGN * far, axis=1)[:, :k]
        return np.array(self.ids, dtype=object)[order], np.take_along_axis(far, order, 1)
"""


@pytest.fixture
def helped_store(tmp_path, monkeypatch):
    """Write a store whose class imports a helper module, and return a function that rewrites the helper."""
    (tmp_path / "helped.py").write_text(HELPED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module in ("helped", "helper"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    write = (tmp_path / "helper.py").write_text
    write("SIGN = 1")
    return write


@pytest.mark.engine
def test_bench_own_store_with_changed_helper_is_measured_again(helped_store):
    first = ragauge.bench(clustered(), ["helped:Store", "exact"], folder="out", **QUICK)
    assert [one.quality[first.recall] for one in first.points] == [1.0, 1.0]
    assert [one.reused for one in first.points] == [False, False]
    helped_store("SIGN = -1")
    again = ragauge.bench(clustered(), ["helped:Store", "exact"], folder="out", **QUICK)
    own, exact = again.points
    assert own.quality[again.recall] == 0
    assert (own.reused, exact.reused) == (False, True)
    assert exact.made == first.points[1].made
    kept = ragauge.bench(clustered(), ["helped:Store"], folder="out", reuse=True, **QUICK)
    assert (kept.points[0].reused, kept.points[0].latency) == (True, own.latency)


@pytest.mark.engine
def test_bench_fresh_measures_built_in_stores_again(tmp_path):
    first = ragauge.bench(clustered(), "exact", folder=tmp_path, filters=[0.5], **QUICK)
    reused = ragauge.bench(clustered(), "exact", folder=tmp_path, filters=[0.5], **QUICK)
    fresh = ragauge.bench(clustered(), "exact", folder=tmp_path, filters=[0.5], fresh=True, **QUICK)
    assert [one.points[0].reused for one in (first, reused, fresh)] == [False, True, False]
    assert [one.points[0].filters[0].reused for one in (first, reused, fresh)] == [False, True, False]
    assert fresh.points[0].latency != first.points[0].latency
    with pytest.raises(BadInput, match="mutually exclusive"):
        ragauge.bench(clustered(), "exact", folder=tmp_path, fresh=True, reuse=True, **QUICK)


def rewrite_clocks(folder, **changed):
    """Give every saved search result the readings of an idle machine, and return the number of results.

    Arrays given as `_k` replace those of result k, counted from 0 in the order of the file paths.
    """
    pieces = sorted(folder.glob("builds/*/*.npz"))
    pieces = [file for file in pieces if "floor_ns" in (read_raw_result(file) or ({}, {}))[1]]
    for number, file in enumerate(pieces):
        told, arrays = read_raw_result(file)
        calm = {
            "nanoseconds": np.full((2, 100), 10_000),
            "floor_ns": np.full((2, 2), 7_000.0),
            "readings": np.tile([0.2, 0.2, 0, 0, 0, 20.0], (2, 1)),
        }
        write_raw_result(file, told, {**arrays, **calm, **changed.get(f"_{number}", {})})
    return len(pieces)


SETTINGS = "faiss:kind=ivf,nlist=10,nprobe=1+2+3"


@pytest.mark.engine
def test_bench_remeasure_doubtful_measures_only_doubtful_rows_again(tmp_path):
    ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2)
    assert rewrite_clocks(tmp_path, _1={"readings": np.tile([0.2, 0.1, 50, 0, 0, 20.0], (2, 1))}) == 3
    kept = ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2)
    doubtful = [one.configuration for one in kept.points if one.clock.doubts]
    assert len(doubtful) == 1
    again = ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2, remeasure="doubtful")
    assert [one.configuration for one in again.points if not one.reused] == doubtful
    assert [one.configuration for one in again.points if one.latency.min != one.latency.max] == doubtful
    with pytest.raises(BadInput, match="remeasure must be `doubtful`, got `all`"):
        ragauge.bench(clustered(), SETTINGS, folder=tmp_path, remeasure="all")
    with pytest.raises(BadInput, match="fresh and remeasure are mutually exclusive"):
        ragauge.bench(clustered(), SETTINGS, folder=tmp_path, fresh=True, remeasure="doubtful")


@pytest.mark.engine
def test_bench_remeasure_doubtful_measures_cold_start_of_new_build(tmp_path):
    ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2)
    rewrite_clocks(tmp_path, _1={"readings": np.tile([0.2, 0.1, 50, 0, 0, 20.0], (2, 1))})
    pieces = {file: read_raw_result(file) for file in tmp_path.glob("builds/*/*.npz")}
    [(file, (told, arrays))] = [(file, piece) for file, piece in pieces.items() if "open_ms" in piece[0]]
    write_raw_result(file, {**told, "open_ms": 1e9}, arrays)
    kept = ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2)
    assert [one.build.cold_open_ms for one in kept.points] == [1e9] * 3
    again = ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2, remeasure="doubtful")
    (new,) = [one for one in again.points if not one.reused]
    assert 0 < new.build.cold_open_ms < 1e9


@pytest.mark.engine
def test_bench_one_fast_reading_makes_no_other_row_doubtful(tmp_path):
    ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2)
    rewrite_clocks(tmp_path, _0={"floor_ns": np.full((2, 2), 3_000.0)})
    found = ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2)
    assert [list(one.clock.doubts) for one in found.points] == [[], [], []]
    rewrite_clocks(tmp_path, _0={"floor_ns": np.full((2, 2), 14_000.0)})
    slow = ragauge.bench(clustered(), SETTINGS, folder=tmp_path, repeats=2)
    doubts = [one.clock.doubts[0] for one in slow.points if one.clock.doubts]
    assert doubts == ["the harness itself took 2.0 times as long as usual"]


@pytest.mark.parametrize(("index", "noted"), [("none", False), ("hnsw", True)])
@pytest.mark.engine
def test_bench_unused_index_is_noted_only_if_store_has_index(own_stores, index, noted):
    code = f"""
from own_stores import Plain

class Store(Plain):
    def describe(self):
        return {{"index": "{index}", "index_used": False}}
"""
    (own_stores / f"with_{index}.py").write_text(code)
    (point,) = ragauge.bench(clustered(), f"with_{index}:Store", **QUICK).points
    assert any("did not use its index" in note for note in point.notes) is noted


@pytest.mark.parametrize("index", ["none", "hnsw"])
@pytest.mark.engine
def test_bench_notes_filters_without_index_use(own_stores, index):
    code = f"""
import numpy as np
from own_stores import Plain

class Store(Plain):
    abilities = frozenset({{"filter"}})
    def __init__(self, metric="l2"):
        super().__init__(metric)
        self.metadata = []
    def add(self, ids, vectors, metadata=None):
        super().add(ids, vectors)
        self.metadata += metadata or [{{}} for _ in ids]
    def search(self, vectors, k, where=None):
        ids, far = super().search(vectors, len(self.ids))
        about = dict(zip(self.ids, self.metadata))
        kept = [i for i, name in enumerate(ids[0]) if (where or {{}}).items() <= about[name].items()][:k]
        return ids[:, kept], far[:, kept]
    def index_used(self, vector, k, where=None):
        return where is None or sum(where.items() <= one.items() for one in self.metadata) > len(self.ids) / 4
    def describe(self):
        return {{"index": "{index}"}}
"""
    (own_stores / f"planned_{index}.py").write_text(code)
    (point,) = ragauge.bench(clustered(100), f"planned_{index}:Store", filters=[0.5, 0.1], **QUICK).points
    assert [one.recall for one in point.filters] == [1.0, 1.0]
    note = "with the filter 10% the engine did not use its index and compared every matching vector"
    assert [one for one in point.notes if "index" in one] == ([note] if index == "hnsw" else [])


@pytest.mark.engine
def test_bench_interrupted_run_resumes_own_store(own_stores, monkeypatch):
    counter = own_stores / "built.txt"
    monkeypatch.setenv("BUILT", str(counter))
    stores = ["own_stores:Counts", "exact"]

    def stop(step):
        if step.subject.startswith("exact"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ragauge.bench(clustered(), stores, folder="out", progress=stop, **QUICK)
    assert counter.read_text() == "xx"  # one `add` in the rehearsal, one in the build
    resumed = ragauge.bench(clustered(), stores, folder="out", **QUICK)
    assert counter.read_text() == "xx"
    assert [one.reused for one in resumed.points] == [True, False]
    ragauge.bench(clustered(), stores, folder="out", **QUICK)
    assert counter.read_text() == "xxxx"


@pytest.mark.engine
def test_bench_changed_own_store_is_measured_again(own_stores):
    data = clustered()
    text = (own_stores / "own_stores.py").read_text()
    first = ragauge.bench(data, "own_stores:Plain", folder="out", **QUICK)
    assert first.points[0].quality[first.recall] == 1.0
    (own_stores / "own_stores.py").write_text(text.replace("np.argsort(far, axis=1)", "np.argsort(-far, axis=1)"))
    again = ragauge.bench(data, "own_stores:Plain", folder="out", **QUICK)
    assert again.points[0].quality[again.recall] < 0.2


@pytest.mark.engine
def test_bench_limits_vectors_and_overrides_metric():
    found = ragauge.bench(clustered(), "exact", metric="cosine", max_vectors=100, max_queries=5, **QUICK)
    assert (found.metric, found.vectors, found.queries) == ("cosine", 100, 5)
    assert found.points[0].quality[found.recall] == 1.0


@pytest.mark.engine
def test_bench_several_k_uses_one_search_at_largest_k(own_stores):
    data = clustered()
    found = ragauge.bench(data, ["exact"], repeats=1, k=[1, 5, 20], folder=own_stores / "kept")
    assert (found.k, list(found.cutoffs), found.recall) == (20, [1, 5, 20], "recall(of=eps,eps=1e-06)@20")
    (one,) = found.points
    known = found.true_neighbours
    for k in (1, 5, 20):
        assert one.quality[f"recall@{k}"] == pytest.approx(k / known)
        assert one.quality[f"precision@{k}"] == one.quality[f"mrr@{k}"] == 1
    pieces = sorted((own_stores / "kept").rglob("builds/*/*.npz"))
    ragauge.bench(data, ["exact"], repeats=1, k=20, folder=own_stores / "kept")
    assert sorted((own_stores / "kept").rglob("builds/*/*.npz")) == pieces  # the search at k = 20 is reused


def rows_of_metadata(n):
    return [
        {"lang": "de" if i % 3 else "en", "year": 2000 + i % 20, "price": i / 2, "new": i % 2 == 0} for i in range(n)
    ]


@pytest.mark.engine
def test_bench_where_filters_match_brute_force_counts(tmp_path):
    data = clustered()
    about = rows_of_metadata(len(data.base))
    wanted = {
        "lang=de and year>=2015": lambda one: one["lang"] == "de" and one["year"] >= 2015,
        "year in 2001|2002 and new=true": lambda one: one["year"] in (2001, 2002) and one["new"],
        "price<50 and price>20.5": lambda one: 20.5 < one["price"] < 50,
    }
    found = ragauge.bench(
        data, ["exact", "faiss:kind=flat"], repeats=1, metadata=about, where=list(wanted), folder=tmp_path
    )
    for point in found.points:
        assert [one.name for one in point.filters] == list(wanted)
        for one, matching in zip(point.filters, wanted.values(), strict=True):
            assert one.matching == sum(map(matching, about)) > 0
            assert (one.returned, one.recall, one.wrong) == (1.0, 1.0, 0)
    places = set(tmp_path.rglob("builds/*/*.npz"))
    ragauge.bench(data, ["exact"], repeats=1, metadata=about, where=[{"new": True}], folder=tmp_path)
    assert len(set(tmp_path.rglob("builds/*/*.npz")) - places) == 1  # another filter adds one result
    about[0]["new"] = not about[0]["new"]
    places = set(tmp_path.rglob("builds/*/*.npz"))
    ragauge.bench(data, ["exact"], repeats=1, metadata=about, where=[{"new": True}], folder=tmp_path)
    assert len(set(tmp_path.rglob("builds/*/*.npz")) - places) == 1  # so do other metadata


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_with_metadata_file_matches_rows_by_id_or_order(tmp_path, ending):
    data = clustered()
    about = rows_of_metadata(len(data.base))
    shuffled = sorted(({"id": str(i), **one} for i, one in enumerate(about)), key=lambda one: one["price"] % 7)
    for name, rows in (("ids", shuffled), ("order", about)):
        path = tmp_path / f"{name}.{ending}"
        frame = polars.DataFrame(rows)
        {"jsonl": frame.write_ndjson, "csv": frame.write_csv, "parquet": frame.write_parquet}[ending](path)
        assert with_metadata(data, path).metadata == about


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
    data = clustered()
    with pytest.raises(RagaugeError, match=re.escape(message)):
        ragauge.bench(data, ["exact"], metadata=rows_of_metadata(len(data.base)), where=where)


def test_bench_invalid_metadata_raises_error():
    data = clustered()
    with pytest.raises(MissingEvidence, match="has no metadata to filter by"):
        ragauge.bench(data, ["exact"], where="lang=de")
    with pytest.raises(BadInput, match=r"no id of the metadata .* expected ids such as 0, 1, 2, got x"):
        ragauge.bench(data, ["exact"], where="lang=de", metadata=[{"id": "x", "lang": "de"}])
    with pytest.raises(BadInput, match="expected 600 rows, got 1"):
        ragauge.bench(data, ["exact"], where="lang=de", metadata=[{"lang": "de"}])
    with pytest.raises(BadInput, match="values of several types"):
        ragauge.bench(data, ["exact"], where="lang=de", metadata=[{"lang": 3 if i else "de"} for i in range(600)])


def test_plan_builds_default_ef_search_is_at_least_k():
    (job, *_) = plan_builds(["hnswlib"], BenchmarkSettings(k=50))
    assert [one["ef_search"] for one in job.searches] == [50, 80, 160, 320]


@pytest.mark.engine
def test_bench_load_test_rebuilds_removed_store(tmp_path):
    data = clustered()
    ragauge.bench(data, "exact", folder=tmp_path, repeats=1)
    loaded = ragauge.bench(data, "exact", folder=tmp_path, repeats=1, clients=[1], shares=[0.5], seconds=0.5)
    closed, opened = loaded.points[0].loads
    assert closed.rate is None
    assert opened.rate == pytest.approx(0.5 * closed.qps, rel=0.01)
    assert not loaded.failures


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
        "found = ragauge.bench(data, ['exact', 'own_stores:Slow'], folder='out', repeats=1)\n"
        "print(found.stores)\n"
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
    done = {path: path.stat().st_mtime_ns for path in Path("out").glob("builds/*/*.npz")}
    assert done
    (own_stores / "slow").unlink()
    again = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert again.stdout.strip() == "['exact', 'own_stores:Slow']"
    assert {path: path.stat().st_mtime_ns for path in done} == done


def test_bench_folder_in_use_raises_error(tmp_path):
    with hold_folder(tmp_path), pytest.raises(BadInput, match="another process is working in this folder"):
        ragauge.bench(clustered(), "exact", folder=tmp_path, **QUICK)


@pytest.mark.engine
def test_bench_api_key_is_in_no_file_and_no_message(tmp_path):
    pytest.importorskip("qdrant_client")
    told = "qdrant:url=http://me:SEKRET@127.0.0.1:9,api_key=SEKRET"
    found = ragauge.bench(clustered(), ["exact", told], folder=tmp_path, **QUICK)
    ragauge.report(found, [tmp_path / "page.html", tmp_path / "all.json", tmp_path / "points.csv"])
    assert found.failures
    assert "SEKRET" not in repr(found.failures)
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"SEKRET" not in file.read_bytes(), file


def test_raw_results_and_saved_vectors_round_trip(tmp_path):
    write_raw_result(tmp_path / "a.npz", {"told": 1}, {"ns": np.arange(4)})
    told, arrays = read_raw_result(tmp_path / "a.npz")
    assert told.pop("made") <= utc_now()
    assert told == {"told": 1}
    assert arrays["ns"].tolist() == [0, 1, 2, 3]
    (tmp_path / "half.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:50])
    assert read_raw_result(tmp_path / "half.npz") is None
    assert read_raw_result(tmp_path / "none.npz") is None
    data = clustered(50, 3, 4)
    write_vectors(data, tmp_path / "v")
    again = SavedVectors(str(tmp_path / "v"))
    assert again.rows("base", 7, 5).tolist() == data.base[7:12].tolist()
    assert again.rows("queries").tolist() == data.queries.tolist()
    assert again.ids(48, 9) == ["48", "49"]
    assert again.others(500, 0).shape == (50, 3)
    assert json.loads((tmp_path / "v" / "vectors.json").read_text())["shapes"]["base"] == [50, 3]


def test_read_raw_result_with_flipped_byte_does_not_raise(tmp_path):
    write_raw_result(tmp_path / "a.npz", {"notes": ["x"]}, {"ns": np.arange(400)})
    whole = (tmp_path / "a.npz").read_bytes()
    for place in range(0, len(whole), 3):
        (tmp_path / "b.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        found = read_raw_result(tmp_path / "b.npz")
        assert found is None or isinstance(found[0], dict)


@pytest.mark.parametrize(("name", "metric"), [("ann_bigann10k", "l2"), ("ann_glove50_10k", "cosine")])
@pytest.mark.engine
def test_bench_recall_matches_published_neighbours(shared, tmp_path, name, metric):
    """The recall of an HNSW index equals the one computed here from its raw results and the published neighbours.

    The published file is parsed here with NumPy.
    """
    pytest.importorskip("faiss")
    folder = shared(name)
    (file,) = [one for one in folder.glob("groundtruth*") if metric in one.name or "bigann" in name]
    flat = np.frombuffer(gzip.decompress(file.read_bytes()), "<i4")
    published = flat.reshape(-1, 101)[:, 1:11]
    stores = ["exact", "faiss:kind=hnsw,m=8,ef_construction=40,ef_search=10"]
    found = ragauge.bench(folder, stores, metric=metric, folder=tmp_path, repeats=1, sweep=False)
    assert found.truth == "given"
    exact, graph = found.points
    assert exact.quality["recall(of=k)@10"] == exact.quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert exact.quality["recall@10"] == pytest.approx(0.1)
    kept = [read_raw_result(path) for path in tmp_path.glob("builds/*/*.npz")]
    raw = [arrays["positions"] for told, arrays in kept if told.get("about", {}).get("kind") == "hnsw"]
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(raw[0].tolist(), published.tolist(), strict=True)]
    assert graph.quality["recall(of=k)@10"] == pytest.approx(np.mean(shares))
    assert 0.5 < graph.quality["recall(of=k)@10"] < 1


@pytest.mark.engine
def test_bench_fixed_rate_latency_shows_stalls():
    """Every 200th search takes 200 ms.

    In a closed loop one query in 200 is slow. At 200 queries per second, 40 of every 200 queries (a fifth) are due
    during the stall.
    """
    stalling = "null:stall_ms=200,every=200"
    found = ragauge.bench(clustered(), stalling, clients=[1], rates=[200.0], seconds=3.0, repeats=1, sweep=False)
    closed, opened = found.points[0].loads
    assert opened.latency.p90 > 50
    assert opened.latency.p90 > 2 * opened.service.p90
    assert opened.latency.p90 > 2 * closed.latency.p90


@pytest.mark.engine
def test_bench_judgments_scores_relevance_of_results():
    random = np.random.default_rng(3)
    base = random.normal(size=(300, 8)).astype(np.float32)
    ids = [f"doc {place}" for place in range(300)]
    queries = base[:30] + 0.01
    judged = {f"q{place}": {f"doc {place}": 1} for place in range(30)}
    data = VectorSet(
        "judged", base, queries, "l2", ids=ids, query_ids=list(judged), judgments=ragauge.Judgments(judged)
    )
    found = ragauge.bench(data, ["exact", "null"], score_judgments=True, **QUICK)
    exact, nothing = found.points
    assert exact.relevance == {"ndcg@10": 1.0, "hit_rate@10": 1.0}
    # The null store always returns the first ten documents, which are relevant to ten of the thirty queries.
    assert nothing.relevance["hit_rate@10"] == pytest.approx(1 / 3)


def test_plan_builds_pgvector_forces_index_only_if_requested():
    """Searches that force the index are measured only on request, as a separate series."""
    searches = [search for job in plan_builds(["pgvector"], BenchmarkSettings()) for search in job.searches]
    assert searches
    assert not any("force" in search for search in searches)
    made = plan_builds(["pgvector:index=hnsw,half=false,ef_search=40,force=false+true"], BenchmarkSettings())
    assert [point.series for job in made for point in job.points] == ["pgvector hnsw", "pgvector hnsw forced"]
    assert Configuration("pgvector", {"index": "hnsw"}, {"force": True}, "mine").series == "mine forced"


@pytest.mark.engine
def test_bench_filters_measure_every_search_setting(tmp_path):
    """With nprobe=4, recall is above 0.95 without a filter, but below it with one that matches 1% of the vectors."""
    data = load_vector_set("clustered:n=2000,d=16,queries=50")
    stores = ["exact", "faiss:kind=ivf,nlist=20,nprobe=1+4+20"]
    found = ragauge.bench(data, stores, repeats=2, filters=[0.01], folder=tmp_path)
    swept = [one for one in found.points if one.configuration.store == "faiss"]
    assert len(swept) == 3
    for point in found.points:
        (one,) = point.filters
        assert 2 <= one.repeats <= 6  # more than the 2 requested if their means differ
        assert one.latency.n % (one.repeats * len(data.queries)) == 0
        assert one.qps == pytest.approx(1000 / one.latency.mean)
        assert not math.isnan(one.qps_spread)
    recalls = [one.filters[0].recall for one in swept]
    assert recalls[0] < recalls[1] < 0.95 < swept[1].quality[found.recall]
    assert recalls[2] == 1.0
    best = {one.configuration.series: one for one in operating_points(found, list_filters(found)[0])}
    assert best["faiss ivf"].configuration.search == {"nprobe": 20}
    pieces = {place: place.stat().st_mtime_ns for place in tmp_path.rglob("builds/*/*.npz")}
    again = ragauge.bench(data, stores, repeats=2, filters=[0.01], folder=tmp_path)
    assert {place: place.stat().st_mtime_ns for place in tmp_path.rglob("builds/*/*.npz")} == pieces
    assert all(one.reused for point in again.points for one in point.filters)
    assert not any(one.reused for point in found.points for one in point.filters)


@pytest.mark.engine
def test_bench_filters_reused_folder_measures_only_missing_results(tmp_path):
    """An interrupted benchmark leaves results with some filters, which are not measured again."""
    data, settings = clustered(), {"repeats": 1, "filters": [0.5, 0.1], "folder": tmp_path}
    ragauge.bench(data, ["exact"], **settings)
    name = filter_key({}, {"selectivity": 0.1}, BenchmarkSettings(repeats=1, filters=(0.5, 0.1)))
    (missing,) = tmp_path.rglob(f"{name}.npz")
    missing.unlink()
    seen = []
    found = ragauge.bench(data, ["exact"], progress=seen.append, **settings)
    assert [step.done for step in seen if (step.subject, step.action) == ("exact", "filters")] == [2]
    assert [one.reused for one in found.points[0].filters] == [True, False]


@pytest.mark.engine
def test_bench_filters_stop_at_time_limit(tmp_path):
    """The first search setting is always measured.

    For the others, an empty result is saved if the time limit was reached, and a note reports it.
    """
    data = clustered()
    stores = ["faiss:kind=ivf,nlist=10,nprobe=1+2+10"]
    settings = {"repeats": 2, "filters": [0.5], "folder": tmp_path}
    plan = BenchmarkSettings(filters=(0.5,), timeout=600.0)
    assert (plan.filter_seconds, BenchmarkSettings(filters=(0.5,) * 20, timeout=600.0).filter_seconds) == (30.0, 15.0)
    stored = ExactStore(metric="l2")
    stored.add([str(i) for i in range(len(data.base))], data.base)
    index = {str(i): i for i in range(len(data.base))}
    taken = time_search_rounds(
        stored,
        data.queries,
        5,
        [{}, {}, {}],
        index=index,
        rounds=SearchRounds(floor=stored, warm_up=data.queries[:2], repeats=2, budget_s=1e-9),
    )
    assert [len(raw.get("nanoseconds", ())) for raw in taken] == [1, 0, 0]
    found = ragauge.bench(data, stores, **settings)
    (one,) = {place for place in tmp_path.rglob("builds/*") if (place / "build.json").exists()}
    search = found.points[0].configuration.search
    write_raw_result(
        one / f"{filter_key(search, {'selectivity': 0.5}, BenchmarkSettings(repeats=2, filters=(0.5,)))}.npz", {}, {}
    )
    again = ragauge.bench(data, stores, **settings)
    assert [len(point.filters) for point in again.points] == [0, 1, 1]
    assert again.points[0].notes == [
        "not measured with 1 of 1 filters: the limit of 30 s per filter was reached (raise it with --timeout)"
    ]


def test_plan_builds_with_filters_has_larger_nprobe():
    def probes(plan, store="faiss:kind=ivf"):
        return [search["nprobe"] for job in plan_builds([store], plan) for search in job.searches]

    assert probes(BenchmarkSettings()) == [1, 2, 4, 8, 16, 32]
    assert (
        probes(BenchmarkSettings(filters=(0.01,)))
        == probes(BenchmarkSettings(where=("a=b",)))
        == [1, 2, 4, 8, 16, 32, 64, 128]
    )
    assert probes(BenchmarkSettings(filters=(0.01,)), "faiss:kind=ivf,nprobe=4+8") == [4, 8]


def test_estimate_min_seconds_includes_filters():
    """Each of 2 filters adds 8 settings with 3 trials of 0.25 s, and all filters together one process start of 1 s.

    usearch cannot filter and adds nothing.
    """
    stores = ["faiss:kind=ivf", "usearch"]
    made = plan_builds(stores, BenchmarkSettings(filters=(0.5, 0.01)))
    more = estimate_min_seconds(made, BenchmarkSettings(filters=(0.5, 0.01))) - estimate_min_seconds(
        made, BenchmarkSettings()
    )
    assert more == pytest.approx(1.0 + 2 * 8 * 3 * 0.25)


@pytest.mark.engine
def test_bench_remeasure_doubtful_measures_doubtful_filter_results(tmp_path):
    data, settings = clustered(), {"repeats": 2, "filters": [0.5, 0.1], "folder": tmp_path}
    ragauge.bench(data, ["exact"], **settings)
    plan = BenchmarkSettings(repeats=2, filters=(0.5, 0.1))
    steady, doubtful = (
        next(tmp_path.rglob(f"{filter_key({}, {'selectivity': share}, plan)}.npz")) for share in plan.filters
    )
    for place, slower in ((steady, 1), (doubtful, 3)):
        told, arrays = read_raw_result(place)
        one_round = np.full_like(arrays["nanoseconds"][0], 50_000)
        calm = np.tile([1.0, 1.0, 0, 0, 0, 100], (2, 1))
        times = np.array([one_round, slower * one_round])
        floors = np.full_like(arrays["floor_ns"], 9_000)
        write_raw_result(place, told, {**arrays, "nanoseconds": times, "readings": calm, "floor_ns": floors})
    found = ragauge.bench(data, ["exact"], remeasure="doubtful", **settings)
    assert [one.reused for one in found.points[0].filters] == [True, False]


@pytest.mark.engine
def test_render_benchmark_csv_has_all_quality_columns():
    found = ragauge.bench(clustered(), ["faiss:kind=ivf,nlist=10,nprobe=1"], repeats=1, k=[1, 10, 50, 100])
    for convention in ragdbeval.MEASURES_BY_CONVENTION:
        (row,) = csv.DictReader(ragdbeval.render_benchmark_csv(found, convention).splitlines())
        values = {column: float(row[column]) for column in ragdbeval.MEASURES_BY_CONVENTION[convention]}
        assert all(0 < value <= 1 for value in values.values())
        assert values["ndcg@100"] < 1
    point = found.points[0]
    assert values["map@10"] == point.quality[ragdbeval.MEASURES_BY_CONVENTION[convention]["map@10"]]
