"""Gain of a corpus from added documents, overall and per query."""
