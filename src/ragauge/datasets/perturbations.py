"""Perturb queries: typos, case, accents, look-alike letters, white space, punctuation.

A perturbation changes some words, one word, or the whole text. Of n words that can be changed, rate * n are (rounded
half up), and at least one, so that short queries are perturbed too. A higher rate changes the same words in the same
way, and more. Words of three or more letters are preferred; shorter ones are used only if there are no longer ones.

The result depends only on the perturbation, the seed and the query id, not on other queries or their order. A text
is never emptied. A text with nothing to change is returned unchanged.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.records import Dataset

KEYBOARD_ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Rows of a QWERTY keyboard; each is shifted half a key to the right of the row above."""


def _build_key_neighbours() -> dict[str, str]:
    """Return the adjacent keys of each key.

    Letters have only letters, digits only digits.
    """
    neighbours: dict[str, str] = {}
    for line, row in enumerate(KEYBOARD_ROWS):
        for column, key in enumerate(row):
            adjacent = [
                (line, column - 1),
                (line, column + 1),
                (line - 1, column),
                (line - 1, column + 1),
                (line + 1, column - 1),
                (line + 1, column),
            ]
            adjacent_keys = [
                KEYBOARD_ROWS[y][x]
                for y, x in adjacent
                if 0 <= y < len(KEYBOARD_ROWS) and 0 <= x < len(KEYBOARD_ROWS[y])
            ]
            neighbours[key] = "".join(
                adjacent_key for adjacent_key in adjacent_keys if adjacent_key.isalpha() == key.isalpha()
            )
    return neighbours


KEY_NEIGHBOURS: Mapping[str, str] = _build_key_neighbours()
"""Adjacent keys of each key on a QWERTY keyboard: `g` has `f h t y v b`."""

_LOWER_CASE_ACCENTS = {
    "a": "\u00e0\u00e1\u00e2\u00e4",
    "c": "\u00e7",
    "e": "\u00e8\u00e9\u00ea\u00eb",
    "i": "\u00ec\u00ed\u00ee\u00ef",
    "n": "\u00f1",
    "o": "\u00f2\u00f3\u00f4\u00f6",
    "u": "\u00f9\u00fa\u00fb\u00fc",
    "y": "\u00fd\u00ff",
}
ACCENTED_LETTERS: Mapping[str, str] = _LOWER_CASE_ACCENTS | {
    letter.upper(): marked.upper() for letter, marked in _LOWER_CASE_ACCENTS.items()
}
"""Accented forms of each letter, each a single character."""

LOOKALIKE_LETTERS: Mapping[str, Sequence[str]] = {
    "a": "\u0430",  # Cyrillic a
    "c": "\u0441",  # Cyrillic es
    "e": "\u0435",  # Cyrillic ie
    "h": "\u04bb",  # Cyrillic shha
    "i": "\u0456",  # Cyrillic Byelorussian-Ukrainian i
    "j": "\u0458",  # Cyrillic je
    "o": "\u043e\u03bf",  # Cyrillic o, Greek omicron
    "p": "\u0440",  # Cyrillic er
    "s": "\u0455",  # Cyrillic dze
    "v": "\u03bd",  # Greek nu
    "x": "\u0445",  # Cyrillic ha
    "y": "\u0443",  # Cyrillic u
    "A": "\u0410\u0391",  # Cyrillic a, Greek alpha
    "B": "\u0412\u0392",  # Cyrillic ve, Greek beta
    "C": "\u0421",  # Cyrillic es
    "E": "\u0415\u0395",  # Cyrillic ie, Greek epsilon
    "H": "\u041d\u0397",  # Cyrillic en, Greek eta
    "I": "\u0406\u0399",  # Cyrillic Byelorussian-Ukrainian i, Greek iota
    "J": "\u0408",  # Cyrillic je
    "K": "\u041a\u039a",  # Cyrillic ka, Greek kappa
    "M": "\u041c\u039c",  # Cyrillic em, Greek mu
    "N": "\u039d",  # Greek nu
    "O": "\u041e\u039f",  # Cyrillic o, Greek omicron
    "P": "\u0420\u03a1",  # Cyrillic er, Greek rho
    "S": "\u0405",  # Cyrillic dze
    "T": "\u0422\u03a4",  # Cyrillic te, Greek tau
    "X": "\u0425\u03a7",  # Cyrillic ha, Greek chi
    "Y": "\u03a5",  # Greek upsilon
    "Z": "\u0396",  # Greek zeta
}
"""Cyrillic and Greek letters that look like a Latin letter."""

FULL_WIDTH_CODES: Mapping[int, int] = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
"""Full-width code points of the printable ASCII characters, for `str.translate`."""

ZERO_WIDTH_SPACE = "\u200b"
"""Zero-width space; invisible, and not white space for Python."""


WORD_PATTERN = re.compile(r"\w+")
GAP_PATTERN = re.compile(r"(?<=\S)\s+(?=\S)")
PREFERRED_WORD_LETTERS = 3
"""Minimum number of letters in the words that typos prefer."""
DEFAULT_RATE = 0.25
WordEdit = Callable[[str, random.Random], str]
"""Function that edits a word; it returns the word unchanged if it cannot be edited."""
DocumentFrequencies = Mapping[str, int]
"""Number of documents that contain each case-folded word."""


class PerturbationInput(NamedTuple):
    """Random generator, rate and document frequencies for one change."""

    rng: random.Random
    rate: float
    rarity: DocumentFrequencies


TextChange = Callable[[str, PerturbationInput], str]


@dataclass(frozen=True)
class Perturbation:
    """Perturbation with its description and the function that applies it."""

    about: str
    change: TextChange
    draws: bool = True
    """Whether the result depends on the seed."""
    reach: str = "words"
    """Scope: `words` (as many as the rate says), `text` (all of it), `word` (one)."""
    needs_rarity: bool = False


def perturb(
    texts: Mapping[str, str],
    how: str,
    *,
    rate: float = DEFAULT_RATE,
    seed: int = 0,
    rarity: DocumentFrequencies | None = None,
) -> dict[str, str]:
    """Perturb texts by id.

    `rarity` (document frequency of each word) is needed by some perturbations. Raises `BadInput` unless 0 < rate <=
    1.

    >>> perturb({"q1": "reverse a list", "q2": "ok"}, "upper case")
    {'q1': 'REVERSE A LIST', 'q2': 'OK'}
    >>> perturb({"q1": "reverse a list"}, "swap", rate=1, seed=1)
    {'q1': 'revrese a ilst'}
    """
    name, kind = find_perturbation(how)
    if not 0 < rate <= 1:
        raise BadInput(
            f"the rate must be above 0 and at most 1, got {rate:g}", hint="use 0.25 to change one of four words"
        )
    if kind.needs_rarity and rarity is None:
        raise MissingEvidence(
            f"`{name}` needs the number of documents with each word", hint="pass rarity={word: number}"
        )
    return {query: _perturb_text(text, name, kind, query, rate, seed, rarity or {}) for query, text in texts.items()}


def perturb_dataset(
    dataset: Dataset,
    perturbation: str,
    *,
    rate: float = DEFAULT_RATE,
    seed: int = 0,
    rarity: DocumentFrequencies | None = None,
) -> Dataset:
    queries = perturb(dataset.queries, perturbation, rate=rate, seed=seed, rarity=rarity)
    return replace(dataset, name=f"{dataset.name} ({find_perturbation(perturbation)[0]})", queries=queries, origin="")


def find_perturbation(perturbation: str) -> tuple[str, Perturbation]:
    """Find a perturbation by name; `upper-case` and `upper_case` are `upper case`."""
    name = re.sub(r"[\s_-]+", " ", perturbation.strip().lower())
    if name not in PERTURBATIONS:
        raise UnknownName("perturbation", perturbation, PERTURBATIONS)
    return name, PERTURBATIONS[name]


def _perturb_text(
    text: str, name: str, kind: Perturbation, query: str, rate: float, seed: int, rarity: DocumentFrequencies
) -> str:
    # Seed with a string: the hash of a tuple differs between processes.
    rng = random.Random(f"{name} {seed} {query}")  # noqa: S311 - no secret
    changed = kind.change(text, PerturbationInput(rng, rate, rarity))
    return changed if changed.strip() or not text.strip() else text


def _number_to_change(rate: float, n: int) -> int:
    return min(n, max(1, int(rate * n + 0.5)))


def _apply_to_words(edit: WordEdit) -> TextChange:
    """Make a change that applies an edit to some of the words."""

    def change(text: str, draw: PerturbationInput) -> str:
        words = list(WORD_PATTERN.finditer(text))
        order = list(range(len(words)))
        draw.rng.shuffle(order)
        edited = {position: edit(words[position][0], draw.rng) for position in order}
        changed = [position for position in order if edited[position] != words[position][0]]
        chosen = _prefer_long_words(changed, words)
        return _replace_matches(
            text,
            {words[position]: edited[position] for position in chosen[: _number_to_change(draw.rate, len(chosen))]},
        )

    return change


def _prefer_long_words(positions: Sequence[int], words: Sequence[re.Match[str]]) -> list[int]:
    for min_letters in (PREFERRED_WORD_LETTERS, 2, 1):
        long_enough = [position for position in positions if len(words[position][0]) >= min_letters]
        if long_enough:
            return long_enough
    return []


def _replace_matches(text: str, edited: Mapping[re.Match[str], str]) -> str:
    parts, end = [], 0
    for match in sorted(edited, key=lambda found_word: found_word.start()):
        parts += [text[end : match.start()], edited[match]]
        end = match.end()
    return "".join([*parts, text[end:]])


def _neighbour_key(letter: str, rng: random.Random) -> str:
    key = rng.choice(KEY_NEIGHBOURS[letter.lower()])
    return key.upper() if letter.isupper() else key


def _replace_by_neighbour_key(word: str, rng: random.Random) -> str:
    """Replace a letter by that of an adjacent key."""
    positions = [position for position, letter in enumerate(word) if letter.lower() in KEY_NEIGHBOURS]
    if not positions:
        return word
    at = rng.choice(positions)
    return word[:at] + _neighbour_key(word[at], rng) + word[at + 1 :]


def _swap_letters(word: str, rng: random.Random) -> str:
    """Swap two adjacent letters."""
    positions = [position for position in range(len(word) - 1) if word[position] != word[position + 1]]
    if not positions:
        return word
    at = rng.choice(positions)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _drop_letter(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[:at] + word[at + 1 :] if len(word) > 1 else word


def _double_letter(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[: at + 1] + word[at:]


def _insert_neighbour_key(word: str, rng: random.Random) -> str:
    """Insert the letter of a key adjacent to that of a neighbouring letter."""
    positions = [position for position, letter in enumerate(word) if letter.lower() in KEY_NEIGHBOURS]
    if not positions:
        return word
    at = rng.choice(positions)
    insert_at = at + rng.randrange(2)
    return word[:insert_at] + _neighbour_key(word[at], rng) + word[insert_at:]


def _add_typo(word: str, rng: random.Random) -> str:
    """Apply one of the five typo edits that changes the word."""
    edits: list[WordEdit] = [
        _replace_by_neighbour_key,
        _swap_letters,
        _drop_letter,
        _double_letter,
        _insert_neighbour_key,
    ]
    rng.shuffle(edits)
    return next((edited for edit in edits if (edited := edit(word, rng)) != word), word)


def _replace_from_table(table: Mapping[str, Sequence[str]]) -> WordEdit:
    """Make an edit that replaces one letter by an alternative from a table."""

    def edit(word: str, rng: random.Random) -> str:
        positions = [position for position, letter in enumerate(word) if letter in table]
        if not positions:
            return word
        at = rng.choice(positions)
        return word[:at] + rng.choice(table[word[at]]) + word[at + 1 :]

    return edit


def _to_full_width(word: str, _: random.Random) -> str:
    return word.translate(FULL_WIDTH_CODES)


def _insert_inside(mark: str) -> WordEdit:
    """Make an edit that inserts a mark between two letters of a word."""

    def edit(word: str, rng: random.Random) -> str:
        if len(word) < 2:
            return word
        at = rng.randrange(1, len(word))
        return word[:at] + mark + word[at:]

    return edit


def _join_words(text: str, draw: PerturbationInput) -> str:
    gaps = list(GAP_PATTERN.finditer(text))
    draw.rng.shuffle(gaps)
    return _replace_matches(text, dict.fromkeys(gaps[: _number_to_change(draw.rate, len(gaps))], ""))


def _add_typo_by_frequency(sign: int) -> TextChange:
    """Make a change that adds a typo to the rarest (1) or commonest (-1) word.

    Rarity is the number of documents with the word. The first of several equal words is used.
    """

    def change(text: str, draw: PerturbationInput) -> str:
        words = list(WORD_PATTERN.finditer(text))
        edited = [_add_typo(word[0], draw.rng) for word in words]
        changed = _prefer_long_words([at for at, word in enumerate(words) if edited[at] != word[0]], words)
        # A typo in a word that no document contains has no effect, so such a word is used only if there is no other.
        candidates = [at for at in changed if draw.rarity.get(words[at][0].casefold(), 0)] or changed
        if not candidates:
            return text
        at = min(candidates, key=lambda position: sign * draw.rarity.get(words[position][0].casefold(), 0))
        return _replace_matches(text, {words[at]: edited[at]})

    return change


def _apply_to_text(change: Callable[[str], str]) -> TextChange:
    return lambda text, _: change(text)


def _randomise_case(text: str, draw: PerturbationInput) -> str:
    return "".join(letter.upper() if draw.rng.random() < 0.5 else letter.lower() for letter in text)


def _alternate_case(text: str) -> str:
    letters, upper = [], False
    for letter in text:
        letters.append(letter.upper() if upper else letter.lower())
        upper = not upper if letter.isalpha() else upper
    return "".join(letters)


def _remove_accents(text: str) -> str:
    """Remove the accents of Latin, Greek and Cyrillic letters.

    Marks of other scripts are vowels and stay.
    """
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize(
        "NFC", "".join(character for character in decomposed if not "\u0300" <= character <= "\u036f")
    )


def _remove_punctuation(text: str) -> str:
    """Remove punctuation and symbols.

    Between two words they become a blank, except an apostrophe.
    """
    out, end = [], 0
    for mark, letters in groupby(text, _is_punctuation):
        run = "".join(letters)
        start, end = end, end + len(run)
        if not mark:
            out.append(run)
        elif run not in ("'", "\u2019") and text[:start].rstrip() == text[:start] and text[end:].lstrip() == text[end:]:
            out.append(" ")
    return " ".join("".join(out).split())


def _is_punctuation(letter: str) -> bool:
    return letter != "_" and unicodedata.category(letter)[0] in "PS"


PERTURBATIONS: Mapping[str, Perturbation] = {
    "keyboard": Perturbation(
        "a letter replaced by that of a neighbouring key", _apply_to_words(_replace_by_neighbour_key)
    ),
    "swap": Perturbation("two neighbouring letters change places", _apply_to_words(_swap_letters)),
    "drop": Perturbation("a letter is missing", _apply_to_words(_drop_letter)),
    "double": Perturbation("a letter doubled", _apply_to_words(_double_letter)),
    "insert": Perturbation("an extra letter from a neighbouring key", _apply_to_words(_insert_neighbour_key)),
    "typos": Perturbation("one of these five in each changed word", _apply_to_words(_add_typo)),
    "rare word": Perturbation(
        "a typo in the word that the fewest documents contain", _add_typo_by_frequency(1), True, "word", True
    ),
    "common word": Perturbation(
        "a typo in the word that the most documents contain", _add_typo_by_frequency(-1), True, "word", True
    ),
    "upper case": Perturbation("ALL IN CAPITALS", _apply_to_text(str.upper), False, "text"),
    "lower case": Perturbation("all in lower case", _apply_to_text(str.lower), False, "text"),
    "random case": Perturbation("each letter randomly in upper or lower case", _randomise_case, True, "text"),
    "alternating case": Perturbation("eVeRy OtHeR lEtTeR", _apply_to_text(_alternate_case), False, "text"),
    "accents added": Perturbation(
        "a letter with an accent that does not belong there", _apply_to_words(_replace_from_table(ACCENTED_LETTERS))
    ),
    "accents removed": Perturbation("letters without their accents", _apply_to_text(_remove_accents), False, "text"),
    "look alikes": Perturbation(
        "a letter replaced by a Cyrillic or Greek letter that looks the same",
        _apply_to_words(_replace_from_table(LOOKALIKE_LETTERS)),
    ),
    "full width": Perturbation("a word in full-width letters", _apply_to_words(_to_full_width)),
    "zero width": Perturbation(
        "an invisible character inside a word", _apply_to_words(_insert_inside(ZERO_WIDTH_SPACE))
    ),
    "decomposed": Perturbation(
        "letters and their accents apart (NFD)",
        _apply_to_text(lambda text: unicodedata.normalize("NFD", text)),
        False,
        "text",
    ),
    "double spaces": Perturbation(
        "every blank doubled", _apply_to_text(lambda text: text.replace(" ", "  ")), False, "text"
    ),
    "tabs": Perturbation("tabs instead of blanks", _apply_to_text(lambda text: text.replace(" ", "\t")), False, "text"),
    "joined words": Perturbation("no blank between two words", _join_words),
    "split words": Perturbation("a blank inside a word", _apply_to_words(_insert_inside(" "))),
    "no punctuation": Perturbation("words and blanks only", _apply_to_text(_remove_punctuation), False, "text"),
}
