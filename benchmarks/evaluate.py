"""Speed and memory of `evaluate` against pytrec_eval, ir_measures, ranx and, where a binary is found, trec_eval.

Every contender runs in a process of its own on the same data, takes turns with the others, and must agree on every
mean before its time counts. Prints a Markdown table, and writes it to benchmarks/RESULTS.md.

    python benchmarks/evaluate.py              # all of it, some ten minutes
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


def make(folder: Path, queries: int, docs: int, *, tied: bool, shuffled: bool = False) -> None:
    """A run and judgments, seeded: half of what is judged is retrieved; tied scores have one decimal."""
    rng = np.random.default_rng(queries + docs)
    with (folder / "run.trec").open("w") as run, (folder / "qrels.trec").open("w") as qrels:
        for q in range(queries):
            ids = rng.choice(8_800_000, docs, replace=False)
            scores = np.sort(rng.random(docs) * 30)[::-1]
            if shuffled:
                rng.shuffle(scores)
            text = [f"{s:.1f}" for s in scores] if tied else [f"{s:.6f}" for s in scores]
            rows = zip(ids.tolist(), text, strict=True)
            run.write("".join(f"{q} Q0 d{i} {r} {s} bench\n" for r, (i, s) in enumerate(rows, 1)))
            judged = [*rng.choice(ids, JUDGED // 2, replace=False), *rng.choice(8_800_000, JUDGED // 2)]
            for i in dict.fromkeys(int(j) for j in judged):
                qrels.write(f"{q} 0 d{i} {rng.integers(0, 4)}\n")


def dictionaries(folder: Path) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """The same data as nested dictionaries."""
    qrels: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for line in (folder / "qrels.trec").open():
        q, _, d, g = line.split()
        qrels.setdefault(q, {})[d] = int(g)
    for line in (folder / "run.trec").open():
        q, _, d, _, s, _ = line.split()
        run.setdefault(q, {})[d] = float(s)
    return qrels, run


# Each contender prepares what its users already have, and returns the call that is timed.


def ragauge_dicts(folder: Path) -> Callable[[], Means]:
    from ragauge import evaluate

    qrels, run = dictionaries(folder)
    return lambda: list(evaluate(qrels, run, MEASURES).means.values())


def pytrec_eval_dicts(folder: Path) -> Callable[[], Means]:
    import pytrec_eval

    qrels, run = dictionaries(folder)
    keys = [n.replace(".", "_") for n in TREC_NAMES]

    def call() -> Means:
        found = pytrec_eval.RelevanceEvaluator(qrels, set(TREC_NAMES)).evaluate(run)
        return [statistics.fmean(values[k] for values in found.values()) for k in keys]

    return call


def ir_measures_dicts(folder: Path) -> Callable[[], Means]:
    import ir_measures

    qrels, run = dictionaries(folder)
    measures = [ir_measures.parse_measure(n) for n in IR_NAMES]

    def call() -> Means:
        found = ir_measures.calc_aggregate(measures, qrels, run)
        return [float(found[m]) for m in measures]

    return call


def ranx_dicts(folder: Path) -> Callable[[], Means]:
    import ranx

    qrels, run = dictionaries(folder)

    def call() -> Means:
        found = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), RANX_NAMES, make_comparable=True)
        return [float(found[n]) for n in RANX_NAMES]

    return call


def ragauge_file(folder: Path) -> Callable[[], Means]:
    from ragauge import evaluate

    return lambda: list(evaluate(folder / "qrels.trec", folder / "run.trec", MEASURES).means.values())


def ragauge_parquet(folder: Path) -> Callable[[], Means]:
    from ragauge import evaluate

    return lambda: list(evaluate(folder / "qrels.trec", folder / "run.parquet", MEASURES).means.values())


def pytrec_eval_file(folder: Path) -> Callable[[], Means]:
    import pytrec_eval

    keys = [n.replace(".", "_") for n in TREC_NAMES]

    def call() -> Means:
        with (folder / "qrels.trec").open() as qrels, (folder / "run.trec").open() as run:
            judged, returned = pytrec_eval.parse_qrel(qrels), pytrec_eval.parse_run(run)
        found = pytrec_eval.RelevanceEvaluator(judged, set(TREC_NAMES)).evaluate(returned)
        return [statistics.fmean(values[k] for values in found.values()) for k in keys]

    return call


def ir_measures_file(folder: Path) -> Callable[[], Means]:
    import ir_measures

    measures = [ir_measures.parse_measure(n) for n in IR_NAMES]

    def call() -> Means:
        qrels = ir_measures.read_trec_qrels(str(folder / "qrels.trec"))  # type: ignore[no-untyped-call]
        run = ir_measures.read_trec_run(str(folder / "run.trec"))  # type: ignore[no-untyped-call]
        found = ir_measures.calc_aggregate(measures, qrels, run)
        return [float(found[m]) for m in measures]

    return call


def trec_eval_file(folder: Path) -> Callable[[], Means]:
    names = [x for n in TREC_NAMES for x in ("-m", n)]

    def call() -> Means:
        command = ["trec_eval", "-c", *names, str(folder / "qrels.trec"), str(folder / "run.trec")]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        found = {line.split()[0]: float(line.split()[2]) for line in lines}
        return [found[n.replace(".", "_")] for n in TREC_NAMES]

    return call


CONTENDERS = {f.__name__: f for f in (
    ragauge_dicts, pytrec_eval_dicts, ir_measures_dicts, ranx_dicts,
    ragauge_file, ragauge_parquet, pytrec_eval_file, ir_measures_file, trec_eval_file,
)}  # fmt: skip


def worker(name: str, folder: Path) -> None:
    """Time one contender whenever a line arrives on standard input."""
    call = CONTENDERS[name](folder)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        means = call()
        seconds = time.perf_counter() - begin
        print(json.dumps({"seconds": seconds, "means": means, "peak": peak(name)}), flush=True)


def peak(name: str) -> int:
    """The most memory that the contender's process has held, in kB."""
    if name.startswith("trec_eval"):
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def contest(names: list[str], folder: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Several contenders on one folder, taking turns; the means of all must agree."""
    workers: dict[str, subprocess.Popen[str]] = {}
    for name in names:
        command = [sys.executable, __file__, "--worker", name, "--data", str(folder)]
        workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = workers[name].stdout.readline()  # type: ignore[union-attr]
        if line.strip() != "ready":
            raise SystemExit(f"{name} did not start")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names:
            if turn >= 3 and results[name][0]["seconds"] > 8:  # the slow ones need no further proof
                continue
            process = workers[name]
            if process.stdin is None or process.stdout is None:
                raise SystemExit(f"{name} cannot be spoken to")
            process.stdin.write("go\n")
            process.stdin.flush()
            results[name].append(json.loads(process.stdout.readline()))
    for process in workers.values():
        process.communicate()
    first = results[names[0]][0]["means"]
    out = {}
    for name, found in results.items():
        # ranx settles ties by an unstable sort, and trec_eval prints four decimals
        tolerance = 5e-3 if name.startswith("ranx") else 6e-5 if name.startswith("trec_eval") else 1e-6
        if not np.allclose(found[0]["means"], first, atol=tolerance):
            raise SystemExit(f"{name} does not agree: {found[0]['means']} and {first}")
        times = [f["seconds"] for f in found]
        out[name] = {
            "first": times[0],
            "median": statistics.median(times[1:] or times),
            "peak": max(f["peak"] for f in found) // 1024,
        }
    return out


def extra_measures(folder: Path) -> str:
    """What one more cutoff or measure costs, as a share of the first."""
    import ragauge

    qrels, run = dictionaries(folder)
    more = [f"{name}@{k}" for name in ("ndcg", "map", "recall", "precision", "mrr") for k in (1, 3, 5, 20)]

    def timed(measures: list[str]) -> float:
        times = []
        for _ in range(9):
            begin = time.perf_counter()
            ragauge.evaluate(qrels, run, measures)
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    one, many = timed(["ndcg@10"]), timed(["ndcg@10", *more])
    share = 100 * (many - one) / len(more) / one
    return f"{share:.1f}% (one measure {one * 1000:.1f} ms, {len(more) + 1} of them {many * 1000:.1f} ms)"


def import_time() -> str:
    """`import ragauge`, less an empty interpreter."""

    def timed(code: str) -> float:
        runs = []
        for _ in range(9):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            runs.append(time.perf_counter() - begin)
        return statistics.median(runs)

    return f"{1000 * (timed('import ragauge') - timed('pass')):.0f} ms"


def machine() -> str:
    """The machine and the versions, in a line."""
    names = ("numpy", "polars", "pytrec-eval-terrier", "ir-measures", "ranx")
    versions = ", ".join(f"{n} {metadata.version(n)}" for n in names)
    model = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), ""
    )
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, {versions}"


def rows(title: str, found: dict[str, dict[str, Any]], *, memory: bool) -> list[str]:
    """Table rows, fastest peer marked by the ratio."""
    ours = next(v["median"] for k, v in found.items() if k.startswith("ragauge"))
    out = []
    for name, f in sorted(found.items(), key=lambda item: item[1]["median"]):
        who, _, where = name.rpartition("_")
        label = f"{who} (Parquet)" if where == "parquet" else who
        peak = f"{f['peak']:,} MB" if memory else ""
        out.append(f"| {title} | {label} | {f['first']:.3f} | {f['median']:.3f} | {f['median'] / ours:.1f}x | {peak} |")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--worker")
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker, args.data)
        return
    dicts = ["ragauge_dicts", "pytrec_eval_dicts", "ir_measures_dicts", "ranx_dicts"]
    files = ["ragauge_file", "pytrec_eval_file", "ir_measures_file"]
    if shutil.which("trec_eval"):
        files.append("trec_eval_file")
    table = [
        "| data | tool | first call, s | median, s | against ragauge | peak memory |",
        "|---|---|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        for queries, docs, rounds in ((1000, 100, 31), (10_000, 1000, 5)):
            if args.quick and queries > 1000:
                break
            for tied in (False, True):
                folder = Path(temporary) / f"{queries}x{docs}{'-tied' if tied else ''}"
                folder.mkdir()
                make(folder, queries, docs, tied=tied)
                title = f"{queries:,} x {docs:,}" + (", tied" if tied else "")
                # two at a time: four sets of ten million entries do not fit beside each other
                chosen = dicts if queries <= 1000 else dicts[:2]
                found = contest(chosen, folder, rounds)
                if queries > 1000 and not tied:
                    for name in dicts[2:]:
                        found |= {k: v for k, v in contest(["ragauge_dicts", name], folder, 2).items() if k == name}
                table += rows(f"dicts, {title}", found, memory=False)
                print("\n".join(table[-len(found) :]), flush=True)
                if tied and queries > 1000:
                    continue
                convert = ["from ragauge.cli import main; main()", "convert", "run.trec", "run.parquet"]
                subprocess.run([sys.executable, "-c", *convert], check=True, cwd=folder)
                found = contest(files, folder, 5) | contest(["ragauge_parquet"], folder, 5)
                table += rows(f"TREC file, {title}", found, memory=True)
                print("\n".join(table[-len(found) :]), flush=True)
        if not args.quick:
            folder = Path(temporary) / "4000x1000-unordered"
            folder.mkdir()
            make(folder, 4000, 1000, tied=True, shuffled=True)
            found = contest(dicts[:2], folder, 5)
            table += rows("dicts, 4,000 x 1,000, tied, in no order", found, memory=False)
            print("\n".join(table[-len(found) :]), flush=True)
        extra = extra_measures(Path(temporary) / "1000x100")
    facts = [f"{', '.join(MEASURES)}; {JUDGED} judged documents a query.", machine() + "."]
    facts += [f"One more cutoff or measure costs {extra} of the first.", f"`import ragauge`: {import_time()}."]
    text = "\n".join([*facts, "", *table, ""])
    (HERE / "RESULTS.md").write_text("# Speed and memory of `evaluate`\n\n`make bench` printed this.\n\n" + text)
    print("\n" + text)


if __name__ == "__main__":
    main()
