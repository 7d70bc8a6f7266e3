"""Read and write the result files of other evaluation tools."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ragauge.comparison.results import Overview
from ragauge.core.errors import UnknownName
from ragauge.files.source import InputFile
from ragauge.files.table_files import read_header
from ragauge.reports.layouts import pgvectordb, ragdbeval, rig, swarm, tokenization

PROBE_BYTES = 1 << 20
"""Number of leading bytes searched for the keys of a JSON file."""


@dataclass(frozen=True)
class Layout:
    """File layout of another tool's results."""

    name: str
    about: str
    ending: str
    convention: str
    """Preset under which the layout's measure names are defined."""
    wanted: Callable[[Sequence[int]], tuple[str, ...]]
    """Measures that the layout contains, as a function of the cutoffs if these can be chosen."""
    read: Callable[[str], Overview]
    write: Callable[[Overview], str]
    marks: frozenset[str]
    """Marks that identify the layout: columns of the header, or JSON keys as `/outer/inner`."""
    ks: tuple[int, ...] = ()
    """Default cutoffs, if they can be chosen."""
    mapped: tuple[str, ...] = ()
    """Measures for datasets with a target map, if they differ."""
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Measures by preset, if its names can also be read under other presets."""

    def measures(self, ks: Sequence[int] = ()) -> tuple[str, ...]:
        """Return the canonical measures that the layout needs, at given cutoffs.

        >>> LAYOUTS["pgvectordb"].measures([5])[-2:]
        ('ndcg(gain=binary)@5', 'hit_rate@5')
        """
        return self.wanted(ks or self.ks)


_RAGDBEVAL_VARIANTS = {name: tuple(measures.values()) for name, measures in ragdbeval.MEASURES_BY_CONVENTION.items()}

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        one.name: one
        for one in (
            Layout(
                "swarm",
                "the swarm notebook's long table: a row for each method, seed and query",
                ".csv",
                "swarm",
                lambda _: swarm.LAYOUT_MEASURES.measures,
                swarm.read_swarm,
                swarm.render_swarm,
                frozenset({"method", "query_id", "seed", "MRR"}),
                mapped=swarm.TARGET_MAP_LAYOUT_MEASURES.measures,
            ),
            Layout(
                "tokenization",
                "the tokenization study's table: a row for each model",
                ".csv",
                "tokenization",
                lambda _: tokenization.LAYOUT_MEASURES.measures,
                tokenization.read_model_table,
                tokenization.render_model_table,
                frozenset({"model", "num_queries", "mrr"}),
            ),
            Layout(
                "ragdbeval",
                "RAGdbEval's results: quality, speed, resources and circumstances of each experiment",
                ".json",
                "ragdbeval-capped",
                lambda _: ragdbeval.LAYOUT_MEASURES.measures,
                ragdbeval.read_ragdbeval_json,
                ragdbeval.render_ragdbeval_json,
                frozenset({"/results", "/results/experiment_name", "/results/mean_metrics"}),
                variants=_RAGDBEVAL_VARIANTS,
            ),
            Layout(
                "ragdbeval-csv",
                "RAGdbEval's table: a row for each experiment",
                ".csv",
                "ragdbeval-capped",
                lambda _: ragdbeval.LAYOUT_MEASURES.measures,
                ragdbeval.read_ragdbeval_csv,
                ragdbeval.render_ragdbeval_csv,
                frozenset({"experiment", "database", "num_runs"}),
                variants=_RAGDBEVAL_VARIANTS,
            ),
            Layout(
                "rig",
                "rig's MultiReport: one system, every query",
                ".json",
                rig.RIG_CONVENTION,
                rig.measures_at,
                rig.read_rig_report,
                rig.render_rig_report,
                frozenset({"/metrics", "/metrics/metric", "/metrics/per_query"}),
                rig.DEFAULT_KS,
            ),
            Layout(
                "rig-diff",
                "rig's ReportDiff: a system against a baseline, every query",
                ".json",
                rig.RIG_CONVENTION,
                rig.measures_at,
                rig.read_rig_diff,
                rig.render_rig_diff,
                frozenset({"/rows", "/rows/metric", "/rows/current_mean"}),
                rig.DEFAULT_KS,
            ),
            Layout(
                "pgvectordb",
                "pgVectorDB's table: a row for each method and K",
                ".csv",
                "pgvectordb",
                pgvectordb.measures_at,
                pgvectordb.read_pgvectordb,
                pgvectordb.render_pgvectordb,
                frozenset({"Method", "K", "Precision@K"}),
                pgvectordb.DEFAULT_KS,
            ),
        )
    }
)


def find_layout(name: str) -> Layout:
    """Return the layout with a name, ignoring case. Raises UnknownName.

    >>> find_layout("RIG").ending
    '.json'
    """
    found = LAYOUTS.get(name.strip().lower())
    if found is None:
        raise UnknownName("layout", name, LAYOUTS, hint=f"there are {', '.join(LAYOUTS)}")
    return found


def recognise_layout(path: str) -> str | None:
    """Return the name of a file's layout, or None if it is unknown.

    The layout is recognised by the header or the first keys.
    """
    source = InputFile(path)
    if path != "-" and os.path.isdir(path):
        return None
    if source.ending == ".json":
        with source.open() as file:
            marks = _find_json_keys(file.read(PROBE_BYTES).decode("utf-8", "replace"))
    elif source.ending in (".csv", ".tsv"):
        marks = set(read_header(source, source.ending[1:]))
    else:
        return None
    return next((name for name, layout in LAYOUTS.items() if layout.marks <= marks), None)


def _find_json_keys(text: str) -> set[str]:
    """Return the keys of the outermost object and of objects in lists below it.

    The text can be truncated.

    >>> sorted(_find_json_keys('{"a": [{"b": "c", "d": {"e": 1}}], "f": 2, "g')) == ["/a", "/a/b", "/a/d", "/f"]
    True
    """
    found: set[str] = set()
    path: list[str] = []
    """Current key of each open object. Lists have no entry."""
    shape: list[str] = []
    for token in re.finditer(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]', text):
        mark = token[0]
        if mark in "{[":
            shape.append(mark)
            if mark == "{":
                path.append("")
        elif mark in "}]":
            if shape and shape.pop() == "{":
                path.pop()
        elif token[2] and path and "".join(shape) in ("{", "{[{"):
            path[-1] = token[1]
            found.add("/" + "/".join(path))
    return found
