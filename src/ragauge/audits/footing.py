"""Whether runs that are compared had the same to work with, as far as their manifests know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ragauge.audits.evidence import Evidence
from ragauge.audits.wording import counted, listed
from ragauge.errors import MissingEvidence
from ragauge.findings import Finding, Grid

Facts = Mapping[str, str]
DATA = ("documents", "queries")
SEEN = ("embedder", "graph", "prior")
"""What a walker goes by: texts as vectors, links, and a field of the metadata that it prefers."""
FACTS = (*DATA, "depth", "repeats", *SEEN, "budget")
"""What is looked at, in the order in which it is told."""


def footing(evidence: Evidence) -> Iterator[Finding]:
    """Runs that are compared and differ in documents, queries, depth, repeats, embedder, graph, prior field or budget.

    A problem where documents or queries differ; and where runs that walk a graph differ in what they see: the embedder,
    the graph (by its fingerprint) or the field of the metadata that they prefer. Elsewhere it is said: BM25 has no
    embedder, and a deeper run is no cheat. Only what the manifests tell is compared; of a single run nothing is said.
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
        yield Finding("all runs", "footing", True, len(walkers), text, grid=_grid(walkers, unlike))
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
    """What a manifest knows, as texts that are equal where it is the same; empty where it knows nothing."""
    plan, data = manifest.get("plan") or {}, manifest.get("dataset") or {}
    parts = list(_parts(manifest.get("evidence") or {}))
    graphs = [part["graph"] for part in parts if isinstance(part.get("graph"), Mapping)]
    steps = [int(part["steps"]) for part in parts if isinstance(part.get("steps"), int)]
    return {
        "documents": _hashed(data, "documents"),
        "queries": _hashed(data, "queries"),
        "depth": str(plan.get("k") or ""),
        "repeats": str(plan.get("repeats") or ""),
        "embedder": _joined(str(part.get("embedder") or "") for part in parts),
        "graph": _joined(f"{counted(int(one.get('links') or 0), 'link')} ({one.get('fingerprint')})" for one in graphs),
        "prior": _joined(str(part.get("prior") or "") for part in parts),
        "budget": f"{sum(steps):,}" if steps else "",
    }


def differing(known: Mapping[str, Facts], names: Sequence[str]) -> list[str]:
    """The facts in which some runs differ."""
    return [name for name in names if len({mine[name] for mine in known.values()}) > 1]


def _parts(evidence: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a system says of itself, and what each of its parts says, however deep."""
    yield evidence
    for part in evidence.get("parts") or ():
        if isinstance(part, Mapping):
            yield from _parts(part)


def _hashed(data: Mapping[str, Any], what: str) -> str:
    return f"{data.get(what)} ({str(data[f'{what}_hash'])[:10]})" if data.get(f"{what}_hash") else ""


def _joined(texts: Iterable[str]) -> str:
    return " + ".join(sorted(set(filter(None, texts))))


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _grid(known: Mapping[str, Facts], names: Sequence[str]) -> Grid:
    return Grid(["run", *names], [[run, *(mine[name] or None for name in names)] for run, mine in known.items()])
