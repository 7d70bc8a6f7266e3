"""Provider for ir_measures: computes its measures with ragauge.

>>> import ir_measures
>>> from ir_measures import nDCG, P
>>> from ragauge.evaluation.ir_measures_provider import provider
>>> qrels = [ir_measures.Qrel("q", "a", 1)]
>>> run = [ir_measures.ScoredDoc("q", "x", 2.0), ir_measures.ScoredDoc("q", "a", 1.0)]
>>> provider.calc_aggregate([P@2], qrels, run)
{P@2: 0.5}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import ir_measures
from ir_measures import Metric, providers
from ir_measures.providers.base import NOT_PROVIDED, Choices
from ir_measures.providers.base import Any as Anything

from ragauge.core.records import Judgments
from ragauge.evaluation.evaluate import compute_judged_ranks
from ragauge.measures.conventions import PRESETS
from ragauge.measures.names import Measure, make_measure
from ragauge.measures.registry import MEASURE_REGISTRY
from ragauge.measures.scoring import score_judged_ranks

PROVIDER_CONVENTION = PRESETS["trec9"]
"""Convention of pytrec_eval, which ir_measures uses, so that the scores agree."""

MEASURE_NAMES = {
    "P": "precision",
    "RR": "mrr",
    "Rprec": "r_precision",
    "AP": "map",
    "nDCG": "ndcg",
    "R": "recall",
    "Bpref": "bpref",
    "NumRel": "num_rel",
    "SetAP": "set_map",
    "SetF": "set_f",
    "SetR": "set_recall",
    "Success": "hit_rate",
    "IPrec": "iprec_at_recall",
    "infAP": "infap",
    "Judged": "judged",
}
"""Measure in ragauge for each ir_measures name; names with two alternatives are in `_translate_measure`."""


class RagaugeProvider(providers.Provider):
    """Provider of ir_measures that uses ragauge."""

    NAME = "ragauge"
    _m = ir_measures.measures
    SUPPORTED_MEASURES = [  # noqa: RUF012 - ir_measures declares it so
        _m._P(cutoff=Anything(), rel=Anything(), judged_only=Anything()),
        _m._RR(cutoff=Anything(), rel=Anything(), judged_only=Anything()),
        _m._Rprec(rel=Anything(), judged_only=Anything()),
        _m._AP(cutoff=Anything(), rel=Anything(), judged_only=Anything()),
        _m._nDCG(cutoff=Anything(), dcg=Choices("log2", "exp-log2"), gains=Anything(), judged_only=Anything()),
        _m._R(cutoff=Anything(), rel=Anything(), judged_only=Anything()),
        _m._Bpref(rel=Anything()),
        _m._NumRet(rel=Anything()),
        _m._NumRel(rel=Anything()),
        _m._SetAP(rel=Anything(), judged_only=Anything()),
        _m._SetF(rel=Anything(), beta=Anything(), judged_only=Anything()),
        _m._SetP(rel=Anything(), relative=Anything(), judged_only=Anything()),
        _m._SetR(rel=Anything()),
        _m._Success(cutoff=Anything(), rel=Anything(), judged_only=Anything()),
        _m._IPrec(recall=Anything(), rel=Anything(), judged_only=Anything()),
        _m._infAP(rel=Anything()),
        _m._Judged(cutoff=Anything(required=True)),
    ]

    def _evaluator(self, measures: Iterable[Any], qrels: Any) -> RagaugeEvaluator:
        return RagaugeEvaluator(list(measures), ir_measures.util.QrelsConverter(qrels).as_dict_of_dict())


class RagaugeEvaluator(providers.Evaluator):
    """Evaluator that scores runs with judgments prepared once."""

    def __init__(self, measures: list[Any], qrels: dict[str, dict[str, int]]) -> None:
        super().__init__(measures, set(qrels))
        self.judgments = Judgments(qrels, source="ir_measures")

    def _iter_calc(self, run: Any) -> Iterator[Metric]:
        nested = ir_measures.util.RunConverter(run).as_dict_of_dict()
        for condensed in (False, True):
            measures = [m for m in self.measures if bool(_measure_parameter(m, "judged_only")) == condensed]
            if not measures:
                continue
            rules = PROVIDER_CONVENTION.but(unjudged="condensed") if condensed else PROVIDER_CONVENTION
            translated = [_translate_measure(m) for m in measures]
            scores = score_judged_ranks(
                compute_judged_ranks(self.judgments, nested, translated, rules), translated, rules
            )
            for measure, translated_measure in zip(measures, translated, strict=True):
                for query, value in scores.per_query[str(translated_measure)].items():
                    yield Metric(query_id=query, measure=measure, value=value)


def _measure_parameter(measure: Any, name: str) -> Any:
    """Return a parameter of an ir_measures measure; None if unsupported or not given."""
    if name not in measure.SUPPORTED_PARAMS:
        return None
    value = measure[name]
    return None if value is NOT_PROVIDED else value


def _translate_measure(measure: Any) -> Measure:
    """Translate an ir_measures measure into a ragauge measure."""
    name = measure.NAME
    options: dict[str, Any] = {}
    if _measure_parameter(measure, "rel") is not None:
        options["rel"] = float(_measure_parameter(measure, "rel"))
    cutoff = _measure_parameter(measure, "recall") if name == "IPrec" else _measure_parameter(measure, "cutoff")
    if name == "nDCG":
        if _measure_parameter(measure, "dcg") == "exp-log2":
            options["gain"] = "exp"
        if _measure_parameter(measure, "gains"):
            options["gain"] = "/".join(f"{grade}:{gain}" for grade, gain in measure["gains"].items())
    if name == "SetF":
        options["beta"] = float(measure["beta"])
    if name == "NumRet":
        return make_measure(
            MEASURE_REGISTRY["num_rel_ret" if options else "num_ret"], None, options, PROVIDER_CONVENTION
        )
    if name == "SetP":
        set_measure = "set_relative_precision" if _measure_parameter(measure, "relative") else "set_precision"
        return make_measure(MEASURE_REGISTRY[set_measure], None, options, PROVIDER_CONVENTION)
    return make_measure(MEASURE_REGISTRY[MEASURE_NAMES[name]], cutoff, options, PROVIDER_CONVENTION)


provider = providers.register(RagaugeProvider())
"""Registered provider, with the interface of ir_measures: `provider.calc_aggregate(measures, qrels, run)`."""
