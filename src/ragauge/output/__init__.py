"""Reports, tables and charts, and their renderers: terminal, Markdown, HTML page, CSV, LaTeX."""
