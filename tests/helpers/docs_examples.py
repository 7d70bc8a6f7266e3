"""Examples in README and docs: console blocks of commands and their output, and Python blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
CONSOLE_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "COLUMNS": "80", "HOME": "/", "RAGAUGE_DATA": ""}
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
"""Date of a result, which differs between runs."""


def find_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)


def split_commands(block: str) -> list[tuple[str, str]]:
    """Split a console block into commands and the output that follows each."""
    commands = re.split(r"^\$ ", block, flags=re.M)[1:]
    return [(line, output) for line, _, output in (command.partition("\n") for command in commands)]


def is_run(line: str) -> bool:
    return line.startswith(("ragauge", "printf"))


def mask_dates(text: str) -> str:
    return DATE.sub("DATE", text)
