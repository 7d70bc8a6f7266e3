"""Vectors as rows of an array."""

from __future__ import annotations

import numpy as np

from ragauge.core.protocols import Vectors


def to_unit_rows(vectors: Vectors) -> Vectors:
    """Scale rows to length 1, so that an inner product is a cosine; a row of zeros stays as it is.

    >>> to_unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)).round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
