"""Stress tests: documents are read from every corpus format."""

from __future__ import annotations

import pytest

from input_cases import CORPUS_INPUTS, DOCUMENTS, write_inputs
from ragauge.store_stress.plan import StressSettings
from ragauge.store_stress.stress import load_stress_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_inputs(tmp_path_factory.mktemp("corpora"))


@pytest.mark.parametrize("name", CORPUS_INPUTS)
def test_load_stress_data_reads_every_corpus_format(name, folder):
    data = load_stress_data(folder / name, "words", StressSettings())
    expected = ["d0"] if name == "page.md" else [*DOCUMENTS]
    assert [document.text for document in data.documents] == [DOCUMENTS[name] for name in expected]
