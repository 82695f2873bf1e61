"""SWE-Gym: repositories to repair, from SWE-Gym and SWE-bench records, mined bugs, or planted ones.

In reading order: `env` (the game), `edits` and `workspace` (commands), `judge` (rules of grading),
`planted`, `mined` and `published` (texts and tasks), `instances` and `menu` (their lists), `expert`, and
`makers` (generators).
"""
