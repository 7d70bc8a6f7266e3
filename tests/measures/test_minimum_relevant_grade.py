"""The minimum relevant grade: every measure uses it, or says why not and refuses it."""

from __future__ import annotations

import random

import pytest

from ragauge import PRESETS, evaluate, judgments_from_neighbours, judgments_from_subtopics
from ragauge.audits.comparability import restate_measure
from ragauge.core.errors import BadInput, UnknownName
from ragauge.measures.names import make_measure, parse_measure
from ragauge.measures.registry import MEASURE_REGISTRY

DEFAULT, REL_2 = PRESETS["default"], PRESETS["default"].but(rel=2)
RANDOM = random.Random(6)
GRADES = {
    f"q{q}": {f"d{d}": RANDOM.choice((-1, 0, 1, 1, 2, 3)) for d in RANDOM.sample(range(12), 8)} for q in range(30)
}
RUN = {query: {f"d{d}": RANDOM.random() for d in range(12)} for query in GRADES}
BELOW_2_ARE_0 = {query: {doc: 0 if g == 1 else g for doc, g in docs.items()} for query, docs in GRADES.items()}


def measure_variants():
    """Yield every measure with every value of those options that are choices."""
    for spec in MEASURE_REGISTRY.values():
        cutoff = {"rank": 3, "rank?": 3, "level": 0.5, "": None}[spec.cutoff]
        choices = {"gain": ("binary",)} if spec.name == "g" else spec.choices
        for options in [{}, *({option: value} for option, values in choices.items() for value in values)]:
            table = {"gain": "1:3/2:9"} if options.get("gain") == "…:…" else {}
            yield make_measure(spec, cutoff, options | table, DEFAULT)


def score(measure, grades):
    judgments = grades
    if measure.spec.needs_subtopics:
        rows = [(query, int(doc[1:]) % 3, doc, g) for query, docs in grades.items() for doc, g in docs.items()]
        judgments = judgments_from_subtopics(rows)
    if measure.spec.name == "relative_distance_error" or dict(measure.options).get("of") == "eps":
        judgments = judgments_from_neighbours([list(docs)[:3] for docs in grades.values()], [[0.5] * 3] * len(grades))
    targets = {f"d{d}": [f"t{d % 4}"] for d in range(12)} if "targets" in measure.spec.options else None
    return evaluate(judgments, RUN, [str(measure)], targets=targets).means[str(measure)]


@pytest.mark.parametrize("measure", dict.fromkeys(measure_variants()), ids=str)
def test_every_measure_uses_rel_or_documents_why_not(measure):
    chosen = dict(measure.options)
    chosen.pop("rel", None)
    at_2 = make_measure(measure.spec, measure.cutoff, chosen, REL_2)
    if "rel" not in dict(at_2.options):
        assert str(at_2) == str(measure)
        assert "minimum relevant grade is not used" in " ".join(measure.spec.function.__doc__.split())
        with pytest.raises((BadInput, UnknownName), match="rel"):
            make_measure(measure.spec, measure.cutoff, {**chosen, "rel": 2.0}, DEFAULT)
    elif measure.spec.name != "rndcg" or chosen["gain"] == "binary":  # with other gains: see test_oracles.py
        assert "rel=2" in str(at_2)
        assert score(at_2, GRADES) == pytest.approx(score(measure, BELOW_2_ARE_0), abs=1e-12)
        assert score(at_2, GRADES) != score(measure, GRADES)


@pytest.mark.parametrize(
    ("name", "convention", "other", "restated"),
    [
        ("ndcg(gain=binary,rel=2)@5", "default", "rig", "ndcg(gain=binary,rel=2)@5"),
        ("ndcg(rel=2)@5", "pgvectordb", "rig", "ndcg(gain=exp)@5"),
        ("rbp(gain=binary)", "default", "ranx", "rbp(gain=binary)"),
    ],
)
def test_restate_measure_keeps_rel_only_with_a_binary_gain(name, convention, other, restated):
    measure = parse_measure(name, PRESETS[convention])
    assert str(restate_measure(measure, PRESETS[convention], PRESETS[other])) == restated
