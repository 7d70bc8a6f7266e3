"""Bookkeeping shared by all stores: ids and positions, metadata and filters, and its saved form."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ragauge.core.errors import BadInput
from ragauge.stores.bookkeeping import StoreBookkeeping, largest_supported_k, normalise_rows


def add_documents(bookkeeping: StoreBookkeeping, ids: list[str], metadata=None) -> None:
    matrix = bookkeeping.prepare_insertion(ids, np.ones((len(ids), 2), np.float32), metadata)
    bookkeeping.register_ids(ids, matrix, metadata)


def test_bookkeeping_positions_are_unique_and_map_to_ids():
    bookkeeping = StoreBookkeeping("l2")
    add_documents(bookkeeping, ["a", "b", "c"])
    bookkeeping.remove(["b"])
    add_documents(bookkeeping, ["b", "d"])
    assert bookkeeping.ids == ["a", "c", "b", "d"]
    assert bookkeeping.positions(["a", "b", "c", "d"]).tolist() == [0, 3, 2, 4]
    assert bookkeeping.live_positions.tolist() == [True, False, True, True, True]
    assert (len(bookkeeping), bookkeeping.position_count) == (4, 5)
    positions = np.array([[3, 0, -1], [4, 2, 0]])
    raw_distances = np.array([[1.0, 2.0, 3e38], [1.0, 2.0, 3.0]])
    ids, distances = bookkeeping.to_neighbours(positions, raw_distances, 4)
    assert ids.tolist() == [["b", "a", None, None], ["d", "c", "a", None]]
    assert distances.tolist() == [[1.0, 2.0, np.inf, np.inf], [1.0, 2.0, 3.0, np.inf]]
    assert bookkeeping.to_neighbours(positions[1:], raw_distances[1:], 3)[0].tolist() == [["d", "c", "a"]]
    assert bookkeeping.to_neighbours(positions[:1], raw_distances[:1], 3)[0].tolist() == [["b", "a", None]]


def test_bookkeeping_prepare_insertion_reserves_names():
    bookkeeping = StoreBookkeeping("l2")
    add_documents(bookkeeping, ["a"])
    new_ids = [f"n{i}" for i in range(100)]
    bookkeeping.prepare_insertion(new_ids, np.ones((100, 2), np.float32))
    assert bookkeeping.to_neighbours(np.array([[100, 1, 0]]), np.zeros((1, 3)), 3)[0].tolist() == [["n99", "n0", "a"]]
    assert bookkeeping.ids == ["a"]
    add_documents(bookkeeping, ["b"])
    assert bookkeeping.to_neighbours(np.array([[1, 0]]), np.zeros((1, 2)), 2)[0].tolist() == [["b", "a"]]


def test_bookkeeping_filter_is_cached_and_follows_changes():
    bookkeeping = StoreBookkeeping("l2")
    add_documents(bookkeeping, ["a", "b", "c"], [{"x": 1, "y": "u"}, {"x": 1}, {"x": True}])
    matches = bookkeeping.filter_mask({"x": 1})
    assert matches.tolist() == [True, True, False]
    assert bookkeeping.filter_mask({"x": np.int64(1)}) is matches
    assert bookkeeping.filter_mask({"x": True}).tolist() == [False, False, True]
    assert bookkeeping.filter_mask({"x": 1, "y": "u"}).tolist() == [True, False, False]
    bookkeeping.filter_mask({"x": 1})
    add_documents(bookkeeping, ["d", "e"], [{"x": 1.0}, {"x": "1"}])
    assert bookkeeping.filter_mask({"x": 1}).tolist() == [True, True, False, True, False]
    before = bookkeeping.filter_mask({"x": 1})
    bookkeeping.remove(["b", "e"])
    assert bookkeeping.filter_mask({"x": 1}).tolist() == [True, False, False, True, False]
    assert before.tolist() == [True, True, False, True, False]
    bookkeeping.remove(["a"])
    assert bookkeeping.filter_mask({"y": "u"}).tolist() == [False] * 5
    with pytest.raises(BadInput, match="the filter: 'x' is"):
        bookkeeping.filter_mask({"x": [1]})


def test_bookkeeping_write_and_read_round_trip(tmp_path):
    bookkeeping = StoreBookkeeping("cosine")
    unusual_ids = ["", "ü\n\t", "\ud800", '"quoted"', "🙂"]
    add_documents(bookkeeping, unusual_ids, [{"n": i, "f": i / 2, "t": "ß", "b": i > 1} for i in range(5)])
    bookkeeping.remove(["ü\n\t"])
    bookkeeping.write(tmp_path / "new", {"kind": "hnsw", "m": 8})
    reopened = StoreBookkeeping("cosine")
    assert reopened.read(tmp_path / "new", {"kind": "hnsw", "ef": 3})
    assert reopened.ids == bookkeeping.ids
    assert reopened.position_count == 5
    assert reopened.dimension == 2
    assert reopened.built == {"kind": "hnsw", "m": 8}
    assert (
        reopened.filter_mask({"b": True}).tolist()
        == bookkeeping.filter_mask({"b": True}).tolist()
        == [False, False, True, True, True]
    )
    assert reopened.to_neighbours(np.array([[4, 2, 1]]), np.zeros((1, 3)), 3)[0].tolist() == [["🙂", "\ud800", None]]
    add_documents(reopened, ["more"])
    assert reopened.position("more") == 5
    assert not StoreBookkeeping("l2").read(tmp_path / "nothing", {})
    with pytest.raises(BadInput, match="with metric cosine, expected l2"):
        StoreBookkeeping("l2").read(tmp_path / "new", {})
    with pytest.raises(BadInput, match="with kind hnsw, expected ivf"):
        StoreBookkeeping("cosine").read(tmp_path / "new", {"kind": "ivf"})
    for broken in ("", "[]", "{", json.dumps({"metric": "cosine"})):
        (tmp_path / "new" / "intake.json").write_text(broken)
        with pytest.raises(BadInput, match="not a content list of a store"):
            StoreBookkeeping("cosine").read(tmp_path / "new", {})


@pytest.mark.parametrize("available", [0, 1, 7, 9, 10])
def test_largest_supported_k_finds_available_count(available):
    def request(n: int) -> str:
        if n > available:
            raise RuntimeError
        return "x" * n

    assert largest_supported_k(request, 10, RuntimeError) == (available, "x" * available if available else None)


def test_bookkeeping_prepare_queries_checks_single_query():
    for metric in ("cosine", "l2", "ip"):
        bookkeeping = StoreBookkeeping(metric)
        add_documents(bookkeeping, ["a"])
        for valid in ([[1e-30, 0]], [[1e30, 1e30]], [[3.0, 4.0]]):
            assert bookkeeping.prepare_queries(valid, 1).tolist() == np.array(valid, np.float32).tolist()
        for invalid in ([[np.nan, 1]], [[np.inf, 1]], [[1, -np.inf]]):
            with pytest.raises(BadInput, match="query vector 0 has a NaN or an infinity"):
                bookkeeping.prepare_queries(invalid, 1)
    empty = StoreBookkeeping("cosine")
    with pytest.raises(BadInput, match="all zeros"):
        empty.prepare_queries([[0.0, 0.0]], 1)
    assert StoreBookkeeping("l2").prepare_queries([[0.0, 0.0]], 1).tolist() == [[0.0, 0.0]]


def test_normalise_rows_extreme_values_have_unit_length():
    for row in ([3.0, 4.0], [3e-30, 4e-30], [3e30, 4e30], [3e18, 4e18]):
        for count in (1, 2):
            np.testing.assert_allclose(
                normalise_rows(np.array([row] * count, np.float32)), [[0.6, 0.8]] * count, rtol=1e-6
            )
