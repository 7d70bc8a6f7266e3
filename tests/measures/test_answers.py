"""Measures of answers: hand-computed values, agreement with ragas and RAGChecker, and missing verdicts."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.samples import (
    ALL_CONTEXTS,
    Claim,
    GeneratedQuestion,
    Sample,
    Support,
    Unscored,
    Usefulness,
    Verdicts,
    citations_by_sentence,
    find_citations,
)
from ragauge.judging.all_steps import describe_kinds
from ragauge.measures.answers import (
    ANSWER_MEASURES,
    DEFAULT_ANSWER_MEASURES,
    parse_answer_measure,
    parse_answer_measures,
    required_tasks,
    score_answers,
)
from ragauge.measures.conventions import PRESETS

TASK_KINDS = tuple(describe_kinds())
ALL_MEASURES = [*ANSWER_MEASURES, "noise_sensitivity(chunks=relevant)", "noise_sensitivity(chunks=irrelevant)"]
CLAIM_MEASURES = [name for name in ALL_MEASURES if name not in ("context_precision", "answer_relevance")]
TOWER = Sample(
    "tower",
    "When was the tower begun, and where?",
    answer="It was begun in 1887 [1], in Rome [2], by Eiffel.",
    contexts=("It was begun in 1887.", "Rome is old.", "It stands in Paris."),
    reference="It was begun in 1887 in Paris.",
)
TOWER_VERDICTS = Verdicts(
    "tower",
    TASK_KINDS,
    {
        "answer": [
            Claim("a1", "begun in 1887", 1, (1, 2)),
            Claim("a2", "in Rome", 1, (1, 2)),
            Claim("a3", "by Eiffel", 1, (1, 2)),
            Claim("a4", "it is old", 1, (1, 2)),
        ],
        "reference": [Claim("r1", "begun in 1887", 1), Claim("r2", "in Paris", 1)],
    },
    {
        "a1": Support(("k1", "reference"), probability=0.9),
        "a2": Support((), ("k3",), probability=0.1),
        "a3": Support((), probability=0.2),
        "a4": Support(("k2",), ("k3",), probability=0.6),
        "r1": Support(("k1", "answer")),
        "r2": Support(("k3",)),
    },
    {"k1": Usefulness(True), "k2": Usefulness(False), "k3": Usefulness(True)},
    [GeneratedQuestion("When was it begun?", 0.8), GeneratedQuestion("Who built it?", 0.4)],
    refusal=False,
)


def remove_chunk_support(verdicts):
    """Return the verdicts without any support by chunks."""
    support = {
        n: Support(tuple(source for source in claim_support.by if source[0] != "k"))
        for n, claim_support in verdicts.support.items()
    }
    return replace(verdicts, support=support, useful={})


def score_sample(name, sample=TOWER, verdicts=TOWER_VERDICTS, convention="default"):
    """Return the score of one sample, or the reason why it is unscored."""
    scores = score_answers([sample], {} if verdicts is None else {sample.id: verdicts}, [name], convention)
    return scores.unscored[name].get(sample.id, scores.means[name])


# Hand-computed values


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("faithfulness", 2 / 4),  # a1, a4
        ("faithfulness(by=probability)", (0.9 + 0.1 + 0.2 + 0.6) / 4),
        ("context_precision", (1 / 1 + 2 / 3) / 2),
        ("context_precision@1", 1.0),
        ("context_precision@2", 1.0),
        ("context_recall", 2 / 2),
        ("context_recall@1", 1 / 2),
        ("context_recall@2", 1 / 2),
        ("context_recall@9", 2 / 2),
        ("answer_relevance", 0.6),
        ("claim_precision", 1 / 4),  # a1
        ("claim_recall", 1 / 2),  # r1
        ("claim_f1", 2 * (1 / 4) * (1 / 2) / (3 / 4)),
        ("context_utilisation", 1 / 2),  # the contexts support r1 and r2, the answer only r1
        ("noise_sensitivity", 1 / 4),  # a4
        ("noise_sensitivity(chunks=relevant)", 0.0),
        ("noise_sensitivity(chunks=irrelevant)", 1 / 4),  # k2 supports no claim of the reference
        ("hallucination", 2 / 4),  # a2, a3
        ("self_knowledge", 0.0),
        ("contradiction", 1 / 4),  # a2; a chunk supports a4
        ("citation_recall", 2 / 4),  # a1, a4
        ("citation_precision", 2 / 8),  # of 8 citations, [1] supports a1 and [2] supports a4
    ],
)
def test_score_answers_every_measure_by_hand(name, expected):
    assert score_sample(name) == pytest.approx(expected, abs=1e-12)


def test_claim_f1_without_correct_claims_is_zero():
    unsupported = {name: Support(()) for name in TOWER_VERDICTS.support}
    assert score_sample("claim_f1", verdicts=replace(TOWER_VERDICTS, support=unsupported)) == 0.0


def test_context_precision_without_useful_chunk_is_zero():
    assert (
        score_sample(
            "context_precision",
            verdicts=replace(TOWER_VERDICTS, useful={k: Usefulness(False) for k in TOWER_VERDICTS.useful}),
        )
        == 0.0
    )


def test_answer_relevance_is_clipped_to_unit_interval():
    assert (
        score_sample("answer_relevance", verdicts=replace(TOWER_VERDICTS, questions=[GeneratedQuestion("?", -0.4)]))
        == 0.0
    )
    assert (
        score_sample(
            "answer_relevance", verdicts=replace(TOWER_VERDICTS, questions=[GeneratedQuestion("?", 1.0000002)])
        )
        == 1.0
    )


def test_citation_measures_without_citations_are_zero_or_unscored():
    uncited = {
        **TOWER_VERDICTS.claims,
        "answer": [claim._replace(cites=()) for claim in TOWER_VERDICTS.claims["answer"]],
    }
    assert score_sample("citation_recall", verdicts=replace(TOWER_VERDICTS, claims=uncited)) == 0.0
    assert (
        score_sample("citation_precision", verdicts=replace(TOWER_VERDICTS, claims=uncited))
        == "the answer cites nothing"
    )


def test_citation_precision_counts_missing_chunk_as_wrong():
    claims = {**TOWER_VERDICTS.claims, "answer": [Claim("a1", "begun in 1887", 1, (1, 9))]}
    assert score_sample("citation_precision", verdicts=replace(TOWER_VERDICTS, claims=claims)) == 0.5


def test_score_answers_means_skip_unscored_samples():
    other = replace(TOWER, id="other")
    incomplete = replace(TOWER_VERDICTS, sample="other", unscored={"support a3": Unscored("the reply was cut off")})
    scores = score_answers(
        [TOWER, other],
        {"tower": TOWER_VERDICTS, "other": incomplete},
        ["hallucination", "context_precision"],
        judge="J",
    )
    assert scores.means["hallucination_rate"] == 0.5
    assert scores.n["hallucination"] == 1
    assert scores.n["context_precision"] == 2
    assert scores.unscored["hallucination"] == {"other": "a claim has no verdict: the reply was cut off"}
    assert scores.lower_is_better == {"hallucination"}
    assert (scores.judge, scores.convention, scores.queries) == ("J", "default", ["tower", "other"])


def test_score_answers_without_verdicts_returns_nan_mean():
    scores = score_answers([TOWER], {}, ["faithfulness"])
    assert math.isnan(scores.means["faithfulness"])
    assert scores.n["faithfulness"] == 0
    assert scores.unscored["faithfulness"] == {"tower": "the claims of the answer are unknown: not judged"}


# Agreement with other tools

# Computed by ragas 0.4.3 (whose import needs langchain-community<0.4): _compute_score of Faithfulness, ContextRecall
# and NoiseSensitivity, _calculate_average_precision of LLMContextPrecisionWithReference.
RAGAS_CASES = [
    ("0101 1011 1110", "1100 0101", "011", "0100", 1.0, 0.5, 1.0, 0.333333, 0.0),
    ("0 0 1", "0", "010", "1", 0.333333, 1.0, 0.0, 0.0, 0.333333),
    ("0 0", "0 0", "10", "0", 0.0, 0.0, 0.0, 0.0, 0.0),
    ("1000 0100", "0100 1010 0001 1011", "11", "1011", 1.0, 0.805556, 1.0, 0.0, 0.0),
    ("0111 0011 1110", "1111 0000", "001", "0011", 1.0, 0.416667, 0.5, 0.666667, 0.0),
    ("1111", "1111 1110 0111 1100", "1", "1011", 1.0, 0.805556, 1.0, 0.0, 0.0),
]


def build_case(by_answer, by_reference, correct, recalled, useful):
    """Build a sample and its verdicts from tables of 0 and 1: which chunks and which other text support each claim."""
    n = len(useful)
    sample = Sample("s", "?", "an answer", tuple(f"chunk {i}" for i in range(n)), "a reference")
    claims = {
        "answer": [Claim(f"a{i}", "", 1, ()) for i in range(1, len(by_answer) + 1)],
        "reference": [Claim(f"r{i}", "", 1) for i in range(1, len(by_reference) + 1)],
    }
    support = {}
    for prefix, tables, others, name in (
        ("a", by_answer, correct, "reference"),
        ("r", by_reference, recalled, "answer"),
    ):
        for i, (row, other) in enumerate(zip(tables, others, strict=True), 1):
            by = [f"k{j}" for j, supports in enumerate(row, 1) if supports] + ([name] if other else [])
            support[f"{prefix}{i}"] = Support(tuple(by))
    chunks = {f"k{j}": Usefulness(bool(flag)) for j, flag in enumerate(useful, 1)}
    return sample, Verdicts("s", TASK_KINDS, claims, support, chunks, [GeneratedQuestion("?", 0.5)], refusal=False)


@pytest.mark.parametrize("row", RAGAS_CASES, ids=range(len(RAGAS_CASES)))
def test_score_answers_matches_ragas(row):
    by_answer, by_reference = ([[int(bit) for bit in one] for one in part.split()] for part in row[:2])
    correct, useful = ([int(bit) for bit in part] for part in row[2:4])
    sample, verdicts = build_case(by_answer, by_reference, correct, [0] * len(by_reference), useful)
    names = ["faithfulness", "context_precision", "context_recall"]
    names += ["noise_sensitivity_relevant", "noise_sensitivity_in_irrelevant"]
    means = score_answers([sample], {"s": verdicts}, names).means
    assert [means[name] for name in names] == pytest.approx(row[4:], abs=1e-6)


def random_tables(max_size=4):
    """Generate random tables for `build_case`, with at most `max_size` claims per text and chunks."""
    bit = st.integers(0, 1)

    def tables_of_shape(shape):
        n_a, n_r, n_k = shape
        rows = lambda n: st.lists(st.lists(bit, min_size=n_k, max_size=n_k), min_size=n, max_size=n)  # noqa: E731
        line = lambda n: st.lists(bit, min_size=n, max_size=n)  # noqa: E731
        return st.tuples(rows(n_a), rows(n_r), line(n_a), line(n_r), line(n_k))

    size = st.integers(1, max_size)
    return st.tuples(size, size, size).flatmap(tables_of_shape)


@given(random_tables())
def test_score_answers_matches_ragchecker_formulas(table):
    """The expected values follow the formulas of RAGChecker (Ru et al. 2024), computed with arrays."""
    by_answer, by_reference, correct, recalled, useful = (np.array(part, bool) for part in table)
    supported, retrieved = by_answer.any(axis=1), by_reference.any(axis=1)
    relevant = by_reference.any(axis=0)
    from_relevant = (by_answer & relevant).any(axis=1)
    precision, recall = correct.mean(), recalled.mean()
    ranks = np.arange(1, len(useful) + 1)
    expected = {
        "faithfulness": supported.mean(),
        "context_precision": (np.cumsum(useful) / ranks * useful).sum() / max(useful.sum(), 1),
        "context_recall": retrieved.mean(),
        "claim_precision": precision,
        "claim_recall": recall,
        "claim_f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "noise_sensitivity": (supported & ~correct).mean(),
        "noise_sensitivity(chunks=relevant)": (from_relevant & ~correct).mean(),
        "noise_sensitivity(chunks=irrelevant)": (supported & ~from_relevant & ~correct).mean(),
        "hallucination": (~supported & ~correct).mean(),
        "self_knowledge": (~supported & correct).mean(),
    }
    if retrieved.any():
        expected["context_utilisation"] = (retrieved & recalled).sum() / retrieved.sum()
    sample, verdicts = build_case(*table)
    scores = score_answers([sample], {"s": verdicts}, [*expected, "context_utilisation"])
    assert dict(scores.means) | {"context_utilisation": 0} == pytest.approx(expected | {"context_utilisation": 0})
    if not retrieved.any():
        assert scores.unscored["context_utilisation"] == {"s": "the contexts support no claim of the reference"}
    else:
        assert scores.means["context_utilisation"] == pytest.approx(expected["context_utilisation"])


# Random verdicts


@given(random_tables())
def test_score_answers_values_lie_in_unit_interval(table):
    sample, verdicts = build_case(*table)
    for name, column in score_answers([sample], {"s": verdicts}, ALL_MEASURES[:-2]).values.items():
        assert math.isnan(column[0]) or 0 <= column[0] <= 1, name


@given(random_tables())
def test_score_answers_claim_shares_sum_to_one(table):
    sample, verdicts = build_case(*table)
    means = score_answers([sample], {"s": verdicts}, ALL_MEASURES).means
    assert means["hallucination"] <= 1 - means["faithfulness"] + 1e-12
    assert means["faithfulness"] + means["self_knowledge"] + means["hallucination"] == pytest.approx(1)
    assert means["claim_precision"] + means["noise_sensitivity"] + means["hallucination"] == pytest.approx(1)
    split = [means[f"noise_sensitivity(chunks={chunks})"] for chunks in ("relevant", "irrelevant")]
    assert sum(split) == pytest.approx(means["noise_sensitivity"])


@given(random_tables())
def test_context_recall_never_falls_with_larger_k(table):
    sample, verdicts = build_case(*table)
    names = [f"context_recall@{k}" for k in range(1, 6)]
    means = score_answers([sample], {"s": verdicts}, names).means
    values = [means[name] for name in names]
    assert values == sorted(values)
    assert values[-1] == score_answers([sample], {"s": verdicts}, ["context_recall"]).means["context_recall"]


@given(random_tables(), st.randoms(use_true_random=False))
def test_score_answers_is_independent_of_claim_and_sample_order(table, random):
    sample, verdicts = build_case(*table)
    claims = {text: random.sample(list(found), len(found)) for text, found in verdicts.claims.items()}
    shuffled = replace(
        verdicts, claims=claims, support=dict(random.sample(list(verdicts.support.items()), len(verdicts.support)))
    )
    copy = replace(sample, id="t")
    before = score_answers([sample, copy], {"s": verdicts, "t": replace(verdicts, sample="t")}, ALL_MEASURES)
    after = score_answers([copy, sample], {"t": replace(shuffled, sample="t"), "s": shuffled}, ALL_MEASURES)
    assert dict(before.means) == pytest.approx(dict(after.means), nan_ok=True)


@given(random_tables(), st.randoms(use_true_random=False))
def test_score_answers_chunk_order_affects_only_context_precision(table, random):
    by_answer, by_reference, correct, recalled, useful = table
    order = random.sample(range(len(useful)), len(useful))
    shuffled = [[[row[i] for i in order] for row in rows] for rows in (by_answer, by_reference)]
    original, reordered = build_case(*table), build_case(*shuffled, correct, recalled, [useful[i] for i in order])
    names = [name for name in ALL_MEASURES if name != "context_precision"]
    means = [score_answers([sample], {"s": verdicts}, names).means for sample, verdicts in (original, reordered)]
    assert dict(means[0]) == pytest.approx(dict(means[1]), nan_ok=True)


def drop_each_part(verdicts):
    """Yield variants of the verdicts, each with one part that is missing, or unscored with a reason."""
    for claim in verdicts.support:
        remaining = {name: one for name, one in verdicts.support.items() if name != claim}
        yield replace(verdicts, support=remaining)
        yield replace(verdicts, unscored={f"support {claim}": Unscored("unreadable", "Sure! Here is")})
    for chunk in verdicts.useful:
        remaining = {name: one for name, one in verdicts.useful.items() if name != chunk}
        yield replace(verdicts, useful=remaining)
        yield replace(verdicts, unscored={f"useful {chunk}": Unscored("unreadable")})
    for text in verdicts.claims:
        yield replace(verdicts, claims={name: one for name, one in verdicts.claims.items() if name != text})
        yield replace(verdicts, unscored={f"claims {text}": Unscored("unreadable")})
    for ask in verdicts.asked:
        yield replace(verdicts, asked=[one for one in verdicts.asked if one != ask])
    yield replace(verdicts, questions=())
    yield replace(verdicts, refusal=None)
    yield replace(verdicts, unscored={"questions": Unscored("unreadable")})


@given(random_tables(3))
@pytest.mark.slow
def test_score_answers_missing_verdict_keeps_value_or_leaves_unscored(table):
    sample, verdicts = build_case(*table)
    names = [*ALL_MEASURES, "context_precision@1", "context_recall@1"]
    complete = score_answers([sample], {"s": verdicts}, names)
    for incomplete in drop_each_part(verdicts):
        scores = score_answers([sample], {"s": incomplete}, names)
        for name in names:
            if "s" in scores.unscored[name]:
                assert math.isnan(scores.means[name])
                assert scores.unscored[name]["s"]
            else:
                assert scores.means[name] == complete.means[name]


def test_score_answers_every_lost_verdict_leaves_some_measure_unscored():
    """TOWER has verdicts of every kind and a value for every measure, so each lost verdict affects some measure."""
    assert not any(score_answers([TOWER], {"tower": TOWER_VERDICTS}, ALL_MEASURES).unscored.values())
    for incomplete in drop_each_part(TOWER_VERDICTS):
        unchecked = {"answer", "reference", "cross"} - set(incomplete.asked)
        if unchecked or incomplete.asked == TOWER_VERDICTS.asked:
            assert any(score_answers([TOWER], {"tower": incomplete}, ALL_MEASURES).unscored.values())


# Unscored samples and errors


@pytest.mark.parametrize("name", CLAIM_MEASURES)
def test_score_answers_unchecked_source_leaves_sample_unscored(name):
    reason = score_sample(name, verdicts=replace(TOWER_VERDICTS, asked=()))
    assert isinstance(reason, str)
    assert "were not checked against the" in reason


@pytest.mark.parametrize(
    ("unscored", "name", "reason"),
    [
        (
            {"support a3": Unscored("the reply was cut off")},
            "faithfulness",
            "a claim has no verdict: the reply was cut off",
        ),
        (
            {"support r1": Unscored("x"), "support r2": Unscored("y")},
            "context_recall",
            "a claim has no verdict: x",
        ),
        ({"claims answer": Unscored("no JSON")}, "hallucination", "the claims of the answer are unknown: no JSON"),
        ({"useful k2": Unscored("no JSON")}, "context_precision", "a chunk has no verdict: no JSON"),
        ({"questions": Unscored("no JSON")}, "answer_relevance", "no questions were generated: no JSON"),
    ],
)
def test_score_answers_missing_verdict_reason_is_reported(unscored, name, reason):
    assert score_sample(name, verdicts=replace(TOWER_VERDICTS, unscored=unscored)) == reason


def test_context_precision_ignores_chunks_below_cutoff():
    assert (
        score_sample(
            "context_precision@2", verdicts=replace(TOWER_VERDICTS, unscored={"useful k3": Unscored("no JSON")})
        )
        == 1.0
    )


def test_faithfulness_by_probability_without_probabilities_is_unscored():
    support = {**TOWER_VERDICTS.support, "a4": Support(("k2",))}
    assert (
        score_sample("faithfulness(by=probability)", verdicts=replace(TOWER_VERDICTS, support=support))
        == "the judge returns no probabilities"
    )
    assert score_sample("faithfulness", verdicts=replace(TOWER_VERDICTS, support=support)) == 0.5


def test_faithfulness_unknown_source_is_unscored():
    """A verdict on another sample or an invented id must not count as support."""
    support = {**TOWER_VERDICTS.support, "a1": Support(("k9",))}
    reason = score_sample("faithfulness", verdicts=replace(TOWER_VERDICTS, support=support))
    assert reason == "a claim has no verdict: the verdict names an unknown source"


def test_claim_precision_own_text_as_source_is_unscored():
    support = {**TOWER_VERDICTS.support, "a1": Support(("answer",))}
    assert "names an unknown source" in score_sample(
        "claim_precision", verdicts=replace(TOWER_VERDICTS, support=support)
    )


JOINT_VERDICTS = replace(
    TOWER_VERDICTS,
    support={
        **TOWER_VERDICTS.support,
        "a1": Support(("reference",), together=("k1", "k3")),
        "a4": Support((), together=("k1", "k2")),
        "r1": Support(("answer",), together=("k1", "k3")),
    },
)
"""Verdicts in which a1, a4 and r1 are supported only by two chunks together."""


def test_score_answers_joint_support_requires_all_chunks():
    assert score_sample("faithfulness", verdicts=JOINT_VERDICTS) == 0.5  # a1, a4 of four claims
    # r1 needs k1 and k3, r2 needs k3.
    assert [score_sample(f"context_recall@{k}", verdicts=JOINT_VERDICTS) for k in (1, 2, 3)] == [0.0, 0.0, 1.0]
    assert score_sample("context_recall", verdicts=JOINT_VERDICTS) == 1.0
    assert score_sample("hallucination", verdicts=JOINT_VERDICTS) == 0.5  # a2, a3
    assert score_sample("contradiction", verdicts=JOINT_VERDICTS) == 0.25  # a2
    assert score_sample("context_utilisation", verdicts=JOINT_VERDICTS) == 0.5  # of r1 and r2, the answer supports r1
    assert score_sample("noise_sensitivity", verdicts=JOINT_VERDICTS) == 0.25  # a4, supported by k1 and k2


def test_noise_sensitivity_joint_support_with_irrelevant_chunk_by_hand():
    # Only k1 and k3 are relevant, and a4 needs k2.
    assert score_sample("noise_sensitivity(chunks=relevant)", verdicts=JOINT_VERDICTS) == 0.0
    assert score_sample("noise_sensitivity(chunks=irrelevant)", verdicts=JOINT_VERDICTS) == 0.25
    relevant_only = replace(
        JOINT_VERDICTS, support={**JOINT_VERDICTS.support, "a4": Support((), together=("k1", "k3"))}
    )
    assert score_sample("noise_sensitivity(chunks=relevant)", verdicts=relevant_only) == 0.25


def test_citation_measures_joint_support_requires_all_citations():
    """All claims cite k1 and k2: a4 needs exactly these two chunks, a1 needs k1 and k3."""
    assert score_sample("citation_recall", verdicts=JOINT_VERDICTS) == 0.25
    assert score_sample("citation_precision", verdicts=JOINT_VERDICTS) == 2 / 8
    claims = {"answer": [claim._replace(cites=(1, 2, 3)) for claim in TOWER_VERDICTS.claims["answer"]]}
    cited = replace(JOINT_VERDICTS, claims={**TOWER_VERDICTS.claims, **claims})
    assert score_sample("citation_recall", verdicts=cited) == 0.5
    assert score_sample("citation_precision", verdicts=cited) == 4 / 12


@pytest.mark.parametrize(
    ("support", "reason"),
    [
        (Support(("k1",), ("k1",)), "a source both supports and contradicts it"),
        (Support((), ("k1",), together=("k1", "k2")), "a source both supports and contradicts it"),
        (Support(("k1",), together=("k1", "k2")), "a source supports it both alone and only together with others"),
        (Support((), together=("k1",)), "only one source supports it together with others"),
        (Support((), together=("k1", "reference")), "the verdict names an unknown source"),
        (Support((), together=("k1", ALL_CONTEXTS)), "the verdict names an unknown source"),
    ],
)
def test_faithfulness_contradictory_verdict_is_unscored(support, reason):
    verdicts = replace(TOWER_VERDICTS, support={**TOWER_VERDICTS.support, "a1": support})
    assert score_sample("faithfulness", verdicts=verdicts) == f"a claim has no verdict: {reason}"


def test_score_answers_blank_chunk_supports_nothing():
    blank = replace(TOWER, contexts=("It was begun in 1887.", " \n", "It stands in Paris."))
    useful = {name: one for name, one in TOWER_VERDICTS.useful.items() if name != "k2"}
    support = {**TOWER_VERDICTS.support, "a4": Support(())}
    verdicts = replace(TOWER_VERDICTS, useful=useful, support=support)
    assert score_sample("context_precision", blank, verdicts) == pytest.approx((1 + 2 / 3) / 2)
    assert score_sample("context_precision@2", blank, replace(verdicts, useful={"k1": Usefulness(False)})) == 0.0
    assert score_sample("faithfulness", blank, verdicts) == 0.25
    reason = "a claim has no verdict: the verdict names an unknown source"
    assert score_sample("faithfulness", blank, replace(verdicts, support=TOWER_VERDICTS.support)) == reason
    empty = replace(TOWER, contexts=("", "\t"))
    no_support = replace(remove_chunk_support(TOWER_VERDICTS), support={})
    for name in ("faithfulness", "faithfulness(by=probability)", "context_recall", "context_recall@1"):
        assert score_sample(name, empty, no_support) == 0.0
    assert score_sample("context_precision", empty, no_support) == 0.0


def test_score_answers_foreign_verdicts_or_empty_id_raises_error():
    with pytest.raises(BadInput, match="the verdicts on `tower` belong to another sample, `other`"):
        score_answers([TOWER], {"tower": replace(TOWER_VERDICTS, sample="other")}, ["faithfulness"])
    with pytest.raises(BadInput, match="a sample has an empty id"):
        score_answers([replace(TOWER, id=" ")], {}, ["faithfulness"])


def test_score_answers_fingerprints_match_samples():
    other = replace(TOWER, id="other", question="Who built it?", reference=None)
    fingerprints = score_answers([TOWER, other], {}, ["faithfulness"]).fingerprints
    assert fingerprints == {"tower": TOWER.fingerprint, "other": other.fingerprint}
    assert fingerprints["tower"] == replace(TOWER, id="x", answer="No.", contexts=()).fingerprint
    assert fingerprints["other"].endswith("-")
    assert not fingerprints["tower"].endswith("-")


def test_score_answers_joint_context_verdicts_are_unscored_at_cutoff():
    together = {
        name: Support(
            (ALL_CONTEXTS, *(s for s in one.by if not s.startswith("k")))
            if any(s.startswith("k") for s in one.by)
            else one.by
        )
        for name, one in TOWER_VERDICTS.support.items()
    }
    verdicts = replace(TOWER_VERDICTS, support=together)
    assert score_sample("faithfulness", verdicts=verdicts) == 0.5
    assert (
        score_sample("context_recall", verdicts=verdicts) == score_sample("context_recall@3", verdicts=verdicts) == 1.0
    )
    for name in ("context_recall@1", "citation_recall", "noise_sensitivity(chunks=relevant)"):
        assert score_sample(name, verdicts=verdicts) == "the judge did not say which chunk supports a claim"
    single = replace(TOWER, contexts=("all of it",))
    assert score_sample("context_recall@1", single, verdicts) == 1.0


@pytest.mark.parametrize("name", ALL_MEASURES)
def test_score_answers_sample_without_required_field_is_unscored(name):
    for field, reason in (("answer", "no answer"), ("contexts", "no contexts"), ("reference", "no reference answer")):
        incomplete = replace(TOWER, id="bare", **{field: None})
        verdicts = replace(
            TOWER_VERDICTS if incomplete.contexts else remove_chunk_support(TOWER_VERDICTS), sample="bare"
        )
        scores = score_answers([TOWER, incomplete], {"tower": TOWER_VERDICTS, "bare": verdicts}, [name])
        needed = field in parse_answer_measure(name).spec.required_fields
        assert scores.unscored[name] == ({"bare": reason} if needed else {})


def test_score_answers_measure_without_scorable_sample_raises_error():
    no_reference = replace(TOWER, reference=None)
    with pytest.raises(MissingEvidence, match="context_recall@3 needs reference answers, and no sample has any"):
        score_answers([no_reference], {"tower": TOWER_VERDICTS}, ["context_recall@3"])
    with pytest.raises(MissingEvidence, match="questions"):
        score_answers([replace(TOWER, question=" ")], {"tower": TOWER_VERDICTS}, ["context_precision"])


def test_score_answers_empty_or_duplicate_samples_raise_error():
    with pytest.raises(BadInput, match="no samples"):
        score_answers([], {})
    with pytest.raises(BadInput, match="two samples have the id `tower`"):
        score_answers([TOWER, TOWER], {"tower": TOWER_VERDICTS})


# Conventions


def test_score_answers_answer_without_claims_follows_convention():
    no_claims = replace(TOWER_VERDICTS, claims={**TOWER_VERDICTS.claims, "answer": []})
    assert score_sample("faithfulness", verdicts=no_claims) == "the answer contains no claims"
    assert score_sample("faithfulness", verdicts=no_claims, convention="ragas") == "the answer contains no claims"
    assert score_sample("faithfulness", verdicts=no_claims, convention="rig") == 1.0
    for name in ("hallucination", "claim_precision", "citation_recall"):
        assert score_sample(name, verdicts=no_claims, convention="rig") == "the answer contains no claims"
    no_reference_claims = replace(TOWER_VERDICTS, claims={**TOWER_VERDICTS.claims, "reference": []})
    assert (
        score_sample("context_recall", verdicts=no_reference_claims, convention="rig")
        == "the reference contains no claims"
    )


def test_score_answers_empty_context_follows_convention():
    no_contexts = replace(TOWER, contexts=())
    verdicts = remove_chunk_support(TOWER_VERDICTS)
    expected = {
        "faithfulness": 0.0,
        "context_precision": 0.0,
        "context_recall": 0.0,
        "hallucination": 3 / 4,
        "self_knowledge": 1 / 4,
        "noise_sensitivity": 0.0,
        "contradiction": 0.0,
        "citation_recall": 0.0,
    }
    for name, score in expected.items():
        assert score_sample(name, no_contexts, verdicts) == score
        assert score_sample(name, no_contexts, verdicts, "rig") == score
        assert score_sample(name, no_contexts, verdicts, "rig-code") == "the context is empty"
    assert (
        score_sample("context_utilisation", no_contexts, verdicts) == "the contexts support no claim of the reference"
    )
    assert score_sample("claim_precision", no_contexts, verdicts, "rig") == 1 / 4


def test_score_answers_empty_context_needs_no_verdicts():
    no_contexts = replace(TOWER, contexts=())
    assert score_sample("faithfulness", no_contexts, Verdicts("tower", (), TOWER_VERDICTS.claims)) == 0.0
    assert score_sample("context_precision", no_contexts, Verdicts("tower")) == 0.0


def test_faithfulness_without_claims_and_context_follows_convention():
    no_contexts, no_claims = replace(TOWER, contexts=()), Verdicts("tower", ("answer",), {"answer": []})
    assert score_sample("faithfulness", no_contexts, no_claims) == "the answer contains no claims"
    assert score_sample("faithfulness", no_contexts, no_claims, "rig") == 1.0
    assert score_sample("faithfulness", no_contexts, no_claims, "rig-code") == "the context is empty"


def test_claim_recall_empty_answer_is_zero():
    empty_answer = replace(TOWER, answer=" ")
    verdicts = Verdicts("tower", ("reference",), {"answer": [], "reference": TOWER_VERDICTS.claims["reference"]})
    assert score_sample("claim_recall", empty_answer, verdicts) == 0.0
    assert score_sample("claim_precision", empty_answer, verdicts) == "the answer contains no claims"


def test_claim_precision_blank_reference_is_unscored():
    blank = replace(TOWER, id="blank", reference="")
    scores = score_answers(
        [TOWER, blank], {"tower": TOWER_VERDICTS, "blank": replace(TOWER_VERDICTS, sample="blank")}, ["claim_precision"]
    )
    assert scores.unscored["claim_precision"] == {"blank": "no reference answer"}


@pytest.mark.parametrize("name", ["claim_precision", "claim_recall", "noise_sensitivity", "hallucination"])
@pytest.mark.parametrize("text", ["answer", "reference"])
def test_score_answers_unknown_claims_of_either_text_leave_unscored(name, text):
    verdicts = replace(TOWER_VERDICTS, unscored={f"claims {text}": Unscored("no JSON")})
    assert score_sample(name, verdicts=verdicts) == f"the claims of the {text} are unknown: no JSON"


def test_answer_relevance_refusal_is_zero_or_unscored():
    refusal = replace(TOWER_VERDICTS, refusal=True, questions=())
    assert score_sample("answer_relevance", verdicts=refusal) == 0.0
    reason = score_sample("answer_relevance", verdicts=refusal, convention=PRESETS["default"].but(refusal="unscored"))
    assert reason == "the answer is a refusal"
    not_judged = replace(TOWER_VERDICTS, refusal=None)
    assert score_sample("answer_relevance", verdicts=not_judged) == "not judged whether the answer is a refusal"


def test_answer_relevance_nan_similarity_is_unscored():
    questions = [*TOWER_VERDICTS.questions, GeneratedQuestion("?", math.nan)]
    assert (
        score_sample("answer_relevance", verdicts=replace(TOWER_VERDICTS, questions=questions))
        == "a question has no similarity"
    )


# Names


@pytest.mark.parametrize(
    ("given_name", "canonical"),
    [
        ("Faithfulness", "faithfulness"),
        ("groundedness", "faithfulness"),
        ("faithfulness( by = 'probability' )", "faithfulness(by=probability)"),
        ("faithfulness(by=verdict)", "faithfulness"),
        ("Answer Relevancy", "answer_relevance"),
        ("response_relevancy", "answer_relevance"),
        ("LLM-Context-Recall@ 4", "context_recall@4"),
        ("contextual_precision", "context_precision"),
        ("llm_context_precision_with_reference", "context_precision"),
        ("noise_sensitivity_in_irrelevant", "noise_sensitivity(chunks=irrelevant)"),
        ("context_utilization", "context_utilisation"),
    ],
)
def test_parse_answer_measure_accepts_names_of_other_tools(given_name, canonical):
    assert str(parse_answer_measure(given_name)) == canonical
    assert str(parse_answer_measure(canonical)) == canonical


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("faithfulnes", UnknownName, "did you mean `faithfulness`"),
        ("factual_correctness", UnknownName, "unknown answer measure"),  # in ragas, an F1 of other parts
        ("ndcg@10", BadInput, "compute it with `ragauge evaluate`"),
        ("faithfulness@3", BadInput, "faithfulness has no cutoff"),
        ("context_recall@ten", BadInput, "`ten` in `context_recall@ten` is not a cutoff"),
        ("context_recall@0", BadInput, "is not a cutoff"),
        ("faithfulness(by=vote)", BadInput, "verdict, probability"),
        ("faithfulness(how=1)", UnknownName, "faithfulness has by"),
        ("", UnknownName, "list all with"),
    ],
)
def test_parse_answer_measure_invalid_name_raises_error_with_hint(name, error, message):
    with pytest.raises(error) as caught:
        parse_answer_measure(name)
    assert message in str(caught.value)


def test_evaluate_answer_measure_raises_error():
    import ragauge

    with pytest.raises(BadInput, match="answer measure") as caught:
        ragauge.evaluate({"q": {"a": 1}}, {"q": ["a"]}, ["faithfulness"])
    assert "compute it with `ragauge judge`" in str(caught.value)
    assert list(ragauge.evaluate({"q": {"a": 1}}, {"q": ["a"]}, ["context_precision"]).means) == ["map(of=found)"]


def test_required_tasks_returns_tasks_of_measures():
    assert required_tasks(["faithfulness"]) == {"answer"}
    assert required_tasks(DEFAULT_ANSWER_MEASURES) == {"answer", "reference", "useful", "questions"}
    assert required_tasks(["noise_sensitivity"]) == {"answer", "cross"}
    assert required_tasks(["noise_sensitivity_relevant"]) == {"answer", "cross", "reference"}
    assert required_tasks(ALL_MEASURES) == set(TASK_KINDS)


@pytest.mark.parametrize("name", ALL_MEASURES)
def test_score_answers_declared_tasks_are_sufficient(name):
    verdicts = replace(TOWER_VERDICTS, asked=sorted(parse_answer_measure(name).tasks))
    assert score_sample(name, verdicts=verdicts) == score_sample(name)


@pytest.mark.parametrize("name", ANSWER_MEASURES)
def test_answer_measures_have_complete_docstrings(name):
    text = inspect.getdoc(ANSWER_MEASURES[name].function) or ""
    for part in ("Formula:", "Rule:", "Paper:", ">>>"):
        assert part in text, part
    assert text.splitlines()[0].endswith(".")
    assert set(ANSWER_MEASURES[name].tasks) <= set(TASK_KINDS)


# Citations


@pytest.mark.parametrize(
    ("sentence", "places"),
    [
        ("Paris [1].", (1,)),
        ("Paris [1, 2].", (1, 2)),
        ("Paris [1][3].", (1, 3)),
        ("Paris [2-4; 7].", (2, 3, 4, 7)),
        ("Paris【1】【3†source】.", (1, 3)),
        ("Paris[^2].", (2,)),
        ("In [1999], see [a] and [note 1].", ()),
        ("Nothing.", ()),
        ("Backwards [4-2].", ()),
    ],
)
def test_find_citations_returns_cited_places(sentence, places):
    assert find_citations(sentence) == places


def test_citations_by_sentence_assigns_citation_after_full_stop():
    assert citations_by_sentence(["One.", "[1][2] Two [3].", "[4]"]) == [(1, 2), (3, 4), ()]
    assert citations_by_sentence(["[1] First."]) == [(1,)]


@pytest.mark.parametrize(
    "texts",
    [
        "faithfulness,context_recall@3",
        "faithfulness context_recall@3",
        ["faithfulness , context_recall@3"],
        ["faithfulness", "context_recall@3", "faithfulness"],
    ],
)
def test_parse_answer_measures_splits_lists_of_names(texts):
    assert [str(one) for one in parse_answer_measures(texts)] == ["faithfulness", "context_recall@3"]


def test_parse_answer_measures_function_raises_with_sentence():
    with pytest.raises(BadInput, match="an answer measure must be a name, got len; functions of your own are not supp"):
        parse_answer_measures(["faithfulness", len])
