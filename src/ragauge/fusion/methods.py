"""Registry of fusion methods. To add one, write its function and a row here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ragauge.core.errors import BadInput, UnknownName
from ragauge.fusion import trained_methods, untrained_methods
from ragauge.fusion.normalisation import Ranking
from ragauge.fusion.trained_methods import LearnedValues


@dataclass(frozen=True)
class MethodParameter:
    default: Any
    requirement: str
    """Condition on the value, as text for error messages."""
    is_valid: Callable[[Any], bool]
    """Predicate that checks the condition."""
    grid: tuple[Any, ...] = ()
    """Values that tuning tries in addition to the default."""
    is_training_only: bool = False
    """Whether the parameter is for training only."""
    is_weights: bool = False
    """Whether the parameter is weights per run, which tuning draws from a simplex."""


def _is_number(value: Any, *, must_be_whole: bool = False) -> bool:
    try:
        return math.isfinite(value) and not isinstance(value, bool) and (not must_be_whole or value == int(value))
    except (TypeError, OverflowError):
        return False


def _is_weight_list(value: Any) -> bool:
    try:
        return all(map(_is_number, value)) and min(value) >= 0 and max(value) > 0
    except (TypeError, ValueError):
        return value is None


WEIGHTS_CONDITION = "one number per run, each at least 0 and not all 0"
TUNABLE_WEIGHTS = {"weights": MethodParameter(None, WEIGHTS_CONDITION, _is_weight_list, is_weights=True)}
OPTIONAL_WEIGHTS = {"weights": MethodParameter(None, WEIGHTS_CONDITION, _is_weight_list)}
RRF_K = {
    "k": MethodParameter(
        60, "a number of at least 0", lambda v: _is_number(v) and v >= 0, (0, 1, 2, 5, 10, 20, 30, 40, 80, 100, 200)
    )
}
RBC_PHI = {
    "phi": MethodParameter(
        0.8,
        "a number from 0 to less than 1",
        lambda v: _is_number(v) and 0 <= v < 1,
        (0.3, 0.5, 0.6, 0.7, 0.85, 0.9, 0.95, 0.98, 0.99),
    )
}
GMNZ_GAMMA = {
    "gamma": MethodParameter(
        0.5,
        "a number from -9 to 9",
        lambda v: _is_number(v) and -9 <= v <= 9,
        (-1.0, -0.5, -0.25, 0.0, 0.25, 0.75, 1.0, 1.5, 2.0),
    )
}
LOGN_ISR_SIGMA = {
    "sigma": MethodParameter(
        0.01,
        "a number from 0 to 1",
        lambda v: _is_number(v) and 0 <= v <= 1,
        (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0),
    )
}
PROBFUSE_SEGMENTS = {
    "n_segments": MethodParameter(
        25,
        "a whole number of at least 1",
        lambda v: _is_number(v, must_be_whole=True) and v >= 1,
        (5, 10, 50),
        is_training_only=True,
    )
}
SLIDEFUSE_WINDOW = {
    "w": MethodParameter(
        5, "a whole number of at least 0", lambda v: _is_number(v, must_be_whole=True) and v >= 0, (1, 2, 10, 20)
    )
}

FOX_SHAW_1993 = "Fox & Shaw, TREC-2 1993"
MOURAO_2015 = "Mourão et al., Comput. Med. Imaging Graph. 2015"
ASLAM_MONTAGUE_2001 = "Aslam & Montague, SIGIR 2001"
MONTAGUE_ASLAM_2002 = "Montague & Aslam, CIKM 2002"
WU_CRESTANI_2002 = "Wu & Crestani, CIKM 2002"


ParameterValue = float | str | Sequence[float]
"""Value of a parameter of a fusion method."""


@dataclass(frozen=True, eq=False)
class FusionMethod:
    """Fusion method with its function, description and parameters."""

    name: str
    function: Callable[..., Ranking]
    """Function from the normalised rankings of a query to a score per document."""
    description: str
    """One-line description."""
    paper: str
    parameters: Mapping[str, MethodParameter] = field(default_factory=dict)
    input_kind: Literal["ranks", "scores", "both"] = "ranks"
    """Input that the method uses. Scores need a common scale; without ranks, the rankings need not be sorted."""
    train: Callable[..., LearnedValues] | None = None
    """Function from the ranks of relevant documents to the learned values of a system; None if nothing is learned."""
    aliases: tuple[str, ...] = ()

    def resolve_parameters(
        self, params: Mapping[str, Any], n_runs: int, *, for_training: bool = False
    ) -> dict[str, Any]:
        """Check the values of parameters and add the defaults of the others.

        Returns the parameters of fusion, or those of training if `for_training`.
        """
        parameters = {
            name: parameter for name, parameter in self.parameters.items() if parameter.is_training_only == for_training
        }
        values = {name: parameter.default for name, parameter in parameters.items()}
        for name, value in params.items():
            if name not in parameters:
                raise BadInput(
                    f"{self.name} has no parameter `{name}`{self._parameter_scope(name)}",
                    hint=self._list_parameters(parameters),
                )
            if not parameters[name].is_valid(value):
                raise BadInput(f"`{name}` of {self.name} must be {parameters[name].requirement}, got {value!r}")
            if name == "weights" and value is not None:
                if len(value) != n_runs:
                    raise BadInput(
                        f"expected {n_runs} weight{'s' * (n_runs > 1)}, one per run, got {len(value)}",
                        hint=f"use `--weights {','.join(['1'] * n_runs)}`",
                    )
                values[name] = tuple(map(float, value))
            else:
                values[name] = (
                    int(value) if isinstance(parameters[name].default, int) and value == int(value) else value
                )
        return values

    def _parameter_scope(self, name: str) -> str:
        if name not in self.parameters:
            return ""
        return f" here: it belongs to {'training' if self.parameters[name].is_training_only else 'fusing'}"

    def _list_parameters(self, parameters: Mapping[str, MethodParameter]) -> str:
        return f"it has {', '.join(parameters)}" if parameters else "it has none"


METHODS = {
    row.name: row
    for row in (
        FusionMethod(
            "rrf",
            untrained_methods.rrf,
            "sum of 1 / (k + rank)",
            "Cormack et al., SIGIR 2009",
            RRF_K | OPTIONAL_WEIGHTS,
        ),
        FusionMethod(
            "wsum",
            untrained_methods.wsum,
            "sum of weighted scores",
            "Vogt & Cottrell, Inf. Retr. 1999",
            TUNABLE_WEIGHTS,
            input_kind="scores",
            aliases=("weighted_sum",),
        ),
        FusionMethod(
            "sum",
            untrained_methods.comb_sum,
            "sum of scores",
            FOX_SHAW_1993,
            input_kind="scores",
            aliases=("comb_sum", "combsum"),
        ),
        FusionMethod(
            "mnz",
            untrained_methods.comb_mnz,
            "sum x number of runs that have it",
            FOX_SHAW_1993,
            input_kind="scores",
            aliases=("comb_mnz", "combmnz"),
        ),
        FusionMethod(
            "anz",
            untrained_methods.comb_anz,
            "mean over the runs that have it",
            FOX_SHAW_1993,
            input_kind="scores",
            aliases=("comb_anz", "combanz"),
        ),
        FusionMethod(
            "max",
            untrained_methods.comb_max,
            "highest score",
            FOX_SHAW_1993,
            input_kind="scores",
            aliases=("comb_max", "combmax"),
        ),
        FusionMethod(
            "min",
            untrained_methods.comb_min,
            "lowest score",
            FOX_SHAW_1993,
            input_kind="scores",
            aliases=("comb_min", "combmin"),
        ),
        FusionMethod(
            "med",
            untrained_methods.comb_med,
            "median score",
            FOX_SHAW_1993,
            input_kind="scores",
            aliases=("comb_med", "combmed"),
        ),
        FusionMethod(
            "gmnz",
            untrained_methods.comb_gmnz,
            "sum x (number of runs)^gamma",
            "Lee, SIGIR 1997",
            GMNZ_GAMMA,
            input_kind="scores",
            aliases=("comb_gmnz", "combgmnz"),
        ),
        FusionMethod(
            "wmnz",
            untrained_methods.wmnz,
            "sum x weights of the runs that have it",
            WU_CRESTANI_2002,
            TUNABLE_WEIGHTS,
            input_kind="scores",
        ),
        FusionMethod(
            "mixed",
            untrained_methods.mixed,
            "weighted sum x root of number of runs",
            WU_CRESTANI_2002,
            TUNABLE_WEIGHTS,
            input_kind="scores",
        ),
        FusionMethod("isr", untrained_methods.isr, "sum of 1 / rank^2 x number of runs", MOURAO_2015),
        FusionMethod("log_isr", untrained_methods.log_isr, "sum of 1 / rank^2 x log(number of runs)", MOURAO_2015),
        FusionMethod(
            "logn_isr",
            untrained_methods.logn_isr,
            "sum of 1 / rank^2 x log(number + sigma)",
            MOURAO_2015,
            LOGN_ISR_SIGMA,
        ),
        FusionMethod(
            "rbc", untrained_methods.rbc, "sum of (1 - phi) phi^(rank - 1)", "Bailey et al., SIGIR 2017", RBC_PHI
        ),
        FusionMethod("bordafuse", untrained_methods.bordafuse, "Borda points", ASLAM_MONTAGUE_2001, aliases=("borda",)),
        FusionMethod(
            "w_bordafuse",
            untrained_methods.w_bordafuse,
            "weighted Borda points",
            ASLAM_MONTAGUE_2001,
            TUNABLE_WEIGHTS,
            aliases=("weighted_bordafuse",),
        ),
        FusionMethod(
            "condorcet", untrained_methods.condorcet, "documents beaten by a majority of runs", MONTAGUE_ASLAM_2002
        ),
        FusionMethod(
            "w_condorcet",
            untrained_methods.w_condorcet,
            "documents beaten by a weighted majority",
            MONTAGUE_ASLAM_2002,
            TUNABLE_WEIGHTS,
            aliases=("weighted_condorcet",),
        ),
        FusionMethod(
            "bayesfuse",
            trained_methods.bayesfuse,
            "learned log odds of the rank",
            ASLAM_MONTAGUE_2001,
            train=trained_methods.segment_log_odds,
        ),
        FusionMethod(
            "mapfuse",
            trained_methods.mapfuse,
            "learned MAP of the run / rank",
            "Lillis et al., SIGIR 2010",
            train=trained_methods.mean_average_precision,
        ),
        FusionMethod(
            "posfuse",
            trained_methods.posfuse,
            "learned probability of the rank",
            "Lillis et al., SIGIR 2010",
            train=trained_methods.position_probabilities,
        ),
        FusionMethod(
            "probfuse",
            trained_methods.probfuse,
            "learned probability of the segment / its number",
            "Lillis et al., SIGIR 2006",
            PROBFUSE_SEGMENTS,
            train=trained_methods.segment_probabilities,
        ),
        FusionMethod(
            "segfuse",
            trained_methods.segfuse,
            "learned probability of the segment x (1 + score)",
            "Shokouhi, ECIR 2007",
            input_kind="both",
            train=trained_methods.doubling_probabilities,
        ),
        FusionMethod(
            "slidefuse",
            trained_methods.slidefuse,
            "learned probability, mean of w ranks either side",
            "Lillis et al., ECIR 2008",
            SLIDEFUSE_WINDOW,
            train=trained_methods.position_probabilities,
        ),
    )
}
"""Fusion methods by name; the names are those of ranx."""

_METHODS_BY_ALIAS: dict[str, FusionMethod] = METHODS | {alias: row for row in METHODS.values() for alias in row.aliases}


def find_method(name: str) -> FusionMethod:
    """Find a method by any of its names: `mnz`, `comb_mnz` and `CombMNZ` are the same."""
    method = METHODS.get(name) or _METHODS_BY_ALIAS.get(name.strip().lower().replace("-", "_"))
    if method is None:
        raise UnknownName("fusion method", name, _METHODS_BY_ALIAS, hint="list all with `ragauge fuse --list`")
    return method


def default_norm(method: str) -> str:
    """Return the default normalisation of a method.

    It is `min-max` for methods that use scores, otherwise `none`.
    """
    return "min-max" if find_method(method).input_kind != "ranks" else "none"


def simplex_weights(n_runs: int, max_combinations: int = 100) -> list[tuple[float, ...]]:
    """List weights for n runs that sum to 1, most even first.

    Steps are 0.1, or larger to give at most `max_combinations` (the even weights come in addition).

    >>> simplex_weights(2)[:3], len(simplex_weights(2)), len(simplex_weights(5))
    ([(0.5, 0.5), (0.4, 0.6), (0.6, 0.4)], 11, 71)
    """
    steps = max((s for s in range(1, 11) if math.comb(s + n_runs - 1, n_runs - 1) <= max_combinations), default=1)
    even = 1 / n_runs
    combinations = {(even,) * n_runs: None} | {
        tuple(share / steps for share in composition): None for composition in _compositions(steps, n_runs)
    }

    def unevenness(weights: Sequence[float]) -> float:
        return round(math.fsum((w - even) ** 2 for w in weights), 9)

    return sorted(combinations, key=lambda weights: (unevenness(weights), weights))


def _compositions(total: int, n_runs: int) -> list[tuple[int, ...]]:
    if n_runs == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total + 1) for rest in _compositions(total - first, n_runs - 1)]
