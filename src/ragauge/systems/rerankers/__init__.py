"""Rerankers: cross-encoder, embedding, maximal marginal relevance and LLM."""
