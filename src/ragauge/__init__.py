"""One gauge for retrieval: ranking quality, speed, grounding, and whether a change is real.

The public names, and nothing else; each loads what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "BadInput": "ragauge.errors",
    "Convention": "ragauge.measures.conventions",
    "Judgments": "ragauge.records",
    "Measure": "ragauge.measures.names",
    "MissingEvidence": "ragauge.errors",
    "MissingExtra": "ragauge.errors",
    "PRESETS": "ragauge.measures.conventions",
    "RagaugeError": "ragauge.errors",
    "Run": "ragauge.records",
    "Scores": "ragauge.records",
    "UnknownName": "ragauge.errors",
    "arrays": "ragauge.formats",
    "evaluate": "ragauge.verbs",
    "neighbours": "ragauge.formats",
    "read_judgments": "ragauge.formats",
    "read_run": "ragauge.formats",
    "subtopic_judgments": "ragauge.formats",
}

if TYPE_CHECKING:
    from ragauge.errors import BadInput, MissingEvidence, MissingExtra, RagaugeError, UnknownName
    from ragauge.formats import arrays, neighbours, read_judgments, read_run, subtopic_judgments
    from ragauge.measures.conventions import PRESETS, Convention
    from ragauge.measures.names import Measure
    from ragauge.records import Judgments, Run, Scores
    from ragauge.verbs import evaluate

__all__ = [
    "PRESETS",
    "BadInput",
    "Convention",
    "Judgments",
    "Measure",
    "MissingEvidence",
    "MissingExtra",
    "RagaugeError",
    "Run",
    "Scores",
    "UnknownName",
    "__version__",
    "arrays",
    "evaluate",
    "neighbours",
    "read_judgments",
    "read_run",
    "subtopic_judgments",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ragauge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
