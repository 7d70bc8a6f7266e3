"""Notebook output and data frames of results that are not records."""

from __future__ import annotations

import builtins
import math
import re
from dataclasses import replace

import pytest

import ragauge
from html_forms import check_fragment
from ragauge.core.findings import Audit, Finding
from ragauge.core.record_types import RESULT_MODULES, TabularResult, find_record_type, import_reporter
from ragauge.output.html_tables import MAX_FRAGMENT_ROWS, render_fragment
from ragauge.output.report import Report, ResultReporter, Section
from ragauge.output.tables import Column, Table

MARKUP = "<script>alert(1)</script>"
QRELS = {f"q{i}": {"d1": 1} for i in range(8)}
OLD_RUN = {query: {"d1": 1.0, "d2": 0.5} for query in QRELS}
NEW_RUN = {query: {"d2": 1.0, "d1": 0.5} if i % 2 else {"d1": 1.0} for i, query in enumerate(QRELS)}


def search(query, k):
    return ["d00001", "d00002"][:k]


def build_results():
    """Build one result of every type that is not a record."""
    scores = ragauge.evaluate_runs(QRELS, {"old": OLD_RUN, MARKUP: NEW_RUN}, ["mrr", "recall@1"])
    compared = ragauge.compare(scores, baseline="old")
    experiment = ragauge.run("synthetic:needles", {MARKUP: search, "bm25": "bm25"}, baseline="bm25")
    return {
        "Audit": ragauge.audit(QRELS, {MARKUP: NEW_RUN}),
        "Comparison": compared.rows[0],
        "Comparisons": compared,
        "Experiment": experiment,
        "ExperimentSet": ragauge.ExperimentSet({MARKUP: experiment}),
        "Gate": ragauge.gate(NEW_RUN, ["mrr >= 0.5", "mrr not worse"], qrels=QRELS, baseline=OLD_RUN),
        "Overview": ragauge.overview(experiment),
        "Scores": scores[MARKUP],
        "ScoresByRun": scores,
    }


@pytest.fixture(scope="module")
def results_by_type():
    return build_results()


@pytest.mark.parametrize(
    "name",
    ["Audit", "Comparison", "Comparisons", "Experiment", "ExperimentSet", "Gate", "Overview", "Scores", "ScoresByRun"],
)
def test_result_repr_html_is_escaped_and_frames_have_rows(results_by_type, name):
    text = results_by_type[name]._repr_html_()
    check_fragment(text)
    assert "<script" not in text
    if name not in ("Gate", "Audit"):
        assert "&lt;script&gt;alert(1)" in text
    assert results_by_type[name].to_polars().height > 0
    assert len(results_by_type[name].to_pandas()) == results_by_type[name].to_polars().height


RESULTS_WITHOUT_JSON = ("Comparison", "Experiment", "ExperimentSet", "Scores", "ScoresByRun")


def test_result_types_are_tabular():
    for schema in RESULT_MODULES:
        assert issubclass(find_record_type(schema).result_type, TabularResult), schema
    for name in RESULTS_WITHOUT_JSON:
        assert issubclass(getattr(ragauge, name), TabularResult), name
        assert isinstance(import_reporter(getattr(ragauge, name)), ResultReporter)


@pytest.mark.parametrize(
    "name",
    ["Audit", "Comparisons", "Experiment", "ExperimentSet", "Gate", "Overview", "Scores", "ScoresByRun"],
)
def test_result_repr_and_notebook_show_every_note(results_by_type, name):
    result = results_by_type[name]
    notes = [f"limitation {number}" for number in range(9)]
    if name == "ScoresByRun":
        result = ragauge.ScoresByRun({run: replace(scores, notes=notes) for run, scores in result.items()})
    elif name == "ExperimentSet":
        result = ragauge.ExperimentSet({"a": replace(results_by_type["Experiment"], notes=notes)})
    else:
        result = replace(result, notes=notes)
    for text in (repr(result), str(result), result._repr_html_()):
        assert all(note in text for note in notes)


def test_record_repr_html_is_escaped():
    finding = Finding(MARKUP, "empty", True, 1, MARKUP, [MARKUP], remedy=MARKUP)
    text = Audit([finding], notes=[f"run `{MARKUP}`"])._repr_html_()
    check_fragment(text)
    assert "<code>&lt;script&gt;" in text


def test_scores_repr_html_has_confidence_interval(results_by_type):
    text = check_fragment(results_by_type["Scores"]._repr_html_())
    assert re.search(r"0\.7500 \[0\.\d{4}, 0\.\d{4}\]", text)
    assert "95% confidence interval" in text


def test_experiment_to_polars_has_numeric_means_and_intervals(results_by_type):
    frame = results_by_type["Experiment"].to_polars()
    row = frame.filter((frame["system"] == "bm25") & (frame["measure"] == "mrr@10")).row(0, named=True)
    assert row["mean"] == results_by_type["Experiment"].scores["bm25"].means["mrr@10"]
    assert row["ci_low"] < row["mean"] < row["ci_high"]
    assert row["n"] == 100


def test_comparison_frame_matches_attributes(results_by_type):
    row = results_by_type["Comparison"]
    values = row.to_polars().row(0, named=True)
    assert values["difference"] == row.difference
    assert (values["ci_low"], values["ci_high"]) == row.ci
    assert row.to_pandas()["n"].tolist() == [8]


def test_table_to_polars_mixed_values_have_one_type_per_column():
    columns = [Column("n", "count"), Column("x", "score"), Column("ok"), Column("mixed"), Column("none")]
    frame = Table("t", columns, [[1, 2.5, True, "a", None], [None, math.nan, False, 3, math.nan]]).to_polars()
    assert frame.rows() == [(1, 2.5, True, "a", None), (None, None, False, "3", None)]
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "Float64", "Boolean", "String", "Float64"]
    assert Table("t", columns, []).to_polars().columns == ["n", "x", "ok", "mixed", "none"]


def test_render_fragment_long_table_is_truncated_with_note():
    table = Table("t", [Column("a", "count")], [[i] for i in range(MAX_FRAGMENT_ROWS + 5)])
    text = render_fragment(Report("t", "Title", "Summary.", [Section("s", "Rows", [table])]))
    assert f"The first {MAX_FRAGMENT_ROWS} of {MAX_FRAGMENT_ROWS + 5} rows" in check_fragment(text)


def test_to_polars_unregistered_type_raises_type_error():
    class UnregisteredResult(TabularResult):
        pass

    with pytest.raises(TypeError, match="UnregisteredResult declares no report"):
        UnregisteredResult().to_polars()


def test_to_pandas_missing_pandas_raises_missing_extra(monkeypatch):
    result = Audit([])
    load = builtins.__import__

    def without_pandas(name, *args, **kwargs):
        if name.partition(".")[0] in ("pandas", "pyarrow"):
            raise ImportError(f"No module named {name!r}")
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(ragauge.MissingExtra, match="a pandas frame needs an optional library"):
        result.to_pandas()
