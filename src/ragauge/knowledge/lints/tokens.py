"""Who counts tokens: an embedder that tells, or a tokenizer from a file."""

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
    """What an embedder says of its tokens, or the reason why there is nothing to count with."""
    embedder: Any = open_embedder(described)
    name = str(described) if isinstance(described, str) else embedder.name
    if not callable(getattr(embedder, "tokens", None)):
        return f"the embedder `{name}` does not tell how many tokens a text has: --tokenizer FILE --limit N"
    return Tokens(name, getattr(embedder, "limit", None) if limit is None else limit, embedder.tokens)


def from_file(path: str | Path, limit: int | None) -> Tokens:
    """A tokenizer.json of Hugging Face, or the folder of a model that has one; its limit, unless one is given."""
    place = Path(path)
    tokenizer = files.read(str(path), limit=limit)
    if tokenizer.limit is None:
        file = place / "tokenizer.json" if place.is_dir() else place
        raise BadInput("the tokenizer does not say how much its model reads", file=str(file), hint="--limit 512")

    def count(texts: Sequence[str]) -> list[int]:
        return [len(one) + tokenizer.marks for one in tokenizer.encode(texts)]

    return Tokens(place.resolve().name, tokenizer.limit, count)
