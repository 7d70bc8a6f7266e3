"""Fusion of several rankings into one: normalisations, fusion methods, cross-validated tuning."""

from __future__ import annotations

from ragauge.fusion.learned import Trained
from ragauge.fusion.normalising import NORMALISATIONS
from ragauge.fusion.queries import fuse_query, fuse_runs, missing_queries, train
from ragauge.fusion.table import METHODS, default_norm
from ragauge.fusion.tuning import Fold, Tuned, cross_validated

__all__ = [
    "METHODS",
    "NORMALISATIONS",
    "Fold",
    "Trained",
    "Tuned",
    "cross_validated",
    "default_norm",
    "fuse_query",
    "fuse_runs",
    "missing_queries",
    "train",
]
