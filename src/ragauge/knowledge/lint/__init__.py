"""Checks of a corpus for problems in its documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput, RagaugeError, UnknownName
from ragauge.core.findings import HistogramBin
from ragauge.core.records import Dataset, Ints, Judgments
from ragauge.datasets import list_datasets, load
from ragauge.files import readers
from ragauge.files.documents import (
    TEXT_ENDINGS,
    CorpusFlaw,
    FieldNames,
    LoadedCorpus,
    documents_from_memory,
    read_corpus_files,
)
from ragauge.files.source import InputFile
from ragauge.knowledge.lint.checks import find_checks, run_checks
from ragauge.knowledge.lint.evidence import Evidence, JudgmentRows, LintThresholds, TokenCounter
from ragauge.knowledge.lint.results import Lint
from ragauge.runs.folder import provenance, utc_now

MAX_LENGTH_BARS = 32
"""Maximum number of bars of a histogram."""
CORPUS_ENDINGS = (".jsonl", ".ndjson", ".tsv", ".csv", ".parquet", ".json", ".gz", ".zst")
"""File endings; a path with one of these is not the name of a dataset."""
LENGTH_PERCENTILES = (5, 25, 50, 75, 95, 99)


def lint(  # noqa: PLR0913 - one for each thing that can be said
    corpus: Any,
    *,
    qrels: Any = None,
    embedder: Any = None,
    tokenizer: str | Path | None = None,
    limit: int | None = None,
    languages: str | Iterable[str] | None = None,
    tiny: int = 32,
    giant: int = 4096,
    near: float = 0.8,
    share: float = 0.01,
    checks: str | Iterable[str] | None = None,
    id_field: str | None = None,
    text_field: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> Lint:
    """Check a corpus for problems.

    `corpus` is a file (JSONL, TSV, CSV, Parquet, JSON; `-` for standard input), a BEIR folder, a folder of texts, the
    name of a dataset, a Dataset, or documents: `Document`, mappings with `id` and `text`, or texts. An entry that
    cannot be read is a finding, not an error. `qrels` are judgments of the corpus. The token limit comes from
    `embedder` (a name, or an object with `tokens` and `limit`), or from `tokenizer` and `limit`. `share` is the share
    of the documents from which a tolerated finding is a problem. `languages` are the allowed languages, and `checks`
    selects checks.

    >>> found = lint(["A text that has some words to say.", "A text that has some words to say.", ""])
    >>> [(one.what, one.count) for one in found.problems]
    [('empty', 1), ('duplicates', 1)]
    """
    thresholds = LintThresholds(tiny, giant, near, share, _parse_languages(languages))
    _check_thresholds(thresholds, limit)
    chosen = find_checks([checks] if isinstance(checks, str) else checks)
    say = tell or (lambda _: None)
    counter, absent = _open_token_counter(
        embedder, tokenizer, limit, wanted=any(one.name == "tokens" for one in chosen)
    )
    say("reading")
    began = time.perf_counter()
    reading, beside = _read_corpus(corpus, FieldNames(id_field, text_field))
    if not len(reading) and not reading.flaws:
        raise BadInput(f"there are no documents in {reading.name}", hint="look whether this is what was meant")
    judged, why = _judgment_rows(beside if qrels is None else qrels, strict=qrels is not None)
    seconds = {"reading": time.perf_counter() - began}
    watch = _CheckProgress(say)
    evidence = Evidence(reading, thresholds, judged, counter, watch.count)
    looked = run_checks(evidence, chosen, watch.begin, {**absent, **({"judgments": why} if why else {})})
    known = vars(evidence)
    counts = known.get("token_counts")
    sizes = {"characters": evidence.lengths, **({"tokens": counts} if counts is not None else {})}
    return Lint(
        corpus=reading.name,
        documents=len(reading),
        findings=looked.findings,
        skipped=looked.skipped,
        lengths={name: _length_summary(one) for name, one in sizes.items()},
        bars={name: _length_bars(one) for name, one in sizes.items()},
        languages=known.get("by_language", {}),
        embedder=counter.name if counter else "",
        limit=counter.limit if counter else None,
        lost=_lost_tokens(counts, counter),
        thresholds={
            "tiny": tiny,
            "giant": giant,
            "near": near,
            "share": share,
            "languages": ", ".join(thresholds.languages),
        },
        seconds={**seconds, **looked.seconds},
        circumstances={"made": utc_now(), **provenance()},
    )


class _CheckProgress:
    """Progress of the check that is running."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._now = ""

    def begin(self, check: str) -> None:
        self._now = check
        self._tell(check)

    def count(self, done: int, total: int) -> None:
        self._tell(f"{self._now}: {done:,} of {total:,}")


def _parse_languages(languages: str | Iterable[str] | None) -> tuple[str, ...]:
    given = [languages] if isinstance(languages, str) else list(languages or ())
    codes = tuple(dict.fromkeys(part.strip().lower() for one in given for part in one.split(",") if part.strip()))
    if codes:
        from ragauge.knowledge.lint.evidence import known_languages

        known = known_languages()
        for code in codes:
            if code not in known:
                raise UnknownName("language", code, known, hint="codes of ISO 639: en, de, fr, zh …")
    return codes


def _check_thresholds(given: LintThresholds, limit: int | None) -> None:
    if given.tiny < 0 or given.giant < given.tiny:
        raise BadInput(f"tiny is {given.tiny} and giant {given.giant}", hint="0 <= tiny <= giant")
    for name, value in (("near", given.near), ("share", given.share)):
        if not 0 < value <= 1:
            raise BadInput(f"{name} is {value:g}, not above 0 and at most 1")
    if limit is not None and limit < 1:
        raise BadInput(f"the limit is {limit}, not at least 1")


def _open_token_counter(
    embedder: Any, tokenizer: str | Path | None, limit: int | None, *, wanted: bool
) -> tuple[TokenCounter | None, dict[str, str]]:
    """Return the token counter, or the reason why there is none."""
    if embedder is not None and tokenizer is not None:
        raise BadInput("an embedder and a tokenizer are given", hint="either of them")
    if not wanted or (embedder is None and tokenizer is None):
        if limit is not None:
            raise BadInput("a limit of nothing is given", hint="say what counts tokens: --embedder or --tokenizer")
        return None, {}
    from ragauge.knowledge.lint import checks_texts

    found = (
        checks_texts.counter_from_file(tokenizer, limit)
        if tokenizer is not None
        else checks_texts.counter_from_embedder(embedder, limit)
    )
    return (None, {"an embedder": found}) if isinstance(found, str) else (found, {})


def _read_corpus(corpus: Any, names: FieldNames) -> tuple[LoadedCorpus, Any]:
    """Read the documents, and find the judgments stored with them."""
    if isinstance(corpus, Dataset):
        return documents_from_memory(corpus.name, corpus.documents, names), corpus.judgments
    if not isinstance(corpus, str | Path):
        return documents_from_memory("documents", list(corpus), names), None
    text = str(corpus)
    if text == "-" or Path(text).is_file():
        source = InputFile(text)
        return read_corpus_files(source.label if text == "-" else Path(text).name, [text], names), None
    place = Path(text) if Path(text).is_dir() else _find_dataset_folder(text)
    if place is not None:
        return _read_folder(place, names)
    if ":" not in text and ("/" in text or Path(text).suffix in CORPUS_ENDINGS):
        InputFile(text).head()  # raises an error with a hint if there is no such file
    found = load(text)
    return documents_from_memory(found.name, found.documents, names), found.judgments


def _find_dataset_folder(name: str) -> Path | None:
    return next((Path(one.about) for one in list_datasets() if one.kind == "folder" and one.name == name), None)


def _read_folder(place: Path, names: FieldNames) -> tuple[LoadedCorpus, Any]:
    for home in (place, place / "beir"):
        files = [one for ending in ("jsonl", "tsv", "parquet") for one in sorted(home.glob(f"corpus.{ending}*"))]
        if files:
            plain = home / "qrels.txt"
            beside = [plain] if plain.exists() else sorted(home.glob("qrels/*.tsv"))
            name = place.resolve()
            told = name.parent.name if name.name == "beir" else name.name
            return _add_unread_flaws(read_corpus_files(told, files[:1], names), home, files[1:]), beside or None
    every = [
        one
        for one in sorted(place.rglob("*"))
        if one.is_file() and not any(p.startswith(".") for p in one.relative_to(place).parts)
    ]
    texts = [one for one in every if one.suffix.lower() in TEXT_ENDINGS]
    if not texts:
        hint = f"corpus.jsonl of a BEIR folder, or texts ({', '.join(TEXT_ENDINGS)})"
        raise BadInput("no documents are here", file=str(place), hint=hint)
    reading = read_corpus_files(place.resolve().name, texts, names, root=place)
    return _add_unread_flaws(reading, place, [one for one in every if one not in set(texts)]), None


def _add_unread_flaws(reading: LoadedCorpus, folder: Path, files: Sequence[Path]) -> LoadedCorpus:
    """Record the files of a folder that were not read as flaws of the corpus."""
    reading.flaws.extend(CorpusFlaw("unread", one.relative_to(folder).as_posix(), one.suffix.lower()) for one in files)
    return reading


def _judgment_rows(given: Any, *, strict: bool) -> tuple[list[JudgmentRows], str]:
    """Read the rows of judgments.

    Unless `strict`, unreadable files only give a reason.
    """
    if given is None:
        return [], ""
    if isinstance(given, Judgments):
        rows = [(query, doc, grade) for query, docs in given.nested.items() for doc, grade in docs.items()]
        return [JudgmentRows(given.source, rows)], ""
    if isinstance(given, Mapping):
        return _judgment_rows(readers.read_judgments(given), strict=strict)
    found, why = [], ""
    for path in [given] if isinstance(given, str | Path) else given:
        try:
            table = readers.read_judgment_rows(path).select("query", "doc", "grade")
        except RagaugeError as error:
            if strict:
                raise
            why = f"the judgments cannot be read ({error.message})"
            continue
        found.append(JudgmentRows(str(path), list(table.iter_rows())))
    return found, why


def _length_summary(sizes: Ints) -> dict[str, float]:
    if not len(sizes):
        return {"n": 0.0}
    parts = {f"p{one}": float(np.percentile(sizes, one)) for one in LENGTH_PERCENTILES}
    whole = {"min": float(sizes.min()), **parts, "max": float(sizes.max())}
    return {"n": float(len(sizes)), "total": float(sizes.sum()), "mean": float(sizes.mean()), **whole}


def _length_bars(sizes: Ints) -> Sequence[HistogramBin]:
    """Count texts by length, in bars of equal ratio.

    Lengths span orders of magnitude.
    """
    known = sizes[sizes > 0]
    if not len(known):
        return []
    low, high = int(known.min()), int(known.max()) + 1
    edges = np.unique(np.round(np.geomspace(low, high, MAX_LENGTH_BARS + 1)).astype(np.int64))
    counts, _ = np.histogram(known, edges)
    return [HistogramBin(int(a), int(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]


def _lost_tokens(counts: Any, counter: TokenCounter | None) -> dict[str, int]:
    if counts is None or counter is None or counter.limit is None:
        return {}
    over = np.maximum(counts - counter.limit, 0)
    return {"documents": int((over > 0).sum()), "tokens": int(over.sum()), "of": int(counts.sum())}
