"""Names of adapters: a literal table of import paths, then the entry points of installed packages. No third way.

A package adds its own under `[project.entry-points."ragauge.retrievers"]` (graphs, tokenizers, embedders, stores,
keepers, rerankers, chats likewise). An object of yours needs no name: pass it.
"""

from __future__ import annotations

import difflib
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput, UnknownName

TABLE = {
    "retrievers": {
        "bm25": "ragauge.systems.bm25:BM25",
        "dense": "ragauge.systems.dense:Dense",
        "hybrid": "ragauge.systems.hybrid:Hybrid",
        "pipeline": "ragauge.systems.pipeline:Pipeline",
        "filtered": "ragauge.systems.pipeline:Filtered",
        "pgvector": "ragauge.systems.pgvector_db:open_retriever",
        "pagerank": "ragauge.systems.graphs.pagerank:PageRank",
        "graphflow": "ragauge.systems.graphs.graphflow:GraphFlow",
        "swarm": "ragauge.systems.graphs.swarm:Swarm",
        "http": "ragauge.systems.http:HTTP",
    },
    "graphs": {
        "links": "ragauge.systems.graphs.linkers:Links",
        "knn": "ragauge.systems.graphs.linkers:Nearest",
        "entities": "ragauge.systems.graphs.entities:Entities",
        "field": "ragauge.systems.graphs.linkers:Field",
    },
    "tokenizers": {
        "bytes": "ragauge.systems.tokenizers.bytewise:Bytes",
        "characters": "ragauge.systems.tokenizers.characters:Characters",
        "words": "ragauge.systems.tokenizers.words:words",
        "bpe": "ragauge.systems.tokenizers.trained:bpe",
        "wordpiece": "ragauge.systems.tokenizers.trained:wordpiece",
        "unigram": "ragauge.systems.tokenizers.trained:unigram",
        "file": "ragauge.systems.tokenizers.files:read",
        "transformers": "ragauge.systems.tokenizers.pretrained:open_pretrained",
        "embedder": "ragauge.systems.tokenizers.embedders:OfEmbedder",
    },
    "embedders": {
        "words": "ragauge.systems.embedders.words:Words",
        "wordllama": "ragauge.systems.embedders.wordllama:WordLlama",
        "minilm": "ragauge.systems.embedders.minilm:MiniLM",
        "transformers": "ragauge.systems.embedders.transformers:SentenceTransformer",
        "encoder": "ragauge.systems.embedders.encoder:Encoder",
        "lm": "ragauge.systems.embedders.lm:LanguageModel",
        "chance": "ragauge.systems.embedders.chance:Chance",
        "openai": "ragauge.systems.embedders.openai:OpenAI",
    },
    "stores": {
        "exact": "ragauge.systems.stores.exact:Exact",
        "faiss": "ragauge.systems.stores.faiss_store:Faiss",
        "usearch": "ragauge.systems.stores.usearch_store:Usearch",
        "hnswlib": "ragauge.systems.stores.hnswlib_store:Hnswlib",
        "voyager": "ragauge.systems.stores.voyager_store:Voyager",
        "annoy": "ragauge.systems.stores.annoy_store:Annoy",
        "scann": "ragauge.systems.stores.scann_store:Scann",
        "pgvector": "ragauge.systems.stores.pgvector:PgVector",
        "qdrant": "ragauge.systems.stores.qdrant_store:Qdrant",
        "chroma": "ragauge.systems.stores.chroma_store:Chroma",
        "lancedb": "ragauge.systems.stores.lancedb_store:LanceDB",
        "milvus-lite": "ragauge.systems.stores.milvus_lite_store:MilvusLite",
        "sqlite-vec": "ragauge.systems.stores.sqlite_vec_store:SqliteVec",
        "duckdb": "ragauge.systems.stores.duckdb_store:DuckDB",
        "memvid": "ragauge.systems.stores.memvid_store:Memvid",
        "null": "ragauge.systems.stores.null:Null",
    },
    "keepers": {
        "memory": "ragauge.systems.keepers.memory:Memory",
        "pgvector": "ragauge.systems.keepers.pgvector:PgVector",
        "qdrant": "ragauge.systems.keepers.qdrant:Qdrant",
        "chroma": "ragauge.systems.keepers.chroma:Chroma",
        "lancedb": "ragauge.systems.keepers.lancedb:LanceDB",
        "milvus-lite": "ragauge.systems.keepers.milvus_lite:MilvusLite",
        "sqlite-vec": "ragauge.systems.keepers.sqlite_vec:SqliteVec",
        "duckdb": "ragauge.systems.keepers.duckdb:DuckDB",
        "memvid": "ragauge.systems.keepers.memvid:Memvid",
        "vectors": "ragauge.systems.keepers.vectors:Vectors",
    },
    "rerankers": {
        "embedding": "ragauge.systems.rerankers.embedding:ByEmbedding",
        "mmr": "ragauge.systems.rerankers.embedding:MMR",
        "cross-encoder": "ragauge.systems.rerankers.cross_encoder:CrossEncoder",
        "llm": "ragauge.systems.rerankers.llm:LLM",
        "swarm": "ragauge.systems.graphs.swarm:SwarmReranker",
    },
    "chats": {
        "openai": "ragauge.judges.chats.openai:OpenAI",
        "local": "ragauge.judges.chats.local:Local",
        "replay": "ragauge.judges.chats.replay:Replay",
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


def own(path: str) -> Any:
    """A function or class of the user's own, `module:name`: somebody who types can name one, a file never can."""
    module, _, attribute = path.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        thing: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise BadInput(
            f"there is no module `{module}` ({error})", hint="run it from the folder that holds it"
        ) from None
    except Exception as error:  # whatever stands in it
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        message = f"the module `{module}` cannot be imported: {type(error).__name__}: {error}{where}"
        raise BadInput(" ".join(message.split()), hint="--debug shows the traceback") from error
    for part in attribute.split("."):
        if not hasattr(thing, part):
            near = difflib.get_close_matches(part, dir(thing), n=1)
            raise BadInput(f"`{module}` has no `{attribute}`", hint=f"did you mean `{near[0]}`?" if near else None)
        thing = getattr(thing, part)
    return thing
