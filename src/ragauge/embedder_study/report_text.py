"""Summary sentences and explanations of an embedder study."""

from __future__ import annotations

import math

from ragauge.core.summaries import Mean
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy
from ragauge.embedder_study.selections import (
    describe_training,
    find_latency,
    first_store,
    is_significant,
    main_mean,
    pareto_frontier,
    sort_embedders,
    trade_offs_by_latency,
)
from ragauge.output.numbers import format_interval, format_number, format_p_value, join_with_and, pluralise
from ragauge.store_benchmarks.report_text import DOUBT_MARK

PART_TEXTS = {"whole": "titles and texts", "text": "texts without titles", "title": "titles only"}


def summarise_embedders(result: EmbedderStudy) -> str:
    ranked = [embedder for embedder in sort_embedders(result) if not math.isnan(main_mean(result, embedder).value)]
    if not ranked:
        return "No embedder was measured."
    best, main = ranked[0], result.measures[0]
    mean = main_mean(result, best)
    equal = [embedder.name for embedder in ranked if main_mean(result, embedder).value == mean.value]
    lead = f"{best.name} is best by {main}" if len(equal) == 1 else f"{join_with_and(equal)} are equal by {main}"
    summary = f"{lead}: {_describe_mean(result, mean)} over {pluralise(mean.n, 'query')}"
    if len(ranked) > 1 and len(equal) == 1:
        summary += f", {_describe_second_best(result, ranked)}"
    total = find_latency(first_store(best), "total")
    latency = "" if total is None else f"; median latency {format_number(total.p50, 'ms')} ms per query"
    return f"{summary}{latency}."


def _describe_mean(result: EmbedderStudy, mean: Mean) -> str:
    if math.isnan(mean.low):
        return format_number(mean.value)
    return f"{format_number(mean.value)} ({result.confidence:.0%} CI {format_interval(mean.low, mean.high)})"


def _describe_second_best(result: EmbedderStudy, ranked: list[EmbedderResult]) -> str:
    """Describe whether the best differs significantly from the second best."""
    best, runner_up = ranked[:2]
    second = f"{runner_up.name} ({format_number(main_mean(result, runner_up).value)})"
    p = _find_p_value(result, best, runner_up)
    if main_mean(result, best).n == 1:
        return f"then {second}; one query is too few for a test"
    if math.isnan(p):
        return f"then {second}"
    if is_significant(result, p):
        return f"significantly better than {second}, {format_p_value(p)}"
    return f"no significant difference from {second}, {format_p_value(p)}"


def _find_p_value(result: EmbedderStudy, best: EmbedderResult, other: EmbedderResult) -> float:
    pair = next((pair for pair in result.pairs if {pair.better, pair.worse} == {best.name, other.name}), None)
    if pair is not None:
        return pair.difference.p_corrected
    if other.name == result.baseline and result.measures[0] in best.differences:
        return best.differences[result.measures[0]].p_corrected
    return math.nan


def list_sentences(result: EmbedderStudy) -> list[str]:
    """Return further summary sentences."""
    sentences = [
        _describe_baseline(result),
        _describe_chance(result),
        _describe_fastest(result),
        _describe_failures(result),
    ]
    return [sentence for sentence in sentences if sentence]


def _describe_baseline(result: EmbedderStudy) -> str:
    main = result.measures[0] if result.measures else ""
    differences = {item.name: item.differences[main] for item in sort_embedders(result) if main in item.differences}
    if not differences:
        return ""
    groups: dict[str, list[str]] = {
        "significantly better": [],
        "not significantly different": [],
        "significantly worse": [],
        "not tested": [],
    }
    for name, difference in differences.items():
        if math.isnan(difference.p_corrected):
            group = "not tested"
        elif not is_significant(result, difference.p_corrected):
            group = "not significantly different"
        else:
            group = "significantly better" if difference.value > 0 else "significantly worse"
        groups[group].append(name)
    if len(groups["not tested"]) == len(differences):
        n = max(difference.n for difference in differences.values())
        return (
            f"Compared with {result.baseline}: {pluralise(n, 'query')} {'is' if n == 1 else 'are'} too few for a test."
        )
    parts = [
        f"{join_with_and(names)} {'is' if len(names) == 1 else 'are'} {group}"
        for group, names in groups.items()
        if names
    ]
    return f"Compared with {result.baseline}: {'; '.join(parts)}."


def _describe_chance(result: EmbedderStudy) -> str:
    """Name the embedders whose interval overlaps that of chance."""
    chance = next((embedder for embedder in result.embedders if embedder.kind == "chance"), None)
    if chance is None or math.isnan(main_mean(result, chance).high):
        return ""
    high = main_mean(result, chance).high
    names = [item.name for item in result.embedders if item is not chance and main_mean(result, item).low <= high]
    if not names:
        return ""
    level = f"{result.confidence:.0%}"
    return f"Not better than chance by {result.measures[0]} ({level} CIs overlap): {join_with_and(names)}."


def _describe_fastest(result: EmbedderStudy) -> str:
    points = trade_offs_by_latency(result) if result.measures else []
    if len(points) < 2:
        return ""
    names = [f"{point.name} ({format_number(point.cost, 'ms')} ms)" for point in pareto_frontier(points)]
    return f"Pareto frontier of {result.measures[0]} and p95 latency: {join_with_and(names)}."


def _describe_failures(result: EmbedderStudy) -> str:
    texts = {item.name: sum(count.n for count in item.failure_counts) for item in result.embedders}
    parts = [f"{name} has no vector for {pluralise(count, 'text')}." for name, count in texts.items() if count]
    if result.failures:
        parts.append(f"Not measured: {join_with_and(list(result.failures))}.")
    return " ".join(parts)


def list_unequal_properties(result: EmbedderStudy) -> list[str]:
    """Return the properties that differ between embedders, with their range."""
    embedders = [embedder for embedder in result.embedders if embedder.kind == "embedder"]
    texts = []
    training = list(dict.fromkeys(text for embedder in embedders if (text := describe_training(embedder))))
    if len(training) > 1:
        texts.append(f"training ({', '.join(training)})")
    properties = {
        "parameters": [embedder.parameters for embedder in embedders],
        "dimensions": [embedder.dimension for embedder in embedders],
        "maximum tokens": [embedder.limit for embedder in embedders],
    }
    for name, values in properties.items():
        distinct = sorted({value for value in values if value is not None})
        if len(distinct) > 1:
            texts.append(f"{name} ({format_number(distinct[0], 'large')} to {format_number(distinct[-1], 'large')})")
    truncated = sorted({embedder.truncated for embedder in embedders if not math.isnan(embedder.truncated)})
    if len(truncated) > 1:
        low, high = format_number(truncated[0], "share"), format_number(truncated[-1], "share")
        texts.append(f"truncated documents ({low} to {high})")
    if len({embedder.tokenizer.tokenizer for embedder in embedders if embedder.tokenizer is not None}) > 1:
        texts.append("tokenizer")
    return texts


def explain_quality(result: EmbedderStudy) -> str:
    """Explain how the means were computed."""
    sentences = [f"Means over {pluralise(result.queries, 'judged query', 'judged queries')}, exact cosine ranking."]
    if any(embedder.differences for embedder in result.embedders):
        sentences.append("Paired t-tests, Holm-corrected per measure.")
    if result.context is not None and result.truncated > 0:
        sentences.append(
            f"Texts are cut after {result.context:,} characters, which shortens "
            f"{format_number(result.truncated, 'share')} of the documents; `ragauge run` reads whole texts "
            "(`--context 0` cuts none)."
        )
    return " ".join(sentences)


def explain_pairs(result: EmbedderStudy) -> str:
    """Explain how to read the pairs."""
    if any(not pair.option for pair in result.pairs):
        return "The best two were selected by their scores, which makes their difference look larger."
    return ""


def explain_conditions(result: EmbedderStudy) -> str:
    """Describe what was equal for all embedders, and what was not."""
    cut = (
        "no text cut"
        if result.context is None
        else f"texts cut after {result.context:,} characters "
        f"({format_number(result.truncated, 'share')} of the documents are longer)"
    )
    equal = f"{PART_TEXTS.get(result.part, result.part)}, {cut}, the same queries, exact ranking by cosine"
    unequal = list_unequal_properties(result)
    if not unequal:
        return f"Equal for all: {equal}."
    return f"Equal for all: {equal}. Different: {join_with_and(unequal)}; a difference in quality can be due to each."


def explain_costs(result: EmbedderStudy) -> str:
    """Explain how the latency was measured; empty if it was not."""
    stores = [(embedder, first_store(embedder)) for embedder in result.embedders]
    if all(find_latency(store, "total") is None for _, store in stores):
        return ""
    name = next((store.store for embedder, store in stores if store is not None and embedder.kind != "lexical"), "")
    threads = result.provenance.get("plan", {}).get("threads")
    limited = f", {pluralise(threads, 'thread')}" if isinstance(threads, int) else ""
    where = f", store {name}" if name else ""
    doubts = " · ".join(
        f"{embedder.name}, {store.store}: {'; '.join(store.unreliable_times)}"
        for embedder in result.embedders
        for store in embedder.stores
        if store.unreliable_times
    )
    marked = f" {DOUBT_MARK} marks unreliable times ({doubts})." if doubts else ""
    return f"Latency of single queries{limited}{where}.{marked}"


def explain_robustness(result: EmbedderStudy) -> str:
    """Explain how to read the changes by perturbation."""
    return (
        f"Change of {result.measures[0]} if the queries are perturbed; documents are unchanged. "
        "* is significant (Holm-corrected). Sorted by mean loss."
    )


STORES_TEXT = "Latency of the search only: the query vectors are computed once, with the first store."
BITS_TEXT = "Bits per byte of documents that no model was trained on. Bytes are comparable between tokenizers."
FAILED_TEXTS_TEXT = "A query without a vector counts as a miss; a document without a vector cannot be retrieved."
