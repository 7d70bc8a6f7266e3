"""The two networks: an LSTM and a causal Transformer, as functions of their numbers.

Both read a text from left to right, so that whatever stands behind it, filled-up places too, changes nothing before it.
Both begin and end in the same way: each token is mixed with the few before it, which is what bytes need to become
parts of words; states are brought to one length, and compared with the table of tokens that they began with.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ragauge.systems.embedders.lm.recipes import Recipe

if TYPE_CHECKING:
    import torch

    Weights = Mapping[str, torch.Tensor]

SPREAD = 0.02
"""Of the table of tokens that a network begins with, as GPT-2 has it."""
NEAR = 5
"""Tokens that are mixed at first: each, and the four before it."""
TURN = 10_000.0
"""The base of the angles that tell how far two tokens are apart."""


def shapes(recipe: Recipe, rows: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of all numbers of a network that tells `rows` tokens apart.

    >>> sum(math.prod(shape) for shape in shapes(Recipe(kind="lstm", dimension=8, layers=1), 10).values())
    680
    """
    d = recipe.dimension
    found: dict[str, tuple[int, ...]] = {"tokens": (rows, d), "first.norm": (d,), "near": (NEAR, d), "last.norm": (d,)}
    for layer in range(recipe.layers):
        if recipe.kind == "lstm":
            parts: dict[str, tuple[int, ...]] = {"input": (4 * d, d), "state": (4 * d, d), "bias": (4 * d,)}
        else:
            parts = {
                "attention.norm": (d,),
                "attention.in": (3 * d, d),
                "attention.out": (d, d),
                "feed.norm": (d,),
                "feed.in": (4 * d, d),
                "feed.out": (d, 4 * d),
            }
        found |= {f"{layer}.{name}": shape for name, shape in parts.items()}
    return found


def drawn(recipe: Recipe, rows: int) -> dict[str, torch.Tensor]:
    """The numbers that a network begins with: the same for the same seed, whatever else was drawn before."""
    import torch

    chance = torch.Generator().manual_seed(recipe.seed)
    found: dict[str, torch.Tensor] = {}
    for name, shape in shapes(recipe, rows).items():
        if name.endswith("norm"):
            found[name] = torch.ones(shape)
        elif name.endswith("bias"):
            found[name] = torch.zeros(shape)
            found[name][recipe.dimension : 2 * recipe.dimension] = 1.0  # remember at first, as is usual
        elif name == "near":
            found[name] = torch.randn(shape, generator=chance) / 2
            found[name][0] = 1.0
        else:
            spread = SPREAD if name == "tokens" else 1 / math.sqrt(shape[-1])
            # What is added at each layer must not grow with their number.
            spread /= math.sqrt(2 * recipe.layers) if name.endswith("out") else 1
            found[name] = torch.randn(shape, generator=chance) * spread
    return found


def states(recipe: Recipe, weights: Weights, numbers: torch.Tensor) -> torch.Tensor:
    """A vector for each token of each row, which knows of the tokens before it."""
    import torch.nn.functional as F  # noqa: N812 - its usual name

    inner = F.embedding(numbers, weights["tokens"])
    inner = _mixed(F.rms_norm(inner, (recipe.dimension,), weights["first.norm"], eps=1e-6), weights["near"])
    found = _lstm(recipe, weights, inner) if recipe.kind == "lstm" else _transformer(recipe, weights, inner)
    return F.rms_norm(found, (recipe.dimension,), weights["last.norm"], eps=1e-6)


def likelihoods(weights: Weights, found: torch.Tensor) -> torch.Tensor:
    """From states to how likely each token comes next, as logits."""
    return found @ weights["tokens"].T


def pooled(found: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The mean of the states of each row's text, without the mark before it and what is filled up, at length 1.

    A text without tokens is all zeros: it has no direction.
    """
    import torch
    import torch.nn.functional as F  # noqa: N812

    places = torch.arange(found.shape[1], device=found.device)
    inside = ((places >= 1) & (places <= lengths[:, None])).to(found.dtype)
    mean = (found * inside[:, :, None]).sum(1) / lengths.clamp(min=1)[:, None]
    return F.normalize(mean, dim=1)


def _mixed(inner: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Each token with a share of those before it, another one for each number of a vector."""
    import torch.nn.functional as F  # noqa: N812

    length = inner.shape[1]
    found = inner * shares[0]
    for back in range(1, min(NEAR, length)):
        found = found + F.pad(inner, (0, 0, back, 0))[:, :length] * shares[back]
    return found


def _lstm(recipe: Recipe, weights: Weights, inner: torch.Tensor) -> torch.Tensor:
    import torch

    start = inner.new_zeros(recipe.layers, len(inner), recipe.dimension)
    none = inner.new_zeros(4 * recipe.dimension)
    flat = []
    for layer in range(recipe.layers):
        # The library has two biases where one does the same; the second stays zero.
        flat += [weights[f"{layer}.input"], weights[f"{layer}.state"], weights[f"{layer}.bias"], none]
    learning = torch.is_grad_enabled()  # a card must know; nothing is dropped, so that the numbers are the same
    with warnings.catch_warnings():
        # A card would rather have them in one piece, and copies them there at every call.
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        found = torch.lstm(inner, (start, start), flat, True, recipe.layers, 0.0, learning, False, True)[0]
    return inner + found


def _transformer(recipe: Recipe, weights: Weights, inner: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F  # noqa: N812

    rows, length, d = inner.shape
    cosines, sines = _angles(length, d // recipe.heads, inner.device)
    for layer in range(recipe.layers):
        own = {name.partition(".")[2]: one for name, one in weights.items() if name.startswith(f"{layer}.")}
        normed = F.rms_norm(inner, (d,), own["attention.norm"], eps=1e-6)
        three = F.linear(normed, own["attention.in"]).view(rows, length, 3, recipe.heads, d // recipe.heads)
        query, key, value = three.permute(2, 0, 3, 1, 4)
        query, key = _turned(query, cosines, sines), _turned(key, cosines, sines)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        inner = inner + F.linear(seen.transpose(1, 2).reshape(rows, length, d), own["attention.out"])
        normed = F.rms_norm(inner, (d,), own["feed.norm"], eps=1e-6)
        inner = inner + F.linear(F.gelu(F.linear(normed, own["feed.in"])), own["feed.out"])
    return inner


def _angles(length: int, width: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Places as angles (rotary): what two tokens are to each other depends on how far they are apart, not on where."""
    import torch

    speeds = TURN ** (-torch.arange(0, width, 2, device=device) / width)
    angles = torch.arange(length, device=device)[:, None] * speeds
    return angles.cos(), angles.sin()


def _turned(found: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    import torch

    one, other = found.chunk(2, dim=-1)
    return torch.cat([one * cosines - other * sines, other * cosines + one * sines], dim=-1)
