"""Embedders, tokenizers and chat models."""
