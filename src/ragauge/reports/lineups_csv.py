"""CSV of an embedder study: one row per embedder, or one row per value."""

from __future__ import annotations

from collections.abc import Iterator

from ragauge.lineups import Entrant, Lineup
from ragauge.outcomes import Mean
from ragauge.reports.tables import csv_text, number

PERCENTILES = ("mean", "p50", "p95", "p99")
STAGES = ("embed", "retrieve", "total")
PLAIN = ("kind", "description", "model", "trained", "dimension", "bytes_per_vector", "parameters", "memory_bytes")
FIGURES = ("load_seconds", "train_seconds", "documents_per_second", "limit", "truncated", "bits_per_byte")
COUNTS = ("vocabulary", "used", "tokens")
RATES = ("used_share", "per_word", "per_character", "per_byte", "compression", "unknown_rate")


def csv(found: Lineup) -> str:
    """Render one CSV row per embedder, with all its values in columns."""
    stores = list(dict.fromkeys(shelf.store for one in found.entrants for shelf in one.shelves))
    rows = [_flat(found, one, stores) for one in found.entrants]
    header = list(dict.fromkeys(name for row in rows for name in row)) or ["embedder"]
    return csv_text(header, ([row.get(name, "") for name in header] for row in rows))


def _flat(found: Lineup, one: Entrant, stores: list[str]) -> dict[str, str]:
    row = {"embedder": one.name, **{name: _plain(getattr(one, name)) for name in (*PLAIN, *FIGURES)}}
    for measure in found.measures:
        row |= _mean(measure, one.means.get(measure))
        gap = one.gaps.get(measure)
        for field in ("difference", "low", "high", "p", "p_corrected"):
            row[f"{measure} vs {found.baseline} {field}"] = "" if gap is None else number(getattr(gap, field))
    for store in stores:
        shelf = one.shelf(store)
        for stage in STAGES:
            latency = None if shelf is None else shelf.stages.get(stage)
            for kind in PERCENTILES:
                row[f"{store} {stage}_{kind}_ms"] = "" if latency is None else number(getattr(latency, kind))
        row[f"{store} build_seconds"] = "" if shelf is None else number(shelf.build_seconds)
        row[f"{store} unreliable_times"] = "" if shelf is None else "; ".join(shelf.unreliable_times)
        row[f"{store} neighbours"] = "" if shelf is None else number(shelf.neighbours)
        row[f"{store} index_used"] = "" if shelf is None else _plain(shelf.index_used)
        row |= _mean(f"{store} {found.measures[0]}", None if shelf is None else shelf.means.get(found.measures[0]))
    tokens = one.tokenizer
    row["tokenizer"] = "" if tokens is None else tokens.tokenizer
    for name in (*COUNTS, *RATES):
        row[f"tokenizer {name}"] = "" if tokens is None else _plain(getattr(tokens, name))
    row["faulty_documents"], row["faulty_queries"] = (
        str(sum(n for what, n in one.faulty.items() if what.startswith(kind))) for kind in ("document", "query")
    )
    return row


def _mean(name: str, mean: Mean | None) -> dict[str, str]:
    if mean is None:
        return dict.fromkeys((name, f"{name} low", f"{name} high", f"{name} n"), "")
    figures = {name: mean.value, f"{name} low": mean.low, f"{name} high": mean.high}
    return {**{field: number(value) for field, value in figures.items()}, f"{name} n": str(mean.n)}


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return number(value) if isinstance(value, float) else "" if value is None else str(value)


LONG = ("embedder", "table", "how", "at", "measure", "value", "low", "high", "n")


def long_csv(found: Lineup) -> str:
    """Render one CSV row per value.

    `table` is one of `quality`, `gap` (difference from the baseline), `store`, `dimension` (`how` is the method and
    precision, `at` the number of dimensions), `size` (`at` is the number of documents), `robustness` and `loss` (`how`
    is the perturbation, `at` its rate), `milliseconds` (`how` is store and stage) and `pair` (`how` is the differing
    option and the other embedder).
    """
    rows = [row for one in found.entrants for row in _long(found, one)]
    for pair in found.pairs:
        gap = pair.gap
        how = f"{pair.differs}: {pair.other}"
        figures = [*map(number, (gap.difference, gap.low, gap.high)), str(gap.n)]
        rows.append([pair.one, "pair", how, "", found.measures[0], *figures])
    return csv_text(LONG, rows)


def _long(found: Lineup, one: Entrant) -> Iterator[list[str]]:
    first = found.measures[0]
    for measure, mean in one.means.items():
        yield [one.name, "quality", "", "", measure, *_four(mean)]
    for measure, gap in one.gaps.items():
        ends = [number(value) for value in (gap.difference, gap.low, gap.high)]
        yield [one.name, "gap", found.baseline, "", measure, *ends, str(gap.n)]
    for shelf in one.shelves:
        for measure, mean in shelf.means.items():
            yield [one.name, "store", shelf.store, "", measure, *_four(mean)]
        for stage, latency in shelf.stages.items():
            for kind in PERCENTILES:
                value = number(getattr(latency, kind))
                yield [one.name, "milliseconds", f"{shelf.store} {stage}", "", kind, value, "", "", str(latency.n)]
    for small in one.shrunk:
        for measure, mean in small.means.items():
            yield [one.name, "dimension", f"{small.how} {small.kind}", str(small.dimension), measure, *_four(mean)]
    for part in one.grown:
        for measure, mean in part.means.items():
            yield [one.name, "size", "", str(part.documents), measure, *_four(mean)]
    for shaken in one.shaken:
        at = number(shaken.rate)
        yield [one.name, "robustness", shaken.how, at, first, *_four(shaken.mean)]
        ends = [number(value) for value in (shaken.gap.difference, shaken.gap.low, shaken.gap.high)]
        yield [one.name, "loss", shaken.how, at, first, *ends, str(shaken.gap.n)]


def _four(mean: Mean) -> list[str]:
    return [number(mean.value), number(mean.low), number(mean.high), str(mean.n)]
