"""An experiment on a terminal, as Markdown and as CSV: how good, how fast, and how sure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ragauge.outcomes import Experiment
from ragauge.reports.tables import plain_table, shown
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
            row += [f"{gap.mean:+.4f}", p_value(gap.p_adjusted), f"{gap.better}/{gap.worse}"]
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
                f"{about.get('build_seconds') or 0:.2f}",
            ]
        )
    return header, rows


def p_value(p: float) -> str:
    """Three decimals, and no smaller than what can be told.

    >>> p_value(0.0004), p_value(0.03)
    ('<0.001', '0.030')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def milliseconds(value: float | None) -> str:
    """Three digits that matter.

    >>> milliseconds(0.0123), milliseconds(1.5), milliseconds(250.0), milliseconds(None)
    ('0.012', '1.50', '250', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    return (
        f"{value:.3f}"
        if value < 1
        else f"{value:.2f}"
        if value < 10
        else f"{value:.1f}"
        if value < 100
        else f"{value:.0f}"
    )


def tables(experiment: Experiment, width: int) -> list[Table]:
    """Quality and speed; the best of each measure in bold. A narrow terminal does without some columns."""
    header, rows = quality_rows(experiment)
    best = {m: max(one.means[m] for one in experiment.scores.values()) for m in experiment.measures}
    kept = _fitting(header, rows, width, ("better/worse", *reversed(experiment.measures[1:])))
    quality = plain_table([header[i] for i in kept])
    for row, (name, scores) in zip(rows, experiment.scores.items(), strict=True):
        sure = name in experiment.differences and experiment.differences[name].p_adjusted < SURE
        cells = []
        for i in kept:
            title = header[i]
            leads = title in best and len(rows) > 1 and scores.means[title] == best[title]
            cells.append(Text(row[i], style="bold" if leads or (title == "p" and sure) else ""))
        quality.add_row(*cells)
    header, rows = speed_rows(experiment)
    kept = _fitting(header, rows, width, ("mean", "p90", "cold ms", "p99", "build s"))
    speed = plain_table([header[i] for i in kept])
    for row in rows:
        speed.add_row(*(Text(row[i]) for i in kept))
    return [quality, speed]


def _fitting(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, goes: Sequence[str]) -> list[int]:
    """The columns that fit; of those that may go, one after the other does. Markdown and CSV have them all."""
    wide = {i: max(len(title), *(len(row[i]) for row in rows)) + 2 for i, title in enumerate(header)}
    for title in goes:
        if sum(wide.values()) - 2 <= width:
            break
        if title in header:
            wide.pop(header.index(title))
    return list(wide)


def markdown(experiment: Experiment) -> str:
    """The report as a page of Markdown."""
    data = experiment.dataset
    first = next(iter(experiment.runs.values())).manifest
    lines = [
        f"# {data.name}",
        "",
        f"{len(data.documents):,} documents, {len(data.queries):,} queries. {data.about}".rstrip(),
        "",
        f"Convention {next(iter(experiment.scores.values())).convention}; k = {first['plan']['k']}, "
        f"{first['plan']['repeats']} repeat(s), {first['plan']['workers']} worker(s), "
        f"{first['plan']['warmup']} warm-up queries. "
        f"{first['machine']['processor']}, {first['machine']['cores']} cores, Python {first['python']}.",
        "",
        "## How good",
        "",
        *_grid(*quality_rows(experiment)),
        "",
    ]
    if experiment.differences:
        lines += [
            f"`vs {experiment.baseline}`: difference of the mean {experiment.measures[0]}; p: paired randomization "
            "test, Holm-corrected; queries on which the system is better and worse.",
            "",
        ]
    lines += [
        "## How fast",
        "",
        *_grid(*speed_rows(experiment)),
        "",
        "Milliseconds; stages by their median; percentiles of the total over every answered query. "
        f"The harness itself took {first['harness_microseconds']:.0f} microseconds a query.",
        "",
    ]
    if experiment.notes:
        lines += ["## Notes", "", *(f"- {note}" for note in experiment.notes), ""]
    return "\n".join(lines)


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(header), "|---|" + "---:|" * (len(header) - 1), *map(line, rows)]


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
                [name, f"difference({experiment.measures[0]}, {experiment.baseline})", repr(gap.mean), gap.n]
            )
            writer.writerow([name, "p_adjusted", repr(gap.p_adjusted), gap.n])
        speed = experiment.speeds.get(name)
        for stage, one in (speed.stages if speed else {}).items():
            for figure in ("mean", "p50", "p90", "p95", "p99", "min", "max"):
                writer.writerow([name, f"{stage}_{figure}_ms", repr(getattr(one, figure)), one.n])
        if speed is not None:
            writer.writerow([name, "qps", repr(speed.qps), speed.asked])
            writer.writerow([name, "failed", speed.failed + speed.timed_out, speed.asked])
    return out.getvalue()


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
            "difference": None if gap is None else asdict(gap),
            "speed": asdict(experiment.speeds[name]) if name in experiment.speeds else None,
            "build_seconds": experiment.runs[name].manifest.get("build_seconds"),
            "cold_ms": experiment.runs[name].manifest.get("cold_ms"),
        }
    return {
        "dataset": experiment.dataset.name,
        "convention": next(iter(experiment.scores.values())).convention,
        "baseline": experiment.baseline,
        "systems": systems,
        "notes": list(experiment.notes),
        "folder": None if experiment.folder is None else str(experiment.folder),
    }
