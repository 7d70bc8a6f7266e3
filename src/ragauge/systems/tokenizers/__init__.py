"""Texts to pieces that are known by number; each library loads when its tokenizer is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragauge import plugins
from ragauge.errors import BadInput
from ragauge.seams import Tokenizer


def open_tokenizer(described: Any, texts: Sequence[str] | None = None) -> Tokenizer:
    """A tokenizer from a description, or itself; one that must see the corpus first learns from `texts`.

    The name of an embedder that is no tokenizer's (`minilm`) stands for the tokenizer which that embedder has.

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
    """The tokenizer that gave this by `kept()`, with what it has learned; the corpus is not needed again.

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
    """A tokenizer that is yet to learn its pieces from texts; it can do nothing else."""

    def __init__(self, name: str, learn: Callable[[Sequence[str]], Tokenizer]) -> None:
        self.name = name
        self._learn = learn

    def fitted(self, texts: Sequence[str]) -> Tokenizer:
        """What it has learned."""
        if not any(text.strip() for text in texts):
            raise BadInput(f"`{self.name}` has no texts to learn from")
        return self._learn(texts)

    @property
    def vocabulary(self) -> int:
        """Not known before it has learned."""
        raise self._refusal()

    @property
    def unknown(self) -> int | None:
        """Likewise."""
        raise self._refusal()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:  # noqa: ARG002
        """Refused."""
        raise self._refusal()

    def decode(self, numbers: Sequence[int]) -> str:  # noqa: ARG002
        """Refused."""
        raise self._refusal()

    def pieces(self, text: str) -> list[str]:  # noqa: ARG002
        """Refused."""
        raise self._refusal()

    def _refusal(self) -> BadInput:
        return BadInput(f"`{self.name}` has learned no pieces yet", hint="fitted(texts) gives one that has")
