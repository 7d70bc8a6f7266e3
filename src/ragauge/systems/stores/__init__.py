"""Vector stores: exact search as the truth, and the approximate ones that are measured against it."""
