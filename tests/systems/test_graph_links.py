"""Graph builders: links from metadata, nearest neighbours (against brute force), shared fields and entities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragauge
from ragauge.core.components import build_component
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.graphs import Graph
from ragauge.core.protocols import GraphBuilder
from ragauge.core.vectors import to_unit_rows
from ragauge.systems.graph_entities import EntityLinks
from ragauge.systems.graph_links import MetadataLinks, NeighbourLinks, SharedFieldLinks
from small_graphs import to_networkx

NONE = np.zeros((0, 1), np.float32)


def link_documents(linker, documents, vectors=NONE) -> dict[tuple[str, str], float]:
    """Return the weight of each linked pair of ids."""
    graph = to_networkx(
        Graph.of([document.id for document in documents], {linker.name: linker.link(documents, vectors)})
    )
    return {tuple(sorted(pair)): weight for *pair, weight in graph.edges(data="weight")}


def documents_with_links(**links):
    return [Document(name, "", metadata={} if ids is None else {"links": ids}) for name, ids in links.items()]


def documents_with_texts(**texts):
    return [Document(name, text) for name, text in texts.items()]


@pytest.mark.parametrize(
    ("described", "name"),
    [
        ("links", "links"),
        ("links(kinds=uses)", "links(kinds=uses)"),
        ("links(kinds=uses+owns, weight=2)", "links(kinds=uses+owns, weight=2)"),
        ("knn", "knn(neighbours=8)"),
        ("knn(mutual=true, neighbours=3)", "knn(neighbours=3, mutual=true)"),
        ("field(field=module)", "field(field=module)"),
        ("entities", "entities"),
        ("entities(shared=false, most=5)", "entities(shared=false, most=5)"),
    ],
)
def test_graph_builder_name_lists_non_default_options(described, name):
    linker = build_component("graphs", described)
    assert isinstance(linker, GraphBuilder)
    assert linker.name == name


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ("links(weight=0)", "links: weight must be above 0, got 0"),
        ("links(kinds=3)", "links: kinds must be names of relations, got 3"),
        ("knn(neighbours=0)", "neighbours must be at least 1, got 0"),
        ("knn(neighbours=2.5)", "neighbours must be a whole number of at least 1, got 2.5"),
        ("knn(least=2)", "knn: least must be a cosine between 0 and 1, got 2"),
        ("knn(mutual=3)", "mutual must be true or false, got 3"),
        ("field", "needs the option .field."),
        ("field(field=3)", "field: field must be the name of a field, got 3"),
        ("links(field=3)", "field must be a word, got 3"),
        ("field(field=a, most=1)", "most must be at least 2, got 1"),
        ("entities(common=0)", "common must be at least 1, got 0"),
    ],
)
def test_graph_builder_option_out_of_range_raises_error(described, message):
    with pytest.raises(BadInput, match=message):
        build_component("graphs", described)


# Metadata links ---------------------------------------------------------------------------------------------------


def test_metadata_links_accepts_id_lists_and_lists_by_relation():
    documents = documents_with_links(a=["b", "c"], b={"uses": ["c"], "owns": ("a",)}, c=None, d=[])
    assert link_documents(MetadataLinks(weight=2.0), documents) == {("a", "b"): 2.0, ("a", "c"): 2.0, ("b", "c"): 2.0}


def test_metadata_links_kinds_selects_relations():
    documents = documents_with_links(a={"uses": ["b"], "owns": ["c"]}, b={"sees": ["c"]}, c=None)
    assert link_documents(MetadataLinks(kinds="uses"), documents) == {("a", "b"): 1.0}
    assert link_documents(MetadataLinks(kinds=["uses", "sees"]), documents) == {("a", "b"): 1.0, ("b", "c"): 1.0}


def test_metadata_links_unknown_kind_error_lists_existing_kinds():
    with pytest.raises(BadInput, match=r"the kind `usess`[\s\S]*choose one of owns, uses"):
        link_documents(MetadataLinks(kinds="usess"), documents_with_links(a={"uses": ["b"], "owns": []}, b=None))
    with pytest.raises(BadInput, match=r"the kind `uses`[\s\S]*remove kinds: the links in this corpus have none"):
        link_documents(MetadataLinks(kinds="uses"), documents_with_links(a=["b"], b=None))


def test_metadata_links_unknown_ids_are_skipped_and_counted():
    documents = documents_with_links(a=["b", "gone", "a"], b={"uses": ["lost", "a"]})
    links = MetadataLinks().link(documents, NONE)
    assert links.skipped == {"unknown ids": 2}
    assert link_documents(MetadataLinks(), documents) == {("a", "b"): 1.0}
    assert MetadataLinks().link(documents_with_links(a=["b"], b=None), NONE).skipped == {}


def test_metadata_links_ignores_unknown_ids_of_other_kinds():
    documents = documents_with_links(a={"uses": ["b"], "owns": ["gone"]}, b=None)
    assert MetadataLinks(kinds="uses").link(documents, NONE).skipped == {}


@pytest.mark.parametrize("invalid", ["b", 3, [3], {"uses": "b"}, {"uses": [None]}, {3: ["b"]}, [["b"]]])
def test_metadata_links_invalid_links_error_names_document(invalid):
    with pytest.raises(BadInput, match="the document `odd` has an invalid `links`; expected a list of ids"):
        link_documents(MetadataLinks(), documents_with_links(a=["b"], b=None, odd=invalid))


def test_metadata_links_missing_field_raises_error_only_for_named_field():
    assert link_documents(MetadataLinks(), documents_with_links(a=None, b=None)) == {}
    with pytest.raises(BadInput, match="no document has `related` in its metadata") as error:
        link_documents(MetadataLinks(field="related"), documents_with_links(a=["b"], b=None))
    assert error.value.hint == "there is `links`, which names documents: links"
    related = [Document("a", "", metadata={"related": ["b"]}), Document("b", "")]
    assert link_documents(MetadataLinks(field="related"), related) == {("a", "b"): 1.0}


# Neighbour links --------------------------------------------------------------------------------------------------


def brute_force_pairs(vectors, neighbours, mutual, least):
    """Find the linked pairs by brute force, one cosine at a time."""
    chosen = set()
    for row, vector in enumerate(vectors):
        cosines = [(float(np.dot(vector, other)), -place) for place, other in enumerate(vectors) if place != row]
        best = [
            (cosine, -negative_place)
            for cosine, negative_place in sorted(cosines, reverse=True)[:neighbours]
            if cosine > least
        ]
        chosen |= {(row, place) for _, place in best}
    if mutual:
        chosen = {(vector, other) for vector, other in chosen if (other, vector) in chosen}
    return {(min(pair), max(pair)) for pair in chosen}


@pytest.mark.parametrize("mutual", [False, True])
@pytest.mark.parametrize("least", [0.0, 0.3])
@pytest.mark.parametrize("neighbours", [1, 4, 100])
def test_neighbour_links_match_brute_force_search(neighbours, least, mutual):
    vectors = to_unit_rows(np.random.default_rng(5).normal(size=(60, 6)).astype(np.float32))
    links = NeighbourLinks(neighbours=neighbours, mutual=mutual, least=least).link(
        [Document(str(n), "") for n in range(60)], vectors
    )
    pairs = {(min(pair), max(pair)) for pair in zip(links.ones.tolist(), links.others.tolist(), strict=True)}
    assert pairs == brute_force_pairs(vectors.astype(np.float64), neighbours, mutual, least)
    cosines = np.einsum("ij,ij->i", vectors[links.ones], vectors[links.others])
    np.testing.assert_allclose(links.weights, cosines, atol=1e-6)


def test_neighbour_links_ties_keep_document_order():
    vectors = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [0, 1]], np.float32)
    links = NeighbourLinks(neighbours=2).link([Document(str(n), "") for n in range(5)], vectors)
    rows = list(zip(links.ones.tolist(), links.others.tolist(), strict=True))
    assert rows == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (3, 0), (3, 1)]
    np.testing.assert_allclose(links.weights, 1.0)


def test_neighbour_links_ignores_zero_vectors():
    vectors = np.array([[0, 0], [1, 0], [0.6, 0.8], [0, 0]], np.float32)
    documents = documents_with_texts(a="", b="", c="", d="")
    assert link_documents(NeighbourLinks(neighbours=1, weight=0.5), documents, vectors) == {
        ("b", "c"): pytest.approx(0.3)
    }


def test_neighbour_links_fewer_than_two_documents_returns_no_links():
    assert link_documents(NeighbourLinks(), documents_with_texts(a=""), np.ones((1, 2), np.float32)) == {}
    assert link_documents(NeighbourLinks(), [], np.zeros((0, 1), np.float32)) == {}
    assert link_documents(NeighbourLinks(), documents_with_texts(a="", b=""), np.zeros((2, 3), np.float32)) == {}


# Shared field links -----------------------------------------------------------------------------------------------


def documents_with_field(**values):
    return [Document(name, "", metadata={"kind": value}) for name, value in values.items()]


def test_shared_field_links_connects_documents_with_equal_values():
    documents = documents_with_field(a="x", b="x", c=["y", "x"], d=["y", "y"], e="z", f=None, g="", h=[])
    expected_pairs = {("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")}
    assert link_documents(SharedFieldLinks(field="kind", weight=3.0), documents) == dict.fromkeys(expected_pairs, 3.0)


def test_shared_field_links_skips_and_counts_common_values():
    documents = documents_with_field(a="x", b="x", c=["x", "y"], d="y", e="alone")
    linker = SharedFieldLinks(field="kind", most=2)
    assert link_documents(linker, documents) == {("c", "d"): 1.0}
    assert linker.link(documents, NONE).skipped == {"values that more than 2 documents have": 1}


def test_shared_field_links_separates_bool_from_int_and_ignores_nan():
    documents = documents_with_field(a=1, b=True, c=1.0, d=True, e=math.nan, f=math.nan, g=0, h=False)
    assert link_documents(SharedFieldLinks(field="kind"), documents) == {("a", "c"): 1.0, ("b", "d"): 1.0}


def test_shared_field_links_unhashable_value_error_names_document():
    with pytest.raises(BadInput, match="the document `b` has a `kind` of the kind dict"):
        link_documents(SharedFieldLinks(field="kind"), documents_with_field(a="x", b={"y": 1}))


def test_shared_field_links_unknown_field_raises_error():
    with pytest.raises(BadInput, match="no document has a value of `colour`"):
        link_documents(SharedFieldLinks(field="colour"), documents_with_field(a="x"))
    assert link_documents(SharedFieldLinks(field="colour"), []) == {}


# Entity links -----------------------------------------------------------------------------------------------------


def expected_rarity(naming: int, documents: int) -> float:
    return math.log(documents / naming) / math.log(documents / 2)


def link_mentions(documents, **options):
    return link_documents(EntityLinks(shared=False, **options), documents)


def test_entity_links_identifier_matches_case_sensitive_whole_word():
    documents = [
        Document("json.dumps", "writes"),
        Document("a", "Use json.dumps, please."),
        Document("b", "Use JSON.dumps, json.dumps_all, my.json.dumps or jsonXdumps."),
        Document("c", "see (json.dumps.__doc__)."),
    ]
    assert link_mentions(documents) == {("a", "json.dumps"): 1.0, ("c", "json.dumps"): 1.0}


def test_entity_links_ignores_ids_that_are_ordinary_words():
    documents = [Document("select", "waits"), Document("Lamp", "shines"), Document("a", "select the Lamp")]
    assert link_mentions(documents) == {}


def test_entity_links_two_word_title_matches_any_case_across_line_break():
    documents = [
        Document("d1", "stands", title="Orion Station"),
        Document("d2", "They went to orion\nstation at night."),
        Document("d3", "They saw Orion. Station nine was dark."),
    ]
    assert link_mentions(documents) == {("d1", "d2"): 1.0}


def test_entity_links_prefers_longest_matching_title():
    documents = [
        Document("x", "", title="Cobalt Strike"),
        Document("y", "", title="Cobalt Strike Beacon"),
        Document("z", "the cobalt strike beacon"),
    ]
    assert ("y", "z") in link_mentions(documents)
    assert ("x", "z") not in link_mentions(documents)
    assert link_mentions(documents)["x", "y"] == 1.0  # the title of y contains that of x


def test_entity_links_matches_parent_class_and_last_id_part():
    documents = [
        Document("bdb.Bdb.set_trace", "bdb.Bdb.set_trace starts"),
        Document("bdb.Bdb", "bdb.Bdb debugs"),
        Document("other", "calls set_trace"),
        Document("plain", "calls trace"),
    ]
    assert link_mentions(documents) == {("bdb.Bdb", "bdb.Bdb.set_trace"): 1.0, ("bdb.Bdb.set_trace", "other"): 1.0}


def test_entity_links_full_id_takes_precedence_over_last_part():
    documents = [Document("ValueError", ""), Document("odd.ValueError", ""), Document("a", "raises ValueError")]
    assert link_mentions(documents) == {("ValueError", "a"): 1.0}


def test_entity_links_mention_weight_falls_with_frequency():
    documents = [
        Document("one", "", title="Orion Station"),
        Document("two", "", title="Orion Station"),
        *(Document(f"n{number}", "at Orion Station") for number in range(4)),
        *(Document(f"e{number}", "nothing") for number in range(4)),
    ]
    # `one` and `two` also name each other, by their titles, so six of ten documents contain the name.
    weights = link_mentions(documents)
    assert weights["n0", "one"] == pytest.approx(expected_rarity(6, 10) / 2)
    assert len(weights) == 4 * 2 + 1
    assert link_mentions(documents, most=2).keys() == weights.keys()
    assert link_mentions(documents, common=5) == {}
    three = [*documents, Document("three", "", title="Orion Station")]
    assert link_mentions(three, most=2) == {}


def test_entity_links_shared_rare_names_link_texts():
    documents = documents_with_texts(
        a="They met Emotet again.",
        b="Emotet came back, and emoted.",
        c="We looked for APT29 there.",
        d="It was the group APT29 or not.",
        e="no names here",
    )
    assert link_documents(EntityLinks(mentions=False), documents) == {("a", "b"): 1.0, ("c", "d"): 1.0}


def test_entity_links_ignores_capital_at_sentence_start():
    documents = documents_with_texts(
        a="Return now. Return!", b="Return later", c="Swap it\nSwap that", d="Swap (Swap) them"
    )
    assert link_documents(EntityLinks(mentions=False), documents) == {}


def test_entity_links_ignores_mostly_lower_case_word():
    documents = documents_with_texts(
        a="the Great pipe", b="the Great hall", c="a great day", d="a great night", e="great"
    )
    assert link_documents(EntityLinks(mentions=False), documents) == {}
    fewer = documents_with_texts(a="the Great pipe", b="the Great hall", c="a great day")
    assert link_documents(EntityLinks(mentions=False), fewer) == {("a", "b"): 1.0}


def test_entity_links_shared_name_weight_equals_rarity():
    texts = {f"d{number}": "look at read_text" for number in range(3)} | {f"e{number}": "no" for number in range(5)}
    weights = link_documents(EntityLinks(mentions=False, weight=2.0), documents_with_texts(**texts))
    expected = 2 * expected_rarity(3, 8)
    assert weights == {pair: pytest.approx(expected) for pair in [("d0", "d1"), ("d0", "d2"), ("d1", "d2")]}
    assert link_documents(EntityLinks(mentions=False, most=2), documents_with_texts(**texts)) == {}
    assert (
        link_documents(EntityLinks(mentions=False), documents_with_texts(a="read_text", b="read_text", c="read_text"))
        == {}
    )


@pytest.mark.parametrize("word", ["e.g", "i.e", "3.11", "__", "iffy", "Q1", "well"])
def test_entity_links_ignores_words_resembling_identifiers(word):
    assert link_documents(EntityLinks(), documents_with_texts(a=f"so {word} so", b=f"so {word} so")) == {}


@pytest.mark.parametrize(
    "word", ["json.dumps", "read_text", "OrderedDict", "HTTPServer", "T1059", "T1059.001", "__init__"]
)
def test_entity_links_shared_identifier_links_documents(word):
    assert link_documents(EntityLinks(), documents_with_texts(a=f"so {word} so", b=f"so {word} so", c="so")) == {
        ("a", "b"): 1.0
    }


@given(st.lists(st.text("aA.B_ 1\nÄß\ud800", max_size=12), max_size=8))
def test_entity_links_random_texts_return_weights_in_unit_interval(texts):
    documents = [Document(f"{number}{text}", text, title=text[::-1]) for number, text in enumerate(texts)]
    graph = Graph.of([document.id for document in documents], {"entities": EntityLinks().link(documents, NONE)})
    assert ((graph.weights > 0) & (graph.weights <= 1)).all()


def test_entity_links_are_independent_of_document_order():
    documents = list(ragauge.load("synthetic:multihop(documents=60, queries=5)").documents)
    order = np.random.default_rng(1).permutation(len(documents))
    links = link_documents(EntityLinks(), documents)
    assert links
    assert link_documents(EntityLinks(), [documents[place] for place in order]) == pytest.approx(links)


def test_metadata_links_rewired_keeps_degrees_and_changes_targets():
    names = [f"d{row}" for row in range(60)]
    rng = np.random.default_rng(1)
    links = [rng.choice(60, 3, replace=False) for _ in names]
    documents = [
        Document(name, "text", "", {"links": [names[end] for end in ends]})
        for name, ends in zip(names, links, strict=True)
    ]
    plain, rewired, again = (
        linker.link(documents, np.zeros((60, 2), np.float32))
        for linker in (MetadataLinks(), MetadataLinks(rewired=True), MetadataLinks(rewired=True))
    )
    assert MetadataLinks(rewired=True).name == "links(rewired=true)"
    for plain_ends, rewired_ends in ((plain.ones, rewired.ones), (plain.others, rewired.others)):
        assert sorted(plain_ends.tolist()) == sorted(rewired_ends.tolist())
    assert plain.others.tolist() != rewired.others.tolist() == again.others.tolist()
