"""The harness: policies play environments, and what happened is recorded, counted and compared."""

import os

# Read by OpenMP when torch loads it: threads that wait by spinning slow each other down several times over where
# environments or other programs want the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
