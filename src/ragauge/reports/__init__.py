"""Build an overview of systems and write it as a page, charts and tables."""
