"""Hits in a better order."""
