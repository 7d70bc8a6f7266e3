"""Statistics: confidence intervals, significance tests, agreement, power and reliability."""
