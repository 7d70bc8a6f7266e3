"""Compare systems on the same queries with confidence intervals and paired tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ragauge.comparison.alignment import (
    SystemScores,
    ValuesBySeed,
    align,
    check_comparable,
    check_unscored,
    find_shared_measures,
    find_shared_queries,
    read_system_scores,
)
from ragauge.comparison.scored_files import ScoredRuns, score_runs
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.findings import Note, merge_notes
from ragauge.core.run_dates import RunDate
from ragauge.datasets.queries import COMPLEXITY_LEVELS, tags_from_judgments
from ragauge.evaluation.evaluate import RunByName, check_runs_by_name
from ragauge.evaluation.indicators import find_measure, measure_span
from ragauge.files.serialization import settings_from
from ragauge.output.numbers import format_number, pluralise
from ragauge.runs.results import Experiment, canonical_tag
from ragauge.stats.comparisons import Comparison, ComparisonOptions, Comparisons, ComparisonSettings
from ragauge.stats.margin_tests import MIN_DIFFERING_QUERIES
from ragauge.stats.system_pairs import QueryMask, SystemPair, compare_pairs

TagsByQuery = Mapping[str, Mapping[str, str]]


def compare(  # noqa: PLR0913 - the options of a public function
    scores: Any,
    runs: RunByName | str | None = None,
    *,
    baseline: str | None = None,
    measures: str | Iterable[str] | None = None,
    by: str | Mapping[str, str] | None = None,
    tags: TagsByQuery | None = None,
    common_queries: bool = False,
    count_missing: bool = False,
    targets: Any = None,
    **options: Unpack[ComparisonOptions],
) -> Comparisons:
    """Compare every system with the baseline, or every pair of systems.

    `scores` is the result of `evaluate` for several runs, an Experiment with all its trials, files, or plain
    numbers: `{system: {query: value}}` or `{system: {measure: {query: value}}}`. With `runs`
    by name, `scores` are their judgments, in any form that `evaluate` accepts. A text as the second argument is the
    baseline. A list, or a mapping from seeds, instead of one system's scores contains repeated runs of that system; the
    interval then covers queries and seeds.
    `by` is a tag of the queries, `complexity`, or a mapping from queries to strata. `targets` is a target map for
    `dr@k` in files, if the judgments have none. The options are test, correction,
    family, confidence, interval, rounds, seed, margin, detect, power, lower_is_better and higher_is_better: see
    `ComparisonSettings`. A measure of unknown direction is assumed to be higher-is-better, and a note says so.

    >>> found = compare({"a": {"q1": 0.1, "q2": 0.4, "q3": 0.3}, "b": {"q1": 0.3, "q2": 0.5, "q3": 0.9}}, baseline="a")
    >>> row = found.find("b")
    >>> round(row.difference, 4), row.wins, row.losses, row.stars
    (0.3, 3, 0, 'ns')
    """
    if isinstance(runs, str):
        runs, baseline = None, runs
    method = settings_from(ComparisonSettings, {**options})
    if common_queries and count_missing:
        raise BadInput(
            "common_queries and count_missing are mutually exclusive", hint="remove --common-queries or --count-missing"
        )
    scored_runs = _score_if_runs(scores, runs, baseline, measures, targets)
    if targets is not None and scored_runs is None:
        raise BadInput(
            "a target map has no effect on scores that are computed already; expected files of judgments and runs",
            hint="remove targets, or pass it to `evaluate`",
        )
    if scored_runs is not None:
        scores, baseline, measures = scored_runs.scores, scored_runs.baseline, scored_runs.measures
        tags = {**scored_runs.tags, **(tags or {})}
    elif isinstance(scores, Experiment):
        data = scores.dataset
        all_scores: dict[str, Any] = {**scores.scores, **scores.trials}
        dates = {name: RunDate.find(run.manifest) for name, run in scores.runs.items()}
        run_dates = {name: date for name, date in dates.items() if date is not None}
        scored_runs = ScoredRuns(
            all_scores, baseline or scores.baseline, None, data.queries, dataset=data.name, run_dates=run_dates
        )
        baseline, tags, scores = scored_runs.baseline, tags or data.tags, all_scores
        # Every query of an experiment was run, so a missing ranking is an empty one.
        count_missing = not common_queries
    seeds_by_system = read_system_scores(scores, method.lower_is_better, method.higher_is_better)
    if len(seeds_by_system) < 2:
        raise BadInput(
            "no second system to compare with",
            hint="add another run, e.g. `ragauge compare qrels.txt bm25.run dense.run`",
        )
    if baseline is not None and baseline not in seeds_by_system:
        raise UnknownName("system", baseline, seeds_by_system)
    systems = [system for seeds in seeds_by_system.values() for system in seeds.values()]
    check_comparable(systems)
    shared = find_shared_measures(systems, measures)
    queries, notes = find_shared_queries(systems, common_queries=common_queries, count_missing=count_missing)
    table = align(seeds_by_system, shared, queries, count_missing=count_missing)
    notes += _missing_query_notes(systems, common_queries, count_missing) + (
        _unshared_measure_notes(systems, shared) if measures is None else []
    )
    notes += check_unscored(table, systems, shared, queries, common_queries=common_queries)
    notes += _describe_directions(systems, shared)
    lower = frozenset(m for system in systems for m in system.lower_is_better)
    other_names = [name for name in seeds_by_system if name != baseline]
    name_pairs = (
        [(baseline, name) for name in other_names] if baseline else list(itertools.combinations(seeds_by_system, 2))
    )
    pairs = [_build_system_pair(table, m, base, name, queries, m in lower) for m in shared for base, name in name_pairs]
    rows = compare_pairs(pairs, method)
    strata: list[Comparison] = []
    tag = ""
    if by is not None:
        groups, tag, strata_notes = _build_strata_masks(by, tags, systems[0], queries)
        notes += strata_notes
        parts = [_restrict_pair(pair, label, mask) for pair in pairs for label, mask in groups.items()]
        strata = compare_pairs(parts, method)
    notes += _comparison_notes([*rows, *strata], systems, shared) + _disagreement_notes(rows, method)
    return Comparisons(
        rows,
        method,
        baseline,
        list(seeds_by_system),
        strata,
        merge_notes(notes),
        texts={} if scored_runs is None else scored_runs.texts,
        dataset="" if scored_runs is None else scored_runs.dataset,
        convention=next((system.scores.convention for system in systems if system.scores is not None), ""),
        run_dates={}
        if scored_runs is None
        else {name: date for name, date in scored_runs.run_dates.items() if name in seeds_by_system},
        tag=tag,
    )


def _score_if_runs(
    scores: Any, runs: Any, baseline: str | None, measures: str | Iterable[str] | None, targets: Any
) -> ScoredRuns | None:
    """Score judgments and runs, or the given files. Return None if `scores` are neither."""
    measure_names = [measures] if isinstance(measures, str) else None if measures is None else list(measures)
    if runs is not None:
        return score_runs([scores, check_runs_by_name(runs)], baseline, measure_names, targets=targets)
    if isinstance(scores, ScoredRuns):
        return scores
    files = [scores] if isinstance(scores, str | Path) else scores
    if not isinstance(files, Sequence) or not files or not all(isinstance(file, str | Path) for file in files):
        return None
    return score_runs([str(file) for file in files], baseline, measure_names, targets=targets)


def _build_system_pair(
    table: ValuesBySeed,
    measure: str,
    baseline: str,
    system: str,
    queries: Sequence[str],
    lower: bool,
) -> SystemPair:
    baseline_values = {label: columns[measure] for label, columns in table[baseline].items()}
    system_values = {label: columns[measure] for label, columns in table[system].items()}
    labels: list[str] = []
    if set(baseline_values) == set(system_values) and len(system_values) > 1:
        labels = list(system_values)
        baseline_values = {label: baseline_values[label] for label in labels}
    elif 1 in (len(baseline_values), len(system_values)) and len(baseline_values) != len(system_values):
        labels = list(system_values if len(system_values) > 1 else baseline_values)
    stacked = np.stack(list(baseline_values.values())), np.stack(list(system_values.values()))
    return SystemPair(
        measure,
        baseline,
        system,
        queries,
        *stacked,
        seeds=labels,
        lower_is_better=lower,
        max_difference=measure_span(measure, stacked),
    )


def _build_strata_masks(
    by: str | Mapping[str, str], tags: TagsByQuery | None, first: SystemScores, queries: Sequence[str]
) -> tuple[dict[str, QueryMask], str, list[str]]:
    """Return a mask of the queries by stratum, their tag, and notes on queries without a stratum."""
    tag, stratum_by_query = "", {}
    if isinstance(by, Mapping):
        stratum_by_query = {str(query): str(value) for query, value in by.items()}
    else:
        known_tags = {name for query_tags in (tags or {}).values() for name in query_tags}
        tag = by = canonical_tag(by, known_tags | set(tags_from_judgments({})))
        stratum_by_query = {query: values[by] for query, values in (tags or {}).items() if by in values}
        if by in tags_from_judgments({}) and first.scores is not None and first.scores.judged is not None:
            grades = first.scores.judged.judgments.nested
            stratum_by_query = {query: tags_from_judgments(grades[query], first.scores.rel)[by] for query in grades}
    values = [stratum_by_query.get(query) for query in queries]
    names = [value for value in dict.fromkeys(values) if value is not None]
    if not names:
        tag_names = sorted({name for tag in (tags or {}).values() for name in tag} | {"answers", "complexity"})
        raise UnknownName("tag", str(by), tag_names)
    order = [
        *COMPLEXITY_LEVELS,
        *sorted((name for name in names if name not in COMPLEXITY_LEVELS), key=lambda level: -values.count(level)),
    ]
    prefix = f"{tag}=" if tag else ""
    groups = {f"{prefix}{name}": np.array([value == name for value in values]) for name in order if name in names}
    n_without = values.count(None)
    noun = str(by) if isinstance(by, str) else "stratum"
    notes = [f"{pluralise(n_without, 'query has', 'queries have')} no {noun}"] if n_without else []
    return groups, tag, notes


def _restrict_pair(pair: SystemPair, stratum: str, mask: QueryMask) -> SystemPair:
    return replace(pair, stratum=stratum, baseline_scores=np.where(mask, pair.baseline_scores, math.nan))


def _missing_query_notes(systems: Sequence[SystemScores], common_queries: bool, count_missing: bool) -> list[str]:
    """Collect notes of the scores, and name systems with missing queries."""
    notes = (
        []
        if common_queries
        else [note for system in systems if system.scores is not None for note in system.scores.notes]
    )
    if count_missing:
        all_queries = {query for system in systems for query in system.queries}
        missing_counts = {system.name: len(all_queries - set(system.queries)) for system in systems}
        notes += [
            Note(f"lacks {n} of {len(all_queries)} queries, which count 0", name)
            for name, n in missing_counts.items()
            if n
        ]
    return notes


def _describe_directions(systems: Sequence[SystemScores], measures: Sequence[str]) -> list[str]:
    """Name the measures whose direction is assumed."""
    lower_by_name = [m for m in measures if any(m in system.lower_by_name for system in systems)]
    unknown = [m for m in measures if any(m in system.unknown_direction for system in systems)]
    notes = [f"lower is better, judging by the name: {', '.join(lower_by_name)}"] if lower_by_name else []
    if unknown:
        notes.append(
            f"direction unknown, higher assumed to be better: {', '.join(unknown)}; "
            f"if lower is better, add `--lower-is-better {unknown[0]}`"
        )
    return notes


def _unshared_measure_notes(systems: Sequence[SystemScores], measures: Sequence[str]) -> list[str]:
    """Name the measures that only some systems have."""
    unshared = dict.fromkeys(m for system in systems for m in system.values if m not in measures)
    return [f"not compared, since not all systems have them: {', '.join(unshared)}"] if unshared else []


def _comparison_notes(
    rows: Sequence[Comparison], systems: Sequence[SystemScores], measures: Sequence[str]
) -> list[str]:
    notes = []
    for row in rows:
        if row.seeds is not None and row.seeds.flips:
            notes.append(
                f"{row.measure}{f' ({row.stratum})' * bool(row.stratum)}: {row.system} is better or worse than "
                f"{row.baseline} depending on the seed "
                f"({format_number(min(row.seeds.differences), 'signed')} to "
                f"{format_number(max(row.seeds.differences), 'signed')})"
            )
    uncertain = [
        row for row in rows if 0 < row.n - row.ties < MIN_DIFFERING_QUERIES or 1 < row.n < 2 * MIN_DIFFERING_QUERIES
    ]
    if uncertain:
        comparison = min(uncertain, key=lambda row: row.n - row.ties)
        more_rows = (
            f" ({pluralise(len(uncertain) - 1, 'other row has', 'other rows have')} too few differences, too)"
            if len(uncertain) > 1
            else ""
        )
        notes.append(
            f"intervals and tests are rough: {comparison.system} and {comparison.baseline} differ "
            f"on {comparison.n - comparison.ties} of "
            f"{comparison.n} queries by {comparison.measure}{more_rows}"
        )
    for measure in measures:
        scores = systems[0].scores
        if scores is not None and measure in scores.means and not np.isnan(scores.values[measure]).all():
            mean = float(np.nanmean(scores.values[measure]))
            if not math.isclose(mean, scores.means[measure], rel_tol=1e-9, abs_tol=1e-12):
                notes.append(f"{measure}: compared by its mean over queries, unlike the aggregate of `evaluate`")
    return notes + _ranking_depth_notes(systems, measures)


def _disagreement_notes(rows: Sequence[Comparison], method: ComparisonSettings) -> list[str]:
    """Explain differences whose interval excludes 0 although the test finds no significance, or the reverse."""
    if method.test != "t":
        return []
    tested = [row for row in rows if not math.isnan(row.p_t) and not math.isnan(row.ci[0])]
    differing = [row for row in tested if (row.ci[0] > 0 or row.ci[1] < 0) != (row.p_t < method.alpha)]
    if not differing:
        return []
    row = differing[0]
    excludes, finds = ("excludes", "finds no") if row.p_t >= method.alpha else ("includes", "finds a")
    return [
        f"{row.measure} of {row.system}: the bootstrap interval {excludes} 0, but the t-test {finds} significant "
        "difference; with few queries or a skewed distribution they can disagree, and p decides"
    ]


def _ranking_depth_notes(systems: Sequence[SystemScores], measures: Sequence[str]) -> list[str]:
    """Name the measures with cutoffs beyond the depth of the shortest rankings that were cut.

    Nothing is unknown below a complete ranking: its system had no more documents.
    """
    judged_ranks = {
        system.name: system.scores.judged
        for system in systems
        if system.scores is not None and system.scores.judged is not None
    }
    depths = {name: int(judged.retrieved.max(initial=0)) for name, judged in judged_ranks.items()}
    cut_systems = [name for name, judged in judged_ranks.items() if judged.depth != math.inf]
    shortest, longest = (
        min(cut_systems, key=depths.__getitem__, default=""),
        max(depths, key=depths.__getitem__, default=""),
    )
    if not shortest or depths[shortest] == depths[longest]:
        return []
    parsed_measures = {measure: find_measure(measure) for measure in measures}
    cutoffs = {name: None if measure is None else measure.cutoff for name, measure in parsed_measures.items()}
    deep_measures = [name for name, cutoff in cutoffs.items() if cutoff is None or cutoff > depths[shortest]]
    if not deep_measures:
        return []
    return [
        f"{shortest} has at most {depths[shortest]} documents per query, {longest} {depths[longest]}: "
        f"{', '.join(deep_measures)} may differ for that reason alone"
    ]
