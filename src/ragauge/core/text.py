"""Text functions: sentences, words, shingles, and invisible characters.

Sentences contain all characters of a text but white space.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache


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
    r"""(?P<stop>[.!?…‽⁇⁈⁉]+|[\u3002\uff01\uff1f\uff61]+)      # the stop itself
        (?P<closing>["'\u201d\u2019\xbb)\]}*_]*)           # what closes with it
        (?P<notes>(?:[ \t]?\[\d+(?:[ \t]*[,\u2013-][ \t]*\d+)*\])*)  # citations that stand behind it
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
    found = [one.strip() for paragraph in _split_paragraphs(text) for one in _split_paragraph(paragraph)]
    return [one for one in found if one]


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
    found: list[str] = []
    start = 0
    cased = any(letter.isupper() for letter in paragraph)
    for match in SENTENCE_END.finditer(paragraph):
        if match.start() >= start and _is_sentence_end(paragraph, start, match, cased):
            found.append(paragraph[start : match.end()])
            start = match.end()
    found.append(paragraph[start:])
    return found


def _is_sentence_end(text: str, start: int, match: re.Match[str], cased: bool) -> bool:
    """Return whether a sentence that began at `start` ends with this stop."""
    stop, rest = match["stop"], text[match.end() : match.end() + STOP_CONTEXT_CHARS]
    before = text[max(start, match.start() - STOP_CONTEXT_CHARS) : match.start()]
    if not rest.strip():
        return True
    if (
        match.start() - start < STOP_CONTEXT_CHARS and ENUMERATOR.fullmatch(text[start : match.end()])
    ) or INLINE_ENUMERATOR.search(before):
        return False  # "2." before an item, not after a sentence
    if stop[-1] in WIDE_STOPS:
        return not match["closing"] or not rest[0].isalpha() or _is_wide_letter(rest[0])
    word = re.split(r"[\s(\[{\"“”']", before)[-1]
    follows = rest.lstrip()
    if not rest[0].isspace():
        return _is_end_without_space(stop, word, match, rest)
    if not word:
        return True  # a text with spaces before its stops
    if follows[0].islower() and cased:
        return stop[-1] in "!?" and not match["closing"]
    if stop != ".":
        return stop[-1] in "!?" or not follows[0].islower() or not cased
    return not _is_abbreviation(word, follows, bool(match["notes"]))


def _is_abbreviation(word: str, follows: str, noted: bool) -> bool:
    """Return whether the stop after a word belongs to an abbreviation."""
    if noted:
        return False
    plain = word.lower().rstrip(".")
    opens = re.match(r"[\"'\u201c\u2018(\[]*([^\W\d_]*)", follows)
    begins = opens is not None and opens[1].lower() in SENTENCE_STARTERS
    if plain in NON_FINAL_ABBREVIATIONS and plain != "no":
        return True
    if plain == "no":
        return follows[0].isdigit()
    if plain in POSSIBLY_FINAL_ABBREVIATIONS:
        return not begins
    if INITIALS.fullmatch(word) and (len(word) > 1 or word.isupper()):
        return not begins or (len(word) == 1 and word != "I")
    return False


def _is_end_without_space(stop: str, word: str, match: re.Match[str], rest: str) -> bool:
    """Return whether a sentence ends without a space after its stop.

    An example is `in the 19th century.First for Women is …`.
    """
    if match["notes"]:
        return rest[0].isupper()
    return (
        stop in (".", "!", "?")
        and re.fullmatch(r"[^\W\d_]{3,}|\d{2,4}|.*\)", word + match["closing"].replace("*", "")) is not None
        and re.match(r"[A-Z][a-z]*\s", rest) is not None
    )


def _is_wide_letter(letter: str) -> bool:
    return "\u2e80" <= letter <= "\u9fff" or "\uac00" <= letter <= "\ud7af" or "\uff00" <= letter <= "\uffef"


ZERO_WIDTH_JOINERS = "\u200c\u200d"
"""Zero-width joiners. They are invisible and harmless, but Persian words and many emoji change without them."""


def one_line(text: str) -> str:
    r"""Remove line breaks and control characters from a text.

    >>> one_line("a \n b\x1b[31m"), len(one_line("\U0001f469\u200d\U0001f680"))
    ('a b�[31m', 3)
    """
    return " ".join(
        "".join(c if c.isprintable() or c.isspace() or c in ZERO_WIDTH_JOINERS else "\ufffd" for c in text).split()
    )


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


def show_invisible(text: str) -> str:
    r"""Show blanks, line ends, combining marks and non-printable characters visibly.

    >>> show_invisible(" the\n"), show_invisible("\u0301"), show_invisible("a\u200bb")
    ('␣the↵', '◌́', 'a\\u200bb')
    """
    told = "".join(VISIBLE_CHARACTERS.get(c) or (c if c.isprintable() else f"\\u{ord(c):04x}") for c in text)
    return f"◌{told}" if told and unicodedata.combining(told[0]) else told


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
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


WORD_PATTERN = re.compile(r"\w+")
SHINGLE_WORDS = 3
"""Number of words per shingle."""


def normalise(text: str) -> str:
    r"""Normalise a text: NFKC, case folding, and single blanks as white space.

    >>> normalise(" The  \ufb01rst\nLINE ")
    'the first line'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def words(text: str) -> list[str]:
    """Split a text into normalised words, without punctuation.

    >>> words("It's 3.5 kg, the BOX")
    ['it', 's', '3', '5', 'kg', 'the', 'box']
    """
    return WORD_PATTERN.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Find the distinct 3-word shingles of a text; a shorter text is one shingle.

    An empty text has none.

    >>> sorted(shingles("to be or not")), sorted(shingles("To be"))
    ([('be', 'or', 'not'), ('to', 'be', 'or')], [('to', 'be')])
    """
    found = words(text)
    if len(found) < SHINGLE_WORDS:
        return frozenset([tuple(found)] if found else [])
    return frozenset(zip(*(found[start:] for start in range(SHINGLE_WORDS)), strict=False))
