"""Checks whether runs are comparable: same data, depth and resources, according to their manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ragauge.audits.evidence import Evidence
from ragauge.audits.wording import counted, listed
from ragauge.errors import MissingEvidence
from ragauge.findings import Finding, Grid
from ragauge.outcomes import every_part

Facts = Mapping[str, str]
DATA = ("documents", "queries")
SOME = {"seeds": "seeds", "links of a node": "most_links"}
"""Facts that only some graph walkers have, with their keys in the run's evidence.

A walker without such a fact does not count as different.
"""
SEEN = ("embedder", "graph", "prior", *SOME)
"""Facts that determine what a graph walker sees: embedder, graph, preferred metadata field, and limits on them."""
FACTS = (*DATA, "depth", "repeats", *SEEN, "budget")
"""All compared facts, in the order in which they are reported."""


def footing(evidence: Evidence) -> Iterator[Finding]:
    """Check that runs used the same data, depth, repeats, budget and resources.

    A problem if documents or queries differ. Also a problem if runs that walk a graph differ in what they see: the
    embedder, the graph (by its fingerprint), the preferred metadata field, the number of seeds, or the number of
    links per node. Other differences are reported but are not problems: BM25 has no embedder, and a deeper run is
    legitimate. Only facts in the manifests are compared. A single run gives no finding.
    """
    known = {name: facts(run.manifest) for name, run in evidence.runs.items() if run.manifest.get("plan")}
    if len(evidence.runs) < 2:
        return
    if len(known) < 2:
        raise MissingEvidence("how the runs were made is not known", hint="folders that `ragauge run` wrote know it")
    others = differing(known, DATA)
    if others:
        text = f"the runs were not made on the same {' and '.join(others)}"
        yield Finding("all runs", "other data", True, len(known), text, grid=_grid(known, others))
    walkers = {name: mine for name, mine in known.items() if mine["graph"]}
    unlike = differing(walkers, SEEN)
    if unlike:
        text = f"{listed(list(walkers))} walk a graph, and do not see the same: {_and(unlike)}"
        grid = _grid(walkers, unlike)
        yield Finding("all runs", "footing", True, len(walkers), text, grid=grid, remedy=_remedy(unlike))
    rest = [name for name in differing(known, FACTS) if name not in (*others, *unlike)]
    if rest:
        even = len(walkers) > 1 and not unlike
        text = f"all {counted(len(walkers), 'run')} that walk a graph see the same; " * even
        text += f"the runs differ in {_and(rest)}, so a difference is one of all that together"
        yield Finding("all runs", "footing", False, len(known), text, grid=_grid(known, rest))
    if not (others or unlike or rest):
        same = [name for name in FACTS if next(iter(known.values()))[name]]
        yield Finding("all runs", "footing", False, 0, f"all {counted(len(known), 'run')} have the same {_and(same)}")


def facts(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Extract the compared facts from a manifest as comparable texts.

    Empty if a fact is missing.
    """
    plan, data = manifest.get("plan") or {}, manifest.get("dataset") or {}
    parts = list(every_part(manifest.get("evidence") or {}))
    graphs = [part["graph"] for part in parts if isinstance(part.get("graph"), Mapping)]
    steps = [int(part["steps"]) for part in parts if isinstance(part.get("steps"), int)]
    return {
        "documents": _hashed(data, "documents"),
        "queries": _hashed(data, "queries"),
        "depth": str(plan.get("k") or ""),
        "repeats": str(plan.get("repeats") or ""),
        "embedder": _joined(str(part.get("embedder") or "") for part in parts),
        "graph": _joined(f"{counted(int(one.get('links') or 0), 'link')} ({one.get('fingerprint')})" for one in graphs),
        "prior": _joined(priors(manifest)),
        **{name: _joined(str(part.get(key) or "") for part in parts) for name, key in SOME.items()},
        "budget": f"{sum(steps):,}" if steps else "",
    }


def differing(known: Mapping[str, Facts], names: Sequence[str]) -> list[str]:
    """Return the names of the facts in which some runs differ."""
    found = {name: {mine[name] for mine in known.values()} for name in names}
    return [name for name, values in found.items() if len(values - {""} if name in SOME else values) > 1]


def priors(manifest: Mapping[str, Any]) -> set[str]:
    """Return the metadata fields by which a run preferred documents."""
    return {str(part["prior"]) for part in every_part(manifest.get("evidence") or {}) if part.get("prior")}


def _remedy(unlike: Sequence[str]) -> str:
    """Return the remedy if walkers differ in a preferred field, else an empty text.

    A shared prior is only fair if the field does not leak.
    """
    if "prior" not in unlike:
        return ""
    same = [name for name in unlike if name != "prior"]
    also = f"give all walkers the same {_and(same)}, and " if same else ""
    return (
        f"{also}run all of them without a prior (the same one for all is fair only if the check `predictors` calls it "
        "no leak), or call it a comparison of whole systems"
    )


def _hashed(data: Mapping[str, Any], what: str) -> str:
    return f"{data.get(what)} ({str(data[f'{what}_hash'])[:10]})" if data.get(f"{what}_hash") else ""


def _joined(texts: Iterable[str]) -> str:
    return " + ".join(sorted(set(filter(None, texts))))


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _grid(known: Mapping[str, Facts], names: Sequence[str]) -> Grid:
    return Grid(["run", *names], [[run, *(mine[name] or None for name in names)] for run, mine in known.items()])
