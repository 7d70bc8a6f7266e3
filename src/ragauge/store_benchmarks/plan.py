"""Settings of a benchmark, and the stores, configurations and builds to measure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import itemgetter
from typing import Annotated, Any

from ragauge.compute.resources import usable_cores
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.hashes import content_key, hash_source
from ragauge.core.protocols import FullStore
from ragauge.core.settings import Above, AtLeast, AtMost, check_settings, unique_by
from ragauge.core.specs import parse_spec, split_name
from ragauge.runs.folder import provenance
from ragauge.store_benchmarks.results import Configuration, VectorSet
from ragauge.stores.store_types import StoreType, load_store_type

MAX_SEARCH_WIDTH = 1_000
"""Largest search width that is tried."""


def extend_widths(values: list[int]) -> list[int]:
    """Extend a list of widths by two steps of its last ratio, at least 2, up to MAX_SEARCH_WIDTH.

    >>> extend_widths([10, 40, 160]), extend_widths([100, 160])
    ([10, 40, 160, 640], [100, 160, 320, 640])
    """
    ratio = max(2, values[-1] // values[-2]) if len(values) > 1 else 2
    return [*values, *(wider for step in (1, 2) if (wider := values[-1] * ratio**step) <= MAX_SEARCH_WIDTH)]


@dataclass(frozen=True)
class StoreSpec:
    """Store name, options, metric and location, from which a store can be opened."""

    store: str
    """Name of a registered store, or `module:Class` of a user's store."""
    options: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "l2"
    path: str | None = None
    """Folder of a store that is saved; existing contents are opened. None for a store that is not saved."""
    threads: Annotated[int, AtLeast(1), AtMost(10_000)] = 1
    """Number of threads, passed to stores that accept it."""

    def open(self) -> FullStore:
        context = {"metric": self.metric, "path": self.path, "threads": self.threads}
        return load_store_type(self.store).open(self.options, context)

    def at(self, path: str) -> StoreSpec:
        """Return a copy with another location."""
        return replace(self, path=path)


PROCESS_START_S, MIN_ROUND_S, WARM_UP_S = 1.0, 0.2, 0.05
"""Minimum seconds to start the process of a store, to time one setting once, and to warm it up."""
MAX_REPEAT_FACTOR = 3
"""Maximum number of repeats as a multiple of the requested ones, used while QPS is uncertain."""
DEFAULT_SELECTIVITIES = (0.9, 0.5, 0.1, 0.01, 0.001)
FILTERS_PER_TIMEOUT = 20
"""The sweep of one store with one filter gets this fraction of the timeout: 30 of 600 seconds."""


@dataclass(frozen=True)
class BenchmarkSettings:
    """Settings of a vector store benchmark."""

    k: Annotated[int, AtLeast(1), AtMost(10_000_000)] = 10
    """Number of neighbours per search."""
    cutoffs: tuple[int, ...] = ()
    """Values of k at which the same searches are scored, ascending and including `k`; empty if only at `k`."""
    threads: Annotated[int, AtLeast(1), AtMost(10_000)] = 1
    """Number of CPU cores for the process of a store, and thread limit of its libraries."""
    repeats: Annotated[int, AtLeast(1), AtMost(100_000)] = 3
    """Number of timed runs of every query with every search setting, in rounds over all settings."""
    clients: tuple[Annotated[int, AtLeast(1), AtMost(10_000)], ...] = ()
    """Numbers of client processes for closed-loop load tests."""
    rates: tuple[Annotated[float, Above(0)], ...] = ()
    """Target rates for open-loop load tests, in queries per second."""
    poisson: bool = False
    """Whether open-loop queries arrive at random, as from independent users, instead of evenly."""
    shares: tuple[Annotated[float, Above(0), AtMost(10)], ...] = ()
    """Target rates as shares of the closed-loop maximum."""
    seconds: Annotated[float, Above(0)] = 5.0
    """Duration of each load test."""
    filters: tuple[Annotated[float, Above(0), AtMost(1)], ...] = ()
    """Selectivities of random filters: shares of the vectors that match."""
    where: tuple[str, ...] = ()
    """User filters, each as JSON: `{"lang": "de", "year": {"$gte": 2019}}`."""
    metadata: str = ""
    """Hash of the metadata that these filters use; empty if none."""
    changes: Annotated[int, AtLeast(0), AtMost(10_000_000)] = 0
    """Number of inserts, updates and deletes to time."""
    mixed: Annotated[int, AtLeast(0), AtMost(10_000_000)] = 0
    """Number of vectors inserted during concurrent searches."""
    sweep: bool = True
    """Whether options that are not given are swept over their default grid; otherwise the store's defaults apply."""
    quick: bool = False
    """Whether the default grids are thinned out."""
    timeout: Annotated[float, Above(0)] = 600.0
    """Time limit of each process in seconds: a build with its searches, or a load test."""
    seed: Annotated[int, AtLeast(0), AtMost(2**63 - 1)] = 0

    @property
    def max_repeats(self) -> int:
        """Maximum number of repeats of a setting while its QPS is uncertain.

        A single repeat shows no uncertainty, so it stays single.
        """
        return self.repeats if self.repeats == 1 else MAX_REPEAT_FACTOR * self.repeats

    @property
    def has_further_tests(self) -> bool:
        """Whether load tests, filters or updates are requested."""
        return bool(
            self.clients or self.rates or self.shares or self.filters or self.where or self.changes or self.mixed
        )

    @property
    def requested_filters(self) -> list[dict[str, Any]]:
        """All filters: random ones by selectivity, and user filters with a metadata hash."""
        user_filters = [{"where": text, "metadata": self.metadata} for text in self.where]
        return [*({"selectivity": share} for share in self.filters), *user_filters]

    @property
    def filter_seconds(self) -> float:
        """Time limit in seconds for one filter of one store; at most half of the timeout."""
        return self.timeout / max(FILTERS_PER_TIMEOUT, 2 * len(self.requested_filters))

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> BenchmarkSettings:
        """Build settings from a mapping by name; lists become tuples.

        Raises UnknownName for a name that is not a setting.
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise UnknownName("setting", name, known)
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
        }
        if isinstance(values.get("k"), tuple):
            values |= _parse_cutoffs(values["k"])
        return cls(**values)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.threads > len(usable_cores()):
            cores = len(usable_cores())
            raise BadInput(f"threads must be at most {cores}, the CPU cores of this process, got {self.threads:,}")


def _parse_cutoffs(ks: tuple[Any, ...]) -> dict[str, Any]:
    """Return the settings for several k: one search at the largest, scored at each."""
    if not ks or any(not isinstance(k, int) or k < 1 for k in ks):
        raise BadInput(
            f"-k must be whole numbers of at least 1, got {', '.join(map(str, ks)) or 'none'}", hint="use `-k 1,10`"
        )
    cutoffs = tuple(sorted(set(ks)))
    return {"k": cutoffs[-1], "cutoffs": cutoffs if len(cutoffs) > 1 else ()}


@dataclass(frozen=True)
class StoreBuild:
    """A build of a store, and the search options to measure it with."""

    configuration: Configuration
    """Configuration without search options."""
    searches: tuple[Mapping[str, Any], ...]

    @property
    def points(self) -> list[Configuration]:
        """Configurations of the build, one per set of search options."""
        configuration = self.configuration
        return [
            Configuration(configuration.store, configuration.build, search, configuration.name)
            for search in self.searches
        ]


def describe_stores(stores: str | type | Sequence[str | type] | Mapping[str, str | type]) -> list[str]:
    """Return the descriptions of stores; those of classes are `module:Class`.

    >>> from ragauge.stores.reference import ExactStore
    >>> describe_stores(["faiss", ExactStore]), describe_stores({"mine": ExactStore})
    (['faiss', 'ragauge.stores.reference:ExactStore'], ['mine=ragauge.stores.reference:ExactStore'])
    """
    if isinstance(stores, Mapping):
        return [f"{name}={_describe_store(store)}" for name, store in stores.items()]
    return [_describe_store(store) for store in ([stores] if isinstance(stores, str | type) else stores)]


def _describe_store(store: object) -> str:
    if isinstance(store, str):
        return store
    if not isinstance(store, type):
        raise BadInput(
            f"a store must be a description or a class, got an object of {type(store).__name__}",
            hint="pass the class or 'module:Class'; each configuration builds a new store",
        )
    if store.__module__ == "__main__" or "<locals>" in store.__qualname__:
        raise BadInput(
            f"the store class {store.__qualname__} cannot be imported by the worker processes that build stores",
            hint=f"move it to a module, e.g. my_store.py, and pass 'my_store:{store.__name__}'",
        )
    return f"{store.__module__}:{store.__qualname__}"


def plan_builds(stores: Sequence[str], settings: BenchmarkSettings) -> list[StoreBuild]:
    """Return the builds of all stores, in rounds of one build per store.

    This order spreads a temporary slowdown of the machine over all stores. Stores that differ in search options only
    share a build.
    """
    builds_by_store = [list(_plan_store_builds(text, settings)) for text in stores]
    builds = [build for turn in itertools.zip_longest(*builds_by_store) for build in turn if build is not None]
    unique_by([point for build in builds for point in build.points], _label_configuration, "store")
    shared: dict[str, StoreBuild] = {}
    for build in builds:
        configuration = build.configuration
        key = repr((configuration.name, configuration.store, configuration.build))
        earlier = shared.get(key)
        shared[key] = build if earlier is None else replace(earlier, searches=(*earlier.searches, *build.searches))
    _check_duplicate_stores(list(shared.values()))
    return list(shared.values())


def estimate_min_seconds(builds: Sequence[StoreBuild], settings: BenchmarkSettings) -> float:
    """Estimate the minimum duration of a benchmark in seconds.

    It covers starting processes, rounds of searches, and load tests. Building and slow searches come on top; their
    duration is unknown before the first store is built.
    """
    setting_s = settings.repeats * (MIN_ROUND_S + WARM_UP_S)
    searches = sum(len(build.searches) for build in builds) * setting_s
    loads = len({*settings.clients, *([1] if settings.shares else [])}) + len(settings.rates) + len(settings.shares)
    stores = len({build.configuration.series for build in builds})
    filtered = sum(
        PROCESS_START_S
        + len(settings.requested_filters) * min(len(build.searches) * setting_s, settings.filter_seconds)
        for build in _first_filterable_builds(builds)
        if settings.requested_filters
    )
    return (
        len(builds) * PROCESS_START_S + searches + filtered + stores * settings.seconds * (loads + bool(settings.mixed))
    )


def _first_filterable_builds(builds: Sequence[StoreBuild]) -> list[StoreBuild]:
    """Return one build per series of the stores that are known to support filters."""
    able = [build for build in builds if load_store_type(build.configuration.store).can_filter]
    return list({build.configuration.series: build for build in reversed(able)}.values())


def parse_store(text: str) -> Configuration:
    """Parse a store as it is typed; several values of an option become a list.

    >>> parse_store("hnswlib:m=16,ef=10+40").build
    {'m': 16, 'ef': [10, 40]}
    >>> str(parse_store("mine=faiss(kind=hnsw, m=32)")), parse_store("mine=faiss(kind=hnsw)").name
    ('faiss:kind=hnsw,m=32', 'mine')
    """
    name, rest = split_name(text)
    if ":" in name:  # `STORE:OPTION=VALUE`
        name, rest = "", text
    if "(" not in rest:
        head, options = _split_store_options(rest)
        rest = f"{head}({options})" if options else head
    spec = parse_spec(rest)
    return Configuration(spec.name, dict(spec.options), {}, name)


def hash_parts(*parts: Any) -> str:
    """Return a short hash of values that a result depends on."""
    return content_key(*parts, compact=False)[:16]


def build_key(data: VectorSet, build: StoreBuild, settings: BenchmarkSettings) -> str:
    """Return a key of everything a build depends on.

    It covers the vectors, the store and its options, the threads, the libraries and the machine.
    """
    configuration = build.configuration
    source_hash = hash_source(load_store_type(configuration.store).factory) if ":" in configuration.store else ""
    ids = hash_parts(list(data.ids))
    return hash_parts(
        data.hash,
        ids,
        data.metric,
        configuration.store,
        dict(configuration.build),
        settings.threads,
        source_hash,
        provenance(),
    )


def search_key(search: Mapping[str, Any], settings: BenchmarkSettings) -> str:
    """Return a key of the search settings that a result of a build depends on."""
    return hash_parts(dict(search), settings.k, settings.repeats, settings.seed)


def stage_key(stage: str, search: Mapping[str, Any], settings: BenchmarkSettings) -> str:
    """Return a key of a load test, of updates, or of reopening a store."""
    values = asdict(settings)
    names = {
        "load": ("clients", "rates", "poisson", "shares", "seconds"),
        "changes": ("changes", "mixed", "seconds"),
        "cold": (),
    }[stage]
    return hash_parts(stage, dict(search), settings.k, settings.seed, {name: values[name] for name in names})


def filter_key(search: Mapping[str, Any], requested: Mapping[str, Any], settings: BenchmarkSettings) -> str:
    """Return a key of one search setting with one of the requested filters."""
    return hash_parts(
        "filter", dict(search), dict(requested), settings.k, settings.repeats, settings.seed, settings.filter_seconds
    )


def _split_store_options(text: str) -> tuple[str, str]:
    """Split `store:options` at the colon; the store may be `module:Class`."""
    head, _, options = text.partition(":")
    if options and "=" not in options.split(":")[0]:
        class_name, _, options = options.partition(":")
        head = f"{head}:{class_name}"
    return head, options


def _plan_store_builds(text: str, settings: BenchmarkSettings) -> Iterator[StoreBuild]:
    configuration = parse_store(text)
    store_type = load_store_type(configuration.store)
    _check_store_options(configuration, store_type)
    searching = store_type.search_options
    for grid in _expand_grids(configuration, store_type, settings):
        lists = {name: value if isinstance(value, list) else [value] for name, value in grid.items()}
        build = {name: values for name, values in lists.items() if name not in searching}
        search = {name: values for name, values in lists.items() if name in searching}
        for options in _option_combinations(build):
            if is_sensible_build(options):
                yield StoreBuild(
                    Configuration(configuration.store, options, {}, configuration.name),
                    tuple(_option_combinations(search)),
                )


def _check_store_options(configuration: Configuration, store_type: StoreType) -> None:
    """Check that a store has the given options, before anything is built."""
    if store_type.options is None:
        return
    known = [name for name in store_type.options if name not in ("metric", "path")]
    for name in configuration.build:
        if name not in known:
            raise UnknownName(
                "option", name, known, of=configuration.store, hint=f"it has {', '.join(known) or 'none'}"
            )


def is_sensible_build(build: Mapping[str, Any]) -> bool:
    """Return whether the build options make sense.

    The search width during the build of a graph index must be at least twice its number of links.
    """
    m, ef = build.get("m"), build.get("ef_construction")
    return not (isinstance(m, int) and isinstance(ef, int)) or ef >= 2 * m


def _expand_grids(
    configuration: Configuration, store_type: StoreType, settings: BenchmarkSettings
) -> Iterator[dict[str, Any]]:
    """Yield the grids that match the given options, completed by default values."""
    grids = dict(configuration.build)
    agreeing = [
        options
        for options in (store_type.option_grids if settings.sweep else ())
        if all(_is_compatible_value(grids, name, value) for name, value in options.items())
    ]
    if not agreeing:
        yield grids
    for grid in agreeing:
        widened = {
            name: _raise_widths_to_k(value, settings.k) if name == "ef_search" else value
            for name, value in grid.items()
        }
        if settings.requested_filters:
            widened = {
                name: extend_widths(value) if name in store_type.search_widths else value
                for name, value in widened.items()
            }
        thinned = {name: _thin_values(value) if settings.quick else value for name, value in widened.items()}
        fixed_names = {name for name, value in grid.items() if isinstance(value, str | bool)}
        yield {**thinned, **{name: value for name, value in grids.items() if name not in fixed_names}}


def _raise_widths_to_k(widths: list[int], k: int) -> list[int]:
    """Raise search widths to at least k, since most engines do so silently."""
    return [k, *(width for width in widths if width > k)] if widths[0] < k else widths


def _is_compatible_value(requested: Mapping[str, Any], name: str, value: Any) -> bool:
    """Return whether a grid has the requested kind of index.

    Strings and booleans determine the kind; numbers can be replaced.
    """
    if name not in requested or not isinstance(value, str | bool):
        return True
    choices = requested[name] if isinstance(requested[name], list) else [requested[name]]
    return value in choices


def _thin_values(value: Any) -> Any:
    """Thin out a list to every other value, keeping the first and the last.

    Of two values only the first is kept.
    """
    if not isinstance(value, list) or len(value) == 1:
        return value
    return value[:1] if len(value) == 2 else [*value[:-1:2], value[-1]]


def _option_combinations(options: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


def _check_duplicate_stores(builds: Sequence[StoreBuild]) -> None:
    configurations = [build.configuration for build in builds]
    named = {(configuration.name, configuration.store) for configuration in configurations if configuration.name}
    unique_by(sorted(named), itemgetter(0), "store name", hint="give each store its own name: NAME=STORE")
    unique_by(configurations, _label_configuration, "store")


def _label_configuration(configuration: Configuration) -> str:
    return f"{configuration.name} {configuration}".strip()
