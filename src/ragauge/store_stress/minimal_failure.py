"""Search for the shortest failing prefix of the documents, and its reproducer.

A reproducer is a folder with documents, queries if needed, and the command. It contains no code.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ragauge.core.documents import Document
from ragauge.files.workspace import atomic_write
from ragauge.output.numbers import pluralise
from ragauge.store_stress.plan import StressSettings, write_documents
from ragauge.store_stress.results import StoreFailure

ATTEMPTS_PER_PREFIX = 3
"""Attempts with the prefix found, and with all inputs before a failure counts as not reproduced."""
NOT_REPRODUCED = "not reproduced"


class MinimalPrefix(NamedTuple):
    """Result of the search for the shortest failing prefix."""

    prefix: int | None
    """Length of a failing prefix; None if the failure was not reproduced.

    The prefix with one input less did not fail, or was not tried (see `tried`).
    """
    tried: list[tuple[int, bool]]
    steady: bool | None
    doubt: str = ""


def find_minimal_prefix(
    fails: Callable[[int], bool], n_inputs: int, *, guess: int | None = None, min_prefix: int = 0
) -> MinimalPrefix:
    """Find the shortest prefix of `n_inputs` inputs that fails.

    Formula: bisection between a failing and a passing prefix, first at `guess` and at one input less. The prefix
    found is tried 3 times in all. All inputs are tried 3 times before the failure counts as not reproduced.
    Rule: the result is the shortest if every prefix longer than a failing one fails too. Three shorter prefixes are
    tried as a check; if one fails, the search continues below it. `doubt` says if a prefix fails only sometimes.

    >>> find_minimal_prefix(lambda n: n >= 16, 2500, guess=20).prefix
    16
    >>> find_minimal_prefix(lambda n: False, 100)
    MinimalPrefix(prefix=None, tried=[(100, False), (100, False), (100, False)], steady=False, doubt='not reproduced')
    """
    attempts: list[tuple[int, bool]] = []
    outcomes: dict[int, bool] = {}

    def broke(n: int) -> bool:
        if n not in outcomes:
            outcomes[n] = fails(n)
            attempts.append((n, outcomes[n]))
        return outcomes[n]

    high = n_inputs if guess is None else max(min_prefix, min(guess, n_inputs))
    if not broke(high):
        if high == n_inputs or not broke(n_inputs):
            while len(repeats := [failed for n, failed in attempts if n == n_inputs]) < ATTEMPTS_PER_PREFIX and not any(
                repeats
            ):
                attempts.append((n_inputs, fails(n_inputs)))
            if not any(repeats):
                return MinimalPrefix(None, attempts, steady=False, doubt=NOT_REPRODUCED)
            return MinimalPrefix(
                n_inputs, attempts, steady=False, doubt=f"this prefix failed in 1 of {len(repeats)} attempts"
            )
        low, high = high, n_inputs
    elif guess is None or high == min_prefix:
        low = min_prefix - 1
    elif not broke(high - 1):
        low = high - 1
    else:
        low, high = min_prefix - 1, high - 1
    doubt = ""
    while True:
        while high - low > 1:
            middle = (low + high) // 2
            if broke(middle):
                high = middle
            else:
                low = middle
        shorter = [n for share in (0.75, 0.5, 0.25) if min_prefix <= (n := int(high * share)) < high - 1]
        lower = next((n for n in shorter if broke(n)), None)
        if lower is None:
            break
        # A shorter prefix fails although a longer one did not: search again below it.
        doubt = "some longer prefixes did not fail, and a shorter prefix that was not tried may fail"
        low, high = min_prefix - 1, lower
    repeats = [fails(high) for _ in range(ATTEMPTS_PER_PREFIX - 1)]
    attempts += [(high, outcome) for outcome in repeats]
    steady = all(repeats)
    if not steady:
        doubt = f"this prefix failed in {1 + sum(repeats)} of {ATTEMPTS_PER_PREFIX} attempts"
    return MinimalPrefix(high, attempts, steady, doubt)


README_TEMPLATE = """\
# Reproducer of a failure of {store}

Put {mode}, {count} of {source} make {store} fail while {stage}:

```text
{error}
```

{confidence}

```sh
{command}
```

`corpus.jsonl` has the documents in their order{queries}. The store describes itself as: {description}
"""


def build_command(
    store: str, folder: str, broken: StoreFailure, settings: StressSettings, embedder: str, *, is_prefix: bool
) -> str:
    """Build the command that repeats the failure with the documents of a folder.

    `is_prefix` says if these are fewer than all documents. A prefix has one kill, at its last document.
    """
    arguments = [
        "ragauge",
        "stress",
        "--store",
        store,
        "--corpus",
        folder,
        "--mode",
        broken.mode,
        "--embedder",
        embedder,
    ]
    for name, value, default in (
        ("--batch-size", settings.batch, StressSettings.batch),
        ("--commit-every", settings.commit_every, StressSettings.commit_every),
        ("-k", settings.k, StressSettings.k),
        ("--timeout", settings.timeout, StressSettings.timeout),
        ("--seed", settings.seed, StressSettings.seed),
    ):
        if value != default:
            arguments += [name, f"{value:g}" if isinstance(value, float) else str(value)]
    kill_at = settings.kill_at or []
    if is_prefix and broken.prefix and broken.stage.state in ("killed", "replaced") and (kill_at or settings.kills):
        kill_at = [broken.prefix - 1]
    if kill_at:
        arguments += [argument for point in kill_at for argument in ("--kill-at", str(point))]
    elif settings.kills != StressSettings.kills:
        arguments += ["--kills", str(settings.kills)]
    return shlex.join([*arguments, "--no-bisect"])


def write_reproducer(
    folder: Path,
    broken: StoreFailure,
    documents: Sequence[Document],
    queries: Mapping[str, str],
    *,
    store: str,
    source: str,
    command: str,
    description: str,
) -> StoreFailure:
    write_documents(folder / "corpus.jsonl", documents)
    needs_queries = broken.stage.action == "searching" and bool(queries)
    if needs_queries:
        with atomic_write(folder / "queries.jsonl") as out:
            for name, query in queries.items():
                out.write(json.dumps({"_id": name, "text": query}).encode("ascii") + b"\n")
    count = "the first document" if len(documents) == 1 else f"the first {len(documents):,} documents"
    text = README_TEMPLATE.format(
        store=store,
        count=count,
        source=source,
        mode=broken.mode,
        stage=broken.stage,
        error=broken.error,
        confidence=describe_confidence(broken),
        command=command,
        queries=", `queries.jsonl` the queries" if needs_queries else "",
        description=description or "nothing",
    )
    with atomic_write(folder / "README.md") as out:
        out.write(text.encode("utf-8", "replace"))
    return replace(broken, reproducer=str(folder), command=command)


def describe_confidence(broken: StoreFailure) -> str:
    """Describe how certain it is that the failing prefix is the shortest.

    >>> from ragauge.store_stress.results import Stage
    >>> failure = StoreFailure("one by one", Stage("putting"), "full", False, 15, prefix=16)
    >>> describe_confidence(replace(failure, tried=[(16, True), (15, False)]))
    'With 15 documents it did not fail (2 attempts in total).'
    >>> describe_confidence(replace(failure, tried=[(16, False), (16, True)]))
    'No shorter prefix was tried (2 attempts in total).'
    """
    if broken.prefix is None:
        return f"No shorter prefix is known: {broken.doubt}."
    attempts = f"{pluralise(len(broken.tried), 'attempt')} in total"
    passed = [n for n, failed in broken.tried if n < broken.prefix and not failed]
    if passed:
        evidence = f"With {pluralise(max(passed), 'document')} it did not fail ({attempts})."
    elif broken.prefix:
        evidence = f"No shorter prefix was tried ({attempts})."
    else:
        evidence = f"It fails without documents ({attempts})."
    return f"{evidence} But {broken.doubt}." if broken.doubt else evidence
