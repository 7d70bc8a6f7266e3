"""`ragauge stress --store NAME --corpus FILE`: test the durability of a document store under load and kills."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import check_positive
from ragauge.cli.output import check_outputs, write_result
from ragauge.cli.progress import StageProgress
from ragauge.core import plugins
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.files.workspace import folder_name
from ragauge.output.numbers import count_noun
from ragauge.store_stress import (
    StressData,
    check_libraries,
    check_options,
    load_stress_data,
    resolve_store_name,
    stress_store,
)
from ragauge.store_stress.minimal_failure import describe_confidence
from ragauge.store_stress.plan import INGESTION_MODES, StressSettings
from ragauge.store_stress.results import StoreFailure, StressTest

DEFAULT_SETTINGS = StressSettings()


def stress(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    store: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Document store: sqlite-vec, chroma, pgvector(index=hnsw), module:Class …, or `all`. Can be repeated.",
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS",
            help="JSONL or TSV file, STIX 2.1 bundle (.json), e.g. MITRE ATT&CK, BEIR folder, or dataset by name.",
        ),
    ] = None,
    max_documents: Annotated[
        int | None,
        typer.Option(
            metavar="N", callback=check_positive, help="Maximum number of documents; the first ones are used."
        ),
    ] = None,
    way: Annotated[
        list[str] | None,
        typer.Option(help=f"`{INGESTION_MODES[0]}` or `{INGESTION_MODES[1]}`.  [dim]default both[/dim]"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(metavar="N", callback=check_positive, help="Number of documents per batch.")
    ] = DEFAULT_SETTINGS.batch,
    commit_every: Annotated[
        int | None,
        typer.Option(help="Commit after so many documents.  [dim]default at the end; sooner when killed[/dim]"),
    ] = None,
    embedder: Annotated[
        str, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder of documents and queries.")
    ] = "wordllama",
    k: Annotated[int, typer.Option("-k", help="Documents a query.")] = DEFAULT_SETTINGS.k,
    max_queries: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of queries, drawn at random.")
    ] = DEFAULT_SETTINGS.queries,
    kills: Annotated[int, typer.Option(help="How often its process is killed in mid-ingest.")] = DEFAULT_SETTINGS.kills,
    kill_at: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Or when it has put in so many documents; again for more.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a single call may take.")] = DEFAULT_SETTINGS.timeout,
    seed: Annotated[
        int, typer.Option(help="For the sample of queries, and the moments to kill at.")
    ] = DEFAULT_SETTINGS.seed,
    bisect: Annotated[
        bool, typer.Option("--bisect/--no-bisect", help="Look for the shortest prefix that breaks it.")
    ] = True,
    reproducer: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where the least that breaks it goes.  [dim]default stress-STORE[/dim]"),
    ] = None,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help=".html, .json, .csv or .md; again for more."),
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    csv_out: Annotated[bool, typer.Option("--csv", help="CSV on standard output.")] = False,
) -> None:
    """Stress-test a document store; exit with 3 if documents are lost or altered.

    [dim]ragauge stress --store sqlite-vec --corpus enterprise-attack.json[/dim]
    """
    check_outputs(out or [], as_json=json_out, as_csv=csv_out)
    if kill_at:
        refuse_options(context, ["kills"], "with --kill-at, which says how often")
    stores = _resolve_stores(store or [])
    plan = StressSettings(
        way or INGESTION_MODES, batch_size, commit_every, k, max_queries, kills, kill_at or None, timeout, seed, bisect
    )
    if corpus is None:
        raise BadInput("no corpus given", hint="add `--corpus corpus.jsonl`")
    told: list[StressTest] = []
    with StageProgress() as watch, _sigterm_as_interrupt():
        try:
            found = load_stress_data(corpus, embedder, plan, limit=max_documents, progress=watch)
            _stress_each_store(stores, found, plan, reproducer, told, watch, every="all" in (store or []))
        except KeyboardInterrupt as interrupted:
            sys.stderr.write(f"\nstopped at {watch.now or 'the beginning'}; its processes and folders are gone\n")
            _finish_stress_test(told, out or [], as_json=json_out, as_csv=csv_out)
            raise typer.Exit(143 if isinstance(interrupted, StressTestTerminated) else 130) from None
    _finish_stress_test(told, out or [], as_json=json_out, as_csv=csv_out)
    if any(one.broken is not None for one in told):
        raise typer.Exit(3)


class StressTestTerminated(KeyboardInterrupt):
    """Exception raised by SIGTERM, which ends the command as Ctrl-C does."""


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Make SIGTERM end the command as Ctrl-C does, with cleanup."""

    def end(*_: Any) -> None:
        raise StressTestTerminated

    if threading.current_thread() is not threading.main_thread():  # only the main thread can set a signal handler
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _resolve_stores(named: Sequence[str]) -> list[str]:
    """Resolve store names, and check their libraries and options."""
    wanted = [one for name in named for one in (plugins.plugin_names("keepers") if name == "all" else [name])]
    if not wanted:
        raise BadInput("no store is asked for", hint=f"--store {plugins.plugin_names('keepers')[0]}, or --store all")
    check_libraries([name for name in named if name != "all" and ":" not in name])
    stores = [resolve_store_name(one) for one in dict.fromkeys(wanted)]
    check_options(stores)
    return stores


def _stress_each_store(
    stores: Sequence[str],
    found: StressData,
    plan: StressSettings,
    reproducer: str | None,
    told: list[StressTest],
    watch: Callable[[str, int, int], None],
    *,
    every: bool,
) -> None:
    for number, name in enumerate(stores):
        if len(stores) > 1:
            watch(StageProgress.WHOLE, number, len(stores))
        place = Path(reproducer or f"stress-{folder_name(name)}")
        place = place / folder_name(name) if reproducer is not None and len(stores) > 1 else place
        try:
            told.append(stress_store(name, found, plan, reproducer=place, progress=watch))
        except MissingExtra as error:
            if not every:
                raise
            console.print_notes([f"{name} is left out: {error.message} ({error.hint})"])


def _finish_stress_test(told: Sequence[StressTest], files: Sequence[str], *, as_json: bool, as_csv: bool) -> None:
    """Print and write the results, and print how each failed store failed."""
    if told:
        write_result(told, files, as_json=as_json, as_csv=as_csv)
    for one in told:
        for broken in (way.broken for way in one.ways if way.broken is not None):
            _print_store_failure(one, broken)


def _print_store_failure(told: StressTest, broken: StoreFailure) -> None:
    """Print the original error of a store; control characters are replaced."""
    how = "gave no error" if broken.silent else "said"
    at = f" (at hand: {broken.document})" if broken.document else ""
    error = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in broken.error)
    lines = [
        f"error: {told.store} broke {broken.way} while {broken.stage}, after "
        f"{count_noun(broken.after, 'document')}{at}; "
        f"it {how}:",
        "",
        error,
        "",
    ]
    if broken.reproduced is False:
        attempts = count_noun(len(broken.tried), "attempt")
        lines.append(f"not reproduced in {attempts}; it is a failure because documents were lost or altered")
    elif broken.prefix is not None:
        what = "shortest prefix that breaks it" if broken.is_shortest else "shortest prefix known to break it"
        lines.append(f"{what}: {count_noun(broken.prefix, 'document')}. {describe_confidence(broken)}")
    elif broken.doubt:
        lines.append(f"no shorter prefix: {broken.doubt}")
    if broken.reproducer:
        lines += [f"hint: {broken.reproducer} has them; to see it again: {broken.command}"]
    sys.stderr.write("\n".join(lines) + "\n")
