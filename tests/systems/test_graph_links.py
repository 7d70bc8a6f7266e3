"""What links documents: by hand, and nearness against a comparison of all with all."""

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

NONE = np.zeros((0, 1), np.float32)


def found(linker, documents, vectors=NONE) -> dict[tuple[str, str], float]:
    """Pairs of ids with their weights."""
    graph = Graph.of([one.id for one in documents], {linker.name: linker.link(documents, vectors)}).to_networkx()
    return {tuple(sorted(pair)): weight for *pair, weight in graph.edges(data="weight")}


def carrying(**links):
    return [Document(name, "", metadata={} if held is None else {"links": held}) for name, held in links.items()]


def saying(**texts):
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
def test_a_name_tells_what_departs_from_the_usual(described, name):
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
def test_options_out_of_bounds_are_refused(described, message):
    with pytest.raises(BadInput, match=message):
        build_component("graphs", described)


# links that documents carry ---------------------------------------------------------------------------------------


def test_links_are_lists_of_ids_or_lists_by_relation():
    documents = carrying(a=["b", "c"], b={"uses": ["c"], "owns": ("a",)}, c=None, d=[])
    assert found(MetadataLinks(weight=2.0), documents) == {("a", "b"): 2.0, ("a", "c"): 2.0, ("b", "c"): 2.0}


def test_only_the_relations_that_are_asked_for_link():
    documents = carrying(a={"uses": ["b"], "owns": ["c"]}, b={"sees": ["c"]}, c=None)
    assert found(MetadataLinks(kinds="uses"), documents) == {("a", "b"): 1.0}
    assert found(MetadataLinks(kinds=["uses", "sees"]), documents) == {("a", "b"): 1.0, ("b", "c"): 1.0}


def test_a_relation_that_no_document_has_is_refused_with_those_that_there_are():
    with pytest.raises(BadInput, match=r"the kind `usess`[\s\S]*choose one of owns, uses"):
        found(MetadataLinks(kinds="usess"), carrying(a={"uses": ["b"], "owns": []}, b=None))
    with pytest.raises(BadInput, match=r"the kind `uses`[\s\S]*remove kinds: the links in this corpus have none"):
        found(MetadataLinks(kinds="uses"), carrying(a=["b"], b=None))


def test_unknown_ids_are_skipped_and_counted():
    documents = carrying(a=["b", "gone", "a"], b={"uses": ["lost", "a"]})
    given = MetadataLinks().link(documents, NONE)
    assert given.skipped == {"unknown ids": 2}
    assert found(MetadataLinks(), documents) == {("a", "b"): 1.0}
    assert MetadataLinks().link(carrying(a=["b"], b=None), NONE).skipped == {}


def test_ids_of_relations_that_do_not_count_are_not_missed():
    documents = carrying(a={"uses": ["b"], "owns": ["gone"]}, b=None)
    assert MetadataLinks(kinds="uses").link(documents, NONE).skipped == {}


@pytest.mark.parametrize("wrong", ["b", 3, [3], {"uses": "b"}, {"uses": [None]}, {3: ["b"]}, [["b"]]])
def test_links_of_another_shape_are_refused_with_the_document(wrong):
    with pytest.raises(BadInput, match="the document `odd` has an invalid `links`; expected a list of ids"):
        found(MetadataLinks(), carrying(a=["b"], b=None, odd=wrong))


def test_a_corpus_without_links_has_none_unless_a_field_was_named():
    assert found(MetadataLinks(), carrying(a=None, b=None)) == {}
    with pytest.raises(BadInput, match="no document has `related` in its metadata") as raised:
        found(MetadataLinks(field="related"), carrying(a=["b"], b=None))
    assert raised.value.hint == "there is `links`, which names documents: links"
    related = [Document("a", "", metadata={"related": ["b"]}), Document("b", "")]
    assert found(MetadataLinks(field="related"), related) == {("a", "b"): 1.0}


# nearness ---------------------------------------------------------------------------------------------------------


def brute(vectors, neighbours, mutual, least):
    """The same, one cosine at a time."""
    chosen = set()
    for row, one in enumerate(vectors):
        cosines = [(float(np.dot(one, other)), -place) for place, other in enumerate(vectors) if place != row]
        best = [(cosine, -minus) for cosine, minus in sorted(cosines, reverse=True)[:neighbours] if cosine > least]
        chosen |= {(row, place) for _, place in best}
    if mutual:
        chosen = {(one, other) for one, other in chosen if (other, one) in chosen}
    return {(min(pair), max(pair)) for pair in chosen}


@pytest.mark.parametrize("mutual", [False, True])
@pytest.mark.parametrize("least", [0.0, 0.3])
@pytest.mark.parametrize("neighbours", [1, 4, 100])
def test_the_nearest_are_those_of_comparing_all_with_all(neighbours, least, mutual):
    vectors = to_unit_rows(np.random.default_rng(5).normal(size=(60, 6)).astype(np.float32))
    given = NeighbourLinks(neighbours=neighbours, mutual=mutual, least=least).link(
        [Document(str(n), "") for n in range(60)], vectors
    )
    pairs = {(min(pair), max(pair)) for pair in zip(given.ones.tolist(), given.others.tolist(), strict=True)}
    assert pairs == brute(vectors.astype(np.float64), neighbours, mutual, least)
    cosines = np.einsum("ij,ij->i", vectors[given.ones], vectors[given.others])
    np.testing.assert_allclose(given.weights, cosines, atol=1e-6)


def test_of_equally_near_documents_the_first_are_linked():
    vectors = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [0, 1]], np.float32)
    given = NeighbourLinks(neighbours=2).link([Document(str(n), "") for n in range(5)], vectors)
    rows = list(zip(given.ones.tolist(), given.others.tolist(), strict=True))
    assert rows == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (3, 0), (3, 1)]
    np.testing.assert_allclose(given.weights, 1.0)


def test_a_document_without_a_direction_is_linked_to_nothing_and_takes_no_place():
    vectors = np.array([[0, 0], [1, 0], [0.6, 0.8], [0, 0]], np.float32)
    documents = saying(a="", b="", c="", d="")
    assert found(NeighbourLinks(neighbours=1, weight=0.5), documents, vectors) == {("b", "c"): pytest.approx(0.3)}


def test_one_document_or_none_has_no_neighbours():
    assert found(NeighbourLinks(), saying(a=""), np.ones((1, 2), np.float32)) == {}
    assert found(NeighbourLinks(), [], np.zeros((0, 1), np.float32)) == {}
    assert found(NeighbourLinks(), saying(a="", b=""), np.zeros((2, 3), np.float32)) == {}


# values -----------------------------------------------------------------------------------------------------------


def with_field(**values):
    return [Document(name, "", metadata={"kind": value}) for name, value in values.items()]


def test_documents_that_share_a_value_are_linked():
    documents = with_field(a="x", b="x", c=["y", "x"], d=["y", "y"], e="z", f=None, g="", h=[])
    linked = {("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")}
    assert found(SharedFieldLinks(field="kind", weight=3.0), documents) == dict.fromkeys(linked, 3.0)


def test_a_value_that_too_many_share_links_none_and_is_counted():
    documents = with_field(a="x", b="x", c=["x", "y"], d="y", e="alone")
    linker = SharedFieldLinks(field="kind", most=2)
    assert found(linker, documents) == {("c", "d"): 1.0}
    assert linker.link(documents, NONE).skipped == {"values that more than 2 documents have": 1}


def test_true_is_no_number_and_nan_no_value():
    documents = with_field(a=1, b=True, c=1.0, d=True, e=math.nan, f=math.nan, g=0, h=False)
    assert found(SharedFieldLinks(field="kind"), documents) == {("a", "c"): 1.0, ("b", "d"): 1.0}


def test_a_value_that_cannot_be_shared_is_refused_with_the_document():
    with pytest.raises(BadInput, match="the document `b` has a `kind` of the kind dict"):
        found(SharedFieldLinks(field="kind"), with_field(a="x", b={"y": 1}))


def test_a_field_that_no_document_has_is_refused():
    with pytest.raises(BadInput, match="no document has a value of `colour`"):
        found(SharedFieldLinks(field="colour"), with_field(a="x"))
    assert found(SharedFieldLinks(field="colour"), []) == {}


# names ------------------------------------------------------------------------------------------------------------


def rarity(naming: int, documents: int) -> float:
    return math.log(documents / naming) / math.log(documents / 2)


def mentions(documents, **options):
    return found(EntityLinks(shared=False, **options), documents)


def test_an_identifier_is_a_name_to_the_letter_and_as_a_whole_word():
    documents = [
        Document("json.dumps", "writes"),
        Document("a", "Use json.dumps, please."),
        Document("b", "Use JSON.dumps, json.dumps_all, my.json.dumps or jsonXdumps."),
        Document("c", "see (json.dumps.__doc__)."),
    ]
    assert mentions(documents) == {("a", "json.dumps"): 1.0, ("c", "json.dumps"): 1.0}


def test_a_word_of_everyday_is_no_name():
    documents = [Document("select", "waits"), Document("Lamp", "shines"), Document("a", "select the Lamp")]
    assert mentions(documents) == {}


def test_a_title_of_two_words_is_a_name_in_any_case_and_over_the_end_of_a_line():
    documents = [
        Document("d1", "stands", title="Orion Station"),
        Document("d2", "They went to orion\nstation at night."),
        Document("d3", "They saw Orion. Station nine was dark."),
    ]
    assert mentions(documents) == {("d1", "d2"): 1.0}


def test_the_longest_title_is_the_one_that_is_meant():
    documents = [
        Document("x", "", title="Cobalt Strike"),
        Document("y", "", title="Cobalt Strike Beacon"),
        Document("z", "the cobalt strike beacon"),
    ]
    assert ("y", "z") in mentions(documents)
    assert ("x", "z") not in mentions(documents)
    assert mentions(documents)["x", "y"] == 1.0  # its own title names the other


def test_a_method_names_its_class_and_the_last_part_of_an_id_names_it():
    documents = [
        Document("bdb.Bdb.set_trace", "bdb.Bdb.set_trace starts"),
        Document("bdb.Bdb", "bdb.Bdb debugs"),
        Document("other", "calls set_trace"),
        Document("plain", "calls trace"),
    ]
    assert mentions(documents) == {("bdb.Bdb", "bdb.Bdb.set_trace"): 1.0, ("bdb.Bdb.set_trace", "other"): 1.0}


def test_who_is_called_so_in_full_comes_before_a_last_part():
    documents = [Document("ValueError", ""), Document("odd.ValueError", ""), Document("a", "raises ValueError")]
    assert mentions(documents) == {("ValueError", "a"): 1.0}


def test_a_mention_weighs_less_the_more_name_it_and_the_more_have_it():
    documents = [
        Document("one", "", title="Orion Station"),
        Document("two", "", title="Orion Station"),
        *(Document(f"n{number}", "at Orion Station") for number in range(4)),
        *(Document(f"e{number}", "nothing") for number in range(4)),
    ]
    # Those of the name stand in each other's texts as well: six of ten name it.
    weights = mentions(documents)
    assert weights["n0", "one"] == pytest.approx(rarity(6, 10) / 2)
    assert len(weights) == 4 * 2 + 1
    assert mentions(documents, most=2).keys() == weights.keys()
    assert mentions(documents, common=5) == {}
    three = [*documents, Document("three", "", title="Orion Station")]
    assert mentions(three, most=2) == {}


def test_rare_names_that_texts_share_link_them():
    documents = saying(
        a="They met Emotet again.",
        b="Emotet came back, and emoted.",
        c="We looked for APT29 there.",
        d="It was the group APT29 or not.",
        e="no names here",
    )
    assert found(EntityLinks(mentions=False), documents) == {("a", "b"): 1.0, ("c", "d"): 1.0}


def test_a_capital_at_the_beginning_of_a_sentence_makes_no_name():
    documents = saying(a="Return now. Return!", b="Return later", c="Swap it\nSwap that", d="Swap (Swap) them")
    assert found(EntityLinks(mentions=False), documents) == {}


def test_a_word_that_mostly_stands_without_a_capital_is_no_name():
    documents = saying(a="the Great pipe", b="the Great hall", c="a great day", d="a great night", e="great")
    assert found(EntityLinks(mentions=False), documents) == {}
    fewer = saying(a="the Great pipe", b="the Great hall", c="a great day")
    assert found(EntityLinks(mentions=False), fewer) == {("a", "b"): 1.0}


def test_shared_names_weigh_their_rarity_and_those_of_many_nothing():
    texts = {f"d{number}": "look at read_text" for number in range(3)} | {f"e{number}": "no" for number in range(5)}
    weights = found(EntityLinks(mentions=False, weight=2.0), saying(**texts))
    expected = 2 * rarity(3, 8)
    assert weights == {pair: pytest.approx(expected) for pair in [("d0", "d1"), ("d0", "d2"), ("d1", "d2")]}
    assert found(EntityLinks(mentions=False, most=2), saying(**texts)) == {}
    assert found(EntityLinks(mentions=False), saying(a="read_text", b="read_text", c="read_text")) == {}


@pytest.mark.parametrize("word", ["e.g", "i.e", "3.11", "__", "iffy", "Q1", "well"])
def test_what_only_looks_like_an_identifier_links_nothing(word):
    assert found(EntityLinks(), saying(a=f"so {word} so", b=f"so {word} so")) == {}


@pytest.mark.parametrize(
    "word", ["json.dumps", "read_text", "OrderedDict", "HTTPServer", "T1059", "T1059.001", "__init__"]
)
def test_identifiers_link(word):
    assert found(EntityLinks(), saying(a=f"so {word} so", b=f"so {word} so", c="so")) == {("a", "b"): 1.0}


@given(st.lists(st.text("aA.B_ 1\nÄß\ud800", max_size=12), max_size=8))
def test_any_texts_give_links_that_a_graph_takes(texts):
    documents = [Document(f"{number}{text}", text, title=text[::-1]) for number, text in enumerate(texts)]
    graph = Graph.of([one.id for one in documents], {"entities": EntityLinks().link(documents, NONE)})
    assert ((graph.weights > 0) & (graph.weights <= 1)).all()


def test_shuffled_documents_have_the_same_links():
    documents = list(ragauge.load("synthetic:multihop(documents=60, queries=5)").documents)
    order = np.random.default_rng(1).permutation(len(documents))
    links = found(EntityLinks(), documents)
    assert links
    assert found(EntityLinks(), [documents[place] for place in order]) == pytest.approx(links)


def test_rewired_links_are_as_many_at_every_document_and_lead_elsewhere():
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
    for mine, other in ((plain.ones, rewired.ones), (plain.others, rewired.others)):
        assert sorted(mine.tolist()) == sorted(other.tolist())
    assert plain.others.tolist() != rewired.others.tolist() == again.others.tolist()
