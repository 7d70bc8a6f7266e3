"""Models that reply to messages: endpoints, a local model, recordings, and a script for tests."""
