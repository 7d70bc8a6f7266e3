"""Repeated trials of random systems: variation in reports, and the swarm table with a target map."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import ragauge
from command import run_python
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.randomness import query_rng
from ragauge.core.records import MeasureDict, Scores
from ragauge.core.summaries import Mean
from ragauge.files.json_schemas import json_schema_of
from ragauge.output.terminal import render_report, render_table
from ragauge.reports.overview_report import build_report, describe_tables
from ragauge.reports.overview_tables import build_trials_table, describe_trials, has_varying_trials
from ragauge.reports.overviews import OUTPUT_FORMATS, overview
from ragauge.reports.system_summaries import summarise_systems

MEASURES = ["mrr@20", "hit_rate@1", "dr@20"]
SCHEMA = json_schema_of("ragauge-report")
REPEATS = 4


def random_rank(query, k):
    """Return the relevant documents behind a random number of others, 0 to 2."""
    n_others, number = int(query_rng(0, query).integers(0, 3)), int(query.split()[-1])
    return [*(f"x{i}" for i in range(n_others)), f"d{number}a", f"d{number}b"][:k]


def fixed_rank(query, k):
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
def experiment(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "numbers"
    systems = {"steady": fixed_rank, "lucky": random_rank}
    return ragauge.run(dataset, systems, measures=MEASURES, baseline="steady", repeats=REPEATS, k=20, out=folder)


@pytest.fixture(scope="module")
def run_overview(experiment):
    return overview(str(experiment.folder), audited=False)


def compute_reciprocal_ranks(run):
    """Compute the reciprocal rank of the relevant document per trial and query from the rankings."""
    rows = []
    for trial in run.trials():
        ranked = {}
        for query, doc in trial.table.sort("query", "rank").select("query", "doc").iter_rows():
            ranked.setdefault(query, []).append(doc)
        rows.append([1 / (1 + ranked[f"q{i}"].index(f"d{i}a")) for i in range(24)])
    return np.array(rows)


def run_ragauge(*arguments):
    return run_python(["-m", "ragauge", *arguments], Path.cwd())


def render_format(name, result):
    return OUTPUT_FORMATS[name].write([result])


def print_parts(parts, width=200):
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    for part in parts:
        console.print(part)
    return out.getvalue()


def read_rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_overview_mean_and_interval_cover_all_trials(experiment, run_overview):
    table = compute_reciprocal_ranks(experiment.runs["lucky"])
    mean = run_overview.entries["lucky"].means["mrr@20"]
    assert mean.value == pytest.approx(table.mean())
    assert mean.n == 24
    assert mean.low < mean.value < mean.high
    result = ragauge.compare(
        {
            "zero": {f"q{i}": 0.0 for i in range(24)},
            "lucky": [{f"q{i}": value for i, value in enumerate(row)} for row in table.tolist()],
        },
        baseline="zero",
    ).find("lucky")
    assert (mean.low, mean.high) == pytest.approx(result.ci)  # equals the difference from 0 over queries and seeds


def test_overview_variation_matches_values_from_rankings(experiment, run_overview):
    table = compute_reciprocal_ranks(experiment.runs["lucky"])
    variation = run_overview.entries["lucky"].variation["mrr@20"]
    assert (variation.trials, variation.n, variation.left_out) == (REPEATS, 24, 0)
    assert variation.unstable == sum(len(set(column)) > 1 for column in table.T.tolist())
    assert variation.squares.queries == pytest.approx(REPEATS * table.mean(axis=0).var(ddof=1))
    assert variation.squares.trials == pytest.approx(24 * table.mean(axis=1).var(ddof=1))
    assert list(run_overview.entries["lucky"].variation) == MEASURES


def test_trials_table_identical_trials_shows_same_rankings(run_overview):
    assert run_overview.entries["steady"].variation == {}
    rows = build_trials_table(run_overview, "mrr@20").texts()
    assert rows[0][:5] == ["steady", str(REPEATS), "0.5000", "0.5000", "same rankings"]


def test_trials_table_equal_values_shows_same_values(dataset, experiment):
    # The relevant document is always in the top 3.
    other_measures = overview(experiment, audited=False, measures=["hit_rate@20", "mrr@20"])
    entry = other_measures.entries["lucky"]
    assert entry.variation["hit_rate@20"].unstable == 0
    assert entry.means["hit_rate@20"] == Mean(1.0, 24, 1.0, 1.0)
    assert build_trials_table(other_measures, "hit_rate@20").texts()[1][4] == "same values"


def test_trials_table_terminal_output_has_min_max_and_legend(experiment, run_overview):
    table = compute_reciprocal_ranks(experiment.runs["lucky"])
    full_report = build_report(run_overview)
    content, _ = render_report(full_report, 200)
    line = next(line for line in print_parts(content).splitlines() if line.startswith("lucky") and "%" in line).split()
    assert line[1:4] == [str(REPEATS), f"{table.mean(axis=1).min():.4f}", f"{table.mean(axis=1).max():.4f}"]
    assert any(note.startswith("min, max: ") for note in describe_tables(run_overview))
    narrow, dropped = render_report(full_report, 70)
    assert {"min", "max"} <= set(dropped)
    assert max(map(len, print_parts(narrow, 70).splitlines())) <= 70


def test_trials_table_80_columns_returns_dropped_columns(run_overview):
    table = build_trials_table(run_overview, "mrr@20")
    header = [column.title for column in table.columns]
    trials, dropped = render_table(table, 80)
    titles = [str(column.header) for column in trials.columns]
    assert titles == [title for title in header if title not in dropped]
    assert {"min", "max"} <= set(dropped)
    assert max(map(len, print_parts([trials], 80).splitlines())) <= 80
    legend = describe_trials(run_overview)
    assert all(title in " ".join(legend) for title in header[2:])
    assert set(legend) <= set(describe_tables(run_overview))
    text = render_format("markdown", run_overview).replace("\\", "")
    assert all(line[1:] in text for line in legend)


def test_outputs_identical_trials_have_no_variation_section(dataset):
    result = overview(ragauge.run(dataset, {"steady": fixed_rank}, measures=["mrr@20"], repeats=2, k=20), audited=False)
    assert not has_varying_trials(result)
    assert describe_trials(result) == []
    assert "Variation between trials" not in render_format("markdown", result) + render_format("html", result)
    assert json.loads(render_format("json", result))["systems"]["steady"]["variation"] == {}


def test_markdown_and_html_have_trials_table_per_measure(run_overview):
    text, page = render_format("markdown", run_overview), render_format("html", run_overview)
    for measure in MEASURES:
        assert f"| {measure} over trials | trials |" in text
        assert f"{measure} over trials" in page
    assert '<section id="report-trials">' in page
    assert "BCa bootstrap over queries and trials" in text
    assert "BCa bootstrap over queries and trials" in page


def test_json_output_with_trials_is_valid_and_has_variation(run_overview):
    data = json.loads(render_format("json", run_overview))
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    actual, expected = (
        data["systems"]["lucky"]["variation"]["mrr@20"],
        run_overview.entries["lucky"].variation["mrr@20"],
    )
    assert actual["variances"] == pytest.approx(expected.variances._asdict())
    assert actual["error"] ** 2 == pytest.approx(sum(actual["of_mean"].values()))
    assert len(data["systems"]["lucky"]["scores"]) == REPEATS
    assert data["systems"]["steady"]["variation"] == {}
    shares = [row["seeds"]["share"] for row in data["comparisons"]["comparisons"] if row["measure"] == "mrr@20"]
    assert shares == [pytest.approx(expected.by_trials)]  # the baseline is the same in every trial


def test_csv_output_has_row_per_variance_component(run_overview):
    rows = {(row["system"], row["name"]): row for row in read_rows(render_format("csv", run_overview))}
    variation = run_overview.entries["lucky"].variation["mrr@20"]
    assert float(rows["lucky", "variance_rest(mrr@20)"]["value"]) == variation.variances.rest
    assert float(rows["lucky", "standard_error(mrr@20)"]["value"]) == variation.error
    assert float(rows["lucky", "trials(mrr@20)"]["value"]) == REPEATS
    assert rows["lucky", "unstable(mrr@20)"]["n"] == "24"
    assert ("steady", "trials(mrr@20)") not in rows


def test_overview_speed_covers_all_trials(run_overview):
    for entry in run_overview.entries.values():
        assert entry.speed.stages["total"].n == 24 * REPEATS
        assert len(entry.times["total"]) == 24 * REPEATS


def test_compare_seeds_share_matches_variation(experiment, run_overview):
    from ragauge.comparison.report import describe_comparisons

    result = ragauge.compare(str(experiment.folder), measures=["mrr@20"])
    share = run_overview.entries["lucky"].variation["mrr@20"].by_trials
    assert result.find("lucky").seeds.share == pytest.approx(share)
    assert f"more seeds would remove {share:.1%} of the variance of a difference in mrr@20" in describe_comparisons(
        result
    )
    assert result.to_polars()["seeds_share"].to_list() == [pytest.approx(share)]


def test_scores_of_differing_trials_are_the_mean_everywhere(experiment):
    expected = compute_reciprocal_ranks(experiment.runs["lucky"])
    mean, trial_means = pytest.approx(expected.mean()), pytest.approx(expected.mean(axis=1).tolist())
    assert not math.isclose(expected[0].mean(), expected.mean())
    folder, judgments = experiment.folder / "lucky", experiment.dataset.judgments
    for run in (experiment.runs["lucky"], folder):
        scores = ragauge.evaluate(judgments, run, ["mrr@20"])
        assert (scores.means["mrr@20"], scores.trial_means["mrr@20"]) == (mean, trial_means)
        assert scores.values["mrr@20"] == pytest.approx(expected.mean(axis=0))
    assert experiment.scores["lucky"].means["mrr@20"] == mean
    assert ragauge.evaluate_runs(judgments, experiment.runs, ["mrr@20"]).means["lucky"]["mrr@20"] == mean
    assert ragauge.gate(folder, "mrr@20 >= 0.001").checks[0].value == mean
    assert ragauge.compare(str(experiment.folder)).find("lucky", measure="mrr@20").means[1] == mean
    audit = ragauge.audit(str(folder), measures=["mrr@20"], checks=["conventions", "chance"])
    conventions, chance = (finding.table for finding in audit.findings)
    assert dict(zip(chance.header, chance.rows[0], strict=True))["run"] == mean
    assert any("default" in row[0] and row[1] == mean for row in conventions.rows)
    for command in (["evaluate"], ["evaluate", "--format", "trec_eval"], ["k-range", "-k", "20"], ["audit"]):
        options = ["-m", "mrr" if command[0] == "k-range" else "mrr@20"]
        result = run_ragauge(*command, str(folder), *options)
        low, high = (f"{value:.4f}" for value in (expected.mean(axis=1).min(), expected.mean(axis=1).max()))
        assert f"mean over {REPEATS} trials, whose rankings differ (mrr@20 {low} to {high}" in " ".join(
            result.stderr.split()
        )
        assert f"{expected.mean():.4f}" in result.stdout


def test_evaluate_csv_has_number_and_range_of_trials(experiment):
    runs = [str(experiment.folder / name) for name in ("lucky", "steady")]
    lines = csv.DictReader(io.StringIO(run_ragauge("evaluate", *runs, "-m", "mrr@20", "--csv").stdout))
    rows = {row["run"]: row for row in lines}
    expected = compute_reciprocal_ranks(experiment.runs["lucky"]).mean(axis=1)
    assert [rows[name]["trials"] for name in ("lucky", "steady")] == [str(REPEATS), "1"]
    assert [float(rows["lucky"][name]) for name in ("lowest", "highest")] == pytest.approx(
        [expected.min(), expected.max()]
    )
    assert "trials" not in run_ragauge("evaluate", runs[1], "-m", "mrr@20", "--csv").stdout


def test_audit_check_of_one_ranking_names_first_trial(experiment):
    audit = ragauge.audit(str(experiment.folder / "lucky"), checks=["unjudged"])
    assert audit.findings[0].message.endswith(f"(first of {REPEATS} trials)")
    audit = ragauge.audit(str(experiment.folder / "steady"), checks=["unjudged"])
    assert "trials" not in audit.findings[0].message


def make_scores(columns):
    values_by_measure = {m: np.array(values) for m, values in columns.items()}
    queries = [f"q{i}" for i in range(len(next(iter(values_by_measure.values()))))]
    means = {m: float(np.nanmean(values)) for m, values in values_by_measure.items()}
    unscored = {
        m: {q: "none" for q, v in zip(queries, vs, strict=True) if math.isnan(v)} for m, vs in values_by_measure.items()
    }
    return Scores(
        "mine", "default", queries, *(MeasureDict(item, str) for item in (values_by_measure, means, unscored))
    )


def test_summarise_systems_unscored_trial_is_in_mean_not_in_variation():
    first, second = [0.2, 0.4, 0.9, 0.5], [0.3, 0.4, math.nan, 0.6]
    result = summarise_systems(
        {"mine": [make_scores({"mrr": first}), make_scores({"mrr": second})]}, ["mrr"], {}, 0.95
    )["mine"]
    assert result.means["mrr"].value == pytest.approx((0.5 + 1.3 / 3) / 2)
    assert result.means["mrr"].n == 4
    assert (result.variation["mrr"].n, result.variation["mrr"].left_out) == (3, 1)
    complete = summarise_systems(
        {"mine": [make_scores({"mrr": [*trial[:2], trial[3]]}) for trial in (first, second)]}, ["mrr"], {}, 0.95
    )
    complete_mean, mean = complete["mine"].means["mrr"], result.means["mrr"]
    # The interval is as wide as that of the three queries with values in both trials.
    assert mean.high - mean.value == pytest.approx(complete_mean.high - complete_mean.value)
    notes = describe_trials(Overview("t", {"mine": result}, ["mrr"]))
    assert notes[-1] == "up to 1 queries without a value in some trial are left out"


def test_trials_table_means_only_is_empty():
    result = Overview("paper", {"a": SystemSummary("a", {"mrr": Mean(0.5, 0)})}, ["mrr"])
    assert not has_varying_trials(result)
    assert build_trials_table(result, "mrr").rows == []
