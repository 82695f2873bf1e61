"""Vector environments of text games: the common base, and games played by table look-up."""
