"""Asking a model: rubrics as files, strict reading of replies, a store of what was said, a ledger of what it cost."""
