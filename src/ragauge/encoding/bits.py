"""Bits per byte: how well a language model knows documents that it did not learn from, whatever its tokens are."""

from __future__ import annotations

import bz2
import lzma
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragauge.records import NOTHING

PRIMED = "xz, primed"
WINDOW = 64 * 2**20
"""Bytes that xz remembers: what comes before them is as good as not read."""


class Told(NamedTuple):
    """What a language model makes of documents that were held out."""

    per_byte: float = math.nan
    references: Mapping[str, float] = NOTHING
    """The same of compressors, over the same texts, by name; see `compressed`."""
    note: str = ""


def told(embedder: Any, texts: Sequence[str]) -> Told:
    """The bits of all documents that the model held out, over their bytes as UTF-8; nothing where it is no such model.

    A text that its tokens do not bring back has no bits: its bytes do not count, and compressors are not given it.
    """
    ask, held_out = getattr(embedder, "bits", None), getattr(embedder, "held_out", None)
    if not callable(ask) or not callable(held_out):
        return Told()
    held = held_out(list(texts))
    apart = [text for text, mine in zip(texts, held, strict=True) if mine and text]
    if not apart:
        return Told(note="no document was held out, so its bits per byte are not known")
    taken = np.asarray(ask(apart), np.float64)
    sizes = np.array([len(_bytes(text)) for text in apart], np.float64)
    known = np.isfinite(taken)
    lost = int((~known).sum())
    note = f"{lost} of {len(apart)} documents that were held out have no bits, and do not count" if lost else ""
    if not known.any():
        return Told(note=note)
    asked = [text for text, one in zip(apart, known.tolist(), strict=True) if one]
    learned = [text for text, mine in zip(texts, held, strict=True) if not mine and text]
    return Told(float(taken[known].sum() / sizes[known].sum()), compressed(asked, learned), note)


def compressed(texts: Sequence[str], learned: Sequence[str] = ()) -> dict[str, float]:
    """Bits per byte of texts, one after the other, by compressors at their best.

    `xz`, `bz2` and `zlib` have read nothing before. `xz, primed` has read the texts that models `learned` from, and
    takes what it needs for the others after them. That one text ends and another begins is told by a line end, as a
    model tells it by a mark: it takes bits, and is no byte of any text.

    >>> sorted(compressed(["the same again, "] * 500)) == ["bz2", "xz", "zlib"]
    True
    >>> max(compressed(["the same again, "] * 500).values()) < 0.2
    True
    """
    whole = _bytes("\n".join(texts))
    size = sum(len(_bytes(text)) for text in texts)
    taken = {"xz": len(_xz(whole)), "bz2": len(bz2.compress(whole, 9)), "zlib": len(zlib.compress(whole, 9))}
    if learned:
        before = _bytes("\n".join([*learned, ""]))[-WINDOW:]
        taken = {PRIMED: len(_xz(before + whole)) - len(_xz(before)), **taken}
    return {name: 8 * one / size for name, one in taken.items()} if size else {}


def _xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
