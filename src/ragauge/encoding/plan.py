"""How embedders are compared, and the study that is made where nobody names any."""

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
"""What every embedder is held against, unless nobody wants that."""
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
"""What is compared where nobody says: all of it is shipped, learns here, or has random weights."""


@dataclass(frozen=True)
class Plan:
    """What is done with every embedder alike."""

    context: int | None = 512
    """Every text is cut after so many characters; 0 cuts none."""
    part: str = "whole"
    """What of a document is embedded: `whole`, `text`, `title`."""
    stores: Sequence[str] = STORES
    """Queries are timed through the first; the others are asked with the vectors at hand."""
    k: int = 10
    """Documents a query; more where a measure looks deeper."""
    dimensions: Sequence[int] | None = None
    """What vectors are made smaller to: powers of two where nothing is said, and nothing where it is empty."""
    sizes: Sequence[int] | None = None
    """Parts of the corpus: 750, 1500, 3000 … documents where nothing is said, and none where it is empty."""
    perturbations: Sequence[str] | None = None
    """How queries are written in another way: some of each kind where nothing is said, none where it is empty."""
    rate: float = RATE
    """The part of the words that a perturbation may touch."""
    seeds: int = 1
    """How often a perturbation that draws is made."""
    timed: int | None = None
    """How many queries are embedded and timed one by one, evenly over all; None for all of them."""
    warmup: int = 5
    """Queries that are asked before any is timed."""
    threads: int = 1
    """Threads that numeric libraries may use while queries are timed; documents are embedded with all of them."""
    memory: bool = True
    """Whether a process of its own weighs each embedder."""
    tokens: bool = True
    """Whether tokenizers are looked at."""
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
        """All of it as it may be written down: without what stores are told in secret."""
        return {**asdict(self), "stores": [str(without_secrets(parse(one))) for one in self.stores]}

    @property
    def characters(self) -> int | None:
        """Of a text that anybody sees; None for all."""
        return self.context or None


QUICK: Mapping[str, object] = {
    "stores": ("exact",),
    "dimensions": (),
    "sizes": (),
    "perturbations": (),
    "memory": False,
    "timed": 100,
}
"""What is set for a first look."""
