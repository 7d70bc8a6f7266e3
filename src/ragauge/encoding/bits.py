"""Bits per byte of language models on held-out documents.

They are comparable across tokenizers.
"""

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
"""Window of xz in bytes; earlier bytes do not help compression."""


class Told(NamedTuple):
    """Bits per byte of a language model on held-out documents; NaN if it has none."""

    per_byte: float = math.nan
    references: Mapping[str, float] = NOTHING
    """Bits per byte of compressors on the same texts, by name; see `compressor_bits_per_byte`."""
    note: str = ""


def told(embedder: Any, texts: Sequence[str]) -> Told:
    """Compute the bits of all held-out documents over their UTF-8 bytes.

    The result is empty if the embedder is not a language model. A text that its tokens cannot restore has no bits. Such
    a text is left out for the model and for the compressors.
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
    """Compute the bits per byte of compressors on concatenated texts.

    Compressors run at their highest level. `xz`, `bz2` and `zlib` start without data. `xz, primed` first compresses the
    texts that models `learned` from; only the additional bytes count. A line end separates texts, as an end mark does
    for a model. It costs bits but is not counted as a byte of any text.

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
