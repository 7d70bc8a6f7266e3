"""Measure the cost of judging with ragauge, ragas and DeepEval.

Counts calls, tokens, wall-clock time and CPU time, and writes JUDGES.md. A local server in a process of its own speaks
the OpenAI protocol and takes 50 ms per reply. It fills any given schema with arbitrary values, so the scores mean
nothing and are not shown; only the work is counted. The other tools run in a separate environment (`--peers PYTHON`;
`make bench` creates one), because they need other versions of the same libraries. Without that environment they are
omitted.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ragauge.judging.judge import judge_unsaved
from ragauge.runs.folder import provenance

HERE = Path(__file__).parent
MEASURES = ["faithfulness", "context_precision", "context_recall", "answer_relevance"]
WORDS = (
    "river harbour tower stone bridge winter market glass copper engine signal captain letter island forest paper "
    "colour number garden window summer morning station village"
)
LATENCY_S = 0.05


def generate_samples(n: int, n_contexts: int) -> list[dict[str, Any]]:
    """Generate samples from a fixed seed.

    Answers have four sentences, references three, and contexts six.
    """
    rng = random.Random(0)
    words = WORDS.split()

    def text(n_sentences: int) -> str:
        return " ".join(
            f"{' '.join(rng.choice(words) for _ in range(14)).capitalize()} {rng.randrange(1000)}."
            for _ in range(n_sentences)
        )

    return [
        {
            "id": f"s{i}",
            "question": f"What is known about the {rng.choice(words)} and the {rng.choice(words)} of {i}?",
            "answer": text(4),
            "contexts": [text(6) for _ in range(n_contexts)],
            "reference": text(3),
        }
        for i in range(n)
    ]


@contextmanager
def run_server() -> Iterator[str]:
    """Run a chat server with a latency of LATENCY_S, and yield its address."""
    script = HERE.parent / "tests" / "helpers" / "chat_server.py"
    process = subprocess.Popen(
        [sys.executable, str(script), "--latency", str(LATENCY_S)], stdout=subprocess.PIPE, text=True
    )
    try:
        if process.stdout is None:
            raise RuntimeError("the server has no output")
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def fetch_stats(url: str) -> dict[str, Any]:
    """Return the counts of calls and tokens of the server."""
    with urllib.request.urlopen(url.replace("/v1", "/stats")) as reply:
        stats: dict[str, Any] = json.load(reply)
    return stats


def judge_with_ragauge(url: str, samples: list[dict[str, Any]], concurrency: int, folder: str) -> dict[str, Any]:
    """Judge the four measures, with every reply saved on disk."""
    start, cpu = time.perf_counter(), time.process_time()
    judged = judge_unsaved(
        samples,
        MEASURES,
        chat=f"openai:test@{url}",
        folder=folder,
        workers=concurrency,
        embedder="words",
    )
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "scored": min(judged.scores.n.values())}


def call_with_sdk(url: str, samples: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """Make as many calls as ragauge with the openai SDK alone.

    Prompts have a similar length. Replies are neither parsed nor saved.
    """
    import openai

    async def make_calls() -> None:
        prompts = iter([text for sample in samples for text in [" ".join(sample["contexts"])] * 5])
        async with openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0) as client:

            async def worker() -> None:
                for prompt in prompts:
                    messages: Any = [{"role": "user", "content": prompt}]
                    await client.chat.completions.create(model="test", messages=messages, temperature=0)

            await asyncio.gather(*(worker() for _ in range(concurrency)))

    start, cpu = time.perf_counter(), time.process_time()
    asyncio.run(make_calls())
    return {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu, "scored": 0}


def measure_tool(name: str, judge: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Run one tool with a new server; return its times and the server's counts."""
    with run_server() as url:
        measurements = judge(url)
        return {"name": name, **measurements, **fetch_stats(url)}


def judge_with_peer(tool: str, python: str, file: str, concurrency: int) -> Callable[[str], dict[str, Any]]:
    """Return a function that judges the samples of a file with another tool."""

    def judge(url: str) -> dict[str, Any]:
        done = subprocess.run(
            [python, str(HERE / "judges_peers.py"), tool, url, file, str(concurrency)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, cwd=tempfile.gettempdir(),
        )  # fmt: skip
        measurements: dict[str, Any] = json.loads(done.stdout)
        return {**measurements, "scored": min(n for _, n in measurements["means"].values())}

    return judge


def build_table(rows: list[dict[str, Any]], n_samples: int, concurrency: int) -> list[str]:
    """Return a Markdown table with one row per tool."""
    lines = [
        "| tool | calls | calls per sample | prompt tokens | reply tokens | wall-clock time | ideal / measured time "
        "| CPU time per call | scored samples |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        ideal = row["calls"] * LATENCY_S / concurrency
        scored = f"{row['scored']} of {n_samples}" if row["scored"] else ""
        lines.append(
            f"| {row['name']} | {row['calls']:,} | {row['calls'] / n_samples:.1f} | {row['prompt_tokens']:,} "
            f"| {row['completion_tokens']:,} | {row['seconds']:.1f} s | {ideal / row['seconds']:.0%} "
            f"| {1000 * row['cpu'] / row['calls']:.2f} ms | {scored} |"
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200, help="number of samples")
    parser.add_argument("--contexts", type=int, default=5, help="number of contexts per sample")
    parser.add_argument(
        "--peers",
        default=str(HERE.parent / ".venv-peers" / "bin" / "python"),
        help="Python of the environment with ragas and DeepEval",
    )
    args = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "x")
    samples = generate_samples(args.samples, args.contexts)
    machine = provenance()["machine"]
    lines = [
        "# Cost of judging",
        "",
        f"On {machine['cores']} cores ({machine['processor']}), Python {sys.version.split()[0]}: "
        f"{args.samples} samples with {args.contexts} contexts each, four measures, a server that takes "
        f"{LATENCY_S * 1000:.0f} ms per reply. The ideal time is calls x latency / concurrent calls. CPU time is that "
        "of the whole client process. ragauge saves every reply on disk. The openai SDK alone makes as many calls as "
        "ragauge, with prompts of similar length.",
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.jsonl"
        file.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        with run_server() as url:  # untimed, so that imports are not measured
            judge_with_ragauge(url, samples[:2], 2, f"{folder}/warm")
        for concurrency in (16, 64):
            ragauge = partial(
                judge_with_ragauge, samples=samples, concurrency=concurrency, folder=f"{folder}/{concurrency}"
            )
            sdk = partial(call_with_sdk, samples=samples, concurrency=concurrency)
            rows = [measure_tool("ragauge", ragauge), measure_tool("openai SDK alone", sdk)]
            python = str(Path(args.peers).absolute())
            if Path(python).exists():
                for tool in ("ragas", "deepeval"):
                    rows.append(measure_tool(tool, judge_with_peer(tool, python, str(file), concurrency)))
            lines += ["", f"## {concurrency} concurrent calls", "", *build_table(rows, args.samples, concurrency)]
    text = "\n".join(lines) + "\n"
    print(text)
    HERE.joinpath("JUDGES.md").write_text(text)
