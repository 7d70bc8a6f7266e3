"""Fuzzing: mutated files and folders of every format, read by the commands and readers that take them.

    python tests/jobs/fuzz.py 2000 --seed 7      # 2,000 inputs; without a seed, one is chosen and printed
    python tests/jobs/fuzz.py --again 7:123      # one input again, with its traceback; its files are kept

Each input is a valid file or folder with one to three changes, read by one command or reader. Only exceptions of
`ragauge.core.errors` are allowed. The inputs are read in child processes, because a library can abort its process.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gzip
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "helpers"))
GOLDENS = TESTS / "goldens"
SECONDS = 30
"""An input that takes longer fails."""
MEMORY = 12 << 30
"""Bytes of address space: a reader that asks for more fails."""


# --- Seed files ------------------------------------------------------------------------------------------------------


def write_seeds(folder: Path) -> None:
    """Write one small valid example of every format."""
    import numpy as np
    import polars as pl

    from ragauge.files.readers import read_judgments, read_run
    from ragauge.files.samples import SAMPLE_ROW_BUILDERS, read_samples, write_samples
    from ragauge.files.writers import write_judgments, write_run
    from vector_file_writers import write_vectors

    shutil.copytree(GOLDENS / "inputs", folder / "inputs")
    shutil.copytree(GOLDENS / "folders", folder / "folders")
    qrels = "".join((folder / "inputs/qrels.txt").read_text().splitlines(keepends=True)[:40])
    run = "".join((folder / "inputs/bm25.run").read_text().splitlines(keepends=True)[:80])
    (folder / "qrels.txt").write_text(qrels)
    (folder / "a.run").write_text(run)
    judged, ranked = read_judgments(str(folder / "qrels.txt")), read_run(str(folder / "a.run"))
    for ending in ("csv", "tsv", "jsonl", "json", "parquet"):
        write_judgments(judged, str(folder / f"qrels.{ending}"))
        write_run(ranked, str(folder / f"run.{ending}"))
    write_judgments(judged, str(folder / "rig.jsonl"), "rig")
    write_judgments(judged, str(folder / "beir.tsv"), "beir")
    (folder / "bare.tsv").write_text("".join(f"q{i}\td{i}\t1\n" for i in range(9)))
    for name in ("a.run", "qrels.txt"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    (folder / "parts").mkdir()
    for number in range(2):
        pl.read_parquet(folder / "run.parquet").slice(40 * number, 40).write_parquet(
            folder / "parts" / f"part-{number}.parquet"
        )
    (folder / "targets.json").write_text(json.dumps({"d1": ["A", "B"], "d2": "C"}))
    (folder / "targets.csv").write_text("doc_id,target\nd1,A\nd2,B\n")
    (folder / "targets.jsonl").write_text('{"doc_id": "d1", "targets": ["A"]}\n{"doc_id": "d2", "target": "B"}\n')
    (folder / "rules.toml").write_text('rules = ["ndcg@10 >= 0.1", "map not worse"]\nalpha = 0.05\n')
    (folder / "experiment.toml").write_text(
        'dataset = "inputs/kb"\nk = 5\nmeasures = ["mrr", "recall@5"]\n[systems]\nfirst = "bm25"\n'
    )
    (folder / "wide.csv").write_text("query_id,ndcg@10,map\nq1,0.5,0.25\nq2,0.75,1.0\nq3,0.5,\n")
    (folder / "long.csv").write_text(
        "query_id,system,measure,value\nq1,a,map,0.5\nq2,a,map,0.25\nq1,b,map,1\nq2,b,map,0\n"
    )
    report = {"judge": "j", "metrics": [{"metric": "mrr", "per_query": [["q1", 0.5], ["q2", 1.0]]}]}
    (folder / "rig_report.json").write_text(json.dumps(report))
    pl.read_csv(folder / "wide.csv").write_parquet(folder / "wide.parquet")
    samples = read_samples(str(folder / "inputs/samples.jsonl"))
    for form in SAMPLE_ROW_BUILDERS:
        for ending in ("json", "jsonl", "csv", "parquet"):
            with contextlib.suppress(ValueError):
                write_samples(samples, str(folder / f"samples_{form}.{ending}"), form)
    stix = {
        "type": "bundle",
        "id": "bundle--1",
        "objects": [
            {
                "type": "attack-pattern",
                "id": f"attack-pattern--{i}",
                "name": f"Technique {i}",
                "description": f"Adversaries use {i} words.",
                "external_references": [{"source_name": "mitre-attack", "external_id": f"T10{i:02}"}],
                "kill_chain_phases": [{"kill_chain_name": "mitre-attack", "phase_name": "execution"}],
            }
            for i in range(4)
        ]
        + [
            {
                "type": "relationship",
                "id": "relationship--1",
                "relationship_type": "subtechnique-of",
                "source_ref": "attack-pattern--1",
                "target_ref": "attack-pattern--2",
            }
        ],
    }
    (folder / "stix.json").write_text(json.dumps(stix, indent=1))
    (folder / "corpus.csv").write_text("id,title,text\nd1,One,some words\nd2,Two,other words\n")
    (folder / "corpus.tsv").write_text("d1\tsome words\nd2\tother words\n")
    (folder / "corpus.json").write_text(json.dumps([{"id": "d1", "text": "some words"}, {"id": "d2", "text": "more"}]))
    pl.DataFrame({"id": ["d1", "d2"], "text": ["some words", "other words"]}).write_parquet(folder / "corpus.parquet")
    (folder / "papers" / "deep").mkdir(parents=True)
    (folder / "papers" / "one.txt").write_text("some words\n")
    (folder / "papers" / "deep" / "two.md").write_text("# Two\n\nother words\n")
    for name, reply in HTTP_REPLIES.items():
        body = json.dumps(reply).encode()
        head = f"HTTP/1.1 {200 if name != 'error' else 429} OK\r\nContent-Type: application/json\r\n"
        head += f"Retry-After: 1\r\nx-ratelimit-reset-requests: 6m0s\r\nContent-Length: {len(body)}\r\n"
        (folder / f"{name}.http").write_bytes(f"{head}Connection: close\r\n\r\n".encode() + body)
    vectors = np.random.default_rng(0).random((12, 4), np.float32)
    for ending in ("npy", "fvecs", "fbin", "parquet"):
        write_vectors(folder / f"vectors.{ending}", vectors)
    write_vectors(folder / "vectors.ivecs", np.arange(12, dtype=np.int32).reshape(4, 3))
    write_vectors(folder / "vectors.bvecs", np.arange(12, dtype=np.uint8).reshape(4, 3))
    with contextlib.suppress(ImportError):
        from ragauge.store_benchmarks.neighbour_cache import find_exact_neighbours
        from ragauge.store_benchmarks.results import VectorSet
        from vector_file_writers import write_external_hdf5, write_hdf5

        data = VectorSet("toy", vectors, vectors[:3], "l2")
        write_hdf5(folder / "toy-euclidean.hdf5", data, find_exact_neighbours(data, 3))
        write_external_hdf5(folder / "external-euclidean.hdf5", vectors)
        find_exact_neighbours(data, 3, cache=folder / "truths")
    _write_results(folder)
    _write_caches(folder)


HTTP_REPLIES = {
    "embeddings": {
        "object": "list",
        "model": "m",
        "data": [{"object": "embedding", "index": 0, "embedding": [1.0, 2.0]}],
    },
    "chat": {
        "id": "1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    },
    "hits": {"hits": [{"id": "d1", "score": 0.5}, {"id": "d2", "score": 0.25}]},
    "error": {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}},
}
"""Replies of services."""


def _write_results(folder: Path) -> None:
    """Write results of commands as JSON files, which `report` reads."""
    for name, line in {
        "audit": "audit inputs/dirty.jsonl",
        "novelty": "novelty inputs/new.jsonl --known inputs/known.jsonl --embedder words",
        "tokens": "tokenizers inputs/kb -t bytes",
    }.items():
        with contextlib.chdir(folder), contextlib.suppress(Exception):
            call([*line.split(), "-o", f"result_{name}.json"])


def _write_caches(folder: Path) -> None:
    """Write a reply cache, an embedding cache and an unfinished run folder."""
    from ragauge.core.protocols import Reply
    from ragauge.judging.reply_cache import CachedReply, ReplyCache
    from ragauge.models.embedders import CachedEmbedder

    replies = ReplyCache(folder / "replies")
    for number in range(3):
        replies.save(
            f"key{number}", "claims", "q1", CachedReply(Reply("text", 1, 1, 0, "stop", "m", {}, "json"), 0.1, 1)
        )
    replies.close()
    CachedEmbedder(_Letters(), folder / "embeddings").embed(["a", "b", "c"])
    with contextlib.suppress(KeyboardInterrupt):
        run_system(str(folder / "unfinished"), first_document_or_stop)


class _Letters:
    """Embedder with two dimensions: the length of a text and its number of the letter a."""

    name = "letters"
    dimension = 2

    def embed(self, texts: Any) -> Any:
        import numpy as np

        return np.array([[len(text), text.count("a")] for text in texts], np.float32).reshape(len(texts), 2)


# --- Targets ---------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """A seed file, and one command or reader that takes it."""

    seed: str
    use: str | Callable[[str], Any]
    """A command line in which `{}` is the mutated path, or a function of the path."""

    @property
    def weight(self) -> int:
        """Relative frequency of this target: lowest for slow commands."""
        slow = ("audit", "report", "run", "gain", "calibrate", "novelty", "judge")
        return 20 if not isinstance(self.use, str) else 1 if self.use.split()[0] in slow else 10

    @property
    def name(self) -> str:
        return f"{self.use if isinstance(self.use, str) else self.use.__name__} < {self.seed}"


def read_vector_file(path: str) -> None:
    from ragauge.files.vectors import read_vectors

    read_vectors(path)


def read_hdf5_file(path: str) -> None:
    from ragauge.store_benchmarks import ann_benchmarks_hdf5

    ann_benchmarks_hdf5.MAX_SILENCE_S = SECONDS / 2  # so that a hang is reported before the input fails
    ann_benchmarks_hdf5.read_hdf5(path)


def read_foreign_hdf5_file(path: str) -> None:
    """Read an HDF5 file of which a table is stored in another file; the bytes of that file must not be returned."""
    import h5py
    import numpy as np

    from ragauge.core.errors import BadInput

    rng = random.Random(Path(path).read_bytes())
    name = rng.choice(["train", "test", "neighbors"])
    secret = Path(path).with_name("secret")
    with contextlib.suppress(Exception), h5py.File(path, "a") as file:  # a mutated file may be corrupt
        shape, kind = file[name].shape, file[name].dtype
        np.zeros(shape, kind).tofile(secret)
        with h5py.File(secret.with_suffix(".hdf5"), "w") as other:
            other[name] = np.zeros(shape, kind)
        del file[name]
        form = rng.randrange(4)
        if form == 0:
            file.create_dataset(name, shape, kind, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
        elif form == 1:
            file[name] = h5py.ExternalLink(str(secret.with_suffix(".hdf5")), name)
        elif form == 2:
            layout = h5py.VirtualLayout(shape, kind)
            layout[:] = h5py.VirtualSource(str(secret.with_suffix(".hdf5")), name, shape)
            file.create_virtual_dataset(name, layout)
        else:
            file["loop"] = h5py.SoftLink(f"/{name}")
            file[name] = h5py.SoftLink("/loop")
    if secret.exists():
        try:
            read_hdf5_file(path)
        except BadInput:
            return
        raise AssertionError(f"`{name}` was read from another file")


def read_python_objects(path: str) -> None:
    """Score a dictionary with ids of mixed types; one id must not be in two forms, and none may be lost."""
    import ragauge

    try:
        nested = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError):  # of this script: there is no dictionary to score
        return
    if not isinstance(nested, dict) or not all(isinstance(docs, dict) for docs in nested.values()):
        return
    rng = random.Random(Path(path).read_bytes())
    mixed = {
        change_id(query, rng): {change_id(doc, rng): v for doc, v in docs.items()} for query, docs in nested.items()
    }
    judged = ragauge.read_judgments(mixed)
    if len(judged.pool.grades) != sum(map(len, mixed.values())):
        raise AssertionError("judgments were lost")
    scores = ragauge.evaluate(judged, mixed, ["recall@1000"])
    relevant = [query for query, docs in judged.nested.items() if max(docs.values(), default=0) >= 1]
    if any(scores.per_query["recall@1000"][query] != 1 for query in relevant):
        raise AssertionError("a judged document was not found")


def change_id(text: str, rng: random.Random) -> Any:
    """Return another form of an id."""
    digits = text.lstrip("abcdefghijklmnopqrstuvwxyz")
    forms: list[Any] = [text, text, text, f" {text}", f"{text}\t", f"\u00a0{text}", digits, None, float("nan")]
    return rng.choice([*forms, int(digits), float(digits)] if digits.isascii() and digits.isdigit() else forms)


def read_all_rows(path: str) -> None:
    """Read a run; each line of a JSONL file must become a row, or the file must be refused."""
    from ragauge.files.readers import read_run

    n_rows = read_run(path).table.height
    rows = [json.loads(line) for line in Path(path).read_bytes().splitlines() if line.strip()]
    if n_rows != sum(any(value is not None and str(value).strip() for value in row.values()) for row in rows):
        raise AssertionError(f"{n_rows} of {len(rows)} rows were read")


@contextlib.contextmanager
def serving_bytes(path: str) -> Iterator[str]:
    """Answer every request with the bytes of a file."""
    import socket
    import threading

    data = Path(path).read_bytes()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the listener is closed
                return
            with contextlib.suppress(OSError), connection:
                connection.settimeout(5)
                connection.recv(1 << 16)
                connection.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def request_embeddings(path: str) -> None:
    from ragauge.models.embedders.openai import OpenAIEmbedder

    with serving_bytes(path) as url:
        embedder = OpenAIEmbedder("m", url=url)
        with embedder._client.with_options(max_retries=0, timeout=5) as embedder._client:
            embedder.embed(["a"])


def request_chat(path: str) -> None:
    import asyncio

    from ragauge.models.chats import open_chat

    async def ask(url: str) -> None:
        chat = open_chat(f"openai:m@{url}", {})
        try:
            await chat.complete([{"role": "user", "content": "Is it so?"}])
        finally:
            await chat.close()

    with serving_bytes(path) as url:
        asyncio.run(ask(url))


def request_hits(path: str) -> None:
    import asyncio

    from ragauge.systems.adapters import HTTPRetriever

    async def search(url: str) -> None:
        retriever = HTTPRetriever(url, timeout=5)
        try:
            await retriever.search("a", 2)
        finally:
            await retriever.close()

    with serving_bytes(path) as url:
        asyncio.run(search(url))


def read_cached_vectors(path: str) -> None:
    from ragauge.models.embedders import CachedEmbedder

    CachedEmbedder(_Letters(), Path(path)).embed(["a", "b", "new"])


def read_replies(path: str) -> None:
    from ragauge.judging.reply_cache import ReplyCache

    replies = ReplyCache(Path(path))
    try:
        for number in range(4):
            replies.find(f"key{number}")
        replies.total_usage()
    finally:
        replies.close()


def read_truth(path: str) -> None:
    import numpy as np

    from ragauge.store_benchmarks.neighbour_cache import find_exact_neighbours
    from ragauge.store_benchmarks.results import VectorSet

    vectors = np.random.default_rng(0).random((12, 4), np.float32)
    find_exact_neighbours(VectorSet("toy", vectors, vectors[:3], "l2"), 3, cache=Path(path))


_answered = 0


def first_document_or_stop(query: str, k: int) -> list[str]:
    """Answer five queries, then raise KeyboardInterrupt, so that the run stays unfinished."""
    global _answered  # noqa: PLW0603 - the system is a function without other state
    _answered += 1
    if _answered > 5:
        raise KeyboardInterrupt
    return ["d1"]


def run_system(path: str, system: Callable[[str, int], list[str]]) -> None:
    """Run or resume a system in a folder."""
    import ragauge
    from ragauge.core.documents import Document
    from ragauge.core.records import Dataset, Judgments

    documents = [Document(f"d{i}", f"word{i}") for i in range(5)]
    queries = {f"q{i}": f"word{i}" for i in range(9)}
    data = Dataset("toy", documents, queries, Judgments({query: {"d1": 1} for query in queries}))
    ragauge.run(data, {"mine": system}, measures=["mrr"], out=path, warmup=0)


def resume_run(path: str) -> None:
    global _answered  # noqa: PLW0603 - the system is a function without other state
    _answered = -100
    run_system(path, first_document_or_stop)


def read_own_dataset(path: str) -> None:
    from ragauge.datasets import load

    load(path)


def targets() -> Iterator[Target]:
    """Yield every format with each command or reader that takes it."""
    judgments = ["qrels.txt", "qrels.csv", "qrels.tsv", "qrels.jsonl", "qrels.json", "qrels.parquet"]
    judgments += ["rig.jsonl", "beir.tsv", "bare.tsv", "qrels.txt.gz", "inputs/kb"]
    for seed in judgments:
        yield Target(seed, "evaluate {} a.run")
        yield Target(seed, "validate {} a.run")
        yield Target(seed, "convert {} out.tsv --kind qrels")
    yield Target("qrels.jsonl", "audit {} a.run")
    yield Target("qrels.json", read_python_objects)
    yield Target("run.jsonl", read_all_rows)
    for ties in ("trec", "ranked", "expected"):
        yield Target("a.run", f"evaluate qrels.txt {{}} -C default,ties={ties} -m ndcg@10 -m mrr -m map")
    runs = ["a.run", "run.csv", "run.tsv", "run.jsonl", "run.json", "run.parquet", "parts", "a.run.gz"]
    for seed in [*runs, "folders/run/bm25"]:
        yield Target(seed, "evaluate qrels.txt {} -m ndcg@10 -m map --csv -q")
        yield Target(seed, "compare qrels.txt a.run {}")
        yield Target(seed, "validate qrels.txt {}")
        yield Target(seed, "convert {} out.jsonl --kind run")
        yield Target(seed, "fuse {} a.run -o out.run")
        yield Target(seed, "gate qrels.txt {} -r mrr>=0")
        yield Target(seed, "k-range qrels.txt {}")
    for use in ("evaluate {}", "compare {}", "report {}", "audit {}", "gate {}/bm25 -r mrr>=0"):
        yield Target("folders/run", use)
    yield Target("folders/run", "k-range {}")
    yield Target("folders/run", "report {} --json")
    yield Target("folders/bench", "report {}")
    yield Target("folders/bench/benchmark.json", "report {}")
    for use in ("report {}", "compare {} folders/judged_b", "gate {} -r faithfulness>=0", "validate {}", "evaluate {}"):
        yield Target("folders/judged", use)
    for name in ("audit", "novelty", "tokens"):
        yield Target(f"result_{name}.json", "report {}")
    for ending in ("txt", "json", "csv", "jsonl"):
        seed = f"targets.{ending}" if ending != "txt" else "inputs/targets.txt"
        yield Target(seed, "evaluate qrels.txt a.run --targets {} -m dr@10")
    yield Target("inputs/tags.csv", "compare qrels.txt a.run inputs/dense.run --tags {} --by complexity")
    yield Target("rules.toml", "gate qrels.txt a.run -b inputs/dense.run --rules {}")
    yield Target("experiment.toml", "run {} --max-queries 1 --out out")
    for seed in ("wide.csv", "long.csv", "rig_report.json", "wide.parquet"):
        yield Target(seed, "compare {} wide.csv")
        yield Target(seed, "gate {} -r map>=0")
    for name in ("ragauge.jsonl", "ragauge.csv", "ragauge.parquet", "ragas.json", "ragas.csv", "deepeval.json"):
        seed = f"samples_{name}"
        yield Target(seed, "judge {} --chat lexical -m faithfulness --json")
        yield Target(seed, "convert {} out.json --kind samples")
        yield Target(seed, "validate {}")
    yield Target("inputs/labelled.jsonl", "calibrate {} --chat lexical")
    yield Target("stix.json", "evaluate {} a.run")
    yield Target("stix.json", read_own_dataset)
    corpora = ["corpus.csv", "corpus.tsv", "corpus.json", "corpus.parquet", "inputs/dirty.jsonl", "papers", "inputs/kb"]
    for seed in corpora:
        yield Target(seed, "audit --corpus {}")
        yield Target(seed, "novelty {} --known inputs/known.jsonl --embedder words")
        yield Target(seed, "tokenizers {} -t bytes")
    yield Target("inputs/kb", "run {} -s bm25 --out out --warmup 0")
    yield Target("inputs/kb", "gain --before inputs/known.jsonl --add inputs/new.jsonl --dataset {} -s bm25")
    yield Target("inputs/new.jsonl", "gain --before inputs/known.jsonl --add {} --dataset inputs/kb -s bm25")
    for ending in ("npy", "fvecs", "fbin", "ivecs", "bvecs", "parquet"):
        yield Target(f"vectors.{ending}", read_vector_file)
    yield Target("toy-euclidean.hdf5", read_hdf5_file)
    yield Target("external-euclidean.hdf5", read_hdf5_file)
    yield Target("toy-euclidean.hdf5", read_foreign_hdf5_file)
    for reply, use in (("embeddings", request_embeddings), ("chat", request_chat), ("hits", request_hits)):
        yield Target(f"{reply}.http", use)
        yield Target("error.http", use)
    yield Target("truths", read_truth)
    yield Target("embeddings", read_cached_vectors)
    yield Target("replies", read_replies)
    yield Target("unfinished", resume_run)


# --- Mutators --------------------------------------------------------------------------------------------------------

DEEP = "[" * 3000 + "]" * 3000
TOKENS = [
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\r", b"\r\n", b"\n\n", b"\t", b'"', b"'", b"\\", b",", b";", b"\xef\xbb\xbf",
    b"NaN", b"inf", b"-1", b"1e999", b"1e-400", b"9" * 25, b"9" * 400, b"9" * 5000, b"-0", b"0x10", b"1_000", b"null",
    b"true", b"{}", b"[]", b'""', b'"\\ud800"', b"\\udfff", "é".encode(), "\u2028".encode(), b"\x1b[31m", b"=1+1", b"#",
    DEEP.encode(), b'{"a":' * 2000, b"x" * 70_000, b" ", b"%s", b"..", b"/", b"\x1f\x8b", b"PAR1", b"PK\x03\x04",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, -(2**63) - 1, 2**70, 10**250, 0.5, -1.5, 1e308, float("nan"), float("inf"),
    "", " ", "x", "1", "nan", "\ud800", "\x00", "q1", "a" * 3000,
    [], {}, [1], ["a", None], [[]], [{}], {"a": 1}, {"": None}, {"\ud800": 1},
]  # fmt: skip


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Change some bytes of a file."""
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(9)
    if kind == 0 and data:
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at + rng.randrange(1, 40) :]
    if kind == 3:
        token = rng.choice(TOKENS)
        return data[:at] + token + data[at:]
    if kind == 4:
        token = rng.choice(TOKENS)
        return data[:at] + token + data[at + len(token) :]
    if kind == 5:
        other = rng.randrange(len(data) + 1)
        begin, end = min(at, other), max(at, other)
        return data[:end] + data[begin:end] + data[end:]
    if kind == 6:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9))).join([data[:at], data[at:]])
    if kind == 7 and len(data) > 4:
        at = rng.randrange(len(data) - 3)
        return (
            data[:at]
            + rng.choice([b"\xff" * 4, b"\x00" * 4, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80"])
            + data[at + 4 :]
        )
    return rng.choice(
        [b"", b"\n", b"\x00" * 100, b"{", b"[]", b"{}", b"null", b"\xff" * 50, gzip.compress(data), *TOKENS]
    )


def change_lines(data: bytes, rng: random.Random) -> bytes:
    """Change whole lines or cells of a text."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(7)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif kind == 2:
        rng.shuffle(lines)
    elif kind == 3:
        lines[at] = b""
    elif kind == 4:
        lines[at] += lines[at - 1]
    else:
        mark = rng.choice([b"\t", b",", b" "])
        cells = lines[at].split(mark)
        cells[rng.randrange(len(cells))] = rng.choice(TOKENS)
        lines[at] = mark.join(cells)
    return b"\n".join(lines)


def change_json(data: bytes, rng: random.Random) -> bytes:
    """Change one value of a JSON file, or of one line of a JSON Lines file."""
    try:
        return dump(replace_value(json.loads(data), rng))
    except (ValueError, RecursionError):
        pass
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        lines[at] = dump(replace_value(json.loads(lines[at]), rng))
    except (ValueError, RecursionError):
        return change_bytes(data, rng)
    return b"\n".join(lines)


ROW_NAMES = [
    *(
        "query_id",
        "qid",
        "topic",
        "doc_id",
        "docno",
        "Doc_ID",
        "pid",
        "score",
        "Score",
        "distance",
        "rank",
        "relevance",
    ),
    *("label", "grade", "subtopic", "text"),
]


def change_names(data: bytes, rng: random.Random) -> bytes:
    """Rename a column in some rows of a JSON Lines file."""
    lines = data.split(b"\n")
    new_name, begin = rng.choice(ROW_NAMES), rng.randrange(len(lines))
    for at in range(begin, len(lines)):
        try:
            row = json.loads(lines[at])
            name = rng.choice(list(row))
            lines[at] = dump({new_name if key == name else key: value for key, value in row.items()})
        except (ValueError, TypeError, IndexError, AttributeError, RecursionError):
            continue
        if rng.random() < 0.5:
            break
    return b"\n".join(lines)


def change_ids(data: bytes, rng: random.Random) -> bytes:
    """Write some ids of a JSON or JSON Lines file as numbers, or with blanks around them."""
    lines = data.split(b"\n")
    for at in rng.sample(range(len(lines)), min(3, len(lines))):
        texts = [(match.start(), match.end()) for match in re.finditer(rb'"[a-z]{0,2}\d+"', lines[at])]
        if texts:
            begin, end = rng.choice(texts)
            text = lines[at][begin + 1 : end - 1]
            number = text.lstrip(b"abcdefghijklmnopqrstuvwxyz")
            form = rng.choice([b'" %b"' % text, b'"%b\\t"' % text, b'"%b"' % number, number, number + b".0", b"null"])
            lines[at] = lines[at][:begin] + form + lines[at][end:]
    return b"\n".join(lines)


def deepen_ties(data: bytes, rng: random.Random) -> bytes:
    """Append thousands of documents with one score to a run file."""
    query, score = (data.split() or [b"q1"])[0], rng.choice([b"0", b"1e-320", b"-inf", b"12.5"])
    order = list(range(rng.choice([100, 3000, 20_000])))
    if rng.random() < 0.5:
        rng.shuffle(order)
    return data + b"".join(b"%b Q0 d%d 1 %b t\n" % (query, number, score) for number in order)


HEADERS = [
    *(b"Retry-After: " + value for value in (b"9" * 20_000, b"-1", b"nan", b"inf", b"1e400", b"x" * 60_000)),
    *(b"Retry-After: " + value for value in (b"Fri, 31 Dec 9999 23:59:59 GMT", b"Fri, 31 Feb 0000 99:99:99 +9999")),
    *(b"x-ratelimit-reset-requests: " + value for value in (b"9" * 20_000 + b"s", b"1h" * 9999, b"-5ms", b"1e9999s")),
    *(b"retry-after-ms: " + value for value in (b"9" * 400, b"-nan", b"\xff\xfe", b"")),
    *(b"Content-Length: " + value for value in (b"9" * 30, b"-1", b"0", b"7, 7", b"0x10")),
    *(b"Content-Type: " + value for value in (b"text/html; charset=utf-7", b"application/json; charset=nope", b"\xff")),
    *(b"Content-Encoding: " + value for value in (b"gzip", b"br", b"zstd", b"gzip, gzip, gzip", b"nope")),
    *(b"Location: " + value for value in (b"http://169.254.169.254/", b"file:///etc/passwd", b"//[::1")),
    *(b"Set-Cookie: " + value for value in (b"a=" + b"b" * 50_000, b"sk-" * 20_000)),
    *(b"Transfer-Encoding: chunked", b"x: \x1b[31m", b": no name", b"no colon", b" folded", b"x" * 70_000 + b": y"),
    b"\r\n".join(b"x-%d: y" % number for number in range(3000)),
]


def change_headers(data: bytes, rng: random.Random) -> bytes:
    """Add hostile headers to a reply of a service, or change its status or repeat its body."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    kind = rng.randrange(8)
    if kind == 0:
        first = b"HTTP/1.1 " + rng.choice([b"200", b"302", b"429", b"500", b"999", b"-1", b"", b"1" * 5000]) + b" x"
    elif kind == 1:
        body *= rng.choice([2, 5000]) if len(body) < 1000 else 2
        headers = [header for header in headers if not header.startswith(b"Content-Length")]
    else:
        header = rng.choice(HEADERS)
        name = header.split(b":")[0].lower()
        headers = [other for other in headers if other.split(b":")[0].lower() != name or rng.random() < 0.2]
        headers.insert(rng.randrange(len(headers) + 1), header)
        if kind < 5:
            first = b"HTTP/1.1 429 Too Many Requests"
    return b"\r\n".join([first, *headers]) + b"\r\n\r\n" + body


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def replace_value(value: Any, rng: random.Random) -> Any:
    """Replace, remove, rename or duplicate one value at a random depth."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if kind < 0.2:
            return {
                **{name: one for name, one in value.items() if name != key},
                rng.choice(["", "x", key.upper()]): value[key],
            }
        return {**value, key: replace_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.1:
            return value[:at] + value[at + 1 :]
        if kind < 0.2:
            return [*value, value[at]]
        return [*value[:at], replace_value(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)


def change_parquet(data: bytes, rng: random.Random) -> bytes:
    """Write a valid Parquet file with other columns, types or values."""
    import io

    import polars as pl

    try:
        table = pl.read_parquet(data)
        name = rng.choice(table.columns)
        kind = rng.randrange(9)
        if kind == 0:
            table = table.drop(name)
        elif kind == 7:
            pad = pl.when(pl.int_range(pl.len()) % rng.choice([1, 2, 7]) == 0).then(pl.lit(rng.choice([" ", "\t"])))
            table = table.with_columns((pl.col(name).cast(pl.String) + pad.otherwise(pl.lit(""))).alias(name))
        elif kind == 8:
            table = table.with_columns(pl.col(name).cast(pl.String).cast(pl.Categorical).alias(name))
        elif kind == 1:
            table = table.rename({name: rng.choice(["", "x", name.upper(), "score", "rank"])})
        elif kind == 2:
            table = table.with_columns(pl.lit(None).alias(name))
        elif kind == 3:
            table = table.with_columns(
                pl.lit(rng.choice(["", "x", 1, -1.5, float("nan"), True, b"\xff", 2**62])).alias(name)
            )
        elif kind == 4:
            table = table.head(0)
        elif kind == 5:
            table = table.with_columns(pl.concat_list(pl.col(name)).alias(name))
        else:
            table = table.with_columns(pl.struct(pl.col(name)).alias(name))
        out = io.BytesIO()
        table.write_parquet(out)
        return out.getvalue()
    except BaseException:  # this mutation is impossible (polars may panic): change bytes instead
        return change_bytes(data, rng)


def mutate_file(path: Path, rng: random.Random) -> None:
    """Change a file in one to three places."""
    data = path.read_bytes()
    for _ in range(rng.choice([1, 1, 2, 3])):
        choices: list[Callable[[bytes, random.Random], bytes]] = [change_bytes]
        if path.suffix in (".json", ".jsonl"):
            choices += [change_json] * 2 + [change_lines, change_names, change_ids]
        elif path.suffix == ".http":
            choices += [change_headers] * 4
        elif path.suffix in (".parquet",):
            choices += [change_parquet]
        elif path.suffix in (".csv", ".tsv", ".txt", ".run", ".toml", ".md"):
            choices += [change_lines] + [deepen_ties] * (path.suffix == ".run")
        data = rng.choice(choices)(data, rng)
    path.write_bytes(data)


def mutate_folder(folder: Path, rng: random.Random) -> None:
    """Change a file of a folder, or remove, replace or add one."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    path = rng.choice(files)
    kind = rng.randrange(12)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        path.unlink()
        path.mkdir()
    elif kind == 2:
        path.unlink()
        path.symlink_to("nowhere")
    elif kind == 3:
        path.write_bytes(rng.choice(files).read_bytes())
    elif kind == 4 and path.parent != folder:
        shutil.rmtree(path.parent)
        path.parent.write_bytes(b"a file")
    else:
        mutate_file(path, rng)


# --- Running ---------------------------------------------------------------------------------------------------------

_COMMANDS: dict[str, Any] = {}


def call(words: list[str]) -> None:
    """Run a command in this process and let its exceptions pass."""
    from ragauge.cli.app import load_command
    from ragauge.cli.failures import CarriedException

    command = _COMMANDS.get(words[0])
    if command is None:
        command = _COMMANDS[words[0]] = load_command(words[0])
    try:
        command.main(words[1:], prog_name=f"ragauge {words[0]}", standalone_mode=False)
    except CarriedException as passed:
        raise passed.__cause__ or passed from None


def is_allowed(error: BaseException) -> bool:
    """Return whether ragauge may raise this error; errors of Typer are those of command-line options."""
    from ragauge.core.errors import RagaugeError

    return isinstance(error, RagaugeError) or type(error).__module__.startswith(("typer", "click"))


def try_input(seeds: Path, place: Path, seed: int, index: int) -> tuple[str, BaseException | None]:
    """Create and read one input; return the name of its target and the exception that is not allowed, if any."""
    rng = random.Random(f"{seed}:{index}")
    target = choose_target(rng)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    source, path = seeds / target.seed, place / Path(target.seed).name
    if source.is_dir():
        shutil.copytree(source, path)
        mutate_folder(path, rng)
    else:
        shutil.copy(source, path)
        mutate_file(path, rng)
    for name in ("out", "out.run", "out.tsv", "out.json", "out.jsonl"):
        shutil.rmtree(seeds / name, ignore_errors=True)
        (seeds / name).unlink(missing_ok=True)
    try:
        if isinstance(target.use, str):
            call([word.replace("{}", str(path)) for word in target.use.split()])
        else:
            target.use(str(path))
    except BaseException as error:
        return target.name, None if is_allowed(error) else error
    return target.name, None


TARGETS = list(targets())
WEIGHTS = [target.weight for target in TARGETS]


def choose_target(rng: random.Random) -> Target:
    return rng.choices(TARGETS, WEIGHTS)[0]


def work(seeds: Path, seed: int, first: int, last: int, step: int) -> None:
    """Try every `step`-th input; write a JSON line before each input, and one after each failure."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, 1)
    os.dup2(null_device, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()
    signal.signal(signal.SIGALRM, _raise_timeout)
    place = Path(tempfile.mkdtemp(prefix="fuzz-", dir=seeds.parent))
    os.chdir(seeds)
    for index in range(first, last, step):
        out.write(json.dumps({"begin": index}) + "\n")
        signal.alarm(SECONDS)
        name, error = try_input(seeds, place / "in", seed, index)
        signal.alarm(0)
        if error is not None:
            stack = "".join(traceback.format_exception(error))
            out.write(
                json.dumps({"index": index, "target": name, "error": repr(error)[:300], "traceback": stack}) + "\n"
            )
    shutil.rmtree(place)


def _raise_timeout(*_: Any) -> None:
    raise TimeoutError(f"it took more than {SECONDS} s")


class Failure(NamedTuple):
    """An input that raised an exception that is not allowed, or ended the process."""

    index: int
    target: str
    error: str
    traceback: str


def fuzz(n: int, seed: int, *, first: int = 0, processes: int | None = None) -> list[Failure]:
    """Try inputs in child processes; return those that failed."""
    from concurrent.futures import ThreadPoolExecutor

    processes = processes or min(os.cpu_count() or 1, 8)
    with tempfile.TemporaryDirectory(prefix="ragauge-fuzz-") as folder:
        subprocess.run(
            [sys.executable, __file__, "--write-seeds", str(Path(folder, "seeds"))],
            check=True, env=_environment(Path(folder)), capture_output=True,
        )  # fmt: skip
        for number in range(processes):
            Path(folder, str(number)).mkdir()
            shutil.copytree(Path(folder, "seeds"), Path(folder, str(number), "seeds"))
        with ThreadPoolExecutor(processes) as pool:
            futures = [
                pool.submit(_run_child, Path(folder, str(number)), seed, first + number, first + n, processes)
                for number in range(processes)
            ]
            return sorted(failure for future in futures for failure in future.result())


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "RAGAUGE_CACHE": str(folder / "cache"), "POLARS_MAX_THREADS": "1", "NO_COLOR": "1"}


def _run_child(folder: Path, seed: int, first: int, last: int, step: int) -> list[Failure]:
    """Try every `step`-th input in a child process; if it dies, the input failed and a new child continues."""
    failures: list[Failure] = []
    next_index = first
    while next_index < last:
        words = ["--work", str(folder / "seeds"), str(seed), str(next_index), str(last), str(step)]
        current_index = None
        with subprocess.Popen(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, env=_environment(folder)
        ) as child:
            for line in child.stdout or ():
                event = json.loads(line)
                current_index = event.get("begin", current_index)
                if "index" in event:
                    failures.append(Failure(**event))
        if child.returncode == 0:
            break
        if current_index is None:
            raise RuntimeError("the child process could not start")
        target = choose_target(random.Random(f"{seed}:{current_index}")).name
        failures.append(Failure(current_index, target, f"the process ended with {child.returncode}", ""))
        next_index = current_index + step
    return failures


def repeat_input(text: str) -> None:
    """Try the input `SEED:INDEX` again in this process and print its traceback."""
    seed, index = map(int, text.split(":"))
    folder = Path(tempfile.mkdtemp(prefix="ragauge-fuzz-"))
    os.environ.update(_environment(folder))
    write_seeds(folder / "seeds")
    os.chdir(folder / "seeds")
    sys.stderr.write(f"files: {folder / 'in'}\n")
    name, error = try_input(folder / "seeds", folder / "in", seed, index)
    sys.stderr.write(f"{name}\n")
    if error is not None:
        traceback.print_exception(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", nargs="?", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--again", default=None)
    parser.add_argument("--write-seeds", default=None)
    parser.add_argument("--work", nargs=5, default=None)
    options = parser.parse_args()
    if options.work:
        work(Path(options.work[0]), *map(int, options.work[1:]))
        return 0
    if options.write_seeds:
        write_seeds(Path(options.write_seeds))
        return 0
    if options.again:
        repeat_input(options.again)
        return 0
    seed = int(time.time()) if options.seed is None else options.seed
    began = time.monotonic()
    failures = fuzz(options.n, seed, processes=options.processes)
    kinds = Counter((failure.target, failure.error[:100]) for failure in failures)
    for (target, error), count in kinds.most_common():
        first = next(failure for failure in failures if (failure.target, failure.error[:100]) == (target, error))
        last_frames = "".join(first.traceback.splitlines(keepends=True)[-5:])
        sys.stdout.write(f"{count}x {target}: {error}\n  --again {seed}:{first.index}\n{last_frames}\n")
    seconds = time.monotonic() - began
    sys.stdout.write(f"seed {seed}: {options.n:,} inputs, {len(failures)} failed, {seconds:.0f} s\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
