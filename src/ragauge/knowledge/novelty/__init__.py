"""Novelty of documents against a corpus, by chunks, shingles and claims."""
