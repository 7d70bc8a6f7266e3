"""Scores of several runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ragauge.core.errors import BadInput
from ragauge.core.findings import append_notes, merge_notes
from ragauge.core.record_types import TabularResult
from ragauge.core.records import MeasureDict, Scores

if TYPE_CHECKING:
    import polars as pl


class ScoresByRun(TabularResult, Mapping[str, Scores], report="ragauge.evaluation.scores_views"):
    """Scores of several runs by name, with the same judgments, measures and convention.

    It has the attributes of `Scores`; those that differ between runs are mappings from the name of the run. `values`
    is the method of a mapping.
    """

    def __init__(self, scores: Mapping[str, Scores]) -> None:
        if not scores:
            raise BadInput("no runs to score", hint='pass {"bm25": "bm25.run", "dense": "dense.run"}')
        self._scores = dict(scores)
        self._first = next(iter(self._scores.values()))

    def __getitem__(self, run: str) -> Scores:
        return self._scores[run]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    @property
    def convention(self) -> str:
        """Convention with which the scores were computed."""
        return self._first.convention

    @property
    def queries(self) -> list[str]:
        """All judged queries, in the order of the judgments."""
        return self._first.queries

    @property
    def measures(self) -> list[str]:
        """Canonical names of the measures."""
        return self._first.measures

    @property
    def lower_is_better(self) -> frozenset[str]:
        """The lower-is-better measures."""
        return self._first.lower_is_better

    @property
    def means(self) -> dict[str, MeasureDict[float]]:
        """Means by run and measure."""
        return {run: scores.means for run, scores in self.items()}

    @property
    def n(self) -> dict[str, MeasureDict[int]]:
        """Number of scored queries by run and measure."""
        return {run: scores.n for run, scores in self.items()}

    @property
    def per_query(self) -> dict[str, MeasureDict[dict[str, float]]]:
        """`{run: {measure: {query: score}}}`, scored queries only."""
        return {run: scores.per_query for run, scores in self.items()}

    @property
    def unscored(self) -> dict[str, MeasureDict[Mapping[str, str]]]:
        """Unscored queries by run and measure, each with its reason."""
        return {run: scores.unscored for run, scores in self.items()}

    @property
    def failures(self) -> dict[str, Mapping[str, str]]:
        """`{run: {query: error}}` of the judged queries that a system failed on."""
        return {run: scores.failures for run, scores in self.items()}

    @property
    def notes(self) -> list[str]:
        """Limitations of the scores. What limits some of the runs starts with their names."""
        return merge_notes(note for scores in self.values() for note in scores.notes)

    def is_lower_better(self, measure: str) -> bool | None:
        """Return whether lower values of a measure are better; None if it is not stated."""
        return self._first.is_lower_better(measure)

    def to_polars(self) -> pl.DataFrame:
        """Convert to a polars frame with one row per run, query and measure."""
        import polars as pl

        return pl.concat(scores.to_polars().with_columns(pl.lit(run).alias("run")) for run, scores in self.items())

    def __repr__(self) -> str:
        scores = ", ".join(scores._describe() for scores in self._scores.values())
        return append_notes(f"ScoresByRun({scores})", self.notes)
