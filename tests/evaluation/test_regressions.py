"""Regressions: each test covers an input that once gave a plausible but wrong result."""

from __future__ import annotations

import itertools
import json
import os
import pickle

import polars as pl
import pytest
import zstandard
from hypothesis import given

from command import run_shell
from ragauge import PRESETS, BadInput, evaluate, judgments_from_neighbours, read_judgments, read_run, run_from_arrays
from ragauge.files.readers import read_targets
from strategies import judgments, runs


def compute_score(qrels, run, measure, convention="default", **options):
    return evaluate(qrels, run, [measure], convention, **options).means[measure]


def write_file(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_evaluate_invalid_rank_column_keeps_ties_in_input_order(tmp_path):
    run = write_file(tmp_path / "r", "".join(f"q Q0 d{i} 0 0.5 t\n" for i in range(5)))
    qrels = {"q": {"d1": 1, "d3": 1, "d4": 1}}
    assert compute_score(qrels, run, "map", "rig") == pytest.approx((1 / 2 + 2 / 4 + 3 / 5) / 3)
    table = pl.DataFrame({"query": ["q"] * 3, "doc": list("abc"), "score": [1.0] * 3, "rank": ["x", "y", "z"]})
    assert compute_score({"q": {"b": 1}}, table, "mrr", "rig") == 0.5


def test_evaluate_counted_duplicates_with_ties_have_two_ranks():
    rules = PRESETS["default"].but(duplicates="count")
    assert compute_score({"q": {"a": 1}}, {"q": [("a", 1.0), ("a", 1.0), ("b", 0.5)]}, "precision@1", rules) == 1.0


def test_evaluate_empty_last_ranking_scores_zero():
    assert compute_score({"a": {"x": 1}, "b": {"y": 1}}, {"a": {"x": 1.0}, "b": {}}, "mrr") == 0.5


@pytest.mark.parametrize(
    ("qrels", "run"),
    [
        ({"q": {"1": 1}}, {"q": {1: 0.5}}),
        ({"q": {1: 1}}, {"q": {"1": 0.5}}),
        ({"q": [1, 2]}, {"q": {1: 0.5, 2: 0.4}}),
        ([("q", 1)], {"q": {1: 0.5}}),
        ({"q": {1: 1}}, pl.DataFrame({"query": ["q"], "doc": [1], "score": [1.0]})),
        ({"q": {1: 1}}, pl.DataFrame({"query": ["q"], "doc": [1.0], "score": [1.0]})),
        ({"q": "1"}, {"q": ["1"]}),
        ({"q": [["1", 2]]}, {"q": [{"id": 1, "score": 0.5}]}),
    ],
)
def test_evaluate_numeric_and_text_ids_are_equal(qrels, run):
    assert compute_score(qrels, run, "mrr") == 1.0


def test_read_judgments_unknown_grade_column_raises_error(tmp_path):
    path = write_file(tmp_path / "q.csv", "query_id,doc_id,rating\nq,a,0\nq,b,2\n")
    assert read_judgments(path).nested == {"q": {"a": 0.0, "b": 2.0}}
    with pytest.raises(BadInput, match="none of the columns stars is known as a grade"):
        read_judgments(write_file(path, "query_id,doc_id,stars\nq,a,0\n"))


@pytest.mark.parametrize("grade", [float("nan"), float("inf"), None, "high"])
def test_evaluate_invalid_grade_raises_error(grade):
    with pytest.raises(BadInput, match="the grade of document `a` for query `q`"):
        evaluate({"q": {"a": grade}}, {"q": {"a": 1.0}}, ["mrr"])


def test_evaluate_nan_scores_in_json_or_pairs_raise_error(tmp_path):
    with pytest.raises(BadInput, match="score"):
        evaluate({"q": {"a": 1}}, write_file(tmp_path / "r.json", '{"q": {"a": NaN}}'), ["mrr"])
    with pytest.raises(BadInput, match="score"):
        evaluate({"q": {"a": 1}}, {"q": [("a", float("nan"))]}, ["mrr"])


def test_evaluate_truncated_zst_file_raises_error(tmp_path):
    compressed = zstandard.compress(b"".join(b"q Q0 d%d 1 %d t\n" % (i, i * 7919 % 1000) for i in range(200_000)))
    with pytest.raises(BadInput, match="cannot be read to its end"):
        evaluate({"q": {"d1": 1}}, write_file(tmp_path / "r.zst", compressed[: len(compressed) // 2]), ["mrr"])
    two_frames = zstandard.compress(b"q Q0 a 1 2 t\n") + zstandard.compress(b"q Q0 b 2 1 t\n")
    assert read_run(write_file(tmp_path / "two.zst", two_frames)).nested == {"q": {"a": 2.0, "b": 1.0}}


def test_read_run_cr_line_endings_raise_error(tmp_path):
    with pytest.raises(BadInput, match="lines end with CR alone"):
        read_run(write_file(tmp_path / "r", "q Q0 a 1 2 t\rq Q0 b 2 1 t\r"))


@given(judgments(), runs(docs=5, tied=True))
def test_expected_ties_match_mean_over_all_orders(qrels, run):
    measures = ["map(of=found)@2", "map(of=found)@3", "map(of=found)", "recall(of=k)@2"]
    found = evaluate(qrels, run, measures, "torchmetrics").per_query
    for query in qrels.keys() & run.keys():
        scores = sorted(set(run[query].values()), reverse=True)
        groups = [[d for d in run[query] if run[query][d] == s] for s in scores]
        orders = itertools.product(*(itertools.permutations(g) for g in groups))
        lists = {str(i): list(itertools.chain.from_iterable(o)) for i, o in enumerate(orders)}
        means = evaluate(dict.fromkeys(lists, qrels[query]), lists, measures).means
        for measure in measures:
            assert found[measure][query] == pytest.approx(means[measure], abs=1e-9), measure


def test_document_measures_follow_own_depth_and_unjudged_rules():
    run = {"q": {"q": 4.0, "x": 3.0, "a": 2.0, "b": 1.0}}
    assert compute_score({"q": {"a": 1, "b": 1}}, run, "dr(targets=identity)@2", "beir") == 0.5
    assert compute_score({"q": {"a": 1}}, run, "unique_ratio@4", PRESETS["default"].but(depth=2)) == 0.5
    condensed = PRESETS["default"].but(unjudged="condensed")
    assert compute_score({"q": {"a": 1, "b": 1}}, run, "dr(targets=identity)@2", condensed) == 1.0


def test_evaluate_missing_query_lower_is_better_is_unscored():
    truth = judgments_from_neighbours([[1, 2], [3, 4]], [[0.5, 0.6], [0.1, 0.2]])
    found = evaluate(truth, ([[1, 2]], [[-0.5, -0.6]], ["0"]), ["rde@2"])
    assert (found.means["rde@2"], found.n["rde@2"]) == (0.0, 1)


def test_recall_duplicate_neighbours_count_once():
    truth = judgments_from_neighbours([[1, 2, 3]], [[0.1, 0.2, 0.3]])
    assert compute_score(truth, ([[1, 1, 1]], [[-0.1] * 3]), "recall(of=eps)@3", "ann") == pytest.approx(1 / 3)
    assert (
        compute_score(
            judgments_from_neighbours([[1, 2, -1]]), run_from_arrays([[1, 2]], [[0.9, 0.8]]), "recall@3", "default"
        )
        == 1.0
    )


def test_recall_of_k_ignores_irrelevant_documents():
    assert compute_score({"q": {"a": 1, "b": 0, "c": 0}}, {"q": ["b", "a"]}, "recall(of=k)@2") == 0.5


def test_ndcg_gain_is_independent_of_rel_option():
    rules = PRESETS["default"].but(rel=2, none="skip")
    assert evaluate({"q1": {"a": 1}, "q2": {"b": 2}}, {"q1": ["a"], "q2": ["b"]}, ["ndcg@10"], rules).n["ndcg@10"] == 2
    assert compute_score({"q": {"a": 0.9}}, {"q": ["x"]}, "ndcg(gain=exp)@10", "rig") == 0.0
    assert compute_score({"q": {"a": 0}}, {"q": ["x"]}, "dcg(gain=exp)", "rig") == 0.0


def test_f1_uses_precision_and_recall_of_convention():
    qrels, run = {"q": {f"d{i}": 1 for i in range(5)}}, {"q": ["d0", "d1"]}
    found = evaluate(qrels, run, ["precision@4", "recall@4", "f1@4"], "ragdbeval-capped").means
    assert list(found.values()) == pytest.approx([1.0, 0.5, 2 / 3])
    assert "f1(precision_of=retrieved,recall_of=capped)@4" in found


def test_rbp_ranx_convention_uses_raw_grades():
    import math

    qrels, run = {"q": {"a": 3}}, {"q": {"a": 1.0}}
    assert math.isclose(compute_score(qrels, run, "rbp.95", "ranx"), 3 * 0.05)
    assert math.isclose(compute_score(qrels, run, "rbp.95"), 0.05)


def test_judgments_conflicting_grades_raise_error(tmp_path):
    with pytest.raises(BadInput, match="has the grades 0, 1"):
        evaluate([("q", "a", 0), ("q", "a", 1)], {"q": ["a"]}, ["mrr"])
    with pytest.raises(BadInput, match="has the grades 1, 0"):
        read_judgments(write_file(tmp_path / "q", "q 1 a 1\nq 1 a 0\n"), format="subtopics")


def test_evaluate_measure_names_are_unique():
    found = evaluate({"q": {"a": 1}}, {"q": ["a"]}, ["precision@1000001", "precision@1000002", "map(rel=1.0000001)"])
    assert list(found.means) == ["precision@1000001", "precision@1000002", "map(rel=1.0000001)"]
    with pytest.raises(BadInput, match="two measures are named `<lambda>`"):
        evaluate({"q": {"a": 1}}, {"q": ["a"]}, [lambda q: 1.0, lambda q: 2.0])


def test_read_targets_accepts_sets_jsonl_and_quoted_csv(tmp_path):
    assert sorted(read_targets({"a": {"A", "B"}})["a"]) == ["A", "B"]
    assert read_targets(write_file(tmp_path / "t.jsonl", '{"doc_id": "a", "targets": ["A"]}\n')) == {"a": ["A"]}
    assert read_targets(write_file(tmp_path / "t.csv", 'doc,target\n"New York, NY",A\n')) == {"New York, NY": ["A"]}


def test_readers_ignore_byte_order_mark_and_trailing_blank_lines(tmp_path):
    bom = "\ufeff"
    assert read_judgments(write_file(tmp_path / "q.csv", f"{bom}query_id,doc_id,grade\nq,a,1\n\n")).nested == {
        "q": {"a": 1}
    }
    assert read_judgments(write_file(tmp_path / "q.tsv", f"{bom}query-id\tcorpus-id\tscore\nq\ta\t1\n\n")).nested == {
        "q": {"a": 1}
    }
    assert read_run(write_file(tmp_path / "r.jsonl", f'{bom}{{"qid":"q","docid":"a","score":1.0}}\n')).nested == {
        "q": {"a": 1}
    }
    assert read_judgments(write_file(tmp_path / "q.txt", f"{bom}q 0 a 1\n")).nested == {"q": {"a": 1}}


def test_scores_can_be_pickled_and_copied():
    found = evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["nDCG@10"], "rig")
    assert pickle.loads(pickle.dumps(found)).means["ndcg@10"] == 1.0


@pytest.mark.parametrize(("option", "value"), [("gain", "foo"), ("rel", float("nan")), ("depth", 0)])
def test_convention_invalid_option_value_raises_error(option, value):
    with pytest.raises(BadInput, match=option):
        PRESETS["default"].but(**{option: value})


@pytest.fixture
def ragauge(tmp_path):
    write_file(tmp_path / "q.txt", "q1 0 a 1\nq2 0 c 1\n")
    write_file(tmp_path / "r.run", "q1 Q0 a 1 3 t\nq2 Q0 x 1 2 t\nq2 Q0 c 2 1 t\n")

    def run_command(command, code=0, **environment):
        done = run_shell(command, tmp_path, {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **environment})
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run_command


@pytest.mark.parametrize(
    "command",
    [
        "ragauge evaluate q.txt <(cat r.run) -m mrr --csv",
        "gzip -c r.run | ragauge evaluate q.txt - -m mrr --csv",
        "ragauge convert - - --format csv < r.run | ragauge evaluate q.txt - -m mrr --csv",
        "ragauge convert r.run - --format jsonl | ragauge evaluate q.txt - -m mrr --csv",
        "ragauge convert r.run - --format json | ragauge evaluate q.txt - -m mrr --csv",
        "ragauge convert q.txt - --format rig | ragauge evaluate - r.run -m mrr --csv",
    ],
)
@pytest.mark.slow
def test_evaluate_and_convert_commands_read_pipes(ragauge, command):
    assert ",mrr,0.75,2,0" in ragauge(command).stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", "{oops\n"),
        ("x.jsonl", "[1]\n"),
        ("x.json", '{"q1": 5}'),
        ("x.json", '{"q1": {"d1": "x"}}'),
        ("x.json", "null"),
        ("x.json", '{"q1": [["d1", 0.9, 3]]}'),
        ("x.zst", zstandard.compress(b"abc" * 99)[:-9] + b"?" * 9),
        ("x.parquet", "no parquet"),
    ],
)
@pytest.mark.slow
def test_evaluate_command_broken_file_prints_error(ragauge, tmp_path, name, text):
    write_file(tmp_path / name, text)
    assert ragauge(f"ragauge evaluate q.txt {name} -m mrr", code=2).stderr.startswith("error: ")
    assert ragauge(f"ragauge evaluate {name} r.run -m mrr", code=2).stderr.startswith("error: ")
    ragauge(f"ragauge convert {name} out.csv", code=2)


@pytest.mark.parametrize("measure", ["P.abc", "ndcg_cut.abc", "utility.1,2", "set_F.x", "11pt_avg.x", "'rbp(p=2)'"])
def test_evaluate_command_invalid_measure_parameter_prints_error(ragauge, measure):
    assert ragauge(f"ragauge evaluate q.txt r.run -m {measure}", code=2).stderr.startswith("error: ")


def test_evaluate_command_prints_ids_with_markup_verbatim(ragauge, tmp_path):
    write_file(tmp_path / "odd.txt", "[/x] 0 a 1\n[red]q 0 a 1\nq:100:3 0 a 1\n")
    write_file(tmp_path / "r[v1].run", "[/x] Q0 a 1 1 t\n")
    done = ragauge("ragauge evaluate odd.txt 'r[v1].run' r.run -m mrr -q")
    for text in ("[/x]", "[red]q", "q:100:3", "r[v1]"):
        assert text in done.stdout
    assert ragauge("ragauge validate q.txt r.run", PYTHONIOENCODING="ascii").stdout


def test_evaluate_command_reads_long_first_line(ragauge, tmp_path):
    row = {"query_id": "q1", "query": "x" * 200_000, "relevant_docs": {"a": 1}}
    write_file(tmp_path / "long.jsonl", json.dumps(row) + "\n")
    assert ",mrr,1.0,1,0" in ragauge("ragauge evaluate long.jsonl r.run -m mrr --csv").stdout


def test_convert_command_reads_beir_judgments_and_rejects_blank_ids(ragauge, tmp_path):
    write_file(tmp_path / "test.tsv", "query-id\tcorpus-id\tscore\nq1\ta\t1\n")
    ragauge("ragauge convert test.tsv out.txt")
    assert (tmp_path / "out.txt").read_text() == "q1 0 a 1\n"
    write_file(tmp_path / "blank.csv", "query_id,doc_id,score\nq 1,d 1,2.0\n")
    assert "does not support ids with blanks" in ragauge("ragauge convert blank.csv out.run", code=2).stderr
    assert not (tmp_path / "out.run").exists()


def test_evaluate_trec_eval_format_ambiguous_names_are_distinct(ragauge):
    done = ragauge(
        "ragauge evaluate q.txt r.run -m recall.5 -m 'recall(of=capped)@5' -m 'ndcg(gain=exp)@5' --format trec_eval"
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "recall@5",
        "recall(of=capped)@5",
        "ndcg(gain=exp)@5",
    ]
    assert ragauge("ragauge evaluate q.txt r.run -m num_q --format trec_eval").stdout.split()[-1] == "2"


@pytest.mark.slow
def test_evaluate_command_wide_table_keeps_all_values(ragauge):
    done = ragauge('script -qc "stty cols 80; ragauge evaluate q.txt r.run -m all_trec -q" /dev/null')
    assert "…" not in done.stdout
    assert "iprec_at_recall@0.1" in done.stdout
    assert "run `r.run` appears more than once" in ragauge("ragauge evaluate q.txt r.run r.run", code=2).stderr
