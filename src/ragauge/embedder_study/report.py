"""CSV of an embedder study: one row per embedder, or one row per value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ragauge.core.summaries import Mean
from ragauge.embedder_study import report_tables as rows
from ragauge.embedder_study import report_text as controls
from ragauge.embedder_study import report_text as words
from ragauge.embedder_study import tokenizer_report
from ragauge.embedder_study.charts import drawn
from ragauge.embedder_study.results import Entrant, Lineup
from ragauge.output.numbers import count_noun, number
from ragauge.output.report import Account, Drawing, Part
from ragauge.output.tables import Rows
from ragauge.output.terminal import csv_text

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


Charts = Mapping[str, Drawing]


def account(found: Lineup) -> Account:
    """Build the report of an embedder study."""
    about = [
        found.dataset,
        count_noun(found.documents, "document"),
        count_noun(found.queries, "judged query", "judged queries"),
        f"convention {found.convention}",
        "no text cut" if found.context is None else f"the first {found.context:,} characters of every text",
    ]
    charts = drawn(found)
    parts = [part for part in _parts(found, charts) if part.rows or part.charts] if found.measures else []
    if found.failures:
        parts.append(Part("failures", "Not opened", "", "", [controls.failures(found)]))
    title = "Embedders"
    return Account(
        "embedders",
        title,
        about,
        words.headline(found),
        parts,
        words.more(found) if found.entrants else [],
        [*(f"{one.name}: {note}" for one in found.entrants for note in one.notes), *found.notes],
        found.circumstances,
    )


def _parts(found: Lineup, charts: Charts) -> Iterator[Part]:
    yield Part(
        "quality",
        "How good",
        "Quality",
        words.about_quality(found),
        [rows.quality(found)] if found.entrants else [],
        _some(charts, "measures", "recall"),
    )
    yield Part("tests", "Every measure with its test", "", "", _filled(rows.every_measure(found)), long=True)
    alone = all(one.differs == rows.RANK for one in found.pairs)
    title = "The best and the next best" if alone else "What one difference makes"
    yield Part("pairs", title, "Pairs", words.about_pairs(found), _filled(rows.pairs(found)))
    text = words.equal(found)
    yield Part("equal", "What was held equal, and what was not", "Equal", text, [controls.differing(found)])
    yield Part(
        "costs",
        "What it costs",
        "Costs",
        words.about_costs(found),
        _filled(rows.costs(found)),
        _some(charts, "times", "milliseconds"),
    )
    if len(rows.store_names(found)) > 1:
        yield Part("stores", "In the stores", "Stores", words.about_stores(found), _filled(rows.by_store(found)))
        yield Part("shelves", "Every embedder in every store", "", "", _filled(rows.stores(found)), long=True)
    yield from _curves(found, charts)
    yield from _texts(found, charts)
    lack = controls.faulty(found)
    if lack is not None:
        text = "As a query such a text finds nothing and counts as a miss; as a document it cannot be found."
        yield Part("faults", "Texts without a vector", "Faults", text, [lack])
        yield Part("faulty", "Which texts they are", "", "", _filled(controls.faults(found)), long=True)


def _curves(found: Lineup, charts: Charts) -> Iterator[Part]:
    """Yield the sections on dimensions, bytes and corpus size."""
    main = found.measures[0]
    tables = [one for how in rows.METHODS if (one := rows.dimensions(found, how)) is not None]
    if tables:
        text = f"Mean {main} of the same vectors with fewer numbers, four bytes each."
        yield Part("dimensions", "At equal dimension", "Dimension", text, tables[:1], _some(charts, "dimensions"))
        yield Part("cut", "At equal dimension in other ways", "", "", tables[1:], long=True)
    offers = rows.unbeaten(rows.by_bytes(found))
    if len(offers) > 1:
        text = "What no other vector is both as small and as good as: fewer numbers, fewer bits for each, or as it is."
        table = rows.offers(found, offers, "bytes")
        yield Part("bytes", "Quality for bytes", "Bytes", text, [table], _some(charts, "bytes"), long=True)
    grown = rows.sizes(found)
    if grown is not None:
        text = f"Mean {main} where fewer documents are in the way: all relevant ones, and a part of the others."
        yield Part("sizes", "As the corpus grows", "Corpus", text, [grown], _some(charts, "sizes"), long=True)


def _texts(found: Lineup, charts: Charts) -> Iterator[Part]:
    """Yield the sections on perturbed queries, tokenizers and language models."""
    shaken = controls.robustness(found)
    if shaken is not None:
        text = words.about_robustness(found)
        yield Part("robustness", "Queries written otherwise", "Robustness", text, [shaken], _some(charts, "robustness"))
        title = "Every perturbation with its interval"
        yield Part("losses", title, "", "", _filled(controls.every_perturbation(found)), long=True)
    tokens = controls.of_tokens(found)
    if tokens:
        text = f"What they make of the documents, cut alike. {tokenizer_report.COLUMNS}"
        yield Part("tokenizers", "Tokenizers", "Tokenizers", text, [tokenizer_report.table(tokens)])
        pieces = tokenizer_report.pieces(controls.probed(tokens))
        yield Part("probes", "What becomes of short texts", "", "", pieces, long=True)
    bits = controls.bits(found)
    if bits is not None:
        text = (
            "Of documents that nobody learned from; bytes, since tokens of different tokenizers are not the same thing."
        )
        yield Part("bits", "Language models", "Bits", text, [bits], _some(charts, "bits"))


def _filled(table: Rows) -> list[Rows]:
    return [table] if table.rows else []


def _some(charts: Charts, *names: str) -> dict[str, Drawing]:
    return {name: charts[name] for name in names if name in charts}
