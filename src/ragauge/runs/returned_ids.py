"""Compare the document ids that a system returned with those of the dataset."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from ragauge.core.documents import Document
from ragauge.core.records import ScoresByQuery
from ragauge.runs.results import QueryResult

MAX_IDS_COMPARED = 10_000
"""Maximum number of known ids whose spelling is compared with an unknown one."""
MIN_ID_SIMILARITY = 0.75
"""Minimum similarity of two spellings (difflib), from 0 to 1."""


@dataclass(frozen=True)
class ReturnedIds:
    """Document ids that a system returned in the first trial, compared with those of the dataset."""

    total: int
    unknown: int
    """Number of returned ids that are not in the corpus; without a corpus, 0 unless none of them is judged."""
    judged: int
    """Number of returned ids that are judged for some query."""
    example_ids: tuple[Sequence[str], Sequence[str]]
    """Three unknown ids, and three ids of the corpus or of the judgments."""
    has_corpus: bool
    """Whether the dataset has a corpus."""
    nearest: tuple[str, str] | None = None
    """An unknown id, and the known id that is most similar to it; None if none is similar."""

    @classmethod
    def count(
        cls, results: Sequence[QueryResult], documents: Sequence[Document], judgments: ScoresByQuery
    ) -> ReturnedIds:
        """Count the ids of the first trial."""
        docs = [doc for result in results if result.repeat == 0 for doc in result.docs]
        judged = {doc for grades in judgments.values() for doc in grades}
        corpus = {document.id for document in documents}
        unknown = [doc for doc in docs if doc not in (corpus or judged)]
        if not corpus and len(unknown) < len(docs):  # An unjudged document may be in the system's own index.
            unknown = []
        known_ids = [document.id for document in documents[:3]] or list(dict.fromkeys(judged))
        samples = (list(dict.fromkeys(unknown))[:3], sorted(known_ids)[:3])
        pairs = ((name, find_nearest_id(name, corpus or judged)) for name in samples[0])
        nearest = next(((name, nearest_id) for name, nearest_id in pairs if nearest_id is not None), None)
        return cls(len(docs), len(unknown), sum(doc in judged for doc in docs), samples, bool(corpus), nearest)

    @property
    def none_known(self) -> bool:
        """Whether documents were returned and none of them is in the corpus or judged."""
        return self.total > 0 and self.unknown == self.total and not self.judged

    def describe(self) -> str:
        """Return a sentence with the counts and three ids of each side."""
        where = "corpus" if self.has_corpus else "judgments"
        returned, known = (", ".join(f"`{_printable_id(name)}`" for name in ids) for ids in self.example_ids)
        nearest_text = (
            "" if self.nearest is None else "; nearest to `{}`: `{}`".format(*map(_printable_id, self.nearest))
        )
        return (
            f"{self.unknown:,} of {self.total:,} returned ids are not in the {where}; "
            f"returned: {returned}; {where}: {known}{nearest_text}"
        )


def find_nearest_id(name: str, known_ids: Collection[str]) -> str | None:
    """Return the most similar known id: the same file name, or a similar spelling.

    >>> find_nearest_id("docs/bees.md", {"bees.md", "ants.md"}), find_nearest_id("d7", {"d07", "d12"})
    ('bees.md', 'd07')
    """
    by_file: dict[str, str] = {}
    for known_id in sorted(known_ids):
        for part in _id_variants(known_id):
            by_file.setdefault(part, known_id)
    match = next((by_file[part] for part in _id_variants(name) if part in by_file), None)
    if match is not None:
        return match
    similar_ids = difflib.get_close_matches(
        name, list(islice(sorted(known_ids), MAX_IDS_COMPARED)), n=1, cutoff=MIN_ID_SIMILARITY
    )
    return similar_ids[0] if similar_ids else None


def _id_variants(name: str) -> list[str]:
    """Return the id in lower case, its last path part, and that without suffix."""
    lowered = name.lower()
    last = lowered.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return [part for part in (lowered, last, last.rpartition(".")[0]) if part]


def _printable_id(name: str) -> str:
    """Return the first 80 characters of an id, without unpaired surrogates."""
    return name[:80].encode("utf-8", "replace").decode()


ID_HINT = (
    'map the ids: in Python adapt_retriever(system, id="metadata.source"), on the command line '
    "-s 'NAME=module:retriever(id=metadata.source)' or http(url=…, id=metadata.source); if the field differs from the "
    "ids of the corpus, e.g. by a folder, pass a function as id: adapt_retriever(system, id=lambda hit: …)"
)
