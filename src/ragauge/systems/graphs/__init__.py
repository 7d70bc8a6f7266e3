"""Retrieval over links: what a graph is made from (links, knn, entities, fields), and who walks on it."""
