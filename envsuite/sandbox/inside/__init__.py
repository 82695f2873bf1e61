"""What runs inside a sandbox. Standard library only: this folder is all of envsuite that is visible in there."""
