"""Query perturbations: expected texts of each kind, and properties of random texts."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets.perturbations import (
    ACCENTED_LETTERS,
    FULL_WIDTH_CODES,
    KEY_NEIGHBOURS,
    KEYBOARD_ROWS,
    LOOKALIKE_LETTERS,
    PERTURBATIONS,
    WORD_PATTERN,
    ZERO_WIDTH_SPACE,
    find_perturbation,
    perturb,
    perturb_dataset,
)

TYPOS = ("keyboard", "swap", "drop", "double", "insert", "typos")
LETTER_KINDS = ("keyboard", "accents added", "look alikes")
"""Perturbations that replace a letter by another one."""
RATE_KINDS = (*TYPOS, "accents added", "look alikes", "full width", "zero width", "split words")
WORD_KINDS = tuple(name for name in PERTURBATIONS if name not in ("joined words", "split words", "no punctuation"))
ENGLISH_WORDS = st.lists(st.text("abcdefghijklmnopqrstuvwxyzABCDEFG", min_size=1, max_size=9), min_size=1, max_size=12)
RARITY = {"reverse": 3, "list": 40, "the": 900, "in": 950, "place": 12}


FEW_EXAMPLES = settings(max_examples=25)
"""Number of texts per perturbation."""


def perturb_text(text: str, kind: str, **options) -> str:
    return perturb({"q": text}, kind, rarity=options.pop("rarity", RARITY), **options)["q"]


def edit_distance(left: str, right: str) -> int:
    """Return the edit distance of two words, with swaps of neighbouring letters (optimal string alignment)."""
    rows = {(i, 0): i for i in range(len(left) + 1)} | {(0, j): j for j in range(len(right) + 1)}
    for i in range(1, len(left) + 1):
        for j in range(1, len(right) + 1):
            rows[i, j] = min(rows[i - 1, j] + 1, rows[i, j - 1] + 1, rows[i - 1, j - 1] + (left[i - 1] != right[j - 1]))
            if i > 1 and j > 1 and left[i - 2 : i] == right[j - 2 : j][::-1]:
                rows[i, j] = min(rows[i, j], rows[i - 2, j - 2] + 1)
    return rows[len(left), len(right)]


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("upper case", "Straße in Ruins", "STRASSE IN RUINS"),
        ("lower case", "Open The FILE", "open the file"),
        ("alternating case", "open a file", "oPeN a FiLe"),
        ("accents removed", "café naïve Łódź हिन्दी", "cafe naive Łodz हिन्दी"),
        ("decomposed", "caf\u00e9", "cafe\u0301"),
        ("double spaces", "open  the file", "open    the  file"),
        ("tabs", "open the file", "open\tthe\tfile"),
        ("no punctuation", "What's os.path.join('a', b)?", "Whats os path join a b"),
        ("no punctuation", "my_name -- or +my_name?", "my_name or my_name"),
    ],
)
def test_perturb_deterministic_kinds_return_expected_text(kind, before, after):
    assert perturb_text(before, kind) == after
    assert not PERTURBATIONS[kind].draws


@pytest.mark.parametrize(
    ("kind", "possible"),
    [
        ("swap", {"ilst", "lsit", "lits"}),
        ("drop", {"ist", "lst", "lit", "lis"}),
        ("double", {"llist", "liist", "lisst", "listt"}),
        ("split words", {"l ist", "li st", "lis t"}),
        ("zero width", {"l\u200bist", "li\u200bst", "lis\u200bt"}),
        ("full width", {"\uff4c\uff49\uff53\uff54"}),
        ("keyboard", {f"{a}ist" for a in "kop"} | {f"l{a}st" for a in "uojk"} | {f"li{a}t" for a in "adwezx"}
         | {f"lis{a}" for a in "ryfg"}),
        ("accents added", {f"l{a}st" for a in "\u00ec\u00ed\u00ee\u00ef"}),
        ("look alikes", {"l\u0456st", "li\u0455t"}),
    ],
)  # fmt: skip
def test_perturb_over_many_seeds_returns_every_possible_variant(kind, possible):
    assert {perturb_text("list", kind, seed=seed) for seed in range(300)} == possible


def test_perturb_insert_adds_neighbouring_key():
    found = {perturb_text("at", "insert", seed=seed) for seed in range(300)}
    near_a, near_t = "sqwz", "ryfg"
    assert found == {f"{x}at" for x in near_a} | {f"a{x}t" for x in near_a + near_t} | {f"at{x}" for x in near_t}


def test_key_neighbours_match_keyboard_layout():
    assert set(KEY_NEIGHBOURS["g"]) == set("fhtyvb")
    assert set(KEY_NEIGHBOURS["q"]) == set("wa")
    assert set(KEY_NEIGHBOURS["m"]) == set("njk")
    assert set(KEY_NEIGHBOURS["5"]) == set("46")
    assert set(KEY_NEIGHBOURS) == set("".join(KEYBOARD_ROWS))
    for key, near in KEY_NEIGHBOURS.items():
        assert all(key in KEY_NEIGHBOURS[other] for other in near), key


def test_perturb_keyboard_keeps_upper_case():
    assert {perturb_text("GGG", "keyboard", seed=seed).isupper() for seed in range(20)} == {True}


def test_lookalike_and_accented_letters_have_expected_unicode_names():
    for letter, others in LOOKALIKE_LETTERS.items():
        for other in others:
            assert unicodedata.name(other).startswith(("CYRILLIC", "GREEK"))
            assert other.isupper() == letter.isupper()
    for letter, others in ACCENTED_LETTERS.items():
        for other in others:
            assert len(other) == 1
            assert unicodedata.normalize("NFD", other)[0] == letter
    assert all(unicodedata.normalize("NFKC", chr(wide)) == chr(code) for code, wide in FULL_WIDTH_CODES.items())
    assert unicodedata.name(ZERO_WIDTH_SPACE) == "ZERO WIDTH SPACE"


@pytest.mark.parametrize("kind", RATE_KINDS)
@FEW_EXAMPLES
@given(words=ENGLISH_WORDS, rate=st.floats(0.01, 1), seed=st.integers(0, 3))
def test_perturb_rate_sets_number_of_changed_words(kind, words, rate, seed):
    before = " ".join(words)
    after = perturb_text(before, kind, rate=rate, seed=seed)
    changeable = [word for word in words if perturb_text(word, kind) != word]
    longest = min(3, max(map(len, changeable), default=0))
    changeable = [word for word in changeable if len(word) >= longest]
    expected = min(len(changeable), max(1, int(rate * len(changeable) + 0.5)))
    if kind == "split words":
        assert len(after.split()) - len(words) == expected
    else:
        assert sum(a != b for a, b in zip(words, after.split(), strict=True)) == expected


@pytest.mark.parametrize("kind", TYPOS)
@FEW_EXAMPLES
@given(words=ENGLISH_WORDS, seed=st.integers(0, 3))
def test_perturb_typo_is_one_edit_per_word(kind, words, seed):
    after = perturb_text(" ".join(words), kind, rate=1, seed=seed).split()
    assert {edit_distance(a, b) for a, b in zip(words, after, strict=True)} <= {0, 1}


@pytest.mark.parametrize("kind", LETTER_KINDS)
@FEW_EXAMPLES
@given(words=ENGLISH_WORDS, seed=st.integers(0, 3))
def test_perturb_letter_replacement_keeps_length_and_case(kind, words, seed):
    before = " ".join(words)
    after = perturb_text(before, kind, rate=1, seed=seed)
    assert len(after) == len(before)
    assert [letter.isupper() for letter in after] == [letter.isupper() for letter in before]


@pytest.mark.parametrize("kind", PERTURBATIONS)
@FEW_EXAMPLES
@given(texts=st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=5), seed=st.integers(0, 9))
def test_perturb_random_text_is_deterministic_and_never_empty(kind, texts, seed):
    options = {"rate": 0.5, "seed": seed, "rarity": RARITY}
    found = perturb(texts, kind, **options)
    backwards = perturb(dict(reversed(texts.items())), kind, **options)
    assert backwards == found
    assert list(found) == list(texts)
    for query, text in texts.items():
        assert perturb({query: text}, kind, **options)[query] == found[query]
        assert bool(found[query].strip()) == bool(text.strip())


@pytest.mark.parametrize("kind", WORD_KINDS)
@FEW_EXAMPLES
@given(words=ENGLISH_WORDS, seed=st.integers(0, 3))
def test_perturb_keeps_number_of_words(kind, words, seed):
    assert len(perturb_text(" ".join(words), kind, rate=0.7, seed=seed).split()) == len(words)


@given(words=ENGLISH_WORDS, rate=st.floats(0.01, 1), seed=st.integers(0, 3))
def test_perturb_joined_or_split_words_keep_letters(words, rate, seed):
    before = " ".join(words)
    for kind in ("joined words", "split words"):
        assert perturb_text(before, kind, rate=rate, seed=seed).replace(" ", "") == before.replace(" ", "")
    gaps = len(words) - 1
    n_joined = min(gaps, max(1, int(rate * gaps + 0.5)))
    assert len(perturb_text(before, "joined words", rate=rate, seed=seed).split()) == len(words) - n_joined


@pytest.mark.parametrize("kind", [name for name in RATE_KINDS if name != "split words"])
@FEW_EXAMPLES
@given(words=ENGLISH_WORDS, seed=st.integers(0, 3))
def test_perturb_higher_rate_extends_lower_rate_changes(kind, words, seed):
    before = " ".join(words)
    low_rate, high_rate = (perturb_text(before, kind, rate=rate, seed=seed).split() for rate in (0.3, 0.8))
    assert all(a in (b, word) for word, a, b in zip(words, low_rate, high_rate, strict=True))


@given(text=st.text(max_size=40))
def test_perturb_case_kinds_change_only_case(text):
    ascii_letters = [letter for letter in text if letter.isascii()]
    for kind in ("upper case", "lower case", "random case", "alternating case"):
        assert perturb_text("".join(ascii_letters), kind).casefold() == "".join(ascii_letters).casefold()


@given(text=st.text(max_size=40))
def test_perturb_no_punctuation_keeps_words_and_removes_marks(text):
    after = perturb_text(text, "no punctuation")
    letters = Counter("".join(WORD_PATTERN.findall(text)))
    assert Counter("".join(WORD_PATTERN.findall(after))) == letters
    if letters:
        assert not [mark for mark in after if mark != "_" and unicodedata.category(mark)[0] in "PS"]


@given(text=st.text(max_size=40))
def test_perturb_decomposed_text_is_canonically_equal(text):
    assert unicodedata.normalize("NFC", perturb_text(text, "decomposed")) == unicodedata.normalize("NFC", text)


def test_perturb_rare_and_common_word_follow_document_frequency():
    text = "reverse the list in place"
    rare, common = perturb_text(text, "rare word").split(), perturb_text(text, "common word").split()
    assert rare[1:] == text.split()[1:]
    assert edit_distance(rare[0], "reverse") == 1
    assert common[0] == "reverse"
    assert edit_distance(common[1], "the") == 1, "`in` is in more documents, but has only two letters"


def test_perturb_rare_word_prefers_words_in_corpus():
    text = "frobnicate the Reverse"
    assert perturb_text(text, "rare word").split()[:2] == ["frobnicate", "the"]
    assert perturb_text("frobnicate", "rare word") != "frobnicate"
    with pytest.raises(MissingEvidence, match="number of documents with each word"):
        perturb({"q": text}, "rare word")


def test_perturb_changes_short_words_only_without_longer_ones():
    assert {perturb_text("go to sleep", "drop", seed=seed).split()[:2] == ["go", "to"] for seed in range(20)} == {True}
    assert perturb_text("go", "drop") in ("g", "o")
    assert perturb_text("a", "drop") == "a", "the text must not become empty"
    assert perturb_text("+ +", "typos") == "+ +"
    assert perturb_text("++", "no punctuation") == "++"


def test_perturb_draws_differ_by_seed_and_query():
    text = "several words that could all be mistyped in very many ways"
    assert len({perturb_text(text, "typos", seed=seed) for seed in range(10)}) == 10
    found = perturb({str(i): text for i in range(10)}, "typos")
    assert len(set(found.values())) == 10


def test_perturb_is_equal_in_another_process():
    """String hashes differ between processes, but draws must not."""
    call = "perturbed({'q': 'several words here'}, 'typos', rate=1)"
    code = f"from ragauge.datasets.perturbations import perturb as perturbed; print({call})"
    outputs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in "ab"
    }
    assert outputs == {f"{perturb({'q': 'several words here'}, 'typos', rate=1)}\n"}


def test_find_perturbation_normalizes_names_and_rejects_unknown():
    assert find_perturbation("Upper-Case")[0] == find_perturbation("upper_case")[0] == "upper case"
    with pytest.raises(UnknownName, match=r"unknown perturbation `kebyoard`(?s:.*)did you mean `keyboard`"):
        perturb({"q": "text"}, "kebyoard")
    for rate in (0, -1, 1.5, float("nan")):
        with pytest.raises(BadInput, match="the rate must be above 0"):
            perturb({"q": "text"}, "swap", rate=rate)


def test_perturbations_describe_themselves_and_match_draws():
    for name, perturbation in PERTURBATIONS.items():
        assert perturbation.about, name
        assert perturbation.reach in ("words", "text", "word"), name
        assert name == re.sub(r"[\s_-]+", " ", name)
        variants = {perturb_text("reverse the list in place", name, seed=seed) for seed in range(12)}
        assert (len(variants) > 1) == perturbation.draws, name


def test_perturb_dataset_changes_only_queries():
    data = Dataset("mine", [], {"q": "reverse a list"}, Judgments({"q": {"d": 1}}), origin="somewhere")
    perturbed = perturb_dataset(data, "upper-case")
    assert perturbed.name == "mine (upper case)"
    assert perturbed.queries == {"q": "REVERSE A LIST"}
    assert perturbed.judgments is data.judgments
    assert perturbed.origin == ""
    assert data.queries == {"q": "reverse a list"}
