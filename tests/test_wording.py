"""Names and wording: specific private names, unique class names, short test names, and no quaint phrases."""

from __future__ import annotations

import ast
import collections
import io
import re
import tokenize
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ragauge.cli.app import COMMANDS, build_app

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ragauge"
FAMILIES = {
    "_apply_search_options",
    "_close",
    "_create_index",
    "_describe_engine",
    "_insert",
    "_remove",
    "_replace",
    "_search",
    "_write_index",
}
"""Private names with one meaning in many modules: the methods of `VectorStore` that an engine implements."""
MAX_MODULES = 4
QUOTED_DATA = {
    "docs/datasets.md": "Somebody",  # a generated document
    "src/ragauge/judging/prompt_injection.py": "whoever",  # a text that is planted to mislead judges
}
"""The only phrases of quaint_phrases.txt in sources and documentation: data, and keys that are needed to read files."""
WORDING_IS_DATA = re.compile(r"judging/steps/\w+\.md|vocabulary\.py|synthetic\w*\.py|lexical_text\.py|questions\.jsonl")


def parse_modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def test_private_name_is_defined_in_few_modules():
    modules = collections.defaultdict(set)
    for path, tree in parse_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match(r"_(?!_)", node.name):
                modules[node.name].add(path)
    common = {name: len(paths) for name, paths in modules.items() if len(paths) > MAX_MODULES}
    assert not set(common) - FAMILIES, common


def test_class_name_is_unique():
    classes = collections.defaultdict(list)
    for path, tree in parse_modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(str(path.relative_to(SOURCE)))
    assert not {name: paths for name, paths in classes.items() if len(paths) > 1}


def text_units(path: Path) -> list[str]:
    """Split a file into units of text.

    Units are the paragraphs of Markdown, and the strings (f-string fields as {}) and comments of Python. Any other file
    is one unit.
    """
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.split(r"\n\s*\n", source)
    if path.suffix != ".py":
        return [source]
    units, inside = [], set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside.update(id(child) for child in ast.walk(node) if child is not node)
            units.append("".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            units.append(node.value)
    comments = tokenize.generate_tokens(io.StringIO(source).readline)
    return units + [token.string.lstrip("# ") for token in comments if token.type == tokenize.COMMENT]


def read_quaint_phrases() -> list[re.Pattern[str]]:
    lines = (Path(__file__).parent / "helpers" / "quaint_phrases.txt").read_text().splitlines()
    return [re.compile(line, re.I) for line in lines]


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_contains_no_quaint_phrase(command):
    words = ["--help"] if command is None else [command, "--help"]
    help_text = CliRunner().invoke(build_app(), words, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).output
    text = " ".join(re.sub(r"[│╭╮╰╯─*]", " ", help_text).split())
    assert "Usage:" in text
    assert not [phrase.pattern for phrase in read_quaint_phrases() if phrase.search(text)]


def test_sources_and_docs_contain_no_quaint_phrase():
    phrases = read_quaint_phrases()
    suffixes = {".py", ".md", ".html", ".js", ".json"}
    folders = (SOURCE, ROOT / "benchmarks", ROOT / "examples")
    paths = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes),
    ]
    phrases_by_file = collections.defaultdict(set)
    for path in paths:
        if path.name == "CHANGELOG.md" or WORDING_IS_DATA.search(str(path)):
            continue
        for unit in text_units(path):
            text = " ".join(unit.split())
            phrases_by_file[str(path.relative_to(ROOT))].update(
                m.group() for phrase in phrases for m in phrase.finditer(text)
            )
    assert {
        path: " ".join(phrases_found) for path, phrases_found in phrases_by_file.items() if phrases_found
    } == QUOTED_DATA


def docstrings_and_comments(path: Path) -> list[str]:
    source = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    comments = tokenize.generate_tokens(io.StringIO(source).readline)
    return docstrings + [token.string.lstrip("# ") for token in comments if token.type == tokenize.COMMENT]


def test_docstrings_and_comments_of_tests_contain_no_quaint_phrase():
    phrases = read_quaint_phrases()
    assert not [
        (path.name, match.group())
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for text in docstrings_and_comments(path)
        for phrase in phrases
        if (match := phrase.search(" ".join(text.split())))
    ]


def test_test_names_are_short_and_plain():
    quaint = re.compile(
        r"_(what|whatever|whoever|nobody|told|tells?|says?|said|asked|stands|beside|likewise|mended)(_|$)|^test_(an?|the|it)_"
    )
    names = [
        (path.name, name)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.M)
    ]
    assert not [(file, name) for file, name in names if len(name) > 70 or quaint.search(name)]
