"""Meanings of the query tags that ragauge assigns."""

from __future__ import annotations

MEANINGS = {
    "answers": "how many documents are relevant",
    "complexity": "by how much there is to find",
    "overlap": "words shared with the best answer",
}


def explained(tag: str) -> str:
    """Return a tag with its meaning, or the tag alone if it is user-defined.

    >>> explained("answers"), explained("topic")
    ('answers: how many documents are relevant', 'topic')
    """
    return f"{tag}: {MEANINGS[tag]}" if tag in MEANINGS else tag
