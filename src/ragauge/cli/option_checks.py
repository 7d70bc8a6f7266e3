"""Checks of command-line options against each other: an option without effect raises BadInput before any work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import typer

from ragauge.core.errors import BadInput
from ragauge.core.plugins import check_installed

MODEL_JUDGE_OPTIONS = (
    *("chat_options", "workers", "timeout", "retries", "max_calls", "max_cost", "prices", "token_price"),
    *("verdict_format", "retry_unscored", "replicate"),
)
"""Options of a judge that calls a model."""


def check_output_libraries(files: Iterable[str], charts: str | None) -> None:
    """Check that the libraries for HTML reports and charts are installed, if needed."""
    page = any(file.lower().endswith((".html", ".htm")) for file in files)
    needed = {"page": page, "chart": charts is not None}
    check_installed(("outputs", output) for output, is_needed in needed.items() if is_needed)


def given_options(context: typer.Context) -> dict[str, str]:
    """Return the options on the command line by parameter name.

    The values are their longest spellings (`--baseline`), or that of the negative form (`--no-audit`) if given.
    """
    spellings = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.param_type_name == "option" and source is not None and source.name != "DEFAULT":
            is_negated = parameter.secondary_opts and context.params.get(str(parameter.name)) is False
            spellings[str(parameter.name)] = max(parameter.secondary_opts if is_negated else parameter.opts, key=len)
    return spellings


def allow_only_options(
    context: typer.Context, allowed: Iterable[str], situation: str, *, hint: str | None = None
) -> None:
    """Raise BadInput for every option that does not apply to `what`.

    Options are given by parameter name.
    """
    allowed_names = set(allowed)
    refused = [spelling for name, spelling in given_options(context).items() if name not in allowed_names]
    if refused:
        spellings = {parameter.name: max(parameter.opts, key=len) for parameter in context.command.params}
        expected = ", ".join(spellings[name] for name in spellings if name in allowed_names) or "no other option"
        raise BadInput(
            f"{_join_option_names(refused)} {'does' if len(refused) == 1 else 'do'} not apply to {situation}; expected "
            f"{expected}, "
            f"got {' '.join(refused)}",
            hint=hint or f"remove {_join_option_names(refused)}",
        )


def refuse_options(context: typer.Context, options: Iterable[str], situation: str, *, hint: str | None = None) -> None:
    """Raise BadInput for the given options that have no effect on `what`.

    Options are given by parameter name.
    """
    given_spellings = given_options(context)
    refused = [given_spellings[name] for name in options if name in given_spellings]
    if refused:
        raise BadInput(
            f"{_join_option_names(refused)} {'has' if len(refused) == 1 else 'have'} no effect {situation}",
            hint=hint or f"remove {_join_option_names(refused)}",
        )


def require_any_option(context: typer.Context, needs: Mapping[str, Iterable[str]]) -> None:
    """Raise BadInput for an option without any of those it depends on.

    Options are given by parameter name.
    """
    given_spellings = given_options(context)
    spellings = {str(parameter.name): max(parameter.opts, key=len) for parameter in context.command.params}
    for name, alternatives in needs.items():
        required = list(alternatives)
        if name in given_spellings and not any(option in given_spellings for option in required):
            expected = _join_option_names([spellings[option] for option in required], "or")
            raise BadInput(
                f"{given_spellings[name]} has no effect without {expected}", hint=f"add {expected}, or remove it"
            )


def _join_option_names(names: list[str], joint: str = "and") -> str:
    return f"{', '.join(names[:-1])} {joint} {names[-1]}" if len(names) > 1 else "".join(names)
