"""Report of a tokenizer comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

from ragauge.core.errors import BadInput
from ragauge.core.specs import parse_spec
from ragauge.core.text import one_line
from ragauge.embedder_study.results import TokenizerStats, TokenizerStudy
from ragauge.embedder_study.tokenizer_counts import PROBE_TEXTS
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartPanel, format_bar_value, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.numbers import MISSING, format_number, join_with_and, pluralise
from ragauge.output.report import (
    ALL_FORMATS,
    FILES_ONLY,
    Block,
    Chart,
    Charts,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.tables import Column, Row, Table, Value

BAR_HEIGHT_PX = 26
"""Height of a horizontal bar, in pixels."""
PIECE_SEPARATOR = "|"
"""Separator between tokens."""
LENGTH_STATISTICS = {"mean": 0, "p5": 2, "p25": 5, "p50": 0, "p75": 3, "p95": 0, "p99": 4, "max": 0}
"""Statistics of tokens per document, with the order in which a narrow terminal drops their columns."""
MIN_UNKNOWN_SHARE = 0.001
"""Share of unknown tokens from which the summary mentions a tokenizer."""
MAX_WORD_CHARS = 60
"""Maximum number of characters of a word."""
PIECES_TEXT = (
    f"{PIECE_SEPARATOR} separates tokens; ␣ is a space, ↵ the end of a line, \\x.. a byte, ⟨?⟩ an unknown token."
)
TERMINAL_ONLY = frozenset({"terminal"})


def build_report(result: TokenizerStudy, *, full: bool = False) -> Report:
    """Build the report of a tokenizer comparison.

    With `full`, a terminal shows the tokens of all probes and the longest words, else those of the user's probes.
    """
    counted = max((tokenizer.documents for tokenizer in result.tokenizers), default=0)
    documents = pluralise(result.documents, "document")
    sections = [
        _counts_section(result),
        Section("lengths", "Tokens per document", [*_truncation(result), _length_table(result)], "Lengths"),
        _failures_section(result),
        *_probe_sections(result, full=full),
        _long_words_section(result, full=full),
        _changes_section(result, full=full),
    ]
    return Report(
        "tokenizers",
        "Tokenizers",
        summarise_tokenizers(result),
        [section for section in sections if section.blocks],
        [result.corpus, documents if counted == result.documents else f"{counted:,} of {documents}"],
        notes=result.notes,
        provenance=result.provenance,
    )


def summarise_tokenizers(result: TokenizerStudy) -> str:
    """Summarise which lossless tokenizer needs the fewest tokens.

    Tokenizers with unknown tokens are named too.

    >>> one = TokenizerStats("bytes", 384, 5, 2, 10, 2, 10, 10, {"mean": 5.0}, lossless=True)
    >>> other = TokenizerStats("words", 3, 3, 2, 4, 2, 10, 10, {"mean": 2.0}, unknown=1, lossless=False)
    >>> summarise_tokenizers(TokenizerStudy("docs", 2, [one, other]))
    'Only bytes is lossless: 5.0 tokens per document, 1.00 bytes per token. Unknown tokens: words (25.0%).'
    """
    lossless = sorted((item for item in result.tokenizers if item.lossless), key=lambda item: item.tokens)
    if not lossless:
        sentences = ["No tokenizer is lossless."]
    else:
        best, worst = lossless[0], lossless[-1]
        compression = format_number(best.compression, "ratio")
        values = f"{_format_mean_tokens(best)} tokens per document, {compression} bytes per token"
        if len(lossless) == 1:
            only = "Only " if len(result.tokenizers) > 1 else ""
            sentences = [f"{only}{best.tokenizer} is lossless: {values}."]
        else:
            suffix = (
                "" if best.tokens == worst.tokens else f"; {worst.tokenizer} the most ({_format_mean_tokens(worst)})"
            )
            sentences = [f"Among the lossless tokenizers, {_describe_fewest(lossless)}: {values}{suffix}."]
    unknown = [
        f"{item.tokenizer} ({format_number(item.unknown_rate, 'share')})"
        for item in result.tokenizers
        if item.unknown_rate >= MIN_UNKNOWN_SHARE
    ]
    if unknown:
        sentences.append(f"Unknown tokens: {join_with_and(unknown)}.")
    return " ".join(sentences)


def _describe_fewest(ordered: Sequence[TokenizerStats]) -> str:
    """Name the tokenizers with the fewest tokens, all of them if several are equal."""
    names = [item.tokenizer for item in ordered if item.tokens == ordered[0].tokens]
    if len(names) == 1:
        return f"{names[0]} needs the fewest tokens"
    return f"{join_with_and(names)} need the same number of tokens" + (
        ", the fewest" if len(names) < len(ordered) else ""
    )


def _format_mean_tokens(tokenizer: TokenizerStats) -> str:
    return format_number(tokenizer.per_document.get("mean", math.nan), "mean count")


def _counts_section(result: TokenizerStudy) -> Section:
    blocks: list[Block] = [build_tokenizer_table(result.tokenizers), Charts(lambda: build_charts(result))]
    sources = list(dict.fromkeys(item.trained_on for item in result.tokenizers if item.trained_on))
    if len(sources) == 1:
        names = dict.fromkeys(_tokenizer_kind(item.tokenizer) for item in result.tokenizers if item.trained_on)
        blocks.insert(0, Paragraph(f"Trained on {sources[0]}: {join_with_and(list(names))}."))
    return Section("counts", "Token counts", blocks, "Counts")


def _tokenizer_kind(description: str) -> str:
    """Return the name of a tokenizer without its options; the user may have given it any name."""
    try:
        return parse_spec(description, "tokenizer").name
    except BadInput:
        return description


def build_tokenizer_table(tokenizers: Sequence[TokenizerStats]) -> Table:
    """Build the table of token counts, one row per tokenizer."""
    columns = [
        Column("tokenizer", "name"),
        Column("vocabulary", "count"),
        Column("used", "share", drop_order=1, legend="share of the vocabulary that occurs"),
        Column("tokens/word", "ratio", legend="words are separated by white space"),
        Column("bytes/token", "ratio"),
        Column("unknown", "share", legend="share of the tokens that are unknown"),
        Column("lossless", "name", legend="whether every text can be restored from its tokens"),
    ]
    rows: list[Row] = [
        [
            item.tokenizer,
            item.vocabulary,
            item.used_share,
            item.per_word,
            item.compression,
            item.unknown_rate,
            MISSING if item.lossless is None else item.lossless,
        ]
        for item in tokenizers
    ]
    return Table("tokenizers", columns, rows)


def _truncation(result: TokenizerStudy) -> list[Block]:
    """Describe how much is truncated, for tokenizers with a limit."""
    limited = [item for item in result.tokenizers if item.limit is not None]
    sentences = []
    for item in limited:
        if not item.truncated:
            continue
        tokens = item.tokens + item.special_tokens * item.documents
        documents = f"{item.truncated:,} of {pluralise(item.documents, 'document')}"
        share = format_number(item.truncated / item.documents, "share")
        sentences.append(
            f"{item.tokenizer} (limit {pluralise(item.limit or 0, 'token')}): {documents} ({share}) "
            f"{'is' if item.truncated == 1 else 'are'} truncated, which loses "
            f"{format_number(item.truncated_tokens / tokens, 'share')} of all tokens."
        )
    if untruncated := [f"{item.tokenizer} (limit {item.limit:,})" for item in limited if not item.truncated]:
        sentences.append(f"No document is truncated by {join_with_and(untruncated)}.")
    return [Paragraph(sentence) for sentence in sentences]


def _length_table(result: TokenizerStudy) -> Table:
    columns = [Column("tokenizer", "name")]
    columns += [
        Column(name, "mean count" if name == "mean" else "count", drop_order=order)
        for name, order in LENGTH_STATISTICS.items()
    ]
    columns.append(Column("texts/s", "qps", drop_order=6, legend="texts tokenized per second"))
    rows: list[Row] = [
        [item.tokenizer, *(item.per_document.get(name) for name in LENGTH_STATISTICS), item.texts_per_second]
        for item in result.tokenizers
    ]
    if any(not math.isnan(item.train_seconds) for item in result.tokenizers):
        columns.append(Column("train s", "seconds", drop_order=1))
        rows = [[*row, item.train_seconds] for row, item in zip(rows, result.tokenizers, strict=True)]
    return Table("lengths", columns, rows)


def _failures_section(result: TokenizerStudy) -> Section:
    rows: list[Row] = [[name, one_line(reason)] for name, reason in result.failures.items()]
    table = Table("failures", [Column("tokenizer"), Column("reason")], rows)
    return Section("failures", "Not measured", [table] if rows else [], "Not measured" if rows else "")


def _probe_sections(result: TokenizerStudy, *, full: bool) -> list[Section]:
    counts = _probe_table(result.tokenizers)
    pieces = build_piece_tables(result.tokenizers)
    sections = [probe.kind for probe in result.tokenizers[0].probes if probe.kind not in PROBE_TEXTS] if pieces else []
    terminal_tables = build_piece_tables(result.tokenizers, None if full else sections, collapsed=False)
    text = Paragraph(PIECES_TEXT)
    return [
        Section("probes", "Short texts of each kind", [counts] if counts.rows else [], "Probes", FILES_ONLY),
        Section("pieces", "Tokens of these texts", [text, *pieces] if pieces else [], "Tokens", FILES_ONLY),
        Section("shown-pieces", "Tokens", [text, *terminal_tables] if terminal_tables else [], formats=TERMINAL_ONLY),
    ]


def _probe_table(tokenizers: Sequence[TokenizerStats]) -> Table:
    """Build the table of token counts by probe and tokenizer."""
    probes = tokenizers[0].probes if tokenizers else ()
    columns = [Column("kind", "name"), Column("characters", "count")]
    columns += [Column(item.tokenizer, "count") for item in tokenizers]
    rows: list[Row] = [
        [probe.kind, len(probe.text), *(len(item.probes[i].pieces) for item in tokenizers)]
        for i, probe in enumerate(probes)
    ]
    return Table("probes", columns, rows, "Number of tokens", collapsed=True)


def build_piece_tables(
    tokenizers: Sequence[TokenizerStats], kinds: Sequence[str] | None = None, *, collapsed: bool = True
) -> list[Table]:
    """Build a table per probe, optionally of some kinds, with each tokenizer's tokens."""
    columns = [Column("tokenizer"), Column("n", "count"), Column("unknown", "count"), Column("tokens")]
    tables = []
    for i, probe in enumerate(tokenizers[0].probes if tokenizers else ()):
        if kinds is not None and probe.kind not in kinds:
            continue
        probed = [item.probes[i] for item in tokenizers]
        rows: list[Row] = [
            [item.tokenizer, len(probe.pieces), probe.unknown, PIECE_SEPARATOR.join(probe.pieces)]
            for item, probe in zip(tokenizers, probed, strict=True)
        ]
        text = one_line(probe.text.replace("\n", "↵").replace("\t", "⇥"))
        tables.append(Table(f"probe-{i}", columns, rows, f"{probe.kind}: {text}", collapsed=collapsed))
    return tables


def _long_words_section(result: TokenizerStudy, *, full: bool) -> Section:
    columns = [Column("word", "name"), Column("tokens", "count"), Column("occurrences", "count")]
    tables = [
        Table(
            f"words-{i}",
            columns,
            [[_shorten_word(word.word), word.tokens, word.occurrences] for word in item.longest],
            item.tokenizer,
            collapsed=not full,
        )
        for i, item in enumerate(result.tokenizers)
        if item.longest
    ]
    text = Paragraph("Each word, separated by white space, is tokenized alone.")
    blocks: list[Block] = [text, *tables] if tables else []
    return Section("words", "Words with the most tokens", blocks, "Words", ALL_FORMATS if full else FILES_ONLY)


def _shorten_word(word: str) -> str:
    return word if len(word) <= MAX_WORD_CHARS else f"{word[: MAX_WORD_CHARS - 10]}…{word[-9:]}"


def _changes_section(result: TokenizerStudy, *, full: bool) -> Section:
    rows: list[Row] = [[item.tokenizer, one_line(item.first_change)] for item in result.tokenizers if item.first_change]
    table = Table("changes", [Column("tokenizer"), Column("first change")], rows, collapsed=not full)
    title = "Texts that are not restored"
    return Section("changes", title, [table] if rows else [], "Changes", ALL_FORMATS if full else FILES_ONLY)


def build_charts(result: TokenizerStudy) -> dict[str, Chart]:
    """Build bars of bytes per token and tokens per document.

    Empty if there are no tokens.
    """
    rows = [stats for stats in result.tokenizers if stats.tokens]
    if not rows:
        return {}
    sizes = "; ".join(f"{stats.tokenizer} {format_bar_value(stats.compression)}" for stats in rows)
    lengths = "; ".join(f"{stats.tokenizer} {format_bar_value(stats.per_document['mean'])}" for stats in rows)
    return {
        "tokenizers": Chart(
            "Bytes per token and tokens per document",
            join_sentence("thin lines are the range from the 5th to the 95th percentile"),
            f"Bytes per token: {sizes}. Tokens per document: {lengths}.",
            [_bytes_panel(rows), _tokens_panel(rows)],
        )
    }


def _bytes_panel(rows: Sequence[TokenizerStats]) -> ChartPanel:
    alt = import_altair()
    values = [{"tokenizer": stats.tokenizer, "bytes": round_digits(stats.compression)} for stats in rows]
    x = alt.X("bytes:Q", title="bytes per token", axis=alt.Axis(grid=False, tickCount=4), scale=alt.Scale(zero=True))
    tips = [alt.Tooltip("tokenizer:N"), alt.Tooltip("bytes:Q", title="bytes per token", format=".3~f")]
    chart = alt.Chart(alt.Data(values=values))
    bars = chart.mark_bar(color=PALETTE[0], opacity=0.75, height={"band": 0.7}).encode(
        x=x, y=_tokenizer_axis(rows), tooltip=tips
    )
    return make_panel("bytes per token", [bars], BAR_HEIGHT_PX * len(rows), wide=False)


def _tokens_panel(rows: Sequence[TokenizerStats]) -> ChartPanel:
    alt = import_altair()
    values = [
        {
            "tokenizer": stats.tokenizer,
            "mean": round_digits(stats.per_document["mean"]),
            "low": round_digits(stats.per_document.get("p5", math.nan)),
            "high": round_digits(stats.per_document.get("p95", math.nan)),
        }
        for stats in rows
    ]
    axis = alt.Axis(grid=False, tickCount=4, format=",d")
    x = alt.X("mean:Q", title="tokens per document", axis=axis, scale=alt.Scale(zero=True))
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
    return make_panel("tokens per document", layers, BAR_HEIGHT_PX * len(rows), wide=False)


def _tokenizer_axis(rows: Sequence[TokenizerStats]) -> object:
    alt = import_altair()
    order = [stats.tokenizer for stats in rows]
    return alt.Y("tokenizer:N", title=None, sort=order, axis=alt.Axis(grid=False, labelLimit=170))


def build_csv_table(result: TokenizerStudy) -> Table:
    """Build the table with one row per tokenizer; the columns of the tokenization study come first."""
    rows = [{**_study_values(item), **_further_values(item)} for item in result.tokenizers]
    empty = TokenizerStats("", 0, 0, 0, 0, 0, 0, 0, {})
    names = list(chain(_study_values(empty), _further_values(empty)))
    return Table("tokenizers", [Column(name) for name in names], [list(row.values()) for row in rows])


def _study_values(item: TokenizerStats) -> dict[str, Value]:
    """Return the values in the columns of the tokenization study."""
    return {
        "tokenizer": item.tokenizer,
        "vocab_size": item.vocabulary,
        "unique_tokens_used": item.used,
        "vocab_utilization": item.used_share,
        "avg_tokens_per_doc": item.per_document.get("mean"),
        "median_tokens_per_doc": item.per_document.get("p50"),
        "avg_tokens_per_word": item.per_word,
        "avg_tokens_per_char": item.per_character,
        "avg_tokens_per_byte": item.per_byte,
        "compression_ratio": item.compression,
    }


def _further_values(item: TokenizerStats) -> dict[str, Value]:
    has_limit = item.limit is not None
    return {
        **{f"{name}_tokens_per_doc": item.per_document.get(name) for name in ("p5", "p95", "p99", "max")},
        "documents": item.documents,
        "tokens": item.tokens,
        "words": item.words,
        "characters": item.characters,
        "bytes": item.bytes,
        "unknown": item.unknown,
        "unknown_documents": item.unknown_documents,
        "lossless": None if item.lossless is None else str(int(item.lossless)),
        "limit": item.limit,
        "marks": item.special_tokens,
        "truncated": item.truncated if has_limit else None,
        "lost": item.truncated_tokens if has_limit else None,
        "texts_per_second": item.texts_per_second,
        "learn_seconds": item.train_seconds,
        "trained_on": item.trained_on,
    }


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per tokenizer", build_csv_table)})
