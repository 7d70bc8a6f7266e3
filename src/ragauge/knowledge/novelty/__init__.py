"""Novelty of documents against a corpus, by vectors, shingles and claims."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.compute.event_loops import run_coroutine
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.protocols import Chat, Embedder, Vectors
from ragauge.core.records import Floats, Ints
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.core.text import normalise
from ragauge.files.serialization import settings_from
from ragauge.files.vectors import is_vector_file, read_vectors
from ragauge.judging.model_judge import ModelJudge
from ragauge.judging.reply_cache import compute_cache_key
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
from ragauge.runs.folder import provenance, utc_now
from ragauge.runs.inputs import load_documents

DEFAULT_EMBEDDER = "wordllama"
DEFAULT_COMPARED_CHUNKS = 2000
"""Maximum number of known chunks sampled for the percentiles."""
DEFAULT_CHUNKS_PER_CLAIM = 3
"""Number of nearest known chunks per claim."""
MIN_KNOWN_DOCUMENTS = 30
"""Minimum number of known documents for percentiles; with fewer, the fifth percentile is meaningless."""

NoveltyProgressCallback = Callable[[str, int, int], None]
"""Progress callback: step, number done, total."""


@dataclass(frozen=True, eq=False)
class NoveltyData:
    """Chunks, vectors and neighbours from which novelty is computed."""

    chunks: DocumentChunks
    vectors: Vectors
    near: NearestChunks
    """Nearest known chunk of each chunk."""
    known: DocumentChunks
    known_vectors: Vectors
    embedder: Embedder
    texts: bool = True
    """Whether the texts of the known documents are available, and not only vectors."""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def highest(self) -> Floats:
        """Highest cosine of each chunk with a known one.

        0 if nothing is known, NaN for a zero vector.
        """
        if self.near.similarities.shape[1]:
            found: Floats = self.near.similarities[:, 0]
            return found
        return np.where(np.any(self.vectors, axis=1), 0.0, np.nan)


def prepare_novelty_data(
    added: Any,
    known: Any,
    *,
    embedder: str | Embedder = DEFAULT_EMBEDDER,
    size: int = DEFAULT_CHUNK_CHARS,
    overlap: int = 0,
    cache: Path | None = None,
    progress: NoveltyProgressCallback | None = None,
) -> NoveltyData:
    """Split, embed and compare documents, as input for novelty and for batches."""
    seconds: dict[str, float] = {}
    model = open_embedder(embedder)
    kept: Embedder = model if cache is None else CachedEmbedder(model, cache / "embeddings")
    documents = _check_unique_ids(load_documents(added), "to be added")
    if not documents:
        raise BadInput("there are no documents to be added")
    vectors_only = isinstance(known, str | Path) and is_vector_file(Path(known))
    with _timed_step(seconds, "cutting"):
        chunks = split_documents(documents, size, overlap)
        there = (
            _read_known_vectors(str(known))
            if vectors_only
            else (split_documents(_check_unique_ids(load_documents(known), "known"), size, overlap), None)
        )
    with _timed_step(seconds, "embedding"):
        vectors = embed_chunks(chunks, kept, _step_progress(progress, "embedding the new chunks"))
        known_vectors = there[1]
        if known_vectors is None:
            known_vectors = embed_chunks(there[0], kept, _step_progress(progress, "embedding the known chunks"))
    with _timed_step(seconds, "comparing"):
        near = nearest_known(vectors, known_vectors, 1, _share_progress(progress, "comparing", len(chunks)))
    return NoveltyData(chunks, vectors, near, there[0], known_vectors, kept, not vectors_only, seconds)


def _check_unique_ids(documents: list[Document], what: str) -> list[Document]:
    """Return the documents; raise BadInput for a duplicate id."""
    seen: set[str] = set()
    for one in documents:
        if one.id in seen:
            raise BadInput(f"the id `{one.id}` comes twice in the documents {what}")
        seen.add(one.id)
    return documents


def novelty(  # noqa: PLR0913 - each is a setting
    added: Any,
    known: Any,
    *,
    embedder: str | Embedder = DEFAULT_EMBEDDER,
    size: int = DEFAULT_CHUNK_CHARS,
    overlap: int = 0,
    compared: int = DEFAULT_COMPARED_CHUNKS,
    seed: int = 0,
    chat: str | Chat | Judge | None = None,
    beside: int = DEFAULT_CHUNKS_PER_CLAIM,
    folder: str | Path | None = None,
    cache: Path | None = None,
    progress: NoveltyProgressCallback | None = None,
    **how: Any,
) -> Novelty:
    """Measure how new documents are against a corpus.

    `added` and `known` are lists of Documents, datasets or their names, corpus files or folders. `known` may also be a
    file of vectors (`.npy`, `.fvecs` and others) by the same embedder, one row per chunk. Chunks have at most `size`
    characters. Percentiles are among known documents with at most `compared` chunks in total, drawn with `seed`. With
    fewer than 30 documents there are none, and no document is classified as near or new. With a `chat` (see `judge`),
    the claims of the new documents are judged against the `beside` nearest known chunks of each. Replies are saved in
    `folder`. Further settings are those of `JudgingSettings`.
    """
    if compared < 0 or beside < 1:
        raise BadInput(f"{compared} known chunks, and {beside} beside a claim", hint="at least 0, and at least 1")
    found = prepare_novelty_data(
        added, known, embedder=embedder, size=size, overlap=overlap, cache=cache, progress=progress
    )
    settings = settings_from(JudgingSettings, how)
    twins = _duplicate_classes(found.known.documents) if found.texts else np.arange(len(found.known.documents))
    rows = _sample_known_chunks(found.known, compared, seed)
    with _timed_step(found.seconds, "percentiles"):
        own = _known_novelties(found, twins, rows)
    sampled = np.unique(found.known.owner[rows])
    words, own["lexical"] = None, np.zeros(0)
    if found.texts:
        with _timed_step(found.seconds, "words"):
            heard = _step_progress(progress, "comparing words")
            words, own["lexical"] = shingle_overlap(
                found.chunks.documents, found.known.documents, sampled, twins, heard
            )
    claims: dict[int, list[DocumentClaim]] = {}
    judge, notes = "", _novelty_notes(found, own, len(sampled))
    if chat is not None:
        with _timed_step(found.seconds, "claims"):
            claims, judge, more = run_coroutine(_run_claim_judge(found, chat, folder, settings, beside, progress))
        notes += more
    return Novelty(
        documents=_document_novelties(found, words, own, claims),
        known=len(found.known.documents),
        known_chunks=len(found.known_vectors),
        embedder=found.embedder.name,
        chunking=found.chunks.chunking,
        compared=len(rows),
        compared_documents=len(sampled),
        own={name: sorted(values[~np.isnan(values)].tolist()) for name, values in own.items()},
        judge=judge,
        seconds={name: round(value, 3) for name, value in found.seconds.items()},
        notes=notes,
        circumstances={"made": utc_now(), "seed": seed, "beside": beside, **provenance()},
    )


def estimate_novelty_cost(  # noqa: PLR0913 - each is a setting
    added: Any,
    known: Any,
    *,
    chat: str | Chat | Judge,
    embedder: str | Embedder = DEFAULT_EMBEDDER,
    size: int = DEFAULT_CHUNK_CHARS,
    overlap: int = 0,
    beside: int = DEFAULT_CHUNKS_PER_CLAIM,
    folder: str | Path | None = None,
    cache: Path | None = None,
    progress: NoveltyProgressCallback | None = None,
    **how: Any,
) -> list[CostEstimate]:
    """Estimate the calls, tokens and cost of judging claims, by step.

    No judge call is made.
    """
    found = prepare_novelty_data(
        added, known, embedder=embedder, size=size, overlap=overlap, cache=cache, progress=progress
    )
    there = folder if folder is not None and Path(folder).is_dir() else None

    async def work() -> list[CostEstimate]:
        async with JudgingSession(chat, there, settings_from(JudgingSettings, how)) as office:
            if not isinstance(office.judge, ModelJudge):
                return []
            counting = DryRunJudge(office.judge, office.price, local=office.local)
            await judge_claims(found.chunks, found.known, _nearest_chunk_search(found, beside), counting)
            return counting.estimates()

    return run_coroutine(work())


async def _run_claim_judge(
    found: NoveltyData,
    chat: str | Chat | Judge,
    folder: str | Path | None,
    settings: JudgingSettings,
    beside: int,
    progress: NoveltyProgressCallback | None,
) -> tuple[dict[int, list[DocumentClaim]], str, list[str]]:
    """Judge the claims; return them by document, with the judge's name and notes."""
    if not found.texts:
        raise MissingEvidence(
            "claims are held against texts, and only vectors are known", hint="--known with the documents themselves"
        )
    async with JudgingSession(chat, folder, settings) as office:
        getattr(office.chat, "ready", lambda: None)()
        heard = _step_progress(progress, "judging")
        workers = 2 * settings.concurrency
        near = _nearest_chunk_search(found, beside)
        claims = await judge_claims(found.chunks, found.known, near, office.judge, workers=workers, progress=heard)
        name = f"{office.judge.name} [{compute_cache_key(dict(office.judge.identity))[:8]}]"
        notes = [*office.notes]
        if office.judge.name == LEXICAL_JUDGE:
            notes.append("the lexical judge compares words: it takes false sentences of known words for known ones")
        if stopped := getattr(office.judge, "stopped", ""):
            notes.append(f"the judge was stopped: {stopped}")
        return claims, name, notes


def _nearest_chunk_search(found: NoveltyData, beside: int) -> Callable[[Sequence[str]], Ints]:
    def near(texts: Sequence[str]) -> Ints:
        vectors = embed_in_batches(lambda i: texts[i], len(texts), found.embedder)
        return nearest_known(vectors, found.known_vectors, beside).places

    return near


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
    seen: dict[bytes, int] = {}
    keys = (hashlib.blake2b(normalise(one.whole).encode("utf-8", "replace"), digest_size=16) for one in documents)
    return np.array([seen.setdefault(key.digest(), len(seen)) for key in keys], np.int64)


def _sample_known_chunks(known: DocumentChunks, most: int, seed: int) -> Ints:
    """Sample the chunks of whole known documents.

    A single document that is too long is cut.
    """
    counts = known.counts
    order = np.random.default_rng(seed).permutation(np.flatnonzero(counts))
    taken = order[np.cumsum(counts[order]) <= most]
    if not len(taken) and len(order) and most:
        taken = order[:1]
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = [np.arange(starts[one], starts[one + 1])[: most or None] for one in np.sort(taken)]
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)


def _known_novelties(found: NoveltyData, twins: Ints, rows: Ints) -> dict[str, Floats]:
    """Compute the novelty of sampled known documents against all others.

    Both the mean and the minimum over chunks are returned.
    """
    classes = twins[found.known.owner]
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    mine = classes[rows]
    firsts, lasts = np.searchsorted(ordered, mine), np.searchsorted(ordered, mine, side="right")
    own = [order[first:last] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]
    values = chunk_novelties(nearest_others(found.known_vectors, rows, own)) if len(rows) else np.zeros(0)
    sampled, owner = np.unique(found.known.owner[rows], return_inverse=True)
    return {
        "mean": document_means(values, owner, len(sampled)),
        "least": document_minimums(values, owner, len(sampled)),
    }


def _document_novelties(
    found: NoveltyData, words: ShingleOverlap | None, own: dict[str, Floats], claims: dict[int, list[DocumentClaim]]
) -> list[DocumentNovelty]:
    chunks, n = found.chunks, len(found.chunks.documents)
    values, counts = chunk_novelties(found.highest), found.chunks.counts
    nothing = np.full(n, np.nan)
    mean, low = document_means(values, chunks.owner, n), document_minimums(values, chunks.owner, n)
    new = nothing if words is None else words.new
    figures = (("mean", mean), ("least", low), ("lexical", new))
    ranks = {name: nothing if _has_too_few_known(own) else percentile_ranks(one, own[name]) for name, one in figures}
    starts = np.concatenate([[0], np.cumsum(counts)])
    told = []
    for i, document in enumerate(chunks.documents):
        inside = -1 if words is None else int(words.place[i])
        told.append(
            DocumentNovelty(
                document.id,
                int(counts[i]),
                float(mean[i]),
                float(low[i]),
                float(new[i]),
                percentile=float(ranks["mean"][i]),
                least_percentile=float(ranks["least"][i]),
                lexical_percentile=float(ranks["lexical"][i]),
                contained=float(nothing[i] if words is None else words.best[i]),
                container="" if inside < 0 else found.known.documents[inside].id,
                why=_undefined_reason(float(mean[i]), int(counts[i])),
                nearest=[
                    _nearest_chunk(found, place, place - int(starts[i])) for place in range(starts[i], starts[i + 1])
                ],
                claims=claims.get(i, ()),
            )
        )
    return told


def _has_too_few_known(own: dict[str, Floats]) -> bool:
    return int(np.count_nonzero(~np.isnan(own["mean"]))) < MIN_KNOWN_DOCUMENTS


def _undefined_reason(mean: float, chunks: int) -> str:
    if not chunks:
        return "it has no words"
    return "the embedder gives its text a vector of zeros" if np.isnan(mean) else ""


def _nearest_chunk(found: NoveltyData, place: int, chunk: int) -> NearestChunk:
    text = found.chunks.text(place)
    if not found.near.places.shape[1] or np.isnan(found.near.similarities[place, 0]):
        return NearestChunk(chunk, text, float("nan"))
    at = int(found.near.places[place, 0])
    near = found.known.text(at) if found.texts else ""
    return NearestChunk(chunk, text, float(found.near.similarities[place, 0]), found.known.name(at), near)


def _novelty_notes(found: NoveltyData, own: dict[str, Floats], sampled: int) -> list[str]:
    notes = []
    if not len(found.known):
        notes.append("nothing is known: everything is new, by definition, and there are no percentiles")
    elif np.isnan(own["mean"]).all():
        notes.append("there are no percentiles: what is known is a single text, or was not compared")
    elif _has_too_few_known(own):
        many = "1 was" if sampled == 1 else f"{sampled} were"
        notes.append(
            f"too few known documents to tell what is near: {many} compared, and percentiles need {MIN_KNOWN_DOCUMENTS}"
        )
    if not found.texts:
        notes.append("only vectors are known: words were not compared, and each row counts as a document")
    there = {one.id for one in found.known.documents}
    same = [one.id for one in found.chunks.documents if one.id in there]
    if same and found.texts:
        some = ", ".join(same[:3]) + (", …" if len(same) > 3 else "")
        notes.append(f"known under the same id: {len(same):,} of the documents ({some})")
    return notes


@contextmanager
def _timed_step(seconds: dict[str, float], what: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        seconds[what] = time.perf_counter() - began


def _step_progress(progress: NoveltyProgressCallback | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(what, done, total)


def _share_progress(progress: NoveltyProgressCallback | None, what: str, total: int) -> Callable[[float], None] | None:
    return None if progress is None else lambda part: progress(what, round(part * total), total)
