"""Report of an embedder study, as sections and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ragauge.lineups import Lineup
from ragauge.reports import lineups_controls as controls
from ragauge.reports import lineups_rows as rows
from ragauge.reports import lineups_words as words
from ragauge.reports import tokenizings
from ragauge.reports.accounts import Account, Part
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.lineups import drawn
from ragauge.reports.lineups_csv import csv
from ragauge.reports.tables import Rows, counted

__all__ = ["account", "csv"]

Charts = Mapping[str, Drawing]


def account(found: Lineup) -> Account:
    """Build the report of an embedder study."""
    about = [
        found.dataset,
        counted(found.documents, "document"),
        counted(found.queries, "judged query", "judged queries"),
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
        text = f"What they make of the documents, cut alike. {tokenizings.COLUMNS}"
        yield Part("tokenizers", "Tokenizers", "Tokenizers", text, [tokenizings.table(tokens)])
        pieces = tokenizings.pieces(controls.probed(tokens))
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
