"""Build systems from specs: look up plug-ins, build shared parts once, and measure build times."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragauge.compute.progress import ProgressCallback, no_progress
from ragauge.core import plugins, protocols
from ragauge.core.components import (
    as_spec,
    build_parts,
    check_component,
    check_spec,
    is_reproducible,
    iterate_plugins,
    iterate_specs,
    load_factory,
)
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.hashes import hash_source
from ragauge.core.plugin_parameters import (
    PluginParameters,
    PluginPart,
    as_list,
    qualified_name,
    read_parameters,
    replace_objects,
)
from ragauge.core.protocols import Embedder, Retriever, is_async
from ragauge.core.specs import Spec, redact_spec
from ragauge.models.embedders import CachedEmbedder, VectorCaches, fit
from ragauge.models.embedders.embedding import BatchedEmbedder
from ragauge.models.optional_attributes import EmbedderAttributes
from ragauge.systems.adapters import AdaptedRetriever, as_retriever


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
    ) -> None:
        self._documents = documents
        self._progress: ProgressCallback = no_progress
        self._systems = dict(systems or {})
        self._built: dict[str, Any] = {}
        self._build_seconds: dict[str, float] = {}
        self._parts: dict[str, set[str]] = {}
        self._caches: dict[str, list[CachedEmbedder]] = {}
        """Vector caches of each part, by part key."""
        self._vector_caches = None if cache is None else VectorCaches(cache / "embeddings")
        self._build_stack: list[tuple[str, list[float]]] = []
        """Parts being built, innermost last: key, and build times in seconds of the parts built for it."""

    @asynccontextmanager
    async def open(self, system: Any, progress: ProgressCallback = no_progress) -> AsyncIterator[Retriever]:
        """Open a retriever from a name of this experiment, a spec, or an object."""
        self._progress = progress
        resolved = self._resolve_system(system)
        async with AsyncExitStack() as closing:
            if isinstance(resolved, Spec):
                yield await self._build_retriever(self._expand_spec(resolved, ()), closing)
            else:
                yield as_retriever(resolved)

    def check(self, system: Any) -> None:
        """Check every name and option of a system.

        Nothing is built, and no library is imported.
        """
        resolved = self._resolve_system(system)
        if isinstance(resolved, Spec):
            check_spec("retrievers", self._expand_spec(resolved, ()))
        else:
            as_retriever(resolved)

    def list_plugins(self, system: Any) -> list[tuple[str, str]]:
        """Return family and name of every plug-in of a system.

        The list is empty for an object.
        """
        resolved = self._resolve_system(system)
        return (
            list(iterate_plugins("retrievers", self._expand_spec(resolved, ()))) if isinstance(resolved, Spec) else []
        )

    def list_corpus_plugins(self, system: Any) -> list[str]:
        """Return the names of the plug-ins of a system that are built over the documents."""
        resolved = self._resolve_system(system)
        if not isinstance(resolved, Spec):
            return []
        specs = iterate_specs("retrievers", self._expand_spec(resolved, ()))
        return [spec.name for family, spec in specs if read_parameters(load_factory(family, spec)).needs_corpus]

    def identity(self, system: Any) -> dict[str, str]:
        """Return what identifies a system: its spec, or name and code hash of an object.

        The result is written to files and contains no secrets.
        """
        resolved = self._resolve_system(system)
        if isinstance(resolved, Spec):
            description = str(redact_spec(replace_objects(self._expand_spec(resolved, ()))))
            code_entry = {} if resolved.factory is None else {"code": hash_source(resolved.factory)}
            return {"description": description, **code_entry}
        if isinstance(resolved, AdaptedRetriever) and resolved.id:
            return {
                "description": f"{qualified_name(resolved.wrapped)}(id={resolved.id})",
                "code": hash_source(resolved.wrapped),
            }
        return {"description": qualified_name(resolved), "code": hash_source(resolved)}

    def is_reproducible(self, system: Any) -> bool:
        """Return whether the spec of a system identifies it; never true for objects."""
        resolved = self._resolve_system(system)
        return isinstance(resolved, Spec) and is_reproducible("retrievers", self._expand_spec(resolved, ()))

    def build_seconds(self, system: Any) -> float:
        """Return the build time of a system in seconds, including shared parts."""
        return sum(self._build_seconds.get(key, 0.0) for key in self._find_part_keys(system))

    def is_cached(self, system: Any) -> bool:
        """Return whether document vectors came from the cache.

        The build time is then not valid.
        """
        return any(cache.is_reused for key in self._find_part_keys(system) for cache in self._caches.get(key, ()))

    def _find_part_keys(self, system: Any) -> set[str]:
        """Return the keys of a system built from a spec and of all its parts."""
        resolved = self._resolve_system(system)
        if not isinstance(resolved, Spec):
            return set()
        parts = {str(self._expand_spec(resolved, ()))}
        while inner_keys := {inner for key in parts for inner in self._parts.get(key, ())} - parts:
            parts |= inner_keys
        return parts

    def close(self) -> None:
        """Close all systems and parts that were built."""
        for built in self._built.values():
            protocols.close_if_possible(built)
        self._built.clear()
        if self._vector_caches is not None:
            self._vector_caches.close()

    def _resolve_system(self, system: Any) -> Any:
        """Resolve names of this experiment and return a spec or an object."""
        names: list[str] = []
        while isinstance(system, str) and self._systems.get(system, system) != system:
            if system in names:
                raise BadInput(f"the system `{system}` contains itself")
            names.append(system)
            system = self._systems[system]
        return as_spec("retrievers", system)

    def _expand_spec(self, spec: Spec, ancestors: tuple[str, ...]) -> Spec:
        """Return a spec with names of this experiment expanded, and with the systems that it is made of by default.

        A system that contains itself is refused.
        """
        if str(spec) in ancestors:
            raise BadInput(f"the system `{redact_spec(spec)}` contains itself")
        options = dict(spec.options)
        for part in retriever_parts(spec):
            name = part.parameter if part.parameter in options else part.option
            if name not in options:
                default = list(part.default)
                options = {name: default if len(default) > 1 else default[0], **options} if default else options
                continue
            resolved = [self._resolve_system(inner_system) for inner_system in as_list(options[name])]
            expanded = [
                self._expand_spec(inner, (*ancestors, str(spec))) if isinstance(inner, Spec) else inner
                for inner in resolved
            ]
            options[name] = expanded if isinstance(options[name], list) else expanded[0]
        return replace(spec, options=options)

    async def _build_retriever(self, spec: Spec, closing: AsyncExitStack) -> Retriever:
        key = str(spec)
        if key in self._built:
            built: Retriever = self._built[key]
            return built
        parameters = read_parameters(load_factory("retrievers", spec))
        parameters.check(spec.options, spec.name, safe_spec=str(redact_spec(spec)))
        supplied: dict[str, Any] = {}
        self._parts[key] = set()
        for part in retriever_parts(spec):
            chosen = part.select_specs(spec.options)
            retrievers = [
                await self._build_retriever(inner, closing) if isinstance(inner, Spec) else as_retriever(inner)
                for inner in chosen
            ]
            supplied |= build_parts(iter([part]), {part.option: retrievers}, lambda _, retriever: retriever)
            self._parts[key] |= {str(inner) for inner in chosen if isinstance(inner, Spec)}
        began = time.perf_counter()
        with self._track_build(key) as nested_seconds:
            created = parameters.call(spec.options, {**self._build_parts(parameters, spec.options), **supplied})
        retriever: Retriever = await created if inspect.isawaitable(created) else created
        if spec.name not in plugins.BUILTIN_PLUGINS["retrievers"]:
            adapted = as_retriever(retriever)  # Results of a plug-in are converted to hits.
            adapted.owned = retriever
            retriever = adapted
        self._build_seconds[key] = time.perf_counter() - began - sum(nested_seconds)
        if is_async(retriever):
            closing.push_async_callback(_close_retriever, retriever)
        else:
            self._built[key] = retriever
        return retriever

    def _build_parts(self, parameters: PluginParameters, options: Mapping[str, Any]) -> dict[str, Any]:
        """Build all parts of a plug-in except retrievers, which may have to be awaited; by parameter."""
        plugin_parts = (part for part in parameters.parts if part.family not in ("", "retrievers"))
        supplied = build_parts(
            plugin_parts, options, lambda part, spec_or_object: self._build_part(part.family, spec_or_object)
        )
        supplied |= dict.fromkeys(parameters.corpus, self._documents)
        for part, inner in parameters.composites:
            shared = {
                part.option: part.select_specs(options) for part in parameters.plugin_parts if inner.knows(part.option)
            }
            supplied[part.parameter] = self._build_composite(inner, {**options, **shared})
        sources = {part.parameter: part for part in parameters.parts}
        for name, source in parameters.document_embedders.items():
            for spec_or_object in sources[source].select_specs(options):
                supplied[name] = self._build_document_embedder(supplied[source], spec_or_object)
        return supplied

    def _build_composite(self, parameters: PluginParameters, options: Mapping[str, Any]) -> Any:
        """Build a part from a class with parts of its own; systems with equal options share it."""
        own_options = {name: value for name, value in options.items() if parameters.knows(name)}
        key = str(Spec(qualified_name(parameters.factory), own_options))
        return self._build_once(key, lambda: parameters.call(own_options, self._build_parts(parameters, own_options)))

    def _build_part(self, family: str, spec_or_object: Any) -> Any:
        """Build a part, or return the object of the caller; systems share all parts except stores."""
        spec = as_spec(family, spec_or_object)
        if not isinstance(spec, Spec):
            return self._fit_embedder(spec) if family == "embedders" else check_component(family, spec)

        def build() -> Any:
            parameters = read_parameters(load_factory(family, spec))
            parameters.check(spec.options, spec.name, safe_spec=str(redact_spec(spec)))
            return parameters.call(spec.options, self._build_parts(parameters, spec.options))

        if family == "stores":
            return build()
        built = self._build_once(f"{family}:{spec}", build)
        return self._fit_embedder(built) if family == "embedders" else built

    def _build_document_embedder(self, embedder: Embedder, spec_or_object: Any) -> Embedder:
        """Return an embedder for documents, in batches and with a cache if there is one."""
        source: Embedder = embedder
        if self._vector_caches is not None:
            spec = as_spec("embedders", spec_or_object)
            is_own = not isinstance(spec, Spec) or spec.name not in plugins.BUILTIN_PLUGINS["embedders"]
            source = cached_embedder = self._vector_caches.wrap(embedder, is_own=is_own)
            self._caches.setdefault(self._build_stack[-1][0] if self._build_stack else "", []).append(cached_embedder)
        return BatchedEmbedder(source, self._progress)

    def _fit_embedder(self, candidate: Any) -> Embedder:
        """Fit an embedder to the corpus if needed, once for all systems."""
        embedder: Embedder = check_component("embedders", candidate)
        if EmbedderAttributes(embedder).fitted is None:
            return embedder
        texts = [document.whole for document in self._documents]
        fitted: Embedder = self._build_once(f"fitted:{id(embedder)}", lambda: fit(embedder, texts, self._progress))
        return fitted

    def _build_once(self, key: str, build: Callable[[], Any]) -> Any:
        """Build a part once; its build time counts for every system that uses it."""
        if self._build_stack:
            self._parts.setdefault(self._build_stack[-1][0], set()).add(key)
        if key not in self._built:
            began = time.perf_counter()
            with self._track_build(key) as nested_seconds:
                self._built[key] = build()
            seconds = time.perf_counter() - began
            self._build_seconds[key] = seconds - sum(nested_seconds)
            if self._build_stack:
                self._build_stack[-1][1].append(seconds)
        return self._built[key]

    @contextmanager
    def _track_build(self, key: str) -> Iterator[list[float]]:
        """Collect the build times of the parts that are built inside this context."""
        nested_seconds: list[float] = []
        self._build_stack.append((key, nested_seconds))
        try:
            yield nested_seconds
        finally:
            self._build_stack.pop()


def retriever_parts(spec: Spec) -> list[PluginPart]:
    """Return the parts of a system that are systems."""
    return [part for part in read_parameters(load_factory("retrievers", spec)).parts if part.family == "retrievers"]


async def _close_retriever(retriever: Any) -> None:
    closing = protocols.close_if_possible(retriever)
    if inspect.isawaitable(closing):
        await closing
