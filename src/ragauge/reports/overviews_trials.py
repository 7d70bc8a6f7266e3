"""Build tables of how much the trials of a system differ."""

from __future__ import annotations

import math

from ragauge.overviews import Entry, Overview, Variation
from ragauge.reports.tables import Rows, shown

SAME_RANKINGS, SAME_VALUES = "same rankings", "same values"
SHARE = 0.1
"""Maximum share of trials in the variance of a mean for the number of trials to be sufficient."""
TITLE = "What chance does"


def wavers(overview: Overview) -> bool:
    """Return whether any system has trials that differ."""
    return any(one.unstable for entry in overview.entries.values() for one in entry.variation.values())


def trials_rows(overview: Overview, measure: str) -> Rows:
    """Build rows of variance components for every system with several trials.

    They also contain the range of the trials' means and the number of trials that is sufficient.
    """
    header = [f"{measure} over trials", "trials", "least", "most", "unstable"]
    header += [f"of {overview.asked[1]}", "of trials", "rest", "error", "by chance", "enough"]
    rows = []
    for name, entry in overview.entries.items():
        found, often = entry.variation.get(measure), _asked(entry)
        if found is not None and found.unstable:
            rows.append([name, str(found.trials), *_figures(entry, measure, found)])
        elif often > 1:
            mean = shown(entry.means[measure].value, measure) if measure in entry.means else "-"
            alike = SAME_RANKINGS if len(entry.scores) == 1 else SAME_VALUES
            rows.append([name, str(often), mean, mean, alike, *[""] * (len(header) - 5)])
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
    """Return the number of trials per query.

    A run with identical rankings is scored only once.
    """
    planned = (entry.manifest.get("plan") or {}).get("repeats")
    return max(len(entry.scores), planned if isinstance(planned, int) else 0)


def _percent(share: float) -> str:
    """Format a share in percent.

    >>> _percent(0.123), _percent(0.004), _percent(0.0), _percent(math.nan)
    ('12%', '<1%', '0%', '-')
    """
    if math.isnan(share):
        return "-"
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def wavered_by(overview: Overview) -> list[str]:
    """Describe the values of the table and their limits; empty if no trials differ."""
    return [*legend(overview), *lacking(overview)] if wavers(overview) else []


def legend(overview: Overview) -> list[str]:
    """Describe the columns of the table."""
    one, many = overview.asked
    below = any(found.below for entry in overview.entries.values() for found in entry.variation.values())
    return [
        "over trials: least and most: the lowest and the highest mean of a trial; "
        f"unstable: {many} whose value is not the same in every trial",
        f"of {many}, of trials, rest: where values vary: from {one} to {one}, from trial to trial for all {many} "
        f"alike, or for each {one} by itself" + " (an estimate below 0 counts 0)" * below,
        "error: the standard error of the mean; by chance: how much of its square goes away with endless trials; "
        f"enough: the trials after which that is {SHARE:.0%} or less; `ragauge reliability` says pass@k",
    ]


def lacking(overview: Overview) -> list[str]:
    """Describe how many queries lack a value in some trial, if any."""
    every = [found.left_out for entry in overview.entries.values() for found in entry.variation.values()]
    left = max(every, default=0)
    return [f"up to {left:,} {overview.asked[1]} have no value in some trial, and are left out there"] if left else []
