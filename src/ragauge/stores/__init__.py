"""Vector and document stores: one adapter per engine, and exact search."""
