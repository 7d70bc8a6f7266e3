"""Texts to vectors; each library loads when its embedder is made."""
