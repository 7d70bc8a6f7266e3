"""Hashes: which changes of the content matter."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from ragauge.core.documents import Document
from ragauge.core.hashes import (
    content_key,
    hash_documents,
    hash_file,
    hash_judgments,
    hash_text,
    hash_vectors,
)
from ragauge.core.records import Judgments

GRADES = {"q2": {"b": 1, "a": 0}, "q1": {"c": 2.0}}
SHUFFLED = {"q1": {"c": 2}, "q2": {"a": 0.0, "b": 1.0}}


def test_hash_judgments_other_row_order_is_equal():
    assert hash_judgments(Judgments(GRADES)) == hash_judgments(Judgments(SHUFFLED))


def test_hash_judgments_other_grade_query_or_subtopic_differs():
    changed = [
        {"q2": {"b": 1, "a": 0}, "q1": {"c": 1}},
        {"q2": {"b": 1, "a": 0}, "q3": {"c": 2}},
        {"q2": {"b": 1}, "q1": {"c": 2}},
        {"q2": {"b": 1, "a": 0, "c": 2}},
    ]
    hashes = {hash_judgments(Judgments(one)) for one in [GRADES, *changed]}
    assert len(hashes) == 5
    with_subtopics = Judgments(GRADES, subtopics={"q1": {"1\tc": 2}})
    assert hash_judgments(with_subtopics) not in hashes


def test_content_key_is_sha256_of_canonical_json():
    parts = [{"b": 1, "a": "é"}, None, [1.5]]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert content_key(*parts) == hashlib.sha256(text.encode()).hexdigest() == hash_text(text)
    assert content_key(*parts, compact=False) == hash_text(json.dumps(parts, sort_keys=True))


def test_hash_documents_depends_on_every_field_and_order():
    one, other = Document("a", "text", "title", {"x": 1}), Document("b", "text")
    corpora = [[one, other], [other, one], [one._replace(title=""), other], [one._replace(metadata={}), other]]
    assert len({hash_documents(documents) for documents in corpora}) == 4


def test_hash_vectors_depends_on_shape_type_and_values():
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    matrices = [matrix, matrix.reshape(3, 2), matrix.astype(np.float64), matrix + 1]
    assert len({hash_vectors(one) for one in matrices}) == 4
    assert hash_vectors(matrix) == hash_vectors(np.asfortranarray(matrix))


def test_hash_file_is_sha256_of_its_bytes(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    assert hash_file(tmp_path / "file") == hashlib.sha256(b"content").hexdigest()
