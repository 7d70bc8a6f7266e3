"""Report of a comparison: means, differences with tests, strata, and the queries that changed most."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from ragauge.core.run_dates import describe_run_dates
from ragauge.core.summaries import Mean
from ragauge.evaluation.indicators import find_aggregate, find_measure, measure_span
from ragauge.measures.registry import total
from ragauge.output.numbers import format_interval, format_level, format_number, format_score, join_with_and, pluralise
from ragauge.output.report import ALL_FORMATS, Block, Report, ResultReporter, Section, TableBuilder
from ragauge.output.sparklines import SPARKLINE_BLOCKS, downsample, sparkline
from ragauge.output.tables import SUPERSCRIPTS, Cell, Column, Row, Table
from ragauge.stats.comparisons import ChangedQuery, Comparison, Comparisons, comparison_fields
from ragauge.stats.margin_tests import MIN_DIFFERING_QUERIES

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
MAX_CHANGED_QUERIES = 10
"""Maximum number of queries that a report lists as risen, and as fallen."""
NOT_LATEX = ALL_FORMATS - {"latex"}
UNREPORTED_CONVENTIONS = ("", "default", "as given")
"""Conventions that are not worth mentioning in a caption."""
"""Names of measures in papers. Other measures keep their ragauge name."""


def build_report(comparisons: Comparisons, *, changed_queries: int = MAX_CHANGED_QUERIES) -> Report:
    """Build the report of a comparison.

    `changed_queries` is the number of queries per pair that are listed as risen, and as fallen.
    """
    summary, *details = summarise_comparisons(comparisons) or ["No pair of systems has a query in common."]
    tables = list(_pairwise_tables(comparisons, comparisons.rows))
    sections = [
        Section("means", "Means", [_build_paper_table(comparisons)], formats=frozenset({"latex"})),
        Section("means", "Means", _means_blocks(comparisons), "Means", NOT_LATEX),
        Section("differences", "Differences", tables, "Differences", NOT_LATEX),
        Section("strata", "Strata", list(_pairwise_tables(comparisons, comparisons.strata)), "Strata", NOT_LATEX),
        Section(
            "profiles", "Differences per query, in ascending order", _profile_blocks(comparisons), formats=NOT_LATEX
        ),
        Section(
            "queries", "Queries that changed most", _query_blocks(comparisons, changed_queries), "Queries", NOT_LATEX
        ),
    ]
    return Report(
        "compare",
        "Comparison",
        summary,
        [section for section in sections if section.blocks],
        list(filter(None, [comparisons.dataset, comparisons.convention and f"convention {comparisons.convention}"])),
        details,
        notes=describe_comparisons(comparisons),
    )


def assign_letters(systems: Sequence[str]) -> dict[str, str]:
    """Assign a letter to each system, or a number if there are too many systems.

    >>> assign_letters(["bm25", "dense"])
    {'bm25': 'a', 'dense': 'b'}
    """
    letters = list(SUPERSCRIPTS) if len(systems) <= len(SUPERSCRIPTS) else map(str, range(1, len(systems) + 1))
    return dict(zip(systems, letters, strict=False))


def find_significant_wins(comparisons: Comparisons) -> dict[tuple[str, str], list[str]]:
    """Return `{(measure, system): systems that it is significantly better than}`.

    The systems are in their original order.
    """
    losers: dict[tuple[str, str], list[str]] = {}
    for row in comparisons:
        if comparisons.is_significant(row):
            winner, loser = (row.system, row.baseline) if row.better else (row.baseline, row.system)
            losers.setdefault((row.measure, winner), []).append(loser)
    return {key: sorted(names, key=list(comparisons.systems).index) for key, names in losers.items()}


def build_means_table(comparisons: Comparisons) -> Table:
    """Build the table of systems by measures.

    Without a baseline, each value has the letters of the systems that it is significantly better than; otherwise the
    stars of its difference to the baseline.
    """
    letters = assign_letters(comparisons.systems) if comparisons.baseline is None else {}
    losers = find_significant_wins(comparisons)
    stars = {(row.measure, row.system): row.stars for row in comparisons if row.stars.startswith("*")}
    means = collect_means(comparisons)
    lower = {row.measure for row in comparisons if row.lower_is_better}
    columns = [Column("system", "name")]
    for measure in comparisons.measures:
        is_count = find_aggregate(measure) is total
        style = "count" if is_count else "score"
        columns.append(Column(measure, style, 0 if is_count else -1 if measure in lower else 1))
    rows: list[Row] = []
    for name in comparisons.systems:
        cells = [Cell(f"{letters[name]} {name}" if letters else name)]
        for measure in comparisons.measures:
            mean = means.get((measure, name))
            loser_letters = [letters[loser] for loser in losers.get((measure, name), ())] if letters else []
            mark = "" if letters else stars.get((measure, name), "")
            cells.append(Cell(None if mean is None else mean.value, stars=mark, letters=loser_letters))
        rows.append(cells)
    return Table("means", columns, rows)


def collect_means(comparisons: Comparisons) -> dict[tuple[str, str], Mean]:
    """Return the mean of every system by (measure, system)."""
    return {
        (row.measure, name): Mean(value, row.n)
        for row in comparisons
        for name, value in zip((row.baseline, row.system), row.means, strict=True)
    }


def _means_blocks(comparisons: Comparisons) -> list[Block]:
    """Return the table of means if every pair of several systems is compared."""
    return [build_means_table(comparisons)] if comparisons.baseline is None and len(comparisons.systems) > 2 else []


def _build_paper_table(comparisons: Comparisons) -> Table:
    """Build the table of means for a paper: with usual names of measures, marks of the best, and a caption."""
    table = build_means_table(comparisons).mark_best()
    columns = [column._replace(title=to_paper_name(column.title)) for column in table.columns]
    columns[0] = columns[0]._replace(title="System")
    counts = sorted({mean.n for mean in collect_means(comparisons).values() if mean.n})
    return replace(
        table,
        id=comparisons.dataset or "systems",
        columns=columns,
        title=describe_means(counts, comparisons.dataset, comparisons.convention),
        note=". ".join([*describe_best(len(comparisons.systems)), describe_marks(comparisons)]),
    )


def to_paper_name(measure: str) -> str:
    """Return a measure's name as papers write it, with options and cutoff.

    >>> [to_paper_name(one) for one in ("ndcg@10", "recall(of=capped)@5", "hit_rate@1", "my_own@3")]
    ['nDCG@10', 'Recall(of=capped)@5', 'Hit rate@1', 'my_own@3']
    """
    known_measure = find_measure(measure)
    if known_measure is None:
        return measure
    spec = known_measure.spec
    return (spec.paper or spec.name) + measure.removeprefix(spec.name)


def describe_means(counts: Sequence[int], dataset: str, convention: str) -> str:
    """Describe over how many queries means were computed.

    >>> describe_means([8, 10], "docs", "trec9")
    'Means over 8 to 10 queries of docs, convention trec9'
    >>> describe_means([43], "", "default, rel=2.0")
    'Means over 43 queries, rel=2'
    """
    subject = f" over {counts[0]:,} to" if len(counts) > 1 else " over" if counts else ""
    subject += f" {pluralise(counts[-1], 'query')}" if counts else ""
    options = re.sub(r"=(\d+)\.0\b", r"=\1", convention)
    if options.startswith("default, "):
        convention_text = options.removeprefix("default")
    else:
        convention_text = f", convention {options}" if options not in UNREPORTED_CONVENTIONS else ""
    return f"Means{subject}{f' of {dataset}' if dataset else ''}{convention_text}"


def describe_best(systems: int) -> list[str]:
    """Describe the emphasis of the best systems, if there are several systems."""
    return [] if systems < 2 else ["Best in bold, second best underlined" if systems > 2 else "Best in bold"]


def describe_marks(comparisons: Comparisons) -> str:
    """Describe what letters or stars at a mean stand for."""
    tested = f"two-sided {describe_test(comparisons)}"
    if comparisons.baseline is None:
        level = format_number(comparisons.method.alpha, "number")
        return f"A raised letter: significantly better than that system ({tested}, p < {level})"
    return f"Stars: differs from {comparisons.baseline} ({tested}; {STARS_LEGEND})"


def _pairwise_tables(comparisons: Comparisons, rows: Sequence[Comparison]) -> Iterator[Table]:
    """Yield a table per measure, or a single table if only two systems are compared."""
    if not rows:
        return
    has_strata = any(row.stratum for row in rows)
    if len(comparisons.systems) == 2:
        columns = [Column("measure", "name")]
        lead: list[Row] = [[row.measure] for row in rows]
        title = f"{rows[0].system} against {rows[0].baseline}"
        yield _build_pairwise_table(comparisons, rows, title, (columns, lead))
        return
    for measure in comparisons.measures:
        measure_rows = [row for row in rows if row.measure == measure]
        if not measure_rows:
            continue
        columns, title = [Column("system", "name")], measure
        lead = [[row.system] for row in measure_rows]
        if comparisons.baseline is None:
            columns.append(Column("against", "name"))
            lead = [[row.system, row.baseline] for row in measure_rows]
        else:
            title += f" against {comparisons.baseline}"
            title += "" if has_strata else f" ({format_score(measure_rows[0].means[0])}, n={measure_rows[0].n})"
        yield _build_pairwise_table(comparisons, measure_rows, title, (columns, lead))


def _build_pairwise_table(
    comparisons: Comparisons, rows: Sequence[Comparison], title: str, first: tuple[Sequence[Column], Sequence[Row]]
) -> Table:
    """Build a table of comparisons; `first` are the first columns with their cells."""
    method, is_pair = comparisons.method, len(comparisons.systems) == 2
    columns, cells = list(first[0]), [list(row) for row in first[1]]

    def add(column: Column, values: Sequence[Cell | float | str | None]) -> None:
        columns.append(column)
        for row, value in zip(cells, values, strict=True):
            row.append(value)

    has_strata = any(row.stratum for row in rows)
    if has_strata:
        strata = [row.stratum.removeprefix(f"{comparisons.tag}=") for row in rows]
        add(Column(comparisons.tag or "stratum", "name"), strata)
    if has_strata or is_pair or comparisons.baseline is None:
        add(Column("n", "count", drop_order=8, legend="number of queries"), [row.n for row in rows])
        base = rows[0].baseline if is_pair else "base"
        add(Column(base, "score", drop_order=6), [row.means[0] for row in rows])
    add(Column(rows[0].system if is_pair else "mean", "score", drop_order=7), [row.means[1] for row in rows])
    add(Column("change", "signed"), [row.difference for row in rows])
    add(Column("%", "signed share", drop_order=3), [row.percent / 100 for row in rows])
    intervals = [Cell(row.ci[0], text=format_interval(*row.ci, "signed")) for row in rows]
    add(
        Column(f"{format_level(method.confidence)} interval", "signed", legend=_describe_interval(comparisons)),
        intervals,
    )
    decides = _p_column_title(comparisons)
    if decides != "p_t":
        add(
            Column("p_t", "p", drop_order=5, legend=f"{_describe_t_test(comparisons)}, uncorrected"),
            [r.p_t for r in rows],
        )
    p_values = [Cell(row.p_corrected, stars=row.stars, significant=comparisons.is_significant(row)) for row in rows]
    add(Column(decides, "p", legend=_describe_decision(comparisons)), p_values)
    add(Column("d", "effect", drop_order=4, legend="Cohen's d for pairs"), [row.effect for row in rows])
    outcomes = [Cell(row.wins, text=f"{row.wins}/{row.losses}/{row.ties}") for row in rows]
    add(Column("won/lost/tied", "count", drop_order=2), outcomes)
    detects = Column("detects", "score", drop_order=1, legend="smallest true difference detected with the given power")
    add(detects, list(map(find_detectable, rows)))
    if method.margin is not None:
        tests = [row.margin for row in rows]
        legend = f"p-value for a margin of {format_number(method.margin, 'number')}"
        add(Column("noninf", "p", legend=legend), [None if test is None else test.p_noninferior for test in tests])
        add(Column("equiv", "p", legend=legend), [None if test is None else test.p_equivalent for test in tests])
    if method.detect is not None:
        legend = f"number of queries that detect a true difference of {format_number(method.detect, 'number')}"
        add(Column("needs", "count", legend=legend), [row.queries_needed for row in rows])
    if any(row.seeds is not None for row in rows):
        add(Column("run by run", "text", drop_order=9, legend="lowest and highest"), [_seed_range(row) for row in rows])
    return Table(f"differences-{'-'.join(dict.fromkeys(row.measure for row in rows))}", columns, cells, title)


def _p_column_title(comparisons: Comparisons) -> str:
    """Return the title of the column with the p-value to decide by."""
    method = comparisons.method
    if method.correction != "none":
        return f"p {method.correction}"
    return "p_t" if method.test == "t" else f"p {method.test}"


def _seed_range(row: Comparison) -> str:
    if row.seeds is None:
        return "-"
    ends = (format_number(end, "signed") for end in (min(row.seeds.differences), max(row.seeds.differences)))
    return " to ".join(ends) + (" flips" if row.seeds.flips else "")


def _profile_blocks(comparisons: Comparisons) -> list[Block]:
    """Return the sorted per-query differences as a line per measure, if two systems are compared.

    Differences whose queries were left out of the result cannot be drawn.
    """
    if len(comparisons.systems) != 2:
        return []
    rows: list[Row] = []
    for row in comparisons.rows:
        changes = sorted([*(query.difference for query in row.moved), *[0.0] * row.ties])
        largest = max(map(abs, changes), default=0.0)
        if largest > 0 and len(row.moved) == row.wins + row.losses:
            sampled = [value or None for value in downsample(changes, PROFILE_WIDTH_CHARS)]
            line = sparkline(sampled, -largest, largest, marks=SPARKLINE_BLOCKS)
            rows.append([row.measure, changes[0], Cell(f"|{line}|"), changes[-1]])
    columns = [
        Column("measure", "name"),
        Column("lowest", "signed"),
        Column("differences"),
        Column("highest", "signed"),
    ]
    return [Table("profiles", columns, rows, note="A gap: no difference.")] if rows else []


def keep_changed_queries(comparisons: Comparisons, count: int) -> Comparisons:
    """Keep the queries that rose and fell most, `count` of each per comparison, and their texts."""
    rows, strata = (
        [replace(row, moved=list(chain(*find_most_changed(row, count)))) for row in several]
        for several in (comparisons.rows, comparisons.strata)
    )
    queries = {query.query for row in (*rows, *strata) for query in row.moved}
    texts = {query: text for query, text in comparisons.texts.items() if query in queries}
    return replace(comparisons, rows=rows, strata=strata, texts=texts)


def find_most_changed(row: Comparison, count: int) -> tuple[list[ChangedQuery], list[ChangedQuery]]:
    """Return the `count` queries whose score rose most, and those whose score fell most."""
    risen = [query for query in row.moved if query.difference > 0]
    return risen[:count], [query for query in row.moved if query.difference < 0][:count]


def _query_blocks(comparisons: Comparisons, count: int) -> list[Block]:
    """Return a table per pair of the queries that rose and fell most by the first measure."""
    blocks: list[Block] = []
    for row in comparisons.rows if count else ():
        if row.measure != comparisons.measures[0] or not row.moved:
            continue
        columns = [
            Column("", "text"),
            Column("query", "name"),
            Column(row.baseline, "score"),
            Column(row.system, "score"),
            Column("change", "signed"),
            *([Column("text")] if comparisons.texts else []),
        ]
        rows: list[Row] = []
        for word, changed_queries in zip(("rose", "fell"), find_most_changed(row, count), strict=True):
            for query in changed_queries:
                text = [comparisons.texts.get(query.query, "")] if comparisons.texts else []
                rows.append([word, query.query, query.baseline, query.system, query.difference, *text])
        title = f"{row.measure}: {row.system} against {row.baseline}"
        blocks.append(Table(f"queries-{row.system}-{row.baseline}", columns, rows, title, group_by=0))
    return blocks


def summarise_comparisons(comparisons: Comparisons) -> list[str]:
    """Summarise the significant differences, one sentence per measure and per margin test."""
    lines = []
    for measure in comparisons.measures:
        rows = [row for row in comparisons.rows if row.measure == measure and row.n]
        if not rows:  # The measure is undefined for every pair; the notes give the reason.
            continue
        significant = [row for row in rows if comparisons.is_significant(row)]
        if comparisons.baseline is None and len(rows) > 1:
            lines.append(f"{measure}: {len(significant)} of {len(rows)} pairs differ significantly.")
        else:
            lines.append(f"{measure}: {_describe_outcomes(rows, significant)}.")
        for row in rows if comparisons.method.margin is not None else ():
            lines.append(_describe_margin_test(row, comparisons.method.alpha))
    return lines


def find_detectable(row: Comparison) -> float | None:
    """Return the smallest difference that a comparison detects; None if it is unknown or exceeds the range."""
    return row.detectable if row.detectable <= measure_span(row.measure) else None


def _describe_outcomes(rows: Sequence[Comparison], significant: Sequence[Comparison]) -> str:
    """Describe which systems differ significantly from the one that they are all compared with."""
    clauses = []
    for adverb, is_better in (("better", True), ("worse", False)):
        systems = [row.system for row in significant if row.better == is_better]
        verb = "is" if len(systems) == 1 else "are"
        if systems:
            clauses.append(f"{join_with_and(systems)} {verb} significantly {adverb} than {rows[0].baseline}")
    others = [row.system for row in rows if row not in significant]
    if others:
        clauses.append(f"no significant difference between {join_with_and(others)} and {rows[0].baseline}")
    return "; ".join(clauses)


def _describe_margin_test(row: Comparison, alpha: float) -> str:
    test, differing = row.margin, row.n - row.ties
    if test is None or row.n < 2:
        return f"{row.measure}: too few queries to test {row.system} with a margin."
    if math.isnan(test.p_noninferior):
        needed = f"with a margin needs {MIN_DIFFERING_QUERIES}, because the range of {row.measure} is unknown"
        return f"{row.measure}: {differing} of {row.n} queries differ; a test of {row.system} {needed}."
    margin = format_number(test.margin, "number")
    noninferior = "is not worse" if test.p_noninferior < alpha else "may be worse"
    equivalent = "is" if test.p_equivalent < alpha else "is not shown to be"
    sentence = (
        f"{row.measure}: {row.system} {noninferior} than {row.baseline} by {margin} or more "
        f"(p {format_number(test.p_noninferior, 'p')}), "
        f"and {equivalent} within {margin} of it (p {format_number(test.p_equivalent, 'p')})"
    )
    if test.p_equivalent < alpha or test.queries_needed is None or row.n >= test.queries_needed:
        return f"{sentence}."
    return f"{sentence}; even without any difference, this needs {test.queries_needed:,} queries."


def _family_size(rows: Sequence[Comparison], comparisons: Comparisons) -> int:
    """Return the number of comparisons that p is corrected for."""
    return len(rows) if comparisons.method.family == "all" else sum(row.measure == rows[0].measure for row in rows)


def describe_test(comparisons: Comparisons) -> str:
    """Describe the test that decides, and its correction."""
    method = comparisons.method
    units = " over queries and seeds" * (method.test == "t" and _has_seeds(comparisons))
    if method.correction == "none":
        return f"{TEST_NAMES[method.test]}{units}, uncorrected"
    family = _family_size(comparisons.rows, comparisons)
    per_measure = " per measure" * (method.family == "measure" and len(comparisons.measures) > 1)
    family_text = pluralise(family, "comparison") + per_measure
    return f"{TEST_NAMES[method.test]}{units}, {CORRECTION_NAMES[method.correction]} for {family_text}"


def _has_seeds(comparisons: Comparisons) -> bool:
    return any(row.seeds is not None for row in comparisons.rows)


def _describe_t_test(comparisons: Comparisons) -> str:
    return f"paired t-test, two-sided{', over queries and seeds' if _has_seeds(comparisons) else ''}"


def _describe_decision(comparisons: Comparisons) -> str:
    """Describe the p-value that decides, and its stars."""
    two_sided = ", two-sided" if _p_column_title(comparisons) == "p_t" else ""
    corrected = comparisons.strata and comparisons.method.correction != "none"
    strata = f", in strata for {_family_size(comparisons.strata, comparisons)}" if corrected else ""
    return f"{describe_test(comparisons)}{two_sided}{strata}; {STARS_LEGEND}, ns otherwise"


def _describe_interval(comparisons: Comparisons) -> str:
    method = comparisons.method
    kind = "hierarchical" if _has_seeds(comparisons) else "BCa" if method.interval == "bca" else "percentile"
    units = "queries and seeds" if _has_seeds(comparisons) else "queries"
    return f"{kind} bootstrap of the change, {method.rounds:,} resamples of {units}"


def describe_comparisons(comparisons: Comparisons) -> list[str]:
    """Describe what makes the numbers unreliable, and then how they were computed."""
    method = comparisons.method
    first = [row for row in comparisons.rows if row.measure == comparisons.measures[0]]
    lines = [
        f"{_p_column_title(comparisons)}: {_describe_decision(comparisons)}",
        f"interval: {_describe_interval(comparisons)}",
    ]
    shares = sorted(row.seeds.share for row in first if row.seeds is not None and not math.isnan(row.seeds.share))
    if shares:
        span = " to ".join(dict.fromkeys(format_number(value, "share") for value in (shares[0], shares[-1])))
        lines.append(f"more seeds would remove {span} of the variance of a difference in {first[0].measure}")
    detectable = [value for row in first if (value := find_detectable(row)) is not None]
    if first and not detectable and any(row.detectable > measure_span(row.measure) for row in first):
        lines.append(f"{first[0].n} queries are too few to detect any difference in {first[0].measure}")
    if detectable:
        ends = dict.fromkeys(format_number(value) for value in (min(detectable), max(detectable)))
        lines.append(
            f"{first[0].n} queries detect a true difference in {first[0].measure} of {' to '.join(ends)} "
            f"(power {format_level(method.power)}, level {format_number(method.alpha, 'number')})"
        )
    if comparisons.tag == "complexity":
        lines.append("complexity: simple up to 3 relevant documents, medium up to 6, complex beyond")
    return [*comparisons.notes, *lines, *describe_run_dates(comparisons.run_dates)]


def build_comparisons_table(comparisons: Comparisons) -> Table:
    """Build the table with one row per comparison and stratum, with exact numbers."""
    return build_fields_table([*comparisons.rows, *comparisons.strata])


def build_fields_table(rows: Sequence[Comparison]) -> Table:
    """Build the table with one row per comparison and all its values."""
    records = [comparison_fields(row) for row in rows]
    columns = [Column(name) for name in records[0]] if records else []
    return Table("comparisons", columns, [list(record.values()) for record in records])


REPORTER = ResultReporter(
    build_report, {"csv": TableBuilder("one row per comparison and stratum", build_comparisons_table)}
)
