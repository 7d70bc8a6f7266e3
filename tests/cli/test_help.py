"""Help of every command: panels, units, defaults, examples, and completion of values."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.testing import CliRunner

from ragauge.cli.app import COMMANDS, build_app, load_command
from ragauge.cli.command_help import PANELS, longest_spelling
from ragauge.cli.completion import find_completer

NUMBER_METAVARS = {"N", "GRADE", "LEVEL", "SCORE", "LABEL", "SHARE", "SECONDS", "USD", "PRICE", "CHARS", "SIZE"}
"""Metavars of options with one number, each of which is a unit or a count of what the help names."""
WITHOUT_DEFAULT = {"--at-least", "--margin", "--detect", "--replicate"}
"""Options with a number that enable an analysis."""


def list_options(command):
    return [parameter for parameter in load_command(command).params if parameter.param_type_name == "option"]


def show_help(command):
    done = CliRunner().invoke(build_app(), [command, "--help"], env={"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.output


def find_examples(command):
    return re.findall(r"\[dim\](ragauge .*)\[/dim\]", load_command(command).help)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_one_sentence_and_at_most_two_examples(command):
    first, *others = load_command(command).help.split("\n\n")
    assert first == COMMANDS[command].summary
    assert len(first) <= 80
    assert first.endswith(".")
    assert others == [f"[dim]{example}[/dim]" for example in find_examples(command)]
    assert 1 <= len(others) <= 2
    assert max(map(len, show_help(command).splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_example_has_arguments_and_options_of_its_command(command):
    for example in find_examples(command):
        program, name, *words = shlex.split(example)
        assert (program, name) == ("ragauge", command)
        load_command(command).make_context(command, words, resilient_parsing=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_option_is_in_a_panel_and_shows_unit_and_default(command):
    known = {option: panel for panel, names in PANELS.items() for option in names.split()}
    for option in list_options(command):
        name = longest_spelling(option)
        assert option.rich_help_panel == known.get(name), f"{command} {name}: add it to PANELS"
        assert option.is_flag or option.metavar, f"{command} {name}: no metavar"
        assert "default" not in re.sub(r"\bdefault,", "", option.help), f"{command} {name}: {option.help}"
        is_number = option.type_descriptor.annotation in (int, float, int | None, float | None)
        if is_number and not option.is_flag:
            assert option.metavar in NUMBER_METAVARS, f"{command} {name}: {option.metavar}"
            has_default = option.default is not None or isinstance(option.show_default, str)
            assert has_default or name in WITHOUT_DEFAULT, f"{command} {name}: no default"


@pytest.mark.parametrize("command", COMMANDS)
def test_option_with_several_values_has_note_in_help(command):
    for option in list_options(command):
        if option.multiple:
            assert "Can be repeated" in option.help, longest_spelling(option)


@pytest.mark.parametrize("command", ["judge", "fuse", "audit", "calibrate", "report", "tokenizers"])
def test_argument_without_which_command_refuses_is_marked_required(command):
    done = CliRunner().invoke(build_app(), [command])
    assert " given; expected " in str(done.exception)
    (argument,) = [parameter for parameter in load_command(command).params if parameter.param_type_name == "argument"]
    assert re.search(r"Required( without --list)?\.$", argument.help)


def test_help_states_ranges_and_rows_in_words():
    assert "[x" not in show_help("compare")
    assert "Folders of `run` need no judgments" not in show_help("fuse")
    assert "Print the table as CSV." in show_help("datasets")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_units_and_every_default(command):
    text = show_help(command)
    assert not re.search(r"<[a-z]\w*(\[\w+\])?>|[^\[]default:", text)
    for option in list_options(command):
        has_default = not (option.default is None or option.default is False) or isinstance(option.show_default, str)
        spelling = re.escape(longest_spelling(option))
        entry = re.search(rf"^│[ *]+{spelling} (.*?)(?=^│[ *]+-|^╰)", text, re.M | re.S)
        assert entry, spelling
        assert ("[default:" in entry[1]) == has_default, entry[0]


@pytest.mark.parametrize(
    "command",
    ["evaluate", "compare", "audit", "gate", "report", "k-range", "validate", "fuse"],
)
def test_command_with_runs_explains_names(command):
    arguments = [
        parameter.help or "" for parameter in load_command(command).params if parameter.param_type_name == "argument"
    ]
    assert "NAME=FILE" in " ".join(arguments)


def complete(words, incomplete, monkeypatch):
    monkeypatch.setenv("_RAGAUGE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"ragauge {words} {incomplete}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) + 1))
    done = CliRunner().invoke(build_app(), [], prog_name="ragauge")
    return done.output.split()


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ("", "ev", "evaluate"),
        ("evaluate", "--per", "--per-query"),
        ("evaluate -m", "nd", "ndcg@10"),
        ("evaluate -m", "map,rec", "map,recall@10"),
        ("judge -m", "faith", "faithfulness"),
        ("evaluate -C", "tr", "trec9"),
        ("evaluate --format", "tr", "trec_eval"),
        ("evaluate --qrels-format", "sub", "subtopics"),
        ("run pydocs -s", "bm", "bm25"),
        ("bench --store", "usea", "usearch"),
        ("stress --store", "sql", "sqlite-vec"),
        ("fuse --method", "rr", "rrf"),
        ("measures", "ndc", "ndcg"),
        ("datasets", "pyd", "pydocs"),
        ("convert --format", "parq", "parquet"),
    ],
)
def test_shell_completion_offers_commands_options_and_values(words, incomplete, expected, monkeypatch):
    assert expected in complete(words, incomplete, monkeypatch)


@pytest.mark.parametrize("command", COMMANDS)
def test_completed_values_have_no_whitespace(command):
    for parameter in load_command(command).params:
        completer = find_completer(command, longest_spelling(parameter))
        if completer is not None:
            values = [item.value for item in completer(None, "")]
            assert values
            assert not any(re.search(r"\s", value) for value in values)


def test_show_completion_prints_a_script_for_ragauge(monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = CliRunner().invoke(build_app(), ["--show-completion", "bash"], prog_name="ragauge")
    assert done.exit_code == 0
    assert "_RAGAUGE_COMPLETE=complete_bash" in done.output
    assert "complete -o default -F _ragauge_completion ragauge" in done.output
