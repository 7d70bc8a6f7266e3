"""Measures: pure functions of judged ranks and verdicts, without file, clock or network access."""
