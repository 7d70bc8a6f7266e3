"""What an embedder cuts its texts with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ragauge.errors import BadInput
from ragauge.seams import Tokenizer


class OfEmbedder:
    """The tokenizer of an embedder (`of`: a name, a description, or the embedder), and how much that reads."""

    def __init__(self, of: Any) -> None:
        embedder, told = _opened(of)
        try:
            inner = getattr(embedder, "tokenizer", None)
        except BadInput:  # what is yet to learn says so
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
        """Tokens of a text that the embedder reads, the marks among them; None for all."""
        self.marks = int(getattr(embedder if hasattr(embedder, "marks") else inner, "marks", 0) or 0)
        """Tokens that it has around a text, as far as they count for the limit."""
        tell = getattr(embedder, "tokens", None)
        self.tokens: Callable[[Sequence[str]], Sequence[int]] | None = tell if callable(tell) else None
        """How many tokens each text has by the embedder's own count, which its limit is held against."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text, all of it, without marks around it."""
        return self._tokenizer.encode(texts)

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of numbers."""
        return self._tokenizer.decode(numbers)

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text."""
        return self._tokenizer.pieces(text)


def _cutting(of: Any) -> str:
    """The tokenizer that a description names for an embedder."""
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
