"""Counting: measures are pure functions of judged ranks; no file, no clock, no network."""
