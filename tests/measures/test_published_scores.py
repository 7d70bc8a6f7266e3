"""Published scores of real runs: reproduced to four decimals."""

from __future__ import annotations

import csv

import pytest

from ragauge import PRESETS, evaluate


def find_file(folder, name):
    paths = [path for path in folder.iterdir() if path.name in (f"{name}.txt", f"{name}.txt.gz")]
    if not paths:
        pytest.skip(f"{name} is not in {folder}")
    return paths[0]


def test_evaluate_matches_published_trec_dl_and_covid_scores(shared):
    folder = shared("trec_dl_runs")
    checked = 0
    for row in csv.DictReader((folder / "published_scores.csv").read_text().splitlines()):
        run, qrels = find_file(folder / "runs", row["run"]), find_file(folder / "qrels", row["qrels"])
        value = evaluate(qrels, run, [row["measure"]]).means[row["measure"]]
        assert f"{value:.4f}" == row["published"], row
        checked += 1
    assert checked


def test_evaluate_run_with_mostly_tied_scores_matches_published(shared):
    folder = shared("trec_dl_runs")
    qrels, run = folder / "qrels" / "qrels.dl19-passage.txt", folder / "runs" / "dl19.REP_LLAMA.txt.gz"
    assert f"{evaluate(qrels, run, ['ndcg@10']).means['ndcg@10']:.4f}" == "0.7384"
    ranked = evaluate(qrels, run, ["ndcg@10"], PRESETS["default"].but(ties="ranked"))
    assert f"{ranked.means['ndcg@10']:.4f}" == "0.7439"


def test_read_judgments_beir_folders_have_expected_counts(shared):
    for name, queries, judged in (("scifact", 300, 339), ("arguana", 1406, 1406), ("cranfield", 225, 1837)):
        from ragauge import read_judgments

        found = read_judgments(shared(f"{name}/beir"))
        assert (len(found), len(found.pool.grades)) == (queries, judged), name
