"""Returned ids that are not in the dataset: the run fails if all are unknown, and otherwise counts them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import ragauge
from command import command_in
from ragauge import Dataset, Document, Judgments, RAGEvaluator, adapt_retriever
from ragauge.core.errors import BadInput
from ragauge.output.csv import render_csv
from ragauge.reports.overview_exports import build_values_table
from ragauge.runs.returned_ids import find_nearest_id

TEXTS = {f"d{i}": f"apple{i} and pear{i}" for i in range(6)}
DATA = Dataset(
    "fruit",
    [Document(name, text) for name, text in TEXTS.items()],
    {f"q{i}": f"apple{i}" for i in range(6)},
    Judgments({f"q{i}": {f"d{i}": 1} for i in range(6)}),
)


def check_unknown_ids_fail_and_map(store) -> None:
    """Run a store that generated its ids: it fails without a mapping and is scored with `metadata.source`."""
    with pytest.raises(BadInput, match=r"store: (\d+) of \1 returned ids are not in the corpus; returned: `") as error:
        ragauge.run(DATA, {"store": store}, k=6, measures=["recall@6"])
    assert error.value.message.endswith("; corpus: `d0`, `d1`, `d2`")
    assert 'adapt_retriever(system, id="metadata.source")' in error.value.hint
    result = ragauge.run(DATA, {"store": adapt_retriever(store, id="metadata.source")}, k=6, measures=["recall@6"])
    assert result.scores["store"].means["recall@6"] == 1.0
    assert "unknown_ids" not in result.runs["store"].manifest


@pytest.mark.slow
def test_run_langchain_store_with_own_ids_raises_until_mapped():
    vectorstores = pytest.importorskip("langchain_core.vectorstores")
    from langchain_core.embeddings import DeterministicFakeEmbedding

    store = vectorstores.InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_texts(list(TEXTS.values()), metadatas=[{"source": name} for name in TEXTS])
    check_unknown_ids_fail_and_map(store.as_retriever())


@pytest.mark.slow
def test_run_llama_index_store_with_own_ids_raises_until_mapped():
    pytest.importorskip("llama_index.core")
    from llama_index.core import VectorStoreIndex
    from llama_index.core.embeddings import MockEmbedding
    from llama_index.core.schema import TextNode

    nodes = [TextNode(text=text, metadata={"source": name}) for name, text in TEXTS.items()]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=4))
    check_unknown_ids_fail_and_map(index.as_retriever())


def test_run_haystack_store_with_own_ids_raises_until_mapped():
    haystack = pytest.importorskip("haystack")
    from haystack.components.retrievers import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore()
    store.write_documents([haystack.Document(content=text, meta={"source": name}) for name, text in TEXTS.items()])
    check_unknown_ids_fail_and_map(InMemoryBM25Retriever(store))


@pytest.mark.slow
def test_run_some_unknown_ids_are_counted_in_table(tmp_path):
    result = ragauge.run(
        DATA, {"mine": lambda q, k: [f"d{q[-1]}", "strange"], "none": lambda q, k: ["d1"]}, out=tmp_path / "x"
    )
    assert result.notes[0].startswith(
        "mine: 6 of 12 returned ids are not in the corpus; returned: `strange`; corpus: `d0`"
    )
    process = command_in(tmp_path)("report", "x")
    speed = process.stdout[process.stdout.index("p50 ms") - 40 :].splitlines()
    assert [line.split()[-1] for line in speed if line.startswith(("mine", "none"))] == ["6", "0"]
    assert "unknown ids" in process.stdout
    csv = render_csv(build_values_table(ragauge.overview(result, audited=False)))
    assert "mine,unknown_ids,6,,,12" in csv
    assert "none,unknown_ids" not in csv


def test_run_ids_that_are_judged_but_not_in_corpus_are_scored():
    partial = Dataset("partial", DATA.documents[5:], DATA.queries, DATA.judgments)
    result = ragauge.run(partial, {"mine": lambda q, k: [f"d{q[-1]}"]}, measures=["recall@5"], max_queries=5)
    assert result.scores["mine"].means["recall@5"] == 1.0
    assert "5 of 5 returned ids are not in the corpus" in result.notes[-1]


@pytest.mark.slow
def test_cli_unknown_ids_fail_until_mapped(tmp_path):
    folder = tmp_path / "fruit"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"_id": k, "text": v}) + "\n" for k, v in TEXTS.items()))
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": k, "text": v}) + "\n" for k, v in DATA.queries.items())
    )
    rows = "".join(f"q{i}\td{i}\t1\n" for i in range(6))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    (tmp_path / "chunks.py").write_text(
        "def search(query, k):\n    return [{'id': f'uuid-{query}', 'metadata': {'source': 'd' + query[-1]}}]\n"
    )
    run = command_in(tmp_path, "run", "fruit", "-m", "mrr", "-o", "x", "-s")
    process = run("mine=chunks:search", code=2)
    assert "mine: 6 of 6 returned ids are not in the corpus; returned: `uuid-apple0`" in process.stderr
    assert "NAME=module:retriever(id=metadata.source)" in process.stderr
    assert not (tmp_path / "x").exists()
    assert "1.0000" in run("mine=chunks:search(id=metadata.source)").stdout
    missing_field = run("mine=chunks:search(id=metadata.page)", code=3)
    assert "has no `metadata.page`; expected an id there, got the fields id, metadata" in missing_field.stderr


def test_run_without_corpus_unjudged_ids_raise():
    pairs = [(f"apple{i}", f"d{i}") for i in range(4)]
    with pytest.raises(BadInput, match="mine: 8 of 8 returned ids are not in the judgments; returned: `") as error:
        ragauge.run(pairs, {"mine": lambda q, k: [f"uuid-{q}", "uuid-0"]}, measures=["recall@5"])
    assert error.value.message.endswith("returned: `uuid-apple0`, `uuid-0`, `uuid-apple1`; judgments: `d0`, `d1`, `d2`")
    assert 'adapt_retriever(system, id="metadata.source")' in error.value.hint
    result = ragauge.run(pairs, {"mine": lambda q, k: ["d1", "uuid-0"]}, measures=["recall@5"])
    assert result.scores["mine"].means["recall@5"] == 0.25


def test_evaluator_unknown_ids_are_noted():
    pairs = [("apple1", "d1"), ("apple2", "d2")]
    metrics = asyncio.run(RAGEvaluator().evaluate(pairs, retrieval_fn=lambda q, k: ["7f3a"]))
    assert "2 of 2 returned ids are not in the judgments; returned: `7f3a`; judgments: `d1`, `d2`" in repr(metrics)
    mapped = adapt_retriever(lambda q, k: [{"id": "7f3a", "source": f"d{q[-1]}"}], id="source")
    metrics = asyncio.run(RAGEvaluator().evaluate(pairs, retrieval_fn=mapped))
    assert (metrics["hit_rate"], metrics.notes) == (1.0, [])


def test_adapt_retriever_function_returns_the_id_of_a_hit():
    def store(query, k):
        return [{"id": "7f3a", "metadata": {"source": "docs/d1.md"}}]

    adapted = adapt_retriever(store, id=lambda hit: hit["metadata"]["source"].rpartition("/")[2].removesuffix(".md"))
    assert [hit.id for hit in adapted.search("?", 5)] == ["d1"]
    with pytest.raises(BadInput, match="a path of fields or a function of a hit, got 3"):
        adapt_retriever(store, id=3)


def test_adapt_retriever_maps_every_shape_of_hit():
    shapes = [
        [({"id": "x", "meta": {"source": "d1"}}, 0.5)],
        [ragauge.Hit("x", 0.5, "", {"source": "d1"})],
        {"documents": [{"id": "x", "metadata": {"source": "d1"}}]},
    ]
    for shape in shapes:
        adapted = adapt_retriever(lambda q, k, shape=shape: shape, id="metadata.source")
        assert [hit.id for hit in adapted.search("?", 5)] == ["d1"]

    async def search_async(query, k):
        return shapes[0]

    result = asyncio.run(adapt_retriever(search_async, id="metadata.source").search("?", 5))
    assert [hit.id for hit in result] == ["d1"]
    with pytest.raises(BadInput, match=r"a hit of type str has no `metadata\.source`"):
        adapt_retriever(lambda q, k: ["d1"], id="metadata.source").search("?", 5)
    for id_path in ("", "metadata.", 3):
        with pytest.raises(BadInput, match="id must be a field"):
            adapt_retriever(search_async, id=id_path)


def test_run_ids_with_folder_prefix_error_names_nearest_id():
    texts = {"bees.md": "bees make honey", "ants.md": "ants carry leaves"}
    data = Dataset(
        "animals", [Document(*item) for item in texts.items()], {"q": "honey"}, Judgments({"q": {"bees.md": 1}})
    )
    hits = [{"page_content": "…", "metadata": {"source": "docs/bees.md"}}]
    with pytest.raises(BadInput, match="1 of 1 returned ids are not in the corpus") as error:
        ragauge.run(data, {"store": lambda query, k: hits})
    assert error.value.message.endswith("; nearest to `docs/bees.md`: `bees.md`")
    assert "pass a function as id" in error.value.hint


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [("docs\\bees.MD", "bees.md"), ("bees", "bees.md"), ("bee.md", "bees.md"), ("7f3a-01", None), ("", None)],
)
def test_find_nearest_id_by_file_name_then_spelling(unknown, nearest):
    assert find_nearest_id(unknown, {"bees.md", "ants.md"}) == nearest


class LangChainLikeRetriever:
    """A retriever with its own k and the interface of LangChain retrievers."""

    def __init__(self, k):
        self.search_kwargs = {"k": k}

    def invoke(self, query):
        return [{"id": f"d{i}"} for i in range(self.search_kwargs["k"])]


def test_run_own_k_of_retriever_is_replaced_and_noted():
    retriever = LangChainLikeRetriever(2)
    result = ragauge.run(DATA, {"store": retriever}, k=4, measures=["recall@4"])
    assert result.runs["store"].table.group_by("query").len()["len"].to_list() == [4] * 6
    assert result.notes == [
        "store: 4 documents per query were requested instead of its own k of 2 (use -k 2 to keep it)"
    ]
    assert ragauge.run(DATA, {"store": retriever}, k=2, measures=["recall@2"]).notes == []
    assert retriever.search_kwargs == {"k": 2}


@pytest.mark.parametrize(
    ("returned", "note"),
    [
        (2, ["store: returned at most 2 documents per query; 4 were requested"]),
        (4, []),
        (6, ["store: returned up to 6 documents per query; 4 were requested, and the first 4 are scored"]),
    ],
)
def test_run_other_number_of_documents_than_requested_is_noted(returned, note):
    async def search_async(query, k):
        return [f"d{i}" for i in range(returned)]

    for system in (lambda query, k: [f"d{i}" for i in range(returned)], search_async):
        assert ragauge.run(DATA, {"store": system}, k=4, measures=["recall@4"]).notes == note


def test_run_corpus_smaller_than_k_has_no_note():
    assert ragauge.run(DATA, {"store": lambda query, k: list(TEXTS)}, measures=["recall@5"]).notes == []


def test_run_k_rule_is_equal_in_help_docs_and_docstring(tmp_path):
    rule = "the largest cutoff of the measures, at least 10"
    page = (Path(__file__).parents[2] / "docs" / "running.md").read_text()
    help_text = " ".join(command_in(tmp_path)("run", "--help").stdout.replace("│", " ").split())
    for text in (page, help_text, str(ragauge.run.__doc__)):
        assert rule in " ".join(text.split())
