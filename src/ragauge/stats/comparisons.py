"""Settings and results of paired comparisons between systems on the same queries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

from ragauge.core.errors import UnknownName
from ragauge.core.findings import append_notes
from ragauge.core.record_types import TabularResult, json_form, record
from ragauge.core.run_dates import RunDate
from ragauge.core.settings import Above, AtLeast, AtMost, Below, OneOf, check_number, check_settings

if TYPE_CHECKING:
    import polars as pl


TESTS = ("t", "wilcoxon", "sign", "randomisation")
CORRECTIONS = ("holm", "bonferroni", "bh", "none")
INTERVAL_METHODS = ("bca", "percentile")
CORRECTION_FAMILIES = ("measure", "all")


@dataclass(frozen=True)
class ComparisonSettings:
    """Options for the comparison of systems."""

    test: Annotated[str, OneOf(TESTS)] = "t"
    """Test whose p-values are corrected: t (the default, after Urbano et al., SIGIR 2019), wilcoxon, sign,
    randomisation.
    """
    correction: Annotated[str, OneOf(CORRECTIONS)] = "holm"
    """Multiple-comparison correction: holm, bonferroni, bh (Benjamini-Hochberg), none."""
    family: Annotated[str, OneOf(CORRECTION_FAMILIES)] = "measure"
    """Comparisons that are corrected together: those of one `measure`, or `all`."""
    confidence: Annotated[float, AtLeast(0.5), Below(1)] = 0.95
    interval: Annotated[str, OneOf(INTERVAL_METHODS)] = "bca"
    """Bootstrap interval of a difference: bca (bias-corrected and accelerated), percentile."""
    rounds: Annotated[int, AtLeast(100), AtMost(1_000_000)] = 10_000
    """Number of resamples for intervals and for the randomisation test."""
    seed: Annotated[int, AtLeast(0)] = 0
    margin: Annotated[float, Above(0)] | None = None
    """Largest difference that does not matter, for the non-inferiority and equivalence tests."""
    detect: Annotated[float, Above(0)] | None = None
    """True difference for which the required number of queries is computed."""
    power: Annotated[float, Above(0), Below(1)] = 0.8
    lower_is_better: Sequence[str] = ()
    """Measures to treat as lower-is-better if their scores do not state a direction."""
    higher_is_better: Sequence[str] = ()
    """Measures to treat as higher-is-better if their scores do not state a direction."""

    def __post_init__(self) -> None:
        check_settings(self)
        check_number("power", self.power, Above(self.alpha), Below(1))

    @property
    def alpha(self) -> float:
        """Significance level of the tests: 1 - confidence."""
        return round(1 - self.confidence, 12)


class ComparisonOptions(TypedDict, total=False):
    """Options of `ragauge.compare`; see `ComparisonSettings`."""

    test: str | None
    correction: str | None
    family: str | None
    confidence: float | None
    interval: str | None
    rounds: int | None
    seed: int | None
    margin: float | None
    detect: float | None
    power: float | None
    lower_is_better: Sequence[str] | None
    higher_is_better: Sequence[str] | None


class ChangedQuery(NamedTuple):
    """Query on which the scores of system and baseline differ."""

    query: str
    baseline: float
    system: float
    difference: float


@dataclass(frozen=True)
class MarginTest:
    """P-values of the non-inferiority and equivalence tests for one margin."""

    margin: float
    p_noninferior: float
    """NaN if undecided: fewer than two queries, or fewer than 10 that differ by a measure whose range is unknown."""
    p_equivalent: float
    queries_needed: int | None = None
    """Number of queries that rule out the margin if none of them differs; None if the range is unknown."""


@json_form(derived=["flips"])
@dataclass(frozen=True)
class SeedDifferences:
    labels: Sequence[str]
    differences: Sequence[float]
    paired: bool
    """Whether seeds are matched: both systems have the same seeds, or only one has seeds. If False, all pairs of seeds
    are listed.
    """
    share: float = math.nan
    """Share of the variance of the mean difference that more seeds would remove; NaN if unknown."""

    @property
    def flips(self) -> bool:
        """Whether the sign of the difference depends on the seed."""
        return min(self.differences) < 0 < max(self.differences)


@json_form(
    derived=["percent", "stars"],
    flattened={"means": ("mean_baseline", "mean_system")},
)
@dataclass(frozen=True)
class Comparison(TabularResult, report="ragauge.reports.views:COMPARISON_REPORTER"):
    """Comparison of a system with a baseline by one measure, on the queries scored for both."""

    measure: str
    baseline: str
    system: str
    n: int
    """Number of queries."""
    means: tuple[float, float]
    """Mean scores of the baseline and of the system over these queries."""
    difference: float
    """Mean of the system minus mean of the baseline."""
    ci: tuple[float, float]
    """Bootstrap confidence interval of the difference."""
    p_t: float
    """P-value of the paired t-test; over queries and seeds if there are seeds. The other tests are over queries."""
    p_wilcoxon: float
    p_sign: float
    p_randomisation: float
    p_corrected: float
    """P-value of the chosen test, corrected over all comparisons of its family; decides significance."""
    effect: float
    """Cohen's d for pairs: mean difference divided by the standard deviation of the differences."""
    cliffs_delta: float
    """Cliff's delta: P(system score > baseline score) minus P(system score < baseline score)."""
    wins: int
    """Number of queries on which the system is better."""
    losses: int
    ties: int
    detectable: float
    """Smallest true difference that this number of queries detects with the requested power."""
    queries_needed: int | None = None
    """Number of queries needed to detect the difference `detect`."""
    lower_is_better: bool = False
    stratum: str = ""
    """`tag=value` if the comparison covers only the queries of one stratum."""
    moved: Sequence[ChangedQuery] = ()
    """All queries with different scores, sorted by the size of the difference."""
    margin: MarginTest | None = None
    seeds: SeedDifferences | None = None

    @property
    def stars(self) -> str:
        """Significance stars of `p_corrected`; empty if it is NaN."""
        return "" if math.isnan(self.p_corrected) else significance_stars(self.p_corrected)

    @property
    def percent(self) -> float:
        """Difference in percent of the baseline's mean; NaN if that mean is 0."""
        return 100 * self.difference / abs(self.means[0]) if self.means[0] else math.nan

    @property
    def better(self) -> bool:
        """Whether the system's mean is better than the baseline's."""
        return self.difference < 0 if self.lower_is_better else self.difference > 0

    def __repr__(self) -> str:
        stratum = f" in {self.stratum}" if self.stratum else ""
        return (
            f"{self.measure} {self.system} vs {self.baseline}{stratum}: {self.difference:+.4f} "
            f"[{self.ci[0]:+.4f}, {self.ci[1]:+.4f}] p={self.p_corrected:.3g} (n={self.n})"
        )


def significance_stars(p: float) -> str:
    """Return the stars for a p-value: *** < 0.001, ** < 0.01, * < 0.05, otherwise ns.

    >>> [significance_stars(p) for p in (0.0009, 0.009, 0.049, 0.05)]
    ['***', '**', '*', 'ns']
    """
    return "***" if p < 0.001 else "**" if p < 0.01 else "*" if p < 0.05 else "ns"


@record("ragauge-comparison", 1)
@json_form(renamed={"rows": "comparisons"})
@dataclass(frozen=True, eq=False)
class Comparisons(TabularResult, report="ragauge.comparison.report"):
    """Results of all comparisons of one call."""

    rows: Sequence[Comparison]
    method: ComparisonSettings
    baseline: str | None
    """Name of the baseline; None if all pairs of systems are compared."""
    systems: Sequence[str]
    strata: Sequence[Comparison] = ()
    """Comparisons per stratum; they are corrected separately from `rows`."""
    notes: Sequence[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """`{query: text}`, for the queries with a known text."""
    dataset: str = ""
    """Name of the dataset; empty if unknown."""
    convention: str = ""
    run_dates: Mapping[str, RunDate] = field(default_factory=dict)
    """When the results of each system were produced, if known."""
    tag: str = ""
    """Tag of the queries whose values are the strata; empty without strata, or if they have no tag."""

    @property
    def measures(self) -> list[str]:
        """Measures in order of first appearance."""
        return list(dict.fromkeys(row.measure for row in self.rows))

    def find(self, system: str, measure: str | None = None, baseline: str | None = None) -> Comparison:
        """Find the comparison of one system.

        `measure` defaults to the first measure, `baseline` to the first baseline. Raises `UnknownName` if there is
        none.
        """
        for row in self.rows:
            is_baseline = baseline is None or row.baseline == baseline
            if row.system == system and is_baseline and (measure is None or row.measure == measure):
                return row
        pair_names = [f"{row.system} against {row.baseline} by {row.measure}" for row in self.rows]
        raise UnknownName(
            "comparison", " ".join(filter(None, [system, measure])), pair_names, hint=f"available: {pair_names[0]}"
        )

    def is_significant(self, row: Comparison) -> bool:
        """Return whether a difference is significant: corrected p-value below alpha."""
        return row.p_corrected < self.method.alpha

    def to_polars(self) -> pl.DataFrame:
        """Convert to a data frame with one row per comparison, strata included."""
        import polars as pl

        return pl.DataFrame([comparison_fields(row) for row in (*self.rows, *self.strata)], infer_schema_length=None)

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return append_notes("\n".join(map(repr, self.rows)), self.notes)


def comparison_fields(row: Comparison) -> dict[str, float | int | str | None]:
    """Flatten a comparison into one record for CSV and JSON."""
    return {
        "measure": row.measure,
        "baseline": row.baseline,
        "system": row.system,
        "stratum": row.stratum,
        "n": row.n,
        "mean_baseline": row.means[0],
        "mean_system": row.means[1],
        "difference": row.difference,
        "percent": row.percent,
        "ci_low": row.ci[0],
        "ci_high": row.ci[1],
        "p_t": row.p_t,
        "p_wilcoxon": row.p_wilcoxon,
        "p_sign": row.p_sign,
        "p_randomisation": row.p_randomisation,
        "p_corrected": row.p_corrected,
        "stars": row.stars,
        "effect": row.effect,
        "cliffs_delta": row.cliffs_delta,
        "wins": row.wins,
        "losses": row.losses,
        "ties": row.ties,
        "detectable": row.detectable,
        "queries_needed": row.queries_needed,
        "p_noninferior": None if row.margin is None else row.margin.p_noninferior,
        "p_equivalent": None if row.margin is None else row.margin.p_equivalent,
        "sign_flips": None if row.seeds is None else row.seeds.flips,
        "seeds_share": None if row.seeds is None else row.seeds.share,
    }
