"""Report of a benchmark: texts, tables, charts, CSV, JSON and formats."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import ragauge
from ragauge.core.errors import BadInput, UnknownName
from ragauge.files.json_schemas import json_schema
from ragauge.files.serialization import from_record_data, read_record, to_json_data
from ragauge.output.chart_files import chart_specification, render_svg
from ragauge.output.csv import render_csv
from ragauge.output.formats import format_for_path
from ragauge.output.latex import render_latex
from ragauge.output.markdown import render_markdown
from ragauge.output.page import render_page
from ragauge.output.report import Paragraph
from ragauge.output.tables import Table
from ragauge.output.terminal import render_report
from ragauge.reports.overviews import report
from ragauge.reports.registry import find_formats
from ragauge.store_benchmarks.csv_tables import build_filter_rows, build_load_rows, build_point_rows
from ragauge.store_benchmarks.load_and_cost_charts import draw_benchmark_charts
from ragauge.store_benchmarks.recall_charts import build_recall_axis
from ragauge.store_benchmarks.report import build_report
from ragauge.store_benchmarks.report_tables import (
    build_configuration_table,
    build_filter_table,
    build_load_table,
    build_mixed_table,
    build_recall_level_table,
    select_frontier_points,
)
from ragauge.store_benchmarks.report_text import (
    describe_failures,
    describe_sufficient_recall,
    explain_recall,
    format_system,
    list_benchmark_facts,
    list_benchmark_notes,
    list_doubts,
    null_store_latency,
    summarise_benchmark,
)
from ragauge.store_benchmarks.results import Configuration, FailedConfiguration, FilteredSearch, StoreBenchmark
from ragauge.store_benchmarks.results_folder import find_benchmark_file, list_result_files
from store_benchmark_builder import RECALL, latency, load, make_full_benchmark, point, sweep, with_unreliable_times

SCHEMA = json_schema(StoreBenchmark)
GOLDEN_FOLDER = Path(__file__).parents[1] / "goldens" / "folders" / "bench"
SCRIPT = "window.vegaEmbed = async () => {};"


def select_tables(result: StoreBenchmark, format_name: str) -> dict[str, Table]:
    """Return the tables of a report that a format shows, by id."""
    sections = build_report(result).select_sections(format_name)
    return {block.id: block for section in sections for block in section.blocks if isinstance(block, Table)}


def rows_by_store(table: Table) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in table.texts()}


def list_titles(table: Table) -> list[str]:
    return [column.title for column in table.columns]


def read_column(table: Table, title: str) -> list[str]:
    return [row[list_titles(table).index(title)] for row in table.texts()]


def find_best_values(table: Table) -> dict[str, str]:
    return {
        heading.title: cell.text or text
        for cells, texts in zip(table.cells(), table.texts(), strict=True)
        for cell, text, heading in zip(cells, texts, table.columns, strict=True)
        if cell.best
    }


def build_frontier_table(result: StoreBenchmark) -> Table:
    return build_configuration_table(result, select_frontier_points(result))


def to_markdown(result: StoreBenchmark) -> str:
    return render_markdown([build_report(result)])


def to_latex(result: StoreBenchmark) -> str:
    return render_latex([build_report(result)])


def to_page(result: StoreBenchmark) -> str:
    return render_page([build_report(result)], lambda: SCRIPT)


def read_csv_rows(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(table))))


# Complete report.


def test_bench_report_has_all_sections_in_order():
    sections = build_report(make_full_benchmark()).select_sections("html")
    assert [section.id for section in sections] == [
        "recall", "frontier", "quality", "latency", "costs", "relevance", "load", "filters", "updates", "unmeasured",
        "limitations", "details",
    ]  # fmt: skip
    minimal_sections = build_report(sweep(point("a", 0.9, 1.0))).select_sections("markdown")
    section_ids = [
        section.id for section in minimal_sections if any(isinstance(block, Table) for block in section.blocks)
    ]
    assert section_ids == ["recall", "frontier", "quality", "latency", "details"]


def test_bench_report_has_data_facts_and_provenance():
    bench_report = build_report(make_full_benchmark())
    assert bench_report.title == "Vector stores on toy"
    assert bench_report.created == "2026-11-15T12:00:00+00:00"
    assert (bench_report.provenance["exact neighbours by"], bench_report.provenance["python"]) == ("numpy", "3.11.7")
    assert list(bench_report.subject) == [
        "10,000 vectors of 128 dimensions",
        "100 queries",
        "l2",
        "k = 10",
        "1 thread",
        "3 trials, 300 timed searches per configuration",
    ]


def test_bench_report_fits_80_columns():
    _, dropped = render_report(build_report(make_full_benchmark()), 80)
    assert "disk" in dropped
    assert render_report(build_report(make_full_benchmark()), 200)[1] == []


def test_bench_markdown_has_tables_summary_and_failures():
    text = to_markdown(make_full_benchmark())
    assert "16,667 queries per second" in text
    assert "| duckdb | not reached | not reached | not reached | - | - | - |" in text
    assert "| chroma | insert | Batch size 10000 exceeds &lt;b>maximum&lt;/b> | fewer at a time |" in text
    assert "| hnswlib m=32 ef_search=80 |" in text


def test_bench_latex_has_row_per_store_with_best_in_bold():
    text = to_latex(make_full_benchmark())
    assert re.search(r"hnswlib +& 0\.9950 & \\textbf\{22,105\} +& \\textbf\{17,100\}", text)
    assert re.search(
        r"duckdb +& 0\.8800 & -- +& -- +& -- +& 0\.9000 & 0\.300 .*& \\underline\{0\.500\} +& -- \\\\", text
    )
    assert re.search(
        r"store +& recall & QPS .* & MRR +& p50 \(ms\) & p90 \(ms\) & p95 \(ms\) & p99 \(ms\) & build", text
    )
    assert re.search(r"50\\% +& hnswlib m=16 ef\\_search=40 & 0\.9500 & \\textbf\{12,500\}", text)
    assert text.count("?: unreliable time.") == 1
    assert "unreliable" not in to_latex(sweep(point("a", 0.96, 0.1), point("b", 0.96, 0.2)))


def test_bench_report_hostile_names_are_escaped():
    hostile = "[bold]x[/bold] \x1b[31m <b>|&_%"
    result = replace(sweep(point("a", 0.96, 1.0, name=hostile)), data=hostile)
    assert "<b>" not in to_markdown(result)
    assert r"\&\_\%" in to_latex(result)
    assert "<b>|" not in to_page(result)
    assert "\x1b" not in to_markdown(result)


def test_bench_report_long_table_is_shortened_on_terminal_only():
    points = [
        point(f"s{s}", 0.5 + 0.05 * i, 1 + i, search={"ef": i}, relevance={"ndcg@10": 0.1 * i})
        for s in range(4)
        for i in range(10)
    ]
    result = sweep(*points)
    assert len(select_tables(result, "markdown")["frontier"].rows) == 40
    table = select_tables(result, "terminal")["frontier"]
    assert read_column(table, "recall")[:3] == [
        "0.9000",
        "0.9500",
        "0.9000",
    ]  # 0.99 is not reached; the last point is shown instead
    section = next(section for section in build_report(result).select_sections("terminal") if section.id == "frontier")
    assert Paragraph("32 configurations of the frontier not shown; files have all.") in section.blocks
    assert "ef=0" in to_markdown(result)
    assert len(select_tables(result, "terminal")["quality"].rows) == 4
    assert len(select_tables(result, "markdown")["quality"].rows) == 40


def test_bench_report_has_percentiles_and_mrr_at_each_cutoff():
    quality = {f"{name}@{k}": 0.9 for k in (1, 10) for name in ("recall(of=eps,eps=1e-06)", "recall", "precision")}
    base = point("a", 0.9, 1.0)
    measured = replace(base, quality={**quality, "mrr@1": 0.7071, "mrr@10": 0.8642, RECALL: 0.9})
    result = replace(sweep(measured), cutoffs=(1, 10), true_neighbours=100)
    assert "recall of 100 (at most k/100)" in to_markdown(result)
    assert "recall of all exact neighbours" in to_markdown(replace(result, true_neighbours=0))
    for text in (to_markdown(result), to_page(result), to_latex(result)):
        for number in ("0.7071", "0.8642", "1.20", "1.50"):  # MRR, p90, p95
            assert number in text
    assert "k = 1, 10 (one search at k = 10)" in list_benchmark_facts(result)
    assert (
        "one search at k = 10; a search at a smaller k may find less" in select_tables(result, "html")["quality"].note
    )


def test_bench_report_labels_forced_configurations():
    build = {"index": "hnsw"}
    result = sweep(
        point("pgvector", 0.96, 0.1, build=build, search={"ef_search": 40}),
        *(point("pgvector", recall, ms, build=build, search={"ef_search": ef, "force": True})
          for ef, recall, ms in ((10, 0.9, 0.05), (40, 0.97, 0.2))),
    )  # fmt: skip
    for name in ("frontier", "quality", "latency", "recall-levels"):
        labels = [row[0] for row in select_tables(result, "html")[name].texts()]
        assert any(label.startswith("pgvector hnsw forced") for label in labels), name
    assert [row["series"] for row in read_csv_rows(build_point_rows(result))].count("pgvector hnsw forced") == 2


# Tables.


def test_frontier_table_labels_have_only_differing_options():
    assert [row[0] for row in build_frontier_table(make_full_benchmark()).texts()][:4] == [
        "hnswlib m=16 ef_search=10",
        "hnswlib m=16 ef_search=40",
        "hnswlib m=16 ef_search=160",
        "faiss ivf probes=2",
    ]


def test_dominated_configurations_are_only_in_full_table():
    tables = select_tables(make_full_benchmark(), "html")
    assert len(tables["frontier"].rows) == 7
    assert len(tables["all"].rows) == 8
    assert tables["all"].collapsed


def test_frontier_table_marks_best_value_per_column():
    assert find_best_values(build_frontier_table(make_full_benchmark())) == {
        "recall": "1.0000", "QPS": "33,333", "p50 ms": "0.030", "p99 ms": "0.060", "build s": "0.020",
        "memory": "4.9 MB", "disk": "6.8 MB",
    }  # fmt: skip


def test_bench_tables_mark_unreliable_times():
    row = rows_by_store(build_frontier_table(make_full_benchmark()))["hnswlib m=16 ef_search=160"]
    assert row[:4] == ["0.9950", "5,882?", "0.170?", "0.340?"]
    speeds = rows_by_store(build_recall_level_table(make_full_benchmark()))["hnswlib"]
    assert [text.endswith("?") for text in speeds] == [False, False, True, False, False, True]
    assert "?" not in "".join(rows_by_store(build_recall_level_table(make_full_benchmark()))["exact"])


def test_recall_level_table_unreached_level_is_not_zero():
    table = rows_by_store(build_recall_level_table(make_full_benchmark()))
    assert table["duckdb"] == ["not reached"] * 3 + ["-"] * 3
    assert table["faiss ivf"][2] == "not reached"


def test_bench_report_null_store_is_not_ranked():
    assert "null" not in " ".join(row[0] for row in build_frontier_table(make_full_benchmark()).texts())
    overhead_note = "latency includes the overhead of the harness (checks and ids), 0.002 ms per query"
    assert overhead_note in list_benchmark_notes(make_full_benchmark())
    with_own_store = sweep(
        *make_full_benchmark().points, point("mine:Store", 0.9, 1.0, name="mine", notes=["slow to open"])
    )
    assert overhead_note.replace("latency", "latency of built-in stores") in list_benchmark_notes(with_own_store)
    assert ["mine", "slow to open"] in select_tables(with_own_store, "terminal")["limitations"].texts()


def test_bench_notes_print_statement_of_a_store_once():
    statement = "SELECT id, embedding <=> %s AS distance\n FROM items ORDER BY distance LIMIT 10"
    points = [point("pgvector", 0.9, 1.0, search={"ef_search": value}) for value in (10, 40)]
    told = [replace(one, build=replace(one.build, about={"statement": statement})) for one in points]
    expected = "pgvector sends: SELECT id, embedding <=> %s AS distance FROM items ORDER BY distance LIMIT 10"
    assert [note for note in list_benchmark_notes(sweep(*told)) if "sends" in note] == [expected]


def test_bench_report_stalling_null_store_is_in_load_table_only():
    stalling = point("null", 0.0, 0.01, search={"stall_ms": 300, "every": 500}, loads=[load(200.0, 290.0, 0.02)])
    assert build_load_table(sweep(stalling)).texts()[0][:4] == ["null", "1", "200", "200"]
    assert summarise_benchmark(sweep(stalling)) == [
        "No store was measured: null is the harness itself, configured to stall for 300 ms once in 500 queries."
    ]
    with_other_store = sweep(stalling, point("a", 0.96, 1.0, loads=[load(200.0, 2.0, 2.0)]))
    assert [row[0] for row in build_load_table(with_other_store).texts()] == ["a", "null"]
    assert list(rows_by_store(build_recall_level_table(with_other_store))) == ["a"]
    assert "null" not in " ".join(summarise_benchmark(with_other_store))
    assert null_store_latency(with_other_store) == 0.002  # from the clock checks, because this null store stalls


def test_load_table_has_latency_and_service_times():
    rows = [row[2:] for row in build_load_table(make_full_benchmark()).texts()]
    assert rows[0][:3] == ["closed loop", "11,800", "-"]
    assert rows[1] == ["500", "500", "yes", "0.300", "0.500", "0.200", "0.400"]
    assert rows[2] == ["5,000", "4,100", "no", "0.300", "48.0", "0.200", "0.500"]


def test_load_table_marks_doubtful_load_with_note():
    doubtful = replace(load(500.0, 0.5, 0.4), doubts=["the host took 4% of the CPU time"])
    result = sweep(point("a", 0.96, 1.0, loads=[doubtful]))
    assert build_load_table(result).texts()[0][3:7] == ["500?", "yes", "0.300?", "0.500?"]
    assert (
        "? marks doubtful times: a with 500 queries per second (the host took 4% of the CPU time); measure them again "
        "with --remeasure doubtful"
    ) in list_benchmark_notes(result)
    with_copy = sweep(point("a", 0.96, 1.0, loads=[replace(load(500.0, 0.5, 0.4), note="each client had a copy")]))
    assert build_load_table(with_copy).texts()[0][3] == "500"
    assert build_load_table(with_copy).texts()[0][-1] == "each client had a copy"


def test_frontier_table_recall_legend_explains_measure():
    measure = "recall(of=eps,eps=1e-06)@10"
    legends = {heading.title: heading.legend for heading in build_frontier_table(make_full_benchmark()).columns}
    assert legends["recall"] == (
        f"{measure}: share of results no farther than the k-th exact neighbour, with a relative tolerance of 1e-06"
    )
    assert explain_recall("recall(of=eps)@5").endswith("with a relative tolerance of 0.001")


def test_frontier_table_has_cost_only_with_price():
    table = build_frontier_table(sweep(point("a", 0.96, 1.0, cost_per_million=0.25)))
    assert table.columns[-1].legend == "cost of a million queries on one thread at the given price"
    assert read_column(table, "cost/million") == ["0.25"]
    assert "cost/million" not in list_titles(build_frontier_table(make_full_benchmark()))


def test_mixed_table_insert_rate_legend_is_not_a_maximum():
    table = build_mixed_table(make_full_benchmark())
    assert table.columns[1].title == "inserts/s"
    assert "so a store may allow more" in table.columns[1].legend


def test_bench_report_lists_unsupported_operations():
    result = sweep(point("a", 0.96, 1.0), point("usearch", 0.97, 0.5, unsupported=["filter", "load"]))
    assert select_tables(result, "terminal")["unmeasured"].texts() == [
        ["usearch", "filter", "the store cannot filter"],
        ["usearch", "load", "the store cannot be opened by another process, so it was not load-tested"],
    ]
    assert "unmeasured" not in select_tables(sweep(point("a", 0.96, 1.0)), "markdown")


def test_describe_failures_uses_configured_name():
    failure = FailedConfiguration(Configuration("mine:Store", {"m": 4}, name="mine"), "insert", "no")
    assert describe_failures(sweep(failures=[failure])) == ["mine m=4, insert: no"]


# Notes and summary.


def test_list_benchmark_notes_limits_listed_doubts():
    [note] = [line for line in list_benchmark_notes(make_full_benchmark()) if line.startswith("?")]
    assert "hnswlib m=16 ef_search=160 (341 involuntary switches; 4% of the time was stolen)" in note
    [note] = [
        line for line in list_benchmark_notes(with_unreliable_times(make_full_benchmark())) if line.startswith("?")
    ]
    assert "and 4 more" in note


def test_summary_doubt_counts_match_list_doubts():
    doubts = ("the repeats differ by 40% in speed",)
    result = with_unreliable_times(make_full_benchmark())
    points = [
        replace(measured, filters=[replace(part, doubts=doubts) for part in measured.filters],
                loads=[replace(part, doubts=doubts if part.rate else ()) for part in measured.loads])
        for measured in result.points
    ]  # fmt: skip
    result = replace(result, points=points)
    [sentence] = [line for line in summarise_benchmark(result) if "doubtful" in line and "marked" in line]
    counts = "8 of 8 configurations, 2 of 2 results with a filter and 2 of 3 results under load"
    assert sentence.startswith(f"The times of {counts} are doubtful")
    assert len(list_doubts(result)) == 8 + 2 + 2
    assert "and 8 more" in next(line for line in list_benchmark_notes(result) if line.startswith("?"))


def test_summary_names_fastest_smallest_and_failures():
    assert summarise_benchmark(make_full_benchmark()) == [
        "With a filter that matches 50% of the vectors hnswlib (ef_search=40) is the fastest at recall 0.95: 12,500 "
        "queries per second; no other store reaches it.",
        "With a filter that matches 1% of the vectors no store reaches recall 0.95; hnswlib (ef_search=40) is closest, "
        "with recall 0.380.",
        "Without a filter, no store with recall 0.95 meets all requirements; by search speed alone hnswlib is the "
        "fastest, with `dense(store=hnswlib(m=16, ef_construction=200, ef_search=40, metric=l2))` (recall 0.9550): "
        "16,667 queries per second, 2.0 times as many as faiss ivf.",
        "Requirements are not met by hnswlib (does not sustain 5,000 queries per second; the next search misses 50% of "
        "the deletes; recall 0.930 during inserts; returns 42% of the rows with the filter of 1%), faiss ivf (not "
        "measured), exact (not measured) and duckdb (not measured).",
        "Of the stores with recall 0.95, faiss ivf uses the least memory (4.9 MB) and exact is built fastest "
        "(0.020 s).",
        "duckdb (0.880) does not reach recall 0.95 in any configuration.",
        "Exact neighbours have ndcg@10 0.4120, and from recall 0.955 on every configuration is within 0.005 of it, so "
        "more recall does not improve it.",
        "The times of 1 of 8 configurations are doubtful (marked ?). Measure them again on an idle machine with "
        "`--remeasure doubtful`; if the repeats differ, with more `--repeats`.",
        "Not measured, or only in part: chroma (insert) and scann (opening).",
    ]


def make_filters(recall, name="", wrong=0, returned=1.0):
    return [FilteredSearch(0.0100025, 100, returned, recall, wrong, latency(0.1), name)]


def test_summary_compares_measured_settings_not_interpolated_speeds():
    # Between the two builds of `graph`, 9,283 queries per second are interpolated, which no setting reaches.
    points = [
        point("graph", 0.90, 0.05, build={"m": 8}),
        point("graph", 0.99, 0.2, build={"m": 48}),
        point("cells", 0.951, 0.125, build={"kind": "ivf"}, search={"nprobe": 4}),
    ]
    result = replace(sweep(*points), metric="cosine", provenance={"embedder": "lm(tokenizer=bytes)"})
    assert result.reached[1].qps == pytest.approx(9_259, rel=0.01)
    assert summarise_benchmark(result)[0] == (
        "At recall 0.95 cells ivf is the fastest, with "
        "`dense(embedder=lm(tokenizer=bytes), store=cells(kind=ivf, nprobe=4))` (recall 0.9510): 8,000 queries per "
        "second, 1.6 times as many as graph."
    )


def test_format_system_omits_server_and_keeps_own_class_as_store():
    result = replace(sweep(), metric="cosine")
    remote = point("qdrant", 0.96, 1.0, build={"at": "server", "m": 16}, search={"ef_search": 40})
    assert format_system(result, remote) == "dense(store=qdrant(m=16, ef_search=40))"
    own = point("mine:Store", 0.96, 1.0, build={"m": 16}, name="mine")
    assert format_system(result, own) == "mine:Store:m=16"


@pytest.mark.engine
def test_bench_summary_names_a_system_that_run_accepts(tmp_path):
    documents = [ragauge.Document(f"d{i}", f"text number {i} about item{i}") for i in range(60)]
    queries = {f"q{i}": f"item{i}" for i in range(6)}
    data = ragauge.Dataset("small", documents, queries, ragauge.Judgments({f"q{i}": {f"d{i}": 1} for i in range(6)}))
    embedder = "words(dimensions=64)"
    result = ragauge.bench(data, "hnswlib:m=8,ef_search=60", embedder=embedder, repeats=1, folder=tmp_path / "bench")
    system = summarise_benchmark(result)[0].split("`")[1]
    assert system.startswith(f"dense(embedder={embedder}, store=hnswlib(m=8, ")
    assert list(ragauge.run(data, [system], out=tmp_path / "run").runs) == [system]


def test_summary_names_stores_failing_requirements():
    result = sweep(
        point("a", 0.96, 0.1, filters=make_filters(0.4, "lang=de", returned=0.5)),
        point("b", 0.96, 0.2, filters=make_filters(0.97)),
        point("c", 0.96, 0.3, unsupported=["filter", "update"]),
        point("d", 0.96, 0.4, filters=make_filters(0.99, "lang=de", wrong=3)),
        point("e", 0.96, 0.5, loads=[load(50.0, 1.0, 1.0)], filters=make_filters(0.96)),
    )
    assert summarise_benchmark(result)[:4] == [
        "With the filter `lang=de` (1% of the vectors) no store reaches recall 0.95 with matching rows only; d is "
        "closest, with recall 0.990 and 3 rows that do not match.",
        "With a filter that matches 1% of the vectors e is the fastest at recall 0.95 among the stores that meet all "
        "other requirements: 10,000 queries per second.",
        "Without a filter, at recall 0.95 e is the fastest among the stores that meet all requirements, with "
        "`dense(store=e(metric=l2))` (recall 0.9600): 2,000 queries per second; no other store reaches it.",
        "Requirements are not met by a (returns 50% of the rows with the filter `lang=de`), c (cannot filter; cannot "
        "update) and d (returns rows that do not match the filter `lang=de`).",
    ]
    failure = FailedConfiguration(Configuration("a"), "filters", "no")
    with_failure = sweep(point("a", 0.96, 0.1), failures=[failure])
    assert summarise_benchmark(with_failure)[1] == "Requirements are not met by a (filters failed)."
    assert "equirements" not in " ".join(summarise_benchmark(sweep(point("a", 0.96, 0.1))))


def test_summary_ignores_differences_within_variation():
    close = sweep(point("a", 0.96, 0.100), point("b", 0.96, 0.103))
    assert "within the variation between repeats" in summarise_benchmark(close)[0]
    apart = sweep(point("a", 0.96, 0.100), point("b", 0.96, 0.106))
    assert "1.1 times as many as b" in summarise_benchmark(apart)[0]
    steady = [replace(measured, qps_spread=0.001) for measured in close.points]
    assert summarise_benchmark(sweep(*steady))[0].endswith("10,000 queries per second, about as many as b (9,709).")
    once = [replace(point(name, 0.96, ms), qps_spread=math.nan) for name, ms in (("a", 0.1), ("b", 0.115), ("c", 0.3))]
    assert "about as many as b (8,696)" in summarise_benchmark(sweep(*once))[0]
    assert "3.0 times as many as c" in summarise_benchmark(sweep(once[0], once[2]))[0]


def test_summary_has_doubtful_times():
    sentences = summarise_benchmark(with_unreliable_times(sweep(point("a", 0.96, 0.1), point("b", 0.96, 0.2))))
    assert sentences[0].endswith("2.0 times as many as b; these times are doubtful.")
    assert sentences[-1].startswith("All times are doubtful (marked ?).")


def test_summary_smallest_and_fastest_built_store_is_named_once():
    result = sweep(
        point("a", 0.96, 1.0, memory=10_000_000, seconds=1.0), point("b", 0.97, 2.0, memory=20_000_000, seconds=2.0)
    )
    assert (
        summarise_benchmark(result)[1]
        == "Of all stores, a uses the least memory (10 MB) and is built fastest (1.00 s)."
    )


def test_summary_names_stores_of_unknown_memory():
    result = sweep(
        point("a", 0.96, 1.0, memory=10_000_000, seconds=1.0),
        point("b", 0.97, 2.0, memory=20_000_000, seconds=2.0),
        point("http", 0.97, 3.0, memory=None, seconds=3.0),
    )
    assert (
        summarise_benchmark(result)[1]
        == "Of all stores, a uses the least memory (10 MB; unknown for http) and is built fastest (1.00 s)."
    )


def test_summary_without_store_at_recall_names_closest():
    assert summarise_benchmark(sweep(point("a", 0.5, 1.0), point("b", 0.7, 9.0)))[0] == (
        "No store reaches recall 0.95; b is closest, with 0.700."
    )


def test_summary_without_results_names_failures():
    failure = FailedConfiguration(Configuration("chroma"), "insert", "no")
    assert summarise_benchmark(sweep(failures=[failure])) == [
        "No store could be measured.",
        "Not measured, or only in part: chroma (insert).",
    ]
    assert "No store could be measured." in to_page(sweep(failures=[failure]))


def test_sufficient_recall_is_above_all_insufficient_ones():
    first, second = make_full_benchmark().sufficient_recalls
    assert (first.measure, first.score, first.highest_recall, first.recall) == ("ndcg@10", 0.412, 1.0, 0.955)
    # By hand: 0.412 - 0.005 = 0.407. Recall 0.94 has a lower score (0.405), and 0.955 (0.409) and above higher ones.
    result = sweep(
        point("a", 0.5, 1.0, relevance={"ndcg@10": 0.412}),
        point("a", 0.9, 2.0, relevance={"ndcg@10": 0.3}),
        point("a", 0.98, 3.0, relevance={"ndcg@10": 0.41}),
    )
    [sufficient] = result.sufficient_recalls
    assert sufficient.recall == 0.98  # not 0.5: its high score is not kept at recall 0.9
    assert describe_sufficient_recall(sufficient) == (
        "the highest recall, 0.980, has ndcg@10 0.4100, and configurations with lower recall have lower scores"
    )
    assert make_full_benchmark(relevance=False).sufficient_recalls == []
    # The summary has the sentence on the first measure, and the note of the table has those on the others.
    note = select_tables(make_full_benchmark(), "html")["relevance"].note
    assert note == f"E{describe_sufficient_recall(second)[1:]}."


# Filters.


def make_filter_point(store, ef, recall, ms, *, unfiltered, doubts=(), selectivity=0.01):
    """Build a configuration that takes `unfiltered` ms per query without a filter and `ms` with one."""
    filtered = FilteredSearch(selectivity, 100, 1.0, recall, 0, latency(ms), repeats=3, qps_spread=0.04, doubts=doubts)
    return point(store, 0.96, unfiltered, search={"ef_search": ef}, filters=[filtered])


def make_filter_benchmark():
    """Build a benchmark in which `graph` is the fastest without a filter, and `cells` with one (at recall 0.98)."""
    return sweep(
        make_filter_point("graph", 10, 0.99, 6.0, unfiltered=0.01),
        make_filter_point("cells", 16, 0.69, 0.1, unfiltered=0.05),
        make_filter_point("cells", 64, 0.98, 0.12, unfiltered=0.2, doubts=("the repeats differ by 40% in speed",)),
        point("tree", 0.97, 0.3, unsupported=["filter"]),
    )


def test_summary_recommends_fastest_store_with_filter():
    sentences = summarise_benchmark(make_filter_benchmark())
    assert sentences[:3] == [
        "With a filter that matches 1% of the vectors cells (ef_search=64) is the fastest at recall 0.95: 8,333 "
        "queries per second, 50.0 times as many as graph (ef_search=10); these times are doubtful.",
        "Without a filter, at recall 0.95 graph is the fastest, with `dense(store=graph(ef_search=10, metric=l2))` "
        "(recall 0.9600): 100,000 queries per second, 5.0 times as many as "
        "cells.",
        "Requirements are not met by tree (cannot filter).",
    ]
    data = to_json_data(make_filter_benchmark())
    (comparison,) = data["with_filter"]
    assert [(row["configuration"], row["passes"]) for row in comparison["operating_points"]] == [
        ("cells:ef_search=64", True),
        ("graph:ef_search=10", True),
    ]
    jsonschema.validate(json.loads(json.dumps(data, allow_nan=False)), SCHEMA)


def test_summary_groups_filters_by_fastest_store():
    selectivities = (0.9, 0.5, 0.01)
    fast_filters = [
        FilteredSearch(selectivity, 100, 1.0, 1.0, 0, latency(0.1 if selectivity > 0.1 else 9.0))
        for selectivity in selectivities
    ]
    slow_filters = [
        FilteredSearch(selectivity, 100, 1.0, 1.0 if selectivity > 0.001 else 0.5, 0, latency(1.0))
        for selectivity in (*selectivities, 0.001)
    ]
    result = sweep(point("graph", 0.96, 0.1, filters=fast_filters), point("cells", 0.96, 0.5, filters=slow_filters))
    assert summarise_benchmark(result)[0] == (
        "Fastest store at recall 0.95 by filter: graph (90%, 50%), cells (1%), none (0.1%)."
    )


def test_filter_table_has_selectivity_for_named_filters_only():
    random_table = build_filter_table(sweep(point("a", 0.96, 0.1, filters=make_filters(0.97))))
    assert random_table.texts()[0][:2] == ["1%", "a"]
    assert "selectivity" not in list_titles(random_table)
    named_table = build_filter_table(sweep(point("a", 0.96, 0.1, filters=make_filters(0.97, "lang=de"))))
    assert named_table.texts()[0][:2] == ["lang=de", "a"]
    assert read_column(named_table, "selectivity") == ["1%"]


def test_filter_table_has_percentiles_qps_repeats_and_marks():
    table = build_filter_table(make_filter_benchmark())
    assert list_titles(table) == [
        "filter", "store", "recall", "QPS", "p50 ms", "p95 ms", "p99 ms", "returned", "wrong", "matching", "repeats",
    ]  # fmt: skip
    assert [row[1:7] for row in table.texts()] == [
        ["cells ef_search=64", "0.9800", "8,333?", "0.120?", "0.180?", "0.240?"],
        ["graph", "0.9900", "167", "6.00", "9.00", "12.0"],
    ]
    assert [row[3].best for row in table.cells()] == [True, False]
    full_table = build_filter_table(make_filter_benchmark(), collapsed=True)
    assert len(full_table.rows) == 3
    assert "cells ef_search=16" in read_column(full_table, "store")
    [note] = [line for line in list_benchmark_notes(make_filter_benchmark()) if line.startswith("?")]
    assert "cells ef_search=64 with a filter that matches 1% of the vectors (the repeats differ by 40%" in note


def test_filter_table_note_names_stores_with_row_lists_next_to_others():
    exact, faiss, duckdb = (
        make_filter_point(name, 10, 0.99, 6.0, unfiltered=0.01) for name in ("exact", "faiss", "duckdb")
    )
    note = "For exact and faiss the matching rows were listed before timing; the other stores filter in each search."
    assert build_filter_table(sweep(exact, faiss, duckdb)).note.endswith(f" {note}")
    assert "listed" not in build_filter_table(sweep(exact, faiss)).note
    assert "listed" not in build_filter_table(sweep(duckdb)).note


def test_filter_csv_has_every_setting_and_operating_points():
    rows = read_csv_rows(build_filter_rows(make_filter_benchmark()))
    assert [(row["configuration"], row["operating_point"], row["repeats"]) for row in rows] == [
        ("graph:ef_search=10", "true", "3"),
        ("cells:ef_search=16", "false", "3"),
        ("cells:ef_search=64", "true", "3"),
    ]
    assert float(rows[2]["qps"]) == pytest.approx(1000 / 0.12)
    assert (rows[2]["p95_ms"], rows[2]["doubts"]) == ("0.18", "the repeats differ by 40% in speed")


# Reused results.


def mark_reused(result, stores):
    """Return the benchmark with the results of some stores reused from an earlier day."""

    def mark_point(measured):
        dated = {"made": "2026-11-14T08:30:00+00:00", "reused": True}
        loads = [replace(load, **dated) for load in measured.loads]
        return replace(measured, **dated, loads=loads) if measured.configuration.store in stores else measured

    return replace(result, points=[mark_point(measured) for measured in result.points])


def test_bench_report_marks_reused_results_with_date():
    result = mark_reused(make_full_benchmark(), {"hnswlib"})
    dates = dict(
        zip(
            read_column(build_frontier_table(result), "store"),
            read_column(build_frontier_table(result), "reused"),
            strict=True,
        )
    )
    assert dates["hnswlib m=16 ef_search=10"] == "2026-11-14 08:30"
    assert dates["exact"] == "no"
    assert {name for name, table in select_tables(result, "html").items() if list_titles(table)[-1] == "reused"} == {
        "recall-levels", "frontier", "all", "quality", "latency", "relevance", "loads",
    }  # fmt: skip
    made_and_reused = {row["store"]: (row["made"], row["reused"]) for row in read_csv_rows(build_point_rows(result))}
    assert made_and_reused["hnswlib"] == ("2026-11-14T08:30:00+00:00", "true")
    assert made_and_reused["exact"] == ("", "false")
    assert {row["reused"] for row in read_csv_rows(build_load_rows(result))} == {"true"}
    assert to_json_data(result)["points"][1]["reused"] is True
    note = "hnswlib: reused; made 2026-11-14T08:30:00+00:00 (measure again with --fresh)"
    assert any(note in line for line in list_benchmark_notes(result))
    for text in (to_markdown(result), to_latex(result), to_page(result)):
        assert "2026-11-14 08:30" in text


def test_summary_mixed_reused_and_new_results_is_stated():
    text = " ".join(summarise_benchmark(mark_reused(make_full_benchmark(), {"hnswlib"})))
    assert "are reused (made 2026-11-14) and compared with new ones; measure all again with `--fresh`" in text
    all_reused = mark_reused(make_full_benchmark(), {"hnswlib", "exact", "faiss", "duckdb"})
    only_points = replace(
        all_reused, points=[replace(measured, filters=(), changes=(), mixed=None) for measured in all_reused.points]
    )
    assert "compared with new ones" not in " ".join(summarise_benchmark(only_points))
    assert "compared with new ones" not in " ".join(summarise_benchmark(make_full_benchmark()))
    assert "reused" not in to_markdown(make_full_benchmark())


# CSV and JSON.


def test_bench_csv_has_row_per_configuration_and_column_per_option():
    rows = read_csv_rows(build_point_rows(make_full_benchmark()))
    assert len(rows) == 9
    row = rows[2]
    assert (row["store"], row["build.m"], row["search.ef_search"], row["build.kind"]) == ("hnswlib", "16", "40", "")
    assert (float(row[RECALL]), float(row["qps"]), float(row["relevance.ndcg@10"])) == (0.955, 1000 / 0.06, 0.409)
    assert [csv_row["series_frontier"] for csv_row in rows] == ["true"] * 4 + ["false"] + ["true"] * 3 + ["false"]
    assert rows[7]["memory_bytes"] == ""
    assert float(row["build_seconds"]) == float(row["insert_seconds"]) + float(row["index_seconds"])
    assert rows[3]["doubts"] == "341 involuntary switches; 4% of the time was stolen"


def test_load_csv_has_latency_and_service_times():
    rows = read_csv_rows(build_load_rows(make_full_benchmark()))
    assert [row["rate"] for row in rows] == ["", "500.0", "5000.0"]
    assert (rows[2]["p99_ms"], rows[2]["service_p99_ms"], rows[2]["kept_up"]) == ("48.0", "0.5", "false")


def test_bench_json_is_valid_and_round_trips(tmp_path):
    path = tmp_path / "benchmark.json"
    report(make_full_benchmark(), path)
    data = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(data, SCHEMA)
    restored = read_record(path)
    assert isinstance(restored, StoreBenchmark)
    assert to_json_data(restored) == to_json_data(make_full_benchmark())
    assert restored.points[2].build == make_full_benchmark().points[2].build
    assert restored.points[2].loads == make_full_benchmark().points[2].loads
    assert math.isnan(restored.points[8].relevance["ndcg@10"])
    assert to_markdown(restored) == to_markdown(make_full_benchmark())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "ragauge-report/1"}, r'x.json: expected the schema ragauge-benchmark/1, got "ragauge-report/1"'),
        ({"points": [{}]}, r"points\[0\]: missing key"),
        ({"notes": 0.5}, r"notes: expected a list, got 0.5"),
        ({"threads": [1]}, r"threads: expected an integer, got \[1\]"),
    ],
)
def test_bench_json_invalid_data_raises_error(change, message):
    with pytest.raises(BadInput, match=message):
        from_record_data(StoreBenchmark, {**to_json_data(make_full_benchmark()), **change}, source="x.json")


def test_results_folder_has_files_for_measured_parts_only(tmp_path):
    assert list(list_result_files(make_full_benchmark()).values()) == [
        "benchmark.json", "points.csv", "report.md", "report.html", "loads.csv", "filters.csv",
    ]  # fmt: skip
    assert "loads" not in list_result_files(sweep(point("a", 0.9, 1.0)))
    assert find_benchmark_file(tmp_path) is None
    (tmp_path / "other.json").write_text("{}")
    assert find_benchmark_file(tmp_path / "other.json") is None
    assert find_benchmark_file("nowhere") is None


def test_format_for_path_bench_uses_name_or_file_extension():
    formats = find_formats(StoreBenchmark)
    assert {format_for_path(f"x{output_format.ending}", None, formats) for output_format in formats.values()} == {
        "html", "json", "csv", "markdown", "latex",
    }  # fmt: skip
    assert format_for_path("x.csv", "csv", formats) == "csv"
    with pytest.raises(BadInput, match="expected a file that ends in"):
        format_for_path("x.pdf", None, formats)
    with pytest.raises(UnknownName, match="latx"):
        format_for_path("x.tex", "latx", formats)


# Charts.


def test_recall_axis_is_logarithmic_in_missing_recall():
    axis = build_recall_axis([0.5, 0.999, 1.0])
    positions = [axis.position(recall) for recall in (0.5, 0.9, 0.99, 0.999, 1.0)]
    assert positions == pytest.approx([0.30103, 1, 2, 3, 3.30103], abs=1e-5)
    assert axis.low < 0.3
    assert axis.high > 3.3
    assert axis.ticks[-1] == pytest.approx(3.30103)


class TestCharts:
    @pytest.fixture(autouse=True)
    def _library(self):
        pytest.importorskip("altair")
        pytest.importorskip("vl_convert")

    def rows(self, chart, panel=0):
        spec = chart.panels[panel].spec
        return [row for part in (spec, *spec["layer"]) if "data" in part for row in part["data"]["values"]]

    def test_draw_benchmark_charts_needs_enough_results(self):
        assert list(draw_benchmark_charts(make_full_benchmark())) == [
            "frontier", "recall_latency", "costs", "relevance", "rates", "filter_latency", "filters",
        ]  # fmt: skip
        minimal = sweep(point("a", 0.9, 1.0))
        assert list(draw_benchmark_charts(minimal)) == ["frontier", "recall_latency", "costs"]
        assert draw_benchmark_charts(sweep()) == {}

    def test_filter_chart_has_latency_and_recall_per_filter(self):
        chart = draw_benchmark_charts(make_filter_benchmark())["filter_latency"]
        assert len(chart.panels) == 1
        rows = {(row["system"], row["recall"], row["value"]) for row in self.rows(chart)}
        assert rows == {("graph", 0.99, 6.0), ("cells", 0.69, 0.1), ("cells", 0.98, 0.12)}
        assert 'data-chart="bench-filter_latency-0"' in to_page(make_filter_benchmark())

    def test_frontier_chart_has_line_and_dominated_points(self):
        dominated, line, dots = draw_benchmark_charts(make_full_benchmark())["frontier"].panels[0].spec["layer"]
        assert [data_row["recall"] for data_row in dominated["data"]["values"]] == [0.94]
        assert len(line["data"]["values"]) == len(dots["data"]["values"]) == 7
        row = dots["data"]["values"][1]
        assert (row["system"], row["options"]) == ("hnswlib", "m=16 ef_construction=200 ef_search=10")
        assert not any(data_row["system"] == "null" for data_row in dots["data"]["values"])

    def test_charts_use_same_colour_and_shape_per_store(self):
        styles = set()
        for chart in draw_benchmark_charts(make_full_benchmark()).values():
            for panel in chart.panels:
                for layer in panel.spec["layer"]:
                    for channel in ("color", "shape"):
                        scale = layer["encoding"].get(channel, {})
                        if scale.get("field") == "system":
                            pairs = zip(scale["scale"]["domain"], scale["scale"]["range"], strict=True)
                            styles |= {(channel, *pair) for pair in pairs}
        assert len(styles) == 2 * len(make_full_benchmark().stores)

    def test_cost_chart_longest_bar_leaves_space_for_label(self):
        names = []
        chart = draw_benchmark_charts(make_full_benchmark())["costs"]
        for panel in chart.panels:
            low, high = panel.spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
            longest = max(row["value"] for row in self.rows(chart, len(names)))
            names.append(panel.title)
            # By hand: a label of five digits takes 45 of the 150 pixels next to the names, so the bar has 70%.
            share = math.log(longest / low) / math.log(high / low) if "log" in panel.title else longest / high
            assert share <= 0.7
        assert names == ["build, s (log scale)", "memory, MB", "disk, MB", "cold start, ms"]

    def test_rate_chart_has_latency_and_service_times(self):
        rows = [row for row in self.rows(draw_benchmark_charts(make_full_benchmark())["rates"]) if row["rate"] == 5000]
        assert {(row["from"], row["ms"]) for row in rows} == {("from scheduled time", 48.0), ("from send time", 0.5)}
        assert not any(row["kept"] for row in rows)

    def test_client_chart_needs_several_client_counts(self):
        loads = [load(None, 1, 1, clients=n, qps=100.0 * n) for n in (1, 2)]
        chart = draw_benchmark_charts(sweep(point("a", 0.96, 1.0, loads=loads)))["clients"]
        assert {(row["clients"], row["qps"]) for row in self.rows(chart)} == {(1, 100.0), (2, 200.0)}

    def test_charts_store_names_are_not_in_expressions(self):
        hostile = "it's </script> ${alert(1)} constructor"
        points = [
            replace(measured, configuration=replace(measured.configuration, name=hostile))
            for measured in make_full_benchmark().points[1:4]
        ]
        for chart in draw_benchmark_charts(sweep(*points)).values():
            assert render_svg(chart_specification(chart)).startswith("<svg")
            for panel in chart.panels:
                expressions = re.findall(r'"(?:expr|labelExpr|test)": "([^"]*)"', json.dumps(panel.spec))
                assert not any("alert" in expression for expression in expressions)

    def test_bench_page_is_self_contained_with_all_sections(self):
        text = to_page(make_full_benchmark())
        assert "by search speed alone hnswlib is the fastest" in text
        for name in ("recall", "frontier", "load", "filters", "updates", "unmeasured", "details"):
            assert f'<section id="bench-{name}"' in text
        assert '<section id="provenance"' in text
        assert "Batch size 10000 exceeds &lt;b&gt;maximum&lt;/b&gt;" in text
        assert "<b>maximum" not in text
        assert "<code>--remeasure doubtful</code>" in text
        assert not re.search(r'(src|href)="https?:', text)
        assert 'data-chart="bench-frontier-0"' in text

    def test_report_charts_option_writes_svg_and_png(self, tmp_path):
        result = sweep(point("a", 0.9, 1.0))
        assert report(result, charts=tmp_path) is result
        names = draw_benchmark_charts(result)
        assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
            f"bench-{name}.{ending}" for name in names for ending in ("svg", "png")
        )
