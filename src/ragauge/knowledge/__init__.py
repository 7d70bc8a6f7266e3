"""Analysis of a corpus: novelty and gain."""
