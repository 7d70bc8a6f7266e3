"""Keywords of `ragauge.bench`: the settings of the benchmark, the vectors, and which saved results are reused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypedDict

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.protocols import Embedder
from ragauge.core.settings import Above, check_number
from ragauge.store_benchmarks.metadata_filters import Filter, Metadata
from ragauge.store_benchmarks.plan import BenchmarkSettings

DOUBTFUL_RESULTS = "doubtful"
"""The only value that `remeasure` accepts."""


class BenchmarkOptions(TypedDict, total=False):
    """Keywords of `ragauge.bench`: the fields of `BenchmarkRunOptions` and of `BenchmarkSettings`."""

    metric: str | None
    embedder: str | Embedder | None
    max_vectors: int | None
    max_queries: int | None
    metadata: str | Path | Metadata | None
    where: str | Filter | Sequence[str | Filter]
    score_judgments: bool | Sequence[str]
    price_per_hour: float | None
    truth: str
    keep: bool
    fresh: bool
    reuse: bool
    remeasure: str | None
    k: int | Sequence[int]
    threads: int
    repeats: int
    clients: Sequence[int]
    rates: Sequence[float]
    poisson: bool
    shares: Sequence[float]
    seconds: float
    filters: Sequence[float]
    changes: int
    mixed: int
    sweep: bool
    quick: bool
    timeout: float
    seed: int


@dataclass(frozen=True)
class BenchmarkRunOptions:
    """Options of a benchmark that are not settings of its measurements."""

    metric: str | None = None
    """`l2`, `cosine` or `ip`; None for the metric of the data."""
    embedder: str | Embedder | None = None
    """Embedder of the texts of a dataset."""
    max_vectors: int | None = None
    """Maximum number of vectors."""
    max_queries: int | None = None
    """Maximum number of queries."""
    metadata: str | Path | Metadata | None = None
    """Metadata of the vectors: a file or mappings; None for those of the documents."""
    where: Sequence[str | Filter] = ()
    """User filters on the metadata."""
    score_judgments: bool | Sequence[str] = False
    """Whether searches are also scored against relevance judgments, or the measures."""
    price_per_hour: float | None = None
    """Price of one thread per hour."""
    truth: str = "auto"
    """Backend that finds the exact neighbours."""
    keep: bool = False
    """Whether the stores themselves stay in the folder."""
    fresh: bool = False
    """Whether everything is measured again."""
    reuse: bool = False
    """Whether saved results of user stores, plug-ins and servers are reused too."""
    remeasure: str | None = None
    """`doubtful` to measure only results with unreliable times again."""

    def __post_init__(self) -> None:
        modes = {"fresh": self.fresh, "reuse": self.reuse, "remeasure": self.remeasure}
        chosen = [name for name, value in modes.items() if value]
        if len(chosen) > 1:
            raise BadInput(f"{' and '.join(chosen)} are mutually exclusive", hint="remove all but one of them")
        if self.remeasure not in (None, DOUBTFUL_RESULTS):
            raise BadInput(
                f"remeasure must be `{DOUBTFUL_RESULTS}`, got `{self.remeasure}`",
                hint=f"--remeasure {DOUBTFUL_RESULTS}",
            )
        if self.price_per_hour is not None:
            check_number("price_per_hour", self.price_per_hour, Above(0))

    @property
    def remeasures_doubtful(self) -> bool:
        """Whether results with unreliable times are measured again."""
        return self.remeasure == DOUBTFUL_RESULTS


def parse_options(options: Mapping[str, Any]) -> tuple[BenchmarkRunOptions, BenchmarkSettings]:
    """Separate the keywords of `bench`; None selects the default.

    Raises UnknownName for an unknown keyword.
    """
    for name in options:
        if name not in BenchmarkOptions.__annotations__:
            known = list(BenchmarkOptions.__annotations__)
            raise UnknownName("setting", name, known)
    names = {field.name for field in fields(BenchmarkRunOptions)}
    run_options = {name: value for name, value in options.items() if name in names and value is not None}
    where = run_options.pop("where", ())
    filters = [where] if isinstance(where, str | Mapping) else list(where)
    setting_values = {name: value for name, value in options.items() if name not in names and value is not None}
    settings = replace(BenchmarkSettings.of(setting_values), where=tuple(map(str, filters)))
    return BenchmarkRunOptions(**run_options, where=filters), settings
