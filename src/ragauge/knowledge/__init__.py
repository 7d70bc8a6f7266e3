"""What a document is worth: novelty, gain, freshness, lint; and whether a store is sound."""
