"""Conversion of rows to samples: field names of ragauge, ragas, DeepEval and others, and their types."""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.samples import Sample
from ragauge.core.structured_text import parse_json

FIELD_ALIASES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "sample_id", "question_id", "query_id", "qid", "_id", "task_id"),
    "question": ("question", "user_input", "input", "query"),
    "answer": ("answer", "response", "actual_output", "output", "prediction", "generated_answer"),
    "contexts": (
        *("contexts", "retrieved_contexts", "retrieval_context", "retrieved_context", "context"),
        *("chunks", "passages", "documents", "source_documents"),
    ),
    "reference": (
        *("reference", "ground_truth", "ground_truths", "expected_output", "reference_answer", "expected_answer"),
        "gold_answer",
    ),
    "context_ids": ("context_ids", "retrieved_context_ids"),
    "history": ("history", "chat_history"),
    "labels": ("labels", "label"),
    "metadata": ("metadata", "additional_metadata"),
}
"""Accepted names of each field of a Sample."""
DEEPEVAL_FIELDS = ("actual_output", "expected_output", "retrieval_context")
"""Names that only DeepEval uses. In its rows `context` is what should have been retrieved, and `name` is the id."""
RAGAS_FIELDS = ("reference_contexts", "reference_context_ids", "multi_responses", "rubrics", "persona_name")
"""Fields of ragas samples that a Sample does not have."""
CONTEXT_TEXT_FIELDS = ("text", "page_content", "content", "context", "passage")
CONTEXT_ID_FIELDS = ("id", "document_id", "doc_id", "chunk_id", "_id", "source")
CHAT_ROLES = {"human": "user", "ai": "assistant", "agent": "assistant", "system": "system", "tool": "tool"}
SAMPLE_PARTS = ("question", "answer", "contexts", "reference")
"""Main fields of a sample, of which it needs at least two."""
FIELD_BY_ALIAS = {alias: field for field, aliases in FIELD_ALIASES.items() for alias in aliases}


class ParsedContexts(NamedTuple):
    """Texts of contexts; their ids are empty unless all of them have one."""

    texts: tuple[str, ...]
    ids: tuple[str, ...]


def unread_fields(samples: Iterable[Sample]) -> dict[str, int]:
    """Count the samples per unknown field.

    Unknown are names in the metadata that are not extra fields of ragas.
    """
    return dict(
        Counter(
            name for sample in samples for name in sample.metadata if _normalise_field_name(name) not in RAGAS_FIELDS
        )
    )


def field_aliases(field: str) -> str:
    """Describe the accepted names of a field.

    >>> field_aliases("history")
    'history may be called history, chat_history'
    """
    return f"{field} may be called {', '.join(FIELD_ALIASES[field])}"


def is_sample_header(names: Sequence[str]) -> bool:
    """Return whether columns are those of samples: a question and another main field.

    >>> is_sample_header(["user_input", "response"]), is_sample_header(["query", "doc_id", "score"])
    (True, False)
    """
    fields = {FIELD_BY_ALIAS.get(_normalise_field_name(name)) for name in names}
    return "question" in fields and bool(fields & set(SAMPLE_PARTS[1:])) and "relevant_docs" not in names


def sample_from_row(row: Mapping[str, Any], number: int, *, cells: bool = False) -> Sample:
    """Build a sample from a row; `number` is its id if it has none.

    With `cells`, the row is from a table whose cells contain lists as text.

    >>> one = sample_from_row({"user_input": "When?", "response": "In 1887.", "retrieved_contexts": ["It was 1887."]},
    ...     7)
    >>> one.id, one.question, one.answer, one.contexts, one.reference
    ('7', 'When?', 'In 1887.', ('It was 1887.',), None)
    """
    values, extra_values = _group_by_field({name: _array_to_list(value) for name, value in row.items()})
    if len(set(values) & set(SAMPLE_PARTS)) < 2 and not isinstance(values.get("question"), list):
        names = ", ".join(str(name) for name in row) or "nothing"
        raise BadInput(
            f"not a sample: it has {names}", hint=f"a sample has {', '.join(SAMPLE_PARTS)}, at least two of them"
        )
    question, history, answer = _parse_conversation(values.get("question"))
    if "answer" in values:
        answer = _parse_text(values["answer"], "answer")
    if "history" in values:
        history = _parse_turns(_list_from_cell(values["history"], cells=cells))
    chunks = parse_contexts(values["contexts"], cells=cells) if "contexts" in values else None
    ids = (
        tuple(_parse_sample_id(item) for item in _parse_list(values["context_ids"], "context_ids", cells=cells))
        if "context_ids" in values
        else ()
    )
    if ids and (chunks is None or len(ids) != len(chunks.texts)):
        n_contexts = "none" if chunks is None else len(chunks.texts)
        raise BadInput(f"expected one context_id per context, got {len(ids)} context_ids and {n_contexts} contexts")
    return Sample(
        _parse_sample_id(values["id"]) if "id" in values else str(number),
        question,
        answer,
        None if chunks is None else chunks.texts,
        _parse_reference(values["reference"], cells=cells) if "reference" in values else None,
        ids or (() if chunks is None else chunks.ids),
        history,
        _parse_labels(values["labels"], cells=cells) if "labels" in values else {},
        {
            **_extra_fields(extra_values, cells=cells),
            **_parse_mapping(values.get("metadata", {}), "metadata", cells=cells),
        },
    )


def _group_by_field(row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a row into values by field and the rest.

    Raise BadInput if two names of one field have different values.
    """
    keys = {name: _normalise_field_name(name) for name in row}
    deepeval = any(key in DEEPEVAL_FIELDS for key in keys.values())
    values: dict[str, Any] = {}
    name_by_field: dict[str, str] = {}
    extra_values: dict[str, Any] = {}
    for name, value in row.items():
        key = keys[name]
        field = (
            None if deepeval and key == "context" else "id" if deepeval and key == "name" else FIELD_BY_ALIAS.get(key)
        )
        if _is_missing(value):
            continue
        if field is None:
            extra_values[str(name)] = value
        elif field in values and values[field] != value:
            raise BadInput(
                f"`{name_by_field[field]}` and `{name}` have different values for the {field}",
                hint="remove one of them",
            )
        else:
            values[field], name_by_field[field] = value, str(name)
    if "label" in name_by_field.values() and "labels" in values:
        values["labels"] = {"faithfulness": values["labels"]}
    return values, extra_values


def _extra_fields(extra_values: Mapping[str, Any], *, cells: bool) -> dict[str, Any]:
    """Return values that are not fields of a Sample; lists of ragas are parsed."""
    return {
        name: _list_from_cell(value, cells=cells) if name in RAGAS_FIELDS else value
        for name, value in extra_values.items()
    }


def _normalise_field_name(name: Any) -> str:
    """Normalise a column name.

    `actualOutput` and `Actual Output` become `actual_output`.
    """
    return re.sub(r"[\s\-]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name).strip())).lower()


def _array_to_list(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") and not isinstance(value, str | bytes) else value


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"


def _parse_sample_id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"the id must be a text or a number, got {_quote_value(value)}")
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    if not text:
        raise BadInput("the id is empty", hint="remove it to use the line number as the id")
    return text


def _parse_text(value: Any, field: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"the {field} must be a text, got {_quote_value(value)}")
    return value if isinstance(value, str) else str(value)


def _parse_reference(value: Any, *, cells: bool) -> str:
    """Parse one reference.

    Older versions of ragas have a list, which must have one item.
    """
    references = value
    if cells:
        with suppress(BadInput):  # a text may begin and end with brackets
            references = _list_from_cell(value, cells=cells)
    if not isinstance(references, list) or not all(isinstance(item, str) for item in references):
        return _parse_text(value, "reference")
    if len(references) != 1:
        raise BadInput(f"expected one reference, got {len(references)}", hint="give one `reference` per sample")
    return _parse_text(references[0], "reference")


def parse_contexts(value: Any, *, cells: bool = False) -> ParsedContexts:
    """Parse contexts from a list of texts or of objects with a text, or from one text.

    >>> parse_contexts([{"page_content": "It was 1887.", "id": "d1"}])
    ParsedContexts(texts=('It was 1887.',), ids=('d1',))
    """
    chunks = _list_from_cell(value, cells=cells)
    if isinstance(chunks, str):
        chunks = [chunks]
    if not isinstance(chunks, list | tuple):
        raise BadInput(f"the contexts must be a list of texts, got {_quote_value(value)}")
    pairs = [_parse_chunk(chunk, number) for number, chunk in enumerate(chunks, 1)]
    ids = tuple(name for _, name in pairs if name is not None)
    return ParsedContexts(tuple(text for text, _ in pairs), ids if len(ids) == len(pairs) else ())


def _parse_chunk(chunk: Any, number: int) -> tuple[str, str | None]:
    if isinstance(chunk, str):
        return chunk, None
    fields = chunk if isinstance(chunk, Mapping) else _object_attributes(chunk)
    text = next((fields[name] for name in CONTEXT_TEXT_FIELDS if isinstance(fields.get(name), str)), None)
    if text is None:
        raise BadInput(
            f"context {number} must be a text, got {_quote_value(chunk)}",
            hint=f"use a text or an object with {', '.join(CONTEXT_TEXT_FIELDS)}",
        )
    name = next((fields[key] for key in CONTEXT_ID_FIELDS if fields.get(key) is not None), None)
    title = fields.get("title")
    return Document(
        "", text, title if isinstance(title, str) else ""
    ).whole, None if name is None else _parse_sample_id(name)


def _object_attributes(chunk: Any) -> dict[str, Any]:
    return {name: getattr(chunk, name, None) for name in (*CONTEXT_TEXT_FIELDS, *CONTEXT_ID_FIELDS, "title")}


def _parse_conversation(value: Any) -> tuple[str, tuple[str, ...], str | None]:
    """Split a conversation into the question, earlier turns, and the answer if any."""
    if value is None:
        return "", (), None
    if not isinstance(value, list | tuple):
        return _parse_text(value, "question"), (), None
    turns = [_parse_turn(turn) for turn in value]
    answer = turns.pop()[1] if turns and turns[-1][0] == "assistant" else None
    if not turns or turns[-1][0] not in ("user", ""):
        raise BadInput("the conversation does not end with a question, or with one and its answer")
    return turns[-1][1], tuple(_format_turn(*turn) for turn in turns[:-1]), answer


def _parse_turns(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise BadInput(f"the history must be a list of turns, got {_quote_value(value)}")
    return tuple(_format_turn(*_parse_turn(turn)) for turn in items)


def _parse_turn(turn: Any) -> tuple[str, str]:
    """Parse role and text of a turn.

    A turn is a message of ragas, LangChain, OpenAI or MTRAG, or a text.
    """
    if isinstance(turn, str):
        return "", turn
    fields = turn if isinstance(turn, Mapping) else {k: getattr(turn, k, None) for k in ("type", "role", "content")}
    role = next((str(fields[key]) for key in ("role", "type", "speaker") if fields.get(key)), "")
    text = next((fields[key] for key in ("content", "text") if isinstance(fields.get(key), str)), None)
    if text is None:
        raise BadInput(f"a turn of the conversation must be a text, got {_quote_value(turn)}")
    return CHAT_ROLES.get(role.lower(), role.lower()), text


def _format_turn(role: str, text: str) -> str:
    return f"{role}: {text}" if role else text


def _parse_labels(value: Any, *, cells: bool) -> dict[str, float]:
    labels: dict[str, float] = {}
    for name, label in _parse_mapping(value, "labels", cells=cells).items():
        number = label
        if cells and isinstance(label, str):
            try:
                number = float(label)
            except ValueError:
                number = None
        if not isinstance(number, int | float) or not 0 <= number <= 1:
            raise BadInput(f"the label of {name} is {_quote_value(label)}", hint="a label lies between 0 and 1")
        labels[str(name)] = float(number)
    return labels


def _parse_mapping(value: Any, noun: str, *, cells: bool) -> Mapping[str, Any]:
    mapping = _parse_cell_literal(value, "{", "}") if cells and isinstance(value, str) else value
    if not isinstance(mapping, Mapping):
        raise BadInput(f"{noun} must be an object, got {_quote_value(value)}")
    return mapping


def _parse_list(value: Any, noun: str, *, cells: bool) -> list[Any]:
    items = _list_from_cell(value, cells=cells)
    if not isinstance(items, list | tuple):
        raise BadInput(f"{noun} must be a list, got {_quote_value(value)}")
    return list(items)


def _list_from_cell(value: Any, *, cells: bool) -> Any:
    """Parse a list in the cell of a table; return any other value unchanged."""
    return _parse_cell_literal(value, "[", "]") if cells and isinstance(value, str) else value


def _parse_cell_literal(text: str, begin: str, end: str) -> Any:
    """Parse a text that looks like JSON, or like a list as pandas and csv write it.

    Return any other text unchanged.
    """
    literal = text.strip()
    # Spreadsheets truncate long cells. A truncated list must raise an error instead of being read as a text.
    if not (literal.startswith(begin) and (literal.endswith(end) or re.match(r"[\[{]\s*['\"{]", literal))):
        return text
    try:
        return parse_json(literal)
    except ValueError:
        pass
    try:
        return ast.literal_eval(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        hint = "a cell holds a JSON list; a single text that looks like one goes in a list of one"
        raise BadInput(f"{_quote_value(text)} cannot be read as JSON", hint=hint) from None


def _quote_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"`{text[:60]}…`" if len(text) > 60 else f"`{text}`"
