"""Inputs of a gain: a corpus before and after, its queries, and the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge.compute.progress import ProgressCallback
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, check_count
from ragauge.core.protocols import Chat, Embedder
from ragauge.core.records import Dataset, Run
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.datasets import folders, load
from ragauge.knowledge.gain.terms import NOVELTY_DEFINITIONS
from ragauge.measures.conventions import Convention
from ragauge.runs.inputs import load_documents, open_run

ATTRIBUTION_METHODS = ("auto", "rebuilt", "dropped", "none")
DEFAULT_BATCH_SIZE = 10


@dataclass(frozen=True)
class GainSettings:
    """Settings of a gain."""

    weights: Mapping[str, float] | None = None
    """Weights by term; by default a third each for recall@k, context_recall and novelty."""
    k: int = 10
    convention: str | Convention = "default"
    chat: str | Chat | Any = LEXICAL_JUDGE
    """Judge of context_recall."""
    judging: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `judge`, including the `folder` in which replies are saved."""
    embedder: str | Embedder = "wordllama"
    """Embedder for novelty."""
    novelty: str = "mean"
    """Definition of novelty: mean, least or lexical."""
    attribution: str = "auto"
    """rebuilt, dropped or none; auto uses the exact method unless it is too expensive."""
    batch: int = DEFAULT_BATCH_SIZE
    """Maximum size of the best batch, in documents; 0 for no batch."""
    confidence: float = 0.95
    split: str | None = None
    limit: int | None = None
    """Number of queries used, from the first; None for all."""
    before_run: Any = None
    after_run: Any = None
    """Existing runs to use instead of a system."""
    workers: int = 1
    timeout: float | None = None
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        ranges = {"k": (1, 10**7), "batch": (0, 10**9), "workers": (1, 10_000), "limit": (1, 10**9)}
        for name, (low, high) in ranges.items():
            if name != "limit" or self.limit is not None:
                check_count(name, getattr(self, name), low, high)
        if self.attribution not in ATTRIBUTION_METHODS:
            raise BadInput(f"there is no attribution `{self.attribution}`", hint=", ".join(ATTRIBUTION_METHODS))
        if self.novelty not in NOVELTY_DEFINITIONS:
            raise BadInput(f"there is no novelty `{self.novelty}`", hint=", ".join(NOVELTY_DEFINITIONS))
        if not isinstance(self.confidence, int | float) or not 0 < self.confidence < 1:
            raise BadInput(f"the confidence is {self.confidence!r}", hint="a share, such as 0.95")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Corpus at one time: documents, an object that searches, or its rankings."""

    name: str
    documents: Sequence[Document] | None = None
    live: Any = None
    rankings: Mapping[str, tuple[str, ...]] | None = None
    data: Dataset | None = None
    """Dataset of the snapshot, if it is one."""

    @property
    def texts(self) -> dict[str, str]:
        """Title and text of each document, by id."""
        return {one.id: one.whole for one in self.documents or ()}


@dataclass(frozen=True, eq=False)
class SnapshotPair:
    """Snapshots before and after, the queries, and the difference in documents."""

    before: Snapshot
    after: Snapshot
    data: Dataset
    added: Sequence[Document]
    removed: int
    changed: int
    known: bool
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
        raise BadInput("--after and --add do not go together", hint="--add says what comes to --before")
    if after is None and add is None and after_run is None:
        raise BadInput("nothing says what was added", hint="--add DOCUMENTS, or --after KNOWLEDGE-BASE")
    asked = load(dataset, split=split) if dataset is not None else None
    first = _open_snapshot(before, "before", split)
    if first is None and (asked is not None and before_run is None):
        first = Snapshot(asked.name, asked.documents, data=asked)
    last = _open_snapshot(after, "after", split)
    more = _open_snapshot(add, "add", split)
    if more is not None and more.documents is None:
        raise BadInput("documents that are added have texts", hint="--add new.jsonl, or a list of Documents")
    if first is None and before_run is None:
        raise BadInput("nothing says what was there before", hint="--before KNOWLEDGE-BASE, or --dataset DATASET")
    first = _with_run(first, before_run, "before")
    if last is None and more is not None and after_run is None and first.documents is None:
        raise BadInput("what was there before is a function, which nothing can be added to", hint="give both of them")
    if last is None and more is not None:
        last = Snapshot(f"{first.name} + {more.name}", _merge_documents(first.documents or (), more.documents or ()))
    last = _with_run(last, after_run, "after")
    data = asked or (last.data if last.data is not None else first.data)
    if data is None:
        raise BadInput("nothing says what to ask", hint="--dataset DATASET has queries and judgments")
    known = first.documents is not None and last.documents is not None
    if not known:
        return SnapshotPair(
            first, last, data, [] if more is None else list(more.documents or ()), 0, 0, more is not None
        )
    there = {one.id: one for one in first.documents or ()}
    now = {one.id: one for one in last.documents or ()}
    return SnapshotPair(
        first,
        last,
        data,
        [one for one in last.documents or () if one.id not in there],
        sum(name not in now for name in there),
        sum(name in there and there[name].whole != one.whole for name, one in now.items()),
        known,
    )


def _open_snapshot(thing: Any, option: str, split: str | None) -> Snapshot | None:
    if thing is None:
        return None
    if isinstance(thing, Dataset):
        return Snapshot(thing.name, thing.documents, data=thing)
    if isinstance(thing, str | Path):
        return _read_snapshot(str(thing), option, split)
    if hasattr(thing, "search") or callable(thing):
        return Snapshot(getattr(thing, "__name__", type(thing).__name__), live=thing)
    if isinstance(thing, Sequence):
        return Snapshot(option, _check_unique_ids(load_documents(thing)))
    raise BadInput(
        f"`{option}` cannot be read from {type(thing).__name__}",
        hint="a corpus file, a folder, the name of a dataset, Documents, or something that searches",
    )


def _read_snapshot(place: str, option: str, split: str | None) -> Snapshot:
    """Read a corpus file, a folder of texts or with a corpus, or a dataset by name."""
    path = Path(place)
    if path.is_file():
        documents = load_documents(path)
        if not documents:
            raise BadInput(f"there are no documents in {place}", hint="look whether this is what was meant")
        return Snapshot(path.name, documents)
    if path.is_dir():
        found = folders.find_dataset_folder(path)
        if found is not None and ((found / "qrels.txt").exists() or (found / "qrels").exists()):
            data = load(path, split=split)
            return Snapshot(data.name, data.documents, data=data)
        return Snapshot(folders.dataset_name(path), load_documents(path))
    if path.suffix in (".jsonl", ".tsv", ".gz", ".zst", ".json", ".txt", ".md"):
        raise BadInput("no such file", file=place, hint=f"--{option} is a corpus, a folder or a dataset")
    data = load(place, split=split)
    return Snapshot(data.name, data.documents, data=data)


def _with_run(side: Snapshot | None, run: Any, option: str) -> Snapshot:
    if run is None:
        return side or Snapshot(option)
    found = run if isinstance(run, Run) else open_run(str(run))
    rankings = {
        query: tuple(sorted(scores, key=lambda doc: (scores[doc], doc), reverse=True))
        for query, scores in found.nested.items()
    }
    if side is None:
        return Snapshot(found.name, rankings=rankings)
    return Snapshot(side.name, side.documents, rankings=rankings, data=side.data)


def _check_unique_ids(documents: Sequence[Document]) -> list[Document]:
    seen: set[str] = set()
    for one in documents:
        if one.id in seen:
            raise BadInput(f"the id `{one.id}` comes twice")
        seen.add(one.id)
    return list(documents)


def _merge_documents(before: Sequence[Document], more: Sequence[Document]) -> list[Document]:
    """Merge documents; a new one replaces an old one with the same id."""
    new = {one.id: one for one in more}
    there = {one.id for one in before}
    return [*(new.get(one.id, one) for one in before), *(one for one in more if one.id not in there)]
