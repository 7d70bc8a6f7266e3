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
    "--common-queries (common_queries=True) uses only queries that every system has, "
    "--count-missing (count_missing=True) scores missing queries as 0"
)
ValuesBySeed = dict[str, dict[str, dict[str, Floats]]]
"""`{system: {seed: {measure: one value per query}}}`. The label of a single seed is empty."""


@dataclass(frozen=True, eq=False)
class SystemScores:
    """Per-query scores of one system for one seed, with their provenance."""

    name: str
    queries: Sequence[str]
    values: Mapping[str, Floats]
    lower_is_better: frozenset[str] = frozenset()
    """Lower-is-better measures."""
    unknown_direction: frozenset[str] = frozenset()
    """Measures of unknown direction. Higher is assumed to be better."""
    lower_by_name: frozenset[str] = frozenset()
    """Lower-is-better measures whose direction follows from their names alone."""
    missing_queries: frozenset[str] = frozenset()
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
            f"expected the scores of several systems, got {type(scores).__name__}",
            hint='compare(evaluate(qrels, {"bm25": …, "dense": …}), baseline="bm25")',
        )
    if not isinstance(scores, Mapping):
        score_list = list(scores)
        if not all(isinstance(item, Scores) for item in score_list):
            raise BadInput("a list of systems must contain only Scores", hint="pass a mapping from names to scores")
        scores = {item.run: item for item in score_list}
        if len(scores) < len(score_list):
            raise BadInput("two systems have the same name", hint="pass a mapping from names to scores")
    scores_by_system = {str(name): _scores_by_seed(str(name), item) for name, item in scores.items()}
    systems = [system for seeds in scores_by_system.values() for system in seeds.values()]
    directions = given_directions(lower, higher, [system.values for system in systems])
    return {
        name: {label: _with_directions(system, directions) for label, system in seeds.items()}
        for name, seeds in scores_by_system.items()
    }


def _with_directions(system: SystemScores, directions: Mapping[str, bool]) -> SystemScores:
    """Set the direction of each measure: as stated, as given, or by its name."""
    canonical = str if system.scores is None else system.scores.values._canonical
    stated = {name if name in list(system.values) else canonical(name): value for name, value in directions.items()}
    lower, unknown = assign_directions(system.values, system.lower_is_better, system.unknown_direction, stated)
    return replace(
        system,
        lower_is_better=lower,
        unknown_direction=unknown,
        lower_by_name=(lower & system.unknown_direction) - stated.keys(),
    )


def _scores_by_seed(name: str, value: Any) -> dict[str, SystemScores]:
    """Return a system's scores by seed. The label of a single seed is empty."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = {str(i): item for i, item in enumerate(value, start=1)}
        return (
            {label: _to_system_scores(f"{name} #{label}", item) for label, item in value.items()}
            if value
            else _raise_unreadable(name)
        )
    if _nesting_depth(value) == 3 or (
        isinstance(value, Mapping) and any(isinstance(item, Scores) for item in value.values())
    ):
        return {str(seed): _to_system_scores(f"{name} #{seed}", item) for seed, item in value.items()}
    return {"": _to_system_scores(name, value)}


def _to_system_scores(name: str, value: Any) -> SystemScores:
    if isinstance(value, Scores):
        return _from_scores(name, value)
    depth = _nesting_depth(value)
    return (
        _from_numbers(name, value if depth == 2 else {"score": value}) if depth in (1, 2) else _raise_unreadable(name)
    )


def _nesting_depth(value: Any) -> int:
    """Return the number of nested mappings.

    Returns 0 if it varies or the values are not numbers.
    """
    if not isinstance(value, Mapping) or not value:
        return 0
    inner_depths = {_nesting_depth(item) if isinstance(item, Mapping) else 0 for item in value.values()}
    if inner_depths != {0}:
        return 1 + inner_depths.pop() if len(inner_depths) == 1 and 0 not in inner_depths else 0
    return 1 if all(isinstance(item, int | float | np.number) or item is None for item in value.values()) else 0


def _raise_unreadable(name: str) -> Any:
    raise BadInput(
        f"the scores of `{name}` cannot be read",
        hint="pass Scores, {query: number} or {measure: {query: number}}; for several seeds a list or mapping of these",
    )


def _from_scores(name: str, scores: Scores) -> SystemScores:
    missing_queries: frozenset[str] = frozenset()
    if scores.judged is not None:
        absent = np.flatnonzero(~scores.judged.answered).tolist()
        missing_queries = frozenset(scores.queries[i] for i in absent)
    return SystemScores(
        name,
        scores.queries,
        scores.values,
        scores.lower_is_better,
        scores.direction_unstated,
        missing_queries=missing_queries,
        scores=scores,
    )


def _from_numbers(name: str, values: Mapping[str, Mapping[str, float]]) -> SystemScores:
    queries = list(dict.fromkeys(str(query) for column in values.values() for query in column))
    columns = {}
    for measure, column in values.items():
        value_by_query = {str(query): math.nan if value is None else float(value) for query, value in column.items()}
        if len(value_by_query) < len(column):
            raise BadInput(
                f"two queries of `{name}` have the same id", hint="ids are compared as text: 1 and '1' are the same id"
            )
        columns[str(measure)] = np.array([value_by_query.get(query, math.nan) for query in queries])
    return SystemScores(name, queries, columns, unknown_direction=frozenset(columns))


def check_comparable(systems: Sequence[SystemScores], *, judgments: bool = True) -> None:
    """Raise Incomparable if scores differ in more than the system.

    `judgments` also compares the judgments.
    """
    _check_directions(systems)
    first = next((system for system in systems if system.scores is not None), None)
    if first is None or first.scores is None:
        return
    for system in systems:
        if system.scores is None or system is first:
            continue
        if system.scores.convention != first.scores.convention:
            raise Incomparable(
                f"{first.name} is scored under the convention `{first.scores.convention}`, "
                f"{system.name} under `{system.scores.convention}`",
                hint="score both under one convention",
            )
        if system.scores.judge != first.scores.judge:
            raise Incomparable(
                f"{first.name} is judged by `{first.scores.judge or 'people'}`, "
                f"{system.name} by `{system.scores.judge or 'people'}`",
                hint="judge both with the same judge",
            )
        _check_sample_texts(first.name, first.scores, system.name, system.scores)
        first_judged, judged = (first.scores.judged, system.scores.judged) if judgments else (None, None)
        if (
            first_judged is not None
            and judged is not None
            and not has_same_judgments(first_judged.judgments, judged.judgments)
        ):
            raise Incomparable(_describe_judgment_differences(first, system), hint="score both with the same judgments")


def _check_directions(systems: Sequence[SystemScores]) -> None:
    """Raise Incomparable if a measure is lower-is-better in one system only."""
    lower = {measure: system.name for system in systems for measure in system.lower_is_better}
    for system in systems:
        measure = next((m for m in lower if m in system.values and m not in system.lower_is_better), None)
        if measure is not None:
            raise Incomparable(
                f"{measure} is lower-is-better in {lower[measure]}, but not in {system.name}",
                hint="declare the same `lower_is_better` for the measure in both tables",
            )


def _check_sample_texts(name: str, scores: Scores, other_name: str, other_scores: Scores) -> None:
    """Raise Incomparable if samples with one id differ in question or reference."""
    shared = [query for query in scores.fingerprints if query in other_scores.fingerprints]
    differ = [
        query for query in shared if not has_same_texts(scores.fingerprints[query], other_scores.fingerprints[query])
    ]
    if differ:
        raise Incomparable(
            f"sample `{differ[0]}` has a different question or reference in {other_name} than in {name} "
            f"({len(differ)} of {len(shared)} common samples differ)",
            hint="give each sample a unique id; without one, its id is its line number",
        )


def _describe_judgment_differences(first: SystemScores, other: SystemScores) -> str:
    first_grades, other_grades = (
        system.scores.judged.judgments.nested for system in (first, other) if system.scores is not None
    )
    shared = [query for query in first_grades if query in other_grades]
    changed = sum(dict(first_grades[query]) != dict(other_grades[query]) for query in shared)
    return (
        f"{first.name} and {other.name} are scored by different judgments: "
        f"{len(first_grades) - len(shared)} queries only in the first, "
        f"{len(other_grades) - len(shared)} only in the second, {changed} of {len(shared)} with different grades"
    )


def find_shared_measures(systems: Sequence[SystemScores], requested: str | Iterable[str] | None) -> list[str]:
    """Return the shared measures, by the first system's names for them.

    Raises Incomparable if there are none, or MissingEvidence if a requested one is missing.
    """
    if requested is None:
        shared = [m for m in systems[0].values if all(m in system.values for system in systems)]
        if not shared:
            names = "; ".join(f"{system.name}: {', '.join(system.values)}" for system in systems[:2])
            raise Incomparable(f"the systems have no measure in common ({names})")
        return shared
    texts = [requested] if isinstance(requested, str) else list(requested)
    first_values = systems[0].values
    measures = [part.strip() for text in texts for part in ([text] if text in first_values else text.split(","))]
    for measure in measures:
        for system in systems:
            if measure not in system.values:
                raise MissingEvidence(
                    f"{system.name} has no values of `{measure}`", hint=f"choose one of {', '.join(system.values)}"
                )
    canonical = systems[0].scores.values._canonical if systems[0].scores is not None else str
    return list(
        dict.fromkeys(measure if measure in list(systems[0].values) else canonical(measure) for measure in measures)
    )


def find_shared_queries(
    systems: Sequence[SystemScores], *, common_queries: bool, count_missing: bool
) -> tuple[list[str], list[str]]:
    """Return the queries to compare on, with notes.

    Raises Incomparable if the systems have different queries, unless `common_queries` or `count_missing` is set.
    """
    query_sets = [set(system.queries) - (set() if count_missing else system.missing_queries) for system in systems]
    in_all = set.intersection(*query_sets)
    in_none = set.intersection(*(set(system.queries) & system.missing_queries for system in systems))
    union = set.union(*query_sets) | in_none
    if in_all | in_none == union:
        return list(systems[0].queries), []
    if common_queries:
        queries = [query for query in systems[0].queries if query in in_all]
        if not queries:
            raise Incomparable("no query is in all systems")
        return queries, [f"compared on the {len(queries)} queries that all systems have, of {len(union)}"]
    if count_missing:  # Only in this case can a system lack a query altogether.
        all_queries = {query for system in systems for query in system.queries}
        return [*systems[0].queries, *sorted(all_queries - set(systems[0].queries))], []
    for system, own_queries in zip(systems, query_sets, strict=True):
        missing = [query for query in sorted(union) if query not in own_queries and query not in in_none]
        if missing:
            other_name = next(
                other_system.name
                for other_system, other_queries in zip(systems, query_sets, strict=True)
                if missing[0] in other_queries
            )
            raise Incomparable(
                f"{system.name} lacks {len(missing)} of {len(union)} queries, which {other_name} has "
                f"({_first_query_names(missing)})",
                hint=COMMON_QUERIES_HINT,
            )
    raise Incomparable("the systems do not have the same queries", hint=COMMON_QUERIES_HINT)


def align(
    seeds_by_system: Mapping[str, Mapping[str, SystemScores]],
    measures: Sequence[str],
    queries: Sequence[str],
    *,
    count_missing: bool,
) -> ValuesBySeed:
    return {
        name: {
            label: {m: _aligned_values(system, m, queries, count_missing) for m in measures}
            for label, system in seeds.items()
        }
        for name, seeds in seeds_by_system.items()
    }


def _aligned_values(system: SystemScores, measure: str, queries: Sequence[str], count_missing: bool) -> Floats:
    """Return the values in the order of the queries.

    Missing values are NaN, or 0 if `count_missing` is set.
    """
    positions = {query: i for i, query in enumerate(system.queries)}
    values = system.values[measure]
    aligned = np.array([values[positions[query]] if query in positions else math.nan for query in queries])
    if np.isinf(aligned).any():
        query = queries[int(np.flatnonzero(np.isinf(aligned))[0])]
        raise BadInput(
            f"{measure} of query `{query}` of {system.name} is infinite", hint="remove or correct this value"
        )
    if count_missing:
        is_missing = np.array([query in system.missing_queries or query not in positions for query in queries])
        if measure in system.lower_is_better and is_missing.any():
            raise Incomparable(
                f"{system.name} lacks {int(is_missing.sum())} queries; 0 would be the best value of {measure}, "
                "a lower-is-better measure",
                hint="--common-queries (common_queries=True) compares on the queries that all have",
            )
        aligned = np.where(is_missing & np.isnan(aligned), 0.0, aligned)
    return aligned


def check_unscored(
    table: ValuesBySeed,
    systems: Sequence[SystemScores],
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
        is_missing = np.isnan(columns)
        is_undefined = np.array([system.scores is not None and not system.scores.n[measure] for system in systems])
        defined = is_missing[
            ~is_undefined
        ]  # A measure that is undefined for a whole run does not affect the other runs.
        one_sided = defined.any(axis=0) & ~defined.all(axis=0)
        if one_sided.any() and not common_queries:
            first = int(np.flatnonzero(one_sided)[0])
            position = int(np.flatnonzero(is_missing[:, first] & ~is_undefined)[0])
            system = systems[position]
            names = [queries[i] for i in np.flatnonzero(one_sided & is_missing[position]).tolist()]
            reason = "" if system.scores is None else system.scores.unscored[measure].get(names[0], "")
            raise Incomparable(
                f"{system.name} has no {measure} for {len(names)} queries that have one in other systems "
                f"({_first_query_names(names)})" + (f": {reason}" if reason else ""),
                hint="--common-queries (common_queries=True) uses only queries with a value in every system",
            )
        for seeds in table.values():  # A query without a value in one system is left out for all.
            for columns_of_seed in seeds.values():
                columns_of_seed[measure] = np.where(one_sided, math.nan, columns_of_seed[measure])
        n_left_out = int(defined.any(axis=0).sum())
        if n_left_out:
            notes.append(f"{measure}: {n_left_out} of {len(queries)} queries have no value and are left out")
    return notes


def _first_query_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
