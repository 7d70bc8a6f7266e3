"""`ragauge graph`: tables, files, invalid input, and its section in `ragauge report`."""

from __future__ import annotations

import json

import pytest

from command import command_in
from ragauge.reports.registry import STORED_RESULT_COMMANDS

SMALL = "synthetic:multihop(documents=60, queries=6)"


@pytest.fixture
def run_graph(tmp_path):
    return command_in(tmp_path, "graph", "-e", "words")


def test_graph_prints_distances_and_writes_files(run_graph, tmp_path):
    done = run_graph(
        SMALL, "-g", "entities", "-g", "knn(neighbours=4)", "--start-documents", 3, "-o", "g.html", "-o", "g.json"
    )
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"Graph: {SMALL}, 60 documents,")
    assert lines[2].startswith("Relevant documents are ")
    assert done.stderr == "note: wrote g.html\nnote: wrote g.json\n"
    data = json.loads((tmp_path / "g.json").read_text())
    assert [one["name"] for one in data["kinds"]] == ["entities", "knn(neighbours=4)"]
    assert (data["seeds"], data["queries"]) == (3, 6)


def test_graph_defaults_to_links_and_knn(run_graph):
    data = json.loads(run_graph(SMALL, "--max-queries", 2, "--json").stdout)
    assert [one["name"] for one in data["kinds"]] == ["links", "knn(neighbours=8)"]
    assert data["queries"] == 2


def test_graph_prints_csv_and_markdown(run_graph):
    rows = run_graph(SMALL, "-g", "entities+knn(neighbours=4)", "--csv").stdout.splitlines()
    assert len(rows) == 1 + 3 * 6
    assert rows[1].startswith("all links,q001,")
    assert run_graph(SMALL, "-g", "knn(neighbours=4)", "--format", "markdown").stdout.startswith("# Graph\n")


def test_graph_accepts_corpus_file_without_queries(run_graph, tmp_path):
    rows = [{"_id": name, "text": f"text {name}", "metadata": {"links": ["a"]}} for name in "abc"]
    (tmp_path / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = run_graph("corpus.jsonl", "-g", "links")
    assert "3 documents with 2 links; the largest component has 100% of the documents." in done.stdout
    assert done.stderr == "note: no queries: distances of relevant documents cannot be computed\n"


def test_report_with_graph_adds_section(run_graph, tmp_path):
    run_graph(SMALL, "-g", "entities", "-o", "graph.json")
    data = json.loads((tmp_path / "graph.json").read_text())
    ragauge = command_in(tmp_path)
    ragauge("run", SMALL, "-s", "bm25", "-m", "mrr", "-o", "out")
    ragauge("report", "out", "--with", "graph.json", "-o", "page.html", "-o", "page.md", "-o", "page.json")
    page, text = (tmp_path / "page.html").read_text(), (tmp_path / "page.md").read_text()
    assert 'href="#graph-' in page
    assert text.count("\n## Graph\n") == 1
    assert "Distance of relevant documents" in page
    assert ">entities</th>" in page
    assert f"\n| entities | {data['links']} |" in text
    assert json.loads((tmp_path / "page.json").read_text())[1:] == [data]


def test_report_help_lists_stored_result_commands(tmp_path):
    help_text = " ".join(command_in(tmp_path)("report", "--help").stdout.replace("│", " ").split())
    assert f"Further results, as sections of the page: JSON of {', '.join(STORED_RESULT_COMMANDS[:5])}" in help_text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no dataset given"),
        (["nowhere"], "unknown dataset `nowhere`"),
        (["nowhere.jsonl"], "nowhere.jsonl"),
        ([SMALL, "-g", "knn(neighbours=many)"], "neighbours must be a number, got many"),
        ([SMALL, "--format", "long"], "unknown output format `long`"),
        ([SMALL, "-o", "graph.docx"], "graph.docx"),
    ],
)
def test_graph_invalid_input_prints_one_line_error(run_graph, arguments, message):
    done = run_graph(*arguments, code=2)
    assert message in done.stderr
    assert done.stdout == ""
