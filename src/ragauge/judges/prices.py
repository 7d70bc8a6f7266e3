"""Prices of tokens, given by the user as a table, since they change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput
from ragauge.formats.settings import read_toml
from ragauge.judges.ledger import Price

_HINT = '["gpt-4o-mini"] with input = 0.15, output = 0.6 and maybe cached = 0.075, for a million tokens'


def as_prices(given: Any) -> dict[str, Price]:
    """Parse prices by model; raises BadInput if a price is invalid.

    `given` is `{model: (input, output)}`, `{model: {"input": …, "output": …}}`, or a TOML file of the latter.

    >>> as_prices({"small": (0.15, 0.6)})["small"].output
    0.6
    """
    if given is None:
        return {}
    file = str(given) if isinstance(given, str | Path) else None
    table = given if file is None else read_toml(file)
    if not isinstance(table, Mapping):
        raise BadInput(f"prices are {given!r}", hint=_HINT)
    return {str(model): _price(str(model), said, file) for model, said in table.items()}


def _price(model: str, said: Any, file: str | None) -> Price:
    if isinstance(said, Price):
        return said
    parts = dict(said) if isinstance(said, Mapping) else None
    if isinstance(said, tuple | list) and len(said) in (2, 3):
        parts = dict(zip(("input", "output", "cached"), said, strict=False))
    if parts is None or not {"input", "output"} <= parts.keys() <= {"input", "output", "cached"}:
        raise BadInput(f"the price of `{model}` is {said!r}", file=file, hint=_HINT)
    for name, value in parts.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise BadInput(f"the {name} price of `{model}` is {value!r}, not a number", file=file, hint=_HINT)
    return Price(**parts)
