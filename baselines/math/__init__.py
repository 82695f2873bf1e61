"""Pure functions: advantage estimators and losses."""
