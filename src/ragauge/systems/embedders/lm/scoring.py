"""From texts to vectors and to bits, by a network that is ready."""

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
"""Tokens in a batch, filled-up places among them."""
CELLS = 40_000_000
"""Likelihoods in memory at a time."""


def vectors(recipe: Recipe, weights: Mapping[str, torch.Tensor], rows: Sequence[Numbers], device: str) -> Vectors:
    """The mean state of each text's first `context` tokens, at length 1; zeros where there are no tokens."""
    import torch

    out = np.zeros((len(rows), recipe.dimension), np.float32)
    cut = [row[: recipe.context] for row in rows]
    with torch.inference_mode():
        for group in _alike([len(row) for row in cut], AT_ONCE):
            numbers, lengths = filled([cut[i] for i in group], device)
            out[group] = networks.pooled(networks.states(recipe, weights, numbers), lengths).cpu().numpy()
    return out


def bits(recipe: Recipe, weights: Mapping[str, torch.Tensor], rows: Sequence[Numbers], device: str) -> Floats:
    """How many bits each text takes, its end included; all of it, whatever is read at once.

    A text that is longer than the context is read in windows that overlap by half: each token is told from the half
    of the context before it, at least, or from all that there is.
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
    """Tokens that are read, those that come next at each place, and from which place on these are counted."""
    line = np.concatenate([[MARK], row, [MARK]])
    before, after = line[:-1], line[1:]
    start, counted = 0, 0
    while counted < len(before):
        stop = min(start + context, len(before))
        yield before[start:stop], after[start:stop], counted - start
        counted = stop
        start = max(start + 1, stop - context // 2)


def _alike(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places of texts of like length, as many at a time as may be filled up to `most` tokens; empty ones not at all."""
    group: list[int] = []
    for place in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i]):
        if group and (len(group) + 1) * (lengths[place] + 1) > most:
            yield group
            group = []
        group.append(place)
    if group:
        yield group
