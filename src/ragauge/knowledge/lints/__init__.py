"""What is wrong with a corpus: reading that stops at nothing, and the checks."""
