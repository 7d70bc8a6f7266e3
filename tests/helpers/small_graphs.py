"""Small graphs for tests of graph systems: each text encodes a vector, and the links are given."""

from __future__ import annotations

import networkx as nx
import numpy as np
import rustworkx as rx

from ragauge.core.documents import Document
from ragauge.core.graphs import LinkArrays
from ragauge.core.plugin_parameters import read_parameters
from ragauge.systems.graph_corpus import LinkedCorpus


class Points:
    """Embedder that reads a vector from a text: "1 0" is the vector (1, 0)."""

    name = "points"

    def embed(self, texts):
        return np.array([[float(number) for number in text.split()] for text in texts], np.float32)


class FixedLinks:
    """Graph builder that returns the given links."""

    name = "fixed"

    def __init__(self, *links):
        self._links = links

    def link(self, documents, vectors):
        sources, targets, weights = zip(*self._links, strict=True) if self._links else ((), (), ())
        return LinkArrays(np.array(sources, np.int64), np.array(targets, np.int64), np.array(weights, float))


QUERY = "1 0"


def make_corpus(cosines, *links, metadata=None):
    """Return a corpus of documents a, b, c, … with the given cosines to QUERY and the given links.

    A link is (source, target, weight), with document numbers from 0. More than 26 documents are named d0000, d0001, …
    """
    texts = [f"{cosine!r} {float(np.sqrt(max(0, 1 - cosine**2)))!r}" for cosine in map(float, cosines)]
    names = [chr(ord("a") + i) if len(texts) <= 26 else f"d{i:04}" for i in range(len(texts))]
    mappings = metadata or [{} for _ in texts]
    documents = [Document(*row[:2], metadata=row[2]) for row in zip(names, texts, mappings, strict=True)]
    return LinkedCorpus(documents, Points(), [FixedLinks(*links)])


def ids(hits):
    return [hit.id for hit in hits]


def chi_squared_p(counts, expected):
    """Return the p-value of a chi-squared test of counts against expected probabilities."""
    from scipy.stats import chisquare

    return chisquare(counts, np.asarray(expected) * np.sum(counts)).pvalue


def build_walker(factory, corpus, **options):
    """Create a walker from flat options, as the system builder does."""
    return read_parameters(factory).call(options, {"corpus": corpus})


def list_edges(graph):
    """List each link of a graph once: two node numbers and the weight."""
    rows = zip(graph.sources.tolist(), graph.ends.tolist(), graph.weights.tolist(), strict=True)
    return [(source, target, weight) for source, target, weight in rows if source < target]


def to_networkx(graph):
    converted = nx.Graph()
    converted.add_nodes_from(graph.ids)
    edges = list_edges(graph)
    converted.add_weighted_edges_from((graph.ids[one], graph.ids[other], weight) for one, other, weight in edges)
    return converted


def to_rustworkx(graph):
    converted = rx.PyGraph(multigraph=False)
    converted.add_nodes_from(list(graph.ids))
    converted.add_edges_from(list_edges(graph))
    return converted
