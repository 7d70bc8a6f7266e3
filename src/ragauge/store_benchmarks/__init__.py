"""Benchmarks of vector stores: exact neighbours, one process per store, and the analysis of the results."""
