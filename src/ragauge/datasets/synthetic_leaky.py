"""Synthetic dataset with a deliberate label leak, after a flaw in a published study; an audit must detect it.

Every document has a random number in its metadata. The relevant documents of a query are those with the highest
numbers, independent of the query. Ranking by that number is perfect, and ranking by text is random. 409 of 500
documents have an exact duplicate, so the order of ties decides which ones a text search finds. There is no target
map.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import nlargest

from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets.queries import tags_from_judgments

LEAKED_FIELD = "hidden"
"""Metadata field that the judgments are derived from."""
TOPICS = """
battery charging, bird migration, bridge repair, cheese aging, city cycling, coral reefs, crop rotation, deep learning,
desert plants, early printing, flood control, forest fires, glacier melt, grid storage, heart surgery, honey bees,
ice cores, jazz history, kelp farming, language change, malaria nets, night trains, ocean currents, paper recycling,
quantum clocks, river dams, solar cells, tidal power, urban heat, volcano watch, water pricing, wind turbines
"""
TITLE_PREFIXES = ("A survey of", "Notes on", "An experiment with", "A model for", "Open questions in", "A history of")
MIDDLE_PHRASES = (
    "compares methods that were used so far",
    "reports what was measured over two years",
    "explains why earlier results differ",
    "lists costs and what they depend on",
    "describes the instruments and their errors",
)
CLOSING_SENTENCES = (
    "More data is needed.",
    "The code is available.",
    "Limits are discussed.",
    "A summary closes the text.",
)
QUESTION_TEMPLATES = ("What is known about {topic}?", "Which texts deal with {topic}?", "Find work on {topic}.")
SHELF_VALUES = ("north", "south", "east", "west")


def make_leaky_dataset(*, documents: int, queries: int, seed: int, name: str, about: str) -> Dataset:
    """Generate the dataset; deterministic for given arguments."""
    rng = random.Random(f"leaky {documents} {seed}")  # noqa: S311 - no secret
    texts = _draw_duplicated_texts(rng, documents)
    rng.shuffle(texts)
    numbers = rng.sample(range(documents * 100), documents)
    generated = [
        Document(
            f"d{position:05}",
            text,
            metadata={
                LEAKED_FIELD: number / (documents * 100),
                "pages": rng.randint(1, 40),
                "shelf": rng.choice(SHELF_VALUES),
            },
        )
        for position, (text, number) in enumerate(zip(texts, numbers, strict=True))
    ]
    topics = [topic.strip() for topic in TOPICS.split(",")]
    questions: dict[str, str] = {}
    grades: dict[str, dict[str, float]] = {}
    for i in range(1, queries + 1):
        query = f"q{i:03}"
        questions[query] = rng.choice(QUESTION_TEMPLATES).format(topic=rng.choice(topics))
        grades[query] = dict.fromkeys(leaked_document_ids(generated, rng.randint(2, min(12, documents // 4))), 1.0)
    return Dataset(
        name=name,
        documents=generated,
        queries=questions,
        judgments=Judgments(grades, source="synthetic:leaky"),
        tags={query: tags_from_judgments(query_grades) for query, query_grades in grades.items()},
        about=about,
    )


def leaked_document_ids(documents: Sequence[Document], n: int) -> list[str]:
    """Return the ids of the n documents with the highest hidden numbers."""
    return [leaked.id for leaked in nlargest(n, documents, key=lambda document: float(document.metadata[LEAKED_FIELD]))]


def _draw_duplicated_texts(rng: random.Random, n: int) -> list[str]:
    """Draw the texts of n documents; 409 of 500 are duplicates.

    Duplicates come in pairs; if their number is odd, one text occurs three times.
    """
    n_duplicates = n * 409 // 500
    texts: list[str] = []
    seen_texts: set[str] = set()
    topics = [topic.strip() for topic in TOPICS.split(",")]
    while len(texts) < n:
        text = (
            f"{rng.choice(TITLE_PREFIXES)} {rng.choice(topics)} {rng.choice(MIDDLE_PHRASES)}. "
            f"{rng.choice(CLOSING_SENTENCES)}"
        )
        if text in seen_texts:  # avoids unplanned duplicates
            text = f"{text} Number {len(texts)} of its series."
        seen_texts.add(text)
        n_left = n_duplicates - len(texts)
        texts.extend([text] * (3 if n_left == 3 else 2 if n_left >= 2 else 1))
    return texts
