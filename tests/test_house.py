"""The house itself: who may import whom, what is public, what loads when, and that the documents are true."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ragauge
from command import forked, typed
from ragauge.measures.answers import ANSWERS
from ragauge.measures.conventions import CHOICES, PRESETS
from ragauge.measures.table import TABLE

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ragauge"

NOUNS = {
    "errors",
    "documents",
    "records",
    "outcomes",
    "answer_dates",
    "comparisons",
    "findings",
    "gates",
    "overviews",
    "histories",
    "sweeps",
    "verdicts",
    "calibrations",
    "worths",
    "ages",
    "ordeals",
    "lineups",
    "graphs",
    "webs",
}
EVERYWHERE = {"csv_cells", "temporary_files"}
"""Modules without imports of ours that any module may import."""
DOING = {"datasets", "systems", "runs", "seams", "stages", "plugins", "fusion"}
MAY_IMPORT = {
    "errors": {"keys"},
    "documents": {"errors"},
    "records": {"errors", "documents"},
    "findings": set(),
    "answer_dates": set(),
    "gates": {"answer_dates", "errors"},
    "comparisons": {"answer_dates", "errors", "records"},
    "outcomes": {"errors", "records", "comparisons"},
    "overviews": NOUNS,
    "histories": NOUNS,
    "sweeps": {"errors", "records", "outcomes"},
    "verdicts": {"errors", "records"},
    "calibrations": {"errors", "records", "verdicts"},
    "worths": {"errors", "records"},
    "ages": {"errors", "records"},
    "ordeals": {"errors", "records"},
    "lineups": {"errors", "records", "outcomes"},
    "stages": set(),
    "chances": set(),
    "graphs": {"errors", "records"},
    "webs": {"findings", "outcomes", "records"},
    "structured_text": {"errors"},
    "threads": set(),
    "thread_limits": set(),
    "together": set(),
    "keys": set(),
    "limits": {"errors"},
    "http_client": {"errors", "keys", "limits"},
    "processes": set(),
    "parcels": {"errors"},
    "executors": {"errors", "parcels"},
    "clusters": {"", "errors"},
    "seams": {"errors", "graphs", "records", "verdicts"},
    "plugins": {"errors"},
    "formats": {
        "errors",
        "keys",
        "limits",
        "records",
        "overviews",
        "outcomes",
        "comparisons",
        "findings",
        "sweeps",
        "verdicts",
        "ages",
        "lineups",
    },
    "fusion": {"errors", "records"},
    "datasets": {"errors", "records", "findings", "formats", "verdicts"},
    "systems": {"errors", "records", "graphs", "chances", "seams", "stages", "plugins", "fusion", "keys"}
    | {"http_client", "thread_limits"},
    "runs": {"errors", "records", "chances", "seams", "stages", "threads", "together", "formats", "keys"}
    | {"thread_limits"},
    "judges": {"errors", "records", "verdicts", "seams", "plugins", "threads", "together", "formats", "keys"}
    | {"executors", "http_client"},
    "proceedings": NOUNS | {"parcels", "executors", "seams", "judges", "together", "measures", "systems"},
    "judging": NOUNS
    | {"seams", "judges", "judged_files", "formats", "measures", "proceedings", "runs", "sampling", "stats"},
    "yardsticks": NOUNS | {"datasets", "formats", "measures"},
    "calibrating": NOUNS | {"judges", "judging", "proceedings", "measures", "seams", "stats", "yardsticks"},
    "measures": NOUNS,
    "stats": NOUNS | {"executors"},
    "texts": set(),
    "knowledge": NOUNS
    | DOING
    | {"audits", "formats", "judges", "measures", "processes", "stats", "texts", "together", "twins"},
    "twins": {"errors", "texts"},
    "audits": NOUNS | {"measures", "stats", "texts", "twins"},
    "encoding": NOUNS | DOING | {"benches", "formats", "measures", "processes", "stats", "texts", "thread_limits"},
    "embedding": NOUNS | DOING | {"encoding", "experiments", "formats", "measures", "verbs"},
    "tokenizing": NOUNS | DOING | {"corpora", "encoding", "formats"},
    "reaches": NOUNS | {"stats"},
    "graphing": NOUNS | DOING | {"corpora", "measures", "reaches"},
    "benches": NOUNS | DOING | {"executors", "formats", "measures", "processes"},
    "benching": NOUNS | DOING | {"benches", "formats", "measures", "verbs"},
    "stressing": NOUNS | DOING | {"formats", "knowledge", "verbs"},
    "reports": NOUNS | {"stages"},
    "verbs": {"errors", "records", "executors", "formats", "measures"},
    "fusing": {"errors", "records", "formats", "fusion", "measures", "verbs"},
    "experiment_files": {"errors", "formats", "runs", "systems"},
    "work": NOUNS | DOING | {"benches", "formats"},
    "inputs": {"errors", "records", "datasets", "formats", "runs"},
    "sides": {"errors", "records", "verdicts", "inputs", "measures"},
    "scored": {"answer_dates", "errors", "records", "formats", "inputs", "measures", "runs", "verbs"},
    "comparing": NOUNS | {"datasets", "formats", "scored", "sides", "stats"},
    "corpora": {"errors", "records", "datasets", "runs"},
    "sampling": {"errors", "records", "verdicts", "corpora", "formats", "runs"},
    "linting": NOUNS | {"datasets", "formats", "knowledge", "runs"},
    "staleness": NOUNS | {"corpora", "datasets", "formats", "inputs", "knowledge", "runs"},
    "auditing": NOUNS | {"audits", "corpora", "datasets", "formats", "inputs", "measures", "runs", "verbs"},
    "trials": NOUNS | {"formats", "inputs", "measures", "runs", "stats", "verbs"},
    "rules": NOUNS | {"measures", "stats"},
    "gate_files": {"errors", "formats", "rules"},
    "candidates": NOUNS | {"formats", "inputs", "measures", "rules", "runs", "sides", "staleness", "verbs"},
    "gating": NOUNS | {"gate_files", "candidates", "datasets", "formats", "inputs", "measures", "rules", "runs"},
    "chronicle": NOUNS | {"formats", "measures", "rules", "runs", "stats", "verbs"},
    "surveying": NOUNS | {"datasets", "measures", "stats"},
    "gathered": NOUNS | {"corpora", "formats", "inputs", "measures", "scored", "surveying", "verbs"},
    "novelties": NOUNS | DOING | {"corpora", "formats", "judges", "knowledge", "proceedings", "texts"},
    "forms": {"errors", "formats", "reports"},
    "sweep_files": NOUNS | {"benches", "formats", "forms", "reports", "vega"},
    "judged_files": NOUNS | {"formats", "forms", "measures", "reports", "vega"},
    "account_files": NOUNS | {"formats", "forms", "reports", "vega"},
    "reporting": NOUNS
    | {"auditing", "comparing", "formats", "forms", "gathered", "inputs", "measures", "reports", "runs", "sides"}
    | {"account_files", "judged_files", "surveying", "sweep_files", "vega"},
    "vega": {"errors", "formats", "reports", "systems"},
    "pytest_plugin": {"gates", "gating"},
    "experiments": NOUNS | DOING | {"comparing", "formats", "measures", "verbs", "work"},
    "baselines": NOUNS | {"experiments", "formats", "runs"},
    "shadows": NOUNS | DOING | {"work"},
    "snapshots": NOUNS | {"corpora", "datasets", "inputs", "knowledge", "measures", "seams", "shadows"},
    "gaining": NOUNS
    | {"formats", "judging", "knowledge", "measures", "novelties", "runs", "shadows", "snapshots", "systems", "verbs"},
    "evaluator": NOUNS | DOING | {"measures", "stats", "verbs"},
    "ir_measures_provider": {"records", "measures", "verbs"},
    "csv_cells": set(),
    "temporary_files": {"errors"},
    "__main__": {"cli"},
}
READERS = {
    "benches",
    "chronicle",
    "encoding",
    "formats",
    "graphing",
    "inputs",
    "judges",
    "knowledge",
    "runs",
    "systems",
}
for reader in READERS:
    MAY_IMPORT[reader] |= {"structured_text"}
MAY_IMPORT["cli"] = {""} | set(MAY_IMPORT) - {"__main__", "ir_measures_provider"}
MAY_IMPORT["__init__"] = set(MAY_IMPORT) - {"__main__", "cli", "ir_measures_provider", "reports"}
"""The plan of the house; each room may also import itself."""


def modules():
    return sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def is_room(name: str) -> bool:
    return (SOURCE / name).exists() or (SOURCE / f"{name}.py").exists()


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_rooms_import_only_what_the_plan_allows(path):
    allowed = MAY_IMPORT[room(path)] | {room(path)} | EVERYWHERE
    for node in ast.walk(ast.parse(path.read_text())):
        found: list[str] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ragauge":
            parts = (node.module or "").split(".")
            found = [parts[1]] if len(parts) > 1 else [a.name if is_room(a.name) else "" for a in node.names]
        elif isinstance(node, ast.Import):
            found = [a.name.split(".")[1] for a in node.names if a.name.startswith("ragauge.")]
        assert set(found) <= allowed, f"{path.name} imports {found}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_are_short_and_neither_print_nor_assert(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        assert not isinstance(node, ast.Assert)
        assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print")


def test_public_names_are_exactly_those_that_are_promised():
    assert set(ragauge.__all__) == set(ragauge._HOMES) | {"__version__"}
    for name in ragauge.__all__:
        assert getattr(ragauge, name) is not None
    with pytest.raises(AttributeError):
        _ = ragauge.nothing


def loaded_by(code: str) -> set[str]:
    listing = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_import_does_nothing_heavy():
    heavy = {"numpy", "polars", "scipy", "rich", "typer", "pandas", "altair"}
    assert not heavy & loaded_by("import ragauge")


def test_dictionaries_are_scored_without_frames():
    code = "import ragauge; ragauge.evaluate({'q': {'a': 1}}, {'q': {'a': 1.0}}, ['ndcg@10'])"
    assert not {"polars", "pandas", "rich", "typer"} & loaded_by(code)


@pytest.mark.parametrize("name", TABLE)
def test_every_measure_has_its_formula_rule_paper_and_an_example(name):
    text = inspect.getdoc(TABLE[name].function) or ""
    for part in ("Formula:", "Rule:", "Paper:", ">>>"):
        assert part in text, part
    assert text.splitlines()[0].endswith((".", ":"))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_stands_in_conventions_md_with_its_departures(preset):
    text = (ROOT / "CONVENTIONS.md").read_text()
    row = next((line for line in text.splitlines() if line.startswith(f"| `{preset}` ")), None)
    assert row is not None, preset
    for option, value in PRESETS[preset].departures().items():
        assert f"{option}={value}" in row, (preset, option)


@pytest.mark.parametrize("option", CHOICES)
def test_every_option_and_value_stands_in_conventions_md(option):
    text = (ROOT / "CONVENTIONS.md").read_text()
    row = next((line for line in text.splitlines() if line.startswith(f"| `{option}` ")), None)
    assert row is not None, option
    for value in CHOICES[option]:
        assert f"`{value}`" in row, (option, value)


VERBS = """
run evaluate compare report bench gate audit reliability calibrate history k-range fuse validate convert
datasets systems measures demo gain novelty stress lint freshness embedders tokenizers graph
"""


@pytest.mark.parametrize("verb", VERBS.split())
def test_every_verb_is_in_the_readme_and_the_docs(verb):
    assert f"ragauge {verb}" in (ROOT / "README.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


PAGES = ["README.md", *(f"docs/{one.name}" for one in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_and_say_what_they_claim(page, tmp_path, monkeypatch):
    """Each block is run in order; a comment `# -> text` after a print is what it prints."""
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    assert found
    code = "\n".join(found)
    (tmp_path / "block.py").write_text(code)
    done = forked(["block.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    claimed = re.findall(r"# -> (.*)", code)
    assert done.stdout.splitlines() == claimed


DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
"""When answers were made: another date each time."""


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")])
def test_console_blocks_print_what_they_claim(page, tmp_path):
    """Commands after `$ ` are run in one folder, in order; what follows is their standard output and error."""
    environment = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "COLUMNS": "80", "HOME": "/", "RAGAUGE_DATA": ""}
    ran = 0
    for block in blocks(page, "console"):
        commands = re.split(r"^\$ ", block, flags=re.M)[1:]
        for command in commands:
            line, _, claimed = command.partition("\n")
            if not line.startswith(("ragauge", "printf")):
                continue
            done = typed(line, tmp_path, environment)
            assert DATE.sub("DATE", done.stdout + done.stderr).rstrip() == DATE.sub("DATE", claimed).rstrip(), line
            ran += 1
    assert ran


def test_the_readme_counts_the_measures_that_there_are():
    told = re.search(r"lists all (\d+) measures", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert told is not None
    assert int(told[1]) == len(TABLE) + len(ANSWERS)
