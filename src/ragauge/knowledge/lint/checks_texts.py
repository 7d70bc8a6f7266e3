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
from ragauge.knowledge.lint.evidence import (
    MAX_EXAMPLES,
    MAX_EXCERPT_CHARS,
    UNKNOWN_LANGUAGE,
    Evidence,
    TokenCounter,
    format_share,
)
from ragauge.models.embedders import open_embedder
from ragauge.models.optional_attributes import EmbedderAttributes
from ragauge.models.tokenizers import huggingface
from ragauge.output.numbers import join_names, pluralise

MAX_GROUPS_SHOWN = 4
"""Maximum number of duplicate groups shown."""


def check_duplicates(evidence: Evidence) -> Iterator[Finding]:
    """Find documents with equal text.

    Case, compatibility forms and white space are ignored. A problem if the redundant ones are at least `share` of all.
    """
    groups, _ = evidence.copies
    total = len(evidence.reading)
    if not groups:
        yield Finding(evidence.reading.name, "duplicates", False, 0, "no two documents have the same text")
        return
    more = sum(map(len, groups)) - len(groups)
    yield Finding(
        evidence.reading.name,
        "duplicates",
        evidence.many(more),
        more,
        f"{more:,} of {pluralise(total, 'document')} ({format_share(more, total)}) repeat the text of another, "
        f"in {pluralise(len(groups), 'group')}",
        tuple(_format_group(evidence, group, "=") for group in groups[:MAX_GROUPS_SHOWN]),
        f"{pluralise(more, 'redundant vector')}; duplicates take adjacent ranks and displace other documents",
        remedy="keep one document per text",
    )


def check_near_duplicates(evidence: Evidence) -> Iterator[Finding]:
    """Find documents that share at least `near` of their 3-word shingles with another.

    Exact duplicates are not reported again. A problem if the redundant ones are at least five times `share` of all,
    because similar texts may still differ in content.
    """
    groups, empty = evidence.copies
    total, near = len(evidence.reading), evidence.thresholds.near
    told = {place for group in groups for place in group[1:]} | set(empty)
    left = [place for place in range(total) if place not in told]
    duplicates = corpus_checks.find_near_duplicates(
        [evidence.reading.texts[place] for place in left], near, evidence.progress
    )
    rule = f"Jaccard {near:g} or more of 3-word shingles"
    if not duplicates:
        said = f"no near-duplicates ({rule})"
        yield Finding(evidence.reading.name, "near duplicates", False, 0, said)
        return
    duplicates.sort(key=lambda duplicate: (-len(duplicate.group), -duplicate.part))
    more = sum(len(duplicate.group) - 1 for duplicate in duplicates)
    yield Finding(
        evidence.reading.name,
        "near duplicates",
        more >= 5 * evidence.thresholds.share * total,
        more,
        f"{more:,} of {pluralise(total, 'document')} ({format_share(more, total)}) are near-duplicates ({rule}), "
        f"in {pluralise(len(duplicates), 'group')}",
        tuple(
            f"{_format_group(evidence, [left[i] for i in duplicate.group], '~')} at {duplicate.part:.2f}"
            for duplicate in duplicates[:MAX_GROUPS_SHOWN]
        ),
        "near-duplicates displace other documents in rankings; if they contradict each other, an answer may cite the "
        "outdated one",
        remedy="keep the latest document of each group, or mark the valid one",
    )


def _format_group(evidence: Evidence, group: list[int], sign: str) -> str:
    names = [evidence.reading.ids[i] or evidence.reading.places[i] for i in group[:3]]
    more = f" {sign} {len(group) - 3:,} more" if len(group) > 3 else ""
    return one_line(f" {sign} ".join(names)) + more


MAX_LANGUAGES_SHOWN = 8
"""Maximum number of languages shown."""


def check_language(evidence: Evidence) -> Iterator[Finding]:
    """Find documents in another language than most, or than the allowed ones.

    A problem if they are at least `share` of all, or if there are any and allowed languages are given.
    """
    reading, allowed = evidence.reading, evidence.thresholds.languages
    counts = evidence.by_language
    told = [count for count in counts if count != UNKNOWN_LANGUAGE]
    if not told:
        yield Finding(reading.name, "language", False, 0, "no document is long enough to identify its language")
        return
    wanted = set(allowed) or {told[0]}
    found = [
        place
        for place, language in enumerate(evidence.languages)
        if language not in wanted and language != UNKNOWN_LANGUAGE
    ]
    unknown = (
        f"; {counts[UNKNOWN_LANGUAGE]:,} are too short or too mixed to identify" if counts.get(UNKNOWN_LANGUAGE) else ""
    )
    if not found:
        known = join_names([f"{counts[language]:,} {language}" for language in told])
        yield Finding(
            reading.name,
            "language",
            False,
            0,
            f"all in one language: {known}{unknown}" if len(told) == 1 else f"only allowed languages: {known}{unknown}",
        )
        return
    others = [language for language in told if language not in wanted]
    yield Finding(
        reading.name,
        "language",
        bool(allowed) or evidence.many(len(found)),
        len(found),
        f"{len(found):,} of {pluralise(len(reading), 'document')} are not in {' or '.join(sorted(wanted))} but in "
        f"{join_names([f'{language} ({counts[language]:,})' for language in others])}{unknown}",
        tuple(
            one_line(f"{reading.called(i)}, {evidence.languages[i]}: `{one_line(reading.texts[i], MAX_EXCERPT_CHARS)}`")
            for i in found[:MAX_EXAMPLES]
        ),
        "a monolingual embedder represents other languages poorly, and BM25 matches none of their words",
        FindingTable(
            ["language", "documents"], [[count, float(counts[count])] for count in list(counts)[:MAX_LANGUAGES_SHOWN]]
        ),
        "use a multilingual embedder, or remove these documents; list allowed languages with --language",
    )


def check_tiny(evidence: Evidence) -> Iterator[Finding]:
    """Find texts with fewer than `tiny` characters.

    A problem if they are at least `share` of all.
    """
    reading, least = evidence.reading, evidence.thresholds.tiny
    found = np.flatnonzero((evidence.lengths > 0) & (evidence.lengths < least)).tolist()
    if not found:
        yield Finding(reading.name, "tiny", False, 0, f"no text has fewer than {least:,} characters")
        return
    yield Finding(
        reading.name,
        "tiny",
        evidence.many(len(found)),
        len(found),
        f"{len(found):,} of {pluralise(len(reading), 'document')} have fewer than {least:,} characters",
        tuple(
            one_line(f"{reading.called(i)}: `{one_line(reading.texts[i], MAX_EXCERPT_CHARS)}`")
            for i in found[:MAX_EXAMPLES]
        ),
        "very short texts match short queries by chance and rarely answer them",
        remedy="merge them with neighbouring texts, or remove them",
    )


def check_giant(evidence: Evidence) -> Iterator[Finding]:
    """Find texts with more than `giant` characters.

    A problem if they are at least `share` of all.
    """
    reading, most = evidence.reading, evidence.thresholds.giant
    found = np.flatnonzero(evidence.lengths > most)
    found = found[np.argsort(-evidence.lengths[found], kind="stable")]
    if not len(found):
        yield Finding(reading.name, "giant", False, 0, f"no text has more than {most:,} characters")
        return
    yield Finding(
        reading.name,
        "giant",
        evidence.many(len(found)),
        len(found),
        f"{len(found):,} of {pluralise(len(reading), 'document')} have more than {most:,} characters",
        tuple(
            one_line(f"{reading.called(i)}: {pluralise(int(evidence.lengths[i]), 'character')}")
            for i in found[:MAX_EXAMPLES].tolist()
        ),
        "one vector represents several topics, and most embedders read only the beginning",
        remedy="split them into chunks before embedding",
    )


def check_tokens(evidence: Evidence) -> Iterator[Finding]:
    """Find texts longer than the embedder's limit.

    A problem if they or the lost tokens reach `share`.
    """
    reading, who = evidence.reading, evidence.tokens
    if who is None:
        raise MissingEvidence("no token counter")
    counts, limit = evidence.token_counts, who.limit
    total = int(counts.sum())
    if limit is None:
        said = f"{who.name} has no token limit ({pluralise(total, 'token')} in all)"
        yield Finding(reading.name, "tokens", False, 0, said)
        return
    tokens = np.flatnonzero(counts > limit)
    if not len(tokens):
        longest = int(counts.max(initial=0))
        said = f"no text is truncated: the limit of {who.name} is {limit:,} tokens, the longest text has {longest:,}"
        yield Finding(reading.name, "tokens", False, 0, said)
        return
    tokens = tokens[np.argsort(-counts[tokens], kind="stable")]
    over = counts[tokens] - limit
    lost = int(over.sum())
    yield Finding(
        reading.name,
        "tokens",
        evidence.many(len(tokens)) or lost >= evidence.thresholds.share * total,
        len(tokens),
        f"{len(tokens):,} of {pluralise(len(reading), 'document')} ({format_share(len(tokens), len(reading))}) exceed "
        f"the {limit:,}-token limit of {who.name}",
        tuple(one_line(f"{reading.called(i)}: {int(counts[i]):,} tokens") for i in tokens[:MAX_EXAMPLES].tolist()),
        f"{lost:,} of {pluralise(total, 'token')} ({format_share(lost, total)}) are truncated and cannot be retrieved",
        _lost_share_grid(counts, limit),
        f"split texts into chunks of at most {limit:,} tokens, or use an embedder with a higher limit",
    )


def _lost_share_grid(counts: Ints, limit: int) -> FindingTable:
    """Count documents by the share of their tokens that is cut off."""
    gone = np.maximum(counts - limit, 0) / np.maximum(counts, 1)
    steps = [("none", gone == 0), ("up to a quarter", (gone > 0) & (gone <= 0.25))]
    steps += [("a quarter to a half", (gone > 0.25) & (gone <= 0.5)), ("more than a half", gone > 0.5)]
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
    place = Path(path)
    tokenizer = huggingface.read_tokenizer(str(path), limit=limit)
    if tokenizer.limit is None:
        file = place / "tokenizer.json" if place.is_dir() else place
        raise BadInput(
            "the tokenizer does not state the token limit of its model", file=str(file), hint="--token-limit 512"
        )

    def count(texts: Sequence[str]) -> list[int]:
        return [len(tokens) + tokenizer.marks for tokens in tokenizer.encode(texts)]

    return TokenCounter(place.resolve().name, tokenizer.limit, count)
