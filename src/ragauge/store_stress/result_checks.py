"""Checks of search results and of documents read back, without judgments.

Scores count as equal if they differ by no more than the rounding of single precision.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.core.documents import EMPTY_MAPPING, Document
from ragauge.core.errors import BackendFailed
from ragauge.core.protocols import Vectors
from ragauge.store_stress.results import CorruptDocument, ReadBack
from ragauge.stores.nearest_neighbours import find_nearest

Ranking = Sequence[tuple[str, float]]
"""Ids and scores, best first."""
SCORE_TOLERANCE = 1e-5
"""Largest difference of equal scores, relative to the greater of them and 1."""
COSINE_ORDER_TOLERANCE = 1e-3
"""Largest error in the order of exact cosines that is accepted.

Engines that store vectors in 16 bits or fewer cause such errors by rounding.
"""


class WrongResult(BackendFailed):
    """A store returned a wrong result without an error."""


def count_ranking_errors(
    rankings: Iterable[Ranking],
    cosines: Iterable[Mapping[str, float]] | None,
    known_ids: frozenset[str],
    k: int,
    min_counts: Iterable[int] | None = None,
) -> dict[str, int]:
    """Count the rankings with each kind of error.

    `cosines` are the exact cosines of each ranking's documents; None for an engine that does not rank by vectors.
    `min_counts` is the minimum number of documents per ranking. `known_ids` are the ids that were put in.

    >>> wrong = count_ranking_errors([[("a", 0.1), ("b", 0.9)]], [{"a": 0.1, "b": 0.9}], frozenset("ab"), 2)
    >>> wrong["not in the order of their own scores"], wrong["not in the order of the true cosines"]
    (1, 1)
    """
    counts: Counter[str] = Counter()
    true = iter(cosines) if cosines is not None else None
    minimums = iter(min_counts) if min_counts is not None else repeat(0)
    for ranking in rankings:
        ids, scores = [doc for doc, _ in ranking], [score for _, score in ranking]
        wrong = {
            "with more than k documents": len(ids) > k,
            "with fewer documents than requested": len(ids) < next(minimums),
            "with duplicate documents": len(set(ids)) < len(ids),
            "with documents that were never put in": not known_ids.issuperset(ids),
            "with a score that is not a finite number": not all(map(math.isfinite, scores)),
            "not in the order of their own scores": not _is_descending(scores, SCORE_TOLERANCE),
        }
        if true is not None:
            document_cosines = next(true)
            values = [document_cosines[doc] for doc in ids if doc in document_cosines]
            wrong["not in the order of the true cosines"] = not _is_descending(values, COSINE_ORDER_TOLERANCE)
        counts.update(kind for kind, is_so in wrong.items() if is_so)
    return dict(counts)


def _is_descending(values: Sequence[float], slack: float) -> bool:
    """Return whether values descend.

    A value may exceed the smallest one before it by the tolerance `slack`, relative to the value and 1.
    """
    smallest = math.inf
    for value in values:
        if value > smallest + slack * max(1.0, abs(value)):
            return False
        smallest = min(smallest, value)
    return True


class ExactCosines:
    """Exact cosines of queries and documents."""

    def __init__(self, ids: Sequence[str], vectors: Vectors, queries: Vectors, k: int) -> None:
        self._row = {name: row for row, name in enumerate(ids)}
        self._base, self._query_vectors = _unit_rows(vectors), _unit_rows(queries)
        self._k = k = min(k, len(ids))
        places, _ = find_nearest(np.ascontiguousarray(vectors, np.float32), queries, k, "cosine")
        best = [self._base[row] @ vector for row, vector in zip(places, self._query_vectors, strict=True)]
        self._kth_cosines = [float(cosines.min()) if k else 0.0 for cosines in best]
        """Cosine of the k-th nearest document per query."""
        self._nearer = [
            int((cosines > last + SCORE_TOLERANCE).sum()) for cosines, last in zip(best, self._kth_cosines, strict=True)
        ]
        """Number of documents per query that are nearer than the k-th."""

    def cosines(self, rankings: Sequence[Ranking]) -> list[dict[str, float]]:
        """Compute the exact cosines of the documents in each ranking, by id."""
        cosines = []
        for query, ranking in enumerate(rankings):
            ids = [doc for doc, _ in ranking if doc in self._row]
            values = self._base[[self._row[doc] for doc in ids]] @ self._query_vectors[query] if ids else np.zeros(0)
            cosines.append(dict(zip(ids, values.tolist(), strict=True)))
        return cosines

    def neighbour_recall(self, rankings: Sequence[Ranking]) -> float:
        """Compute neighbour recall, the share of the k exact neighbours in the rankings.

        Formula: (documents nearer than the k-th + documents as near as the k-th, at most as many as the top k can
        hold) / k, averaged over the queries.
        Rule: queries with an all-zero vector are left out. NaN if no query is left.
        """
        parts = []
        for last, nearer, document_cosines, query_vector in zip(
            self._kth_cosines, self._nearer, self.cosines(rankings), self._query_vectors, strict=True
        ):
            if self._k and query_vector.any():
                n_nearer = sum(value > last + SCORE_TOLERANCE for value in document_cosines.values())
                n_ties = sum(abs(value - last) <= SCORE_TOLERANCE for value in document_cosines.values())
                parts.append((min(n_nearer, nearer) + min(n_ties, self._k - nearer)) / self._k)
        return float(np.mean(parts)) if parts else math.nan

    def fewest(self) -> list[int]:
        """Return the minimum number of documents per ranking.

        It is k, or the number of nonzero document vectors if smaller; 0 for a query with an all-zero vector.
        """
        n_documents = min(self._k, int(self._base.any(axis=1).sum()))
        return [n_documents if query_vector.any() else 0 for query_vector in self._query_vectors]


def _unit_rows(rows: Vectors) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(lengths > 0, lengths, 1))


def changed_rankings(before: Sequence[Ranking], after: Sequence[Ranking]) -> list[int]:
    """Return the positions of rankings that differ.

    Documents of equal score may be exchanged.

    >>> (changed_rankings([[("a", 0.9), ("b", 0.5)]], [[("a", 0.9), ("c", 0.5)]]), changed_rankings([[("a", 0.9)]],
    ...  [[("b", 0.8)]]))
    ([], [0])
    """
    return [
        position
        for position, (old, new) in enumerate(zip(before, after, strict=True))
        if not _is_same_ranking(list(old), list(new))
    ]


def share_of_kept_hits(before: Sequence[Ranking], after: Sequence[Ranking]) -> float:
    """Compute the share of the earlier hits that rankings still have.

    NaN without rankings. A ranking in which only documents of equal score were exchanged counts as unchanged.

    >>> share_of_kept_hits([[("a", 0.9), ("b", 0.5)], [("a", 0.9)]], [[("a", 0.9), ("c", 0.4)], [("a", 0.9)]])
    0.75
    """
    changed = set(changed_rankings(before, after))
    shares = [
        len({name for name, _ in old} & {name for name, _ in new}) / max(len(old), 1) if position in changed else 1.0
        for position, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    return float(np.mean(shares)) if shares else math.nan


def _is_same_ranking(first: list[tuple[str, float]], second: list[tuple[str, float]]) -> bool:
    if [name for name, _ in first] == [name for name, _ in second]:
        return True
    if len(first) != len(second):
        return False
    scores, other_scores = dict(first), dict(second)
    for these, those in ((scores, other_scores), (other_scores, scores)):
        last = min(those.values(), default=0.0)
        for name, score in these.items():
            if not _is_close_score(score, those.get(name, last)):
                return False
    return True


def _is_close_score(first: float, second: float) -> bool:
    return abs(first - second) <= SCORE_TOLERANCE * max(1.0, abs(first), abs(second))


def parse_rankings(raw_rankings: Any) -> list[Ranking]:
    """Convert rankings from JSON; a missing score becomes NaN."""
    return [
        [(str(name), math.nan if score is None else float(score)) for name, score in ranking]
        for ranking in raw_rankings
    ]


MAX_CORRUPT_DOCUMENTS_LISTED = 20
"""Maximum number of corrupt documents listed per read-back."""
DOCUMENT_FIELDS = ("text", "title", "metadata")
"""Fields of a document that a store can keep."""


def compare_documents(
    listed: Sequence[str],
    got: Iterable[tuple[str, Document | None]],
    documents: Sequence[Document],
    *,
    n_required: int,
    n_allowed: int,
    keeps: Collection[str] = DOCUMENT_FIELDS,
    when: str = "at once",
    before: Mapping[str, str] = EMPTY_MAPPING,
) -> ReadBack:
    """Compare the documents read back with those put in.

    `listed` are the ids that the store lists, `got` the documents returned per id, possibly several times. The first
    `n_required` documents must be present; those up to `n_allowed` may be, and must then be complete. `before` maps ids
    to texts that were replaced.

    >>> put_in = [Document("a", "one"), Document("b", "two")]
    >>> read_back = compare_documents(["a", "b"], [("a", put_in[0]), ("b", Document("b", "twO"))], put_in, n_required=2,
    ...     n_allowed=2)
    >>> read_back.whole, read_back.corrupt[0]
    (1, CorruptDocument(id='b', kind='changed', difference='text: byte 3 of 3 is 0x4f, not 0x6f', position=2))
    """
    positions = {document.id: position for position, document in enumerate(documents[:n_allowed])}
    owners = {document.text: document.id for document in documents[:n_allowed] if document.text}
    corrupt: list[CorruptDocument] = []
    for name, times in Counter(listed).items():
        if name not in positions:
            corrupt.append(CorruptDocument(name, "unknown"))
        elif times > 1:
            corrupt.append(CorruptDocument(name, "twice", f"it is listed {times} times", positions[name] + 1))
    listed_ids, corrupt_ids = set(listed), {document.id for document in corrupt}
    intact_ids: set[str] = set()
    for name, returned in got:
        position = positions[name]
        corruption = _find_corruption(documents[position], returned, owners, keeps, listed=name in listed_ids)
        if corruption is not None and returned is not None and name in before and before[name] == returned.text:
            corruption = "stale", "it still has the text that was replaced"
        if corruption is None:
            intact_ids.add(name)
        elif name not in corrupt_ids and (corruption[0] != "lost" or position < n_required):
            corrupt_ids.add(name)
            corrupt.append(CorruptDocument(name, *corruption, position + 1))
    n_intact = sum(positions[name] < n_required for name in intact_ids - corrupt_ids)
    uncommitted = len(intact_ids - corrupt_ids) - n_intact
    corrupt.sort(key=lambda document: (document.position is None, document.position or 0))
    counts = dict(Counter(document.kind for document in corrupt))
    listed_first = corrupt[:MAX_CORRUPT_DOCUMENTS_LISTED]
    return ReadBack(when, n_required, n_intact, listed_first, counts, uncommitted, sorted(keeps))


def _find_corruption(
    document: Document, returned: Document | None, owners: Mapping[str, str], keeps: Collection[str], *, listed: bool
) -> tuple[str, str] | None:
    """Return the kind and location of a corruption; None if the document is intact."""
    if returned is None:
        return "lost", "it is listed but not returned" if listed else ""
    if not listed:
        return "unlisted", "it is returned but not listed"
    if returned.id != document.id:
        return "swapped", f"it was returned under the id {returned.id}"
    if "text" in keeps and returned.text != document.text:
        owner = owners.get(returned.text) if isinstance(returned.text, str) else None
        if owner is not None:
            return "swapped", f"it has the text of {owner}"
    for field in DOCUMENT_FIELDS:
        if field in keeps and (difference := describe_difference(getattr(document, field), getattr(returned, field))):
            return "changed", f"{field}: {difference}"
    return None


def describe_difference(expected: Any, actual: Any) -> str:
    """Describe the first byte in which two values differ; empty if they are equal.

    >>> describe_difference("café", "cafe")
    'byte 4 of 5 is 0x65, not 0xc3'
    >>> describe_difference({"a": 1}, {"a": 1}), describe_difference("ab", "a")
    ('', 'it ends after byte 1 of 2')
    >>> describe_difference("42", 42)
    'it is of type int, not str'
    """
    for kind in (str, Mapping):
        if isinstance(expected, kind) and not isinstance(actual, kind):
            return f"it is of type {type(actual).__name__}, not {type(expected).__name__}"
    expected_bytes, actual_bytes = _to_bytes(expected), _to_bytes(actual)
    if expected_bytes == actual_bytes:
        return ""
    same = next(
        (i for i, (a, b) in enumerate(zip(expected_bytes, actual_bytes, strict=False)) if a != b),
        min(len(expected_bytes), len(actual_bytes)),
    )
    if same == len(actual_bytes):
        return f"it ends after byte {same:,} of {len(expected_bytes):,}"
    if same == len(expected_bytes):
        return f"it continues after byte {same:,}, where it should end"
    return f"byte {same + 1:,} of {len(expected_bytes):,} is {actual_bytes[same]:#04x}, not {expected_bytes[same]:#04x}"


def _to_bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(_to_json_value(value), sort_keys=True)
    return text.encode("utf-8", "surrogatepass")


def _to_json_value(value: Any) -> Any:
    """Convert a value to JSON types.

    Other types become text with their type name, so that they equal nothing else.
    """
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else _tagged_repr(key): _to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else _tagged_repr(value)


def _tagged_repr(value: Any) -> str:
    return f"({type(value).__name__}) {value!r}"


def describe_read_back(reading: ReadBack) -> str:
    """Summarise what is wrong with a read-back in one sentence; empty if nothing is.

    >>> describe_read_back(ReadBack("at once", 3, 2, [CorruptDocument("b", "lost", "", 2)], {"lost": 1}))
    '1 lost of 3 documents: `b` (document 2) is lost'
    """
    if reading.is_intact:
        return ""
    counts = ", ".join(f"{n:,} {kind}" for kind, n in reading.corrupt_counts.items())
    first = reading.corrupt[0]
    label = f"`{first.id}`" + ("" if first.position is None else f" (document {first.position:,})")
    problems = {"unknown": "was never put in", "twice": "is listed more than once", "unlisted": "is not listed"}
    problem = problems.get(first.kind, f"is {first.kind}")
    details = f": {first.difference}" if first.difference else ""
    return f"{counts} of {reading.expected:,} documents: {label} {problem}{details}"
