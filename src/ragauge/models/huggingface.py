"""Load Hugging Face models from a folder or, if allowed, from the hub, without running their code."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, error_summary
from ragauge.core.structured_text import parse_json

UNUSED_HEAD = "pooler"
"""Name of the head over the first token that some models are saved with; it is not used here."""
PICKLE_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SAFETENSORS_FILES = ("model.safetensors", "model.safetensors.index.json")


def load_model(kind: str, model: str, *, component: str, device: str | None, download: bool) -> Any:
    """Load a sentence-transformers model.

    `kind` is `SentenceTransformer` or `CrossEncoder`.
    """
    try:
        import sentence_transformers
    except ImportError:
        raise MissingExtra(component, "transformers") from None
    _check_no_code(Path(model))
    try:
        with quiet_loading(download=download):
            return getattr(sentence_transformers, kind)(
                model,
                device=device,
                local_files_only=not download,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
    except (OSError, ValueError) as error:
        raise model_load_error(model, error, download=download) from error


MODEL_HINT = "pass a folder with the model, or its name on the hub with download=true"
OFFLINE_HINT = (
    "check the network and the name, or download the model on another machine with "
    "`hf download NAME --local-dir FOLDER` and give the folder: model=FOLDER"
)


def model_load_error(
    model: str, error: Exception, *, part: str = "model", download: bool = False, hint: str = MODEL_HINT
) -> BackendFailed:
    """Return the error for a model, or a part of it, that could not be loaded."""
    local = Path(model).expanduser().is_dir()
    if isinstance(error, OSError) and not download and not local:
        message = f"the model `{model}` was not found: it is not a local folder, and not in the hub cache"
        return BackendFailed(message, hint=hint)
    hint = OFFLINE_HINT if download and not local else hint
    return BackendFailed(f"the {part} `{model}` cannot be loaded: {error_summary(error)}", hint=hint)


@contextmanager
def quiet_loading(*, download: bool) -> Iterator[None]:
    """Silence the libraries and, unless allowed, prevent downloads.

    The settings are restored afterwards. `local_files_only` is not enough: the hub's client contacts the hub before it
    checks the cache.
    """
    logging: Any = import_module("transformers.utils.logging")  # Only partly annotated.
    hub: Any = import_module("huggingface_hub.constants")
    level, has_progress_bar, offline = logging.get_verbosity(), logging.is_progress_bar_enabled(), hub.HF_HUB_OFFLINE
    logging.set_verbosity_error()
    if not download:
        logging.disable_progress_bar()
        hub.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub.HF_HUB_OFFLINE = offline
        if has_progress_bar:
            logging.enable_progress_bar()


def find_package_file(package: str, name: str) -> Path:
    """Find a file in an installed package without running its code."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / name).exists():
            return Path(folder) / name
    raise ImportError(package)


def model_hash(model: Any, *texts: str) -> str:
    """Hash the weights of a model and further texts; ten hexadecimal characters."""
    import torch

    hasher = hashlib.blake2b(digest_size=5)
    for text in texts:
        hasher.update(text.encode("utf-8", "replace") + b"\0")
    for name, numbers in sorted([*model.named_parameters(), *model.named_buffers()]):
        if UNUSED_HEAD not in name:
            hasher.update(f"{name} {numbers.dtype} {tuple(numbers.shape)}\0".encode())
            flat = numbers.detach().cpu().contiguous().reshape(-1)
            hasher.update(flat.view(torch.uint8).numpy().data)  # As bytes, because NumPy does not support every type.
    return hasher.hexdigest()


def count_parameters(model: Any) -> int:
    """Count the parameters used for vectors; shared ones count once."""
    return sum(parameter.numel() for name, parameter in model.named_parameters() if UNUSED_HEAD not in name)


def tokenizer_fingerprint_text(tokenizer: Any) -> str:
    """Return everything that determines the tokens of a tokenizer, as text.

    The tokenizer is one of transformers.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        unlimited = type(backend).from_str(backend.to_str())  # Without the truncation and padding of the last call.
        unlimited.no_truncation()
        unlimited.no_padding()
        return str(unlimited.to_str())
    # A vocabulary of all Unicode code points need not be written out.
    vocabulary = sorted(tokenizer.get_vocab().items()) if tokenizer.vocab_size < 1_000_000 else tokenizer.vocab_size
    return json.dumps([type(tokenizer).__name__, vocabulary, tokenizer.all_special_tokens])


def model_label(model: str) -> str:
    """Return the label of a model: its folder name, or its name on the hub.

    >>> model_label("models/byt5-small/"), model_label("google/byt5-small")
    ('byt5-small', 'google/byt5-small')
    """
    folder = Path(model).expanduser()
    if not folder.is_dir() and not model.endswith("/"):
        return model
    resolved = folder.resolve()
    return f"{resolved.parent.name}/{resolved.name}" if resolved.name == "model" else resolved.name


def check_no_pickles(folder: Path, kind: str) -> None:
    """Refuse a folder that has weights only as a pickle, which can run code."""
    if any((folder / name).exists() for name in SAFETENSORS_FILES):
        return
    pickle_file = next((name for name in PICKLE_FILES if (folder / name).exists()), None)
    if pickle_file is not None:
        raise BadInput(
            f"the weights are a pickle ({pickle_file}), which may hold code and is not loaded",
            file=str(folder),
            hint='if you trust it, write it as safetensors: python -c "import transformers; '
            f"transformers.{kind}.from_pretrained('{folder.name}').save_pretrained('{folder.name}-safe')\"",
        )


def _check_no_code(folder: Path) -> None:
    """Refuse a folder whose files name classes outside the library.

    Some versions of the library import them without asking.
    """
    try:
        modules = parse_json((folder / "modules.json").read_text(encoding="utf-8"), file=str(folder / "modules.json"))
    except OSError:  # A name on the hub, or a plain encoder.
        return check_no_pickles(folder, "AutoModel")
    except ValueError:
        raise BadInput("modules.json cannot be read", file=str(folder)) from None
    named = [module for module in modules if isinstance(module, dict)]
    strange = next(
        (name for module in named if not (name := str(module.get("type", ""))).startswith(LIBRARY_PREFIX)), None
    )
    if strange is not None:
        raise BadInput(f"the model contains custom code (`{strange}`), which is not run", file=str(folder))
    for module in named:
        check_no_pickles(folder / str(module.get("path", "")), "AutoModel")
    return None


LIBRARY_PREFIX = "sentence_transformers."
