"""Comparison of embedders on the same dataset, retriever and context length."""
