"""The table of systems on a page: what it has no room for is named, and is in a table of its own."""

from __future__ import annotations

import pytest

pytest.importorskip("altair")

from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments
from ragauge.experiments import run
from ragauge.reports import overview, page_sections, report
from ragauge.reports.page import render_overview_page

MEASURES = ["mrr@20", "dr@20", "hit_rate@1", "hit_rate@5", "recall@20", "diversity_count@20", "unique_ratio@20"]
DOCUMENTS = [Document(f"d{i}", f"word{i} and word{i + 1}") for i in range(12)]
QUERIES = {f"q{i}": f"word{i}" for i in range(6)}
JUDGED = Judgments({query: {f"d{i}": 1} for i, query in enumerate(QUERIES)}).with_targets({"d0": ["t"]})
DATA = Dataset("small", DOCUMENTS, QUERIES, JUDGED)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return out, run(DATA, {"words": "bm25", "flat": "bm25(k1=0.0)"}, measures=MEASURES, k=20, baseline="words", out=out)


def test_every_measure_is_in_one_of_two_tables_and_the_caption_says_which(done):
    found = overview(done[1], audited=False)
    first, (second,) = page_sections.build_systems_table(found), page_sections.build_other_measures_tables(found)
    assert first.header == ["system", *MEASURES[:4], "vs words", "p", "p95 ms"]
    assert second.header == ["system", *MEASURES[4:]]
    assert f"Not in this table: {', '.join(MEASURES[4:])}; they are below, under Other measures." in first.legend
    for measure, cell in zip(MEASURES[4:], second.rows[1][1:], strict=True):
        assert float(cell.text) == pytest.approx(found.entries["flat"].means[measure].value, abs=5e-5)
    assert "<summary>Other measures</summary>" in render_overview_page(found)


def test_with_few_measures_there_is_one_table_and_nothing_is_said(done):
    found = overview(done[1], measures=MEASURES[:3], audited=False)
    assert page_sections.build_other_measures_tables(found) == []
    assert "Not in this table" not in page_sections.build_systems_table(found).legend


@pytest.mark.slow
def test_charts_beside_a_layout_are_of_the_measures_that_were_run(done, tmp_path):
    out, _ = done
    report([out], tmp_path / "long.csv", form="swarm", charts=tmp_path / "with")
    report([out], charts=tmp_path / "alone")
    for name in ("measures.svg", "quality_latency.svg"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    assert (tmp_path / "long.csv").read_text().startswith("Hit@1,Hit@5,")
