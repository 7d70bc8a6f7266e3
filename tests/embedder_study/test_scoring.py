"""Scoring of embedders: rankings, scores and tests, and the effect of compression, corpus size and perturbations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragauge
from ragauge.compute.progress import Progress
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Judgments
from ragauge.datasets.perturbations import perturb
from ragauge.embedder_study.scoring import RankingTask, all_means_with_intervals, differences_from_baseline, usable_rows
from ragauge.embedder_study.variations import (
    DEFAULT_PERTURBATIONS,
    PRECISIONS,
    CompressionOptions,
    PerturbationOptions,
    dimensions_to_try,
    document_frequencies,
    draw_corpus_samples,
    evaluate_compression,
    evaluate_corpus_sizes,
    evaluate_perturbations,
    normalise_vectors,
    principal_directions,
    vector_bytes,
)
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.names import parse_measure_names
from ragauge.models.embedders.baselines import BagOfWordsEmbedder
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.paired_tests import t_test
from ragauge.stores.reference import ExactStore
from ragauge.systems.bm25 import BM25

RULES = find_convention("default")


def make_task(
    documents: int, grades: dict[str, dict[str, float]], measures=("recall@3", "mrr@3"), k=3, **more
) -> RankingTask:
    """Build a ranking task with documents d0, d1, … and the judged queries."""
    parsed_measures = parse_measure_names(list(measures), RULES)
    return RankingTask(
        [f"d{i}" for i in range(documents)], list(grades), Judgments(grades), parsed_measures, RULES, k, **more
    )


def mean_scores(scores, confidence: float = 0.95):
    return all_means_with_intervals([scores], confidence)[0]


def draw_vectors(queries: int, documents: int, dimensions: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(queries, dimensions)).astype(np.float32),
        rng.normal(size=(documents, dimensions)).astype(np.float32),
    )


def draw_judgments(queries: int, documents: int, n_relevant: int = 3, seed: int = 0) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(seed)
    return {
        f"q{q}": {f"d{d}": 1.0 for d in rng.choice(documents, n_relevant, replace=False).tolist()}
        for q in range(queries)
    }


def brute_force(queries, documents, k):
    """Rank by cosine in double precision, one pair at a time; ties keep document order."""
    rankings = []
    for query in np.asarray(queries, np.float64):
        distances = []
        for row, document in enumerate(np.asarray(documents, np.float64)):
            norms = math.sqrt(float(query @ query)) * math.sqrt(float(document @ document))
            distances.append((-float(query @ document) / norms, row))
        rankings.append([row for _, row in sorted(distances)[:k]])
    return rankings


@pytest.mark.parametrize(("queries", "documents", "dimensions"), [(3, 40, 5), (30, 200, 17), (12, 4, 3)])
def test_rankings_match_brute_force_in_double_precision(queries, documents, dimensions):
    query_vectors, base = draw_vectors(queries, documents, dimensions)
    positions, cosines = make_task(documents, draw_judgments(queries, documents), k=7, measures=["recall@7"]).rankings(
        query_vectors, base
    )
    width = min(7, documents)
    assert positions[:, :width].tolist() == brute_force(query_vectors, base, 7)
    assert (positions[:, width:] == -1).all()
    lengths = np.linalg.norm(query_vectors, axis=1)[:, None] * np.linalg.norm(base, axis=1)
    expected = np.take_along_axis((query_vectors @ base.T) / lengths, positions[:, :width], 1)
    assert cosines[:, :width] == pytest.approx(expected, abs=1e-5)


def test_rankings_with_ties_match_exact_store():
    query_vectors, base = draw_vectors(20, 60, 4)
    base[30:] = base[:30] * 2  # duplicate directions, which give ties
    store = ExactStore()
    store.add([f"d{i}" for i in range(60)], base)
    ids, _ = store.search(query_vectors, 9)
    positions, _ = make_task(60, draw_judgments(20, 60), k=9, measures=["recall@9"]).rankings(query_vectors, base)
    assert [[f"d{row}" for row in rows] for rows in positions.tolist()] == ids.tolist()


def test_scores_match_evaluate_of_same_ranking():
    query_vectors, base = draw_vectors(25, 80, 6)
    grades = draw_judgments(25, 80)
    task = make_task(80, grades, ["ndcg@10", "recall@10", "mrr@10", "precision@5", "map"], k=10)
    positions, _ = task.rankings(query_vectors, base)
    run = {
        q: {f"d{row}": -float(rank) for rank, row in enumerate(rows)}
        for q, rows in zip(grades, positions.tolist(), strict=True)
    }
    expected = ragauge.evaluate(grades, run, ["ndcg@10", "recall@10", "mrr@10", "precision@5", "map"])
    result = task.scores(query_vectors, base, name="mine")
    assert dict(result.means) == dict(expected.means)
    assert result.queries == expected.queries
    assert {m: column.tolist() for m, column in result.values.items()} == {
        m: c.tolist() for m, c in expected.values.items()
    }
    rankings = {q: [f"d{row}" for row in rows] for q, rows in zip(grades, positions.tolist(), strict=True)}
    assert dict(task.scored(rankings, name="listed").means) == dict(expected.means)


def test_query_without_vector_counts_as_miss():
    base = np.eye(3, dtype=np.float32)
    query_vectors = np.array([[1, 0, 0], [0, 0, 0], [0, math.nan, 1], [math.inf, 0, 0]], np.float32)
    task = make_task(3, {f"q{i}": {"d0": 1.0} for i in range(4)}, ["mrr@3"])
    positions, cosines = task.rankings(query_vectors, base)
    assert positions[0, 0] == 0
    assert (positions[1:] == -1).all()
    assert np.isnan(cosines[1:]).all()
    result = task.scores(query_vectors, base, name="mine")
    assert result.per_query["mrr@3"] == {"q0": 1.0, "q1": 0.0, "q2": 0.0, "q3": 0.0}
    assert mean_scores(result)["mrr@3"][:2] == (0.25, 4)


@pytest.mark.parametrize("missing", ["zero", "skip", "error"])
def test_query_without_vector_counts_as_miss_in_every_convention(missing):
    rules = Convention(missing=missing)
    task = RankingTask(
        ["a"], ["p", "q"], Judgments({"p": {"a": 1}, "q": {"a": 1}}), parse_measure_names(["mrr@1"], rules), rules, 1
    )
    assert task.scores([[1.0], [0.0]], [[1.0]], name="mine").means == {"mrr@1": 0.5}
    assert task.scored({"p": ["a"]}, name="mine").means == {"mrr@1": 0.5}


def test_document_without_vector_is_never_ranked():
    base = np.array([[1, 0], [0, 0], [math.nan, 1], [0.9, 0.1], [-1, 0]], np.float32)
    query_vectors = np.array([[1, 0]], np.float32)
    positions, _ = make_task(5, {"q": {"d1": 1.0}}, ["recall@5"], k=5).rankings(query_vectors, base)
    assert positions.tolist() == [[0, 3, 4, -1, -1]]
    without_vectors = make_task(5, {"q": {"d1": 1.0}}, ["recall@5"], k=5).scores(
        query_vectors, np.zeros((5, 2)), name="none"
    )
    assert without_vectors.means == {"recall@5": 0.0}


def test_rankings_among_rows_return_only_these_documents():
    query_vectors, base = draw_vectors(10, 50, 4)
    rows = np.array([3, 7, 20, 21, 49])
    positions, _ = make_task(50, draw_judgments(10, 50)).rankings(query_vectors, base, among=rows)
    ranks = brute_force(query_vectors, base[rows], 3)
    assert positions.tolist() == [[int(rows[rank]) for rank in row_ranks] for row_ranks in ranks]


def test_rankings_omit_query_that_is_the_same_document():
    base = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
    grades = {"d0": {"d1": 1.0}, "q": {"d0": 1.0}}
    task = make_task(3, grades, ["mrr@2"], k=2, queries_in_corpus=frozenset(["d0"]))
    positions, _ = task.rankings([[1, 0], [1, 0]], base)
    assert positions.tolist() == [[1, 2], [0, 1]]
    assert task.scores([[1, 0], [1, 0]], base, name="mine").means == {"mrr@2": 1.0}


def test_scores_mismatched_shapes_or_deep_cutoff_raise_error():
    task = make_task(3, {"q": {"d0": 1.0}})
    with pytest.raises(BadInput, match="not one row for each of 3 documents"):
        task.scores(np.ones((1, 2)), np.ones((2, 2)), name="mine")
    with pytest.raises(BadInput, match="query vectors have 3 dimensions, document vectors 2"):
        task.scores(np.ones((1, 3)), np.ones((3, 2)), name="mine")
    with pytest.raises(BadInput, match="recall@5 needs 5 documents per query, but k is 3"):
        make_task(3, {"q": {"d0": 1.0}}, ["recall@5"], k=3)


def test_all_means_with_intervals_match_mean_intervals():
    query_vectors, base = draw_vectors(40, 60, 5)
    task = make_task(60, draw_judgments(40, 60))
    score_list = [task.scores(query_vectors, base, name="a"), task.scores(-query_vectors, base, name="b")]
    all_means = all_means_with_intervals(score_list, 0.9)
    for scores, result in zip(score_list, all_means, strict=True):
        assert result == mean_scores(scores, 0.9)
        for measure, mean in result.items():
            low, high = mean_intervals(scores.values[measure][:, None], 0.9).ravel()
            assert mean == (pytest.approx(scores.means[measure]), 40, pytest.approx(low), pytest.approx(high))


def test_means_without_values_are_nan():
    rules = Convention(none="skip")
    task = RankingTask(["a"], ["p"], Judgments({"p": {"a": 0}}), parse_measure_names(["recall@1"], rules), rules, 1)
    result = mean_scores(task.scores([[1.0]], [[1.0]], name="mine"))["recall@1"]
    assert result.n == 0
    assert math.isnan(result.value)
    assert math.isnan(result.low)


def test_differences_from_baseline_match_compare_with_holm_correction():
    query_vectors, base = draw_vectors(40, 60, 5)
    task = make_task(60, draw_judgments(40, 60))
    systems = {
        "b": task.scores(query_vectors[::-1], base, name="b"),
        "c": task.scores(np.roll(query_vectors, 1, axis=0), base, name="c"),
    }
    baseline = task.scores(query_vectors, base, name="a")
    result = differences_from_baseline(systems, baseline)
    comparison = ragauge.compare({"a": baseline, **systems}, baseline="a")
    assert set(result) == {"b", "c"}
    for name, measures in result.items():
        for measure, difference in measures.items():
            row = comparison.find(name, measure)
            assert difference == (row.difference, *row.ci, row.p_t, row.p_corrected, row.n)
    raw = sorted(result[name]["mrr@3"].p for name in result)
    holm = sorted(result[name]["mrr@3"].p_corrected for name in result)
    assert holm[0] == pytest.approx(min(1, 2 * raw[0]))
    assert holm[1] == pytest.approx(min(1, max(2 * raw[0], raw[1])))


def test_differences_from_baseline_average_seeds_of_a_system():
    query_vectors, base = draw_vectors(40, 60, 5)
    task = make_task(60, draw_judgments(40, 60), ["mrr@3"])
    seeds = [task.scores(np.roll(query_vectors, shift, axis=0), base, name="b") for shift in (1, 2, 3)]
    baseline = task.scores(query_vectors, base, name="a")
    result = differences_from_baseline({"b": seeds}, baseline)["b"]["mrr@3"]
    values = np.mean([scores.values["mrr@3"] for scores in seeds], axis=0)
    assert result.value == pytest.approx(float((values - baseline.values["mrr@3"]).mean()))
    row = ragauge.compare({"a": [baseline], "b": seeds}, baseline="a").find("b")
    assert (result.low, result.high, result.p) == (*row.ci, row.p_t)


def test_principal_directions_match_truncated_svd():
    decomposition = pytest.importorskip("sklearn.decomposition")
    _, base = draw_vectors(1, 300, 12)
    documents = normalise_vectors(base * np.arange(1, 13, dtype=np.float32) + 2)
    oracle = decomposition.TruncatedSVD(6, algorithm="arpack", random_state=0).fit(documents.astype(np.float64))
    directions = principal_directions(documents)[:, :6]
    assert np.abs((directions * oracle.components_.T).sum(axis=0)) == pytest.approx(np.ones(6), abs=1e-6)
    assert directions.T @ directions == pytest.approx(np.eye(6), abs=1e-9)


def test_principal_directions_of_centred_documents_match_pca():
    decomposition = pytest.importorskip("sklearn.decomposition")
    _, base = draw_vectors(1, 200, 8)
    base = base * np.arange(1, 9)
    base -= base.mean(axis=0)
    oracle = decomposition.PCA(4).fit(base)
    directions = principal_directions(base)[:, :4]
    assert np.abs((directions * oracle.components_.T).sum(axis=0)) == pytest.approx(np.ones(4), abs=1e-6)


def test_principal_directions_ignore_unusable_rows():
    _, base = draw_vectors(1, 50, 4)
    with_unusable = np.concatenate([base, np.full((1, 4), math.nan, np.float32), np.zeros((1, 4), np.float32)])
    assert principal_directions(with_unusable) == pytest.approx(principal_directions(base))


def test_evaluate_compression_all_dimensions_lose_nothing():
    query_vectors, base = draw_vectors(30, 100, 20)
    task = make_task(100, draw_judgments(30, 100), ["recall@10", "mrr@10"], k=10)
    result = evaluate_compression(task, query_vectors, base, CompressionOptions([20], precisions=["float32"]))
    full = mean_scores(task.scores(query_vectors, base, name="whole"))
    assert [(row.method, row.dimension, row.bytes) for row in result] == [("pca", 20, 80), ("first", 20, 80)]
    for row in result:
        assert {m: mean.value for m, mean in row.means.items()} == {m: mean.value for m, mean in full.items()}


def test_evaluate_compression_low_rank_documents_lose_nothing():
    rng = np.random.default_rng(1)
    basis = rng.normal(size=(3, 32))
    query_vectors, base = rng.normal(size=(30, 3)) @ basis, rng.normal(size=(100, 3)) @ basis
    task = make_task(100, draw_judgments(30, 100), ["recall@10"], k=10)
    result = {
        (row.method, row.dimension): row.means["recall@10"].value
        for row in evaluate_compression(task, query_vectors, base, CompressionOptions([3], precisions=["float32"]))
    }
    assert result["pca", 3] == result["pca", 32] == result["first", 32]


def test_evaluate_compression_first_uses_leading_dimensions():
    query_vectors, base = draw_vectors(30, 100, 20)
    task = make_task(100, draw_judgments(30, 100), ["recall@10"], k=10)
    result = evaluate_compression(
        task, query_vectors, base, CompressionOptions([5], methods=["first"], precisions=["float32"])
    )
    # The vectors are normalised before, which does not change the cosines of their leading dimensions.
    assert result[0].means == mean_scores(task.scores(query_vectors[:, :5], base[:, :5], name="cut"))


def test_int8_precision_has_127_steps_of_largest_document_value():
    documents = np.array([[1.0, -2.0], [0.5, 0.0], [-0.25, 1.0]], np.float32)
    keep = PRECISIONS["int8"].quantise
    step = np.array([1, 2]) / 127
    assert keep(documents, documents) == pytest.approx(np.array([[127, -127], [64, 0], [-32, 64]]) * step, abs=1e-6)
    assert keep(np.array([[9.0, -0.011]], np.float32), documents) == pytest.approx(np.array([[127, -1]]) * step)
    # A dimension that is 0 in all documents becomes 0 in queries, too.
    zero_dimension = np.array([[1.0, 0.0]], np.float32)
    assert keep(np.array([[1.0, 5.0]], np.float32), zero_dimension).tolist() == [[1.0, 0.0]]


def test_bit_precision_is_sign_of_difference_from_document_mean():
    documents = np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)
    assert PRECISIONS["bit"].quantise(documents, documents).tolist() == [[-1, -1], [1, -1]]
    assert PRECISIONS["bit"].quantise(np.array([[2.5, 6.0]], np.float32), documents).tolist() == [[1, 1]]


def test_evaluate_compression_bits_rank_by_hamming_distance():
    query_vectors, base = (normalise_vectors(side) for side in draw_vectors(15, 60, 12))
    task = make_task(60, draw_judgments(15, 60), ["recall@5"], k=5)
    result = evaluate_compression(
        task, query_vectors, base, CompressionOptions([], methods=["first"], precisions=["bit"])
    )[0]
    means = base.mean(axis=0, dtype=np.float64)
    hamming_distances = ((query_vectors > means)[:, None, :] != (base > means)[None, :, :]).sum(axis=2)
    nearest = np.argsort(hamming_distances, axis=1, kind="stable")[:, :5]
    rankings = {f"q{q}": [f"d{row}" for row in rows] for q, rows in enumerate(nearest.tolist())}
    assert result.means == mean_scores(task.scored(rankings, name="hamming"))
    assert result.bytes == 2


def test_float16_precision_rounds_to_float16():
    value = np.array([[0.1, 1.0]], np.float32)
    assert PRECISIONS["float16"].quantise(value, value).tolist() == [[float(np.float16(0.1)), 1.0]]


def test_vector_bytes_and_compression_rows_by_hand():
    assert [vector_bytes(12, kind) for kind in PRECISIONS] == [48, 24, 12, 2]
    query_vectors, base = draw_vectors(5, 30, 20)
    result = evaluate_compression(make_task(30, draw_judgments(5, 30)), query_vectors, base)
    assert [(row.method, row.dimension, row.precision, row.bytes) for row in result[:5]] == [
        ("pca", 8, "float32", 32),
        ("pca", 8, "float16", 16),
        ("pca", 8, "int8", 8),
        ("pca", 8, "bit", 1),
        ("pca", 16, "float32", 64),
    ]
    assert len(result) == 2 * 3 * 4
    assert all(mean.n == 5 for row in result for mean in row.means.values())


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize("method", ["pca", "first"])
def test_evaluate_compression_ignores_unusable_vectors(method, kind):
    query_vectors, base = draw_vectors(4, 30, 6)
    query_vectors[1], query_vectors[2, 3], base[7], base[8, 0] = 0, math.nan, 0, math.inf
    grades = {f"q{i}": {"d7": 1.0, "d8": 1.0} for i in range(4)}
    result = evaluate_compression(
        make_task(30, grades, ["recall@30", "num_ret"], k=30),
        query_vectors,
        base,
        CompressionOptions([3], methods=[method], precisions=[kind]),
    )
    for row in result:
        assert row.means["recall@30"].value == 0
        assert row.means["num_ret"].value == 2 * 28


def test_normalise_vectors_handles_very_long_and_short_vectors():
    rows = np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 0]], np.float32)
    unit_rows = normalise_vectors(rows)
    assert unit_rows[:2] == pytest.approx(np.array([[0.6, 0.8]] * 2))
    assert np.isnan(unit_rows[2]).all()
    assert usable_rows(rows).tolist() == [True, True, False]


def test_evaluate_compression_unknown_method_or_precision_raises_error():
    task = make_task(3, {"q": {"d0": 1.0}})
    query_vectors, base = draw_vectors(1, 3, 4)
    with pytest.raises(UnknownName, match="unknown reduction method `last`"):
        evaluate_compression(task, query_vectors, base, CompressionOptions(methods=["last"]))
    with pytest.raises(UnknownName, match=r"unknown precision `int4`(?s:.*)did you mean `int8`"):
        evaluate_compression(task, query_vectors, base, CompressionOptions(precisions=["int4"]))
    with pytest.raises(BadInput, match="dimensions must be at least 1, got 0"):
        dimensions_to_try(4, [0, 2])


@given(st.integers(20, 60), st.lists(st.integers(0, 19), max_size=12), st.sets(st.integers(12, 70)), st.integers(0, 5))
@settings(max_examples=50)
def test_draw_corpus_samples_are_nested_and_keep_relevant_documents(documents, relevant, wanted_sizes, seed):
    grades = {"q": {f"d{i}": 1.0 for i in relevant} | {"d19": 0.0 if 19 not in relevant else 1.0}}
    task = make_task(documents, grades)
    samples = draw_corpus_samples(task, sorted(wanted_sizes), seed)
    assert list(samples) == sorted({size for size in wanted_sizes if size < documents} | {documents})
    before: set[int] = set()
    for size, rows in samples.items():
        assert len(rows) == len(set(rows.tolist())) == size
        assert rows.tolist() == sorted(rows.tolist())
        assert set(rows.tolist()) >= before | set(relevant)
        before = set(rows.tolist())


def test_draw_corpus_samples_is_seeded():
    task = make_task(200, {"q": {"d3": 1.0}})
    first, again, other = (draw_corpus_samples(task, [50], seed)[50].tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_draw_corpus_samples_too_small_raises_error():
    grades = {"q": {f"d{i}": 1.0 for i in range(800)}}
    task = make_task(2000, grades)
    with pytest.raises(BadInput, match=r"750 documents is too small: 800 documents are relevant(?s:.*)at least 800"):
        draw_corpus_samples(task, [750, 1500])
    assert list(draw_corpus_samples(task)) == [1500, 2000]
    assert list(draw_corpus_samples(make_task(2000, {"q": {"d0": 1.0}}))) == [750, 1500, 2000]
    assert list(draw_corpus_samples(make_task(1000, grades))) == [800, 900, 1000]
    assert list(draw_corpus_samples(make_task(800, grades))) == [800]


def test_evaluate_corpus_sizes_scores_fall_as_corpus_grows():
    query_vectors, base = draw_vectors(60, 400, 8)
    grades = {f"q{i}": {f"d{i}": 1.0} for i in range(60)}
    base[:60] = query_vectors + np.random.default_rng(5).normal(size=query_vectors.shape) * 1.2
    task = make_task(400, grades, ["mrr@3"])
    result = evaluate_corpus_sizes(task, query_vectors, base, [60, 150])
    assert [row.documents for row in result] == [60, 150, 400]
    values = [row.means["mrr@3"].value for row in result]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[2]
    assert result[-1].means["mrr@3"] == pytest.approx(
        mean_scores(task.scores(query_vectors, base, name="whole"))["mrr@3"]
    )
    rows = draw_corpus_samples(task, [60, 150])[150]
    rankings = brute_force(query_vectors, base[rows], 3)
    ranks = [[int(rows[rank]) for rank in ranking] for ranking in rankings]
    expected = np.mean([1 / (1 + ranking.index(i)) if i in ranking else 0 for i, ranking in enumerate(ranks)])
    assert values[1] == pytest.approx(expected)


TEXTS = {
    "q0": "reverse the list",
    "q1": "sort numbers quickly",
    "q2": "open zip archives",
    "q3": "parse dates",
    "q4": "write files",
    "q5": "caf\u00e9 names",
}
DOCUMENTS = [
    Document(f"d{i}", text)
    for i, text in enumerate(
        [
            "how to reverse a list",
            "sort numbers quickly",
            "open zip archives now",
            "parse dates",
            "write files",
            "caf\u00e9",
        ]
    )
]


def perturb_bm25(texts_by_query=TEXTS, **options):
    """Perturb the queries of BM25 over six documents, each relevant to one query.

    Return the results, the scores of unchanged queries, the scoring function, and the perturbed queries.
    """
    system = BM25(DOCUMENTS)
    task = make_task(6, {f"q{i}": {f"d{i}": 1.0} for i in range(6)}, ["mrr@3", "recall@3"])
    perturbed = []

    def answer(texts):
        perturbed.append(dict(texts))
        return task.scored({q: [hit.id for hit in system.search(text, 3)] for q, text in texts.items()}, name="bm25")

    clean = answer(texts_by_query)
    result = evaluate_perturbations(
        texts_by_query,
        clean,
        answer,
        PerturbationOptions(rarity=document_frequencies(d.text for d in DOCUMENTS), **options),
    )
    return result, clean, answer, perturbed[1:]


def test_evaluate_perturbations_truncates_queries_to_context():
    truncated = {query: text[:11] for query, text in TEXTS.items()}
    perturbed = perturb(truncated, "double spaces")
    assert max(map(len, perturbed.values())) > 11
    result, *_, used_texts = perturb_bm25(kinds=["double spaces"], context=11, texts_by_query=truncated)
    assert used_texts == [{query: text[:11] for query, text in perturbed.items()}]
    assert result[0].changed == np.mean([perturbed[query][:11] != truncated[query] for query in truncated])
    assert perturb_bm25(kinds=["double spaces"], texts_by_query=truncated)[-1] == [perturbed]


def test_evaluate_perturbations_losses_match_compare_over_seeds():
    result, clean, answer, _ = perturb_bm25(kinds=["swap", "drop"], rate=1, seeds=4)
    assert [(row.name, row.seeds, row.rate, row.changed) for row in result] == [
        ("swap", 4, 1, 1.0),
        ("drop", 4, 1, 1.0),
    ]
    for row in result:
        by_seed = [answer(perturb(TEXTS, row.name, rate=1, seed=seed)).values["mrr@3"] for seed in range(4)]
        values = np.mean(by_seed, axis=0)
        assert row.mean[:2] == (pytest.approx(values.mean()), 6)
        columns = {"clean": clean.values["mrr@3"], "changed": values}
        scores_by_name = {
            name: {str(i): float(task) for i, task in enumerate(column)} for name, column in columns.items()
        }
        expected = ragauge.compare(scores_by_name, baseline="clean").find("changed")
        assert row.difference[:4] == pytest.approx((expected.difference, *expected.ci, expected.p_t))
        assert row.difference.value == pytest.approx(values.mean() - 1)
        assert row.difference.value < 0
        assert row.difference.low <= row.difference.value <= row.difference.high


def test_evaluate_perturbations_p_values_are_holm_corrected():
    result, *_ = perturb_bm25(kinds=["swap", "drop", "tabs", "accents removed"], rate=0.5)
    p = np.array([row.difference.p for row in result])
    order = np.argsort(p)
    holm = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(4, 0, -1)))
    assert [result[index].difference.p_corrected for index in order.tolist()] == pytest.approx(holm.tolist())


def test_evaluate_perturbations_unchanged_queries_have_nan_difference():
    kinds = ["lower case", "swap"]
    result, clean, _, used_texts = perturb_bm25(kinds=kinds, seeds=2)
    assert len(used_texts) == 2, "all queries are in lower case already"
    unchanged = result[0]
    assert (unchanged.changed, unchanged.seeds) == (0.0, 1)
    assert unchanged.mean.value == pytest.approx(clean.means["mrr@3"])
    assert all(math.isnan(value) for value in unchanged.difference[:5])
    assert unchanged.difference.n == 6
    assert result[1].difference.p_corrected == result[1].difference.p, "only one was tested"


def test_evaluate_perturbations_deterministic_kinds_run_once():
    found, clean, _, used_texts = perturb_bm25(kinds=["accents removed", "upper case"], seeds=5)
    assert [row.seeds for row in found] == [1, 1]
    assert len(used_texts) == 2
    accents, upper = found
    assert accents.changed == pytest.approx(1 / 6)
    assert accents.difference.value == pytest.approx(-1 / 6), "only `caf\u00e9` was found by its accent"
    assert upper.changed == 1.0
    assert upper.difference.value == 0.0
    assert upper.difference.p == 1.0

    def score_nothing(texts):
        return make_task(6, {f"q{i}": {f"d{i}": 1.0} for i in range(6)}, ["mrr@3", "recall@3"]).scored({}, name="none")

    result = evaluate_perturbations(TEXTS, clean, score_nothing, PerturbationOptions(["accents removed"]))[0]
    assert result.mean.value == pytest.approx(clean.means["mrr@3"] - 1 / 6)


def test_perturbation_rare_word_loses_more_than_common_word():
    result, *_ = perturb_bm25(kinds=["rare word", "common word"], seeds=5)
    assert math.isnan(result[0].rate)
    assert result[0].difference.value < 0
    assert result[0].difference.value <= result[1].difference.value


def test_evaluate_perturbations_uses_measure_and_rejects_other_queries():
    result, clean, answer, _ = perturb_bm25(kinds=["drop"], rate=1, measure="recall@3")
    assert result[0].mean.value == pytest.approx(
        np.mean(
            [
                answer(task).means["recall@3"]
                for task in (perturb(TEXTS, "drop", rate=1, seed=seed) for seed in range(3))
            ]
        )
    )
    other = make_task(6, {"q0": {"d0": 1.0}}, ["mrr@3"]).scored({}, name="other")
    with pytest.raises(BadInput, match="cover different queries"):
        evaluate_perturbations(TEXTS, clean, lambda texts: other, PerturbationOptions(["drop"]))
    with pytest.raises(BadInput, match="seeds must be at least 1, got 0"):
        PerturbationOptions(seeds=0)
    with pytest.raises(UnknownName, match="unknown perturbation `shout`"):
        evaluate_perturbations(TEXTS, clean, answer, PerturbationOptions(["shout"]))


def test_evaluate_perturbations_default_kinds_report_progress():
    steps: list[Progress] = []
    embedder = BagOfWordsEmbedder(dimensions=256)
    task = make_task(6, {f"q{i}": {f"d{i}": 1.0} for i in range(6)}, ["mrr@3"])
    base = embedder.embed([document.text for document in DOCUMENTS])

    def answer(texts):
        return task.scores(embedder.embed(list(texts.values())), base, name="words")

    rarity = document_frequencies(document.text for document in DOCUMENTS)
    result = evaluate_perturbations(
        TEXTS, answer(TEXTS), answer, PerturbationOptions(seeds=1, rarity=rarity), progress=steps.append
    )
    assert [row.name for row in result] == list(DEFAULT_PERTURBATIONS)
    n = len(DEFAULT_PERTURBATIONS)
    assert steps == [Progress("perturbing queries", i + 1, n) for i in range(n)]
    losses = {row.name: row.difference.value for row in result}
    assert losses["upper case"] == losses["double spaces"] == 0.0, "words are taken in lower case"
    assert losses["swap"] < 0


def test_document_frequencies_count_documents_not_occurrences():
    assert document_frequencies(["a box, a Box", "BOX", ""]) == {"a": 1, "box": 2}


def test_paired_t_test_over_seed_means_keeps_false_positive_rate():
    """Scores change per query but not on average, so about 5% of the tests should be significant."""
    rng = np.random.default_rng(3)
    false_positives, rounds, n = 0, 300, 60
    for _ in range(rounds):
        clean = rng.normal(size=n)
        by_seed = clean + rng.normal(size=(3, n)) + 0.5 * rng.normal(size=n)
        differences = (by_seed.mean(axis=0) - clean)[:, None]
        false_positives += int(t_test(differences)[0][0] < 0.05)
    assert 0.02 < false_positives / rounds < 0.09


def test_perturbation_pydocs_bm25_loses_by_swap_but_not_by_case():
    data = ragauge.load("pydocs")
    queries = dict(list(data.queries.items())[:60])
    grades = {query: data.judgments.nested[query] for query in queries}
    parsed_measures = parse_measure_names(["ndcg@10"], RULES)
    task = RankingTask([d.id for d in data.documents], list(queries), Judgments(grades), parsed_measures, RULES, 10)
    system = BM25(data.documents)

    def answer(texts):
        return task.scored({q: [hit.id for hit in system.search(text, 10)] for q, text in texts.items()}, name="bm25")

    result = evaluate_perturbations(
        queries, answer(queries), answer, PerturbationOptions(["swap", "upper case"], rate=0.5, seeds=2)
    )
    assert result[0].difference.high < 0
    assert result[1].difference.value == 0
