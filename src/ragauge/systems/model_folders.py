"""Models in folders are data: one that would bring code of its own is refused, whatever the library does with it."""

from __future__ import annotations

import json
from pathlib import Path

from ragauge.errors import BadInput


def refuse_code(model: str) -> None:
    """Refuse a model folder whose files name classes outside the library."""
    folder = Path(model)
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    except OSError:  # a name on the hub, or a plain encoder
        return
    except ValueError:
        raise BadInput("modules.json cannot be read", file=model) from None
    named = [str(one.get("type", "")) for one in modules if isinstance(one, dict)]
    strange = next((name for name in named if not name.startswith("sentence_transformers.")), None)
    if strange is not None:
        raise BadInput(f"the model brings code of its own (`{strange}`), which is not run", file=model)
