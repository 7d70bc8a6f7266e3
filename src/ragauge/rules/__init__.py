"""What is asked of a run: the grammar of rules, the figures that they are about, and the checks themselves."""
