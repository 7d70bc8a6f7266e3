"""Retrievers for the recorded outputs: deterministic, without a library."""

from __future__ import annotations


def reverse(query: str, k: int) -> list[str]:
    """Return documents d00000, d00001, … rotated by the length of the query."""
    start = len(query) % 50
    return [f"d{(start + i) % 200:05d}" for i in range(k)]
