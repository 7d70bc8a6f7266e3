"""Tokenizers side by side, as an account and as rows."""

from __future__ import annotations

from ragauge.lineups import Tokenizers
from ragauge.reports.accounts import Account


def account(found: Tokenizers) -> Account:
    """What is told of tokenizers."""
    return Account("tokenizers", "Tokenizers", [found.corpus], "", circumstances=found.circumstances)


def csv(found: Tokenizers) -> str:
    """A row for each tokenizer."""
    return "".join(f"{one.tokenizer}\n" for one in found.rows)
