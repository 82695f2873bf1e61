"""Examples, each of them run by a test."""
