"""An experiment on a terminal, as Markdown and as CSV: how good, how fast, and how sure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ragauge.comparisons import figures
from ragauge.outcomes import Experiment
from ragauge.reports.markdown import grid, safe
from ragauge.reports.tables import best_of, cell, fitting, p_value, plain_table, shortened, shown, without_nan
from ragauge.stages import STAGES

SURE = 0.05


def quality_rows(experiment: Experiment) -> tuple[list[str], list[list[str]]]:
    """Header and rows: each system's means; its difference from the baseline, the p-value, better and worse queries."""
    header = ["system", *experiment.measures]
    base = experiment.baseline
    if base is not None and experiment.differences:
        header += [f"vs {base}", "p", "better/worse"]
    rows = []
    for name, scores in experiment.scores.items():
        row = [name, *(shown(scores.means[m], m) for m in experiment.measures)]
        gap = experiment.differences.get(name)
        if gap is not None:
            row += [f"{gap.difference:+.4f}", p_value(gap.p_corrected), f"{gap.wins}/{gap.losses}"]
        rows.append(row + [""] * (len(header) - len(row)))
    return header, rows


def speed_rows(experiment: Experiment) -> tuple[list[str], list[list[str]]]:
    """Header and rows: median of each stage, percentiles of the total, queries per second, cold start, building."""
    stages = [s for s in STAGES if any(s in one.stages for one in experiment.speeds.values())]
    header = ["system", *stages, "p50 ms", "p90", "p95", "p99", "mean", "QPS", "cold ms", "build s"]
    rows = []
    for name, one in experiment.speeds.items():
        total = one.stages["total"]
        about = experiment.runs[name].manifest
        rows.append(
            [
                name,
                *(milliseconds(one.stages[s].p50) if s in one.stages else "" for s in stages),
                *map(milliseconds, (total.p50, total.p90, total.p95, total.p99, total.mean)),
                f"{one.qps:,.0f}" if one.qps >= 10 else f"{one.qps:.1f}",
                milliseconds(about.get("cold_ms")),
                "-" if about.get("build_seconds") is None else f"{about['build_seconds']:.2f}",
            ]
        )
    return header, rows


def milliseconds(value: float | None) -> str:
    """Three digits that matter.

    >>> milliseconds(0.0123), milliseconds(1.5), milliseconds(250.0), milliseconds(None)
    ('0.012', '1.50', '250', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    decimals = 3 - sum(value >= bound for bound in (1, 10, 100))
    return f"{value:.{decimals}f}"


def tables(experiment: Experiment, width: int) -> list[Table]:
    """Quality and speed; the best of each measure in bold. A narrow terminal does without some columns."""
    header, rows = quality_rows(experiment)
    lower = next(iter(experiment.scores.values())).lower_is_better
    best = {
        m: best_of([one.means[m] for one in experiment.scores.values()], lower=m in lower) for m in experiment.measures
    }
    goes = [i for i, title in enumerate(header) if title == "better/worse"]
    kept = fitting(header, rows, width, [*goes, *range(len(experiment.measures), 1, -1)])
    quality = plain_table([header[i] for i in kept])
    names = shortened(header, rows, kept, width)
    for short, row, (name, scores) in zip(names, rows, experiment.scores.items(), strict=True):
        sure = name in experiment.differences and experiment.differences[name].p_corrected < SURE
        cells = [cell(short)]
        for i in kept[1:]:
            title = header[i]
            leads = title in best and len(rows) > 1 and scores.means[title] == best[title]
            cells.append(Text(row[i], style="bold" if leads or (title == "p" and sure) else ""))
        quality.add_row(*cells)
    header, rows = speed_rows(experiment)
    goes = [header.index(title) for title in ("mean", "p90", "cold ms", "p99", "build s")]
    kept = fitting(header, rows, width, goes)
    speed = plain_table([header[i] for i in kept])
    for short, row in zip(shortened(header, rows, kept, width), rows, strict=True):
        speed.add_row(cell(short), *(Text(row[i]) for i in kept[1:]))
    return [quality, speed]


def strata_rows(experiment: Experiment, tag: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the mean of the first measure in each stratum, for each system."""
    strata = experiment.strata(tag)
    rows = [[value, str(n), *(shown(mean) for mean in means.values())] for value, (n, means) in strata.items()]
    return [f"{experiment.measures[0]} by {tag}", "n", *experiment.scores], rows


def markdown(experiment: Experiment, strata: Sequence[tuple[list[str], list[list[str]]]] = ()) -> str:
    """The report as a page of Markdown."""
    data = experiment.dataset
    first = next(iter(experiment.runs.values())).manifest
    lines = [
        f"# {safe(data.name)}",
        "",
        f"{len(data.documents):,} documents, {len(data.queries):,} queries. {safe(data.about)}".rstrip(),
        "",
        f"Convention {next(iter(experiment.scores.values())).convention}; k = {first['plan']['k']}, "
        f"{first['plan']['repeats']} repeat(s), {first['plan']['workers']} worker(s), "
        f"{first['plan']['warmup']} warm-up queries. "
        f"{first['machine']['processor']}, {first['machine']['cores']} cores, Python {first['python']}.",
        "",
        "## How good",
        "",
        *grid(*quality_rows(experiment)),
        "",
    ]
    if experiment.differences:
        lines += [
            f"`vs {experiment.baseline}`: difference of the mean {experiment.measures[0]}; p: paired t-test, "
            "Holm-corrected; queries on which the system is better and worse.",
            "",
        ]
    lines += [
        "## How fast",
        "",
        *grid(*speed_rows(experiment)),
        "",
        "Milliseconds; stages by their median; percentiles of the total over every answered query. "
        f"The harness itself took {first['harness_microseconds']:.0f} microseconds a query.",
        "",
    ]
    for header, rows in strata:
        lines += [f"## {safe(header[0])}", "", *grid(header, rows), ""]
    described = [
        [name, str(one.manifest["system"]["description"]), str(one.manifest["finished"])]
        for name, one in experiment.runs.items()
    ]
    lines += [
        "## What the systems are",
        "",
        *grid(["system", "description", "finished"], described, numbers=False),
        "",
    ]
    if experiment.notes:
        lines += ["## Notes", "", *(f"- {safe(note)}" for note in experiment.notes), ""]
    return "\n".join(lines)


def summary_csv(experiment: Experiment) -> str:
    """One row for each system and figure: `system,figure,value,n`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["system", "figure", "value", "n"])
    for name, scores in experiment.scores.items():
        for m in experiment.measures:
            writer.writerow([name, m, "" if math.isnan(scores.means[m]) else repr(scores.means[m]), scores.n[m]])
        gap = experiment.differences.get(name)
        if gap is not None:
            writer.writerow(
                [name, f"difference({experiment.measures[0]}, {experiment.baseline})", repr(gap.difference), gap.n]
            )
            writer.writerow([name, "p_corrected", repr(gap.p_corrected), gap.n])
        speed = experiment.speeds.get(name)
        for stage, one in (speed.stages if speed else {}).items():
            for figure in ("mean", "p50", "p90", "p95", "p99", "min", "max"):
                writer.writerow([name, f"{stage}_{figure}_ms", _cell(getattr(one, figure)), one.n])
        if speed is not None:
            about = experiment.runs[name].manifest
            writer.writerow([name, "qps", _cell(speed.qps), speed.asked])
            writer.writerow([name, "cold_ms", _cell(about.get("cold_ms")), 1])
            writer.writerow([name, "build_seconds", _cell(about.get("build_seconds")), 1])
            writer.writerow([name, "failed", speed.failed + speed.timed_out, speed.asked])
    return out.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(value)


def as_data(experiment: Experiment) -> dict[str, object]:
    """Everything as plain data, for JSON."""
    from dataclasses import asdict

    systems = {}
    for name, scores in experiment.scores.items():
        gap = experiment.differences.get(name)
        systems[name] = {
            "measures": {
                m: {"mean": None if math.isnan(scores.means[m]) else scores.means[m], "n": scores.n[m]}
                for m in experiment.measures
            },
            "difference": None if gap is None else figures(gap),
            "speed": asdict(experiment.speeds[name]) if name in experiment.speeds else None,
            "build_seconds": experiment.runs[name].manifest.get("build_seconds"),
            "cold_ms": experiment.runs[name].manifest.get("cold_ms"),
        }
    data: dict[str, object] = {
        "dataset": experiment.dataset.name,
        "convention": next(iter(experiment.scores.values())).convention,
        "baseline": experiment.baseline,
        "systems": systems,
        "notes": list(experiment.notes),
        "failures": {name: error.message for name, error in experiment.failures.items()},
        "folder": None if experiment.folder is None else str(experiment.folder),
    }
    return dict(without_nan(data))
