"""Judged samples as a Markdown page: scores, unscored samples, cost, and the worst samples."""

from __future__ import annotations

import json

from ragauge.reports.judged import GROUNDED, notes
from ragauge.reports.judged_rows import parts
from ragauge.reports.judged_words import about, headline, left_out, unsupported, who, worst
from ragauge.reports.markdown import folded, grid, safe
from ragauge.reports.tables import shown, without_nan
from ragauge.verdicts import Judged

WORST = 10
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
    lines += _worst(judged)
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


def _worst(judged: Judged) -> list[str]:
    measure = next((one for one in judged.scores.measures if one.partition("(")[0] == GROUNDED), None)
    found = [] if measure is None else worst(judged, measure, WORST)
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
