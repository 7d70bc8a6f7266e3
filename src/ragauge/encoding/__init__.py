"""Measuring embedders: texts to vectors, vectors to rankings, and what becomes of both when something is changed."""
