"""Language models trained on a corpus: vectors, learning, batches, reproducibility, saved models and the cache."""

from __future__ import annotations

import itertools
import json
import math
import random

import numpy as np
import pytest

from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import read_parameters
from ragauge.core.protocols import Embedder
from ragauge.embedder_study.tokenizer_counts import count_tokens
from ragauge.models.embedders import open_embedder

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from ragauge.models.embedders.corpus_lm import LanguageModel, checkpoints, networks, training  # noqa: E402
from ragauge.models.embedders.corpus_lm.batches import (  # noqa: E402
    BOUNDARY_TOKEN,
    UNSEEN_TOKEN,
    TokenRowMap,
    TrainingBatches,
    corpus_hash,
    is_held_out,
    select_training_texts,
    span_context,
    split_span,
)
from ragauge.models.embedders.corpus_lm.networks import Hyperparameters  # noqa: E402
from ragauge.models.tokenizers import EmbedderTokenizer, open_tokenizer  # noqa: E402

TINY = {"dimension": 16, "layers": 1, "heads": 2, "context": 32, "cache": False, "threads": 1, "device": "cpu"}
SUBJECTS = ["the ferry", "the lighthouse", "a lifeboat", "the harbour master", "the old pier", "a grey seal"]
VERBS = ["leaves at", "opens after", "was painted in", "is seen before", "waits until"]
TIMES = ["six", "noon", "summer", "the storm", "high water", "nine in the morning"]
TEXTS = [f"{s} {v} {t}." for s, v, t in itertools.product(SUBJECTS, VERBS, TIMES)]
KINDS = ["lstm", "transformer"]


def language_model(**options):
    """Build a model from the options of its spec."""
    supplied = {"tokenizer": options["tokenizer"]} if "tokenizer" in options else {}
    return read_parameters(LanguageModel).call(options, supplied)


def train_model(texts=TEXTS, **options):
    return language_model(**{**TINY, "tokenizer": "bytes", "passes": 1, **options}).fitted(texts)


def make_hyperparameters(**options):
    return Hyperparameters(**{"dimension": 16, "layers": 2, "heads": 2, "context": 32, **options})


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: a second one slows down tiny networks, and so do the threads of a test that runs in parallel."""
    with training.limit_torch_threads(1):
        yield


@pytest.fixture
def checkpoint_every_step(monkeypatch):
    """Save a checkpoint after every step."""
    monkeypatch.setattr(training, "CHECKPOINT_INTERVAL_S", -1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_language_model_trained_is_embedder_with_properties(kind):
    model = train_model(kind=kind)
    assert isinstance(model, Embedder)
    assert model.embed(TEXTS[:3]).shape == (3, 16)
    assert np.linalg.norm(model.embed(TEXTS[:3]), axis=1) == pytest.approx(1)
    assert model.name.startswith(f"lm-{kind}-bytes-next-16x1-")
    assert model.limit == 32
    assert model.tokens(["abc", "", "é" * 40]) == [3, 0, 80]
    assert model.trained
    assert model.train_seconds > 0
    assert model.tokenizer.name == "bytes"


@pytest.mark.parametrize("kind", KINDS)
def test_language_model_parameters_count_shared_token_table_once(kind):
    d, rows = 16, 385  # 384 tokens of the tokenizer and the boundary token
    inner = 8 * d * d + 4 * d if kind == "lstm" else 12 * d * d + 2 * d
    assert train_model(kind=kind, trained=False).parameters == rows * d + d + 5 * d + inner + d


def test_language_model_untrained_raises_with_hint():
    model = language_model(**TINY)
    for call in (
        lambda: model.embed(["a"]),
        lambda: model.tokens(["a"]),
        lambda: model.parameters,
        lambda: model.keep("x"),
    ):
        with pytest.raises(BadInput, match="is not trained") as error:
            call()
        assert "fitted(texts)" in str(error.value.hint)


def test_open_embedder_lm_spec_accepts_nested_tokenizer():
    described = "lm(kind=lstm, tokenizer=bpe(vocabulary=300), dimension=8, layers=1, context=16, passes=1, cache=false)"
    model = open_embedder(described, TEXTS)
    assert model.name.startswith("lm-lstm-bpe-300-")
    assert model.embed(["the ferry"]).shape == (1, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "rnn"}, "lm: kind must be one of lstm, transformer, got `rnn`"),
        ({"objective": "mask"}, "lm: objective must be one of next, pairs, got `mask`"),
        ({"dimension": 20, "heads": 3}, "is not divisible"),
        ({"context": 1}, "context must be between 2 and 65,536, got 1"),
        ({"layers": 1.5}, "layers must be a whole number between 1 and 64, got 1.5"),
        ({"layers": 0}, "layers must be between 1 and 64, got 0"),
        ({"rate": -1.0}, "rate must be at least 0, got -1"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"device": "abacus"}, "device `abacus` cannot be used"),
        ({"tokenizer": "vowels"}, "unknown tokenizer `vowels`"),
    ],
)
def test_language_model_invalid_options_raise(options, message):
    with pytest.raises((BadInput, LookupError), match=message):
        language_model(**{**TINY, **options})


def test_language_model_fitted_without_usable_text_raises():
    held_out_text = next(text for text in map(str, range(1000)) if is_held_out(text))
    for texts in ([], ["", "  \n"], [held_out_text]):
        with pytest.raises(BadInput, match="no text to learn from"):
            language_model(**TINY).fitted(texts)


def test_language_model_nan_loss_stops_training():
    with pytest.raises(BadInput, match="became NaN or infinite") as error:
        train_model(rate=1e30, passes=5, batch=512)
    assert "lower rate" in error.value.hint


# Vectors


@pytest.mark.parametrize("kind", KINDS)
def test_language_model_vectors_are_independent_of_batch(kind):
    model = train_model(kind=kind, layers=2)
    texts = ["a", "the ferry leaves at six.", "x" * 31, "", "é", *TEXTS[:20]]
    batched = model.embed(texts)
    single = np.concatenate([model.embed([text]) for text in texts])
    assert batched == pytest.approx(single, abs=1e-5)
    assert model.embed(texts[::-1])[::-1] == pytest.approx(single, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_language_model_embed_empty_is_zero_and_long_is_truncated(kind):
    model = train_model(kind=kind)
    long = "the harbour master waits until the storm, and then some more."
    found = model.embed(["", long, long[:32], long[:31]])
    assert not found[0].any()
    assert found[1] == pytest.approx(found[2], abs=1e-6)
    assert np.abs(found[1] - found[3]).max() > 1e-4
    assert model.embed([]).shape == (0, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_compute_states_depend_only_on_earlier_tokens(kind):
    r = make_hyperparameters(kind=kind)
    weights = networks.draw_weights(r, 20)
    first = torch.tensor([[0, 3, 4, 5, 6]])
    second = torch.tensor([[0, 3, 9, 5, 6]])
    with torch.no_grad():
        change = (
            (networks.compute_states(r, weights, first) - networks.compute_states(r, weights, second)).abs().amax(-1)[0]
        )
    assert change[:2].max() == 0
    assert change[2:].min() > 0


def mix_tokens(states, kernel):
    """Mix each token with earlier ones by a causal convolution per dimension."""
    padded = torch.nn.functional.pad(states.mT, (len(kernel) - 1, 0))
    return torch.nn.functional.conv1d(padded, kernel.flip(0).T[:, None], groups=states.shape[2]).mT


def test_lstm_states_match_torch_lstm_with_residual():
    r = make_hyperparameters(kind="lstm")
    weights = networks.draw_weights(r, 20)
    torch_lstm = torch.nn.LSTM(16, 16, 2, batch_first=True)
    with torch.no_grad():
        for layer in range(2):
            getattr(torch_lstm, f"weight_ih_l{layer}").copy_(weights[f"{layer}.input"])
            getattr(torch_lstm, f"weight_hh_l{layer}").copy_(weights[f"{layer}.state"])
            getattr(torch_lstm, f"bias_ih_l{layer}").copy_(weights[f"{layer}.bias"])
            getattr(torch_lstm, f"bias_hh_l{layer}").zero_()
        numbers = torch.tensor([[0, 3, 4, 5], [0, 1, 2, 19]])
        norm = torch.nn.RMSNorm(16, eps=1e-6)
        inner = mix_tokens(norm(weights["tokens"][numbers]), weights["near"])
        expected = norm(inner + torch_lstm(inner)[0])
        assert torch.allclose(networks.compute_states(r, weights, numbers), expected, atol=1e-6)


def test_transformer_states_match_llama_attention():
    """Compare attention with rotary positions, norms and residuals with the layers of transformers."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    from transformers import LlamaConfig

    r = make_hyperparameters(layers=1)
    weights = networks.draw_weights(r, 20)
    config = LlamaConfig(
        hidden_size=16, num_attention_heads=2, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-6, vocab_size=20
    )
    config._attn_implementation = "eager"
    attention = llama.LlamaAttention(config, 0)
    with torch.no_grad():
        for part, name in zip(weights["0.attention.in"].chunk(3), ("q_proj", "k_proj", "v_proj"), strict=True):
            getattr(attention, name).weight.copy_(part)
        attention.o_proj.weight.copy_(weights["0.attention.out"])
        numbers = torch.tensor([[0, 3, 4, 5, 7, 7]])
        norm = llama.LlamaRMSNorm(16, eps=1e-6)
        inner = mix_tokens(norm(weights["tokens"][numbers]), weights["near"])
        positions = llama.LlamaRotaryEmbedding(config)(inner, torch.arange(6)[None])
        causal_mask = torch.triu(torch.full((6, 6), -1e9), 1)[None, None]
        inner = inner + attention(norm(inner), position_embeddings=positions, attention_mask=causal_mask)[0]
        feed_forward = torch.nn.functional.gelu(norm(inner) @ weights["0.feed.in"].T) @ weights["0.feed.out"].T
        assert torch.allclose(networks.compute_states(r, weights, numbers), norm(inner + feed_forward), atol=1e-5)


# Learning


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_language_model_learns_repetitive_bytes(kind):
    texts = [f"{'ab' * 10}{n % 10}" for n in range(10)]
    before = train_model(texts, kind=kind, trained=False).bits(["ab" * 10 + "3"])[0]
    after = train_model(texts, kind=kind, passes=70, batch=64, rate=0.01).bits(["ab" * 10 + "3"])[0]
    assert before > 21 * 8  # 21 bytes and the boundary token, with about log2(385) bits each
    assert after < 21 * 0.4  # log2(10) of these bits are needed for the random digit


@pytest.mark.parametrize("kind", KINDS)
def test_language_model_untrained_bits_are_near_uniform(kind):
    model = train_model(kind=kind, trained=False)
    found = model.bits(TEXTS[:20])
    tokens = sum(model.tokens(TEXTS[:20])) + 20
    assert sum(found) / tokens == pytest.approx(math.log2(385), rel=0.05)
    assert math.isnan(model.train_seconds)
    assert not model.trained


@pytest.mark.parametrize("kind", KINDS)
def test_compute_bits_probabilities_of_all_texts_sum_to_one(kind):
    """Sum over all texts of up to three tokens out of four, and over all longer texts by their first three tokens."""
    r = make_hyperparameters(kind=kind, context=4)
    weights = networks.draw_weights(r, 5)
    weights["tokens"] *= 40  # makes the probabilities far from uniform
    short_texts = [np.asarray(t, np.int64) for n in range(4) for t in itertools.product([1, 2, 3, 4], repeat=n)]
    text_probabilities = 2.0 ** -training.compute_bits(r, weights, short_texts, "cpu")
    prefixes = torch.tensor([[BOUNDARY_TOKEN, *t] for t in itertools.product([1, 2, 3, 4], repeat=3)])
    with torch.no_grad():
        log_probabilities = torch.log_softmax(
            networks.compute_logits(weights, networks.compute_states(r, weights, prefixes)), -1
        )
    prefix_log_probabilities = log_probabilities[:, :3].gather(2, prefixes[:, 1:, None]).sum((1, 2))
    continued_probability = float(
        (prefix_log_probabilities.exp() * (1 - log_probabilities[:, 3, BOUNDARY_TOKEN].exp())).sum()
    )
    assert text_probabilities.std() > 0.001
    assert text_probabilities.sum() + continued_probability == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 12, 13, 29])
def test_compute_bits_long_text_matches_overlapping_windows(kind, length):
    r = make_hyperparameters(kind=kind, context=8)
    weights = networks.draw_weights(r, 12)
    weights["tokens"] *= 40
    row = np.random.default_rng(length).integers(1, 12, length)
    line = [BOUNDARY_TOKEN, *row.tolist(), BOUNDARY_TOKEN]
    expected, start, counted = 0.0, 0, 0
    with torch.no_grad():
        for place in range(len(line) - 1):
            if place == counted + 8 - (counted - start):  # the window is full: the next one starts four tokens earlier
                start, counted = place - 4, place
            states = networks.compute_states(r, weights, torch.tensor([line[start : place + 1]]))
            log_probabilities = torch.log_softmax(networks.compute_logits(weights, states[:, -1]), -1)
            expected -= float(log_probabilities[0, line[place + 1]]) / math.log(2)
    texts = [np.asarray([3, 4]), row, np.asarray([], np.int64)]
    assert training.compute_bits(r, weights, texts, "cpu")[1] == pytest.approx(expected, rel=1e-5)


def test_language_model_bits_of_lossy_text_are_nan():
    model = train_model(tokenizer="characters", trained=False)
    assert model.parameters < 5000  # one row per character of the texts, not per Unicode character
    known, unknown = model.bits(["the ferry", "the ferry €"])
    assert known > 0
    assert math.isnan(unknown)
    lossy = train_model(tokenizer="wordpiece(vocabulary=100)", trained=False)
    assert math.isnan(lossy.bits(["The  Ferry"])[0])


def test_language_model_pairs_objective_has_no_bits():
    assert train_model(objective="pairs", batch=16).bits is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_language_model_pairs_training_improves_retrieval(kind):
    """Each of twenty topics has ten words, and a text has eight of them; query and document share no words."""
    rng = random.Random(4)
    topics = [[f"{topic}{word}" for word in "abcdefghij"] for topic in range(20)]
    texts = [" ".join(rng.sample(rng.choice(topics), 8)) for _ in range(200)]

    def compute_accuracy(**options):
        model = train_model(
            texts, kind=kind, tokenizer="words", objective="pairs", batch=32, rate=0.01, dimension=32, **options
        )
        query_vectors, document_vectors = (
            model.embed([" ".join(topic[half]) for topic in topics]) for half in (slice(5), slice(5, 10))
        )
        return float(((query_vectors @ document_vectors.T).argmax(1) == np.arange(20)).mean())

    assert compute_accuracy(trained=False) < 0.3
    assert compute_accuracy(passes=12) > 0.8


def test_language_model_log_describes_training():
    model = train_model(passes=3, batch=1024)
    training_texts = select_training_texts(TEXTS)
    log = model.log
    assert log["texts"] == len(training_texts)
    assert log["bytes"] == sum(map(len, training_texts))
    assert log["tokens"] == 3 * (log["bytes"] + len(training_texts))
    assert len(log["losses"]) == log["steps"]
    assert log["losses"][0] == pytest.approx(math.log2(385), rel=0.1)
    assert log["losses"][-1] < log["losses"][0]
    assert (log["device"], log["threads"]) == ("cpu", 1)


# Training batches


def test_training_batches_hold_same_text_for_every_tokenizer():
    r = make_hyperparameters(passes=2, batch=700)
    texts_by_spec = {}
    for spec in ("bytes", "bpe(vocabulary=300)"):
        tokenizer = open_tokenizer(spec, TEXTS)
        batches = TrainingBatches(r, TokenRowMap(tokenizer), TEXTS)
        texts_by_spec[spec] = []
        for step in range(len(batches)):
            inputs, targets = batches.rows(step)
            line = [*inputs.flat, *targets[targets >= 0].flat[-1:]]
            texts_by_spec[spec].append(tokenizer.decode([n - 1 for n in line if n != BOUNDARY_TOKEN]))
    assert texts_by_spec["bytes"] == texts_by_spec["bpe(vocabulary=300)"]
    assert sorted("".join(texts_by_spec["bytes"])) == sorted(2 * "".join(TEXTS))


def test_training_batches_rows_are_packed_with_next_tokens():
    r = make_hyperparameters(passes=1, batch=700)
    batches = TrainingBatches(r, TokenRowMap(open_tokenizer("bytes")), TEXTS)
    for step in range(len(batches)):
        inputs, targets = batches.rows(step)
        line, expected = inputs.ravel(), targets.ravel()
        count = int((expected >= 0).sum())
        assert inputs.shape[1] <= 32
        assert len(line) - count < len(inputs)
        assert line[0] == BOUNDARY_TOKEN == expected[count - 1]
        assert line[1:count].tolist() == expected[: count - 1].tolist()
        assert count <= 700 + (line[:count] == BOUNDARY_TOKEN).sum()


def test_training_batches_split_long_text_over_steps():
    batches = TrainingBatches(
        make_hyperparameters(passes=1, batch=100), TokenRowMap(open_tokenizer("bytes")), ["x" * 950]
    )
    assert len(batches) == 10
    assert sum(int((batches.rows(step)[1] >= 0).sum()) for step in range(10)) == 960


def test_training_batches_pairs_are_same_spans_for_every_tokenizer():
    texts = [*TEXTS[:9], "x", "日本語の文章です", " two words "]
    r = make_hyperparameters(objective="pairs", passes=2, batch=6, context=512)
    sides_by_spec = {}
    for spec in ("bytes", "characters"):
        tokenizer = open_tokenizer(spec)
        numbering = TokenRowMap.learned(tokenizer, texts)
        batches = TrainingBatches(r, numbering, texts)
        assert len(batches) == 4
        decode = (lambda row: bytes((row - 4).tolist()).decode()) if spec == "bytes" else (
            lambda row, known=numbering.seen: "".join(chr(known[n - 2]) for n in row)
        )  # fmt: skip
        sides_by_spec[spec] = [[decode(row) for row in side] for step in range(4) for side in batches.pairs(step)]
    assert sides_by_spec["bytes"] == sides_by_spec["characters"]
    is_contained = []
    for spans, rests in zip(sides_by_spec["bytes"][::2], sides_by_spec["bytes"][1::2], strict=True):
        for span, rest in zip(spans, rests, strict=True):
            is_contained.append(rest in texts)
            assert span.strip() == span != ""
            assert (
                span in rest
                if is_contained[-1]
                else any(span in text and len(span + rest) <= len(text) for text in texts)
            )
    assert 0.2 < np.mean(is_contained) < 0.8


def test_split_span_span_and_rest_are_disjoint():
    text = " ".join(map(str, range(1000, 1030)))
    for share, place in itertools.product([0.1, 0.3, 0.5], [0.0, 0.37, 1.0]):
        span, rest = split_span(text, share, place)
        assert len(span.split()) == round(30 * share)
        assert span in text
        assert sorted(span.split() + rest.split()) == text.split()
    assert split_span("x", 0.1, 0.0) == ("x", "x")


@pytest.mark.parametrize("start", [0, 3, 250, 497])
def test_span_context_contains_span(start):
    text = "".join(map(chr, range(300, 800)))
    context = span_context(text, text[start : start + 3])
    assert len(context) == 200
    assert text[start : start + 3] in context
    assert context in text
    assert span_context("to be", "be") == "to be"


def test_held_out_texts_are_chosen_by_hash_and_excluded():
    texts = [f"document {n}" for n in range(4000)]
    held = LanguageModel.held_out(texts)
    assert 150 < sum(held) < 250
    assert LanguageModel.held_out(texts[::-1]) == held[::-1]
    learned = select_training_texts([*texts, *texts])
    assert sorted(learned) == sorted(text for text, is_held in zip(texts, held, strict=True) if not is_held)
    assert select_training_texts(texts[::-1]) == learned
    assert corpus_hash(learned) != corpus_hash(learned[1:])


def test_token_row_map_unseen_tokens_share_one_row():
    numbering = TokenRowMap.learned(open_tokenizer("characters"), ["abba", "ca"])
    assert numbering.rows == 5
    assert [row.tolist() for row in numbering.encode(["abc", "zaz€", ""])] == [
        [2, 3, 4],
        [UNSEEN_TOKEN, 2, UNSEEN_TOKEN, UNSEEN_TOKEN],
        [],
    ]


# Reproducibility


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", ["next", "pairs"])
@pytest.mark.torch
def test_language_model_weights_depend_on_seed(kind, objective):
    options = {"kind": kind, "objective": objective, "batch": 1024 if objective == "next" else 32}
    first, same, other = train_model(**options), train_model(TEXTS[::-1], **options), train_model(seed=1, **options)
    assert first.name == same.name
    assert first.name != other.name
    assert (first.embed(TEXTS) == same.embed(TEXTS)).all()


def test_language_model_training_keeps_global_torch_state():
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate(), torch.get_num_threads()
    with torch.no_grad():
        train_model(batch=2048).embed(TEXTS)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]
    assert torch.get_num_threads() == before[3]


def test_language_model_untrained_weights_equal_initial_weights():
    r = make_hyperparameters()
    drawn = networks.draw_weights(r, 385)
    control = language_model(**{**TINY, "layers": 2, "tokenizer": "bytes", "trained": False}).fitted(TEXTS)
    assert {name: weight.tolist() for name, weight in control._model.weights.items()} == {
        name: weight.tolist() for name, weight in drawn.items()
    }


# Saved models and cache


@pytest.mark.parametrize("tokenizer", ["bytes", "characters", "words", "bpe(vocabulary=300)"])
def test_language_model_keep_and_reopen_round_trip(tokenizer, tmp_path):
    model = train_model(tokenizer=tokenizer)
    model.keep(tmp_path / "model")
    reopened = language_model(folder=tmp_path / "model", device="cpu")
    assert reopened.name == model.name
    assert (reopened.embed(TEXTS[:5]) == model.embed(TEXTS[:5])).all()
    assert reopened.bits(TEXTS[:5]) == pytest.approx(model.bits(TEXTS[:5]), nan_ok=True)
    assert reopened.log == model.log
    assert reopened.fitted(["something else"]) is reopened
    assert open_embedder(f'lm(folder="{tmp_path / "model"}")').name == model.name


def test_language_model_folder_rejects_overwrite_and_other_options(tmp_path):
    model = train_model(kind="lstm")
    model.keep(tmp_path / "model")
    with pytest.raises(BadInput, match="the folder is not empty"):
        model.keep(tmp_path / "model")
    with pytest.raises(BadInput, match="dimension is 32, but 16"):
        language_model(folder=tmp_path / "model", dimension=32)
    with pytest.raises(BadInput, match="its own tokenizer"):
        language_model(folder=tmp_path / "model", tokenizer="bytes")
    assert language_model(folder=tmp_path / "model", kind="lstm").limit == 32


@pytest.mark.parametrize(
    "damage", ["no config", "other version", "torn weights", "other weights", "no json", "no pieces"]
)
def test_language_model_damaged_folder_raises(damage, tmp_path):
    folder = tmp_path / "model"
    train_model(tokenizer="bpe(vocabulary=300)").keep(folder)
    config = json.loads((folder / "config.json").read_text())
    if damage == "no config":
        (folder / "config.json").unlink()
    elif damage == "other version":
        (folder / "config.json").write_text(json.dumps(config | {"version": 99}))
    elif damage == "torn weights":
        (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-40])
    elif damage == "other weights":
        (folder / "config.json").write_text(json.dumps(config | {"fingerprint": "0"}))
    elif damage == "no json":
        (folder / "config.json").write_text("{")
    else:
        (folder / "tokenizer.json").unlink()
    with pytest.raises(BadInput) as error:
        language_model(folder=folder)
    assert str(folder) in str(error.value)


def test_language_model_cache_reuses_model_of_same_texts_and_options(tmp_path):
    steps = []
    options = {"cache": tmp_path, "batch": 1024}

    def record_progress(step):
        steps.append((step.done, step.total))

    first = language_model(**{**TINY, **options}).fitted(TEXTS, record_progress)
    assert steps == [(n + 1, len(steps)) for n in range(len(steps))]
    assert steps
    steps.clear()
    cached = language_model(**{**TINY, **options}).fitted(TEXTS[::-1], record_progress)
    assert not steps
    assert cached.name == first.name
    assert cached.train_seconds == first.train_seconds
    for other, texts in (({"seed": 1}, TEXTS), ({"tokenizer": "bpe(vocabulary=300)"}, TEXTS), ({}, TEXTS[:90])):
        steps.clear()
        language_model(**{**TINY, **options, **other}).fitted(texts, record_progress)
        assert steps
    names = [path.name for path in (tmp_path / "lm").iterdir()]
    assert len(names) == 4
    assert all(len(name) == 32 for name in names)  # no checkpoint or partial file is left


def test_language_model_cache_separates_tokenizers_of_equal_folder_name(tmp_path):
    transformers = pytest.importorskip("transformers")
    models = []
    for parent, size in (("a", 270), ("b", 290)):
        tokenizer, folder = open_tokenizer(f"bpe(vocabulary={size})", TEXTS), tmp_path / parent / "tok"
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.library).save_pretrained(folder)
        models.append(train_model(tokenizer=f"transformers(model={folder})", cache=tmp_path))
    assert [model.tokenizer.vocabulary for model in models] == [270, 290]
    assert len({model.name for model in models}) == 2


def test_language_model_cache_depends_on_trained_tokenizer(tmp_path):
    common, frequent = (open_tokenizer(f"words(least={n})") for n in (30, 100))
    assert common.name == frequent.name
    first, cached = (train_model(tokenizer=common, cache=tmp_path) for _ in range(2))
    assert cached.name == first.name
    assert cached.train_seconds == first.train_seconds
    assert train_model(tokenizer=frequent, cache=tmp_path).tokenizer.vocabulary < first.tokenizer.vocabulary
    assert len(list((tmp_path / "lm").iterdir())) == 2


def test_embedder_tokenizer_of_language_model_has_no_special_tokens():
    model = train_model(context=8)
    assert open_tokenizer("bytes").marks == 1
    tokenizer = EmbedderTokenizer(model)
    assert (tokenizer.limit, tokenizer.marks) == (8, 0)
    found = count_tokens(tokenizer, ["12345678", "123456789", ""], probes=False)
    assert (found.truncated, found.truncated_tokens, found.special_tokens) == (1, 1, 0)


def test_language_model_damaged_cache_is_retrained(tmp_path):
    options = {**TINY, "cache": tmp_path, "tokenizer": "bytes", "batch": 2048}
    first = language_model(**options).fitted(TEXTS)
    (folder,) = (tmp_path / "lm").iterdir()
    (folder / "model.safetensors").write_bytes(b"torn")
    assert language_model(**options).fitted(TEXTS).name == first.name
    assert checkpoints.read_model(folder).fingerprint in first.name


@pytest.mark.parametrize("objective", ["next", "pairs"])
@pytest.mark.torch
def test_language_model_interrupted_training_resumes_identically(objective, tmp_path, checkpoint_every_step):
    options = {
        **TINY,
        "tokenizer": "bytes",
        "objective": objective,
        "batch": 16 if objective == "pairs" else 700,
        "passes": 2,
    }
    uninterrupted = language_model(**options).fitted(TEXTS)

    class Interrupted(BaseException):
        pass

    def stop(step):
        if step.done == step.total // 2:
            raise Interrupted

    steps = []
    with pytest.raises(Interrupted):
        language_model(**{**options, "cache": tmp_path}).fitted(TEXTS, stop)
    (file,) = (tmp_path / "lm").iterdir()
    assert file.suffix == ".checkpoint"
    resumed = language_model(**{**options, "cache": tmp_path}).fitted(TEXTS, lambda step: steps.append(step.done))
    assert steps[0] > 1
    assert resumed.name == uninterrupted.name
    assert resumed.log["losses"] == uninterrupted.log["losses"]
    assert resumed.log["tokens"] == uninterrupted.log["tokens"]


def test_read_checkpoint_damaged_or_mismatched_returns_none(tmp_path):
    file = tmp_path / "x.checkpoint"
    shapes = networks.weight_shapes(make_hyperparameters(), 385)
    assert checkpoints.read_checkpoint(file, shapes) is None
    file.write_bytes(b"\x10\0\0\0\0\0\0\0{")
    assert checkpoints.read_checkpoint(file, shapes) is None
    weights = networks.draw_weights(make_hyperparameters(), 385)
    moments = {
        f"{name}:{moment}": weight
        for name, weight in networks.draw_weights(make_hyperparameters(), 385).items()
        for moment in ("first", "second")
    }
    moments = {name: weight.clone() for name, weight in moments.items()}
    checkpoints.write_checkpoint(file, training.TrainingState(weights, moments, 3, [1.0, 2.0, 3.0], 30, 1.5))
    found = checkpoints.read_checkpoint(file, shapes)
    assert (found.step, found.losses, found.tokens, found.seconds) == (3, [1.0, 2.0, 3.0], 30, 1.5)
    assert checkpoints.read_checkpoint(file, networks.weight_shapes(make_hyperparameters(), 300)) is None


def test_language_model_without_cache_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "cache"))
    train_model(batch=4096)
    assert not (tmp_path / "cache").exists()


def test_language_model_unwritable_cache_raises_before_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    steps = []
    with pytest.raises(BadInput, match="cannot be written") as error:
        language_model(**{**TINY, "cache": tmp_path / "file"}).fitted(TEXTS, steps.append)
    assert "cache=false" in error.value.hint
    assert not steps
