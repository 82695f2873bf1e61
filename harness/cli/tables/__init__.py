"""Forms of `envsuite table`: published tables, and the matrix of players."""
