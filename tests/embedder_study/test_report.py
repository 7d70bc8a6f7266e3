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

from tests.comparison.test_charts import expressions

from command import command_in
from embedder_study_builder import MEASURES, QUERIES, STORES, bare, entrant, gap, mean, sheet, whole
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
from ragauge.reports.layouts import tokenization
from ragauge.reports.registry import is_result_file, read_results, write_results
from ragauge.runs.input_kinds import detect_layout
from written_results import format_results

CHARTS = {"measures", "recall", "times", "milliseconds", "dimensions", "bytes", "sizes", "robustness", "bits"}


def section(told, name):
    return next(one for one in told.sections if one.id == name)


def text_of(told, name):
    return next(block.text for block in section(told, name).blocks if isinstance(block, Paragraph))


def tables(told, name):
    return [block for block in section(told, name).blocks if isinstance(block, Table)]


def titles(table):
    return [column.title for column in table.columns]


def columns(table):
    """Return the cells of a table by row name and column title."""
    return {row[0]: dict(zip(titles(table)[1:], row[1:], strict=True)) for row in table.texts()}


@pytest.fixture(scope="module")
def told():
    return build_report(whole())


@pytest.fixture(scope="module")
def drawings():
    return build_charts(whole())


@pytest.fixture(scope="module")
def evil():
    return build_report(hostile())


# Tables


def test_quality_table_has_every_mean_and_difference():
    found = whole()
    table = columns(build_quality_table(found))
    assert list(table) == [one.name for one in sort_embedders(found)]
    for one in found.embedders:
        row = table[one.name]
        for measure in MEASURES:
            assert row[measure].split()[0] == f"{one.means[measure].value:.4f}"
        assert row["ndcg@10"].endswith(f"[{one.means['ndcg@10'].low:.4f}, {one.means['ndcg@10'].high:.4f}]")
        told = "baseline" if one.name == "bm25" else f"{one.differences['ndcg@10'].value:+.4f}"
        assert row["vs bm25"].split()[0] == told
        assert row["n"] == str(QUERIES)


def test_summary_one_query_is_too_few_for_a_test():
    unknown = MeanDifference(0.5, math.nan, math.nan, math.nan, math.nan, 1)
    ahead = EmbedderResult("ahead", "ahead", means={"ndcg@10": Mean(1.0, 1)}, differences={"ndcg@10": unknown})
    found = replace(
        bare(),
        embedders=[ahead, EmbedderResult("bm25", "bm25", means={"ndcg@10": Mean(0.5, 1)})],
        measures=["ndcg@10"],
        baseline="bm25",
        queries=1,
        pairs=[EmbedderPair("ahead", "bm25", "", unknown)],
    )
    assert "1.0000 over 1 query, then bm25 (0.5000); one query is too few" in summarise_embedders(found)
    assert "Compared with bm25: 1 query is too few for a test." in list_sentences(found)
    some = replace(ahead, name="some", differences={"ndcg@10": MeanDifference(0.5, 0.4, 0.6, 0.001, 0.002, 20)})
    told = list_sentences(replace(found, embedders=[*found.embedders, some]))
    assert "Compared with bm25: some is significantly better; ahead is not tested." in told


def test_quality_table_marks_only_best_value_of_column():
    table = build_quality_table(whole())
    at = titles(table).index("recall@10")
    assert [row[0].value for row in table.cells() if row[at].best] == ["minilm-float32"]


def test_quality_table_stars_follow_corrected_p_value():
    table = columns(build_quality_table(whole()))
    assert table["minilm"]["vs bm25"].endswith(" ***")
    assert table["wordllama"]["vs bm25"].endswith(" ns")


def test_cost_table_has_latency_of_first_store_and_size_of_embedder():
    found = whole()
    row, one = columns(build_cost_table(found))["byt5-small"], found.find("byt5-small")
    total = one.stores[0].stages["total"]
    assert [row["p50 ms"], row["p95 ms"], row["p99 ms"]] == [f"{total.p50:.0f}", f"{total.p95:.0f}", f"{total.p99:.0f}"]
    costs = [row[name] for name in ("dimensions", "vector", "parameters", "memory")]
    assert costs == ["1,472", "5.89 kB", "217.0M", "1.4 GB"]
    assert columns(build_cost_table(found))["bm25"]["dimensions"] == "-"


def test_cost_caption_names_only_present_columns(told):
    assert "memory" in titles(tables(told, "costs")[0])
    found = whole()
    light = build_report(replace(found, embedders=[replace(one, memory_bytes=None) for one in found.embedders]))
    assert "memory" not in titles(tables(light, "costs")[0])
    bm25, chance = (next(one for one in found.embedders if one.kind == kind) for kind in ("lexical", "chance"))
    filled = replace(chance, stores=found.embedders[0].stores)
    alone = build_report(replace(found, embedders=[bm25, filled]))
    assert text_of(alone, "costs") == f"Latency of single queries, store {STORES[0]}."
    legends = tables(told, "tokenizers")[0].legends
    assert [legend.partition(":")[0] for legend in legends] == ["used", "tokens/word", "unknown", "lossless"]


def test_dimension_table_has_dimensions_common_to_all_embedders():
    found = whole()
    table = build_dimension_table(found, "pca")
    assert titles(table) == ["embedder", "dimensions", "full", "8 d", "16 d", "32 d", "64 d", "128 d", "256 d"]
    small = next(one for one in found.find("minilm").compressed if (one.method, one.dimension) == ("pca", 64))
    assert columns(table)["minilm"]["64 d"] == f"{small.means['ndcg@10'].value:.4f}"
    assert columns(table)["byt5-small"]["dimensions"] == "1,472"
    assert columns(table)["byt5-small"]["full"] == "0.0310"


def test_pareto_frontier_matches_pairwise_oracle():
    for offers in (trade_offs_by_bytes(whole()), trade_offs_by_latency(whole())):
        slow = [
            one
            for one in offers
            if not any(
                (other.cost <= one.cost and other.mean.value > one.mean.value)
                or (other.cost < one.cost and other.mean.value >= one.mean.value)
                for other in offers
            )
        ]
        # The frontier has only one of several equal points, so values are compared instead of points.
        prices = {(one.cost, one.mean.value) for one in slow}
        assert {(one.cost, one.mean.value) for one in pareto_frontier(offers)} == prices
        assert len(prices) > 2


def test_sort_perturbations_sorts_by_total_loss():
    found = whole()
    keys = sort_perturbations(found)
    perturbed = [it for one in found.embedders for it in one.perturbed]
    sums = [sum(it.difference.value for it in perturbed if it.name == name) for name, _ in keys]
    assert sums == sorted(sums)
    row = columns(build_robustness_table(found))["bm25"]
    assert row["confusables"] == f"{-0.41 * 1.3 * 0.6:+.4f} *"
    assert row["white space"] == "+0.0000"
    kept = [1 - share * 0.6 for share in (1.0, 0.9, 0.8, 0.3, 0.5, 1.3, 0.2, 0.0)]
    assert row["retained"] == f"{sum(kept) / 8:.1%}"


def test_property_table_and_conditions_list_differences(told):
    found = whole()
    row = columns(build_property_table(found))
    assert [row[name]["trained"] for name in ("minilm", "lstm-bpe", "untrained", "bm25")] == [
        "elsewhere",
        "on this corpus",
        "untrained",
        "-",
    ]
    assert "dimensions (256 to 1,472)" in list_unequal_properties(found)
    assert "texts cut after 512 characters (14.2% of the documents are longer)" in text_of(told, "conditions")


def test_unequal_properties_of_equal_embedders_are_empty():
    found = replace(whole(), embedders=[entrant("a", 0.4), entrant("b", 0.3)])
    assert list_unequal_properties(found) == []
    assert "Different:" not in text_of(build_report(found), "conditions")


def test_failed_texts_are_counted_and_listed_with_errors(told):
    assert [row[1:] for row in tables(told, "failed-texts")[0].rows] == [
        ["query", "failed", 1, "q17"],
        ["document", "nan", 1, "d4"],
        ["document", "zero", 2, "d9"],
    ]
    listed = tables(told, "failed-text-list")[0].rows
    assert ["byt5-small", "query", "q17", "failed", "RuntimeError: index out of range in self"] in listed
    assert tables(told, "failures")[0].rows[0] == ["canine", "canine needs an optional library"]


def test_bits_table_sorts_language_models_and_compressors_by_bits(told):
    rows = tables(told, "bits")[0].rows
    assert [row[1] for row in rows] == [2.2, 2.31, 2.61, 2.75, 2.94, 8.4]
    assert [row[0] for row in rows][1:3] == ["bz2 (compressor)", "lstm-bpe"]


def test_tokenizer_tables_list_each_tokenizer_once(told):
    assert [row[0] for row in tables(told, "tokenizers")[0].rows] == ["minilm", "bpe(vocabulary=4000)", "bytes"]
    numbers = tables(told, "probes")[1]
    assert numbers.rows[0] == ["minilm", 7, 0, "3|.|14|15|9|␣20|26"]
    assert [row[0] for row in numbers.rows] == ["minilm", "bpe(vocabulary=4000)", "bytes"]


def test_probe_table_omits_tokenizer_without_probes():
    found = whole()
    silent = replace(found.embedders[0], tokenizer=replace(found.embedders[0].tokenizer, probes=()))
    told = build_report(replace(found, embedders=[silent, *found.embedders[1:]]))
    assert [row[0] for row in tables(told, "probes")[0].rows] == ["bpe(vocabulary=4000)", "bytes"]


def test_store_tables_have_index_loss_and_failure_notes(told):
    table = columns(tables(told, "stores")[0])
    assert table[STORES[2]]["embedders"] == "6"
    assert table[STORES[2]]["max loss of ndcg@10"] == f"{0.465 - 0.99 * 0.465:.4f}"
    assert table[STORES[2]]["min recall"] == "98.1%"
    notes = [row[-1] for row in tables(told, "store-results")[0].rows if row[0] == "wordllama"]
    assert notes == ["", "", "pgvector is not installed"]


def test_dimension_table_and_trade_offs_omit_chance():
    found = whole()
    random = replace(entrant("chance", 0.004, dimension=16), kind="chance")
    with_chance = replace(found, embedders=[random, *found.embedders[:3]])
    assert "256 d" in titles(build_dimension_table(with_chance, "pca"))
    assert "chance" not in {one.name for one in trade_offs_by_bytes(with_chance)} | {
        row[0] for row in build_dimension_table(with_chance, "pca").rows
    }


def test_report_one_store_has_no_store_table():
    found = whole()
    alone = [replace(one, stores=one.stores[:1]) for one in found.embedders]
    assert "stores" not in {one.id for one in build_report(replace(found, embedders=alone)).sections}


# Sentences


def test_summary_names_best_embedder_with_significance_and_latency():
    assert summarise_embedders(whole()) == (
        "minilm-float32 is best by ndcg@10: 0.4650 (95% CI [0.4350, 0.4980]) over 391 queries, no significant "
        "difference from minilm (0.4620), p = 0.930; median latency 12.2 ms per query."
    )


def test_summary_equal_embedders_are_called_equal():
    found = whole()
    best = next(one for one in found.embedders if one.name == "minilm-float32")
    twins = [best, replace(best, name="same"), *(one for one in found.embedders if one is not best)]
    assert summarise_embedders(replace(found, embedders=twins)).startswith(
        "minilm-float32 and same are equal by ndcg@10: 0.4650"
    )


def test_summary_significant_difference_is_called_significant():
    found = whole()
    sure = replace(found, pairs=[EmbedderPair("minilm-float32", "minilm", "", gap(0.003))])
    assert "significantly better than minilm (0.4620), p < 0.001" in summarise_embedders(sure)
    assert ", then minilm (0.4620);" in summarise_embedders(replace(found, pairs=[]))


def test_summary_baseline_as_second_best_uses_its_own_test():
    found = replace(whole(), pairs=[])
    two = replace(found, embedders=[one for one in found.embedders if one.name in ("minilm", "bm25")])
    assert "significantly better than bm25 (0.4100), p < 0.001" in summarise_embedders(two)


def test_sentences_group_embedders_by_baseline_and_chance():
    told = list_sentences(whole())
    assert told[0].startswith(
        "Compared with bm25: minilm-float32 and minilm are significantly better; wordllama is not significantly "
    )
    assert "Not better than chance by ndcg@10 (95% CIs overlap): untrained and byt5-small." in told
    assert told[-1] == "byt5-small has no vector for 4 texts. Not measured: canine and gone."


def test_pareto_sentence_and_chart_name_same_embedders(drawings):
    found = whole()
    said = next(one for one in list_sentences(found) if one.startswith("Pareto frontier"))
    alt = drawings["milliseconds"].alt
    names = re.findall(r"([\w-]+) \(", said.partition("latency: ")[2])
    assert alt.endswith(f"Not beaten in both: {', '.join(names[:-1])} and {names[-1]}.")


# Missing values


def test_report_nothing_measured_has_dashes_and_no_empty_tables():
    told = build_report(bare("a", "b"))
    assert told.summary == "No embedder was measured."
    assert [one.id for one in told.sections] == ["quality", "conditions"]
    assert set(tables(told, "quality")[0].texts()[0][1:]) <= {"-", "baseline"}
    assert "nan" not in render_markdown([told]).lower().replace("nano", "")


def test_report_without_embedders_has_only_failures():
    told = build_report(bare(failures={"x": "gone"}))
    assert [one.id for one in told.sections] == ["failures"]
    assert render_page([told], lambda: "")


def test_nan_mean_sorts_last_and_is_not_drawn():
    found = whole()
    lost = EmbedderResult("lost", "lost", means={"ndcg@10": Mean(math.nan, 0)}, dimension=8)
    more_ = replace(found, embedders=[lost, *found.embedders])
    assert sort_embedders(more_)[-1].name == "lost"
    assert columns(build_quality_table(more_))["lost"]["ndcg@10"] == "-"
    text = json.dumps([one.spec for drawing in build_charts(more_).values() for one in drawing.panels], allow_nan=False)
    assert "NaN" not in text


def test_report_single_embedder_has_summary_and_page():
    found = whole()
    alone = replace(found, embedders=[found.embedders[0]], pairs=[], baseline="")
    assert "best by ndcg@10: 0.4620" in summarise_embedders(alone)
    assert render_page([build_report(alone)], lambda: "")


def test_quality_table_difference_rounded_to_zero_has_no_minus():
    found = whole()
    one = replace(found.find("minilm"), differences={"ndcg@10": gap(-1e-9, p=0.9)})
    table = columns(build_quality_table(replace(found, embedders=[one, found.find("bm25")])))
    assert table["minilm"]["vs bm25"] == "+0.0000 ns"


def test_robustness_table_unchanged_perturbation_is_dash_in_last_column():
    found = whole()
    nothing = PerturbationResult("nothing", 1.0, 0.0, Mean(0.4, QUERIES), MeanDifference(*[math.nan] * 5, QUERIES))
    still = [replace(one, perturbed=[nothing, *one.perturbed]) for one in found.embedders if one.perturbed]
    table = build_robustness_table(replace(found, embedders=still))
    assert titles(table)[-1] == "nothing"
    assert {row[-1] for row in table.texts()} == {"-"}


def test_robustness_table_has_a_column_for_each_rate():
    found = whole()
    one = found.find("minilm")
    twice = replace(one, perturbed=[one.perturbed[0], one.perturbed[0]._replace(rate=0.5)])
    assert set(titles(build_robustness_table(replace(found, embedders=[twice])))[3:]) == {
        "keyboard 0.2",
        "keyboard 0.5",
    }


# Pairs


def test_find_single_option_pairs_by_hand():
    described = {
        "a": "lm(kind=lstm)",
        "b": "lm(kind=lstm, tokenizer=bytes)",
        "c": "lm(kind=transformer, tokenizer=bpe(vocabulary=500))",
        "d": "lm(kind=transformer, tokenizer=bpe(vocabulary=8000))",
        "e": "encoder(model=x)",
        "f": "encoder(model=y)",
        "own": "<object at 0x7f>",
    }
    assert find_single_option_pairs(described) == [("a", "b", "tokenizer"), ("c", "d", "tokenizer vocabulary")]


def test_compare_embedder_pairs_has_better_first_and_mean_difference():
    values = {"a": [0.1, 0.2, 0.3, 0.2], "b": [0.5, 0.6, 0.9, 0.4], "c": [0.5, 0.7, 0.9, 0.5]}
    found = compare_embedder_pairs({"a": "lm(kind=lstm)", "b": "lm(kind=lstm, tokenizer=bytes)"}, values, "ndcg@10")
    assert [(one.better, one.worse, one.option) for one in found] == [("c", "b", ""), ("b", "a", "tokenizer")]
    assert found[0].difference.value == pytest.approx(0.05)
    assert found[1].difference.value == pytest.approx(0.4)
    assert all(one.difference.p <= one.difference.p_corrected <= 1 for one in found)
    assert compare_embedder_pairs({"a": "lm"}, {"a": [0.5, 0.1]}, "ndcg@10") == []


def test_compare_embedder_pairs_same_pair_twice_is_corrected_once():
    values = {"a": [0.1, 0.2, 0.3, 0.2], "b": [0.5, 0.6, 0.7, 0.9]}
    found = compare_embedder_pairs({"a": "lm(kind=lstm)", "b": "lm(kind=transformer)"}, values, "ndcg@10")
    assert [(one.better, one.worse, one.option) for one in found] == [("b", "a", ""), ("b", "a", "kind")]
    assert found[0].difference == found[1].difference
    p = pytest.approx(ttest_rel(values["b"], values["a"]).pvalue)
    assert found[0].difference.p_corrected == found[0].difference.p == p


def test_find_single_option_pairs_ignores_default_values():
    assert (
        find_single_option_pairs({"a": "lm", "b": "lm(kind=transformer)", "c": "lm(kind=transformer, dimension=128)"})
        == []
    )
    cut = {"a": "lm(tokenizer=bpe)", "b": "lm(tokenizer=bpe(vocabulary=8000))", "c": "lm(tokenizer=bpe(vocabulary=9))"}
    assert find_single_option_pairs(cut) == [("a", "c", "tokenizer vocabulary"), ("b", "c", "tokenizer vocabulary")]


def test_compare_embedder_pairs_lower_is_better():
    found = compare_embedder_pairs({}, {"a": [0.1, 0.2], "b": [0.5, 0.6]}, "stale", lower=True)
    assert [(one.better, one.worse) for one in found] == [("a", "b")]


# Files


@pytest.mark.parametrize("noun", [whole(), bare("a"), sheet()], ids=["lineup", "bare", "tokenizers"])
def test_json_result_round_trip(noun, tmp_path):
    path = tmp_path / "x.json"
    write_results([noun], [str(path)])
    assert is_result_file(path)
    (again,) = read_results(path)
    assert format_results(again, "json") == format_results(noun, "json") == path.read_text()
    assert "NaN" not in path.read_text()


def test_csv_has_a_row_for_each_embedder_with_all_digits():
    found = whole()
    rows = {row["embedder"]: row for row in csv.DictReader(io.StringIO(format_results(found, "csv")))}
    assert list(rows) == [one.name for one in found.embedders]
    row, one = rows["minilm"], found.find("minilm")
    assert float(row["ndcg@10"]) == one.means["ndcg@10"].value
    assert float(row["recall@5 high"]) == one.means["recall@5"].high
    assert float(row["ndcg@10 vs bm25 p_corrected"]) == one.differences["ndcg@10"].p_corrected
    assert float(row["pgvector(index=hnsw) retrieve_p99_ms"]) == one.stores[2].stages["retrieve"].p99
    assert float(row["tokenizer compression"]) == one.tokenizer.compression
    assert (row["trained"], row["dimension"]) == ("true", "384")
    assert rows["byt5-small"]["faulty_documents"] == "3"
    assert rows["bm25"]["dimension"] == rows["bm25"]["exact total_p50_ms"] == ""
    assert "nan" not in {cell.lower() for row in rows.values() for cell in row.values()}


def test_long_csv_has_every_value_once():
    found = whole()
    rows = list(csv.DictReader(io.StringIO(format_results([found], "long"))))
    keys = [(row["embedder"], row["table"], row["how"], row["at"], row["measure"]) for row in rows]
    assert len(set(keys)) == len(keys)
    values = dict(zip(keys, (row["value"] for row in rows), strict=True))
    one = found.find("wordllama")
    small = next(it for it in one.compressed if (it.method, it.dimension) == ("first", 32))
    assert float(values["wordllama", "dimension", "first float32", "32", "mrr@15"]) == small.means["mrr@15"].value
    assert float(values["wordllama", "loss", "keyboard", "0.2", "ndcg@10"]) == one.perturbed[0].difference.value
    assert float(values["wordllama", "size", "", "1500", "recall@1"]) == one.corpus_sizes[1].means["recall@1"].value
    assert float(values["lstm-bpe", "pair", "tokenizer: lstm-bytes", "", "ndcg@10"]) == 0.028


def test_tokenization_format_round_trip(tmp_path):
    found = replace(whole(), convention="tokenization")
    path = tmp_path / "study.csv"
    write_results([found], [str(path)], "tokenization")
    assert detect_layout(str(path)) == "tokenization"
    assert path.read_text().splitlines()[0] == ",".join(tokenization.MODEL_COLUMNS)
    again = tokenization.read_model_table(str(path))
    for one in found.embedders:
        entry = again.entries[one.name]
        assert entry.means["mrr@15"] == Mean(one.means["mrr@15"].value, QUERIES)
        assert entry.means["recall@10"].value == one.means["recall@10"].value
        assert "recall@15" not in entry.means
        if one.stores:
            assert entry.speed.stages["total"].mean == one.stores[0].stages["total"].mean


def test_tokenization_format_has_timed_queries_if_not_all_were_timed():
    found = replace(whole(), convention="tokenization")
    assert "timed_queries" not in format_results([found], "tokenization")
    one = found.find("minilm")
    stages = {name: replace(stage, n=14) for name, stage in one.stores[0].stages.items()}
    few = replace(one, stores=[replace(one.stores[0], stages=stages), *one.stores[1:]])
    bare_one = replace(one, name="untimed", stores=[])
    several = replace(found, embedders=[few, found.find("bm25"), bare_one])
    rows = list(csv.DictReader(io.StringIO(format_results([several], "tokenization"))))
    told = [(row["model"], row["num_queries"], row["timed_queries"]) for row in rows]
    assert told == [("minilm", "391", "14"), ("bm25", "391", "391"), ("untimed", "391", "")]


def test_tokenization_format_requires_tokenization_convention():
    with pytest.raises(BadInput, match="but tokenization requires tokenization") as raised:
        format_results([whole()], "tokenization")
    assert raised.value.hint.startswith("run `ragauge embedders` again with --format tokenization")


def test_tokenizer_format_applies_only_to_tokenizers():
    text = format_results([sheet()], "tokenizer")
    assert [line.split(",")[0] for line in text.splitlines()] == [
        "tokenizer",
        "bytes",
        "bpe(vocabulary=8000)",
        "minilm",
    ]
    with pytest.raises(KeyError):
        format_results([whole()], "tokenizer")


def test_embedder_formats_apply_to_one_embedder_study():
    for form in ("tokenization", "long"):
        with pytest.raises(KeyError):
            format_results([sheet()], form)
    with pytest.raises(BadInput, match="this format contains one result"):
        format_results([whole(), whole()], "tokenization")


@pytest.mark.slow
def test_cli_report_embedder_study_in_every_format_and_with_runs(tmp_path):
    run = command_in(tmp_path, "report")
    write_results([replace(whole(), convention="tokenization")], [str(tmp_path / "lineup.json")])
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


def test_terminal_80_columns_names_omitted_columns(told):
    pieces, left = render_report(told, 80)
    assert {"recall@10", "p99 ms", "white space"} <= set(left)
    assert len(pieces) < 60
    assert render_report(told, 400)[1] == []
    narrow = Console(width=200)
    assert all(narrow.measure(one).maximum <= 80 for one in pieces if isinstance(one, RichTable))


def test_write_result_pipe_wraps_prose_but_not_tables(capsys):
    write_result([whole()], [], as_json=False, as_csv=False)
    lines = capsys.readouterr().out.splitlines()
    prose = [line for line in lines if "  " not in line]
    assert max(map(len, prose)) <= 80
    assert max(map(len, lines)) > 80
    assert any(line.startswith("minilm-float32 is best by ndcg@10") for line in prose)


def test_cli_report_tokenization_hint_suggests_running_again(tmp_path):
    write_results([whole()], [str(tmp_path / "lineup.json")])
    done = command_in(tmp_path, "report")("lineup.json", "--format", "tokenization", code=2)
    assert "--convention" not in done.stderr
    assert "run `ragauge embedders` again with --format tokenization" in done.stderr


def test_cli_report_format_and_file_ending_mismatch_raises_error(tmp_path):
    run = command_in(tmp_path, "report")
    write_results([whole()], [str(tmp_path / "lineup.json")])
    done = run("lineup.json", "-o", "page.html", "--format", "long", code=2)
    assert "page.html: the ending .html is not that of the format long" in done.stderr
    assert "use `-o page.csv`, or remove --format" in done.stderr
    assert not (tmp_path / "page.html").exists()
    run("lineup.json", "-o", "page.txt", "--format", "long")
    assert (tmp_path / "page.txt").read_text().startswith("embedder,table,")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[:2000], "lineup.json:"),
        (lambda text: text[2000:], "or it is a corrupt result: the JSON cannot be read ("),
        (
            lambda text: text.replace("ragauge-embedders/2", "ragauge-others/7"),
            "`ragauge-others/7` is not a known result",
        ),
    ],
)
def test_cli_report_corrupt_result_raises_error(tmp_path, damage, said):
    file = tmp_path / "lineup.json"
    write_results([whole()], [str(file)])
    file.write_text(damage(file.read_text()))
    done = command_in(tmp_path, "report")("lineup.json", code=2)
    assert said in done.stderr


def test_csv_names_with_control_characters_round_trip():
    odd = bare("a\x1b[31mb", "tab\tand, comma")
    text = format_results(odd, "csv")
    assert [row[0] for row in csv.reader(io.StringIO(text))] == ["embedder", "a\x1b[31mb", "tab\tand, comma"]
    long = format_results([replace(whole(), embedders=[entrant("a\x9bb", 0.4)], pairs=[])], "long")
    assert "a\x9bb,quality," in long


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
    write_result([whole()], [], as_json=False, as_csv=False, format_name="long")
    assert capsys.readouterr().out.startswith("embedder,table,how,at,measure,value,low,high,n\nminilm,quality,")


# Charts


def test_build_charts_draws_charts_only_with_enough_data(drawings):
    assert set(drawings) == CHARTS
    assert build_charts(bare("a", "b")) == {}


@pytest.mark.slow
def test_charts_are_valid_vega_lite_without_warnings(capfd, drawings):
    import altair
    import vl_convert

    for drawing in drawings.values():
        for one in drawing.panels:
            assert altair.LayerChart.from_dict(one.spec, validate=True)
        for spec in [*({**one.spec, "width": 300} for one in drawing.panels), chart_specification(drawing)]:
            assert vl_convert.vegalite_to_vega(spec, show_warnings=True)["marks"]
    assert "WARN" not in "".join(capfd.readouterr())


def test_charts_use_one_colour_scale_for_embedders(drawings):
    scales = {
        json.dumps(layer["encoding"]["color"]["scale"])
        for drawing in drawings.values()
        for one in drawing.panels
        for layer in one.spec["layer"]
        if layer["encoding"].get("color", {}).get("field") == "system"
    }
    assert len(scales) == 1


def test_charts_have_alt_texts_and_captions(drawings):
    for name, drawing in drawings.items():
        assert "minilm" in drawing.alt or name == "bits"
        assert drawing.alt.endswith(".")
        assert drawing.caption.endswith(".")


def hostile(names=(*HOSTILE, *NAMES, r"\textbf{x}_$", "x" * 300)):
    """Build a study in which every text field has hostile text."""
    evil = HOSTILE[0]
    entrants = [
        entrant(
            name, 0.4 - 0.01 * i, description=evil, failed_texts=[EmbeddingFailure(evil, "query", "failed", evil)],
            failure_counts=[FailureCount("query", "failed", 1)], notes=[evil],
        )
        for i, name in enumerate(names)
    ]  # fmt: skip
    found = whole()
    pair = [EmbedderPair(names[0], names[1], evil, gap(0.1))]
    return replace(found, dataset=evil, embedders=entrants, baseline=names[0], failures={evil: evil}, pairs=pair)


def test_charts_hostile_names_are_in_no_vega_expression(evil):
    import vl_convert

    for kind, drawing in collect_charts([evil]).items():
        written = "\n".join(expressions(vl_convert.vegalite_to_vega(chart_specification(drawing))))
        for name in HOSTILE:
            assert name not in written, kind
            assert json.dumps(name)[1:-1] not in written, kind


def test_markdown_terminal_and_csv_escape_hostile_names(evil):
    found = hostile()
    text = render_markdown([evil])
    assert "<script>window.__x" not in text
    assert "<img src=x" not in text
    assert not any("\x07" in str(one) for one in render_report(evil, 80)[0])
    rows = list(csv.DictReader(io.StringIO(format_results(found, "csv"))))
    assert [row["embedder"] for row in rows] == [one.name for one in found.embedders]


# HTML page


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    report(whole(), path)
    return path


def test_page_draws_charts_in_light_and_dark(opened, file, drawings):
    for size, scheme in (((1280, 900), "light"), ((390, 800), "dark")):
        seen = opened(file, charts=True, size=size, scheme=scheme)
        assert seen.locator("[data-chart] svg").count() == sum(len(one.panels) for one in drawings.values())
        assert seen.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert "could not be drawn" not in seen.inner_text("main")


def test_page_navigation_fits_and_links_to_sections(opened, file):
    seen = opened(file, charts=True, size=(1280, 900))
    assert seen.evaluate("(nav => nav.scrollWidth <= nav.clientWidth)(document.querySelector('nav'))")
    places = seen.eval_on_selector_all("nav a", "all => all.map(one => one.getAttribute('href'))")
    assert all(seen.locator(place).count() == 1 for place in places)


def test_page_sorts_numbers_by_value(opened, file):
    seen = opened(file, charts=True)
    at = titles(build_cost_table(whole())).index("parameters")
    seen.click(f"#embedders-costs button[data-column='{at}']")
    column = f"#embedders-costs tbody tr td:nth-child({at + 1})"
    cells = seen.eval_on_selector_all(column, "all => all.map(one => one.textContent)")
    assert [one for one in cells if one != "-"] == ["217.0M", "32.0M", "22.7M", "22.7M", "2.3M", "2.3M", "2.3M"]


def test_page_hostile_names_are_escaped(opened, evil, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_page([evil], load_vega_script))
    assert "<script>window.__x" not in path.read_text()
    seen = opened(path, charts=True)
    assert seen.evaluate("window.__x") is None
    assert seen.locator("main img").count() == 0


def test_quality_table_means_without_intervals_have_none():
    found = whole()
    plain = [
        replace(one, means={name: Mean(it.value, it.n) for name, it in one.means.items()}) for one in found.embedders
    ]
    told = build_report(replace(found, embedders=plain))
    assert columns(tables(told, "quality")[0])["minilm"]["ndcg@10"] == "0.4620"
    assert "best by ndcg@10: 0.4650 over" in told.summary
    assert mean(0.5).n == QUERIES


@pytest.mark.slow
def test_cli_report_study_file_tokenization_equals_folder():
    folders = Path(__file__).parents[1] / "goldens" / "folders"
    report = command_in(folders, "report", "--format", "tokenization")
    assert report("study/lineup.json").stdout == report("study").stdout != ""


def test_quality_text_states_truncation_and_chance():
    found = whole()
    text = text_of(build_report(found), "quality")
    assert "Texts are cut after 512 characters, which shortens 14.2% of the documents; `ragauge run` reads" in text
    assert "(`--context 0` cuts none)" in text
    assert "chance ranks by random vectors" in tables(build_report(found), "quality")[0].note
    others = [one for one in found.embedders if one.kind != "chance"]
    bare = build_report(replace(found, context=None, truncated=0.0, embedders=others))
    assert "cut after" not in text_of(bare, "quality")
    assert tables(bare, "quality")[0].note == ""


def test_read_results_schema_version_1_is_upgraded():
    goldens = Path(__file__).parents[1] / "goldens"
    (study,) = read_results(goldens / "folders/study/lineup.json")
    old = json.loads((goldens / "folders/study/lineup.json").read_text())
    assert old["schema"] == "ragauge-embedders/1"
    assert [one.name for one in study.embedders] == [one["name"] for one in old["entrants"]]
    assert study.embedders[0].differences["ndcg@10"].value == old["entrants"][0]["gaps"]["ndcg@10"]["difference"]
    assert study.embedders[0].perturbed[0].name == old["entrants"][0]["shaken"][0]["how"]
    assert study.find("bm25").kind == "lexical"
    assert (study.pairs[0].better, study.pairs[0].option) == (old["pairs"][0]["one"], "")
    (tokenizers,) = read_results(goldens / "outputs/tokenizers-known.json")
    old = json.loads((goldens / "outputs/tokenizers-known.json").read_text())
    assert old["schema"] == "ragauge-tokenizers/1"
    assert [one.tokens for one in tokenizers.tokenizers] == [one["tokens"] for one in old["rows"]]
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
