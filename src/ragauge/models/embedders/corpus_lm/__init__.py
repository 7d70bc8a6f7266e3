"""Train small language models (LSTM or Transformer) on the corpus and use them as embedders.

They do not compete with large pretrained models. They show the effect of tokenizer, network and objective with
everything else equal; untrained, they show the effect of random weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ragauge.compute.progress import ProgressCallback, no_progress
from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.plugin_parameters import Part
from ragauge.core.protocols import Tokenizer, Vectors
from ragauge.core.specs import Spec, parse_spec
from ragauge.files.workspace import cache_folder
from ragauge.models.embedders.corpus_lm import checkpoints, networks, training
from ragauge.models.embedders.corpus_lm.batches import (
    TokenRowMap,
    TrainingBatches,
    corpus_hash,
    is_held_out,
    select_training_texts,
)
from ragauge.models.embedders.corpus_lm.networks import Hyperparameters
from ragauge.models.optional_attributes import TokenizerAttributes
from ragauge.models.tokenizers import open_tokenizer

DEFAULT_TOKENIZER = "bpe(vocabulary=4000)"


class LanguageModel:
    """Embedder with a language model trained on the corpus: the mean of its states, unit length.

    `kind` is `transformer` or `lstm`. `objective` is `next` (predict the next token) or `pairs` (recognise two spans of
    one document). `trained=False` keeps the random weights. `passes` is the number of passes over the texts, `batch`
    the size of a step (bytes of text for `next`, documents for `pairs`), `rate` the maximum learning rate; 0 selects
    the default of the objective. `context` is the maximum number of tokens read per text.

    `fitted(texts)` returns a trained model; `folder` opens one that `keep` has written. Trained models are stored in
    the cache folder, or in `cache` (False for none), and are found by texts and options. `threads` is the number of
    torch threads while it works; None leaves it unchanged.
    """

    def __init__(
        self,
        hyperparameters: Hyperparameters | None = None,
        *,
        tokenizer: Annotated[Tokenizer | str | Spec | None, Part(is_built=False)] = None,
        device: str | None = None,
        threads: int | None = None,
        cache: Any = None,
        folder: Any = None,
    ) -> None:
        recipe = hyperparameters or Hyperparameters()
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise BadInput(f"lm: threads must be at least 1, got {threads}")
        self._device = _choose_device(device)
        self._threads = threads
        self._cache = None if cache is False else cache_folder() if cache is None else Path(str(cache))
        self._described_tokenizer: Any = (
            parse_spec(tokenizer) if isinstance(tokenizer, str) else tokenizer or parse_spec(DEFAULT_TOKENIZER)
        )
        self._recipe = recipe
        self._model: checkpoints.TrainedModel | None = None
        self._weights: Mapping[str, Any] = {}
        if folder is None:
            open_tokenizer(self._described_tokenizer)  # Report a wrong name before training.
        else:
            model = checkpoints.read_model(Path(str(folder)))
            _check_stored_options(recipe, model.recipe, tokenizer, str(folder))
            self._use_model(model)

    def fitted(self, texts: Sequence[str], progress: ProgressCallback = no_progress) -> LanguageModel:
        """Return a copy of this model that is trained on texts, without the held-out ones.

        `progress` receives the number of steps done. An interrupted training resumes at its last
        checkpoint. A model that was opened from a folder is returned unchanged.
        """
        if self._model is not None:
            return self
        lessons = select_training_texts(texts)
        if not lessons:
            raise BadInput(
                f"lm: no text to learn from among {len(texts)} texts",
                hint="add texts: empty ones are skipped, and one in twenty is held out",
            )
        with training.limit_torch_threads(self._threads):
            trained_model = self._load_or_train(lessons, progress)
        model = copy(self)
        model._use_model(trained_model)
        return model

    def _load_or_train(self, lessons: Sequence[str], progress: ProgressCallback) -> checkpoints.TrainedModel:
        tokenizer = open_tokenizer(self._described_tokenizer)
        learns = TokenizerAttributes(tokenizer).fitted is not None
        # The name of an object may not include all of its options; a trained tokenizer has a hash.
        if learns and not isinstance(self._described_tokenizer, Spec):
            tokenizer, learns = open_tokenizer(tokenizer, lessons), False
        corpus = corpus_hash(lessons)
        key = checkpoints.model_cache_key(
            self._recipe, str(self._described_tokenizer) if learns else tokenizer.name, corpus
        )
        model_path = self._cache / "lm" / key if self._cache is not None and self._recipe.trained else None
        if model_path is not None and (cached := checkpoints.find_cached_model(model_path)) is not None:
            return cached
        numbering = TokenRowMap.learned(open_tokenizer(tokenizer, lessons), lessons)
        initial_weights = networks.draw_weights(self._recipe, numbering.rows)
        if not self._recipe.trained:
            return checkpoints.TrainedModel(self._recipe, numbering, initial_weights, EMPTY_MAPPING)
        if model_path is not None:
            checkpoints.check_writable(model_path.parent)
        file = None if model_path is None else model_path.with_name(f"{key}.checkpoint")
        before = file and checkpoints.read_checkpoint(file, networks.weight_shapes(self._recipe, numbering.rows))
        done = training.train_network(
            self._recipe,
            TrainingBatches(self._recipe, numbering, lessons),
            before or training.TrainingState(initial_weights),
            device=self._device,
            progress=progress,
            save=None if file is None else lambda state: checkpoints.write_checkpoint(file, state),
        )
        log = {
            "texts": len(lessons),
            "bytes": sum(len(text.encode("utf-8", "surrogatepass")) for text in lessons),
            "corpus": corpus,
            "steps": done.step,
            "tokens": done.tokens,
            "seconds": round(done.seconds, 3),
            "losses": [round(loss, 4) for loss in done.losses],
            **training.training_environment(self._device),
        }
        model = checkpoints.TrainedModel(self._recipe, numbering, done.weights, log)
        if model_path is not None and file is not None:
            checkpoints.write_model(model_path, model, over=True)
            file.unlink(missing_ok=True)
        return model

    def _use_model(self, model: checkpoints.TrainedModel) -> None:
        self._model, self._recipe = model, model.recipe
        self._weights = {name: tensor.to(self._device) for name, tensor in model.weights.items()}
        self._fingerprint = model.fingerprint

    def keep(self, folder: str | Path) -> None:
        """Write the model to a new or empty folder.

        `LanguageModel(folder=…)` opens it again.
        """
        checkpoints.write_model(Path(folder), self._trained_model)

    @property
    def name(self) -> str:
        """Name with kind, tokenizer, objective and size.

        After training it ends with a hash of the weights.
        """
        recipe = self._recipe
        cut = str(self._described_tokenizer) if self._model is None else self._model.numbering.tokenizer.name
        learned = recipe.objective if recipe.trained else "untrained"
        end = "unfitted" if self._model is None else self._fingerprint
        return "-".join(["lm", recipe.kind, cut, learned, f"{recipe.dimension}x{recipe.layers}", end])

    marks = 0
    """Number of special tokens that count for the limit: none, regardless of the tokenizer."""

    @property
    def limit(self) -> int:
        """Maximum number of tokens read per text, without the boundary token before it."""
        return self._recipe.context

    @property
    def trained(self) -> bool:
        """Whether the weights were trained."""
        return self._recipe.trained

    @property
    def train_seconds(self) -> float:
        """Training time in seconds, also of a model from the cache; NaN if not trained."""
        return float(self._training_log.get("seconds", math.nan))

    @property
    def log(self) -> Mapping[str, Any]:
        """Training log: steps, tokens, seconds, loss of each step in bits, device."""
        return self._training_log

    @property
    def _training_log(self) -> Mapping[str, Any]:
        return EMPTY_MAPPING if self._model is None else self._model.log

    @property
    def tokenizer(self) -> Tokenizer:
        return self._trained_model.numbering.tokenizer

    @property
    def parameters(self) -> int:
        """Number of weights; the token table is used twice and counts once."""
        return sum(tensor.numel() for tensor in self._trained_model.weights.values())

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text without truncation."""
        return [len(ids) for ids in self._trained_model.numbering.encode(texts)]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text; an empty text has zeros."""
        rows = self._trained_model.numbering.encode(texts)
        with training.limit_torch_threads(self._threads):
            return training.compute_vectors(self._recipe, self._weights, rows, self._device)

    @property
    def bits(self) -> Callable[[Sequence[str]], list[float]] | None:
        """Function that returns the bits of each text; None for objective `pairs`.

        The end of a text is included. A value is NaN if a text cannot be restored from its tokens.
        """
        return self._compute_bits if self._recipe.objective == "next" else None

    def _compute_bits(self, texts: Sequence[str]) -> list[float]:
        numbering = self._trained_model.numbering
        rows = numbering.encode(texts)
        with training.limit_torch_threads(self._threads):
            bits = training.compute_bits(self._recipe, self._weights, rows, self._device)
        return [float(value) for value in np.where(numbering.lost(texts, rows), math.nan, bits)]

    @staticmethod
    def held_out(texts: Sequence[str]) -> list[bool]:
        """Return which texts are excluded from training: about one in twenty."""
        return [is_held_out(text) for text in texts]

    @property
    def _trained_model(self) -> checkpoints.TrainedModel:
        if self._model is None:
            raise BadInput(
                f"the embedder `{self.name}` is not trained",
                hint="train it with fitted(texts), or open a saved one with lm(folder=…)",
            )
        return self._model


def _choose_device(named: str | None) -> str:
    try:
        import torch
    except ImportError:
        raise MissingExtra("the embedder `lm`", "lm") from None
    if named is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=named)
    except (RuntimeError, AssertionError) as error:  # The exception depends on the version of torch.
        message = (str(error).splitlines() or [""])[0]
        raise BadInput(f"lm: the device `{named}` cannot be used: {message}", hint="cpu, cuda, cuda:1 …") from None
    return named


def _check_stored_options(requested: Hyperparameters, stored: Hyperparameters, tokenizer: Any, folder: str) -> None:
    """Refuse options that differ from those of a stored model; defaults are ignored."""
    usual = Hyperparameters(objective=requested.objective)
    for name, value in stored.to_mapping().items():
        requested_value = getattr(requested, name)
        if requested_value not in (value, "next" if name == "objective" else getattr(usual, name)):
            raise BadInput(f"lm: {name} is {requested_value}, but {value} in the model", file=folder)
    if tokenizer is not None:
        raise BadInput("lm: a model from a folder has its own tokenizer", file=folder, hint="remove `tokenizer`")
