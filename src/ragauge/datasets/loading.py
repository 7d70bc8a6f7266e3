"""Datasets by name: the one that ships, the synthetic ones, and the collections of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ragauge.datasets import attack, folders, synthetic
from ragauge.datasets.places import collection, data_folder, json_files
from ragauge.errors import BadInput, UnknownName
from ragauge.formats.files import Source
from ragauge.formats.stix import is_bundle
from ragauge.records import Dataset, Judgments


class Listed(NamedTuple):
    """A dataset that can be loaded."""

    name: str
    kind: str
    about: str


def load(name: str | Path | Dataset, *, split: str | None = None) -> Dataset:
    """A dataset by name (`pydocs`, `synthetic:needles`, `stix:FILE`, one of RAGAUGE_DATA), or from a folder.

    >>> load("synthetic:needles(documents=50, queries=5)")
    Dataset('synthetic:needles(documents=50, queries=5)', 50 documents, 5 queries)
    """
    if isinstance(name, Dataset):
        return name
    text = str(name)
    if text == "pydocs":
        from ragauge.datasets import pydocs

        return pydocs.load()
    if text.startswith("synthetic:"):
        return synthetic.load(text)
    if text.startswith("stix:"):
        return attack.load(text)
    if Path(text).is_dir():
        return folders.load(Path(text), split=split)
    found = collection(text)
    if found is not None:
        return folders.load(found, split=split)
    if os.sep in text:
        raise BadInput("no such folder", file=text)
    known = [one.name for one in listing()]
    raise UnknownName("dataset", text, known, hint="`ragauge datasets` lists them; RAGAUGE_DATA is a folder of more")


def judgments_of(name: str) -> str | Judgments:
    """The judgments of a dataset that is called so, unless a file or a folder is; then the name as it is."""
    if name == "-" or Path(name).exists():
        return name
    known = name == "pydocs" or name.startswith(("synthetic:", "stix:")) or collection(name) is not None
    return load(name).judgments if known else name


def listing() -> Iterator[Listed]:
    """Everything that can be loaded by name."""
    yield Listed("pydocs", "ships", "Python's own documentation, and questions that people ask about it")
    for name, about in synthetic.KINDS.items():
        yield Listed(f"synthetic:{name}", "made", about)
    yield Listed("stix:FILE", "file", "a STIX bundle of MITRE ATT&CK, with questions from its relations")
    folder = data_folder()
    if folder is not None:
        for one in sorted(folder.iterdir()):
            if not one.is_dir():
                continue
            if folders.find(one) is not None:
                yield Listed(one.name, "folder", str(one))
            files = json_files(one)
            if len(files) == 1 and is_bundle(Source(str(files[0]))):
                yield Listed(f"stix:{one.name}", "file", str(files[0]))
