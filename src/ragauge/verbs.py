"""The verbs that join rooms: `evaluate` reads, counts and scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ragauge import formats
from ragauge.errors import BadInput
from ragauge.formats.files import Source
from ragauge.formats.memory import is_one_run
from ragauge.measures.conventions import Convention
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.names import Measure, parse_all
from ragauge.measures.scoring import OwnMeasure, score
from ragauge.records import Judgments, Scores

DEFAULT_MEASURES = ("ndcg@10", "recall@100", "map", "mrr", "precision@10")
Measures = str | OwnMeasure | Iterable[str | OwnMeasure]


def evaluate(
    qrels: Any,
    run: Any,
    measures: Measures = DEFAULT_MEASURES,
    convention: str | Convention = "default",
    *,
    targets: Any = None,
    qrels_format: str | None = None,
    run_format: str | None = None,
) -> Any:
    """Score a run, or several by name, against judgments.

    `qrels` and `run` may be paths (`-` is standard input), nested dictionaries, frames, lists of tuples, arrays or
    records; a mapping from names to runs gives a dictionary of scores. `targets` is a target map for `dr@k`; the
    formats of files are found out unless they are named.

    >>> evaluate({"q1": {"a": 1}}, {"q1": {"b": 0.9, "a": 0.4}}, ["mrr", "recall@1"]).means
    {'mrr': 0.5, 'recall@1': 0.0}
    """
    rules = find_convention(convention)
    wanted = read_measures(measures, rules)
    judgments = judgments_for(wanted, qrels, form=qrels_format, targets=targets)

    def one(returned: Any, name: str | None) -> Scores:
        return score(count(judgments, returned, wanted, rules, name=name, form=run_format), wanted, rules)

    if isinstance(run, Mapping) and not is_one_run(run):
        return {name: one(returned, str(name)) for name, returned in run.items()}
    return one(run, None)


def judgments_for(
    measures: Sequence[Measure | OwnMeasure],
    qrels: Any,
    *,
    form: str | None = None,
    targets: Any = None,
    split: str | None = None,
) -> Judgments:
    """The judgments with the evidence that the measures need: subtopics where they ask for them, a target map."""
    asks = any(isinstance(m, Measure) and m.spec.needs_subtopics for m in measures)
    if asks and form is None and isinstance(qrels, str | Path) and formats.guess(Source(str(qrels))) == "trec":
        form = "subtopics"
    judgments = formats.read_judgments(qrels, format=form, split=split)
    if not len(judgments):
        raise BadInput("the judgments have no query", file=judgments.source)
    return judgments if targets is None else judgments.with_targets(formats.read_targets(targets))


def read_measures(measures: Measures, rules: Convention, *, trec: bool = False) -> list[Measure | OwnMeasure]:
    """Measures by name, and functions as they are, in the order asked for."""
    given: list[str | OwnMeasure] = [measures] if isinstance(measures, str) or callable(measures) else list(measures)
    if trec:
        return list(parse_all([name for name in given if isinstance(name, str)], rules, trec=True))
    out: list[Measure | OwnMeasure] = []
    for one in given:
        out.extend(parse_all([one], rules) if isinstance(one, str) else [one])
    return list(dict.fromkeys(out))


def count(
    judgments: Judgments,
    run: Any,
    measures: Sequence[Measure | OwnMeasure],
    rules: Convention,
    *,
    name: str | None = None,
    form: str | None = None,
) -> JudgedRanks:
    """The judged ranks of one run, by the road that suits what it is."""
    deep = [int(m.cutoff or 0) for m in measures if isinstance(m, Measure) and _looks_at_documents(m)]
    # Where repetitions are dropped before the cut, documents from far below it can rise above it.
    top = 0 if not deep else max(deep) if not any(map(_rises, measures)) else 1 << 31
    found = formats.scan_run(run, format=form, name=name or "run", with_ranks=rules.ties == "ranked")
    if isinstance(found, Mapping):
        from ragauge.measures import from_mappings

        return from_mappings.judged_ranks(judgments, found, rules, top=top, name=name or "run")
    from ragauge.measures import from_frames

    judged = from_frames.judged_ranks(judgments, found, rules, top=top)
    answered = judged.answered
    asked = formats.asked(run)
    if asked is not None:  # an empty answer, or a failure, is an answer: it must not leave the mean
        answered = answered | np.array([query in asked for query in judged.pool.queries], np.bool_)
    return replace(judged, name=name or judged.name, tag=getattr(found, "tag", ""), answered=answered)


def shallow(name: str, k: int | None, measures: Sequence[Measure | OwnMeasure]) -> list[str]:
    """What a run of k documents a query cannot tell, though a number comes out; k is None where it is not known."""
    beyond = [one for one in measures if isinstance(one, Measure) and k is not None and (one.cutoff or 0) > k]
    what = f"{beyond[0]} is that" if len(beyond) == 1 else f"measures beyond @{k} are those"
    return [f"{name} has {k} documents a query, so {what} of {k}"] if beyond else []


def _looks_at_documents(measure: Measure) -> bool:
    return measure.spec.needs_top or dict(measure.options).get("of") == "eps"


def _rises(measure: Measure | OwnMeasure) -> bool:
    return isinstance(measure, Measure) and dict(measure.options).get("dedupe") == "before"
