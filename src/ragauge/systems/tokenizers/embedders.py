"""Provide the tokenizer of an embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ragauge.errors import BadInput
from ragauge.seams import Tokenizer


class OfEmbedder:
    """Tokenizer of an embedder, with its token limit; `of` is a name, a spec or the embedder."""

    def __init__(self, of: Any) -> None:
        embedder, told = _opened(of)
        try:
            inner = getattr(embedder, "tokenizer", None)
        except BadInput:  # An untrained embedder raises.
            inner = None
        if not isinstance(inner, Tokenizer):
            learns = callable(getattr(embedder, "fitted", None))
            raise BadInput(
                f"the embedder `{told}` has no tokenizer that could be looked at",
                hint=f"it is yet to learn: name what cuts its texts, {_cutting(of)}" if learns else None,
            )
        self._tokenizer: Tokenizer = inner
        self.name = inner.name
        self.vocabulary = inner.vocabulary
        self.unknown = inner.unknown
        self.limit: int | None = getattr(embedder if hasattr(embedder, "limit") else inner, "limit", None)
        """Maximum number of tokens that the embedder reads per text, including special tokens; None for no limit."""
        self.marks = int(getattr(embedder if hasattr(embedder, "marks") else inner, "marks", 0) or 0)
        """Number of special tokens around a text, as far as they count for the limit."""
        tell = getattr(embedder, "tokens", None)
        self.tokens: Callable[[Sequence[str]], Sequence[int]] | None = tell if callable(tell) else None
        """Function that counts tokens as the embedder does, for its limit; None if it has none."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without truncation and special tokens."""
        return self._tokenizer.encode(texts)

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids."""
        return self._tokenizer.decode(numbers)

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text."""
        return self._tokenizer.pieces(text)


def _cutting(of: Any) -> str:
    """Return the tokenizer that the spec of an embedder names, or the default."""
    from ragauge.systems.specs import Spec, parse

    spec = parse(of, "embedder") if isinstance(of, str) else of
    named = spec.options.get("tokenizer") if isinstance(spec, Spec) else None
    return str(named or "bpe(vocabulary=4000)")


def _opened(of: Any) -> tuple[Any, str]:
    from ragauge.systems.building import made
    from ragauge.systems.specs import Spec, parse

    if isinstance(of, str | Spec):
        spec = parse(of, "embedder") if isinstance(of, str) else of
        return made("embedders", spec), str(spec)
    return of, str(getattr(of, "name", of))
