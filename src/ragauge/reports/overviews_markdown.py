"""An overview as a page of Markdown: everything that the terminal has no room for."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from ragauge.overviews import Overview
from ragauge.reports.comparisons import decided_by
from ragauge.reports.comparisons import markdown as comparisons_markdown
from ragauge.reports.markdown import grid, safe
from ragauge.reports.overviews import failures, quality_rows, speed_rows, strata_rows
from ragauge.reports.tables import shown
from ragauge.reports.verdicts import verdict

FAILED = 5
"""How many failed queries of a system are shown."""
SECTION = "## "


def markdown(overview: Overview) -> str:
    """The report as a page."""
    parts = [
        [f"# {safe(overview.title)}", "", safe(verdict(overview)), "", *_setting(overview)],
        _good(overview),
        _sure(overview),
        _fast(overview),
        _over_k(overview),
        *(_strata(overview, tag) for tag in overview.strata),
        _failed(overview),
        _audited(overview),
        _systems(overview),
        _circumstances(overview),
        [f"{SECTION}Notes", "", *(f"- {safe(note)}" for note in overview.notes)] if overview.notes else [],
    ]
    return "\n".join(line for part in parts if part for line in (*part, ""))


def _setting(overview: Overview) -> list[str]:
    about = manifest_of(overview)
    plan, machine = about.get("plan") or {}, about.get("machine") or {}
    size = "" if overview.documents_known is None else f"{overview.documents_known:,} documents, "
    said = [
        f"{overview.dataset}: {size}{asked(overview):,} queries"
        if overview.dataset
        else f"{asked(overview):,} queries",
        f"convention {overview.convention}" if overview.convention else "",
        f"k = {plan['k']}" if "k" in plan else "",
        f"{plan['repeats']} repeat(s), {plan['workers']} worker(s)" if {"repeats", "workers"} <= set(plan) else "",
        f"{plan['warmup']} warm-up queries" if "warmup" in plan else "",
        f"{machine['processor']}, {machine.get('cores')} cores" if "processor" in machine else "",
        f"Python {about['python']}" if "python" in about else "",
    ]
    return [safe("; ".join(filter(None, said)) + ".")]


def manifest_of(overview: Overview) -> Mapping[str, Any]:
    """The circumstances of the first run that knows them."""
    return next((entry.manifest for entry in overview.entries.values() if entry.manifest), {})


def asked(overview: Overview) -> int:
    """How many queries there are."""
    scored = {query for entry in overview.entries.values() for one in entry.scores for query in one.queries}
    if scored:
        return len(scored)
    counts = [mean.n for entry in overview.entries.values() for mean in entry.means.values()]
    return max(counts, default=len(overview.queries))


def _good(overview: Overview) -> list[str]:
    lines = [f"{SECTION}How good", "", *grid(*quality_rows(overview, intervals=True)), ""]
    said = [f"Means over n queries; in brackets {100 * overview.confidence:g}% intervals, where they are known."]
    if overview.compared is not None and overview.baseline is not None:
        said.append(
            f"vs {overview.baseline}: difference of the mean {overview.first}; p: {decided_by(overview.compared)} "
            "(*** below 0.001, ** 0.01, * 0.05); queries on which the system is better and worse."
        )
    return [*lines, safe(" ".join(said))]


def _sure(overview: Overview) -> list[str]:
    if overview.compared is None:
        return []
    return [f"{SECTION}How sure", "", comparisons_markdown(overview.compared, 0).rstrip()]


def _fast(overview: Overview) -> list[str]:
    header, rows = speed_rows(overview, every_stage=True)
    if not rows:
        return []
    harness = manifest_of(overview).get("harness_microseconds")
    told = "" if harness is None else f" The harness itself took {harness:.0f} microseconds a query."
    said = "Milliseconds; stages by their median; percentiles of the total over every answered query."
    return [f"{SECTION}How fast", "", *grid(header, rows), "", said + told]


def _over_k(overview: Overview) -> list[str]:
    lines: list[str] = []
    for curve in overview.curves:
        header = [f"{curve.measure} at k", *curve.values]
        rows = [[str(k), *(shown(values[i]) for values in curve.values.values())] for i, k in enumerate(curve.ks)]
        lines += ["", *grid(header, rows)]
        lines += ["", *(f"- {safe(f'{name}: {advice}')}" for name, advice in curve.enough.items())]
    return [f"{SECTION}Over k", *lines] if lines else []


def _strata(overview: Overview, tag: str) -> list[str]:
    (title, *others), rows = strata_rows(overview, tag)
    return [f"{SECTION}{safe(title)}", "", *grid([tag, *others], rows)]


def _failed(overview: Overview) -> list[str]:
    lines = [f"- {safe(name)} could not be run: {safe(why)}" for name, why in overview.failures.items()]
    for name, entry in overview.entries.items():
        if failures(entry):
            lines.append(f"- {safe(name)}: {failures(entry):,} answers failed; each counts as an empty ranking")
        for query, why in islice(entry.failed.items(), FAILED):
            lines.append(f"  - {safe(query)}: {safe(why)}")
        if len(entry.failed) > FAILED:
            lines.append(f"  - and {len(entry.failed) - FAILED:,} more queries")
    return [f"{SECTION}What failed", "", *lines] if lines else []


def _audited(overview: Overview) -> list[str]:
    if overview.audit is None:
        return []
    lines = []
    for one in overview.audit.problems:
        said = [f"- **{safe(one.subject)}: {safe(one.what)}.** {safe(one.message)}."]
        said += [f"Effect: {safe(one.effect)}."] if one.effect else []
        lines.append(" ".join([*said, *([f"Do: {safe(one.remedy)}."] if one.remedy else [])]))
    left = [f"- not looked at: {safe(name)}, {safe(why)}" for name, why in overview.audit.skipped.items()]
    return [f"{SECTION}What the audit found", "", *(lines or ["No problem."]), *(["", *left] if left else [])]


def _systems(overview: Overview) -> list[str]:
    rows = []
    for name, entry in overview.entries.items():
        system = entry.manifest.get("system") or {}
        rows.append([name, str(system.get("description", "")), str(entry.manifest.get("finished", ""))])
    if not any(row[1] or row[2] for row in rows):
        return []
    return [f"{SECTION}What the systems are", "", *grid(["system", "description", "finished"], rows, numbers=False)]


def _circumstances(overview: Overview) -> list[str]:
    """What it takes to do it again: hashes of the data, and versions."""
    about = manifest_of(overview)
    data = {str(key): value for key, value in (about.get("dataset") or {}).items() if key.endswith("_hash")}
    data |= {key: about[key] for key in ("judgments_hash", "origin") if about.get(key)}
    rows = [[key.replace("_", " "), str(value)] for key, value in data.items()]
    versions = ", ".join(f"{name} {version}" for name, version in (about.get("versions") or {}).items())
    rows += [["versions", versions]] if versions else []
    rows += [["put together", overview.made]] if overview.made else []
    return [f"{SECTION}To do it again", "", *grid(["what", "which"], rows, numbers=False)] if rows else []
