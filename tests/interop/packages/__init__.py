"""Adapters run by the real packages, each in its own virtual environment: `make adapters-proof`."""
