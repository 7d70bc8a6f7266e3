"""Comparison of embedders: each one is a dense system of the same run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from ragauge.compute.progress import ProgressCallback, no_progress
from ragauge.core.errors import BadInput
from ragauge.core.plugins import plugin_names
from ragauge.core.settings import unique_by
from ragauge.core.specs import Spec, parse_spec, redact_spec, split_name
from ragauge.evaluation.evaluate import Measures
from ragauge.experiments.run import ExperimentOptions, run
from ragauge.measures.conventions import Convention
from ragauge.runs.results import Experiment

EMBEDDER_MEASURES = ("ndcg@10", "mrr@10", "recall@1", "recall@5", "recall@10", "precision@10")
DEFAULT_EMBEDDERS: Mapping[str, str] = {
    "wordllama": "wordllama",
    "minilm": "minilm",
    "lstm-bpe": "lstm",
    "untrained-lstm-bpe": "lstm(trained=false)",
    "untrained-byt5": "encoder(model=byt5-mini, untrained=true)",
}
"""Embedders compared by default: each is shipped, trained on the corpus, or has random weights."""
LEXICAL_BASELINE = "bm25"
"""System without vectors that is run with the embedders."""


def compare_embedders(
    dataset: Any = "pydocs",
    embedders: Any = DEFAULT_EMBEDDERS,
    *,
    store: str = "exact",
    baseline: str = LEXICAL_BASELINE,
    measures: Measures | None = EMBEDDER_MEASURES,
    convention: str | Convention = "default",
    out: str | Path | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[ExperimentOptions],
) -> Experiment:
    """Compare embedders on one dataset by quality, latency, build time and size.

    This is `run` with a system `dense(embedder=…, store=…)` per embedder, and BM25 for comparison. `embedders` maps
    names to descriptions (`"minilm"`, `"lstm(tokenizer=bytes)"`) or to objects with an `embed` method. It can also be a
    list of descriptions, each with an optional `NAME=` prefix. The manifest of each run has the size of its vectors and
    model, and the share of documents that are longer than the token limit. `options` are those of `run`.
    """
    systems = build_systems(embedders, store)
    return run(
        dataset,
        systems,
        measures=measures,
        baseline=baseline,
        convention=convention,
        out=out,
        progress=progress,
        **options,
    )


def build_systems(embedders: Any, store: str) -> dict[str, Any]:
    """Return a dense system per embedder, after BM25."""
    named = {name: _build_dense(embedder, store) for name, embedder in _name_embedders(embedders).items()}
    return {LEXICAL_BASELINE: LEXICAL_BASELINE, **named}


def _build_dense(embedder: Any, store: str) -> Any:
    if isinstance(embedder, str):
        return f"dense(embedder={embedder}, store={store})"
    if isinstance(embedder, type) or not callable(getattr(embedder, "embed", None)):
        name = embedder.__name__ if isinstance(embedder, type) else type(embedder).__name__
        raise BadInput(
            f"{name} is not an embedder: expected an object with `embed(texts)`, which returns one vector per text",
            hint=f"pass an instance: {name}(…)" if isinstance(embedder, type) else "model.embed = model.encode",
        )
    return Spec("dense", {"embedder": embedder, "store": parse_spec(store)})


def _name_embedders(embedders: Any) -> dict[str, Any]:
    if isinstance(embedders, Mapping):
        named = {str(name): embedder for name, embedder in embedders.items()}
    else:
        is_single = isinstance(embedders, str) or not isinstance(embedders, Iterable)
        pairs = [_name_embedder(embedder) for embedder in ([embedders] if is_single else embedders)]
        hint = "name them, e.g. `other=minilm`, or give a mapping from names to embedders"
        unique_by(pairs, lambda pair: pair[0], "embedder", hint=hint)
        named = dict(pairs)
    if not named:
        raise BadInput("no embedder given", hint=f"choose one of {', '.join(plugin_names('embedders'))}")
    return named


def _name_embedder(embedder: Any) -> tuple[str, Any]:
    if isinstance(embedder, str):
        name, spec = split_name(embedder)
        return name or str(redact_spec(parse_spec(spec, "embedder"))), spec
    return str(getattr(embedder, "name", type(embedder).__name__)), embedder
