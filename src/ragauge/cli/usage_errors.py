"""Errors of the command line parser as one sentence with a hint, like all other errors."""

from __future__ import annotations

import re
from typing import Any

from ragauge.cli.command_help import find_examples
from ragauge.core.arguments import OTHER_NAMES
from ragauge.core.errors import BadInput, add_suggestion, suggest_name

VALUE_NAMES = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
"""Names of types by a word of the parser's message."""


def describe_usage_error(error: Any) -> BadInput:
    """Describe an error of the parser, given as one of the exception classes of Typer."""
    path = "ragauge" if error.ctx is None else str(error.ctx.command_path)
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return _describe_unknown_option(error, path)
    if kind == "MissingParameter":
        return _describe_missing_parameter(error)
    if kind == "BadParameter" and error.param is not None:
        return _describe_bad_value(error, path)
    message = str(error.message).rstrip(".")
    return BadInput(message[:1].lower() + message[1:], hint=f"list all options with `{path} --help`")


def _describe_unknown_option(error: Any, path: str) -> BadInput:
    spellings = [
        name for parameter in error.ctx.command.params for name in (*parameter.opts, *parameter.secondary_opts)
    ]
    own_name = OTHER_NAMES.get(error.option_name.lstrip("-").replace("-", "_"))
    if (own_name == "k" or error.option_name == "-k") and "-k" not in spellings and "--measure" in spellings:
        return BadInput(f"unknown option {error.option_name}", hint="a cutoff is part of a measure: `-m ndcg@10`")
    option = {"k": "-k", "measures": "--measure"}.get(own_name or "")
    if option in spellings:
        return BadInput(f"unknown option {error.option_name}", hint=f"use `{option}`")
    suggestion = suggest_name(error.option_name, [name for name in spellings if name.startswith("-")])
    hint = add_suggestion(suggestion, f"list all options with `{path} --help`")
    return BadInput(f"unknown option {error.option_name}", hint=hint)


def _describe_missing_parameter(error: Any) -> BadInput:
    if error.param.param_type_name == "option":
        name = _name_parameter(error.param)
        return BadInput(f"missing option {name}", hint=f"add `{name} {error.param.metavar}`")
    examples = find_examples(error.ctx.command)
    hint = f"for example: `{examples[0]}`" if examples else f"see `{error.ctx.command_path} --help`"
    return BadInput(f"missing {_name_parameter(error.param)}", hint=hint)


def _describe_bad_value(error: Any, path: str) -> BadInput:
    message = str(error.message).rstrip(".")
    expected = next((name for word, name in VALUE_NAMES.items() if f"valid {word}" in message), None)
    hint = f"see `{path} --help`"
    if expected is None:
        return BadInput(f"{_name_parameter(error.param)}: {message[:1].lower()}{message[1:]}", hint=hint)
    value = re.match(r"'(.*)' is not a valid ", message, re.S)
    got = f", got `{value[1]}`" if value else ""
    return BadInput(f"{_name_parameter(error.param)} must be {expected}{got}", hint=hint)


def _name_parameter(parameter: Any) -> str:
    """Name an option by its longest spelling, and an argument as the usage line does."""
    if parameter.param_type_name == "argument":
        return f"argument {parameter.metavar or str(parameter.name).upper()}"
    return str(max(parameter.opts, key=len))
