"""Checks of a corpus for problems in its documents."""
