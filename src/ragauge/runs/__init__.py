"""Doing it: systems answer queries, every query is timed, written down at once, and never lost."""
