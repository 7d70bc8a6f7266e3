"""Conventions: options on which evaluation tools differ, and presets that set all of them.

CONVENTIONS.md explains each option and preset; a test keeps it in sync with this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from ragauge.core.errors import BadInput, RagaugeError, UnknownName

OPTION_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "rbp_gain": ("scaled", "binary", "linear", "exp"),
        "recall_of": ("relevant", "capped", "k", "eps"),
        "precision_of": ("k", "retrieved"),
        "map_of": ("relevant", "capped", "found"),
        "f1_of": ("queries", "means"),
        "points": ("round", "up"),
        "targets": ("map", "identity"),
        "dedupe": ("after", "before"),
        "none": ("zero", "skip", "one", "recall-one"),
        "missing": ("zero", "skip", "error"),
        "duplicates": ("error", "first", "count"),
        "ties": ("trec", "ranked", "expected"),
        "width": ("double", "float32"),
        "unjudged": ("nonrelevant", "condensed"),
        "own": ("kept", "dropped"),
        "beyond_depth": ("undefined", "computed"),
        "no_claims": ("unscored", "one"),
        "no_context": ("zero", "unscored"),
        "refusal": ("zero", "unscored"),
    }
)

ANSWER_OPTIONS = ("no_claims", "no_context", "refusal")
"""Options that apply only to answer measures."""


NON_OPTION_FIELDS = frozenset({"name", "rel_stated"})
"""Fields of a convention that are not options."""


@dataclass(frozen=True)
class Convention:
    """Values of all options; the defaults are those of trec_eval 10 with `-c`."""

    name: str = "default"
    gain: str = "linear"
    """Gain of a grade: linear, exp (2^g - 1), binary, or a table such as `1:3/2:9`."""
    rbp_gain: str = "scaled"
    """Gain of a grade in rank-biased precision: divided by the query's highest grade, or as in `gain`."""
    rel: float = 1
    """Minimum relevant grade."""
    recall_of: str = "relevant"
    """Denominator of recall: all relevant documents, min(k, R), the k best, or those within (1 + eps) of the k-th
    distance.
    """
    precision_of: str = "k"
    """Denominator of precision: k, or the number of documents retrieved up to k."""
    map_of: str = "relevant"
    """Denominator of average precision: all relevant documents, min(k, R), or those found."""
    f1_of: str = "queries"
    """F1: mean over queries, or F1 of mean precision and mean recall."""
    min_cutoff: int = 1
    """Smallest cutoff of precision; with 0, precision@0 is 0."""
    mrr_depth: int | None = None
    """Cutoff of `mrr` without a cutoff; None is the whole ranking."""
    points: str = "round"
    """Conversion of a recall level to a number of documents: rounded (trec_eval 10), or up from a tenth (9)."""
    targets: str = "map"
    """Targets of `dr`: from a target map, or each document is its own."""
    dedupe: str = "after"
    """Whether `dr` drops repeated targets after the cutoff or before it."""
    none: str = "zero"
    """Score of a query without relevant documents: 0, left out, 1 (precision stays 0), or 1 for recall and 0 for
    others.
    """
    missing: str = "zero"
    """Judged query that is missing from the run: 0, left out, or an error."""
    duplicates: str = "error"
    """Duplicate document in a ranking: an error, only its first rank counts, or every rank counts."""
    ties: str = "trec"
    """Order of equal scores: document id descending, input order, or the mean over all orders."""
    width: str = "double"
    """Precision of retrieval scores: 64-bit floats, or rounded to 32 bits first."""
    unjudged: str = "nonrelevant"
    """Unjudged documents: not relevant, or removed from the ranking first."""
    own: str = "kept"
    """Document with the id of the query: kept, or removed from the ranking first."""
    depth: int | None = None
    """Maximum number of documents used per query; None uses all."""
    beyond_depth: str = "undefined"
    """Cutoff deeper than the k of a run: undefined, or computed from the retrieved documents."""
    no_claims: str = "unscored"
    """Faithfulness of an answer without claims: unscored, or 1."""
    no_context: str = "zero"
    """Sample with empty contexts: scored as having no support, or unscored."""
    refusal: str = "zero"
    """Relevance of a refusal: 0, or unscored."""
    rel_stated: bool = field(default=False, compare=False, repr=False)
    """Whether the user set `rel`; not an option itself."""

    def __post_init__(self) -> None:
        for option, allowed in OPTION_CHOICES.items():
            value = getattr(self, option)
            if value not in allowed:
                raise BadInput(f"`{option}` cannot be `{value}`", hint=f"it is one of {', '.join(allowed)}")
        if self.gain not in ("linear", "exp", "binary") and not re.fullmatch(
            r"[-\d.]+:[-\d.]+(/[-\d.]+:[-\d.]+)*", self.gain
        ):
            raise BadInput(f"`gain` cannot be `{self.gain}`", hint="linear, exp, binary, or a table such as 1:3/2:9")
        if math.isnan(self.rel):
            raise BadInput("`rel` cannot be NaN", hint="it is the least grade that counts as relevant")
        if self.min_cutoff not in (0, 1):
            raise BadInput(f"`min_cutoff` must be 0 or 1, got {self.min_cutoff}")
        for option in ("depth", "mrr_depth"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise BadInput(f"`{option}` cannot be {value}", hint="a depth is at least 1")
        if self.ties == "expected" and (self.unjudged, self.own, self.depth) != ("nonrelevant", "kept", None):
            raise BadInput(
                "ties cannot be averaged where documents are taken out of the ranking first",
                hint="with ties=expected leave unjudged, own and depth as they are",
            )

    def but(self, **options: Any) -> Convention:
        """Return the convention with some options changed; its name lists them.

        >>> PRESETS["default"].but(ties="ranked").name
        'default, ties=ranked'
        """
        known = {f.name for f in fields(self)} - NON_OPTION_FIELDS
        for option in options:
            if option not in known:
                raise UnknownName("option", option, known)
        changed = {k: v for k, v in options.items() if v != getattr(self, k)}
        stated = self.rel_stated or "rel" in options
        if not changed and stated == self.rel_stated:
            return self
        name = ", ".join([self.name, *(f"{k}={v}" for k, v in changed.items())])
        return replace(self, name=name, rel_stated=stated, **changed)

    def departures(self) -> dict[str, Any]:
        """Return the options that differ from the default convention."""
        default = asdict(PRESETS["default"])
        return {k: v for k, v in asdict(self).items() if k not in NON_OPTION_FIELDS and v != default[k]}


_LIST_EVALUATOR_OPTIONS: Mapping[str, Any] = {"ties": "ranked", "duplicates": "first"}
"""Options of evaluators of plain id lists: the input order is the ranking, and sets drop duplicates."""

_RIG_OPTIONS: Mapping[str, Any] = {
    "gain": "exp",
    "ties": "ranked",
    "duplicates": "count",
    "no_claims": "one",
    "no_context": "unscored",
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
            Convention("rig-code", none="one", **_RIG_OPTIONS),
            Convention("tokenization", mrr_depth=15, **_LIST_EVALUATOR_OPTIONS),
            Convention("ragas", map_of="found", **_LIST_EVALUATOR_OPTIONS),
        )
    }
)


def find_convention(which: str | Convention) -> Convention:
    """Find a convention by name; a convention is returned unchanged.

    >>> find_convention("RIG").gain
    'exp'
    """
    if isinstance(which, Convention):
        return which
    found = PRESETS.get(which.strip().lower().replace("_", "-"))
    if found is None:
        raise UnknownName("convention", which, PRESETS, hint=f"there are {', '.join(PRESETS)}")
    return found


NUMERIC_OPTION_TYPES: Mapping[str, type] = MappingProxyType(
    {one.name: float if one.name == "rel" else int for one in fields(Convention) if "str" not in str(one.type)}
)
"""Types of the numeric options of a convention, by option name."""


@lru_cache(maxsize=100)
def parse_convention(name: str) -> Convention | None:
    """Return the convention with a recorded name.

    Returns None if the name does not define it.

    >>> parse_convention("rig, ties=trec, depth=5").depth, parse_convention("my own")
    (5, None)
    """
    first, *options = (name or "default").split(", ")
    chosen: dict[str, Any] = {}
    try:
        for text in options:
            option, _, value = text.partition("=")
            chosen[option] = NUMERIC_OPTION_TYPES.get(option, str)(value)
        found = PRESETS[first].but(**chosen)
    except (KeyError, ValueError, RagaugeError):
        return None
    return found if found.name == (name or "default") else None
