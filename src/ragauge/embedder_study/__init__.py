"""Comparisons of embedders and of tokenizers."""
