"""Tables of complete and partial overviews: terminal, Markdown, CSV, JSON, LaTeX and sparklines."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import ragauge
from command import run_python
from ragauge.comparison import report
from ragauge.comparison.results import MeasureCurve, Overview, StratumMeans, SystemSummary
from ragauge.core.csv_cells import restore_cell
from ragauge.core.documents import Document
from ragauge.core.findings import Audit, Finding, FindingTable
from ragauge.core.records import Dataset, Judgments, MeasureDict, Run, Scores
from ragauge.core.summaries import Latency, Mean, Speed
from ragauge.experiments.run import run
from ragauge.files.json_schemas import json_schema_of
from ragauge.files.scores import read_scores
from ragauge.output.latex import escape_latex
from ragauge.output.markdown import escape_markdown
from ragauge.output.sparklines import ASCII_SPARKLINE_MARKS, SPARKLINE_BLOCKS, downsample, encode_sparklines, sparkline
from ragauge.output.terminal import render_report, render_table
from ragauge.reports.latency_tables import build_latency_table
from ragauge.reports.overview_report import build_report, describe_tables
from ragauge.reports.overview_tables import build_quality_table, build_strata_table
from ragauge.reports.overviews import OUTPUT_FORMATS, overview
from ragauge.reports.registry import read_results
from ragauge.stats.smallest_k import SmallestK
from written_results import format_results

SCHEMA = json_schema_of("ragauge-report")
SCHEMA_VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
QUERIES = [f"q{i}" for i in range(8)]
HIGH = [0.9, 0.8, 0.9, 1.0, 0.7, 0.9, 0.8, 1.0]
MIDDLE = [0.5, 0.4, 0.6, 0.5, 0.4, 0.5, 0.3, 0.6]
LOW = [0.1, 0.2, 0.1, 0.0, 0.1, 0.2, 0.1, 0.0]


def make_scores(name, columns, queries=QUERIES):
    values = {m: np.array(column, float) for m, column in columns.items()}
    means = {m: float(np.nanmean(v)) if not np.isnan(v).all() else math.nan for m, v in values.items()}
    unscored = {m: {q: "no value" for q, x in zip(queries, v, strict=True) if math.isnan(x)} for m, v in values.items()}
    return Scores(
        name, "default", list(queries), MeasureDict(values, str), MeasureDict(means, str), MeasureDict(unscored, str)
    )


def make_entry(scores, **more):
    return SystemSummary(scores.run, {m: Mean(scores.means[m], scores.n[m]) for m in scores.measures}, [scores], **more)


def make_overview(columns, baseline=None, **more):
    scores = {name: make_scores(name, by_measure) for name, by_measure in columns.items()}
    compared = ragauge.compare(scores, baseline, rounds=200) if len(scores) > 1 else None
    entries = {name: make_entry(score) for name, score in scores.items()}
    measures = next(iter(scores.values())).measures
    return Overview("mine", entries, measures, "default", baseline=baseline, compared=compared, **more)


THREE_SYSTEMS = {"low": {"mrr": LOW}, "middle": {"mrr": MIDDLE}, "high": {"mrr": HIGH}}
LATENCY = Latency(8, 1.5, 1.0, 2.0, 3.0, 4.0, 0.5, 0.1, 5.0)
SPEED = Speed({"retrieve": LATENCY, "total": LATENCY}, 250.0, 8, 1, 1)


def render_format(name, result):
    return OUTPUT_FORMATS[name].write([result])


def column_titles(table):
    return [column.title for column in table.columns]


def print_lines(tables, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    for table in tables:
        console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def make_complete_overview():
    """Build an overview with data in every field."""
    result = make_overview(
        THREE_SYSTEMS, "low", rival=None, made="2026-01-01T00:00:00+00:00", dataset="small", documents_known=30
    )
    timings = pl.DataFrame(
        {"query": QUERIES, "repeat": [0] * 8, "status": ["ok"] * 7 + ["error"], "total_ns": [1_500_000] * 8}
    )
    manifest = {
        "system": {"description": "bm25(k1=1.2)"},
        "dataset": {"documents_hash": "d0", "queries_hash": "a0"},
        "judgments_hash": "of other judgments",
        "finished": "2026-01-01T00:00:00+00:00",
        "plan": {"k": 10, "repeats": 1, "workers": 1, "warmup": 5},
        "odd": (np.float64("nan"), {"a"}, Path("x")),
    }
    low_run = Run(pl.DataFrame({"query": ["q0"], "doc": ["d"], "score": [1.0]}), "low", timings, manifest)
    low = replace(
        result.entries["low"],
        run=low_run,
        speed=SPEED,
        costs={"build_seconds": 1.25, "cold_ms": 7.0, "index_size_bytes": 2048.0},
        failed={"q7": "RuntimeError: <b>down</b>"},
    )
    advice = SmallestK(1, "hit_rate", 0.02, 0.95, [{"k": 1, "value": 0.5, "loss": 0.0, "loss_at_most": 0.0}])
    means = {
        name: Mean(value, 4, value - 0.1, value + 0.1)
        for name, value in zip(THREE_SYSTEMS, (0.1, 0.5, 0.9), strict=True)
    }
    finding = Finding(
        "low", "ties", True, 2, "two are tied", ["a"], "0.1 less", FindingTable(["n", "what"], [[1.0, "x"]]), "untie"
    )
    return replace(
        result,
        entries={**result.entries, "low": low},
        rival=ragauge.compare({"middle": MIDDLE_ONLY, "high": HIGH_ONLY}, "middle", rounds=200).rows[0],
        curves=[MeasureCurve("hit_rate", [1, 5], {"low": [0.1, math.nan]}, {"low": advice})],
        strata={"topic": [StratumMeans("files", 4, means), StratumMeans("nets", 0, {"low": Mean(math.nan, 0)})]},
        queries={query: f"what is {query}?" for query in QUERIES},
        audit=Audit([finding], {"orphans": "no corpus"}, ["looked at low"], ["low"]),
        failures={"broken": "no such model"},
        notes=["take care"],
        judgments_hash="b0",
    )


MIDDLE_ONLY = make_scores("middle", {"mrr": MIDDLE})
HIGH_ONLY = make_scores("high", {"mrr": HIGH})


def make_repeated_overview():
    first, second = make_scores("mine", {"mrr": HIGH}), make_scores("mine", {"mrr": MIDDLE})
    timings = pl.DataFrame(
        {
            "query": QUERIES * 2,
            "repeat": [0] * 8 + [1] * 8,
            "status": ["ok"] * 16,
            "total_ns": [1_000_000] * 8 + [2_000_000] * 8,
        }
    )
    repeated_run = Run(pl.DataFrame({"query": ["q0"], "doc": ["d"], "score": [1.0]}), "mine", timings)
    entry = SystemSummary("mine", {"mrr": Mean(0.6625, 8)}, [first, second], repeated_run)
    return Overview("repeats", {"mine": entry, "other": make_entry(make_scores("other", {"mrr": LOW}))}, ["mrr"])


def make_means_overview():
    entries = {
        "a": SystemSummary("a", {"f1": Mean(0.5, 0), "mrr": Mean(0.25, 10)}),
        "b": SystemSummary("b", {"f1": Mean(0.75, 0)}),
    }
    return Overview("from a paper", entries, ["f1", "mrr"])


OVERVIEW_BUILDERS = {
    "rich": make_complete_overview,
    "single": lambda: make_overview({"low": {"mrr": LOW, "ndcg@10": [math.nan] * 8}}),
    "every pair": lambda: make_overview(THREE_SYSTEMS),
    "two": lambda: make_overview({"low": {"mrr": LOW}, "high": {"mrr": HIGH}}, "low"),
    "trials": make_repeated_overview,
    "means only": make_means_overview,
}


# Terminal -----------------------------------------------------------------------------------------------------------


def test_quality_table_marks_best_and_has_differences_with_stars():
    lines = print_lines([render_table(build_quality_table(make_overview(THREE_SYSTEMS, "low")), 200)[0]], 200)
    assert lines[0].split() == ["system", "mrr", "vs", "low", "p", "better/worse"]
    assert lines[1].split() == ["low", "0.1000"]
    assert lines[2].split() == ["middle", "0.4750", "+0.3750", "<0.001", "***", "8/0"]
    assert lines[3].split() == ["high", "0.8750", "+0.7750", "<0.001", "***", "8/0"]
    table = build_quality_table(make_overview(THREE_SYSTEMS, "low"))
    assert [row[1].best for row in table.cells()] == [False, False, True]


def test_quality_table_lower_is_better_marks_lowest():
    result = replace(make_overview(THREE_SYSTEMS), lower_is_better=frozenset(["mrr"]))
    assert [row[1].best for row in build_quality_table(result).cells()] == [True, False, False]


def test_quality_table_aligns_differences_with_and_without_stars():
    columns = {**THREE_SYSTEMS, "same": {"mrr": [0.1, 0.1, 0.2, 0.0, 0.1, 0.1, 0.2, 0.0]}}
    lines = print_lines([render_table(build_quality_table(make_overview(columns, "low")), 80)[0]])
    assert len({line.index(".", line.index("+")) for line in lines[2:] if "+" in line}) == 1
    assert lines[4].split()[-2:] == ["1.000", "2/2"]


def test_quality_table_counts_queries_if_they_differ():
    with_missing = [math.nan, *HIGH[1:]]
    table = build_quality_table(make_overview({"a": {"mrr": HIGH, "ndcg": with_missing}}))
    assert (column_titles(table)[-1], table.texts()[0][-1]) == ("n", "7-8")
    assert "n" not in column_titles(build_quality_table(make_overview({"a": {"mrr": HIGH}})))
    rows = build_quality_table(make_means_overview()).texts()
    assert (rows[0][1:], rows[1][1:]) == (["0.5000", "0.2500", "10"], ["0.7500", "-", "0"])


@pytest.mark.parametrize("name", OVERVIEW_BUILDERS)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_terminal_report_fits_given_width(name, width):
    pieces, _ = render_report(build_report(OVERVIEW_BUILDERS[name]()), width)
    lines = print_lines(pieces, width)
    assert max(map(len, lines)) <= width
    assert all(any(line.startswith(system) for line in lines) for system in OVERVIEW_BUILDERS[name]().systems)


def test_latency_table_has_only_timed_systems():
    table = build_latency_table(make_complete_overview())
    assert [row[0] for row in table.texts()] == ["low"]
    assert dict(zip(column_titles(table), table.texts()[0], strict=True)) == {
        "system": "low", "retrieve": "1.00", "p50 ms": "1.00", "p90": "2.00", "p95": "3.00", "p99": "4.00",
        "mean": "1.50", "throughput": "250", "cold ms": "7.00", "build s": "1.25", "index size bytes": "2.05 kB",
        "failed": "2",
    }  # fmt: skip
    assert build_latency_table(make_overview(THREE_SYSTEMS)).rows == []


def test_latency_table_leaves_out_unknown_statistics():
    mean_only = Latency(8, 1.5, *[math.nan] * 7)
    entries = {
        "a": SystemSummary(
            "a", {"mrr": Mean(0.5, 8)}, speed=Speed({"embed": mean_only, "total": mean_only}, math.nan, 8, 0, 0)
        )
    }
    result = Overview("told", entries, ["mrr"])
    table = build_latency_table(result)
    assert (column_titles(table), table.texts()) == (["system", "mean ms"], [["a", "1.50"]])
    assert describe_tables(result) == ["latency in ms"]


def test_terminal_report_returns_dropped_columns():
    full_report = build_report(make_complete_overview())
    dropped = render_report(full_report, 60)[1]
    assert {"mean", "p90"} <= set(dropped)
    assert render_report(full_report, 200)[1] == []
    assert render_report(build_report(make_overview(THREE_SYSTEMS, "low")), 40)[1] == ["better/worse"]


def test_describe_tables_names_test_and_correction():
    assert describe_tables(make_complete_overview()) == [
        "vs low: difference in mrr with its 95% CI; p: paired t-test, Holm-corrected for 2 comparisons; "
        "*** p < 0.001, ** p < 0.01, * p < 0.05",
        "latency in ms, stages: median",
    ]
    assert "Holm-corrected for 1 comparison" in describe_tables(OVERVIEW_BUILDERS["two"]())[0]
    assert describe_tables(make_means_overview()) == []


def test_strata_table_has_column_per_stratum():
    table = build_strata_table(make_complete_overview(), "topic")
    assert column_titles(table) == ["system", "files (4)", "nets (0)"]
    assert table.texts() == [["low", "0.1000", "-"], ["middle", "0.5000", "-"], ["high", "0.9000", "-"]]
    assert [row[1].best for row in table.cells()] == [False, False, True]


DOCUMENTS = [Document(f"d{i}", f"word{i} and word{i + 1}") for i in range(30)]
QUERY_TEXTS = {f"q{i}": f"word{i}" for i in range(12)}
DATA = Dataset("small", DOCUMENTS, QUERY_TEXTS, Judgments({query: {f"d{i}": 1} for i, query in enumerate(QUERY_TEXTS)}))


def test_terminal_report_of_real_experiment_fits_80_columns():
    experiment = run(DATA, {"a system with a long name": "bm25", "hybrid": "hybrid(of=bm25+bm25)"}, baseline="hybrid")
    result = overview(experiment, audited=False)
    pieces, dropped = render_report(build_report(result), 80)
    lines = [line for line in print_lines(pieces) if line.startswith(("system", "a system", "hybrid  "))]
    assert len(lines) == 6  # two tables of a header and two systems: no line is wrapped
    assert "p95" in lines[3]
    assert "mean" in dropped
    page = render_format("markdown", result)
    assert "| p50 ms | p90 | p95 | p99 | mean | throughput | cold ms | build s |" in page
    assert f"hash {experiment.runs['hybrid'].manifest['dataset']['documents_hash']} |" in page
    SCHEMA_VALIDATOR.validate(json.loads(render_format("json", result)))


# Markdown -----------------------------------------------------------------------------------------------------------


def test_markdown_error_message_is_escaped(tmp_path):
    def failing(query, k):
        raise RuntimeError("<img src=x onerror=alert(1)>\n# Hacked ![x](http://evil) \x1b[2J")

    page = render_format(
        "markdown", overview(run(DATA, {"evil": failing}, out=tmp_path, allow_failures=True), audited=False)
    )
    assert "Failed queries: evil: 12." in page
    for markup in ("<img", "\n# Hacked", "![x]", "\x1b"):
        assert markup not in page


def test_markdown_has_all_sections_and_values():
    page = render_format("markdown", make_complete_overview())
    titles = re.findall(r"^## (.*)$", page, re.M)
    assert titles == [
        "Systems", "Latency", "Sufficient number of documents", "Differences by query", "Groups of queries", "Audit",
        "Failures", "Runs", "Notes",
    ]  # fmt: skip
    assert page.count("</details>") == page.count("<details>")
    for text in (
        "| low | 0.1000 | - |",
        "broken was not run: no such model",
        "| low | q7 | what is q7? | RuntimeError: &lt;b>down&lt;/b> |",
        "Failed queries: low: 2.",
        "| low | hit_rate | 1 | 0.5000 | 0.02 |",
        "| plan | k 10, repeats 1, workers 1, warmup 5 |",
        "- **ties** (low): two are tied",
        "  Effect: 0.1 less",
        "  Remedy: untie",
        "- orphans: skipped, no corpus",
        "| low | bm25(k1=1.2) |",
        "| judgments hash | b0 |",
        "- take care",
    ):
        assert text in page, text


def test_markdown_starts_with_summary_and_systems():
    page = render_format("markdown", make_complete_overview())
    top, *rest = page.split("<details>")
    assert top.startswith("# mine\n\n")
    assert "| low baseline | 0.1000 |" in top
    difference = make_complete_overview().difference("high")
    interval = rf"\[+{difference.ci[0]:.4f}, +{difference.ci[1]:.4f}\]"
    assert rf"| high | **0.8750 \*\*\*** | +0.7750 {interval} | **<0.001 \*\*\*** |" in top
    assert "paired t-test, Holm-corrected for 2 comparisons" in top
    assert top.index("p50 ms") > top.index("vs low")
    for part in rest:  # Markdown needs blank lines around a table
        assert re.match(r"<summary>[^\n]+</summary>\n\n.+\n\n</details>\n", part, re.S)


def test_escape_markdown_keeps_harmless_less_than_signs():
    assert escape_markdown("p < 0.001, <0.001 ***, <= 1") == r"p < 0.001, <0.001 \*\*\*, <= 1"
    assert (
        escape_markdown("<b> </b> <!-- <? <1@a.b> <0.5x <") == "&lt;b> &lt;/b> &lt;\\!-- &lt;? &lt;1@a.b> &lt;0.5x &lt;"
    )


def test_markdown_and_latex_means_only_omit_tests():
    for text in (render_format("markdown", make_means_overview()), render_format("latex", make_means_overview())):
        for word in ("CI", "t-test", "p:", "Stars", "raised letter"):
            assert word not in text, word
    assert "| b | **0.7500** | - | 0 |" in render_format("markdown", make_means_overview())


def test_markdown_means_have_intervals():
    result = make_overview(THREE_SYSTEMS)
    entries = {**result.entries, "low": replace(result.entries["low"], means={"mrr": Mean(0.1, 8, 0.05, 0.15)})}
    assert "| low | 0.1000 \\[0.050, 0.150\\] |" in render_format("markdown", replace(result, entries=entries))


@pytest.mark.parametrize("name", OVERVIEW_BUILDERS)
def test_markdown_has_no_nan_or_none(name):
    page = render_format("markdown", OVERVIEW_BUILDERS[name]())
    assert not re.search(r"\bnan\b", page.lower())
    assert "None" not in page


# CSV ----------------------------------------------------------------------------------------------------------------


def read_rows(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_output_has_row_per_statistic():
    rows = {(row["system"], row["name"]): row for row in read_rows(render_format("csv", make_complete_overview()))}
    row = {"system": "low", "name": "mrr", "value": "0.1", "low": "", "high": "", "n": "8"}
    assert rows["low", "mrr"] == {**row, "made": "2026-01-01T00:00:00+00:00", "reused": "false"}
    difference = rows["high", "difference(mrr, low)"]
    assert float(difference["value"]) == pytest.approx(0.775)
    assert float(difference["low"]) < 0.775 < float(difference["high"])
    assert float(rows["high", "p_corrected(mrr, low)"]["value"]) < 0.001
    assert rows["low", "total_p95_ms"]["value"] == "3.0"
    assert (rows["low", "throughput"]["value"], rows["low", "failed"]["value"]) == ("250.0", "2")
    assert rows["low", "build_seconds"]["value"] == "1.25"


def test_wide_output_has_row_per_system():
    low, middle, _ = read_rows(render_format("wide", make_complete_overview()))
    assert (low["system"], low["mrr"], low["mrr_n"], low["total_p99_ms"], low["throughput"]) == (
        "low",
        "0.1",
        "8",
        "4.0",
        "250.0",
    )
    assert (low["failed"], low["index_size_bytes"]) == ("2", "2048.0")
    assert (middle["throughput"], middle["total_p50_ms"], middle["cold_ms"]) == ("", "", "")
    paper = read_rows(render_format("wide", make_means_overview()))
    assert (paper[0]["f1"], paper[0]["f1_n"], paper[1]["mrr"], paper[1]["mrr_n"]) == ("0.5", "", "", "0")


def test_queries_output_long_and_wide_have_values_per_query(tmp_path):
    result = make_complete_overview()
    long = read_rows(render_format("queries", result))
    assert len(long) == 3 * 8
    assert long[0] == {"run": "low", "query": "q0", "measure": "mrr", "value": "0.1", "lower_is_better": "false"}
    wide = read_rows(render_format("queries-wide", result))
    assert wide[7] == {
        "run": "low", "query": "q7", "text": "what is q7?", "mrr": "0.0", "total_ms": "1.5", "status": "error"
    }  # fmt: skip
    assert (wide[8]["total_ms"], wide[8]["status"]) == ("", "")
    (tmp_path / "scores.csv").write_text(render_format("queries", result))
    restored, _ = read_scores(str(tmp_path / "scores.csv"))
    assert restored["high"].means["mrr"] == pytest.approx(0.875)


def test_queries_output_several_trials_has_trial_column(tmp_path):
    result = make_repeated_overview()
    assert [row["trial"] for row in read_rows(render_format("queries", result))] == ["0"] * 8 + ["1"] * 8 + ["0"] * 8
    wide = read_rows(render_format("queries-wide", result))
    assert (wide[0]["total_ms"], wide[8]["total_ms"], wide[8]["mrr"]) == ("1.0", "2.0", "0.5")
    (tmp_path / "scores.csv").write_text(render_format("queries", result))
    restored, _ = read_scores(str(tmp_path / "scores.csv"))
    assert list(restored["mine"]) == ["0", "1"]


def test_queries_output_nan_is_empty_cell():
    result = make_overview({"a": {"mrr": [math.nan, *HIGH[1:]]}})
    assert read_rows(render_format("queries", result))[0]["value"] == ""
    assert read_rows(render_format("queries-wide", result))[0]["mrr"] == ""


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(names=st.lists(TEXTS, min_size=1, max_size=3, unique=True), text=TEXTS)
def test_csv_output_random_text_round_trips(names, text):
    scores = {name: make_scores(name, {"mrr": [0.5]}, [text]) for name in names}
    result = Overview("x", {n: make_entry(score) for n, score in scores.items()}, ["mrr"], queries={text: text})
    rows = [
        {key: restore_cell(cell) for key, cell in row.items()}
        for row in read_rows(render_format("queries-wide", result))
    ]
    assert [(row["run"], row["query"], row["text"]) for row in rows] == [(name, text, text) for name in names]
    assert [restore_cell(row["system"]) for row in read_rows(render_format("wide", result))] == names
    assert {restore_cell(row["query"]) for row in read_rows(render_format("queries", result))} == {text}


# JSON ---------------------------------------------------------------------------------------------------------------


def check_json(result):
    """Parse the JSON output of an overview, reject NaN and validate it against the schema."""
    data = json.loads(render_format("json", result), parse_constant=pytest.fail)
    SCHEMA_VALIDATOR.validate(data)
    return data


@pytest.mark.parametrize("name", OVERVIEW_BUILDERS)
def test_json_output_is_valid_and_round_trips(name, tmp_path):
    result = OVERVIEW_BUILDERS[name]()
    data = check_json(result)
    assert data["schema"] == "ragauge-report/1"
    assert list(data["systems"]) == result.systems
    (tmp_path / "report.json").write_text(render_format("json", result))
    (restored,) = read_results(tmp_path / "report.json")
    assert render_format("csv", restored) == render_format("csv", result)
    assert json.loads(render_format("json", restored))["systems"] == data["systems"]
    assert build_report(restored).summary == build_report(result).summary == data["summary"]


def test_json_output_matches_overview():
    data = check_json(make_complete_overview())
    low = data["systems"]["low"]
    assert low["means"]["mrr"] == {"value": pytest.approx(0.1), "n": 8, "low": None, "high": None}
    assert low["speed"]["stages"]["total"]["p95"] == 3.0
    assert low["scores"][0]["values"]["mrr"][7] == 0.0
    assert low["manifest"]["odd"] == [None, ["a"], "x"]
    assert data["judgments_hash"] == "b0"
    assert [row["system"] for row in data["comparisons"]["comparisons"]] == ["middle", "high"]
    assert data["rival"]["difference"] == pytest.approx(0.4)
    assert data["curves"][0]["values"]["low"] == [0.1, None]
    assert data["strata"]["topic"][1]["means"]["low"]["value"] is None
    assert data["audit"]["findings"][0]["check"] == "ties"


def test_json_without_queries_keeps_means_and_manifests():
    data = check_json(make_complete_overview().without_queries())
    assert "scores" not in data["systems"]["low"]
    assert "queries" not in data
    assert data["systems"]["low"]["manifest"]["plan"]["k"] == 10


def test_json_output_has_reasons_for_unscored_queries():
    single = check_json(OVERVIEW_BUILDERS["single"]())["systems"]["low"]
    assert single["means"]["ndcg@10"]["value"] is None
    assert single["scores"][0]["unscored"]["ndcg@10"]["q0"] == "no value"


def test_json_comparisons_with_seeds_and_strata_are_valid():
    seeds = {
        "a": make_scores("a", {"mrr": LOW}),
        "b": {"1": make_scores("b", {"mrr": HIGH}), "2": make_scores("b", {"mrr": MIDDLE})},
    }
    halves = {query: "even" if int(query[1:]) % 2 == 0 else "odd" for query in QUERIES}
    compared = ragauge.compare(seeds, "a", rounds=200, margin=0.1, detect=0.1, by=halves)
    data = check_json(replace(make_overview({"a": {"mrr": LOW}, "b": {"mrr": HIGH}}, "a"), compared=compared))
    assert data["comparisons"]["comparisons"][0]["seeds"]["labels"] == ["1", "2"]
    assert len(data["comparisons"]["strata"]) == 2


numbers = st.floats(allow_nan=True, allow_infinity=True)
latencies = st.builds(Latency, st.integers(0, 9), *[numbers] * 8)
speeds = st.builds(
    Speed, st.dictionaries(TEXTS, latencies, max_size=2), numbers, *[st.integers(0, 9)] * 3
)  # fmt: skip
means = st.builds(Mean, numbers, st.integers(0, 9), numbers, numbers)
entries = st.builds(
    SystemSummary,
    st.just("x"),
    st.dictionaries(st.sampled_from(["mrr", "num_ret", "own_ms"]), means),
    speed=st.none() | speeds,
    costs=st.dictionaries(TEXTS, numbers, max_size=2),
    failed=st.dictionaries(TEXTS, TEXTS, max_size=2),
    stated_manifest=st.dictionaries(st.sampled_from(["finished", "odd"]), TEXTS | numbers | st.lists(numbers)),
)


@given(
    entries_by_name=st.dictionaries(TEXTS, entries, min_size=1, max_size=3),
    title=TEXTS,
    lower=st.booleans(),
    strata=st.dictionaries(TEXTS, st.lists(st.builds(StratumMeans, TEXTS, st.integers(0, 9), st.just({}))), max_size=1),
    notes=st.lists(TEXTS, max_size=2),
)
@pytest.mark.slow
def test_random_overview_renders_in_every_format(entries_by_name, title, lower, strata, notes):
    result = Overview(
        title,
        {name: replace(entry, name=name) for name, entry in entries_by_name.items()},
        ["mrr", "num_ret", "own_ms"],
        lower_is_better=frozenset(["own_ms"] if lower else []),
        strata=strata,
        notes=notes,
    )
    assert check_json(result)["title"] == title
    assert render_report(build_report(result), 80)
    page = render_format("markdown", result)
    assert all(ord(mark) >= 32 or mark == "\n" for mark in page)
    tags = re.sub(r"^<details><summary>[^<]*</summary>$|^</details>$", "", page, flags=re.M)
    assert not re.search(r"<[^\s\d=]", tags)
    assert len(read_rows(render_format("wide", result))) == len(entries_by_name)
    assert render_format("latex", result).count("\\\\\n") == len(entries_by_name) + 1


# LaTeX --------------------------------------------------------------------------------------------------------------


def test_latex_letters_mark_significantly_beaten_systems():
    text = render_format("latex", make_overview(THREE_SYSTEMS))
    assert re.search(r"a low +& 0\.1000 \\\\", text)
    assert re.search(r"b middle +& \\underline\{0\.4750\}\\rlap\{\\textsuperscript\{a\}\} \\\\", text)
    assert re.search(r"c high +& \\textbf\{0\.8750\}\\rlap\{\\textsuperscript\{ab\}\} \\\\", text)
    assert "Means over 8 queries. Best in bold, second best underlined." in text
    assert r"(two-sided paired t-test, Holm-corrected for 3 comparisons, p \textless{} 0.05)" in text
    assert r"\begin{table}[t]" in text
    assert r"\begin{tabular}{lr}" in text
    assert re.search(r"System +& MRR \\\\", text)
    assert r"\label{tab:report-paper}" in text


def test_latex_stars_mark_differences_from_baseline():
    result = make_overview(THREE_SYSTEMS, "low")
    text = render_format("latex", result)
    assert re.search(r"\n    low +& 0\.1000 \\\\", text)
    assert re.search(r"\n    high +& \\textbf\{0\.8750\}\\rlap\{\$\^\{\*\*\*\}\$\} \\\\", text)
    assert "Stars: differs from low" in text
    assert report.STARS_LEGEND in text

    def body(table):
        return table[table.index(r"\toprule") :]

    assert body(format_results(result.compared, "latex")) == body(text)


def test_latex_trec_dl_table_matches_published_scores(shared):
    folder = shared("trec_dl_runs")
    published = {
        row["run"]: row["published"]
        for row in read_rows((folder / "published_scores.csv").read_text())
        if row["measure"] == "nDCG@10" and row["run"].startswith("dl19.")
    }
    runs = {name: folder / "runs" / f"{name}.txt.gz" for name in published}
    scores = ragauge.evaluate(folder / "qrels" / "qrels.dl19-passage.txt", runs, ["ndcg@10"])
    text = format_results(ragauge.compare(scores, "dl19.BM25", rounds=200), "latex")
    scores_in_table = dict(re.findall(r"^    (dl19\S+) +& \S*?(\d\.\d{4})", text.replace(r"\_", "_"), re.M))
    assert len(published) == 5
    assert scores_in_table == published


def test_latex_without_comparison_has_no_letters():
    text = render_format("latex", make_means_overview())
    assert "Means over 10 queries." in text
    assert re.search(r"a +& 0\.5000 +& \\textbf\{0\.2500\} \\\\", text)
    assert re.search(r"b +& \\textbf\{0\.7500\} +& -- \\\\", text)
    assert "raised letter" not in text


def test_latex_more_than_26_systems_uses_numbers():
    row = make_overview(THREE_SYSTEMS, "low").compared.rows[0]
    names = [f"s{i}" for i in range(30)]
    rows = [
        replace(row, baseline=names[i], system=names[j], means=(i / 40, j / 40), p_corrected=0.001)
        for i in range(30)
        for j in range(i + 1, 30)
    ]
    result = replace(make_overview(THREE_SYSTEMS).compared, rows=rows, systems=names)
    text = format_results(result, "latex")
    assert re.search(r"4 s3 +& 0\.0750\\rlap\{\\textsuperscript\{1,2,3\}\}", text)
    assert r"{lr@{\hspace{31.4em}}}" in text  # space for the longest list of numbers


def test_latex_headers_have_options_p95_and_convention():
    columns = {"ndcg(gain=exp)@10": HIGH, "hit_rate@5": LOW, "own": MIDDLE}
    result = make_overview({"a": columns, "b": columns})
    slow = replace(LATENCY, p95=12.345)
    speeds = {"a": SPEED, "b": Speed({"total": slow}, 1.0, 8, 0, 0)}
    timed = {name: replace(entry, speed=speeds[name]) for name, entry in result.entries.items()}
    text = render_format("latex", replace(result, entries=timed, convention="trec9"))
    assert re.search(r"System +& nDCG\(gain=exp\)@10 +& Hit rate@5 +& own +& p95 \(ms\) ", text)
    assert re.findall(r"& (\S+) \\\\\n", text) == ["3.00", "12.3"]
    assert r"\begin{tabular}{lrrrr}" in text
    assert "Means over 8 queries, convention trec9." in text
    partly_timed = {"a": result.entries["a"], "b": timed["b"]}
    assert re.search(r"a +.* & -- \\\\", render_format("latex", replace(result, entries=partly_timed)))


def test_latex_system_names_are_escaped():
    special = "\\input{x} _ & % # $ ~ ^ { } \n\\end{table} <é> --"
    assert escape_latex(special) == (
        r"\textbackslash{}input\{x\} \_ \& \% \# \$ \textasciitilde{} \textasciicircum{} \{ \} "
        r"\textbackslash{}end\{table\} \textless{}é\textgreater{} -{}-"
    )
    result = make_overview(
        {special: {"mrr": LOW}, "[2cm]": {"mrr": HIGH}, "*": {"mrr": MIDDLE}}, special, dataset=special
    )
    text = render_format("latex", result)
    assert text.count(r"\end{table}") == 1
    assert r"\input" not in text
    assert "\n    {}[2cm]" in text
    assert "\n    {}*" in text


@given(TEXTS)
def test_escape_latex_random_text_has_no_special_characters(text):
    plain = re.sub(r"\\text[a-z]+\{\}|\{\\char\d+\}|\\[_&%#${}]|\{\}", "", escape_latex(text))
    assert not set(plain) & set('\\_&%#${}~^<>|"`\n')


# Sparklines ---------------------------------------------------------------------------------------------------------


def test_sparkline_scales_from_minimum_to_maximum():
    assert sparkline(range(8)) == SPARKLINE_BLOCKS
    assert sparkline([7, None, math.nan, 0]) == "█  ▁"
    assert sparkline([3, 3, 3]) == "▄▄▄"
    assert sparkline([]) == ""
    assert sparkline([None]) == " "
    assert sparkline([-5, 0.5, 9], 0, 1) == "▁▅█"
    assert sparkline([math.inf, -math.inf, 1, 2]) == "█▁▁█"
    assert sparkline(range(8), marks=ASCII_SPARKLINE_MARKS) == ASCII_SPARKLINE_MARKS
    assert ASCII_SPARKLINE_MARKS.isascii()


@given(st.lists(st.none() | numbers), st.none() | st.floats(-1, 0), st.none() | st.floats(1, 2))
def test_sparkline_random_values_is_monotonic(values, low, high):
    line = sparkline(values, low, high)
    assert len(line) == len(values)
    marked = [(value, SPARKLINE_BLOCKS.index(mark)) for value, mark in zip(values, line, strict=True) if mark != " "]
    assert len(marked) == sum(value is not None and not math.isnan(value) for value in values)
    order = sorted(marked)
    assert [mark for _, mark in order] == sorted(mark for _, mark in marked)


@given(st.lists(st.floats(-1, 1), min_size=1), st.integers(1, 50))
def test_downsample_keeps_width_and_value_range(values, width):
    shortened = downsample(values, width)
    assert len(shortened) == min(len(values), width)
    assert min(values) - 1e-9 <= min(shortened)
    assert max(shortened) <= max(values) + 1e-9


def test_encode_sparklines_non_unicode_encoding_uses_ascii_marks():
    assert encode_sparklines("▁█·", "utf-8") == "▁█·"
    assert encode_sparklines("▁█·", "latin-1") == encode_sparklines("▁█·", "ascii") == "_# "


def read_profiles(comparisons):
    sections = [section for section in report.build_report(comparisons).sections if section.id == "profiles"]
    return [row for section in sections for row in section.blocks[0].texts()]


def test_comparison_report_has_difference_profile_of_two_systems():
    shifted = [*LOW[:2], *[x + 0.4 for x in LOW[2:7]], -0.4]
    result = ragauge.compare(
        {"a": make_scores("a", {"mrr": LOW}), "b": make_scores("b", {"mrr": shifted})}, "a", rounds=200
    )
    assert read_profiles(result) == [["mrr", "-0.4000", "|▁  █████|", "+0.4000"]]
    same = ragauge.compare({"a": make_scores("a", {"mrr": LOW}), "b": make_scores("b", {"mrr": LOW})}, "a", rounds=200)
    assert read_profiles(same) == []
    assert read_profiles(report.keep_changed_queries(result, 1)) == []


# Command line -------------------------------------------------------------------------------------------------------


def run_cli(*arguments, cwd, **environment):
    env = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", **environment}
    return run_python(["-m", "ragauge", *map(str, arguments)], cwd, env)


@pytest.fixture
def table(tmp_path):
    (tmp_path / "s.csv").write_text(render_format("queries", make_overview({"a_b": {"mrr": LOW}, "c": {"mrr": HIGH}})))
    return tmp_path


@pytest.mark.slow
def test_compare_command_prints_latex_and_profile(table):
    process = run_cli("compare", "s.csv", "-b", "a_b", "--format", "latex", cwd=table)
    assert process.returncode == 0, process.stderr
    assert r"\textbf{0.8750}\rlap{$^{***}$}" in process.stdout
    assert r"a\_b" in process.stdout
    assert "█" in run_cli("compare", "s.csv", "-b", "a_b", cwd=table).stdout
    assert "#" in run_cli("compare", "s.csv", "-b", "a_b", cwd=table, PYTHONIOENCODING="ascii").stdout
    assert "█" not in run_cli("compare", "s.csv", "-b", "a_b", "--csv", cwd=table).stdout
    assert "█" not in run_cli("compare", "s.csv", "-b", "a_b", "--json", cwd=table).stdout


def test_cli_conflicting_output_options_are_rejected(table):
    (table / "qrels").write_text("q1 0 d1 1\n")
    (table / "run").write_text("q1 Q0 d1 1 0.9 x\n")
    for arguments, options in (
        (("compare", "s.csv", "--json", "--csv"), "--json and --csv"),
        (("compare", "s.csv", "--csv", "--format", "latex"), "--csv and --format"),
        (("evaluate", "qrels", "run", "--json", "--csv"), "--json and --csv"),
        (("evaluate", "qrels", "run", "--json", "--format", "trec_eval"), "--json and --format"),
    ):
        process = run_cli(*arguments, cwd=table)
        assert (process.returncode, process.stdout) == (2, "")
        assert f"{options} are mutually exclusive" in process.stderr


def test_k_range_command_prints_sparkline_over_k(table):
    (table / "qrels").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    (table / "run").write_text("".join(f"{q} Q0 d{i} {i} {9 - i} x\n" for q in ("q1", "q2") for i in (1, 2)))
    process = run_cli("k-range", "qrels", "run", "-k", "1,2", cwd=table)
    assert process.stdout.splitlines()[-1] == "hit_rate over k: 0.5000 ▁█ 1.0000"
    assert "over k" not in run_cli("k-range", "qrels", "run", "-k", "1", cwd=table).stdout


@pytest.mark.slow
def test_k_range_command_accepts_folders_and_several_systems(tmp_path):
    corpus = "synthetic:needles(documents=60, queries=12)"
    run_process = run_cli("run", corpus, "-s", "bm25", "-s", "b=bm25(k1=2)", "-o", "x", "-k", "2", cwd=tmp_path)
    assert run_process.returncode == 0, run_process.stderr
    process = run_cli("k-range", "x", "-k", "1,2,9", cwd=tmp_path)
    header, *rows = [line.split() for line in process.stdout.splitlines()]
    assert header == ["hit_rate", "at", "k", "1", "2", "enough", "loss", "at", "most"]
    assert [row[0] for row in rows] == ["bm25", "b"]
    assert "note: all runs return at most 2 documents per query: no results for k=9\n" in process.stderr
    assert "enough: the smallest k that loses at most 0.02 of hit_rate" in process.stderr
    outputs = [
        run_cli("k-range", *arguments, "-k", "1,2", cwd=tmp_path).stdout
        for arguments in (("x", "-s", "bm25"), ("x/bm25",), ("x", "x/bm25"))
    ]
    assert len(set(outputs)) == 1
    assert outputs[0].split()[:9] == ["k", "hit_rate", "mrr", "ndcg", "recall", "precision", "loss", "loss", "at"]
    by_system = json.loads(run_cli("k-range", "x", "-k", "1,2", "--json", cwd=tmp_path).stdout)["systems"]
    expected = json.loads(run_cli("k-range", "x", "-s", "b", "-k", "1,2", "--json", cwd=tmp_path).stdout)
    assert by_system["b"] == expected
    assert [f"{row['hit_rate']:.4f}" for row in by_system["bm25"]["rows"]] == rows[0][1:3]
    failed_process = run_cli("k-range", "x", "-s", "bm2", cwd=tmp_path)
    assert failed_process.returncode == 2
    assert "unknown system `bm2`" in failed_process.stderr


def test_smallest_k_str_has_tokens_only_if_saved():
    rows = [{"k": k, "value": 1.0, "loss": 0.0, "loss_at_most": 0.0, "tokens": 10.0 * k} for k in (1, 5)]
    assert str(SmallestK(1, "mrr", 0.02, 0.95, rows)) == (
        "k=1: mrr 1.0000, at most 0.0000 below the best (1.0000 at k=5) with 95% confidence; "
        "about 10 tokens instead of 50 at k=5"
    )
    rows[0]["value"] = 0.5
    assert str(SmallestK(5, "mrr", 0.02, 0.95, rows)) == "k=5: mrr 1.0000, the best"


def test_report_command_rel_option_sets_minimum_relevant_grade(tmp_path):
    (tmp_path / "qrels.txt").write_text("q 0 a 1\nq 0 b 3\np 0 a 1\np 0 b 3\n")
    (tmp_path / "a.run").write_text("q Q0 a 1 2 t\nq Q0 b 2 1 t\np Q0 a 1 2 t\np Q0 b 2 1 t\n")
    plain = run_cli("report", "qrels.txt", "a.run", "-m", "mrr", "--no-audit", cwd=tmp_path)
    assert "grades go up to 3, and mrr counts grade 1 as relevant; `--rel 3` counts from grade 3" in plain.stderr
    raised = run_cli("report", "qrels.txt", "a.run", "-m", "mrr", "--no-audit", "-l", "2", cwd=tmp_path)
    assert raised.returncode == 0, raised.stderr
    assert "mrr(rel=2)" in raised.stdout
    assert "0.5000" in raised.stdout
    assert "grades go up" not in raised.stderr


def test_report_command_prints_notes_and_next_step(table):
    process = run_cli("report", "s.csv", "-b", "a_b", cwd=table)
    assert process.returncode == 0, process.stderr
    assert ["system", "mrr", "vs", "a_b", "p", "better/worse"] in [line.split() for line in process.stdout.splitlines()]
    assert "8 queries" in process.stdout.splitlines()[0]
    notes = [line.removeprefix("note: ") for line in process.stderr.splitlines()]
    assert notes[0].startswith("intervals and tests are rough: c and a_b differ on 8 of 8 queries by mrr")
    assert notes[1].startswith("vs a_b: difference in mrr with its 95% CI; p: paired t-test, Holm-corrected for 1 comp")
    assert notes[-1] == "next: the same command with -o report.html"
    assert "next:" not in run_cli("report", "s.csv", "--format", "csv", cwd=table).stderr


def test_run_command_json_output_is_valid(tmp_path):
    process = run_cli("run", "synthetic:needles(documents=60, queries=6)", "-s", "bm25", "--json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    data = json.loads(process.stdout, parse_constant=pytest.fail)
    SCHEMA_VALIDATOR.validate(data)
    assert data["systems"]["bm25"]["means"]["ndcg@10"]["n"] == 6
