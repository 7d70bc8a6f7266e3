"""Analysis of a corpus: novelty, gain, freshness and lint."""
