"""Folders of judged samples: lossless round trip, errors for inconsistent files, and checks before a comparison."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import ragauge
from judged_builder import FAITHFULNESS, MODEL, PRECISION, RECALL, RELEVANCE, make_judged, make_lexical_judged, scores
from ragauge.comparison.compare import compare
from ragauge.comparison.scored_files import score_runs
from ragauge.core.errors import BadInput, Incomparable
from ragauge.core.samples import Sample
from ragauge.files.json_schemas import json_schema
from ragauge.files.judged_folders import (
    MANIFEST_FILE,
    SAMPLES_FILE,
    SCORES_FILE,
    VERDICTS_FILE,
    is_judged_folder,
    read_judged_scores,
    read_sample_tags,
)
from ragauge.files.scores import read_scores
from ragauge.files.serialization import to_json, to_json_data
from ragauge.judging.results import JudgedSamples
from ragauge.judging.results_folder import check_same_samples, read_judged_folder, write_judged_folder

pytest.importorskip("altair")
pytest.importorskip("vl_convert")


@pytest.fixture
def folder(tmp_path):
    write_judged_folder(make_judged(), tmp_path / "toy")
    return tmp_path / "toy"


def rewrite_file(folder, name, change):
    path = folder / name
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def test_write_judged_folder_writes_all_files(folder):
    names = {path.name for path in folder.iterdir()}
    assert names == {MANIFEST_FILE, SAMPLES_FILE, VERDICTS_FILE, SCORES_FILE, "report.md", "report.html"}
    assert is_judged_folder(folder)


def test_judged_folder_round_trip_restores_all_fields(folder):
    found, original = read_judged_folder(folder), make_judged()
    assert found.samples == original.samples
    assert list(found.verdicts) == list(original.verdicts)
    for query, verdicts in original.verdicts.items():
        assert to_json_data(found.verdicts[query]) == to_json_data(verdicts)
    assert found.ledger == list(original.ledger)
    assert found.robustness == list(original.robustness)
    assert (found.name, found.judge, found.confidence) == (original.name, original.judge, original.confidence)
    assert (dict(found.identity), dict(found.provenance)) == (original.identity, original.provenance)
    assert dict(found.intervals) == original.intervals
    assert (found.notes, found.stopped, found.folder) == (original.notes, "", folder)
    assert found.scores.queries == original.scores.queries
    assert (found.scores.judge, found.scores.convention) == (MODEL, "default")
    for name in original.scores.measures:
        np.testing.assert_array_equal(found.scores.values[name], original.scores.values[name])
        assert found.scores.unscored[name] == original.scores.unscored[name]
        assert found.scores.means[name] == pytest.approx(original.scores.means[name], abs=1e-15)


def test_judged_folder_rewrite_is_byte_identical(folder, tmp_path):
    write_judged_folder(read_judged_folder(folder), tmp_path / "again")
    for name in (MANIFEST_FILE, SAMPLES_FILE, VERDICTS_FILE, SCORES_FILE, "report.md"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name


def test_judged_folder_means_accept_measure_alias(folder):
    assert read_judged_folder(folder).scores.means["Answer Relevancy"] == pytest.approx((0.82 + 0.88) / 3)


def test_judged_folder_measure_without_values_has_null_mean(tmp_path):
    original = make_judged()
    no_scores = scores({FAITHFULNESS: [math.nan] * 4}, original.scores.queries)
    write_judged_folder(make_judged(scores=no_scores, intervals={}), tmp_path)
    stored = json.loads((tmp_path / MANIFEST_FILE).read_text(encoding="utf-8"))["measures"][FAITHFULNESS]
    assert (stored["mean"], stored["n"], stored["unscored"], stored["interval"]) == (None, 0, 4, None)
    assert math.isnan(read_judged_folder(tmp_path).scores.means[FAITHFULNESS])


def test_judged_samples_json_follows_schema_and_includes_manifest(folder):
    schema = json_schema(JudgedSamples)
    Draft202012Validator.check_schema(schema)
    for samples in (
        make_judged(),
        make_lexical_judged(),
        make_judged(stopped="the limit of 3 requests is reached", ledger=(), robustness=()),
    ):
        Draft202012Validator(schema).validate(json.loads(to_json(samples)))
    manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    data = json.loads(to_json(make_judged()))
    assert {key: data[key] for key in manifest} == manifest
    assert data.keys() - manifest.keys() == {"samples", "verdicts", "scores"}


def test_read_judged_folder_without_manifest_raises(folder):
    (folder / MANIFEST_FILE).unlink()
    assert not is_judged_folder(folder)
    with pytest.raises(BadInput, match="no judge results found"):
        read_judged_folder(folder)


def test_write_judged_folder_removes_old_manifest_first(folder, monkeypatch):
    def fail(*_):
        raise RuntimeError("killed")

    monkeypatch.setattr("ragauge.judging.results_folder.write_verdicts", fail)
    with pytest.raises(RuntimeError, match="killed"):
        write_judged_folder(make_lexical_judged(), folder)
    assert not is_judged_folder(folder)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            SCORES_FILE,
            lambda text: text.replace(",0.3333333333333333,", ",0.9,"),
            "faithfulness is 0.95 over 2 here, and",
        ),
        (SCORES_FILE, lambda text: text.replace(",0.88,", ",inf,"), "the value must be a number, got `inf`"),
        (SCORES_FILE, lambda text: text.replace(",0.88,", ",NaN,"), "the value must be a number, got `NaN`"),
        (
            SCORES_FILE,
            lambda text: text.replace("toy,q2,context_recall", "toy,q1,context_recall"),
            "appears more than once",
        ),
        (
            SCORES_FILE,
            lambda text: text.replace("toy,q2,faith", "toy,q9,faith"),
            "has other samples than the first measure",
        ),
        (SCORES_FILE, lambda text: text.replace("value", "number", 1), "the columns are not system, query"),
        (SCORES_FILE, lambda text: text.replace(MODEL, "lexical", 1), "another judge or convention than in judge.json"),
        (SCORES_FILE, lambda text: text + "toy,q1\n", "the number of cells differs from the number of columns"),
        (
            MANIFEST_FILE,
            lambda text: text.replace("ragauge-judged/1", "ragauge-judged/9"),
            "expected the schema ragauge-judged/1, got 'ragauge-judged/9'",
        ),
        (MANIFEST_FILE, lambda text: text.replace('"n": 3', '"n": 4', 1), "over 3 here, and"),
        (
            MANIFEST_FILE,
            lambda text: text.replace('"ledger": [', '"ledger": [{},'),
            'ledger.0.: missing key "step"',
        ),
        (SAMPLES_FILE, lambda text: "\n".join(text.splitlines()[1:]) + "\n", "the samples are not those of scores.csv"),
        (VERDICTS_FILE, lambda text: text.replace('"asked"', '"asks"', 1), 'unknown key "asks"'),
    ],
)
def test_read_judged_folder_inconsistent_files_raise(folder, name, change, message):
    before = (folder / name).read_text(encoding="utf-8")
    rewrite_file(folder, name, change)
    assert (folder / name).read_text(encoding="utf-8") != before
    with pytest.raises(BadInput, match=message.replace("(", r"\(")):
        read_judged_folder(folder)


def test_judged_folder_scores_csv_is_read_by_read_scores(folder):
    tables, _ = read_scores(str(folder / SCORES_FILE))
    found = tables["toy"]
    assert found.judge == MODEL
    assert found.convention == "default"
    assert found.per_query[FAITHFULNESS] == {"q1": 1.0, "q2": pytest.approx(1 / 3)}
    with (folder / SCORES_FILE).open(encoding="utf-8", newline="") as file:
        reasons = {(row["query"], row["measure"]): row["reason"] for row in csv.DictReader(file) if not row["value"]}
    assert reasons["q4", FAITHFULNESS] == "the answer contains no claims"
    assert len(reasons) == 6


def test_read_sample_tags_returns_sample_metadata(folder):
    assert read_sample_tags(folder)["q2"] == {"topic": "height"}


def test_score_runs_compares_judged_folders_by_sample(tmp_path):
    higher = {FAITHFULNESS: [1.0, 0.5, 0.25, 1.0], RELEVANCE: [0.9, 0.8, 0.7, 0.6]}
    lower = {FAITHFULNESS: [0.5, 0.5, 0.0, 0.5], RELEVANCE: [0.9, 0.7, 0.7, 0.5]}
    for name, columns in (("a", higher), ("b", lower)):
        write_judged_folder(
            make_judged(scores=scores(columns, ["q1", "q2", "q3", "q4"]), intervals={}), tmp_path / name
        )
    found = score_runs([str(tmp_path / "a"), str(tmp_path / "b")], baseline=str(tmp_path / "b"))
    assert (list(found.scores), found.baseline) == (["a", "b"], "b")
    (row,) = [row for row in compare(found, baseline=found.baseline) if row.measure == FAITHFULNESS]
    assert (row.system, row.n, row.wins, row.losses, row.ties) == ("a", 4, 3, 0, 1)
    assert row.difference == pytest.approx((0.5 + 0 + 0.25 + 0.5) / 4)


def test_score_runs_adds_baseline_folder(tmp_path):
    for name in ("a", "b"):
        write_judged_folder(make_judged(), tmp_path / name)
    found = score_runs([str(tmp_path / "a")], baseline=str(tmp_path / "b"))
    assert (sorted(found.scores), found.baseline) == (["a", "b"], "b")


def change_second_sample(**changes):
    """Judged samples with fingerprints, after a change of sample q2."""
    found = make_judged()
    samples = [replace(sample, **changes) if sample.id == "q2" else sample for sample in found.samples]
    fingerprints = {sample.id: sample.fingerprint for sample in samples}
    return replace(found, samples=samples, scores=replace(found.scores, fingerprints=fingerprints))


def test_compare_changed_question_or_reference_raises(tmp_path):
    write_judged_folder(change_second_sample(), tmp_path / "a")
    write_judged_folder(change_second_sample(question="Who paid?"), tmp_path / "b")
    write_judged_folder(change_second_sample(reference="It is 312 m high."), tmp_path / "c")
    for name in ("b", "c"):
        message = (
            rf"sample `q2` has a different question or reference in {name} than in a \(1 of 4 common samples differ\)"
        )
        with pytest.raises(Incomparable, match=message):
            compare(score_runs([str(tmp_path / "a"), str(tmp_path / name)]))
        with pytest.raises(Incomparable, match="sample `q2` has a different question"):
            compare(
                score_runs([f"{folder_name}={tmp_path / folder_name / SCORES_FILE}" for folder_name in ("a", name)])
            )
        with pytest.raises(Incomparable, match="sample `q2` has a different question"):
            compare({folder_name: read_judged_folder(tmp_path / folder_name).scores for folder_name in ("a", name)})


def test_compare_changed_answer_or_missing_fingerprint_is_allowed(tmp_path):
    write_judged_folder(change_second_sample(), tmp_path / "a")
    write_judged_folder(
        change_second_sample(answer="It is blue.", question="How  high is it? ", reference=None), tmp_path / "b"
    )
    write_judged_folder(make_judged(), tmp_path / "c")  # without fingerprints of its samples
    for name in ("b", "c"):
        found = compare(score_runs([str(tmp_path / "a"), str(tmp_path / name)]))
        assert {row.difference for row in found} == {0.0}


def test_read_judged_folder_direction_unlike_manifest_raises(folder):
    rewrite_file(folder, SCORES_FILE, lambda text: text.replace(",false\n", ",true\n", 1))
    with pytest.raises(
        BadInput, match=r"scores.csv:2: lower_is_better of .*: expected false as in judge.json, got `true`"
    ):
        read_judged_folder(folder)


def test_read_scores_uses_direction_of_judged_folder(folder):
    """A table of scores has the measure directions of its folder."""
    tables, _ = read_scores(str(folder / SCORES_FILE))
    (table,) = tables.values()
    assert not table.direction_unstated
    assert table.lower_is_better == read_judged_folder(folder).scores.lower_is_better


def test_read_judged_folder_conflicting_fingerprint_raises(tmp_path):
    write_judged_folder(change_second_sample(), tmp_path / "a")
    fingerprints = read_judged_folder(tmp_path / "a").scores.fingerprints
    assert fingerprints == {sample.id: sample.fingerprint for sample in make_judged().samples}
    rewrite_file(tmp_path / "a", SCORES_FILE, lambda text: text.replace(fingerprints["q2"], "12345678-", 1))
    with pytest.raises(BadInput, match="`q2` has another fingerprint above"):
        read_judged_folder(tmp_path / "a")


def test_check_same_samples_accepts_more_but_not_fewer_or_others(folder):
    samples = list(make_judged().samples)
    other_answer = [replace(samples[0], answer="In Rome."), *samples[1:]]  # another answer to the same question
    labelled = [replace(samples[0], labels={"x": 1.0}), *samples[1:]]
    for accepted in (samples, other_answer, [*samples, Sample("q9", "Why?", "So.")], labelled):
        check_same_samples(folder, accepted)
    with pytest.raises(BadInput, match="the folder holds 4 judged samples, but only 2 of them were requested"):
        check_same_samples(folder, samples[:2])
    for changed in (replace(samples[0], question="Where else?"), replace(samples[0], reference="In Rome.")):
        with pytest.raises(BadInput, match="holds results of other samples: `q1` has another question or reference"):
            check_same_samples(folder, [changed, *samples[1:]])
    with pytest.raises(BadInput, match="holds results of other samples: `q2` is missing"):
        check_same_samples(folder, [samples[0], Sample("q9", "Why?", "So.")])
    (folder / MANIFEST_FILE).unlink()  # an incomplete folder is not checked
    check_same_samples(folder, [Sample("q9", "Why?", "So.")])


def test_compare_different_judges_raises(tmp_path):
    write_judged_folder(make_judged(), tmp_path / "model")
    write_judged_folder(make_lexical_judged(), tmp_path / "words")
    runs = score_runs([str(tmp_path / "model"), str(tmp_path / "words")])
    with pytest.raises(Incomparable, match=f"model is judged by `{MODEL}`, words by `lexical`".replace(".", r"\.")):
        compare(runs)
    tables = score_runs([f"m={tmp_path / 'model' / SCORES_FILE}", f"w={tmp_path / 'words' / SCORES_FILE}"])
    with pytest.raises(Incomparable, match="is judged by"):
        compare(tables)


def test_compare_different_conventions_raises(tmp_path):
    original = make_judged().scores
    columns = {name: original.values[name].tolist() for name in original.measures}
    other_scores = scores(columns, original.queries, convention="default, no_claims=one")
    write_judged_folder(make_judged(), tmp_path / "a")
    write_judged_folder(make_judged(scores=other_scores), tmp_path / "b")
    with pytest.raises(Incomparable, match="convention `default`, b under `default, no_claims=one`"):
        compare(score_runs([str(tmp_path / "a"), str(tmp_path / "b")]))


def test_report_writes_judged_samples_in_every_format(folder, tmp_path):
    found = read_judged_folder(folder)
    names = [tmp_path / f"out{ending}" for ending in (".html", ".json", ".csv", ".md")]
    assert ragauge.report(found, names) is found
    assert json.loads(names[1].read_text(encoding="utf-8"))["scores"]["values"][RECALL][1] == 0.0
    with names[2].open(encoding="utf-8", newline="") as file:
        rows = {row["measure"]: row for row in csv.DictReader(file)}
    assert (rows[PRECISION]["n"], rows[PRECISION]["unscored"]) == ("3", "1")
    assert names[3].read_text(encoding="utf-8").startswith("# toy\n")


def test_read_judged_scores_keeps_unscored_reasons(folder):
    found = read_judged_scores(folder)
    assert found.unscored[PRECISION] == {"q3": "the reply was cut off"}
    assert found.n[PRECISION] == 3
