"""Run histories: points and intervals, changed setups, changes of the last run, and reports."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime

import jsonschema
import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats

import ragauge
from command import command_in
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Judgments
from ragauge.core.summaries import Mean
from ragauge.experiments import run
from ragauge.experiments.history import history, report, report_text
from ragauge.experiments.history.results import History, HistoryPoint
from ragauge.files.json_schemas import json_schema
from ragauge.files.serialization import read_record, to_json, to_json_data
from ragauge.measures.conventions import PRESETS, Convention
from ragauge.measures.latency import summarise_timings
from ragauge.output.markdown import render_markdown
from ragauge.output.page import render_page
from ragauge.output.report import collect_charts
from ragauge.output.terminal import render_report
from ragauge.stats.intervals import quantile_interval
from result_folders import DATA, make_run_folder, make_system, set_file_times

GOOD = [1] * 15 + [2] * 15
WORSE = [1] * 5 + [2] * 10 + [4] * 15


SCHEMA = json_schema(History)


@pytest.fixture
def runs(tmp_path):
    """Create runs of one system on three consecutive days: good, good, worse."""
    for day, ranks in enumerate((GOOD, GOOD, WORSE), start=1):
        make_run_folder(tmp_path / "runs" / f"day{day}", {"mine": make_system(ranks)}, day=day)
    return tmp_path / "runs"


def test_history_point_mean_matches_scipy_t_interval(runs):
    result = history(runs, measures="mrr@10")
    assert [point.when.isoformat() for point in result.points] == [
        f"2026-11-0{day}T12:00:00+00:00" for day in (1, 2, 3)
    ]
    assert [point.folder for point in result.points] == [str(runs / f"day{day}") for day in (1, 2, 3)]
    values = np.array([1.0] * 5 + [0.5] * 10 + [0.25] * 15)
    low, high = stats.t.interval(0.95, 29, loc=values.mean(), scale=stats.sem(values))
    assert result.points[-1].mean == pytest.approx((values.mean(), 30, low, high))


def test_history_confidence_sets_interval_width(runs):
    wide, narrow = (history(runs, measures="mrr@10", confidence=level).points[2].mean for level in (0.99, 0.5))
    assert wide.value == narrow.value
    assert wide.low < narrow.low < narrow.high < wide.high


def test_history_measures_default_to_those_of_folders(runs):
    assert history(runs).measures == ["mrr@10", "recall@10"]
    chosen = history(runs, measures=["ndcg@10", "MRR@10"])
    assert chosen.measures == ["ndcg@10", "mrr@10"]


def test_history_missing_measure_is_scored_from_run(runs):
    point = history(runs, measures="ndcg@3").points[-1]
    expected = ragauge.evaluate(str(runs / "day3"), str(runs / "day3" / "mine"), ["ndcg@3"])
    assert point.mean.value == pytest.approx(expected.means["ndcg@3"])
    assert point.mean.n == expected.n["ndcg@3"] == 30


def test_history_folder_without_scores_uses_default_measures(runs):
    (runs / "day3" / "scores.csv").unlink()
    (runs / "day3" / "experiment.json").unlink()
    result = history(runs / "day3")
    assert result.measures == ["ndcg@10", "recall@10", "mrr@10", "hit_rate@10"]
    assert result.points[2].mean.value == pytest.approx((5 + 5 + 15 / 4) / 30)


def test_history_other_convention_rescores_every_run(runs):
    point = history(runs, measures="ndcg@10", convention="rig").points[-1]
    expected = ragauge.evaluate(str(runs / "day3"), str(runs / "day3" / "mine"), ["ndcg@10"], "rig")
    assert (point.measure, point.mean.value) == (
        expected.measures[0],
        pytest.approx(expected.means[expected.measures[0]]),
    )


def test_history_other_convention_keeps_measures_of_folders(runs):
    result = history(runs, convention="rig")
    expected = ragauge.evaluate(str(runs / "day3"), str(runs / "day3" / "mine"), ["mrr@10", "recall@10"], "rig")
    assert result.measures == expected.measures
    assert [point.mean.value for point in result.points[-2:]] == pytest.approx(list(expected.means.values()))
    assert result.change("mine", expected.measures[0]).comparison.n == 30


def test_history_folders_of_two_conventions_are_compared_under_one(tmp_path):
    make_run_folder(tmp_path / "a", {"mine": make_system(GOOD)}, day=1)
    make_run_folder(tmp_path / "b", {"mine": make_system(WORSE)}, day=2, convention="trec9")
    assert history(tmp_path, measures="mrr@10").changes == []
    assert history(tmp_path, measures="mrr@10", convention="trec9").change("mine", "mrr@10").difference < 0


def test_history_rescored_folder_has_known_convention(tmp_path):
    make_run_folder(tmp_path / "a", {"mine": make_system(GOOD)}, day=1)
    make_run_folder(tmp_path / "b", {"mine": make_system(GOOD)}, day=2, convention="trec9")
    (tmp_path / "a" / "experiment.json").unlink()
    assert [point.changed for point in history(tmp_path, measures="mrr@10").points] == ["", ""]
    result = history(tmp_path, measures="ndcg@3")
    assert [point.changed for point in result.points] == ["", "convention default -> trec9"]


def test_history_measure_beyond_k_adds_note(runs):
    assert history(runs, measures="recall@100").notes == ["recall@100 is undefined for runs made with k=10"]


def test_history_sums_and_geometric_means_have_no_interval(runs):
    expected = ragauge.evaluate(str(runs / "day3"), str(runs / "day3" / "mine"), ["gm_map", "num_rel_ret"])
    result = history(runs, measures=["gm_map", "num_rel_ret"])
    assert [point.mean.value for point in result.points[-2:]] == pytest.approx([expected.means["gm_map"], 30.0])
    assert all(math.isnan(point.mean.low) for point in result.points)
    assert result.change("mine", "gm_map").comparison is None


def test_history_latency_points_match_timings(runs):
    result = history(runs, measures=["p95_ms", "throughput", "mean_ms", "build_seconds"])
    timings = pl.read_parquet(runs / "day1" / "mine" / "timings.parquet")
    expected = summarise_timings(timings)
    p95, throughput, mean, build = (point.mean for point in result.points[:4])
    total = timings["total_ns"].to_numpy() / 1e6
    assert (p95.value, p95.n) == (pytest.approx(expected.stages["total"].p95), 30)
    assert p95.low in total
    assert math.isnan(p95.high)  # 30 values are too few for an upper limit of the 95th percentile
    assert (throughput.value, throughput.n) == (pytest.approx(expected.throughput), 30)
    assert mean.value == pytest.approx(total.mean())
    assert mean.low < mean.value < mean.high
    assert (build.value >= 0, build.n) == (True, 1)


def test_history_latency_change_has_no_test_and_lower_is_better(runs):
    change = history(runs, measures="p95_ms").change("mine", "p95_ms")
    assert change.comparison is None
    assert math.isnan(change.p)
    assert change.better == (change.last.mean.value < change.since.mean.value)


def test_history_missing_stage_has_nan_latency(runs):
    mean = history(runs, measures="embed_p95_ms").points[0].mean
    assert math.isnan(mean.value)
    assert mean.n == 0


@pytest.mark.parametrize(("n", "share"), [(100, 0.5), (391, 0.95), (20, 0.95), (10, 0.5), (5, 0.5), (1, 0.9)])
def test_quantile_interval_matches_binomial_distribution(n, share):
    places = range(1, n + 1)
    lows = [i for i in places if stats.binom.cdf(i - 1, n, share) <= 0.025]
    highs = [i for i in places if stats.binom.sf(i - 1, n, share) <= 0.025]
    expected = (max(lows, default=math.nan), min(highs, default=math.nan))
    assert quantile_interval(np.arange(n, 0, -1.0), share, 0.95) == pytest.approx(expected, nan_ok=True)


def test_quantile_interval_covers_at_nominal_level():
    rng = np.random.default_rng(0)
    intervals = [quantile_interval(rng.lognormal(size=200), 0.9, 0.95) for _ in range(1000)]
    truth = float(stats.lognorm.ppf(0.9, 1))
    assert 0.94 <= np.mean([low <= truth <= high for low, high in intervals]) <= 0.99


def test_history_change_matches_compare(runs):
    change = history(runs, measures="mrr@10").change("mine", "mrr@10")
    row = ragauge.compare(
        {day: ragauge.evaluate(str(runs / day), str(runs / day / "mine"), ["mrr@10"]) for day in ("day2", "day3")},
        baseline="day2",
    ).find("day3")
    assert change.since.folder == str(runs / "day2")
    assert change.difference == pytest.approx(row.difference)
    assert change.comparison.ci == pytest.approx(row.ci)
    assert (change.p, change.comparison.p_t) == pytest.approx((row.p_t, row.p_t))
    assert not change.better


def test_history_p_values_are_corrected_for_all_series(runs):
    result = history(runs)
    p_values = {change.last.measure: change.comparison.p_t for change in result.changes if change.against == "before"}
    assert p_values["recall@10"] == 1.0
    assert result.change("mine", "mrr@10").p == pytest.approx(2 * p_values["mrr@10"])


def test_history_change_is_reported_against_first_before_and_best(tmp_path):
    for day, ranks in enumerate((WORSE, GOOD, [1] * 3 + [2] * 12 + [4] * 15, WORSE), start=1):
        make_run_folder(tmp_path / f"day{day}", {"mine": make_system(ranks)}, day=day)
    result = history(tmp_path, measures="mrr@10")
    since = {change.against: change.since.folder for change in result.changes}
    assert since == {name: str(tmp_path / f"day{day}") for name, day in (("first", 1), ("before", 3), ("best", 2))}
    decline, no_change = report_text.summarise_history(result)
    assert decline.startswith("mine is 0.2917 of mrr@10 [0.2")
    assert decline.endswith(f"] below its best of 2026-11-02 ({tmp_path / 'day2'}), p < 0.001.")
    assert no_change == "No significant change in the last of 4 runs."


def test_history_best_of_lower_is_better_measure_is_lowest(tmp_path):
    for day, grade in enumerate((0.4, 0.1, 0.2), start=1):
        folder = make_run_folder(tmp_path / f"day{day}", {"mine": make_system(GOOD)}, day=day)
        rows = [f"mine,q{i},unjudged@10,{grade}" for i in range(30)]
        (folder / "scores.csv").write_text("\n".join(["run,query,measure,value", *rows, ""]))
        (folder / "experiment.json").write_text("{}")
    result = history(tmp_path)
    assert result.change("mine", "unjudged@10", against="best").since.mean.value == pytest.approx(0.1)
    assert not result.change("mine", "unjudged@10").better


FEWER = replace(DATA, queries=dict(list(DATA.queries.items())[:20]))
REWORDED = replace(DATA, queries={query: f" {text}" for query, text in DATA.queries.items()})
LARGER = replace(DATA, documents=[*DATA.documents, Document("new", "word")])
CHANGED = replace(DATA, documents=[Document("d0", "another"), *DATA.documents[1:]])
REJUDGED = replace(DATA, judgments=Judgments({**DATA.judgments.nested, "q0": {"d0": 2}}))


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"data": LARGER}, "40 -> 41 documents"),
        ({"data": CHANGED}, "other documents"),
        ({"data": FEWER}, "30 -> 20 queries"),
        ({"data": REWORDED}, "other queries"),
        ({"data": REJUDGED}, "other judgments"),
        ({"k": 20}, "10 -> 20 documents per query"),
        ({"convention": "trec9"}, "convention default -> trec9"),
        ({"data": replace(LARGER, queries=FEWER.queries)}, "40 -> 41 documents, 30 -> 20 queries"),
    ],
)
def test_history_changed_setup_is_reported_and_not_compared(tmp_path, settings, change):
    make_run_folder(tmp_path / "a", {"mine": make_system(GOOD)}, day=1)
    make_run_folder(tmp_path / "b", {"mine": make_system(GOOD)}, day=2, **settings)
    result = history(tmp_path, measures="mrr@10")
    assert [point.changed for point in result.points] == ["", change]
    assert list(result.changes) == []
    assert result.comparable == {("small", "mine", "mrr@10"): 1}
    (section,) = (section for section in report.build_report(result).sections if section.id == "breaks-terminal")
    assert section.blocks[0].rows == [["2026-11-02 12:00", str(tmp_path / "b"), "mine", change]]


def test_history_judgment_order_is_ignored(tmp_path):
    make_run_folder(tmp_path / "a", {"mine": make_system(GOOD)}, day=1)
    nested = dict(reversed(DATA.judgments.nested.items()))
    make_run_folder(tmp_path / "b", {"mine": make_system(GOOD)}, day=2, data=replace(DATA, judgments=Judgments(nested)))
    first, second = ((tmp_path / name / "judgments.parquet").read_bytes() for name in "ab")
    assert first != second
    assert history(tmp_path, measures="mrr@10").points[1].changed == ""


def test_history_fewer_scored_queries_are_not_comparable(tmp_path):
    for day in (1, 2):
        make_run_folder(tmp_path / f"day{day}", {"mine": make_system(GOOD)}, day=day)
    scores = tmp_path / "day2" / "scores.csv"
    text = scores.read_text().replace("mine,q0,mrr@10,1.0", "mine,q0,mrr@10,")
    scores.write_text(text)
    result = history(tmp_path, measures=["mrr@10", "recall@10"])
    assert [(point.measure, point.mean.n, point.changed) for point in result.points[2:]] == [
        ("mrr@10", 29, "30 -> 29 scored queries"),
        ("recall@10", 30, ""),
    ]


@pytest.mark.parametrize(
    ("changed_part", "change"),
    [
        ({"cores": 64}, "2 -> 64 cores"),
        ({"processor": "Abacus"}, "other processor"),
        ({"system": "Minix 3"}, "other operating system"),
        ({"memory_bytes": 64 << 30}, "16 -> 64 GiB of memory"),
        ({"memory_bytes": (16 << 30) - 4096}, ""),
    ],
)
def test_history_changed_machine_affects_only_latency(tmp_path, changed_part, change):
    machine = {"processor": "Slide rule", "cores": 2, "memory_bytes": 16 << 30, "system": "Linux"}
    make_run_folder(tmp_path / "a", {"mine": make_system(GOOD)}, day=1, machine=machine)
    make_run_folder(tmp_path / "b", {"mine": make_system(GOOD)}, day=2, machine={**machine, **changed_part})
    result = history(tmp_path, measures=["p95_ms", "mrr@10"])
    assert {point.measure: point.changed for point in result.points[2:]} == {"p95_ms": change, "mrr@10": ""}


def test_history_judgments_do_not_affect_latency_but_workers_do(tmp_path):
    make_run_folder(tmp_path / "a", {"mine": make_system(GOOD)}, day=1)
    make_run_folder(tmp_path / "b", {"mine": make_system(GOOD)}, day=2, data=REJUDGED, workers=2)
    result = history(tmp_path, measures=["p50_ms", "mrr@10"])
    assert [point.changed for point in result.points[2:]] == ["1 -> 2 workers", "other judgments"]


def test_history_last_run_is_compared_with_latest_comparable_run(tmp_path):
    for day, data in enumerate((DATA, REJUDGED, DATA), start=1):
        make_run_folder(tmp_path / f"day{day}", {"mine": make_system(GOOD)}, day=day, data=data)
    result = history(tmp_path, measures="mrr@10")
    assert [point.changed for point in result.points] == ["", "other judgments", "other judgments"]
    assert result.change("mine", "mrr@10").since.folder == str(tmp_path / "day1")
    assert result.comparable == {("small", "mine", "mrr@10"): 2}


def test_history_datasets_are_separate_series(tmp_path):
    make_run_folder(tmp_path / "a", {"mine": make_system(GOOD)}, day=1)
    make_run_folder(tmp_path / "b", {"mine": make_system(WORSE)}, day=2, data=replace(DATA, name="other"))
    result = history(tmp_path, measures="mrr@10")
    assert result.datasets == ["small", "other"]
    assert [point.changed for point in result.points] == ["", ""]
    assert len(result.series("mine", "mrr@10", "other")) == 1
    assert result.of("other").folders == [str(tmp_path / "b")]
    assert not result.changes
    assert history(tmp_path, datasets="small").datasets == ["small"]


def test_history_systems_and_datasets_are_selected_by_name(tmp_path):
    make_run_folder(tmp_path / "a", {"one": make_system(GOOD), "two": make_system(WORSE)}, day=1)
    assert history(tmp_path, systems="two").systems == ["two"]
    with pytest.raises(UnknownName, match="unknown system `tow`") as error:
        history(tmp_path, systems=["tow"])
    assert error.value.hint == "did you mean `two`? Choose one of one, two"
    with pytest.raises(UnknownName, match="unknown dataset `smal`"):
        history(tmp_path, datasets=["smal"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measures": "failed"}, "`failed` has no history"),
        ({"measures": "nonsense@10"}, "unknown measure"),
        ({"confidence": 2.0}, "confidence must be at least 0.5 and below 1, got 2"),
        ({"convention": "mine"}, "unknown convention `mine`"),
    ],
)
def test_history_invalid_argument_raises_error(runs, arguments, message):
    with pytest.raises(ragauge.RagaugeError, match=message):
        history(runs, **arguments)


def make_points(*values, changed=()):
    """Build points on consecutive days, with intervals of ±0.1."""
    day = first_day()
    return [
        HistoryPoint(
            day.replace(day=i + 1), f"run{i}", "mine", "mrr", Mean(value, 9, value - 0.1, value + 0.1), changed=reason
        )
        for i, (value, reason) in enumerate(zip(values, [*changed, *[""] * len(values)], strict=False))
    ]


def first_day():
    return datetime(2026, 11, 1, tzinfo=UTC)


def test_render_trend_has_gap_at_incomparable_points():
    assert report.render_trend(make_points(0.1, 0.2, 0.3)) == "▃▅▆"
    assert report.render_trend(make_points(0.1, 0.2, 0.3, changed=["", "", "other judgments"])) == "▃▅·▆"
    assert report.render_trend(make_points(0.1, 0.2, 0.3), 2) == "▅▆"
    assert report.render_trend(make_points(math.nan)) == ""


def print_lines(runs_history, width=80):
    """Return the lines of a history on a terminal of a given width, and the dropped columns."""
    pieces, dropped = render_report(report.build_report(runs_history, sparkline_points=8), width)
    console = Console(width=width, file=io.StringIO(), no_color=True)
    for piece in pieces:
        console.print(piece)
    return [line.rstrip() for line in console.file.getvalue().splitlines()], dropped


def table_lines(lines):
    """Return the lines of the first table, without its header."""
    head = next(i for i, line in enumerate(lines) if line.startswith("system"))
    end = next((i for i in range(head, len(lines)) if not lines[i]), len(lines))
    return lines[head + 1 : end]


def test_history_table_fits_width_and_lists_dropped_columns(runs):
    result = history(runs, measures=["mrr@10", "p95_ms"])
    lines, dropped = print_lines(result)
    assert max(map(len, lines)) <= 80
    assert dropped == ["since"]
    assert lines[0].startswith("History of small: 3 folders, 1 system, 2026-11-01 to 2026-11-03")
    headers = [line.split() for line in lines if line.startswith("system")]
    assert headers == [["system", "measure", "trend", "runs", "last", "vs", "previous", "first", "vs", "first"]]
    assert table_lines(lines)[0].split()[3:] == [
        "3",
        "0.4583",
        "-0.2917",
        "p",
        "<0.001",
        "0.7500",
        "-0.2917",
        "p",
        "<0.001",
    ]
    assert print_lines(result, 60)[1] == ["runs", "since", "first", "vs first"]
    assert print_lines(result, 200)[1] == []
    assert "| 3 | 0.7500 " in render_markdown([report.build_report(result)])


def test_history_table_and_summary_agree_on_previous_run(tmp_path):
    """The last run equals the first run and is worse than the previous one; the table shows both differences."""
    for day, ranks in enumerate((WORSE, GOOD, WORSE), start=1):
        make_run_folder(tmp_path / f"day{day}", {"mine": make_system(ranks)}, day=day)
    result = history(tmp_path, measures="mrr@10")
    lines, _ = print_lines(result)
    assert table_lines(lines)[0].split()[3:8] == ["3", "0.4583", "-0.2917", "p", "<0.001"]
    assert table_lines(lines)[0].split()[-3:] == ["+0.0000", "p", "1.000"]
    change = result.change("mine", "mrr@10")
    low, high = change.comparison.ci
    sentence = (
        f"mine lost 0.2917 of mrr@10 [{-high:.4f}, {-low:.4f}] since 2026-11-02 ({tmp_path / 'day2'}), p < 0.001."
    )
    assert report_text.summarise_history(result) == [sentence]
    assert report.build_report(result).summary == sentence


def test_history_summary_reports_slow_decline_since_first_run(tmp_path):
    """The change since the previous run is not significant, but the change since the first run is."""
    for day in (1, 2, 3, 4):
        ranks = [2] * (3 * (day - 1)) + [1] * (30 - 3 * (day - 1))
        make_run_folder(tmp_path / f"day{day}", {"mine": make_system(ranks)}, day=day)
    result = history(tmp_path, measures="mrr@10")
    first, before = (result.change("mine", "mrr@10", against=reference) for reference in ("first", "before"))
    assert first.p < 0.05 < before.p
    sentences = report_text.summarise_history(result)
    assert sentences[0].startswith("mine is 0.1500 of mrr@10 [")  # the first run is also the best
    assert sentences[1:] == ["No significant change in the last of 4 runs."]


def test_history_summary_wording_depends_on_direction_of_measure(tmp_path):
    for day, ranks in enumerate((WORSE, GOOD), start=1):
        folder = make_run_folder(tmp_path / f"day{day}", {"mine": make_system(ranks)}, day=day)
        rows = [f"mine,q{i},{name},{(day + i % 2) / 10}" for i in range(30) for name in ("unjudged@10", "mrr@10")]
        (folder / "scores.csv").write_text("\n".join(["run,query,measure,value", *rows, ""]))
        (folder / "experiment.json").write_text("{}")
        set_file_times(folder)
    result = history(tmp_path)
    since = f"since 2026-11-01 ({tmp_path / 'day1'}), p < 0.001."
    assert {sentence.split(" [")[0]: sentence.split("] ")[1] for sentence in report_text.summarise_history(result)} == {
        "mine is worse by 0.1000 in unjudged@10": since,
        "mine gained 0.1000 of mrr@10": since,
    }


def test_history_unchanged_series_are_listed_below_table(tmp_path):
    for day, ranks in enumerate((GOOD, GOOD, WORSE), start=1):
        make_run_folder(tmp_path / f"day{day}", {"a": make_system(GOOD), "b": make_system(ranks)}, day=day)
    result = history(tmp_path)
    lines, _ = print_lines(result)
    assert [line.split()[:2] for line in table_lines(lines)[:-1]] == [["b", "mrr@10"]]
    assert lines[-1] == "3 series are unchanged: a mrr@10 0.7500, recall@10 1.0000; b recall@10 1.0000"
    text = render_markdown([report.build_report(result)])
    table = [row.split(" | ")[:2] for row in text.splitlines() if row.startswith(("| a ", "| b "))]
    assert table == [["| b", "mrr@10"], ["| a", "mrr@10"], ["| a", "recall@10"], ["| b", "recall@10"]]
    unchanged = table_lines(print_lines(history(tmp_path, systems="a"))[0])
    # If all series are unchanged, the table lists them.
    assert [line.split()[-9:-7] for line in unchanged] == [["3", "0.7500"], ["3", "1.0000"]]


def test_is_unchanged_equal_means_with_moved_queries_is_false(tmp_path):
    for day, ranks in enumerate((GOOD, GOOD[::-1]), start=1):
        make_run_folder(tmp_path / f"day{day}", {"mine": make_system(ranks)}, day=day)
    result = history(tmp_path, measures="mrr@10")
    assert result.points[0].mean == pytest.approx(result.points[1].mean)
    assert not report_text.is_unchanged(result, result.points)


@pytest.mark.parametrize(
    ("times", "since", "title"),
    [
        (["01T12:00:00", "02T12:00:00"], "2026-11-01", "2026-11-01 to 2026-11-02"),
        (["01T12:00:10", "01T12:05:20"], "2026-11-01 12:00", "2026-11-01 12:00 to 12:05 UTC"),
        (["01T12:00:10", "01T12:00:20"], "2026-11-01 12:00:10", "2026-11-01 12:00:10 to 12:00:20 UTC"),
    ],
)
def test_find_time_format_is_as_precise_as_needed(times, since, title):
    dates = [datetime.fromisoformat(f"2026-11-{time}+00:00") for time in times]
    result = History([replace(point, when=when) for point, when in zip(make_points(0.1, 0.2), dates, strict=True)])
    assert dates[0].strftime(report_text.find_time_format(result)) == since
    assert report_text.format_time_span(result) == title
    assert since.endswith(dates[0].strftime(report_text.find_time_format(result, narrow=True)))


def test_history_csv_and_json_have_every_point_without_nan(tmp_path):
    make_run_folder(tmp_path / "a", {"mine": make_system(GOOD)}, day=1)
    make_run_folder(tmp_path / "b", {"mine": make_system(WORSE)}, day=2)
    result = history(tmp_path, measures=["mrr@10", "throughput"])
    ragauge.report(result, [tmp_path / "h.csv", tmp_path / "h.json"])
    rows = list(csv.DictReader(io.StringIO((tmp_path / "h.csv").read_text())))
    assert list(rows[0]) == ["when", "folder", "dataset", "system", "measure", "mean", "low", "high", "n", "changed"]
    assert [float(row["mean"]) for row in rows] == [point.mean.value for point in result.points]
    assert (rows[1]["measure"], rows[1]["low"]) == ("throughput", "")
    data = json.loads((tmp_path / "h.json").read_text())
    assert data["schema"] == "ragauge-history/2"
    assert data["points"][1]["low"] is None
    jsonschema.validate(data, SCHEMA)
    change = next(item for item in data["changes"] if item["measure"] == "mrr@10" and item["against"] == "before")
    assert change["difference"] == pytest.approx(-7 / 24)
    assert change["comparison"]["ci"][1] < 0
    ragauge.report(result, tmp_path / "changes.csv", format="changes")
    assert len((tmp_path / "changes.csv").read_text().splitlines()) == 1 + len(result.changes)


def test_history_json_round_trip_keeps_report(runs, tmp_path):
    make_run_folder(runs / "day4", {"mine": make_system(GOOD)}, day=4, data=REJUDGED)
    (runs / "day2" / "scores.csv").write_text("nonsense")
    result = history(runs, measures=["mrr@10", "embed_p95_ms", "gm_map", "recall@100"])
    (tmp_path / "h.json").write_text(to_json(result))
    restored = read_record(tmp_path / "h.json")
    jsonschema.validate(to_json_data(restored), SCHEMA)
    assert restored.skipped
    assert restored.notes
    assert any(point.changed for point in restored.points)
    assert to_json(restored) == to_json(result)
    assert render_markdown([report.build_report(restored)]) == render_markdown([report.build_report(result)])


def test_history_markdown_and_page_escape_names(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    markup = "<script>alert(1)</script>"
    for day in (1, 2):
        make_run_folder(
            tmp_path / f"day{day}",
            {markup: make_system(GOOD)},
            day=day,
            data=replace(DATA, name=f"</script>{markup}|x"),
        )
    content = report.build_report(history(tmp_path))
    assert "<script" not in render_markdown([content])
    text = render_page([content])
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "mrr@10" in text


def test_history_chart_keeps_last_points_and_counts_omitted():
    pytest.importorskip("altair")
    day = first_day()
    series = [replace(make_points(0.5)[0], when=day.replace(year=1000 + i), folder=f"run{i}") for i in range(250)]
    chart = collect_charts([report.build_report(History(series))])["history-trend"]
    assert "the last 200 points of each series; 50 earlier points not drawn." in chart.caption
    assert (
        report.build_report(History(series[:1])).summary == "One run so far; changes are shown from the second run on."
    )


def test_history_report_summary_is_sentence_and_unchanged_rows_are_last(tmp_path):
    for day, ranks in enumerate((GOOD, WORSE), start=1):
        make_run_folder(tmp_path / f"day{day}", {"a": make_system(GOOD), "b": make_system(ranks)}, day=day)
    decline, no_change = (report.build_report(history(tmp_path, systems=system)) for system in ("b", "a"))
    folder = re.escape(str(tmp_path / "day1"))
    assert re.fullmatch(
        rf"b lost 0\.2917 of mrr@10 \[0\.2\d+, 0\.3\d+\] since 2026-11-01 \({folder}\), p < 0.001\.", decline.summary
    )
    assert no_change.summary == "No significant change in the last of 2 runs."
    both_systems = report.build_report(history(tmp_path, measures="mrr@10"))
    (series,) = (section for section in both_systems.sections if section.id == "series")
    assert [row[0] for row in series.blocks[0].rows] == ["b", "a"]
    assert "vs previous: last run minus the latest comparable run before it" in series.blocks[0].legends


def run_history(*arguments, cwd, code=0):
    return command_in(cwd, "history", PYTHONUTF8="1")(*arguments, code=code)


def test_cli_history_prints_data_to_stdout_and_notes_to_stderr(runs):
    process = run_history("-m", "mrr@10", cwd=runs.parent)
    assert process.stdout.splitlines()[0].startswith("History of small: 3 folders, 1 system, 2026-11-01 to 2026-11-03")
    assert "mine lost 0.2917 of mrr@10 [" in process.stdout
    assert "] since 2026-11-02 (runs/day2), p < 0.001." in " ".join(process.stdout.split())
    assert process.stderr == "note: p: paired t-test over queries, Holm-corrected for 1 series\n"
    assert json.loads(run_history("--schema", cwd=runs.parent).stdout) == SCHEMA
    assert "- **" not in run_history("--format", "markdown", cwd=runs.parent).stdout
    assert run_history("--csv", cwd=runs.parent).stdout.startswith("when,folder,")
    assert json.loads(run_history("runs", "--json", cwd=runs.parent).stdout)["points"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "--csv"], "--json and --csv are mutually exclusive"),
        (["nowhere"], "nowhere: no such folder"),
        (["runs/day1/mine"], "runs/day1/mine: is a single run"),
        (["-o", "page.txt"], "page.txt: expected a file that ends in .html"),
        (["-m", "nonsense"], "unknown measure `nonsense`"),
    ],
)
def test_cli_history_invalid_arguments_exit_with_2(runs, arguments, message):
    assert message in run_history(*arguments, cwd=runs.parent, code=2).stderr


def test_history_empty_folder_raises_error(tmp_path):
    with pytest.raises(BadInput, match="no result of `ragauge run` in"):
        history(tmp_path)


def make_python_folder(folder, ranks, day, **options):
    """Create a folder as the Python function `run` does, without scores.csv."""
    run(DATA, {"mine": make_system(ranks)}, out=folder, warmup=0, **options)
    assert not (folder / "scores.csv").exists()
    path = folder / "mine" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished": f"2026-11-0{day}T12:00:00+00:00"}))
    set_file_times(folder)
    return folder


def test_history_python_run_uses_its_measures_and_convention(tmp_path):
    options = {"measures": ["ndcg@5", "map"], "convention": "rig"}
    make_python_folder(tmp_path / "a", GOOD, 1, **options)
    make_python_folder(tmp_path / "b", WORSE, 2, **options)
    result = history(tmp_path)
    assert result.measures == ["ndcg(gain=exp)@5", "map"]
    expected = ragauge.evaluate(str(tmp_path / "b"), str(tmp_path / "b" / "mine"), ["ndcg@5", "map"], "rig")
    assert [point.mean.value for point in result.points[2:]] == pytest.approx(list(expected.means.values()))
    assert result.change("mine", "map").comparison.n == 30
    assert result.notes == []
    make_run_folder(tmp_path / "c", {"mine": make_system(GOOD)}, day=3)
    rescored = history(tmp_path, measures="map")
    assert [point.changed for point in rescored.points] == ["", "", "convention rig -> default"]


def test_history_custom_convention_is_reconstructed_from_name(tmp_path):
    rules = PRESETS["default"].but(gain="exp", depth=2, rel=1.0, ties="ranked")
    make_python_folder(tmp_path / "a", WORSE, 1, measures=["mrr@10"], convention=rules)
    assert json.loads((tmp_path / "a" / "experiment.json").read_text())["convention"] == rules.name
    result = history(tmp_path)
    assert result.points[0].mean.value == pytest.approx((5 + 5) / 30)  # depth 2 ignores rank 4
    assert history(tmp_path, convention="default").points[0].mean.value == pytest.approx((5 + 5 + 15 / 4) / 30)


def test_history_unknown_measure_or_convention_is_skipped_with_note(tmp_path):
    def own(*_):
        return 0.5

    make_python_folder(tmp_path / "a", GOOD, 1, measures=["mrr@10", own])
    make_python_folder(tmp_path / "b", GOOD, 2, measures=["mrr@10"], convention=Convention("my own", gain="exp"))
    result = history(tmp_path)
    assert [(point.folder, point.measure) for point in result.points] == [(str(tmp_path / "a"), "mrr@10")]
    assert result.notes == ["own is left out of 1 folder without scores of it: unknown measure `own`"]
    assert "`my own`, which cannot be reconstructed from its name" in result.skipped[str(tmp_path / "b" / "mine")]
    rescored = history(tmp_path, convention="default")
    assert [point.mean.value for point in rescored.points] == [0.75, 0.75]
    assert rescored.skipped == {}
