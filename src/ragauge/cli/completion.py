"""Shell completion of option values: measures, conventions, formats and plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

CHOICES: Mapping[str, str] = {
    "--test": "t wilcoxon sign randomisation",
    "--correction": "holm bonferroni bh none",
    "--family": "measure all",
    "--interval": "bca percentile",
    "--metric": "l2 cosine ip",
    "--truth": "auto numpy faiss torch",
    "--verdict-format": "json tokens",
    "--novelty": "mean least lexical",
    "--part": "whole text title",
    "--kind": "qrels run samples",
    "--split": "test train dev",
    "--format": "html json csv markdown latex",
}
"""Values of options with a fixed set of them."""
COMMAND_CHOICES: Mapping[tuple[str, str], str] = {("evaluate", "--format"): "html json csv markdown latex trec_eval"}
"""Values of options that differ from CHOICES in a command."""
PLUGIN_FAMILIES: Mapping[str, str] = {
    "--system": "retrievers",
    "--embedder": "embedders",
    "--store": "stores",
    "--tokenizer": "tokenizers",
}
"""Families of the plug-ins that an option names."""


def find_completer(command: str, option: str) -> Callable[[Any, str], list[Any]] | None:
    """Find the function that completes the values of an option or argument; None if it is a path, number or text."""
    finder = _find_values(command, option)
    return None if finder is None else partial(_complete_value, finder)


def _find_values(command: str, option: str) -> Callable[[], Iterable[str]] | None:
    choices = COMMAND_CHOICES.get((command, option), CHOICES.get(option))
    if (command, option) in (("fuse", "--format"), ("convert", "--format")):
        return _list_input_formats
    if choices is not None:
        return choices.split
    if option in PLUGIN_FAMILIES:
        family = "document_stores" if command == "stress" and option == "--store" else PLUGIN_FAMILIES[option]
        return partial(_list_plugins, family)
    finders: Mapping[str, Callable[[], Iterable[str]]] = {
        "--measure": _list_answer_measures if command in ("judge", "calibrate") else _list_measures,
        "--convention": _list_conventions,
        "--qrels-format": _list_input_formats,
        "--run-format": _list_input_formats,
        "--from": _list_input_formats,
        "--method": _list_fusion_methods,
        "--norm": _list_normalisations,
        "--check": _list_audit_checks,
        "--dataset": _list_datasets,
        "dataset": _list_datasets,
        "what": _list_datasets,
        "name": {"datasets": _list_datasets, "measures": _list_measure_names}.get(command, _list_all_plugins),
    }
    return finders.get(option)


def _complete_value(find_values: Callable[[], Iterable[str]], context: object, incomplete: str) -> list[Any]:
    """Complete the last value of a list separated by commas."""
    from typer._click.shell_completion import CompletionItem  # Typer has its own copy of click

    del context
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{value}") for value in find_values() if value.startswith(last)]


def _list_measures() -> list[str]:
    from ragauge.measures.registry import MEASURE_REGISTRY

    return [f"{spec.name}@10" if spec.cutoff.startswith("rank") else spec.name for spec in MEASURE_REGISTRY.values()]


def _list_measure_names() -> list[str]:
    from ragauge.measures.registry import MEASURE_REGISTRY

    return [*MEASURE_REGISTRY, *_list_answer_measures()]


def _list_answer_measures() -> list[str]:
    from ragauge.measures.answers import ANSWER_MEASURES

    return list(ANSWER_MEASURES)


def _list_conventions() -> list[str]:
    from ragauge.measures.conventions import PRESETS

    return list(PRESETS)


def _list_input_formats() -> list[str]:
    from ragauge.files.readers import FORMATS

    return list(FORMATS)


def _list_fusion_methods() -> list[str]:
    from ragauge.fusion.methods import METHODS

    return list(METHODS)


def _list_normalisations() -> list[str]:
    from ragauge.fusion.normalisation import NORMALISATIONS

    return list(NORMALISATIONS)


def _list_audit_checks() -> list[str]:
    from ragauge.audits.checks import AUDIT_CHECKS

    return list(AUDIT_CHECKS)


def _list_datasets() -> list[str]:
    from ragauge.datasets import list_datasets

    return [str(row[0]) for row in list_datasets()]


def _list_plugins(family: str) -> list[str]:
    from ragauge.core.plugins import plugin_names

    return list(plugin_names(family))


def _list_all_plugins() -> list[str]:
    from ragauge.core.plugins import BUILTIN_PLUGINS

    return [name for family in BUILTIN_PLUGINS for name in _list_plugins(family)]
