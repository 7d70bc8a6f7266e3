"""Analysis of a corpus: novelty, gain and freshness."""
