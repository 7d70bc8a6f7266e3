"""Tables of letters: which keys lie side by side, what carries an accent, what looks like something else.

Letters that look alike are written by their numbers, since nobody could tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
"""The rows of a QWERTY keyboard, each half a key further right than the one above."""


def _keys() -> dict[str, str]:
    """For each key those that touch it, of letters letters only: a digit in a word is another kind of mistake."""
    found: dict[str, str] = {}
    for line, row in enumerate(ROWS):
        for at, key in enumerate(row):
            near = [
                (line, at - 1),
                (line, at + 1),
                (line - 1, at),
                (line - 1, at + 1),
                (line + 1, at - 1),
                (line + 1, at),
            ]
            touched = [ROWS[y][x] for y, x in near if 0 <= y < len(ROWS) and 0 <= x < len(ROWS[y])]
            found[key] = "".join(one for one in touched if one.isalpha() == key.isalpha())
    return found


KEYS: Mapping[str, str] = _keys()
"""For each key of ROWS its neighbours: `g` has `f h t y v b`."""

_ACCENTS = {
    "a": "\u00e0\u00e1\u00e2\u00e4",
    "c": "\u00e7",
    "e": "\u00e8\u00e9\u00ea\u00eb",
    "i": "\u00ec\u00ed\u00ee\u00ef",
    "n": "\u00f1",
    "o": "\u00f2\u00f3\u00f4\u00f6",
    "u": "\u00f9\u00fa\u00fb\u00fc",
    "y": "\u00fd\u00ff",
}
ACCENTED: Mapping[str, str] = _ACCENTS | {letter.upper(): marked.upper() for letter, marked in _ACCENTS.items()}
"""Letters and the same with accents, each one character."""

LOOKALIKES: Mapping[str, Sequence[str]] = {
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
"""Latin letters and those of other scripts that are drawn alike."""

FULL_WIDTH: Mapping[int, int] = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
"""The printable characters of ASCII as East Asian typography has them, as wide as an ideograph."""

ZERO_WIDTH = "\u200b"
"""The zero width space: no space at all to the eye, and none to Python."""
