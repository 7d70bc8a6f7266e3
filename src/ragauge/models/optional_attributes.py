"""Optional attributes of embedders and tokenizers: None for one that an object lacks.

Only here are these attributes looked up by name. They are read when they are used, because the tokenizer of an
embedder that must be trained first may raise an error before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragauge.core.protocols import Embedder, Tokenizer

TokenCounts = Callable[[Sequence[str]], Sequence[int]]
"""Function from texts to their numbers of tokens."""


class EmbedderAttributes:
    """Optional attributes of an embedder; `ragauge.core.protocols.Embedder` describes them.

    >>> class Mine:
    ...     limit = 512
    >>> attributes = EmbedderAttributes(Mine())
    >>> attributes.limit, attributes.has_limit, attributes.fitted, attributes.trained
    (512, True, None, None)
    """

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder

    @property
    def fitted(self) -> Callable[..., Embedder] | None:
        """Method that trains it on texts."""
        return _method(self._embedder, "fitted")

    @property
    def has_limit(self) -> bool:
        """Whether it states its token limit, which is None if it reads texts of any length."""
        return hasattr(self._embedder, "limit")

    @property
    def limit(self) -> int | None:
        """Maximum number of tokens read per text."""
        return _integer(self._embedder, "limit")

    @property
    def marks(self) -> int | None:
        """Number of special tokens per text that count for the limit."""
        return _integer(self._embedder, "marks")

    @property
    def tokens(self) -> TokenCounts | None:
        """Method that counts the tokens of texts, read or not."""
        return _method(self._embedder, "tokens")

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Its tokenizer; raises an error if it must be trained first."""
        tokenizer = getattr(self._embedder, "tokenizer", None)
        return tokenizer if isinstance(tokenizer, Tokenizer) else None

    @property
    def probe(self) -> str:
        """Text that is embedded again before cached vectors are used; empty if it has none."""
        probe = getattr(self._embedder, "probe", "")
        return probe if isinstance(probe, str) else ""

    @property
    def parameters(self) -> int | None:
        return _integer(self._embedder, "parameters")

    @property
    def trained(self) -> bool | None:
        """Whether the parameters were trained."""
        trained = getattr(self._embedder, "trained", None)
        return None if trained is None else bool(trained)

    @property
    def train_seconds(self) -> float | None:
        seconds = getattr(self._embedder, "train_seconds", None)
        return None if seconds is None else float(seconds)


class TokenizerAttributes:
    """Optional attributes of a tokenizer; `ragauge.core.protocols.Tokenizer` describes them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @property
    def fitted(self) -> Callable[[Sequence[str]], Tokenizer] | None:
        """Method that trains it on texts."""
        return _method(self._tokenizer, "fitted")

    @property
    def limit(self) -> int | None:
        """Maximum number of tokens that its model reads."""
        return _integer(self._tokenizer, "limit")

    @property
    def marks(self) -> int:
        """Number of special tokens that its model adds to a text; 0 if unknown."""
        return _integer(self._tokenizer, "marks") or 0

    @property
    def tokens(self) -> TokenCounts | None:
        """Method that counts the tokens that count for the limit."""
        return _method(self._tokenizer, "tokens")

    @property
    def kept(self) -> Callable[[], Mapping[str, Any]] | None:
        """Method that returns its state, from which it can be restored."""
        return _method(self._tokenizer, "kept")


def _method(owner: Any, name: str) -> Callable[..., Any] | None:
    method = getattr(owner, name, None)
    return method if callable(method) else None


def _integer(owner: Any, name: str) -> int | None:
    value = getattr(owner, name, None)
    return None if value is None else int(value)
