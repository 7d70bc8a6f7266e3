"""Benchmarks of vector stores: vector sets, exact neighbours, parameter sweeps, load tests and Pareto frontiers."""
