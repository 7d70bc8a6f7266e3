"""Fields of documents that could leak judgments, and the word weights of a corpus."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.documents import Document
from ragauge.core.records import Floats, Ints
from ragauge.core.text import split_words

BM25_K1, BM25_B = 0.9, 0.4
"""BM25 parameters, as in Anserini."""


@dataclass(frozen=True, eq=False)
class WeightedCorpus:
    """Words of all documents as flat arrays.

    Document `i` is at `starts[i]:starts[i + 1]`.
    """

    vocabulary: dict[str, int]
    starts: Ints
    word: Ints
    """Indices of the distinct words of each document."""
    weight: Floats
    """BM25 weight of each word in its document: IDF times saturated term frequency."""
    lengths: Ints
    """Number of words per document, repetitions included."""

    @classmethod
    def from_documents(cls, documents: Sequence[Document]) -> WeightedCorpus:
        """Build the arrays from the titles and texts of documents."""
        vocabulary: dict[str, int] = {}
        columns: list[Ints] = []
        counts: list[Ints] = []
        lengths = np.zeros(len(documents), np.int64)
        for i, document in enumerate(documents):
            word_ids = [vocabulary.setdefault(word, len(vocabulary)) for word in split_words(document.whole)]
            distinct, times = np.unique(np.array(word_ids, np.int64), return_counts=True)
            columns.append(distinct)
            counts.append(times)
            lengths[i] = len(word_ids)
        sizes = np.array([len(column) for column in columns], np.int64)
        word = np.concatenate(columns) if columns else np.zeros(0, np.int64)
        often = np.concatenate(counts).astype(np.float64) if counts else np.zeros(0)
        n, document_counts = len(documents), np.bincount(word, minlength=len(vocabulary))
        rarity = np.log1p((n - document_counts + 0.5) / (document_counts + 0.5))
        relative = np.repeat(lengths / max(float(lengths.mean()), 1.0) if n else lengths, sizes)
        weight = rarity[word] * often / (often + BM25_K1 * (1 - BM25_B + BM25_B * relative))
        return cls(vocabulary, np.concatenate([[0], np.cumsum(sizes)]), word, weight, lengths)

    def scores(self, query: str, documents: Ints) -> Floats:
        """Compute the BM25 scores of documents, given by position, for a query.

        >>> documents = [Document("a", "red fox"), Document("b", "red dog"), Document("c", "a cat")]
        >>> WeightedCorpus.from_documents(documents).scores("the fox is red", np.array([0, 1, 2])).argsort().tolist()
        [2, 1, 0]
        """
        scores = np.zeros(len(self.vocabulary))
        for word in split_words(query):
            if word in self.vocabulary:
                scores[self.vocabulary[word]] += 1
        sizes = self.starts[documents + 1] - self.starts[documents]
        owner = np.repeat(np.arange(len(documents)), sizes)
        rows = np.arange(int(sizes.sum())) + np.repeat(self.starts[documents] - (np.cumsum(sizes) - sizes), sizes)
        contributions = scores[self.word[rows]] * self.weight[rows]
        return np.bincount(owner, contributions, len(documents)).astype(np.float64, copy=False)


MAX_CATEGORIES = 50
"""Maximum number of distinct values of a categorical field."""
MIN_DOCUMENTS_PER_CATEGORY = 5
"""Minimum mean number of documents per value of a categorical field; an id or name has one."""
MAX_NUMERIC_CODES = 10
"""Maximum number of distinct numbers that are treated as codes, whose order has no meaning."""
MAX_FIELDS = 40
"""Maximum number of fields tested: each further field needs more permutations for a small p-value."""
MAX_NESTING_DEPTH = 4
"""Maximum depth of nested mappings that are flattened."""
MIN_QUERIES_NAMED = 3
"""Minimum number of queries that a field must name; fewer can be accidental."""
ID_SEPARATORS = re.compile(r"[\s,;|\"'\[\](){}]+")
"""Separators between ids in a text."""
ID_PART_SEPARATORS = re.compile(r"[-_/:#=?&.]")
"""Separators between the parts of an id."""
MAX_ID_PARTS = 20
DATE_PATTERN = re.compile(r"\d{4}-\d{2}(-\d{2}([ T].*)?)?")


class CandidateField(NamedTuple):
    """A field with one value per document of the corpus."""

    name: str
    values: Floats
    """Numbers of which only the order matters, or category codes; a missing value is the lowest."""
    kinds: int = 0
    """Number of categories, including the missing value; 0 for numbers."""


class QueryNamingField(NamedTuple):
    """A field in which documents name queries by id."""

    name: str
    documents: Mapping[str, set[int]]
    """Positions in the corpus of the documents that name each query, by query id."""


def find_candidate_fields(
    documents: Sequence[Document], corpus: WeightedCorpus
) -> tuple[list[CandidateField], list[str]]:
    """Return ordered and categorical fields, and the names of untested fields.

    Fields are text length, position, id and metadata, including nested mappings. A text or list that differs in
    every document still gives derived fields: whether it is present, its prefix, and the length of the list.
    """
    fields = [CandidateField("length", corpus.lengths.astype(np.float64))]
    positions = np.arange(len(documents), dtype=np.float64)
    fields.append(CandidateField("position in the corpus", positions))
    order = _dense_ranks([natural_sort_key(document.id) for document in documents])
    if not (np.array_equal(order, positions) or np.array_equal(order, positions[::-1])):
        fields.append(CandidateField("order of the id", order))
    derived = [*_prefix_fields("the id", [document.id for document in documents])]
    unread = {}
    for path, sparse in metadata_columns(documents).items():
        name, values = f"metadata `{path}`", [sparse.get(i) for i in range(len(documents))]
        value_field = _value_field(name, values)
        if value_field is not None:
            fields.append(value_field)
        elif len({_value_text(value) for value in values}) > 1:
            unread[name] = path
        derived += _derived_fields(name, values, has_field=value_field is not None)
    unused = [field.name for field in (*fields, *derived)[MAX_FIELDS:]]
    return [*fields, *derived][:MAX_FIELDS], [*(f"`{path}`" for path in unread.values()), *unused]


def metadata_columns(documents: Sequence[Document]) -> dict[str, dict[int, Any]]:
    """Return the values of each metadata field by position in the corpus.

    Nested fields come last.

    >>> metadata_columns([Document("a", "", metadata={"m": {"x": 1}, "n": 2})])
    {'m': {0: ['x']}, 'n': {0: 2}, 'm.x': {0: 1}}
    """
    columns: dict[tuple[int, str], dict[int, Any]] = {}
    for i, document in enumerate(documents):
        if isinstance(document.metadata, Mapping):
            for depth, path, value in _flatten_metadata(document.metadata):
                columns.setdefault((depth, path), {})[i] = value
    return {path: columns[depth, path] for depth, path in sorted(columns, key=lambda key: key[0])}


def _flatten_metadata(metadata: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[int, str, Any]]:
    for name, value in metadata.items():
        nested = isinstance(value, Mapping)
        yield depth, f"{before}{name}", [str(key) for key in value] if nested else value
        if nested and depth < MAX_NESTING_DEPTH:
            yield from _flatten_metadata(value, f"{before}{name}.", depth + 1)


def _value_field(name: str, values: Sequence[Any]) -> CandidateField | None:
    """Return a field of the values themselves, or None.

    Lists must have few distinct values.
    """
    lists = any(map(_is_list, values))
    plain = [value if isinstance(value, str | int | float) or value is None else _value_text(value) for value in values]
    field = build_metadata_field(name, plain)
    return None if field is None or (lists and not field.kinds) else field


def _derived_fields(name: str, values: Sequence[Any], *, has_field: bool) -> Iterator[CandidateField]:
    """Yield fields derived from the values: list length, presence and prefix.

    `has_field` says that the values are already a field themselves; only the list length is derived then.
    """
    if any(map(_is_list, values)):
        sizes = [len(value) if _is_list(value) else int(not _is_missing(value)) for value in values]
        size_field = build_metadata_field(f"how many {name} has", sizes)
        yield from () if size_field is None else (size_field,)
        return
    if has_field:
        return
    presence = np.array([not _is_missing(value) for value in values], np.float64)
    if 0 < presence.sum() < len(presence):
        yield CandidateField(f"presence of {name}", presence, 2)
    yield from _prefix_fields(name, values)


def _prefix_fields(name: str, values: Sequence[Any]) -> Iterator[CandidateField]:
    stems = [text_prefix(value) if isinstance(value, str) else "" for value in values]
    field = build_metadata_field(f"beginning of {name}", stems)
    if field is not None and field.kinds and len(set(stems) - {""}) > 1:
        yield field


def text_prefix(text: str) -> str:
    """Return a text up to its first digit, slash or colon; of a URL the host.

    >>> text_prefix("gold-17"), text_prefix("https://gold.example/17"), text_prefix("web/a/b")
    ('gold-', 'gold.example', 'web')
    """
    return re.split(r"[0-9/:]", re.sub(r"^[a-z+]+://", "", text), maxsplit=1)[0]


def find_query_naming_fields(documents: Sequence[Document], queries: Container[str]) -> list[QueryNamingField]:
    """Return the metadata fields, or the id, in which documents name queries."""
    fields = []
    for path, sparse in {
        "": {i: document.id for i, document in enumerate(documents)},
        **metadata_columns(documents),
    }.items():
        named: dict[str, set[int]] = {}
        for i, value in sparse.items():
            for part in _possible_ids(value):
                if part in queries:
                    named.setdefault(part, set()).add(i)
        if len(named) >= MIN_QUERIES_NAMED:
            fields.append(QueryNamingField(f"metadata `{path}`" if path else "the id", named))
    return fields


def _possible_ids(value: Any) -> Iterator[str]:
    """Yield every part of a value that could be an id.

    >>> sorted(set(_possible_ids("gold-q-1, q2")))
    ['1', 'gold', 'gold-q', 'gold-q-1', 'gold-q-1, q2', 'q', 'q-1', 'q2']
    """
    for item in value if _is_list(value) else (value,):
        text = str(item)
        yield text
        for part in ID_SEPARATORS.split(text) if isinstance(item, str) else ():
            yield part
            yield from ID_PART_SEPARATORS.split(part, MAX_ID_PARTS)
            for joint, _ in zip(ID_PART_SEPARATORS.finditer(part), range(MAX_ID_PARTS), strict=False):
                yield part[: joint.start()]
                yield part[joint.end() :]


def build_metadata_field(name: str, values: Sequence[Any]) -> CandidateField | None:
    """Build a field from metadata values.

    None if the values are neither ordered nor few, or are all equal.

    >>> build_metadata_field("year", ["1999", None, 2005]).values.tolist()
    [1.0, 0.0, 2.0]
    >>> build_metadata_field("title", ["one", "two", "three"]) is None
    True
    >>> build_metadata_field("kind", ["a", "b"] * 5).kinds
    3
    """
    known_values = [value for value in values if not _is_missing(value)]
    if any(not isinstance(value, str | int | float) for value in known_values) or not known_values:
        return None
    numbers = _to_floats(known_values)
    distinct = set(numbers if numbers is not None else known_values)
    if len(distinct) + (len(known_values) < len(values)) < 2:
        return None
    often = len(known_values) / len(distinct) >= MIN_DOCUMENTS_PER_CATEGORY
    if often and len(distinct) <= (MAX_CATEGORIES if numbers is None else MAX_NUMERIC_CODES):
        codes = {value: code for code, value in enumerate(dict.fromkeys(map(str, known_values)), 1)}
        coded = np.array([0 if _is_missing(value) else codes[str(value)] for value in values], np.float64)
        return CandidateField(name, coded, len(codes) + 1)
    if numbers is None:
        if not all(isinstance(value, str) and DATE_PATTERN.fullmatch(value) for value in known_values):
            return None
        numbers = _dense_ranks(known_values).tolist()
    ordered = iter(_dense_ranks(numbers) + 1)
    return CandidateField(name, np.array([0.0 if _is_missing(value) else next(ordered) for value in values]))


def natural_sort_key(name: str) -> tuple[tuple[str, int], ...]:
    """Return a sort key that orders numbers inside ids by value.

    >>> sorted(["d10", "d9", "c1"], key=natural_sort_key)
    ['c1', 'd9', 'd10']
    """
    return tuple((text, int(number or -1)) for text, number in re.findall(r"([^0-9]*)([0-9]*)", name) if text or number)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset | np.ndarray)


def _value_text(value: Any) -> str:
    return ", ".join(sorted(map(str, value))) if _is_list(value) else "" if value is None else str(value)


def _is_missing(value: Any) -> bool:
    if _is_list(value):
        return len(value) == 0
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _to_floats(values: Sequence[Any]) -> list[float] | None:
    try:
        numbers = [float(value) for value in values]
    except (ValueError, OverflowError):
        return None
    return None if any(map(math.isnan, numbers)) else numbers


def _dense_ranks(keys: Sequence[Any]) -> Floats:
    """Return the rank of each key among the distinct keys."""
    ranks: Mapping[Any, int] = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([ranks[key] for key in keys], np.float64)
