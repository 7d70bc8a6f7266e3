"""Result of `evaluate` for files: mean scores of runs, and the scores of single queries if requested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.findings import merge_notes
from ragauge.core.record_types import TabularResult, json_form, record
from ragauge.core.records import Scores


@json_form(optional=("reasons", "per_query", "trials"))
@dataclass(frozen=True)
class MeasureScores:
    """Scores of one run by one measure."""

    mean: float
    """Mean over the scored queries (a sum for counts, a geometric mean for `gm_` measures); NaN if there is none."""
    n: int
    """Number of scored queries."""
    unscored: int
    """Number of judged queries without a score."""
    reasons: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Reason of each query without a score."""
    per_query: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    """Score of each scored query, if requested."""
    trials: Sequence[float] = ()
    """Mean of each trial, if the rankings differ between trials; the scores are then means over trials."""


@record("ragauge-scores", 1)
@json_form(optional=("queries", "lower_is_better", "direction_unstated"))
@dataclass(frozen=True, eq=False)
class EvaluatedRuns(TabularResult, report="ragauge.evaluation.report"):
    """Scores of one or several runs with the same judgments."""

    convention: str
    """Convention with which the scores were computed."""
    runs: Mapping[str, Mapping[str, MeasureScores]]
    """`{run: {measure: scores}}`."""
    queries: Sequence[str] = ()
    """All judged queries, if the scores of single queries were requested."""
    lower_is_better: Sequence[str] = ()
    """The lower-is-better measures."""
    direction_unstated: Sequence[str] = ()
    """Measures whose direction is not stated."""
    notes: Sequence[str] = ()
    """Limitations of the scores."""
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """Date and version."""

    @property
    def measures(self) -> list[str]:
        """Canonical names of the measures."""
        return list(dict.fromkeys(measure for scores in self.runs.values() for measure in scores))

    @property
    def n_queries(self) -> int:
        """Number of judged queries."""
        first = next(iter(next(iter(self.runs.values())).values()))
        return first.n + first.unscored

    def is_lower_better(self, measure: str) -> bool | None:
        """Return whether lower values of a measure are better; None if it is not stated."""
        return None if measure in self.direction_unstated else measure in self.lower_is_better


def collect_scores(
    scores: Mapping[str, Scores], *, per_query: bool = False, provenance: Mapping[str, Any] = EMPTY_MAPPING
) -> EvaluatedRuns:
    """Collect the scores of runs by name, with those of single queries if requested."""
    first = next(iter(scores.values()))
    runs = {
        name: {
            measure: MeasureScores(
                run_scores.means[measure],
                run_scores.n[measure],
                len(run_scores.unscored[measure]),
                dict(run_scores.unscored[measure]),
                run_scores.per_query[measure] if per_query else EMPTY_MAPPING,
                run_scores.trial_means.get(measure, ()),
            )
            for measure in run_scores.measures
        }
        for name, run_scores in scores.items()
    }
    return EvaluatedRuns(
        first.convention,
        runs,
        first.queries if per_query else (),
        sorted({measure for run_scores in scores.values() for measure in run_scores.lower_is_better}),
        sorted({measure for run_scores in scores.values() for measure in run_scores.direction_unstated}),
        merge_notes(note for run_scores in scores.values() for note in run_scores.notes),
        provenance,
    )
