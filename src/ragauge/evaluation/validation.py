"""Validate judgments, runs, a corpus and samples before they are scored."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.core.errors import BadInput
from ragauge.core.findings import Finding
from ragauge.core.samples import Sample, find_citations
from ragauge.files import readers
from ragauge.files.json_files import read_json_lines
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
    return list(sample_findings(InputFile(path).label, samples))


def sample_findings(subject: str, samples: Sequence[Sample]) -> Iterator[Finding]:
    """Yield findings on samples.

    Findings report the available fields, and problems that prevent or distort scoring.
    """
    n = len(samples)
    given = {
        "questions": sum(bool(one.question.strip()) for one in samples),
        "answers": sum(one.answer is not None for one in samples),
        "contexts": sum(one.contexts is not None for one in samples),
        "references": sum(one.reference is not None for one in samples),
    }
    held = ", ".join(f"{what}: {count}" for what, count in given.items())
    yield Finding(subject, "samples", False, n, f"samples: {n}, {held}")
    retrieved = [len(one.contexts) for one in samples if one.contexts is not None]
    if retrieved:
        words = [len(text.split()) for one in samples for text in one.contexts or ()]
        each = f", words in a context: {_describe_count_range(words)}" if words else ""
        yield Finding(
            subject, "contexts", False, sum(retrieved), f"contexts a sample: {_describe_count_range(retrieved)}{each}"
        )
    unread = unread_fields(samples)
    if unread:
        told = ", ".join(name if count == n else f"{name} ({count})" for name, count in unread.items())
        fields = dict(zip(given, SAMPLE_PARTS, strict=True))
        absent = [field_aliases(fields[what]) for what, count in given.items() if not count]
        message = "; ".join([f"fields that are not read, but kept as metadata: {told}", *absent])
        yield Finding(subject, "unread fields", bool(absent), len(unread), message)
    labels = Counter(name for one in samples for name in one.labels)
    if labels:
        said = ", ".join(f"{name} {count}" for name, count in labels.items())
        yield Finding(subject, "labels", False, sum(labels.values()), f"labels: {said}")
    for what, count in given.items():
        if 0 < count < n:
            lacking = [one for one in samples if not _has_field(one, what)]
            yield _sample_problem(
                subject, f"without {what}", lacking, f"samples without {what}, where others have them"
            )
    twice = Counter((one.question, one.answer, one.contexts, one.history) for one in samples)
    odd = {
        "empty answers": (
            [one for one in samples if one.answer is not None and not one.answer.strip()],
            "empty answers",
        ),
        "empty contexts": ([one for one in samples if one.contexts == ()], "samples with an empty list of contexts"),
        "blank contexts": (
            [one for one in samples if any(not text.strip() for text in one.contexts or ())],
            "samples with a blank chunk among the contexts",
        ),
        "repeated contexts": (
            [one for one in samples if len(set(one.contexts or ())) < len(one.contexts or ())],
            "samples with the same chunk twice among the contexts",
        ),
        "repeated samples": (
            [one for one in samples if twice[one.question, one.answer, one.contexts, one.history] > 1],
            "samples that are the same as another",
        ),
        "dangling citations": (
            [one for one in samples if _has_dangling_citation(one)],
            "answers that cite a chunk that is not there",
        ),
    }
    for name, (found, message) in odd.items():
        if found:
            yield _sample_problem(subject, name, found, message)
    copied = [one for one in samples if one.answer is not None and one.answer == one.reference]
    if copied:
        yield Finding(
            subject,
            "answers that are references",
            False,
            len(copied),
            f"answers that are their reference: {len(copied)}",
        )


def _has_field(sample: Sample, what: str) -> bool:
    if what == "questions":
        return bool(sample.question.strip())
    value = {"answers": sample.answer, "contexts": sample.contexts, "references": sample.reference}[what]
    return value is not None


def _has_dangling_citation(sample: Sample) -> bool:
    places = find_citations(sample.answer or "")
    return sample.contexts is not None and bool(places) and max(places) > len(sample.contexts)


def _sample_problem(subject: str, what: str, found: Sequence[Sample], message: str) -> Finding:
    return Finding(subject, what, True, len(found), f"{message}: {len(found)}", [one.id for one in found[:5]])


def _describe_count_range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high} (median {statistics.median(counts):g})"


TIE_CUTOFFS = (1, 5, 10, 20, 100)


def validate_files(
    qrels: str, runs: Sequence[str] = (), corpus: str | None = None, qrels_format: str | None = None
) -> list[Finding]:
    """Find all problems of these files, in input order."""
    try:
        rows = readers.read_judgment_rows(qrels, format=qrels_format)
    except BadInput as error:
        return [Finding(qrels, "unreadable", True, 1, error.message)]
    known = None if corpus is None else read_corpus_ids(corpus)
    found = list(_judgment_findings(InputFile(qrels).label, rows, known))
    for run in runs:
        try:
            table = readers.read_run(run).table
        except BadInput as error:
            found.append(Finding(run, "unreadable", True, 1, error.message))
            continue
        found.extend(_run_findings(InputFile(run).label, table, rows, known))
    return found


def _judgment_findings(subject: str, rows: pl.DataFrame, corpus: pl.Series | None) -> Iterator[Finding]:
    import polars as pl

    per_query = rows.group_by("query", maintain_order=True).agg(
        pl.col("doc").n_unique().alias("judged"), (pl.col("grade") >= 1).sum().alias("relevant")
    )
    histogram = rows["grade"].value_counts().sort("grade")
    grades = ", ".join(f"{g:g}: {n}" for g, n in histogram.iter_rows())
    yield Finding(
        subject,
        "judgments",
        False,
        rows.height,
        f"queries: {per_query.height}, judgments: {rows.height}, a query: "
        f"{_describe_series_range(per_query['judged'])}",
    )
    yield Finding(subject, "grades", False, histogram.height, f"grades: {grades}")
    pair = ["query", "doc"] + (["subtopic"] if "subtopic" in rows.columns else [])
    same = (
        rows.filter(pl.struct(*pair, "grade").is_duplicated()).height
        - rows.filter(pl.struct(*pair, "grade").is_duplicated()).unique([*pair, "grade"]).height
    )
    if same:
        yield Finding(subject, "duplicate rows", True, same, f"rows that repeat a row above: {same}")
    distinct = rows.unique([*pair, "grade"], maintain_order=True)
    clash = distinct.filter(pl.struct(pair).is_duplicated()).unique(pair, maintain_order=True)
    if clash.height:
        yield Finding(
            subject,
            "conflicting grades",
            True,
            clash.height,
            f"documents with two grades for one query: {clash.height}",
            _first_pairs(clash),
        )
    empty = per_query.filter(pl.col("relevant") == 0)["query"]
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
    if corpus is not None:
        orphans = _unknown_values(rows["doc"], corpus)
        if len(orphans):
            yield Finding(
                subject,
                "orphan ids",
                True,
                len(orphans),
                f"judgments of documents that are not in the corpus: {len(orphans)}",
                _first_values(orphans.unique(maintain_order=True)),
            )


def _run_findings(subject: str, run: pl.DataFrame, judged: pl.DataFrame, corpus: pl.Series | None) -> Iterator[Finding]:
    import polars as pl

    depth = run.group_by("query", maintain_order=True).agg(pl.len().alias("depth"))
    yield Finding(
        subject,
        "run",
        False,
        run.height,
        f"queries: {depth.height}, rows: {run.height}, a query: {_describe_series_range(depth['depth'])}",
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
            f"queries that nobody judged: {len(extra)}",
            _first_values(extra),
        )
    twice = run.filter(pl.struct("query", "doc").is_duplicated()).unique(["query", "doc"], maintain_order=True)
    if twice.height:
        yield Finding(
            subject,
            "duplicate documents",
            True,
            twice.height,
            f"documents twice or more in one ranking: {twice.height}",
            _first_pairs(twice),
        )
    tied = run.height - run.select("query", "score").unique().height
    if tied:
        ordered = run.select("query", "score").sort(["query", "score"], descending=[False, True])
        scores = ordered.group_by("query").agg("score")["score"]
        at = []
        for k in TIE_CUTOFFS:
            here, below = scores.list.get(k - 1, null_on_oob=True), scores.list.get(k, null_on_oob=True)
            split = int((here == below).sum())
            if split:
                at.append(f"{split} @{k}")
        where = f"; queries with a tie across the cutoff: {', '.join(at)}" if at else ""
        share = f"{100 * tied / run.height:.0f}%"
        yield Finding(
            subject, "ties", bool(at), tied, f"scores that repeat another: {tied} of {run.height} ({share}){where}"
        )
    top = run.sort("score", descending=True, maintain_order=True).group_by("query", maintain_order=True).head(10)
    top = top.join(judged.select("query").unique(), on="query", how="semi")
    if top.height:
        seen = top.join(judged.unique(["query", "doc"]), on=["query", "doc"], how="semi").height
        share = f"{100 * (1 - seen / top.height):.0f}%"
        yield Finding(subject, "unjudged", False, top.height - seen, f"unjudged among the first ten documents: {share}")
    if corpus is not None:
        unknown = _unknown_values(run["doc"], corpus)
        if len(unknown):
            yield Finding(
                subject,
                "orphan ids",
                True,
                len(unknown),
                f"rows with documents that are not in the corpus: {len(unknown)}",
                _first_values(unknown.unique(maintain_order=True)),
            )


def read_corpus_ids(path: str) -> pl.Series:
    """Read the document ids of a corpus.

    Accepts a BEIR folder, JSONL with an id field, or text with the id first on each line.
    """
    import polars as pl

    folder = Path(path)
    if folder.is_dir():
        found = sorted(folder.glob("corpus.jsonl*"))
        if not found:
            raise BadInput("no corpus.jsonl", file=path)
        path = str(found[0])
    source = InputFile(path)
    if source.ending in (".jsonl", ".ndjson"):
        ids = []
        for line, item in read_json_lines(source):
            name = next((n for n in ("_id", "id", "doc_id", "docid", "docno") if n in item), None)
            if name is None:
                raise BadInput("expected an id (_id, id, doc_id, docno)", file=source.label, line=line)
            ids.append(str(item[name]))
    else:
        ids = [
            line.split(maxsplit=1)[0]
            for block in source.blocks()
            for line in block.decode("utf-8", "replace").splitlines()
            if line.strip()
        ]
    return pl.Series("doc", ids, dtype=pl.String)


def _unknown_values(values: pl.Series, known: pl.Series) -> pl.Series:
    """Return the values that are not in `known`, in order, with repetitions."""
    frame = values.alias("value").to_frame()
    return frame.join(known.alias("value").to_frame(), on="value", how="anti", maintain_order="left")["value"]


def _describe_series_range(counts: pl.Series) -> str:
    low, middle, high = counts.min() or 0, counts.median() or 0, counts.max() or 0
    return f"{low!s}" if low == high else f"{low!s} to {high!s} (median {middle!s})"


def _first_values(values: pl.Series) -> list[str]:
    return [str(value) for value in values.head(5).to_list()]


def _first_pairs(rows: pl.DataFrame) -> list[str]:
    return [f"{query} {doc}" for query, doc in rows.select("query", "doc").head(5).iter_rows()]
