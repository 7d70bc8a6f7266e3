"""`ragauge bench DATASET --store …`: measure vector stores on the same vectors, over a sweep of their options."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.resources import files as packaged
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ragauge.cli import console
from ragauge.cli.console import ClusterAddress
from ragauge.cli.option_checks import allow_only_options, check_output_libraries, refuse_options, require_any_option
from ragauge.cli.options import MaxQueries, check_positive
from ragauge.cli.progress import MIN_ESTIMATED_S, StageProgress, format_duration, show_status
from ragauge.compute import dask_cluster
from ragauge.core.errors import BadInput
from ragauge.datasets.folders import dataset_name
from ragauge.files.workspace import folder_name, hold_folder
from ragauge.output.formats import write_charts
from ragauge.output.numbers import count_noun
from ragauge.store_benchmarks import DEFAULT_STORES, DOUBTFUL_RESULTS
from ragauge.store_benchmarks import bench as measure
from ragauge.store_benchmarks.load_and_cost_charts import draw_benchmark_charts
from ragauge.store_benchmarks.plan import DEFAULT_SELECTIVITIES, BenchmarkSettings, estimate_min_seconds, plan_builds
from ragauge.store_benchmarks.report import (
    describe_failures,
    list_benchmark_notes,
    list_legends,
    render_benchmark_tables,
    summarise_benchmark,
)
from ragauge.store_benchmarks.results import StoreBenchmark
from ragauge.store_benchmarks.results_folder import render_points_csv, to_benchmark_data, write_benchmark_folder

NumberT = TypeVar("NumberT")
UPDATED_VECTORS = 200
"""Number of vectors for `--changes` (per operation) and `--mixed`."""


def bench(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="[DATASET]",
            show_default=False,
            help="A file or folder of vectors, or a dataset to embed.  [dim]default clustered: made here, the same "
            "for the same --seed[/dim]",
        ),
    ] = "clustered",
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="NAME[:param=v,…]",
            help="hnswlib, hnswlib:m=16,ef_search=10+40+160, fast=faiss:kind=hnsw, module:Class. Values "
            "joined by + are swept. Can be repeated.  "
            f"[dim]default {', '.join(DEFAULT_STORES)}[/dim]",
        ),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option(
            "-k",
            metavar="N,…",
            help="Number of neighbours per query. Several values are scored from one search at the largest.  "
            "[dim]default 10[/dim]",
        ),
    ] = None,
    metric: Annotated[str | None, typer.Option(help="l2, cosine or ip.  [dim]default the data's[/dim]")] = None,
    embedder: Annotated[
        str | None, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder for the texts of a dataset.")
    ] = None,
    max_vectors: Annotated[
        int | None,
        typer.Option(metavar="N", callback=check_positive, help="Maximum number of vectors; the first ones are used."),
    ] = None,
    max_queries: MaxQueries = None,
    threads: Annotated[int | None, typer.Option(help="Threads a store may use.  [dim]default 1[/dim]")] = None,
    repeats: Annotated[int | None, typer.Option(help="Ask every query so often.  [dim]default 3[/dim]")] = None,
    clients: Annotated[
        str | None, typer.Option(metavar="N,…", help="Also so many processes at once, as fast as they can.")
    ] = None,
    qps: Annotated[
        str | None,
        typer.Option(
            metavar="QPS|%,…",
            help="Target rates for an open-loop load test, in queries/s or % of the closed-loop maximum (50%,90%). "
            "Latency counts from the scheduled send time.",
        ),
    ] = None,
    poisson: Annotated[
        bool, typer.Option("--poisson", help="With --qps: queries arrive at random times, not evenly.")
    ] = False,
    seconds: Annotated[float | None, typer.Option(help="How long each load lasts.  [dim]default 5[/dim]")] = None,
    filters: Annotated[
        bool,
        typer.Option(
            "--filters", help=f"Also with random filters: {', '.join(f'{100 * s:g}%' for s in DEFAULT_SELECTIVITIES)}."
        ),
    ] = False,
    selectivity: Annotated[
        str | None, typer.Option(metavar="SHARE,…", help="Random filters that match these shares: 0.5,0.01.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="A filter on the metadata: 'lang=de and year>=2019 and kind in a|b'. Can be repeated.",
        ),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="CSV, TSV, JSONL or Parquet with an id, or a row per vector.  [dim]default the documents'[/dim]",
        ),
    ] = None,
    changes: Annotated[bool, typer.Option("--changes", help="Also time inserts, updates and deletes.")] = False,
    mixed: Annotated[bool, typer.Option("--mixed", help="Also search while vectors come in.")] = False,
    score_judgments: Annotated[
        bool,
        typer.Option("--score-judgments", help="Also compute nDCG and hit rate from the judgments of the dataset."),
    ] = False,
    price_per_hour: Annotated[
        float | None,
        typer.Option(metavar="PRICE", help="Price of one CPU thread per hour; adds the cost per million queries."),
    ] = None,
    truth: Annotated[
        str | None, typer.Option(help="What finds the exact neighbours: numpy, faiss, torch.  [dim]default auto[/dim]")
    ] = None,
    cluster: ClusterAddress = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings: a first look in a minute or two.")] = False,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep/--no-sweep",
            help="Sweep the store options that are not given over their default grid, or use the store's defaults.",
        ),
    ] = True,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds for each process of a store.  [dim]default 600[/dim]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.  [dim]default 0[/dim]")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stores themselves in the folder.")] = False,
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
        str | None, typer.Option("-o", "--out", metavar="FOLDER", help="[dim]default bench/ and the dataset[/dim]")
    ] = None,
    charts: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write every chart there, as SVG and as PNG.")
    ] = None,
    remeasure: Annotated[
        str | None,
        typer.Option(
            metavar=DOUBTFUL_RESULTS,
            help="Measure only results with doubtful times (marked ?) again, and reuse all others.",
        ),
    ] = None,
    output: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="CSV on standard output: a row for each configuration.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON's schema, and do nothing else.")] = False,
) -> None:
    """Benchmark vector stores: recall, latency, throughput, build time, memory.

    [dim]ragauge bench --quick[/dim]

    [dim]ragauge bench glove.hdf5 --store hnswlib --store faiss:kind=ivf,nprobe=1+4+16 --qps 100,1000[/dim]

    Results are saved as they arrive. To resume after Ctrl-C or a crash, run the same command again.

    --cluster finds the exact neighbours; stores are measured here, as clocks of several machines cannot be compared.
    """
    if schema:
        allow_only_options(context, ["schema"], "--schema")
        console.write_data(
            (packaged("ragauge.store_benchmarks") / "sweep.schema.json").read_text(encoding="utf-8"), nl=False
        )
        return
    console.check_exclusive({"--json": output, "--csv": as_csv})
    modes = {"--fresh": fresh, "--reuse": reuse, "--remeasure": remeasure is not None}
    if len(chosen_modes := [name for name, value in modes.items() if value]) > 1:
        raise BadInput(f"{' and '.join(chosen_modes)} are mutually exclusive", hint="remove all but one of them")
    require_any_option(context, {"metadata": ["where"], "poisson": ["qps"], "seconds": ["clients", "qps", "mixed"]})
    if not sweep:
        refuse_options(context, ["quick"], "with --no-sweep, which tries no other values")
    check_output_libraries([], charts)
    shares = _parse_number_list(selectivity, float, "--selectivity") or (DEFAULT_SELECTIVITIES if filters else None)
    given: dict[str, Any] = {
        "k": _parse_number_list(k, int, "-k"), "metric": metric, "embedder": embedder,
        "limit": max_vectors, "queries": max_queries, "threads": threads,
        "repeats": repeats, "clients": _parse_number_list(clients, int, "--clients"),
        "rates": _parse_rates(qps, share=False), "shares": _parse_rates(qps, share=True),
        "poisson": poisson or None, "seconds": seconds, "filters": shares,
        "changes": UPDATED_VECTORS if changes else None,
        "where": where or None, "metadata": metadata,
        "mixed": UPDATED_VECTORS if mixed else None, "judgments": score_judgments or None, "price": price_per_hour,
        "truth": truth,
        "quick": quick or None,
        "sweep": None if sweep else False, "timeout": timeout, "seed": seed, "keep": keep or None,
        "fresh": fresh or None, "reuse": reuse or None, "remeasure": remeasure,
    }  # fmt: skip
    settings = {name: value for name, value in given.items() if value is not None}
    folder = Path(out) if out is not None else Path("bench") / folder_name(_results_name(data))
    found = _run_benchmark(data, store or list(DEFAULT_STORES), folder, cluster, settings)
    if output:
        console.write_data(json.dumps(to_benchmark_data(found), indent=2, ensure_ascii=False, allow_nan=False))
    elif as_csv:
        console.write_data(render_points_csv(found), nl=False)
    finish_benchmark(found, folder, charts, shown=not output and not as_csv)


def _run_benchmark(
    data: str, stores: list[str], folder: Path, cluster: str | None, settings: dict[str, Any]
) -> StoreBenchmark:
    """Run the benchmark with a progress display; after Ctrl-C, say how to resume."""
    _print_duration_estimate(stores, settings)
    fresh = bool(settings.get("fresh"))
    with StageProgress() as watch:
        try:
            with dask_cluster.dask_cluster(cluster) as executor:
                found = measure(data, stores, folder=folder, executor=executor, progress=watch, **settings)
        except KeyboardInterrupt:
            sys.stderr.write(
                f"\nstopped at {watch.now or 'the beginning'}; what was measured is saved in "
                f"{shlex.quote(str(folder))}; to resume, run the same command{' without --fresh' * fresh}\n"
            )
            raise typer.Exit(130) from None
    return found


def _print_duration_estimate(stores: list[str], settings: dict[str, Any]) -> None:
    """Print the minimum duration of the benchmark, unless it is short."""
    known = {one.name for one in fields(BenchmarkSettings)} - {"metadata"}
    plan = BenchmarkSettings.of({name: value for name, value in settings.items() if name in known})
    wanted = plan_builds(stores, plan)
    seconds = estimate_min_seconds(wanted, plan)
    if seconds >= MIN_ESTIMATED_S:
        points = count_noun(sum(len(job.searches) for job in wanted), "configuration")
        console.print_notes(
            [
                f"{count_noun(len(wanted), 'build')}, {points}, {count_noun(plan.repeats, 'repeat')}: at least "
                f"{format_duration(seconds)}; the time left is estimated after the first build"
            ]
        )


def finish_benchmark(found: StoreBenchmark, folder: Path, charts: str | None, *, shown: bool) -> None:
    """Print the tables, write the files, and print notes and failures.

    If nothing was measured, only the failures are printed.
    """
    if not found.points:
        console.print_notes([f"nothing was measured, so that nothing was written to {folder}{os.sep}"])
        _exit_on_failures(found)
        return
    left: list[str] = []
    if shown:
        pieces, left = render_benchmark_tables(found, console.stdout_console().width)
        console.print_tables(*pieces)
    with show_status(after=0.5) as tell:
        tell("writing")
        with hold_folder(folder):
            files, missing = write_benchmark_folder(found, folder)
        drawings = draw_benchmark_charts(found) if charts is not None else {}
        write_charts(drawings, Path(charts or ""))
    console.print_notes(
        [
            *(list_legends(found, console.stdout_console().width) if shown else []),
            *(list_benchmark_notes(found) if shown else []),
            *([f"not shown, for want of room: {', '.join(left)}; report.md has them"] if left else []),
            *missing,
            f"{summarise_benchmark(found)}; wrote {folder}{os.sep}: {', '.join(files)}",
            *([f"wrote the charts to {charts}: {', '.join(drawings)}"] if charts is not None else []),
        ]
    )
    _exit_on_failures(found)


def _exit_on_failures(found: StoreBenchmark) -> None:
    """Print what could not be measured, and exit with the highest exit code."""
    for line in describe_failures(found):
        sys.stderr.write(f"error: {line}\n")
    if found.failures:
        raise typer.Exit(max(one.exit_code for one in found.failures))


def _results_name(data: str) -> str:
    """Return the name of the default results folder."""
    place = Path(data)
    return dataset_name(place) if place.is_dir() else place.name.partition(".")[0] or data


def _parse_rates(text: str | None, *, share: bool) -> tuple[float, ...] | None:
    """Parse the target rates; `share` selects percentages or plain rates."""

    def kind(part: str) -> tuple[bool, float]:
        number = part.strip().removesuffix("%")
        return number != part.strip(), float(number) / (1 if number == part.strip() else 100)

    found = tuple(value for is_share, value in _parse_number_list(text, kind, "--qps") or () if is_share is share)
    return found or None


def _parse_number_list(text: str | None, kind: Callable[[str], NumberT], option: str) -> tuple[NumberT, ...] | None:
    """Parse numbers separated by commas, or by + as in the options of a store."""
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.replace("+", ",").split(","))
    except ValueError:
        raise BadInput(f"{option} takes numbers joined by commas, not `{text}`", hint=f"{option} 1,2") from None
