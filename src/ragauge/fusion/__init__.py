"""Fuse several runs into one, and tune the parameters of a fusion method under cross-validation."""
