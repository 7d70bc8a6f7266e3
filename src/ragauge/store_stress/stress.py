"""Durability stress test of document stores (`ragauge.stress`)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress, scoped
from ragauge.core import plugins
from ragauge.core.components import iterate_plugins
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.hashes import hash_documents
from ragauge.core.protocols import Embedder, Vectors
from ragauge.core.records import Dataset, Judgments
from ragauge.core.settings import unique_by
from ragauge.core.specs import parse_spec
from ragauge.datasets import folders
from ragauge.evaluation.evaluate import evaluate
from ragauge.files.serialization import settings_from
from ragauge.files.workspace import cache_folder, temporary_folder
from ragauge.models.embedders import open_embedder
from ragauge.models.embedders.embedding import embed_texts
from ragauge.runs.folder import provenance, utc_now
from ragauge.runs.texts import load_dataset_or_corpus
from ragauge.store_stress.ingestion_modes import run_ingestion_mode
from ragauge.store_stress.minimal_failure import build_command, write_reproducer
from ragauge.store_stress.plan import StressOptions, StressSettings, write_stress_data
from ragauge.store_stress.result_checks import Ranking
from ragauge.store_stress.results import IngestionResult, StoreFailure, StressTest
from ragauge.store_stress.scenario import StressScenario
from ragauge.stores.document_stores import check_document_store_options

STIX_PREFIX = "stix:"
"""Prefix that marks a source as a STIX bundle."""
MAX_WORDS_PER_QUERY = 12
"""Words per query generated from a document, if the source has no queries."""


@dataclass(frozen=True)
class StressData:
    """Documents and queries of a stress test, with their vectors."""

    name: str
    documents: Sequence[Document]
    vectors: Vectors
    queries: Mapping[str, str]
    query_vectors: Vectors
    judgments: Judgments | None
    embedder: str
    embedder_spec: str
    """The embedder as the caller named it."""
    notes: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """Ids of the documents, in order."""
        return [document.id for document in self.documents]


def stress(
    store: str | type[Any],
    source: Any,
    *,
    embedder: str | Embedder = "wordllama",
    max_documents: int | None = None,
    reproducer: str | Path | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[StressOptions],
) -> StressTest:
    """Stress-test a document store: fill, read back, search, reopen, and kill it.

    `store` is a document store by name (`sqlite-vec`, `pgvector(index=hnsw)`, `module:Class`) or an importable
    class. `source` is a dataset or its name, a STIX bundle, a folder, or a JSONL file of documents. A failing store
    is a result, not an exception: `broken` has its original error message, the progress made, and the shortest
    failing prefix of the documents. If `reproducer` names a folder, that prefix is written there. The settings are
    described in `ragauge.store_stress.plan.StressSettings`.
    """
    settings = settings_from(StressSettings, options)
    named = resolve_store_name(store)
    check_libraries([named])
    check_options([named])
    data = load_stress_data(source, embedder, settings, max_documents=max_documents, progress=progress)
    return stress_store(named, data, settings, reproducer=reproducer, progress=progress)


def check_libraries(stores: Sequence[str]) -> None:
    """Raise MissingExtra for stores whose libraries are not installed."""
    plugins.check_installed(("document_stores", parse_spec(store).name) for store in stores)


def check_options(stores: Sequence[str]) -> None:
    """Raise BadInput for options that a store does not have."""
    for store in stores:
        if parse_spec(store).options:
            check_document_store_options(store)


def resolve_store_name(store: str | type[Any]) -> str:
    """Return the name under which any process can open a store.

    Raises UnknownName for an unknown store, and BadInput for a class that cannot be imported.
    """
    if isinstance(store, str):
        name = parse_spec(store).name
        known = plugins.plugin_names("document_stores")
        if ":" in name:
            plugins.import_user_object(name)
        elif name not in known:
            raise UnknownName(
                "store", name, known, hint=f"choose one of {', '.join(known)}, or pass your own class as `module:Class`"
            )
        return store
    module, name = getattr(store, "__module__", ""), getattr(store, "__qualname__", "")
    if module in ("", "__main__") or not name or "<" in name:
        raise BadInput(
            f"{store!r} cannot be imported by another process",
            hint="put the class into its own module, and pass `module:Class`",
        )
    return f"{module}:{name}"


def stress_store(
    store: str,
    data: StressData,
    settings: StressSettings,
    *,
    reproducer: str | Path | None = None,
    progress: ProgressCallback = no_progress,
) -> StressTest:
    """Stress one store with loaded data, so that several stores can share the data."""
    mode_results: list[IngestionResult] = []
    description: dict[str, Any] = {}
    notes = list(data.notes)
    with temporary_folder("stress") as folder:
        folder.chmod(0o755)  # an engine's server may run as another user, who needs access
        write_stress_data(folder / "data", data.documents, data.vectors, data.queries, data.query_vectors)

        def reproduce(broken: StoreFailure, prefix: int, store_description: Mapping[str, Any]) -> StoreFailure:
            if reproducer is None:
                return broken
            return _save_reproducer(Path(reproducer), store, data, settings, broken, prefix, store_description)

        for mode in settings.modes:
            scenario = StressScenario(
                store=store,
                mode=mode,
                settings=settings,
                data=folder / "data",
                ids=data.ids,
                vectors=data.vectors,
                query_vectors=data.query_vectors,
                folder=folder / "work",
                progress=scoped(progress, subject=f"{store} {mode}"),
            )
            outcome = run_ingestion_mode(
                scenario, lambda rankings: score_rankings(data, rankings, settings.k), reproduce
            )
            description = {**description, **outcome.description}
            mode_results.append(outcome.result)
            unreproduced = [_describe_unreproduced(failure) for failure in outcome.result.not_reproduced]
            notes += [f"{store} {mode}: {note}" for note in (*outcome.notes, *unreproduced)]
    return StressTest(
        store=store,
        documents=len(data.documents),
        queries=len(data.queries),
        modes=mode_results,
        description=description,
        source=data.name,
        document_types=count_document_types(data.documents),
        embedder=data.embedder,
        k=settings.k,
        notes=notes,
        provenance={
            "made": utc_now(),
            **provenance(),
            "documents_hash": hash_documents(data.documents),
            "seed": settings.seed,
            "batch": settings.batch,
            "commit_every": settings.commit_every,
            "kills": settings.kills,
            "kill_at": settings.kill_at,
            "timeout": settings.timeout,
        },
    )


def count_document_types(documents: Sequence[Document]) -> dict[str, int]:
    """Count the documents by the type in their metadata."""
    types = Counter(str(document.metadata.get("type") or "") for document in documents)
    return {name: count for name, count in types.items() if name}


def _describe_unreproduced(failure: StoreFailure) -> str:
    first, _, _ = failure.error.strip().partition("\n")
    return f"failure while {failure.stage} not reproduced in {len(failure.tried)} attempts: {first}"


def _save_reproducer(
    folder: Path,
    store: str,
    data: StressData,
    settings: StressSettings,
    broken: StoreFailure,
    prefix: int,
    description: Mapping[str, Any],
) -> StoreFailure:
    reproducer_folder = folder / broken.mode.replace(" ", "-")
    is_prefix = prefix < len(data.documents)
    return write_reproducer(
        reproducer_folder,
        broken,
        data.documents[:prefix],
        data.queries,
        store=store,
        source=data.name,
        command=build_command(store, str(reproducer_folder), broken, settings, data.embedder_spec, is_prefix=is_prefix),
        description=", ".join(f"{name} {value}" for name, value in description.items()),
    )


def load_stress_data(
    source: Any,
    embedder: str | Embedder,
    settings: StressSettings,
    *,
    max_documents: int | None = None,
    progress: ProgressCallback = no_progress,
) -> StressData:
    """Load documents and queries and embed them."""
    if isinstance(embedder, str):
        plugins.check_installed(iterate_plugins("embedders", embedder))
    if max_documents is not None and max_documents < 1:
        raise BadInput(f"max_documents must be at least 1, got {max_documents}")
    if isinstance(source, str | Path):
        progress(Progress(f"reading {Path(str(source).removeprefix(STIX_PREFIX)).name}"))
    data = _load_source(source)
    has_queries = bool(data.queries)
    documents = list(data.documents if max_documents is None else data.documents[:max_documents])
    if not documents:
        raise BadInput(f"{data.name} has no documents")
    unique_by(documents, attrgetter("id"), "document", file=data.name)
    notes = [data.about] if data.about and not Path(data.about).exists() else []
    queries = dict(data.queries) if has_queries else _queries_from_documents(documents, settings)
    if not has_queries:
        notes.append(f"{data.name} has no queries: the first words of some documents are used as queries")
    chosen = random.Random(settings.seed).sample(sorted(queries), min(settings.queries, len(queries)))  # noqa: S311 - a sample
    queries = {name: queries[name] for name in sorted(chosen)}
    texts = [document.whole for document in documents]
    model = open_embedder(embedder, texts, progress)
    vectors = embed_texts(model, texts, cache=cache_folder(), progress=progress).vectors
    vectors = _replace_zero_vectors(vectors, data.name, model.name, notes)
    query_vectors = model.embed(list(queries.values())) if queries else np.zeros((0, vectors.shape[1]), np.float32)
    nonzero = np.abs(query_vectors).sum(axis=1) > 0
    if not nonzero.all():
        count = "1 query is" if (~nonzero).sum() == 1 else f"{(~nonzero).sum():,} queries are"
        notes.append(f"{count} not run: the embedder `{model.name}` gives an all-zero vector, which has no cosine")
        queries = {name: queries[name] for name, keep in zip(queries, nonzero, strict=True) if keep}
        query_vectors = query_vectors[nonzero]
    embedder_spec = embedder if isinstance(embedder, str) else model.name
    judgments = data.judgments if has_queries else None
    return StressData(
        data.name, documents, vectors, queries, query_vectors, judgments, model.name, embedder_spec, notes
    )


def _replace_zero_vectors(vectors: Vectors, source: str, embedder: str, notes: list[str]) -> Vectors:
    """Replace all-zero vectors by one far from the others.

    A store may reject zeros or rank them arbitrarily. Raises BadInput if all vectors are zero.
    """
    nonzero = np.abs(vectors).sum(axis=1) > 0
    if nonzero.all():
        return vectors
    if not nonzero.any():
        raise BadInput(
            f"the embedder `{embedder}` returns an all-zero vector "
            f"for each of the {len(vectors):,} documents of {source}",
            hint="check the texts, or choose another --embedder, e.g. --embedder wordllama",
        )
    zeros = int((~nonzero).sum())
    count = "1 document has" if zeros == 1 else f"{zeros:,} documents have"
    notes.append(f"{count} an all-zero vector of the embedder `{embedder}`, replaced by a vector far from the others")
    away = -vectors[nonzero].mean(axis=0, dtype=np.float64)
    away = away / np.linalg.norm(away) if np.linalg.norm(away) > 1e-6 else np.eye(1, vectors.shape[1])[0]
    return np.where(nonzero[:, None], vectors, away).astype(np.float32)


def _load_source(source: Any) -> Dataset:
    """Load the documents of a source, with the queries of a folder that has no judgments."""
    data = load_dataset_or_corpus(source)
    if not isinstance(source, str | Path) or data.queries or not Path(source).is_dir():
        return data
    folder = folders.find_dataset_folder(Path(source))
    return data if folder is None else replace(data, queries=folders.read_queries(folder))


def _queries_from_documents(documents: Sequence[Document], settings: StressSettings) -> dict[str, str]:
    """Build queries from the first words of sampled documents."""
    rng = random.Random(settings.seed)  # noqa: S311 - a sample, no secret
    rows = rng.sample(range(len(documents)), min(settings.queries, len(documents)))
    texts = {row: " ".join((documents[row].title or documents[row].text).split()[:MAX_WORDS_PER_QUERY]) for row in rows}
    return {f"words of {documents[row].id}": text for row, text in texts.items() if text}


def score_rankings(data: StressData, rankings: Sequence[Ranking], k: int) -> tuple[dict[str, float], int]:
    """Compute mean measures of the rankings, and the number of judged queries."""
    if data.judgments is None or not len(data.judgments):
        return {}, 0
    grades = data.judgments.nested
    document_ids = set(data.ids)
    selected_grades = {name: _select_grades(grades[name], document_ids) for name in data.queries if name in grades}
    judged = {
        name: query_grades
        for name, query_grades in selected_grades.items()
        if any(grade > 0 for grade in query_grades.values())
    }
    if not judged:
        return {}, 0
    # Rank by position: the store's order counts, and its tied scores must not be reordered.
    run = {
        name: {doc: float(-rank) for rank, (doc, _) in enumerate(ranking)}
        for name, ranking in zip(data.queries, rankings, strict=True)
        if name in judged
    }
    scores = evaluate(judged, run, [f"recall@{k}", f"ndcg@{k}", f"mrr@{k}"])
    return dict(scores.means), len(judged)


def _select_grades(grades: Mapping[str, float], ids: set[str]) -> dict[str, float]:
    """Select the grades of documents that are present; `max_documents` may have removed some."""
    return {doc: grade for doc, grade in grades.items() if doc in ids}
