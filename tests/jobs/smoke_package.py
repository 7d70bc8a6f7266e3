"""Install a built wheel or sdist into an empty environment and run the first examples of a new user.

python tests/jobs/smoke_package.py dist/ragauge-0.1.0-py3-none-any.whl
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
QRELS = "q1 0 d1 1\nq2 0 d7 1\n"
MAX_WHEEL_BYTES = 3_000_000
RUN = "q1 Q0 d1 1 0.9 a\nq2 Q0 d3 1 0.7 a\n"


def run(folder: Path, *words: str | Path) -> str:
    """Run a program in a folder and return its standard output; exit if it fails."""
    done = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def readme_example() -> str:
    """Return the first Python example of the README; its comments `# -> …` are the expected output."""
    match = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    if match is None:
        sys.exit("README.md has no Python example")
    return match[1]


def check_wheel(wheel: Path) -> None:
    """Check that a wheel is small and typed, and contains only the package, without tests."""
    names = zipfile.ZipFile(wheel).namelist()
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        sys.exit(f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {MAX_WHEEL_BYTES:,}")
    if "ragauge/py.typed" not in names:
        sys.exit(f"{wheel.name} lacks py.typed")
    outside = [name for name in names if not name.startswith(("ragauge/", "ragauge-")) or "/tests/" in name]
    if outside:
        sys.exit(f"{wheel.name} has {outside[0]}")


def smoke(package: Path) -> None:
    """Install a package and run the README's example, `demo --quick`, `evaluate` and `report`."""
    if package.suffix == ".whl":
        check_wheel(package)
    with tempfile.TemporaryDirectory(prefix="ragauge-smoke-") as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python, ragauge = folder / "env/bin/python", folder / "env/bin/ragauge"
        run(folder, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package.resolve())
        example = readme_example()
        printed = run(folder, python, "-c", example).splitlines()
        expected = [line.removeprefix("# -> ") for line in example.splitlines() if line.startswith("# -> ")]
        if printed != expected:
            sys.exit(f"the README's example printed {printed}, not {expected}")
        demo = run(folder, ragauge, "demo", "--quick")
        if "bm25" not in demo or "hybrid" not in demo:
            sys.exit(f"`ragauge demo --quick` printed\n{demo}")
        (folder / "qrels.txt").write_text(QRELS)
        (folder / "a.run").write_text(RUN)
        if "0.5000" not in run(folder, ragauge, "evaluate", "qrels.txt", "a.run", "-m", "mrr"):
            sys.exit("`ragauge evaluate` did not print mrr 0.5000")
        run(folder, ragauge, "report", "qrels.txt", "a.run", "-o", "report.md")
        run(
            folder,
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            f"{package.resolve()}[report]",
        )
        run(folder, ragauge, "report", "demo", "-o", "report.html")
        if (folder / "report.html").stat().st_size < 100_000:
            sys.exit("report.html is not a page")
        sys.stdout.write(f"{package.name}: installed, README example, demo --quick, evaluate and report work\n")


if __name__ == "__main__":
    for path in sys.argv[1:]:
        smoke(Path(path))
