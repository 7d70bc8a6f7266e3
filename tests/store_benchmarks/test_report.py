"""A sweep shown: on a terminal, as CSV, JSON, Markdown, LaTeX, in RAGdbEval's layout, as charts and as a page."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from ragauge.core.errors import BadInput, UnknownName
from ragauge.reports import report
from ragauge.reports.layouts import ragdbeval, recognise_layout
from ragauge.store_benchmarks import report as store_benchmarks_report
from ragauge.store_benchmarks import report_text
from ragauge.store_benchmarks.analysis import with_frontiers
from ragauge.store_benchmarks.load_and_cost_charts import draw_benchmark_charts
from ragauge.store_benchmarks.recall_charts import build_recall_axis
from ragauge.store_benchmarks.report import render_benchmark_html, render_benchmark_latex, render_benchmark_markdown
from ragauge.store_benchmarks.report_tables import (
    build_benchmark_tables,
    build_filter_table,
    build_frontier_table,
    build_load_table,
    build_mixed_table,
    build_recall_level_table,
)
from ragauge.store_benchmarks.results import Configuration, FailedConfiguration, FilteredSearch
from ragauge.store_benchmarks.results_folder import (
    from_benchmark_data,
    read_benchmark,
    render_filters_csv,
    render_loads_csv,
    render_points_csv,
    to_benchmark_data,
)
from store_benchmark_builder import RECALL, doubted, latency, load, point, sweep, whole

SCHEMA = json.loads((files("ragauge.store_benchmarks") / "sweep.schema.json").read_text(encoding="utf-8"))


def printed(found, width=80):
    console = Console(width=width, file=io.StringIO(), force_terminal=False, highlight=False)
    pieces, left = store_benchmarks_report.render_benchmark_tables(found, width)
    for one in pieces:
        console.print(one)
    return console.file.getvalue(), left


def table(part):
    return {row[0].text: [one.text for one in row[1:]] for row in part.rows}


def test_a_terminal_of_80_columns_has_every_table_and_says_which_columns_it_left_out():
    text, left = printed(whole())
    assert max(map(len, text.splitlines())) <= 80
    for part in build_benchmark_tables(whole()):
        assert part.title in text
    assert "disk MB" in left
    assert printed(whole(), 200)[1] == []


def test_configurations_stand_below_their_store_with_only_the_options_that_tell_them_apart():
    lines = printed(whole())[0].splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == "hnswlib")
    assert lines[at + 1].startswith("  m=16 ef_search=10 ")
    assert not any("ef_construction" in line for line in lines)
    assert any(re.match(r"exact +1\.0000 +1,111 ", line) for line in lines)


def test_beaten_configurations_are_left_out_and_stand_in_the_list_of_every_one():
    assert len(build_frontier_table(whole()).rows) == 7
    assert len(build_frontier_table(whole(), every=True).rows) == 8


def test_the_best_of_each_column_is_marked_and_none_where_all_are_alike():
    part = build_frontier_table(whole())
    best = {part.header[i]: row[i].text for row in part.rows for i in range(1, len(row)) if row[i].best}
    assert best == {
        "recall": "1.0000", "QPS": "33,333", "p50 ms": "0.030", "p99 ms": "0.060", "build s": "0.020",
        "memory MB": "4.90", "disk MB": "6.80",
    }  # fmt: skip


def test_times_to_doubt_carry_a_sign_that_a_note_explains():
    row = next(row for row in build_frontier_table(whole()).rows if row[1].text == "0.9950")
    assert [one.text for one in row[2:5]] == ["5,882?", "0.170?", "0.340?"]
    [note] = [line for line in store_benchmarks_report.list_benchmark_notes(whole()) if line.startswith("?")]
    assert "hnswlib m=16 ef_search=160 (341 involuntary switches; 4% of the time was stolen)" in note
    assert "and 4 more" in next(
        line for line in store_benchmarks_report.list_benchmark_notes(doubted(whole())) if line.startswith("?")
    )


def test_doubtful_times_are_marked_at_the_same_recall_and_in_latex():
    by_name = {row[0].text: [one.text for one in row[1:]] for row in build_recall_level_table(whole()).rows}
    speeds = by_name["hnswlib"]
    assert [text.endswith("?") for text in speeds] == [False, False, True, False, False, True]
    assert "?" not in "".join(by_name["annoy"] + by_name["exact"])
    assert f"| {' | '.join(speeds[1:2])} |" in render_benchmark_markdown(whole()).replace("**", "")
    text = render_benchmark_latex(whole())
    assert speeds[2].replace(",", "{,}") in text
    assert text.partition("tab:stores")[0].count("?: the time is not reliable.") == 1
    calm = sweep(point("a", 0.96, 0.1), point("b", 0.96, 0.2))
    assert "?" not in render_benchmark_latex(calm)
    assert "0.100?" in render_benchmark_latex(doubted(calm))


def test_page_shows_commands_as_code_and_stores_at_the_left():
    text = render_benchmark_html(filtered_sweep(), vega="")
    assert "with <code>--remeasure doubtful</code>" in text
    assert "`--" not in text.partition("<script")[0]
    assert '<td>cells ef_search=64</td><td class="n"' in text
    assert "|---|---|---:|---:|" in render_benchmark_markdown(filtered_sweep())


def test_list_of_doubtful_results_and_summary_have_the_same_counts():
    doubt = ("the repeats differ by 40% in speed",)
    found = doubted(whole())
    points = [
        replace(one, filters=[replace(each, doubts=doubt) for each in one.filters],
                loads=[replace(each, doubts=doubt if each.rate else ()) for each in one.loads])
        for one in found.points
    ]  # fmt: skip
    found = replace(found, points=points)
    [told] = [line for line in report_text.summary_sentences(found) if "doubtful" in line and "marked" in line]
    counts = "8 of 8 configurations, 2 of 2 results with a filter and 2 of 3 results under load"
    assert told.startswith(f"The times of {counts} are doubtful")
    assert len(report_text.list_doubts(found)) == 8 + 2 + 2
    assert "and 8 more" in next(
        line for line in store_benchmarks_report.list_benchmark_notes(found) if line.startswith("?")
    )


def test_about_states_trials_and_timed_searches_per_configuration():
    assert report_text.describe_benchmark(sweep(point("a", 0.9, 1.0))).endswith(
        "3 trials, 300 timed searches per configuration"
    )


def test_what_is_not_reached_is_said_and_never_0():
    assert table(build_recall_level_table(whole()))["annoy"] == ["not reached"] * 3 + ["-"] * 3
    assert table(build_recall_level_table(whole()))["faiss ivf"][2] == "not reached"


def test_the_harness_is_a_floor_and_not_a_competitor():
    text, _ = printed(whole())
    assert "null" not in text
    floor = "a store of ours that does nothing takes 0.002 ms a query (checks and ids): the floor of every store here"
    assert floor in store_benchmarks_report.list_benchmark_notes(whole())
    own = sweep(*whole().points, point("mine:Store", 0.9, 1.0, name="mine", notes=["slow to open"]))
    assert f"{floor} but your own" in store_benchmarks_report.list_benchmark_notes(own)
    assert "mine: slow to open" in store_benchmarks_report.list_benchmark_notes(own)


def test_the_harness_told_to_stall_is_shown_under_load_and_leads_nothing():
    told = {"stall_ms": 300, "every": 500}
    stalls = point("null", 0.0, 0.01, search=told, loads=[load(200.0, 290.0, 0.02)])
    assert [one.text for one in build_load_table(sweep(stalls)).rows[0]][:4] == ["null", "1", "200/s", "200"]
    assert report_text.summary_sentences(sweep(stalls)) == [
        "No store was measured: null is the harness itself, told to stall for 300 ms once in 500 queries."
    ]
    assert store_benchmarks_report.summarise_benchmark(sweep(stalls)) == "the harness alone"
    both = sweep(stalls, point("a", 0.96, 1.0, loads=[load(200.0, 2.0, 2.0)]))
    assert [row[0].text for row in build_load_table(both).rows] == ["a", "null"]
    assert [row[0].text for row in build_recall_level_table(both).rows] == ["a"]
    assert "null" not in " ".join(report_text.summary_sentences(both))
    assert report_text.null_store_latency(both) == 0.002  # not its own time: it was told to take longer


def test_a_failure_has_the_name_that_the_user_gave():
    broken = FailedConfiguration(Configuration("mine:Store", {"m": 4}, name="mine"), "insert", "no")
    assert store_benchmarks_report.describe_failures(sweep(failures=[broken])) == ["mine m=4, insert: no"]


def test_a_legend_explains_no_column_that_is_not_shown_and_repeats_no_verdict():
    wide, narrow = (" ".join(store_benchmarks_report.list_legends(whole(), width)) for width in (200, 80))
    assert "cold is opening" in wide
    assert "cold ms" in printed(whole())[1]
    assert "cold is" not in narrow
    assert "recall is" in narrow
    first, second = (
        report_text.describe_sufficient_recall(one) for one in report_text.find_sufficient_recalls(whole())
    )
    assert first not in wide
    assert second in wide


def test_a_load_says_whether_the_store_kept_up_and_shows_both_clocks():
    rows = [[one.text for one in row[2:]] for row in build_load_table(whole()).rows]
    assert rows[0][:3] == ["flat out", "11,800", "-"]
    assert rows[1] == ["500/s", "500", "yes", "0.300", "0.500", "0.200", "0.400"]
    assert rows[2] == ["5,000/s", "4,100", "no", "0.300", "48.0", "0.200", "0.500"]


def test_a_load_to_doubt_carries_the_sign_and_its_reason_stands_in_a_note():
    busy = replace(load(500.0, 0.5, 0.4), doubts=["the host took 4% of the CPU time"])
    found = sweep(point("a", 0.96, 1.0, loads=[busy]))
    assert [one.text for one in build_load_table(found).rows[0]][3:7] == ["500?", "yes", "0.300?", "0.500?"]
    assert (
        "? marks doubtful times: a with 500 queries per second (the host took 4% of the CPU time); measure them again "
        "with --remeasure doubtful"
    ) in store_benchmarks_report.list_benchmark_notes(found)
    copied = sweep(point("a", 0.96, 1.0, loads=[replace(load(500.0, 0.5, 0.4), note="each client had a copy")]))
    assert build_load_table(copied).rows[0][3].text == "500"


def test_the_verdict_names_the_fastest_the_smallest_the_quickest_to_build_who_fell_short_and_what_broke():
    assert report_text.summary_sentences(whole()) == [
        "With a filter that matches 50% of the vectors hnswlib (ef_search=40) is the fastest at recall 0.95: 12,500 "
        "queries per second; no other store gets there.",
        "With a filter that matches 1% of the vectors no store reaches recall 0.95; hnswlib (ef_search=40) comes "
        "nearest, with recall 0.380.",
        "Without a filter, no store with recall 0.95 passes everything that was requested; by search alone hnswlib is "
        "the fastest: 17,100 queries per second, 1.9 times as many as faiss ivf.",
        "Not everything that was requested is passed by hnswlib (does not sustain 5,000 queries per second; the next "
        "search misses 50% of the deletes; recall 0.930 during inserts; returns 42% of the rows with the filter of "
        "1%), faiss ivf (not measured), exact (not measured) and annoy (not measured).",
        "Of those that get there faiss ivf takes the least memory (4.90 MB) and exact is built the fastest (0.020 s).",
        "No setting that was tried gets annoy (0.880) to 0.95.",
        "Exact neighbours have ndcg@10 0.4120, and from recall 0.955 on every configuration is within 0.005 of it, so "
        "that more recall buys nothing there.",
        "The times of 1 of 8 configurations are doubtful (marked ?). Measure them again while nothing else runs, with "
        "`--remeasure doubtful`; if the repeats differ, with more `--repeats`.",
        "Not measured, or not all of it: chroma (insert) and scann (opening).",
    ]


def filtered(recall, name="", wrong=0, returned=1.0):
    return [FilteredSearch(0.0100025, 100, returned, recall, wrong, latency(0.1), name)]


def test_verdict_names_stores_that_fail_what_was_requested():
    found = sweep(
        point("a", 0.96, 0.1, filters=filtered(0.4, "lang=de", returned=0.5)),
        point("b", 0.96, 0.2, filters=filtered(0.97)),
        point("c", 0.96, 0.3, unsupported=["filter", "update"]),
        point("d", 0.96, 0.4, filters=filtered(0.99, "lang=de", wrong=3)),
        point("e", 0.96, 0.5, loads=[load(50.0, 1.0, 1.0)], filters=filtered(0.96)),
    )
    assert report_text.summary_sentences(found)[:4] == [
        "With the filter `lang=de` (1% of the vectors) no store reaches recall 0.95 with matching rows only; d comes "
        "nearest, with recall 0.990 and 3 rows that do not match.",
        "With a filter that matches 1% of the vectors e is the fastest at recall 0.95 of those that pass "
        "everything else: 10,000 queries per second.",
        "Without a filter, at recall 0.95 e is the fastest of those that pass everything that was requested: 2,000 "
        "queries per second; no other store gets there.",
        "Not everything that was requested is passed by a (returns 50% of the rows with the filter `lang=de`), c "
        "(cannot filter; cannot update) and d (returns rows that do not match the filter `lang=de`).",
    ]
    broken = FailedConfiguration(Configuration("a"), "filters", "no")
    alone = sweep(point("a", 0.96, 0.1), failures=[broken])
    assert (
        report_text.summary_sentences(alone)[1] == "Not everything that was requested is passed by a (filters failed)."
    )
    assert "requested" not in " ".join(report_text.summary_sentences(sweep(point("a", 0.96, 0.1))))


def test_selectivity_has_three_digits_and_own_filters_their_name():
    random = build_filter_table(sweep(point("a", 0.96, 0.1, filters=filtered(0.97))))
    assert [one.text for one in random.rows[0][:2]] == ["1%", "a"]
    assert "selectivity" not in random.header
    own = build_filter_table(sweep(point("a", 0.96, 0.1, filters=filtered(0.97, "lang=de"))))
    assert [one.text for one in own.rows[0][:2]] == ["lang=de", "a"]
    assert own.rows[0][own.header.index("selectivity")].text == "1%"


def with_filter(store, ef, recall, ms, *, unfiltered, doubts=(), share=0.01):
    """A setting that takes `unfiltered` ms without a filter and `ms` with one."""
    found = FilteredSearch(share, 100, 1.0, recall, 0, latency(ms), repeats=3, qps_spread=0.04, doubts=doubts)
    return point(store, 0.96, unfiltered, search={"ef_search": ef}, filters=[found])


def filtered_sweep():
    """`graph` is the fastest without a filter; with one `cells` is, at the setting that reaches 0.95 under it."""
    return sweep(
        with_filter("graph", 10, 0.99, 6.0, unfiltered=0.01),
        with_filter("cells", 16, 0.69, 0.1, unfiltered=0.05),
        with_filter("cells", 64, 0.98, 0.12, unfiltered=0.2, doubts=("the repeats differ by 40% in speed",)),
        point("tree", 0.97, 0.3, unsupported=["filter"]),
    )


def test_summary_recommends_the_fastest_store_with_the_filter():
    said = report_text.summary_sentences(filtered_sweep())
    assert said[:3] == [
        "With a filter that matches 1% of the vectors cells (ef_search=64) is the fastest at recall 0.95: 8,333 "
        "queries per second, 50.0 times as many as graph (ef_search=10); these times are doubtful.",
        "Without a filter, at recall 0.95 graph is the fastest: 100,000 queries per second, 5.0 times as many as "
        "cells.",
        "Not everything that was requested is passed by tree (cannot filter).",
    ]
    for text in (
        printed(filtered_sweep(), 200)[0],
        render_benchmark_markdown(filtered_sweep()),
        render_benchmark_html(filtered_sweep(), ""),
    ):
        assert "cells (ef_search=64) is the fastest at recall 0.95: 8,333" in " ".join(text.split())
    assert r"cells (ef\_search=64) is the fastest at recall 0.95: 8,333" in render_benchmark_latex(filtered_sweep())
    data = to_benchmark_data(filtered_sweep())
    assert data["verdict"][0] == said[0]
    (found,) = data["with_filter"]
    assert [(one["configuration"], one["passes"]) for one in found["operating_points"]] == [
        ("cells:ef_search=64", True),
        ("graph:ef_search=10", True),
    ]
    jsonschema.validate(json.loads(json.dumps(data, allow_nan=False)), SCHEMA)


def test_summary_groups_many_filters_by_their_fastest_store():
    shares = (0.9, 0.5, 0.01)
    fast = [FilteredSearch(share, 100, 1.0, 1.0, 0, latency(0.1 if share > 0.1 else 9.0)) for share in shares]
    slow = [
        FilteredSearch(share, 100, 1.0, 1.0 if share > 0.001 else 0.5, 0, latency(1.0)) for share in (*shares, 0.001)
    ]
    found = sweep(point("graph", 0.96, 0.1, filters=fast), point("cells", 0.96, 0.5, filters=slow))
    assert report_text.summary_sentences(found)[0] == (
        "Fastest store at recall 0.95 with the filter 90%, 50%: graph; 1%: cells; 0.1%: none."
    )


def test_filter_tables_have_percentiles_qps_repeats_and_marks():
    part = build_filter_table(filtered_sweep())
    assert part.header == [
        "filter", "store", "recall", "QPS", "p50 ms", "p95 ms", "p99 ms", "returned", "wrong", "matching", "repeats",
    ]  # fmt: skip
    assert [[one.text for one in row[1:7]] for row in part.rows] == [
        ["cells ef_search=64", "0.9800", "8,333?", "0.120?", "0.180?", "0.240?"],
        ["graph", "0.9900", "167", "6.00", "9.00", "12.0"],
    ]
    assert [[one.best for one in row][3] for row in part.rows] == [True, False]
    assert len(build_filter_table(filtered_sweep(), every=True).rows) == 3
    assert "cells ef_search=16" in render_benchmark_markdown(filtered_sweep())
    [note] = [line for line in store_benchmarks_report.list_benchmark_notes(filtered_sweep()) if line.startswith("?")]
    assert "cells ef_search=64 with a filter that matches 1% of the vectors (the repeats differ by 40%" in note


def test_csv_of_filters_has_every_setting_and_marks_operating_points():
    rows = list(csv.DictReader(io.StringIO(render_filters_csv(filtered_sweep()))))
    assert [(row["configuration"], row["operating_point"], row["repeats"]) for row in rows] == [
        ("graph:ef_search=10", "true", "3"),
        ("cells:ef_search=16", "false", "3"),
        ("cells:ef_search=64", "true", "3"),
    ]
    assert float(rows[2]["qps"]) == pytest.approx(1000 / 0.12)
    assert (rows[2]["p95_ms"], rows[2]["doubts"]) == ("0.18", "the repeats differ by 40% in speed")


def test_forced_configurations_are_labelled_in_every_form():
    built = {"index": "hnsw"}
    found = sweep(
        point("pgvector", 0.96, 0.1, build=built, search={"ef_search": 40}),
        *(point("pgvector", recall, ms, build=built, search={"ef_search": ef, "force": True})
          for ef, recall, ms in ((10, 0.9, 0.05), (40, 0.97, 0.2))),
    )  # fmt: skip
    for part in build_benchmark_tables(found):
        told = [f"{group} {row[0].text}" for group, row in zip(part.groups or [""] * 9, part.rows, strict=False)]
        assert any("pgvector hnsw forced" in one for one in told), part.title
    for text in (
        printed(found, 200)[0],
        render_benchmark_markdown(found),
        render_benchmark_latex(found),
        render_points_csv(found),
    ):
        assert "pgvector hnsw forced" in text
    assert [one["series"] for one in to_benchmark_data(found)["points"]].count("pgvector hnsw forced") == 2


def test_read_sweep_labels_forced_series_of_earlier_versions(tmp_path):
    data = to_benchmark_data(sweep(point("pgvector", 0.96, 0.1, search={"ef_search": 40, "force": True})))
    text = json.dumps(data).replace("pgvector forced", "pgvector")
    (tmp_path / "sweep.json").write_text(text, encoding="utf-8")
    found = read_benchmark(str(tmp_path / "sweep.json"))
    assert found.frontiers == {"pgvector forced": [0]}
    assert {one.store for one in found.reached} == {"pgvector forced"}


def test_two_stores_within_what_one_differs_from_time_to_time_are_not_ranked():
    close = sweep(point("a", 0.96, 0.100), point("b", 0.96, 0.103))
    assert "within what one store differs" in report_text.summary_sentences(close)[0]
    apart = sweep(point("a", 0.96, 0.100), point("b", 0.96, 0.106))
    assert "1.1 times as many as b" in report_text.summary_sentences(apart)[0]
    steady = [replace(one, qps_spread=0.001) for one in close.points]
    assert report_text.summary_sentences(sweep(*steady))[0].endswith(
        "10,000 queries per second, about as many as b (9,709)."
    )
    once = [replace(point(name, 0.96, ms), qps_spread=math.nan) for name, ms in (("a", 0.1), ("b", 0.115), ("c", 0.3))]
    assert "about as many as b (8,696)" in report_text.summary_sentences(sweep(*once))[0]
    assert "3.0 times as many as c" in report_text.summary_sentences(sweep(once[0], once[2]))[0]


def test_the_verdict_is_careful_with_times_that_are_to_be_doubted():
    found = doubted(sweep(point("a", 0.96, 0.1), point("b", 0.96, 0.2)))
    assert report_text.summary_sentences(found)[0].endswith("2.0 times as many as b; these times are doubtful.")
    assert report_text.summary_sentences(found)[-1].startswith("All times are doubtful (marked ?).")


def test_one_store_that_is_smallest_and_quickest_to_build_is_named_once():
    found = sweep(
        point("a", 0.96, 1.0, memory=10_000_000, seconds=1.0), point("b", 0.97, 2.0, memory=20_000_000, seconds=2.0)
    )
    assert (
        report_text.summary_sentences(found)[1]
        == "Of all a takes the least memory (10.0 MB) and is built the fastest (1.00 s)."
    )


def test_where_no_store_gets_there_the_verdict_says_who_came_nearest():
    assert report_text.summary_sentences(sweep(point("a", 0.5, 1.0), point("b", 0.7, 9.0)))[0] == (
        "No store reaches recall 0.95; b comes nearest, with 0.700."
    )


def test_where_nothing_could_be_measured_that_is_the_verdict():
    broken = FailedConfiguration(Configuration("chroma"), "insert", "no")
    assert report_text.summary_sentences(sweep(failures=[broken])) == [
        "No store could be measured.",
        "Not measured, or not all of it: chroma (insert).",
    ]
    text, _ = printed(sweep(failures=[broken]))
    assert "No store could be measured." in text


def test_more_recall_buys_nothing_from_the_recall_on_where_all_are_within_a_hair_of_the_exact_one():
    first = report_text.find_sufficient_recalls(whole())[0]
    assert (first.measure, first.best, first.most, first.recall) == ("ndcg@10", 0.412, 1.0, 0.955)
    # By hand: 0.412 - 0.005 = 0.407 is missed at recall 0.94 (0.405) and met from 0.955 (0.409) on.
    lucky = sweep(
        point("a", 0.5, 1.0, relevance={"ndcg@10": 0.412}),
        point("a", 0.9, 2.0, relevance={"ndcg@10": 0.3}),
        point("a", 0.98, 3.0, relevance={"ndcg@10": 0.41}),
    )
    [found] = report_text.find_sufficient_recalls(lucky)
    assert found.recall == 0.98  # one lucky point below does not count
    assert (
        report_text.describe_sufficient_recall(found)
        == "the most recall, 0.980, has ndcg@10 0.4100, and less recall has less"
    )
    assert report_text.find_sufficient_recalls(whole(relevance=False)) == []


def test_texts_of_stores_are_texts_on_a_terminal_in_markdown_and_in_latex():
    odd = "[bold]x[/bold] \x1b[31m <b>|&_%"
    found = replace(sweep(point("a", 0.96, 1.0, name=odd)), data=odd)
    text, _ = printed(found, 200)
    assert "[bold]x[/bold]" in text
    assert "\x1b" not in text
    assert "<b>" not in render_benchmark_markdown(found)
    assert r"\&\_\%" in render_benchmark_latex(found)


def with_reused(found, stores):
    """Return the benchmark with the results of some stores reused from an earlier day."""

    def mark(one):
        dated = {"made": "2026-11-14T08:30:00+00:00", "reused": True}
        loads = [replace(load, **dated) for load in one.loads]
        return replace(one, **dated, loads=loads) if one.configuration.store in stores else one

    return with_frontiers(replace(found, points=[mark(one) for one in found.points]))


def test_reused_results_are_marked_with_their_date_in_every_format():
    found = with_reused(whole(), {"hnswlib"})
    frontier_rows = build_frontier_table(found)
    marks = dict(zip(frontier_rows.groups, (row[-1].text for row in frontier_rows.rows), strict=True))
    assert frontier_rows.header[-1] == "reused"
    assert marks["hnswlib"] == "2026-11-14 08:30"
    assert marks["exact"] == "no"
    assert {part.id for part in build_benchmark_tables(found) if part.header[-1] == "reused"} == {
        *("frontier", "quality", "latency", "reached", "relevance", "loads"),
    }
    rows = list(csv.DictReader(io.StringIO(render_points_csv(found))))
    made = {row["store"]: (row["made"], row["reused"]) for row in rows}
    assert made["hnswlib"] == ("2026-11-14T08:30:00+00:00", "true")
    assert made["exact"] == ("", "false")
    assert {row["reused"] for row in csv.DictReader(io.StringIO(render_loads_csv(found)))} == {"true"}
    assert to_benchmark_data(found)["points"][1]["reused"] is True
    assert any(
        "hnswlib: reused; made 2026-11-14T08:30:00+00:00 (measure again with --fresh)" in n
        for n in store_benchmarks_report.list_benchmark_notes(found)
    )
    for text in (render_benchmark_markdown(found), render_benchmark_latex(found), render_benchmark_html(found, "")):
        assert "2026-11-14 08:30" in text
    assert "Reused results are compared with new ones." in render_benchmark_latex(found)


def test_verdict_says_that_reused_and_new_results_are_compared():
    said = " ".join(report_text.summary_sentences(with_reused(whole(), {"hnswlib"})))
    assert "are reused (made 2026-11-14) and compared with new ones; measure all again with `--fresh`" in said
    everything = with_reused(whole(), {"hnswlib", "exact", "faiss", "annoy"})
    only_points = with_frontiers(
        replace(everything, points=[replace(p, filters=(), changes=(), mixed=None) for p in everything.points])
    )
    assert "compared with new ones" not in " ".join(report_text.summary_sentences(only_points))
    assert "compared with new ones" not in " ".join(report_text.summary_sentences(whole()))
    assert "reused" not in render_benchmark_markdown(whole())


def test_csv_has_a_row_for_each_configuration_with_options_in_columns_of_their_own():
    rows = list(csv.DictReader(io.StringIO(render_points_csv(whole()))))
    assert len(rows) == 9
    one = rows[2]
    assert (one["store"], one["build.m"], one["search.ef_search"], one["build.kind"]) == ("hnswlib", "16", "40", "")
    assert (float(one[RECALL]), float(one["qps"]), float(one["relevance.ndcg@10"])) == (0.955, 1000 / 0.06, 0.409)
    assert [row["series_frontier"] for row in rows] == ["true"] * 4 + ["false"] + ["true"] * 3 + ["false"]
    assert rows[7]["memory_bytes"] == ""
    assert rows[3]["doubts"] == "341 involuntary switches; 4% of the time was stolen"


def test_what_a_store_cannot_do_is_listed_as_not_measured():
    found = sweep(point("a", 0.96, 1.0), point("usearch", 0.97, 0.5, unsupported=["filter", "load"]))
    assert "| usearch | filter | the store cannot filter |" in render_benchmark_markdown(found)
    written = render_benchmark_html(found, "")
    assert "Everything that was requested was measured." not in written
    assert "usearch: filter" in written
    assert "the store cannot be opened by another process" in written
    complete = sweep(point("a", 0.96, 1.0))
    assert "Everything that was requested was measured." in render_benchmark_html(complete, "")
    assert "Not measured" not in render_benchmark_markdown(complete)


def test_csv_of_loads_has_both_clocks():
    rows = list(csv.DictReader(io.StringIO(render_loads_csv(whole()))))
    assert [row["rate"] for row in rows] == ["", "500.0", "5000.0"]
    assert (rows[2]["p99_ms"], rows[2]["service_p99_ms"], rows[2]["kept_up"]) == ("48.0", "0.5", "false")


def test_json_follows_its_schema_and_is_the_same_sweep_when_it_is_read_again():
    data = json.loads(json.dumps(to_benchmark_data(whole()), allow_nan=False))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(data, SCHEMA)
    again = from_benchmark_data(data)
    assert to_benchmark_data(again) == to_benchmark_data(whole())
    assert again.points[2].build == whole().points[2].build
    assert again.points[2].loads == whole().points[2].loads
    assert math.isnan(again.points[8].relevance["ndcg@10"])
    assert printed(again) == printed(whole())
    with pytest.raises(jsonschema.ValidationError, match="more"):
        jsonschema.validate({**data, "more": 1}, SCHEMA)


def test_what_is_no_sweep_is_refused():
    with pytest.raises(
        BadInput,
        match=r"x.json: this is not a benchmark; expected the schema 'ragauge-sweep/1', got 'ragauge-report/1'",
    ):
        from_benchmark_data({"schema": "ragauge-report/1"}, "x.json")
    with pytest.raises(BadInput, match="this is not a benchmark"):
        from_benchmark_data([])
    with pytest.raises(BadInput, match="cannot be read"):
        from_benchmark_data({"schema": "ragauge-sweep/1", "points": [{}]})


def test_markdown_has_every_table_the_verdict_and_what_broke():
    text = render_benchmark_markdown(whole())
    assert "17,100 queries per second" in text
    assert "| annoy | not reached | not reached | not reached | - | - | - |" in text
    assert "| chroma | insert | Batch size 10000 exceeds &lt;b>maximum&lt;/b> | fewer at a time |" in text
    assert "| hnswlib m=32 ef_search=80 |" in text


def test_latex_is_a_booktabs_table_with_the_best_in_bold():
    text = render_benchmark_latex(whole())
    assert re.search(r"hnswlib +& 0\.9950 & \\textbf\{22\{,\}105\} & \\textbf\{17\{,\}100\}", text)
    assert re.search(r"annoy +& 0\.8800 & -- +& -- +& -- +& 0\.9000 & 0\.300 .*& 0\.500 +& -- \\\\", text)
    assert re.search(r"Store +& Recall & QPS .* & MRR +& p50 \(ms\) & p90 +& p95 +& p99 +& Build", text)
    assert text.count(r"\textbf") == 6
    assert re.search(r"50\\% +& hnswlib m=16 ef\\_search=40 & 0\.9500 & \\textbf\{12\{,\}500\}", text)
    assert r"\toprule" in text


def test_ragdbeval_gets_an_experiment_for_each_configuration_and_reads_it_again(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(ragdbeval.render_benchmark_json(whole()), encoding="utf-8")
    assert recognise_layout(str(path)) == "ragdbeval"
    held = json.loads(path.read_text(encoding="utf-8"))
    assert held["metadata"]["num_results"] == 10  # eight configurations, two failures, and no harness
    one = next(r for r in held["results"] if r["index_config"] == "m=16,ef_construction=200,ef_search=40")
    figures = one["mean_metrics"]
    assert figures["quality_recall@10"] == 0.955
    assert figures["perf_qps_at_recall_95"] == pytest.approx(17_100.07, abs=0.01)
    assert figures["perf_qps_max"] == pytest.approx(1000 / 0.06)
    assert (figures["resource_disk_bytes"], figures["ops_insert_latency_single_ms"]) == (6_800_000, 0.4)
    assert next(r["error_message"] for r in held["results"] if not r["success"]).startswith("insert: Batch size")
    again = ragdbeval.read_ragdbeval_json(str(path))
    assert again.entries["exact"].means["recall(of=capped)@10"].value == 1.0
    assert set(again.failures) == {"chroma", "scann"}
    table = tmp_path / "results.csv"
    table.write_text(ragdbeval.render_benchmark_csv(whole()), encoding="utf-8")
    assert recognise_layout(str(table)) == "ragdbeval-csv"
    assert len(ragdbeval.read_ragdbeval_csv(str(table)).entries) == 8


def test_ragdbeval_gets_the_throughput_of_inserting_and_indexing():
    """10,000 vectors that are queued in 0.2 s and indexed in 0.8 s."""
    found = json.loads(ragdbeval.render_benchmark_json(sweep(point("a", 0.5, 1.0))))["results"][0]["mean_metrics"]
    assert found["ops_insert_throughput_batch"] == 10_000


def test_ragdbeval_layout_follows_document_or_code():
    """Of the first ten found all are among the 100 exact neighbours: precision 1, and recall 0.10 or 1.0."""
    quality = {"recall(of=k)@10": 0.961, "recall@10": 0.1, "precision@10": 1.0, "precision(of=retrieved)@10": 1.0}
    one = replace(point("a", 0.961, 1.0), quality={**quality, "mrr@10": 1.0, RECALL: 0.961})
    for convention, recall in (("ragdbeval", 0.1), ("ragdbeval-capped", 1.0)):
        held = json.loads(ragdbeval.render_benchmark_json(sweep(one), convention))
        figures = held["results"][0]["mean_metrics"]
        assert held["metadata"]["convention"] == convention
        assert (figures["quality_recall@10"], figures["quality_precision@10"]) == (recall, 1.0)
        assert figures["quality_mrr"] is None  # its depth is 100, and ten neighbours were searched for
        assert figures["perf_qps_single_thread"] == pytest.approx(1000)
    short = replace(
        one, quality={"recall@10": 0.05, "precision@10": 0.5, "precision(of=retrieved)@10": 1.0, RECALL: 0.5}
    )
    for convention, precision in (("ragdbeval", 0.5), ("ragdbeval-capped", 1.0)):
        figures = json.loads(ragdbeval.render_benchmark_json(sweep(short), convention))["results"][0]["mean_metrics"]
        assert figures["quality_precision@10"] == precision


def test_ragdbeval_layout_fills_every_cutoff():
    quality = {f"{name}@{k}": k / 100 for k in (1, 10, 50, 100) for name in ("recall", "precision", "mrr")}
    quality |= {f"precision(of=retrieved)@{k}": k / 100 for k in (1, 10, 50, 100)}
    found = replace(
        sweep(replace(point("a", 0.5, 1.0), quality={**quality, RECALL: 0.5})), cutoffs=(1, 10, 50, 100), k=100
    )
    for convention in ("ragdbeval", "ragdbeval-capped"):
        (row,) = csv.DictReader(io.StringIO(ragdbeval.render_benchmark_csv(found, convention)))
        for k in (1, 10, 50, 100):
            assert float(row[f"recall@{k}"]) == float(row[f"precision@{k}"]) == k / 100
        assert float(row["mrr"]) == 1.0
        assert all(float(row[f"latency_{kind}_ms"]) > 0 for kind in ("p50", "p90", "p95", "p99"))


def test_ragdbeval_success_never_has_an_error_message():
    held = json.loads(ragdbeval.render_benchmark_json(whole()))["results"]
    assert [one["success"] for one in held] == [one["error_message"] is None for one in held]
    assert ["annoy cannot delete"] in [one.get("warnings") for one in held]


def test_every_form_has_p90_p95_and_mrr_at_each_cutoff():
    quality = {f"{name}@{k}": 0.9 for k in (1, 10) for name in ("recall(of=eps,eps=1e-06)", "recall", "precision")}
    made = point("a", 0.9, 1.0)
    one = replace(made, quality={**quality, "mrr@1": 0.7071, "mrr@10": 0.8642, RECALL: 0.9})
    found = replace(sweep(one), cutoffs=(1, 10), true_neighbours=100)
    for text in (printed(found)[0], render_benchmark_markdown(found), render_benchmark_html(found, "")):
        assert "0.7071" in text
        assert "0.8642" in text
        assert "1.20" in text  # p90
        assert "1.50" in text  # p95
        assert "k = 1, 10 (one search at k = 10)" in " ".join(text.split())
    assert "0.8642" in render_benchmark_latex(found)
    assert re.search(r"1\.20 +& 1\.50", render_benchmark_latex(found))
    assert "one search at k = 10; a search at a smaller k may find less" in " ".join(
        store_benchmarks_report.list_legends(found, 80)
    )


def test_the_legend_says_what_recall_counts_in_words():
    name = "recall(of=eps,eps=1e-06)@10"
    made = whole()
    points = [replace(one, quality={**one.quality, name: one.quality[RECALL]}) for one in made.points]
    found = replace(made, recall=name, points=points)
    assert build_frontier_table(found).legend[0] == (
        "recall is recall(of=eps,eps=1e-06)@10: the share that is no farther than the k-th true neighbour, but for "
        "rounding (a millionth)"
    )
    assert report_text.explain_recall("recall(of=eps)@5").endswith(
        "no farther than the k-th true neighbour, but for a thousandth"
    )
    assert "but for rounding (a millionth)" in render_benchmark_markdown(found)
    assert "but for rounding (a millionth)" in render_benchmark_latex(found)


def test_a_cost_is_said_to_be_that_of_one_thread():
    found = sweep(point("a", 0.96, 1.0, cost_per_million=0.25))
    assert "cost/million is for a million queries on one such thread at its price" in build_frontier_table(found).legend
    assert table(build_frontier_table(found))[""][-1] == "0.25"
    assert not any("thread" in line for line in build_frontier_table(whole()).legend)


def test_inserts_that_came_at_a_pace_are_not_called_what_a_store_can_do():
    part = build_mixed_table(whole())
    assert part.header[1] == "inserts/s"
    assert part.legend[0].startswith("inserts/s: what came in, of vectors that were sent at an even pace")


def test_recall_is_drawn_by_what_is_missing_to_1_and_1_itself_has_a_place():
    found = build_recall_axis([0.5, 0.999, 1.0])
    places = [found.place(one) for one in (0.5, 0.9, 0.99, 0.999, 1.0)]
    assert places == pytest.approx([0.30103, 1, 2, 3, 3.30103], abs=1e-5)
    assert found.low < 0.3
    assert found.high > 3.3
    assert found.ticks[-1] == pytest.approx(3.30103)


class TestCharts:
    @pytest.fixture(autouse=True)
    def _library(self):
        pytest.importorskip("altair")
        pytest.importorskip("vl_convert")

    def drawn(self, found):
        from ragauge.store_benchmarks.load_and_cost_charts import draw_benchmark_charts

        return draw_benchmark_charts(found)

    def rows(self, drawing, panel=0):
        spec = drawing.panels[panel].spec
        return [row for part in (spec, *spec["layer"]) if "data" in part for row in part["data"]["values"]]

    def test_each_chart_is_there_where_there_is_enough_for_it(self):
        assert list(self.drawn(whole())) == [
            "frontier", "recall_latency", "costs", "relevance", "rates", "filter_latency", "filters",
        ]  # fmt: skip
        bare = sweep(point("a", 0.9, 1.0))
        assert list(self.drawn(bare)) == ["frontier", "recall_latency", "costs"]
        assert self.drawn(sweep()) == {}

    def test_a_chart_shows_latency_against_recall_with_each_filter(self):
        found = self.drawn(filtered_sweep())["filter_latency"]
        assert len(found.panels) == 1
        rows = {(row["system"], row["recall"], row["value"]) for row in self.rows(found)}
        assert rows == {("graph", 0.99, 6.0), ("cells", 0.69, 0.1), ("cells", 0.98, 0.12)}
        assert 'data-chart="filter_latency-0"' in render_benchmark_html(
            filtered_sweep(), vega="window.vegaEmbed = async () => {};"
        )

    def test_the_frontier_has_lines_along_it_and_what_is_beaten_faint(self):
        faint, line, dots = self.drawn(whole())["frontier"].panels[0].spec["layer"]
        assert [row["recall"] for row in faint["data"]["values"]] == [0.94]
        assert len(line["data"]["values"]) == len(dots["data"]["values"]) == 7
        one = dots["data"]["values"][1]
        assert (one["system"], one["options"]) == ("hnswlib", "m=16 ef_construction=200 ef_search=10")
        assert not any(row["system"] == "null" for row in dots["data"]["values"])

    def test_a_store_looks_alike_on_every_chart(self):
        looks = set()
        for drawing in self.drawn(whole()).values():
            for panel in drawing.panels:
                for layer in panel.spec["layer"]:
                    for channel in ("color", "shape"):
                        scale = layer["encoding"].get(channel, {})
                        if scale.get("field") == "system":
                            pairs = zip(scale["scale"]["domain"], scale["scale"]["range"], strict=True)
                            looks |= {(channel, *pair) for pair in pairs}
        assert len(looks) == 2 * len(whole().stores)

    def test_the_largest_of_what_it_takes_leaves_room_for_its_number(self):
        titles = []
        for panel in self.drawn(whole())["costs"].panels:
            marks = panel.spec["layer"][0]
            low, high = marks["encoding"]["x"]["scale"]["domain"]
            most = max(row["value"] for row in self.rows(self.drawn(whole())["costs"], len(titles)))
            titles.append(panel.title)
            # By hand: of 150 pixels beside the names a number with five digits takes 45.
            share = math.log(most / low) / math.log(high / low) if "log" in panel.title else most / high
            assert share <= 0.7
        assert titles == ["build, s (log scale)", "memory, MB", "disk, MB", "cold start, ms"]

    def test_a_rate_has_the_time_from_due_and_from_sent(self):
        found = [row for row in self.rows(self.drawn(whole())["rates"]) if row["rate"] == 5000]
        assert {(row["from"], row["ms"]) for row in found} == {
            ("from when it was due", 48.0),
            ("from when it was sent", 0.5),
        }
        assert not any(row["kept"] for row in found)

    def test_clients_are_a_line_where_there_are_several_numbers_of_them(self):
        two = [load(None, 1, 1, clients=n, qps=100.0 * n) for n in (1, 2)]
        found = self.drawn(sweep(point("a", 0.96, 1.0, loads=two)))["clients"]
        assert {(row["clients"], row["qps"]) for row in self.rows(found)} == {(1, 100.0), (2, 200.0)}

    def test_every_chart_becomes_svg_and_names_are_never_part_of_an_expression(self):
        from ragauge.output.report import render_svg

        odd = "it's </script> ${alert(1)} constructor"
        points = [replace(one, configuration=replace(one.configuration, name=odd)) for one in whole().points[1:4]]
        for drawing in self.drawn(sweep(*points)).values():
            assert render_svg(drawing.sheet()).startswith("<svg")
            for panel in drawing.panels:
                expressions = re.findall(r'"(?:expr|labelExpr|test)": "([^"]*)"', json.dumps(panel.spec))
                assert not any("alert" in one for one in expressions)

    def test_the_page_is_one_file_with_verdict_tables_charts_failures_and_circumstances(self):
        from ragauge.store_benchmarks.report import render_benchmark_html

        text = render_benchmark_html(whole(), vega="window.vegaEmbed = async () => {};")
        assert "by search alone hnswlib is the fastest" in text
        for place in ("frontier", "points", "load", "filters", "changes", "failures", "stores", "again"):
            assert f'<section id="{place}">' in text
        assert "Batch size 10000 exceeds &lt;b&gt;maximum&lt;/b&gt;" in text
        assert "<b>maximum" not in text
        assert not re.search(r'(src|href)="https?:', text)
        assert 'data-chart="frontier-0"' in text

    def test_a_sweep_of_which_nothing_came_has_a_page_too(self):
        from ragauge.store_benchmarks.report import render_benchmark_html

        broken = FailedConfiguration(Configuration("chroma"), "insert", "no")
        text = render_benchmark_html(sweep(failures=[broken]), vega="window.vegaEmbed = async () => {};")
        assert "No store could be measured." in text


class TestFiles:
    @pytest.fixture(autouse=True)
    def _library(self):
        pytest.importorskip("altair")
        pytest.importorskip("vl_convert")

    def test_a_folder_has_the_page_the_tables_and_a_file_that_is_read_again(self, tmp_path):
        from ragauge.store_benchmarks.results_folder import find_benchmark_file, read_benchmark, write_benchmark_folder

        names, missing = write_benchmark_folder(whole(), tmp_path)
        assert (sorted(names), missing) == (
            ["filters.csv", "loads.csv", "points.csv", "report.html", "report.md", "sweep.json"],
            [],
        )
        assert find_benchmark_file(str(tmp_path)) == str(tmp_path / "sweep.json")
        assert to_benchmark_data(read_benchmark(str(tmp_path / "sweep.json"))) == to_benchmark_data(whole())
        assert find_benchmark_file(str(tmp_path / "points.csv")) is None
        (tmp_path / "other.json").write_text("{}")
        assert find_benchmark_file(str(tmp_path / "other.json")) is None
        assert find_benchmark_file("nowhere") is None

    def test_a_file_is_what_its_ending_says_or_what_is_named(self):
        from ragauge.output.formats import format_for_path
        from ragauge.reports.benchmark_files import select_formats

        formats = select_formats(None, None)
        assert {format_for_path(f"x{kind.ending}", None, formats) for kind in formats.values()} == {
            "html",
            "json",
            "csv",
            "markdown",
            "latex",
        }
        assert format_for_path("x.json", "ragdbeval", formats) == "ragdbeval"
        with pytest.raises(BadInput, match="not clear"):
            format_for_path("x.pdf", None, formats)
        with pytest.raises(UnknownName, match="latx"):
            format_for_path("x.tex", "latx", formats)

    def test_charts_are_written_as_svg_and_png(self, tmp_path):
        made = sweep(point("a", 0.9, 1.0))
        assert report(made, charts=tmp_path) is made
        names = draw_benchmark_charts(made)
        assert sorted(Path(one).name for one in tmp_path.iterdir()) == sorted(
            f"{name}.{ending}" for name in names for ending in ("svg", "png")
        )


def test_a_long_list_is_shortened_on_a_terminal_and_only_there():
    points = [
        point(f"s{s}", 0.5 + 0.05 * i, 1 + i, search={"ef": i}, relevance={"ndcg@10": 0.1 * i})
        for s in range(4)
        for i in range(10)
    ]
    found = sweep(*points)
    assert len(build_frontier_table(found).rows) == 40
    kept = [row[1].text for row in build_frontier_table(found, brief=True).rows[:3]]
    assert kept == ["0.9000", "0.9500", "0.9000"]  # 0.99 is not reached: the last stands for it
    assert any("32 more settings are worth having" in line for line in store_benchmarks_report.list_legends(found, 80))
    assert "ef=0" in render_benchmark_markdown(found)
    assert "ef=0" not in printed(found)[0]


def test_from_data_refuses_a_rate_that_is_not_a_number():
    data = to_benchmark_data(whole())
    assert any(one["qps"] for one in data["reached"])
    for one in data["reached"]:
        one["qps"] = [1]
    with pytest.raises(BadInput, match="this StoreBenchmark cannot be read"):
        from_benchmark_data(data, "x.json")


def test_from_data_refuses_notes_that_are_not_a_list():
    with pytest.raises(BadInput, match=r"this StoreBenchmark cannot be read: TypeError: 0.5 is not a list"):
        from_benchmark_data({**to_benchmark_data(whole()), "notes": 0.5}, "x.json")


def test_a_store_without_a_recall_level_has_a_dash_there():
    whole_sweep = whole()
    kept = [
        one
        for one in whole_sweep.reached
        if (one.store, one.recall) != (whole_sweep.reached[0].store, whole_sweep.reached[0].recall)
    ]
    rows = build_recall_level_table(replace(whole_sweep, reached=kept)).rows
    assert len(rows) == len(build_recall_level_table(whole_sweep).rows)
