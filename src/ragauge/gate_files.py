"""Gate files: the arguments of `gate` as TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragauge.errors import BadInput
from ragauge.formats.settings import read_settings
from ragauge.rules.grammar import texts_of

KINDS: dict[str, tuple[type, ...]] = {
    "rules": (list,),
    "measures": (dict,),
    "baseline": (str,),
    "alpha": (int, float),
    "correction": (str,),
    "least": (int,),
    "convention": (str,),
    "set": (dict,),
    "tags": (str,),
    "targets": (str,),
    "versions": (str,),
    "lower_is_better": (list,),
    "higher_is_better": (list,),
    "allow_changed_corpus": (bool,),
}
PATHS = ("baseline", "tags", "targets", "versions")


def read_gate(path: str) -> dict[str, Any]:
    """Read the arguments of `gate` from a file.

    `measures` is a table per indicator and is converted to rules. Paths may be relative to the file.
    """
    data = read_settings(path, KINDS)
    try:
        rules = [*texts_of(data.get("rules", [])), *texts_of(data.pop("measures", {}))]
    except BadInput as error:
        raise BadInput(error.message, file=path, hint=error.hint) from None
    for key in PATHS:
        if key in data and (Path(path).parent / data[key]).exists():
            data[key] = str(Path(path).parent / data[key])
    return {**data, "rules": rules}
