"""Algorithms that refine GiGPO: they compare turns of a group by what the episodes have in common.

`hgpo` compares turns by shared history, `graphgpo` by their distance to the goal in the graph of all
observed transitions, and `gagpo` by values that are means over equal observations.
"""
