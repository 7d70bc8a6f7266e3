"""Cases whose outputs are recorded: command lines, or Python functions if no command computes the output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.measures.conventions import PRESETS


class Case(NamedTuple):
    """One recorded output."""

    name: str
    run: str | Callable[[Path], Any]
    """Arguments of `ragauge` with a `{data}` folder, or a function of the working folder that returns data."""
    exit_code: int = 0
    needs: str = ""
    """Folder of `RAGAUGE_DATA` that the case reads; `pydocs` for the documentation of this Python."""
    stored_timings: bool = False
    """Whether times come from stored files, so that they are compared too."""


TOY = "inputs/qrels.txt inputs/bm25.run inputs/dense.run inputs/tied.run"
DL19 = "{data}/trec_dl_runs/qrels/qrels.dl19-passage.txt"
DL19_RUNS = " ".join(f"{{data}}/trec_dl_runs/runs/dl19.{name}.txt.gz" for name in ("BM25", "BM25_RM3", "REP_LLAMA"))
MEASURES = (
    "-m ndcg@10 -m ndcg -m map@10 -m map -m mrr -m mrr@5 -m recall@5 -m recall@20 -m precision@5 -m precision@10 "
    "-m hit_rate@10 -m f1@10 -m rprec -m bpref -m rbp -m infap"
)
TIE_MEASURES = "-m ndcg@10 -m map -m mrr -m recall@5 -m precision@5"
TIE_AVERAGING = {"torchmetrics", "sklearn"}
"""Conventions that average over the orders of ties, which some measures do not support."""
STRICT = {"trec10", "ranx", "pgvectordb"}
"""Conventions under which a missing query is an error; they are used with the two complete runs."""


TRIALS = "folders/trials"
"""Run folder of 3 trials, 8 queries and k = 3: `bm25` returns the same documents in each, `varied` does not.

Each query has one relevant document. Its ranks in `varied` by trial, 0 if it was not returned:
q1 1 1 1, q2 1 1 1, q3 1 1 2, q4 1 2 3, q5 2 2 0, q6 2 3 0, q7 0 0 0, q8 0 0 3.

- The sum of the reciprocal ranks is 5, 13/3 and 19/6 by trial, so MRR is 12.5/24 = 0.520833 (first trial: 0.625).
- The document is found for 6, 6 and 5 queries, so recall@3 is 17/24 = 0.708333 (first trial: 0.75).
- At k = 1 it is found for 4, 3 and 2 queries, so recall is 9/24 = 0.375.
"""


def _list_convention_cases() -> list[Case]:
    cases = []
    for name in PRESETS:
        runs = TOY.rsplit(" ", 1)[0] if name in STRICT else TOY
        measures = TIE_MEASURES if name in TIE_AVERAGING else MEASURES
        cases.append(Case(f"evaluate-toy-{name}", f"evaluate {runs} -C {name} {measures} --per-query --json"))
        runs = DL19_RUNS if name not in STRICT else DL19_RUNS.rsplit(" ", 1)[0]
        command = f"evaluate {DL19} {runs} -C {name} -m ndcg@10 -m map -m mrr@10 -m recall@100 --json"
        cases.append(Case(f"evaluate-dl19-{name}", command, needs="trec_dl_runs"))
    return cases


def _judge_scripted(folder: Path) -> Any:
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
    from literal_judge import answer
    from ragauge import judge
    from ragauge.files.serialization import to_json_data
    from ragauge.models.chats.recorded import ScriptedChat

    measures = ["faithfulness", "context_precision", "context_recall", "answer_relevance", "hallucination"]
    judged = judge(str(folder / "inputs/samples.jsonl"), measures, chat=ScriptedChat(answer), embedder="words")
    return to_json_data(judged)


def _bench_from_raw_files(folder: Path) -> Any:
    """Compute a benchmark from its raw files only: nothing is built or searched."""
    import shlex
    from unittest.mock import patch

    from ragauge import bench
    from ragauge.files.serialization import to_json_data

    settings = json.loads((folder / "folders/bench_settings.json").read_text(encoding="utf-8"))

    def refuse(*_: Any) -> None:
        raise AssertionError("the raw files of the recorded benchmark were not found; a measurement was started")

    with (
        patch("ragauge.store_benchmarks.plan.provenance", lambda: settings["environment"]),
        patch("ragauge.store_benchmarks.jobs.run_worker_task", refuse),
    ):
        stores = shlex.split(settings["stores"])
        return to_json_data(bench(settings["data"], stores, folder=folder / "folders/bench", **settings["options"]))


CASES: list[Case] = [
    *_list_convention_cases(),
    Case("evaluate-toy-csv", f"evaluate {TOY} --csv --per-query"),
    Case(
        "evaluate-toy-targets", f"evaluate {TOY} --targets inputs/targets.txt -m dr@10 -m dr@20 -m diversity@10 --json"
    ),
    Case("evaluate-run-folder", "evaluate folders/run --json --per-query"),
    Case(
        "evaluate-trec-eval-test",
        "evaluate {data}/trec_eval_test/qrels.test "
        "{data}/trec_eval_test/results.test -m all_trec -q --format trec_eval",
        needs="trec_eval_test",
    ),
    Case(
        "evaluate-diversity",
        "evaluate {data}/trec_web_diversity/qrels.web.201-250.ndeval.txt.gz "
        "{data}/trec_web_diversity/cedr.test.wt13.run.gz "
        "--qrels-format subtopics -m alpha_ndcg@10 -m err_ia@10 --json --per-query",
        needs="trec_web_diversity",
    ),
    Case("compare-toy", f"compare {TOY} --count-missing -b bm25 -m ndcg@10 -m map -m mrr --json"),
    Case("compare-toy-csv", f"compare {TOY} --count-missing -b bm25 -m ndcg@10 --csv"),
    Case(
        "compare-toy-strata",
        "compare inputs/qrels.txt inputs/bm25.run inputs/dense.run -b bm25 -m ndcg@10 --tags inputs/tags.csv "
        "--by complexity --test randomisation --margin 0.05 --detect 0.02 --json",
    ),
    Case("compare-run-folder", "compare folders/run -b bm25 --json"),
    Case("compare-judged-folders", "compare folders/judged folders/judged_b --common-queries --json"),
    Case("compare-dl19", f"compare {DL19} {DL19_RUNS} -m ndcg@10 -m map --json", needs="trec_dl_runs"),
    Case(
        "gate-toy",
        "gate inputs/qrels.txt inputs/dense.run -b inputs/bm25.run -r 'ndcg@10 >= 0.3' -r 'mrr not worse' "
        "-r 'recall@10 drop <= 1%' -r 'map non-inferior by 0.1' --json",
    ),
    Case(
        "gate-toy-fails",
        "gate inputs/qrels.txt inputs/bm25.run -b inputs/dense.run -r 'ndcg@10 >= 0.9' -r 'map not worse' --json",
        exit_code=1,
    ),
    Case("gate-run-folder", "gate folders/run/bm25 -r 'recall@10 >= 0.2' -r 'failed <= 0' -r 'missing <= 80' --json"),
    Case("gate-judged-folder", "gate folders/judged -r 'faithfulness >= 0.2' --json", exit_code=1),
    Case("audit-toy", f"audit {TOY} --json"),
    Case("audit-corpus", "audit inputs/dirty.jsonl --json"),
    Case("audit-run-folder", "audit folders/run --json"),
    Case(
        "audit-leaky",
        "audit inputs/kb/qrels/test.tsv --corpus inputs/kb/corpus.jsonl --queries inputs/kb/queries.jsonl --json",
    ),
    Case(
        "audit-dl19",
        f"audit {DL19} {DL19_RUNS} --expect ndcg@10=0.7439 -m ndcg@10 --json",
        needs="trec_dl_runs",
    ),
    Case(
        "run-duplicates",
        "run synthetic:duplicates -s bm25 -s dense -s own=inputs.own_systems:reverse -b bm25 "
        "--max-queries 40 -o r --json",
    ),
    Case(
        "run-graph",
        "run synthetic:graph -s bm25 -s 'swarm(leap=0.1)' -s pagerank -b bm25 --max-queries 20 --repeats 2 -o r --json",
    ),
    Case(
        "run-pydocs",
        "run pydocs -s bm25 -s dense -s 'hybrid(weights=0.7+0.3)' -s 'pipeline(of=bm25, reranker=embedding)' -b bm25 "
        "--max-queries 30 -o r --json",
        needs="pydocs",
    ),
    Case(
        "run-cranfield",
        "run {data}/cranfield/beir -s bm25 -s dense -b bm25 --max-queries 60 -o r --json",
        needs="cranfield",
    ),
    Case("judge-lexical", "judge inputs/samples.jsonl -o j --json"),
    Case("judge-lexical-csv", "judge inputs/samples.jsonl -o j --csv"),
    Case("judge-scripted", _judge_scripted),
    Case("judge-again", "judge folders/judged -C default,no_claims=one --json"),
    Case("bench-raw-files", _bench_from_raw_files, stored_timings=True),
    Case("report-bench-json", "report folders/bench --format json", stored_timings=True),
    Case("report-bench-csv", "report folders/bench --format csv", stored_timings=True),
    Case("report-judged-json", "report folders/judged --format json"),
    Case("report-judged-scores", "report folders/judged --format scores"),
    Case("report-judged-claims", "report folders/judged --format claims"),
    *(
        Case(f"report-run-{form}", f"report folders/run --format {form}", stored_timings=True)
        for form in (
            "json",
            "csv",
            "wide",
            "queries",
            "queries-wide",
        )
    ),
    Case("report-toy-json", f"report {TOY} --count-missing -b bm25 -m ndcg@10 -m map --format json"),
    Case("calibrate-lexical", "calibrate inputs/labelled.jsonl -o c --json"),
    Case("calibrate-lexical-csv", "calibrate inputs/labelled.jsonl -o c --csv"),
    Case(
        "calibrate-halueval",
        "calibrate {data}/rag_halueval_qa --max-samples 60 -o c --json",
        needs="rag_halueval_qa",
    ),
    Case("gain-kb", "gain --before inputs/kb --add inputs/new.jsonl -k 3 -w recall@3=0.5 -w novelty=0.5 --json"),
    Case("gain-kb-csv", "gain --before inputs/kb --add inputs/new.jsonl -k 3 -w ndcg@3=1 --csv"),
    Case("novelty-new", "novelty inputs/new.jsonl --known inputs/known.jsonl --chat lexical --json"),
    Case("novelty-new-csv", "novelty inputs/new.jsonl --known inputs/known.jsonl --csv"),
    Case(
        "tokenizers-known",
        "tokenizers inputs/known.jsonl -t bytes -t characters -t 'bpe(vocabulary=300)' --held-out 0 --json",
    ),
    Case("tokenizers-needles-csv", "tokenizers synthetic:needles -t bytes -t words --csv"),
    Case("k-range-run-folder", "k-range folders/run --json"),
    Case("fuse-toy", "fuse inputs/bm25.run inputs/dense.run --method rrf --depth 10 -o - --format csv"),
    Case("evaluate-trials", f"evaluate {TRIALS} -m mrr -m recall@3 --per-query --json"),
    Case("compare-trials", f"compare {TRIALS} -b bm25 -m mrr -m recall@3 --json"),
    # Both limits of mrr hold for the mean over trials only.
    Case("gate-trials", f"gate {TRIALS}/varied -r 'mrr >= 0.52' -r 'mrr <= 0.5209' -r 'recall@3 <= 0.7084' --json"),
    Case("k-range-trials", f"k-range {TRIALS} -m mrr -m recall --json"),
    Case("audit-trials", f"audit {TRIALS} -m mrr -m recall@3 --json"),
    Case("report-trials-json", f"report {TRIALS} -m mrr -m recall@3 --format json", stored_timings=True),
    Case("report-trials-csv", f"report {TRIALS} -m mrr -m recall@3 --format csv", stored_timings=True),
    Case("validate-toy", f"validate {TOY} --json"),
]
