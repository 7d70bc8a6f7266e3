"""Readers and writers of every file format, and the folders that commands work in."""
