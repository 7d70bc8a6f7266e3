"""Validate judgments, runs, a corpus and samples before they are scored."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.findings import Finding
from ragauge.core.samples import Sample, find_citations
from ragauge.evaluation.checks import Check, Requirement, run_checks
from ragauge.files import readers
from ragauge.files.document_rows import DOCUMENT_FIELDS, ROW_FORMATS, open_rows
from ragauge.files.documents import find_row_id, read_corpus
from ragauge.files.sample_fields import SAMPLE_PARTS, field_aliases, unread_fields
from ragauge.files.samples import read_samples
from ragauge.files.source import InputFile

if TYPE_CHECKING:
    import polars as pl


def validate_samples(path: str) -> list[Finding]:
    """Find all problems of a file of samples."""
    try:
        samples = read_samples(path)
    except BadInput as error:
        return [Finding(path, "unreadable", True, 1, error.message)]
    return sample_findings(InputFile(path).label, samples)


def sample_findings(subject: str, samples: Sequence[Sample]) -> list[Finding]:
    """Find the available fields of samples, and problems that prevent or distort scoring."""
    return run_checks(SAMPLE_CHECKS, SampleFile(subject, samples)).findings


class SampleFile(NamedTuple):
    subject: str
    samples: Sequence[Sample]

    def count_fields(self) -> dict[str, int]:
        """Count the samples that have each field."""
        samples = self.samples
        return {
            "questions": sum(bool(sample.question.strip()) for sample in samples),
            "answers": sum(sample.answer is not None for sample in samples),
            "contexts": sum(sample.contexts is not None for sample in samples),
            "references": sum(sample.reference is not None for sample in samples),
        }


def _check_sample_counts(file: SampleFile) -> Iterator[Finding]:
    subject, samples, n, field_counts = file.subject, file.samples, len(file.samples), file.count_fields()
    count_text = ", ".join(f"{field_name}: {count}" for field_name, count in field_counts.items())
    yield Finding(subject, "samples", False, n, f"samples: {n}, {count_text}")
    retrieved = [len(sample.contexts) for sample in samples if sample.contexts is not None]
    if retrieved:
        word_counts = [len(text.split()) for sample in samples for text in sample.contexts or ()]
        word_text = f", words per context: {_describe_count_range(word_counts)}" if word_counts else ""
        yield Finding(
            subject,
            "contexts",
            False,
            sum(retrieved),
            f"contexts per sample: {_describe_count_range(retrieved)}{word_text}",
        )


def _check_sample_fields(file: SampleFile) -> Iterator[Finding]:
    subject, samples, n, field_counts = file.subject, file.samples, len(file.samples), file.count_fields()
    unread = unread_fields(samples)
    if unread:
        field_text = ", ".join(name if count == n else f"{name} ({count})" for name, count in unread.items())
        fields = dict(zip(field_counts, SAMPLE_PARTS, strict=True))
        absent = [field_aliases(fields[field_name]) for field_name, count in field_counts.items() if not count]
        message = "; ".join([f"unknown fields, read as metadata: {field_text}", *absent])
        yield Finding(subject, "unread fields", bool(absent), len(unread), message)
    labels = Counter(name for sample in samples for name in sample.labels)
    if labels:
        label_text = ", ".join(f"{name} {count}" for name, count in labels.items())
        yield Finding(subject, "labels", False, sum(labels.values()), f"labels: {label_text}")
    for field_name, count in field_counts.items():
        if 0 < count < n:
            incomplete = [sample for sample in samples if not _has_field(sample, field_name)]
            yield _sample_problem(
                subject, f"without {field_name}", incomplete, f"samples without {field_name}, which other samples have"
            )


def _check_sample_texts(file: SampleFile) -> Iterator[Finding]:
    subject, samples = file.subject, file.samples
    copies = Counter((sample.question, sample.answer, sample.contexts, sample.history) for sample in samples)
    problems = {
        "empty answers": (
            [sample for sample in samples if sample.answer is not None and not sample.answer.strip()],
            "empty answers",
        ),
        "empty contexts": (
            [sample for sample in samples if sample.contexts == ()],
            "samples with an empty list of contexts",
        ),
        "blank contexts": (
            [sample for sample in samples if any(not text.strip() for text in sample.contexts or ())],
            "samples with a blank context",
        ),
        "repeated contexts": (
            [sample for sample in samples if len(set(sample.contexts or ())) < len(sample.contexts or ())],
            "samples with a duplicate context",
        ),
        "repeated samples": (
            [
                sample
                for sample in samples
                if copies[sample.question, sample.answer, sample.contexts, sample.history] > 1
            ],
            "duplicate samples",
        ),
        "dangling citations": (
            [sample for sample in samples if _has_dangling_citation(sample)],
            "answers that cite a missing chunk",
        ),
    }
    for name, (affected, message) in problems.items():
        if affected:
            yield _sample_problem(subject, name, affected, message)
    copied = [sample for sample in samples if sample.answer is not None and sample.answer == sample.reference]
    if copied:
        yield Finding(
            subject,
            "answers that are references",
            False,
            len(copied),
            f"answers equal to their reference: {len(copied)}",
        )


SAMPLE_CHECKS: Sequence[Check[SampleFile]] = (
    Check("samples", "number of samples and chunks", _check_sample_counts),
    Check("fields", "unread and missing fields, labels", _check_sample_fields),
    Check("texts", "empty and repeated texts, citations of missing chunks", _check_sample_texts),
)


def _has_field(sample: Sample, field_name: str) -> bool:
    if field_name == "questions":
        return bool(sample.question.strip())
    value = {"answers": sample.answer, "contexts": sample.contexts, "references": sample.reference}[field_name]
    return value is not None


def _has_dangling_citation(sample: Sample) -> bool:
    cited = find_citations(sample.answer or "")
    return sample.contexts is not None and bool(cited) and max(cited) > len(sample.contexts)


def _sample_problem(subject: str, name: str, samples: Sequence[Sample], message: str) -> Finding:
    return Finding(
        subject, name, True, len(samples), f"{message}: {len(samples)}", [sample.id for sample in samples[:5]]
    )


def _describe_count_range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high} (median {statistics.median(counts):g})"


TIE_CUTOFFS = (1, 5, 10, 20, 100)


def validate_files(
    qrels: str,
    runs: Sequence[str] = (),
    corpus: str | None = None,
    qrels_format: str | None = None,
    split: str | None = None,
) -> list[Finding]:
    """Find all problems of these files, in input order."""
    try:
        rows = readers.read_judgment_rows(qrels, format=qrels_format, split=split)
    except BadInput as error:
        return [Finding(qrels, "unreadable", True, 1, error.message)]
    corpus_ids = None if corpus is None else read_corpus_ids(corpus)
    file = JudgmentFile(InputFile(qrels).label, rows, corpus_ids, _may_have_subtopics(qrels, rows, qrels_format))
    findings = run_checks(JUDGMENT_CHECKS, file).findings
    for run in runs:
        try:
            whole_run = readers.read_run(run)
        except BadInput as error:
            findings.append(Finding(run, "unreadable", True, 1, error.message))
            continue
        table = whole_run.table
        if whole_run.rows_are_hits:
            table = table.unique(["query", "doc"], keep="first", maintain_order=True)
            if n_repeats := whole_run.table.height - table.height:
                message = f"repeated documents: {n_repeats}; each document scores once, at its first rank"
                findings.append(Finding(run, "repeated documents", False, n_repeats, message))
        findings += run_checks(RUN_CHECKS, RunFile(InputFile(run).label, table, rows, corpus_ids)).findings
    return findings


class JudgmentFile(NamedTuple):
    subject: str
    rows: pl.DataFrame
    corpus: pl.Series | None
    """Ids of the documents, if known."""
    may_have_subtopics: bool = False
    """Whether the second column, which is not used, distinguishes the rows of a document."""


def _may_have_subtopics(qrels: str, rows: pl.DataFrame, qrels_format: str | None) -> bool:
    """Return whether documents that have several rows differ in the second column of a TREC file."""
    if qrels_format is not None or rows.select("query", "doc").is_unique().all():
        return False
    try:
        by_subtopic = readers.read_judgment_rows(qrels, format="subtopics")
    except BadInput:
        return False
    return by_subtopic["subtopic"].n_unique() > 1 and bool(
        by_subtopic.select("query", "doc", "subtopic").is_unique().all()
    )


SUBTOPICS_ADVICE = "; the rows differ in the second column: add `--qrels-format subtopics` if it is the subtopic"


class RunFile(NamedTuple):
    """A run to check against judgments."""

    subject: str
    run: pl.DataFrame
    judged: pl.DataFrame
    corpus: pl.Series | None
    """Ids of the documents, if known."""


NO_CORPUS = "no corpus given"


def _check_judgment_counts(file: JudgmentFile) -> Iterator[Finding]:
    subject, rows = file.subject, file.rows
    per_query = _count_judged(rows)
    histogram = rows["grade"].value_counts().sort("grade")
    grades = ", ".join(f"{g:g}: {n}" for g, n in histogram.iter_rows())
    yield Finding(
        subject,
        "judgments",
        False,
        rows.height,
        f"queries: {per_query.height}, judgments: {rows.height}, per query: "
        f"{_describe_series_range(per_query['judged'])}",
    )
    yield Finding(subject, "grades", False, histogram.height, f"grades: {grades}")


def _count_judged(rows: pl.DataFrame) -> pl.DataFrame:
    """Count the judged and the relevant documents per query."""
    import polars as pl

    return rows.group_by("query", maintain_order=True).agg(
        pl.col("doc").n_unique().alias("judged"), (pl.col("grade") >= 1).sum().alias("relevant")
    )


def _check_judgment_rows(file: JudgmentFile) -> Iterator[Finding]:
    import polars as pl

    subject, rows = file.subject, file.rows
    advice = SUBTOPICS_ADVICE if file.may_have_subtopics else ""
    pair = ["query", "doc"] + (["subtopic"] if "subtopic" in rows.columns else [])
    n_repeated = (
        rows.filter(pl.struct(*pair, "grade").is_duplicated()).height
        - rows.filter(pl.struct(*pair, "grade").is_duplicated()).unique([*pair, "grade"]).height
    )
    if n_repeated:
        yield Finding(subject, "duplicate rows", True, n_repeated, f"duplicate rows: {n_repeated}{advice}")
    distinct = rows.unique([*pair, "grade"], maintain_order=True)
    conflicting = distinct.filter(pl.struct(pair).is_duplicated()).unique(pair, maintain_order=True)
    if conflicting.height:
        yield Finding(
            subject,
            "conflicting grades",
            True,
            conflicting.height,
            f"documents with conflicting grades for a query: {conflicting.height}{'' if n_repeated else advice}",
            _first_pairs(conflicting),
        )


def _check_grades(file: JudgmentFile) -> Iterator[Finding]:
    import polars as pl

    subject, rows = file.subject, file.rows
    empty = _count_judged(rows).filter(pl.col("relevant") == 0)["query"]
    if len(empty):
        yield Finding(
            subject,
            "no relevant",
            True,
            len(empty),
            f"queries without a relevant document: {len(empty)}",
            _first_values(empty),
        )
    negative = rows.filter(pl.col("grade") < 0).height
    if negative:
        yield Finding(subject, "negative grades", False, negative, f"negative grades (pooled but unjudged): {negative}")
    fractions = rows.filter(pl.col("grade") != pl.col("grade").floor()).height
    if fractions:
        yield Finding(
            subject, "fractional grades", False, fractions, f"fractional grades (trec_eval cuts them off): {fractions}"
        )


def _find_orphan_ids(subject: str, docs: pl.Series, corpus: pl.Series | None, rows: str) -> Iterator[Finding]:
    """Find the documents of rows that are not in the corpus; `rows` names them in the message."""
    orphans = _unknown_values(docs, corpus)
    if len(orphans):
        yield Finding(
            subject,
            "orphan ids",
            True,
            len(orphans),
            f"{rows} documents that are not in the corpus: {len(orphans)}",
            _first_values(orphans.unique(maintain_order=True)),
        )


def _check_judged_ids(file: JudgmentFile) -> Iterator[Finding]:
    return _find_orphan_ids(file.subject, file.rows["doc"], file.corpus, "judgments of")


JUDGED_CORPUS = Requirement[JudgmentFile]("corpus", lambda file: file.corpus is not None, NO_CORPUS)
JUDGMENT_CHECKS: Sequence[Check[JudgmentFile]] = (
    Check("judgments", "number of queries, judgments and grades", _check_judgment_counts),
    Check("rows", "duplicate and conflicting rows", _check_judgment_rows),
    Check("grades", "queries without relevant documents, unusual grades", _check_grades),
    Check("ids", "judgments of documents that are not in the corpus", _check_judged_ids, (JUDGED_CORPUS,)),
)


def _check_run_queries(file: RunFile) -> Iterator[Finding]:
    import polars as pl

    subject, run, judged = file.subject, file.run, file.judged
    depth = run.group_by("query", maintain_order=True).agg(pl.len().alias("depth"))
    yield Finding(
        subject,
        "run",
        False,
        run.height,
        f"queries: {depth.height}, rows: {run.height}, per query: {_describe_series_range(depth['depth'])}",
    )
    missing = _unknown_values(judged["query"].unique(maintain_order=True), depth["query"])
    if len(missing):
        yield Finding(
            subject,
            "missing queries",
            True,
            len(missing),
            f"judged queries that are not in the run: {len(missing)}",
            _first_values(missing),
        )
    extra = _unknown_values(depth["query"], judged["query"])
    if len(extra):
        yield Finding(
            subject,
            "unjudged queries",
            True,
            len(extra),
            f"unjudged queries: {len(extra)}",
            _first_values(extra),
        )


def _check_run_rows(file: RunFile) -> Iterator[Finding]:
    import polars as pl

    subject, run, judged = file.subject, file.run, file.judged
    duplicates = run.filter(pl.struct("query", "doc").is_duplicated()).unique(["query", "doc"], maintain_order=True)
    if duplicates.height:
        yield Finding(
            subject,
            "duplicate documents",
            True,
            duplicates.height,
            f"duplicate documents in a ranking: {duplicates.height}",
            _first_pairs(duplicates),
        )
    tied = run.height - run.select("query", "score").unique().height
    if tied:
        ordered = run.select("query", "score").sort(["query", "score"], descending=[False, True])
        scores = ordered.group_by("query").agg("score")["score"]
        split_counts = []
        for k in TIE_CUTOFFS:
            scores_at_k, scores_after_k = scores.list.get(k - 1, null_on_oob=True), scores.list.get(k, null_on_oob=True)
            n_split = int((scores_at_k == scores_after_k).sum())
            if n_split:
                split_counts.append(f"{n_split} @{k}")
        cutoff_text = f"; queries with a tie across the cutoff: {', '.join(split_counts)}" if split_counts else ""
        share = f"{100 * tied / run.height:.0f}%"
        yield Finding(
            subject,
            "ties",
            bool(split_counts),
            tied,
            f"tied scores: {tied} of {run.height} ({share}){cutoff_text}",
        )
    top = run.sort("score", descending=True, maintain_order=True).group_by("query", maintain_order=True).head(10)
    top = top.join(judged.select("query").unique(), on="query", how="semi")
    if top.height:
        n_judged = top.join(judged.unique(["query", "doc"]), on=["query", "doc"], how="semi").height
        share = f"{100 * (1 - n_judged / top.height):.0f}%"
        yield Finding(subject, "unjudged", False, top.height - n_judged, f"unjudged documents in the top 10: {share}")


def _check_retrieved_ids(file: RunFile) -> Iterator[Finding]:
    return _find_orphan_ids(file.subject, file.run["doc"], file.corpus, "rows with")


RUN_CORPUS = Requirement[RunFile]("corpus", lambda file: file.corpus is not None, NO_CORPUS)
RUN_CHECKS: Sequence[Check[RunFile]] = (
    Check("run", "number of queries and rows, queries that are missing or unjudged", _check_run_queries),
    Check("rows", "duplicate documents, ties, unjudged documents", _check_run_rows),
    Check("ids", "documents that are not in the corpus", _check_retrieved_ids, (RUN_CORPUS,)),
)


def read_corpus_ids(path: str) -> pl.Series:
    """Read the document ids of a corpus in any format of `read_corpus`, or text with the id first on each line."""
    import polars as pl

    source = InputFile(path)
    if path != "-" and Path(path).is_dir():
        ids = [document.id for document in read_corpus(path).documents]
    elif source.ending in ROW_FORMATS:
        rows = open_rows(path, DOCUMENT_FIELDS)
        ids = []
        for number, row in rows.rows():
            name = find_row_id(row, DOCUMENT_FIELDS)
            if not name:
                raise rows.location(number).error(f"expected an id ({', '.join(DOCUMENT_FIELDS.ids)})")
            ids.append(name)
    else:
        ids = [
            line.split(maxsplit=1)[0]
            for block in source.blocks()
            for line in block.decode("utf-8", "replace").splitlines()
            if line.strip()
        ]
    return pl.Series("doc", ids, dtype=pl.String)


def _unknown_values(values: pl.Series, known_values: pl.Series | None) -> pl.Series:
    """Return the values that are not in `known_values`, in order, with repetitions."""
    if known_values is None:
        raise MissingEvidence(NO_CORPUS)
    frame = values.alias("value").to_frame()
    return frame.join(known_values.alias("value").to_frame(), on="value", how="anti", maintain_order="left")["value"]


def _describe_series_range(counts: pl.Series) -> str:
    low, middle, high = counts.min() or 0, counts.median() or 0, counts.max() or 0
    return f"{low!s}" if low == high else f"{low!s} to {high!s} (median {middle!s})"


def _first_values(values: pl.Series) -> list[str]:
    return [str(value) for value in values.head(5).to_list()]


def _first_pairs(rows: pl.DataFrame) -> list[str]:
    return [f"{query} {doc}" for query, doc in rows.select("query", "doc").head(5).iter_rows()]
