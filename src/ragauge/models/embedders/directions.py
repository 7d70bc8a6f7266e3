"""Vectors at length 1, so that an inner product is a cosine."""

from __future__ import annotations

import numpy as np

from ragauge.core.protocols import Vectors


def unit(vectors: Vectors) -> Vectors:
    """The rows at length 1; one of zeros has no direction, and stays as it is.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)).round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
