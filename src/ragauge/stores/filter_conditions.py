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
OPERATORS = {"$eq": EQUAL, "$in": ONE_OF, "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
RANGES = (">", ">=", "<", "<=")
BOUNDS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
"""Qdrant's names of range bounds."""
HINT = 'a value is a text, a number, true or false, {"$in": [...]}, or a range {"$gte": 1, "$lt": 5}'


class Condition(NamedTuple):
    """Condition on one metadata field; the value of `in` is a tuple."""

    field: str
    operator: str
    value: Any


def conditions_of(where: Mapping[str, Any]) -> list[Condition]:
    """Parse a filter into conditions; raise BadInput if it is malformed.

    >>> conditions_of({"lang": "de", "year": {"$gte": 2019, "$lt": 2024}})[1:]
    [Condition(field='year', operator='>=', value=2019), Condition(field='year', operator='<', value=2024)]
    """
    if not isinstance(where, Mapping):
        raise BadInput(f"the filter is {where!r:.80}; expected a mapping from fields to values", hint=HINT)
    found = []
    for field, value in where.items():
        if not isinstance(value, Mapping):
            found.append(Condition(field, EQUAL, _scalar(field, value)))
            continue
        for name, bound in value.items():
            if name not in OPERATORS:
                raise BadInput(
                    f"the filter: unknown operator of {field!r}; expected one of {', '.join(OPERATORS)}, got {name!r}",
                    hint=HINT,
                )
            found.append(_condition(field, OPERATORS[name], bound))
        if not value:
            raise BadInput(f"the filter: {field!r} has no operator", hint=HINT)
    return found


def _condition(field: str, operator: str, bound: Any) -> Condition:
    if operator == ONE_OF:
        if isinstance(bound, str) or not isinstance(bound, Sequence) or not len(bound):
            raise BadInput(f"the filter: $in of {field!r} must be a list of values, got {bound!r:.80}", hint=HINT)
        return Condition(field, operator, tuple(_scalar(field, one) for one in bound))
    value = _scalar(field, bound)
    if operator in RANGES and isinstance(value, str | bool):
        raise BadInput(f"the filter: a range of {field!r} needs a number, got {value!r:.80}", hint=HINT)
    return Condition(field, operator, value)


def _scalar(field: Any, given: Any) -> Any:
    value = given.item() if isinstance(given, np.generic) else given
    if not isinstance(field, str) or not isinstance(value, str | int | float):
        raise BadInput(f"the filter: {field!r} is {value!r:.80}", hint=HINT)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"the filter: {field!r} is {value}", hint=HINT)
    return value


def matches(about: Mapping[str, Any], conditions: Iterable[Condition]) -> bool:
    """Return whether metadata fulfil all conditions.

    A boolean never equals a number, and a missing field never matches.
    """
    return all(one.field in about and _holds(about[one.field], one.operator, one.value) for one in conditions)


def _holds(there: Any, operator: str, value: Any) -> bool:
    if operator == EQUAL:
        return bool(there == value) and (type(there) is bool) is (type(value) is bool)
    if operator == ONE_OF:
        return any(_holds(there, EQUAL, one) for one in value)
    if isinstance(there, str | bool):
        return False
    return bool({">": there > value, ">=": there >= value, "<": there < value, "<=": there <= value}[operator])


def as_sql(conditions: Sequence[Condition], placed: Callable[[Any], str], *, equal: str = EQUAL) -> str:
    """Convert conditions to an SQL expression.

    `placed` returns the placeholder or literal of a value, `equal` is the equality operator.
    """
    parts = []
    for field, operator, value in conditions:
        if operator == ONE_OF:
            parts.append(f"{field} IN ({', '.join(placed(one) for one in value)})")
        else:
            parts.append(f"{field} {equal if operator == EQUAL else operator} {placed(value)}")
    return " AND ".join(parts)


def values_of(conditions: Iterable[Condition]) -> list[Any]:
    """Return the values of conditions in the order of their placeholders."""
    return [one for _, operator, value in conditions for one in (value if operator == ONE_OF else [value])]


def whole_bound(operator: str, bound: float) -> int:
    """Return an integer bound that selects the same integers as `bound`.

    >>> whole_bound(">=", 2.5), whole_bound("<", 2.5), whole_bound(">", 2.5), whole_bound("<=", 3.0)
    (3, 3, 2, 3)
    """
    return math.ceil(bound) if operator in (">=", "<") else math.floor(bound)
