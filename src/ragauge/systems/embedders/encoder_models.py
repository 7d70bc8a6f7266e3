"""What an encoder is made of: the transformers library's own configuration, tokenizer and weights; data, never code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.errors import BackendFailed, BadInput, MissingExtra, RagaugeError
from ragauge.systems.model_folders import (
    PICKLES,
    SAFE,
    UNUSED,
    WHERE,
    first_line,
    label,
    loading,
    not_loaded,
    refuse_pickles,
)

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "byt5-small": {
        "model_type": "t5",
        "vocab_size": 384,
        "d_model": 1472,
        "d_kv": 64,
        "d_ff": 3584,
        "num_layers": 12,
        "num_decoder_layers": 4,
        "num_heads": 6,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
    "byt5-base": {
        "model_type": "t5",
        "vocab_size": 384,
        "d_model": 1536,
        "d_kv": 64,
        "d_ff": 3968,
        "num_layers": 18,
        "num_decoder_layers": 6,
        "num_heads": 12,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
    "canine-s": {"model_type": "canine"},
    "canine-c": {"model_type": "canine"},
    "byt5-mini": {
        "model_type": "t5",
        "vocab_size": 384,
        "d_model": 256,
        "d_kv": 64,
        "d_ff": 640,
        "num_layers": 2,
        "num_decoder_layers": 1,
        "num_heads": 4,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
    "canine-mini": {
        "model_type": "canine",
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
}
"""Shapes that can be filled with random numbers without any file: their tokenizers need no vocabulary.

The published ones, and two of nobody's: the same parts, so few of them that a processor runs a whole corpus through.
"""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.txt",
    "vocab.json",
)
CAUSAL = "AutoModelForCausalLM"
BYTES = 384
"""Numbers of ByT5: 256 bytes, 3 marks, 125 that stand for gaps."""


@dataclass(frozen=True)
class Model:
    """A model that turns the numbers of a text into a vector for each of them."""

    label: str
    config: Any
    tokenizer: Any
    body: Any
    """Encoder-decoders without their decoder, language models without their head."""
    causal: bool = False
    """Whether a token sees only those before it."""
    language: Any = None
    """The same with its head, where it tells the next token."""


@dataclass(frozen=True)
class Wanted:
    """Which model, and what of it."""

    model: str
    download: bool = False
    revision: str | None = None
    untrained: bool = False
    layers: int | None = None
    seed: int = 0


def open_model(wanted: Wanted) -> Model:
    """A model from a folder, from what the hub's client keeps, from the hub where that is allowed, or made up."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError:
        raise MissingExtra("the embedder `encoder`", "transformers") from None
    folder = Path(wanted.model).expanduser()
    shape = wanted.model.removeprefix("google/")
    made_up = wanted.untrained and shape in SHAPES and not folder.is_dir()
    if not made_up and not folder.is_dir() and _is_path(wanted.model):
        raise BadInput(f"there is no folder `{wanted.model}`", hint=_where(wanted))
    where = {
        "local_files_only": folder.is_dir() or not wanted.download,
        "trust_remote_code": False,
        "revision": wanted.revision or "main",
    }
    source = str(folder) if folder.is_dir() else wanted.model
    try:
        with loading(download=wanted.download):
            if made_up:
                options = dict(SHAPES[shape])
                config = transformers.AutoConfig.for_model(options.pop("model_type"), **options)
            else:
                config = transformers.AutoConfig.from_pretrained(source, **where)
            if wanted.layers is not None:
                _make_shallower(config, wanted.layers)
            tokenizer = _tokenizer(transformers, None if made_up else source, config, where)
            kind = _kind(transformers, config)
            body, language = _weights(getattr(transformers, kind), kind, source, config, where, wanted)
    except RagaugeError:
        raise
    except Exception as error:  # whatever a library makes of a file that is not what it says
        raise _failed(wanted, error) from error
    named = shape if made_up else label(wanted.model)
    return Model(named, config, tokenizer, body, kind == CAUSAL, language)


def _weights(
    factory: Any, kind: str, source: str, config: Any, where: Mapping[str, Any], wanted: Wanted
) -> tuple[Any, Any]:
    """The part that reads, and the whole where it is a language model."""
    import torch

    with torch.random.fork_rng(devices=[]):
        # Also where weights are loaded: a head that the file lacks is drawn, and must not move anybody's numbers.
        torch.default_generator.manual_seed(wanted.seed)
        if wanted.untrained:
            model, lacks = factory.from_config(config, trust_remote_code=False), []
        else:
            if where["local_files_only"]:
                refuse_pickles(Path(source), kind)
            model, told = factory.from_pretrained(
                source, config=config, use_safetensors=True, output_loading_info=True, **where
            )
            lacks = [name for name in sorted(told["missing_keys"]) if UNUSED not in name]
    model = model.float().eval()  # whatever the file has: half precision makes other vectors on every machine
    if kind == CAUSAL:
        body, language = model.base_model, None if lacks else model
        inside = [name for name in lacks if name.startswith(f"{model.base_model_prefix}.")]
    else:
        encoder = kind == "AutoModel" and getattr(config, "is_encoder_decoder", False)
        body, language = model.get_encoder() if encoder else model, None
        inside = [name for name in lacks if not (encoder and name.startswith("decoder."))]
    if inside:
        raise BadInput(
            f"{len(inside)} of the weights are not in the file (`{inside[0]}` is the first), and none are made up",
            file=source,
            hint="untrained=true draws all of them, as a control",
        )
    return body, language


def _kind(transformers: Any, config: Any) -> str:
    """The library's class that gives the states of a text: of an encoder-decoder, the encoder alone if it can."""
    known = transformers.models.auto.modeling_auto
    kind = type(config)
    if kind in known.MODEL_FOR_TEXT_ENCODING_MAPPING:
        return "AutoModelForTextEncoding"
    told = kind in known.MODEL_FOR_CAUSAL_LM_MAPPING and kind not in known.MODEL_FOR_MASKED_LM_MAPPING
    if told and not getattr(config, "is_encoder_decoder", False):
        return CAUSAL
    return "AutoModel"


def _make_shallower(config: Any, layers: int) -> None:
    deep = getattr(config, "num_hidden_layers", None)
    if not isinstance(deep, int) or not 1 <= layers <= deep:
        raise BadInput(f"the model has {deep} layers, and {layers} of them cannot be taken")
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    config.num_hidden_layers = layers


def _tokenizer(transformers: Any, source: str | None, config: Any, where: Mapping[str, Any]) -> Any:
    """The model's tokenizer; where a folder has none, that of bytes or characters if the model is of such a kind.

    The library would make one that knows no words, and give every text the same vector.
    """
    folder = None if source is None else Path(source)
    if folder is None or (folder.is_dir() and not any((folder / name).exists() for name in TOKENIZER_FILES)):
        if config.model_type == "canine":
            return transformers.CanineTokenizer()
        if config.model_type == "t5" and config.vocab_size == BYTES:
            return transformers.ByT5Tokenizer()
        raise BadInput(
            "there is no tokenizer",
            file=str(folder),
            hint="copy tokenizer.json (or vocab.txt, spiece.model …) beside config.json",
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, **where)
    if tokenizer.vocab_size < 1_000_000 and not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens) - {"▁"}:
        raise BadInput(
            "the tokenizer knows no words: its vocabulary is missing",
            file=source,
            hint="copy tokenizer.json (or vocab.txt, spiece.model …) beside config.json",
        )
    return tokenizer


def positions(model: Model) -> int | None:
    """How many tokens a model can read at most; None where nothing in it bounds them."""
    most = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(most, int) or most <= 0:
        return None
    for name, module in model.body.named_modules():
        # RoBERTa and its likes count positions from behind the number of the padding.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            most = int(module.num_embeddings) - int(module.padding_idx) - 1
    stride, rest = filling(model)
    return most // stride * stride - rest


def filling(model: Model) -> tuple[int, int]:
    """What lengths are filled up to multiples of, and how much is filled up at least.

    CANINE joins characters by fours, drops the last four, looks at the neighbours, and attends in windows of 128: a
    text's vector depends on what follows its end. It was trained on texts that were filled up; so they are here.
    """
    if model.config.model_type != "canine":
        return 1, 0
    return int(model.config.local_transformer_stride), 3 * int(model.config.downsampling_rate)


def _is_path(model: str) -> bool:
    return model.startswith((".", "~", "/")) or model.count("/") > 1 or "\\" in model or Path(model).exists()


def _where(wanted: Wanted) -> str:
    if wanted.untrained:
        return f"give a folder with config.json, or one of {', '.join(SHAPES)}"
    random_weights = wanted.model.removeprefix("google/") in SHAPES
    return WHERE + (", or untrained=true for random weights" if random_weights else "")


def _failed(wanted: Wanted, error: Exception) -> RagaugeError:
    folder = Path(wanted.model).expanduser()
    line = first_line(error)
    if "custom code" in str(error) or "remote code" in str(error):
        return BadInput(f"the model `{wanted.model}` brings code of its own, which is not run")
    if folder.is_dir():
        held = [name for name in (*SAFE, *PICKLES) if (folder / name).exists()]
        files = "config.json, model.safetensors and the tokenizer's files"
        hint = _where(wanted) if wanted.untrained else f"it must hold {files}" if not held else None
        return BackendFailed(f"the model in `{wanted.model}` cannot be loaded: {line}", hint=hint)
    if "safetensors" in str(error):
        return BackendFailed(
            f"the model `{wanted.model}` has no weights as safetensors: {line}",
            hint="the hub's robot offers them as a proposed change: revision=refs/pr/N, where its page says which N",
        )
    return not_loaded(wanted.model, error, download=wanted.download, hint=_where(wanted))


def shape_of(config: Any) -> str:
    """What a configuration says, without where it came from and who wrote it."""
    said = config.to_diff_dict()
    noise = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
    return json.dumps({name: one for name, one in said.items() if name not in noise}, sort_keys=True, default=str)
