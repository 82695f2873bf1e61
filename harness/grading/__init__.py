"""Grading of patches for SWE-Gym and SWE-bench that were made elsewhere.

command  is envsuite grade
run      grades predictions in parallel, with a journal
reports  writes the files of SWE-bench's harness
"""
