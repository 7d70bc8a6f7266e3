"""Analysis of a corpus: novelty, gain, freshness, lint and graph structure."""
