"""Fusion: results of ranx, values computed by hand, and properties of random rankings."""

from __future__ import annotations

import copy
import json
import math
import random
import subprocess
import sys
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import run_python
from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.records import Run
from ragauge.evaluation.evaluate import evaluate
from ragauge.files.readers import read_run
from ragauge.fusion.fuse import fuse, tune
from ragauge.fusion.methods import METHODS, default_norm, find_method, simplex_weights
from ragauge.fusion.normalisation import NORMALISATIONS
from ragauge.fusion.query_fusion import fuse_query, fuse_runs, missing_queries, train
from ragauge.fusion.tuning import cross_validate, split_folds
from strategies import names

PLAIN = [name for name, row in METHODS.items() if row.train is None]
LEARNING = [name for name, row in METHODS.items() if row.train is not None]
RANX_PARAMETERS = {
    "slidefuse": {"w": 2},
    "gmnz": {"gamma": 0.7},
    "logn_isr": {"sigma": 0.2},
    "rbc": {"phi": 0.9},
    "rrf": {"k": 17},
}
RANX_PARAMETERS |= {
    name: {"weights": [0.4, 0.35, 0.25]}
    for name, row in METHODS.items()
    if name != "rrf" and "weights" in row.parameters
}


def random_runs(seed: int, *, runs: int = 3, queries: int = 4, docs: int = 30):
    """Build judgments and runs without ties, with queries in the order of ranx and some of the documents each."""
    rng = random.Random(seed)
    run_list = []
    for _ in range(runs):
        run = {}
        for q in range(queries):
            ranking = [f"d{i}" for i in range(docs) if rng.random() < 0.6] or ["d0"]
            scores = rng.sample(range(1, 10**6), len(ranking))
            run[f"q{q}"] = {doc: score / 1024 for doc, score in zip(ranking, scores, strict=True)}
        run_list.append(run)
    qrels = {f"q{q}": {f"d{i}": rng.randint(0, 2) for i in range(0, docs, 2)} | {"d1": 1} for q in range(queries)}
    return run_list, qrels


def make_transitive_rankings(run_count: int, docs: int, seed: int):
    """Build rankings of all documents, each with two neighbours swapped, so that majorities agree on an order."""
    rng = random.Random(seed)
    lists = []
    for _ in range(run_count):
        order = list(range(docs))
        position = rng.randrange(docs - 1)
        order[position], order[position + 1] = order[position + 1], order[position]
        lists.append({f"d{i}": float(docs - place) for place, i in enumerate(order)})
    return lists


# Comparison with ranx ---------------------------------------------------------------------------------------------

SCALES = [None, "min-max", "max", "sum", "zmuv", "rank", "min-max-inverted", "borda"]
RANX_SCRIPT = """
import json, sys
import ranx
from ranx import fusion
from ranx.normalization import norm_switch

WORDS = {"bayesfuse": "log_odds", "mapfuse": "map_scores"}
for line in sys.stdin:
    job = json.loads(line)
    params = job["params"]
    if job["qrels"]:
        scaled = norm_switch(job["norm"]) if job["norm"] else lambda run: run
        past = [scaled(ranx.Run(run)) for run in job["past"]]
        learned = getattr(fusion, job["method"] + "_train")(ranx.Qrels(job["qrels"]), past, **job["learning"])
        params = params | {WORDS.get(job["method"], "probs"): learned}
    runs = [ranx.Run(run) for run in job["runs"]]
    fused = ranx.fuse(runs, norm=job["norm"], method=job["method"], params=params)
    print(json.dumps({query: {d: float(s) for d, s in docs.items()} for query, docs in fused.run.items()}))
"""


def ranx_jobs():
    """Yield jobs of every method and normalisation on rankings without ties, for three runs and for two."""
    for first_seed, (method, scale, count) in enumerate(product(METHODS, SCALES, (3, 2))):
        learns = METHODS[method].train is not None
        if scale == "borda" and METHODS[method].input_kind != "scores":
            continue  # after borda, ranx ranks documents in the order of a set, which varies
        if "condorcet" in method:
            if count == 2:
                continue  # ranx also sorts documents with tied votes in the order of a set
            rankings_by_query = [make_transitive_rankings(3, 12, seed) for seed in range(first_seed, first_seed + 4)]
            runs = [{f"q{q}": lists[i] for q, lists in enumerate(rankings_by_query)} for i in range(3)]
        else:
            runs, _ = random_runs(first_seed, runs=count)
        past, qrels = random_runs(1000 + first_seed, runs=count, queries=6) if learns else (None, None)
        params = {name: v[:count] if name == "weights" else v for name, v in RANX_PARAMETERS.get(method, {}).items()}
        learning = {"n_segments": 7} if method == "probfuse" else {}
        yield {
            "method": method, "norm": scale, "runs": runs, "params": params,
            "past": past, "qrels": qrels, "learning": learning,
        }  # fmt: skip


@pytest.fixture(scope="module")
def ranx_results():
    """Return pairs of a job and its result in ranx."""
    pytest.importorskip("ranx")
    job_list = list(ranx_jobs())
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RANX_SCRIPT],
        input="".join(json.dumps(job) + "\n" for job in job_list),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    fused_runs = [json.loads(line) for line in process.stdout.splitlines()]
    return list(zip(job_list, fused_runs, strict=True))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.slow
def test_fuse_runs_matches_ranx(method, ranx_results):
    n_compared = 0
    for job, expected in ranx_results:
        if job["method"] != method:
            continue
        scale = job["norm"] or "none"
        trained = train(method, job["qrels"], job["past"], scale, **job["learning"]) if job["qrels"] else None
        actual = fuse_runs(job["runs"], method, scale, trained=trained, **job["params"])
        assert actual.keys() == expected.keys()
        for query in actual:
            assert actual[query] == pytest.approx(expected[query], abs=1e-9, rel=1e-9), (scale, query)
            n_compared += 1
    assert n_compared >= 28


def test_find_method_accepts_names_of_ranx():
    assert len(METHODS) == 25
    assert len(NORMALISATIONS) == 9  # 7 of ranx, `none`, and `min-max-found` for live hybrids
    for name, row in METHODS.items():
        assert find_method(name.replace("_", "-").upper()) is row
    assert find_method("CombMNZ") is find_method("comb_mnz") is METHODS["mnz"]
    assert fuse_query([{"a": 1.0}], "sum", "min_max") == fuse_query([{"a": 1.0}], "sum", "min-max")
    with pytest.raises(UnknownName, match="did you mean `rrf`"):
        fuse_query([{"a": 1.0}], "rff")
    with pytest.raises(UnknownName, match="did you mean `zmuv`"):
        fuse_query([{"a": 1.0}], "sum", "zmvu")
    assert [default_norm(m) for m in ("rrf", "wsum", "segfuse", "posfuse")] == ["none", "min-max", "min-max", "none"]


def test_fusion_docs_match_method_and_norm_tables():
    page = (Path(__file__).parents[2] / "docs" / "fusion.md").read_text()
    for name, row in METHODS.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| `{name}` | "))
        assert row.description in line
        assert row.paper in line
        for parameter_name, parameter in row.parameters.items():
            label = parameter_name if parameter.default is None else f"{parameter_name}={parameter.default}"
            assert f"`{label}`" in line
    for name, normalisation in NORMALISATIONS.items():
        assert f"| `{name}` | {normalisation.description} |" in page


# Values computed by hand ------------------------------------------------------------------------------------------

BM25 = {"a": 12.0, "b": 9.0, "c": 4.0}
DENSE = {"c": 0.9, "a": 0.8, "d": 0.5}


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("rrf", {}, {"a": 1 / 61 + 1 / 62, "c": 1 / 63 + 1 / 61, "b": 1 / 62, "d": 1 / 63}),
        ("rrf", {"k": 0, "weights": [2, 1]}, {"a": 2.5, "c": 2 / 3 + 1, "b": 1.0, "d": 1 / 3}),
        ("wsum", {"weights": [0.6, 0.4]}, {"a": 0.6 + 0.4 * 0.75, "c": 0.4, "b": 0.6 * 0.625, "d": 0.0}),
        ("sum", {}, {"a": 1.75, "c": 1.0, "b": 0.625, "d": 0.0}),
        ("mnz", {}, {"a": 3.5, "c": 2.0, "b": 0.625, "d": 0.0}),
        ("anz", {}, {"a": 0.875, "b": 0.625, "c": 0.5, "d": 0.0}),
        ("med", {}, {"a": 0.875, "b": 0.625, "c": 0.5, "d": 0.0}),
        ("max", {}, {"c": 1.0, "a": 1.0, "b": 0.625, "d": 0.0}),
        ("min", {}, {"a": 0.75, "b": 0.625, "d": 0.0, "c": 0.0}),
        ("isr", {}, {"a": 2 * (1 + 1 / 4), "c": 2 * (1 / 9 + 1), "b": 1 / 4, "d": 1 / 9}),
        ("log_isr", {}, {"a": 1.25 * math.log(2), "c": (1 / 9 + 1) * math.log(2), "d": 0.0, "b": 0.0}),
        # Four candidates: each ranking gives 4, 3 and 2 points, and the document that it lacks gets the remaining 1.
        ("bordafuse", {}, {"a": 7.0, "c": 6.0, "b": 4.0, "d": 3.0}),
        ("rbc", {"phi": 0.5}, {"a": 0.75, "c": 0.625, "b": 0.25, "d": 0.125}),
        # a and c tie (1:1), and both beat d. a beats b. c and b tie, and b and d tie.
        ("condorcet", {}, {"a": 1 + 0.5 + 1 + 1, "c": 1 + 0.5 + 0.5 + 1, "b": 1 + 0.5 + 0.5, "d": 1 + 0.5}),
    ],
)
def test_fuse_query_methods_by_hand(method, params, expected):
    result = fuse_query([BM25, DENSE], method, **params)
    assert result == pytest.approx(expected)
    assert list(result) == list(expected)


def test_condorcet_cyclic_majorities_count_victories():
    circle = [{"a": 3.0, "b": 2.0, "c": 1.0}, {"b": 3.0, "c": 2.0, "a": 1.0}, {"c": 3.0, "a": 2.0, "b": 1.0}]
    assert fuse_query(circle, "condorcet") == {"c": 2.0, "b": 2.0, "a": 2.0}
    assert list(fuse_query(circle, "w_condorcet", weights=[0.5, 0.3, 0.1])) == ["a", "b", "c"]
    # 0.1 + 0.2 is not 0.3 in floats, but these votes tie.
    two = {"a": 2.0, "b": 1.0}
    assert fuse_query([two, two, {"b": 2.0, "a": 1.0}], "w_condorcet", weights=[0.1, 0.2, 0.3]) == {"b": 1.5, "a": 1.5}


def test_condorcet_blocks_return_equal_scores(monkeypatch):
    from ragauge.fusion import untrained_methods

    lists = [run["q0"] for run in random_runs(5, docs=50)[0]]
    expected = fuse_query(lists, "condorcet")
    monkeypatch.setattr(untrained_methods, "_PAIRS_PER_BLOCK", 60)
    assert fuse_query(lists, "condorcet") == expected


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        ("none", {"a": 12.0, "b": 9.0, "c": 4.0}),
        ("min-max", {"a": 1.0, "b": 0.625, "c": 0.0}),
        ("min-max-inverted", {"c": 1.0, "b": 0.375, "a": 0.0}),
        ("max", {"a": 1.0, "b": 0.75, "c": 1 / 3}),
        ("sum", {"a": 8 / 13, "b": 5 / 13, "c": 0.0}),
        ("rank", {"a": 1.0, "b": 2 / 3, "c": 1 / 3}),
        ("borda", {"a": 1.0, "b": 2 / 3, "c": 1 / 3}),
    ],
)
def test_fuse_query_norms_by_hand(norm, expected):
    result = fuse_query([BM25], "sum", norm)
    assert result == pytest.approx(expected)
    assert list(result) == list(expected)


def test_zmuv_has_zero_mean_and_unit_variance():
    values = list(fuse_query([BM25], "sum", "zmuv").values())
    assert (np.mean(values), np.std(values)) == pytest.approx((0, 1))


@pytest.mark.parametrize("norm", ["min-max", "min-max-inverted", "sum", "zmuv"])
def test_norms_of_equal_scores_return_zero(norm):
    assert fuse_query([{"a": 0.1, "b": 0.1, "c": 0.1}], "sum", norm) == {"c": 0.0, "b": 0.0, "a": 0.0}
    assert fuse_query([{"a": 7.0}], "sum", norm) == {"a": 0.0}


# Properties of random rankings ------------------------------------------------------------------------------------

rankings = st.lists(
    st.dictionaries(names("d", 9), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 3.0]), max_size=10), min_size=1, max_size=4
)


def train_method(method, runs):
    qrels = {"q": {"d1": 1, "d2": 0, "d3": 2}}
    return train(method, qrels, [{"q": run} for run in runs]) if METHODS[method].train else None


@given(rankings, st.sampled_from(list(METHODS)), st.sampled_from([n for n in NORMALISATIONS if n != "max"]), st.data())
def test_fuse_query_ignores_dict_order_and_keeps_inputs(runs, method, norm, data):
    trained = train_method(method, runs)
    before = copy.deepcopy(runs)
    result = fuse_query(runs, method, norm, trained=trained)
    assert runs == before
    assert [list(run) for run in runs] == [list(run) for run in before]
    shuffled = [dict(data.draw(st.permutations(list(run.items())))) for run in runs]
    second = fuse_query(shuffled, method, norm, trained=trained)
    assert list(second.items()) == list(result.items())
    assert set(result) == {doc for run in runs for doc in run}
    assert list(result.items()) == sorted(result.items(), key=lambda p: (p[1], p[0]), reverse=True)
    assert all(type(value) is float and math.isfinite(value) for value in result.values())


@given(rankings, st.sampled_from(PLAIN))
def test_fuse_query_ignores_order_of_unweighted_runs(runs, method):
    result = list(fuse_query(runs, method).items())
    for order in permutations(runs):
        assert list(fuse_query(order, method).items()) == result


def test_fuse_query_ties_are_sorted_by_descending_id():
    assert fuse_query([{"a": 1.0, "b": 1.0}], "isr") == {"b": 1.0, "a": 0.25}
    assert list(fuse_query([{"a": 2.0, "x": 1.0}, {"b": 9.0, "y": 8.0}])) == ["b", "a", "y", "x"]
    # As distances: the two nearest documents tie, so ids decide their order.
    assert fuse_query([{"a": 1.0, "b": 1.0, "c": 5.0}], "isr", "min-max-inverted") == {"b": 1.0, "a": 0.25, "c": 1 / 9}


@pytest.mark.parametrize("method", METHODS)
def test_fuse_query_accepts_empty_rankings(method):
    runs = [{"a": 2.0, "b": 1.0}, {}]
    trained = train_method(method, runs)
    assert list(fuse_query(runs, method, trained=trained)) in (["a", "b"], ["b", "a"])
    assert fuse_query([{}, {}], method, trained=trained) == {}
    for norm in NORMALISATIONS:
        assert set(fuse_query(runs, method, norm, trained=trained)) == {"a", "b"}
    model = train_method(method, runs[:1])
    assert set(fuse_query(runs[:1], method, trained=model)) == {"a", "b"}
    with pytest.raises(BadInput, match=r"no (rankings|runs) to fuse"):
        fuse_query([], method, trained=trained)


def test_fuse_query_ranks_use_scores_before_normalisation():
    close = {"b": 1.0, "a": 1.0 + 2**-52, "far": -1e6}
    assert fuse_query([close], "isr", "min-max") == fuse_query([close], "isr", "none")


def test_fuse_query_converts_numpy_and_integer_scores_to_float():
    result = fuse_query([{"a": np.float32(0.5), "b": 1, "c": np.int64(3)}], "sum", "none")
    assert result == {"c": 3.0, "b": 1.0, "a": 0.5}
    assert {type(v) for v in result.values()} == {float}
    assert fuse_query([BM25, DENSE], "wsum", weights=np.array([1, 0])) == fuse_query(
        [BM25, DENSE], "wsum", weights=[1, 0]
    )


@pytest.mark.parametrize("score", [math.nan, math.inf, None, "0.5", 10**400])
def test_fuse_query_non_finite_score_raises_naming_document(score):
    with pytest.raises(BadInput, match="document `b`"):
        fuse_query([{"a": 1.0, "b": score}])
    with pytest.raises(BadInput, match="query `q1`: the score of document `b`"):
        fuse_runs([{"q1": {"a": 1.0, "b": score}}])


def test_fuse_query_max_norm_of_negative_scores_raises():
    with pytest.raises(BadInput, match="needs a best score above 0"):
        fuse_query([{"a": -1.0, "b": -2.0}], "sum", "max")
    assert fuse_query([{"a": 0.0}, {}], "sum", "max") == {"a": 0.0}


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("rrf", {"k": -1}, "`k` of rrf must be a number of at least 0, got -1"),
        ("rrf", {"k": "60"}, "must be a number"),
        ("rrf", {"phi": 1}, "rrf has no parameter `phi`"),
        ("sum", {"k": 1}, "it has none"),
        ("rbc", {"phi": 1.0}, "less than 1"),
        ("logn_isr", {"sigma": 2}, "from 0 to 1"),
        ("gmnz", {"gamma": math.nan}, "must be a number"),
        ("gmnz", {"gamma": 5000}, "from -9 to 9"),
        ("wsum", {"weights": [0.5, 0.3, 0.2]}, "expected 2 weights, one per run, got 3"),
        ("wsum", {"weights": [-1, 2]}, "at least 0"),
        ("wsum", {"weights": [0, 0]}, "not all 0"),
        ("wsum", {"weights": 3}, "one number"),
        ("wsum", {"weights": []}, "one number"),
    ],
)
def test_fuse_query_invalid_parameter_raises(method, params, message):
    with pytest.raises(BadInput, match=message):
        fuse_query([BM25, DENSE], method, **params)


def test_fuse_runs_unequal_query_sets_are_joined():
    runs = [{"q2": {"a": 1.0}, "q1": {"a": 1.0}}, {"q3": {"b": 1.0}, "q1": {"b": 1.0}}]
    result = fuse_runs(runs, "isr")
    assert result == {"q2": {"a": 1.0}, "q1": {"b": 1.0, "a": 1.0}, "q3": {"b": 1.0}}
    assert list(result) == ["q2", "q1", "q3"]
    assert missing_queries(runs) == [1, 1]
    assert fuse_runs(runs, "isr", depth=1)["q1"] == {"b": 1.0}
    with pytest.raises(BadInput, match="depth must be at least 1, got"):
        fuse_runs(runs, "isr", depth=0)


# Learning and tuning ----------------------------------------------------------------------------------------------


def test_train_by_hand():
    qrels = {"q1": {"a": 1, "z": 1}, "q2": {"b": 2}}
    run = {"q1": {"a": 3.0, "b": 2.0, "z": 1.0}, "q2": {"a": 2.0, "b": 1.0}}
    assert train("mapfuse", qrels, [run]).rows[0] == pytest.approx([((1 + 2 / 3) / 2 + 1 / 2) / 2])
    assert train("posfuse", qrels, [run]).rows[0] == pytest.approx([0.5, 0.5, 1.0])
    assert train("probfuse", qrels, [run], n_segments=2).rows[0] == pytest.approx([0.25, 1.0])
    assert train("segfuse", qrels, [run]).rows[0][0] == pytest.approx((2 / 5 + 1 / 5) / 2)
    assert train("bayesfuse", qrels, [run]).rows[0][0] == pytest.approx(math.log(0.3 / 0.7))
    assert train("mapfuse", qrels, [run], rel=2).rows[0] == pytest.approx([0.25])


def test_fuse_runs_unsuitable_trained_values_raise():
    qrels, runs = {"q": {"a": 1}}, [{"q": BM25}, {"q": DENSE}]
    with pytest.raises(MissingEvidence, match="must first learn"):
        fuse_runs(runs, "posfuse")
    with pytest.raises(BadInput, match="expected values that posfuse learned from 2 runs, got those of mapfuse"):
        fuse_runs(runs, "posfuse", trained=train("mapfuse", qrels, runs))
    with pytest.raises(BadInput, match="learned from 1 runs"):
        fuse_runs(runs[:1], "posfuse", trained=train("posfuse", qrels, runs))
    with pytest.raises(BadInput, match="belongs to training"):
        fuse_runs(runs, "probfuse", trained=train("probfuse", qrels, runs), n_segments=3)
    with pytest.raises(BadInput, match="rrf has no values to learn"):
        train("rrf", qrels, runs)
    with pytest.raises(BadInput, match="rrf does not use learned values"):
        fuse_runs(runs, "rrf", trained=train("mapfuse", qrels, runs))
    with pytest.raises(MissingEvidence):
        train("posfuse", {}, runs)


@pytest.mark.parametrize("method", LEARNING)
def test_fuse_query_ranks_beyond_training_depth_are_finite(method):
    trained = train(method, {"q": {"a": 1}}, [{"q": BM25}, {"q": DENSE}])
    deep = {f"d{i:05}": float(6000 - i) for i in range(6000)}
    result = fuse_query([deep, {}], method, trained=trained)
    assert len(result) == 6000
    assert all(map(math.isfinite, result.values()))


def make_scorer(qrels, measure="ndcg@10"):
    return lambda fused: evaluate({q: qrels[q] for q in fused}, fused, measure).per_query[measure]


@pytest.mark.parametrize("method", ["wsum", "rrf", "rbc", "posfuse", "probfuse", "slidefuse", "bayesfuse"])
def test_cross_validate_fold_is_independent_of_its_judgments(method):
    runs, qrels = random_runs(7, queries=12)
    first = cross_validate(runs, qrels, method, score=make_scorer(qrels), folds=3)
    for fold in first.folds:
        rng = random.Random(1)
        changed = {q: {d: rng.randint(0, 2) for d in docs} if q in fold.queries else docs for q, docs in qrels.items()}
        second = cross_validate(runs, changed, method, score=make_scorer(changed), folds=3)
        assert fold in second.folds
        for query in fold.queries:
            assert list(second.run[query].items()) == list(first.run[query].items())
    assert {q for fold in first.folds for q in fold.queries} == set(qrels)
    assert sum(len(fold.queries) for fold in first.folds) == len(qrels)


def test_cross_validate_prefers_better_run_and_reports_optimism():
    rng = random.Random(3)
    qrels = {f"q{i}": {f"d{j}": int(j < 3) for j in range(20)} for i in range(20)}
    good = {q: {f"d{j}": (j < 3) + rng.gauss(0, 0.4) for j in range(20)} for q in qrels}
    noise = {q: {f"d{j}": rng.gauss(0, 1) for j in range(20)} for q in qrels}
    tuned = cross_validate([good, noise], qrels, "wsum", score=make_scorer(qrels))
    assert tuned.params["weights"][0] >= 0.7
    assert len(tuned.folds) == 5
    assert tuned.tried[0][0] == {"weights": (0.5, 0.5)}
    assert max(value for _, value in tuned.tried) == pytest.approx(tuned.in_sample_mean)
    assert tuned.optimism == pytest.approx(tuned.in_sample_mean - tuned.mean)
    assert tuned.optimism >= 0
    assert tuned.scores == pytest.approx(make_scorer(qrels)({q: tuned.run[q] for q in qrels}))
    assert tuned.norm == "min-max"


def test_cross_validate_posfuse_has_positive_optimism():
    runs, qrels = random_runs(11, queries=10)
    tuned = cross_validate(runs, qrels, "posfuse", score=make_scorer(qrels, "map"))
    assert tuned.optimism > 0.01
    assert tuned.trained is not None
    assert tuned.trained.queries == 10
    assert fuse_runs(runs, "posfuse", trained=tuned.trained)["q0"]


def test_cross_validate_unjudged_queries_use_overall_parameters():
    runs, qrels = random_runs(13, queries=8)
    judged = {q: qrels[q] for q in list(qrels)[:6]}
    tuned = cross_validate(runs, judged, "rrf", score=make_scorer(judged), folds=2)
    assert set(tuned.run) == set(qrels)
    assert tuned.run["q7"] == fuse_runs(runs, "rrf", **tuned.params)["q7"]
    assert set(tuned.scores) == set(judged)


def test_cross_validate_accepts_grid_of_values_or_combinations():
    runs, qrels = random_runs(17, queries=6)
    values = cross_validate(
        runs, qrels, "rrf", score=make_scorer(qrels), folds=2, grid={"k": [1, 60], "weights": [None, [1, 2, 3]]}
    )
    listed = cross_validate(
        runs, qrels, "rrf", score=make_scorer(qrels), folds=2, grid=[dict(params) for params, _ in values.tried]
    )
    assert len(values.tried) == 4
    assert listed.run == values.run
    tuned_grid = cross_validate(runs, qrels, "probfuse", score=make_scorer(qrels), folds=2, grid={"n_segments": [2, 4]})
    assert tuned_grid.params["n_segments"] in (2, 4)


def test_cross_validate_invalid_arguments_raise():
    runs, qrels = random_runs(19, queries=4)
    with pytest.raises(BadInput, match="4 judged queries cannot be split into 5 folds"):
        cross_validate(runs, qrels, "rrf", score=make_scorer(qrels))
    with pytest.raises(BadInput, match="folds must be at least 2"):
        cross_validate(runs, qrels, "rrf", score=make_scorer(qrels), folds=1)
    with pytest.raises(BadInput, match="no parameters to tune"):
        cross_validate(runs, qrels, "isr", score=make_scorer(qrels), folds=2)
    with pytest.raises(BadInput, match="grid is empty"):
        cross_validate(runs, qrels, "rrf", score=make_scorer(qrels), folds=2, grid=[])
    with pytest.raises(BadInput, match="has no parameter `phi`"):
        cross_validate(runs, qrels, "rrf", score=make_scorer(qrels), folds=2, grid={"phi": [1]})
    with pytest.raises(MissingEvidence, match="scores none"):
        cross_validate(runs, qrels, "rrf", score=lambda fused: {}, folds=2)


def test_split_folds_depends_on_seed_but_not_query_order():
    queries = [f"q{i}" for i in range(11)]
    assert split_folds(queries, 3, 0) == split_folds(queries[::-1], 3, 0)
    assert split_folds(queries, 3, 0) != split_folds(queries, 3, 1)
    assert sorted(map(len, split_folds(queries, 3, 0))) == [3, 4, 4]


@pytest.mark.parametrize("runs", range(1, 20))
def test_simplex_weights_start_equal_and_sum_to_1(runs):
    grid = simplex_weights(runs)
    assert len(grid) <= 101
    assert grid[0] == (1 / runs,) * runs
    assert len(set(grid)) == len(grid)
    assert all(math.isclose(sum(weights), 1) and len(weights) == runs for weights in grid)


# Function and command ---------------------------------------------------------------------------------------------


def test_fuse_accepts_paths_runs_and_dicts_and_names_result(tmp_path):
    import polars as pl

    path = tmp_path / "bm25.run"
    path.write_text("q1 Q0 a 1 2.0 t\nq1 Q0 b 2 1.0 t\n")
    record = Run(pl.DataFrame({"query": ["q1"], "doc": ["b"], "score": [0.5]}), "dense")
    result = fuse([path, record, {"q1": {"c": 1.0}}], "comb_sum", "rank")
    assert result.name == "sum(bm25+dense+3)"
    assert result.nested == {"q1": {"b": 1.5, "c": 1.0, "a": 1.0}}
    assert fuse({"x": str(path), "y": record}, weights=[1, 0], k=0).name == "rrf(x+y)"
    assert fuse([path, path]).name == "rrf(bm25+bm25.2)"
    assert evaluate({"q1": {"b": 1}}, result, "mrr").means["mrr"] == 1.0
    for source in (path, record, {"q1": {"c": 1.0}}):
        with pytest.raises(BadInput, match="got one run"):
            fuse(source)


def test_fuse_duplicate_document_raises(tmp_path):
    path = tmp_path / "twice.run"
    path.write_text("q1 Q0 a 1 2.0 t\nq1 Q0 a 2 1.0 t\n")
    with pytest.raises(BadInput, match="document `a` appears more than once in the ranking of query `q1`"):
        fuse([path, {"q1": {"c": 1.0}}])


def test_tune_requires_one_measure():
    runs, qrels = random_runs(23, queries=6)
    tuned = tune(qrels, runs, "rrf", measure="nDCG@5", folds=3)
    assert tuned.mean == pytest.approx(np.mean(list(tuned.scores.values())))
    with pytest.raises(BadInput, match="tuning needs one measure"):
        tune(qrels, runs, "rrf", measure="all_trec", folds=3)


@pytest.fixture
def run_fuse(tmp_path):
    """Write judgments and two runs to a folder; return a function that runs `fuse` there."""
    rng = random.Random(0)
    (tmp_path / "qrels.txt").write_text("".join(f"q{i} 0 d{rng.randrange(5)} 1\n" for i in range(6)))
    for name, count in (("bm25", 6), ("dense", 5)):
        rows = [f"q{i} Q0 d{j} 1 {rng.random()} {name}\n" for i in range(count) for j in range(5)]
        (tmp_path / f"{name}.run").write_text("".join(rows))

    def run(*arguments, fails=False):
        process = run_python(["-m", "ragauge", "fuse", *arguments], tmp_path)
        assert (process.returncode != 0) == fails, process.stderr
        return process

    return run


def test_cli_fuse_writes_run_and_notes(run_fuse, tmp_path):
    process = run_fuse("bm25.run", "dense.run")
    assert process.stdout.splitlines()[0].endswith("rrf(bm25+dense)")
    assert process.stderr.splitlines() == [
        "note: rrf(k=60), norm none: 2 runs, 6 queries",
        "note: dense lacks 1 of 6 queries; these are fused from the other runs",
    ]
    process = run_fuse(
        "bm25.run", "dense.run", "-o", "out.json", "--method", "wsum", "--weights", "0.7,0.3", "--depth", "2"
    )
    assert process.stdout == ""
    assert "wsum(weights=0.7,0.3), norm min-max" in process.stderr
    assert {len(docs) for docs in read_run(tmp_path / "out.json").nested.values()} == {2}
    assert "k=5" in run_fuse("bm25.run", "dense.run", "--method", "rrf(k=5)").stderr


def test_cli_fuse_tune_prints_folds_and_parameters(run_fuse):
    process = run_fuse(
        *("bm25.run", "dense.run", "--tune", "--qrels", "qrels.txt", "--method", "wsum", "--folds", "3", "-m", "mrr"),
        "--verbose",
    )
    lines = process.stderr.splitlines()
    assert [line.split(",")[0] for line in lines if line.startswith("note: fold")] == [
        f"note: fold {i}" for i in (1, 2, 3)
    ]
    scores = next(line for line in lines if line.startswith("note: mrr out of fold 0."))
    assert "in sample 0." in scores
    assert "; parameters chosen on all of them: weights=" in scores
    trained = run_fuse("bm25.run", "--tune", "--qrels", "qrels.txt", "--method", "mapfuse")
    assert "trained on the others" in trained.stderr


def test_tune_without_shared_queries_raises(run_fuse, tmp_path):
    with pytest.raises(
        BadInput, match="the runs and the judgments share no query: the judgments have `x`, the runs `q0`"
    ):
        tune({"x": {"d1": 1}, "y": {"d1": 1}}, [{"q0": {"d1": 1.0}}], folds=2)
    (tmp_path / "other.txt").write_text("".join(f"p{i} 0 d1 1\n" for i in range(6)))
    process = run_fuse("bm25.run", "dense.run", "--tune", "--qrels", "other.txt", "-o", "out.run", fails=True)
    assert "share no query" in process.stderr
    assert not (tmp_path / "out.run").exists()
    (tmp_path / "few.txt").write_text("".join(f"q{i} 0 d1 1\n" for i in range(4, 10)))
    lines = run_fuse("bm25.run", "dense.run", "--tune", "--qrels", "few.txt", "-m", "mrr", "--folds", "2").stderr
    assert "judged queries in no run, which score 0: 4 of 6 (q6, q7, q8, q9)" in lines
    assert "; queries without judgments: 4 of 6 (q0, q1, q2, q3)" in lines
    assert "out of fold" in lines


def test_cli_fuse_tune_uses_minimum_relevant_grade(run_fuse, tmp_path):
    grades = "".join(f"q{i} 0 d{j} {1 + (j == i % 5)}\n" for i in range(6) for j in range(5))
    (tmp_path / "graded.txt").write_text(grades)
    tuning = ("bm25.run", "dense.run", "--tune", "--qrels", "graded.txt", "-m", "mrr", "--folds", "3")
    assert "mrr out of fold 1.0000" in run_fuse(*tuning).stderr
    assert "mrr out of fold 0." in run_fuse(*tuning, "--rel", "2").stderr
    assert "--rel has no effect without --tune" in run_fuse("bm25.run", "--rel", "2", fails=True).stderr


@pytest.mark.parametrize("scale", [2.0**1023, 2.0**-1000])
@pytest.mark.parametrize("norm", [name for name in NORMALISATIONS if name != "none"])
def test_fuse_extreme_scores_equal_moderate_ones(norm, scale):
    """No normalisation depends on the unit of the scores, so differences must not overflow."""
    runs = [{"a": 1.75, "b": 0.5, "c": -1.5}, {"c": 1.5, "a": -1.25}]
    if norm == "max":
        runs = [{doc: abs(score) for doc, score in run.items()} for run in runs]
    extreme = [{doc: score * scale for doc, score in run.items()} for run in runs]
    assert fuse_query(extreme, "combsum", norm) == fuse_query(runs, "combsum", norm)


def test_fuse_score_beyond_the_largest_number_raises():
    with pytest.raises(BadInput, match="the fused score of document `a` exceeds the largest number"):
        fuse([{"q": {"a": 1.7e308}}, {"q": {"a": 1e308}}], "combsum", "none")


@pytest.mark.slow
def test_cli_fuse_invalid_input_prints_error(run_fuse):
    for arguments, message in [
        ([], "no run given; expected at least one RUN"),
        (["bm25.run", "dense.run", "--weights", "1,2,3"], "expected 2 weights, one per run, got 3"),
        (["bm25.run", "dense.run", "--method", "rrf(k)"], "cannot be read"),
        (["bm25.run", "dense.run", "--method", "rrf(k=high)"], "`k` of rrf must be a number of at least 0, got 'high'"),
        (["bm25.run", "dense.run", "--method", "rff"], "did you mean `rrf`?"),
        (
            ["bm25.run", "dense.run", "--tune", "--qrels", "qrels.txt", "--method", "rrf(k=1)"],
            "--tune chooses the parameters itself",
        ),
        (["bm25.run", "dense.run", "--method", "posfuse"], "must first learn"),
        (["bm25.run", "dense.run", "--tune"], "--tune needs judgments"),
        (["bm25.run", "dense.run", "--qrels", "qrels.txt"], "--qrels has no effect without --tune"),
        (["-", "-"], "standard input can be read only once"),
    ]:
        assert message in run_fuse(*arguments, fails=True).stderr


def test_cli_fuse_list_has_every_name_within_80_columns(run_fuse):
    lines = run_fuse("--list").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    first = {line.split()[0] for line in lines if line}
    assert set(METHODS) | set(NORMALISATIONS) <= first
