"""Datasets: corpus, queries and judgments, loaded by name, from a folder or from a file."""
