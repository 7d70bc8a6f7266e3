"""Readers of public datasets of labelled answers in their published formats."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ragauge.core.errors import BadInput
from ragauge.core.samples import Sample
from ragauge.files.json_files import read_json, read_json_lines
from ragauge.files.samples import read_samples
from ragauge.files.source import InputFile

BEGIN_COLUMNS = ("model_name", "data_source", "knowledge", "message", "response", "begin_label")
BEGIN_LABELS = {"fully attributable": 1.0, "not fully attributable": 0.0, "generic": 0.0}
"""Label for each of the three classes of BEGIN; a generic answer has nothing to attribute."""
MTRAG_GRADE_RANGE = (1.0, 4.0)
"""Lowest and highest grade of MTRAG."""


def read_begin(source: InputFile) -> Iterator[Sample]:
    """Read a BEGIN table: knowledge, message, response and one of three classes.

    Labels may have carriage returns and blanks around them. Quotation marks are plain text.
    """
    text = source.read().decode("utf-8", "replace")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = [name.strip() for name in next(lines, [])]
    missing = [name for name in BEGIN_COLUMNS[2:] if name not in header]
    if missing:
        raise BadInput(f"the header lacks {', '.join(missing)}", file=source.label, line=1)
    for number, cells in enumerate(lines, 2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise BadInput(f"expected {len(header)} columns, found {len(cells)}", file=source.label, line=number)
        row = dict(zip(header, cells, strict=True))
        label = row["begin_label"].strip()
        if label.lower() not in BEGIN_LABELS:
            raise BadInput(
                f"`{label}` is not a label of BEGIN", file=source.label, line=number, hint=f"{', '.join(BEGIN_LABELS)}"
            )
        yield Sample(
            f"{source.stem}-{number - 1}",
            row["message"].strip(),
            row["response"].strip(),
            (row["knowledge"].strip(),),
            labels={"faithfulness": BEGIN_LABELS[label.lower()]},
            metadata={
                "class": label,
                "system": row.get("model_name", "").strip(),
                "source": row.get("data_source", "").strip(),
            },
        )


def read_halueval(source: InputFile) -> Iterator[Sample]:
    """Read HaluEval QA, two samples per question.

    One sample has the right answer, the other one the false answer.
    """
    for line, row in read_json_lines(source):
        question, knowledge = (_text_field(row, name, source, line) for name in ("question", "knowledge"))
        for name, label in (("right", 1.0), ("hallucinated", 0.0)):
            yield Sample(
                f"{source.stem}-{line}-{name}",
                question,
                _text_field(row, f"{name}_answer", source, line),
                (knowledge,),
                reference=_text_field(row, "right_answer", source, line),
                labels={"faithfulness": label},
            )


def read_clapnq(source: InputFile) -> Iterator[Sample]:
    """Read CLAP NQ, with labels for the usefulness of passages.

    The label is 1 if people wrote an answer from the passage, otherwise 0. The metadata `useful` holds the positions
    of the marked sentences in `sentences`. An answer written from the passage is labelled faithful.
    """
    for line, row in read_json_lines(source):
        passage = next(iter(_list_field(row, "passages", source, line)), None)
        outputs = [output for output in _list_field(row, "output", source, line) if isinstance(output, Mapping)]
        if not isinstance(passage, Mapping):
            raise BadInput("no passage found", file=source.label, line=line)
        sentences = [str(sentence) for sentence in passage.get("sentences") or ()]
        answers = [str(output["answer"]) for output in outputs if str(output.get("answer") or "").strip()]
        chosen = {str(text) for output in outputs for text in output.get("selected_sentences") or ()}
        answer = answers[0] if answers else None
        yield Sample(
            str(row.get("id") or f"{source.stem}-{line}"),
            _text_field(row, "input", source, line),
            answer,
            (_text_field(passage, "text", source, line),),
            reference=answer,
            labels={"context_precision": 1.0, "faithfulness": 1.0} if answers else {"context_precision": 0.0},
            metadata={
                "title": str(passage.get("title") or ""),
                "sentences": sentences,
                "useful": [position for position, text in enumerate(sentences) if text in chosen],
                "answers": answers,
            },
        )


def read_mtrag(source: InputFile) -> Iterator[Sample]:
    """Read MTRAG's human evaluations, one sample per task and system.

    The label is the mean grade. Grades of 1 to 4 are scaled to 0 to 1. Metadata holds the grade of each annotator
    under `votes`, and other annotated questions and published scores under `annotations`.
    """
    content = read_json(source)
    texts = {
        str(document["document_id"]): str(document.get("text") or "")
        for document in _list_field(content, "documents", source)
    }
    tasks = {str(task_row["task_id"]): task_row for task_row in _list_field(content, "tasks", source)}
    for number, evaluation in enumerate(_list_field(content, "evaluations", source), 1):
        task = tasks.get(str(evaluation.get("task_id")))
        if task is None:
            raise BadInput(
                f"evaluation {number} is of the task `{evaluation.get('task_id')}`, which is missing",
                file=source.label,
            )
        chunks = [str(chunk["document_id"]) for chunk in task.get("contexts") or ()]
        missing = [name for name in chunks if name not in texts]
        if missing:
            raise BadInput(
                f"the task `{task['task_id']}` has the document `{missing[0]}`, which is missing", file=source.label
            )
        votes = _annotator_grades(evaluation.get("annotations") or {})
        grades = {
            annotator: (grade - MTRAG_GRADE_RANGE[0]) / (MTRAG_GRADE_RANGE[1] - MTRAG_GRADE_RANGE[0])
            for annotator, grade in votes.pop("faithfulness", {}).items()
        }
        history, question = _split_conversation(task, source)
        yield Sample(
            f"{task['task_id']}/{evaluation.get('model_id')}",
            question,
            str(evaluation.get("model_response") or ""),
            tuple(texts[name] for name in chunks),
            _target_answer(task),
            tuple(chunks),
            history,
            {"faithfulness": min(max(fmean(grades.values()), 0.0), 1.0)} if grades else {},
            {"system": str(evaluation.get("model_id")), "votes": {"faithfulness": grades}, "annotations": votes},
        )


def read_mtrag_un(source: InputFile) -> Iterator[Sample]:
    """Read MTRAG-UN's tasks, with the target as the answer.

    Answerable tasks with contexts are labelled faithful. Other tasks have no label. The metadata holds their
    `answerability`.
    """
    for line, row in read_json_lines(source):
        history, question = _split_conversation(row, source, line)
        chunks = _list_field(row, "contexts", source, line)
        field = row.get("answerability")
        answerability = str(field[0] if isinstance(field, list) and field else field or "").lower()
        yield Sample(
            str(row["task_id"]),
            question,
            _target_answer(row),
            tuple(str(chunk.get("text") or "") for chunk in chunks),
            _target_answer(row),
            tuple(str(chunk.get("document_id") or "") for chunk in chunks),
            history,
            {"faithfulness": 1.0} if answerability == "answerable" and chunks else {},
            {"answerability": answerability, "collection": str(row.get("Collection") or "")},
        )


def _split_conversation(
    task: Mapping[str, Any], source: InputFile, line: int | None = None
) -> tuple[tuple[str, ...], str]:
    """Split a conversation into its earlier turns and the last one, the question."""
    turns = [
        str(turn.get("text") or "") for turn in _list_field(task, "input", source, line) if isinstance(turn, Mapping)
    ]
    if not turns:
        raise BadInput("the conversation has no turn", file=source.label, line=line)
    return tuple(turns[:-1]), turns[-1]


def _target_answer(task: Mapping[str, Any]) -> str | None:
    """Return the text of the first target answer; None if the task has none."""
    first = next(iter(task.get("targets") or ()), None)
    text = first.get("text") if isinstance(first, Mapping) else first
    return None if text is None else str(text)


def _annotator_grades(annotations: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the numeric grades by question and annotator."""
    grades: dict[str, dict[str, float]] = {}
    for metric, votes in annotations.items():
        for annotator, vote in (votes if isinstance(votes, Mapping) else {}).items():
            value: Any = vote.get("value") if isinstance(vote, Mapping) else vote
            try:
                grade = float(value)
            except (TypeError, ValueError):
                continue
            if math.isfinite(grade):
                grades.setdefault(str(metric), {})[str(annotator)] = grade
    return grades


def _text_field(row: Mapping[str, Any], name: str, source: InputFile, line: int) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise BadInput(f"expected a text named `{name}`", file=source.label, line=line)
    return value


def _list_field(row: Any, name: str, source: InputFile, line: int | None = None) -> Sequence[Any]:
    value = row.get(name) if isinstance(row, Mapping) else None
    if not isinstance(value, list):
        raise BadInput(f"expected a list named `{name}`", file=source.label, line=line)
    return value


LABELLED_FILE_EXTENSIONS = (".tsv", ".jsonl", ".ndjson", ".json", ".csv", ".parquet")


@dataclass(frozen=True)
class LabelledDataset:
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


class LabelledFormat(NamedTuple):
    """Format of a public labelled dataset, recognised by the content of its files."""

    read: Callable[[InputFile], Iterator[Sample]]
    measure: str
    about: str
    people: bool = True
    easy: str = ""
    threshold: float | None = None


LABELLED_FORMATS = {
    "begin": LabelledFormat(
        read_begin,
        "faithfulness",
        "BEGIN: answers in dialogues, with human labels of whether the given knowledge supports them",
        easy="many answers copy the knowledge, so that counting words alone reaches an AUC of .90 to .94",
    ),
    "halueval": LabelledFormat(
        read_halueval,
        "faithfulness",
        "HaluEval QA: right answers, and false ones that a model was asked to invent",
        people=False,
        easy="right answers are short and false ones long, so that counting words alone reaches an AUC of .92",
    ),
    "clapnq": LabelledFormat(
        read_clapnq,
        "context_precision",
        "CLAP NQ: questions and a passage each, which people marked as answering the question or not",
    ),
    "mtrag": LabelledFormat(
        read_mtrag,
        "faithfulness",
        "MTRAG: answers of three systems in conversations, graded from 1 to 4 by two or three people",
        threshold=2.5 / 3,
    ),
    "mtrag-un": LabelledFormat(
        read_mtrag_un,
        "faithfulness",
        "MTRAG-UN: tasks in conversations, with answers that were written from the contexts",
        easy="every answer with a label is a good one, so that it shows only how often a judge is too strict",
    ),
}


def load_labelled(path: str) -> LabelledDataset:
    """Load labelled answers from a file, or from a folder with files of one format.

    Formats are BEGIN, HaluEval QA, CLAP NQ, MTRAG, MTRAG-UN and samples with labels, recognised by content. Raises
    `BadInput` if there are no labels or the formats are mixed.
    """
    folder = Path(path)
    files = (
        sorted(str(file_path) for file_path in folder.iterdir() if _is_labelled_file(file_path))
        if folder.is_dir()
        else [str(path)]
    )
    if not files:
        raise BadInput(
            "no labelled answers found", file=str(path), hint=f"files end in {', '.join(LABELLED_FILE_EXTENSIONS)}"
        )
    kinds = {file: detect_labelled_format(InputFile(file)) for file in files}
    if len(set(kinds.values())) > 1:
        format_list = ", ".join(f"{Path(file).name} ({kind or 'samples'})" for file, kind in kinds.items())
        raise BadInput(
            f"the folder has several kinds of files: {format_list}", file=str(path), hint="name one of the files"
        )
    kind = LABELLED_FORMATS.get(kinds[files[0]])
    name = InputFile(str(path)).stem
    samples = list(itertools.chain.from_iterable(_read_labelled_samples(file, kind) for file in files))
    seen_ids: set[str] = set()
    for sample in samples:
        if sample.id in seen_ids:
            raise BadInput(f"the id `{sample.id}` appears more than once", file=str(path))
        seen_ids.add(sample.id)
    if kind is not None:
        return LabelledDataset(name, samples, kind.measure, kind.about, kind.people, kind.easy, kind.threshold)
    labelled_measures = {measure for sample in samples for measure in sample.labels}
    if not labelled_measures:
        raise BadInput(
            "no sample has a label", file=str(path), hint='add "labels": {"faithfulness": 1} to some of them'
        )
    return LabelledDataset(name, samples, labelled_measures.pop() if len(labelled_measures) == 1 else "", str(path))


def detect_labelled_format(source: InputFile) -> str:
    """Detect the dataset format of a file by its content.

    Empty if it is not a known one.
    """
    first = (source.head() or [""])[0]
    if "begin_label" in first.rstrip().split("\t"):
        return "begin"
    if source.ending not in (".json", ".jsonl", ".ndjson", "") or not first.lstrip().startswith("{"):
        return ""
    try:
        row: Any = next((row for _, row in read_json_lines(source)), {})
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


def _is_labelled_file(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and InputFile(str(path)).ending in LABELLED_FILE_EXTENSIONS


def _read_labelled_samples(file: str, kind: LabelledFormat | None) -> list[Sample]:
    return read_samples(file) if kind is None else list(kind.read(InputFile(file)))
