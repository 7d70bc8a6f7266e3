"""Paired comparisons of embedders: the best two, and those with one difference."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ragauge import plugins
from ragauge.comparisons import Method
from ragauge.errors import RagaugeError
from ragauge.lineups import Gap, Pair
from ragauge.records import Floats
from ragauge.stats import pairs as tests
from ragauge.systems.specs import Spec, parse

RANK = "rank"
"""Label of the pair of the best and the second-best embedder."""
WHOLE = frozenset({"model", "path", "of"})
"""Options that name another model altogether; two models differ in everything."""


def alike(described: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Find pairs of embedders whose descriptions differ in one option; name it.

    An option that is not given has its default value.

    >>> alike({"a": "lm(kind=lstm)", "b": "lm(kind=lstm, tokenizer=bytes)", "c": "lm(tokenizer=bytes)", "d": "minilm"})
    [('a', 'b', 'tokenizer'), ('b', 'c', 'kind')]
    >>> alike({"a": "lm", "b": "lm(kind=transformer)"})
    []
    """
    read: dict[str, Spec] = {}
    for name, text in described.items():
        try:
            read[name] = _whole(parse(text), "embedders")
        except RagaugeError:  # a user's object, which has no description
            continue
    found = ((one, other, _differs(read[one], read[other])) for one, other in combinations(read, 2))
    return [(one, other, what) for one, other, what in found if what]


def _whole(spec: Spec, family: str) -> Spec:
    """Return the description with the default value of every option that is not given."""
    try:
        parameters = inspect.signature(plugins.find(family, spec.name)).parameters
    except (RagaugeError, ImportError, TypeError, ValueError):  # its default values are unknown then
        return spec
    usual = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
    options = {**usual, **spec.options}
    cut = options.get("tokenizer")
    if isinstance(cut, str | Spec):
        options["tokenizer"] = _whole(parse(cut) if isinstance(cut, str) else cut, "tokenizers")
    return Spec(spec.name, options)


def _differs(one: Any, other: Any) -> str:
    """Return the single option in which two descriptions differ.

    Empty if there is no such option, if several differ, or if the models differ.

    >>> _differs(parse("lm(tokenizer=bpe(vocabulary=500))"), parse("lm(tokenizer=bpe(vocabulary=8000))"))
    'tokenizer vocabulary'
    """
    if one.name != other.name:
        return ""
    names = dict.fromkeys([*one.options, *other.options])
    odd = [name for name in names if one.options.get(name) != other.options.get(name)]
    if len(odd) != 1 or odd[0] in WHOLE:
        return ""
    sides = [side.options.get(odd[0]) for side in (one, other)]
    deeper = _differs(*sides) if all(isinstance(side, Spec) for side in sides) else ""
    return f"{odd[0]} {deeper}".strip()


def pairs(
    described: Mapping[str, str],
    values: Mapping[str, Sequence[float] | Floats],
    measure: str,
    *,
    models: Mapping[str, str] | None = None,
    lower: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Pair]:
    """Compare the best two embedders, and all pairs that differ in one option.

    `values` has the scores of each embedder, one per query, in the same order. It includes embedders without a
    description. The better embedder comes first in a pair. P-values are corrected over all pairs; a pair with two
    reasons is tested once. `models` has the embedders' own names. Two descriptions of one model with equal scores are
    not compared.
    """
    columns = {name: np.asarray(column, dtype=np.float64) for name, column in values.items()}
    means = {name: float(np.nanmean(one)) if np.isfinite(one).any() else math.nan for name, one in columns.items()}
    sign = 1 if lower else -1
    order = sorted((name for name in means if math.isfinite(means[name])), key=lambda name: sign * means[name])
    wanted = [(order[0], order[1], RANK)] if len(order) > 1 else []
    own = models or {}
    for one, other, what in alike({name: text for name, text in described.items() if name in order}):
        better, worse = sorted((one, other), key=order.index)
        one_model = one in own and own[one] == own.get(other)
        if not (one_model and np.array_equal(columns[one], columns[other], equal_nan=True)):
            wanted.append((better, worse, what))
    several = {}
    for better, worse, _ in wanted:
        base, mine = columns[worse][None, :], columns[better][None, :]
        several[better, worse] = tests.Pair(measure, worse, better, list(map(str, range(mine.size))), base, mine)
    rows = tests.compared(list(several.values()), Method(confidence=confidence, seed=seed))
    gaps = {
        both: Gap(row.difference, *row.ci, row.p_t, row.p_corrected, row.n)
        for both, row in zip(several, rows, strict=True)
    }
    return [Pair(better, worse, what, gaps[better, worse]) for better, worse, what in wanted]
