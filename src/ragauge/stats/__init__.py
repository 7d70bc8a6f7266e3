"""Believing it: whether a difference is more than chance."""
