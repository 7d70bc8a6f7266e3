"""Report of an embedder study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from ragauge.embedder_study.charts import build_charts
from ragauge.embedder_study.csv_tables import build_long_table, build_wide_table
from ragauge.embedder_study.report_tables import (
    build_bits_table,
    build_corpus_size_table,
    build_cost_table,
    build_dimension_table,
    build_embedder_store_table,
    build_failed_embedder_table,
    build_failed_text_table,
    build_failure_count_table,
    build_measure_table,
    build_pair_table,
    build_perturbation_table,
    build_property_table,
    build_quality_table,
    build_robustness_table,
    build_store_table,
    build_trade_off_table,
)
from ragauge.embedder_study.report_text import (
    BITS_TEXT,
    FAILED_TEXTS_TEXT,
    STORES_TEXT,
    explain_conditions,
    explain_costs,
    explain_pairs,
    explain_quality,
    explain_robustness,
    list_sentences,
    summarise_embedders,
)
from ragauge.embedder_study.results import EmbedderStudy
from ragauge.embedder_study.selections import (
    REDUCTION_TITLES,
    distinct_tokenizers,
    pareto_frontier,
    select_equally_probed,
    store_names,
    trade_offs_by_bytes,
)
from ragauge.embedder_study.tokenizer_report import PIECES_TEXT, build_piece_tables, build_tokenizer_table
from ragauge.output.numbers import pluralise
from ragauge.output.report import (
    ALL_FORMATS,
    FILES_ONLY,
    Block,
    ChartDrawer,
    Charts,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
    select_charts,
)
from ragauge.output.tables import Table


def build_report(result: EmbedderStudy) -> Report:
    """Build the report of an embedder study."""
    subject = [
        result.dataset,
        pluralise(result.documents, "document"),
        pluralise(result.queries, "judged query", "judged queries"),
        f"convention {result.convention}",
        "no text cut" if result.context is None else f"texts cut after {result.context:,} characters",
    ]
    sections = _study_sections(result) if result.measures and result.embedders else []
    sections.append(_build_section("failures", "Not measured", [build_failed_embedder_table(result)], short=""))
    return Report(
        "embedders",
        "Embedders",
        summarise_embedders(result),
        [section for section in sections if section.blocks],
        subject,
        list_sentences(result) if result.embedders else [],
        notes=[
            *(f"{embedder.name}: {note}" for embedder in result.embedders for note in embedder.notes),
            *result.notes,
        ],
        provenance=result.provenance,
    )


def _build_section(
    section_id: str,
    title: str,
    tables: Sequence[Table],
    text: str = "",
    charts: ChartDrawer | None = None,
    *,
    short: str | None = None,
    formats: frozenset[str] = ALL_FORMATS,
) -> Section:
    """Build a section of the tables that have rows, with a text before them; it is empty without any table."""
    blocks: list[Block] = [table for table in tables if table.rows]
    if blocks and text:
        blocks.insert(0, Paragraph(text))
    if blocks and charts is not None:
        blocks.append(Charts(charts))
    return Section(section_id, title, blocks, title if short is None else short, formats)


def _study_sections(result: EmbedderStudy) -> list[Section]:
    draw_charts = cache(lambda: build_charts(result))  # drawn once for all sections
    charts = partial(select_charts, draw_charts)
    several_stores = len(store_names(result)) > 1
    tokenizers = distinct_tokenizers(result)
    return [
        _build_section(
            "quality", "Quality", [build_quality_table(result)], explain_quality(result), charts("measures", "recall")
        ),
        _build_section("tests", "Tests of all measures", [build_measure_table(result)], short="", formats=FILES_ONLY),
        _build_section("pairs", "Pairs of embedders", [build_pair_table(result)], explain_pairs(result), short="Pairs"),
        _build_section(
            "conditions",
            "Controlled variables",
            [build_property_table(result)],
            explain_conditions(result),
            short="Conditions",
        ),
        _build_section(
            "costs", "Costs", [build_cost_table(result)], explain_costs(result), charts("times", "milliseconds")
        ),
        _build_section("stores", "Stores", [build_store_table(result)] if several_stores else [], STORES_TEXT),
        _build_section(
            "store-results",
            "Embedders in each store",
            [build_embedder_store_table(result)] if several_stores else [],
            short="",
            formats=FILES_ONLY,
        ),
        *_dimension_sections(result, charts("dimensions")),
        _bytes_section(result, charts("bytes")),
        _build_section(
            "sizes",
            "Corpus size",
            [build_corpus_size_table(result)],
            f"Mean {result.measures[0]} in parts of the corpus that contain all relevant documents.",
            charts("sizes"),
            short="Corpus",
            formats=FILES_ONLY,
        ),
        _build_section(
            "robustness",
            "Perturbed queries",
            [build_robustness_table(result)],
            explain_robustness(result),
            charts("robustness"),
            short="Robustness",
        ),
        _build_section(
            "perturbations", "All perturbations", [build_perturbation_table(result)], short="", formats=FILES_ONLY
        ),
        _build_section("tokenizers", "Tokenizers", [build_tokenizer_table(tokenizers)]),
        _build_section(
            "probes",
            "Tokens of short texts",
            build_piece_tables(select_equally_probed(tokenizers)),
            PIECES_TEXT,
            short="",
            formats=FILES_ONLY,
        ),
        _build_section("bits", "Language models", [build_bits_table(result)], BITS_TEXT, charts("bits"), short="Bits"),
        _build_section(
            "failed-texts",
            "Texts without a vector",
            [build_failure_count_table(result)],
            FAILED_TEXTS_TEXT,
            short="Failures",
        ),
        _build_section(
            "failed-text-list", "List of these texts", [build_failed_text_table(result)], short="", formats=FILES_ONLY
        ),
    ]


def _dimension_sections(result: EmbedderStudy, charts: ChartDrawer) -> list[Section]:
    tables = [table for method in REDUCTION_TITLES if (table := build_dimension_table(result, method)).rows]
    other_tables = [replace(table, collapsed=True) for table in tables[1:]]
    text = f"Mean {result.measures[0]} of the same vectors with fewer dimensions, four bytes each."
    return [
        _build_section("dimensions", "Reduced dimensions", tables[:1], text, charts, short="Dimensions"),
        _build_section("other-reductions", "Other reductions", other_tables, short="", formats=FILES_ONLY),
    ]


def _bytes_section(result: EmbedderStudy, charts: ChartDrawer) -> Section:
    points = pareto_frontier(trade_offs_by_bytes(result))
    tables = [build_trade_off_table(result, points)] if len(points) > 1 else []
    text = "Pareto frontier of quality and vector size: all dimensions, fewer dimensions, or lower precision."
    return _build_section("bytes", "Vector size", tables, text, charts, short="Bytes", formats=FILES_ONLY)


REPORTER = ResultReporter(
    build_report,
    {
        "csv": TableBuilder("one row per embedder", build_wide_table),
        "long": TableBuilder("one row per value, dimension, corpus size and perturbation", build_long_table),
    },
)
