"""The process that a store lives in while it is under stress: it opens it, takes the steps of its order, and tells.

Every document is announced before it is put in, so that whoever listens knows what was at hand when the store broke.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

from ragauge.errors import BackendFailed, RagaugeError
from ragauge.formats.nouns import to_data
from ragauge.knowledge.stress.plan import Order, plain, read_documents, read_queries, read_vectors
from ragauge.knowledge.stress.reading import FIELDS, compared
from ragauge.processes import Tell, serve
from ragauge.records import Document
from ragauge.seams import Keeper
from ragauge.systems.keepers import open_keeper

AT_ONCE = 100
"""Documents that are read at a time,"""
ALONE = 50
"""and so many of them by themselves too."""
FOREVER = 3_600.0


class Work:
    """One store in this process."""

    def __init__(self, order: Order, tell: Tell) -> None:
        self.order, self._tell = order, tell
        self.stage = "opening"
        data = Path(order.data)
        self._documents = read_documents(data)[: max(order.stop, order.possible)]
        self._vectors = read_vectors(data, "vectors")
        self._data = data
        self._at(0, 1)
        began = time.perf_counter()
        self._keeper: Keeper = open_keeper(order.store, order.place, int(self._vectors.shape[1]))
        self.opening = time.perf_counter() - began

    def done(self) -> None:
        """All steps, and the end."""
        about = plain(self._keeper.describe())
        searches = str(getattr(self._keeper, "searches", "vectors"))
        self._write("open", {"seconds": self.opening, "about": about, "searches": searches})
        for step in self.order.steps:
            getattr(self, step)()
        self.stage = "closing"
        self._at(0, 1)
        self._keeper.close()

    def put(self) -> None:
        """Put documents in, and commit."""
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
            last = stop == order.stop and not order.hold
            if last or (order.commit_every is not None and since >= order.commit_every):
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
        """Ask for the ids, and for every document: in one shuffled order, many at a time, and some alone."""
        order = self.order
        self.stage = "reading back"
        keeps = getattr(self._keeper, "keeps", None)
        ids = [one.id for one in self._documents[: order.possible]]
        chance = random.Random(order.seed)  # noqa: S311 - an order, no secret
        chance.shuffle(ids)
        self._at(0, len(ids))
        began = time.perf_counter()
        listed = list(self._keeper.ids())
        got: list[tuple[str, Document | None]] = []
        for start in range(0, len(ids), AT_ONCE):
            self._at(start, len(ids))
            some = ids[start : start + AT_ONCE]
            found = self._keeper.get(some)
            if len(found) != len(some):
                raise BackendFailed(f"it was asked for {len(some)} documents, and gave {len(found)}")
            got += zip(some, found, strict=True)
        took = time.perf_counter() - began
        alone = chance.sample(ids, min(ALONE, len(ids)))
        for place, name in enumerate(alone):
            self._at(place, len(alone))
            got.append((name, self._keeper.get([name])[0]))
        result = compared(
            listed,
            got,
            self._documents,
            promised=order.promised,
            possible=order.possible,
            keeps=FIELDS if keeps is None else [one for one in FIELDS if one in keeps],
        )
        self._write("read", {**to_data(result), "seconds": took})

    def search(self) -> None:
        """Ask every query."""
        order = self.order
        self.stage = "searching"
        queries, asked = read_queries(self._data), read_vectors(self._data, "asked")
        timings, rankings = [], []
        for place, text in enumerate(queries.values()):
            self._at(place, len(queries))
            began = time.perf_counter_ns()
            hits = self._keeper.search(text, asked[place], order.k)
            timings.append(time.perf_counter_ns() - began)
            rankings.append([(hit.id, float(hit.score) if math.isfinite(hit.score) else None) for hit in hits])
        self._write("search", {"search": timings, "rankings": rankings})

    def _at(self, done: int, total: int) -> None:
        self._tell({"stage": self.stage, "done": done, "total": total})

    def _write(self, step: str, result: Any) -> None:
        place = self.order.result(step)
        place.with_suffix(".part").write_text(json.dumps(result), encoding="utf-8")
        place.with_suffix(".part").replace(place)


def carry_out(text: str, tell: Tell) -> int:
    """Do what an order says; 0 when it is done."""
    order = Order.of(text)
    sys.path.extend(one for one in order.path if one not in sys.path)
    work = None
    try:
        work = Work(order, tell)
        work.done()
    except RagaugeError as error:
        # What an engine refused is told in its own words, as it wrote them; ours are made for one line.
        cause = error.__cause__ if isinstance(error, BackendFailed) and error.__cause__ is not None else None
        words = _verbatim(cause) if cause is not None else error.message
        tell(_failed(work, type(error).__name__, words, error.hint))
        return error.exit_code
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # engines in Rust that panic raise what is no Exception
        if isinstance(error, SystemExit):
            raise
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
