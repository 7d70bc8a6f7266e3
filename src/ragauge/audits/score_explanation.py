"""Explanation of published scores: which convention, tie rule or filter reproduces a number."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np

from ragauge.audits.audit_input import AuditInput, ranking_options, top_documents_needed
from ragauge.audits.comparability import restate_measure
from ragauge.core.errors import BadInput, RagaugeError
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Judgments, Run
from ragauge.measures.conventions import OPTION_CHOICES, PRESETS, Convention
from ragauge.measures.judged_ranks import JudgedRanks
from ragauge.measures.names import Measure, parse_measure
from ragauge.measures.registry import total
from ragauge.measures.scoring import score_judged_ranks
from ragauge.output.numbers import format_change, pluralise

CUTOFFS_TRIED = (1, 3, 5, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
DEPTHS_TRIED = (10, 20, 50, 100, 1000)
OPTION_DESCRIPTIONS = {
    ("ties", "trec"): "equal scores by descending document id",
    ("ties", "ranked"): "equal scores in file order",
    ("ties", "expected"): "mean over all orders of equal scores",
    ("width", "float32"): "scores as 32-bit floats",
    ("own", "dropped"): "documents that are the query itself removed",
    ("unjudged", "condensed"): "unjudged documents removed",
    ("missing", "skip"): "only queries in the run",
    ("none", "skip"): "only queries with a relevant document",
    ("none", "one"): "queries without a relevant document score 1",
    ("none", "recall-one"): "queries without a relevant document have a recall of 1",
    ("duplicates", "count"): "duplicate documents count each time",
    ("duplicates", "first"): "duplicate documents count once, at the first rank",
    ("unit", "hit"): "k counts hits",
    ("unit", "document"): "k counts distinct documents",
}
"""Explanations of convention options whose names are not clear alone."""


@dataclass(frozen=True)
class ScoringVariant:
    """One way to score: convention, measure, and the names of changed inputs."""

    convention: Convention
    measure: Measure
    judgments: str = ""
    run: str = ""


@dataclass(frozen=True)
class ConventionChange:
    """One change relative to the audit's scoring.

    Two changes of one kind exclude each other.
    """

    kind: str
    label: str
    apply: Callable[[ScoringVariant], ScoringVariant | None]


@dataclass(eq=False)
class VariantScorer:
    """Scores variants of one measure of one run, and caches judged ranks and scores."""

    audit_input: AuditInput
    run: str
    measure: Measure
    _judged: dict[tuple[Any, ...], JudgedRanks] = field(default_factory=dict)
    _changed_inputs: dict[str, Judgments | Run] = field(default_factory=dict)
    _values: dict[ScoringVariant, tuple[float, int] | None] = field(default_factory=dict)

    def score(self, variant: ScoringVariant) -> tuple[float, int] | None:
        """Return the mean and the number of queries of a variant.

        None if it cannot be scored.
        """
        if variant not in self._values:
            self._values[variant] = self._score_variant(variant)
        return self._values[variant]

    def _score_variant(self, variant: ScoringVariant) -> tuple[float, int] | None:
        audit_input, top = self.audit_input, top_documents_needed([variant.measure])
        try:
            key = (*ranking_options(variant.convention), variant.judgments, variant.run, top)
            if key not in self._judged:
                judgments: Any = self._changed_inputs[variant.judgments] if variant.judgments else None
                run: Any = self._changed_inputs[variant.run] if variant.run else self.run
                self._judged[key] = audit_input.judged(run, convention=variant.convention, judgments=judgments, top=top)
            scores = score_judged_ranks(self._judged[key], [variant.measure], variant.convention)
        except RagaugeError:
            return None
        mean, n = next(iter(scores.means.values())), next(iter(scores.n.values()))
        return None if math.isnan(mean) else (mean, n)

    @property
    def base(self) -> ScoringVariant:
        """The variant that the audit itself uses."""
        return ScoringVariant(self.audit_input.convention, self.measure)

    def departures(self) -> list[ConventionChange]:
        """Return every single change that can affect this measure and run."""
        convention, measure = self.audit_input.convention, self.measure
        steps = [
            _option_change(name, value)
            for name, values in _option_choices(self.audit_input, measure).items()
            for value in values
            if value != getattr(convention, name)
        ]
        deepest = int(self.audit_input.judged(self.run).retrieved.max(initial=0))
        steps += [_option_change("depth", k) for k in DEPTHS_TRIED if k < deepest]
        cutoffs = (
            [k for k in CUTOFFS_TRIED if k <= max(deepest, 10)] if measure.spec.cutoff in ("rank", "rank?") else []
        )
        if measure.spec.cutoff == "rank?":
            cutoffs = [*cutoffs, 0]
        steps += [_cutoff_change(measure, k or None) for k in cutoffs if (k or None) != measure.cutoff]
        return [*(change for change in steps if change.apply(self.base) is not None), *self._data_changes()]

    def _data_changes(self) -> Iterator[ConventionChange]:
        """Yield changes of the data.

        These are: no orphans, low grades as 0, or the rank column instead of the scores.
        """
        audit_input = self.audit_input
        frame = audit_input.judgments.frame
        if audit_input.documents is not None:
            corpus_ids = {document.id for document in audit_input.documents}
            inside = frame["doc"].is_in(list(corpus_ids))
            if not inside.all():
                self._changed_inputs["orphans"] = Judgments(frame.filter(inside))
                yield _data_change("judgments", "orphans", "judged documents that are not in the corpus removed")
        if "rel" not in dict(self.measure.options):
            import polars as pl

            levels = sorted({float(g) for g in frame["grade"].unique() if g > 0})[1:4]
            for level in levels:
                name = f"grades below {level:g} count 0"
                keep = pl.when(pl.col("grade") < level).then(pl.min_horizontal("grade", 0.0)).otherwise(pl.col("grade"))
                self._changed_inputs[name] = Judgments(frame.with_columns(keep.cast(pl.Float64).alias("grade")))
                yield _data_change("judgments", name, name)
        run = audit_input.runs[self.run]
        if "rank" in run.table.columns:
            by_rank = run.table.with_columns((-run.table["rank"].cast(float)).alias("score"))
            changed = run.table.select(
                rises=(run.table["score"].diff().fill_null(0) > 0)
                & (run.table["query"] == run.table["query"].shift())
                & (run.table["rank"].diff().fill_null(0) > 0)
            )["rises"].any()
            if changed:
                self._changed_inputs["by rank"] = replace(run, table=by_rank)
                yield _data_change("run", "by rank", "ordered by the rank column, scores ignored")


def _option_choices(audit_input: AuditInput, measure: Measure) -> dict[str, Sequence[Any]]:
    """Return the values to try for each option of a convention.

    Options that do not affect the measure are dropped later.
    """
    grades = sorted({float(g) for g in np.unique(audit_input.judgments.pool.grades) if g > 0})
    choices: dict[str, Sequence[Any]] = dict(OPTION_CHOICES)
    del choices["missing"], choices["duplicates"], choices["unit"]
    choices["missing"] = ("zero", "skip")
    if measure.spec.name not in ("recall", "set_recall"):  # For other measures, `recall-one` equals `zero`.
        choices["none"] = ("zero", "skip", "one")
    if audit_input.convention.duplicates != "error":  # The run has duplicate documents.
        choices["duplicates"] = ("first", "count")
    if any(audit_input.judged(run).repeats is not None for run in audit_input.runs):
        choices["unit"] = ("hit", "document")
    choices["gain"] = ("linear", "exp", "binary")
    choices["rel"] = tuple(dict.fromkeys([1.0, *grades[:4]])) if "rel" in dict(measure.options) else ()
    return choices


def _option_change(name: str, value: Any) -> ConventionChange:
    def apply(variant: ScoringVariant) -> ScoringVariant | None:
        try:
            changed_convention = variant.convention.but(**{name: value})
            measure = restate_measure(variant.measure, variant.convention, changed_convention)
        except RagaugeError:
            return None
        has_effect = name in ("missing", "none") or ranking_options(changed_convention) != ranking_options(
            variant.convention
        )
        return (
            replace(variant, convention=changed_convention, measure=measure)
            if has_effect or measure != variant.measure
            else None
        )

    value_text = f"{value:g}" if isinstance(value, float) else str(value)
    description = OPTION_DESCRIPTIONS.get((name, value))
    return ConventionChange(name, f"{name}={value_text}" + (f" ({description})" if description else ""), apply)


def _cutoff_change(measure: Measure, k: int | None) -> ConventionChange:
    cut_measure = Measure(measure.spec, k, measure.options)

    def apply(variant: ScoringVariant) -> ScoringVariant | None:
        return replace(variant, measure=Measure(variant.measure.spec, k, variant.measure.options))

    return ConventionChange("cutoff", f"the measure is {cut_measure}", apply)


def _data_change(kind: str, name: str, label: str) -> ConventionChange:
    def apply(variant: ScoringVariant) -> ScoringVariant | None:
        return replace(variant, judgments=name) if kind == "judgments" else replace(variant, run=name)

    return ConventionChange(kind, label, apply)


MATCH_DENSITY_RADIUS = 0.02
"""Half-width of the interval around a score in which the density of variant scores is estimated."""
DIGIT_NAMES = ("a whole number", "one digit", "two digits", "three digits")
"""Names of precisions below the four digits that tools print."""
MAX_CHANCE_MATCHES = 0.25
"""Minimum expected number of chance matches at which a match explains nothing."""


@dataclass(frozen=True)
class PublishedScore:
    """A published score with the number of digits that it was given with."""

    measure: Measure
    value: float
    digits: int
    text: str

    @classmethod
    def parse(cls, measure: str, text: str, convention: Convention) -> PublishedScore:
        """Parse a measure and a published score.

        A value above 1 of a measure that is at most 1 is read as a percentage. Raises BadInput if it is not a
        number.

        >>> found = PublishedScore.parse("nDCG@10", "74.39", PRESETS["default"])
        >>> str(found.measure), found.value, found.digits
        ('ndcg@10', 0.7439, 4)
        """
        parsed_measure = parse_measure(measure, convention)
        score_text = text.strip()
        try:
            value = float(score_text.rstrip("%"))
        except ValueError:
            raise BadInput(f"`{text}` is not a number", hint="--expect ndcg@10=0.7439") from None
        if not math.isfinite(value):
            raise BadInput(f"`{text}` is not a number", hint="--expect ndcg@10=0.7439")
        exponent = Decimal(score_text.rstrip("%").strip()).as_tuple().exponent
        digits = max(0, -int(exponent))
        unbounded = (
            parsed_measure.spec.name in ("dcg", "ideal_dcg", "yaap", "utility")
            or parsed_measure.spec.aggregate is total
        )
        if score_text.endswith("%") or (value > 1 and not unbounded):
            value, digits = round(value / 100, digits + 2), digits + 2
        return cls(parsed_measure, value, digits, f"{parsed_measure} = {score_text}")

    def matches(self, value: float) -> bool:
        """Return whether a value equals the published score after rounding to its digits."""
        return abs(value - self.value) <= 0.5 * 10.0**-self.digits + 1e-9


@dataclass(frozen=True)
class VariantResult:
    """Score of one variant.

    `steps` is the number of changes from the audit's own scoring.
    """

    steps: int
    label: str
    value: float
    n: int
    preset: str = ""
    """Name of the convention, if the variant is one; `label` names it too."""
    options: str = ""
    """Options of `evaluate` that score this way; empty if the data must be changed instead."""


def iterate_variant_results(scorer: VariantScorer) -> Iterator[list[VariantResult]]:
    """Yield the results of variants by number of changes.

    First without change, then each preset and single change, then each pair of changes.
    """

    def score_variant(steps: int, label: str, variant: ScoringVariant, preset: str = "") -> Iterator[VariantResult]:
        result = scorer.score(variant)
        if result is not None:
            yield VariantResult(steps, label, *result, preset, _evaluate_options(scorer.measure, variant))

    yield list(score_variant(0, f"as scored here ({scorer.audit_input.convention.name})", scorer.base))
    singles = scorer.departures()
    variants: list[VariantResult] = []
    for change in singles:
        variant = change.apply(scorer.base)
        if variant is not None:
            variants.extend(score_variant(1, change.label, variant))
    for preset in PRESETS.values():
        variant = ScoringVariant(preset, restate_measure(scorer.measure, scorer.audit_input.convention, preset))
        variants.extend(score_variant(1, f"convention {preset.name}", variant, preset.name))
    yield variants
    pairs: list[VariantResult] = []
    for change, second in itertools.combinations(singles, 2):
        variant = change.apply(scorer.base)
        combined = second.apply(variant) if variant is not None and change.kind != second.kind else None
        if combined is not None:
            pairs.extend(score_variant(2, f"{change.label}; {second.label}", combined))
    yield pairs


def _evaluate_options(measure: Measure, variant: ScoringVariant) -> str:
    """Return the options with which `evaluate` reproduces a variant of the audit; empty if its data is changed."""
    if variant.judgments or variant.run:
        return ""
    cli_measure = Measure(measure.spec, variant.measure.cutoff, measure.options)
    options_text = variant.convention.name.removeprefix("default").removeprefix(", ").replace(", ", ",")
    return f"-m {shlex.quote(str(cli_measure))}" + (f" -C {options_text}" if options_text else "")


def check_published_scores(audit_input: AuditInput) -> Iterator[Finding]:
    """Find the simplest variants that reproduce each published score, to its digits.

    The audit's own scoring is tried first, then every preset and every single change. Pairs of changes are tried
    only if nothing simpler matches in any run. A problem if nothing matches, or if variants are so dense there that
    `MAX_CHANCE_MATCHES` or more would match by chance. A match by a pair of changes is marked as possibly
    accidental.
    """
    for measure, text in audit_input.claims:
        claim = PublishedScore.parse(measure, text, audit_input.convention)
        searches = {
            run: iterate_variant_results(VariantScorer(audit_input, run, claim.measure)) for run in audit_input.runs
        }
        results_by_run: dict[str, list[VariantResult]] = {run: [] for run in audit_input.runs}
        hits: dict[str, list[VariantResult]] = {}
        for _ in range(3):
            for run, levels in searches.items():
                level = next(levels)
                hits[run] = [variant for variant in level if claim.matches(variant.value)]
                results_by_run[run] += level
            if any(hits.values()):
                break
        yield _explanation_finding(claim, results_by_run, {run: variants for run, variants in hits.items() if variants})


def _explanation_finding(
    claim: PublishedScore, results_by_run: dict[str, list[VariantResult]], hits: dict[str, list[VariantResult]]
) -> Finding:
    several = len(results_by_run) > 1
    values = np.unique(
        np.round([variant_result.value for results in results_by_run.values() for variant_result in results], 9)
    )
    unit = 10.0**-claim.digits
    around = max(MATCH_DENSITY_RADIUS, 2 * unit)
    chance_matches = (int((np.abs(values - claim.value) <= around).sum()) - 1) / (2 * around) * unit
    ways_tried = f"{pluralise(sum(map(len, results_by_run.values())), 'way')} of scoring tried"
    subject = next(iter(hits or results_by_run)) if len(hits or results_by_run) == 1 else "all runs"
    if hits:
        rows = [(run, preset) for run, variants in hits.items() for preset in _merge_presets(variants)]
        run, best = rows[0]
        current_value = next(
            (variant_result.value for variant_result in results_by_run[run] if variant_result.steps == 0), math.nan
        )
        doubt = chance_matches >= MAX_CHANCE_MATCHES and best.steps > 0
        message = f"{claim.text}{f' of {run}' if several else ''} is "
        message += f"{'' if best.steps == 0 else 'explained by '}{best.label}{_precision_text(claim)}"
        if best.steps > 1:
            number = f"{sum(map(len, results_by_run.values())):,}"
            chances = f", since about {chance_matches:.1g} of them would match by chance" if doubt else ""
            message += f" (two departures out of {number} ways tried; may be a coincidence{chances})"
        else:
            chances = (
                f", of which about {chance_matches:.1g} would match by chance: this may be one of them" if doubt else ""
            )
            message += f" ({ways_tried}{chances})"
        grid = _variant_grid(rows[:12], several) if best.steps else None
        moved = format_change(str(claim.measure), current_value, best.value)
        return Finding(
            subject, "expected", doubt, len(rows), message, (), moved, grid, _explanation_remedy(best, doubt=doubt)
        )
    flat = [(run, variant_result) for run, results in results_by_run.items() for variant_result in results]
    closest: list[tuple[str, VariantResult]] = []
    for run, variant in sorted(flat, key=lambda pair: (abs(pair[1].value - claim.value), pair[1].steps)):
        if all(abs(variant.value - other.value) > 1e-12 for _, other in closest):
            closest.append((run, variant))
    message = f"{claim.text} is not explained by any of {ways_tried.replace(' tried', '')}; it may refer to other data"
    return Finding(
        subject,
        "expected",
        problem=True,
        count=len(flat),
        message=message,
        table=_variant_grid(closest[:3], several, "nearest"),
    )


def _precision_text(claim: PublishedScore) -> str:
    """Describe the precision of a match if it has fewer digits than tools print."""
    if claim.digits >= len(DIGIT_NAMES) or claim.measure.spec.aggregate is total:
        return ""
    return f", to {DIGIT_NAMES[claim.digits]}"


def _explanation_remedy(best: VariantResult, *, doubt: bool) -> str:
    """Describe how to reproduce the score and how to cite it."""
    if best.steps == 0:
        return ""
    instruction = (
        f"`ragauge evaluate … {best.options}` reproduces it"
        if best.options
        else f"no option reproduces this: change the files ({best.label}), and `ragauge evaluate` reproduces it"
    )
    if doubt or best.steps > 1:
        return f"{instruction}; find out how it was computed before you report it"
    return f"{instruction}; state this when you report it"


def _merge_presets(variants: Sequence[VariantResult]) -> list[VariantResult]:
    """Merge presets with equal scores into one entry."""
    presets: dict[float, list[VariantResult]] = {}
    for variant in variants:
        if variant.preset:
            presets.setdefault(round(variant.value, 9), []).append(variant)
    merged = [
        equal[0] if len(equal) == 1 else replace(equal[0], label=f"conventions {', '.join(v.preset for v in equal)}")
        for equal in presets.values()
    ]
    return [*(variant for variant in variants if not variant.preset), *merged]


def _variant_grid(
    rows: Sequence[tuple[str, VariantResult]], several: bool, heading: str = "explained by"
) -> FindingTable:
    lines: list[list[str | float | None]] = [
        [*([run] if several else []), variant.label, variant.value, variant.n] for run, variant in rows
    ]
    return FindingTable([*(["run"] if several else []), heading, "value", "n"], lines)
