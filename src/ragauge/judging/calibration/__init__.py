"""Calibration of a judge: agreement of its scores with human labels, and its biases."""
