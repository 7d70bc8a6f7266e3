"""TextReport of a tokenizer comparison, as sections, charts and CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.core.text import one_line
from ragauge.embedder_study.results import TokenizerStats, TokenizerStudy
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartPanel, format_bar_value, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.csv import render_csv_rows
from ragauge.output.numbers import format_exact, format_number, join_with_and, pluralise
from ragauge.output.report import Chart, ResultReporter, TableBuilder
from ragauge.output.text_report import TextReport, TextSection, TextTable, table_from_csv, to_report

BAR_HEIGHT_PX = 26
"""Height of a horizontal bar, in pixels."""
RANGE_PERCENTILES = ("p5", "p95")


def build_charts(found: TokenizerStudy) -> dict[str, Chart]:
    """Build bars of bytes per token and tokens per document.

    Empty if there are no tokens.
    """
    rows = [one for one in found.rows if one.tokens]
    if not rows:
        return {}
    said = "; ".join(f"{one.tokenizer} {format_bar_value(one.compression)}" for one in rows)
    lengths = "; ".join(f"{one.tokenizer} {format_bar_value(one.per_document['mean'])}" for one in rows)
    thin = "thin lines go from the 5th to the 95th percentile"
    return {
        "tokenizers": Chart(
            "What a token holds, and how many there are",
            join_sentence("the more bytes a token holds, the fewer tokens a document has", thin),
            f"Bytes a token: {said}. Tokens a document: {lengths}.",
            [_bytes_panel(rows), _tokens_panel(rows)],
        )
    }


def _bytes_panel(rows: Sequence[TokenizerStats]) -> ChartPanel:
    alt = import_altair()
    values = [{"tokenizer": one.tokenizer, "bytes": round_digits(one.compression)} for one in rows]
    x = alt.X("bytes:Q", title="bytes a token", axis=alt.Axis(grid=False, tickCount=4), scale=alt.Scale(zero=True))
    tips = [alt.Tooltip("tokenizer:N"), alt.Tooltip("bytes:Q", title="bytes a token", format=".3~f")]
    chart = alt.Chart(alt.Data(values=values))
    bars = chart.mark_bar(color=PALETTE[0], opacity=0.75, height={"band": 0.7}).encode(
        x=x, y=_tokenizer_axis(rows), tooltip=tips
    )
    return make_panel("bytes a token", [bars], BAR_HEIGHT_PX * len(rows), wide=False)


def _tokens_panel(rows: Sequence[TokenizerStats]) -> ChartPanel:
    alt = import_altair()
    values = [
        {
            "tokenizer": one.tokenizer,
            "mean": round_digits(one.per_document["mean"]),
            "low": round_digits(one.per_document[RANGE_PERCENTILES[0]]),
            "high": round_digits(one.per_document[RANGE_PERCENTILES[1]]),
        }
        for one in rows
    ]
    axis = alt.Axis(grid=False, tickCount=4, format=",d")
    x = alt.X("mean:Q", title="tokens a document", axis=axis, scale=alt.Scale(zero=True))
    tips = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("mean:Q", title="mean", format=",.1f"),
        alt.Tooltip("low:Q", title="5th percentile", format=",.0f"),
        alt.Tooltip("high:Q", title="95th percentile", format=",.0f"),
    ]
    chart = alt.Chart(alt.Data(values=values))
    y = _tokenizer_axis(rows)
    layers = [
        chart.mark_bar(color=PALETTE[1], opacity=0.75, height={"band": 0.7}).encode(x=x, y=y, tooltip=tips),
        chart.mark_rule(style="guide", strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q", y=y, tooltip=tips),
    ]
    return make_panel("tokens a document", layers, BAR_HEIGHT_PX * len(rows), wide=False)


def _tokenizer_axis(rows: Sequence[TokenizerStats]) -> object:
    alt = import_altair()
    order = [one.tokenizer for one in rows]
    return alt.Y("tokenizer:N", title=None, sort=order, axis=alt.Axis(grid=False, labelLimit=170))


MISSING_VALUE = "-"
PIECE_SEPARATOR = "|"
"""Separator between tokens."""
LENGTH_STATISTICS = ("mean", "p5", "p25", "p50", "p75", "p95", "p99", "max")
"""Statistics shown for tokens per document."""
MIN_UNKNOWN_SHARE = 0.001
"""Share of unknown tokens from which the summary mentions a tokenizer."""
MAX_WORD_CHARS = 60
"""Maximum number of characters of a word."""
COLUMN_LEGEND = (
    "used: the part of the vocabulary that occurs; a word: tokens for what stands between white space; bytes: of "
    "text for a token; lossless: whether every text comes back from its tokens."
)
"""Legend of the table's columns."""
STUDY_COLUMNS = (
    "tokenizer",
    "vocab_size",
    "unique_tokens_used",
    "vocab_utilization",
    "avg_tokens_per_doc",
    "median_tokens_per_doc",
    "avg_tokens_per_word",
    "avg_tokens_per_char",
    "avg_tokens_per_byte",
    "compression_ratio",
)
"""First columns of the CSV, as in the tokenization study."""


def build_report(found: TokenizerStudy) -> TextReport:
    """Build the report of a tokenizer comparison."""
    told = max((one.documents for one in found.rows), default=0)
    of = "" if told == found.documents else f"{told:,} of "
    about = [found.corpus, f"{of}{pluralise(found.documents, 'document')}"]
    parts = [
        TextSection(
            "figures",
            "What becomes of the texts",
            "Figures",
            _columns_note(found),
            [tokenizer_table(found.rows)],
            lambda: build_charts(found),
        ),
        TextSection("lengths", "Tokens of a document", "Lengths", _truncation_text(found), [_length_table(found)]),
        *_failure_sections(found),
        *_probe_sections(found),
        *_long_word_sections(found),
        *_loss_sections(found),
    ]
    return TextReport(
        "tokenizers",
        "Tokenizers",
        about,
        summarise_tokenizers(found),
        parts,
        notes=found.notes,
        circumstances=found.circumstances,
    )


def summarise_tokenizers(found: TokenizerStudy) -> str:
    """Summarise which lossless tokenizer needs the fewest tokens.

    Tokenizers with unknown tokens are named too.

    >>> one = TokenizerStats("bytes", 384, 5, 2, 10, 2, 10, 10, {"mean": 5.0}, lossless=True)
    >>> other = TokenizerStats("words", 3, 3, 2, 4, 2, 10, 10, {"mean": 2.0}, unknown=1, lossless=False)
    >>> summarise_tokenizers(TokenizerStudy("docs", 2, [one, other]))[56:]
    ', 1.00 bytes a token. Not everything is known to words (25%).'
    """
    whole = sorted((one for one in found.rows if one.lossless), key=lambda one: one.tokens)
    if not whole:
        told = ["No tokenizer brings every text back as it was."]
    else:
        best, worst = whole[0], whole[-1]
        figures = f"{_format_mean_tokens(best)} tokens a document, {best.compression:.2f} bytes a token"
        if len(whole) == 1:
            only = "Only " if len(found.rows) > 1 else ""
            told = [f"{only}{best.tokenizer} brings every text back: {figures}."]
        else:
            told = [
                f"Of those that bring every text back, {_fewest_tokens_phrase(whole)}: "
                f"{figures}{_most_tokens_phrase(best, worst)}."
            ]
    gaps = [
        f"{one.tokenizer} ({_format_share(one.unknown_rate)})"
        for one in found.rows
        if one.unknown_rate >= MIN_UNKNOWN_SHARE
    ]
    if gaps:
        told.append(f"Not everything is known to {join_with_and(gaps)}.")
    return " ".join(told)


def _fewest_tokens_phrase(ordered: Sequence[TokenizerStats]) -> str:
    """Name the tokenizers with the fewest tokens, all of them if several are equal."""
    least = [one.tokenizer for one in ordered if one.tokens == ordered[0].tokens]
    if len(least) == 1:
        return f"{least[0]} needs fewest tokens"
    return f"{join_with_and(least)} need the same number of tokens" + (
        ", the fewest" if len(least) < len(ordered) else ""
    )


def _most_tokens_phrase(best: TokenizerStats, worst: TokenizerStats) -> str:
    return "" if best.tokens == worst.tokens else f"; {worst.tokenizer} needs most ({_format_mean_tokens(worst)})"


def _format_mean_tokens(one: TokenizerStats) -> str:
    return f"{one.per_document.get('mean', math.nan):,.1f}"


def _format_share(part: float) -> str:
    """Format a share as percent with two significant digits; a dash for NaN.

    >>> _format_share(0.25), _format_share(0.0211), _format_share(0.00004), _format_share(0.0), _format_share(math.nan)
    ('25%', '2.1%', '<0.01%', '0%', '-')
    """
    if math.isnan(part):
        return MISSING_VALUE
    if not part:
        return "0%"
    return (
        "<0.01%" if part < 0.0001 else f"{part:.2%}" if part < 0.01 else f"{part:.1%}" if part < 0.1 else f"{part:.0%}"
    )


def _columns_note(found: TokenizerStudy) -> str:
    learned = list(dict.fromkeys(one.trained_on for one in found.rows if one.trained_on))
    names = list(dict.fromkeys(one.tokenizer.partition("(")[0] for one in found.rows if one.trained_on))
    told = f" Pieces of {join_with_and(names)} were learned from {learned[0]}." if len(learned) == 1 else ""
    return f"{COLUMN_LEGEND}{told}"


def tokenizer_table(tokenizers: Sequence[TokenizerStats]) -> TextTable:
    """Build the table of token counts, one row per tokenizer."""
    header = ["tokenizer", "vocab", "used", "a word", "bytes", "unknown", "lossless"]
    rows = [
        [
            one.tokenizer,
            f"{one.vocabulary:,}",
            _format_share(one.used_share),
            _format_two_decimals(one.per_word),
            _format_two_decimals(one.compression),
            _format_share(one.unknown_rate),
            MISSING_VALUE if one.lossless is None else "yes" if one.lossless else "no",
        ]
        for one in tokenizers
    ]
    return TextTable("", header, rows, goes=(2,))


def _format_two_decimals(value: float) -> str:
    return MISSING_VALUE if math.isnan(value) else f"{value:.2f}"


def _truncation_text(found: TokenizerStudy) -> str:
    """Describe how much is truncated, for tokenizers with a limit."""
    told = []
    for one in found.rows:
        if one.limit is None:
            continue
        if not one.truncated:
            told.append(f"{one.tokenizer} reads {one.limit:,} tokens, and all of every document.")
            continue
        tokens = one.tokens + one.marks * one.documents
        share, lost = _format_share(one.truncated / one.documents), _format_share(one.lost / tokens)
        told.append(
            f"{one.tokenizer} reads {one.limit:,} tokens: {one.truncated:,} of {pluralise(one.documents, 'document')} "
            f"({share}) {'is' if one.truncated == 1 else 'are'} longer, and {lost} of all tokens are cut off."
        )
    return " ".join(told)


def _length_table(found: TokenizerStudy) -> TextTable:
    header = ["tokenizer", *LENGTH_STATISTICS, "texts/s", "learned in"]
    rows = [
        [
            one.tokenizer,
            _format_mean_tokens(one),
            *(
                f"{one.per_document[name]:,.0f}" if name in one.per_document else MISSING_VALUE
                for name in LENGTH_STATISTICS[1:]
            ),
            format_number(one.texts_per_second, "qps"),
            MISSING_VALUE if math.isnan(one.learn_seconds) else f"{one.learn_seconds:.1f} s",
        ]
        for one in found.rows
    ]
    return TextTable("", header, rows, goes=(10, 3, 5, 9, 2))


def _failure_sections(found: TokenizerStudy) -> list[TextSection]:
    rows = [[name, why] for name, why in found.failures.items()]
    table = TextTable("", ["tokenizer", "why"], rows, numbers=False)
    return [TextSection("failed", "Not looked at", "Not looked at", rows=[table])] if rows else []


def probe_table(tokenizers: Sequence[TokenizerStats]) -> TextTable | None:
    """Build the table of token counts by probe and tokenizer.

    None if there are no probes.
    """
    first = tokenizers[0].probes if tokenizers else ()
    if not first:
        return None
    header = ["text", "characters", *(one.tokenizer for one in tokenizers)]
    rows = [
        [one.kind, str(len(one.text)), *(_piece_count(mine, at) for mine in tokenizers)] for at, one in enumerate(first)
    ]
    return TextTable("", header, rows)


def _piece_count(one: TokenizerStats, at: int) -> str:
    made = one.probes[at]
    return f"{len(made.pieces)} ({made.unknown})" if made.unknown else str(len(made.pieces))


def piece_tables(tokenizers: Sequence[TokenizerStats], kinds: Sequence[str] | None = None) -> list[TextTable]:
    """Build a table per probe, optionally of some kinds, with each tokenizer's tokens."""
    tables = []
    for at, one in enumerate(tokenizers[0].probes if tokenizers else ()):
        if kinds is not None and one.kind not in kinds:
            continue
        rows = []
        for mine in tokenizers:
            made = mine.probes[at]
            unknown = f"{len(made.pieces)}, {made.unknown} unknown" if made.unknown else str(len(made.pieces))
            rows.append([mine.tokenizer, unknown, PIECE_SEPARATOR.join(made.pieces)])
        text = one.text.replace("\n", "↵").replace("\t", "⇥")
        title = f"{one.kind}: {one_line(text)}"
        tables.append(TextTable(title, ["tokenizer", "pieces", "which"], rows, numbers=False))
    return tables


def _probe_sections(found: TokenizerStudy) -> list[TextSection]:
    counts = probe_table(found.rows)
    if counts is None:
        return []
    about = "Pieces of a short text of each kind; in brackets, how many stand for what the tokenizer does not know."
    which = f"Pieces are apart by {PIECE_SEPARATOR}; ␣ is a blank, ↵ the end of a line, \\x.. a byte, ⟨?⟩ the unknown."
    return [
        TextSection("probes", "Texts of every kind", "Probes", about, [counts], long=True),
        TextSection("pieces", "Their pieces", "Pieces", which, piece_tables(found.rows), long=True),
    ]


def _long_word_sections(found: TokenizerStudy) -> list[TextSection]:
    tables = [
        TextTable(
            one.tokenizer,
            ["word", "pieces", "times"],
            [[_shorten_word(word.word), f"{word.pieces:,}", f"{word.times:,}"] for word in one.longest],
        )
        for one in found.rows
        if one.longest
    ]
    text = "What stands between white space, each by itself, and how often it comes."
    return [TextSection("words", "Words that take most pieces", "Words", text, tables, long=True)] if tables else []


def _shorten_word(word: str) -> str:
    return word if len(word) <= MAX_WORD_CHARS else f"{word[: MAX_WORD_CHARS - 10]}…{word[-9:]}"


def _loss_sections(found: TokenizerStudy) -> list[TextSection]:
    rows = [[one.tokenizer, one_line(one.note)] for one in found.rows if one.note]
    table = TextTable("", ["tokenizer", "the first that differs"], rows, numbers=False)
    title = "What does not come back"
    return [TextSection("lost", title, "Lost", rows=[table], long=True)] if rows else []


def render_csv(found: TokenizerStudy) -> str:
    """Render one CSV row per tokenizer.

    The columns of the tokenization study come first.
    """
    more = ("documents", "tokens", "words", "characters", "bytes", "unknown", "unknown_documents", "lossless")
    cut = ("limit", "marks", "truncated", "lost", "texts_per_second", "learn_seconds", "trained_on")
    header = [*STUDY_COLUMNS, *(f"{name}_tokens_per_doc" for name in ("p5", "p95", "p99", "max")), *more, *cut]
    rows = (
        [
            one.tokenizer,
            str(one.vocabulary),
            str(one.used),
            format_exact(one.used_share),
            *(format_exact(one.per_document.get(name)) for name in ("mean", "p50")),
            *(format_exact(value) for value in (one.per_word, one.per_character, one.per_byte, one.compression)),
            *(format_exact(one.per_document.get(name)) for name in ("p5", "p95", "p99", "max")),
            *(str(getattr(one, name)) for name in more[:-1]),
            "" if one.lossless is None else str(int(one.lossless)),
            "" if one.limit is None else str(one.limit),
            str(one.marks),
            *("" if one.limit is None else str(value) for value in (one.truncated, one.lost)),
            *(format_exact(value) for value in (one.texts_per_second, one.learn_seconds)),
            one.trained_on,
        ]
        for one in found.rows
    )
    return render_csv_rows(header, rows)


REPORTER = ResultReporter(
    lambda result: to_report(build_report(result)),
    {"csv": TableBuilder("one row per tokenizer", lambda result: table_from_csv(render_csv(result)))},
)
