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

    thing: int
    path: QuestionPath
    right: tuple[int, ...]


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
    places = list(range(documents))
    rng.shuffle(places)
    ids = [f"d{place:05}" for place in places]
    mine: list[list[int]] = [[] for _ in kinds]
    for i, owner in enumerate(owners):
        mine[owner].append(i)
    links, told = _distribute_facts(rng, facts, names, kinds, mine, ids)
    texts = _document_texts(rng, list(zip(names, kinds, subjects, strict=True)), mine, told)
    numbers = rng.sample(range(documents * 100), documents)
    made = [
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
    made.sort(key=lambda document: document.id)
    asked = _choose_questions(rng, facts, [len(one) for one in mine], queries)
    grades = {q: {ids[i]: 2.0 for thing in one.right for i in mine[thing]} for q, one in asked.items()}
    if leak:
        grades = {q: dict.fromkeys(leaked_document_ids(made, len(right)), 2.0) for q, right in grades.items()}
    return Dataset(
        name=name,
        documents=made,
        queries={q: _question_text(rng, one, names[one.thing], subjects[one.thing]) for q, one in asked.items()},
        judgments=Judgments(
            grades, targets={ids[i]: [names[owner]] for i, owner in enumerate(owners)}, source="synthetic:graph"
        ),
        answers={q: ", ".join(names[thing] for thing in one.right) for q, one in asked.items()},
        tags={q: {"hops": str(len(one.path.steps)), **tags_from_judgments(grades[q])} for q, one in asked.items()},
        about=about,
    )


def _document_owners(rng: random.Random, documents: int) -> list[int]:
    """Draw the entity number of each document.

    An entity has one document, or two to four.
    """
    owners: list[int] = []
    for thing in range(documents):
        if thing % MULTI_DOCUMENT_PERIOD == 0:
            several = thing + rng.randrange(MULTI_DOCUMENT_PERIOD)
        owners += [thing] * (rng.randint(2, 4) if thing == several else 1)
    return owners[:documents]


def _draw_entity_types(rng: random.Random, n: int) -> list[str]:
    """Draw the types of n entities according to the shares of the types."""
    whole = [kind for kind, about in ENTITY_TYPES.items() for _ in range(max(2, about.share * n // 100))]
    kinds = (whole + ["researcher"] * n)[:n]
    rng.shuffle(kinds)
    return kinds


def _draw_entity_names(rng: random.Random, kinds: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    parts = {kind: about.parts.split(", ") for kind, about in ENTITY_TYPES.items()}
    return [
        ENTITY_TYPES[kind].called.format(part=rng.choice(parts[kind]), made=invent_name(rng, taken)) for kind in kinds
    ]


def _generate_facts(rng: random.Random, kinds: Sequence[str], subjects: Sequence[str]) -> list[GraphFact]:
    """Draw the facts; most targets share the subject of the source.

    Targets are drawn without replacement, so that they have nearly equal numbers of sources.
    """
    decks: dict[tuple[str, str, str], list[int]] = {}

    def deal(relation: str, subject: str) -> int | None:
        wanted = GRAPH_RELATIONS[relation].target
        deck = decks.setdefault((relation, wanted, subject), [])
        if not deck:
            deck += [i for i, kind in enumerate(kinds) if kind == wanted and subject in ("", subjects[i])]
            rng.shuffle(deck)
        return deck.pop() if deck else None

    facts: dict[GraphFact, None] = {}
    for relation, about in GRAPH_RELATIONS.items():
        for source in (i for i, kind in enumerate(kinds) if kind == about.source):
            for _ in range(rng.randint(about.least, about.most)):
                target = deal(relation, subjects[source] if rng.random() < SAME_SUBJECT_PROBABILITY else "")
                if target is not None and target != source:
                    facts[GraphFact(source, relation, target)] = None
    return list(facts)


def _distribute_facts(
    rng: random.Random,
    facts: Sequence[GraphFact],
    names: Sequence[str],
    kinds: Sequence[str],
    mine: Sequence[Sequence[int]],
    ids: Sequence[str],
) -> tuple[list[dict[str, list[str]]], list[list[str]]]:
    """Distribute facts to documents, as links or as sentences.

    Returns the links of each document by relation, and its sentences about other entities.
    """
    links: list[dict[str, list[str]]] = [{} for _ in ids]
    told: list[list[str]] = [[] for _ in ids]
    for source, relation, target in facts:
        sides = [(side, i) for side in (source, target) for i in mine[side] if rng.random() < MENTION_PROBABILITY]
        if rng.random() < LINK_PROBABILITY or not sides:
            one, other = rng.choice(mine[source]), rng.choice(mine[target])
            links[one].setdefault(relation, []).append(ids[other])
        for side, i in sides:
            a, b = (f"this {kinds[end]}" if end == side else names[end] for end in (source, target))
            line = rng.choice(GRAPH_RELATIONS[relation].told).format(a=a, b=b)
            told[i].append(line[0].upper() + line[1:])
    return links, told


def _document_texts(
    rng: random.Random,
    things: Sequence[tuple[str, str, str]],
    mine: Sequence[Sequence[int]],
    told: Sequence[Sequence[str]],
) -> list[str]:
    """Compose the text of each document.

    It starts with an opening unique among the entity's documents. Shuffled traits, facts and filler follow.
    """
    texts = [""] * len(told)
    for (name, kind, subject), documents in zip(things, mine, strict=True):
        about, words = ENTITY_TYPES[kind], SUBJECT_WORDS[subject].split(", ")
        for i, opening in zip(documents, rng.sample(about.openings, len(documents)), strict=True):
            first, *others = rng.sample(words, 3)
            traits = rng.sample(about.traits, 2)
            lines = [way.format(word=word) for way, word in zip(traits, others, strict=True)]
            lines += [*told[i], rng.choice(GRAPH_FILLER_SENTENCES)]
            rng.shuffle(lines)
            texts[i] = " ".join([opening.format(who=name, word=first), *lines])
    return texts


def _question_text(rng: random.Random, one: GraphQuestion, name: str, subject: str) -> str:
    who = rng.choice(ENTITY_MENTIONS).format(who=name, subject=subject)
    return rng.choice(one.path.asked).format(who=who).replace(",?", "?")


def _choose_questions(
    rng: random.Random, facts: Sequence[GraphFact], weights: Sequence[int], n: int
) -> dict[str, GraphQuestion]:
    """Choose n questions, alternating one, two and three relations.

    `weights` are the numbers of documents per entity.
    """
    every = _possible_questions(facts, weights)
    times: Counter[int] = Counter()
    asked: dict[str, GraphQuestion] = {}
    while len(asked) < n and any(every.values()):
        hops = 1 + len(asked) % 3
        left = every[hops] or max(every.values(), key=len)
        drawn = rng.sample(range(len(left)), min(CANDIDATES_PER_QUESTION, len(left)))
        best = min(drawn, key=lambda i: _mean_past_relevance(left[i], times, weights))
        one = left.pop(best)
        times.update(one.right)
        asked[f"q{len(asked) + 1:03}"] = one
    return asked


def _mean_past_relevance(one: GraphQuestion, times: Mapping[int, int], weights: Sequence[int]) -> float:
    """Return how often a question's relevant documents were relevant before.

    The result is the mean over the documents.
    """
    return sum(times[thing] * weights[thing] for thing in one.right) / sum(weights[thing] for thing in one.right)


def _possible_questions(facts: Sequence[GraphFact], weights: Sequence[int]) -> dict[int, list[GraphQuestion]]:
    """List all possible questions by number of relations.

    They have at most MAX_RELEVANT_DOCUMENTS relevant documents. Questions answered by exactly the neighbours of the
    start entity are left out: returning all neighbours would score perfectly.
    """
    ends: dict[tuple[int, str], list[int]] = {}
    around: list[set[int]] = [set() for _ in weights]
    for source, relation, target in facts:
        ends.setdefault((source, relation), []).append(target)
        ends.setdefault((target, f"<{relation}"), []).append(source)
        around[source].add(target)
        around[target].add(source)
    every: dict[int, list[GraphQuestion]] = {1: [], 2: [], 3: []}
    for path in QUESTION_PATHS:
        for thing in range(len(weights)):
            here = {thing}
            for step in path.steps:
                here = {end for one in here for end in ends.get((one, step), ())}
            right = here - {thing}
            if 0 < sum(weights[one] for one in right) <= MAX_RELEVANT_DOCUMENTS and right != around[thing]:
                every[len(path.steps)].append(GraphQuestion(thing, path, tuple(sorted(right))))
    return every
