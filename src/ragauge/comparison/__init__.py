"""Compare systems on the same queries with confidence intervals and paired tests."""
