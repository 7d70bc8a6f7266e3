"""Catching a suspicious number before it is believed: each check looks at the evidence and says what it found."""
