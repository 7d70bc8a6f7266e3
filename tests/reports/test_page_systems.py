"""The systems table of a page: measures that do not fit are listed and moved to a second table."""

from __future__ import annotations

import pytest

pytest.importorskip("altair")

from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments
from ragauge.experiments.run import run
from ragauge.reports.overview_tables import build_other_measures_table, build_quality_table
from ragauge.reports.overviews import OUTPUT_FORMATS, overview

MEASURES = ["mrr@20", "dr@20", "hit_rate@1", "hit_rate@5", "recall@20", "diversity_count@20", "unique_ratio@20"]
DOCUMENTS = [Document(f"d{i}", f"word{i} and word{i + 1}") for i in range(12)]
QUERIES = {f"q{i}": f"word{i}" for i in range(6)}
JUDGED = Judgments({query: {f"d{i}": 1} for i, query in enumerate(QUERIES)}).with_targets({"d0": ["t"]})
DATA = Dataset("small", DOCUMENTS, QUERIES, JUDGED)


@pytest.fixture(scope="module")
def folder_and_experiment(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return out, run(DATA, {"words": "bm25", "flat": "bm25(k1=0.0)"}, measures=MEASURES, k=20, baseline="words", out=out)


def test_quality_table_many_measures_moves_rest_to_second_table(folder_and_experiment):
    result = overview(folder_and_experiment[1], audited=False)
    first, second = build_quality_table(result, intervals=True), build_other_measures_table(result)
    assert [column.title for column in first.columns] == ["system", *MEASURES[:4], "vs words", "p", "p95 ms"]
    assert [column.title for column in second.columns] == ["system", *MEASURES[4:]]
    assert f"Other measures: {', '.join(MEASURES[4:])}." in first.note
    for measure, cell in zip(MEASURES[4:], second.cells()[1][1:], strict=True):
        assert cell.value == result.entries["flat"].means[measure].value
    assert "<summary>Other measures</summary>" in OUTPUT_FORMATS["html"].write([result])


def test_quality_table_few_measures_has_no_second_table(folder_and_experiment):
    result = overview(folder_and_experiment[1], measures=MEASURES[:3], audited=False)
    assert build_other_measures_table(result).rows == []
    assert "Other measures" not in build_quality_table(result, intervals=True).note
