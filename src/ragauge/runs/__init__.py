"""Run queries on retrieval systems, measure latency, and write every result immediately."""
