"""Small language models that are trained here, on the corpus itself, in minutes: an LSTM or a Transformer as embedder.

They are no match for a model that has read the web. They show what a tokenizer, a network and an objective are worth
when nothing else differs, and, untrained, what random numbers are worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.errors import BadInput, MissingExtra
from ragauge.records import NOTHING
from ragauge.seams import Tokenizer, Vectors
from ragauge.systems.cache import cache_folder
from ragauge.systems.embedders.lm import keeping, networks, scoring, training
from ragauge.systems.embedders.lm.lessons import Lessons, corpus_hash, is_held_out, taught
from ragauge.systems.embedders.lm.numbering import Numbering
from ragauge.systems.embedders.lm.recipes import Recipe
from ragauge.systems.specs import Spec, parse
from ragauge.systems.tokenizers import open_tokenizer

TOKENIZER = "bpe(vocabulary=4000)"


class LanguageModel:
    """A language model as embedder: the mean of its states over a text, at length 1.

    `kind` is `transformer` or `lstm`; `objective` is `next` (tell the next token) or `pairs` (tell which two spans are
    of one document); `trained=False` leaves the weights as they were drawn. `passes` is how often the texts are gone
    through, `batch` what a step sees (bytes of text for `next`, documents for `pairs`), `rate` the highest learning
    rate; 0 stands for what suits the objective. `context` is how many tokens of a text are read.

    `fitted(texts)` gives one that has learned; `folder` opens one that `keep` has written. What was learned is kept in
    the cache folder, or in `cache`, or nowhere (False), and found again by the texts and options. `threads` are torch's
    while it works; None leaves them as they are.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        kind: str = "transformer",
        tokenizer: Any = None,
        objective: str = "next",
        dimension: int = 128,
        layers: int = 2,
        heads: int = 4,
        context: int = 512,
        passes: int = 0,
        batch: int = 0,
        rate: float = 0.0,
        temperature: float = 0.1,
        trained: bool = True,
        seed: int = 0,
        device: str | None = None,
        threads: int | None = None,
        cache: Any = None,
        folder: Any = None,
    ) -> None:
        recipe = Recipe(
            kind, objective, dimension, layers, heads, context, passes, batch, rate, temperature, trained, seed
        )
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise BadInput(f"lm: threads is {threads}, not a whole number above 0")
        self._device = _device(device)
        self._threads = threads
        self._cache = None if cache is False else cache_folder() if cache is None else Path(str(cache))
        self._told: Any = parse(tokenizer) if isinstance(tokenizer, str) else tokenizer or parse(TOKENIZER)
        self._recipe = recipe
        self._model: keeping.Model | None = None
        self._weights: Mapping[str, Any] = {}
        if folder is None:
            open_tokenizer(self._told)  # a wrong name is told before anybody waits
        else:
            model = keeping.read(Path(str(folder)))
            _agree(recipe, model.recipe, tokenizer, str(folder))
            self._take(model)

    def fitted(self, texts: Sequence[str], progress: Callable[[int, int], None] | None = None) -> LanguageModel:
        """The same model, with what it learns from these texts; held-out ones are left aside.

        `progress` hears the steps that are done, and how many there are. A training that was broken off is taken up
        where it was written down last. One that was opened from a folder has learned already, and stays as it is.
        """
        if self._model is not None:
            return self
        lessons = taught(texts)
        if not lessons:
            raise BadInput(
                f"lm: there is nothing to learn from in {len(texts)} texts",
                hint="empty ones do not count, and one in twenty is held out",
            )
        with training.threads(self._threads):
            ready = self._found_or_made(lessons, progress)
        made = copy(self)
        made._take(ready)
        return made

    def _found_or_made(self, lessons: Sequence[str], heard: Callable[[int, int], None] | None) -> keeping.Model:
        tokenizer = open_tokenizer(self._told)
        learns = callable(getattr(tokenizer, "fitted", None))
        # An object does not tell all of its options; what it has learned does.
        if learns and not isinstance(self._told, Spec):
            tokenizer, learns = open_tokenizer(tokenizer, lessons), False
        corpus = corpus_hash(lessons)
        key = keeping.key(self._recipe, str(self._told) if learns else tokenizer.name, corpus)
        place = self._cache / "lm" / key if self._cache is not None and self._recipe.trained else None
        if place is not None and (kept := keeping.found(place)) is not None:
            return kept
        numbering = Numbering.learned(open_tokenizer(tokenizer, lessons), lessons)
        drawn = networks.drawn(self._recipe, numbering.rows)
        if not self._recipe.trained:
            return keeping.Model(self._recipe, numbering, drawn, NOTHING)
        if place is not None:
            keeping.prepare(place.parent)
        file = None if place is None else place.with_name(f"{key}.checkpoint")
        before = file and keeping.taken_up(file, networks.shapes(self._recipe, numbering.rows))
        done = training.train(
            self._recipe,
            Lessons(self._recipe, numbering, lessons),
            before or training.Progress(drawn),
            device=self._device,
            heard=heard,
            save=None if file is None else lambda far: keeping.save(file, far),
        )
        log = {
            "texts": len(lessons),
            "bytes": sum(len(text.encode("utf-8", "surrogatepass")) for text in lessons),
            "corpus": corpus,
            "steps": done.step,
            "tokens": done.tokens,
            "seconds": round(done.seconds, 3),
            "losses": [round(loss, 4) for loss in done.losses],
            **training.circumstances(self._device),
        }
        model = keeping.Model(self._recipe, numbering, done.weights, log)
        if place is not None and file is not None:
            keeping.keep(place, model, over=True)
            file.unlink(missing_ok=True)
        return model

    def _take(self, model: keeping.Model) -> None:
        self._model, self._recipe = model, model.recipe
        self._weights = {name: one.to(self._device) for name, one in model.weights.items()}
        self._fingerprint = model.fingerprint

    def keep(self, folder: str | Path) -> None:
        """Write the model into a folder that is new or empty; `LanguageModel(folder=…)` opens it again."""
        keeping.keep(Path(folder), self._ready)

    @property
    def name(self) -> str:
        """What it is; once it has learned, with a hash of its weights."""
        one = self._recipe
        cut = str(self._told) if self._model is None else self._model.numbering.tokenizer.name
        learned = one.objective if one.trained else "untrained"
        end = "unfitted" if self._model is None else self._fingerprint
        return "-".join(["lm", one.kind, cut, learned, f"{one.dimension}x{one.layers}", end])

    marks = 0
    """None that count for the limit, whatever its tokenizer has around a text elsewhere."""

    @property
    def limit(self) -> int:
        """Tokens of a text that are read; the mark before it is not among them."""
        return self._recipe.context

    @property
    def trained(self) -> bool:
        """Whether its weights were learned."""
        return self._recipe.trained

    @property
    def train_seconds(self) -> float:
        """What learning took, also if that was done before and kept; NaN where nothing was learned."""
        return float(self._log.get("seconds", math.nan))

    @property
    def log(self) -> Mapping[str, Any]:
        """Of the training: steps, tokens, seconds, the loss of each step in bits, the device."""
        return self._log

    @property
    def _log(self) -> Mapping[str, Any]:
        return NOTHING if self._model is None else self._model.log

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts its texts."""
        return self._ready.numbering.tokenizer

    @property
    def parameters(self) -> int:
        """How many numbers it has learned, or drawn; the table of tokens counts once, though it is used twice."""
        return sum(one.numel() for one in self._ready.weights.values())

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, read or not."""
        return [len(one) for one in self._ready.numbering.encode(texts)]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text; an empty one is all zeros."""
        rows = self._ready.numbering.encode(texts)
        with training.threads(self._threads):
            return scoring.vectors(self._recipe, self._weights, rows, self._device)

    @property
    def bits(self) -> Callable[[Sequence[str]], list[float]] | None:
        """How many bits each text takes, its end included; None where the objective was not to tell the next token.

        NaN stands where a text cannot be had back from its tokens: to tell these is not to tell the text.
        """
        return self._bits if self._recipe.objective == "next" else None

    def _bits(self, texts: Sequence[str]) -> list[float]:
        numbering = self._ready.numbering
        rows = numbering.encode(texts)
        with training.threads(self._threads):
            told = scoring.bits(self._recipe, self._weights, rows, self._device)
        return [float(one) for one in np.where(numbering.lost(texts, rows), math.nan, told)]

    @staticmethod
    def held_out(texts: Sequence[str]) -> list[bool]:
        """Which texts no model of this kind learns from: about one in twenty, by their own hash."""
        return [is_held_out(text) for text in texts]

    @property
    def _ready(self) -> keeping.Model:
        if self._model is None:
            raise BadInput(
                f"the embedder `{self.name}` has learned nothing yet",
                hint="fitted(texts) trains it on the documents, lm(folder=…) opens one that was kept",
            )
        return self._model


def _device(named: str | None) -> str:
    try:
        import torch
    except ImportError:
        raise MissingExtra("the embedder `lm`", "lm") from None
    if named is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=named)
    except (RuntimeError, AssertionError) as error:  # torch says it in several ways
        words = (str(error).splitlines() or [""])[0]
        raise BadInput(f"lm: the device `{named}` cannot be used: {words}", hint="cpu, cuda, cuda:1 …") from None
    return named


def _agree(asked: Recipe, found: Recipe, tokenizer: Any, folder: str) -> None:
    """Refuse options that a model from a folder does not have; one that has its usual value was not asked for."""
    usual = Recipe(objective=asked.objective)
    for name, value in found.told().items():
        wanted = getattr(asked, name)
        if wanted not in (value, "next" if name == "objective" else getattr(usual, name)):
            raise BadInput(f"lm: {name} is {wanted}, but {value} in the model", file=folder)
    if tokenizer is not None:
        raise BadInput("lm: a model from a folder has its own tokenizer", file=folder, hint="leave `tokenizer` away")
