"""Attempts of a stress test: one worker process each, with its progress, its results and its failure."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ragauge.compute.progress import Progress, ProgressCallback
from ragauge.compute.worker_process import Message
from ragauge.compute.workers import Worker, WorkerDied, WorkerLimits, WorkerTimeout
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, RagaugeError, UnknownName
from ragauge.store_stress.plan import StressWorkerTask
from ragauge.store_stress.result_checks import WrongResult
from ragauge.store_stress.results import Stage, StoreState

USAGE_ERRORS = (BadInput, MissingExtra, UnknownName)
"""Errors on first opening that are the caller's mistake and not a failure of the store."""
EXIT_TIMEOUT_S = 2.0
"""Seconds that a finished worker has to exit.

The store is closed by then, but some engines leave a thread running.
"""
MAX_LOG_CHARS = 2_000
"""Maximum number of characters of the log in an error message."""
VARIABLE_TEXT = re.compile(r"""0x[0-9a-f]+|'[^']*'|"[^"]*"|`[^`]*`|(?<!\w)/\S+|[0-9a-f]{8,}|\d+""", re.I)
"""Parts of an error message that differ between runs: numbers, quoted names, paths."""


@dataclass(frozen=True)
class AttemptFailure:
    """Failure of a store in one process, or wrong results that it returned."""

    stage: Stage
    error: str
    signatures: frozenset[str]
    """Signatures of the failure; two failures of one stage are the same if they share one."""
    silent: bool = False
    after: int = 0
    document: str = ""
    suspected_prefix: int | None = None
    """Number of leading documents suspected to cause the failure."""
    documents_lost: bool = False
    """Whether stored documents were missing or altered, or the store could not be reopened."""

    def is_same_failure(self, other: AttemptFailure | None) -> bool:
        """Return whether another failure is a repetition of this one."""
        return other is not None and self.stage == other.stage and bool(self.signatures & other.signatures)


def error_signature(message: str) -> frozenset[str]:
    """Return an error message without the parts that vary between runs.

    >>> error_signature("bad WAL at offset 78667") == error_signature("bad WAL at offset 12")
    True
    """
    return frozenset({VARIABLE_TEXT.sub("…", message.strip().partition("\n")[0])})


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

    task: StressWorkerTask
    failure: AttemptFailure | None = None
    n_committed: int = 0
    """Number of documents committed."""
    n_begun: int = 0
    """Number of documents whose put had at least begun."""
    activity: str = ""
    """What the worker was doing when it was killed."""
    results: dict[str, Any] = field(default_factory=dict)
    """Results of the finished steps, by step."""


def run_attempt(
    task: StressWorkerTask,
    ids: Sequence[str],
    *,
    timeout: float,
    progress: ProgressCallback,
    kill: ScheduledKill | None = None,
    state: StoreState = "new",
) -> StressAttempt:
    """Run a task in a new worker process, on a store in a state.

    Raises the usage error if a new store cannot be opened as requested.
    """
    attempt = StressAttempt(task, n_committed=task.start, n_begun=task.start)
    action, n_put, is_killed = "opening", task.start, False
    limits = WorkerLimits(timeout, restarts_with_event=True, stop_wait_s=EXIT_TIMEOUT_S)
    with Worker("ragauge.store_stress.worker:run_task", task, limits) as worker:
        try:
            for event in worker.events():
                if isinstance(event, Progress):
                    action = event.action
                    progress(event)
                    if action == "putting":
                        n_put, attempt.n_begun = event.done, min(event.done + task.batch, task.stop)
                else:
                    attempt.n_committed = max(attempt.n_committed, event.get("committed", 0))
                    if "step" in event:
                        attempt.results[event["step"]] = event["result"]
                if kill is not None and not is_killed and _is_kill_due(kill, event):
                    time.sleep(random.Random(kill.seed).random() * kill.wait)  # noqa: S311 - a moment, no secret
                    worker.kill()
                    is_killed = True  # events sent before the kill are still read
                if is_killed:
                    attempt.activity = _describe_activity(event) or attempt.activity
            worker.result(type(None))
            return attempt
        except WorkerTimeout:
            message, is_silent = f"did not respond for {timeout:g} seconds", True
            signature = error_signature(message)
        except WorkerDied as error:
            if is_killed:
                return attempt
            message, is_silent = f"the process {error.end}", False
            signature = frozenset({message})
            message += _log_excerpt(worker)
        except RagaugeError as error:
            if isinstance(error, USAGE_ERRORS) and action == "opening" and state == "new":
                raise
            # The engine's original message; the one of ragauge is shortened to one line.
            is_library_error = isinstance(error, BackendFailed) and error.__cause__ is not None
            message = str(error.__cause__) if is_library_error else error.message
            signature, is_silent = error_signature(message), isinstance(error, WrongResult)
    is_ingesting = action in ("putting", "committing") and "put" in task.steps
    n_put = max(n_put, 0) if action == "putting" else attempt.n_begun
    document = _describe_put_ids(ids[n_put : attempt.n_begun]) if is_ingesting and action == "putting" else ""
    attempt.failure = AttemptFailure(
        Stage(action, state),
        message,
        signature,
        is_silent,
        n_put,
        document,
        attempt.n_begun if is_ingesting else None,
        documents_lost=action == "opening" and state != "new",
    )
    return attempt


def _describe_put_ids(ids: Sequence[str]) -> str:
    """Name the documents of one put by their first and last id."""
    return f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else "".join(ids)


def _is_kill_due(kill: ScheduledKill, event: Progress | Message) -> bool:
    """Return whether an event shows that the kill point is reached."""
    if isinstance(event, Progress):
        return not kill.committing and event.action == "putting" and event.done >= kill.at
    return "holding" in event or (kill.committing and bool(event.get("committing", -1) >= kill.at))


def _describe_activity(event: Progress | Message) -> str:
    """Describe what a killed worker was doing, from its last event."""
    if isinstance(event, Progress):
        return f"in the put of document {event.done + 1:,}" if event.action == "putting" else ""
    if "holding" in event:
        return f"after the put of document {event['holding']:,}"
    if "committing" in event:
        return f"in the commit at document {event['committing']:,}"
    return f"after the commit at document {event['committed']:,}" if "committed" in event else ""


def _log_excerpt(worker: Worker) -> str:
    text = worker.log_text()[-MAX_LOG_CHARS:].strip()
    return f"\n{text}" if text else ""
