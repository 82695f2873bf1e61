"""Code that runs inside a sandbox.

Standard library only: no other part of envsuite is visible there.
"""
