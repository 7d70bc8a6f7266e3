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


def fitted(texts=TEXTS, **options):
    return language_model(**{**TINY, "tokenizer": "bytes", "passes": 1, **options}).fitted(texts)


def recipe(**options):
    return Hyperparameters(**{"dimension": 16, "layers": 2, "heads": 2, "context": 32, **options})


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: a second one slows down tiny networks, and so do the threads of a test that runs in parallel."""
    with training.limit_torch_threads(1):
        yield


@pytest.fixture
def quickly_saved(monkeypatch):
    """Save a checkpoint after every step."""
    monkeypatch.setattr(training, "CHECKPOINT_INTERVAL_S", -1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_language_model_trained_is_embedder_with_properties(kind):
    model = fitted(kind=kind)
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
    assert fitted(kind=kind, trained=False).parameters == rows * d + d + 5 * d + inner + d


def test_language_model_untrained_raises_with_hint():
    model = language_model(**TINY)
    for ask in (
        lambda: model.embed(["a"]),
        lambda: model.tokens(["a"]),
        lambda: model.parameters,
        lambda: model.keep("x"),
    ):
        with pytest.raises(BadInput, match="is not trained") as refused:
            ask()
        assert "fitted(texts)" in str(refused.value.hint)


def test_open_embedder_lm_spec_accepts_nested_tokenizer():
    described = "lm(kind=lstm, tokenizer=bpe(vocabulary=300), dimension=8, layers=1, context=16, passes=1, cache=false)"
    model = open_embedder(described, TEXTS)
    assert model.name.startswith("lm-lstm-bpe-300-")
    assert model.embed(["the ferry"]).shape == (1, 8)


@pytest.mark.parametrize(
    ("options", "told"),
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
def test_language_model_invalid_options_raise(options, told):
    with pytest.raises((BadInput, LookupError), match=told):
        language_model(**{**TINY, **options})


def test_language_model_fitted_without_usable_text_raises():
    held = next(text for text in map(str, range(1000)) if is_held_out(text))
    for texts in ([], ["", "  \n"], [held]):
        with pytest.raises(BadInput, match="no text to learn from"):
            language_model(**TINY).fitted(texts)


def test_language_model_nan_loss_stops_training():
    with pytest.raises(BadInput, match="became NaN or infinite") as refused:
        fitted(rate=1e30, passes=5, batch=512)
    assert "lower rate" in refused.value.hint


# Vectors


@pytest.mark.parametrize("kind", KINDS)
def test_language_model_vectors_are_independent_of_batch(kind):
    model = fitted(kind=kind, layers=2)
    texts = ["a", "the ferry leaves at six.", "x" * 31, "", "é", *TEXTS[:20]]
    together = model.embed(texts)
    alone = np.concatenate([model.embed([text]) for text in texts])
    assert together == pytest.approx(alone, abs=1e-5)
    assert model.embed(texts[::-1])[::-1] == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_language_model_embed_empty_is_zero_and_long_is_truncated(kind):
    model = fitted(kind=kind)
    long = "the harbour master waits until the storm, and then some more."
    found = model.embed(["", long, long[:32], long[:31]])
    assert not found[0].any()
    assert found[1] == pytest.approx(found[2], abs=1e-6)
    assert np.abs(found[1] - found[3]).max() > 1e-4
    assert model.embed([]).shape == (0, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_compute_states_depend_only_on_earlier_tokens(kind):
    r = recipe(kind=kind)
    weights = networks.draw_weights(r, 20)
    one = torch.tensor([[0, 3, 4, 5, 6]])
    other = torch.tensor([[0, 3, 9, 5, 6]])
    with torch.no_grad():
        change = (
            (networks.compute_states(r, weights, one) - networks.compute_states(r, weights, other)).abs().amax(-1)[0]
        )
    assert change[:2].max() == 0
    assert change[2:].min() > 0


def mixed(inner, shares):
    """Mix each token with earlier ones by a causal convolution per dimension."""
    padded = torch.nn.functional.pad(inner.mT, (len(shares) - 1, 0))
    return torch.nn.functional.conv1d(padded, shares.flip(0).T[:, None], groups=inner.shape[2]).mT


def test_lstm_states_match_torch_lstm_with_residual():
    r = recipe(kind="lstm")
    weights = networks.draw_weights(r, 20)
    theirs = torch.nn.LSTM(16, 16, 2, batch_first=True)
    with torch.no_grad():
        for layer in range(2):
            getattr(theirs, f"weight_ih_l{layer}").copy_(weights[f"{layer}.input"])
            getattr(theirs, f"weight_hh_l{layer}").copy_(weights[f"{layer}.state"])
            getattr(theirs, f"bias_ih_l{layer}").copy_(weights[f"{layer}.bias"])
            getattr(theirs, f"bias_hh_l{layer}").zero_()
        numbers = torch.tensor([[0, 3, 4, 5], [0, 1, 2, 19]])
        norm = torch.nn.RMSNorm(16, eps=1e-6)
        inner = mixed(norm(weights["tokens"][numbers]), weights["near"])
        wanted = norm(inner + theirs(inner)[0])
        assert torch.allclose(networks.compute_states(r, weights, numbers), wanted, atol=1e-6)


def test_transformer_states_match_llama_attention():
    """Compare attention with rotary positions, norms and residuals with the layers of transformers."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    from transformers import LlamaConfig

    r = recipe(layers=1)
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
        inner = mixed(norm(weights["tokens"][numbers]), weights["near"])
        places = llama.LlamaRotaryEmbedding(config)(inner, torch.arange(6)[None])
        later = torch.triu(torch.full((6, 6), -1e9), 1)[None, None]
        inner = inner + attention(norm(inner), position_embeddings=places, attention_mask=later)[0]
        feed = torch.nn.functional.gelu(norm(inner) @ weights["0.feed.in"].T) @ weights["0.feed.out"].T
        assert torch.allclose(networks.compute_states(r, weights, numbers), norm(inner + feed), atol=1e-5)


# Learning


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_language_model_learns_repetitive_bytes(kind):
    texts = [f"{'ab' * 10}{n % 10}" for n in range(10)]
    before = fitted(texts, kind=kind, trained=False).bits(["ab" * 10 + "3"])[0]
    after = fitted(texts, kind=kind, passes=70, batch=64, rate=0.01).bits(["ab" * 10 + "3"])[0]
    assert before > 21 * 8  # 21 bytes and the boundary token, with about log2(385) bits each
    assert after < 21 * 0.4  # log2(10) of these bits are needed for the random digit


@pytest.mark.parametrize("kind", KINDS)
def test_language_model_untrained_bits_are_near_uniform(kind):
    model = fitted(kind=kind, trained=False)
    found = model.bits(TEXTS[:20])
    tokens = sum(model.tokens(TEXTS[:20])) + 20
    assert sum(found) / tokens == pytest.approx(math.log2(385), rel=0.05)
    assert math.isnan(model.train_seconds)
    assert not model.trained


@pytest.mark.parametrize("kind", KINDS)
def test_compute_bits_probabilities_of_all_texts_sum_to_one(kind):
    """Sum over all texts of up to three tokens out of four, and over all longer texts by their first three tokens."""
    r = recipe(kind=kind, context=4)
    weights = networks.draw_weights(r, 5)
    weights["tokens"] *= 40  # makes the probabilities far from uniform
    whole = [np.asarray(t, np.int64) for n in range(4) for t in itertools.product([1, 2, 3, 4], repeat=n)]
    ends = 2.0 ** -training.compute_bits(r, weights, whole, "cpu")
    begun = torch.tensor([[BOUNDARY_TOKEN, *t] for t in itertools.product([1, 2, 3, 4], repeat=3)])
    with torch.no_grad():
        told = torch.log_softmax(networks.compute_logits(weights, networks.compute_states(r, weights, begun)), -1)
    said = told[:, :3].gather(2, begun[:, 1:, None]).sum((1, 2))
    goes_on = float((said.exp() * (1 - told[:, 3, BOUNDARY_TOKEN].exp())).sum())
    assert ends.std() > 0.001
    assert ends.sum() + goes_on == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 12, 13, 29])
def test_compute_bits_long_text_matches_overlapping_windows(kind, length):
    r = recipe(kind=kind, context=8)
    weights = networks.draw_weights(r, 12)
    weights["tokens"] *= 40
    row = np.random.default_rng(length).integers(1, 12, length)
    line = [BOUNDARY_TOKEN, *row.tolist(), BOUNDARY_TOKEN]
    wanted, start, counted = 0.0, 0, 0
    with torch.no_grad():
        for place in range(len(line) - 1):
            if place == counted + 8 - (counted - start):  # the window is full: the next one starts four tokens earlier
                start, counted = place - 4, place
            states = networks.compute_states(r, weights, torch.tensor([line[start : place + 1]]))
            told = torch.log_softmax(networks.compute_logits(weights, states[:, -1]), -1)
            wanted -= float(told[0, line[place + 1]]) / math.log(2)
    others = [np.asarray([3, 4]), row, np.asarray([], np.int64)]
    assert training.compute_bits(r, weights, others, "cpu")[1] == pytest.approx(wanted, rel=1e-5)


def test_language_model_bits_of_lossy_text_are_nan():
    model = fitted(tokenizer="characters", trained=False)
    assert model.parameters < 5000  # one row per character of the texts, not per Unicode character
    known, unknown = model.bits(["the ferry", "the ferry €"])
    assert known > 0
    assert math.isnan(unknown)
    lossy = fitted(tokenizer="wordpiece(vocabulary=100)", trained=False)
    assert math.isnan(lossy.bits(["The  Ferry"])[0])


def test_language_model_pairs_objective_has_no_bits():
    assert fitted(objective="pairs", batch=16).bits is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_language_model_pairs_training_improves_retrieval(kind):
    """Each of twenty topics has ten words, and a text has eight of them; query and document share no words."""
    chance = random.Random(4)
    things = [[f"{thing}{word}" for word in "abcdefghij"] for thing in range(20)]
    texts = [" ".join(chance.sample(chance.choice(things), 8)) for _ in range(200)]

    def found(**options):
        model = fitted(
            texts, kind=kind, tokenizer="words", objective="pairs", batch=32, rate=0.01, dimension=32, **options
        )
        asked, others = (model.embed([" ".join(thing[half]) for thing in things]) for half in (slice(5), slice(5, 10)))
        return float(((asked @ others.T).argmax(1) == np.arange(20)).mean())

    assert found(trained=False) < 0.3
    assert found(passes=12) > 0.8


def test_language_model_log_describes_training():
    model = fitted(passes=3, batch=1024)
    lessons = select_training_texts(TEXTS)
    log = model.log
    assert log["texts"] == len(lessons)
    assert log["bytes"] == sum(map(len, lessons))
    assert log["tokens"] == 3 * (log["bytes"] + len(lessons))
    assert len(log["losses"]) == log["steps"]
    assert log["losses"][0] == pytest.approx(math.log2(385), rel=0.1)
    assert log["losses"][-1] < log["losses"][0]
    assert (log["device"], log["threads"]) == ("cpu", 1)


# Training batches


def test_training_batches_hold_same_text_for_every_tokenizer():
    r = recipe(passes=2, batch=700)
    seen = {}
    for cut in ("bytes", "bpe(vocabulary=300)"):
        tokenizer = open_tokenizer(cut, TEXTS)
        lessons = TrainingBatches(r, TokenRowMap(tokenizer), TEXTS)
        seen[cut] = []
        for step in range(len(lessons)):
            before, after = lessons.rows(step)
            line = [*before.flat, *after[after >= 0].flat[-1:]]
            seen[cut].append(tokenizer.decode([n - 1 for n in line if n != BOUNDARY_TOKEN]))
    assert seen["bytes"] == seen["bpe(vocabulary=300)"]
    assert sorted("".join(seen["bytes"])) == sorted(2 * "".join(TEXTS))


def test_training_batches_rows_are_packed_with_next_tokens():
    r = recipe(passes=1, batch=700)
    lessons = TrainingBatches(r, TokenRowMap(open_tokenizer("bytes")), TEXTS)
    for step in range(len(lessons)):
        before, after = lessons.rows(step)
        line, wanted = before.ravel(), after.ravel()
        count = int((wanted >= 0).sum())
        assert before.shape[1] <= 32
        assert len(line) - count < len(before)
        assert line[0] == BOUNDARY_TOKEN == wanted[count - 1]
        assert line[1:count].tolist() == wanted[: count - 1].tolist()
        assert count <= 700 + (line[:count] == BOUNDARY_TOKEN).sum()


def test_training_batches_split_long_text_over_steps():
    lessons = TrainingBatches(recipe(passes=1, batch=100), TokenRowMap(open_tokenizer("bytes")), ["x" * 950])
    assert len(lessons) == 10
    assert sum(int((lessons.rows(step)[1] >= 0).sum()) for step in range(10)) == 960


def test_training_batches_pairs_are_same_spans_for_every_tokenizer():
    texts = [*TEXTS[:9], "x", "日本語の文章です", " two words "]
    r = recipe(objective="pairs", passes=2, batch=6, context=512)
    told = {}
    for cut in ("bytes", "characters"):
        tokenizer = open_tokenizer(cut)
        numbering = TokenRowMap.learned(tokenizer, texts)
        lessons = TrainingBatches(r, numbering, texts)
        assert len(lessons) == 4
        back = (lambda row: bytes((row - 4).tolist()).decode()) if cut == "bytes" else (
            lambda row, known=numbering.seen: "".join(chr(known[n - 2]) for n in row)
        )  # fmt: skip
        told[cut] = [[back(row) for row in side] for step in range(4) for side in lessons.pairs(step)]
    assert told["bytes"] == told["characters"]
    left_in = []
    for spans, rests in zip(told["bytes"][::2], told["bytes"][1::2], strict=True):
        for one, rest in zip(spans, rests, strict=True):
            left_in.append(rest in texts)
            assert one.strip() == one != ""
            assert one in rest if left_in[-1] else any(one in text and len(one + rest) <= len(text) for text in texts)
    assert 0.2 < np.mean(left_in) < 0.8


def test_split_span_span_and_rest_are_disjoint():
    text = " ".join(map(str, range(1000, 1030)))
    for share, place in itertools.product([0.1, 0.3, 0.5], [0.0, 0.37, 1.0]):
        one, rest = split_span(text, share, place)
        assert len(one.split()) == round(30 * share)
        assert one in text
        assert sorted(one.split() + rest.split()) == text.split()
    assert split_span("x", 0.1, 0.0) == ("x", "x")


@pytest.mark.parametrize("at", [0, 3, 250, 497])
def test_span_context_contains_span(at):
    text = "".join(map(chr, range(300, 800)))
    found = span_context(text, text[at : at + 3])
    assert len(found) == 200
    assert text[at : at + 3] in found
    assert found in text
    assert span_context("to be", "be") == "to be"


def test_held_out_texts_are_chosen_by_hash_and_excluded():
    texts = [f"document {n}" for n in range(4000)]
    held = LanguageModel.held_out(texts)
    assert 150 < sum(held) < 250
    assert LanguageModel.held_out(texts[::-1]) == held[::-1]
    learned = select_training_texts([*texts, *texts])
    assert sorted(learned) == sorted(text for text, out in zip(texts, held, strict=True) if not out)
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
    one, same, other = fitted(**options), fitted(TEXTS[::-1], **options), fitted(seed=1, **options)
    assert one.name == same.name
    assert one.name != other.name
    assert (one.embed(TEXTS) == same.embed(TEXTS)).all()


def test_language_model_training_keeps_global_torch_state():
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate(), torch.get_num_threads()
    with torch.no_grad():
        fitted(batch=2048).embed(TEXTS)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]
    assert torch.get_num_threads() == before[3]


def test_language_model_untrained_weights_equal_initial_weights():
    r = recipe()
    drawn = networks.draw_weights(r, 385)
    control = language_model(**{**TINY, "layers": 2, "tokenizer": "bytes", "trained": False}).fitted(TEXTS)
    assert {name: one.tolist() for name, one in control._model.weights.items()} == {
        name: one.tolist() for name, one in drawn.items()
    }


# Saved models and cache


@pytest.mark.parametrize("cut", ["bytes", "characters", "words", "bpe(vocabulary=300)"])
def test_language_model_keep_and_reopen_round_trip(cut, tmp_path):
    model = fitted(tokenizer=cut)
    model.keep(tmp_path / "model")
    again = language_model(folder=tmp_path / "model", device="cpu")
    assert again.name == model.name
    assert (again.embed(TEXTS[:5]) == model.embed(TEXTS[:5])).all()
    assert again.bits(TEXTS[:5]) == pytest.approx(model.bits(TEXTS[:5]), nan_ok=True)
    assert again.log == model.log
    assert again.fitted(["something else"]) is again
    assert open_embedder(f'lm(folder="{tmp_path / "model"}")').name == model.name


def test_language_model_folder_rejects_overwrite_and_other_options(tmp_path):
    model = fitted(kind="lstm")
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
    fitted(tokenizer="bpe(vocabulary=300)").keep(folder)
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
    with pytest.raises(BadInput) as refused:
        language_model(folder=folder)
    assert str(folder) in str(refused.value)


def test_language_model_cache_reuses_model_of_same_texts_and_options(tmp_path):
    steps = []
    options = {"cache": tmp_path, "batch": 1024}

    def heard(step):
        steps.append((step.done, step.total))

    first = language_model(**{**TINY, **options}).fitted(TEXTS, heard)
    assert steps == [(n + 1, len(steps)) for n in range(len(steps))]
    assert steps
    steps.clear()
    again = language_model(**{**TINY, **options}).fitted(TEXTS[::-1], heard)
    assert not steps
    assert again.name == first.name
    assert again.train_seconds == first.train_seconds
    for other, texts in (({"seed": 1}, TEXTS), ({"tokenizer": "bpe(vocabulary=300)"}, TEXTS), ({}, TEXTS[:90])):
        steps.clear()
        language_model(**{**TINY, **options, **other}).fitted(texts, heard)
        assert steps
    names = [path.name for path in (tmp_path / "lm").iterdir()]
    assert len(names) == 4
    assert all(len(name) == 32 for name in names)  # no checkpoint or partial file is left


def test_language_model_cache_separates_tokenizers_of_equal_folder_name(tmp_path):
    transformers = pytest.importorskip("transformers")
    models = []
    for parent, size in (("a", 270), ("b", 290)):
        cut, folder = open_tokenizer(f"bpe(vocabulary={size})", TEXTS), tmp_path / parent / "tok"
        transformers.PreTrainedTokenizerFast(tokenizer_object=cut.library).save_pretrained(folder)
        models.append(fitted(tokenizer=f"transformers(model={folder})", cache=tmp_path))
    assert [one.tokenizer.vocabulary for one in models] == [270, 290]
    assert len({one.name for one in models}) == 2


def test_language_model_cache_depends_on_trained_tokenizer(tmp_path):
    often, seldom = (open_tokenizer(f"words(least={n})") for n in (30, 100))
    assert often.name == seldom.name
    first, again = (fitted(tokenizer=often, cache=tmp_path) for _ in range(2))
    assert again.name == first.name
    assert again.train_seconds == first.train_seconds
    assert fitted(tokenizer=seldom, cache=tmp_path).tokenizer.vocabulary < first.tokenizer.vocabulary
    assert len(list((tmp_path / "lm").iterdir())) == 2


def test_embedder_tokenizer_of_language_model_has_no_special_tokens():
    model = fitted(context=8)
    assert open_tokenizer("bytes").marks == 1
    cut = EmbedderTokenizer(model)
    assert (cut.limit, cut.marks) == (8, 0)
    found = count_tokens(cut, ["12345678", "123456789", ""], probes=False)
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
def test_language_model_interrupted_training_resumes_identically(objective, tmp_path, quickly_saved):
    options = {
        **TINY,
        "tokenizer": "bytes",
        "objective": objective,
        "batch": 16 if objective == "pairs" else 700,
        "passes": 2,
    }
    whole = language_model(**options).fitted(TEXTS)

    class Interrupted(BaseException):
        pass

    def stop(step):
        if step.done == step.total // 2:
            raise Interrupted

    seen = []
    with pytest.raises(Interrupted):
        language_model(**{**options, "cache": tmp_path}).fitted(TEXTS, stop)
    (file,) = (tmp_path / "lm").iterdir()
    assert file.suffix == ".checkpoint"
    again = language_model(**{**options, "cache": tmp_path}).fitted(TEXTS, lambda step: seen.append(step.done))
    assert seen[0] > 1
    assert again.name == whole.name
    assert again.log["losses"] == whole.log["losses"]
    assert again.log["tokens"] == whole.log["tokens"]


def test_read_checkpoint_damaged_or_mismatched_returns_none(tmp_path):
    file = tmp_path / "x.checkpoint"
    shapes = networks.weight_shapes(recipe(), 385)
    assert checkpoints.read_checkpoint(file, shapes) is None
    file.write_bytes(b"\x10\0\0\0\0\0\0\0{")
    assert checkpoints.read_checkpoint(file, shapes) is None
    weights = networks.draw_weights(recipe(), 385)
    moments = {
        f"{name}:{which}": one
        for name, one in networks.draw_weights(recipe(), 385).items()
        for which in ("first", "second")
    }
    moments = {name: one.clone() for name, one in moments.items()}
    checkpoints.write_checkpoint(file, training.TrainingState(weights, moments, 3, [1.0, 2.0, 3.0], 30, 1.5))
    found = checkpoints.read_checkpoint(file, shapes)
    assert (found.step, found.losses, found.tokens, found.seconds) == (3, [1.0, 2.0, 3.0], 30, 1.5)
    assert checkpoints.read_checkpoint(file, networks.weight_shapes(recipe(), 300)) is None


def test_language_model_without_cache_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "cache"))
    fitted(batch=4096)
    assert not (tmp_path / "cache").exists()


def test_language_model_unwritable_cache_raises_before_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    heard = []
    with pytest.raises(BadInput, match="cannot be written") as refused:
        language_model(**{**TINY, "cache": tmp_path / "file"}).fitted(TEXTS, heard.append)
    assert "cache=false" in refused.value.hint
    assert not heard
