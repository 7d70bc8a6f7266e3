"""A cross-encoder reads query and document together: slow, and the strongest order for its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.errors import BackendFailed, BadInput, MissingExtra
from ragauge.records import Hit
from ragauge.systems.model_folders import refuse_code


class CrossEncoder:
    """Any cross-encoder of sentence-transformers, from a folder or, where that is allowed, from the hub."""

    def __init__(self, model: str, *, batch: int = 32, device: str | None = None, download: bool = False) -> None:
        try:
            import sentence_transformers
        except ImportError:
            raise MissingExtra("the reranker `cross-encoder`", "transformers") from None
        refuse_code(model)
        try:
            self._model: Any = sentence_transformers.CrossEncoder(
                model, device=device, local_files_only=not download, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise BackendFailed(
                f"the model `{model}` cannot be loaded: {(str(error).splitlines() or [''])[0]}",
                hint="give a folder with the model, or download=true to fetch it from the hub",
            ) from error
        labels = int(self._model.config.num_labels)
        if labels != 1:
            raise BadInput(f"the model `{model}` gives {labels} numbers for a pair, and no single score")
        self._batch = batch

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits in the order of the model's score; of equal scores the one that came first."""
        if not hits:
            return []
        scores = np.asarray(
            self._model.predict([(query, hit.text) for hit in hits], batch_size=self._batch, show_progress_bar=False),
            np.float64,
        ).reshape(-1)
        return [hits[i]._replace(score=float(scores[i])) for i in np.argsort(-scores, kind="stable").tolist()]
