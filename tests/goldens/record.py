"""Run the recorded cases and compare their outputs with the recorded ones; see README.md."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

from cases import CASES, Case  # noqa: E402 - the folder must be on the path first

from command import run_python  # noqa: E402

DATA = Path(os.environ.get("RAGAUGE_DATA", HERE.parents[2] / "shared" / "data")).resolve()
ENVIRONMENT = frozenset(
    {
        "made", "created", "generated_at", "finished", "started", "began", "machine", "python", "versions", "version",
        "circumstances", "environment", "provenance", "host", "hash", "folder", "verdict", "headline", "notes",
        "answers", "reused", "libraries", "unreliable_times", "build_cached",
    }
)  # fmt: skip
"""Keys and columns that hold dates, versions, the machine or sentences: they are never compared."""
TIMINGS = frozenset(
    {
        "seconds", "latency", "latencies", "timings", "stages", "total", "cold", "build_seconds", "build_s",
        "load_seconds", "learn_seconds", "qps", "throughput", "harness", "harness_microseconds", "floor",
        "documents_per_second", "clock",
        "texts_per_second", "memory_bytes", "memory", "cost", "elapsed", "speed", "sessions", "p50", "p95",
    }
)  # fmt: skip
"""Keys and columns with times or sizes, in addition to `…_ms` and `…_seconds`: compared only if they were stored."""
SENTENCE_WORDS = 4
"""Minimum number of words of prose, which may be reworded: only its presence is compared."""
RENAMED: dict[str, str] = {}
"""Fields and columns that were renamed after they were recorded: old name, new name."""
RENAMED_FINDINGS = {
    "enough queries": "query count",
    "footing": "comparability",
    "ground truth": "truncated judgments",
    "perfection": "perfect scores",
    "repeats": "trials",
    "repetitions": "repeated documents",
    "survivorship": "missing queries",
}
"""Values of `what` in findings that were renamed after they were recorded."""
RENAMED_CHECKS = {
    "enough": "query-count",
    "footing": "comparability",
    "perfection": "perfect-scores",
    "repeats": "trials",
    "repetitions": "repeated-documents",
    "sameness": "identical-runs",
    "survivorship": "missing-queries",
    "truth": "truncated-judgments",
}
"""Keys of `skipped` that were renamed after they were recorded."""


def run_case(case: Case) -> Any:
    """Return the output of a case as data, without the fields that change from run to run."""
    with tempfile.TemporaryDirectory(prefix="ragauge-golden-") as name:
        folder = Path(name)
        for part in ("inputs", "folders"):
            shutil.copytree(HERE / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        if callable(case.run):
            return keep_stable(json.loads(json.dumps(case.run(folder))), str(folder), case.stored_timings)
        words = [word.replace("{data}", str(DATA)) for word in shlex.split(case.run)]
        env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "RAGAUGE_DATA": str(DATA)}
        done = run_python(["-m", "ragauge", *words], folder, env)
        if done.returncode != case.exit_code:
            raise AssertionError(
                f"{case.name}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return keep_stable(parse(done.stdout), str(folder), case.stored_timings)


def parse(text: str) -> Any:
    """Parse JSON, CSV with a header, or lines with tabs."""
    if text.lstrip().startswith(("{", "[")):
        return json.loads(text)
    if "\t" in text.partition("\n")[0]:
        return [[parse_cell(cell.strip()) for cell in line.split("\t")] for line in text.splitlines()]
    return [{name: parse_cell(cell) for name, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]


def parse_cell(text: str | None) -> Any:
    """Convert a cell to a number if possible; return other text unchanged."""
    try:
        number = float(text or "")
    except ValueError:
        return text
    return int(number) if number.is_integer() and "." not in str(text) else number


def keep_stable(data: Any, folder: str, stored_timings: bool) -> Any:
    """Drop unstable fields, replace sentences with a placeholder, and remove the paths of this machine."""
    if isinstance(data, dict):
        kept = {key: value for key, value in data.items() if is_compared(str(key).lower(), stored_timings)}
        return {key: keep_stable(value, folder, stored_timings) for key, value in kept.items()}
    if isinstance(data, list):
        return [keep_stable(value, folder, stored_timings) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if not isinstance(data, str):
        return data
    return "<text>" if len(data.split()) >= SENTENCE_WORDS else data.replace(folder, "").replace(str(DATA), "")


def is_compared(key: str, stored_timings: bool) -> bool:
    """Return whether a field has the same value in every run and is compared."""
    return key.rpartition(" ")[2] not in ENVIRONMENT and (
        stored_timings or not (key in TIMINGS or key.endswith(("_ms", "_seconds")))
    )


def find_differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield one line per value that differs, with its path."""
    if isinstance(old, dict) and isinstance(new, dict):
        renamed = RENAMED_CHECKS if path.endswith("/skipped") else RENAMED
        old = {renamed.get(key, key): value for key, value in old.items()}
        if isinstance(old.get("what"), str):
            old["what"] = RENAMED_FINDINGS.get(old["what"], old["what"])
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in new:
                yield f"{path}/{key}: missing, recorded {_shorten(old[key])}"
            elif key not in old:
                yield f"{path}/{key}: not recorded, now {_shorten(new[key])}"
            else:
                yield from find_differences(old[key], new[key], f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{path}: {len(new)} entries, recorded {len(old)}"
        for place, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from find_differences(before, after, f"{path}[{place}]")
    elif not _equal(old, new):
        yield f"{path}: {_shorten(new)}, recorded {_shorten(old)}"


def _equal(old: Any, new: Any) -> bool:
    numbers = (int, float)
    if isinstance(old, numbers) and isinstance(new, numbers) and not isinstance(old, bool):
        return math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-12)
    return type(old) is type(new) and bool(old == new)


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."


def output_path(case: Case) -> Path:
    """Return the file that holds the recorded output of a case."""
    return HERE / "outputs" / f"{case.name}.json"


def find_skip_reason(case: Case) -> str:
    """Return why a case cannot be compared on this machine; empty if it can."""
    if case.needs == "pydocs":
        recorded = (HERE / "outputs/PYTHON").read_text(encoding="utf-8").strip()
        return "" if platform.python_version() == recorded else f"recorded with the documentation of Python {recorded}"
    missing = case.needs and not (DATA / case.needs).exists()
    return f"{case.needs} is not in {DATA} (set RAGAUGE_DATA)" if missing else ""


def compare_case(case: Case) -> list[str]:
    """Run a case and list its differences from the recorded output."""
    recorded = json.loads(output_path(case).read_text(encoding="utf-8"))
    return list(find_differences(recorded, run_case(case)))


def main() -> int:
    """Compare, record or check the stability of cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases whose names begin like this; all without any")
    parser.add_argument("--write", action="store_true", help="record the outputs")
    parser.add_argument("--stable", action="store_true", help="run every case twice and compare")
    options = parser.parse_args()
    chosen = [case for case in CASES if not options.names or case.name.startswith(tuple(options.names))]
    if options.write and not options.names:
        (HERE / "outputs/PYTHON").write_text(platform.python_version() + "\n", encoding="utf-8")
    failed = 0
    for case in chosen:
        reason = "" if options.write else find_skip_reason(case)
        if reason:
            sys.stdout.write(f"skipped  {case.name}: {reason}\n")
            continue
        try:
            if options.stable:
                lines = list(find_differences(run_case(case), run_case(case)))
            elif options.write:
                text = json.dumps(run_case(case), indent=1, ensure_ascii=False, sort_keys=False)
                output_path(case).write_text(text + "\n", encoding="utf-8")
                lines = []
            else:
                lines = compare_case(case)
        except (AssertionError, OSError, ValueError) as error:
            lines = [f"{type(error).__name__}: {error}"]
        failed += bool(lines)
        sys.stdout.write(f"{'differs' if lines else 'recorded' if options.write else 'equal'}  {case.name}\n")
        sys.stdout.writelines(f"    {line}\n" for line in lines[:20])
        sys.stdout.flush()
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
