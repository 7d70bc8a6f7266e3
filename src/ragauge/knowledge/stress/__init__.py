"""The stress test: a store is filled, read, asked, reopened and killed, each time in a process of its own."""
