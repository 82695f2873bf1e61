"""Group algorithms that assign credit to single turns.

`hgpo` compares turns by shared history, `graphgpo` by their distance to the goal in the graph of all
observed transitions, and `gagpo` by values that are means over equal observations. `spa` learns how
much each turn contributed to the outcome.
"""
