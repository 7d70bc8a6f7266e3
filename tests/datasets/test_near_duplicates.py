"""Texts that are nearly the same: what MinHash finds is what comparing every pair finds, whatever the texts are."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from ragauge.core.text import shingles
from ragauge.datasets import corpus_checks


def jaccard(one: str, other: str) -> float:
    mine, theirs = shingles(one), shingles(other)
    return len(mine & theirs) / len(mine | theirs) if mine | theirs else 0.0


def written(rng: random.Random, length: int) -> list[str]:
    return [f"w{rng.randrange(400)}" for _ in range(length)]


def test_every_pair_that_brute_force_finds_is_in_a_group_and_no_other_is():
    rng = random.Random(7)
    texts = [" ".join(written(rng, rng.randint(5, 60))) for _ in range(150)]
    for _ in range(60):
        changed = rng.choice(texts[:150]).split()
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = "other"
        texts.append(" ".join(changed))
    groups = corpus_checks.find_near_duplicates(texts)
    together = {frozenset((group.group[0], one)) for group in groups for one in group.group[1:]}
    pairs = {
        frozenset(pair) for pair in combinations(range(len(texts)), 2) if jaccard(*(texts[i] for i in pair)) >= 0.8
    }
    assert together <= pairs
    assert {one for pair in pairs for one in pair} == {one for group in groups for one in group.group}
    for group in groups:
        assert group.part == min(jaccard(texts[group.group[0]], texts[one]) for one in group.group[1:])


def test_a_chain_of_small_changes_does_not_join_texts_that_have_nothing_in_common():
    whole = [f"w{i}" for i in range(400)]
    chain = [" ".join(whole[start : start + 100]) for start in range(0, 300, 10)]
    for group in corpus_checks.find_near_duplicates(chain):
        assert all(
            jaccard(chain[group.group[0]], chain[one]) >= corpus_checks.NEAR_DUPLICATE_JACCARD for one in group.group
        )


def test_shorter_texts_than_a_shingle_are_compared_whole_and_empty_ones_not_at_all():
    assert [one.group for one in corpus_checks.find_near_duplicates(["a b", "A  b!", "a", "", "...", "b a"])] == [
        [0, 1]
    ]
    assert corpus_checks.find_near_duplicates([]) == []


def test_another_threshold_finds_what_shares_less():
    base = [f"w{i}" for i in range(40)]
    less = [*base[:32], *(f"x{i}" for i in range(8))]
    texts = [" ".join(base), " ".join(less)]
    assert 0.6 < jaccard(*texts) < 0.8
    assert corpus_checks.find_near_duplicates(texts) == []
    assert [one.group for one in corpus_checks.find_near_duplicates(texts, min_jaccard=0.6)] == [[0, 1]]


def test_a_template_that_thousands_share_is_one_group():
    words = [f"w{i}" for i in range(100)]
    texts = [" ".join([*words, f"number{i}"]) for i in range(2000)]
    (group,) = corpus_checks.find_near_duplicates(texts)
    assert len(group.group) == 2000


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=60), max_size=12))
def test_any_texts_can_be_compared_and_the_same_texts_give_the_same_groups(texts):
    groups = corpus_checks.find_near_duplicates(texts)
    assert groups == corpus_checks.find_near_duplicates(texts)
    same, empty = corpus_checks.find_exact_duplicates(texts)
    assert not {one for group in same for one in group} & set(empty)
    for group in groups:
        assert all(
            jaccard(texts[group.group[0]], texts[one]) >= corpus_checks.NEAR_DUPLICATE_JACCARD
            for one in group.group[1:]
        )


def test_progress_hears_how_many_texts_are_read():
    heard: list[tuple[int, int]] = []
    corpus_checks.find_near_duplicates(
        ["some words here"] * 3, progress=lambda step: heard.append((step.done, step.total))
    )
    assert heard == [(3, 3)]
