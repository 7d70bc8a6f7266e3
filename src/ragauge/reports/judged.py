"""Report of judged samples for a terminal: scores, unscored samples, cost, and the worst samples."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ragauge.reports import judged_rows
from ragauge.reports.judged_words import about, left_out, reasons, short_who, unsupported, worst
from ragauge.reports.tables import cell, counted, drawn, one_line, shown
from ragauge.verdicts import Estimate, Judged

WORST, CLAIMS = 3, 3
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
    for part in judged_rows.parts(judged):
        table, without = drawn(part, width)
        left.update(dict.fromkeys(without))
        titled = [] if part.title == "Measures" else [cell(part.title, "bold")]
        pieces += [*titled, table, Text("")]
    return [*pieces, *_worst(judged, width)], list(left)


def estimate_tables(found: Sequence[Estimate], width: int) -> list[RenderableType]:
    """Render a cost estimate as a table."""
    return [drawn(judged_rows.estimates(found), width)[0]]


def _worst(judged: Judged, width: int) -> list[RenderableType]:
    """Render the samples with the lowest faithfulness, and their unsupported claims."""
    measure = next((one for one in judged.scores.measures if one.partition("(")[0] == GROUNDED), None)
    found = [] if measure is None else worst(judged, measure, WORST)
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
        lines.append(f"{len(lost)} of {counted(len(judged.robustness), 'canary', 'canaries')} moved the judge")
    return [*dict.fromkeys([*lines, *judged.scores.notes, *judged.notes])]


def _left_out_note(skipped: Sequence[tuple[str, str, str]]) -> str:
    sample, _, sentence = skipped[0]
    first = f'"{shorten(one_line(sentence), LONGEST, placeholder=" …")}" ({one_line(sample)})'
    if len(skipped) == 1:
        return f"1 sentence was left out because it claims nothing: {first}"
    many = f"{counted(len(skipped), 'sentence')} were left out because they claim nothing"
    return f"{many}, e.g. {first}; report.html and `left_out` in the JSON list all"


def first_reason(judged: Judged) -> str:
    """Return the most frequent reason for unscored samples."""
    found = max(reasons(judged.scores), key=lambda one: one.many, default=None)
    return "" if found is None else f"{found.why} ({counted(found.many, 'sample')})"
