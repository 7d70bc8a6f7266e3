"""Retrieval systems: BM25, dense, hybrid, graph and PostgreSQL retrievers, pipelines, and adapters for others."""
