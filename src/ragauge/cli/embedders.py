"""`ragauge embedders DATASET -e NAME …`: compare embedders on the same data, retriever and context."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.options import (
    ChartsFolder,
    DocumentPart,
    MaxQueries,
    OptionalConventionName,
    PrintJson,
    Reuse,
    Split,
    Threads,
    baseline_option,
    csv_option,
    format_option,
    measures_option,
    output_option,
)
from ragauge.cli.output import check_outputs, split_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.embedder_study.plan import QUICK_SETTINGS, STUDY_MEASURES, STUDY_STORES, StudySettings
from ragauge.embedder_study.results import EmbedderStudy
from ragauge.embedder_study.results_folder import STUDY_FILE

DEFAULT_SETTINGS = StudySettings()


def embedders(  # noqa: PLR0913 - each is an option of the command
    dataset: Annotated[
        str, typer.Argument(metavar="[DATASET]", help="Dataset (`ragauge datasets` lists them), or a BEIR folder.")
    ] = "pydocs",
    embedder: Annotated[
        list[str] | None,
        typer.Option(
            "-e",
            "--embedder",
            metavar="EMBEDDER",
            show_default="the built-in embedders, and models trained on the corpus",
            help="Embedder: minilm, 'lm(tokenizer=bytes)', 'encoder(model=FOLDER)', bm25, …; NAME=… names it. Can be "
            "repeated.",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        measures_option(", ".join(STUDY_MEASURES), "Measures, e.g. ndcg@10,map; curves are of the first."),
    ] = None,
    convention: OptionalConventionName = None,
    baseline: Annotated[str | None, baseline_option("bm25", "Embedder to compare the others with.")] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Add BM25 and random vectors (chance) as baselines.")
    ] = True,
    context: Annotated[
        int, typer.Option(metavar="CHARS", help="Number of characters after which texts are cut; 0 cuts none.")
    ] = DEFAULT_SETTINGS.context or 0,
    part: DocumentPart = "whole",
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="STORE",
            show_default=", ".join(STUDY_STORES),
            help="Vector store to search in; queries are timed with the first. Can be repeated.",
        ),
    ] = None,
    dimensions: Annotated[
        str | None,
        typer.Option(
            metavar="N,…|none",
            show_default="powers of two",
            help="Numbers of dimensions to which vectors are reduced, by PCA and by truncation.",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="N,…|none",
            show_default="750,1500,3000, …",
            help="Numbers of documents of the smaller corpora.",
        ),
    ] = None,
    perturb: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND|all|none",
            show_default="some of each kind",
            help="Perturbation of the queries: keyboard, upper-case, …. Can be repeated.",
        ),
    ] = None,
    perturbation_rate: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the words of a query that are perturbed, above 0, up to 1.")
    ] = DEFAULT_SETTINGS.rate,
    seeds: Annotated[
        int, typer.Option(metavar="N", help="Number of random draws per perturbation.")
    ] = DEFAULT_SETTINGS.seeds,
    timed: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="all, or 100 with --quick", help="Number of queries that are timed."),
    ] = None,
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
            "--quick", help="Measure quality and latency only: one store, no curves, no perturbations, unless given."
        ),
    ] = False,
    split: Split = None,
    max_queries: MaxQueries = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of samples and perturbations.")] = 0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure everything again, including saved results in the folder.")
    ] = False,
    reuse: Reuse = False,
    out: Annotated[list[str] | None, output_option("Working folder, which is resumed")] = None,
    format_name: Annotated[str | None, format_option("long (one row per value)")] = None,
    charts: ChartsFolder = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("embedder")] = False,
) -> None:
    """Compare embedders on the same dataset.

    [dim]ragauge embedders pydocs -e minilm -e "bytes=lm(tokenizer=bytes)" -o study -o study.html[/dim]
    """
    files, folder = split_outputs(out)
    if fresh and reuse:
        raise BadInput("--fresh and --reuse are mutually exclusive", hint="leave out one of them")
    if folder is None and (fresh or reuse):
        raise BadInput(f"{'--fresh' if fresh else '--reuse'} has no effect without --out", hint="add `-o FOLDER`")
    check_outputs(
        EmbedderStudy, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts, has_folder=True
    )
    optional_settings = {
        "split": split,
        "max_queries": max_queries,
        "measures": measure,
        "convention": convention,
        "stores": store,
        "dimensions": _parse_int_list(dimensions, "--dimensions"),
        "sizes": _parse_int_list(sizes, "--sizes"),
        "perturbations": _parse_perturbations(perturb),
        "timed": timed,
        "threads": threads,
        "memory": memory,
    }
    options: Any = {
        **(QUICK_SETTINGS if quick else {}),
        "baselines": baselines,
        "context": context,
        "part": part,
        "rate": perturbation_rate,
        "seeds": seeds,
        "seed": seed,
        **{name: value for name, value in optional_settings.items() if value is not None},
    }
    from ragauge.embedder_study import compare_embedders

    with show_progress(_resume_hint(folder), lines=True) as progress:
        result = compare_embedders(
            dataset,
            embedder,
            baseline=baseline,
            out=folder,
            fresh=fresh,
            reuse=reuse,
            progress=progress,
            **options,
        )
    write_result([result], files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    if folder is not None:
        _write_report_page(result, folder)


def _resume_hint(folder: str | None) -> str:
    if folder is None:
        return "document vectors are cached; add `-o FOLDER` to save finished embedders"
    return f"finished embedders are saved in {shlex.quote(folder)}; to resume, run the same command"


def _write_report_page(result: EmbedderStudy, folder: str) -> None:
    """Write the HTML report next to the runs, and print the names of the files."""
    from ragauge.reports import registry

    names, notes = f"report.html, {STUDY_FILE}", []
    try:
        registry.write_results([result], [str(Path(folder) / "report.html")])
    except MissingExtra as missing:
        names, notes = STUDY_FILE, [f"no report.html: {missing.message} ({missing.hint})"]
    runs = f"and the rankings as runs: ragauge compare {shlex.quote(folder)}"
    console.print_notes([*notes, f"{folder} has {names}, {runs}"])


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
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(
            f"{option} must be numbers separated by commas, or none, got `{text}`", hint=f"use `{option} 750,1500,3000`"
        ) from None


def _parse_perturbations(texts: Sequence[str] | None) -> Sequence[str] | None:
    """Parse names of perturbations; `all` and `none` are allowed."""
    if not texts:
        return None
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return []
    if names == ["all"]:
        from ragauge.datasets.perturbations import PERTURBATIONS

        return list(PERTURBATIONS)
    return names
