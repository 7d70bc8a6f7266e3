"""Dataset as every embedder sees it: documents cut to the same length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ragauge.datasets.asking import asked, themselves
from ragauge.errors import BadInput, UnknownName
from ragauge.records import Dataset, Document

PARTS: Mapping[str, Callable[[Document], str]] = {
    "whole": lambda document: document.whole,
    "text": lambda document: document.text,
    "title": lambda document: document.title,
}
"""Parts of a document that can be embedded, with the function that returns each."""


def part_of(name: str) -> Callable[[Document], str]:
    """Return the function that extracts a part of a document.

    Raise UnknownName for another part.
    """
    if name not in PARTS:
        raise UnknownName("part of a document", name, PARTS, hint=f"there are {', '.join(PARTS)}")
    return PARTS[name]


@dataclass(frozen=True, eq=False)
class View:
    """Documents and queries of a dataset as they are embedded."""

    asked: Dataset
    """Original dataset, limited to the queries that are run and their judgments."""
    documents: list[Document]
    """Documents with only their id and the text to embed."""
    queries: dict[str, str]
    """Judged queries, cut to the same length."""
    part: str
    context: int | None
    """Number of characters kept of each text; None for all."""
    cut: float
    """Share of the documents that are longer."""
    own: frozenset[str]
    """Queries that are also documents of the corpus, with the same id. Finding itself is not a success."""
    notes: list[str]

    @property
    def texts(self) -> dict[str, str]:
        """Document texts by id."""
        return {one.id: one.text for one in self.documents}


def view(dataset: Dataset, *, part: str = "whole", context: int | None = None, limit: int | None = None) -> View:
    """Build the view of a dataset.

    `limit` is the maximum number of queries. BadInput is raised if there are no documents or no judged queries.

    >>> from ragauge.records import Judgments
    >>> data = Dataset("d", [Document("1", "some words", "Title")], {"q": "which words"}, Judgments({"q": {"1": 1}}))
    >>> seen = view(data, context=8)
    >>> seen.documents[0].text, seen.queries, seen.cut
    ('Title so', {'q': 'which wo'}, 1.0)
    """
    taken = part_of(part)
    _refuse(dataset)
    texts = [taken(one) for one in dataset.documents]
    if part == "title" and not any(text.strip() for text in texts):
        raise BadInput(f"no document of {dataset.name} has a title", hint="the parts `whole` and `text` have something")
    limited, notes = asked(dataset, limit)
    judged = {query: text for query, text in limited.queries.items() if query in limited.judgments.nested}
    if not judged:
        raise BadInput(f"no query of {dataset.name} that is asked is judged", hint="quality needs judgments")
    if len(judged) < len(limited.queries):
        notes.append(f"{len(limited.queries) - len(judged)} queries are not judged, and not asked")
    empty = sum(not text.strip() for text in texts)
    if empty:
        notes.append(f"{empty:,} of {len(texts):,} documents have nothing in this part of them")
    own = themselves(dataset, judged)
    if own:
        notes.append(f"{len(own)} queries are themselves documents: each is left out of its own ranking")
    return View(
        limited,
        [Document(one.id, text[:context]) for one, text in zip(dataset.documents, texts, strict=True)],
        {query: text[:context] for query, text in judged.items()},
        part,
        context,
        0.0 if context is None else sum(len(text) > context for text in texts) / len(texts),
        own,
        notes,
    )


def _refuse(dataset: Dataset) -> None:
    if not dataset.documents:
        raise BadInput(f"{dataset.name} has no documents")
    seen: set[str] = set()
    for one in dataset.documents:
        if one.id in seen:
            raise BadInput(f"{dataset.name} has the id `{one.id}` more than once", hint="`ragauge lint` finds them all")
        seen.add(one.id)
