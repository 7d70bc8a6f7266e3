"""Errors, records, protocols of plug-ins and other definitions that every other package uses."""
