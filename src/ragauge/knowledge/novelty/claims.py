"""Claims of new documents, judged as new, known or conflicting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ragauge.compute.event_loops import map_async
from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.records import Ints
from ragauge.core.samples import ANSWER, Support, chunk_id, claim_id
from ragauge.core.text import split_sentences
from ragauge.judging.tasks import Judge, JudgeTask, TaskResult
from ragauge.knowledge.novelty.chunks import DocumentChunks
from ragauge.knowledge.novelty.results import DocumentClaim

NEW, KNOWN, CONFLICTING, UNSCORED = "new", "known", "conflicting", "unscored"
NearestChunkSearch = Callable[[Sequence[str]], Ints]
"""Function from texts to the indices of their nearest known chunks, one row per text."""


async def judge_claims(
    chunks: DocumentChunks,
    known: DocumentChunks,
    search: NearestChunkSearch,
    judge: Judge,
    *,
    workers: int = 16,
    progress: ProgressCallback = no_progress,
) -> dict[int, list[DocumentClaim]]:
    """Extract the claims of each document and judge them.

    Return them by document index. First the claims of every chunk are extracted. The claims of a chunk are then judged
    together against the known chunks nearest to any of them. A claim is conflicting if a known chunk contradicts it,
    even if others support it. It is known if chunks support it, alone or together, and otherwise new. Without a
    readable verdict it is unscored, with the reason.
    """
    extracted: dict[int, TaskResult] = {}
    judged: dict[int, list[DocumentClaim]] = {}

    def report_step() -> None:
        progress(Progress("judging claims", len(extracted) + len(judged), 2 * len(chunks)))

    async def extract_claims(index: int) -> None:
        sentences = {f"s{i}": sentence for i, sentence in enumerate(split_sentences(chunks.text(index)), 1)}
        task = JudgeTask("claims", _chunk_name(chunks, index), sentences, {}, text=ANSWER)
        extracted[index] = await judge.answer(task)
        report_step()

    await map_async(range(len(chunks)), extract_claims, workers)
    texts = {index: _claim_texts(extracted[index]) for index in range(len(chunks)) if not extracted[index].unscored}
    all_texts = [text for index in texts for text in texts[index]]
    nearest = iter(search(all_texts).tolist() if all_texts and len(known) else [[]] * len(all_texts))
    sources_of = {index: dict.fromkeys(i for _ in claims for i in next(nearest)) for index, claims in texts.items()}

    async def judge_chunk(index: int) -> None:
        if index in texts:
            judged[index] = await _judge_texts(index, texts[index], list(sources_of[index]))
        else:  # extraction of a chunk succeeds or fails as a whole
            why = next(iter(extracted[index].unscored.values())).reason
            judged[index] = [
                DocumentClaim(chunks.text(index), UNSCORED, reason=f"its claims were not extracted: {why}")
            ]
        report_step()

    async def _judge_texts(index: int, claims: Sequence[str], indices: Sequence[int]) -> list[DocumentClaim]:
        claim_texts = {claim_id(ANSWER, i): text for i, text in enumerate(claims, 1)}
        sources = {chunk_id(i): known.text(index) for i, index in enumerate(indices, 1)}
        if not sources:
            return [DocumentClaim(text, NEW, reason="the known corpus is empty") for text in claims]
        names = {chunk_id(i): known.name(index) for i, index in enumerate(indices, 1)}
        verdicts = (
            await judge.answer(JudgeTask("support", _chunk_name(chunks, index), claim_texts, sources))
            if claim_texts
            else TaskResult({}, {})
        )
        return [
            _to_document_claim(text, verdicts.verdicts[name], names)
            if name in verdicts.verdicts
            else DocumentClaim(text, UNSCORED, reason=verdicts.unscored[name].reason)
            for name, text in claim_texts.items()
        ]

    await map_async(range(len(chunks)), judge_chunk, workers)
    claims: dict[int, list[DocumentClaim]] = {}
    for index, owner in enumerate(chunks.owner.tolist()):
        claims.setdefault(owner, []).extend(judged[index])
    return claims


def _claim_texts(reading: TaskResult) -> list[str]:
    """Return the claims of a chunk in sentence order."""
    places = sorted(reading.verdicts, key=lambda name: int(name[1:]))
    return [text for name in places for text in reading.verdicts[name] if text.strip()]


def _to_document_claim(text: str, support: Support, names: Mapping[str, str]) -> DocumentClaim:
    for state, sources in ((CONFLICTING, support.against), (KNOWN, (*support.by, *support.together))):
        if sources:
            documents = dict.fromkeys(names[source] for source in sources if source in names)
            return DocumentClaim(text, state, tuple(documents), support.words)
    return DocumentClaim(text, NEW, (), support.words)


def _chunk_name(chunks: DocumentChunks, index: int) -> str:
    return f"{chunks.name(index)} {chunks.start[index]}"
