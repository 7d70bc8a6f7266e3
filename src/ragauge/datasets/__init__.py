"""Datasets: corpus, queries and judgments, loaded by name, from a folder or from a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.core.text import check_id, has_surrogate, replace_lone_surrogates, warn_replaced
from ragauge.datasets import folders
from ragauge.datasets.folders import data_folder, find_named_folder, is_builtin_name, list_json_files
from ragauge.files.source import InputFile


class DatasetListing(NamedTuple):
    """Name, kind and description of a dataset that can be loaded."""

    name: str
    kind: str
    about: str


def load(name: Any, *, split: str | None = None) -> Dataset:
    """Load a dataset by name, or from a folder, a file or a list of queries.

    Names are `pydocs`, `synthetic:needles`, `stix:FILE` and the folders in RAGAUGE_DATA. A folder may lack a corpus.
    Lists of `(query, id)` and rig's JSONL files give datasets without one. `split` selects the judgments of a BEIR
    folder.

    >>> load("synthetic:needles(documents=50, queries=5)")
    Dataset('synthetic:needles(documents=50, queries=5)', 50 documents, 5 queries)
    """
    if isinstance(name, Dataset):
        _check_no_split(name.name, split)
        return _replace_dataset_surrogates(name)
    if not isinstance(name, str | Path):
        _check_no_split("a list of queries", split)
        from ragauge.datasets import query_sets

        return _replace_dataset_surrogates(query_sets.dataset_from_pairs(name))
    text = str(name)
    if is_builtin_name(text):
        _check_no_split(text, split)
    if text == "pydocs":
        from ragauge.datasets import python_docs

        return python_docs.load_python_docs()
    if text.startswith("synthetic:"):
        from ragauge.datasets import synthetic

        return synthetic.load_synthetic(text)
    if text.startswith("stix:"):
        from ragauge.datasets import mitre_attack

        return mitre_attack.load_stix_by_name(text)
    if Path(text).is_dir():
        return folders.load_folder(Path(text), split=split)
    if Path(text).is_file():
        _check_no_split(text, split)
        from ragauge.datasets import query_sets

        return query_sets.read_rig_file(Path(text))
    named_folder = find_named_folder(text)
    if named_folder is not None:
        return folders.load_folder(named_folder, split=split)
    if os.sep in text or text.endswith(".jsonl"):
        raise BadInput("no such file or folder", file=text)
    dataset_names = [listing.name for listing in list_datasets()]
    raise UnknownName(
        "dataset", text, dataset_names, hint="list all with `ragauge datasets`, or set RAGAUGE_DATA to your folder"
    )


def _check_no_split(dataset: str, split: str | None) -> None:
    if split is not None:
        raise BadInput(
            f"`{dataset}` has no splits; expected a BEIR folder, got split `{split}`", hint="remove the split"
        )


def _replace_dataset_surrogates(dataset: Dataset) -> Dataset:
    """Replace unpaired surrogates in texts and reject them in ids.

    A dataset without any is returned unchanged.
    """
    for name in (*(document.id for document in dataset.documents), *dataset.queries):
        check_id(str(name), "the id", file=dataset.name)
    wrong = sum(has_surrogate(document.text) or has_surrogate(document.title) for document in dataset.documents)
    wrong += sum(map(has_surrogate, dataset.queries.values()))
    if not wrong:
        return dataset
    warn_replaced(wrong, dataset.name)
    documents = [
        document._replace(text=replace_lone_surrogates(document.text), title=replace_lone_surrogates(document.title))
        for document in dataset.documents
    ]
    queries = {query: replace_lone_surrogates(text) for query, text in dataset.queries.items()}
    return replace(dataset, documents=documents, queries=queries)


def judgments_by_name(name: str) -> str | Judgments:
    """Return the judgments of the dataset with this name, or the name unchanged.

    The name is returned unchanged if it is `-`, an existing path, or not a known dataset.
    """
    if name == "-" or Path(name).exists():
        return name
    is_dataset_name = is_builtin_name(name) or find_named_folder(name) is not None
    return load(name).judgments if is_dataset_name else name


def list_datasets() -> Iterator[DatasetListing]:
    """List all datasets that can be loaded by name."""
    yield DatasetListing(
        "pydocs", "built in", "documentation of Python's standard library, and queries in users' language"
    )
    from ragauge.datasets.synthetic import SYNTHETIC_KINDS
    from ragauge.files.stix import is_stix_bundle

    for name, about in SYNTHETIC_KINDS.items():
        yield DatasetListing(f"synthetic:{name}", "generated", about)
    yield DatasetListing("stix:FILE", "file", "a STIX bundle of MITRE ATT&CK, with questions from its relations")
    folder = data_folder()
    if folder is not None:
        for entry in sorted(folder.iterdir()):
            if not entry.is_dir():
                continue
            if folders.find_dataset_folder(entry) is not None:
                yield DatasetListing(entry.name, "folder", str(entry))
            files = list_json_files(entry)
            if len(files) == 1 and is_stix_bundle(InputFile(str(files[0]))):
                yield DatasetListing(f"stix:{entry.name}", "file", str(files[0]))
