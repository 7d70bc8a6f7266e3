"""Worker process of a stress test: opens a store and runs the steps of its task.

Each put is reported before it starts, so that the parent process knows which documents were being put when the store
failed.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, SupportsFloat

from ragauge.compute.progress import Progress
from ragauge.compute.worker_process import SendEvent
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput
from ragauge.core.protocols import DocumentStore, Vectors
from ragauge.files.serialization import to_json_data
from ragauge.store_stress.plan import StressWorkerTask, read_documents, read_queries, read_vectors, to_json_safe
from ragauge.store_stress.result_checks import DOCUMENT_FIELDS, WrongResult, compare_documents
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


class StoreWorker:
    """The store that this worker process has open, with the steps it can run."""

    def __init__(self, task: StressWorkerTask, send: SendEvent) -> None:
        self.task, self._send = task, send
        self.stage = "opening"
        self._keeps: list[str] = []
        data = Path(task.data)
        self._documents = read_documents(data)[: max(task.stop, task.n_allowed)]
        self._vectors = read_vectors(data, "vectors")
        self._data = data
        self._report_progress(0, 1)
        began = time.perf_counter()
        self._store: DocumentStore = open_document_store(task.store, task.folder, int(self._vectors.shape[1]))
        self.opening = time.perf_counter() - began

    def run_steps(self) -> None:
        """Run all steps of the task and close the store."""
        self._keeps, searches = check_store_attributes(self._store)
        description = to_json_safe(self._store.describe())
        if not isinstance(description, dict):
            raise WrongResult(f"its description is {_type_name(description)}, not a dict")
        self._send_result("open", {"seconds": self.opening, "description": description, "searches": searches})
        for step in self.task.steps:
            getattr(self, step)()
        self.stage = "closing"
        self._report_progress(0, 1)
        self._store.close()

    def put(self) -> None:
        """Put the documents and commit."""
        task, since = self.task, 0
        timings: list[int] = []
        commits: list[int] = []
        self.stage = "putting"
        for start in range(task.start, task.stop, task.batch):
            stop = min(start + task.batch, task.stop)
            self._report_progress(start, task.stop)
            began = time.perf_counter_ns()
            self._store.put(self._documents[start:stop], self._vectors[start:stop])
            timings.append(time.perf_counter_ns() - began)
            since += stop - start
            due = task.commit_every is not None and since >= task.commit_every
            if stop == task.stop:  # a worker that will be killed leaves some documents uncommitted
                due = not task.wait_for_kill or not (commits or task.start)
            if due:
                commits.append(self._timed_commit(stop))
                since = 0
        if task.start == task.stop and not task.wait_for_kill:
            commits.append(self._timed_commit(task.stop))
        if task.wait_for_kill:
            self._send({"holding": task.stop})
            time.sleep(HOLD_S)
        self._send_result("put", {"put": timings, "commit": commits})

    def _timed_commit(self, documents: int) -> int:
        self.stage = "committing"
        self._report_progress(documents, self.task.stop)
        self._send({"committing": documents})
        began = time.perf_counter_ns()
        self._store.commit()
        took = time.perf_counter_ns() - began
        self._send({"committed": documents})
        self.stage = "putting"
        return took

    def read(self) -> None:
        """Read the ids and all documents in random order, in batches and some singly."""
        task = self.task
        self.stage = "reading back"
        ids = [document.id for document in self._documents[: task.n_allowed]]
        rng = random.Random(task.seed)  # noqa: S311 - an order, no secret
        rng.shuffle(ids)
        self._report_progress(0, len(ids))
        began = time.perf_counter()
        listed = self._list_ids()
        got: list[tuple[str, Document | None]] = []
        for start in range(0, len(ids), READ_BATCH_DOCUMENTS):
            self._report_progress(start, len(ids))
            got += self._get_documents(ids[start : start + READ_BATCH_DOCUMENTS])
        took = time.perf_counter() - began
        single_ids = rng.sample(ids, min(MAX_SINGLE_READS, len(ids)))
        for index, name in enumerate(single_ids):
            self._report_progress(index, len(single_ids))
            got += self._get_documents([name])
        result = compare_documents(
            listed,
            got,
            self._documents,
            n_required=task.n_required,
            n_allowed=task.n_allowed,
            keeps=self._keeps,
        )
        self._send_result("read", {**to_json_data(result), "seconds": took})

    def _list_ids(self) -> list[str]:
        listed = _check_list(self._store.ids(), "ids")
        for listed_id in listed:
            if not isinstance(listed_id, str):
                raise WrongResult(f"it listed {_type_name(listed_id)}, not an id")
        return listed

    def _get_documents(self, ids: list[str]) -> list[tuple[str, Document | None]]:
        """Return the documents that the store gives for ids.

        Raises WrongResult for anything else.
        """
        documents = _check_list(self._store.get(ids), "documents")
        if len(documents) != len(ids):
            requested = "1 document" if len(ids) == 1 else f"{len(ids):,} documents"
            raise WrongResult(f"it was asked for {requested} and returned {len(documents):,}")
        for document in documents:
            if document is not None and not all(hasattr(document, field) for field in ("id", *DOCUMENT_FIELDS)):
                raise WrongResult(f"it returned {_type_name(document)}, not a Document")
        return list(zip(ids, documents, strict=True))

    def replace(self) -> None:
        """Replace some documents by changed ones, read them, and restore the originals."""
        self.stage = "replacing"
        last = self.task.n_allowed
        rng = random.Random(self.task.seed)  # noqa: S311 - a sample, no secret
        rows = sorted(rng.sample(range(last), min(MAX_REPLACED_DOCUMENTS, last)))
        old, vectors = [self._documents[row] for row in rows], self._vectors[rows]
        new = [
            document._replace(
                text=f"{document.text} (replaced)",
                title=f"{document.title} (replaced)",
                metadata={**document.metadata, "replaced": 1},
            )
            for document in old
        ]
        self._put_documents(new, vectors)
        names = [document.id for document in old]
        result = compare_documents(
            [doc for doc in self._list_ids() if doc in set(names)],
            self._get_documents(names),
            new,
            n_required=len(new),
            n_allowed=len(new),
            keeps=self._keeps,
            before={document.id: document.text for document in old},
        )
        corrupt = [
            document._replace(position=None if document.position is None else rows[document.position - 1] + 1)
            for document in result.corrupt
        ]
        self._send_result("replace", to_json_data(dataclasses.replace(result, corrupt=corrupt)))
        self._put_documents(old, vectors)

    def _put_documents(self, documents: list[Document], vectors: Vectors) -> None:
        size = self.task.batch
        for start in range(0, len(documents), size):
            self._report_progress(start, len(documents))
            self._store.put(documents[start : start + size], vectors[start : start + size])
        self._store.commit()

    def search(self) -> None:
        """Run all queries."""
        task = self.task
        self.stage = "searching"
        queries, query_vectors = read_queries(self._data), read_vectors(self._data, "query_vectors")
        texts = {document.id: document.text for document in self._documents} if "text" in self._keeps else {}
        timings, rankings, n_foreign_texts = [], [], 0
        for index, text in enumerate(queries.values()):
            self._report_progress(index, len(queries))
            began = time.perf_counter_ns()
            results = self._store.search(text, query_vectors[index].copy(), task.k)
            timings.append(time.perf_counter_ns() - began)
            hits = [_check_hit(hit) for hit in _check_list(results, "hits")]
            rankings.append([(hit.id, float(hit.score) if math.isfinite(hit.score) else None) for hit in hits])
            n_foreign_texts += any(hit.text and hit.text != texts.get(hit.id, hit.text) for hit in hits)
        self._send_result("search", {"search": timings, "rankings": rankings, "others": n_foreign_texts})

    def _report_progress(self, done: int, total: int) -> None:
        self._send(Progress(self.stage, done, total))

    def _send_result(self, step: str, result: Any) -> None:
        self._send({"step": step, "result": result})


def check_store_attributes(store: Any) -> tuple[list[str], str]:
    """Return the fields that a store keeps and what it searches by.

    Raises BadInput if it declares anything unknown.
    """
    keeps = getattr(store, "keeps", DOCUMENT_FIELDS)
    searches = getattr(store, "searches", SEARCH_KINDS[0])
    unknown = [keeps] if isinstance(keeps, str) else [field for field in keeps if field not in DOCUMENT_FIELDS]
    if unknown:
        raise BadInput(
            f"the store declares an unknown field `{unknown[0]}`",
            hint=f"set `keeps` to any of {', '.join(DOCUMENT_FIELDS)}, or nothing",
        )
    if searches not in SEARCH_KINDS:
        raise BadInput(
            f"the store declares an unknown search `{searches}`", hint=f"set `searches` to {' or '.join(SEARCH_KINDS)}"
        )
    return [field for field in DOCUMENT_FIELDS if field in keeps], str(searches)


def _check_list(value: Any, noun: str) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise WrongResult(f"it returned {_type_name(value)}, not a list of {noun}")
    return list(value)


def _check_hit(hit: Any) -> Hit:
    if not all(hasattr(hit, field) for field in ("id", "score")):
        raise WrongResult(f"it returned {_type_name(hit)}, not a Hit")
    if not isinstance(hit.score, SupportsFloat):
        raise WrongResult(f"it returned a score that is {_type_name(hit.score)}, not a number")
    return Hit(hit.id, float(hit.score), getattr(hit, "text", "") or "")


def _type_name(value: Any) -> str:
    """Describe the type of a value.

    >>> _type_name(None), _type_name({}), _type_name(1)
    ('nothing', 'a dict', 'an int')
    """
    name = type(value).__name__
    return "nothing" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def run_task(task: StressWorkerTask, send: SendEvent) -> None:
    """Open a store and run the steps of the task; the result of each step is a message."""
    StoreWorker(task, send).run_steps()
