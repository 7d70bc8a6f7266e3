"""Worker processes of a stress test: run a task, record progress and failures."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge.compute.workers import Worker, WorkerTimeout
from ragauge.core.errors import BadInput, MissingExtra, RagaugeError, UnknownName
from ragauge.core.structured_text import parse_json
from ragauge.store_stress.plan import StressWorkerTask

ProgressCallback = Callable[[str, int, int], None]
"""Progress callback: stage, finished steps, total steps."""
USAGE_ERRORS = {"BadInput", "MissingExtra", "UnknownName"}
"""Errors on first opening that are the caller's mistake and not a failure of the store."""
EXIT_TIMEOUT_S = 2.0
"""Seconds that a finished worker has to exit.

The store is closed by then, but some engines leave a thread running.
"""
AFTER_REOPENING = " after reopening"
AFTER_KILL = " after kill -9"
AFTER_REPLACING = " after replacing"
"""Suffixes of stage names for a store that was reopened, killed or changed before."""
STAGE_NAMES = {
    ("opening", AFTER_REOPENING): "reopening",
    ("opening", AFTER_REPLACING): "reopening",
    ("replacing", AFTER_REPLACING): "replacing",
}
"""Stage names that are not the stage followed by the suffix."""
SILENT_ERRORS = {"WorkerTimeout", "WrongResult"}
"""Error types of failures that the store itself did not report."""
VARIABLE_TEXT = re.compile(r"""0x[0-9a-f]+|'[^']*'|"[^"]*"|`[^`]*`|(?<!\w)/\S+|[0-9a-f]{8,}|\d+""", re.I)
"""Parts of an error message that differ between runs: numbers, quoted names, paths."""


@dataclass(frozen=True)
class AttemptFailure:
    """Failure of a store in one process, or wrong results that it returned."""

    stage: str
    error: str
    alike: frozenset[str]
    """Signatures of the failure; two failures of one stage are the same if they share one."""
    silent: bool = False
    after: int = 0
    document: str = ""
    guess: int | None = None
    """Number of leading documents suspected to cause the failure."""
    documents_lost: bool = False
    """Whether stored documents were missing or altered, or the store could not be reopened."""

    def same(self, other: AttemptFailure | None) -> bool:
        """Return whether another failure is a repetition of this one."""
        return other is not None and self.stage == other.stage and bool(self.alike & other.alike)


def stage_name(stage: str, again: str = "") -> str:
    """Return the name of a stage, given the state of the store.

    >>> stage_name("putting"), stage_name("opening", AFTER_REOPENING), stage_name("putting", AFTER_KILL)
    ('putting', 'reopening', 'putting after kill -9')
    """
    return STAGE_NAMES.get((stage, again), f"{stage}{again}")


def error_signature(words: str) -> frozenset[str]:
    """Return an error message without the parts that vary between runs.

    >>> error_signature("bad WAL at offset 78667") == error_signature("bad WAL at offset 12")
    True
    """
    return frozenset({VARIABLE_TEXT.sub("…", words.strip().partition("\n")[0])})


@dataclass(frozen=True)
class ScheduledKill:
    """Point at which a worker process is killed.

    The worker is killed when it puts document `at`, or when it commits with at least `at` documents stored.
    """

    at: int
    committing: bool
    wait: float
    """Maximum random delay before the kill, in seconds."""
    seed: int


@dataclass
class StressAttempt:
    """Outcome of one worker process."""

    order: StressWorkerTask
    failure: AttemptFailure | None = None
    committed: int = 0
    """Number of documents committed."""
    begun: int = 0
    """Number of documents whose put had at least begun."""
    caught: str = ""
    """What the worker was doing when it was killed."""
    found: dict[str, Any] = field(default_factory=dict)
    """Results of the finished steps, by step."""


def run_attempt(
    order: StressWorkerTask,
    ids: Sequence[str],
    *,
    timeout: float,
    tell: ProgressCallback,
    kill: ScheduledKill | None = None,
    again: str = "",
) -> StressAttempt:
    """Run a task in a new worker process.

    `again` is the suffix for a store that is not new: `AFTER_REOPENING`, `AFTER_KILL` or `AFTER_REPLACING`. Raises
    the usage error if a new store cannot be opened as requested.
    """
    done = StressAttempt(order, committed=order.start, begun=order.start)
    Path(order.results).mkdir(parents=True, exist_ok=True)
    for old in Path(order.results).glob("*.json"):
        old.unlink()
    said: dict[str, Any] = {}
    stage, put, killed = "opening", order.start, False
    log = Path(order.results) / "words.log"
    with Worker(
        "ragauge.store_stress.worker", order.text(), log=log, timeout=timeout, silence=True, patience=EXIT_TIMEOUT_S
    ) as child:
        try:
            for said in child.words():
                if "stage" in said:
                    stage = said["stage"]
                    tell(stage, said["done"], said["total"])
                if said.get("stage") == "putting":
                    put, done.begun = said["done"], min(said["done"] + order.batch, order.stop)
                done.committed = max(done.committed, said.get("committed", 0))
                if kill is not None and not killed and _is_kill_due(kill, said):
                    time.sleep(random.Random(kill.seed).random() * kill.wait)  # noqa: S311 - a moment, no secret
                    child.kill()
                    killed = True  # messages sent before the kill are still read
                if killed:
                    done.caught = _describe_activity(said) or done.caught
        except WorkerTimeout:
            said = {"error": "WorkerTimeout", "message": f"gave no sign of life for {timeout:g} seconds", "at": stage}
    done.found = _read_results(order)
    if "ended" in said or (killed and "error" not in said):
        return done
    at, silent = stage_name(str(said.get("at", stage)), again), False
    if said.get("error") in USAGE_ERRORS and said["at"] == "opening" and not again:
        raise _usage_error(said)
    if "error" in said:
        words, alike, silent = (
            str(said["message"]),
            error_signature(str(said["message"])),
            said["error"] in SILENT_ERRORS,
        )
    else:
        alike = frozenset({f"the process {child.fate().partition(';')[0]}"})
        words = f"the process {child.fate().partition(';')[0]}" + _worker_output(child)
    hand = stage in ("putting", "committing") and "put" in order.steps
    put = max(put, 0) if stage == "putting" else done.begun
    name = _describe_put_ids(ids[put : done.begun]) if hand and stage == "putting" else ""
    lost = stage == "opening" and bool(again)
    done.failure = AttemptFailure(
        at, words, alike, silent, put, name, done.begun if hand else None, documents_lost=lost
    )
    return done


def _describe_put_ids(ids: Sequence[str]) -> str:
    """Name the documents of one put by their first and last id."""
    return f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else "".join(ids)


def _is_kill_due(kill: ScheduledKill, said: Mapping[str, Any]) -> bool:
    """Return whether a message shows that the kill point is reached."""
    if "holding" in said:
        return True
    if kill.committing:
        return bool(said.get("committing", -1) >= kill.at)
    return said.get("stage") == "putting" and bool(said["done"] >= kill.at)


def _describe_activity(said: Mapping[str, Any]) -> str:
    """Describe what a killed worker was doing, from its last message."""
    if "holding" in said:
        return f"after the put of document {said['holding']:,}"
    if "committing" in said:
        return f"in the commit at document {said['committing']:,}"
    if "committed" in said:
        return f"after the commit at document {said['committed']:,}"
    return f"in the put of document {said['done'] + 1:,}" if said.get("stage") == "putting" else ""


def _worker_output(child: Worker) -> str:
    wrote = child.wrote().strip()
    return f"\n{wrote}" if wrote else ""


def _read_results(order: StressWorkerTask) -> dict[str, Any]:
    found = {}
    for path in Path(order.results).glob("*.json"):
        found[path.stem] = parse_json(path.read_text(encoding="utf-8"))
    return found


def _usage_error(said: Mapping[str, Any]) -> RagaugeError:
    if said["error"] == "BadInput":
        return BadInput(said["message"], hint=said["hint"])
    error = MissingExtra("", "") if said["error"] == "MissingExtra" else UnknownName("", "", ())
    error.message, error.hint = said["message"], said["hint"]
    return error
