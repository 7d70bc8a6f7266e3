"""Answer measures by name, and their computation from verdicts.

Names have the form `name(option=value)@cutoff`, as for all measures. Names of ragas, DeepEval, TruLens and
RAGChecker are accepted where they mean the same measure. Scoring makes no judge calls; it uses stored verdicts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from inspect import Parameter, signature
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.records import Floats, MeasureDict, Scores
from ragauge.core.samples import Sample, Verdicts
from ragauge.measures import correctness, grounding
from ragauge.measures.conventions import PRESETS, Convention, find_convention
from ragauge.measures.grounding import ABSENT_REASONS, FIELD_NAMES, AnswerMeasureInput, MissingVerdict

DEFAULT_ANSWER_MEASURES = ("faithfulness", "context_precision", "context_recall", "answer_relevance")
"""Measures computed by default."""


@dataclass(frozen=True, eq=False)
class AnswerSpec:
    """Definition of an answer measure."""

    name: str
    """Canonical name."""
    function: Callable[..., float]
    """Function from the input of a sample to its score; `ragauge measures NAME` prints its docstring."""
    required_fields: tuple[str, ...]
    """Sample fields that the measure needs: `question`, `answer`, `contexts`, `reference`."""
    tasks: tuple[str, ...]
    """Judge tasks that the measure needs."""
    aliases: tuple[str, ...] = ()
    """Other accepted names, in lower case."""
    cutoff: str = ""
    """`rank?` if a number of chunks may be given, otherwise empty."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Allowed values of each option."""
    lower_is_better: bool = False
    """Whether lower values are better."""

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options and their defaults: the keyword-only parameters of the function."""
        parameters = signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is Parameter.KEYWORD_ONLY}


_ALL_FIELDS = ("answer", "contexts", "reference")

ANSWER_MEASURES: Mapping[str, AnswerSpec] = {
    spec.name: spec
    for spec in (
        AnswerSpec(
            "faithfulness",
            grounding.faithfulness,
            ("answer", "contexts"),
            ("answer",),
            ("groundedness", "attribution"),
            choices={"by": ("verdict", "probability")},
        ),
        AnswerSpec(
            "context_precision",
            grounding.context_precision,
            ("question", "contexts"),
            ("useful",),
            (
                *("llm_context_precision", "llm_context_precision_with_reference", "contextual_precision"),
                "context_precision_with_reference",
            ),
            "rank?",
        ),
        AnswerSpec(
            "context_recall",
            grounding.context_recall,
            ("contexts", "reference"),
            ("reference",),
            ("llm_context_recall", "contextual_recall"),
            "rank?",
        ),
        AnswerSpec(
            "answer_relevance",
            grounding.answer_relevance,
            ("question", "answer"),
            ("questions",),
            ("answer_relevancy", "response_relevancy", "response_relevance"),
        ),
        AnswerSpec("claim_precision", correctness.claim_precision, ("answer", "reference"), ("cross",)),
        AnswerSpec("claim_recall", correctness.claim_recall, ("answer", "reference"), ("cross",)),
        AnswerSpec("claim_f1", correctness.claim_f1, ("answer", "reference"), ("cross",)),
        AnswerSpec(
            "context_utilisation",
            correctness.context_utilisation,
            _ALL_FIELDS,
            ("reference", "cross"),
            ("context_utilization",),
        ),
        AnswerSpec(
            "noise_sensitivity",
            correctness.noise_sensitivity,
            _ALL_FIELDS,
            ("answer", "cross"),
            choices={"chunks": ("any", "relevant", "irrelevant")},
            lower_is_better=True,
        ),
        AnswerSpec(
            "hallucination",
            correctness.hallucination,
            _ALL_FIELDS,
            ("answer", "cross"),
            ("hallucination_rate",),
            lower_is_better=True,
        ),
        AnswerSpec("self_knowledge", correctness.self_knowledge, _ALL_FIELDS, ("answer", "cross")),
        AnswerSpec("contradiction", grounding.contradiction, ("answer", "contexts"), ("answer",), lower_is_better=True),
        AnswerSpec(
            "citation_precision",
            grounding.citation_precision,
            ("answer", "contexts"),
            ("answer",),
            ("citation_prec",),
        ),
        AnswerSpec(
            "citation_recall", grounding.citation_recall, ("answer", "contexts"), ("answer",), ("citation_rec",)
        ),
    )
}
"""Answer measures by name. To add one, write its function and a row here."""

_PHRASE_ALIASES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    f"noise_sensitivity_{word}{chunks}": ("noise_sensitivity", {"chunks": chunks})
    for chunks in ("relevant", "irrelevant")
    for word in ("", "in_")
}
"""Names that stand for a measure with options."""
ANSWER_ALIASES: Mapping[str, str] = {
    **{alias: spec.name for spec in ANSWER_MEASURES.values() for alias in (spec.name, *spec.aliases)},
    **{phrase: name for phrase, (name, _) in _PHRASE_ALIASES.items()},
}
"""Canonical name for every accepted name."""
_NAME_PATTERN = re.compile(r"(?P<name>[^(@]+?)\s*(?:\((?P<options>[^)]*)\))?\s*(?:@\s*(?P<cutoff>.+))?")


@dataclass(frozen=True)
class AnswerMeasure:
    """Measure with its cutoff and options; `str()` gives its canonical name."""

    spec: AnswerSpec
    cutoff: int | None
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        changed_options = [f"{option}={value}" for option, value in self.options if value != self.spec.options[option]]
        option_text = f"({','.join(changed_options)})" if changed_options else ""
        return f"{self.spec.name}{option_text}" + ("" if self.cutoff is None else f"@{self.cutoff}")

    @property
    def tasks(self) -> frozenset[str]:
        """Judge tasks that the measure needs."""
        split = self.spec.name == "noise_sensitivity" and dict(self.options)["chunks"] != "any"
        return frozenset(self.spec.tasks) | ({"reference"} if split else set())

    def __call__(self, case: AnswerMeasureInput) -> float:
        """Compute the score of a sample; raises `MissingVerdict` if it has none."""
        options = dict(self.options)
        if self.spec.cutoff:
            return self.spec.function(case, self.cutoff, **options)
        return self.spec.function(case, **options)


def is_answer_measure(text: str) -> bool:
    """Return whether a text starts with the name of an answer measure.

    Options and cutoff may be invalid.

    >>> is_answer_measure("Answer Relevancy"), is_answer_measure("context_recall@five"), is_answer_measure("ndcg@10")
    (True, True, False)
    """
    return find_answer_spec(text) is not None


def find_answer_spec(text: str) -> AnswerSpec | None:
    """Find the answer measure that a text starts with; None if there is none."""
    name = ANSWER_ALIASES.get(_name_key(re.split(r"[(@]", text.strip().lower())[0]))
    return None if name is None else ANSWER_MEASURES[name]


def parse_answer_measure(text: str, convention: Convention = PRESETS["default"]) -> AnswerMeasure:
    """Parse an answer measure by any of its names.

    >>> [str(parse_answer_measure(name)) for name in ("Response Relevancy", "contextual_recall@3",
    ...     "faithfulness(by=probability)")]
    ['answer_relevance', 'context_recall@3', 'faithfulness(by=probability)']
    """
    del convention  # none of these options is part of a convention
    stripped = text.strip()
    match = _NAME_PATTERN.fullmatch(stripped.lower())
    key = _name_key(match["name"]) if match else stripped.lower()
    name = ANSWER_ALIASES.get(key)
    if match is None or name is None:
        _check_not_ranking_measure(stripped)
        raise UnknownName("answer measure", stripped, ANSWER_ALIASES, hint="list all with `ragauge measures`")
    spec = ANSWER_MEASURES[name]
    options = {**_PHRASE_ALIASES.get(key, ("", {}))[1], **_parse_options(spec, match["options"] or "")}
    return AnswerMeasure(
        spec, _parse_cutoff(spec, match["cutoff"], stripped), tuple({**spec.options, **options}.items())
    )


def _check_not_ranking_measure(name: str) -> None:
    """Raise `BadInput` if the name is a ranking measure."""
    from ragauge.measures import names

    try:
        names.parse_measure(name)
    except (BadInput, LookupError):
        return
    raise BadInput(f"`{name}` is a ranking measure, not an answer measure", hint="compute it with `ragauge evaluate`")


def _name_key(name: str) -> str:
    return re.sub(r"[ \-]+", "_", name.strip())


def _parse_options(spec: AnswerSpec, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for assignment in filter(None, (item.strip() for item in text.split(","))):
        option, _, value = (part.strip().strip("'\"") for part in assignment.partition("="))
        if option not in spec.options:
            hint = f"{spec.name} has {', '.join(spec.options) or 'no options'}"
            raise UnknownName("option", option, spec.options, of=spec.name, hint=hint)
        if value not in spec.choices[option]:
            allowed = ", ".join(spec.choices[option])
            raise BadInput(f"`{option}` of {spec.name} cannot be `{value}`", hint=f"choose one of {allowed}")
        options[option] = value
    return options


def _parse_cutoff(spec: AnswerSpec, text: str | None, measure_name: str) -> int | None:
    if text is None:
        return None
    if not spec.cutoff:
        raise BadInput(f"{spec.name} has no cutoff", hint=f"use {spec.name}")
    if not re.fullmatch(r"[1-9]\d*", text):
        raise BadInput(
            f"`{text}` in `{measure_name}` is not a cutoff", hint=f"a whole number from 1, as in {spec.name}@3"
        )
    return int(text)


def parse_answer_measures(
    measures: str | Iterable[str | AnswerMeasure], convention: Convention = PRESETS["default"]
) -> list[AnswerMeasure]:
    """Parse several answer measures without duplicates.

    A text may list them with commas or blanks.

    >>> [str(one) for one in parse_answer_measures(["faithfulness, context_recall@3,5", "Answer Relevancy"])]
    ['faithfulness', 'context_recall@3', 'context_recall@5', 'answer_relevance']
    """
    from ragauge.measures.names import split_measure_list

    parsed: list[AnswerMeasure] = []
    for entry in [measures] if isinstance(measures, str) else measures:
        if not isinstance(entry, str | AnswerMeasure):
            raise BadInput(
                f"an answer measure must be a name, got {getattr(entry, '__name__', repr(entry))[:80]}; functions of "
                f"your own are not supported",
                hint="list the names with `ragauge measures`",
            )
        names = split_measure_list(entry, _can_parse) if isinstance(entry, str) else []
        parsed += [parse_answer_measure(name, convention) for name in names] if isinstance(entry, str) else [entry]
    return list({str(measure): measure for measure in parsed}.values())


def _can_parse(text: str) -> bool:
    """Return whether a text is a single answer measure."""
    try:
        parse_answer_measure(text)
    except (BadInput, LookupError):
        return False
    return True


def required_tasks(measures: Iterable[str | AnswerMeasure]) -> frozenset[str]:
    """Collect the judge tasks that the measures need.

    >>> sorted(required_tasks(["faithfulness", "context_utilisation"]))
    ['answer', 'cross', 'reference']
    """
    return frozenset(task for measure in parse_answer_measures(measures) for task in measure.tasks)


def score_answers(
    samples: Sequence[Sample],
    verdicts: Mapping[str, Verdicts],
    measures: Iterable[str | AnswerMeasure] = DEFAULT_ANSWER_MEASURES,
    convention: str | Convention = "default",
    *,
    run: str = "answers",
    judge: str = "",
) -> Scores:
    """Score samples by each measure.

    Returns per-sample scores, means, and reasons for unscored samples. Means are over the scored samples. Raises
    `MissingEvidence` if no sample has an input that a measure needs.
    """
    convention = find_convention(convention)
    parsed_measures = parse_answer_measures(measures, convention)
    if not samples:
        raise BadInput("no samples to score", hint="give at least one sample")
    sample_ids = [sample.id for sample in samples]
    if len(set(sample_ids)) < len(sample_ids):
        duplicate_id = next(sample_id for sample_id in sample_ids if sample_ids.count(sample_id) > 1)
        raise BadInput(f"two samples have the id `{duplicate_id}`", hint="give each sample its own id")
    if not all(sample_id.strip() for sample_id in sample_ids):
        raise BadInput("a sample has an empty id", hint="give each sample its own id")
    mismatched_id = next(
        (sample_id for sample_id in sample_ids if sample_id in verdicts and verdicts[sample_id].sample != sample_id),
        None,
    )
    if mismatched_id is not None:
        raise BadInput(
            f"the verdicts on `{mismatched_id}` belong to another sample, `{verdicts[mismatched_id].sample}`",
            hint="pass a mapping from sample id to verdicts",
        )
    check_answer_inputs(parsed_measures, samples)
    cases = [
        AnswerMeasureInput(sample, verdicts.get(sample.id) or Verdicts(sample.id), convention) for sample in samples
    ]
    values: dict[str, Floats] = {}
    unscored: dict[str, Mapping[str, str]] = {}
    for measure in parsed_measures:
        values[str(measure)], unscored[str(measure)] = _score_column(measure, cases)
    canonical = partial(_canonical_under, convention)
    return Scores(
        run=run,
        convention=convention.name,
        queries=sample_ids,
        values=MeasureDict(values, canonical),
        means=MeasureDict({name: _scored_mean(column) for name, column in values.items()}, canonical),
        unscored=MeasureDict(unscored, canonical),
        lower_is_better=frozenset(str(measure) for measure in parsed_measures if measure.spec.lower_is_better),
        judge=judge,
        fingerprints={sample.id: sample.fingerprint for sample in samples},
    )


def _score_column(measure: AnswerMeasure, cases: Sequence[AnswerMeasureInput]) -> tuple[Floats, dict[str, str]]:
    column = np.full(len(cases), math.nan)
    unscored: dict[str, str] = {}
    for i, case in enumerate(cases):
        absent = next((field_name for field_name in measure.spec.required_fields if not case.has(field_name)), None)
        try:
            if absent is not None:
                raise MissingVerdict(ABSENT_REASONS[absent])
            column[i] = measure(case)
        except MissingVerdict as missing:
            unscored[case.sample.id] = missing.reason
    return column, unscored


def missing_input(measure: AnswerMeasure, samples: Sequence[Sample]) -> str:
    """Return the name of the first input that a measure needs and no sample has.

    Empty if none is missing.
    """
    cases = [AnswerMeasureInput(sample, Verdicts(sample.id)) for sample in samples]
    return next(
        (
            FIELD_NAMES[field_name]
            for field_name in measure.spec.required_fields
            if not any(case.has(field_name) for case in cases)
        ),
        "",
    )


def check_answer_inputs(measures: Iterable[AnswerMeasure], samples: Sequence[Sample]) -> None:
    """Raise `MissingEvidence` if a measure needs an input that no sample has."""
    for measure in measures:
        if absent := missing_input(measure, samples):
            hint = "ragauge judge answers.jsonl: each with question, answer, contexts and reference"
            raise MissingEvidence(f"{measure} needs {absent}, and no sample has any", hint=hint)


def _scored_mean(column: Floats) -> float:
    scored = column[~np.isnan(column)]
    return float(scored.mean()) if len(scored) else math.nan


def canonical_answer_name(name: str) -> str:
    """Return the canonical name of an answer measure.

    Other names are returned unchanged.

    >>> canonical_answer_name("Answer Relevancy"), canonical_answer_name("my own")
    ('answer_relevance', 'my own')
    """
    return _canonical_under(PRESETS["default"], name)


def _canonical_under(convention: Convention, name: str) -> str:
    """Return the canonical name under a convention.

    Other names are returned unchanged.
    """
    try:
        return str(parse_answer_measure(name, convention))
    except (BadInput, LookupError):
        return name
