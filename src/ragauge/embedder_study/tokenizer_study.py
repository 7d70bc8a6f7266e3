"""Comparison of tokenizers on the same texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress, scoped
from ragauge.core.documents import Document
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, RagaugeError, UnknownName
from ragauge.core.protocols import Tokenizer
from ragauge.core.records import Dataset
from ragauge.core.settings import unique_by
from ragauge.core.specs import parse_spec, redact_spec, split_name
from ragauge.embedder_study.results import TokenizerStats, TokenizerStudy
from ragauge.embedder_study.tokenizer_counts import PROBE_TEXTS, count_corpus_text, count_tokens, model_token_counts
from ragauge.models.optional_attributes import TokenizerAttributes
from ragauge.models.tokenizers import open_tokenizer
from ragauge.output.numbers import pluralise
from ragauge.runs.folder import provenance, utc_now
from ragauge.runs.texts import load_corpus

DEFAULT_TOKENIZERS = (
    "bytes",
    "characters",
    "words",
    "bpe(vocabulary=1000)",
    "bpe(vocabulary=8000)",
    "bpe(vocabulary=32000)",
    "wordpiece(vocabulary=8000)",
    "unigram(vocabulary=8000)",
    "minilm",
    "wordllama",
)
"""Tokenizers compared by default; those that are not installed are left out."""
DOCUMENT_PARTS: Mapping[str, Callable[[Document], str]] = {
    "whole": lambda document: document.whole,
    "text": lambda document: document.text,
    "title": lambda document: document.title,
}
"""Parts of a document that can be tokenized, with the function that returns each."""
DEFAULT_HELD_OUT_SHARE = 0.1
"""Default share of the documents held out if a tokenizer is trained on the corpus."""
MIN_DOCUMENTS_TO_HOLD_OUT = 50
"""Minimum number of documents for holding some out by default."""


class _OpenTokenizer(NamedTuple):
    name: str
    tokenizer: Tokenizer
    learns: bool


class _SplitCorpus(NamedTuple):
    """Corpus split into texts for training and texts for counting."""

    name: str
    training_texts: Sequence[str]
    counted_texts: Sequence[str]


def compare_tokenizers(
    corpus: Any,
    tokenizers: Any = None,
    *,
    token_limit: int | None = None,
    held_out: float | None = None,
    seed: int = 0,
    part: str = "whole",
    probes: Iterable[str] = (),
    progress: ProgressCallback = no_progress,
) -> TokenizerStudy:
    """Tokenize a corpus with several tokenizers and count the tokens.

    `corpus` is a file of documents, a BEIR folder, a folder of texts, the name of a dataset, a Dataset, documents or
    texts. `tokenizers` are descriptions (`bytes`, `bpe(vocabulary=8000)`, `file(path=tokenizer.json)`, `minilm`) or
    objects, one or several. A mapping names them, and so does `mine=bpe(vocabulary=8000)`. If one of them is trained on
    the corpus, a share of the documents (`held_out`, 0.1 by default) is excluded from training, and all tokenizers are
    counted on those. Otherwise trained tokenizers would look better than they are. `held_out=0` trains on all documents
    and counts all. `token_limit` is the maximum number of tokens of the model, by default the tokenizer's own. `part`
    is `whole`, `text` or `title`. `probes` are texts to add to the default probes.

    >>> found = compare_tokenizers(["to be or not to be", "to do is to be"], ["bytes", "words"])
    >>> [(one.tokenizer, one.tokens, one.used) for one in found.tokenizers]
    [('bytes', 32, 10), ('words', 11, 6)]
    """
    if part not in DOCUMENT_PARTS:
        raise UnknownName("part", part, DOCUMENT_PARTS, of="a document")
    extract_part = DOCUMENT_PARTS[part]
    if held_out is not None and not 0 <= held_out < 1:
        raise BadInput(f"held_out must be at least 0 and below 1, got {held_out:g}")
    if seed < 0:
        raise BadInput(f"seed must be at least 0, got {seed}")
    opened, failures = _open_tokenizers(tokenizers)
    progress(Progress("reading"))
    name, documents = _read_corpus(corpus)
    texts = [extract_part(document) for document in documents]
    if not any(text.strip() for text in texts):
        raise BadInput(f"{name} has no texts", hint=f"part is `{part}`" if documents else None)
    learns = any(tokenizer.learns for tokenizer in opened)
    if held_out is None:
        held_out = DEFAULT_HELD_OUT_SHARE if learns and len(texts) >= MIN_DOCUMENTS_TO_HOLD_OUT else 0.0
    split_corpus = _SplitCorpus(name, *_split_texts(texts, held_out if learns else 0.0, seed))
    probe_texts = {**PROBE_TEXTS, **{f"custom {n}" if n > 1 else "custom": text for n, text in enumerate(probes, 1)}}
    rows, failed, notes = _count_all(opened, split_corpus, progress, token_limit=token_limit, probes=probe_texts)
    failures |= failed
    if not rows:
        raise BackendFailed("no tokenizer could be used: " + "; ".join(f"{k}: {v}" for k, v in failures.items()))
    return TokenizerStudy(
        corpus=name,
        documents=len(texts),
        tokenizers=rows,
        failures=failures,
        notes=[*notes, *_training_bias_notes(learns, held_out)],
        provenance={
            "made": utc_now(),
            "part": part,
            "held_out": held_out if learns else None,
            "seed": seed if learns and held_out else None,
            **provenance(),
        },
    )


def _count_all(
    tokenizers: Iterable[_OpenTokenizer],
    texts: _SplitCorpus,
    progress: ProgressCallback,
    *,
    token_limit: int | None,
    probes: Mapping[str, str],
) -> tuple[list[TokenizerStats], dict[str, str], list[str]]:
    """Count with each tokenizer.

    Return the results, failures, and notes on duplicates left out.
    """
    counts = count_corpus_text(texts.counted_texts)
    rows: list[TokenizerStats] = []
    failures: dict[str, str] = {}
    notes: list[str] = []
    same: dict[tuple[Any, ...], str] = {}
    for tokenizer in tokenizers:
        ready, began = tokenizer.tokenizer, time.perf_counter()
        try:
            if tokenizer.learns:
                progress(Progress("training", subject=tokenizer.name))
                ready = open_tokenizer(tokenizer.tokenizer, texts.training_texts)
            seconds = time.perf_counter() - began
            identity = _row_identity(ready, token_limit)
            if identity in same:
                notes.append(f"{tokenizer.name} is left out: it is identical to {same[identity]} on this corpus")
                continue
            same[identity] = tokenizer.name
            stats = count_tokens(
                ready,
                counts,
                token_limit=token_limit,
                probes=probes,
                name=tokenizer.name,
                trained_on=_training_source(*texts) if tokenizer.learns else "",
                progress=scoped(progress, subject=tokenizer.name),
            )
        except BackendFailed as error:
            failures[tokenizer.name] = error.message
            continue
        rows.append(replace(stats, train_seconds=seconds) if tokenizer.learns else stats)
    return rows, failures, notes


def _open_tokenizers(requested: Any) -> tuple[list[_OpenTokenizer], dict[str, str]]:
    """Open the tokenizers.

    Mistakes are raised; missing packages are returned as failures.
    """
    is_default = requested is None
    specs = (
        DEFAULT_TOKENIZERS
        if is_default
        else [requested]
        if isinstance(requested, str) or not isinstance(requested, Iterable)
        else requested
    )
    named = specs.items() if isinstance(specs, Mapping) else [("", tokenizer) for tokenizer in specs]
    tokenizers: list[_OpenTokenizer] = []
    failures: dict[str, str] = {}
    for name, spec in named:
        display_name, tokenizer_spec = _tokenizer_name(name, spec)
        names = [*failures, *(opened.name for opened in tokenizers), display_name]
        unique_by(names, str, "tokenizer", hint=f"give one another name: other={display_name}")
        try:
            tokenizer = open_tokenizer(tokenizer_spec)
        except (MissingExtra, BackendFailed) as error:
            failures[display_name] = f"{error.message}{f' ({error.hint})' if error.hint else ''}"
            continue
        tokenizers.append(_OpenTokenizer(display_name, tokenizer, TokenizerAttributes(tokenizer).fitted is not None))
    if not tokenizers:
        raise _no_tokenizer_error(failures)
    return tokenizers, failures


def _tokenizer_name(name: str, spec: Any) -> tuple[str, Any]:
    """Return the display name of a tokenizer and what to open it from."""
    if not isinstance(spec, str):
        return str(name or getattr(spec, "name", spec)), spec
    label, tokenizer_spec = ("", spec) if name else split_name(spec)
    return str(name) or label or str(redact_spec(parse_spec(tokenizer_spec, "tokenizer"))), tokenizer_spec


def _row_identity(tokenizer: Tokenizer, token_limit: int | None) -> tuple[Any, ...]:
    """Return a key that is equal for tokenizers with equal results."""
    attributes = TokenizerAttributes(tokenizer)
    limit = attributes.limit if token_limit is None else token_limit
    # An embedder's prefix may appear only in its own token count.
    added_tokens = None if limit is None else (attributes.marks, *model_token_counts(tokenizer, [""]))
    return tokenizer.name, limit, added_tokens


def _no_tokenizer_error(failures: Mapping[str, str]) -> RagaugeError:
    if not failures:
        return BadInput("no tokenizer given", hint="give one, e.g. bytes")
    return BackendFailed("; ".join(f"{name}: {why}" for name, why in failures.items()))


def _read_corpus(source: Any) -> tuple[str, list[Document]]:
    """Return the name of a corpus and its documents; texts in memory are numbered."""
    if isinstance(source, Iterable) and not isinstance(source, str | Path | Dataset | Mapping):
        source = [Document(str(n), text) if isinstance(text, str) else text for n, text in enumerate(source, 1)]
    corpus = load_corpus(source)
    return corpus.name, corpus.documents


def _split_texts(texts: Sequence[str], held_out: float, seed: int) -> tuple[Sequence[str], Sequence[str]]:
    """Split texts into those to train on and those to count.

    Both are all texts if none are held out.
    """
    n_held_out = round(held_out * len(texts)) if held_out else 0
    if not held_out:
        return texts, texts
    if not 0 < n_held_out < len(texts):
        purpose = "train on" if n_held_out else "count"
        raise BadInput(
            f"held_out={held_out:g} of {pluralise(len(texts), 'document')} leaves no document to {purpose}",
            hint="held_out=0 trains on all documents, and counts all",
        )
    chosen = set(np.random.default_rng(seed).permutation(len(texts))[:n_held_out].tolist())
    parts = [
        [text for row, text in enumerate(texts) if (row in chosen) is is_held_out] for is_held_out in (False, True)
    ]
    return parts[0], parts[1]


def _training_source(name: str, learned: Sequence[str], counted: Sequence[str]) -> str:
    description = pluralise(len(learned), "other document")
    return "these documents" if learned is counted else f"{description} of {name}"


def _training_bias_notes(learns: bool, held_out: float) -> list[str]:
    if not learns or held_out:
        return []
    return [
        "tokenizers trained on these documents look better than on new ones; --held-out counts documents that they "
        "were not trained on"
    ]
