"""Read samples (question, answer, contexts, reference) from files and objects in memory, and write them to files.

The field names of ragas and DeepEval are accepted when samples are read, and can be written.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.samples import Sample
from ragauge.core.structured_text import parse_json
from ragauge.files.in_memory import is_dataframe, to_polars
from ragauge.files.json_files import read_json, read_json_lines
from ragauge.files.parquet import write_parquet
from ragauge.files.sample_fields import FIELD_BY_ALIAS, RAGAS_FIELDS, is_sample_header, sample_from_row
from ragauge.files.source import InputFile
from ragauge.files.table_files import read_header, read_table
from ragauge.files.table_rows import read_rows
from ragauge.files.workspace import atomic_write

SAMPLE_FILE_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
SAMPLE_LIST_FIELDS = ("samples", "test_cases", "goldens", "examples", "data")
"""Names under which a JSON file or an object may have its samples."""


def read_samples(path: str) -> list[Sample]:
    """Read the samples of a JSONL, JSON, CSV, TSV or Parquet file.

    `-` is standard input. The file may be compressed.
    """
    source = InputFile(str(path))
    kind = _detect_samples_format(source)
    if kind == "jsonl":
        rows: Iterable[tuple[int, Any]] = read_json_lines(source)
    elif kind == "json":
        rows = enumerate(_iterate_json_rows(read_json(source), source.label), 1)
    elif kind == "parquet":
        rows = enumerate(read_table(source, kind).iter_rows(named=True), 1)
    else:
        table = read_rows(source, kind)
        cells = {name: table.columns[name] for name in table.names}
        rows = ((table.row_numbers[i], {name: column[i] for name, column in cells.items()}) for i in range(len(table)))
    return _build_samples(
        rows, source.label, in_lines=kind not in ("json", "parquet"), cells=kind not in ("json", "jsonl")
    )


def samples_name(path: str | Path) -> str:
    """Derive a name for samples from their folder or file name without endings.

    >>> samples_name("runs/answers.v1.jsonl.gz"), samples_name("answers.v2")
    ('answers.v1', 'answers.v2')
    """
    location = Path(path)
    if location.is_dir():
        return location.resolve().name
    name = location.name
    for endings in ((".gz", ".zst"), tuple(SAMPLE_FILE_FORMATS)):
        ending = next((suffix for suffix in endings if name.lower().endswith(suffix)), "")
        name = name[: len(name) - len(ending)]
    return name or "samples"


def is_samples_file(path: str) -> bool:
    """Return whether a file has samples, by its field names.

    Otherwise it may have judgments or a run.
    """
    source = InputFile(str(path))
    if source.path != "-" and Path(source.path).is_dir():
        return False
    try:
        kind = _detect_samples_format(source)
        if kind in ("parquet", "csv", "tsv", "jsonl"):
            return is_sample_header(read_header(source, kind))
        first = _first_sample_row(parse_json(source.read()))
        return isinstance(first, Mapping) and is_sample_header(list(first))
    except (BadInput, OSError, ValueError):
        return False


def _first_sample_row(data: Any) -> Any:
    rows = list(_iterate_json_rows(data, "")) if isinstance(data, list | Mapping) else []
    return rows[0] if rows else {}


def _detect_samples_format(source: InputFile) -> str:
    """Detect the format of a file by its ending, else by its first line."""
    if source.ending in SAMPLE_FILE_FORMATS:
        return SAMPLE_FILE_FORMATS[source.ending]
    first = (source.head() or [""])[0]
    if first.lstrip().startswith("["):
        return "json"
    if first.lstrip().startswith("{"):
        try:
            parse_json(first)
        except ValueError:
            return "json"
        return "jsonl"
    for mark, name in ((",", "csv"), ("\t", "tsv")):
        if is_sample_header(first.split(mark)):
            return name
    raise BadInput(
        "no samples found",
        file=source.label,
        hint="use JSONL with question, answer, contexts and reference; also .json, .csv, .tsv, .parquet",
    )


def _iterate_json_rows(data: Any, label: str) -> Iterator[Any]:
    """Yield the rows of JSON data.

    The data is a list, a list under a name, columns, or a single row.
    """
    if isinstance(data, list):
        yield from data
        return
    if not isinstance(data, Mapping):
        raise BadInput("expected a list of samples", file=label or None)
    for name in SAMPLE_LIST_FIELDS:
        # DeepEval writes both lists and leaves one of them empty.
        is_only_list = data.get(name) or not any(data.get(field_name) for field_name in SAMPLE_LIST_FIELDS)
        if isinstance(data.get(name), list) and is_only_list and not is_sample_header(list(data)):
            yield from data[name]
            return
    columns = {name: value for name, value in data.items() if isinstance(value, list)}
    questions = next((value for name, value in columns.items() if FIELD_BY_ALIAS.get(name) == "question"), None)
    if questions is not None and all(isinstance(question, str) for question in questions) and len(columns) == len(data):
        if len({len(value) for value in columns.values()}) > 1:
            raise BadInput("the columns have different lengths", file=label or None)
        for at in range(len(questions)):
            yield {name: value[at] for name, value in columns.items()}
        return
    yield data


def _build_samples(rows: Iterable[tuple[int, Any]], label: str, *, in_lines: bool, cells: bool) -> list[Sample]:
    """Build samples from rows; errors name the line or the sample."""
    samples: dict[str, Sample] = {}
    for number, row in rows:
        try:
            sample = row if isinstance(row, Sample) else sample_from_row(_to_row(row), number, cells=cells)
            _check_sample_id(sample.id)
            if sample.id in samples:
                raise BadInput(f"the id `{sample.id}` appears more than once", hint="give each sample a unique id")
        except BadInput as error:
            message = error.message if in_lines else f"sample {number}: {error.message}"
            raise BadInput(message, file=label or None, line=number if in_lines else None, hint=error.hint) from None
        samples[sample.id] = sample
    if not samples:
        raise BadInput("no samples found", file=label or None)
    return list(samples.values())


def _check_sample_id(name: Any) -> None:
    """Raise BadInput for an id that would not survive writing and reading."""
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"the id is {'empty' if name == '' else repr(name)}", hint="give each sample its own id")
    if name != name.strip():
        raise BadInput(f"the id {name!r} begins or ends with white space", hint="remove the white space")


def _to_row(record: Any) -> Mapping[str, Any]:
    """Convert a mapping, record, or object of ragas or DeepEval to fields."""
    if isinstance(record, Mapping):
        return record
    if callable(getattr(record, "model_dump", None)) and not isinstance(record, type):
        # Flags that are off carry no information.
        return {name: value for name, value in _pydantic_fields(record) if value is not None and value is not False}
    if is_dataclass(record) and not isinstance(record, type):
        return {field.name: getattr(record, field.name) for field in fields(record)}
    if callable(getattr(record, "_asdict", None)):
        return dict(record._asdict())
    raise BadInput(
        f"a {type(record).__name__} is not a sample", hint="pass a mapping with question, answer, contexts, reference"
    )


def _pydantic_fields(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a pydantic model unchanged.

    Dumping them could change values.
    """
    names = getattr(type(model), "model_fields", None) or {}
    for name in names:
        yield name, getattr(model, name)


def samples_from(source: Any) -> list[Sample]:
    """Convert an object to samples.

    It can be a path; a Sample, a mapping, or an object of ragas (`SingleTurnSample`) or DeepEval (`LLMTestCase`); a
    sequence of these; a dataset of ragas or DeepEval; or a polars or pandas frame.

    >>> [(one.id, one.answer) for one in samples_from({"question": "When?", "answer": "In 1887."})]
    [('1', 'In 1887.')]
    """
    if isinstance(source, str | Path):
        return read_samples(str(source))
    if is_dataframe(source):
        frame: Any = source if hasattr(source, "to_dict") else to_polars(source)
        rows = frame.iter_rows(named=True) if hasattr(frame, "iter_rows") else frame.to_dict("records")
        return _build_samples(enumerate(rows, 1), "", in_lines=False, cells=True)
    if isinstance(source, Mapping):
        return _build_samples(enumerate(_iterate_json_rows(source, ""), 1), "", in_lines=False, cells=False)
    for name in SAMPLE_LIST_FIELDS[:3]:
        nested = getattr(source, name, None)
        if isinstance(nested, Sequence) and nested:
            return samples_from(list(nested))
    is_single = isinstance(source, Sample) or callable(getattr(source, "model_dump", None))
    if not is_single and not isinstance(source, Iterable):
        raise BadInput(
            f"samples cannot be read from {type(source).__name__}",
            hint="pass a path, a list of mappings, a frame, ragas, DeepEval",
        )
    return _build_samples(enumerate([source] if is_single else source, 1), "", in_lines=False, cells=False)


def write_samples(samples: Iterable[Sample], path: str, form: str = "ragauge") -> None:
    """Write samples with the field names of ragauge, ragas or DeepEval.

    The ending selects the format: `.json` is one list, `.csv` and `.tsv` are tables with JSON in their cells,
    `.parquet` is Parquet, anything else is JSONL. `-` is standard output.
    """
    if form not in SAMPLE_ROW_BUILDERS:
        raise UnknownName("sample format", form, SAMPLE_ROW_BUILDERS)
    rows = [SAMPLE_ROW_BUILDERS[form](sample) for sample in samples]
    kind = SAMPLE_FILE_FORMATS.get(InputFile(path).ending, "jsonl")
    if form == "deepeval" and kind in ("csv", "tsv"):
        raise BadInput("DeepEval cuts contexts in a table at every semicolon", file=path, hint="write .json or .jsonl")
    with atomic_write(path) as out:
        if kind == "parquet":
            import polars as pl

            flat = [{name: _to_cell_text(value) for name, value in row.items()} for row in rows]
            write_parquet(pl.DataFrame(flat, schema=dict.fromkeys(_column_names(rows), pl.String)), out)
            return
        if kind == "json":
            text = json.dumps(rows, ensure_ascii=False, indent=2, default=str) + "\n"
        elif kind == "jsonl":
            text = "".join(_to_json_text(row) + "\n" for row in rows)
        else:
            text = _format_csv(rows, "\t" if kind == "tsv" else ",")
        out.write(text.encode("utf-8", "replace"))


def _to_json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _to_cell_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _to_json_text(value)


def _column_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _format_csv(rows: Sequence[Mapping[str, Any]], separator: str) -> str:
    """Format rows as a CSV text, with lists as JSON in the cells."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _column_names(rows), delimiter=separator, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _to_cell_text(value) for name, value in row.items()})
    return out.getvalue()


def _to_ragauge_row(sample: Sample) -> dict[str, Any]:
    return _drop_none_values(
        ("id", sample.id),
        ("question", sample.question),
        ("answer", sample.answer),
        ("contexts", sample.contexts),
        ("reference", sample.reference),
        *_optional_fields(sample, "context_ids"),
        ("metadata", dict(sample.metadata) or None),
    )


def _to_ragas_row(sample: Sample) -> dict[str, Any]:
    """Convert a sample to the fields that `ragas.EvaluationDataset.from_jsonl` reads.

    It ignores unknown fields.
    """
    ragas_fields = {name: value for name, value in sample.metadata.items() if name in RAGAS_FIELDS}
    other_metadata = {name: value for name, value in sample.metadata.items() if name not in ragas_fields}
    return _drop_none_values(
        ("id", sample.id),
        ("user_input", sample.question),
        ("response", sample.answer),
        ("retrieved_contexts", sample.contexts),
        ("reference", sample.reference),
        *ragas_fields.items(),
        *_optional_fields(sample, "retrieved_context_ids"),
        ("metadata", other_metadata or None),
    )


def _to_deepeval_row(sample: Sample) -> dict[str, Any]:
    """Convert a sample to the fields that `deepeval.dataset.EvaluationDataset` reads.

    DeepEval requires `actual_output` even if there is no answer.
    """
    other_metadata = {name: value for name, value in sample.metadata.items() if name != "context"}
    row = _drop_none_values(
        ("name", sample.id),
        ("input", sample.question),
        ("expected_output", sample.reference),
        ("retrieval_context", sample.contexts),
        ("context", sample.metadata.get("context")),
        *_optional_fields(sample, "context_ids"),
        ("additional_metadata", other_metadata or None),
    )
    return {**row, "actual_output": sample.answer}


def _optional_fields(sample: Sample, ids: str) -> list[tuple[str, Any]]:
    """Return fields that most samples do not have."""
    return [
        (ids, sample.context_ids or None),
        ("history", sample.history or None),
        ("labels", dict(sample.labels) or None),
    ]


def _drop_none_values(*pairs: tuple[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in pairs if value is not None}


SAMPLE_ROW_BUILDERS: Mapping[str, Callable[[Sample], dict[str, Any]]] = {
    "ragauge": _to_ragauge_row,
    "ragas": _to_ragas_row,
    "deepeval": _to_deepeval_row,
}
"""Functions that convert a sample to a row, by the tool whose field names they use."""
