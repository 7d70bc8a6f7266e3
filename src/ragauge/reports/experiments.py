"""An experiment on a terminal, as Markdown and as CSV: how good, how fast, and how sure."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ragauge.outcomes import Experiment
from ragauge.reports.tables import one_line, plain_table, shown
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
                "-" if about.get("build_seconds") is None else f"{about['build_seconds']:.2f}",
            ]
        )
    return header, rows


def p_value(p: float) -> str:
    """Three decimals, and no smaller than what can be told.

    >>> p_value(0.0004), p_value(0.03)
    ('<0.001', '0.030')
    """
    return "-" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


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
    best = {m: max(one.means[m] for one in experiment.scores.values()) for m in experiment.measures}
    kept = _fitting(header, rows, width, ("better/worse", *reversed(experiment.measures[1:])))
    quality = plain_table([header[i] for i in kept])
    names = _shortened(header, rows, kept, width)
    for short, row, (name, scores) in zip(names, rows, experiment.scores.items(), strict=True):
        sure = name in experiment.differences and experiment.differences[name].p_adjusted < SURE
        cells = [Text(short)]
        for i in kept[1:]:
            title = header[i]
            leads = title in best and len(rows) > 1 and scores.means[title] == best[title]
            cells.append(Text(row[i], style="bold" if leads or (title == "p" and sure) else ""))
        quality.add_row(*cells)
    header, rows = speed_rows(experiment)
    kept = _fitting(header, rows, width, ("mean", "p90", "cold ms", "p99", "build s"))
    speed = plain_table([header[i] for i in kept])
    for short, row in zip(_shortened(header, rows, kept, width), rows, strict=True):
        speed.add_row(Text(short), *(Text(row[i]) for i in kept[1:]))
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


def _shortened(header: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int], width: int) -> list[str]:
    """The names of the first column, cut in the middle where numbers would not fit beside them."""
    others = sum(max(len(header[i]), *(len(row[i]) for row in rows)) + 2 for i in kept if i)
    room = max(12, width - others)
    return [
        name if len(name) <= room else f"{name[: (room - 1) // 2]}…{name[-((room - 2) // 2) :]}"
        for name in (row[0] for row in rows)
    ]


def strata_rows(experiment: Experiment, tag: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the mean of the first measure in each stratum, for each system."""
    strata = experiment.strata(tag)
    rows = [[value, str(n), *(shown(mean) for mean in means.values())] for value, (n, means) in strata.items()]
    return [f"{experiment.measures[0]} by {tag}", "n", *experiment.scores], rows


def plain(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """Header and rows as a table."""
    kept = list(range(len(header)))
    table = plain_table(header)
    for name, row in zip(_shortened(header, rows, kept, width), rows, strict=True):
        table.add_row(Text(name), *map(Text, row[1:]))
    return table


def markdown(experiment: Experiment, strata: Sequence[tuple[list[str], list[list[str]]]] = ()) -> str:
    """The report as a page of Markdown."""
    data = experiment.dataset
    first = next(iter(experiment.runs.values())).manifest
    lines = [
        f"# {_safe(data.name)}",
        "",
        f"{len(data.documents):,} documents, {len(data.queries):,} queries. {_safe(data.about)}".rstrip(),
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
    for header, rows in strata:
        lines += [f"## {_safe(header[0])}", "", *_grid(header, rows), ""]
    described = [
        [name, str(one.manifest["system"]["description"]), str(one.manifest["finished"])]
        for name, one in experiment.runs.items()
    ]
    lines += [
        "## What the systems are",
        "",
        *_grid(["system", "description", "finished"], described, numbers=False),
        "",
    ]
    if experiment.notes:
        lines += ["## Notes", "", *(f"- {_safe(note)}" for note in experiment.notes), ""]
    return "\n".join(lines)


def _safe(text: str) -> str:
    """A text as text: no line breaks, no control characters, nothing that Markdown or HTML would act on."""
    return re.sub(r"([\\`*\[\]|#!])", r"\\\1", one_line(text).replace("&", "&amp;").replace("<", "&lt;"))


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_safe(cell) for cell in cells) + " |"

    return [line(header), "|---|" + ("---:|" if numbers else "---|") * (len(header) - 1), *map(line, rows)]


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
            "difference": None if gap is None else asdict(gap),
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
    return dict(_without_nan(data))


def _without_nan(value: Any) -> Any:
    """JSON has no word for what is not a number; null says that there is none."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
