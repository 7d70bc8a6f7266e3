"""Resampling on threads, processes and a cluster: the same numbers, to the last bit, as in this process alone."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import ragauge
from command import forked
from ragauge.stats.repeated_trials import hierarchical_bootstrap_means
from ragauge.stats.resampling import (
    ExactSums,
    bootstrap_means,
    generator_at,
    generator_state,
    map_rounds,
    sign_flipped_sums,
    stream_starts,
)
from worker_resampling import Counted, Drawn

RNG = np.random.default_rng(7)


class Counting(ThreadPoolExecutor):
    """Threads that know how much they were given."""

    given = 0

    def submit(self, *arguments, **more):
        self.given += 1
        return super().submit(*arguments, **more)


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def threads():
    with Counting(2) as pool:
        yield pool


@pytest.fixture(params=["threads", "processes", "workers"])
def executor(request):
    found = request.getfixturevalue(request.param)
    return getattr(found, "executor", found)


# sums ---------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=1, max_size=40), st.integers(0, 999))
def test_sums_are_exact_and_rounded_once(values, seed):
    drawn = np.random.default_rng(seed).integers(0, len(values), len(values))
    counts = np.bincount(drawn, minlength=len(values)).astype(float)
    found = ExactSums.of(np.array(values)[:, None]).taken(counts[None, :])
    assert found.tolist() == [[math.fsum(values[i] for i in drawn)]]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e12])
def test_sums_of_columns_of_any_size_are_those_of_fsum(scale):
    columns = RNG.normal(size=(999, 3)) * scale
    columns[:, 1] = 0.0
    counts = np.bincount(RNG.integers(0, 999, 999), minlength=999)
    found = ExactSums.of(columns).taken(counts[None, :].astype(float))[0]
    for column, value in zip(columns.T, found, strict=True):
        exact = math.fsum(np.repeat(column, counts))
        assert abs(value - exact) <= math.ulp(exact)


@pytest.mark.parametrize("n", [2, 385, 1001, 50_000])
def test_sums_are_the_same_in_whatever_order(n):
    columns, counts = RNG.normal(size=(n, 3)), RNG.integers(0, 2, (40, n)).astype(float)
    order = RNG.permutation(n)
    here = ExactSums.of(columns).taken(counts)
    assert np.array_equal(here, ExactSums.of(columns[order]).taken(counts[:, order]))
    assert np.array_equal(here[7], ExactSums.of(columns).taken(counts[7:8])[0])
    assert np.array_equal(here[:, 1], ExactSums.of(columns[:, 1:2]).taken(counts)[:, 0])


def test_threads_of_the_linear_algebra_change_nothing():
    code = (
        "import hashlib, numpy as np\n"
        "from ragauge.stats.resampling import bootstrap_means, sign_flipped_sums as flipped_sums\n"
        "columns = np.random.default_rng(3).normal(size=(1001, 3))\n"
        "for found in (bootstrap_means(columns, 3000), flipped_sums(columns[:, :1], 3000)[0]):\n"
        "    print(hashlib.sha256(found.tobytes()).hexdigest())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "OPENBLAS_NUM_THREADS": n, "OMP_NUM_THREADS": n},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for n in ("1", "2")
    }
    assert len(found) == 1


# the stream ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 7), max_size=30))
def test_a_place_in_the_stream_is_where_a_generator_arrives_that_draws(seed, lengths):
    rng = np.random.default_rng(seed)
    for length in lengths:
        rng.integers(0, 2**32, length, dtype=np.uint32)
    assert generator_state(generator_at(seed, sum(lengths))) == generator_state(rng)


@pytest.mark.parametrize("n", [2, 3, 1000, 4096, 65_537, 300_007, 1_500_001])
def test_where_each_part_begins_is_counted_as_numpy_draws(threads, n):
    rounds = [3, 3, 3, 2] if n < 1_000_000 else [1, 1, 1]
    rng, expected = np.random.default_rng(5), []
    for one in rounds:
        expected.append(generator_state(rng))
        rng.integers(0, n, (one, n))
    assert [generator_state(generator_at(5, word)) for word in stream_starts(n, 5, threads, rounds)] == expected


@pytest.mark.parametrize(("n", "rounds"), [(2, 100), (7, 31), (1000, 64), (1001, 65), (200_003, 10)])
def test_rounds_are_those_of_one_generator_and_nobody_draws_them_twice(executor, n, rounds):
    found = map_rounds(Counted(n), rounds, 11, executor, partial(stream_starts, n, 11))
    assert np.array_equal(found, np.random.default_rng(11).integers(0, n, (rounds, n)))


@pytest.mark.parametrize(
    "starts",
    [
        None,
        lambda _, sizes: iter(range(len(sizes))),
        lambda _, sizes: iter([0]),
        lambda executor, sizes: [*stream_starts(1001, 4, executor, sizes[:6]), *range(99)],
    ],
    ids=["nobody knows", "all wrong", "one known", "wrong from the seventh on"],
)
def test_where_nobody_knows_how_numpy_draws_the_rounds_are_the_same(threads, starts):
    found = map_rounds(Drawn(1001), 50, 4, threads, starts)
    assert np.array_equal(found, np.random.default_rng(4).integers(0, 1001, (50, 1001)))


@pytest.mark.parametrize("counted", [True, False])
def test_a_worker_that_is_killed_in_mid_work_changes_nothing(workers, tmp_path, counted):
    work = Drawn(1001, deadly=tmp_path)
    found = map_rounds(work, 200, 4, workers.executor, partial(stream_starts, 1001, 4) if counted else None)
    assert np.array_equal(found, np.random.default_rng(4).integers(0, 1001, (200, 1001)))
    assert (tmp_path / "killed").exists()
    assert len(list(tmp_path.iterdir())) > 1 + math.ceil(200 / (8 * 3))  # all parts, and what was lost once more


# means, signs and seeds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "width", "rounds"), [(2, 1, 500), (61, 3, 999), (1000, 4, 10_000), (70_001, 2, 151)])
def test_resampled_means_and_flipped_sums_are_the_same_elsewhere(executor, n, width, rounds):
    columns = np.round(RNG.normal(size=(n, width)), 2)
    assert np.array_equal(bootstrap_means(columns, rounds, 3), bootstrap_means(columns, rounds, 3, executor))
    here, there = sign_flipped_sums(columns, rounds, 3), sign_flipped_sums(columns, rounds, 3, executor)
    assert np.array_equal(here[0], there[0])
    assert here[1] is there[1] is (n == 2)


def test_what_threads_resample_is_what_scipy_resamples(threads):
    gaps = RNG.normal(size=3001)
    theirs = stats.bootstrap((gaps,), np.mean, n_resamples=3000, batch=100, rng=np.random.default_rng(3))
    found = bootstrap_means(gaps[:, None], 3000, 3, threads)
    assert found[:, 0] == pytest.approx(theirs.bootstrap_distribution, abs=1e-12)
    assert threads.given > 4


def test_flipped_signs_are_the_bits_of_the_generator(threads):
    gaps, rng = RNG.normal(size=300_001), np.random.default_rng(9)
    expected = []
    for rows in (6, 6, 6, 6, 1):  # so many rounds are in memory at a time
        bits = np.unpackbits(np.frombuffer(rng.bytes(rows * 37_501), np.uint8).reshape(rows, -1), axis=1)
        expected += [math.fsum(np.where(row[:300_001], -gaps, gaps)) for row in bits]
    assert sign_flipped_sums(gaps[:, None], 25, 9, threads)[0][:, 0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n", [2, 60, 40_001])
def test_queries_and_seeds_are_resampled_the_same_elsewhere(executor, n):
    sides = [[RNG.normal(size=(3, n))], [RNG.normal(size=(2, n)), RNG.normal(size=(5, n))], [RNG.normal(size=(1, n))]]
    here = hierarchical_bootstrap_means(sides, 301, 2)
    assert here.shape == (301, 3)
    assert np.array_equal(here, hierarchical_bootstrap_means(sides, 301, 2, executor))


# the verb -------------------------------------------------------------------------------------------------------------


def scores(n, seed):
    rng = np.random.default_rng(seed)
    return {m: dict(zip(map(str, range(n)), np.round(rng.random(n), 1).tolist(), strict=True)) for m in ("mrr", "ndcg")}


@pytest.mark.parametrize("n", [1, 2, 61, 801])
def test_a_comparison_is_the_same_to_the_last_bit_wherever_it_is_resampled(executor, n):
    systems = {"a": scores(n, 1), "b": scores(n, 2), "c": {"1": scores(n, 3), "2": scores(n, 4)}}
    how = {"by": {str(i): "even" if i % 2 else "odd" for i in range(n)}, "rounds": 2700, "margin": 0.1}
    here, there = ragauge.compare(systems, **how), ragauge.compare(systems, **how, executor=executor)
    assert repr([*there.rows, *there.strata]) == repr([*here.rows, *here.strata])
    assert (there.method, there.notes) == (here.method, here.notes)


def test_the_executor_that_is_given_does_the_work(threads):
    ragauge.compare({"a": scores(30, 1), "b": scores(30, 2)}, executor=threads)
    assert threads.given >= 2


def test_the_command_line_compares_on_a_cluster(workers, tmp_path):
    rows = [
        f"{run},{query},{m},{value}"
        for run, seed in (("a", 1), ("b", 2))
        for m, values in scores(400, seed).items()
        for query, value in values.items()
    ]
    (tmp_path / "scores.csv").write_text("\n".join(["run,query,measure,value", *rows]))
    command = ["-m", "ragauge", "compare", "scores.csv", "-b", "a", "--json"]
    here, there = (forked([*command, *more], tmp_path) for more in ([], ["--cluster", workers.address]))
    assert (here.returncode, here.stderr) == (there.returncode, there.stderr) == (0, "")
    assert there.stdout == here.stdout
    assert json.loads(there.stdout)["comparisons"][0]["n"] == 400
