"""Vectors as rows of an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.protocols import Vectors


class InvalidVectors(BadInput):
    """Embedder output that is not one vector per text. No single text causes this."""


def check_vectors(output: object, n: int, name: str) -> Vectors:
    """Return the output of an embedder for `n` texts as an array; raise InvalidVectors unless it is a row per text.

    The type of floating-point numbers stays; other numbers become single precision.

    >>> check_vectors([[0, 1]], 1, "mine").dtype.name
    'float32'
    """
    try:
        vectors: Any = np.asarray(output)
        if vectors.dtype.kind != "f":
            vectors = np.asarray(output, np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidVectors(f"the embedder `{name}` must return rows of numbers ({error})") from None
    if n and (vectors.ndim != 2 or len(vectors) != n or not vectors.shape[1]):
        raise InvalidVectors(
            f"the embedder `{name}` must return one vector per text, got an array of shape {vectors.shape} for "
            f"{n:,} text{'s' if n != 1 else ''}"
        )
    return vectors  # type: ignore[no-any-return]


def to_unit_rows(vectors: Vectors) -> Vectors:
    """Scale rows to length 1, so that an inner product is a cosine; a row of zeros stays as it is.

    >>> to_unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)).round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
