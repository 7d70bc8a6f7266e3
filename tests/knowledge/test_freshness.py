"""Freshness: rates by hand and by a naive oracle, invalid version files, and gates that fail without evidence."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragauge
from command import command_in
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, Incomparable, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.files.serialization import to_json
from ragauge.knowledge.freshness import freshness, report
from ragauge.knowledge.freshness.charts import stale_counts_by_rank
from ragauge.knowledge.freshness.results import DocumentVersion, Freshness, StaleHit, VersionConflict
from ragauge.knowledge.freshness.stale_hits import VersionIndex, differing_excerpts
from ragauge.knowledge.freshness.versions_file import parse_time, read_versions, write_versions
from ragauge.output.tables import Table
from ragauge.reports.registry import read_results, write_results

RUN = {"q1": {"old": 2.0, "new": 1.0}, "q2": {"x": 2.0, "y": 1.0}}
VERSIONS = [
    {"doc_id": "old", "version_key": "vat", "effective_timestamp": 1},
    {"doc_id": "new", "version_key": "vat", "effective_timestamp": 2},
    {"doc_id": "x"},
    {"doc_id": "y"},
]
TEXTS = {"old": "It is 19%.", "new": "It is 21%.", "x": "", "y": ""}


def test_freshness_rates_by_hand():
    found = freshness(RUN, VERSIONS, k=2, corpus=TEXTS)
    assert (found.stale_rate, found.stale_query_rate, found.conflict_rate) == (0.25, 0.5, 0.5)
    assert found.conflict_query_rate == 0.5
    assert (found.query_count, found.total_considered, found.stale_hit_count, found.stale_query_count) == (2, 4, 1, 1)
    assert (found.conflict_group_count, found.conflicting_doc_count, found.conflict_query_count) == (1, 2, 1)
    assert found.queries[0].stale == [StaleHit("old", 1, "new", 2, "older")]
    assert found.compared


def test_freshness_uses_first_k_with_ties_by_descending_id():
    run = {"q": {"old": 1.0, "zzz": 1.0, "new": 0.5}}
    versions = [*VERSIONS, {"doc_id": "zzz"}]
    assert freshness(run, versions, k=1).stale_hit_count == 0
    found = freshness(run, versions, k=2)
    assert found.queries[0].stale == [StaleHit("old", 2, "new", None, "older")]
    assert found.conflict_group_count == 0


def test_freshness_text_comparison_ignores_white_space_but_not_case():
    def count_conflicts(old_text, new_text):
        found = freshness(RUN, VERSIONS, k=2, corpus={**TEXTS, "old": old_text, "new": new_text})
        return found.conflict_group_count, sum(len(query.copies) for query in found.queries)

    assert count_conflicts("It is 19%.", " It  is\n19%. ") == (0, 1)
    assert count_conflicts("caf\u00e9", "cafe\u0301") == (0, 1)
    assert count_conflicts("It is 19%.", "it is 19%.") == (1, 0)
    assert count_conflicts("It is 19%.", "It is 19 %.") == (1, 0)


def test_freshness_text_comparison_includes_title():
    def make_documents(title):
        return [Document("old", "Closed.", title), Document("new", "Closed.", "Sunday")]

    assert freshness(RUN, VERSIONS, k=2, corpus=make_documents("Sunday")).conflict_group_count == 0
    assert freshness(RUN, VERSIONS, k=2, corpus=make_documents("Monday")).conflict_group_count == 1


def test_freshness_missing_texts_counts_versions_as_conflicts():
    found = freshness(RUN, VERSIONS, k=2)
    assert (found.conflict_rate, found.compared) == (0.5, False)
    assert any("not compared" in note for note in found.notes)
    one_text = freshness(RUN, VERSIONS, k=2, corpus={"old": "It is 19%."})
    assert one_text.queries[0].conflicts == [VersionConflict("vat", ("old", "new"))]
    assert any("1 text unknown" in note for note in one_text.notes)


def test_freshness_three_versions_two_texts_is_one_conflict():
    versions = [{"doc_id": d, "version_key": "v", "effective_timestamp": t} for t, d in enumerate("abc")]
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    found = freshness(run, versions, corpus={"a": "one", "b": "two", "c": "one"})
    assert (found.conflict_group_count, found.conflict_rate) == (1, 1.0)
    assert [hit.doc for hit in found.queries[0].stale] == ["a", "b"]


def test_version_index_follows_chains_to_newest_version():
    index = VersionIndex([DocumentVersion("a", superseded_by="b"), DocumentVersion("b", superseded_by="c"),
                         DocumentVersion("c", "k", 1.0), DocumentVersion("d", "k", 5.0),
                         DocumentVersion("e", "k", 3.0)])  # fmt: skip
    assert {doc: (found := index.newer(doc)) and found.doc for doc in "abcde"} == {
        "a": "d", "b": "d", "c": "d", "d": None, "e": "d"
    }  # fmt: skip


def test_version_index_equal_or_missing_times_replace_nothing():
    assert VersionIndex([DocumentVersion("a", "k", 1.0), DocumentVersion("b", "k", 1.0)]).newer("a") is None
    assert VersionIndex([DocumentVersion("a", "k", None), DocumentVersion("b", "k", 1.0)]).newer("a") is None
    assert VersionIndex([DocumentVersion("a", None, 1.0), DocumentVersion("b", None, 2.0)]).newer("a") is None


def test_version_index_withdrawn_version_keeps_restored_one_current():
    index = VersionIndex(
        [DocumentVersion("v1", "k", 1.0), DocumentVersion("v2", "k", 2.0), DocumentVersion("v3", "k", 3.0, "v2")]
    )
    assert index.newer("v2") is None
    assert index.newer("v3") == ("v2", "superseded")
    assert index.newer("v1").doc == "v2"


def test_version_index_restored_version_replaces_all_versions_between():
    """v3 was withdrawn in favour of v1, so v1 also replaces v2, which is older than the withdrawal."""
    index = VersionIndex(
        [DocumentVersion("v1", "k", 1.0), DocumentVersion("v2", "k", 2.0), DocumentVersion("v3", "k", 3.0, "v1")]
    )
    assert [index.newer(doc) for doc in ("v1", "v2", "v3")] == [None, ("v1", "older"), ("v1", "superseded")]
    with_v4 = VersionIndex([*index.versions.values(), DocumentVersion("v4", "k", 4.0)])
    assert {with_v4.newer(doc).doc for doc in ("v1", "v2", "v3")} == {"v4"}


def test_version_index_replacement_without_row_replaces_older_versions():
    index = VersionIndex([DocumentVersion("a", "k", 1.0), DocumentVersion("b", "k", 2.0, "outside")])
    assert [index.newer(doc) for doc in ("a", "b")] == [("outside", "older"), ("outside", "superseded")]
    assert index.newer("outside") is None


def test_freshness_20000_versions_replaced_by_one_is_fast():
    """Searching all versions of the key for each returned document would take 200 million steps."""
    versions = [
        DocumentVersion("d0", "k", 0.0),
        *(DocumentVersion(f"d{i}", "k", float(i), "d0") for i in range(1, 20_000)),
    ]
    run = {f"q{q}": [f"d{(q * 10 + rank) % 20_000}" for rank in range(10)] for q in range(1000)}
    found = freshness(run, versions)
    assert found.stale_hit_count == 9_999
    assert {hit.newer for query in found.queries for hit in query.stale} == {"d0"}


def test_version_index_cycle_of_times_and_supersession_terminates():
    index = VersionIndex(
        [
            DocumentVersion("a", "k", 1.0),
            DocumentVersion("b", "k", 2.0, "c"),
            DocumentVersion("c", "l", 1.0),
            DocumentVersion("d", "l", 2.0, "a"),
        ]
    )
    assert [index.newer(doc) for doc in "abcd"] == [None, ("c", "superseded"), None, ("a", "superseded")]


def is_stale_naive(versions, doc, as_of=math.inf):
    """Return whether a document is stale, by comparing it with every version."""
    by_doc = {version.doc: version for version in versions}

    def is_effective(version):
        return version is None or version.effective is None or version.effective <= as_of

    def find_current(name):
        while (
            name in by_doc
            and by_doc[name].superseded_by is not None
            and is_effective(by_doc.get(by_doc[name].superseded_by))
        ):
            name = by_doc[name].superseded_by
        return name

    def effective_since(name):
        times = [
            version.effective
            for version in versions
            if find_current(version.doc) == name and is_effective(version) and version.effective is not None
        ]
        return max(times, default=-math.inf)

    own_version = by_doc.get(doc)
    if own_version is None:
        return False
    if find_current(doc) != doc:
        return True
    if own_version.key is None or own_version.effective is None:
        return False
    return any(
        other.key == own_version.key
        and is_effective(other)
        and effective_since(find_current(other.doc)) > max(own_version.effective, effective_since(doc))
        for other in versions
    )


@st.composite
def draw_versions(draw):
    """Draw versions of up to 9 documents; each is superseded only by later ones, so there are no cycles."""
    names = [f"d{i}" for i in range(draw(st.integers(1, 9)))]
    order = draw(st.permutations(names))
    return [
        DocumentVersion(
            name,
            draw(st.sampled_from([None, "k", "l"])),
            draw(st.sampled_from([None, 1.0, 2.0, 3.0])),
            draw(st.sampled_from([None, None, *order[position + 1 :], "elsewhere"])),
        )
        for position, name in enumerate(order)
    ]


@given(draw_versions(), st.sampled_from([None, 1.0, 2.5]))
def test_version_index_matches_pairwise_oracle(versions, as_of):
    index = VersionIndex(versions, as_of)
    for version in versions:
        newer = index.newer(version.doc)
        assert (newer is not None) == is_stale_naive(versions, version.doc, math.inf if as_of is None else as_of)
        assert newer is None or (newer.doc != version.doc and newer.reason)


@given(draw_versions(), st.sampled_from([None, 1.0, 2.5]))
def test_version_index_replacement_is_never_stale(versions, as_of):
    index = VersionIndex(versions, as_of)
    for version in versions:
        newer = index.newer(version.doc)
        if newer is not None:
            assert index.newer(newer.doc) is None
            assert not is_stale_naive(versions, newer.doc, math.inf if as_of is None else as_of)


@given(
    draw_versions(), st.lists(st.permutations([f"d{i}" for i in range(10)]), min_size=1, max_size=4), st.integers(1, 10)
)
def test_freshness_rates_match_naive_counts(versions, rankings, k):
    run = {f"q{number}": list(docs) for number, docs in enumerate(rankings)}
    texts = {f"d{i}": "even" if i % 2 == 0 else "odd" for i in range(10)}
    found = freshness(run, versions, k=k, corpus=texts)
    keys = {version.doc: version.key for version in versions if version.key is not None}
    stale = conflicting = 0
    for docs in run.values():
        top = docs[:k]
        stale += sum(is_stale_naive(versions, doc) for doc in top)
        conflicting += sum(
            any(keys[o] == keys[doc] and texts[o] != texts[doc] for o in top if o in keys)
            or any(
                keys[a] == keys[doc] == keys[b] and texts[a] != texts[b] for a in top for b in top if {a, b} <= {*keys}
            )
            for doc in top
            if doc in keys
        )
    assert found.stale_hit_count == stale
    assert found.conflicting_doc_count == conflicting
    assert found.total_considered == len(run) * k
    assert found.stale_rate == pytest.approx(np.mean(found.scores().values[f"stale@{k}"]))


def test_freshness_empty_or_missing_query_is_unscored():
    found = freshness({"q1": {"old": 1.0}, "q2": {}}, VERSIONS, queries=["q1", "q2", "q3"])
    assert (found.query_count, found.stale_query_rate) == (1, 1.0)
    assert found.unscored == {"q2": "no results", "q3": "the run does not have the query"}
    column = found.scores().values["stale@10"]
    assert column[0] == 1.0
    assert np.isnan(column[1:]).all()


def test_freshness_empty_rates_are_nan_and_null_in_json():
    found = freshness({"q1": {}}, VERSIONS)
    assert math.isnan(found.stale_rate)
    data = json.loads(to_json(found))
    assert data["stale_rate"] is None
    assert data["conflict_query_rate"] is None
    assert data["query_count"] == 0


def test_freshness_versions_of_other_corpus_is_nan_unless_corpus_given():
    found = freshness({"q1": {"a": 1.0}}, VERSIONS)
    assert math.isnan(found.stale_rate)
    assert "no returned document is in the versions" in found.unscored["q1"]
    same = freshness({"q1": {"a": 1.0}}, VERSIONS, corpus={"a": "", "old": "", "new": ""})
    assert same.stale_rate == 0.0


def test_freshness_replacement_without_row_is_versioned():
    found = freshness({"q1": {"new": 1.0}}, [{"doc_id": "old", "superseded_by": "new"}])
    assert (found.stale_rate, found.versioned_count, found.unscored) == (0.0, 1, {})
    corpus = freshness({"q1": {"x": 1.0}}, [{"doc_id": "old", "superseded_by": "new"}], corpus={"x": "", "new": ""})
    assert corpus.stale_rate == 0.0


def test_freshness_as_of_ignores_later_versions():
    versions = [
        {"doc_id": "v1", "version_key": "k", "effective_timestamp": "2020-01-01"},
        {"doc_id": "v2", "version_key": "k", "effective_timestamp": "2024-01-01"},
        {"doc_id": "a", "superseded_by": "b"},
        {"doc_id": "b", "effective_timestamp": "2023-06-01"},
    ]
    run = {"q": ["v1", "a"]}
    assert freshness(run, versions).stale_hit_count == 2
    assert freshness(run, versions, as_of="2023-12-31").stale_hit_count == 1
    assert freshness(run, versions, as_of="2022-01-01").stale_hit_count == 0
    assert freshness(run, versions, as_of="2024-01-01T00:00:00Z").stale_hit_count == 2
    early = freshness({"q": ["v2"]}, versions, as_of="2022-01-01")
    assert any("takes effect later" in note for note in early.notes)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1700000000, 1.7e9),
        ("1700000000.5", 1700000000.5),
        ("2023-11-14T22:13:20Z", 1.7e9),
        ("2023-11-14T22:13:20", 1.7e9),
        ("2023-11-15T00:13:20+02:00", 1.7e9),
        ("1970-01-01", 0.0),
        (-5, -5.0),
        ("1e9", 1e9),
        ("20240531T120000Z", 1717156800.0),
        (2024.0, 2024.0),
        ("20240531.0", 20240531.0),
        (20241301, 20241301.0),
    ],
)
def test_parse_time_reads_seconds_and_dates_as_utc(value, seconds):
    assert parse_time(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "soon",
        "2024-13-01",
        math.nan,
        math.inf,
        1700000000000,
        True,
        "2024-05",
        10**400,
        "1_000",
        "\u0661\u0662\u0663",
        "\u0662\u0660\u0662\u0664-01-01",
        "infinity",
    ],
)
def test_parse_time_rejects_invalid_values(value):
    with pytest.raises(BadInput):
        parse_time(value)


@pytest.mark.parametrize(("value", "date"), [(2024, "2024-01-01"), ("1999", "1999-01-01"), (20240531, "2024-05-31"),
                                              (" 20240531 ", "2024-05-31")])  # fmt: skip
def test_parse_time_number_that_could_be_a_date_raises_with_hint(value, date):
    with pytest.raises(BadInput, match="a date, or seconds") as caught:
        parse_time(value)
    assert date in caught.value.hint


def write_version_rows(tmp_path, *rows, name="versions.jsonl"):
    path = tmp_path / name
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], ":1: the JSON cannot be read"),
        ([{"doc_id": "a"}, {"doc_id": "a"}], ":2: document `a` already has a version on line 1"),
        ([{"doc_id": "a"}, {"doc_id": "b", "supersededby": "a"}], ":2: unknown field `supersededby` of a version"),
        ([{"doc_id": "a", "superseded_by": "a"}], ":1: document `a` is superseded by itself"),
        ([{"doc_id": "a", "effective_timestamp": "soon"}], ":1: effective_timestamp of `a` is `soon`, not a time"),
        ([{"doc_id": "a", "effective_timestamp": 1700000000000}], "which is too large for seconds"),
        ([{"doc_id": "a", "superseded_by": ["b"]}], ':1: superseded_by is ["b"]'),
        ([{"doc_id": "a"}, {"version_key": "k"}], ":2: a document is missing"),
        (['{"doc_id": "a", "doc_id": "b"}'], "duplicate key `doc_id`"),
        ([{"doc_id": " "}], ":1: a document is missing"),
        ([], "no versions"),
        (
            [{"doc_id": "z", "superseded_by": "a"}, {"doc_id": "a", "superseded_by": "b"},
             {"doc_id": "b", "superseded_by": "a"}],
            ":2: documents supersede each other in a cycle: a -> b -> a",
        ),
        (
            [{"doc_id": "a", "effective_timestamp": "2024-05-31"}, {"doc_id": "c"},
             {"doc_id": "b", "effective_timestamp": 1700000000}],
            ":3: effective_timestamp is 1700000000, and 2024-05-31 elsewhere: numbers and dates are mixed",
        ),
    ],
)  # fmt: skip
def test_read_versions_invalid_row_raises_with_line(tmp_path, rows, message):
    with pytest.raises(BadInput) as caught:
        read_versions(write_version_rows(tmp_path, *rows))
    assert message in str(caught.value)


def test_read_versions_misspelled_field_suggests_name(tmp_path):
    with pytest.raises(BadInput, match="did you mean `superseded_by`"):
        read_versions(write_version_rows(tmp_path, {"doc_id": "a", "supersededby": "b"}))


@given(draw_versions(), st.sampled_from([".jsonl", ".csv", ".tsv", ".parquet", ".jsonl.gz"]))
def test_write_versions_every_format_round_trip(tmp_path_factory, versions, extension):
    path = str(tmp_path_factory.mktemp("versions") / f"versions{extension}")
    write_versions(versions, path)
    assert read_versions(path) == versions


@pytest.mark.parametrize("extension", [".jsonl", ".csv", ".parquet"])
def test_write_versions_seconds_that_look_like_dates_round_trip(tmp_path, extension):
    versions = [
        DocumentVersion("a", "k", 2024.0),
        DocumentVersion("b", "k", 20240531.0),
        DocumentVersion("c", "k", 1.7e9),
    ]
    write_versions(versions, str(tmp_path / f"v{extension}"))
    assert read_versions(str(tmp_path / f"v{extension}")) == versions


def test_read_versions_accepts_frames_and_lists():
    frame = pl.DataFrame(VERSIONS, schema=["doc_id", "version_key", "effective_timestamp", "superseded_by"])
    assert read_versions(frame) == read_versions(VERSIONS) == read_versions(read_versions(VERSIONS))
    with pytest.raises(BadInput):
        read_versions({"a": "b"})


def test_differing_excerpts_surround_first_difference():
    before = "word " * 40
    one, other = differing_excerpts([f"{before}is 19 percent {'more ' * 30}", f"{before}is 21 percent"])
    assert one.startswith("…word")
    assert "is 19 percent" in one
    assert one.endswith("…")
    assert other.endswith("is 21 percent")
    assert differing_excerpts(["x" * 99 + "a", "x" * 99 + "b"]) == ("…" + "x" * 30 + "a", "…" + "x" * 30 + "b")
    assert differing_excerpts(["same", "same and more"]) == ("same", "same and more")


def test_freshness_rejects_invalid_runs_and_k():
    with pytest.raises(BadInput, match="more than once"):
        freshness(pl.DataFrame({"query": ["q", "q"], "doc": ["a", "a"], "score": [2.0, 1.0]}), VERSIONS)
    with pytest.raises(BadInput):
        freshness({"q": {"a": math.nan}}, VERSIONS)
    with pytest.raises(BadInput, match="expected one run, got a, b"):
        freshness({"a": RUN, "b": RUN}, VERSIONS)
    with pytest.raises(BadInput, match="k must be at least 1, got 0"):
        freshness(RUN, VERSIONS, k=0)


def test_freshness_json_round_trip_and_other_formats(tmp_path):
    found = freshness(RUN, VERSIONS, k=2, corpus=TEXTS, queries={"q1": "VAT?", "q3": ""})
    path = str(tmp_path / "f.json")
    write_results([found], [path, *(str(tmp_path / f"f.{extension}") for extension in ("md", "html", "csv", "tex"))])
    (restored,) = read_results(path)
    assert isinstance(restored, Freshness)
    assert restored.queries == found.queries
    assert (restored.stale_rate, restored.unscored) == (found.stale_rate, found.unscored)
    assert "It is 19%." in (tmp_path / "f.md").read_text()
    assert "It is 21%." in (tmp_path / "f.html").read_text()
    assert (tmp_path / "f.csv").read_text().splitlines()[:2] == [
        "run,query,stale@2,conflict@2,judge",
        f"run,q1,0.5,1.0,versions {found.fingerprint} (texts compared)",
    ]


def test_freshness_report_sections_have_short_titles():
    run = {f"q{i}": ["old", "new"] for i in range(9)} | {"q9": []}
    sections = report.build_report(freshness(run, VERSIONS)).sections
    assert [section.short for section in sections] == ["Rates", "Documents", "Queries", "Conflicts", "Unscored"]
    tables = [block for block in sections[2].blocks if isinstance(block, Table)]
    assert [(len(table.rows), table.collapsed) for table in tables] == [(6, False), (9, True)]


def test_stale_counts_by_rank_by_hand():
    found = freshness({"q1": ["old", "x"], "q2": ["y", "old"], "q3": ["old"]}, VERSIONS, k=3)
    assert stale_counts_by_rank(found) == [(1, 2, 3), (2, 1, 2)]


def test_compare_freshness_scores_requires_same_versions_and_texts():
    worse = {f"q{i}": ["old", "x"] for i in range(6)}
    better = {f"q{i}": ["new", "x"] for i in range(6)}
    scores = {name: freshness(run, VERSIONS, k=2).scores() for name, run in (("worse", worse), ("better", better))}
    (pair,) = [row for row in ragauge.compare(scores, baseline="worse") if row.measure == "stale@2"]
    assert pair.difference == -0.5
    assert pair.lower_is_better
    other = freshness(better, VERSIONS[:2], k=2).scores()
    with pytest.raises(Incomparable):
        ragauge.compare({"worse": scores["worse"], "better": other})
    with_texts = freshness(better, VERSIONS, k=2, corpus=TEXTS).scores()
    with pytest.raises(Incomparable, match="texts not compared"):
        ragauge.compare({"worse": scores["worse"], "better": with_texts})


def test_freshness_run_folder_knows_texts_of_corpus(tmp_path):
    ragauge.run("synthetic:needles", ["bm25"], k=2, out=tmp_path / "runs")
    document_id = ragauge.load("synthetic:needles").documents[0].id
    assert freshness(tmp_path / "runs", [{"doc_id": document_id}], k=2).compared


# Gates


def test_gate_freshness_limits_without_judgments():
    found = ragauge.gate(RUN, ["stale_rate@2 <= 0.25", "stale_query_rate@2 < 0.5", "stale@2 <= 0.2"], versions=VERSIONS)
    assert [check.passed for check in found] == [True, False, False, True]
    assert [check.value for check in found][:3] == [0.25, 0.5, 0.25]


def test_gate_freshness_without_versions_fails():
    qrels = {"q1": {"old": 1}, "q2": {"x": 1}}
    found = ragauge.gate(RUN, ["stale_rate@2 <= 0.999", "stale@2 <= 0.999"], qrels=qrels)
    assert [check.passed for check in found] == [False, False, True]
    assert "--versions" in found.checks[0].reason
    with pytest.raises(BadInput, match="no versions"):
        ragauge.gate(RUN, "stale_rate@2 <= 0.999")


def test_gate_freshness_unscored_queries_fail_unless_allowed():
    run = {**RUN, "q3": {}}
    failed = ragauge.gate(run, "stale_rate@2 <= 0.999", versions=VERSIONS)
    assert "1 query has no stale_rate@2 (q3): no results" in failed.checks[0].reason
    assert any("unscored(stale_rate@2) <= 5%" in note for note in failed.notes)
    allowed = ragauge.gate(run, ["stale_rate@2 <= 0.25", "unscored(stale_rate@2) <= 1"], versions=VERSIONS)
    assert allowed.passed
    no_results = ragauge.gate({"q1": {}}, ["stale_rate@2 <= 0.999", "unscored(stale_rate@2) <= 1"], versions=VERSIONS)
    assert not no_results.checks[0].passed


def test_gate_freshness_missing_judged_query_is_unscored():
    qrels = {"q1": {"old": 1}, "q9": {"x": 1}}
    found = ragauge.gate(RUN, ["stale_rate@2 <= 0.999", "mrr >= 0.001", "missing <= 1"], qrels=qrels, versions=VERSIONS)
    assert [check.passed for check in found] == [False, True, True]
    assert "the run does not have the query" in found.checks[0].reason


def test_gate_freshness_counts_unjudged_queries():
    run = {"q1": ["new", "x"], "q2": ["old", "x"], "q3": ["old", "x"]}
    rules = [
        "stale@2 <= 0.999",
        "stale_rate@2 <= 0.999",
        "stale_query_rate@2 <= 0.999",
        "unscored(stale@2) <= 1",
        "missing <= 1",
    ]
    found = ragauge.gate(run, rules, qrels={"q1": {"new": 1}, "q9": {"x": 1}}, versions=VERSIONS)
    assert [(check.n, check.value) for check in found][:4] == [(3, 1 / 3), (3, 1 / 3), (3, 2 / 3), (4, 1)]
    assert not any("nobody judged" in note for note in found.notes)
    with_measure = ragauge.gate(
        run, [*rules, "mrr >= 0.001"], qrels={"q1": {"new": 1}, "q9": {"x": 1}}, versions=VERSIONS
    )
    assert "run: 2 unjudged queries, used only to count stale documents" in with_measure.notes
    assert not any("they are not scored" in note for note in with_measure.notes)


def test_gate_freshness_unjudged_query_of_stratum_counts():
    run = {"q1": ["new", "x"], "q2": ["old", "x"]}
    tags = {"q1": {"topic": "tax"}, "q2": {"topic": "hours"}}
    for rule in ("stale@2 <= 0.5 by topic", "stale_rate@2 <= 0.5 by topic"):
        found = ragauge.gate(run, rule, qrels={"q1": {"new": 1}}, tags=tags, versions=VERSIONS)
        assert {check.rule.value: check.value for check in found if check.rule.tag} == {"hours": 0.5, "tax": 0.0}


def test_gate_freshness_baseline_with_more_queries_fails():
    qrels = {"q1": {"x": 1}}
    for rule in ("stale_rate@2 rise <= 0.999", "stale@2 rise <= 0.999"):
        found = ragauge.gate({"q1": ["new"]}, rule, baseline={"q1": ["new"], "q2": ["old"]}, qrels=qrels,
                             versions=VERSIONS)  # fmt: skip
        assert found.checks[0].reason == "the run lacks 1 query that the baseline has (q2)"


def test_gate_freshness_result_of_other_versions_raises_error(tmp_path):
    rule, path = "stale_rate@2 <= 0.999", str(tmp_path / "f.json")
    for as_of in (None, "2024-05-31"):
        result = freshness(RUN, VERSIONS, k=2, as_of=as_of)
        write_results([result], [path])
        for source in (result, path):
            assert ragauge.gate(source, rule, versions=VERSIONS).passed
            with pytest.raises(BadInput, match="counted with other versions"):
                ragauge.gate(source, rule, versions=VERSIONS[:2])
            with pytest.raises(BadInput, match="counted with other versions"):
                ragauge.gate(source, rule, baseline=freshness(RUN, VERSIONS[:2], k=2), versions=VERSIONS)
    scores = freshness(RUN, VERSIONS, k=2).scores()
    assert ragauge.gate(scores, "stale@2 <= 0.999", versions=VERSIONS).passed
    with pytest.raises(BadInput, match="counted with other versions"):
        ragauge.gate(scores, "stale@2 <= 0.999", versions=VERSIONS[:2])


def test_gate_freshness_baseline_without_texts_is_incomparable():
    with_texts, without_texts = freshness(RUN, VERSIONS, k=2, corpus=TEXTS), freshness(RUN, VERSIONS, k=2)
    with pytest.raises(Incomparable):
        ragauge.gate(with_texts, "conflict_rate@2 rise <= 0", baseline=without_texts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("unscored"), "missing unscored"),
        (lambda data: data.pop("queries"), "missing queries"),
        (lambda data: data.pop("k"), "missing k"),
        (lambda data: data.update(unscored=None), "missing unscored"),
        (lambda data: data.update(k=True), "k: expected an integer, got true"),
        (
            lambda data: data["queries"][0].update(considered=0, versioned=0, stale=[], conflicts=[]),
            "must have at least 1 document, got 0",
        ),
        (lambda data: data["queries"][0].update(considered=1), "has more versioned, stale or conflicting documents"),
        (lambda data: data["queries"][0]["stale"][0].update(rank=3), "below its 2 documents"),
        (lambda data: data["queries"].append(data["queries"][0]), "query `q1` appears more than once"),
        (lambda data: data["unscored"].update(q2="why"), "query `q2` appears more than once"),
        (lambda data: data.update(k=1), "has 2 documents; expected at most k = 1"),
    ],
)
def test_gate_freshness_inconsistent_result_file_raises_error(tmp_path, change, message):
    path = tmp_path / "f.json"
    write_results([freshness(RUN, VERSIONS, k=2)], [str(path)])
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(BadInput) as caught:
        ragauge.gate(str(path), "stale_rate@2 <= 0.999")
    assert message in str(caught.value)


def test_gate_freshness_versions_of_other_corpus_fail():
    found = ragauge.gate({"q1": {"a": 1.0}}, "stale_rate@10 <= 0", versions=VERSIONS)
    assert not found.passed
    assert "no returned document is in the versions" in found.checks[0].reason


def test_gate_freshness_result_applies_only_at_its_own_k(tmp_path):
    fresh = freshness(RUN, VERSIONS, k=2, corpus=TEXTS)
    found = ragauge.gate(fresh, ["conflict_rate@2 <= 0.5", "stale_rate@10 <= 0.999"])
    assert [check.passed for check in found] == [True, False, True]
    assert "computed at k = 2" in found.checks[1].reason
    path = str(tmp_path / "f.json")
    write_results([fresh], [path])
    assert ragauge.gate(path, "conflict_rate@2 <= 0.5").passed


def test_gate_freshness_run_staler_than_baseline_fails():
    before = {f"q{i}": ["new", "x"] for i in range(8)}
    after = {f"q{i}": ["old" if i else "new", "x"] for i in range(8)}
    qrels = {f"q{i}": {"x": 1} for i in range(8)}
    for judged in (None, qrels):
        rules = ["stale@2 not worse", "stale_rate@2 rise <= 0.01"]
        found = ragauge.gate(after, rules, baseline=before, qrels=judged, versions=VERSIONS)
        assert [check.passed for check in found][:2] == [False, False]
        assert found.checks[1].difference == pytest.approx(7 / 16)
        assert ragauge.gate(before, rules, baseline=after, qrels=judged, versions=VERSIONS).passed


def test_gate_freshness_rate_by_stratum():
    qrels = {"q1": {"old": 1}, "q2": {"x": 1}}
    tags = {"q1": {"topic": "tax"}, "q2": {"topic": "hours"}}
    found = ragauge.gate(RUN, "stale_rate@2 <= 0 by topic", qrels=qrels, tags=tags, versions=VERSIONS)
    by_value = {check.rule.value: check.value for check in found if check.rule.tag}
    assert by_value == {"hours": 0.0, "tax": 0.5}


def test_gate_freshness_missing_k_or_unknown_name_raises_error():
    with pytest.raises(BadInput, match="`stale_rate` needs a cutoff"):
        ragauge.gate(RUN, "stale_rate <= 0", versions=VERSIONS)
    with pytest.raises(UnknownName):
        ragauge.gate(RUN, "staleness_rate@10 <= 0", versions=VERSIONS)


def make_dataset(name="tax"):
    documents = [Document("old", "vat tax rate 19"), Document("new", "vat tax rate 21"), Document("x", "opening hours")]
    queries = {"q1": "vat rate", "q2": "opening hours", "q3": "zebra"}
    return Dataset(name, documents, queries, Judgments({"q1": {"new": 1}, "q2": {"x": 1}, "q3": {"x": 1}}))


def test_freshness_experiment_and_run_folder_provide_texts(tmp_path):
    experiment = ragauge.run(make_dataset(), ["bm25"], k=2, out=tmp_path / "runs")
    rules = ["stale_rate@2 <= 0.5", "conflict_rate@2 <= 0.999", "unscored(stale_rate@2) <= 1"]
    found = ragauge.gate(experiment, rules, system="bm25", versions=VERSIONS)
    assert found.passed
    assert found.checks[0].n == 2
    run = freshness(experiment.runs["bm25"], VERSIONS, k=2, corpus=make_dataset())
    assert run.compared
    assert run.unscored == {"q3": "no results"}
    (conflict,) = run.queries[0].conflicts
    assert set(conflict.excerpts) == {"vat tax rate 19", "vat tax rate 21"}
    assert freshness(tmp_path / "runs", VERSIONS, k=2).texts == {"q1": "vat rate"}
    too_deep = ragauge.gate(str(tmp_path / "runs" / "bm25"), ["stale_rate@5 <= 0.999", "unscored(stale_rate@5) <= 1"],
                        versions=VERSIONS)  # fmt: skip
    assert "stale_rate@5 needs 5 documents per query, but the run was made with k=2" in too_deep.checks[0].reason
    assert not ragauge.gate(str(tmp_path / "runs" / "bm25"), "stale_rate@2 <= 0.999").passed


# Command line


@pytest.fixture
def run_command(tmp_path):
    (tmp_path / "old.run").write_text("q1 Q0 old 1 2 a\nq1 Q0 new 2 1 a\nq2 Q0 x 1 2 a\nq2 Q0 y 2 1 a\n")
    (tmp_path / "new.run").write_text("q1 Q0 new 1 2 a\nq2 Q0 x 1 2 a\n")
    write_version_rows(tmp_path, *VERSIONS)
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in TEXTS.items())
    )

    return command_in(tmp_path)


def test_cli_freshness_json_has_rates_and_excerpts(run_command):
    done = run_command(
        "freshness", "old.run", "--versions", "versions.jsonl", "-k", "2", "--corpus", "corpus.jsonl", "--json"
    )
    data = json.loads(done.stdout)
    assert data["schema"] == "ragauge-freshness/1"
    assert (data["k"], data["query_count"], data["total_considered"]) == (2, 2, 4)
    assert (data["stale_hit_count"], data["stale_rate"], data["conflict_rate"]) == (1, 0.25, 0.5)
    assert data["queries"][0]["conflicts"][0]["excerpts"] == ["It is 19%.", "It is 21%."]


def test_cli_freshness_several_runs_csv_is_read_by_compare(run_command, tmp_path):
    done = run_command("freshness", "old.run", "new.run", "--versions", "versions.jsonl", "-k", "2")
    assert [line.split()[:2] for line in done.stdout.splitlines()[-2:]] == [["old", "2"], ["new", "2"]]
    table = run_command("freshness", "old.run", "new.run", "--versions", "versions.jsonl", "-k", "2", "--csv")
    (tmp_path / "scores.csv").write_text(table.stdout)
    compared = run_command("compare", "scores.csv", "--json")
    assert json.loads(compared.stdout)
    assert "stale@2" in compared.stdout


def test_cli_gate_freshness_needs_only_versions(run_command, tmp_path):
    done = run_command("gate", "old.run", "--versions", "versions.jsonl", "-r", "stale_rate@2 <= 0.05", code=1)
    assert "FAIL  stale_rate@2 <= 0.05" in done.stdout
    run_command("gate", "new.run", "--versions", "versions.jsonl", "-r", "stale_rate@2 <= 0.05")
    (tmp_path / "gate.toml").write_text(
        'rules = ["stale_rate@2 <= 0.05"]\nversions = "versions.jsonl"\n[measures]\n"conflict_rate@2" = {at_most = 0}\n'
    )
    assert not ragauge.gate(str(tmp_path / "old.run"), str(tmp_path / "gate.toml"))
    assert ragauge.gate(str(tmp_path / "new.run"), str(tmp_path / "gate.toml"))


@pytest.mark.slow
def test_cli_gate_freshness_other_versions_or_texts_raises_error(run_command, tmp_path):
    arguments = ("freshness", "--versions", "versions.jsonl", "-k", "2")
    run_command(*arguments, "old.run", "--corpus", "corpus.jsonl", "-o", "with.json")
    run_command(*arguments, "old.run", "-o", "without.json")
    rule = ("-r", "conflict_rate@2 rise <= 0")
    assert "texts not compared" in run_command("gate", "with.json", "-b", "without.json", *rule, code=4).stderr
    (tmp_path / "same.json").write_bytes((tmp_path / "with.json").read_bytes())
    run_command("gate", "with.json", "-b", "same.json", *rule)
    (tmp_path / "other.jsonl").write_text('{"doc_id": "x"}\n')
    refused = run_command("gate", "with.json", "--versions", "other.jsonl", "-r", "stale_rate@2 <= 0.999", code=2)
    assert "counted with other versions" in refused.stderr
    run_command("gate", "with.json", "--versions", "versions.jsonl", "-r", "stale_rate@2 <= 0.999")


def test_cli_freshness_invalid_input_exits_with_2(run_command):
    assert "no such file" in run_command("freshness", "no.run", "--versions", "versions.jsonl", code=2).stderr
    assert (
        "not a time"
        in run_command("freshness", "old.run", "--versions", "versions.jsonl", "--as-of", "x", code=2).stderr
    )
    duplicated = run_command("freshness", "old.run", "a/old.run", "--versions", "versions.jsonl", code=2)
    assert "run `old` appears more than once" in duplicated.stderr


# Real dataset


@pytest.mark.slow
def test_freshness_attack_finds_all_revoked_techniques(shared):
    """The bundle records replacements of revoked techniques; BM25 over all techniques returns some revoked ones."""
    with gzip.open(shared("attack/enterprise-attack-18.1.stix21.json.gz")) as file:
        objects = json.load(file)["objects"]
    techniques = {one["id"]: one for one in objects if one["type"] == "attack-pattern" and one.get("description")}
    replacements = {
        one["source_ref"]: one["target_ref"] for one in objects if one.get("relationship_type") == "revoked-by"
    }

    def find_current(name):
        while name in replacements:
            name = replacements[name]
        return name

    documents = [Document(name, one["description"], one["name"]) for name, one in techniques.items()]
    queries = {name: one["name"] for name, one in techniques.items() if not one.get("revoked")}
    versions = [
        {"doc_id": name, "version_key": find_current(name), "effective_timestamp": one["created"],
         "superseded_by": replacements.get(name)}
        for name, one in techniques.items()
    ]  # fmt: skip
    data = Dataset("attack", documents, queries, Judgments({name: {name: 1} for name in queries}))
    run = ragauge.run(data, ["bm25"], k=10).runs["bm25"]
    found = freshness(run, versions, corpus=data)
    table = run.table.filter(pl.col("rank") <= 10)
    revoked = [doc for doc in table["doc"].to_list() if techniques[doc].get("revoked")]
    assert found.stale_hit_count == len(revoked) > 100
    assert found.total_considered == table.height
    for query in found.queries:
        for hit in query.stale:
            assert hit.newer == find_current(hit.doc)
            assert not techniques[hit.newer].get("revoked")
    assert found.conflict_query_count > 50
