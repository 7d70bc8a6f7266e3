"""Settings: bounds and choices declared by annotations, and their error messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from ragauge.core.errors import BadInput
from ragauge.core.settings import (
    Above,
    AtLeast,
    AtMost,
    Below,
    OneOf,
    check_int,
    check_number,
    check_settings,
    literal_choices,
)


@dataclass(frozen=True)
class ExampleSettings:
    """Settings with every supported kind of annotation."""

    k: Annotated[int, AtLeast(1), AtMost(1000)] = 10
    seed: Annotated[int, AtLeast(0)] = 0
    limit: Annotated[int, AtLeast(1)] | None = None
    timeout: Annotated[float, Above(0)] | None = None
    confidence: Annotated[float, Above(0), Below(1)] = 0.95
    sizes: Sequence[Annotated[int, AtLeast(1)]] | None = None
    shares: tuple[Annotated[float, Above(0), AtMost(1)], ...] = ()
    ties: Literal["trec", "ranked"] = "trec"
    test: Annotated[str, OneOf({"t": 1, "sign": 2})] = "t"
    names: Sequence[str] = ()
    anything: Any = None
    mixed: int | str = 0

    def __post_init__(self) -> None:
        check_settings(self)


def test_check_settings_accepts_values_within_bounds():
    ExampleSettings(1, 0, 1, 0.1, 0.5, [1, 2], (1, 0.5), "ranked", "sign", ["a"], object(), "all")
    ExampleSettings(k=np.int64(5), sizes=range(1, 4), confidence=np.float32(0.5), timeout=3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, "k must be between 1 and 1,000, got 0"),
        ({"k": 10**400}, "k must be between 1 and 1,000, got 10,000,"),
        ({"k": 2.0}, r"k must be a whole number between 1 and 1,000, got 2\.0"),
        ({"k": True}, "k must be a whole number between 1 and 1,000, got True"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": None}, "seed must be a whole number of at least 0, got None"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"timeout": 0}, "timeout must be above 0, got 0"),
        ({"timeout": math.nan}, "timeout must be above 0, got nan"),
        ({"timeout": math.inf}, "timeout must be above 0, got inf"),
        ({"timeout": "1"}, "timeout must be a number above 0, got '1'"),
        ({"confidence": 95}, "confidence must be above 0 and below 1, got 95"),
        ({"sizes": [3, 0]}, "sizes must be at least 1, got 0"),
        ({"sizes": 3}, "sizes must be a list, got 3"),
        ({"shares": (0.5, 1.5)}, r"shares must be above 0 and at most 1, got 1\.5"),
        ({"ties": "random"}, "ties must be one of trec, ranked, got `random`"),
        ({"test": "student"}, "test must be one of t, sign, got `student`"),
        ({"names": "a"}, "names must be a list, got 'a'"),
    ],
)
def test_check_settings_invalid_values_raise(wrong, message):
    with pytest.raises(BadInput, match=f"^{message}"):
        ExampleSettings(**wrong)


def test_check_settings_prefix_precedes_the_name():
    with pytest.raises(BadInput, match=r"^swarm: k must be between 1 and 1,000, got 0"):
        check_settings(type("Bare", (ExampleSettings,), {"__post_init__": lambda self: None})(k=0), "swarm: ")


def test_check_int_and_check_number_return_value():
    assert check_int("k", np.int64(3), 1, 5) == 3
    assert check_number("share", 0.5, Above(0)) == 0.5
    assert literal_choices(ExampleSettings) == {"ties": ("trec", "ranked")}
