"""ALFWorld games as values: reading, parsing, generating and solving game files."""
