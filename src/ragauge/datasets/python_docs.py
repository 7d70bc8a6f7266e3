"""Dataset of the Python standard library documentation, read from the running interpreter.

Documents are the docstrings of public modules, classes, functions and methods, and the chapters of the language
reference that `pydoc` carries. The queries and their graded judgments are in `python_docs_questions.jsonl`. The
ids that they name exist on Python 3.11 to 3.13.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from ragauge.compute.workers import WorkerLimits, call_worker
from ragauge.core.documents import Document
from ragauge.core.errors import BackendFailed, MissingEvidence
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets.queries import build_query_tags

READ_TIMEOUT_S = 600.0
"""Time limit in seconds for importing the standard library, on a busy machine."""
MIN_DOCUMENTS = 1_000
"""Minimum number of documents; with fewer, the interpreter was built without docstrings."""


def load_python_docs() -> Dataset:
    """Load the documents of this interpreter, with queries and judgments."""
    documents = _read_documents()
    documents_by_id = {document.id: document for document in documents}
    rows = [json.loads(line) for line in _read_questions().splitlines() if line.strip()]
    grades = {row["id"]: {doc: float(grade) for doc, grade in row["answers"].items()} for row in rows}
    queries = {row["id"]: str(row["question"]) for row in rows}
    return Dataset(
        name="pydocs",
        documents=documents,
        queries=queries,
        judgments=Judgments(grades, source="python_docs_questions.jsonl"),
        answers={row["id"]: row["reference"] for row in rows},
        tags=build_query_tags(queries, grades, documents_by_id, {row["id"]: {"topic": row["topic"]} for row in rows}),
        about="Python's own documentation, from the running interpreter; questions written for ragauge (MIT)",
    )


def _read_questions() -> str:
    return (files("ragauge.datasets") / "python_docs_questions.jsonl").read_text(encoding="utf-8")


def _read_documents() -> list[Document]:
    """Read the documents from a fresh interpreter in a separate process.

    Libraries replace parts of the standard library at run time (torch `inspect.getfile`, pytest `pdb.set_trace`,
    notebooks `input`). Importing all of it here would also keep it loaded. Raises `MissingEvidence` if it fails.
    """
    # No files of the present folder instead of modules of the library, and no stripped docstrings.
    limits = WorkerLimits(READ_TIMEOUT_S, environment={"PYTHONSAFEPATH": "1", "PYTHONOPTIMIZE": ""})
    try:
        rows = call_worker("ragauge.datasets.python_docs_worker:run_task", None, list[dict[str, Any]], limits)
    except BackendFailed as error:
        raise MissingEvidence("this interpreter's documentation cannot be read", hint=error.message) from error
    if len(rows) < MIN_DOCUMENTS:
        raise MissingEvidence("this interpreter's documentation cannot be read", hint="it has no docstrings")
    return [Document(row["id"], row["text"], row["title"], row["metadata"]) for row in rows]
