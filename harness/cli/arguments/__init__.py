"""Command lines: the parser, and flags that several commands have."""
