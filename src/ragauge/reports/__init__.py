"""Build and render reports on systems, and register reports of other results."""
