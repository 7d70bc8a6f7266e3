"""Gates: check a run, and its difference to a baseline, against rules.

A rule that cannot be evaluated has failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.run_dates import RunDate
from ragauge.datasets import judgments_by_name
from ragauge.datasets.queries import tags_from_judgments
from ragauge.evaluation import indicators
from ragauge.evaluation.directions import given_directions, resolve_directions
from ragauge.evaluation.evaluate import with_target_map
from ragauge.files.table_rows import read_tags
from ragauge.gates.checks import GateInput, check_rules
from ragauge.gates.results import Gate, Rule, RuleCheck
from ragauge.gates.rule_grammar import parse_rule, rule_texts
from ragauge.gates.rule_ranges import check_rule_can_decide, check_tag_coverage
from ragauge.gates.run_indicators import RunIndicators
from ragauge.gates.settings import GateOptions, GateSettings, QueryTags
from ragauge.gates.tested_run import (
    CREATE_BASELINE_HINT,
    already_scored,
    baseline_folder,
    check_baseline_comparable,
    compare_corpora,
    find_judgments,
    find_judgments_folder,
    score_run,
    select_from_experiment,
    timing_difference_notes,
)
from ragauge.measures.conventions import Convention
from ragauge.output.numbers import format_number, pluralise
from ragauge.runs.input_kinds import is_run_folder
from ragauge.runs.inputs import Inputs
from ragauge.runs.results import Experiment

TIME_SOURCES = ("latency", "whole")


def gate(
    run: Any,
    rules: Any,
    *,
    qrels: Any = None,
    system: str | None = None,
    timings: Any = None,
    baseline_timings: Any = None,
    **options: Unpack[GateOptions],
) -> Gate:
    """Check a run against rules, and against a baseline if a rule refers to one.

    `run` and `baseline` can be Scores, any run that `evaluate` accepts (with `qrels`), folders written by `run`,
    which include judgments, timings and tags, JudgedSamples or their folder, or tables of scores. For an Experiment,
    `system` and `baseline` are names. `rules` is a text (`ndcg@10 >= 0.4`), a list of texts, a table
    (`{"ndcg@10": {"at_least": 0.4}}`), or a TOML file. Settings in the file apply unless given here: alpha (default
    0.05), correction for the number of `not worse` rules (none), min_queries, the minimum number of queries for a test
    (5), convention and tags. A rule that cannot be evaluated has failed. `lower_is_better` and `higher_is_better` name
    measures of unknown direction: a rule about a change needs it. `allow_changed_corpus` accepts a baseline with other
    documents, queries or judgments. Rules about a change are then computed on the queries of both runs, and the notes
    say how to interpret that.

    >>> qrels, found = {"q1": {"a": 1}, "q2": {"b": 1}}, {"q1": {"a": 2.0}, "q2": {"x": 2.0, "b": 1.0}}
    >>> gate(found, ["mrr >= 0.7", "recall@1 > 0.5"], qrels=qrels)
    pass mrr >= 0.7
    FAIL recall@1 > 0.5: 0.5 is not above 0.5
    pass missing <= 0
    """
    settings = GateSettings.merge(rules, options)
    return evaluate_gate(run, settings, qrels=qrels, system=system, timings=timings, baseline_timings=baseline_timings)


def evaluate_gate(
    run: Any,
    settings: GateSettings,
    *,
    qrels: Any = None,
    system: str | None = None,
    timings: Any = None,
    baseline_timings: Any = None,
) -> Gate:
    """Check a run against the rules of settings; see `gate`."""
    current: RunIndicators | None
    if isinstance(run, Experiment):
        current, before = select_from_experiment(run, system, settings.baseline)
    else:
        before = baseline_folder(run, settings.baseline)
        if timings is baseline_timings:
            _check_distinct_baseline(run, before)
        current = already_scored(run, qrels, timings)
    if current is None:
        settings = replace(settings, convention=_scoring_convention(run, qrels, settings))
    base = before if isinstance(before, RunIndicators) else already_scored(before, qrels, baseline_timings)
    current, base = _resolve_measure_directions([current, base], settings)
    known_scores = [run_indicators.scores for run_indicators in (current, base) if run_indicators is not None]
    rules = _parse_rules(settings.rules, settings.scoring_convention, known_scores)
    settings.check_effects(rules, is_scored=current is not None)
    measures = list(dict.fromkeys(rule.indicator.measure for rule in rules if rule.indicator.measure))
    if current is None:
        current = score_run(run, qrels, timings, measures, settings)
    if base is None and before is not None:
        if isinstance(before, str) and isinstance(run, str) and before == run == "-":
            raise BadInput("standard input can be read only once", hint="use `-` for only one file")
        has_own_judgments = qrels is None and isinstance(before, str | Path) and is_run_folder(before)
        judgments = None if has_own_judgments else find_judgments(current)
        base = score_run(before, judgments, baseline_timings, measures, settings)
    changed = None
    if base is not None:
        check_baseline_comparable(current, base, allow_changed_corpus=settings.allow_changed_corpus)
        if settings.allow_changed_corpus:
            changed = compare_corpora(current, base, [_query_texts(run), _query_texts(before)])
    return _evaluate_gate(rules, current, base, settings, changed)


def _scoring_convention(run: Any, qrels: Any, settings: GateSettings) -> Convention:
    """Return the convention, with the target map of the judgments if there is one."""
    convention = settings.scoring_convention
    if convention.targets == "map":
        return convention
    source = find_judgments_folder(run) if qrels is None else qrels
    source = judgments_by_name(source) if isinstance(source, str) else source
    return with_target_map(convention, source, settings.targets)


def _query_texts(source: Any) -> Mapping[str, str]:
    """Return the query texts stored in a run folder; empty for other inputs."""
    return Inputs.resolve(source).query_texts if isinstance(source, str | Path) and is_run_folder(source) else {}


def _check_distinct_baseline(run: Any, baseline: Any) -> None:
    """Raise BadInput if a run is its own baseline: no rule about a change could fail."""
    same = run is baseline and baseline is not None
    if isinstance(run, str | Path) and isinstance(baseline, str | Path) and "-" not in (str(run), str(baseline)):
        same = Path(run).exists() and Path(baseline).exists() and Path(run).samefile(baseline)
    if same:
        where = str(run) if isinstance(run, str | Path) else None
        raise BadInput(
            "the run is its own baseline, so that no rule about a change can fail; expected an earlier run",
            file=where,
            hint="name another run with --baseline (baseline=)",
        )


def _resolve_measure_directions(
    subjects: Sequence[RunIndicators | None], settings: GateSettings
) -> list[RunIndicators | None]:
    """Return already scored runs with the direction of each measure, as far as known."""
    known_values = [run_indicators.scores.values for run_indicators in subjects if run_indicators is not None]
    named = [*settings.lower_is_better, *settings.higher_is_better]
    if named and not known_values:
        raise BadInput(
            f"applies to score tables only; `{named[0]}` is computed from rankings and has a known direction",
            setting="lower_is_better" if settings.lower_is_better else "higher_is_better",
        )
    directions = given_directions(settings.lower_is_better, settings.higher_is_better, known_values)
    return [
        None
        if run_indicators is None
        else replace(run_indicators, scores=resolve_directions(run_indicators.scores, directions))
        for run_indicators in subjects
    ]


def _parse_rules(rules: Any, convention: Convention, known_scores: Sequence[Any]) -> list[Rule]:
    """Parse the given rules and add the implied ones."""
    find_indicator = partial(indicators.find_indicator, convention=convention, known=known_scores)
    parsed_rules = list(dict.fromkeys(parse_rule(text, find_indicator) for text in rule_texts(rules)))
    if not parsed_rules:
        raise BadInput("no rules given", hint='add a rule: `--rule "ndcg@10 >= 0.4"`')
    for rule in parsed_rules:
        check_rule_can_decide(rule, known_scores)
    parsed_rules = _add_implied_rule(parsed_rules, "missing", always=convention.missing == "error")
    if any(rule.indicator.source == "latency" or rule.indicator.name == "throughput" for rule in parsed_rules):
        # Failed queries have no latency and would make a run look fast.
        parsed_rules = _add_implied_rule(parsed_rules, "failed")
    return parsed_rules


def _add_implied_rule(rules: Sequence[Rule], name: str, *, always: bool = False) -> list[Rule]:
    """Add a rule that no query is missing or failed, unless one limits their number."""
    limited = any(rule.indicator.name == name and rule.sign in ("<=", "<") and not rule.tag for rule in rules)
    more = [] if limited and not always else [Rule(indicators.COUNT_INDICATORS[name], "limit", "<=")]
    return list(dict.fromkeys([*rules, *more]))


def _evaluate_gate(
    rules: Sequence[Rule],
    run: RunIndicators,
    baseline: RunIndicators | None,
    settings: GateSettings,
    changed: tuple[frozenset[str], list[str]] | None,
) -> Gate:
    common, notes = changed or (None, [])
    if baseline is not None:
        run = replace(run, lost_queries=baseline.expected_queries - run.expected_queries)
    if run.timings is not None:  # A failed query is an empty ranking, which not every measure penalises.
        rules = _add_implied_rule(rules, "failed")
    tag_source = settings.tags or {}
    if not isinstance(tag_source, str | Path | Mapping):
        raise BadInput(f"tags cannot be read from {type(tag_source).__name__}", hint="{query: {tag: value}}, or a file")
    tags: QueryTags = read_tags(str(tag_source)) if isinstance(tag_source, str | Path) else tag_source
    strata = {tag: _strata_by_query(tag, run, tags) for tag in {rule.tag: None for rule in rules if rule.tag}}
    check_tag_coverage(rules, strata, len(run.expected_queries))
    known_tags = tags if tags or baseline is None else baseline.tags
    former = {tag: frozenset(_tag_values(tag, known_tags).values()) for tag in strata}
    allowed = [rule for rule in rules if rule.indicator.name == "missing" and rule.kind == "limit" and not rule.tag]
    lacking = [rule for rule in rules if rule.indicator.unscored_measure and _is_upper_limit(rule)]
    gate_input = GateInput(
        run, baseline, settings.alpha, settings.correction, settings.min_queries, allowed, lacking,
        strata, former, common,
    )  # fmt: skip
    checks = check_rules(rules, gate_input)
    dates = {
        "run": RunDate.find(run.manifest),
        "baseline": None if baseline is None else RunDate.find(baseline.manifest),
    }
    return Gate(
        run.name,
        checks,
        None if baseline is None else baseline.name,
        run.scores.convention,
        gate_input.alpha,
        gate_input.correction,
        [*notes, *_gate_notes(run, baseline, checks, strata)],
        {name: date for name, date in dates.items() if date is not None},
    )


def _tag_values(tag: str, tags: QueryTags) -> dict[str, str]:
    return {query: str(values[tag]) for query, values in tags.items() if tag in values}


def _strata_by_query(tag: str, run: RunIndicators, tags: QueryTags) -> dict[str, str]:
    """Return the value of a tag for each judged query.

    Sources, in order: the given tags, those of the run's folder, and tags derived from the judgments.
    """
    judgments = find_judgments(run)
    derived = (
        {} if judgments is None else {query: tags_from_judgments(docs) for query, docs in judgments.nested.items()}
    )
    for source in (tags, run.tags, derived):
        strata = {query: value for query, value in _tag_values(tag, source).items() if query in run.expected_queries}
        if strata:
            return strata
    tag_names = sorted({name for source in (tags, run.tags, derived) for values in source.values() for name in values})
    raise UnknownName("tag", tag, tag_names)


def _gate_notes(
    run: RunIndicators,
    baseline: RunIndicators | None,
    checks: Sequence[RuleCheck],
    strata: Mapping[str, Mapping[str, str]],
) -> list[str]:
    notes = list(run.scores.notes)
    if baseline is None and any(check.rule.needs_baseline for check in checks):
        notes.append(CREATE_BASELINE_HINT)
    if baseline is not None:
        notes += [note for note in baseline.scores.notes if note not in notes]
        if any(check.rule.indicator.source in TIME_SOURCES and check.rule.needs_baseline for check in checks):
            notes += timing_difference_notes(run, baseline)
    for tag, values in strata.items():
        n_untagged = len(run.expected_queries - values.keys())
        if n_untagged:
            notes.append(f"{n_untagged} of {len(run.expected_queries)} queries have no {tag}")
    return [*notes, *_unscored_notes(run, checks), *_detectable_loss_notes(checks)]


def _is_upper_limit(rule: Rule) -> bool:
    """Return whether a rule sets an upper limit for the whole run."""
    return rule.kind == "limit" and rule.sign in ("<=", "<") and not rule.tag


def _unscored_notes(run: RunIndicators, checks: Sequence[RuleCheck]) -> list[str]:
    """Explain how to allow unscored samples, if no rule limits their number."""
    if not run.covers_all_queries:
        return []
    limited = {check.rule.indicator.unscored_measure for check in checks}
    for name in (check.rule.indicator.name for check in checks if check.rule.indicator.source == "measure"):
        if name not in limited and run.scores.unscored.get(name):
            example = f"unscored({name}) <= 5%"
            return [f"samples without a value fail a rule unless another one allows them, as in `{example}`"]
    return []


def _detectable_loss_notes(checks: Sequence[RuleCheck]) -> list[str]:
    """Describe the losses that `not worse` can detect.

    Per measure, for the least sensitive stratum.
    """
    worst: dict[tuple[str, str], RuleCheck] = {}
    for check in checks:
        if check.rule.kind == "not worse" and check.passed and check.detectable > 0:
            key = check.rule.indicator.name, check.rule.tag
            if key not in worst or check.detectable > worst[key].detectable:
                worst[key] = check
    losses = []
    for (name, tag), check in worst.items():
        stratum = f" in {tag}={check.rule.value} ({pluralise(check.n, 'query')})" if tag else ""
        losses.append(f"{name} {format_number(check.detectable)}{stratum}")
    return [f"`not worse` detects these losses with 80% power: {', '.join(losses)}"] if losses else []
