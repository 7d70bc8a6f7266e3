"""Names of adapters: a literal table of import paths, then the entry points of installed packages. No third way.

A package adds its own under `[project.entry-points."ragauge.retrievers"]` (embedders, stores, rerankers likewise). An
object of yours needs no name: pass it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ragauge.errors import UnknownName

TABLE = {
    "retrievers": {
        "bm25": "ragauge.systems.bm25:BM25",
        "dense": "ragauge.systems.dense:Dense",
        "hybrid": "ragauge.systems.hybrid:Hybrid",
        "pipeline": "ragauge.systems.pipeline:Pipeline",
        "filtered": "ragauge.systems.pipeline:Filtered",
        "pgvector": "ragauge.systems.pgvector_db:open_retriever",
        "http": "ragauge.systems.http:HTTP",
    },
    "embedders": {
        "wordllama": "ragauge.systems.embedders.wordllama:WordLlama",
        "minilm": "ragauge.systems.embedders.minilm:MiniLM",
        "transformers": "ragauge.systems.embedders.transformers:SentenceTransformer",
        "openai": "ragauge.systems.embedders.openai:OpenAI",
    },
    "stores": {
        "exact": "ragauge.systems.stores.exact:Exact",
        "faiss": "ragauge.systems.stores.faiss_store:Faiss",
        "usearch": "ragauge.systems.stores.usearch_store:Usearch",
        "pgvector": "ragauge.systems.stores.pgvector:PgVector",
    },
    "rerankers": {
        "embedding": "ragauge.systems.rerankers.embedding:ByEmbedding",
        "mmr": "ragauge.systems.rerankers.embedding:MMR",
        "cross-encoder": "ragauge.systems.rerankers.cross_encoder:CrossEncoder",
        "llm": "ragauge.systems.rerankers.llm:LLM",
    },
}


def names(family: str) -> list[str]:
    """Every name of a family, those of installed packages last."""
    return [*TABLE[family], *(point.name for point in entry_points(group=f"ragauge.{family}"))]


def find(family: str, name: str) -> Any:
    """The class or function that a name stands for."""
    if name in TABLE[family]:
        module, _, attribute = TABLE[family][name].partition(":")
        return getattr(import_module(module), attribute)
    for point in entry_points(group=f"ragauge.{family}", name=name):
        return point.load()
    known = names(family)
    raise UnknownName(family.removesuffix("s"), name, known, hint=f"there are {', '.join(known)}")
