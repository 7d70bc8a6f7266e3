"""Stress test of document stores: each stage runs in its own process."""
