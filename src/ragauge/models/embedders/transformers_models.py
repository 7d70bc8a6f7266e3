"""Load configuration, tokenizer and weights of transformers encoders, without running model code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, RagaugeError, error_summary
from ragauge.models.huggingface import (
    MODEL_HINT,
    PICKLE_FILES,
    SAFETENSORS_FILES,
    UNUSED_HEAD,
    check_no_pickles,
    model_label,
    model_load_error,
    quiet_loading,
)

MODEL_SHAPES: Mapping[str, Mapping[str, Any]] = {
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
"""Architectures that can be created with random weights and without files, because their tokenizers need no vocabulary.

The `mini` ones are not published models: they are small enough to embed a whole corpus on a CPU.
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
CAUSAL_MODEL_CLASS = "AutoModelForCausalLM"
BYT5_VOCABULARY_SIZE = 384
"""Vocabulary size of ByT5: 256 bytes, 3 special tokens, 125 sentinels."""


@dataclass(frozen=True)
class EncoderModel:
    """Model that computes a vector for each token of a text."""

    label: str
    config: Any
    tokenizer: Any
    body: Any
    """Part that computes the states: encoder-decoders without decoder, language models without head."""
    causal: bool = False
    """Whether a token only attends to those before it."""
    language: Any = None
    """Model with its head if it predicts the next token; else None."""


@dataclass(frozen=True)
class WeightOptions:
    """Which weights of a model to load."""

    download: bool = False
    revision: str | None = None
    untrained: bool = False
    """Whether to draw all weights from `seed`, with the architecture unchanged."""
    layers: int | None = None
    """Use only the first N layers."""
    seed: int = 0


def open_model(model: str, options: WeightOptions) -> EncoderModel:
    """Open a model from a folder, the hub cache or the hub, or with random weights."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError:
        raise MissingExtra("the embedder `encoder`", "transformers") from None
    folder = Path(model).expanduser()
    shape = model.removeprefix("google/")
    made_up = options.untrained and shape in MODEL_SHAPES and not folder.is_dir()
    if not made_up and not folder.is_dir() and _is_folder_path(model):
        raise BadInput(f"folder `{model}` does not exist", hint=_model_hint(model, options))
    where = {
        "local_files_only": folder.is_dir() or not options.download,
        "trust_remote_code": False,
        "revision": options.revision or "main",
    }
    source = str(folder) if folder.is_dir() else model
    try:
        with quiet_loading(download=options.download):
            if made_up:
                values = dict(MODEL_SHAPES[shape])
                config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
            else:
                config = transformers.AutoConfig.from_pretrained(source, **where)
            if options.layers is not None:
                _limit_layers(config, options.layers)
            tokenizer = _load_tokenizer(transformers, None if made_up else source, config, where)
            kind = _find_model_class(transformers, config)
            body, language = _load_weights(getattr(transformers, kind), kind, source, config, where, options)
    except RagaugeError:
        raise
    except Exception as error:  # A library may raise any exception for an invalid file.
        raise _load_error(model, options, error) from error
    named = shape if made_up else model_label(model)
    return EncoderModel(named, config, tokenizer, body, kind == CAUSAL_MODEL_CLASS, language)


def _load_weights(
    factory: Any, kind: str, source: str, config: Any, where: Mapping[str, Any], options: WeightOptions
) -> tuple[Any, Any]:
    """Load the part that computes states, and for a language model also the whole."""
    import torch

    with torch.random.fork_rng(devices=[]):
        # Needed for loaded weights too: a head that the file lacks is initialised, and must not change the global
        # random state.
        torch.default_generator.manual_seed(options.seed)
        if options.untrained:
            model, lacks = factory.from_config(config, trust_remote_code=False), []
        else:
            if where["local_files_only"]:
                check_no_pickles(Path(source), kind)
            model, loading_info = factory.from_pretrained(
                source, config=config, use_safetensors=True, output_loading_info=True, **where
            )
            lacks = [name for name in sorted(loading_info["missing_keys"]) if UNUSED_HEAD not in name]
    model = model.float().eval()  # Regardless of the file: half precision gives other vectors on every machine.
    if kind == CAUSAL_MODEL_CLASS:
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


def _find_model_class(transformers: Any, config: Any) -> str:
    """Return the name of the library's class that computes the states of a text.

    For encoder-decoders it is the encoder only, if possible.
    """
    auto_module = transformers.models.auto.modeling_auto
    kind = type(config)
    if kind in auto_module.MODEL_FOR_TEXT_ENCODING_MAPPING:
        return "AutoModelForTextEncoding"
    is_causal = kind in auto_module.MODEL_FOR_CAUSAL_LM_MAPPING and kind not in auto_module.MODEL_FOR_MASKED_LM_MAPPING
    if is_causal and not getattr(config, "is_encoder_decoder", False):
        return CAUSAL_MODEL_CLASS
    return "AutoModel"


def _limit_layers(config: Any, layers: int) -> None:
    deep = getattr(config, "num_hidden_layers", None)
    if not isinstance(deep, int) or not 1 <= layers <= deep:
        raise BadInput(f"the model has {deep} layers, and {layers} of them cannot be taken")
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    config.num_hidden_layers = layers


def _load_tokenizer(transformers: Any, source: str | None, config: Any, where: Mapping[str, Any]) -> Any:
    """Load the model's tokenizer.

    If a folder has none, a tokenizer of bytes or characters is created for such models. The library would create one
    without words, which gives every text the same vector.
    """
    folder = None if source is None else Path(source)
    if folder is None or (folder.is_dir() and not any((folder / name).exists() for name in TOKENIZER_FILES)):
        if config.model_type == "canine":
            return transformers.CanineTokenizer()
        if config.model_type == "t5" and config.vocab_size == BYT5_VOCABULARY_SIZE:
            return transformers.ByT5Tokenizer()
        raise BadInput(
            "no tokenizer found",
            file=str(folder),
            hint="copy tokenizer.json (or vocab.txt, spiece.model …) next to config.json",
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, **where)
    if tokenizer.vocab_size < 1_000_000 and not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens) - {"▁"}:
        raise BadInput(
            "the tokenizer knows no words: its vocabulary is missing",
            file=source,
            hint="copy tokenizer.json (or vocab.txt, spiece.model …) next to config.json",
        )
    return tokenizer


def max_positions(model: EncoderModel) -> int | None:
    """Return the maximum number of tokens that a model can read; None if unlimited."""
    max_tokens = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(max_tokens, int) or max_tokens <= 0:
        return None
    for name, module in model.body.named_modules():
        # RoBERTa and similar models count positions from the padding index.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            max_tokens = int(module.num_embeddings) - int(module.padding_idx) - 1
    stride, min_padding = padding_rule(model)
    return max_tokens // stride * stride - min_padding


def padding_rule(model: EncoderModel) -> tuple[int, int]:
    """Return the padding rule of a model: stride and minimum padding.

    Lengths are padded to a multiple of the stride. CANINE merges characters by fours, drops the last four, uses
    neighbours, and attends in windows of 128. The vector of a text therefore depends on what follows it. It was trained
    on padded texts, so they are padded here.
    """
    if model.config.model_type != "canine":
        return 1, 0
    return int(model.config.local_transformer_stride), 3 * int(model.config.downsampling_rate)


def _is_folder_path(model: str) -> bool:
    return model.startswith((".", "~", "/")) or model.count("/") > 1 or "\\" in model or Path(model).exists()


def _model_hint(model: str, options: WeightOptions) -> str:
    if options.untrained:
        return f"pass a folder with config.json, or one of {', '.join(MODEL_SHAPES)}"
    random_weights = model.removeprefix("google/") in MODEL_SHAPES
    return MODEL_HINT + (", or untrained=true for random weights" if random_weights else "")


def _load_error(model: str, options: WeightOptions, error: Exception) -> RagaugeError:
    folder = Path(model).expanduser()
    line = error_summary(error)
    if "custom code" in str(error) or "remote code" in str(error):
        return BadInput(f"the model `{model}` contains custom code, which is not run")
    if folder.is_dir():
        weight_files = [name for name in (*SAFETENSORS_FILES, *PICKLE_FILES) if (folder / name).exists()]
        files = "config.json, model.safetensors and the tokenizer's files"
        hint = _model_hint(model, options) if options.untrained else f"expected {files}" if not weight_files else None
        return BackendFailed(f"the model in `{model}` cannot be loaded: {line}", hint=hint)
    if "safetensors" in str(error):
        return BackendFailed(
            f"the model `{model}` has no weights as safetensors: {line}",
            hint="try revision=refs/pr/N, where N is the number of the proposed change on its hub page",
        )
    return model_load_error(model, error, download=options.download, hint=_model_hint(model, options))


def config_fingerprint_text(config: Any) -> str:
    """Return a configuration as JSON, without its source and library version."""
    values = config.to_diff_dict()
    noise = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
    return json.dumps({name: value for name, value in values.items() if name not in noise}, sort_keys=True, default=str)
