"""Checks of characters, encodings, markup and boilerplate in texts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ragauge.core.errors import MissingExtra
from ragauge.core.findings import Finding
from ragauge.core.text import one_line
from ragauge.knowledge.lint.lint_input import MAX_EXAMPLES, MAX_EXCERPT_CHARS, LintInput, format_share
from ragauge.output.numbers import pluralise


class CharacterKind(NamedTuple):
    """Kind of characters that do not belong in a text."""

    name: str
    about: str
    pattern: re.Pattern[str]
    effect: str
    remedy: str
    is_always_problem: bool = True
    """Whether a single document is a problem; otherwise only many are."""


CHARACTER_KINDS = (
    CharacterKind(
        "control characters",
        "control characters",
        re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]"),
        "tokenizers map them to unknown tokens; a zero byte ends the text in some stores, and PostgreSQL rejects it",
        "remove all control characters except tab, line feed, form feed and carriage return",
    ),
    CharacterKind(
        "replacement characters",
        "U+FFFD, which replaces characters that were lost in decoding",
        re.compile("\ufffd"),
        "queries with the correct spelling do not match these words",
        "decode the source again with its actual encoding",
    ),
    CharacterKind(
        "lone surrogates",
        "lone surrogates, which cannot be written in UTF-8",
        re.compile("[\ud800-\udfff]"),
        "embedders, stores and file writers fail on them",
        "export the JSON again from an intact source, or replace them",
    ),
    CharacterKind(
        "invisible characters",
        "byte order marks, zero-width spaces, joiners between Latin letters, or direction marks",
        re.compile("[\ufeff\u200b\u2060\u180e\u202a-\u202e\u2066-\u2069]|(?<=[A-Za-z])[\u200c\u200d]+(?=[A-Za-z])"),
        "words that look the same differ, so neither queries nor duplicate checks match them",
        "remove them",
        is_always_problem=False,
    ),
    CharacterKind(
        "private characters",
        "private-use characters, typical of PDF extraction and icon fonts",
        re.compile("[\ue000-\uf8ff]"),
        "they have no meaning without their font",
        "remove them, or check the PDF text extraction",
        is_always_problem=False,
    ),
)
UNUSUAL_PATTERN = re.compile("[^\t\n\x0c\r -~\x85\xa0-\u017f\u2010-\u2027\u2030-\u203a]")
"""Characters outside common Western text; only texts with one are checked further."""
MARKUP_PATTERN = re.compile(
    r"</?(?:p|br|div|span|table|t[rdh]|[uo]l|li|h[1-6]|img|script|style|strong|em|sup|sub)\b[^<>]{0,200}>"
    r"|&(?:amp|nbsp|lt|gt|quot|apos|#\d{2,5}|#x[0-9a-f]{2,4});",
    re.I,
)
C1_CONTROL_PATTERN = re.compile("[\x80-\x84\x86-\x9f]")
"""C1 control characters: Windows dashes and quotes that were decoded as Latin-1."""
MIN_BOILERPLATE_CHARS = 20
"""Minimum length of a boilerplate line, in characters."""
MIN_BOILERPLATE_DOCUMENTS = 10
"""Minimum number of documents that contain a boilerplate line."""


def check_characters(lint_input: LintInput) -> Iterator[Finding]:
    """Find invisible, control and replacement characters.

    CHARACTER_KINDS says what is always a problem.
    """
    reading = lint_input.corpus
    unusual = [index for index, text in enumerate(reading.texts) if UNUSUAL_PATTERN.search(text)]
    clean = True
    for kind in CHARACTER_KINDS:
        matches = [index for index in unusual if kind.pattern.search(reading.texts[index])]
        if not matches:
            continue
        clean = False
        yield Finding(
            reading.name,
            kind.name,
            kind.is_always_problem or lint_input.reaches_problem_share(len(matches)),
            len(matches),
            f"{pluralise(len(matches), 'document')} with {kind.about}",
            tuple(_character_excerpt(lint_input, index, kind.pattern) for index in matches[:MAX_EXAMPLES]),
            kind.effect,
            remedy=kind.remedy,
        )
    if clean:
        yield Finding(
            reading.name,
            "characters",
            problem=False,
            count=0,
            message="no control, invisible or replacement characters",
        )


def _character_excerpt(lint_input: LintInput, index: int, pattern: re.Pattern[str]) -> str:
    text = lint_input.corpus.texts[index]
    match = pattern.search(text)
    start = match.start() if match else 0
    code, name = f"U+{ord(text[start]):04X}", unicodedata.name(text[start], "").lower()
    excerpt = one_line(text[max(0, start - 15) : start + 15])
    return one_line(f"{lint_input.corpus.called(index)}: {f'{code} {name}'.strip()} in `{excerpt}`")


def check_mojibake(lint_input: LintInput) -> Iterator[Finding]:
    """Find texts that were decoded with the wrong encoding; always a problem.

    These are texts that ftfy can fix, and texts with C1 control characters, which stand for Windows dashes and quotes.
    """
    try:
        from ftfy import fix_encoding
        from ftfy.badness import badness
    except ImportError:
        raise MissingExtra("detecting wrong encodings", "knowledge") from None
    reading = lint_input.corpus
    repairs: list[tuple[int, str]] = []
    for index, text in enumerate(reading.texts):
        if text.isascii():
            continue
        has_controls = C1_CONTROL_PATTERN.search(text) is not None
        if has_controls or badness(text):
            repaired = fix_encoding(text)
            if has_controls or (repaired != text and badness(repaired) < badness(text)):
                repairs.append((index, repaired))
    if not repairs:
        yield Finding(
            reading.name,
            "mojibake",
            problem=False,
            count=0,
            message="no text seems to have been decoded with the wrong encoding",
        )
        return
    yield Finding(
        reading.name,
        "mojibake",
        problem=True,
        count=len(repairs),
        message=f"{pluralise(len(repairs), 'document')} decoded with the wrong encoding",
        examples=tuple(
            one_line(f"{reading.called(index)}: {_encoding_difference(reading.texts[index], repaired)}")
            for index, repaired in repairs[:MAX_EXAMPLES]
        ),
        effect="queries with the correct spelling do not match these words, and they split into more tokens",
        remedy="decode the source again with its actual encoding, or repair the texts with ftfy.fix_encoding",
    )


def _encoding_difference(before: str, after: str) -> str:
    """Describe the first word in which two texts differ.

    >>> _encoding_difference("a very schÃ¶n day", "a very schön day")
    '`schÃ¶n` should be `schön`'
    """
    old, new = before.split(), after.split()
    wrong, right = next(((a, b) for a, b in zip(old, new, strict=False) if a != b), (before, after))
    if wrong == right:
        return f"`{one_line(wrong, MAX_EXCERPT_CHARS // 2)}`"
    return f"`{one_line(wrong, MAX_EXCERPT_CHARS // 2)}` should be `{one_line(right, MAX_EXCERPT_CHARS // 2)}`"


def check_markup(lint_input: LintInput) -> Iterator[Finding]:
    """Find remains of HTML.

    A problem if they are in at least `problem_share` of the documents, since a few may be about HTML.
    """
    reading = lint_input.corpus
    marked = [i for i, text in enumerate(reading.texts) if ("<" in text or "&" in text) and MARKUP_PATTERN.search(text)]
    if not marked:
        yield Finding(reading.name, "markup", problem=False, count=0, message="no HTML tags or entities")
        return
    yield Finding(
        reading.name,
        "markup",
        lint_input.reaches_problem_share(len(marked)),
        len(marked),
        f"{pluralise(len(marked), 'document')} ({format_share(len(marked), len(reading))}) with HTML tags or entities",
        tuple(
            one_line(f"{reading.called(i)}: `{one_line(match[0], MAX_EXCERPT_CHARS // 2)}`")
            for i in marked[:MAX_EXAMPLES]
            if (match := MARKUP_PATTERN.search(reading.texts[i]))
        ),
        "tags waste tokens, and queries do not contain entities",
        remedy="remove tags and decode entities (html.unescape) before indexing",
    )


def check_boilerplate(lint_input: LintInput) -> Iterator[Finding]:
    """Find lines repeated in many documents; a problem in ten times `problem_share` of them."""
    reading = lint_input.corpus
    counts: Counter[int] = Counter()
    for text in reading.texts:
        counts.update({hash(line) for line in _long_lines(text)})
    min_documents = max(MIN_BOILERPLATE_DOCUMENTS, 10 * lint_input.thresholds.problem_share * len(reading))
    codes = {code: times for code, times in counts.most_common(MAX_EXAMPLES) if times >= min_documents}
    if not codes:
        yield Finding(
            reading.name, "boilerplate", problem=False, count=0, message="no line is repeated in many documents"
        )
        return
    lines_by_code: dict[int, str] = {}
    for text in reading.texts:
        for line in _long_lines(text):
            if hash(line) in codes:
                lines_by_code.setdefault(hash(line), line)
        if len(lines_by_code) == len(codes):
            break
    max_count = max(codes.values())
    yield Finding(
        reading.name,
        "boilerplate",
        problem=True,
        count=max_count,
        message=f"one line is repeated in {max_count:,} of {pluralise(len(reading), 'document')}",
        examples=tuple(
            f"`{one_line(lines_by_code[code], MAX_EXCERPT_CHARS)}` in {times:,}"
            for code, times in codes.items()
            if code in lines_by_code
        ),
        effect="shared text does not distinguish documents and makes their vectors more similar",
        remedy="remove headers, footers and notices before embedding",
    )


def _long_lines(text: str) -> set[str]:
    if "\n" not in text:
        return set()
    return {line for raw_line in text.split("\n") if len(line := raw_line.strip()) >= MIN_BOILERPLATE_CHARS}
