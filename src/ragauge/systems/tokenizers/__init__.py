"""Tokenizers: turn texts into token ids; each library is imported when its tokenizer is created."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragauge import plugins
from ragauge.errors import BadInput
from ragauge.seams import Tokenizer


def open_tokenizer(described: Any, texts: Sequence[str] | None = None) -> Tokenizer:
    """Open a tokenizer from a spec, or return it; train it on `texts` if needed.

    The name of an embedder that is not the name of a tokenizer (`minilm`) stands for the tokenizer of that embedder.

    >>> open_tokenizer("bytes").encode(["ab"])
    [[100, 101]]
    """
    from ragauge.systems.building import made
    from ragauge.systems.specs import Spec, parse

    spec = parse(described, "tokenizer") if isinstance(described, str) else described
    if isinstance(spec, Spec):
        if spec.name not in plugins.names("tokenizers") and spec.name in plugins.names("embedders"):
            spec = Spec("embedder", {"of": spec})
        tokenizer: Any = made("tokenizers", spec)
    elif callable(getattr(spec, "fitted", None)) or isinstance(spec, Tokenizer):
        tokenizer = spec
    else:
        raise BadInput(f"{spec!r} is no tokenizer", hint="it has name, vocabulary, unknown, encode, decode and pieces")
    if texts is not None and callable(learn := getattr(tokenizer, "fitted", None)):
        tokenizer = learn(texts)
    found: Tokenizer = tokenizer
    return found


def reopened(kept: Mapping[str, Any]) -> Tokenizer:
    """Restore a tokenizer from the state that `kept()` returned, without the corpus.

    >>> open_tokenizer("words", ["to be or not to be"]).kept()["words"]
    ['be', 'to', 'not', 'or']
    >>> reopened(open_tokenizer("words", ["to be or not to be"]).kept()).encode(["to be"])
    [[2, 1]]
    """
    from ragauge.systems.tokenizers import bytewise, characters, files, words

    kinds: Mapping[str, Callable[[Mapping[str, Any]], Tokenizer]] = {
        "bytes": lambda _: bytewise.Bytes(),
        "characters": lambda _: characters.Characters(),
        "words": lambda data: words.Words(data["words"], lower=data["lower"]),
        "library": lambda data: files.Library.read_from(data["json"], data["name"], data["limit"]),
    }
    kind = str(kept.get("kind"))
    if kind not in kinds:
        raise BadInput(f"a tokenizer of the kind `{kind}` cannot be opened again", hint=f"{', '.join(kinds)} can")
    return kinds[kind](kept)


class Learner:
    """Tokenizer before training; everything except `fitted` raises BadInput."""

    def __init__(self, name: str, learn: Callable[[Sequence[str]], Tokenizer]) -> None:
        self.name = name
        self._learn = learn

    def fitted(self, texts: Sequence[str]) -> Tokenizer:
        """Train on texts and return the trained tokenizer."""
        if not any(text.strip() for text in texts):
            raise BadInput(f"`{self.name}` has no texts to learn from")
        return self._learn(texts)

    @property
    def vocabulary(self) -> int:
        """Raises BadInput: the vocabulary size is unknown before training."""
        raise self._refusal()

    @property
    def unknown(self) -> int | None:
        """Raises BadInput: the id of unknown tokens is unavailable before training."""
        raise self._refusal()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:  # noqa: ARG002
        """Raise BadInput."""
        raise self._refusal()

    def decode(self, numbers: Sequence[int]) -> str:  # noqa: ARG002
        """Raise BadInput."""
        raise self._refusal()

    def pieces(self, text: str) -> list[str]:  # noqa: ARG002
        """Raise BadInput."""
        raise self._refusal()

    def _refusal(self) -> BadInput:
        return BadInput(f"`{self.name}` has learned no pieces yet", hint="fitted(texts) gives one that has")
