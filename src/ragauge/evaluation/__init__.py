"""Evaluation of runs: read judgments and runs, compute judged ranks, and score them."""
