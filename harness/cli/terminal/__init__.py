"""Output of commands: safe text, counters and progress."""
