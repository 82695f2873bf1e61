"""ALFWorld: household tasks in text, with a native engine for the official game files."""
