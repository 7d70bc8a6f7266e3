"""Compute vectors and bits of texts with a trained network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragauge.records import Floats
from ragauge.seams import Vectors
from ragauge.systems.embedders.lm import networks
from ragauge.systems.embedders.lm.numbering import MARK, Numbers
from ragauge.systems.embedders.lm.recipes import Recipe
from ragauge.systems.embedders.lm.training import filled

if TYPE_CHECKING:
    import torch

AT_ONCE = 16_384
"""Maximum number of tokens per batch, including padding."""
CELLS = 40_000_000
"""Maximum number of logits in memory."""


def vectors(recipe: Recipe, weights: Mapping[str, torch.Tensor], rows: Sequence[Numbers], device: str) -> Vectors:
    """Compute the mean state of each text's first `context` tokens, with unit length.

    A text without tokens has a vector of zeros.
    """
    import torch

    out = np.zeros((len(rows), recipe.dimension), np.float32)
    cut = [row[: recipe.context] for row in rows]
    with torch.inference_mode():
        for group in _alike([len(row) for row in cut], AT_ONCE):
            numbers, lengths = filled([cut[i] for i in group], device)
            out[group] = networks.pooled(networks.states(recipe, weights, numbers), lengths).cpu().numpy()
    return out


def bits(recipe: Recipe, weights: Mapping[str, torch.Tensor], rows: Sequence[Numbers], device: str) -> Floats:
    """Compute the bits of each whole text, including its end.

    A text that is longer than the context is read in windows that overlap by half. Each token is predicted from at
    least half a context before it, or from all preceding tokens.
    """
    import torch

    windows = [(at, *window) for at, row in enumerate(rows) for window in _windows(row, recipe.context)]
    out = np.zeros(len(rows))
    most = max(1, CELLS // weights["tokens"].shape[0])
    with torch.inference_mode():
        for group in _alike([len(windows[i][1]) for i in range(len(windows))], min(AT_ONCE, most)):
            numbers, _ = filled([windows[i][1][1:] for i in group], device)
            numbers[:, 0] = torch.tensor([int(windows[i][1][0]) for i in group], device=device)
            wanted, _ = filled([windows[i][2] for i in group], device)
            logits = networks.likelihoods(weights, networks.states(recipe, weights, numbers))
            told = torch.log_softmax(logits, -1).gather(2, wanted[:, 1:, None])[:, :, 0].double().cpu().numpy()
            for i, row in zip(group, told, strict=True):
                at, before, _, first = windows[i]
                out[at] -= row[first : len(before)].sum() / math.log(2)
    return out


def _windows(row: Numbers, context: int) -> Iterator[tuple[Numbers, Numbers, int]]:
    """Yield input tokens, next tokens and the first counted position per window."""
    line = np.concatenate([[MARK], row, [MARK]])
    before, after = line[:-1], line[1:]
    start, counted = 0, 0
    while counted < len(before):
        stop = min(start + context, len(before))
        yield before[start:stop], after[start:stop], counted - start
        counted = stop
        start = max(start + 1, stop - context // 2)


def _alike(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield positions of texts of similar length, up to `most` padded tokens.

    Empty texts are skipped.
    """
    group: list[int] = []
    for place in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i]):
        if group and (len(group) + 1) * (lengths[place] + 1) > most:
            yield group
            group = []
        group.append(place)
    if group:
        yield group
