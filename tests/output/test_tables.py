"""Tables of typed cells: formats, best values, and the columns that fit."""

from __future__ import annotations

import math

import pytest

from ragauge.core.findings import FindingTable
from ragauge.core.summaries import Estimate
from ragauge.output.numbers import NUMBER_STYLES, format_interval, format_number
from ragauge.output.tables import Cell, Column, Table, format_cell, sort_key, table_of_finding

SYSTEMS = Table(
    "systems",
    [
        Column("system", "name"),
        Column("ndcg@10", "score", better=1, key="ndcg"),
        Column("p95 ms", "ms", better=-1, drop_order=1),
        Column("failed", "count", drop_order=2),
    ],
    [["bm25", 0.5, 1.25, 0], ["dense", Cell(0.75, stars="**"), 12.5, 3], ["hybrid", 0.75, None, 0]],
)


def best_cells(table: Table) -> list[tuple[int, int]]:
    return [(i, j) for i, row in enumerate(table.cells()) for j, cell in enumerate(row) if cell.best]


def test_mark_best_marks_ties_in_column_direction():
    assert best_cells(SYSTEMS.mark_best()) == [(0, 2), (1, 1), (2, 1)]


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [math.nan, math.nan], [0.5]])
def test_mark_best_equal_values_are_not_marked(values):
    table = Table("t", [Column("name", "name"), Column("score", "score", better=1)], [["a", value] for value in values])
    assert best_cells(table.mark_best()) == []


def test_fit_drops_columns_by_order_and_returns_titles():
    complete, dropped = SYSTEMS.fit(80)
    assert (complete, dropped) == (SYSTEMS, [])
    narrow, dropped = SYSTEMS.fit(27)
    assert dropped == ["p95 ms"]
    assert [column.title for column in narrow.columns] == ["system", "ndcg@10", "failed"]
    assert SYSTEMS.fit(10)[1] == ["p95 ms", "failed"]


def test_transpose_keeps_number_styles():
    table = SYSTEMS.transpose()
    assert [column.title for column in table.columns] == ["system", "bm25", "dense", "hybrid"]
    assert table.texts()[0] == ["ndcg@10", "0.5000", "0.7500 **", "0.7500"]
    assert table.texts()[1] == ["p95 ms", "1.25", "12.5", "-"]


def test_aligned_texts_align_numbers_before_stars():
    rows = [["a", Cell(0.0001, stars="***")], ["b", Cell(0.02, stars="*")], ["c", 0.5], ["d", None]]
    table = Table("p", [Column("system", "name"), Column("p", "p")], rows)
    assert [row[1] for row in table.aligned_texts()] == ["<0.001 ***", " 0.020 *  ", " 0.500    ", "     -    "]


def test_format_cell_adds_mark_stars_and_detail():
    cell = Cell(12.34, mark="?", stars="*", detail="[1, 2]")
    assert format_cell(cell, Column("ms", "ms")) == "12.3? * [1, 2]"
    assert format_cell(Cell(Estimate(0.5, 0.4, 0.6), "share"), Column("", "text")) == "50.0% [40.0%, 60.0%]"
    assert format_cell(Cell(3.0, text="cached"), Column("build s", "seconds")) == "cached"


def test_sort_key_returns_number_or_none_for_text():
    cells = (Cell(2), Cell("2"), Cell(Estimate(0.5)), Cell(math.inf))
    assert [sort_key(cell) for cell in cells] == [2.0, None, 0.5, None]


def test_table_of_finding_distinguishes_counts_from_scores():
    table = table_of_finding(FindingTable(["run", "n", "ndcg@10"], [["a", 12.0, 1.0], ["b", 3, 0.25]]))
    assert table.texts() == [["a", "12", "1.0000"], ["b", "3", "0.2500"]]


@pytest.mark.parametrize("style", NUMBER_STYLES)
def test_format_number_undefined_returns_dash(style):
    assert format_number(None, style) == format_number(math.nan, style) == "-"
    assert format_interval(math.nan, 0.5, style) == "-"


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (0.0042, "share", "0.4%"),
        (0.9996, "share", ">99.9%"),
        (0.00001, "share", "<0.1%"),
        (1.0, "share", "100%"),
        (-0.00001, "signed", "+0.0000"),
        (0.25, "signed", "+0.2500"),
        (0.0004, "p", "<0.001"),
        (0.05, "p", "0.050"),
        (1_234_567, "count", "1,234,567"),
        (0.0123, "ms", "0.012"),
        (9.5, "qps", "9.5"),
        (12_345.6, "qps", "12,346"),
        (1_690_000, "bytes", "1.69 MB"),
        (0.00123, "money", "$0.0012"),
    ],
)
def test_format_number_by_style(value, style, text):
    assert format_number(value, style) == text
