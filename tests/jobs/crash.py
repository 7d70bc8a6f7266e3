"""Kills at random points: commands that are killed and run again must end with the result of an uninterrupted run.

    python tests/jobs/crash.py 20 --seed 7           # 20 kills per command; without a seed, a random one is printed
    python tests/jobs/crash.py 5 --only judge,run    # some of the commands only

Each command runs once without interruption. Then it runs in an empty folder and is killed with SIGKILL at random
moments: its main process alone, or all its processes. After each kill it runs again; the last run is not killed. The
results must be equal apart from times, the requests to servers are counted, and no temporary file may remain.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "helpers"))

from chat_server import serving_chat  # noqa: E402
from servers import serving  # noqa: E402

KILLS_PER_SERIES = 4
"""Number of kills before a command is allowed to finish."""
TIMEOUT_S = 300


class Job(NamedTuple):
    """A command that is killed and resumed."""

    words: list[str]
    """Arguments of `ragauge`, with {url} for the address of its server."""
    result: Callable[[Path, str], Any]
    """Reads what must be equal from the working folder and the standard output."""
    server: Callable[[], Any] | None = None
    """Context manager that yields an address and a function that counts the requests so far."""
    repeated: int = 0
    """Maximum number of requests that each kill may cause a second time: those in flight, warm-up and probes."""


class Outcome(NamedTuple):
    """One series of kills and the run that finished."""

    command: str
    kills: list[str]
    problems: list[str]
    requests: int
    baseline: int


# --- Servers and inputs ----------------------------------------------------------------------------------------------


@contextmanager
def search_server() -> Iterator[tuple[str, Callable[[], int]]]:
    """Serve searches of the dataset: the order of the documents depends only on the query."""
    lock, count = threading.Lock(), [0]

    def answer(body: dict[str, Any], _: Any) -> tuple[int, Any]:
        with lock:
            count[0] += 1
        time.sleep(0.01)
        order = random.Random(body["query"]).sample(range(1000), body["k"])
        return 200, [{"id": f"d{place:05d}", "score": 1 / (rank + 1)} for rank, place in enumerate(order)]

    with serving(answer) as url:
        yield f"{url}/search", lambda: count[0]


@contextmanager
def judge_server() -> Iterator[tuple[str, Callable[[], int]]]:
    """Serve a chat model that gives the same reply to the same request."""
    with serving_chat(latency=0.05) as server:
        yield server.url, lambda: server.calls


def write_inputs(folder: Path) -> None:
    """Write samples for `judge` and labelled samples for `calibrate`."""
    rng = random.Random(0)
    places = ["Paris", "Rome", "Oslo", "Lima", "Cairo"]
    rows = []
    for number in range(40):
        place = rng.choice(places)
        rows.append(
            {
                "id": f"s{number}",
                "question": f"Where is tower {number}?",
                "answer": f"Tower {number} is in {place}. It has {number} floors.",
                "contexts": [f"Tower {number} is in {rng.choice(places)}.", f"Tower {number} has {number} floors."],
                "reference": f"Tower {number} is in {place}.",
                "labels": {"faithfulness": number % 2},
            }
        )
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


# --- Results ---------------------------------------------------------------------------------------------------------


def run_result(folder: Path, _: str) -> Any:
    import polars as pl

    ranking = pl.read_parquet(folder / "out" / "system" / "run.parquet")
    statuses = pl.read_parquet(folder / "out" / "system" / "timings.parquet").select("query", "repeat", "status")
    return {
        "scores": (folder / "out" / "scores.csv").read_text(encoding="utf-8"),
        "ranking": ranking.sort(ranking.columns).to_dicts(),
        "statuses": statuses.sort("query", "repeat").to_dicts(),
    }


def bench_result(_: Path, out: str) -> Any:
    data = json.loads(out)
    points = [[point["configuration"], point["quality"]] for point in data["points"]]
    return {"k": data["k"], "vectors": data["vectors"], "points": sorted(points, key=json.dumps)}


def judge_result(folder: Path, _: str) -> Any:
    with (folder / "out" / "scores.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def stress_result(_: Path, out: str) -> Any:
    data = json.loads(out)
    return [
        [way["name"], way["documents"], way.get("broken"), way.get("quality"), data["read_back"]]
        for way in data["modes"]
    ]


def calibrate_result(_: Path, out: str) -> Any:
    def without_cost(data: Any) -> Any:
        if isinstance(data, dict):
            left_out = ("total", "provenance", "created", "calls", "seconds", "cost", "tokens")
            return {name: without_cost(value) for name, value in data.items() if name not in left_out}
        return [without_cost(value) for value in data] if isinstance(data, list) else data

    return without_cost(json.loads(out))


CHAT = ["--chat", "openai:test@{url}"]
JOBS = {
    "run": Job(
        ["run", "synthetic:needles", "-s", "system=http(url={url})", "--repeats", "3", "-o", "out", "--reuse"],
        run_result, search_server, repeated=8,
    ),
    "bench": Job(
        ["bench", "clustered", "--store", "exact", "--store", "hnswlib", "--max-vectors", "2000", "--max-queries", "50",
         "--repeats", "2", "--out", "out", "--json"],
        bench_result,
    ),
    "judge": Job(
        ["judge", "samples.jsonl", *CHAT, "-m", "faithfulness", "-m", "context_recall", "--workers", "4",
         "-o", "out"],
        judge_result, judge_server, repeated=10,
    ),
    "stress": Job(
        ["stress", "--store", "memory", "--corpus", "synthetic:needles", "--embedder", "words(dimensions=64)",
         "--max-documents", "200", "--kills", "0", "--json"],
        stress_result,
    ),
    "calibrate": Job(
        ["calibrate", "samples.jsonl", *CHAT, "--replicates", "2", "--workers", "4", "-o", "out", "--json"],
        calibrate_result, judge_server, repeated=10,
    ),
}  # fmt: skip


# --- Kills -----------------------------------------------------------------------------------------------------------


class Workplace:
    """Folder in which one command runs, with its own inputs, cache and temporary folder."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder, self._words = folder, words
        self.ended_after_s: float | None = None
        """Seconds that the command took if it ended before the kill."""
        for name in ("tmp", "cache"):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
        write_inputs(folder)
        self._environment = {
            **os.environ,
            "TMPDIR": str(folder / "tmp"),
            "RAGAUGE_CACHE": str(folder / "cache"),
            "OPENAI_API_KEY": "test",
            "NO_COLOR": "1",
            "COLUMNS": "80",
        }

    def start(self) -> subprocess.Popen[str]:
        with (self.folder / "stdout").open("w") as out, (self.folder / "stderr").open("w") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "ragauge", *self._words],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )

    def finish(self) -> str:
        """Run the command to its end; return an error message, empty if it succeeded."""
        process = self.start()
        code = process.wait(timeout=TIMEOUT_S)
        err = (self.folder / "stderr").read_text()
        return "" if code == 0 and "Traceback" not in err else f"exit code {code}: {err[-500:]}"

    def kill_repeatedly(self, kills: int, duration_s: float, rng: random.Random) -> Iterator[str]:
        """Start and kill the command at random moments, and describe each kill; stop if the command ends first."""
        for _ in range(kills):
            # Most kills come after the libraries are loaded, when the command has results to lose.
            seconds = rng.uniform(0.3 if rng.random() < 0.8 else 0.0, 0.98) * duration_s
            group = rng.random() < 0.5
            process, began = self.start(), time.monotonic()
            try:
                process.wait(timeout=seconds)
                self.ended_after_s = time.monotonic() - began
                return
            except subprocess.TimeoutExpired:
                (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
                process.wait()
            yield f"{'all processes' if group else 'main process'} after {seconds:.2f} s"

    def result(self, job: Job) -> Any:
        """Read the result that must equal that of the uninterrupted run."""
        return job.result(self.folder, (self.folder / "stdout").read_text(encoding="utf-8"))

    def leftovers(self) -> list[str]:
        """List temporary files that remain."""
        parts = [str(path.relative_to(self.folder)) for path in self.folder.rglob(".*.part")]
        return [*parts, *(f"tmp/{path.name}" for path in (self.folder / "tmp").glob("ragauge-*-*-*-*"))]


def crash(command: str, kills: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Kill a command `kills` times, in series of up to KILLS_PER_SERIES, and yield the outcome of each series."""
    job, rng = JOBS[command], random.Random(f"{command} {seed}")
    # One server for all series, because its address is part of the results.
    with job.server() if job.server else no_server() as (url, requests):
        words = [word.replace("{url}", url) for word in job.words]
        workplace = Workplace(folder / f"{command}-0", words)
        began = time.monotonic()
        if failure := workplace.finish():
            yield Outcome(command, [], [failure], requests(), 0)
            return
        expected, duration_s, baseline = workplace.result(job), time.monotonic() - began, requests()
        yield Outcome(command, [], workplace.leftovers(), baseline, baseline)
        series, max_series = 0, 2 * kills
        while kills > 0 and series < max_series:
            series += 1
            before = requests()
            workplace = Workplace(folder / f"{command}-{series}", words)
            kill_list = list(workplace.kill_repeatedly(min(kills, KILLS_PER_SERIES), duration_s, rng))
            kills -= len(kill_list)
            duration_s = min(duration_s, workplace.ended_after_s or duration_s)  # the machine may be less busy now
            failure = workplace.finish()
            request_count, allowed = requests() - before, baseline + job.repeated * len(kill_list)
            problems = [failure] if failure else [f"left behind: {name}" for name in workplace.leftovers()]
            if not failure and workplace.result(job) != expected:
                problems.append("the result differs from that of an uninterrupted run")
            if request_count > allowed:
                problems.append(f"{request_count} requests, at most {allowed} expected")
            yield Outcome(command, kill_list, problems, request_count, baseline)
            if not problems:
                shutil.rmtree(workplace.folder)


@contextmanager
def no_server() -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield an empty address and a count of 0 requests, for a command without a server."""
    yield "", lambda: 0


def main() -> int:
    """Kill every command, print each series, and return 1 if one has problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", nargs="?", type=int, default=20, help="number of kills per command")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default=",".join(JOBS), help=f"commands, of {', '.join(JOBS)}")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    sys.stdout.write(f"seed {seed}, {options.kills} kills per command, files in {folder}\n")
    failed = 0
    for command in options.only.split(","):
        for outcome in crash(command, options.kills, seed, folder):
            counted = f", {outcome.requests} requests (uninterrupted {outcome.baseline})" if outcome.baseline else ""
            killed = "; ".join(outcome.kills) or "not killed"
            sys.stdout.write(f"{command}: {killed}{counted}: {'; '.join(outcome.problems) or 'ok'}\n")
            sys.stdout.flush()
            failed += bool(outcome.problems)
    sys.stdout.write(f"seed {seed}: {failed} series with problems\n")
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
