"""Who counts tokens: an embedder that tells, or a tokenizer from a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput, MissingExtra
from ragauge.knowledge.lints.evidence import Tokens
from ragauge.seams import Embedder
from ragauge.systems.building import open_embedder

UNTOLD = 1_000_000
"""A limit above this is how libraries say that they know none."""


def from_embedder(described: str | Embedder, limit: int | None) -> Tokens | str:
    """What an embedder says of its tokens, or the reason why there is nothing to count with."""
    embedder: Any = open_embedder(described)
    name = str(described) if isinstance(described, str) else embedder.name
    if not callable(getattr(embedder, "tokens", None)):
        return f"the embedder `{name}` does not tell how many tokens a text has: --tokenizer FILE --limit N"
    return Tokens(name, getattr(embedder, "limit", None) if limit is None else limit, embedder.tokens)


def from_file(path: str | Path, limit: int | None) -> Tokens:
    """A tokenizer.json of Hugging Face, or the folder of a model that has one; its limit, unless one is given."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtra("reading a tokenizer", "minilm") from None
    place = Path(path)
    file = place / "tokenizer.json" if place.is_dir() else place
    if not file.is_file():
        raise BadInput("no tokenizer is here", file=str(file), hint="a tokenizer.json of Hugging Face, or its folder")
    try:
        tokenizer: Any = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare exceptions
        raise BadInput(f"this is no tokenizer ({error})", file=str(file)) from None
    most = limit if limit is not None else _limit(tokenizer, file.parent)
    if most is None:
        raise BadInput("the tokenizer does not say how much its model reads", file=str(file), hint="--limit 512")
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        return [len(one.ids) for one in tokenizer.encode_batch_fast(list(texts))]

    name = file.parent.name if place.is_dir() else file.name
    return Tokens(name, most, count)


def _limit(tokenizer: Any, folder: Path) -> int | None:
    """What files beside a tokenizer say that its model reads; the least of it, since all of it holds."""
    cut = tokenizer.truncation
    told = [*_said(folder), *([cut["max_length"]] if cut else [])]
    known = [int(one) for one in told if isinstance(one, int | float) and 0 < one < UNTOLD]
    return min(known, default=None)


def _said(folder: Path) -> Iterator[Any]:
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            yield found.get(key)
