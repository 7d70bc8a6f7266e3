"""Synthetic knowledge graph: researchers, labs, papers, instruments, places and methods, in linked documents.

Every fact of the graph is stated in a text, in a link between two documents, or in both, so neither source is
complete. An entity can have several documents. Each of them states some of its facts, and a random one has the link.

Most related entities share a subject, so that text similarity is informative. A question names the subject of its
start entity.

Judgments do not leak by construction. Documents, with their texts, links and numbers, are made, shuffled and named
before questions are drawn. A question is a path through the graph from a named entity. Relevant are all documents of
all entities at the end of the path. Documents along the path are not relevant: nearly every search finds the named
entity, which would inflate hit rate and recall. Of several candidate questions, the one is used whose documents were
relevant least often so far. Properties that do not depend on the question, such as document type or number of links,
therefore do not predict relevance.

With `leak` the relevant documents are those with the highest metadata number `hidden`, independent of the question.
Their number per question stays the same, and so does everything else, including that metadata number.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets.queries import tags_from_judgments
from ragauge.datasets.synthetic_graph_relations import GRAPH_RELATIONS, QUESTION_PATHS, QuestionPath
from ragauge.datasets.synthetic_leaky import LEAKED_FIELD, leaked_document_ids
from ragauge.datasets.synthetic_vocabulary import ENTITY_MENTIONS, ENTITY_TYPES, SUBJECT_WORDS, invent_name

MIN_GRAPH_DOCUMENTS = 50
"""Minimum number of documents; with fewer, some entity types have no relations."""
MULTI_DOCUMENT_PERIOD = 4
"""One entity in every 4 has two to four documents; the others have one."""
LINK_PROBABILITY, MENTION_PROBABILITY = 0.8, 0.4
"""Probabilities that a fact is a link, and that a text about one of its entities states it; at least one is true."""
SAME_SUBJECT_PROBABILITY = 0.7
"""Probability that a relation is drawn within the subject of its source, rather than from all entities."""
MAX_RELEVANT_DOCUMENTS = 15
"""Maximum number of relevant documents per question, so that a list of twenty can hold them all."""
CANDIDATES_PER_QUESTION = 12
"""Number of candidate questions drawn for each question used."""
GRAPH_FILLER_SENTENCES = (
    "The visitors book says more.",
    "A photograph of it hangs in the corridor.",
    "This entry was revised once.",
    "Somebody has underlined half of this page.",
    "The archive has a longer version.",
    "Opinions differ.",
    "It was raining when this was noted down.",
)


class GraphFact(NamedTuple):
    """Edge of the graph, between entity numbers."""

    source: int
    relation: str
    target: int


class GraphQuestion(NamedTuple):
    """Question: start entity, path, and the entities that answer it."""

    start: int
    path: QuestionPath
    relevant: tuple[int, ...]


def make_graph_dataset(*, documents: int, queries: int, seed: int, leak: bool, name: str, about: str) -> Dataset:
    """Generate the dataset.

    Deterministic for given arguments. `leak` changes only the judgments.
    """
    if documents < MIN_GRAPH_DOCUMENTS:
        raise BadInput(f"a knowledge graph needs at least {MIN_GRAPH_DOCUMENTS} documents, not {documents}")
    rng = random.Random(f"graph {documents} {seed}")  # noqa: S311 - no secret
    owners = _document_owners(rng, documents)
    kinds = _draw_entity_types(rng, owners[-1] + 1)
    names = _draw_entity_names(rng, kinds)
    subjects = rng.choices(list(SUBJECT_WORDS), k=len(kinds))
    facts = _generate_facts(rng, kinds, subjects)
    positions = list(range(documents))
    rng.shuffle(positions)
    ids = [f"d{position:05}" for position in positions]
    documents_of: list[list[int]] = [[] for _ in kinds]
    for i, owner in enumerate(owners):
        documents_of[owner].append(i)
    links, sentences = _distribute_facts(rng, facts, names, kinds, documents_of, ids)
    texts = _document_texts(rng, list(zip(names, kinds, subjects, strict=True)), documents_of, sentences)
    numbers = rng.sample(range(documents * 100), documents)
    generated = [
        Document(
            ids[i],
            texts[i],
            names[owner],
            {
                "type": kinds[owner],
                "year": rng.randint(1980, 2025),
                "pages": rng.randint(1, 40),
                LEAKED_FIELD: numbers[i] / (documents * 100),
                "links": links[i],
            },
        )
        for i, owner in enumerate(owners)
    ]
    generated.sort(key=lambda document: document.id)
    questions = _choose_questions(rng, facts, [len(own_documents) for own_documents in documents_of], queries)
    grades = {
        q: {ids[i]: 2.0 for entity in question.relevant for i in documents_of[entity]}
        for q, question in questions.items()
    }
    if leak:
        grades = {q: dict.fromkeys(leaked_document_ids(generated, len(right)), 2.0) for q, right in grades.items()}
    return Dataset(
        name=name,
        documents=generated,
        queries={
            q: _question_text(rng, question, names[question.start], subjects[question.start])
            for q, question in questions.items()
        },
        judgments=Judgments(
            grades, targets={ids[i]: [names[owner]] for i, owner in enumerate(owners)}, source="synthetic:graph"
        ),
        answers={q: ", ".join(names[entity] for entity in question.relevant) for q, question in questions.items()},
        tags={
            q: {"hops": str(len(question.path.steps)), **tags_from_judgments(grades[q])}
            for q, question in questions.items()
        },
        about=about,
    )


def _document_owners(rng: random.Random, documents: int) -> list[int]:
    """Draw the entity number of each document.

    An entity has one document, or two to four.
    """
    owners: list[int] = []
    for entity in range(documents):
        if entity % MULTI_DOCUMENT_PERIOD == 0:
            several = entity + rng.randrange(MULTI_DOCUMENT_PERIOD)
        owners += [entity] * (rng.randint(2, 4) if entity == several else 1)
    return owners[:documents]


def _draw_entity_types(rng: random.Random, n: int) -> list[str]:
    """Draw the types of n entities according to the shares of the types."""
    by_share = [kind for kind, about in ENTITY_TYPES.items() for _ in range(max(2, about.share * n // 100))]
    kinds = (by_share + ["researcher"] * n)[:n]
    rng.shuffle(kinds)
    return kinds


def _draw_entity_names(rng: random.Random, kinds: Sequence[str]) -> list[str]:
    used_names: set[str] = set()
    parts = {kind: about.parts.split(", ") for kind, about in ENTITY_TYPES.items()}
    return [
        ENTITY_TYPES[kind].name_template.format(part=rng.choice(parts[kind]), made=invent_name(rng, used_names))
        for kind in kinds
    ]


def _generate_facts(rng: random.Random, kinds: Sequence[str], subjects: Sequence[str]) -> list[GraphFact]:
    """Draw the facts; most targets share the subject of the source.

    Targets are drawn without replacement, so that they have nearly equal numbers of sources.
    """
    decks: dict[tuple[str, str, str], list[int]] = {}

    def deal(relation: str, subject: str) -> int | None:
        target_type = GRAPH_RELATIONS[relation].target
        deck = decks.setdefault((relation, target_type, subject), [])
        if not deck:
            deck += [i for i, kind in enumerate(kinds) if kind == target_type and subject in ("", subjects[i])]
            rng.shuffle(deck)
        return deck.pop() if deck else None

    facts: dict[GraphFact, None] = {}
    for relation, about in GRAPH_RELATIONS.items():
        for source in (i for i, kind in enumerate(kinds) if kind == about.source):
            for _ in range(rng.randint(about.min_targets, about.max_targets)):
                target = deal(relation, subjects[source] if rng.random() < SAME_SUBJECT_PROBABILITY else "")
                if target is not None and target != source:
                    facts[GraphFact(source, relation, target)] = None
    return list(facts)


def _distribute_facts(
    rng: random.Random,
    facts: Sequence[GraphFact],
    names: Sequence[str],
    kinds: Sequence[str],
    documents_of: Sequence[Sequence[int]],
    ids: Sequence[str],
) -> tuple[list[dict[str, list[str]]], list[list[str]]]:
    """Distribute facts to documents, as links or as sentences.

    Returns the links of each document by relation, and its sentences about other entities.
    """
    links: list[dict[str, list[str]]] = [{} for _ in ids]
    sentences: list[list[str]] = [[] for _ in ids]
    for source, relation, target in facts:
        mentions = [
            (entity, i)
            for entity in (source, target)
            for i in documents_of[entity]
            if rng.random() < MENTION_PROBABILITY
        ]
        if rng.random() < LINK_PROBABILITY or not mentions:
            source_document, target_document = rng.choice(documents_of[source]), rng.choice(documents_of[target])
            links[source_document].setdefault(relation, []).append(ids[target_document])
        for entity, i in mentions:
            a, b = (f"this {kinds[end]}" if end == entity else names[end] for end in (source, target))
            line = rng.choice(GRAPH_RELATIONS[relation].sentences).format(a=a, b=b)
            sentences[i].append(line[0].upper() + line[1:])
    return links, sentences


def _document_texts(
    rng: random.Random,
    entities: Sequence[tuple[str, str, str]],
    documents_of: Sequence[Sequence[int]],
    sentences: Sequence[Sequence[str]],
) -> list[str]:
    """Compose the text of each document.

    It starts with an opening unique among the entity's documents. Shuffled traits, facts and filler follow.
    """
    texts = [""] * len(sentences)
    for (name, kind, subject), documents in zip(entities, documents_of, strict=True):
        about, words = ENTITY_TYPES[kind], SUBJECT_WORDS[subject].split(", ")
        for i, opening in zip(documents, rng.sample(about.openings, len(documents)), strict=True):
            first, *trait_words = rng.sample(words, 3)
            traits = rng.sample(about.traits, 2)
            lines = [trait.format(word=word) for trait, word in zip(traits, trait_words, strict=True)]
            lines += [*sentences[i], rng.choice(GRAPH_FILLER_SENTENCES)]
            rng.shuffle(lines)
            texts[i] = " ".join([opening.format(who=name, word=first), *lines])
    return texts


def _question_text(rng: random.Random, question: GraphQuestion, name: str, subject: str) -> str:
    mention = rng.choice(ENTITY_MENTIONS).format(who=name, subject=subject)
    return rng.choice(question.path.questions).format(who=mention).replace(",?", "?")


def _choose_questions(
    rng: random.Random, facts: Sequence[GraphFact], weights: Sequence[int], n: int
) -> dict[str, GraphQuestion]:
    """Choose n questions, alternating one, two and three relations.

    `weights` are the numbers of documents per entity.
    """
    candidates = _possible_questions(facts, weights)
    times: Counter[int] = Counter()
    questions: dict[str, GraphQuestion] = {}
    while len(questions) < n and any(candidates.values()):
        hops = 1 + len(questions) % 3
        remaining = candidates[hops] or max(candidates.values(), key=len)
        sampled = rng.sample(range(len(remaining)), min(CANDIDATES_PER_QUESTION, len(remaining)))
        best = min(sampled, key=lambda i: _mean_past_relevance(remaining[i], times, weights))
        question = remaining.pop(best)
        times.update(question.relevant)
        questions[f"q{len(questions) + 1:03}"] = question
    return questions


def _mean_past_relevance(question: GraphQuestion, times: Mapping[int, int], weights: Sequence[int]) -> float:
    """Return how often a question's relevant documents were relevant before.

    The result is the mean over the documents.
    """
    return sum(times[entity] * weights[entity] for entity in question.relevant) / sum(
        weights[entity] for entity in question.relevant
    )


def _possible_questions(facts: Sequence[GraphFact], weights: Sequence[int]) -> dict[int, list[GraphQuestion]]:
    """List all possible questions by number of relations.

    They have at most MAX_RELEVANT_DOCUMENTS relevant documents. Questions answered by exactly the neighbours of the
    start entity are left out: returning all neighbours would score perfectly.
    """
    neighbours: dict[tuple[int, str], list[int]] = {}
    around: list[set[int]] = [set() for _ in weights]
    for source, relation, target in facts:
        neighbours.setdefault((source, relation), []).append(target)
        neighbours.setdefault((target, f"<{relation}"), []).append(source)
        around[source].add(target)
        around[target].add(source)
    questions: dict[int, list[GraphQuestion]] = {1: [], 2: [], 3: []}
    for path in QUESTION_PATHS:
        for entity in range(len(weights)):
            reached = {entity}
            for step in path.steps:
                reached = {end for node in reached for end in neighbours.get((node, step), ())}
            right = reached - {entity}
            if 0 < sum(weights[node] for node in right) <= MAX_RELEVANT_DOCUMENTS and right != around[entity]:
                questions[len(path.steps)].append(GraphQuestion(entity, path, tuple(sorted(right))))
    return questions
