"""Expert player: applies the gold patch by commands, one per file, from any state of the repository
(`plan`).
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping

from envsuite.envs.swegym.edits import spell_create, spell_replace
from envsuite.envs.swegym.workspace import SHOWN


def plan(now: Mapping[str, bytes | None], target: Mapping[str, bytes | None]) -> list[str]:
    """Returns commands that turn the files `now` into the files `target`, by path; None stands for a
    missing file.
    """
    commands = []
    for path, content in sorted(target.items()):
        if content == now.get(path):
            continue
        if content is None:
            commands.append(f"rm -f -- {_absolute(path)}")
        else:
            commands.append(_written(path, now.get(path), content))
    return commands


def _written(path: str, before: bytes | None, after: bytes) -> str:
    try:
        old, new = (before or b"").decode(), after.decode()
        text = not set("\r\0\v\f\x1c\x1d\x1e\x85\u2028\u2029") & set(old + new)
    except UnicodeDecodeError:
        text = False
    if not text or not new.endswith("\n") or new.endswith("\n\n"):
        target = _absolute(path)
        encoded = base64.encodebytes(after).decode().strip()
        return f"mkdir -p $(dirname {target}) && base64 -d > {target} <<'E'\n{encoded}\nE"
    if before is not None and old.endswith("\n"):
        replaced = _replaced(path, old.splitlines(), new.splitlines())
        if replaced is not None and len(replaced) < len(new):
            return replaced
    return spell_create(path, new)


def _absolute(path: str) -> str:
    return shlex.quote(f"{SHOWN}/{path}")


def _replaced(path: str, old: list[str], new: list[str]) -> str | None:
    """Returns a str_replace of the single differing stretch of lines, with enough context to make it
    unique; None if impossible.
    """
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    text = "\n".join(old) + "\n"
    while True:
        stretch = "\n".join(old[head : len(old) - tail])
        fresh = "\n".join(new[head : len(new) - tail])
        marked = any(
            line.startswith(("<<<<<<<", "=======", ">>>>>>>")) for line in (stretch + "\n" + fresh).split("\n")
        )
        if marked:
            return None
        if stretch.strip() and fresh and text.count(stretch) == 1:
            return spell_replace(path, stretch, fresh)
        if head == 0 and tail == 0:
            return None
        head, tail = max(0, head - 1), max(0, tail - 1)
