"""Checks of texts: duplicates, length in characters and tokens, language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.protocols import Embedder
from ragauge.core.records import Ints
from ragauge.core.text import one_line
from ragauge.datasets import corpus_checks
from ragauge.knowledge.lint.lint_input import (
    MAX_EXAMPLES,
    MAX_EXCERPT_CHARS,
    UNKNOWN_LANGUAGE,
    LintInput,
    TokenCounter,
    format_share,
)
from ragauge.models.embedders import open_embedder
from ragauge.models.optional_attributes import EmbedderAttributes
from ragauge.models.tokenizers import huggingface
from ragauge.output.numbers import join_names, pluralise

MAX_GROUPS_SHOWN = 4
"""Maximum number of duplicate groups shown."""


def check_duplicates(lint_input: LintInput) -> Iterator[Finding]:
    """Find documents with equal text.

    Case, compatibility forms and white space are ignored. A problem if the redundant ones are at least
    `problem_share` of all.
    """
    groups, _ = lint_input.exact_duplicates
    total = len(lint_input.corpus)
    if not groups:
        yield Finding(
            lint_input.corpus.name, "duplicates", problem=False, count=0, message="no two documents have the same text"
        )
        return
    more = sum(map(len, groups)) - len(groups)
    yield Finding(
        lint_input.corpus.name,
        "duplicates",
        lint_input.reaches_problem_share(more),
        more,
        f"{more:,} of {pluralise(total, 'document')} ({format_share(more, total)}) repeat the text of another, "
        f"in {pluralise(len(groups), 'group')}",
        tuple(_format_group(lint_input, group, "=") for group in groups[:MAX_GROUPS_SHOWN]),
        f"{pluralise(more, 'redundant vector')}; duplicates take adjacent ranks and displace other documents",
        remedy="keep one document per text",
    )


def check_near_duplicates(lint_input: LintInput) -> Iterator[Finding]:
    """Find documents that share at least `near_duplicate` of their 3-word shingles with another.

    Exact duplicates are not reported again. A problem if the redundant ones are at least five times `problem_share` of
    all, because similar texts may still differ in content.
    """
    groups, empty = lint_input.exact_duplicates
    total, min_jaccard = len(lint_input.corpus), lint_input.thresholds.near_duplicate
    reported = {index for group in groups for index in group[1:]} | set(empty)
    remaining = [index for index in range(total) if index not in reported]
    duplicates = corpus_checks.find_near_duplicates(
        [lint_input.corpus.texts[index] for index in remaining], min_jaccard, lint_input.progress
    )
    rule = f"Jaccard {min_jaccard:g} or more of 3-word shingles"
    if not duplicates:
        message = f"no near-duplicates ({rule})"
        yield Finding(lint_input.corpus.name, "near duplicates", problem=False, count=0, message=message)
        return
    duplicates.sort(key=lambda duplicate: (-len(duplicate.positions), -duplicate.similarity))
    surplus = sum(len(duplicate.positions) - 1 for duplicate in duplicates)
    yield Finding(
        lint_input.corpus.name,
        "near duplicates",
        surplus >= 5 * lint_input.thresholds.problem_share * total,
        surplus,
        f"{surplus:,} of {pluralise(total, 'document')} ({format_share(surplus, total)}) are near-duplicates ({rule}), "
        f"in {pluralise(len(duplicates), 'group')}",
        tuple(
            f"{_format_group(lint_input, [remaining[i] for i in group.positions], '~')} at {group.similarity:.2f}"
            for group in duplicates[:MAX_GROUPS_SHOWN]
        ),
        "near-duplicates displace other documents in rankings; if they contradict each other, an answer may cite the "
        "outdated one",
        remedy="keep the latest document of each group, or mark the valid one",
    )


def _format_group(lint_input: LintInput, group: list[int], sign: str) -> str:
    names = [lint_input.corpus.ids[i] or lint_input.corpus.locations[i] for i in group[:3]]
    more = f" {sign} {len(group) - 3:,} more" if len(group) > 3 else ""
    return one_line(f" {sign} ".join(names)) + more


MAX_LANGUAGES_SHOWN = 8
"""Maximum number of languages shown."""


def check_language(lint_input: LintInput) -> Iterator[Finding]:
    """Find documents in another language than most, or than the allowed ones.

    A problem if they are at least `problem_share` of all, or if there are any and allowed languages are given.
    """
    reading, allowed = lint_input.corpus, lint_input.thresholds.languages
    counts = lint_input.by_language
    identified = [count for count in counts if count != UNKNOWN_LANGUAGE]
    if not identified:
        yield Finding(
            reading.name,
            "language",
            problem=False,
            count=0,
            message="no document is long enough to identify its language",
        )
        return
    expected = set(allowed) or {identified[0]}
    indices = [
        index
        for index, language in enumerate(lint_input.languages)
        if language not in expected and language != UNKNOWN_LANGUAGE
    ]
    unknown = (
        f"; {counts[UNKNOWN_LANGUAGE]:,} are too short or too mixed to identify" if counts.get(UNKNOWN_LANGUAGE) else ""
    )
    if not indices:
        counts_text = join_names([f"{counts[language]:,} {language}" for language in identified])
        yield Finding(
            reading.name,
            "language",
            problem=False,
            count=0,
            message=f"all in one language: {counts_text}{unknown}"
            if len(identified) == 1
            else f"only allowed languages: {counts_text}{unknown}",
        )
        return
    other_languages = [language for language in identified if language not in expected]
    yield Finding(
        reading.name,
        "language",
        bool(allowed) or lint_input.reaches_problem_share(len(indices)),
        len(indices),
        f"{len(indices):,} of {pluralise(len(reading), 'document')} are not in {' or '.join(sorted(expected))} but in "
        f"{join_names([f'{language} ({counts[language]:,})' for language in other_languages])}{unknown}",
        tuple(
            one_line(
                f"{reading.called(i)}, {lint_input.languages[i]}: `{one_line(reading.texts[i], MAX_EXCERPT_CHARS)}`"
            )
            for i in indices[:MAX_EXAMPLES]
        ),
        "a monolingual embedder represents other languages poorly, and BM25 matches none of their words",
        FindingTable(
            ["language", "documents"], [[count, float(counts[count])] for count in list(counts)[:MAX_LANGUAGES_SHOWN]]
        ),
        "use a multilingual embedder, or remove these documents; list allowed languages with --language",
    )


def check_tiny(lint_input: LintInput) -> Iterator[Finding]:
    """Find texts with fewer than `min_chars` characters.

    A problem if they are at least `problem_share` of all.
    """
    reading, min_chars = lint_input.corpus, lint_input.thresholds.min_chars
    indices = np.flatnonzero((lint_input.lengths > 0) & (lint_input.lengths < min_chars)).tolist()
    if not indices:
        yield Finding(
            reading.name, "tiny", problem=False, count=0, message=f"no text has fewer than {min_chars:,} characters"
        )
        return
    yield Finding(
        reading.name,
        "tiny",
        lint_input.reaches_problem_share(len(indices)),
        len(indices),
        f"{len(indices):,} of {pluralise(len(reading), 'document')} have fewer than {min_chars:,} characters",
        tuple(
            one_line(f"{reading.called(i)}: `{one_line(reading.texts[i], MAX_EXCERPT_CHARS)}`")
            for i in indices[:MAX_EXAMPLES]
        ),
        "very short texts match short queries by chance and rarely answer them",
        remedy="merge them with neighbouring texts, or remove them",
    )


def check_giant(lint_input: LintInput) -> Iterator[Finding]:
    """Find texts with more than `max_chars` characters.

    A problem if they are at least `problem_share` of all.
    """
    reading, max_chars = lint_input.corpus, lint_input.thresholds.max_chars
    indices = np.flatnonzero(lint_input.lengths > max_chars)
    indices = indices[np.argsort(-lint_input.lengths[indices], kind="stable")]
    if not len(indices):
        yield Finding(
            reading.name, "giant", problem=False, count=0, message=f"no text has more than {max_chars:,} characters"
        )
        return
    yield Finding(
        reading.name,
        "giant",
        lint_input.reaches_problem_share(len(indices)),
        len(indices),
        f"{len(indices):,} of {pluralise(len(reading), 'document')} have more than {max_chars:,} characters",
        tuple(
            one_line(f"{reading.called(i)}: {pluralise(int(lint_input.lengths[i]), 'character')}")
            for i in indices[:MAX_EXAMPLES].tolist()
        ),
        "one vector represents several topics, and most embedders read only the beginning",
        remedy="split them into chunks before embedding",
    )


def check_tokens(lint_input: LintInput) -> Iterator[Finding]:
    """Find texts longer than the embedder's limit.

    A problem if they or the lost tokens reach `problem_share`.
    """
    reading, counter = lint_input.corpus, lint_input.tokens
    if counter is None:
        raise MissingEvidence("no token counter")
    counts, limit = lint_input.token_counts, counter.limit
    total = int(counts.sum())
    if limit is None:
        message = f"{counter.name} has no token limit ({pluralise(total, 'token')} in all)"
        yield Finding(reading.name, "tokens", problem=False, count=0, message=message)
        return
    rows = np.flatnonzero(counts > limit)
    if not len(rows):
        longest = int(counts.max(initial=0))
        message = (
            f"no text is truncated: the limit of {counter.name} is {limit:,} tokens, the longest text has {longest:,}"
        )
        yield Finding(reading.name, "tokens", problem=False, count=0, message=message)
        return
    rows = rows[np.argsort(-counts[rows], kind="stable")]
    excess = counts[rows] - limit
    lost = int(excess.sum())
    yield Finding(
        reading.name,
        "tokens",
        lint_input.reaches_problem_share(len(rows)) or lost >= lint_input.thresholds.problem_share * total,
        len(rows),
        f"{len(rows):,} of {pluralise(len(reading), 'document')} ({format_share(len(rows), len(reading))}) exceed "
        f"the {limit:,}-token limit of {counter.name}",
        tuple(one_line(f"{reading.called(i)}: {int(counts[i]):,} tokens") for i in rows[:MAX_EXAMPLES].tolist()),
        f"{lost:,} of {pluralise(total, 'token')} ({format_share(lost, total)}) are truncated and cannot be retrieved",
        _lost_share_grid(counts, limit),
        f"split texts into chunks of at most {limit:,} tokens, or use an embedder with a higher limit",
    )


def _lost_share_grid(counts: Ints, limit: int) -> FindingTable:
    """Count documents by the share of their tokens that is cut off."""
    cut_shares = np.maximum(counts - limit, 0) / np.maximum(counts, 1)
    steps = [("none", cut_shares == 0), ("up to a quarter", (cut_shares > 0) & (cut_shares <= 0.25))]
    steps += [
        ("a quarter to a half", (cut_shares > 0.25) & (cut_shares <= 0.5)),
        ("more than a half", cut_shares > 0.5),
    ]
    return FindingTable(
        ["lost", "documents", "share"],
        [[name, float(w.sum()), format_share(int(w.sum()), len(counts))] for name, w in steps],
    )


def counter_from_embedder(described: str | Embedder, limit: int | None) -> TokenCounter | str:
    """Return the embedder's token counter, or the reason why it has none."""
    embedder = open_embedder(described)
    name = str(described) if isinstance(described, str) else embedder.name
    attributes = EmbedderAttributes(embedder)
    if attributes.tokens is None:
        return f"the embedder `{name}` does not count tokens; use --tokenizer FILE --token-limit N"
    return TokenCounter(name, attributes.limit if limit is None else limit, attributes.tokens)


def counter_from_file(path: str | Path, limit: int | None) -> TokenCounter:
    """Read a Hugging Face tokenizer.json, or the folder of a model that has one.

    `limit` overrides the file's own limit. BadInput is raised if there is none.
    """
    tokenizer_path = Path(path)
    tokenizer = huggingface.read_tokenizer(str(path), limit=limit)
    if tokenizer.limit is None:
        file = tokenizer_path / "tokenizer.json" if tokenizer_path.is_dir() else tokenizer_path
        raise BadInput(
            "the tokenizer does not state the token limit of its model", file=str(file), hint="--token-limit 512"
        )

    def count(texts: Sequence[str]) -> list[int]:
        return [len(tokens) + tokenizer.marks for tokens in tokenizer.encode(texts)]

    return TokenCounter(tokenizer_path.resolve().name, tokenizer.limit, count)
