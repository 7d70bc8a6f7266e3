"""Architecture and documentation: module sizes, public names, loaded libraries, CONVENTIONS.md, examples."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

import ragauge
from command import run_python, run_shell
from docs_examples import CONSOLE_ENVIRONMENT, PAGES, find_blocks, is_run, mask_dates, split_commands
from ragauge.cli.app import COMMANDS
from ragauge.comparison.charts import CHART_DEFINITIONS
from ragauge.measures.answers import ANSWER_MEASURES
from ragauge.measures.conventions import OPTION_CHOICES, PRESETS
from ragauge.measures.registry import MEASURE_REGISTRY
from ragauge.reports import overview_report

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ragauge"


def list_modules():
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", list_modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_do_not_print_or_assert(path):
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Assert)
        assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print")


def test_public_names_match_all():
    assert set(ragauge.__all__) == set(ragauge._HOMES) | {"__version__"}
    for name in ragauge.__all__:
        assert getattr(ragauge, name) is not None
    with pytest.raises(AttributeError):
        _ = ragauge.nothing


@pytest.mark.parametrize("name", sorted(set(ragauge.__all__) - {"__version__"}))
def test_public_name_and_its_members_have_docstrings(name):
    item = getattr(ragauge, name)
    members = vars(item) if isinstance(item, type) else {}
    kinds = (FunctionType, property, classmethod, staticmethod)
    public = {key: value for key, value in members.items() if isinstance(value, kinds) and key[0] != "_"}
    own = {name: item} if callable(item) else {}
    assert [key for key, value in {**own, **public}.items() if not inspect.getdoc(value)] == []


def find_loaded_libraries(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_import_ragauge_loads_no_heavy_library():
    heavy = {"numpy", "polars", "scipy", "rich", "typer", "pandas", "altair"}
    assert not heavy & find_loaded_libraries("import ragauge")


def test_evaluate_dictionaries_loads_no_polars():
    code = "import ragauge; ragauge.evaluate({'q': {'a': 1}}, {'q': {'a': 1.0}}, ['ndcg@10'])"
    assert not {"polars", "pandas", "rich", "typer"} & find_loaded_libraries(code)


@pytest.mark.parametrize("name", MEASURE_REGISTRY)
def test_measure_docstring_has_formula_rule_paper_and_example(name):
    text = inspect.getdoc(MEASURE_REGISTRY[name].function) or ""
    for part in ("Formula:", "Rule:", "Paper:", ">>>"):
        assert part in text, part
    assert text.splitlines()[0].endswith((".", ":"))


@pytest.mark.parametrize("preset", PRESETS)
def test_conventions_md_lists_every_preset_with_its_departures(preset):
    text = (ROOT / "CONVENTIONS.md").read_text()
    row = next((line for line in text.splitlines() if line.startswith(f"| `{preset}` ")), None)
    assert row is not None, preset
    for option, value in PRESETS[preset].departures().items():
        assert f"{option}={value}" in row, (preset, option)


@pytest.mark.parametrize("option", OPTION_CHOICES)
def test_conventions_md_lists_every_option_and_value(option):
    text = (ROOT / "CONVENTIONS.md").read_text()
    row = next((line for line in text.splitlines() if line.startswith(f"| `{option}` ")), None)
    assert row is not None, option
    for value in OPTION_CHOICES[option]:
        assert f"`{value}`" in row, (option, value)


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_lists_command_and_docstring_has_summary(command):
    assert f"ragauge {command}" in (ROOT / "README.md").read_text()
    name = command.replace("-", "_")
    help_text = inspect.getdoc(getattr(import_module(f"ragauge.cli.{name}"), name)) or ""
    assert help_text.splitlines()[0] == COMMANDS[command].summary


def test_charts_belong_to_sections_of_the_page():
    sections = set(re.findall(r'charts\("([\w-]+)"', inspect.getsource(overview_report)))
    assert {chart.section for chart in CHART_DEFINITIONS.values()} <= sections


def page_parameters(language):
    """Return the pages with blocks of a language; README represents all of them in the contributor's suite."""
    pages = [page for page in PAGES if find_blocks(page, language)]
    return [pytest.param(page, marks=pytest.mark.representative) if page == "README.md" else page for page in pages]


@pytest.mark.parametrize("page", page_parameters("python"))
@pytest.mark.docs
def test_docs_python_blocks_print_documented_output(page, tmp_path, monkeypatch):
    """Run the blocks of a page in order; each comment `# -> text` after a print is its expected output."""
    monkeypatch.chdir(tmp_path)
    blocks = find_blocks(page, "python")
    code = "\n".join(blocks)
    (tmp_path / "block.py").write_text(code)
    done = run_python(["block.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"# -> (.*)", code)
    assert done.stdout.splitlines() == expected


def test_docs_pages_except_index_have_an_example():
    pages_without_example = [page for page in PAGES if not find_blocks(page, "python") + find_blocks(page, "console")]
    assert pages_without_example == ["docs/index.md"]


@pytest.mark.parametrize("page", page_parameters("console"))
@pytest.mark.docs
def test_docs_console_blocks_print_documented_output(page, tmp_path):
    """Run the commands after `$ ` in order, in one folder; expect the output and errors that follow each."""
    run_count = 0
    for block in find_blocks(page, "console"):
        for line, expected in split_commands(block):
            if not is_run(line):
                continue
            done = run_shell(line, tmp_path, CONSOLE_ENVIRONMENT)
            assert mask_dates(done.stdout + done.stderr).rstrip() == mask_dates(expected).rstrip(), line
            run_count += 1
    assert run_count


def test_readme_measure_count_matches_registry():
    match = re.search(r"lists all (\d+) measures", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert match is not None
    assert int(match[1]) == len(MEASURE_REGISTRY) + len(ANSWER_MEASURES)
