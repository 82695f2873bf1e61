"""ALFWorld: household tasks in text, on a native engine that plays the official game files a thousand times faster."""
