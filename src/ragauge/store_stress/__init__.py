"""Durability stress test of document stores (`ragauge.stress`)."""
