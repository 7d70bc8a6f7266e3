"""What a judge is held against: labelled samples, which of them hang together, and what each person said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.datasets.labelled import Labelled, load_labelled
from ragauge.errors import BadInput, MissingEvidence
from ragauge.formats.samples import samples_of
from ragauge.measures.answers import AnswerMeasure, is_known, parse
from ragauge.records import Floats, Ints
from ragauge.verdicts import Sample

THRESHOLD = 0.5
SHARES = frozenset({"faithfulness", "context_recall", "claim_precision", "claim_recall"})
"""The measures that are shares of claims."""
SOFT = "faithfulness(by=probability)"
VOTES = "votes"
"""Where the metadata of a sample have what each person said: `{"faithfulness": {"ann": 1.0, "bob": 0.5}}`."""


@dataclass(frozen=True)
class Yardstick:
    """Samples that are to be judged, and what is known of their labels."""

    name: str
    samples: Sequence[Sample]
    measure: AnswerMeasure
    people: bool = True
    easy: str = ""
    about: str = ""
    label_threshold: float = THRESHOLD

    @cached_property
    def labels(self) -> Floats:
        """A label for each sample, NaN where it has none."""
        return np.array([_said(one.labels, self.measure.spec.name) for one in self.samples], np.float64)

    @cached_property
    def known(self) -> list[Sample]:
        """The samples that have one."""
        return [one for one, label in zip(self.samples, self.labels, strict=True) if not math.isnan(label)]

    def cut(self, label_threshold: float) -> float:
        """From which score on a judge says good, where nobody says otherwise.

        Who says yes or no of a whole answer says no of one wrong claim, so of measures that are shares of claims it is
        1; grades are on the same scale as scores, and cut at the same place.
        """
        known = self.labels[~np.isnan(self.labels)]
        if not np.isin(known, (0.0, 1.0)).all():
            return label_threshold
        return 1.0 if self.measure.spec.name in SHARES else THRESHOLD

    @property
    def measures(self) -> list[str]:
        """What is judged: the measure, and the degree of certainty where it has one."""
        return [str(self.measure), *([SOFT] if str(self.measure) == "faithfulness" else [])]


def opened(labelled: Any, measure: str | None) -> Yardstick:
    """Labelled samples from wherever, and the measure that their labels speak of."""
    if isinstance(labelled, str | Path):
        labelled = load_labelled(str(labelled))
    known = labelled if isinstance(labelled, Labelled) else Labelled("samples", samples_of(labelled))
    spoken = sorted({str(parse(name)) for one in known.samples for name in one.labels if is_known(name)})
    if not spoken:
        raise MissingEvidence(
            f"no sample of {known.name} has a label", hint='give "labels": {"faithfulness": 1} to some of them'
        )
    wanted = measure or known.measure or (spoken[0] if len(spoken) == 1 else "")
    if not wanted:
        raise BadInput(f"the labels speak of {' and '.join(spoken)}", hint=f"measure {spoken[0]}")
    chosen = parse(wanted)
    if chosen.spec.lower_is_better:
        raise BadInput(f"less is better of {chosen}, and good would be bad", hint="calibrate faithfulness")
    if chosen.spec.name not in spoken:
        raise MissingEvidence(
            f"no sample of {known.name} has a label of {chosen}", hint=f"there is {', '.join(spoken)}"
        )
    return Yardstick(
        known.name,
        known.samples,
        chosen,
        known.people,
        known.easy,
        known.about,
        THRESHOLD if known.threshold is None else known.threshold,
    )


def _said(labels: Mapping[str, float], measure: str) -> float:
    return next((one for name, one in labels.items() if is_known(name) and parse(name).spec.name == measure), math.nan)


def drawn(given: Yardstick, limit: int | None, seed: int) -> Yardstick:
    """So many samples at random, in their order."""
    if limit is not None and limit < 1:
        raise BadInput("limit is a number from 1 on")
    if limit is None or limit >= len(given.samples):
        return given
    chosen = np.sort(np.random.default_rng(seed).permutation(len(given.samples))[:limit])
    return replace(given, samples=[given.samples[at] for at in chosen])


def groups_of(samples: Sequence[Sample]) -> Ints | None:
    """Samples of one question, with one conversation before it, are one group; None where none has company."""
    keys: dict[Any, int] = {}
    found = []
    for one in samples:
        asked = (one.question, one.history) if one.question.strip() else ("", one.contexts or one.id)
        found.append(keys.setdefault(asked, len(keys)))
    return np.array(found, np.int64) if len(keys) < len(found) else None


def votes_of(samples: Sequence[Sample], measure: str) -> Floats | None:
    """What each person said of each sample, a column for the first, the second, …; None where nobody's vote is kept."""
    found = [one.metadata.get(VOTES, {}) for one in samples]
    each = [one.get(measure, ()) if isinstance(one, Mapping) else () for one in found]
    rows = [list(one.values()) if isinstance(one, Mapping) else list(one) for one in each]
    if not any(rows):
        return None
    width = max(map(len, rows))
    return np.array([[*map(float, row), *[math.nan] * (width - len(row))] for row in rows], np.float64)
