"""Example of a retriever: a function of a query and k that returns document ids, best first.

This one counts common words.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

CORPUS = Path("data/handbook/corpus.jsonl")


def extract_words(text: str) -> set[str]:
    """Return the words of a text in lower case, without a plural s."""
    return {word.rstrip("s") for word in re.findall(r"\w+", text.lower()) if len(word) > 2}


DOCUMENTS = {
    document["_id"]: extract_words(f"{document['title']} {document['text']}")
    for document in map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines())
}


def retrieve(query: str, k: int) -> list[str]:
    """Return the ids of the k documents that share most words with the query."""
    wanted = extract_words(query)
    return sorted(DOCUMENTS, key=lambda name: (-len(wanted & DOCUMENTS[name]), name))[:k]
