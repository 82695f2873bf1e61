"""Records and tasks handed to other people's tools, unchanged. Each module needs a package of its own, an extra."""
