"""Gates: the grammar of rules, the indicators that they refer to, and their checks."""
