"""Write and read trained models and checkpoints, atomically.

A folder has `model.safetensors` (weights), `config.json` (hyperparameters and training log) and, for tokenizers of
Hugging Face's library, `tokenizer.json`. It contains no code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.core.errors import BadInput, MissingExtra, error_summary
from ragauge.core.hashes import content_key
from ragauge.core.structured_text import parse_json
from ragauge.files.workspace import atomic_folder, replace_file
from ragauge.models.embedders.corpus_lm import networks
from ragauge.models.embedders.corpus_lm.batches import TokenRowMap
from ragauge.models.embedders.corpus_lm.networks import Hyperparameters
from ragauge.models.embedders.corpus_lm.training import TrainingState
from ragauge.models.optional_attributes import TokenizerAttributes
from ragauge.models.tokenizers import restore_tokenizer

if TYPE_CHECKING:
    import torch


TRAINING_VERSION = 1
"""Version of the training. Increase it if equal hyperparameters and texts would give another model."""
WEIGHTS_FILE, CONFIG_FILE, TOKENIZER_FILE = "model.safetensors", "config.json", "tokenizer.json"


@dataclass(frozen=True)
class TrainedModel:
    """Network with its weights and its tokenizer."""

    recipe: Hyperparameters
    numbering: TokenRowMap
    weights: Mapping[str, torch.Tensor]
    log: Mapping[str, Any]
    """Training data, duration and losses; empty if the model was not trained."""

    @property
    def fingerprint(self) -> str:
        """Hash of the weights, the tokenizer and the architecture."""
        hasher = hashlib.blake2b(digest_size=8)
        seen_ids = [] if self.numbering.seen is None else self.numbering.seen.tolist()
        settings = self.recipe.to_mapping()
        shape = {name: settings[name] for name in ("kind", "heads", "context") if name in settings}
        hasher.update(json.dumps([shape, seen_ids, self.numbering.tokenizer.name]).encode())
        for name in sorted(self.weights):
            hasher.update(name.encode())
            hasher.update(self.weights[name].detach().cpu().contiguous().numpy().tobytes())
        return hasher.hexdigest()


def model_cache_key(recipe: Hyperparameters, tokenizer: str, corpus: str) -> str:
    """Return the cache key of a model: a hash of what determines its weights."""
    return content_key(TRAINING_VERSION, recipe.to_mapping(), tokenizer, corpus)[:32]


def write_model(folder: Path, model: TrainedModel, *, over: bool = False) -> None:
    """Write a model to a folder, which appears when it is complete.

    An existing folder that is not empty is refused, or replaced if `over` is set.
    """
    tensors = _import_safetensors()
    if folder.exists() and not over and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput("the folder is not empty", file=str(folder), hint="use a new or empty folder")
    tokenizer = _tokenizer_state(model)
    pieces = tokenizer.pop("json", None)
    seen_ids = model.numbering.seen
    config = {
        "ragauge": "lm",
        "version": TRAINING_VERSION,
        "recipe": model.recipe.to_mapping(),
        "tokenizer": tokenizer,
        "seen": None if seen_ids is None else seen_ids.tolist(),
        "fingerprint": model.fingerprint,
        "training": dict(model.log),
    }
    with _write_errors(folder), atomic_folder(folder, overwrite=over) as part:
        tensors.save_file({name: tensor.contiguous() for name, tensor in model.weights.items()}, part / WEIGHTS_FILE)
        if pieces is not None:
            (part / TOKENIZER_FILE).write_text(pieces, encoding="utf-8")
        (part / CONFIG_FILE).write_text(json.dumps(config, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_model(folder: Path) -> TrainedModel:
    """Read a model; raise BadInput if it is incomplete or was changed."""
    tensors = _import_safetensors()
    if not (folder / CONFIG_FILE).is_file():
        raise BadInput("not a language model", file=str(folder), hint="use a folder that `keep` has written")
    try:
        config = parse_json((folder / CONFIG_FILE).read_text(encoding="utf-8"), file=str(folder / CONFIG_FILE))
        if config["ragauge"] != "lm" or config["version"] != TRAINING_VERSION:
            raise BadInput(f"was written by another version ({config['version']})", file=str(folder))
        tokenizer = dict(config["tokenizer"])
        if tokenizer.get("kind") == "library":
            tokenizer["json"] = (folder / TOKENIZER_FILE).read_text(encoding="utf-8")
        recipe = Hyperparameters.read(config["recipe"])
        numbering = TokenRowMap(restore_tokenizer(tokenizer), config["seen"])
        model = TrainedModel(recipe, numbering, tensors.load_file(folder / WEIGHTS_FILE), config["training"])
        shapes = {name: tuple(tensor.shape) for name, tensor in model.weights.items()}
        if shapes != networks.weight_shapes(recipe, numbering.rows) or model.fingerprint != config["fingerprint"]:
            raise BadInput("the weights differ from those that were saved", file=str(folder))
    except BadInput:
        raise
    except Exception as error:  # Three libraries raise various exceptions for corrupt files.
        reason = f"{type(error).__name__}: {error_summary(error)}"
        raise BadInput(f"the language model cannot be read ({reason})", file=str(folder)) from error
    return model


def check_writable(folder: Path) -> None:
    """Check before training that a folder is writable."""
    with _write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)


def find_cached_model(folder: Path) -> TrainedModel | None:
    """Read a model from the cache; None if it is missing or corrupt."""
    with suppress(BadInput):
        return read_model(folder)
    return None


def write_checkpoint(file: Path, progress: TrainingState) -> None:
    """Write a checkpoint of a training and replace the previous one."""
    tensors = _import_safetensors()
    arrays = {f"weights/{name}": weights for name, weights in progress.weights.items()}
    arrays |= {f"moments/{name}": moments for name, moments in progress.moments.items()}
    counts = {"step": progress.step, "losses": progress.losses, "tokens": progress.tokens, "seconds": progress.seconds}
    with _write_errors(file), replace_file(file) as part:
        tensors.save_file(arrays, part, metadata={"progress": json.dumps(counts)})


def read_checkpoint(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> TrainingState | None:
    """Read the checkpoint of an interrupted training; None if missing or corrupt."""
    try:
        from safetensors import safe_open

        with safe_open(file, "pt") as opened:
            counts = parse_json(opened.metadata()["progress"])
            parts = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
    except Exception:  # Missing, or corrupt after a crash; the library raises various exceptions.
        return None
    for name, shape in shapes.items():
        needed = (f"weights/{name}", f"moments/{name}:first", f"moments/{name}:second")
        if any(name not in parts or tuple(parts[name].shape) != shape for name in needed):
            return None
    # In the original order: the norm of a gradient is a sum, and its rounding depends on the order.
    weights = {name: parts[f"weights/{name}"] for name in shapes}
    moments = {name.removeprefix("moments/"): tensor for name, tensor in parts.items() if name.startswith("moments/")}
    return TrainingState(weights, moments, **counts)


def _tokenizer_state(model: TrainedModel) -> dict[str, Any]:
    tokenizer = model.numbering.tokenizer
    state = TokenizerAttributes(tokenizer).kept
    if state is None:
        raise BadInput(
            f"the model cannot be saved: its tokenizer `{tokenizer.name}` has no method `kept`",
            hint="add the method, or train without saving: cache=false",
        )
    return dict(state())


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else error_summary(error)
        raise BadInput(
            f"cannot be written ({reason})",
            file=str(path),
            hint="set RAGAUGE_CACHE to another folder, or train without saving: cache=false",
        ) from None


def _import_safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingExtra("the embedder `lm`", "lm") from None
    return safetensors.torch
