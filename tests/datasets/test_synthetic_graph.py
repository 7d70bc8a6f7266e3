"""Synthetic knowledge graph: texts and links determine every answer, and no other property reveals it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

import ragauge
from ragauge.core.errors import BadInput
from ragauge.datasets import synthetic
from ragauge.datasets.queries import content_words
from ragauge.datasets.synthetic_graph_relations import GRAPH_RELATIONS, QUESTION_PATHS
from ragauge.datasets.synthetic_vocabulary import ENTITY_MENTIONS, ENTITY_TYPES, SUBJECT_WORDS


def make_graph(**options):
    return synthetic.make_synthetic("graph", **options)


@pytest.fixture(scope="module")
def data():
    return make_graph(seed=1)


def compile_pattern(template: str) -> re.Pattern[str]:
    groups = {"a": "(?P<a>.+)", "b": "(?P<b>.+)"}
    return re.compile(re.escape(template).replace(r"\{a\}", groups["a"]).replace(r"\{b\}", groups["b"]))


SENTENCE_PATTERNS = [
    (relation, compile_pattern(way)) for relation, about in GRAPH_RELATIONS.items() for way in about.sentences
]


def read_link_facts(data):
    """Return the facts stored as links, as (entity, relation, entity)."""
    of = data.judgments.targets
    return {
        (of[one.id][0], relation, of[other][0])
        for one in data.documents
        for relation, others in one.metadata["links"].items()
        for other in others
    }


def parse_text_facts(data):
    """Return the facts stated in texts, parsed from their sentences."""
    kind = {document.title: document.metadata["type"] for document in data.documents}
    facts = set()
    for document in data.documents:
        self_mention = f"this {document.metadata['type']}"
        for sentence in re.findall(r"[^.]+\.", document.text):
            statement = sentence.strip().replace(self_mention.capitalize(), self_mention)
            for relation, pattern in SENTENCE_PATTERNS:
                match = pattern.fullmatch(statement)
                if match is None:
                    continue
                a, b = (document.title if name == self_mention else name for name in (match["a"], match["b"]))
                if (kind.get(a), kind.get(b)) == GRAPH_RELATIONS[relation][:2]:
                    facts.add((a, relation, b))
    return facts


def parse_question(question: str, names):
    """Return the entity that a question names, and the path that the question follows."""
    for path in QUESTION_PATHS:
        for wording in path.questions:
            for mention in ENTITY_MENTIONS:
                for subject in SUBJECT_WORDS:
                    start, _, end = wording.partition("{who}")
                    before, _, after = mention.format(who="{who}", subject=subject).partition("{who}")
                    start, end = start + before, (after + end).replace(",?", "?")
                    if question.startswith(start) and question.endswith(end):
                        name = question[len(start) : len(question) - len(end)]
                        if name in names:
                            return name, path
    raise AssertionError(question)


def test_synthetic_graph_texts_and_links_determine_every_answer(data):
    facts = read_link_facts(data) | parse_text_facts(data)
    neighbours = defaultdict(set)
    for source, relation, target in facts:
        neighbours[source, relation].add(target)
        neighbours[target, f"<{relation}"].add(source)
    related = defaultdict(set)
    for (one, _), others in neighbours.items():
        related[one] |= others
    names = {one.title for one in data.documents}
    for query, question in data.queries.items():
        start, path = parse_question(question, names)
        reached = {start}
        for step in path.steps:
            reached = set().union(*(neighbours[one, step] for one in reached))
        correct = {data.judgments.targets[doc][0] for doc in data.judgments.nested[query]}
        assert correct == reached - {start} == set(data.answers[query].split(", "))
        assert correct != related[start]  # the answer is never all related entities
        assert data.tags[query]["hops"] == str(len(path.steps))
        # All documents of a correct entity are relevant, with grade 2.
        assert set(data.judgments.nested[query].values()) == {2.0}
        assert set(data.judgments.nested[query]) == {one.id for one in data.documents if one.title in correct}


def test_synthetic_graph_texts_and_links_are_incomplete(data):
    links, texts = read_link_facts(data), parse_text_facts(data)
    all_facts = links | texts
    assert 0.7 < len(links) / len(all_facts) < 0.95
    assert 0.5 < len(texts) / len(all_facts) < 0.95
    assert {relation for _, relation, _ in all_facts} == set(GRAPH_RELATIONS)


def test_synthetic_graph_questions_share_no_relation_words_with_texts():
    types = set(ENTITY_TYPES)
    for path in QUESTION_PATHS:
        text_words = set().union(
            *(
                content_words(sentence)
                for step in path.steps
                for sentence in GRAPH_RELATIONS[step.removeprefix("<")].sentences
            )
        )
        for question in path.questions:
            assert not (content_words(question) - types) & text_words, (path.steps, question)
    for subject, text_words in SUBJECT_WORDS.items():
        assert not content_words(subject) & content_words(text_words)


def test_synthetic_graph_some_entities_have_several_documents(data):
    counts = Counter(one.title for one in data.documents)
    several = sum(n > 1 for n in counts.values()) / len(counts)
    assert 0.2 < several < 0.3
    assert max(counts.values()) == 4
    assert data.judgments.targets == {one.id: [one.title] for one in data.documents}
    # With one document per answer, every answer is found, but not every document.
    first = {}
    for query, grades in data.judgments.nested.items():
        last_document = {data.judgments.targets[doc][0]: doc for doc in grades}
        first[query] = dict.fromkeys(last_document.values(), 1.0)
    means = ragauge.evaluate(data.judgments, first, ["dr@20", "recall@20"]).means
    assert means["dr@20"] == 1
    assert means["recall@20"] < 0.9


@pytest.mark.parametrize(("documents", "queries"), [(50, 1), (51, 40), (500, 200), (1203, 90)])
def test_synthetic_graph_returns_requested_number_of_unique_documents(documents, queries):
    data = make_graph(documents=documents, queries=queries)
    assert len(data.documents) == len({one.text for one in data.documents}) == documents
    assert [one.id for one in data.documents] == [f"d{place:05}" for place in range(documents)]
    assert len(data.queries) == len(set(data.queries.values())) == queries
    hops = Counter(tags["hops"] for tags in data.tags.values())
    assert max(hops.values()) - min(hops.values() if queries > 2 else [1]) <= 1
    ids = {one.id for one in data.documents}
    for one in data.documents:
        assert set(one.metadata) == {"type", "year", "pages", "hidden", "links"}
        assert all(set(others) <= ids for others in one.metadata["links"].values())


def test_synthetic_graph_dense_hit_rate_is_moderate():
    for seed in (0, 1):
        found = ragauge.run(make_graph(seed=seed), "dense(embedder=wordllama)", measures=["hit_rate@20"], k=20)
        (scores,) = found.scores.values()
        assert 0.3 < scores.means["hit_rate@20"] < 0.9


@pytest.mark.parametrize(
    ("size", "seed"),
    [((300, 60), 0), ((300, 60), 1), *(pytest.param((500, 200), seed, marks=pytest.mark.slow) for seed in (0, 3))],
)
@pytest.mark.slow
def test_synthetic_graph_audit_finds_no_problem(size, seed):
    data = make_graph(documents=size[0], queries=size[1], seed=seed)
    found = ragauge.audit(data, checks=["predictors", "duplicates", "near-duplicates", "verbatim"])
    assert found.problems == []
    (finding,) = [one for one in found.findings if one.check == "predictors"]
    assert finding.message.startswith("no query-independent field separates relevant documents from others")


def test_synthetic_graph_relevance_is_balanced_across_types(data):
    counts = Counter(doc for grades in data.judgments.nested.values() for doc in grades)
    kinds = {one.id: one.metadata["type"] for one in data.documents}
    for kind in ENTITY_TYPES:
        type_counts = [counts[doc] for doc, document_kind in kinds.items() if document_kind == kind]
        assert 0.7 < sum(type_counts) / len(type_counts) / (counts.total() / 500) < 1.4


def test_synthetic_graph_leak_changes_only_judgments():
    honest, leaking = (
        make_graph(documents=300, queries=60, seed=5),
        make_graph(documents=300, queries=60, seed=5, leak=True),
    )
    assert leaking.documents == honest.documents
    assert (leaking.queries, leaking.answers, leaking.tags) == (honest.queries, honest.answers, honest.tags)
    assert leaking.judgments.targets == honest.judgments.targets
    by_number = sorted(honest.documents, key=lambda document: -document.metadata["hidden"])
    for query, grades in leaking.judgments.nested.items():
        n = len(honest.judgments.nested[query])
        assert grades == {document.id: 2.0 for document in by_number[:n]}
    assert leaking.name != honest.name


def test_synthetic_graph_leak_is_found_by_audit():
    data = ragauge.load("synthetic:graph(documents=150, queries=30, leak=true)")
    numbers = {one.id: one.metadata["hidden"] for one in data.documents}
    runs = {"by number": dict.fromkeys(data.queries, numbers)}
    found = ragauge.audit(data, runs, measures=["ndcg@10"], checks=["predictors", "perfect-scores"])
    assert {"perfect scores", "leaking field"} <= {one.check for one in found.problems}
    (field,) = [one for one in found.problems if one.check == "leaking field"]
    assert "metadata `hidden`" in field.message
    honest = ragauge.load("synthetic:graph(documents=150, queries=30)")
    assert ragauge.audit(honest, runs, measures=["ndcg@10"], checks=["predictors", "perfect-scores"]).problems == []


def test_synthetic_graph_name_options_are_read_and_validated():
    assert len(ragauge.load("synthetic:graph").documents) == 500
    assert len(ragauge.load("synthetic:graph").queries) == 200
    data = ragauge.load("synthetic:graph(documents=80, queries=5, seed=3, leak=false)")
    assert data.documents == make_graph(documents=80, queries=5, seed=3).documents
    for name, message in (
        ("synthetic:graph(documents=49)", "at least 50 documents, not 49"),
        ("synthetic:graph(leak=1)", "`leak=1` is no option of synthetic:graph"),
        ("synthetic:needles(leak=true)", "`leak=true` is no option of synthetic:needles"),
    ):
        with pytest.raises(BadInput, match=re.escape(message)):
            ragauge.load(name)
    with pytest.raises(BadInput, match="cannot leak"):
        synthetic.make_synthetic("multihop", leak=True)
