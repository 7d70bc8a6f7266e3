"""Build the compact data embedded in a page: values, rankings and texts."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragauge.overviews import Entry, Overview
from ragauge.records import Document, Floats

MOST_ROWS = 600_000
"""Maximum number of returned documents in a page. The queries that differ least are left out first."""
MOST_CHARACTERS = 8_000_000
"""Maximum number of characters of document texts in a page. The queries that differ least are left out first."""
SNIPPET = 300
DEPTH = 10


def as_json(thing: Any) -> str:
    """Return JSON for a script element, without characters that HTML would interpret."""
    text = json.dumps(thing, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(thing: Any) -> str:
    """Return JSON compressed with gzip and encoded in Base64."""
    raw = json.dumps(thing, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = gzip.compress(raw.encode("utf-8", "replace"), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode("ascii")


def browsable(overview: Overview) -> list[str]:
    """Return the systems with the same queries as the first scored one."""
    known = [entry for entry in overview.entries.values() if entry.scores]
    return [entry.name for entry in known if entry.scores[0].queries == known[0].scores[0].queries]


def values(overview: Overview) -> dict[str, Any]:
    """Return ids, texts, values, tags and errors of the queries."""
    systems = browsable(overview)
    entries = [overview.entries[name] for name in systems]
    ids = entries[0].scores[0].queries
    place = {query: i for i, query in enumerate(ids)}
    return {
        "ids": ids,
        "texts": [overview.queries.get(query, "") for query in ids],
        "values": [[_column(entry, measure, len(ids)) for entry in entries] for measure in overview.measures],
        "tags": _tags(overview, ids),
        "failed": {
            str(i): {str(place[query]): why for query, why in entry.failed.items() if query in place}
            for i, entry in enumerate(entries)
            if entry.failed
        },
    }


def _column(entry: Entry, measure: str, n: int) -> list[float | None]:
    if measure not in entry.scores[0].values:
        return [None] * n
    return [None if math.isnan(value) else round(value, 6) for value in entry.values(measure).tolist()]


def _tags(overview: Overview, ids: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for tag, parts in overview.strata.items():
        names = [part.value for part in parts]
        place = {name: i for i, name in enumerate(names)}
        told = [overview.tags.get(query, {}).get(tag, "") for query in ids]
        found.append({"tag": tag, "names": names, "of": [place.get(name, -1) for name in told]})
    return found


def rankings(overview: Overview) -> dict[str, Any] | None:
    """Return the rankings of the queries that differ most, with grades and texts.

    Returns None if runs or judgments are unknown.
    """
    systems = browsable(overview)
    runs = {name: overview.entries[name].run for name in systems}
    judgments = overview.judgments
    if judgments is None or None in runs.values() or not any(run and run.table.height for run in runs.values()):
        return None
    ids = overview.entries[systems[0]].scores[0].queries
    depth = shown_depth(overview)
    kept = _most_moved(overview, systems, max(1, MOST_ROWS // (depth * len(systems))))
    places: list[int | None] = [None] * len(ids)
    for place, query in enumerate(kept):
        places[query] = place
    wanted = [ids[i] for i in kept]
    numbers: dict[str, int] = {}
    first = overview.entries[systems[0]].scores[0]
    ties = "trec" if first.judged is None else first.judged.ties
    lists = [_list(run.table, wanted, depth, numbers, ties) for run in runs.values() if run is not None]
    rel = first.rel
    grades = [judgments.nested.get(query, {}) for query in wanted]
    judged = {
        "starts": np.concatenate([[0], np.cumsum([len(docs) for docs in grades])]).tolist(),
        "docs": [numbers.setdefault(doc, len(numbers)) for docs in grades for doc in docs],
        "grades": [int(grade) if float(grade).is_integer() else grade for docs in grades for grade in docs.values()],
    }
    return {
        "depth": depth,
        "rel": 1 if rel is None else rel,
        "places": places,
        "docs": list(numbers),
        "texts": _texts(list(numbers), _first_places([*lists, judged], len(numbers)), overview.documents),
        "lists": lists,
        "judged": judged,
    }


def shown_depth(overview: Overview) -> int:
    """Return the number of documents per ranking in the page.

    It is the cutoff of the first measure, limited to 5 to 20.
    """
    cutoff = re.search(r"@(\d+)$", overview.first)
    return DEPTH if cutoff is None else min(max(int(cutoff[1]), 5), 20)


def _most_moved(overview: Overview, systems: Sequence[str], most: int) -> list[int]:
    """Return positions of the `most` queries that differ most between systems."""
    table: Floats = np.array([overview.entries[name].values(overview.first) for name in systems])
    filled = np.where(np.isnan(table), 0.0, table)
    spread = filled.max(axis=0) - filled.min(axis=0)
    return [int(i) for i in np.argsort(-spread, kind="stable")[:most]]


def _list(table: Any, wanted: Sequence[str], depth: int, numbers: dict[str, int], ties: str) -> dict[str, list[Any]]:
    """Return the top documents of the wanted queries as flat arrays.

    They are in the order that was scored: by score, and ties by the rule `ties`.
    """
    import polars as pl

    asked = pl.DataFrame({"query": pl.Series(wanted, dtype=pl.String), "place": np.arange(len(wanted))})
    down = {"place": False, "score": True, **({"doc": True} if ties != "ranked" else {})}
    if ties == "ranked" and "rank" in table.columns:
        down["rank"] = False
    found = (
        asked.join(table, on="query", how="inner", maintain_order="right")
        .sort(list(down), descending=list(down.values()), nulls_last=True, maintain_order=True)
        .group_by("place", maintain_order=True)
        .head(depth)
    )
    sizes = np.bincount(found["place"].to_numpy(), minlength=len(wanted))
    return {
        "starts": np.concatenate([[0], np.cumsum(sizes)]).tolist(),
        "docs": [numbers.setdefault(doc, len(numbers)) for doc in found["doc"].to_list()],
        "scores": [_short(score) for score in found["score"].to_list()],
    }


def _short(score: float | None) -> float | None:
    """Round a score to five significant digits; None if it is not finite."""
    if score is None or not math.isfinite(score):
        return None
    return float(f"{score:.5g}")


def _first_places(lists: Sequence[Mapping[str, Any]], n: int) -> Floats:
    """Return for each document the first query that contains it, by position."""
    first = np.full(n, np.inf)
    for one in lists:
        owners = np.repeat(np.arange(len(one["starts"]) - 1), np.diff(one["starts"]))
        np.minimum.at(first, np.array(one["docs"], np.int64), owners)
    return first


def _texts(ids: Sequence[str], order: Floats, documents: Mapping[str, Document]) -> list[list[str] | None]:
    """Return title and snippet of each document, up to the text limit.

    `order` decides which documents come first; None marks those left out.
    """
    found: list[list[str] | None] = [None] * len(ids)
    left = MOST_CHARACTERS
    for i in np.argsort(order, kind="stable").tolist():
        known = documents.get(ids[i])
        if left <= 0:
            break
        if known is None:
            continue
        text = " ".join(known.text[: 2 * SNIPPET].split())
        text = text if len(text) <= SNIPPET else text[: SNIPPET - 1] + "…"
        left -= len(text) + len(known.title)
        found[i] = [known.title, text]
    return found
