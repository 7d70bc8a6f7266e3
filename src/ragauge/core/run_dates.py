"""Dates of runs: when the rankings of a run were retrieved, and whether a command reused them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_NAMED_RUNS = 5
"""Maximum number of runs whose dates are listed."""


class RunDate(NamedTuple):
    """Date on which the rankings of a run were retrieved, and whether the last command that ran it reused them."""

    made: str
    """ISO 8601 date of the oldest rankings."""
    reused: bool = False

    @classmethod
    def find(cls, *manifests: Mapping[str, Any]) -> RunDate | None:
        """Find the date of the oldest rankings in manifests of runs.

        Return None if no manifest has a date.

        >>> RunDate.find({"made": "2026-11-18T03:46:18+00:00", "reused": True}, {"finished": "2026-11-19"})
        RunDate(made='2026-11-18T03:46:18+00:00', reused=True)
        """
        dates = [str(manifest.get("made") or manifest.get("finished") or "") for manifest in manifests]
        known_dates = [date for date in dates if date]
        return (
            cls(min(known_dates), any(bool(manifest.get("reused")) for manifest in manifests)) if known_dates else None
        )


def describe_run_dates(run_dates: Mapping[str, RunDate]) -> list[str]:
    """Describe when the rankings of each system were retrieved, and which were reused.

    Return an empty list if no date is known.

    >>> describe_run_dates({"mine": RunDate("2026-11-18T03:46:18+00:00"), "old": RunDate("2026-11-10", True)})
    ['rankings retrieved: mine 2026-11-18T03:46:18+00:00; old 2026-11-10 (reused)']
    """
    dates = [f"{name} {date.made}" + " (reused)" * date.reused for name, date in run_dates.items()]
    more = len(dates) - MAX_NAMED_RUNS
    listed = "; ".join(dates[:MAX_NAMED_RUNS]) + (f" and {more} more" if more > 0 else "")
    return [" ".join(f"rankings retrieved: {listed}".split())] if dates else []
