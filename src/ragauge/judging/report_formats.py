"""Judged samples for a terminal, and as CSV, JSON and Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from textwrap import shorten
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ragauge.core.samples import ANSWER, REFERENCE
from ragauge.core.text import one_line
from ragauge.files.serialization import replace_nan, to_plain_data
from ragauge.judging import report
from ragauge.judging.report import (
    count_unscored_reasons,
    describe_judge,
    describe_judge_briefly,
    find_claim_states,
    find_unsupported_claims,
    find_worst_samples,
    judged_facts,
    judged_tables,
    list_left_out_sentences,
    sum_cost_steps,
    sum_estimates,
    summarise_judged,
    summarise_measures,
)
from ragauge.judging.results import CostEstimate, CostStep, InjectionAttempt, JudgedSamples
from ragauge.output.markdown import details_block, escape_markdown, render_markdown_table
from ragauge.output.numbers import count_noun, format_exact, format_score
from ragauge.output.terminal import format_direction, render_csv_rows, render_table, terminal_cell

MAX_WORST_SHOWN, MAX_CLAIMS_SHOWN = 3, 3
"""Maximum number of worst samples shown, and of claims per sample."""
MAX_NOTE_SENTENCE_CHARS = 80
"""Maximum number of characters of a sentence in a note."""
WORST_SAMPLES_MEASURE = "faithfulness"
"""Measure whose worst samples are shown with their claims."""


def render_judged_terminal(judged: JudgedSamples, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render the report for a terminal.

    Also return the titles of columns that do not fit.
    """
    pieces: list[RenderableType] = [
        terminal_cell(f"{judged.name}: {', '.join(judged_facts(judged))}", "bold"),
        terminal_cell(f"judged by {describe_judge_briefly(judged)}"),
        Text(""),
    ]
    left: dict[str, None] = {}
    for part in report.judged_tables(judged):
        table, without = render_table(part, width)
        left.update(dict.fromkeys(without))
        titled = [] if part.title == "Measures" else [terminal_cell(part.title, "bold")]
        pieces += [*titled, table, Text("")]
    return [*pieces, *_render_worst_samples(judged, width)], list(left)


def render_estimate_terminal(found: Sequence[CostEstimate], width: int) -> list[RenderableType]:
    """Render a cost estimate as a table."""
    return [render_table(report.estimate_table(found), width)[0]]


def _render_worst_samples(judged: JudgedSamples, width: int) -> list[RenderableType]:
    """Render the samples with the lowest faithfulness, and their unsupported claims."""
    measure = next((one for one in judged.scores.measures if one.partition("(")[0] == WORST_SAMPLES_MEASURE), None)
    found = [] if measure is None else find_worst_samples(judged, measure, MAX_WORST_SHOWN)
    if measure is None or not found:
        return []
    texts = {one.id: one.question for one in judged.samples}
    empty = {one.id for one in judged.samples if one.contexts == ()}
    pieces: list[RenderableType] = [terminal_cell(f"Lowest {measure}", "bold")]
    for query, value in found:
        said = Text(f"{format_score(value)}  {one_line(query)}")
        asked = one_line(texts.get(query, ""))
        said.append(f"  {asked}", style="dim")
        said.truncate(width, overflow="ellipsis")
        pieces.append(said)
        claims = find_unsupported_claims(judged.verdicts.get(query), nothing=query in empty)
        for one in claims[:MAX_CLAIMS_SHOWN]:
            pieces.append(Padding(Text(f"{one.state}: {one_line(one.text)}"), (0, 0, 0, 8)))
        if len(claims) > MAX_CLAIMS_SHOWN:
            pieces.append(Padding(Text(f"and {len(claims) - MAX_CLAIMS_SHOWN} more", style="dim"), (0, 0, 0, 8)))
    return [*pieces, Text("")]


def judged_notes(judged: JudgedSamples) -> list[str]:
    """Return the notes on the scores."""
    lines = []
    if judged.lexical:
        lines.append("the lexical judge compares words and numbers; it understands nothing, and is here as a baseline")
    empty = [one for one in judged.scores.measures if not judged.scores.n[one]]
    if empty:
        lines.append(f"no sample has a value of {', '.join(empty)}, so that there is no mean")
    if skipped := list_left_out_sentences(judged):
        lines.append(_left_out_note(skipped))
    lost = [one for one in judged.robustness if one.held is False]
    if lost:
        lines.append(f"{len(lost)} of {count_noun(len(judged.robustness), 'canary', 'canaries')} moved the judge")
    return [*dict.fromkeys([*lines, *judged.scores.notes, *judged.notes])]


def _left_out_note(skipped: Sequence[tuple[str, str, str]]) -> str:
    sample, _, sentence = skipped[0]
    first = f'"{shorten(one_line(sentence), MAX_NOTE_SENTENCE_CHARS, placeholder=" …")}" ({one_line(sample)})'
    if len(skipped) == 1:
        return f"1 sentence was left out because it claims nothing: {first}"
    many = f"{count_noun(len(skipped), 'sentence')} were left out because they claim nothing"
    return f"{many}, e.g. {first}; report.html and `left_out` in the JSON list all"


def main_unscored_reason(judged: JudgedSamples) -> str:
    """Return the most frequent reason for unscored samples."""
    found = max(count_unscored_reasons(judged.scores), key=lambda one: one.many, default=None)
    return "" if found is None else f"{found.why} ({count_noun(found.many, 'sample')})"


def summary_csv(judged: JudgedSamples) -> str:
    """Render `measure,mean,low,high,n,unscored` with the judge and the convention."""
    header = ["measure", "mean", "low", "high", "n", "unscored", "judge", "convention"]
    rows = (
        [
            *(
                one.measure,
                format_exact(one.mean),
                format_exact(one.low),
                format_exact(one.high),
                str(one.n),
                str(one.unscored),
            ),
            *(judged.judge, judged.scores.convention),
        ]
        for one in summarise_measures(judged)
    )
    return render_csv_rows(header, rows)


def scores_csv(judged: JudgedSamples) -> str:
    """Render one row for each sample and measure, with the reason for a missing value.

    `compare` and `gate` read this table.
    """
    header = ["system", "query", "measure", "value", "judge", "convention", "reason", "fingerprint", "lower_is_better"]
    return render_csv_rows(header, _score_rows(judged))


def _score_rows(judged: JudgedSamples) -> Iterator[list[str]]:
    scores = judged.scores
    for name in scores.measures:
        for query, value in zip(scores.queries, scores.values[name].tolist(), strict=True):
            why = scores.unscored[name].get(query, "") if math.isnan(value) else ""
            told = [judged.name, query, name, format_exact(value), judged.judge, scores.convention, why]
            yield [*told, scores.fingerprints.get(query, ""), format_direction(scores, name)]


def claims_csv(judged: JudgedSamples) -> str:
    """Render one row per claim: its state, its sources, and the reason of the judge."""
    header = ["query", "of", "claim", "text", "standing", "by", "together", "against", "probability", "words", "reason"]
    return render_csv_rows(header, _claim_rows(judged))


def _claim_rows(judged: JudgedSamples) -> Iterator[list[str]]:
    for sample in judged.samples:
        for text in (ANSWER, REFERENCE):
            for one in find_claim_states(judged.verdicts.get(sample.id), text, nothing=sample.contexts == ()):
                said = one.support
                told = [""] * 5
                if said is not None:
                    sources = [" ".join(some) for some in (said.by, said.together, said.against)]
                    told = [*sources, format_exact(said.probability), said.words]
                yield [sample.id, text, one.id, one.text, one.state, *told, one.why]


JUDGED_SCHEMA = "ragauge-judged/1"
"""Schema version; it changes if a field is removed or changes its meaning."""


def judged_to_dict(judged: JudgedSamples, *, per_sample: bool = False) -> dict[str, Any]:
    """Convert judged samples to JSON data: judge, measures and cost; NaN becomes None.

    `per_sample` includes the scores of each sample.
    """
    data: dict[str, Any] = {
        "schema": JUDGED_SCHEMA,
        "name": judged.name,
        "judge": judged.judge,
        "about": describe_judge(judged),
        "verdict": summarise_judged(judged),
        "convention": judged.scores.convention,
        "confidence": judged.confidence,
        "samples": len(judged.samples),
        "measures": _measures_to_dict(judged),
        "stopped": judged.stopped or None,
        "ledger": [cost_step_to_dict(one) for one in judged.ledger],
        "total": cost_step_to_dict(sum_cost_steps(judged.ledger)) if judged.ledger else None,
        "left_out": {
            one.sample: {text: list(listed) for text, listed in one.left_out.items()}
            for one in judged.verdicts.values()
            if one.left_out
        },
        "robustness": injections_to_dict(judged.robustness),
        "notes": [*dict.fromkeys([*judged.scores.notes, *judged.notes])],
        "identity": judged.identity,
        "circumstances": judged.circumstances,
    }
    if per_sample:
        data["per_sample"] = _samples_to_dict(judged)
    return dict(replace_nan(to_plain_data(data)))


def _measures_to_dict(judged: JudgedSamples) -> dict[str, Any]:
    why: dict[str, dict[str, int]] = {}
    for one in count_unscored_reasons(judged.scores):
        why.setdefault(one.measure, {})[one.why] = one.many
    return {
        one.measure: {
            "mean": one.mean,
            "n": one.n,
            "unscored": one.unscored,
            "interval": None if math.isnan(one.low) else [one.low, one.high],
            "reasons": why.get(one.measure, {}),
            "lower_is_better": one.lower,
        }
        for one in summarise_measures(judged)
    }


def _samples_to_dict(judged: JudgedSamples) -> dict[str, Any]:
    scores = judged.scores
    columns = {name: scores.values[name].tolist() for name in scores.measures}
    found: dict[str, Any] = {}
    for i, query in enumerate(scores.queries):
        lacking = {name: scores.unscored[name][query] for name in columns if query in scores.unscored[name]}
        found[query] = {"values": {name: column[i] for name, column in columns.items()}, "unscored": lacking}
    return found


def cost_step_to_dict(step: CostStep) -> dict[str, Any]:
    """Convert a row of the cost table to JSON data."""
    return step._asdict()


def injections_to_dict(canaries: Sequence[InjectionAttempt]) -> dict[str, Any] | None:
    """Convert the results of prompt-injection attempts to JSON data.

    None without attempts.
    """
    if not canaries:
        return None
    held = [one.held for one in canaries]
    return {
        "held": held.count(True),
        "moved": held.count(False),
        "wrong_anyway": held.count(None),
        "cases": [{**one._asdict(), "held": one.held} for one in canaries],
    }


def estimate_to_dict(judge: str, found: Sequence[CostEstimate], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a cost estimate to JSON data."""
    steps = [one._asdict() for one in found]
    whole = {name: value for name, value in sum_estimates(found)._asdict().items() if name != "step"}
    return dict(replace_nan(to_plain_data({"judge": judge, **facts, "estimate": steps, "total": whole})))


MAX_WORST_IN_MARKDOWN = 10
"""Maximum number of worst samples listed."""
MAX_LEFT_OUT_SHOWN = 20
"""Maximum number of sentences without a claim that are listed."""


def render_judged_markdown(judged: JudgedSamples) -> str:
    """Render the report as a Markdown page."""
    lines = [
        f"# {escape_markdown(judged.name)}",
        "",
        escape_markdown(summarise_judged(judged)),
        "",
        escape_markdown(f"Judged by {describe_judge(judged)}."),
        "",
    ]
    if judged.stopped:
        lines += [f"**Stopped before everything was asked:** {escape_markdown(judged.stopped)}", ""]
    lines += [escape_markdown(f"{', '.join(judged_facts(judged))}."), ""]
    for part in judged_tables(judged):
        lines += [
            f"## {escape_markdown(part.title)}",
            "",
            *render_markdown_table(part.header, part.rows, numbers=part.numbers),
            "",
        ]
    lines += _worst_samples_section(judged)
    lines += _left_out_section(judged)
    said = judged_notes(judged)
    lines += ["## Notes", "", *(f"- {escape_markdown(line)}" for line in said), ""] if said else []
    about_it = {"identity": dict(judged.identity), "circumstances": dict(judged.circumstances)}
    kept = json.dumps(replace_nan(about_it), indent=2, ensure_ascii=False, default=str)
    fence = "~" * (3 + kept.count("~~~"))
    return "\n".join([*lines, *details_block("Circumstances", [f"{fence}json", *kept.splitlines(), fence]), ""])


def _left_out_section(judged: JudgedSamples) -> list[str]:
    skipped = list_left_out_sentences(judged)
    if not skipped:
        return []
    rows = render_markdown_table(
        ["sample", "text", "sentence"], [list(one) for one in skipped[:MAX_LEFT_OUT_SHOWN]], numbers=False
    )
    more = (
        [f"{len(skipped) - MAX_LEFT_OUT_SHOWN:,} more are in the JSON report.", ""]
        if len(skipped) > MAX_LEFT_OUT_SHOWN
        else []
    )
    return ["## Sentences left out because they claim nothing", "", *rows, "", *more]


def _worst_samples_section(judged: JudgedSamples) -> list[str]:
    measure = next((one for one in judged.scores.measures if one.partition("(")[0] == WORST_SAMPLES_MEASURE), None)
    found = [] if measure is None else find_worst_samples(judged, measure, MAX_WORST_IN_MARKDOWN)
    if measure is None or not found:
        return []
    texts = {one.id: one.question for one in judged.samples}
    empty = {one.id for one in judged.samples if one.contexts == ()}
    rows = []
    for query, value in found:
        left = find_unsupported_claims(judged.verdicts.get(query), nothing=query in empty)
        claims = "; ".join(f"{one.state}: {one.text}" for one in left)
        rows.append([query, format_score(value), texts.get(query, ""), claims])
    header = ["sample", measure, "question", "claims that no context bears out"]
    return [f"## Lowest {escape_markdown(measure)}", "", *render_markdown_table(header, rows, numbers=False), ""]
