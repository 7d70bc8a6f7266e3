"""Search for the shortest failing prefix of the documents, and its reproducer.

A reproducer is a folder with documents, queries if needed, and the command. It contains no code.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ragauge.knowledge.stress.plan import Plan, write_documents
from ragauge.ordeals import Broken
from ragauge.records import Document

README = """\
# How to break {store}

{count} of {source}, put into {store} {way}, break it while {stage}:

```text
{error}
```

{belief}

```sh
{command}
```

`corpus.jsonl` has the documents in their order{queries}. The store said of itself: {about}
"""


def command(store: str, place: str, broken: Broken, plan: Plan, embedder: str) -> str:
    """Build the command that repeats the failure with the documents of a folder."""
    words = ["ragauge", "stress", "--store", store, "--documents", place, "--way", broken.way, "--embedder", embedder]
    for name, value, usual in (
        ("--batch", plan.batch, Plan.batch),
        ("--commit-every", plan.commit_every, Plan.commit_every),
        ("-k", plan.k, Plan.k),
        ("--kills", plan.kills, Plan.kills),
        ("--timeout", plan.timeout, Plan.timeout),
        ("--seed", plan.seed, Plan.seed),
    ):
        if value != usual:
            words += [name, f"{value:g}" if isinstance(value, float) else str(value)]
    if broken.stage.endswith("kill -9") and broken.prefix:
        words += ["--kill-at", str(broken.prefix - 1)]
    return shlex.join([*words, "--no-bisect"])


def written(
    folder: Path,
    broken: Broken,
    documents: Sequence[Document],
    queries: Mapping[str, str],
    *,
    store: str,
    source: str,
    typed: str,
    about: str,
) -> Broken:
    """Write a reproducer folder and return the failure with its path and command."""
    folder.mkdir(parents=True, exist_ok=True)
    write_documents(folder / "corpus.jsonl", documents)
    asked = broken.stage.startswith("searching") and bool(queries)
    if asked:
        lines = (json.dumps({"_id": name, "text": text}) for name, text in queries.items())
        (folder / "queries.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    count = "1 document" if len(documents) == 1 else f"The first {len(documents):,} documents"
    text = README.format(
        store=store,
        count=count,
        source=source,
        way=broken.way,
        stage=broken.stage,
        error=broken.error,
        belief=belief(broken),
        command=typed,
        queries=", `queries.jsonl` what was asked" if asked else "",
        about=about or "nothing.",
    )
    (folder / "README.md").write_text(text, encoding="utf-8", errors="replace")
    return replace(broken, reproducer=str(folder), command=typed)


def belief(broken: Broken) -> str:
    """Describe how certain it is that the failing prefix is the shortest.

    >>> belief(Broken("one by one", "putting", "full", False, 15, prefix=16, tried=[(16, True), (15, False)]))
    'With 15 documents it did not break (2 tries in all).'
    >>> belief(Broken("one by one", "putting", "full", False, 15, prefix=16, tried=[(16, False), (16, True)]))
    'No shorter prefix was tried (2 tries in all).'
    """
    if broken.prefix is None:
        return f"No shorter prefix is known: {broken.doubt}."
    tries = f"{len(broken.tried)} tries in all"
    held = [n for n, broke in broken.tried if n < broken.prefix and not broke]
    if held:
        less = f"With {'1 document' if max(held) == 1 else f'{max(held):,} documents'} it did not break ({tries})."
    elif broken.prefix:
        less = f"No shorter prefix was tried ({tries})."
    else:
        less = f"It breaks without documents ({tries})."
    return f"{less} But {broken.doubt}." if broken.doubt else less
