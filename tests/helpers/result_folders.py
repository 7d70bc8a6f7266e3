"""Run folders for tests: systems that return the relevant document at known ranks, run with fixed dates."""

from __future__ import annotations

import json
import os

from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments
from ragauge.experiments.run import run
from ragauge.output.numbers import format_exact

DOCUMENTS = [Document(f"d{i}", f"word{i}") for i in range(40)]
QUERIES = {f"q{i}": f"word{i}" for i in range(30)}
DATA = Dataset("small", DOCUMENTS, QUERIES, Judgments({query: {f"d{i}": 1} for i, query in enumerate(QUERIES)}))
OLD_TIME_NS = 1_700_000_000_000_000_000


def make_system(ranks):
    """Return a system that puts the relevant document of the i-th query at rank `ranks[i]`, after other documents."""

    def search(query, k):
        place = int(query.strip().removeprefix("word"))
        others = [f"d{30 + i}" for i in range(10)]
        rank = ranks[place]
        return [*others[: rank - 1], f"d{place}", *others[rank - 1 :]][:k]

    return search


def format_scores_csv(scores):
    """Return scores per query as the CSV table that `run` writes."""
    rows = [
        ",".join([name, query, measure, format_exact(value), str(system_scores.is_lower_better(measure)).lower()])
        for name, system_scores in scores.items()
        for measure in system_scores.measures
        for query, value in zip(system_scores.queries, system_scores.values[measure].tolist(), strict=True)
    ]
    return "\n".join(["run,query,measure,value,lower_is_better", *rows, ""])


def make_run_folder(folder, systems, *, day, data=DATA, machine=None, convention="default", **options):
    """Run systems into a folder with scores, dated to a day of November 2026 and with old file times."""
    result = run(
        data, systems, measures=["mrr@10", "recall@10"], out=folder, convention=convention, warmup=0, **options
    )
    (folder / "scores.csv").write_text(format_scores_csv(result.scores), encoding="utf-8")
    for path in folder.glob("*/manifest.json"):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest["finished"] = f"2026-11-{day:02d}T12:00:00+00:00"
        manifest["machine"] = machine or manifest["machine"]
        path.write_text(json.dumps(manifest), encoding="utf-8")
    set_file_times(folder)
    return folder


def set_file_times(folder):
    """Set all file times of a folder to OLD_TIME_NS, and those of scores.csv to one second later."""
    for path in folder.rglob("*"):
        os.utime(path, ns=(OLD_TIME_NS, OLD_TIME_NS + 10**9 * (path.name == "scores.csv")))
