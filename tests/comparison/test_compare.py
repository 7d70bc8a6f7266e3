"""The function and command `compare`: results, rejected input and output formats."""

from __future__ import annotations

import io
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

import ragauge
from command import run_python
from ragauge.comparison import report
from ragauge.core.errors import BadInput, Incomparable, MissingEvidence, UnknownName
from ragauge.files.serialization import to_json_data
from ragauge.output.numbers import format_number
from ragauge.output.terminal import render_report
from ragauge.reports.registry import read_results

QRELS = {f"q{i:02}": {"a": 2, **{f"r{j}": 1 for j in range(i % 9)}} for i in range(30)}


def make_run(seed, bonus):
    """Build a run with random scores; relevant documents score higher by `bonus`, and 20 others per query do not."""
    rng = random.Random(seed)
    return {
        query: {doc: rng.random() + (bonus if doc in docs else 0) for doc in [*docs, *(f"x{i}" for i in range(20))]}
        for query, docs in QRELS.items()
    }


RUNS = {"words": make_run(1, 0.1), "vectors": make_run(2, 0.3), "both": make_run(3, 0.6)}
SCORES = ragauge.evaluate(QRELS, RUNS, ["ndcg@10", "mrr"])


def run_cli(*arguments, cwd=None):
    return run_python(["-m", "ragauge", *map(str, arguments)], cwd or Path.cwd())


def write_run(path, run):
    rows = [f"{q} Q0 {d} 0 {s!r} t" for q, docs in run.items() for d, s in docs.items()]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def run_files(tmp_path):
    rows = [f"{q} 0 {d} {g}" for q, docs in QRELS.items() for d, g in docs.items()]
    (tmp_path / "qrels.txt").write_text("\n".join(rows) + "\n")
    for name, run in RUNS.items():
        write_run(tmp_path / f"{name}.run", run)
    return tmp_path


# Results ------------------------------------------------------------------------------------------------------------


def find_difference_tables(comparisons):
    (section,) = [section for section in report.build_report(comparisons).sections if section.id == "differences"]
    return section.blocks


def render_lines(comparisons, width, changed):
    console = Console(width=width, record=True, file=io.StringIO())
    for piece in render_report(report.build_report(comparisons, changed_queries=changed), width)[0]:
        console.print(piece)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_compare_matches_scipy():
    row = ragauge.compare(SCORES, baseline="words").find("both", "ndcg@10")
    scores, base = SCORES["both"].values["ndcg@10"], SCORES["words"].values["ndcg@10"]
    differences = scores - base
    assert row.difference == pytest.approx(differences.mean())
    assert row.means == pytest.approx((base.mean(), scores.mean()))
    assert row.p_t == pytest.approx(stats.ttest_rel(scores, base).pvalue, abs=1e-9)
    assert row.p_wilcoxon == pytest.approx(stats.wilcoxon(scores, base).pvalue, abs=1e-9)
    assert 0 < row.p_randomisation < 0.01
    assert row.effect == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert (row.wins, row.losses, row.ties) == (
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        int((differences == 0).sum()),
    )
    assert row.ci[0] < row.difference < row.ci[1]
    assert row.percent == pytest.approx(100 * differences.mean() / base.mean())
    assert row.stars == "***"
    largest = max(zip(np.abs(differences), SCORES["both"].queries, strict=True))
    assert row.moved[0].query == largest[1]
    assert abs(row.moved[0].difference) == pytest.approx(largest[0])


def test_compare_stars_follow_corrected_p_value():
    fresh = ragauge.compare(SCORES, baseline="words", measures="mrr").rows[0]
    assert replace(fresh, p_t=0.0001, p_corrected=0.02).stars == "*"
    assert replace(fresh, p_t=0.0001, p_corrected=0.2).stars == "ns"
    assert replace(fresh, p_corrected=math.nan).stars == ""
    titles = {("t", "holm"): "p holm", ("t", "none"): "p_t", ("wilcoxon", "none"): "p wilcoxon"}
    for (test, correction), title in titles.items():
        result = ragauge.compare(SCORES, baseline="words", measures="mrr", test=test, correction=correction)
        row = result.rows[0]
        (table,) = find_difference_tables(result)
        cells = dict(zip([column.title for column in table.columns], table.texts()[0], strict=True))
        assert cells[title].split() == [format_number(row.p_corrected, "p"), row.stars]
        assert [title for title, text in cells.items() if row.stars in text.split()] == [title]
        notes = report.describe_comparisons(result)
        assert any(line.startswith(f"{title}: ") and "*** below 0.001" in line for line in notes)
        assert sum("***" in line for line in notes) == 1


def test_difference_table_aligns_p_values_with_stars():
    result = ragauge.compare(SCORES, baseline="words")
    rows = [replace(row, p_corrected=p) for row, p in zip(result.rows, (0.0001, 0.02, 0.3, 0.004), strict=False)]
    table = find_difference_tables(replace(result, rows=rows))[0]
    p_column = [column.title for column in table.columns].index("p holm")
    assert [row[p_column] for row in table.aligned_texts()] == ["<0.001 ***", " 0.020 *  "]


def test_compare_without_baseline_compares_every_pair():
    result = ragauge.compare(SCORES, measures="mrr")
    assert [(row.baseline, row.system) for row in result] == [
        ("words", "vectors"),
        ("words", "both"),
        ("vectors", "both"),
    ]
    assert result.find("vectors").p_corrected >= result.find("vectors").p_t
    assert result.to_polars()["n"].to_list() == [30, 30, 30]


def test_means_table_letters_mark_significantly_worse_systems():
    result = ragauge.compare(
        {"a": dict.fromkeys("xyz", 0.1), "b": dict.fromkeys("xyz", 0.1), "c": {"x": 0.9, "y": 0.8, "z": 0.91}}
    )
    table = report.build_means_table(result)
    assert [row[1] for row in table.texts()] == ["0.1000", "0.1000", "0.8700ᵃᵇ"]
    assert [row[0] for row in table.texts()] == ["a a", "b b", "c c"]


def test_compare_accepts_measure_aliases_and_own_numbers():
    assert ragauge.compare(SCORES, "words", measures=["nDCG@10"]).measures == ["ndcg@10"]
    numbers = {"a": {"mine": {"1": 0.2, "2": 0.4}}, "b": {"mine": {"2": 0.5, "1": 0.1}}}
    row = ragauge.compare(numbers, "a").find("b")
    assert (row.measure, row.n) == ("mine", 2)
    assert row.difference == pytest.approx(0.0)
    assert [change.query for change in row.moved] == ["1", "2"]


def test_compare_by_complexity_uses_number_of_relevant_documents():
    result = ragauge.compare(SCORES, "words", measures="ndcg@10", by="complexity")
    sizes = {row.stratum: row.n for row in result.strata if row.system == "both"}
    relevant = [1 + i % 9 for i in range(30)]
    assert sizes == {
        "complexity=simple": sum(n <= 3 for n in relevant),
        "complexity=medium": sum(4 <= n <= 6 for n in relevant),
        "complexity=complex": sum(n > 6 for n in relevant),
    }
    medium = next(row for row in result.strata if row.system == "both" and row.stratum == "complexity=medium")
    mask = np.array([4 <= n <= 6 for n in relevant])
    differences = (SCORES["both"].values["ndcg@10"] - SCORES["words"].values["ndcg@10"])[mask]
    assert medium.difference == pytest.approx(differences.mean())


def test_compare_by_accepts_tag_or_mapping():
    tags = {query: {"topic": "even" if int(query[1:]) % 2 == 0 else "odd"} for query in list(QRELS)[:20]}
    result = ragauge.compare(SCORES, "words", measures="mrr", by="topic", tags=tags)
    assert {row.stratum: row.n for row in result.strata} == {"topic=even": 10, "topic=odd": 10}
    assert "10 queries have no topic" in result.notes
    by_mapping = ragauge.compare(SCORES, "words", measures="mrr", by=dict.fromkeys(QRELS, "all"))
    assert {row.stratum for row in by_mapping.strata} == {"all"}
    with pytest.raises(UnknownName, match="unknown tag `topik`"):
        ragauge.compare(SCORES, "words", by="topik", tags=tags)


def test_compare_sign_flips_between_seeds_adds_note():
    base = ragauge.evaluate(QRELS, RUNS["words"], ["ndcg@10"])
    seeds = [ragauge.evaluate(QRELS, make_run(seed, 0.1), ["ndcg@10"]) for seed in range(10, 15)]
    result = ragauge.compare({"words": base, "lucky": seeds}, "words")
    row = result.find("lucky")
    assert row.seeds is not None
    assert row.seeds.flips
    assert len(row.seeds.differences) == 5
    assert row.difference == pytest.approx(np.mean(row.seeds.differences))
    assert any("depending on the seed" in note for note in result.notes)
    single_seed = ragauge.compare({"words": base, "lucky": seeds[0]}, "words").find("lucky")
    assert single_seed.seeds is None


def test_compare_pairs_seeds_by_label():
    first = {str(s): ragauge.evaluate(QRELS, make_run(s, 0.1), ["mrr"]) for s in (1, 2, 3)}
    second = {str(s): ragauge.evaluate(QRELS, make_run(s + 50, 0.4), ["mrr"]) for s in (3, 2, 1)}
    row = ragauge.compare({"one": first, "two": second}, "one").find("two")
    assert row.seeds is not None
    assert row.seeds.paired
    expected = [second[s].means["mrr"] - first[s].means["mrr"] for s in row.seeds.labels]
    assert list(row.seeds.differences) == pytest.approx(expected)


def test_compare_experiment_uses_its_baseline_and_queries():
    data = ragauge.load("synthetic:needles(documents=60, queries=12)")
    result = ragauge.run(
        data, {"bm25": "bm25", "first": lambda q, k: [d.id for d in data.documents[:k]]}, baseline="bm25"
    )
    compared = ragauge.compare(result)
    assert compared.baseline == "bm25"
    assert compared.find("first").difference == result.differences["first"].difference
    assert compared.texts == data.queries
    assert ragauge.compare(result, by="answers").strata


def test_summarise_comparisons_has_verdicts_and_margins():
    rng = random.Random(5)
    base = {str(i): rng.random() / 2 for i in range(40)}
    systems = {
        "base": base,
        "good": {q: v + 0.2 + rng.random() / 10 for q, v in base.items()},
        "bad": {q: v - 0.2 - rng.random() / 10 for q, v in base.items()},
        "like": {q: v + rng.gauss(0, 0.01) for q, v in base.items()},
    }
    result = ragauge.compare(systems, "base", margin=0.02)
    sentences = report.summarise_comparisons(result)
    assert sentences[0] == (
        "score: good is significantly better than base; bad is significantly worse than base; "
        "no significant difference between like and base."
    )
    assert sentences[1].startswith(
        "score: good is not worse than base by 0.02 or more (p <0.001), and is not shown to be within"
    )
    assert sentences[2].startswith("score: bad may be worse than base by 0.02 or more (p 1.000)")
    assert sentences[3].endswith("and is within 0.02 of it (p <0.001).")


def test_changed_queries_keep_ids_and_differences_on_narrow_terminal():
    texts = {
        query: f"a long question about {query} that does not fit into any narrow terminal at all" for query in QRELS
    }
    result = replace(ragauge.compare(SCORES, "words"), texts=texts)
    lines = render_lines(result, 60, 2)
    for row in result.rows:
        if row.measure == "ndcg@10":
            for change in row.moved[:1]:
                assert any(change.query in line and f"{change.difference:+.4f}" in line for line in lines)
    shortened = report.keep_changed_queries(result, 2)
    assert [change.difference > 0 for change in shortened.rows[0].moved] == [True, True, False, False]
    assert set(shortened.texts) == {change.query for row in shortened.rows for change in row.moved}


# Rejected and unusual input -----------------------------------------------------------------------------------------


def test_compare_missing_queries_raises_ignores_or_counts_by_option():
    short = {query: docs for query, docs in RUNS["both"].items() if query not in ("q03", "q07")}
    scores = ragauge.evaluate(QRELS, {"words": RUNS["words"], "short": short}, ["mrr"])
    with pytest.raises(Incomparable, match=r"short lacks 2 of 30 queries, which words has \(q03, q07\)") as refused:
        ragauge.compare(scores, "words")
    assert refused.value.exit_code == 4
    common = ragauge.compare(scores, "words", common_queries=True)
    assert common.find("short").n == 28
    assert "compared on the 28 queries that all systems have, of 30" in common.notes
    counted = ragauge.compare(scores, "words", count_missing=True).find("short")
    assert counted.n == 30
    assert counted.means[1] == pytest.approx(scores["short"].means["mrr"])


def test_compare_query_missing_in_both_is_counted():
    both = {query: docs for query, docs in RUNS["both"].items() if query != "q03"}
    words = {query: docs for query, docs in RUNS["words"].items() if query != "q03"}
    assert ragauge.compare(ragauge.evaluate(QRELS, {"a": words, "b": both}, ["mrr"]), "a").find("b").n == 30


@pytest.mark.parametrize("convention", ["trec9", "default"])
def test_compare_missing_query_raises_error_under_every_convention(convention):
    short = {query: docs for query, docs in RUNS["both"].items() if query != "q03"}
    scores = ragauge.evaluate(QRELS, {"words": RUNS["words"], "short": short}, ["mrr"], convention)
    with pytest.raises(Incomparable, match="q03"):
        ragauge.compare(scores, "words")
    assert ragauge.compare(scores, "words", common_queries=True).find("short").n == 29


def test_compare_different_conventions_or_judgments_raises_error():
    words = ragauge.evaluate(QRELS, RUNS["words"], ["mrr"])
    other_convention = ragauge.evaluate(QRELS, RUNS["both"], ["mrr"], ragauge.PRESETS["default"].but(ties="ranked"))
    with pytest.raises(Incomparable, match="convention `default`, b under `default, ties=ranked`"):
        ragauge.compare({"a": words, "b": other_convention})
    other_judgments = {**QRELS, "q01": {"a": 0, "r0": 1}}
    with pytest.raises(
        Incomparable, match="0 queries only in the first, 0 only in the second, 1 of 30 with different grades"
    ):
        ragauge.compare({"a": words, "b": ragauge.evaluate(other_judgments, RUNS["both"], ["mrr"])})
    with pytest.raises(Incomparable, match="judged by `people`, b by `gpt`"):
        ragauge.compare({"a": words, "b": replace(SCORES["both"], judge="gpt")})
    with pytest.raises(Incomparable, match="no measure in common"):
        ragauge.compare({"a": words, "b": ragauge.evaluate(QRELS, RUNS["both"], ["map"])})


def test_compare_is_independent_of_judgment_order():
    reversed_qrels = {query: dict(reversed(docs.items())) for query, docs in reversed(QRELS.items())}
    first = ragauge.evaluate(QRELS, RUNS["words"], ["mrr"])
    second = ragauge.evaluate(reversed_qrels, RUNS["both"], ["mrr"])
    assert ragauge.compare({"a": first, "b": second}, "a").find("b").difference == pytest.approx(
        second.means["mrr"] - first.means["mrr"]
    )


def test_compare_nan_on_one_side_raises_error():
    numbers = {"a": {"1": 0.5, "2": 0.5}, "b": {"1": 0.5, "2": float("nan")}}
    with pytest.raises(Incomparable, match=r"b has no score for 1 queries that have one in other systems \(2\)"):
        ragauge.compare(numbers)
    assert ragauge.compare(numbers, common_queries=True).find("b").n == 1


def test_compare_invalid_arguments_raise_error():
    with pytest.raises(UnknownName, match="unknown system `wrds`"):
        ragauge.compare(SCORES, "wrds")
    with pytest.raises(MissingEvidence, match="has no values of `map`"):
        ragauge.compare(SCORES, "words", measures="map")
    with pytest.raises(BadInput, match="no second system"):
        ragauge.compare({"words": SCORES["words"]})
    with pytest.raises(UnknownName, match="unknown argument `corection` of compare"):
        ragauge.compare(SCORES, corection="holm")
    with pytest.raises(BadInput, match="expected the scores of several systems, got Scores"):
        ragauge.compare(SCORES["words"])
    with pytest.raises(BadInput, match="the scores of `a` cannot be read"):
        ragauge.compare({"a": {"m": {"1": 0.2, "2": "x"}}, "b": {"m": {"1": 0.1, "2": 0.2}}})


def test_compare_sum_measure_uses_mean_with_note():
    scores = ragauge.evaluate(QRELS, RUNS, ["num_rel_ret@5", "unjudged@5"])
    result = ragauge.compare(scores, "words")
    assert any("num_rel_ret@5: compared by its mean" in note for note in result.notes)
    row = result.find("both", "unjudged@5")
    assert row.lower_is_better
    assert row.better == (row.difference < 0)
    assert row.wins > row.losses


def test_compare_infinite_or_malformed_scores_raise_error():
    with pytest.raises(BadInput, match="score of query `2` of a is infinite"):
        ragauge.compare({"a": {"1": 0.5, "2": float("inf")}, "b": {"1": 0.5, "2": 0.5}})
    for malformed in ([[SCORES["words"]]], {"m": {"1": 1.0}, "x": 3}, [], {}, "words", [{"s": {"m": {"1": 0.5}}}]):
        with pytest.raises(BadInput, match=r"the scores of `a( #1)?` cannot be read"):
            ragauge.compare({"a": malformed, "b": {"1": 0.5}})
    with pytest.raises(BadInput, match="a list of systems must contain only Scores"):
        ragauge.compare([{"1": 0.5}, {"1": 0.4}])
    with pytest.raises(BadInput, match="same id"):
        ragauge.compare({"a": {1: 0.5, "1": 0.7}, "b": {"1": 0.5}})
    with pytest.raises(BadInput, match="mutually exclusive"):
        ragauge.compare(SCORES, common_queries=True, count_missing=True)


@pytest.mark.parametrize(("n", "shown"), [(15, False), (58, False), (59, True)])
def test_compare_equal_systems_need_queries_for_margin(n, shown):
    qrels = {f"q{i}": {"a": 1} for i in range(n)}
    run = {f"q{i}": {"b": 2.0, "a": 1.0} for i in range(n)}
    result = ragauge.compare(ragauge.evaluate(qrels, {"old": run, "new": run}, ["mrr"]), "old", margin=0.05)
    test = result.find("new").margin
    assert test.p_noninferior == test.p_equivalent == pytest.approx(0.95**n)
    assert test.queries_needed == 59
    sentence = report.summarise_comparisons(result)[1]
    assert ("is not worse" in sentence) == ("is within" in sentence) == shown
    assert ("even without any difference, this needs 59 queries" in sentence) != shown


def test_compare_margin_of_unknown_range_needs_differences():
    systems = {"old": {f"q{i}": 0.5 for i in range(40)}, "new": {f"q{i}": 0.5 + 0.01 * (i < 9) for i in range(40)}}
    result = ragauge.compare(systems, "old", margin=0.1)
    assert math.isnan(result.find("new").margin.p_noninferior)
    assert "9 of 40 queries differ; a test of new with a margin needs 10" in report.summarise_comparisons(result)[1]
    systems["new"]["q9"] = 0.51
    assert ragauge.compare(systems, "old", margin=0.1).find("new").margin.p_noninferior < 0.001


def test_compare_count_missing_lower_is_better_raises_error():
    short = {query: docs for query, docs in RUNS["both"].items() if query != "q03"}
    scores = ragauge.evaluate(QRELS, {"words": RUNS["words"], "short": short}, ["unjudged@5"])
    with pytest.raises(Incomparable, match="0 would be the best value of"):
        ragauge.compare(scores, "words", count_missing=True)


def test_compare_by_complexity_uses_minimum_relevant_grade():
    scores = ragauge.evaluate(QRELS, RUNS, ["mrr"], ragauge.PRESETS["default"].but(rel=2))
    result = ragauge.compare(scores, "words", by="complexity")
    assert {row.stratum for row in result.strata} == {"complexity=simple"}


def test_compare_different_depths_adds_note():
    short = {query: dict(sorted(docs.items(), key=lambda pair: -pair[1])[:5]) for query, docs in RUNS["both"].items()}
    scores = ragauge.evaluate(QRELS, {"words": RUNS["words"], "short": short}, ["recall@5", "recall@10", "map"])
    notes = ragauge.compare(scores, "words").notes
    assert "short has at most 5 documents per query, words 29: recall@10, map may differ for that reason alone" in notes


def test_compare_common_queries_ignores_null_scores_for_all_systems():
    numbers = {
        "a": {"1": 0.5, "2": 0.5, "3": 0.1},
        "b": {"1": 0.4, "2": 0.2, "3": 0.2},
        "c": {"1": 0.5, "2": None, "3": 0},
    }
    result = ragauge.compare(numbers, common_queries=True)
    assert [row.n for row in result] == [2, 2, 2]
    assert result.find("b").means == (pytest.approx(0.3), pytest.approx(0.3))


@pytest.mark.parametrize("name", ["d", "n", "p", "change", "%", "measure"])
def test_compare_system_named_like_column_is_rendered(name):
    result = ragauge.compare({name: SCORES["words"], "other": SCORES["both"]}, name, margin=0.1, detect=0.1)
    (table,) = find_difference_tables(result)
    assert table.texts()[0][1:4] == ["30", *(f"{mean:.4f}" for mean in result.rows[0].means)]
    assert [column.title for column in table.columns][1:4] == ["n", name, "other"]
    for width in (20, 60, 80, 200):
        assert render_lines(result, width, 3)


def test_compare_command_names_are_escaped_on_terminal(tmp_path):
    (tmp_path / "s.csv").write_text("run,query,mrr\n\x1b[31mred,q\x1b[2J,0.5\n[bold]b,q\x1b[2J,0.7\n")
    process = run_cli("compare", tmp_path / "s.csv")
    assert process.returncode == 0, process.stderr
    assert "\x1b" not in process.stdout + process.stderr
    assert "[bold]b" in process.stdout


def test_means_table_more_than_26_systems_uses_numbers():
    rng = random.Random(0)
    systems = {f"s{i}": {str(q): i / 40 + rng.random() / 1000 for q in range(20)} for i in range(30)}
    table = report.build_means_table(ragauge.compare(systems, rounds=200))
    assert table.texts()[12][1].endswith("(1 2 3 4 5 6 7 8 9 10 11 12)")


# Command line -------------------------------------------------------------------------------------------------------


def test_compare_command_json_has_documented_keys(run_files):
    process = run_cli(
        "compare", "qrels.txt", "words.run", "both.run", "--baseline", "words", "-m", "ndcg@10", "--json", cwd=run_files
    )
    assert process.returncode == 0, process.stderr
    (row,) = json.loads(process.stdout)["comparisons"]
    keys = "measure baseline system n difference ci p_t p_wilcoxon p_randomisation p_corrected stars effect wins "
    keys += "losses ties"
    assert set(keys.split()) <= set(row)
    expected = ragauge.compare(SCORES, "words", measures="ndcg@10").find("both")
    assert row["difference"] == pytest.approx(expected.difference)
    assert row["ci"] == pytest.approx(list(expected.ci))
    assert row["n"] == 30
    assert row["stars"] == "***"


def test_compare_output_fits_80_columns_and_has_changed_queries(run_files):
    process = run_cli(
        "compare",
        "qrels.txt",
        "words.run",
        "both.run",
        "-b",
        "words",
        "--margin",
        "0.05",
        "--detect",
        "0.01",
        cwd=run_files,
    )
    assert process.returncode == 0, process.stderr
    assert "both against words" in process.stdout
    assert "Queries that changed most\nndcg@10: both against words\n" in process.stdout
    result = ragauge.compare(SCORES, "words", margin=0.05, detect=0.01)
    lines = render_lines(result, 80, 3)
    assert len(lines) > 10
    assert max(map(len, lines)) <= 80


def test_compare_command_incomparable_runs_exit_with_4(run_files):
    write_run(run_files / "short.run", {query: docs for query, docs in RUNS["both"].items() if query != "q03"})
    process = run_cli("compare", "qrels.txt", "words.run", "short.run", "-b", "words", cwd=run_files)
    assert process.returncode == 4
    assert "short lacks 1 of 30 queries, which words has (q03)" in process.stderr
    assert (
        run_cli(
            "compare", "qrels.txt", "words.run", "short.run", "-b", "words", "--common-queries", cwd=run_files
        ).returncode
        == 0
    )


@pytest.mark.parametrize("others", [["words.run", "both.run"], ["both.run"]])
def test_compare_command_accepts_file_as_baseline(run_files, others):
    process = run_cli("compare", "qrels.txt", *others, "-b", "words.run", "-m", "mrr", "--csv", cwd=run_files)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[1].startswith("mrr,words,both,")


def test_compare_command_repeated_name_is_another_seed(run_files):
    write_run(run_files / "again.run", make_run(9, 0.6))
    process = run_cli(
        "compare",
        "qrels.txt",
        "words.run",
        "x=both.run",
        "x=again.run",
        "-b",
        "words",
        "-m",
        "mrr",
        "--json",
        cwd=run_files,
    )
    assert process.returncode == 0, process.stderr
    (row,) = json.loads(process.stdout)["comparisons"]
    assert len(row["seeds"]["differences"]) == 2


def test_compare_command_run_folders_use_their_judgments(tmp_path):
    data = "synthetic:needles(documents=60, queries=12)"
    assert run_cli("run", data, "-s", "bm25", "-s", "b=bm25(k1=0.1)", "-o", tmp_path / "x").returncode == 0
    from_folder = run_cli("compare", tmp_path / "x", "-b", "bm25", "-m", "mrr", "--by", "complexity", "--json")
    assert from_folder.returncode == 0, from_folder.stderr
    from_runs = run_cli("compare", tmp_path / "x" / "bm25", tmp_path / "x" / "b", "-b", "bm25", "-m", "mrr", "--json")
    assert json.loads(from_runs.stdout)["comparisons"] == json.loads(from_folder.stdout)["comparisons"]
    assert json.loads(from_folder.stdout)["strata"][0]["stratum"] == "complexity=simple"
    assert (
        run_cli("run", "synthetic:needles(documents=60, queries=13)", "-s", "c=bm25", "-o", tmp_path / "y").returncode
        == 0
    )
    other = run_cli("compare", tmp_path / "x" / "bm25", tmp_path / "y" / "c", "-b", "bm25")
    assert other.returncode == 4
    assert "are not those in" in other.stderr


def test_compare_folder_uses_its_measures_and_system_names(tmp_path):
    data = "synthetic:needles(documents=60, queries=12)"
    assert (
        run_cli("run", data, "-s", "bm25", "-s", "bm25(b=0.0)", "-m", "recall@5", "-o", tmp_path / "z").returncode == 0
    )
    result = ragauge.compare(tmp_path / "z", baseline="bm25")
    assert result.measures == ["recall@5"]
    assert result.systems == ["bm25", "bm25(b=0.0)"]
    assert result.dataset == data
    assert result.convention == "default"
    assert result.texts


def test_compare_command_different_documents_exit_with_4(tmp_path):
    dataset_name = "synthetic:needles(documents=60, queries=12)"
    data = ragauge.load(dataset_name)
    ragauge.run(data, {"a": "bm25"}, out=tmp_path / "x")
    ragauge.run(replace(data, documents=data.documents[:40]), {"b": "bm25"}, out=tmp_path / "y")
    process = run_cli("compare", tmp_path / "x" / "a", tmp_path / "y" / "b")
    assert process.returncode == 4
    assert "they are not the same documents" in process.stderr


def test_compare_command_differing_repeats_are_seeds(tmp_path):
    data = ragauge.load("synthetic:needles(documents=40, queries=8)")
    rng = random.Random(3)
    names = [document.id for document in data.documents]
    ragauge.run(data, {"luck": lambda q, k: rng.sample(names, k), "bm25": "bm25"}, out=tmp_path / "x", repeats=3)
    process = run_cli("compare", tmp_path / "x", "-b", "bm25", "-m", "mrr", "--json")
    assert process.returncode == 0, process.stderr
    assert len(json.loads(process.stdout)["comparisons"][0]["seeds"]["differences"]) == 3


def test_compare_command_accepts_measure_groups_and_equivalent_paths(run_files):
    accepted = run_cli(
        "compare", "qrels.txt", "words.run", "./both.run", "-b", "both.run", "-m", "P.5,10", "--csv", cwd=run_files
    )
    assert [line.split(",")[:3] for line in accepted.stdout.splitlines()[1:]] == [
        ["precision@5", "both", "words"],
        ["precision@10", "both", "words"],
    ]
    for arguments, message in (
        (["qrels.txt", "x=words.run", "x=./words.run"], "appears more than once"),
        (["qrels.txt", "words.run", "y" * 300], "cannot be read (File name too long)"),
        (["qrels.txt", "words.run", "both.run", "--tags", "qrels.txt"], "has no effect without --by"),
    ):
        process = run_cli("compare", *arguments, cwd=run_files)
        assert process.returncode == 2, arguments
        assert message in process.stderr
        assert "Traceback" not in process.stderr


def test_compare_command_empty_result_is_not_missing_query(tmp_path):
    data = ragauge.load("synthetic:needles(documents=40, queries=6)")
    systems = {"all": lambda q, k: [d.id for d in data.documents[:k]], "none": lambda q, k: []}
    ragauge.run(data, systems, out=tmp_path / "x")
    process = run_cli("compare", tmp_path / "x", "-b", "all", "-m", "mrr", "--json")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["comparisons"][0]["n"] == 6


def test_compare_trec_dl_matches_published_difference(shared):
    """Compare with the published nDCG@10 scores of TREC DL 2019, to their four decimals."""
    folder = shared("trec_dl_runs")
    runs = {name: str(folder / "runs" / f"dl19.{name}.txt.gz") for name in ("BM25", "SPLADE_P_P_ENSEMBLE_DISTIL")}
    scores = ragauge.evaluate(str(folder / "qrels" / "qrels.dl19-passage.txt"), runs, ["ndcg@10"])
    row = ragauge.compare(scores, "BM25").find("SPLADE_P_P_ENSEMBLE_DISTIL")
    assert row.difference == pytest.approx(0.7308 - 0.5058, abs=1e-4)
    assert row.p_corrected < 0.001


def test_comparison_json_round_trips_and_every_format_is_written(tmp_path):
    result = replace(ragauge.compare(SCORES, margin=0.1, rounds=200), texts={"q03": "a question"})
    names = ["found.json", "found.html", "found.md", "found.tex", "found.csv"]
    ragauge.report(result, [tmp_path / name for name in names])
    (restored,) = read_results(tmp_path / "found.json")
    assert to_json_data(restored) == to_json_data(result)
    assert restored.rows[0].moved[0] == result.rows[0].moved[0]
    assert (restored.method.test, restored.method.margin) == (result.method.test, 0.1)
    assert all((tmp_path / name).stat().st_size for name in names)


def test_compare_interval_and_test_disagree_adds_note():
    gains = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.02, 0.03, 0.5, 0.9]
    runs = {
        "old": {"mrr": {f"q{i}": 0.0 for i in range(10)}},
        "new": {"mrr": {f"q{i}": gain for i, gain in enumerate(gains)}},
    }
    result = ragauge.compare(runs, "old")
    row = result.find("new")
    assert row.ci[0] > 0
    assert row.p_t > 0.05
    assert sum("the bootstrap interval excludes 0, but the t-test finds no" in note for note in result.notes) == 1
    equal_gains = {"old": runs["old"], "new": {"mrr": {f"q{i}": 0.2 + i / 100 for i in range(10)}}}
    assert not any("bootstrap interval" in note for note in ragauge.compare(equal_gains, "old").notes)


def test_difference_beyond_range_of_measure_is_not_detectable():
    scores = {"base": {"q1": 0.0, "q2": 0.1}, "mine": {"q1": 1.0, "q2": 0.0}}
    bounded, unbounded = (
        ragauge.compare({name: {measure: values} for name, values in scores.items()}, "base")
        for measure in ("mrr", "own_measure")
    )
    (row,) = bounded.rows
    assert row.detectable > 1
    assert report.find_detectable(row) is None
    assert report.find_detectable(unbounded.rows[0]) == unbounded.rows[0].detectable
    notes = " ".join(report.build_report(bounded).notes)
    assert "2 queries are too few to detect any difference in mrr" in notes
