"""`ragauge bench DATASET --store …`: measure vector stores on the same vectors, over a sweep of their options."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options, require_any_option
from ragauge.cli.options import (
    ChartsFolder,
    FormatName,
    MaxQueries,
    PrintJson,
    check_positive,
    csv_option,
    output_option,
)
from ragauge.cli.output import check_outputs, split_outputs, write_result
from ragauge.cli.progress import MIN_ESTIMATED_S, format_duration, show_progress
from ragauge.compute import dask_cluster
from ragauge.compute.progress import Progress
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.datasets.folders import dataset_name
from ragauge.files.workspace import folder_name, hold_folder
from ragauge.output.numbers import pluralise
from ragauge.reports.registry import write_results
from ragauge.store_benchmarks.bench import DEFAULT_STORES
from ragauge.store_benchmarks.bench import bench as measure
from ragauge.store_benchmarks.options import DOUBTFUL_RESULTS, parse_options
from ragauge.store_benchmarks.plan import DEFAULT_SELECTIVITIES, estimate_min_seconds, plan_builds
from ragauge.store_benchmarks.report_text import describe_failures
from ragauge.store_benchmarks.results import StoreBenchmark
from ragauge.store_benchmarks.results_folder import list_result_files

NumberT = TypeVar("NumberT")
UPDATED_VECTORS = 200
"""Number of vectors for `--changes` (per operation) and `--mixed`."""


def bench(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="[DATASET]",
            show_default="clustered: vectors generated from --seed",
            help="File or folder of vectors, or a dataset to embed.",
        ),
    ] = "clustered",
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="STORE",
            show_default=", ".join(DEFAULT_STORES),
            help="Store: hnswlib, hnswlib:m=16,ef_search=10+40+160, fast=faiss:kind=hnsw, or your module:Class. "
            "Values joined by + are swept. Can be repeated.",
        ),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option(
            "-k",
            metavar="N,…",
            show_default="10",
            help="Number of neighbours per query. Several values are scored from one search at the largest.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default="that of the data", help="Distance: l2, cosine or ip."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            "-e", "--embedder", metavar="NAME", show_default="wordllama", help="Embedder for the texts of a dataset."
        ),
    ] = None,
    max_vectors: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="all",
            callback=check_positive,
            help="Maximum number of vectors; the first ones are used.",
        ),
    ] = None,
    max_queries: MaxQueries = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", show_default="1", help="Number of threads per store.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(metavar="N", show_default="3", help="Number of timed trials per query.")
    ] = None,
    clients: Annotated[
        str | None, typer.Option(metavar="N,…", help="Numbers of client processes for a closed-loop load test.")
    ] = None,
    qps: Annotated[
        str | None,
        typer.Option(
            metavar="QPS,…",
            help="Target rates for an open-loop load test, in queries/s or % of the closed-loop maximum (50%,90%). "
            "Latency counts from the scheduled send time.",
        ),
    ] = None,
    poisson: Annotated[
        bool, typer.Option("--poisson", help="With --qps: queries arrive at random times instead of evenly.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", show_default="5", help="Duration of each load test in seconds.")
    ] = None,
    filters: Annotated[
        bool,
        typer.Option(
            "--filters",
            help="Also search with random filters of selectivity "
            f"{', '.join(f'{100 * share:g}%' for share in DEFAULT_SELECTIVITIES)}.",
        ),
    ] = False,
    selectivity: Annotated[
        str | None,
        typer.Option(metavar="SHARE,…", help="Also search with random filters of these selectivities: 0.5,0.01."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Filter on the metadata: 'lang=de and year>=2019 and kind in a|b'. Can be repeated.",
        ),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            show_default="that of the documents",
            help="Metadata: CSV, TSV, JSONL or Parquet with ids, or one row per vector.",
        ),
    ] = None,
    changes: Annotated[bool, typer.Option("--changes", help="Also time inserts, updates and deletes.")] = False,
    mixed: Annotated[bool, typer.Option("--mixed", help="Also search while vectors are inserted.")] = False,
    score_judgments: Annotated[
        bool,
        typer.Option("--score-judgments", help="Also compute nDCG and hit rate from the judgments of the dataset."),
    ] = False,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            metavar="PRICE",
            show_default="no cost",
            help="Price of one CPU thread per hour; adds the cost per million queries.",
        ),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default="auto", help="Backend for the exact neighbours: numpy, faiss or torch."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            show_default=False,
            help="Dask cluster for the exact neighbours: tcp://HOST:8786, or local:N for N processes on this machine. "
            "Stores are measured on this machine.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Sweep fewer options, which takes a minute or two.")] = False,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep/--no-sweep",
            help="Sweep the store options that are not given over a grid of values.",
        ),
    ] = True,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", show_default="600", help="Time limit of each process of a store in seconds."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="0", help="Seed of vectors, filters and arrival times."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stores themselves in the folder.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure everything again, including saved results of built-in stores.")
    ] = False,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="Reuse finished results of your own classes, plug-ins and servers instead of measuring them again.",
        ),
    ] = False,
    out: Annotated[
        list[str] | None,
        output_option("Working folder, which is resumed", "bench/DATASET"),
    ] = None,
    charts: ChartsFolder = None,
    remeasure: Annotated[
        str | None,
        typer.Option(
            metavar=DOUBTFUL_RESULTS,
            help="Measure only results with doubtful times (marked ?) again, and reuse all others.",
        ),
    ] = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("configuration")] = False,
    format_name: FormatName = None,
) -> None:
    """Benchmark vector stores: recall, latency, throughput, build time, memory.

    [dim]ragauge bench --quick[/dim]

    [dim]ragauge bench pydocs --store exact --store faiss:kind=ivf,nprobe=1+4+16[/dim]
    """
    files, folder = split_outputs(out)
    check_outputs(
        StoreBenchmark, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts, has_folder=True
    )
    modes = {"--fresh": fresh, "--reuse": reuse, "--remeasure": remeasure is not None}
    if len(chosen_modes := [name for name, value in modes.items() if value]) > 1:
        raise BadInput(f"{' and '.join(chosen_modes)} are mutually exclusive", hint="remove all but one of them")
    require_any_option(context, {"metadata": ["where"], "poisson": ["qps"], "seconds": ["clients", "qps", "mixed"]})
    if not sweep:
        refuse_options(context, ["quick"], "with --no-sweep, which tries no other values")
    shares = _parse_number_list(selectivity, float, "--selectivity") or (DEFAULT_SELECTIVITIES if filters else None)
    optional_settings: dict[str, Any] = {
        "k": _parse_number_list(k, int, "-k"), "metric": metric, "embedder": embedder,
        "max_vectors": max_vectors, "max_queries": max_queries, "threads": threads,
        "repeats": repeats, "clients": _parse_number_list(clients, int, "--clients"),
        "rates": _parse_rates(qps, share=False), "shares": _parse_rates(qps, share=True),
        "poisson": poisson or None, "seconds": seconds, "filters": shares,
        "changes": UPDATED_VECTORS if changes else None,
        "where": where or None, "metadata": metadata,
        "mixed": UPDATED_VECTORS if mixed else None,
        "score_judgments": score_judgments or None, "price_per_hour": price_per_hour,
        "truth": truth,
        "quick": quick or None,
        "sweep": None if sweep else False, "timeout": timeout, "seed": seed, "keep": keep or None,
        "fresh": fresh or None, "reuse": reuse or None, "remeasure": remeasure,
    }  # fmt: skip
    settings = {name: value for name, value in optional_settings.items() if value is not None}
    stores = store or list(DEFAULT_STORES)
    _print_duration_estimate(stores, settings)
    target = Path(folder) if folder is not None else Path("bench") / folder_name(_results_name(data))
    hint = (
        f"results are saved in {shlex.quote(str(target))}; to resume, run the same command{' without --fresh' * fresh}"
    )
    with show_progress(hint, lines=True) as progress, dask_cluster.dask_cluster(cluster) as executor:
        result = measure(data, stores, folder=target, executor=executor, progress=progress, **settings)
    if result.points:
        with hold_folder(target):
            written = _write_folder(result, target)
        write_result([result], files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
        console.print_notes(written)
    else:
        console.print_notes([f"nothing was measured, so nothing was written to {target}{os.sep}"])
    for line in describe_failures(result):
        sys.stderr.write(f"error: {line}\n")
    if result.failures:
        raise typer.Exit(max(failure.exit_code for failure in result.failures))


def _print_duration_estimate(stores: list[str], options: dict[str, Any]) -> None:
    """Print the minimum duration of the benchmark, unless it is short."""
    _, settings = parse_options(options)
    builds = plan_builds(stores, settings)
    seconds = estimate_min_seconds(builds, settings)
    if seconds >= MIN_ESTIMATED_S:
        points = pluralise(sum(len(build.searches) for build in builds), "configuration")
        console.print_notes(
            [
                f"{pluralise(len(builds), 'build')}, {points}, {pluralise(settings.repeats, 'repeat')}: at least "
                f"{format_duration(seconds)}; the time left is estimated after the first build"
            ]
        )


def _write_folder(result: StoreBenchmark, folder: Path) -> list[str]:
    """Write all files of the results folder; return notes on them, and on those that need another library."""
    written, notes = [], []
    with show_progress() as progress:
        progress(Progress("writing"))
        for format_name, file in list_result_files(result).items():
            try:
                write_results([result], [str(folder / file)], format_name)
                written.append(file)
            except MissingExtra as error:
                notes.append(f"no {file}: {error.message} ({error.hint})")
    points = pluralise(sum(not point.is_floor for point in result.points), "configuration")
    stores = pluralise(len(result.frontiers), "store")
    return [*notes, f"{points} of {stores}; wrote {folder}{os.sep}: {', '.join(written)}"]


def _results_name(data: str) -> str:
    """Return the name of the default results folder."""
    path = Path(data)
    return dataset_name(path) if path.is_dir() else path.name.partition(".")[0] or data


def _parse_rates(text: str | None, *, share: bool) -> tuple[float, ...] | None:
    """Parse the target rates; `share` selects percentages or plain rates."""

    def kind(part: str) -> tuple[bool, float]:
        number = part.strip().removesuffix("%")
        return number != part.strip(), float(number) / (1 if number == part.strip() else 100)

    rates = tuple(value for is_share, value in _parse_number_list(text, kind, "--qps") or () if is_share is share)
    return rates or None


def _parse_number_list(text: str | None, kind: Callable[[str], NumberT], option: str) -> tuple[NumberT, ...] | None:
    """Parse numbers separated by commas, or by + as in the options of a store."""
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.replace("+", ",").split(","))
    except ValueError:
        raise BadInput(
            f"{option} must be numbers separated by commas, got `{text}`", hint=f"use `{option} 1,2`"
        ) from None
