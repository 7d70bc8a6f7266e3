"""Results as the texts that commands write."""

from __future__ import annotations

from ragauge.reports.registry import find_formats


def format_results(results, name: str) -> str:
    """Return one or several results in the named format."""
    result_list = list(results) if isinstance(results, list | tuple) else [results]
    return find_formats(type(result_list[0]))[name].write(result_list)
