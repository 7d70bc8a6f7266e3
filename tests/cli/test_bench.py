"""`ragauge bench`, and `ragauge report` of a stored benchmark: tables, files, reuse, failures and progress."""

from __future__ import annotations

import csv
import io
import json

import jsonschema
import pytest

from command import command_in
from ragauge.cli.progress import show_progress
from ragauge.compute.progress import FINISHED, OVERALL, Progress
from ragauge.files.json_schemas import json_schema
from ragauge.files.serialization import write_record
from ragauge.store_benchmarks.results import StoreBenchmark
from store_benchmark_builder import make_full_benchmark

SCHEMA = json_schema(StoreBenchmark)
SMALL_BENCH = ("clustered", "--max-vectors", "400", "--max-queries", "20", "--repeats", "1")
OWN_STORES = """
import numpy as np
from ragauge.core.errors import MissingExtra

class Broken:
    def __init__(self, *, metric="l2"):
        pass
    def add(self, ids, vectors):
        raise RuntimeError("disk <full>: 42 bytes left")
    def search(self, vectors, k):
        raise RuntimeError("never built")

class Lacking(Broken):
    def __init__(self, *, metric="l2"):
        raise MissingExtra("the store Lacking", "lacking")
"""


@pytest.fixture
def ragauge(tmp_path):
    """Run the command in an empty folder."""

    return command_in(tmp_path, RAGAUGE_CACHE=str(tmp_path / "c"))


@pytest.fixture
def folder(tmp_path):
    """Folder of a constructed benchmark as `bench` writes it, without the HTML page."""
    path = tmp_path / "bench" / "toy"
    path.mkdir(parents=True)
    write_record(make_full_benchmark(), path / "benchmark.json")
    return path


@pytest.mark.engine
def test_bench_prints_results_and_writes_folder(ragauge, tmp_path):
    done = ragauge(
        "bench",
        *SMALL_BENCH,
        "--store",
        "exact",
        "--store",
        "two=exact",
        "--store",
        "null",
        "--qps",
        "200",
        "--seconds",
        "0.2",
    )
    sweep_output, load_output = done.stdout.split("\nLoad\n")
    assert "Speed at the same recall" in sweep_output
    assert (
        "null" not in sweep_output + load_output.partition("\n\n")[2]
    )  # the null store is neither ranked nor in the summary
    assert "latency includes the overhead of the harness" in done.stderr
    folder = tmp_path / "bench" / "clustered"
    data = json.loads((folder / "benchmark.json").read_text(encoding="utf-8"))
    jsonschema.validate(data, SCHEMA)
    assert [row["series"] for row in data["points"]] == ["exact", "two", "null"]
    assert data["points"][0]["quality"]["recall(of=eps,eps=1e-06)@10"] == 1.0
    assert {"points.csv", "loads.csv", "report.md"} <= {row.name for row in folder.iterdir()}
    assert len(list(csv.DictReader(io.StringIO((folder / "points.csv").read_text())))) == 3


@pytest.mark.engine
def test_bench_stalling_null_store_is_measured_under_load(ragauge):
    load = ("--qps", "100+50%", "--clients", "1", "--seconds", "0.5", "--no-sweep")
    done = ragauge("bench", *SMALL_BENCH, "--store", "null:stall_ms=50,every=20", *load)
    text = " ".join(done.stdout.split())
    assert "null is the harness itself, configured to stall for 50 ms once in 20 queries." in text
    rows = done.stdout.partition("\nLoad\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(rows) == 3  # closed loop, 100 queries/s, and 50% as a rate
    assert "closed loop" in rows[0]
    assert " 100 " in rows[1]


@pytest.mark.engine
def test_bench_marks_reused_rows_and_fresh_measures_them_again(ragauge):
    first = ragauge("bench", *SMALL_BENCH, "--store", "exact")
    assert "reused" not in first.stdout + first.stderr
    mixed = ragauge("bench", *SMALL_BENCH, "--store", "exact", "--store", "faiss:kind=flat")
    assert "exact: reused; made 20" in mixed.stderr
    assert "1 of 2 results is reused (made 20" in " ".join(mixed.stdout.split())
    rows = list(
        csv.DictReader(io.StringIO(ragauge("bench", *SMALL_BENCH, "--store", "exact", "--csv", "--fresh").stdout))
    )
    assert [row["reused"] for row in rows] == ["false"]
    refused = ragauge("bench", *SMALL_BENCH, "--store", "exact", "--fresh", "--reuse", code=2)
    assert "--fresh and --reuse are mutually exclusive" in refused.stderr


@pytest.mark.engine
def test_bench_prints_json_csv_or_schema(ragauge):
    done = ragauge("bench", *SMALL_BENCH, "--store", "exact", "--json")
    jsonschema.validate(json.loads(done.stdout), SCHEMA)
    [row] = csv.DictReader(io.StringIO(ragauge("bench", *SMALL_BENCH, "--store", "exact", "--csv").stdout))
    assert row["store"] == "exact"
    assert "--json and --csv" in ragauge("bench", "--json", "--csv", code=2).stderr
    assert json.loads(ragauge("bench", "--schema").stdout) == SCHEMA


@pytest.mark.engine
def test_bench_failing_store_is_reported_and_others_finish(ragauge, tmp_path):
    (tmp_path / "own.py").write_text(OWN_STORES)
    done = ragauge("bench", *SMALL_BENCH, "--store", "own:Broken", "--store", "exact", code=3)
    assert "exact" in done.stdout
    assert "disk <full>: 42 bytes left" in done.stderr
    assert "disk &lt;full>" in (tmp_path / "bench" / "clustered" / "report.md").read_text()


def test_bench_without_results_keeps_older_report(ragauge, folder, tmp_path):
    (tmp_path / "own.py").write_text(OWN_STORES)
    before = (folder / "benchmark.json").read_bytes()
    done = ragauge("bench", *SMALL_BENCH, "--store", "mine=own:Broken", "-o", "bench/toy", code=3)
    assert "error: mine, build: RuntimeError: disk <full>: 42 bytes left" in done.stderr
    assert "nothing was written" in done.stderr
    assert (folder / "benchmark.json").read_bytes() == before
    assert not (folder / "report.md").exists()


@pytest.mark.engine
def test_bench_missing_library_names_extra_and_others_finish(ragauge, tmp_path):
    (tmp_path / "own.py").write_text(OWN_STORES)
    done = ragauge("bench", *SMALL_BENCH, "--store", "own:Lacking", "--store", "exact", code=2)
    assert "exact" in done.stdout
    assert "[lacking]'" in done.stderr


def test_bench_invalid_option_prints_one_line_error(ragauge):
    assert (
        "--clients must be numbers separated by commas, got `two`"
        in ragauge("bench", "--clients", "two", code=2).stderr
    )
    assert "--qps must be numbers separated by commas, got `5%%`" in ragauge("bench", "--qps", "5%%", code=2).stderr
    assert "unknown store `hnswlob`" in ragauge("bench", "--store", "hnswlob", code=2).stderr


def test_report_prints_stored_benchmark(ragauge, folder):
    done = ragauge("report", "bench/toy")
    text = " ".join(done.stdout.split())
    assert "by search speed alone hnswlib is the fastest, with `dense(store=hnswlib(m=16" in text
    assert "chroma insert Batch size 10000 exceeds <b>maximum</b> fewer at a time" in text
    assert ragauge("report", "bench/toy/benchmark.json").stdout == done.stdout


def test_report_writes_benchmark_in_every_format(ragauge, folder, tmp_path):
    assert ragauge("report", "bench/toy", "--format", "latex").stdout.startswith("% \\usepackage{booktabs}")
    ragauge("report", "bench/toy", "-o", "again.csv", "-o", "again.md", "-o", "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["data"] == "toy"
    assert "this file is read" in ragauge("report", "bench/toy", "-o", "bench/toy/benchmark.json", code=2).stderr
    assert "unknown output format `latx`" in ragauge("report", "bench/toy", "--format", "latx", code=2).stderr


@pytest.mark.engine
def test_report_writes_page_and_charts_of_benchmark(ragauge, folder, tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    ragauge("report", "bench/toy", "-o", "again.html", "--charts", "charts")
    assert "<h1>Vector stores on toy</h1>" in (tmp_path / "again.html").read_text(encoding="utf-8")
    assert (tmp_path / "charts" / "bench-frontier.svg").read_text(encoding="utf-8").startswith("<svg")


def test_report_truncated_benchmark_prints_error(ragauge, folder):
    (folder / "benchmark.json").write_text('{"schema": "ragauge-benchmark/1", "points": [')
    assert "the JSON cannot be read" in ragauge("report", "bench/toy", code=2).stderr
    (folder / "benchmark.json").write_text('{"schema": "ragauge-benchmark/9", "points": []}')
    error = ragauge("report", "bench/toy", code=2).stderr
    assert 'expected the schema ragauge-benchmark/1, got "ragauge-benchmark/9"' in error


def test_show_progress_lines_prints_each_configuration_once(capsys):
    with show_progress(lines=True) as progress:
        progress(Progress("exact neighbours", 0, 10))
        progress(Progress("exact neighbours", 10, 10))
        for store in ("faiss:m=16", "faiss:m=32"):
            progress(Progress("stores", 0, 2, stage=OVERALL))
            progress(Progress("insert", 0, 100, store))
            progress(Progress("insert", 100, 100, store))
            progress(Progress("search", 1, 3, store))
    assert capsys.readouterr().err == "exact neighbours\nfaiss:m=16: insert\nfaiss:m=32: insert\n"
    assert progress.describe_step() == "faiss:m=32: search (1 of 3)"


def test_show_progress_escape_sequences_are_replaced(capsys):
    with show_progress(lines=True) as progress:
        progress(Progress("insert", 0, 1, "red\x1b[31m\x07"))
        progress(Progress("insert", 1, 1, "red\x1b[31m\x07"))
        progress(Progress("built in 1.0 s", 1, 1, "red\x1b[31m", FINISHED))
    printed = capsys.readouterr().err
    assert printed == "red\ufffd[31m\ufffd: insert\nred\ufffd[31m: built in 1.0 s\n"
    assert not {"\x1b", "\x07"} & set(printed)
