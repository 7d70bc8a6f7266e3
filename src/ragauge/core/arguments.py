"""Check of keyword arguments: a name that other libraries use gets a hint with the name that ragauge uses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from typing import Any, TypeVar

from ragauge.core.errors import UnknownName

F = TypeVar("F", bound=Callable[..., Any])

OTHER_NAMES: Mapping[str, str] = {"metric": "measures", "metrics": "measures", "top_k": "k", "topk": "k"}
"""Names of parameters by the name that ranx, ir_measures, ragas or scikit-learn have for them."""


def check_argument_names(function: F, module: str) -> F:
    """Wrap a public function so that an unknown keyword argument raises UnknownName.

    The wrapper is pickled as an attribute of `module`.
    """

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        known = _argument_names(function)
        for name, value in options.items():
            if known is not None and name not in known:
                is_run_missing = "run" in known and "run" not in options and len(arguments) < 2
                hint = _describe_own_name(name, value, known, is_run_missing=is_run_missing)
                raise UnknownName("argument", name, () if hint else known, of=function.__name__, hint=hint)
        return function(*arguments, **options)

    call.__module__ = module
    return call  # type: ignore[return-value]


@cache
def _argument_names(function: Callable[..., Any]) -> Collection[str] | None:
    """Return the names of all arguments of a function; None if it accepts any name."""
    names: dict[str, None] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            names[parameter.name] = None
        elif options := re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation)):
            names |= dict.fromkeys(inspect.unwrap(function).__globals__[options[1]].__annotations__)
        else:
            return None
    return names


def _describe_own_name(name: str, value: Any, known: Collection[str], *, is_run_missing: bool) -> str | None:
    """Return a hint with the name in ragauge; None if the name is not one of another library."""
    own_name = OTHER_NAMES.get(name, name)
    if is_run_missing and {"qrels", "measures"} <= set(known) and (own_name == "measures" or name == "dataset"):
        return "answers are scored by `ragauge.judge(samples, measures=[…])`"  # a call of ragas
    if own_name == "k" and "k" not in known and "measures" in known:
        return f'a cutoff is part of a measure: `measures=["ndcg@{value if isinstance(value, int) else 10}"]`'
    if own_name == "measures" and "measures" not in known:
        own_name = "measure"
    if own_name == name or own_name not in known:
        return None
    is_plain = isinstance(value, int | str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
    return f"use `{own_name}={value!r}`" if is_plain else f"use `{own_name}=…`"
