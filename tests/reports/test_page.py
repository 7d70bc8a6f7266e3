"""HTML pages: the embedded data match the overview, size limits hold, and text is never executed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

import ragauge
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments, MeasureDict, Run
from ragauge.core.summaries import Mean
from ragauge.output import page_assets
from ragauge.output.page import render_page
from ragauge.output.report import clean_texts
from ragauge.reports import overview, overview_explorer, overview_report, report
from ragauge.reports.overview_report import build_report
from ragauge.reports.overview_tables import build_failures_table, build_quality_table
from ragauge.reports.summary import summarise_overview
from ragauge.runs.results import Experiment

MEASURES = ["ndcg@10", "mrr@10"]
N = 24
QUERIES = {f"q{i:02}": f"what is word{i}" for i in range(N)}
DOCUMENTS = [Document(f"d{i:02}", f"word{i}   and\nmore " + "x" * 10 * i, f"Title {i}") for i in range(2 * N)]
JUDGMENTS = Judgments({query: {f"d{i:02}": 2.0, f"d{i + N:02}": 1.0} for i, query in enumerate(QUERIES)})
TAGS = {query: {"kind": "even" if i % 2 == 0 else "odd"} for i, query in enumerate(QUERIES)}


class Parts(HTMLParser):
    """Scripts, text, ids and tags of a page, parsed as HTML."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.scripts, self.ids, self.words, self.policy = [], [], [], ""
        self.tags, self.inside = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.tags.append(tag)
        self.inside = tag
        if "id" in known:
            self.ids.append(known["id"])
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"]
        if tag == "script":
            self.scripts.append([known.get("type"), known.get("id"), ""])

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1][2] += data
        elif self.inside != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def data(self, name):
        kind, text = next((kind, text) for kind, found, text in self.scripts if found == name)
        if kind == "application/json":
            return json.loads(text)
        return json.loads(gzip.decompress(base64.b64decode(text, validate=True)))


def ranked(place, rank, depth=10):
    """Build a ranking with the relevant document at a rank; rank 0 omits it."""
    others = [f"d{(place + 3 + step) % N:02}" for step in range(depth)]
    docs = others if not rank else [*others[: rank - 1], f"d{place:02}", *others[rank - 1 :]]
    return docs[:depth]


def experiment(ranks, *, baseline="first", data=None, measures=MEASURES):
    """Build an experiment with systems that return the relevant document of each query at given ranks."""
    runs = {}
    for name, mine in ranks.items():
        rows = [(q, doc, 20.0 - r) for i, q in enumerate(QUERIES) for r, doc in enumerate(ranked(i, mine[i]))]
        runs[name] = Run(pl.DataFrame(rows, ["query", "doc", "score"], orient="row"), name)
    scores = {name: ragauge.evaluate(JUDGMENTS, run, measures) for name, run in runs.items()}
    data = data or Dataset("small", DOCUMENTS, QUERIES, JUDGMENTS, tags=TAGS)
    return Experiment(data, runs, scores, {}, {}, baseline, None, [], {})


FIRST = [1 + i % 5 for i in range(N)]
SECOND = [1 + (i % 5) // 2 for i in range(N)]
THIRD = [0 if i % 8 == 0 else 3 for i in range(N)]


@pytest.fixture(scope="module")
def known():
    return overview(experiment({"first": FIRST, "second": SECOND, "third": THIRD}), rounds=200)


@pytest.fixture(scope="module")
def parts(known):
    return Parts(render_page([build_report(known)]))


# --- embedded data ---


def test_page_explorer_values_match_overview(known, parts):
    about, found = parts.data("explorer"), parts.data("explorer-values")
    assert about["systems"] == ["first", "second", "third"]
    assert about["measures"] == MEASURES
    assert about["lower_is_better"] == [False, False]
    assert (about["systems"][about["system"]], about["systems"][about["baseline"]]) == ("second", "first")
    assert found["ids"] == list(QUERIES)
    assert found["texts"] == list(QUERIES.values())
    for measure, columns in zip(about["measures"], found["values"], strict=True):
        for name, column in zip(about["systems"], columns, strict=True):
            assert column == pytest.approx(known.entries[name].scores[0].values[measure], abs=5e-7)
    tag = found["tags"][[one["tag"] for one in found["tags"]].index("kind")]
    assert [tag["names"][of] for of in tag["of"]] == [TAGS[query]["kind"] for query in QUERIES]


def test_page_explorer_rankings_match_runs(known, parts):
    found = parts.data("explorer-rankings")
    assert found["depth"] == 10
    assert sorted(found["places"]) == list(range(N))
    for system, name in enumerate(known.systems):
        one = found["lists"][system]
        for i, query in enumerate(QUERIES):
            at = slice(one["starts"][found["places"][i]], one["starts"][found["places"][i] + 1])
            table = known.entries[name].run.table.filter(pl.col("query") == query).sort("score", descending=True)
            assert [found["docs"][doc] for doc in one["docs"][at]] == table["doc"].to_list()
            assert one["scores"][at] == table["score"].to_list()
    judged = found["judged"]
    for i, query in enumerate(QUERIES):
        at = slice(judged["starts"][found["places"][i]], judged["starts"][found["places"][i] + 1])
        grades = dict(zip((found["docs"][doc] for doc in judged["docs"][at]), judged["grades"][at], strict=True))
        assert grades == JUDGMENTS.nested[query]
    for doc, told in zip(found["docs"], found["texts"], strict=True):
        document = DOCUMENTS[int(doc[1:])]
        plain = " ".join(document.text.split())
        assert told[0] == document.title
        assert told[1] == (plain if len(plain) <= 300 else plain[:299] + "…")


@pytest.mark.parametrize(("ties", "first"), [("trec", "b"), ("ranked", "a")])
def test_rankings_payload_document_order_matches_scored_order(tmp_path, ties, first):
    # In the file, the ranks of q1 contradict its scores, and q2 has tied scores.
    (tmp_path / "qrels").write_text("q1 0 b 1\nq2 0 b 1\n")
    (tmp_path / "one.csv").write_text(
        "query,doc,rank,score\nq1,a,1,1\nq1,b,2,5\nq2,a,1,2\nq2,b,2,2\n", encoding="utf-8"
    )
    (tmp_path / "other.csv").write_text("query,doc,rank,score\nq1,b,1,9\nq2,b,1,9\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("qrels", "one.csv", "other.csv")]
    from ragauge.measures.conventions import PRESETS

    rules = PRESETS["default"].but(ties=ties)
    found = overview(files, measures=["mrr@10"], convention=rules, audited=False, rounds=200)
    data = overview_explorer.build_rankings_payload(found)
    one = data["lists"][0]
    shown = {}
    for i, query in enumerate(("q1", "q2")):
        place = data["places"][i]
        shown[query] = [data["docs"][doc] for doc in one["docs"][one["starts"][place] : one["starts"][place + 1]]]
    reciprocal = found.entries["one"].scores[0].per_query["mrr@10"]
    assert shown["q1"][0] == "b"
    assert shown["q2"][0] == first
    assert {query: 1 / (docs.index("b") + 1) for query, docs in shown.items()} == reciprocal


def test_rankings_payload_empty_run_keeps_other_rankings(known):
    silent = Run(known.entries["third"].run.table.clear(), "third")
    entries = {**known.entries, "third": replace(known.entries["third"], run=silent)}
    found = overview_explorer.build_rankings_payload(replace(known, entries=entries))
    assert found["lists"][2]["docs"] == []
    assert len(found["lists"][0]["docs"]) == 10 * N


def moved_most(known):
    """Compute the range of the scores of all systems for each query."""
    columns = np.array([entry.scores[0].values["ndcg@10"] for entry in known.entries.values()])
    return columns.max(axis=0) - columns.min(axis=0)


@pytest.mark.parametrize("queries", [1, 5, 23])
def test_page_ranking_limit_keeps_queries_with_largest_differences(known, monkeypatch, queries):
    monkeypatch.setattr(overview_explorer, "MAX_RANKING_ROWS", queries * 30)
    parts = Parts(render_page([build_report(known)]))
    found = parts.data("explorer-rankings")
    kept = [i for i, place in enumerate(found["places"]) if place is not None]
    spread = moved_most(known)
    assert len(kept) == queries
    assert min(spread[kept]) >= max(np.delete(spread, kept))
    assert all(len(one["starts"]) == queries + 1 for one in found["lists"])
    assert f"{N - queries} queries with the smallest differences have no rankings" in parts.text


def test_rankings_payload_text_limit_keeps_largest_differences(known, monkeypatch):
    monkeypatch.setattr(overview_explorer, "MAX_TEXT_CHARS", 1500)
    found = overview_explorer.build_rankings_payload(known)
    texts = found["texts"]
    total = sum(len(part) for one in texts if one is not None for part in one)
    assert 0 < sum(one is not None for one in texts) < len(texts)
    assert total < 1500 + 300 + 10
    owners = {}  # by document: the first place that shows it; places are sorted by decreasing difference
    for one in (*found["lists"], found["judged"]):
        for place in range(N):
            for doc in one["docs"][one["starts"][place] : one["starts"][place + 1]]:
                owners[doc] = min(place, owners.get(doc, N))
    kept = [owners[doc] for doc, text in enumerate(texts) if text is not None]
    left = [owners[doc] for doc, text in enumerate(texts) if text is None]
    assert max(kept) <= min(left)
    assert moved_most(known)[found["places"].index(0)] == max(moved_most(known))


def test_values_payload_nan_becomes_null(known):
    scores = known.entries["first"].scores[0]
    holes = scores.values["ndcg@10"].copy()
    holes[3] = math.nan
    odd = replace(scores, values=MeasureDict({**scores.values, "ndcg@10": holes}, str))
    entries = {**known.entries, "first": replace(known.entries["first"], scores=[odd])}
    found = overview_explorer.build_values_payload(replace(known, entries=entries))
    assert found["values"][0][0][3] is None
    assert found["values"][1][0][3] is not None


# --- escaping ---

ANY = st.text(st.characters(), max_size=40)  # includes lone surrogates


@given(st.dictionaries(ANY, st.lists(ANY | st.floats(allow_nan=False, allow_infinity=False), max_size=3), max_size=3))
def test_to_script_json_round_trips_and_is_escaped(thing):
    text = page_assets.to_script_json(thing)
    assert json.loads(text) == thing
    assert not set(text) & set("<>&\u2028\u2029")


@given(st.lists(st.text(max_size=40), max_size=5))
def test_compress_json_is_base64_and_round_trips(thing):
    text = page_assets.compress_json(thing)
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", text)
    assert json.loads(gzip.decompress(base64.b64decode(text))) == thing
    assert page_assets.compress_json(thing) == text


def test_page_csp_allows_only_hashed_scripts(parts):
    code = [text for kind, _, text in parts.scripts if kind is None]
    assert len(code) == 3
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    rules = dict(part.strip().split(" ", 1) for part in parts.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [f"'sha256-{one}'" for one in hashes]
    assert "unsafe-eval" not in parts.policy
    assert (rules["base-uri"], rules["form-action"]) == ("'none'", "'none'")


def test_page_has_unique_ids_and_no_external_resources(known, parts):
    assert len(set(parts.ids)) == len(parts.ids)
    html = render_page([build_report(known)])
    outside = re.sub(r"<script.*?</script>", "", html, flags=re.S)
    assert not re.search(r"""(src|href|action|url)\s*[=(]\s*["']?(https?:|//|file:)""", outside)
    assert not {"img", "link", "iframe", "object", "embed"} & set(parts.tags)


def everywhere(text):
    """Build the page of an overview that has `text` in every field that holds text."""
    ranks = {text: FIRST, "__proto__": SECOND, "a\"b'c<b>": THIRD}
    data = Dataset(
        text,
        [one._replace(text=f"{one.text[:50]} {text}", title=text) for one in DOCUMENTS],
        {query: f"{one} {text}" for query, one in QUERIES.items()},
        JUDGMENTS,
        tags={query: {text: text + one["kind"]} for query, one in TAGS.items()},
    )
    found = overview(experiment(ranks, baseline=text, data=data), rounds=200, audited=False, title=text)
    entries = {name: replace(one, failed={"q00": text}) for name, one in found.entries.items()}
    odd = replace(found, entries=entries, failures={text: text}, notes=[text], dataset=text, convention=text)
    return Parts(render_page([build_report(odd)]).encode("utf-8", "replace").decode())


@pytest.fixture(scope="module")
def harmless():
    return everywhere("harmless")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(1)>",
        "<!--<script>",
        "]]>",
        "{{ 7*7 }}{% if %}",
        "\" onload='alert(1)'",
        "\u2028\u202e",
        "half \ud800",
    ],
)
@pytest.mark.slow
def test_page_hostile_text_is_escaped_and_kept(harmless, text):
    odd = everywhere(text)
    plain = text.replace("\ud800", "?")  # the query data keep control characters; report texts do not
    cleaned = clean_texts(text)
    assert odd.tags == harmless.tags
    assert odd.ids == harmless.ids
    assert odd.data("explorer")["systems"][0] == cleaned
    assert odd.data("explorer-values")["texts"][0].endswith(plain)
    assert odd.data("explorer-values")["failed"]["0"]["0"] == plain
    assert plain in {one["tag"] for one in odd.data("explorer-values")["tags"]}
    assert {one[0] for one in odd.data("explorer-rankings")["texts"]} == {plain}
    assert sum(odd.text.count(" ".join(version.split())) for version in {plain, cleaned}) >= 8


# --- partial overviews ---


def test_page_one_system_has_no_comparison(tmp_path):
    found = report(experiment({"only": FIRST}, baseline=None), tmp_path / "one.html", rounds=200)
    parts = Parts((tmp_path / "one.html").read_text(encoding="utf-8"))
    assert parts.data("explorer")["systems"] == ["only"]
    assert (parts.data("explorer")["system"], parts.data("explorer")["baseline"]) == (0, 0)
    assert "report-differences" not in parts.ids
    assert "By how much?" not in parts.text
    assert found.compared is None


def test_page_without_baseline_selects_best_and_last_system(tmp_path):
    found = report(
        experiment({"first": FIRST, "second": SECOND, "third": THIRD}, baseline=None), tmp_path / "a.html", rounds=200
    )
    parts = Parts((tmp_path / "a.html").read_text(encoding="utf-8"))
    about = parts.data("explorer")
    assert about["systems"][about["system"]] == found.ranked()[0] == "second"
    assert about["baseline"] == about["systems"].index(found.ranked()[-1])
    assert [column.title for column in build_quality_table(found).columns] == ["system", *MEASURES]


def test_page_means_only_has_no_query_list():
    entries = {
        name: SystemSummary(name, {"ndcg@10": Mean(value, 0)}) for name, value in (("one", 0.25), ("other", 0.5))
    }
    found = Overview("means", entries, ["ndcg@10"])
    parts = Parts(render_page([build_report(found)]))
    assert "report-queries" not in parts.ids
    assert {one[1] for one in parts.scripts} == {"charts", None}
    assert summarise_overview(found) in parts.text
    assert "Not audited: an audit needs judgments and runs." in parts.text
    assert "Unknown whether queries failed." in parts.text


def test_page_without_runs_has_query_list_without_rankings(known):
    entries = {name: replace(entry, run=None) for name, entry in known.entries.items()}
    found = replace(known, entries=entries, documents={})
    parts = Parts(render_page([build_report(found)]))
    assert {one[1] for one in parts.scripts} == {"explorer", "explorer-values", "charts", None}
    assert "Rankings are not available." in parts.text
    assert overview_explorer.build_rankings_payload(found) is None


def test_page_without_texts_and_timings_has_notices(known):
    parts = Parts(render_page([build_report(replace(known, queries={}, documents={}, tags={}, strata={}))]))
    assert parts.data("explorer-values")["texts"] == [""] * N
    assert parts.data("explorer-values")["tags"] == []
    assert set(map(type, parts.data("explorer-rankings")["texts"])) == {type(None)}
    assert "Texts of documents are not available." in parts.text
    assert "Not timed" in parts.text
    assert not {"report-strata", "report-latency", "chart-report-quality_latency"} & set(parts.ids)


def test_explorer_ignores_systems_with_other_queries(known):
    scores = known.entries["third"].scores[0]
    other = replace(scores, queries=[f"x{query}" for query in scores.queries])
    entries = {**known.entries, "third": replace(known.entries["third"], scores=[other])}
    found = replace(known, entries=entries, baseline="third")
    assert overview_explorer.find_browsable_systems(found) == ["first", "second"]
    about = Parts(render_page([build_report(found)])).data("explorer")
    assert (about["systems"][about["system"]], about["systems"][about["baseline"]]) == ("second", "first")


def test_page_empty_overview_is_rendered():
    parts = Parts(render_page([build_report(Overview("nothing", {}, ["ndcg@10"]))]))
    assert "No system has a value of ndcg@10." in parts.text
    assert "report-queries" not in parts.ids


def test_quality_table_matches_overview(known):
    table = build_quality_table(known, intervals=True)
    titles = [column.title for column in table.columns]
    assert titles == ["system", *MEASURES, "vs first", "p"]
    for row, (name, entry) in zip(table.cells(), known.entries.items(), strict=True):
        assert (row[0].value, row[0].detail) == (name, "baseline" if name == "first" else "")
        for cell, measure in zip(row[1:3], MEASURES, strict=True):
            mean = entry.means[measure]
            assert cell.value == mean.value
            assert cell.detail == f"[{mean.low:.3f}, {mean.high:.3f}]"
            assert cell.best == (mean.value == max(one.means[measure].value for one in known.entries.values()))
        gap = known.difference(name)
        assert row[3].value == ("" if gap is None else gap.difference)


def test_page_has_summary_and_all_failures(known):
    failed = {query: f"error {query}" for query in QUERIES}
    entries = {**known.entries, "third": replace(known.entries["third"], failed=failed)}
    found = replace(known, entries=entries, failures={"fourth": "no such index"})
    parts = Parts(render_page([build_report(found)]))
    assert " ".join(summarise_overview(found).split()) in parts.text
    assert f"Failed queries: third: {N}." in parts.text
    assert all(f"error {query}" in parts.text for query in QUERIES)
    assert "fourth was not run" in parts.text
    assert "no such index" in parts.text


def test_failures_table_limit_keeps_first_failures(known, monkeypatch):
    monkeypatch.setattr("ragauge.reports.overview_tables.MAX_FAILURES_LISTED", 3)
    monkeypatch.setattr(overview_report, "MAX_FAILURES_LISTED", 3)
    failed = {query: f"error {query}" for query in QUERIES}
    entries = {**known.entries, "third": replace(known.entries["third"], failed=failed)}
    found = replace(known, entries=entries)
    assert [row[3] for row in build_failures_table(found).rows] == ["error q00", "error q01", "error q02"]
    assert "The first 3 are listed." in Parts(render_page([build_report(found)])).text
