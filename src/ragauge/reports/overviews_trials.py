"""What chance does: how much the trials of a system differ, on a terminal, as Markdown and on a page."""

from __future__ import annotations

import math

from ragauge.overviews import Entry, Overview, Variation
from ragauge.reports.tables import Rows, shown

ALIKE = "always alike"
SHARE = 0.1
"""Of the variance of a mean: where trials add no more than this, they are enough."""
TITLE = "What chance does"


def wavers(overview: Overview) -> bool:
    """Whether any system has trials that differ."""
    return any(one.unstable for entry in overview.entries.values() for one in entry.variation.values())


def trials_rows(overview: Overview, measure: str) -> Rows:
    """Every system that was asked several times: its trials' means, where its values vary, how many trials it takes."""
    header = [f"{measure} over trials", "trials", "least", "most", "unstable"]
    header += [f"of {overview.asked[1]}", "of trials", "rest", "error", "by chance", "enough"]
    rows = []
    for name, entry in overview.entries.items():
        found, often = entry.variation.get(measure), _asked(entry)
        if found is not None and found.unstable:
            rows.append([name, str(found.trials), *_figures(entry, measure, found)])
        elif often > 1:
            mean = shown(entry.means[measure].value, measure) if measure in entry.means else "-"
            rows.append([name, str(often), mean, mean, ALIKE, *[""] * (len(header) - 5)])
    return Rows("", header, rows, goes=(3, 2, 7, 6, 5))


def _figures(entry: Entry, measure: str, found: Variation) -> list[str]:
    means = [one.means[measure] for one in entry.scores if measure in one.means]
    known = [one for one in means if not math.isnan(one)] or [math.nan]
    enough = found.enough(SHARE)
    return [
        *(shown(end, measure) for end in (min(known), max(known))),
        _percent(found.unstable / found.n),
        *map(_percent, found.shares),
        f"{found.error:.4f}",
        _percent(found.by_trials),
        "-" if enough is None else f"{enough:,}",
    ]


def _asked(entry: Entry) -> int:
    """How often every query was asked: a run whose rankings are always the same is scored but once."""
    planned = (entry.manifest.get("plan") or {}).get("repeats")
    return max(len(entry.scores), planned if isinstance(planned, int) else 0)


def _percent(share: float) -> str:
    """A share in percent.

    >>> _percent(0.123), _percent(0.004), _percent(0.0), _percent(math.nan)
    ('12%', '<1%', '0%', '-')
    """
    if math.isnan(share):
        return "-"
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def wavered_by(overview: Overview) -> list[str]:
    """What the figures are, where there are trials that differ."""
    if not wavers(overview):
        return []
    every = [one for entry in overview.entries.values() for one in entry.variation.values()]
    below = any(one.below for one in every)
    left = max(one.left_out for one in every)
    many = overview.asked[1]
    return [
        f"over trials: the least and the most that a trial has as its mean; unstable: {many} whose value is not always "
        f"the same; of {many}, of trials, rest: where the variance of a value lies, between {many}, between trials, or "
        "in the two together" + "; estimates below 0 count 0" * below,
        "error: the standard error of the mean over both; by chance: the part of its square that more trials would "
        f"take away; enough: so many trials make that no more than {SHARE:.0%}; `ragauge reliability` says pass@k",
        *([f"up to {left:,} {many} have no value in some trial, and are left out there"] if left else []),
    ]
