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
from ragauge.reports import OUTPUT_FORMATS, overview, report
from ragauge.reports.latency_tables import build_latency_table
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.smallest_k import smallest_k, smallest_k_each


def noisy(share):
    rng = random.Random(share)

    def search(query, k):
        right = f"d{int(query.split()[-1]):05d}"
        others = [f"d{rng.randrange(100, 500):05d}" for _ in range(k)]
        found = [right, *others] if rng.random() < share else others
        return list(dict.fromkeys(found))[:k]

    return search


half = noisy(0.5)


def failing(query, k):
    if query.endswith(" 7"):
        raise RuntimeError("no answer")
    return half(query, k)


@pytest.fixture(scope="module")
def dataset():
    documents = [ragauge.Document(f"d{i:05d}", f"the text of number {i}", f"number {i}") for i in range(500)]
    queries = {f"q{i}": f"find number {i}" for i in range(60)}
    grades = {f"q{i}": {f"d{i:05d}": 1} for i in range(60)}
    tags = {f"q{i}": {"half": "even" if i % 2 == 0 else "odd"} for i in range(60)}
    return ragauge.Dataset("numbers", documents, queries, ragauge.Judgments(grades), tags=tags)


@pytest.fixture(scope="module")
def folder(dataset, tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "numbers"
    systems = {"some": noisy(0.4), "more": noisy(0.8), "failing": failing}
    ragauge.run(dataset, systems, baseline="some", out=place, k=5)
    return place


@pytest.fixture(scope="module")
def seen(folder):
    return overview(str(folder), audited=False)


def test_overview_means_match_evaluate(seen, folder):
    scores = ragauge.evaluate(str(folder), {name: str(folder / name) for name in seen.entries}, seen.measures)
    for name, entry in seen.entries.items():
        for measure in seen.measures:
            assert entry.means[measure].value == scores[name].means[measure]
            assert entry.means[measure].n == 60


def test_overview_keeps_system_order_of_run(seen):
    assert seen.systems == ["some", "more", "failing"]


def test_overview_baseline_defaults_to_that_of_folder(seen, folder):
    assert seen.baseline == "some"
    assert overview(str(folder), baseline="more", audited=False).baseline == "more"


def test_mean_intervals_match_scipy_bca_bootstrap():
    rng = np.random.default_rng(5)
    values = rng.beta(0.5, 1.5, 80)
    low, high = mean_intervals(values[:, None])[:, 0]
    found = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=rng).confidence_interval
    assert low == pytest.approx(found.low, abs=0.004)
    assert high == pytest.approx(found.high, abs=0.004)


def test_mean_intervals_ignore_nan_and_need_two_values():
    columns = np.array([[0.2, math.nan], [0.8, 1.0], [math.nan, math.nan]])
    (low, lone_low), (high, _) = mean_intervals(columns)
    assert 0.2 <= low <= 0.5 <= high <= 0.8
    assert math.isnan(lone_low)


def test_smallest_k_each_matches_smallest_k_per_system():
    rng = np.random.default_rng(2)
    several = {
        name: {
            k: np.maximum.accumulate(rng.random((4, 50)) < 0.3, axis=0)[i].astype(float)
            for i, k in enumerate((1, 2, 5, 9))
        }
        for name in "ab"
    }
    several["c"] = {k: np.where(np.arange(50) < 3, math.nan, column) for k, column in several["a"].items()}
    together = smallest_k_each(several, "recall")
    for name, values in several.items():
        assert together[name].k == smallest_k(values, "recall").k
        assert list(together[name].table) == list(smallest_k(values, "recall").table)


def test_overview_curves_match_evaluate_at_every_k(seen, folder):
    curve = next(one for one in seen.curves if one.measure == "recall")
    assert list(curve.ks) == [1, 2, 3, 5]
    for name in seen.entries:
        means = ragauge.evaluate(str(folder), str(folder / name), [f"recall@{k}" for k in curve.ks]).means
        assert list(curve.values[name]) == pytest.approx(list(means.values()))
        assert curve.enough[name].k in curve.ks


def test_overview_strata_match_means_of_their_queries(seen):
    parts = {part.value: part for part in seen.strata["half"]}
    scores = seen.entries["more"].scores[0]
    odd = [v for q, v in zip(scores.queries, scores.values["ndcg@5"], strict=True) if int(q[1:]) % 2]
    assert parts["odd"].n == 30
    assert parts["odd"].means["more"].value == pytest.approx(np.mean(odd))
    assert parts["odd"].means["more"].low <= np.mean(odd) <= parts["odd"].means["more"].high


def test_overview_stratum_comparisons_match_compare(seen, folder):
    mine = {row.stratum: row for row in seen.compared.strata}
    assert {(row.system, row.baseline, row.measure) for row in mine.values()} == {("more", "some", "ndcg@5")}
    wanted = ragauge.compare(
        [str(folder / "some"), str(folder / "more")], baseline="some", measures="ndcg@5", by="half"
    )
    for row in wanted.strata:
        assert (mine[row.stratum].difference, mine[row.stratum].ci) == (row.difference, row.ci)
        assert mine[row.stratum].p_corrected == row.p_corrected


def test_overview_by_unknown_tag_raises_error_with_known_tags(folder):
    with pytest.raises(UnknownName, match="third") as error:
        overview(str(folder), by="third", audited=False)
    assert "half" in str(error.value)


def test_overview_differences_match_compare(seen, folder):
    found = ragauge.compare(str(folder), baseline="some")
    for row in found.rows:
        mine = seen.difference(row.system, row.measure)
        assert (mine.difference, mine.ci, mine.p_corrected) == (row.difference, row.ci, row.p_corrected)
        assert mine.stars == row.stars


def test_overview_rival_compares_best_with_second_best(seen):
    best, second = seen.ranked()[:2]
    assert (seen.rival.system, seen.rival.baseline) == (best, second)
    difference = seen.entries[best].means[seen.first].value - seen.entries[second].means[seen.first].value
    assert seen.rival.difference == pytest.approx(difference)


def test_overview_keeps_failed_queries_and_errors(seen):
    assert set(seen.entries["failing"].failed) == {"q7"}
    assert "no answer" in seen.entries["failing"].failed["q7"]
    assert seen.entries["failing"].speed.failed == 1


def test_overview_times_match_run_timings(seen):
    run = seen.entries["more"].run
    assert sorted(seen.entries["more"].times["total"]) == pytest.approx(
        sorted(ns / 1e6 for ns in run.timings["total_ns"].to_list())
    )


def test_overview_reads_failures_from_experiment_file(dataset, tmp_path):
    systems = {"some": noisy(0.4), "bad": "http(url=http://127.0.0.1:9/x)"}
    ragauge.run(dataset, systems, out=tmp_path / "x", k=3, allow_failures=True)
    # Whether a system fails when it is built or when it is queried depends on the system. A description that cannot be
    # built fails before the run. The failure is therefore written into the file.
    written = json.loads((tmp_path / "x" / "experiment.json").read_text())
    assert written["systems"] == ["some", "bad"]
    about = {**written, "failures": {"worse": "it has no index"}}
    (tmp_path / "x" / "experiment.json").write_text(json.dumps(about))
    assert overview(str(tmp_path / "x"), audited=False).failures == {"worse": "it has no index"}


def test_overview_missing_experiment_file_has_no_baseline(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "experiment.json").unlink()
    found = overview(str(tmp_path / "copy"), audited=False)
    assert found.baseline is None
    assert len(found.compared.rows) == 3 * len(found.measures)


def test_overview_experiment_in_memory_matches_its_scores(dataset):
    made = ragauge.run(dataset, {"some": noisy(0.4), "more": noisy(0.8)}, baseline="some", k=5)
    found = overview(made, audited=False)
    assert found.baseline == "some"
    assert found.entries["more"].means["ndcg@5"].value == made.scores["more"].means["ndcg@5"]
    assert found.documents["d00003"].title == "number 3"
    other = overview(made, measures=["recall@3"], audited=False)
    assert other.measures == ["recall@3"]
    again = ragauge.evaluate(dataset.judgments, made.runs["more"], ["recall@3"])
    assert other.entries["more"].means["recall@3"].value == again.means["recall@3"]


def test_overview_one_system_has_no_comparison(folder):
    found = overview(str(folder / "more"), audited=False)
    assert found.compared is None
    assert found.rival is None


def test_overview_reads_external_score_table(tmp_path):
    rows = [
        f"{m},{s},q{q},{0.1 * (q % 5) + (0.2 if m == 'b' else 0) + 0.01 * s}"
        for m in "ab"
        for s in (1, 2)
        for q in range(20)
    ]
    (tmp_path / "scores.csv").write_text("method,seed,query_id,mine\n" + "\n".join(rows) + "\n")
    found = overview(str(tmp_path / "scores.csv"))
    assert found.entries["b"].means["mine"].value == pytest.approx(0.415)
    assert len(found.entries["b"].scores) == 2
    assert found.audit is None


def test_overview_audited_has_audit_result(folder, dataset):
    found = overview(str(folder), audited=True, dataset=None)
    assert found.audit is not None
    assert {one.subject for one in found.audit.findings} | set(found.audit.skipped)


def test_overview_different_judgments_raises_incomparable(folder, dataset, tmp_path):
    other = ragauge.Dataset(
        "others", dataset.documents, dataset.queries, ragauge.Judgments({q: {"d00001": 1} for q in dataset.queries})
    )
    ragauge.run(other, {"some": noisy(0.4)}, out=tmp_path / "other", k=5)
    with pytest.raises(Incomparable):
        overview([str(folder), str(tmp_path / "other")])


# --- common queries, trials and judgments ---


def trec(path, rankings):
    """Write a run file from `{query: [documents]}`."""
    rows = [f"{q} Q0 {d} {i + 1} {10 - i} x" for q, docs in rankings.items() for i, d in enumerate(docs)]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def qrels(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("".join(f"q{i} 0 right{i} 1\n" for i in range(20)))
    return str(path)


def ranks(places):
    """Build rankings with the relevant document at these ranks; rank 0 omits it."""
    return {f"q{i}": [f"right{i}" if j == place else f"d{j}" for j in range(1, 6)] for i, place in enumerate(places)}


def test_overview_common_queries_ranks_by_overlap(qrels, tmp_path):
    broad = trec(tmp_path / "broad.run", ranks([2] * 20))
    narrow = trec(tmp_path / "narrow.run", {q: docs for q, docs in ranks([1] * 20).items() if int(q[1:]) < 8})
    with pytest.raises(Incomparable, match="narrow lacks 12 of 20"):
        overview([qrels, broad, narrow], audited=False)
    found = overview([qrels, broad, narrow], common_queries=True, audited=False)
    assert found.ranked()[0] == "narrow"
    assert found.entries["broad"].means["mrr"] == (0.5, 8, 0.5, 0.5)
    assert found.rival.means == (pytest.approx(1 / math.log2(3)), 1.0)
    assert found.rival.system == "narrow"
    assert not any("count 0" in note for note in found.notes)
    counted = overview([qrels, broad, narrow], count_missing=True, audited=False)
    assert counted.ranked()[0] == "broad"
    assert counted.entries["narrow"].means["mrr"].value == pytest.approx(0.4)


def test_overview_several_trials_ranks_by_mean(qrels, tmp_path):
    places = {"once": [1] * 20, "never": [0] * 20, "second": [2] * 20, "third": [3] * 20}
    files = {name: trec(tmp_path / f"{name}.run", ranks(mine)) for name, mine in places.items()}
    given = [qrels, f"wavers={files['once']}", f"wavers={files['never']}", files["second"], files["third"]]
    found = overview(given, measures=["mrr"], audited=False)
    assert found.ranked() == ["wavers", "second", "third"] or found.ranked() == ["second", "wavers", "third"]
    assert {found.rival.system, found.rival.baseline} == {"wavers", "second"}
    assert found.entries["wavers"].means["mrr"].value == pytest.approx(0.5)
    curve = next(one for one in found.curves if one.measure == "hit_rate")
    assert curve.values["wavers"][-1] == pytest.approx(0.5)
    assert found.entries["wavers"].values("mrr").tolist() == pytest.approx([0.5] * 20)


@pytest.mark.slow
def test_overview_partly_failing_system_in_memory_matches_folder(dataset, tmp_path):
    asked = []

    def tires(query, k):
        asked.append(query)
        if len(asked) > 65:  # 60 queries and 5 warm-up queries succeed
            raise RuntimeError("tired")
        return [f"d{int(query.split()[-1]):05d}"]

    made = ragauge.run(
        dataset, {"some": noisy(0.4), "tires": tires}, baseline="some", repeats=3, out=tmp_path / "x", k=5
    )
    here, there = overview(made, audited=False), overview(str(tmp_path / "x"), audited=False)
    assert here.entries["tires"].means["mrr@5"].value == pytest.approx(1 / 3, abs=0.03)
    for name in here.entries:
        assert here.entries[name].means["mrr@5"] == there.entries[name].means["mrr@5"]
    past = ragauge.history(tmp_path, measures="mrr@3")
    (point,) = past.series("tires", "mrr@3")
    assert point.mean.value == pytest.approx(here.entries["tires"].means["mrr@5"].value)
    assert "tires: 120 queries failed in a later trial; their latencies are excluded" in there.notes
    curve = next(one for one in there.curves if one.measure == "hit_rate")
    assert curve.values["tires"][-1] == pytest.approx(there.entries["tires"].means["hit_rate@5"].value)


def test_overview_curve_beyond_run_depth_is_nan(qrels, tmp_path):
    deep = trec(
        tmp_path / "deep.run", {q: [*docs, *(f"e{j}" for j in range(5))] for q, docs in ranks([2] * 20).items()}
    )
    flat = trec(tmp_path / "flat.run", {q: docs[:3] for q, docs in ranks([1] * 20).items()})
    found = overview([qrels, deep, flat], measures=["mrr"], audited=False)
    curve = next(one for one in found.curves if one.measure == "recall")
    assert list(curve.ks) == [1, 2, 3, 5, 10]
    assert [math.isnan(value) for value in curve.values["flat"]] == [False, False, False, True, True]
    assert not any(math.isnan(value) for value in curve.values["deep"])
    assert curve.enough["flat"].k == 3  # 20 queries without a loss do not prove that a smaller k is enough


@pytest.mark.parametrize(("rel", "label"), [(None, "recall"), (2, "recall(rel=2)")])
def test_report_rel_option_is_in_curve_label(ragauge_cli, tmp_path, rel, label):
    (tmp_path / "q.txt").write_text("q1 0 d1 2\nq1 0 d2 1\nq2 0 d1 1\nq2 0 d3 2\n")
    run = trec(tmp_path / "a.run", {"q1": ["d2", "d1"], "q2": ["d1", "d3"]})
    asked = [] if rel is None else ["-l", rel]
    assert ragauge_cli("report", tmp_path / "q.txt", run, *asked, "-o", tmp_path / "page.md")[0] == 0
    assert f"| {label} at k | a |" in (tmp_path / "page.md").read_text()


def test_overview_missing_queries_adds_note(qrels, tmp_path):
    narrow = trec(tmp_path / "narrow.run", {q: docs for q, docs in ranks([1] * 20).items() if int(q[1:]) < 8})
    assert any("12 of 20" in note for note in overview([qrels, narrow], audited=False).notes)


def test_overview_judgments_other_than_in_manifest_adds_note(folder, tmp_path):
    import shutil

    import polars as pl

    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "other.parquet"
    pl.read_parquet(folder / "judgments.parquet").head(59).write_parquet(path)
    runs = [str(tmp_path / "copy" / name) for name in ("some", "more")]
    before, after = overview(str(folder), audited=False), overview([str(path), *runs], audited=False)
    assert before.judgments_hash == before.entries["some"].manifest["judgments_hash"] != after.judgments_hash
    assert not any("the judgments differ" in note for note in before.notes)
    assert any("the judgments differ" in note for note in after.notes)


def test_overview_judgments_in_other_row_order_adds_no_note(folder, tmp_path):
    import polars as pl

    path = tmp_path / "shuffled.parquet"
    pl.read_parquet(folder / "judgments.parquet").sample(fraction=1, shuffle=True, seed=1).write_parquet(path)
    runs = [str(folder / name) for name in ("some", "more")]
    assert not any("the judgments differ" in note for note in overview([str(path), *runs], audited=False).notes)


def test_overview_audit_without_corpus_skips_orphans(qrels, tmp_path):
    found = overview([qrels, trec(tmp_path / "a.run", ranks([1] * 20))])
    assert "orphans" in found.audit.skipped
    assert not any("orphan" in one.check for one in found.audit.findings)


def test_report_output_equal_to_input_or_repeated_raises_error(qrels, tmp_path):
    path = trec(tmp_path / "a.run", ranks([1] * 20))
    before = Path(path).read_text()
    with pytest.raises(BadInput, match="is an input"):
        report([qrels, f"x={path}"], path, format="csv", audited=False)
    with pytest.raises(BadInput, match="written more than once"):
        report([qrels, path], [tmp_path / "t.csv", f"{tmp_path}/./t.csv"], audited=False)
    assert Path(path).read_text() == before


def test_overview_damaged_experiment_file_raises_error(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "experiment.json").write_text('{"systems": 3')
    with pytest.raises(BadInput, match="is corrupt or incomplete"):
        overview(str(tmp_path / "copy"), audited=False)


def test_overview_interrupted_run_raises_error_with_resume_hint(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    for system in ("some", "more", "failing"):
        (tmp_path / "copy" / system / "manifest.json").unlink()
        (tmp_path / "copy" / system / "journal.jsonl").write_text("{}")
    with pytest.raises(BadInput, match="run the same command again to resume"):
        overview(str(tmp_path / "copy"))


# --- output files ---


@pytest.mark.parametrize("form", [name for name in OUTPUT_FORMATS if name not in ("rig", "rig-diff")])
@pytest.mark.slow
def test_report_writes_every_format(form, folder, tmp_path):
    target = tmp_path / f"out{OUTPUT_FORMATS[form].ending}"
    report(str(folder), target, format=form, audited=False)
    assert "more" in target.read_text()


def test_report_writes_rig_and_rig_diff_formats(folder, tmp_path):
    report(str(folder / "more"), tmp_path / "one.json", format="rig", audited=False)
    assert {one["metric"] for one in json.loads((tmp_path / "one.json").read_text())["metrics"]} >= {"mrr", "ndcg@10"}
    report([str(folder / "some"), str(folder / "more")], tmp_path / "two.json", format="rig-diff", audited=False)
    assert json.loads((tmp_path / "two.json").read_text())["rows"]


def test_format_for_path_uses_name_before_ending():
    endings = (".html", ".htm", ".JSON", ".csv", ".md", ".tex")
    assert [format_for_path(f"x{end}", None, OUTPUT_FORMATS) for end in endings] == [
        "html", "html", "json", "csv", "markdown", "latex",
    ]  # fmt: skip
    assert format_for_path("x.csv", "swarm", OUTPUT_FORMATS) == "swarm"
    assert format_for_path("x.txt", "swarm", OUTPUT_FORMATS) == format_for_path("", "swarm", OUTPUT_FORMATS) == "swarm"
    with pytest.raises(BadInput, match=r"x\.tex: the ending \.tex is not that of the format markdown"):
        format_for_path("x.tex", "markdown", OUTPUT_FORMATS)
    with pytest.raises(BadInput, match="expected a file that ends in"):
        format_for_path("x.docx", None, OUTPUT_FORMATS)
    with pytest.raises(UnknownName, match="wode"):
        format_for_path("x.csv", "wode", OUTPUT_FORMATS)


@pytest.mark.slow
def test_report_charts_writes_svg_and_png(folder, tmp_path):
    report(str(folder), charts=tmp_path / "charts", audited=False)
    svgs, pngs = (sorted(one.stem for one in (tmp_path / "charts").glob(f"*.{end}")) for end in ("svg", "png"))
    assert svgs == pngs
    assert {"quality_latency", "measures", "curves", "waterfall", "boxes", "wins", "strata", "latency"} <= set(svgs)
    assert (tmp_path / "charts" / "wins.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_report_reads_other_layouts_and_writes_page(dataset, tmp_path):
    folder = tmp_path / "runs"
    ragauge.run(dataset, {"some": noisy(0.4), "more": noisy(0.8)}, baseline="some", out=folder, k=20)
    report(str(folder), tmp_path / "swarm.csv", format="swarm", audited=False)
    report(str(folder), tmp_path / "tokens.csv", format="tokenization", audited=False)
    per_query = report(tmp_path / "swarm.csv", tmp_path / "swarm.html", baseline="some")
    assert per_query.difference("more", "mrr@20").wins > 0
    assert per_query.entries["more"].speed.stages["total"].p95 > 0
    means = report(tmp_path / "tokens.csv", tmp_path / "tokens.html")
    assert means.compared is None
    direct = overview(str(folder), measures=["mrr@15"], convention="tokenization", audited=False)
    assert means.entries["more"].means["mrr@15"].value == direct.entries["more"].means["mrr@15"].value
    assert "more" in (tmp_path / "tokens.html").read_text()


def test_latency_table_has_throughput_column(seen):
    header = [column.title for column in build_latency_table(seen).columns]
    assert "throughput" in header
    assert "QPS" not in header


def test_report_rejected_format_writes_no_file(folder, tmp_path):
    with pytest.raises(BadInput):
        report(str(folder), tmp_path / "one.json", format="rig", audited=False)
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
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_report_command_without_output_prints_summary_and_tables(ragauge_cli, folder):
    code, out, _ = ragauge_cli("report", folder)
    assert code == 0
    assert out.splitlines()[0].startswith("numbers: 3 systems, 60 queries")
    assert "more beats some on ndcg@5 by " in " ".join(out.split())
    assert "p95" in out


def test_report_command_writes_several_files(ragauge_cli, folder, tmp_path):
    code, out, err = ragauge_cli("report", folder, "--no-audit", "-o", "a/r.html", "-o", "r.json", "-o", "r.tex")
    assert (code, out) == (0, "")
    assert "wrote r.json" in err
    assert (tmp_path / "a" / "r.html").read_text().startswith("<!doctype html>")
    assert "\\toprule" in (tmp_path / "r.tex").read_text()


def test_report_command_format_without_file_prints_to_stdout(ragauge_cli, folder):
    code, out, _ = ragauge_cli("report", folder, "--format", "wide", "--no-audit")
    assert code == 0
    assert out.splitlines()[0].startswith("system,")
    assert len(out.splitlines()) == 4


def test_report_command_json_matches_printed_schema(ragauge_cli, folder):
    import jsonschema

    _, schema, _ = ragauge_cli("report", "--schema")
    _, out, _ = ragauge_cli("report", folder, "--format", "json")
    jsonschema.validate(json.loads(out), json.loads(schema))


@pytest.mark.parametrize(
    ("arguments", "said"),
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
def test_report_command_invalid_arguments_print_error_with_hint(ragauge_cli, folder, arguments, said):
    code, out, err = ragauge_cli("report", *(one.format(folder=folder) for one in arguments))
    assert code == 2
    assert out == ""
    assert said in err
    assert "hint:" in err or "must be" in err  # an error that states a bound needs no hint
    assert "Traceback" not in err


def test_report_html_without_altair_raises_missing_extra(folder, monkeypatch, tmp_path):
    import sys

    from ragauge.output import page_assets

    page_assets._jinja_environment.cache_clear()
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtra, match="report"):
        report(str(folder), tmp_path / "r.html", audited=False)
    assert not Path(tmp_path / "r.html").exists()


def test_report_object_without_report_raises_error():
    with pytest.raises(BadInput, match="object is not a result that has a report"):
        report(object(), "x.html")
