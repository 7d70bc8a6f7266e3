"""Render comparisons for the terminal, as Markdown, CSV and JSON data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from ragauge.core.run_dates import describe_run_dates
from ragauge.core.text import one_line
from ragauge.files.serialization import replace_nan
from ragauge.output.markdown import escape_markdown, render_markdown_table
from ragauge.output.numbers import format_number, format_score, pluralise
from ragauge.output.sparklines import SPARKLINE_BLOCKS, downsample, sparkline
from ragauge.output.terminal import borderless_table, terminal_cell
from ragauge.output.text_report import fit_columns, shorten_names
from ragauge.stats.comparisons import Comparison, Comparisons, comparison_fields

SUPERSCRIPTS = dict(zip("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ", strict=True))
TEST_NAMES = {
    "t": "paired t-test",
    "wilcoxon": "Wilcoxon's signed-rank test",
    "sign": "sign test",
    "randomisation": "paired randomisation test",
}
CORRECTION_NAMES = {
    "holm": "Holm-corrected",
    "bonferroni": "Bonferroni-corrected",
    "bh": "Benjamini-Hochberg-corrected",
}
STARS_LEGEND = "*** below 0.001, ** 0.01, * 0.05"
PROFILE_WIDTH_CHARS = 40
"""Width of a profile of differences, in characters."""
ComparisonColumns = list[tuple[str, Callable[[Comparison], str], int]]
"""Title, cell function and drop order of each column. A narrow terminal drops order 1 first and never 0."""


class ComparisonTable(NamedTuple):
    """Table of comparisons with its title."""

    title: str
    header: list[str]
    rows: list[list[str]]
    sure: list[bool]
    """Whether each row is a significant difference."""
    goes: Sequence[int] = ()
    """Indices of the columns that a narrow terminal drops, in this order."""
    left: Sequence[int] = ()
    """Indices of left-aligned columns: numbers with a suffix, so that the numbers are aligned."""


def build_comparison_tables(found: Comparisons) -> Iterator[ComparisonTable]:
    """Yield the tables in reading order."""
    if found.baseline is None and len(found.systems) > 2:
        yield build_means_table(found)
    yield from _pairwise_tables(found, found.rows)
    yield from _pairwise_tables(found, found.strata, _strata_tag(found))


def assign_letters(systems: Sequence[str]) -> dict[str, str]:
    """Assign a letter to each system, or a number if there are too many systems.

    >>> assign_letters(["bm25", "dense"])
    {'bm25': 'a', 'dense': 'b'}
    """
    letters = list(SUPERSCRIPTS) if len(systems) <= len(SUPERSCRIPTS) else map(str, range(1, len(systems) + 1))
    return dict(zip(systems, letters, strict=False))


def find_significant_wins(found: Comparisons) -> dict[tuple[str, str], list[str]]:
    """Return `{(measure, system): systems that it is significantly better than}`.

    The systems are in their original order.
    """
    losers: dict[tuple[str, str], list[str]] = {}
    for row in found:
        if found.sure(row):
            winner, loser = (row.system, row.baseline) if row.better else (row.baseline, row.system)
            losers.setdefault((row.measure, winner), []).append(loser)
    return {place: sorted(names, key=list(found.systems).index) for place, names in losers.items()}


def build_means_table(found: Comparisons) -> ComparisonTable:
    """Build a table of means with letters for significantly worse systems."""
    names, losers = assign_letters(found.systems), find_significant_wins(found)
    means = {(row.measure, name): mean for row in found for name, mean in zip(_pair_names(row), row.means, strict=True)}
    rows = []
    for name in found.systems:
        cells = []
        for measure in found.measures:
            above = [names[loser] for loser in losers.get((measure, name), ())]
            raised = f" ({' '.join(above)})" if above else ""
            if all(one in SUPERSCRIPTS for one in above):
                raised = "".join(SUPERSCRIPTS[one] for one in above)
            cells.append(format_score(means[measure, name]) + raised)
        rows.append([f"{names[name]} {one_line(name)}", *cells])
    header = ["system", *found.measures]
    return ComparisonTable("", header, rows, [False] * len(rows), left=range(1, len(header)))


def _strata_tag(found: Comparisons) -> str:
    """Return the tag of the strata, or `stratum` if they have no common tag."""
    tags = {row.stratum.partition("=")[0] for row in found.strata if "=" in row.stratum}
    return tags.pop() if len(tags) == 1 else "stratum"


def _pair_names(row: Comparison) -> tuple[str, str]:
    return row.baseline, row.system


def _pairwise_tables(found: Comparisons, rows: Sequence[Comparison], tag: str = "") -> Iterator[ComparisonTable]:
    """Yield a table per measure, or a single table if only two systems are compared."""
    if not rows:
        return
    if len(found.systems) == 2:
        base, system = _pair_names(rows[0])
        first: ComparisonColumns = [("measure", lambda row: row.measure, 0)]
        yield _build_pairwise_table(found, rows, f"{system} against {base}", first, tag)
        return
    for measure in found.measures:
        mine = [row for row in rows if row.measure == measure]
        if not mine:
            continue
        first = [("system", lambda row: row.system, 0)]
        title = measure
        if found.baseline is None:
            first.append(("against", lambda row: row.baseline, 0))
        else:
            title += f" against {found.baseline}"
            title += "" if tag else f" ({format_score(mine[0].means[0])}, n={mine[0].n})"
        yield _build_pairwise_table(found, mine, title, first, tag)


def _build_pairwise_table(
    found: Comparisons, rows: Sequence[Comparison], title: str, first: ComparisonColumns, tag: str
) -> ComparisonTable:
    method = found.method
    two = first[0][0] == "measure"
    columns: ComparisonColumns = list(first)
    if tag:
        columns.append((tag, lambda row: row.stratum.removeprefix(f"{tag}="), 0))
    if tag or two or found.baseline is None:
        columns.append(("n", lambda row: str(row.n), 8))
        columns.append((rows[0].baseline if two else "base", lambda row: format_score(row.means[0]), 6))
    columns += [
        (rows[0].system if two else "mean", lambda row: format_score(row.means[1]), 7),
        ("change", lambda row: format_signed(row.difference), 0),
        ("%", lambda row: "-" if math.isnan(row.percent) else f"{row.percent:+.1f}%", 3),
        (f"{100 * method.confidence:g}% interval", lambda row: format_interval(row.ci), 0),
    ]
    if _p_column_title(found) != "p_t":
        columns.append(("p_t", lambda row: format_number(row.p_t, "p"), 5))
    decides = len(columns)
    columns += [
        (_p_column_title(found), lambda row: f"{format_number(row.p_corrected, 'p'):>6} {row.stars}".rstrip(), 0),
        ("d", lambda row: format_signed(row.effect, 2), 4),
        ("won/lost/tied", lambda row: f"{row.wins}/{row.losses}/{row.ties}", 2),
        ("detects", lambda row: format_score(row.detectable), 1),
    ]
    if method.margin is not None:
        columns.append(
            ("noninf", lambda row: "-" if row.margin is None else format_number(row.margin.p_noninferior, "p"), 0)
        )
        columns.append(
            ("equiv", lambda row: "-" if row.margin is None else format_number(row.margin.p_equivalent, "p"), 0)
        )
    if method.detect is not None:
        columns.append(("needs", lambda row: f"{row.needed:,}" if row.needed else "-", 0))
    if any(row.seeds is not None for row in rows):
        columns.append(("run by run", _seed_range_text, 9))
    lines = [[_printable_cell(cells(row)) for _, cells, _ in columns] for row in rows]
    header = [name for name, _, _ in columns]
    goes = sorted((i for i, column in enumerate(columns) if column[2]), key=lambda i: columns[i][2])
    return ComparisonTable(title, header, lines, [found.sure(row) for row in rows], goes, [decides])


def _printable_cell(text: str) -> str:
    return text if text.isprintable() else one_line(text)  # Leading blanks of a number are kept.


def _p_column_title(found: Comparisons) -> str:
    """Return the title of the column with the p-value to decide by."""
    method = found.method
    if method.correction != "none":
        return f"p {method.correction}"
    return "p_t" if method.test == "t" else f"p {method.test}"


def _seed_range_text(row: Comparison) -> str:
    if row.seeds is None:
        return "-"
    return f"{min(row.seeds.differences):+.4f} to {max(row.seeds.differences):+.4f}" + (" flips" * row.seeds.flips)


def format_signed(value: float, digits: int = 4) -> str:
    """Format a number with its sign, or "-" for NaN."""
    return "-" if math.isnan(value) else f"{value:+.{digits}f}"


def format_interval(ends: tuple[float, float]) -> str:
    """Format an interval in brackets, or "-" if it is NaN."""
    return "-" if math.isnan(ends[0]) else f"[{ends[0]:+.4f}, {ends[1]:+.4f}]"


def render_comparison_tables(
    found: Comparisons, width: int, moved: int, marks: str = SPARKLINE_BLOCKS
) -> tuple[list[Table | Text], list[str]]:
    """Render all tables for a terminal, and list the columns that do not fit.

    `marks` are the characters of the profiles, which are drawn if two systems are compared.
    """
    pieces: list[Table | Text] = []
    left: dict[str, None] = {}
    for part in build_comparison_tables(found):
        if part.title:
            pieces.append(terminal_cell(part.title, "bold"))
        kept = fit_columns(part.header, part.rows, width, part.goes)
        left.update(dict.fromkeys(title for i, title in enumerate(part.header) if i not in kept))
        table = borderless_table([part.header[i] for i in kept])
        for i in part.left:
            table.columns[kept.index(i)].justify = "left"
        names = shorten_names(part.header, part.rows, kept, width)
        for name, row, sure in zip(names, part.rows, part.sure, strict=True):
            cells = [terminal_cell(row[i], "bold" if sure and i in part.left else "") for i in kept[1:]]
            table.add_row(terminal_cell(name), *cells)
        pieces += [table, Text("")]
    if len(found.systems) == 2:
        drawn = render_profiles(found, marks)
        pieces += [terminal_cell(line) for line in drawn if max(map(len, drawn)) <= width] + [Text("")] * bool(drawn)
    for part in build_changed_query_tables(found, moved) if moved else ():
        pieces += [terminal_cell(part.title, "bold"), _render_changed_queries(part, width), Text("")]
    return pieces[:-1], list(left)


def render_profiles(found: Comparisons, marks: str = SPARKLINE_BLOCKS) -> list[str]:
    """Render the sorted per-query differences of each measure as a line.

    A gap marks queries without a difference.
    """
    lines = []
    wide = max(map(len, found.measures))
    for row in found.rows:
        changes = sorted([*(one.difference for one in row.moved), *[0.0] * (row.n - len(row.moved))])
        most = max(map(abs, changes), default=0.0)
        if most > 0:
            drawn = sparkline(
                [one or None for one in downsample(changes, PROFILE_WIDTH_CHARS)], -most, most, marks=marks
            )
            lines.append(f"{row.measure:<{wide}}  {changes[0]:+.4f} {drawn} {changes[-1]:+.4f}")
    return ["query by query, from the lowest difference to the highest; a gap: none", *lines] if lines else []


def build_changed_query_tables(found: Comparisons, count: int) -> Iterator[ComparisonTable]:
    """Yield a table per pair of the queries that rose and fell most.

    Only the first measure is used.
    """
    for row in found.rows:
        if row.measure != found.measures[0] or not row.moved:
            continue
        rose = [one for one in row.moved if one.difference > 0][:count]
        fell = [one for one in row.moved if one.difference < 0][:count]
        lines = []
        for word, several in (("rose", rose), ("fell", fell)):
            for i, one in enumerate(several):
                cells = [word if i == 0 else "", one.query, format_score(one.baseline), format_score(one.system)]
                asked = [found.texts.get(one.query, "")] if found.texts else []
                lines.append([one_line(part) for part in [*cells, format_signed(one.difference), *asked]])
        header = ["", "query", row.baseline, row.system, "change", *(["asked"] if found.texts else [])]
        title = f"queries that moved most by {row.measure}: {row.system} against {row.baseline}"
        yield ComparisonTable(title, header, lines, [False] * len(lines))


def _render_changed_queries(part: ComparisonTable, width: int) -> Table:
    """Render the changed queries.

    On a narrow terminal, only the query texts are shortened.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    asked = part.header.index("asked", 5) if len(part.header) > 5 else None
    taken = sum(max(len(line[i]) for line in [part.header, *part.rows]) + 2 for i in range(5))
    for i, title in enumerate(part.header):
        table.add_column(terminal_cell(title), justify="left" if i < 2 or i == asked else "right", no_wrap=True)
    room = max(20, width - taken)
    for line in part.rows:
        texts = [text if len(text) <= room else f"{text[: room - 1]}…" for text in line[5:]]
        table.add_row(*map(terminal_cell, [*line[:5], *texts]))
    return table


def summarise_comparisons(found: Comparisons) -> list[str]:
    """Summarise the significant differences, one line per measure and per margin test."""
    lines = []
    for measure in found.measures:
        mine = [row for row in found.rows if row.measure == measure and row.n]
        if not mine:  # The measure is undefined for every pair; the notes give the reason.
            continue
        words: dict[str, list[str]] = {"better": [], "worse": [], "not told apart": []}
        for row in mine:
            word = "not told apart" if not found.sure(row) else "better" if row.better else "worse"
            words[word].append(row.system if found.baseline is not None else f"{row.system} and {row.baseline}")
        if found.baseline is not None:
            said = "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items() if names)
            lines.append(f"{measure} against {found.baseline}: {said}")
        for row in mine if found.method.margin is not None else ():
            lines.append(_describe_margin_test(row, found.method.alpha))
    return lines


def _describe_margin_test(row: Comparison, alpha: float) -> str:
    if row.margin is None or math.isnan(row.margin.p_noninferior):
        return f"{row.measure}: too few queries to hold {row.system} to a margin"
    margin = f"{row.margin.margin:g}"
    one = "is not worse" if row.margin.p_noninferior < alpha else "may be worse"
    two = "is" if row.margin.p_equivalent < alpha else "is not shown to be"
    worse, within = format_number(row.margin.p_noninferior, "p"), format_number(row.margin.p_equivalent, "p")
    return (
        f"{row.measure}: {row.system} {one} than {row.baseline} by {margin} or more (p {worse}), "
        f"and {two} within {margin} of it (p {within})"
    )


def _family_size(rows: Sequence[Comparison], found: Comparisons) -> int:
    """Return the number of comparisons that p is corrected for."""
    return len(rows) if found.method.family == "all" else sum(row.measure == rows[0].measure for row in rows)


def describe_test(found: Comparisons) -> str:
    """Describe the test that decides, and its correction."""
    method = found.method
    over = " over queries and seeds" * (method.test == "t" and any(row.seeds is not None for row in found.rows))
    if method.correction == "none":
        return f"{TEST_NAMES[method.test]}{over}, uncorrected"
    family = _family_size(found.rows, found)
    each = " of each measure" * (method.family == "measure" and len(found.measures) > 1)
    many = pluralise(family, "comparison") + each
    return f"{TEST_NAMES[method.test]}{over}, {CORRECTION_NAMES[method.correction]} for {many}"


def describe_comparisons(found: Comparisons) -> list[str]:
    """Describe how the numbers were computed, with notes and conclusions."""
    method = found.method
    first = [row for row in found.rows if row.measure == found.measures[0]]
    seeds = any(row.seeds is not None for row in found.rows)
    over = ", over queries and seeds" * seeds
    decides = _p_column_title(found)
    lines = [] if decides == "p_t" else [f"p_t: paired t-test, two-sided{over}, uncorrected"]
    strata = (
        f", in strata for {_family_size(found.strata, found)}" if found.strata and method.correction != "none" else ""
    )
    sides = ", two-sided" * (decides == "p_t")
    lines.append(f"{decides}, to decide by: {describe_test(found)}{sides}{strata}; {STARS_LEGEND}, ns otherwise")
    kind = "hierarchical" if seeds else "BCa" if method.interval == "bca" else "percentile"
    lines.append(
        f"interval: of the difference, {kind} bootstrap, {method.rounds:,} resamples of queries{' and seeds' * seeds}"
    )
    shares = sorted(row.seeds.share for row in first if row.seeds is not None and not math.isnan(row.seeds.share))
    if shares:
        span = " to ".join(dict.fromkeys(f"{one:.0%}" for one in (shares[0], shares[-1])))
        lines.append(f"more seeds would take away {span} of the variance of a difference in {first[0].measure}")
    finds = [row.detectable for row in first if not math.isnan(row.detectable)]
    if finds:
        span = f"{min(finds):.4f}" + (f" to {max(finds):.4f}" if max(finds) - min(finds) > 5e-5 else "")
        lines.append(
            f"{first[0].n} queries detect a true difference in {first[0].measure} of {span} "
            f"(power {method.power:.0%}, level {method.alpha:g})"
        )
    if any(row.stratum.startswith("complexity=") for row in found.strata):
        lines.append("complexity: simple up to 3 relevant documents, medium up to 6, complex beyond")
    if method.detect is not None:
        lines.append(f"needs: so many queries detect a true difference of {method.detect:g}")
    data = ", ".join(filter(None, [found.dataset, found.convention and f"convention {found.convention}"]))
    return [
        *lines,
        *([data] if data else []),
        *describe_run_dates(found.answers),
        *found.notes,
        *summarise_comparisons(found),
    ]


def render_comparisons_markdown(found: Comparisons, moved: int) -> str:
    """Render the tables and their description as Markdown."""
    lines: list[str] = []
    for part in (*build_comparison_tables(found), *(build_changed_query_tables(found, moved) if moved else ())):
        lines += [f"### {escape_markdown(part.title)}", ""] if part.title else []
        lines += [*render_markdown_table(part.header, part.rows), ""]
    return "\n".join([*lines, *(f"- {escape_markdown(line)}" for line in describe_comparisons(found)), ""])


def comparisons_to_csv(found: Comparisons) -> str:
    """Format the comparisons as CSV with one row per comparison and stratum."""
    return str(found.to_polars().write_csv())


def comparisons_to_data(found: Comparisons, moved: int) -> dict[str, Any]:
    """Return all comparisons as JSON data; NaN becomes None."""
    data = {
        "comparisons": [comparison_to_data(row, moved, found.texts) for row in found.rows],
        "strata": [comparison_to_data(row, moved, found.texts) for row in found.strata],
        "baseline": found.baseline,
        "systems": list(found.systems),
        "dataset": found.dataset or None,
        "convention": found.convention or None,
        "answers": {name: date._asdict() for name, date in found.answers.items()},
        "method": {name: value for name, value in asdict(found.method).items() if not name.endswith("_is_better")},
        "notes": list(found.notes),
        "verdicts": summarise_comparisons(found),
    }
    return dict(replace_nan(data))


def comparison_to_data(row: Comparison, moved: int, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return one comparison as data.

    `moved` is the number of queries that rose most, and that fell most.
    """
    held = ("ci_low", "ci_high", "seeds_share")  # These are in `ci` and `seeds`.
    flat: dict[str, Any] = {name: value for name, value in comparison_fields(row).items() if name not in held}
    flat["ci"] = list(row.ci)
    flat["lower_is_better"] = row.lower_is_better
    flat["seeds"] = None if row.seeds is None else asdict(row.seeds)
    rose = [one for one in row.moved if one.difference > 0][:moved]
    fell = [one for one in row.moved if one.difference < 0][:moved]
    flat["moved"] = [
        {**one._asdict(), **({"text": texts[one.query]} if one.query in texts else {})} for one in [*rose, *fell]
    ]
    return flat
