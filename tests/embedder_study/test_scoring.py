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


def field(
    documents: int, grades: dict[str, dict[str, float]], measures=("recall@3", "mrr@3"), k=3, **more
) -> RankingTask:
    """Build a ranking task with documents d0, d1, … and the judged queries."""
    named = parse_measure_names(list(measures), RULES)
    return RankingTask([f"d{i}" for i in range(documents)], list(grades), Judgments(grades), named, RULES, k, **more)


def means_of(scores, confidence: float = 0.95):
    return all_means_with_intervals([scores], confidence)[0]


def chance(queries: int, documents: int, dimensions: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(queries, dimensions)).astype(np.float32),
        rng.normal(size=(documents, dimensions)).astype(np.float32),
    )


def judged(queries: int, documents: int, each: int = 3, seed: int = 0) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(seed)
    return {
        f"q{q}": {f"d{d}": 1.0 for d in rng.choice(documents, each, replace=False).tolist()} for q in range(queries)
    }


def brute_force(queries, documents, k):
    """Rank by cosine in double precision, one pair at a time; ties keep document order."""
    found = []
    for query in np.asarray(queries, np.float64):
        near = []
        for row, document in enumerate(np.asarray(documents, np.float64)):
            size = math.sqrt(float(query @ query)) * math.sqrt(float(document @ document))
            near.append((-float(query @ document) / size, row))
        found.append([row for _, row in sorted(near)[:k]])
    return found


@pytest.mark.parametrize(("queries", "documents", "dimensions"), [(3, 40, 5), (30, 200, 17), (12, 4, 3)])
def test_rankings_match_brute_force_in_double_precision(queries, documents, dimensions):
    asked, base = chance(queries, documents, dimensions)
    positions, cosines = field(documents, judged(queries, documents), k=7, measures=["recall@7"]).rankings(asked, base)
    width = min(7, documents)
    assert positions[:, :width].tolist() == brute_force(asked, base, 7)
    assert (positions[:, width:] == -1).all()
    lengths = np.linalg.norm(asked, axis=1)[:, None] * np.linalg.norm(base, axis=1)
    true = np.take_along_axis((asked @ base.T) / lengths, positions[:, :width], 1)
    assert cosines[:, :width] == pytest.approx(true, abs=1e-5)


def test_rankings_with_ties_match_exact_store():
    asked, base = chance(20, 60, 4)
    base[30:] = base[:30] * 2  # duplicate directions, which give ties
    store = ExactStore()
    store.add([f"d{i}" for i in range(60)], base)
    ids, _ = store.search(asked, 9)
    positions, _ = field(60, judged(20, 60), k=9, measures=["recall@9"]).rankings(asked, base)
    assert [[f"d{row}" for row in rows] for rows in positions.tolist()] == ids.tolist()


def test_scores_match_evaluate_of_same_ranking():
    asked, base = chance(25, 80, 6)
    grades = judged(25, 80)
    one = field(80, grades, ["ndcg@10", "recall@10", "mrr@10", "precision@5", "map"], k=10)
    positions, _ = one.rankings(asked, base)
    run = {
        q: {f"d{row}": -float(at) for at, row in enumerate(rows)}
        for q, rows in zip(grades, positions.tolist(), strict=True)
    }
    told = ragauge.evaluate(grades, run, ["ndcg@10", "recall@10", "mrr@10", "precision@5", "map"])
    found = one.scores(asked, base, name="mine")
    assert dict(found.means) == dict(told.means)
    assert found.queries == told.queries
    assert {m: column.tolist() for m, column in found.values.items()} == {m: c.tolist() for m, c in told.values.items()}
    listed = {q: [f"d{row}" for row in rows] for q, rows in zip(grades, positions.tolist(), strict=True)}
    assert dict(one.scored(listed, name="listed").means) == dict(told.means)


def test_query_without_vector_counts_as_miss():
    base = np.eye(3, dtype=np.float32)
    asked = np.array([[1, 0, 0], [0, 0, 0], [0, math.nan, 1], [math.inf, 0, 0]], np.float32)
    one = field(3, {f"q{i}": {"d0": 1.0} for i in range(4)}, ["mrr@3"])
    positions, cosines = one.rankings(asked, base)
    assert positions[0, 0] == 0
    assert (positions[1:] == -1).all()
    assert np.isnan(cosines[1:]).all()
    found = one.scores(asked, base, name="mine")
    assert found.per_query["mrr@3"] == {"q0": 1.0, "q1": 0.0, "q2": 0.0, "q3": 0.0}
    assert means_of(found)["mrr@3"][:2] == (0.25, 4)


@pytest.mark.parametrize("missing", ["zero", "skip", "error"])
def test_query_without_vector_counts_as_miss_in_every_convention(missing):
    rules = Convention(missing=missing)
    one = RankingTask(
        ["a"], ["p", "q"], Judgments({"p": {"a": 1}, "q": {"a": 1}}), parse_measure_names(["mrr@1"], rules), rules, 1
    )
    assert one.scores([[1.0], [0.0]], [[1.0]], name="mine").means == {"mrr@1": 0.5}
    assert one.scored({"p": ["a"]}, name="mine").means == {"mrr@1": 0.5}


def test_document_without_vector_is_never_ranked():
    base = np.array([[1, 0], [0, 0], [math.nan, 1], [0.9, 0.1], [-1, 0]], np.float32)
    asked = np.array([[1, 0]], np.float32)
    positions, _ = field(5, {"q": {"d1": 1.0}}, ["recall@5"], k=5).rankings(asked, base)
    assert positions.tolist() == [[0, 3, 4, -1, -1]]
    none = field(5, {"q": {"d1": 1.0}}, ["recall@5"], k=5).scores(asked, np.zeros((5, 2)), name="none")
    assert none.means == {"recall@5": 0.0}


def test_rankings_among_rows_return_only_these_documents():
    asked, base = chance(10, 50, 4)
    rows = np.array([3, 7, 20, 21, 49])
    positions, _ = field(50, judged(10, 50)).rankings(asked, base, among=rows)
    inside = brute_force(asked, base[rows], 3)
    assert positions.tolist() == [[int(rows[at]) for at in mine] for mine in inside]


def test_rankings_omit_query_that_is_the_same_document():
    base = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
    grades = {"d0": {"d1": 1.0}, "q": {"d0": 1.0}}
    one = field(3, grades, ["mrr@2"], k=2, queries_in_corpus=frozenset(["d0"]))
    positions, _ = one.rankings([[1, 0], [1, 0]], base)
    assert positions.tolist() == [[1, 2], [0, 1]]
    assert one.scores([[1, 0], [1, 0]], base, name="mine").means == {"mrr@2": 1.0}


def test_scores_mismatched_shapes_or_deep_cutoff_raise_error():
    one = field(3, {"q": {"d0": 1.0}})
    with pytest.raises(BadInput, match="not one row for each of 3 documents"):
        one.scores(np.ones((1, 2)), np.ones((2, 2)), name="mine")
    with pytest.raises(BadInput, match="query vectors have 3 dimensions, document vectors 2"):
        one.scores(np.ones((1, 3)), np.ones((3, 2)), name="mine")
    with pytest.raises(BadInput, match="recall@5 needs 5 documents per query, but k is 3"):
        field(3, {"q": {"d0": 1.0}}, ["recall@5"], k=3)


def test_all_means_with_intervals_match_mean_intervals():
    asked, base = chance(40, 60, 5)
    one = field(60, judged(40, 60))
    several = [one.scores(asked, base, name="a"), one.scores(-asked, base, name="b")]
    together = all_means_with_intervals(several, 0.9)
    for scores, found in zip(several, together, strict=True):
        assert found == means_of(scores, 0.9)
        for measure, mean in found.items():
            low, high = mean_intervals(scores.values[measure][:, None], 0.9).ravel()
            assert mean == (pytest.approx(scores.means[measure]), 40, pytest.approx(low), pytest.approx(high))


def test_means_without_values_are_nan():
    rules = Convention(none="skip")
    one = RankingTask(["a"], ["p"], Judgments({"p": {"a": 0}}), parse_measure_names(["recall@1"], rules), rules, 1)
    found = means_of(one.scores([[1.0]], [[1.0]], name="mine"))["recall@1"]
    assert found.n == 0
    assert math.isnan(found.value)
    assert math.isnan(found.low)


def test_differences_from_baseline_match_compare_with_holm_correction():
    asked, base = chance(40, 60, 5)
    one = field(60, judged(40, 60))
    others = {
        "b": one.scores(asked[::-1], base, name="b"),
        "c": one.scores(np.roll(asked, 1, axis=0), base, name="c"),
    }
    mine = one.scores(asked, base, name="a")
    found = differences_from_baseline(others, mine)
    told = ragauge.compare({"a": mine, **others}, baseline="a")
    assert set(found) == {"b", "c"}
    for name, measures in found.items():
        for measure, one_gap in measures.items():
            row = told.find(name, measure)
            assert one_gap == (row.difference, *row.ci, row.p_t, row.p_corrected, row.n)
    raw = sorted(found[name]["mrr@3"].p for name in found)
    holm = sorted(found[name]["mrr@3"].p_corrected for name in found)
    assert holm[0] == pytest.approx(min(1, 2 * raw[0]))
    assert holm[1] == pytest.approx(min(1, max(2 * raw[0], raw[1])))


def test_differences_from_baseline_average_seeds_of_a_system():
    asked, base = chance(40, 60, 5)
    one = field(60, judged(40, 60), ["mrr@3"])
    seeds = [one.scores(np.roll(asked, by, axis=0), base, name="b") for by in (1, 2, 3)]
    mine = one.scores(asked, base, name="a")
    found = differences_from_baseline({"b": seeds}, mine)["b"]["mrr@3"]
    values = np.mean([scores.values["mrr@3"] for scores in seeds], axis=0)
    assert found.value == pytest.approx(float((values - mine.values["mrr@3"]).mean()))
    row = ragauge.compare({"a": [mine], "b": seeds}, baseline="a").find("b")
    assert (found.low, found.high, found.p) == (*row.ci, row.p_t)


def test_principal_directions_match_truncated_svd():
    decomposition = pytest.importorskip("sklearn.decomposition")
    _, base = chance(1, 300, 12)
    documents = normalise_vectors(base * np.arange(1, 13, dtype=np.float32) + 2)
    oracle = decomposition.TruncatedSVD(6, algorithm="arpack", random_state=0).fit(documents.astype(np.float64))
    mine = principal_directions(documents)[:, :6]
    assert np.abs((mine * oracle.components_.T).sum(axis=0)) == pytest.approx(np.ones(6), abs=1e-6)
    assert mine.T @ mine == pytest.approx(np.eye(6), abs=1e-9)


def test_principal_directions_of_centred_documents_match_pca():
    decomposition = pytest.importorskip("sklearn.decomposition")
    _, base = chance(1, 200, 8)
    base = base * np.arange(1, 9)
    base -= base.mean(axis=0)
    oracle = decomposition.PCA(4).fit(base)
    mine = principal_directions(base)[:, :4]
    assert np.abs((mine * oracle.components_.T).sum(axis=0)) == pytest.approx(np.ones(4), abs=1e-6)


def test_principal_directions_ignore_unusable_rows():
    _, base = chance(1, 50, 4)
    spoilt = np.concatenate([base, np.full((1, 4), math.nan, np.float32), np.zeros((1, 4), np.float32)])
    assert principal_directions(spoilt) == pytest.approx(principal_directions(base))


def test_evaluate_compression_all_dimensions_lose_nothing():
    asked, base = chance(30, 100, 20)
    one = field(100, judged(30, 100), ["recall@10", "mrr@10"], k=10)
    found = evaluate_compression(one, asked, base, CompressionOptions([20], precisions=["float32"]))
    whole = means_of(one.scores(asked, base, name="whole"))
    assert [(row.method, row.dimension, row.bytes) for row in found] == [("pca", 20, 80), ("first", 20, 80)]
    for row in found:
        assert {m: mean.value for m, mean in row.means.items()} == {m: mean.value for m, mean in whole.items()}


def test_evaluate_compression_low_rank_documents_lose_nothing():
    rng = np.random.default_rng(1)
    plane = rng.normal(size=(3, 32))
    asked, base = rng.normal(size=(30, 3)) @ plane, rng.normal(size=(100, 3)) @ plane
    one = field(100, judged(30, 100), ["recall@10"], k=10)
    found = {
        (row.method, row.dimension): row.means["recall@10"].value
        for row in evaluate_compression(one, asked, base, CompressionOptions([3], precisions=["float32"]))
    }
    assert found["pca", 3] == found["pca", 32] == found["first", 32]


def test_evaluate_compression_first_uses_leading_dimensions():
    asked, base = chance(30, 100, 20)
    one = field(100, judged(30, 100), ["recall@10"], k=10)
    found = evaluate_compression(one, asked, base, CompressionOptions([5], methods=["first"], precisions=["float32"]))
    # The vectors are normalised before, which does not change the cosines of their leading dimensions.
    assert found[0].means == means_of(one.scores(asked[:, :5], base[:, :5], name="cut"))


def test_int8_precision_has_127_steps_of_largest_document_value():
    documents = np.array([[1.0, -2.0], [0.5, 0.0], [-0.25, 1.0]], np.float32)
    keep = PRECISIONS["int8"].keep
    step = np.array([1, 2]) / 127
    assert keep(documents, documents) == pytest.approx(np.array([[127, -127], [64, 0], [-32, 64]]) * step, abs=1e-6)
    assert keep(np.array([[9.0, -0.011]], np.float32), documents) == pytest.approx(np.array([[127, -1]]) * step)
    # A dimension that is 0 in all documents becomes 0 in queries, too.
    flat = np.array([[1.0, 0.0]], np.float32)
    assert keep(np.array([[1.0, 5.0]], np.float32), flat).tolist() == [[1.0, 0.0]]


def test_bit_precision_is_sign_of_difference_from_document_mean():
    documents = np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)
    assert PRECISIONS["bit"].keep(documents, documents).tolist() == [[-1, -1], [1, -1]]
    assert PRECISIONS["bit"].keep(np.array([[2.5, 6.0]], np.float32), documents).tolist() == [[1, 1]]


def test_evaluate_compression_bits_rank_by_hamming_distance():
    asked, base = (normalise_vectors(side) for side in chance(15, 60, 12))
    one = field(60, judged(15, 60), ["recall@5"], k=5)
    found = evaluate_compression(one, asked, base, CompressionOptions([], methods=["first"], precisions=["bit"]))[0]
    middle = base.mean(axis=0, dtype=np.float64)
    differing = ((asked > middle)[:, None, :] != (base > middle)[None, :, :]).sum(axis=2)
    nearest = np.argsort(differing, axis=1, kind="stable")[:, :5]
    listed = {f"q{q}": [f"d{row}" for row in rows] for q, rows in enumerate(nearest.tolist())}
    assert found.means == means_of(one.scored(listed, name="hamming"))
    assert found.bytes == 2


def test_float16_precision_rounds_to_float16():
    value = np.array([[0.1, 1.0]], np.float32)
    assert PRECISIONS["float16"].keep(value, value).tolist() == [[float(np.float16(0.1)), 1.0]]


def test_vector_bytes_and_compression_rows_by_hand():
    assert [vector_bytes(12, kind) for kind in PRECISIONS] == [48, 24, 12, 2]
    asked, base = chance(5, 30, 20)
    found = evaluate_compression(field(30, judged(5, 30)), asked, base)
    assert [(row.method, row.dimension, row.precision, row.bytes) for row in found[:5]] == [
        ("pca", 8, "float32", 32),
        ("pca", 8, "float16", 16),
        ("pca", 8, "int8", 8),
        ("pca", 8, "bit", 1),
        ("pca", 16, "float32", 64),
    ]
    assert len(found) == 2 * 3 * 4
    assert all(mean.n == 5 for row in found for mean in row.means.values())


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize("how", ["pca", "first"])
def test_evaluate_compression_ignores_unusable_vectors(how, kind):
    asked, base = chance(4, 30, 6)
    asked[1], asked[2, 3], base[7], base[8, 0] = 0, math.nan, 0, math.inf
    grades = {f"q{i}": {"d7": 1.0, "d8": 1.0} for i in range(4)}
    found = evaluate_compression(
        field(30, grades, ["recall@30", "num_ret"], k=30),
        asked,
        base,
        CompressionOptions([3], methods=[how], precisions=[kind]),
    )
    for row in found:
        assert row.means["recall@30"].value == 0
        assert row.means["num_ret"].value == 2 * 28


def test_normalise_vectors_handles_very_long_and_short_vectors():
    rows = np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 0]], np.float32)
    found = normalise_vectors(rows)
    assert found[:2] == pytest.approx(np.array([[0.6, 0.8]] * 2))
    assert np.isnan(found[2]).all()
    assert usable_rows(rows).tolist() == [True, True, False]


def test_evaluate_compression_unknown_method_or_precision_raises_error():
    one = field(3, {"q": {"d0": 1.0}})
    asked, base = chance(1, 3, 4)
    with pytest.raises(UnknownName, match="unknown reduction method `last`"):
        evaluate_compression(one, asked, base, CompressionOptions(methods=["last"]))
    with pytest.raises(UnknownName, match=r"unknown precision `int4`(?s:.*)did you mean `int8`"):
        evaluate_compression(one, asked, base, CompressionOptions(precisions=["int4"]))
    with pytest.raises(BadInput, match="dimensions must be at least 1, got 0"):
        dimensions_to_try(4, [0, 2])


@given(st.integers(20, 60), st.lists(st.integers(0, 19), max_size=12), st.sets(st.integers(12, 70)), st.integers(0, 5))
@settings(max_examples=50)
def test_draw_corpus_samples_are_nested_and_keep_relevant_documents(documents, relevant, asked, seed):
    grades = {"q": {f"d{i}": 1.0 for i in relevant} | {"d19": 0.0 if 19 not in relevant else 1.0}}
    one = field(documents, grades)
    found = draw_corpus_samples(one, sorted(asked), seed)
    assert list(found) == sorted({size for size in asked if size < documents} | {documents})
    before: set[int] = set()
    for size, rows in found.items():
        assert len(rows) == len(set(rows.tolist())) == size
        assert rows.tolist() == sorted(rows.tolist())
        assert set(rows.tolist()) >= before | set(relevant)
        before = set(rows.tolist())


def test_draw_corpus_samples_is_seeded():
    one = field(200, {"q": {"d3": 1.0}})
    first, again, other = (draw_corpus_samples(one, [50], seed)[50].tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_draw_corpus_samples_too_small_raises_error():
    grades = {"q": {f"d{i}": 1.0 for i in range(800)}}
    one = field(2000, grades)
    with pytest.raises(BadInput, match=r"750 documents is too small: 800 documents are relevant(?s:.*)at least 800"):
        draw_corpus_samples(one, [750, 1500])
    assert list(draw_corpus_samples(one)) == [1500, 2000]
    assert list(draw_corpus_samples(field(2000, {"q": {"d0": 1.0}}))) == [750, 1500, 2000]
    assert list(draw_corpus_samples(field(1000, grades))) == [800, 900, 1000]
    assert list(draw_corpus_samples(field(800, grades))) == [800]


def test_evaluate_corpus_sizes_scores_fall_as_corpus_grows():
    asked, base = chance(60, 400, 8)
    near = {f"q{i}": {f"d{i}": 1.0} for i in range(60)}
    base[:60] = asked + np.random.default_rng(5).normal(size=asked.shape) * 1.2
    one = field(400, near, ["mrr@3"])
    found = evaluate_corpus_sizes(one, asked, base, [60, 150])
    assert [row.documents for row in found] == [60, 150, 400]
    values = [row.means["mrr@3"].value for row in found]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[2]
    assert found[-1].means["mrr@3"] == pytest.approx(means_of(one.scores(asked, base, name="whole"))["mrr@3"])
    rows = draw_corpus_samples(one, [60, 150])[150]
    by_hand = brute_force(asked, base[rows], 3)
    ranks = [[int(rows[at]) for at in mine] for mine in by_hand]
    expected = np.mean([1 / (1 + mine.index(i)) if i in mine else 0 for i, mine in enumerate(ranks)])
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


def shaking(of=TEXTS, **options):
    """Perturb the queries of BM25 over six documents, each relevant to one query.

    Return the results, the scores of unchanged queries, the scoring function, and the perturbed queries.
    """
    system = BM25(DOCUMENTS)
    one = field(6, {f"q{i}": {f"d{i}": 1.0} for i in range(6)}, ["mrr@3", "recall@3"])
    asked = []

    def answer(texts):
        asked.append(dict(texts))
        return one.scored({q: [hit.id for hit in system.search(text, 3)] for q, text in texts.items()}, name="bm25")

    clean = answer(of)
    found = evaluate_perturbations(
        of, clean, answer, PerturbationOptions(rarity=document_frequencies(d.text for d in DOCUMENTS), **options)
    )
    return found, clean, answer, asked[1:]


def test_evaluate_perturbations_truncates_queries_to_context():
    cut = {query: text[:11] for query, text in TEXTS.items()}
    made = perturb(cut, "double spaces")
    assert max(map(len, made.values())) > 11
    found, *_, asked = shaking(kinds=["double spaces"], context=11, of=cut)
    assert asked == [{query: text[:11] for query, text in made.items()}]
    assert found[0].changed == np.mean([made[query][:11] != cut[query] for query in cut])
    assert shaking(kinds=["double spaces"], of=cut)[-1] == [made]


def test_evaluate_perturbations_losses_match_compare_over_seeds():
    found, clean, answer, _ = shaking(kinds=["swap", "drop"], rate=1, seeds=4)
    assert [(row.name, row.seeds, row.rate, row.changed) for row in found] == [("swap", 4, 1, 1.0), ("drop", 4, 1, 1.0)]
    for row in found:
        by_seed = [answer(perturb(TEXTS, row.name, rate=1, seed=seed)).values["mrr@3"] for seed in range(4)]
        values = np.mean(by_seed, axis=0)
        assert row.mean[:2] == (pytest.approx(values.mean()), 6)
        sides = {"clean": clean.values["mrr@3"], "changed": values}
        named = {name: {str(i): float(one) for i, one in enumerate(column)} for name, column in sides.items()}
        told = ragauge.compare(named, baseline="clean").find("changed")
        assert row.difference[:4] == pytest.approx((told.difference, *told.ci, told.p_t))
        assert row.difference.value == pytest.approx(values.mean() - 1)
        assert row.difference.value < 0
        assert row.difference.low <= row.difference.value <= row.difference.high


def test_evaluate_perturbations_p_values_are_holm_corrected():
    found, *_ = shaking(kinds=["swap", "drop", "tabs", "accents removed"], rate=0.5)
    p = np.array([row.difference.p for row in found])
    order = np.argsort(p)
    holm = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(4, 0, -1)))
    assert [found[at].difference.p_corrected for at in order.tolist()] == pytest.approx(holm.tolist())


def test_evaluate_perturbations_unchanged_queries_have_nan_difference():
    small = ["lower case", "swap"]
    found, clean, _, asked = shaking(kinds=small, seeds=2)
    assert len(asked) == 2, "all queries are in lower case already"
    same = found[0]
    assert (same.changed, same.seeds) == (0.0, 1)
    assert same.mean.value == pytest.approx(clean.means["mrr@3"])
    assert all(math.isnan(one) for one in same.difference[:5])
    assert same.difference.n == 6
    assert found[1].difference.p_corrected == found[1].difference.p, "only one was tested"


def test_evaluate_perturbations_deterministic_kinds_run_once():
    found, clean, _, asked = shaking(kinds=["accents removed", "upper case"], seeds=5)
    assert [row.seeds for row in found] == [1, 1]
    assert len(asked) == 2
    accents, upper = found
    assert accents.changed == pytest.approx(1 / 6)
    assert accents.difference.value == pytest.approx(-1 / 6), "only `caf\u00e9` was found by its accent"
    assert upper.changed == 1.0
    assert upper.difference.value == 0.0
    assert upper.difference.p == 1.0

    def worse(texts):
        return field(6, {f"q{i}": {f"d{i}": 1.0} for i in range(6)}, ["mrr@3", "recall@3"]).scored({}, name="none")

    alone = evaluate_perturbations(TEXTS, clean, worse, PerturbationOptions(["accents removed"]))[0]
    assert alone.mean.value == pytest.approx(clean.means["mrr@3"] - 1 / 6)


def test_perturbation_rare_word_loses_more_than_common_word():
    found, *_ = shaking(kinds=["rare word", "common word"], seeds=5)
    assert math.isnan(found[0].rate)
    assert found[0].difference.value < 0
    assert found[0].difference.value <= found[1].difference.value


def test_evaluate_perturbations_uses_measure_and_rejects_other_queries():
    found, clean, answer, _ = shaking(kinds=["drop"], rate=1, measure="recall@3")
    assert found[0].mean.value == pytest.approx(
        np.mean(
            [answer(one).means["recall@3"] for one in (perturb(TEXTS, "drop", rate=1, seed=seed) for seed in range(3))]
        )
    )
    other = field(6, {"q0": {"d0": 1.0}}, ["mrr@3"]).scored({}, name="other")
    with pytest.raises(BadInput, match="cover different queries"):
        evaluate_perturbations(TEXTS, clean, lambda texts: other, PerturbationOptions(["drop"]))
    with pytest.raises(BadInput, match="seeds must be at least 1, got 0"):
        PerturbationOptions(seeds=0)
    with pytest.raises(UnknownName, match="unknown perturbation `shout`"):
        evaluate_perturbations(TEXTS, clean, answer, PerturbationOptions(["shout"]))


def test_evaluate_perturbations_default_kinds_report_progress():
    told: list[Progress] = []
    embedder = BagOfWordsEmbedder(dimensions=256)
    one = field(6, {f"q{i}": {f"d{i}": 1.0} for i in range(6)}, ["mrr@3"])
    base = embedder.embed([document.text for document in DOCUMENTS])

    def answer(texts):
        return one.scores(embedder.embed(list(texts.values())), base, name="words")

    rarity = document_frequencies(document.text for document in DOCUMENTS)
    found = evaluate_perturbations(
        TEXTS, answer(TEXTS), answer, PerturbationOptions(seeds=1, rarity=rarity), progress=told.append
    )
    assert [row.name for row in found] == list(DEFAULT_PERTURBATIONS)
    n = len(DEFAULT_PERTURBATIONS)
    assert told == [Progress("perturbing queries", i + 1, n) for i in range(n)]
    losses = {row.name: row.difference.value for row in found}
    assert losses["upper case"] == losses["double spaces"] == 0.0, "words are taken in lower case"
    assert losses["swap"] < 0


def test_document_frequencies_count_documents_not_occurrences():
    assert document_frequencies(["a box, a Box", "BOX", ""]) == {"a": 1, "box": 2}


def test_paired_t_test_over_seed_means_keeps_false_positive_rate():
    """Scores change per query but not on average, so about 5% of the tests should be significant."""
    rng = np.random.default_rng(3)
    alarms, rounds, n = 0, 300, 60
    for _ in range(rounds):
        clean = rng.normal(size=n)
        by_seed = clean + rng.normal(size=(3, n)) + 0.5 * rng.normal(size=n)
        gaps_of_queries = (by_seed.mean(axis=0) - clean)[:, None]
        alarms += int(t_test(gaps_of_queries)[0][0] < 0.05)
    assert 0.02 < alarms / rounds < 0.09


def test_perturbation_pydocs_bm25_loses_by_swap_but_not_by_case():
    data = ragauge.load("pydocs")
    queries = dict(list(data.queries.items())[:60])
    grades = {query: data.judgments.nested[query] for query in queries}
    named = parse_measure_names(["ndcg@10"], RULES)
    one = RankingTask([d.id for d in data.documents], list(queries), Judgments(grades), named, RULES, 10)
    system = BM25(data.documents)

    def answer(texts):
        return one.scored({q: [hit.id for hit in system.search(text, 10)] for q, text in texts.items()}, name="bm25")

    found = evaluate_perturbations(
        queries, answer(queries), answer, PerturbationOptions(["swap", "upper case"], rate=0.5, seeds=2)
    )
    assert found[0].difference.high < 0
    assert found[1].difference.value == 0
