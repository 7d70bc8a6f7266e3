"""Embedders side by side, as an account and as rows."""

from __future__ import annotations

from ragauge.lineups import Lineup
from ragauge.reports.accounts import Account


def account(found: Lineup) -> Account:
    """What is told of embedders."""
    return Account("embedders", "Embedders", [found.dataset], "", notes=found.notes, circumstances=found.circumstances)


def csv(found: Lineup) -> str:
    """A row for each embedder."""
    return "".join(f"{one.name}\n" for one in found.entrants)
