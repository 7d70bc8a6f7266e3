"""memvid: documents in one file, indexed by words, by vectors, or by both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ragauge.errors import MissingExtra
from ragauge.records import Document, Hit
from ragauge.structured_text import parse_json
from ragauge.systems.keepers.columns import EVERYTHING, Verbatim, document, matrix, query, written
from ragauge.systems.stores.engines import Gone, Home
from ragauge.systems.stores.intake import one_of, unit

FILE = "memory.mv2"
PAGE = "#page-"
"""Marker in the URI of a page; memvid splits a long text into pages."""


class Memvid:
    """memvid file; each document is a frame whose URI is the id.

    The text is read back from the frame's bytes.

    `index` is `both`, `lex` (words only) or `vec` (vectors only). Searches use vectors if there are any. memvid has
    Euclidean distances only, so vectors are normalised to length 1. A text that memvid split into pages is read from
    the pages. `raw=False` is the default of memvid's own `put`, which keeps no bytes of a short text. The adapter
    checks nothing beyond what memvid reports: finding silent errors is the purpose of the stress test.
    """

    keeps = EVERYTHING

    def __init__(self, *, path: str | None = None, dimension: int, index: str = "both", raw: bool = True) -> None:
        os.environ["MEMVID_TELEMETRY"] = "0"  # read at first use: the library would send usage data
        try:
            import memvid_sdk
        except ImportError as error:
            raise MissingExtra("the memvid keeper", "memvid") from error
        self._library: Any = memvid_sdk
        self._dimension, self._raw = dimension, raw
        self._index = one_of("index", index, ("both", "lex", "vec"))
        self._speaking = Verbatim("memvid")
        self._home = Home("memvid", path)
        file = self._home.place(FILE, fresh=False)
        kinds = {"enable_vec": index != "lex", "enable_lex": index != "vec"}
        with self._speaking:
            if file.exists():
                self._memory: Any = memvid_sdk.use("basic", str(file), mode="open", **kinds)
            else:
                self._memory = memvid_sdk.create(str(file), **kinds)
        # One layer below the public class, which reports every search to memvid.com if a key is in the environment, and
        # which does not pass on the option to keep the bytes of a text.
        self._engine: Any = self._memory._core

    @property
    def searches(self) -> str:
        """What the store searches by: `vectors` or `words`."""
        return "words" if self._index == "lex" else "vectors"

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; an existing id is removed first.

        memvid would keep both otherwise.
        """
        rows = unit(matrix(documents, vectors, self._dimension))
        requests = [
            {
                "title": one.title,
                "label": "document",
                "labels": ["document"],
                "text": one.text,
                "uri": one.id,
                "metadata": {"metadata": written(one.metadata)},
                "tags": [],
            }
            for one in documents
        ]
        with self._speaking:
            for one in documents:
                if (frame := self._frame(one.id)) is not None:
                    self._engine.remove(frame["id"])
            self._engine.put_many(requests, None if self._index == "lex" else rows.tolist(), {"no_raw": not self._raw})

    def commit(self) -> None:
        """Commit in memvid."""
        with self._speaking:
            self._engine.commit()

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        with self._speaking:
            return [self._read(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            most = max(1, int(self._engine.stats()["frame_count"]))
            return [str(one["uri"]) for one in self._memory.timeline(limit=most)]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:
        """Return the `k` nearest documents, or the `k` best by words.

        Pages of one document are one hit.
        """
        with self._speaking:
            if self._index == "lex":
                found = self._engine.find(text, k=k, mode="lex", snippet_chars=0)["hits"]
            else:
                asked = unit(query(vector, self._dimension)[None])[0].tolist()
                found = self._engine.find("", k=k, mode="sem", query_embedding=asked, snippet_chars=0)["hits"]
        best: dict[str, Hit] = {}
        for hit in found:
            name = str(hit["uri"]).rpartition(PAGE)[0] or str(hit["uri"])
            best.setdefault(name, Hit(name, self._score(float(hit["score"]))))
        return list(best.values())

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about = self._library.info()
        return {
            "keeper": "memvid",
            "version": about["sdk_version"],
            "core": about["native"]["memvid_core_version"],
            "index": self._index,
            "raw": self._raw,
            "dimension": self._dimension,
        }

    def close(self) -> None:
        """Close the file; a temporary folder is removed."""
        if not isinstance(self._engine, Gone):
            with self._speaking:
                self._memory.close()
        self._engine = Gone()
        self._home.close()

    def _score(self, score: float) -> float:
        """Convert a score of memvid to the score of a hit.

        A vector score is 1 - half the Euclidean distance and becomes the cosine; a word score is unchanged.
        """
        return score if self._index == "lex" else 1 - (2 - 2 * score) ** 2 / 2

    def _frame(self, uri: str) -> Any:
        try:
            return self._engine.frame(uri)
        except self._library.FrameNotFoundError:
            return None

    def _read(self, name: str) -> Document | None:
        frame = self._frame(name)
        if frame is None:
            return None
        data, page = bytes(self._engine.blob(name)), 1
        while not frame["payload_length"] and self._frame(f"{name}{PAGE}{page}") is not None:
            data += bytes(self._engine.blob(f"{name}{PAGE}{page}"))
            page += 1
        about = frame.get("extra_metadata", {}).get("metadata")
        return document(name, data.decode(), frame["title"] or "", parse_json(about) if about else "")
