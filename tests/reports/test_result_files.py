"""Result files of audits and stress tests: one result, several results, and results combined with runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from command import run_python
from ragauge import report
from ragauge.core.errors import BadInput
from ragauge.core.findings import Audit, Finding
from ragauge.files.serialization import to_json
from ragauge.reports.registry import find_formats, is_result_file, read_results, write_results
from ragauge.store_stress.results import IngestionResult, OperationTiming, ReadBack, StressTest

AUDIT = Audit([Finding("corpus", "empty documents", True, 1, "1 of 2 documents is empty", ["d1"])])


def run_cli(*arguments, cwd):
    return run_python(["-m", "ragauge", *arguments], cwd)


def make_stress_test(name: str) -> StressTest:
    timing = OperationTiming(2, 0.1, 50.0, 50.0, 50.0, 50.0, 50.0)
    ingestion = IngestionResult("one by one", 2, put=timing, search=timing, read_back=[ReadBack("at once", 2, 2)])
    return StressTest(name, 2, 1, [ingestion], source="corpus.jsonl")


def test_to_json_several_results_is_list_with_schemas():
    data = json.loads(to_json([make_stress_test("a"), make_stress_test("b")]))
    assert [(item["schema"], item["store"]) for item in data] == [("ragauge-stress/1", "a"), ("ragauge-stress/1", "b")]


def test_write_results_several_round_trip_through_read_results(tmp_path):
    path = tmp_path / "both.json"
    write_results([make_stress_test("a"), make_stress_test("b")], [str(path)])
    assert is_result_file(path)
    assert [result.store for result in read_results(path)] == ["a", "b"]


def test_write_results_one_result_is_object_with_derived_fields(tmp_path):
    path = tmp_path / "one.json"
    write_results([make_stress_test("a")], [str(path)])
    data = json.loads(path.read_text())
    assert data["read_back"] == {"one by one": {"at once": 2}}
    assert {"store", "documents", "measures"} <= set(data)


def test_csv_format_same_type_results_share_one_header():
    lines = find_formats(StressTest)["csv"].write([make_stress_test("a"), make_stress_test("b")]).splitlines()
    counts = [line for line in lines if "documents," in line]
    assert [lines[0], *counts] == ["store,mode,name,value", "a,one by one,documents,2.0", "b,one by one,documents,2.0"]


def test_csv_format_mixed_result_types_raises_error():
    with pytest.raises(BadInput, match="one table cannot contain results of audit and stress"):
        find_formats(StressTest)["csv"].write([AUDIT, make_stress_test("a")])


def test_report_several_results_page_has_unique_ids(tmp_path):
    path = tmp_path / "page.html"
    report([make_stress_test("a"), make_stress_test("b"), AUDIT], path)
    text = path.read_text()
    ids = re.findall(r'<section id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert text.index("Stores under stress") < text.index("Stress test of a")


def test_report_several_results_page_navigation_links_sections(tmp_path):
    path = tmp_path / "page.html"
    report([AUDIT, make_stress_test("a"), make_stress_test("b")], path)
    nav = re.search("<nav.*?</nav>", path.read_text(), re.DOTALL).group()
    entries = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', nav)
    titles = ["Stores under stress", "Audit", "Stress test of a", "Stress test of b", "Provenance"]
    assert [name for _, name in entries] == titles
    assert {place for place, _ in entries} <= set(re.findall(r'<section id="([^"]+)"', path.read_text()))


def test_report_shared_provenance_is_shown_once(tmp_path):
    path = tmp_path / "page.html"
    facts = {"python": "3.13", "machine": {"cores": 2}}
    report([replace(make_stress_test(name), provenance={**facts, "store": name}) for name in "ab"], path)
    assert path.read_text().count("cores 2") == 1


def test_results_page_fits_phone_and_desktop_widths(open_page, tmp_path):
    text = "a sentence that is too long for a column of a phone"
    findings = [Finding("c", f"replacement characters {i}", True, 1, text, effect=text, remedy=text) for i in range(9)]
    path = tmp_path / "page.html"
    write_results([Audit(findings), make_stress_test("a"), make_stress_test("b")], [str(path)])
    phone = open_page(path, charts=True, size=(390, 800))
    assert phone.locator("#audit-problems-1 article").count() == 9
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    desktop = open_page(path, charts=True, size=(1200, 800))
    assert desktop.evaluate("(nav => nav.scrollWidth <= nav.clientWidth)(document.querySelector('nav'))")


def test_write_results_keeps_zero_width_joiners(tmp_path):
    astronaut, persian = "\U0001f469\u200d\U0001f680", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    audit = Audit([Finding(f"{astronaut} {persian}", "empty", True, 1, astronaut, [persian])])
    for form in ("html", "md"):
        path = tmp_path / f"x.{form}"
        write_results([audit], [str(path)])
        text = path.read_text()
        assert astronaut in text
        assert persian in text
        assert "\ufffd" not in text


def test_write_results_text_is_escaped(tmp_path):
    markup = "<script>alert(1)</script>\x1b[31m"
    audit = Audit([Finding(markup, "empty", True, 1, markup, [markup])], notes=[markup])
    for form in ("html", "md"):
        path = tmp_path / f"x.{form}"
        write_results([audit], [str(path)])
        text = path.read_text()
        assert "<script>alert(1)" not in text
        assert "\x1b" not in text


def test_read_results_other_schema_raises_error(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"schema": "ragauge-manifest/1"}')
    assert not is_result_file(path)
    with pytest.raises(BadInput, match=r"x\.json: .*ragauge-manifest/1"):
        read_results(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"notes": 0.5}, "notes: expected a list, got 0.5"),
        ({"notes": "all"}, 'notes: expected a list, got "all"'),
        ({"provenance": ["q1"]}, r'provenance: expected an object, got \["q1"\]'),
        ({"modes": [3]}, r"modes\[0\]: expected an object, got 3"),
        ({"documents": "3"}, 'documents: expected an integer, got "3"'),
    ],
)
def test_read_results_invalid_value_raises_error(tmp_path, change, message):
    path = tmp_path / "x.json"
    write_results([make_stress_test("a")], [str(path)])
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInput, match=message):
        read_results(path)


def test_report_command_combines_results_with_runs(tmp_path):
    (tmp_path / "q.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "a.run").write_text("q1 Q0 d1 1 0.9 a\n")
    write_results([AUDIT], [str(tmp_path / "audit.json")])
    write_results([make_stress_test("a"), make_stress_test("b")], [str(tmp_path / "stress.json")])
    process = run_cli("report", "audit.json", "stress.json", "-o", "page.html", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "1 of 2 documents is empty" in (tmp_path / "page.html").read_text()
    files = [word for form in ("html", "md", "json") for word in ("-o", f"run.{form}")]
    with_results = ["--with", "audit.json", "--with", "stress.json"]
    process = run_cli("report", "q.txt", "a.run", *with_results, *files, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    page = (tmp_path / "run.html").read_text()
    assert 'href="#audit-' in page
    assert "1 of 2 documents is empty" in (tmp_path / "run.md").read_text()
    schemas = [result["schema"] for result in json.loads((tmp_path / "run.json").read_text())]
    assert schemas == ["ragauge-report/1", "ragauge-audit/1", "ragauge-stress/1", "ragauge-stress/1"]
    process = run_cli("report", "run.json", "-o", "again.html", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "1 of 2 documents is empty" in (tmp_path / "again.html").read_text()


def test_report_command_prints_result_and_rejects_overwrite(tmp_path):
    write_results([AUDIT], [str(tmp_path / "audit.json")])
    process = run_cli("report", "audit.json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "1 of 2 documents is empty" in process.stdout
    process = run_cli("report", "audit.json", "-o", "audit.json", cwd=tmp_path)
    assert process.returncode == 2
    assert "this file is read" in process.stderr
