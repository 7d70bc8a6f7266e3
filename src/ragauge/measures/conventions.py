"""Conventions: options on which evaluation tools differ, and presets that set all of them.

CONVENTIONS.md explains each option and preset; a test keeps it in sync with this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Literal

from ragauge.core.errors import BadInput, RagaugeError, UnknownName
from ragauge.core.settings import AtLeast, AtMost, check_settings, literal_choices

ANSWER_OPTIONS = ("no_claims", "no_context", "refusal")
"""Options that apply only to answer measures."""


NON_OPTION_FIELDS = frozenset({"name", "rel_stated", "targets_stated"})
"""Fields of a convention that are not options."""


@dataclass(frozen=True)
class Convention:
    """Values of all options; the defaults are those of trec_eval 10 with `-c`."""

    name: str = "default"
    gain: str = "linear"
    """Gain of a grade: linear, exp (2^g - 1), binary, or a table such as `1:3/2:9`."""
    rbp_gain: Literal["scaled", "binary", "linear", "exp"] = "scaled"
    """Gain of a grade in rank-biased precision: divided by the query's highest grade, or as in `gain`."""
    rel: float = 1
    """Minimum relevant grade."""
    recall_of: Literal["relevant", "capped", "k", "eps"] = "relevant"
    """Denominator of recall: all relevant documents, min(k, R), the k best, or those within (1 + eps) of the k-th
    distance.
    """
    precision_of: Literal["k", "retrieved"] = "k"
    """Denominator of precision: k, or the number of documents retrieved up to k."""
    map_of: Literal["relevant", "capped", "found"] = "relevant"
    """Denominator of average precision: all relevant documents, min(k, R), or those found."""
    f1_of: Literal["queries", "means"] = "queries"
    """F1: mean over queries, or F1 of mean precision and mean recall."""
    min_cutoff: Annotated[int, AtLeast(0), AtMost(1)] = 1
    """Smallest cutoff of precision; with 0, precision@0 is 0."""
    mrr_depth: Annotated[int, AtLeast(1)] | None = None
    """Cutoff of `mrr` without a cutoff; None is the whole ranking."""
    points: Literal["round", "up"] = "round"
    """Conversion of a recall level to a number of documents: rounded (trec_eval 10), or up from a tenth (9)."""
    targets: Literal["map", "identity"] = "map"
    """Targets of `dr`: from a target map, or each document is its own."""
    dedupe: Literal["after", "before"] = "after"
    """Whether `dr` drops repeated targets after the cutoff or before it."""
    none: Literal["zero", "skip", "one", "recall-one"] = "zero"
    """Score of a query without relevant documents: 0, left out, 1 (precision stays 0), or 1 for recall and 0 for
    others.
    """
    missing: Literal["zero", "skip", "error"] = "zero"
    """Judged query that is missing from the run: 0, left out, or an error."""
    duplicates: Literal["error", "first", "count"] = "error"
    """Duplicate document in a run file: an error, only its first rank counts, or every rank counts. In a run that
    ragauge made, a repeated document counts at its first rank.
    """
    unit: Literal["hit", "document"] = "hit"
    """What a rank is: a hit as returned, so that a repeated document takes up ranks, or a distinct document."""
    ties: Literal["trec", "ranked", "expected"] = "trec"
    """Order of equal scores: document id descending, input order, or the mean over all orders."""
    width: Literal["double", "float32"] = "double"
    """Precision of retrieval scores: 64-bit floats, or rounded to 32 bits first."""
    unjudged: Literal["nonrelevant", "condensed"] = "nonrelevant"
    """Unjudged documents: not relevant, or removed from the ranking first."""
    own: Literal["kept", "dropped"] = "kept"
    """Document with the id of the query: kept, or removed from the ranking first."""
    depth: Annotated[int, AtLeast(1)] | None = None
    """Maximum number of documents used per query; None uses all."""
    beyond_depth: Literal["undefined", "computed"] = "undefined"
    """Cutoff deeper than the k of a run: undefined, or computed from the retrieved documents."""
    no_claims: Literal["unscored", "one"] = "unscored"
    """Faithfulness of an answer without claims: unscored, or 1."""
    no_context: Literal["zero", "unscored"] = "zero"
    """Sample with empty contexts: scored as having no support, or unscored."""
    refusal: Literal["zero", "unscored"] = "zero"
    """Relevance of a refusal: 0, or unscored."""
    rel_stated: bool = field(default=False, compare=False, repr=False)
    """Whether the user set `rel`; not an option itself."""
    targets_stated: bool = field(default=False, compare=False, repr=False)
    """Whether the user set `targets`; not an option itself."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.gain not in ("linear", "exp", "binary") and not re.fullmatch(
            r"[-\d.]+:[-\d.]+(/[-\d.]+:[-\d.]+)*", self.gain
        ):
            raise BadInput(
                f"`gain` cannot be `{self.gain}`", hint="use linear, exp, binary, or a table such as 1:3/2:9"
            )
        if self.ties == "expected" and (self.unjudged, self.own, self.depth) != ("nonrelevant", "kept", None):
            raise BadInput(
                "ties=expected cannot be combined with options that remove documents from the ranking",
                hint="with ties=expected do not set unjudged, own or depth",
            )

    def but(self, **options: str | float | None) -> Convention:
        """Return the convention with some options changed; its name lists them.

        >>> PRESETS["default"].but(ties="ranked").name
        'default, ties=ranked'
        """
        option_names = {f.name for f in fields(self)} - NON_OPTION_FIELDS
        for option in options:
            if option not in option_names:
                raise UnknownName("option", option, option_names)
        changed: dict[str, Any] = {k: v for k, v in options.items() if v != getattr(self, k)}
        name = ", ".join([self.name, *(f"{k}={v}" for k, v in changed.items())])
        changed["rel_stated"] = self.rel_stated or "rel" in options
        changed["targets_stated"] = self.targets_stated or "targets" in options
        return replace(self, name=name, **changed)

    def departures(self) -> dict[str, Any]:
        """Return the options that differ from the default convention."""
        default = asdict(PRESETS["default"])
        return {k: v for k, v in asdict(self).items() if k not in NON_OPTION_FIELDS and v != default[k]}


OPTION_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(literal_choices(Convention))
"""Allowed values of each option that is a choice."""

_LIST_EVALUATOR_OPTIONS: Mapping[str, Any] = {"ties": "ranked", "duplicates": "first"}
"""Options of evaluators of plain id lists: the input order is the ranking, and sets drop duplicates."""

_RIG_OPTIONS: Mapping[str, Any] = {
    "gain": "exp",
    "ties": "ranked",
    "duplicates": "count",
    "no_claims": "one",
}
"""Options shared by the document and the code of rig-retrieval-evals."""

_ANY_DEPTH_OPTIONS: Mapping[str, Any] = {"beyond_depth": "computed"}
"""Tools that score run files compute every cutoff, because a run file does not state its depth."""

PRESETS: Mapping[str, Convention] = MappingProxyType(
    {
        c.name: c
        for c in (
            Convention(),
            Convention("trec10", missing="error", **_ANY_DEPTH_OPTIONS),
            Convention("trec9", width="float32", missing="skip", points="up", **_ANY_DEPTH_OPTIONS),
            Convention("beir", width="float32", missing="skip", points="up", own="dropped", **_ANY_DEPTH_OPTIONS),
            Convention("ranx", rbp_gain="linear", missing="error", ties="ranked", **_ANY_DEPTH_OPTIONS),
            Convention("torchmetrics", missing="skip", ties="expected", map_of="found", **_ANY_DEPTH_OPTIONS),
            Convention("sklearn", missing="skip", ties="expected", **_ANY_DEPTH_OPTIONS),
            Convention("ann", recall_of="k", **_LIST_EVALUATOR_OPTIONS),
            Convention("ragdbeval", mrr_depth=100, **_LIST_EVALUATOR_OPTIONS),
            Convention(
                "ragdbeval-capped",
                recall_of="capped",
                precision_of="retrieved",
                map_of="capped",
                mrr_depth=100,
                **_LIST_EVALUATOR_OPTIONS,
            ),
            Convention("swarm", mrr_depth=20, targets="identity", **_LIST_EVALUATOR_OPTIONS),
            Convention("graphflow", targets="identity", dedupe="after", **_LIST_EVALUATOR_OPTIONS),
            Convention("pgvectordb", gain="binary", f1_of="means", missing="error", **_LIST_EVALUATOR_OPTIONS),
            Convention("rig", none="recall-one", min_cutoff=0, **_RIG_OPTIONS),
            Convention("rig-code", none="one", no_context="unscored", **_RIG_OPTIONS),
            Convention("tokenization", mrr_depth=15, **_LIST_EVALUATOR_OPTIONS),
            Convention("ragas", map_of="found", **_LIST_EVALUATOR_OPTIONS),
        )
    }
)


NUMERIC_OPTION_TYPES: Mapping[str, type] = MappingProxyType(
    {"rel": float, "min_cutoff": int, "mrr_depth": int, "depth": int}
)
"""Types of the numeric options of a convention, by option name."""


def find_convention(convention: str | Convention) -> Convention:
    """Find a convention by name, with options after commas; a convention is returned unchanged.

    Options without a name change the default convention.

    >>> find_convention("RIG").gain, find_convention("trec9,ties=ranked").name, find_convention("depth=5").depth
    ('exp', 'trec9, ties=ranked', 5)
    """
    if isinstance(convention, Convention):
        return convention
    parts = [part.strip() for part in convention.split(",")]
    name = "default" if "=" in parts[0] else parts.pop(0)
    preset = PRESETS.get(name.lower().replace("_", "-"))
    if preset is None:
        raise UnknownName("convention", name, PRESETS)
    return preset.but(**dict(map(_parse_option, parts)))


def _parse_option(text: str) -> tuple[str, Any]:
    option, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise BadInput(f"an option of a convention must be OPTION=VALUE, got `{text}`", hint="e.g. trec9,ties=ranked")
    try:
        return option, NUMERIC_OPTION_TYPES.get(option, str)(value)
    except ValueError:
        raise BadInput(f"`{option}` must be a number, got `{value}`", hint=f"e.g. {option}=1") from None


@lru_cache(maxsize=100)
def parse_convention(name: str) -> Convention | None:
    """Return the convention with a recorded name.

    Returns None if the name does not define it.

    >>> parse_convention("rig, ties=trec, depth=5").depth, parse_convention("my own")
    (5, None)
    """
    try:
        convention = find_convention(name or "default")
    except RagaugeError:
        return None
    return convention if convention.name == (name or "default") else None
