"""Read and write the result files of other evaluation tools.

`LAYOUT_MARKS` in `runs/input_kinds.py` has the marks by which a layout is recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ragauge.comparison.results import Overview
from ragauge.core.errors import UnknownName
from ragauge.reports.layouts import pgvectordb, ragdbeval, rig, swarm, tokenization


@dataclass(frozen=True)
class Layout:
    """File layout of another tool's results."""

    name: str
    about: str
    ending: str
    convention: str
    """Preset under which the layout's measure names are defined."""
    measures_at: Callable[[Sequence[int]], tuple[str, ...]]
    """Measures that the layout contains, as a function of the cutoffs if these can be chosen."""
    read: Callable[[str], Overview]
    write: Callable[[Overview], str]
    ks: tuple[int, ...] = ()
    """Default cutoffs, if they can be chosen."""
    target_map_measures: tuple[str, ...] = ()
    """Measures for datasets with a target map, if they differ."""
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Measures by preset, if its names can also be read under other presets."""

    def measures(self, ks: Sequence[int] = ()) -> tuple[str, ...]:
        """Return the canonical measures that the layout needs, at given cutoffs.

        >>> LAYOUTS["pgvectordb"].measures([5])[-2:]
        ('ndcg(gain=binary)@5', 'hit_rate@5')
        """
        return self.measures_at(ks or self.ks)


_RAGDBEVAL_VARIANTS = {name: tuple(measures.values()) for name, measures in ragdbeval.MEASURES_BY_CONVENTION.items()}

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            Layout(
                "swarm",
                "the swarm notebook's long table: one row per method, seed and query",
                ".csv",
                "swarm",
                lambda _: swarm.LAYOUT_MEASURES.measures,
                swarm.read_swarm,
                swarm.render_swarm,
                target_map_measures=swarm.TARGET_MAP_LAYOUT_MEASURES.measures,
            ),
            Layout(
                "tokenization",
                "the tokenization study's table: one row per model",
                ".csv",
                "tokenization",
                lambda _: tokenization.LAYOUT_MEASURES.measures,
                tokenization.read_model_table,
                tokenization.render_model_table,
            ),
            Layout(
                "ragdbeval",
                "RAGdbEval's results: quality, speed, resources and environment of each experiment",
                ".json",
                "ragdbeval-capped",
                lambda _: ragdbeval.LAYOUT_MEASURES.measures,
                ragdbeval.read_ragdbeval_json,
                ragdbeval.render_ragdbeval_json,
                variants=_RAGDBEVAL_VARIANTS,
            ),
            Layout(
                "ragdbeval-csv",
                "RAGdbEval's table: one row per experiment",
                ".csv",
                "ragdbeval-capped",
                lambda _: ragdbeval.LAYOUT_MEASURES.measures,
                ragdbeval.read_ragdbeval_csv,
                ragdbeval.render_ragdbeval_csv,
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
                rig.DEFAULT_KS,
            ),
            Layout(
                "pgvectordb",
                "pgVectorDB's table: one row per method and K",
                ".csv",
                "pgvectordb",
                pgvectordb.measures_at,
                pgvectordb.read_pgvectordb,
                pgvectordb.render_pgvectordb,
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
    layout = LAYOUTS.get(name.strip().lower())
    if layout is None:
        raise UnknownName("layout", name, LAYOUTS)
    return layout
