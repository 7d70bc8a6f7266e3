"""What an overview is put together from, and the verb `report` in Python and on the command line."""

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


def test_an_overview_has_the_means_that_evaluate_has(seen, folder):
    scores = ragauge.evaluate(str(folder), {name: str(folder / name) for name in seen.entries}, seen.measures)
    for name, entry in seen.entries.items():
        for measure in seen.measures:
            assert entry.means[measure].value == scores[name].means[measure]
            assert entry.means[measure].n == 60


def test_systems_stand_in_the_order_in_which_they_were_run(seen):
    assert seen.systems == ["some", "more", "failing"]


def test_the_folder_knows_its_baseline_and_another_can_be_asked_for(seen, folder):
    assert seen.baseline == "some"
    assert overview(str(folder), baseline="more", audited=False).baseline == "more"


def test_intervals_of_means_are_those_of_scipys_bca_bootstrap():
    rng = np.random.default_rng(5)
    values = rng.beta(0.5, 1.5, 80)
    low, high = mean_intervals(values[:, None])[:, 0]
    found = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=rng).confidence_interval
    assert low == pytest.approx(found.low, abs=0.004)
    assert high == pytest.approx(found.high, abs=0.004)


def test_an_interval_leaves_unscored_queries_out_and_needs_two():
    columns = np.array([[0.2, math.nan], [0.8, 1.0], [math.nan, math.nan]])
    (low, lone_low), (high, _) = mean_intervals(columns)
    assert 0.2 <= low <= 0.5 <= high <= 0.8
    assert math.isnan(lone_low)


def test_advice_for_several_systems_is_that_for_each_alone():
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


def test_curves_are_counted_again_at_every_k(seen, folder):
    curve = next(one for one in seen.curves if one.measure == "recall")
    assert list(curve.ks) == [1, 2, 3, 5]
    for name in seen.entries:
        means = ragauge.evaluate(str(folder), str(folder / name), [f"recall@{k}" for k in curve.ks]).means
        assert list(curve.values[name]) == pytest.approx(list(means.values()))
        assert curve.enough[name].k in curve.ks


def test_strata_are_means_over_their_queries(seen):
    parts = {part.value: part for part in seen.strata["half"]}
    scores = seen.entries["more"].scores[0]
    odd = [v for q, v in zip(scores.queries, scores.values["ndcg@5"], strict=True) if int(q[1:]) % 2]
    assert parts["odd"].n == 30
    assert parts["odd"].means["more"].value == pytest.approx(np.mean(odd))
    assert parts["odd"].means["more"].low <= np.mean(odd) <= parts["odd"].means["more"].high


def test_the_verdicts_pair_is_compared_in_every_kind_of_query(seen, folder):
    mine = {row.stratum: row for row in seen.compared.strata}
    assert {(row.system, row.baseline, row.measure) for row in mine.values()} == {("more", "some", "ndcg@5")}
    wanted = ragauge.compare(
        [str(folder / "some"), str(folder / "more")], baseline="some", measures="ndcg@5", by="half"
    )
    for row in wanted.strata:
        assert (mine[row.stratum].difference, mine[row.stratum].ci) == (row.difference, row.ci)
        assert mine[row.stratum].p_corrected == row.p_corrected


def test_an_unknown_tag_is_refused_with_those_that_there_are(folder):
    with pytest.raises(UnknownName, match="third") as error:
        overview(str(folder), by="third", audited=False)
    assert "half" in str(error.value)


def test_differences_and_p_values_are_those_of_compare(seen, folder):
    found = ragauge.compare(str(folder), baseline="some")
    for row in found.rows:
        mine = seen.difference(row.system, row.measure)
        assert (mine.difference, mine.ci, mine.p_corrected) == (row.difference, row.ci, row.p_corrected)
        assert mine.stars == row.stars


def test_the_rival_is_the_best_against_the_next_best(seen):
    best, second = seen.ranked()[:2]
    assert (seen.rival.system, seen.rival.baseline) == (best, second)
    difference = seen.entries[best].means[seen.first].value - seen.entries[second].means[seen.first].value
    assert seen.rival.difference == pytest.approx(difference)


def test_failed_queries_and_their_words_are_kept(seen):
    assert set(seen.entries["failing"].failed) == {"q7"}
    assert "no answer" in seen.entries["failing"].failed["q7"]
    assert seen.entries["failing"].speed.failed == 1


def test_times_are_those_of_the_timings(seen):
    run = seen.entries["more"].run
    assert sorted(seen.entries["more"].times["total"]) == pytest.approx(
        sorted(ns / 1e6 for ns in run.timings["total_ns"].to_list())
    )


def test_systems_that_could_not_be_built_are_remembered(dataset, tmp_path):
    systems = {"some": noisy(0.4), "bad": "http(url=http://127.0.0.1:9/x)"}
    ragauge.run(dataset, systems, out=tmp_path / "x", k=3, allow_failures=True)
    # It is up to the system whether it fails when built or when asked; a description that cannot be built fails first.
    written = json.loads((tmp_path / "x" / "experiment.json").read_text())
    assert written["systems"] == ["some", "bad"]
    about = {**written, "failures": {"worse": "it has no index"}}
    (tmp_path / "x" / "experiment.json").write_text(json.dumps(about))
    assert overview(str(tmp_path / "x"), audited=False).failures == {"worse": "it has no index"}


def test_a_folder_without_an_experiment_file_still_shows(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "experiment.json").unlink()
    found = overview(str(tmp_path / "copy"), audited=False)
    assert found.baseline is None
    assert len(found.compared.rows) == 3 * len(found.measures)


def test_an_experiment_in_memory_is_shown_as_its_folder_is(dataset):
    made = ragauge.run(dataset, {"some": noisy(0.4), "more": noisy(0.8)}, baseline="some", k=5)
    found = overview(made, audited=False)
    assert found.baseline == "some"
    assert found.entries["more"].means["ndcg@5"].value == made.scores["more"].means["ndcg@5"]
    assert found.documents["d00003"].title == "number 3"
    other = overview(made, measures=["recall@3"], audited=False)
    assert other.measures == ["recall@3"]
    again = ragauge.evaluate(dataset.judgments, made.runs["more"], ["recall@3"])
    assert other.entries["more"].means["recall@3"].value == again.means["recall@3"]


def test_one_system_has_nothing_to_be_compared_with(folder):
    found = overview(str(folder / "more"), audited=False)
    assert found.compared is None
    assert found.rival is None


def test_scores_of_another_system_are_compared_too(tmp_path):
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


def test_an_audit_is_made_of_the_runs_and_their_texts(folder, dataset):
    found = overview(str(folder), audited=True, dataset=None)
    assert found.audit is not None
    assert {one.subject for one in found.audit.findings} | set(found.audit.skipped)


def test_different_judgments_are_not_shown_side_by_side(folder, dataset, tmp_path):
    other = ragauge.Dataset(
        "others", dataset.documents, dataset.queries, ragauge.Judgments({q: {"d00001": 1} for q in dataset.queries})
    )
    ragauge.run(other, {"some": noisy(0.4)}, out=tmp_path / "other", k=5)
    with pytest.raises(Incomparable):
        overview([str(folder), str(tmp_path / "other")])


# --- what is shown is of the same queries, the same askings, the same judgments ---


def trec(path, rankings):
    """A run file from `{query: [documents]}`."""
    rows = [f"{q} Q0 {d} {i + 1} {10 - i} x" for q, docs in rankings.items() for i, d in enumerate(docs)]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def qrels(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("".join(f"q{i} 0 right{i} 1\n" for i in range(20)))
    return str(path)


def ranks(places):
    """Rankings in which the right document stands at these places; nowhere at 0."""
    return {f"q{i}": [f"right{i}" if j == place else f"d{j}" for j in range(1, 6)] for i, place in enumerate(places)}


def test_on_the_overlap_the_best_is_the_best_there(qrels, tmp_path):
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


def test_of_several_trials_the_mean_ranks_the_systems(qrels, tmp_path):
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
def test_run_and_report_say_the_same_of_a_system_that_wavers(dataset, tmp_path):
    asked = []

    def tires(query, k):
        asked.append(query)
        if len(asked) > 65:  # sixty queries and a warm-up; whatever comes after them fails
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
    assert any("failed when they were asked again" in note for note in there.notes)
    curve = next(one for one in there.curves if one.measure == "hit_rate")
    assert curve.values["tires"][-1] == pytest.approx(there.entries["tires"].means["hit_rate@5"].value)


def test_a_line_over_k_ends_where_the_run_does(qrels, tmp_path):
    deep = trec(
        tmp_path / "deep.run", {q: [*docs, *(f"e{j}" for j in range(5))] for q, docs in ranks([2] * 20).items()}
    )
    flat = trec(tmp_path / "flat.run", {q: docs[:3] for q, docs in ranks([1] * 20).items()})
    found = overview([qrels, deep, flat], measures=["mrr"], audited=False)
    curve = next(one for one in found.curves if one.measure == "recall")
    assert list(curve.ks) == [1, 2, 3, 5, 10]
    assert [math.isnan(value) for value in curve.values["flat"]] == [False, False, False, True, True]
    assert not any(math.isnan(value) for value in curve.values["deep"])
    assert curve.enough["flat"].k == 3  # 20 queries without a loss cannot show that a smaller k is enough


@pytest.mark.parametrize(("rel", "label"), [(None, "recall"), (2, "recall(rel=2)")])
def test_curve_over_k_is_labelled_with_the_minimum_relevant_grade(ragauge_cli, tmp_path, rel, label):
    (tmp_path / "q.txt").write_text("q1 0 d1 2\nq1 0 d2 1\nq2 0 d1 1\nq2 0 d3 2\n")
    run = trec(tmp_path / "a.run", {"q1": ["d2", "d1"], "q2": ["d1", "d3"]})
    asked = [] if rel is None else ["-l", rel]
    assert ragauge_cli("report", tmp_path / "q.txt", run, *asked, "-o", tmp_path / "page.md")[0] == 0
    assert f"| {label} at k | a |" in (tmp_path / "page.md").read_text()


def test_queries_that_a_run_lacks_are_told_of(qrels, tmp_path):
    narrow = trec(tmp_path / "narrow.run", {q: docs for q, docs in ranks([1] * 20).items() if int(q[1:]) < 8})
    assert any("12 of 20" in note for note in overview([qrels, narrow], audited=False).notes)


def test_other_judgments_than_the_runs_were_made_with_are_told_of(folder, tmp_path):
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


def test_overview_judgments_in_other_row_order_gives_no_note(folder, tmp_path):
    import polars as pl

    path = tmp_path / "shuffled.parquet"
    pl.read_parquet(folder / "judgments.parquet").sample(fraction=1, shuffle=True, seed=1).write_parquet(path)
    runs = [str(folder / name) for name in ("some", "more")]
    assert not any("the judgments differ" in note for note in overview([str(path), *runs], audited=False).notes)


def test_without_a_corpus_nothing_is_called_an_orphan(qrels, tmp_path):
    found = overview([qrels, trec(tmp_path / "a.run", ranks([1] * 20))])
    assert "orphans" in found.audit.skipped
    assert not any("orphan" in one.what for one in found.audit.findings)


def test_an_input_is_never_written_over(qrels, tmp_path):
    path = trec(tmp_path / "a.run", ranks([1] * 20))
    before = Path(path).read_text()
    with pytest.raises(BadInput, match="is an input"):
        report([qrels, f"x={path}"], path, format="csv", audited=False)
    with pytest.raises(BadInput, match="written more than once"):
        report([qrels, path], [tmp_path / "t.csv", f"{tmp_path}/./t.csv"], audited=False)
    assert Path(path).read_text() == before


def test_a_damaged_experiment_file_is_not_passed_over(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "experiment.json").write_text('{"systems": 3')
    with pytest.raises(BadInput, match="damaged"):
        overview(str(tmp_path / "copy"), audited=False)


def test_an_interrupted_run_is_told_from_a_missing_one(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    for system in ("some", "more", "failing"):
        (tmp_path / "copy" / system / "manifest.json").unlink()
        (tmp_path / "copy" / system / "journal.jsonl").write_text("{}")
    with pytest.raises(BadInput, match="run the same command again to resume"):
        overview(str(tmp_path / "copy"))


# --- writing ---


@pytest.mark.parametrize("form", [name for name in OUTPUT_FORMATS if name not in ("rig", "rig-diff")])
@pytest.mark.slow
def test_every_form_can_be_written(form, folder, tmp_path):
    target = tmp_path / f"out{OUTPUT_FORMATS[form].ending}"
    report(str(folder), target, format=form, audited=False)
    assert "more" in target.read_text()


def test_the_layouts_of_rig_take_one_system_and_two(folder, tmp_path):
    report(str(folder / "more"), tmp_path / "one.json", format="rig", audited=False)
    assert {one["metric"] for one in json.loads((tmp_path / "one.json").read_text())["metrics"]} >= {"mrr", "ndcg@10"}
    report([str(folder / "some"), str(folder / "more")], tmp_path / "two.json", format="rig-diff", audited=False)
    assert json.loads((tmp_path / "two.json").read_text())["rows"]


def test_endings_tell_the_form_and_names_win():
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
def test_charts_are_written_as_svg_and_png(folder, tmp_path):
    report(str(folder), charts=tmp_path / "charts", audited=False)
    svgs, pngs = (sorted(one.stem for one in (tmp_path / "charts").glob(f"*.{end}")) for end in ("svg", "png"))
    assert svgs == pngs
    assert {"quality_latency", "measures", "curves", "waterfall", "boxes", "wins", "strata", "latency"} <= set(svgs)
    assert (tmp_path / "charts" / "wins.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_results_in_the_layout_of_another_system_become_a_page_again(dataset, tmp_path):
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


def test_wall_clock_rate_of_a_run_is_called_throughput(seen):
    header = [column.title for column in build_latency_table(seen).columns]
    assert "throughput" in header
    assert "QPS" not in header


def test_nothing_is_half_written_when_a_form_is_refused(folder, tmp_path):
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


def test_without_a_file_the_verdict_and_the_tables_are_printed(ragauge_cli, folder):
    code, out, _ = ragauge_cli("report", folder)
    assert code == 0
    assert out.splitlines()[0].startswith("numbers: 3 systems, 60 queries")
    assert "more beats some on ndcg@5 by " in " ".join(out.split())
    assert "p95" in out


def test_several_files_at_once(ragauge_cli, folder, tmp_path):
    code, out, err = ragauge_cli("report", folder, "--no-audit", "-o", "a/r.html", "-o", "r.json", "-o", "r.tex")
    assert (code, out) == (0, "")
    assert "wrote r.json" in err
    assert (tmp_path / "a" / "r.html").read_text().startswith("<!doctype html>")
    assert "\\toprule" in (tmp_path / "r.tex").read_text()


def test_a_form_without_a_file_goes_to_standard_output(ragauge_cli, folder):
    code, out, _ = ragauge_cli("report", folder, "--format", "wide", "--no-audit")
    assert code == 0
    assert out.splitlines()[0].startswith("system,")
    assert len(out.splitlines()) == 4


def test_the_schema_is_published_and_what_is_written_keeps_to_it(ragauge_cli, folder):
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
def test_a_mistake_gets_a_sentence_and_a_hint(ragauge_cli, folder, arguments, said):
    code, out, err = ragauge_cli("report", *(one.format(folder=folder) for one in arguments))
    assert code == 2
    assert out == ""
    assert said in err
    assert "hint:" in err or "must be" in err  # a bound is hint enough
    assert "Traceback" not in err


def test_a_page_without_its_libraries_names_the_extra(folder, monkeypatch, tmp_path):
    import sys

    from ragauge.output import page_assets

    page_assets._jinja_environment.cache_clear()
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtra, match="report"):
        report(str(folder), tmp_path / "r.html", audited=False)
    assert not Path(tmp_path / "r.html").exists()
