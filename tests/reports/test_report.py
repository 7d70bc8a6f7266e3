"""Overviews of runs, folders and tables, and the function and command `report`."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import ragauge
from ragauge.cli import main
from ragauge.core.errors import BadInput, Incomparable, MissingExtra, UnknownName
from ragauge.output.formats import format_for_path
from ragauge.reports.latency_tables import build_latency_table
from ragauge.reports.overviews import OUTPUT_FORMATS, overview, report
from ragauge.stats.intervals import mean_intervals


def make_search(share):
    rng = random.Random(share)

    def search(query, k):
        relevant = f"d{int(query.split()[-1]):05d}"
        others = [f"d{rng.randrange(100, 500):05d}" for _ in range(k)]
        docs = [relevant, *others] if rng.random() < share else others
        return list(dict.fromkeys(docs))[:k]

    return search


search_half = make_search(0.5)


def fail_on_query_7(query, k):
    if query.endswith(" 7"):
        raise RuntimeError("no answer")
    return search_half(query, k)


@pytest.fixture(scope="module")
def dataset():
    documents = [ragauge.Document(f"d{i:05d}", f"the text of number {i}", f"number {i}") for i in range(500)]
    queries = {f"q{i}": f"find number {i}" for i in range(60)}
    grades = {f"q{i}": {f"d{i:05d}": 1} for i in range(60)}
    tags = {f"q{i}": {"half": "even" if i % 2 == 0 else "odd"} for i in range(60)}
    return ragauge.Dataset("numbers", documents, queries, ragauge.Judgments(grades), tags=tags)


@pytest.fixture(scope="module")
def run_folder(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "numbers"
    systems = {"some": make_search(0.4), "more": make_search(0.8), "failing": fail_on_query_7}
    ragauge.run(dataset, systems, baseline="some", out=path, k=5)
    return path


@pytest.fixture(scope="module")
def run_overview(run_folder):
    return overview(str(run_folder), audited=False)


def test_overview_means_match_evaluate(run_overview, run_folder):
    scores = ragauge.evaluate(
        str(run_folder), {name: str(run_folder / name) for name in run_overview.entries}, run_overview.measures
    )
    for name, entry in run_overview.entries.items():
        for measure in run_overview.measures:
            assert entry.means[measure].value == scores[name].means[measure]
            assert entry.means[measure].n == 60


def test_overview_keeps_system_order_of_run(run_overview):
    assert run_overview.systems == ["some", "more", "failing"]


def test_overview_baseline_defaults_to_that_of_folder(run_overview, run_folder):
    assert run_overview.baseline == "some"
    assert overview(str(run_folder), baseline="more", audited=False).baseline == "more"


def test_mean_intervals_match_scipy_bca_bootstrap():
    rng = np.random.default_rng(5)
    values = rng.beta(0.5, 1.5, 80)
    low, high = mean_intervals(values[:, None])[:, 0]
    result = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=rng).confidence_interval
    assert low == pytest.approx(result.low, abs=0.004)
    assert high == pytest.approx(result.high, abs=0.004)


def test_mean_intervals_ignore_nan_and_need_two_values():
    columns = np.array([[0.2, math.nan], [0.8, 1.0], [math.nan, math.nan]])
    (low, lone_low), (high, _) = mean_intervals(columns)
    assert 0.2 <= low <= 0.5 <= high <= 0.8
    assert math.isnan(lone_low)


def test_overview_curves_match_evaluate_at_every_k(run_overview, run_folder):
    curve = next(curve for curve in run_overview.curves if curve.measure == "recall")
    assert list(curve.ks) == [1, 2, 3, 5]
    for name in run_overview.entries:
        means = ragauge.evaluate(str(run_folder), str(run_folder / name), [f"recall@{k}" for k in curve.ks]).means
        assert list(curve.values[name]) == pytest.approx(list(means.values()))
        assert curve.enough[name].k in curve.ks


def test_overview_strata_match_means_of_their_queries(run_overview):
    parts = {part.value: part for part in run_overview.strata["half"]}
    scores = run_overview.entries["more"].scores[0]
    odd_scores = [v for q, v in zip(scores.queries, scores.values["ndcg@5"], strict=True) if int(q[1:]) % 2]
    assert parts["odd"].n == 30
    assert parts["odd"].means["more"].value == pytest.approx(np.mean(odd_scores))
    assert parts["odd"].means["more"].low <= np.mean(odd_scores) <= parts["odd"].means["more"].high


def test_overview_stratum_comparisons_match_compare(run_overview, run_folder):
    rows_by_stratum = {row.stratum: row for row in run_overview.compared.strata}
    assert {(row.system, row.baseline, row.measure) for row in rows_by_stratum.values()} == {("more", "some", "ndcg@5")}
    expected = ragauge.compare(
        [str(run_folder / "some"), str(run_folder / "more")], baseline="some", measures="ndcg@5", by="half"
    )
    for row in expected.strata:
        assert (rows_by_stratum[row.stratum].difference, rows_by_stratum[row.stratum].ci) == (row.difference, row.ci)
        assert rows_by_stratum[row.stratum].p_corrected == row.p_corrected


def test_overview_by_unknown_tag_raises_error_with_known_tags(run_folder):
    with pytest.raises(UnknownName, match="third") as error:
        overview(str(run_folder), by="third", audited=False)
    assert "half" in str(error.value)


def test_overview_differences_match_compare(run_overview, run_folder):
    result = ragauge.compare(str(run_folder), baseline="some")
    for row in result.rows:
        actual = run_overview.difference(row.system, row.measure)
        assert (actual.difference, actual.ci, actual.p_corrected) == (row.difference, row.ci, row.p_corrected)
        assert actual.stars == row.stars


def test_overview_rival_compares_best_with_second_best(run_overview):
    best, second = run_overview.ranked()[:2]
    assert (run_overview.rival.system, run_overview.rival.baseline) == (best, second)
    difference = (
        run_overview.entries[best].means[run_overview.first].value
        - run_overview.entries[second].means[run_overview.first].value
    )
    assert run_overview.rival.difference == pytest.approx(difference)


def test_overview_keeps_failed_queries_and_errors(run_overview):
    assert set(run_overview.entries["failing"].failed) == {"q7"}
    assert "no answer" in run_overview.entries["failing"].failed["q7"]
    assert run_overview.entries["failing"].speed.failed == 1


def test_overview_times_match_run_timings(run_overview):
    run = run_overview.entries["more"].run
    assert sorted(run_overview.entries["more"].times["total"]) == pytest.approx(
        sorted(ns / 1e6 for ns in run.timings["total_ns"].to_list())
    )


def test_overview_reads_failures_from_experiment_file(dataset, tmp_path):
    systems = {"some": make_search(0.4), "bad": "http(url=http://127.0.0.1:9/x)"}
    ragauge.run(dataset, systems, out=tmp_path / "x", k=3, allow_failures=True)
    # Whether a system fails when it is built or when it is queried depends on the system. A description that cannot be
    # built fails before the run. The failure is therefore written into the file.
    content = json.loads((tmp_path / "x" / "experiment.json").read_text())
    assert content["systems"] == ["some", "bad"]
    with_failure = {**content, "failures": {"worse": "it has no index"}}
    (tmp_path / "x" / "experiment.json").write_text(json.dumps(with_failure))
    assert overview(str(tmp_path / "x"), audited=False).failures == {"worse": "it has no index"}


def test_overview_missing_experiment_file_has_no_baseline(run_folder, tmp_path):
    import shutil

    shutil.copytree(run_folder, tmp_path / "copy")
    (tmp_path / "copy" / "experiment.json").unlink()
    result = overview(str(tmp_path / "copy"), audited=False)
    assert result.baseline is None
    assert len(result.compared.rows) == 3 * len(result.measures)


def test_overview_experiment_in_memory_matches_its_scores(dataset):
    experiment = ragauge.run(dataset, {"some": make_search(0.4), "more": make_search(0.8)}, baseline="some", k=5)
    result = overview(experiment, audited=False)
    assert result.baseline == "some"
    assert result.entries["more"].means["ndcg@5"].value == experiment.scores["more"].means["ndcg@5"]
    assert result.documents["d00003"].title == "number 3"
    other = overview(experiment, measures=["recall@3"], audited=False)
    assert other.measures == ["recall@3"]
    scores = ragauge.evaluate(dataset.judgments, experiment.runs["more"], ["recall@3"])
    assert other.entries["more"].means["recall@3"].value == scores.means["recall@3"]


def test_overview_one_system_has_no_comparison(run_folder):
    result = overview(str(run_folder / "more"), audited=False)
    assert result.compared is None
    assert result.rival is None


def test_overview_reads_external_score_table(tmp_path):
    rows = [
        f"{m},{s},q{q},{0.1 * (q % 5) + (0.2 if m == 'b' else 0) + 0.01 * s}"
        for m in "ab"
        for s in (1, 2)
        for q in range(20)
    ]
    (tmp_path / "scores.csv").write_text("method,seed,query_id,mine\n" + "\n".join(rows) + "\n")
    result = overview(str(tmp_path / "scores.csv"))
    assert result.entries["b"].means["mine"].value == pytest.approx(0.415)
    assert len(result.entries["b"].scores) == 2
    assert result.audit is None


def test_overview_audited_has_audit_result(run_folder, dataset):
    result = overview(str(run_folder), audited=True, dataset=None)
    assert result.audit is not None
    assert {finding.subject for finding in result.audit.findings} | set(result.audit.skipped)


def test_overview_different_judgments_raises_incomparable(run_folder, dataset, tmp_path):
    other = ragauge.Dataset(
        "others", dataset.documents, dataset.queries, ragauge.Judgments({q: {"d00001": 1} for q in dataset.queries})
    )
    ragauge.run(other, {"some": make_search(0.4)}, out=tmp_path / "other", k=5)
    with pytest.raises(Incomparable):
        overview([str(run_folder), str(tmp_path / "other")])


# --- common queries, trials and judgments ---


def write_run(path, rankings):
    """Write a run file from `{query: [documents]}`."""
    rows = [f"{q} Q0 {d} {i + 1} {10 - i} x" for q, docs in rankings.items() for i, d in enumerate(docs)]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def qrels(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("".join(f"q{i} 0 right{i} 1\n" for i in range(20)))
    return str(path)


def make_rankings(ranks):
    """Build rankings with the relevant document at these ranks; rank 0 omits it."""
    return {f"q{i}": [f"right{i}" if j == rank else f"d{j}" for j in range(1, 6)] for i, rank in enumerate(ranks)}


def test_overview_common_queries_ranks_by_overlap(qrels, tmp_path):
    broad = write_run(tmp_path / "broad.run", make_rankings([2] * 20))
    narrow = write_run(
        tmp_path / "narrow.run", {q: docs for q, docs in make_rankings([1] * 20).items() if int(q[1:]) < 8}
    )
    with pytest.raises(Incomparable, match="narrow lacks 12 of 20"):
        overview([qrels, broad, narrow], audited=False)
    result = overview([qrels, broad, narrow], common_queries=True, audited=False)
    assert result.ranked()[0] == "narrow"
    assert result.entries["broad"].means["mrr"] == (0.5, 8, 0.5, 0.5)
    assert result.rival.means == (pytest.approx(1 / math.log2(3)), 1.0)
    assert result.rival.system == "narrow"
    assert not any("count 0" in note for note in result.notes)
    counted = overview([qrels, broad, narrow], count_missing=True, audited=False)
    assert counted.ranked()[0] == "broad"
    assert counted.entries["narrow"].means["mrr"].value == pytest.approx(0.4)


def test_overview_several_trials_ranks_by_mean(qrels, tmp_path):
    ranks_by_name = {"once": [1] * 20, "never": [0] * 20, "second": [2] * 20, "third": [3] * 20}
    files = {name: write_run(tmp_path / f"{name}.run", make_rankings(ranks)) for name, ranks in ranks_by_name.items()}
    inputs = [qrels, f"wavers={files['once']}", f"wavers={files['never']}", files["second"], files["third"]]
    result = overview(inputs, measures=["mrr"], audited=False)
    assert result.ranked() == ["wavers", "second", "third"] or result.ranked() == ["second", "wavers", "third"]
    assert {result.rival.system, result.rival.baseline} == {"wavers", "second"}
    assert result.entries["wavers"].means["mrr"].value == pytest.approx(0.5)
    curve = next(curve for curve in result.curves if curve.measure == "hit_rate")
    assert curve.values["wavers"][-1] == pytest.approx(0.5)
    assert result.entries["wavers"].values("mrr").tolist() == pytest.approx([0.5] * 20)


@pytest.mark.slow
def test_overview_partly_failing_system_in_memory_matches_folder(dataset, tmp_path):
    calls = []

    def fails_later(query, k):
        calls.append(query)
        if len(calls) > 65:  # 60 queries and 5 warm-up queries succeed
            raise RuntimeError("tired")
        return [f"d{int(query.split()[-1]):05d}"]

    experiment = ragauge.run(
        dataset, {"some": make_search(0.4), "tires": fails_later}, baseline="some", repeats=3, out=tmp_path / "x", k=5
    )
    in_memory, from_folder = overview(experiment, audited=False), overview(str(tmp_path / "x"), audited=False)
    assert in_memory.entries["tires"].means["mrr@5"].value == pytest.approx(1 / 3, abs=0.03)
    for name in in_memory.entries:
        assert in_memory.entries[name].means["mrr@5"] == from_folder.entries[name].means["mrr@5"]
    assert "tires: 120 queries failed in a later trial; their latencies are excluded" in from_folder.notes
    curve = next(curve for curve in from_folder.curves if curve.measure == "hit_rate")
    assert curve.values["tires"][-1] == pytest.approx(from_folder.entries["tires"].means["hit_rate@5"].value)


def test_overview_curve_beyond_run_depth_is_nan(qrels, tmp_path):
    deep = write_run(
        tmp_path / "deep.run", {q: [*docs, *(f"e{j}" for j in range(5))] for q, docs in make_rankings([2] * 20).items()}
    )
    flat = write_run(tmp_path / "flat.run", {q: docs[:3] for q, docs in make_rankings([1] * 20).items()})
    result = overview([qrels, deep, flat], measures=["mrr"], audited=False)
    curve = next(curve for curve in result.curves if curve.measure == "recall")
    assert list(curve.ks) == [1, 2, 3, 5, 10]
    assert [math.isnan(value) for value in curve.values["flat"]] == [False, False, False, True, True]
    assert not any(math.isnan(value) for value in curve.values["deep"])
    assert curve.enough["flat"].k == 3  # 20 queries without a loss do not prove that a smaller k is enough


@pytest.mark.parametrize(("rel", "label"), [(None, "recall"), (2, "recall(rel=2)")])
def test_report_rel_option_is_in_curve_label(ragauge_cli, tmp_path, rel, label):
    (tmp_path / "q.txt").write_text("q1 0 d1 2\nq1 0 d2 1\nq2 0 d1 1\nq2 0 d3 2\n")
    run = write_run(tmp_path / "a.run", {"q1": ["d2", "d1"], "q2": ["d1", "d3"]})
    options = [] if rel is None else ["-l", rel]
    assert ragauge_cli("report", tmp_path / "q.txt", run, *options, "-o", tmp_path / "page.md")[0] == 0
    assert f"| {label} at k | a |" in (tmp_path / "page.md").read_text()


def test_overview_missing_queries_adds_note(qrels, tmp_path):
    narrow = write_run(
        tmp_path / "narrow.run", {q: docs for q, docs in make_rankings([1] * 20).items() if int(q[1:]) < 8}
    )
    assert any("12 of 20" in note for note in overview([qrels, narrow], audited=False).notes)


def test_overview_judgments_other_than_in_manifest_adds_note(run_folder, tmp_path):
    import shutil

    import polars as pl

    shutil.copytree(run_folder, tmp_path / "copy")
    path = tmp_path / "other.parquet"
    pl.read_parquet(run_folder / "judgments.parquet").head(59).write_parquet(path)
    runs = [str(tmp_path / "copy" / name) for name in ("some", "more")]
    before, after = overview(str(run_folder), audited=False), overview([str(path), *runs], audited=False)
    assert before.judgments_hash == before.entries["some"].manifest["judgments_hash"] != after.judgments_hash
    assert not any("the judgments differ" in note for note in before.notes)
    assert any("the judgments differ" in note for note in after.notes)


def test_overview_judgments_in_other_row_order_adds_no_note(run_folder, tmp_path):
    import polars as pl

    path = tmp_path / "shuffled.parquet"
    pl.read_parquet(run_folder / "judgments.parquet").sample(fraction=1, shuffle=True, seed=1).write_parquet(path)
    runs = [str(run_folder / name) for name in ("some", "more")]
    assert not any("the judgments differ" in note for note in overview([str(path), *runs], audited=False).notes)


def test_overview_audit_without_corpus_skips_orphans(qrels, tmp_path):
    result = overview([qrels, write_run(tmp_path / "a.run", make_rankings([1] * 20))])
    assert "orphans" in result.audit.skipped
    assert not any("orphan" in finding.check for finding in result.audit.findings)


def test_report_output_equal_to_input_or_repeated_raises_error(qrels, tmp_path):
    path = write_run(tmp_path / "a.run", make_rankings([1] * 20))
    before = Path(path).read_text()
    with pytest.raises(BadInput, match="is an input"):
        report([qrels, f"x={path}"], path, format="csv", audited=False)
    with pytest.raises(BadInput, match="written more than once"):
        report([qrels, path], [tmp_path / "t.csv", f"{tmp_path}/./t.csv"], audited=False)
    assert Path(path).read_text() == before


def test_overview_damaged_experiment_file_raises_error(run_folder, tmp_path):
    import shutil

    shutil.copytree(run_folder, tmp_path / "copy")
    (tmp_path / "copy" / "experiment.json").write_text('{"systems": 3')
    with pytest.raises(BadInput, match="is corrupt or incomplete"):
        overview(str(tmp_path / "copy"), audited=False)


def test_overview_interrupted_run_raises_error_with_resume_hint(run_folder, tmp_path):
    import shutil

    shutil.copytree(run_folder, tmp_path / "copy")
    for system in ("some", "more", "failing"):
        (tmp_path / "copy" / system / "manifest.json").unlink()
        (tmp_path / "copy" / system / "journal.jsonl").write_text("{}")
    with pytest.raises(BadInput, match="run the same command again to resume"):
        overview(str(tmp_path / "copy"))


# --- output files ---


@pytest.mark.parametrize("form", [name for name in OUTPUT_FORMATS if name not in ("rig", "rig-diff")])
@pytest.mark.slow
def test_report_writes_every_format(form, run_folder, tmp_path):
    target = tmp_path / f"out{OUTPUT_FORMATS[form].ending}"
    report(str(run_folder), target, format=form, audited=False)
    assert "more" in target.read_text()


def test_format_for_path_uses_name_before_ending():
    endings = (".html", ".htm", ".JSON", ".csv", ".md", ".tex")
    assert [format_for_path(f"x{end}", None, OUTPUT_FORMATS) for end in endings] == [
        "html", "html", "json", "csv", "markdown", "latex",
    ]  # fmt: skip
    assert format_for_path("x.csv", "queries", OUTPUT_FORMATS) == "queries"
    assert (
        format_for_path("x.txt", "queries", OUTPUT_FORMATS)
        == format_for_path("", "queries", OUTPUT_FORMATS)
        == "queries"
    )
    with pytest.raises(BadInput, match=r"x\.tex: the ending \.tex is not that of the format markdown"):
        format_for_path("x.tex", "markdown", OUTPUT_FORMATS)
    with pytest.raises(BadInput, match="expected a file that ends in"):
        format_for_path("x.docx", None, OUTPUT_FORMATS)
    with pytest.raises(UnknownName, match="wode"):
        format_for_path("x.csv", "wode", OUTPUT_FORMATS)


@pytest.mark.slow
def test_report_charts_writes_svg_and_png(run_folder, tmp_path):
    report(str(run_folder), charts=tmp_path / "charts", audited=False)
    svgs, pngs = (sorted(path.stem for path in (tmp_path / "charts").glob(f"*.{end}")) for end in ("svg", "png"))
    assert svgs == pngs
    assert {"quality_latency", "measures", "curves", "waterfall", "boxes", "wins", "strata", "latency"} <= set(svgs)
    assert (tmp_path / "charts" / "wins.png").read_bytes().startswith(b"\x89PNG")


def test_latency_table_has_throughput_column(run_overview):
    header = [column.title for column in build_latency_table(run_overview).columns]
    assert "throughput" in header
    assert "QPS" not in header


def test_report_rejected_format_writes_no_file(run_folder, tmp_path):
    with pytest.raises(UnknownName):
        report(str(run_folder), tmp_path / "one.json", format="latx", audited=False)
    assert not list(tmp_path.iterdir())


# --- the command line ---


@pytest.fixture
def ragauge_cli(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["ragauge", *map(str, arguments)])
        try:
            main()
        except SystemExit as done:
            code = done.code or 0
        else:
            code = 0
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


def test_report_command_without_output_prints_summary_and_tables(ragauge_cli, run_folder):
    code, out, _ = ragauge_cli("report", run_folder)
    assert code == 0
    assert out.splitlines()[0].startswith("numbers: 3 systems, 60 queries")
    assert "more beats some on ndcg@5 by " in " ".join(out.split())
    assert "p95" in out


def test_report_command_writes_several_files(ragauge_cli, run_folder, tmp_path):
    code, out, err = ragauge_cli("report", run_folder, "--no-audit", "-o", "a/r.html", "-o", "r.json", "-o", "r.tex")
    assert (code, out) == (0, "")
    assert "wrote r.json" in err
    assert (tmp_path / "a" / "r.html").read_text().startswith("<!doctype html>")
    assert "\\toprule" in (tmp_path / "r.tex").read_text()


def test_report_command_format_without_file_prints_to_stdout(ragauge_cli, run_folder):
    code, out, _ = ragauge_cli("report", run_folder, "--format", "wide", "--no-audit")
    assert code == 0
    assert out.splitlines()[0].startswith("system,")
    assert len(out.splitlines()) == 4


def test_report_command_json_matches_printed_schema(ragauge_cli, run_folder):
    import jsonschema

    _, schema, _ = ragauge_cli("report", "--schema")
    _, out, _ = ragauge_cli("report", run_folder, "--format", "json")
    jsonschema.validate(json.loads(out), json.loads(schema))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no input given"),
        (["nowhere"], "nowhere"),
        (["{folder}", "-b", "nobody"], "unknown system `nobody`"),
        (["{folder}", "-m", "ndgc@10"], "did you mean"),
        (["{folder}", "-o", "x.docx"], ".docx"),
        (["{folder}", "--format", "wode"], "wode"),
        (["{folder}", "--format", "csv", "-o", "a.csv", "-o", "b.csv"], "one file"),
        (["{folder}", "--by", "third"], "third"),
        (["{folder}", "--confidence", "2"], "confidence"),
    ],
)
def test_report_command_invalid_arguments_print_error_with_hint(ragauge_cli, run_folder, arguments, message):
    code, out, err = ragauge_cli("report", *(argument.format(folder=run_folder) for argument in arguments))
    assert code == 2
    assert out == ""
    assert message in err
    assert "hint:" in err or "must be" in err  # an error that states a bound needs no hint
    assert "Traceback" not in err


def test_report_html_without_altair_raises_missing_extra(run_folder, monkeypatch, tmp_path):
    import sys

    from ragauge.output import page_assets

    page_assets._jinja_environment.cache_clear()
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtra, match="report"):
        report(str(run_folder), tmp_path / "r.html", audited=False)
    assert not Path(tmp_path / "r.html").exists()


def test_report_object_without_report_raises_error():
    with pytest.raises(BadInput, match="object is not a result that has a report"):
        report(object(), "x.html")
