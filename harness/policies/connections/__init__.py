"""Connections to model servers: the event loop, retries, health, affinity and bounded answers."""
