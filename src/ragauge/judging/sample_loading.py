"""Loading of samples: from files and objects, or from a run folder with its corpus and answers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.records import Run
from ragauge.core.samples import Sample
from ragauge.files.judged_folders import SAMPLES_FILE
from ragauge.files.sample_fields import FIELD_ALIASES
from ragauge.files.samples import samples_from
from ragauge.files.source import InputFile
from ragauge.files.table_files import QUERY_COLUMNS, TABLE_FORMATS, find_column
from ragauge.files.table_rows import read_rows
from ragauge.runs import folder as runs_folder
from ragauge.runs.experiment_folders import read_query_texts
from ragauge.runs.input_kinds import InputKind, is_kind
from ragauge.runs.inputs import open_run
from ragauge.runs.texts import DocumentTexts, find_run_texts

ANSWER_FILES = tuple(f"answers{ending}" for ending in TABLE_FORMATS)
"""Names of files with answers in a run folder."""


def load_samples(source: Any, *, answers: str | None = None, k: int | None = None) -> list[Sample]:
    """Load samples from a file, a run folder, a judged folder, or objects.

    `answers` is only allowed for a run folder. `k` truncates the contexts of each sample.
    """
    if k is not None and k < 1:
        raise BadInput(f"k must be at least 1, got {k}")
    if isinstance(source, str | Path) and Path(source).is_dir():
        if not is_kind(source, InputKind.JUDGED):
            return samples_from_run(str(source), answers=answers, k=k)
        source = str(Path(source) / SAMPLES_FILE)
    if answers is not None:
        raise BadInput(
            "an answers file requires the folder of a run",
            hint="remove the answers file: samples contain their answers",
        )
    samples = samples_from(source)
    if k is None:
        return samples
    return [
        sample
        if sample.contexts is None
        else replace(sample, contexts=sample.contexts[:k], context_ids=sample.context_ids[:k])
        for sample in samples
    ]


def describe_contexts(source: Any, samples: Sequence[Sample]) -> list[str]:
    """Note that the contexts of a run folder are whole documents; empty for other samples."""
    is_folder = isinstance(source, str | Path) and Path(source).is_dir() and not is_kind(source, InputKind.JUDGED)
    lengths = [len(text) for sample in samples for text in sample.contexts or ()] if is_folder else []
    if not lengths:
        return []
    return [
        f"contexts are whole documents (median {statistics.median(lengths):,.0f} characters), because a run folder "
        "has no texts of hits"
    ]


def samples_from_run(
    folder: str, *, answers: str | None = None, k: int | None = None, dataset: str | None = None
) -> list[Sample]:
    """Build one sample for each query of a run.

    The folder is that of one system (`runs/NAME/SYSTEM`), or of an experiment with one system. Contexts are the
    texts of its first `k` documents, best first; a failed query has an empty list of contexts. Answers come from a
    table with a query and an answer column: `answers`, or `answers.jsonl` (or .csv, …) in the folder. A query
    without one has no answer. `dataset` names the dataset if its documents have moved. Raises MissingEvidence if the
    texts are unknown. Contexts are whole documents, each once, because a run folder has no texts of hits.
    """
    run_folder = _find_run_folder(Path(folder))
    run = open_run(run_folder)
    texts = _load_texts(run, run_folder, dataset)
    if texts.documents is None:
        why = texts.absent.get("documents") or "no dataset or corpus given"
        raise MissingEvidence(f"no document texts for {folder}: {why}")
    questions = _executed_queries(run, texts)
    answer_texts = _read_answers(run_folder, answers, questions)
    by_id = {document.id: document.whole for document in texts.documents}
    top_documents = _top_documents(run, k)
    unknown = next((doc for docs in top_documents.values() for doc in docs if doc not in by_id), None)
    if unknown is not None:
        raise BadInput(f"the run returned `{unknown}`, but no document has this id", file=str(run_folder))
    return [
        Sample(
            query,
            question,
            answer_texts.get(query),
            tuple(by_id[doc] for doc in top_documents.get(query, ())),
            texts.answers.get(query),
            tuple(top_documents.get(query, ())),
            metadata={"system": run.name},
        )
        for query, question in questions.items()
    ]


def _find_run_folder(folder: Path) -> Path:
    """Return the folder of one run: this one, or the only one inside it."""
    if runs_folder.has_run(folder):
        return folder
    inside = runs_folder.find_run_folders(folder)
    if len(inside) == 1:
        return inside[0]
    raise BadInput(
        f"{len(inside)} runs found; expected one" if inside else "no finished run found",
        file=str(folder),
        hint=f"name one: {', '.join(str(path) for path in inside)}" if inside else "`ragauge run` writes such folders",
    )


def _load_texts(run: Run, folder: Path, dataset: str | None) -> DocumentTexts:
    """Load the documents and queries of a run, and reference answers."""
    queries = read_query_texts(folder.resolve().parent) or None
    manifest: dict[str, Any] = dict(run.manifest)
    if dataset is not None:
        path = Path(dataset)
        manifest["origin"] = str(path.resolve()) if path.is_dir() else dataset
    name = str((manifest.get("dataset") or {}).get("name", ""))
    advice = f"move it back, or set RAGAUGE_DATA to the folder that has `{name}`"
    return find_run_texts([manifest], DocumentTexts(None, queries), "" if dataset is not None else name, advice=advice)


def _executed_queries(run: Run, texts: DocumentTexts) -> dict[str, str]:
    """Return the texts of the queries that were run, in the order of the dataset."""
    source = run.table if run.timings is None else run.timings
    queries = dict.fromkeys(source["query"].to_list())
    known = texts.queries or {}
    unknown = next((query for query in queries if query not in known), None)
    if unknown is not None:
        raise MissingEvidence(f"the query `{unknown}` has no text", hint="keep queries.parquet next to the run")
    return {query: known[query] for query in known if query in queries}


def _top_documents(run: Run, k: int | None) -> dict[str, Sequence[str]]:
    """Return the distinct documents of the first k hits of each query, best first."""
    order = "rank" if "rank" in run.table.columns else "score"
    ranked = run.table.sort(order, descending=order == "score", maintain_order=True)
    documents: dict[str, list[str]] = {}
    for query, doc in ranked.select("query", "doc").iter_rows():
        documents.setdefault(query, []).append(doc)
    return {query: list(dict.fromkeys(docs[:k])) for query, docs in documents.items()}


def _read_answers(folder: Path, answers_path: str | None, answers: Mapping[str, str]) -> dict[str, str]:
    """Read the answers by query id; empty without a table of answers."""
    path = answers_path or next((str(folder / name) for name in ANSWER_FILES if (folder / name).exists()), None)
    if path is None:
        return {}
    source = InputFile(path)
    rows = read_rows(source, TABLE_FORMATS.get(source.ending, "jsonl"))
    query, answer = (
        find_column(rows.names, (*QUERY_COLUMNS, *FIELD_ALIASES["id"])),
        find_column(rows.names, FIELD_ALIASES["answer"]),
    )
    if query is None or answer is None:
        raise BadInput(
            f"answers need a query and an answer; found {', '.join(rows.names) or 'nothing'}",
            file=source.label,
            hint="columns such as query_id, answer",
        )
    texts: dict[str, str] = {}
    for at, text in enumerate(rows.columns[answer]):
        name = rows.id(query, at, "query")
        if name in texts:
            raise BadInput(f"the query `{name}` has more than one answer", file=source.label, line=rows.line(at))
        if text is not None:
            texts[name] = str(text)
    if not set(texts) & set(answers):
        first = next(iter(texts), "")
        raise BadInput(
            f"no answer belongs to a query of the run (unknown query: `{first[:60]}`)",
            file=source.label,
            hint="identify queries by the ids that the run uses",
        )
    return texts
