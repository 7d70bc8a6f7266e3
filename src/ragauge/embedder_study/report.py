"""TextReport of an embedder study, and its CSV."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ragauge.core.summaries import Mean
from ragauge.embedder_study import report_tables, report_text, tokenizer_report
from ragauge.embedder_study.charts import build_charts
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy
from ragauge.output.csv import render_csv_rows
from ragauge.output.numbers import format_exact, pluralise
from ragauge.output.report import ChartDrawer, ResultReporter, TableBuilder, select_charts
from ragauge.output.text_report import TextReport, TextSection, TextTable, table_from_csv, to_report

LATENCY_STATISTICS = ("mean", "p50", "p95", "p99")
LATENCY_STAGES = ("embed", "retrieve", "total")
FACT_FIELDS = ("kind", "description", "model", "trained", "dimension", "bytes_per_vector", "parameters", "memory_bytes")
VALUE_FIELDS = ("load_seconds", "train_seconds", "documents_per_second", "limit", "truncated", "bits_per_byte")
TOKENIZER_COUNTS = ("vocabulary", "used", "tokens")
TOKENIZER_RATES = ("used_share", "per_word", "per_character", "per_byte", "compression", "unknown_rate")


def render_csv(found: EmbedderStudy) -> str:
    """Render one CSV row per embedder, with all its values in columns."""
    stores = list(dict.fromkeys(shelf.store for one in found.entrants for shelf in one.shelves))
    rows = [_flat_row(found, one, stores) for one in found.entrants]
    header = list(dict.fromkeys(name for row in rows for name in row)) or ["embedder"]
    return render_csv_rows(header, ([row.get(name, "") for name in header] for row in rows))


def _flat_row(found: EmbedderStudy, one: EmbedderResult, stores: list[str]) -> dict[str, str]:
    row = {"embedder": one.name, **{name: _format_cell(getattr(one, name)) for name in (*FACT_FIELDS, *VALUE_FIELDS)}}
    for measure in found.measures:
        row |= _mean_cells(measure, one.means.get(measure))
        gap = one.gaps.get(measure)
        for field in ("difference", "low", "high", "p", "p_corrected"):
            row[f"{measure} vs {found.baseline} {field}"] = "" if gap is None else format_exact(getattr(gap, field))
    for store in stores:
        shelf = one.shelf(store)
        for stage in LATENCY_STAGES:
            latency = None if shelf is None else shelf.stages.get(stage)
            for kind in LATENCY_STATISTICS:
                row[f"{store} {stage}_{kind}_ms"] = "" if latency is None else format_exact(getattr(latency, kind))
        row[f"{store} build_seconds"] = "" if shelf is None else format_exact(shelf.build_seconds)
        row[f"{store} unreliable_times"] = "" if shelf is None else "; ".join(shelf.unreliable_times)
        row[f"{store} neighbours"] = "" if shelf is None else format_exact(shelf.neighbours)
        row[f"{store} index_used"] = "" if shelf is None else _format_cell(shelf.index_used)
        row |= _mean_cells(
            f"{store} {found.measures[0]}", None if shelf is None else shelf.means.get(found.measures[0])
        )
    tokens = one.tokenizer
    row["tokenizer"] = "" if tokens is None else tokens.tokenizer
    for name in (*TOKENIZER_COUNTS, *TOKENIZER_RATES):
        row[f"tokenizer {name}"] = "" if tokens is None else _format_cell(getattr(tokens, name))
    row["faulty_documents"], row["faulty_queries"] = (
        str(sum(n for what, n in one.faulty.items() if what.startswith(kind))) for kind in ("document", "query")
    )
    return row


def _mean_cells(name: str, mean: Mean | None) -> dict[str, str]:
    if mean is None:
        return dict.fromkeys((name, f"{name} low", f"{name} high", f"{name} n"), "")
    figures = {name: mean.value, f"{name} low": mean.low, f"{name} high": mean.high}
    return {**{field: format_exact(value) for field, value in figures.items()}, f"{name} n": str(mean.n)}


def _format_cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_exact(value) if isinstance(value, float) else "" if value is None else str(value)


LONG_CSV_COLUMNS = ("embedder", "table", "how", "at", "measure", "value", "low", "high", "n")


def render_long_csv(found: EmbedderStudy) -> str:
    """Render one CSV row per value.

    `table` is one of `quality`, `gap` (difference from the baseline), `store`, `dimension` (`how` is the method and
    precision, `at` the number of dimensions), `size` (`at` is the number of documents), `robustness` and `loss` (`how`
    is the perturbation, `at` its rate), `milliseconds` (`how` is store and stage) and `pair` (`how` is the differing
    option and the other embedder).
    """
    rows = [row for one in found.entrants for row in _long_rows(found, one)]
    for pair in found.pairs:
        gap = pair.gap
        how = f"{pair.differs}: {pair.other}"
        figures = [*map(format_exact, (gap.difference, gap.low, gap.high)), str(gap.n)]
        rows.append([pair.one, "pair", how, "", found.measures[0], *figures])
    return render_csv_rows(LONG_CSV_COLUMNS, rows)


def _long_rows(found: EmbedderStudy, one: EmbedderResult) -> Iterator[list[str]]:
    first = found.measures[0]
    for measure, mean in one.means.items():
        yield [one.name, "quality", "", "", measure, *_mean_values(mean)]
    for measure, gap in one.gaps.items():
        ends = [format_exact(value) for value in (gap.difference, gap.low, gap.high)]
        yield [one.name, "gap", found.baseline, "", measure, *ends, str(gap.n)]
    for shelf in one.shelves:
        for measure, mean in shelf.means.items():
            yield [one.name, "store", shelf.store, "", measure, *_mean_values(mean)]
        for stage, latency in shelf.stages.items():
            for kind in LATENCY_STATISTICS:
                value = format_exact(getattr(latency, kind))
                yield [one.name, "milliseconds", f"{shelf.store} {stage}", "", kind, value, "", "", str(latency.n)]
    for small in one.shrunk:
        for measure, mean in small.means.items():
            yield [
                one.name,
                "dimension",
                f"{small.how} {small.kind}",
                str(small.dimension),
                measure,
                *_mean_values(mean),
            ]
    for part in one.grown:
        for measure, mean in part.means.items():
            yield [one.name, "size", "", str(part.documents), measure, *_mean_values(mean)]
    for shaken in one.shaken:
        at = format_exact(shaken.rate)
        yield [one.name, "robustness", shaken.how, at, first, *_mean_values(shaken.mean)]
        ends = [format_exact(value) for value in (shaken.gap.difference, shaken.gap.low, shaken.gap.high)]
        yield [one.name, "loss", shaken.how, at, first, *ends, str(shaken.gap.n)]


def _mean_values(mean: Mean) -> list[str]:
    return [format_exact(mean.value), format_exact(mean.low), format_exact(mean.high), str(mean.n)]


def build_report(found: EmbedderStudy) -> TextReport:
    """Build the report of an embedder study."""
    about = [
        found.dataset,
        pluralise(found.documents, "document"),
        pluralise(found.queries, "judged query", "judged queries"),
        f"convention {found.convention}",
        "no text cut" if found.context is None else f"the first {found.context:,} characters of every text",
    ]
    charts = cache(lambda: build_charts(found))  # drawn once for all sections
    parts = [part for part in _sections(found, charts) if part.rows] if found.measures else []
    if found.failures:
        parts.append(TextSection("failures", "Not opened", "", "", [report_text.failed_embedder_table(found)]))
    title = "Embedders"
    return TextReport(
        "embedders",
        title,
        about,
        report_text.summarise_embedders(found),
        parts,
        report_text.further_sentences(found) if found.entrants else [],
        [*(f"{one.name}: {note}" for one in found.entrants for note in one.notes), *found.notes],
        found.circumstances,
    )


def _sections(found: EmbedderStudy, charts: ChartDrawer) -> Iterator[TextSection]:
    yield TextSection(
        "quality",
        "How good",
        "Quality",
        report_text.quality_note(found),
        [report_tables.quality_table(found)] if found.entrants else [],
        select_charts(charts, "measures", "recall"),
    )
    yield TextSection(
        "tests", "Every measure with its test", "", "", _non_empty(report_tables.measure_table(found)), long=True
    )
    alone = all(one.differs == report_tables.RANK_PAIR for one in found.pairs)
    title = "The best and the next best" if alone else "What one difference makes"
    yield TextSection(
        "pairs", title, "Pairs", report_text.pairs_note(found), _non_empty(report_tables.pair_table(found))
    )
    text = report_text.equal_conditions_text(found)
    yield TextSection(
        "equal", "What was held equal, and what was not", "Equal", text, [report_text.differences_table(found)]
    )
    yield TextSection(
        "costs",
        "What it costs",
        "Costs",
        report_text.costs_note(found),
        _non_empty(report_tables.cost_table(found)),
        select_charts(charts, "times", "milliseconds"),
    )
    if len(report_tables.store_names(found)) > 1:
        yield TextSection(
            "stores",
            "In the stores",
            "Stores",
            report_text.stores_note(found),
            _non_empty(report_tables.store_table(found)),
        )
        yield TextSection(
            "shelves",
            "Every embedder in every store",
            "",
            "",
            _non_empty(report_tables.embedder_store_table(found)),
            long=True,
        )
    yield from _curve_sections(found, charts)
    yield from _text_sections(found, charts)
    lack = report_text.failure_count_table(found)
    if lack is not None:
        text = "As a query such a text finds nothing and counts as a miss; as a document it cannot be found."
        yield TextSection("faults", "Texts without a vector", "Faults", text, [lack])
        yield TextSection(
            "faulty", "Which texts they are", "", "", _non_empty(report_text.failed_text_table(found)), long=True
        )


def _curve_sections(found: EmbedderStudy, charts: ChartDrawer) -> Iterator[TextSection]:
    """Yield the sections on dimensions, bytes and corpus size."""
    main = found.measures[0]
    tables = [
        one for how in report_tables.REDUCTION_TITLES if (one := report_tables.dimension_table(found, how)) is not None
    ]
    if tables:
        text = f"Mean {main} of the same vectors with fewer numbers, four bytes each."
        yield TextSection(
            "dimensions", "At equal dimension", "Dimension", text, tables[:1], select_charts(charts, "dimensions")
        )
        yield TextSection("cut", "At equal dimension in other ways", "", "", tables[1:], long=True)
    offers = report_tables.pareto_frontier(report_tables.trade_offs_by_bytes(found))
    if len(offers) > 1:
        text = "What no other vector is both as small and as good as: fewer numbers, fewer bits for each, or as it is."
        table = report_tables.trade_off_table(found, offers, "bytes")
        yield TextSection(
            "bytes", "Quality for bytes", "Bytes", text, [table], select_charts(charts, "bytes"), long=True
        )
    grown = report_tables.corpus_size_table(found)
    if grown is not None:
        text = f"Mean {main} where fewer documents are in the way: all relevant ones, and a part of the others."
        yield TextSection(
            "sizes", "As the corpus grows", "Corpus", text, [grown], select_charts(charts, "sizes"), long=True
        )


def _text_sections(found: EmbedderStudy, charts: ChartDrawer) -> Iterator[TextSection]:
    """Yield the sections on perturbed queries, tokenizers and language models."""
    shaken = report_text.robustness_table(found)
    if shaken is not None:
        text = report_text.robustness_note(found)
        yield TextSection(
            "robustness",
            "Queries written otherwise",
            "Robustness",
            text,
            [shaken],
            select_charts(charts, "robustness"),
        )
        title = "Every perturbation with its interval"
        yield TextSection("losses", title, "", "", _non_empty(report_text.perturbation_table(found)), long=True)
    tokens = report_text.distinct_tokenizers(found)
    if tokens:
        text = f"What they make of the documents, cut alike. {tokenizer_report.COLUMN_LEGEND}"
        yield TextSection("tokenizers", "Tokenizers", "Tokenizers", text, [tokenizer_report.tokenizer_table(tokens)])
        pieces = tokenizer_report.piece_tables(report_text.select_equally_probed(tokens))
        yield TextSection("probes", "What becomes of short texts", "", "", pieces, long=True)
    bits = report_text.bits_per_byte_table(found)
    if bits is not None:
        text = (
            "Of documents that nobody learned from; bytes, since tokens of different tokenizers are not the same thing."
        )
        yield TextSection("bits", "Language models", "Bits", text, [bits], select_charts(charts, "bits"))


def _non_empty(table: TextTable) -> list[TextTable]:
    return [table] if table.rows else []


REPORTER = ResultReporter(
    lambda result: to_report(build_report(result)),
    {
        "csv": TableBuilder("one row per embedder", lambda result: table_from_csv(render_csv(result))),
        "long": TableBuilder(
            "one row per value, dimension, corpus size and perturbation",
            lambda result: table_from_csv(render_long_csv(result)),
        ),
    },
)
