"""Report of judged samples, and the table of a cost estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from textwrap import shorten

from ragauge.core.text import one_line
from ragauge.judging.charts import build_score_charts
from ragauge.judging.claim_states import find_unsupported_claims, find_worst_samples, list_left_out_sentences
from ragauge.judging.explorer import build_explorer
from ragauge.judging.report_tables import build_claims_table, build_scores_table, build_summary_table
from ragauge.judging.results import (
    CostEstimate,
    CostStep,
    InjectionAttempt,
    JudgedSamples,
    MeasureSummary,
    sum_estimates,
)
from ragauge.measures.answers import find_answer_spec
from ragauge.output.numbers import format_interval, format_number, pluralise
from ragauge.output.report import (
    PAGE_ONLY,
    Block,
    Card,
    Cards,
    Charts,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.tables import Cell, Column, Row, Table, Value

MAX_WORST_SAMPLES = {"terminal": 3, "markdown": 10}
"""Maximum number of worst samples listed, by format."""
MAX_CLAIMS_PER_SAMPLE = 3
MAX_SENTENCES_LISTED = 20
"""Maximum number of sentences without a claim that are listed."""
MAX_NOTE_SENTENCE_CHARS = 80
WORST_SAMPLES_MEASURE = "faithfulness"
"""Measure whose worst samples are listed with their claims."""
LEXICAL_WARNING = "The lexical judge compares words and numbers. Use its scores only as a baseline for a model."


def build_report(judged: JudgedSamples) -> Report:
    sections = [
        Section(
            "measures",
            "Measures",
            [*_stopped_warning(judged), *_lexical_warning(judged), _measure_cards(judged)],
            "Measures",
            PAGE_ONLY,
        ),
        Section(
            "measures",
            "Measures",
            [*_stopped_warning(judged), build_measures_table(judged)],
            formats=frozenset({"terminal", "markdown", "latex"}),
        ),
        Section(
            "distribution",
            "Distribution of scores",
            [Charts(lambda: build_score_charts(judged))],
            "Distribution",
            PAGE_ONLY,
        ),
        Section("unscored", "Unscored samples", [build_unscored_table(judged)], "Unscored"),
        Section("cost", "Cost", [build_cost_table(judged)], "Cost"),
        Section("robustness", "Prompt injection", build_injection_tables(judged.robustness), "Prompt injection"),
        *_worst_samples_sections(judged),
        _left_out_section(judged),
        Section("samples", "Samples", [build_explorer(judged)], "Samples", PAGE_ONLY),
    ]
    return Report(
        "judge",
        judged.name,
        summarise_judged(judged),
        [section for section in sections if any(_has_content(block) for block in section.blocks)],
        _describe_subject(judged),
        [f"Judged by {describe_judge(judged)}."],
        notes=_list_notes(judged),
        provenance={
            "judge": judged.judge,
            "samples": len(judged.samples),
            "convention": judged.convention,
            **{name: fact for name, fact in judged.identity.items() if name != "judge"},
            **judged.provenance,
        },
    )


def _has_content(block: Block) -> bool:
    return not isinstance(block, Table) or bool(block.rows)


def describe_judge(judged: JudgedSamples) -> str:
    """Name the judge; the lexical judge is marked as a baseline."""
    name = display_judge_name(judged)
    return f"{name}, a word-matching baseline without a model" if judged.lexical else name


def display_judge_name(judged: JudgedSamples) -> str:
    """Return the name of the judge; that of the lexical judge without the hash of its identity."""
    return str(judged.identity["judge"]) if judged.lexical else judged.judge


def _describe_subject(judged: JudgedSamples) -> list[str]:
    return [pluralise(len(judged.samples), "sample"), f"convention {judged.convention}"]


def _level(judged: JudgedSamples) -> str:
    return f"{100 * judged.confidence:g}% CI"


def _format_bounds(summary: MeasureSummary) -> str:
    return "" if summary.interval is None else "{:.3f} to {:.3f}".format(*summary.interval)


def summarise_judged(judged: JudgedSamples) -> str:
    """Summarise the result in one sentence."""
    scored = [(measure, summary) for measure, summary in judged.measures.items() if summary.n]
    if not scored:
        return f"No sample of {len(judged.samples):,} has a score."
    measure, summary = scored[0]
    samples = f"{summary.n:,} of {pluralise(summary.samples, 'sample')}"
    samples = pluralise(summary.n, "sample") if not summary.unscored else samples
    bounds = _format_bounds(summary)
    return f"{measure_title(measure)} is {summary.mean:.3f}{bounds and f' ({_level(judged)} {bounds})'} over {samples}."


def measure_title(measure: str) -> str:
    """Format the name of a measure for the start of a sentence.

    >>> measure_title("context_precision@5")
    'Context precision@5'
    """
    title = measure.replace("_", " ")
    return title[:1].upper() + title[1:]


def _stopped_warning(judged: JudgedSamples) -> list[Block]:
    return [Paragraph(f"Judging stopped early: {judged.stopped}", warning=True)] if judged.stopped else []


def _lexical_warning(judged: JudgedSamples) -> list[Block]:
    return [Paragraph(LEXICAL_WARNING, warning=True)] if judged.lexical else []


def _measure_cards(judged: JudgedSamples) -> Cards:
    cards = []
    for measure, summary in judged.measures.items():
        bounds = _format_bounds(summary)
        counts = f"{summary.n:,} of {summary.samples:,} scored"
        details = [
            f"{_level(judged)} {bounds}" if bounds else "no interval",
            counts + (f", {summary.unscored:,} unscored" if summary.unscored else ""),
            *(["lower is better"] if summary.lower_is_better else []),
        ]
        value = format_number(summary.mean, "statistic")
        cards.append(Card(measure, value, details, "doubtful" if summary.unscored else ""))
    return Cards(cards)


def build_measures_table(judged: JudgedSamples) -> Table:
    """Build the table of means with confidence intervals and numbers of samples."""
    columns = [
        Column("measure", "name"),
        Column("mean", "score"),
        Column(_level(judged), "score"),
        Column("n", "count"),
        Column("unscored", "count"),
    ]
    rows: list[Row] = []
    for measure, summary in judged.measures.items():
        low, high = summary.interval or (math.nan, math.nan)
        interval = Cell(low, text=format_interval(low, high))
        n = Cell(summary.n, text=f"{summary.n:,} of {summary.samples:,}")
        rows.append([measure, summary.mean, interval, n, summary.unscored])
    return Table("measures", columns, rows)


def build_unscored_table(judged: JudgedSamples) -> Table:
    """Build the table of reasons for unscored samples, with the number of samples and an example."""
    measures_by_reason: dict[tuple[str, int, str], list[str]] = {}
    for measure, summary in judged.measures.items():
        for reason, n in summary.reasons.items():
            example = next(query for query, why in judged.scores.unscored[measure].items() if why == reason)
            measures_by_reason.setdefault((reason, n, example), []).append(measure)
    columns = [Column("reason"), Column("samples", "count"), Column("measures"), Column("example", "name")]
    rows: list[Row] = [
        [reason, n, ", ".join(measures), example] for (reason, n, example), measures in measures_by_reason.items()
    ]
    return Table("unscored", columns, rows)


COST_COLUMNS: Mapping[str, tuple[Column, Callable[[CostStep], Value]]] = {
    "calls": (Column("calls", "count"), lambda step: step.calls),
    "cached": (
        Column("cached", "count", drop_order=3, legend="calls saved by replies of earlier sessions"),
        lambda step: step.cached_calls,
    ),
    "retries": (Column("retries", "count", drop_order=1), lambda step: step.retries),
    "invalid": (
        Column("invalid", "count", legend="replies that could not be parsed completely"),
        lambda step: step.unreadable_replies,
    ),
    "tokens in": (Column("tokens in", "count"), lambda step: step.prompt_tokens),
    "out": (Column("out", "count"), lambda step: step.completion_tokens),
    "cost": (Column("cost", "money"), lambda step: step.cost),
    "p50 ms": (Column("p50 ms", "ms", drop_order=2), lambda step: step.p50),
    "p95 ms": (Column("p95 ms", "ms"), lambda step: step.p95),
}


def build_cost_table(judged: JudgedSamples) -> Table:
    """Build the cost table by step and in total, without columns that have no value or only zeros."""
    steps = list(judged.ledger)
    if judged.total is not None and len(steps) > 1:
        steps.append(judged.total)
    values = {title: [value(step) for step in steps] for title, (_, value) in COST_COLUMNS.items()}
    titles = [title for title, column in values.items() if title == "calls" or any(map(_is_shown, column))]
    columns = [Column("step", "name"), *(COST_COLUMNS[title][0] for title in titles)]
    return Table(
        "cost", columns, [[step.step, *(values[title][i] for title in titles)] for i, step in enumerate(steps)]
    )


def _is_shown(value: Value) -> bool:
    """Return whether a value makes its column worth showing; a cost of 0 does."""
    return isinstance(value, int | float) and not math.isnan(value) and (value != 0 or isinstance(value, float))


def build_injection_tables(attempts: Sequence[InjectionAttempt]) -> list[Table]:
    """Build the tables of prompt-injection attempts by location of the instruction, and of the successful ones."""
    columns = [
        Column("instruction in the", "name"),
        Column("resisted", "count"),
        Column("succeeded", "count"),
        Column("inconclusive", "count", legend="the verdict was wrong without the instruction, or is missing with it"),
        Column("attempts", "count"),
    ]
    rows: list[Row] = []
    for where in dict.fromkeys(attempt.where for attempt in attempts):
        outcomes = [attempt.resisted for attempt in attempts if attempt.where == where]
        rows.append([where, *(outcomes.count(outcome) for outcome in (True, False, None)), len(outcomes)])
    names = ("attempt", "step", "instruction in the", "correct", "without it", "with it")
    successes = [
        [attempt.case, attempt.step, attempt.where, attempt.wanted, attempt.clean, attempt.attacked]
        for attempt in attempts
        if attempt.resisted is False
    ]
    tables = [
        Table("attempts", columns, rows),
        Table("successes", [Column(name) for name in names], successes, "Successful attempts"),
    ]
    return [table for table in tables if table.rows]


def _worst_samples_sections(judged: JudgedSamples) -> list[Section]:
    """List the samples with the worst faithfulness and their unsupported claims. A page has all samples."""
    specs = {measure: find_answer_spec(measure) for measure in judged.scores.measures}
    measure = next((name for name, spec in specs.items() if spec and spec.name == WORST_SAMPLES_MEASURE), None)
    worst = [] if measure is None else find_worst_samples(judged.scores, measure)
    if measure is None or not worst:
        return []
    samples = {sample.id: sample for sample in judged.samples}
    columns = [Column("sample", "name"), Column(measure, "score"), Column("question"), Column("unsupported claims")]
    rows: list[Row] = []
    for query, value in worst[: max(MAX_WORST_SAMPLES.values())]:
        claims = find_unsupported_claims(samples[query], judged.verdicts.get(query)) if query in samples else []
        texts = [f"{claim.state}: {claim.text}" for claim in claims[:MAX_CLAIMS_PER_SAMPLE]]
        more = len(claims) - MAX_CLAIMS_PER_SAMPLE
        texts += [f"and {more} more"] if more > 0 else []
        rows.append([query, value, samples[query].question if query in samples else "", " · ".join(texts)])
    return [
        Section("worst", f"Lowest {measure}", [Table("worst", columns, rows[:n])], formats=frozenset({name}))
        for name, n in MAX_WORST_SAMPLES.items()
    ]


def _left_out_section(judged: JudgedSamples) -> Section:
    sentences = list_left_out_sentences(judged.verdicts.values())
    columns = [Column("sample", "name"), Column("text", "name"), Column("sentence")]
    table = Table("left-out", columns, sentences[:MAX_SENTENCES_LISTED])
    more = len(sentences) - MAX_SENTENCES_LISTED
    blocks: list[Block] = [table]
    if more > 0:
        blocks.append(Paragraph(f"{more:,} more are in `left_out` of the verdicts."))
    return Section("left-out", "Sentences without a claim", blocks, formats=frozenset({"markdown"}))


def _list_notes(judged: JudgedSamples) -> list[str]:
    notes = []
    without_scores = [measure for measure, summary in judged.measures.items() if not summary.n]
    if without_scores:
        notes.append(f"no sample has a score for {', '.join(without_scores)}")
    successes = [attempt for attempt in judged.robustness if attempt.resisted is False]
    if successes:
        attempts = pluralise(len(judged.robustness), "prompt injection")
        notes.append(f"{len(successes)} of {attempts} changed the verdict of the judge")
    if sentences := list_left_out_sentences(judged.verdicts.values()):
        notes.append(_left_out_note(sentences))
    return list(dict.fromkeys([*notes, *judged.scores.notes, *judged.notes]))


def _left_out_note(sentences: Sequence[tuple[str, str, str]]) -> str:
    sample, _, sentence = sentences[0]
    example = f'"{shorten(one_line(sentence), MAX_NOTE_SENTENCE_CHARS, placeholder=" …")}" ({one_line(sample)})'
    if len(sentences) == 1:
        return f"1 sentence without a claim was excluded: {example}"
    return (
        f"{pluralise(len(sentences), 'sentence')} without a claim were excluded, e.g. {example}; report.html and "
        "`left_out` in verdicts.jsonl list all"
    )


def describe_main_unscored_reason(judged: JudgedSamples) -> str:
    """Describe the most frequent reason for unscored samples; empty if there is none."""
    counts = [(n, reason) for summary in judged.measures.values() for reason, n in summary.reasons.items()]
    if not counts:
        return ""
    n, reason = max(counts, key=lambda count: count[0])
    return f"{reason} ({pluralise(n, 'sample')})"


def build_estimate_table(steps: Sequence[CostEstimate]) -> Table:
    """Build the table of a cost estimate, by step and in total."""
    is_timed = any(step.seconds is not None for step in steps)
    columns = [
        Column("step", "name"),
        Column("calls", "count"),
        Column("tokens in", "count"),
        Column("out", "count"),
        Column("cost", "money"),
        *([Column("minutes", "mean count")] if is_timed else []),
    ]
    rows: list[Row] = []
    for step in [*steps, *([sum_estimates(steps)] if len(steps) > 1 else [])]:
        minutes = [(step.seconds or 0.0) / 60] if is_timed else []
        rows.append([step.step, step.calls, step.prompt_tokens, step.completion_tokens, step.cost, *minutes])
    return Table("estimate", columns, rows)


REPORTER = ResultReporter(
    build_report,
    {
        "csv": TableBuilder("one row per measure, with its interval", build_summary_table),
        "scores": TableBuilder("one row per sample and measure", build_scores_table),
        "claims": TableBuilder("one row per claim, with its verdict", build_claims_table),
    },
)
