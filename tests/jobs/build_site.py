"""Build the documentation site: assemble its pages in build/site-source, build build/site, check every link.

python tests/jobs/build_site.py
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ragauge.cli.app import COMMANDS, load_command
from ragauge.core.record_types import RESULT_MODULES
from ragauge.files.json_schemas import json_schema_of

ROOT = Path(__file__).parents[2]
SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"
PICTURE = ROOT / "build" / "report.png"
"""Picture of the report as it is now, if `draw_report_picture.py` has drawn it."""
ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "CONVENTIONS.md")
PYTHON_PAGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "score": (
        "score, compare and fuse",
        (
            "evaluate", "evaluate_runs", "compare", "gate", "audit", "save_baseline", "fuse", "tune", "Scores",
            "ScoresByRun", "Comparisons", "Comparison", "Gate", "Audit", "Finding", "Measure", "Convention",
        ),
    ),
    "run": (
        "run retrieval systems",
        (
            "run", "run_each", "RAGEvaluator", "PgVectorDB", "adapt_retriever", "compare_embedders",
            "compare_tokenizers", "stage", "dask_cluster", "Experiment", "ExperimentSet", "TokenizerStudy",
        ),
    ),
    "judge": (
        "judge answers",
        ("judge", "judge_async", "rescore", "estimate_cost", "calibrate", "Sample", "JudgedSamples", "Calibration"),
    ),
    "stores": ("benchmark stores", ("bench", "stress", "StoreBenchmark", "StressTest", "VectorSet")),
    "corpus": ("analyse a corpus", ("novelty", "gain", "Novelty", "Gain")),
    "data": (
        "data and reports",
        (
            "load", "read_judgments", "read_run", "run_from_arrays", "judgments_from_neighbours",
            "judgments_from_subtopics", "report", "overview", "Dataset", "Document", "Hit", "Judgments", "Run",
            "Overview",
        ),
    ),
    "errors": (
        "errors",
        (
            "RagaugeError", "BadInput", "UnknownName", "MissingExtra", "MissingEvidence", "CheckFailed",
            "Incomparable", "BackendFailed", "BackendRestarted",
        ),
    ),
}  # fmt: skip
"""Title and names of each page of the Python reference."""
OTHER_NAMES = {"PRESETS", "__version__", "pgVectorDB"}
"""Public names without an entry: a table, the version, and the spelling of another tool."""
MARKUP = re.compile(r"\[/?[a-z]+\]")
"""Rich markup in help texts."""


def assemble_pages() -> None:
    """Copy the pages of docs/, the repository root and benchmarks/, and write the notebook and reference pages."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE)
    if PICTURE.exists():
        shutil.copy(PICTURE, SOURCE / "report.png")
    (SOURCE / "benchmarks").mkdir()
    for name in ROOT_PAGES:
        shutil.copy(ROOT / name, SOURCE / name)
    for page in (ROOT / "benchmarks").glob("*.md"):
        shutil.copy(page, SOURCE / "benchmarks" / page.name)
    shutil.copytree(ROOT / "examples", SOURCE / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for page in SOURCE.rglob("*.md"):
        page.write_text(rewrite_links(page), encoding="utf-8")
    for notebook in (ROOT / "examples" / "notebooks").glob("*.ipynb"):
        page = SOURCE / f"notebook_{notebook.stem}.md"
        page.write_text("\n".join(describe_notebook(notebook)), encoding="utf-8")
    (SOURCE / "reference_commands.md").write_text("\n".join(describe_commands()), encoding="utf-8")
    (SOURCE / "reference_exit_codes.md").write_text("\n".join(describe_exit_codes()), encoding="utf-8")
    for page_name, (title, names) in PYTHON_PAGES.items():
        page = SOURCE / f"reference_python_{page_name}.md"
        page.write_text("\n".join(describe_names(title, names)), encoding="utf-8")
    (SOURCE / "reference_schemas.md").write_text("\n".join(describe_schemas()), encoding="utf-8")


def describe_notebook(path: Path) -> Iterator[str]:
    """Yield the Markdown of a notebook: its texts, its code and its stored outputs."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield f"{source}\n"
            continue
        yield f"```python\n{source}\n```\n"
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            shown = "".join(data.get("text/html", []))
            # A blank line would end the HTML block.
            lines = [line.strip() for line in shown.splitlines() if line.strip()]
            if lines:
                yield "\n".join(['<div class="notebook-output">', *lines, "</div>\n"])
            else:
                yield f"```text\n{''.join(data['text/plain']).rstrip()}\n```\n"
    yield f"[Download this notebook](examples/notebooks/{path.name})\n"


def rewrite_links(page: Path) -> str:
    """Rewrite the links of a page for the layout of the site; links to source files become code."""
    depth = len(page.relative_to(SOURCE).parts) - 1
    up = "../" * depth

    def rewrite(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if urlsplit(target).scheme or target.startswith("#"):
            return match[0]
        path = re.sub(r"^(\.\./)*(docs/)?", "", target) if depth == 0 or target.startswith("../") else target
        place = path.partition("#")[0]
        if place.endswith(".ipynb"):
            return f"[{text}]({up}notebook_{Path(place).stem}.md)"
        if (
            place.startswith(("src/", "tests/"))
            or place == "LICENSE"
            or place.rstrip("/") in ("examples", "examples/ci", "examples/notebooks")
        ):
            return text if text.startswith("`") else f"`{text}`"
        return f"[{text}]({up if target.startswith('../') else ''}{path})"

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", rewrite, page.read_text(encoding="utf-8"))


def describe_commands() -> Iterator[str]:
    """Yield the reference of the command line: usage, help and options of every command."""
    yield "# Commands\n"
    yield "Every command prints data on standard output and messages on standard error.\n"
    yield "[Exit codes](reference_exit_codes.md) are the same for all commands.\n"
    for name, entry in COMMANDS.items():
        command = load_command(name)
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        labels = [(parameter.metavar or parameter.name.upper(), parameter.required) for parameter in arguments]
        usage = " ".join(label if required else f"[{label}]" for label, required in labels)
        yield f"## {name}\n\n{entry.summary}\n\n```text\nragauge {name} [OPTIONS] {usage}\n```\n"
        examples = re.findall(r"\[dim\](ragauge .*?)\[/dim\]", command.help or "", re.DOTALL)
        if examples:
            yield "```text\n" + "\n".join(" ".join(example.split()) for example in examples) + "\n```\n"
        for panel, parameters in groupby(command.params, key=panel_of):
            yield f"**{panel}**\n\n| option | meaning | default |\n|---|---|---|"
            yield from map(describe_parameter, parameters)
            yield ""


def panel_of(parameter: Any) -> str:
    """Return the title under which `--help` lists a parameter."""
    return getattr(parameter, "rich_help_panel", None) or (
        "Arguments" if parameter.param_type_name == "argument" else "Other options"
    )


def describe_parameter(parameter: Any) -> str:
    """Return the row of a parameter: spelling with its placeholder, meaning, and the default that `--help` shows."""
    placeholder = parameter.metavar or ""
    names = [f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts]]
    label = " ".join(names + ([f"`{placeholder}`"] if placeholder else []))
    if parameter.param_type_name == "argument":
        label = f"`{placeholder or parameter.name}`"
    about = " ".join(MARKUP.sub("", getattr(parameter, "help", None) or "").split())
    default, shown = parameter.default, parameter.show_default
    if not isinstance(shown, str):
        has_value = not (default is None or isinstance(default, bool) or callable(default) or default in ([], ()))
        shown = f"`{default}`" if has_value and shown is not False else ""
    return f"| {escape_cell(label)} | {escape_cell(about)} | {escape_cell(shown)} |"


def describe_exit_codes() -> Iterator[str]:
    """Yield the page of exit codes, with the table of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = re.search(r"^## Exit codes\n+(\|.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    if table is None:
        sys.exit("ARCHITECTURE.md has no table of exit codes")
    yield f"# Exit codes\n\nEvery command ends with one of these codes.\n\n{table[1]}\n"


def escape_cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table; code between backticks is unchanged."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else html.escape(part, quote=False).replace("|", "\\|") for part in parts
    )


def describe_names(title: str, names: Sequence[str]) -> Iterator[str]:
    """Yield a page of public Python names, from their docstrings."""
    yield f"# Python: {title}\n"
    yield "All public names are in `ragauge`; each imports what it needs when it is first used.\n"
    yield from (f"::: ragauge.{name}\n" for name in names)


def describe_schemas() -> Iterator[str]:
    """Yield the JSON Schemas of all results."""
    yield "---\nsearch:\n  exclude: true\n---\n"  # a search for a word would find every key of that name
    yield "# JSON schemas\n"
    yield "Results are written as JSON by these schemas. `ragauge COMMAND --schema` prints the schema of a command.\n"
    for schema, modules in RESULT_MODULES.items():
        text = json.dumps(json_schema_of(schema), indent=1, ensure_ascii=False)
        yield f"## {schema}\n\nWritten by `ragauge {modules.command}`.\n\n```json\n{text}\n```\n"


def find_broken_links(site: Path) -> list[str]:
    """Return links with a missing file or anchor, and resources that pages load from other servers."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(re.findall(r'\sid="([^"]+)"', text)) for page, text in pages.items()}
    broken = []
    for page, text in pages.items():
        name = page.relative_to(site)
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', text)
        loaded += re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(https?:[^"]+)"', text)
        broken += [f"{name}: loads {address}" for address in loaded]
        for target in re.findall(r'<a [^>]*href="([^"]*)"', text):
            parts = urlsplit(html.unescape(target))
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            file = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
            file = file / "index.html" if file.is_dir() else file
            if not file.exists():
                broken.append(f"{name}: {target} does not exist")
            elif parts.fragment and file in anchors and unquote(parts.fragment) not in anchors[file] | {"__skip"}:
                broken.append(f"{name}: {target} has no such anchor")
    return broken


def drop_attributes_from_search(site: Path) -> None:
    """Remove the attributes of classes from the search index, which would hide the pages on a subject."""
    heading = re.compile(r'<div class="doc doc-object doc-attribute">\s*<h\d id="([^"]+)"')
    attributes = {
        f"{page.relative_to(site)}#{name}"
        for page in site.rglob("*.html")
        for name in heading.findall(page.read_text(encoding="utf-8"))
    }
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    index["items"] = [item for item in index["items"] if item["location"] not in attributes]
    (site / "search.json").write_text(json.dumps(index), encoding="utf-8")


def build_site() -> None:
    """Build the site; exit with 1 if a link is broken."""
    assemble_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    program = Path(sys.executable).with_name("zensical")
    subprocess.run([program, "build", "--clean", "--strict"], cwd=ROOT, check=True)
    drop_attributes_from_search(SITE)
    broken = find_broken_links(SITE)
    if broken:
        sys.exit("\n".join(broken))
    sys.stdout.write(f"{len(list(SITE.rglob('*.html')))} pages, no broken link\n")


if __name__ == "__main__":
    build_site()
