"""Embedders: turn texts into vectors; each library is imported when its embedder is created."""
