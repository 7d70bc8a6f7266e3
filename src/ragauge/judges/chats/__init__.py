"""Chat models: OpenAI-compatible endpoints, local models, recordings, and scripted replies for tests."""
