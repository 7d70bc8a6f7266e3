"""Claims of new documents, judged as new, known or conflicting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ragauge.compute.event_loops import map_async
from ragauge.core.records import Ints
from ragauge.core.samples import ANSWER, Support
from ragauge.core.text import split_sentences
from ragauge.judging.tasks import CONTEXT_ID_PREFIX, Judge, JudgeTask, TaskResult
from ragauge.knowledge.novelty.chunks import CountProgressCallback, DocumentChunks
from ragauge.knowledge.novelty.results import DocumentClaim

NEW, KNOWN, CONFLICTING, UNSCORED = "new", "known", "conflicting", "unscored"
NearestChunkSearch = Callable[[Sequence[str]], Ints]
"""Function from texts to the indices of their nearest known chunks, one row per text."""


async def judge_claims(
    chunks: DocumentChunks,
    known: DocumentChunks,
    near: NearestChunkSearch,
    judge: Judge,
    *,
    workers: int = 16,
    progress: CountProgressCallback | None = None,
) -> dict[int, list[DocumentClaim]]:
    """Extract the claims of each document and judge them.

    Return them by document index. First the claims of every chunk are extracted. The claims of a chunk are then judged
    together against the known chunks nearest to any of them. A claim is conflicting if a known chunk contradicts it,
    even if others support it. It is known if chunks support it, alone or together, and otherwise new. Without a
    readable verdict it is unscored, with the reason.
    """
    taken: dict[int, TaskResult] = {}
    said: dict[int, list[DocumentClaim]] = {}
    steps = 2 * len(chunks)

    def told() -> None:
        if progress is not None:
            progress(len(taken) + len(said), steps)

    async def take(place: int) -> None:
        parts = {f"s{i}": one for i, one in enumerate(split_sentences(chunks.text(place)), 1)}
        taken[place] = await judge.answer(JudgeTask("claims", _chunk_name(chunks, place), parts, {}, text=ANSWER))
        told()

    await map_async(range(len(chunks)), take, workers)
    texts = {place: _claim_texts(taken[place]) for place in range(len(chunks)) if not taken[place].unscored}
    flat = [text for place in texts for text in texts[place]]
    found = iter(near(flat).tolist() if flat and len(known) else [[]] * len(flat))
    beside = {place: dict.fromkeys(at for _ in mine for at in next(found)) for place, mine in texts.items()}

    async def hold(place: int) -> None:
        if place in texts:
            said[place] = await _held(place, texts[place], list(beside[place]))
        else:  # extraction of a chunk succeeds or fails as a whole
            why = next(iter(taken[place].unscored.values())).why
            said[place] = [DocumentClaim(chunks.text(place), UNSCORED, why=f"it was not taken apart: {why}")]
        told()

    async def _held(place: int, mine: Sequence[str], places: Sequence[int]) -> list[DocumentClaim]:
        asked = {f"a{i}": text for i, text in enumerate(mine, 1)}
        sources = {f"{CONTEXT_ID_PREFIX}{i}": known.text(at) for i, at in enumerate(places, 1)}
        if not sources:
            return [DocumentClaim(text, NEW, why="nothing is known") for text in mine]
        names = {f"{CONTEXT_ID_PREFIX}{i}": known.name(at) for i, at in enumerate(places, 1)}
        heard = (
            await judge.answer(JudgeTask("support", _chunk_name(chunks, place), asked, sources))
            if asked
            else TaskResult({}, {})
        )
        return [
            _to_document_claim(text, heard.said[name], names)
            if name in heard.said
            else DocumentClaim(text, UNSCORED, why=heard.unscored[name].why)
            for name, text in asked.items()
        ]

    await map_async(range(len(chunks)), hold, workers)
    claims: dict[int, list[DocumentClaim]] = {}
    for place, owner in enumerate(chunks.owner.tolist()):
        claims.setdefault(owner, []).extend(said[place])
    return claims


def _claim_texts(reading: TaskResult) -> list[str]:
    """Return the claims of a chunk in sentence order."""
    places = sorted(reading.said, key=lambda name: int(name[1:]))
    return [text for name in places for text in reading.said[name] if text.strip()]


def _to_document_claim(text: str, support: Support, names: Mapping[str, str]) -> DocumentClaim:
    for state, sources in ((CONFLICTING, support.against), (KNOWN, (*support.by, *support.together))):
        if sources:
            documents = dict.fromkeys(names[one] for one in sources if one in names)
            return DocumentClaim(text, state, tuple(documents), support.words)
    return DocumentClaim(text, NEW, (), support.words)


def _chunk_name(chunks: DocumentChunks, place: int) -> str:
    return f"{chunks.name(place)} {chunks.start[place]}"
