"""Labelled answers: public datasets in their published formats, or samples with labels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.datasets.labelled_sets import begin, clapnq, halueval, mtrag, mtrag_un
from ragauge.errors import BadInput
from ragauge.formats.documents import json_lines, read_json
from ragauge.formats.files import Source
from ragauge.formats.samples import read_samples
from ragauge.verdicts import Sample

ENDINGS = (".tsv", ".jsonl", ".ndjson", ".json", ".csv", ".parquet")


@dataclass(frozen=True)
class Labelled:
    """Labelled samples, and properties of the labels that matter for calibration."""

    name: str
    samples: Sequence[Sample] = field(default_factory=tuple)
    measure: str = ""
    """Measure that the labels are about; empty if there are several."""
    about: str = ""
    people: bool = True
    """Whether the labels are from people."""
    easy: str = ""
    """Why the dataset is easy; empty if it is not. Results of a judge on an easy dataset may not generalise."""
    threshold: float | None = None
    """Minimum label of a good answer; None if the dataset does not define one."""

    def __repr__(self) -> str:
        return f"Labelled({self.name!r}, {len(self.samples)} samples, {self.measure or 'no measure'})"


class Kind(NamedTuple):
    """Format of a public labelled dataset, recognised by the content of its files."""

    read: Callable[[Source], Iterator[Sample]]
    measure: str
    about: str
    people: bool = True
    easy: str = ""
    threshold: float | None = None


KINDS = {
    "begin": Kind(
        begin,
        "faithfulness",
        "BEGIN: answers in dialogues, judged by people for whether the given knowledge bears them out",
        easy="many answers copy the knowledge, so that counting words alone reaches an AUC of .90 to .94",
    ),
    "halueval": Kind(
        halueval,
        "faithfulness",
        "HaluEval QA: right answers, and false ones that a model was told to make up",
        people=False,
        easy="right answers are short and false ones long, so that counting words alone reaches an AUC of .92",
    ),
    "clapnq": Kind(
        clapnq,
        "context_precision",
        "CLAP NQ: questions and a passage each, which people marked as answering the question or not",
    ),
    "mtrag": Kind(
        mtrag,
        "faithfulness",
        "MTRAG: answers of three systems in conversations, graded from 1 to 4 by two or three people",
        threshold=2.5 / 3,
    ),
    "mtrag-un": Kind(
        mtrag_un,
        "faithfulness",
        "MTRAG-UN: tasks in conversations, with answers that were written from the contexts",
        easy="every answer with a label is a good one, so that it shows only how often a judge is too strict",
    ),
}


def load_labelled(path: str) -> Labelled:
    """Load labelled answers from a file, or from a folder with files of one format.

    Formats are BEGIN, HaluEval QA, CLAP NQ, MTRAG, MTRAG-UN and samples with labels, recognised by content. Raises
    `BadInput` if there are no labels or the formats are mixed.
    """
    place = Path(path)
    files = sorted(str(one) for one in place.iterdir() if _is_data(one)) if place.is_dir() else [str(path)]
    if not files:
        raise BadInput("no labelled answers are here", file=str(path), hint=f"files end in {', '.join(ENDINGS)}")
    kinds = {file: kind_of(Source(file)) for file in files}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{Path(file).name} ({kind or 'samples'})" for file, kind in kinds.items())
        raise BadInput(f"the folder has several kinds of files: {told}", file=str(path), hint="name one of the files")
    kind = KINDS.get(kinds[files[0]])
    name = Source(str(path)).stem
    samples = list(itertools.chain.from_iterable(_read(file, kind) for file in files))
    seen: set[str] = set()
    for one in samples:
        if one.id in seen:
            raise BadInput(f"the id `{one.id}` comes twice", file=str(path))
        seen.add(one.id)
    if kind is not None:
        return Labelled(name, samples, kind.measure, kind.about, kind.people, kind.easy, kind.threshold)
    spoken = {measure for one in samples for measure in one.labels}
    if not spoken:
        raise BadInput(
            "no sample has a label", file=str(path), hint='give "labels": {"faithfulness": 1} to some of them'
        )
    return Labelled(name, samples, spoken.pop() if len(spoken) == 1 else "", str(path))


def kind_of(source: Source) -> str:
    """Detect the dataset format of a file by its content.

    Empty if it is not a known one.
    """
    first = (source.head() or [""])[0]
    if "begin_label" in first.rstrip().split("\t"):
        return "begin"
    if source.ending not in (".json", ".jsonl", ".ndjson", "") or not first.lstrip().startswith("{"):
        return ""
    try:
        row: Any = next((row for _, row in json_lines(source)), {})
    except BadInput:
        row = read_json(source)  # a single object over several lines
    names = set(row) if isinstance(row, dict) else set()
    for kind, needs in (
        ("halueval", {"knowledge", "question", "right_answer", "hallucinated_answer"}),
        ("clapnq", {"input", "passages", "output"}),
        ("mtrag", {"documents", "tasks", "evaluations"}),
        ("mtrag-un", {"task_id", "input", "contexts", "targets"}),
    ):
        if needs <= names:
            return kind
    return ""


def _is_data(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and Source(str(path)).ending in ENDINGS


def _read(file: str, kind: Kind | None) -> list[Sample]:
    return read_samples(file) if kind is None else list(kind.read(Source(file)))
