"""Overcooked-AI: two cooks make onion soups, with simultaneous moves (Carroll et al., 2019)."""
