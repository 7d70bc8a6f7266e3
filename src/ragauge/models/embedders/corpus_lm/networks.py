"""The two networks, an LSTM and a causal Transformer, as functions of their weights.

Both read a text from left to right, so that tokens after it, such as padding, do not change its states. Both mix each
token with the few before it first, which helps byte tokenizers to form parts of words. States are normalised and
compared with the input token table.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ragauge.core.errors import BadInput
from ragauge.core.settings import Above, AtLeast, AtMost, OneOf, check_settings

if TYPE_CHECKING:
    import torch


NETWORK_KINDS = ("lstm", "transformer")
OBJECTIVES = ("next", "pairs")
DEFAULT_BATCH_SIZES = {"next": 16_384, "pairs": 128}
"""Default size of a step, by objective: bytes of text, or documents."""
DEFAULT_PASSES = {"next": 2, "pairs": 3}
DEFAULT_LEARNING_RATES = {"next": 4e-3, "pairs": 3e-3}


@dataclass(frozen=True)
class Hyperparameters:
    """Checked settings of a network and its training.

    `LanguageModel` describes them.
    """

    kind: Annotated[str, OneOf(NETWORK_KINDS)] = "transformer"
    objective: Annotated[str, OneOf(OBJECTIVES)] = "next"
    dimension: Annotated[int, AtLeast(1), AtMost(8192)] = 128
    layers: Annotated[int, AtLeast(1), AtMost(64)] = 2
    heads: Annotated[int, AtLeast(1)] = 4
    context: Annotated[int, AtLeast(2), AtMost(65_536)] = 512
    passes: Annotated[int, AtLeast(0)] = 0
    batch: Annotated[int, AtLeast(0)] = 0
    rate: Annotated[float, AtLeast(0)] = 0.0
    temperature: Annotated[float, Above(0)] = 0.1
    trained: bool = True
    seed: Annotated[int, AtLeast(0), AtMost(2**53)] = 0

    def __post_init__(self) -> None:
        check_settings(self, "lm: ")
        for name, table in (
            ("passes", DEFAULT_PASSES),
            ("batch", DEFAULT_BATCH_SIZES),
            ("rate", DEFAULT_LEARNING_RATES),
        ):
            if getattr(self, name) == 0:
                object.__setattr__(self, name, table[self.objective])
        if self.kind == "transformer" and self.dimension % (2 * self.heads):
            raise BadInput(
                f"lm: the dimension {self.dimension} is not divisible among {self.heads} heads",
                hint="use a multiple of twice the number of heads",
            )

    def to_mapping(self) -> dict[str, Any]:
        """Return the settings as a mapping, without those that have no effect."""
        omitted = {"heads"} if self.kind == "lstm" else set()
        omitted |= set() if self.objective == "pairs" else {"temperature"}
        omitted |= set() if self.trained else {"passes", "batch", "rate", "temperature"}
        return {name: value for name, value in asdict(self).items() if name not in omitted}

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Hyperparameters:
        """Create the settings from a mapping that `to_mapping` returned."""
        return cls(**{name: value for name, value in settings.items() if name in cls.__dataclass_fields__})


if TYPE_CHECKING:
    Weights = Mapping[str, torch.Tensor]

TOKEN_INIT_STD = 0.02
"""Standard deviation of the initial token table, as in GPT-2."""
MIX_WINDOW_TOKENS = 5
"""Number of tokens that are mixed at first: each one and the four before it."""
ROTARY_BASE = 10_000.0
"""Base of the rotary position angles."""


def weight_shapes(recipe: Hyperparameters, rows: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of all weights of a network with `rows` tokens.

    >>> sum(math.prod(shape) for shape in weight_shapes(Hyperparameters(kind="lstm", dimension=8, layers=1),
    ...     10).values())
    680
    """
    d = recipe.dimension
    shapes: dict[str, tuple[int, ...]] = {
        "tokens": (rows, d),
        "first.norm": (d,),
        "near": (MIX_WINDOW_TOKENS, d),
        "last.norm": (d,),
    }
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
        shapes |= {f"{layer}.{name}": shape for name, shape in parts.items()}
    return shapes


def draw_weights(recipe: Hyperparameters, rows: int) -> dict[str, torch.Tensor]:
    """Draw the initial weights of a network; they depend on the seed only."""
    import torch

    chance = torch.Generator().manual_seed(recipe.seed)
    weights: dict[str, torch.Tensor] = {}
    for name, shape in weight_shapes(recipe, rows).items():
        if name.endswith("norm"):
            weights[name] = torch.ones(shape)
        elif name.endswith("bias"):
            weights[name] = torch.zeros(shape)
            weights[name][recipe.dimension : 2 * recipe.dimension] = 1.0  # Forget gate open at first, as usual.
        elif name == "near":
            weights[name] = torch.randn(shape, generator=chance) / 2
            weights[name][0] = 1.0
        else:
            spread = TOKEN_INIT_STD if name == "tokens" else 1 / math.sqrt(shape[-1])
            # The sum over the layers must not grow with their number.
            spread /= math.sqrt(2 * recipe.layers) if name.endswith("out") else 1
            weights[name] = torch.randn(shape, generator=chance) * spread
    return weights


def compute_states(recipe: Hyperparameters, weights: Weights, numbers: torch.Tensor) -> torch.Tensor:
    """Compute the state of each token of each row from the tokens up to it."""
    import torch.nn.functional as F  # noqa: N812 - its usual name

    inner = F.embedding(numbers, weights["tokens"])
    inner = _mix_previous_tokens(
        F.rms_norm(inner, (recipe.dimension,), weights["first.norm"], eps=1e-6), weights["near"]
    )
    states = _run_lstm(recipe, weights, inner) if recipe.kind == "lstm" else _run_transformer(recipe, weights, inner)
    return F.rms_norm(states, (recipe.dimension,), weights["last.norm"], eps=1e-6)


def compute_logits(weights: Weights, states: torch.Tensor) -> torch.Tensor:
    """Compute the logits of the next token from states."""
    return states @ weights["tokens"].T


def pool_states(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the mean state of each text, with unit length.

    Boundary token and padding are left out. A text without tokens has a vector of zeros.
    """
    import torch
    import torch.nn.functional as F  # noqa: N812

    places = torch.arange(states.shape[1], device=states.device)
    inside = ((places >= 1) & (places <= lengths[:, None])).to(states.dtype)
    mean = (states * inside[:, :, None]).sum(1) / lengths.clamp(min=1)[:, None]
    return F.normalize(mean, dim=1)


def _mix_previous_tokens(inner: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Add weighted earlier tokens to each token; each dimension has its own weights."""
    import torch.nn.functional as F  # noqa: N812

    length = inner.shape[1]
    mixed = inner * shares[0]
    for back in range(1, min(MIX_WINDOW_TOKENS, length)):
        mixed = mixed + F.pad(inner, (0, 0, back, 0))[:, :length] * shares[back]
    return mixed


def _run_lstm(recipe: Hyperparameters, weights: Weights, inner: torch.Tensor) -> torch.Tensor:
    import torch

    start = inner.new_zeros(recipe.layers, len(inner), recipe.dimension)
    none = inner.new_zeros(4 * recipe.dimension)
    flat = []
    for layer in range(recipe.layers):
        # The library has two biases where one is enough; the second stays zero.
        flat += [weights[f"{layer}.input"], weights[f"{layer}.state"], weights[f"{layer}.bias"], none]
    learning = torch.is_grad_enabled()  # Needed on a GPU; without dropout the result is the same.
    with warnings.catch_warnings():
        # A GPU prefers contiguous weights and copies them at every call.
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        output = torch.lstm(inner, (start, start), flat, True, recipe.layers, 0.0, learning, False, True)[0]
    return inner + output


def _run_transformer(recipe: Hyperparameters, weights: Weights, inner: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F  # noqa: N812

    rows, length, d = inner.shape
    cosines, sines = _rotary_angles(length, d // recipe.heads, inner.device)
    for layer in range(recipe.layers):
        layer_weights = {
            name.partition(".")[2]: tensor for name, tensor in weights.items() if name.startswith(f"{layer}.")
        }
        normed = F.rms_norm(inner, (d,), layer_weights["attention.norm"], eps=1e-6)
        qkv = F.linear(normed, layer_weights["attention.in"]).view(rows, length, 3, recipe.heads, d // recipe.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        query, key = _rotate_positions(query, cosines, sines), _rotate_positions(key, cosines, sines)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        inner = inner + F.linear(attended.transpose(1, 2).reshape(rows, length, d), layer_weights["attention.out"])
        normed = F.rms_norm(inner, (d,), layer_weights["feed.norm"], eps=1e-6)
        inner = inner + F.linear(F.gelu(F.linear(normed, layer_weights["feed.in"])), layer_weights["feed.out"])
    return inner


def _rotary_angles(length: int, width: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine of rotary positions.

    Attention then depends on relative distance only.
    """
    import torch

    speeds = ROTARY_BASE ** (-torch.arange(0, width, 2, device=device) / width)
    angles = torch.arange(length, device=device)[:, None] * speeds
    return angles.cos(), angles.sin()


def _rotate_positions(values: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    import torch

    first, second = values.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
