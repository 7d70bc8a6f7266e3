"""`ragauge systems`: lists systems with options that `run` accepts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import ragauge
from ragauge.cli.app import build_app
from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments
from ragauge.systems.graph_corpus import DEFAULT_GRAPH


def list_systems(*arguments):
    done = CliRunner().invoke(build_app(), ["systems", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return {(row["family"], row["name"]): row["options"] for row in json.loads(done.stdout)}


GRAPH_SYSTEMS = [
    ("retrievers", "pagerank"),
    ("retrievers", "graphflow"),
    ("retrievers", "swarm"),
    ("rerankers", "swarm"),
]


@pytest.mark.parametrize(("family", "name"), GRAPH_SYSTEMS)
def test_systems_graph_retriever_options_can_be_used_in_run(family, name):
    options = list_systems(name)[family, name]
    assert options.startswith(f"embedder=wordllama, graph={'+'.join(DEFAULT_GRAPH)}, ")
    assert "terrain" not in options
    # Build the system with all defaults written out; options without a default are omitted.
    spec = f"{name}({', '.join(option for option in options.split(', ') if '=' in option)})".replace(
        "wordllama", "words"
    )
    system = spec if family == "retrievers" else f"pipeline(of=bm25, reranker={spec})"
    documents = [Document(option, f"text {option}", "", {"links": ["a"]}) for option in "abc"]
    data = Dataset("three", documents, {"q": "text b"}, Judgments({"q": {"b": 1}}))
    result = ragauge.run(data, {"written": system}, measures=["recall@3"])
    assert result.scores["written"].means == {"recall@3": 1.0}


def test_systems_lists_graph_builders_with_options():
    options_by_builder = {name: options for (family, name), options in list_systems().items() if family == "graphs"}
    assert options_by_builder == {
        "links": "field=links, kinds, weight=1.0, rewired=false",
        "knn": "neighbours=8, mutual=false, least=0.0, weight=1.0",
        "entities": "mentions=true, shared=true, most=10, common=50, weight=1.0",
        "field": "field, most=50, weight=1.0",
    }
