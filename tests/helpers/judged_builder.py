"""Builder of judged samples for tests: all verdicts are invented, no judge was called."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ragauge.core.records import MeasureDict, Scores
from ragauge.core.samples import Claim, GeneratedQuestion, Sample, Support, Unscored, Usefulness, Verdicts
from ragauge.judging.all_steps import describe_kinds
from ragauge.judging.results import CostStep, InjectionAttempt, JudgedSamples

TASK_KINDS = tuple(describe_kinds())
MODEL = "openai:gpt-x@api.example.org rubrics 1a2b3c"
FAITHFULNESS, PRECISION, RECALL, RELEVANCE = (
    "faithfulness",
    "context_precision",
    "context_recall",
    "answer_relevance",
)
UNREADABLE = "the judge's reply could not be read"


def scores(columns, queries, reasons=None, *, judge=MODEL, run="toy", convention="default"):
    """Return scores from one column of values per measure; each NaN has a reason, MUTE by default."""
    values = {name: np.array(column, dtype=float) for name, column in columns.items()}
    unscored = {
        name: {
            q: (reasons or {}).get((name, q), UNREADABLE) for q, v in zip(queries, column, strict=True) if math.isnan(v)
        }
        for name, column in values.items()
    }
    means = {name: math.nan if np.isnan(v).all() else float(np.nanmean(v)) for name, v in values.items()}
    return Scores(
        run=run,
        convention=convention,
        queries=list(queries),
        values=MeasureDict(values, str),
        means=MeasureDict(means, str),
        unscored=MeasureDict(unscored, str),
        judge=judge,
    )


def make_judged(**changes):
    """Return four judged samples.

    All claims of q1 are supported. q2 has a contradicted and an unsupported claim. Replies of the judge for q3 could
    not be read. q4 is a refusal.
    """
    samples = [
        Sample(
            "q1",
            "Where is the tower?",
            "The tower is in Paris.",
            ("The Eiffel Tower stands in Paris.", "It was built in 1889."),
            "It is in Paris.",
            ("doc-7", "doc-9"),
        ),
        Sample(
            "q2",
            "How high is it?",
            "It is 300 m high. It is made of wood. It is painted blue.",
            ("The tower is 300 m high and made of iron.",),
            "It is 330 m high.",
            labels={FAITHFULNESS: 0.0},
            metadata={"topic": "height"},
        ),
        Sample("q3", "Who built it?", "Gustave Eiffel did.", ("Eiffel's company built it.",), "Eiffel."),
        Sample("q4", "Who painted it?", "I do not know.", (), None, history=("Who built it?", "Eiffel.")),
    ]
    verdicts = {
        "q1": Verdicts(
            "q1",
            TASK_KINDS,
            {"answer": [Claim("a1", "The tower is in Paris.", 1)], "reference": [Claim("r1", "It is in Paris.", 1)]},
            {
                "a1": Support(("k1", "reference"), (), "chunk 1 says that it stands in Paris", 0.98),
                "r1": Support(("answer",), together=("k1", "k2")),
            },
            {"k1": Usefulness(True, "it says where", 0.9), "k2": Usefulness(False)},
            [GeneratedQuestion("Where does the tower stand?", 0.93), GeneratedQuestion("In which city is it?", 0.71)],
            refusal=False,
        ),
        "q2": Verdicts(
            "q2",
            TASK_KINDS,
            {
                "answer": [
                    Claim("a1", "It is 300 m high.", 1),
                    Claim("a2", "It is made of wood.", 2),
                    Claim("a3", "It is painted blue.", 3),
                ],
                "reference": [Claim("r1", "It is 330 m high.", 1)],
            },
            {
                "a1": Support(("k1",), ("reference",)),
                "a2": Support((), ("k1",), "the chunk says iron"),
                "a3": Support(()),
                "r1": Support((), ("k1", "answer")),
            },
            {"k1": Usefulness(True)},
            [GeneratedQuestion("How tall is it?", 0.88)],
            refusal=False,
        ),
        "q3": Verdicts(
            "q3",
            TASK_KINDS,
            {"answer": [Claim("a1", "Gustave Eiffel built it.", 1)]},
            {},
            {},
            (),
            unscored={
                "support a1": Unscored(UNREADABLE, '{"verdicts": [{"id": "a9", "verd'),
                "claims reference": Unscored(UNREADABLE, "I think that …"),
                "useful k1": Unscored("the reply was cut off", "{"),
                "questions": Unscored(UNREADABLE, ""),
            },
        ),
        "q4": Verdicts(
            "q4", TASK_KINDS, {"answer": []}, {}, {}, (), refusal=True, left_out={"answer": ["I do not know."]}
        ),
    }
    columns = {
        FAITHFULNESS: [1.0, 1 / 3, math.nan, math.nan],
        PRECISION: [1.0, 1.0, math.nan, 0.0],
        RECALL: [1.0, 0.0, math.nan, math.nan],
        RELEVANCE: [0.82, 0.88, math.nan, 0.0],
    }
    why = {
        (FAITHFULNESS, "q4"): "the answer contains no claims",
        (RECALL, "q4"): "there is no reference",
        (PRECISION, "q3"): "the reply was cut off",
    }
    result = JudgedSamples(
        name="toy",
        judge=MODEL,
        identity={"chat": "openai", "model": "gpt-x", "rubrics": {"claims": "1a2b"}},
        samples=samples,
        verdicts=verdicts,
        scores=scores(columns, [one.id for one in samples], why),
        intervals={FAITHFULNESS: (0.1, 1.0), PRECISION: (0.2, 0.9), RELEVANCE: (0.05, 0.88)},
        ledger=[
            CostStep("claims", 7, 1, 2, 1, 4200, 800, 0, 6.5, 850.0, 1900.0, 0.0123),
            CostStep("support", 3, 0, 0, 1, 9000, 400, 1000, 3.1, 990.0, 1200.0, 0.021),
        ],
        robustness=[
            InjectionAttempt("ignore", "support", "answer", "absent", "absent", "absent"),
            InjectionAttempt("shout", "support", "context", "absent", "absent", "supported"),
            InjectionAttempt("tag", "useful", "context", "no", "no", "unscored"),
        ],
        notes=["three questions are thought up for each answer"],
        provenance={"made": "2026-01-02T03:04:05+00:00", "ragauge": "0.0"},
    )
    return replace(result, **changes)


def make_lexical_judged(**changes):
    """Return the samples of `judged` as scored by the lexical judge, without costs and robustness checks."""
    result = make_judged(judge="lexical", identity={"judge": "lexical"}, ledger=(), robustness=())
    return replace(result, scores=replace(result.scores, judge="lexical"), **changes)


def make_many_judged(n, *, chunks=5, length=900):
    """Return `n` judged samples with long chunks; in one of 100 samples the reply of the judge could not be read."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(3000)]

    def text(size):
        return " ".join(words[i] for i in rng.integers(0, len(words), size // 8))

    samples, verdicts, values = [], {}, []
    for i in range(n):
        name = f"q{i}"
        contexts = tuple(text(length) for _ in range(chunks))
        samples.append(Sample(name, text(80), text(400), contexts, text(120)))
        claims = [Claim(f"a{j}", text(70), j) for j in range(1, 6)]
        if i % 100 == 7:
            verdicts[name] = Verdicts(
                name, TASK_KINDS, {"answer": claims}, unscored={"support a1": Unscored(UNREADABLE, text(300))}
            )
            values.append(math.nan)
            continue
        supports = {item.id: Support(("k1",) if rng.random() < 0.7 else (), (), text(60)) for item in claims}
        usefulness = {f"k{j}": Usefulness(bool(rng.random() < 0.5), text(40)) for j in range(1, chunks + 1)}
        verdicts[name] = Verdicts(
            name,
            TASK_KINDS,
            {"answer": claims},
            supports,
            usefulness,
            [GeneratedQuestion(text(60), float(rng.random()))],
        )
        values.append(sum(bool(item.by) for item in supports.values()) / 5)
    relevance = rng.random(n).tolist()
    score_table = scores({FAITHFULNESS: values, RELEVANCE: relevance}, [item.id for item in samples], run="many")
    intervals = {FAITHFULNESS: (0.68, 0.72), RELEVANCE: (0.48, 0.52)}
    return JudgedSamples("many", MODEL, {"model": "gpt-x"}, samples, verdicts, score_table, intervals)
