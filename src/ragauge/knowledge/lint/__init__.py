"""Checks of a corpus for problems in its documents."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BadInput, RagaugeError, UnknownName
from ragauge.core.findings import HistogramBin
from ragauge.core.records import Dataset, Ints, Judgments
from ragauge.core.settings import check_int
from ragauge.core.summaries import percentiles
from ragauge.datasets import folders, load
from ragauge.evaluation.checks import run_checks, select_checks
from ragauge.files import readers
from ragauge.files.document_rows import custom_fields
from ragauge.files.documents import find_rows_files
from ragauge.files.serialization import settings_from
from ragauge.knowledge.lint.checks import LINT_CHECKS
from ragauge.knowledge.lint.lint_input import JudgmentRows, LintInput, LintThresholds, TokenCounter
from ragauge.knowledge.lint.results import Lint
from ragauge.runs.folder import provenance, utc_now
from ragauge.runs.input_kinds import is_path
from ragauge.runs.texts import load_corpus

MAX_LENGTH_BARS = 32
"""Maximum number of bars of a histogram."""
LENGTH_PERCENTILES = (5, 25, 50, 75, 95, 99)


class LintOptions(TypedDict, total=False):
    """Further keyword arguments of `lint`; the thresholds are those of `LintThresholds`."""

    languages: str | Iterable[str] | None
    """Allowed languages; by default the most frequent language of the corpus."""
    min_chars: int
    max_chars: int
    near_duplicate: float
    problem_share: float
    id_field: str | None
    """Name of the field with document ids."""
    text_field: str | None
    """Name of the field with texts."""


def lint(
    corpus: Any,
    *,
    qrels: Any = None,
    embedder: Any = None,
    tokenizer: str | Path | None = None,
    token_limit: int | None = None,
    checks: str | Iterable[str] | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[LintOptions],
) -> Lint:
    """Check a corpus for problems.

    `corpus` is a file (JSONL, TSV, CSV, Parquet, JSON; `-` for standard input), a BEIR folder, a folder of texts, the
    name of a dataset, a Dataset, or documents: `Document`, mappings with `id` and `text`, or texts. An entry that
    cannot be read is a finding, not an error. `qrels` are judgments of the corpus. The token limit comes from
    `embedder` (a name, or an object with `tokens` and `limit`), or from `tokenizer` and `token_limit`. `checks` selects
    checks. The fields of `LintOptions` are allowed languages, thresholds, and names of fields.

    >>> found = lint(["A text that has some words to say.", "A text that has some words to say.", ""])
    >>> [(one.check, one.count) for one in found.problems]
    [('empty', 1), ('duplicates', 1)]
    """
    fields = custom_fields(options.pop("id_field", None), options.pop("text_field", None))
    languages = _parse_languages(options.pop("languages", None))
    thresholds = settings_from(LintThresholds, {**options, "languages": languages})
    if token_limit is not None:
        check_int("token_limit", token_limit)
    chosen = select_checks(LINT_CHECKS, checks)
    counter, absent = _open_token_counter(
        embedder, tokenizer, token_limit, is_needed=any(check.name == "tokens" for check in chosen)
    )
    progress(Progress("reading"))
    began = time.perf_counter()
    reading = load_corpus(corpus, fields, lenient=True)
    if not len(reading) and not reading.flaws:
        raise BadInput(
            f"no documents in {reading.name}",
            hint="check the path and the file format, e.g. `ragauge lint corpus.jsonl`",
        )
    judged, why = _judgment_rows(_find_judgments(corpus) if qrels is None else qrels, strict=qrels is not None)
    seconds = {"reading": time.perf_counter() - began}
    lint_input = LintInput(reading, thresholds, judged, counter, progress)
    results = run_checks(chosen, lint_input, {**absent, **({"judgments": why} if why else {})}, progress)
    cached_values = vars(lint_input)
    counts = cached_values.get("token_counts")
    sizes = {"characters": lint_input.lengths, **({"tokens": counts} if counts is not None else {})}
    return Lint(
        corpus=reading.name,
        documents=len(reading),
        findings=[finding if finding.problem else replace(finding, remedy="") for finding in results.findings],
        skipped=results.skipped,
        lengths={name: _length_summary(lengths) for name, lengths in sizes.items()},
        bars={name: _length_bars(lengths) for name, lengths in sizes.items()},
        languages=cached_values.get("by_language", {}),
        embedder=counter.name if counter else "",
        limit=counter.limit if counter else None,
        lost=_lost_tokens(counts, counter),
        thresholds={**asdict(thresholds), "languages": ", ".join(languages)},
        seconds={**seconds, **results.seconds},
        provenance={"made": utc_now(), **provenance()},
    )


def _parse_languages(languages: str | Iterable[str] | None) -> tuple[str, ...]:
    texts = [languages] if isinstance(languages, str) else list(languages or ())
    codes = tuple(dict.fromkeys(part.strip().lower() for text in texts for part in text.split(",") if part.strip()))
    if codes:
        from ragauge.knowledge.lint.lint_input import known_languages

        known = known_languages()
        for code in codes:
            if code not in known:
                raise UnknownName("language", code, known, hint="codes of ISO 639: en, de, fr, zh …")
    return codes


def _open_token_counter(
    embedder: Any, tokenizer: str | Path | None, token_limit: int | None, *, is_needed: bool
) -> tuple[TokenCounter | None, dict[str, str]]:
    """Return the token counter, or the reason why there is none."""
    if embedder is not None and tokenizer is not None:
        raise BadInput("embedder and tokenizer are mutually exclusive", hint="use --embedder or --tokenizer")
    if not is_needed or (embedder is None and tokenizer is None):
        if token_limit is not None:
            raise BadInput("a token limit requires a token counter", hint="add --embedder or --tokenizer")
        return None, {}
    from ragauge.knowledge.lint import checks_texts

    counter = (
        checks_texts.counter_from_file(tokenizer, token_limit)
        if tokenizer is not None
        else checks_texts.counter_from_embedder(embedder, token_limit)
    )
    return (None, {"an embedder": counter}) if isinstance(counter, str) else (counter, {})


def _find_judgments(corpus: Any) -> Any:
    """Return the judgments stored with a corpus, or None."""
    if isinstance(corpus, Dataset):
        return corpus.judgments
    if not isinstance(corpus, str | Path):
        return None
    folder = Path(corpus) if is_path(str(corpus)) else folders.find_named_folder(str(corpus))
    if folder is None:
        return load(corpus).judgments
    for home in (folder, folder / "beir"):
        if find_rows_files(home, "corpus"):
            plain = home / "qrels.txt"
            return [plain] if plain.exists() else sorted(home.glob("qrels/*.tsv")) or None
    return None


def _judgment_rows(judgments: Any, *, strict: bool) -> tuple[list[JudgmentRows], str]:
    """Read the rows of judgments.

    Unless `strict`, unreadable files only give a reason.
    """
    if judgments is None:
        return [], ""
    if isinstance(judgments, Judgments):
        rows = [(query, doc, grade) for query, docs in judgments.nested.items() for doc, grade in docs.items()]
        return [JudgmentRows(judgments.source, rows)], ""
    if isinstance(judgments, Mapping):
        return _judgment_rows(readers.read_judgments(judgments), strict=strict)
    row_groups, why = [], ""
    for path in [judgments] if isinstance(judgments, str | Path) else judgments:
        try:
            table = readers.read_judgment_rows(path).select("query", "doc", "grade")
        except RagaugeError as error:
            if strict:
                raise
            why = f"the judgments cannot be read ({error.message})"
            continue
        row_groups.append(JudgmentRows(str(path), list(table.iter_rows())))
    return row_groups, why


def _length_summary(sizes: Ints) -> dict[str, float]:
    if not len(sizes):
        return {"n": 0.0}
    values = percentiles(sizes, LENGTH_PERCENTILES)
    parts = {f"p{percent}": value for percent, value in zip(LENGTH_PERCENTILES, values, strict=True)}
    quantiles = {"min": float(sizes.min()), **parts, "max": float(sizes.max())}
    return {"n": float(len(sizes)), "total": float(sizes.sum()), "mean": float(sizes.mean()), **quantiles}


def _length_bars(sizes: Ints) -> Sequence[HistogramBin]:
    """Count texts by length, in bars of equal ratio.

    Lengths span orders of magnitude.
    """
    lengths = sizes[sizes > 0]
    if not len(lengths):
        return []
    low, high = int(lengths.min()), int(lengths.max()) + 1
    edges = np.unique(np.round(np.geomspace(low, high, MAX_LENGTH_BARS + 1)).astype(np.int64))
    counts, _ = np.histogram(lengths, edges)
    return [HistogramBin(int(a), int(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]


def _lost_tokens(counts: Any, counter: TokenCounter | None) -> dict[str, int]:
    if counts is None or counter is None or counter.limit is None:
        return {}
    over = np.maximum(counts - counter.limit, 0)
    return {"documents": int((over > 0).sum()), "tokens": int(over.sum()), "of": int(counts.sum())}
