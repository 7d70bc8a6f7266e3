"""HTML page of judged samples: scores, their distribution, and every sample with its verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ragauge.reports import judged as reports
from ragauge.reports import judged_rows
from ragauge.reports import judged_words as words
from ragauge.reports.charts.judged import drawn
from ragauge.reports.page import Section, document, judged_payload, payload
from ragauge.reports.page.sections import Cell, Sheet
from ragauge.reports.tables import Rows, one_line
from ragauge.verdicts import Judged


class Card(NamedTuple):
    """Summary card of one measure."""

    name: str
    value: str
    interval: str
    scored: str
    tone: str


def page(judged: Judged, vega: str | None = None) -> str:
    """Render the page; `vega` is the script bundle if it is already loaded."""
    charts = drawn(judged)
    middle = [
        Section("spread", "How values are spread", "Spread", charts),
        Section("unscored", "Unscored, and why", "Unscored", grids=[_sheet(judged_rows.unscored(judged))]),
        Section("took", "What it took", "Cost", grids=[_sheet(judged_rows.ledger(judged))]),
        Section(
            "robustness",
            "Robustness",
            "Robustness",
            grids=[one for one in (_sheet(_canaries(judged)), _moved(judged)) if one.rows],
            text="Texts that try to talk the judge into a verdict, and whether they did.",
        ),
    ]
    middle = [one for one in middle if one.charts or any(sheet.rows for sheet in one.grids)]
    about = {
        "measures": judged.scores.measures,
        "lower": [one in judged.scores.lower_is_better for one in judged.scores.measures],
    }
    blocks = {"values": judged_payload.values(judged), "details": judged_payload.details(judged)}
    return document(
        "judged.html",
        {
            "title": judged.name,
            "kind": "judge",
            "made": words.made(judged),
            "sections": [
                *middle,
                Section("samples", "Samples", "Samples"),
                Section("again", "Circumstances", "Circumstances"),
            ],
            "about": [*words.about(judged), *filter(None, [words.made(judged)[:10]])],
            "headline": words.headline(judged),
            "who": words.who(judged),
            "lexical": judged.lexical,
            "stopped": judged.stopped,
            "cards": [_card(judged, one) for one in words.figures(judged)],
            "chart_sections": middle,
            "measures": judged.scores.measures,
            "circumstances": _circumstances(judged),
            "notes": [one for one in reports.notes(judged) if not one.startswith("the lexical judge")],
        },
        charts,
        {"about": about},
        {name: payload.packed(one) for name, one in blocks.items()},
        vega=vega,
        own="judged",
    )


def _card(judged: Judged, one: words.Figure) -> Card:
    interval = "" if math.isnan(one.low) else f"{one.low:.3f} to {one.high:.3f} ({words.confidence(judged)})"
    lower = "less is better; " if one.lower else ""
    return Card(
        one.measure,
        "no value" if math.isnan(one.mean) else f"{one.mean:.3f}",
        interval or "no interval",
        f"{lower}{one.n:,} of {one.of:,} scored" + (f", {one.unscored:,} unscored" if one.unscored else ""),
        "doubt" if one.unscored else "",
    )


def _canaries(judged: Judged) -> Rows:
    return judged_rows.robustness(judged.robustness)._replace(title="")


def _moved(judged: Judged) -> Sheet:
    """Build the sheet of successful prompt injections, narrow for small screens."""
    part = judged_rows.moved(judged.robustness)
    rows: list[list[str | Cell]] = [
        [Cell(case, f"{step}, in the {where}"), *verdicts] for case, step, where, *verdicts in part.rows
    ]
    return Sheet([part.header[0], *part.header[3:]], rows, part.title, numbers=False)


def _sheet(part: Rows) -> Sheet:
    return Sheet(part.header, part.rows, numbers=part.numbers)


def _circumstances(judged: Judged) -> Sheet:
    facts: dict[str, Any] = {
        "samples": f"{len(judged.samples):,}",
        "convention": judged.scores.convention,
        **judged.identity,
        **judged.circumstances,
    }
    rows = [[str(name).replace("_", " "), _told(value)] for name, value in facts.items() if value not in (None, "", {})]
    return Sheet(["", ""], rows, numbers=False)


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_told(one)}" for key, one in value.items())
    return ", ".join(map(_told, value)) if isinstance(value, list | tuple) else one_line(str(value))
