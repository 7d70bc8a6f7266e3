"""Cache vectors on disk, by model and text."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ragauge.compute.progress import Heard
from ragauge.core.composition import made
from ragauge.core.errors import BadInput, words_of
from ragauge.core.protocols import Embedder, Vectors


class Named:
    """Embedder with a name of its own; all other attributes are those of the wrapped one."""

    def __init__(self, embedder: Any, name: str) -> None:
        self._embedder = embedder
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._embedder, attribute)
        return self._learning(found) if attribute == "fitted" and callable(found) else found

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text."""
        found: Vectors = self._embedder.embed(texts)
        return found

    def _learning(self, fitted: Callable[..., Any]) -> Callable[..., Embedder]:
        return lambda *given, **more: named(fitted(*given, **more), self.name)


def named(embedder: Any, name: str) -> Embedder:
    """Return the embedder if it has a name, else wrap it under the given name."""
    found: Embedder = embedder if getattr(embedder, "name", None) else Named(embedder, name)
    return found


MANY = 500
"""Maximum number of keys per query; SQLite supports 999 parameters everywhere."""


class Cached:
    """Embedder with a cache file; equal texts are embedded once, also within one call.

    Dense systems use it for documents only: with a cached query, the embedding time would not be measured.
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self.name = embedder.name
        slug = hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()
        self._path = folder / f"{slug}.sqlite"
        self._lock = threading.Lock()
        self.hits = self.misses = 0
        self.reused = 0
        """Number of vectors that were in the file before this embedder was opened."""
        self._computed: set[bytes] = set()
        with self._errors():
            folder.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as file, file:
                file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")

    @property
    def is_reused(self) -> bool:
        """Whether more than 5% of the vectors were in the file before.

        Fewer do not affect the build time.
        """
        return self.reused > len(self._computed) / 19

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Name the file in errors of SQLite."""
        try:
            yield
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes the bytes of a corrupt schema.
            raise BadInput(
                f"the cache of vectors cannot be used ({words_of(error)})",
                file=str(self._path),
                hint="delete the file, or set RAGAUGE_CACHE to another folder",
            ) from error

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=60)
        file.execute("PRAGMA journal_mode=WAL")
        return file

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text."""
        keys = [self._key(text) for text in texts]
        with self._lock, self._errors(), closing(self._open()) as file:
            found = self._look_up(file, list(dict.fromkeys(keys)))
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
            self.hits += len(texts) - len(missing)
            self.misses += len(missing)
            self.reused += len(found.keys() - self._computed)
            self._computed.update(missing)
            if missing:
                made = np.ascontiguousarray(self._embedder.embed(list(missing.values())), np.float32)
                if len(made) != len(missing):
                    raise BadInput(f"the embedder `{self.name}` gave {len(made)} vectors for {len(missing)} texts")
                rows = dict(zip(missing, (row.tobytes() for row in made), strict=True))
                with file:
                    file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows.items())
                found.update(rows)
        if not keys:
            return self._embedder.embed([])
        if len({len(row) for row in found.values()}) > 1:
            # Otherwise the concatenated rows could be reshaped to a wrong dimension.
            raise BadInput(
                f"two embedders of different dimensions are called `{self.name}`", hint=f"delete {self._path}"
            )
        return np.frombuffer(b"".join(found[key] for key in keys), np.float32).reshape(len(keys), -1).copy()

    def _key(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.name}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

    @staticmethod
    def _look_up(file: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), MANY):
            part = keys[start : start + MANY]
            marks = ",".join("?" * len(part))
            # Only question marks are inserted into the statement.
            rows = file.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)  # noqa: S608
            # A vector with an incomplete number is corrupt and is computed again.
            found.update((key, row) for key, row in rows if isinstance(row, bytes) and row and not len(row) % 4)
        return found


class VectorCaches:
    """Caches of the embedders of one command, one for each.

    The name of a built-in embedder identifies the model, and its vectors are stored in `folder`. A user's own embedder
    may change under the same name, so its vectors are stored only until `close`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own_folder: TemporaryDirectory[str] | None = None
        self._caches: dict[int, Cached] = {}

    def of(self, embedder: Embedder, *, is_own: bool) -> Cached:
        """Return the cached embedder of an embedder."""
        if id(embedder) not in self._caches:
            if is_own and self._own_folder is None:
                self._own_folder = TemporaryDirectory(prefix="ragauge-")
            folder = Path(self._own_folder.name) if is_own and self._own_folder is not None else self._folder
            self._caches[id(embedder)] = Cached(embedder, folder)
        return self._caches[id(embedder)]

    def close(self) -> None:
        """Remove the vectors of the user's own embedders."""
        self._caches.clear()
        if self._own_folder is not None:
            self._own_folder.cleanup()
            self._own_folder = None


PIECE = 256


class InPieces:
    """Embedder that splits many texts into batches and calls `progress` with done and total."""

    def __init__(self, embedder: Embedder, progress: Callable[[int, int], None]) -> None:
        self._embedder = embedder
        self._progress = progress
        self.name = embedder.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text."""
        if len(texts) <= PIECE:
            return self._embedder.embed(texts)
        parts = []
        # Sorted by length, so that embedders with padding get texts of similar length.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), PIECE):
            parts.append(self._embedder.embed([texts[i] for i in order[start : start + PIECE]]))
            self._progress(min(start + PIECE, len(order)), len(order))
        vectors = np.concatenate(parts)
        out = np.empty_like(vectors)
        out[order] = vectors
        return out


def open_embedder(
    described: str | Embedder, texts: Sequence[str] | None = None, progress: Heard | None = None
) -> Embedder:
    """Open an embedder from a spec, or return it; fit it to `texts` if needed."""
    embedder: Embedder = made("embedders", described) if isinstance(described, str) else described
    return embedder if texts is None else fitted(embedder, texts, progress)


def fitted(embedder: Embedder, texts: Sequence[str], progress: Heard | None = None) -> Embedder:
    """Fit an embedder to the corpus if it needs that; else return it unchanged."""
    learn = getattr(embedder, "fitted", None)
    found: Embedder = learn(texts, progress) if callable(learn) else embedder
    return found
