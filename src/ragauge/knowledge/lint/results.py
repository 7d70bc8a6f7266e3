"""Result of `lint`: findings about a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragauge.core.findings import Finding, HistogramBin
from ragauge.core.record_types import TabularResult, record

THRESHOLDS_OF_VERSION_1 = {
    "tiny": "min_chars",
    "giant": "max_chars",
    "near": "near_duplicate",
    "share": "problem_share",
}
"""Present names of the thresholds in JSON of version 1."""


def _upgrade_lint(version: int, data: dict[str, Any]) -> dict[str, Any]:
    """Convert the JSON of version 1."""
    del version
    thresholds = {THRESHOLDS_OF_VERSION_1.get(name, name): value for name, value in data["thresholds"].items()}
    upgraded = {"provenance" if key == "circumstances" else key: value for key, value in data.items()}
    return {**upgraded, "thresholds": thresholds}


@record("ragauge-lint", 1)
@dataclass(frozen=True)
class Lint(TabularResult):
    """Problems of a corpus, found before its documents are embedded."""

    corpus: str
    documents: int
    findings: Sequence[Finding]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """`{check: reason}` of checks that were not run."""
    lengths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """`{"characters": {"n": …, "min": …, "p50": …, …}, "tokens": …}`."""
    bars: Mapping[str, Sequence[HistogramBin]] = field(default_factory=dict)
    """Histograms of these lengths; empty texts are in no bin."""
    languages: Mapping[str, int] = field(default_factory=dict)
    """`{"en": 4812, …}`: number of documents by language; `?` if the language is unknown."""
    embedder: str = ""
    limit: int | None = None
    """Maximum number of tokens per text that the embedder reads; None if unlimited or if tokens were not counted."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """`{"documents": truncated documents, "tokens": lost tokens, "of": all tokens}`; empty without a limit."""
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    """Thresholds of the checks."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration of each check in seconds."""
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> list[Finding]:
        """Findings that should be fixed."""
        return [finding for finding in self.findings if finding.problem]
