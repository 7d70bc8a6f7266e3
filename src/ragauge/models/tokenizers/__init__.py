"""Tokenizers: turn texts into token ids; each library is imported when its tokenizer is created."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from ragauge.core import plugins
from ragauge.core.components import build_component
from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import Part
from ragauge.core.protocols import Embedder, Tokenizer
from ragauge.core.specs import Spec, parse_spec
from ragauge.models.optional_attributes import EmbedderAttributes, TokenizerAttributes


def open_tokenizer(spec_or_object: Any, texts: Sequence[str] | None = None) -> Tokenizer:
    """Open a tokenizer from a spec, or return it; train it on `texts` if needed.

    The name of an embedder that is not the name of a tokenizer (`minilm`) stands for the tokenizer of that embedder.

    >>> open_tokenizer("bytes").encode(["ab"])
    [[100, 101]]
    """
    spec = parse_spec(spec_or_object, "tokenizer") if isinstance(spec_or_object, str) else spec_or_object
    if isinstance(spec, Spec):
        if spec.name not in plugins.plugin_names("tokenizers") and spec.name in plugins.plugin_names("embedders"):
            spec = Spec("embedder", {"of": spec})
        tokenizer: Any = build_component("tokenizers", spec)
    elif TokenizerAttributes(spec).fitted is not None or isinstance(spec, Tokenizer):
        tokenizer = spec
    else:
        raise BadInput(
            f"{spec!r} is not a tokenizer", hint="a tokenizer has name, vocabulary, unknown, encode, decode and pieces"
        )
    if texts is not None and (train := TokenizerAttributes(tokenizer).fitted) is not None:
        tokenizer = train(texts)
    opened: Tokenizer = tokenizer
    return opened


def restore_tokenizer(state: Mapping[str, Any]) -> Tokenizer:
    """Restore a tokenizer from the state that `kept()` returned, without the corpus.

    >>> open_tokenizer("words", ["to be or not to be"]).kept()["words"]
    ['be', 'to', 'not', 'or']
    >>> restore_tokenizer(open_tokenizer("words", ["to be or not to be"]).kept()).encode(["to be"])
    [[2, 1]]
    """
    from ragauge.models.tokenizers import basic, huggingface

    kinds: Mapping[str, Callable[[Mapping[str, Any]], Tokenizer]] = {
        "bytes": lambda _: basic.ByteTokenizer(),
        "characters": lambda _: basic.CharacterTokenizer(),
        "words": lambda data: basic.WordTokenizer(data["words"], lower=data["lower"]),
        "library": lambda data: huggingface.HuggingFaceTokenizer.read_from(data["json"], data["name"], data["limit"]),
    }
    kind = str(state.get("kind"))
    if kind not in kinds:
        raise BadInput(f"a tokenizer of the kind `{kind}` cannot be opened again", hint=f"{', '.join(kinds)} can")
    return kinds[kind](state)


class UntrainedTokenizer:
    """Tokenizer before training; everything except `fitted` raises BadInput."""

    def __init__(self, name: str, learn: Callable[[Sequence[str]], Tokenizer]) -> None:
        self.name = name
        self._learn = learn

    def fitted(self, texts: Sequence[str]) -> Tokenizer:
        """Train on texts and return the trained tokenizer."""
        if not any(text.strip() for text in texts):
            raise BadInput(f"no texts to train `{self.name}` on")
        return self._learn(texts)

    @property
    def vocabulary(self) -> int:
        """Raises BadInput: the vocabulary size is unknown before training."""
        raise self._untrained_error()

    @property
    def unknown(self) -> int | None:
        """Raises BadInput: the id of unknown tokens is unavailable before training."""
        raise self._untrained_error()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:  # noqa: ARG002
        """Raise BadInput."""
        raise self._untrained_error()

    def decode(self, numbers: Sequence[int]) -> str:  # noqa: ARG002
        """Raise BadInput."""
        raise self._untrained_error()

    def pieces(self, text: str) -> list[str]:  # noqa: ARG002
        """Raise BadInput."""
        raise self._untrained_error()

    def _untrained_error(self) -> BadInput:
        return BadInput(f"`{self.name}` is not trained", hint="train it with fitted(texts)")


class EmbedderTokenizer:
    """Tokenizer of an embedder, with its token limit; `of` is a name, a spec or the embedder."""

    def __init__(self, of: Annotated[Embedder | str | Spec, Part(is_built=False)]) -> None:
        embedder, label = _open_embedder(of)
        attributes = EmbedderAttributes(embedder)
        try:
            inner = attributes.tokenizer
        except BadInput:  # An untrained embedder raises.
            inner = None
        if inner is None:
            hint = f"it is not trained: name its tokenizer, {_find_tokenizer_spec(of)}" if attributes.fitted else None
            raise BadInput(f"the embedder `{label}` has no tokenizer to inspect", hint=hint)
        tokenizer_attributes = TokenizerAttributes(inner)
        self._tokenizer = inner
        self.name = inner.name
        self.vocabulary = inner.vocabulary
        self.unknown = inner.unknown
        self.limit = attributes.limit if attributes.has_limit else tokenizer_attributes.limit
        """Maximum number of tokens that the embedder reads per text, including special tokens; None for no limit."""
        self.marks = tokenizer_attributes.marks if attributes.marks is None else attributes.marks
        """Number of special tokens around a text, as far as they count for the limit."""
        self.tokens = attributes.tokens
        """Function that counts tokens as the embedder does, for its limit; None if it has none."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without truncation and special tokens."""
        return self._tokenizer.encode(texts)

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids."""
        return self._tokenizer.decode(numbers)

    def pieces(self, text: str) -> list[str]:
        return self._tokenizer.pieces(text)


def _find_tokenizer_spec(embedder: Any) -> str:
    """Return the tokenizer that the spec of an embedder names, or the default."""
    spec = parse_spec(embedder, "embedder") if isinstance(embedder, str) else embedder
    named = spec.options.get("tokenizer") if isinstance(spec, Spec) else None
    return str(named or "bpe(vocabulary=4000)")


def _open_embedder(embedder: Any) -> tuple[Any, str]:
    if isinstance(embedder, str | Spec):
        spec = parse_spec(embedder, "embedder") if isinstance(embedder, str) else embedder
        return build_component("embedders", spec), str(spec)
    return embedder, str(getattr(embedder, "name", embedder))
