"""Statistics: confidence intervals, significance tests, agreement and power."""
