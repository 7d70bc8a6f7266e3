"""Settings and defaults of an embedder study, and its view of the dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ragauge.datasets.perturbed import RATE
from ragauge.errors import BadInput, check_count
from ragauge.systems.specs import parse, without_secrets

MEASURES = (
    *("ndcg@10", "mrr@10", "recall@1", "recall@5", "recall@10"),
    *("precision@1", "precision@5", "precision@10"),
)
STORES = ("exact", "pgvector(index=none)", "pgvector(index=hnsw)")
BASELINES = ("bm25", "chance")
"""Baselines added to every study unless they are switched off."""
STUDY: Mapping[str, str] = {
    "wordllama": "wordllama",
    "minilm": "minilm",
    "lstm-bpe": "lm(kind=lstm, tokenizer=bpe(vocabulary=4000), objective=pairs)",
    "transformer-bpe": "lm(kind=transformer, tokenizer=bpe(vocabulary=4000), objective=pairs)",
    "transformer-bytes": "lm(kind=transformer, tokenizer=bytes, objective=pairs)",
    "next-bpe": "lm(kind=transformer, tokenizer=bpe(vocabulary=4000), objective=next)",
    "next-bytes": "lm(kind=transformer, tokenizer=bytes, objective=next)",
    "untrained-bpe": "lm(kind=transformer, tokenizer=bpe(vocabulary=4000), objective=pairs, trained=false)",
    "untrained-bytes": "lm(kind=transformer, tokenizer=bytes, objective=pairs, trained=false)",
    "untrained-byt5": "encoder(model=byt5-mini, untrained=true)",
}
"""Embedders compared by default: each is shipped, trained on the corpus, or has random weights."""


@dataclass(frozen=True)
class Plan:
    """Settings applied to every embedder of a study."""

    context: int | None = 512
    """Number of characters after which every text is cut; 0 cuts none."""
    part: str = "whole"
    """Part of a document that is embedded: `whole`, `text` or `title`."""
    stores: Sequence[str] = STORES
    """Vector stores. Queries are timed end to end through the first; the others search with the same vectors."""
    k: int = 10
    """Hits per query; raised if a measure has a larger cutoff."""
    dimensions: Sequence[int] | None = None
    """Numbers of dimensions to reduce vectors to. None: powers of two. Empty: no reduction."""
    sizes: Sequence[int] | None = None
    """Corpus sizes in documents. None: 750, 1500, 3000 and so on. Empty: the full corpus only."""
    perturbations: Sequence[str] | None = None
    """Query perturbations. None: some of each kind. Empty: none."""
    rate: float = RATE
    """Share of the words that a perturbation may change."""
    seeds: int = 1
    """Number of seeds for a random perturbation."""
    timed: int | None = None
    """Number of queries timed one by one, evenly spaced; None for all of them."""
    warmup: int = 5
    """Number of untimed warm-up queries."""
    threads: int = 1
    """Threads of numeric libraries while queries are timed; documents are embedded with all threads."""
    memory: bool = True
    """Whether memory is measured, in a separate process per embedder."""
    tokens: bool = True
    """Whether the tokenizers of embedders are measured."""
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        ranges = {"context": (0, 10**9), "k": (1, 10**7), "seeds": (1, 1000), "timed": (1, 10**7)}
        for name, (low, high) in {
            **ranges,
            "threads": (1, 10_000),
            "warmup": (0, 10**6),
            "seed": (0, 2**63 - 1),
        }.items():
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), low, high)
        for name in ("rate", "confidence"):
            if not 0 < getattr(self, name) <= (1 if name == "rate" else 0.9999):
                raise BadInput(f"{name} is {getattr(self, name):g}, not above 0 and at most 1")
        for name in ("sizes", "dimensions"):
            if any(one < 1 for one in getattr(self, name) or ()):
                raise BadInput(f"{name} are {', '.join(map(str, getattr(self, name)))}, not all at least 1")
        if isinstance(self.stores, str):
            raise BadInput("stores are several", hint=f'stores=["{self.stores}"]')
        if not self.stores:
            raise BadInput("there is no store to ask", hint="exact is one")

    @property
    def shown(self) -> dict[str, object]:
        """Settings as a mapping, without the secrets in store descriptions."""
        return {**asdict(self), "stores": [str(without_secrets(parse(one))) for one in self.stores]}

    @property
    def characters(self) -> int | None:
        """Number of characters kept of each text; None for all."""
        return self.context or None


QUICK: Mapping[str, object] = {
    "stores": ("exact",),
    "dimensions": (),
    "sizes": (),
    "perturbations": (),
    "memory": False,
    "timed": 100,
}
"""Settings of a quick study."""
