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
from ragauge.reports import overview_explorer, overview_report
from ragauge.reports.overview_report import build_report
from ragauge.reports.overview_tables import build_failures_table, build_quality_table
from ragauge.reports.overviews import overview, report
from ragauge.reports.summary import summarise_overview
from ragauge.runs.results import Experiment

MEASURES = ["ndcg@10", "mrr@10"]
N = 24
QUERIES = {f"q{i:02}": f"what is word{i}" for i in range(N)}
DOCUMENTS = [Document(f"d{i:02}", f"word{i}   and\nmore " + "x" * 10 * i, f"Title {i}") for i in range(2 * N)]
JUDGMENTS = Judgments({query: {f"d{i:02}": 2.0, f"d{i + N:02}": 1.0} for i, query in enumerate(QUERIES)})
TAGS = {query: {"kind": "even" if i % 2 == 0 else "odd"} for i, query in enumerate(QUERIES)}


class ParsedPage(HTMLParser):
    """Scripts, text, ids and tags of a page, parsed as HTML."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.scripts, self.ids, self.words, self.policy = [], [], [], ""
        self.tags, self.inside = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        self.inside = tag
        if "id" in values:
            self.ids.append(values["id"])
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        if tag == "script":
            self.scripts.append([values.get("type"), values.get("id"), ""])

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
        kind, text = next((kind, text) for kind, script_id, text in self.scripts if script_id == name)
        if kind == "application/json":
            return json.loads(text)
        return json.loads(gzip.decompress(base64.b64decode(text, validate=True)))


def make_ranking(number, rank, depth=10):
    """Build a ranking with the relevant document at a rank; rank 0 omits it."""
    others = [f"d{(number + 3 + step) % N:02}" for step in range(depth)]
    docs = others if not rank else [*others[: rank - 1], f"d{number:02}", *others[rank - 1 :]]
    return docs[:depth]


def make_experiment(ranks, *, baseline="first", data=None, measures=MEASURES):
    """Build an experiment with systems that return the relevant document of each query at given ranks."""
    runs = {}
    for name, system_ranks in ranks.items():
        rows = [
            (q, doc, 20.0 - r) for i, q in enumerate(QUERIES) for r, doc in enumerate(make_ranking(i, system_ranks[i]))
        ]
        runs[name] = Run(pl.DataFrame(rows, ["query", "doc", "score"], orient="row"), name)
    scores = {name: ragauge.evaluate(JUDGMENTS, run, measures) for name, run in runs.items()}
    data = data or Dataset("small", DOCUMENTS, QUERIES, JUDGMENTS, tags=TAGS)
    return Experiment(data, runs, scores, {}, {}, baseline, None, [], {})


FIRST_RANKS = [1 + i % 5 for i in range(N)]
SECOND_RANKS = [1 + (i % 5) // 2 for i in range(N)]
THIRD_RANKS = [0 if i % 8 == 0 else 3 for i in range(N)]


@pytest.fixture(scope="module")
def full_overview():
    return overview(make_experiment({"first": FIRST_RANKS, "second": SECOND_RANKS, "third": THIRD_RANKS}), rounds=200)


@pytest.fixture(scope="module")
def parsed_page(full_overview):
    return ParsedPage(render_page([build_report(full_overview)]))


# --- embedded data ---


def test_page_explorer_values_match_overview(full_overview, parsed_page):
    settings, values = parsed_page.data("explorer"), parsed_page.data("explorer-values")
    assert settings["systems"] == ["first", "second", "third"]
    assert settings["measures"] == MEASURES
    assert settings["lower_is_better"] == [False, False]
    assert (settings["systems"][settings["system"]], settings["systems"][settings["baseline"]]) == ("second", "first")
    assert values["ids"] == list(QUERIES)
    assert values["texts"] == list(QUERIES.values())
    for measure, columns in zip(settings["measures"], values["values"], strict=True):
        for name, column in zip(settings["systems"], columns, strict=True):
            assert column == pytest.approx(full_overview.entries[name].scores[0].values[measure], abs=5e-7)
    tag = values["tags"][[item["tag"] for item in values["tags"]].index("kind")]
    assert [tag["names"][of] for of in tag["of"]] == [TAGS[query]["kind"] for query in QUERIES]


def test_page_explorer_rankings_match_runs(full_overview, parsed_page):
    result = parsed_page.data("explorer-rankings")
    assert result["depth"] == 10
    assert sorted(result["places"]) == list(range(N))
    for system, name in enumerate(full_overview.systems):
        rankings = result["lists"][system]
        for i, query in enumerate(QUERIES):
            positions = slice(rankings["starts"][result["places"][i]], rankings["starts"][result["places"][i] + 1])
            table = (
                full_overview.entries[name].run.table.filter(pl.col("query") == query).sort("score", descending=True)
            )
            assert [result["docs"][doc] for doc in rankings["docs"][positions]] == table["doc"].to_list()
            assert rankings["scores"][positions] == table["score"].to_list()
    judged = result["judged"]
    for i, query in enumerate(QUERIES):
        positions = slice(judged["starts"][result["places"][i]], judged["starts"][result["places"][i] + 1])
        grades = dict(
            zip((result["docs"][doc] for doc in judged["docs"][positions]), judged["grades"][positions], strict=True)
        )
        assert grades == JUDGMENTS.nested[query]
    for doc, shown_text in zip(result["docs"], result["texts"], strict=True):
        document = DOCUMENTS[int(doc[1:])]
        plain = " ".join(document.text.split())
        assert shown_text[0] == document.title
        assert shown_text[1] == (plain if len(plain) <= 300 else plain[:299] + "…")


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
    result = overview(files, measures=["mrr@10"], convention=rules, audited=False, rounds=200)
    data = overview_explorer.build_rankings_payload(result)
    rankings = data["lists"][0]
    docs_by_query = {}
    for i, query in enumerate(("q1", "q2")):
        position = data["places"][i]
        docs_by_query[query] = [
            data["docs"][doc]
            for doc in rankings["docs"][rankings["starts"][position] : rankings["starts"][position + 1]]
        ]
    reciprocal = result.entries["one"].scores[0].per_query["mrr@10"]
    assert docs_by_query["q1"][0] == "b"
    assert docs_by_query["q2"][0] == first
    assert {query: 1 / (docs.index("b") + 1) for query, docs in docs_by_query.items()} == reciprocal


def test_rankings_payload_empty_run_keeps_other_rankings(full_overview):
    empty_run = Run(full_overview.entries["third"].run.table.clear(), "third")
    entries = {**full_overview.entries, "third": replace(full_overview.entries["third"], run=empty_run)}
    result = overview_explorer.build_rankings_payload(replace(full_overview, entries=entries))
    assert result["lists"][2]["docs"] == []
    assert len(result["lists"][0]["docs"]) == 10 * N


def score_ranges(full_overview):
    """Compute the range of the scores of all systems for each query."""
    columns = np.array([entry.scores[0].values["ndcg@10"] for entry in full_overview.entries.values()])
    return columns.max(axis=0) - columns.min(axis=0)


@pytest.mark.parametrize("queries", [1, 5, 23])
def test_page_ranking_limit_keeps_queries_with_largest_differences(full_overview, monkeypatch, queries):
    monkeypatch.setattr(overview_explorer, "MAX_RANKING_ROWS", queries * 30)
    parts = ParsedPage(render_page([build_report(full_overview)]))
    result = parts.data("explorer-rankings")
    kept_queries = [i for i, place in enumerate(result["places"]) if place is not None]
    ranges = score_ranges(full_overview)
    assert len(kept_queries) == queries
    assert min(ranges[kept_queries]) >= max(np.delete(ranges, kept_queries))
    assert all(len(rankings["starts"]) == queries + 1 for rankings in result["lists"])
    assert f"{N - queries} queries with the smallest differences have no rankings" in parts.text


def test_rankings_payload_text_limit_keeps_largest_differences(full_overview, monkeypatch):
    monkeypatch.setattr(overview_explorer, "MAX_TEXT_CHARS", 1500)
    result = overview_explorer.build_rankings_payload(full_overview)
    texts = result["texts"]
    total = sum(len(part) for text in texts if text is not None for part in text)
    assert 0 < sum(text is not None for text in texts) < len(texts)
    assert total < 1500 + 300 + 10
    first_places = {}  # by document: the first place that shows it; places are sorted by decreasing difference
    for rankings in (*result["lists"], result["judged"]):
        for place in range(N):
            for doc in rankings["docs"][rankings["starts"][place] : rankings["starts"][place + 1]]:
                first_places[doc] = min(place, first_places.get(doc, N))
    with_text = [first_places[doc] for doc, text in enumerate(texts) if text is not None]
    without_text = [first_places[doc] for doc, text in enumerate(texts) if text is None]
    assert max(with_text) <= min(without_text)
    assert score_ranges(full_overview)[result["places"].index(0)] == max(score_ranges(full_overview))


def test_values_payload_nan_becomes_null(full_overview):
    scores = full_overview.entries["first"].scores[0]
    values = scores.values["ndcg@10"].copy()
    values[3] = math.nan
    with_nan = replace(scores, values=MeasureDict({**scores.values, "ndcg@10": values}, str))
    entries = {**full_overview.entries, "first": replace(full_overview.entries["first"], scores=[with_nan])}
    result = overview_explorer.build_values_payload(replace(full_overview, entries=entries))
    assert result["values"][0][0][3] is None
    assert result["values"][1][0][3] is not None


# --- escaping ---

ANY_TEXT = st.text(st.characters(), max_size=40)  # includes lone surrogates


@given(
    st.dictionaries(
        ANY_TEXT, st.lists(ANY_TEXT | st.floats(allow_nan=False, allow_infinity=False), max_size=3), max_size=3
    )
)
def test_to_script_json_round_trips_and_is_escaped(value):
    text = page_assets.to_script_json(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")


@given(st.lists(st.text(max_size=40), max_size=5))
def test_compress_json_is_base64_and_round_trips(value):
    text = page_assets.compress_json(value)
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", text)
    assert json.loads(gzip.decompress(base64.b64decode(text))) == value
    assert page_assets.compress_json(value) == text


def test_page_csp_allows_only_hashed_scripts(parsed_page):
    code = [text for kind, _, text in parsed_page.scripts if kind is None]
    assert len(code) == 3
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    rules = dict(part.strip().split(" ", 1) for part in parsed_page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in hashes]
    assert "unsafe-eval" not in parsed_page.policy
    assert (rules["base-uri"], rules["form-action"]) == ("'none'", "'none'")


def test_page_has_unique_ids_and_no_external_resources(full_overview, parsed_page):
    assert len(set(parsed_page.ids)) == len(parsed_page.ids)
    html = render_page([build_report(full_overview)])
    outside = re.sub(r"<script.*?</script>", "", html, flags=re.S)
    assert not re.search(r"""(src|href|action|url)\s*[=(]\s*["']?(https?:|//|file:)""", outside)
    assert not {"img", "link", "iframe", "object", "embed"} & set(parsed_page.tags)


def parse_page_with_text(text):
    """Build the page of an overview that has `text` in every field that holds text."""
    ranks = {text: FIRST_RANKS, "__proto__": SECOND_RANKS, "a\"b'c<b>": THIRD_RANKS}
    data = Dataset(
        text,
        [document._replace(text=f"{document.text[:50]} {text}", title=text) for document in DOCUMENTS],
        {query: f"{query_text} {text}" for query, query_text in QUERIES.items()},
        JUDGMENTS,
        tags={query: {text: text + tag["kind"]} for query, tag in TAGS.items()},
    )
    result = overview(make_experiment(ranks, baseline=text, data=data), rounds=200, audited=False, title=text)
    entries = {name: replace(entry, failed={"q00": text}) for name, entry in result.entries.items()}
    filled = replace(result, entries=entries, failures={text: text}, notes=[text], dataset=text, convention=text)
    return ParsedPage(render_page([build_report(filled)]).encode("utf-8", "replace").decode())


@pytest.fixture(scope="module")
def harmless_page():
    return parse_page_with_text("harmless")


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
def test_page_hostile_text_is_escaped_and_kept(harmless_page, text):
    page = parse_page_with_text(text)
    plain = text.replace("\ud800", "?")  # the query data keep control characters; report texts do not
    cleaned = clean_texts(text)
    assert page.tags == harmless_page.tags
    assert page.ids == harmless_page.ids
    assert page.data("explorer")["systems"][0] == cleaned
    assert page.data("explorer-values")["texts"][0].endswith(plain)
    assert page.data("explorer-values")["failed"]["0"]["0"] == plain
    assert plain in {item["tag"] for item in page.data("explorer-values")["tags"]}
    assert {item[0] for item in page.data("explorer-rankings")["texts"]} == {plain}
    assert sum(page.text.count(" ".join(version.split())) for version in {plain, cleaned}) >= 8


# --- partial overviews ---


def test_page_one_system_has_no_comparison(tmp_path):
    result = report(make_experiment({"only": FIRST_RANKS}, baseline=None), tmp_path / "one.html", rounds=200)
    parts = ParsedPage((tmp_path / "one.html").read_text(encoding="utf-8"))
    assert parts.data("explorer")["systems"] == ["only"]
    assert (parts.data("explorer")["system"], parts.data("explorer")["baseline"]) == (0, 0)
    assert "report-differences" not in parts.ids
    assert "By how much?" not in parts.text
    assert result.compared is None


def test_page_without_baseline_selects_best_and_last_system(tmp_path):
    result = report(
        make_experiment({"first": FIRST_RANKS, "second": SECOND_RANKS, "third": THIRD_RANKS}, baseline=None),
        tmp_path / "a.html",
        rounds=200,
    )
    parts = ParsedPage((tmp_path / "a.html").read_text(encoding="utf-8"))
    settings = parts.data("explorer")
    assert settings["systems"][settings["system"]] == result.ranked()[0] == "second"
    assert settings["baseline"] == settings["systems"].index(result.ranked()[-1])
    assert [column.title for column in build_quality_table(result).columns] == ["system", *MEASURES]


def test_page_means_only_has_no_query_list():
    entries = {
        name: SystemSummary(name, {"ndcg@10": Mean(value, 0)}) for name, value in (("one", 0.25), ("other", 0.5))
    }
    result = Overview("means", entries, ["ndcg@10"])
    parts = ParsedPage(render_page([build_report(result)]))
    assert "report-queries" not in parts.ids
    assert {script[1] for script in parts.scripts} == {"charts", None}
    assert summarise_overview(result) in parts.text
    assert "Not audited: an audit needs judgments and runs." in parts.text
    assert "Unknown whether queries failed." in parts.text


def test_page_without_runs_has_query_list_without_rankings(full_overview):
    entries = {name: replace(entry, run=None) for name, entry in full_overview.entries.items()}
    result = replace(full_overview, entries=entries, documents={})
    parts = ParsedPage(render_page([build_report(result)]))
    assert {script[1] for script in parts.scripts} == {"explorer", "explorer-values", "charts", None}
    assert "Rankings are not available." in parts.text
    assert overview_explorer.build_rankings_payload(result) is None


def test_page_without_texts_and_timings_has_notices(full_overview):
    parts = ParsedPage(
        render_page([build_report(replace(full_overview, queries={}, documents={}, tags={}, strata={}))])
    )
    assert parts.data("explorer-values")["texts"] == [""] * N
    assert parts.data("explorer-values")["tags"] == []
    assert set(map(type, parts.data("explorer-rankings")["texts"])) == {type(None)}
    assert "Texts of documents are not available." in parts.text
    assert "Not timed" in parts.text
    assert not {"report-strata", "report-latency", "chart-report-quality_latency"} & set(parts.ids)


def test_explorer_ignores_systems_with_other_queries(full_overview):
    scores = full_overview.entries["third"].scores[0]
    other_scores = replace(scores, queries=[f"x{query}" for query in scores.queries])
    entries = {**full_overview.entries, "third": replace(full_overview.entries["third"], scores=[other_scores])}
    result = replace(full_overview, entries=entries, baseline="third")
    assert overview_explorer.find_browsable_systems(result) == ["first", "second"]
    settings = ParsedPage(render_page([build_report(result)])).data("explorer")
    assert (settings["systems"][settings["system"]], settings["systems"][settings["baseline"]]) == ("second", "first")


def test_page_empty_overview_is_rendered():
    parts = ParsedPage(render_page([build_report(Overview("nothing", {}, ["ndcg@10"]))]))
    assert "No system has a value of ndcg@10." in parts.text
    assert "report-queries" not in parts.ids


def test_quality_table_matches_overview(full_overview):
    table = build_quality_table(full_overview, intervals=True)
    titles = [column.title for column in table.columns]
    assert titles == ["system", *MEASURES, "vs first", "p"]
    for row, (name, entry) in zip(table.cells(), full_overview.entries.items(), strict=True):
        assert (row[0].value, row[0].detail) == (name, "baseline" if name == "first" else "")
        for cell, measure in zip(row[1:3], MEASURES, strict=True):
            mean = entry.means[measure]
            assert cell.value == mean.value
            assert cell.detail == f"[{mean.low:.3f}, {mean.high:.3f}]"
            assert cell.best == (
                mean.value == max(entry.means[measure].value for entry in full_overview.entries.values())
            )
        difference = full_overview.difference(name)
        assert row[3].value == ("" if difference is None else difference.difference)


def test_page_has_summary_and_all_failures(full_overview):
    failed = {query: f"error {query}" for query in QUERIES}
    entries = {**full_overview.entries, "third": replace(full_overview.entries["third"], failed=failed)}
    result = replace(full_overview, entries=entries, failures={"fourth": "no such index"})
    parts = ParsedPage(render_page([build_report(result)]))
    assert " ".join(summarise_overview(result).split()) in parts.text
    assert f"Failed queries: third: {N}." in parts.text
    assert all(f"error {query}" in parts.text for query in QUERIES)
    assert "fourth was not run" in parts.text
    assert "no such index" in parts.text


def test_failures_table_limit_keeps_first_failures(full_overview, monkeypatch):
    monkeypatch.setattr("ragauge.reports.overview_tables.MAX_FAILURES_LISTED", 3)
    monkeypatch.setattr(overview_report, "MAX_FAILURES_LISTED", 3)
    failed = {query: f"error {query}" for query in QUERIES}
    entries = {**full_overview.entries, "third": replace(full_overview.entries["third"], failed=failed)}
    result = replace(full_overview, entries=entries)
    assert [row[3] for row in build_failures_table(result).rows] == ["error q00", "error q01", "error q02"]
    assert "The first 3 are listed." in ParsedPage(render_page([build_report(result)])).text
