"""Text functions: sentences, words, shingles, invisible characters, and unpaired surrogates.

Sentences contain all characters of a text but white space.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from ragauge.core.errors import BadInput, InputWarning, excerpt


def _word_list(text: str) -> list[str]:
    return text.split()


NON_FINAL_ABBREVIATIONS = frozenset(
    _word_list(
        """
        mr mrs ms mx dr prof rev hon pres gov sen rep gen col lt capt cmdr sgt maj adm messrs mme mlle fr sr sra
        vs v cf eg ie viz al no nos vol vols pp p fig figs eq eqs sec secs ch chs art arts ed eds trans par para
        app approx est ca c circa resp incl excl ext tel dept univ mt ft st ste bros nr z.b d.h u.a bzw usw abs
        """
    )
)
"""Abbreviations, without their last full stop, that another word follows."""
POSSIBLY_FINAL_ABBREVIATIONS = frozenset(
    _word_list(
        """
        etc inc ltd co corp llc plc jr esq ph.d m.d b.a m.a b.sc m.sc jan feb mar apr jun jul aug sep sept oct
        nov dec mon tue wed thu fri sat sun ave blvd rd hr hrs min mins oz lb lbs km cm mm kg a.m p.m b.c a.d bc
        ad
        """
    )
)
"""Abbreviations that may also end a sentence. They do if the next word is a common start of a sentence."""
SENTENCE_STARTERS = frozenset(
    _word_list(
        """
        the a an this that these those it its he she they we you i his her their our my your there here in on at
        by for from with to of as if when while after before since although though because however but and or so
        then thus therefore moreover furthermore also both each every some many most all no not one two what
        which who how why where is are was were do does did can could will would should may might has have had
        let please note yes
        """
    )
)

SENTENCE_END = re.compile(
    r"""(?P<stop>[.!?…‽⁇⁈⁉]+|[\u3002\uff01\uff1f\uff61]+)      # the stop
        (?P<closing>["'\u201d\u2019\xbb)\]}*_]*)           # closing quotes and brackets
        (?P<notes>(?:[ \t]?\[\d+(?:[ \t]*[,\u2013-][ \t]*\d+)*\])*)  # citations after it
    """,
    re.VERBOSE,
)
WIDE_STOPS = "\u3002\uff01\uff1f\uff61"
LIST_MARKER = re.compile(r"\s*(?:[-*+•‣▪◦·\u2013\u2014]\s|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})[.)]\s|#{1,6}\s|>\s|\|)")
ENUMERATOR = re.compile(r"\W*(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})[.)]?\W*")
INLINE_ENUMERATOR = re.compile(r"[:;]\s+\(?(?:\d{1,3}|[a-zA-Z])$")
INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
STOP_CONTEXT_CHARS = 80
"""Number of characters before and after a stop that decide whether it ends a sentence."""
MIN_WRAPPED_LINE_CHARS = 50
"""Minimum length in characters of a line that may have been wrapped; shorter lines end on purpose."""


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, in order.

    Items of lists, rows of tables and headings count as sentences.

    >>> split_sentences("Dr. J. Smith paid $3.50 in the U.S. last May.[1] Was it much? It was.")
    ['Dr. J. Smith paid $3.50 in the U.S. last May.[1]', 'Was it much?', 'It was.']
    """
    sentences = [sentence.strip() for paragraph in _split_paragraphs(text) for sentence in _split_paragraph(paragraph)]
    return [sentence for sentence in sentences if sentence]


def _split_paragraphs(text: str) -> list[str]:
    """Join wrapped lines; every other line is a paragraph."""
    runs: list[list[str]] = []
    for line in text.splitlines():
        if runs and runs[-1] and _is_continuation(runs[-1][-1], line):
            runs[-1].append(line)
        else:
            runs.append([line])
    return ["\n".join(run) for run in runs]


def _is_continuation(before: str, line: str) -> bool:
    before, start = before.strip(), line.strip()[:1]
    if (
        not before
        or not start
        or LIST_MARKER.match(line)
        or before.startswith(("|", "#"))
        or before.endswith((":", "|"))
    ):
        return False
    return start.islower() or (len(before) >= MIN_WRAPPED_LINE_CHARS and SENTENCE_END.search(before[-4:]) is None)


def _split_paragraph(paragraph: str) -> list[str]:
    sentences: list[str] = []
    start = 0
    cased = any(letter.isupper() for letter in paragraph)
    for match in SENTENCE_END.finditer(paragraph):
        if match.start() >= start and _is_sentence_end(paragraph, start, match, cased):
            sentences.append(paragraph[start : match.end()])
            start = match.end()
    sentences.append(paragraph[start:])
    return sentences


def _is_sentence_end(text: str, start: int, match: re.Match[str], cased: bool) -> bool:
    """Return whether a sentence that began at `start` ends with this stop."""
    stop, text_after = match["stop"], text[match.end() : match.end() + STOP_CONTEXT_CHARS]
    text_before = text[max(start, match.start() - STOP_CONTEXT_CHARS) : match.start()]
    if not text_after.strip():
        return True
    if (
        match.start() - start < STOP_CONTEXT_CHARS and ENUMERATOR.fullmatch(text[start : match.end()])
    ) or INLINE_ENUMERATOR.search(text_before):
        return False  # "2." before an item, not after a sentence
    if stop[-1] in WIDE_STOPS:
        return not match["closing"] or not text_after[0].isalpha() or _is_wide_letter(text_after[0])
    word = re.split(r"[\s(\[{\"“”']", text_before)[-1]
    next_text = text_after.lstrip()
    if not text_after[0].isspace():
        return _is_end_without_space(stop, word, match, text_after)
    if not word:
        return True  # a text with spaces before its stops
    if next_text[0].islower() and cased:
        return stop[-1] in "!?" and not match["closing"]
    if stop != ".":
        return stop[-1] in "!?" or not next_text[0].islower() or not cased
    return not _is_abbreviation(word, next_text, bool(match["notes"]))


def _is_abbreviation(word: str, follows: str, noted: bool) -> bool:
    """Return whether the stop after a word belongs to an abbreviation."""
    if noted:
        return False
    base = word.lower().rstrip(".")
    opens = re.match(r"[\"'\u201c\u2018(\[]*([^\W\d_]*)", follows)
    begins = opens is not None and opens[1].lower() in SENTENCE_STARTERS
    if base in NON_FINAL_ABBREVIATIONS and base != "no":
        return True
    if base == "no":
        return follows[0].isdigit()
    if base in POSSIBLY_FINAL_ABBREVIATIONS:
        return not begins
    if INITIALS.fullmatch(word) and (len(word) > 1 or word.isupper()):
        return not begins or (len(word) == 1 and word != "I")
    return False


def _is_end_without_space(stop: str, word: str, match: re.Match[str], text_after: str) -> bool:
    """Return whether a sentence ends without a space after its stop.

    An example is `in the 19th century.First for Women is …`.
    """
    if match["notes"]:
        return text_after[0].isupper()
    return (
        stop in (".", "!", "?")
        and re.fullmatch(r"[^\W\d_]{3,}|\d{2,4}|.*\)", word + match["closing"].replace("*", "")) is not None
        and re.match(r"[A-Z][a-z]*\s", text_after) is not None
    )


def _is_wide_letter(letter: str) -> bool:
    return "\u2e80" <= letter <= "\u9fff" or "\uac00" <= letter <= "\ud7af" or "\uff00" <= letter <= "\uffef"


ZERO_WIDTH_JOINERS = "\u200c\u200d"
"""Zero-width joiners. They are invisible and harmless, but Persian words and many emoji change without them."""


def one_line(text: str, max_chars: int = 0) -> str:
    r"""Remove line breaks and control characters from a text, and cut it to `max_chars` characters unless 0.

    >>> one_line("a \n b\x1b[31m"), len(one_line("\U0001f469\u200d\U0001f680")), one_line("abcdef", 4)
    ('a b�[31m', 3, 'abc…')
    """
    line = " ".join(
        "".join(c if c.isprintable() or c.isspace() or c in ZERO_WIDTH_JOINERS else "\ufffd" for c in text).split()
    )
    return excerpt(line, max_chars) if max_chars else line


UNKNOWN_PIECE = "⟨?⟩"
"""Text shown for an unknown token."""
VISIBLE_CHARACTERS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_lone_surrogates(text: str) -> str:
    r"""Replace unpaired surrogates, which UTF-8 cannot encode, by U+FFFD.

    >>> replace_lone_surrogates("a\ud800b")
    'a�b'
    """
    return text if text.isascii() else LONE_SURROGATE.sub("\ufffd", text)


def replace_control_characters(text: str) -> str:
    r"""Replace the characters that could change the state of a terminal, such as escape sequences.

    >>> replace_control_characters("a\tb\x1b[31m")
    'a\tb�[31m'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def show_invisible(text: str) -> str:
    r"""Show blanks, line ends, combining marks and non-printable characters visibly.

    >>> show_invisible(" the\n"), show_invisible("\u0301"), show_invisible("a\u200bb")
    ('␣the↵', '◌́', 'a\\u200bb')
    """
    visible = "".join(VISIBLE_CHARACTERS.get(c) or (c if c.isprintable() else f"\\u{ord(c):04x}") for c in text)
    return f"◌{visible}" if visible and unicodedata.combining(visible[0]) else visible


def show_invisible_bytes(data: bytes) -> str:
    r"""Show bytes as visible text.

    Incomplete characters are shown as hexadecimal numbers.

    >>> show_invisible_bytes(" é".encode()), show_invisible_bytes(b"\xf0\x9f")
    ('␣é', '\\xf0\\x9f')
    """
    return show_invisible(data.decode("utf-8", "backslashreplace"))


@cache
def byte_letters() -> dict[str, int]:
    """Return the letters that byte-level tokenizers use, as `{letter: byte}`.

    Printable bytes stand for themselves, the others for letters from U+0100 on.
    """
    printable_bytes = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    other_bytes = [byte for byte in range(256) if byte not in printable_bytes]
    return {chr(byte): byte for byte in printable_bytes} | {chr(256 + i): byte for i, byte in enumerate(other_bytes)}


WORD_PATTERN = re.compile(r"\w+")
SHINGLE_WORDS = 3
"""Number of words per shingle."""


def normalise(text: str) -> str:
    r"""Normalise a text: NFKC, case folding, and single blanks as white space.

    >>> normalise(" The  \ufb01rst\nLINE ")
    'the first line'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def split_words(text: str, *, fold: Literal["nfkc", "lower"] = "nfkc") -> list[str]:
    """Split a text into words without punctuation, after NFKC and case folding, or only in lower case.

    >>> split_words("It's 3.5 kg, the BOX")
    ['it', 's', '3', '5', 'kg', 'the', 'box']
    """
    return WORD_PATTERN.findall(text.lower() if fold == "lower" else unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Find the distinct 3-word shingles of a text; a shorter text is one shingle.

    An empty text has none.

    >>> sorted(shingles("to be or not")), sorted(shingles("To be"))
    ([('be', 'or', 'not'), ('to', 'be', 'or')], [('to', 'be')])
    """
    words = split_words(text)
    if len(words) < SHINGLE_WORDS:
        return frozenset([tuple(words)] if words else [])
    return frozenset(zip(*(words[start:] for start in range(SHINGLE_WORDS)), strict=False))


ID_FIELDS = frozenset({
    "_id", "id", "doc_id", "docid", "docno", "document_id", "chunk_id", "passage_id", "pid", "did", "corpus_id",
    "corpus-id", "query_id", "query-id", "queryid", "qid", "q_id", "topic_id", "sample_id", "relevant_docs", "target",
    "targets",
})  # fmt: skip
"""JSON fields that contain ids."""
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_CORRECT_ID_HINT = "correct the id: a character beyond U+FFFF is written as two \\u escapes, and one of them is missing"


class TextWarning(InputWarning):
    """Characters of a text were replaced."""


def may_have_surrogates(data: bytes) -> bool:
    """Return whether a JSON text has an escape that may be an unpaired surrogate."""
    return (b"\\ud" in data or b"\\uD" in data) and _SURROGATE_ESCAPE.search(data) is not None


def has_surrogate(text: Any) -> bool:
    """Return whether a value is a text with an unpaired surrogate."""
    return isinstance(text, str) and not text.isascii() and LONE_SURROGATE.search(text) is not None


def check_id(text: str, noun: str, *, file: str | None = None, line: int | None = None) -> None:
    """Raise BadInput for an id with an unpaired surrogate.

    Replacing it could make two ids equal.
    """
    if has_surrogate(text):
        escaped_id = text.encode("ascii", "backslashreplace").decode()
        raise BadInput(
            f"{noun} `{escaped_id}` contains an unpaired surrogate", file=file, line=line, hint=_CORRECT_ID_HINT
        )


def clean_json(
    value: Any, *, file: str | None = None, line: int | None = None, data: bytes = b"", ids: bool = False
) -> tuple[Any, int]:
    """Replace unpaired surrogates in a parsed JSON value.

    Return the value and the number of changed texts. With `ids`, every text is an id. `data` is the JSON text, used
    to find the line of a refused id.
    """
    if isinstance(value, str):
        clean = replace_lone_surrogates(value)
        if clean != value and ids:
            check_id(value, "the id", file=file, line=_find_surrogate_line(value, data) if line is None else line)
        return clean, int(clean != value)
    if isinstance(value, list):
        pairs = [clean_json(item, file=file, line=line, data=data, ids=ids) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, dict):
        cleaned, total = {}, 0
        for name, item in value.items():
            check_id(name, "the key", file=file, line=_find_surrogate_line(name, data) if line is None else line)
            is_id = ids or name.lower() in ID_FIELDS
            cleaned[name], count = clean_json(item, file=file, line=line, data=data, ids=is_id)
            total += count
        return cleaned, total
    return value, 0


def warn_replaced(count: int, label: str) -> None:
    """Warn that characters of texts were replaced.

    The command line prints the warning as a note.
    """
    if count:
        texts = "1 text contains" if count == 1 else f"{count:,} texts contain"
        warnings.warn(f"{label}: {texts} unpaired surrogates, replaced by U+FFFD", TextWarning, stacklevel=2)


def _find_surrogate_line(text: str, data: bytes) -> int | None:
    surrogate = LONE_SURROGATE.search(text)
    if surrogate is None or not data:
        return None
    escape = re.search(rb"(?i)\\u%04x" % ord(surrogate[0]), data)
    return None if escape is None else data.count(b"\n", 0, escape.start()) + 1


def join_names(names: Sequence[str], max_names: int = 5) -> str:
    """Join the first names with commas and add how many more there are.

    >>> join_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    n_more = len(names) - max_names
    return ", ".join(names[:max_names]) + (f" and {n_more} more" if n_more > 0 else "")
