"""The LSTM embedder: determinism, padding, token limit, and what training changes."""

from __future__ import annotations

import numpy as np
import pytest

from ragauge.core.errors import BadInput
from ragauge.models.embedders import open_embedder

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TOPICS = ["bees make honey in a hive", "trains leave the north station", "recipes for lentil soup", "rain over the sea"]
TEXTS = [f"{topic}, as written in note {i} about {topic}" for i in range(30) for topic in TOPICS]
SPEC = "lstm(tokenizer={tokenizer}, dimension=16, passes={passes}, trained={trained})"


def fit(*, trained=True, passes=4, texts=TEXTS, tokenizer="bytes"):
    return open_embedder(SPEC.format(tokenizer=tokenizer, passes=passes, trained=str(trained).lower()), texts)


def test_lstm_equal_training_gives_equal_weights():
    first, second = fit(passes=1), fit(passes=1, texts=TEXTS[::-1])
    assert first.name == second.name
    assert np.array_equal(first.embed(TEXTS[:3]), second.embed(TEXTS[:3]))
    assert fit(trained=False).name != first.name


def test_lstm_padding_does_not_change_vectors():
    embedder = fit(trained=False)
    texts = ["short", "a much longer text " * 20, ""]
    together = embedder.embed(texts)
    for text, row in zip(texts, together, strict=True):
        assert embedder.embed([text])[0] == pytest.approx(row, abs=1e-6)
    assert np.linalg.norm(together, axis=1) == pytest.approx([1, 1, 0], abs=1e-6)


def test_lstm_reads_tokens_up_to_its_limit():
    embedder = open_embedder("lstm(tokenizer=bytes, dimension=8, context=10, trained=false)", TEXTS)
    vectors = embedder.embed(["0123456789", "0123456789 and more", "012345678"])
    assert np.array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])
    assert embedder.tokens(["0123456789 and more"]) == [19]


def test_lstm_training_brings_parts_of_one_topic_together():
    def separation(embedder):
        starts, ends = ([" ".join(topic.split()[part]) for topic in TOPICS] for part in (slice(2), slice(-2, None)))
        similarities = embedder.embed(starts) @ embedder.embed(ends).T
        return np.diag(similarities).mean() - similarities[~np.eye(len(TOPICS), dtype=bool)].mean()

    assert abs(separation(fit(trained=False, tokenizer="words"))) < 0.1
    assert separation(fit(passes=30, tokenizer="words")) > 0.5


def test_lstm_invalid_use_raises():
    with pytest.raises(BadInput, match="no text to learn from among 2 texts"):
        open_embedder("lstm", ["", " "])
    with pytest.raises(BadInput, match="is not fitted"):
        open_embedder("lstm").embed(["text"])
    with pytest.raises(BadInput, match="must have at most 65,536 tokens, got 1,114,112"):
        open_embedder("lstm(tokenizer=characters)", TEXTS)
