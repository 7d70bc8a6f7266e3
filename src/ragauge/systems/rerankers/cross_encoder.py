"""Rerank with a cross-encoder, which reads query and document together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.errors import BadInput
from ragauge.records import Hit
from ragauge.systems.model_folders import load


class CrossEncoder:
    """Reranker with a sentence-transformers cross-encoder, from a folder or, if allowed, from the hub."""

    def __init__(self, model: str, *, batch: int = 32, device: str | None = None, download: bool = False) -> None:
        what = "the reranker `cross-encoder`"
        self._model: Any = load("CrossEncoder", model, what=what, device=device, download=download)
        labels = int(self._model.config.num_labels)
        if labels != 1:
            raise BadInput(f"the model `{model}` gives {labels} numbers for a pair, and no single score")
        self._batch = batch

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits in order of the model's score; ties keep their order."""
        if not hits:
            return []
        scores = np.asarray(
            self._model.predict([(query, hit.text) for hit in hits], batch_size=self._batch, show_progress_bar=False),
            np.float64,
        ).reshape(-1)
        return [hits[i]._replace(score=float(scores[i])) for i in np.argsort(-scores, kind="stable").tolist()]
