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

from ragauge.compute.workers import Tell, serve
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BackendFailed, BadInput, RagaugeError
from ragauge.core.protocols import Keeper, Vectors
from ragauge.files.serialization import to_data
from ragauge.files.workspace import replace_file
from ragauge.store_stress.plan import Order, plain, read_documents, read_queries, read_vectors
from ragauge.store_stress.result_checks import FIELDS, compared
from ragauge.stores.document_stores import open_keeper

AT_ONCE = 100
"""Documents read per call."""
ALONE = 50
"""Maximum number of documents also read one at a time."""
AGAIN = 5
"""Maximum number of documents replaced."""
SEARCHES = ("vectors", "words")
"""What a store can search by."""
FOREVER = 3_600.0


class Amiss(Exception):
    """Raised if a store returned a wrong result without an error."""


class Work:
    """The store that this worker process has open, with the steps it can run."""

    def __init__(self, order: Order, tell: Tell) -> None:
        self.order, self._tell = order, tell
        self.stage = "opening"
        self._keeps: list[str] = []
        data = Path(order.data)
        self._documents = read_documents(data)[: max(order.stop, order.possible)]
        self._vectors = read_vectors(data, "vectors")
        self._data = data
        self._at(0, 1)
        began = time.perf_counter()
        self._keeper: Keeper = open_keeper(order.store, order.place, int(self._vectors.shape[1]))
        self.opening = time.perf_counter() - began

    def done(self) -> None:
        """Run all steps of the task and close the store."""
        self._keeps, searches = claims(self._keeper)
        about = plain(self._keeper.describe())
        if not isinstance(about, dict):
            raise Amiss(f"it described itself by {_kind(about)}, not a dict")
        self._write("open", {"seconds": self.opening, "about": about, "searches": searches})
        for step in self.order.steps:
            getattr(self, step)()
        self.stage = "closing"
        self._at(0, 1)
        self._keeper.close()

    def put(self) -> None:
        """Put the documents and commit."""
        order, since = self.order, 0
        timings: list[int] = []
        commits: list[int] = []
        self.stage = "putting"
        for start in range(order.start, order.stop, order.batch):
            stop = min(start + order.batch, order.stop)
            self._at(start, order.stop)
            began = time.perf_counter_ns()
            self._keeper.put(self._documents[start:stop], self._vectors[start:stop])
            timings.append(time.perf_counter_ns() - began)
            since += stop - start
            due = order.commit_every is not None and since >= order.commit_every
            if stop == order.stop:  # a worker that will be killed leaves some documents uncommitted
                due = not order.hold or not (commits or order.start)
            if due:
                commits.append(self._commit(stop))
                since = 0
        if order.start == order.stop and not order.hold:
            commits.append(self._commit(order.stop))
        if order.hold:
            self._tell({"holding": order.stop})
            time.sleep(FOREVER)
        self._write("put", {"put": timings, "commit": commits})

    def _commit(self, documents: int) -> int:
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
        self._at(0, len(ids))
        began = time.perf_counter()
        listed = self._listed()
        got: list[tuple[str, Document | None]] = []
        for start in range(0, len(ids), AT_ONCE):
            self._at(start, len(ids))
            got += self._got(ids[start : start + AT_ONCE])
        took = time.perf_counter() - began
        alone = chance.sample(ids, min(ALONE, len(ids)))
        for place, name in enumerate(alone):
            self._at(place, len(alone))
            got += self._got([name])
        result = compared(
            listed,
            got,
            self._documents,
            promised=order.promised,
            possible=order.possible,
            keeps=self._keeps,
        )
        self._write("read", {**to_data(result), "seconds": took})

    def _listed(self) -> list[str]:
        listed = _several(self._keeper.ids(), "ids")
        for one in listed:
            if not isinstance(one, str):
                raise Amiss(f"it listed {_kind(one)}, not an id")
        return listed

    def _got(self, ids: list[str]) -> list[tuple[str, Document | None]]:
        """Return the documents that the store gives for ids.

        Raises WrongResult for anything else.
        """
        found = _several(self._keeper.get(ids), "documents")
        if len(found) != len(ids):
            asked = "1 document" if len(ids) == 1 else f"{len(ids):,} documents"
            raise Amiss(f"it was asked for {asked} and gave {len(found):,}")
        for one in found:
            if one is not None and not all(hasattr(one, field) for field in ("id", *FIELDS)):
                raise Amiss(f"it gave {_kind(one)}, not a Document")
        return list(zip(ids, found, strict=True))

    def replace(self) -> None:
        """Replace some documents by changed ones, read them, and restore the originals."""
        self.stage = "replacing"
        last = self.order.possible
        chance = random.Random(self.order.seed)  # noqa: S311 - a sample, no secret
        places = sorted(chance.sample(range(last), min(AGAIN, last)))
        old, vectors = [self._documents[place] for place in places], self._vectors[places]
        new = [
            one._replace(
                text=f"{one.text} (replaced)", title=f"{one.title} (replaced)", metadata={**one.metadata, "replaced": 1}
            )
            for one in old
        ]
        self._put_again(new, vectors)
        names = [one.id for one in old]
        result = compared(
            [one for one in self._listed() if one in set(names)],
            self._got(names),
            new,
            promised=len(new),
            possible=len(new),
            keeps=self._keeps,
            before={one.id: one.text for one in old},
        )
        found = [one._replace(place=None if one.place is None else places[one.place - 1] + 1) for one in result.harms]
        self._write("replace", to_data(dataclasses.replace(result, harms=found)))
        self._put_again(old, vectors)

    def _put_again(self, documents: list[Document], vectors: Vectors) -> None:
        size = self.order.batch
        for start in range(0, len(documents), size):
            self._at(start, len(documents))
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
            self._at(place, len(queries))
            began = time.perf_counter_ns()
            found = self._keeper.search(text, asked[place].copy(), order.k)
            timings.append(time.perf_counter_ns() - began)
            hits = [_hit(one) for one in _several(found, "hits")]
            rankings.append([(hit.id, float(hit.score) if math.isfinite(hit.score) else None) for hit in hits])
            others += any(hit.text and hit.text != texts.get(hit.id, hit.text) for hit in hits)
        self._write("search", {"search": timings, "rankings": rankings, "others": others})

    def _at(self, done: int, total: int) -> None:
        self._tell({"stage": self.stage, "done": done, "total": total})

    def _write(self, step: str, result: Any) -> None:
        with replace_file(self.order.result(step)) as part:
            part.write_text(json.dumps(result), encoding="utf-8")


def claims(keeper: Any) -> tuple[list[str], str]:
    """Return the fields that a store keeps and what it searches by.

    Raises BadInput if it declares anything unknown.
    """
    keeps = getattr(keeper, "keeps", FIELDS)
    searches = getattr(keeper, "searches", SEARCHES[0])
    unknown = [keeps] if isinstance(keeps, str) else [one for one in keeps if one not in FIELDS]
    if unknown:
        raise BadInput(
            f"the store says that it keeps `{unknown[0]}`", hint=f"`keeps` has some of {', '.join(FIELDS)}, or nothing"
        )
    if searches not in SEARCHES:
        raise BadInput(
            f"the store says that it searches by `{searches}`", hint=f"`searches` is {' or '.join(SEARCHES)}"
        )
    return [one for one in FIELDS if one in keeps], str(searches)


def _several(found: Any, what: str) -> list[Any]:
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise Amiss(f"it gave {_kind(found)}, not a list of {what}")
    return list(found)


def _hit(found: Any) -> Hit:
    if not all(hasattr(found, field) for field in ("id", "score")):
        raise Amiss(f"it gave {_kind(found)}, not a Hit")
    if not isinstance(found.score, SupportsFloat):
        raise Amiss(f"it gave a score that is {_kind(found.score)}, not a number")
    return Hit(found.id, float(found.score), getattr(found, "text", "") or "")


def _kind(thing: Any) -> str:
    """Describe the type of a value.

    >>> _kind(None), _kind({}), _kind(1)
    ('nothing', 'a dict', 'an int')
    """
    name = type(thing).__name__
    return "nothing" if thing is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def carry_out(text: str, tell: Tell) -> int:
    """Run a task given as JSON and return the exit code; 0 means success."""
    order = Order.of(text)
    sys.path.extend(one for one in order.path if one not in sys.path)
    work = None
    try:
        work = Work(order, tell)
        work.done()
    except RagaugeError as error:
        # Report the engine's original message; the one of ragauge is shortened to one line.
        cause = error.__cause__ if isinstance(error, BackendFailed) and error.__cause__ is not None else None
        words = _verbatim(cause) if cause is not None else error.message
        tell(_failed(work, type(error).__name__, words, error.hint))
        return error.exit_code
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # panics of engines in Rust are not subclasses of Exception
        if isinstance(error, SystemExit):
            raise
        if isinstance(error, Amiss):
            tell(_failed(work, "Amiss", str(error), None))
            return BackendFailed.exit_code
        tell(_failed(work, "BackendFailed", _verbatim(error), None))
        raise
    tell({"ended": True})
    return 0


def _failed(work: Work | None, kind: str, words: str, hint: str | None) -> dict[str, Any]:
    return {"error": kind, "message": words, "hint": hint, "at": "opening" if work is None else work.stage}


def _verbatim(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else repr(error)


if __name__ == "__main__":
    sys.exit(serve(carry_out))
