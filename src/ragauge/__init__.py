"""One gauge for retrieval: ranking quality, speed, grounding, and whether a change is real.

The public names, and nothing else; each loads what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Audit": "ragauge.findings",
    "BackendFailed": "ragauge.errors",
    "BackendRestarted": "ragauge.errors",
    "BadInput": "ragauge.errors",
    "Calibration": "ragauge.calibrations",
    "CheckFailed": "ragauge.errors",
    "Comparison": "ragauge.comparisons",
    "Comparisons": "ragauge.comparisons",
    "Convention": "ragauge.measures.conventions",
    "Dataset": "ragauge.records",
    "Document": "ragauge.records",
    "Experiment": "ragauge.outcomes",
    "Finding": "ragauge.findings",
    "Freshness": "ragauge.ages",
    "Gain": "ragauge.worths",
    "Gate": "ragauge.gates",
    "History": "ragauge.histories",
    "Hit": "ragauge.records",
    "Incomparable": "ragauge.errors",
    "Judged": "ragauge.verdicts",
    "Judgments": "ragauge.records",
    "Lineup": "ragauge.lineups",
    "Lint": "ragauge.findings",
    "Measure": "ragauge.measures.names",
    "MissingEvidence": "ragauge.errors",
    "MissingExtra": "ragauge.errors",
    "Novelty": "ragauge.worths",
    "Overview": "ragauge.overviews",
    "Ordeal": "ragauge.ordeals",
    "PRESETS": "ragauge.measures.conventions",
    "PgVectorDB": "ragauge.systems.pgvector_db",
    "pgVectorDB": "ragauge.systems.pgvector_db",
    "RAGEvaluator": "ragauge.evaluator",
    "RagaugeError": "ragauge.errors",
    "Reliability": "ragauge.outcomes",
    "Run": "ragauge.records",
    "Sample": "ragauge.verdicts",
    "Scores": "ragauge.records",
    "Study": "ragauge.outcomes",
    "Sweep": "ragauge.sweeps",
    "Tokenizers": "ragauge.lineups",
    "UnknownName": "ragauge.errors",
    "VectorSet": "ragauge.sweeps",
    "Web": "ragauge.webs",
    "adapt_retriever": "ragauge.systems.adapters",
    "arrays": "ragauge.formats",
    "audit": "ragauge.auditing",
    "bench": "ragauge.benching",
    "calibrate": "ragauge.calibrating",
    "cluster": "ragauge.clusters",
    "compare": "ragauge.comparing",
    "embedders": "ragauge.embedding",
    "evaluate": "ragauge.verbs",
    "freshness": "ragauge.staleness",
    "fuse": "ragauge.fusing",
    "gain": "ragauge.gaining",
    "gate": "ragauge.gating",
    "graph": "ragauge.graphing",
    "estimate": "ragauge.judging",
    "history": "ragauge.chronicle",
    "judge": "ragauge.judging",
    "judge_async": "ragauge.judging",
    "lint": "ragauge.linting",
    "load": "ragauge.datasets.loading",
    "neighbours": "ragauge.formats",
    "novelty": "ragauge.novelties",
    "overview": "ragauge.reporting",
    "read_judgments": "ragauge.formats",
    "recount": "ragauge.judging",
    "read_run": "ragauge.formats",
    "reliability": "ragauge.trials",
    "report": "ragauge.reporting",
    "run": "ragauge.experiments",
    "run_each": "ragauge.experiments",
    "save_baseline": "ragauge.baselines",
    "stage": "ragauge.stages",
    "stress": "ragauge.stressing",
    "subtopic_judgments": "ragauge.formats",
    "tokenizers": "ragauge.tokenizing",
    "tune": "ragauge.fusing",
}

if TYPE_CHECKING:
    from ragauge.ages import Freshness
    from ragauge.auditing import audit
    from ragauge.baselines import save_baseline
    from ragauge.benching import bench
    from ragauge.calibrating import calibrate
    from ragauge.calibrations import Calibration
    from ragauge.chronicle import history
    from ragauge.clusters import cluster
    from ragauge.comparing import compare
    from ragauge.comparisons import Comparison, Comparisons
    from ragauge.datasets.loading import load
    from ragauge.embedding import embedders
    from ragauge.errors import (
        BackendFailed,
        BackendRestarted,
        BadInput,
        CheckFailed,
        Incomparable,
        MissingEvidence,
        MissingExtra,
        RagaugeError,
        UnknownName,
    )
    from ragauge.evaluator import RAGEvaluator
    from ragauge.experiments import run, run_each
    from ragauge.findings import Audit, Finding, Lint
    from ragauge.formats import arrays, neighbours, read_judgments, read_run, subtopic_judgments
    from ragauge.fusing import fuse, tune
    from ragauge.gaining import gain
    from ragauge.gates import Gate
    from ragauge.gating import gate
    from ragauge.graphing import graph
    from ragauge.histories import History
    from ragauge.judging import estimate, judge, judge_async, recount
    from ragauge.lineups import Lineup, Tokenizers
    from ragauge.linting import lint
    from ragauge.measures.conventions import PRESETS, Convention
    from ragauge.measures.names import Measure
    from ragauge.novelties import novelty
    from ragauge.ordeals import Ordeal
    from ragauge.outcomes import Experiment, Reliability, Study
    from ragauge.overviews import Overview
    from ragauge.records import Dataset, Document, Hit, Judgments, Run, Scores
    from ragauge.reporting import overview, report
    from ragauge.stages import stage
    from ragauge.staleness import freshness
    from ragauge.stressing import stress
    from ragauge.sweeps import Sweep, VectorSet
    from ragauge.systems.adapters import adapt_retriever
    from ragauge.systems.pgvector_db import PgVectorDB, pgVectorDB
    from ragauge.tokenizing import tokenizers
    from ragauge.trials import reliability
    from ragauge.verbs import evaluate
    from ragauge.verdicts import Judged, Sample
    from ragauge.webs import Web
    from ragauge.worths import Gain, Novelty

__all__ = [
    "PRESETS",
    "Audit",
    "BackendFailed",
    "BackendRestarted",
    "BadInput",
    "Calibration",
    "CheckFailed",
    "Comparison",
    "Comparisons",
    "Convention",
    "Dataset",
    "Document",
    "Experiment",
    "Finding",
    "Freshness",
    "Gain",
    "Gate",
    "History",
    "Hit",
    "Incomparable",
    "Judged",
    "Judgments",
    "Lineup",
    "Lint",
    "Measure",
    "MissingEvidence",
    "MissingExtra",
    "Novelty",
    "Ordeal",
    "Overview",
    "PgVectorDB",
    "RAGEvaluator",
    "RagaugeError",
    "Reliability",
    "Run",
    "Sample",
    "Scores",
    "Study",
    "Sweep",
    "Tokenizers",
    "UnknownName",
    "VectorSet",
    "Web",
    "__version__",
    "adapt_retriever",
    "arrays",
    "audit",
    "bench",
    "calibrate",
    "cluster",
    "compare",
    "embedders",
    "estimate",
    "evaluate",
    "freshness",
    "fuse",
    "gain",
    "gate",
    "graph",
    "history",
    "judge",
    "judge_async",
    "lint",
    "load",
    "neighbours",
    "novelty",
    "overview",
    "pgVectorDB",
    "read_judgments",
    "read_run",
    "recount",
    "reliability",
    "report",
    "run",
    "run_each",
    "save_baseline",
    "stage",
    "stress",
    "subtopic_judgments",
    "tokenizers",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ragauge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
