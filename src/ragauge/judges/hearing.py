"""Judge tasks of a sample: which tasks are needed, in which order, and how results become verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragauge.errors import BackendFailed
from ragauge.judges.rooms import Room
from ragauge.judges.sentences import sentences
from ragauge.judges.tasks import Judge, Reading, Task
from ragauge.together import each, together
from ragauge.verdicts import ANSWER, REFERENCE, Claim, Question, Sample, Unscored, Verdicts, cited_by

Wanted = frozenset[str]
"""Kinds of tasks to judge: some of `answer`, `reference`, `cross`, `useful`, `questions`."""
MARKS = {ANSWER: "a", REFERENCE: "r"}
OTHER = {ANSWER: REFERENCE, REFERENCE: ANSWER}


async def verdicts_of(sample: Sample, judge: Judge, wanted: Wanted, n: int) -> Verdicts:
    """Run all judge tasks of one sample and return its verdicts.

    The similarity of generated questions is not computed yet (NaN).
    """
    texts = _texts(sample, wanted)
    jobs: dict[str, Task] = {f"claims {name}": _claims_task(sample, name, text) for name, text in texts.items()}
    if "useful" in wanted and (chunks := _worded(sample)):
        jobs["useful"] = Task("useful", sample.id, chunks, {}, sample.question, sample.history)
    if "questions" in wanted and sample.answer is not None and sample.answer.strip():
        jobs["questions"] = Task("questions", sample.id, {ANSWER: sample.answer}, {}, n=n)
    said = await _answers(judge, jobs)
    claims: dict[str, list[Claim]] = {}
    left_out: dict[str, list[str]] = {}
    unscored: dict[str, Unscored] = {}
    for name, text in texts.items():
        taken = said.pop(f"claims {name}")
        if taken.unscored:  # Claims of a text are complete or unscored: a missing claim could raise the score.
            unscored[f"claims {name}"] = next(iter(taken.unscored.values()))
        else:
            claims[name] = _claims(text, name, taken)
            left_out[name] = [one for place, one in enumerate(sentences(text), 1) if not taken.said[f"s{place}"]]
    task = _support_task(sample, claims)
    said |= await _answers(judge, {"support": task} if task.asked else {})
    for step, found in said.items():
        unscored |= {step if step == "questions" else f"{step} {one}": why for one, why in found.unscored.items()}
    thought = said["questions"].said.get(ANSWER) if "questions" in said else None
    return Verdicts(
        sample.id,
        asked=_asked(sample, claims, said),
        claims=claims,
        support=said["support"].said if "support" in said else {},
        useful=said["useful"].said if "useful" in said else {},
        questions=[Question(text, float("nan")) for text in thought.questions] if thought else (),
        refusal=thought.refusal if thought else None,
        unscored=unscored,
        left_out={name: listed for name, listed in left_out.items() if listed},
    )


@dataclass(frozen=True)
class Session:
    """Work for an executor: judge a batch of samples, in their order."""

    room: Room[Judge]
    """Thread with an event loop that opens one judge per process."""
    wanted: Wanted
    n: int
    at_a_time: int
    """Maximum number of samples judged concurrently."""

    def __call__(self, samples: Sequence[Sample]) -> list[Verdicts]:
        """Return the verdicts on each sample."""
        found: dict[str, Verdicts] = {}

        async def heard(judge: Judge) -> None:
            async def one(sample: Sample) -> None:
                found[sample.id] = await verdicts_of(sample, judge, self.wanted, self.n)

            await each(samples, one, self.at_a_time)

        self.room.run(heard)
        return [found[sample.id] for sample in samples]


def _asked(sample: Sample, claims: Mapping[str, Sequence[Claim]], said: Mapping[str, Reading]) -> list[str]:
    """Return the kinds of tasks that were put to the judge."""
    held = [] if sample.contexts is None else list(claims)
    return [*held, *(["cross"] if len(claims) == 2 else []), *(one for one in ("useful", "questions") if one in said)]


async def _answers(judge: Judge, jobs: Mapping[str, Task]) -> dict[str, Reading]:
    try:
        return dict(zip(jobs, await together(judge.answer(task) for task in jobs.values()), strict=True))
    except RuntimeError as error:
        if "different event loop" not in str(error):
            raise
        raise BackendFailed(
            f"the judge {judge.name} holds something of another event loop: {error}",
            hint="a new judge for every call of `judge`, or locks and connections that it makes as it answers",
            final=True,
        ) from None


def _worded(sample: Sample) -> dict[str, str]:
    """Return the chunks with text; blank chunks are not judged."""
    return {name: text for name, text in sample.chunks.items() if text.strip()}


def _texts(sample: Sample, wanted: Wanted) -> dict[str, str]:
    """Return the available texts whose claims are required."""
    cross = "cross" in wanted or {"answer", "reference"} <= wanted
    both = sample.answer is not None and sample.reference is not None
    texts = ((ANSWER, sample.answer), (REFERENCE, sample.reference))
    return {
        name: text
        for name, text in texts
        if text is not None and ((name in wanted and sample.contexts is not None) or (cross and both))
    }


def _claims_task(sample: Sample, name: str, text: str) -> Task:
    parts = {f"s{place}": one for place, one in enumerate(sentences(text), 1)}
    return Task("claims", sample.id, parts, {}, sample.question, sample.history, text=name)


def _claims(text: str, name: str, found: Reading) -> list[Claim]:
    """Build the claims of a text, in the order of its sentences."""
    claims: list[Claim] = []
    for place, cites in enumerate(cited_by(sentences(text)), 1):
        for one in found.said[f"s{place}"]:
            claims.append(Claim(f"{MARKS[name]}{len(claims) + 1}", one, place, cites))
    return claims


def _support_task(sample: Sample, claims: Mapping[str, Sequence[Claim]]) -> Task:
    """Build the task that checks the support of claims.

    Sources are the chunks, and the other text if claims of both texts are known. Claims without any source are left
    out; the measures handle them by convention.
    """
    sources = _worded(sample)
    if len(claims) == 2:
        both = {REFERENCE: sample.reference or "", ANSWER: sample.answer or ""}
        sources |= {name: text for name, text in both.items() if text.strip() and claims[OTHER[name]]}
    asked = {claim.id: claim.text for found in claims.values() for claim in found}
    task = Task("support", sample.id, asked, sources, sample.question, sample.history)
    asked = {name: text for name, text in asked.items() if task.choices(name)}
    return Task("support", sample.id, asked, sources, sample.question, sample.history)
