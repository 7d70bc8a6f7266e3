"""Options without effect: every command rejects them before any work."""

from __future__ import annotations

import json
import shlex

import pytest

import ragauge
from command import command_in
from ragauge.core.errors import BadInput
from ragauge.files.serialization import write_record
from store_benchmark_builder import make_full_benchmark

QRELS = "q1 0 a 1\nq1 0 b 0\nq2 0 c 1\n"
RUN = "q1 Q0 a 1 2.0 x\nq1 Q0 b 2 1.0 x\nq2 Q0 c 1 1.0 x\n"
SCORES = "query,one,two\nq1,0.5,0.6\nq2,0.4,0.5\nq3,0.4,0.7\n"


@pytest.fixture
def run_command(tmp_path):
    """Run a command in a folder with a benchmark, judgments, a run, scores and samples."""
    (tmp_path / "bench").mkdir()
    write_record(make_full_benchmark(), tmp_path / "bench" / "benchmark.json")
    (tmp_path / "qrels.txt").write_text(QRELS, encoding="utf-8")
    (tmp_path / "a.run").write_text(RUN, encoding="utf-8")
    (tmp_path / "ndcg@10.csv").write_text(SCORES, encoding="utf-8")
    table = "system,query,ndcg@10\n" + "".join(f"one,q{i},0.{i}\n" for i in range(1, 9))
    (tmp_path / "scores.csv").write_text(table, encoding="utf-8")
    sample = {"id": "s1", "question": "Why?", "answer": "So.", "contexts": ["So."]}
    (tmp_path / "samples.jsonl").write_text(json.dumps(sample) + "\n", encoding="utf-8")
    (tmp_path / "targets.tsv").write_text("a\tt1\n", encoding="utf-8")
    return command_in(tmp_path, RAGAUGE_CACHE=str(tmp_path / "c"))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("report bench -b nonsense", "--baseline does not apply to a benchmark"),
        ("report bench -m nonsense@10", "--measure does not apply to a benchmark"),
        ("report bench --no-audit --test t", "--no-audit and --test do not apply to a benchmark"),
        ("report bench -C nonsense", "--convention does not apply to a benchmark that `bench` wrote"),
        ("report bench --no-audit", "--no-audit does not apply to a benchmark that `bench` wrote"),
        ("judge samples.jsonl --max-samples 0", "--max-samples must be at least 1, got 0"),
        ("stress --store memory --corpus kb --batch-size 0", "--batch-size must be at least 1, got 0"),
        ("report qrels.txt a.run --split dev", "a split does not apply to a file of judgments"),
        ("report qrels.txt a.run --common-queries --count-missing", "common_queries and count_missing are mutually"),
        ("report ndcg@10.csv -C rig", "a convention does not apply to scores that are computed already"),
        ("report ndcg@10.csv -m nonsense", "unknown measure `nonsense`"),
        ("compare ndcg@10.csv -C rig", "a convention does not apply to scores that are computed already"),
        ("compare ndcg@10.csv --moved 3 --csv", "--moved has no effect with CSV and LaTeX"),
        ("evaluate qrels.txt a.run --split dev", "a split does not apply to a file of judgments"),
        ("evaluate qrels.txt a.run --targets targets.tsv", "a target map has no effect on these measures"),
        ("run pydocs -s bm25 --split dev", "`pydocs` has no splits"),
        ("datasets --query x", "--query has no effect without a dataset"),
        ("datasets pydocs --split dev", "`pydocs` has no splits"),
        ("measures ndcg --json", "--json has no effect with a name"),
        ("fuse a.run a.run --folds 3 -o x.run", "--folds has no effect without --tune"),
        ("fuse --list --method rrf", "--method does not apply to --list"),
        ("audit --list --strict", "--strict does not apply to --list"),
        ("audit qrels.txt a.run --full --json", "--full has no effect with --json"),
        ("bench --poisson", "--poisson has no effect without --qps"),
        ("bench --seconds 3", "--seconds has no effect without --clients, --qps or --mixed"),
        ("bench --quick --no-sweep", "--quick has no effect with --no-sweep"),
        ("bench clustered --embedder words", "an embedder does not apply to vectors"),
        ("judge samples.jsonl --max-calls 3", "--max-calls has no effect on the lexical judge"),
        ("judge samples.jsonl -c openai:x@http://localhost:1/v1 --dry-run --csv", "--csv has no effect with --dry-run"),
        (
            "calibrate samples.jsonl --token-price 1,2 --prices x.toml",
            "--token-price and --prices are mutually exclusive",
        ),
        ("calibrate samples.jsonl --workers 3", "--workers has no effect on the lexical judge"),
        ("gain --before a.jsonl --add b.jsonl --max-calls 3", "--max-calls has no effect without --chat"),
        ("stress --store memory --kills 2 --kill-at 3", "--kills has no effect with --kill-at"),
        ("gate qrels.txt a.run -r 'mrr >= 0.1' --tags tags.csv", "tags has no effect on these rules"),
        ("gate scores.csv -r 'ndcg@10 >= 0.1' -C rig", "convention has no effect on these rules"),
        ("convert samples.jsonl out.jsonl --kind samples --from csv", "--from has no effect on samples"),
    ],
)  # fmt: skip
def test_cli_option_without_effect_prints_error(run_command, command, message):
    done = run_command(*shlex.split(command), code=2)
    assert message in done.stderr
    assert "hint: " in done.stderr
    assert not done.stdout


def test_report_setting_without_effect_raises(tmp_path):
    with pytest.raises(BadInput, match="measures does not apply to a result of bench"):
        ragauge.report(make_full_benchmark(), tmp_path / "x.csv", measures=["ndcg@10"])


def test_evaluate_format_of_object_raises():
    with pytest.raises(BadInput, match="a format does not apply to judgments in memory"):
        ragauge.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, qrels_format="trec")
    with pytest.raises(BadInput, match="a format does not apply to a run in memory"):
        ragauge.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, run_format="trec")
