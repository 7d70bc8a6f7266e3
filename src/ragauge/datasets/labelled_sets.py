"""Readers of public collections of judged answers, each as it is published: a file in, samples with labels out."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from ragauge.errors import BadInput
from ragauge.formats.documents import json_lines, read_json
from ragauge.formats.files import Source
from ragauge.verdicts import Sample

BEGIN = ("model_name", "data_source", "knowledge", "message", "response", "begin_label")
ATTRIBUTABLE = {"fully attributable": 1.0, "not fully attributable": 0.0, "generic": 0.0}
"""The three classes of BEGIN. A generic answer says nothing that could be attributed."""
GRADES = (1.0, 4.0)
"""The worst and the best grade of MTRAG."""


def begin(source: Source) -> Iterator[Sample]:
    """BEGIN's tables: a knowledge snippet, a message, a response and one of three classes.

    Labels come with carriage returns and blanks; quotation marks are text and quote nothing.
    """
    text = source.read().decode("utf-8", "replace")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = [name.strip() for name in next(lines, [])]
    missing = [name for name in BEGIN[2:] if name not in header]
    if missing:
        raise BadInput(f"the header lacks {', '.join(missing)}", file=source.label, line=1)
    for number, cells in enumerate(lines, 2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise BadInput(f"expected {len(header)} columns, found {len(cells)}", file=source.label, line=number)
        row = dict(zip(header, cells, strict=True))
        label = row["begin_label"].strip()
        if label.lower() not in ATTRIBUTABLE:
            raise BadInput(
                f"`{label}` is no label of BEGIN", file=source.label, line=number, hint=f"{', '.join(ATTRIBUTABLE)}"
            )
        yield Sample(
            f"{source.stem}-{number - 1}",
            row["message"].strip(),
            row["response"].strip(),
            (row["knowledge"].strip(),),
            labels={"faithfulness": ATTRIBUTABLE[label.lower()]},
            metadata={
                "class": label,
                "system": row.get("model_name", "").strip(),
                "source": row.get("data_source", "").strip(),
            },
        )


def halueval(source: Source) -> Iterator[Sample]:
    """HaluEval's questions: of each a sample with the right answer and one with the false."""
    for line, row in json_lines(source):
        question, knowledge = (_text(row, name, source, line) for name in ("question", "knowledge"))
        for name, label in (("right", 1.0), ("hallucinated", 0.0)):
            yield Sample(
                f"{source.stem}-{line}-{name}",
                question,
                _text(row, f"{name}_answer", source, line),
                (knowledge,),
                reference=_text(row, "right_answer", source, line),
                labels={"faithfulness": label},
            )


def clapnq(source: Source) -> Iterator[Sample]:
    """CLAP NQ's questions: the passage is useful (1) where people wrote an answer from it, and not (0) where none is.

    The sentences of the passage that they marked are in the metadata, as places in `sentences`. An answer that people
    wrote from the passage is faithful to it.
    """
    for line, row in json_lines(source):
        passage = next(iter(_list(row, "passages", source, line)), None)
        outputs = [one for one in _list(row, "output", source, line) if isinstance(one, Mapping)]
        if not isinstance(passage, Mapping):
            raise BadInput("there is no passage", file=source.label, line=line)
        sentences = [str(one) for one in passage.get("sentences") or ()]
        answers = [str(one["answer"]) for one in outputs if str(one.get("answer") or "").strip()]
        chosen = {str(text) for one in outputs for text in one.get("selected_sentences") or ()}
        answer = answers[0] if answers else None
        yield Sample(
            str(row.get("id") or f"{source.stem}-{line}"),
            _text(row, "input", source, line),
            answer,
            (_text(passage, "text", source, line),),
            reference=answer,
            labels={"context_precision": 1.0, "faithfulness": 1.0} if answers else {"context_precision": 0.0},
            metadata={
                "title": str(passage.get("title") or ""),
                "sentences": sentences,
                "useful": [place for place, text in enumerate(sentences) if text in chosen],
                "answers": answers,
            },
        )


def mtrag(source: Source) -> Iterator[Sample]:
    """MTRAG's human evaluations: one sample for each task and system, the label the mean of what people said.

    Grades from 1 to 4 become 0 to 1; each person's is kept under `votes`, other questions that they were asked, and
    figures that were published with them, under `annotations`.
    """
    whole = read_json(source)
    texts = {str(one["document_id"]): str(one.get("text") or "") for one in _list(whole, "documents", source)}
    tasks = {str(one["task_id"]): one for one in _list(whole, "tasks", source)}
    for place, one in enumerate(_list(whole, "evaluations", source), 1):
        task = tasks.get(str(one.get("task_id")))
        if task is None:
            raise BadInput(
                f"evaluation {place} is of the task `{one.get('task_id')}`, which is not there", file=source.label
            )
        chunks = [str(chunk["document_id"]) for chunk in task.get("contexts") or ()]
        lost = [name for name in chunks if name not in texts]
        if lost:
            raise BadInput(
                f"the task `{task['task_id']}` has the document `{lost[0]}`, which is not there", file=source.label
            )
        votes = _votes(one.get("annotations") or {})
        grades = {
            who: (grade - GRADES[0]) / (GRADES[1] - GRADES[0]) for who, grade in votes.pop("faithfulness", {}).items()
        }
        history, question = _turns(task, source)
        yield Sample(
            f"{task['task_id']}/{one.get('model_id')}",
            question,
            str(one.get("model_response") or ""),
            tuple(texts[name] for name in chunks),
            _target(task),
            tuple(chunks),
            history,
            {"faithfulness": min(max(fmean(grades.values()), 0.0), 1.0)} if grades else {},
            {"system": str(one.get("model_id")), "votes": {"faithfulness": grades}, "annotations": votes},
        )


def mtrag_un(source: Source) -> Iterator[Sample]:
    """MTRAG-UN's tasks: the target stands for the answer, and is faithful where the task can be answered.

    Of tasks that cannot, or only in part, nothing is known but that: `answerability` in the metadata.
    """
    for line, row in json_lines(source):
        history, question = _turns(row, source, line)
        chunks = _list(row, "contexts", source, line)
        kind = row.get("answerability")
        known = str(kind[0] if isinstance(kind, list) and kind else kind or "").lower()
        yield Sample(
            str(row["task_id"]),
            question,
            _target(row),
            tuple(str(one.get("text") or "") for one in chunks),
            _target(row),
            tuple(str(one.get("document_id") or "") for one in chunks),
            history,
            {"faithfulness": 1.0} if known == "answerable" and chunks else {},
            {"answerability": known, "collection": str(row.get("Collection") or "")},
        )


def _turns(task: Mapping[str, Any], source: Source, line: int | None = None) -> tuple[tuple[str, ...], str]:
    """The earlier turns of a conversation, and its last: the question."""
    turns = [str(one.get("text") or "") for one in _list(task, "input", source, line) if isinstance(one, Mapping)]
    if not turns:
        raise BadInput("the conversation has no turn", file=source.label, line=line)
    return tuple(turns[:-1]), turns[-1]


def _target(task: Mapping[str, Any]) -> str | None:
    """What a good answer says, where the task has one."""
    first = next(iter(task.get("targets") or ()), None)
    text = first.get("text") if isinstance(first, Mapping) else first
    return None if text is None else str(text)


def _votes(annotations: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What each annotator said to each question, as far as it is a number."""
    found: dict[str, dict[str, float]] = {}
    for metric, by in annotations.items():
        for who, vote in (by if isinstance(by, Mapping) else {}).items():
            value: Any = vote.get("value") if isinstance(vote, Mapping) else vote
            try:
                grade = float(value)
            except (TypeError, ValueError):
                continue
            if math.isfinite(grade):
                found.setdefault(str(metric), {})[str(who)] = grade
    return found


def _text(row: Mapping[str, Any], name: str, source: Source, line: int) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise BadInput(f"expected a text named `{name}`", file=source.label, line=line)
    return value


def _list(row: Any, name: str, source: Source, line: int | None = None) -> Sequence[Any]:
    value = row.get(name) if isinstance(row, Mapping) else None
    if not isinstance(value, list):
        raise BadInput(f"expected a list named `{name}`", file=source.label, line=line)
    return value
