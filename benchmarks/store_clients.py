"""Compare the adapter of every vector store with the plainest client code of its library.

Both build an index of the same vectors with the same options, and answer the same queries, one at a time and in turn.
The time of a query is its shortest one, since other work on the machine can only add to it. Prints a Markdown table.

    python benchmarks/store_clients.py ../shared/data/ann_glove50_10k

Not compared: `exact`, which is code of ragauge, and memvid, which loses vectors beyond some hundreds.
"""

from __future__ import annotations

import argparse
import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LANCE_CPU_THREADS"), "1")

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.store_benchmarks.plan import StoreSpec
from ragauge.store_benchmarks.vector_sets import load_vector_set

K = 10
GRAPH = {"m": 16, "ef_construction": 100, "ef_search": 10}
BLOCK_QUERIES = 20
Vectors = NDArray[np.float32]
Search = Callable[[Vectors], Any]
"""Searches one query of shape (dimensions,), and returns the positions of its neighbours."""


def normalise(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / lengths, dtype=np.float32)


@contextmanager
def search_faiss_flat(base: Vectors, _folder: Path) -> Iterator[Search]:
    import faiss

    index = faiss.IndexFlatIP(base.shape[1])
    index.add(normalise(base))
    yield lambda query: index.search(normalise(query[None]), K)[1][0]


@contextmanager
def search_faiss_hnsw(base: Vectors, _folder: Path) -> Iterator[Search]:
    import faiss

    index = faiss.IndexHNSWFlat(base.shape[1], GRAPH["m"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = GRAPH["ef_construction"], GRAPH["ef_search"]
    index.add(normalise(base))
    yield lambda query: index.search(normalise(query[None]), K)[1][0]


@contextmanager
def search_faiss_ivf(base: Vectors, _folder: Path) -> Iterator[Search]:
    import faiss

    coarse = faiss.IndexFlatIP(base.shape[1])
    index = faiss.IndexIVFFlat(coarse, base.shape[1], 100, faiss.METRIC_INNER_PRODUCT)
    index.train(normalise(base))
    index.add(normalise(base))
    index.nprobe = 4
    yield lambda query: index.search(normalise(query[None]), K)[1][0]


@contextmanager
def search_hnswlib(base: Vectors, _folder: Path) -> Iterator[Search]:
    import hnswlib

    index = hnswlib.Index(space="cosine", dim=base.shape[1])
    index.init_index(max_elements=len(base), ef_construction=GRAPH["ef_construction"], M=GRAPH["m"])
    index.set_num_threads(1)
    index.add_items(base, np.arange(len(base)))
    index.set_ef(GRAPH["ef_search"])
    yield lambda query: index.knn_query(query, k=K)[0][0]


@contextmanager
def search_usearch(base: Vectors, _folder: Path) -> Iterator[Search]:
    from usearch.index import Index

    index = Index(
        ndim=base.shape[1],
        metric="cos",
        dtype="f32",
        connectivity=GRAPH["m"],
        expansion_add=GRAPH["ef_construction"],
        expansion_search=GRAPH["ef_search"],
    )
    index.add(np.arange(len(base)), base, threads=1)
    yield lambda query: index.search(query, K).keys


@contextmanager
def search_scann(base: Vectors, _folder: Path) -> Iterator[Search]:
    import scann

    builder = scann.scann_ops_pybind.builder(normalise(base), K, "dot_product")
    builder = builder.tree(num_leaves=100, num_leaves_to_search=10, training_sample_size=len(base))
    searcher = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(100).build()
    yield lambda query: searcher.search(normalise(query))[0]


@contextmanager
def search_qdrant(base: Vectors, folder: Path) -> Iterator[Search]:
    import qdrant_edge

    qdrant: Any = qdrant_edge

    folder.mkdir()
    graph = qdrant.HnswIndexConfig(
        m=GRAPH["m"], ef_construct=GRAPH["ef_construction"], full_scan_threshold=1, max_indexing_threads=1
    )
    vectors = qdrant.EdgeVectorParams(size=base.shape[1], distance=qdrant.Distance.Cosine)
    optimizers = qdrant.EdgeOptimizersConfig(indexing_threshold=1, default_segment_number=1)
    config = qdrant.EdgeConfig(vectors=vectors, hnsw_config=graph, optimizers=optimizers, max_search_threads=1)
    shard = qdrant.EdgeShard.create(str(folder), config)
    points = [qdrant.Point(row, vector, None) for row, vector in enumerate(base.tolist())]
    shard.update(qdrant.UpdateOperation.upsert_points(points))
    shard.optimize()
    parameters = qdrant.SearchParams(hnsw_ef=GRAPH["ef_search"])

    def search(query: Vectors) -> Any:
        request = qdrant.SearchRequest(query=qdrant.Query.Nearest(query), limit=K, params=parameters)
        return [point.id for point in shard.search(request)]

    yield search
    shard.close()


@contextmanager
def search_chroma(base: Vectors, folder: Path) -> Iterator[Search]:
    import chromadb
    from chromadb.config import Settings

    client: Any = chromadb.PersistentClient(str(folder), Settings(anonymized_telemetry=False))
    graph: Any = {
        "space": "cosine",
        "max_neighbors": GRAPH["m"],
        "ef_construction": GRAPH["ef_construction"],
        "ef_search": GRAPH["ef_search"],
    }
    collection: Any = client.create_collection("items", configuration={"hnsw": graph}, embedding_function=None)
    batch = client.get_max_batch_size()
    for start in range(0, len(base), batch):
        rows = range(start, min(start + batch, len(base)))
        collection.add(ids=[str(row) for row in rows], embeddings=base[rows.start : rows.stop])

    def search(query: Vectors) -> Any:
        found = collection.query(query_embeddings=[query], n_results=K, include=["distances"])
        return [int(key) for key in found["ids"][0]]

    yield search
    client.close()


@contextmanager
def search_lancedb(base: Vectors, folder: Path) -> Iterator[Search]:
    import lancedb
    import pyarrow

    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(base.ravel()), base.shape[1])
    rows = pyarrow.table({"id": np.arange(len(base)), "vector": vectors})
    table: Any = lancedb.connect(str(folder)).create_table("items", rows)
    table.create_index("vector", config=lancedb.index.IvfFlat(distance_type="cosine", num_partitions=10))

    def search(query: Vectors) -> Any:
        request = table.search(query).distance_type("cosine").nprobes(4).limit(K).select(["id", "_distance"])
        return [row["id"] for row in request.to_list()]

    yield search


@contextmanager
def search_milvus_lite(base: Vectors, folder: Path) -> Iterator[Search]:
    from pymilvus import DataType, MilvusClient

    folder.mkdir()
    client = MilvusClient(str(folder / "milvus.db"))
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=base.shape[1])
    index = client.prepare_index_params()
    index.add_index("vector", index_type="FLAT", metric_type="COSINE")
    client.create_collection("items", schema=schema, index_params=index)
    for start in range(0, len(base), 2000):
        rows = range(start, min(start + 2000, len(base)))
        client.insert("items", [{"id": row, "vector": base[row]} for row in rows])
    client.flush("items")
    client.load_collection("items")
    yield lambda query: [hit["id"] for hit in client.search("items", data=[query], limit=K)[0]]
    client.close()


@contextmanager
def search_sqlite_vec(base: Vectors, folder: Path) -> Iterator[Search]:
    import apsw
    import sqlite_vec

    folder.mkdir()
    connection = apsw.Connection(str(folder / "items.sqlite"))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute(
        f"CREATE VIRTUAL TABLE items USING vec0(embedding float[{base.shape[1]}] distance_metric=cosine)"
    )
    with connection:
        connection.executemany(
            "INSERT INTO items(rowid, embedding) VALUES (?, ?)",
            [(row, vector.tobytes()) for row, vector in enumerate(base)],
        )
    statement = f"SELECT rowid, distance FROM items WHERE embedding MATCH ? ORDER BY distance LIMIT {K}"
    yield lambda query: [row for row, _ in connection.execute(statement, [query.tobytes()]).fetchall()]
    connection.close()


@contextmanager
def search_duckdb(base: Vectors, folder: Path) -> Iterator[Search]:
    import duckdb
    import duckdb_extension_vss
    import polars

    folder.mkdir()
    connection = duckdb.connect(str(folder / "items.duckdb"))
    extension = next(Path(duckdb_extension_vss.__file__).parent.glob(f"extensions/v{duckdb.__version__}/*"))
    connection.execute(f"LOAD '{extension}'; SET threads = 1; SET hnsw_enable_experimental_persistence = true")
    vectors = polars.Series(base, dtype=polars.Array(polars.Float32, base.shape[1]))
    items = polars.DataFrame({"id": np.arange(len(base)), "embedding": vectors})  # noqa: F841
    connection.execute("CREATE TABLE items AS SELECT * FROM items")
    connection.execute(
        "CREATE INDEX nearest ON items USING HNSW (embedding) WITH (metric = 'cosine', "
        f"M = {GRAPH['m']}, ef_construction = {GRAPH['ef_construction']})"
    )
    connection.execute(f"SET hnsw_ef_search = {GRAPH['ef_search']}")
    distance = f"array_cosine_distance(embedding, ?::FLOAT[{base.shape[1]}])"
    statement = f"SELECT id, {distance} AS d FROM items ORDER BY d LIMIT {K}"
    yield lambda query: [row for row, _ in connection.execute(statement, [query.tolist()]).fetchall()]
    connection.close()


@contextmanager
def search_pgvector(base: Vectors, _folder: Path) -> Iterator[Search]:
    import psycopg
    from pgvector.psycopg import register_vector

    from ragauge.stores.postgres import resolve_dsn

    connection = psycopg.connect(resolve_dsn(), autocommit=True)
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    register_vector(connection)
    connection.execute("DROP TABLE IF EXISTS store_clients")
    connection.execute(f"CREATE TABLE store_clients (id text PRIMARY KEY, embedding vector({base.shape[1]}))")
    with connection.cursor().copy("COPY store_clients FROM STDIN WITH (FORMAT BINARY)") as copy:
        copy.set_types(["text", "vector"])
        for row, vector in enumerate(base):
            copy.write_row([str(row), vector])
    connection.execute(
        "CREATE INDEX ON store_clients USING hnsw (embedding vector_cosine_ops) "
        f"WITH (m = {GRAPH['m']}, ef_construction = {GRAPH['ef_construction']})"
    )
    connection.execute("ANALYZE store_clients")
    connection.execute(f"SET hnsw.ef_search = {GRAPH['ef_search']}")
    statement = f"SELECT id, embedding <=> %s AS d FROM store_clients ORDER BY d LIMIT {K}"
    yield lambda query: [int(key) for key, _ in connection.execute(statement, [query]).fetchall()]
    connection.execute("DROP TABLE store_clients")
    connection.close()


CLIENTS: dict[str, tuple[dict[str, Any], Callable[[Vectors, Path], Any]]] = {
    "faiss": ({"kind": "flat"}, search_faiss_flat),
    "faiss:hnsw": ({"kind": "hnsw", **GRAPH}, search_faiss_hnsw),
    "faiss:ivf": ({"kind": "ivf", "nlist": 100, "nprobe": 4}, search_faiss_ivf),
    "hnswlib": (GRAPH, search_hnswlib),
    "usearch": (GRAPH, search_usearch),
    "scann": ({"num_leaves": 100}, search_scann),
    "qdrant": (GRAPH, search_qdrant),
    "chroma": (GRAPH, search_chroma),
    "lancedb": ({"index": "ivf_flat", "partitions": 10, "nprobes": 4}, search_lancedb),
    "milvus-lite": ({"index": "flat"}, search_milvus_lite),
    "sqlite-vec": ({}, search_sqlite_vec),
    "duckdb": (GRAPH, search_duckdb),
    "pgvector": (GRAPH, search_pgvector),
}
"""Options and plain client by store; a name after a colon is a kind of index."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", nargs="?", default="clustered:n=10000,d=64", help="as for `ragauge bench`")
    parser.add_argument("--store", action="append", choices=list(CLIENTS), help="only this store; can be repeated")
    parser.add_argument("--rounds", type=int, default=10, help="number of times that each query is timed")
    args = parser.parse_args()
    data = load_vector_set(args.vectors, metric="cosine")
    base, queries = np.asarray(data.base, np.float32), np.asarray(data.queries, np.float32)
    nearest = np.argsort(-(normalise(queries) @ normalise(base).T), axis=1, kind="stable")[:, :K]
    print(f"{len(base):,} vectors of {base.shape[1]} dimensions, {len(queries)} queries, cosine, k = {K}, one thread\n")
    print("| store | ragauge ms | plain client ms | ratio | difference µs | recall | recall of the plain client |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for name in args.store or CLIENTS:
        times, recalls = compare_clients(name, base, queries, nearest, args.rounds)
        ours, plain = times.min(axis=1).mean(axis=1) / 1e6
        print(
            f"| {name} | {ours:.4f} | {plain:.4f} | {ours / plain:.2f} | {1000 * (ours - plain):.1f} "
            f"| {recalls[0]:.4f} | {recalls[1]:.4f} |",
            flush=True,
        )


def compare_clients(
    name: str, base: Vectors, queries: Vectors, nearest: NDArray[np.int64], rounds: int
) -> tuple[NDArray[np.int64], list[float]]:
    """Return times in nanoseconds of shape (2, rounds, queries), ours first, and the recall of both."""
    options, open_client = CLIENTS[name]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store = StoreSpec(name.partition(":")[0], options, "cosine", str(Path(folder) / "store")).open()
        stack.callback(store.close)
        store.add([str(row) for row in range(len(base))], base)
        store.build()
        if "save" in store.abilities:
            store.save()  # as `ragauge bench` does before it searches
        clients = [
            lambda query: store.search(query[None], K)[0][0],
            stack.enter_context(open_client(base, Path(folder) / "plain")),
        ]
        found = [np.array([client(query) for query in queries], dtype=np.int64) for client in clients]
        recalls = [
            float(np.mean([len(set(row) & set(true_row)) / K for row, true_row in zip(rows, nearest, strict=True)]))
            for rows in found
        ]
        times = np.zeros((2, rounds, len(queries)), dtype=np.int64)
        for round_number in range(rounds):
            for start in range(0, len(queries), BLOCK_QUERIES):
                for which in (0, 1) if round_number % 2 else (1, 0):
                    client = clients[which]
                    for row in range(start, min(start + BLOCK_QUERIES, len(queries))):
                        began = time.perf_counter_ns()
                        client(queries[row])
                        times[which, round_number, row] = time.perf_counter_ns() - began
        return times, recalls


if __name__ == "__main__":
    main()
