"""Queries with their relevant documents and no corpus, for systems that bring their own index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets.queries import tags_from_judgments
from ragauge.files.json_files import read_json_lines, read_rig
from ragauge.files.readers import detect_format
from ragauge.files.source import InputFile

GROUND_TRUTH_EXAMPLE = '[("How do I reset my password?", "doc_12")]'


def dataset_from_pairs(pairs: Any) -> Dataset:
    """Build a dataset without a corpus from `[(query, id), …]`.

    See `parse_ground_truth`.
    """
    texts, grades = parse_ground_truth(pairs)
    tags = {query: tags_from_judgments(docs) for query, docs in grades.items()}
    return Dataset("queries", [], texts, Judgments(grades, source="a list"), tags=tags)


def read_rig_file(path: Path) -> Dataset:
    """Read a dataset without a corpus from rig's JSONL.

    Fields are `query_id`, `query`, `relevant_docs` and `reference_answer`.
    """
    source = InputFile(str(path))
    if detect_format(source) != "rig":
        raise BadInput(
            "not a dataset; expected a folder, or lines of JSON with query_id, query and relevant_docs",
            file=source.label,
            hint='write {"query_id": "q1", "query": "How?", "relevant_docs": {"doc_12": 1}}',
        )
    judgments = read_rig(source)
    texts: dict[str, str] = {}
    answers: dict[str, str] = {}
    for line, row in read_json_lines(source):
        query, text = str(row["query_id"]), row.get("query")
        if not isinstance(text, str) or not text.strip():
            raise BadInput(f"query `{query}` has no text; expected one in `query`", file=source.label, line=line)
        texts[query] = text
        if isinstance(row.get("reference_answer"), str):
            answers[query] = row["reference_answer"]
    tags = {query: tags_from_judgments(judgments.nested[query]) for query in texts}
    return Dataset(source.stem, [], texts, judgments, answers, tags, about=source.label, origin=str(path.resolve()))


def parse_ground_truth(ground_truth: Any) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
    """Parse `[(query, id), …]` or a mapping into the texts and grades of queries.

    Instead of an id there may be `[ids]` or `{id: grade}`. Tuples with the same query become one query with all
    their documents; `describe_repeated` returns a note on that.

    >>> parse_ground_truth([("How?", "a"), ("How?", "b"), ("Why?", {"c": 2})])[1]
    {'q1': {'a': 1.0, 'b': 1.0}, 'q2': {'c': 2.0}}
    """
    names: dict[str, str] = {}
    grades: dict[str, dict[str, float]] = {}
    for at, pair in enumerate(list_pairs(ground_truth), 1):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise BadInput(f"ground truth {at}: expected (query, id), got {pair!r}", hint=GROUND_TRUTH_EXAMPLE)
        text, right = pair
        query_grades = grades.setdefault(names.setdefault(text, f"q{len(names) + 1}"), {})
        graded = (
            right
            if isinstance(right, Mapping)
            else dict.fromkeys([right] if isinstance(right, str | int) else right, 1.0)
        )
        for doc, grade in graded.items():
            query_grades[str(doc)] = max(float(grade), query_grades.get(str(doc), float(grade)))
    if not grades:
        raise BadInput("the ground truth is empty", hint=GROUND_TRUTH_EXAMPLE)
    return {name: text for text, name in names.items()}, grades


def describe_repeated(pairs: Sequence[Any]) -> list[str]:
    """Return a note if several tuples of a ground truth have the same query.

    >>> describe_repeated([("How?", "a"), ("How?", "b")])
    ['2 tuples are 1 query: tuples with the same query are scored as one query with all their documents (`How?`)']
    """
    texts = Counter(pair[0] for pair in pairs)
    if len(texts) == len(pairs):
        return []
    number = f"{len(texts):,} {'query' if len(texts) == 1 else 'queries'}"
    return [
        f"{len(pairs):,} tuples are {number}: tuples with the same query are scored as one query with all their "
        f"documents (`{texts.most_common(1)[0][0][:80]}`)"
    ]


def list_pairs(ground_truth: Any) -> list[Any]:
    """Return the pairs of a ground truth given as a list, a mapping or a generator."""
    if isinstance(ground_truth, Mapping):
        return list(ground_truth.items())
    if isinstance(ground_truth, Iterable) and not isinstance(ground_truth, str | bytes):
        return list(ground_truth)
    raise BadInput(f"ground truth cannot be read from {type(ground_truth).__name__}", hint=GROUND_TRUTH_EXAMPLE)
