"""The sweep: stores in words, a process for each, what is kept, and what becomes of those that break."""

from __future__ import annotations

import gzip
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import ragauge
from ragauge import plugins
from ragauge.benches.grids import GRIDS
from ragauge.benches.opening import found, search_options
from ragauge.benches.orders import Vectors, read_piece, write_piece, write_vectors
from ragauge.benches.plan import Plan, jobs, read
from ragauge.benches.sweep import alone
from ragauge.errors import BadInput, MissingEvidence, UnknownName
from ragauge.sweeps import Configuration, VectorSet

QUICK = {"repeats": 1, "sweep": False}


def clustered(n: int = 600, d: int = 8, m: int = 20, metric: str = "l2") -> VectorSet:
    random = np.random.default_rng(5)
    base = random.normal(size=(n, d)).astype(np.float32)
    return VectorSet("made here", base, random.normal(size=(m, d)).astype(np.float32), metric)


@pytest.fixture
def own_stores(tmp_path, monkeypatch):
    """A module with stores that somebody wrote, in the folder where the command is called."""
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
                    time.sleep(60)

            class Counts(Plain):
                """Writes down each time that it is built."""
                def add(self, ids, vectors):
                    with open(os.environ["BUILT"], "a") as out:
                        out.write("x")
                    super().add(ids, vectors)

            class Slow(Plain):
                def add(self, ids, vectors):
                    time.sleep(30 if os.path.exists("slow") else 0)
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
def test_a_store_is_read_as_it_is_typed(text, store, options, name):
    assert read(text) == Configuration(store, options, {}, name)


def test_a_configuration_prints_as_it_is_typed():
    one = Configuration("faiss", {"kind": "hnsw", "m": 16}, {"ef_search": 40})
    assert str(one) == "faiss:kind=hnsw,m=16,ef_search=40"
    assert one.series == "faiss hnsw"
    assert Configuration("usearch", {"exact": True, "view": False}).series == "usearch exact"


def test_where_a_server_is_and_the_key_to_it_are_not_written_down():
    one = Configuration("qdrant", {"url": "http://me:secret@there", "api_key": "secret", "m": 16}, {"ef_search": 40})
    assert one.series == "qdrant server"
    assert str(one) == "qdrant:at=server,m=16,ef_search=40"
    assert "secret" not in repr(one.shown)


@pytest.mark.parametrize("store", plugins.TABLE["stores"])
def test_every_store_has_a_usual_grid_and_every_grid_names_real_options(store):
    factory = found(store)
    known = inspect.signature(factory).parameters
    assert {"metric", "path"} <= known.keys()
    assert GRIDS[store]
    for grid in GRIDS[store]:
        assert grid.keys() <= known.keys()
    assert search_options(store) <= known.keys()


def test_one_build_serves_many_searches_and_stores_take_turns():
    made = jobs(["faiss:kind=hnsw,m=8+16,ef_construction=40,ef_search=10+20+30", "usearch:m=8+16"], Plan(sweep=False))
    assert [str(job.configuration) for job in made] == [
        "faiss:kind=hnsw,m=8,ef_construction=40",
        "usearch:m=8",
        "faiss:kind=hnsw,m=16,ef_construction=40",
        "usearch:m=16",
    ]
    assert [dict(one) for one in made[0].searches] == [{"ef_search": 10}, {"ef_search": 20}, {"ef_search": 30}]
    assert [dict(one) for one in made[1].searches] == [{}]


def test_what_is_given_replaces_the_usual_and_a_word_chooses_the_kind():
    (only,) = jobs(["faiss:kind=ivf,nlist=7"], Plan())
    assert only.configuration.build == {"kind": "ivf", "nlist": 7}
    assert len(only.searches) > 3
    both = {job.configuration.build["kind"] for job in jobs(["faiss:kind=ivf+flat"], Plan())}
    assert both == {"ivf", "flat"}
    quick = jobs(["faiss:kind=hnsw"], Plan(quick=True))
    assert len(quick) < len(jobs(["faiss:kind=hnsw"], Plan()))
    assert 1 < len(quick[0].searches) < len(only.searches)


def test_mistakes_are_told_before_anything_is_measured(tmp_path):
    for wrong, error, word in (
        ({"stores": "fais"}, UnknownName, "did you mean `faiss`"),
        ({"stores": []}, BadInput, "no store"),
        ({"stores": ["exact", "exact"]}, BadInput, "twice"),
        ({"stores": "exact", "clients": [0]}, BadInput, "0 clients"),
        ({"stores": "exact", "rates": [-1.0]}, BadInput, "rate"),
        ({"stores": "exact", "filters": [2.0]}, BadInput, "let through"),
        ({"stores": "exact", "k": 0}, BadInput, "k is 0"),
        ({"stores": "exact", "k": 601}, BadInput, "k is 601"),
        ({"stores": "exact", "k": 2.5}, BadInput, "not a whole number"),
        ({"stores": "exact", "clients": 2}, BadInput, "not a list"),
        ({"stores": "exact", "threads": 10_000}, BadInput, "may use"),
        ({"stores": ["exact", "usearch:ef_serch=3"]}, UnknownName, "did you mean `ef_search`"),
        ({"stores": "ragauge.sweeps:Sweep"}, BadInput, "has no add"),
        ({"stores": ["a=exact", "a=faiss:kind=flat"]}, BadInput, "two stores are called `a`"),
        ({"stores": "exact", "price": 0}, BadInput, "price"),
        ({"stores": "exact", "repeat": 3}, UnknownName, "did you mean `repeats`"),
        ({"stores": "exact", "judgments": True}, MissingEvidence, "no judgments"),
    ):
        with pytest.raises(error, match=word):
            ragauge.bench(clustered(), **{"folder": tmp_path / "out", **wrong})
    assert not (tmp_path / "out").exists()


def test_the_exact_store_finds_everything_and_all_its_figures_are_there(tmp_path):
    data = clustered()
    found = ragauge.bench(data, "exact", folder=tmp_path / "out", price=0.36, repeats=2)
    (point,) = found.points
    assert point.quality["recall(of=eps,eps=1e-06)@10"] == point.quality["recall(of=k)@10"] == 1.0
    assert point.quality["recall@10"] == pytest.approx(0.1)
    assert point.quality["precision@10"] == 1.0
    assert point.latency.n % 40 == 0
    assert point.qps == pytest.approx(1000 / point.latency.mean)
    assert point.cost_per_million == pytest.approx(0.36 * 1e6 / (3600 * point.qps))
    assert point.build.vectors == 600
    assert point.build.seconds > 0
    assert point.build.disk_bytes >= data.base.nbytes
    assert point.build.cold_first_ms > 0
    assert point.build.about["store"] == "exact"
    assert found.frontier == [0]
    assert found.circumstances["vectors_hash"] == data.hash
    assert not list((tmp_path / "out").glob("builds/*/store"))
    assert not list((tmp_path / "out").glob("builds/*/*.log"))


def test_a_store_of_ones_own_needs_two_methods(own_stores):
    found = ragauge.bench(clustered(), "mine=own_stores:Plain", clients=[1], **QUICK)
    (point,) = found.points
    assert found.stores == ["mine"]
    assert point.quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert point.build.disk_bytes is None
    assert any("not put under load" in note for note in point.notes)


def test_what_a_store_prints_is_no_word_of_the_harness(own_stores):
    seen = []
    found = ragauge.bench(clustered(), "own_stores:Loud", progress=lambda *told: seen.append(told), **QUICK)
    assert found.points[0].quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert not any("lies" in what for what, _, _ in seen)


def test_stores_that_break_are_told_in_their_own_words_and_the_others_finish(own_stores):
    broken = ["own_stores:Raises", "own_stores:Crashes", "own_stores:Hangs"]
    found = ragauge.bench(clustered(), [*broken, "exact"], timeout=5.0, **QUICK)
    assert found.stores == ["exact"]
    raised, crashed, hung = (failure.message for failure in found.failures)
    assert "the disk of this store is on fire" in raised
    assert "SIGSEGV" in crashed
    assert "gave up after 5 seconds" in hung
    assert [failure.exit_code for failure in found.failures] == [3, 3, 3]


def test_a_missing_library_names_its_extra_and_the_sweep_goes_on(tmp_path, monkeypatch):
    (tmp_path / "usearch.py").write_text("raise ImportError('hidden for a test')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = ragauge.bench(clustered(), ["usearch:m=8+16", "exact"], repeats=1, sweep=False)
    assert found.stores == ["exact"]
    (failure,) = found.failures
    assert "ragauge[usearch]" in (failure.hint or "")


def test_nothing_is_done_twice_and_what_is_new_is_added(own_stores, monkeypatch):
    counter = own_stores / "built.txt"
    monkeypatch.setenv("BUILT", str(counter))
    data = clustered()
    first = ragauge.bench(data, "own_stores:Counts", folder="out", **QUICK)
    again = ragauge.bench(data, "own_stores:Counts", folder="out", **QUICK)
    built = counter.read_text()
    assert first.points[0].latency == again.points[0].latency
    assert built == "xx"  # a rehearsal, and the build
    fewer = ragauge.bench(data, "own_stores:Counts", folder="out", k=5, **QUICK)
    assert fewer.points[0].quality["recall(of=eps,eps=1e-06)@5"] == 1.0
    assert counter.read_text() == "xxxx"
    assert first.points[0].quality["recall(of=eps,eps=1e-06)@10"] == 1.0
    other = VectorSet("other", data.base + 1, data.queries, data.metric)
    ragauge.bench(other, "own_stores:Counts", folder="out", **QUICK)
    assert counter.read_text() == "xxxxxx"


def test_a_store_of_ones_own_that_was_changed_is_measured_again(own_stores):
    data = clustered()
    text = (own_stores / "own_stores.py").read_text()
    first = ragauge.bench(data, "own_stores:Plain", folder="out", **QUICK)
    assert first.points[0].quality[first.recall] == 1.0
    (own_stores / "own_stores.py").write_text(text.replace("np.argsort(far, axis=1)", "np.argsort(-far, axis=1)"))
    again = ragauge.bench(data, "own_stores:Plain", folder="out", **QUICK)
    assert again.points[0].quality[again.recall] < 0.2


def test_the_vectors_may_be_cut_and_measured_by_another_metric():
    found = ragauge.bench(clustered(), "exact", metric="cosine", limit=100, queries=5, **QUICK)
    assert (found.metric, found.vectors, found.queries) == ("cosine", 100, 5)
    assert found.points[0].quality[found.recall] == 1.0


def test_usual_widths_are_never_below_k():
    (job, *_) = jobs(["hnswlib"], Plan(k=50))
    assert [one["ef_search"] for one in job.searches] == [50, 80, 160, 320]


def test_what_was_cleared_away_is_built_again_where_a_load_needs_it(tmp_path):
    data = clustered()
    ragauge.bench(data, "exact", folder=tmp_path, repeats=1)
    loaded = ragauge.bench(data, "exact", folder=tmp_path, repeats=1, clients=[1], shares=[0.5], seconds=0.5)
    closed, opened = loaded.points[0].loads
    assert closed.rate is None
    assert opened.rate == pytest.approx(0.5 * closed.qps, rel=0.01)
    assert not loaded.failures


def test_a_sweep_that_was_killed_goes_on(own_stores):
    """The first store is done, the second waits: all is killed hard, nothing lives on, the same command goes on."""
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
        until = time.monotonic() + 60
        while len(list(Path("out").glob("builds/*"))) < 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        (worker,) = psutil.Process(process.pid).children()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    until = time.monotonic() + 10
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.1)
    done = {path: path.stat().st_mtime_ns for path in Path("out").glob("builds/*/*.npz")}
    assert done
    (own_stores / "slow").unlink()
    again = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert again.stdout.strip() == "['exact', 'own_stores:Slow']"
    assert {path: path.stat().st_mtime_ns for path in done} == done


def test_two_cannot_work_in_one_folder(tmp_path):
    with alone(tmp_path), pytest.raises(BadInput, match="another bench works in"):
        ragauge.bench(clustered(), "exact", folder=tmp_path, **QUICK)


def test_the_key_to_a_server_is_in_no_file_and_no_message(tmp_path):
    pytest.importorskip("qdrant_client")
    told = "qdrant:url=http://me:SEKRET@127.0.0.1:9,api_key=SEKRET"
    found = ragauge.bench(clustered(), ["exact", told], folder=tmp_path, **QUICK)
    ragauge.report(found, [tmp_path / "page.html", tmp_path / "all.json", tmp_path / "points.csv"])
    assert found.failures
    assert "SEKRET" not in repr(found.failures)
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"SEKRET" not in file.read_bytes(), file


def test_pieces_and_vectors_come_back_as_they_were(tmp_path):
    write_piece(tmp_path / "a.npz", {"told": 1}, {"ns": np.arange(4)})
    told, arrays = read_piece(tmp_path / "a.npz")
    assert told == {"told": 1}
    assert arrays["ns"].tolist() == [0, 1, 2, 3]
    (tmp_path / "half.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:50])
    assert read_piece(tmp_path / "half.npz") is None
    assert read_piece(tmp_path / "none.npz") is None
    data = clustered(50, 3, 4)
    write_vectors(data, tmp_path / "v")
    again = Vectors(str(tmp_path / "v"))
    assert again.rows("base", 7, 5).tolist() == data.base[7:12].tolist()
    assert again.rows("queries").tolist() == data.queries.tolist()
    assert again.ids(48, 9) == ["48", "49"]
    assert again.others(500, 0).shape == (50, 3)
    assert json.loads((tmp_path / "v" / "vectors.json").read_text())["shapes"]["base"] == [50, 3]


@pytest.mark.parametrize(("name", "metric"), [("ann_bigann10k", "l2"), ("ann_glove50_10k", "cosine")])
def test_recall_agrees_with_the_neighbours_that_were_shipped(shared, tmp_path, name, metric):
    """Counted here from the raw answers of a real index, against the published file read by hand."""
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
    kept = [read_piece(path) for path in tmp_path.glob("builds/*/*.npz")]
    raw = [arrays["positions"] for told, arrays in kept if told.get("about", {}).get("kind") == "hnsw"]
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(raw[0].tolist(), published.tolist(), strict=True)]
    assert graph.quality["recall(of=k)@10"] == pytest.approx(np.mean(shares))
    assert 0.5 < graph.quality["recall(of=k)@10"] < 1


def test_a_fixed_rate_shows_a_stall_that_a_closed_loop_hides():
    """A fifth of a second at every 200th search: one query in 200 of those who ask when they please, a fifth of all."""
    stalling = "null:stall_ms=200,every=200"
    found = ragauge.bench(clustered(), stalling, clients=[1], rates=[200.0], seconds=3.0, repeats=1, sweep=False)
    closed, opened = found.points[0].loads
    assert opened.kept_up
    assert closed.latency.p99 < 20
    assert opened.latency.p90 > 50
    assert opened.service.p90 < 20


def test_the_same_searches_are_scored_by_what_people_found_relevant():
    random = np.random.default_rng(3)
    base = random.normal(size=(300, 8)).astype(np.float32)
    ids = [f"doc {place}" for place in range(300)]
    queries = base[:30] + 0.01
    judged = {f"q{place}": {f"doc {place}": 1} for place in range(30)}
    data = VectorSet(
        "judged", base, queries, "l2", ids=ids, query_ids=list(judged), judgments=ragauge.Judgments(judged)
    )
    found = ragauge.bench(data, ["exact", "null"], judgments=True, **QUICK)
    exact, nothing = found.points
    assert exact.relevance == {"ndcg@10": 1.0, "hit_rate@10": 1.0}
    # It always answers with the first ten documents, which are right for ten of thirty queries.
    assert nothing.relevance["hit_rate@10"] == pytest.approx(1 / 3)
