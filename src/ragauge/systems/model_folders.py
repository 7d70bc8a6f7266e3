"""Models of Hugging Face libraries: from a folder or, where that is allowed, from the hub; data, and never code."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ragauge.errors import BackendFailed, BadInput, MissingExtra
from ragauge.structured_text import parse_json

UNUSED = "pooler"
"""What models call the head over the first token that some are saved with; nothing here reads it."""
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SAFE = ("model.safetensors", "model.safetensors.index.json")


def load(kind: str, model: str, *, what: str, device: str | None, download: bool) -> Any:
    """A model of one of sentence-transformers' kinds (`SentenceTransformer`, `CrossEncoder`)."""
    try:
        import sentence_transformers
    except ImportError:
        raise MissingExtra(what, "transformers") from None
    _refuse_code(Path(model))
    try:
        with loading(download=download):
            return getattr(sentence_transformers, kind)(
                model,
                device=device,
                local_files_only=not download,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
    except (OSError, ValueError) as error:
        raise not_loaded(model, error, download=download) from error


WHERE = "give a folder with the model, or its name on the hub with download=true"
OFFLINE = (
    "check the network and the name, or download the model on another machine with "
    "`hf download NAME --local-dir FOLDER` and give the folder: model=FOLDER"
)


def not_loaded(
    model: str, error: Exception, *, of: str = "model", download: bool = False, hint: str = WHERE
) -> BackendFailed:
    """What is said of a model, or of something of it, that a library stumbled over or did not find."""
    local = Path(model).expanduser().is_dir()
    if isinstance(error, OSError) and not download and not local:
        message = f"the model `{model}` was not found: it is not a local folder, and not in the hub cache"
        return BackendFailed(message, hint=hint)
    hint = OFFLINE if download and not local else hint
    return BackendFailed(f"the {of} `{model}` cannot be loaded: {first_line(error)}", hint=hint)


@contextmanager
def loading(*, download: bool) -> Iterator[None]:
    """The libraries talk only of errors, and reach for the network and draw bars only if told; then all is as before.

    `local_files_only` is not enough: the hub's client asks the hub who may be calling before it looks at home.
    """
    logging: Any = import_module("transformers.utils.logging")  # half of it has no annotations
    hub: Any = import_module("huggingface_hub.constants")
    level, drawn, offline = logging.get_verbosity(), logging.is_progress_bar_enabled(), hub.HF_HUB_OFFLINE
    logging.set_verbosity_error()
    if not download:
        logging.disable_progress_bar()
        hub.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub.HF_HUB_OFFLINE = offline
        if drawn:
            logging.enable_progress_bar()


def inside(package: str, name: str) -> Path:
    """A file that a package carries; none of the package's code is run."""
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (Path(folder) / name).exists():
            return Path(folder) / name
    raise ImportError(package)


def digest(model: Any, *said: str) -> str:
    """Ten letters that are others as soon as a number of a model, or something said of it, is another."""
    import torch

    whole = hashlib.blake2b(digest_size=5)
    for one in said:
        whole.update(one.encode("utf-8", "replace") + b"\0")
    for name, numbers in sorted([*model.named_parameters(), *model.named_buffers()]):
        if UNUSED not in name:
            whole.update(f"{name} {numbers.dtype} {tuple(numbers.shape)}\0".encode())
            flat = numbers.detach().cpu().contiguous().reshape(-1)
            whole.update(flat.view(torch.uint8).numpy().data)  # as bytes: not every kind of number is one of NumPy's
    return whole.hexdigest()


def parameters(model: Any) -> int:
    """How many numbers of a model are used for vectors; those that two parts share count once."""
    return sum(one.numel() for name, one in model.named_parameters() if UNUSED not in name)


def spelled(tokenizer: Any) -> str:
    """All that decides how a tokenizer of the transformers library cuts texts, as one text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        whole = type(backend).from_str(backend.to_str())  # without what was cut or filled up last time
        whole.no_truncation()
        whole.no_padding()
        return str(whole.to_str())
    # All code points of Unicode are no vocabulary that has to be written down.
    known = sorted(tokenizer.get_vocab().items()) if tokenizer.vocab_size < 1_000_000 else tokenizer.vocab_size
    return json.dumps([type(tokenizer).__name__, known, tokenizer.all_special_tokens])


def label(model: str) -> str:
    """What a model is called: the name of its folder, or its name on the hub.

    >>> label("models/byt5-small/"), label("google/byt5-small")
    ('byt5-small', 'google/byt5-small')
    """
    folder = Path(model).expanduser()
    if not folder.is_dir() and not model.endswith("/"):
        return model
    whole = folder.resolve()
    return f"{whole.parent.name}/{whole.name}" if whole.name == "model" else whole.name


def first_line(error: BaseException) -> str:
    """What an error says, without the paragraphs that follow."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def refuse_pickles(folder: Path, kind: str) -> None:
    """Refuse a folder that has weights only as a pickle, which is a program as well as data."""
    if any((folder / name).exists() for name in SAFE):
        return
    found = next((name for name in PICKLES if (folder / name).exists()), None)
    if found is not None:
        raise BadInput(
            f"the weights are a pickle ({found}), which may hold code and is not loaded",
            file=str(folder),
            hint='if you trust it, write it as safetensors: python -c "import transformers; '
            f"transformers.{kind}.from_pretrained('{folder.name}').save_pretrained('{folder.name}-safe')\"",
        )


def _refuse_code(folder: Path) -> None:
    """Refuse a folder whose files name classes outside the library: some versions import these without being asked."""
    try:
        modules = parse_json((folder / "modules.json").read_text(encoding="utf-8"), file=str(folder / "modules.json"))
    except OSError:  # a name on the hub, or a plain encoder
        return refuse_pickles(folder, "AutoModel")
    except ValueError:
        raise BadInput("modules.json cannot be read", file=str(folder)) from None
    named = [one for one in modules if isinstance(one, dict)]
    strange = next((name for one in named if not (name := str(one.get("type", ""))).startswith(LIBRARY)), None)
    if strange is not None:
        raise BadInput(f"the model brings code of its own (`{strange}`), which is not run", file=str(folder))
    for one in named:
        refuse_pickles(folder / str(one.get("path", "")), "AutoModel")
    return None


LIBRARY = "sentence_transformers."
