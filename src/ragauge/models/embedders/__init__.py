"""Embedders: open one by name, embed many texts, cache vectors on disk."""

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

from ragauge.compute.progress import ProgressCallback, no_progress
from ragauge.core.components import build_component
from ragauge.core.errors import BadInput, error_summary
from ragauge.core.hashes import hash_bytes
from ragauge.core.protocols import Embedder, Vectors
from ragauge.core.vectors import check_vectors, to_unit_rows
from ragauge.models.optional_attributes import EmbedderAttributes


class NamedEmbedder:
    """Embedder with a name of its own; all other attributes are those of the wrapped one."""

    def __init__(self, embedder: Any, name: str) -> None:
        self._embedder = embedder
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._embedder, attribute)
        return self._wrap_fitted(value) if attribute == "fitted" and callable(value) else value

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors: Vectors = self._embedder.embed(texts)
        return vectors

    def _wrap_fitted(self, fitted: Callable[..., Any]) -> Callable[..., Embedder]:
        return lambda *arguments, **more: ensure_name(fitted(*arguments, **more), self.name)


def ensure_name(embedder: Any, name: str) -> Embedder:
    """Return the embedder if it has a name, else wrap it under the given name."""
    named: Embedder = embedder if getattr(embedder, "name", None) else NamedEmbedder(embedder, name)
    return named


MIN_PROBE_COSINE = 0.999
"""Minimum cosine of a probe text with its cached vector: services round, and compute in batches."""
MAX_KEYS_PER_QUERY = 500
"""Maximum number of keys per query; SQLite supports 999 parameters everywhere."""


class CachedEmbedder:
    """Embedder with a cache file; equal texts are embedded once, also within one call.

    Dense systems use it for documents only: with a cached query, the embedding time would not be measured.
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self._probe = EmbedderAttributes(embedder).probe
        self._is_probed = not self._probe
        # Vectors that were cached without a probe cannot be checked, so a probe starts another file.
        slug = hash_bytes(f"{self.name}{f' probe {self._probe}' if self._probe else ''}".encode(), size_bytes=8)
        self._path = folder / f"{slug}.sqlite"
        self._lock = threading.Lock()
        self.hits = self.misses = 0
        self.reused = 0
        """Number of vectors that were in the file before this embedder was opened."""
        self._computed: set[bytes] = set()
        with self._cache_errors():
            folder.mkdir(parents=True, exist_ok=True)
            with closing(self._open_cache_file()) as file, file:
                file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")

    @property
    def is_reused(self) -> bool:
        """Whether more than 5% of the vectors were in the file before.

        Fewer do not affect the build time.
        """
        return self.reused > len(self._computed) / 19

    @contextmanager
    def _cache_errors(self) -> Iterator[None]:
        """Name the file in errors of SQLite."""
        try:
            yield
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes the bytes of a corrupt schema.
            raise BadInput(
                f"the cache of vectors cannot be used ({error_summary(error)})",
                file=str(self._path),
                hint="delete the file, or set RAGAUGE_CACHE to another folder",
            ) from error

    def _open_cache_file(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=60)
        file.execute("PRAGMA journal_mode=WAL")
        return file

    def embed(self, texts: Sequence[str]) -> Vectors:
        keys = [self._text_key(text) for text in texts]
        with self._lock, self._cache_errors(), closing(self._open_cache_file()) as file:
            self._check_probe(file)
            stored = self._find_vectors(file, list(dict.fromkeys(keys)))
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in stored}
            self.hits += len(texts) - len(missing)
            self.misses += len(missing)
            self.reused += len(stored.keys() - self._computed)
            self._computed.update(missing)
            if missing:
                vectors = check_vectors(self._embedder.embed(list(missing.values())), len(missing), self.name)
                vectors = np.ascontiguousarray(vectors, np.float32)
                rows = dict(zip(missing, (row.tobytes() for row in vectors), strict=True))
                with file:
                    file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows.items())
                stored.update(rows)
        if not keys:
            return self._embedder.embed([])
        if len({len(row) for row in stored.values()}) > 1:
            # Otherwise the concatenated rows could be reshaped to a wrong dimension.
            raise BadInput(
                f"two embedders of different dimensions are called `{self.name}`", hint=f"delete {self._path}"
            )
        return np.frombuffer(b"".join(stored[key] for key in keys), np.float32).reshape(len(keys), -1).copy()

    def _check_probe(self, file: sqlite3.Connection) -> None:
        """Embed the probe text once; raise BadInput if its cached vector is another one."""
        if self._is_probed:
            return
        vector = np.ascontiguousarray(check_vectors(self._embedder.embed([self._probe]), 1, self.name), np.float32)[0]
        key = self._text_key(self._probe)
        if (row := self._find_vectors(file, [key]).get(key)) is None:
            with file:
                file.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (key, vector.tobytes()))
        else:
            cached = np.frombuffer(row, np.float32)
            cosine = 0.0
            if len(cached) == len(vector):
                first, second = to_unit_rows(np.stack([cached, vector]))
                cosine = float(first @ second)
            if not cosine >= MIN_PROBE_COSINE:
                raise BadInput(
                    f"the cached vectors of `{self.name}` are of another model: the probe text has a cosine of "
                    f"{cosine:.4f} with its cached vector; expected at least {MIN_PROBE_COSINE}",
                    hint=f"delete {self._path}",
                )
        self._is_probed = True

    def _text_key(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.name}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

    @staticmethod
    def _find_vectors(file: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, bytes]:
        stored: dict[bytes, bytes] = {}
        for start in range(0, len(keys), MAX_KEYS_PER_QUERY):
            part = keys[start : start + MAX_KEYS_PER_QUERY]
            marks = ",".join("?" * len(part))
            # Only question marks are inserted into the statement.
            rows = file.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)  # noqa: S608
            # A vector with an incomplete number is corrupt and is computed again.
            stored.update((key, row) for key, row in rows if isinstance(row, bytes) and row and not len(row) % 4)
        return stored


class VectorCaches:
    """Caches of the embedders of one command, one for each.

    The name of a built-in embedder identifies the model, and its vectors are stored in `folder`. A user's own embedder
    may change under the same name, so its vectors are stored only until `close`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own_folder: TemporaryDirectory[str] | None = None
        self._caches: dict[int, CachedEmbedder] = {}

    def wrap(self, embedder: Embedder, *, is_own: bool) -> CachedEmbedder:
        if id(embedder) not in self._caches:
            if is_own and self._own_folder is None:
                self._own_folder = TemporaryDirectory(prefix="ragauge-")
            folder = Path(self._own_folder.name) if is_own and self._own_folder is not None else self._folder
            self._caches[id(embedder)] = CachedEmbedder(embedder, folder)
        return self._caches[id(embedder)]

    def close(self) -> None:
        """Remove the vectors of the user's own embedders."""
        self._caches.clear()
        if self._own_folder is not None:
            self._own_folder.cleanup()
            self._own_folder = None


def open_embedder(
    spec_or_object: str | Embedder, texts: Sequence[str] | None = None, progress: ProgressCallback = no_progress
) -> Embedder:
    """Open an embedder from a spec, or return it; fit it to `texts` if needed."""
    embedder: Embedder = (
        build_component("embedders", spec_or_object) if isinstance(spec_or_object, str) else spec_or_object
    )
    return embedder if texts is None else fit(embedder, texts, progress)


def fit(embedder: Embedder, texts: Sequence[str], progress: ProgressCallback = no_progress) -> Embedder:
    """Fit an embedder to the corpus if it needs that; else return it unchanged."""
    train = EmbedderAttributes(embedder).fitted
    return embedder if train is None else train(texts, progress)
