"""Plug-ins by name: a table of import paths for those of ragauge, then the entry points of installed packages.

A package registers its own under `[project.entry-points."ragauge.retrievers"]` (also graphs, tokenizers, embedders,
stores, document_stores, rerankers, chats). Objects that users pass from Python need no name.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, MissingExtra, UnknownName, suggest_name

BUILTIN_PLUGINS = {
    "retrievers": {
        "bm25": "ragauge.systems.bm25:BM25",
        "dense": "ragauge.systems.dense:DenseRetriever",
        "hybrid": "ragauge.systems.pipelines:HybridRetriever",
        "pipeline": "ragauge.systems.pipelines:RerankingPipeline",
        "filtered": "ragauge.systems.pipelines:FilteredRetriever",
        "pgvector": "ragauge.systems.pgvector:open_pgvector_retriever",
        "pagerank": "ragauge.systems.graph_walkers:PageRank",
        "graphflow": "ragauge.systems.graph_walkers:GraphFlow",
        "swarm": "ragauge.systems.graph_swarm:Swarm",
        "http": "ragauge.systems.adapters:HTTPRetriever",
    },
    "graphs": {
        "links": "ragauge.systems.graph_links:MetadataLinks",
        "knn": "ragauge.systems.graph_links:NeighbourLinks",
        "entities": "ragauge.systems.graph_entities:EntityLinks",
        "field": "ragauge.systems.graph_links:SharedFieldLinks",
    },
    "tokenizers": {
        "bytes": "ragauge.models.tokenizers.basic:ByteTokenizer",
        "characters": "ragauge.models.tokenizers.basic:CharacterTokenizer",
        "words": "ragauge.models.tokenizers.basic:build_word_tokenizer",
        "bpe": "ragauge.models.tokenizers.trained:bpe",
        "wordpiece": "ragauge.models.tokenizers.trained:wordpiece",
        "unigram": "ragauge.models.tokenizers.trained:unigram",
        "file": "ragauge.models.tokenizers.huggingface:read_tokenizer",
        "transformers": "ragauge.models.tokenizers.huggingface:open_pretrained",
        "byt5": "ragauge.models.tokenizers.huggingface:open_byt5",
        "canine": "ragauge.models.tokenizers.huggingface:open_canine",
        "embedder": "ragauge.models.tokenizers:EmbedderTokenizer",
    },
    "embedders": {
        "words": "ragauge.models.embedders.baselines:BagOfWordsEmbedder",
        "wordllama": "ragauge.models.embedders.bundled:WordLlama",
        "minilm": "ragauge.models.embedders.bundled:MiniLM",
        "transformers": "ragauge.models.embedders.transformers:SentenceTransformer",
        "encoder": "ragauge.models.embedders.transformers:TransformersEncoder",
        "byt5": "ragauge.models.embedders.transformers:byt5",
        "canine": "ragauge.models.embedders.transformers:canine",
        "lstm": "ragauge.models.embedders.lstm:LSTMEmbedder",
        "chance": "ragauge.models.embedders.baselines:RandomEmbedder",
        "openai": "ragauge.models.embedders.openai:OpenAIEmbedder",
    },
    "stores": {
        "exact": "ragauge.stores.reference:ExactStore",
        "faiss": "ragauge.stores.faiss:FaissStore",
        "usearch": "ragauge.stores.usearch:UsearchStore",
        "hnswlib": "ragauge.stores.hnswlib:HnswlibStore",
        "scann": "ragauge.stores.scann:ScannStore",
        "pgvector": "ragauge.stores.pgvector:PgVectorStore",
        "qdrant": "ragauge.stores.qdrant:QdrantStore",
        "chroma": "ragauge.stores.chroma:ChromaStore",
        "lancedb": "ragauge.stores.lancedb:LanceDBStore",
        "milvus-lite": "ragauge.stores.milvus_lite:MilvusLiteStore",
        "sqlite-vec": "ragauge.stores.sqlite_vec:SqliteVecStore",
        "duckdb": "ragauge.stores.duckdb:DuckDBStore",
        "memvid": "ragauge.stores.memvid:MemvidStore",
        "null": "ragauge.stores.reference:NullStore",
    },
    "document_stores": {
        "memory": "ragauge.stores.document_stores:MemoryDocumentStore",
        "pgvector": "ragauge.stores.pgvector_documents:open_pgvector_documents",
        "qdrant": "ragauge.stores.qdrant:open_qdrant_documents",
        "chroma": "ragauge.stores.chroma:open_chroma_documents",
        "lancedb": "ragauge.stores.lancedb:open_lancedb_documents",
        "milvus-lite": "ragauge.stores.milvus_lite:open_milvus_lite_documents",
        "sqlite-vec": "ragauge.stores.sqlite_vec:open_sqlite_vec_documents",
        "duckdb": "ragauge.stores.duckdb:open_duckdb_documents",
        "memvid": "ragauge.stores.memvid:open_memvid_documents",
        "vectors": "ragauge.stores.document_stores:VectorsOnlyDocumentStore",
    },
    "rerankers": {
        "embedding": "ragauge.systems.rerankers:EmbeddingReranker",
        "mmr": "ragauge.systems.rerankers:MMR",
        "cross-encoder": "ragauge.systems.rerankers:CrossEncoder",
        "llm": "ragauge.systems.rerankers:LLMReranker",
        "swarm": "ragauge.systems.graph_swarm:SwarmReranker",
    },
    "chats": {
        "openai": "ragauge.models.chats.openai:OpenAIChat",
        "local": "ragauge.models.chats.local:LocalChat",
        "replay": "ragauge.models.chats.recorded:Replay",
    },
}


REQUIRED_LIBRARIES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "retrievers": {
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
        "lstm": ("lm", "torch", "tokenizers"),
        "openai": ("openai", "openai"),
    },
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

Stores state theirs on their class. Libraries that only some options need are checked when the plug-in is opened.
"""


_SINGULAR_FAMILIES = {"neighbour searches": "neighbour search"}


def family_noun(family: str) -> str:
    """Return what one plug-in of a family is called in messages.

    >>> family_noun("document_stores")
    'document store'
    """
    return _SINGULAR_FAMILIES.get(family, family.removesuffix("s").replace("_", " "))


def required_libraries(family: str, name: str) -> tuple[str, ...]:
    """Return the extra that installs the libraries of a plug-in, and the modules that must be importable.

    The document store of an engine needs the libraries of its vector store.
    """
    if family in ("stores", "document_stores") and name in BUILTIN_PLUGINS["stores"]:
        store_type = load_plugin("stores", name)
        return (store_type.extra, *store_type.library_modules)
    return REQUIRED_LIBRARIES.get(family, {}).get(name, ("",))


def check_installed(plugins: Iterable[tuple[str, str]]) -> None:
    """Raise one MissingExtra for all libraries that plug-ins lack.

    Plug-ins are given as (family, name). No library is imported for that.
    """
    missing: dict[str, str] = {}
    for family, name in plugins:
        extra, *modules = required_libraries(family, name)
        if any(find_spec(module) is None for module in modules):
            missing[f"the {family_noun(family)} `{name}`"] = extra
    if missing:
        plugin_labels = list(missing)
        error = MissingExtra(plugin_labels[0], ",".join(dict.fromkeys(missing.values())))
        if len(plugin_labels) > 1:
            error.message = f"{', '.join(plugin_labels[:-1])} and {plugin_labels[-1]} need optional libraries"
        raise error


def import_libraries(store: str, *modules: str) -> list[Any]:
    """Import modules of the libraries of a store; raise MissingExtra if one is missing."""
    try:
        return [import_module(module) for module in modules]
    except ImportError as error:
        raise MissingExtra(f"the store `{store}`", required_libraries("stores", store)[0]) from error


def plugin_names(family: str) -> list[str]:
    """List the names of a family, those of installed packages last."""
    return [*BUILTIN_PLUGINS[family], *(point.name for point in entry_points(group=f"ragauge.{family}"))]


def load_plugin(family: str, name: str, *, accepts_class: bool = False) -> Any:
    """Load the class or function that a name stands for.

    `accepts_class` says that the user can also give a class of their own, `module:Class`, instead of a name.
    """
    if name in BUILTIN_PLUGINS[family]:
        module, _, attribute = BUILTIN_PLUGINS[family][name].partition(":")
        return getattr(import_module(module), attribute)
    for point in entry_points(group=f"ragauge.{family}", name=name):
        try:
            return point.load()
        except Exception as error:  # the package may raise anything
            raise _import_error(f"plug-in `{name}` ({point.value})", error) from error
    known_names = plugin_names(family)
    entry_point = f"register your own class as an entry point of the group `ragauge.{family}`"
    own_class_hint = "pass your own class as `module:Class`" if accepts_class else entry_point
    raise UnknownName(
        family_noun(family), name, known_names, hint=f"choose one of {', '.join(known_names)}, or {own_class_hint}"
    )


def is_user_object(text: str) -> bool:
    """Return whether a text names a function or class of the user: `module:name`."""
    return re.fullmatch(r"[\w.]+:[\w.]+", text) is not None


def import_user_object(path: str) -> Any:
    """Import a function or class of the user by `module:name`.

    Call this only with names that the user typed, never with names from a file.
    """
    module, _, attribute = path.partition(":")
    if (current_folder := str(Path.cwd())) not in sys.path:
        sys.path.append(current_folder)  # last: its files must not replace modules that others import
    try:
        member: Any = import_module(module)
    except (Exception, SystemExit) as error:  # a module may raise anything, or end the process
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            message = f"there is no module `{module}` ({error})"
            raise BadInput(message, hint="run the command in the folder that holds the module") from None
        raise _import_error(f"module `{module}`", error) from error
    own_file = Path(current_folder, *module.split(".")).with_suffix(".py")
    file = getattr(member, "__file__", None) or "a module of Python"
    if own_file.exists() and own_file.resolve() != Path(file).resolve():
        raise BadInput(f"`{module}` is {file}, not {own_file.name} in the current folder", hint="rename your file")
    for part in attribute.split("."):
        if not hasattr(member, part):
            suggestion = suggest_name(part, dir(member))
            hint = f"did you mean `{suggestion}`?" if suggestion else None
            raise BadInput(f"`{module}` has no `{attribute}`", hint=hint)
        member = getattr(member, part)
    return member


def _import_error(subject: str, error: BaseException) -> BadInput:
    """Build an error that shows what a module raised on import, and in which line."""
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (None, None)
    location = f"{file or frames[0].filename}:{line or frames[0].lineno}" if file or frames else ""
    reason = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    return BadInput(
        " ".join(f"the {subject} cannot be imported: {reason} ({location})".split()),
        hint="fix the module, or show the traceback with `ragauge --debug`",
    )
