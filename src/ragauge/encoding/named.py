"""An embedder under the name that it was given, where it has none of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ragauge.seams import Embedder, Vectors


class Named:
    """Somebody's own embedder, with a name; whatever else it has is its own."""

    def __init__(self, embedder: Any, name: str) -> None:
        self._embedder = embedder
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._embedder, attribute)
        return self._learning(found) if attribute == "fitted" and callable(found) else found

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text."""
        found: Vectors = self._embedder.embed(texts)
        return found

    def _learning(self, fitted: Callable[..., Any]) -> Callable[..., Embedder]:
        return lambda *given, **more: named(fitted(*given, **more), self.name)


def named(embedder: Any, name: str) -> Embedder:
    """An embedder that has a name: its own, or this one."""
    found: Embedder = embedder if getattr(embedder, "name", None) else Named(embedder, name)
    return found
