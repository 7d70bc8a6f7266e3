"""Models of sentence-transformers: from a folder or, where that is allowed, from the hub; data, and never code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ragauge.errors import BackendFailed, BadInput, MissingExtra


def load(kind: str, model: str, *, what: str, device: str | None, download: bool) -> Any:
    """A model of one of the library's kinds (`SentenceTransformer`, `CrossEncoder`)."""
    try:
        import sentence_transformers
    except ImportError:
        raise MissingExtra(what, "transformers") from None
    _refuse_code(Path(model))
    try:
        return getattr(sentence_transformers, kind)(
            model, device=device, local_files_only=not download, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise BackendFailed(
            f"the model `{model}` cannot be loaded: {(str(error).splitlines() or [''])[0]}",
            hint="give a folder with the model, or download=true to fetch it from the hub",
        ) from error


def _refuse_code(folder: Path) -> None:
    """Refuse a folder whose files name classes outside the library: some versions import these without being asked."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    except OSError:  # a name on the hub, or a plain encoder
        return
    except ValueError:
        raise BadInput("modules.json cannot be read", file=str(folder)) from None
    named = [str(one.get("type", "")) for one in modules if isinstance(one, dict)]
    strange = next((name for name in named if not name.startswith("sentence_transformers.")), None)
    if strange is not None:
        raise BadInput(f"the model brings code of its own (`{strange}`), which is not run", file=str(folder))
