"""Render an overview as Markdown, with details in collapsed sections."""

from __future__ import annotations

import math
from itertools import islice

from ragauge.comparison.report import decided_by
from ragauge.comparison.report import markdown as comparisons_markdown
from ragauge.comparison.results import Overview
from ragauge.core.protocols import Result
from ragauge.core.run_dates import describe_answers
from ragauge.output.markdown import folded, grid, safe
from ragauge.output.numbers import count_noun, shown
from ragauge.output.report import markdown as accounts_markdown
from ragauge.reports.registry import account
from ragauge.reports.summary import verdict
from ragauge.reports.systems_tables import (
    TITLE,
    UNKNOWN,
    asked,
    failures,
    intervals_known,
    leading,
    manifest_of,
    mean_rows,
    quality_rows,
    resampled,
    speed_rows,
    strata_rows,
    timed_by,
    trials_rows,
    wavered_by,
    wavers,
)

FAILED = 5
"""Maximum number of failed queries shown per system."""
STARS = "`***` below 0.001, `**` below 0.01, `*` below 0.05"


def markdown(overview: Overview) -> str:
    """Render an overview as a Markdown page."""
    parts = [
        [f"# {safe(overview.title)}", "", safe(verdict(overview))],
        _good(overview),
        _fast(overview),
        _failed(overview),
        _means(overview),
        _chance(overview),
        _sure(overview),
        _over_k(overview),
        *(_strata(overview, tag) for tag in overview.strata),
        _audited(overview),
        *(_told(one) for one in overview.beside),
        _systems(overview),
        _circumstances(overview),
        folded("Notes", [f"- {safe(note)}" for note in overview.notes]) if overview.notes else [],
    ]
    return "\n".join(line for part in parts if part for line in (*part, ""))


def _told(one: Result) -> list[str]:
    """Render the report of another result, with headings one level lower."""
    lines = accounts_markdown([account(one)]).splitlines()
    return [f"#{line}" if line.startswith("#") else line for line in lines]


def _good(overview: Overview) -> list[str]:
    """Render means, best in bold, and differences from the baseline."""
    header, rows = quality_rows(overview, interval=True)
    best = [leading(overview, m) for m in overview.measures]
    strong = {
        (row, column + 1)
        for row, entry in enumerate(overview.entries.values())
        for column, measure in enumerate(overview.measures)
        if entry.means.get(measure, UNKNOWN).value == best[column]
    }
    over = f" over {count_noun(asked(overview), *overview.asked)}" if asked(overview) else ""
    of = f" of {overview.dataset}" if overview.dataset else ""
    by = f", convention {overview.convention}" if overview.convention else ""
    by += f", judged by {overview.judge}" if overview.judge else ""
    said = safe(f"Means{over}{of}{by}" + ("; the best of each measure in bold." if strong else "."))
    found = overview.compared
    if found is not None and overview.baseline is not None:
        confidence = f"{100 * found.method.confidence:g}%"
        told = f"vs {overview.baseline}: difference in {overview.first} with its {confidence} interval"
        said += f" {safe(told)}; p: {safe(decided_by(found))} ({STARS}); better/worse: on how many {overview.asked[1]}."
    dates = [f"{line[:1].upper()}{line[1:]}." for line in describe_answers(overview.answers)]
    return [*grid(header, rows, strong=strong), "", " ".join([said, *map(safe, dates)])]


def _fast(overview: Overview) -> list[str]:
    header, rows = speed_rows(overview, every_stage=True)
    said = "; ".join(timed_by(overview))
    return [*grid(header, rows), "", f"{said[:1].upper()}{said[1:]}."] if rows else []


def _means(overview: Overview) -> list[str]:
    if not intervals_known(overview):
        return []
    said = f"In brackets {100 * overview.confidence:g}% intervals of the means, over n {resampled(overview)}."
    return folded("How good, with intervals", [*grid(*mean_rows(overview)), "", said])


def _chance(overview: Overview) -> list[str]:
    if not wavers(overview):
        return []
    lines: list[str] = []
    for measure in overview.measures:
        found = trials_rows(overview, measure)
        lines += [*grid(found.header, found.rows), ""]
    return folded(TITLE, [*lines, *(f"- {safe(line)}" for line in wavered_by(overview))])


def _sure(overview: Overview) -> list[str]:
    if overview.compared is None:
        return []
    return folded("How sure, by each measure", [comparisons_markdown(overview.compared, 0).rstrip()])


def _over_k(overview: Overview) -> list[str]:
    lines: list[str] = []
    enough: list[list[str]] = []
    for curve in overview.curves:
        header = [f"{curve.measure} at k", *curve.values]
        rows = [[str(k), *(shown(values[i]) for values in curve.values.values())] for i, k in enumerate(curve.ks)]
        lines += [*grid(header, rows), ""]
        for name, one in curve.enough.items():
            value = next((row["value"] for row in one.table if row["k"] == one.k), math.nan)
            enough.append([name, curve.measure, str(one.k or "none"), shown(value), f"{one.tolerance:g}"])
    if enough:
        lines += [*grid(["system", "measure", "k that is enough", "value there", "tolerated loss"], enough), ""]
    return folded("Over k", lines[:-1]) if lines else []


def _strata(overview: Overview, tag: str) -> list[str]:
    (title, *others), rows = strata_rows(overview, tag)
    return folded(title, grid([tag, *others], rows))


def _failed(overview: Overview) -> list[str]:
    lines = [f"- {safe(name)} could not be run: {safe(why)}" for name, why in overview.failures.items()]
    for name, entry in overview.entries.items():
        if failures(entry):
            answers = f"{count_noun(failures(entry), 'answer')} failed"
            lines.append(f"- {safe(name)}: {answers}; each counts as an empty ranking")
        for query, why in islice(entry.failed.items(), FAILED):
            lines.append(f"  - {safe(query)}: {safe(why)}")
        if len(entry.failed) > FAILED:
            lines.append(f"  - and {count_noun(len(entry.failed) - FAILED, 'more query', 'more queries')}")
    return ["## What failed", "", *lines] if lines else []


def _audited(overview: Overview) -> list[str]:
    if overview.audit is None:
        return []
    lines = []
    for one in overview.audit.problems:
        said = [f"- **{safe(one.subject)}: {safe(one.what)}.** {safe(one.message)}."]
        said += [f"Effect: {safe(one.effect)}."] if one.effect else []
        lines.append(" ".join([*said, *([f"Do: {safe(one.remedy)}."] if one.remedy else [])]))
    left = [f"- not looked at: {safe(name)}, {safe(why)}" for name, why in overview.audit.skipped.items()]
    found = count_noun(len(lines), "problem") if lines else "no problem"
    return folded(f"What the audit found: {found}", [*(lines or ["No problem."]), *(["", *left] if left else [])])


def _systems(overview: Overview) -> list[str]:
    rows = []
    for name, entry in overview.entries.items():
        system = entry.manifest.get("system") or {}
        made = "" if entry.answered is None else entry.answered.made + ", reused" * entry.answered.reused
        rows.append([name, str(system.get("description", "")), made])
    if not any(row[1] or row[2] for row in rows):
        return []
    return folded("What the systems are", grid(["system", "description", "answers made"], rows, numbers=False))


def _circumstances(overview: Overview) -> list[str]:
    """Render the plan, machine, data hashes and versions to reproduce results."""
    about = manifest_of(overview)
    plan, machine = about.get("plan") or {}, about.get("machine") or {}
    size = [] if overview.documents_known is None else [count_noun(overview.documents_known, "document")]
    size += [count_noun(asked(overview), *overview.asked)] if asked(overview) else []
    planned = [f"k = {plan['k']}"] if "k" in plan else []
    words = {"repeats": ("repeat",), "workers": ("worker",), "warmup": ("warm-up query", "warm-up queries")}
    planned += [count_noun(plan[key], *word) for key, word in words.items() if isinstance(plan.get(key), int)]
    cores = f", {count_noun(machine['cores'], 'core')}" if isinstance(machine.get("cores"), int) else ""
    known = {
        "dataset": ": ".join(filter(None, [overview.dataset, ", ".join(size)])),
        "convention": overview.convention,
        "judge": overview.judge,
        "plan": ", ".join(planned),
        "machine": f"{machine['processor']}{cores}" if "processor" in machine else "",
        "Python": str(about.get("python") or ""),
    }
    hashes = {str(key): value for key, value in (about.get("dataset") or {}).items() if key.endswith("_hash")}
    told = {"judgments_hash": overview.judgments_hash, "origin": about.get("origin")}
    hashes |= {key: value for key, value in told.items() if value}
    rows = [[key, value] for key, value in known.items() if value]
    rows += [[key.replace("_", " "), str(value)] for key, value in hashes.items()]
    versions = ", ".join(f"{name} {version}" for name, version in (about.get("versions") or {}).items())
    rows += [["versions", versions]] if versions else []
    rows += [["put together", overview.made]] if overview.made else []
    return folded("To do it again", grid(["what", "which"], rows, numbers=False)) if rows else []
