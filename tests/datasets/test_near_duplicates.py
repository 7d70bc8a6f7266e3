"""Near-duplicate texts: MinHash finds the texts that comparing every pair finds, and groups are stable."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from ragauge.core.text import shingles
from ragauge.datasets import corpus_checks


def compute_jaccard(first: str, second: str) -> float:
    first_shingles, second_shingles = shingles(first), shingles(second)
    return (
        len(first_shingles & second_shingles) / len(first_shingles | second_shingles)
        if first_shingles | second_shingles
        else 0.0
    )


def draw_words(rng: random.Random, length: int) -> list[str]:
    return [f"w{rng.randrange(400)}" for _ in range(length)]


def test_find_near_duplicates_matches_brute_force():
    rng = random.Random(7)
    texts = [" ".join(draw_words(rng, rng.randint(5, 60))) for _ in range(150)]
    for _ in range(60):
        changed = rng.choice(texts[:150]).split()
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = "other"
        texts.append(" ".join(changed))
    groups = corpus_checks.find_near_duplicates(texts)
    found_pairs = {frozenset((group.positions[0], position)) for group in groups for position in group.positions[1:]}
    pairs = {
        frozenset(pair)
        for pair in combinations(range(len(texts)), 2)
        if compute_jaccard(*(texts[i] for i in pair)) >= 0.8
    }
    assert found_pairs <= pairs
    assert {position for pair in pairs for position in pair} == {
        position for group in groups for position in group.positions
    }
    for group in groups:
        assert group.similarity == min(
            compute_jaccard(texts[group.positions[0]], texts[position]) for position in group.positions[1:]
        )


def test_find_near_duplicates_does_not_join_chain_of_small_changes():
    words = [f"w{i}" for i in range(400)]
    chain = [" ".join(words[start : start + 100]) for start in range(0, 300, 10)]
    for group in corpus_checks.find_near_duplicates(chain):
        assert all(
            compute_jaccard(chain[group.positions[0]], chain[position]) >= corpus_checks.NEAR_DUPLICATE_JACCARD
            for position in group.positions
        )


def test_find_near_duplicates_compares_short_texts_whole_and_ignores_empty():
    assert [
        group.positions for group in corpus_checks.find_near_duplicates(["a b", "A  b!", "a", "", "...", "b a"])
    ] == [[0, 1]]
    assert corpus_checks.find_near_duplicates([]) == []


def test_find_near_duplicates_lower_threshold_finds_more():
    base = [f"w{i}" for i in range(40)]
    changed = [*base[:32], *(f"x{i}" for i in range(8))]
    texts = [" ".join(base), " ".join(changed)]
    assert 0.6 < compute_jaccard(*texts) < 0.8
    assert corpus_checks.find_near_duplicates(texts) == []
    assert [group.positions for group in corpus_checks.find_near_duplicates(texts, min_jaccard=0.6)] == [[0, 1]]


def test_find_near_duplicates_shared_template_is_one_group():
    words = [f"w{i}" for i in range(100)]
    texts = [" ".join([*words, f"number{i}"]) for i in range(2000)]
    (group,) = corpus_checks.find_near_duplicates(texts)
    assert len(group.positions) == 2000


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=60), max_size=12))
def test_find_near_duplicates_random_texts_return_stable_groups(texts):
    groups = corpus_checks.find_near_duplicates(texts)
    assert groups == corpus_checks.find_near_duplicates(texts)
    exact_groups, empty = corpus_checks.find_exact_duplicates(texts)
    assert not {position for group in exact_groups for position in group} & set(empty)
    for group in groups:
        assert all(
            compute_jaccard(texts[group.positions[0]], texts[position]) >= corpus_checks.NEAR_DUPLICATE_JACCARD
            for position in group.positions[1:]
        )


def test_find_near_duplicates_reports_progress():
    steps: list[tuple[int, int]] = []
    corpus_checks.find_near_duplicates(
        ["some words here"] * 3, progress=lambda step: steps.append((step.done, step.total))
    )
    assert steps == [(3, 3)]
