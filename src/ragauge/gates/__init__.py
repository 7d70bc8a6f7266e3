"""Gates: check a run, and its difference to a baseline, against rules."""
