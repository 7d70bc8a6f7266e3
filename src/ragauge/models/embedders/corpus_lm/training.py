"""Train a network with AdamW, warm-up and cosine schedule; the seed determines the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BadInput
from ragauge.core.protocols import Vectors
from ragauge.core.records import Floats
from ragauge.models.embedders.corpus_lm import networks
from ragauge.models.embedders.corpus_lm.batches import BOUNDARY_TOKEN, TokenIds, TrainingBatches
from ragauge.models.embedders.corpus_lm.networks import Hyperparameters

if TYPE_CHECKING:
    import torch


WARMUP_SHARE = 0.1
"""Share of the steps in which the learning rate rises."""
FINAL_RATE_SHARE = 0.05
"""Final learning rate, as a share of the maximum."""
MAX_GRADIENT_NORM = 1.0
WEIGHT_DECAY = 0.01
ADAM_BETAS = (0.9, 0.98)
SPAN_BATCH_SIZE = 32
"""Number of spans per batch."""
CHECKPOINT_INTERVAL_S = 20.0
"""Seconds between two checkpoints."""


@dataclass
class TrainingState:
    """State of a training, sufficient to resume it."""

    weights: dict[str, torch.Tensor]
    moments: dict[str, torch.Tensor] = field(default_factory=dict)
    """Moments of the optimizer, two per weight: `NAME:first`, `NAME:second`."""
    step: int = 0
    losses: list[float] = field(default_factory=list)
    """Loss of each step in bits per token (`next`) or per pair."""
    tokens: int = 0
    """Number of tokens seen so far, with repetitions."""
    seconds: float = 0.0


def train_network(
    recipe: Hyperparameters,
    lessons: TrainingBatches,
    state: TrainingState,
    *,
    device: str,
    progress: ProgressCallback = no_progress,
    save: Callable[[TrainingState], None] | None = None,
) -> TrainingState:
    """Start or resume a training and run it to the end.

    `save` is called regularly between two steps.
    """
    import torch

    weights = {name: tensor.to(device).requires_grad_() for name, tensor in state.weights.items()}
    optimizer = _build_optimizer(recipe, weights, state)
    began, saved = time.perf_counter() - state.seconds, time.perf_counter()
    with torch.enable_grad():
        for step in range(state.step, len(lessons)):
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * _rate_share(step, len(lessons))
            loss, tokens = (_next_token_loss if recipe.objective == "next" else _pair_loss)(
                recipe, weights, lessons, step, device
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(list(weights.values()), MAX_GRADIENT_NORM)
            optimizer.step()
            state.losses.append(loss.item() / math.log(2))
            if not math.isfinite(state.losses[-1]):
                raise BadInput(
                    f"lm: the loss became NaN or infinite at step {step + 1}", hint=f"a lower rate than {recipe.rate:g}"
                )
            state.tokens += tokens
            state.step = step + 1
            state.seconds = time.perf_counter() - began
            if save is not None and time.perf_counter() - saved > CHECKPOINT_INTERVAL_S and state.step < len(lessons):
                _update_state(state, weights, optimizer)
                save(state)
                saved = time.perf_counter()
            progress(Progress("training", state.step, len(lessons)))
    _update_state(state, weights, optimizer)
    return state


def training_environment(device: str) -> dict[str, Any]:
    """Return what affects the rounding of weights: device, threads, version."""
    import torch

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return {"device": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


def pad_rows(rows: Sequence[TokenIds], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad texts with boundary tokens, one before each; also return token counts."""
    import torch

    lengths = [len(row) for row in rows]
    out = np.full((len(rows), 1 + max(lengths, default=0)), BOUNDARY_TOKEN, np.int64)
    for padded_row, row in zip(out, rows, strict=True):
        padded_row[1 : 1 + len(row)] = row
    return torch.from_numpy(out).to(device), torch.tensor(lengths, device=device)


@contextmanager
def limit_torch_threads(count: int | None) -> Iterator[None]:
    """Set the number of torch threads inside the context; None leaves it unchanged."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)


def _rate_share(step: int, steps: int) -> float:
    """Return the learning rate at a step, as a share of the maximum."""
    warm = max(1, round(WARMUP_SHARE * steps))
    if step < warm:
        return (step + 1) / warm
    return (
        FINAL_RATE_SHARE + (1 - FINAL_RATE_SHARE) * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))) / 2
    )


def _build_optimizer(
    recipe: Hyperparameters, weights: Mapping[str, torch.Tensor], state: TrainingState
) -> torch.optim.Optimizer:
    import torch

    flat = [tensor for tensor in weights.values() if tensor.ndim < 2]
    wide = [tensor for tensor in weights.values() if tensor.ndim > 1]
    optimizer = torch.optim.AdamW(
        [{"params": wide, "weight_decay": WEIGHT_DECAY}, {"params": flat, "weight_decay": 0.0}],
        lr=recipe.rate,
        betas=ADAM_BETAS,
    )
    if state.moments:
        for name, tensor in weights.items():
            optimizer.state[tensor] = {
                "step": torch.tensor(float(state.step)),
                "exp_avg": state.moments[f"{name}:first"].to(tensor.device),
                "exp_avg_sq": state.moments[f"{name}:second"].to(tensor.device),
            }
    return optimizer


def _update_state(state: TrainingState, weights: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
    state.weights = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}
    for name, tensor in weights.items():
        moments = optimizer.state[tensor]
        state.moments[f"{name}:first"] = moments["exp_avg"].cpu().clone()
        state.moments[f"{name}:second"] = moments["exp_avg_sq"].cpu().clone()


def _next_token_loss(
    recipe: Hyperparameters, weights: Mapping[str, torch.Tensor], lessons: TrainingBatches, step: int, device: str
) -> tuple[torch.Tensor, int]:
    import torch
    import torch.nn.functional as F  # noqa: N812 - its usual name

    before, after = lessons.rows(step)
    numbers, targets = torch.from_numpy(before).to(device), torch.from_numpy(after).to(device)
    logits = networks.compute_logits(weights, networks.compute_states(recipe, weights, numbers))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), int((after >= 0).sum())


def _pair_loss(
    recipe: Hyperparameters, weights: Mapping[str, torch.Tensor], lessons: TrainingBatches, step: int, device: str
) -> tuple[torch.Tensor, int]:
    """Compute the contrastive loss of spans and texts.

    Each span must match its own text among all texts of the step, and vice versa.
    """
    import torch
    import torch.nn.functional as F  # noqa: N812

    short, long = lessons.pairs(step)
    texts = [*short, *long]
    # Spans of similar length share a batch, so that there is little padding.
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    parts = []
    for start in range(0, len(texts), SPAN_BATCH_SIZE):
        numbers, lengths = pad_rows([texts[i] for i in order[start : start + SPAN_BATCH_SIZE]], device)
        parts.append(networks.pool_states(networks.compute_states(recipe, weights, numbers), lengths))
    states = torch.cat(parts)[torch.tensor(np.argsort(order), device=device)]
    similarities = states[: len(short)] @ states[len(short) :].T / recipe.temperature
    targets = torch.arange(len(similarities), device=device)
    return (F.cross_entropy(similarities, targets) + F.cross_entropy(similarities.T, targets)) / 2, sum(map(len, texts))


MAX_BATCH_TOKENS = 16_384
"""Maximum number of tokens per batch, including padding."""
MAX_LOGITS = 40_000_000
"""Maximum number of logits in memory."""


def compute_vectors(
    recipe: Hyperparameters, weights: Mapping[str, torch.Tensor], rows: Sequence[TokenIds], device: str
) -> Vectors:
    """Compute the mean state of each text's first `context` tokens, with unit length.

    A text without tokens has a vector of zeros.
    """
    import torch

    out = np.zeros((len(rows), recipe.dimension), np.float32)
    cut = [row[: recipe.context] for row in rows]
    with torch.inference_mode():
        for group in _length_groups([len(row) for row in cut], MAX_BATCH_TOKENS):
            numbers, lengths = pad_rows([cut[i] for i in group], device)
            out[group] = networks.pool_states(networks.compute_states(recipe, weights, numbers), lengths).cpu().numpy()
    return out


def compute_bits(
    recipe: Hyperparameters, weights: Mapping[str, torch.Tensor], rows: Sequence[TokenIds], device: str
) -> Floats:
    """Compute the bits of each whole text, including its end.

    A text that is longer than the context is read in windows that overlap by half. Each token is predicted from at
    least half a context before it, or from all preceding tokens.
    """
    import torch

    windows = [(at, *window) for at, row in enumerate(rows) for window in _context_windows(row, recipe.context)]
    out = np.zeros(len(rows))
    max_tokens = max(1, MAX_LOGITS // weights["tokens"].shape[0])
    with torch.inference_mode():
        for group in _length_groups(
            [len(windows[i][1]) for i in range(len(windows))], min(MAX_BATCH_TOKENS, max_tokens)
        ):
            numbers, _ = pad_rows([windows[i][1][1:] for i in group], device)
            numbers[:, 0] = torch.tensor([int(windows[i][1][0]) for i in group], device=device)
            targets, _ = pad_rows([windows[i][2] for i in group], device)
            logits = networks.compute_logits(weights, networks.compute_states(recipe, weights, numbers))
            log_probabilities = (
                torch.log_softmax(logits, -1).gather(2, targets[:, 1:, None])[:, :, 0].double().cpu().numpy()
            )
            for i, row in zip(group, log_probabilities, strict=True):
                at, before, _, first = windows[i]
                out[at] -= row[first : len(before)].sum() / math.log(2)
    return out


def _context_windows(row: TokenIds, context: int) -> Iterator[tuple[TokenIds, TokenIds, int]]:
    """Yield input tokens, next tokens and the first counted position per window."""
    line = np.concatenate([[BOUNDARY_TOKEN], row, [BOUNDARY_TOKEN]])
    before, after = line[:-1], line[1:]
    start, counted = 0, 0
    while counted < len(before):
        stop = min(start + context, len(before))
        yield before[start:stop], after[start:stop], counted - start
        counted = stop
        start = max(start + 1, stop - context // 2)


def _length_groups(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield positions of texts of similar length, up to `most` padded tokens.

    Empty texts are skipped.
    """
    group: list[int] = []
    for index in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i]):
        if group and (len(group) + 1) * (lengths[index] + 1) > max_tokens:
            yield group
            group = []
        group.append(index)
    if group:
        yield group
