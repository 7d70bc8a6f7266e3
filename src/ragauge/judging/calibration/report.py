"""Report of a calibration, and the comparison of several."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.core.summaries import Estimate
from ragauge.core.text import one_line
from ragauge.judging.calibration.charts import build_calibration_charts
from ragauge.judging.calibration.rater_statistics import PERFECT_SCORE_TOLERANCE
from ragauge.judging.calibration.results import (
    STATISTIC_DESCRIPTIONS,
    WORD_OVERLAP_RATER,
    Calibration,
    CorrectedMean,
    Rater,
)
from ragauge.judging.report import build_injection_tables
from ragauge.output.numbers import format_interval, format_number, pluralise
from ragauge.output.report import FILES_ONLY, Block, Charts, Paragraph, Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Cell, Column, Row, Table, Value

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


def build_report(calibration: Calibration) -> Report:
    return Report(
        "calibration",
        calibration_title(calibration),
        summarise_calibration(calibration),
        _list_sections(calibration),
        [
            pluralise(calibration.labelled, "labelled sample"),
            f"good: {calibration.measure} >= {calibration.threshold:g}, label >= {calibration.label_threshold:g}",
        ],
        notes=[*_describe_samples(calibration), *_describe_undefined(calibration), *calibration.notes],
        provenance={
            "judge": calibration.judge,
            "dataset": calibration.dataset,
            "labels": calibration.about,
            **{name: fact for name, fact in calibration.identity.items() if name != "judge"},
            **calibration.provenance,
        },
    )


def _list_sections(calibration: Calibration) -> list[Section]:
    charts = Charts(lambda: build_calibration_charts(calibration))
    corrected: list[Block] = [build_corrected_mean_table(calibration), *_describe_corrected_mean(calibration)]
    sections = [
        Section("agreement", "Agreement", [_build_agreement_table(calibration)], "Agreement"),
        Section("verdicts", "Verdicts", [_build_confusion_table(calibration)], "Verdicts"),
        Section("bias", "Consistency and bias", [_build_bias_table(calibration)], "Bias"),
        Section("corrected", "Corrected mean", corrected, "Corrected mean"),
        Section("robustness", "Prompt injection", build_injection_tables(calibration.robustness), "Prompt injection"),
        Section("curves", "Curves", [charts, _build_curve_table(calibration)], "Curves", FILES_ONLY),
        Section("statistics", "Statistics", [_build_definitions_table(calibration)], formats=FILES_ONLY),
    ]
    return [
        section for section in sections if any(not isinstance(block, Table) or block.rows for block in section.blocks)
    ]


def build_comparison(calibrations: Sequence[Calibration]) -> Report:
    """Build the report that compares several calibrations: one row per dataset."""
    table = build_overview_table(calibrations)
    judges = dict.fromkeys(map(display_judge_name, calibrations))
    return Report(
        "calibrations",
        "Calibrations",
        f"{', '.join(judges)} on {pluralise(len(calibrations), 'dataset')}.",
        [Section("datasets", "Datasets", [table], "Datasets")],
        notes=_list_shared_notes(calibrations),
    )


def display_judge_name(calibration: Calibration) -> str:
    """Return the name of the judge; that of the lexical judge without the hash of its identity."""
    return LEXICAL_JUDGE if calibration.identity.get("judge") == LEXICAL_JUDGE else calibration.judge


def calibration_title(calibration: Calibration) -> str:
    """Return the judge and the dataset as a title."""
    return f"{display_judge_name(calibration)} on {calibration.dataset}"


def summarise_calibration(calibration: Calibration) -> str:
    """Summarise the agreement in one sentence."""
    accuracy, kappa = calibration.statistics["accuracy"], calibration.statistics["kappa"]
    labels = "the labels of people" if calibration.people else "the labels"
    if not accuracy.defined:
        return f"No labelled sample of {calibration.labelled:,} has a verdict."
    share = format_number(accuracy.value, "share")
    return (
        f"The verdicts agree with {labels} on {share} of {pluralise(calibration.scored, 'sample')}"
        f"{_format_ci(accuracy, calibration, 'share')}; Cohen's kappa is {format_number(kappa.value, 'statistic')}"
        f"{_format_ci(kappa, calibration)}."
    )


def _level(calibration: Calibration) -> str:
    return f"{100 * calibration.confidence:g}% CI"


def _format_ci(estimate: Estimate, calibration: Calibration, style: str = "statistic") -> str:
    """Format the interval of an estimate in parentheses; empty if it is undefined."""
    if math.isnan(estimate.low):
        return ""
    low, high = format_number(estimate.low, style), format_number(estimate.high, style)
    return f" ({_level(calibration)} {low} to {high})"


def _interval_cell(estimate: Estimate) -> Cell:
    return Cell(estimate.low, text=format_interval(estimate.low, estimate.high, "statistic"))


def _build_agreement_table(calibration: Calibration) -> Table:
    """Build the table of all statistics of the judge and the other raters."""
    judge, *other_raters = calibration.raters
    columns = [
        Column("statistic", "name"),
        Column("judge", "statistic"),
        Column(_level(calibration), "statistic"),
        *(Column(_rater_label(rater), "statistic", legend=rater.about) for rater in other_raters),
    ]
    rows: list[Row] = []
    for name in STATISTIC_DESCRIPTIONS:
        estimate = judge.statistics.get(name)
        if estimate is None or (name == "accuracy_all" and not calibration.unscored):
            continue
        values = [
            Cell(other.statistics[name].value) if name in other.statistics else Cell("") for other in other_raters
        ]
        rows.append([STATISTIC_NAMES.get(name, name), estimate.value, _interval_cell(estimate), *values])
    return Table("agreement", columns, rows)


def _rater_label(rater: Rater) -> str:
    if rater.kind == "judge":
        return "by degree"
    return "words" if rater.name == WORD_OVERLAP_RATER else rater.name


def _build_confusion_table(calibration: Calibration) -> Table:
    """Build the confusion table of judge and labels, with unscored samples."""
    source = "people" if calibration.people else "labels"
    columns = [Column("verdict", "name"), Column(f"{source}: good", "count"), Column(f"{source}: bad", "count")]
    if calibration.confusion is None:
        return Table("verdicts", columns, [])
    good, only_judge, only_people, bad = calibration.confusion
    rows: list[Row] = [["judge: good", good, only_judge], ["judge: bad", only_people, bad]]
    if calibration.unscored:
        limit = calibration.label_threshold - PERFECT_SCORE_TOLERANCE
        are_good = [pair.label >= limit for pair in calibration.pairs if math.isnan(pair.score)]
        rows.append(["no verdict", sum(are_good), len(are_good) - sum(are_good)])
    return Table("verdicts", columns, rows)


def _build_bias_table(calibration: Calibration) -> Table:
    """Build the table of biases: consistency, order of contexts and length of answers."""
    effects: list[tuple[str, Estimate, bool]] = []
    if calibration.consistency is not None:
        consistency = calibration.consistency
        effects += [
            (f"same verdict in all {consistency.replicates} replicates", consistency.same, False),
            ("two replicates agree", consistency.pairwise, False),
            ("Krippendorff's alpha of the replicates", consistency.alpha, False),
            ("standard deviation of a sample's scores", consistency.spread, False),
        ]
    if calibration.swap is not None:
        effects += [
            ("verdict changes if the contexts are reversed", calibration.swap.changed, False),
            ("change of the score if they are reversed", calibration.swap.shift, True),
        ]
    if calibration.verbosity is not None:
        effects += [
            ("correlation of error and length (Spearman)", calibration.verbosity.correlation, True),
            ("change of the score per 100 words", calibration.verbosity.slope, True),
        ]
    columns = [
        Column("effect", "name"),
        Column("value", "statistic"),
        Column(_level(calibration), "statistic"),
        Column("n", "count"),
    ]
    rows: list[Row] = []
    for name, estimate, is_signed in effects:
        text = format_number(estimate.value, "statistic")
        signed = Cell(estimate.value, text=f"+{text}" if is_signed and estimate.value > 0 else text)
        rows.append([name, signed, _interval_cell(estimate), estimate.n])
    return Table("bias", columns, rows)


def build_corrected_mean_table(calibration: Calibration) -> Table:
    """Build the table of estimates of the mean label."""
    columns = [
        Column("mean label", "name"),
        Column("value", "statistic"),
        Column(_level(calibration), "statistic"),
        Column("labels", "count"),
        Column("judged", "count"),
    ]
    corrected = calibration.corrected
    if corrected is None:
        return Table("corrected", columns, [])
    labels, judged, all_judged = corrected.labels, corrected.judged, corrected.judge.n
    estimates = [
        ("labels alone", corrected.people, labels, 0),
        ("judge alone", corrected.judge, 0, all_judged),
        ("prediction-powered", corrected.powered, labels, judged),
        ("share of good: labels alone", corrected.share, labels, 0),
        ("share of good: sensitivity, specificity", corrected.rates, labels, judged),
    ]
    rows: list[Row] = [[name, estimate.value, _interval_cell(estimate), *ns] for name, estimate, *ns in estimates]
    if not math.isnan(corrected.truth):
        rows.append(["all labels", corrected.truth, Cell(""), calibration.labelled, 0])
    return Table("corrected", columns, rows)


def compute_equivalent_labels(corrected: CorrectedMean) -> float:
    """Return the number of labels that would be as precise without the judge.

    NaN if unknown.
    """
    widths = [estimate.high - estimate.low for estimate in (corrected.people, corrected.powered)]
    return corrected.labels * (widths[0] / widths[1]) ** 2 if widths[1] > 0 else math.nan


def _describe_corrected_mean(calibration: Calibration) -> list[Paragraph]:
    corrected = calibration.corrected
    if corrected is None or math.isnan(compute_equivalent_labels(corrected)):
        return []
    return [
        Paragraph(
            f"The judge has the weight {corrected.weight:.2f}; {pluralise(corrected.labels, 'label')} with the judge "
            f"are as precise as about {compute_equivalent_labels(corrected):.0f} without it."
        )
    ]


def _build_curve_table(calibration: Calibration) -> Table:
    """Build the table of the calibration curve: mean scores and shares of good samples."""
    columns = [
        Column("mean score", "name"),
        Column("share of good samples", "statistic"),
        Column(_level(calibration), "statistic"),
        Column("n", "count"),
    ]
    rows: list[Row] = [
        [Cell(part.score, "statistic"), part.share.value, _interval_cell(part.share), part.share.n]
        for part in calibration.curve
    ]
    title = f"Calibration curve of {calibration.curve_of}"
    if not math.isnan(calibration.calibration_error):
        title += f", expected calibration error {format_number(calibration.calibration_error, 'statistic')}"
    return Table("curve", columns, rows, title)


def _build_definitions_table(calibration: Calibration) -> Table:
    rows = [
        [STATISTIC_NAMES.get(name, name), description]
        for name, description in STATISTIC_DESCRIPTIONS.items()
        if name in calibration.statistics
    ]
    columns = [Column("statistic", "name"), Column("definition")]
    return Table("definitions", columns, rows, "Definitions of the statistics", collapsed=True)


def build_overview_table(calibrations: Sequence[Calibration]) -> Table:
    """Build the overview table with one row per dataset."""
    columns = [
        Column("dataset", "name"),
        Column("n", "count"),
        Column("unscored", "count"),
        Column("good", "statistic", drop_order=3, legend="share of good samples"),
        Column("accuracy", "statistic"),
        Column("kappa", "statistic"),
        Column("AC1", "statistic", drop_order=1),
        Column("AUC", "statistic", legend="by degree, if the judge returns probabilities"),
        Column(_level(calibrations[0]), "statistic", drop_order=4, legend="interval of the AUC"),
        Column("words", "statistic", legend="AUC of word overlap"),
        Column("Spearman", "statistic", drop_order=2),
    ]
    rows: list[Row] = []
    for calibration in calibrations:
        graded = next((rater for rater in calibration.raters[1:] if rater.kind == "judge"), calibration.raters[0])
        overlap_rater = next((rater for rater in calibration.raters if rater.name == WORD_OVERLAP_RATER), None)
        rows.append(
            [
                calibration.dataset,
                calibration.labelled,
                sum(calibration.unscored.values()),
                calibration.base_rate.value,
                *(calibration.statistics[name].value for name in ("accuracy", "kappa", "ac1")),
                graded.statistics["auc"].value,
                _interval_cell(graded.statistics["auc"]),
                None if overlap_rater is None else overlap_rater.statistics["auc"].value,
                graded.statistics["spearman"].value,
            ]
        )
    return Table("datasets", columns, rows)


def _describe_samples(calibration: Calibration) -> list[str]:
    """Describe how many samples have a verdict and how many are good."""
    unscored = sum(calibration.unscored.values())
    verdicts = f"{calibration.scored} of {pluralise(calibration.labelled, 'labelled sample')} have a verdict"
    if unscored:
        verdicts += f", {unscored} are unscored ({_list_unscored_reasons(calibration)})"
    return [f"{verdicts}; {format_number(calibration.base_rate.value, 'share')} are good"]


def _list_unscored_reasons(calibration: Calibration) -> str:
    return "; ".join(f"{number} x {one_line(reason)}" for reason, number in calibration.unscored.items())


def _describe_undefined(calibration: Calibration) -> list[str]:
    """Describe why statistics or their intervals are undefined, each reason once."""
    estimates: dict[str, Estimate] = dict(calibration.statistics)
    if calibration.consistency is not None:
        estimates["alpha of the replicates"] = calibration.consistency.alpha
    if calibration.verbosity is not None:
        estimates["correlation with length"] = calibration.verbosity.correlation
        estimates["change per 100 words"] = calibration.verbosity.slope
    if calibration.corrected is not None:
        estimates["prediction-powered mean"] = calibration.corrected.powered
        estimates["share of good from sensitivity and specificity"] = calibration.corrected.rates
    names_by_reason: dict[str, list[str]] = {}
    for name, estimate in estimates.items():
        if estimate.reason and name != "accuracy_all":
            names_by_reason.setdefault(estimate.reason, []).append(STATISTIC_NAMES.get(name, name))
    return [f"{', '.join(names)}: {reason}" for reason, names in names_by_reason.items()]


def _list_shared_notes(calibrations: Sequence[Calibration]) -> list[str]:
    """Return the notes on several calibrations, each once with its datasets."""
    datasets_by_note: dict[str, list[str]] = {}
    for calibration in calibrations:
        threshold = f"good is {calibration.measure} >= {calibration.threshold:g}"
        notes = [f"{threshold}, and a label >= {calibration.label_threshold:g}"]
        if calibration.unscored:
            notes.append(f"unscored: {_list_unscored_reasons(calibration)}")
        for note in [*notes, *calibration.notes]:
            datasets_by_note.setdefault(note, []).append(calibration.dataset)
    return [
        note if len(datasets) == len(calibrations) else f"{', '.join(datasets)}: {note}"
        for note, datasets in datasets_by_note.items()
    ]


def build_statistics_table(calibration: Calibration) -> Table:
    """Build the long table with one row per rater and statistic."""
    titles = ("set", "judge", "measure", "rater", "statistic", "value", "low", "high", "n", "reason")
    rows: list[list[Value]] = [
        [calibration.dataset, calibration.judge, calibration.measure, rater.name, name, *estimate]
        for rater in calibration.raters
        for name, estimate in rater.statistics.items()
    ]
    return Table("statistics", [Column(title) for title in titles], rows)


REPORTER = ResultReporter(
    build_report,
    {"csv": TableBuilder("one row per rater and statistic", build_statistics_table)},
    build_comparison,
)
