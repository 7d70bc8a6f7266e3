"""Analysis of a corpus as a graph: whether its links lead to relevant documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.components import build_component, check_spec, iterate_plugins
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.findings import HistogramBin
from ragauge.core.graphs import Graph
from ragauge.core.plugins import check_installed
from ragauge.core.protocols import Embedder, GraphBuilder
from ragauge.core.records import Dataset, Ints
from ragauge.core.settings import Above, Below, check_int, check_number, unique_by
from ragauge.core.specs import parse_specs
from ragauge.core.structured_text import parse_json
from ragauge.core.vectors import to_unit_rows
from ragauge.datasets import folders
from ragauge.datasets.queries import restrict_queries, self_documents
from ragauge.files.workspace import cache_folder
from ragauge.knowledge.graph.distances import (
    RankedQuery,
    clustering_coefficient,
    component_labels,
    count_by_distance,
    link_relevance,
    summarise_reach,
)
from ragauge.knowledge.graph.results import DegreeSummary, GraphAnalysis, Hub, LinkKind, QueryReach, SharedLinks
from ragauge.measures.conventions import find_convention
from ragauge.models.embedders import CachedEmbedder, open_embedder
from ragauge.models.embedders.embedding import BatchedEmbedder
from ragauge.output.numbers import pluralise
from ragauge.runs.folder import dataset_fingerprint, provenance, utc_now
from ragauge.runs.texts import load_dataset_or_corpus
from ragauge.systems.graph_corpus import DEFAULT_GRAPH, LinkedCorpus
from ragauge.systems.graph_links import UNKNOWN_IDS, MetadataLinks, find_link_field

DEFAULT_SEEDS = 10
"""Number of seeds, the default of graph retrievers."""
MAX_HUBS = 10
MAX_TITLE_CHARS = 80
"""Number of characters of the text shown for a document without a title."""
MAX_COMPONENTS_LISTED = 5
"""Number of largest components whose sizes are listed."""
MAX_DEGREE_BARS = 24
"""Maximum number of regular bars in the degree histogram; one more bar holds the rest."""
HISTOGRAM_QUANTILE = 0.99
"""Quantile of the degrees covered by regular bars of the histogram."""
MAX_LINES_SCANNED = 1000
"""Number of corpus lines scanned for links outside `metadata`."""
QUERY_BATCH_SIZE = 256
"""Number of queries whose similarities to all documents are in memory at once."""


def graph(
    dataset: Any,
    graph: Any = DEFAULT_GRAPH,
    *,
    embedder: str | Embedder = "wordllama",
    seeds: int = DEFAULT_SEEDS,
    max_queries: int | None = None,
    split: str | None = None,
    confidence: float = 0.95,
    progress: ProgressCallback = no_progress,
) -> GraphAnalysis:
    """Analyse a corpus as a graph: links, components, hubs and distances.

    `dataset` is the name of a dataset, a BEIR folder, a Dataset, or a corpus without queries: a file, a folder of
    texts, or Documents. `graph` says what links documents, as for graph retrievers: descriptions joined by `+`
    (`links+knn(neighbours=8)`), several descriptions, or objects with `name` and `link`. If there are judgments, the
    `seeds` documents most similar to each query by the `embedder` are the start. The result has the distance in links
    from there to the relevant documents and to all others. This is an analysis only; no system uses it.

    >>> found = graph("synthetic:multihop(documents=60, queries=5)", "knn(neighbours=4)", embedder="words", seeds=2)
    >>> found.documents, found.queries, [one.name for one in found.kinds]
    (60, 5, ['knn(neighbours=4)'])
    """
    check_int("seeds", seeds)
    check_number("confidence", confidence, Above(0), Below(1))
    if max_queries is not None:
        check_int("max_queries", max_queries)
    linkers = _open_linkers(graph)
    if isinstance(embedder, str):
        check_spec("embedders", embedder)
        check_installed(iterate_plugins("embedders", embedder))
    elif not callable(getattr(embedder, "embed", None)):
        raise BadInput(f"{type(embedder).__name__} is not an embedder: it has no method `embed`")
    progress(Progress("reading"))
    data = load_dataset_or_corpus(dataset, split)
    if not data.documents:
        raise BadInput(f"no documents in {data.name}", hint="check the path and the file format")
    terrain = _embed_corpus(data.documents, embedder, progress)
    progress(Progress("linking"))
    links = {builder.name: builder.link(data.documents, terrain.vectors) for builder in linkers}
    ids = [document.id for document in data.documents]
    full_graph = Graph.of(ids, links)
    graphs_by_kind = {name: Graph.of(ids, {name: matrix}) for name, matrix in links.items()}
    progress(Progress("counting"))
    sizes = np.sort(np.bincount(component_labels(full_graph)))[::-1]
    data, relevant, notes = _find_relevant_rows(data, terrain, max_queries)
    linked_graphs = {name: graph for name, graph in graphs_by_kind.items() if graph.links}
    graphs = {"": full_graph, **(linked_graphs if len(linked_graphs) > 1 else {})}
    progress(Progress("walking"))
    rows = count_by_distance(graphs, _rank_queries(data, relevant, terrain, seeds)) if relevant else {}
    return GraphAnalysis(
        corpus=data.name,
        documents=len(full_graph),
        links=full_graph.links,
        kinds=_link_kinds(graphs_by_kind),
        degrees=_degree_summary(full_graph),
        components=len(sizes),
        largest=sizes[:MAX_COMPONENTS_LISTED].tolist(),
        clustering=clustering_coefficient(full_graph),
        hubs=_find_hubs(full_graph, data.documents),
        shared=_shared_links(linked_graphs),
        embedder=terrain.embedder.name,
        seeds=seeds,
        queries=len(relevant),
        confidence=confidence,
        reach=summarise_reach(rows, len(full_graph), confidence) if rows else [],
        link_relevance=link_relevance(graphs, list(relevant.values())) if rows else [],
        warnings=_link_warnings(linkers, data.documents, dataset),
        notes=[*_skipped_notes(full_graph, linkers), *notes, *_lost_query_notes(rows.get("", ()))],
        provenance={
            "made": utc_now(),
            "dataset": dataset_fingerprint(data),
            "graph": full_graph.about(),
            "embedder": terrain.embedder.name,
            "seeds": seeds,
            "confidence": confidence,
            **provenance(),
        },
    )


def _open_linkers(links: Any) -> list[GraphBuilder]:
    """Return the linkers; a mistake is raised before any data is read."""
    descriptions = [links] if isinstance(links, str) or not isinstance(links, Iterable) else list(links)
    builders: list[GraphBuilder] = []
    for description in descriptions:
        if not isinstance(description, str):
            if not isinstance(description, GraphBuilder):
                raise BadInput(
                    f"{type(description).__name__} is not a linker",
                    hint="a linker has a `name` and a method `link(documents, vectors)`",
                )
            builders.append(description)
            continue
        for spec in parse_specs(description, "graph"):
            check_spec("graphs", spec)
            builders.append(build_component("graphs", spec))
    if not builders:
        raise BadInput("no links given", hint=f"--graph {'+'.join(DEFAULT_GRAPH)}")
    return unique_by(builders, attrgetter("name"), "kind of links", hint="remove one of them")


def _embed_corpus(documents: Sequence[Document], described: str | Embedder, progress: ProgressCallback) -> LinkedCorpus:
    """Embed the documents, using the cache for a described embedder.

    Links are added later.
    """
    embedder = open_embedder(described, [document.whole for document in documents], progress)
    document_embedder = (
        CachedEmbedder(embedder, cache_folder() / "embeddings") if isinstance(described, str) else embedder
    )
    return LinkedCorpus(documents, embedder, [], document_embedder=BatchedEmbedder(document_embedder, progress))


def _find_relevant_rows(
    data: Dataset, terrain: LinkedCorpus, max_queries: int | None
) -> tuple[Dataset, dict[str, Ints], list[str]]:
    """Return the dataset, the relevant rows by query, and notes.

    Queries without a relevant document in the corpus are left out.
    """
    if not data.queries:
        return data, {}, ["no queries: distances of relevant documents cannot be computed"]
    data, notes = restrict_queries(data, max_queries)
    min_grade, missing = find_convention("default").rel, 0
    relevant_rows: dict[str, Ints] = {}
    for query in data.queries:
        relevant_docs = [doc for doc, grade in data.judgments.nested.get(query, {}).items() if grade >= min_grade]
        rows = [terrain.rows[doc] for doc in relevant_docs if doc in terrain.rows]
        missing += len(relevant_docs) - len(rows)
        if rows:
            relevant_rows[query] = np.array(rows, np.int64)
    n_without = len(data.queries) - len(relevant_rows)
    if n_without:
        notes.append(
            f"{n_without:,} of {pluralise(len(data.queries), 'query')} left out: no relevant document in the corpus"
        )
    if missing:
        notes.append(f"{pluralise(missing, 'relevant document')} not counted: not in the corpus")
    return data, relevant_rows, notes


def _rank_queries(
    data: Dataset, relevant: Mapping[str, Ints], terrain: LinkedCorpus, seeds: int
) -> Iterator[RankedQuery]:
    """Yield each query with all documents by descending similarity.

    Ties are in corpus order.
    """
    self_docs = self_documents(data, data.queries)
    names = list(relevant)
    for first in range(0, len(names), QUERY_BATCH_SIZE):
        batch = names[first : first + QUERY_BATCH_SIZE]
        vectors = to_unit_rows(terrain.embedder.embed([data.queries[name] for name in batch]))
        for name, vector, similarities in zip(batch, vectors, vectors @ terrain.vectors.T, strict=True):
            order = np.argsort(-similarities, kind="stable")
            if name in self_docs:
                order = order[order != terrain.rows[name]]
            yield RankedQuery(name, relevant[name], order, seeds if vector.any() else 0)


def _lost_query_notes(rows: Sequence[QueryReach]) -> list[str]:
    lost = sum(not row.relevant[0] + row.others[0] for row in rows)
    return [f"{pluralise(lost, 'query')} without a vector: no seeds, so no document is reached"] if lost else []


def _link_kinds(graphs: Mapping[str, Graph]) -> list[LinkKind]:
    keys = {name: _linked_pairs(graph) for name, graph in graphs.items()}
    links, times = np.unique(np.concatenate(list(keys.values())), return_counts=True)
    single = links[times == 1]
    return [
        LinkKind(name, graph.links, int(np.isin(keys[name], single).sum()), int((graph.degrees > 0).sum()))
        for name, graph in graphs.items()
    ]


def _shared_links(graphs: Mapping[str, Graph]) -> list[SharedLinks]:
    keys = {name: _linked_pairs(graph) for name, graph in graphs.items()}
    return [
        SharedLinks(one, other, len(np.intersect1d(keys[one], keys[other], assume_unique=True)))
        for one, other in combinations(keys, 2)
    ]


def _linked_pairs(graph: Graph) -> Ints:
    """Return a unique number for each pair of linked nodes."""
    once = graph.sources < graph.ends
    return graph.sources[once] * len(graph) + graph.ends[once]


def _degree_summary(graph: Graph) -> DegreeSummary:
    degrees = graph.degrees
    isolated = int((degrees == 0).sum())
    return DegreeSummary(
        float(degrees.mean()), float(np.median(degrees)), int(degrees.max()), isolated, _degree_bars(degrees)
    )


def _degree_bars(degrees: Ints) -> list[HistogramBin]:
    """Count nodes by degree.

    The last bar holds the few hubs, so that the others stay distinct.

    >>> _degree_bars(np.array([0, 1, 1, 2]))
    [HistogramBin(low=0, high=1, n=1), HistogramBin(low=1, high=2, n=2), HistogramBin(low=2, high=3, n=1)]
    """
    upper_edge = int(degrees.max()) + 1
    width = -(-(int(np.quantile(degrees, HISTOGRAM_QUANTILE)) + 1) // MAX_DEGREE_BARS)
    edges = [*range(0, upper_edge, width)[: MAX_DEGREE_BARS + 1], upper_edge]
    counts = np.histogram(degrees, edges)[0].tolist()
    return [HistogramBin(low, high, n) for low, high, n in zip(edges, edges[1:], counts, strict=False)]


def _find_hubs(graph: Graph, documents: Sequence[Document]) -> list[Hub]:
    first = np.argsort(-graph.degrees, kind="stable")[:MAX_HUBS]
    hubs = [(documents[row], int(graph.degrees[row])) for row in first.tolist()]
    return [
        Hub(document.id, document.title or document.text[:MAX_TITLE_CHARS], links) for document, links in hubs if links
    ]


def _link_warnings(linkers: Sequence[GraphBuilder], documents: Sequence[Document], dataset: Any) -> list[str]:
    """Return possible problems with the links stored in documents."""
    warnings = [line for links in linkers if isinstance(links, MetadataLinks) for line in links.doubts(documents)]
    field = _misplaced_field(documents, dataset) if warnings else None
    if field is not None:
        warnings.append(f"The field `{field}` names documents, but is not in `metadata`, so it is not read.")
    return warnings


def _misplaced_field(documents: Sequence[Document], dataset: Any) -> str | None:
    """Return a field that names documents outside `metadata`, or None.

    Only the first lines of a JSONL corpus are scanned.
    """
    path = Path(dataset) if isinstance(dataset, str | Path) else Path()
    if path.is_dir():
        path = (folders.find_dataset_folder(path) or path) / "corpus.jsonl"
    if path.suffix != ".jsonl" or not path.is_file():
        return None
    with path.open(encoding="utf-8-sig", errors="replace") as lines:  # read before, so every line is JSON
        rows = [parse_json(line) for line in islice(lines, MAX_LINES_SCANNED) if line.strip()]
    return find_link_field({document.id: None for document in documents}, ({**row, "metadata": None} for row in rows))


def _skipped_notes(graph: Graph, linkers: Sequence[GraphBuilder]) -> list[str]:
    """Return notes on links that were skipped, except those reported as warnings."""
    reported_kinds = {builder.name for builder in linkers if isinstance(builder, MetadataLinks)}
    return [
        f"{kind}: skipped {count:,} {why}"
        for kind, whys in graph.skipped.items()
        for why, count in whys.items()
        if kind not in reported_kinds or why != UNKNOWN_IDS
    ]
