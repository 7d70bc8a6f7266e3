"""Documents, query texts and reference answers: of a corpus argument, or of the dataset that runs were made on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragauge.core.documents import Document, to_documents
from ragauge.core.errors import BadInput, RagaugeError
from ragauge.core.hashes import hash_documents
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets import folders, load
from ragauge.files.documents import (
    TEXT_ENDINGS,
    LoadedCorpus,
    find_corpus_files,
    find_texts_folder,
    read_corpus,
)
from ragauge.runs.input_kinds import InputKind, is_kind, is_path


def load_corpus(source: Any) -> LoadedCorpus:
    """Load the documents of a file, folder, dataset, dataset name, STIX bundle, or objects in memory.

    This is the one reader of documents. What cannot be read is an error.
    """
    if isinstance(source, Dataset):
        return LoadedCorpus(source.name, list(source.documents))
    if not isinstance(source, str | Path):
        if not isinstance(source, Iterable):
            raise BadInput(
                f"a corpus cannot be read from {type(source).__name__}",
                hint="pass a file, a folder, the name of a dataset, a Dataset or Documents",
            )
        return LoadedCorpus("documents", list(to_documents(source)))
    name = _dataset_name(source)
    path = Path(source) if name is None else folders.find_named_folder(name)
    if path is None:
        dataset = load(name)
        return LoadedCorpus(dataset.name, list(dataset.documents))
    return read_corpus(path)


def _dataset_name(source: str | Path) -> str | None:
    """Return the name of a dataset or of a STIX bundle; None for another path."""
    if is_kind(source, InputKind.DATASET) and not Path(source).is_dir():
        return f"stix:{source}" if Path(source).exists() else str(source)
    return None


def load_documents(source: Any) -> list[Document]:
    """Load the documents of a corpus; see `load_corpus`."""
    return load_corpus(source).documents


def load_dataset_or_corpus(source: Any, split: str | None = None) -> Dataset:
    """Load a dataset; a corpus without queries and judgments becomes a dataset without them."""
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str | Path) and is_kind(source, InputKind.DATASET):
        return load(_dataset_name(source) or source, split=split)
    corpus = load_corpus(source)
    return Dataset(corpus.name, corpus.documents, {}, Judgments({}))


def describe_unread_files(source: Any) -> list[str]:
    """Return a note that names the files of a folder that are not documents."""
    if not isinstance(source, str | Path) or not Path(source).is_dir():
        return []
    try:
        folder = find_texts_folder(Path(source))
        corpus_files = find_corpus_files(folder)
    except BadInput:
        return []
    if not corpus_files.unread:
        return []
    names = [file.relative_to(folder).as_posix() for file in corpus_files.unread]
    examples = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    files = "1 file was" if len(names) == 1 else f"{len(names):,} files were"
    documents = f"{', '.join(TEXT_ENDINGS)} files" if corpus_files.is_text else f"{corpus_files.files[0].name}"
    return [f"{source}: {files} not read ({examples}); only {documents} are documents"]


@dataclass(frozen=True)
class DocumentTexts:
    """Documents, query texts and reference answers, as far as they are available."""

    documents: Sequence[Document] | None = None
    queries: Mapping[str, str] | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    """Reference answers by query id; empty if the dataset has none."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Reason why a field (`documents`, `queries`) is None, by field name; empty if unknown."""


def load_texts(qrels: Any, documents: Any, queries: Any, split: str | None = None) -> DocumentTexts:
    """Load documents and queries, by default those of the dataset with the judgments."""
    judged_dataset = find_dataset(qrels, split) if documents is None or queries is None else None
    if documents is not None:
        dataset = find_dataset(documents, split)
        if dataset is not None:
            queries = dataset.queries if queries is None else queries
        documents = load_documents(documents) if dataset is None else dataset.documents
    if isinstance(queries, str | Path):
        queries = folders.read_queries(Path(queries))
    if judged_dataset is not None:
        documents = judged_dataset.documents if documents is None else documents
        queries = judged_dataset.queries if queries is None else queries
    return DocumentTexts(None if documents is None else list(documents), queries)


def find_dataset(source: Any, split: str | None = None) -> Dataset | None:
    """Return a dataset from an object, folder or name; None if it is not one."""
    if isinstance(source, Dataset):
        return source
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    if is_path(str(source)) and not (path.is_dir() and folders.find_dataset_folder(path) is not None):
        return None
    try:
        return load(source, split=split)
    except RagaugeError:
        return None


def find_run_texts(
    manifests: Sequence[Mapping[str, Any]],
    texts: DocumentTexts,
    name: str = "",
    *,
    advice: str = "pass its path with --dataset",
) -> DocumentTexts:
    """Load the texts of the dataset that run folders were made on.

    The dataset is searched at the path stored in the manifests, then by name. Its documents are used only if their hash
    matches the stored one; otherwise `absent` says why there are none. `advice` is for a dataset that has moved.
    """
    datasets = [manifest.get("dataset") or {} for manifest in manifests]
    origins = [str(manifest.get("origin") or "") for manifest in manifests]
    if datasets and all(dataset.get("documents") == 0 for dataset in datasets):
        return _load_texts_without_corpus(origins, texts)
    hashes = {dataset.get("documents_hash") for dataset in datasets} - {None}
    names = [name, *(str(dataset.get("name") or "") for dataset in datasets)]
    reason = ""
    for source in dict.fromkeys(filter(None, [*origins, *names])):
        try:
            dataset_texts = _load_dataset_texts(source)
        except RagaugeError as error:
            reason = reason or (
                f"{source} no longer exists; {advice}"
                if Path(source).is_absolute() and not Path(source).exists()
                else f"the dataset {source} cannot be loaded ({error.message}); {advice}"
            )
            continue
        if dataset_texts.documents is not None and not hashes - {hash_documents(dataset_texts.documents)}:
            return replace(dataset_texts, queries=texts.queries or dataset_texts.queries)
        reason = f"the documents of {source} are not those that the runs were made on"
    return DocumentTexts(None, texts.queries, absent={"documents": reason, "queries": reason} if reason else {})


def _load_texts_without_corpus(origins: Sequence[str], texts: DocumentTexts) -> DocumentTexts:
    """Load queries and reference answers of a dataset without a corpus, if it exists."""
    for origin in origins:
        if Path(origin).is_absolute() and Path(origin).exists():
            with contextlib.suppress(RagaugeError):
                dataset = load(origin)
                return DocumentTexts(None, texts.queries or dataset.queries, dataset.answers)
    return DocumentTexts(None, texts.queries)


def _load_dataset_texts(source: str) -> DocumentTexts:
    """Load the texts of a dataset by its absolute path or its name."""
    if Path(source).is_absolute():
        folder = Path(source)
        return DocumentTexts(folders.read_documents(folder), folders.read_queries(folder), folders.read_answers(folder))
    dataset = load(source)
    return DocumentTexts(dataset.documents, dataset.queries, dataset.answers)
