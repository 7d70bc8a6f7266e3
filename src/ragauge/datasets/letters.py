"""Character tables for perturbations: adjacent keys, accented letters, look-alike letters.

Look-alike letters are written as code points, because they are indistinguishable on screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Rows of a QWERTY keyboard; each is shifted half a key to the right of the row above."""


def _keys() -> dict[str, str]:
    """Return the adjacent keys of each key.

    Letters have only letters, digits only digits.
    """
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
"""Adjacent keys of each key on a QWERTY keyboard: `g` has `f h t y v b`."""

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
"""Accented forms of each letter, each a single character."""

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
"""Cyrillic and Greek letters that look like a Latin letter."""

FULL_WIDTH: Mapping[int, int] = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
"""Full-width code points of the printable ASCII characters, for `str.translate`."""

ZERO_WIDTH = "\u200b"
"""Zero-width space; invisible, and not white space for Python."""
