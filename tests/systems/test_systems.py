"""Built-in retrievers: BM25 against its formula, dense against NumPy, and hybrid, reranked and filtered retrieval."""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput, RagaugeError
from ragauge.core.protocols import Retriever, is_async
from ragauge.core.stages import StageTimer, stage
from ragauge.fusion.query_fusion import fuse_query
from ragauge.stores.reference import ExactStore
from ragauge.systems.bm25 import find_top_k
from ragauge.systems.dense import DenseRetriever
from ragauge.systems.pipelines import FilteredRetriever, HybridRetriever, RerankingPipeline

WORDS = ["apple", "banana", "cherry", "grape", "lemon", "mango", "olive", "peach"]


def documents(*texts: str) -> list[Document]:
    return [Document(f"d{i}", text) for i, text in enumerate(texts)]


def bm25(docs, **options):
    pytest.importorskip("bm25s")
    pytest.importorskip("Stemmer")
    from ragauge.systems.bm25 import BM25

    return BM25(docs, **options)


def ids(hits) -> list[str]:
    return [hit.id for hit in hits]


class Hashing:
    """Embedder that counts words by the sum of their bytes: 16 dimensions, deterministic, without a library."""

    name = "hashing"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def embed(self, texts):
        self.batches.append(list(texts))
        vectors = np.zeros((len(texts), 16), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                vectors[row, sum(word.encode()) % 16] += 1
        return vectors


class FixedRetriever:
    """Retriever that returns fixed hits for every query and records the depths; async on request."""

    def __init__(self, hits, *, asynchronous: bool = False) -> None:
        self.hits = hits
        self.asynchronous = asynchronous
        self.depths: list[int] = []

    def search(self, query, k):
        self.depths.append(k)
        return self._later(k) if self.asynchronous else self.hits[:k]

    async def _later(self, k):
        with stage("retrieve"):
            await asyncio.sleep(0)
        return self.hits[:k]


class BrokenRetriever:
    def search(self, query, k):
        raise RuntimeError("the index is gone")


class BrokenAsyncRetriever:
    async def search(self, query, k):
        raise RuntimeError("the server is gone")


# BM25 -------------------------------------------------------------------------------------------------------------


def lucene_scores(texts: list[str], query: str, k1: float, b: float) -> list[float]:
    """Compute Lucene's BM25, ln(1 + (N - n + 0.5) / (n + 0.5)) * tf / (tf + norm), in double precision."""
    documents_words = [text.split() for text in texts]
    mean = sum(map(len, documents_words)) / len(documents_words)
    scores = []
    for words in documents_words:
        counts, score = Counter(words), 0.0
        for word in query.split():
            document_count = sum(word in other_words for other_words in documents_words)
            if counts[word]:
                idf = math.log(1 + (len(documents_words) - document_count + 0.5) / (document_count + 0.5))
                score += idf * counts[word] / (counts[word] + k1 * (1 - b + b * len(words) / mean))
        scores.append(score)
    return scores


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join), min_size=1, max_size=8),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    st.sampled_from([(0.9, 0.4), (1.2, 0.75), (2.0, 0.0), (0.5, 1.0)]),
)
def test_bm25_matches_lucene_formula(texts, query, parameters):
    k1, b = parameters
    found = bm25([Document(str(i), text) for i, text in enumerate(texts)], k1=k1, b=b).search(query, len(texts))
    expected = lucene_scores(texts, query, k1, b)
    assert {hit.id for hit in found} == {str(i) for i, score in enumerate(expected) if score > 0}
    for hit in found:
        assert hit.score == pytest.approx(expected[int(hit.id)], rel=1e-5)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


def test_bm25_repeated_query_word_doubles_score():
    system = bm25(documents("apple lemon", "lemon", "mango"))
    (once,), (twice,) = system.search("apple", 1), system.search("apple apple", 1)
    assert twice.score == pytest.approx(2 * once.score)


def test_bm25_ties_keep_document_order():
    system = bm25(documents("apple", "mango", "apple", "apple", "lemon", "apple"))
    assert ids(system.search("apple", 10)) == ["d0", "d2", "d3", "d5"]
    assert ids(system.search("apple", 2)) == ["d0", "d2"]


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 14))
def test_find_top_k_matches_stable_sort(scores, k):
    expected = sorted(range(len(scores)), key=lambda i: -scores[i])[:k]
    assert find_top_k(np.array(scores, np.float32), k).tolist() == expected


@pytest.mark.parametrize("query", ["", "   ", "?!", "the of and", "zebra", "zebra unicorn"])
def test_bm25_query_without_known_words_returns_no_hits(query):
    assert bm25(documents("apple lemon", "the mango")).search(query, 5) == []


@pytest.mark.parametrize("docs", [[], documents(""), documents("", "the of", "?!")])
def test_bm25_corpus_without_words_returns_no_hits(docs):
    system = bm25(docs)
    assert system.search("apple", 5) == []
    assert system.search("nothing", 5) == []


def test_bm25_stems_words_and_ignores_case():
    system = bm25(documents("Running quickly", "a run", "runs", "lemon"))
    assert ids(system.search("RUNNING", 5)) == ["d1", "d2", "d0"], "shorter documents have higher scores"
    french = bm25(documents("les chats dorment", "the dogs"), language="french")
    assert ids(french.search("chat", 5)) == ["d0"]
    assert ids(french.search("the", 5)) == ["d1"], "English stop words must not apply"


def test_bm25_single_letters_and_digits_are_words():
    system = bm25(documents("the C language", "python 3", "java"))
    assert ids(system.search("c", 5)) == ["d0"]
    assert ids(system.search("3", 5)) == ["d1"]


def test_bm25_title_repeated_in_text_is_counted_once():
    titled = [Document("a", "about files", "pathlib"), Document("b", "pathlib about files", "pathlib")]
    first, second = bm25(titled).search("pathlib", 5)
    assert (first.id, first.score) == ("a", second.score)
    assert first.text == "about files"


@pytest.mark.parametrize("method", ["lucene", "robertson", "atire", "bm25l", "bm25+"])
def test_bm25_every_method_omits_documents_without_query_words(method):
    system = bm25(documents("apple lemon", "lemon", "mango", "olive", "peach"), method=method)
    assert ids(system.search("apple lemon", 10)) == ["d0", "d1"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"method": "tf"}, "unknown method of bm25 `tf`"),
        ({"language": "elvish"}, "stemmer"),
        ({"k1": -1}, "k1"),
        ({"b": 2}, "b = 2"),
    ],
)
def test_bm25_invalid_option_raises_error(options, word):
    with pytest.raises(BadInput) as error:
        bm25(documents("apple"), **options)
    assert word in error.value.message
    assert error.value.hint


def test_bm25_threads_return_same_hits_as_one():
    texts = [" ".join(f"{word}{n}ing" for word in WORDS) for n in range(50)]
    queries = [f"{WORDS[n % 8]}{n}ing {WORDS[n % 5]}{n + 1}ed" for n in range(40)]
    expected = [bm25(documents(*texts)).search(query, 5) for query in queries]
    system, found = bm25(documents(*texts)), {}

    def search_all(number):
        found[number] = [system.search(query, 5) for query in queries]

    threads = [threading.Thread(target=search_all, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == expected for number in range(4))


# Dense retrieval --------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join), min_size=1, max_size=9),
    st.sampled_from(WORDS),
    st.integers(1, 12),
)
def test_dense_retriever_matches_numpy_cosine(texts, query, k):
    docs = documents(*texts)
    hits = DenseRetriever(docs, Hashing(), ExactStore()).search(query, k)
    vectors = Hashing().embed([*texts, query]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[:-1] @ vectors[-1]
    assert len(hits) == min(k, len(texts))
    for hit in hits:
        assert hit.score == pytest.approx(cosines[int(hit.id[1:])], abs=1e-6)
        assert hit.text == texts[int(hit.id[1:])]
    assert [hit.score for hit in hits] == pytest.approx(sorted(cosines, reverse=True)[:k], abs=1e-6)


def test_dense_retriever_uses_separate_document_embedder():
    of_queries, of_documents = Hashing(), Hashing()
    system = DenseRetriever(documents("apple", "lemon"), of_queries, ExactStore(), document_embedder=of_documents)
    assert isinstance(system, Retriever)
    assert ids(system.search("lemon", 1)) == ["d1"]
    assert (of_queries.batches, of_documents.batches) == ([["lemon"]], [["apple", "lemon"]])


def test_dense_retriever_ignores_zero_vectors():
    system = DenseRetriever(documents("apple", "", "lemon"), Hashing(), ExactStore())
    assert ids(system.search("lemon", 5)) == ["d2", "d0"]
    assert system.search("", 5) == []
    assert DenseRetriever(documents("", ""), Hashing(), ExactStore()).search("apple", 5) == []


def test_dense_retriever_embeds_titles_with_texts():
    embedder = Hashing()
    DenseRetriever([Document("a", "apple", "lemon"), Document("b", "mango pie", "mango")], embedder, ExactStore())
    assert embedder.batches == [["lemon apple", "mango pie"]]


def test_dense_retriever_empty_corpus_returns_no_hits():
    assert DenseRetriever([], Hashing(), ExactStore()).search("apple", 5) == []


def test_dense_retriever_wrong_vector_count_raises_error():
    class Short(Hashing):
        def embed(self, texts):
            return super().embed(texts)[:-1]

    with pytest.raises(BadInput, match="`hashing` returned 1 vectors for 2 texts"):
        DenseRetriever(documents("apple", "lemon"), Short(), ExactStore())


# Hybrid retrieval -------------------------------------------------------------------------------------------------

LEFT = [Hit("a", 12.0, "text of a"), Hit("b", 9.5, "text of b"), Hit("c", 3.0, "text of c")]
RIGHT = [Hit("c", 0.9, "text of c"), Hit("d", 0.8, "text of d", {"n": 1}), Hit("a", 0.1, "text of a")]
OPTIONS = [
    {},
    {"weights": (0.7, 0.3)},
    {"method": "rrf", "k": 10},
    {"method": "sum", "norm": "zmuv"},
    {"method": "mnz"},
    {"weights": [2, 1], "method": "wsum", "norm": "rank"},
]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_hybrid_retriever_matches_fuse_query(options, asynchronous):
    system = HybridRetriever([FixedRetriever(LEFT, asynchronous=asynchronous), FixedRetriever(RIGHT)], **options)
    assert is_async(system) is asynchronous
    found = system.search("q", 10)
    hits = asyncio.run(found) if asynchronous else found
    method = options.get("method", "wsum" if "weights" in options else "rrf")
    parameters = {name: value for name, value in options.items() if name not in ("method", "norm")}
    lists = [{hit.id: hit.score for hit in part} for part in (LEFT, RIGHT)]
    expected = fuse_query(lists, method, options.get("norm"), **parameters)
    assert [(hit.id, hit.score) for hit in hits] == list(expected.items())
    assert {hit.id: hit.text for hit in hits} == {name: f"text of {name}" for name in "abcd"}
    assert next(hit for hit in hits if hit.id == "d").metadata == {"n": 1}


def test_hybrid_retriever_searches_depth_and_returns_k():
    left, right = FixedRetriever(LEFT), FixedRetriever(RIGHT)
    assert len(HybridRetriever([left, right], depth=50).search("q", 2)) == 2
    HybridRetriever([left, right], depth=50).search("q", 70)
    assert left.depths == right.depths == [50, 70]


def test_hybrid_retriever_duplicate_document_keeps_first_rank():
    twice = HybridRetriever(
        [FixedRetriever([*LEFT, Hit("a", 0.5, "again")]), FixedRetriever(RIGHT)], weights=(1, 1)
    ).search("q", 9)
    assert twice == HybridRetriever([FixedRetriever(LEFT), FixedRetriever(RIGHT)], weights=(1, 1)).search("q", 9)


def test_hybrid_retriever_empty_list_keeps_other_list():
    assert ids(HybridRetriever([FixedRetriever([]), FixedRetriever(RIGHT)]).search("q", 9)) == ["c", "d", "a"]
    assert HybridRetriever([FixedRetriever([]), FixedRetriever([])]).search("q", 9) == []


@pytest.mark.parametrize(
    "retrievers",
    [
        [FixedRetriever(LEFT, asynchronous=True), BrokenRetriever()],
        [BrokenRetriever(), FixedRetriever(LEFT, asynchronous=True)],
        [BrokenAsyncRetriever(), FixedRetriever(LEFT)],
        [FixedRetriever(LEFT, asynchronous=True), BrokenAsyncRetriever()],
    ],
)
def test_hybrid_retriever_failing_part_raises_error(retrievers):
    with pytest.raises(RuntimeError, match="is gone"):
        asyncio.run(HybridRetriever(retrievers).search("q", 3))


@pytest.mark.parametrize(
    "options",
    [
        {"weights": (1, 2, 3)},
        {"method": "magic"},
        {"norm": "magic"},
        {"sigma": 3},
        {"weights": ("a", "b")},
    ],
    ids=str,
)
def test_hybrid_retriever_invalid_option_raises_one_line_error(options):
    with pytest.raises(RagaugeError) as error:
        HybridRetriever([FixedRetriever(LEFT), FixedRetriever(RIGHT)], **options)
    assert "\n" not in error.value.message


def test_hybrid_retriever_single_part_raises_error():
    with pytest.raises(BadInput, match="at least two"):
        HybridRetriever([FixedRetriever(LEFT)])


# Pipelines and filters --------------------------------------------------------------------------------------------


def by_name(query, hits):
    return sorted(hits, key=lambda hit: hit.id, reverse=True)


class HalvingReranker:
    def rerank(self, query, hits):
        return [hit._replace(score=hit.score / 2) for hit in hits[:2]]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_reranking_pipeline_function_defines_ranking(asynchronous):
    system = RerankingPipeline(FixedRetriever(LEFT, asynchronous=asynchronous), [by_name])
    assert is_async(system) is asynchronous
    found = system.search("q", 3)
    hits = asyncio.run(found) if asynchronous else found
    assert ids(hits) == ["c", "b", "a"]
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True), "scores must follow the new order"
    assert hits[0].text == "text of c"


def test_reranking_pipeline_applies_rerankers_in_sequence():
    retriever = FixedRetriever(LEFT)
    hits = RerankingPipeline(retriever, [HalvingReranker(), by_name, HalvingReranker()], depth=20).search("q", 1)
    assert ids(hits) == ["b"]
    assert retriever.depths == [20]
    assert [(hit.id, hit.score) for hit in RerankingPipeline(retriever, [HalvingReranker()]).search("q", 9)] == [
        ("a", 6.0),
        ("b", 4.75),
    ]


def test_reranking_pipeline_without_reranker_raises_error():
    with pytest.raises(BadInput, match="needs a reranker"):
        RerankingPipeline(FixedRetriever(LEFT), [])


MANY = [Hit(f"d{i}", 1000.0 - i, "", {"module": "json" if i % 97 == 96 else "os", "n": i}) for i in range(1000)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_filtered_retriever_searches_deeper_until_k_hits(asynchronous):
    retriever = FixedRetriever(MANY, asynchronous=asynchronous)
    found = FilteredRetriever(retriever, {"module": "json"}).search("q", 5)
    hits = asyncio.run(found) if asynchronous else found
    assert ids(hits) == ["d96", "d193", "d290", "d387", "d484"]
    assert retriever.depths == [10, 40, 160, 640], "the depth must not grow further"


def test_filtered_retriever_fewer_matches_returns_all_and_stops():
    retriever = FixedRetriever(MANY)
    assert ids(FilteredRetriever(retriever, {"module": "json", "n": 96}).search("q", 5)) == ["d96"]
    assert FilteredRetriever(retriever, {"missing": 1}).search("q", 5) == []
    assert max(retriever.depths) < 4000
    assert len(FilteredRetriever(retriever, {}).search("q", 5)) == 5
    assert len(FilteredRetriever(retriever, {"module": "json"}, most=200).search("q", 5)) == 2


# Stages and other properties --------------------------------------------------------------------------------------


class SlowHashing(Hashing):
    def embed(self, texts):
        time.sleep(0.002)
        return super().embed(texts)


def slow_reranker(query, hits):
    time.sleep(0.002)
    return hits


@pytest.mark.parametrize("asynchronous", [False, True])
def test_stage_timer_stages_sum_to_at_most_total(asynchronous):
    dense = DenseRetriever(documents("apple", "lemon"), SlowHashing(), ExactStore())
    other = FixedRetriever(LEFT, asynchronous=asynchronous)
    system = RerankingPipeline(HybridRetriever([dense, other]), [slow_reranker])

    async def search_async():
        with StageTimer() as watch:
            hits = await system.search("apple", 5)
        return watch, hits

    if asynchronous:
        watch, hits = asyncio.run(search_async())
    else:
        with StageTimer() as watch:
            hits = system.search("apple", 5)
    assert len(hits) == 5
    assert set(watch.nanoseconds) == {"embed", "retrieve", "rerank"}
    assert sum(watch.nanoseconds.values()) <= watch.total


def test_bm25_records_retrieve_stage_without_hits():
    system = bm25(documents("apple"))
    for query in ("apple", "zebra"):
        with StageTimer() as watch:
            system.search(query, 3)
        assert set(watch.nanoseconds) == {"retrieve"}


def test_retrievers_accept_arbitrary_document_ids():
    names = ["", "a b", 'quote"', "ümlaut", "../x", "1"]
    docs = [Document(name, f"apple {re.sub(r'[^a-z]', '', name)}") for name in names]
    assert set(ids(bm25(docs).search("apple", 10))) == set(names)
    assert set(ids(DenseRetriever(docs, Hashing(), ExactStore()).search("apple", 10))) == set(names)


def test_hybrid_retriever_single_hit_counts_in_weighted_fusion():
    vectors = FixedRetriever([Hit("x", 0.31), Hit("y", 0.30), Hit("exact", 0.05)])
    words = FixedRetriever([Hit("exact", 12.0)])
    found = HybridRetriever([vectors, words], weights=(0.7, 0.3)).search("q", 3)
    assert {hit.id: round(hit.score, 4) for hit in found} == {"x": 0.7, "y": 0.6731, "exact": 0.3}


def test_async_system_sync_parts_do_not_block_event_loop():
    gate = threading.Event()

    def wait_and_rerank(query, hits):
        assert gate.wait(30)
        return hits

    class WaitingRetriever:
        def search(self, query, k):
            assert gate.wait(30)
            return [Hit("b", 1.0)]

    async_part = FixedRetriever([Hit("a", 1.0)], asynchronous=True)

    async def search_and_open(system):
        async def open_gate():
            await asyncio.sleep(0)
            gate.set()  # never reached if the event loop is blocked

        found, _ = await asyncio.gather(system.search("q", 2), open_gate())
        return ids(found)

    assert asyncio.run(search_and_open(RerankingPipeline(async_part, [wait_and_rerank]))) == ["a"]
    gate.clear()
    assert set(asyncio.run(search_and_open(HybridRetriever([async_part, WaitingRetriever()])))) == {"a", "b"}


class WithEvidence:
    def __init__(self, used, *, asynchronous=False):
        self.used, self.asynchronous = used, asynchronous

    def search(self, query, k):
        return []

    def evidence(self, query, k):
        return self._later() if self.asynchronous else {"index_used": self.used}

    async def _later(self):
        return {"index_used": self.used}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_evidence_of_parts_is_passed_on(asynchronous):
    def read_evidence(system):
        found = system.evidence("q", 5)

        async def await_evidence():
            return await found

        return asyncio.run(await_evidence()) if asynchronous else found

    unused, used = WithEvidence(False, asynchronous=asynchronous), WithEvidence(True)
    assert read_evidence(HybridRetriever([used, unused]))["index_used"] is False
    assert read_evidence(RerankingPipeline(unused, [by_name]))["index_used"] is False
    assert read_evidence(FilteredRetriever(unused, {"a": 1}))["index_used"] is False
    assert HybridRetriever([used, used]).evidence("q", 5)["index_used"] is True
    assert "index_used" not in HybridRetriever([FixedRetriever([]), FixedRetriever([])]).evidence("q", 5)


def test_dense_retriever_builds_index_at_construction():
    pytest.importorskip("faiss")
    from ragauge.stores.faiss import FaissSettings, FaissStore

    store = FaissStore(settings=FaissSettings(kind="hnsw"))
    system = DenseRetriever(documents(*(f"{a} {b}" for a in WORDS for b in WORDS)), Hashing(), store)
    assert store._index.ntotal == 64
    assert system.evidence("apple", 3)["kind"] == "hnsw"
    rankings = []
    threads = [threading.Thread(target=lambda: rankings.append(ids(system.search("apple mango", 5)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rankings) == 8


def test_bm25_query_with_empty_stem_returns_matching_hits():
    docs = [Document("a", "new things"), Document("b", "old things")]
    assert [hit.id for hit in bm25(docs).search("what's new", 2)] == ["a"]
    assert bm25(docs).search("s", 3) == []
    assert [hit.id for hit in bm25([*docs, Document("c", "it's there")]).search("s", 3)] == ["c"]
