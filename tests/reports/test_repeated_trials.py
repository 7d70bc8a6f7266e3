"""Repeated trials of random systems: variation in reports, and the swarm table with a target map."""

from __future__ import annotations

import csv
import io
import json
import math

import jsonschema
import numpy as np
import polars as pl
import pytest

import ragauge
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.randomness import query_rng
from ragauge.core.records import MeasureDict, Scores
from ragauge.core.summaries import Mean
from ragauge.files.json_schemas import json_schema_of
from ragauge.output.terminal import render_report, render_table
from ragauge.reports import OUTPUT_FORMATS, overview, report
from ragauge.reports.layouts import LAYOUTS
from ragauge.reports.overview_report import build_report, describe_tables
from ragauge.reports.overview_tables import build_trials_table, describe_trials, has_varying_trials
from ragauge.reports.system_summaries import summarise_systems

MEASURES = ["mrr@20", "hit_rate@1", "dr@20"]
SCHEMA = json_schema_of("ragauge-report")
REPEATS = 4


def lucky(query, k):
    """Return the relevant documents behind a random number of others, 0 to 2."""
    at, number = int(query_rng(0, query).integers(0, 3)), int(query.split()[-1])
    return [*(f"x{i}" for i in range(at)), f"d{number}a", f"d{number}b"][:k]


def steady(query, k):
    return ["x0", f"d{int(query.split()[-1])}a"][:k]


@pytest.fixture(scope="module")
def dataset():
    """Build a dataset: odd queries have two relevant documents with the same target, even queries have one."""
    documents = [ragauge.Document(f"d{i}{end}", f"number {i}") for i in range(24) for end in "ab"]
    documents += [ragauge.Document(f"x{i}", "another text") for i in range(3)]
    grades = {f"q{i}": {f"d{i}{end}": 1 for end in ("ab" if i % 2 else "a")} for i in range(24)}
    targets = {f"d{i}{end}": [f"thing {i}"] for i in range(24) for end in "ab"}
    queries = {f"q{i}": f"find number {i}" for i in range(24)}
    return ragauge.Dataset("numbers", documents, queries, ragauge.Judgments(grades, targets=targets))


@pytest.fixture(scope="module")
def made(dataset, tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "numbers"
    systems = {"steady": steady, "lucky": lucky}
    return ragauge.run(dataset, systems, measures=MEASURES, baseline="steady", repeats=REPEATS, k=20, out=place)


@pytest.fixture(scope="module")
def seen(made):
    return overview(str(made.folder), audited=False)


def values(run):
    """Compute the reciprocal rank of the relevant document per trial and query from the rankings."""
    found = []
    for trial in run.trials():
        ranked = {}
        for query, doc in trial.table.sort("query", "rank").select("query", "doc").iter_rows():
            ranked.setdefault(query, []).append(doc)
        found.append([1 / (1 + ranked[f"q{i}"].index(f"d{i}a")) for i in range(24)])
    return np.array(found)


def written(name, found):
    return OUTPUT_FORMATS[name].write([found])


def printed(parts, width=200):
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    for part in parts:
        console.print(part)
    return out.getvalue()


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_overview_mean_and_interval_cover_all_trials(made, seen):
    table = values(made.runs["lucky"])
    mean = seen.entries["lucky"].means["mrr@20"]
    assert mean.value == pytest.approx(table.mean())
    assert mean.n == 24
    assert mean.low < mean.value < mean.high
    found = ragauge.compare(
        {
            "zero": {f"q{i}": 0.0 for i in range(24)},
            "lucky": [{f"q{i}": value for i, value in enumerate(row)} for row in table.tolist()],
        },
        baseline="zero",
    ).find("lucky")
    assert (mean.low, mean.high) == pytest.approx(found.ci)  # equals the difference from 0 over queries and seeds


def test_overview_variation_matches_values_from_rankings(made, seen):
    table = values(made.runs["lucky"])
    found = seen.entries["lucky"].variation["mrr@20"]
    assert (found.trials, found.n, found.left_out) == (REPEATS, 24, 0)
    assert found.unstable == sum(len(set(column)) > 1 for column in table.T.tolist())
    assert found.squares.queries == pytest.approx(REPEATS * table.mean(axis=0).var(ddof=1))
    assert found.squares.trials == pytest.approx(24 * table.mean(axis=1).var(ddof=1))
    assert list(seen.entries["lucky"].variation) == MEASURES


def test_trials_table_identical_trials_shows_same_rankings(seen):
    assert seen.entries["steady"].variation == {}
    rows = build_trials_table(seen, "mrr@20").texts()
    assert rows[0][:5] == ["steady", str(REPEATS), "0.5000", "0.5000", "same rankings"]


def test_trials_table_equal_values_shows_same_values(dataset, made):
    # The relevant document is always in the top 3.
    again = overview(made, audited=False, measures=["hit_rate@20", "mrr@20"])
    found = again.entries["lucky"]
    assert found.variation["hit_rate@20"].unstable == 0
    assert found.means["hit_rate@20"] == Mean(1.0, 24, 1.0, 1.0)
    assert build_trials_table(again, "hit_rate@20").texts()[1][4] == "same values"


def test_trials_table_terminal_output_has_min_max_and_legend(made, seen):
    table = values(made.runs["lucky"])
    report_of_all = build_report(seen)
    shown, _ = render_report(report_of_all, 200)
    line = next(one for one in printed(shown).splitlines() if one.startswith("lucky") and "%" in one).split()
    assert line[1:4] == [str(REPEATS), f"{table.mean(axis=1).min():.4f}", f"{table.mean(axis=1).max():.4f}"]
    assert any(one.startswith("min, max: ") for one in describe_tables(seen))
    narrow, left = render_report(report_of_all, 70)
    assert {"min", "max"} <= set(left)
    assert max(map(len, printed(narrow, 70).splitlines())) <= 70


def test_trials_table_80_columns_returns_dropped_columns(seen):
    table = build_trials_table(seen, "mrr@20")
    header = [column.title for column in table.columns]
    trials, left = render_table(table, 80)
    kept = [str(column.header) for column in trials.columns]
    assert kept == [title for title in header if title not in left]
    assert {"min", "max"} <= set(left)
    assert max(map(len, printed([trials], 80).splitlines())) <= 80
    legend = describe_trials(seen)
    assert all(title in " ".join(legend) for title in header[2:])
    assert set(legend) <= set(describe_tables(seen))
    text = written("markdown", seen).replace("\\", "")
    assert all(line[1:] in text for line in legend)


def test_outputs_identical_trials_have_no_variation_section(dataset):
    found = overview(ragauge.run(dataset, {"steady": steady}, measures=["mrr@20"], repeats=2, k=20), audited=False)
    assert not has_varying_trials(found)
    assert describe_trials(found) == []
    assert "Variation between trials" not in written("markdown", found) + written("html", found)
    assert json.loads(written("json", found))["systems"]["steady"]["variation"] == {}


def test_markdown_and_html_have_trials_table_per_measure(seen):
    text, page = written("markdown", seen), written("html", seen)
    for measure in MEASURES:
        assert f"| {measure} over trials | trials |" in text
        assert f"{measure} over trials" in page
    assert '<section id="report-trials">' in page
    assert "BCa bootstrap over queries and trials" in text
    assert "BCa bootstrap over queries and trials" in page


def test_json_output_with_trials_is_valid_and_has_variation(seen):
    data = json.loads(written("json", seen))
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    found, mine = data["systems"]["lucky"]["variation"]["mrr@20"], seen.entries["lucky"].variation["mrr@20"]
    assert found["variances"] == pytest.approx(mine.variances._asdict())
    assert found["error"] ** 2 == pytest.approx(sum(found["of_mean"].values()))
    assert len(data["systems"]["lucky"]["scores"]) == REPEATS
    assert data["systems"]["steady"]["variation"] == {}
    shares = [row["seeds"]["share"] for row in data["comparisons"]["comparisons"] if row["measure"] == "mrr@20"]
    assert shares == [pytest.approx(mine.by_trials)]  # the baseline is the same in every trial


def test_csv_output_has_row_per_variance_component(seen):
    rows = {(row["system"], row["figure"]): row for row in rows_of(written("csv", seen))}
    mine = seen.entries["lucky"].variation["mrr@20"]
    assert float(rows["lucky", "variance_rest(mrr@20)"]["value"]) == mine.variances.rest
    assert float(rows["lucky", "standard_error(mrr@20)"]["value"]) == mine.error
    assert float(rows["lucky", "trials(mrr@20)"]["value"]) == REPEATS
    assert rows["lucky", "unstable(mrr@20)"]["n"] == "24"
    assert ("steady", "trials(mrr@20)") not in rows


def test_overview_speed_covers_all_trials(seen):
    for entry in seen.entries.values():
        assert entry.speed.stages["total"].n == 24 * REPEATS
        assert len(entry.times["total"]) == 24 * REPEATS


def test_compare_seeds_share_matches_variation(made, seen):
    from ragauge.comparison.report import describe_comparisons

    found = ragauge.compare(str(made.folder), measures=["mrr@20"])
    share = seen.entries["lucky"].variation["mrr@20"].by_trials
    assert found.find("lucky").seeds.share == pytest.approx(share)
    assert f"more seeds would remove {share:.1%} of the variance of a difference in mrr@20" in describe_comparisons(
        found
    )
    assert found.to_polars()["seeds_share"].to_list() == [pytest.approx(share)]


def scores(columns):
    found = {m: np.array(values) for m, values in columns.items()}
    queries = [f"q{i}" for i in range(len(next(iter(found.values()))))]
    means = {m: float(np.nanmean(values)) for m, values in found.items()}
    lacks = {m: {q: "none" for q, v in zip(queries, vs, strict=True) if math.isnan(v)} for m, vs in found.items()}
    return Scores("mine", "default", queries, *(MeasureDict(one, str) for one in (found, means, lacks)))


def test_summarise_systems_unscored_trial_is_in_mean_not_in_variation():
    first, second = [0.2, 0.4, 0.9, 0.5], [0.3, 0.4, math.nan, 0.6]
    found = summarise_systems({"mine": [scores({"mrr": first}), scores({"mrr": second})]}, ["mrr"], {}, 0.95)["mine"]
    assert found.means["mrr"].value == pytest.approx((0.5 + 1.3 / 3) / 2)
    assert found.means["mrr"].n == 4
    assert (found.variation["mrr"].n, found.variation["mrr"].left_out) == (3, 1)
    whole = summarise_systems(
        {"mine": [scores({"mrr": [*one[:2], one[3]]}) for one in (first, second)]}, ["mrr"], {}, 0.95
    )
    other, mine = whole["mine"].means["mrr"], found.means["mrr"]
    # The interval is as wide as that of the three queries with values in both trials.
    assert mine.high - mine.value == pytest.approx(other.high - other.value)
    told = describe_trials(Overview("t", {"mine": found}, ["mrr"]))
    assert told[-1] == "up to 1 queries without a value in some trial are left out"


# The swarm table


def test_report_swarm_format_uses_dataset_target_map(made, tmp_path):
    found = report(str(made.folder), tmp_path / "long.csv", format="swarm", audited=False)
    assert found.convention == "swarm, targets=map"
    assert any("use the target map of the dataset" in note for note in found.notes)
    rows = rows_of((tmp_path / "long.csv").read_text())
    assert {row["convention"] for row in rows} == {"swarm, targets=map"}
    assert len(rows) == 2 * REPEATS * 24  # includes each trial of the system without variation
    odd = next(row for row in rows if row["method"] == "steady" and row["query_id"] == "q1")
    # One of two relevant documents is found, and both have the same target.
    assert [float(odd[name]) for name in ("Recall@20", "DR@20", "Diversity_Count")] == [0.5, 1.0, 1.0]
    table = values(made.runs["lucky"])
    for trial in range(REPEATS):
        mine = {
            row["query_id"]: float(row["MRR"]) for row in rows if (row["method"], row["seed"]) == ("lucky", str(trial))
        }
        assert [mine[f"q{i}"] for i in range(24)] == pytest.approx(table[trial].tolist())


def test_report_swarm_format_has_latency_per_trial(made, tmp_path):
    report(made, tmp_path / "long.csv", format="swarm", audited=False)
    told = {
        (row["method"], row["query_id"], int(row["seed"])): float(row["latency"])
        for row in rows_of((tmp_path / "long.csv").read_text())
    }
    for name, run in made.runs.items():
        for query, repeat, ns in (
            run.timings.filter(pl.col("status") == "ok").select("query", "repeat", "total_ns").iter_rows()
        ):
            assert told[name, query, repeat] == ns / 1e9


@pytest.mark.slow
def test_report_swarm_format_round_trips(made, tmp_path):
    report(str(made.folder), tmp_path / "long.csv", format="swarm", audited=False)
    back = LAYOUTS["swarm"].read(str(tmp_path / "long.csv"))
    assert back.convention == "swarm, targets=map"
    assert "dr@20" in back.measures
    assert not back.notes
    report(str(tmp_path / "long.csv"), tmp_path / "again.csv", format="swarm")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "long.csv").read_text()
    assert overview(str(tmp_path / "long.csv")).entries["steady"].variation["mrr@20"].unstable == 0


def test_report_swarm_convention_ignores_target_map(made, tmp_path):
    report(str(made.folder), tmp_path / "long.csv", format="swarm", audited=False, convention="swarm")
    rows = rows_of((tmp_path / "long.csv").read_text())
    assert "convention" not in rows[0]
    odd = next(row for row in rows if row["method"] == "steady" and row["query_id"] == "q1")
    assert [float(odd[name]) for name in ("Recall@20", "DR@20")] == [0.5, 0.5]  # each document is its own target


def test_read_swarm_mixed_conventions_raises_error(tmp_path):
    text = 'MRR,method,query_id,seed,convention\n1,a,1,0,"swarm, targets=map"\n1,b,1,0,\n'
    (tmp_path / "both.csv").write_text(text)
    with pytest.raises(ragauge.BadInput, match="some rows follow `swarm, targets=map` and some do not"):
        LAYOUTS["swarm"].read(str(tmp_path / "both.csv"))


def test_trials_table_means_only_is_empty():
    found = Overview("paper", {"a": SystemSummary("a", {"mrr": Mean(0.5, 0)})}, ["mrr"])
    assert not has_varying_trials(found)
    assert build_trials_table(found, "mrr").rows == []
