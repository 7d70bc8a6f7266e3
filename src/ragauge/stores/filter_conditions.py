"""Filter conditions: equality, membership and numeric ranges.

A filter is a mapping from fields to values, all of which must match. A value is a text, a number or a boolean
(equality), `{"$in": [...]}`, or a range such as `{"$gte": 2019, "$lt": 2024}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.errors import BadInput

EQUAL, ONE_OF = "=", "in"
FILTER_OPERATORS = {"$eq": EQUAL, "$in": ONE_OF, "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
RANGE_OPERATORS = (">", ">=", "<", "<=")
MAX_EXACT_INTEGER = 2**53
"""Integers below it are exact in double precision, from it on some are not."""
HINT = 'use a text, a number, true or false, {"$in": [...]}, or a range {"$gte": 1, "$lt": 5}'


class FilterCondition(NamedTuple):
    """Condition on one metadata field; the value of `in` is a tuple."""

    field: str
    operator: str
    value: Any


def parse_filter(where: Mapping[str, Any]) -> list[FilterCondition]:
    """Parse a filter into conditions; raise BadInput if it is malformed.

    >>> parse_filter({"lang": "de", "year": {"$gte": 2019, "$lt": 2024}})[1:]
    [FilterCondition(field='year', operator='>=', value=2019), FilterCondition(field='year', operator='<', value=2024)]
    """
    if not isinstance(where, Mapping):
        raise BadInput(f"the filter is {where!r:.80}; expected a mapping from fields to values", hint=HINT)
    conditions = []
    for field, value in where.items():
        if not isinstance(value, Mapping):
            conditions.append(FilterCondition(field, EQUAL, _check_scalar(field, value)))
            continue
        for name, bound in value.items():
            if name not in FILTER_OPERATORS:
                raise BadInput(
                    f"the filter: unknown operator of {field!r}; expected one of {', '.join(FILTER_OPERATORS)}, got "
                    f"{name!r}",
                    hint=HINT,
                )
            conditions.append(_parse_condition(field, FILTER_OPERATORS[name], bound))
        if not value:
            raise BadInput(f"the filter: {field!r} has no operator", hint=HINT)
    return conditions


def _parse_condition(field: str, operator: str, bound: Any) -> FilterCondition:
    if operator == ONE_OF:
        if isinstance(bound, str) or not isinstance(bound, Sequence) or not len(bound):
            raise BadInput(f"the filter: $in of {field!r} must be a list of values, got {bound!r:.80}", hint=HINT)
        return FilterCondition(field, operator, tuple(_check_scalar(field, item) for item in bound))
    value = _check_scalar(field, bound)
    if operator in RANGE_OPERATORS and isinstance(value, str | bool):
        raise BadInput(f"the filter: a range of {field!r} needs a number, got {value!r:.80}", hint=HINT)
    return FilterCondition(field, operator, value)


def _check_scalar(field: Any, raw: Any) -> Any:
    value = raw.item() if isinstance(raw, np.generic) else raw
    if not isinstance(field, str) or not isinstance(value, str | int | float):
        raise BadInput(f"the filter: {field!r} is {value!r:.80}", hint=HINT)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"the filter: {field!r} is {value}", hint=HINT)
    return value


def matches_conditions(metadata: Mapping[str, Any], conditions: Iterable[FilterCondition]) -> bool:
    """Return whether metadata fulfil all conditions.

    A boolean never equals a number, and a missing field never matches.
    """
    return all(
        condition.field in metadata and _matches_value(metadata[condition.field], condition.operator, condition.value)
        for condition in conditions
    )


def _matches_value(actual: Any, operator: str, value: Any) -> bool:
    if operator == EQUAL:
        return bool(actual == value) and (type(actual) is bool) is (type(value) is bool)
    if operator == ONE_OF:
        return any(_matches_value(actual, EQUAL, item) for item in value)
    if isinstance(actual, str | bool):
        return False
    return bool({">": actual > value, ">=": actual >= value, "<": actual < value, "<=": actual <= value}[operator])


def conditions_to_sql(
    conditions: Sequence[FilterCondition], placed: Callable[[Any], str], *, equal: str = EQUAL
) -> str:
    """Convert conditions to an SQL expression.

    `placed` returns the placeholder or literal of a value, `equal` is the equality operator.
    """
    parts = []
    for field, operator, value in conditions:
        if operator == ONE_OF:
            parts.append(f"{field} IN ({', '.join(placed(item) for item in value)})")
        else:
            parts.append(f"{field} {equal if operator == EQUAL else operator} {placed(value)}")
    return " AND ".join(parts)


def condition_values(conditions: Iterable[FilterCondition]) -> list[Any]:
    """Return the values of conditions in the order of their placeholders."""
    return [item for _, operator, value in conditions for item in (value if operator == ONE_OF else [value])]


def to_integer_bound(operator: str, bound: float) -> int:
    """Return an integer bound that selects the same integers as `bound`.

    >>> to_integer_bound(">=", 2.5), to_integer_bound("<", 2.5), to_integer_bound(">", 2.5), to_integer_bound("<=", 3.0)
    (3, 3, 2, 3)
    """
    return math.ceil(bound) if operator in (">=", "<") else math.floor(bound)
