"""Engines have their ways: what they do not say, what they lose, and what this project makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from ragauge.errors import BackendFailed, BadInput
from ragauge.systems.stores.columns import Columns
from ragauge.systems.stores.engines import Gone, Home, Speaking


def vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def ids_of(n: int) -> list[str]:
    return [f"d{i}" for i in range(n)]


def nearest(base: np.ndarray, queries: np.ndarray, k: int) -> list[list[str]]:
    far = np.linalg.norm(queries[:, None].astype(float) - base[None].astype(float), axis=2)
    return [[f"d{i}" for i in row[:k]] for row in np.argsort(far, axis=1, kind="stable")]


def recall(found: np.ndarray, right: list[list[str]]) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), right, strict=True)]))


def test_a_column_has_one_kind_and_a_filter_of_another_kind_finds_nothing():
    columns = Columns()
    columns.learn(columns.new(["a"], [{"part": 3, "x; DROP": "y", "flag": True, "size": 0.5}]))
    assert [tuple(one) for one in columns] == [("c0", "whole"), ("c1", "text"), ("c2", "truth"), ("c3", "real")]
    assert columns.row({"size": 2, "part": np.int64(4)}) == [4, None, None, 2.0]
    assert columns.wanted({"part": 3.0, "size": 2}) == {"c0": 3, "c3": 2.0}
    for nothing in ({"part": True}, {"part": "3"}, {"part": 3.5}, {"flag": 1}, {"other": 1}):
        assert columns.wanted(nothing) is None
    with pytest.raises(BadInput, match="'b': 'part' is 'x', and before it were whole numbers"):
        columns.new(["b"], [{"part": "x"}])
    again = Columns()
    again.read(columns.kept())
    assert list(again) == list(columns)


def test_what_an_engine_says_is_repeated_without_its_secrets():
    with pytest.raises(BackendFailed, match=r"^toy: no entry for \*\*\*$") as caught, Speaking("toy", ("s3cret",)):
        raise OSError("no entry\n for s3cret")
    assert caught.value.__cause__ is None
    with pytest.raises(BadInput, match=r"^ours$"), Speaking("toy"):
        raise BadInput("ours")
    with pytest.raises(KeyboardInterrupt), Speaking("toy"):
        raise KeyboardInterrupt
    with pytest.raises(BackendFailed, match="closed"):
        Gone().search()


def test_a_borrowed_folder_goes_and_a_given_one_stays(tmp_path):
    borrowed, given = Home("toy", None), Home("toy", str(tmp_path / "given"))
    (given.folder / "data.1").write_text("left by a killed process")
    (given.folder / "other").write_text("not ours")
    assert not given.place("data", fresh=True).exists()
    assert [one.name for one in given.folder.iterdir()] == ["other"]
    for home in (borrowed, given):
        home.close()
    assert not borrowed.folder.exists()
    assert given.folder.exists()


def test_a_dead_qdrant_server_is_told_in_its_own_words():
    pytest.importorskip("qdrant_client")
    from ragauge.systems.stores.qdrant_store import Qdrant

    with pytest.raises(BackendFailed, match=r"qdrant: .*refused"):
        Qdrant(url="http://127.0.0.1:9")


def test_a_qdrant_graph_is_made_and_used_however_small_the_data_are():
    pytest.importorskip("qdrant_edge")
    from ragauge.systems.stores.qdrant_store import Qdrant

    base = vectors(3000, 24)
    right = nearest(base, base[:100] + 0.1, 10)
    store = Qdrant(metric="l2", m=4, ef_construction=8, ef_search=10)
    store.add(ids_of(3000), base)
    store.build()
    assert store.describe()["index_used"]
    assert recall(store.search(base[:100] + 0.1, 10)[0], right) < 0.95
    store.tune(exact=True)
    assert not store.describe()["index_used"]
    assert recall(store.search(base[:100] + 0.1, 10)[0], right) == 1
    store.close()


def test_duckdb_lays_a_filter_over_what_its_index_gives():
    pytest.importorskip("duckdb")
    from ragauge.systems.stores.duckdb_store import DuckDB

    base = vectors(2000, 16)
    store = DuckDB(metric="l2", ef_search=50)
    store.add(ids_of(2000), base, [{"part": i % 50} for i in range(2000)])
    store.build()
    assert store.describe()["index_used"]
    ids, _ = store.search(base[:20], 10, where={"part": 3})
    assert all(int(one[1:]) % 50 == 3 for one in ids.ravel() if one is not None)
    assert np.mean(ids == None) > 0.5  # noqa: E711 - an array of objects
    store.tune(filtered="scan")
    assert not store.index_used(base[0], 10, {"part": 3})
    assert None not in store.search(base[:20], 10, where={"part": 3})[0]
    store.close()


def test_two_processes_can_read_a_duckdb_file_that_none_of_them_changes(tmp_path):
    pytest.importorskip("duckdb")
    from ragauge.systems.stores.duckdb_store import DuckDB

    store = DuckDB(metric="l2", path=str(tmp_path))
    store.add(ids_of(50), vectors(50, 4))
    store.save()
    code = (
        "import sys, numpy as np\nfrom ragauge.systems.stores.duckdb_store import DuckDB\n"
        "print(DuckDB(metric='l2', path=sys.argv[1]).search(np.zeros((1, 4)), 3)[0].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(store.search(np.zeros((1, 4)), 3)[0].tolist()), done.stderr
    store.add(["new"], np.zeros((1, 4)))
    assert store.search(np.zeros((1, 4)), 1)[0].tolist() == [["new"]]
    store.close()


def test_milvus_lite_builds_with_the_numbers_that_were_asked_for():
    pytest.importorskip("milvus_lite")
    from ragauge.systems.stores.milvus_lite_store import MilvusLite

    base = vectors(1000, 16)
    right = nearest(base, base[:30] + 0.1, 10)
    for nlist, least, most in ((8, 1, 1), (200, 0, 0.8)):
        store = MilvusLite(metric="l2", index="ivf_flat", nlist=nlist, nprobe=8)
        store.add(ids_of(1000), base)
        assert least <= recall(store.search(base[:30] + 0.1, 10)[0], right) <= most
        store.close()


def test_sqlite_vec_and_memvid_have_no_inner_product():
    for module, name, library in (
        ("sqlite_vec_store", "SqliteVec", "sqlite_vec"),
        ("memvid_store", "Memvid", "memvid_sdk"),
    ):
        pytest.importorskip(library)
        store = getattr(__import__(f"ragauge.systems.stores.{module}", fromlist=[name]), name)
        with pytest.raises(BadInput, match="cannot rank by inner product"):
            store(metric="ip")


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_memvid_keeps_a_few_vectors_and_says_what_it_cannot(metric, tmp_path):
    pytest.importorskip("memvid_sdk")
    from ragauge.systems.stores.memvid_store import Memvid

    base = vectors(60, 8)
    scaled = base / np.linalg.norm(base, axis=1, keepdims=True) if metric == "cosine" else base
    store = Memvid(metric=metric, path=str(tmp_path))
    store.add(["a'b", *ids_of(60)[1:]], base)
    ids, distances = store.search(base[:5], 70)
    assert ids[0, 0] == "a'b"
    assert ids[:, 60:].tolist() == [[None] * 10] * 5
    wanted = np.sort(np.linalg.norm(scaled[:5, None] - scaled[None], axis=2), axis=1)
    np.testing.assert_allclose(distances[:, :60], wanted**2 / 2 if metric == "cosine" else wanted, atol=1e-3)
    store.delete(["d3"])
    store.add(["new"], base[3:4])
    assert store.search(base[3:4], 1)[0].tolist() == [["new"]]
    for refused in (lambda: store.update(["new"], base[:1]), lambda: store.search(base[:1], 1, where={"part": 1})):
        with pytest.raises(BadInput, match="memvid cannot"):
            refused()
    store.save()
    store.close()
    again = Memvid(metric=metric, path=str(tmp_path))
    assert again.search(base[3:4], 1)[0].tolist() == [["new"]]
    again.close()


def test_a_memvid_that_has_lost_vectors_says_so_instead_of_being_searched():
    pytest.importorskip("memvid_sdk")
    from ragauge.systems.stores.memvid_store import Memvid

    store = Memvid(metric="l2")
    store.add(ids_of(5000), vectors(5000, 32))
    with pytest.raises(BackendFailed, match=r"of 5000 documents that it took it has \d+, and its index"):
        store.build()
    store.close()


def test_pgvector_tells_its_processes_its_disk_and_its_folder(dsn, tmp_path):
    import psutil

    from ragauge.systems.stores.pgvector import PgVector

    with PgVector(dsn=dsn, metric="l2", path=str(tmp_path / "kept")) as store:
        assert store.disk_bytes() is None
        store.add(ids_of(500), vectors(500, 16))
        store.build()
        assert store.disk_bytes() > 500 * 16 * 4
        pids = store.pids()
        assert os.getpid() not in pids
        assert psutil.Process(pids[0]).name().startswith("postgres")
        assert {psutil.Process(pid).ppid() for pid in pids[1:]} == {pids[0]}
        store.save()
    assert "password" not in (tmp_path / "kept" / "intake.json").read_text()
    with PgVector(dsn=dsn, metric="l2", path=str(tmp_path / "kept")) as again:
        assert len(again) == 500
        assert again.search(vectors(500, 16)[:1], 1)[0].tolist() == [["d0"]]


def test_a_pgvector_folder_without_its_table_is_refused(dsn, tmp_path):
    import psycopg

    from ragauge.systems.stores.pgvector import PgVector

    with PgVector(dsn=dsn, metric="l2", path=str(tmp_path), table="soon gone") as store:
        store.add(ids_of(5), vectors(5, 4))
        store.save()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute('DROP TABLE "soon gone"')
    with pytest.raises(BadInput, match="no table 'soon gone'"):
        PgVector(dsn=dsn, metric="l2", path=str(tmp_path))


def test_the_table_of_a_folder_that_is_gone_is_forsaken(dsn, tmp_path):
    import psycopg

    from ragauge.systems.stores.embedded import TEMPORARY, forsaken
    from ragauge.systems.stores.pgvector import PgVector

    says = "SELECT obj_description(to_regclass(%s), 'pg_class')"
    with PgVector(dsn=dsn, metric="l2", path=str(tmp_path / "kept")) as store, psycopg.connect(dsn) as connection:
        store.add(ids_of(5), vectors(5, 4))
        assert connection.execute(says, [store.table]).fetchone() == (TEMPORARY,)
        store.save()
        (comment,) = connection.execute(says, [store.table]).fetchone()
    assert not forsaken(comment)
    assert not forsaken("somebody's own words")
    assert forsaken(TEMPORARY)
    shutil.rmtree(tmp_path / "kept")
    assert forsaken(comment)
