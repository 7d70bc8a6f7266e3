"""One process with a store: what it did, how far it got, and how it failed if it did."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput, MissingExtra, RagaugeError, UnknownName
from ragauge.knowledge.stress.plan import Order
from ragauge.processes import Child, OutOfTime
from ragauge.structured_text import parse_json

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and of how much."""
MISTAKES = {"BadInput", "MissingExtra", "UnknownName"}
"""Whoever asked for a store that cannot be opened made a mistake; the store did not break."""
PATIENCE = 2.0
"""Seconds to end once all is done: the store is closed by then, and some leave a thread that never ends."""
AGAIN = " after reopening"
KILLED = " after kill -9"
REPLACED = " after replacing"
"""In which state a store was found, where it was not new."""
NAMES = {("opening", AGAIN): "reopening", ("opening", REPLACED): "reopening", ("replacing", REPLACED): "replacing"}
"""Stages that are not called by what is done and the state that it is done in."""
FOUND = {"OutOfTime", "Amiss"}
"""What is said where the store itself said nothing."""
LEFT_OUT = re.compile(r"""0x[0-9a-f]+|'[^']*'|"[^"]*"|`[^`]*`|(?<!\w)/\S+|[0-9a-f]{8,}|\d+""", re.I)
"""What differs from time to time in words that mean the same: numbers, names, places."""


@dataclass(frozen=True)
class Failure:
    """How a store failed in one process, or what was wrong with what it gave."""

    stage: str
    error: str
    alike: frozenset[str]
    """What another failure has in common with it where it is the same failure."""
    silent: bool = False
    after: int = 0
    document: str = ""
    guess: int | None = None
    """The prefix of the documents that is suspected."""
    documents_lost: bool = False
    """Whether documents that had been stored were missing or altered, or the store could not be opened again."""

    def same(self, other: Failure | None) -> bool:
        """Whether another failure is this one again."""
        return other is not None and self.stage == other.stage and bool(self.alike & other.alike)


def named(stage: str, again: str = "") -> str:
    """What a stage is called that a store is taken through in some state.

    >>> named("putting"), named("opening", AGAIN), named("putting", KILLED)
    ('putting', 'reopening', 'putting after kill -9')
    """
    return NAMES.get((stage, again), f"{stage}{again}")


def raised(words: str) -> frozenset[str]:
    """An error as it is compared with others.

    >>> raised("bad WAL at offset 78667") == raised("bad WAL at offset 12")
    True
    """
    return frozenset({LEFT_OUT.sub("…", words.strip().partition("\n")[0])})


@dataclass(frozen=True)
class Kill:
    """When a process is killed: once it puts in this document, or commits when so many are there; and how soon."""

    at: int
    committing: bool
    wait: float
    """At most so many seconds after it said so."""
    seed: int


@dataclass
class Attempt:
    """What came of an order."""

    order: Order
    failure: Failure | None = None
    committed: int = 0
    """So many documents were committed,"""
    begun: int = 0
    """and so many had at least been begun to be put in."""
    caught: str = ""
    """What it was doing when it was killed."""
    found: dict[str, Any] = field(default_factory=dict)
    """The results of the steps that were finished."""


def attempt(
    order: Order, ids: Sequence[str], *, timeout: float, tell: Progress, kill: Kill | None = None, again: str = ""
) -> Attempt:
    """Carry out an order in a new process; `again` says in which state the store was found, where it is not new."""
    done = Attempt(order, committed=order.start, begun=order.start)
    Path(order.results).mkdir(parents=True, exist_ok=True)
    for old in Path(order.results).glob("*.json"):
        old.unlink()
    said: dict[str, Any] = {}
    stage, put, killed = "opening", order.start, False
    log = Path(order.results) / "words.log"
    with Child(
        "ragauge.knowledge.stress.worker", order.text(), log=log, timeout=timeout, silence=True, patience=PATIENCE
    ) as child:
        try:
            for said in child.words():
                if "stage" in said:
                    stage = said["stage"]
                    tell(stage, said["done"], said["total"])
                if said.get("stage") == "putting":
                    put, done.begun = said["done"], min(said["done"] + order.batch, order.stop)
                done.committed = max(done.committed, said.get("committed", 0))
                if kill is not None and not killed and _due(kill, said):
                    time.sleep(random.Random(kill.seed).random() * kill.wait)  # noqa: S311 - a moment, no secret
                    child.kill()
                    killed = True  # and what it still said before is heard
                if killed:
                    done.caught = _doing(said) or done.caught
        except OutOfTime:
            said = {"error": "OutOfTime", "message": f"gave no sign of life for {timeout:g} seconds", "at": stage}
    done.found = _results(order)
    if "ended" in said or (killed and "error" not in said):
        return done
    at, silent = named(str(said.get("at", stage)), again), False
    if said.get("error") in MISTAKES and said["at"] == "opening" and not again:
        raise _mistake(said)
    if "error" in said:
        words, alike, silent = str(said["message"]), raised(str(said["message"])), said["error"] in FOUND
    else:
        alike = frozenset({f"the process {child.fate().partition(';')[0]}"})
        words = f"the process {child.fate().partition(';')[0]}" + _wrote(child)
    hand = stage in ("putting", "committing") and "put" in order.steps
    put = max(put, 0) if stage == "putting" else done.begun
    name = _at_hand(ids[put : done.begun]) if hand and stage == "putting" else ""
    lost = stage == "opening" and bool(again)
    done.failure = Failure(at, words, alike, silent, put, name, done.begun if hand else None, documents_lost=lost)
    return done


def _at_hand(ids: Sequence[str]) -> str:
    """The documents of one put."""
    return f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else "".join(ids)


def _due(kill: Kill, said: Mapping[str, Any]) -> bool:
    """Whether a process does what it is to be killed at, or waits for it."""
    if "holding" in said:
        return True
    if kill.committing:
        return bool(said.get("committing", -1) >= kill.at)
    return said.get("stage") == "putting" and bool(said["done"] >= kill.at)


def _doing(said: Mapping[str, Any]) -> str:
    """What a process that was killed was doing, by what it said last."""
    if "holding" in said:
        return f"after the put of document {said['holding']:,}"
    if "committing" in said:
        return f"in the commit at document {said['committing']:,}"
    if "committed" in said:
        return f"after the commit at document {said['committed']:,}"
    return f"in the put of document {said['done'] + 1:,}" if said.get("stage") == "putting" else ""


def _wrote(child: Child) -> str:
    wrote = child.wrote().strip()
    return f"\n{wrote}" if wrote else ""


def _results(order: Order) -> dict[str, Any]:
    found = {}
    for path in Path(order.results).glob("*.json"):
        found[path.stem] = parse_json(path.read_text(encoding="utf-8"))
    return found


def _mistake(said: Mapping[str, Any]) -> RagaugeError:
    if said["error"] == "BadInput":
        return BadInput(said["message"], hint=said["hint"])
    error = MissingExtra("", "") if said["error"] == "MissingExtra" else UnknownName("", "", ())
    error.message, error.hint = said["message"], said["hint"]
    return error
