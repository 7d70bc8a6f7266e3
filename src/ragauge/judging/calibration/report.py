"""Report of calibrations: tables, notes, Markdown, JSON, CSV and charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from ragauge.core.records import Floats
from ragauge.core.summaries import Estimate
from ragauge.core.text import one_line
from ragauge.files.serialization import replace_nan, to_plain_data
from ragauge.judging.calibration.results import STATISTIC_DESCRIPTIONS, Calibration, CorrectedMean, Rater
from ragauge.judging.report import judge_display_name
from ragauge.output.chart_style import NEUTRAL_COLOUR, PALETTE
from ragauge.output.charts import (
    ChartPanel,
    ChartRows,
    import_altair,
    join_sentence,
    join_with_and,
    make_panel,
    round_digits,
)
from ragauge.output.markdown import escape_markdown, render_markdown_table
from ragauge.output.numbers import count_noun, format_exact
from ragauge.output.report import Chart
from ragauge.output.tables import TextTable
from ragauge.output.terminal import render_csv_rows

STATISTIC_NAMES = {
    "accuracy_all": "accuracy, all",
    "npv": "negative precision",
    "balanced_accuracy": "balanced accuracy",
    "kappa": "Cohen's kappa",
    "ac1": "Gwet's AC1",
    "alpha": "Krippendorff's alpha",
    "auc": "AUC",
    "over_words": "AUC over words",
    "spearman": "Spearman",
    "kendall": "Kendall's tau-b",
    "pearson": "Pearson",
}


def format_statistic(value: float) -> str:
    """Format a number with three decimals; a dash for NaN.

    >>> format_statistic(0.81249), format_statistic(math.nan)
    ('0.812', '-')
    """
    return "-" if math.isnan(value) else f"{value:.3f}"


def format_interval(figure: Estimate) -> str:
    """Format the bounds of a confidence interval.

    >>> format_interval(Estimate(0.8, 0.7, 0.9, 10)), format_interval(Estimate(0.8))
    ('0.700 to 0.900', '-')
    """
    return "-" if math.isnan(figure.low) else f"{figure.low:.3f} to {figure.high:.3f}"


def describe_thresholds(one: Calibration) -> str:
    """Describe the minimum score and label of a good sample."""
    return f"good is {one.measure} >= {one.threshold:g}, and a label >= {one.label_threshold:g}"


def calibration_title(one: Calibration) -> str:
    """Return the judge and the dataset as a title."""
    return f"{judge_display_name(one.judge, one.identity)} on {one.dataset}"


def agreement_table(one: Calibration) -> TextTable:
    """Build the table of all statistics of the judge and the other raters."""
    judge, *others = one.raters
    header = ["", "judge", f"{100 * one.confidence:g}% interval", *map(_rater_label, others)]
    rows = []
    for name in STATISTIC_DESCRIPTIONS:
        mine = judge.figures.get(name)
        if mine is None or (name == "accuracy_all" and not one.unscored):
            continue
        values = [format_statistic(other.figures[name].value) if name in other.figures else "" for other in others]
        rows.append([STATISTIC_NAMES.get(name, name), format_statistic(mine.value), format_interval(mine), *values])
    return TextTable("Agreement", header, rows)


def _rater_label(rater: Rater) -> str:
    if rater.kind == "judge":
        return "by degree"
    return {"counting words": "words"}.get(rater.name, rater.name)


def confusion_table(one: Calibration) -> TextTable:
    """Build the confusion table of judge and people, with unscored samples."""
    whose = "people" if one.people else "labels"
    header = ["verdicts", f"{whose}: good", f"{whose}: bad"]
    if one.confusion is None:
        return TextTable("Verdicts", header, [])
    good, only_judge, only_people, bad = one.confusion
    rows = [["judge: good", str(good), str(only_judge)], ["judge: bad", str(only_people), str(bad)]]
    if one.unscored:
        missing = [pair.label >= one.label_threshold - 1e-9 for pair in one.pairs if math.isnan(pair.score)]
        rows.append(["no verdict", str(sum(missing)), str(len(missing) - sum(missing))])
    return TextTable("Verdicts", header, rows)


def bias_table(one: Calibration) -> TextTable:
    """Build the table of biases: consistency, order of contexts and length of answers."""
    found: list[tuple[str, Estimate]] = []
    if one.consistency is not None:
        again = one.consistency
        found += [
            (f"same verdict in {again.replicates} replicates", again.same),
            ("two replicates agree", again.pairwise),
            ("alpha of replicates", again.alpha),
            ("spread of a sample's scores", again.spread),
        ]
    if one.swap is not None:
        found += [
            ("verdict changes with the order of contexts", one.swap.changed),
            ("score, reversed less as given", one.swap.shift),
        ]
    if one.verbosity is not None:
        found += [
            ("error and length of answer (Spearman)", one.verbosity.correlation),
            ("score for 100 words more, same label", one.verbosity.slope),
        ]
    rows = [[name, _format_signed(figure, name), format_interval(figure), str(figure.n)] for name, figure in found]
    return TextTable("What moves it", ["what moves it", "", f"{100 * one.confidence:g}% interval", "n"], rows)


def _format_signed(figure: Estimate, name: str) -> str:
    plain = format_statistic(figure.value)
    return f"+{plain}" if name.startswith(("score", "error")) and figure.value > 0 else plain


def corrected_mean_table(one: Calibration) -> TextTable:
    """Build the table of estimates of the mean label."""
    found = one.corrected
    header = ["mean label", "", f"{100 * one.confidence:g}% interval", "labels", "judged"]
    if found is None:
        return TextTable("The corrected mean", header, [])
    all_judged = str(found.judge.n)
    rows = [
        ["labels alone", *_value_and_interval(found.people), str(found.labels), "0"],
        ["judge alone, at its word", *_value_and_interval(found.judge), "0", all_judged],
        ["prediction-powered", *_value_and_interval(found.powered), str(found.labels), str(found.judged)],
        ["share of good: labels alone", *_value_and_interval(found.share), str(found.labels), "0"],
        ["share of good: from its rates", *_value_and_interval(found.rates), str(found.labels), str(found.judged)],
    ]
    if not math.isnan(found.truth):
        rows.append(["all labels", format_statistic(found.truth), "", str(one.labelled), "0"])
    return TextTable("The corrected mean", header, rows)


def _value_and_interval(figure: Estimate) -> list[str]:
    return [format_statistic(figure.value), format_interval(figure)]


def equivalent_labels(found: CorrectedMean) -> float:
    """Return the number of labels that would be as precise without the judge.

    NaN if unknown.
    """
    widths = [one.high - one.low for one in (found.people, found.powered)]
    return found.labels * (widths[0] / widths[1]) ** 2 if widths[1] > 0 else math.nan


def injection_table(one: Calibration) -> TextTable:
    """Build the table of prompt-injection attempts."""
    words = {True: "held", False: "moved", None: "-"}
    rows = [[row.case, row.step, row.where, row.clean, row.attacked, words[row.held]] for row in one.robustness]
    return TextTable("Robustness", ["attempt", "step", "in", "clean", "attacked", ""], rows, numbers=False, goes=(2, 1))


def curve_table(one: Calibration) -> TextTable:
    """Build the table of the calibration curve: scores and shares of good samples."""
    rows = [
        [format_statistic(b.score), format_statistic(b.share.value), format_interval(b.share), str(b.share.n)]
        for b in one.curve
    ]
    return TextTable("Scores and labels", ["mean score", "good", f"{100 * one.confidence:g}% interval", "n"], rows)


def overview_table(several: Sequence[Calibration]) -> TextTable:
    """Build the overview table with one row per dataset."""
    header = ["set", "n", "unscored", "good", "accuracy", "kappa", "AC1", "AUC", "interval", "words", "Spearman"]
    rows = []
    for one in several:
        soft = next((r for r in one.raters[1:] if r.kind == "judge"), one.raters[0])
        words = next((r for r in one.raters if r.name == "counting words"), None)
        mine = one.figures
        rows.append(
            [
                one.dataset,
                str(one.labelled),
                str(sum(one.unscored.values())),
                format_statistic(one.base_rate.value),
                *(format_statistic(mine[name].value) for name in ("accuracy", "kappa", "ac1")),
                format_statistic(soft.figures["auc"].value),
                format_interval(soft.figures["auc"]).replace(" to ", "-"),
                "-" if words is None else format_statistic(words.figures["auc"].value),
                format_statistic(soft.figures["spearman"].value),
            ]
        )
    return TextTable("", header, rows, goes=(6, 10, 3, 8))


def calibration_tables(one: Calibration) -> list[TextTable]:
    """Return all tables of a calibration that are not empty."""
    tables = [
        agreement_table(one),
        confusion_table(one),
        bias_table(one),
        corrected_mean_table(one),
        injection_table(one),
    ]
    return [table for table in tables if table.rows]


def calibration_notes(one: Calibration) -> list[str]:
    """Return the notes on a calibration that complement the tables."""
    told = [
        f"{calibration_title(one)}: {describe_thresholds(one)}",
        f"{count_noun(one.scored, 'sample')} of {one.labelled} have a verdict",
    ]
    if one.unscored:
        told[-1] += f", {sum(one.unscored.values())} have none ({_unscored_reasons_text(one)})"
    told[-1] += f"; {100 * one.base_rate.value:.1f}% are good"
    told += undefined_reasons(one)
    found = one.corrected
    if found is not None and not math.isnan(equivalent_labels(found)):
        told.append(
            f"the judge weighs {found.weight:.2f}, and {found.labels} labels with it are worth about "
            f"{equivalent_labels(found):.0f} without it"
        )
    if one.robustness:
        held = [row.held for row in one.robustness]
        told.append(
            f"it withstood {sum(map(bool, held))} of {count_noun(len(held), 'attempt')} to talk it into a verdict"
        )
    return [*told, *one.notes]


def shared_calibration_notes(several: Sequence[Calibration]) -> list[str]:
    """Return the notes on several calibrations, each once with its datasets."""
    sets: dict[str, list[str]] = {}
    for one in several:
        missing = sum(one.unscored.values())
        none = [f"{missing} of {one.labelled} have no verdict: {_unscored_reasons_text(one)}"] if missing else []
        for line in [f"{judge_display_name(one.judge, one.identity)}: {describe_thresholds(one)}", *none, *one.notes]:
            sets.setdefault(line, []).append(one.dataset)
    everywhere = len(several)
    return [line if len(names) == everywhere else f"{', '.join(names)}: {line}" for line, names in sets.items()]


def _unscored_reasons_text(one: Calibration) -> str:
    return "; ".join(f"{number} x {one_line(reason)}" for reason, number in one.unscored.items())


def undefined_reasons(one: Calibration) -> list[str]:
    """Return the reasons for undefined statistics, each once."""
    parts: dict[str, Estimate] = dict(one.figures)
    if one.consistency is not None:
        parts["alpha of replicates"] = one.consistency.alpha
    if one.verbosity is not None:
        parts |= {"error and length": one.verbosity.correlation, "score for 100 words more": one.verbosity.slope}
    if one.corrected is not None:
        parts |= {"prediction-powered mean": one.corrected.powered, "share from rates": one.corrected.rates}
    grouped: dict[str, list[str]] = {}
    for name, figure in parts.items():
        if figure.why and name != "accuracy_all":
            grouped.setdefault(figure.why, []).append(STATISTIC_NAMES.get(name, name))
    return [f"{', '.join(names)}: {why}" for why, names in grouped.items()]


def render_calibrations_markdown(several: Sequence[Calibration]) -> str:
    """Render calibrations as Markdown: an overview, then all tables of each."""
    lines = ["# May this judge be believed?", ""]
    if len(several) > 1:
        rows = overview_table(several)
        lines += [*render_markdown_table(rows.header, rows.rows), ""]
    for one in several:
        lines += [f"## {escape_markdown(calibration_title(one))}", ""]
        for rows in [*calibration_tables(one), curve_table(one)]:
            if rows.rows:
                lines += [
                    f"### {rows.title}",
                    "",
                    *render_markdown_table(rows.header, rows.rows, numbers=rows.title != "Robustness"),
                    "",
                ]
        lines += [f"- {escape_markdown(line)}" for line in calibration_notes(one)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


CALIBRATION_SCHEMA = "ragauge-calibration/1"
"""Schema version; it changes if a field is removed or changes its meaning."""
PER_SAMPLE_FIELDS = {"pairs"}


def calibrations_to_dict(several: Sequence[Calibration], *, per_sample: bool = False) -> dict[str, Any]:
    """Convert calibrations to JSON data; NaN becomes None.

    `per_sample` includes the samples.
    """
    return {
        "schema": CALIBRATION_SCHEMA,
        "calibrations": [_calibration_to_dict(one, per_sample=per_sample) for one in several],
    }


def _calibration_to_dict(one: Calibration, *, per_sample: bool) -> dict[str, Any]:
    found = {
        field.name: _to_plain_data(getattr(one, field.name))
        for field in fields(one)
        if per_sample or field.name not in PER_SAMPLE_FIELDS
    }
    # The main results are at the top level too, not only in the list of raters.
    top = {"figures": _to_plain_data(one.figures), "confusion": _to_plain_data(one.confusion), "scored": one.scored}
    return dict(replace_nan(to_plain_data({**found, **top})))


def _to_plain_data(thing: Any) -> Any:
    """Convert records to mappings recursively."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: _to_plain_data(getattr(thing, field.name)) for field in fields(thing)}
    if hasattr(thing, "_asdict"):
        told = {name: _to_plain_data(value) for name, value in thing._asdict().items()}
        if isinstance(thing, Estimate) and not thing.why:
            del told["why"]
        return told
    if isinstance(thing, Mapping):
        return {str(name): _to_plain_data(value) for name, value in thing.items()}
    return [_to_plain_data(one) for one in thing] if isinstance(thing, list | tuple) else thing


def calibrations_to_csv(several: Sequence[Calibration]) -> str:
    """Render calibrations as long CSV: one row for each dataset, rater and statistic."""
    rows = (
        [
            one.dataset,
            one.judge,
            one.measure,
            rater.name,
            name,
            *map(format_exact, figure[:3]),
            str(figure.n),
            figure.why,
        ]
        for one in several
        for rater in one.raters
        for name, figure in rater.figures.items()
    )
    return render_csv_rows(["set", "judge", "measure", "rater", "figure", "value", "low", "high", "n", "why"], rows)


PANEL_HEIGHT_PX = 260


def draw_calibrations(several: Mapping[str, Calibration]) -> dict[str, Chart]:
    """Draw each calibration that has scores of both good and bad samples."""
    found = {}
    for name, one in several.items():
        drawing = _draw_calibration(one)
        if drawing is not None:
            found[name] = drawing
    return found


def roc_points(scores: Floats, good: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[float, float]]:
    """Return the ROC curve as pairs of false and true positive rate.

    The strictest threshold comes first. Equal scores are one step.

    >>> roc_points(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    [(0.0, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 1.0)]
    """
    order = np.argsort(-scores, kind="stable")
    hits, alarms = np.cumsum(good[order]), np.cumsum(~good[order])
    last = np.append(np.diff(scores[order]) != 0, True)
    points = zip(alarms[last] / alarms[-1], hits[last] / hits[-1], strict=True)
    return [(0.0, 0.0), *((float(x), float(y)) for x, y in points)]


def _draw_calibration(one: Calibration) -> Chart | None:
    good = np.array([pair.label >= one.label_threshold - 1e-9 for pair in one.pairs], np.bool_)
    columns = {
        "verdicts": np.array([pair.score for pair in one.pairs]),
        "by degree": np.array([pair.soft for pair in one.pairs]),
        "counting words": np.array([pair.overlap for pair in one.pairs]),
    }
    rows: ChartRows = []
    for name, scores in columns.items():
        known = ~np.isnan(scores)
        if good[known].any() and not good[known].all():
            rows += [
                {"who": name, "alarms": round_digits(x), "hits": round_digits(y), "at": at}
                for at, (x, y) in enumerate(roc_points(scores[known], good[known]))
            ]
    names = list(dict.fromkeys(row["who"] for row in rows))
    if "verdicts" not in names:
        return None
    panels = [_roc_panel(rows, names), *([_curve_panel(one)] if one.curve else [])]
    areas = [
        f"{rater.name} {rater.figures['auc'].value:.3f}"
        for rater in one.raters
        if rater.kind != "people" and "auc" in rater.figures and not math.isnan(rater.figures["auc"].value)
    ]
    caption = join_sentence(
        "left, what share of good samples is found at what share of false alarms, the dashed line being a guess",
        "right, samples of about the same score: dots on the dashed line mean what they say" if one.curve else "",
        "lines at the dots are intervals" if one.curve else "",
    )
    return Chart(f"{one.judge} on {one.dataset}", caption, f"Area under the curve: {join_with_and(areas)}.", panels)


def _roc_panel(rows: ChartRows, names: list[str]) -> ChartPanel:
    alt = import_altair()
    colour = alt.Color("who:N", scale=alt.Scale(domain=names, range=list(PALETTE[: len(names)])), legend=alt.Legend())
    x = alt.X("alarms:Q", title="bad samples called good", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    y = alt.Y("hits:Q", title="good samples called good", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    lines = alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=2, interpolate="linear")
    layers = [_diagonal_line("alarms", "hits"), lines.encode(x=x, y=y, color=colour, order="at:Q")]
    return make_panel("Telling good from bad", layers, PANEL_HEIGHT_PX, wide=False)


def _curve_panel(one: Calibration) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = [
        {
            "score": round_digits(b.score),
            "share": round_digits(b.share.value),
            "low": round_digits(b.share.low),
            "high": round_digits(b.share.high),
            "n": b.share.n,
        }
        for b in one.curve
    ]
    chart = alt.Chart(alt.Data(values=rows))
    x = alt.X("score:Q", title="mean score", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    y = alt.Y("share:Q", title="share that is good", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    tips = [
        alt.Tooltip("n:Q", title="samples"),
        *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("score", "share", "low", "high")),
    ]
    whiskers = chart.mark_rule(color=PALETTE[0], strokeWidth=1.5)
    dots = chart.mark_point(filled=True, size=60, opacity=1, color=PALETTE[0])
    layers = [
        _diagonal_line("score", "share"),
        whiskers.encode(x=x, y=alt.Y("low:Q", title="share that is good"), y2="high:Q"),
        dots.encode(x=x, y=y, tooltip=tips),
    ]
    return make_panel("What scores promise", layers, PANEL_HEIGHT_PX, wide=False)


def _diagonal_line(x: str, y: str) -> object:
    alt = import_altair()
    rows = [{x: 0, y: 0}, {x: 1, y: 1}]
    line = alt.Chart(alt.Data(values=rows)).mark_line(color=NEUTRAL_COLOUR, strokeDash=[4, 4], strokeWidth=1)
    return line.encode(x=alt.X(f"{x}:Q"), y=alt.Y(f"{y}:Q"))
