"""One example of every kind of input, and the commands that take inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from ragauge.audits.audit import audit
from ragauge.core.records import Dataset, Judgments
from ragauge.experiments.run import run
from ragauge.judging.judge import judge
from ragauge.reports.overviews import report

TOPICS = ["bees", "honey", "flowers", "wings", "hives", "stings"]
DOCUMENTS = {
    f"d{i}": f"A document about {topic} and the {topic} of {TOPICS[i - 1]}, number {i}."
    for i, topic in enumerate(TOPICS)
}
QUERIES = {f"q{i}": f"What is known about {topic}?" for i, topic in enumerate(TOPICS)}
GRADES = {query: {f"d{i}": 1} for i, query in enumerate(QUERIES)}
CORPUS_ROWS = [{"_id": name, "text": text} for name, text in DOCUMENTS.items()]
CORPUS_INPUTS = (
    "corpus.jsonl", "corpus.ndjson", "corpus.csv", "corpus.tsv", "corpus.json", "corpus.parquet",
    "texts_md", "texts_rst", "texts_txt", "page.md",
)  # fmt: skip
"""The same corpus in every format; `page.md` is its first document."""
INPUTS = (
    "bm25.run", "run.json", "experiment/bm25", "experiment", "unfinished", "qrels.txt", "beir", *CORPUS_INPUTS,
    "queries.jsonl", "scores.csv", "samples.jsonl", "judged", "vectors.npy",
    "result.json", "empty.txt", "missing.run",
)  # fmt: skip
COMMANDS = {
    "evaluate RUN": "evaluate qrels.txt {} --json",
    "evaluate QRELS": "evaluate {} bm25.run --json",
    "evaluate ALL": "evaluate {} --json",
    "compare": "compare {} --json",
    "compare RUN": "compare qrels.txt {} experiment/reversed --json",
    "k-range": "k-range {} --json",
    "gate QRELS": "gate {} bm25.run -r mrr>0.01 --json",
    "gate": "gate {} -r mrr>0.01 --json",
    "audit": "audit {} --check ties --json",
    "audit RUN": "audit qrels.txt {} --check ties --json",
    "audit CORPUS": "audit qrels.txt bm25.run --corpus {} --check unjudged --json",
    "fuse": "fuse {} bm25.run -o out.run",
    "report": "report {} -o out.json",
    "validate": "validate {} --strict",
    "validate CORPUS": "validate qrels.txt --corpus {}",
    "convert": "convert {} out.jsonl",
    "judge": "judge {} --json",
    "novelty": "novelty {} --known corpus.jsonl -e words --json",
    "novelty KNOWN": "novelty corpus.jsonl --known {} -e words --json",
    "gain BEFORE": "gain --dataset beir --before {} --add page.md --json -e words",
    "gain ADD": "gain --dataset beir --add {} --json -e words",
    "tokenizers": "tokenizers {} -t bytes --json",
    "run": "run {} -s bm25 --json --warmup 0 -o out",
    "calibrate": "calibrate {} --json",
}
"""Command lines by slot; `{}` stands for the input."""


def write_inputs(folder: Path) -> Path:
    """Write one example of every input to a folder."""
    rows = "".join(json.dumps(row) + "\n" for row in CORPUS_ROWS)
    (folder / "corpus.jsonl").write_text(rows)
    (folder / "corpus.ndjson").write_text(rows)
    (folder / "corpus.json").write_text(json.dumps(CORPUS_ROWS))
    pl.DataFrame(CORPUS_ROWS).write_csv(folder / "corpus.csv")
    pl.DataFrame(CORPUS_ROWS).write_parquet(folder / "corpus.parquet")
    (folder / "corpus.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in DOCUMENTS.items()))
    for ending in ("md", "rst", "txt"):
        (folder / f"texts_{ending}").mkdir()
        for name, text in DOCUMENTS.items():
            (folder / f"texts_{ending}" / f"{name}.{ending}").write_text(text)
    (folder / "page.md").write_text(DOCUMENTS["d0"])
    queries = "".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in QUERIES.items())
    (folder / "queries.jsonl").write_text(queries)
    (folder / "qrels.txt").write_text("".join(f"{query} 0 d{i} 1\n" for i, query in enumerate(QUERIES)))
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_text(rows)
    (beir / "queries.jsonl").write_text(queries)
    qrels = "".join(f"{query}\td{i}\t1\n" for i, query in enumerate(QUERIES))
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}")
    dataset = Dataset("small", [], QUERIES, Judgments(GRADES))
    result = run(
        dataset,
        {"bm25": _search, "reversed": _search_reversed},
        measures=["mrr"],
        out=folder / "experiment",
        k=3,
        warmup=0,
    )
    (folder / "unfinished").mkdir()
    (folder / "unfinished" / "journal.jsonl").write_text("{}\n")
    nested = result.runs["bm25"].nested
    (folder / "run.json").write_text(json.dumps(nested))
    lines = [
        f"{query} Q0 {doc} {rank} {score} bm25\n"
        for query, docs in nested.items()
        for rank, (doc, score) in enumerate(docs.items(), 1)
    ]
    (folder / "bm25.run").write_text("".join(lines))
    scores = [f"bm25,{query},mrr,0.5\n" for query in QUERIES]
    (folder / "scores.csv").write_text("system,query,measure,value\n" + "".join(scores))
    samples = [
        {
            "id": query,
            "question": text,
            "answer": DOCUMENTS[f"d{i}"],
            "contexts": [DOCUMENTS[f"d{i}"]],
            "labels": {"faithfulness": i % 2},
        }
        for i, (query, text) in enumerate(QUERIES.items())
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    judge(str(folder / "samples.jsonl"), ["faithfulness"], chat="lexical", folder=folder / "judged")
    np.save(folder / "vectors.npy", np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32))
    (folder / "empty.txt").write_text("")
    report(audit(documents=folder / "corpus.jsonl"), folder / "result.json")
    return folder


def _search(query: str, k: int) -> list[str]:
    first = TOPICS.index(query.rstrip("?").rsplit(" ", 1)[1])
    return [f"d{(first + i) % len(TOPICS)}" for i in range(k)]


def _search_reversed(query: str, k: int) -> list[str]:
    return _search(query, k)[::-1]
