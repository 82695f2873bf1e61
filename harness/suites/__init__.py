"""Suites, leaderboards and published tables: fixed protocols and the results under them."""
