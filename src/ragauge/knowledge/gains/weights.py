"""Weights of the terms of a gain: measures, context recall and novelty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ragauge.errors import BadInput
from ragauge.measures.conventions import Convention
from ragauge.measures.names import Measure, parse
from ragauge.measures.table import mean

CONTEXT_RECALL, NOVELTY = "context_recall", "novelty"
DEFINITIONS = ("mean", "least", "lexical")
"""Definitions of the novelty of a document; see DocumentNovelty."""
HEAVIEST = 1e9
"""Largest absolute weight; larger ones would make sums lose precision."""


def read_weights(given: Mapping[str, float] | None, k: int, rules: Convention) -> dict[str, float]:
    """Return weights by canonical term name.

    By default a third for each of three terms. A measure with an optional cutoff and none given is cut at k. BadInput
    is raised for invalid weights.

    >>> from ragauge.measures.conventions import PRESETS
    >>> read_weights({"Recall@5": 0.5, "MRR": 0.5}, 10, PRESETS["default"])
    {'recall@5': 0.5, 'mrr@10': 0.5}
    """
    if given is None:
        return dict.fromkeys((f"recall@{k}", CONTEXT_RECALL, NOVELTY), 1 / 3)
    found: dict[str, float] = {}
    for text, weight in given.items():
        name = _name(text, k, rules)
        if name in found:
            raise BadInput(f"`{name}` has two weights", hint="one for each term")
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or (isinstance(weight, float) and math.isnan(weight)):
            raise BadInput(f"the weight of {name} is {weight!r}, not a number", hint="--weight recall@10=0.5")
        if abs(weight) > HEAVIEST:
            raise BadInput(f"the weight of {name} is more than {HEAVIEST:,.0f}", hint="--weight recall@10=0.5")
        found[name] = float(weight)
    if not any(found.values()):
        raise BadInput("no term has a weight", hint="--weight recall@10=0.5 --weight novelty=0.5")
    return found


def _name(text: str, k: int, rules: Convention) -> str:
    plain = text.strip().lower().replace("-", "_")
    if plain in (CONTEXT_RECALL, NOVELTY):
        return plain
    if plain.startswith(f"{CONTEXT_RECALL}@"):
        raise BadInput("context_recall is that of the first k documents", hint="-k says how many")
    measure = _averaged(parse(text, rules))
    return str(replace(measure, cutoff=k) if measure.cutoff is None and measure.spec.cutoff == "rank?" else measure)


def _averaged(measure: Measure) -> Measure:
    """Return the measure; raise BadInput unless it is averaged over queries."""
    if measure.spec.aggregate is not mean or dict(measure.options).get("of") == "means":
        raise BadInput(
            f"{measure} is no mean over queries, so that no query has a part in it", hint="a measure such as recall@10"
        )
    return measure


def measures_of(weights: Mapping[str, float], rules: Convention) -> list[Measure]:
    """Return the terms that are measures of rankings, in order."""
    return [parse(name, rules) for name in weights if name not in (CONTEXT_RECALL, NOVELTY)]
