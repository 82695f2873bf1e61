"""Verification of a stranger's run folder or board in the sandbox: `envsuite replay --sandbox`.

`command` copies the folder into a sandbox and writes the certificate; `inside` is the program that reads, replays
and renders it there. Records whose commands are programs are replayed outside, and only with `--replay-outside`.
"""
