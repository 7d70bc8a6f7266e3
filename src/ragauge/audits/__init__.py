"""Audit of judgments, runs and texts: checks for flaws that make a score misleading."""
