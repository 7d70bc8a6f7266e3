"""Engine-specific behaviour of stores: metadata columns, errors, index use, lost vectors, and removal of tables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from ragauge.core.errors import BackendFailed, BadInput
from ragauge.store_benchmarks.plan import StoreSpec
from ragauge.stores.engines import ClosedEngine, EngineErrors, EngineFolder
from ragauge.stores.filter_conditions import FilterCondition
from ragauge.stores.metadata_columns import MetadataColumns


def make_vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def open_store(store: str, *, metric: str = "l2", path: str | None = None, **options):
    return StoreSpec(store, options, metric, path).open()


def make_ids(n: int) -> list[str]:
    return [f"d{i}" for i in range(n)]


def find_nearest_ids(base: np.ndarray, queries: np.ndarray, k: int) -> list[list[str]]:
    distances = np.linalg.norm(queries[:, None].astype(float) - base[None].astype(float), axis=2)
    return [[f"d{i}" for i in row[:k]] for row in np.argsort(distances, axis=1, kind="stable")]


def compute_recall(returned: np.ndarray, expected: list[list[str]]) -> float:
    return float(
        np.mean(
            [
                len(set(actual) & set(wanted)) / len(wanted)
                for actual, wanted in zip(returned.tolist(), expected, strict=True)
            ]
        )
    )


def test_metadata_columns_other_value_kind_matches_nothing():
    columns = MetadataColumns()
    columns.learn(columns.new(["a"], [{"part": 3, "x; DROP": "y", "flag": True, "size": 0.5}]))
    assert [tuple(column) for column in columns] == [("c0", "whole"), ("c1", "text"), ("c2", "truth"), ("c3", "real")]
    assert columns.row({"size": 2, "part": np.int64(4)}) == [4, None, None, 2.0]
    assert columns.to_conditions({"part": 3.0, "size": 2}) == [
        FilterCondition("c0", "=", 3),
        FilterCondition("c3", "=", 2.0),
    ]
    for condition in ({"part": True}, {"part": "3"}, {"part": 3.5}, {"flag": 1}, {"other": 1}):
        assert columns.to_conditions(condition) is None
    with pytest.raises(BadInput, match="'b': 'part' must be whole numbers as before, got 'x'"):
        columns.new(["b"], [{"part": "x"}])
    restored = MetadataColumns()
    restored.read(columns.to_json())
    assert list(restored) == list(columns)


def test_engine_errors_redact_secrets():
    with (
        pytest.raises(BackendFailed, match=r"^toy: no entry for \[redacted\]$") as caught,
        EngineErrors("toy", ("s3cret",)),
    ):
        raise OSError("no entry\n for s3cret")
    assert caught.value.__cause__ is None
    with pytest.raises(BadInput, match=r"^ours$"), EngineErrors("toy"):
        raise BadInput("ours")
    with pytest.raises(KeyboardInterrupt), EngineErrors("toy"):
        raise KeyboardInterrupt
    with pytest.raises(BackendFailed, match="closed"):
        ClosedEngine().search()


def test_engine_folder_close_removes_only_temporary_folder(tmp_path):
    temporary, given = EngineFolder("toy", None), EngineFolder("toy", str(tmp_path / "given"))
    (given.folder / "data.1").write_text("of the user")
    (given.folder / "other").write_text("not ours")
    with pytest.raises(BadInput, match=r"has data\.1, which ragauge did not write"):
        given.prepare_path("data", fresh=True)
    (given.folder / "data.1").unlink()
    given.prepare_path("data", fresh=True)
    (given.folder / "data.1").write_text("left by a killed process")
    assert not given.prepare_path("data", fresh=True).exists()
    assert {path.name for path in given.folder.iterdir()} == {"other", ".data.ragauge"}
    for engine_folder in (temporary, given):
        engine_folder.close()
    assert not temporary.folder.exists()
    assert given.folder.exists()


def test_qdrant_unreachable_server_raises():
    pytest.importorskip("qdrant_client")
    with pytest.raises(BackendFailed, match=r"qdrant: .*refused"):
        open_store("qdrant", url="http://127.0.0.1:9")


def test_qdrant_builds_and_uses_graph_for_small_data():
    pytest.importorskip("qdrant_edge")
    base = make_vectors(3000, 24)
    expected = find_nearest_ids(base, base[:100] + 0.1, 10)
    store = open_store("qdrant", m=4, ef_construction=8, ef_search=10)
    store.add(make_ids(3000), base)
    store.build()
    assert store.describe()["index_used"]
    assert store.describe()["indexed"] == 3000
    assert compute_recall(store.search(base[:100] + 0.1, 10)[0], expected) < 0.95
    store.tune({"exact": True})
    assert not store.describe()["index_used"]
    assert compute_recall(store.search(base[:100] + 0.1, 10)[0], expected) == 1
    store.close()


@pytest.mark.parametrize("name", ["qdrant", "lancedb"])
def test_store_partial_index_is_not_reported_as_used(name):
    pytest.importorskip({"qdrant": "qdrant_edge"}.get(name, name))
    from ragauge.core import plugins

    base = make_vectors(2000, 8)
    store = plugins.load_plugin("stores", name)(metric="l2")
    store.add(make_ids(1000), base[:1000])
    store.build()
    assert store.describe()["index_used"]
    store.add(make_ids(2000)[1000:], base[1000:])
    description = store.describe()
    assert 0 < description["indexed"] < 2000
    assert not description["index_used"]
    store.build()
    description = store.describe()
    assert (description["indexed"], description["index_used"]) == (2000, True)
    store.close()


def test_duckdb_counts_exact_fallbacks():
    pytest.importorskip("duckdb")
    base = make_vectors(300, 8)
    store = open_store("duckdb")
    store.add(make_ids(300), base)
    store.search(base[:4], 10)
    assert store.describe()["exact_fallbacks"] == 0
    store.delete([name for name in make_ids(300) if name not in ("d7", "d9")])
    assert set(store.search(base[:3], 2)[0].ravel()) == {"d7", "d9"}
    assert 0 < store.describe()["exact_fallbacks"] <= 3
    store.close()


def test_duckdb_filter_is_applied_after_index_search():
    pytest.importorskip("duckdb")
    base = make_vectors(2000, 16)
    store = open_store("duckdb", ef_search=50)
    store.add(make_ids(2000), base, [{"part": i % 50} for i in range(2000)])
    store.build()
    assert store.describe()["index_used"]
    ids, _ = store.search(base[:20], 10, where={"part": 3})
    assert all(int(name[1:]) % 50 == 3 for name in ids.ravel() if name is not None)
    assert np.mean(ids == None) > 0.5  # noqa: E711 - elementwise, in an array of objects
    store.tune({"filtered": "scan"})
    assert not store.index_used(base[0], 10, {"part": 3})
    assert None not in store.search(base[:20], 10, where={"part": 3})[0]
    store.close()


def test_duckdb_file_is_readable_by_second_process(tmp_path):
    pytest.importorskip("duckdb")
    store = open_store("duckdb", path=str(tmp_path))
    store.add(make_ids(50), make_vectors(50, 4))
    store.save()
    code = (
        "import sys, numpy as np\nfrom ragauge.stores.duckdb import DuckDBStore as DuckDB\n"
        "print(DuckDB(metric='l2', path=sys.argv[1]).search(np.zeros((1, 4)), 3)[0].tolist())"
    )
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert process.stdout.strip() == str(store.search(np.zeros((1, 4)), 3)[0].tolist()), process.stderr
    store.add(["new"], np.zeros((1, 4)))
    assert store.search(np.zeros((1, 4)), 1)[0].tolist() == [["new"]]
    store.close()


def test_milvus_lite_build_uses_given_options():
    pytest.importorskip("milvus_lite")
    base = make_vectors(1000, 16)
    expected = find_nearest_ids(base, base[:30] + 0.1, 10)
    for nlist, min_recall, max_recall in ((8, 1, 1), (200, 0, 0.8)):
        store = open_store("milvus-lite", index="ivf_flat", nlist=nlist, nprobe=8)
        store.add(make_ids(1000), base)
        assert min_recall <= compute_recall(store.search(base[:30] + 0.1, 10)[0], expected) <= max_recall
        store.close()


def test_sqlite_vec_and_memvid_inner_product_raises():
    for module, name, library in (
        ("sqlite_vec", "SqliteVecStore", "sqlite_vec"),
        ("memvid", "MemvidStore", "memvid_sdk"),
    ):
        pytest.importorskip(library)
        store = getattr(__import__(f"ragauge.stores.{module}", fromlist=[name]), name)
        with pytest.raises(BadInput, match="cannot rank by inner product"):
            store(metric="ip")


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_memvid_small_store_round_trip_and_unsupported_calls_raise(metric, tmp_path):
    pytest.importorskip("memvid_sdk")
    base = make_vectors(60, 8)
    scaled = base / np.linalg.norm(base, axis=1, keepdims=True) if metric == "cosine" else base
    store = open_store("memvid", metric=metric, path=str(tmp_path))
    store.add(["a'b", *make_ids(60)[1:]], base)
    ids, distances = store.search(base[:5], 70)
    assert ids[0, 0] == "a'b"
    assert ids[:, 60:].tolist() == [[None] * 10] * 5
    expected = np.sort(np.linalg.norm(scaled[:5, None] - scaled[None], axis=2), axis=1)
    np.testing.assert_allclose(distances[:, :60], expected**2 / 2 if metric == "cosine" else expected, atol=1e-3)
    store.delete(["d3"])
    store.add(["new"], base[3:4])
    assert store.search(base[3:4], 1)[0].tolist() == [["new"]]
    for call in (lambda: store.update(["new"], base[:1]), lambda: store.search(base[:1], 1, where={"part": 1})):
        with pytest.raises(BadInput, match="memvid cannot"):
            call()
    store.save()
    store.close()
    reopened = open_store("memvid", metric=metric, path=str(tmp_path))
    assert reopened.search(base[3:4], 1)[0].tolist() == [["new"]]
    reopened.close()


@pytest.mark.engine
def test_memvid_build_with_lost_vectors_raises():
    pytest.importorskip("memvid_sdk")
    store = open_store("memvid")
    store.add(make_ids(5000), make_vectors(5000, 32))
    with pytest.raises(BackendFailed, match=r"it has \d+ of 5000 added documents, and its index of"):
        store.build()
    store.close()


def test_pgvector_reports_pids_and_disk_and_reopens_folder(dsn, tmp_path):
    import psutil

    with open_store("pgvector", dsn=dsn, path=str(tmp_path / "kept")) as store:
        assert store.disk_bytes() is None
        store.add(make_ids(500), make_vectors(500, 16))
        store.build()
        assert store.disk_bytes() > 500 * 16 * 4
        pids = store.pids()
        assert os.getpid() not in pids
        assert psutil.Process(pids[0]).name().startswith("postgres")
        assert {psutil.Process(pid).ppid() for pid in pids[1:]} == {pids[0]}
        store.save()
    assert "password" not in (tmp_path / "kept" / "intake.json").read_text()
    with open_store("pgvector", dsn=dsn, path=str(tmp_path / "kept")) as reopened:
        assert len(reopened) == 500
        assert reopened.search(make_vectors(500, 16)[:1], 1)[0].tolist() == [["d0"]]


@pytest.mark.parametrize("options", [{}, {"table": "a name of its own", "keep": True}])
def test_pgvector_remove_drops_saved_table(dsn, tmp_path, options):
    import psycopg

    table_exists = "SELECT to_regclass(quote_ident(%s)) IS NOT NULL"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for reopen in (False, True):
            folder = str(tmp_path / f"{reopen}")
            store = open_store("pgvector", dsn=dsn, path=folder, **options)
            store.add(make_ids(50), make_vectors(50, 4))
            store.save()
            if reopen:
                store.close()
                store = open_store("pgvector", dsn=dsn, path=folder, **options)
            assert connection.execute(table_exists, [store.table]).fetchone() == (True,)
            store.remove()
            assert connection.execute(table_exists, [store.table]).fetchone() == (False,)
            store.close()
            store.remove()
        # A table that existed before is not the store's own, so it is not dropped.
        connection.execute("CREATE TABLE theirs (x int)")
        store = open_store("pgvector", dsn=dsn, table="theirs")
        with pytest.raises(BadInput, match="'theirs' already"):
            store.add(make_ids(5), make_vectors(5, 4))
        store.remove()
        store.close()
        assert connection.execute(table_exists, ["theirs"]).fetchone() == (True,)
        connection.execute("DROP TABLE theirs")


def test_pgvector_reopen_keeps_automatic_lists(dsn, tmp_path):
    with open_store("pgvector", dsn=dsn, index="ivfflat", path=str(tmp_path)) as store:
        store.add(make_ids(3000), make_vectors(3000, 4))
        store.build()
        store.add([f"more{i}" for i in range(2000)], make_vectors(2000, 4, 1))
        store.save()
        assert store.describe()["lists"] == 3
    with open_store("pgvector", dsn=dsn, index="ivfflat", path=str(tmp_path)) as reopened:
        assert reopened.describe()["lists"] == 3
        reopened.remove()
    with pytest.raises(BadInput, match="with lists None, expected 7"):
        open_store("pgvector", dsn=dsn, index="ivfflat", lists=7, path=str(tmp_path))


def test_pgvector_counts_exact_fallbacks(dsn):
    base = make_vectors(500, 8)
    with open_store("pgvector", dsn=dsn, force=True) as store:
        store.add(make_ids(500), base, [{"part": i // 5} for i in range(500)])
        store.search(base[:4], 10)
        assert store.describe()["exact_fallbacks"] == 0
        store.search(base[:4], 10, where={"part": 3})  # only five match, so all four need an exact search
        assert store.describe()["exact_fallbacks"] == 4
    with open_store("pgvector", dsn=dsn, index="none") as store:
        assert "exact_fallbacks" not in store.describe()


class FakeQdrantServer:
    """HTTP server that imitates Qdrant and records the requests of a client."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                path = self.path.partition("?")[0]
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((self.command, path))
                special = {"exists": {"exists": False}, "points": {"operation_id": 1, "status": "completed"}}
                result = special.get(path.rpartition("/")[2], True)
                body = json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names of the base class

            def log_message(self, *words: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> FakeQdrantServer:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_qdrant_remove_deletes_server_collection(tmp_path):
    pytest.importorskip("qdrant_client")
    with FakeQdrantServer() as server:
        store = open_store("qdrant", url=server.url, collection="mine", path=str(tmp_path))
        store.remove()
        assert ("DELETE", "/collections/mine") not in server.requests
        store.add(make_ids(3), make_vectors(3, 4))
        store.remove()
        assert server.requests[-1] == ("DELETE", "/collections/mine")
        store.close()
    assert server.requests.count(("DELETE", "/collections/mine")) == 1


def test_pgvector_folder_without_table_raises(dsn, tmp_path):
    import psycopg

    with open_store("pgvector", dsn=dsn, path=str(tmp_path), table="soon gone") as store:
        store.add(make_ids(5), make_vectors(5, 4))
        store.save()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute('DROP TABLE "soon gone"')
    with pytest.raises(BadInput, match="no table 'soon gone'"):
        open_store("pgvector", dsn=dsn, path=str(tmp_path))


def test_pgvector_table_of_deleted_folder_is_abandoned(dsn, tmp_path):
    import psycopg

    from ragauge.stores.postgres_server import TEMPORARY_TABLE_COMMENT, is_abandoned

    select_comment = "SELECT obj_description(to_regclass(%s), 'pg_class')"
    with (
        open_store("pgvector", dsn=dsn, path=str(tmp_path / "kept")) as store,
        psycopg.connect(dsn) as connection,
    ):
        store.add(make_ids(5), make_vectors(5, 4))
        assert connection.execute(select_comment, [store.table]).fetchone() == (TEMPORARY_TABLE_COMMENT,)
        store.save()
        (comment,) = connection.execute(select_comment, [store.table]).fetchone()
    assert not is_abandoned(comment)
    assert not is_abandoned("somebody's own words")
    assert is_abandoned(TEMPORARY_TABLE_COMMENT)
    shutil.rmtree(tmp_path / "kept")
    assert is_abandoned(comment)
