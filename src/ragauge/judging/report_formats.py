"""Report of judged samples for a terminal: scores, unscored samples, cost, and the worst samples."""

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
from ragauge.files.serialization import plain, without_nan
from ragauge.judging import report
from ragauge.judging.report import (
    about,
    figures,
    headline,
    left_out,
    parts,
    reasons,
    short_who,
    standings,
    total_estimate,
    totals,
    unsupported,
    who,
    worst,
)
from ragauge.judging.results import Canary, Estimate, Judged, Step
from ragauge.output.markdown import folded, grid, safe
from ragauge.output.numbers import count_noun, number, shown
from ragauge.output.terminal import cell, csv_text, direction, drawn

MAX_LOWEST_SHOWN, CLAIMS = 3, 3
"""Maximum number of worst samples shown, and of claims per sample."""
LONGEST = 80
"""Maximum number of characters of a sentence in a note."""
GROUNDED = "faithfulness"
"""Measure whose worst samples are shown with their claims."""


def tables(judged: Judged, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render the report for a terminal.

    Also return the titles of columns that do not fit.
    """
    pieces: list[RenderableType] = [
        cell(f"{judged.name}: {', '.join(about(judged))}", "bold"),
        cell(f"judged by {short_who(judged)}"),
        Text(""),
    ]
    left: dict[str, None] = {}
    for part in report.parts(judged):
        table, without = drawn(part, width)
        left.update(dict.fromkeys(without))
        titled = [] if part.title == "Measures" else [cell(part.title, "bold")]
        pieces += [*titled, table, Text("")]
    return [*pieces, *_print_lowest(judged, width)], list(left)


def estimate_tables(found: Sequence[Estimate], width: int) -> list[RenderableType]:
    """Render a cost estimate as a table."""
    return [drawn(report.estimates(found), width)[0]]


def _print_lowest(judged: Judged, width: int) -> list[RenderableType]:
    """Render the samples with the lowest faithfulness, and their unsupported claims."""
    measure = next((one for one in judged.scores.measures if one.partition("(")[0] == GROUNDED), None)
    found = [] if measure is None else worst(judged, measure, MAX_LOWEST_SHOWN)
    if measure is None or not found:
        return []
    texts = {one.id: one.question for one in judged.samples}
    empty = {one.id for one in judged.samples if one.contexts == ()}
    pieces: list[RenderableType] = [cell(f"Lowest {measure}", "bold")]
    for query, value in found:
        said = Text(f"{shown(value)}  {one_line(query)}")
        asked = one_line(texts.get(query, ""))
        said.append(f"  {asked}", style="dim")
        said.truncate(width, overflow="ellipsis")
        pieces.append(said)
        claims = unsupported(judged.verdicts.get(query), nothing=query in empty)
        for one in claims[:CLAIMS]:
            pieces.append(Padding(Text(f"{one.state}: {one_line(one.text)}"), (0, 0, 0, 8)))
        if len(claims) > CLAIMS:
            pieces.append(Padding(Text(f"and {len(claims) - CLAIMS} more", style="dim"), (0, 0, 0, 8)))
    return [*pieces, Text("")]


def notes(judged: Judged) -> list[str]:
    """Return the notes on the scores."""
    lines = []
    if judged.lexical:
        lines.append("the lexical judge compares words and numbers; it understands nothing, and is here as a baseline")
    empty = [one for one in judged.scores.measures if not judged.scores.n[one]]
    if empty:
        lines.append(f"no sample has a value of {', '.join(empty)}, so that there is no mean")
    if skipped := left_out(judged):
        lines.append(_left_out_note(skipped))
    lost = [one for one in judged.robustness if one.held is False]
    if lost:
        lines.append(f"{len(lost)} of {count_noun(len(judged.robustness), 'canary', 'canaries')} moved the judge")
    return [*dict.fromkeys([*lines, *judged.scores.notes, *judged.notes])]


def _left_out_note(skipped: Sequence[tuple[str, str, str]]) -> str:
    sample, _, sentence = skipped[0]
    first = f'"{shorten(one_line(sentence), LONGEST, placeholder=" …")}" ({one_line(sample)})'
    if len(skipped) == 1:
        return f"1 sentence was left out because it claims nothing: {first}"
    many = f"{count_noun(len(skipped), 'sentence')} were left out because they claim nothing"
    return f"{many}, e.g. {first}; report.html and `left_out` in the JSON list all"


def first_reason(judged: Judged) -> str:
    """Return the most frequent reason for unscored samples."""
    found = max(reasons(judged.scores), key=lambda one: one.many, default=None)
    return "" if found is None else f"{found.why} ({count_noun(found.many, 'sample')})"


def summary_csv(judged: Judged) -> str:
    """Render `measure,mean,low,high,n,unscored` with the judge and the convention."""
    header = ["measure", "mean", "low", "high", "n", "unscored", "judge", "convention"]
    rows = (
        [
            *(one.measure, number(one.mean), number(one.low), number(one.high), str(one.n), str(one.unscored)),
            *(judged.judge, judged.scores.convention),
        ]
        for one in figures(judged)
    )
    return csv_text(header, rows)


def scores_csv(judged: Judged) -> str:
    """Render one row for each sample and measure, with the reason for a missing value.

    `compare` and `gate` read this table.
    """
    header = ["system", "query", "measure", "value", "judge", "convention", "reason", "fingerprint", "lower_is_better"]
    return csv_text(header, _scores(judged))


def _scores(judged: Judged) -> Iterator[list[str]]:
    scores = judged.scores
    for name in scores.measures:
        for query, value in zip(scores.queries, scores.values[name].tolist(), strict=True):
            why = scores.unscored[name].get(query, "") if math.isnan(value) else ""
            told = [judged.name, query, name, number(value), judged.judge, scores.convention, why]
            yield [*told, scores.fingerprints.get(query, ""), direction(scores, name)]


def claims_csv(judged: Judged) -> str:
    """Render one row per claim: its state, its sources, and the reason of the judge."""
    header = ["query", "of", "claim", "text", "standing", "by", "together", "against", "probability", "words", "reason"]
    return csv_text(header, _claims(judged))


def _claims(judged: Judged) -> Iterator[list[str]]:
    for sample in judged.samples:
        for text in (ANSWER, REFERENCE):
            for one in standings(judged.verdicts.get(sample.id), text, nothing=sample.contexts == ()):
                said = one.support
                told = [""] * 5
                if said is not None:
                    sources = [" ".join(some) for some in (said.by, said.together, said.against)]
                    told = [*sources, number(said.probability), said.words]
                yield [sample.id, text, one.id, one.text, one.state, *told, one.why]


SCHEMA = "ragauge-judged/1"
"""Schema version; it changes if a field is removed or changes its meaning."""


def as_data(judged: Judged, *, per_sample: bool = False) -> dict[str, Any]:
    """Convert judged samples to JSON data: judge, measures and cost; NaN becomes None.

    `per_sample` includes the scores of each sample.
    """
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "name": judged.name,
        "judge": judged.judge,
        "about": who(judged),
        "verdict": headline(judged),
        "convention": judged.scores.convention,
        "confidence": judged.confidence,
        "samples": len(judged.samples),
        "measures": _measures(judged),
        "stopped": judged.stopped or None,
        "ledger": [step_data(one) for one in judged.ledger],
        "total": step_data(totals(judged.ledger)) if judged.ledger else None,
        "left_out": {
            one.sample: {text: list(listed) for text, listed in one.left_out.items()}
            for one in judged.verdicts.values()
            if one.left_out
        },
        "robustness": robustness_data(judged.robustness),
        "notes": [*dict.fromkeys([*judged.scores.notes, *judged.notes])],
        "identity": judged.identity,
        "circumstances": judged.circumstances,
    }
    if per_sample:
        data["per_sample"] = _per_sample(judged)
    return dict(without_nan(plain(data)))


def _measures(judged: Judged) -> dict[str, Any]:
    why: dict[str, dict[str, int]] = {}
    for one in reasons(judged.scores):
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
        for one in figures(judged)
    }


def _per_sample(judged: Judged) -> dict[str, Any]:
    scores = judged.scores
    columns = {name: scores.values[name].tolist() for name in scores.measures}
    found: dict[str, Any] = {}
    for i, query in enumerate(scores.queries):
        lacking = {name: scores.unscored[name][query] for name in columns if query in scores.unscored[name]}
        found[query] = {"values": {name: column[i] for name, column in columns.items()}, "unscored": lacking}
    return found


def step_data(step: Step) -> dict[str, Any]:
    """Convert a row of the cost table to JSON data."""
    return step._asdict()


def robustness_data(canaries: Sequence[Canary]) -> dict[str, Any] | None:
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


def estimate_data(judge: str, found: Sequence[Estimate], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a cost estimate to JSON data."""
    steps = [one._asdict() for one in found]
    whole = {name: value for name, value in total_estimate(found)._asdict().items() if name != "step"}
    return dict(without_nan(plain({"judge": judge, **facts, "estimate": steps, "total": whole})))


MAX_LOWEST_LISTED = 10
"""Maximum number of worst samples listed."""
LEFT_OUT = 20
"""Maximum number of sentences without a claim that are listed."""


def markdown(judged: Judged) -> str:
    """Render the report as a Markdown page."""
    lines = [f"# {safe(judged.name)}", "", safe(headline(judged)), "", safe(f"Judged by {who(judged)}."), ""]
    if judged.stopped:
        lines += [f"**Stopped before everything was asked:** {safe(judged.stopped)}", ""]
    lines += [safe(f"{', '.join(about(judged))}."), ""]
    for part in parts(judged):
        lines += [f"## {safe(part.title)}", "", *grid(part.header, part.rows, numbers=part.numbers), ""]
    lines += _list_lowest(judged)
    lines += _left_out(judged)
    said = notes(judged)
    lines += ["## Notes", "", *(f"- {safe(line)}" for line in said), ""] if said else []
    about_it = {"identity": dict(judged.identity), "circumstances": dict(judged.circumstances)}
    kept = json.dumps(without_nan(about_it), indent=2, ensure_ascii=False, default=str)
    fence = "~" * (3 + kept.count("~~~"))
    return "\n".join([*lines, *folded("Circumstances", [f"{fence}json", *kept.splitlines(), fence]), ""])


def _left_out(judged: Judged) -> list[str]:
    skipped = left_out(judged)
    if not skipped:
        return []
    rows = grid(["sample", "text", "sentence"], [list(one) for one in skipped[:LEFT_OUT]], numbers=False)
    more = [f"{len(skipped) - LEFT_OUT:,} more are in the JSON report.", ""] if len(skipped) > LEFT_OUT else []
    return ["## Sentences left out because they claim nothing", "", *rows, "", *more]


def _list_lowest(judged: Judged) -> list[str]:
    measure = next((one for one in judged.scores.measures if one.partition("(")[0] == GROUNDED), None)
    found = [] if measure is None else worst(judged, measure, MAX_LOWEST_LISTED)
    if measure is None or not found:
        return []
    texts = {one.id: one.question for one in judged.samples}
    empty = {one.id for one in judged.samples if one.contexts == ()}
    rows = []
    for query, value in found:
        left = unsupported(judged.verdicts.get(query), nothing=query in empty)
        claims = "; ".join(f"{one.state}: {one.text}" for one in left)
        rows.append([query, shown(value), texts.get(query, ""), claims])
    header = ["sample", measure, "question", "claims that no context bears out"]
    return [f"## Lowest {safe(measure)}", "", *grid(header, rows, numbers=False), ""]
