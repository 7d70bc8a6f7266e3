"""Synthetic datasets generated from a seed: needles, near-duplicates, versions, two-hop questions.

Judgments do not leak by construction. All documents are generated, shuffled and named by one procedure before any
question is drawn, so only their content predicts relevance. The exception is `leaky`, which leaks on purpose.
`leaky` and `graph` have their own modules.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets import synthetic_graph, synthetic_leaky
from ragauge.datasets.queries import classify_relevant_count
from ragauge.datasets.synthetic_vocabulary import invent_name

SYNTHETIC_KINDS = {
    "needles": "queries that share no content word with their relevant document, among similar facts",
    "duplicates": "each fact in several paraphrases, with a target map that groups them",
    "versions": "facts with older versions; only the newest one is relevant",
    "multihop": "queries that need two documents: one that names an entity, and one about it",
    "graph": "a knowledge graph with links, and queries that follow one to three relations",
    "leaky": "flawed data for testing audits: a metadata field reveals the judgments, most texts are duplicates",
}
DEFAULT_SIZE, SIZES_BY_KIND = (1000, 100), {"graph": (500, 200)}
"""Default numbers of documents and queries, and those of kinds with other defaults."""


class FactAttribute(NamedTuple):
    """Kind of fact: its values, sentences, and questions that share no content word with them."""

    values: tuple[str, ...]
    sentences: tuple[str, ...]
    questions: tuple[str, ...]


FACT_ATTRIBUTES: Mapping[str, FactAttribute] = {
    "color": FactAttribute(
        ("crimson", "teal", "ochre", "violet", "ivory", "charcoal", "amber", "olive"),
        (
            "{who} is painted {value}.",
            "The coat of {who} shines in {value}.",
            "Visitors remember {who} as {value} all over.",
        ),
        ("What color does {who} have?", "Which hue was chosen for {who}?"),
    ),
    "founder": FactAttribute(
        ("Ada Brandt", "Ines Okafor", "Tomas Ruiz", "Mei Lindqvist", "Omar Castell", "Ruth Varga", "Jonas Hale"),
        ("{value} set up {who}.", "{who} goes back to {value}.", "It was {value} whose idea led to {who}."),
        ("Who created {who}?", "Name the person that started {who}."),
    ),
    "city": FactAttribute(
        ("Lisbon", "Tromso", "Kyoto", "Cusco", "Tbilisi", "Halifax", "Mombasa", "Graz"),
        ("{who} stands in {value}.", "You will find {who} when you come to {value}.", "{value} is home to {who}."),
        ("Where is {who} located?", "In which town does {who} have its place?"),
    ),
    "weight": FactAttribute(
        ("40 grams", "3 kilos", "12 kilos", "half a ton", "two tons", "95 kilos", "700 grams"),
        (
            "{who} brings {value} to the scales.",
            "Lifting {who} means lifting {value}.",
            "On a balance {who} shows {value}.",
        ),
        ("How heavy is {who}?", "What is the mass of {who}?"),
    ),
    "power": FactAttribute(
        ("solar cells", "a diesel engine", "hand cranks", "fuel cells", "steam", "a small reactor", "batteries"),
        ("{who} runs on {value}.", "The heart of {who}: {value}.", "Without {value} {who} would stand still."),
        ("What drives {who}?", "Which energy source feeds {who}?"),
    ),
    "limit": FactAttribute(
        ("8 guests", "30 guests", "55 guests", "120 guests", "200 guests", "450 guests", "900 guests"),
        (
            "No more than {value} fit into {who}.",
            "{who} closes its doors after {value}.",
            "Past {value}, {who} is full.",
        ),
        ("How many people may enter {who}?", "What is the capacity of {who}?"),
    ),
}
NEIGHBOUR_SENTENCES = (
    "{who} was put up right beside {value}.",
    "Next to {who} rises {value}.",
    "{value} shares a wall with {who}.",
)
"""Sentences that say that two things are neighbours; never the subject of a question by themselves."""

FILLER_SENTENCES = (
    "The notes were checked twice.",
    "Nobody has complained about it so far.",
    "This was written down during a visit.",
    "More is said in the yearly letter.",
    "The weather that day was mild.",
    "A photograph hangs in the hall.",
    "The record is kept with the others.",
)


class SyntheticFact(NamedTuple):
    """Fact stated in one document."""

    subject: str
    attribute: str
    value: str
    year: int = 0


def load_synthetic(name: str) -> Dataset:
    """Load a synthetic dataset by its name, such as `synthetic:needles`.

    Options are given as `synthetic:KIND(documents=1000, queries=100, seed=0)`; all are optional.
    `synthetic:graph(leak=true)` is the graph dataset with leaked judgments. Raises `BadInput` for an unknown option.
    """
    kind, _, option_text = name.removeprefix("synthetic:").partition("(")
    if kind not in SYNTHETIC_KINDS:
        raise UnknownName("synthetic dataset", kind, SYNTHETIC_KINDS)
    options: dict[str, Any] = {}
    for option in filter(None, (item.strip() for item in option_text.removesuffix(")").split(","))):
        key, _, value = (part.strip() for part in option.partition("="))
        if key in ("documents", "queries", "seed") and value.isdigit():
            options[key] = int(value)
        elif key == "leak" and kind == "graph" and value in ("true", "false"):
            options[key] = value == "true"
        else:
            documents, queries = SIZES_BY_KIND.get(kind, DEFAULT_SIZE)
            hint = f"documents={documents}, queries={queries}, seed=0" + (", leak=false" if kind == "graph" else "")
            raise BadInput(f"`{option}` is no option of synthetic:{kind}", hint=hint)
    return make_synthetic(kind, **options, name=name)


def make_synthetic(
    kind: str,
    *,
    documents: int | None = None,
    queries: int | None = None,
    seed: int = 0,
    leak: bool = False,
    name: str | None = None,
) -> Dataset:
    """Generate a dataset of one kind.

    Deterministic for given arguments. Only `graph` can `leak`.

    >>> one = make_synthetic("multihop", documents=40, queries=3)
    >>> sorted(one.judgments.nested["q001"].values())
    [1.0, 2.0]
    """
    default_size = SIZES_BY_KIND.get(kind, DEFAULT_SIZE)
    documents = default_size[0] if documents is None else documents
    queries = default_size[1] if queries is None else queries
    if documents < 12 or queries < 1:
        raise BadInput("a synthetic dataset needs at least 12 documents and a query")
    leak_option = ", leak=true" if leak else ""
    name = name or f"synthetic:{kind}(documents={documents}, queries={queries}, seed={seed}{leak_option})"
    about = (
        f"made from seed {seed}; "
        f"{SYNTHETIC_KINDS[kind]}{'; what is right is taken from a hidden number' if leak else ''}"
    )
    if kind == "graph":
        return synthetic_graph.make_graph_dataset(
            documents=documents, queries=queries, seed=seed, leak=leak, name=name, about=about
        )
    if leak:
        raise BadInput(f"synthetic:{kind} cannot leak", hint="synthetic:graph(leak=true) does")
    if kind == "leaky":
        return synthetic_leaky.make_leaky_dataset(
            documents=documents, queries=queries, seed=seed, name=name, about=about
        )
    rng = random.Random(f"{kind} {documents} {seed}")  # noqa: S311 - no secret
    facts, metadata = _FACT_GENERATORS[kind](rng, documents)
    order = list(range(documents))
    rng.shuffle(order)
    names = [f"d{position:05}" for position in range(documents)]
    generated = [
        Document(names[position], _fact_text(rng, facts[i]), "", metadata(facts[i])) for position, i in enumerate(order)
    ]
    by_fact: dict[SyntheticFact, list[str]] = {}
    for position, i in enumerate(order):
        by_fact.setdefault(facts[i], []).append(names[position])
    questions = _QUESTION_GENERATORS[kind](rng, by_fact, queries)
    return Dataset(
        name=name,
        documents=generated,
        queries={query: text for query, (text, _, _) in questions.items()},
        judgments=Judgments(
            {query: grades for query, (_, grades, _) in questions.items()},
            targets={doc: [f"{f.subject} {f.attribute}"] for f, docs in by_fact.items() for doc in docs},
            source=f"synthetic:{kind}",
        ),
        answers={query: answer for query, (_, _, answer) in questions.items()},
        tags={query: {"answers": classify_relevant_count(grades)} for query, (_, grades, _) in questions.items()},
        about=about,
    )


GeneratedQuestions = dict[str, tuple[str, dict[str, float], str]]
"""Text, grades and reference answer by query id."""


def _fact_text(rng: random.Random, fact: SyntheticFact) -> str:
    templates = NEIGHBOUR_SENTENCES if fact.attribute == "beside" else FACT_ATTRIBUTES[fact.attribute].sentences
    sentence = rng.choice(templates).format(who=fact.subject, value=fact.value)
    if fact.year:
        sentence = f"As of {fact.year}: {sentence}"
    lines = rng.sample(FILLER_SENTENCES, 2)
    lines.insert(rng.randrange(3), sentence)
    return " ".join(lines)


def _question_text(rng: random.Random, fact: SyntheticFact, who: str | None = None) -> str:
    return rng.choice(FACT_ATTRIBUTES[fact.attribute].questions).format(who=who or fact.subject)


def _no_metadata(fact: SyntheticFact) -> dict[str, Any]:
    del fact
    return {}


def _separate_facts(
    rng: random.Random, n: int
) -> tuple[list[SyntheticFact], Callable[[SyntheticFact], dict[str, Any]]]:
    """Generate things with several facts, one document per fact."""
    facts: list[SyntheticFact] = []
    used_names: set[str] = set()
    while len(facts) < n:
        who = invent_name(rng, used_names)
        for attribute in rng.sample(list(FACT_ATTRIBUTES), 4):
            facts.append(SyntheticFact(who, attribute, rng.choice(FACT_ATTRIBUTES[attribute].values)))
    return facts[:n], _no_metadata


def _repeated_facts(
    rng: random.Random, n: int
) -> tuple[list[SyntheticFact], Callable[[SyntheticFact], dict[str, Any]]]:
    """Generate facts, each repeated in one to five documents."""
    facts: list[SyntheticFact] = []
    for fact in _separate_facts(rng, n)[0]:
        facts.extend([fact] * rng.randint(1, 5))
    return facts[:n], _no_metadata


def _versioned_facts(
    rng: random.Random, n: int
) -> tuple[list[SyntheticFact], Callable[[SyntheticFact], dict[str, Any]]]:
    """Generate facts in one to four versions, each with its own year and value."""
    facts: list[SyntheticFact] = []
    for fact in _separate_facts(rng, n)[0]:
        versions = rng.randint(1, 4)
        years = sorted(rng.sample(range(2015, 2026), versions))
        values = rng.sample(FACT_ATTRIBUTES[fact.attribute].values, versions)
        facts.extend(fact._replace(year=year, value=value) for year, value in zip(years, values, strict=True))
    return facts[:n], lambda fact: {"version_key": f"{fact.subject} {fact.attribute}", "effective_year": fact.year}


def _linked_facts(rng: random.Random, n: int) -> tuple[list[SyntheticFact], Callable[[SyntheticFact], dict[str, Any]]]:
    """Generate facts, a third of which say that two things are neighbours."""
    facts = _separate_facts(rng, n)[0][: n - n // 3]
    entities = list(dict.fromkeys(fact.subject for fact in facts))
    used_names = set(entities)
    while len(facts) < n:
        facts.append(SyntheticFact(invent_name(rng, used_names), "beside", rng.choice(entities)))
    return facts, _no_metadata


def _single_fact_questions(rng: random.Random, by_fact: dict[SyntheticFact, list[str]], n: int) -> GeneratedQuestions:
    chosen = rng.sample(list(by_fact), min(n, len(by_fact)))
    return {
        f"q{i:03}": (_question_text(rng, fact), dict.fromkeys(by_fact[fact], 2.0), fact.value)
        for i, fact in enumerate(chosen, 1)
    }


def _newest_version_questions(
    rng: random.Random, by_fact: dict[SyntheticFact, list[str]], n: int
) -> GeneratedQuestions:
    versions: dict[tuple[str, str], list[SyntheticFact]] = {}
    for fact in sorted(by_fact):
        versions.setdefault((fact.subject, fact.attribute), []).append(fact)
    chosen = rng.sample(list(versions.values()), min(n, len(versions)))
    questions: GeneratedQuestions = {}
    for i, facts in enumerate(chosen, 1):
        newest = max(facts, key=lambda fact: fact.year)
        grades = {doc: 2.0 if fact is newest else 0.0 for fact in facts for doc in by_fact[fact]}
        questions[f"q{i:03}"] = (f"{_question_text(rng, newest)} Only the latest counts.", grades, newest.value)
    return questions


def _two_hop_questions(rng: random.Random, by_fact: dict[SyntheticFact, list[str]], n: int) -> GeneratedQuestions:
    bridges = [fact for fact in by_fact if fact.attribute == "beside"]
    about: dict[str, list[SyntheticFact]] = {}
    for fact in by_fact:
        if fact.attribute != "beside":
            about.setdefault(fact.subject, []).append(fact)
    questions: GeneratedQuestions = {}
    for i, bridge in enumerate(rng.sample(bridges, min(n, len(bridges))), 1):
        fact = rng.choice(about[bridge.value])
        grades = dict.fromkeys(by_fact[bridge], 1.0) | dict.fromkeys(by_fact[fact], 2.0)
        text = _question_text(rng, fact, f"the neighbor of {bridge.subject}")
        questions[f"q{i:03}"] = (text, grades, fact.value)
    return questions


_FACT_GENERATORS = {
    "needles": _separate_facts,
    "duplicates": _repeated_facts,
    "versions": _versioned_facts,
    "multihop": _linked_facts,
}
_QUESTION_GENERATORS = {
    "needles": _single_fact_questions,
    "duplicates": _single_fact_questions,
    "versions": _newest_version_questions,
    "multihop": _two_hop_questions,
}
