"""Gain of a corpus from added documents, overall, per query and per document."""
