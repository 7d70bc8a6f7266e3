"""Evaluation of retrieval and RAG: ranking quality, latency, vector stores, answers, significance.

The public names; each imports what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Audit": "ragauge.core.findings",
    "BackendFailed": "ragauge.core.errors",
    "BackendRestarted": "ragauge.core.errors",
    "BadInput": "ragauge.core.errors",
    "Calibration": "ragauge.judging.calibration.results",
    "CheckFailed": "ragauge.core.errors",
    "Comparison": "ragauge.stats.comparisons",
    "Comparisons": "ragauge.stats.comparisons",
    "Convention": "ragauge.measures.conventions",
    "Dataset": "ragauge.core.records",
    "Document": "ragauge.core.documents",
    "Experiment": "ragauge.runs.results",
    "ExperimentSet": "ragauge.runs.results",
    "Finding": "ragauge.core.findings",
    "Gain": "ragauge.knowledge.gain.results",
    "Gate": "ragauge.gates.results",
    "Hit": "ragauge.core.documents",
    "Incomparable": "ragauge.core.errors",
    "JudgedSamples": "ragauge.judging.results",
    "Judgments": "ragauge.core.records",
    "Measure": "ragauge.measures.names",
    "MissingEvidence": "ragauge.core.errors",
    "MissingExtra": "ragauge.core.errors",
    "Novelty": "ragauge.knowledge.novelty.results",
    "Overview": "ragauge.comparison.results",
    "PRESETS": "ragauge.measures.conventions",
    "PgVectorDB": "ragauge.systems.pgvector",
    "RAGEvaluator": "ragauge.experiments.rag_evaluator",
    "RagaugeError": "ragauge.core.errors",
    "Run": "ragauge.core.records",
    "Sample": "ragauge.core.samples",
    "Scores": "ragauge.core.records",
    "ScoresByRun": "ragauge.core.scores_by_run",
    "StoreBenchmark": "ragauge.store_benchmarks.results",
    "StressTest": "ragauge.store_stress.results",
    "TokenizerStudy": "ragauge.embedder_study.results",
    "UnknownName": "ragauge.core.errors",
    "VectorSet": "ragauge.store_benchmarks.results",
    "adapt_retriever": "ragauge.systems.adapters",
    "audit": "ragauge.audits.audit",
    "bench": "ragauge.store_benchmarks.bench",
    "calibrate": "ragauge.judging.calibration.calibrate",
    "compare": "ragauge.comparison.compare",
    "compare_embedders": "ragauge.embedder_study.embedder_comparison",
    "compare_tokenizers": "ragauge.embedder_study.tokenizer_study",
    "dask_cluster": "ragauge.compute.dask_cluster",
    "estimate_cost": "ragauge.judging.judge",
    "evaluate": "ragauge.evaluation.evaluate",
    "evaluate_runs": "ragauge.evaluation.evaluate",
    "fuse": "ragauge.fusion.fuse",
    "gain": "ragauge.knowledge.gain.gain",
    "gate": "ragauge.gates.gate",
    "judge": "ragauge.judging.judge",
    "judge_async": "ragauge.judging.judge",
    "judgments_from_neighbours": "ragauge.files.in_memory",
    "judgments_from_subtopics": "ragauge.files.in_memory",
    "load": "ragauge.datasets",
    "novelty": "ragauge.knowledge.novelty.novelty",
    "overview": "ragauge.reports.overviews",
    "pgVectorDB": "ragauge.systems.pgvector",
    "read_judgments": "ragauge.files.readers",
    "read_run": "ragauge.files.readers",
    "rescore": "ragauge.judging.judge",
    "report": "ragauge.reports.overviews",
    "run": "ragauge.experiments.run",
    "run_each": "ragauge.experiments.run",
    "run_from_arrays": "ragauge.files.in_memory",
    "save_baseline": "ragauge.experiments.baselines",
    "stage": "ragauge.core.stages",
    "stress": "ragauge.store_stress.stress",
    "tune": "ragauge.fusion.fuse",
}

if TYPE_CHECKING:
    from ragauge.audits.audit import audit
    from ragauge.comparison.compare import compare
    from ragauge.comparison.results import Overview
    from ragauge.compute.dask_cluster import dask_cluster
    from ragauge.core.documents import Document, Hit
    from ragauge.core.errors import (
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
    from ragauge.core.findings import Audit, Finding
    from ragauge.core.records import Dataset, Judgments, Run, Scores
    from ragauge.core.samples import Sample
    from ragauge.core.scores_by_run import ScoresByRun
    from ragauge.core.stages import stage
    from ragauge.datasets import load
    from ragauge.embedder_study.embedder_comparison import compare_embedders
    from ragauge.embedder_study.results import TokenizerStudy
    from ragauge.embedder_study.tokenizer_study import compare_tokenizers
    from ragauge.evaluation.evaluate import evaluate, evaluate_runs
    from ragauge.experiments.baselines import save_baseline
    from ragauge.experiments.rag_evaluator import RAGEvaluator
    from ragauge.experiments.run import run, run_each
    from ragauge.files.in_memory import judgments_from_neighbours, judgments_from_subtopics, run_from_arrays
    from ragauge.files.readers import read_judgments, read_run
    from ragauge.fusion.fuse import fuse, tune
    from ragauge.gates.gate import gate
    from ragauge.gates.results import Gate
    from ragauge.judging.calibration.calibrate import calibrate
    from ragauge.judging.calibration.results import Calibration
    from ragauge.judging.judge import estimate_cost, judge, judge_async, rescore
    from ragauge.judging.results import JudgedSamples
    from ragauge.knowledge.gain.gain import gain
    from ragauge.knowledge.gain.results import Gain
    from ragauge.knowledge.novelty.novelty import novelty
    from ragauge.knowledge.novelty.results import Novelty
    from ragauge.measures.conventions import PRESETS, Convention
    from ragauge.measures.names import Measure
    from ragauge.reports.overviews import overview, report
    from ragauge.runs.results import Experiment, ExperimentSet
    from ragauge.stats.comparisons import Comparison, Comparisons
    from ragauge.store_benchmarks.bench import bench
    from ragauge.store_benchmarks.results import StoreBenchmark, VectorSet
    from ragauge.store_stress.results import StressTest
    from ragauge.store_stress.stress import stress
    from ragauge.systems.adapters import adapt_retriever
    from ragauge.systems.pgvector import PgVectorDB, pgVectorDB

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
    "ExperimentSet",
    "Finding",
    "Gain",
    "Gate",
    "Hit",
    "Incomparable",
    "JudgedSamples",
    "Judgments",
    "Measure",
    "MissingEvidence",
    "MissingExtra",
    "Novelty",
    "Overview",
    "PgVectorDB",
    "RAGEvaluator",
    "RagaugeError",
    "Run",
    "Sample",
    "Scores",
    "ScoresByRun",
    "StoreBenchmark",
    "StressTest",
    "TokenizerStudy",
    "UnknownName",
    "VectorSet",
    "__version__",
    "adapt_retriever",
    "audit",
    "bench",
    "calibrate",
    "compare",
    "compare_embedders",
    "compare_tokenizers",
    "dask_cluster",
    "estimate_cost",
    "evaluate",
    "evaluate_runs",
    "fuse",
    "gain",
    "gate",
    "judge",
    "judge_async",
    "judgments_from_neighbours",
    "judgments_from_subtopics",
    "load",
    "novelty",
    "overview",
    "pgVectorDB",
    "read_judgments",
    "read_run",
    "report",
    "rescore",
    "run",
    "run_each",
    "run_from_arrays",
    "save_baseline",
    "stage",
    "stress",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        if isinstance(value, FunctionType):
            from ragauge.core.arguments import check_argument_names

            value = check_argument_names(value, __name__)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ragauge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
