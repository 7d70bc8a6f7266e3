"""Registry of ranking measures. To add one, write its function and a row here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter, signature
from typing import Any

import numpy as np

from ragauge.core.records import Floats
from ragauge.measures import binary, diversity, graded, sets_and_pools
from ragauge.measures.judged_ranks import JudgedRanks

TREC_CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
GEOMETRIC_FLOOR = 0.00001
"""Minimum value of a query in a geometric mean; trec_eval's MIN_GEO_MEAN."""


def mean(values: Floats) -> float:
    """Compute the arithmetic mean."""
    return float(values.mean())


def total(values: Floats) -> float:
    """Compute the sum, for counts."""
    return float(values.sum())


def geometric_mean(values: Floats) -> float:
    """Compute the geometric mean of the values, each at least 0.00001.

    >>> round(geometric_mean(np.array([0.0, 1.0])), 6)
    0.003162
    """
    return float(np.exp(np.log(np.maximum(values, GEOMETRIC_FLOOR)).mean()))


@dataclass(frozen=True, eq=False)
class MeasureSpec:
    """Definition of a ranking measure."""

    name: str
    """Canonical name."""
    function: Callable[..., Floats]
    """Function from judged ranks to a value per query; `ragauge measures NAME` prints its docstring."""
    aliases: tuple[str, ...] = ()
    """Other accepted names, in lower case."""
    cutoff: str = ""
    """`rank` if a cutoff is required, `rank?` if it is optional, `level` for a recall level, empty for none."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Allowed values of options with a fixed set of values."""
    aggregate: Callable[[Floats], float] = mean
    """Function that aggregates the values of queries."""
    needs_relevant: bool = True
    """Whether the convention's `none` applies to queries without relevant documents."""
    needs_top: bool = False
    """Whether the measure needs the first documents, not only judged ranks."""
    needs_subtopics: bool = False
    """Whether the measure needs subtopic judgments."""
    keeps_missing: bool = False
    """Whether a query missing from the run keeps its value: only judgments are counted, or 0 would be the best value.
    """
    lower_is_better: bool = False
    """Whether lower values are better."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest possible value."""
    averages_ties: bool = False
    """Whether the measure is defined as a mean over the orders of equal scores."""
    trec: str = ""
    """Name in trec_eval; empty if trec_eval does not have the measure."""
    trec_cutoffs: tuple[float, ...] = ()
    """Cutoffs that trec_eval uses by default."""
    paper: str = ""
    """Name in papers; empty if it is the canonical name."""

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options and their defaults: the keyword-only parameters of the function."""
        parameters = signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is Parameter.KEYWORD_ONLY}

    def __call__(self, judged: JudgedRanks, cutoff: float | None, options: Mapping[str, Any]) -> Floats:
        """Compute one value per query."""
        return self.function(judged, cutoff, **options) if self.cutoff else self.function(judged, **options)


COUNT_BOUNDS, UNBOUNDED = (0.0, math.inf), (-math.inf, math.inf)
GAIN_CHOICES = ("linear", "exp", "binary", "…:…")
RECALL_OF_CHOICES = {"of": ("relevant", "capped", "k", "eps")}

MEASURE_REGISTRY: Mapping[str, MeasureSpec] = {
    spec.name: spec
    for spec in (
        # In the order in which trec_eval prints, then the measures that only ragauge has.
        MeasureSpec(
            "num_q",
            sets_and_pools.num_q,
            ("numq",),
            aggregate=total,
            needs_relevant=False,
            keeps_missing=True,
            bounds=COUNT_BOUNDS,
        ),
        MeasureSpec(
            "num_ret",
            sets_and_pools.num_ret,
            ("numret",),
            aggregate=total,
            needs_relevant=False,
            trec="num_ret",
            bounds=COUNT_BOUNDS,
        ),
        MeasureSpec(
            "num_rel",
            sets_and_pools.num_rel,
            ("numrel",),
            aggregate=total,
            needs_relevant=False,
            keeps_missing=True,
            trec="num_rel",
            bounds=COUNT_BOUNDS,
        ),
        MeasureSpec(
            "num_rel_ret",
            sets_and_pools.num_rel_ret,
            ("numrelret",),
            "rank?",
            aggregate=total,
            needs_relevant=False,
            trec="num_rel_ret",
            bounds=COUNT_BOUNDS,
        ),
        MeasureSpec(
            "map",
            binary.average_precision,
            ("ap", "map_cut", "average_precision", "mean_average_precision"),
            "rank?",
            {"of": ("relevant", "capped", "found")},
            averages_ties=True,
            trec="map",
            paper="MAP",
        ),
        MeasureSpec(
            "gm_map",
            binary.average_precision,
            ("gmap",),
            "rank?",
            aggregate=geometric_mean,
            trec="gm_map",
            paper="GMAP",
        ),
        MeasureSpec("r_precision", binary.r_precision, ("rprec", "rp"), trec="Rprec", paper="R-Prec"),
        MeasureSpec("bpref", sets_and_pools.bpref, trec="bpref"),
        MeasureSpec(
            "mrr",
            binary.reciprocal_rank,
            ("rr", "recip_rank", "reciprocal_rank"),
            "rank?",
            averages_ties=True,
            trec="recip_rank",
            paper="MRR",
        ),
        MeasureSpec(
            "iprec_at_recall",
            binary.interpolated_precision,
            ("iprec",),
            "level",
            {"points": ("round", "up")},
            trec="iprec_at_recall",
            trec_cutoffs=binary.ELEVEN_RECALL_LEVELS,
        ),
        MeasureSpec(
            "precision",
            binary.precision,
            ("p",),
            "rank?",
            {"of": ("k", "retrieved")},
            averages_ties=True,
            trec="P",
            trec_cutoffs=TREC_CUTOFFS,
            paper="P",
        ),
        MeasureSpec(
            "recall",
            binary.recall,
            ("r",),
            "rank?",
            RECALL_OF_CHOICES,
            averages_ties=True,
            trec="recall",
            trec_cutoffs=TREC_CUTOFFS,
            paper="Recall",
        ),
        MeasureSpec("infap", sets_and_pools.inferred_ap, ("inf_ap",), trec="infAP", bounds=COUNT_BOUNDS, paper="infAP"),
        MeasureSpec("gm_bpref", sets_and_pools.bpref, aggregate=geometric_mean, trec="gm_bpref"),
        MeasureSpec(
            "rprec_mult",
            binary.r_precision_mult,
            (),
            "level",
            trec="Rprec_mult",
            trec_cutoffs=(0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0),
        ),
        MeasureSpec("utility", sets_and_pools.utility, needs_relevant=False, trec="utility", bounds=UNBOUNDED),
        MeasureSpec(
            "11pt_avg",
            binary.eleven_point_average,
            ("11_pt_avg",),
            choices={"points": ("round", "up")},
            trec="11pt_avg",
        ),
        MeasureSpec("bing", graded.binary_gain, trec="binG"),
        MeasureSpec("g", graded.normalised_gain, trec="G"),
        MeasureSpec(
            "ndcg",
            graded.ndcg,
            ("ndcg_cut", "normalized_dcg"),
            "rank?",
            {"gain": GAIN_CHOICES},
            averages_ties=True,
            trec="ndcg",
            paper="nDCG",
        ),
        MeasureSpec("ndcg_rel", graded.ndcg_at_relevant, choices={"gain": GAIN_CHOICES}, trec="ndcg_rel"),
        MeasureSpec("rndcg", graded.ndcg_at_levels, choices={"gain": GAIN_CHOICES}, trec="Rndcg"),
        MeasureSpec(
            "relative_precision",
            binary.relative_precision,
            ("relative_p",),
            "rank",
            averages_ties=True,
            trec="relative_P",
            trec_cutoffs=TREC_CUTOFFS,
        ),
        MeasureSpec(
            "hit_rate",
            binary.hit_rate,
            ("hit", "success", "hitrate"),
            "rank?",
            averages_ties=True,
            trec="success",
            trec_cutoffs=(1, 5, 10),
            paper="Hit rate",
        ),
        MeasureSpec("set_precision", sets_and_pools.set_precision, ("set_p", "setp"), trec="set_P"),
        MeasureSpec(
            "set_relative_precision", sets_and_pools.set_relative_precision, ("set_relative_p",), trec="set_relative_P"
        ),
        MeasureSpec("set_recall", sets_and_pools.set_recall, ("set_r", "setr"), trec="set_recall"),
        MeasureSpec("set_map", sets_and_pools.set_map, ("setap",), trec="set_map"),
        MeasureSpec("set_f", sets_and_pools.set_f, ("setf",), trec="set_F"),
        MeasureSpec(
            "num_nonrel_judged_ret",
            sets_and_pools.judged_nonrelevant_retrieved,
            aggregate=total,
            needs_relevant=False,
            lower_is_better=True,
            trec="num_nonrel_judged_ret",
            bounds=COUNT_BOUNDS,
        ),
        MeasureSpec(
            "rbp",
            graded.rank_biased_precision,
            (),
            "rank?",
            {"gain": ("scaled", "binary", "linear", "exp")},
            needs_relevant=False,
            trec="rbp",
            paper="RBP",
        ),
        MeasureSpec("rbp_resid", graded.rbp_residual, needs_relevant=False, lower_is_better=True, trec="rbp_resid"),
        MeasureSpec(
            "unjudged",
            sets_and_pools.unjudged_share,
            ("unj",),
            "rank",
            needs_relevant=False,
            lower_is_better=True,
            trec="unj",
            trec_cutoffs=(5, 10, 20),
            paper="Unjudged",
        ),
        MeasureSpec("yaap", binary.yaap, needs_relevant=False, bounds=UNBOUNDED),
        MeasureSpec(
            "hits",
            sets_and_pools.hits,
            (),
            "rank?",
            needs_relevant=False,
            averages_ties=True,
            bounds=COUNT_BOUNDS,
            paper="Hits",
        ),
        MeasureSpec(
            "f1",
            binary.f1,
            ("f", "f_1", "f1_score"),
            "rank?",
            {"of": ("queries", "means"), "precision_of": ("k", "retrieved"), "recall_of": ("relevant", "capped")},
            averages_ties=True,
            paper="F1",
        ),
        MeasureSpec(
            "dcg",
            graded.dcg,
            (),
            "rank?",
            {"gain": GAIN_CHOICES},
            needs_relevant=False,
            averages_ties=True,
            bounds=COUNT_BOUNDS,
            paper="DCG",
        ),
        MeasureSpec(
            "ideal_dcg",
            graded.ideal_dcg,
            ("idcg",),
            "rank?",
            {"gain": GAIN_CHOICES},
            needs_relevant=False,
            keeps_missing=True,
            bounds=COUNT_BOUNDS,
        ),
        MeasureSpec("err", graded.expected_reciprocal_rank, (), "rank?", paper="ERR"),
        MeasureSpec("judged", sets_and_pools.judged_share, (), "rank", needs_relevant=False, paper="Judged"),
        MeasureSpec(
            "dr",
            diversity.deduplicated_recall,
            ("deduplicated_recall", "d_r"),
            "rank",
            {"targets": ("map", "identity"), "dedupe": ("after", "before")},
            needs_top=True,
        ),
        MeasureSpec(
            "diversity_count",
            diversity.diversity_count,
            ("diversity",),
            "rank",
            {"targets": ("map", "identity")},
            needs_relevant=False,
            needs_top=True,
            bounds=COUNT_BOUNDS,
        ),
        MeasureSpec("unique_ratio", diversity.unique_ratio, (), "rank", needs_relevant=False, needs_top=True),
        MeasureSpec(
            "subtopic_recall",
            diversity.subtopic_recall,
            ("strec", "strecall", "st_recall"),
            "rank",
            needs_top=True,
            needs_subtopics=True,
            paper="S-Recall",
        ),
        MeasureSpec(
            "alpha_ndcg",
            diversity.alpha_ndcg,
            ("andcg",),
            "rank",
            needs_top=True,
            needs_subtopics=True,
            paper="alpha-nDCG",
        ),
        MeasureSpec(
            "err_ia", diversity.err_ia, ("erria",), "rank", needs_top=True, needs_subtopics=True, paper="ERR-IA"
        ),
        MeasureSpec(
            "relative_distance_error",
            binary.relative_distance_error,
            ("rde",),
            "rank",
            needs_relevant=False,
            lower_is_better=True,
            needs_top=True,
            keeps_missing=True,
            bounds=COUNT_BOUNDS,
        ),
    )
}
