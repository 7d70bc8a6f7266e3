"""What the tags mean that ragauge itself gives to queries."""

from __future__ import annotations

MEANINGS = {
    "answers": "how many documents are relevant",
    "complexity": "by how much there is to find",
    "overlap": "words shared with the best answer",
}


def explained(tag: str) -> str:
    """A tag with its meaning, where it has one that is not the user's own.

    >>> explained("answers"), explained("topic")
    ('answers: how many documents are relevant', 'topic')
    """
    return f"{tag}: {MEANINGS[tag]}" if tag in MEANINGS else tag
