"""Result files of audits, freshness and stress tests: one result, several results, and results combined with runs."""

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
from ragauge.knowledge.freshness.results import Freshness, QueryFreshness, StaleHit
from ragauge.reports.registry import find_formats, is_result_file, read_results, write_results
from ragauge.store_stress.results import IngestionResult, OperationTiming, ReadBack, StressTest

AUDIT = Audit([Finding("corpus", "empty documents", True, 1, "1 of 2 documents is empty", ["d1"])])


def run_cli(*arguments, cwd):
    return run_python(["-m", "ragauge", *arguments], cwd)


def make_freshness(name: str, stale: int) -> Freshness:
    hits = [StaleHit(f"d{i}", i + 1, "new") for i in range(stale)]
    return Freshness(name, 2, [QueryFreshness("q1", 2, 2, hits)], versions=3)


def make_stress_test(name: str) -> StressTest:
    timing = OperationTiming(2, 0.1, 50.0, 50.0, 50.0, 50.0, 50.0)
    ingestion = IngestionResult("one by one", 2, put=timing, search=timing, read_back=[ReadBack("at once", 2, 2)])
    return StressTest(name, 2, 1, [ingestion], source="corpus.jsonl")


def test_to_json_several_results_is_list_with_schemas():
    results = [make_freshness("a", 1), make_freshness("b", 0)]
    data = json.loads(to_json(results))
    assert [(item["schema"], item["run"], item["stale_rate"]) for item in data] == [
        ("ragauge-freshness/2", "a", 0.5),
        ("ragauge-freshness/2", "b", 0.0),
    ]


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
    lines = find_formats(Freshness)["csv"].write([make_freshness("a", 1), make_freshness("b", 0)]).splitlines()
    assert [line.split(",")[:3] for line in lines] == [
        ["run", "query", "stale@2"],
        ["a", "q1", "0.5"],
        ["b", "q1", "0.0"],
    ]


def test_csv_format_mixed_result_types_raises_error():
    with pytest.raises(BadInput, match="one table cannot contain results of audit and freshness"):
        find_formats(Freshness)["csv"].write([AUDIT, make_freshness("a", 1)])


def test_report_several_results_page_has_unique_ids(tmp_path):
    path = tmp_path / "page.html"
    report([make_stress_test("a"), make_stress_test("b"), AUDIT, make_freshness("c", 1), make_freshness("d", 0)], path)
    text = path.read_text()
    ids = re.findall(r'<section id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert text.index("Stores under stress") < text.index("Stress test of a")
    assert "d has the lowest share of stale positions" in text


def test_report_several_results_page_navigation_links_sections(tmp_path):
    path = tmp_path / "page.html"
    report([AUDIT, make_stress_test("a"), make_freshness("c", 1), make_freshness("d", 0)], path)
    nav = re.search("<nav.*?</nav>", path.read_text(), re.DOTALL).group()
    entries = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', nav)
    titles = ["Audit", "Stress test of a", "Freshness: c", "Freshness: d"]
    assert [name for _, name in entries] == ["Freshness: 2 runs", *titles, "Provenance"]
    assert {place for place, _ in entries} <= set(re.findall(r'<section id="([^"]+)"', path.read_text()))


def test_report_shared_provenance_is_shown_once(tmp_path):
    path = tmp_path / "page.html"
    facts = {"python": "3.13", "machine": {"cores": 2}}
    report([replace(make_freshness(name, 1), provenance={**facts, "run": name}) for name in "ab"], path)
    assert path.read_text().count("cores 2") == 1


def test_results_page_fits_phone_and_desktop_widths(open_page, tmp_path):
    text = "a sentence that is too long for a column of a phone"
    findings = [Finding("c", f"replacement characters {i}", True, 1, text, effect=text, remedy=text) for i in range(9)]
    path = tmp_path / "page.html"
    write_results(
        [
            Audit(findings),
            make_stress_test("a"),
            make_stress_test("b"),
            make_freshness("c", 1),
            make_freshness("d", 0),
        ],
        [str(path)],
    )
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
        ({"k": 1}, "query `q1` has 2 documents; expected at most k = 1"),
        ({"notes": 0.5}, "notes: expected a list, got 0.5"),
        ({"notes": "all"}, 'notes: expected a list, got "all"'),
        ({"texts": ["q1"]}, r'texts: expected an object, got \["q1"\]'),
        ({"queries": [3]}, r"queries\[0\]: expected an object, got 3"),
        ({"versions": "3"}, 'versions: expected an integer, got "3"'),
    ],
)
def test_read_results_invalid_value_raises_error(tmp_path, change, message):
    path = tmp_path / "x.json"
    write_results([make_freshness("a", 1)], [str(path)])
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInput, match=message):
        read_results(path)


def test_report_command_combines_results_with_runs(tmp_path):
    (tmp_path / "q.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "a.run").write_text("q1 Q0 d1 1 0.9 a\n")
    write_results([AUDIT], [str(tmp_path / "audit.json")])
    write_results([make_freshness("a", 1), make_freshness("b", 0)], [str(tmp_path / "fresh.json")])
    process = run_cli("report", "audit.json", "fresh.json", "-o", "page.html", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "1 of 2 documents is empty" in (tmp_path / "page.html").read_text()
    files = [word for form in ("html", "md", "json") for word in ("-o", f"run.{form}")]
    with_results = ["--with", "audit.json", "--with", "fresh.json"]
    process = run_cli("report", "q.txt", "a.run", *with_results, *files, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    page = (tmp_path / "run.html").read_text()
    assert 'href="#audit-' in page
    assert "1 of 2 documents is empty" in (tmp_path / "run.md").read_text()
    schemas = [result["schema"] for result in json.loads((tmp_path / "run.json").read_text())]
    assert schemas == ["ragauge-report/3", "ragauge-audit/1", "ragauge-freshness/2", "ragauge-freshness/2"]
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
