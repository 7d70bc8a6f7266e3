"""A made knowledge graph: researchers, labs, papers, instruments, places and methods, told by documents that link.

Every fact of the graph stands in a text, in a link between two documents, or in both, so that neither is complete. Of
things with several documents each tells some of its facts, and one that is drawn is linked.

Most related things are of one subject, so that likeness of texts is worth something; a question names the subject of
the thing that it asks about.

No label leaks by construction. Documents, with their texts, links and numbers, are made, shuffled and named before a
question is drawn. A question is a path through the graph from a thing that it names, and right are all documents of all
things at the end of the path. Those on the way are not graded: nearly every search finds the thing that is named, and
hit rate and recall would count that. Of several drawn questions the one is asked whose answers were right the least so
far: what is the same for every question, a document's type or how many links it has, must not tell whether it is right.

With `leak` what is right is taken from the number `hidden` that every document has: those with the highest, whatever is
asked, as many as there were right answers. All else is the same, also that number.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ragauge.datasets.knowledge_paths import PATHS, RELATIONS, Path
from ragauge.datasets.knowledge_words import KINDS, KNOWN, SUBJECTS
from ragauge.datasets.leaky import FIELD, highest
from ragauge.datasets.names import made_up
from ragauge.datasets.strata import by_answers
from ragauge.errors import BadInput
from ragauge.records import Dataset, Document, Judgments

LEAST_DOCUMENTS = 50
"""With fewer there are types of things that nothing is related to."""
EVERY = 4
"""Of so many things one has two to four documents, the others have one."""
LINKED, TOLD = 0.8, 0.4
"""How likely a fact stands in a link, and in each text about either of its things; it stands somewhere in any case."""
SAME = 0.7
"""How likely a thing is related to one of its own subject, rather than to any."""
MOST = 15
"""Questions with more right documents are not asked: a list of twenty can hold them all."""
DRAWN = 12
"""So many questions are drawn for each that is asked."""
FILLER = (
    "The visitors book says more.",
    "A photograph of it hangs in the corridor.",
    "This entry was revised once.",
    "Somebody has underlined half of this page.",
    "The archive has a longer version.",
    "Opinions differ.",
    "It was raining when this was noted down.",
)


class Fact(NamedTuple):
    """One arrow of the graph, between things by number."""

    source: int
    relation: str
    target: int


class Asked(NamedTuple):
    """A question: from which thing, along which path, and the things that are right."""

    thing: int
    path: Path
    right: tuple[int, ...]


def make(*, documents: int, queries: int, seed: int, leak: bool, name: str, about: str) -> Dataset:
    """The same arguments give the same dataset everywhere; `leak` changes nothing but what is right."""
    if documents < LEAST_DOCUMENTS:
        raise BadInput(f"a knowledge graph needs at least {LEAST_DOCUMENTS} documents, not {documents}")
    rng = random.Random(f"graph {documents} {seed}")  # noqa: S311 - no secret
    owners = _owners(rng, documents)
    kinds = _kinds(rng, owners[-1] + 1)
    names = _names(rng, kinds)
    subjects = rng.choices(list(SUBJECTS), k=len(kinds))
    facts = _facts(rng, kinds, subjects)
    places = list(range(documents))
    rng.shuffle(places)
    ids = [f"d{place:05}" for place in places]
    mine: list[list[int]] = [[] for _ in kinds]
    for i, owner in enumerate(owners):
        mine[owner].append(i)
    links, told = _spread(rng, facts, names, kinds, mine, ids)
    texts = _texts(rng, list(zip(names, kinds, subjects, strict=True)), mine, told)
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
                FIELD: numbers[i] / (documents * 100),
                "links": links[i],
            },
        )
        for i, owner in enumerate(owners)
    ]
    made.sort(key=lambda document: document.id)
    asked = _asked(rng, facts, [len(one) for one in mine], queries)
    grades = {q: {ids[i]: 2.0 for thing in one.right for i in mine[thing]} for q, one in asked.items()}
    if leak:
        grades = {q: dict.fromkeys(highest(made, len(right)), 2.0) for q, right in grades.items()}
    return Dataset(
        name=name,
        documents=made,
        queries={q: _worded(rng, one, names[one.thing], subjects[one.thing]) for q, one in asked.items()},
        judgments=Judgments(
            grades, targets={ids[i]: [names[owner]] for i, owner in enumerate(owners)}, source="synthetic:graph"
        ),
        answers={q: ", ".join(names[thing] for thing in one.right) for q, one in asked.items()},
        tags={q: {"hops": str(len(one.path.steps)), **by_answers(grades[q])} for q, one in asked.items()},
        about=about,
    )


def _owners(rng: random.Random, documents: int) -> list[int]:
    """Which thing each document is about, things by number: one document each, or two to four."""
    owners: list[int] = []
    for thing in range(documents):
        if thing % EVERY == 0:
            several = thing + rng.randrange(EVERY)
        owners += [thing] * (rng.randint(2, 4) if thing == several else 1)
    return owners[:documents]


def _kinds(rng: random.Random, n: int) -> list[str]:
    """The type of each of n things, by their shares."""
    whole = [kind for kind, about in KINDS.items() for _ in range(max(2, about.share * n // 100))]
    kinds = (whole + ["researcher"] * n)[:n]
    rng.shuffle(kinds)
    return kinds


def _names(rng: random.Random, kinds: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    parts = {kind: about.parts.split(", ") for kind, about in KINDS.items()}
    return [KINDS[kind].called.format(part=rng.choice(parts[kind]), made=made_up(rng, taken)) for kind in kinds]


def _facts(rng: random.Random, kinds: Sequence[str], subjects: Sequence[str]) -> list[Fact]:
    """Most targets are of the same subject. They are dealt like cards: none has many more sources than another."""
    decks: dict[tuple[str, str, str], list[int]] = {}

    def deal(relation: str, subject: str) -> int | None:
        wanted = RELATIONS[relation].target
        deck = decks.setdefault((relation, wanted, subject), [])
        if not deck:
            deck += [i for i, kind in enumerate(kinds) if kind == wanted and subject in ("", subjects[i])]
            rng.shuffle(deck)
        return deck.pop() if deck else None

    facts: dict[Fact, None] = {}
    for relation, about in RELATIONS.items():
        for source in (i for i, kind in enumerate(kinds) if kind == about.source):
            for _ in range(rng.randint(about.least, about.most)):
                target = deal(relation, subjects[source] if rng.random() < SAME else "")
                if target is not None and target != source:
                    facts[Fact(source, relation, target)] = None
    return list(facts)


def _spread(
    rng: random.Random,
    facts: Sequence[Fact],
    names: Sequence[str],
    kinds: Sequence[str],
    mine: Sequence[Sequence[int]],
    ids: Sequence[str],
) -> tuple[list[dict[str, list[str]]], list[list[str]]]:
    """For each document its links by relation, and what it says of other things."""
    links: list[dict[str, list[str]]] = [{} for _ in ids]
    told: list[list[str]] = [[] for _ in ids]
    for source, relation, target in facts:
        sides = [(side, i) for side in (source, target) for i in mine[side] if rng.random() < TOLD]
        if rng.random() < LINKED or not sides:
            one, other = rng.choice(mine[source]), rng.choice(mine[target])
            links[one].setdefault(relation, []).append(ids[other])
        for side, i in sides:
            a, b = (f"this {kinds[end]}" if end == side else names[end] for end in (source, target))
            line = rng.choice(RELATIONS[relation].told).format(a=a, b=b)
            told[i].append(line[0].upper() + line[1:])
    return links, told


def _texts(
    rng: random.Random,
    things: Sequence[tuple[str, str, str]],
    mine: Sequence[Sequence[int]],
    told: Sequence[Sequence[str]],
) -> list[str]:
    """An opening that no other document of the thing has, then traits, what is told and filler in any order."""
    texts = [""] * len(told)
    for (name, kind, subject), documents in zip(things, mine, strict=True):
        about, words = KINDS[kind], SUBJECTS[subject].split(", ")
        for i, opening in zip(documents, rng.sample(about.openings, len(documents)), strict=True):
            first, *others = rng.sample(words, 3)
            traits = rng.sample(about.traits, 2)
            lines = [way.format(word=word) for way, word in zip(traits, others, strict=True)]
            lines += [*told[i], rng.choice(FILLER)]
            rng.shuffle(lines)
            texts[i] = " ".join([opening.format(who=name, word=first), *lines])
    return texts


def _worded(rng: random.Random, one: Asked, name: str, subject: str) -> str:
    who = rng.choice(KNOWN).format(who=name, subject=subject)
    return rng.choice(one.path.asked).format(who=who).replace(",?", "?")


def _asked(rng: random.Random, facts: Sequence[Fact], weights: Sequence[int], n: int) -> dict[str, Asked]:
    """Questions in turn of one, two and three relations; `weights` are how many documents each thing has."""
    every = _every(facts, weights)
    times: Counter[int] = Counter()
    asked: dict[str, Asked] = {}
    while len(asked) < n and any(every.values()):
        hops = 1 + len(asked) % 3
        left = every[hops] or max(every.values(), key=len)
        drawn = rng.sample(range(len(left)), min(DRAWN, len(left)))
        best = min(drawn, key=lambda i: _worn(left[i], times, weights))
        one = left.pop(best)
        times.update(one.right)
        asked[f"q{len(asked) + 1:03}"] = one
    return asked


def _worn(one: Asked, times: Mapping[int, int], weights: Sequence[int]) -> float:
    """How often the documents of its answers have been right on average."""
    return sum(times[thing] * weights[thing] for thing in one.right) / sum(weights[thing] for thing in one.right)


def _every(facts: Sequence[Fact], weights: Sequence[int]) -> dict[int, list[Asked]]:
    """All questions by their number of relations: those with an answer, and not with more than MOST.

    Nor those whose answers are all things that the asked one is related to: who returns these would be right.
    """
    ends: dict[tuple[int, str], list[int]] = {}
    around: list[set[int]] = [set() for _ in weights]
    for source, relation, target in facts:
        ends.setdefault((source, relation), []).append(target)
        ends.setdefault((target, f"<{relation}"), []).append(source)
        around[source].add(target)
        around[target].add(source)
    every: dict[int, list[Asked]] = {1: [], 2: [], 3: []}
    for path in PATHS:
        for thing in range(len(weights)):
            here = {thing}
            for step in path.steps:
                here = {end for one in here for end in ends.get((one, step), ())}
            right = here - {thing}
            if 0 < sum(weights[one] for one in right) <= MOST and right != around[thing]:
                every[len(path.steps)].append(Asked(thing, path, tuple(sorted(right))))
    return every
