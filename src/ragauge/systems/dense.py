"""Dense retrieval: an embedder and a vector store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import DocumentEmbedder, Part
from ragauge.core.protocols import Embedder, Store, Vectors
from ragauge.core.stages import stage
from ragauge.models.optional_attributes import EmbedderAttributes
from ragauge.stores.search_results import check_neighbours
from ragauge.stores.store_types import complete_store

MAX_DOCUMENTS_COUNTED = 10_000
"""Maximum number of documents whose tokens are counted, evenly spaced, for the share of truncated ones."""


class DenseRetriever:
    """Retriever that embeds the documents into a vector store, and each query when it is run.

    `document_embedder` may be cached or use another prompt. Queries always use `embedder`, so that the embedding time
    is measured. A text whose vector is all zeros, such as an empty one, is never found as a document and finds nothing
    as a query.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        embedder: Annotated[Embedder, Part("wordllama")],
        store: Annotated[Store, Part("exact")],
        *,
        document_embedder: Annotated[Embedder | None, DocumentEmbedder("embedder")] = None,
    ) -> None:
        self._embedder = embedder
        self._store = complete_store(store)
        self._documents = {document.id: document for document in documents}
        if not documents:
            return
        vectors = (document_embedder or embedder).embed([document.whole for document in documents])
        if len(vectors) != len(documents):
            raise BadInput(f"the embedder `{embedder.name}` returned {len(vectors)} vectors for {len(documents)} texts")
        is_nonzero: NDArray[np.bool_] = np.any(vectors, axis=1)
        ids = [documents[row].id for row in np.flatnonzero(is_nonzero).tolist()]
        if ids:
            self._store.add(ids, vectors if is_nonzero.all() else vectors[is_nonzero])
            self._store.build()  # Otherwise the first query would include building the index.

    def __contains__(self, id: object) -> bool:
        return id in self._documents

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the nearest `k` documents; the score is 1 - distance.

        For metric cosine this is the cosine.
        """
        with stage("embed"):
            vector = self._embedder.embed([query])
        if not np.any(vector):
            return []
        with stage("retrieve"):
            answer = self._store.search(vector, k)
        (ids,), (distances,) = check_neighbours(answer, 1, k)
        return [
            Hit(name, 1.0 - float(distance), self._documents[name].text, self._documents[name].metadata)
            for name, distance in zip(ids, distances, strict=True)
            if name is not None
        ]

    def evidence(self, query: str, k: int) -> dict[str, Any]:
        """Return the store's parameters, whether its index was used if that varies, and the embedder's size."""
        about = dict(self._store.describe())
        vector = self._embedder.embed([query])
        if about.get("index") != "none" and np.any(vector):
            used = self._store.index_used(vector[0], k)
            about |= {} if used is None else {"index_used": used}
        return {**about, "embedder": self._embedder.name, "embedding": self._describe_embedding(vector)}

    def _describe_embedding(self, vector: Vectors) -> dict[str, Any]:
        """Return the size of vectors and model, and the share of documents longer than the token limit."""
        attributes = EmbedderAttributes(self._embedder)
        dimension = int(vector.shape[1])
        about: dict[str, Any] = {
            "dimension": dimension,
            "bytes_per_vector": dimension * np.dtype(np.float32).itemsize,
            "parameters": attributes.parameters,
            "trained": attributes.trained,
            "limit": attributes.limit,
        }
        if attributes.has_limit and attributes.limit is None:
            about["truncated"] = 0.0
        elif attributes.limit is not None and attributes.tokens is not None and self._documents:
            step = -(-len(self._documents) // MAX_DOCUMENTS_COUNTED)
            texts = [document.whole for document in list(self._documents.values())[::step]]
            counts = np.asarray(attributes.tokens(texts)) + (attributes.marks or 0)
            about["truncated"] = float((counts > attributes.limit).mean())
        return {name: value for name, value in about.items() if value is not None}

    def close(self) -> None:
        """Close the vector store."""
        self._store.close()
