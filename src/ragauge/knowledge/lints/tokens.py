"""Token counters from an embedder or a tokenizer file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput
from ragauge.knowledge.lints.evidence import Tokens
from ragauge.seams import Embedder
from ragauge.systems.building import open_embedder
from ragauge.systems.tokenizers import files


def from_embedder(described: str | Embedder, limit: int | None) -> Tokens | str:
    """Return the embedder's token counter, or the reason why it has none."""
    embedder: Any = open_embedder(described)
    name = str(described) if isinstance(described, str) else embedder.name
    if not callable(getattr(embedder, "tokens", None)):
        return f"the embedder `{name}` does not tell how many tokens a text has: --tokenizer FILE --limit N"
    return Tokens(name, getattr(embedder, "limit", None) if limit is None else limit, embedder.tokens)


def from_file(path: str | Path, limit: int | None) -> Tokens:
    """Read a Hugging Face tokenizer.json, or the folder of a model that has one.

    `limit` overrides the file's own limit. BadInput is raised if there is none.
    """
    place = Path(path)
    tokenizer = files.read(str(path), limit=limit)
    if tokenizer.limit is None:
        file = place / "tokenizer.json" if place.is_dir() else place
        raise BadInput("the tokenizer does not say how much its model reads", file=str(file), hint="--limit 512")

    def count(texts: Sequence[str]) -> list[int]:
        return [len(one) + tokenizer.marks for one in tokenizer.encode(texts)]

    return Tokens(place.resolve().name, tokenizer.limit, count)
