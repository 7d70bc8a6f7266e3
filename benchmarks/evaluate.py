"""Measure the speed and memory of `evaluate` and of other tools.

The other tools are pytrec_eval, ir_measures, ranx and, if it is installed, trec_eval. Each tool runs in a process of
its own on the same data, in turn with the others. The benchmark stops if the means of a tool differ. Prints a Markdown
table, and writes it to benchmarks/RESULTS.md.

    python benchmarks/evaluate.py              # all sizes, about ten minutes
    python benchmarks/evaluate.py --quick      # the small sizes only
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

MEASURES = ["ndcg@10", "map@100", "mrr", "recall@100", "precision@10", "hit_rate@10"]
TREC_NAMES = ["ndcg_cut.10", "map_cut.100", "recip_rank", "recall.100", "P.10", "success.10"]
IR_NAMES = ["nDCG@10", "AP@100", "RR", "R@100", "P@10", "Success@10"]
RANX_NAMES = ["ndcg@10", "map@100", "mrr", "recall@100", "precision@10", "hit_rate@10"]
JUDGED = 20
Means = list[float]
HERE = Path(__file__).resolve().parent


def write_data(folder: Path, queries: int, docs: int, *, tied: bool, shuffled: bool = False) -> None:
    """Write a random run and judgments, half of them for retrieved documents.

    Tied scores have one decimal.
    """
    rng = np.random.default_rng(queries + docs)
    with (folder / "run.trec").open("w") as run, (folder / "qrels.trec").open("w") as qrels:
        for q in range(queries):
            ids = rng.choice(8_800_000, docs, replace=False)
            scores = np.sort(rng.random(docs) * 30)[::-1]
            if shuffled:
                rng.shuffle(scores)
            score_texts = [f"{score:.1f}" if tied else f"{score:.6f}" for score in scores]
            hits = enumerate(zip(ids.tolist(), score_texts, strict=True), 1)
            run.write("".join(f"{q} Q0 d{i} {rank} {score} bench\n" for rank, (i, score) in hits))
            judged = [*rng.choice(ids, JUDGED // 2, replace=False), *rng.choice(8_800_000, JUDGED // 2)]
            for i in dict.fromkeys(int(j) for j in judged):
                qrels.write(f"{q} 0 d{i} {rng.integers(0, 4)}\n")


def read_dictionaries(folder: Path) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Read the judgments and the run of a folder into nested dictionaries."""
    qrels: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for line in (folder / "qrels.trec").open():
        query, _, document, grade = line.split()
        qrels.setdefault(query, {})[document] = int(grade)
    for line in (folder / "run.trec").open():
        query, _, document, _, score, _ = line.split()
        run.setdefault(query, {})[document] = float(score)
    return qrels, run


# Each function below prepares the input that users of the tool already have, and returns the function to be timed.


def prepare_ragauge_dicts(folder: Path) -> Callable[[], Means]:
    from ragauge import evaluate

    qrels, run = read_dictionaries(folder)
    return lambda: list(evaluate(qrels, run, MEASURES).means.values())


def prepare_pytrec_eval_dicts(folder: Path) -> Callable[[], Means]:
    import pytrec_eval

    qrels, run = read_dictionaries(folder)
    keys = [n.replace(".", "_") for n in TREC_NAMES]

    def compute_means() -> Means:
        scores = pytrec_eval.RelevanceEvaluator(qrels, set(TREC_NAMES)).evaluate(run)
        return [statistics.fmean(values[key] for values in scores.values()) for key in keys]

    return compute_means


def prepare_ir_measures_dicts(folder: Path) -> Callable[[], Means]:
    import ir_measures

    qrels, run = read_dictionaries(folder)
    measures = [ir_measures.parse_measure(n) for n in IR_NAMES]

    def compute_means() -> Means:
        means = ir_measures.calc_aggregate(measures, qrels, run)
        return [float(means[measure]) for measure in measures]

    return compute_means


def prepare_ranx_dicts(folder: Path) -> Callable[[], Means]:
    import ranx

    qrels, run = read_dictionaries(folder)

    def compute_means() -> Means:
        means = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), RANX_NAMES, make_comparable=True)
        return [float(means[name]) for name in RANX_NAMES]

    return compute_means


def prepare_ragauge_file(folder: Path) -> Callable[[], Means]:
    from ragauge import evaluate

    return lambda: list(evaluate(folder / "qrels.trec", folder / "run.trec", MEASURES).means.values())


def prepare_ragauge_parquet(folder: Path) -> Callable[[], Means]:
    from ragauge import evaluate

    return lambda: list(evaluate(folder / "qrels.trec", folder / "run.parquet", MEASURES).means.values())


def prepare_pytrec_eval_file(folder: Path) -> Callable[[], Means]:
    import pytrec_eval

    keys = [n.replace(".", "_") for n in TREC_NAMES]

    def compute_means() -> Means:
        with (folder / "qrels.trec").open() as qrels, (folder / "run.trec").open() as run:
            judgments, rankings = pytrec_eval.parse_qrel(qrels), pytrec_eval.parse_run(run)
        scores = pytrec_eval.RelevanceEvaluator(judgments, set(TREC_NAMES)).evaluate(rankings)
        return [statistics.fmean(values[key] for values in scores.values()) for key in keys]

    return compute_means


def prepare_ir_measures_file(folder: Path) -> Callable[[], Means]:
    import ir_measures

    measures = [ir_measures.parse_measure(n) for n in IR_NAMES]

    def compute_means() -> Means:
        qrels = ir_measures.read_trec_qrels(str(folder / "qrels.trec"))  # type: ignore[no-untyped-call]
        run = ir_measures.read_trec_run(str(folder / "run.trec"))  # type: ignore[no-untyped-call]
        means = ir_measures.calc_aggregate(measures, qrels, run)
        return [float(means[measure]) for measure in measures]

    return compute_means


def prepare_trec_eval_file(folder: Path) -> Callable[[], Means]:
    options = [word for name in TREC_NAMES for word in ("-m", name)]

    def compute_means() -> Means:
        command = ["trec_eval", "-c", *options, str(folder / "qrels.trec"), str(folder / "run.trec")]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        means = {line.split()[0]: float(line.split()[2]) for line in lines}
        return [means[name.replace(".", "_")] for name in TREC_NAMES]

    return compute_means


TOOLS = {function.__name__.removeprefix("prepare_"): function for function in (
    prepare_ragauge_dicts, prepare_pytrec_eval_dicts, prepare_ir_measures_dicts, prepare_ranx_dicts,
    prepare_ragauge_file, prepare_ragauge_parquet, prepare_pytrec_eval_file, prepare_ir_measures_file,
    prepare_trec_eval_file,
)}  # fmt: skip
"""Functions by tool and input, as in `ranx_dicts`."""


def serve_worker(name: str, folder: Path) -> None:
    """Time one tool each time a line arrives on standard input."""
    compute_means = TOOLS[name](folder)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        means = compute_means()
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "means": means, "peak": peak_memory(name)}), flush=True)


def peak_memory(name: str) -> int:
    """Return the peak memory of the process of a tool, in kB."""
    if name.startswith("trec_eval"):
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def measure_tools(names: list[str], folder: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Measure several tools on one folder, in turn; exit if their means do not agree."""
    workers: dict[str, subprocess.Popen[str]] = {}
    for name in names:
        command = [sys.executable, __file__, "--worker", name, "--data", str(folder)]
        workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = workers[name].stdout.readline()  # type: ignore[union-attr]
        if line.strip() != "ready":
            raise SystemExit(f"{name} did not start")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for round_number in range(rounds):
        for name in names:
            if round_number >= 3 and results[name][0]["seconds"] > 8:  # three rounds are enough for slow tools
                continue
            process = workers[name]
            if process.stdin is None or process.stdout is None:
                raise SystemExit(f"{name} has no pipes")
            process.stdin.write("go\n")
            process.stdin.flush()
            results[name].append(json.loads(process.stdout.readline()))
    for process in workers.values():
        process.communicate()
    expected = results[names[0]][0]["means"]
    summary = {}
    for name, measurements in results.items():
        # ranx orders ties by an unstable sort, and trec_eval prints four decimals
        tolerance = 5e-3 if name.startswith("ranx") else 6e-5 if name.startswith("trec_eval") else 1e-6
        if not np.allclose(measurements[0]["means"], expected, atol=tolerance):
            raise SystemExit(f"the means of {name} differ: {measurements[0]['means']}, expected {expected}")
        times = [measurement["seconds"] for measurement in measurements]
        summary[name] = {
            "first": times[0],
            "median": statistics.median(times[1:] or times),
            "peak": max(measurement["peak"] for measurement in measurements) // 1024,
        }
    return summary


def describe_extra_measures(folder: Path) -> str:
    """Describe the time of each further cutoff or measure relative to one measure."""
    import ragauge

    qrels, run = read_dictionaries(folder)
    more = [f"{name}@{k}" for name in ("ndcg", "map", "recall", "precision", "mrr") for k in (1, 3, 5, 20)]

    def measure_seconds(measures: list[str]) -> float:
        times = []
        for _ in range(9):
            start = time.perf_counter()
            ragauge.evaluate(qrels, run, measures)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    one, many = measure_seconds(["ndcg@10"]), measure_seconds(["ndcg@10", *more])
    share = 100 * (many - one) / len(more) / one
    times = f"{one * 1000:.1f} ms for one measure, {many * 1000:.1f} ms for {len(more) + 1}"
    return f"Each further cutoff or measure adds {share:.1f}% to the time of one measure ({times})."


def measure_import_time() -> str:
    """Return the time of `import ragauge`, without the start of the interpreter."""

    def measure_seconds(code: str) -> float:
        times = []
        for _ in range(9):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    return f"{1000 * (measure_seconds('import ragauge') - measure_seconds('pass')):.0f} ms"


def describe_machine() -> str:
    """Return the machine and the versions in one line."""
    names = ("numpy", "polars", "pytrec-eval-terrier", "ir-measures", "ranx")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, {versions}"


def build_rows(title: str, results: dict[str, dict[str, Any]], *, with_memory: bool) -> list[str]:
    """Return one table row per tool, fastest first."""
    ragauge_median = next(result["median"] for name, result in results.items() if name.startswith("ragauge"))
    rows = []
    for name, result in sorted(results.items(), key=lambda item: item[1]["median"]):
        tool, _, source = name.rpartition("_")
        label = f"{tool} (Parquet)" if source == "parquet" else tool
        memory = f"{result['peak']:,} MB" if with_memory else ""
        ratio = result["median"] / ragauge_median
        rows.append(f"| {title} | {label} | {result['first']:.3f} | {result['median']:.3f} | {ratio:.1f}x | {memory} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure the small sizes only")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve_worker(args.worker, args.data)
        return
    dicts = ["ragauge_dicts", "pytrec_eval_dicts", "ir_measures_dicts", "ranx_dicts"]
    files = ["ragauge_file", "pytrec_eval_file", "ir_measures_file"]
    if shutil.which("trec_eval"):
        files.append("trec_eval_file")
    table = [
        "| data | tool | first call, s | median, s | relative to ragauge | peak memory |",
        "|---|---|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        for queries, docs, rounds in ((1000, 100, 31), (10_000, 1000, 5)):
            if args.quick and queries > 1000:
                break
            for tied in (False, True):
                folder = Path(temporary) / f"{queries}x{docs}{'-tied' if tied else ''}"
                folder.mkdir()
                write_data(folder, queries, docs, tied=tied)
                title = f"{queries:,} x {docs:,}" + (", tied" if tied else "")
                # Two tools at a time: four sets of ten million entries do not fit into memory together.
                names = dicts if queries <= 1000 else dicts[:2]
                results = measure_tools(names, folder, rounds)
                if queries > 1000 and not tied:
                    for name in dicts[2:]:
                        results[name] = measure_tools(["ragauge_dicts", name], folder, 2)[name]
                table += build_rows(f"dicts, {title}", results, with_memory=False)
                print("\n".join(table[-len(results) :]), flush=True)
                if tied and queries > 1000:
                    continue
                convert = ["from ragauge.cli import main; main()", "convert", "run.trec", "run.parquet"]
                subprocess.run([sys.executable, "-c", *convert], check=True, cwd=folder)
                results = measure_tools(files, folder, 5) | measure_tools(["ragauge_parquet"], folder, 5)
                table += build_rows(f"TREC file, {title}", results, with_memory=True)
                print("\n".join(table[-len(results) :]), flush=True)
        if not args.quick:
            folder = Path(temporary) / "4000x1000-unordered"
            folder.mkdir()
            write_data(folder, 4000, 1000, tied=True, shuffled=True)
            results = measure_tools(dicts[:2], folder, 5)
            table += build_rows("dicts, 4,000 x 1,000, tied, unordered", results, with_memory=False)
            print("\n".join(table[-len(results) :]), flush=True)
        extra = describe_extra_measures(Path(temporary) / "1000x100")
    facts = [f"{', '.join(MEASURES)}; {JUDGED} judged documents per query; sizes are queries x documents per query."]
    facts += [f"{describe_machine()}.", extra, f"`import ragauge`: {measure_import_time()}."]
    text = "\n".join([*facts, "", *table, ""])
    (HERE / "RESULTS.md").write_text("# Speed and memory of `evaluate`\n\nOutput of `make bench`.\n\n" + text)
    print("\n" + text)


if __name__ == "__main__":
    main()
