"""Judge tasks of a sample, and judges that perform them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from ragauge.core.samples import Unscored, is_chunk, is_claim_of


@dataclass(frozen=True)
class JudgeTask:
    """One task for a judge: every item in `items`, and no other, gets a verdict.

    | step | `items` | `sources` | verdict per item |
    |---|---|---|---|
    | claims | sentences s1, s2, … of one text | | the claims in it: a list of texts |
    | support | claims a1, …, r1, … | chunks, `reference`, `answer` | a Support |
    | useful | chunks k1, k2, … | | a Usefulness |
    | questions | `answer` | | a GeneratedQuestions |
    """

    step: str
    sample: str
    items: Mapping[str, str]
    sources: Mapping[str, str]
    question: str = ""
    history: Sequence[str] = ()
    n: int = 0
    """Number of questions to generate."""
    text: str = ""
    """Text whose claims are extracted: `answer` or `reference`."""

    def choices(self, claim: str) -> list[str]:
        """Return the sources that may support a claim: never the text that it comes from."""
        return [source for source in self.sources if is_chunk(source) or not is_claim_of(source, claim)]


class TaskResult(NamedTuple):
    """Verdicts of a task by item, and the reasons for unscored items.

    Each item is in one of them.
    """

    verdicts: dict[str, Any]
    unscored: dict[str, Unscored]


class Judge(Protocol):
    """Protocol of a judge, which performs tasks."""

    @property
    def name(self) -> str:
        """Short name of the judge."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that could change a verdict."""
        ...

    async def answer(self, task: JudgeTask) -> TaskResult:
        """Return a verdict on every item of a task, or the reason for a missing one."""
        ...


def split_task(task: JudgeTask, max_items: int) -> list[JudgeTask]:
    """Split a task into parts of at most `max_items` items.

    >>> task = JudgeTask("useful", "s1", {"k1": "a", "k2": "b", "k3": "c"}, {})
    >>> [list(part.items) for part in split_task(task, 2)]
    [['k1', 'k2'], ['k3']]
    """
    names = list(task.items)
    return [restrict_task(task, names[at : at + max_items]) for at in range(0, len(names), max_items)]


def restrict_task(task: JudgeTask, names: Sequence[str]) -> JudgeTask:
    """Return a task with only some of its items."""
    return replace(task, items={name: task.items[name] for name in names})
