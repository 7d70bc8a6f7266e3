"""What judging costs: calls, tokens, wall time and processor time for four measures, beside ragas and DeepEval.

Writes JUDGES.md. A server on this machine speaks OpenAI's protocol and takes 50 ms a reply, in a process of its own.
It obeys whatever schema it is given and knows nothing, so the scores mean nothing and are not shown; what is counted is
the work. The peers run in an environment of their own (`--peers PYTHON`; `make bench` makes one), because they ask for
other versions of what is used here; without it they are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragauge.judging import judge_unsaved
from ragauge.runs.folder import provenance

HERE = Path(__file__).parent
MEASURES = ["faithfulness", "context_precision", "context_recall", "answer_relevance"]
WORDS = (
    "river harbour tower stone bridge winter market glass copper engine signal captain letter island forest paper "
    "colour number garden window summer morning station village"
)
LATENCY = 0.05


def samples(n: int, contexts: int) -> list[dict[str, Any]]:
    """Answers of four sentences, references of three, chunks of six; the same every time."""
    chance = random.Random(0)
    words = WORDS.split()

    def text(sentences: int) -> str:
        return " ".join(
            f"{' '.join(chance.choice(words) for _ in range(14)).capitalize()} {chance.randrange(1000)}."
            for _ in range(sentences)
        )

    return [
        {
            "id": f"s{i}",
            "question": f"What is known about the {chance.choice(words)} and the {chance.choice(words)} of {i}?",
            "answer": text(4),
            "contexts": [text(6) for _ in range(contexts)],
            "reference": text(3),
        }
        for i in range(n)
    ]


@contextmanager
def server(*traits: str) -> Iterator[str]:
    """The address of a server that takes its time."""
    command = [sys.executable, str(HERE.parent / "tests" / "helpers" / "chat_server.py"), "--latency", str(LATENCY)]
    process = subprocess.Popen(
        [*command, *(part for trait in traits for part in ("--trait", trait))], stdout=subprocess.PIPE, text=True
    )
    try:
        if process.stdout is None:
            raise RuntimeError("the server has no output")
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def stats(url: str) -> dict[str, Any]:
    """What the server was asked."""
    with urllib.request.urlopen(url.replace("/v1", "/stats")) as reply:
        found: dict[str, Any] = json.load(reply)
    return found


def ours(url: str, rows: list[dict[str, Any]], concurrency: int, folder: str) -> dict[str, Any]:
    """The four measures, with every reply kept on disk."""
    began, cpu = time.perf_counter(), time.process_time()
    found = judge_unsaved(
        rows,
        MEASURES,
        chat=f"openai:test@{url}",
        folder=folder,
        workers=concurrency,
        embedder="words",
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "scored": min(found.scores.n.values())}


def sdk(url: str, rows: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """The SDK alone: as many typed calls about as long, read by nobody and kept nowhere."""
    import openai

    async def work() -> None:
        left = iter([text for row in rows for text in [" ".join(row["contexts"])] * 5])
        async with openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0) as client:

            async def worker() -> None:
                for text in left:
                    messages: Any = [{"role": "user", "content": text}]
                    await client.chat.completions.create(model="test", messages=messages, temperature=0)

            await asyncio.gather(*(worker() for _ in range(concurrency)))

    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(work())
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "scored": 0}


def measured(name: str, work: Any) -> dict[str, Any]:
    """What a tool did, and what the server saw of it."""
    with server() as url:
        found: dict[str, Any] = work(url)
        return {"name": name, **found, **stats(url)}


def peer(which: str, python: str, file: str, concurrency: int) -> Any:
    """Another tool, in its own environment."""

    def work(url: str) -> dict[str, Any]:
        done = subprocess.run(
            [python, str(HERE / "judges_peers.py"), which, url, file, str(concurrency)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, cwd=tempfile.gettempdir(),
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "scored": min(n for _, n in found["means"].values())}

    return work


def table(rows: list[dict[str, Any]], n: int, concurrency: int) -> list[str]:
    """The figures as Markdown."""
    lines = [
        "| | calls | calls a sample | prompt tokens | reply tokens | wall | of the ideal | CPU a call | scored |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        ideal = row["calls"] * LATENCY / concurrency
        scored = f"{row['scored']} of {n}" if row["scored"] else ""
        lines.append(
            f"| {row['name']} | {row['calls']:,} | {row['calls'] / n:.1f} | {row['prompt_tokens']:,} "
            f"| {row['completion_tokens']:,} | {row['seconds']:.1f} s | {ideal / row['seconds']:.0%} "
            f"| {1000 * row['cpu'] / row['calls']:.2f} ms | {scored} |"
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--contexts", type=int, default=5)
    parser.add_argument("--peers", default=str(HERE.parent / ".venv-peers" / "bin" / "python"))
    given = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "x")
    data = samples(given.samples, given.contexts)
    machine = provenance()["machine"]
    lines = [
        "# What judging costs",
        "",
        f"On {machine['cores']} cores ({machine['processor']}), Python {sys.version.split()[0]}: "
        f"{given.samples} samples of {given.contexts} contexts, four measures, a server that takes "
        f"{LATENCY * 1000:.0f} ms a reply. The ideal is calls x latency / calls at a time; CPU is all of the client's "
        "process, over its calls. ragauge keeps every reply on disk; the SDK alone makes as many typed calls, about as "
        "long.",
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in data))
        with server() as url:  # once before the clock, so that no import is timed
            ours(url, data[:2], 2, f"{folder}/warm")
        for concurrency in (16, 64):
            found = [
                measured("ragauge", lambda url, c=concurrency: ours(url, data, c, f"{folder}/{c}")),
                measured("the openai SDK alone", lambda url, c=concurrency: sdk(url, data, c)),
            ]
            python = str(Path(given.peers).absolute())
            if Path(python).exists():
                for which in ("ragas", "deepeval"):
                    found.append(measured(which, peer(which, python, str(file), concurrency)))
            lines += ["", f"## {concurrency} calls at a time", "", *table(found, given.samples, concurrency)]
    text = "\n".join(lines) + "\n"
    print(text)
    HERE.joinpath("JUDGES.md").write_text(text)
