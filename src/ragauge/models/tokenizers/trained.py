"""Train tokenizers on the corpus with Hugging Face's `tokenizers` library.

The result depends on the texts only, not on their order or the number of threads. Where the library uses the order of a
hash table, pieces are sorted before training (WordPiece) or afterwards (Unigram).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ragauge.core.errors import BadInput
from ragauge.core.text import replace_lone_surrogates
from ragauge.models.tokenizers import UntrainedTokenizer
from ragauge.models.tokenizers.huggingface import HuggingFaceTokenizer, import_tokenizers, tokenizer_fingerprint

GPT2_SPLIT_PATTERN = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Pattern by which GPT-2 splits a text before merging; it loses no characters."""
UNKNOWN_PIECE = "\uffff"
"""Unknown token. It is a noncharacter, which texts do not contain, unlike `<unk>`."""
MAX_ALPHABET_SIZE = 1000
"""Maximum number of letters of WordPiece, as in BERT."""
SCORE_DECIMALS = 9
"""Decimals of the scores of Unigram; further ones depend on the order in which threads add."""
LETTER_SCORE_STEP = 1e-4
"""Difference between the scores of the letters that the library appends."""


def bpe(*, vocabulary: int = 8000, kind: str = "bytes", least: int = 2) -> UntrainedTokenizer:
    """Create an untrained byte-pair encoding, which merges the most frequent pairs.

    Of equally frequent pairs, the one with older pieces is merged first; a pair must occur `least` times. `kind` is the
    initial alphabet: `bytes`, which cover every text, or the `characters` of the corpus, which do not.
    """
    if kind not in ("bytes", "characters"):
        raise BadInput(f"bpe: kind must be bytes or characters, got `{kind}`")
    if vocabulary < (fewest := 257 if kind == "bytes" else 3):
        raise BadInput(f"bpe: a vocabulary of {vocabulary} is too small", hint=f"at least {fewest} with kind={kind}")
    library = import_tokenizers()

    def learn(texts: Sequence[str]) -> HuggingFaceTokenizer:
        parts = library.pre_tokenizers
        options: dict[str, Any] = {"vocab_size": vocabulary, "min_frequency": least, "show_progress": False}
        if kind == "bytes":
            tokenizer = library.Tokenizer(library.models.BPE())
            tokenizer.pre_tokenizer = parts.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = library.decoders.ByteLevel()
            options["initial_alphabet"] = sorted(parts.ByteLevel.alphabet())
        else:
            tokenizer = library.Tokenizer(library.models.BPE(unk_token=UNKNOWN_PIECE))
            tokenizer.pre_tokenizer = parts.Split(library.Regex(GPT2_SPLIT_PATTERN), "isolated")
            tokenizer.decoder = library.decoders.Fuse()
            options |= {"special_tokens": [UNKNOWN_PIECE], "limit_alphabet": vocabulary - 2}
        _train_tokenizer(tokenizer, library.trainers.BpeTrainer(**options), texts)
        return _wrap_tokenizer("bpe" if kind == "bytes" else "bpe-characters", _without_special_tokens(tokenizer))

    return UntrainedTokenizer(_tokenizer_spec("bpe", vocabulary, kind=kind if kind != "bytes" else None), learn)


def wordpiece(*, vocabulary: int = 8000, least: int = 2, lower: bool = True) -> UntrainedTokenizer:
    """Create an untrained WordPiece tokenizer as in BERT, with `##` inside words.

    It is trained by merging pairs and applied by longest match. `lower` removes case and accents. A word with an unseen
    letter is unknown as a whole.
    """
    if vocabulary < 5:
        raise BadInput(f"wordpiece: a vocabulary of {vocabulary} is too small", hint="a few thousand are usual")
    library = import_tokenizers()

    def learn(texts: Sequence[str]) -> HuggingFaceTokenizer:
        tokenizer = library.Tokenizer(library.models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - a token of another kind
        tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=lower)
        tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = library.decoders.WordPiece(cleanup=False)
        letter_counts = Counter(
            c
            for text in texts
            for c in tokenizer.normalizer.normalize_str(replace_lone_surrogates(text))
            if not c.isspace()
        )
        room = min(MAX_ALPHABET_SIZE, (vocabulary - 1) // 2)
        letters = sorted(sorted(letter_counts, key=lambda c: (-letter_counts[c], c))[:room])
        trainer = library.trainers.WordPieceTrainer(
            vocab_size=vocabulary,
            min_frequency=least,
            show_progress=False,
            # Listed here, so that their ids, which break ties, do not depend on a hash table.
            special_tokens=["[UNK]", *letters, *(f"##{c}" for c in letters)],
            initial_alphabet=letters,
            limit_alphabet=len(letters),
        )
        _train_tokenizer(tokenizer, trainer, texts)
        return _wrap_tokenizer("wordpiece", _without_special_tokens(tokenizer))

    return UntrainedTokenizer(_tokenizer_spec("wordpiece", vocabulary), learn)


def unigram(*, vocabulary: int = 8000, characters: int = 2_000_000) -> UntrainedTokenizer:
    """Create an untrained Unigram tokenizer, as in SentencePiece.

    It keeps the pieces that contribute most to the likelihood of the texts. Training is slow, so a corpus with more
    than `characters` characters is sampled: every second, third … text in the order of their hashes.
    """
    if vocabulary < 3 or characters < 1:
        raise BadInput(f"unigram: a vocabulary of {vocabulary} from {characters} characters is too small")
    library = import_tokenizers()

    def learn(texts: Sequence[str]) -> HuggingFaceTokenizer:
        tokenizer = library.Tokenizer(library.models.Unigram())
        tokenizer.pre_tokenizer = library.pre_tokenizers.Metaspace()
        tokenizer.decoder = library.decoders.Metaspace()
        trainer = library.trainers.UnigramTrainer(
            vocab_size=vocabulary, unk_token=UNKNOWN_PIECE, special_tokens=[UNKNOWN_PIECE], show_progress=False
        )
        _train_tokenizer(tokenizer, trainer, _sample_texts(texts, characters))
        return _wrap_tokenizer("unigram", _sort_pieces(tokenizer))

    return UntrainedTokenizer(_tokenizer_spec("unigram", vocabulary), learn)


def _tokenizer_spec(name: str, vocabulary: int, **options: str | None) -> str:
    settings = {"vocabulary": vocabulary, **options}
    return f"{name}({', '.join(f'{key}={value}' for key, value in settings.items() if value is not None)})"


def _sample_texts(texts: Sequence[str], characters: int) -> Sequence[str]:
    """Sample about `characters` characters of the texts, independent of their order."""
    step = -(-sum(map(len, texts)) // characters)
    return texts if step <= 1 else sorted(texts, key=text_hash)[::step]


def text_hash(text: str) -> bytes:
    """Hash a text, to sort texts independently of the corpus order."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _train_tokenizer(tokenizer: Any, trainer: Any, texts: Sequence[str]) -> None:
    tokenizer.train_from_iterator(map(replace_lone_surrogates, texts), trainer, length=len(texts))


def _without_special_tokens(tokenizer: Any) -> Any:
    """Return a tokenizer without special tokens.

    `<unk>` in a text is then five characters.
    """
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = []
    return type(tokenizer).from_str(json.dumps(data))


def _sort_pieces(tokenizer: Any) -> Any:
    """Sort the pieces by score and spelling, so that training is reproducible.

    The library appends letters that no likely piece contains, with the lowest score plus a step each, in the order of a
    hash table. Here they get these scores in Unicode order.
    """
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = []
    first, *pieces = ((str(piece), round(score, SCORE_DECIMALS)) for piece, score in data["model"]["vocab"])
    last: dict[str, float] = {}
    steps = 0
    for piece, score in sorted((pair for pair in pieces if len(pair[0]) == 1), key=lambda pair: pair[1]):
        above = score - min(last.values(), default=score)
        steps += abs(above - (steps + 1) * LETTER_SCORE_STEP) < LETTER_SCORE_STEP / 100
        if (
            abs(above - steps * LETTER_SCORE_STEP) < LETTER_SCORE_STEP / 100
        ):  # A likely piece may have the lowest score too.
            last[piece] = score
    new_scores = dict(zip(sorted(last), sorted(last.values()), strict=True))
    updated = [(piece, new_scores.get(piece, score)) for piece, score in pieces]
    data["model"]["vocab"] = [first, *sorted(updated, key=lambda pair: (-pair[1], pair[0]))]
    return type(tokenizer).from_str(json.dumps(data))


def _wrap_tokenizer(kind: str, library: Any) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(library, f"{kind}-{library.get_vocab_size()}-{tokenizer_fingerprint(library)}")
