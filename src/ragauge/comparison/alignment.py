"""Check that scores of systems are comparable, and align them by query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput, Incomparable, MissingEvidence
from ragauge.core.records import Floats, Scores
from ragauge.core.samples import has_same_texts
from ragauge.evaluation.directions import assign_directions, given_directions
from ragauge.runs.experiment_folders import has_same_judgments

COMMON_QUERIES_HINT = (
    "--common-queries (common_queries=True) compares on the queries that all have, "
    "--count-missing counts what a system lacks as 0"
)
ValuesBySeed = dict[str, dict[str, dict[str, Floats]]]
"""`{system: {seed: {measure: one value per query}}}`. The label of a single seed is empty."""


@dataclass(frozen=True, eq=False)
class SystemScores:
    """Per-query scores of one system for one seed, with their provenance."""

    name: str
    queries: Sequence[str]
    values: Mapping[str, Floats]
    lower: frozenset[str] = frozenset()
    """Lower-is-better measures."""
    unknown: frozenset[str] = frozenset()
    """Measures of unknown direction. Higher is assumed to be better."""
    named: frozenset[str] = frozenset()
    """Lower-is-better measures whose direction follows from their names alone."""
    lacking: frozenset[str] = frozenset()
    """Queries without results in the run, regardless of how they are scored."""
    scores: Scores | None = None


def read_system_scores(
    scores: Any, lower: Sequence[str] = (), higher: Sequence[str] = ()
) -> dict[str, dict[str, SystemScores]]:
    """Return each system's scores by seed.

    `lower` and `higher` name the measures whose direction is given. Raises BadInput for an unsupported type.
    """
    if isinstance(scores, Scores) or not isinstance(scores, Mapping | Sequence) or isinstance(scores, str):
        raise BadInput(
            f"systems cannot be compared from {type(scores).__name__}",
            hint='compare(evaluate(qrels, {"bm25": …, "dense": …}), baseline="bm25")',
        )
    if not isinstance(scores, Mapping):
        given = list(scores)
        if not all(isinstance(item, Scores) for item in given):
            raise BadInput("a list of systems must contain only Scores", hint="give a mapping from names to scores")
        scores = {item.run: item for item in given}
        if len(scores) < len(given):
            raise BadInput("two systems have the same name", hint="give a mapping from names to scores")
    found = {str(name): _scores_by_seed(str(name), item) for name, item in scores.items()}
    sides = [side for seeds in found.values() for side in seeds.values()]
    directions = given_directions(lower, higher, [side.values for side in sides])
    return {
        name: {label: _with_directions(side, directions) for label, side in seeds.items()}
        for name, seeds in found.items()
    }


def _with_directions(side: SystemScores, directions: Mapping[str, bool]) -> SystemScores:
    """Set the direction of each measure: as stated, as given, or by its name."""
    canonical = str if side.scores is None else side.scores.values._canonical
    given = {name if name in list(side.values) else canonical(name): value for name, value in directions.items()}
    lower, unknown = assign_directions(side.values, side.lower, side.unknown, given)
    return replace(side, lower=lower, unknown=unknown, named=(lower & side.unknown) - given.keys())


def _scores_by_seed(name: str, thing: Any) -> dict[str, SystemScores]:
    """Return a system's scores by seed. The label of a single seed is empty."""
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        thing = {str(i): item for i, item in enumerate(thing, start=1)}
        return (
            {label: _to_system_scores(f"{name} #{label}", item) for label, item in thing.items()}
            if thing
            else _raise_unreadable(name)
        )
    if _nesting_depth(thing) == 3 or (
        isinstance(thing, Mapping) and any(isinstance(item, Scores) for item in thing.values())
    ):
        return {str(seed): _to_system_scores(f"{name} #{seed}", item) for seed, item in thing.items()}
    return {"": _to_system_scores(name, thing)}


def _to_system_scores(name: str, thing: Any) -> SystemScores:
    if isinstance(thing, Scores):
        return _from_scores(name, thing)
    depth = _nesting_depth(thing)
    return (
        _from_numbers(name, thing if depth == 2 else {"score": thing}) if depth in (1, 2) else _raise_unreadable(name)
    )


def _nesting_depth(thing: Any) -> int:
    """Return the number of nested mappings.

    Returns 0 if it varies or the values are not numbers.
    """
    if not isinstance(thing, Mapping) or not thing:
        return 0
    inside = {_nesting_depth(inner) if isinstance(inner, Mapping) else 0 for inner in thing.values()}
    if inside != {0}:
        return 1 + inside.pop() if len(inside) == 1 and 0 not in inside else 0
    return 1 if all(isinstance(inner, int | float | np.number) or inner is None for inner in thing.values()) else 0


def _raise_unreadable(name: str) -> Any:
    raise BadInput(
        f"the scores of `{name}` cannot be read",
        hint="Scores, {query: number}, or {measure: {query: number}}; a list or a mapping of these is by seed",
    )


def _from_scores(name: str, scores: Scores) -> SystemScores:
    lacking: frozenset[str] = frozenset()
    if scores.judged is not None:
        absent = np.flatnonzero(~scores.judged.answered).tolist()
        lacking = frozenset(scores.queries[i] for i in absent)
    return SystemScores(
        name,
        scores.queries,
        scores.values,
        scores.lower_is_better,
        scores.direction_unstated,
        lacking=lacking,
        scores=scores,
    )


def _from_numbers(name: str, values: Mapping[str, Mapping[str, float]]) -> SystemScores:
    queries = list(dict.fromkeys(str(query) for column in values.values() for query in column))
    columns = {}
    for measure, column in values.items():
        known = {str(query): math.nan if value is None else float(value) for query, value in column.items()}
        if len(known) < len(column):
            raise BadInput(
                f"two queries of `{name}` have the same id", hint="ids are compared as text: 1 and '1' are the same id"
            )
        columns[str(measure)] = np.array([known.get(query, math.nan) for query in queries])
    return SystemScores(name, queries, columns, unknown=frozenset(columns))


def check_comparable(sides: Sequence[SystemScores], *, judgments: bool = True) -> None:
    """Raise Incomparable if scores differ in more than the system.

    `judgments` also compares the judgments.
    """
    _check_directions(sides)
    first = next((side for side in sides if side.scores is not None), None)
    if first is None or first.scores is None:
        return
    for side in sides:
        if side.scores is None or side is first:
            continue
        if side.scores.convention != first.scores.convention:
            raise Incomparable(
                f"{first.name} is scored under the convention `{first.scores.convention}`, "
                f"{side.name} under `{side.scores.convention}`",
                hint="score both under one convention",
            )
        if side.scores.judge != first.scores.judge:
            raise Incomparable(
                f"{first.name} is judged by `{first.scores.judge or 'people'}`, "
                f"{side.name} by `{side.scores.judge or 'people'}`",
                hint="judge both with the same judge",
            )
        _check_sample_texts(first.name, first.scores, side.name, side.scores)
        mine, other = (first.scores.judged, side.scores.judged) if judgments else (None, None)
        if mine is not None and other is not None and not has_same_judgments(mine.judgments, other.judgments):
            raise Incomparable(_describe_judgment_differences(first, side), hint="score both with the same judgments")


def _check_directions(sides: Sequence[SystemScores]) -> None:
    """Raise Incomparable if a measure is lower-is-better in one system only."""
    lower = {measure: side.name for side in sides for measure in side.lower}
    for side in sides:
        measure = next((m for m in lower if m in side.values and m not in side.lower), None)
        if measure is not None:
            raise Incomparable(
                f"{measure} is lower-is-better in {lower[measure]}, but not in {side.name}",
                hint="give the measure the same `lower_is_better` in both tables",
            )


def _check_sample_texts(name: str, scores: Scores, other_name: str, other: Scores) -> None:
    """Raise Incomparable if samples with one id differ in question or reference."""
    shared = [query for query in scores.fingerprints if query in other.fingerprints]
    differ = [query for query in shared if not has_same_texts(scores.fingerprints[query], other.fingerprints[query])]
    if differ:
        raise Incomparable(
            f"`{differ[0]}` is another question in {other_name} than in {name}, or has another reference "
            f"({len(differ)} of {len(shared)} do)",
            hint="give each sample a unique id; without one, its id is its line number",
        )


def _describe_judgment_differences(first: SystemScores, other: SystemScores) -> str:
    one, two = (side.scores.judged.judgments.nested for side in (first, other) if side.scores is not None)
    shared = [query for query in one if query in two]
    changed = sum(dict(one[query]) != dict(two[query]) for query in shared)
    return (
        f"{first.name} and {other.name} are scored by different judgments: {len(one) - len(shared)} queries only in "
        f"the first, {len(two) - len(shared)} only in the second, {changed} of {len(shared)} judged otherwise"
    )


def find_shared_measures(sides: Sequence[SystemScores], wanted: str | Iterable[str] | None) -> list[str]:
    """Return the shared measures, by the first system's names for them.

    Raises Incomparable if there are none, or MissingEvidence if a wanted one is missing.
    """
    if wanted is None:
        shared = [m for m in sides[0].values if all(m in side.values for side in sides)]
        if not shared:
            names = "; ".join(f"{side.name}: {', '.join(side.values)}" for side in sides[:2])
            raise Incomparable(f"the systems have no measure in common ({names})")
        return shared
    texts = [wanted] if isinstance(wanted, str) else list(wanted)
    known = sides[0].values
    measures = [part.strip() for text in texts for part in ([text] if text in known else text.split(","))]
    for measure in measures:
        for side in sides:
            if measure not in side.values:
                raise MissingEvidence(
                    f"{side.name} has no values of `{measure}`", hint=f"choose one of {', '.join(side.values)}"
                )
    canonical = sides[0].scores.values._canonical if sides[0].scores is not None else str
    return list(
        dict.fromkeys(measure if measure in list(sides[0].values) else canonical(measure) for measure in measures)
    )


def find_shared_queries(
    sides: Sequence[SystemScores], *, common_queries: bool, count_missing: bool
) -> tuple[list[str], list[str]]:
    """Return the queries to compare on, with notes.

    Raises Incomparable if the systems have different queries, unless `common_queries` or `count_missing` is set.
    """
    have = [set(side.queries) - (set() if count_missing else side.lacking) for side in sides]
    everybody = set.intersection(*have)
    nobody = set.intersection(*(set(side.queries) & side.lacking for side in sides))
    union = set.union(*have) | nobody
    if everybody | nobody == union:
        return list(sides[0].queries), []
    if common_queries:
        queries = [query for query in sides[0].queries if query in everybody]
        if not queries:
            raise Incomparable("no query is in all systems")
        return queries, [f"compared on the {len(queries)} queries that all systems have, of {len(union)}"]
    if count_missing:  # Only in this case can a system lack a query altogether.
        known = {query for side in sides for query in side.queries}
        return [*sides[0].queries, *sorted(known - set(sides[0].queries))], []
    for side, mine in zip(sides, have, strict=True):
        absent = [query for query in sorted(union) if query not in mine and query not in nobody]
        if absent:
            other = next(o.name for o, theirs in zip(sides, have, strict=True) if absent[0] in theirs)
            raise Incomparable(
                f"{side.name} lacks {len(absent)} of {len(union)} queries, which {other} has "
                f"({_first_query_names(absent)})",
                hint=COMMON_QUERIES_HINT,
            )
    raise Incomparable("the systems do not have the same queries", hint=COMMON_QUERIES_HINT)


def align(
    named: Mapping[str, Mapping[str, SystemScores]],
    measures: Sequence[str],
    queries: Sequence[str],
    *,
    count_missing: bool,
) -> ValuesBySeed:
    """Return the values of all systems in the order of the queries."""
    return {
        name: {
            label: {m: _aligned_values(side, m, queries, count_missing) for m in measures}
            for label, side in seeds.items()
        }
        for name, seeds in named.items()
    }


def _aligned_values(side: SystemScores, measure: str, queries: Sequence[str], count_missing: bool) -> Floats:
    """Return the values in the order of the queries.

    Missing values are NaN, or 0 if `count_missing` is set.
    """
    places = {query: i for i, query in enumerate(side.queries)}
    values = side.values[measure]
    found = np.array([values[places[query]] if query in places else math.nan for query in queries])
    if np.isinf(found).any():
        query = queries[int(np.flatnonzero(np.isinf(found))[0])]
        raise BadInput(f"{measure} of query `{query}` of {side.name} is infinite", hint="remove or correct this value")
    if count_missing:
        lacks = np.array([query in side.lacking or query not in places for query in queries])
        if measure in side.lower and lacks.any():
            raise Incomparable(
                f"{side.name} lacks {int(lacks.sum())} queries; 0 would be the best value of {measure}, "
                "a lower-is-better measure",
                hint="--common-queries (common_queries=True) compares on the queries that all have",
            )
        found = np.where(lacks & np.isnan(found), 0.0, found)
    return found


def check_unscored(
    table: ValuesBySeed,
    sides: Sequence[SystemScores],
    measures: Sequence[str],
    queries: Sequence[str],
    *,
    common_queries: bool,
) -> list[str]:
    """Return notes on queries without a value, which are left out.

    Raises Incomparable if only some systems have a value for a query. With `common_queries`, its values are set to NaN
    instead.
    """
    notes = []
    for measure in measures:
        columns = np.stack([columns[measure] for seeds in table.values() for columns in seeds.values()])
        without = np.isnan(columns)
        undefined = np.array([side.scores is not None and not side.scores.n[measure] for side in sides])
        defined = without[~undefined]  # A measure that is undefined for a whole run does not affect the other runs.
        one_sided = defined.any(axis=0) & ~defined.all(axis=0)
        if one_sided.any() and not common_queries:
            first = int(np.flatnonzero(one_sided)[0])
            place = int(np.flatnonzero(without[:, first] & ~undefined)[0])
            side = sides[place]
            names = [queries[i] for i in np.flatnonzero(one_sided & without[place]).tolist()]
            reason = "" if side.scores is None else side.scores.unscored[measure].get(names[0], "")
            raise Incomparable(
                f"{side.name} has no {measure} for {len(names)} queries that have one in other systems "
                f"({_first_query_names(names)})" + (f": {reason}" if reason else ""),
                hint="--common-queries (common_queries=True) compares on the queries that all have a value for",
            )
        for seeds in table.values():  # A query without a value in one system is left out for all.
            for columns_of_seed in seeds.values():
                columns_of_seed[measure] = np.where(one_sided, math.nan, columns_of_seed[measure])
        left = int(defined.any(axis=0).sum())
        if left:
            notes.append(f"{measure}: {left} of {len(queries)} queries have no value and are left out")
    return notes


def _first_query_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
