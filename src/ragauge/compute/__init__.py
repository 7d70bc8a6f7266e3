"""Worker processes, executors, event loops, progress, and measurements of the machine."""
