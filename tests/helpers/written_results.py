"""Results as the texts that commands write."""

from __future__ import annotations

from ragauge.reports.registry import find_formats


def format_results(results, name: str) -> str:
    """Return one or several results in the named format."""
    several = list(results) if isinstance(results, list | tuple) else [results]
    return find_formats(type(several[0]))[name].write(several)
