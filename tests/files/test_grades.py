"""Grades and scores of unusual types: converted, or refused with a message."""

from __future__ import annotations

import datetime
import json

import pandas as pd
import polars as pl
import pytest

from ragauge import BadInput, evaluate, read_judgments, read_run


def frame_of(values):
    return pl.DataFrame({"query": ["q", "q"], "doc": ["a", "b"], "grade": values})


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["0", "2"]), pl.String, pl.Decimal(10, 2), pl.UInt64])
def test_read_judgments_grade_column_of_any_type(tmp_path, dtype):
    frame = frame_of(pl.Series(["2", "0"]).cast(dtype))
    frame.write_parquet(tmp_path / "q.parquet")
    for value in (frame, tmp_path / "q.parquet"):
        assert read_judgments(value).nested == {"q": {"a": 2.0, "b": 0.0}}
        assert read_run(frame.rename({"grade": "score"})).nested == {"q": {"a": 2.0, "b": 0.0}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pl.Series(["high", "low"], dtype=pl.Categorical), "the grade of row 1 is not a number"),
        (pl.Series([datetime.date(2020, 1, 1)] * 2), "column `grade` must hold numbers, got Date"),
        (pl.Series([datetime.timedelta(1)] * 2), "column `grade` must hold numbers, got Duration"),
    ],
)
def test_read_judgments_grade_column_without_numbers_raises(values, message):
    with pytest.raises(BadInput) as error:
        read_judgments(frame_of(values))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "x"], "the grade of row 2 is not a number"),
        ([1, None], "the grade of row 2 is not a number"),
        ([1, [2]], "column `grade` must hold texts or numbers, got list"),
        ([object(), 1], "column `grade` must hold texts or numbers, got object"),
        ([10**400, 1], "the grade of document `a` for query `q` must be a number"),
    ],
)
def test_read_judgments_mixed_pandas_objects_raise(values, message):
    columns = {"query": ["q", "q"], "doc": ["a", "b"], "grade": pd.Series(values, dtype=object)}
    with pytest.raises(BadInput) as error:
        read_judgments(pd.DataFrame(columns))
    assert message in str(error.value)


def test_read_judgments_mixed_pandas_numbers_and_texts():
    columns = {"query": ["q", "q"], "doc": ["a", "b"], "grade": pd.Series([1.5, "2"], dtype=object)}
    assert read_judgments(pd.DataFrame(columns)).nested == {"q": {"a": 1.5, "b": 2.0}}
    with pytest.raises(BadInput, match="duplicate column `grade`"):
        read_judgments(pd.DataFrame([["q", "a", 1, 2]], columns=["query", "doc", "grade", "grade"]))


@pytest.mark.parametrize("grade", ["1", "high", None, [], 10**400])
def test_read_judgments_grade_that_is_not_a_number_raises(tmp_path, grade):
    message = "the grade of document `b` for query `q` must be a number, got "
    values = [{"q": {"a": 1, "b": grade}}]
    if grade != 10**400:
        (tmp_path / "q.json").write_text(json.dumps(values[0]))
        values.append(tmp_path / "q.json")
    for value in values:
        with pytest.raises(BadInput) as error:
            evaluate(value, {"q": {"a": 1.0}}, ["mrr"])
        assert message in str(error.value)


@pytest.mark.parametrize(
    "run", [[("q", "a", 10**400)], {"q": [("a", 10**400)]}, {"q": {"a": 10**400}}, {"q": {"a": "x"}}]
)
def test_read_run_score_that_is_not_a_number_raises(run):
    with pytest.raises(BadInput, match="the score of document `a` for query `q` must be a number, got "):
        read_run(run)
