"""Cost estimate of judging without calling the model: the same tasks, with sentences instead of claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.judges.ledger import Price
from ragauge.judges.model import Model
from ragauge.judges.reading import read, read_word
from ragauge.judges.tasks import Reading, Task, Thought
from ragauge.verdicts import STEPS, Estimate, Support, Usefulness

LOCAL_RATES = (500, 20)
"""Tokens per second that a local server is assumed to read and to write: a small model on a CPU."""


class Estimating:
    """A judge that calls no model, but counts the calls without a cached reply.

    A `local` server is free unless it has a price; its time is estimated instead.
    """

    def __init__(self, model: Model, price: Price | None, *, local: bool = False) -> None:
        self._model = model
        self._price = Price(0.0, 0.0) if local and price is None else price
        self._local = local
        self._counts: dict[str, list[int]] = {step: [0, 0, 0] for step in STEPS}
        self._seen: set[str] = set()

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._model.name

    @property
    def identity(self) -> Mapping[str, Any]:
        """Identity of the model judge."""
        return self._model.identity

    async def answer(self, task: Task) -> Reading:
        """Return cached verdicts, and placeholders of the right type for the rest."""
        said = {name: _stand_in(task, text) for name, text in task.asked.items()}
        for ask in self._model.first_asks(task):
            kept = self._model.kept(ask)
            if kept is not None:
                found = (read_word if ask.word else read)(ask.task, kept.reply)
                said |= {name: verdict for name, verdict in found.said.items() if task.step == "claims"}
            elif ask.key not in self._seen:
                self._seen.add(ask.key)
                counts = self._counts[task.step]
                for at, more in enumerate((1, *ask.size())):
                    counts[at] += more
        return Reading(said, {})

    def estimates(self) -> list[Estimate]:
        """Return one row per step with uncached calls."""
        found = []
        for step, (calls, prompt, completion) in self._counts.items():
            cost = None if self._price is None else self._price.of(prompt, completion)
            reads, writes = LOCAL_RATES
            seconds = prompt / reads + completion / writes if self._local else None
            found += [Estimate(step, calls, prompt, completion, cost, seconds)] if calls else []
        return found


def _stand_in(task: Task, text: str) -> Any:
    said: dict[str, Any] = {
        "claims": [text],
        "support": Support(()),
        "useful": Usefulness(useful=False),
        "questions": Thought(refusal=False, questions=(text,) * task.n),
    }
    return said[task.step]
