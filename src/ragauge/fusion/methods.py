"""Registry of fusion methods. To add one, write its function and a row here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ragauge.core.errors import BadInput, UnknownName
from ragauge.fusion import trained_methods, untrained_methods
from ragauge.fusion.normalisation import Ranking
from ragauge.fusion.trained_methods import Row


@dataclass(frozen=True)
class Setting:
    """Parameter of a fusion method."""

    default: Any
    must: str
    """Condition on the value, as text for error messages."""
    holds: Callable[[Any], bool]
    """Predicate that checks the condition."""
    grid: tuple[Any, ...] = ()
    """Values that tuning tries in addition to the default."""
    trains: bool = False
    """Whether the parameter is for training only."""
    shares: bool = False
    """Whether the parameter is weights per run, which tuning draws from a simplex."""


def _number(value: Any, *, whole: bool = False) -> bool:
    try:
        return math.isfinite(value) and not isinstance(value, bool) and (not whole or value == int(value))
    except (TypeError, OverflowError):
        return False


def _weights(value: Any) -> bool:
    try:
        return all(map(_number, value)) and min(value) >= 0 and max(value) > 0
    except (TypeError, ValueError):
        return value is None


MUST_WEIGH = "one number of 0 or more for each run, not all 0"
WEIGHTS = {"weights": Setting(None, MUST_WEIGH, _weights, shares=True)}
PERHAPS = {"weights": Setting(None, MUST_WEIGH, _weights)}
K = {
    "k": Setting(
        60, "a number of 0 or more", lambda v: _number(v) and v >= 0, (0, 1, 2, 5, 10, 20, 30, 40, 80, 100, 200)
    )
}
PHI = {
    "phi": Setting(
        0.8,
        "a number from 0 to less than 1",
        lambda v: _number(v) and 0 <= v < 1,
        (0.3, 0.5, 0.6, 0.7, 0.85, 0.9, 0.95, 0.98, 0.99),
    )
}
GAMMA = {
    "gamma": Setting(
        0.5,
        "a number from -9 to 9",
        lambda v: _number(v) and -9 <= v <= 9,
        (-1.0, -0.5, -0.25, 0.0, 0.25, 0.75, 1.0, 1.5, 2.0),
    )
}
SIGMA = {
    "sigma": Setting(
        0.01, "a number from 0 to 1", lambda v: _number(v) and 0 <= v <= 1, (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
    )
}
SEGMENTS = {
    "n_segments": Setting(
        25, "a whole number of 1 or more", lambda v: _number(v, whole=True) and v >= 1, (5, 10, 50), trains=True
    )
}
WINDOW = {"w": Setting(5, "a whole number of 0 or more", lambda v: _number(v, whole=True) and v >= 0, (1, 2, 10, 20))}

FOX = "Fox & Shaw, TREC-2 1993"
MOURAO = "Mourão et al., Comput. Med. Imaging Graph. 2015"
ASLAM = "Aslam & Montague, SIGIR 2001"
MONTAGUE = "Montague & Aslam, CIKM 2002"
WU = "Wu & Crestani, CIKM 2002"


@dataclass(frozen=True, eq=False)
class Method:
    """Fusion method with its function, description and parameters."""

    name: str
    function: Callable[..., Ranking]
    """Function from the normalised rankings of a query to a score per document."""
    says: str
    """One-line description."""
    paper: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    sees: Literal["ranks", "scores", "both"] = "ranks"
    """Input that the method uses. Scores need a common scale; without ranks, the rankings need not be sorted."""
    training: Callable[..., Row] | None = None
    """Function from the ranks of relevant documents to the learned values of a system; None if nothing is learned."""
    aliases: tuple[str, ...] = ()

    def settled(self, params: Mapping[str, Any], runs: int, *, trains: bool = False) -> dict[str, Any]:
        """Check parameters and add defaults.

        Returns those of fusion, or of training if `trains`.
        """
        mine = {name: one for name, one in self.settings.items() if one.trains == trains}
        settled = {name: one.default for name, one in mine.items()}
        for name, value in params.items():
            if name not in mine:
                raise BadInput(f"{self.name} has no parameter `{name}`{self._where(name)}", hint=self._has(mine))
            if not mine[name].holds(value):
                raise BadInput(f"`{name}` of {self.name} must be {mine[name].must}, not {value!r}")
            if name == "weights" and value is not None:
                if len(value) != runs:
                    raise BadInput(f"{len(value)} weights are given for {runs} runs", hint="one for each, in order")
                settled[name] = tuple(map(float, value))
            else:
                settled[name] = int(value) if isinstance(mine[name].default, int) and value == int(value) else value
        return settled

    def _where(self, name: str) -> str:
        elsewhere = "training" if name in self.settings and self.settings[name].trains else "fusing"
        return f" here: it belongs to {elsewhere}" if name in self.settings else ""

    def _has(self, settings: Mapping[str, Setting]) -> str:
        return f"it has {', '.join(settings)}" if settings else "it has none"


METHODS = {
    row.name: row
    for row in (
        Method("rrf", untrained_methods.rrf, "sum of 1 / (k + rank)", "Cormack et al., SIGIR 2009", K | PERHAPS),
        Method(
            "wsum",
            untrained_methods.wsum,
            "sum of weighted scores",
            "Vogt & Cottrell, Inf. Retr. 1999",
            WEIGHTS,
            sees="scores",
            aliases=("weighted_sum",),
        ),
        Method("sum", untrained_methods.comb_sum, "sum of scores", FOX, sees="scores"),
        Method("mnz", untrained_methods.comb_mnz, "sum x number of runs that have it", FOX, sees="scores"),
        Method("anz", untrained_methods.comb_anz, "mean over the runs that have it", FOX, sees="scores"),
        Method("max", untrained_methods.comb_max, "greatest score", FOX, sees="scores"),
        Method("min", untrained_methods.comb_min, "least score", FOX, sees="scores"),
        Method("med", untrained_methods.comb_med, "median score", FOX, sees="scores"),
        Method(
            "gmnz", untrained_methods.comb_gmnz, "sum x (number of runs)^gamma", "Lee, SIGIR 1997", GAMMA, sees="scores"
        ),
        Method("wmnz", untrained_methods.wmnz, "sum x weights of the runs that have it", WU, WEIGHTS, sees="scores"),
        Method("mixed", untrained_methods.mixed, "weighted sum x root of number of runs", WU, WEIGHTS, sees="scores"),
        Method("isr", untrained_methods.isr, "sum of 1 / rank^2 x number of runs", MOURAO),
        Method("log_isr", untrained_methods.log_isr, "sum of 1 / rank^2 x log(number of runs)", MOURAO),
        Method("logn_isr", untrained_methods.logn_isr, "sum of 1 / rank^2 x log(number + sigma)", MOURAO, SIGMA),
        Method("rbc", untrained_methods.rbc, "sum of (1 - phi) phi^(rank - 1)", "Bailey et al., SIGIR 2017", PHI),
        Method("bordafuse", untrained_methods.bordafuse, "Borda points", ASLAM, aliases=("borda",)),
        Method(
            "w_bordafuse",
            untrained_methods.w_bordafuse,
            "weighted Borda points",
            ASLAM,
            WEIGHTS,
            aliases=("weighted_bordafuse",),
        ),
        Method("condorcet", untrained_methods.condorcet, "documents beaten by a majority of runs", MONTAGUE),
        Method(
            "w_condorcet",
            untrained_methods.w_condorcet,
            "documents beaten by a weighted majority",
            MONTAGUE,
            WEIGHTS,
            aliases=("weighted_condorcet",),
        ),
        Method(
            "bayesfuse",
            trained_methods.bayesfuse,
            "learned log odds of the rank",
            ASLAM,
            training=trained_methods.log_odds,
        ),
        Method(
            "mapfuse",
            trained_methods.mapfuse,
            "learned MAP of the run / rank",
            "Lillis et al., SIGIR 2010",
            training=trained_methods.mean_average_precision,
        ),
        Method(
            "posfuse",
            trained_methods.posfuse,
            "learned probability of the rank",
            "Lillis et al., SIGIR 2010",
            training=trained_methods.position_probabilities,
        ),
        Method(
            "probfuse",
            trained_methods.probfuse,
            "learned probability of the segment / its number",
            "Lillis et al., SIGIR 2006",
            SEGMENTS,
            training=trained_methods.segment_probabilities,
        ),
        Method(
            "segfuse",
            trained_methods.segfuse,
            "learned probability of the segment x (1 + score)",
            "Shokouhi, ECIR 2007",
            sees="both",
            training=trained_methods.doubling_probabilities,
        ),
        Method(
            "slidefuse",
            trained_methods.slidefuse,
            "learned probability, mean of w ranks either side",
            "Lillis et al., ECIR 2008",
            WINDOW,
            training=trained_methods.position_probabilities,
        ),
    )
}
"""Fusion methods by name; the names are those of ranx."""

_NAMES: dict[str, Method] = METHODS | {
    alias: row
    for row in METHODS.values()
    for alias in (*row.aliases, f"comb_{row.name}", f"comb{row.name}")
    if not alias.startswith("comb") or row.function.__name__.startswith("comb_")
}


def find_method(name: str) -> Method:
    """Find a method by any of its names: `mnz`, `comb_mnz` and `CombMNZ` are the same."""
    found = METHODS.get(name) or _NAMES.get(name.strip().lower().replace("-", "_"))
    if found is None:
        raise UnknownName("fusion method", name, _NAMES, hint="`ragauge fuse --list` shows them all")
    return found


def default_norm(method: str) -> str:
    """Return the default normalisation of a method.

    It is `min-max` for methods that use scores, otherwise `none`.
    """
    return "min-max" if find_method(method).sees != "ranks" else "none"


def simplex(runs: int, most: int = 100) -> list[tuple[float, ...]]:
    """List weights for n runs that sum to 1, most even first.

    Steps are 0.1, or larger to give at most `most` combinations (the even weights come in addition).

    >>> simplex(2)[:3], len(simplex(2)), len(simplex(5))
    ([(0.5, 0.5), (0.4, 0.6), (0.6, 0.4)], 11, 71)
    """
    steps = max((s for s in range(1, 11) if math.comb(s + runs - 1, runs - 1) <= most), default=1)
    even = 1 / runs
    found = {(even,) * runs: None} | {tuple(part / steps for part in parts): None for parts in _parts(steps, runs)}

    def unevenness(weights: Sequence[float]) -> float:
        return round(math.fsum((w - even) ** 2 for w in weights), 9)

    return sorted(found, key=lambda weights: (unevenness(weights), weights))


def _parts(total: int, runs: int) -> list[tuple[int, ...]]:
    if runs == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total + 1) for rest in _parts(total - first, runs - 1)]
