"""Help of a command: options in panels, usage as it is typed, and completion of option values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from typer.core import TyperCommand

from ragauge.cli.completion import find_completer

INPUT, MEASURES, EXECUTION, STATISTICS, OUTPUT = "Input", "Measures", "Execution", "Statistics", "Output"
PANELS: Mapping[str, str] = {
    INPUT: "--system --store --dataset --corpus --before --after --add --before-run --after-run --known "
    "--baseline --rule --rules --qrels --queries --answers --tags --targets --with --split --qrels-format "
    "--run-format --from --kind --max-queries --max-documents --max-vectors --max-samples --metric --metadata "
    "--where --part --query "
    "--allow-changed-corpus --allow-env --allow-host --probe",
    MEASURES: "--measure --convention --rel --depth -k --weight --weights --lower-is-better --higher-is-better "
    "--expect --check --method --norm --tune --folds --by --common-queries --count-missing "
    "--tolerance --at-least --score-judgments --novelty --chunk-size --chunk-overlap "
    "--chunks-per-claim --reference-chunks --token-limit "
    "--held-out --threshold --label-threshold --labels "
    "--filters --selectivity --changes --mixed --price-per-hour --canaries --questions "
    "--verdict-format",
    EXECUTION: "--embedder --tokenizer --chat --chat-option --audit --quick --sweep --repeats "
    "--replicates --replicate --warmup --workers --threads --clients --qps --poisson "
    "--seconds --timeout --retries --truth --cluster --mode --batch-size --commit-every --kills --kill-at "
    "--bisect --swap --max-calls --max-cost --prices --token-price --dry-run --fresh --reuse --remeasure "
    "--retry-unscored --keep",
    STATISTICS: "--test --correction --family --alpha --confidence --interval --rounds --seed --margin --detect "
    "--power --min-queries",
    OUTPUT: "--per-query --moved --full --list --title --json --csv --format --out --charts --junit "
    "--save-baseline --reproducer --strict --schema --help",
}
"""Panels of options in the order of the help, with the spellings of their options in that order."""
_POSITIONS = {
    option: (panel, number)
    for panel, options in enumerate(PANELS.values())
    for number, option in enumerate(options.split())
}
_PANEL_NAMES = list(PANELS)


def longest_spelling(parameter: Any) -> str:
    """Return the longest spelling of an option, e.g. `--measure`."""
    return str(max(parameter.opts, key=len))


class PanelCommand(TyperCommand):
    """Command whose help shows its options in panels."""

    def get_help_option(self, ctx: Any) -> Any:  # Typer has its own copy of click's types
        """Return the option `--help`, in the panel of the output options."""
        option: Any = super().get_help_option(ctx)
        if option is not None:
            option.rich_help_panel, option.metavar = OUTPUT, ""
        return option

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line: arguments are shown as their metavar is written."""
        pieces = super().collect_usage_pieces(ctx)
        arguments: list[Any] = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        return [*pieces[: len(pieces) - len(arguments)], *(_usage_piece(parameter) for parameter in arguments)]


def find_examples(command: Any) -> list[str]:
    """Return the examples in the help of a command, as they are typed."""
    return re.findall(r"\[dim\](ragauge .*)\[/dim\]", command.help or "")


def _usage_piece(argument: Any) -> str:
    if argument.metavar:
        return str(argument.metavar)
    name = str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def _display_no_type(ctx: object) -> None:
    """Show no Python type next to the name of an argument."""
    del ctx


def _format_default(parameter: Any, typers_own: Any, **details: Any) -> str:
    """Format the default of a parameter; a described one is shown without the brackets that Typer adds."""
    return str(parameter.show_default if details["show_default_is_str"] else typers_own(**details))


def arrange_options(command: Any) -> None:
    """Sort the options of a command into panels, and add completion of their values."""
    for parameter in command.params:
        format_own = parameter._get_default_string  # Typer has no other hook
        parameter._get_default_string = partial(_format_default, parameter, format_own)
        if parameter.param_type_name == "option":
            position = _POSITIONS.get(longest_spelling(parameter))
            parameter.rich_help_panel = OUTPUT if position is None else _PANEL_NAMES[position[0]]
            if parameter.is_flag:
                parameter.metavar = ""
        else:
            parameter.display_type_rich = _display_no_type
        completer = find_completer(str(command.name), longest_spelling(parameter))
        if completer is not None:
            parameter.shell_complete = completer
    last = (len(PANELS), 0)
    command.params.sort(
        key=lambda param: (
            (-1, 0) if param.param_type_name == "argument" else _POSITIONS.get(longest_spelling(param), last)
        )
    )
