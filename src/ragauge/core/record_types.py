"""Record types: results that are written as JSON with a schema name, and the JSON form of the classes in them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import MissingExtra, UnknownName

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

T = TypeVar("T")


class ResultModules(NamedTuple):
    """Command and module of a result type."""

    command: str
    """Command that produces the result."""
    results: str
    """Module that registers the class with `record`."""


RESULT_MODULES: Mapping[str, ResultModules] = {
    "ragauge-audit": ResultModules("audit", "ragauge.core.findings"),
    "ragauge-benchmark": ResultModules("bench", "ragauge.store_benchmarks.results"),
    "ragauge-calibration": ResultModules("calibrate", "ragauge.judging.calibration.results"),
    "ragauge-comparison": ResultModules("compare", "ragauge.stats.comparisons"),
    "ragauge-experiments": ResultModules("run", "ragauge.comparison.results"),
    "ragauge-gain": ResultModules("gain", "ragauge.knowledge.gain.results"),
    "ragauge-gate": ResultModules("gate", "ragauge.gates.results"),
    "ragauge-judged": ResultModules("judge", "ragauge.judging.results"),
    "ragauge-novelty": ResultModules("novelty", "ragauge.knowledge.novelty.results"),
    "ragauge-report": ResultModules("report", "ragauge.comparison.results"),
    "ragauge-scores": ResultModules("evaluate", "ragauge.evaluation.results"),
    "ragauge-stress": ResultModules("stress", "ragauge.store_stress.results"),
    "ragauge-tokenizers": ResultModules("tokenizers", "ragauge.embedder_study.results"),
}
"""Module of each result type by schema name; it is imported when a result of that type is read."""


class Reporter(Protocol):
    """How a result is shown; see `ragauge.output.report.ResultReporter`."""

    def render_fragment(self, result: Any) -> str: ...

    def build_frame(self, result: Any) -> pl.DataFrame:
        """Return the main table as a data frame."""
        ...


class TabularResult:
    """Base class of all results: a notebook shows them as tables, and they convert to data frames.

    `class Gain(TabularResult, report="ragauge.knowledge.gain.report")` declares the module whose `REPORTER` reports the
    results, or `module:NAME` for another name. It is imported when a result is shown.
    """

    report_path: ClassVar[str] = ""

    def __init_subclass__(cls, report: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.report_path = report or cls.report_path

    def to_polars(self) -> pl.DataFrame:
        """Convert the main table, which is that of `--csv`, to a polars frame; undefined values are null."""
        return import_reporter(type(self)).build_frame(self)

    def to_pandas(self) -> pd.DataFrame:
        """Convert the main table, which is that of `--csv`, to a pandas frame."""
        try:
            return self.to_polars().to_pandas()
        except ImportError:
            raise MissingExtra("a pandas frame", "pandas") from None

    def _repr_html_(self) -> str:
        return import_reporter(type(self)).render_fragment(self)


R = TypeVar("R", bound=TabularResult)


class RecordType(NamedTuple):
    """Schema name and version of a record, and its class."""

    schema: str
    version: int
    result_type: type[Any]
    supplied: Mapping[str, str] = EMPTY_MAPPING
    """Descriptions of keys whose texts the writer supplies, such as a summary. They are not read."""

    @property
    def schema_field(self) -> str:
        """Value of the key `schema`: `ragauge-audit/1`."""
        return f"{self.schema}/{self.version}"


@dataclass(frozen=True)
class JsonForm:
    """How the JSON object of a class departs from its fields."""

    derived: Sequence[str] = ()
    """Properties that are written after the fields. They are not read."""
    renamed: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """JSON keys of fields and derived properties with another name."""
    omitted: frozenset[str] = frozenset()
    """Fields that are not written. On reading they have their defaults."""
    optional: frozenset[str] = frozenset()
    """Fields and derived properties that are written only if they have a value: not empty, not None, not NaN."""
    flattened: Mapping[str, Sequence[str]] = field(default_factory=lambda: EMPTY_MAPPING)
    """Fields that are tuples or records, with the keys under which their items are written in the object itself."""
    parse: Callable[[str], Any] | None = None
    """Parser, if the class is written as text (`str`) instead of an object."""

    def key(self, name: str) -> str:
        """Return the JSON key of a field or derived property."""
        return self.renamed.get(name, name)


_RECORD_TYPES: dict[type[Any], RecordType] = {}
_RECORDS_BY_SCHEMA: dict[str, RecordType] = {}
_JSON_FORMS: dict[type[Any], JsonForm] = {}
_DEFAULT_FORM = JsonForm()


def record(
    schema: str,
    version: int,
    *,
    derived: Sequence[str] = (),
    supplied: Mapping[str, str] = EMPTY_MAPPING,
) -> Callable[[type[R]], type[R]]:
    """Register a class as a record type: its JSON begins with `"schema": "<schema>/<version>"`."""

    def register(kind: type[R]) -> type[R]:
        record_type = RecordType(schema, version, kind, supplied)
        _RECORD_TYPES[kind] = _RECORDS_BY_SCHEMA[schema] = record_type
        _JSON_FORMS[kind] = replace(json_form_of(kind), derived=tuple(derived))
        return kind

    return register


def json_form(
    *,
    derived: Sequence[str] = (),
    renamed: Mapping[str, str] = EMPTY_MAPPING,
    omitted: Sequence[str] = (),
    optional: Sequence[str] = (),
    flattened: Mapping[str, Sequence[str]] = EMPTY_MAPPING,
    parse: Callable[[str], Any] | None = None,
) -> Callable[[type[T]], type[T]]:
    """Declare how the JSON object of a class departs from its fields; see `JsonForm`.

    If used below `record`, `record` handles the derived properties.
    """

    def declare(kind: type[T]) -> type[T]:
        _JSON_FORMS[kind] = JsonForm(tuple(derived), renamed, frozenset(omitted), frozenset(optional), flattened, parse)
        return kind

    return declare


def json_form_of(kind: type[Any]) -> JsonForm:
    """Return the JSON form of a class; by default all its fields."""
    return _JSON_FORMS.get(kind, _DEFAULT_FORM)


def record_type_of(kind: type[Any]) -> RecordType | None:
    """Return the record type of a class, or None if it is not registered."""
    return _RECORD_TYPES.get(kind)


def find_record_type(schema: str) -> RecordType:
    """Find a record type by its schema name, and import its module.

    Raises `UnknownName` if there is none.
    """
    if schema not in RESULT_MODULES:
        raise UnknownName("schema", schema, RESULT_MODULES)
    importlib.import_module(RESULT_MODULES[schema].results)
    return _RECORDS_BY_SCHEMA[schema]


def import_reporter(result_type: type[Any]) -> Reporter:
    """Import the module that reports results of this type, and return its reporter.

    Raises `TypeError` if the type declares none.
    """
    path = getattr(result_type, "report_path", "")
    if not path:
        raise TypeError(
            f"{result_type.__name__} declares no report: class {result_type.__name__}(TabularResult, report=…)"
        )
    module, _, name = path.partition(":")
    reporter: Reporter = getattr(importlib.import_module(module), name or "REPORTER")
    return reporter
