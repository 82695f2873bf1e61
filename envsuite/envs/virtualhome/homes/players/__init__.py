"""Players of drawn homes: the exact planner with its search, an expert that searches, and the blind script."""
