"""Build systems from specs: look up plug-ins, build shared parts once, and measure build times."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from ragauge.compute.progress import StepCallback
from ragauge.core import plugins, protocols
from ragauge.core.composition import (
    DEFAULT_GRAPH,
    DEFAULT_PARTS,
    GRAPH_WALKERS,
    _call_factory,
    _check_spec_names,
    _qualified_name,
    _replace_objects,
    as_list,
    is_reproducible,
    iterate_plugins,
)
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.hashes import hash_source
from ragauge.core.protocols import Embedder, Retriever, is_async
from ragauge.core.specs import Spec, parse_spec, redact_spec
from ragauge.models.embedders import BatchedEmbedder, CachedEmbedder, VectorCaches, fit
from ragauge.systems.adapters import AdaptedRetriever, as_retriever
from ragauge.systems.graph_corpus import LinkedCorpus


class SystemBuilder:
    """Builds systems on one corpus; parts that several systems share are built once.

    Async systems belong to the event loop in which they were built. They are built again for each use.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        systems: Mapping[str, Any] | None = None,
        *,
        cache: Path | None = None,
        progress: StepCallback | None = None,
    ) -> None:
        self._documents = documents
        self._progress = progress
        self._systems = dict(systems or {})
        self._built: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        self._parts: dict[str, set[str]] = {}
        self._caches: dict[str, list[CachedEmbedder]] = {}
        """Vector caches of each part, by part key."""
        self._vectors = None if cache is None else VectorCaches(cache / "embeddings")
        self._inside: list[tuple[str, list[float]]] = []
        """Parts being built, innermost last: key, and build times in seconds of the parts built for it."""

    @asynccontextmanager
    async def opened(self, system: Any) -> AsyncIterator[Retriever]:
        """Open a retriever from a name of this experiment, a spec, or an object."""
        found = self._resolve_system(system)
        async with AsyncExitStack() as closing:
            if isinstance(found, Spec):
                yield await self._build_retriever(self._expand_spec(found, ()), closing)
            else:
                yield as_retriever(found)

    def check(self, system: Any) -> None:
        """Check every name and option of a system.

        Nothing is built, and no library is imported.
        """
        found = self._resolve_system(system)
        if isinstance(found, Spec):
            _check_spec_names("retrievers", self._expand_spec(found, ()))
        else:
            as_retriever(found)

    def parts(self, system: Any) -> list[tuple[str, str]]:
        """Return family and name of every plug-in of a system.

        The list is empty for an object.
        """
        found = self._resolve_system(system)
        return list(iterate_plugins("retrievers", self._expand_spec(found, ()))) if isinstance(found, Spec) else []

    def identity(self, system: Any) -> dict[str, str]:
        """Return what identifies a system: its spec, or name and code hash of an object.

        The result is written to files and contains no secrets.
        """
        found = self._resolve_system(system)
        if isinstance(found, Spec):
            return {"description": str(redact_spec(_replace_objects(self._expand_spec(found, ()))))}
        if isinstance(found, AdaptedRetriever) and found.id:
            return {
                "description": f"{_qualified_name(found.wrapped)}(id={found.id})",
                "code": hash_source(found.wrapped),
            }
        return {"description": _qualified_name(found), "code": hash_source(found)}

    def is_reproducible(self, system: Any) -> bool:
        """Return whether the spec of a system identifies it; never true for objects."""
        found = self._resolve_system(system)
        return isinstance(found, Spec) and is_reproducible("retrievers", self._expand_spec(found, ()))

    def seconds(self, system: Any) -> float:
        """Return the build time of a system in seconds, including shared parts."""
        return sum(self._seconds.get(part, 0.0) for part in self._find_part_keys(system))

    def is_cached(self, system: Any) -> bool:
        """Return whether document vectors came from the cache.

        The build time is then not valid.
        """
        return any(cache.is_reused for part in self._find_part_keys(system) for cache in self._caches.get(part, ()))

    def _find_part_keys(self, system: Any) -> set[str]:
        """Return the keys of a system built from a spec and of all its parts."""
        found = self._resolve_system(system)
        if not isinstance(found, Spec):
            return set()
        parts = {str(self._expand_spec(found, ()))}
        while more := {inner for part in parts for inner in self._parts.get(part, ())} - parts:
            parts |= more
        return parts

    def close(self) -> None:
        """Close all systems and parts that were built."""
        for built in self._built.values():
            protocols.close_if_possible(built)
        self._built.clear()
        if self._vectors is not None:
            self._vectors.close()

    def _resolve_system(self, system: Any) -> Any:
        """Resolve names of this experiment and return a spec or an object."""
        seen: list[str] = []
        while isinstance(system, str) and self._systems.get(system, system) != system:
            if system in seen:
                raise BadInput(f"the system `{system}` is made of itself")
            seen.append(system)
            system = self._systems[system]
        return parse_spec(system) if isinstance(system, str) else system

    def _expand_spec(self, spec: Spec, above: tuple[str, ...]) -> Spec:
        """Return a spec with names of this experiment expanded.

        A system that contains itself is refused.
        """
        if str(spec) in above:
            raise BadInput(f"the system `{spec}` is made of itself")
        options = dict(spec.options)
        if spec.name in DEFAULT_PARTS and not options.keys() & {"of", "retriever"}:
            inner = [Spec(name) for name in DEFAULT_PARTS[spec.name]]
            return Spec(spec.name, {"of": inner if len(inner) > 1 else inner[0], **options})
        for key in ("of", "retriever"):
            if key in options:
                found = [self._resolve_system(one) for one in as_list(options[key])]
                whole = [self._expand_spec(one, (*above, str(spec))) if isinstance(one, Spec) else one for one in found]
                options[key] = whole if isinstance(options[key], list) else whole[0]
        return Spec(spec.name, options)

    async def _build_retriever(self, whole: Spec, closing: AsyncExitStack) -> Retriever:
        key = str(whole)
        if key in self._built:
            found: Retriever = self._built[key]
            return found
        options = dict(whole.options)
        made_of = next((name for name in ("of", "retriever") if name in options), None)
        inner = as_list(options.pop(made_of)) if made_of else []
        retrievers = [
            await self._build_retriever(one, closing) if isinstance(one, Spec) else as_retriever(one) for one in inner
        ]
        if made_of and whole.name not in DEFAULT_PARTS:
            options[made_of] = retrievers  # A plug-in may accept retrievers; built-in systems reject the option.
        self._parts[key] = {str(one) for one in inner if isinstance(one, Spec)}
        began = time.perf_counter()
        factory = plugins.load_plugin("retrievers", whole.name)
        with self._track_build(key) as elsewhere:
            made = self._call_retriever_factory(factory, whole, retrievers, options)
        retriever: Retriever = await made if inspect.isawaitable(made) else made
        if whole.name not in plugins.BUILTIN_PLUGINS["retrievers"]:
            adapted = as_retriever(retriever)  # Results of a plug-in are converted to hits.
            adapted.owned = retriever
            retriever = adapted
        self._seconds[key] = time.perf_counter() - began - sum(elsewhere)
        if is_async(retriever):
            closing.push_async_callback(_close_retriever, retriever)
        else:
            self._built[key] = retriever
        return retriever

    def _call_retriever_factory(
        self, factory: Any, spec: Spec, retrievers: list[Retriever], options: dict[str, Any]
    ) -> Any:
        first: list[Any] = [self._documents]
        if spec.name in ("pipeline", "filtered") and len(retrievers) != 1:
            raise BadInput(f"`{spec}`: a {spec.name} is made of one system, not of {len(retrievers)}")
        if spec.name == "hybrid":
            first = [retrievers]
            if "weights" in options:
                options["weights"] = as_list(options["weights"])
        elif spec.name == "pipeline":
            wanted = options.pop("rerankers", options.pop("reranker", []))
            first = [retrievers[0], [self._build_reranker(one) for one in as_list(wanted)]]
        elif spec.name == "filtered":
            if not isinstance(options.get("where"), Mapping):
                # On the command line the conditions are written as options: filtered(of=bm25, module=json).
                most = {"most": options.pop("most")} if "most" in options else {}
                options = {"where": options, **most}
            first = [retrievers[0]]
        elif spec.name == "dense":
            embedder, options["document_embedder"] = self._build_embedders(options.pop("embedder", "wordllama"))
            first = [self._documents, embedder, self._build_part("stores", options.pop("store", "exact"))]
        elif spec.name == "pgvector":
            embedder, options["document_embedder"] = self._build_embedders(options.pop("embedder", "wordllama"))
            first = [self._documents, embedder]
        elif spec.name in GRAPH_WALKERS:
            first = [self._build_linked_corpus(options)]
        elif spec.name == "http":
            first = []
        return _call_factory(factory, spec, first, options)

    def _build_reranker(self, description: Any) -> Any:
        spec = parse_spec(description) if isinstance(description, str) else description
        if not isinstance(spec, Spec) or spec.name not in ("mmr", "embedding", *GRAPH_WALKERS):
            return self._build_part("rerankers", spec)

        def made() -> Any:
            options = dict(spec.options)
            factory = plugins.load_plugin("rerankers", spec.name)
            if spec.name in GRAPH_WALKERS:
                first: list[Any] = [self._build_linked_corpus(options)]
            else:
                embedder, options["document_embedder"] = self._build_embedders(options.pop("embedder", "wordllama"))
                first = [embedder, self._documents]
            return _call_factory(factory, spec, first, options)

        return self._build_once(f"rerankers:{spec}", made)

    def _build_linked_corpus(self, options: dict[str, Any]) -> LinkedCorpus:
        """Build the linked corpus of an embedder and a graph.

        Both are removed from `options`.
        """
        described, linked = options.pop("embedder", "wordllama"), as_list(options.pop("graph", DEFAULT_GRAPH))

        def made() -> LinkedCorpus:
            embedder, remembering = self._build_embedders(described)
            linkers = [self._build_part("graphs", one) for one in linked]
            return LinkedCorpus(self._documents, embedder, linkers, document_embedder=remembering)

        found: LinkedCorpus = self._build_once(f"terrain:{described}:{'+'.join(map(str, linked))}", made)
        return found

    def _build_embedders(self, description: Any) -> tuple[Embedder, Embedder]:
        """Return the embedder for queries, and the one for documents, which may be cached."""
        embedder = self._fit_embedder(self._build_part("embedders", description))
        cached: Embedder = embedder
        if self._vectors is not None:
            spec = parse_spec(description) if isinstance(description, str) else description
            is_own = not isinstance(spec, Spec) or spec.name not in plugins.BUILTIN_PLUGINS["embedders"]
            cached = remembered = self._vectors.of(embedder, is_own=is_own)
            self._caches.setdefault(self._inside[-1][0] if self._inside else "", []).append(remembered)
        return embedder, cached if self._progress is None else BatchedEmbedder(cached, self._progress)

    def _fit_embedder(self, embedder: Embedder) -> Embedder:
        """Fit an embedder to the corpus if needed, once for all systems."""
        if not callable(getattr(embedder, "fitted", None)):
            return embedder
        texts = [document.whole for document in self._documents]
        found: Embedder = self._build_once(f"fitted:{id(embedder)}", lambda: fit(embedder, texts, self._progress))
        return found

    def _build_part(self, family: str, description: Any) -> Any:
        spec = parse_spec(description) if isinstance(description, str) else description
        if not isinstance(spec, Spec):
            method = {"embedders": "embed", "stores": "add", "rerankers": "rerank", "graphs": "link"}[family]
            if not hasattr(spec, method) and not (family == "rerankers" and callable(spec)):
                raise BadInput(f"{spec!r} is no {family.removesuffix('s')}: it has no `{method}`")
            return spec  # An object of the caller.

        def made() -> Any:
            return _call_factory(plugins.load_plugin(family, spec.name), spec, [], dict(spec.options))

        return made() if family == "stores" else self._build_once(f"{family}:{spec}", made)  # Stores are not shared.

    def _build_once(self, key: str, made: Callable[[], Any]) -> Any:
        """Build a part once; its build time counts for every system that uses it."""
        if self._inside:
            self._parts.setdefault(self._inside[-1][0], set()).add(key)
        if key not in self._built:
            began = time.perf_counter()
            with self._track_build(key) as elsewhere:
                self._built[key] = made()
            took = time.perf_counter() - began
            self._seconds[key] = took - sum(elsewhere)
            if self._inside:
                self._inside[-1][1].append(took)
        return self._built[key]

    @contextmanager
    def _track_build(self, key: str) -> Iterator[list[float]]:
        """Collect the build times of the parts that are built inside this context."""
        elsewhere: list[float] = []
        self._inside.append((key, elsewhere))
        try:
            yield elsewhere
        finally:
            self._inside.pop()


async def _close_retriever(thing: Any) -> None:
    closing = protocols.close_if_possible(thing)
    if inspect.isawaitable(closing):
        await closing
