"""More nouns: two systems on the same queries, how they differ, and how sure one can be of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ragauge.answer_dates import AnswerDate
from ragauge.errors import BadInput, UnknownName

if TYPE_CHECKING:
    import polars as pl

TESTS = ("t", "wilcoxon", "sign", "randomisation")
CORRECTIONS = ("holm", "bonferroni", "bh", "none")
INTERVALS = ("bca", "percentile")
FAMILIES = ("measure", "all")


@dataclass(frozen=True)
class Method:
    """How systems are compared; the defaults are what most people want."""

    test: str = "t"
    """Whose p-values are corrected: t (none is better: Urbano et al., SIGIR 2019), wilcoxon, sign, randomisation."""
    correction: str = "holm"
    """holm, bonferroni, bh (Benjamini and Hochberg), none."""
    family: str = "measure"
    """Over which comparisons it goes: each measure's apart, as one reads a column; or all of them."""
    confidence: float = 0.95
    interval: str = "bca"
    """The bootstrap interval of a difference: bca (bias-corrected and accelerated), percentile."""
    rounds: int = 10_000
    """How many resamples, for intervals and for the randomisation test."""
    seed: int = 0
    margin: float | None = None
    """A difference that does not matter: for non-inferiority and equivalence."""
    detect: float | None = None
    """A difference to be found: how many queries would that need?"""
    power: float = 0.8
    lower_is_better: Sequence[str] = ()
    """Measures whose scores do not state that lower values are better."""
    higher_is_better: Sequence[str] = ()
    """Measures whose scores do not state that higher values are better."""

    def __post_init__(self) -> None:
        choices = {"test": TESTS, "correction": CORRECTIONS, "interval": INTERVALS, "family": FAMILIES}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UnknownName(name, str(getattr(self, name)), known, hint=f"there are {', '.join(known)}")
        if not 0.5 <= self.confidence < 1:
            raise BadInput(f"the confidence is {self.confidence:g}, not between 0.5 and 1", hint="0.95")
        if not 100 <= self.rounds <= 1_000_000:
            raise BadInput(f"{self.rounds} rounds are not between 100 and a million", hint="10000")
        if self.seed < 0:
            raise BadInput(f"the seed is {self.seed}, not at least 0")
        for name in ("margin", "detect"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise BadInput(f"`{name}` is {value:g}, not above 0")
        if not self.alpha < self.power < 1:
            raise BadInput(f"the power is {self.power:g}, not between {self.alpha:g} and 1", hint="0.8")

    @property
    def alpha(self) -> float:
        """The level of the tests: what the confidence leaves."""
        return round(1 - self.confidence, 12)


class Moved(NamedTuple):
    """A query on which the two differ."""

    query: str
    baseline: float
    system: float
    difference: float


@dataclass(frozen=True)
class Margin:
    """Whether a system is no worse than the baseline by more than a margin, and whether it is no better either."""

    margin: float
    p_noninferior: float
    p_equivalent: float


@dataclass(frozen=True)
class Seeds:
    """The same comparison seed by seed."""

    labels: Sequence[str]
    differences: Sequence[float]
    paired: bool
    """Whether both systems have these seeds, or one of them has none; otherwise every pair of seeds is here."""
    share: float = math.nan
    """The part of the variance of the mean difference that more seeds would take away; NaN where it is not known."""

    @property
    def flips(self) -> bool:
        """Whether the sign of the difference depends on the seed."""
        return min(self.differences) < 0 < max(self.differences)


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline by one measure, on the queries that both have a value for."""

    measure: str
    baseline: str
    system: str
    n: int
    """How many queries."""
    means: tuple[float, float]
    """The baseline's and the system's, over these queries."""
    difference: float
    """The system's mean minus the baseline's."""
    ci: tuple[float, float]
    """A bootstrap interval of the difference."""
    p_t: float
    """Of the paired t-test; over queries and seeds where there are seeds. The other tests are over queries."""
    p_wilcoxon: float
    p_sign: float
    p_randomisation: float
    p_corrected: float
    """That of the chosen test, corrected for all comparisons of its family: the one to decide by."""
    effect: float
    """Cohen's d for pairs: the mean difference over the deviation of the differences."""
    cliffs_delta: float
    """The chance that a value of the system is above one of the baseline, minus that it is below."""
    wins: int
    """Queries on which the system is better."""
    losses: int
    ties: int
    detectable: float
    """The smallest true difference that so many queries find with the asked-for power."""
    needed: int | None = None
    """How many queries the difference to be detected would need."""
    lower_is_better: bool = False
    stratum: str = ""
    """`tag=value` where only some queries are looked at."""
    moved: Sequence[Moved] = ()
    """All queries that differ, by how much they do."""
    margin: Margin | None = None
    seeds: Seeds | None = None

    @property
    def stars(self) -> str:
        """Of the p-value to decide by: *** below 0.001, ** below 0.01, * below 0.05, ns otherwise; none without one."""
        return "" if math.isnan(self.p_corrected) else stars(self.p_corrected)

    @property
    def percent(self) -> float:
        """The difference in percent of the baseline's mean; NaN where that is 0."""
        return 100 * self.difference / abs(self.means[0]) if self.means[0] else math.nan

    @property
    def better(self) -> bool:
        """Whether the system's mean is the better one."""
        return self.difference < 0 if self.lower_is_better else self.difference > 0


def stars(p: float) -> str:
    """How many stars a p-value has.

    >>> [stars(p) for p in (0.0009, 0.009, 0.049, 0.05)]
    ['***', '**', '*', 'ns']
    """
    return "***" if p < 0.001 else "**" if p < 0.01 else "*" if p < 0.05 else "ns"


@dataclass(frozen=True, eq=False)
class Comparisons:
    """All comparisons that were asked for together."""

    rows: Sequence[Comparison]
    method: Method
    baseline: str | None
    """None where every system is compared with every other."""
    systems: Sequence[str]
    strata: Sequence[Comparison] = ()
    """The same in parts of the queries; a family of their own."""
    notes: Sequence[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """`{query: text}`, where it is known."""
    dataset: str = ""
    """What the queries are of, where it is known."""
    convention: str = ""
    answers: Mapping[str, AnswerDate] = field(default_factory=dict)
    """By system, when its answers were made, as far as that is known."""

    @property
    def measures(self) -> list[str]:
        """The measures, in order."""
        return list(dict.fromkeys(row.measure for row in self.rows))

    def find(self, system: str, measure: str | None = None, baseline: str | None = None) -> Comparison:
        """The comparison of one system; by the first measure and with the baseline, unless others are named."""
        for row in self.rows:
            against = baseline is None or row.baseline == baseline
            if row.system == system and against and (measure is None or row.measure == measure):
                return row
        known = [f"{row.system} against {row.baseline} by {row.measure}" for row in self.rows]
        raise UnknownName("comparison", " ".join(filter(None, [system, measure])), known, hint=f"there is {known[0]}")

    def sure(self, row: Comparison) -> bool:
        """Whether a difference is more than chance would give, at the level of these comparisons."""
        return row.p_corrected < self.method.alpha

    def to_polars(self) -> pl.DataFrame:
        """A row for each comparison, strata included."""
        import polars as pl

        return pl.DataFrame([figures(row) for row in (*self.rows, *self.strata)], infer_schema_length=None)

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        lines = [
            f"{row.measure} {row.system} vs {row.baseline}: {row.difference:+.4f} "
            f"[{row.ci[0]:+.4f}, {row.ci[1]:+.4f}] p={row.p_corrected:.3g} (n={row.n})"
            for row in self.rows
        ]
        return "\n".join(lines)


def figures(row: Comparison) -> dict[str, float | int | str | None]:
    """The figures of a comparison, flat."""
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
        "queries_needed": row.needed,
        "p_noninferior": None if row.margin is None else row.margin.p_noninferior,
        "p_equivalent": None if row.margin is None else row.margin.p_equivalent,
        "sign_flips": None if row.seeds is None else row.seeds.flips,
        "seeds_share": None if row.seeds is None else row.seeds.share,
    }
