"""Run systems on the queries of a dataset, then time, score and compare them."""
