"""Every renderer shows the same report: its texts, tables, findings and notes, escaped for its format."""

from __future__ import annotations

import csv
import io
import re
from html import unescape

import pytest
from rich.console import Console

from ragauge.core.errors import MissingExtra
from ragauge.core.findings import Finding
from ragauge.output.csv import render_csv
from ragauge.output.latex import render_latex
from ragauge.output.markdown import render_markdown
from ragauge.output.page import render_page
from ragauge.output.report import (
    FILES_ONLY,
    PAGE_ONLY,
    Card,
    Charts,
    Code,
    Facts,
    Findings,
    Paragraph,
    Report,
    Section,
    collect_charts,
    with_unique_kinds,
)
from ragauge.output.tables import Cell, Column, Table
from ragauge.output.terminal import render_report

HOSTILE = "<script>alert('x')</script> | *bold* & 100% \x1b[31mred"


def no_library():
    raise MissingExtra("drawing charts", "report")


def build_report(name: str = "bm25", *, draw=dict) -> Report:
    table = Table(
        "systems",
        [Column("system", "name"), Column("ndcg@10", "score", better=1, legend="gain 2^g - 1", key="ndcg")],
        [[name, 0.5], ["dense", Cell(0.75, stars="**", tooltip="p 0.004")]],
    ).mark_best()
    problem = Finding("run", "ties", True, 2, f"two of {name} are tied", ["q1", "q2"], "0.1 less", None, "break `ties`")
    clean = Finding("run", "ids", False, 0, "no duplicates")
    return Report(
        "compare",
        "Comparison",
        f"dense is better than {name}.",
        [
            Section("systems", "Systems", [Paragraph("Means per query."), table, Charts(draw)], "Systems"),
            Section("all", "All rows", [Table("all", table.columns, table.rows, collapsed=True)], formats=FILES_ONLY),
            Section("page", "Only here", [Paragraph("on the page")], formats=PAGE_ONLY),
            Section("findings", "Audit", [Findings([problem, clean], {"power": "one run"})]),
            Section("facts", "Setup", [Facts({"index": "hnsw"}), Code("{'a': 1}", "Manifest")]),
            Section("empty", "Nothing", []),
        ],
        subject=[name, "2 systems"],
        cards=[Card("Which is best?", "dense", ["by 0.25"], target="systems")],
        notes=["p: paired t-test"],
        provenance={"seed": 7, "made": "2026-01-02T03:04:05Z"},
    )


def terminal_text(report: Report, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False, markup=False)
    for piece in render_report(report, width)[0]:
        console.print(piece)
    return console.file.getvalue()


def page_text(*reports: Report) -> str:
    return render_page(reports, lambda: "var vega;")


RENDERERS = {
    "terminal": terminal_text,
    "markdown": lambda report: render_markdown([report]),
    "html": lambda report: unescape(re.sub("<[^>]*>", "", page_text(report))),
}


@pytest.mark.parametrize("name", RENDERERS)
def test_renderers_include_summary_table_findings_and_facts(name):
    text = RENDERERS[name](build_report()).replace("\\", "")
    for part in (
        "dense is better than bm25.",
        "Means per query.",
        "0.7500",
        "two of bm25 are tied",
        "0.1 less",
        "hnsw",
    ):
        assert part in text
    assert ("on the page" in text) is (name == "html")
    assert "Nothing" not in text


def test_terminal_omits_file_sections_and_charts():
    text = terminal_text(build_report(draw=no_library))
    assert "All rows" not in text
    assert text.startswith("Comparison: bm25, 2 systems\ndense is better than bm25.\n")


def test_render_report_returns_columns_that_do_not_fit():
    columns = [Column("system", "name"), Column("a measure with a long name", "score", drop_order=1)]
    report = Report("x", "X", "", [Section("s", "S", [Table("t", columns, [["bm25", 0.5]])])])
    assert render_report(report, 20)[1] == ["a measure with a long name"]


@pytest.mark.parametrize("render", [lambda report: render_markdown([report]), lambda report: render_latex([report])])
def test_markdown_and_latex_draw_no_charts(render):
    assert "0.7500" in render(build_report(draw=no_library))


def test_render_page_draws_charts():
    with pytest.raises(MissingExtra):
        page_text(build_report(draw=no_library))
    with pytest.raises(MissingExtra):
        collect_charts([build_report(draw=no_library)])


def test_markdown_marks_best_value_and_folds_long_tables():
    lines = render_markdown([build_report()]).splitlines()
    assert "| dense | **0.7500 \\*\\*** |" in lines
    assert "|---|---:|" in lines
    assert "<details><summary>Show 2 rows</summary>" in lines


def test_latex_has_bold_best_values_stars_and_caption():
    text = render_latex([build_report()])
    assert r"dense & \textbf{0.7500}\rlap{$^{**}$} \\" in text.replace("  ", " ")
    assert r"\caption{Systems. ndcg@10: gain 2\textasciicircum{}g - 1.}" in text
    assert text.count(r"\begin{table}") == 2  # systems and facts; the collapsed table is left out


def test_render_csv_has_column_keys_and_exact_numbers():
    columns = [Column("system", "name"), Column("nDCG@10", "score", key="ndcg@10"), Column("n", "count")]
    table = Table("t", columns, [["=1+1", 1 / 3, 12], ["a, b", None, 3]])
    rows = list(csv.reader(io.StringIO(render_csv(table))))
    assert rows == [["system", "ndcg@10", "n"], ["'=1+1", repr(1 / 3), "12"], ["a, b", "", "3"]]


def test_renderers_hostile_text_is_escaped():
    report = build_report(HOSTILE)
    assert "<script>alert" not in page_text(report)
    assert "<script>" not in render_markdown([report])
    assert "\x1b" not in terminal_text(report)
    assert "\x1b" not in page_text(report)


def test_render_page_several_reports_have_unique_section_ids():
    text = page_text(build_report("a"), build_report("b"))
    ids = re.findall(r'<section id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    entries = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', re.search("<nav.*?</nav>", text, re.S)[0])
    assert [title for _, title in entries] == ["Comparison: a", "Comparison: b", "Provenance"]
    assert {target for target, _ in entries} <= set(ids)


def test_render_page_cards_link_to_existing_sections():
    text = page_text(build_report())
    assert '<a href="#compare-systems">dense</a>' in text


def test_with_unique_kinds_numbers_duplicate_kinds():
    assert [report.kind for report in with_unique_kinds([build_report(), build_report()])] == ["compare", "compare-2"]
