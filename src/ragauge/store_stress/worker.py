"""Worker process of a stress test: opens a store and runs the steps of its task.

Each put is reported before it starts, so that the parent process knows which documents were being put when the store
failed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, SupportsFloat

from ragauge.compute.workers import SendEvent, serve_worker
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BackendFailed, BadInput, RagaugeError
from ragauge.core.protocols import DocumentStore, Vectors
from ragauge.files.serialization import to_json_data
from ragauge.files.workspace import replace_file
from ragauge.store_stress.plan import StressWorkerTask, read_documents, read_queries, read_vectors, to_json_safe
from ragauge.store_stress.result_checks import DOCUMENT_FIELDS, compare_documents
from ragauge.stores.document_stores import open_document_store

READ_BATCH_DOCUMENTS = 100
"""Documents read per call."""
MAX_SINGLE_READS = 50
"""Maximum number of documents also read one at a time."""
MAX_REPLACED_DOCUMENTS = 5
"""Maximum number of documents replaced."""
SEARCH_KINDS = ("vectors", "words")
"""What a store can search by."""
HOLD_S = 3_600.0


class WrongResult(Exception):
    """Raised if a store returned a wrong result without an error."""


class StoreWorker:
    """The store that this worker process has open, with the steps it can run."""

    def __init__(self, order: StressWorkerTask, tell: SendEvent) -> None:
        self.order, self._tell = order, tell
        self.stage = "opening"
        self._keeps: list[str] = []
        data = Path(order.data)
        self._documents = read_documents(data)[: max(order.stop, order.possible)]
        self._vectors = read_vectors(data, "vectors")
        self._data = data
        self._report_progress(0, 1)
        began = time.perf_counter()
        self._keeper: DocumentStore = open_document_store(order.store, order.place, int(self._vectors.shape[1]))
        self.opening = time.perf_counter() - began

    def done(self) -> None:
        """Run all steps of the task and close the store."""
        self._keeps, searches = check_store_attributes(self._keeper)
        about = to_json_safe(self._keeper.describe())
        if not isinstance(about, dict):
            raise WrongResult(f"it described itself by {_type_name(about)}, not a dict")
        self._write_result("open", {"seconds": self.opening, "about": about, "searches": searches})
        for step in self.order.steps:
            getattr(self, step)()
        self.stage = "closing"
        self._report_progress(0, 1)
        self._keeper.close()

    def put(self) -> None:
        """Put the documents and commit."""
        order, since = self.order, 0
        timings: list[int] = []
        commits: list[int] = []
        self.stage = "putting"
        for start in range(order.start, order.stop, order.batch):
            stop = min(start + order.batch, order.stop)
            self._report_progress(start, order.stop)
            began = time.perf_counter_ns()
            self._keeper.put(self._documents[start:stop], self._vectors[start:stop])
            timings.append(time.perf_counter_ns() - began)
            since += stop - start
            due = order.commit_every is not None and since >= order.commit_every
            if stop == order.stop:  # a worker that will be killed leaves some documents uncommitted
                due = not order.hold or not (commits or order.start)
            if due:
                commits.append(self._timed_commit(stop))
                since = 0
        if order.start == order.stop and not order.hold:
            commits.append(self._timed_commit(order.stop))
        if order.hold:
            self._tell({"holding": order.stop})
            time.sleep(HOLD_S)
        self._write_result("put", {"put": timings, "commit": commits})

    def _timed_commit(self, documents: int) -> int:
        self.stage = "committing"
        self._tell({"committing": documents, "stage": self.stage, "done": documents, "total": self.order.stop})
        began = time.perf_counter_ns()
        self._keeper.commit()
        took = time.perf_counter_ns() - began
        self._tell({"committed": documents})
        self.stage = "putting"
        return took

    def read(self) -> None:
        """Read the ids and all documents in random order, in batches and some singly."""
        order = self.order
        self.stage = "reading back"
        ids = [one.id for one in self._documents[: order.possible]]
        chance = random.Random(order.seed)  # noqa: S311 - an order, no secret
        chance.shuffle(ids)
        self._report_progress(0, len(ids))
        began = time.perf_counter()
        listed = self._list_ids()
        got: list[tuple[str, Document | None]] = []
        for start in range(0, len(ids), READ_BATCH_DOCUMENTS):
            self._report_progress(start, len(ids))
            got += self._get_documents(ids[start : start + READ_BATCH_DOCUMENTS])
        took = time.perf_counter() - began
        alone = chance.sample(ids, min(MAX_SINGLE_READS, len(ids)))
        for place, name in enumerate(alone):
            self._report_progress(place, len(alone))
            got += self._get_documents([name])
        result = compare_documents(
            listed,
            got,
            self._documents,
            promised=order.promised,
            possible=order.possible,
            keeps=self._keeps,
        )
        self._write_result("read", {**to_json_data(result), "seconds": took})

    def _list_ids(self) -> list[str]:
        listed = _check_list(self._keeper.ids(), "ids")
        for one in listed:
            if not isinstance(one, str):
                raise WrongResult(f"it listed {_type_name(one)}, not an id")
        return listed

    def _get_documents(self, ids: list[str]) -> list[tuple[str, Document | None]]:
        """Return the documents that the store gives for ids.

        Raises WrongResult for anything else.
        """
        found = _check_list(self._keeper.get(ids), "documents")
        if len(found) != len(ids):
            asked = "1 document" if len(ids) == 1 else f"{len(ids):,} documents"
            raise WrongResult(f"it was asked for {asked} and gave {len(found):,}")
        for one in found:
            if one is not None and not all(hasattr(one, field) for field in ("id", *DOCUMENT_FIELDS)):
                raise WrongResult(f"it gave {_type_name(one)}, not a Document")
        return list(zip(ids, found, strict=True))

    def replace(self) -> None:
        """Replace some documents by changed ones, read them, and restore the originals."""
        self.stage = "replacing"
        last = self.order.possible
        chance = random.Random(self.order.seed)  # noqa: S311 - a sample, no secret
        places = sorted(chance.sample(range(last), min(MAX_REPLACED_DOCUMENTS, last)))
        old, vectors = [self._documents[place] for place in places], self._vectors[places]
        new = [
            one._replace(
                text=f"{one.text} (replaced)", title=f"{one.title} (replaced)", metadata={**one.metadata, "replaced": 1}
            )
            for one in old
        ]
        self._put_documents(new, vectors)
        names = [one.id for one in old]
        result = compare_documents(
            [one for one in self._list_ids() if one in set(names)],
            self._get_documents(names),
            new,
            promised=len(new),
            possible=len(new),
            keeps=self._keeps,
            before={one.id: one.text for one in old},
        )
        found = [one._replace(place=None if one.place is None else places[one.place - 1] + 1) for one in result.harms]
        self._write_result("replace", to_json_data(dataclasses.replace(result, harms=found)))
        self._put_documents(old, vectors)

    def _put_documents(self, documents: list[Document], vectors: Vectors) -> None:
        size = self.order.batch
        for start in range(0, len(documents), size):
            self._report_progress(start, len(documents))
            self._keeper.put(documents[start : start + size], vectors[start : start + size])
        self._keeper.commit()

    def search(self) -> None:
        """Run all queries."""
        order = self.order
        self.stage = "searching"
        queries, asked = read_queries(self._data), read_vectors(self._data, "asked")
        texts = {one.id: one.text for one in self._documents} if "text" in self._keeps else {}
        timings, rankings, others = [], [], 0
        for place, text in enumerate(queries.values()):
            self._report_progress(place, len(queries))
            began = time.perf_counter_ns()
            found = self._keeper.search(text, asked[place].copy(), order.k)
            timings.append(time.perf_counter_ns() - began)
            hits = [_check_hit(one) for one in _check_list(found, "hits")]
            rankings.append([(hit.id, float(hit.score) if math.isfinite(hit.score) else None) for hit in hits])
            others += any(hit.text and hit.text != texts.get(hit.id, hit.text) for hit in hits)
        self._write_result("search", {"search": timings, "rankings": rankings, "others": others})

    def _report_progress(self, done: int, total: int) -> None:
        self._tell({"stage": self.stage, "done": done, "total": total})

    def _write_result(self, step: str, result: Any) -> None:
        with replace_file(self.order.result(step)) as part:
            part.write_text(json.dumps(result), encoding="utf-8")


def check_store_attributes(keeper: Any) -> tuple[list[str], str]:
    """Return the fields that a store keeps and what it searches by.

    Raises BadInput if it declares anything unknown.
    """
    keeps = getattr(keeper, "keeps", DOCUMENT_FIELDS)
    searches = getattr(keeper, "searches", SEARCH_KINDS[0])
    unknown = [keeps] if isinstance(keeps, str) else [one for one in keeps if one not in DOCUMENT_FIELDS]
    if unknown:
        raise BadInput(
            f"the store says that it keeps `{unknown[0]}`",
            hint=f"`keeps` has some of {', '.join(DOCUMENT_FIELDS)}, or nothing",
        )
    if searches not in SEARCH_KINDS:
        raise BadInput(
            f"the store says that it searches by `{searches}`", hint=f"`searches` is {' or '.join(SEARCH_KINDS)}"
        )
    return [one for one in DOCUMENT_FIELDS if one in keeps], str(searches)


def _check_list(found: Any, what: str) -> list[Any]:
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise WrongResult(f"it gave {_type_name(found)}, not a list of {what}")
    return list(found)


def _check_hit(found: Any) -> Hit:
    if not all(hasattr(found, field) for field in ("id", "score")):
        raise WrongResult(f"it gave {_type_name(found)}, not a Hit")
    if not isinstance(found.score, SupportsFloat):
        raise WrongResult(f"it gave a score that is {_type_name(found.score)}, not a number")
    return Hit(found.id, float(found.score), getattr(found, "text", "") or "")


def _type_name(thing: Any) -> str:
    """Describe the type of a value.

    >>> _type_name(None), _type_name({}), _type_name(1)
    ('nothing', 'a dict', 'an int')
    """
    name = type(thing).__name__
    return "nothing" if thing is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def run_task(text: str, tell: SendEvent) -> int:
    """Run a task given as JSON and return the exit code; 0 means success."""
    order = StressWorkerTask.of(text)
    sys.path.extend(one for one in order.path if one not in sys.path)
    work = None
    try:
        work = StoreWorker(order, tell)
        work.done()
    except RagaugeError as error:
        # Report the engine's original message; the one of ragauge is shortened to one line.
        cause = error.__cause__ if isinstance(error, BackendFailed) and error.__cause__ is not None else None
        words = _full_error_text(cause) if cause is not None else error.message
        tell(_failure_message(work, type(error).__name__, words, error.hint))
        return error.exit_code
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # panics of engines in Rust are not subclasses of Exception
        if isinstance(error, SystemExit):
            raise
        if isinstance(error, WrongResult):
            tell(_failure_message(work, "WrongResult", str(error), None))
            return BackendFailed.exit_code
        tell(_failure_message(work, "BackendFailed", _full_error_text(error), None))
        raise
    tell({"ended": True})
    return 0


def _failure_message(work: StoreWorker | None, kind: str, words: str, hint: str | None) -> dict[str, Any]:
    return {"error": kind, "message": words, "hint": hint, "at": "opening" if work is None else work.stage}


def _full_error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else repr(error)


if __name__ == "__main__":
    sys.exit(serve_worker(run_task))
