"""Reports of embedder studies: tables, sentences, charts, pages and files show the measured values."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table as RichTable
from scipy.stats import ttest_rel

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from tests.comparison.test_charts import vega_expressions

from command import command_in
from embedder_study_builder import (
    MEASURES,
    QUERIES,
    STORES,
    make_difference,
    make_embedder,
    make_empty_study,
    make_full_study,
    make_mean,
    make_tokenizer_study,
)
from hostile_text import HOSTILE, NAMES
from ragauge import report
from ragauge.cli.output import check_outputs, write_result
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.summaries import Mean
from ragauge.embedder_study.charts import build_charts
from ragauge.embedder_study.report import build_report
from ragauge.embedder_study.report_tables import (
    build_cost_table,
    build_dimension_table,
    build_property_table,
    build_quality_table,
    build_robustness_table,
)
from ragauge.embedder_study.report_text import (
    list_sentences,
    list_unequal_properties,
    summarise_embedders,
)
from ragauge.embedder_study.results import (
    EmbedderPair,
    EmbedderResult,
    EmbedderStudy,
    EmbeddingFailure,
    FailureCount,
    MeanDifference,
    PerturbationResult,
    upgrade_result,
)
from ragauge.embedder_study.scoring import compare_embedder_pairs, find_single_option_pairs
from ragauge.embedder_study.selections import (
    pareto_frontier,
    sort_embedders,
    sort_perturbations,
    trade_offs_by_bytes,
    trade_offs_by_latency,
)
from ragauge.output.chart_files import chart_specification
from ragauge.output.markdown import render_markdown
from ragauge.output.page import render_page
from ragauge.output.page_assets import load_vega_script
from ragauge.output.report import Paragraph, collect_charts
from ragauge.output.tables import Table
from ragauge.output.terminal import render_report
from ragauge.reports.registry import is_result_file, read_results, write_results
from written_results import format_results

CHARTS = {"measures", "recall", "times", "milliseconds", "dimensions", "bytes", "sizes", "robustness", "bits"}


def find_section(document, name):
    return next(section for section in document.sections if section.id == name)


def find_text(document, name):
    return next(block.text for block in find_section(document, name).blocks if isinstance(block, Paragraph))


def find_tables(document, name):
    return [block for block in find_section(document, name).blocks if isinstance(block, Table)]


def column_titles(table):
    return [column.title for column in table.columns]


def cells_by_row(table):
    """Return the cells of a table by row name and column title."""
    return {row[0]: dict(zip(column_titles(table)[1:], row[1:], strict=True)) for row in table.texts()}


@pytest.fixture(scope="module")
def study_report():
    return build_report(make_full_study())


@pytest.fixture(scope="module")
def charts():
    return build_charts(make_full_study())


@pytest.fixture(scope="module")
def hostile_report():
    return build_report(make_hostile_study())


# Tables


def test_quality_table_has_every_mean_and_difference():
    study = make_full_study()
    table = cells_by_row(build_quality_table(study))
    assert list(table) == [embedder.name for embedder in sort_embedders(study)]
    for embedder in study.embedders:
        row = table[embedder.name]
        for measure in MEASURES:
            assert row[measure].split()[0] == f"{embedder.means[measure].value:.4f}"
        assert row["ndcg@10"].endswith(f"[{embedder.means['ndcg@10'].low:.4f}, {embedder.means['ndcg@10'].high:.4f}]")
        expected = "baseline" if embedder.name == "bm25" else f"{embedder.differences['ndcg@10'].value:+.4f}"
        assert row["vs bm25"].split()[0] == expected
        assert row["n"] == str(QUERIES)


def test_summary_one_query_is_too_few_for_a_test():
    untested = MeanDifference(0.5, math.nan, math.nan, math.nan, math.nan, 1)
    untested_embedder = EmbedderResult(
        "ahead", "ahead", means={"ndcg@10": Mean(1.0, 1)}, differences={"ndcg@10": untested}
    )
    study = replace(
        make_empty_study(),
        embedders=[untested_embedder, EmbedderResult("bm25", "bm25", means={"ndcg@10": Mean(0.5, 1)})],
        measures=["ndcg@10"],
        baseline="bm25",
        queries=1,
        pairs=[EmbedderPair("ahead", "bm25", "", untested)],
    )
    assert "1.0000 over 1 query, then bm25 (0.5000); one query is too few" in summarise_embedders(study)
    assert "Compared with bm25: 1 query is too few for a test." in list_sentences(study)
    tested_embedder = replace(
        untested_embedder, name="some", differences={"ndcg@10": MeanDifference(0.5, 0.4, 0.6, 0.001, 0.002, 20)}
    )
    sentences = list_sentences(replace(study, embedders=[*study.embedders, tested_embedder]))
    assert "Compared with bm25: some is significantly better; ahead is not tested." in sentences


def test_quality_table_marks_only_best_value_of_column():
    table = build_quality_table(make_full_study())
    column_index = column_titles(table).index("recall@10")
    assert [row[0].value for row in table.cells() if row[column_index].best] == ["minilm-float32"]


def test_quality_table_stars_follow_corrected_p_value():
    table = cells_by_row(build_quality_table(make_full_study()))
    assert table["minilm"]["vs bm25"].endswith(" ***")
    assert table["wordllama"]["vs bm25"].endswith(" ns")


def test_cost_table_has_latency_of_first_store_and_size_of_embedder():
    study = make_full_study()
    row, embedder = cells_by_row(build_cost_table(study))["byt5-small"], study.find("byt5-small")
    total = embedder.stores[0].stages["total"]
    assert [row["p50 ms"], row["p95 ms"], row["p99 ms"]] == [f"{total.p50:.0f}", f"{total.p95:.0f}", f"{total.p99:.0f}"]
    costs = [row[name] for name in ("dimensions", "vector", "parameters", "memory")]
    assert costs == ["1,472", "5.89 kB", "217.0M", "1.4 GB"]
    assert cells_by_row(build_cost_table(study))["bm25"]["dimensions"] == "-"


def test_cost_caption_names_only_present_columns(study_report):
    assert "memory" in column_titles(find_tables(study_report, "costs")[0])
    study = make_full_study()
    without_memory = build_report(
        replace(study, embedders=[replace(embedder, memory_bytes=None) for embedder in study.embedders])
    )
    assert "memory" not in column_titles(find_tables(without_memory, "costs")[0])
    bm25, chance = (
        next(embedder for embedder in study.embedders if embedder.kind == kind) for kind in ("lexical", "chance")
    )
    chance_with_stores = replace(chance, stores=study.embedders[0].stores)
    bm25_report = build_report(replace(study, embedders=[bm25, chance_with_stores]))
    assert find_text(bm25_report, "costs") == f"Latency of single queries, store {STORES[0]}."
    legends = find_tables(study_report, "tokenizers")[0].legends
    assert [legend.partition(":")[0] for legend in legends] == ["used", "tokens/word", "unknown", "lossless"]


def test_dimension_table_has_dimensions_common_to_all_embedders():
    study = make_full_study()
    table = build_dimension_table(study, "pca")
    assert column_titles(table) == ["embedder", "dimensions", "full", "8 d", "16 d", "32 d", "64 d", "128 d", "256 d"]
    small = next(
        embedder for embedder in study.find("minilm").compressed if (embedder.method, embedder.dimension) == ("pca", 64)
    )
    assert cells_by_row(table)["minilm"]["64 d"] == f"{small.means['ndcg@10'].value:.4f}"
    assert cells_by_row(table)["byt5-small"]["dimensions"] == "1,472"
    assert cells_by_row(table)["byt5-small"]["full"] == "0.0310"


def test_pareto_frontier_matches_pairwise_oracle():
    for offers in (trade_offs_by_bytes(make_full_study()), trade_offs_by_latency(make_full_study())):
        undominated = [
            point
            for point in offers
            if not any(
                (other.cost <= point.cost and other.mean.value > point.mean.value)
                or (other.cost < point.cost and other.mean.value >= point.mean.value)
                for other in offers
            )
        ]
        # The frontier has only one of several equal points, so values are compared instead of points.
        expected = {(point.cost, point.mean.value) for point in undominated}
        assert {(point.cost, point.mean.value) for point in pareto_frontier(offers)} == expected
        assert len(expected) > 2


def test_sort_perturbations_sorts_by_total_loss():
    study = make_full_study()
    keys = sort_perturbations(study)
    perturbed = [perturbation for embedder in study.embedders for perturbation in embedder.perturbed]
    total_losses = [
        sum(perturbation.difference.value for perturbation in perturbed if perturbation.name == name)
        for name, _ in keys
    ]
    assert total_losses == sorted(total_losses)
    row = cells_by_row(build_robustness_table(study))["bm25"]
    assert row["confusables"] == f"{-0.41 * 1.3 * 0.6:+.4f} *"
    assert row["white space"] == "+0.0000"
    retained_shares = [1 - share * 0.6 for share in (1.0, 0.9, 0.8, 0.3, 0.5, 1.3, 0.2, 0.0)]
    assert row["retained"] == f"{sum(retained_shares) / 8:.1%}"


def test_property_table_and_conditions_list_differences(study_report):
    study = make_full_study()
    row = cells_by_row(build_property_table(study))
    assert [row[name]["trained"] for name in ("minilm", "lstm-bpe", "untrained", "bm25")] == [
        "elsewhere",
        "on this corpus",
        "untrained",
        "-",
    ]
    assert "dimensions (256 to 1,472)" in list_unequal_properties(study)
    assert "texts cut after 512 characters (14.2% of the documents are longer)" in find_text(study_report, "conditions")


def test_unequal_properties_of_equal_embedders_are_empty():
    study = replace(make_full_study(), embedders=[make_embedder("a", 0.4), make_embedder("b", 0.3)])
    assert list_unequal_properties(study) == []
    assert "Different:" not in find_text(build_report(study), "conditions")


def test_failed_texts_are_counted_and_listed_with_errors(study_report):
    assert [row[1:] for row in find_tables(study_report, "failed-texts")[0].rows] == [
        ["query", "failed", 1, "q17"],
        ["document", "nan", 1, "d4"],
        ["document", "zero", 2, "d9"],
    ]
    listed = find_tables(study_report, "failed-text-list")[0].rows
    assert ["byt5-small", "query", "q17", "failed", "RuntimeError: index out of range in self"] in listed
    assert find_tables(study_report, "failures")[0].rows[0] == ["canine", "canine needs an optional library"]


def test_bits_table_sorts_language_models_and_compressors_by_bits(study_report):
    rows = find_tables(study_report, "bits")[0].rows
    assert [row[1] for row in rows] == [2.2, 2.31, 2.61, 2.75, 2.94, 8.4]
    assert [row[0] for row in rows][1:3] == ["bz2 (compressor)", "lstm-bpe"]


def test_tokenizer_tables_list_each_tokenizer_once(study_report):
    assert [row[0] for row in find_tables(study_report, "tokenizers")[0].rows] == [
        "minilm",
        "bpe(vocabulary=4000)",
        "bytes",
    ]
    numbers = find_tables(study_report, "probes")[1]
    assert numbers.rows[0] == ["minilm", 7, 0, "3|.|14|15|9|␣20|26"]
    assert [row[0] for row in numbers.rows] == ["minilm", "bpe(vocabulary=4000)", "bytes"]


def test_probe_table_omits_tokenizer_without_probes():
    study = make_full_study()
    without_probes = replace(study.embedders[0], tokenizer=replace(study.embedders[0].tokenizer, probes=()))
    study_report = build_report(replace(study, embedders=[without_probes, *study.embedders[1:]]))
    assert [row[0] for row in find_tables(study_report, "probes")[0].rows] == ["bpe(vocabulary=4000)", "bytes"]


def test_store_tables_have_index_loss_and_failure_notes(study_report):
    table = cells_by_row(find_tables(study_report, "stores")[0])
    assert table[STORES[2]]["embedders"] == "6"
    assert table[STORES[2]]["max loss of ndcg@10"] == f"{0.465 - 0.99 * 0.465:.4f}"
    assert table[STORES[2]]["min recall"] == "98.1%"
    notes = [row[-1] for row in find_tables(study_report, "store-results")[0].rows if row[0] == "wordllama"]
    assert notes == ["", "", "pgvector is not installed"]


def test_dimension_table_and_trade_offs_omit_chance():
    study = make_full_study()
    chance = replace(make_embedder("chance", 0.004, dimension=16), kind="chance")
    with_chance = replace(study, embedders=[chance, *study.embedders[:3]])
    assert "256 d" in column_titles(build_dimension_table(with_chance, "pca"))
    assert "chance" not in {point.name for point in trade_offs_by_bytes(with_chance)} | {
        row[0] for row in build_dimension_table(with_chance, "pca").rows
    }


def test_report_one_store_has_no_store_table():
    study = make_full_study()
    embedders = [replace(embedder, stores=embedder.stores[:1]) for embedder in study.embedders]
    assert "stores" not in {embedder.id for embedder in build_report(replace(study, embedders=embedders)).sections}


# Sentences


def test_summary_names_best_embedder_with_significance_and_latency():
    assert summarise_embedders(make_full_study()) == (
        "minilm-float32 is best by ndcg@10: 0.4650 (95% CI [0.4350, 0.4980]) over 391 queries, no significant "
        "difference from minilm (0.4620), p = 0.930; median latency 12.2 ms per query."
    )


def test_summary_equal_embedders_are_called_equal():
    study = make_full_study()
    best = next(embedder for embedder in study.embedders if embedder.name == "minilm-float32")
    embedders = [best, replace(best, name="same"), *(embedder for embedder in study.embedders if embedder is not best)]
    assert summarise_embedders(replace(study, embedders=embedders)).startswith(
        "minilm-float32 and same are equal by ndcg@10: 0.4650"
    )


def test_summary_significant_difference_is_called_significant():
    study = make_full_study()
    significant = replace(study, pairs=[EmbedderPair("minilm-float32", "minilm", "", make_difference(0.003))])
    assert "significantly better than minilm (0.4620), p < 0.001" in summarise_embedders(significant)
    assert ", then minilm (0.4620);" in summarise_embedders(replace(study, pairs=[]))


def test_summary_baseline_as_second_best_uses_its_own_test():
    study = replace(make_full_study(), pairs=[])
    with_two = replace(
        study, embedders=[embedder for embedder in study.embedders if embedder.name in ("minilm", "bm25")]
    )
    assert "significantly better than bm25 (0.4100), p < 0.001" in summarise_embedders(with_two)


def test_sentences_group_embedders_by_baseline_and_chance():
    sentences = list_sentences(make_full_study())
    assert sentences[0].startswith(
        "Compared with bm25: minilm-float32 and minilm are significantly better; wordllama is not significantly "
    )
    assert "Not better than chance by ndcg@10 (95% CIs overlap): untrained and byt5-small." in sentences
    assert sentences[-1] == "byt5-small has no vector for 4 texts. Not measured: canine and gone."


def test_pareto_sentence_and_chart_name_same_embedders(charts):
    study = make_full_study()
    sentence = next(line for line in list_sentences(study) if line.startswith("Pareto frontier"))
    alt = charts["milliseconds"].alt
    names = re.findall(r"([\w-]+) \(", sentence.partition("latency: ")[2])
    assert alt.endswith(f"Not beaten in both: {', '.join(names[:-1])} and {names[-1]}.")


# Missing values


def test_report_nothing_measured_has_dashes_and_no_empty_tables():
    study_report = build_report(make_empty_study("a", "b"))
    assert study_report.summary == "No embedder was measured."
    assert [section_item.id for section_item in study_report.sections] == ["quality", "conditions"]
    assert set(find_tables(study_report, "quality")[0].texts()[0][1:]) <= {"-", "baseline"}
    assert "nan" not in render_markdown([study_report]).lower().replace("nano", "")


def test_report_without_embedders_has_only_failures():
    study_report = build_report(make_empty_study(failures={"x": "gone"}))
    assert [section_item.id for section_item in study_report.sections] == ["failures"]
    assert render_page([study_report], lambda: "")


def test_nan_mean_sorts_last_and_is_not_drawn():
    study = make_full_study()
    nan_embedder = EmbedderResult("lost", "lost", means={"ndcg@10": Mean(math.nan, 0)}, dimension=8)
    with_nan = replace(study, embedders=[nan_embedder, *study.embedders])
    assert sort_embedders(with_nan)[-1].name == "lost"
    assert cells_by_row(build_quality_table(with_nan))["lost"]["ndcg@10"] == "-"
    text = json.dumps(
        [panel.spec for drawing in build_charts(with_nan).values() for panel in drawing.panels], allow_nan=False
    )
    assert "NaN" not in text


def test_report_single_embedder_has_summary_and_page():
    study = make_full_study()
    single = replace(study, embedders=[study.embedders[0]], pairs=[], baseline="")
    assert "best by ndcg@10: 0.4620" in summarise_embedders(single)
    assert render_page([build_report(single)], lambda: "")


def test_quality_table_difference_rounded_to_zero_has_no_minus():
    study = make_full_study()
    rounded = replace(study.find("minilm"), differences={"ndcg@10": make_difference(-1e-9, p=0.9)})
    table = cells_by_row(build_quality_table(replace(study, embedders=[rounded, study.find("bm25")])))
    assert table["minilm"]["vs bm25"] == "+0.0000 ns"


def test_robustness_table_unchanged_perturbation_is_dash_in_last_column():
    study = make_full_study()
    unchanged = PerturbationResult("nothing", 1.0, 0.0, Mean(0.4, QUERIES), MeanDifference(*[math.nan] * 5, QUERIES))
    embedders = [
        replace(embedder, perturbed=[unchanged, *embedder.perturbed])
        for embedder in study.embedders
        if embedder.perturbed
    ]
    table = build_robustness_table(replace(study, embedders=embedders))
    assert column_titles(table)[-1] == "nothing"
    assert {row[-1] for row in table.texts()} == {"-"}


def test_robustness_table_has_a_column_for_each_rate():
    study = make_full_study()
    minilm = study.find("minilm")
    with_two_rates = replace(minilm, perturbed=[minilm.perturbed[0], minilm.perturbed[0]._replace(rate=0.5)])
    assert set(column_titles(build_robustness_table(replace(study, embedders=[with_two_rates])))[3:]) == {
        "keyboard 0.2",
        "keyboard 0.5",
    }


# Pairs


def test_find_single_option_pairs_by_hand():
    specs = {
        "a": "lm(kind=lstm)",
        "b": "lm(kind=lstm, tokenizer=bytes)",
        "c": "lm(kind=transformer, tokenizer=bpe(vocabulary=500))",
        "d": "lm(kind=transformer, tokenizer=bpe(vocabulary=8000))",
        "e": "encoder(model=x)",
        "f": "encoder(model=y)",
        "own": "<object at 0x7f>",
    }
    assert find_single_option_pairs(specs) == [("a", "b", "tokenizer"), ("c", "d", "tokenizer vocabulary")]


def test_compare_embedder_pairs_has_better_first_and_mean_difference():
    values = {"a": [0.1, 0.2, 0.3, 0.2], "b": [0.5, 0.6, 0.9, 0.4], "c": [0.5, 0.7, 0.9, 0.5]}
    pairs = compare_embedder_pairs({"a": "lm(kind=lstm)", "b": "lm(kind=lstm, tokenizer=bytes)"}, values, "ndcg@10")
    assert [(pair.better, pair.worse, pair.option) for pair in pairs] == [("c", "b", ""), ("b", "a", "tokenizer")]
    assert pairs[0].difference.value == pytest.approx(0.05)
    assert pairs[1].difference.value == pytest.approx(0.4)
    assert all(pair.difference.p <= pair.difference.p_corrected <= 1 for pair in pairs)
    assert compare_embedder_pairs({"a": "lm"}, {"a": [0.5, 0.1]}, "ndcg@10") == []


def test_compare_embedder_pairs_same_pair_twice_is_corrected_once():
    values = {"a": [0.1, 0.2, 0.3, 0.2], "b": [0.5, 0.6, 0.7, 0.9]}
    pairs = compare_embedder_pairs({"a": "lm(kind=lstm)", "b": "lm(kind=transformer)"}, values, "ndcg@10")
    assert [(pair.better, pair.worse, pair.option) for pair in pairs] == [("b", "a", ""), ("b", "a", "kind")]
    assert pairs[0].difference == pairs[1].difference
    p = pytest.approx(ttest_rel(values["b"], values["a"]).pvalue)
    assert pairs[0].difference.p_corrected == pairs[0].difference.p == p


def test_find_single_option_pairs_ignores_default_values():
    assert (
        find_single_option_pairs({"a": "lm", "b": "lm(kind=transformer)", "c": "lm(kind=transformer, dimension=128)"})
        == []
    )
    specs = {
        "a": "lm(tokenizer=bpe)",
        "b": "lm(tokenizer=bpe(vocabulary=8000))",
        "c": "lm(tokenizer=bpe(vocabulary=9))",
    }
    assert find_single_option_pairs(specs) == [("a", "c", "tokenizer vocabulary"), ("b", "c", "tokenizer vocabulary")]


def test_compare_embedder_pairs_lower_is_better():
    pairs = compare_embedder_pairs({}, {"a": [0.1, 0.2], "b": [0.5, 0.6]}, "stale", lower=True)
    assert [(pair.better, pair.worse) for pair in pairs] == [("a", "b")]


# Files


@pytest.mark.parametrize(
    "result", [make_full_study(), make_empty_study("a"), make_tokenizer_study()], ids=["lineup", "bare", "tokenizers"]
)
def test_json_result_round_trip(result, tmp_path):
    path = tmp_path / "x.json"
    write_results([result], [str(path)])
    assert is_result_file(path)
    (restored,) = read_results(path)
    assert format_results(restored, "json") == format_results(result, "json") == path.read_text()
    assert "NaN" not in path.read_text()


def test_csv_has_a_row_for_each_embedder_with_all_digits():
    study = make_full_study()
    rows = {row["embedder"]: row for row in csv.DictReader(io.StringIO(format_results(study, "csv")))}
    assert list(rows) == [embedder.name for embedder in study.embedders]
    row, embedder = rows["minilm"], study.find("minilm")
    assert float(row["ndcg@10"]) == embedder.means["ndcg@10"].value
    assert float(row["recall@5 high"]) == embedder.means["recall@5"].high
    assert float(row["ndcg@10 vs bm25 p_corrected"]) == embedder.differences["ndcg@10"].p_corrected
    assert float(row["pgvector(index=hnsw) retrieve_p99_ms"]) == embedder.stores[2].stages["retrieve"].p99
    assert float(row["tokenizer compression"]) == embedder.tokenizer.compression
    assert (row["trained"], row["dimension"]) == ("true", "384")
    assert rows["byt5-small"]["faulty_documents"] == "3"
    assert rows["bm25"]["dimension"] == rows["bm25"]["exact total_p50_ms"] == ""
    assert "nan" not in {cell.lower() for row in rows.values() for cell in row.values()}


def test_long_csv_has_every_value_once():
    study = make_full_study()
    rows = list(csv.DictReader(io.StringIO(format_results([study], "long"))))
    keys = [(row["embedder"], row["table"], row["how"], row["at"], row["measure"]) for row in rows]
    assert len(set(keys)) == len(keys)
    values = dict(zip(keys, (row["value"] for row in rows), strict=True))
    embedder = study.find("wordllama")
    compression = next(
        row_item for row_item in embedder.compressed if (row_item.method, row_item.dimension) == ("first", 32)
    )
    assert float(values["wordllama", "dimension", "first float32", "32", "mrr@15"]) == compression.means["mrr@15"].value
    assert float(values["wordllama", "loss", "keyboard", "0.2", "ndcg@10"]) == embedder.perturbed[0].difference.value
    assert (
        float(values["wordllama", "size", "", "1500", "recall@1"]) == embedder.corpus_sizes[1].means["recall@1"].value
    )
    assert float(values["lstm-bpe", "pair", "tokenizer: lstm-bytes", "", "ndcg@10"]) == 0.028


def test_tokenization_format_has_timed_queries_if_not_all_were_timed():
    study = replace(make_full_study(), convention="tokenization")
    assert "timed_queries" not in format_results([study], "tokenization")
    minilm = study.find("minilm")
    stages = {name: replace(stage, n=14) for name, stage in minilm.stores[0].stages.items()}
    partly_timed = replace(minilm, stores=[replace(minilm.stores[0], stages=stages), *minilm.stores[1:]])
    untimed = replace(minilm, name="untimed", stores=[])
    mixed = replace(study, embedders=[partly_timed, study.find("bm25"), untimed])
    rows = list(csv.DictReader(io.StringIO(format_results([mixed], "tokenization"))))
    counts = [(row["model"], row["num_queries"], row["timed_queries"]) for row in rows]
    assert counts == [("minilm", "391", "14"), ("bm25", "391", "391"), ("untimed", "391", "")]


def test_tokenization_format_requires_tokenization_convention():
    with pytest.raises(BadInput, match="but tokenization requires tokenization") as error:
        format_results([make_full_study()], "tokenization")
    assert error.value.hint.startswith("run `ragauge embedders` again with --format tokenization")


def test_tokenizer_format_applies_only_to_tokenizers():
    text = format_results([make_tokenizer_study()], "tokenizer")
    assert [line.split(",")[0] for line in text.splitlines()] == [
        "tokenizer",
        "bytes",
        "bpe(vocabulary=8000)",
        "minilm",
    ]
    with pytest.raises(KeyError):
        format_results([make_full_study()], "tokenizer")


def test_embedder_formats_apply_to_one_embedder_study():
    for form in ("tokenization", "long"):
        with pytest.raises(KeyError):
            format_results([make_tokenizer_study()], form)
    with pytest.raises(BadInput, match="this format contains one result"):
        format_results([make_full_study(), make_full_study()], "tokenization")


@pytest.mark.slow
def test_cli_report_embedder_study_in_every_format_and_with_runs(tmp_path):
    run = command_in(tmp_path, "report")
    write_results([replace(make_full_study(), convention="tokenization")], [str(tmp_path / "lineup.json")])
    assert "minilm-float32 is best by ndcg@10" in run("lineup.json").stdout
    run("lineup.json", "-o", "page.html", "-o", "page.md", "-o", "table.csv")
    assert "minilm-float32 is best by ndcg@10" in (tmp_path / "page.html").read_text()
    assert run("lineup.json", "--format", "tokenization").stdout.startswith("model,num_queries,mrr,avg_embedding_ms")
    (tmp_path / "q.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "a.run").write_text("q1 Q0 d1 1 0.9 a\n")
    run("q.txt", "a.run", "--with", "lineup.json", "-o", "run.html", "-o", "run.json")
    assert 'href="#embedders-quality"' in (tmp_path / "run.html").read_text()
    schemas = [result["schema"] for result in json.loads((tmp_path / "run.json").read_text())]
    assert schemas == ["ragauge-report/3", "ragauge-embedders/2"]


def test_terminal_80_columns_names_omitted_columns(study_report):
    pieces, omitted = render_report(study_report, 80)
    assert {"recall@10", "p99 ms", "white space"} <= set(omitted)
    assert len(pieces) < 60
    assert render_report(study_report, 400)[1] == []
    console = Console(width=200)
    assert all(console.measure(piece).maximum <= 80 for piece in pieces if isinstance(piece, RichTable))


def test_write_result_pipe_wraps_prose_but_not_tables(capsys):
    write_result([make_full_study()], [], as_json=False, as_csv=False)
    lines = capsys.readouterr().out.splitlines()
    prose = [line for line in lines if "  " not in line]
    assert max(map(len, prose)) <= 80
    assert max(map(len, lines)) > 80
    assert any(line.startswith("minilm-float32 is best by ndcg@10") for line in prose)


def test_cli_report_tokenization_hint_suggests_running_again(tmp_path):
    write_results([make_full_study()], [str(tmp_path / "lineup.json")])
    done = command_in(tmp_path, "report")("lineup.json", "--format", "tokenization", code=2)
    assert "--convention" not in done.stderr
    assert "run `ragauge embedders` again with --format tokenization" in done.stderr


def test_cli_report_format_and_file_ending_mismatch_raises_error(tmp_path):
    run = command_in(tmp_path, "report")
    write_results([make_full_study()], [str(tmp_path / "lineup.json")])
    done = run("lineup.json", "-o", "page.html", "--format", "long", code=2)
    assert "page.html: the ending .html is not that of the format long" in done.stderr
    assert "use `-o page.csv`, or remove --format" in done.stderr
    assert not (tmp_path / "page.html").exists()
    run("lineup.json", "-o", "page.txt", "--format", "long")
    assert (tmp_path / "page.txt").read_text().startswith("embedder,table,")


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (lambda text: text[:2000], "lineup.json:"),
        (lambda text: text[2000:], "or it is a corrupt result: the JSON cannot be read ("),
        (
            lambda text: text.replace("ragauge-embedders/2", "ragauge-others/7"),
            "`ragauge-others/7` is not a known result",
        ),
    ],
)
def test_cli_report_corrupt_result_raises_error(tmp_path, corrupt, message):
    file = tmp_path / "lineup.json"
    write_results([make_full_study()], [str(file)])
    file.write_text(corrupt(file.read_text()))
    done = command_in(tmp_path, "report")("lineup.json", code=2)
    assert message in done.stderr


def test_csv_names_with_control_characters_round_trip():
    study = make_empty_study("a\x1b[31mb", "tab\tand, comma")
    text = format_results(study, "csv")
    assert [row[0] for row in csv.reader(io.StringIO(text))] == ["embedder", "a\x1b[31mb", "tab\tand, comma"]
    long_text = format_results([replace(make_full_study(), embedders=[make_embedder("a\x9bb", 0.4)], pairs=[])], "long")
    assert "a\x9bb,quality," in long_text


def test_check_outputs_format_name_applies_to_one_file():
    check_outputs(EmbedderStudy, ["x.csv"], as_json=False, as_csv=False, format_name="long")
    check_outputs(EmbedderStudy, [], as_json=False, as_csv=False, format_name="long")
    with pytest.raises(BadInput, match="--format applies to one file"):
        check_outputs(EmbedderStudy, ["x.csv", "y.csv"], as_json=False, as_csv=False, format_name="long")
    with pytest.raises(UnknownName, match="unknown output format `lang`"):
        check_outputs(EmbedderStudy, [], as_json=False, as_csv=False, format_name="lang")
    with pytest.raises(BadInput, match="--format"):
        check_outputs(EmbedderStudy, [], as_json=True, as_csv=False, format_name="long")


def test_write_result_format_without_file_prints_it(capsys):
    write_result([make_full_study()], [], as_json=False, as_csv=False, format_name="long")
    assert capsys.readouterr().out.startswith("embedder,table,how,at,measure,value,low,high,n\nminilm,quality,")


# Charts


def test_build_charts_draws_charts_only_with_enough_data(charts):
    assert set(charts) == CHARTS
    assert build_charts(make_empty_study("a", "b")) == {}


@pytest.mark.slow
def test_charts_are_valid_vega_lite_without_warnings(capfd, charts):
    import altair
    import vl_convert

    for drawing in charts.values():
        for panel in drawing.panels:
            assert altair.LayerChart.from_dict(panel.spec, validate=True)
        for spec in [*({**panel.spec, "width": 300} for panel in drawing.panels), chart_specification(drawing)]:
            assert vl_convert.vegalite_to_vega(spec, show_warnings=True)["marks"]
    assert "WARN" not in "".join(capfd.readouterr())


def test_charts_use_one_colour_scale_for_embedders(charts):
    scales = {
        json.dumps(layer["encoding"]["color"]["scale"])
        for drawing in charts.values()
        for panel in drawing.panels
        for layer in panel.spec["layer"]
        if layer["encoding"].get("color", {}).get("field") == "system"
    }
    assert len(scales) == 1


def test_charts_have_alt_texts_and_captions(charts):
    for name, drawing in charts.items():
        assert "minilm" in drawing.alt or name == "bits"
        assert drawing.alt.endswith(".")
        assert drawing.caption.endswith(".")


def make_hostile_study(names=(*HOSTILE, *NAMES, r"\textbf{x}_$", "x" * 300)):
    """Build a study in which every text field has hostile text."""
    text = HOSTILE[0]
    embedders = [
        make_embedder(
            name, 0.4 - 0.01 * i, description=text, failed_texts=[EmbeddingFailure(text, "query", "failed", text)],
            failure_counts=[FailureCount("query", "failed", 1)], notes=[text],
        )
        for i, name in enumerate(names)
    ]  # fmt: skip
    study = make_full_study()
    pair = [EmbedderPair(names[0], names[1], text, make_difference(0.1))]
    return replace(
        study,
        dataset=text,
        embedders=embedders,
        baseline=names[0],
        failures={text: text},
        pairs=pair,
    )


def test_charts_hostile_names_are_in_no_vega_expression(hostile_report):
    import vl_convert

    for kind, drawing in collect_charts([hostile_report]).items():
        expression_text = "\n".join(vega_expressions(vl_convert.vegalite_to_vega(chart_specification(drawing))))
        for name in HOSTILE:
            assert name not in expression_text, kind
            assert json.dumps(name)[1:-1] not in expression_text, kind


def test_markdown_terminal_and_csv_escape_hostile_names(hostile_report):
    study = make_hostile_study()
    text = render_markdown([hostile_report])
    assert "<script>window.__x" not in text
    assert "<img src=x" not in text
    assert not any("\x07" in str(embedder) for embedder in render_report(hostile_report, 80)[0])
    rows = list(csv.DictReader(io.StringIO(format_results(study, "csv"))))
    assert [row["embedder"] for row in rows] == [embedder.name for embedder in study.embedders]


# HTML page


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    report(make_full_study(), path)
    return path


def test_page_draws_charts_in_light_and_dark(open_page, file, charts):
    for size, scheme in (((1280, 900), "light"), ((390, 800), "dark")):
        page = open_page(file, charts=True, size=size, scheme=scheme)
        assert page.locator("[data-chart] svg").count() == sum(len(chart.panels) for chart in charts.values())
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert "could not be drawn" not in page.inner_text("main")


def test_page_navigation_fits_and_links_to_sections(open_page, file):
    page = open_page(file, charts=True, size=(1280, 900))
    assert page.evaluate("(nav => nav.scrollWidth <= nav.clientWidth)(document.querySelector('nav'))")
    links = page.eval_on_selector_all("nav a", "all => all.map(one => one.getAttribute('href'))")
    assert all(page.locator(link).count() == 1 for link in links)


def test_page_sorts_numbers_by_value(open_page, file):
    page = open_page(file, charts=True)
    column_index = column_titles(build_cost_table(make_full_study())).index("parameters")
    page.click(f"#embedders-costs button[data-column='{column_index}']")
    column = f"#embedders-costs tbody tr td:nth-child({column_index + 1})"
    cells = page.eval_on_selector_all(column, "all => all.map(one => one.textContent)")
    assert [cell for cell in cells if cell != "-"] == ["217.0M", "32.0M", "22.7M", "22.7M", "2.3M", "2.3M", "2.3M"]


def test_page_hostile_names_are_escaped(open_page, hostile_report, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_page([hostile_report], load_vega_script))
    assert "<script>window.__x" not in path.read_text()
    page = open_page(path, charts=True)
    assert page.evaluate("window.__x") is None
    assert page.locator("main img").count() == 0


def test_quality_table_means_without_intervals_have_none():
    study = make_full_study()
    without_intervals = [
        replace(
            embedder, means={name: Mean(mean_value.value, mean_value.n) for name, mean_value in embedder.means.items()}
        )
        for embedder in study.embedders
    ]
    study_report = build_report(replace(study, embedders=without_intervals))
    assert cells_by_row(find_tables(study_report, "quality")[0])["minilm"]["ndcg@10"] == "0.4620"
    assert "best by ndcg@10: 0.4650 over" in study_report.summary
    assert make_mean(0.5).n == QUERIES


@pytest.mark.slow
def test_cli_report_study_file_tokenization_equals_folder():
    folders = Path(__file__).parents[1] / "goldens" / "folders"
    report = command_in(folders, "report", "--format", "tokenization")
    assert report("study/lineup.json").stdout == report("study").stdout != ""


def test_quality_text_states_truncation_and_chance():
    study = make_full_study()
    text = find_text(build_report(study), "quality")
    assert "Texts are cut after 512 characters, which shortens 14.2% of the documents; `ragauge run` reads" in text
    assert "(`--context 0` cuts none)" in text
    assert "chance ranks by random vectors" in find_tables(build_report(study), "quality")[0].note
    without_chance = [embedder for embedder in study.embedders if embedder.kind != "chance"]
    untruncated = build_report(replace(study, context=None, truncated=0.0, embedders=without_chance))
    assert "cut after" not in find_text(untruncated, "quality")
    assert find_tables(untruncated, "quality")[0].note == ""


def test_read_results_schema_version_1_is_upgraded():
    goldens = Path(__file__).parents[1] / "goldens"
    (study,) = read_results(goldens / "folders/study/lineup.json")
    old = json.loads((goldens / "folders/study/lineup.json").read_text())
    assert old["schema"] == "ragauge-embedders/1"
    assert [embedder.name for embedder in study.embedders] == [embedder["name"] for embedder in old["entrants"]]
    assert study.embedders[0].differences["ndcg@10"].value == old["entrants"][0]["gaps"]["ndcg@10"]["difference"]
    assert study.embedders[0].perturbed[0].name == old["entrants"][0]["shaken"][0]["how"]
    assert study.find("bm25").kind == "lexical"
    assert (study.pairs[0].better, study.pairs[0].option) == (old["pairs"][0]["one"], "")
    (tokenizers,) = read_results(goldens / "outputs/tokenizers-known.json")
    old = json.loads((goldens / "outputs/tokenizers-known.json").read_text())
    assert old["schema"] == "ragauge-tokenizers/1"
    assert [embedder.tokens for embedder in tokenizers.tokenizers] == [embedder["tokens"] for embedder in old["rows"]]
    assert tokenizers.tokenizers[0].longest[0].tokens == old["rows"][0]["longest"][0]["pieces"]


def test_upgrade_result_keeps_keys_and_converts_failure_counts():
    means = {"rows": {"value": 0.5, "n": 1}}
    old = {"name": "gap", "kind": "embedder", "shelves": [], "faulty": {"query failed": 2}, "means": means}
    assert upgrade_result({"failures": {"cut": "gone"}, "entrants": [old]}) == {
        "failures": {"cut": "gone"},
        "embedders": [
            {
                "name": "gap",
                "kind": "embedder",
                "stores": [],
                "means": means,
                "failure_counts": [{"kind": "query", "reason": "failed", "n": 2}],
            }
        ],
    }
