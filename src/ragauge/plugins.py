"""Plug-ins by name: a table of import paths for those of ragauge, then the entry points of installed packages.

A package registers its own under `[project.entry-points."ragauge.retrievers"]` (also graphs, tokenizers, embedders,
stores, keepers, rerankers, chats). Objects that users pass from Python need no name.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput, MissingExtra, UnknownName

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
        "byt5": "ragauge.systems.tokenizers.pretrained:open_byt5",
        "canine": "ragauge.systems.tokenizers.pretrained:open_canine",
        "embedder": "ragauge.systems.tokenizers.embedders:OfEmbedder",
    },
    "embedders": {
        "words": "ragauge.systems.embedders.words:Words",
        "wordllama": "ragauge.systems.embedders.wordllama:WordLlama",
        "minilm": "ragauge.systems.embedders.minilm:MiniLM",
        "transformers": "ragauge.systems.embedders.transformers:SentenceTransformer",
        "encoder": "ragauge.systems.embedders.encoder:Encoder",
        "byt5": "ragauge.systems.embedders.encoder:byt5",
        "canine": "ragauge.systems.embedders.encoder:canine",
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


_STORES = {
    "faiss": ("faiss", "faiss"),
    "usearch": ("usearch", "usearch"),
    "hnswlib": ("hnswlib", "hnswlib"),
    "voyager": ("voyager", "voyager"),
    "annoy": ("annoy", "annoy"),
    "scann": ("scann", "scann"),
    "pgvector": ("pgvector", "pgvector", "psycopg"),
    "qdrant": ("qdrant", "qdrant_edge"),
    "chroma": ("chroma", "chromadb"),
    "lancedb": ("lancedb", "lancedb"),
    "milvus-lite": ("milvus-lite", "milvus_lite", "pymilvus"),
    "sqlite-vec": ("sqlite-vec", "apsw", "sqlite_vec"),
    "duckdb": ("duckdb", "duckdb"),
    "memvid": ("memvid", "memvid_sdk"),
}
LIBRARIES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "retrievers": {
        "bm25": ("bm25", "bm25s", "Stemmer"),
        "pgvector": ("pgvector", "pgvector", "psycopg", "psycopg_pool"),
        "http": ("http", "httpx"),
    },
    "tokenizers": {
        **dict.fromkeys(("bpe", "wordpiece", "unigram", "file"), ("tokenizers", "tokenizers")),
        **dict.fromkeys(("transformers", "byt5", "canine"), ("transformers", "transformers")),
    },
    "embedders": {
        "wordllama": ("wordllama", "wordllama"),
        "minilm": ("minilm", "onnxruntime", "tokenizers"),
        "transformers": ("transformers", "sentence_transformers"),
        **dict.fromkeys(("encoder", "byt5", "canine"), ("transformers", "torch", "transformers")),
        "lm": ("lm", "torch", "safetensors"),
        "openai": ("openai", "openai"),
    },
    "stores": _STORES,
    "keepers": {name: _STORES[name] for name in TABLE["keepers"] if name in _STORES},
    "rerankers": {
        "cross-encoder": ("transformers", "sentence_transformers"),
        "llm": ("openai", "openai"),
    },
    "chats": {"openai": ("openai", "openai"), "local": ("local", "xllamacpp", "openai")},
    "outputs": {"page": ("report", "altair", "jinja2"), "chart": ("report", "altair", "vl_convert")},
    "measurements": {"memory": ("bench", "psutil")},
    "neighbour searches": {"faiss": ("faiss", "faiss"), "torch": ("transformers", "torch")},
}
"""The extra that installs the libraries of a plug-in or an output, and the modules that must then be importable.

Libraries that only some options need (a server, an index) are checked when the plug-in is opened.
"""


_SINGULAR = {"neighbour searches": "neighbour search"}


def check_installed(wanted: Iterable[tuple[str, str]]) -> None:
    """Raise one MissingExtra for all libraries that plug-ins lack.

    Plug-ins are given as (family, name). Nothing is imported for that.
    """
    missing: dict[str, str] = {}
    for family, name in wanted:
        extra, *modules = LIBRARIES.get(family, {}).get(name, ("",))
        if any(find_spec(module) is None for module in modules):
            missing[f"the {_SINGULAR.get(family, family.removesuffix('s'))} `{name}`"] = extra
    if missing:
        who = list(missing)
        error = MissingExtra(who[0], ",".join(dict.fromkeys(missing.values())))
        if len(who) > 1:
            error.message = f"{', '.join(who[:-1])} and {who[-1]} need optional libraries"
        raise error


def names(family: str) -> list[str]:
    """List the names of a family, those of installed packages last."""
    return [*TABLE[family], *(point.name for point in entry_points(group=f"ragauge.{family}"))]


def find(family: str, name: str) -> Any:
    """Load the class or function that a name stands for."""
    if name in TABLE[family]:
        module, _, attribute = TABLE[family][name].partition(":")
        return getattr(import_module(module), attribute)
    for point in entry_points(group=f"ragauge.{family}", name=name):
        try:
            return point.load()
        except Exception as error:  # the package may raise anything
            raise _import_error(f"plug-in `{name}` ({point.value})", error) from error
    known = names(family)
    raise UnknownName(family.removesuffix("s"), name, known, hint=f"there are {', '.join(known)}")


def own(path: str) -> Any:
    """Import a function or class of the user by `module:name`.

    Only names typed by the user may come here, never names from a file.
    """
    module, _, attribute = path.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        thing: Any = import_module(module)
    except (Exception, SystemExit) as error:  # a module may raise anything, or end the process
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            message = f"there is no module `{module}` ({error})"
            raise BadInput(message, hint="run the command in the folder that holds the module") from None
        raise _import_error(f"module `{module}`", error) from error
    for part in attribute.split("."):
        if not hasattr(thing, part):
            near = difflib.get_close_matches(part, dir(thing), n=1)
            raise BadInput(f"`{module}` has no `{attribute}`", hint=f"did you mean `{near[0]}`?" if near else None)
        thing = getattr(thing, part)
    return thing


def _import_error(what: str, error: BaseException) -> BadInput:
    """Build an error that shows what a module raised on import, and in which line."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (None, None)
    where = f"{file or last[0].filename}:{line or last[0].lineno}" if file or last else ""
    told = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    return BadInput(
        " ".join(f"the {what} cannot be imported: {told} ({where})".split()),
        hint="fix the module, or show the traceback with `ragauge --debug`",
    )
