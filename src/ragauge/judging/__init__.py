"""Judging of samples: collect verdicts from a judge and compute scores from them."""
