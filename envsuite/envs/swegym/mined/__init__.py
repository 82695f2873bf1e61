"""Real bugs, mined from consecutive source releases of packages."""
