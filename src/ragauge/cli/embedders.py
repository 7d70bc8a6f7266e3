"""`ragauge embedders DATASET -e NAME …`: compare embedders on the same data, retriever and context."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import check_output_libraries, require_any_option
from ragauge.cli.options import MaxQueries, OptionalConventionName, Reuse, Threads
from ragauge.cli.output import check_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.embedder_study.plan import QUICK_SETTINGS, STUDY_STORES, StudySettings
from ragauge.embedder_study.results import EmbedderStudy
from ragauge.files.workspace import check_writable

DEFAULT_SETTINGS = StudySettings()
FILE_SUFFIXES = (".html", ".json", ".csv", ".md", ".tsv")
"""Endings that a file name has and a folder name does not."""


def embedders(  # noqa: PLR0913 - each is an option of the command
    command: typer.Context,
    dataset: Annotated[
        str, typer.Argument(help="`ragauge datasets` lists those that there are; or a BEIR folder.")
    ] = "pydocs",
    embedder: Annotated[
        list[str] | None,
        typer.Option(
            "-e",
            "--embedder",
            help="minilm, 'lm(tokenizer=bytes)', 'encoder(model=FOLDER)', bm25, or NAME=…; again for more.  "
            "[dim]default a study of what is at hand[/dim]",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None, typer.Option("-m", "--measure", help="The first is what curves and losses are of.")
    ] = None,
    convention: OptionalConventionName = None,
    baseline: Annotated[
        str | None, typer.Option("-b", "--baseline", help="Hold the others against this one.  [dim]default bm25[/dim]")
    ] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Add BM25 and random vectors (chance) as baselines.")
    ] = True,
    context: Annotated[
        int, typer.Option(help="Cut every text after so many characters; 0 cuts none.")
    ] = DEFAULT_SETTINGS.context or 0,
    part: Annotated[str, typer.Option(help="What of a document is embedded: whole, text or title.")] = "whole",
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="NAME",
            help="Vector store to search in; queries are timed with the first. Can be repeated.  "
            f"[dim]default {', '.join(STUDY_STORES)}[/dim]",
        ),
    ] = None,
    dimensions: Annotated[
        str | None,
        typer.Option(
            metavar="N,…|none", help="Make vectors so small, by PCA and by cutting.  [dim]default powers of two[/dim]"
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(metavar="N,…|none", help="Also over so many documents.  [dim]default 750,1500,3000[/dim]"),
    ] = None,
    perturb: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND|all|none", help="Write queries in another way: keyboard, upper-case …; again for more."
        ),
    ] = None,
    perturbation_rate: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the words of a query that are perturbed, above 0, up to 1.")
    ] = DEFAULT_SETTINGS.rate,
    seeds: Annotated[
        int, typer.Option(metavar="N", help="Number of random draws per perturbation.")
    ] = DEFAULT_SETTINGS.seeds,
    timed: Annotated[int | None, typer.Option(help="Time so many queries, one by one.  [dim]default all[/dim]")] = None,
    threads: Threads = None,
    memory: Annotated[
        bool | None,
        typer.Option(
            "--memory/--no-memory",
            show_default="memory; no-memory with --quick",
            help="Measure the memory of each embedder in a separate process.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Quality and time only: one store, no curves, no perturbations, unless asked for."
        ),
    ] = False,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder: test, train, dev.")] = None,
    max_queries: MaxQueries = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    folder: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FOLDER", help="Keep what is finished there, to go on from; rankings as runs, a page."
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what is kept there.")] = False,
    reuse: Reuse = False,
    files: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="FILE", help="Write .html, .json, .csv or .md; again for more."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Output format, e.g. long (one row per value) or tokenization (table of the tokenization study).",
        ),
    ] = None,
    charts: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write every chart there, as SVG and as PNG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output: a row for each embedder.")] = False,
) -> None:
    """Compare embedders on the same dataset.

    [dim]ragauge embedders pydocs -e minilm -e "bytes=lm(tokenizer=bytes)" --out study -o study.html[/dim]
    """
    written = files or []
    require_any_option(command, {"fresh": ["folder"], "reuse": ["folder"]})
    if fresh and reuse:
        raise BadInput("--fresh and --reuse are mutually exclusive", hint="leave out one of them")
    check_outputs(EmbedderStudy, written, as_json=as_json, as_csv=as_csv, format_name=form)
    check_output_libraries([], charts)
    if charts is not None:
        check_writable(charts, folder=True)
    if folder is not None and Path(folder).suffix in FILE_SUFFIXES:
        raise BadInput(f"--out is a folder, and {folder} looks like a file", hint=f"-o {folder}")
    how: dict[str, Any] = {**QUICK_SETTINGS} if quick else {}
    how |= {"context": context, "part": part, "rate": perturbation_rate, "seeds": seeds, "seed": seed}
    given = {
        "stores": store,
        "dimensions": _parse_int_list(dimensions, "--dimensions"),
        "sizes": _parse_int_list(sizes, "--sizes"),
        "perturbations": _parse_perturbations(perturb),
        "timed": timed,
        "threads": threads,
        "memory": memory,
    }
    how |= {name: value for name, value in given.items() if value is not None}
    if form == "tokenization":
        measure, convention = _tokenization_measures(measure, convention)
    found = _run_study(
        folder,
        dataset=dataset,
        embedders=embedder,
        baseline=baseline,
        baselines=baselines,
        measures=measure,
        convention=convention or "default",
        split=split,
        limit=max_queries,
        out=folder,
        fresh=fresh,
        reuse=reuse,
        **how,
    )
    write_result([found], written, as_json=as_json, as_csv=as_csv, format_name=form)
    if charts is not None:
        from ragauge.reports import registry

        registry.write_results([found], [], charts=charts)
        console.print_notes([f"wrote the charts to {charts}"])
    if folder is not None:
        _write_report_page(found, folder)


def _write_report_page(found: EmbedderStudy, folder: str) -> None:
    """Write the HTML report next to the runs, and print the names of the files."""
    from ragauge.reports import registry

    told, lacking = "report.html, lineup.json", []
    try:
        registry.write_results([found], [str(Path(folder) / "report.html")])
    except MissingExtra as missing:
        told, lacking = "lineup.json", [f"no report.html: {missing.message} ({missing.hint})"]
    runs = f"and the rankings as runs: ragauge compare {shlex.quote(folder)}"
    console.print_notes([*lacking, f"{folder} has {told}, {runs}"])


def _tokenization_measures(measures: list[str] | None, convention: str | None) -> tuple[list[str], str]:
    """Return the measures and the convention of the study's table.

    Raises an error at once for measures that the table has no column for.
    """
    from ragauge.measures.conventions import find_convention
    from ragauge.measures.names import parse_measure_names
    from ragauge.reports.layouts import tokenization

    rules = find_convention(convention or tokenization.LAYOUT_MEASURES.convention)
    wanted = measures or list(tokenization.LAYOUT_MEASURES.measures)
    tokenization.check_layout_measures([str(one) for one in parse_measure_names(wanted, rules)], rules.name)
    return wanted, convention or tokenization.LAYOUT_MEASURES.convention


def _run_study(folder: str | None, **asked: Any) -> EmbedderStudy:
    from ragauge import embedder_study

    resume_hint = (
        f"finished embedders are saved in {shlex.quote(folder)}; to resume, run the same command"
        if folder
        else "document vectors are cached; add `--out FOLDER` to save finished embedders"
    )
    with show_progress(resume_hint, lines=True) as progress:
        return embedder_study.compare_embedders(progress=progress, **asked)


def _parse_int_list(text: str | None, option: str) -> Sequence[int] | None:
    """Parse integers separated by commas; `none` is an empty list.

    >>> _parse_int_list("750,1500", "--sizes"), _parse_int_list("none", "--sizes"), _parse_int_list(None, "--sizes")
    ([750, 1500], [], None)
    """
    if text is None:
        return None
    if text.strip() == "none":
        return []
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise BadInput(f"`{option} {text}` is no list of numbers", hint=f"{option} 750,1500,3000") from None


def _parse_perturbations(given: Sequence[str] | None) -> Sequence[str] | None:
    """Parse names of perturbations; `all` and `none` are allowed."""
    if not given:
        return None
    names = [name.strip() for one in given for name in one.split(",") if name.strip()]
    if names == ["none"]:
        return []
    if names == ["all"]:
        from ragauge.datasets.perturbations import PERTURBATIONS

        return list(PERTURBATIONS)
    return names
