"""Settings of a gate: from arguments and rule files, and the check that each of them has an effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from ragauge.core.errors import BadInput
from ragauge.core.settings import AtLeast, AtMost, OneOf, check_keywords, check_settings
from ragauge.gates.results import TESTED_CONDITIONS, Rule
from ragauge.gates.rule_grammar import read_gate_file
from ragauge.gates.rule_ranges import MAX_ALPHA, MIN_ALPHA
from ragauge.measures.conventions import Convention, find_convention
from ragauge.stats.comparisons import CORRECTIONS

QueryTags = Mapping[str, Mapping[str, str]]
DEFAULT_ALPHA, DEFAULT_CORRECTION, DEFAULT_MIN_QUERIES = 0.05, "none", 5


class GateOptions(TypedDict, total=False):
    """Options of `ragauge.gate`; see `GateSettings`."""

    baseline: Any
    convention: str | Convention | None
    alpha: float | None
    correction: str | None
    min_queries: int | None
    tags: QueryTags | str | None
    targets: Any
    lower_is_better: Sequence[str] | None
    higher_is_better: Sequence[str] | None
    allow_changed_corpus: bool | None


@dataclass(frozen=True)
class GateSettings:
    """Rules of a gate, and how they are evaluated."""

    rules: Any
    """Text, list of texts, or table of rules."""
    baseline: Any = None
    convention: str | Convention = "default"
    alpha: Annotated[float, AtLeast(MIN_ALPHA), AtMost(MAX_ALPHA)] = DEFAULT_ALPHA
    """Significance level of the tests."""
    correction: Annotated[str, OneOf(CORRECTIONS)] = DEFAULT_CORRECTION
    """Correction for the number of `not worse` rules."""
    min_queries: Annotated[int, AtLeast(2)] = DEFAULT_MIN_QUERIES
    """Minimum number of queries for a test."""
    tags: QueryTags | str | None = None
    """Tags by query, or a table of them."""
    targets: Any = None
    lower_is_better: Sequence[str] = ()
    higher_is_better: Sequence[str] = ()
    allow_changed_corpus: bool = False
    """Whether the baseline may have other documents, queries or judgments."""

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def merge(cls, rules: Any, options: GateOptions) -> GateSettings:
        """Merge options, the settings of a rules file, and defaults, in this priority."""
        check_keywords("gate", options, GateOptions)
        is_file = isinstance(rules, Path) or (isinstance(rules, str) and rules.endswith(".toml"))
        explicit_options = {name: value for name, value in options.items() if value is not None}
        return cls(**{"rules": rules, **(read_gate_file(str(rules)) if is_file else {}), **explicit_options})

    @property
    def scoring_convention(self) -> Convention:
        """Convention by which runs are scored."""
        return find_convention(self.convention)

    def check_effects(self, rules: Sequence[Rule], *, is_scored: bool) -> None:
        """Raise BadInput for settings without effect on the rules or on a run that is already scored."""
        kinds = {rule.kind for rule in rules}
        test_rule = "a rule such as `mrr not worse`"
        unused = {
            "alpha": (self.alpha != DEFAULT_ALPHA and kinds <= {"limit"}, test_rule),
            "correction": (self.correction != DEFAULT_CORRECTION and "not worse" not in kinds, test_rule),
            "min_queries": (self.min_queries != DEFAULT_MIN_QUERIES and not kinds & {*TESTED_CONDITIONS}, test_rule),
            "tags": (self.tags is not None and not any(rule.tag for rule in rules), "a rule `… by TAG`"),
            "convention": (
                is_scored and self.scoring_convention != find_convention("default"),
                "judgments and a run",
            ),
            "targets": (is_scored and self.targets is not None, "judgments and a run"),
        }
        for name, (is_unused, expected) in unused.items():
            if is_unused:
                option = name.replace("_", "-")
                raise BadInput(f"{name} has no effect on these rules; expected {expected}", hint=f"remove --{option}")
