"""Document store for stress tests that has one chosen fault and is otherwise correct.

`Faulty(path, dimension, fault="drop", at=7)`: the fault affects the seventh document that is stored.
"""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

import numpy as np

from ragauge.core.documents import Document, Hit


class Faulty:
    """Dictionary with a journal of JSON lines; `commit` writes and syncs the documents since the last commit."""

    def __init__(self, path, dimension, fault="", at=0, word=""):
        self.fault, self.at, self.word = fault, at, word
        self.documents: dict[str, Document] = {}
        self.vectors: dict[str, np.ndarray] = {}
        self.count = 0
        self.extra: list[str] = []
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.journal = folder / "journal.jsonl"
        self.reopened = self.journal.exists()
        self.uncommitted: list[str] = []
        self.ignores_writes = False
        self.search_count = 0
        self.replaced = False
        if fault == "other words when reopened":
            self.searches = "words"
        if fault == "keeps what nobody knows":
            self.keeps = ("texts",)
        if fault == "searches by what nobody knows":
            self.searches = "vector"
        if self.reopened:
            for line in self.journal.read_text().splitlines():
                row = json.loads(line)
                vector = np.frombuffer(base64.b64decode(row["vector"]), np.float32)
                self._store(Document(row["id"], row["text"], row["title"], row["metadata"]), vector)
            clean = (folder / "closed").exists()
            if not clean:
                (folder / "killed").touch()
            (folder / "closed").unlink(missing_ok=True)
            if fault == "refuses to reopen" and self.count >= at:
                raise RuntimeError(f"header says {self.count} records,\n  the table of contents another number")
            if fault == "drop on reopening" and clean:
                self._remove(at)
            self.ignores_writes = fault == "takes nothing in once killed" and not clean
            if fault == "drop when killed" and not clean:
                self._remove(at)
            if fault == "torn when killed" and not clean:
                self._change(at, lambda document: document._replace(text=document.text[: len(document.text) // 2]))

    def _store(self, document, vector):
        self.count += document.id not in self.documents
        self.documents[document.id], self.vectors[document.id] = document, vector

    def _id_at(self, place):
        return list(self.documents)[place - 1] if 0 < place <= len(self.documents) else None

    def _remove(self, place):
        name = self._id_at(place)
        if name is not None:
            self.documents.pop(name)
            self.vectors.pop(name)

    def _change(self, place, change):
        name = self._id_at(place)
        if name is not None:
            self.documents[name] = change(self.documents[name])

    def put(self, documents, vectors):
        for document, vector in zip(documents, vectors, strict=True):
            before = self.count
            self.replaced = self.replaced or document.id in self.documents
            if self.fault == "never replaces" and document.id in self.documents:
                continue
            was_killed = (self.journal.parent / "killed").exists()
            if self.fault == "raise when replaced after a kill" and document.id in self.documents and was_killed:
                raise OSError("invalid frame")
            self._store(document, np.asarray(vector, np.float32))
            row = {"id": document.id, "text": document.text, "title": document.title}
            row |= {"metadata": dict(document.metadata), "vector": base64.b64encode(vector.tobytes()).decode()}
            self.uncommitted.append(json.dumps(row))
            if self.count == self.at and before < self.at:
                self._apply_fault(document)
            if self.fault == "raise on a word" and self.word in document.text:
                raise ValueError(f"cannot tokenise {document.id!r}:\n\tunexpected  {self.word}")
        if self.fault == "eager and slow":  # not a fault: documents may be stored before they are committed
            self._write()
            time.sleep(0.15)

    def _is_first(self):
        """Return whether no earlier store had the fault, which the file `word` records across stores."""
        first = not Path(self.word).exists()
        Path(self.word).touch()
        return first

    def _count_runs(self):
        """Return the number of stores that reached the fault so far; the file `word` has one byte per store."""
        with Path(self.word).open("ab") as runs:
            runs.write(b".")
        return Path(self.word).stat().st_size

    def _apply_fault(self, document):
        if self.fault.startswith("raise in runs ") and str(self._count_runs()) in self.fault.split():
            raise OSError("database is locked")
        if self.fault == "raise another error in each run":
            raise OSError(f"error {chr(ord('a') + self._count_runs())}")
        if self.fault == "raise once" and self._is_first():
            raise OSError("database is locked")
        if self.fault == "drop once" and self._is_first():
            self._remove(self.at)
        if self.fault == "raise":
            raise OSError(f"Embedded WAL is corrupted at offset {78_000 + self.count}: wal record checksum mismatch")
        if self.fault == "exit":
            os.write(2, b"free(): invalid pointer\n")
            os._exit(134)
        if self.fault == "hang":
            time.sleep(3_600)
        if self.fault == "drop":
            self._remove(self.at)
        if self.fault == "flip":
            self._change(
                self.at,
                lambda stored: stored._replace(text=stored.text[:5] + chr(ord(stored.text[5]) ^ 1) + stored.text[6:]),
            )
        if self.fault == "title":
            self._change(self.at, lambda stored: stored._replace(title=stored.title + " "))
        if self.fault == "metadata":
            self._change(self.at, lambda stored: stored._replace(metadata={**stored.metadata, "place": "1"}))
        if self.fault == "swap":
            other = self.documents[self._id_at(self.at - 1)]
            self._change(self.at - 1, lambda stored: stored._replace(text=document.text))
            self._change(self.at, lambda stored: stored._replace(text=other.text))
        if self.fault == "twice":
            self.extra.append(document.id)
        if self.fault == "unknown":
            self.extra.append("nobody")

    def commit(self):
        if self.fault == "raise in commit" and self.count >= self.at:
            raise RuntimeError("disk quota exceeded")
        if self.fault != "commits when it is closed" and not self.ignores_writes:
            self._write()

    def _write(self):
        with self.journal.open("a") as out:
            out.write("".join(f"{line}\n" for line in self.uncommitted))
            out.flush()
            os.fsync(out.fileno())
        self.uncommitted = []

    def get(self, ids):
        if self.fault == "gives nothing" and len(ids) == 1:
            return []
        documents = [self.documents.get(name) for name in ids]
        if self.fault == "gives a dict":
            return [document._asdict() for document in documents]
        if self.fault == "gives a number for a text":
            return [
                document._replace(text=int(document.text)) if document.text.isdigit() else document
                for document in documents
            ]
        if self.fault == "gives None for a text":
            return [document._replace(text=None) if document.text == "None" else document for document in documents]
        return documents

    def ids(self):
        return [*self.documents, *self.extra]

    def search(self, text, vector, k):
        names = list(self.documents)
        cosines = np.array([_cosine(self.vectors[name], vector) for name in names])
        best = np.argsort(-cosines, kind="stable")[:k]
        hits = [Hit(names[i], float(cosines[i])) for i in best]
        self.search_count += 1
        missed = [Hit(names[i], float(cosines[i])) for i in np.argsort(-cosines, kind="stable")[1 : k + 1]]
        if self.fault == "misses when reopened" and self.reopened and not self.replaced:
            return missed if self.search_count <= self.at else hits
        if self.fault == "misses when replaced" and self.replaced:
            return missed if self.search_count <= self.at else hits
        if self.count < self.at:
            return hits
        if self.fault == "scores out of order":
            return hits[::-1]
        if self.fault == "wrong order":
            return [hit._replace(score=good.score) for hit, good in zip(hits[::-1], hits, strict=True)]
        if self.fault in ("other when reopened", "other words when reopened") and self.reopened:
            return [Hit(names[i], float(cosines[i])) for i in np.argsort(cosines, kind="stable")[::-1][1 : k + 1]]
        if self.fault == "hit twice":
            return [hits[0], *hits[:-1]]
        if self.fault == "no hits":
            return []
        if self.fault == "few hits":
            return hits[:2]
        if self.fault == "the farthest":
            return [Hit(names[i], float(cosines[i])) for i in np.argsort(-cosines, kind="stable")[-k:]]
        if self.fault == "another text":
            return [hit._replace(text="of somebody else") for hit in hits]
        if self.fault == "a hit is a pair":
            return [(hit.id, hit.score) for hit in hits]
        return hits

    def describe(self):
        return {"engine": "faulty", "version": "1", "fault": self.fault}

    def close(self):
        if self.fault == "commits when it is closed":
            self._write()
        (self.journal.parent / "closed").touch()


def _cosine(first, second):
    return float(first @ second / ((np.linalg.norm(first) * np.linalg.norm(second)) or 1))
