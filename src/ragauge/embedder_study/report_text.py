"""Summary sentences and notes of an embedder study."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.core.text import one_line
from ragauge.embedder_study.report_tables import (
    MISSING_VALUE,
    RANK_PAIR,
    cost_table,
    format_count,
    format_difference,
    format_interval,
    format_large_number,
    format_share,
    format_value,
    main_mean,
    pareto_frontier,
    sort_embedders,
    store_names,
    trade_offs_by_latency,
)
from ragauge.embedder_study.results import (
    EmbedderPair,
    EmbedderResult,
    EmbedderStudy,
    PerturbationResult,
    TokenizerStats,
)
from ragauge.output.numbers import format_number, join_with_and, pluralise
from ragauge.output.text_report import TextTable
from ragauge.store_benchmarks.report_text import DOUBT_MARK


def training_text(one: EmbedderResult) -> str:
    """Describe where the weights were trained."""
    if one.trained is None:
        return MISSING_VALUE
    if not one.trained:
        return "not at all"
    return "elsewhere" if math.isnan(one.train_seconds) else "here"


def differences_table(found: EmbedderStudy) -> TextTable:
    """Build the table of properties in which embedders differ."""
    header = ["embedder", "trained", "params", "dim", "reads tokens", "cut off", "tokenizer"]
    rows = [
        [
            one.name,
            training_text(one),
            format_large_number(one.parameters),
            format_count(one.dimension),
            format_count(one.limit),
            format_share(one.truncated),
            MISSING_VALUE if one.tokenizer is None else one.tokenizer.tokenizer,
        ]
        for one in sort_embedders(found)
    ]
    return TextTable("", header, rows, goes=(4,))


def unequal_properties(found: EmbedderStudy) -> list[str]:
    """Return the properties that differ between embedders, in words."""
    several = [one for one in found.entrants if one.kind == "embedder"]
    told = []
    ways = list(dict.fromkeys(way for one in several if (way := training_text(one)) != MISSING_VALUE))
    if len(ways) > 1:
        told.append(f"training ({', '.join(ways)})")
    figures = {
        "parameters": [one.parameters for one in several],
        "dimension": [one.dimension for one in several],
        "tokens that are read": [one.limit for one in several],
    }
    for name, values in figures.items():
        known = sorted({value for value in values if value is not None})
        if len(known) > 1:
            told.append(f"{name} ({format_large_number(known[0])} to {format_large_number(known[-1])})")
    cut = sorted({one.truncated for one in several if not math.isnan(one.truncated)})
    if len(cut) > 1:
        told.append(f"documents of which the end is not read ({format_share(cut[0])} to {format_share(cut[-1])})")
    if len({one.tokenizer.tokenizer for one in several if one.tokenizer is not None}) > 1:
        told.append("tokenizer")
    return told


PerturbationKey = tuple[str, str]
"""Name and formatted rate of a perturbation; the rate is text because NaN is not equal to itself."""


def perturbation_key(one: PerturbationResult) -> PerturbationKey:
    """Return the key of a perturbation."""
    return one.how, "" if math.isnan(one.rate) else f"{one.rate:g}"


def sort_perturbations(found: EmbedderStudy) -> list[PerturbationKey]:
    """Return the perturbations, largest mean loss first."""
    losses: dict[PerturbationKey, list[float]] = {}
    for one in found.entrants:
        for shaken in one.shaken:
            losses.setdefault(perturbation_key(shaken), []).append(shaken.gap.difference)
    means = {key: sum(known) / len(known) for key, several in losses.items() if (known := _finite_values(several))}
    return sorted(losses, key=lambda key: means.get(key, math.inf))


def _finite_values(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def perturbation_label(found: EmbedderStudy, key: PerturbationKey) -> str:
    """Return the name of a perturbation, with its rate if there are several."""
    rates = {rate for how, rate in sort_perturbations(found) if how == key[0]}
    return key[0] if len(rates) == 1 else " ".join(key)


def robustness_table(found: EmbedderStudy) -> TextTable | None:
    """Build the table of losses by perturbation and embedder.

    None if there are no perturbations.
    """
    keys = sort_perturbations(found)
    if not keys:
        return None
    several = [one for one in sort_embedders(found) if one.shaken]
    cells = {(one.name, *perturbation_key(it)): it for one in several for it in one.shaken}
    rows = []
    for one in several:
        changes = [_loss_cell(found, cells.get((one.name, *key))) for key in keys]
        rows.append([one.name, format_value(main_mean(found, one).value), _retained_share(found, one), *changes])
    header = ["embedder", "as asked", "kept", *(perturbation_label(found, key) for key in keys)]
    return TextTable("", header, rows, goes=tuple(range(len(header) - 1, 4, -1)))


def _retained_share(found: EmbedderStudy, one: EmbedderResult) -> str:
    """Return the mean share of the quality that perturbations leave."""
    whole = main_mean(found, one).value
    left = _finite_values([1 + it.gap.difference / whole for it in one.shaken if whole > 0])
    return MISSING_VALUE if not left else f"{sum(left) / len(left):.0%}"


def is_significant(found: EmbedderStudy, p: float) -> bool:
    """Return whether a corrected p-value is below 1 minus the confidence level."""
    return p < round(1 - found.confidence, 12)


def _loss_cell(found: EmbedderStudy, one: PerturbationResult | None) -> str:
    if one is None or math.isnan(one.gap.difference):
        return MISSING_VALUE
    return f"{format_difference(one.gap.difference, 3)}{'*' if is_significant(found, one.gap.p_corrected) else ''}"


def perturbation_table(found: EmbedderStudy) -> TextTable:
    """Build a table with one row per embedder and perturbation."""
    level = f"{found.confidence:.0%}"
    header = ["embedder", "perturbation", "rate", "queries changed", found.measures[0], level, "lost", f"{level} of it"]
    header += ["p", "corrected", "seeds"]
    rows = []
    for one in sort_embedders(found):
        for it in one.shaken:
            gap = it.gap
            ends = MISSING_VALUE if math.isnan(gap.low) else f"{gap.low:+.4f} to {gap.high:+.4f}"
            told = [
                format_difference(gap.difference),
                ends,
                format_number(gap.p, "p"),
                format_number(gap.p_corrected, "p"),
                f"{it.seeds:,}",
            ]
            how, rate = perturbation_key(it)
            rows.append(
                [
                    one.name,
                    how,
                    rate or MISSING_VALUE,
                    format_share(it.changed),
                    format_value(it.mean.value),
                    format_interval(it.mean),
                    *told,
                ]
            )
    return TextTable("", header, rows)


def distinct_tokenizers(found: EmbedderStudy) -> list[TokenizerStats]:
    """Return the tokenizers of the embedders without duplicates."""
    known = [one.tokenizer for one in sort_embedders(found) if one.tokenizer is not None]
    return list({(one.tokenizer, one.limit): one for one in known}.values())


def select_equally_probed(several: Sequence[TokenizerStats]) -> list[TokenizerStats]:
    """Return the tokenizers with the same probe texts as the first that has any."""
    texts = next(([probe.text for probe in one.probes] for one in several if one.probes), [])
    return [one for one in several if texts and [probe.text for probe in one.probes] == texts]


def bits_per_byte_table(found: EmbedderStudy) -> TextTable | None:
    """Build the table of bits per byte, fewest first.

    None if there is no language model.
    """
    models = {one.name: one for one in found.entrants if not math.isnan(one.bits_per_byte)}
    if not models:
        return None
    known = {**{name: one.bits_per_byte for name, one in models.items()}}
    others = {f"{name} (a compressor)": value for name, value in found.references.items()}
    rows = [
        [name, f"{value:.3f}", training_text(models[name]) if name in models else MISSING_VALUE]
        for name, value in sorted([*known.items(), *others.items()], key=lambda pair: pair[1])
    ]
    return TextTable("", ["model", "bits per byte", "trained"], rows)


def failure_count_table(found: EmbedderStudy) -> TextTable | None:
    """Build the table of texts without a vector, by embedder and reason.

    None if there are none.
    """
    rows = []
    for one in found.entrants:
        for what, count in one.faulty.items():
            kind, _, why = what.partition(" ")
            named = [fault.id for fault in one.faults if (fault.what, fault.why) == (kind, why)]
            some = ", ".join(named[:3]) + (", …" if count > 3 else "")
            rows.append(
                [one.name, pluralise(count, kind, "queries" if kind == "query" else ""), why, some or MISSING_VALUE]
            )
    return TextTable("", ["embedder", "texts", "why", "such as"], rows, numbers=False) if rows else None


def failed_text_table(found: EmbedderStudy) -> TextTable:
    """Build a table with one row per listed text without a vector."""
    rows = [
        [one.name, fault.what, fault.id, fault.why, one_line(fault.error) or MISSING_VALUE]
        for one in found.entrants
        for fault in one.faults
    ]
    return TextTable("", ["embedder", "text", "id", "why", "error"], rows, numbers=False)


def failed_embedder_table(found: EmbedderStudy) -> TextTable:
    """Build the table of embedders that failed."""
    rows = [[name, one_line(why)] for name, why in found.failures.items()]
    return TextTable("", ["embedder", "why"], rows, numbers=False)


PART_TEXTS = {"whole": "titles and texts", "text": "texts without titles", "title": "titles alone"}
CHANCE_KIND = "chance"


def summarise_embedders(found: EmbedderStudy) -> str:
    """Summarise the result in one sentence."""
    known = [one for one in sort_embedders(found) if not math.isnan(main_mean(found, one).value)]
    if not known:
        return "Nothing was measured of any embedder."
    best, main = known[0], found.measures[0]
    mean = main_mean(found, best)
    ends = "" if math.isnan(mean.low) else f" ({mean.low:.3f} to {mean.high:.3f})"
    equal = [one.name for one in known if main_mean(found, one).value == mean.value]
    lead = f"{best.name} is best by {main}" if len(equal) == 1 else f"{join_with_and(equal)} are equal by {main}"
    told = f"{lead}: {mean.value:.3f}{ends} over {pluralise(mean.n, 'query', 'queries')}"
    if len(known) > 1 and len(equal) == 1:
        told += f", {_runner_up_phrase(found, known)}"
    cost = (
        "" if math.isnan(best.milliseconds) else f"a query takes {format_number(best.milliseconds, 'ms')} ms (median)"
    )
    return f"{told}; {cost}." if cost else f"{told}."


def _runner_up_phrase(found: EmbedderStudy, known: list[EmbedderResult]) -> str:
    """Describe whether the best differs significantly from the second best."""
    best, other = known[:2]
    value = f"{other.name} ({main_mean(found, other).value:.3f}"
    pair = next((one for one in found.pairs if {one.one, one.other} == {best.name, other.name}), None)
    p = math.nan
    if pair is not None:
        p = pair.gap.p_corrected
    elif other.name == found.baseline and found.measures[0] in best.gaps:
        p = best.gaps[found.measures[0]].p_corrected
    if main_mean(found, best).n == 1:
        return f"then {value}), and one query cannot tell who is better"
    if math.isnan(p):
        return f"then {value})"
    shown = f"p {_format_p_relation(p)}"
    return f"ahead of {value}, {shown})" if is_significant(found, p) else f"which cannot be told from {value}, {shown})"


def _format_p_relation(p: float) -> str:
    text = format_number(p, "p")
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def further_sentences(found: EmbedderStudy) -> list[str]:
    """Return further summary sentences."""
    return list(
        filter(
            None,
            [
                _baseline_sentence(found),
                _chance_sentence(found),
                _fastest_sentence(found),
                _unequal_sentence(found),
                _failures_sentence(found),
            ],
        )
    )


def _baseline_sentence(found: EmbedderStudy) -> str:
    main = found.measures[0] if found.measures else ""
    gaps = {one.name: one.gaps[main] for one in sort_embedders(found) if main in one.gaps}
    if not gaps:
        return ""
    better = [name for name, gap in gaps.items() if is_significant(found, gap.p_corrected) and gap.difference > 0]
    worse = [name for name, gap in gaps.items() if is_significant(found, gap.p_corrected) and gap.difference < 0]
    unknown = [name for name, gap in gaps.items() if math.isnan(gap.p_corrected)]
    if len(unknown) == len(gaps):
        n = max(gap.n for gap in gaps.values())
        return f"Against {found.baseline}: {pluralise(n, 'query', 'queries')} cannot tell who is better."
    other = [name for name in gaps if name not in (*better, *worse, *unknown)]
    groups = {"better": better, "not to be told from it": other, "worse": worse, "not to be compared": unknown}
    told = [
        f"{join_with_and(names)} {'is' if len(names) == 1 else 'are'} {what}" for what, names in groups.items() if names
    ]
    return f"Against {found.baseline}: {'; '.join(told)}."


def _chance_sentence(found: EmbedderStudy) -> str:
    """Name the embedders whose interval overlaps that of chance."""
    chance = next((one for one in found.entrants if one.kind == CHANCE_KIND), None)
    if chance is None or math.isnan(main_mean(found, chance).high):
        return ""
    high = main_mean(found, chance).high
    near = [one.name for one in found.entrants if one is not chance and main_mean(found, one).low <= high]
    measure, level = found.measures[0], f"{found.confidence:.0%}"
    return f"No better than chance by {measure} ({level} intervals overlap): {join_with_and(near)}." if near else ""


def _fastest_sentence(found: EmbedderStudy) -> str:
    offers = pareto_frontier(trade_offs_by_latency(found))
    if len(trade_offs_by_latency(found)) < 2:
        return ""
    told = [f"{one.name} ({format_number(one.price, 'ms')} ms)" for one in offers]
    return f"Nobody is both better and faster (p95) than {join_with_and(told)}."


def _unequal_sentence(found: EmbedderStudy) -> str:
    told = unequal_properties(found)
    if not told:
        return ""
    alone = (
        "the pairs that differ in one thing stand apart"
        if _single_option_pairs(found)
        else "no two differ in one thing only"
    )
    names = [one.partition(" (")[0] for one in told]
    return f"Not the same for all: {join_with_and(names)}; {alone}."


def _single_option_pairs(found: EmbedderStudy) -> list[EmbedderPair]:
    return [one for one in found.pairs if one.differs != RANK_PAIR]


def _failures_sentence(found: EmbedderStudy) -> str:
    lack = {one.name: sum(one.faulty.values()) for one in found.entrants if one.faulty}
    told = [f"{name} has no vector for {pluralise(count, 'text')}" for name, count in lack.items()]
    closed = f"Not opened: {join_with_and(list(found.failures))}." if found.failures else ""
    return " ".join(filter(None, [f"{join_with_and(told)}." if told else "", closed]))


def equal_conditions_text(found: EmbedderStudy) -> str:
    """Describe what was equal for all embedders, and what was not."""
    cut = (
        "no text was cut"
        if found.context is None
        else f"every text cut after {found.context:,} characters "
        f"({format_share(found.cut)} of the documents are longer)"
    )
    same = (
        f"{PART_TEXTS.get(found.part, found.part)} of the same documents, the same queries, {cut}, exact "
        f"ranking by cosine"
    )
    told = unequal_properties(found)
    other = (
        f" Not the same: {join_with_and(told)}. A difference between two rows is due to all of that together."
        if told
        else ""
    )
    return f"The same for all: {same}.{other}"


def pairs_note(found: EmbedderStudy) -> str:
    """Explain how to read the pairs."""
    picked = any(one.differs == RANK_PAIR for one in found.pairs)
    told = [
        "Both differ in the named option and in what follows from it (parameters, what is cut off), in nothing else."
        if _single_option_pairs(found)
        else "",
        "That the best and the next best were picked after looking makes their difference look larger."
        if picked
        else "",
        "p-values are of paired t-tests, corrected over all pairs here.",
    ]
    return " ".join(filter(None, told))


def quality_note(found: EmbedderStudy) -> str:
    """Explain how to read the means."""
    judged = pluralise(found.queries, "judged query", "judged queries")
    told = [f"Means over {judged}, ranked exactly, with {found.confidence:.0%} bootstrap intervals."]
    if any(one.gaps for one in found.entrants):
        told.append(
            "Stars are the corrected p-value of the paired t-test: *** below 0.001, ** 0.01, * 0.05, ns otherwise."
        )
    told.append("• is the best of a column.")
    if found.context is not None and found.cut > 0:
        told.append(
            f"Every text is cut after {found.context:,} characters, which shortens {format_share(found.cut)} of the "
            "documents; `ragauge run` reads whole texts, so its scores differ (--context 0 cuts none)."
        )
    if any(one.kind == CHANCE_KIND for one in found.entrants):
        told.append("chance ranks by random vectors and shows what no embedder should fall below (--no-baselines).")
    return " ".join(told)


def costs_note(found: EmbedderStudy) -> str:
    """Explain how to read latency and sizes."""
    columns = cost_table(found).header
    store = next((one.shelves[0].store for one in found.entrants if one.shelves and one.kind != "words"), "")
    threads = found.circumstances.get("plan", {}).get("threads")
    limited = f" with {pluralise(threads, 'thread')}" if isinstance(threads, int) else ""
    where = f", in the store {store}" if store else ""
    told = [f"Milliseconds of single queries, each embedded by itself{limited}{where}."]
    told += [f"{DOUBT_MARK} marks unreliable times ({one})." for one in _unreliable_time_notes(found)]
    kinds = {
        "docs/s": "docs/s are embedded in batches, with all threads",
        "bytes": "bytes are a vector's",
        "MB": "MB is memory beyond a process without it",
    }
    others = "; ".join(said for name, said in kinds.items() if name in columns)
    return " ".join([*(told if "ms p50" in columns else ()), *([f"{others}."] if others else ())])


def _unreliable_time_notes(found: EmbedderStudy) -> list[str]:
    told = [
        f"{one.name}, {shelf.store}: {'; '.join(shelf.unreliable_times)}"
        for one in found.entrants
        for shelf in one.shelves
        if shelf.unreliable_times
    ]
    return [" · ".join(told)] if told else []


def stores_note(found: EmbedderStudy) -> str:
    """Explain the loss of stores against exact ranking."""
    several = len(store_names(found))
    first_store = "The total in any but the first is embedding there and retrieving here." if several > 1 else ""
    return (
        f"{found.measures[0]} that an embedder loses at most against exact ranking, the least part of the true nearest "
        f"ten that is found, and the time of retrieving, each query by itself. {first_store}"
    ).strip()


def robustness_note(found: EmbedderStudy) -> str:
    """Explain how to read the perturbation losses."""
    level = f"{1 - found.confidence:.2g}"
    return (
        f"Queries are written otherwise, documents are not: the change of {found.measures[0]}, * where its corrected p "
        f"is below {level}. What costs most on average comes first; kept is what is left of it on average."
    )
