"""Novelty of documents against a corpus, by vectors, shingles and claims."""
