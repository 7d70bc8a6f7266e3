"""Hyperparameters of a small language model: everything that determines its weights, except the texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragauge.errors import BadInput

KINDS = ("lstm", "transformer")
OBJECTIVES = ("next", "pairs")
BATCH = {"next": 16_384, "pairs": 128}
"""Default size of a step, by objective: bytes of text, or documents."""
PASSES = {"next": 2, "pairs": 3}
RATE = {"next": 4e-3, "pairs": 3e-3}
WHOLE = ("dimension", "layers", "heads", "context", "batch", "passes", "seed")
MOST = {"dimension": 8192, "layers": 64, "context": 65_536}


@dataclass(frozen=True)
class Recipe:
    """Checked settings of a network and its training.

    0 for `batch`, `passes` and `rate` selects the default of the objective.
    """

    kind: str = "transformer"
    objective: str = "next"
    dimension: int = 128
    layers: int = 2
    heads: int = 4
    context: int = 512
    passes: int = 0
    batch: int = 0
    rate: float = 0.0
    temperature: float = 0.1
    trained: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("kind", KINDS), ("objective", OBJECTIVES)):
            if getattr(self, name) not in known:
                raise BadInput(f"lm: there is no {name} `{getattr(self, name)}`", hint=" or ".join(known))
        for name, table in (("passes", PASSES), ("batch", BATCH), ("rate", RATE)):
            if getattr(self, name) == 0:
                object.__setattr__(self, name, table[self.objective])
        for name in WHOLE:
            value = getattr(self, name)
            least = 0 if name == "seed" else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST.get(name, 2**53):
                raise BadInput(f"lm: {name} is {value}, not a whole number from {least} to {MOST.get(name, 'any')}")
        for name in ("rate", "temperature"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise BadInput(f"lm: {name} is {value}, not a number above 0")
        if self.context < 2:
            raise BadInput(f"lm: a context of {self.context} token is too short", hint="512 is usual")
        if self.kind == "transformer" and self.dimension % (2 * self.heads):
            raise BadInput(
                f"lm: a dimension of {self.dimension} cannot be shared out among {self.heads} heads",
                hint="the dimension is a multiple of twice the heads",
            )

    def told(self) -> dict[str, Any]:
        """Return the settings as a mapping, without those that have no effect."""
        left = {"heads"} if self.kind == "lstm" else set()
        left |= set() if self.objective == "pairs" else {"temperature"}
        left |= set() if self.trained else {"passes", "batch", "rate", "temperature"}
        return {name: value for name, value in asdict(self).items() if name not in left}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Recipe:
        """Create the settings from a mapping that `told` returned."""
        return cls(**{name: value for name, value in told.items() if name in cls.__dataclass_fields__})
