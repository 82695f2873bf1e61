"""Speed, measured side by side in one run; tests never assert times."""
