"""Report of a stress test: failures, documents read back, and performance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.text import one_line
from ragauge.output.numbers import MISSING, format_number, join_with_and, pluralise
from ragauge.output.report import (
    FILES_ONLY,
    Block,
    Charts,
    Code,
    Facts,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.tables import Cell, Column, Row, Table, Value
from ragauge.store_stress.charts import build_fill_rate_chart
from ragauge.store_stress.results import (
    IngestionResult,
    OperationTiming,
    ReadBack,
    StoreFailure,
    StoreState,
    StressTest,
)

GOOD_NEIGHBOUR_RECALL = 0.95
"""Neighbour recall below which the summary mentions it."""
DOCUMENT_FIELDS = {"text", "title", "metadata"}
PASSED = "passed"


def build_report(result: StressTest) -> Report:
    """Build the report of a stress test."""
    summary, *details = summarise_stress_test(result)
    sections = [
        *(_failure_section(f"failure-{i}", "Failure", failure) for i, failure in enumerate(result.failures)),
        *(
            _failure_section(f"unreproduced-{i}", "Not reproduced", failure)
            for i, failure in enumerate(result.not_reproduced)
        ),
        _read_back_section(result),
        _performance_section(result),
        Section("fill-rate", "Ingestion time", [Charts(lambda: build_fill_rate_chart(result))], "Ingestion time"),
        Section("corrupt", "Corrupt documents", _corrupt_document_tables(result), "Corrupt", FILES_ONLY),
        Section("types", "Document types", _document_type_tables(result), "Types", FILES_ONLY),
    ]
    engine = [str(result.description.get(name, "")) for name in ("keeper", "version")]
    subject = [
        f"{pluralise(result.documents, 'document')} of {result.source}",
        pluralise(result.queries, "query", "queries"),
        f"vectors by {result.embedder}",
        *([" ".join(engine).strip()] if engine[0] else []),
    ]
    return Report(
        "stress",
        f"Stress test of {result.store}",
        summary,
        [section for section in sections if section.blocks],
        subject,
        details,
        notes=result.notes,
        provenance={**result.provenance, "store": result.description},
    )


def summarise_stress_test(result: StressTest) -> list[str]:
    """Summarise a stress test: one sentence on each failure, then on what passed."""
    sentences = [_describe_failure(result.store, failure) for failure in result.failures]
    passed = [mode for mode in result.modes if mode.broken is None]
    if passed:
        modes = join_with_and([mode.name for mode in passed])
        fields = _describe_compared_fields(passed[0])
        kills = min(map(_count_kills, passed))
        after_kills = f", and after kill -9 ({pluralise(kills, 'kill')} per mode)" if kills else ""
        states = f"after ingestion {modes}, after reopening{after_kills}"
        sentences.append(f"{result.store} returned {fields}: {states}.")
        recall = min((mode.neighbour_recall for mode in passed if not math.isnan(mode.neighbour_recall)), default=1.0)
        if recall < GOOD_NEIGHBOUR_RECALL:
            sentences.append(f"Its neighbour recall is {format_number(recall, 'share')}.")
    sentences += [
        f"A failure {failure.mode} while {failure.stage} was not reproduced in "
        f"{pluralise(len(failure.tried), 'attempt')}."
        for failure in result.not_reproduced
    ]
    return sentences


def _describe_failure(store: str, failure: StoreFailure) -> str:
    error = _first_line(failure.error)
    end = "" if error.endswith((".", "!", "?")) else "."
    more = f" Not reproduced, but {explain_unreproduced(failure)}." if failure.reproduced is False else ""
    documents = pluralise(failure.after, "document")
    return f"{store} failed {failure.mode} while {failure.stage}, after {documents}: {error}{end}{more}"


def explain_unreproduced(failure: StoreFailure) -> str:
    """Explain why a failure that was not reproduced counts as a failure of the store."""
    return "documents were lost or altered" if failure.documents_lost else failure.doubt


def _first_line(text: str) -> str:
    return one_line(text.strip().partition("\n")[0])


def _count_kills(mode: IngestionResult) -> int:
    """Count the kills after a commit; an earlier one proves nothing."""
    return sum(read_back.kill is not None and read_back.expected > 0 for read_back in mode.read_back)


def _describe_compared_fields(mode: IngestionResult) -> str:
    keeps = mode.read_back[0].keeps if mode.read_back else ()
    if set(keeps) == DOCUMENT_FIELDS:
        return "all documents byte for byte"
    return f"the {join_with_and(keeps)} of all documents" if keeps else "the ids of all documents (no texts)"


def describe_outcome(result: StressTest) -> str:
    """State in a few words whether a store failed, and in which stages."""
    return _describe_stages(result.failures, result.not_reproduced)


def _describe_stages(failures: Sequence[StoreFailure], not_reproduced: Sequence[StoreFailure]) -> str:
    stages = ", ".join(dict.fromkeys(str(failure.stage) for failure in failures or not_reproduced))
    return f"{'failed' if failures else 'not reproduced'}: {stages}" if stages else PASSED


def _failure_section(section_id: str, title: str, failure: StoreFailure) -> Section:
    """Build the section of a failure, with the progress and the shortest failing prefix."""
    prefix = MISSING if failure.prefix is None else pluralise(failure.prefix, "document")
    is_exact = failure.is_shortest or failure.prefix is None
    facts = {
        "stage": str(failure.stage),
        "wrong result" if failure.silent else "error": _first_line(failure.error),
        "documents put in before": format_number(failure.after, "count"),
        "document being put": failure.document or MISSING,
        "shortest failing prefix" if is_exact else "shortest known failing prefix": prefix,
        "prefixes tried": ", ".join(f"{n:,} {'failed' if failed else PASSED}" for n, failed in failure.tried)
        or MISSING,
        "reproduced": _format_yes_no(failure.reproduced),
        "failed every time": _format_yes_no(failure.steady),
        **({"doubt": failure.doubt} if failure.doubt else {}),
        **({"reproducer": failure.reproducer} if failure.reproducer else {}),
        **({"to repeat it": failure.command} if failure.command else {}),
    }
    blocks: list[Block] = [Facts(facts)]
    if "\n" in failure.error.strip():
        blocks.append(Code(failure.error.strip(), "Complete error message"))
    return Section(section_id, f"{title} {failure.mode}", blocks, title)


def _format_yes_no(value: bool | None) -> str:
    return MISSING if value is None else "yes" if value else "no"


def _read_back_section(result: StressTest) -> Section:
    read_backs = [read_back for mode in result.modes for read_back in mode.read_back]
    if not read_backs:
        text = "The store failed before any document could be read back."
        return Section("read-back", "Documents read back", [Paragraph(text)], "Read back")
    compared = ", ".join(("id", *read_backs[0].keeps)) if read_backs[0].keeps else "id only; the store keeps no texts"
    columns = [
        Column("state", "name"),
        Column("committed", "count"),
        Column("intact", "count"),
        Column("corrupt", "text"),
        Column("uncommitted", "count", drop_order=1),
    ]
    tables = [
        Table(mode.name.replace(" ", "-"), columns, list(map(_read_back_row, mode.read_back)), f"Ingestion {mode.name}")
        for mode in result.modes
        if mode.read_back
    ]
    about = Paragraph(
        f"Every document was read by its id and compared byte for byte ({compared}). Committed documents must be "
        "intact; uncommitted ones may be present, and must then be intact."
    )
    return Section("read-back", "Documents read back", [about, *tables], "Read back")


def _read_back_row(read_back: ReadBack) -> Row:
    corrupt = ", ".join(f"{n:,} {kind}" for kind, n in read_back.corrupt_counts.items() if n) or MISSING
    return [read_back.when, read_back.expected, read_back.whole, corrupt, read_back.uncommitted]


def _performance_section(result: StressTest) -> Section:
    if all(mode.put is None for mode in result.modes):
        return Section("performance", "Performance", [])
    text = "Latency of single calls, one after the other, in a process of the store alone."
    judged = max((mode.judged_queries for mode in result.modes), default=0)
    if judged:
        text += f" {_describe_judged_queries(result, judged)}"
    table = build_performance_table(result).transpose()
    return Section("performance", "Performance", [Paragraph(text), table], "Performance")


def _describe_judged_queries(result: StressTest, judged: int) -> str:
    n_unjudged = result.queries - judged
    if not n_unjudged:
        return f"Measures are means over {pluralise(judged, 'query', 'queries')}."
    return (
        f"Measures are means over {judged:,} of {result.queries:,} queries: "
        f"the other {n_unjudged:,} {'has' if n_unjudged == 1 else 'have'} no relevant document "
        f"among the {pluralise(result.documents, 'document')} put in."
    )


def build_performance_table(result: StressTest) -> Table:
    """Build the table with one row per ingestion mode, without values that no mode has."""
    values: dict[Column, Callable[[IngestionResult], Value]] = {
        Column("", "name"): lambda mode: mode.name,
        Column("documents put in", "count"): lambda mode: mode.documents,
        Column("documents per second", "qps"): lambda mode: mode.documents_per_second,
        Column("put p50 (ms)", "ms"): lambda mode: _statistic(mode.put, "p50"),
        Column("put p99 (ms)", "ms"): lambda mode: _statistic(mode.put, "p99"),
        Column("put max (ms)", "ms"): lambda mode: _statistic(mode.put, "longest"),
        Column("commit mean (ms)", "ms"): lambda mode: _statistic(mode.commit, "mean"),
        Column("query p50 (ms)", "ms"): lambda mode: _statistic(mode.search, "p50"),
        Column("query p95 (ms)", "ms"): lambda mode: _statistic(mode.search, "p95"),
        Column("query p99 (ms)", "ms"): lambda mode: _statistic(mode.search, "p99"),
        Column("reopening (s)", "seconds"): lambda mode: mode.opening_seconds,
        Column("disk space", "bytes"): lambda mode: mode.bytes_on_disk,
        **{Column(name, "score"): _measure_getter(name) for mode in result.modes for name in mode.measures},
        Column("neighbour recall", "score"): lambda mode: mode.neighbour_recall,
        Column("rankings changed by reopening", "count"): lambda mode: mode.changed_rankings,
        Column("invalid rankings", "count"): lambda mode: sum(mode.ranking_errors.values()) if mode.queries else None,
    }
    columns = [column for column, value in values.items() if any(_is_known(value(mode)) for mode in result.modes)]
    return Table("performance", columns, [[values[column](mode) for column in columns] for mode in result.modes])


def _measure_getter(name: str) -> Callable[[IngestionResult], Value]:
    return lambda mode: mode.measures.get(name)


def _statistic(timing: OperationTiming | None, name: str) -> float | None:
    return None if timing is None else float(timing._asdict()[name])


def _is_known(value: Value) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _corrupt_document_tables(result: StressTest) -> list[Block]:
    rows: list[Row] = [
        [document.id, mode.name, read_back.when, document.kind, document.difference]
        for mode in result.modes
        for read_back in mode.read_back
        for document in read_back.corrupt
    ]
    columns = [Column("document"), Column("ingestion"), Column("state"), Column("corruption"), Column("difference")]
    return [Table("corrupt", columns, rows, collapsed=True)] if rows else []


def _document_type_tables(result: StressTest) -> list[Block]:
    rows = sorted(result.document_types.items(), key=lambda item: -item[1])
    columns = [Column("type", "name"), Column("documents", "count")]
    return [Table("types", columns, rows, collapsed=True)] if rows else []


def build_comparison_report(results: Sequence[StressTest]) -> Report:
    """Build a report that compares stores, one row per store."""
    first = results[0]
    subject = [
        f"{pluralise(first.documents, 'document')} of {first.source}",
        pluralise(first.queries, "query", "queries"),
    ]
    passed = [result.store for result in results if result.broken is None]
    failed = [result.store for result in results if result.broken is not None]
    sentences = [f"{', '.join(names)} {verb}." for names, verb in ((passed, PASSED), (failed, "failed")) if names]
    section = Section("stores", "Stores under stress", [build_comparison_table(results)], "Stores")
    return Report("stress-comparison", "Stores under stress", " ".join(sentences), [section], subject)


def build_comparison_table(results: Sequence[StressTest]) -> Table:
    """Build the table that compares stores; values other than rates are those of the first mode with searches."""
    k = results[0].k
    columns = [
        Column("store", "name"),
        Column("1 by 1/s", "qps", 1, 9, "documents per second, put one by one"),
        Column("batch/s", "qps", 1, 8, "documents per second, put in batches"),
        Column("put p99", "ms", -1, 4, "milliseconds per put, one by one"),
        Column("query p50", "ms", -1, 7, "milliseconds per query"),
        Column("p95", "ms", -1, 2, "milliseconds per query"),
        Column(f"recall@{k}", "score", 1, 5),
        Column(f"ndcg@{k}", "score", 1),
        Column("neighbours", "score", 1, 3, "share of the exact nearest neighbours in the rankings"),
        Column("at once", "count", 0, 6, "intact documents right after ingestion, in the worse mode"),
        Column("reopened", "count", legend="intact documents after reopening"),
        Column("kill -9", "count", legend="intact documents after the last kill"),
        Column("disk", "bytes", -1, 1),
        Column("outcome"),
    ]
    return Table("stores", columns, [_comparison_row(result, k) for result in results]).mark_best()


def _comparison_row(result: StressTest, k: int) -> Row:
    modes = {mode.name: mode for mode in result.modes}
    one_by_one, batches = modes.get("one by one"), modes.get("in batches")
    main = next((mode for mode in result.modes if mode.search is not None), result.modes[0])
    return [
        result.store,
        None if one_by_one is None else one_by_one.documents_per_second,
        None if batches is None else batches.documents_per_second,
        None if one_by_one is None else _statistic(one_by_one.put, "p99"),
        _statistic(main.search, "p50"),
        _statistic(main.search, "p95"),
        main.measures.get(f"recall@{k}"),
        main.measures.get(f"ndcg@{k}"),
        main.neighbour_recall,
        _worst_read_back(result, "new"),
        _worst_read_back(result, "reopened"),
        _worst_read_back(result, "killed"),
        main.bytes_on_disk,
        describe_outcome(result),
    ]


def _worst_read_back(result: StressTest, state: StoreState) -> Cell:
    """Return the number of intact documents in the worse ingestion mode, at its last read-back in a state."""
    by_mode = [mode.select_read_backs(state) for mode in result.modes]
    last = [read_backs[-1] for read_backs in by_mode if read_backs]
    if not last:
        return Cell(None)
    worst = min(last, key=lambda read_back: read_back.whole - read_back.expected)
    return Cell(worst.whole, text="all" if all(read_back.is_intact for read_back in last) else "")


def build_value_table(result: StressTest) -> Table:
    """Build the table with one row per ingestion mode and value."""
    columns = [Column(name) for name in ("store", "mode", "name", "value")]
    rows = [
        [result.store, mode.name, name, value] for mode in result.modes for name, value in _mode_values(mode).items()
    ]
    return Table("values", columns, rows)


def _mode_values(mode: IngestionResult) -> dict[str, Value]:
    """Return all values of an ingestion mode by name."""
    values: dict[str, Value] = {
        "documents": float(mode.documents),
        "documents_per_second": mode.documents_per_second,
    }
    for operation, timing in (("put", mode.put), ("commit", mode.commit), ("search", mode.search)):
        for field, value in (EMPTY_MAPPING if timing is None else timing._asdict()).items():
            values[f"{operation}_{field}" + ("" if field in ("n", "seconds") else "_ms")] = float(value)
    values |= {"opening_seconds": mode.opening_seconds, "bytes_on_disk": mode.bytes_on_disk, **mode.measures}
    values |= {"judged_queries": float(mode.judged_queries), "neighbours": mode.neighbour_recall}
    values["moved"] = mode.changed_rankings
    values |= {f"whole, {read_back.when}": float(read_back.whole) for read_back in mode.read_back}
    values |= {f"promised, {read_back.when}": float(read_back.expected) for read_back in mode.read_back}
    values["verdict"] = _describe_stages([] if mode.broken is None else [mode.broken], mode.not_reproduced)
    if mode.broken is not None:
        values |= {"error": mode.broken.error, "shortest_prefix": mode.broken.prefix}
    return values


REPORTER = ResultReporter(
    build_report,
    {"csv": TableBuilder("one row per ingestion mode and value", build_value_table)},
    build_comparison_report,
)
