"""Inputs of a gain: a corpus before and after, its queries, and the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypedDict

from ragauge.compute.progress import ProgressCallback, no_progress
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.protocols import Chat, Embedder
from ragauge.core.records import Dataset
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.core.settings import Above, AtLeast, AtMost, Below, OneOf, check_settings, unique_by
from ragauge.datasets import load
from ragauge.judging.session import JudgingSettings
from ragauge.knowledge.gain.terms import NOVELTY_DEFINITIONS
from ragauge.measures.conventions import Convention
from ragauge.runs.inputs import open_run
from ragauge.runs.texts import load_dataset_or_corpus, load_documents


@dataclass(frozen=True)
class GainSettings:
    weights: Mapping[str, float] | None = None
    """Weights by term; by default a third each for recall@k, context_recall and novelty."""
    k: Annotated[int, AtLeast(1), AtMost(10_000_000)] = 10
    convention: str | Convention = "default"
    chat: str | Chat | Any = LEXICAL_JUDGE
    """Judge of context_recall."""
    judging: JudgingSettings = field(default_factory=JudgingSettings)
    """Settings of this judge."""
    folder: str | Path | None = None
    """Folder in which replies of the judge are saved."""
    embedder: str | Embedder = "wordllama"
    """Embedder for novelty."""
    novelty: Annotated[str, OneOf(NOVELTY_DEFINITIONS)] = "mean"
    """Definition of novelty: mean, least or lexical."""
    confidence: Annotated[float, Above(0), Below(1)] = 0.95
    split: str | None = None
    max_queries: Annotated[int, AtLeast(1)] | None = None
    """Number of queries used, from the first; None for all."""
    before_run: Any = None
    after_run: Any = None
    """Existing runs to use instead of a system."""
    workers: Annotated[int, AtLeast(1), AtMost(10_000)] = 1
    timeout: Annotated[float, Above(0)] | None = None
    progress: ProgressCallback = no_progress

    def __post_init__(self) -> None:
        check_settings(self)


class GainOptions(TypedDict, total=False):
    """Keyword arguments of `gain`: the fields of `GainSettings`."""

    weights: Mapping[str, float] | None
    k: int
    convention: str | Convention
    chat: str | Chat | Any
    judging: JudgingSettings
    folder: str | Path | None
    embedder: str | Embedder
    novelty: str
    confidence: float
    split: str | None
    max_queries: int | None
    before_run: Any
    after_run: Any
    workers: int
    timeout: float | None
    progress: ProgressCallback


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Corpus at one time: documents, an object that searches, or its rankings."""

    name: str
    documents: Sequence[Document] | None = None
    searcher: Any = None
    rankings: Mapping[str, tuple[str, ...]] | None = None
    data: Dataset | None = None
    """Dataset of the snapshot, if it is one."""

    @property
    def texts(self) -> dict[str, str]:
        """Title and text of each document, by id."""
        return {document.id: document.whole for document in self.documents or ()}


@dataclass(frozen=True, eq=False)
class SnapshotPair:
    """Snapshots before and after, the queries, and the difference in documents."""

    before: Snapshot
    after: Snapshot
    data: Dataset
    added: Sequence[Document]
    removed: int
    changed: int
    knows_added: bool
    """Whether the added documents are known."""


def open_snapshots(
    before: Any,
    after: Any,
    add: Any,
    dataset: Any,
    *,
    split: str | None = None,
    before_run: Any = None,
    after_run: Any = None,
) -> SnapshotPair:
    """Open the snapshots from the inputs.

    Raise BadInput for an incomplete combination.
    """
    if after is not None and add is not None:
        raise BadInput(
            "--after and --add are mutually exclusive", hint="--add names documents that are added to --before"
        )
    if after is None and add is None and after_run is None:
        raise BadInput("no added documents given; expected --add or --after", hint="add `--add new.jsonl`")
    query_dataset = load(dataset, split=split) if dataset is not None else None
    first = _open_snapshot(before, "before", split)
    if first is None and (query_dataset is not None and before_run is None):
        first = Snapshot(query_dataset.name, query_dataset.documents, data=query_dataset)
    last = _open_snapshot(after, "after", split)
    addition = _open_snapshot(add, "add", split)
    if addition is not None and addition.documents is None:
        raise BadInput("--add must be documents, not a retriever", hint="--add new.jsonl, or a list of Documents")
    if first is None and before_run is None:
        raise BadInput("no corpus before given", hint="--before CORPUS, or --dataset DATASET")
    first = _with_run(first, before_run, "before")
    if last is None and addition is not None and after_run is None and first.documents is None:
        raise BadInput("documents cannot be added to a retriever", hint="give the retriever after as well")
    if last is None and addition is not None:
        last = Snapshot(
            f"{first.name} + {addition.name}", _merge_documents(first.documents or (), addition.documents or ())
        )
    last = _with_run(last, after_run, "after")
    data = query_dataset or (last.data if last.data is not None else first.data)
    if data is None:
        raise BadInput("no queries given", hint="--dataset DATASET, with queries and judgments")
    has_documents = first.documents is not None and last.documents is not None
    if not has_documents:
        return SnapshotPair(
            first, last, data, [] if addition is None else list(addition.documents or ()), 0, 0, addition is not None
        )
    before_documents = {document.id: document for document in first.documents or ()}
    after_documents = {document.id: document for document in last.documents or ()}
    return SnapshotPair(
        first,
        last,
        data,
        [document for document in last.documents or () if document.id not in before_documents],
        sum(name not in after_documents for name in before_documents),
        sum(
            name in before_documents and before_documents[name].whole != document.whole
            for name, document in after_documents.items()
        ),
        has_documents,
    )


def _open_snapshot(source: Any, option: str, split: str | None) -> Snapshot | None:
    if source is None:
        return None
    if isinstance(source, Dataset):
        return Snapshot(source.name, source.documents, data=source)
    if isinstance(source, str | Path):
        return _read_snapshot(str(source), split)
    if hasattr(source, "search") or callable(source):
        return Snapshot(getattr(source, "__name__", type(source).__name__), searcher=source)
    if isinstance(source, Sequence):
        return Snapshot(option, unique_by(load_documents(source), attrgetter("id"), "document"))
    raise BadInput(
        f"`{option}` cannot be read from {type(source).__name__}",
        hint="a corpus file, a folder, the name of a dataset, Documents, or a retriever",
    )


def _read_snapshot(source: str, split: str | None) -> Snapshot:
    """Read a corpus file, a folder of texts or with a corpus, or a dataset by name."""
    data = load_dataset_or_corpus(source, split)
    if not data.documents and not data.queries:
        raise BadInput(f"no documents in {source}", hint="check the path and the file format")
    return Snapshot(data.name, data.documents, data=data if data.queries else None)


def _with_run(snapshot: Snapshot | None, run: Any, option: str) -> Snapshot:
    if run is None:
        return snapshot or Snapshot(option)
    opened_run = open_run(run)
    rankings = {
        query: tuple(sorted(scores, key=lambda doc: (scores[doc], doc), reverse=True))
        for query, scores in opened_run.nested.items()
    }
    if snapshot is None:
        return Snapshot(opened_run.name, rankings=rankings)
    return Snapshot(snapshot.name, snapshot.documents, rankings=rankings, data=snapshot.data)


def _merge_documents(before: Sequence[Document], more: Sequence[Document]) -> list[Document]:
    """Merge documents; a new one replaces an old one with the same id."""
    new = {document.id: document for document in more}
    old_ids = {document.id for document in before}
    return [
        *(new.get(document.id, document) for document in before),
        *(document for document in more if document.id not in old_ids),
    ]
