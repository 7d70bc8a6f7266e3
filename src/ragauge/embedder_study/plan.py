"""Settings and defaults of an embedder study, and its view of the dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypedDict

from ragauge.compute.progress import ProgressCallback, scoped
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Dataset, Scores
from ragauge.core.settings import Above, AtLeast, AtMost, Below, check_settings, unique_by
from ragauge.core.specs import parse_spec, redact_spec
from ragauge.core.summaries import Mean
from ragauge.datasets.perturbations import DEFAULT_RATE
from ragauge.datasets.queries import describe_self_documents, restrict_queries, self_documents
from ragauge.embedder_study import variations
from ragauge.embedder_study.results import EmbedderResult, PerturbationResult
from ragauge.embedder_study.scoring import RankingTask, all_means_with_intervals
from ragauge.embedder_study.timing_and_memory import StageTimes
from ragauge.evaluation import Measures
from ragauge.files.serialization import settings_from
from ragauge.measures.conventions import Convention
from ragauge.output.numbers import pluralise
from ragauge.runs.execution import build_warm_up_queries

STUDY_MEASURES = (
    *("ndcg@10", "mrr@10", "recall@1", "recall@5", "recall@10"),
    *("precision@1", "precision@5", "precision@10"),
)
STUDY_STORES = ("exact", "pgvector(index=none)", "pgvector(index=hnsw)")
STUDY_BASELINES = ("bm25", "chance")
"""Baselines added to every study unless they are switched off."""
STUDY_EMBEDDERS: Mapping[str, str] = {
    "wordllama": "wordllama",
    "minilm": "minilm",
    "lstm-bpe": "lm(kind=lstm, tokenizer=bpe(vocabulary=4000), objective=pairs)",
    "transformer-bpe": "lm(kind=transformer, tokenizer=bpe(vocabulary=4000), objective=pairs)",
    "transformer-bytes": "lm(kind=transformer, tokenizer=bytes, objective=pairs)",
    "next-bpe": "lm(kind=transformer, tokenizer=bpe(vocabulary=4000), objective=next)",
    "next-bytes": "lm(kind=transformer, tokenizer=bytes, objective=next)",
    "untrained-bpe": "lm(kind=transformer, tokenizer=bpe(vocabulary=4000), objective=pairs, trained=false)",
    "untrained-bytes": "lm(kind=transformer, tokenizer=bytes, objective=pairs, trained=false)",
    "untrained-byt5": "encoder(model=byt5-mini, untrained=true)",
}
"""Embedders compared by default: each is shipped, trained on the corpus, or has random weights."""


@dataclass(frozen=True)
class StudySettings:
    """Settings applied to every embedder of a study."""

    context: Annotated[int, AtLeast(0)] | None = 512
    """Number of characters after which every text is cut; 0 cuts none."""
    part: str = "whole"
    """Part of a document that is embedded: `whole`, `text` or `title`."""
    stores: Sequence[str] = STUDY_STORES
    """Vector stores. Queries are timed end to end through the first; the others search with the same vectors."""
    k: Annotated[int, AtLeast(1), AtMost(10_000_000)] = 10
    """Hits per query; raised if a measure has a larger cutoff."""
    dimensions: Sequence[Annotated[int, AtLeast(1)]] | None = None
    """Numbers of dimensions to reduce vectors to. None: powers of two. Empty: no reduction."""
    sizes: Sequence[Annotated[int, AtLeast(1)]] | None = None
    """Corpus sizes in documents. None: 750, 1500, 3000 and so on. Empty: the full corpus only."""
    perturbations: Sequence[str] | None = None
    """Query perturbations. None: some of each kind. Empty: none."""
    rate: Annotated[float, Above(0), AtMost(1)] = DEFAULT_RATE
    """Share of the words that a perturbation may change."""
    seeds: Annotated[int, AtLeast(1), AtMost(1000)] = 1
    """Number of seeds for a random perturbation."""
    timed: Annotated[int, AtLeast(1)] | None = None
    """Number of queries timed one by one, evenly spaced; None for all of them."""
    warmup: Annotated[int, AtLeast(0), AtMost(1_000_000)] = 5
    """Number of untimed warm-up queries."""
    threads: Annotated[int, AtLeast(1), AtMost(10_000)] = 1
    """Threads of numeric libraries while queries are timed; documents are embedded with all threads."""
    memory: bool = True
    """Whether memory is measured, in a separate process per embedder."""
    tokens: bool = True
    """Whether the tokenizers of embedders are measured."""
    confidence: Annotated[float, Above(0), Below(1)] = 0.95
    seed: Annotated[int, AtLeast(0), AtMost(2**63 - 1)] = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.stores:
            raise BadInput("no store given", hint="give one, e.g. exact")

    @property
    def redacted(self) -> dict[str, object]:
        """Settings as a mapping, without the secrets in store descriptions."""
        return {**asdict(self), "stores": [str(redact_spec(parse_spec(store))) for store in self.stores]}

    @property
    def characters(self) -> int | None:
        """Number of characters kept of each text; None for all."""
        return self.context or None


@dataclass(frozen=True)
class StudyScope:
    """Queries, measures and baselines of a study."""

    split: str | None = None
    """Judgments of a BEIR folder: `test`, `train` or `dev`."""
    max_queries: int | None = None
    """Maximum number of queries."""
    measures: Measures | None = None
    """Measures; the first is that of curves and losses. None: STUDY_MEASURES."""
    convention: str | Convention = "default"
    baselines: bool = True
    """Whether BM25 and chance are added."""


class StudyOptions(TypedDict, total=False):
    """Keywords of `ragauge.compare_embedders`: the fields of `StudyScope` and of `StudySettings`."""

    split: str | None
    max_queries: int | None
    measures: Measures | None
    convention: str | Convention
    baselines: bool
    context: int | None
    part: str
    stores: Sequence[str]
    k: int
    dimensions: Sequence[int] | None
    sizes: Sequence[int] | None
    perturbations: Sequence[str] | None
    rate: float
    seeds: int
    timed: int | None
    warmup: int
    threads: int
    memory: bool
    tokens: bool
    confidence: float
    seed: int


def parse_options(options: StudyOptions) -> tuple[StudyScope, StudySettings]:
    """Split keywords into the scope and the settings; None selects a default, and unknown names are refused."""
    names = {field.name for field in fields(StudyScope)}
    values: dict[str, Any] = dict(options)
    scope = {name: value for name, value in values.items() if name in names and value is not None}
    settings = {name: value for name, value in values.items() if name not in names}
    return StudyScope(**scope), settings_from(StudySettings, settings)


QUICK_SETTINGS: StudyOptions = {
    "stores": ("exact",),
    "dimensions": (),
    "sizes": (),
    "perturbations": (),
    "memory": False,
    "timed": 100,
}
"""Settings of a quick study."""


DOCUMENT_PARTS: Mapping[str, Callable[[Document], str]] = {
    "whole": lambda document: document.whole,
    "text": lambda document: document.text,
    "title": lambda document: document.title,
}
"""Parts of a document that can be embedded, with the function that returns each."""


def document_part(name: str) -> Callable[[Document], str]:
    """Return the function that extracts a part of a document.

    Raise UnknownName for another part.
    """
    if name not in DOCUMENT_PARTS:
        raise UnknownName("part", name, DOCUMENT_PARTS, of="a document")
    return DOCUMENT_PARTS[name]


@dataclass(frozen=True, eq=False)
class DatasetView:
    """Documents and queries of a dataset as they are embedded."""

    dataset: Dataset
    """Original dataset, limited to the queries that are run and their judgments."""
    documents: list[Document]
    """Documents with only their id and the text to embed."""
    queries: dict[str, str]
    """Judged queries, cut to the same length."""
    part: str
    context: int | None
    """Number of characters kept of each text; None for all."""
    truncated: float
    """Share of the documents that are longer."""
    queries_in_corpus: frozenset[str]
    """Queries that are also documents of the corpus, with the same id. Finding itself is not a success."""
    notes: list[str]

    @property
    def texts(self) -> dict[str, str]:
        """Document texts by id."""
        return {document.id: document.text for document in self.documents}


def build_view(
    dataset: Dataset, *, part: str = "whole", context: int | None = None, max_queries: int | None = None
) -> DatasetView:
    """Build the view of a dataset.

    `max_queries` is the maximum number of queries. BadInput is raised if there are no documents or no judged queries.

    >>> from ragauge.core.records import Judgments
    >>> data = Dataset("d", [Document("1", "some words", "Title")], {"q": "which words"}, Judgments({"q": {"1": 1}}))
    >>> seen = build_view(data, context=8)
    >>> seen.documents[0].text, seen.queries, seen.truncated
    ('Title so', {'q': 'which wo'}, 1.0)
    """
    extract_part = document_part(part)
    _check_documents(dataset)
    texts = [extract_part(document) for document in dataset.documents]
    if part == "title" and not any(text.strip() for text in texts):
        raise BadInput(f"no document of {dataset.name} has a title", hint="use the part `whole` or `text`")
    limited, notes = restrict_queries(dataset, max_queries)
    judged = {query: text for query, text in limited.queries.items() if query in limited.judgments.nested}
    if not judged:
        raise BadInput(
            f"no query of {dataset.name} that is run is judged", hint="use a dataset with judgments of these queries"
        )
    if len(judged) < len(limited.queries):
        unjudged = pluralise(len(limited.queries) - len(judged), "query is", "queries are")
        notes.append(f"{unjudged} not judged and not run")
    empty = sum(not text.strip() for text in texts)
    if empty:
        notes.append(f"{empty:,} of {len(texts):,} documents are empty in this part")
    self_queries = self_documents(dataset, judged)
    notes += describe_self_documents(self_queries)
    return DatasetView(
        limited,
        [Document(document.id, text[:context]) for document, text in zip(dataset.documents, texts, strict=True)],
        {query: text[:context] for query, text in judged.items()},
        part,
        context,
        0.0 if context is None else sum(len(text) > context for text in texts) / len(texts),
        self_queries,
        notes,
    )


def _check_documents(dataset: Dataset) -> None:
    if not dataset.documents:
        raise BadInput(f"{dataset.name} has no documents")
    unique_by(dataset.documents, attrgetter("id"), "document", file=dataset.name, hint="`ragauge lint` finds them all")


@dataclass(frozen=True, eq=False)
class StudyContext:
    """Shared inputs of a study: texts, queries, ranking task and settings."""

    view: DatasetView
    task: RankingTask
    settings: StudySettings
    cache: Path | None
    progress: ProgressCallback

    @cached_property
    def texts(self) -> dict[str, str]:
        """Document texts by id."""
        return self.view.texts

    @cached_property
    def warmup_texts(self) -> list[str]:
        """Texts for warm-up queries."""
        return build_warm_up_queries(self.view.documents, self.view.queries, self.settings.warmup, self.settings.seed)

    @cached_property
    def rarity(self) -> dict[str, int]:
        """Document frequency of each word."""
        return variations.document_frequencies(self.texts.values())

    def means(self, several: Sequence[Scores]) -> list[dict[str, Mean]]:
        """Compute the means of several scores with confidence intervals."""
        return all_means_with_intervals(several, self.settings.confidence, self.settings.seed)


@dataclass(frozen=True, eq=False)
class EmbedderMeasurement:
    """Measured embedder with its ranking and times."""

    result: EmbedderResult
    """Result without differences from the baseline, which need the other embedders."""
    ranking: Mapping[str, Sequence[tuple[str, float]]]
    """Documents found for each query, best first, with their scores."""
    times: Mapping[str, StageTimes] = field(default_factory=dict)
    """Times of the queries that were timed through the first store."""
    compressors: Mapping[str, float] = field(default_factory=dict)
    """Bits per byte of compressors, if the embedder is a language model."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Measuring time in seconds, by step."""


def corpus_sizes(context: StudyContext) -> list[int]:
    """Return the corpus sizes to evaluate, the full corpus last.

    Empty if no smaller size fits.
    """
    n_documents, n_relevant = len(context.view.documents), len(context.task.relevant)
    requested = variations.CORPUS_SIZES if context.settings.sizes is None else context.settings.sizes
    fitting = sorted({size for size in requested if n_relevant <= size < n_documents})
    return [*fitting, n_documents] if fitting else []


def perturbation_results(
    context: StudyContext, name: str, clean: Scores, answer: Callable[[Mapping[str, str]], Scores]
) -> list[PerturbationResult]:
    """Measure the effect of query perturbations on a system that `answer` scores."""
    settings = context.settings
    if settings.perturbations is not None and not settings.perturbations:
        return []
    return variations.evaluate_perturbations(
        context.view.queries,
        clean,
        answer,
        variations.PerturbationOptions(
            kinds=settings.perturbations,
            rate=settings.rate,
            seeds=settings.seeds,
            rarity=context.rarity,
            context=context.view.context,
        ),
        confidence=settings.confidence,
        seed=settings.seed,
        progress=scoped(context.progress, subject=name),
    )
