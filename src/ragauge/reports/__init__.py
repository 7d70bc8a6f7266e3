"""Showing it: tables for people and for machines; nothing here counts."""
