"""Names of keyword arguments, as users of other libraries type them."""

from __future__ import annotations

import pickle
from types import FunctionType

import pytest

import ragauge
from ragauge.core.arguments import _argument_names
from ragauge.core.errors import UnknownName

FUNCTIONS = [name for name in ragauge.__all__ if isinstance(getattr(ragauge, name), FunctionType)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_function_metrics_names_own_argument(name):
    function = getattr(ragauge, name)
    known = _argument_names(function.__wrapped__)
    if known is None:
        pytest.skip("accepts any name")
    with pytest.raises(UnknownName, match=f"unknown argument `metrics` of {function.__name__}") as caught:
        function({}, {}, metrics=["ndcg@10"])
    own_name = next((name for name in ("measures", "measure") if name in known), None)
    if own_name is not None:
        assert caught.value.hint == f"use `{own_name}=['ndcg@10']`"
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    ("name", "options", "hint"),
    [
        ("evaluate", {"k": 5}, 'a cutoff is part of a measure: `measures=["ndcg@5"]`'),
        ("evaluate_runs", {"top_k": 5}, 'a cutoff is part of a measure: `measures=["ndcg@5"]`'),
        ("evaluate", {"dataset": []}, "answers are scored by `ragauge.judge(samples, measures=[…])`"),
        ("evaluate", {"qrels": [], "metrics": []}, "answers are scored by `ragauge.judge(samples, measures=[…])`"),
        ("run", {"top_k": 5}, "use `k=5`"),
        ("judge", {"metrics": [object()]}, "use `measures=…`"),
        ("judge", {"topk": 3}, "use `k=3`"),
    ],
)
def test_argument_of_other_library_names_own_argument(name, options, hint):
    with pytest.raises(UnknownName) as caught:
        getattr(ragauge, name)(**options)
    assert caught.value.hint == hint
