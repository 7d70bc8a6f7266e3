"""Run the examples of documentation pages and write their output into the pages.

Usage: `python tests/jobs/update_docs.py docs/audit.md …`; without a page, all pages. Review the differences before you
commit them: a changed number is a defect, a changed sentence may be intended.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from command import run_python, run_shell  # noqa: E402
from docs_examples import CONSOLE_ENVIRONMENT, PAGES, is_run, mask_dates, split_commands  # noqa: E402


def update_console_blocks(text: str, folder: Path) -> str:
    """Return the text of a page with the current output of its commands."""

    def update_block(block: re.Match[str]) -> str:
        lines = []
        for line, claimed in split_commands(block[1]):
            printed = claimed
            if is_run(line):
                done = run_shell(line, folder, CONSOLE_ENVIRONMENT)
                output = (done.stdout + done.stderr).rstrip()
                if mask_dates(output) != mask_dates(claimed.rstrip()):
                    printed = output + "\n" * (claimed.endswith("\n\n") + 1) if output else ""
            lines.append(f"$ {line}\n{printed}")
        return f"```console\n{''.join(lines)}```"

    return re.sub(r"```console\n(.*?)```", update_block, text, flags=re.S)


def update_python_blocks(text: str, folder: Path) -> str:
    """Return the text of a page with the current output of its Python examples in the comments `# -> …`."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
    (folder / "block.py").write_text(code)
    done = run_python(["block.py"], folder)
    claimed, printed = re.findall(r"# -> .*", text), done.stdout.splitlines()
    if done.returncode or len(claimed) != len(printed):
        sys.stderr.write(f"{len(claimed)} lines claimed, {len(printed)} printed: edit by hand\n{done.stderr}\n")
        return text
    lines = iter(printed)
    return re.sub(r"# -> .*", lambda _: f"# -> {next(lines)}", text)


def main() -> None:
    """Update the pages named on the command line, or all pages."""
    for page in sys.argv[1:] or PAGES:
        path = ROOT / page
        before = text = path.read_text(encoding="utf-8")
        for update in (update_console_blocks, update_python_blocks):
            with tempfile.TemporaryDirectory() as folder:
                text = update(text, Path(folder))
        if text != before:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"changed {page}\n")


if __name__ == "__main__":
    main()
