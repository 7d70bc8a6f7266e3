"""Checks of the texts of a corpus: broken characters, the embedder's token limit, and languages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ragauge.audits.audit_input import AuditInput
from ragauge.audits.languages import UNKNOWN_LANGUAGE, identify_languages
from ragauge.core.documents import Document
from ragauge.core.errors import MissingEvidence, MissingExtra
from ragauge.core.findings import Finding
from ragauge.core.text import one_line
from ragauge.output.numbers import first_few, format_number, join_names, pluralise

MIN_PROBLEM_SHARE = 0.01
"""Minimum share of the documents at which a flaw of single texts is a problem."""
MAX_DOCUMENTS_IDENTIFIED = 10_000
"""Maximum number of documents whose language is identified, evenly spaced; they take 3 seconds."""
TOKEN_BATCH_TEXTS = 1024
"""Number of texts whose tokens are counted at a time."""
MAX_EXCERPT_CHARS = 30
"""Maximum number of characters of a text shown."""
MAX_EXAMPLES = 3
"""Maximum number of documents shown, since each has an excerpt."""


class CharacterKind(NamedTuple):
    """Kind of characters that do not belong in a text."""

    name: str
    about: str
    pattern: re.Pattern[str]
    effect: str


CHARACTER_KINDS = (
    CharacterKind(
        "replacement characters",
        "U+FFFD or lone surrogates, which replace characters that were lost in decoding",
        re.compile("[\ufffd\ud800-\udfff]"),
        "queries with the correct spelling do not match these words",
    ),
    CharacterKind(
        "control characters",
        "control characters",
        re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]"),
        "tokenizers map them to unknown tokens; a zero byte ends the text in some stores, and PostgreSQL rejects it",
    ),
)
C1_CONTROL_PATTERN = re.compile("[\x80-\x84\x86-\x9f]")
"""C1 control characters: Windows dashes and quotes that were decoded as Latin-1."""
MOJIBAKE_EFFECT = "queries with the correct spelling do not match these words, and they split into more tokens"
LANGUAGE_EFFECT = "a monolingual embedder represents other languages poorly, and BM25 matches none of their words"


def check_characters(audit_input: AuditInput) -> Iterator[Finding]:
    """Find replacement characters and control characters.

    A problem in `MIN_PROBLEM_SHARE` of the documents, and in a single one if there are no judgments: the corpus itself
    is audited then.
    """
    documents = audit_input.documents or ()
    found = False
    for kind in CHARACTER_KINDS:
        matches = ((document, kind.pattern.search(document.whole)) for document in documents)
        excerpts = {document.id: _excerpt_around(match) for document, match in matches if match is not None}
        if excerpts:
            found = True
            yield _encoding_finding(audit_input, kind.name, kind.about, kind.effect, excerpts)
    if not found:
        message = f"no replacement or control characters in {pluralise(len(documents), 'document')}"
        yield Finding("corpus", "characters", problem=False, count=0, message=message)


def check_mojibake(audit_input: AuditInput) -> Iterator[Finding]:
    """Find texts that were decoded with the wrong encoding.

    These are texts that ftfy can fix, and texts with C1 control characters, which stand for Windows dashes and quotes.
    They are a problem like the characters of `check_characters`.
    """
    documents = audit_input.documents or ()
    if excerpts := _find_mojibake(documents):
        about = "a text that was decoded with the wrong encoding"
        yield _encoding_finding(audit_input, "mojibake", about, MOJIBAKE_EFFECT, excerpts)
        return
    message = f"none of {pluralise(len(documents), 'document')} was decoded with the wrong encoding"
    yield Finding("corpus", "mojibake", problem=False, count=0, message=message)


def _encoding_finding(
    audit_input: AuditInput, name: str, about: str, effect: str, excerpts: Mapping[str, str]
) -> Finding:
    total = len(audit_input.documents or ())
    examples = first_few([f"{doc}: {excerpt}" for doc, excerpt in excerpts.items()], MAX_EXAMPLES)
    is_problem = not audit_input.has_judgments or _is_frequent(len(excerpts), total)
    message = f"{len(excerpts):,} of {pluralise(total, 'document')} with {about}"
    return Finding("corpus", name, is_problem, len(excerpts), message, examples, effect)


def _excerpt_around(match: re.Match[str]) -> str:
    half = MAX_EXCERPT_CHARS // 2
    excerpt = match.string[max(0, match.start() - half) : match.start() + half]
    return f"U+{ord(match[0]):04X} in `{one_line(excerpt)}`"


def _find_mojibake(documents: Sequence[Document]) -> dict[str, str]:
    """Return the first wrong word and its correction of each text with mojibake, by document id."""
    try:
        from ftfy import fix_encoding
        from ftfy.badness import badness
    except ImportError:
        raise MissingExtra("detecting wrong encodings", "audit") from None
    differences: dict[str, str] = {}
    for document in documents:
        text = document.whole
        if text.isascii():
            continue
        has_controls = C1_CONTROL_PATTERN.search(text) is not None
        if has_controls or badness(text):
            repaired = fix_encoding(text)
            if has_controls or (repaired != text and badness(repaired) < badness(text)):
                differences[document.id] = _describe_first_difference(text, repaired)
    return differences


def _describe_first_difference(before: str, after: str) -> str:
    """Describe the first word in which two texts differ.

    >>> _describe_first_difference("a very schÃ¶n day", "a very schön day")
    '`schÃ¶n` should be `schön`'
    """
    words = zip(before.split(), after.split(), strict=False)
    wrong, right = next(((old, new) for old, new in words if old != new), (before, after))
    wrong, right = one_line(wrong, MAX_EXCERPT_CHARS), one_line(right, MAX_EXCERPT_CHARS)
    return f"`{wrong}`" if wrong == right else f"`{wrong}` should be `{right}`"


def check_token_limit(audit_input: AuditInput) -> Iterator[Finding]:
    """Find texts that are longer than the token limit of the embedder.

    A problem if they are `MIN_PROBLEM_SHARE` of the documents, or the truncated tokens that share of all tokens.
    """
    embedder, documents = audit_input.embedder, audit_input.documents or ()
    if embedder is None:
        raise MissingEvidence("no embedder given")
    from ragauge.models.optional_attributes import EmbedderAttributes

    attributes = EmbedderAttributes(embedder)
    if attributes.tokens is None:
        raise MissingEvidence(f"the embedder {embedder.name} does not count tokens")
    limit = attributes.limit
    if limit is None:
        message = f"{embedder.name} has no token limit"
        yield Finding("corpus", "token limit", problem=False, count=0, message=message)
        return
    # Lone surrogates cannot be encoded as UTF-8, and tokenizers fail on them.
    texts = [document.whole.encode("utf-8", "replace").decode() for document in documents]
    batches = (texts[start : start + TOKEN_BATCH_TEXTS] for start in range(0, len(texts), TOKEN_BATCH_TEXTS))
    counts = np.array([count for batch in batches for count in attributes.tokens(batch)], np.int64)
    longest_first = np.argsort(-counts, kind="stable")[: int((counts > limit).sum())].tolist()
    truncated, total = int(np.maximum(counts - limit, 0).sum()), int(counts.sum())
    if not longest_first:
        message = (
            f"no text exceeds the {limit:,}-token limit of {embedder.name}; the longest has {counts.max(initial=0):,}"
        )
        yield Finding("corpus", "token limit", problem=False, count=0, message=message)
        return
    share = format_number(len(longest_first) / len(documents), "share")
    yield Finding(
        "corpus",
        "token limit",
        _is_frequent(len(longest_first), len(documents)) or _is_frequent(truncated, total),
        len(longest_first),
        f"{len(longest_first):,} of {pluralise(len(documents), 'document')} ({share}) exceed the {limit:,}-token "
        f"limit of {embedder.name}",
        first_few([f"{documents[i].id}: {int(counts[i]):,} tokens" for i in longest_first], MAX_EXAMPLES),
        f"{truncated:,} of {pluralise(total, 'token')} ({format_number(truncated / total, 'share')}) are truncated and "
        "cannot be retrieved",
    )


def check_languages(audit_input: AuditInput) -> Iterator[Finding]:
    """Find documents in another language than most.

    A problem if they are `MIN_PROBLEM_SHARE` of the documents. Of a large corpus, `MAX_DOCUMENTS_IDENTIFIED` evenly
    spaced documents are checked.
    """
    documents = audit_input.documents or ()
    checked = documents[:: -(-len(documents) // MAX_DOCUMENTS_IDENTIFIED) or 1]
    languages = identify_languages([document.whole for document in checked])
    counts = Counter(language for language in languages if language != UNKNOWN_LANGUAGE).most_common()
    n_unknown = languages.count(UNKNOWN_LANGUAGE)
    unknown = f"; {n_unknown:,} too short or too mixed to identify" if n_unknown else ""
    described = pluralise(len(checked), "document")
    if len(checked) < len(documents):
        described += f" checked (evenly spaced among {len(documents):,})"
    if len(counts) < 2:
        language = f"in one language, {counts[0][0]}" if counts else "too short or too mixed to identify a language"
        message = f"{counts[0][1] if counts else len(checked):,} of {described} {language}{unknown if counts else ''}"
        yield Finding("corpus", "languages", problem=False, count=0, message=message)
        return
    main = counts[0][0]
    others = [
        f"{document.id}: {language}"
        for document, language in zip(checked, languages, strict=True)
        if language not in (main, UNKNOWN_LANGUAGE)
    ]
    names = join_names([f"{language} ({count:,})" for language, count in counts[1:]])
    yield Finding(
        "corpus",
        "languages",
        _is_frequent(len(others), len(checked)),
        len(others),
        f"{len(others):,} of {described} in another language than {main}: {names}{unknown}",
        first_few(others),
        LANGUAGE_EFFECT,
    )


def _is_frequent(count: int, total: int) -> bool:
    return count > 0 and count >= MIN_PROBLEM_SHARE * total
