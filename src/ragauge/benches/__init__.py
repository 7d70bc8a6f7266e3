"""Vector stores, measured: the vectors, their exact neighbours, a sweep over parameters, load, and the frontier."""
