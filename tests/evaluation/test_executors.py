"""Evaluation in parts on threads, processes and a cluster: scores are bitwise equal to those of one process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragauge
from command import run_python
from ragauge.compute.progress import Progress
from ragauge.core.errors import BadInput
from ragauge.core.records import Judgments, Run
from ragauge.evaluation.evaluate import compute_judged_ranks_by_name, parse_measures
from ragauge.files import parquet_runs
from ragauge.files.parquet_runs import is_multi_file_run, open_parquet_run
from ragauge.files.readers import open_run_lazily
from ragauge.measures import judged_ranks_from_frames
from ragauge.measures.conventions import find_convention
from ragauge.measures.judged_ranks_from_frames import FrameRanker, QueryBlock, split_run

MEASURES = ["ndcg@10", "map", "mrr", "recall@5", "bpref", "rbp", "dr@5"]
CONVENTIONS = [
    find_convention("default"),
    find_convention("trec9"),
    find_convention("ranx").but(missing="zero"),
    find_convention("default").but(ties="expected"),
    find_convention("default").but(own="dropped", ties="ranked"),
]


def make_collection(queries: int = 40, depth: int = 30, seed: int = 3) -> tuple[dict, dict]:
    """Return judgments and a run with ties, unjudged and unanswered queries, and documents whose ids are query ids."""
    rng = np.random.default_rng(seed)
    qrels, run = {}, {}
    for n in range(queries):
        docs = [f"d{number}" for number in rng.choice(500, depth, replace=False)] + [f"q{n}"]
        run[f"q{n}"] = {doc: round(float(rng.random()), 1) for doc in docs}
        if n % 7:
            qrels[f"q{n}"] = {doc: int(rng.integers(0, 3)) for doc in [*docs[::4], f"x{n}"]}
    qrels["nobody answered"] = {"d1": 1}
    return qrels, run


def to_frame(run: dict) -> pl.DataFrame:
    table = [(query, doc, score) for query, docs in run.items() for doc, score in docs.items()]
    return pl.DataFrame(table, schema=["query_id", "doc_id", "score"], orient="row")


def check_equal_scores(actual, expected) -> None:
    """Check that two results have equal scores, notes, reasons and judged ranks."""
    assert actual.queries == expected.queries
    assert actual.means == expected.means
    assert (actual.notes, dict(actual.unscored)) == (expected.notes, dict(expected.unscored))
    for measure in actual.measures:
        assert actual.values[measure].tobytes() == expected.values[measure].tobytes()
    for name in ("query", "rank", "row", "retrieved", "answered"):
        assert np.array_equal(getattr(actual.judged, name), getattr(expected.judged, name))


@pytest.fixture
def small_parts(monkeypatch):
    """Make parts a few rows long, so that a run has many parts and queries span several row groups."""
    monkeypatch.setattr(parquet_runs, "ROWS_PER_GROUP", 17)
    monkeypatch.setattr(parquet_runs, "SINGLE_GROUP_BYTES", 0)
    monkeypatch.setattr(parquet_runs, "GROUPS_PER_PART", 3)
    monkeypatch.setattr(judged_ranks_from_frames, "MIN_ROWS_PER_PART", 50)


@pytest.fixture(scope="module")
def pools():
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(2) as processes:
        yield {"threads": threads, "processes": processes}


def write_run(run_format: str, run: dict, folder: Path) -> Path:
    """Write a run as a file or folder in the given format, and return its path."""
    table = to_frame(run)
    path = folder / f"run.{run_format}"
    if run_format == "trec":
        lines = [f"{query} Q0 {doc} 1 {score} tag" for query, doc, score in table.iter_rows()]
        path.write_text("\n".join(lines) + "\n")
    elif run_format == "csv":
        table.write_csv(path)
    elif run_format == "parquet":
        table.write_parquet(path)
    elif run_format == "folder":
        path.mkdir()
        (path / "_SUCCESS").touch()
        for start in range(0, table.height, 100):  # queries span several files
            table.slice(start, 100).write_parquet(path / f"part-{start:05}.parquet")
    else:
        for query in run:
            (path / f"query_id={query}").mkdir(parents=True)
            table.filter(pl.col("query_id") == query).drop("query_id").write_parquet(
                path / f"query_id={query}" / "0.parquet"
            )
    return path


@pytest.mark.parametrize("rules", CONVENTIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("run_format", ["trec", "csv", "parquet", "folder", "hive"])
@pytest.mark.cluster
def test_evaluate_file_in_parts_on_threads_equals_whole(run_format, rules, tmp_path, pools, small_parts):
    qrels, run = make_collection()
    path = write_run(run_format, run, tmp_path)
    targets = {f"d{n}": [f"t{n % 9}"] for n in range(500)}
    measures = MEASURES[:4] if rules.ties == "expected" else MEASURES
    targets = None if rules.ties == "expected" else targets  # the first four measures do not use them
    single = ragauge.evaluate(qrels, path, measures, rules, targets=targets)
    parallel = ragauge.evaluate(qrels, path, list(single.measures), rules, targets=targets, executor=pools["threads"])
    check_equal_scores(parallel, single)
    assert parallel.judged.tag == single.judged.tag


@pytest.mark.parametrize("rules", CONVENTIONS[:3], ids=lambda one: one.name)
def test_evaluate_in_memory_run_on_threads_equals_whole(rules, pools, small_parts):
    qrels, run = make_collection()
    run["q1"] = {}
    run["q7"] = {}  # unjudged and without documents
    for run_object in (run, to_frame(run), to_frame(run).to_pandas()):
        single = ragauge.evaluate(qrels, run_object, MEASURES[:5], rules)
        check_equal_scores(ragauge.evaluate(qrels, run_object, MEASURES[:5], rules, executor=pools["threads"]), single)


def test_evaluate_on_processes_equals_single_process(tmp_path, pools, small_parts):
    qrels, run = make_collection()
    runs = {"file": write_run("folder", run, tmp_path), "frame": to_frame(run), "nested": run}
    single = ragauge.evaluate(qrels, runs, MEASURES[:6])
    parallel = ragauge.evaluate(qrels, runs, MEASURES[:6], executor=pools["processes"])
    assert list(parallel) == list(single)
    for name in runs:
        check_equal_scores(parallel[name], single[name])


@pytest.mark.representative
def test_evaluate_on_cluster_equals_single_process(tmp_path, workers, small_parts):
    qrels, run = make_collection()
    runs = {"file": write_run("parquet", run, tmp_path), "text": write_run("trec", run, tmp_path), "nested": run}
    single = ragauge.evaluate(qrels, runs, MEASURES[:6])
    parallel = ragauge.evaluate(qrels, runs, MEASURES[:6], executor=workers.executor)
    for name in runs:
        check_equal_scores(parallel[name], single[name])


@pytest.mark.parametrize("run_format", ["parquet", "csv"])
def test_compute_judged_ranks_killed_worker_does_not_change_result(run_format, tmp_path, workers, monkeypatch):
    monkeypatch.setattr(parquet_runs, "ROWS_PER_GROUP", 2_000)
    monkeypatch.setattr(parquet_runs, "SINGLE_GROUP_BYTES", 0)
    monkeypatch.setattr(parquet_runs, "GROUPS_PER_PART", 1)
    monkeypatch.setattr(judged_ranks_from_frames, "MIN_ROWS_PER_PART", 2_000)
    qrels, run = make_collection(queries=1500, depth=60)
    path = write_run(run_format, run, tmp_path)
    rules = find_convention("default")
    measures = parse_measures(MEASURES[:4], rules)
    judgments = ragauge.read_judgments(qrels)
    rows_done = []

    def kill_worker(step: Progress) -> None:
        rows_done.append(step.done)
        if len(rows_done) == 3:
            assert workers.kill(1) == 1

    single = compute_judged_ranks_by_name(judgments, {"run": path}, measures, rules)["run"]
    parallel = compute_judged_ranks_by_name(
        judgments, {"run": path}, measures, rules, executor=workers.executor, progress=kill_worker
    )["run"]
    assert len(rows_done) > 20
    assert rows_done == sorted(rows_done)
    assert rows_done[-1] == to_frame(run).height  # each row is counted once
    for name in ("query", "rank", "row", "retrieved", "answered"):
        assert np.array_equal(getattr(parallel, name), getattr(single, name))


def test_evaluate_unsorted_queries_on_threads_equals_whole(tmp_path, pools, small_parts):
    qrels, run = make_collection()
    shuffled = to_frame(run).sample(fraction=1, shuffle=True, seed=1)
    shuffled.write_parquet(tmp_path / "mixed.parquet")
    single = ragauge.evaluate(qrels, shuffled, MEASURES[:4])
    assert single.means == ragauge.evaluate(qrels, run, MEASURES[:4]).means
    check_equal_scores(ragauge.evaluate(qrels, shuffled, MEASURES[:4], executor=pools["threads"]), single)
    parallel = ragauge.evaluate(qrels, tmp_path / "mixed.parquet", MEASURES[:4], executor=pools["threads"])
    assert parallel.means == single.means


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    rows_per_group=st.integers(1, 30),
    groups_per_part=st.integers(1, 4),
)
@pytest.mark.cluster
def test_parquet_run_parts_have_each_query_once(tmp_path_factory, sizes, rows_per_group, groups_per_part):
    folder = tmp_path_factory.mktemp("parts")
    queries = [f"q{n}" for n, size in enumerate(sizes) for _ in range(size)]
    table = pl.DataFrame({"query": queries, "doc": [f"d{n}" for n in range(len(queries))], "score": 1.0})
    table.slice(0, len(queries) // 2).write_parquet(folder / "a.parquet")
    table.slice(len(queries) // 2).write_parquet(folder / "b.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_runs, "ROWS_PER_GROUP", rows_per_group)
        patch.setattr(parquet_runs, "SINGLE_GROUP_BYTES", 0)
        patch.setattr(parquet_runs, "GROUPS_PER_PART", groups_per_part)
        patch.setattr(parquet_runs, "FIRST_ROWS_READ", 2)
        parts = [pl.concat(list(part.frames())) for part in open_parquet_run(str(folder)).parts()]
    assert pl.concat(parts).equals(table)
    names = [set(part["query"]) for part in parts]
    assert sum(map(len, names)) == len(sizes)


def test_frame_ranker_pickle_omits_index_and_targets():
    import pickle

    qrels, run = make_collection()
    judgments = Judgments(qrels, targets={"d1": ["t"]})
    ranker = FrameRanker(judgments, find_convention("default"), 3)
    table = Run(to_frame(run).rename({"query_id": "query", "doc_id": "doc"}))
    before = [ranker(part) for part in split_run(table)]
    restored = pickle.loads(pickle.dumps(ranker))
    assert "index" not in restored.__dict__
    assert restored.judgments.targets is None
    assert restored.judgments.nested == judgments.nested
    after = [restored(part) for part in split_run(table)]
    assert [ranks.rows for ranks in after] == [ranks.rows for ranks in before]
    assert (
        ranker.merge_partial_ranks(table, before).rank.tolist()
        == ranker.merge_partial_ranks(table, after).rank.tolist()
    )


def test_evaluate_duplicate_error_is_equal_on_every_executor(tmp_path, pools, workers, small_parts):
    qrels, run = make_collection()
    duplicated = pl.concat([to_frame(run).head(60), to_frame(run).slice(40, 5)]).sort("query_id", maintain_order=True)
    duplicated.write_parquet(tmp_path / "twice.parquet")
    messages = []
    for executor in (None, pools["threads"], workers.executor):
        with pytest.raises(BadInput, match="appears more than once in the ranking") as caught:
            ragauge.evaluate(qrels, tmp_path / "twice.parquet", executor=executor)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


def test_evaluate_parquet_missing_score_error_has_row_number(tmp_path, small_parts):
    table = to_frame(make_collection()[1]).with_columns(
        score=pl.when(pl.int_range(pl.len()) != 40).then(pl.col("score"))
    )
    table.write_parquet(tmp_path / "run.parquet")
    with pytest.raises(BadInput, match=r"run\.parquet: the score of row 41 is not a number"):
        ragauge.evaluate({"q1": {"d1": 1}}, tmp_path / "run.parquet")


@pytest.mark.parametrize("empty_files", [(0,), (1,), (3,), (0, 1, 2, 3)])
def test_evaluate_folder_with_empty_files_equals_whole(empty_files, tmp_path, pools, small_parts):
    qrels, run = make_collection(queries=4)
    table = to_frame(run)
    for file_number in range(4):
        part = table.slice(file_number * 31, 31)
        part.head(0 if file_number in empty_files else 31).write_parquet(tmp_path / f"{file_number}.parquet")
    single = ragauge.evaluate(qrels, tmp_path, MEASURES[:4])
    assert single.judged.retrieved.sum() == (
        0 if len(empty_files) == 4 else 31 * sum(n % 7 > 0 and n not in empty_files for n in range(4))
    )
    check_equal_scores(ragauge.evaluate(qrels, tmp_path, MEASURES[:4], executor=pools["threads"]), single)


def test_evaluate_folder_ignores_ranks_present_in_some_files_only(tmp_path, pools, small_parts):
    qrels, run = make_collection(queries=6)
    table = to_frame(run).with_columns(rank=pl.int_range(pl.len()))
    table.head(40).write_parquet(tmp_path / "a.parquet")  # the second query continues in b.parquet
    table.slice(40).drop("rank").write_parquet(tmp_path / "b.parquet")
    rules = find_convention("default").but(ties="ranked")
    single = ragauge.evaluate(qrels, tmp_path, MEASURES[:4], rules)
    assert single.means["recall@5"] == ragauge.evaluate(qrels, to_frame(run), MEASURES[:4], rules).means["recall@5"]
    check_equal_scores(ragauge.evaluate(qrels, tmp_path, MEASURES[:4], rules, executor=pools["threads"]), single)


def test_evaluate_folder_mixed_scores_and_distances_raises_error(tmp_path):
    table = to_frame(make_collection(queries=2)[1])
    table.head(31).write_parquet(tmp_path / "a.parquet")
    table.slice(31).rename({"score": "distance"}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(BadInput, match=r"b\.parquet: has distances, and a\.parquet has scores"):
        ragauge.evaluate({"q1": {"d1": 1}}, tmp_path)


def test_evaluate_folder_numeric_ids_are_equal_in_every_file(tmp_path):
    first = pl.DataFrame({"query_id": [1.0, 2.0], "doc_id": ["d1", "d0"], "score": [0.9, 0.9]})
    second = pl.DataFrame({"query_id": [2.0, 2.5], "doc_id": ["d1", "d1"], "score": [0.8, 0.9]})
    (tmp_path / "two").mkdir()
    first.write_parquet(tmp_path / "two" / "a.parquet")
    second.write_parquet(tmp_path / "two" / "b.parquet")
    pl.concat([first, second]).write_parquet(tmp_path / "one.parquet")
    qrels = {"1": {"d1": 1}, "2": {"d1": 1}, "2.5": {"d1": 1}}
    for path in (tmp_path / "two", tmp_path / "one.parquet"):
        assert ragauge.evaluate(qrels, path, "mrr").means == {"mrr": pytest.approx((1 + 0.5 + 1) / 3)}


@pytest.mark.parametrize("name", ["query_id=", "query_id=__HIVE_DEFAULT_PARTITION__"])
def test_evaluate_hive_folder_without_query_raises_error(name, tmp_path):
    (tmp_path / name).mkdir()
    pl.DataFrame({"doc_id": ["x"], "score": [1.0]}).write_parquet(tmp_path / name / "0.parquet")
    with pytest.raises(BadInput, match="the query of row 1 is missing"):
        ragauge.evaluate({"q": {"x": 1}}, tmp_path)


def test_evaluate_folder_without_valid_parquet_raises_error(tmp_path):
    assert not is_multi_file_run(tmp_path)
    (tmp_path / "inner").mkdir()
    to_frame(make_collection()[1]).write_parquet(tmp_path / "inner" / "part-0.parquet")
    assert not is_multi_file_run(tmp_path)
    with pytest.raises(BadInput, match="no run is in this folder"):
        open_run_lazily(tmp_path)
    (tmp_path / "inner" / "part-0.parquet").rename(tmp_path / "inner" / "part-0.txt")
    (tmp_path / "part-0.parquet").write_text("not Parquet")
    with pytest.raises(BadInput, match=r"part-0\.parquet: cannot be read"):
        ragauge.evaluate({"q1": {"d1": 1}}, tmp_path)


@given(st.lists(st.lists(st.integers(0, 30), max_size=30), min_size=1, max_size=20), st.integers(0, 2**20 - 1))
def test_possible_duplicates_match_brute_force_count(lists, table_index):
    """Random hashes, some equal and some with the same table index, are compared with a brute-force count."""
    rankings = [ranking for ranking in lists if ranking] or [[1]]
    hashes = np.array(
        [(number << 20) | (table_index if number % 3 else number) for ranking in rankings for number in ranking],
        np.int64,
    )
    starts = np.cumsum([0, *map(len, rankings)])
    hashes += np.repeat(np.arange(len(rankings)), np.diff(starts)) << 40
    judged = np.array([-1 if n % 5 == 4 else n for n in range(len(rankings))])
    block = QueryBlock(
        [str(n) for n in range(len(rankings))], starts, pl.Series([""]), np.zeros(0), hashes, judged, None
    )
    expected = [
        row
        for row, value in enumerate(hashes.tolist())
        if judged[np.searchsorted(starts, row, side="right") - 1] >= 0 and (hashes == value).sum() > 1
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judged_ranks_from_frames, "MIN_ROWS_PER_DUPLICATE_CHECK", 16)
        assert judged_ranks_from_frames._possible_duplicates(block).tolist() == expected


@pytest.mark.cluster
def test_evaluate_command_on_cluster_prints_same_output(tmp_path):
    qrels, run = make_collection()
    write_run("folder", run, tmp_path)
    table = [(query, doc, grade) for query, docs in qrels.items() for doc, grade in docs.items()]
    pl.DataFrame(table, schema=["query_id", "doc_id", "grade"], orient="row").write_csv(tmp_path / "qrels.csv")
    arguments = ["-m", "ragauge", "evaluate", "qrels.csv", "run.folder", "--per-query", "--csv"]
    single, parallel = run_python(arguments, tmp_path), run_python([*arguments, "--cluster", "local:2"], tmp_path)
    assert (parallel.returncode, parallel.stdout, parallel.stderr) == (0, single.stdout, single.stderr)
    assert single.stdout.count("\n") > 30


LOCAL_COMMAND = ("-m", "ragauge", "evaluate", "qrels.txt", "bm25.run", "--cluster", "local:2")


def start_local(folder: Path) -> tuple[subprocess.Popen[str], psutil.Process]:
    """Start `evaluate` on a local cluster, and return the command and its first worker process."""
    pytest.importorskip("distributed")
    (folder / "qrels.txt").write_text("q1 0 a 1\nq1 0 b 0\n")
    (folder / "bm25.run").write_text("q1 Q0 a 1 2.0 x\nq1 Q0 b 2 1.0 x\n")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = subprocess.Popen([sys.executable, *LOCAL_COMMAND], cwd=folder, text=True, start_new_session=True, **pipes)
    while command.poll() is None:
        for child in psutil.Process(command.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "spawn_main" in " ".join(child.cmdline()):
                    return command, child
    raise AssertionError(command.communicate())


@pytest.mark.crash
def test_cluster_worker_killed_while_it_starts_is_replaced(tmp_path):
    command, worker = start_local(tmp_path)
    worker.kill()
    out, err = command.communicate()
    assert command.returncode == 0, err
    assert "ndcg@10       1.0000" in out


@pytest.mark.parametrize("send_signal", [os.kill, os.killpg])
@pytest.mark.cluster
def test_cluster_interrupt_while_workers_start_ends_the_command(tmp_path, send_signal):
    command, _ = start_local(tmp_path)
    send_signal(command.pid, signal.SIGINT)
    out, err = command.communicate()
    assert (command.returncode, out, err) == (130, "", "")
