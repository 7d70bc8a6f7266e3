"""Directions of measures: whether lower or higher values are better, as stated or by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ragauge.core.errors import BadInput, RagaugeError, UnknownName
from ragauge.core.records import Scores
from ragauge.measures import answers, names
from ragauge.measures.registry import MeasureSpec

COST_UNIT_SUFFIXES = ("_ms", "_seconds", "_sec", "_ns", "_bytes")
"""Unit suffixes of measure names for which lower is better."""


def is_lower_better(measure: str) -> bool | None:
    """Return whether lower values of a measure are better, by its name.

    None if unknown.

    >>> [is_lower_better(name) for name in ("hallucination", "p95_ms", "Latency (s)", "unjudged@10")]
    [True, True, True, True]
    >>> [is_lower_better(name) for name in ("nDCG@10", "recall", "faithfulness", "throughput", "wer", "cost")]
    [False, False, False, False, None, None]
    """
    name = measure.strip().lower()
    base = re.split(r"[(@]", name)[0]
    if name.endswith(COST_UNIT_SUFFIXES) or "latency" in re.split(r"[^a-z]+", name):
        return True
    if base in ("qps", "throughput"):
        return False
    spec = answers.find_answer_spec(name) or _find_ranking_spec(name, base)
    return None if spec is None else spec.lower_is_better


def _find_ranking_spec(name: str, base: str) -> MeasureSpec | None:
    for text in (name, f"{base}@10"):  # a table may have a column `recall` that does not state its cutoff
        try:
            return names.parse_measure(text).spec
        except RagaugeError:
            continue
    return None


def resolve_directions(scores: Scores, directions: Mapping[str, bool] = MappingProxyType({})) -> Scores:
    """Set the directions that scores do not state: as given, else by name.

    `directions` is `{measure: whether lower is better}`. Raises `BadInput` if it contradicts a known direction.
    """
    by_measure = {
        m if m in list(scores.values) else scores.values._canonical(m): is_lower for m, is_lower in directions.items()
    }
    lower, unknown = assign_directions(scores.values, scores.lower_is_better, scores.direction_unstated, by_measure)
    return replace(scores, lower_is_better=lower, direction_unstated=unknown)


def assign_directions(
    measures: Iterable[str], lower: frozenset[str], unstated: frozenset[str], requests: Mapping[str, bool]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the lower-is-better measures, and those with unknown direction.

    Higher is assumed better for an unknown direction. Raises `BadInput` if `requests` contradicts a known direction.
    """
    directions: dict[str, bool | None] = {}
    for measure in measures:
        stated = is_lower_better(measure) if measure in unstated else measure in lower
        requested = requests.get(measure)
        if stated is not None and requested not in (None, stated):
            raise BadInput(
                f"`{measure}` is a {_describe_direction(stated)} measure, but {_direction_option(not stated)} names it",
                hint=f"remove `{_direction_option(not stated)} {measure}`",
            )
        directions[measure] = stated if requested is None else requested
    return (
        frozenset(measure for measure, is_lower in directions.items() if is_lower),
        frozenset(measure for measure, is_lower in directions.items() if is_lower is None),
    )


def given_directions(
    lower: Iterable[str], higher: Iterable[str], scores: Iterable[Mapping[str, object]]
) -> dict[str, bool]:
    """Return `{measure: whether lower is better}` from two lists of measures.

    Raises `BadInput` for a measure in both lists, `UnknownName` for one in none of the scores.
    """
    names_lower, names_higher = (
        [measures] if isinstance(measures, str) else list(measures) for measures in (lower, higher)
    )
    named_twice = next((name for name in names_lower if name in names_higher), None)
    if named_twice is not None:
        raise BadInput(
            f"`{named_twice}` is named by --lower-is-better and by --higher-is-better",
            hint="name each measure in only one of them",
        )
    directions = {**dict.fromkeys(names_lower, True), **dict.fromkeys(names_higher, False)}
    by_system = list(scores)
    absent = next((name for name in directions if not any(name in values for values in by_system)), None)
    if absent is not None:
        known_measures = list(dict.fromkeys(measure for values in by_system for measure in values))
        raise UnknownName("measure", absent, known_measures)
    return directions


def _describe_direction(is_lower: bool) -> str:
    return "lower-is-better" if is_lower else "higher-is-better"


def _direction_option(is_lower: bool) -> str:
    return f"--{_describe_direction(is_lower)}"
