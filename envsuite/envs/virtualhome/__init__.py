"""VirtualHome: household tasks in words, on a small engine of rooms, things and two hands."""
