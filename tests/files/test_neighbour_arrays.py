"""Arrays of neighbour ids, in files and in memory: recall of the exact neighbours, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import ragauge
from command import command_in
from ragauge.core.errors import BadInput
from vector_file_writers import write_vectors


def make_neighbours(rows=30, depth=100, k=10):
    """Return exact neighbours, found neighbours with misses and gaps, and recall@k per query, computed with sets."""
    random = np.random.default_rng(3)
    true = np.array([random.permutation(5_000)[:depth] for _ in range(rows)], np.int32)
    found = true[:, :k].copy()
    found[::2, k - 1] = 77_777
    found[3, 5:] = -1
    found[4, 0] = true[4, 50]  # a true neighbour, but not one of the k nearest
    share = [
        len(set(actual.tolist()) & set(expected[:k].tolist())) / k for actual, expected in zip(found, true, strict=True)
    ]
    return true, found, np.array(share)


def test_evaluate_neighbour_arrays_defaults_to_recall_of_k():
    true, found, share = make_neighbours()
    scores = ragauge.evaluate(true, found)
    assert list(scores.means) == ["recall(of=k)@1", "recall(of=k)@10"]
    assert scores.values["recall(of=k)@10"].tolist() == pytest.approx(share.tolist())
    found_ids = [[f"d{i}" if i >= 0 else None for i in row] for row in found.tolist()]
    true_ids = np.array([[f"d{i}" for i in row] for row in true.tolist()])
    by_ids = ragauge.evaluate(true_ids, np.array(found_ids, dtype=object))
    assert by_ids.means == scores.means
    two_systems = ragauge.evaluate(true, {"mine": found, "best": true}, ["recall@100"])
    assert two_systems["best"].means == {"recall@100": 1.0}


@pytest.mark.parametrize("ending", ["ivecs", "ibin", "npy", "ivecs.gz"])
def test_cli_evaluate_and_compare_neighbour_files(tmp_path, ending):
    true, found, share = make_neighbours()
    write_vectors(tmp_path / f"gt.{ending}", true)
    write_vectors(tmp_path / f"found.{ending}", found)
    run = command_in(tmp_path)
    process = run("evaluate", f"gt.{ending}", f"found.{ending}")
    assert process.stdout.splitlines()[2].split() == ["recall(of=k)@10", f"{share.mean():.4f}", "30"]
    means = ragauge.evaluate(tmp_path / f"gt.{ending}", str(tmp_path / f"found.{ending}"), "recall(of=k)@10").means
    assert means["recall(of=k)@10"] == pytest.approx(share.mean())
    assert (
        "recall(of=k)@10" in run("compare", f"gt.{ending}", f"found.{ending}", f"best=gt.{ending}", "-b", "best").stdout
    )


def test_evaluate_mismatched_neighbour_arrays_raises_error(tmp_path):
    true, found, _ = make_neighbours()
    with pytest.raises(BadInput, match="expected 30 rows, got 20"):
        ragauge.evaluate(true, found[:20])
    write_vectors(tmp_path / "gt.npy", true)
    write_vectors(tmp_path / "found.npy", found.astype(np.float32))
    with pytest.raises(BadInput, match="holds vectors, not neighbours; expected whole numbers, got float32"):
        ragauge.evaluate(tmp_path / "gt.npy", tmp_path / "found.npy")
    found[2, 1] = found[2, 0]
    with pytest.raises(BadInput, match="query `2`"):
        ragauge.evaluate(true, found)
    assert ragauge.evaluate(true, found, convention="ann").means["recall(of=k)@10"] < 1
