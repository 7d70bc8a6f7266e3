"""Novelty of documents against a corpus, by vectors, shingles and claims."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack

import numpy as np

from ragauge.compute.event_loops import run_coroutine
from ragauge.compute.progress import ProgressCallback, no_progress, scoped
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.hashes import content_key
from ragauge.core.protocols import Chat, Embedder, Vectors
from ragauge.core.records import Floats, Ints
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.core.settings import AtLeast, check_settings, unique_by
from ragauge.core.text import normalise
from ragauge.files.serialization import settings_from
from ragauge.files.vectors import has_vectors, read_vectors
from ragauge.judging.model_judge import ModelJudge
from ragauge.judging.results import CostEstimate
from ragauge.judging.session import DryRunJudge, JudgingSession, JudgingSettings
from ragauge.judging.tasks import Judge
from ragauge.knowledge.novelty.chunks import (
    DEFAULT_CHUNK_CHARS,
    DocumentChunks,
    NearestChunks,
    ShingleOverlap,
    chunk_novelties,
    document_means,
    document_minimums,
    embed_chunks,
    embed_in_batches,
    nearest_known,
    nearest_others,
    percentile_ranks,
    shingle_overlap,
    split_documents,
)
from ragauge.knowledge.novelty.claims import judge_claims
from ragauge.knowledge.novelty.results import DocumentClaim, DocumentNovelty, NearestChunk, Novelty
from ragauge.models.embedders import CachedEmbedder, open_embedder
from ragauge.output.numbers import join_names, pluralise
from ragauge.runs.folder import provenance, utc_now
from ragauge.runs.texts import load_documents

DEFAULT_EMBEDDER = "wordllama"
MIN_KNOWN_DOCUMENTS = 30
"""Minimum number of known documents for percentiles; with fewer, the fifth percentile is meaningless."""


@dataclass(frozen=True)
class NoveltySettings:
    embedder: str | Embedder = DEFAULT_EMBEDDER
    chunk_size: Annotated[int, AtLeast(1)] = DEFAULT_CHUNK_CHARS
    """Maximum length of a chunk in characters."""
    chunk_overlap: Annotated[int, AtLeast(0)] = 0
    """Maximum number of characters that neighbouring chunks share."""
    reference_chunks: Annotated[int, AtLeast(0)] = 2000
    """Maximum number of known chunks sampled for the percentiles."""
    seed: int = 0
    """Seed of the sample."""
    chunks_per_claim: Annotated[int, AtLeast(1)] = 3
    """Number of nearest known chunks that each claim is compared with."""
    cache: Path | None = None
    """Folder in which vectors are cached."""
    judging: JudgingSettings = field(default_factory=JudgingSettings)
    """Settings of the judge of claims."""

    def __post_init__(self) -> None:
        check_settings(self)


class NoveltyOptions(TypedDict, total=False):
    """Keyword arguments of `novelty`: the fields of `NoveltySettings`."""

    embedder: str | Embedder
    chunk_size: int
    chunk_overlap: int
    reference_chunks: int
    seed: int
    chunks_per_claim: int
    cache: Path | None
    judging: JudgingSettings


@dataclass(frozen=True, eq=False)
class NoveltyData:
    """Chunks, vectors and neighbours from which novelty is computed."""

    chunks: DocumentChunks
    vectors: Vectors
    nearest: NearestChunks
    """Nearest known chunk of each chunk."""
    known_chunks: DocumentChunks
    known_vectors: Vectors
    embedder: Embedder
    texts: bool = True
    """Whether the texts of the known documents are available, and not only vectors."""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def highest_similarity(self) -> Floats:
        """Highest cosine of each chunk with a known one.

        0 if nothing is known, NaN for a zero vector.
        """
        if self.nearest.similarities.shape[1]:
            highest: Floats = self.nearest.similarities[:, 0]
            return highest
        return np.where(np.any(self.vectors, axis=1), 0.0, np.nan)


def prepare_novelty_data(
    added: Any, known: Any, settings: NoveltySettings, progress: ProgressCallback = no_progress
) -> NoveltyData:
    """Split, embed and compare documents, as input for novelty and for gain."""
    seconds: dict[str, float] = {}
    model = open_embedder(settings.embedder)
    embedder: Embedder = model if settings.cache is None else CachedEmbedder(model, settings.cache / "embeddings")
    documents = unique_by(load_documents(added), attrgetter("id"), "new document")
    if not documents:
        raise BadInput("no new documents given")
    vectors_only = isinstance(known, str | Path) and has_vectors(Path(known))
    known_vectors: Vectors | None = None
    with _timed_step(seconds, "splitting"):
        chunks = split_documents(documents, settings.chunk_size, settings.chunk_overlap)
        if vectors_only:
            known_chunks, known_vectors = _read_known_vectors(str(known))
        else:
            known_documents = unique_by(load_documents(known), attrgetter("id"), "known document")
            known_chunks = split_documents(known_documents, settings.chunk_size, settings.chunk_overlap)
    with _timed_step(seconds, "embedding"):
        vectors = embed_chunks(chunks, embedder, scoped(progress, action="embedding the new chunks"))
        if known_vectors is None:
            known_vectors = embed_chunks(known_chunks, embedder, scoped(progress, action="embedding the known chunks"))
    with _timed_step(seconds, "comparing"):
        nearest = nearest_known(vectors, known_vectors, 1, scoped(progress, action="comparing chunks"))
    return NoveltyData(chunks, vectors, nearest, known_chunks, known_vectors, embedder, not vectors_only, seconds)


def novelty(
    added: Any,
    known: Any,
    *,
    chat: str | Chat | Judge | None = None,
    folder: str | Path | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[NoveltyOptions],
) -> Novelty:
    """Measure how new documents are against a corpus.

    `added` and `known` are lists of Documents, datasets or their names, corpus files or folders. `known` may also be a
    file of vectors (`.npy`, `.fvecs` and others) by the same embedder, one row per chunk. Percentiles are among sampled
    known documents. With fewer than 30 of them there are no percentiles, and no document is classified as near or new.
    With a `chat` (see `judge`), the claims of the new documents are judged against the nearest known chunks of each.
    Replies are saved in `folder`. Further settings are the fields of `NoveltySettings`.
    """
    settings = settings_from(NoveltySettings, options)
    data = prepare_novelty_data(added, known, settings, progress)
    duplicates = (
        _duplicate_classes(data.known_chunks.documents) if data.texts else np.arange(len(data.known_chunks.documents))
    )
    rows = _sample_known_chunks(data.known_chunks, settings.reference_chunks, settings.seed)
    with _timed_step(data.seconds, "percentiles"):
        reference = _known_novelties(data, duplicates, rows)
    sampled = np.unique(data.known_chunks.owner[rows])
    overlap, reference["lexical"] = None, np.zeros(0)
    if data.texts:
        with _timed_step(data.seconds, "words"):
            overlap, reference["lexical"] = shingle_overlap(
                data.chunks.documents, data.known_chunks.documents, sampled, duplicates, progress
            )
    claims: dict[int, list[DocumentClaim]] = {}
    judge, notes = "", _novelty_notes(data, reference, len(sampled))
    if chat is not None:
        with _timed_step(data.seconds, "claims"):
            claims, judge, judge_notes = run_coroutine(_run_claim_judge(data, chat, folder, settings, progress))
        notes += judge_notes
    return Novelty(
        documents=_document_novelties(data, overlap, reference, claims),
        known=len(data.known_chunks.documents),
        known_chunks=len(data.known_vectors),
        embedder=data.embedder.name,
        chunking=data.chunks.chunking,
        reference_chunks=len(rows),
        reference_documents=len(sampled),
        reference_values={name: sorted(values[~np.isnan(values)].tolist()) for name, values in reference.items()},
        judge=judge,
        seconds={name: round(value, 3) for name, value in data.seconds.items()},
        notes=notes,
        provenance={
            "made": utc_now(),
            "seed": settings.seed,
            "chunks_per_claim": settings.chunks_per_claim,
            **provenance(),
        },
    )


def estimate_novelty_cost(
    added: Any,
    known: Any,
    *,
    chat: str | Chat | Judge,
    folder: str | Path | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[NoveltyOptions],
) -> list[CostEstimate]:
    """Estimate the calls, tokens and cost of judging claims, by step.

    No judge call is made.
    """
    settings = settings_from(NoveltySettings, options)
    data = prepare_novelty_data(added, known, settings, progress)
    saved_folder = folder if folder is not None and Path(folder).is_dir() else None

    async def estimate() -> list[CostEstimate]:
        async with JudgingSession(chat, saved_folder, settings.judging) as session:
            if not isinstance(session.judge, ModelJudge):
                return []
            judge = DryRunJudge(session.judge, session.price, local=session.local)
            search = _nearest_chunk_search(data, settings.chunks_per_claim)
            await judge_claims(data.chunks, data.known_chunks, search, judge)
            return judge.estimates()

    return run_coroutine(estimate())


async def _run_claim_judge(
    data: NoveltyData,
    chat: str | Chat | Judge,
    folder: str | Path | None,
    settings: NoveltySettings,
    progress: ProgressCallback,
) -> tuple[dict[int, list[DocumentClaim]], str, list[str]]:
    """Judge the claims; return them by document, with the judge's name and notes."""
    if not data.texts:
        raise MissingEvidence(
            "claims are compared with texts, but the known corpus is a file of vectors",
            hint="--known with the documents themselves",
        )
    async with JudgingSession(chat, folder, settings.judging) as session:
        session.check_ready()
        workers = 2 * settings.judging.workers
        search = _nearest_chunk_search(data, settings.chunks_per_claim)
        claims = await judge_claims(
            data.chunks, data.known_chunks, search, session.judge, workers=workers, progress=progress
        )
        name = f"{session.judge.name} [{content_key(dict(session.judge.identity))[:8]}]"
        notes = [*session.notes]
        if session.judge.name == LEXICAL_JUDGE:
            notes.append("the lexical judge compares words, so it counts a false sentence made of known words as known")
        if session.stopped:
            notes.append(f"the judge was stopped: {session.stopped}")
        return claims, name, notes


def _nearest_chunk_search(data: NoveltyData, chunks_per_claim: int) -> Callable[[Sequence[str]], Ints]:
    def find_nearest_chunks(texts: Sequence[str]) -> Ints:
        vectors = embed_in_batches(lambda i: texts[i], len(texts), data.embedder)
        return nearest_known(vectors, data.known_vectors, chunks_per_claim).positions

    return find_nearest_chunks


def _read_known_vectors(path: str) -> tuple[DocumentChunks, Vectors]:
    """Read a file of vectors; each row is a chunk and a document of its own."""
    rows = read_vectors(path)
    names = rows.ids or [f"row {i}" for i in range(len(rows.vectors))]
    zeros = np.zeros(len(names), np.int64)
    documents = [Document(name, "") for name in names]
    vectors = rows.vectors if rows.vectors.dtype == np.float32 else np.asarray(rows.vectors, np.float32)
    return DocumentChunks(documents, np.arange(len(names)), zeros, zeros, split_documents([]).chunking), vectors


def _duplicate_classes(documents: Sequence[Document]) -> Ints:
    """Number the documents so that those with the same text have the same number."""
    numbers: dict[bytes, int] = {}
    hashes = (
        hashlib.blake2b(normalise(document.whole).encode("utf-8", "replace"), digest_size=16) for document in documents
    )
    return np.array([numbers.setdefault(text_hash.digest(), len(numbers)) for text_hash in hashes], np.int64)


def _sample_known_chunks(known: DocumentChunks, max_chunks: int, seed: int) -> Ints:
    """Sample the chunks of whole known documents.

    A single document that is too long is cut.
    """
    counts = known.counts
    order = np.random.default_rng(seed).permutation(np.flatnonzero(counts))
    sample = order[np.cumsum(counts[order]) <= max_chunks]
    if not len(sample) and len(order) and max_chunks:
        sample = order[:1]
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = [np.arange(starts[document], starts[document + 1])[: max_chunks or None] for document in np.sort(sample)]
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)


def _known_novelties(data: NoveltyData, duplicates: Ints, rows: Ints) -> dict[str, Floats]:
    """Compute the novelty of sampled known documents against all others.

    Both the mean and the minimum over chunks are returned.
    """
    classes = duplicates[data.known_chunks.owner]
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    row_classes = classes[rows]
    firsts, lasts = np.searchsorted(ordered, row_classes), np.searchsorted(ordered, row_classes, side="right")
    own_chunks = [order[first:last] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]
    values = chunk_novelties(nearest_others(data.known_vectors, rows, own_chunks)) if len(rows) else np.zeros(0)
    sampled, owner = np.unique(data.known_chunks.owner[rows], return_inverse=True)
    return {
        "mean": document_means(values, owner, len(sampled)),
        "least": document_minimums(values, owner, len(sampled)),
    }


def _document_novelties(
    data: NoveltyData,
    overlap: ShingleOverlap | None,
    reference: Mapping[str, Floats],
    claims: Mapping[int, Sequence[DocumentClaim]],
) -> list[DocumentNovelty]:
    chunks, n = data.chunks, len(data.chunks.documents)
    values, counts = chunk_novelties(data.highest_similarity), data.chunks.counts
    undefined = np.full(n, np.nan)
    mean, lowest = document_means(values, chunks.owner, n), document_minimums(values, chunks.owner, n)
    lexical = undefined if overlap is None else overlap.new_share
    ranks = {
        name: undefined if _has_too_few_known(reference) else percentile_ranks(novelty, reference[name])
        for name, novelty in (("mean", mean), ("least", lowest), ("lexical", lexical))
    }
    starts = np.concatenate([[0], np.cumsum(counts)])
    novelties = []
    for i, document in enumerate(chunks.documents):
        container = -1 if overlap is None else int(overlap.container[i])
        novelties.append(
            DocumentNovelty(
                document.id,
                int(counts[i]),
                float(mean[i]),
                float(lowest[i]),
                float(lexical[i]),
                percentile=float(ranks["mean"][i]),
                least_percentile=float(ranks["least"][i]),
                lexical_percentile=float(ranks["lexical"][i]),
                contained=float(undefined[i] if overlap is None else overlap.highest_share[i]),
                container="" if container < 0 else data.known_chunks.documents[container].id,
                reason=_undefined_reason(float(mean[i]), int(counts[i])),
                nearest=[
                    _nearest_chunk(data, index, index - int(starts[i])) for index in range(starts[i], starts[i + 1])
                ],
                claims=claims.get(i, ()),
            )
        )
    return novelties


def _has_too_few_known(reference: Mapping[str, Floats]) -> bool:
    return int(np.count_nonzero(~np.isnan(reference["mean"]))) < MIN_KNOWN_DOCUMENTS


def _undefined_reason(mean: float, chunks: int) -> str:
    if not chunks:
        return "the text has no words"
    return "the embedder returns a zero vector for the text" if np.isnan(mean) else ""


def _nearest_chunk(data: NoveltyData, index: int, chunk: int) -> NearestChunk:
    text = data.chunks.text(index)
    if not data.nearest.positions.shape[1] or np.isnan(data.nearest.similarities[index, 0]):
        return NearestChunk(chunk, text, float("nan"))
    nearest = int(data.nearest.positions[index, 0])
    known_text = data.known_chunks.text(nearest) if data.texts else ""
    return NearestChunk(
        chunk, text, float(data.nearest.similarities[index, 0]), data.known_chunks.name(nearest), known_text
    )


def _novelty_notes(data: NoveltyData, reference: Mapping[str, Floats], sampled: int) -> list[str]:
    notes = []
    if not len(data.known_chunks):
        notes.append("the known corpus is empty: every document is new by definition, and there are no percentiles")
    elif np.isnan(reference["mean"]).all():
        notes.append("no percentiles: the known corpus is a single text, or --reference-chunks is 0")
    elif _has_too_few_known(reference):
        notes.append(
            f"no percentiles: they need at least {MIN_KNOWN_DOCUMENTS} known documents, got {sampled}; no document is "
            "classified as near or new"
        )
    if not data.texts:
        notes.append("the known corpus is a file of vectors: words were not compared, and each row is a document")
    known_ids = {document.id for document in data.known_chunks.documents}
    shared = [document.id for document in data.chunks.documents if document.id in known_ids]
    if shared and data.texts:
        notes.append(f"{pluralise(len(shared), 'new document')} with the id of a known one: {join_names(shared, 3)}")
    return notes


@contextmanager
def _timed_step(seconds: dict[str, float], step: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        seconds[step] = time.perf_counter() - began
