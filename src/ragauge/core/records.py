"""Core data types: queries and documents (`Dataset`), `Judgments`, rankings (`Run`), and `Scores`.

They store data and derive values from it. They read no files and are never modified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragauge.core.documents import Document, Documents, to_documents
from ragauge.core.errors import BadInput, UnknownName, describe_failures, failed_queries
from ragauge.core.findings import Note, append_notes
from ragauge.core.ids import IdForms, to_id, with_text_ids, with_text_keys
from ragauge.core.record_types import TabularResult, json_form

if TYPE_CHECKING:
    import polars as pl


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
V = TypeVar("V")
ScoresByQuery = Mapping[str, Mapping[str, float]]
"""A number per query and document: `{"q1": {"d1": 2, "d2": 0}}`, as in pytrec_eval and ranx."""


@dataclass(frozen=True)
class JudgedPool:
    """Judged documents as flat arrays: those of query `i` are at `starts[i]:starts[i + 1]`."""

    queries: list[str]
    starts: Ints
    grades: Floats

    @cached_property
    def owner(self) -> Ints:
        """Query index of each judged document."""
        return np.repeat(np.arange(len(self.queries)), np.diff(self.starts))


class Judgments:
    """Grades of the judged documents of each query. A missing document is *unjudged*, which differs from grade 0.

    Built from nested mappings or from a frame with the columns `query`, `doc`, `grade` (rows of a query contiguous,
    no duplicate pairs). The other representation is derived on first use. A negative grade means pooled but
    unjudged, as in trec_eval.
    """

    def __init__(
        self,
        grades: ScoresByQuery | pl.DataFrame,
        *,
        subtopics: ScoresByQuery | None = None,
        targets: Mapping[str, Sequence[str]] | None = None,
        distances: Mapping[str, Sequence[float]] | None = None,
        source: str = "judgments",
    ) -> None:
        if isinstance(grades, Mapping):
            self.nested = with_text_ids(grades)
        else:
            self.frame = grades
        self.source = source
        """Origin of the judgments, for messages."""
        self.subtopics = subtopics
        """`{query: {"subtopic\\tdocument": grade}}`, for diversity measures; None without subtopics."""
        self.targets = targets
        """`{document: [target, …]}`: the distinct answers that a document gives, for de-duplicated recall."""
        self.distances = distances
        """`{query: [distance, …]}` of the exact neighbours, nearest first, for measures of vector search."""

    def with_targets(self, targets: Mapping[str, Sequence[str]]) -> Judgments:
        """Return a copy with a target map."""
        grades = self.nested if "nested" in self.__dict__ else self.frame
        return Judgments(
            grades, subtopics=self.subtopics, targets=targets, distances=self.distances, source=self.source
        )

    @cached_property
    def nested(self) -> ScoresByQuery:
        """Grades as `{query: {document: grade}}`."""
        columns = (self.frame[name].to_list() for name in ("query", "doc", "grade"))
        grades: dict[str, dict[str, float]] = {}
        for query, doc, grade in zip(*columns, strict=True):
            grades.setdefault(query, {})[doc] = grade
        return grades

    @cached_property
    def frame(self) -> pl.DataFrame:
        """Columns `query`, `doc`, `grade`; the rows of a query are contiguous."""
        import polars as pl

        sizes = [len(docs) for docs in self.nested.values()]
        try:
            queries = pl.Series(self.pool.queries, dtype=pl.String).gather(np.repeat(np.arange(len(sizes)), sizes))
            docs = pl.Series(list(chain.from_iterable(self.nested.values())), dtype=pl.String)
        except UnicodeEncodeError as error:
            escaped_id = error.object.encode("ascii", "backslashreplace").decode()
            raise BadInput(f"the id `{escaped_id}` contains an unpaired surrogate", file=self.source) from None
        return pl.DataFrame({"query": queries, "doc": docs, "grade": self.pool.grades})

    @cached_property
    def pool(self) -> JudgedPool:
        """Grades as flat arrays, in the order of `nested` and of `frame`."""
        if "nested" in self.__dict__:
            queries = list(self.nested)
            sizes = np.fromiter(map(len, self.nested.values()), np.int64, len(queries))
            values = chain.from_iterable(docs.values() for docs in self.nested.values())
            grades = np.fromiter(values, np.float64, int(sizes.sum()))
        else:
            queries, starts = query_segments(self.frame["query"])
            sizes = np.diff(starts)
            grades = self.frame["grade"].to_numpy()
        return JudgedPool(queries, np.concatenate([[0], np.cumsum(sizes)]), grades)

    def __len__(self) -> int:
        return len(self.pool.queries)

    def __repr__(self) -> str:
        return f"Judgments({len(self)} queries, {len(self.pool.grades)} judged documents, from {self.source})"


def query_segments(queries: pl.Series) -> tuple[list[str], Ints]:
    """Find runs of equal values in a column: their values, and the start of each.

    The last start is the length of the column.

    >>> import polars as pl
    >>> names, starts = query_segments(pl.Series(["a", "a", "b"]))
    >>> names, starts.tolist()
    (['a', 'b'], [0, 2, 3])
    """
    n = len(queries)
    if n == 0:
        return [], np.zeros(1, np.int64)
    changes = (queries.slice(1) != queries.slice(0, n - 1)).arg_true().to_numpy() + 1
    starts = np.concatenate([[0], changes, [n]]).astype(np.int64)
    return queries.gather(starts[:-1]).to_list(), starts


FrameTransform = Callable[["pl.DataFrame"], "pl.DataFrame"]
"""A function applied to each frame of a run when it is read."""


def identity_transform(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame unchanged."""
    return frame


class RunFrames(Protocol):
    """Rankings of a system as frames, which can be iterated more than once."""

    @property
    def name(self) -> str:
        """Name of the run in reports."""
        ...

    def frames(self, prepare: FrameTransform = ...) -> Iterator[pl.DataFrame]:
        """Yield frames with the columns `query`, `doc`, `score`, and `rank` if available.

        `prepare` is applied to each frame by the thread that reads it.
        """
        ...


def to_judgments(judgments: Any) -> Judgments:
    """Convert `{query: {document: grade}}` to judgments."""
    if isinstance(judgments, Judgments):
        return judgments
    if not isinstance(judgments, Mapping) or not all(isinstance(grades, Mapping) for grades in judgments.values()):
        raise BadInput(
            f"judgments must be a mapping of mappings, got {str(judgments)[:60]}", hint='pass {"q1": {"d1": 1}}'
        )
    return Judgments(judgments)


def to_targets(targets: Mapping[Any, Any]) -> dict[str, list[str]]:
    """Convert ids and targets of a target map to lists of strings.

    >>> to_targets({"d1": "A", 2: ["A", "B"]})
    {'d1': ['A'], '2': ['A', 'B']}
    """
    if not isinstance(targets, Mapping):
        raise BadInput(f"a target map must be a mapping, got {type(targets).__name__}", hint='pass {"d1": ["A", "B"]}')
    docs = IdForms("document")
    return {
        docs.convert(doc): [
            to_id(target, f"a target of document `{doc}`")
            for target in ([value] if isinstance(value, str) or not isinstance(value, Iterable) else value)
        ]
        for doc, value in targets.items()
    }


def to_queries(queries: Any) -> Mapping[str, str]:
    """Convert queries to `{id: text}`; texts without ids are numbered from q1.

    >>> to_queries(["How?", "Why?"])
    {'q1': 'How?', 'q2': 'Why?'}
    """
    if isinstance(queries, list | tuple) and all(isinstance(text, str) for text in queries):
        return {f"q{number}": text for number, text in enumerate(queries, 1)}
    if not isinstance(queries, Mapping):
        message = f"queries must be a mapping of texts by id or a list of texts, got {str(queries)[:60]}"
        raise BadInput(message, hint='pass {"q1": "How?"}')
    return with_text_keys(queries, "query")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Documents, queries and judgments."""

    name: str
    documents: Sequence[Document]
    queries: Mapping[str, str]
    """`{query id: text}`."""
    judgments: Judgments
    answers: Mapping[str, str] = field(default_factory=dict)
    """`{query id: reference answer}`; not every query has one."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`{query id: {"topic": "files", …}}`: strata by which results can be split."""
    about: str = ""
    """Origin and licence."""
    origin: str = ""
    """Argument with which `load` loads it again, if it is neither its name nor a folder."""
    targets: Mapping[str, Sequence[str]] | None = None
    """Target map of the judgments, for de-duplicated recall: `{document: target or [target, …]}`."""

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0913 - the fields of the class
            self,
            name: str,
            documents: Documents,
            queries: Mapping[str, str] | Sequence[str],
            judgments: Judgments | ScoresByQuery,
            answers: Mapping[str, str] = ...,
            tags: Mapping[str, Mapping[str, str]] = ...,
            about: str = ...,
            origin: str = ...,
            targets: Mapping[str, str | Sequence[str]] | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", to_documents(self.documents))
        object.__setattr__(self, "queries", to_queries(self.queries))
        judgments = to_judgments(self.judgments)
        if self.targets is not None:
            judgments = judgments.with_targets(to_targets(self.targets))
        object.__setattr__(self, "judgments", judgments)
        object.__setattr__(self, "targets", judgments.targets)
        object.__setattr__(self, "answers", with_text_keys(self.answers, "query"))
        object.__setattr__(self, "tags", with_text_keys(self.tags, "query"))

    @cached_property
    def texts(self) -> dict[str, str]:
        """`{document id: text}`."""
        return {document.id: document.text for document in self.documents}

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self.documents)} documents, {len(self.queries)} queries)"


@dataclass(frozen=True, eq=False)
class Run:
    """Rankings of one system as one frame with the columns `query`, `doc`, `score` (and `rank`).

    A run made by ragauge also has timings and a manifest.
    """

    table: pl.DataFrame
    name: str = "run"
    timings: pl.DataFrame | None = None
    """One row per query and trial: start time, nanoseconds by stage and in total, status and error."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Versions, machine, settings and content hashes."""
    repeats: pl.DataFrame | None = None
    """Rankings of the further trials: the columns of `table`, and `repeat`, which starts at 1."""

    @cached_property
    def failures(self) -> dict[str, str]:
        """`{query: error}` of the queries that failed in at least one trial.

        Empty if outcomes are unknown.
        """
        return failed_queries(self.timings)

    @property
    def rows_are_hits(self) -> bool:
        """Whether ragauge made the run: its rows are the hits as returned, and a document may be repeated."""
        return (self.manifest.get("plan") or {}).get("k") is not None

    @property
    def notes(self) -> list[Note]:
        """Limitations of the run that its manifest states."""
        return [Note(text, self.name) for text in self.manifest.get("notes") or ()]

    def trials(self) -> list[Run]:
        """Return each trial as a separate run.

        A query that failed in a trial is only in its timings.
        """
        if self.repeats is None:
            return [self]
        import polars as pl

        source = self.repeats if self.timings is None else self.timings
        times = range(1, 1 + max((int(repeat) for repeat in source["repeat"].unique()), default=0))
        tables = [self.table, *(self.repeats.filter(pl.col("repeat") == time).drop("repeat") for time in times)]
        return [
            Run(
                table,
                self.name,
                None if self.timings is None else self.timings.filter(pl.col("repeat") == time),
                self.manifest,
            )
            for time, table in enumerate(tables)
        ]

    def differing(self) -> list[Run]:
        """Return the trials as runs if their rankings differ, else an empty list."""
        trials = self.trials()
        return trials if have_different_rankings(trials) else []

    def frames(self, prepare: FrameTransform = identity_transform) -> Iterator[pl.DataFrame]:
        """Yield the table as one frame."""
        yield prepare(self.table)

    @property
    def nested(self) -> dict[str, dict[str, float]]:
        """`{query: {document: score}}`.

        Of a document returned more than once, the first score is used.
        """
        scores: dict[str, dict[str, float]] = {}
        for query, doc, score in self.table.select("query", "doc", "score").iter_rows():
            scores.setdefault(query, {}).setdefault(doc, score)
        return scores

    def __repr__(self) -> str:
        text = f"Run({self.name!r}, {self.table['query'].n_unique()} queries, {self.table.height} rows)"
        return append_notes(text, self.notes)


def have_different_rankings(runs: Sequence[Run]) -> bool:
    """Return whether any of the runs returned other documents, or in another order, than the first."""
    rankings = []
    for run in runs:
        has_ranks = "rank" in run.table.columns
        order = run.table.sort(
            "query", "rank" if has_ranks else "score", descending=[False, not has_ranks], maintain_order=True
        )
        rankings.append(order.select("query", "doc"))
    return any(not frame.equals(rankings[0]) for frame in rankings[1:])


class MeasureDict(dict[str, V]):
    """A dictionary by canonical measure name that also accepts every other name of a measure.

    >>> MeasureDict({"ndcg@10": 0.5}, str.lower)["nDCG@10"]
    0.5
    """

    def __init__(self, values: Mapping[str, V], canonical: Callable[[str], str]) -> None:
        super().__init__(values)
        self._canonical = canonical

    def __missing__(self, key: str) -> V:
        name = self._canonical(key)
        if name == key or name not in self.keys():
            raise KeyError(key)
        return self[name]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (isinstance(key, str) and super().__contains__(self._canonical(key)))

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a measure by any of its names."""
        return self[key] if key in self else default  # noqa: SIM401 - `get` is what is being defined


@json_form(
    omitted=("judged",),
    optional=("notes", "lower_is_better", "direction_unstated", "rel", "failures", "fingerprints", "trial_means"),
)
@dataclass(frozen=True, eq=False)
class Scores(TabularResult, report="ragauge.evaluation.scores_views"):
    """Scores per query and measure, with the reason of each missing score, and means with their number of queries."""

    run: str
    """Name of the run."""
    convention: str
    """Convention with which the scores were computed."""
    queries: list[str]
    """All judged queries, in the order of the judgments."""
    values: MeasureDict[Floats]
    """Score of each query by canonical measure name; NaN if a query is unscored."""
    means: MeasureDict[float]
    """Mean over the scored queries by measure (a sum for counts, a geometric mean for `gm_` measures)."""
    unscored: MeasureDict[Mapping[str, str]]
    """Unscored queries by measure, each with its reason."""
    notes: Sequence[str] = ()
    """Limitations of the scores that a reader should know."""
    lower_is_better: frozenset[str] = frozenset()
    """The lower-is-better measures."""
    direction_unstated: frozenset[str] = frozenset()
    """Measures whose direction is not stated. `compare` derives it from their names, otherwise higher is better."""
    rel: float | None = None
    """Minimum relevant grade, if known."""
    judge: str = ""
    """Judge, if it was a model; scores of different judges are not compared."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{query: error}` of the judged queries that the system failed on; each counts as an empty ranking."""
    fingerprints: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Short hashes of query and reference answer by query, if known."""
    trial_means: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Mean of each trial by measure, if the rankings differ between trials; `means` and `values` are means of them."""
    judged: Any = field(default=None, repr=False)
    """Judged ranks behind the scores, for other measures without reading the run again."""

    @property
    def measures(self) -> list[str]:
        """Canonical names of the measures."""
        return list(self.values)

    @property
    def n(self) -> MeasureDict[int]:
        """Number of scored queries by measure."""
        return self._by_measure({name: len(self.queries) - len(self.unscored[name]) for name in self.values})

    @property
    def n_trials(self) -> int:
        """Number of trials whose scores were averaged; 1 if there is one or if all rankings are the same."""
        return len(next(iter(self.trial_means.values()), (0.0,)))

    def is_lower_better(self, measure: str) -> bool | None:
        """Return whether lower values of a measure are better; None if it is not stated."""
        return None if measure in self.direction_unstated else measure in self.lower_is_better

    @cached_property
    def per_query(self) -> MeasureDict[dict[str, float]]:
        """`{measure: {query: score}}`, scored queries only."""
        return self._by_measure(
            {
                name: {q: v for q, v in zip(self.queries, column.tolist(), strict=True) if not math.isnan(v)}
                for name, column in self.values.items()
            }
        )

    def _by_measure(self, values: Mapping[str, V]) -> MeasureDict[V]:
        return MeasureDict(values, self.values._canonical)

    def to_polars(self) -> pl.DataFrame:
        """Convert to a polars frame with one row per query and measure.

        Columns are `run`, `query`, `measure`, `value`, and `lower_is_better`, which is null if unknown.
        """
        import polars as pl

        parts = [
            pl.DataFrame({"query": self.queries, "value": column}).select(
                pl.lit(self.run).alias("run"),
                "query",
                pl.lit(name).alias("measure"),
                pl.col("value").fill_nan(None),
                pl.lit(self.is_lower_better(name), dtype=pl.Boolean).alias("lower_is_better"),
            )
            for name, column in self.values.items()
        ]
        schema = {"run": pl.String, "query": pl.String, "measure": pl.String, "value": pl.Float64}
        return pl.concat(parts) if parts else pl.DataFrame(schema={**schema, "lower_is_better": pl.Boolean})

    def __getitem__(self, measure: str) -> float:
        """Return the mean of a measure by any of its names."""
        if measure not in self.means:
            raise UnknownName("measure", str(measure), self.measures, of=f"the scores of {self.run}")
        return self.means[measure]

    def __repr__(self) -> str:
        return append_notes(self._describe(), self.notes)

    def _describe(self) -> str:
        """Describe the scores in one line, without their notes."""
        means = ", ".join(f"{name} {value:.4f} (n={self.n[name]})" for name, value in self.means.items())
        failed = describe_failures(self.failures, len(self.queries))
        over = f"; mean over {self.n_trials} trials" if self.n_trials > 1 else ""
        return f"Scores({self.run!r}, {self.convention}: {means}{over}{'; ' if failed else ''}{failed})"
