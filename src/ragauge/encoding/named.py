"""Give embedders without a name the name under which they were passed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ragauge.seams import Embedder, Vectors


class Named:
    """Embedder with a name of its own; all other attributes are those of the wrapped one."""

    def __init__(self, embedder: Any, name: str) -> None:
        self._embedder = embedder
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._embedder, attribute)
        return self._learning(found) if attribute == "fitted" and callable(found) else found

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text."""
        found: Vectors = self._embedder.embed(texts)
        return found

    def _learning(self, fitted: Callable[..., Any]) -> Callable[..., Embedder]:
        return lambda *given, **more: named(fitted(*given, **more), self.name)


def named(embedder: Any, name: str) -> Embedder:
    """Return the embedder if it has a name, else wrap it under the given name."""
    found: Embedder = embedder if getattr(embedder, "name", None) else Named(embedder, name)
    return found
